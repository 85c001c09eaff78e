"""run.py sees every way in which the tests of a module fail, and counts them."""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

MODULES = {
    "test_passes": "def test_it(self): print('only if it fails')\n    @unittest.skip('')\n    def test_more(self): 0",
    "test_skipped": "raise unittest.SkipTest('what it needs is not installed')",
    "test_fails": "def test_it(self): self.fail('what was wrong')",
    "test_crashes": "def test_it(self): __import__('ctypes').string_at(0)",
    "test_ends": "def test_it(self): __import__('os')._exit(0)",
    "test_lacks": "import no_such_module",
}


class Run(unittest.TestCase):
    def run_modules(self, *names):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(Path(__file__).with_name("run.py"), folder)
            for name in names:
                text = f"import unittest\n\nclass It(unittest.TestCase):\n    {MODULES[name]}\n"
                Path(folder, name + ".py").write_text(text)
            done = subprocess.run([sys.executable, Path(folder, "run.py")], capture_output=True, text=True, timeout=100)
            return done.returncode, done.stdout, done.stderr

    def test_passes(self):
        status, out, err = self.run_modules("test_passes", "test_skipped")
        self.assertEqual((status, err), (0, ""))
        # Python 3.12.1 does not count what is skipped.
        self.assertRegex(out, r"\nRan [13] tests of 2 modules on \d+ CPUs in \d+ s: 2 skipped\n$")
        self.assertNotIn("only if", out)

    def test_fails(self):
        status, out, err = self.run_modules(*MODULES)
        self.assertEqual((status, err), (1, "failed: test_crashes, test_ends, test_fails, test_lacks\n"))
        self.assertIn("AssertionError: what was wrong\n", out)
        self.assertIn("Fatal Python error: Segmentation fault", out)
        self.assertIn("No module named 'no_such_module'", out)


if __name__ == "__main__":
    unittest.main()
