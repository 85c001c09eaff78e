"""reweight.adapters.verl in RayPPOTrainer of verl as it is installed, and in the trainers that are built on it: the trainers'
own methods, their losses and gradients against the papers' formulas in float64. The workers are the test's own.

Run this by python/test verl test_verl_ray, with other versions of verl and with Agent Lightning as TRAINERS.md says."""

import contextlib
import importlib.metadata
import importlib.util
import io
import itertools
import os
import sys
import unittest
import warnings
from unittest import mock

import numpy as np

if importlib.util.find_spec("verl") is None:
    raise unittest.SkipTest("verl is not installed")

VERSION = importlib.metadata.version("verl")
RELEASE = tuple(map(int, VERSION.split(".")[:3]))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
if RELEASE < (0, 9):  # which has no verl.plugins
    os.environ["VERL_USE_EXTERNAL_MODULES"] = "reweight.adapters.verl_plugin"
warnings.simplefilter("ignore")  # verl's, about engines that are not installed
import formulas
import torch

from tensordict import TensorDict
from verl import DataProto
from verl.experimental.separation.ray_trainer import SeparateRayPPOTrainer
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.trainer.ppo.ray_trainer import RayPPOTrainer, apply_kl_penalty, compute_advantage
from verl.trainer.ppo.rollout_corr_helper import apply_bypass_mode, compute_rollout_correction_and_add_to_batch
from verl.trainer.ppo.utils import Role
from verl.utils import attention_utils
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.metric import reduce_metrics
from verl.workers.utils.losses import ppo_loss
from verl_formulas import (
    ACTOR, CLOSING, CORRECTION, FIRST_WORD, IN_LOSS, LOSS, MODES, NO_IMPORTANCE, OPENING, OPTIONS, WORDS, accepted, config,
    group_advantages, importances, loss_of, multiplier, tokenizer, turn_advantages, weights_and_factors,
)  # fmt: skip

from reweight import InputError
from reweight.adapters import Credit, HookError, _check
from reweight.adapters import verl as adapter

def unpad_input(x, mask):
    """What verl takes of flash-attn before 0.9.1, which can do without it."""
    lengths, places = mask.sum(-1), mask.flatten().nonzero().flatten()
    return x.flatten(0, 1)[places], places, torch.nn.functional.pad(lengths.cumsum(0), (1, 0)), int(lengths.max()), lengths


if RELEASE < (0, 9, 1):
    attention_utils._get_attention_functions = lambda: (None, None, None, unpad_input)
TAKEN = [mode for mode in MODES if mode != "token-sum" or RELEASE >= (0, 9)]  # of loss_agg_mode
B, T, P = 16, 26, 4


def made_rows():
    """Four prompts with four rows each, right padded; numbers that float32 has."""
    g = np.random.default_rng(3)
    length = g.integers(20, T + 1, B)
    length[5] = T
    sampled = np.arange(T) < length[:, None]
    sampled[:, 9:11] = False  # an observation
    sampled[3] = False
    ids = g.integers(FIRST_WORD, len(WORDS), (B, T))
    ids[:, 2], ids[:, 6], ids[::2, 12], ids[::2, 16], ids[5, 8] = OPENING, CLOSING, OPENING, CLOSING, CLOSING
    f32 = lambda x: x.astype(np.float32).astype(np.float64)
    rollout = f32(-0.01 - g.gamma(1.0, 1.0, (B, T)))
    old = f32(np.minimum(rollout + g.normal(size=(B, T)) * 0.3, -1e-3))
    drift = g.normal(size=(B, 1)) * 0.2
    new = f32(np.minimum(old + drift + g.normal(size=(B, T)) * 0.3, -1e-3))
    last = np.arange(T) == length[:, None] - 1
    return {
        "responses": ids, "sampled": sampled, "kept": sampled, "scores": f32(g.normal(size=(B, 1)) * last), "length": length,
        "rollout": rollout, "old": old, "new": new, "ref": f32(new + g.normal(size=(B, T)) * 0.2),
        "entropy": f32(g.gamma(2.0, 0.5, (B, T))), "values": f32(g.normal(size=(B, T))),
    }  # fmt: skip


class Workers:
    """The workers of a trainer, whose model's numbers are those of rows. update_actor has ppo_loss of verl's engine, or in the
    workers of older versions the policy loss alone."""

    def __init__(self, rows, actor):
        self.rows, self.actor = rows, actor

    def nested(self, td, x):
        """x of the responses, as the model gives it: of prompts too, and one token earlier."""
        width = td["prompts"].shape[1]
        prompts, responses = (part.sum(1).tolist() for part in (td["attention_mask"][:, :width], td["attention_mask"][:, width:]))
        rows = [torch.cat([torch.zeros(p - 1), x[i, :n], torch.zeros(1)]) for i, (p, n) in enumerate(zip(prompts, responses))]
        return torch.nested.nested_tensor_from_jagged(torch.cat(rows), torch.tensor([0, *map(len, rows)]).cumsum(0))

    def row(self, td, name):
        """The rows of the data, of which each has its number as its first prompt token."""
        return torch.from_numpy(self.rows[name][td["number"].numpy()].astype(np.float32))

    def compute_log_prob(self, td):
        if isinstance(td, DataProto):
            batch = {"old_log_probs": self.row(td.batch, "old"), "entropys": self.row(td.batch, "entropy")}
            return DataProto(TensorDict(batch, batch_size=len(td)))
        made = {"log_probs": self.nested(td, self.row(td, "old")), "entropy": self.nested(td, self.row(td, "entropy"))}
        made = tu.get_tensordict(made)
        tu.assign_non_tensor(made, metrics={"mfu": 0.0})
        return made

    def compute_ref_log_prob(self, td):
        if isinstance(td, DataProto):
            return DataProto(TensorDict({"ref_log_prob": self.row(td.batch, "ref")}, batch_size=len(td)))
        return tu.get_tensordict({"log_probs": self.nested(td, self.row(td, "ref"))})

    def update_actor(self, td):
        legacy = isinstance(td, DataProto)
        tensors = td.batch if legacy else td
        self.seen = {name: tensors[name].float().numpy() for name in ("advantages", "response_mask", "number")}
        self.left = {name for name in tensors.keys() if name.startswith("reweight")}
        new, entropy = self.row(tensors, "new").requires_grad_(), self.row(tensors, "entropy")
        if legacy:
            loss, _ = get_policy_loss_fn(self.actor.policy_loss.loss_mode)(
                old_log_prob=tensors["old_log_probs"], log_prob=new, advantages=tensors["advantages"],
                response_mask=tensors["response_mask"], loss_agg_mode=self.actor.loss_agg_mode, config=self.actor,
                rollout_is_weights=tensors.get("rollout_is_weights", None),
            )  # fmt: skip
        else:
            tokens = int(td["loss_mask"].sum())
            tu.assign_non_tensor(td, dp_size=1, batch_num_tokens=tokens, global_batch_size=len(new))
            outputs = {"log_probs": self.nested(td, new), **({"entropy": self.nested(td, entropy)} if self.actor.entropy_coeff else {})}
            loss = ppo_loss(self.actor, outputs, td)[0]
        loss.backward()
        self.loss, self.gradient = loss.item(), new.grad.double().numpy()
        if legacy:
            return DataProto(meta_info={"metrics": {"actor/pg_loss": [self.loss]}})
        made = tu.get_tensordict({})
        tu.assign_non_tensor(made, metrics={"mfu": 0.0, "pg_loss": [self.loss]})
        return made


class Case(unittest.TestCase):
    """A step of RayPPOTrainer by its own methods, of 16 rows of up to 26 tokens."""

    kind = RayPPOTrainer

    @classmethod
    def setUpClass(cls):
        cls.rows, cls.worst = made_rows(), {}
        said = lambda: sys.stderr.write("".join(f"\nverl {VERSION}, {k}: {v:.1e}" for k, v in cls.worst.items()) + "\n")
        cls.addClassCleanup(said)

    def trainer(self, changes=(), reweight=OPTIONS, rows=None):
        c = config(changes, reweight)
        rows, actor = rows or self.rows, omega_conf_to_dataclass(c.actor_rollout_ref.actor)

        def init_workers(trainer):
            trainer.actor_rollout_wg = trainer.ref_policy_wg = Workers(rows, actor)

        nothing = lambda *args, **options: None
        with mock.patch.multiple(RayPPOTrainer, _create_dataloader=nothing, init_workers=init_workers, fit=nothing):
            with mock.patch.multiple(SeparateRayPPOTrainer, init_workers=init_workers, _init_models=init_workers):
                made = self.kind(c, tokenizer(), {Role.ActorRollout: None}, mock.Mock(resource_pool_dict={}), device_name="cpu")
                made.use_legacy_worker_impl = "disable"  # of 0.7.1: "auto" stands for the older workers
                if self.kind is not RayPPOTrainer:
                    made._init_resource_pools()
                    made._init_models()
                else:
                    made.init_workers()
        made.global_steps, made.metrics, made.timing_raw = 1, {}, {}
        made.reward_tensor, made.reward_extra_infos_dict = torch.from_numpy(rows["scores"].astype(np.float32)), {}
        return made

    def batch(self, rows, **more):
        """As it is when the trainer has generated."""
        response = torch.from_numpy(np.arange(T) < rows["length"][:, None]).long()
        prompt = torch.tensor([[0, 0, 1, 1]]).expand(B, P)
        attention = torch.cat([prompt, response], 1)
        ids = torch.from_numpy(rows["responses"])
        prompts = prompt * FIRST_WORD
        tensors = {
            "number": torch.arange(B), "prompts": prompts, "responses": ids, "input_ids": torch.cat([prompts, ids], 1),
            "attention_mask": attention, "position_ids": attention.cumsum(1) - 1,
            "response_mask": torch.from_numpy(rows["sampled"].astype(np.int64)),
            "rollout_log_probs": torch.from_numpy(rows["rollout"].astype(np.float32)),
        }  # fmt: skip
        made = DataProto(TensorDict(tensors, batch_size=B))
        made.non_tensor_batch = {"uid": np.array([f"prompt{i // 4}" for i in range(B)], object), **more}
        return made

    def step(self, made, batch):
        """The lines of fit from the old log-probabilities to the update. Returns what is logged."""
        c, metrics = made.config, {}
        correction = c.algorithm.rollout_correction
        if correction.bypass_mode:
            apply_bypass_mode(batch=batch, rollout_corr_config=correction, policy_loss_config=c.actor_rollout_ref.actor.policy_loss)
        else:
            old, _ = made._compute_old_log_prob(batch)
            old.batch.pop("entropys")
            batch = batch.union(old)
        if made.use_reference_policy:
            batch = batch.union(made._compute_ref_log_prob(batch))
        batch.batch["token_level_scores"] = batch.batch["token_level_rewards"] = made.reward_tensor
        if c.algorithm.use_kl_in_reward:
            batch, _ = apply_kl_penalty(batch, kl_ctrl=made.kl_ctrl_in_reward, kl_penalty=c.algorithm.kl_penalty)
        if not correction.bypass_mode:
            batch, _ = compute_rollout_correction_and_add_to_batch(batch, correction)
        batch = compute_advantage(batch, adv_estimator=c.algorithm.adv_estimator, config=c.algorithm)
        metrics.update(reduce_metrics(made._update_actor(batch).meta_info["metrics"]))
        return metrics

    def assertNear(self, kind, got, want, size=None):
        kind = f"{type(self).__name__}.{self._testMethodName}, largest relative difference of {kind}"
        relative = np.abs(got - want).max() / (size or np.abs(want).max())
        self.worst[kind] = max(self.worst.get(kind, 0.0), relative)
        self.assertLess(relative, 1e-5, kind)


class Steps(Case):
    def check(self, changes=(), options=OPTIONS, more=(), rows=None, legacy=False):
        """A step with these changes of the configuration: advantages, loss and gradient."""
        rows, importance = dict(rows or self.rows), None
        made = self.trainer(changes, options, rows)
        if legacy:
            made.use_legacy_worker_impl = "auto"
        correction = made.config.algorithm.rollout_correction
        if correction.bypass_mode:  # the policy that sampled is the old one
            rows["old"] = rows["rollout"]
        else:
            ratio = np.exp(rows["old"] - rows["rollout"])
            rows["kept"] = accepted(ratio, rows["sampled"], correction)
            importance = importances(ratio, rows["sampled"], correction)
        batch = self.batch(rows, **dict(more))
        with contextlib.redirect_stderr(io.StringIO()) as said:
            metrics = self.step(made, batch)
        self.assertEqual(said.getvalue().count(f"reweight: in verl {VERSION}, "), 1, said.getvalue())
        workers = made.actor_rollout_wg
        self.assertEqual(workers.left, set())
        np.testing.assert_array_equal(workers.seen["response_mask"] != 0, rows["kept"])
        actor = workers.actor
        credit, groups = Credit(**options), list(batch.non_tensor_batch["uid"])
        w, f, role = weights_and_factors(rows, groups, credit)
        name = actor.policy_loss.loss_mode
        mode = "seq-mean-token-mean" if name == "sapo" or name == "gspo" and RELEASE < (0, 9, 1) else actor.loss_agg_mode
        rewards = rows["scores"].sum(1)
        A = group_advantages(rewards, groups, range(B), rows["kept"])
        for scheme in ("rloo", "opo", "gtpo"):
            if scheme in credit.scheme:
                A = formulas.advantages(scheme, rewards, rows["kept"], rows["entropy"], np.array(groups))
                self.assertGreater(metrics["credit/advantage"], 0)
        if "turn_returns" in credit.scheme:
            A = turn_advantages(rewards, rows["turns"], rows["kept"], groups)
        self.assertNear("advantages", workers.seen["advantages"], A * multiplier(rows, w, f, mode))
        if "actfocus" in credit.scheme:
            self.assertEqual(metrics["credit/actions"], (role == 2).sum())
            self.assertAlmostEqual(metrics["credit/action_weight"], (w * f)[role == 2].sum() / (w * f).sum(), 6)
        # The older workers divide by the rows that have a token of the loss, the engine by all of the mini-batch.
        count = rows["kept"].any(1).sum() if legacy else B
        want, exact = loss_of(rows, w, A * f, actor, rows["kept"].sum(), count, importance, mode=mode)
        self.assertNear("gradients", workers.gradient, exact)
        self.assertNear("losses", workers.loss, want, max(abs(want), np.abs(exact).sum()))  # sums of terms that cancel

    def test_losses(self):
        """Every policy loss that is let through, with every aggregation; in 0.7.1 in the older workers too."""
        for name, mode, legacy in itertools.product(adapter._LOSSES, TAKEN, (False, True) if RELEASE < (0, 8) else (False,)):
            with self.subTest(name, mode=mode, legacy=legacy):
                scale = {} if legacy else {ACTOR + "loss_scale_factor": 50}
                self.check({LOSS: name, ACTOR + "loss_agg_mode": mode, **scale, **NO_IMPORTANCE}, legacy=legacy)

    def test_corrections(self):
        """verl's weights and rejection for the difference between the policy that sampled and the trained one."""
        token = {CORRECTION + "rollout_rs": "token_k1", CORRECTION + "rollout_rs_threshold": "0.6_1.6"}
        sequence = {CORRECTION + "rollout_rs": "seq_mean_k1", CORRECTION + "rollout_rs_threshold": "0.95_1.1"}
        cases = [{**r, ACTOR + "loss_agg_mode": mode} for r in (token, sequence) for mode in MODES[:3]]
        cases += [{**token, LOSS: name} for name in ("gspo", "cispo", "sapo")]
        cases += [{CORRECTION + "rollout_is": level} for level in ("token", "sequence")]
        for changes in cases:
            with self.subTest(**changes):
                self.check(changes)

    def test_bypass(self):
        base = {CORRECTION + "bypass_mode": True}
        sequence = {IN_LOSS + "rollout_rs": "seq_mean_k1", IN_LOSS + "rollout_rs_threshold": "0.9_1.2"}
        loss = {**base, LOSS: "bypass_mode", IN_LOSS + "loss_type": "reinforce"}
        for changes in (base, {**base, LOSS: "bypass_mode"}, {**loss, IN_LOSS + "rollout_is": "token"}, {**loss, **sequence}):
            with self.subTest(**changes):
                self.check(changes, {**OPTIONS, "entropy": "surprisal"})

    def test_other_terms(self):
        """Dual clip, a penalty on the divergence, a bonus on the entropy; other credits, and schemes that make advantages."""
        penalty = {ACTOR + "use_kl_loss": True, ACTOR + "kl_loss_coef": 0.1, ACTOR + "entropy_coeff": 0.01}
        for mode in MODES[:3]:
            self.check({**penalty, ACTOR + "loss_agg_mode": mode})
        self.check({ACTOR + "clip_ratio_c": 1.1, ACTOR + "clip_ratio_high": 0.28})
        self.check(penalty, {**OPTIONS, "signal": "log_ratio"})
        self.check(options={**OPTIONS, "scope": "batch"})
        self.check(options={**OPTIONS, "tags": [[OPENING], [CLOSING]]})
        for scheme in ("rloo", "gtpo", "opo+actfocus", "gtpo+actfocus+aem", "entropy_mask"):
            options = {"beta": 2.0} if "actfocus" in scheme else {}
            options.update({"guard": 0.0} if "aem" in scheme else {}, scheme=scheme)
            for mode in MODES[:3]:
                with self.subTest(scheme, mode=mode):
                    self.check({ACTOR + "loss_agg_mode": mode}, options)

    def test_penalized(self):
        """Rewards with a penalty are those of schemes too."""
        changes = {"algorithm.use_kl_in_reward": True, "algorithm.adv_estimator": "rloo"}
        found = []
        for estimator, reweight in (("rloo", None), ("grpo", {"scheme": "rloo"})):
            made = self.trainer({**changes, "algorithm.adv_estimator": estimator}, reweight)
            with contextlib.redirect_stderr(io.StringIO()):
                self.step(made, self.batch(self.rows))
            found.append(made.actor_rollout_wg.seen["advantages"])
        self.assertNear("advantages", found[1], found[0])

    def test_turns(self):
        """The rewards of turns are the turn_scores of an agent loop."""
        g = np.random.default_rng(5)
        turns = [g.normal(size=0 if i == 3 else 2).round(3).tolist() for i in range(B)]
        scores = np.empty(B, object)
        scores[:] = turns
        for scheme in "turn_returns", "turn_returns+actfocus":
            self.check({}, {"scheme": scheme}, {"turn_scores": scores}, {**self.rows, "turns": turns})
        with self.assertRaisesRegex(InputError, r'^span_rewards\[0\] is None.*in verl, an agent loop gives .*\["turn_scores"\]'):
            self.step(self.trainer(reweight={"scheme": "turn_returns"}), self.batch(self.rows, turn_scores=np.array([None] * B)))


class Separate(Steps):
    """The same of SeparateRayPPOTrainer, on which verl.experimental's trainers are built, in its own steps."""

    kind = SeparateRayPPOTrainer
    test_penalized = None  # it has no other place for the reward

    def step(self, made, batch):
        batch = made._fit_compute_log_prob(batch)
        batch = made._fit_compute_ref_log_prob(batch)
        batch = made._fit_compute_advantage(batch)
        made._fit_update_actor(batch)
        return made.metrics


class Rollouts(Case):
    """Rollouts of several rows, as Agent Lightning and verl-agent have them: eight of one, two or three rows."""

    ids = np.array([f"r{i}" for i in (0, 0, 1, 1, 2, 2, 3, 2, 4, 5, 5, 5, 6, 7, 7, 6)], object)

    def scored(self):
        """Rows in which each has the reward of its rollout."""
        rows = dict(self.rows)
        total = dict(zip(self.ids, rows["scores"].sum(1)))
        at = (np.arange(T) == rows["length"][:, None] - 1) * 1.0
        rows["scores"] = at * np.array([total[r] for r in self.ids])[:, None]
        return rows

    def rloo(self, rows, groups):
        """The advantages of RLOO among rollouts."""
        first = {r: i for i, r in reversed(list(enumerate(self.ids)))}
        at = np.array(list(first.values()))
        of = formulas.advantages("rloo", rows["scores"].sum(1)[at], np.ones((len(first), T)), None, np.array(groups)[at])
        return np.array([dict(zip(first, of[:, 0]))[r] for r in self.ids])[:, None] * rows["kept"]

    def check(self, changes=(), options=OPTIONS, mode="token-mean", key="rollout_id_list"):
        rows = self.scored()
        made, batch = self.trainer(changes, options, rows), self.batch(rows, **{key: self.ids})
        with contextlib.redirect_stderr(io.StringIO()):
            metrics = self.step(made, batch)
        credit, groups = Credit(**options), list(batch.non_tensor_batch["uid"])
        w, f, _ = weights_and_factors(rows, self.ids.tolist() if credit.scope == "trajectory" else groups, credit)
        A = group_advantages(rows["scores"].sum(1), groups, range(B), rows["kept"])
        if "rloo" in credit.scheme:
            A = self.rloo(rows, groups)
        self.assertNear("advantages", made.actor_rollout_wg.seen["advantages"], A * multiplier(rows, w, f, mode))
        want, exact = loss_of(rows, w, A * f, made.actor_rollout_wg.actor, rows["kept"].sum(), B)
        self.assertNear("gradients", made.actor_rollout_wg.gradient, exact)
        return metrics

    def test_rollouts(self):
        """Statistics and advantages are those of rollouts."""
        for key in "rollout_id_list", "traj_uid":
            for mode in TAKEN[0], *TAKEN[2:]:
                for options in (OPTIONS, {"scheme": "rloo"}, {"scheme": "rloo+actfocus", "beta": 0.5}, {**OPTIONS, "scope": "trajectory"}):
                    with self.subTest(mode=mode, key=key, **options):
                        self.check({ACTOR + "loss_agg_mode": mode}, options, mode, key=key)
        metrics = self.check()
        self.assertEqual(metrics["credit/no_action"], 0)  # a row has no token, and its rollout has
        self.check({ACTOR + "loss_agg_mode": MODES[1]}, OPTIONS, MODES[1])

    def test_order(self):
        """The rows of a rollout go by their turns where these are known."""
        more = {"rollout_id_list": np.array(["b", "a", "b", "a"]), "turn_index_list": np.array([1, 1, 0, 0])}
        batch = mock.Mock(batch={"token_level_scores": torch.zeros(4, 1)}, non_tensor_batch=more)
        order, counts = adapter._by_rollout(batch, "token_mean", Credit(), config())
        self.assertEqual((order.tolist(), counts), ([2, 0, 3, 1], [2, 2]))

    def test_refused(self):
        """What is not known of rollouts of several rows."""
        rows = dict(self.rows)
        turns = {"turn_scores": np.array([None] * B)}
        for message, changes, options, more, given in (
            ("takes means over rows", {ACTOR + "loss_agg_mode": MODES[1]}, {"scheme": "rloo"}, {}, self.scored()),
            ("takes means over rows", {LOSS: "sapo"}, {"scheme": "aem", "scope": "trajectory"}, {}, self.scored()),
            ("use_kl_in_reward=True gives each row", {"algorithm.use_kl_in_reward": True}, {"scheme": "rloo"}, {}, self.scored()),
            ("they have different rewards", {}, {"scheme": "rloo"}, {}, rows),
            ("turn_scores are those of rows", {}, {"scheme": "turn_returns"}, turns, self.scored()),
        ):
            with self.subTest(message), self.assertRaisesRegex(ValueError, "a rollout has several rows, .*" + message):
                self.step(self.trainer(changes, options, given), self.batch(given, rollout_id_list=self.ids, **more))


@unittest.skipUnless(importlib.util.find_spec("agentlightning"), "Agent Lightning is not installed")
class AgentLightning(Rollouts):
    """_train_step of Agent Lightning's trainer, in which another place than its gateway gives the rollouts."""

    test_rollouts = test_refused = test_order = None
    settings = {
        "agentlightning": {"async_rollout": {"enabled": False, "async_train_batch_size": 0}}, ACTOR + "ppo_mini_batch_size": B,
        "actor_rollout_ref.rollout.n": 1, "trainer.balance_batch": False,
    }  # fmt: skip

    def setUp(self):
        from agentlightning.verl.trainer import AgentLightningRayPPOTrainer

        nothing = lambda self: None
        ready = lambda trainer: trainer.init_workers()
        patched = mock.patch.multiple(AgentLightningRayPPOTrainer, create=True, _init_resource_pools=nothing, _init_models=ready)
        patched.start()
        self.addCleanup(patched.stop)
        self.kind = AgentLightningRayPPOTrainer

    def train(self, changes, options):
        """Returns the trainer and the metrics of a step, whose scores have bfloat16."""
        made = self.trainer({**self.settings, **changes}, options, self.data)
        batch = self.batch(self.data, rollout_id_list=self.ids)
        batch.non_tensor_batch["data_id_list"] = batch.non_tensor_batch.pop("uid")
        batch.batch["token_level_scores"] = made.reward_tensor.to(torch.bfloat16)
        made._next_train_batch_dict_for_rollout = lambda: {"number": torch.arange(B)}
        made._get_gen_batch, made._rollout, made.checkpoint_manager = lambda x: x, lambda *_, **__: (batch, {}), mock.Mock()
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            metrics, _ = made._train_step({}, False)
        return made, metrics

    def test_steps(self):
        """Its losses per rollout and verl's, with its advantages of rollouts and without, against those that it has without the
        credit."""
        self.rows = {**self.rows, "sampled": self.rows["sampled"].copy()}
        self.rows["sampled"][3] = self.rows["sampled"][2]  # it has no row without a token
        self.rows["kept"] = self.rows["sampled"] = self.rows["sampled"] & (np.arange(T) < self.rows["length"][:, None])
        self.data = self.scored()
        self.data["scores"] = np.round(self.data["scores"] * 8) / 8
        kept = self.data["kept"]
        rollout = np.unique(self.ids, return_inverse=True)[1]
        total = lambda x: np.bincount(rollout, x.sum(1))[rollout][:, None]
        for name, plain in (("per_rollout_mean", "vanilla"), ("cispo_per_rollout_mean", "cispo"), ("vanilla", "vanilla")):
            for level, options in itertools.product((True, False), (OPTIONS, {"scheme": "rloo+actfocus"}, {**OPTIONS, "scope": "trajectory"})):
                with self.subTest(name, level=level, **options):
                    changes = {LOSS: name, "algorithm.enable_rollout_level_advantage": level}
                    own, _ = self.train(changes, None)
                    made, metrics = self.train(changes, options)
                    credit, groups = Credit(**options), [f"prompt{i // 4}" for i in range(B)]
                    w, f, role = weights_and_factors(self.data, self.ids.tolist() if credit.scope == "trajectory" else groups, credit)
                    A = own.actor_rollout_wg.seen["advantages"].astype(np.float64)
                    if "rloo" in credit.scheme:
                        A = self.rloo(self.data, groups) / (total(kept) * B if plain != name else 1)
                    scale = total(kept) / total(w) if plain != name else kept.sum() / w.sum()
                    self.assertNear("advantages", made.actor_rollout_wg.seen["advantages"], A * f * w * scale)
                    of = {"mode": "token-sum"} if plain != name else {}
                    weights = w * scale if plain != name else w
                    want, exact = loss_of(self.data, weights, A * f, made.actor_rollout_wg.actor, kept.sum(), B, name=plain, **of)
                    self.assertNear("gradients", made.actor_rollout_wg.gradient, exact)
                    self.assertNear("losses", made.actor_rollout_wg.loss, want, np.abs(exact).sum())
                    self.assertEqual(metrics["credit/actions"], (role == 2).sum())


class Refusals(Case):
    """Before the first rollout, and trainers that pass the hook by."""

    def test_configurations(self):
        for name in ("geo_mean", "clip_cov", "kl_cov", "dro", "mine"):
            with self.subTest(name), self.assertRaisesRegex(ValueError, rf'^{LOSS} is "{name}", want one of \[vanilla gspo '):
                self.trainer({LOSS: name})
        with self.assertRaisesRegex(ValueError, "bypass_mode=True: set it to False, or use entropy=surprisal"):
            self.trainer({CORRECTION + "bypass_mode": True})
        with self.assertRaisesRegex(ValueError, "has no rollout_id_list, which loss_mode=per_rollout_mean needs"):
            self.step(self.trainer({LOSS: "per_rollout_mean"}), self.batch(self.rows))

    def test_own_update(self):
        """A trainer that calls its workers itself is an error at its first step, and credit_batch is the way out."""

        class Own(RayPPOTrainer):
            def learn(self, batch):
                return self.actor_rollout_wg.update_actor(batch)

        with mock.patch.object(type(self), "kind", Own), mock.patch.object(Own, "_init_resource_pools", lambda self: None, create=True):
            with mock.patch.object(Own, "_init_models", lambda self: setattr(self, "actor_rollout_wg", mock.Mock()), create=True):
                made = self.trainer()
                with self.assertRaisesRegex(HookError, r"Own is about to learn without the credit: it calls actor_rollout_wg.update_actor itself"):
                    made.learn(None)
                made = self.trainer(reweight=None)
                made.actor_rollout_wg = Workers(self.rows, omega_conf_to_dataclass(made.config.actor_rollout_ref.actor))
        batch = self.batch(self.rows)
        batch = batch.union(made._compute_old_log_prob(batch)[0])  # with its entropys
        batch.batch["token_level_scores"] = batch.batch["token_level_rewards"] = made.reward_tensor
        batch = compute_advantage(batch, adv_estimator="grpo", config=made.config.algorithm)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            log = adapter.credit_batch(batch, made, Credit(**OPTIONS))
        self.assertIn(f"in verl {VERSION}, vanilla (token_mean): ActFocus", said.getvalue())
        w, f, _ = weights_and_factors(self.rows, list(batch.non_tensor_batch["uid"]), Credit(**OPTIONS))
        A = group_advantages(self.rows["scores"].sum(1), list(batch.non_tensor_batch["uid"]), range(B), self.rows["kept"])
        self.assertNear("advantages", batch.batch["advantages"].numpy(), A * multiplier(self.rows, w, f, "token-mean"))
        self.assertGreater(log["credit/actions"], 0)
        with self.assertRaisesRegex(InputError, "has otb"):
            del made.credit_report
            adapter.credit_batch(batch, made, Credit("otb"))

    def test_subclass(self):
        """A subclass with an _update_actor of its own has the credit too, once."""

        class Own(RayPPOTrainer):
            def _update_actor(self, batch):
                self.given = batch.batch["advantages"].clone()
                return super()._update_actor(batch)

        with mock.patch.object(type(self), "kind", Own), mock.patch.object(Own, "_init_resource_pools", lambda self: None, create=True):
            with mock.patch.object(Own, "_init_models", lambda self: self.init_workers(), create=True):
                made = self.trainer()
        with contextlib.redirect_stderr(io.StringIO()):
            self.step(made, self.batch(self.rows))
        np.testing.assert_array_equal(made.given.numpy(), made.actor_rollout_wg.seen["advantages"])
        self.assertEqual(made.credit_report.batches, 1)

    def test_check_trainer(self):
        """The command says which losses are wrong, and the warning about a version that nobody tested names it."""
        original = core_algos.POLICY_LOSS_REGISTRY["sapo"]
        wrong = lambda *args, **options: (original(*args, **options)[0] * 1.001, {})
        out = io.StringIO()
        with mock.patch.dict(core_algos.POLICY_LOSS_REGISTRY, sapo=wrong), contextlib.redirect_stdout(out):
            self.assertEqual(_check.main(["verl"]), 1)
        lines = [line for line in out.getvalue().splitlines() if "WRONG" in line]
        self.assertEqual({line.split()[0] for line in lines}, {"sapo", "right"}, out.getvalue())
        self.assertRegex(lines[0], r"^sapo +loss_agg_mode=token-mean +WRONG 1.0e-03 +WRONG 1.0e-03$")
        total = 80 if RELEASE >= (0, 9) else 68
        self.assertRegex(lines[-1], rf"^right {total - 10}, refused \d+, absent 0, no formula \d+, WRONG 10$")
        with mock.patch("reweight.adapters._hooks.version_of", lambda package: "0.10.0"):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                adapter._find_ray()
        want = "0.9.0 and 0.9.1, not with verl 0.10.0; python -m reweight check-trainer verl compares its losses with float64"
        self.assertIn(want, str(said[0].message))

    def test_nobody_asked(self):
        made = self.trainer(reweight=None)
        self.assertFalse({"_update_actor", "_compute_old_log_prob", "fit", "init_workers"} & set(vars(made)))

    def test_gone(self):
        """A version whose methods have other names is an error where a credit is asked for."""
        with mock.patch.object(RayPPOTrainer, "_update_actor", None):
            self.trainer(reweight=None)
            with self.assertRaisesRegex(HookError, r"no _update_actor in RayPPOTrainer"):
                self.trainer()

    @unittest.skipUnless(importlib.util.find_spec("verl.trainer.main_ppo_sync"), "verl 0.8.0 has it")
    def test_main_ppo_sync(self):
        from verl.trainer.main_ppo_sync import PPOTrainer

        with self.assertRaisesRegex(HookError, "main_ppo_sync computes its advantages where reweight does not reach them"):
            PPOTrainer(config(reweight={}), {}, None)


if __name__ == "__main__":
    unittest.main()
