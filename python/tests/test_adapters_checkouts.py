"""The adapters against the trainers' own code, on the CPU.

Each test takes a checkout of a trainer by an environment variable, and is skipped without:
REWEIGHT_NEMO_RL=/path/to/RL, REWEIGHT_SLIME, REWEIGHT_PRIME_RL, REWEIGHT_SKYRL, of which a wheel in a
folder is enough. The modules that a test names are run as they are. All else that they import and that is
not installed is replaced by stubs.
"""

import argparse
import asyncio
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import os
import sys
import types
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np

import formulas
import reweight
from adapter_rollouts import padded, rows, scheme, surrogate, weighted_loss
from reweight.adapters import Credit, HookError
from support import needs_torch, torch
from test_adapters_trainers import TrainerCase


class StubType(type):
    """Classes that have every attribute, and that leave what they decorate as it is."""

    def __new__(cls, name, bases, content, **options):
        return super().__new__(cls, name, bases, content)

    def __init__(cls, name, bases, content, **options):
        super().__init__(name, bases, content)

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return StubType(name, (), {})

    def __call__(cls, *args, **kwargs):
        if len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type)):
            return args[0]
        return StubType(cls.__name__, (), {})

    def __getitem__(cls, key):
        return cls

    def __or__(cls, other):
        return cls

    __ror__ = __or__


class Stub(types.ModuleType):
    """A module that has every attribute."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return StubType(name, (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of a checkout that are to be real, and stubs for the others."""

    def __init__(self, root, package, real):
        self.root, self.package = root, package
        self.real = {f"{package}.{name}" for name in real}

    def find_spec(self, name, path=None, target=None):
        if name in self.real:
            file = self.root.joinpath(*name.split(".")).with_suffix(".py")
            if not file.exists():
                file = self.root.joinpath(*name.split("."), "__init__.py")
                return importlib.util.spec_from_file_location(name, file, submodule_search_locations=[])
            return importlib.util.spec_from_file_location(name, file)
        if name == self.package or name.startswith(self.package + "."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Stub(spec.name)

    def exec_module(self, module):
        pass


class Missing(Finder):
    """Finds a stub for what the checkout imports and nobody else finds. What libraries that are installed import, and
    can do without, is not there for them."""

    def find_spec(self, name, path=None, target=None):
        frame = sys._getframe(1)
        while "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        if not Path(frame.f_code.co_filename).is_relative_to(self.root):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)


@needs_torch
class CheckoutCase(TrainerCase):
    """A test of a checkout."""

    variable = source = package = ""
    real = ()

    @classmethod
    def setUpClass(cls):
        root = os.environ.get(cls.variable)
        if not root:
            raise unittest.SkipTest(f"{cls.variable} is not set to a checkout of the trainer")
        super().setUpClass()
        cls.worst = 0.0
        first = Finder(Path(root) / cls.source, cls.package, cls.real)
        last = Missing(Path(root), "", ())
        sys.meta_path.insert(0, first)
        sys.meta_path.append(last)

        def restore():
            sys.meta_path.remove(first)
            sys.meta_path.remove(last)
            for name, module in list(sys.modules.items()):
                if isinstance(module, Stub) or name in first.real:
                    del sys.modules[name]

        cls.addClassCleanup(restore)

    @classmethod
    def tearDownClass(cls):
        sys.stderr.write(f"\n{cls.__name__}: largest difference of a loss, relative to its terms, {cls.worst:.1e}\n")

    def module(self, name):
        return importlib.import_module(f"{self.package}.{name}")

    def adapter(self):
        return importlib.import_module(f"reweight.adapters.{self.package}")

    def credit(self, **options):
        return Credit(**{"entropy": "surprisal", "tokenizer": self.rollouts.tokenizer, **options})

    def rloo(self, r, scores):
        """Returns the rollouts with these advantages, which the scheme makes in the place of the trainer's."""
        advantages = reweight.rloo(reweight.Batch(r.role, r.seq_offsets, r.group_ids, scores))
        return SimpleNamespace(**{**vars(r), "advantages": advantages})

    def grid(self, x, drop=0):
        return torch.from_numpy(padded(rows(self.rollouts, x, drop)))

    def assertLoss(self, got, rollouts, *args, **options):
        """Wants the library's weighted loss to 1e-6 of it, or of its terms where these cancel:
        trainers add them in float32."""
        want = weighted_loss(rollouts, *args, **options)
        scale = max(abs(want), float(np.abs(rollouts.advantages[rollouts.mask]).mean()))
        type(self).worst = max(self.worst, abs(float(got) - want) / scale)
        self.assertLessEqual(abs(float(got) - want), 1e-6 * scale, f"{got} is not {want}")




class NeMoRLCheckout(CheckoutCase):
    variable, package = "REWEIGHT_NEMO_RL", "nemo_rl"
    real = (
        "algorithms.advantage_estimator", "algorithms.utils", "algorithms.loss", "algorithms.loss.loss_functions",
        "algorithms.loss.interfaces",
    )  # fmt: skip

    def test_loss(self):
        """The patched GRPOAdvantageEstimator, and ClippedPGLossFn of its advantages."""
        r = self.rollouts
        estimators, losses = self.module("algorithms.advantage_estimator"), self.module("algorithms.loss.loss_functions")
        settings = SimpleNamespace(use_leave_one_out_baseline=False, normalize_rewards=False)
        estimator = estimators.GRPOAdvantageEstimator(settings, None)
        means = np.array([r.rewards[r.group_ids == g].mean() for g in r.group_ids])
        advantages = ((r.rewards - means)[r.trajectory] * r.mask).astype(np.float32)
        centred = SimpleNamespace(**{**vars(r), "advantages": advantages})
        mask = self.grid(r.mask.astype(np.float32))
        prompts = torch.from_numpy(np.stack([r.group_ids, r.group_ids], 1).astype(np.int64))
        batch = {"input_ids": self.grid(r.token_ids.astype(np.int64))}
        for credit in (self.credit(), self.credit(scheme="actfocus", beta=0.5, signal="log_ratio"), self.credit(scheme="rloo+actfocus+aem")):
            for flag, aggregation in ((True, "token_mean"), (False, "seq_mean_token_mean")):
                self.adapter().install(credit, token_level_loss=flag)
                got = estimator.compute_advantage(
                    prompt_ids=prompts, rewards=torch.from_numpy(r.rewards.copy()), mask=mask, repeated_batch=batch,
                    logprobs_policy=self.grid(r.old_logprobs), logprobs_reference=self.grid(r.ref_logprobs),
                )  # fmt: skip
                config = mock.MagicMock(
                    disable_ppo_ratio=False, ratio_clip_min=0.2, ratio_clip_max=0.28, ratio_clip_c=3.0, use_kl_in_reward=False,
                    reference_policy_kl_penalty=0, reference_policy_kl_type="k3", use_importance_sampling_correction=False,
                    truncated_importance_sampling_type=None, truncated_importance_sampling_ratio=None,
                    use_on_policy_kl_approximation=False, force_on_policy_ratio=False, sequence_level_importance_ratios=False,
                    positive_example_nll_weight=0, token_level_loss=flag, use_cispo=False,
                )  # fmt: skip
                data = {
                    "token_mask": mask, "sample_mask": torch.ones(32), "advantages": got,
                    "prev_logprobs": self.grid(r.old_logprobs), "generation_logprobs": self.grid(r.old_logprobs),
                }  # fmt: skip
                function = losses.ClippedPGLossFn(config)
                loss, _ = function(self.grid(r.logprobs)[:, 1:], data, torch.tensor(32.0), mask.sum())
                own = self.rloo(r, r.rewards) if "rloo" in credit.scheme else centred
                self.assertLoss(loss, own, credit, aggregation)


class SlimeCheckout(CheckoutCase):
    variable, package = "REWEIGHT_SLIME", "slime"
    real = ("utils.ppo_utils", "backends.megatron_utils.loss", "backends.megatron_utils.cp_utils", "utils.misc")

    def test_loss(self):
        """The function in compute_advantages_and_returns, and compute_policy_loss of its
        advantages, reduced by get_sum_of_sample_mean."""
        r = self.rollouts
        megatron = "backends.megatron_utils."
        loss, cp, ppo = self.module(megatron + "loss"), self.module(megatron + "cp_utils"), self.module("utils.ppo_utils")
        mpu = SimpleNamespace(
            is_pipeline_last_stage=lambda: True, get_context_parallel_world_size=lambda: 1, get_data_parallel_group=lambda: None,
            get_data_parallel_rank=lambda: 0,
        )  # fmt: skip
        for module in (loss, cp, ppo):
            module.mpu = mpu
        masks = self.responses(r.mask.astype(np.int32))
        data = {
            "tokens": [torch.from_numpy(row.astype(np.int64)) for row in rows(r, r.token_ids)],
            "loss_masks": masks,
            "response_lengths": [len(mask) for mask in masks],
            "total_lengths": np.diff(r.seq_offsets).tolist(),
            "log_probs": self.responses(r.old_logprobs),
            "ref_log_probs": self.responses(r.ref_logprobs),
            "sample_indices": list(range(32)),
            "rollout_mask_sums": torch.stack([mask.sum() for mask in masks]).float(),
            "rewards": r.scores.tolist(),
            "local_raw_reward": r.scores.tolist(),
        }
        new, old = torch.cat(self.responses(r.logprobs)), torch.cat(data["log_probs"])

        @contextlib.contextmanager
        def stacked(credit):
            with contextlib.ExitStack() as stack:
                megatron = SimpleNamespace(mpu=mpu)
                stack.enter_context(mock.patch.dict(sys.modules, {"megatron.core": megatron}))
                gather = lambda parts, part, group=None: parts.__setitem__(0, part)
                stack.enter_context(mock.patch("torch.distributed.all_gather_object", gather))
                stack.enter_context(mock.patch("torch.distributed.get_world_size", lambda group: 1))
                tokenizers = SimpleNamespace(load_tokenizer=lambda name_or_path, **kwargs: None)
                stack.enter_context(mock.patch.dict(sys.modules, {"slime.utils.processing_utils": tokenizers}))
                function = self.adapter().advantage_function(credit)
                stack.enter_context(mock.patch.object(loss, "load_function", lambda path: function))
                yield

        for credit in (self.credit(), self.credit(beta=0.5, signal="log_ratio", scheme="actfocus"), self.credit(scheme="rloo+actfocus+aem")):
            for flag, aggregation in ((False, "seq_mean_token_mean"), (True, "token_mean")):
                args = argparse.Namespace(
                    custom_advantage_function_path="my_credit.advantages", advantage_estimator="grpo", use_opd=False, kl_coef=0,
                    normalize_advantages=False, use_rollout_logprobs=False, calculate_per_token_loss=flag,
                    n_samples_per_prompt=8, hf_checkpoint="model",
                )  # fmt: skip
                with stacked(credit):
                    loss.compute_advantages_and_returns(args, data)
                terms, _ = ppo.compute_policy_loss(old - new, torch.cat(data["advantages"]), 0.2, 0.28, eps_clip_c=3.0)
                reduce = cp.get_sum_of_sample_mean(
                    data["total_lengths"], data["response_lengths"], masks, data["rollout_mask_sums"], flag
                )
                count = int(r.mask.sum()) if flag else len(masks)
                own = self.rloo(r, r.scores) if "rloo" in credit.scheme else r
                self.assertLoss(reduce(terms) / count, own, credit, aggregation)
                if flag or "rloo" in credit.scheme:
                    continue
                # Rollouts of several samples, over which slime averages.
                rollouts = np.arange(len(masks)) % 11
                sums = np.bincount(rollouts, [int(mask.sum()) for mask in masks])
                several = {**data, "rollout_ids": rollouts.tolist(), "rollout_mask_sums": torch.from_numpy(sums[rollouts]).float()}
                with stacked(credit):
                    loss.compute_advantages_and_returns(args, several)
                terms, _ = ppo.compute_policy_loss(old - new, torch.cat(several["advantages"]), 0.2, 0.28, eps_clip_c=3.0)
                reduce = cp.get_sum_of_sample_mean(
                    data["total_lengths"], data["response_lengths"], masks, several["rollout_mask_sums"], False
                )
                w, f = (x.astype(np.float64) for x in scheme(r, credit))
                l, of_token = surrogate(r, r.advantages.astype(np.float64)), rollouts[r.trajectory]
                wanted, total = (np.bincount(of_token, np.where(r.mask, x, 0)) for x in (w * f * l, w))
                self.assertLessEqual(abs(float(reduce(terms)) / 11 - (wanted / total).mean()), 1e-6 * np.abs(r.advantages[r.mask]).mean())


class PrimeRLCheckout(CheckoutCase):
    variable, source, package = "REWEIGHT_PRIME_RL", "src", "prime_rl"
    real = ("orchestrator.algo.base", "orchestrator.algo.routing", "orchestrator.algo.grpo", "trainer.rl.loss")

    def test_loss(self):
        """The patched GRPOAlgorithm on a group of traces, and compute_loss of its advantages,
        whose surrogate has no clip where no probability moves far."""
        r, loss = self.rollouts, self.module("trainer.rl.loss")
        grpo = self.module("orchestrator.algo.grpo").GRPOAlgorithm
        algorithm = grpo.__new__(grpo)
        algorithm.length_penalty = None
        for credit in (self.credit(), self.credit(scheme="actfocus", beta=2.0), self.credit(scheme="rloo+actfocus+aem")):
            self.adapter().install(credit)
            for g in np.unique(r.group_ids):
                members = np.flatnonzero(r.group_ids == g)
                keep = np.isin(r.trajectory, members)
                traces, responses = [], []
                for s in members:
                    tokens = np.arange(r.seq_offsets[s], r.seq_offsets[s + 1])
                    nodes = []
                    for part in np.split(tokens, np.flatnonzero(np.diff(r.span_ids[tokens])) + 1):
                        mask = r.mask[part]
                        logprobs = r.old_logprobs[part][mask].tolist()
                        nodes.append(
                            SimpleNamespace(
                                token_ids=r.token_ids[part].tolist(), mask=mask.tolist(), logprobs=logprobs,
                                reference_logprobs=None, advantages=None,
                            )  # fmt: skip
                        )
                    agent = SimpleNamespace(trainable=True)
                    fields = dict(id=str(s), nodes=nodes, reward=float(r.rewards[s]), has_error=False, agent=agent)
                    traces.append(SimpleNamespace(**fields))
                asyncio.run(algorithm.finalize_group([SimpleNamespace(traces=[trace]) for trace in traces]))
                advantages = [[a for node in trace.nodes for a in node.advantages or []] for trace in traces]
                names = ("role", "mask", "old_logprobs", "logprobs", "ref_logprobs", "entropy", "ref_energy")
                share = SimpleNamespace(**{name: getattr(r, name)[keep] for name in names})
                share.seq_offsets = np.append(0, np.cumsum(np.diff(r.seq_offsets)[members]))
                share.group_ids = np.zeros(len(members), np.int32)
                spans = r.span_ids[keep]
                share.span_ids = np.where(spans >= 0, spans - spans[spans >= 0].min(), -1).astype(np.int32)
                rewards = r.rewards[members]
                scores = (rewards - rewards.mean()).astype(np.float32)
                share.advantages = np.repeat(scores, np.diff(share.seq_offsets)) * share.mask
                if not share.advantages.any():
                    continue
                if "rloo" in credit.scheme:
                    share = self.rloo(share, rewards.astype(np.float32))
                cut = lambda x: zip(rows(share, x), rows(share, share.mask))
                tensors = lambda x: [torch.from_numpy(part[mask].copy()) for part, mask in cut(x)]
                old, new = tensors(share.old_logprobs), tensors(share.logprobs)
                config = SimpleNamespace(dppo_mask_high=2.0, dppo_mask_low=2.0, adv_tau=1.0, kl_tau=0.0)
                got, _ = loss.compute_loss(
                    new, old, None, [torch.tensor(row, dtype=torch.float32) for row in advantages], [row == row for row in old],
                    None, None, None, lambda inputs: loss.default_loss_fn(inputs, config), int(share.mask.sum()), 1, 1,
                )  # fmt: skip
                self.assertLoss(got, share, credit, "token_mean", policy=reweight.PPO(clip_low=1.0, clip_high=1e9, dual_clip=0.0))


class SkyRLCheckout(CheckoutCase):
    variable, package = "REWEIGHT_SKYRL", "skyrl"
    real = (
        "backends.skyrl_train.utils.ppo_utils", "backends.skyrl_train.utils.off_policy_correction_utils",
        "backends.skyrl_train.utils.torch_utils", "backends.skyrl_train.training_batch", "train.config", "train.config.config",
        "train.dataset.preprocess", "train.trainer",
    )  # fmt: skip
    LOST = 5  # a trajectory that overlong filtering has taken out

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        ray = Stub("ray")
        ray.is_initialized = lambda: False
        cls.enterClassContext(mock.patch.dict(sys.modules, {"ray": ray}))
        cls.losses, *_, cls.made, trainer = [cls.module(cls, name) for name in cls.real]  # the trainer last
        cls.trainer = trainer.RayPPOTrainer
        r, chance = cls.rollouts, np.random.default_rng(3)
        cls.there = padded(rows(r, np.ones(len(r.mask), bool)))
        cls.mask = r.mask & (r.trajectory != cls.LOST)
        cls.engine = np.minimum(r.old_logprobs + chance.normal(size=len(r.mask)) * 0.2, -1e-3).astype(np.float32)
        begins = r.mask & (np.diff(r.mask, prepend=False) | np.isin(np.arange(len(r.mask)), r.seq_offsets))
        cls.starts = np.flatnonzero(begins)
        # An environment gives rewards at the last token of a turn, or after it.
        cls.gained = np.zeros(len(r.mask), np.float32)
        ends = np.append(cls.starts[1:], len(r.mask)) - 1
        cls.gained[ends] = chance.integers(0, 4, len(ends)) / 4 * (np.arange(len(ends)) % 4 > 0)
        cls.gained[cls.starts + 1] = chance.integers(0, 2, len(ends)) / 8
        of_trajectory = np.split(cls.starts, np.searchsorted(cls.starts, r.seq_offsets[1:-1]))
        cls.turns = [np.add.reduceat(cls.gained[:end], row) for row, end in zip(of_trajectory, r.seq_offsets[1:])]

    def setUp(self):
        for name in "__init__", "compute_advantages_and_returns":
            self.addCleanup(setattr, self.trainer, name, getattr(self.trainer, name))

    def start(self, credit, step_wise=False, kind=None, **algorithm):
        """Returns SkyRL's trainer with the credit."""
        self.adapter().install(credit)
        config = mock.MagicMock()
        config.trainer.algorithm = self.module("train.config").AlgorithmConfig(max_seq_len=512, **algorithm)
        config.trainer.critic.model.path, config.generator.step_wise_trajectories = None, step_wise
        return (kind or self.trainer)(config, None, self.rollouts.tokenizer, None, None, None)

    def batch(self, step_wise, forwarded=True):
        """Returns all trajectories, or all turns, as SkyRL makes a batch of what a generator gives, with rows to fill it up."""
        r = self.rollouts
        begins = self.starts if step_wise else r.seq_offsets[:-1] + self.prompts
        ends = np.append(begins[1:], len(r.mask)) if step_wise else r.seq_offsets[1:]
        of = r.trajectory[begins]
        ends = np.minimum(ends, r.seq_offsets[of + 1])
        if step_wise:  # without what the environment says last, unless a reward stands there
            last = np.maximum.accumulate(np.where(r.mask | (self.gained != 0), np.arange(len(r.mask)), 0))
            ends = last[ends - 1] + 1
        cut = lambda x: [x[first:end] for first, end in zip(begins, ends)]
        lists = lambda x: [row.tolist() for row in cut(x)]
        before = [r.token_ids[first:end].tolist() for first, end in zip(r.seq_offsets[of], begins)]
        sequences, attention, response, rewards, loss_mask, engine, *_ = self.made.convert_prompts_responses_to_batch_tensors(
            0, before, lists(r.token_ids), lists(self.gained), lists(self.mask.astype(int)), lists(self.engine)
        )
        grid = lambda x: torch.from_numpy(padded(cut(x), left=True))
        module = self.module("backends.skyrl_train.training_batch")
        data = module.TrainingInputBatch({
            "sequences": sequences, "attention_mask": attention, "response_mask": response, "rewards": rewards, "loss_mask": loss_mask,
            "rollout_logprobs": engine, "action_log_probs": grid(r.old_logprobs) if forwarded else None, "values": None,
            "base_action_log_probs": grid(r.ref_logprobs), "new": grid(r.logprobs),
        })  # fmt: skip
        last = np.append(of[1:] != of[:-1], True).tolist() if step_wise else None
        data.metadata = {"uids": [f"prompt {r.group_ids[q]}" for q in of], "is_last_step": last or [], "avg_response_length": 1.0}
        return module.pad_training_input_batch(data, 3), len(of)

    def advantages(self, name, step_wise):
        """The advantages of a scheme in float64, [tokens]."""
        r, turns = self.rollouts, list(self.turns)
        mask = padded(rows(r, self.mask))
        if name == "turn_returns":
            totals = np.zeros(len(turns))
            totals[self.LOST], turns[self.LOST] = turns[self.LOST].sum(), []
            return formulas.turn_returns(totals, turns, mask, r.group_ids)[self.there]
        totals = np.array([row[-1] if step_wise else row.sum() for row in turns], np.float64)
        return formulas.advantages(name, totals, mask, None, r.group_ids)[self.there]

    def weights(self, credit):
        r = self.rollouts
        grid = lambda x: padded(rows(r, x.astype(np.float64)))
        signal = r.old_logprobs.astype(np.float64) - r.ref_logprobs if credit.signal == "log_ratio" else -r.old_logprobs
        role = padded(rows(r, r.role * self.mask)).astype(int)
        w, f = formulas.weights_and_factors(role, grid(signal), grid(-r.old_logprobs), r.group_ids, credit)
        return w[self.there], f[self.there] if "aem" in credit.scheme else np.ones(len(self.mask))

    def formula(self, w, A, of_row, count, algorithm):
        """The loss of a batch in float64, with count rows, and its gradient by the log-probabilities."""
        r, name, reduction = self.rollouts, algorithm.policy_loss_type, algorithm.loss_reduction
        d = lambda x: torch.from_numpy(np.asarray(x, np.float64)[self.mask])
        w, A, old, engine, x = d(w), d(A), d(r.old_logprobs), d(self.engine), d(r.logprobs).requires_grad_()
        row, prompt = (torch.from_numpy(i[self.mask].astype(np.int64)) for i in (of_row, r.group_ids[r.trajectory]))
        total = lambda x, of, n: torch.zeros(n, dtype=torch.float64).index_add(0, of, x)
        low, high = 1 - algorithm.eps_clip_low, 1 + algorithm.eps_clip_high
        ratio = (x - (engine if name in ("rollout_is", "dppo") else old)).exp()
        if name == "gspo":
            mean = total(x - old, row, count) / total(torch.ones_like(x), row, count).clamp(min=1)
            ratio = mean.detach().exp()[row] * (x - x.detach()).exp()
        l = -torch.min(ratio * A, ratio.clamp(low, high) * A)
        if name == "dual_clip":
            l = torch.where(A < 0, torch.min(l, -A * algorithm.clip_ratio_c), l)
        elif name == "sapo":
            tau = torch.where(A > 0, algorithm.sapo.tau_pos, algorithm.sapo.tau_neg)
            l = -A * torch.sigmoid(tau * (ratio - 1)) * 4 / tau
        elif name == "cispo":
            l = -A * ratio.detach().clamp(1 - algorithm.cispo.cispo_eps_clip_low, 1 + algorithm.cispo.cispo_eps_clip_high) * x
        elif name == "rollout_is":
            l = -A * (ratio * ((ratio > low) & (ratio < high))).detach() * x
        elif name == "importance_sampling":
            l = -A * ratio
        elif name == "dppo":
            away = (x.exp() - engine.exp()).detach()
            l = -A * ratio * ~((A > 0) & (away > algorithm.dppo.delta_high) | (A < 0) & (-away > algorithm.dppo.delta_low))
        correction, importance = algorithm.off_policy_correction, (old - engine).exp()
        if correction.tis_ratio_type is not None:
            l = l * importance.clamp(max=correction.token_tis_ratio_clip_high)
        if correction.token_mask_is_threshold_low is not None:  # what is left out keeps its part in the divisor
            kept = (importance >= correction.token_mask_is_threshold_low) & (importance <= correction.token_mask_is_threshold_high)
            l = l * kept
        if reduction == "token_mean":
            loss = (w * l).sum() / w.sum()
        elif reduction == "seq_mean_token_sum_norm":
            loss = (w * l).sum() / count / algorithm.max_seq_len
        else:
            of, n = (row, count) if reduction == "sequence_mean" else (prompt, len(prompt.unique()))
            loss = (total(w * l, of, n) / total(w, of, n).clamp(min=1e-9)).mean()
        loss.backward()
        return loss.item(), x.grad.numpy()

    def compare(self, credit, step_wise, **options):
        """Wants the loss and the gradient of SkyRL's functions to be those of the formula."""
        trainer = self.start(credit, step_wise, **options)
        algorithm = trainer.cfg.trainer.algorithm
        data, count = self.batch(step_wise)
        data = trainer.compute_advantages_and_returns(data)
        prompts = self.made.compute_prompt_boundaries(data.metadata["uids"][:count])
        data = trainer._normalize_advantages(data, [(0, count)], prompts)
        new = data["new"].requires_grad_()
        loss, _ = self.losses.PolicyLossRegistry.get(algorithm.policy_loss_type)(
            new, data["action_log_probs"], data["advantages"], config=algorithm, loss_mask=data["loss_mask"],
            rollout_logprobs=data["rollout_logprobs"],
        )  # fmt: skip
        loss.backward()
        w, f = self.weights(credit)
        maker = credit.scheme.split("+")[0] if credit.makes_advantages else "group_norm"
        of_row = np.searchsorted(self.starts, np.arange(len(w)), "right") - 1 if step_wise else self.rollouts.trajectory
        want, gradient = self.formula(w, f * self.advantages(maker, step_wise), of_row, count, algorithm)
        kept = data["loss_mask"] > 0
        got = new.grad[kept].double().numpy()
        np.testing.assert_allclose(data["returns"][kept], self.advantages("group_norm", step_wise)[self.mask], atol=1e-5)
        differences = abs(loss.item() - want) / max(abs(want), 0.1), np.abs(got - gradient).max() / np.abs(gradient).max()
        type(self).worst = max(self.worst, *differences)
        self.assertLess(max(differences), 1e-5, f"{credit.scheme} {options} {step_wise}: {loss.item()} is not {want}")

    def test_loss(self):
        """compute_advantages_and_returns, _normalize_advantages and the policy loss, of whole trajectories and of their steps."""
        tested = self.adapter()._TESTED
        names, reductions = tested["policy_loss_type"], tested["loss_reduction"]
        for step_wise in False, True:
            for credit in (
                self.credit(), self.credit(scheme="actfocus", beta=0.5, signal="log_ratio"), self.credit(scheme="rloo+actfocus+aem"),
                self.credit(scheme="turn_returns+actfocus"),
            ):  # fmt: skip
                for name, reduction in itertools.product(names if credit.scheme == "actfocus+aem" else names[:1], reductions):
                    if not (step_wise and reduction == "sequence_mean"):
                        self.compare(credit, step_wise, policy_loss_type=name, loss_reduction=reduction)
        correction = dict(tis_ratio_type="token", token_tis_ratio_clip_high=1.1, token_mask_is_threshold_low=0.7, token_mask_is_threshold_high=1.3)
        config = self.module("train.config.config").OffPolicyCorrectionConfig(**correction)
        self.compare(self.credit(), True, off_policy_correction=config)

    def test_without_old(self):
        """Where SkyRL leaves the forward pass out, the engine's log-probabilities take its place."""
        trainer = self.start(self.credit(), policy_loss_type="rollout_is")
        data, count = self.batch(False, forwarded=False)
        got = trainer.compute_advantages_and_returns(data)["advantages"]
        with mock.patch.object(self.rollouts, "old_logprobs", self.engine):
            data, count = self.batch(False)
            want = self.start(self.credit()).compute_advantages_and_returns(data)["advantages"]
        self.assertBits(got, want)

    def test_never_called(self):
        """A subclass that does not call the method ends before its first optimizer step; one that does goes on."""
        base = self.trainer.compute_advantages_and_returns
        replaced = dict(Timer=lambda *_: contextlib.nullcontext(), reduce_metrics=lambda *_, **__: {})
        calling = lambda trainer, data: self.trainer.compute_advantages_and_returns(trainer, data)
        for method, ends in (lambda trainer, data: base(trainer, data), True), (calling, False):
            kind = type("Shadow", (self.trainer,), {"compute_advantages_and_returns": method, "__module__": "mine"})
            trainer = self.start(self.credit(), kind=kind)
            trainer.dispatch = mock.MagicMock()
            trainer.dispatch.stage_data.return_value = [None]
            data, count = self.batch(False)
            data = trainer.compute_advantages_and_returns(data)
            data.metadata["policy_mini_batch_boundaries"] = [(0, count)]
            with mock.patch.multiple(self.module("train.trainer"), **replaced):
                said = "^mine.Shadow is about to learn without the credit: mine.Shadow has a compute_advantages_and_returns of its own"
                with self.assertRaisesRegex(HookError, said) if ends else contextlib.nullcontext():
                    trainer.train_critic_and_policy(data)
            self.assertEqual(trainer.dispatch.optim_step.called, not ends)


if __name__ == "__main__":
    unittest.main()
