"""The examples of README.md and docs/python.md print what the pages say."""

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
README, PAGE = ROOT / "README.md", ROOT / "docs" / "python.md"

try:
    import torch
except ImportError:
    torch = None


def examples(page, language):
    """The blocks of code of a language and what stands indented after each."""
    text = page.read_text()
    for block in re.finditer(rf"^```{language}\n(.*?)^```\n\n?((?:    [^\n]*\n)*)", text, re.M | re.S):
        printed = "".join(line[4:] + "\n" for line in block[2].splitlines())
        yield text[: block.start()].count("\n") + 1, block[1], printed


class Page(unittest.TestCase):
    maxDiff = None

    def test_readme(self):
        self.assertIn("batch", self.run_python(README))

    def test_python(self):
        self.assertIn("stats", self.run_python(PAGE))

    def run_python(self, page):
        """In one namespace, which is returned, from top to bottom."""
        names = {}
        for line, code, printed in examples(page, "python"):
            if torch is None and page == PAGE and ("torch" in code or "batch" in code):
                continue
            with self.subTest(f"{page.name}:{line}"):
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec(compile("\n" * line + code, str(page), "exec"), names)
                self.assertEqual(out.getvalue(), printed)
        return names

    def test_c(self):
        compiler = shutil.which("cc")
        if compiler is None:
            self.skipTest("there is no C compiler")
        library = os.environ.get("REWEIGHT_LIBRARY") or Path(reweight.__file__).with_name("libreweight.so")
        found = list(examples(PAGE, "c"))
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
