"""The single values that a call returns besides arrays."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, List, Type

from ._arrays import Array


class Scalars:
    """A struct of 8-byte fields for the library to write, in the memory of the device of
    an array: an int64 tensor if memory is one or the array is on a GPU."""

    def __init__(self, struct: Type[ctypes.Structure], like: Array, memory: Any = None) -> None:
        self._struct = struct
        if memory is None and like.device is None:
            self._memory: Any = struct()
            self.address = ctypes.addressof(self._memory)
            return
        if memory is None:
            torch = sys.modules["torch"]
            memory = torch.empty(len(struct._fields_), dtype=torch.int64, device=like.owner.device)
        self._memory = memory
        self.address = memory.data_ptr()

    def set(self, other: "Scalars") -> None:
        """Takes the fields of one on the host."""
        bits = sys.modules["torch"].frombuffer(bytearray(other._memory), dtype=self._memory.dtype)
        self._memory.copy_(bits)

    def values(self) -> List[Any]:
        """Returns the fields in their order: numbers, or tensors without dimensions."""
        if isinstance(self._memory, ctypes.Structure):
            return [getattr(self._memory, field[0]) for field in self._struct._fields_]
        return fields(self._struct, self._memory)


def fields(struct: Type[ctypes.Structure], memory: Any) -> List[Any]:
    """Returns the fields of a struct in an int64 tensor, as tensors without dimensions."""
    floats = memory.view(sys.modules["torch"].float64)
    return [(memory if field[1] is ctypes.c_int64 else floats)[i] for i, field in enumerate(struct._fields_)]
