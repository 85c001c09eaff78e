"""token_stats on a small language model, in the situations in which trainers run it."""

import json
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

try:
    import torch
    import transformers  # noqa: F401
except ImportError as e:
    raise unittest.SkipTest(f"{e.name} is not installed")

import models
from reweight.torch import token_stats
from support import environment

EXACT, ROUNDED = 5e-6, 2e-2  # relative difference of all gradients, in float32 and in bfloat16


class Models(unittest.TestCase):
    def test_situations(self):
        """The gradients are those of the plain model with inplace=False, and of float64."""
        for name in models.SITUATIONS:
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # PyTorch's, about graphs and checkpoints
                eager, exact, theirs = models.differences(name)
                self.assertLess(eager, EXACT)
                # In bfloat16 nobody is nearer; ours is not further from float64 than PyTorch's own way.
                self.assertLess(exact, 1.1 * theirs if name in ("autocast", "accelerate, bf16") else EXACT)


class Exported(unittest.TestCase):
    @unittest.skipIf(torch.__version__.startswith("2.6."), "PyTorch 2.6 does not export the masks of transformers")
    def test_export(self):
        """A model with token_stats in it is one graph, for sequences of any number, and computes what eager code does."""

        class Scored(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = models.llama()

            def forward(self, ids):
                return token_stats(self.model(input_ids=ids, use_cache=False).logits[:, :-1], ids[:, 1:])

        scored, (ids, _) = Scored(), models.prompts()
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's, about transformers
            program = torch.export.export(scored, (ids,), dynamic_shapes={"ids": {0: torch.export.Dim("n", min=2)}})
            self.assertIn("torch.ops.reweight.token_stats.default", program.graph_module.code)
            other, _ = models.prompts(seed=2, n=5)
            for got, want in zip(program.module()(other), scored(other)):
                self.assertLess((got - want).abs().max(), 1e-5)


class Parallel(unittest.TestCase):
    def test_two_processes(self):
        with tempfile.TemporaryDirectory() as folder:
            program = str(Path(__file__).with_name("parallel.py"))
            ranks = [
                subprocess.Popen(
                    [sys.executable, program, str(rank), folder + "/store"],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env=environment(),
                )
                for rank in range(2)
            ]
            outputs = [rank.communicate(timeout=600) for rank in ranks]
        for rank, (_, error) in zip(ranks, outputs):
            self.assertEqual(rank.returncode, 0, error)
        found = json.loads(outputs[0][0].splitlines()[-1])
        self.assertGreaterEqual(len(found), 4 if torch.__version__.startswith("2.6.") else 9)
        for name, (eager, exact) in found.items():
            with self.subTest(name):
                self.assertLess(eager, ROUNDED if "bf16" in name else EXACT)
                self.assertLess(exact, ROUNDED if "bf16" in name else EXACT)


if __name__ == "__main__":
    unittest.main()
