"""The single values that a call returns besides arrays."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, List, Type

from ._arrays import Array


class Scalars:
    """A struct of 8-byte fields for the library to write, in the memory of the device of
    an array."""

    def __init__(self, struct: Type[ctypes.Structure], like: Array) -> None:
        self._fields = struct._fields_
        if like.device is None:
            self._memory: Any = struct()
            self.address = ctypes.addressof(self._memory)
        else:
            torch = sys.modules["torch"]
            self._memory = torch.empty(len(self._fields), dtype=torch.int64, device=like.owner.device)
            self.address = self._memory.data_ptr()

    def values(self) -> List[Any]:
        """Returns the fields in their order: numbers, or tensors of no dimension on a GPU."""
        if isinstance(self._memory, ctypes.Structure):
            return [getattr(self._memory, field[0]) for field in self._fields]
        floats = self._memory.view(sys.modules["torch"].float64)
        return [(self._memory if field[1] is ctypes.c_int64 else floats)[i] for i, field in enumerate(self._fields)]
