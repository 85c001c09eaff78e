"""The examples of README.md and docs/python.md print what the pages say."""

import contextlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest import mock

from support import ROOT, TESTDATA, environment, needs_go, program, run_python

import reweight

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

    @unittest.skipIf(importlib.util.find_spec("trl") is None, "TRL is not installed")
    def test_readme_trainer(self):
        """The lines for TRL, which change it in their process, give every trainer the credit."""
        ((_, code, _),) = [example for example in examples(README, "python") if "adapters" in example[1]]
        look = "import trl\nbefore = trl.GRPOTrainer.__init__\n{}\nprint(trl.GRPOTrainer.__init__ is before)"
        done = run_python(look.format(code))
        self.assertEqual((done.returncode, done.stdout), (0, "False\n"), done.stderr)

    def test_python(self):
        self.assertIn("stats", self.run_python(PAGE))

    @unittest.skipIf(torch is None, "PyTorch is not installed")
    def test_another_trainer(self):
        """The example for Trinity-RFT, on a stand-in for its class and its registry."""
        ((_, code, _),) = [example for example in examples(ROOT / "docs" / "trainers.md", "python") if "trinity" in example[1]]

        class GRPOGroupedAdvantage:
            def calculate_group_advantage(self, group_id, exps, precomputed_std=None):
                for e, score in zip(exps, (1.0, -1.0)):
                    e.advantages = score * e.action_mask
                return exps, {"reward_mean": 0.5}

        found, path = {}, "trinity.algorithm.advantage_fn"
        registry = SimpleNamespace(register_module=lambda name: lambda kind: found.setdefault(name, kind))
        modules = {name: ModuleType(name) for name in ("trinity", "trinity.algorithm", path, path + ".grpo_advantage")}
        modules[path].ADVANTAGE_FN, modules[path + ".grpo_advantage"].GRPOGroupedAdvantage = registry, GRPOGroupedAdvantage
        with mock.patch.dict(sys.modules, modules):
            exec(compile(code, "docs/trainers.md", "exec"), {})
        tokens = torch.tensor([9, 27, 5, 5, 28, 9, 9])
        made = [SimpleNamespace(tokens=tokens, prompt_length=1, action_mask=torch.ones(6), logprobs=-torch.ones(6)) for _ in "ab"]
        exps, metrics = found["credit"]().calculate_group_advantage("a task", made, precomputed_std=None)
        # Four of six tokens are an action with its tags, of the weight 1; the others have 0.3.
        want = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.3, 0.3]) * 6 / 4.6
        for e, score in zip(exps, (1, -1)):
            torch.testing.assert_close(e.advantages, score * want)
        self.assertEqual((metrics["reward_mean"], metrics["credit/actions"]), (0.5, 8))

    def run_python(self, page):
        """In one namespace, which is returned, from top to bottom."""
        names = {}
        for line, code, printed in examples(page, "python"):
            if "adapters" in code or torch is None and page == PAGE and ("torch" in code or "batch" in code):
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


class Commands(unittest.TestCase):
    """Every command that the README prints runs as it stands, with this clone's last commit in the place of
    GitHub's repository. That of pip has a test of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        url = "https://github.com/seed621a2839/reweight"
        self.environment = environment(
            PATH=os.pathsep.join([str(self.folder / "bin"), os.environ["PATH"]]),
            GOBIN=str(self.folder / "bin"), GOPRIVATE="github.com/seed621a2839", GOFLAGS="",
            GIT_CONFIG_COUNT="3", GIT_CONFIG_KEY_0=f"url.file://{ROOT}.insteadOf", GIT_CONFIG_VALUE_0=url,
            GIT_CONFIG_KEY_1="user.name", GIT_CONFIG_VALUE_1="a",
            GIT_CONFIG_KEY_2="user.email", GIT_CONFIG_VALUE_2="a@b.c",
        )  # fmt: skip
        self.environment.pop("PYTHONHOME", None)
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "python").symlink_to(sys.executable)

    def sh(self, command, wanted=(0,)):
        """Runs a line in the folder, and returns what it prints."""
        options = {"cwd": self.folder, "env": self.environment, "capture_output": True, "text": True}
        done = subprocess.run(["sh", "-ec", command], **options)
        self.assertIn(done.returncode, wanted, f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout

    def commands(self):
        text = README.read_text()
        lines = "".join(code for _, code, _ in examples(README, "sh")).splitlines()
        prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        return lines + re.findall(r"`((?:pip|python|go|uv|git|reweight|bench|benchgate) [^`]*)`", prose)

    @needs_go
    @unittest.skipUnless((ROOT / ".git").exists(), "this is no clone")
    def test_commands(self):
        left = self.commands()

        def run(start, wanted=(0,)):
            (command,) = [line for line in left if line.startswith(start)]
            left.remove(command)
            return self.sh(command, wanted)

        left.remove("pip install git+https://github.com/seed621a2839/reweight")
        self.assertIn("--model", run("python -m reweight audit"))
        self.assertTrue(run("python -m reweight").startswith("ok: "))

        (self.folder / "bin" / "reweight").symlink_to(Path(program().name, "reweight"))
        self.sh(f"reweight convert {TESTDATA / 'frozenlake-small.safetensors'} rollouts.jsonl")
        self.assertIn("actfocus+aem ", run("reweight rollouts.jsonl"))
        self.assertIn("<answer>", run("reweight show "))
        run("reweight convert ")
        self.assertTrue((self.folder / "rollouts.safetensors").exists())

        self.sh("go mod init example.org/user")
        run("go get ")
        self.assertIn("github.com/seed621a2839/reweight v", (self.folder / "go.mod").read_text())
        run("go install ")
        self.assertIn("benchgate v", self.sh("benchgate -version"))
        code = 'package user\n\nimport "testing"\n\nfunc BenchmarkAdd(b *testing.B) {\n\tfor range b.N {\n\t}\n}\n'
        (self.folder / "user_test.go").write_text(code)
        self.sh("git init -q -b main . && git add go.mod user_test.go && git commit -q -m x")
        self.sh("git update-ref refs/remotes/origin/main HEAD")
        self.assertIn("BenchmarkAdd", run("benchgate ", (0, 3)))
        self.assertEqual(left, [], "no test runs these")


if __name__ == "__main__":
    unittest.main()
