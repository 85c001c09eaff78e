"""The audit: its statistics against known policies, its inner products against plain autograd."""

import contextlib
import copy
import io
import itertools
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings
from unittest import mock
from xml.etree import ElementTree

import numpy as np
from support import golden

import reweight
from reweight import audit
from reweight._program import find
from reweight.audit import _command

try:
    import torch
    import torch.nn.utils.prune
    import transformers

    from reweight.audit import gradients
except ImportError:
    torch = None

PARTS = ("action", "tags", "reasoning")
SCHEMES = {"paper": (1, 0.1, 0.1), "alpha 0.3": (1, 1, 0.3), "actions alone": (1, 0, 0)}
CHOICES, PART_OF = (4, 4, 2, 3), (2, 2, 1, 0)  # what each of four tokens is drawn from, and its part


class Population:
    """Prompts with softmax policies of four tokens, and rewards of all answers: the true S and T are sums."""

    def __init__(self, prompts, chance, pull, moving=False):
        """moving: the part of the third token is known when it is drawn, as that of tags is."""
        answers = np.array(list(itertools.product(*map(range, CHOICES))))
        mixed = chance.normal(size=(sum(CHOICES), 10)) / 3  # parameters that all tokens share
        self.prompts = []
        for _ in range(prompts):
            probs = [chance.dirichlet(np.full(k, 1.5)) for k in CHOICES]
            p = np.prod([q[answers[:, j]] for j, q in enumerate(probs)], 0)
            right, hint = chance.integers(3), chance.integers(4)
            drive = pull * (2 * (answers[:, 3] == right) - 1) + 0.8 * (answers[:, 0] == hint) - 0.3
            rewards = (chance.random(len(p)) < 1 / (1 + np.exp(-drive))) * 1.0
            slopes = np.zeros((len(PARTS), len(p), sum(CHOICES)))
            ends = np.cumsum(CHOICES)
            for j, q in enumerate(probs):
                slopes[PART_OF[j], :, ends[j] - len(q) : ends[j]] = np.eye(len(q))[answers[:, j]] - q
            if moving:
                reasoning = answers[:, 2] == 0
                slopes[2, reasoning, 8:10], slopes[1, reasoning, 8:10] = slopes[1, reasoning, 8:10], 0
            self.prompts.append((p, rewards, slopes @ mixed))
        self.sums = np.cumsum([p for p, _, _ in self.prompts], 1)

    def truth(self, n):
        S = T = 0
        for p, r, v in self.prompts:
            away = r - p @ r
            g = np.einsum("o,rod->rd", p * away, v)
            G = np.einsum("rod,sod->rso", v, v)
            S = S + g @ g.T
            T = T + G @ (p * away**2) + p @ away**2 / (n - 1) * (G @ p)
        return S / len(self.prompts), T / len(self.prompts)

    def draw(self, n, chance):
        of = chance.integers(len(self.prompts))
        _, r, v = self.prompts[of]
        drawn = np.minimum(np.searchsorted(self.sums[of], chance.random(n), "right"), len(r) - 1)
        v = v[:, drawn].reshape(len(PARTS) * n, -1)
        return r[drawn], (v @ v.T).reshape(len(PARTS), n, len(PARTS), n).transpose(0, 2, 1, 3)


def efficiency(w, S, T, n):
    w = np.asarray(w, float)
    return w @ S.sum(1) / np.sqrt(S.sum() * (w @ (S + (T - S) / n) @ w))


class Statistics(unittest.TestCase):
    def test_intervals(self):
        """Of 2,000 audits, 92 to 97% of the intervals hold the truth, of each share, weight and efficiency. Where the
        signal is so weak that some have no bounds, they hold it more often."""
        if torch:  # these minutes test no version of NumPy, and are spent once
            self.intervals(16, 60, 2000, 0.97)
        self.intervals(8, 60, 200, 1)

    def intervals(self, n, prompts, draws, most):
        chance = np.random.default_rng(0)
        population = Population(300, chance, pull=1.5)
        S, T = population.truth(n)
        best = np.linalg.solve(S + (T - S) / n, S.sum(1))
        truth = {
            "signal": S.sum(1) / S.sum(),
            "noise": np.diag(T - S) / np.trace(T - S),
            "best": best / best[0],
            "schemes": [efficiency(w, S, T, n) / efficiency(np.ones(3), S, T, n) for w in SCHEMES.values()],
            "all": [S.sum() / T.sum()],
        }
        held = {name: np.zeros(len(x)) for name, x in truth.items()}
        too_good = 0
        for _ in range(draws):
            a = audit.Audit(PARTS, SCHEMES)
            for _ in range(prompts):
                a.add(*population.draw(n, chance))
            r = a.report()
            found = {
                "signal": [p.signal for p in r.parts],
                "noise": [p.noise for p in r.parts],
                "best": [p.best for p in r.parts],
                "schemes": [e.here for e in r.efficiencies],
                "all": [r.signal],
            }
            for name, intervals in found.items():
                held[name] += [i.low <= x <= i.high for i, x in zip(intervals, truth[name])]
            here = efficiency(list(r.weights.values()), S, T, n) / efficiency(np.ones(3), S, T, n)
            too_good += r.measured.here.low > here
        held["best"][0] = 0.95 * draws  # 1, by its definition
        for name, counts in held.items():
            for share in counts / draws:
                self.assertTrue(0.92 - 0.02 * (draws < 2000) <= share <= most, (name, counts / draws))
        self.assertLess(too_good / draws, 0.04)  # weights that were fitted are not praised for their luck

    def test_unbiased(self):
        """The means of S and T are the true ones; parts sum to the whole; mixed-up rewards have no signal."""
        for n, moving in ((5, False), (4, True), (9, True)):
            with self.subTest(n=n, moving=moving):
                self.unbiased(n, moving)

    def unbiased(self, n, moving):
        chance = np.random.default_rng(1)
        population = Population(3, chance, pull=1.0, moving=moving)
        S, T = population.truth(n)
        drawn = [population.draw(n, chance) for _ in range(20000)]
        found = np.array([audit.moments(r, G[None]) for r, G in drawn])[:, :, 0]
        error = found.std(0) / np.sqrt(len(found))
        self.assertLess((np.abs(found.mean(0) - [S, T]) / error).max(), 4.5)
        r, G = drawn[0]
        whole = audit.moments(r, G.sum((0, 1))[None, None, None])
        np.testing.assert_allclose([x.sum() for x in audit.moments(r, G[None])], [x.sum() for x in whole], atol=1e-12)
        mixed = np.array([audit.moments(chance.permutation(r), G[None])[0].sum() for r, G in drawn])
        self.assertLess(abs(mixed.mean()) / mixed.std() * np.sqrt(len(mixed)), 4)

    def test_one_reward_differs(self):
        """Such a prompt says nothing, to the last bit: what rounding leaves would be all that an audit of them has. Neither
        the size of the rewards nor what is added to them changes the sums."""
        chance = np.random.default_rng(3)
        population = Population(20, chance, pull=1.5)
        for n in range(4, 12):
            for scale, shift in ((1, 0), (-1, 0), (0.1, 0), (0.3, 0.7), (1e30, 0), (1e-30, 0), (0.1, 1000)):
                with self.subTest(n=n, scale=scale, shift=shift):
                    a = audit.Audit(PARTS, SCHEMES)
                    for _ in range(12):
                        rewards = np.float32(scale * (np.arange(n) == chance.integers(n)) + shift)
                        a.add(rewards, population.draw(n, chance)[1])
                    self.assertEqual(a.shrunk(), dict.fromkeys(PARTS, 1.0))
                    report = a.report()
                    self.assertEqual((report.verdict, str(report.parts[0].signal), report.signal.value), ("more", "not known", 0))
        rewards, grams = population.draw(8, chance)
        for n in (3, 8):
            for scale, shift in ((1e30, 0), (1e-30, 0), (1, 1000)):
                want = audit.moments(rewards[:n], grams[None, ..., :n, :n])
                found = audit.moments(rewards[:n] * scale + shift, grams[None, ..., :n, :n])
                for x, y in zip(want, found):
                    np.testing.assert_allclose(y / scale**2, x, rtol=1e-9, atol=1e-9)

    def test_merge(self):
        """Whatever the parts and their order, the report is the same to the last bit; left out prompts are counted."""
        chance = np.random.default_rng(2)
        population = Population(40, chance, pull=1.5)
        prompts = {f"q{i}": population.draw(6, chance) for i in range(40)}
        prompts["even"] = (np.ones(6), prompts["q0"][1])
        prompts["few"] = (np.array([1, 0, np.nan, np.nan, np.nan, np.nan]), prompts["q0"][1])
        whole = audit.Audit(PARTS, SCHEMES)
        for key, (r, G) in prompts.items():
            whole.add(r, G, key=key)
        report = whole.report()
        self.assertEqual(len(whole), 42)
        for _ in range(5):
            keys = chance.permutation(list(prompts)).tolist()
            parts = [audit.Audit(PARTS, SCHEMES) for _ in range(3)]
            for i, key in enumerate(keys):
                parts[i % 3].add(*prompts[key], key=key)
            for other in parts[1:]:
                parts[0].merge(other)
            self.assertEqual(parts[0].report(), report)
        with self.assertRaisesRegex(reweight.InputError, "which is here too"):
            whole.merge(parts[0])
        with self.assertRaisesRegex(reweight.InputError, "has parts"):
            whole.merge(audit.Audit(("action", "rest")))

    def test_advice(self):
        """Signal in one part of three, and all alike; with few prompts there is none."""
        chance = np.random.default_rng(3)

        def report(pull, prompts, n=8, schemes=None):
            population = Population(200, np.random.default_rng(4), pull)
            a = audit.Audit(PARTS, schemes)
            for _ in range(prompts):
                a.add(*population.draw(n, chance))
            return a.report()

        good = report(3, 300)
        self.assertEqual(good.verdict, "use")
        self.assertIn("Use these weights: action 1.00, tags 0.", good.advice)
        self.assertEqual(report(3, 9).verdict, "more")
        self.assertEqual(report(0.4, 400, 64).verdict, "keep")
        few = report(0.4, 12)
        self.assertEqual(few.verdict, "more")
        self.assertRegex(few.advice, r"Not enough prompts for advice: \d+ have different rewards, and about \d+ would be needed\.")

    def test_shrunk(self):
        """Weights to train with: the best ones with many prompts, and close to 1 where chance decides; in 0 to 2, and 1 for
        a part without tokens."""
        population = Population(300, np.random.default_rng(0), pull=3)
        chance = np.random.default_rng(5)
        S, T = population.truth(8)
        best = np.linalg.solve(S + (T - S) / 8, S.sum(1))
        for prompts, within in ((1500, 0.15), (20, 2)):
            a = audit.Audit(PARTS)
            for _ in range(prompts):
                a.add(*population.draw(8, chance))
            w = a.shrunk()
            self.assertEqual((list(w), w["action"]), (list(PARTS), 1.0))
            self.assertLess(np.abs(np.array([*w.values()]) - np.clip(best / best[0], 0, 2)).max(), within)
            self.assertEqual(w, a.shrunk())  # drawn alike each time
            raw = np.array([p.best.value for p in a.report().parts])
            self.assertTrue((np.abs(np.array([*w.values()]) - 1) <= np.abs(np.clip(raw, 0, 2) - 1) + 1e-9).all() or (raw < 0).any())
        away = []
        for seed in range(12):  # no signal at all
            chance, a = np.random.default_rng(seed), audit.Audit(PARTS)
            for _ in range(30):
                r, G = population.draw(8, chance)
                a.add(chance.permutation(r), G)
            away.append([abs(x - 1) for x in list(a.shrunk().values())[1:]])
        self.assertLess(np.mean(away), 0.5)
        a = audit.Audit(PARTS)
        for _ in range(30):
            r, G = population.draw(8, chance)
            G[1], G[:, 1] = 0, 0
            a.add(r, G)
        self.assertEqual(a.shrunk()["tags"], 1)
        report = a.report()  # and no best weight, which would be advice about nothing
        self.assertEqual((report.weights["tags"], str(report.parts[1].best)), (1.0, "not known"))
        self.assertEqual((report.verdict, report.advice[:49]), ("use", "Use these weights: action 1.00, tags 1.00, reason"))
        a = audit.Audit(PARTS)
        for _ in range(30):
            r, G = population.draw(8, chance)
            G[0], G[:, 0] = 0, 0
            a.add(r, G)
        self.assertEqual(a.shrunk(), dict.fromkeys(PARTS, 1.0))

    def test_zero(self):
        """The weight of a part that is left out is 0, not -0."""
        chance = np.random.default_rng(0)
        m = chance.normal(size=(50, 6, 9))
        w = audit._positive(chance.normal(size=(50, 6)), m @ m.transpose(0, 2, 1))
        self.assertTrue((w == 0).any())
        self.assertFalse(np.signbit(w).any())

    def test_json(self):
        """The file for `reweight show` has the sums of each prompt, and all that the report says; the golden audits of Go
        are not stale."""
        for case in golden("audit.json"):
            file = case["file"]
            sums = file.pop("audit")
            schemes = {s["name"]: s["weights"] for s in sums["schemes"]}
            a = audit.Audit(sums["parts"], schemes, sums["directions"], sums["layers"])
            for p in sums["prompts"]:
                key, answers = p.pop("key"), p.pop("answers")
                a._prompts[key] = audit._Prompt(answers, **{name: np.array(x) for name, x in p.items()})
            a._left_out = {str(i): "" for i in range(sums["left_out"])}
            again = json.loads(a.as_json())
            np.testing.assert_equal(again.pop("audit")["parts"], sums["parts"])
            self.near(again, file, case["name"])
            self.assertEqual(str(a.report()), case["text"])
        one = audit.Audit(PARTS)
        one.add([1, 0, 0], np.ones((3, 3, 3, 3)), key="q")
        self.assertEqual(list(json.loads(one.as_json())), ["audit"])

    def near(self, got, want, what):
        self.assertIs(type(got), type(want), what)
        if isinstance(want, dict):
            self.assertEqual(list(got), list(want), what)
        if isinstance(want, (dict, list)):
            self.assertEqual(len(got), len(want), what)
            for key in want if isinstance(want, dict) else range(len(want)):
                self.near(got[key], want[key], f"{what} {key}")
        elif isinstance(want, float):
            self.assertLess(abs(got - want), 1e-7 * max(1, abs(want)), what)
        else:
            self.assertEqual(got, want, what)

    def test_files(self):
        """What save has written is loaded; anything else is an error."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "audit.npz"
            empty = audit.Audit(PARTS, SCHEMES)
            empty.save(path)
            self.assertEqual(len(empty.load(path)), 0)
            full = audit.Audit(PARTS, SCHEMES)
            for key in "ab":
                full.add([1, 0, 0, 1], np.random.default_rng(0).normal(size=(3, 3, 4, 4)), key=key)
            full.save(path)
            self.assertEqual(full.load(path).report(), full.report())
            with self.assertRaisesRegex(reweight.InputError, r"path is .*, whose audit has parts"):
                audit.Audit(("a", "b", "c"), SCHEMES).load(path)
            with np.load(path) as file:
                good = dict(file)
            head = json.loads(str(good["head"]))
            for bad in (
                {**good, "head": np.array("[]")},
                {**good, "head": np.array(json.dumps({**head, "schemes": 3}))},
                {**good, "head": np.array(json.dumps({**head, "parts": "a"}))},
                {**good, "head": np.array(json.dumps({k: x for k, x in head.items() if k != "keys"}))},
                {**good, "S": good["S"][:1]},
                {**good, "T": good["T"][..., :1]},
                {"x": good["S"]},
            ):
                np.savez(path, **bad)
                with self.assertRaisesRegex(reweight.InputError, "which is no audit"):
                    full.load(path)
            with open(path, "wb") as file:
                np.save(file, good["S"])
            with self.assertRaisesRegex(reweight.InputError, "which is no audit"):
                full.load(path)

    def test_nothing_there(self):
        """Gradients that are all 0 give no weights and no advice, and no warning."""
        a = audit.Audit(PARTS, SCHEMES, layers=("1", "2"))
        for _ in range(12):
            a.add([1, 0, 0, 1], np.zeros((2, 3, 3, 4, 4)))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            r = a.report()
            self.assertEqual(r.weights, dict.fromkeys(PARTS, 1.0))
            self.assertEqual(r.verdict, "more")
            self.assertNotIn("nan", f"{r}{r.html()}")

    def test_how_many_more(self):
        """As many as the interval needs to be above 1, or below what is worth a change."""
        for value, low, high, want in ((1.1, 0.9, 1.3, 400), (1.03, 0.83, 1.23, 10000), (1.0, 0.8, 1.2, 1600), (0.95, 0.7, 1.2, 625)):
            found = audit.Efficiency("", audit.Interval(value, low, high), {})
            verdict, advice = audit._advice({}, found, 100, 8.0)
            self.assertEqual(verdict, "more")
            self.assertAlmostEqual(int(advice.split()[-4]), want, delta=1)

    def test_errors(self):
        def grams(n=4, parts=3):
            return np.zeros((parts, parts, n, n))

        a = audit.Audit(PARTS)
        a.add([1, 0, 0, 1], grams(), key="a")
        for call, problem in (
            (lambda: audit.Audit(()), "parts is ()"),
            (lambda: audit.Audit(("a", "a")), "parts is ('a', 'a'), want different names"),
            (lambda: audit.Audit(("a", "b"), directions=("a",)), "want different names"),
            (lambda: audit.Audit(PARTS, layers=("1", "1")), "layers is"),
            (lambda: audit.Audit(PARTS, {"x": (1, 2)}), "schemes has 2 weights for 'x', want 3"),
            (lambda: audit.Audit(PARTS, {"x": (0, 0, 0)}), "want finite ones, not all 0"),
            (lambda: audit.Audit(PARTS, {"x": (1, 1, np.nan)}), "want finite ones"),
            (lambda: a.add([[1, 0]], grams()), "rewards has 2 dimensions"),
            (lambda: a.add([1, 0, 1], grams()), "grams has the shape [1, 3, 3, 4, 4], want [1, 3, 3, 3, 3]"),
            (lambda: a.add([1, 0, 0, 1], grams() * np.nan), "not finite"),
            (lambda: a.add([1, 0, np.inf, 1], grams()), "infinite"),
            (lambda: a.add([1, 0, 0, 1], grams(), [1, 2]), "tokens has the shape [2], want [3]"),
            (lambda: a.add([1, 0, 0, 1], grams(), key="a"), "key is 'a', which was added before"),
            (lambda: a.report(), "prompts are 1 with different rewards, of 1"),
        ):
            with self.subTest(problem), self.assertRaises(reweight.InputError) as caught:
                call()
            self.assertIn(problem, str(caught.exception))
        self.assertEqual(len(a), 1)


SIZES = dict(vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)  # fmt: skip


if torch:

    class Odd(torch.nn.Module):
        """Writes over what a linear layer has computed, and over what one has taken that does not train; has a linear layer
        whose input is a constant, one that changes nothing, and one that is called twice."""

        def __init__(self):
            super().__init__()
            self.up, self.down, self.aside, self.of_constant, self.frozen, self.low, self.high = (
                torch.nn.Linear(*s) for s in ((32, 48), (48, 32), (32, 32), (1, 32), (32, 48), (32, 4), (4, 32))
            )
            self.frozen.requires_grad_(False)

        def forward(self, x):
            self.aside(x), self.aside(torch.eye(32))  # as DoRA takes the weights of its adapters
            z = 2 * x
            y = self.up(x).relu_() + self.frozen(input=z)
            y = y + self.up(z.tanh_()).tanh_()
            return self.down(y) + self.of_constant(x.new_ones(*x.shape[:2], 1)) * x + self.high(self.low(x))

    class Changed(torch.nn.Module):
        """Doubles a weight while it is used, as PEFT adds to weights of experts."""

        def __init__(self, mlp):
            super().__init__()
            self.mlp, self.twice = mlp, torch.nn.Identity()
            self.twice.forward = lambda weight: 2 * weight
            mlp.up_proj.requires_grad_(False)

        def forward(self, x):
            torch.nn.utils.parametrize.register_parametrization(self.mlp.up_proj, "weight", self.twice)
            y = self.mlp(x)
            torch.nn.utils.parametrize.remove_parametrizations(self.mlp.up_proj, "weight", leave_parametrized=False)
            return y

    class Before(torch.nn.Module):
        """Takes the token before as well, of which a cache of keys and values knows nothing."""

        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x) + torch.nn.functional.pad(x, (0, 0, 1, 0))[:, :-1]


@unittest.skipUnless(torch, "needs PyTorch and transformers")
class Gradients(unittest.TestCase):
    def models(self):
        t = transformers
        torch.manual_seed(0)
        yield "llama", t.LlamaForCausalLM(t.LlamaConfig(**SIZES))
        yield "qwen2, biases", t.Qwen2ForCausalLM(t.Qwen2Config(**SIZES, tie_word_embeddings=True))
        yield "gemma2, softcap, windows", t.Gemma2ForCausalLM(t.Gemma2Config(
            **SIZES, head_dim=8, final_logit_softcapping=3.0, sliding_window=4))  # fmt: skip
        yield "granite, scaled logits", t.GraniteForCausalLM(t.GraniteConfig(**SIZES, logits_scaling=4.0))
        yield "cohere, logit_scale", t.CohereForCausalLM(t.CohereConfig(**SIZES, logit_scale=0.25))
        yield "gpt2, Conv1D", t.GPT2LMHeadModel(t.GPT2Config(vocab_size=97, n_positions=64, n_embd=32, n_layer=3, n_head=4))
        yield "opt, rows of all answers", t.OPTForCausalLM(t.OPTConfig(
            vocab_size=97, hidden_size=32, ffn_dim=48, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=64,
            word_embed_proj_dim=32))  # fmt: skip
        experts = dict(num_experts=4, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
        yield "qwen2_moe, experts", t.Qwen2MoeForCausalLM(t.Qwen2MoeConfig(**SIZES, **experts, shared_expert_intermediate_size=16))
        yield "phimoe, a router with two results", t.PhimoeForCausalLM(t.PhimoeConfig(**SIZES, **experts))
        model = t.LlamaForCausalLM(t.LlamaConfig(**SIZES))
        for block in model.model.layers:
            block.mlp = Odd()
        yield "odd blocks", model
        yield "opt, another width at the head", t.OPTForCausalLM(t.OPTConfig(
            vocab_size=97, hidden_size=32, ffn_dim=48, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=64,
            word_embed_proj_dim=16, do_layer_norm_before=False))  # fmt: skip
        model = t.LlamaForCausalLM(t.LlamaConfig(**SIZES))
        zero, one, two = model.model.layers
        zero.mlp = Changed(zero.mlp)
        one.mlp.up_proj.register_forward_hook(lambda m, args, y: 2 * y + args[0].sum(-1, keepdim=True))
        one.mlp.gate_proj.register_forward_pre_hook(lambda m, args: args[0] * 3)
        one.mlp.down_proj.requires_grad_(False).register_forward_hook(lambda m, args, y: y + args[0].mean(-1, keepdim=True))
        two.self_attn.k_proj.requires_grad_(False).forward = lambda x, f=two.self_attn.k_proj.forward: f(x) + x[..., :16]
        torch.nn.utils.parametrizations.weight_norm(two.self_attn.o_proj)
        mlp = two.mlp.forward
        two.mlp.forward = lambda x: torch.utils.checkpoint.checkpoint(mlp, x, use_reentrant=False)
        yield "layers that do more", model

    def answers(self, n=5):
        """Answers of different lengths to one prompt, some with a masked stretch, one without an action, two of the
        same tokens with other labels and weights, and two that differ in the last token."""
        chance = np.random.default_rng(5)
        prompt = chance.integers(1, 97, 6)
        ids, labels, more = [], [], []
        for i in range(n):
            length = 5 + 2 * i
            ids.append(np.concatenate([prompt, chance.integers(1, 97, length)]))
            label = chance.choice([2, 2, 1, 0, -1], length)
            if i == 1:
                label[label == 0] = 2
            labels.append(np.concatenate([np.full(6, -1), label]))
            more.append(chance.random(6 + length))
        ids[0], labels[0], more[0] = ids[3], np.append(np.where(labels[3] == 0, 1, labels[3])[:-1], -1), more[3][::-1].copy()
        ids[2] = np.append(ids[4][:-1], ids[4][-1] % 96 + 1)
        labels[2], more[2] = labels[4], more[4]
        return ids, labels, more

    def plain(self, model, ids, labels, more, blocks, temperature):
        """The same with a backward pass of PyTorch's own for each answer and part."""
        found = {i: [] for i in blocks}
        lists = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList)]
        for row, label, weight in zip(ids, labels, more):
            for p in range(4):
                model.zero_grad()
                logits = model(input_ids=torch.tensor(row)[None]).logits[0, :-1].double() / temperature
                logp = torch.log_softmax(logits, -1).gather(1, torch.tensor(row[1:])[:, None])[:, 0]
                w = np.where(label >= 0, weight, 0) if p == 3 else label == p
                (logp * torch.tensor(w[1:])).sum().backward()
                for i in blocks:
                    mine = [m for m in lists[0][i].modules() if isinstance(m, torch.nn.Linear) or type(m).__name__ == "Conv1D"]
                    mine = [m for m in mine if "Router" not in type(m).__name__]
                    grads = [q.new_zeros(q.shape) if q.grad is None else q.grad for m in mine for q in m.parameters(False) if q.requires_grad]
                    found[i].append(torch.cat([q.reshape(-1).double() for q in grads]))
        n = len(ids)
        for i, rows in found.items():
            v = torch.stack(rows)
            yield (v @ v.T).reshape(n, 4, n, 4).permute(1, 3, 0, 2)

    def test_plain_autograd(self):
        ids, labels, more = self.answers()
        padded = np.array([np.pad(row, (0, 19 - len(row))) for row in more])
        for name, model in self.models():
            for layers, temperature, shares in ((None, 1.0, None), ([0, 2], 0.7, False)):
                with self.subTest(name, layers=layers):
                    model.eval()  # without dropout, which the audit has not either
                    trains = [p.requires_grad for p in model.parameters()]
                    view = gradients.Gradients(model, layers, temperature=temperature)
                    view._sharing = shares
                    said = []
                    found = view.grams(ids, labels, 3, lambda a: said.append(a) or [padded])
                    for i, want in enumerate(self.plain(model, ids, labels, more, view.layers, temperature)):
                        torch.testing.assert_close(found[i], want, rtol=2e-4, atol=1e-4 * float(want.abs().max()))
                    self.assertEqual(view._sharing, shares is None)  # the prompt is passed once if it may be
                    self.assertEqual([p.requires_grad for p in model.parameters()], trains)
                    for b, row in enumerate(ids):
                        z = model(input_ids=torch.tensor(row)[None]).logits[0, :-1].detach()
                        drawn = labels[b][1:] >= 0
                        logp = torch.log_softmax(z / temperature, -1).gather(1, torch.tensor(row[1:])[:, None])[:, 0]
                        torch.testing.assert_close(said[0].logprobs[b, 1 : len(row)][drawn], logp[drawn], rtol=1e-4, atol=1e-5)
                        torch.testing.assert_close(said[0].energy[b, 1 : len(row)][drawn], -z.logsumexp(-1)[drawn], rtol=1e-4, atol=1e-5)
                        self.assertFalse(torch.stack(said[0])[:, b, 1 : len(row)][:, ~drawn].any())

    def test_views(self):
        """Views without backward passes: by the head's weight alone, and by a vector that is added to its input."""
        ids, labels, more = self.answers()
        padded = np.array([np.pad(row, (0, 19 - len(row))) for row in more])
        names = ("llama", "qwen2, biases", "gemma2, softcap, windows", "cohere, logit_scale", "opt, rows of all answers")
        models = [(name, model.eval()) for name, model in self.models() if name in names]
        models[0][1].lm_head.bias = torch.nn.Parameter(torch.randn(97))
        for (name, model), temperature in zip(models, (0.7, 1, 1, 1, 1)):
            want = {"head": [], "hidden": []}
            for row, label, weight in zip(ids, labels, more):
                ends = []

                def keep(module, args, ends=ends):
                    ends.append(args[0].detach().requires_grad_())
                    return ends[0]

                hook = model.lm_head.register_forward_pre_hook(keep)
                logits = model(input_ids=torch.tensor(row)[None]).logits[0, :-1].double() / temperature
                hook.remove()
                logp = torch.log_softmax(logits, -1).gather(1, torch.tensor(row[1:])[:, None])[:, 0]
                for p in range(4):
                    w = np.where(label >= 0, weight, 0) if p == 3 else label == p
                    g, h = torch.autograd.grad(logp @ torch.tensor(w[1:]).double(), [model.lm_head.weight, ends[0]], retain_graph=True)
                    want["head"].append(g.flatten().double())
                    want["hidden"].append(h[0].sum(0).double())
            for view, rows in want.items():
                v = torch.stack(rows)
                gram = (v @ v.T).reshape(5, 4, 5, 4).permute(1, 3, 0, 2)[None]
                for most in (2000, 1 << 24):  # slices of the vocabulary, and all at once
                    with self.subTest(name, view=view, most=most), mock.patch.object(gradients, "SLICE", most):
                        it = gradients.Gradients(model, temperature=temperature, view=view)
                        self.assertEqual(it.names, [view])
                        found = it.grams(ids, labels, 3, lambda _: [padded])
                        torch.testing.assert_close(found, gram, rtol=2e-4, atol=1e-4 * float(gram.abs().max()))
                for dtype in (torch.bfloat16, torch.float16):
                    with self.subTest(name, view=view, dtype=dtype):
                        it = gradients.Gradients(copy.deepcopy(model).to(dtype), temperature=temperature, view=view)
                        found = it.grams(ids, labels, 3, lambda _: [padded])
                        self.assertLess(float((found - gram).norm() / gram.norm()), 0.05)
        for labelled in (labels[:2] + [np.full(len(row), -1) for row in ids[2:]], [np.full(len(row), -1) for row in ids]):
            for view in ("head", "hidden"):
                found = gradients.Gradients(models[0][1], view=view).grams(ids, labelled, 3)
                self.assertEqual(bool(found.any()), labelled[0].max() >= 0)
                self.assertFalse(found[..., 2, :].any())

    def test_prompts(self):
        """Prompts that differ, at once or later; no prompt but one token; and a model that cannot share it."""
        ids, labels, more = self.answers()
        padded = np.array([np.pad(row, (0, 19 - len(row))) for row in more])
        _, model = next(self.models())
        _, other = next(self.models())
        for block in other.model.layers:
            block.mlp = Before(block.mlp)
        model.eval()
        early = [label.copy() for label in labels]
        early[1][1] = 0
        for name, it, at, labels, want, passed in (
            ("late", model, 3, labels, True, 3),
            ("at once", model, 0, labels, True, 0),
            ("early", model, 4, early, True, 0),
            ("not shared", other.eval(), 3, labels, False, 0),
        ):
            with self.subTest(name):
                changed = [row.copy() for row in ids]
                changed[2][at] += 1
                view = gradients.Gradients(it)
                with mock.patch.object(gradients, "_keys", side_effect=gradients._keys) as keys:
                    found = view.grams(changed, labels, 3, lambda _: [padded])
                self.assertEqual(view._sharing, want)
                self.assertEqual(keys.call_count, 1 + (passed > 0))  # one to try it
                for i, gram in enumerate(self.plain(it, changed, labels, more, view.layers, 1.0)):
                    torch.testing.assert_close(found[i], gram, rtol=2e-4, atol=1e-4 * float(gram.abs().max()))

    def test_passes(self):
        """A direction with one weight for all tokens of a part of an answer needs no backward pass, and is the same."""
        ids, labels, _ = self.answers()
        _, model = next(self.models())
        view = gradients.Gradients(model.eval(), [1])
        longest = max(map(len, ids))
        mark = np.array([np.pad(row, (0, longest - len(row)), constant_values=-1) for row in labels])
        factors = np.random.default_rng(6).normal(size=(len(ids), 3))
        alike = np.where(mark >= 0, np.take_along_axis(factors, np.maximum(mark, 0), 1), 0)
        other = alike.copy()
        other[3:][mark[3:] == 2] *= np.random.default_rng(7).random((mark[3:] == 2).sum())
        parts = [torch.tensor(mark == p).float() for p in range(3)]
        for given, passes in ((alike, 3), (other, 4)):
            found, _ = gradients._passes(parts, [torch.tensor(given).float()])
            self.assertEqual(len(found), passes)
            self.assertFalse(found[3:] and found[3][:3].any())
        found = view.grams(ids, labels, 3, lambda _: [alike, other])
        with mock.patch.object(gradients, "_passes", lambda p, d: (p + d, torch.eye(5, dtype=torch.float64)[:, :, None].repeat(1, 1, 5))):
            want = view.grams(ids, labels, 3, lambda _: [alike, other])
        torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5 * float(want.abs().max()))

    def test_what_trains(self):
        """Only parameters that require a gradient count, as with adapters; all, where none does."""
        ids, labels, more = self.answers()
        _, model = next(self.models())
        for p in model.parameters():
            p.requires_grad_(False)
        everything = gradients.Gradients(model).grams(ids, labels, 3)
        for p in model.model.layers[1].mlp.parameters():
            p.requires_grad_(True)
        view = gradients.Gradients(model)
        said = [np.array([np.pad(row, (0, 19 - len(row))) for row in more])]
        with mock.patch.object(view, "_through", wraps=view._through) as through:
            (found,) = view.grams(ids, labels, 3, lambda _: said)
        self.assertEqual((view.names, view.counted), (["1"], 3 * 32 * 48))
        self.assertLess(through.call_count, 5)  # no block below it, and each of two for answers and prompt
        torch.testing.assert_close(found, next(self.plain(model, ids, labels, more, [1], 1.0)), rtol=2e-4, atol=1e-2)
        both = gradients.Gradients(model, [0, 1]).grams(ids, labels, 3, lambda _: said)
        self.assertFalse(both[0].any())
        torch.testing.assert_close(both[1], found)
        model = dict(self.models())["qwen2, biases"]
        for name, p in model.named_parameters():
            p.requires_grad_(name.endswith("layers.1.self_attn.q_proj.bias"))
        view = gradients.Gradients(model, [1])
        self.assertEqual(view.counted, 32)
        want = next(self.plain(model, ids, labels, more, [1], 1.0))[:3, :3]
        torch.testing.assert_close(view.grams(ids, labels, 3)[0], want, rtol=2e-4, atol=1e-4 * float(want.abs().max()))
        self.assertTrue((everything[1].diagonal(dim1=2, dim2=3).sum() > found[:3, :3].diagonal(dim1=2, dim2=3).sum()))

    def test_ways_to_train(self):
        """The same in 16 bits, from a model in training, with checkpoints and inputs that require gradients, and from
        code that wants no gradients. The model is left as it was."""
        ids, labels, _ = self.answers()
        _, model = next(self.models())
        want = gradients.Gradients(model.eval()).grams(ids, labels, 3)
        model.config.attention_dropout = 0.5
        model.train().gradient_checkpointing_enable()
        model.enable_input_require_grads()
        with torch.no_grad():
            view = gradients.Gradients(model)
            given, *_ = view._forward(torch.ones(1, 4, dtype=torch.int64), torch.ones(1, 4, dtype=torch.int64))
            self.assertFalse(any(args[0].requires_grad for args, _ in given[1:]))  # no graph of the whole model
            torch.testing.assert_close(view.grams(ids, labels, 3), want)
        self.assertTrue(all(m.training for m in model.modules()))
        self.assertFalse(any(m._forward_hooks or m._forward_pre_hooks for m in model.model.layers.modules()))
        for dtype in (torch.bfloat16, torch.float16):
            found = gradients.Gradients(model.to(dtype)).grams(ids, labels, 3)
            self.assertLess(float((found - want).norm() / want.norm()), 0.05)

    def test_around_it(self):
        """Under autocast, whose rounding is that of the model alone, and in inference mode."""
        ids, labels, _ = self.answers()
        _, model = next(self.models())
        for kind in gradients.VIEWS:
            view = gradients.Gradients(model.eval(), view=kind)
            want = view.grams(ids, labels, 3)
            with torch.inference_mode():
                torch.testing.assert_close(view.grams(ids, labels, 3), want)
            with torch.autocast("cpu", torch.bfloat16):
                found = view.grams(ids, labels, 3)
            self.assertLess(float((found - want).norm() / want.norm()), 0.05)

    def test_passes_after_others(self):
        """Passes are the same whether they go back at once or after one another."""
        ids, labels, _ = self.answers()
        for _, model in list(self.models())[:2]:
            view = gradients.Gradients(model.eval())
            want = view.grams(ids, labels, 3)
            for most in (1, 40):
                with mock.patch.object(gradients, "TOKENS", most):
                    found = view.grams(ids, labels, 3)
                torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5 * float(want.abs().max()))

    def test_memory(self):
        """Of layers that do not count no gradients are held once they are passed on."""
        _, model = next(self.models())
        model.requires_grad_(False).model.layers[1].self_attn.q_proj.requires_grad_(True)
        held = []

        def kept(*args):
            held.append(back(*args))
            return held[-1]

        back, (ids, labels, _) = gradients._back, self.answers()
        with mock.patch.object(gradients, "_back", kept):
            gradients.Gradients(model, [1, 2]).grams(ids, labels, 3)
        self.assertEqual([len(found) for found in held], [3, 1, 3, 1])  # by the input, keys and values, and of q_proj

    def test_weights_that_are_not_called(self):
        """A weight that is used without its layer counts no more, and nothing else changes. Blocks that do not count may share
        weights, and frozen ones."""
        ids, labels, more = self.answers()
        _, model = next(self.models())
        _, one, two = model.model.layers
        gate = one.mlp.gate_proj
        one.mlp.forward = lambda x: one.mlp.down_proj(torch.nn.functional.linear(x, gate.weight))
        view = gradients.Gradients(model.eval(), [1])
        before = view.counted
        (found,) = view.grams(ids, labels, 3)
        self.assertEqual(before - view.counted, gate.weight.numel())
        gate.requires_grad_(False)
        (want,) = self.plain(model, ids, labels, more, [1], 1.0)
        torch.testing.assert_close(found, want[:3, :3], rtol=2e-4, atol=1e-4 * float(want.abs().max()))
        two.mlp.up_proj.weight = model.model.layers[0].mlp.up_proj.weight
        gradients.Gradients(model, [1]).grams(ids, labels, 3)
        two.mlp.requires_grad_(False)
        view = gradients.Gradients(model)
        view.grams(ids, labels, 3)
        two.mlp.up_proj.weight = torch.nn.Parameter(torch.zeros(48, 32))
        with self.assertRaisesRegex(reweight.InputError, "model has other parameters"):
            view.grams(ids, labels, 3)

    def test_nothing_drawn(self):
        """Answers without labelled tokens have no gradient."""
        ids, labels, _ = self.answers()
        view = gradients.Gradients(next(self.models())[1])
        self.assertFalse(view.grams(ids, [np.full(len(row), -1) for row in ids], 3, lambda a: [a.entropy]).any())
        labels[2] = np.full(len(ids[2]), -1)
        found = view.grams(ids, labels, 3)
        self.assertFalse(found[..., 2, :].any() or found[..., :, 2].any())
        self.assertTrue(found[..., 1, 3].any())

    def test_models_it_cannot_take(self):
        """What it would compute wrongly, it does not compute."""
        ids, labels, _ = self.answers()
        t = transformers
        shared = t.Gemma3nForCausalLM(t.Gemma3nTextConfig(
            **SIZES, head_dim=8, vocab_size_per_layer_input=97, hidden_size_per_layer_input=8, num_kv_shared_layers=1, laurel_rank=4,
            altup_num_inputs=2, layer_types=["sliding_attention", "full_attention", "full_attention"],
            activation_sparsity_pattern=[0.0] * 3))  # fmt: skip
        models = [next(self.models())[1] for _ in range(10)]
        forward = models[0].forward

        def scaled(*args, **options):
            out = forward(*args, **options)
            out.logits = 2 * out.logits
            return out

        models[0].forward = scaled
        models[1].model.layers[1].register_forward_pre_hook(lambda m, args: (args[0] * 2,))
        for name, p in models[2].named_parameters():
            p.requires_grad_("norm" in name)
        models[3].model.layers[0].mlp.up_proj.to("meta")
        models[4].lm_head = torch.nn.Sequential(models[4].lm_head)
        blocks = [m.model.layers for m in models[5:]]
        blocks[0][2].mlp = blocks[0][0].mlp
        blocks[1][0].mlp.up_proj.weight = blocks[1][0].mlp.gate_proj.weight
        torch.nn.utils.prune.identity(blocks[2][1].mlp.up_proj, "weight")
        gate = models[9].requires_grad_(False).model.layers[1].mlp.gate_proj.requires_grad_(True)
        models[9].model.layers[1].mlp.forward = lambda x: torch.nn.functional.linear(x, gate.weight[:32])
        mlp = blocks[3][1].mlp.forward
        blocks[3][1].mlp.forward = lambda x: torch.utils.checkpoint.checkpoint(mlp, x, use_reentrant=True)
        for model, problem in (
            (shared, "model has blocks that share keys and values"),
            (models[0], "model computes its logits in another way"),
            (models[1], "model does not give each of its blocks what the one before"),
            (models[2], "model trains no linear layer"),
            (models[3], "model has parameters that are not in memory"),
            (models[4], "no linear layer, want its head"),
            (models[5], "has linear layers that share a weight"),
            (models[6], "has linear layers that share a weight"),
            (models[7], "has a linear layer with the parameters weight_orig, want its weight to be one"),
            (models[9], "trains no linear layer of these blocks that is called"),
            (models[8], "has a block through which PyTorch does not go back"),
        ):
            with self.subTest(problem), self.assertRaises(reweight.InputError) as caught:
                gradients.Gradients(model).grams(ids, labels, 3)
            self.assertIn(problem, str(caught.exception))

    def test_products(self):
        """With and without a prompt, of all sizes, in both ways and in slices: the same as from the gradients."""
        torch.manual_seed(1)
        answer = torch.tensor([0, 0, 1, 3, 3, 3])
        for P, T, width, out in ((0, 2, 64, 80), (0, 40, 8, 6), (3, 5, 6, 33), (6, 5, 6, 33), (9, 4, 6, 5), (1, 2, 1, 1), (40, 3, 64, 8)):
            x0, x = torch.randn(P, width), torch.randn(4, T, width)
            g0, g = ([torch.randn(6, tokens, size) for size in (out, 7)] for tokens in (P, T))
            for of in g:
                of[:, T // 2 + 1 :][::2] = 0  # behind the last token of a part
            want = torch.zeros(6, 6, dtype=torch.float64)
            for of_prompt, own in zip(g0, g):
                both = torch.cat([of_prompt, own], 1).double(), torch.cat([x0.expand(6, P, width), x[answer]], 1).double()
                v = torch.einsum("rto,rti->roi", *both).flatten(1)
                want += v @ v.T
            for most in (1, 1 << 24):
                with mock.patch.multiple(gradients, SLICE=most, PAIRS=min(most, 7)):
                    torch.testing.assert_close(gradients.products(x0, g0, x, g, answer), want, rtol=1e-4, atol=2e-3)
                    if not P:
                        there, none = torch.stack([of.any(2) for of in g]).any(0), [of[:, :0] for of in g]
                        for found in (gradients._of_pairs(x, g, answer, there), gradients._of_slices(x[0, :0], none, x, g, answer)):
                            torch.testing.assert_close(found, want, rtol=1e-4, atol=2e-4)

    def test_errors(self):
        ids, labels, _ = self.answers()
        _, model = next(self.models())
        view = gradients.Gradients(model)
        for call, problem in (
            (lambda: gradients.Gradients(torch.nn.Linear(2, 2)), "has no nn.ModuleList"),
            (lambda: gradients.Gradients(model, [3]), "layers has 3, want -3 to 2"),
            (lambda: gradients.Gradients(model, []), "layers is empty"),
            (lambda: gradients.Gradients(model, view="heads"), "view is 'heads', want one of full, hidden, head"),
            (lambda: gradients.Gradients(model, [1], view="head"), "layers are given, but the view head is of no blocks"),
            (lambda: view.grams(ids, labels[1:], 3), "labels has another shape"),
            (lambda: view.grams(ids, [np.maximum(x, 0) for x in labels], 3), "labels counts the first token"),
            (lambda: view.grams(ids, labels, 2), "labels has -1 to 2, want -1 to 1"),
            (lambda: view.grams([x + 50 for x in ids], labels, 3), "ids has"),
            (lambda: view.grams([], [], 3), "ids has no tokens"),
            (lambda: view.grams([row + 0.5 for row in ids], labels, 3), "ids has other things than lists of integers"),
            (lambda: view.grams([[row] for row in ids], [[row] for row in labels], 3), "ids has other things than lists"),
            (lambda: view.grams(ids, labels, 3, lambda a: [a.entropy[:, 1:]]), "directions gives the shape [5, 18], want [5, 19]"),
        ):
            with self.assertRaises(reweight.InputError) as caught:
                call()
            self.assertIn(problem, str(caught.exception))


@unittest.skipUnless(torch, "needs PyTorch and transformers")
class Command(unittest.TestCase):
    """python -m reweight audit, on a small model with a tokenizer of words."""

    WORDS = ["<end>", "<answer>", "</answer>", "so", "it", "is", "or", "red", "blue", "sky", "?"]

    @classmethod
    def setUpClass(cls):
        from tokenizers import Tokenizer, models, pre_tokenizers

        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(cls.WORDS)}, unk_token="<end>"))
        words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>").save_pretrained(cls.path / "model")
        torch.manual_seed(0)
        config = transformers.LlamaConfig(**{**SIZES, "vocab_size": len(cls.WORDS)}, eos_token_id=0, bos_token_id=0)
        transformers.LlamaForCausalLM(config).save_pretrained(cls.path / "model")
        chance = np.random.default_rng(8)
        lines = []
        for group in range(14):
            for k in range(6):
                thought = chance.integers(3, 7, chance.integers(1, 4)).tolist()
                answer = [7, 8, int(chance.integers(7, 9))][min(k, 2)]
                end = [[2, 0], [2], [0]][chance.integers(3)]
                reward = float(answer == 7) if group < 12 else 1.0
                lines.append({
                    "group_id": str(group), "reward": reward, "token_ids": [9, 10, *thought, 1, answer, *end],
                    "role": [0, 0, *[1] * len(thought), 1, 2, *[1] * len(end)],
                })  # fmt: skip
        (cls.path / "rollouts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_it(self, *arguments):
        """The command in this process, which has PyTorch loaded."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = _command.main([*map(str, arguments)])
        return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())

    def test_table(self):
        files = "--model", self.path / "model", self.path / "rollouts.jsonl"
        command = [sys.executable, "-m", "reweight", "audit", *map(str, files), "--out", str(self.path / "out")]
        whole = subprocess.run(command, capture_output=True, text=True, timeout=300)
        self.assertEqual(whole.returncode, 0, whole.stderr)
        for text in ("12 prompts with different rewards, 6 answers each; 2 others", "signal of reasoning", "alpha 0.3, tags 1", "aem"):
            self.assertIn(text, whole.stdout)
        found = json.loads((self.path / "out" / "audit.json").read_text())
        self.assertEqual([p["name"] for p in found["parts"]], ["action", "tags", "reasoning"])
        self.assertEqual(found["prompts"], 12)
        page = (self.path / "out" / "audit.html").read_text()
        self.assertEqual(page.count("<svg"), 2)
        ElementTree.fromstring("<x>" + page[page.index("<h1>") :] + "</x>")
        for view in ("hidden", "head"):
            first = self.run_it(*files, "--view", view).stdout
            self.assertIn(f"This is a first look, by the view {view}", first)
            self.assertNotIn("signal of reasoning", first)
        # In two runs, the second of which goes on where the first one ended.
        self.run_it(*files, "--out", self.path / "two", "--prompts", 5)
        second = self.run_it(*files, "--out", self.path / "two")
        self.assertEqual(second.stdout, whole.stdout)
        self.assertIn("14 of 14 prompts", second.stderr)
        # With fewer prompts, of those alone, and the others stay for later.
        few = self.run_it(*files, "--out", self.path / "two", "--prompts", 5)
        self.assertIn("5 prompts with different rewards", few.stdout)
        self.assertEqual(json.loads((self.path / "two" / "audit.json").read_text())["prompts"], 5)
        self.assertEqual(few.stdout, self.run_it(*files, "--prompts", 5).stdout)
        self.assertEqual(self.run_it(*files, "--out", self.path / "two").stdout, whole.stdout)
        # Nothing but the same rollouts and settings goes on.
        lines = (self.path / "rollouts.jsonl").read_text()
        (self.path / "others.jsonl").write_text(lines.replace('"reward": 1.0', '"reward": 0.5'))
        for changed, problem in (
            ([*files[:2], self.path / "others.jsonl"], "with an audit of other files, or by another model"),
            ([*files, "--temperature", 0.7], "with an audit of other files, or by another model"),
            ([*files, "--view", "head"], "whose audit has layers ('0', '1', '2'), want ('head',)"),
            ([*files, "--layers", "0,1"], "whose audit has layers ('0', '1', '2'), want ('0', '1')"),
            ([*files, "--schemes", "aem"], "whose audit has directions ('actfocus', 'aem'), want ('aem',)"),
        ):
            before = (self.path / "out" / "audit.npz").read_bytes()
            done = self.run_it(*changed, "--out", self.path / "out")
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn(problem, done.stderr)
            self.assertEqual((self.path / "out" / "audit.npz").read_bytes(), before)

    def test_odd_rollouts(self):
        """Answers without labelled tokens, and one alone to its prompt; all schemes of weights and factors."""
        lines = [json.loads(line) for line in (self.path / "rollouts.jsonl").read_text().splitlines()]
        for line in lines[:3]:
            line["role"] = [0] * len(line["role"])
        lines[-1]["group_id"] = "alone"
        (self.path / "odd.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        others = ("clip_v", "off_policy_mask", "rlsd")  # which read what the rollouts lack
        wanted = [e.name for e in reweight.schemes() if e.kind in ("weight", "factor") and e.name not in others]
        done = self.run_it("--model", self.path / "model", "--schemes", ",".join(wanted), "--prompts", 3, self.path / "odd.jsonl")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("3 prompts with different rewards", done.stdout)
        for name in wanted:
            self.assertRegex(done.stdout, rf"(?m)^{name} ")

    def test_action_tags(self):
        """Actions stand between the tags by what the tokenizer decodes, where a file has a mask, and neither roles nor texts."""
        by_mask, by_roles = [], []
        for line in map(json.loads, (self.path / "rollouts.jsonl").read_text().splitlines()):
            ids, role = line["token_ids"], line.pop("role")
            by_mask.append({**line, "mask": [int(x > 0) for x in role]})
            by_roles.append({**line, "role": [min(x, 1) if 2 not in ids[i:] else x for i, x in enumerate(role)]})
        outputs = []
        for name, lines, flags in (("mask", by_mask, ["--action-tags"]), ("roles", by_roles, []), ("both", by_roles, ["--action-tags"])):
            (self.path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
            done = self.run_it("--model", self.path / "model", "--view", "head", *flags, self.path / name)
            self.assertEqual(done.returncode, 0, done.stderr)
            outputs.append(done.stdout)
        self.assertEqual(outputs[0], outputs[1])
        self.assertEqual(outputs[0], outputs[2])
        self.assertRegex(outputs[0], r"(?m)^action +1\d\.\d% ")

    def test_empty_answers(self):
        """An answer without a token is one whose gradient is 0, wherever it stands."""
        lines = [json.loads(line) for line in (self.path / "rollouts.jsonl").read_text().splitlines()]
        outputs = []
        for name, change in ("empty", {"token_ids": [], "role": []}), ("masked", {"token_ids": [9, 10], "role": [0, 0]}):
            changed = [{**line, **change} if i % 6 == i // 6 % 3 else line for i, line in enumerate(lines)]
            (self.path / name).write_text("".join(json.dumps(line) + "\n" for line in changed))
            done = self.run_it("--model", self.path / "model", self.path / name)
            self.assertEqual(done.returncode, 0, done.stderr)
            outputs.append(re.sub(r"\d\.\d\d", lambda x: f"{float(x[0]):.1f}", done.stdout))
        self.assertEqual(*outputs)

    def test_wrong_use(self):
        model, file = self.path / "model", self.path / "rollouts.jsonl"
        (self.path / "other").mkdir(exist_ok=True)
        (self.path / "other" / "audit.npz").write_text("x")
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for name, change in (
            ("even", {"reward": 1.0}),
            ("foreign", {"token_ids": [11] * 8, "role": [0, 1, 1, 1, 1, 2, 1, 1]}),
            ("bare", {"token_ids": [3, 4, 1, 7, 2], "role": [1, 1, 1, 2, 1]}),
            ("masked", {"token_ids": [3, 4], "role": [0, 0]}),
            ("reasoning", {"token_ids": [9, 3, 4, 5], "role": [0, 1, 1, 1]}),
        ):
            (self.path / name).write_text("".join(json.dumps({**line, **change}) + "\n" for line in lines))
        shutil.copytree(model, self.path / "broken", dirs_exist_ok=True)
        (self.path / "broken" / "model.safetensors").write_text("x")
        shutil.copytree(model, self.path / "diverged", dirs_exist_ok=True)
        diverged = transformers.LlamaForCausalLM.from_pretrained(model)
        diverged.lm_head.weight.data[3] = float("nan")
        diverged.save_pretrained(self.path / "diverged")
        shutil.copytree(model, self.path / "short", dirs_exist_ok=True)
        config = transformers.GPT2Config(vocab_size=len(self.WORDS), n_positions=4, n_embd=8, n_layer=1, n_head=1)
        transformers.GPT2LMHeadModel(config).save_pretrained(self.path / "short")
        for arguments, problem in (
            (["--model", model, self.path / "none.jsonl"], "none.jsonl"),
            (["--model", self.path / "none", file], "which transformers does not load"),
            (["--model", model, "--layers", "0,x", file], "layers is '0,x', want numbers with commas between them"),
            (["--model", model, "--layers", "3", file], "layers has 3, want -3 to 2"),
            (["--model", model, "--layers", "1", "--view", "head", file], "layers are given, but the view head is of no blocks"),
            (["--model", model, "--view", "tail", file], "--view"),
            (["--model", model, "--schemes", "gae", file], "schemes has 'gae', want schemes of weights and factors"),
            (["--model", model, "--schemes", "nothing", file], "nothing"),
            (["--model", model, "--tags", "<a>", file], "tags is '<a>', want two texts"),
            (["--model", model, "--out", self.path / "other", file], "which is no audit"),
            (["--model", model, "--out", file, file], "which is no folder"),
            (["--model", model, "--tags", "", "--action-tags", file], "action_tags needs tags"),
            (["--model", model, "--temperature", "0", file], "temperature is 0"),
            (["--model", model, "--temperature", "nan", file], "temperature is NaN"),
            (["--model", model, "--device", "nowhere", file], "device is 'nowhere', to which the model does not go"),
            (["--model", self.path / "broken", file], "which transformers does not load"),
            (["--model", model, "--schemes", "actfocus,nothing", file], 'schemes has "nothing"'),
            (["--model", model, "--schemes", "rlsd", file], "schemes has one that the audit cannot compute: teacher_logprobs"),
            (["--model", model, self.path / "even"], "rewards differ in 0 prompts"),
            (["--model", model, self.path / "foreign"], "token_ids has 11 to 11, want 0 to 10"),
            (["--model", model, self.path / "bare"], "role[0] counts the first token of an answer"),
            (["--model", model, self.path / "masked"], "role has no token in the files that the policy drew"),
            (["--model", model, self.path / "reasoning"], "role has no action in the files"),
            (["--model", model, "--action-tags", self.path / "reasoning"], "tags is '<answer>,</answer>', and no token"),
            (["--model", model, "--action-tags", "--tags", "[a],[/a]", file], "tags is '[a],[/a]', and no token of the answers stands"),
            (["--model", model, "-"], "files has -, but an audit reads no standard input"),
            (["--model", model, "--out", file / "new", file], "which is no folder"),
            (["--model", model, "--out", "", file], "out is '', which is no folder"),
            (["--model", self.path / "diverged", file], "model computes logits that are NaN"),
            (["--model", self.path / "short", file], "model fails at answers of up to 9 tokens, prompts included: index out of range"),
            (["--model", model, "--prompts", "0", file], "prompts"),
            ([file], "--model"),
        ):
            with self.subTest(problem):
                done = self.run_it(*([] if "--out" in arguments else ["--out", self.path / "new"]), *arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertIn(problem, done.stderr.splitlines()[-1])
                self.assertNotIn("Traceback", done.stderr)
                self.assertFalse((self.path / "new").exists())

    def test_directions(self):
        """Schemes see the answers of a prompt, with what the model says of them."""
        labels = [np.array([-1, 2, 1, 0, 1]), np.array([-1, 2, 2, 1, 0, 0])]
        roles, turns = ([np.select([x < 0, x == 0], y, z) for x in labels] for y, z in (([0, 2], 1), ([-1, 0], 0)))
        prompt = _command.Prompt("", np.array([1.0, 0.0]), [None] * 2, labels, roles, turns)
        chance = np.random.default_rng(9)
        said = gradients.Answers(*(torch.tensor(chance.random((2, 6)), dtype=torch.float32) for _ in range(3)))
        parts = np.array([[-1, 2, 1, 0, 1, -1], [-1, 2, 2, 1, 0, 0]])
        step = reweight.scheme("actfocus")
        step.options["actfocus"]["beta"] = 0.0
        found = _command._direction(step, prompt, said)
        np.testing.assert_array_equal(found, np.select([parts == 0, parts > 0], [1, np.float32(0.1)]))
        found = _command._direction(reweight.scheme("actfocus"), prompt, said)
        best = said.energy.numpy()[1, 4:]
        self.assertEqual(found[1, 4] < found[1, 5], best[0] < best[1])
        said.entropy[1] += 2
        found = _command._direction(reweight.scheme("aem"), prompt, said)
        self.assertGreater(found[0, 1], found[1, 1])
        self.assertEqual(len(set(found[0][parts[0] >= 0])), 1)

    def test_turns(self):
        """Answers of three turns, of which the second one decides on the reward: the signal is there. The responses of a turn
        that stand side by side are told by span_ids."""
        chance = np.random.default_rng(3)
        lines = []
        for group in range(16):
            for _ in range(12):
                said = chance.integers(7, 9, 3).tolist()
                line = {"group_id": str(group), "reward": float(said[1] == 7), "token_ids": [9], "mask": [0], "span_ids": [-1]}
                for turn, word in enumerate(said):
                    thought = chance.integers(3, 7, 1).tolist()
                    seen = [10] * (turn != 2)  # nothing is between the second turn and the last one
                    line["token_ids"] += [*seen, *thought, word]
                    line["mask"] += [0] * len(seen) + [1] * 2
                    line["span_ids"] += [-1] * len(seen) + [turn] * 2
                lines.append(line)
        file = self.path / "turns.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        files = "--model", self.path / "model", "--device", "cpu", "--out", self.path / "turns", file
        done = self.run_it("--turns", 3, *files)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads((self.path / "turns" / "audit.json").read_text())
        names = ["turn 1", "turn 2", "turn 3"]
        self.assertEqual([p["name"] for p in found["parts"]], names)
        self.assertEqual([p["tokens"] for p in found["parts"]], [16 * 12 * 2] * 3)
        first, second, third = (p["signal"] for p in found["parts"])
        self.assertGreater(second[1], 0.5)
        self.assertLess(max(first[2], third[2]), 0.5)
        self.assertEqual(found["weights"]["turn 2"], 1)
        self.assertLess(max(found["weights"][name] for name in ("turn 1", "turn 3")), 0.5)
        for said in (done.stdout, (self.path / "turns" / "audit.html").read_text()):
            for name in names:
                self.assertIn(f"signal of {name}", said)
        shown = subprocess.run([find(), "show", self.path / "turns"], capture_output=True, text=True, check=True).stdout
        self.assertRegex(shown, r"(?m)^ *turn 2 .*" + re.escape(f"{second[0]:.2f} ({second[1]:.2f} to {second[2]:.2f})"))
        # Rewards of turns are added to the outcome, which has them not in it.
        of_turns = [{**line, "reward": 0.25, "span_rewards": [0, line["reward"] - 0.5, 0.25]} for line in lines]
        (self.path / "of_turns.jsonl").write_text("".join(json.dumps(line) + "\n" for line in of_turns))
        self.assertEqual(self.run_it("--turns", 3, *files[:-3], self.path / "of_turns.jsonl").stdout, done.stdout)
        # Turns from the second one on are one part.
        done = self.run_it("--turns", 2, *files[:-3], file)
        self.assertRegex(done.stdout, r"(?m)^turn 2  66.7% ")
        for turns, problem in ((1, "turns is 1, want at least 2"), (4, "turns is 4, but no answer of the files has more than 3")):
            done = self.run_it("--turns", turns, *files[:-3], file)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(problem, done.stderr)

    def test_labels(self):
        """Tags, and what follows the last one of a response, are a part; actions stay what the file says."""
        for text, role, want in (
            ("so|<answer>|red|</answer>|<end>", [1, 1, 2, 1, 1], [2, 1, 0, 1, 1]),
            ("so|<ans|wer>|red|</answer>", [1, 1, 1, 2, 1], [2, 1, 1, 0, 1]),
            ("so|it|<end>", [1, 1, 1], [2, 2, 2]),
            ("<answer>|red", [1, 1], [1, 2]),
            ("<answer>|a|</answer>|so|<answer>|b|</answer>|x", [1, 2, 1, 1, 1, 2, 1, 1], [1, 0, 1, 2, 1, 0, 1, 1]),
            ("?|<answer>|a|</answer>|seen|so|<answer>|b|</answer>", [0, 1, 2, 1, 0, 1, 1, 2, 1], [-1, 1, 0, 1, -1, 2, 1, 0, 1]),
        ):
            found = _command.labels_of(np.array(role), text.split("|"), ("<answer>", "</answer>"))
            self.assertEqual(found.tolist(), want, text)
            plain = _command.labels_of(np.array(role), text.split("|"), ())
            self.assertEqual(plain.tolist(), [{0: -1, 1: 1, 2: 0}[r] for r in role])
