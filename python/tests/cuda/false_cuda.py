"""A GPU for tests on machines that have none: the Go program gpu/internal/libcuda, built
as the driver's library, whose devices interpret the kernels' PTX.

    driver = false_cuda.start()
    array = driver.upload(numpy_array)
    ... array.pointer ...
    driver.download(array)

The driver has its own memory, of which it knows each byte that was written: a kernel
that reads another byte, or beyond an array, fails.
"""

import ctypes
import os
import random
import shutil
import subprocess
import tempfile
import unittest
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
STREAM = 7  # the current stream of every device


def build(directory):
    """Returns the file of the library, which is built in the directory. Raises SkipTest
    where that cannot be."""
    for tool in ("go", "gcc"):
        if shutil.which(tool) is None:
            raise unittest.SkipTest(f"no {tool} here: the driver that interprets PTX is not built")
    if not (ROOT / "gpu" / "internal" / "libcuda").is_dir():
        raise unittest.SkipTest("not in a checkout: the driver that interprets PTX is not built")
    file = Path(directory) / "libcuda.so"
    command = ["go", "build", "-buildmode=c-shared", "-o", str(file), "./gpu/internal/libcuda"]
    environment = {**os.environ, "CGO_ENABLED": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if built.returncode:
        raise RuntimeError(f"{' '.join(command)}: {built.stderr}")
    return file


class Array:
    """An array in the memory of a device, which is given back with it."""

    def __init__(self, driver, ordinal, dtype, shape, past=0):
        self.driver, self.ordinal, self.dtype, self.shape = driver, ordinal, np.dtype(dtype), shape
        self.size = int(np.prod(shape)) * self.dtype.itemsize
        self._allocated = driver.allocate(ordinal, max(self.size, 1) + past)
        self.pointer = self._allocated + past

    def __del__(self):
        self.driver.free(self.ordinal, self._allocated)


class Driver:
    """The library, and memory of its devices."""

    def __init__(self, file):
        self._library = ctypes.CDLL(str(file))
        self._library.cuMemAlloc_v2.argtypes = [c_void_p, c_size_t]
        self._library.cuMemFree_v2.argtypes = [c_uint64]
        self._library.cuMemcpyHtoDAsync_v2.argtypes = [c_uint64, c_void_p, c_size_t, c_void_p]
        self._library.cuMemcpyDtoHAsync_v2.argtypes = [c_void_p, c_uint64, c_size_t, c_void_p]
        self._library.cuStreamSynchronize.argtypes = [c_void_p]
        self._library.cuCtxPushCurrent_v2.argtypes = [c_void_p]
        self._call("cuInit", 0)

    def _call(self, name, *arguments):
        code = getattr(self._library, name)(*arguments)
        if code:
            raise RuntimeError(f"{name}: {code}")

    def _on(self, ordinal, name, *arguments):
        context = c_void_p()
        self._call("cuDevicePrimaryCtxRetain", byref(context), ordinal)
        self._call("cuCtxPushCurrent_v2", context)
        try:
            self._call(name, *arguments)
        finally:
            self._call("cuCtxPopCurrent_v2", byref(context))

    def allocate(self, ordinal, size):
        pointer = c_uint64()
        self._on(ordinal, "cuMemAlloc_v2", byref(pointer), size)
        return pointer.value

    def free(self, ordinal, pointer):
        self._on(ordinal, "cuMemFree_v2", pointer)

    def write(self, ordinal, pointer, data):
        """Copies a contiguous NumPy array to the device."""
        if data.nbytes:
            self._on(ordinal, "cuMemcpyHtoDAsync_v2", pointer, data.ctypes.data, data.nbytes, STREAM)
            self._on(ordinal, "cuStreamSynchronize", STREAM)

    def read(self, ordinal, pointer, data):
        """Copies memory of the device to a contiguous NumPy array. All of it must have been
        written."""
        if data.nbytes:
            self._on(ordinal, "cuMemcpyDtoHAsync_v2", data.ctypes.data, pointer, data.nbytes, STREAM)
            self._on(ordinal, "cuStreamSynchronize", STREAM)

    def upload(self, data, ordinal=0, past=0):
        """Returns a copy of a NumPy array that begins so many bytes past a multiple of 256."""
        data = np.ascontiguousarray(data)
        array = Array(self, ordinal, data.dtype, data.shape, past)
        self.write(ordinal, array.pointer, data)
        return array

    def download(self, array):
        data = np.empty(array.shape, array.dtype)
        self.read(array.ordinal, array.pointer, data)
        return data


_directory = None
_driver = None


def start():
    """Returns the driver, and makes it the one that reweight opens. Raises SkipTest where it
    cannot be built."""
    global _directory, _driver
    if _driver is None:
        _directory = tempfile.TemporaryDirectory()
        file = build(_directory.name)
        # Chooses the order in which threads run. A failure that has to do with it comes
        # back with the same seed.
        seed = os.environ.setdefault("REWEIGHT_PTX_SEED", str(random.getrandbits(63)))
        print(f"REWEIGHT_PTX_SEED={seed}", flush=True)
        os.environ["REWEIGHT_LIBCUDA"] = str(file)
        _driver = Driver(file)
    return _driver
