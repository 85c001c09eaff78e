"""The head of reweight.adapters._trl_head in TRL's GRPOTrainer as it is installed."""

import contextlib
import functools
import importlib.util
import unittest
from unittest import mock

if importlib.util.find_spec("trl") is None:
    raise unittest.SkipTest("TRL is not installed")

import torch
from test_trl import model, trainer
from trl import GRPOTrainer
from trl.trainer import utils

from reweight.adapters import HookError, _trl_head


@contextlib.contextmanager
def installed():
    """Ours in the place of TRL's; the list that this gives has the arguments of each call of linear_token_stats."""
    calls = []

    def counted(*args, **options):
        calls.append((args, options))
        return _trl_head.torch_linear(*args, **options)

    with (
        mock.patch.object(utils, "_use_triton", utils._use_triton),
        mock.patch.object(utils._ChunkedLogProbFunction, "apply", utils._ChunkedLogProbFunction.apply),
        mock.patch.object(_trl_head, "torch_linear", _trl_head.linear_token_stats, create=True),
        mock.patch.object(_trl_head, "linear_token_stats", counted),
    ):
        _trl_head.install()
        yield calls


def relative(got, want):
    return ((got.double() - want.double()).norm() / want.double().norm()).item()


class Forward(unittest.TestCase):
    def outputs(self, change=None, dtype=torch.float32, all_masked=False, outputs=("log_probs", "entropy"), **options):
        """What a model returns, and all its gradients."""
        made = model().to(dtype)
        for name, value in (change or {}).items():
            setattr(made.config, name, value)
        utils.add_fused_lm_head(made, outputs=outputs, **options)
        ids = torch.randint(2, 24, (3, 12), generator=torch.Generator().manual_seed(5))
        labels = ids.masked_fill(torch.arange(12) < torch.tensor([[3], [5], [12]]), -100)
        if all_masked:
            labels = torch.full_like(ids, -100)
        out = made(input_ids=ids, labels=labels, fused_lm_head=True)
        (out.loss + sum(t.sum() for t in (out.entropy, out.log_sum_sq_probs) if t is not None and t.requires_grad)).backward()
        return out, torch.cat([p.grad.flatten() for p in made.parameters()])

    def test_the_same_fields_and_gradients(self):
        for name, options in {
            "plain": {},
            "temperature": dict(temperature=0.7),
            "log-probabilities alone": dict(outputs=("log_probs",)),
            "softcap": dict(change={"final_logit_softcapping": 2.0}),
            "scale": dict(change={"logit_scale": 0.25}),
            "no labels": dict(all_masked=True),
            "bfloat16": dict(dtype=torch.bfloat16),
        }.items():
            with self.subTest(name):
                want, wanted = self.outputs(**options)
                with installed() as calls:
                    got, grads = self.outputs(**options)
                self.assertEqual(len(calls), 1)
                self.assertEqual(len(calls[0][0][2]), 0 if options.get("all_masked") else 16)  # prompts are left out
                self.assertEqual(set(got.keys()), set(want.keys()))
                near = 2e-2 if "dtype" in options else 2e-6
                for key, value in want.items():
                    self.assertEqual((got[key].shape, got[key].dtype), (value.shape, value.dtype))
                    self.assertLess((got[key].double() - value.double()).abs().max(), 10 * near, key)
                if want.log_probs.any():
                    self.assertLess(relative(grads, wanted), near)

    def test_what_remains_with_trl(self):
        for options in (dict(outputs=("log_probs", "is_top1")), dict(change={"logit_scale": -1.0})):
            want, wanted = self.outputs(**options)
            with installed() as calls:
                got, grads = self.outputs(**options)
            self.assertEqual(calls, [])
            self.assertLess((got.log_probs - want.log_probs).abs().max(), 1e-5)
            self.assertLess(relative(grads, wanted), 1e-5)


class Steps(unittest.TestCase):
    def losses(self, **options):
        made = trainer(functools.partial(GRPOTrainer), beta=0.1, **options)
        made.train()
        return [(x["loss"], x["grad_norm"], x["entropy"], x["kl"]) for x in made.state.log_history if "loss" in x]

    def test_grpo(self):
        """The losses, gradients' norms, entropies and KLs of whole runs."""
        for options in ({}, dict(temperature=0.8), dict(cast_lm_head_to_fp32=True)):
            want = self.losses(**options)
            with installed() as calls:
                got = self.losses(**options)
            self.assertGreaterEqual(len(calls), 6)  # of the policy and of the reference
            self.assertEqual(len(got), 3)
            for g, w in zip(got, want):
                for x, y in zip(g, w):
                    self.assertLess(abs(x - y), 2e-4 * max(1, abs(y)), (g, w))

    def test_energies(self):
        """Those of the reference are minus the logsumexp of its logits at temperature 1."""
        seen = []
        with installed():
            for temperature in (1.0, 0.7):
                made = trainer(functools.partial(GRPOTrainer), beta=0.1, temperature=temperature)
                original = type(made)._generate_and_score_completions

                def generate(self, inputs):
                    with _trl_head.energies(self) as found:
                        output = original(self, inputs)
                    ids = torch.cat([output["prompt_ids"], output["completion_ids"]], 1)
                    mask = torch.cat([output["prompt_mask"], output["completion_mask"]], 1)
                    with torch.no_grad():
                        logits = self.ref_model(input_ids=ids, attention_mask=mask).logits
                    n = output["completion_ids"].shape[1]
                    want = -torch.logsumexp(logits[:, -n - 1 : -1].double(), -1) * output["completion_mask"]
                    seen.append((found[-1].double() - want).abs().max().item())
                    return output

                with mock.patch.object(type(made), "_generate_and_score_completions", generate):
                    made.train()
                self.assertNotIn("_get_per_token_logps_and_entropies", vars(made))
        self.assertGreaterEqual(len(seen), 6)
        self.assertLess(max(seen), 1e-5)

    def test_energies_without_the_head(self):
        made = trainer(functools.partial(GRPOTrainer), beta=0.1)
        original = type(made)._generate_and_score_completions

        def generate(self, inputs):
            with _trl_head.energies(self):
                return original(self, inputs)

        with mock.patch.object(type(made), "_generate_and_score_completions", generate):
            with self.assertRaisesRegex(HookError, r"install\(head=True\)"):
                made.train()


if __name__ == "__main__":
    unittest.main()
