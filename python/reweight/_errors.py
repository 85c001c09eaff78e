"""The error of an argument that is wrong."""

from __future__ import annotations

import operator
import os
import sys
from pathlib import Path
from typing import Any, Optional, Sequence, Tuple, Union

import numpy as np

from ._generated import ARGUMENTS, NAMES, PROBLEMS, Error

# Here, because every module takes its errors from here: the other package's __init__.py may be the one that is left.
if Path(__file__).with_name("logic").exists():
    raise ImportError(
        f"reweight: {Path(__file__).parent} has files of another package, which PyPI calls reweight: this one is "
        "reweight-rl. `pip uninstall reweight reweight-rl`, then install this one again."
    )


class InputError(ValueError):
    """Says which argument of a call is wrong, where, and how.

    It is raised before anything is written. Its text is a sentence whose subject is the
    argument: "role[3] is 7, want 0, 1 or 2".

    argument: the parameter, the field of a Batch, or the option, by its name.
    index: the element that is wrong, an index per dimension; None if it is the whole
        argument.
    problem: the rest of the sentence.
    """

    def __init__(self, argument: str, problem: str, index: Union[int, Tuple[int, ...], None] = None) -> None:
        if isinstance(index, int):
            index = (index,)
        super().__init__(argument, problem, index)
        self.argument = argument
        self.problem = problem
        self.index: Optional[Tuple[int, ...]] = index

    def __str__(self) -> str:
        place = "" if self.index is None else "[" + ", ".join(map(str, self.index)) + "]"
        return f"{self.argument}{place} {self.problem}"


def reported(error: Error) -> InputError:
    """Returns what the library or a GPU reports in numbers."""
    kinds, sentence = PROBLEMS[error.code]
    argument = ARGUMENTS[error.argument]
    values = [_shown(kind, value, NAMES.get(argument, ())) for kind, value in zip(kinds, error.values)]
    if argument == "lambda":  # a word of Python's own
        argument = "lambda_"
    return InputError(argument, sentence.format(*values), None if error.index < 0 else error.index)


def _shown(kind: str, value: int, names: Sequence[str]) -> str:
    """Returns a value of a report as Go shows it."""
    if kind == "i":
        return str(value)
    if kind == "n":
        return names[value]
    if kind == "l":
        return "[" + " ".join(name for i, name in enumerate(names) if value >> i & 1) + "]"
    bits = np.array([value], np.int64)
    return shown(bits.astype(np.int32).view(np.float32)[0] if kind == "f" else bits.view(np.float64)[0])


def shown(number: Union[float, np.floating[Any]]) -> str:
    """Returns a float as Go shows it, with the fewest digits that give it back."""
    if np.isnan(number):
        return "NaN"
    if np.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    text = np.format_float_scientific(number, trim="-", exp_digits=2)
    if -4 <= int(text.split("e")[1]) < 6:
        text = np.format_float_positional(number, trim="-")
    return text


def located(error: InputError, shape: Sequence[int], first: int = 0) -> InputError:
    """Returns the error of an element with its index in an array of the shape, where the
    error counts the array's elements from its element number first."""
    if error.index is None or len(error.index) != 1:
        return error
    if not shape:
        return InputError(error.argument, error.problem)
    rest, index = first + error.index[0], []
    for size in reversed(shape):
        rest, i = divmod(rest, size)
        index.append(i)
    return InputError(error.argument, error.problem, tuple(reversed(index)))


def described(obj: object) -> str:
    """Says what an argument is that has a wrong type."""
    if obj is None:
        return "None"
    name = type(obj).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


def file_name(argument: str, path: Union[str, "os.PathLike[str]"]) -> str:
    """Returns the name of a file, which has to be one that the system takes."""
    name = os.fsdecode(path)
    try:
        if b"\0" not in os.fsencode(name):
            return name
        why = "which has a NUL, as no name of a file has"
    except UnicodeEncodeError:
        why = f"which file names in {sys.getfilesystemencoding()} cannot hold: set PYTHONUTF8=1, or a locale of UTF-8"
    raise InputError(argument, f"is {ascii(name)}, {why}")


def printable(text: str) -> str:
    """Returns text with escape sequences in the place of what cannot be printed, such as control characters and those
    that change the order in which text is shown: what the program does with the texts of files."""
    return "".join(c if c.isprintable() else _ESCAPES.get(c) or _escape(ord(c)) for c in text)


_ESCAPES = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}


def _escape(code: int) -> str:
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def choice(argument: str, value: str, names: Sequence[str]) -> int:
    """Returns the number of the name among names."""
    if isinstance(value, str) and value in names:
        return names.index(value)
    if not isinstance(value, str):
        raise TypeError(f"{argument} is {described(value)}, want one of the strings {', '.join(names)}")
    raise InputError(argument, f'is "{value}", want one of [{" ".join(names)}]')


def integer(argument: str, value: int, bits: int) -> int:
    """Returns the value of an integer that has at most so many bits, its sign included."""
    try:
        i = value if type(value) is int else operator.index(value)  # index would make a compiler's integer a constant
    except TypeError:
        raise TypeError(f"{argument} is {described(value)}, want an integer") from None
    if not -(1 << bits - 1) <= i < 1 << bits - 1:
        raise InputError(argument, f"is {i}, want an integer of {bits} bits")
    return i


def factor(argument: str, x: float, of: str = "", least: float = 1e-30, most: float = 1e30) -> None:
    """Wants a factor of logits with which they stay within float32, as the library does of a temperature. of says how
    it came about."""
    if not least <= x <= most:
        raise InputError(argument, f"is {shown(x)}{of}, want {shown(least)} to {shown(most)}")


def number(argument: str, value: float) -> float:
    """Returns the value of a number. A text is none, though float reads it."""
    try:
        if isinstance(value, (str, bytes, bytearray)):
            raise TypeError
        return float(value)
    except OverflowError:
        raise InputError(argument, "is an integer above all of float64") from None
    except (TypeError, ValueError):
        raise TypeError(f"{argument} is {described(value)}, want a number") from None
