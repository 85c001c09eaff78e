"""Actions between tags that are strings, in the token ids of responses.

The program reweight finds the same actions in the texts of tokens (rollout/tags.go): what differs between the two is a
fault. docs/formats.md explains the rules.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

import reweight

from .._errors import described
from .._generated import TAG_PRESETS
from ._layout import to_numpy

Pair = Tuple[str, str]
Pairs = Tuple[Pair, ...]

# What is known of an id: that it was decoded; that it holds a text that is looked for; that one can begin at its end;
# that it can go on with one that began before it; that it is empty; that it is a mark that ends a response.
_SEEN, _HOLDS, _BEGINS, _GOES_ON, _EMPTY, _MARK = 1, 2, 4, 8, 16, 32
_MARKS = re.compile(r"<[^<> \t\r\n]+>")
_THINK, _THOUGHT = "<think>", "</think>"
_FIRST = 0x1000  # a character that is no bracket, nor in <think>


class Action(NamedTuple):
    """Where an action lies in a text, [begin, end), and with its tags [open, close)."""

    open: int
    begin: int
    end: int
    close: int


def named(names: str) -> Optional[Pairs]:
    """Returns the tags of presets, whose names have + between them, or None if one is not known."""
    found = [TAG_PRESETS.get(name) for name in names.split("+")]
    return None if None in found else tuple(pair for pairs in found if pairs for pair in pairs)


def actions(text: str, pairs: Pairs, mark: int) -> Tuple[List[Action], int]:
    """Returns the actions between the tags in the text of a response, which may overlap, and how many opening tags were
    passed over for another one. What a closed block of <think> holds is no action. Where the end of the text closes an
    action, the action ends before mark, at which a token such as <|im_end|> begins that ends the response."""
    found, passed = [], 0
    for pair in pairs:
        bracket, begin = _bracket(pair), 0
        for first, last in _outside_thought(text, pair):
            if not bracket:
                passed += text.count(pair[0], begin, first)
            piece = text[first:last]
            of, again = (_balanced(piece, pair, bracket), 0) if bracket else _between(piece, pair)
            passed += again
            for a in of:
                a = Action(*(first + x for x in a))
                if a.end == len(text):
                    end = max(min(a.end, mark), a.begin)
                    a = Action(a.open, a.begin, end, end)
                found.append(a)
            begin = last
    return found, passed


def _between(text: str, pair: Pair) -> Tuple[List[Action], int]:
    """An action begins after an opening tag, anew after each further one, and ends before the next closing tag; where this is
    the end of a line, or empty, the end of the text closes an action too."""
    opening, closing = pair
    found, passed, begin = [], 0, -1
    tags = re.compile(f"({re.escape(closing)})|{re.escape(opening)}" if closing else re.escape(opening))
    at = text.find(opening)
    while at >= 0:
        if begin >= 0 and closing and text.startswith(closing, at):
            found.append(Action(begin - len(opening), begin, at, at + len(closing)))
            begin, at = -1, text.find(opening, at + len(closing))
            continue
        if text.startswith(opening, at):
            passed += begin >= 0
            at += len(opening)
            begin = at
        else:
            at += 1
        match = tags.search(text, at)
        at = match.start() if match else -1
    if begin >= 0 and closing in ("", "\n"):
        found.append(Action(begin - len(opening), begin, len(text), len(text)))
    return found, passed


def _bracket(pair: Pair) -> str:
    """Returns the bracket at the end of the opening tag if the closing tag is its partner."""
    return pair[0][-1] if pair[0][-1] + pair[1] in ("{}", "[]", "()") else ""


def _outside_thought(text: str, pair: Pair) -> List[Tuple[int, int]]:
    """Returns where the text is no block of <think>: each such piece is searched as if it were a response. A block begins
    at <think>, or with the text where a chat template has written <think> before it, and ends at </think>; where that is
    missing, there is no block. Tags that hold one of these are looked for everywhere."""
    pieces, begin, at = [], 0, 0
    while not any(thought in tag for thought in (_THINK, _THOUGHT) for tag in pair):
        end = text.find(_THOUGHT, at)
        if end < 0:
            break
        opened = text.find(_THINK, at, end)
        if opened >= 0:
            pieces.append((begin, opened))
        if opened >= 0 or at == 0:
            begin = end + len(_THOUGHT)
        at = end + len(_THOUGHT)
    return [*pieces, (begin, len(text))]


def _balanced(text: str, pair: Pair, bracket: str) -> List[Action]:
    """Returns the actions between an opening tag, which ends with a bracket, and the bracket that closes this one. Of
    actions within each other the outermost counts, and one that is never closed is none. What follows a backslash is no
    bracket, nor is what stands in double quotes, as in JSON, if the opening tag is the bracket alone; the end of a line
    ends a text in quotes."""
    opening, closing = pair
    found: List[Action] = []
    begins: List[int] = []  # of the opening tags and of other brackets, which are -1
    outside = re.compile(f"{re.escape(opening)}|[{re.escape(bracket + closing)}\"\\\\]")
    quoted = re.compile('["\\n\\\\]')
    at, looked_for = text.find(opening), outside
    while at >= 0 and (match := looked_for.search(text, at)):
        it, at = match[0], match.end()
        if it == opening:
            begins.append(match.start())
        elif not begins:
            pass
        elif it == "\\":
            at += 1
        elif it == "\n" or it == '"' and looked_for is quoted:
            looked_for = outside
        elif it == '"':
            looked_for = quoted if len(opening) == 1 else outside
        elif it == bracket:
            begins.append(-1)
        else:
            opened = begins.pop()
            if opened >= 0:
                while found and found[-1].open > opened:
                    found.pop()
                found.append(Action(opened, opened + len(opening), match.start(), match.end()))
    return found


class _Vocabulary:
    """What the ids of a tokenizer say, each decoded once."""

    def __init__(self, pairs: Pairs) -> None:
        looked_for = {tag for pair in pairs for tag in pair if tag} | {_THINK, _THOUGHT}
        looked_for.update(x for pair in pairs if _bracket(pair) for x in (_bracket(pair), '"', "\\", "\n"))
        self.looked_for = sorted(looked_for)
        self.longest = max(map(len, looked_for))
        self.texts: Dict[int, str] = {}
        self.known = np.zeros(0, np.uint8)  # by id
        # Of a response, the ids that matter, less what follows: its actions, as numbers of those ids, and what was passed over.
        self.found: Dict[Tuple[int, ...], Tuple[List[Tuple[int, int, int, int]], int]] = {}

    def learn(self, ids: npt.NDArray[np.int64], tokenizer: Any) -> None:
        """Decodes those of the ids that are new."""
        size = int(ids.max(initial=-1)) + 1
        if size > len(self.known):
            self.known = np.concatenate([self.known, np.zeros(size - len(self.known), np.uint8)])
        new = np.zeros(size, bool)
        new[ids] = True
        for i in np.flatnonzero(new & (self.known[:size] == 0)).tolist():
            text = self.texts[i] = decoded(tokenizer, i)
            self.known[i] = _SEEN | (_EMPTY if not text else 0) | (_MARK if _MARKS.fullmatch(text) else 0)
            for tag in self.looked_for:
                if tag in text:
                    self.known[i] |= _HOLDS
                if any(text.endswith(tag[:k]) for k in range(1, len(tag))):
                    self.known[i] |= _BEGINS
                if any(tag.startswith(text, k) or text.startswith(tag[k:]) for k in range(1, len(tag))):
                    self.known[i] |= _GOES_ON

    def search(self, key: Sequence[int], pairs: Pairs) -> Tuple[List[Tuple[int, int, int, int]], int]:
        """Returns the actions among the ids that matter: twice an id, and 1 more if others are before it, which are left out.
        Of each, numbers of ids: where its opening tag begins and ends, what follows it, and where its closing tag ends, or -1."""
        texts = ["\0" * (k & 1) + self.texts[k >> 1] for k in key]
        ends = list(accumulate(map(len, texts)))
        mark = ends[-1] - len(self.texts[key[-1] >> 1]) if self.known[key[-1] >> 1] & _MARK else ends[-1]
        found, passed = actions("".join(texts), pairs, mark)
        numbers = []
        for a in found:
            closed = bisect_left(ends, a.close) if a.close > a.end else -1
            numbers.append((bisect_right(ends, a.open), bisect_left(ends, a.begin), bisect_right(ends, a.end), closed))
        return numbers, passed


def decoded(tokenizer: Any, i: int) -> str:
    """Returns the text of an id within others: a tokenizer may leave the space out that a text begins with."""
    twice: str = tokenizer.decode([i, i])
    return twice[len(twice) // 2 :]


_vocabularies: "WeakKeyDictionary[Any, Dict[Pairs, _Vocabulary]]" = WeakKeyDictionary()


def _vocabulary(tokenizer: Any, pairs: Pairs) -> _Vocabulary:
    try:
        return _vocabularies.setdefault(tokenizer, {}).setdefault(pairs, _Vocabulary(pairs))
    except TypeError:  # it cannot be a key
        return _Vocabulary(pairs)


def _runs(
    response: npt.NDArray[np.bool_], offsets: npt.NDArray[np.int64]
) -> Tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns where each response begins and ends: a run of response tokens within a trajectory."""
    first, last = response.copy(), response.copy()
    first[1:] &= ~response[:-1]
    last[:-1] &= ~response[1:]
    nonempty = offsets[:-1] < offsets[1:]
    begins, ends = offsets[:-1][nonempty], offsets[1:][nonempty] - 1
    first[begins], last[ends] = response[begins], response[ends]
    return np.flatnonzero(first), np.flatnonzero(last) + 1


def roles(
    response: npt.NDArray[np.bool_],
    ids: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    pairs: Pairs,
    tokenizer: Any,
    tags_as: str = "reasoning",
) -> Tuple[npt.NDArray[np.uint8], int]:
    """Returns the role of each token, and how many responses have an opening tag that was passed over.

    A tokenizer joins the ends of a tag with what stands next to it: tags are looked for in the text of a response and
    not in its ids. A token that holds a part of a tag is an action if tags_as says so. The text is put together only of
    ids that matter, which are few of a vocabulary: those with a part of a tag, and the last one of a response.
    """
    found = response.astype(np.uint8)
    if not response.any():
        return found, 0
    ids = np.where(response, ids, ids[response.argmax()])  # what other tokens hold does not matter
    if ids.min() < 0:
        raise reweight.InputError("token_ids", f"is {ids.min()} at a response token, want at least 0")
    vocabulary = _vocabulary(tokenizer, pairs)
    vocabulary.learn(ids, tokenizer)
    known, ends, whole = vocabulary.known[ids], _runs(response, offsets)[1], None
    if (known & _EMPTY).any():
        whole = np.flatnonzero(known & _EMPTY == 0)
        ids, known, response = ids[whole], known[whole], response[whole]
    matters = known & _HOLDS != 0
    front = np.flatnonzero(known & _BEGINS)
    for _ in range(vocabulary.longest - 1):
        front = front[front + 1 < len(known)]
        front = front[known[front + 1] & _GOES_ON != 0]
        if not len(front):
            break
        matters[front] = matters[front + 1] = True
        front = front + 1
    last = ends - 1 if whole is None else np.searchsorted(whole, ends) - 1
    matters[last[last >= 0]] = True
    matters &= response
    places = np.flatnonzero(matters)
    keys = (2 * ids[places] + (np.diff(places, prepend=-1) > 1)).tolist()
    if whole is not None:
        places = whole[places]
    begins = np.searchsorted(places, np.append(0, ends)).tolist()
    ambiguous, at = 0, places.tolist()
    for begin, end, stop in zip(begins, begins[1:], ends.tolist()):
        key = tuple(keys[begin:end])
        if not key:
            continue
        if key not in vocabulary.found:
            if len(vocabulary.found) > 10000:
                vocabulary.found.clear()
            vocabulary.found[key] = vocabulary.search(key, pairs)
        spans, passed = vocabulary.found[key]
        ambiguous += passed > 0
        for opened, before, after, closed in spans:
            until = at[begin + after] if after < len(key) else stop
            if tags_as == "action":
                found[at[begin + opened] : at[begin + closed] + 1 if closed >= 0 else until] = reweight.ACTION
            else:
                found[at[begin + before] + 1 : until] = reweight.ACTION
    return found, ambiguous


class _Characters:
    """The tokenizer of as_characters."""

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(_FIRST + i) for i in ids)


_CHARACTERS = _Characters()


def as_characters(ids: npt.NDArray[np.int64], pairs: Tuple[Tuple[Sequence[int], Sequence[int]], ...]) -> Tuple[Any, Pairs, Any]:
    """Returns ids, pairs and a tokenizer for roles, by which tags that are token ids are strings of a character for each."""
    known = np.unique([int(i) for pair in pairs for tag in pair for i in tag])
    places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    numbers = np.where(known[places] == ids, places, len(known))
    texts = [tuple(_CHARACTERS.decode(np.searchsorted(known, tag).tolist()) for tag in pair) for pair in pairs]
    return numbers, tuple((opening, closing) for opening, closing in texts), _CHARACTERS


Labels = Callable[[List[int], List[str], Any], Any]


def labelled(
    response: npt.NDArray[np.bool_],
    ids: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    label: Labels,
    tokenizer: Any,
) -> npt.NDArray[np.uint8]:
    """Returns the role of each token, as the function label says of each response: it gets the ids and, if there is a
    tokenizer, their texts, and returns what of them are actions: a mask of bools, or roles."""
    found = response.astype(np.uint8)
    texts: Dict[int, str] = {}
    for begin, end in zip(*(places.tolist() for places in _runs(response, offsets))):
        own = ids[begin:end].tolist()
        if tokenizer is not None:
            texts.update({i: decoded(tokenizer, i) for i in set(own).difference(texts)})
        given = label(own, [texts[i] for i in own] if tokenizer is not None else [], tokenizer)
        try:
            made = to_numpy(given)
        except (TypeError, ValueError):  # of lists of different lengths
            raise reweight.InputError("action", f"returned {described(given)} of lists, want one value per token") from None
        if made.shape != (len(own),):
            raise reweight.InputError("action", f"returned the shape {list(made.shape)}, want [{len(own)}], one per token")
        found[begin:end] = as_roles("action", "returned", made)
    return found


def as_roles(argument: str, verb: str, labels: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Returns roles: labels themselves, or those of a mask that is true at actions. verb is of the error for others."""
    if labels.dtype == bool:
        return np.where(labels, np.uint8(reweight.ACTION), np.uint8(reweight.REASONING))
    if labels.dtype.kind not in "iu" or not np.isin(labels, (reweight.REASONING, reweight.ACTION)).all():
        want = f"want bools, or {reweight.REASONING} for reasoning and {reweight.ACTION} for an action"
        raise reweight.InputError(argument, f"{verb} {labels.tolist()[:8]} of the type {labels.dtype}, {want}")
    return labels.astype(np.uint8)
