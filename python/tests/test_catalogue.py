"""The functions of schemes: the bits of the Go command line, and how they are called."""

import itertools
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np
from support import TestCase, needs_go, needs_torch, program, random_batch, read_safetensors, torch, write_safetensors

import reweight
from reweight import _catalogue


def rollouts(seed, padded=False):
    """The arrays of a batch, with every one that a scheme reads."""
    arrays = random_batch(seed, padded=padded)
    g = np.random.default_rng(seed)
    shape, spans = arrays["role"].shape, int(arrays["span_ids"].max()) + 1
    arrays["rollout_logprobs"] = arrays["old_logprobs"] + g.normal(scale=0.3, size=shape).astype(np.float32)
    arrays["token_rewards"] = g.normal(size=shape).astype(np.float32)
    arrays["teacher_logprobs"] = arrays["old_logprobs"] + g.normal(scale=0.3, size=shape).astype(np.float32)
    arrays["reward_parts"] = g.integers(0, 3, (len(arrays["rewards"]), 3)).astype(np.float32)
    arrays["sum_sq_probs"], arrays["entropy_drop"] = g.uniform(size=(2, *shape)).astype(np.float32)
    arrays["group_ids"] = g.permutation(np.arange(len(arrays["rewards"]), dtype=np.int32) // 3)  # pass_at_k wants others in each
    arrays["returns"], arrays["new_values"] = (g.normal(size=shape).astype(np.float32) for _ in range(2))
    arrays["anchors"] = g.integers(0, 4, spans).astype(np.int32)
    arrays["span_rewards"] = g.integers(0, 2, spans).astype(np.float32)
    return arrays


# What the entries make that have a function of their own here, and need no option.
FUNCTIONS = {
    e.name: getattr(reweight, e.function) for e in reweight.schemes() if e.function in _catalogue.__all__ and not e.no_default
}
FUNCTIONS["kl_rewards"] = reweight.kl_rewards
del FUNCTIONS["overlong"]  # which has an element for each trajectory


# Options without a default: of the entry, and the flag of the command line.
GIVEN = {"off_policy_mask": ("delta", 0.05, "-delta"), "dro": ("policy", reweight.DRO(beta=0.5), "-dro-beta")}


def step_of(name):
    """Returns the step, and the flags of the command line for the same."""
    step, flags = reweight.scheme(name), []
    for entry, (option, value, flag) in GIVEN.items():
        if entry in step.options:
            step.options[entry][option] = value
            flags.append(f"{flag}={getattr(value, 'beta', value)}")
    return step, flags


class Functions(TestCase):
    @needs_go
    def test_go(self):
        """Each entry alone, and some together."""
        names = [e.name for e in reweight.schemes() if e.name != "kl_rewards"]
        names += ["kl_rewards+gae", "kl_rewards+reinforce++", "overlong+reinforce++", "overlong+kl_rewards+gae", "gae+value_loss+cispo"]
        names += ["gtpo+actfocus", "empg+gigpo+entropy_mask+icepop", "dapo+aem+reject", "reinforce++_baseline+opsm"]
        with tempfile.TemporaryDirectory() as folder:
            path, output = (Path(folder) / name for name in ("in.safetensors", "out.safetensors"))
            arrays = rollouts(3)
            write_safetensors(path, arrays)
            for name in names:
                with self.subTest(scheme=name):
                    step, flags = step_of(name)
                    command = [Path(program().name) / "reweight", "-scheme", name, *flags, "-o", output, path]
                    done = subprocess.run(command, capture_output=True, text=True)
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                    want, _ = read_safetensors(output)
                    batch = reweight.Batch(**arrays)
                    self.assertEqual(step.lacks(batch), ())
                    credit = step.credit(batch)
                    self.assertBits(credit.advantages, want["advantages"], "advantages")
                    if credit.weights is not None:
                        self.assertBits(credit.weights, want["weights"], "weights")
                    result = step.run(batch)
                    self.assertBits(result.advantages, want["advantages"], "advantages")
                    self.assertBits(result.metrics.grad, want["grad_logprobs"], "gradient")
                    self.assertEqual(result.loss, result.metrics.loss)
                    for field, array in rollouts(3).items():
                        self.assertBits(getattr(batch, field), array, field)

    @needs_go
    def test_kl_rewards(self):
        """REINFORCE++ with the rewards of kl_rewards is what the command line has."""
        arrays = rollouts(8)
        del arrays["token_rewards"]
        with tempfile.TemporaryDirectory() as folder:
            path, output = (Path(folder) / name for name in ("in.safetensors", "out.safetensors"))
            write_safetensors(path, arrays)
            command = [Path(program().name) / "reweight", "-scheme", "kl_rewards+reinforce++", "-o", output, path]
            done = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            batch = reweight.Batch(**arrays)
            got = reweight.scheme("kl_rewards+reinforce++").credit(batch).advantages
            self.assertBits(got, read_safetensors(output)[0]["advantages"], "advantages")
            batch.token_rewards = reweight.kl_rewards(batch)
            got = reweight.scheme("reinforce++").credit(batch).advantages
            self.assertBits(got, read_safetensors(output)[0]["advantages"], "advantages")
        outcome = reweight.kl_rewards(batch, kl_coef=0)
        self.assertBits(reweight.kl_rewards(reweight.Batch(**{**arrays, "ref_logprobs": None}), kl_coef=0), outcome, "outcome")
        x = arrays["old_logprobs"] - arrays["ref_logprobs"]
        want = np.where(arrays["role"] > 0, outcome - 0.5 * x * x / 2, 0)
        np.testing.assert_allclose(reweight.kl_rewards(batch, kl="k2", kl_coef=0.5), want, rtol=1e-5, atol=1e-6)

    def test_names(self):
        self.assertEqual(reweight.scheme("actfocus+aem").name, "actfocus+aem")
        self.assertEqual(reweight.scheme("entropy-mask+rloo_vectorized").name, "rloo+entropy_mask")
        self.assertEqual(reweight.scheme("reinforce++_baseline+aem").name, "aem+reinforce++_baseline")
        self.assertEqual([e.name for e in reweight.scheme("dapo").entries], ["overlong", "group_filter", "uniform"])
        self.assertEqual(reweight.scheme("gtpo").options["gtpo"]["normalization"], "separate")
        self.assertEqual(reweight.scheme("gigpo").lacks(reweight.Batch(**random_batch(3))), ("anchors", "span_rewards"))
        self.assertEqual(reweight.scheme("reinforce++_baseline").needs, ("group_ids", "rewards", "seq_offsets"))
        for names, text in (
            ("", 'has "", want names'),
            ("gtop", 'has "gtop", want names'),
            ("gtpo+", 'has "", want names'),
            ("gtpo+gtpo", "has gtpo twice"),
            ("gtpo+rloo", "has gtpo and rloo: both make the advantages"),
            ("tis+icepop", "has tis and icepop: both are the ratio"),
            ("gspo+cispo", "has gspo and cispo: both are a loss"),
            ("kl_rewards+aem", "has kl_rewards, which makes rewards of tokens"),
            ("gmpo+aem", "has gmpo and aem: gmpo has no factors of tokens"),
            ("actfocus+clip_cov", "has actfocus and clip_cov: clip_cov has no weights of tokens"),
            ("dapo+overlong", "has dapo and overlong: both have overlong"),
        ):
            with self.subTest(names), self.assertRaises(reweight.InputError) as caught:
                reweight.scheme(names)
            self.assertIn(text, str(caught.exception))

    def test_policies_of_options(self):
        """A policy that is set later, which has no factors of tokens or no weights, is refused beside them, too."""
        arrays, refused = rollouts(14), 0
        batch = reweight.Batch(**arrays)
        for policy in (reweight.DRO(beta=1), reweight.GMPO(), reweight.ClipCov(), "kl_cov", "grpo_s", reweight.GSPO()):
            name = policy if isinstance(policy, str) else policy.name
            for scheme, argument, text in (
                ("tis+gspo", 'options["gspo"]["policy"]', f"is {name}, want one with factors of tokens, which gspo+tis"),
                ("aem", 'options["uniform"]["policy"]', f"is {name}, want one with factors of tokens, which aem"),
                ("actfocus", "weights", "is given, want none: this policy has no weights of tokens"),
            ):
                step = reweight.scheme(scheme)
                step.options[step.loss.name]["policy"] = policy
                with self.subTest(scheme, policy=name):
                    if name in ("grpo_s", "gspo"):
                        step.run(batch)
                    else:
                        more = "" if argument == "weights" else " has"
                        self.assertInputError(argument, f"{argument} {text}{more}", lambda: step.run(batch))
                        refused += 1
        self.assertEqual(refused, 12)

    def test_no_default(self):
        """Every scheme and every pair: an option without a default is an error that names it, and nothing else is missing."""
        arrays, names = rollouts(11), [e.name for e in reweight.schemes()]
        batch, named, walked = reweight.Batch(**arrays), 0, 0
        for name in [*names, *("+".join(pair) for pair in itertools.combinations(names, 2))]:
            try:
                step = reweight.scheme(name)
            except reweight.InputError:
                continue
            walked += 1
            lacking = [(entry, GIVEN[entry]) for entry in GIVEN if entry in step.options]
            for entry, (option, value, _) in lacking:
                want = "reweight.DRO(beta=...)" if entry == "dro" else "a number"
                problem = f'options["{entry}"]["{option}"] is None, want {want}: it has no default'
                argument = f'options["{entry}"]["{option}"]'
                with self.subTest(name):
                    self.assertIsNone(step.options[entry][option])
                    step.options.update({other: dict(step.options[other], **{o: v}) for other, (o, v, _) in lacking if other != entry})
                    self.assertInputError(argument, problem, lambda: step.run(batch))
                    if entry != "dro":  # a credit has no loss
                        self.assertInputError(argument, problem, lambda: step.credit(batch))
                    del step.options[entry][option]
                    self.assertInputError(argument, problem, lambda: step.run(batch))
                step.options[entry][option] = value
                named += 1
            with self.subTest(name):
                step.run(batch)
        self.assertGreater(walked, 700)
        self.assertGreater(named, 40)

    def test_given_arrays(self):
        """What a step adds to arrays of the batch are arrays of the shape and the type of the batch's fields."""
        arrays = rollouts(12)
        wide = {name: arrays[name].astype(np.float64) for name in ("rewards", "token_rewards", "advantages")}
        for scheme, change, argument, text in (
            ("overlong", {"rewards": wide["rewards"]}, "rewards", "rewards has dtype float64, want float32"),
            ("overlong", {"rewards": arrays["rewards"][:1]}, "rewards", "one element per trajectory"),
            ("overlong", {"rewards": None}, "rewards", "rewards is None, want the shape [12]"),
            ("kl_rewards+gae", {"token_rewards": wide["token_rewards"]}, "token_rewards", "has dtype float64, want float32"),
            ("kl_rewards+gae", {"token_rewards": arrays["token_rewards"][:1]}, "token_rewards", "one element per token"),
            ("uniform", {"rewards": None, "advantages": wide["advantages"]}, "advantages", "has dtype float64, want float32"),
            ("uniform", {"rewards": None, "advantages": arrays["advantages"][:1]}, "advantages", "one element per token"),
        ):
            for of in (lambda x: x, torch.from_numpy) if torch is not None else (lambda x: x,):
                changed = {name: x if x is None else of(x) for name, x in {**arrays, **change}.items()}
                with self.subTest(text, scheme=scheme), self.assertRaises((reweight.InputError, TypeError)) as caught:
                    reweight.scheme(scheme).credit(reweight.Batch(**changed))
                self.assertIn(text, str(caught.exception))

    def test_layouts(self):
        """A padded batch has the results of the same one packed, and so have tensors."""
        padded = rollouts(5, padded=True)
        packed = {k: x if k == "reward_parts" else x.reshape(-1) for k, x in padded.items()}
        rows, width = padded["role"].shape
        packed["seq_offsets"] = np.arange(rows + 1) * width
        for name, function in FUNCTIONS.items():
            with self.subTest(scheme=name):
                want = function(reweight.Batch(**packed))
                self.assertBits(function(reweight.Batch(**padded)).reshape(-1), want, name)
                out = np.empty_like(want)
                self.assertIs(function(reweight.Batch(**packed), out=out), out)
                self.assertBits(out, want, name)
        self.assertEqual(reweight.overlong_penalty(reweight.Batch(**padded)).shape, (rows,))

    @needs_torch
    def test_tensors(self):
        arrays = rollouts(6)
        tensors = {k: torch.from_numpy(x) for k, x in arrays.items()}
        for name, function in FUNCTIONS.items():
            got = function(reweight.Batch(**tensors))
            self.assertIsInstance(got, torch.Tensor)
            self.assertBits(got.numpy(), function(reweight.Batch(**arrays)), name)

    @needs_torch
    def test_run_tensors(self):
        """The bits of arrays, and gradients that backward brings to logprobs and new_values."""
        arrays = rollouts(9)
        for name in ("gtpo+actfocus+cispo", "gae+aem+value_loss", "overlong+kl_rewards+reinforce++", "gmpo"):
            with self.subTest(name):
                want = reweight.scheme(name).run(reweight.Batch(**arrays))
                tensors = {k: torch.from_numpy(x.copy()) for k, x in arrays.items()}
                for leaf in ("logprobs", "new_values"):
                    tensors[leaf].requires_grad_()
                got = reweight.scheme(name).run(reweight.Batch(**tensors))
                self.assertBits(got.metrics.grad.numpy(), want.metrics.grad, "gradient")
                self.assertBits(got.advantages.numpy(), want.advantages, "advantages")
                self.assertEqual(got.metrics.loss.item(), want.loss)
                self.assertEqual(got.value is None, "value_loss" not in name)
                (2 * got.loss + (0 if got.value is None else 3 * got.value.loss)).backward()
                self.assertBits(tensors["logprobs"].grad.numpy(), 2 * want.metrics.grad, "logprobs")
                if want.value is not None:
                    self.assertBits(tensors["new_values"].grad.numpy(), 3 * want.value.grad, "new_values")

    def test_value_loss(self):
        """verl's compute_value_loss in float64, in all aggregations, in place, and what is wrong."""
        arrays = rollouts(10)
        role, offsets = arrays["role"] > 0, arrays["seq_offsets"]
        v, old, returns = (arrays[name].astype(float) for name in ("new_values", "values", "returns"))
        clipped = np.clip(v, old - 0.3, old + 0.3)
        term = np.where(role, np.maximum((v - returns) ** 2, (clipped - returns) ** 2) / 2, 0)
        sums, counts = (np.array([x[a:b].sum() for a, b in zip(offsets, offsets[1:])]) for x in (term, role))
        some = counts > 0
        for aggregation, want in (
            ("token_mean", term.sum() / role.sum()),
            ("seq_mean_token_sum", sums[some].mean()),
            ("seq_mean_token_mean", (sums[some] / counts[some]).mean()),
        ):
            got = reweight.value_loss(reweight.Batch(**arrays), clip=0.3, aggregation=aggregation)
            self.assertAlmostEqual(got.loss, want, delta=1e-6 * want)
            self.assertEqual((got.grad[~role] == 0).all(), True)
        self.assertEqual(got.tokens, role.sum())
        wrong = ((clipped - returns) ** 2 > (v - returns) ** 2)[role].mean()
        self.assertAlmostEqual(got.clip_fraction, wrong)
        out = arrays["returns"].copy()
        batch = reweight.Batch(**{**arrays, "returns": out})
        self.assertIs(reweight.value_loss(batch, clip=0.3, aggregation=aggregation, out=out).grad, out)
        self.assertBits(out, got.grad, "in place")
        for change, options, argument in (
            ({}, {"clip": 0}, "clip"),
            ({}, {"aggregation": "x"}, "aggregation"),
            ({}, {"norm_length": -1, "aggregation": "seq_mean_token_sum_norm"}, "norm_length"),
            ({"returns": None}, {}, "returns"),
        ):
            with self.assertRaises(reweight.InputError) as caught:
                reweight.value_loss(reweight.Batch(**{**arrays, **change}), **options)
            self.assertEqual(caught.exception.argument, argument)

    def test_overlong_penalty(self):
        batch = reweight.Batch(
            role=np.array([0, 1, 2, 0, 1, 1, 1, 2, 1], np.uint8),
            seq_offsets=np.array([0, 3, 4, 9]),
            rewards=np.ones(3, np.float32),
        )
        got = reweight.overlong_penalty(batch, maximum=6, buffer=4, penalty=2, out=batch.rewards)
        self.assertIs(got, batch.rewards)
        self.assertEqual(list(got), [0, 0, -1.5])

    def test_errors(self):
        arrays = rollouts(7)
        for function, change, options, argument, text in (
            (reweight.gigpo, {"anchors": None}, {}, "anchors", "is None, want the shape"),
            (reweight.gigpo, {"anchors": arrays["anchors"][1:]}, {}, "anchors", "one element per span"),
            (reweight.gigpo, {}, {"gamma": 0, "omega": 0}, "gamma", "is 0 like omega, want one that is not 0, as in the defaults of gigpo"),
            (reweight.gtpo, {}, {"scope": "trajectory"}, "scope", "is trajectory, want group or batch"),
            (reweight.gtpo, {}, {"entropy_low": 2, "entropy_high": 1}, "entropy_high", "is 1, want at least the 2 of entropy_low"),
            (reweight.gtpo, {}, {"normalization": "all"}, "normalization", 'is "all", want one of [separate joint none]'),
            (reweight.overlong_penalty, {}, {"buffer": 9, "maximum": 8}, "maximum", "is 8, want at least the 9 of buffer"),
            (reweight.entropy_mask, {}, {"rho": 0}, "rho", "is 0, want above 0 and at most 1"),
            (reweight.gdpo, {"reward_parts": None}, {}, "reward_parts", "is None, want the shape [S, K]"),
            (reweight.gdpo, {"reward_parts": arrays["rewards"]}, {}, "reward_parts", "want [S, K] with K of at least 1"),
            (reweight.gdpo, {"reward_parts": arrays["reward_parts"][1:]}, {}, "reward_parts", "one element per part of a trajectory"),
            (reweight.gdpo, {"reward_parts": arrays["reward_parts"] * np.float32("nan")}, {}, "reward_parts", "[0, 0] is NaN, want a finite reward"),
            (reweight.gdpo, {}, {"reward_weights": [1, 2]}, "reward_weights", "has 2 elements, want 3, one per part"),
            (reweight.gdpo, {}, {"reward_weights": [1, 2, 1e39]}, "reward_weights", "[2] is 1e+39, want a number that float32 can hold"),
            (reweight.empg, {}, {"k_future": 81}, "k_future", "is 81, want 0 to 80"),
        ):
            out = np.full(len(arrays["role"]), 7, np.float32)
            given = {} if function is reweight.overlong_penalty else {"out": out}
            with self.subTest(text), self.assertRaises(reweight.InputError) as caught:
                function(reweight.Batch(**{**arrays, **change}), **options, **given)
            self.assertEqual(caught.exception.argument, argument)
            self.assertIn(text, str(caught.exception))
            self.assertTrue((out == 7).all())


if __name__ == "__main__":
    unittest.main()
