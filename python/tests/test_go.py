"""The bits of the Go command line on the same rollouts."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np
from support import LAKES, ROOT, TestCase, needs_torch, random_batch, read_safetensors, to_bf16, torch
from support import write_safetensors

import reweight

# What is given to the command line, and what that is for actfocus, aem, grpo and loss.
OPTIONS = [
    ([], {}, {}, {}, {}),
    (
        "-signal=surprisal -alpha=0.3 -beta=2 -eps=0.01 -scope=trajectory -lambda=3 -guard=0".split(),
        {"signal": "surprisal", "alpha": 0.3, "beta": 2, "eps": 0.01},
        {"scope": "trajectory", "lambda_": 3, "guard": 0},
        {},
        {},
    ),
    (
        "-signal=log_ratio -scope=batch -aggregation=seq_mean_token_sum -clip-low=0.1 -clip-high=0.1 -dual-clip=0".split(),
        {"signal": "log_ratio"},
        {"scope": "batch"},
        {},
        {"aggregation": "seq_mean_token_sum", "policy": reweight.PPO(clip_low=0.1, clip_high=0.1, dual_clip=0)},
    ),
    (
        ["-aggregation=seq_mean_token_mean", "-divide-by-std=false"],
        {},
        {},
        {"divide_by_std": False},
        {"aggregation": "seq_mean_token_mean"},
    ),
    (["-aggregation=seq_mean_token_sum_norm"], {}, {}, {}, {"aggregation": "seq_mean_token_sum_norm"}),
    (
        ["-aggregation=seq_mean_token_sum_norm", "-norm-length=100"],
        {},
        {},
        {},
        {"aggregation": "seq_mean_token_sum_norm", "norm_length": 100},
    ),
    (["-scheme=actfocus+aem+gspo"], {}, {}, {}, {"policy": "gspo"}),
    (["-scheme=actfocus+aem+sapo", "-kl=k1", "-kl-coef=0.1"], {}, {}, {}, {"policy": "sapo", "kl": "k1", "kl_coef": 0.1}),
    (["-scheme=actfocus+aem+vespo"], {}, {}, {}, {"policy": "vespo"}),
    (["-scheme=actfocus+aem+dppo_kl"], {}, {}, {}, {"policy": "dppo_kl"}),
]


@unittest.skipIf(shutil.which("go") is None, "Go is not installed")
class Go(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.program = str(Path(cls.folder.name) / "reweight")
        subprocess.run(["go", "build", "-o", cls.program, "./cmd/reweight"], cwd=ROOT, check=True)

    def compare(self, path, arrays, *options):
        """Compares what the command line writes for a file with what Python computes."""
        output = Path(self.folder.name) / "out.safetensors"
        flags, actfocus, aem, grpo, loss = options
        done = subprocess.run([self.program, "-o", output, *flags, path], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        want, _ = read_safetensors(output)
        batch = reweight.Batch(**{k: v for k, v in arrays.items() if not k.endswith("logits")})
        weights = reweight.actfocus(batch, **actfocus).weights
        batch.advantages = reweight.multiply(reweight.grpo(batch, **grpo), reweight.aem(batch, **aem))
        grad = reweight.loss(batch, weights, **loss).grad
        self.assertBits(weights, want["weights"], "weights")
        self.assertBits(batch.advantages, want["advantages"], "advantages")
        self.assertBits(grad, want["grad_logprobs"], "grad_logprobs")

    def test_rollouts(self):
        for path in LAKES:
            arrays, _ = read_safetensors(path)
            for options in OPTIONS:
                with self.subTest(file=path.name, options=options[0]):
                    self.compare(path, arrays, *options)

    @needs_torch
    def test_logits(self):
        """The command line derives energies, entropies and log-probabilities from logits."""
        path = Path(self.folder.name) / "logits.safetensors"
        g = np.random.default_rng(5)
        for dtype, vocab in (("float32", 1), ("float32", 1500), ("bfloat16", 777), ("float16", 130)):
            arrays = random_batch(7)
            T = len(arrays["role"])
            arrays = {k: arrays[k] for k in ("role", "seq_offsets", "group_ids", "rewards", "span_ids")}
            arrays["token_ids"] = ids = g.integers(0, vocab, T).astype(np.int32)
            logits = {}
            for name in ("ref_logits", "old_logits", "logits"):
                x = g.normal(scale=4, size=(T, vocab)).astype(np.float32)
                x[g.random(x.shape) < 0.1] = -np.inf
                x[np.arange(T), ids] = g.normal(size=T)  # a token that was sampled is not masked
                x = to_bf16(x) if dtype == "bfloat16" else x.astype(dtype)
                arrays[name] = x
                logits[name] = torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) if dtype == "bfloat16" else x
            write_safetensors(path, arrays)
            ref, old = reweight.token_stats(logits["ref_logits"], ids), reweight.token_stats(logits["old_logits"], ids)
            arrays["ref_energy"] = -np.asarray(ref.lse)
            arrays["ref_logprobs"] = np.asarray(ref.logprobs)
            arrays["entropy"] = np.asarray(old.entropy)
            arrays["old_logprobs"] = np.asarray(old.logprobs)
            arrays["logprobs"] = np.asarray(reweight.token_stats(logits["logits"], ids).logprobs)
            with self.subTest(dtype=dtype, vocab=vocab):
                self.compare(path, arrays, *OPTIONS[0])


if __name__ == "__main__":
    unittest.main()
