"""Actions between two tags that are strings, in the token ids of responses."""

from __future__ import annotations

from typing import Any, Dict, Iterator, Tuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

import reweight

Tags = Tuple[str, str]

# What is known of an id: that it was decoded; that it holds a tag; that a tag can begin at its end; that it can go on
# with a tag that began before it.
_SEEN, _HOLDS, _BEGINS, _GOES_ON = 1, 2, 4, 8


class _Vocabulary:
    """What the ids of a tokenizer say, each decoded once."""

    def __init__(self, tags: Tags) -> None:
        self.tags = tags
        self.texts: Dict[int, str] = {}
        self.known = np.zeros(0, np.uint8)  # by id

    def learn(self, ids: npt.NDArray[np.int64], tokenizer: Any) -> None:
        """Decodes those of the ids that are new."""
        size = int(ids.max(initial=-1)) + 1
        if size > len(self.known):
            self.known = np.concatenate([self.known, np.zeros(size - len(self.known), np.uint8)])
        new = np.zeros(size, bool)
        new[ids] = True
        for i in np.flatnonzero(new & (self.known[:size] == 0)).tolist():
            text = self.texts[i] = tokenizer.decode([i])
            self.known[i] = _SEEN
            for tag in self.tags:
                if tag in text:
                    self.known[i] |= _HOLDS
                if any(text.endswith(tag[:k]) for k in range(1, len(tag))):
                    self.known[i] |= _BEGINS
                if any(tag.startswith(text, k) or text.startswith(tag[k:]) for k in range(1, len(tag))):
                    self.known[i] |= _GOES_ON

    def at(self, ids: npt.NDArray[np.int64], place: int, stop: int) -> Iterator[Tuple[int, int, Tuple[int, int]]]:
        """The tags that begin in the id at a place and end before the place stop: number, character, and end."""
        first = self.texts[int(ids[place])]
        for k, character in enumerate(first):
            for number, tag in enumerate(self.tags):
                if tag[0] != character:
                    continue
                text, last = first[k:], place
                while len(text) < len(tag) and tag.startswith(text) and last + 1 < stop:
                    last += 1
                    text += self.texts[int(ids[last])]
                if text.startswith(tag):
                    yield number, k, (last, len(self.texts[int(ids[last])]) - (len(text) - len(tag)))


_vocabularies: "WeakKeyDictionary[Any, Dict[Tags, _Vocabulary]]" = WeakKeyDictionary()


def _vocabulary(tokenizer: Any, tags: Tags) -> _Vocabulary:
    try:
        return _vocabularies.setdefault(tokenizer, {}).setdefault(tags, _Vocabulary(tags))
    except TypeError:  # it cannot be a key
        return _Vocabulary(tags)


def roles(
    response: npt.NDArray[np.bool_],
    ids: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    tags: Tags,
    tokenizer: Any,
) -> npt.NDArray[np.uint8]:
    """Returns the role of each token: an action strictly between an opening tag and the next closing one of a response.

    A tokenizer joins the ends of a tag with what stands next to it: tags are looked for in the text of a response and
    not in its ids. A token that holds a part of a tag is no action. The text is put together only where a tag can
    begin, which is in few ids of a vocabulary.
    """
    found = response.astype(np.uint8)
    places = np.flatnonzero(response)
    chosen = ids[places]
    if chosen.min(initial=0) < 0:
        raise reweight.InputError("token_ids", f"is {chosen.min()} at a response token, want at least 0")
    vocabulary = _vocabulary(tokenizer, tags)
    vocabulary.learn(chosen, tokenizer)
    spans = reweight.spans_from_mask(response, offsets)
    ends = np.append(np.flatnonzero(np.diff(spans[places])) + 1, len(places))  # of responses, among places
    known = vocabulary.known[chosen]
    splits = (known[:-1] & _BEGINS != 0) & (known[1:] & _GOES_ON != 0)
    candidates = np.flatnonzero((known & _HOLDS != 0) | np.append(splits, False)[: len(known)])
    response_of = np.searchsorted(ends, candidates, "right")
    last, opened, done = -1, None, (-1, 0)
    for p, r in zip(candidates.tolist(), response_of.tolist()):
        if r != last:
            last, opened, done = r, None, (-1, 0)
        for number, k, end in vocabulary.at(chosen, p, int(ends[r])):
            if (p, k) < done or number != (0 if opened is None else 1):
                continue
            done = end
            if opened is None:
                opened = end[0] + 1
            else:
                found[places[opened:p]] = reweight.ACTION
                opened = None
    return found
