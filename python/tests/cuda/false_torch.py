"""CUDA tensors of PyTorch on a machine without a GPU: tensors on the CPU whose
elements are in the memory of the driver of false_cuda.

    with false_torch.devices(driver):
        x = torch.zeros(3, device="cuda:1")
        y = (x + 1).cpu()

An operation is done on the CPU, on copies. Views share memory, and what is written in
place is written back.
"""

import contextlib
from unittest import mock

import false_cuda
import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

_driver = None
_sync_debug_mode = "default"


def _set_sync_debug_mode(mode):
    """Stands for PyTorch's function of that name: with "error", what waits for a device fails."""
    global _sync_debug_mode
    _sync_debug_mode = mode


class Tensor(torch.Tensor):
    """A tensor on a device of the driver. memory is shared with its views."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, memory, like):
        tensor = torch.Tensor._make_wrapper_subclass(
            cls, like.shape, strides=like.stride(), storage_offset=like.storage_offset(), dtype=like.dtype,
            device=torch.device("cuda", memory.ordinal),
        )
        tensor.memory = memory
        return tensor

    def data_ptr(self):
        if self.numel() == 0:
            return 0
        return self.memory.pointer + self.storage_offset() * self.element_size()

    def __getitem__(self, index):
        """Takes ints, slices and None, or one tensor. PyTorch's own asks for a device before it dispatches."""
        if isinstance(index, torch.Tensor):
            return torch.ops.aten.index.Tensor(self, [index])
        x, dimension = self, 0
        for i in index if isinstance(index, tuple) else (index,):
            if isinstance(i, int):
                x = torch.ops.aten.select.int(x, dimension, i)
            elif i is None:
                x = torch.ops.aten.unsqueeze.default(x, dimension)
                dimension += 1
            else:
                x = torch.ops.aten.slice.Tensor(x, dimension, i.start, i.stop, i.step or 1)
                dimension += 1
        return x

    def copy_(self, other):
        return torch.ops.aten.copy_.default(self, other)

    def nonzero(self):
        return torch.ops.aten.nonzero.default(self)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})


class Factories(TorchDispatchMode):
    """Has functions that make tensors on a device do it there."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})


def _bounds(x):
    """Returns where the bytes of a tensor's elements begin and end in its memory."""
    first = x.storage_offset()
    last = first + sum((d - 1) * s for d, s in zip(x.shape, x.stride()))
    return (first * x.element_size(), (last + 1) * x.element_size()) if x.numel() else (0, 0)


def _run(function, args, kwargs):
    schema = function._schema
    is_view = any(r.alias_info and not r.alias_info.is_write for r in schema.returns)
    is_empty = "empty" in schema.name
    device = kwargs.get("device")
    made_there = device is not None and torch.device(device).type == "cuda"
    ordinal = torch.device(device).index or 0 if made_there else None
    if _sync_debug_mode == "error" and schema.name in ("aten::_to_copy", "aten::_local_scalar_dense"):
        raise RuntimeError("called a synchronizing CUDA operation")
    inputs = []  # tensors on a device, and their copies on the CPU

    def lower(x, written):
        nonlocal ordinal
        if isinstance(x, (list, tuple)):
            return type(x)(lower(y, written) for y in x)
        if not isinstance(x, Tensor):
            return x
        size = -(-x.memory.size // 8) * 8
        copy = torch.zeros(size, dtype=torch.uint8)
        begin, end = _bounds(x)
        if not is_view and not is_empty:
            part = np.zeros(end - begin, np.uint8)
            try:
                x.memory.driver.read(x.memory.ordinal, x.memory.pointer + begin, part)
            except RuntimeError:  # nobody has written some of it, which may lie between the elements
                elements = torch.as_strided(torch.arange(size // x.element_size()), x.shape, x.stride(), x.storage_offset())
                own = set((elements * x.element_size() - begin).reshape(-1).tolist())
                for i in range(0, end - begin, x.element_size()):
                    element = np.zeros(x.element_size(), np.uint8)
                    try:
                        x.memory.driver.read(x.memory.ordinal, x.memory.pointer + begin + i, element)
                    except RuntimeError:
                        if not written and i in own:
                            raise
                    part[i : i + x.element_size()] = element
            copy[begin:end] = torch.from_numpy(part)
        low = torch.as_strided(copy.view(x.dtype), x.shape, x.stride(), x.storage_offset())
        inputs.append((x, low, written))
        if ordinal is None and device is None:
            ordinal = x.memory.ordinal
        return low

    def raised(x):
        if isinstance(x, (list, tuple)):
            return type(x)(raised(y) for y in x)
        if not isinstance(x, torch.Tensor):
            return x
        for tensor, low, _ in inputs:
            if x.untyped_storage().data_ptr() == low.untyped_storage().data_ptr():
                return tensor if x is low else Tensor(tensor.memory, x)
        if ordinal is None:
            return x
        size = x.untyped_storage().nbytes()
        memory = false_cuda.Array(_driver, ordinal, np.uint8, (size,))
        if size and not is_empty:
            flat = torch.as_strided(x, (size // x.element_size(),), (1,), 0).contiguous().view(torch.uint8)
            _driver.write(ordinal, memory.pointer, flat.numpy())
        return Tensor(memory, x)

    writes = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
    names = {a.name: w for a, w in zip(schema.arguments, writes)}
    low_args = [lower(x, w) for x, w in zip(args, writes)]
    low_kwargs = {name: lower(x, names[name]) for name, x in kwargs.items()}
    if made_there:
        low_kwargs["device"] = torch.device("cpu")
    result = function(*low_args, **low_kwargs)
    for tensor, low, written in inputs:
        if written and tensor.numel():
            begin, end = _bounds(tensor)
            flat = torch.as_strided(low, (low.untyped_storage().nbytes() // low.element_size(),), (1,), 0).view(torch.uint8)
            _driver.write(tensor.memory.ordinal, tensor.memory.pointer + begin, flat.numpy()[begin:end].copy())
    return raised(result)


class Stream:
    def __init__(self, device):
        self.device, self.cuda_stream = device, false_cuda.STREAM


@contextlib.contextmanager
def devices(driver):
    """Gives PyTorch the devices of the driver meanwhile."""
    global _driver
    _driver = driver
    with contextlib.ExitStack() as stack:
        for name, replaced in (
            ("_lazy_init", lambda: None),
            ("current_stream", Stream),
            ("current_device", lambda: 0),
            ("is_available", lambda: True),
            ("set_sync_debug_mode", _set_sync_debug_mode),
        ):
            stack.enter_context(mock.patch.object(torch.cuda, name, replaced))
        stack.enter_context(Factories())
        yield
