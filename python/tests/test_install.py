"""The package beside the one that is called reweight on PyPI."""

import shutil
import tempfile
from pathlib import Path

from support import TestCase, run_python

import reweight


class TestOtherPackage(TestCase):
    """The other package installs reweight/__init__.py and the folder reweight/logic."""

    def test_both(self):
        for theirs in False, True:  # whose __init__.py is left
            with self.subTest(theirs=theirs), tempfile.TemporaryDirectory() as folder:
                package = Path(folder, "reweight")
                shutil.copytree(Path(reweight.__file__).parent, package)
                program = f"import sys; sys.path.insert(0, {folder!r}); import reweight.batch; print(reweight.__file__)"
                self.assertEqual(run_python(program).stdout.strip(), str(package / "__init__.py"))
                (package / "logic").mkdir()
                (package / "logic/__init__.py").touch()
                if theirs:
                    (package / "__init__.py").write_text("from .logic import *\n")
                program = program.replace("import reweight.batch;", "\ntry: import reweight.batch\nexcept ImportError as e: print(e)\n")
                said = run_python(program.rpartition("print(reweight")[0]).stdout
                self.assertIn(f"reweight: {package} has files of another package, which PyPI calls reweight", said)
