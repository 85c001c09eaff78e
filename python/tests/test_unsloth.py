"""reweight.adapters.trl in Unsloth's GRPOTrainer as it is installed: whole runs, and the gradient of each loss."""

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

if importlib.util.find_spec("unsloth") is None:
    raise unittest.SkipTest("Unsloth is not installed")

from support import environment

STEP = Path(__file__).with_name("unsloth_step.py")


def run(*cases, compiled=False):
    """Runs the program of this test, which imports Unsloth once for all cases, and returns what it prints of each."""
    with tempfile.TemporaryDirectory() as folder:
        disable = "0" if compiled else "1"
        env = environment(UNSLOTH_FORCE_CPU="1", UNSLOTH_COMPILE_DISABLE=disable, HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="")
        done = subprocess.run([sys.executable, STEP, json.dumps(cases)], env=env, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stderr[-4000:])
    return json.loads(done.stdout.splitlines()[-1])


class Unsloth(unittest.TestCase):
    def check(self, case, steps):
        self.assertGreater(len(steps), 3)
        for step in steps:
            self.assertLess(step["gradient"], 1e-4)
            self.assertLess(step["loss"], 1e-5)
            self.assertLess(step["old_logprobs"], 1e-4)
        forwards = steps[0]["forwards"]
        self.assertEqual(len(forwards) > 0, "steps_per_generation" in case)
        self.assertLess(max(forwards, default=0), 1e-4)
        self.assertTrue(any(step["padding"] > 0 for step in steps))
        self.assertEqual(any(step["old"] for step in steps), "steps_per_generation" not in case)

    def test_install(self):
        """Loss and gradient of each micro-batch are those of the advantages [B, T] and a plain forward pass in float64, for
        prompts of several lengths, micro-batches with less padding than their batch, an older policy and a reference. The
        entropy, which Unsloth's forward pass does not give, is refused."""
        kinds = ("dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo")
        cases = [{"loss_type": kind} for kind in kinds] + [{"steps_per_generation": 2}, {"beta": 0.1, "loss_type": "grpo"}]
        *found, error = run(*cases, {"entropy": "exact"})
        for case, steps in zip(cases, found):
            with self.subTest(**case):
                self.check(case, steps)
        self.assertRegex(error, r'entropy is "exact", which .* use Credit\(entropy="surprisal"\)')

    @unittest.skipIf(shutil.which("g++") is None, "there is no g++, with which PyTorch compiles for a CPU")
    def test_compiled(self):
        """Unsloth's compiled loss, as the package ships it, gets the credit too."""
        (steps,) = run({"loss_type": "dapo"}, compiled=True)
        self.check({}, steps)
        self.assertIn("accumulate_chunk", steps[0]["compiled"])

    def test_mixin(self):
        (steps,) = run({"mixin": True})
        self.check({"mixin": True}, steps)


if __name__ == "__main__":
    unittest.main()
