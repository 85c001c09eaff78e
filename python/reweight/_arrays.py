"""NumPy arrays and PyTorch tensors as addresses: nothing is copied.

PyTorch is never imported here. A tensor can only exist where somebody has imported it.
A tensor that requires grad is read, and written, as its detached self is: autograd sees
that it was changed, and nothing else.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Dict, Mapping, Optional, Protocol, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from ._errors import InputError, described


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

    def is_contiguous(self) -> bool: ...


ArrayLike = Union["npt.NDArray[Any]", Tensor]
"""A NumPy array or a torch.Tensor."""


class DType:
    """The type of the elements of an array."""

    __slots__ = ("name", "size", "number", "numpy")

    def __init__(self, name: str, size: int, number: int = -1) -> None:
        self.name = name  # as NumPy and PyTorch have it
        self.size = size  # bytes
        self.number = number  # a reweight_dtype, or -1
        self.numpy = None if name == "bfloat16" else np.dtype(name)

    def __str__(self) -> str:
        return self.name


F32, BF16, F16 = DType("float32", 4, 0), DType("bfloat16", 2, 1), DType("float16", 2, 2)
F64, I32, I64, U8, BOOL = DType("float64", 8), DType("int32", 4), DType("int64", 8), DType("uint8", 1), DType("bool", 1)
_ALL = (F32, BF16, F16, F64, I32, I64, U8, BOOL)
_NUMPY: Dict[Any, DType] = {d.numpy: d for d in _ALL if d.numpy is not None}
_TORCH: Dict[Any, DType] = {}  # filled when the first tensor comes


class Array:
    """An array as the library sees it."""

    __slots__ = ("pointer", "dtype", "shape", "contiguous", "device", "owner")

    def __init__(
        self, pointer: int, dtype: DType, shape: Tuple[int, ...], contiguous: bool, device: Optional[int], owner: Any
    ) -> None:
        self.pointer = pointer  # of its first element; any but 0 if there is none
        self.dtype = dtype
        self.shape = shape
        self.contiguous = contiguous  # whether the elements lie one after another
        self.device = device  # the ordinal of a GPU, or None for the CPU
        self.owner = owner  # the array or tensor itself

    @property
    def strides(self) -> Tuple[int, ...]:
        """The distances of elements, in elements."""
        if isinstance(self.owner, np.ndarray):
            return tuple(s // self.dtype.size for s in self.owner.strides)
        return tuple(self.owner.stride())

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
# The address of arrays without elements, where PyTorch has 0: that stands for no array.
NOWHERE = 64
# Flags of PyArrayInterface.
_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400


def view(argument: str, obj: Any, dtypes: Tuple[DType, ...], writable: bool = False) -> Array:
    """Returns the argument's array, which must have one of the dtypes.

    Raises TypeError if it is neither a NumPy array nor a tensor, or has another dtype,
    and InputError, a ValueError, if it is misaligned, or read-only where it is to be
    writable. Its shape, strides and device are the caller's to check.
    """
    if type(obj) is np.ndarray:
        return _view_numpy(argument, obj, dtypes, writable)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(obj, torch.Tensor):
        return _view_torch(argument, obj, dtypes, writable, torch)
    if isinstance(obj, np.ndarray) and not isinstance(obj, np.ma.MaskedArray):
        return _view_numpy(argument, obj, dtypes, writable)
    raise TypeError(f"{argument} is {described(obj)}, want a NumPy array or a torch.Tensor of {_listed(dtypes)}")


def _view_numpy(argument: str, obj: npt.NDArray[Any], dtypes: Tuple[DType, ...], writable: bool) -> Array:
    dtype = _NUMPY.get(obj.dtype)
    if dtype not in dtypes or dtype is None:
        raise TypeError(f"{argument} has dtype {_described_dtype(obj.dtype)}, want {_listed(dtypes)}")
    capsule = obj.__array_struct__  # owns the interface: it must live while that is read
    interface = _Interface.from_address(_capsule_pointer(capsule, None))
    flags = interface.flags
    if not flags & _ALIGNED:
        raise _misaligned(argument, dtype)
    array = Array(interface.data or 0, dtype, obj.shape, flags & _CONTIGUOUS != 0, None, obj)
    if writable:
        if not flags & _WRITEABLE:
            raise InputError(argument, "is read-only, want an array that can be written")
        _check_apart(argument, array)
    return array


def _view_torch(argument: str, obj: Any, dtypes: Tuple[DType, ...], writable: bool, torch: Any) -> Array:
    if not _TORCH:
        _TORCH.update({getattr(torch, d.name): d for d in _ALL})
    dtype = _TORCH.get(obj.dtype)
    if dtype not in dtypes or dtype is None:
        raise TypeError(f"{argument} has dtype {str(obj.dtype).replace('torch.', '')}, want {_listed(dtypes)}")
    if obj.layout is not torch.strided or obj.is_nested:
        check_plain(argument, obj)
    ordinal = None
    if not obj.is_cpu:
        device = obj.device
        if device.type != "cuda":
            raise TypeError(f"{argument} is on the device {device}, want the CPU or a CUDA device")
        if torch.version.hip is not None:
            raise TypeError(f"{argument} is on {device}, a GPU of ROCm, want the CPU or an NVIDIA GPU")
        ordinal = device.index
    if obj.is_neg():
        problem = "is a view whose signs PyTorch has not changed in memory yet, want its resolve_neg()"
        raise InputError(argument, problem)
    pointer = obj.data_ptr()
    if pointer % dtype.size:
        raise _misaligned(argument, dtype)
    array = Array(pointer, dtype, tuple(obj.shape), obj.is_contiguous(), ordinal, obj)
    if pointer == 0:
        if array.size:
            # Such as a DTensor, an AsyncCollectiveTensor and a FakeTensor, which stand for other tensors.
            wraps = type(obj) not in (torch.Tensor, torch.nn.Parameter)
            why = f"it is {described(obj)}, want a plain tensor" if wraps else "its storage was freed"
            raise InputError(argument, f"has no memory: {why}")
        array.pointer = NOWHERE
    if writable:
        _check_apart(argument, array)
        if not obj.is_inference():  # which has no count of changes
            # PyTorch does not see what the library writes. A write of its own, to no element,
            # counts as a change of the tensor for all that saved it.
            obj.detach().as_strided((0,), (1,)).zero_()
    return array


def check_plain(argument: str, tensor: Any) -> None:
    """Wants a tensor of PyTorch whose elements are numbers in memory."""
    kind = "nested" if tensor.is_nested else "quantized" if tensor.is_quantized else str(tensor.layout).replace("torch.", "")
    if kind != "strided":
        raise TypeError(f"{argument} is a {kind} tensor, want a plain one")


def overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements share their memory. It is also true of some arrays that interleave
    their dimensions."""
    extent = 1  # of an element of the dimension, and of all before it
    for stride, size in sorted((abs(s), d) for d, s in zip(shape, strides) if d > 1):
        if stride < extent:
            return True
        extent += stride * (size - 1)
    return False


def _check_apart(argument: str, array: Array) -> None:
    """Wants each element to have memory of its own."""
    if not array.contiguous and overlaps(array.shape, array.strides):
        raise InputError(
            argument,
            f"has elements that share their memory: for the shape {list(array.shape)} its strides are "
            f"{list(array.strides)} elements",
        )


def _misaligned(argument: str, dtype: DType) -> InputError:
    return InputError(argument, f"is not aligned to {dtype.size} bytes, the size of an element")


def _listed(dtypes: Sequence[DType]) -> str:
    names = [str(d) for d in dtypes]
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]


def _described_dtype(dtype: Any) -> str:
    if dtype not in _NUMPY and dtype.newbyteorder() in _NUMPY:
        return f"{dtype.name} in the other byte order ({dtype.str})"
    return str(dtype)


def check(argument: str, array: Array, shape: Tuple[int, ...], unit: str, like: Array, name: str) -> None:
    """Wants a contiguous array of the shape, one element per unit, on the device of like,
    the argument of that name."""
    check_shape(argument, array, shape, unit, like, name)
    if not array.contiguous:
        raise not_contiguous(argument, array)


def check_shape(argument: str, array: Array, shape: Tuple[int, ...], unit: str, like: Array, name: str) -> None:
    """Wants an array of the shape, one element per unit, on the device of like, the
    argument of that name."""
    if array.shape != shape:
        raise InputError(argument, f"has the shape {list(array.shape)}, want {list(shape)}, one element per {unit}")
    if array.device != like.device:
        raise InputError(argument, f"is on {place(array.device)}, want {place(like.device)} like {name}")


def check_apart(argument: str, array: Array, name: str, other: Array) -> None:
    """Wants two arrays that overlap nowhere. The elements of their last dimensions lie one
    after another."""
    (begin, end), (other_begin, other_end) = _extent(array), _extent(other)
    if begin >= other_end or other_begin >= end or not (array.size and other.size):
        return
    if not (array.contiguous and other.contiguous):  # one may lie in the gaps of the other
        rows, length = _runs(array)
        others, other_length = _runs(other)
        others.sort()
        if not (np.searchsorted(others, rows - other_length, "right") < np.searchsorted(others, rows + length)).any():
            return
    raise InputError(argument, f"overlaps {name}, want memory of its own")


def check_out(argument: str, out: Array, inputs: Mapping[str, Optional[Array]]) -> None:
    """Wants an output that overlaps no input, unless it is that input."""
    for name, array in inputs.items():
        if array is not None and not _same(out, array):
            check_apart(argument, out, name, array)


def _same(a: Array, b: Array) -> bool:
    """Whether both are the same elements in the same order."""
    if a.pointer != b.pointer or a.dtype is not b.dtype or a.shape != b.shape:
        return False
    return (a.contiguous and b.contiguous) or a.strides == b.strides


def _extent(array: Array) -> Tuple[int, int]:
    """Returns the address of the first byte, and that after the last one."""
    if array.contiguous:
        return array.pointer, array.pointer + array.size * array.dtype.size
    reach = [(d - 1) * s * array.dtype.size for d, s in zip(array.shape, array.strides)]
    below, above = (sum(f(r, 0) for r in reach) for f in (min, max))
    return array.pointer + below, array.pointer + above + array.dtype.size


def _runs(array: Array) -> Tuple[npt.NDArray[np.int64], int]:
    """Returns the addresses of the runs of the array's memory that have no gaps, and the length
    of each, in bytes."""
    starts = np.array([array.pointer])
    if array.contiguous:
        return starts, array.size * array.dtype.size
    for d, s in zip(array.shape[:-1], array.strides[:-1]):
        starts = (starts[:, None] + np.arange(d) * (s * array.dtype.size)).reshape(-1)
    return starts, array.shape[-1] * array.dtype.size


def inner_contiguous(array: Array) -> bool:
    """Whether the elements of the last dimension lie one after another."""
    return array.contiguous or array.shape[-1] <= 1 or array.strides[-1] == 1


def not_contiguous(argument: str, array: Array) -> InputError:
    """The error of an array whose elements do not lie one after another."""
    return InputError(
        argument, f"is not contiguous: for the shape {list(array.shape)} its strides are {list(array.strides)} elements"
    )


def place(device: Optional[int]) -> str:
    """The name of a device."""
    return "the CPU" if device is None else f"cuda:{device}"


def output(
    argument: str, out: Optional[Any], shape: Tuple[int, ...], unit: str, inputs: Mapping[str, Optional[Array]]
) -> Array:
    """Returns the array of a result of float32: out, which must be contiguous and writable and
    may be an input, or a new one where out is None. It is on the device of the first input."""
    name, like = next(iter(inputs.items()))
    assert like is not None
    if out is None:
        return empty(like, shape, F32)
    array = view(argument, out, (F32,), writable=True)
    check(argument, array, shape, unit, like, name)
    check_out(argument, array, inputs)
    return array


def empty(like: Array, shape: Tuple[int, ...], dtype: DType) -> Array:
    """Returns a new array, of NumPy or of PyTorch as like is, and on its device."""
    if isinstance(like.owner, np.ndarray):
        array = np.empty(shape, dtype.numpy)
        capsule = array.__array_struct__
        interface = _Interface.from_address(_capsule_pointer(capsule, None))
        return Array(interface.data or 0, dtype, shape, True, None, array)
    torch = sys.modules["torch"]
    return new(torch.empty(shape, dtype=getattr(torch, dtype.name), device=like.owner.device), dtype, like.device)


def new(tensor: Any, dtype: DType, device: Optional[int]) -> Array:
    """Returns a tensor that has just been made as the array that it is."""
    return Array(tensor.data_ptr() or NOWHERE, dtype, tuple(tensor.shape), True, device, tensor)


def made_like(like: Array, values: npt.NDArray[Any]) -> Array:
    """Returns the values as an array of NumPy or of PyTorch as like is, on its device."""
    if isinstance(like.owner, np.ndarray):
        return view("", values, _ALL)
    return view("", sys.modules["torch"].from_numpy(values).to(like.owner.device), _ALL)


def multiples(like: Array, step: int, n: int) -> Array:
    """Returns 0, step, 2 step and so on: n int64, as made_like does, but made on the device,
    because a copy to it would wait for it."""
    if isinstance(like.owner, np.ndarray):
        return view("", np.arange(n, dtype=np.int64) * step, _ALL)
    return view("", sys.modules["torch"].arange(n, device=like.owner.device) * step, _ALL)


def as_numpy(array: Array) -> npt.NDArray[Any]:
    """Returns the array in the memory of the host: itself, or a copy of a tensor on a GPU."""
    if isinstance(array.owner, np.ndarray):
        return array.owner
    owner: npt.NDArray[Any] = array.owner.detach().cpu().numpy()
    return owner
