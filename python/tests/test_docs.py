"""The examples of docs/python.md print what the page says."""

import contextlib
import io
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import reweight

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "python.md"

try:
    import torch
except ImportError:
    torch = None


def examples(language):
    """The blocks of code of a language and what stands indented after each."""
    text = PAGE.read_text()
    for block in re.finditer(rf"^```{language}\n(.*?)^```\n\n?((?:    [^\n]*\n)*)", text, re.M | re.S):
        printed = "".join(line[4:] + "\n" for line in block[2].splitlines())
        yield text[: block.start()].count("\n") + 1, block[1], printed


class Page(unittest.TestCase):
    maxDiff = None

    def test_python(self):
        """In one namespace, from top to bottom."""
        names = {}
        for line, code, printed in examples("python"):
            if torch is None and ("torch" in code or "batch" in code):
                continue
            with self.subTest(f"{PAGE.name}:{line}"):
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec(compile("\n" * line + code, str(PAGE), "exec"), names)
                self.assertEqual(out.getvalue(), printed)
        self.assertIn("stats", names)

    def test_c(self):
        compiler = shutil.which("cc")
        if compiler is None:
            self.skipTest("there is no C compiler")
        library = os.environ.get("REWEIGHT_LIBRARY") or Path(reweight.__file__).with_name("libreweight.so")
        found = list(examples("c"))
        self.assertEqual(len(found), 1)
        for line, code, printed in found:
            with tempfile.TemporaryDirectory() as folder:
                source, program = Path(folder, "example.c"), Path(folder, "example")
                source.write_text(code)
                rpath = f"-Wl,-rpath,{Path(library).parent}"
                subprocess.run([compiler, f"-I{ROOT / 'native'}", source, library, rpath, "-o", program], check=True)
                got = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True).stdout
            self.assertEqual(got, printed, f"{PAGE.name}:{line}")


if __name__ == "__main__":
    unittest.main()
