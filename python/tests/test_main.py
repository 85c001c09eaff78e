"""python -m reweight, the choice of the instruction set, and the types."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np
from support import ROOT, TestCase, environment, needs_torch, run_python, torch

import reweight
from reweight import _library, _parity

MAIN = "import runpy; runpy.run_module('reweight', run_name='__main__')"


class Main(TestCase):
    def test_verdict(self):
        done = run_python(MAIN)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = done.stdout.splitlines()
        bits = "portable, .* give the same bits," if len(reweight.available_isas()) > 1 else "portable is"
        self.assertRegex(lines[0], rf"^ok: {bits} within 1e-05 of float64 \([\d,]{{6,}} comparisons in ")
        rest = {line.split()[0]: line for line in lines[1:]}
        self.assertEqual(list(rest), ["machine", "CPU", "kernels", "GPU", "reweight", "Python"])
        self.assertIn(reweight.best_isa(), rest["kernels"])
        self.assertIn(reweight.__version__, rest["reweight"])
        self.assertIn(np.__version__, rest["Python"])
        self.assertIn("no PyTorch" if torch is None else "PyTorch ", rest["Python"])

    def test_arguments(self):
        def run(*arguments):
            done = run_python(f"import sys; sys.argv += {arguments}; " + MAIN)
            return done.returncode, done.stdout, done.stderr

        self.assertEqual(run("--version"), (0, f"reweight {reweight.__version__}\n", ""))
        for flag in ("-h", "--help"):
            status, text, errors = run(flag)
            self.assertEqual((status, errors), (0, ""))
            self.assertIn("python -m reweight --version", text)
        for arguments, shown in ((["--fast"], "--fast"), (["--version", "\x1b[1m"], "--version '\x1b[1m'")):
            problem = f"python -m reweight takes audit, runs, check-trainer, --help or --version alone, not {shown!r}\n"
            self.assertEqual(run(*arguments), (2, "", problem))

    def test_nobody_reads(self):
        """A pipe that is closed, such as that of head, and a disk that is full are no traceback, and no verdict either."""
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "log.csv")
            log.write_text("step,reward\n1,0.5\n")
            for arguments in ["--help"], ["runs", str(log), "--out", str(Path(folder, "runs.html"))], []:
                with self.subTest(arguments):
                    code = f"import sys; sys.argv += {arguments}; " + MAIN
                    reads, writes = os.pipe()
                    os.close(reads)
                    command = [sys.executable, "-c", code]
                    done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, text=True, env=environment())
                    os.close(writes)
                    self.assertEqual((done.returncode, done.stderr), (141, ""))
                    with open("/dev/full", "w") as full:
                        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment())
                    self.assertEqual(done.returncode, 2)
                    self.assertRegex(done.stderr, r"^python -m reweight( runs)?: .*No space left on device\n$")

    def test_torch_is_not_imported(self):
        done = run_python("import sys, reweight, reweight._parity; print('torch' in sys.modules)")
        self.assertEqual(done.stdout, "False\n", done.stderr)

    def test_what_differs_is_named(self):
        """A bit that differs, and a result that is not the formula's."""
        compute = _parity._compute

        def wrong(isa, *args):
            computed = compute(isa, *args)
            if isa == reweight.best_isa():
                computed["aem"].view(np.uint32)[7] ^= 1
            computed["grpo"][20] += 1e-3
            return computed

        with mock.patch.object(_parity, "_compute", wrong):
            numbers, problems = _parity.check()
        self.assertGreater(numbers, 100_000)
        best, T = reweight.best_isa(), len(_parity._random_batch().role)
        want = [f"1 of {T} numbers of grpo by {best} differ from float64"]
        if best != "portable":
            want.insert(0, f"1 of {T} numbers of aem differ between portable and {best}")
        self.assertEqual(problems, want)

    def test_exit_code(self):
        code = "import sys, reweight.__main__ as m; m.check = lambda: (1, ['one is wrong']); sys.exit(m.main())"
        done = run_python(code)
        self.assertEqual(done.returncode, 1)
        want = ["WRONG: do not use the library on this machine", "  one is wrong"]
        self.assertEqual(done.stdout.splitlines()[:2], want)


class ISA(TestCase):
    def test_names(self):
        isas = reweight.available_isas()
        self.assertEqual(isas[0], "portable")
        self.assertEqual(reweight.best_isa(), isas[-1])

    def test_environment(self):
        code = "import reweight; print(*reweight.available_isas())"
        for i, isa in enumerate(reweight.available_isas()):
            done = run_python(code, env={"REWEIGHT_ISA": isa})
            self.assertEqual(done.stdout.split(), reweight.available_isas()[: i + 1], done.stderr)

    def test_wrong_name(self):
        """Importing works; every call on the CPU says what is wrong."""
        want = f'REWEIGHT_ISA is "mmx", want one of [{" ".join(_library._available(""))}]'
        code = """
import numpy as np, reweight
for call in (
    reweight.available_isas,
    reweight.best_isa,
    lambda: reweight.token_stats(np.zeros((1, 3), np.float32)),
    lambda: reweight.multiply(np.zeros(3, np.float32), np.zeros(3, np.float32)),
) * 2:
    try:
        call()
    except reweight.InputError as e:
        print(e)
"""
        done = run_python(code, env={"REWEIGHT_ISA": "mmx"})
        self.assertEqual(done.stdout.splitlines(), [want] * 8, done.stderr)
        done = run_python(MAIN, env={"REWEIGHT_ISA": "mmx"})
        self.assertEqual((done.returncode, done.stdout, done.stderr), (2, "", f"not checked: {want}\n"))


class Library(TestCase):
    def test_not_found(self):
        done = run_python("import reweight", env={"REWEIGHT_LIBRARY": "/nonexistent/libreweight.so"})
        self.assertIn("ImportError: reweight: cannot open its library: /nonexistent/libreweight.so:", done.stderr)

    @unittest.skipIf(shutil.which("cc") is None, "no C compiler is installed")
    def test_other_libraries(self):
        for source, wanted in (
            (b'const char *reweight_version(void) { return "9.8.7"; }', f"version 9.8.7, want {reweight.__version__}"),
            (b"int other;", f"another library, want libreweight.so of version {reweight.__version__}"),
        ):
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "other.so"
                subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", file, "-"], input=source, check=True)
                done = run_python("import reweight", env={"REWEIGHT_LIBRARY": str(file)})
            self.assertIn(f"ImportError: reweight: {file} is {wanted}", done.stderr)

    @needs_torch
    def test_older_pytorch(self):
        done = run_python("import torch; torch.__version__ = '2.5.1+cpu'; import reweight.torch")
        self.assertEqual(
            done.stderr.splitlines()[-1],
            "ImportError: reweight.torch needs PyTorch 2.6 or newer, and this is 2.5.1+cpu",
        )

    def test_without_pytorch(self):
        program = """
import sys
sys.modules["torch"] = None
import reweight, reweight.rollout, reweight.adapters, reweight.distributed, numpy as np
print(reweight.token_stats(np.zeros((1, 2), np.float32), np.array([1])).logprobs)
import reweight.torch
"""
        done = run_python(program)
        self.assertEqual(done.stdout, "[-0.6931472]\n")
        self.assertIn("ModuleNotFoundError: import of torch halted", done.stderr)


class Types(TestCase):
    @needs_torch
    @unittest.skipIf(importlib.util.find_spec("mypy") is None, "mypy is not installed")
    def test_mypy(self):
        package = ROOT / "python" / "reweight"
        with tempfile.TemporaryDirectory() as cache:
            done = subprocess.run(
                [sys.executable, "-m", "mypy", "--strict", "--cache-dir", cache, package],
                cwd=package.parent,
                env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MYPYPATH")},
                capture_output=True,
                text=True,
            )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
