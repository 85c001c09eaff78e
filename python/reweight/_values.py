"""What the arrays of a batch can hold: the one rule of all that reads rollouts, which is the rule of the program's
reader of JSON. A number that an array cannot hold is an error and is never cut to the array's type."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from ._errors import InputError, described
from .batch import MASKED

# The types of the arrays that are not float32.
TYPES: Dict[str, Any] = {"role": np.uint8, "mask": np.bool_, "token_ids": np.int64}
TYPES.update(span_ids=np.int32, anchors=np.int32)

_FINITE = ("rewards", "reward_parts")
_LOGPROBS = ("old_logprobs", "logprobs", "ref_logprobs", "rollout_logprobs")
_SPECIAL = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}  # as texts, where JSON has no number for them
_LOWEST, _HIGHEST = -(2**31), 2**31 - 1  # token ids too: the program has no larger ones


def held(name: str, values: Any, argument: Optional[str] = None) -> npt.NDArray[Any]:
    """Returns values, a list or an array of one dimension, as the array of a batch of that name has them; mask is
    bool. An InputError about one that the array cannot hold is about argument, and has its index."""
    argument = argument or name
    array = _numbers(values)
    if array is not None:
        found, wrong = _converted(name, array)
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            raise InputError(argument, _problem(name, values[i]), i)
        return found
    parts: List[Any] = [np.empty(0, TYPES.get(name, np.float32))]
    for i, value in enumerate(values):
        if name == "rewards" and isinstance(value, (list, tuple)) and len(value) == 1:
            value = value[0]  # one for each response, of which there is one
        one = _numbers([_SPECIAL.get(value, value) if isinstance(value, str) and name not in TYPES else value])
        if one is not None:
            found, wrong = _converted(name, one)
            parts.append(found)
        if one is None or wrong.any():
            raise InputError(argument, _problem(name, value), i)
    return np.concatenate(parts)


def _numbers(values: Any) -> Optional[npt.NDArray[Any]]:
    """Returns numbers of one kind as an array, or None of anything else."""
    if not isinstance(values, np.ndarray):
        if len(set(map(type, values))) > 1:
            return None
        try:
            values = np.array(values)
            if values.dtype.kind == "O":  # integers of more than 64 bits
                values = values.astype(np.float64) if all(isinstance(value, int) for value in values.flat) else values
        except (OverflowError, ValueError):
            return None
    return values if values.dtype.kind in "biuf" and values.ndim == 1 else None


def _converted(name: str, array: npt.NDArray[Any]) -> Tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Returns numbers as the array of that name has them, and which of them it cannot hold."""
    kind = array.dtype.kind
    if name in TYPES and name != "mask":
        wrong = np.full(array.shape, kind not in "iu")
        if kind in "iu":
            low, high = (0, 2) if name == "role" else (_LOWEST, _HIGHEST)
            wrong = (array < low) | (array > high)
    elif name == "mask" and kind == "b":
        return array, np.zeros(array.shape, bool)
    else:
        with np.errstate(over="ignore"):
            single = array.astype(np.float32)
        if name == "mask":
            wrong = (single != 0) & (single != 1)
        else:
            wrong = np.isinf(single) & np.isfinite(array) if kind != "b" else np.ones(array.shape, bool)
            if name in _FINITE:
                wrong |= ~np.isfinite(single)
        array = single
    with np.errstate(invalid="ignore"):  # what is wrong may be NaN
        return array.astype(TYPES.get(name, np.float32), copy=False), wrong


def _problem(name: str, value: Any) -> str:
    """Says what is wrong with a value of an array of that name."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    integer = isinstance(value, int) and not isinstance(value, bool)
    if name == "mask":
        want = "true, false, 1 or 0"
    elif name in TYPES:
        want = "an integer"
        if integer:
            large = not _LOWEST <= value <= _HIGHEST
            want = "an integer of 32 bits" if large else "a role: 0, 1 or 2"
    elif name in _FINITE and isinstance(value, float) and not np.isfinite(value):
        want = "a finite reward"
    else:
        want = "a number that float32 can hold" if integer or isinstance(value, float) else "a number"
    return f"is {shown(value)}, want {want}"


def shown(value: Any) -> str:
    """Returns a value as JSON has it, in a few printable characters."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, (list, tuple, np.ndarray)):
        return "an array"
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    if value is not None and not isinstance(value, (bool, int, float, str)):
        return described(value)
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:40] + "..."


def check_logprobs(name: str, values: npt.NDArray[Any], role: npt.NDArray[Any], argument: Optional[str] = None) -> None:
    """Wants log-probabilities at the response tokens of an array, if it has log-probabilities of sampled tokens: a
    server writes -9999 where it has none."""
    if name not in _LOGPROBS:
        return
    wrong = np.flatnonzero((role != MASKED) & ~((values > -9999) & (values <= np.float32(1e-6))))
    if len(wrong):
        i = int(wrong[0])
        want = "a finite log-probability, at most 0 and above -9999, which stands for a missing one"
        raise InputError(argument or name, f"is {shown(float(values[i]))} at a response token, want {want}", i)


def groups(argument: str, ids: Sequence[Any], prompts: Sequence[bytes]) -> Any:
    """Returns the group_ids of trajectories, numbered in the order in which they appear: of equal ids, and where there
    is none, of equal prompts. None if no trajectory has an id or a prompt."""
    keys: List[Any] = [_id(argument, i, id) or prompt for i, (id, prompt) in enumerate(zip(ids, prompts))]
    if not any(keys):
        return None
    if not all(keys):
        i = keys.index(next(key for key in keys if not key))
        raise InputError(argument, "is missing, and so is a prompt, want one of them, as others have", i)
    numbers: Dict[Any, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int32)


def _id(argument: str, i: int, value: Any) -> str:
    """Returns the text of the id of a group, a text or a number: equal numbers have one, 1 and 1.0 too. It is empty
    where there is no id."""
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        value = value.item()
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, (bool, list, tuple, dict, np.ndarray)) or isinstance(value, float) and not np.isfinite(value):
        raise InputError(argument, f"is {shown(value)}, want the id of a group: a text or a finite number", i)
    return str(value)
