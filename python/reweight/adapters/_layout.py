"""The layouts in which trainers have the tokens of a batch."""

from __future__ import annotations

import sys
from typing import Any, List

import numpy as np
import numpy.typing as npt

import reweight

from .._errors import described


class Layout:
    """Where the tokens of each trajectory lie in an array that is made like the mask."""

    def __init__(self, mask: Any, seq_offsets: Any) -> None:
        self.mask = mask
        if isinstance(mask, (list, tuple)):
            lengths = [len(row) for row in _rows("mask", mask)]
        elif getattr(mask, "is_nested", False):
            if not hasattr(mask, "offsets"):
                raise reweight.InputError("mask", "is a nested tensor of the layout torch.strided, want torch.jagged")
            lengths = np.diff(to_numpy(mask.offsets())).tolist()
        elif not hasattr(mask, "shape"):
            raise reweight.InputError("mask", f"is {described(mask)}, want an array, a nested tensor, or a list with one for each trajectory")
        elif len(mask.shape) == 2:
            lengths = [mask.shape[1]] * mask.shape[0]
        elif seq_offsets is None:
            problem = f"is None, want where each trajectory begins: mask has the shape {list(mask.shape)}"
            raise reweight.InputError("seq_offsets", problem)
        else:
            offsets = array("seq_offsets", seq_offsets)
            if offsets.ndim != 1 or len(offsets) and offsets.dtype.kind not in "iu":
                raise reweight.InputError("seq_offsets", f"is {offsets.tolist()}, want a list of integers")
            lengths = np.diff(offsets).tolist()
            if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(mask) or min(lengths, default=0) < 0:
                raise reweight.InputError("seq_offsets", f"is {offsets.tolist()}, want 0 to {len(mask)} in ascending order")
        self.lengths = np.asarray(lengths, np.int64)
        self.offsets = np.append(0, np.cumsum(self.lengths))

    def pack(self, name: str, x: Any) -> npt.NDArray[Any]:
        """Returns x, which has the layout of mask, as one array [tokens]."""
        if isinstance(self.mask, (list, tuple)):
            rows = _rows(name, x)
            shapes, want = [list(row.shape) for row in rows], [[n] for n in self.lengths.tolist()]
            if shapes != want:
                raise reweight.InputError(name, f"has rows of the shapes {shapes}, want {want} like mask")
            return np.concatenate([np.zeros(0, bool), *(row for row in rows if len(row))])  # an empty list has no type
        if getattr(self.mask, "is_nested", False):
            if not getattr(x, "is_nested", False) or not hasattr(x, "offsets") or np.diff(to_numpy(x.offsets())).tolist() != self.lengths.tolist():
                raise reweight.InputError(name, "is not a nested tensor whose rows are as long as those of mask")
            return array(name, x.values())
        found = array(name, x)
        if found.shape != tuple(self.mask.shape):
            raise reweight.InputError(name, f"has the shape {list(found.shape)}, want {list(self.mask.shape)} like mask")
        return found.reshape(-1)

    def unpack(self, m: npt.NDArray[np.float32]) -> Any:
        """Returns m, [tokens], in the layout of mask and on its device."""
        if isinstance(self.mask, (list, tuple)):
            return [_like(row, part) for row, part in zip(self.mask, np.split(m, np.cumsum(self.lengths)[:-1]))]
        if getattr(self.mask, "is_nested", False):
            nested = sys.modules["torch"].nested.nested_tensor_from_jagged
            return nested(_like(self.mask.values(), m), self.mask.offsets())
        return _like(self.mask, m.reshape(tuple(self.mask.shape)))


def _rows(name: str, x: Any) -> List[npt.NDArray[Any]]:
    """Returns the rows of a list, one for each trajectory."""
    rows = [array(name, row) for row in x] if hasattr(x, "__len__") else [np.zeros(())]
    if any(row.ndim == 0 for row in rows):
        raise reweight.InputError(name, f"is {described(x)}, want rows of tokens, one for each trajectory")
    return rows


def array(name: str, x: Any) -> npt.NDArray[Any]:
    """Returns the argument of that name as an array of numbers."""
    try:
        found = to_numpy(x)
    except (TypeError, ValueError):  # such as lists of different lengths
        found = np.asarray(None)
    if found.dtype == object:
        raise reweight.InputError(name, f"is {described(x)} of other things than numbers, or of rows that have no common length")
    if found.dtype.kind not in "biuf":
        raise reweight.InputError(name, f"has the type {found.dtype}, want numbers")
    return found


def to_numpy(x: Any) -> npt.NDArray[Any]:
    """Returns a tensor, which may be on a GPU or have a type that NumPy lacks, a list or an
    array as an array."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        x = (x.float() if x.is_floating_point() else x).numpy()
    return np.asarray(x)


def _like(x: Any, values: npt.NDArray[np.float32]) -> Any:
    """Returns the values as an array of the kind of x."""
    return sys.modules["torch"].from_numpy(values).to(x.device) if hasattr(x, "detach") else values
