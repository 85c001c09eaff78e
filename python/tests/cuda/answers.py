"""The check of a kernel before its first use. The first device of the false driver is right; on the second one,
instructions of these kernels, and of those behind them in their files, are other ones."""

import os
import sys
import types
import unittest
from unittest import mock

PLANTED = {
    "token_stats_bf16": ("0f3F317215", "0f3F327215"),  # a coefficient of 2^y
    "row_gradient_f32": ("0f3F317215", "0f3F327215"),
    "multiply": ("mul.rn.f32", "add.rn.f32"),
    "masked_moments": ("add.rn.f64", "sub.rn.f64"),
    "span_means": ("add.rn.f64", "sub.rn.f64"),
    "loss_tokens": ("add.rn.f32", "sub.rn.f32"),
    "gae": ("add.rn.f64", "sub.rn.f64"),
}
os.environ["REWEIGHT_PTX_PLANT"] = ";".join(",".join((name, *swap)) for name, swap in PLANTED.items())
os.environ["REWEIGHT_GPU"] = ""

import false_cuda
import numpy as np
import reweight.__main__ as main
from comparing import Memory
from reweight import InputError, _answers, _cuda, _cuda_driver


class Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.driver = false_cuda.start()
        _cuda._allocate = lambda ordinal, size: Memory(cls.driver, ordinal, size)
        _cuda._stream = lambda ordinal: false_cuda.STREAM

    def test_right(self):
        """All kernels of a right device pass, each by a call that launches it."""
        gpu, launched = _cuda.CUDA(0, True), set()
        launch = _cuda_driver.Device.launch

        def note(device, name, *arguments):
            launched.add(name)
            launch(device, name, *arguments)

        with mock.patch.object(_cuda_driver.Device, "launch", note):
            for name in _cuda_driver.KERNELS:
                gpu.prepare([name])
        self.assertEqual(launched, set(_cuda_driver.KERNELS))
        launched.clear()
        with mock.patch.object(_cuda_driver.Device, "launch", note):
            gpu.prepare(list(_cuda_driver.KERNELS))
        self.assertEqual(launched, set())

    def test_planted(self):
        """A wrong kernel is an error of prepare and of each call, which names all that its reader needs."""
        gpu = _cuda.backend(1)
        for name in PLANTED:
            for _ in range(2):
                with self.subTest(name), self.assertRaises(RuntimeError) as raised:
                    gpu.prepare([name])
                said = str(raised.exception)
                self.assertRegex(
                    said,
                    rf"^cuda: kernel .*{name}.* is wrong on interpreter with its driver for CUDA 11\.0: \d+ of \d+ numbers "
                    r"of .* differ from the CPU's, element \d+ is .*, want .*\. With the environment variable "
                    "REWEIGHT_GPU=off no GPU is used; with REWEIGHT_GPU=unchecked it is used without this check$",
                )
        x = [self.driver.upload(np.ones(4, np.float32), 1) for _ in range(3)]
        with self.assertRaisesRegex(RuntimeError, "^cuda: kernel multiply is wrong on interpreter"):
            gpu.multiply(*[y.pointer for y in x], 4)
        gpu.prepare(["whiten_spread", "whiten"])  # which are right on this device
        with mock.patch.dict(os.environ, REWEIGHT_GPU="unchecked"), mock.patch.dict(_cuda._backends, clear=True):
            _cuda.backend(1).multiply(*[y.pointer for y in x], 4)
        gpu.check()

    def test_variable(self):
        with mock.patch.dict(os.environ, REWEIGHT_GPU="off"):
            with self.assertRaisesRegex(RuntimeError, "^cuda: REWEIGHT_GPU is off"):
                _cuda_driver.device(0)
        with mock.patch.dict(os.environ, REWEIGHT_GPU="on"):
            with self.assertRaisesRegex(InputError, '^REWEIGHT_GPU is "on", want off, unchecked or nothing$'):
                _cuda_driver.device(0)

    def test_main(self):
        """python -m reweight says whether the GPU is right, and why it was not checked."""
        cuda = types.SimpleNamespace(is_available=lambda: True)
        torch = types.SimpleNamespace(cuda=cuda, float32="f32", bfloat16="bf16", float16="f16")
        name = "interpreter, driver for CUDA 11.0: "
        with mock.patch.dict(sys.modules, torch=torch):
            self.assertEqual(
                main._gpu(), (name + "right, every kernel gives the CPU's bits on hard rows and tokens", [])
            )
            with mock.patch.dict(_cuda._backends, {0: _cuda.backend(1)}):
                said, problems = main._gpu()
                self.assertEqual(said, name + "WRONG")
                self.assertRegex("; ".join(problems), "^cuda: kernel .* is wrong on interpreter")
            cuda.is_available = lambda: False
            self.assertEqual(main._gpu(), (name + "not checked, because this PyTorch has no CUDA", []))
        for variable, want in (
            ("off", "none is used: cuda: REWEIGHT_GPU is off: give tensors on the CPU"),
            ("unchecked", name + "not checked, because REWEIGHT_GPU is unchecked"),
        ):
            with mock.patch.dict(os.environ, REWEIGHT_GPU=variable):
                self.assertEqual(main._gpu(), (want, []))

    def test_groups(self):
        """Every kernel is checked but the one of which nothing comes alone."""
        without = [name for name in _cuda_driver.KERNELS if not _answers.group(name)]
        self.assertEqual(without, ["check_layout"])


if __name__ == "__main__":
    unittest.main()
