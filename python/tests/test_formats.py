"""docs/formats.md and docs/engines.md: their commands run, their flags exist, and their lines for trainers write
files that the command reads."""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import adapter_rollouts
import numpy as np
from adapter_rollouts import padded, prompts, rows
from support import ROOT, TESTDATA, TestCase, needs_torch, read_safetensors, torch
from test_distributed import write_shards
from test_docs import examples

PAGES = [ROOT / "docs" / name for name in ("formats.md", "engines.md")]


def blocks(language):
    return [code for page in PAGES for _, code, _ in examples(page, language)]


def block(language, word):
    """Returns the one block of code with this word in it."""
    (code,) = [code for code in blocks(language) if word in code]
    return code


@unittest.skipIf(shutil.which("go") is None, "Go is not installed")
class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        subprocess.run(["go", "build", "-o", cls.folder / "bin" / "reweight", "./cmd/reweight"], cwd=ROOT, check=True)

    def setUp(self):
        """A folder with the files that the page speaks of."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        os.symlink(TESTDATA, "testdata")
        exec(block("python", "np.savez"), {})

    def run_shell(self, code):
        """Returns what is printed."""
        environment = dict(os.environ, PATH=f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        run = subprocess.run(["sh", "-ec", code], env=environment, capture_output=True, text=True, timeout=300)
        self.assertEqual(run.returncode, 0, f"{code}\n{run.stderr}")
        return run.stdout

    def test_commands(self):
        os.mkdir("day")
        write_shards("day", 3)
        for code in blocks("sh"):
            with self.subTest(code):
                self.run_shell(code)
        for name in Path("day").glob("*.safetensors"):
            one, other = read_safetensors(f"scored/{name.name}.safetensors"), read_safetensors(f"scores/{name.name}.safetensors")
            self.assertEqual(list(one[0]), ["seq_offsets", "weights", "advantages"])
            for array in one[0]:
                self.assertEqual(one[0][array].tobytes(), other[0][array].tobytes(), array)

    def test_lines(self):
        """The npz file and the lines of the page are the same rollouts."""
        Path("rollouts.jsonl").write_text(block("json", "maze 3"))
        arrays = []
        for name in ("rollouts.npz", "rollouts.jsonl"):
            self.run_shell(f"reweight convert -action-open 30 -action-close 31 {name} {name}.safetensors")
            arrays.append(read_safetensors(f"{name}.safetensors")[0])
        npz, lines = arrays
        self.assertEqual(list(npz), list(lines))
        for name in npz:
            self.assertEqual(npz[name].tobytes(), lines[name].tobytes(), name)
        self.assertEqual(npz["role"].tolist(), [0, 1, 2, 1, 1] * 2)

    def test_nemo_line(self):
        """The page's line of NeMo RL is read, without its padding."""
        Path("nemo.jsonl").write_text(block("json", "token_loss_mask"))
        self.run_shell("reweight convert -action-open 30 -action-close 31 nemo.jsonl nemo.safetensors")
        arrays = read_safetensors("nemo.safetensors")[0]
        self.assertEqual(arrays["role"].tolist(), [0, 1, 2, 1, 1])
        self.assertEqual(arrays["rollout_logprobs"].tolist(), np.array([0, -0.1, -0.5, -0.2, -0.1], np.float32).tolist())

    def test_flags(self):
        """Every flag that the pages name is there."""
        helps = "".join(self.run_shell(f"reweight {command} -h") for command in ("convert", "", "score partial", "score apply"))
        flags = set(re.findall(r"`(-[a-z][-a-z]*)[ `]", "".join(page.read_text() for page in PAGES)))
        self.assertIn("-surprisal-entropy", flags)
        for flag in flags:
            self.assertRegex(helps, rf"(?m)^  {flag}\b")


def recorded(lines):
    """Returns the arrays of lines, one after another."""
    records = [json.loads(line) for line in lines]
    return {name: np.concatenate([np.atleast_1d(r[name]) for r in records]) for name in records[0]}


@needs_torch
class Hooks(TestCase):
    """The lines of the page with stand-ins for trainers, which hold the rollouts of testdata."""

    @classmethod
    def setUpClass(cls):
        cls.rollouts = adapter_rollouts.load()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)

    def modules(self, **contents):
        """Makes modules of these names, where __ stands for a dot, as if they were installed."""
        made = {}
        for name, members in contents.items():
            parts = name.split("__")
            for n in range(1, len(parts) + 1):
                made.setdefault(".".join(parts[:n]), types.ModuleType(".".join(parts[:n])))
            vars(made[".".join(parts)]).update(members)
        patch = mock.patch.dict(sys.modules, made)
        patch.start()
        self.addCleanup(patch.stop)

    def lines(self, pattern="*.jsonl"):
        (path,) = Path().glob(pattern)
        return path.read_text().splitlines()

    def tensors(self, x, drop=None):
        return [torch.from_numpy(row[n:].copy()) for row, n in zip(rows(self.rollouts, x), drop or [0] * len(x))]

    def test_verl(self):
        r, begins = self.rollouts, prompts(self.rollouts)
        only_padding = [torch.zeros(1)]
        stored = {
            "responses": self.tensors(r.token_ids, begins) + [torch.zeros(1, dtype=torch.int64)],
            "response_mask": self.tensors(r.mask.astype(np.int64), begins) + only_padding,
            "old_log_probs": self.tensors(r.old_logprobs, begins) + only_padding,
            "entropy": self.tensors(r.entropy, begins) + only_padding,
            "rm_scores": [
                torch.tensor([0.0] * (len(row) - 1) + [float(reward)])
                for row, reward in zip(self.tensors(r.token_ids, begins), r.rewards)
            ]
            + only_padding,
        }

        def kv_batch_get(keys, partition_id, select_fields):
            self.assertEqual((keys, partition_id), (["k"], "train"))
            uid = np.array([f"prompt-{g}" for g in r.group_ids] + ["prompt-0"])
            return {"uid": uid, **{name: SimpleNamespace(unbind=lambda name=name: stored[name]) for name in stored}}

        class PPOTrainer:
            global_steps = 3

            def _compute_advantage(self, batch, metrics):
                return "computed"

        self.modules(verl__trainer__ppo__v1__trainer_base={"PPOTrainer": PPOTrainer}, transfer_queue={"kv_batch_get": kv_batch_get})
        exec(block("python", "verl.trainer"), {})
        batch = SimpleNamespace(keys=["k"], partition_id="train")
        self.assertEqual(PPOTrainer()._compute_advantage(batch, {}), "computed")
        got = recorded(self.lines("rollouts-3.jsonl"))
        self.assertEqual(got["group_id"].tolist(), [f"prompt-{g}" for g in r.group_ids])
        self.assertBits(got["reward"].astype(np.float32), r.rewards)
        self.assertResponses(got, begins, "entropy")

    def assertResponses(self, got, begins, *more):
        """Wants the tokens from these places on."""
        r = self.rollouts
        want = lambda x: np.concatenate([part[n:] for part, n in zip(rows(r, x), begins)])
        mask = want(r.mask)
        self.assertEqual(got["token_ids"].tolist(), want(r.token_ids).tolist())
        self.assertEqual(got["mask"].astype(bool).tolist(), mask.tolist())
        for name in ("old_logprobs", *more):
            self.assertBits(got[name].astype(np.float32)[mask], want(getattr(r, name))[mask])

    def test_trl(self):
        r, begins = self.rollouts, prompts(self.rollouts)
        rest = lambda x: [row[n:] for row, n in zip(rows(r, x), begins)]
        heads = [row[:n] for row, n in zip(rows(r, r.token_ids), begins)]
        grid = lambda parts, **options: torch.from_numpy(padded(parts, **options))
        output = {
            "prompt_ids": grid(heads, value=74, left=True),
            "prompt_mask": grid([np.ones_like(head) for head in heads], left=True),
            "completion_ids": grid(rest(r.token_ids), value=74),
            "completion_mask": grid([np.ones_like(row) for row in rest(r.token_ids)]),
            "tool_mask": grid([row.astype(np.int64) for row in rest(r.mask)], value=1),
            "advantages": torch.from_numpy(r.scores),
            "sampling_per_token_logps": grid(rest(r.old_logprobs)),
        }

        class GRPOTrainer:
            accelerator = SimpleNamespace(process_index=1)

            def _generate_and_score_completions(self, inputs):
                return output

        self.modules(trl={"GRPOTrainer": GRPOTrainer})
        names = {}
        exec(block("python", "DumpingTrainer"), names)
        self.assertIs(names["DumpingTrainer"]()._generate_and_score_completions([]), output)
        got = recorded(self.lines("rollouts-1.jsonl"))
        self.assertResponses(got, [0] * len(begins))
        self.assertBits(got["advantages"].astype(np.float32), r.advantages)

    def test_areal(self):
        r = self.rollouts
        episodes = zip(self.tensors(r.token_ids), self.tensors(r.mask.astype(np.int32)), self.tensors(r.old_logprobs), r.rewards)

        class RLVRWorkflow:
            async def arun_episode(self, engine, data):
                ids, mask, logprobs, reward = next(episodes)
                out = {"input_ids": ids, "loss_mask": mask, "logprobs": logprobs, "rewards": torch.tensor(reward)}
                return {name: x.unsqueeze(0) for name, x in out.items()}

        self.modules(areal__workflow__rlvr={"RLVRWorkflow": RLVRWorkflow})
        names = {}
        exec(block("python", "DumpingWorkflow"), names)
        for _ in r.rewards:
            asyncio.run(names["DumpingWorkflow"]().arun_episode(None, {}))
        got = recorded(self.lines())
        self.assertBits(got["reward"].astype(np.float32), r.rewards)
        self.assertResponses(got, [0] * len(r.rewards))


if __name__ == "__main__":
    unittest.main()
