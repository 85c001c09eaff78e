"""How libcuda is opened and called, against the false driver of the Go package
gpu/cuda: a library in C that keeps books and fails on demand, and runs no kernel."""

import contextlib
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
from pathlib import Path
from unittest import mock

import numpy as np
from false_cuda import ROOT
from reweight import InputError, _cuda, _cuda_driver, _generated
from reweight._generated import (
    ActFocusOptions,
    AEMOptions,
    Batch,
    GAEOptions,
    GRPOOptions,
    Ids,
    LossOptions,
    RowGradientOptions,
    Rows,
    Stats,
)

UNKNOWN = 999  # CUDA_ERROR_UNKNOWN
STREAM = 11


class Launch(ctypes.Structure):
    """What the false driver saw of a launch."""

    _fields_ = [
        ("name", ctypes.c_char * 64),
        ("grid", ctypes.c_uint * 3),
        ("threads", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("size", ctypes.c_uint),
        ("stream", ctypes.c_uint64),
        ("params", ctypes.c_ubyte * 1024),
    ]


class Memory:
    """Stands for a tensor: memory that is always the same on a device, because nobody reads it."""

    def __init__(self, pointer):
        self.pointer = pointer

    def data_ptr(self):
        return self.pointer


class Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        compiler = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
        source = ROOT / "gpu" / "cuda" / "testdata" / "libcuda.c"
        if compiler is None or not source.exists():
            raise unittest.SkipTest("no C compiler or no checkout here: the driver that fails on demand is not built")
        cls.directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.directory.cleanup)
        cls.built = Path(cls.directory.name) / "built.so"
        flags = ["-std=c11", "-O1", "-fPIC", "-shared", "-o", str(cls.built)]
        subprocess.run([compiler, *flags, str(source), "-lpthread"], check=True)

    def setUp(self):
        """A copy of the library is another driver, which knows nothing of what others did."""
        self.start(self.built.read_bytes())

    def start(self, content):
        file = Path(self.directory.name) / f"{self.id()}-{content.__hash__()}-{len(os.listdir(self.directory.name))}.so"
        file.write_bytes(content)
        os.environ["REWEIGHT_LIBCUDA"] = str(file)
        os.environ["REWEIGHT_GPU"] = "unchecked"  # it runs no kernel
        self.library = ctypes.CDLL(str(file))
        self.library.false_report.restype = ctypes.c_char_p
        self.library.false_pop.restype = ctypes.c_uint64
        self.forget()
        self.memory = {}
        _cuda._allocate = self.allocate
        _cuda._stream = lambda ordinal: STREAM

    def allocate(self, ordinal, size):
        if ordinal not in self.memory:
            pointer = ctypes.c_uint64()
            self.library.false_push(ctypes.c_void_p(0xC0DE0000 + ordinal))
            self.library.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 22))
            self.library.false_pop()
            self.memory[ordinal] = Memory(pointer.value)
        self.assertLessEqual(size, 1 << 22)
        return self.memory[ordinal]

    def forget(self):
        """Makes reweight open the driver again."""
        _cuda_driver._library = None
        _cuda_driver._devices.clear()
        _cuda._backends.clear()

    def calls(self, name):
        return self.library.false_calls(name.encode())

    def last(self):
        launch = Launch()
        count = self.library.false_launch(ctypes.byref(launch))
        return launch, count

    def wrong(self):
        """Returns what the program did wrong. Contexts and modules are kept on purpose."""
        report = self.library.false_report().decode().splitlines()
        kept = ("references", "is not unloaded", "are not freed")
        return [line for line in report if not line.endswith(kept)]

    def order(self, name, nth, code=UNKNOWN):
        """Orders that the nth call of a function from now on fails."""
        self.library.false_fail(name.encode(), nth, code)

    @contextlib.contextmanager
    def raises(self, text):
        with self.assertRaises(RuntimeError) as caught:
            yield
        self.assertIn(text, str(caught.exception))

    # ---- Opening ----

    def test_no_driver(self):
        del os.environ["REWEIGHT_LIBCUDA"]
        for name in ("libcuda.so.1", "libcuda.so"):
            with contextlib.suppress(OSError):
                ctypes.CDLL(name)
                self.skipTest("there is a driver here")
        with self.raises("cuda: there is no driver: libcuda.so.1: "):
            _cuda.backend(0)

    def test_wrong_name(self):
        os.environ["REWEIGHT_LIBCUDA"] = "/nowhere/libcuda.so"
        with self.raises("cuda: REWEIGHT_LIBCUDA is '/nowhere/libcuda.so': "):
            _cuda.backend(0)

    def test_old_driver(self):
        self.library.false_version(10020)
        with self.raises("cuda: the driver is for CUDA 10.2, want 11.0 or newer"):
            _cuda.backend(0)

    def test_missing_functions(self):
        for name in _cuda_driver._FUNCTIONS:
            spelt = b"\0" + name.encode() + b"\0"
            content = self.built.read_bytes()
            self.assertIn(spelt, content)
            self.start(content.replace(spelt, b"\0x" + spelt[2:]))
            with self.raises(f"cuda: the driver's library has no {name}"):
                _cuda.backend(0)

    def test_no_device(self):
        self.library.false_devices(0)
        with self.raises("cuda: the driver finds no device"):
            _cuda.backend(0)

    def test_wrong_device(self):
        with self.raises("cuda: cuDeviceGet failed with CUDA_ERROR_INVALID_DEVICE (101): invalid device ordinal"):
            _cuda.backend(3)

    def test_old_device(self):
        self.library.false_device(0, b"False T4", 7, 5)
        with self.raises("cuda: device 0, False T4, has compute capability 7.5, want 8.0 or newer"):
            _cuda.backend(0)

    def test_module_that_does_not_compile(self):
        backend = _cuda.backend(0)
        self.library.false_jit(b"ptxas: line 7: what is this?")
        with self.raises("cuda: module multiply: cuda: cuModuleLoadDataEx failed with CUDA_ERROR_INVALID_PTX (218): "):
            backend.multiply(4096, 4096, 4096, 10)
        self.library.false_jit(b"ptxas: line 7: what is this?")
        with self.raises(": ptxas: line 7: what is this?"):
            backend.multiply(4096, 4096, 4096, 10)
        backend.multiply(4096, 4096, 4096, 10)
        self.assertEqual(self.wrong(), [])

    # ---- Calls ----

    def test_every_call_fails(self):
        """Every call of every function that a session makes fails once. The error names the
        function and the code, no context stays current, and the session then succeeds."""

        def session():
            backend = _cuda.backend(0)
            backend.multiply(4096, 4096, 4096, 10)
            backend.token_stats(Stats(lse=4096), Rows(4096, 5, 10, 10, 0), Ids(), 1, 1)
            backend.whiten(4096, 4096, 4096, 10)
            memory = _cuda._Memory(0, _cuda_driver.device(0))  # that of the check of a kernel
            memory.get(np.ones(3), memory.put(np.ones(3)))
            _cuda.check()

        session()
        counts = {name: self.calls(name) for name in _cuda_driver._FUNCTIONS}
        for name, count in counts.items():
            if name.startswith("cuGetError"):
                continue
            self.assertGreater(count, 0, name)
            for nth in range(1, count + 1):
                with self.subTest(name=name, nth=nth):
                    self.start(self.built.read_bytes())
                    self.order(name, nth)
                    with self.raises(f"cuda: {name} failed with CUDA_ERROR_UNKNOWN (999): unknown error"):
                        session()
                    session()
                    self.assertEqual(self.wrong(), [])

    def test_error_texts(self):
        self.order("cuInit", 1, 12345)
        with self.raises("cuda: cuInit failed with an error (12345): the driver does not say what that is"):
            _cuda.backend(0)

    def test_kernel_that_fails(self):
        """An error of a kernel comes with the next call that the driver refuses."""
        backend = _cuda.backend(0)
        self.library.false_fault(700)
        backend.multiply(4096, 4096, 4096, 10)
        for _ in range(2):
            with self.raises("CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered"):
                backend.multiply(4096, 4096, 4096, 10)
            with self.raises("CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered"):
                _cuda.check()

    def test_the_context_of_others(self):
        backend = _cuda.backend(0)
        self.library.false_push(ctypes.c_void_p(0x5EE))
        backend.multiply(4096, 4096, 4096, 10)
        _cuda.check(0)
        self.assertEqual(self.library.false_pop(), 0x5EE)
        self.assertEqual(self.wrong(), [])

    def test_launch(self):
        backend = _cuda.backend(0)
        backend.multiply(4096, 8192, 12288, 3000)
        launch, count = self.last()
        self.assertEqual(count, 1)
        self.assertEqual((launch.name, launch.stream), (b"multiply", STREAM))
        self.assertEqual((list(launch.grid), list(launch.threads), launch.shared), ([3, 1, 1], [256, 1, 1], 0))
        self.assertEqual(list((ctypes.c_int64 * 4).from_buffer(launch.params)), [4096, 8192, 12288, 3000])
        backend.multiply(4096, 4096, 4096, 1 << 40)
        self.assertEqual(list(self.last()[0].grid), [132 * 2048 // 256, 1, 1])

    def test_teams(self):
        """Four warps take a row together where the device runs as many teams at a time."""
        backend, kernel = _cuda.backend(0), _cuda_driver.KERNELS["token_stats_bf16"]
        self.assertEqual(kernel.team, 4)
        teams = 132 * (227 * 1024 // (4 * kernel.shared))  # the false driver counts no registers
        for rows, times in ((1, 4), (teams, 4), (teams + 1, 1)):
            backend.token_stats(Stats(lse=4096), Rows(4096, rows, 10, 10, 1), Ids(), 1, 1)
            launch = self.last()[0]
            shape = (launch.grid[0], launch.threads[0], launch.shared)
            self.assertEqual(shape, (rows, times * kernel.threads, times * kernel.shared))

    def test_check(self):
        """It waits for work on any stream, copies the status, and waits for that."""
        backend, called = _cuda.backend(0), []
        backend._device.fill(backend._status, 1, ctypes.sizeof(_generated.Error), STREAM + 1)
        try_call = _cuda_driver._Library.try_call

        def record(library, name, *arguments):
            called.append(name)
            return try_call(library, name, *arguments)

        with mock.patch.object(_cuda_driver._Library, "try_call", record):
            with self.raises("cuda: the device reports error 16843009, which is not known"):
                _cuda.check()
        called = [name for name in called if not name.startswith("cuCtxP")]
        waited = ["cuCtxSynchronize", "cuMemcpyDtoHAsync_v2", "cuCtxSynchronize"]
        self.assertEqual(called, ["cuStreamIsCapturing", *waited, "cuMemsetD8Async"])
        _cuda.check()

    def test_kernel_that_does_not_fit(self):
        large = _cuda_driver.KERNELS["multiply"]._replace(shared=50 << 10)
        allowed = mock.patch.object(_cuda_driver, "_PLAIN_SHARED", 50 << 10)  # what the driver allows without a call
        with mock.patch.dict(_cuda_driver.KERNELS, multiply=large), allowed:
            with self.raises("cuda: kernel multiply does not fit on a multiprocessor of False H100"):
                _cuda.backend(0).multiply(4096, 4096, 4096, 10)

    def test_nothing_waits(self):
        """Calls wait for nothing once the device is open, and allocate by PyTorch alone."""
        every_function(_cuda.backend(0))
        waits = ("cuCtxSynchronize", "cuMemcpyDtoHAsync_v2", "cuModuleLoadDataEx", "cuModuleGetFunction")
        before = [self.calls(name) for name in waits]
        every_function(_cuda.backend(0))
        self.assertEqual([self.calls(name) for name in waits], before)
        self.assertEqual(self.wrong(), [])

    def test_every_kernel(self):
        """Together the functions launch every kernel, with as many bytes of parameters as it
        takes: the driver compares."""
        launched = set()
        launch = _cuda_driver.Device.launch

        def record(device, name, *arguments):
            launched.add(name)
            launch(device, name, *arguments)

        with mock.patch.object(_cuda_driver.Device, "launch", record):
            every_function(_cuda.backend(0))
        self.assertEqual(launched, set(_cuda_driver.KERNELS))
        self.assertEqual(self.wrong(), [])

    def test_prepare(self):
        """A function that was prepared finds all that it launches, and nothing more was made ready for it."""
        torch = false_torch()
        kinds = {"float32": 0, "bfloat16": 1, "float16": 2}
        with mock.patch.dict(sys.modules, torch=torch):
            for function in [*_generated.KERNELS_OF, *_generated.KERNELS_OF_ROWS]:
                for kind, number in kinds.items():
                    with self.subTest(function=function, kind=kind):
                        self.start(self.built.read_bytes())
                        _cuda.prepare(dtypes=[kind], functions=[function])
                        found, launched = self.calls("cuModuleGetFunction"), set()
                        launch = _cuda_driver.Device.launch

                        def record(device, name, *arguments):
                            launched.add(name)
                            launch(device, name, *arguments)

                        with mock.patch.object(_cuda_driver.Device, "launch", record):
                            every_function(_cuda.backend(0), function, number)
                        self.assertEqual(self.calls("cuModuleGetFunction"), found)
                        self.assertEqual(len(launched), found)
            _cuda.prepare(0)
            self.assertEqual(self.calls("cuModuleGetFunction"), len(_cuda_driver.KERNELS))
            with self.assertRaisesRegex(ValueError, '^functions is "show", want one of '):
                _cuda.prepare(functions=["show"])
            with self.assertRaisesRegex(ValueError, "^dtypes has float64, want torch.float32, torch.bfloat16 or torch.f"):
                _cuda.prepare(dtypes=["float64"])

    def test_capture(self):
        """While a stream is captured, what would break that is an error, and the driver is not asked for it. The default
        stream is of no use while another one is captured."""
        for stream in (STREAM, 0):
            with self.subTest(stream=stream):
                self.start(self.built.read_bytes())
                _cuda._stream = lambda ordinal: stream
                capture = self.library.false_capture
                capture.argtypes = [ctypes.c_void_p]
                capture(STREAM)
                refused = "^stream is being captured in a CUDA graph, want "
                with self.assertRaisesRegex(InputError, refused + "a call of reweight.prepare before that, because mem"):
                    _cuda.backend(0)
                self.assertEqual(self.memory, {})
                capture(None)
                backend = _cuda.backend(0)
                backend.multiply(4096, 4096, 4096, 10)
                capture(STREAM)
                names = ("cuModuleLoadDataEx", "cuCtxSynchronize", "cuMemcpyDtoHAsync_v2")
                before = [self.calls(name) for name in names]
                with self.assertRaisesRegex(InputError, refused + "a call of reweight.prepare before that, because the d"):
                    backend.whiten(4096, 4096, 4096, 10)
                with self.assertRaisesRegex(InputError, refused + "reweight.check after that, because it waits$"):
                    _cuda.check()
                backend.multiply(4096, 4096, 4096, 10)
                self.assertEqual([self.calls(name) for name in names], before)
                capture(None)
                backend.whiten(4096, 4096, 4096, 10)
                _cuda.check()
                self.assertEqual(self.wrong(), [])

    def test_threads(self):
        """Threads that begin at the same time open one device, and load each module once."""
        barrier, errors = threading.Barrier(16), []

        class Slow(_cuda_driver.Device):
            def __init__(self, *arguments):
                time.sleep(0.05)
                super().__init__(*arguments)

        def work():
            try:
                barrier.wait()
                _cuda_driver.device(0)
                for _ in range(20):
                    every_function(_cuda.backend(0))
            except BaseException as e:
                errors.append(e)

        threads = [threading.Thread(target=work) for _ in range(16)]
        with mock.patch.object(_cuda_driver, "Device", Slow):
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        self.assertEqual(errors, [])
        self.assertEqual(self.calls("cuDevicePrimaryCtxRetain"), 1)
        self.assertEqual(self.calls("cuModuleLoadDataEx"), len({k.module for k in _cuda_driver.KERNELS.values()}))
        self.assertEqual(self.calls("cuModuleGetFunction"), len(_cuda_driver.KERNELS))
        self.assertEqual(self.calls("cuCtxPushCurrent_v2"), self.calls("cuCtxPopCurrent_v2"))
        self.assertEqual(self.wrong(), [])

    def test_two_devices(self):
        self.library.false_devices(2)
        self.library.false_device(1, b"False A100", 8, 0)
        for ordinal in (0, 1, 0, 1):
            every_function(_cuda.backend(ordinal))
        self.assertEqual(self.calls("cuDevicePrimaryCtxRetain"), 2)
        self.assertEqual(self.calls("cuModuleLoadDataEx"), 2 * len({k.module for k in _cuda_driver.KERNELS.values()}))
        _cuda.check()
        self.assertEqual(self.wrong(), [])


P = 1 << 20  # the address of an array that no kernel touches


def false_torch():
    """Returns what stands for PyTorch where only a dtype or a device is named."""
    torch = types.ModuleType("torch")
    torch.float32, torch.bfloat16, torch.float16 = "float32", "bfloat16", "float16"
    torch.cuda = types.SimpleNamespace(current_device=lambda: 0)
    return torch


def every_function(backend, only=None, kind=None):
    """Calls every function, so that every kernel is launched, or only one, on rows of one dtype."""
    b = Batch(5000, 100, *[P] * 13)
    calls = []

    def add(name, *arguments):
        if only in (None, name):
            calls.append((name, arguments))

    for dtype in range(3) if kind is None else [kind]:
        for temperature in (1, 0.7):
            rows = Rows(P, 100, 10, 10, dtype)
            for squares in (0, P):
                add("token_stats", Stats(P, P, P, squares), rows, Ids(P, 1), temperature, 1)
            if dtype < 2:
                add("row_gradient", rows, rows, Ids(P, 0), P, P, P, P, P, RowGradientOptions(temperature, 0), 1)
    add("multiply", P, P, P, 1000)
    add("masked_moments", P, P, P, 1000, 6, 0)
    for signal in range(4):
        add("actfocus", 0, P, b, ActFocusOptions(0.1, 0.5, 1e-8, signal))
    add("actfocus_weights", P, P, P, 1000, 0, 1, ActFocusOptions(0.1, 0.5, 0, 0))
    add("whiten", P, P, P, 1000)
    add("span_means", P, 10, P, 100, P)
    add("min_max", P, P, 10, P, 100, P)
    add("exp_scale", P, P, 100, 1, 2)
    add("aem", P, b, AEMOptions(1, 0.1, 0))
    add("grpo", P, b, GRPOOptions(1e-6, 1))
    add("gae", P, P, P, b, GAEOptions(1, 1))
    add("surrogate", P, P, P, P, P, 0, P, 1000, 1, LossOptions(0.2, 0.28, 3, 0, 0))
    result = _cuda._allocate(backend._ordinal, 256).data_ptr()  # of which a part is filled
    for aggregation in range(4):
        add("loss", result, P, P, b, LossOptions(0.2, 0.28, 3, 0, aggregation))
    for name, arguments in calls:
        getattr(backend, name)(*arguments)


if __name__ == "__main__":
    unittest.main()
