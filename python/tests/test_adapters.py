"""The multiplier that all adapters share."""

import atexit
import contextlib
import dataclasses
import importlib
import importlib.util
import io
import random
import sys
import tempfile
import unittest
import warnings
from pathlib import Path
from types import ModuleType
from unittest import mock

import formulas
import numpy as np

import reweight
from adapter_rollouts import Case, Tokenizer, aggregate, padded, rows, scheme, surrogate, weighted_loss
from reweight.adapters import Credit, HookError, token_advantages
from reweight.adapters._advantages import AGGREGATIONS
from reweight.adapters._hooks import find_hook, replace, when_imported
from reweight.adapters._report import Report
from reweight.adapters._watch import Watch
from support import LAKES, TESTDATA, needs_torch, read_safetensors, run_python, torch

CREDITS = {
    "both": Credit(),
    "ActFocus": Credit(scheme="actfocus", beta=2.0),
    "AEM": Credit(scheme="aem"),
    "AEM, trajectories": Credit(scheme="aem", scope="trajectory", guard=0.0),
    "AEM, estimated": Credit(entropy="surprisal", scope="batch"),
    "log-ratio": Credit(beta=0.5, signal="log_ratio"),
    "energy": Credit(beta=0.5, signal="energy"),
}


def multiplier(mask, **arguments):
    """What the advantages are multiplied by."""
    if isinstance(mask, list):
        ones = [np.ones(len(row), np.float32) for row in mask]
    else:
        ones = mask * 0.0 + 1 if isinstance(mask, np.ndarray) else mask.float() * 0 + 1
    return token_advantages(ones, mask, **arguments)


class MultiplierTest(Case):
    def arguments(self, **change):
        r = self.rollouts
        names = ["token_ids", "old_logprobs", "ref_logprobs", "ref_energy", "entropy", "group_ids", "seq_offsets"]
        return {**{name: getattr(r, name) for name in names}, "tokenizer": r.tokenizer, **change}

    def call(self, **change):
        return multiplier(change.pop("mask", self.rollouts.mask), **self.arguments(**change))

    def test_losses(self):
        """The trainer's loss of multiplied advantages is the library's weighted loss."""
        r, worst = self.rollouts, 0.0
        for name, credit in CREDITS.items():
            for aggregation in AGGREGATIONS:
                with self.subTest(credit=name, aggregation=aggregation):
                    m = self.call(credit=credit, aggregation=aggregation)
                    got = aggregate(r, surrogate(r, r.advantages * m.astype(np.float64)), aggregation, 50)
                    if aggregation == "token_sum":
                        want = weighted_loss(r, credit, "seq_mean_token_sum_norm", 1)
                    else:
                        want = weighted_loss(r, credit, aggregation, 50)
                    self.assertClose(got, want)
                    worst = max(worst, abs(got - want) / abs(want))
                    self.assertBits(m, self.multiplied(np.float32(1), credit, aggregation))
        self.assertGreater(worst, 0)

    def test_rollouts(self):
        """The mean over rollouts of several trajectories, which need not be neighbours: the trainer's loss of the multiplied
        advantages is the mean over rollouts of sum w l / sum w. One process, and two."""
        r = self.rollouts
        n = len(r.seq_offsets) - 1
        rollouts = (np.arange(n) * 7 % n) // 3
        of_token, l = rollouts[r.trajectory], surrogate(r, r.advantages.astype(np.float64))
        for name, credit in CREDITS.items():
            with self.subTest(name):
                how = dict(credit=credit, aggregation="seq_mean_token_mean", rollout_ids=[f"rollout {x}" for x in rollouts])
                m = self.call(**how)
                w, f = (x.astype(np.float64) for x in scheme(r, credit))
                count, of_weights, got, want = (np.bincount(of_token, np.where(r.mask, x, 0)) for x in (r.mask, w, m * l, w * f * l))
                self.assertClose((got / count).mean(), (want / of_weights).mean())
                lists = {x: rows(r, getattr(r, x)) for x in ("token_ids", "old_logprobs", "ref_logprobs", "ref_energy", "entropy")}
                sent = []
                for rank in None, 0, 1:
                    for i, own in enumerate((slice(0, 5), slice(5, n))):
                        if rank in (None, i):
                            part = self.call(
                                mask=rows(r, r.mask)[own], seq_offsets=None, group_ids=r.group_ids[own],
                                gather=lambda x: (sent.append(x) or [x], 0) if rank is None else (sent, rank),
                                **{x: row[own] for x, row in lists.items()}, **{**how, "rollout_ids": how["rollout_ids"][own]},
                            )  # fmt: skip
                            if rank is not None:
                                self.assertBits(np.concatenate(part), np.concatenate(rows(r, m)[own]))
        alone = self.call(credit=credit, aggregation="seq_mean_token_mean", rollout_ids=np.arange(n))
        self.assertBits(alone, self.call(credit=credit, aggregation="seq_mean_token_mean"))
        with self.assertRaisesRegex(reweight.InputError, f"^rollout_ids has {n - 1} elements, want {n}, one per trajectory"):
            self.call(credit=credit, rollout_ids=rollouts[1:])

    def test_uniform(self):
        """alpha 1 and beta 0 leave the advantages as they are, to the last bit."""
        for aggregation in AGGREGATIONS:
            m = self.call(credit=Credit(alpha=1, beta=0, scheme="actfocus"), aggregation=aggregation)
            self.assertBits(m, self.rollouts.mask)

    def test_layouts(self):
        """Packed, padded, in lists and nested: the same numbers, in the layout of the mask."""
        r = self.rollouts
        want = self.call()
        names = [name for name in self.arguments() if name not in ("group_ids", "seq_offsets", "tokenizer")]
        lists = {name: rows(r, getattr(r, name)) for name in names}
        masks = rows(r, r.mask)
        got = self.call(mask=masks, seq_offsets=None, **lists)
        self.assertIsInstance(got, list)
        self.assertBits(np.concatenate(got), want)

        # Lists of numbers too, of which an empty one has no type.
        plain = {name: [*(row.tolist() for row in x), []] for name, x in lists.items()}
        last = {"group_ids": [*r.group_ids.tolist(), 0], "seq_offsets": None}
        got = self.call(mask=[*(row.tolist() for row in masks), []], **last, **plain)
        self.assertBits(np.concatenate(got), want)
        for name, x in lists.items():
            lists[name] = padded(x, 9)
        got = self.call(mask=padded(masks), seq_offsets=None, **{name: x.tolist() for name, x in lists.items()})
        self.assertBits(got, padded(rows(r, want)))
        for mask in (padded(masks), padded(masks).astype(np.float32)):
            got = self.call(mask=mask, seq_offsets=None, **lists)
            self.assertBits(got, padded(rows(r, want)))

    @needs_torch
    def test_tensors(self):
        r = self.rollouts
        want = self.call()
        names = [name for name in self.arguments() if name not in ("group_ids", "seq_offsets", "tokenizer")]
        grids = {name: torch.from_numpy(padded(rows(r, getattr(r, name)), 9)) for name in names}
        groups = torch.from_numpy(r.group_ids.copy())
        got = self.call(mask=torch.from_numpy(padded(rows(r, r.mask))), seq_offsets=None, group_ids=groups, **grids)
        self.assertIsInstance(got, torch.Tensor)
        self.assertBits(got.numpy(), padded(rows(r, want)))

        offsets = torch.from_numpy(r.seq_offsets.copy())
        jagged = lambda x: torch.nested.nested_tensor_from_jagged(torch.from_numpy(x.copy()), offsets)
        nested = {name: jagged(getattr(r, name)) for name in names}
        got = self.call(mask=jagged(r.mask), seq_offsets=None, **nested)
        self.assertTrue(got.is_nested)
        self.assertBits(got.values().numpy(), want)

        # bfloat16 has no type in NumPy: it is widened.
        low = {name: x.to(torch.bfloat16) if x.is_floating_point() else x for name, x in grids.items()}
        mask = torch.from_numpy(padded(rows(r, r.mask)))
        wide = {name: x.float() if x.is_floating_point() else x for name, x in low.items()}
        self.assertBits(self.call(mask=mask, seq_offsets=None, **low), self.call(mask=mask, seq_offsets=None, **wide))

    def test_groups(self):
        """Groups may have names, and what masked tokens hold does not matter."""
        r = self.rollouts
        names = [f"prompt {100 - g}" for g in r.group_ids]
        self.assertBits(self.call(group_ids=names), self.call())
        dirty = {name: np.where(r.mask, getattr(r, name), np.nan) for name in ("old_logprobs", "entropy")}
        self.assertBits(self.call(**dirty), self.call())

    def test_tags(self):
        """Tags as strings, found in the text, and as ids: both find the actions of the file."""
        r = self.rollouts
        words = r.tokenizer.words
        ids = ([words.index("<answer>")], [words.index("</answer>")])
        for tags in (("<answer>", "</answer>"), ids):
            got = multiplier(r.mask, **self.arguments(credit=Credit(scheme="actfocus", tags=tags)), aggregation="token_sum")
            self.assertEqual((got >= 1).sum(), (r.role == 2).sum())
            self.assertBits(got >= 1, r.role == 2)
        every = multiplier(r.mask, **self.arguments(credit=Credit(scheme="actfocus", tags=None)), aggregation="token_sum")
        self.assertBits(every >= 1, r.mask)

    def test_tags_joined(self):
        """A token that holds a part of a tag is no action, nor is what no tag closes, or
        closes in another response."""
        words = ["<answer", ">", "go", "> ", " up", "</", "answer>", ".", "</answer> ", "<answer>"]
        text = [[0, 1, 2, 4, 5, 6, 7], [0, 3, 2, 8, 9, 4], [5, 6, 2, 9, 8, 9, 2, 5, 6], [9, 2, 9, 4, 8, 2, 8]]
        want = [[0, 0, 1, 1, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0, 1, 0, 0], [0, 0, 0, 1, 0, 0, 0]]
        mask = [np.ones(len(ids), bool) for ids in text]
        got = multiplier(
            mask,
            credit=Credit(scheme="actfocus", beta=0.5, alpha=0, tags_as="reasoning"),
            aggregation="token_sum",
            token_ids=[np.array(ids) for ids in text],
            tokenizer=Tokenizer(words),
            old_logprobs=[np.zeros(len(ids)) for ids in text],
        )
        self.assertEqual([(row > 0).astype(int).tolist() for row in got], want)

    @unittest.skipIf(importlib.util.find_spec("tokenizers") is None, "tokenizers is not installed")
    def test_tags_with_spaces(self):
        """Some tokenizers leave the space out that a text begins with: an id says something else alone than after others."""
        from tokenizers import Tokenizer, decoders, models

        words = ["\u2581<final", "\u2581answer>", "\u2581go", "\u2581up", "</final", "\u2581answer", ">", "<final", "answer>"]
        tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token=words[2]))
        tokenizer.decoder = decoders.Metaspace()
        self.assertEqual(tokenizer.decode([1]), "answer>")
        ids = np.array([2, 0, 1, 2, 3, 4, 5, 6, 7, 8, 2, 4, 1])
        got = multiplier(
            np.ones((1, len(ids))),
            credit=Credit("actfocus", beta=0.5, alpha=0, tags=("<final answer>", "</final answer>"), tags_as="reasoning"),
            aggregation="token_sum",
            token_ids=ids[None],
            tokenizer=tokenizer,
            old_logprobs=np.zeros((1, len(ids))),
        )
        self.assertEqual((got > 0)[0].astype(int).tolist(), [0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0])

    def test_log(self):
        """The scalars, against their definitions in float64."""
        r, log = self.rollouts, {}
        credit = Credit(beta=2.0, guard=1.0)
        m = self.call(credit=credit, aggregation="token_sum", log=log).astype(np.float64)
        w, f = (x.astype(np.float64) for x in scheme(r, credit))
        action, reasoning = r.role == 2, r.role == 1
        per = lambda x: np.array([part.sum() for part in rows(r, x)])
        first = r.mask & (np.diff(r.span_ids, prepend=-1) != 0)
        want = {
            "actions": action.sum(),
            "ambiguous": 1,
            "no_action": ((per(r.mask) > 0) & (per(action) == 0)).sum() / (per(r.mask) > 0).sum(),
            "action_share": action.sum() / r.mask.sum(),
            "action_weight": m[action].sum() / m.sum(),
            "effective_tokens": w.sum() ** 2 / (w**2).sum(),
            "surprisal_action": -r.old_logprobs[action].mean(dtype=np.float64),
            "surprisal_reasoning": -r.old_logprobs[reasoning].mean(dtype=np.float64),
            "aem_min": f[first].min(),
            "aem_max": f[first].max(),
            "aem_std": f[first].std(),
            "not_finite": 0,
            "aem_guarded": np.mean([(f[first & (r.group_ids[r.trajectory] == g)] == 1).all() for g in set(r.group_ids)]),
        }
        want.update(
            multiplier_action=m[action].mean(), multiplier_reasoning=m[reasoning].mean(), warnings=0,
            grad_scale=np.linalg.norm(m * r.mask) / np.linalg.norm(r.mask),
        )  # fmt: skip
        self.assertEqual(set(log), {"credit/" + name for name in want})
        for name, value in want.items():
            self.assertNear(log["credit/" + name], value, 1e-6)
        self.assertTrue(0 < log["credit/aem_guarded"] < 1)

    def test_rejected(self):
        """Tokens that were sampled and then rejected have no part in the loss, but stay in their action and response."""
        r = self.rollouts
        g = np.random.default_rng(3)
        kept = r.mask & (g.random(len(r.mask)) < 0.8)
        kept[np.flatnonzero(r.role == 2)[::3]] = False
        kept[np.flatnonzero(np.diff(r.span_ids, prepend=-1) > 0)] = True  # a token of each response
        for name, credit in CREDITS.items():
            for aggregation in ("token_mean", "seq_mean_token_mean"):
                with self.subTest(credit=name, aggregation=aggregation):
                    m = self.call(mask=kept, sampled=r.mask, credit=credit, aggregation=aggregation)
                    role, everything = r.role, r.mask
                    r.role, r.mask = r.role * kept, kept
                    want = self.multiplied(np.float32(1), credit, aggregation)
                    r.role, r.mask = role, everything
                    self.assertBits(m[kept], want[kept])
                    self.assertFalse(m[~kept].any())
        # A response of which nothing is left is none.
        kept = r.mask & (r.span_ids != 3)
        self.assertBits(self.call(mask=kept, sampled=r.mask), self.call(mask=kept))
        with self.assertRaisesRegex(reweight.InputError, "sampled is 0 at a token of mask"):
            self.call(sampled=kept)

    def test_not_finite(self):
        """Where an engine has no log-probability: weight 1, and no part in means; the log counts, or it is an error."""
        r, log = self.rollouts, {}
        action, reasoning = np.flatnonzero(r.role == 2), np.flatnonzero(r.role == 1)
        old, entropy = r.old_logprobs.copy(), r.entropy.copy()
        old[action[[1, 5, 9]]] = np.nan, -np.inf, np.inf
        old[reasoning[4]] = np.nan  # ActFocus does not read it
        entropy[reasoning[[2, 7]]], entropy[action[1]] = np.nan, -np.inf
        m = self.call(old_logprobs=old, entropy=entropy, aggregation="token_sum", log=log, credit=Credit(alpha=0.1, beta=0.5))
        self.assertEqual(log["credit/not_finite"], 5)
        self.assertTrue(np.isfinite(list(log.values())).all())
        role = r.role.copy()
        role[action[[1, 5, 9]]] = 1
        w = reweight.actfocus(reweight.Batch(role, r.seq_offsets, old_logprobs=old), signal="surprisal").weights
        w[action[[1, 5, 9]]] = 1
        role = r.role.copy()
        role[~np.isfinite(entropy)] = 0
        batch = reweight.Batch(role, r.seq_offsets, r.group_ids, span_ids=r.span_ids, entropy=np.nan_to_num(entropy))
        f = reweight.aem(batch)
        for t in reasoning[[2, 7]], action[[1]]:
            for i in t:
                f[i] = f[(r.span_ids == r.span_ids[i]) & (role > 0)][0]
        self.assertBits(m, w * f)
        for change, message in (
            ({"old_logprobs": old}, r"old_logprobs\[\d+\] is NaN at an action token"),
            ({"entropy": entropy}, r"entropy\[\d+\] is NaN in span"),
        ):
            with self.assertRaisesRegex(reweight.InputError, message):
                self.call(credit=Credit(not_finite="error"), **change)
        with self.assertRaisesRegex(reweight.InputError, 'not_finite is "drop", want one of'):
            Credit(not_finite="drop")

    def test_report(self):
        """One line at the first batch, one at the first values that are not finite, and one at the end if there was no batch."""
        said, log = io.StringIO(), {}
        self.call(log=log)
        with contextlib.redirect_stderr(said), mock.patch("atexit.register") as register:
            other = Report(Credit(), "Acme 7.0")  # of another process
            other.batch("mean", log, first_process=False)
            register.call_args[0][0]()
            report = Report(Credit(), "Acme 7.0")
            register.call_args[0][0]()
            report.batch("mean", log)
            for count in (0, 3, 4):
                report.batch("mean", {**log, "credit/not_finite": count})
            register.call_args[0][0]()
        lines = said.getvalue().splitlines()
        self.assertEqual(len(lines), 3, lines)
        self.assertEqual(lines[0], "reweight: in Acme 7.0, the credit was never called: no batch of this process has it")
        self.assertRegex(lines[1], r"^reweight: in Acme 7.0, mean: ActFocus with alpha 0.3 \(\d+ action tokens, .* AEM by entropy per")
        self.assertRegex(lines[2], "^reweight: in Acme 7.0, 3 tokens of a batch have no finite log-probability or entropy")

    def test_an_error_is_the_only_thing_said(self):
        """The end of a process in which the credit was never called says so, if no error has ended it."""
        code = "from reweight.adapters import Credit; from reweight.adapters._report import Report; r = Report(Credit(), 'Acme'); "
        self.assertIn("the credit was never called", run_python(code).stderr)
        self.assertIn("the credit was never called", run_python(code + "raise SystemExit(0)").stderr)
        said = run_python(code + "raise ValueError('of the trainer')").stderr
        self.assertIn("ValueError: of the trainer", said)
        self.assertNotIn("never called", said)

    def test_processes(self):
        """Processes that hold a part each get the numbers of the whole."""
        r = self.rollouts
        want = rows(r, self.call(aggregation="token_mean"))
        cut = 13
        names = [name for name in self.arguments() if name not in ("group_ids", "seq_offsets", "tokenizer")]

        def part(begin, end, gather):
            lists = {name: rows(r, getattr(r, name))[begin:end] for name in names}
            groups = [f"p{g}" for g in r.group_ids[begin:end]]
            return self.call(mask=rows(r, r.mask)[begin:end], seq_offsets=None, group_ids=groups, gather=gather, **lists)

        sent = []
        for begin, end in ((0, cut), (cut, len(want))):
            part(begin, end, lambda x: (sent.append(x) or [x], 0))
        for rank, (begin, end) in enumerate(((0, cut), (cut, len(want)))):
            got = part(begin, end, lambda x: (sent, rank))
            self.assertBits(np.concatenate(got), np.concatenate(want[begin:end]))

    def test_nothing(self):
        """No weight at all is no loss and no NaN; trajectories may be empty."""
        mask = [np.ones(3, bool), np.zeros(0, bool), np.zeros(2, bool)]
        zeros = [np.zeros(len(row)) for row in mask]
        for aggregation in AGGREGATIONS:
            credit = Credit(alpha=0, beta=0.5, tags=([1], [2]), scheme="actfocus")
            got = multiplier(mask, credit=credit, aggregation=aggregation, token_ids=zeros, old_logprobs=zeros)
            self.assertBits(np.concatenate(got), np.zeros(5))
        # Of groups whose rewards are equal, however many tokens they have.
        mask = np.ones((4, 5000))
        for rewards in ([1, 1, 0, 1], [1, 1, 2, 2]):
            for aggregation in AGGREGATIONS:
                with self.subTest(rewards, aggregation=aggregation):
                    got = multiplier(mask, credit=Credit("group_filter"), aggregation=aggregation, rewards=rewards, group_ids=[0, 0, 1, 1])
                    scale = 2 if aggregation == "token_mean" and rewards[2] == 0 else 1
                    self.assertBits(got, mask * np.array([[0], [0], [1], [1]]) * (rewards[2] == 0) * scale)
        none = np.zeros((2, 3))
        for aggregation in AGGREGATIONS:
            credit = Credit(tags=None, entropy="surprisal")
            got = multiplier(none, credit=credit, aggregation=aggregation, old_logprobs=none, group_ids=[4, 4])
            self.assertBits(got, none)

    def test_errors(self):
        r = self.rollouts
        cases = {
            'aggregation is "mean", want one of [token_mean': {"aggregation": "mean"},
            "seq_offsets is None, want where each trajectory begins: mask has the shape [6272]": {"seq_offsets": None},
            "seq_offsets is [0, 5], want 0 to 6272 in ascending order": {"seq_offsets": [0, 5]},
            "token_ids is None, want the ids in which the tags": {"token_ids": None},
            "tokenizer is None, want one for tags that are strings": {"tokenizer": None},
            "token_ids has the shape [6271], want [6272] like mask": {"token_ids": r.token_ids[1:]},
            "group_ids has 3 elements, want 32, one per trajectory": {"group_ids": [1, 2, 3]},
            "old_logprobs is None": {"old_logprobs": None, "credit": Credit(beta=0.5)},
            "entropy is None": {"entropy": None},
            "group_ids is None": {"group_ids": None},
        }
        for message, change in cases.items():
            with self.subTest(message), self.assertRaises(reweight.InputError) as caught:
                self.call(**change)
            self.assertTrue(str(caught.exception).startswith(message), caught.exception)
        ids, B = r.token_ids, len(r.group_ids)
        odd = {
            "seq_offsets is [0.0, 2.5, 6272.0], want a list of integers": {"seq_offsets": [0, 2.5, 6272]},
            "seq_offsets is [[0, 6272]], want a list of integers": {"seq_offsets": [[0, 6272]]},
            "seq_offsets is a list of other things": {"seq_offsets": [0, None, 6272]},
            f"token_ids[0] is {ids[0] + 0.5}, want an integer": {"token_ids": ids + 0.5},
            "token_ids has the type <U": {"token_ids": ids.astype(str)},
            "old_logprobs has the type complex64, want numbers": {"old_logprobs": r.old_logprobs + np.complex64(1)},
            "entropy has the shape [], want [6272] like mask": {"entropy": 1.0},
            "entropy has the type <U1, want numbers": {"entropy": "x"},
            "entropy is a list of other things than numbers": {"entropy": [[1.0], [2.0, 3.0]]},
            "weights has the shape [], want [6272] like mask": {"weights": 1.0},
            f"group_ids is an int, want {B}, one per trajectory": {"group_ids": 5},
            f"group_ids has the shape [{B}, 1], want [{B}], one element": {"group_ids": r.group_ids[:, None]},
            "group_ids has other elements than integers or strings": {"group_ids": [None, *r.group_ids[1:].tolist()]},
            "group_ids has other elements than integers": {"group_ids": np.where(r.group_ids == 0, np.nan, r.group_ids)},
            "rollout_ids has other elements than integers or strings": {"rollout_ids": [None] * B},
            f"rewards has the shape [{B}, 1], want [{B}], one element": {"rewards": r.rewards[:, None]},
            "rewards has other elements than numbers": {"rewards": ["none"] * B},
        }
        for message, change in odd.items():
            with self.subTest(message), self.assertRaises(reweight.InputError) as caught:
                self.call(**change)
            self.assertTrue(str(caught.exception).startswith(message), caught.exception)
        for message, mask in (
            ("mask is None, want an array", None),
            ("mask is a list, want rows of tokens", [1, 1]),
            ("mask is a list of other things than numbers", [[1], [None]]),
        ):
            with self.subTest(message), self.assertRaisesRegex(reweight.InputError, f"^{message}"):
                token_advantages(None, mask)
        with self.assertRaisesRegex(TypeError, "^credit is a str, want a Credit$"):
            self.call(credit="actfocus")
        lists = [np.zeros(3), np.zeros(2)]
        message = r"entropy has rows of the shapes \[\[2\], \[3\]\], want \[\[3\], \[2\]\] like mask"
        with self.assertRaisesRegex(ValueError, message):
            multiplier(lists, entropy=lists[::-1], credit=Credit(scheme="aem"))
        with self.assertRaisesRegex(ValueError, "entropy is \"none\", want one of"):
            Credit(entropy="none")
        for tags in ("", "</a>"), ("<a>",), "<>", 5, ("<a>", (1, 2)), (["x"], ["y"]), ([1], []), (1, 2), ([1.0], [2.0]):
            with self.subTest(tags), self.assertRaisesRegex(ValueError, "tags is .*, want .*what opens and what closes an action"):
                Credit(tags=tags)
        Credit(tags=[np.arange(2), (3,)])
        for options in None, 5, [("gtpo", {})], {"gtpo": None}:
            with self.subTest(options), self.assertRaisesRegex(reweight.InputError, "^options is .*, want options by entries, such as"):
                Credit("gtpo", options)
        for folder in None, 5, "":
            with self.subTest(folder), self.assertRaisesRegex(reweight.InputError, f"^dir is {folder!r}, want the name of a folder"):
                Credit(dir=folder)
        for every in True, -1, 1.5:
            with self.subTest(every), self.assertRaisesRegex(reweight.InputError, f"^save_every is {every}, want a number of batches"):
                Credit(save_every=every)
        ragged = Credit("actfocus", action=lambda ids, texts, tokenizer: [[True], [True, False]])
        with self.assertRaisesRegex(reweight.InputError, "^action returned a list of lists, want one value per token"):
            self.call(credit=ragged)
        with self.assertRaisesRegex(ValueError, "tokenizer is 'gpt2', want an object that decodes token ids"):
            Credit(tokenizer="gpt2")

    def test_options_are_checked_first(self):
        for message, option in {
            "alpha is 3, want 0 to 1": {"alpha": 3},
            "lambda_? is 81, want": {"lambda_": 81},
            'scope is "all", want one of': {"scope": "all"},
        }.items():
            with self.subTest(message), self.assertRaisesRegex(reweight.InputError, message):
                Credit(**option).check("Acme", {}, ("entropy",))

    def test_schemes(self):
        """What fits no trainer, and what a trainer does itself or lacks, is said before the first rollout."""
        own = {"loss": "--loss", "rollout_logprobs": "--correct", "off_policy_mask": "--mask"}
        for message, credit in {
            'scheme has "nothing", want names of': {"scheme": "nothing"},
            "scheme has rloo and opo: both make the advantages": {"scheme": "rloo+opo"},
            "alpha is 0.4, an option of actfocus, which is not in the scheme gtpo": {"scheme": "gtpo", "alpha": 0.4},
            'signal is "energy", which orders no tokens while beta is 0: give beta too': {"signal": "energy"},
            "options has aem, whose options are arguments of Credit: lambda_, guard": {"options": {"aem": {"guard": 0.0}}},
            r'options has "rloo", want entries of the scheme gtpo: \[gtpo\]': {"scheme": "gtpo", "options": {"rloo": {}}},
            r'options has "bonuss" of gtpo, want some of \[base bonus': {"scheme": "gtpo", "options": {"gtpo": {"bonuss": 1}}},
            "entropy_low is -1": {"scheme": "gtpo", "options": {"gtpo": {"entropy_low": -1}}},
            'entropy is "surprisal", which stands .* but gtpo reads': {"scheme": "gtpo", "entropy": "surprisal"},
            "scheme has gspo, a loss: Acme has its own, which --loss chooses, and \"rloo\" is the rest": {"scheme": "rloo+gspo"},
            "scheme has dro, a loss: Acme has its own, which --loss chooses$": {"scheme": "dro"},
            'scheme has uniform, a loss: .* and "overlong\\+group_filter" is the rest': {"scheme": "dapo"},
            'overlong, which changes rewards.*as in "group_norm\\+overlong"': {"scheme": "overlong"},
            "scheme has gigpo, which reads anchors, which Acme does not keep": {"scheme": "gigpo"},
            "scheme has otb, which reads sum_sq_probs, which Acme does not keep": {"scheme": "otb"},
            "scheme has gae, which reads values, which Acme does not keep": {"scheme": "gae"},
            "scheme has rlsd, which reads teacher_logprobs, which Acme": {"scheme": "rlsd"},
            "scheme has tis, which reads rollout_logprobs: Acme does this by --correct": {"scheme": "actfocus+tis"},
            "scheme has off_policy_mask, .*: Acme does this by --mask": {"scheme": "off_policy_mask"},
            "scheme has fipo, which reads logprobs, the policy's after each update": {"scheme": "fipo"},
        }.items():
            with self.subTest(credit), self.assertRaisesRegex(reweight.InputError, message):
                Credit(**credit).check("Acme", own, ("entropy",))
        taken = 0
        for e in reweight.schemes():
            if e.kind in ("advantage", "factor", "weight"):
                with contextlib.suppress(reweight.InputError):
                    Credit(e.name).check("Acme", own, ("entropy",))
                    taken += 1
        self.assertGreater(taken, 13)

    def turn_rewards(self):
        """A number for each turn of each trajectory."""
        g = np.random.default_rng(11)
        return [g.normal(size=len(formulas.spans(row))).astype(np.float32) for row in rows(self.rollouts, self.rollouts.mask)]

    @staticmethod
    def computable():
        """The schemes whose arrays token_advantages takes, and whose options have defaults."""
        lacking = {"anchors", "reward_parts"}
        kinds = "advantage", "factor", "weight"
        return [e.name for e in reweight.schemes() if e.kind in kinds and lacking.isdisjoint(e.reads) and not e.no_default]

    def test_every_scheme(self):
        """The advantages are those of a step, in the place of the trainer's or times them, by the weights."""
        r = self.rollouts
        last = np.array([np.flatnonzero(row)[-1] for row in rows(r, r.mask)]) + r.seq_offsets[:-1]
        token_rewards = np.zeros(len(r.mask), np.float32)
        token_rewards[last] = r.scores
        given = {"teacher_logprobs": r.ref_logprobs, "rollout_logprobs": r.logprobs, "logprobs": r.logprobs, "values": r.entropy}
        full = reweight.Batch(
            r.role, r.seq_offsets, r.group_ids, r.scores, r.span_ids, old_logprobs=r.old_logprobs, entropy=r.entropy,
            advantages=r.advantages, token_rewards=token_rewards, sum_sq_probs=np.exp(r.logprobs),
            entropy_drop=r.entropy**2, span_rewards=np.concatenate(self.turn_rewards()), **given,
        )  # fmt: skip
        given.update(sum_sq_probs=full.sum_sq_probs, entropy_drop=full.entropy_drop, span_rewards=self.turn_rewards())
        computed = 0
        for name in self.computable():
            with self.subTest(name):
                credit = Credit(f"{name}+actfocus" if name != "actfocus" else name, alpha=0.1, beta=0.5)
                log = {}
                got = token_advantages(
                    r.advantages, r.mask, **self.arguments(credit=credit, rewards=r.scores, log=log), **given
                )  # fmt: skip
                step = reweight.scheme(credit.scheme)
                step.options["actfocus"]["signal"] = "surprisal"
                makes = next((e for e in step.entries if e.kind == "advantage" and "advantages" not in e.reads), None)
                batch = full if makes else dataclasses.replace(full, rewards=None)
                if "rewards" in {n for e in step.entries for n in e.reads} and not makes:
                    group = reweight.group_filter(full)
                    want, w = np.where(r.mask, r.advantages, np.float32(0)), reweight.actfocus(full, signal="surprisal").weights * group
                else:
                    want, w = step.credit(batch)
                self.assertBits(got, want * w * np.float32(r.mask.sum() / w.sum(dtype=np.float64)))
                self.assertEqual("credit/advantage" in log, makes is not None)
                computed += 1
        self.assertGreater(computed, 18)

    def test_advantages_not_finite(self):
        """Where a scheme makes advantages from what is not finite: 0 there, and as if the token were none elsewhere."""
        r, log = self.rollouts, {}
        bad = np.flatnonzero(r.role == 1)[[3, 8]]
        entropy = r.entropy.copy()
        entropy[bad] = np.nan, np.inf
        arguments = self.arguments(credit=Credit("gtpo"), entropy=entropy, rewards=r.scores, aggregation="token_sum", log=log)
        role = r.role.copy()
        role[bad] = 0
        want = reweight.gtpo(reweight.Batch(role, r.seq_offsets, r.group_ids, r.scores, entropy=np.nan_to_num(entropy)))
        self.assertBits(token_advantages(None, r.mask, **arguments), want)
        self.assertEqual(log["credit/not_finite"], 2)

    def test_states(self):
        """GiGPO: the states of turns that the loss lacks are left out, the outcome comes with the last turn, and the reward of an
        episode has all; in one process and in two."""
        mask = np.array([[1, 1, 0, 1, 1, 0, 1, 1], [1, 0, 1, 1, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 1, 0], [0] * 8], np.uint8)
        lost = mask.copy()
        lost[0, 3:5], lost[1, 0], lost[2] = 0, 0, 0
        rewards = np.array([1, -2, 0.5, 0.25], np.float32)
        more = dict(credit=Credit("gigpo"), aggregation="token_sum")
        turns, states = [[0.5, 1, 2], [4, 8, 16], [32, 64], [128, 256]], [["a", "b", 3], ("x", "a", "3"), ["q", "a"], []]
        got = token_advantages(None, lost, sampled=mask, rewards=rewards, span_rewards=turns, anchors=states, group_ids=[5] * 4, **more)
        want = reweight.Batch(lost.reshape(-1), np.arange(5) * 8, np.zeros(4, np.int32), np.array([4.5, 26, 96.5, 384.25], np.float32))
        want.span_ids = reweight.spans_from_mask(want.role, want.seq_offsets)
        want.anchors, want.span_rewards = np.array([0, 1, 0, 1], np.int32), np.array([1.5, 3, 8, 14], np.float32)
        self.assertBits(got.reshape(-1), reweight.gigpo(want))
        sent, parts = [], []
        for rank in None, 0, 1:
            for i in range(2):
                if rank in (None, i):
                    cut = slice(2 * i, 2 * i + 2)
                    gather = (lambda x: (sent.append(x) or [x], 0)) if rank is None else (lambda x: (sent, rank))
                    of = dict(rewards=rewards[cut], span_rewards=turns[cut], anchors=states[cut], group_ids=[5] * 2)
                    parts.append(token_advantages(None, lost[cut], sampled=mask[cut], gather=gather, **of, **more))
        self.assertBits(np.concatenate(parts[2:]), got)
        part = np.array([1, -2, np.nan, 0.25], np.float32)
        unscored = token_advantages(None, mask, rewards=part, span_rewards=turns, anchors=[*states[:3], [1]], group_ids=[5] * 4, **more)
        rows_of = [0, 1, 3]
        scored = token_advantages(
            None, mask[rows_of], rewards=part[rows_of], span_rewards=[turns[i] for i in rows_of], anchors=[*states[:2], [1]], group_ids=[5] * 3, **more
        )  # fmt: skip
        self.assertBits(unscored[rows_of], scored)
        self.assertFalse(unscored[2].any())
        of_turn = "want a list of integers or strings, one for each turn of the trajectory"
        for wrong, message in (
            (None, "anchors is None, want 4, the states before the turns of each trajectory"),
            (states[:3], "anchors has 3 elements, want 4, the states before the turns of each trajectory"),
            ([["a"], *states[1:]], "anchors[0] has 1 states, want 3, one for each turn of the trajectory"),
            ([states[0], "abc", *states[2:]], f"anchors[1] is a str, {of_turn}"),
            ([states[0], [1, 2.5, 3], *states[2:]], "anchors[1, 1] is a float, want an integer or a string"),
        ):
            with self.subTest(message), self.assertRaises(reweight.InputError) as caught:
                token_advantages(None, lost, sampled=mask, rewards=rewards, span_rewards=turns, anchors=wrong, group_ids=[5] * 4, **more)
            self.assertEqual(str(caught.exception), message)

    def test_turn_rewards(self):
        """A turn whose tokens the loss lacks gives its reward to the turn before it, and a trajectory without a token all its
        rewards to its own; what is no list of numbers for the turns is an error that says where."""
        mask = np.array([[1, 1, 0, 1, 1, 0, 1, 1], [1, 0, 1, 1, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 1, 0], [0] * 8], np.uint8)
        lost = mask.copy()
        lost[0, 3:5], lost[1, 0], lost[2] = 0, 0, 0
        groups, rewards = np.zeros(4, np.int32), np.array([1, -2, 0.5, 0.25], np.float32)
        turns = [[0.5, 1, 2], [4, 8, 16], [32, 64], [128, 256]]
        more = dict(rewards=rewards, group_ids=groups, credit=Credit("turn_returns"), aggregation="token_sum")
        log = {}
        got = token_advantages(None, lost, sampled=mask, span_rewards=turns, log=log, **more)
        want = formulas.turn_returns(rewards + [0, 0, 96, 384], [[1.5, 2], [8, 16], [], []], lost, groups)
        self.assertTrue(want.any(1)[:2].all())
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
        self.assertEqual(log["credit/mixed_groups"], 1)
        of_torch = [torch.tensor(row) for row in turns] if torch else turns
        for given in [np.array(row) for row in turns], of_torch, tuple(map(tuple, turns)):
            self.assertBits(token_advantages(None, lost, sampled=mask, span_rewards=given, **more), got)
        for same, mixed in ([[1, 1, 1], [0, 3, 0], [3, 0], [3]], 0), ([[1, 1, 1], [0, 3, 1], [3, 0], [3]], 1):
            token_advantages(None, mask, span_rewards=same, log=log, **{**more, "rewards": np.zeros(4, np.float32)})
            self.assertEqual(log["credit/mixed_groups"], mixed)
        walked = 0
        of_turn = "want a list of numbers, one for each turn of the trajectory"
        for wrong, message in (
            (None, "span_rewards is None, want 4, the rewards of the turns of each trajectory"),
            (1.0, "span_rewards is a float, want 4, the rewards of the turns of each trajectory"),
            (turns[:3], "span_rewards has 3 elements, want 4, the rewards of the turns of each trajectory"),
            ([*turns, [1]], "span_rewards has 5 elements, want 4, the rewards of the turns of each trajectory"),
            ([[1, 2], *turns[1:]], "span_rewards[0] has 2 numbers, want 3, one for each turn of the trajectory"),
            ([*turns[:2], [1, 2, 3], []], "span_rewards[2] has 3 numbers, want 2, one for each turn of the trajectory"),
            ([*turns[:2], [], []], "span_rewards[2] has 0 numbers, want 2, one for each turn of the trajectory"),
            ([turns[0], None, *turns[2:]], f"span_rewards[1] is None, {of_turn}"),
            ([turns[0], 1.5, *turns[2:]], f"span_rewards[1] is a float, {of_turn}"),
            ([turns[0], "abc", *turns[2:]], f"span_rewards[1] is a str, {of_turn}"),
            ([turns[0], ["1", "2", "3"], *turns[2:]], "span_rewards[1, 0] is a str, want a number"),
            ([turns[0], [1, None, 3], *turns[2:]], "span_rewards[1, 1] is None, want a number"),
            ([turns[0], [[1], [2], [3]], *turns[2:]], f"span_rewards[1] is a list, {of_turn}"),
            ([turns[0], [[1], [2, 3], 4], *turns[2:]], f"span_rewards[1] is a list, {of_turn}"),
            ([turns[0], {1: 2}, *turns[2:]], f"span_rewards[1] is a dict, {of_turn}"),
            ([turns[0], [1, np.nan, 3], *turns[2:]], "span_rewards[1, 1] is NaN, want a finite number"),
            ([*turns[:3], [-np.inf]], "span_rewards[3, 0] is -Inf, want a finite number"),
            ([turns[0], [1, 2, 1e39], *turns[2:]], "span_rewards[1, 2] is +Inf, want a finite number"),
        ):
            with self.subTest(message):
                with self.assertRaises(reweight.InputError) as caught:
                    token_advantages(None, mask, span_rewards=wrong, **more)
                self.assertEqual(str(caught.exception), message)
                walked += 1
        self.assertEqual(walked, 18)
        with self.assertRaisesRegex(reweight.InputError, "rewards is None"):
            token_advantages(None, mask, span_rewards=turns, **{**more, "rewards": None})
        # Of processes, one of which has nothing.
        parts = []
        for rank in None, 0, 1, 2:  # the first time, what each has is kept
            for i, own in enumerate((slice(0, 1), slice(0, 0), slice(1, 4))):
                if rank in (None, i):
                    part = token_advantages(
                        None, lost[own], sampled=mask[own], span_rewards=turns[own],
                        gather=lambda x: (parts.append(x) or [x], 0) if rank is None else (parts, rank),
                        **{**more, "rewards": rewards[own], "group_ids": groups[own]},
                    )  # fmt: skip
                    if rank is not None:
                        self.assertBits(part, got[own])

    def test_unscored(self):
        """A trajectory that nobody scored is as if it were not in the batch, and gets 0; so does one whose fellows nobody
        scored. One process, and three."""
        r = self.rollouts
        places = [np.flatnonzero(r.group_ids == g) for g in np.unique(r.group_ids)]
        scores = r.scores.copy()
        scores[np.concatenate([places[0][[1, 4]], places[1], places[2][1:]])] = np.nan
        scored = ~np.isnan(scores)
        compared = scored.copy()
        compared[places[2][0]] = False
        lengths, at = np.diff(r.seq_offsets), np.append(0, np.cumsum(np.diff(r.seq_offsets)))
        names = ["token_ids", "old_logprobs", "entropy"]
        sum_sq_probs, turns = np.exp(r.old_logprobs), self.turn_rewards()
        computed = 0
        for e in reweight.schemes():
            need = {name for names in e.reads for name in names.split("|")}
            if e.kind not in ("advantage", "weight") or need.isdisjoint(["rewards", "token_rewards"]) or not need.isdisjoint(["anchors", "values"]):
                continue
            with self.subTest(e.name):
                chosen = compared if "group_ids" in need else scored
                tokens, log = chosen[r.trajectory], {}
                part = reweight.Batch(
                    r.role[tokens], np.append(0, np.cumsum(lengths[chosen])), r.group_ids[chosen], scores[chosen],
                    entropy=r.entropy[tokens], old_logprobs=r.old_logprobs[tokens], sum_sq_probs=sum_sq_probs[tokens],
                    span_rewards=np.concatenate([x for x, there in zip(turns, chosen) if there]),
                )  # fmt: skip
                part.span_ids = reweight.spans_from_mask(part.role, part.seq_offsets)
                want = np.zeros(len(r.mask), np.float32)
                if e.kind == "weight":
                    want[tokens] = r.advantages[tokens] * reweight.group_filter(part)
                else:
                    want[tokens] = reweight.scheme(e.name).credit(part).advantages
                self.assertTrue(want.any())
                if e.name == "group_mean":
                    mean = np.array([scores[p][compared[p]].mean(dtype=np.float64) if compared[p].any() else 0 for p in places])
                    exact = np.where(compared, scores - mean[np.searchsorted(np.unique(r.group_ids), r.group_ids)], 0)
                    np.testing.assert_allclose(want, exact[r.trajectory] * r.mask, atol=1e-6)
                more = dict(credit=Credit(e.name), aggregation="token_sum")
                got = token_advantages(
                    r.advantages, r.mask, **self.arguments(rewards=scores, span_rewards=turns, sum_sq_probs=sum_sq_probs, log=log, **more)
                )  # fmt: skip
                self.assertBits(got + 0, want + 0)  # no -0
                self.assertEqual(log["credit/unscored"], (~scored).sum())
                self.assertEqual(log["credit/not_finite"], 0)
                sent = []
                for rank in None, 0, 1, 2:  # the first time, what each has is kept
                    for i, (first, end) in enumerate(((0, 3), (3, 20), (20, 32))):
                        if rank in (None, i):
                            cut = slice(at[first], at[end])
                            got = token_advantages(
                                r.advantages[cut], r.mask[cut], seq_offsets=r.seq_offsets[first : end + 1] - at[first],
                                sum_sq_probs=sum_sq_probs[cut], rewards=scores[first:end], group_ids=r.group_ids[first:end],
                                span_rewards=turns[first:end], gather=lambda x: (sent.append(x) or [x], 0) if rank is None else (sent, rank),
                                **{name: getattr(r, name)[cut] for name in names}, **more,
                            )  # fmt: skip
                            if rank is not None:
                                self.assertBits(got + 0, want[cut] + 0)
                computed += 1
        self.assertEqual(computed, 15)
        # An error has the place in the whole batch.
        with self.assertRaisesRegex(reweight.InputError, r"rewards\[3\] is \+Inf"):
            self.call(credit=Credit("rloo"), rewards=np.where(np.arange(32) == 3, np.inf, scores))
        at = np.flatnonzero(r.mask & compared[r.trajectory])[-1]
        entropy = np.where(np.arange(len(r.mask)) == at, np.float32(np.nan), r.entropy)
        with self.assertRaisesRegex(reweight.InputError, rf"entropy\[{at}\] is NaN"):
            self.call(credit=Credit("gtpo", not_finite="error"), rewards=scores, entropy=entropy)
        nobody = token_advantages(None, r.mask, **self.arguments(credit=Credit("rloo"), rewards=scores * np.nan))
        self.assertFalse(nobody.any())

    def test_alone(self):
        """pass@k compares the two best of a group: one that is alone gets 0, unless all are, which is a mistake."""
        mask, rewards = [np.ones(2)] * 3, [1, 3, 7]
        call = lambda groups, n: token_advantages(None, mask[:n], credit=Credit("pass_at_k"), rewards=rewards[:n], group_ids=groups)
        got = call([4, 4, 5], 3)
        self.assertEqual([row[0] > 0 for row in got], [False, True, False])
        self.assertFalse(np.concatenate(call([5], 1)).any())
        with self.assertRaisesRegex(reweight.InputError, "group_ids"):
            call([4, 5, 6], 3)

    @needs_torch
    def test_no_rows(self):
        """A batch without trajectories, or a process without, has an empty result in the layout of its mask."""
        jagged = lambda: torch.nested.nested_tensor_from_jagged(torch.zeros(0), torch.zeros(1, dtype=torch.int64))
        layouts = {
            "list": ([], {}),
            "padded": (np.zeros((0, 7)), {}),
            "tensor": (torch.zeros(0, 7), {}),
            "packed": (np.zeros(0), {"seq_offsets": [0]}),
            "nested": (jagged(), {}),
        }
        for name in self.computable():
            for layout, (mask, more) in layouts.items():
                for aggregation in AGGREGATIONS:
                    with self.subTest(name, layout=layout, aggregation=aggregation):
                        arrays = "old_logprobs ref_logprobs teacher_logprobs rollout_logprobs logprobs entropy values sum_sq_probs entropy_drop".split()
                        log = {}
                        got = token_advantages(
                            mask, mask, credit=Credit(name), aggregation=aggregation, token_ids=mask, tokenizer=Tokenizer([]),
                            rewards=[], span_rewards=[], group_ids=[], log=log, **dict.fromkeys(arrays, mask), **more,
                        )  # fmt: skip
                        self.assertIs(type(got), type(mask))
                        if layout == "nested":
                            self.assertEqual((got.values().numel(), got.offsets().tolist()), (0, [0]))
                        else:
                            self.assertEqual(np.shape(got), np.shape(mask))
                        self.assertTrue(np.isfinite(list(log.values())).all(), log)
        with contextlib.redirect_stderr(io.StringIO()):
            Report(Credit(), "Acme").batch("mean", {"credit/not_finite": 0, "credit/actions": 0, "credit/action_share": 0, "credit/action_weight": 0})
        # The second of two processes.
        sent = []
        full = dict(mask=[np.ones(1)] * 4, rewards=[1.0, 3.0, 5.0, 9.0], group_ids=[2**60, 2**60, 2**60 + 1, 2**60 + 1])
        for rows in (full, dict(mask=[], rewards=[], group_ids=[])):
            token_advantages(None, credit=Credit("rloo"), gather=lambda x: (sent.append(x) or [x], 0), **rows)
        for rank, rows in enumerate((full, dict(mask=[], rewards=[], group_ids=[]))):
            got = token_advantages(None, credit=Credit("rloo"), aggregation="token_sum", gather=lambda x: (sent, rank), **rows)
            self.assertEqual([row.tolist() for row in got], [[[-2], [2], [-4], [4]], []][rank])

    def test_keep(self):
        """keep="norm" multiplies all by one number, which keeps the sum of what the loss gets of each token."""
        r = self.rollouts
        for aggregation in AGGREGATIONS:
            with self.subTest(aggregation):
                logs, made = ({}, {}), []
                for keep, log in zip((None, "norm"), logs):
                    options = {**self.arguments(credit=Credit(beta=2.0, keep=keep), log=log)}
                    made.append(token_advantages(r.advantages, r.mask, aggregation=aggregation, **options).astype(np.float64))
                count = np.bincount(r.trajectory, r.mask)[r.trajectory] if aggregation == "seq_mean_token_mean" else 1.0
                plain = np.abs(r.advantages * r.mask / count).sum(dtype=np.float64)
                self.assertNear(np.abs(made[1] / count).sum(), plain, 1e-5)
                self.assertGreater(abs(np.abs(made[0] / count).sum() / plain - 1), 0.005)
                scale = made[1][r.mask] / made[0][r.mask]
                np.testing.assert_allclose(scale, scale[0], 1e-6)
                for name in ("multiplier_action", "multiplier_reasoning", "grad_scale"):
                    self.assertNear(logs[1]["credit/" + name], logs[0]["credit/" + name] * scale[0], 1e-5)
                want = np.linalg.norm(made[1] / count) / np.linalg.norm(r.advantages * r.mask / count)
                self.assertNear(logs[1]["credit/grad_scale"], want, 1e-5)
        with self.assertRaisesRegex(reweight.InputError, "keep is 'sum', want None or \"norm\""):
            Credit(keep="sum")

    def test_keep_of_rollouts(self):
        """Under a mean over tokens that number is from 0.95 to 1.002 on the rollouts in testdata, as trainers.md says."""
        for path in (*LAKES, TESTDATA / "large" / "smollm2-words.safetensors"):
            arrays, _ = read_safetensors(path)
            names = "role seq_offsets rewards group_ids".split()
            advantages, _ = reweight.scheme("group_norm").credit(reweight.Batch(**{name: arrays[name] for name in names}))
            split = lambda x: np.split(x, arrays["seq_offsets"][1:-1])
            mask, actions = split(arrays["role"] != reweight.MASKED), split(arrays["role"] == reweight.ACTION)
            for alpha in (0.3, 0.1):
                plain, kept = (
                    np.concatenate(token_advantages(split(advantages), mask, actions=actions, credit=Credit("actfocus", alpha=alpha, keep=keep)))
                    for keep in (None, "norm")
                )
                number = np.abs(kept).sum(dtype=np.float64) / np.abs(plain).sum(dtype=np.float64)
                self.assertTrue(0.95 < number < 1.002, (path.name, alpha, number))

    def test_baseline(self):
        """Uniform weights change nothing, to the bit, and have the scalars of actions."""
        for aggregation in AGGREGATIONS:
            log, other = {}, {}
            r, options = self.rollouts, self.arguments(credit=Credit("uniform"), log=log, rewards=self.rollouts.rewards)
            got = token_advantages(r.advantages, r.mask, aggregation=aggregation, **options)
            self.assertBits(got, np.where(r.mask, r.advantages, np.float32(0)))
            token_advantages(r.advantages, r.mask, aggregation=aggregation, **{**options, "credit": Credit("actfocus"), "log": other})
            self.assertEqual(set(log), set(other))
            self.assertEqual(log["credit/effective_tokens"], r.mask.sum())
            for name in ("multiplier_action", "multiplier_reasoning", "grad_scale"):
                self.assertEqual(log["credit/" + name], 1)
            for name in ("actions", "no_action", "action_share", "surprisal_action", "ambiguous", "mixed_groups"):
                self.assertEqual(log["credit/" + name], other["credit/" + name], name)
        Credit("uniform").check("TRL", {"loss": "loss_type"})
        with self.assertRaisesRegex(reweight.InputError, "scheme has gspo, a loss"):
            Credit("gspo").check("TRL", {"loss": "loss_type"})

    def test_watch(self):
        """What is wrong with a batch is said, each kind at most every 20 batches, and whatever filters of warnings say."""
        fine = {"credit/no_action": 0.0, "credit/not_finite": 0.0, "credit/effective_tokens": 80.0, "credit/mixed_groups": 0.5}
        cases = {
            "no_action": ({"credit/no_action": 0.66}, True, "66% of the trajectories have no action, up from 0%. .* take reward from answers"),
            "mixed": ({"credit/mixed_groups": 0.0}, False, "in no group do the rewards differ"),
            "advantages": ({}, False, "all advantages are 0"),
            "effective": ({"credit/effective_tokens": 4.0}, True, "it is worth 4.0% of as many tokens with equal weights"),
            "finite": ({"credit/not_finite": 2.0}, True, "2.0% of the tokens have no finite log-probability"),
        }
        for name, (change, advantages, want) in cases.items():
            with self.subTest(name), warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()) as said:
                warnings.simplefilter("ignore")
                watch = Watch()
                self.assertEqual(watch.look(fine, 100, True, "tags=x", True), [])
                for batch in range(2, 45):
                    [sentence] = watch.look({**fine, **change}, 100, advantages, "tags=x", True)
                    self.assertRegex(sentence, want)
                lines = said.getvalue().splitlines()
                self.assertEqual([line.split(":")[2] for line in lines], [" batch 2", " batch 22", " batch 42"])
                self.assertTrue(all(line.startswith("reweight: warning: ") for line in lines))
        with contextlib.redirect_stderr(io.StringIO()) as said:
            watch = Watch()
            for share in (0.5, 0.5, 0.3, 0.3, 0.21, 0.2, 0.24):
                watch.look({**fine, "credit/no_action": share}, 100, True, "tags=x", True)
            self.assertEqual(len(said.getvalue().splitlines()), 1)  # at the first batch; then it falls
            watch.look({**fine, "credit/no_action": 0.6}, 100, True, "tags=x", False)
            for _ in range(2):
                watch.look({**fine, "credit/ambiguous": 3.0}, 100, True, "tags=x", True)
            self.assertEqual(len(said.getvalue().splitlines()), 2)
            self.assertEqual(watch.look(fine, 0, False, "tags=x", True), [])

    def test_watched(self):
        """token_advantages watches what it computes."""
        for change, want in (
            ({"credit": Credit(tags=("<a>", "</a>"))}, "100% of the trajectories have no action. .* tags=\\('<a>', '</a>'\\)"),
            ({"rewards": np.ones(len(self.rollouts.rewards)), "credit": Credit()}, "in no group do the rewards differ"),
            ({"credit": Credit("actfocus", alpha=0.1, beta=40.0, tags_as="reasoning")}, "few tokens have nearly all of the weight"),
            ({"credit": Credit(), "entropy": self.rollouts.entropy + np.inf}, "100.0% of the tokens have no finite"),
        ):
            log = {}
            with self.subTest(want), contextlib.redirect_stderr(io.StringIO()) as said:
                self.call(log=log, **change)
                self.assertRegex(said.getvalue(), want)
                self.assertGreaterEqual(log["credit/warnings"], 1)


class HookTest(unittest.TestCase):
    def modules(self, **functions):
        package, inner = ModuleType("acme"), ModuleType("acme.inner")
        package.__version__, package.__path__ = "7.1", []
        inner.Trainer = type("Trainer", (), functions)
        return mock.patch.dict(sys.modules, {"acme": package, "acme.inner": inner})

    def find(self, path="acme.inner:Trainer.step", parameters=("batch",), written_for="Acme 7.0"):
        return find_hook("Acme", path, parameters, written_for)

    def expect(self, message, **call):
        with self.assertRaises(HookError) as caught:
            self.find(**call)
        self.assertEqual(str(caught.exception), message)

    def test_found(self):
        with self.modules(step=lambda self, batch: batch):
            with self.assertWarnsRegex(UserWarning, "Acme was tested with Acme 7.0, not with Acme 7.1"):
                self.find()
            with warnings.catch_warnings(action="error"):
                owner, name = self.find(written_for="Acme 7.1")
            self.assertEqual((owner, name), (sys.modules["acme.inner"].Trainer, "step"))

    def test_gone(self):
        told = "reweight's adapter for Acme was written for Acme 7.0 and its Trainer.step(batch), but "
        self.expect(told + "Acme is not installed")
        with self.modules(walk=lambda self, batch: batch):
            self.expect(told + "in Acme 7.1 there is no step in Trainer")
            other = told.replace("Trainer.step", "f")
            self.expect(other + "in Acme 7.1 there is no module acme.other", path="acme.other:f")
        with self.modules(step=lambda self, data, n=3: data):
            self.expect(told + "in Acme 7.1 it is step(self, data, n=3): no batch")

    def test_any_parameters(self):
        """A method that takes whatever it is given has every parameter: compiled trainers have such ones."""
        for step in (lambda self, *args: args, lambda self, **options: options, lambda self, *args, **options: args):
            with self.modules(step=step):
                self.assertEqual(self.find(written_for="Acme 7.1")[1], "step")

    def test_missing_dependency(self):
        """A module that the trainer needs, and that is not there, is reported as it is."""
        with self.modules(), mock.patch("importlib.import_module", side_effect=ModuleNotFoundError("no ray", name="ray")):
            with self.assertRaises(ModuleNotFoundError):
                self.find()

    def test_later(self):
        """An adapter takes effect when the trainer's module is imported, and not before; a
        module that is nowhere is reported at once."""
        acted = []
        with tempfile.TemporaryDirectory() as root, mock.patch.object(sys, "path", [root, *sys.path]):
            package = Path(root, "acme")
            package.mkdir()
            (package / "__init__.py").write_text("")
            (package / "inner.py").write_text("class Trainer:\n    def step(self, batch):\n        return batch\n")
            finders = list(sys.meta_path)
            with mock.patch.dict(sys.modules):
                when_imported("acme.inner", lambda: acted.append(self.find()))
                self.assertEqual((acted, "acme" in sys.modules), ([], False))
                self.assertIsNotNone(importlib.util.find_spec("acme.inner"))  # as others ask whether it is there
                self.assertEqual(acted, [])
                inner = importlib.import_module("acme.inner")
                self.assertEqual(acted, [(inner.Trainer, "step")])
                when_imported("acme.inner", lambda: acted.append("now"))
                self.assertEqual(acted[1:], ["now"])
                with self.assertRaisesRegex(HookError, "there is no module acme.other"):
                    when_imported("acme.other", lambda: self.find(path="acme.other:f"))
            self.assertEqual(sys.meta_path, finders)
        with self.assertRaisesRegex(HookError, "Acme is not installed"):
            when_imported("acme.inner", self.find)

    def test_replace_twice(self):
        """A second installation takes the place of the first."""

        class Trainer:
            def step(self, batch):
                return batch

        reports = [Report(Credit(), "Acme 7.0"), Report(Credit(), "Acme 7.0")]
        with mock.patch("atexit.unregister") as unregister:
            for factor, report in zip((3, 5), reports):
                replace(Trainer, "step", lambda original: lambda self, batch: factor * original(self, batch), report)
        self.assertEqual(Trainer().step(1), 5)
        unregister.assert_called_once_with(reports[0].end)  # which would say that the credit was never called
        for report in reports:
            atexit.unregister(report.end)


if __name__ == "__main__":
    unittest.main()
