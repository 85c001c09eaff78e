"""examples/step/step.py prints what the program in Go beside it prints, whose test has the same output.txt."""

import subprocess
import sys
import unittest

from support import ROOT

STEP = ROOT / "examples" / "step"


class Step(unittest.TestCase):
    def test_output(self):
        arguments = [sys.executable, STEP / "step.py", STEP / "responses.jsonl"]
        done = subprocess.run(arguments, capture_output=True, encoding="utf-8")
        self.assertEqual((done.stdout, done.stderr), ((STEP / "output.txt").read_text(encoding="utf-8"), ""))


if __name__ == "__main__":
    unittest.main()
