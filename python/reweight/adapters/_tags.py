"""Actions between two tags that are strings, in the token ids of responses."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple
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
            twice = tokenizer.decode([i, i])  # a tokenizer may leave the space out that a text begins with
            text = self.texts[i] = twice[len(twice) // 2 :]
            self.known[i] = _SEEN
            for tag in self.tags:
                if tag in text:
                    self.known[i] |= _HOLDS
                if any(text.endswith(tag[:k]) for k in range(1, len(tag))):
                    self.known[i] |= _BEGINS
                if any(tag.startswith(text, k) or text.startswith(tag[k:]) for k in range(1, len(tag))):
                    self.known[i] |= _GOES_ON

    def at(self, window: Sequence[int]) -> List[Tuple[int, int, int, int]]:
        """The tags that begin in the first id of the window: number, character, last id, and its characters in the tag."""
        found, first = [], self.texts[window[0]]
        for k, character in enumerate(first):
            for number, tag in enumerate(self.tags):
                if tag[0] != character:
                    continue
                text, last = first[k:], 0
                while len(text) < len(tag) and tag.startswith(text) and last + 1 < len(window):
                    last += 1
                    text += self.texts[window[last]]
                if text.startswith(tag):
                    found.append((number, k, last, len(self.texts[window[last]]) - (len(text) - len(tag))))
        return found


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
    if not response.any():
        return found
    ids = np.where(response, ids, ids[response.argmax()])  # what other tokens hold does not matter
    if ids.min() < 0:
        raise reweight.InputError("token_ids", f"is {ids.min()} at a response token, want at least 0")
    vocabulary = _vocabulary(tokenizer, tags)
    vocabulary.learn(ids, tokenizer)
    last = response.copy()  # of its response
    last[:-1] &= ~response[1:]
    nonempty = offsets[:-1] < offsets[1:]
    last[offsets[1:][nonempty] - 1] = response[offsets[1:][nonempty] - 1]
    stops = np.flatnonzero(last) + 1
    known = vocabulary.known[ids]
    begins = known & _HOLDS != 0
    begins[:-1] |= (known[:-1] & _BEGINS != 0) & (known[1:] & _GOES_ON != 0)
    begins &= response
    places = np.flatnonzero(begins)
    response_of = np.searchsorted(stops, places, "right")
    windows, which = _windows(ids, known, places, stops[response_of])
    tags_in = [vocabulary.at([i for i in window if i >= 0]) for window in windows]
    current, opened, done = -1, 0, (-1, 0)
    for p, r, w in zip(places.tolist(), response_of.tolist(), which.tolist()):
        if r != current:
            current, opened, done = r, 0, (-1, 0)
        for number, k, end, characters in tags_in[w]:
            if (p, k) < done or number != (opened > 0):
                continue
            done = (p + end, characters)
            if number == 0:
                opened = p + end + 1
            else:
                found[opened:p] = reweight.ACTION
                opened = 0
    return found


def _windows(
    ids: npt.NDArray[np.int64], known: npt.NDArray[np.uint8], places: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
) -> Tuple[List[List[int]], npt.NDArray[np.int64]]:
    """Returns the different sequences of ids, filled up with -1, that begin at the places and go on while a tag can, before
    the stops; and which of them is at each place. A batch has many tags, but writes them in few ways."""
    columns, ahead, alive = [ids[places]], places, np.ones(len(places), bool)
    while alive.any():
        ahead = ahead + 1
        alive = alive & (ahead < stops)
        alive[alive] = known[ahead[alive]] & _GOES_ON != 0
        columns.append(np.where(alive, ids[np.where(alive, ahead, 0)], -1))
    windows, which = np.unique(np.stack(columns, 1), axis=0, return_inverse=True)
    return windows.tolist(), which.reshape(-1)
