"""No second [N, V]: peak memory as python/measure/memory.py measures it, at smaller sizes."""

import argparse
import importlib.util
import sys
import unittest
from pathlib import Path

try:
    import torch  # noqa: F401
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed")

sys.path.insert(0, str(Path(__file__).parents[1] / "measure"))
import memory  # noqa: E402

ROWS, VOCAB, HIDDEN = 512, 40_000, 128
LOGITS = {"float32": ROWS * VOCAB * 4, "bfloat16": ROWS * VOCAB * 2}
NOISE = 3 << 20  # memory that the allocator and PyTorch keep for themselves, whatever the sizes


@unittest.skipUnless(Path("/proc/self/clear_refs").exists(), "needs Linux's /proc")
class Memory(unittest.TestCase):
    def peak(self, what, form, dtype):
        sizes = argparse.Namespace(rows=ROWS, vocab=VOCAB, hidden=HIDDEN)
        return memory.in_process(sizes, what, form, dtype)

    def test_token_stats(self):
        """The backward pass needs the gradient, and in place nothing of the size of the logits."""
        for dtype, size in LOGITS.items():
            self.assertLess(self.peak("logits", "reweight, in place", dtype), NOISE, dtype)
            self.assertLess(self.peak("logits", "reweight", dtype), size + NOISE, dtype)
        self.assertGreater(self.peak("logits", "log_softmax", dtype), 2 * size)  # that it is seen at all

    def test_linear(self):
        """Of the logits at most 0.3, forward and backward, beyond the gradients."""
        for dtype, size in LOGITS.items():
            for form in (memory.FROZEN, memory.TRAINED, memory.LOSS):
                self.assertLess(self.peak("head", form, dtype), 0.3 * size, (dtype, form))
        self.assertGreater(self.peak("head", "reweight", dtype), 0.9 * size)

    @unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")
    def test_audit(self):
        """No [N, V]: of the logits at most 0.3. What the view full holds most of is elsewhere."""
        for view in ("hidden", "head"):
            self.assertLess(self.peak("audit", view, "float32"), 0.3 * LOGITS["float32"] + NOISE, view)


if __name__ == "__main__":
    unittest.main()
