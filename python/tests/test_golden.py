"""The golden answers in float64: golden_test.go has the same tolerances."""

import dataclasses
import json
import math
import unittest

import numpy as np
from support import LAKES, TestCase, f32, golden, read_safetensors

import reweight


def u8(values):
    return np.array(values, np.uint8)


class Golden(TestCase):
    def test_token_stats(self):
        for c in golden("token_stats.json"):
            s = reweight.token_stats(f32([c["logits"]]), np.array([c["id"]], np.int32))
            for got, want in zip(s, (c["logsumexp"], c["entropy"], c["logprob"])):
                got = float(got[0])
                same = got == want or (math.isnan(got) and math.isnan(want))
                near = abs(got - want) <= 1e-6 + abs(want) * 2**-24
                self.assertTrue(same or near, f"{c['name']}: {got}, want {want}")

    def test_actfocus(self):
        for c in golden("actfocus.json"):
            b = reweight.Batch(role=u8(c["role"]), ref_energy=f32(c["energy"]))
            self.assertNear(reweight.actfocus(b, **c["options"]).weights, c["weights"])

    def test_aem(self):
        for c in golden("aem.json"):
            b = reweight.Batch(
                role=u8(c["role"]),
                span_ids=np.array(c["span_ids"], np.int32),
                seq_offsets=np.array(c["seq_offsets"], np.int64),
                group_ids=np.array(c["group_ids"], np.int32),
                entropy=f32(c["entropy"]),
            )
            got = reweight.aem(b, lambda_=c["options"]["lam"], guard=c["options"]["guard"])
            self.assertNear(got, c["token_alpha"])

    def test_grpo(self):
        for c in golden("grpo.json"):
            n = len(c["rewards"])
            b = reweight.Batch(  # one action token each
                role=np.full(n, reweight.ACTION, np.uint8),
                seq_offsets=np.arange(n + 1),
                group_ids=np.array(c["group_ids"], np.int32),
                rewards=f32(c["rewards"]),
            )
            self.assertNear(reweight.grpo(b), c["advantages"])
            self.assertNear(reweight.grpo(b, divide_by_std=False), c["advantages_without_std"])

    def test_gae(self):
        for c in golden("gae.json"):
            mask = u8(c["mask"])
            b = reweight.Batch(role=mask, seq_offsets=np.array([0, len(mask)]), values=f32(c["values"]))
            got = reweight.gae(b, f32(c["rewards"]), gamma=c["gamma"], lambda_=c["lam"])
            self.assertNear(got.advantages[mask != 0], np.array(c["advantages"])[mask != 0])
            self.assertNear(got.returns[mask != 0], np.array(c["returns"])[mask != 0])

    def test_loss(self):
        for c in golden("policy_loss.json"):
            b = reweight.Batch(
                role=u8(c["mask"]),
                logprobs=f32(c["logprobs"]),
                old_logprobs=f32(c["old_logprobs"]),
                advantages=f32(c["advantages"]),
            )
            o = c["options"]
            got = reweight.loss(b, f32(c["weights"]), policy=reweight.PPO(o["lo"], o["hi"], o["dual"]))
            self.assertNear(got.loss, c["loss"])
            self.assertNear(got.clip_fraction, c["clip_fraction"])
            self.assertNear(got.grad, c["gradient"])

    def batch(self, c, **more):
        """The batch of a case of a loss."""
        names = "logprobs", "old_logprobs", "advantages", "ref_logprobs"
        arrays = {name: f32(c[name]) for name in names if name in c}
        return reweight.Batch(
            role=u8(c["role"]),
            seq_offsets=np.array(c["seq_offsets"], np.int64),
            span_ids=np.array(c["span_ids"], np.int32),
            **{**arrays, **more},
        )

    def test_policies(self):
        for c in golden("policy_losses.json"):
            o = c["options"]
            names = {"lo": "clip_low", "hi": "clip_high", "dual": "dual_clip", "cap": "ratio_cap"}
            names |= {"k_pos": "power_pos", "l_pos": "decay_pos", "k_neg": "power_neg", "l_neg": "decay_neg"}
            names |= {"tau_pos": "tau_pos", "tau_neg": "tau_neg", "level": "sequence"}
            policy = reweight._policies.POLICIES[o["kind"].replace("-", "_")]
            fields = [field.name for field in dataclasses.fields(policy)]
            constants = {ours: o[name] for name, ours in names.items() if ours in fields}
            options = {"policy": policy(**constants), "norm_length": o["norm"], "aggregation": o["agg"].replace("-", "_")}
            weights = f32(c["weights"]) if "weights" in c else None
            with self.subTest(case=c["name"], **options):
                if "error" in c:
                    with self.assertRaises(reweight.InputError) as raised:
                        reweight.loss(self.batch(c), weights, **options)
                    array, index = c["error"].rstrip("]").split("[")
                    argument = {"Logprobs": "logprobs", "OldLogprobs": "old_logprobs", "Advantages": "advantages"}[array]
                    self.assertEqual((raised.exception.argument, raised.exception.index), (argument, (int(index),)))
                    continue
                got = reweight.loss(self.batch(c), weights, **options)
                self.assertNear(got.loss, c["loss"])
                self.assertNear(got.clip_fraction, c["clip_fraction"])
                self.assertNear(got.grad, c["gradient"])

    def test_divergence(self):
        for c in golden("kl.json"):
            o = c["options"]
            zeros = np.zeros(len(c["role"]), np.float32)
            b = self.batch(c, old_logprobs=f32(c["logprobs"]), advantages=zeros)  # the loss is the divergence's
            if "error" in c:
                text = "ref_logprobs[1] is NaN at a response token, want a finite number"
                self.assertInputError("ref_logprobs", text, lambda: reweight.loss(b, kl_coef=0.01))
                continue
            options = {"kl": o["kind"], "kl_coef": o["coef"], "aggregation": o["agg"].replace("-", "_")}
            with self.subTest(case=c["name"], **options):
                got = reweight.loss(b, **options)
                self.assertNear(got.loss, c["loss"])
                self.assertEqual(got.kl_loss, got.loss)
                self.assertNear(got.grad, c["gradient"])

    def test_steps(self):
        """Whole training steps on real rollouts."""
        for path in LAKES:
            arrays, _ = read_safetensors(path)
            b = reweight.Batch(**{k: v for k, v in arrays.items() if not k.endswith("_logits")})
            weights = reweight.actfocus(b).weights
            advantages = reweight.grpo(b)
            scaled = reweight.multiply(advantages, reweight.aem(b))
            answers = golden(f"step-{path.stem}.json")
            for scheme, a, w in (
                ("uniform", advantages, None),
                ("actfocus", advantages, weights),
                ("aem", scaled, None),
                ("actfocus+aem", scaled, weights),
            ):
                b.advantages = a
                got, want = reweight.loss(b, w), answers[scheme]
                self.assertNear(got.loss, want["loss"])
                self.assertNear(np.abs(got.grad.astype(np.float64)).sum(), want["grad_l1"])
                self.assertNear(np.sqrt((got.grad.astype(np.float64) ** 2).sum()), want["grad_l2"])
                self.assertNear(got.clip_fraction, want["clip_fraction"])
                self.assertNear(got.weight_sum, want["weight_sum"])


class Rollouts(TestCase):
    """The roles and spans of real rollouts, from the mask and the token ids."""

    def test_roles_and_spans(self):
        for path in LAKES:
            arrays, metadata = read_safetensors(path)
            vocab = json.loads(metadata["vocab"])
            opened, closed = vocab.index("<answer>"), vocab.index("</answer>")
            ids, spans, offsets = arrays["token_ids"], arrays["span_ids"], arrays["seq_offsets"]
            mask = spans >= 0
            self.assertBits(reweight.spans_from_mask(mask, offsets), spans)
            got = reweight.roles_from_mask(mask, ids, open_tag=[opened], close_tag=[closed], seq_offsets=offsets)
            # The environment takes no action from a response with more than one open tag.
            malformed = np.bincount(spans[mask], ids[mask] == opened)[spans] > 1
            malformed &= mask
            self.assertLess(malformed.sum(), 0.02 * mask.sum())
            self.assertBits(got[~malformed], arrays["role"][~malformed])


if __name__ == "__main__":
    unittest.main()
