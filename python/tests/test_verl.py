"""reweight.adapters.verl in verl as it is installed: its trainer on its TransferQueue, its losses and their gradients
against the papers' formulas in float64, and whole runs of its command on the CPU, with the engines of verl_cpu.py.

reweight comes in by the entry point of the wheel: run this by python/test verl test_verl."""

import contextlib
import functools
import importlib.metadata
import importlib.util
import io
import itertools
import os
import pickle
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import warnings
from pathlib import Path
from unittest import mock

import numpy as np

if importlib.util.find_spec("verl") is None:
    raise unittest.SkipTest("verl is not installed")

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")  # on a machine with much else to do
warnings.simplefilter("ignore")  # verl's, about engines that are not installed
import formulas
import pandas
import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from support import environment, run_python
from tensordict import TensorDict
from transformers import LlamaConfig, LlamaForCausalLM
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.v1 import PPOTrainer, PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.utils.losses import ppo_loss
from verl_formulas import (
    ACTOR, CLOSING, CORRECTION, EOS, FIRST_WORD, IN_LOSS, LOSS, MODES, NO_IMPORTANCE, OBSERVATION, OPENING, OPTIONS, WORDS,
    accepted, config, default_config, group_advantages, importances, loss_of, multiplier, scores, tokenizer,
    turn_advantages, weights_and_factors,
)  # fmt: skip

from reweight import InputError
from reweight.adapters import Credit, HookError
from reweight.adapters import verl as adapter


class Steps(unittest.TestCase):
    """PPOTrainer on a TransferQueue, and ppo_loss of what it leaves there. 21 rows of up to 26 tokens: four prompts,
    one trajectory of three outputs, two of an empty mask, and three rows with which verl pads the batch."""

    @classmethod
    def setUpClass(cls):
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="error")
        stack.callback(ray.shutdown)
        OmegaConf.update(default_config(), "transfer_queue.backend.SimpleStorage.num_data_storage_units", 1)
        tq.init(default_config().transfer_queue)
        stack.callback(tq.close)
        cls.worst, cls.partitions = {}, itertools.count()
        stack.callback(lambda: sys.stderr.write("".join(f"\nverl, {k}: {v:.1e}" for k, v in cls.worst.items()) + "\n"))
        g = np.random.default_rng(3)
        cls.keys = [f"prompt{i // 4}_{i % 4}_0" for i in range(16)]
        cls.keys[6:6] = ["prompt1_1_1", "prompt1_1_2"]
        shape = B, T = len(cls.keys) + 3, 26
        cls.lengths = g.integers(20, T + 1, B)
        cls.lengths[-3:] = 1
        sampled = np.arange(T) < cls.lengths[:, None]
        sampled[:, 9:11] = False  # an observation
        sampled[[3, 8, -3, -2, -1]] = False
        ids = g.integers(FIRST_WORD, len(WORDS), shape)
        ids[:, 2], ids[:, 6], ids[::2, 12], ids[::2, 16], ids[5, 8] = OPENING, CLOSING, OPENING, CLOSING, CLOSING
        last = np.arange(T) == cls.lengths[:, None] - 1
        f32 = lambda x: x.astype(np.float32).astype(np.float64)
        rollout = f32(-0.01 - g.gamma(1.0, 1.0, shape))
        rollout[-3:] = 0
        old = f32(np.minimum(rollout + g.normal(size=shape) * 0.3, -1e-3))
        drift = g.normal(size=(B, 1)) * 0.2  # of whole trajectories, for the clips of sequences
        new = f32(np.minimum(old + drift + g.normal(size=shape) * 0.3, -1e-3))
        cls.rows = {
            "responses": ids, "sampled": sampled, "kept": sampled, "scores": f32(g.normal(size=(B, 1)) * last),
            "rollout": rollout, "old": old, "new": new, "ref": f32(new + g.normal(size=shape) * 0.2),
            "entropy": f32(g.gamma(2.0, 0.5, shape)), "values": f32(g.normal(size=shape)),
        }  # fmt: skip
        cls.rows["scores"][-3:] = 0

    def nested(self, x, index=None):
        """Rows of their lengths, as verl has them."""
        rows = [torch.from_numpy(x[i, : self.lengths[i]].copy()) for i in (range(len(x)) if index is None else index)]
        return torch.nested.as_nested_tensor(rows, layout=torch.jagged)

    def wide(self, x):
        """[B, T] of such rows."""
        return np.stack([np.pad(row.numpy(), (0, 26 - len(row))) for row in x.unbind()])

    def batch(self, rows, names=("old_log_probs", "entropy", "ref_log_prob", "values")):
        """Puts a batch into the queue, as it is there before advantages are computed."""
        n, float32 = len(self.keys), lambda x: x.astype(np.float32)
        given = {
            "responses": rows["responses"], "response_mask": rows["sampled"].astype(np.int64),
            "loss_mask": rows["sampled"].astype(np.int64), "rm_scores": float32(rows["scores"]),
            "rollout_log_probs": float32(rows["rollout"]),
        }  # fmt: skip
        fields = [
            {name: row for name, row in zip(given, x)}
            for x in zip(*(self.nested(x[:n]).unbind() for x in given.values()))
        ]
        for i, (key, field) in enumerate(zip(self.keys, fields)):
            if "turns" in rows:
                field["extra_fields"] = {"turn_scores": rows["turns"][i]}
            more = {"prompts": torch.tensor([FIRST_WORD, FIRST_WORD + 1]), "uid": key.split("_")[0]}
            field.update(more, position_ids=torch.arange(2 + len(field["responses"])))
        partition = f"train{next(self.partitions)}"
        tags = [{"seq_len": len(field["position_ids"])} for field in fields]
        batch = tq.kv_batch_put(self.keys, partition, tu.list_of_dict_to_tensordict(fields), tags)
        batch = upsample_batch_to_divisible_size(batch, 7, EOS)
        self.addCleanup(tq.kv_clear, batch.keys, partition)
        computed = {"old_log_probs": rows["old"], "ref_log_prob": rows["ref"], **rows}
        computed = {name: self.nested(float32(computed[name])) for name in names}
        tq.kv_batch_put(batch.keys, partition, TensorDict(computed, batch_size=len(batch.keys)))
        return batch

    def trainer(self, changes=(), reweight=OPTIONS):
        made = PPOTrainerSync(config(changes, reweight))
        made.tokenizer = tokenizer()
        return made

    def advantages(self, made, batch):
        """Has the trainer compute them; returns the batch as the actor gets it, and what was logged and said."""
        metrics, said = {}, io.StringIO()
        with contextlib.redirect_stderr(said):
            made._compute_advantage(batch, metrics=metrics)
        return tq.kv_batch_get(batch.keys, batch.partition_id), metrics, said.getvalue()

    def check(self, changes=(), options=OPTIONS, parts=2, **names):
        """A step with these changes of the configuration: advantages, loss and gradient; parts is the number of
        micro-batches."""
        made, rows, importance = self.trainer(changes, options), dict(self.rows), None
        correction = made.config.algorithm.rollout_correction
        if correction.bypass_mode:  # the policy that sampled is the old one
            rows["old"] = rows["rollout"]
        else:
            ratio = np.exp(rows["old"] - rows["rollout"])
            rows["kept"], importance = accepted(ratio, rows["sampled"], correction), importances(
                ratio, rows["sampled"], correction
            )
            if correction.rollout_rs is not None:
                self.assertTrue(rows["kept"].any() and (rows["sampled"] & ~rows["kept"]).any())
        batch = self.batch(rows, **names)
        data, metrics, _ = self.advantages(made, batch)
        np.testing.assert_array_equal(self.wide(data["response_mask"]) != 0, rows["kept"])
        actor = omega_conf_to_dataclass(made.config.actor_rollout_ref.actor)
        credit, groups = Credit(**options), list(data["uid"])
        w, f, role = weights_and_factors(rows, groups, credit)
        mode = "seq-mean-token-mean" if actor.policy_loss.loss_mode == "sapo" else actor.loss_agg_mode
        trajectories = [key.rpartition("_")[0] for key in batch.keys]
        A = group_advantages(rows["scores"].sum(1), groups, trajectories, rows["kept"])
        for name in ("rloo", "opo", "gtpo", "reinforce++_baseline"):
            if name in credit.scheme:
                A = formulas.advantages(name, rows["scores"].sum(1), rows["kept"], rows["entropy"], np.array(groups))
                self.assertGreater(metrics["credit/advantage"], 0)
        if "turn_returns" in credit.scheme:
            A = turn_advantages(rows["scores"].sum(1), rows["turns"], rows["kept"], groups)
        self.assertNear("advantages", self.wide(data["advantages"]), A * multiplier(rows, w, f, mode))
        if "actfocus" in credit.scheme:
            self.assertEqual(metrics["credit/actions"], (role == 2).sum())
            self.assertAlmostEqual(metrics["credit/action_weight"], (w * f)[role == 2].sum() / (w * f).sum(), 6)
        got, gradient = self.trainers_loss(data, actor, parts)
        want, exact = loss_of(rows, w, A * f, actor, rows["sampled"].sum(), len(groups), importance)
        self.assertNear("gradients", gradient, exact)
        self.assertNear("losses", got, want, max(abs(want), np.abs(exact).sum()))  # sums of terms that cancel

    def assertNear(self, kind, got, want, size=None):
        kind = f"{self._testMethodName}, largest relative difference of {kind}"
        relative = np.abs(got - want).max() / (size or np.abs(want).max())
        self.worst[kind] = max(self.worst.get(kind, 0.0), relative)
        self.assertLess(relative, 1e-5, kind)

    def trainers_loss(self, data, actor, parts):
        """ppo_loss and its gradient by the log-probabilities, of micro-batches as the engine makes them."""
        leaf = torch.from_numpy(self.rows["new"].astype(np.float32)).requires_grad_()
        entropy = torch.from_numpy(self.rows["entropy"].astype(np.float32))
        per_row, total = {n: x.unbind() for n, x in data.items() if getattr(x, "is_nested", False)}, 0.0
        for part in np.array_split(np.arange(len(leaf)), parts):
            micro = tu.get_tensordict(
                {
                    n: torch.nested.as_nested_tensor([x[i] for i in part], layout=torch.jagged)
                    for n, x in per_row.items()
                }
            )
            tokens = int(self.rows["sampled"].sum())
            tu.assign_non_tensor(micro, dp_size=1, batch_num_tokens=tokens, global_batch_size=len(leaf))

            def of_model(x, part=part):
                """x of the responses, as the model gives it: of prompts too, and one token earlier."""
                before = [torch.zeros(len(per_row["prompts"][i]) - 1) for i in part]
                rows = [torch.cat([p, x[i, : self.lengths[i]], torch.zeros(1)]) for i, p in zip(part, before)]
                offsets = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
                return torch.nested.nested_tensor_from_jagged(torch.cat(rows), offsets)

            outputs = {"log_probs": of_model(leaf), **({"entropy": of_model(entropy)} if actor.entropy_coeff else {})}
            total = total + ppo_loss(actor, outputs, micro)[0]
        total.backward()
        return total.item(), leaf.grad.double().numpy()

    def test_losses(self):
        """Every policy loss that is let through, with every aggregation."""
        for name, mode in itertools.product(adapter._LOSSES, MODES):
            with self.subTest(name, mode=mode):
                self.check(
                    {LOSS: name, ACTOR + "loss_agg_mode": mode, ACTOR + "loss_scale_factor": 50, **NO_IMPORTANCE}
                )

    def test_corrections(self):
        """verl's weights and rejection for the difference between the policy that sampled and the trained one."""
        token = {CORRECTION + "rollout_rs": "token_k1", CORRECTION + "rollout_rs_threshold": "0.6_1.6"}
        sequence = {CORRECTION + "rollout_rs": "seq_mean_k1", CORRECTION + "rollout_rs_threshold": "0.95_1.1"}
        cases = [{**r, ACTOR + "loss_agg_mode": mode} for r in (token, sequence) for mode in MODES[:3]]
        cases += [{**token, LOSS: name} for name in ("gspo", "cispo", "sapo")]
        cases += [{CORRECTION + "rollout_is": level} for level in ("token", "sequence")]
        cases += [{CORRECTION + "rollout_is": "token", CORRECTION + "rollout_is_batch_normalize": True, **token}]
        for changes in cases:
            with self.subTest(**changes):
                self.check(changes)

    def test_bypass(self):
        """The policy that sampled in the place of the old one, with a loss that corrects for itself, and without."""
        base = {CORRECTION + "bypass_mode": True}
        token = {IN_LOSS + "rollout_rs": "token_k1", IN_LOSS + "rollout_rs_threshold": "0.6_1.6"}
        sequence = {IN_LOSS + "rollout_rs": "seq_mean_k1", IN_LOSS + "rollout_rs_threshold": "0.9_1.2"}
        loss = {**base, LOSS: "bypass_mode", IN_LOSS + "loss_type": "reinforce"}
        cases = [base, {**base, LOSS: "bypass_mode"}]
        cases += [{**loss, IN_LOSS + "rollout_is": level} for level in ("token", "sequence")]
        cases += [{**loss, **sequence, ACTOR + "loss_agg_mode": mode} for mode in MODES[:3]]
        cases += [{**loss, **token, ACTOR + "loss_agg_mode": mode} for mode in (MODES[0], MODES[2])]
        for changes in cases:
            with self.subTest(**changes):
                self.check(changes, {**OPTIONS, "entropy": "surprisal"}, names=("old_log_probs",))

    def test_other_terms(self):
        """Dual clip, a penalty on the divergence, a bonus on the entropy; and other credits."""
        penalty = {ACTOR + "use_kl_loss": True, ACTOR + "kl_loss_coef": 0.1, ACTOR + "entropy_coeff": 0.01}
        for mode in MODES[:3]:
            self.check({**penalty, ACTOR + "loss_agg_mode": mode})
        self.check({ACTOR + "clip_ratio_c": 1.1, ACTOR + "clip_ratio_high": 0.28})
        self.check({ACTOR + "loss_agg_mode": "seq-mean-token-sum-norm"}, parts=1)  # which divides by the padded length
        self.check(penalty, {**OPTIONS, "signal": "log_ratio"})
        self.check(options={"scheme": "aem", "guard": 0.0})
        self.check(options={"scheme": "actfocus"})
        self.check(options={**OPTIONS, "tags": [[OPENING], [CLOSING]]})
        self.check(options={**OPTIONS, "scope": "batch"})

    def test_estimators(self):
        """Other advantages, and a reward with a penalty: all are multiplied, and returns stay as they are,
        and so do the rows with which verl pads."""
        for name in ("gae", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "gpg", "grpo_vectorized"):
            changes = {"algorithm.adv_estimator": name, "algorithm.use_kl_in_reward": name == "rloo"}
            plain, _, said = self.advantages(self.trainer(changes, None), self.batch(self.rows))
            self.assertEqual(said, "")
            data, _, _ = self.advantages(self.trainer(changes), self.batch(self.rows))
            w, f, _ = weights_and_factors(self.rows, list(data["uid"]), Credit(**OPTIONS))
            own = self.wide(plain["advantages"])
            want, rows = own * multiplier(self.rows, w, f, "token-mean"), len(self.keys)
            want[rows:] = own[rows:]  # those that verl pads with; whitening left something there
            with self.subTest(name):
                self.assertNear("advantages", self.wide(data["advantages"]), want)
                np.testing.assert_array_equal(self.wide(data["returns"]), self.wide(plain["returns"]))

    def test_schemes(self):
        """Advantages that take the place of verl's, weights, and what they are together. One of the rows has a trajectory
        of three outputs, which these schemes do not take: here each is a trajectory."""
        made, batch = self.trainer(reweight={"scheme": "rloo"}), self.batch(self.rows)
        with self.assertRaisesRegex(ValueError, "a trajectory has several outputs, of which the scheme rloo would take each"):
            self.advantages(made, batch)
        keys = [f"prompt{i // 5}_{i % 5}_0" for i in range(len(self.keys))]
        with mock.patch.object(type(self), "keys", keys):
            for scheme in ("rloo", "gtpo", "reinforce++_baseline", "entropy_mask", "opo+actfocus", "gtpo+actfocus+aem"):
                options = {"beta": 2.0} if "actfocus" in scheme else {}
                options.update({"guard": 0.0} if "aem" in scheme else {}, scheme=scheme)
                for mode in MODES[:3]:
                    with self.subTest(scheme, mode=mode):
                        self.check({ACTOR + "loss_agg_mode": mode}, options)
            # What is rejected has no part, and a penalty in the rewards has one.
            rejection = {CORRECTION + "rollout_rs": "token_k1", CORRECTION + "rollout_rs_threshold": "0.6_1.6"}
            self.check(rejection, {"scheme": "rloo+actfocus"})
            changes = {"algorithm.use_kl_in_reward": True, "algorithm.adv_estimator": "rloo"}
            plain, _, _ = self.advantages(self.trainer(changes, None), self.batch(self.rows))
            data, _, _ = self.advantages(self.trainer({**changes, "algorithm.adv_estimator": "grpo"}, {"scheme": "rloo"}),
                                         self.batch(self.rows))  # fmt: skip
            self.assertNear("advantages", self.wide(data["advantages"]), self.wide(plain["advantages"]))

    def test_turns(self):
        """The rewards of turns are the turn_scores of an agent loop, which are there for each turn, or it is an error that
        says so."""
        g = np.random.default_rng(5)
        sampled, keys = self.rows["sampled"].copy(), [f"prompt{i // 5}_{i % 5}_0" for i in range(len(self.keys))]
        sampled[[2, 6, 11], 9:] = False
        turns = [g.normal(size=1 if i in (2, 6, 11) else 2).round(3).tolist() for i in range(len(keys))] + [[]] * 3
        with mock.patch.object(type(self), "keys", keys), mock.patch.dict(self.rows, sampled=sampled, kept=sampled, turns=turns):
            for scheme in "turn_returns", "turn_returns+actfocus":
                for mode in MODES[:3]:
                    with self.subTest(scheme, mode=mode):
                        self.check({ACTOR + "loss_agg_mode": mode}, {"scheme": scheme})
            made = self.trainer(reweight={"scheme": "turn_returns"})
            for wrong, message in (
                (None, r"^span_rewards\[1\] is None, want a list of numbers, one for each turn of the trajectory: "),
                ([], r"^span_rewards\[1\] has 0 numbers, want 2, one for each turn of the trajectory: "),
                ([1.0, None], r"^span_rewards\[1, 1\] is None, want a number"),
                ([1.0, np.nan], r"^span_rewards\[1, 1\] is NaN, want a finite number: "),
            ):
                with self.subTest(message), mock.patch.dict(self.rows, turns=[turns[0], wrong, *turns[2:]]):
                    batch = self.batch(self.rows)
                    with self.assertRaisesRegex(InputError, message + r'.*in verl, an agent loop gives .*\["turn_scores"\]'):
                        self.advantages(made, batch)

    def test_not_finite(self):
        """A token without a log-probability: it has the weight 1."""
        old = self.rows["old"].copy()
        old[0, 4] = np.nan  # an action
        data, metrics, said = self.advantages(self.trainer(), self.batch({**self.rows, "old": old}))
        self.assertEqual(metrics["credit/not_finite"], 1)
        self.assertIn("1 tokens of a batch have no finite log-probability", said)
        got = self.wide(data["advantages"])
        self.assertTrue(np.isfinite(got).all())
        self.assertAlmostEqual(got[0, 4] * OPTIONS["alpha"] / got[0, 0], 1, 6)  # to a thought of the same response

    def test_report(self):
        """One line at the first batch, or when the trainer's work ends without one."""
        made = self.trainer()
        said = [self.advantages(made, self.batch(self.rows))[2] for _ in range(2)]
        self.assertRegex(
            said[0], r"^reweight: in verl 0\.9\.1, vanilla \(token_mean\): ActFocus by surprisal \(\d+ action"
        )
        self.assertEqual(said[1], "")
        with mock.patch.object(PPOTrainer, "fit", lambda self, manager: manager):
            with contextlib.redirect_stderr(io.StringIO()) as said:
                self.assertEqual(self.trainer().fit("manager"), "manager")
        self.assertEqual(said.getvalue().count("the credit was never called"), 1)


class Refusals(unittest.TestCase):
    """Before the first rollout, by verl's own options."""

    def refused(self, message, changes=(), error=ValueError, kind=PPOTrainerSync, **options):
        with self.subTest(message), self.assertRaisesRegex(error, message):
            kind(config(changes, **options))

    def test_configurations(self):
        for name in ("geo_mean", "clip_cov", "kl_cov", "dro", "mine"):
            self.refused(rf'^{LOSS} is "{name}", want one of \[vanilla gspo .* bypass_mode\]', {LOSS: name})
        self.refused(rf'^{ACTOR}loss_agg_mode is "mean", want one of', {ACTOR + "loss_agg_mode": "mean"})
        self.refused("bypass_mode=True: set it to False, or use entropy=surprisal", {CORRECTION + "bypass_mode": True})
        self.refused("use_kl_loss=True or algorithm.use_kl_in_reward=True", reweight={"beta": 0.5, "signal": "log_ratio"})
        self.refused("^distillation.enabled is True", {"distillation.enabled": True})
        self.refused("^algorithm.use_pf_ppo is True", {"algorithm.use_pf_ppo": True})
        rejection = {LOSS: "bypass_mode", IN_LOSS + "rollout_rs": "token_k1", ACTOR + "loss_agg_mode": MODES[1]}
        self.refused('rollout_rs is "token_k1" with loss_mode=bypass_mode', rejection)

    def test_options(self):
        for options, message in (
            ({"alph": 1}, r"^reweight\.alph is no option, want one of \[scheme options alpha"),
            ({"tokenizer": "gpt2"}, r"^reweight\.tokenizer is no option"),
            ({"alpha": "much"}, r"^reweight\.alpha is 'much', want a float such as 0\.3"),
            ({"alpha": True}, r"^reweight\.alpha is True, want a float"),
            ({"scheme": 1}, r"^reweight\.scheme is 1, want a str"),
            ({"scheme": "gtpo+gspo"}, r"has gspo, a loss: verl has its own, which \S+loss_mode \(with loss_agg_mode\) chooses"),
            ({"scheme": "gae"}, "has gae, which reads values: verl does this by algorithm.adv_estimator=gae"),
            ({"scheme": "tis"}, "verl does this by algorithm.rollout_correction"),
            ({"scheme": "otb"}, "has otb, which reads sum_sq_probs, which verl does not keep"),
            ({"scheme": "gtpo", "options": {"gtpo": 1}}, r"^reweight\.options is .*, want options by entries"),
            ({"scheme": "gtpo", "options": {"gtpo": {"much": 1}}}, '^options has "much" of gtpo, want some of'),
            ({"scope": 3}, r"^reweight\.scope is 3, want a str"),
            ({"keep": 3}, r"^reweight\.keep is 3, want a str such as 'norm'"),
            ({"keep": "all"}, r"^keep is 'all', want None or \"norm\""),
            ({"action": "x"}, r"^reweight\.action is no option"),
            ({"beta": "x"}, r"^reweight\.beta is 'x', want a float such as 0\.0"),
            ({"alpha": -1.0}, "alpha"),
            ({"scope": "all"}, "scope"),
            ({"beta": 0.5, "signal": "energy"}, 'signal is "energy", which verl does not keep'),
            ({"tags": "<answer>"}, r"^tags is '<answer>', want some of \[answer tool_call .* or what opens and what closes an action"),
            ({"tags": [[2], ["x"]]}, r"^tags is \(\(2,\), \('x',\)\), want what opens"),
            ({"tags": 5}, r"^tags is 5, want what opens"),
            ({"tags": [1, 2]}, r"^tags is \(1, 2\), want what opens"),
            (True, r"^reweight is True, want options of \[scheme options alpha"),
            (0.2, r"^reweight is 0\.2, want options"),
        ):
            self.refused(message, reweight=options)

    def test_taken(self):
        """What the command line can give."""
        for options, want in (
            ({}, Credit()),
            ({"alpha": 1, "scheme": "actfocus", "tags": None}, Credit("actfocus", alpha=1.0, tags=None)),
            ({"scheme": "gtpo", "options": {"gtpo": {"bonus": 0.2}}}, Credit("gtpo", {"gtpo": {"bonus": 0.2}})),
            ({"tags": ["<a>", "</a>"], "signal": "surprisal"}, Credit(tags=("<a>", "</a>"))),
            ({"tags": [[5, 6], [7]]}, Credit(tags=((5, 6), (7,)))),
            ({"keep": "norm", "save_every": 50}, Credit(keep="norm", save_every=50)),
        ):
            self.assertEqual(adapter._asked(config(reweight=options)), want)

    def test_nobody_asked(self):
        made = PPOTrainerSync(config(reweight=None))
        self.assertFalse({"_compute_advantage", "fit"} & set(vars(made)))
        self.assertFalse(hasattr(PPOTrainer._compute_advantage, "_reweight_original"))

    def test_install(self):
        """From Python; not together with the configuration."""
        with mock.patch.object(adapter, "_installed", None), mock.patch("atexit.register"):
            adapter.install(Credit(alpha=0.3))
            self.assertIn("_compute_advantage", vars(PPOTrainerSync(config(reweight=None))))
            self.refused("in the configuration, and verl.install was called: want one of them")

    def test_another_version(self):
        """A verl without these classes, or with another method: no error but where a credit is asked for."""
        adapter._wrap("verl.nowhere", "PPOTrainer", "__init__", adapter._credited)
        with mock.patch.object(PPOTrainer, "_compute_advantage", lambda self, data: data):
            PPOTrainerSync(config(reweight=None))
            self.refused(r"written for verl .* 0\.9\.1 .* no batch, metrics", error=HookError)
        with mock.patch.object(adapter, "version_of", lambda package: "0.9.0"):
            self.refused("PPOTrainer of verl 0.9.0 was not tested: set trainer.use_v1=False", error=HookError)

    def test_entry_point(self):
        """It is in the wheel, verl loads it, and it imports nothing of verl's."""
        points = [p.value for p in importlib.metadata.entry_points(group="verl.plugins") if p.name == "reweight"]
        self.assertEqual(points, ["reweight.adapters.verl_plugin"])
        done = run_python(
            "import sys, verl\n"
            "print('reweight.adapters.verl' in sys.modules, 'verl.trainer.ppo.v1.trainer_base' in sys.modules)\n"
            "from verl.trainer.ppo.v1 import PPOTrainer\n"
            "print(hasattr(PPOTrainer.__init__, '_reweight_original'))"
        )
        self.assertEqual(done.stdout.split(), ["True", "False", "True"], done.stderr)


class Runs(unittest.TestCase):
    """python -m verl.trainer.main_ppo, two steps."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        tokenizer().save_pretrained(self.folder / "model")
        torch.manual_seed(0)
        LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
                num_key_value_heads=2, max_position_embeddings=256, pad_token_id=0, eos_token_id=1, bos_token_id=1,
                initializer_range=0.5,
            )  # fmt: skip
        ).save_pretrained(self.folder / "model")
        prompts = [[{"role": "user", "content": f"w{i % 19} w{i // 19}"}] for i in range(32)]
        more = {"data_source": "test", "reward_model": {"style": "rule", "ground_truth": ""}}
        rows = [
            {"prompt": prompt, "extra_info": {"index": i, "folder": folder.name}, **more}
            for i, prompt in enumerate(prompts)
        ]
        pandas.DataFrame(rows).to_parquet(self.folder / "data.parquet")

    own_ray = ("ray_kwargs.ray_init.num_cpus=16", "+ray_kwargs.ray_init.resources={NPU:1}",
               "+ray_kwargs.ray_init.include_dashboard=False")  # fmt: skip

    def environment(self, **variables):
        """Ray finds a cluster by a file of its folder: that of nobody else."""
        return environment(RAY_TMPDIR=str(self.folder), RAY_AUTH_MODE="disabled", **variables)

    def start(self, *changes, fails=False, **variables):
        """Runs verl's command; returns what it says."""
        f, model, rollout = self.folder, "actor_rollout_ref.model.", "actor_rollout_ref.rollout."
        command = [
            sys.executable, "-m", "verl.trainer.main_ppo", "trainer.device=cpu", "trainer.n_gpus_per_node=1",
            "trainer.total_training_steps=2", "trainer.test_freq=-1", "trainer.val_before_train=False",
            f"trainer.default_local_dir={f}", "trainer.resume_mode=disable", f"data.train_files={f}/data.parquet",
            f"data.val_files={f}/data.parquet", "data.train_batch_size=4", "data.max_prompt_length=8",
            "data.shuffle=False", "data.max_response_length=64", "data.dataloader_num_workers=0",
            "algorithm.adv_estimator=grpo", model + f"path={f}/model", model + "use_remove_padding=False",
            f"+{model}override_config.attn_implementation=sdpa", model + "enable_gradient_checkpointing=False",
            ACTOR + "strategy=fsdp2", ACTOR + "ppo_micro_batch_size_per_gpu=4", ACTOR + "ppo_mini_batch_size=4",
            ACTOR + "fsdp_config.use_torch_compile=False", f"+{ACTOR}fsdp_config.mixed_precision.param_dtype=fp32",
            rollout + "name=cpu", rollout + "n=4", rollout + "tensor_model_parallel_size=1",
            rollout + "log_prob_micro_batch_size_per_gpu=4", rollout + "free_cache_engine=False",
            rollout + "agent.num_workers=1", rollout + "agent.default_agent_loop=two_turns", "reward.num_workers=0",
            "transfer_queue.backend.SimpleStorage.num_data_storage_units=1", *changes,
        ]  # fmt: skip
        environ = self.environment(VERL_USE_EXTERNAL_MODULES="verl_cpu", PYTHONWARNINGS="ignore", **variables)
        begin = time.monotonic()
        done = subprocess.run(command, env=environ, cwd=f, capture_output=True, text=True, timeout=900)
        sys.stderr.write(f"\nverl, {self._testMethodName}: {time.monotonic() - begin:.0f} s\n")
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, int(fails), said[-8000:])
        self.assertEqual(said.count("reweight: in verl 0.9.1"), int(not fails), said[-8000:])
        return said

    def logged(self, said):
        """The scalars of the two steps in the console."""
        steps = re.findall(r"step:(\d+) - (.*)", said)
        self.assertEqual([number for number, _ in steps], ["1", "2"])
        return [dict(re.findall(r"(\S+?):(?:np\.float64\()?([-+.\de]+)", line)) for _, line in steps]

    def check(self, said, loss_mode, credit, epochs=1, legacy=False):
        """Each update of the actor: advantages, loss and gradient. Returns how many rows were empty, and padding."""
        files = sorted(self.folder.glob("*.pickle"), key=lambda path: path.stat().st_mtime_ns)
        self.assertEqual(len(files), 2 * epochs * 4)  # micro-batches of 4 rows
        actor = omega_conf_to_dataclass(config({LOSS: loss_mode}).actor_rollout_ref.actor)
        logged, empty, padding = self.logged(said), 0, 0
        for update in range(2 * epochs):
            step, micros = update // epochs, [pickle.loads(path.read_bytes()) for path in files[4 * update :][:4]]
            seen = {name: [row for micro in micros for row in micro["rows"][name]] for name in micros[0]["rows"]}
            lengths, prompts = map(len, seen["responses"]), map(len, seen["prompts"])
            spans = [slice(p - 1, p - 1 + n) for p, n in zip(prompts, lengths)]
            of_model = ("logprobs", "gradient", *["entropy"] * legacy)  # of prompts too, and one token earlier
            seen.update({name: [row[span] for row, span in zip(seen[name], spans)] for name in of_model})
            T = max(map(len, seen["responses"]))
            wide = lambda name: np.stack([np.pad(row, (0, T - len(row))) for row in seen[name]]).astype(np.float64)
            rows = {"responses": wide("responses"), "sampled": wide("loss_mask") != 0, "new": wide("logprobs")}
            rows.update(kept=rows["sampled"], old=wide("old_log_probs"), ref=rows["new"], entropy=wide("entropy"))
            groups = seen["uid"]
            w, f, role = weights_and_factors(rows, groups, credit)
            own = A = group_advantages(wide("rm_scores").sum(1), groups, range(len(groups)), rows["kept"])
            if "rloo" in credit.scheme:
                A = formulas.advantages("rloo", wide("rm_scores").sum(1), rows["kept"], None, np.array(groups))
            if "turn_returns" in credit.scheme:
                turns = [[] if x.startswith("pad") else scores(ids.tolist()) for x, ids in zip(groups, seen["responses"])]
                A = turn_advantages(wide("rm_scores").sum(1), turns, rows["kept"], groups)
            loss, gradient = loss_of(rows, w, A * f, actor, rows["sampled"].sum(), len(groups))
            near = lambda name, want: np.abs(wide(name) - want).max() / np.abs(want).max()
            differences = near("advantages", A * multiplier(rows, w, f, "token-mean")), near("gradient", gradient)
            got, ratio = sum(micro["loss"] for micro in micros), np.exp(rows["new"] - rows["old"])[rows["kept"]]
            sys.stderr.write(
                f"verl, {self._testMethodName}, step {step + 1}: loss {got:+.8f}, NumPy {loss:+.8f}; advantages within "
                f"{differences[0]:.1e}, gradient {differences[1]:.1e}; ratios {ratio.min():.3f} to {ratio.max():.3f}\n"
            )
            self.assertLess(max(*differences, abs(got - loss) / np.abs(gradient).sum()), 1e-5)
            self.assertLess(near("returns", own), 1e-5)  # verl's own
            numbers = {"actions": (role == 2).sum(), "action_weight": (w * f)[role == 2].sum() / (w * f).sum()}
            for name, value in {**numbers, "aem_max": f.max(), "not_finite": 0}.items():
                self.assertAlmostEqual(float(logged[step]["credit/" + name]), value, delta=1e-5 * max(value, 1))
            empty += sum(len(mask) > 1 and not mask.any() for mask in seen["loss_mask"])
            padding += sum(group.startswith("pad") for group in groups)
        return empty, padding

    def test_run(self):
        """On a Ray of its own: the log in the console, TensorBoard and W&B."""
        said = self.start(
            "+reweight.scheme=rloo+actfocus+aem", "+reweight.beta=2", "+reweight.guard=0.0", '+reweight.tags=["<answer>","</answer>"]', *self.own_ray,
            'trainer.logger=["console","tensorboard","wandb"]', TENSORBOARD_DIR=f"{self.folder}/board",
            WANDB_MODE="offline",
        )  # fmt: skip
        empty, padding = self.check(said, "vanilla", Credit("rloo+actfocus+aem", beta=2.0, guard=0.0))
        self.assertGreater(empty, 0)
        self.assertEqual(padding, 4)
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(f"{self.folder}/board")
        events.Reload()
        (wandb,) = self.folder.glob("wandb/offline-run-*/*.wandb")
        content = wandb.read_bytes()
        for step in self.logged(said):
            names = [name for name in step if name.startswith("credit/")]
            self.assertEqual(len(names), 20, names)
            for name in names:
                self.assertIn(name, events.Tags()["scalars"])
                self.assertIn(name.encode(), content)
        board = [event.value for event in events.Scalars("credit/action_weight")]
        self.assertEqual(board, [np.float32(step["credit/action_weight"]) for step in self.logged(said)])

    def test_turns(self):
        """The turn_scores of an agent loop reach the credit."""
        options = "+reweight.scheme=turn_returns+actfocus+aem", "+reweight.guard=0.0", '+reweight.tags=["<answer>","</answer>"]'
        said = self.start(*options, *self.own_ray, 'trainer.logger=["console"]')
        self.check(said, "vanilla", Credit("turn_returns+actfocus+aem", guard=0.0))

    def test_legacy(self):
        """RayPPOTrainer, the older trainer."""
        options = "+reweight.scheme=rloo+actfocus+aem", "+reweight.beta=2", "+reweight.guard=0.0", '+reweight.tags=["<answer>","</answer>"]'
        more = "trainer.use_v1=False", ACTOR + "calculate_entropy=True"
        said = self.start(*options, *more, *self.own_ray, 'trainer.logger=["console"]')
        self.check(said, "vanilla", Credit("rloo+actfocus+aem", beta=2.0, guard=0.0), legacy=True)

    def test_existing_cluster(self):
        """On a Ray that was there before, whose processes know of the credit by the configuration alone; and GSPO."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}"]
        command += ["--num-cpus=16", '--resources={"NPU": 1}', "--include-dashboard=false", "--disable-usage-stats"]
        with open(self.folder / "ray.log", "w+") as log:
            head = subprocess.Popen(command, env=self.environment(), stdout=log, stderr=log)
            self.addCleanup(head.wait, timeout=60)
            self.addCleanup(head.terminate)
            while "runtime started" not in (said := (self.folder / "ray.log").read_text()):
                self.assertIsNone(head.poll(), said)
                time.sleep(0.5)
        said = self.start(
            "+reweight={}", LOSS + "=gspo", ACTOR + "ppo_epochs=2", ACTOR + "optim.lr=0.003",
            'trainer.logger=["console"]', f"+ray_kwargs.ray_init.address=127.0.0.1:{port}",
            # The engines of this test, which verl's processes on the cluster lack too.
            "+ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES=verl_cpu",
        )  # fmt: skip
        self.check(said, "gspo", Credit(), epochs=2)
        self.assertIn("gspo (token_mean)", said)
        self.assertNotIn("Started a local Ray instance", said)


if __name__ == "__main__":
    unittest.main()
