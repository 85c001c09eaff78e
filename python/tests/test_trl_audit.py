"""Audits while TRL's GRPOTrainer trains, and the weights that are measured by them: whole runs of a tiny model."""

import contextlib
import dataclasses
import functools
import importlib.util
import io
import json
import os
import re
import random
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path
from unittest import mock

import numpy as np

if importlib.util.find_spec("trl") is None:
    raise unittest.SkipTest("TRL is not installed")

import test_trl
import torch
from support import environment
from test_trl import WORDS, GRPOTrainer, Original, numpy, trainer, weights_and_factors

import reweight
from reweight.adapters import Credit, HookError, _audit, openrlhf, nemo_rl, prime_rl, slime, token_advantages, trl, verl
from reweight.audit import Audit
from reweight.audit.gradients import Gradients

PARTS = ("action", "tags", "reasoning")


def reward(completions, **_):
    """Whether an action is the right one, and a little for words before it."""
    return [float("<answer> Left" in c) + 0.5 * ("Up" in c) - 0.02 * len(c.split()) for c in completions]


def made(credit, folder, kind=GRPOTrainer, **options):
    settings = dict(per_device_train_batch_size=16, max_steps=4, reward_funcs=reward)
    return trainer(functools.partial(kind, credit=credit), folder=str(folder), **{**settings, **options})


def trained(it, **options):
    """Trains, and returns what was said on the standard error."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        it.train(**options)
    return said.getvalue()


def log_of(it):
    return [{k: v for k, v in entry.items() if k.startswith("credit/audit/")} for entry in it.state.log_history if "loss" in entry]


def part_of(row, mask):
    """The parts of the tokens of a completion, by its words."""
    labels = np.where(mask, 2, -1)
    for first, end in test_trl.spans(mask):
        opened = last = -1
        for t in range(first, end):
            if row[t] == 2:
                opened = t
            elif row[t] == 3 and opened >= 0:
                labels[opened : t + 1] = 0
                labels[[opened, t]] = 1
                opened, last = -1, t
        if last >= 0:
            labels[last:end] = 1
    return labels


class Seen:
    """The batches of a run as they left the adapter, and the weights of the model then."""

    def __init__(self):
        self.batches = []

    def kind(self):
        seen = self

        class Watched(GRPOTrainer):
            def _generate_and_score_completions(self, inputs):
                output = super()._generate_and_score_completions(inputs)
                state = {name: x.clone() for name, x in self.model.state_dict().items()}
                seen.batches.append((dict(output), state, [dict(x) for x in inputs], dict(self._reweight_audit.weights)))
                return output

        return Watched


class Audits(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def credit(self, scheme="actfocus+aem", every=1, **options):
        options = {**({"beta": 2.0} if "actfocus" in scheme else {}), **({"guard": 0.0} if "aem" in scheme else {}), **options}
        return Credit(scheme, **{"audit_every": every, "dir": str(self.folder / "credit"), **options})

    def test_nothing_measured(self):
        """Groups with one success say nothing: the weights are 1, which is said once."""
        one = lambda completions, **_: [float(i % 6 == 1) for i in range(len(completions))]  # noqa: E731
        it = made(self.credit("measured"), self.folder / "run", reward_funcs=one, per_device_train_batch_size=24, num_generations=6)
        said = trained(it)
        self.assertEqual(said.count("the weights are measured from now on"), 1, said)
        for entry in log_of(it):
            self.assertEqual([entry[f"credit/audit/weight_{part}"] for part in PARTS], [1, 1, 1])
        self.assertEqual(entry["credit/audit/prompts"], 16)

    def test_training_is_the_same(self):
        """The weights of a run with audits, to the last bit, its log, and the state of everything that draws numbers."""
        from transformers import LlamaForCausalLM

        dropout = self.folder / "dropout"
        config = test_trl.model().config
        config.attention_dropout = 0.3
        torch.manual_seed(1)
        LlamaForCausalLM(config).save_pretrained(dropout)
        # What trains is a part of the model, as with adapters.
        part = LlamaForCausalLM.from_pretrained(dropout)
        for name, p in part.named_parameters():
            p.requires_grad_("mlp" in name)
        for options in (
            {}, dict(bf16=True), dict(gradient_checkpointing=True, temperature=0.7), dict(model=part, loss_type="grpo"),
            dict(model=str(dropout), num_iterations=2, steps_per_generation=2, beta=0.1, max_steps=4),
        ):  # fmt: skip
            scheme = "uniform" if options else "actfocus+aem"
            with self.subTest(scheme, **options):
                found = []
                for every in 0, 1:
                    if isinstance(options.get("model"), torch.nn.Module):
                        options = {**options, "model": LlamaForCausalLM.from_pretrained(dropout)}
                        for name, p in options["model"].named_parameters():
                            p.requires_grad_("mlp" in name)
                    it = made(self.credit(scheme, every), self.folder / "run", **{"max_steps": 2, **options})
                    random.seed(5), np.random.seed(5)
                    trained(it)
                    states = torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()
                    grads = [p.grad is None for p in it.model.parameters()]
                    needs = [p.requires_grad for p in it.model.parameters()]
                    modes = [m.training for m in it.model.modules()]
                    logs = [(e["loss"], e["grad_norm"]) for e in it.state.log_history if "loss" in e]
                    found.append((dict(it.model.state_dict()), (states, grads, needs, modes, logs)))
                    self.assertEqual(any("credit/audit/prompts" in entry for entry in log_of(it)), every > 0)
                for name, x in found[0][0].items():
                    self.assertTrue(torch.equal(x, found[1][0][name]), name)
                self.assertEqual(found[0][1], found[1][1])

    def again(self, batches, every, credit):
        """The audit of the same batches by other code, from what TRL returned."""
        total = None
        model = test_trl.model()
        for number, (output, state, inputs, _) in enumerate(batches):
            if number and (number + 1) % every:
                continue
            model.load_state_dict(state)
            mask = numpy(output["completion_mask"]) != 0
            ids, n = output["completion_ids"].numpy(), 4
            labels = [part_of(row, kept) for row, kept in zip(ids, mask)]
            prompts = [p[k != 0].numpy() for p, k in zip(output["prompt_ids"], output["prompt_mask"])]
            rewards = reward(test_trl.tokenizer().batch_decode(output["completion_ids"], skip_special_tokens=True))
            view = Gradients(model.eval())
            total = total or Audit(PARTS, directions=("credit",) if credit else (), layers=["0"])
            w = None
            if credit:
                with torch.no_grad():
                    whole = torch.cat([output["prompt_ids"], output["completion_ids"]], 1)
                    there = torch.cat([output["prompt_mask"], output["completion_mask"]], 1)
                    l = torch.log_softmax(model(input_ids=whole, attention_mask=there).logits.double(), -1)
                l = l[:, output["prompt_ids"].shape[1] - 1 : -1]
                signal = -l.gather(-1, output["completion_ids"][..., None])[..., 0].numpy()
                w, f, _ = weights_and_factors(ids, mask, signal, -(l.exp() * l).sum(-1).numpy(), np.arange(len(ids)) // n)
                w = w * f
            for g in range(len(ids) // n):
                rows = range(g * n, g * n + n)
                whole = [np.concatenate([prompts[b], ids[b][mask[b]]]) for b in rows]
                marks = [np.concatenate([np.full(len(prompts[b]), -1), labels[b][mask[b]]]) for b in rows]
                longest = max(map(len, whole))
                more = np.zeros((n, longest))
                if credit:
                    for i, b in enumerate(rows):
                        more[i, len(prompts[b]) : len(whole[i])] = w[b][mask[b]]
                grams = view.grams(whole, marks, 3, (lambda _: [more]) if credit else None)
                tokens = np.bincount(np.concatenate(marks) + 1, minlength=4)[1:]
                total.add([rewards[b] for b in rows], grams, tokens, f"{number} {g}")
        return total

    def test_log_and_files(self):
        """Scalars, pages and JSON have what another audit of the same batches and models finds."""
        for scheme, every in ("actfocus+aem", 2), ("uniform", 1):
            with self.subTest(scheme):
                seen, credit = Seen(), self.credit(scheme, every, dir=str(self.folder / scheme))
                it = made(credit, self.folder / "run", kind=seen.kind(), max_steps=5)
                said = trained(it)
                want = self.again(seen.batches, every, scheme != "uniform")
                got = it._reweight_audit._total()
                self.assertEqual((got.counted, len(got)), (want.counted, len(want)))
                for mine, theirs in zip(want._prompts.values(), got._prompts.values()):
                    self.assertEqual(mine.tokens.tolist(), theirs.tokens.tolist())
                    for field in "ST":
                        a, b = getattr(mine, field), getattr(theirs, field)
                        np.testing.assert_allclose(b, a, rtol=2e-3, atol=1e-4 * np.abs(mine.T).max())
                # The log has the figures of the report, and those alone that have an interval.
                log, report = log_of(it), got.report()
                with_audit = [i for i, entry in enumerate(log) if entry]
                self.assertEqual(with_audit, [0, 1, 3] if every == 2 else [0, 1, 2, 3, 4])
                last = log[with_audit[-1]]
                expected = {"prompts": got.counted}
                for part in report.parts:
                    for name, share in ("signal", part.signal), ("noise", part.noise):
                        if share.known:
                            expected[f"{name}_{part.name}"] = share.value
                for name, e in zip(("efficiency", "best_efficiency"), (*report.efficiencies, report.measured)[-2:]):
                    if scheme != "uniform" or name != "efficiency":
                        if e.here.known:
                            expected.update({name: e.here.value, name + "_low": e.here.low, name + "_high": e.here.high})
                self.assertEqual({k[len("credit/audit/") :]: v for k, v in last.items()}, expected)
                if scheme == "uniform":
                    self.assertIn("credit/audit/noise_action", last)
                folder = self.folder / scheme
                pages = sorted(p.name for p in folder.glob("*.html"))
                self.assertEqual([re.sub("^.*-step", "RUN-step", name) for name in pages], [f"RUN-step-{i + 1:06}-audit.html" for i in with_audit])
                self.assertIn(report.advice, (folder / pages[-1]).read_text())
                found = json.loads((folder / "audit.json").read_text())
                self.assertEqual(found["advice"], report.advice)
                self.assertEqual(len(found["audit"]["prompts"]), got.counted)
                self.assertEqual(said.count("by the audits until now:"), 1, said)
                self.assertIn("by the audits until now: Not enough prompts for advice: 4 have different rewards", said)

    def test_measured(self):
        """Equal weights until 8 prompts are audited; then those of the audits before the batch, in log and advantages."""
        for scheme in ("measured", "rloo+measured"):
            with self.subTest(scheme):
                seen = Seen()
                it = made(self.credit(scheme), self.folder / "run", kind=seen.kind(), max_steps=6)
                before, original = [], Original._generate_and_score_completions

                def plain(self, inputs):
                    output = original(self, inputs)
                    before.append(numpy(output["advantages"]))
                    return output

                with mock.patch.object(Original, "_generate_and_score_completions", plain):
                    said = trained(it)
                self.assertIn("dapo (token_mean): " + ("the advantages of RLOO" if "rloo" in scheme else "weights of parts"), said)
                self.assertEqual(said.count("8 prompts with different rewards are audited: the weights are measured from now on"), 1, said)
                ones, changed = dict.fromkeys(PARTS, 1.0), 0
                weights = [ones, *(w for _, _, _, w in seen.batches)]
                self.assertEqual(weights[:2], [ones, ones])
                for own, w, (output, *_), entry in zip(before, weights, seen.batches, log_of(it)):
                    self.assertEqual({part: entry[f"credit/audit/weight_{part}"] for part in PARTS}, w)
                    self.assertEqual(w["action"], 1)
                    self.assertTrue(all(0 <= x <= 2 for x in w.values()))
                    mask, ids = numpy(output["completion_mask"]) != 0, output["completion_ids"].numpy()
                    m = np.zeros(mask.shape)
                    for b, row in enumerate(ids):
                        labels = part_of(row, mask[b])
                        m[b] = np.where(labels >= 0, np.array([*w.values(), 0.0])[labels], 0)
                    A = own[:, None]
                    if "rloo" in scheme:
                        r = it.processing_class.batch_decode(output["completion_ids"], skip_special_tokens=True)
                        r = np.array(reward(r)).reshape(-1, 4)
                        A = ((r - r.mean(1, keepdims=True)) * 4 / 3).reshape(-1, 1)
                    np.testing.assert_allclose(numpy(output["advantages"]), A * m * mask.sum() / m.sum(), rtol=1e-4, atol=1e-5)
                    changed += w != ones
                self.assertGreaterEqual(changed, 3)
                self.assertEqual(it._reweight_audit.weights, it._reweight_audit._total().shrunk())
                self.assertEqual("credit/audit/efficiency" in log_of(it)[-1], it._reweight_audit._total().report().efficiencies[0].here.known)

    def test_resumed(self):
        """A run that is resumed from a checkpoint has the audits of the checkpoint, and the same weights at its end."""
        whole = made(self.credit("measured"), self.folder / "run", max_steps=6, save_strategy="steps", save_steps=4)
        trained(whole)
        again = made(self.credit("measured"), self.folder / "run", max_steps=6)
        said = trained(again, resume_from_checkpoint=str(self.folder / "run" / "checkpoint-4"))
        self.assertNotIn("begin anew", said)
        self.assertEqual(again._reweight_audit._total().report(), whole._reweight_audit._total().report())
        self.assertEqual(len(again._reweight_audit.found), 6)
        for name, x in whole.model.state_dict().items():
            self.assertTrue(torch.equal(x, again.model.state_dict()[name]), name)
        self.assertEqual(log_of(again)[-1], log_of(whole)[-1])
        # With another credit the audits are others; without the file they begin anew, and the run says so.
        other = made(self.credit("uniform"), self.folder / "run", max_steps=5)
        trained(other, resume_from_checkpoint=str(self.folder / "run" / "checkpoint-4"))
        self.assertEqual(other._reweight_audit._total().directions, ())
        os.remove(self.folder / "run" / "checkpoint-4" / _audit.FILE)
        gone = made(self.credit("measured"), self.folder / "run", max_steps=5)
        said = trained(gone, resume_from_checkpoint=str(self.folder / "run" / "checkpoint-4"))
        self.assertEqual(said.count("/checkpoint-4: they begin anew"), 1, said)
        self.assertEqual(len(gone._reweight_audit.found), 1)

    def test_window(self):
        """The last audits count alone."""
        with mock.patch.object(_audit, "AUDITS", 2):
            it = made(self.credit("uniform"), self.folder / "run", max_steps=4)
            trained(it)
        self.assertEqual([entry["credit/audit/prompts"] for entry in log_of(it)], [4, 8, 8, 8])

    def test_prompts(self):
        """At most so many of a batch, of those with different rewards; the others are counted."""
        even = lambda completions, **_: [float(i // 4 % 2 and i % 2) for i in range(len(completions))]
        with mock.patch.object(_audit, "PROMPTS", 1):
            it = made(self.credit("uniform"), self.folder / "run", max_steps=1, reward_funcs=even)
            trained(it)
        total = it._reweight_audit._total()
        self.assertEqual((total.counted, len(total)), (1, 3))
        self.assertEqual(log_of(it), [{"credit/audit/prompts": 1.0}])
        self.assertFalse(list((self.folder / "credit").glob("*.html")))  # one prompt has no report
        none = lambda completions, **_: [None] * len(completions)
        it = made(self.credit("measured"), self.folder / "run", max_steps=2, reward_funcs=none)
        trained(it)
        self.assertEqual([entry["credit/audit/prompts"] for entry in log_of(it)], [0, 0])

    def test_labels(self):
        """Tags as strings, as names, as ids, joined with others by a tokenizer, within a gap; and a function for actions."""
        chance = np.random.default_rng(0)
        ids = chance.choice([2, 3, 4, 9, 1], (40, 14), p=(0.2, 0.2, 0.3, 0.2, 0.1))
        mask = chance.random((40, 14)) < 0.95
        want = np.array([part_of(row, kept) for row, kept in zip(ids, mask)])
        self.assertEqual(set(want.reshape(-1)), {-1, 0, 1, 2})
        words = test_trl.tokenizer()
        for tags in ("answer", ("<answer>", "</answer>"), ([2], [3]), [([2], [3]), ([11, 11], [12])]):
            for tags_as in "reasoning", "action":
                audit = _audit.RunAudit(self.credit("uniform", tags=tags, tags_as=tags_as), None, None, 0)
                np.testing.assert_array_equal(audit.labels(torch.tensor(mask), torch.tensor(ids), words), want)
        audit = _audit.RunAudit(self.credit("uniform", tags=None, action=lambda ids, texts, _: np.array(ids) == 4), None, None, 0)
        np.testing.assert_array_equal(audit.labels(mask, ids, words), np.where(mask, np.where(ids == 4, 0, 2), -1))
        w = dict(zip(PARTS, (1.0, 0.5, 0.25)))
        audit = _audit.RunAudit(self.credit("measured"), None, None, 0)
        audit.weights = w
        np.testing.assert_array_equal(audit.weights_of(want)[mask], np.array([*w.values()])[want[mask]])

    def test_turns(self):
        """Turns as parts: of a run in which the second of three decides, in log, weights, JSON and page, and from a checkpoint."""

        def rollout(prompts, trainer):
            chance = np.random.default_rng(trainer.state.global_step)
            ids, masks = [], []
            for _ in prompts:
                said = [int(chance.integers(5, 7)) for _ in range(3)]
                ids.append([7, said[0], 8, said[1], 7, said[2], 1])
                masks.append([0, 1, 0, 1, 0, 1, 1])
            prompt_ids = [trainer.processing_class(p)["input_ids"] for p in prompts]
            return {"prompt_ids": prompt_ids, "completion_ids": ids, "logprobs": None, "env_mask": masks, "said": [row[3] for row in ids]}

        options = dict(rollout_func=rollout, reward_funcs=lambda said, **_: [float(word == 5) for word in said], num_generations=8, per_device_train_batch_size=64)
        credit = self.credit("measured", 2, audit_turns=3)
        it = made(credit, self.folder / "run", max_steps=4, save_strategy="steps", save_steps=4, **options)
        trained(it)
        log = log_of(it)[-1]
        self.assertGreater(log["credit/audit/signal_turn_2"], 0.5)
        self.assertLess(max(log["credit/audit/signal_turn_1"], log["credit/audit/signal_turn_3"]), 0.5)
        w = it._reweight_audit.weights
        self.assertEqual(list(w), ["turn 1", "turn 2", "turn 3"])
        self.assertGreater(w["turn 2"], w["turn 3"])
        found = json.loads((self.folder / "credit" / "audit.json").read_text())
        self.assertEqual([p["name"] for p in found["parts"]], list(w))
        self.assertEqual([p["tokens"] for p in found["parts"]], [total := found["parts"][0]["tokens"], total, 2 * total])
        page = max((self.folder / "credit").glob("*-audit.html")).read_text()
        self.assertIn("turn 2: signal", page)
        again = made(credit, self.folder / "run", max_steps=5, **options)
        trained(again, resume_from_checkpoint=str(self.folder / "run" / "checkpoint-4"))
        self.assertEqual(log_of(again)[-1]["credit/audit/weight_turn_2"], w["turn 2"])
        others = made(self.credit("measured", audit_turns=2), self.folder / "run", max_steps=5, **options)
        said = trained(others, resume_from_checkpoint=str(self.folder / "run" / "checkpoint-4"))
        self.assertIn("there are no audits of these parts in", said)
        mask = np.array([[1, 0, 1, 1, 0, 1, 1], [0, 0, 1, 1, 0, 0, 0], [0] * 7])
        np.testing.assert_array_equal(others._reweight_audit.labels(mask, mask, None), [[0, -1, 1, 1, -1, 1, 1], [-1, -1, 0, 0, -1, -1, -1], [-1] * 7])
        one = made(self.credit("uniform", audit_turns=2), self.folder / "run", max_steps=1)
        with self.assertWarnsRegex(UserWarning, "no audited answer has a second turn"):
            with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
                one.train()
        for value in (1, -2, True, 2.0):
            with self.subTest(value), self.assertRaisesRegex(reweight.InputError, "^audit_turns is .*, want a number of turns, at least 2, or 0"):
                Credit(audit_every=5, audit_turns=value)
        with self.assertRaisesRegex(reweight.InputError, "^audit_turns is 3, but no batch is audited: give audit_every too"):
            Credit(audit_turns=3)
        Credit(audit_every=5, audit_turns=3, tags=None)

    def test_no_tags(self):
        """Tags that no answer has: a warning, and weights of 1."""
        it = made(self.credit("measured", tags=("<a>", "</a>")), self.folder / "run", max_steps=3)
        with self.assertWarnsRegex(UserWarning, r"no token of the audited answers is in or between the tags \('<a>', '</a>'\)"):
            with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
                it.train()
        self.assertEqual(it._reweight_audit.weights, dict.fromkeys(PARTS, 1.0))

    def test_what_goes_wrong(self):
        """Too little memory and a folder that cannot be written end no run: one warning."""
        (self.folder / "credit").write_text("a file")
        it = made(self.credit("uniform"), self.folder / "run", max_steps=2)
        with mock.patch.object(Gradients, "grams", side_effect=torch.OutOfMemoryError), self.assertWarnsRegex(UserWarning, "too little memory"):
            with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
                it.train()
        self.assertEqual([entry["credit/audit/prompts"] for entry in log_of(it)], [0, 0])
        it = made(self.credit("uniform"), self.folder / "run", max_steps=2)
        with self.assertWarnsRegex(UserWarning, "the audit was not written: "):
            with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
                it.train()
        self.assertEqual(log_of(it)[-1]["credit/audit/prompts"], 8)

    def test_install(self):
        """By trl.install, and with a subclass: the same audits."""
        with contextlib.ExitStack() as stack:
            for name in ("__init__", "_generate_and_score_completions"):
                stack.enter_context(mock.patch.object(Original, name, getattr(Original, name)))
            trl.install(self.credit("uniform"))
            it = trainer(Original, folder=str(self.folder / "run"), per_device_train_batch_size=16, reward_funcs=reward)
            trained(it)
        other = made(self.credit("uniform"), self.folder / "run", max_steps=3)
        trained(other)
        self.assertEqual(log_of(it), log_of(other))
        self.assertEqual(log_of(it)[-1]["credit/audit/prompts"], 12)

    def test_refused(self):
        """Wrong values; what an audit cannot do, before the first rollout or at the first batch."""
        for value in (-1, 2.5, True, "50", None):
            with self.subTest(value), self.assertRaisesRegex(reweight.InputError, "^audit_every is .*, want a number of batches, or 0"):
                Credit(audit_every=value)
        for scheme, problem in (
            ("measured+measured", "scheme has measured and measured"), ("actfocus+measured", "scheme has measured and actfocus"),
            ("measured+group_filter", "scheme has measured and group_filter"), ("measured+nothing", 'scheme has "nothing"'),
        ):  # fmt: skip
            with self.subTest(scheme), self.assertRaisesRegex(reweight.InputError, problem):
                Credit(scheme)
        with self.assertRaisesRegex(reweight.InputError, "^tags is None, but an audit compares"):
            Credit(audit_every=5, tags=None)
        self.assertEqual([Credit().audited, Credit(audit_every=7).audited, Credit("measured").audited], [0, 7, 50])
        self.assertEqual(Credit("measured", audit_every=3).audited, 3)
        for scheme, problem in ("measured", "scheme is measured, and num_gen"), ("uniform", "audit_every is 1, and num_generations 2: an audit"):
            with self.assertRaisesRegex(reweight.InputError, problem):
                made(self.credit(scheme, 0 if scheme == "measured" else 1), self.folder / "run", num_generations=2)
        it = made(self.credit("uniform"), self.folder / "run")
        for kind, stage in ("DistributedType.FSDP", 0), ("DistributedType.DEEPSPEED", 3):
            it.accelerator = mock.Mock(distributed_type=kind, state=mock.Mock(deepspeed_plugin=mock.Mock(zero_stage=stage)))
            with self.assertRaisesRegex(reweight.InputError, "audit_every is 1, but no process has all weights of the model"):
                trl._begin_audits(it, it.credit, it.report)
        with self.assertRaisesRegex(reweight.InputError, "audit_every is 1, but the batch has pixel_values, which no audit reads"):
            trl._look(it, {"pixel_values": 1}, None, None, None, None, [])
        it = made(self.credit("uniform"), self.folder / "run")
        with mock.patch.object(Gradients, "grams", side_effect=reweight.InputError("model", "is odd")):
            with self.assertRaisesRegex(reweight.InputError, "model is odd"):
                trained(it)
        it = made(self.credit("uniform"), self.folder / "run")
        with mock.patch.object(it, "_calculate_rewards", lambda *a, **k: torch.zeros(8, 1)), contextlib.suppress(RuntimeError):
            with mock.patch.object(trl, "_returned", lambda *_: contextlib.nullcontext([])), self.assertRaisesRegex(HookError, "the audit reads"):
                it.train()

    def test_other_adapters(self):
        """Each refuses an audit, and names the way by a file."""
        config = {"reweight": {"audit_every": 5, "entropy": "surprisal"}}
        walked = 0
        for credit, problem in (
            (Credit(audit_every=5, entropy="surprisal"), "audit_every is 5, but {} does not audit a run: write rollouts to a file, for python -m reweight audit"),
            (Credit("measured"), "scheme has measured, but {} does not audit a run: write rollouts to a file, for python -m reweight audit"),
        ):
            for name, call in (
                ("verl", verl.install), ("OpenRLHF", openrlhf.install), ("NeMo RL", nemo_rl.install), ("slime", slime.advantage_function),
                ("prime-rl", prime_rl.install),
            ):  # fmt: skip
                with self.subTest(name), self.assertRaises(reweight.InputError) as caught:
                    call(credit)
                self.assertEqual(str(caught.exception), problem.format(name))
                walked += 1
            with self.assertRaisesRegex(reweight.InputError, "which needs a trainer whose adapter audits runs"):
                token_advantages(np.ones((2, 3)), np.ones((2, 3)), credit=credit, old_logprobs=np.ones((2, 3)), token_ids=np.ones((2, 3)))
        self.assertEqual(walked, 10)
        with self.assertRaisesRegex(reweight.InputError, "audit_every is 5, but verl does not audit"):
            verl._asked(config)

    def test_weights(self):
        """token_advantages multiplies weights of one's own into those of the scheme, over all processes."""
        chance = np.random.default_rng(0)
        mask, w = chance.random((4, 6)) < 0.7, chance.random((4, 6)).astype(np.float32)
        A = chance.normal(size=(4, 1)).astype(np.float32) * np.ones((4, 6), np.float32)
        for aggregation, scale in ("token_mean", mask.sum() / (w * mask).sum()), ("token_sum", 1.0):
            got = token_advantages(A, mask, credit=Credit("uniform"), aggregation=aggregation, weights=w)
            np.testing.assert_allclose(got, A * w * mask * scale, rtol=1e-5)
        for bad in (-1.0, np.nan, np.inf):
            w[1, mask[1].argmax()] = bad
            with self.assertRaisesRegex(reweight.InputError, r"weights\[\d+\] is .*, want finite numbers of at least 0"):
                token_advantages(A, mask, credit=Credit("uniform"), weights=w)

    def test_two_processes(self):
        """A prompt's answers lie in both: the audit is that of one process which has all of them, and all have its result;
        training is the same to the last bit."""
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", __file__, str(self.folder)]
        environ = environment(OMP_NUM_THREADS="1", ACCELERATE_USE_CPU="true")
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        a, b = (torch.load(self.folder / f"{rank}.pt", weights_only=False) for rank in range(2))
        self.assertEqual(a["report"], b["report"])
        self.assertEqual(a["weights"], b["weights"])
        for name, x in a["plain"].items():
            self.assertTrue(torch.equal(x, a["audited"][name]) and torch.equal(x, b["audited"][name]), name)
        self.assertEqual(a["report"].prompts, 6)  # three prompts of two batches
        self.assertEqual(a["one"], a["report"])
        self.assertEqual(done.stderr.count("by the audits until now:"), 1, done.stderr)


def process(folder):
    """One of two processes, with six answers of three prompts each."""
    folder = Path(folder)
    found = {}
    for name, credit in (("plain", Credit("uniform")), ("audited", Credit("uniform", audit_every=1, dir=str(folder / "credit")))):
        it = trainer(functools.partial(GRPOTrainer, credit=credit), folder=str(folder / "run"), per_device_train_batch_size=6,
                     max_steps=2, reward_funcs=reward, prompts=[f"w{i % 8} w{i // 8}" for i in range(60)])  # fmt: skip
        if credit.audited:
            calls, look = [], it._reweight_audit.look

            def kept(model, temperature, *rows):
                calls.append(([p.detach().clone() for p in model.parameters()], temperature, rows))
                return look(model, temperature, *rows)

            it._reweight_audit.look = kept
        sys.stderr.write(trained(it))
        found[name] = {n: x.clone() for n, x in it.model.state_dict().items()}
    audit = it._reweight_audit
    found.update(report=audit._total().report(), weights=audit._total().shrunk())
    # The same by one process alone, which has the rows of both.
    alone = _audit.RunAudit(dataclasses.replace(credit, dir=str(folder / f"alone-{audit.rank}")), it.report, lambda x: [x], 0)
    for parameters, temperature, rows in calls:
        model = test_trl.model()
        for p, x in zip(model.parameters(), parameters):
            p.data.copy_(x)
        every = trl._parts(rows[:-2])
        with contextlib.redirect_stderr(io.StringIO()):
            alone.look(model, temperature, *(sum((list(part[i]) for part in every), []) for i in range(len(rows) - 2)), None, rows[-1])
    found["one"] = alone._total().report()
    torch.save(found, folder / f"{audit.rank}.pt")


if __name__ == "__main__":
    if len(sys.argv) > 1 and os.path.isdir(sys.argv[1]):
        process(sys.argv[1])
    else:
        unittest.main()
