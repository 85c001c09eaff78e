"""The GPU's half, on machines without a GPU. The tests are in the folder cuda. Each file of
it runs in a process of its own, because what stands for a GPU there has a runtime of Go,
which must not be in the process of the other tests."""

import subprocess
import sys
import unittest
from pathlib import Path

from support import needs_torch

FOLDER = Path(__file__).with_name("cuda")


class TestCUDA(unittest.TestCase):
    def run_file(self, name):
        command = [sys.executable, "-m", "unittest", "-v", name]
        ran = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True)
        said = ran.stdout + ran.stderr
        if ran.returncode:
            self.fail(f"{name}:\n{said}")
        skipped = [line for line in said.splitlines() if "skipped" in line]
        if skipped:
            self.skipTest("; ".join(skipped))

    def test_driver(self):
        self.run_file("driver")

    def test_answers(self):
        self.run_file("answers")

    def test_bits(self):
        self.run_file("bits")

    def test_errors(self):
        self.run_file("errors")

    @needs_torch
    def test_tensors(self):
        self.run_file("tensors")


if __name__ == "__main__":
    unittest.main()
