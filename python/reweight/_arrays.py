"""NumPy arrays and PyTorch tensors as addresses: nothing is copied.

PyTorch is never imported here. A tensor can only exist where somebody has imported it.
A tensor that requires grad is read, and written, as its detached self is: autograd does
not see it.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Dict, NamedTuple, Optional, Protocol, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from ._errors import InputError


class Tensor(Protocol):
    """What is used of a torch.Tensor."""

    @property
    def shape(self) -> Sequence[int]: ...

    @property
    def dtype(self) -> Any: ...

    @property
    def device(self) -> Any: ...

    def data_ptr(self) -> int: ...

    def stride(self) -> Sequence[int]: ...


ArrayLike = Union["npt.NDArray[Any]", Tensor]
"""A NumPy array or a torch.Tensor."""

_NUMPY: Dict[Any, str] = {
    np.dtype(np.float32): "f32",
    np.dtype(np.float16): "f16",
    np.dtype(np.float64): "f64",
    np.dtype(np.int32): "i32",
    np.dtype(np.int64): "i64",
    np.dtype(np.uint8): "u8",
    np.dtype(np.bool_): "bool",
}
_TORCH: Dict[Any, str] = {}  # filled when the first tensor comes
_NAMES = {
    "f32": "float32",
    "bf16": "bfloat16",
    "f16": "float16",
    "f64": "float64",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "bool": "bool",
}
_SIZES = {"f32": 4, "bf16": 2, "f16": 2, "f64": 8, "i32": 4, "i64": 8, "u8": 1, "bool": 1}


class Array(NamedTuple):
    """An array as the library sees it."""

    pointer: int  # of its first element; 0 is possible if it has no elements
    dtype: str  # "f32", "bf16", "f16", "f64", "i32", "i64", "u8" or "bool"
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]  # in elements
    device: Optional[int]  # the ordinal of a GPU, or None for the CPU
    writable: bool
    owner: Any  # the array or tensor itself

    @property
    def size(self) -> int:
        """The number of elements."""
        n = 1
        for d in self.shape:
            n *= d
        return n


class _Interface(ctypes.Structure):
    """NumPy's PyArrayInterface."""

    flags: int
    data: Optional[int]
    _fields_ = [
        ("two", ctypes.c_int),
        ("nd", ctypes.c_int),
        ("typekind", ctypes.c_char),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_int),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
    ]


# Reads the capsule of array.__array_struct__, in half the time of array.ctypes.data.
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
# Flags of PyArrayInterface.
_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400


def view(argument: str, obj: Any, dtypes: Tuple[str, ...], *, writable: bool = False) -> Array:
    """Returns the argument's array, which must have one of the dtypes.

    Raises TypeError if it is neither a NumPy array nor a tensor, or has another dtype,
    and InputError, a ValueError, if it is misaligned, or read-only where it is to be
    writable. Shape and strides are the caller's to check.
    """
    if type(obj) is np.ndarray:
        return _view_numpy(argument, obj, dtypes, writable)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.Tensor):
        return _view_torch(argument, obj, dtypes, torch)
    if isinstance(obj, np.ndarray) and not isinstance(obj, np.ma.MaskedArray):
        return _view_numpy(argument, obj, dtypes, writable)
    raise TypeError(f"{argument} is {_described(obj)}, want a NumPy array or a torch.Tensor of {_listed(dtypes)}")


def _view_numpy(argument: str, obj: npt.NDArray[Any], dtypes: Tuple[str, ...], writable: bool) -> Array:
    dtype = _NUMPY.get(obj.dtype)
    if dtype is None or dtype not in dtypes:
        raise TypeError(f"{argument} has dtype {_described_dtype(obj.dtype)}, want {_listed(dtypes)}")
    interface = _Interface.from_address(_capsule_pointer(obj.__array_struct__, None))
    flags = interface.flags
    if not flags & _ALIGNED:
        raise _misaligned(argument, dtype)
    if writable and not flags & _WRITEABLE:
        raise InputError(argument, "is read-only, want an array that can be written")
    shape = obj.shape
    if flags & _CONTIGUOUS:
        strides = _contiguous_strides(shape)
    else:
        size = _SIZES[dtype]
        if any(s % size for s in obj.strides):
            raise InputError(argument, f"has strides of {obj.strides} bytes, want multiples of {size}")
        strides = tuple(s // size for s in obj.strides)
    return Array(interface.data or 0, dtype, shape, strides, None, bool(flags & _WRITEABLE), obj)


def _view_torch(argument: str, obj: Any, dtypes: Tuple[str, ...], torch: Any) -> Array:
    if not _TORCH:
        for key, name in _NAMES.items():
            _TORCH[getattr(torch, name)] = key
    dtype = _TORCH.get(obj.dtype)
    if dtype is None or dtype not in dtypes:
        raise TypeError(f"{argument} has dtype {str(obj.dtype).replace('torch.', '')}, want {_listed(dtypes)}")
    device = obj.device
    if device.type not in ("cpu", "cuda") or obj.layout is not torch.strided:
        what = f"a tensor on {device}" if obj.layout is torch.strided else "a sparse tensor"
        raise TypeError(f"{argument} is {what}, want a strided tensor on the CPU or a CUDA device")
    pointer = obj.data_ptr()
    if pointer % _SIZES[dtype]:
        raise _misaligned(argument, dtype)
    ordinal = device.index if device.type == "cuda" else None
    return Array(pointer, dtype, tuple(obj.shape), obj.stride(), ordinal, True, obj)


def _misaligned(argument: str, dtype: str) -> InputError:
    return InputError(argument, f"is not aligned: its address is no multiple of {_SIZES[dtype]}, the bytes of an element")


def _listed(dtypes: Sequence[str]) -> str:
    names = [_NAMES[d] for d in dtypes]
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]


def _described(obj: Any) -> str:
    if obj is None:
        return "None"
    name = type(obj).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


def _described_dtype(dtype: Any) -> str:
    if dtype.newbyteorder() in _NUMPY:
        return f"{dtype.newbyteorder().name} in the other byte order ({dtype.str})"
    return str(dtype)


def _contiguous_strides(shape: Sequence[int]) -> Tuple[int, ...]:
    if len(shape) == 1:
        return (1,)
    strides, n = [], 1
    for d in reversed(shape):
        strides.append(n)
        n *= d
    return tuple(reversed(strides))


def inner_contiguous(array: Array) -> bool:
    """Whether the elements of the last dimension lie one after another."""
    return not array.shape or array.shape[-1] <= 1 or array.strides[-1] == 1


def contiguous(array: Array) -> bool:
    """Whether all elements lie one after another."""
    n = 1
    for d, s in zip(reversed(array.shape), reversed(array.strides)):
        if d != 1 and s != n:
            return array.size == 0
        n *= d
    return True


def check(argument: str, array: Array, shape: Tuple[int, ...], unit: str, like: Array, name: str) -> None:
    """Wants a contiguous array of the shape, one element per unit, on the device of like,
    the argument of that name."""
    check_shape(argument, array, shape, unit, like, name)
    if not contiguous(array):
        raise not_contiguous(argument, array)


def check_shape(argument: str, array: Array, shape: Tuple[int, ...], unit: str, like: Array, name: str) -> None:
    """Wants an array of the shape, one element per unit, on the device of like, the
    argument of that name."""
    if array.shape != shape:
        raise InputError(argument, f"has the shape {list(array.shape)}, want {list(shape)}, one element per {unit}")
    if array.device != like.device:
        raise InputError(argument, f"is on {place(array.device)}, want {place(like.device)} like {name}")


def not_contiguous(argument: str, array: Array) -> InputError:
    """The error of an array whose elements do not lie one after another."""
    return InputError(argument, f"is not contiguous: its strides are {list(array.strides)} elements for the shape {list(array.shape)}")


def place(device: Optional[int]) -> str:
    """The name of a device."""
    return "the CPU" if device is None else f"cuda:{device}"


def output(
    argument: str, out: Optional[Any], shape: Tuple[int, ...], unit: str, like: Array, name: str, dtype: str = "f32"
) -> Array:
    """Returns the array of a result: out, which must be contiguous and writable, or a new
    one where out is None."""
    if out is None:
        return empty(like, shape, dtype)
    array = view(argument, out, (dtype,), writable=True)
    check(argument, array, shape, unit, like, name)
    return array


def empty(like: Array, shape: Tuple[int, ...], dtype: str = "f32") -> Array:
    """Returns a new array, of NumPy or of PyTorch as like is, and on its device."""
    if isinstance(like.owner, np.ndarray):
        return _view_numpy("", np.empty(shape, _NAMES[dtype]), (dtype,), True)
    torch = sys.modules["torch"]
    return _view_torch("", torch.empty(shape, dtype=getattr(torch, _NAMES[dtype]), device=like.owner.device), (dtype,), torch)


def made_like(like: Array, values: npt.NDArray[Any]) -> Array:
    """Returns the values as an array of NumPy or of PyTorch as like is, on its device."""
    if isinstance(like.owner, np.ndarray):
        return _view_numpy("", values, (_NUMPY[values.dtype],), True)
    torch = sys.modules["torch"]
    return _view_torch("", torch.from_numpy(values).to(like.owner.device), (_NUMPY[values.dtype],), torch)


def as_numpy(array: Array) -> npt.NDArray[Any]:
    """Returns the array in the memory of the host: itself, or a copy of a tensor on a GPU."""
    if isinstance(array.owner, np.ndarray):
        return array.owner
    owner: npt.NDArray[Any] = array.owner.detach().cpu().numpy()
    return owner
