"""The driver of NVIDIA's GPUs, libcuda, by ctypes: no toolkit and no Go.

A device is used through its primary context, which PyTorch uses as well: its addresses
and streams are valid here. Each call makes that context current on its thread, and
then the one again that was current before. Nothing here allocates memory of the device.
"""

from __future__ import annotations

import gzip
import os
import threading
from ctypes import (
    CDLL,
    POINTER,
    Structure,
    addressof,
    byref,
    c_char_p,
    c_int,
    c_size_t,
    c_ubyte,
    c_uint,
    c_uint64,
    c_void_p,
    create_string_buffer,
    sizeof,
)
from pathlib import Path
from typing import Any, Iterable, NamedTuple

from . import _generated
from ._errors import InputError

# The functions of the library that are called, and what they take. Where there are
# versions of a function, it is the one of CUDA 11.0; later drivers keep it.
_FUNCTIONS: dict[str, list[Any]] = {
    "cuGetErrorName": [c_int, POINTER(c_char_p)],
    "cuGetErrorString": [c_int, POINTER(c_char_p)],
    "cuDriverGetVersion": [POINTER(c_int)],
    "cuInit": [c_uint],
    "cuDeviceGet": [POINTER(c_int), c_int],
    "cuDeviceGetName": [c_char_p, c_int, c_int],
    "cuDeviceGetAttribute": [POINTER(c_int), c_int, c_int],
    "cuDevicePrimaryCtxRetain": [POINTER(c_void_p), c_int],
    "cuCtxPushCurrent_v2": [c_void_p],
    "cuCtxPopCurrent_v2": [POINTER(c_void_p)],
    "cuCtxSynchronize": [],
    "cuModuleLoadDataEx": [POINTER(c_void_p), c_char_p, c_uint, POINTER(c_int), POINTER(c_void_p)],
    "cuModuleGetFunction": [POINTER(c_void_p), c_void_p, c_char_p],
    "cuFuncSetAttribute": [c_void_p, c_int, c_int],
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": [POINTER(c_int), c_void_p, c_int, c_size_t],
    "cuLaunchKernel": [c_void_p, *[c_uint] * 7, c_void_p, c_void_p, POINTER(c_void_p)],
    "cuMemcpyHtoDAsync_v2": [c_uint64, c_void_p, c_size_t, c_void_p],
    "cuMemcpyDtoHAsync_v2": [c_void_p, c_uint64, c_size_t, c_void_p],
    "cuMemsetD8Async": [c_uint64, c_ubyte, c_size_t, c_void_p],
    "cuStreamIsCapturing": [c_void_p, POINTER(c_int)],
}

_OLDEST_DRIVER = 11000  # CUDA 11.0: 1000 for the major version, 10 for the minor
_OLDEST_CAPABILITY = 8  # what the PTX is compiled for
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE
_CAPTURE_IMPLICIT = 906  # CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: of the default stream, while another one is captured

# Attributes of a device and of a function.
_MULTIPROCESSORS, _MAJOR, _MINOR = 16, 75, 76

_MAX_DYNAMIC_SHARED = 8
_PLAIN_SHARED = 48 << 10  # a function must be allowed more dynamic shared memory than this first

_JIT_ERROR_LOG, _JIT_ERROR_LOG_SIZE = 5, 6
_LAUNCH_END, _LAUNCH_BUFFER, _LAUNCH_SIZE = 0, 1, 2
_Extra = c_void_p * 5  # the argument extra of cuLaunchKernel: names and values in turn

_PTX = Path(__file__).with_name("ptx")


class Kernel(NamedTuple):
    """How a kernel is launched."""

    module: str
    threads: int  # of a CTA
    shared: int  # bytes of dynamic shared memory of a CTA

    # How many times as many threads and bytes the CTAs have where all that a call needs can
    # run at a time; 0: they always have the same.
    team: int


KERNELS = {name: Kernel(*launched) for name, launched in _generated.KERNELS.items()}


class _Library:
    """The driver's library, initialised."""

    def __init__(self) -> None:
        library = _open()
        self._functions: dict[str, Any] = {}
        for name, argtypes in _FUNCTIONS.items():
            try:
                function = library[name]
            except AttributeError:
                continue
            function.argtypes = argtypes
            function.restype = c_int
            self._functions[name] = function
        # An old driver lacks functions, but its age is the better answer.
        if "cuDriverGetVersion" in self._functions:
            version = c_int()
            self.call("cuDriverGetVersion", byref(version))
            self.version = f"{version.value // 1000}.{version.value % 1000 // 10}"  # of CUDA
            if version.value < _OLDEST_DRIVER:
                raise RuntimeError(f"cuda: the driver is for CUDA {self.version}, want 11.0 or newer")
        for name in _FUNCTIONS:
            if name not in self._functions:
                raise RuntimeError(f"cuda: the driver's library has no {name}")
        code = self.try_call("cuInit", 0)
        if code == _NO_DEVICE:
            raise RuntimeError("cuda: the driver finds no device")
        if code:
            raise self.error("cuInit", code)

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function, and raises what it returns if that is an error."""
        code = self.try_call(name, *arguments)
        if code:
            raise self.error(name, code)

    def try_call(self, name: str, *arguments: Any) -> int:
        """Calls a function and returns its code."""
        code: int = self._functions[name](*arguments)
        return code

    def error(self, name: str, code: int) -> RuntimeError:
        def describe(function: str, unknown: str) -> str:
            text = c_char_p()
            if function not in self._functions or self._functions[function](code, byref(text)) or text.value is None:
                return unknown
            return text.value.decode(errors="replace")

        called = describe("cuGetErrorName", "an error")
        means = describe("cuGetErrorString", "the driver does not say what that is")
        return RuntimeError(f"cuda: {name} failed with {called} ({code}): {means}")


def _open() -> CDLL:
    named = os.environ.get("REWEIGHT_LIBCUDA")
    if named:
        try:
            return CDLL(named)
        except OSError as error:
            raise RuntimeError(f"cuda: REWEIGHT_LIBCUDA is {named!r}: {error}") from None
    try:
        return CDLL("libcuda.so.1")
    except OSError as error:
        try:
            return CDLL("libcuda.so")
        except OSError:
            raise RuntimeError(f"cuda: there is no driver: {error}") from None


class _Shape(NamedTuple):
    """One size of a kernel's CTAs. most is how many of them the device can run at a time:
    every kernel loops over its work, so more would only wait."""

    threads: int
    shared: int
    most: int


class _Function(NamedTuple):
    """A kernel on a device: with CTAs of its threads, and with teams, of which a kernel
    without teams can run none."""

    handle: c_void_p
    alone: _Shape
    team: _Shape


class Device:
    """A GPU, by its number from 0, as PyTorch counts. Any thread may call it."""

    def __init__(self, library: _Library, ordinal: int) -> None:
        self._library = library
        device = c_int()
        library.call("cuDeviceGet", byref(device), ordinal)
        values = []
        for attribute in (_MULTIPROCESSORS, _MAJOR, _MINOR):
            value = c_int()
            library.call("cuDeviceGetAttribute", byref(value), attribute, device)
            values.append(value.value)
        self._multiprocessors, major, minor = values
        name = create_string_buffer(256)
        library.call("cuDeviceGetName", name, len(name) - 1, device)
        self.name = name.value.decode(errors="replace")
        self.version = library.version
        if major < _OLDEST_CAPABILITY:
            raise RuntimeError(
                f"cuda: device {ordinal}, {self.name}, has compute capability {major}.{minor}, "
                f"want {_OLDEST_CAPABILITY}.0 or newer"
            )
        self._context = c_void_p()
        library.call("cuDevicePrimaryCtxRetain", byref(self._context), device)
        self._lock = threading.Lock()
        self._modules: dict[str, c_void_p] = {}
        self._kernels: dict[str, _Function] = {}
        self._filled: list[Structure] = []

    def _call(self, name: str, *arguments: Any) -> None:
        """Calls a function while the context is current on this thread."""
        self._library.call("cuCtxPushCurrent_v2", self._context)
        try:
            self._library.call(name, *arguments)
        except BaseException:
            self._library.try_call("cuCtxPopCurrent_v2", byref(c_void_p()))
            raise
        self._library.call("cuCtxPopCurrent_v2", byref(c_void_p()))

    def not_captured(self, stream: int, instead: str) -> None:
        """Raises an error if a CUDA graph is captured on the stream. It says what to do instead."""
        status = c_int()
        self._library.call("cuCtxPushCurrent_v2", self._context)
        code = self._library.try_call("cuStreamIsCapturing", stream, byref(status))
        self._library.call("cuCtxPopCurrent_v2", byref(c_void_p()))
        if code == _CAPTURE_IMPLICIT or (code == 0 and status.value != 0):
            raise InputError("stream", f"is being captured in a CUDA graph, {instead}")
        if code:
            raise self._library.error("cuStreamIsCapturing", code)

    def prepare(self, names: Iterable[str], stream: int) -> None:
        """Has the driver compile kernels, those that were not used before."""
        missing = [name for name in names if name not in self._kernels]
        if missing:
            self.not_captured(stream, "want a call of reweight.prepare before that, because the driver has to compile")
        for name in missing:
            self._find(name)

    def launch(self, name: str, ctas: int, params: Structure, stream: int, teams: bool = True) -> None:
        """Queues a kernel on a stream, with as many CTAs as are of use, at least 1, and with teams if they may be. The
        driver copies params before it returns."""
        if name not in self._kernels:
            self.prepare([name], stream)
        handle, alone, team = self._kernels[name]
        ctas = max(1, ctas)
        shape = team if teams and ctas <= team.most else alone
        size = c_size_t(sizeof(params))
        extra = _Extra(_LAUNCH_BUFFER, addressof(params), _LAUNCH_SIZE, addressof(size), _LAUNCH_END)
        grid = min(ctas, shape.most)
        self._call("cuLaunchKernel", handle, grid, 1, 1, shape.threads, 1, 1, shape.shared, stream, None, extra)

    def fill(self, address: int, value: int, size: int, stream: int) -> None:
        """Queues on a stream that bytes get a value."""
        self._call("cuMemsetD8Async", address, value, size, stream)

    def read(self, buffer: Structure, address: int, stream: int) -> None:
        """Waits for all work on the device, and copies memory of it to a struct."""
        self.synchronize()
        self._filled.append(buffer)  # must live on where the wait fails: the copy may be under way
        self._call("cuMemcpyDtoHAsync_v2", addressof(buffer), address, sizeof(buffer), stream)
        self.synchronize()
        self._filled.remove(buffer)

    def copy_in(self, address: int, source: int, size: int, stream: int) -> None:
        """Copies memory of the process to the device, and waits."""
        self._call("cuMemcpyHtoDAsync_v2", address, source, size, stream)
        self.synchronize()

    def copy_out(self, destination: int, address: int, size: int, stream: int) -> None:
        """Waits for all work on the device, and copies memory of it to the process."""
        self.synchronize()
        self._call("cuMemcpyDtoHAsync_v2", destination, address, size, stream)
        self.synchronize()

    def synchronize(self) -> None:
        """Waits for all work on the device."""
        self._call("cuCtxSynchronize")

    def _find(self, name: str) -> None:
        """Finds a kernel, and loads its module if none of it was used before."""
        kernel = KERNELS[name]
        with self._lock:
            if name in self._kernels:
                return
            if kernel.module not in self._modules:
                self._modules[kernel.module] = self._load(kernel.module)
            handle = c_void_p()
            self._call("cuModuleGetFunction", byref(handle), self._modules[kernel.module], name.encode())
            alone = self._shape(handle, kernel, 1)
            if alone.most < 1:
                raise RuntimeError(f"cuda: kernel {name} does not fit on a multiprocessor of {self.name}")
            team = self._shape(handle, kernel, kernel.team) if kernel.team else _Shape(0, 0, 0)
            self._kernels[name] = _Function(handle, alone, team)

    def _shape(self, handle: c_void_p, kernel: Kernel, times: int) -> _Shape:
        """Returns the size of CTAs with so many times a kernel's threads and shared memory."""
        threads, shared = times * kernel.threads, times * kernel.shared
        if shared > _PLAIN_SHARED:
            self._call("cuFuncSetAttribute", handle, _MAX_DYNAMIC_SHARED, shared)
        fit = c_int()
        self._call("cuOccupancyMaxActiveBlocksPerMultiprocessor", byref(fit), handle, threads, shared)
        return _Shape(threads, shared, fit.value * self._multiprocessors)

    def _load(self, module: str) -> c_void_p:
        """Has the driver compile a module. It keeps the result on disk for the next time."""
        text = gzip.decompress((_PTX / f"{module}.ptx.gz").read_bytes())
        log = create_string_buffer(8 << 10)
        options = (c_int * 2)(_JIT_ERROR_LOG, _JIT_ERROR_LOG_SIZE)
        values = (c_void_p * 2)(addressof(log), len(log) - 1)
        handle = c_void_p()
        try:
            self._call("cuModuleLoadDataEx", byref(handle), text, len(options), options, values)
        except RuntimeError as error:
            said = log.value.decode(errors="replace").strip()
            raise RuntimeError(f"cuda: module {module}: {error}" + (f": {said}" if said else "")) from None
        return handle


_lock = threading.Lock()
_library: _Library | None = None
_devices: dict[int, Device] = {}


def checked() -> bool:
    """Says whether the kernels of a GPU are compared with the CPU first. Raises an error if no GPU is to be used."""
    said = os.environ.get("REWEIGHT_GPU", "")
    if said == "off":
        raise RuntimeError("cuda: REWEIGHT_GPU is off: give tensors on the CPU")
    if said not in ("", "unchecked"):
        raise InputError("REWEIGHT_GPU", f'is "{said}", want off, unchecked or nothing')
    return said == ""


def device(ordinal: int) -> Device:
    """Returns the device of that number, which is opened when it is first asked for."""
    global _library
    checked()
    found = _devices.get(ordinal)
    if found is not None:
        return found
    with _lock:
        if _library is None:
            _library = _Library()
        if ordinal not in _devices:
            _devices[ordinal] = Device(_library, ordinal)
        return _devices[ordinal]
