"""The adapters against the trainers' own code, on the CPU.

Each test takes a checkout of a trainer by an environment variable, and is skipped without:
REWEIGHT_NEMO_RL=/path/to/RL, REWEIGHT_SLIME, REWEIGHT_PRIME_RL. Of the checkout the modules that a
test names are run as they are. All else that they import and that is not installed is replaced by
stubs.
"""

import argparse
import asyncio
import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np

import reweight
from adapter_rollouts import padded, rows, scheme, surrogate, weighted_loss
from reweight.adapters import Credit
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


if __name__ == "__main__":
    unittest.main()
