"""The adapters, each with a stand-in for its trainer: modules, classes and signatures of the
trainer's own names, and its layout of arrays."""

import argparse
import asyncio
import contextlib
import importlib
import importlib.metadata
import io
import itertools
import json
import sys
import tempfile
import threading
import unittest
import warnings
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest import mock

import numpy as np

import reweight
from adapter_rollouts import Case, padded, prompts, rows
from reweight.adapters import Credit, HookError, ms_swift
from support import needs_torch, torch

ESTIMATED = Credit(entropy="surprisal")


def setUpModule():
    """Trainers that are installed here do not count: the stand-ins say what version they are."""
    hidden = mock.patch("importlib.metadata.version", side_effect=importlib.metadata.PackageNotFoundError)
    # Nor do their reports at exit.
    for patch in (hidden, mock.patch("atexit.register")):
        patch.start()
        unittest.addModuleCleanup(patch.stop)


def modules(**contents):
    """Returns modules of those names, with "__" for a dot, and their packages."""
    found = {}
    for path, content in contents.items():
        names = path.split("__")
        for i in range(1, len(names) + 1):
            name = ".".join(names[:i])
            module = found.setdefault(name, ModuleType(name))
            module.__path__ = []
            if i > 1:
                setattr(found[".".join(names[: i - 1])], names[i - 1], module)
        vars(found[".".join(names)]).update(content)
    packages = {path.split("__")[0] for path in contents}
    real = {name: None for name in sys.modules if name.split(".")[0] in packages}  # which imports do not find then
    return mock.patch.dict(sys.modules, {**real, **found})


@needs_torch
class TrainerCase(Case):
    """A test of an adapter."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.prompts = prompts(cls.rollouts) if torch is not None else []

    def install(self, adapter, stand_in, *args, **options):
        stand_in.start()
        self.addCleanup(stand_in.stop)
        return importlib.import_module("reweight.adapters." + adapter).install(*args, **options)

    def responses(self, x):
        """Returns the tokens of each trajectory that come after its prompt, as tensors."""
        return [torch.from_numpy(row[n:].copy()) for row, n in zip(rows(self.rollouts, x), self.prompts)]

    def rloo(self):
        """Makes advantages of the rollouts' scores those of the rollouts, in the place of the trainer's."""
        r = self.rollouts
        made = reweight.rloo(reweight.Batch(r.role, r.seq_offsets, r.group_ids, r.scores))
        return mock.patch.object(r, "advantages", made)

    def assertAdvantages(self, got, credit, aggregation="token_mean", drop=None, **more):
        """Wants the rollouts' advantages times the multiplier, without the prompts."""
        want = self.multiplied(self.rollouts.advantages, credit, aggregation, **more)
        want = np.where(self.rollouts.mask, want, np.float32(0))
        for row, part, n in zip(got, rows(self.rollouts, want), drop or self.prompts):
            self.assertBits(row[: len(part) - n], part[n:])
            self.assertEqual(np.count_nonzero(row[len(part) - n :]), 0)



@needs_torch
class FilesTest(TrainerCase):
    """What Credit(save_every=1) writes of trainers whose arrays begin with the second token of a sequence, or that need no
    token ids for the scheme."""

    def lines(self, folder):
        return [json.loads(line) for file in Path(folder).iterdir() for line in file.read_text().splitlines()]

    def test_openrlhf(self):
        openrlhf = importlib.import_module("reweight.adapters.openrlhf")
        sequences, mask = torch.tensor([[7, 8, 2, 3], [8, 9, 2, 0]]), torch.tensor([[0, 1, 1], [0, 1, 0]])
        e = SimpleNamespace(
            sequences=sequences, action_mask=mask, advantages=mask.float(), action_log_probs=-mask / 2, rewards=torch.ones(2), index=[0, 1],
            info={},
        )  # fmt: skip
        args = SimpleNamespace(actor=SimpleNamespace(policy_loss_type="ppo", loss_agg_mode="token-mean"), rollout=SimpleNamespace(n_samples_per_prompt=2))
        with tempfile.TemporaryDirectory() as folder:
            credit = Credit("uniform", tags=None, save_every=1, dir=folder)
            openrlhf._reweigh(SimpleNamespace(args=args, tokenizer=None, credit_report=mock.Mock()), [e], credit)
            self.assertEqual([line["token_ids"] for line in self.lines(folder)], [[7, 8, 2, 3], [8, 9, 2]])

    def test_nemo_rl(self):
        NeMoRLTest.setUp(self)
        with tempfile.TemporaryDirectory() as folder:
            self.install("nemo_rl", self.modules, Credit("rloo", save_every=1, dir=folder))
            NeMoRLTest.step(self)
            found = [line["token_ids"] for line in self.lines(folder)]
        whole = [row.tolist() for row in rows(self.rollouts, self.rollouts.token_ids)]
        self.assertEqual(len(found), len(whole))
        for ids, want in zip(found, whole):
            self.assertEqual(ids, want[: len(ids)])


class NeMoRLTest(TrainerCase):
    """[B, S] of whole sequences; the log-probability at a position is that of its token, and
    the first position has none."""

    def setUp(self):
        r = self.rollouts
        grid = lambda x: torch.from_numpy(padded(rows(r, x)))
        self.mask = grid(r.mask.astype(np.float32))
        self.logprobs, self.reference = grid(r.old_logprobs), grid(r.ref_logprobs)
        self.prompt_ids = torch.from_numpy(np.stack([r.group_ids, r.group_ids * 0 + 5], 1).astype(np.int64))
        ids = [torch.from_numpy(row.astype(np.int64)) for row in rows(r, r.token_ids)]
        turns = lambda row, n: [{"role": "user", "token_ids": row[:n]}, {"role": "assistant", "token_ids": row[n:]}]
        self.log = {"message_log": [turns(row, n) for row, n in zip(ids, self.prompts)]}

        class GRPOAdvantageEstimator:
            def compute_advantage(self, prompt_ids, rewards, mask, **kwargs):
                return rewards.unsqueeze(-1).expand(mask.shape)

        class GeneralizedAdvantageEstimator(GRPOAdvantageEstimator):
            def compute_advantage(self, prompt_ids, rewards, mask, values, logprobs=None, reference_logprobs=None, **kwargs):
                return rewards.unsqueeze(-1).expand(mask.shape), values

        self.grpo, self.gae = GRPOAdvantageEstimator(), GeneralizedAdvantageEstimator()
        names = {c.__name__: c for c in (GRPOAdvantageEstimator, GeneralizedAdvantageEstimator)}
        self.modules = modules(nemo_rl__algorithms__advantage_estimator=names)

    def step(self, **change):
        arguments = dict(prompt_ids=self.prompt_ids, rewards=torch.from_numpy(self.rollouts.scores), mask=self.mask)
        more = dict(repeated_batch=self.log, logprobs_policy=self.logprobs, logprobs_reference=self.reference)
        return self.grpo.compute_advantage(**{**arguments, **more, **change})

    def test_advantages(self):
        drop = [0] * len(self.prompts)
        for credit in (ESTIMATED, Credit(beta=0.5, signal="log_ratio", scheme="actfocus")):
            for flag, aggregation in ((True, "token_mean"), (False, "seq_mean_token_mean")):
                self.install("nemo_rl", self.modules, credit, token_level_loss=flag)
                self.assertAdvantages(self.step().numpy(), credit, aggregation, drop=drop)
                self.assertEqual(self.grpo.last_metrics["credit/not_finite"], 0)
        with self.rloo():
            self.install("nemo_rl", self.modules, Credit("rloo+actfocus"), token_level_loss=False)
            self.assertAdvantages(self.step().numpy(), Credit("rloo+actfocus"), "seq_mean_token_mean", drop=drop)
        self.install("nemo_rl", self.modules, credit, token_level_loss=False)
        ids = torch.from_numpy(padded(rows(self.rollouts, self.rollouts.token_ids)))
        self.mask[:, 0] = 1  # a position that the loss drops
        got = self.step(repeated_batch={"input_ids": ids, "total_reward": None})
        self.assertAdvantages(got.numpy(), credit, aggregation, drop=drop)

    def install(self, adapter, stand_in, credit, **options):
        return super().install(adapter, stand_in, replace(credit, tokenizer=self.rollouts.tokenizer), **options)

    def test_critic(self):
        """Returns of the critic stay as they are."""
        self.install("nemo_rl", self.modules, ESTIMATED, estimator="GeneralizedAdvantageEstimator")
        arguments = dict(prompt_ids=self.prompt_ids, rewards=torch.from_numpy(self.rollouts.scores), mask=self.mask)
        advantages, returns = self.gae.compute_advantage(
            **arguments, values="values", logprobs=self.logprobs, repeated_batch=self.log
        )
        self.assertAdvantages(advantages.numpy(), ESTIMATED, drop=[0] * len(self.prompts))
        self.assertEqual(returns, "values")

    def test_groups(self):
        """Ids of groups are taken as they are; the same words are not always one group."""
        n = 3
        texts, ids = torch.tensor([[7, 8, 9]]).expand(3 * n, 3), torch.tensor([4, 9, 4] * n)
        rewards, mask = torch.tensor([0.0, 1, 0, 0, 3, 0, 6, 8, 0]), torch.tensor([[0, 1, 1, 1]] * 3 * n)
        rows = np.array([r[np.arange(3 * n) % 3 != 1].mean() if i % 3 != 1 else r[1::3].mean() for r in [rewards.numpy()] for i in range(9)])
        want, as_one = rewards.numpy() - rows, rewards.numpy() - rewards.numpy().mean()
        for what, prompt_ids, batch in (
            ("ids", ids, {}),
            ("a column of ids", ids[:, None], {"idx": [0] * 9}),
            ("places in a dataset", texts, {"idx": ids.tolist()}),
            ("places in a tensor", texts, {"idx": ids}),
            ("texts", torch.stack([ids, ids + 1], 1), {"idx": [0] * 9}),
        ):
            with self.subTest(what), warnings.catch_warnings():
                warnings.simplefilter("error")
                self.install("nemo_rl", self.modules, Credit("group_mean"))
                got = self.step(prompt_ids=prompt_ids, rewards=rewards, mask=mask, repeated_batch=batch, logprobs_policy=mask - 2.0)
                np.testing.assert_allclose(got[:, 1:].numpy(), np.repeat(want[:, None], 3, 1), atol=1e-6)
        more = dict(prompt_ids=texts, rewards=rewards, mask=mask, repeated_batch={}, logprobs_policy=mask - 2.0)
        with self.assertWarnsRegex(UserWarning, "^NeMo RL names no groups here, and rows with the same prompt tokens are taken for one"):
            got = self.step(**more)
        np.testing.assert_allclose(got[:, 1:].numpy(), np.repeat(as_one[:, None], 3, 1), atol=1e-6)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.install("nemo_rl", self.modules, Credit("actfocus", tags=None))  # which has no groups
            self.step(**more)

    def test_turns(self):
        """Rewards of turns in the metadata of environments, with the last one and without; the rest of the total is the outcome."""
        mask = np.array([[0, 1, 1, 0, 1, 0], [0, 1, 0, 0, 0, 0], [0, 1, 0, 1, 0, 1], [0, 1, 0, 1, 1, 0]])
        said = [[[0], [1, 2], [3], [4]], [[0], [1], [2]], [[0], [1], [2], [3], [4], [5]], [[0], [1], [2], [3, 4]]]
        log = [[{"role": "user" if k % 2 == 0 else "assistant", "token_ids": torch.tensor(x)} for k, x in enumerate(row)] for row in said]
        kept = [[1.0], [], [0.5, -1.0], [0.25, 2.0]]
        totals = np.array([3.0, 0.5, 0.25, 2.25], np.float32)
        ids, batch = torch.tensor([4, 4, 9, 9]), {"message_log": log, "extra_env_info": [{"turn_rewards": x} for x in kept]}
        more = dict(prompt_ids=ids, rewards=torch.from_numpy(totals), mask=torch.from_numpy(mask).float(), logprobs_policy=torch.from_numpy(mask - 2.0))
        self.install("nemo_rl", self.modules, Credit("turn_returns"))
        got = self.step(**more, repeated_batch=batch)
        role = np.where(mask.reshape(-1), 2, 0).astype(np.uint8)
        of = reweight.Batch(role, np.arange(5) * 6, np.array([0, 0, 1, 1], np.int32), np.array([2, 0.5, 0.75, 0], np.float32))
        of.span_ids = reweight.spans_from_mask(role != 0, of.seq_offsets)
        of.span_rewards = np.array([1, 0, 0, 0.5, -1, 0, 0.25, 2], np.float32)
        np.testing.assert_allclose(got.numpy().reshape(-1), reweight.turn_returns(of), atol=1e-6)
        way = r'in NeMo RL, an environment keeps the rewards of turns in the metadata that its step returns, as "turn_rewards"'
        for change, problem in (
            ({**batch, "extra_env_info": [{"turn_rewards": [1.0, 2.0, 3.0]}, *batch["extra_env_info"][1:]]}, r"span_rewards\[0\] has 3 numbers, want 2, "),
            ({**batch, "extra_env_info": [{"turn_rewards": [1.0]}, None, {}, {}]}, r"span_rewards\[1\] is None, want a list of numbers"),
            ({"message_log": log}, r"span_rewards\[0\] is None, want a list of numbers"),
        ):
            with self.assertRaisesRegex(reweight.InputError, problem + ".*: " + way):
                self.step(**more, repeated_batch=change)

    def test_missing(self):
        self.install("nemo_rl", self.modules, Credit(beta=0.5, signal="log_ratio", scheme="actfocus"))
        zeros = torch.zeros_like(self.logprobs)
        for change, message in (
            ({"logprobs_policy": zeros}, "with loss_fn.force_on_policy_ratio=true, .*: set it to false"),
            ({"logprobs_reference": zeros}, "skip_reference_policy_logprobs_calculation=false"),
            ({"logprobs_reference": None}, "skip_reference_policy_logprobs_calculation=false"),
            ({"repeated_batch": {"total_reward": None}}, "data_plane.enabled=false"),
        ):
            with self.assertRaisesRegex(ValueError, message):
                self.step(**change)


class SlimeTest(TrainerCase):
    """Lists of one tensor per sample: tokens of the whole sequence, all else of its response.
    Two data-parallel processes share the batch."""

    def setUp(self):
        r, test = self.rollouts, self
        self.args = argparse.Namespace(
            custom_advantage_function_path="my_credit.advantages", use_opd=True, normalize_advantages=False,
            use_rollout_logprobs=False, calculate_per_token_loss=False, hf_checkpoint="model", n_samples_per_prompt=8,
            advantage_estimator="grpo", kl_coef=0,
        )  # fmt: skip
        masks = self.responses(r.mask.astype(np.int32))
        self.data = {
            "tokens": [torch.from_numpy(row.astype(np.int64)) for row in rows(r, r.token_ids)],
            "loss_masks": masks,
            "response_lengths": [len(mask) for mask in masks],
            "log_probs": self.responses(r.old_logprobs),
            "ref_log_probs": self.responses(r.ref_logprobs),
            "sample_indices": list(range(64, 64 + len(masks))),
            "local_raw_reward": r.scores.tolist(),
            "rollout_mask_sums": torch.stack([mask.sum() for mask in masks]).float(),
        }
        # As a process has its own place, each thread here.
        self.local, self.barrier = threading.local(), threading.Barrier(2)
        self.parts = [None, None]

        def compute_advantages_and_returns(args, rollout_data):
            test.assertEqual((args.custom_advantage_function_path, args.use_opd), (None, False))
            rollout_data["advantages"] = rollout_data["returns"] = list(rollout_data["base"])

        def all_gather_object(parts, part, group=None):
            test.parts[test.local.rank] = part
            test.barrier.wait()
            parts[:] = test.parts
            test.barrier.wait()

        mpu = SimpleNamespace(get_data_parallel_group=lambda: "group", get_data_parallel_rank=lambda: test.local.rank)
        self.modules = modules(
            slime__backends__megatron_utils__loss={"compute_advantages_and_returns": compute_advantages_and_returns},
            slime__utils__processing_utils={"load_tokenizer": lambda name_or_path, **kwargs: r.tokenizer},
            megatron__core={"mpu": mpu},
        )
        self.modules.start()
        self.addCleanup(self.modules.stop)
        for name, value in (("all_gather_object", all_gather_object), ("get_world_size", lambda group: 2)):
            patch = mock.patch(f"torch.distributed.{name}", value, create=True)
            patch.start()
            self.addCleanup(patch.stop)
        self.data["base"] = self.responses(r.advantages)

    def step(self, function):
        """Runs two processes; every other sample is the second one's."""
        shares = [{name: list(x[rank::2]) for name, x in self.data.items()} for rank in (0, 1)]
        errors = []

        def process(rank):
            self.local.rank = rank
            try:
                function(self.args, shares[rank])
            except Exception as e:
                errors.append(e)
                self.barrier.abort()

        threads = [threading.Thread(target=process, args=(rank,)) for rank in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.barrier.reset()
        if errors:
            raise next(e for e in errors if not isinstance(e, threading.BrokenBarrierError))
        for share in shares:
            self.assertTrue(all(a is b for a, b in zip(share["returns"], share["base"])))
            # slime logs the mean of a list over all samples: each has the number of the batch.
            self.assertEqual(share["credit/actions"], [float((self.rollouts.role == 2).sum())] * len(share["tokens"]))
        return [shares[i % 2]["advantages"][i // 2].numpy() for i in range(len(self.data["tokens"]))]

    def test_advantages(self):
        slime = importlib.import_module("reweight.adapters.slime")
        for credit in (ESTIMATED, Credit(beta=0.5, signal="log_ratio", scheme="actfocus")):
            function = slime.advantage_function(credit)
            for flag, aggregation in ((False, "seq_mean_token_mean"), (True, "token_mean")):
                self.args.calculate_per_token_loss = flag
                self.assertShares(self.step(function), credit, aggregation)
        with self.rloo():
            self.assertShares(self.step(slime.advantage_function(Credit("rloo+actfocus"))), Credit("rloo+actfocus"), aggregation)
        # Log-probabilities of the rollout engine, if slime has computed none itself.
        self.data["rollout_log_probs"] = self.data.pop("log_probs")
        self.assertShares(self.step(function), credit, aggregation)

    def assertShares(self, got, credit, aggregation):
        """The processes' samples are summed in another order than the file's: the numbers are
        not the same to the last bit."""
        want = self.multiplied(self.rollouts.advantages, credit, aggregation)
        for row, part, n in zip(got, rows(self.rollouts, want), self.prompts):
            np.testing.assert_allclose(row, part[n:], rtol=3e-7)

    def test_refused(self):
        slime = importlib.import_module("reweight.adapters.slime")
        function = slime.advantage_function(Credit(beta=0.5, signal="log_ratio", scheme="actfocus"))
        short = [row[:-1] for row in self.data["log_probs"]]
        with mock.patch.multiple(self.args, kl_coef=0.1):
            with self.assertRaisesRegex(ValueError, "the advantages of rloo have no penalty: use --use-kl-loss"):
                self.step(slime.advantage_function(Credit("rloo")))
        with mock.patch.dict(self.data, rollout_mask_sums=self.data["rollout_mask_sums"] + 1):
            with self.assertRaisesRegex(ValueError, "a rollout has several samples, of which the scheme rloo would take each for one"):
                self.step(slime.advantage_function(Credit("rloo")))
        for args, data, message in (
            ({"normalize_advantages": True}, {}, "--normalize-advantages would whiten"),
            ({}, {"log_probs": []}, "add --use-rollout-logprobs"),
            ({}, {"ref_log_probs": []}, "--use-kl-loss"),
            ({}, {"log_probs": short}, "--context-parallel-size 1"),
            ({}, {"rollout_mask_sums": self.data["rollout_mask_sums"] + 1}, "and no rollout_ids: add --calculate-per-token-loss"),
        ):
            with mock.patch.multiple(self.args, **args) if args else mock.patch.dict(self.data, data):
                with self.assertRaisesRegex(ValueError, message):
                    self.step(function)


class PrimeRLTest(TrainerCase):
    """A graph of messages for each trace; numbers of sampled tokens only; one group at a time."""

    def setUp(self):
        r = self.rollouts

        def trace(s):
            tokens = range(r.seq_offsets[s], r.seq_offsets[s + 1])
            cuts = [t for t in tokens if t == tokens[0] or r.mask[t] and not r.mask[t - 1]]
            nodes = []
            for begin, end in zip(cuts, cuts[1:] + [tokens[-1] + 1]):
                # A message of the environment, then one of the policy with the scaffold after it.
                part, mask = slice(begin, end), r.mask[begin:end]
                nodes.append(
                    SimpleNamespace(
                        token_ids=r.token_ids[part].tolist(),
                        mask=mask.tolist(),
                        logprobs=r.old_logprobs[part][mask].tolist(),
                        reference_logprobs=r.ref_logprobs[part][mask].tolist() if mask.any() else None,
                        advantages=None,
                        sampled=mask.any(),
                    )
                )
            return SimpleNamespace(nodes=nodes, score=float(r.scores[s]), reward=float(r.scores[s]))

        self.groups = []
        for g in np.unique(r.group_ids):
            traces = [trace(s) for s in np.flatnonzero(r.group_ids == g)]
            # Two episodes, the second with all traces but the first.
            self.groups.append([SimpleNamespace(traces=traces[:1]), SimpleNamespace(traces=traces[1:])])

        class Algorithm:
            async def finalize_group(self, episodes):
                for trace in (trace for episode in episodes for trace in episode.traces):
                    for node in trace.nodes:
                        if any(node.mask):
                            node.advantages = [trace.score] * sum(node.mask)

        self.algorithm = type("GRPOAlgorithm", (Algorithm,), {})()
        main = mock.Mock()
        self.modules = modules(
            prime_rl__orchestrator__algo__base={"Algorithm": Algorithm}, prime_rl__entrypoints__orchestrator={"main": main}
        )

    def test_advantages(self):
        r = self.rollouts
        for signal, scheme in (("surprisal", "actfocus+aem"), ("log_ratio", "actfocus"), ("surprisal", "rloo+actfocus")):
            credit = Credit(scheme, beta=0.5, signal=signal, entropy="surprisal", tokenizer=r.tokenizer)
            self.install("prime_rl", self.modules, credit)
            for g, episodes in enumerate(self.groups):
                asyncio.run(self.algorithm.finalize_group(episodes))
                keep = r.group_ids[r.trajectory] == np.unique(r.group_ids)[g]
                names = ["role", "mask", "advantages", "token_ids"]
                names += ["old_logprobs", "logprobs", "ref_logprobs", "entropy", "ref_energy"]
                share = SimpleNamespace(**{name: getattr(r, name)[keep] for name in names})
                lengths = np.diff(r.seq_offsets)[r.group_ids == np.unique(r.group_ids)[g]]
                share.seq_offsets = np.append(0, np.cumsum(lengths))
                share.group_ids = np.zeros(len(lengths), np.int32)
                spans = r.span_ids[keep]
                share.span_ids = np.where(spans >= 0, spans - spans[spans >= 0].min(), -1).astype(np.int32)
                if "rloo" in scheme:
                    scores = r.scores[r.group_ids == np.unique(r.group_ids)[g]]
                    share.advantages = reweight.rloo(reweight.Batch(share.role, share.seq_offsets, share.group_ids, scores))
                with mock.patch.object(self, "rollouts", share):
                    want = self.multiplied(share.advantages, credit)[share.mask]
                traces = [trace for episode in episodes for trace in episode.traces]
                got = [a for trace in traces for node in trace.nodes for a in node.advantages or []]
                np.testing.assert_allclose(got, want, rtol=2e-7)

    def test_missing(self):
        self.install("prime_rl", self.modules, Credit(beta=0.5, signal="log_ratio", scheme="actfocus", tags=None))
        next(node for node in self.groups[0][0].traces[0].nodes if node.sampled).reference_logprobs = None
        with self.assertRaisesRegex(ValueError, "an algorithm with a reference model"):
            asyncio.run(self.algorithm.finalize_group(self.groups[0]))

    def test_turns(self):
        """Rewards of turns, which environments write to the info of a trace; None is 0."""
        r, g = self.rollouts, np.unique(self.rollouts.group_ids)[0]
        traces = [trace for episode in self.groups[0] for trace in episode.traces]
        rows_of = np.flatnonzero(r.group_ids == g)
        chance, of_turns = np.random.default_rng(5), []
        for trace in traces:
            trace.info = {"turn_rewards": chance.integers(0, 3, sum(node.sampled for node in trace.nodes)).astype(float).tolist()}
            of_turns += trace.info["turn_rewards"]
        of_turns[0], traces[0].info["turn_rewards"][0] = 0.0, None
        self.install("prime_rl", self.modules, Credit("turn_returns"))
        asyncio.run(self.algorithm.finalize_group(self.groups[0]))
        keep = np.isin(r.trajectory, rows_of)
        part = reweight.Batch(r.mask[keep].astype(np.uint8), np.append(0, np.cumsum(np.diff(r.seq_offsets)[rows_of])), np.zeros(len(rows_of), np.int32), r.scores[rows_of])
        part.span_ids, part.span_rewards = reweight.spans_from_mask(r.mask[keep], part.seq_offsets), np.array(of_turns, np.float32)
        self.assertGreater(len(of_turns), len(traces))
        got = [a for trace in traces for node in trace.nodes for a in node.advantages or []]
        np.testing.assert_allclose(got, reweight.turn_returns(part)[r.mask[keep]], atol=1e-6)
        for row, problem in ((of_turns, "numbers, want"), (None, "is None, want a list of numbers"), (["x"], "is a str, want a number|want a list of numbers")):
            traces[0].info = {"turn_rewards": row} if row else {}
            with self.assertRaisesRegex(reweight.InputError, problem + '.*in prime-rl, an environment writes the rewards of turns to info'):
                asyncio.run(self.algorithm.finalize_group(self.groups[0]))

    def test_unscored(self):
        """A group without credit, of errors or of a teacher, is left alone; main is prime-rl's."""
        self.install("prime_rl", self.modules, ESTIMATED)
        asyncio.run(self.algorithm.finalize_group([SimpleNamespace(traces=[SimpleNamespace(nodes=[], score=0)])]))
        importlib.import_module("reweight.adapters.prime_rl").main()
        sys.modules["prime_rl.entrypoints.orchestrator"].main.assert_called_once_with()


def skyrl(loss_reduction="token_mean", step_wise=False):
    """Returns SkyRL's modules, and a trainer's configuration."""

    class RayPPOTrainer:
        def __init__(self, cfg, tokenizer=None):
            self.cfg, self.tokenizer, self.all_metrics, self.steps = cfg, tokenizer, {}, 0

        def compute_advantages_and_returns(self, data):
            return data

        def train_critic_and_policy(self, data):
            self.steps += 1

    algorithm = SimpleNamespace(
        policy_loss_type="regular", loss_reduction=loss_reduction, advantage_batch_normalize=False, use_kl_loss=True, use_kl_in_reward=False
    )
    config = SimpleNamespace(trainer=SimpleNamespace(algorithm=algorithm), generator=SimpleNamespace(step_wise_trajectories=step_wise))
    return modules(skyrl__train__trainer={"RayPPOTrainer": RayPPOTrainer}), RayPPOTrainer, config


def skyrl_batch(uids, advantages, mask, ids, old, ref, rewards, **metadata):
    """Returns a batch [B, T] with a row that fills it up, and a prompt of two tokens and one more column before each row."""

    class Data(dict):
        pass

    grids = dict(advantages=advantages, loss_mask=mask, action_log_probs=old, base_action_log_probs=ref, rewards=rewards)
    data = Data((name, torch.cat([x, x[:1] * (name != "loss_mask")]).float()) for name, x in grids.items())
    before = torch.tensor([[7, 8, 9]]).expand(len(ids) + 1, 3)
    data["sequences"] = torch.cat([before, torch.cat([ids, ids[:1]])], 1)
    data["response_mask"] = torch.ones_like(data["rewards"], dtype=torch.int64)
    data["attention_mask"] = torch.nn.functional.pad(data["response_mask"], (2, 0), value=1)
    data["attention_mask"] = torch.nn.functional.pad(data["attention_mask"], (1, 0))
    data.metadata = {"uids": [*uids, "pad0"], "pad_size": 1, **metadata}
    return data


@needs_torch
class SkyRLTest(TrainerCase):
    """[B, T] of responses that end where their rows end."""

    def test_advantages(self):
        r = self.rollouts
        cut = lambda x: [row[n:] for row, n in zip(rows(r, x), self.prompts)]
        grid = lambda x: torch.from_numpy(padded(cut(x), left=True))
        given = grid(r.advantages), grid(r.mask), grid(r.token_ids.astype(np.int64)), grid(r.old_logprobs), grid(r.ref_logprobs)
        reward = torch.zeros(given[0].shape)
        reward[:, -1] = torch.from_numpy(r.scores)
        log_ratio = Credit("actfocus", beta=0.5, signal="log_ratio")
        for credit, reduction in itertools.product((ESTIMATED, log_ratio, Credit("rloo+actfocus")), ("token_mean", "sequence_mean")):
            stand_in, RayPPOTrainer, config = skyrl(reduction)
            self.install("skyrl", stand_in, credit)
            trainer = RayPPOTrainer(config, r.tokenizer)
            data = trainer.compute_advantages_and_returns(skyrl_batch(r.group_ids, *given, reward))
            got = [row[len(row) - len(part) :].numpy() for row, part in zip(data["advantages"], cut(r.mask))]
            aggregation = {"sequence_mean": "seq_mean_token_mean"}.get(reduction, reduction)
            with self.rloo() if "rloo" in credit.scheme else contextlib.nullcontext():
                self.assertAdvantages(got, credit, aggregation)
            self.assertEqual(data["advantages"][-1].tolist(), given[0][0].tolist())  # of the row that fills the batch up
            self.assertEqual(trainer.all_metrics["credit/not_finite"], 0)

    def test_steps(self):
        """Steps of a trajectory are its turns, also where nothing stands between them; a reward comes with the turn before it."""
        mask = torch.tensor([[1, 1, 1], [1, 1, 1], [0, 1, 0], [0, 1, 1]])
        gained = torch.tensor([[0, 0, 1.0], [0, 0, 2], [0, 0, 4], [0, 0, 8]])
        ones, ids = torch.ones(4, 3), torch.full((4, 3), 2)
        for scheme, want in (
            ("turn_returns", [[-9, -9, -9], [-6, -6, -6], [0, 9, 0], [0, 6, 6]]),
            ("rloo", [[-6, -6, -6], [-6, -6, -6], [0, 6, 0], [0, 6, 6]]),  # of the last steps, as SkyRL's own
        ):
            stand_in, RayPPOTrainer, config = skyrl(step_wise=True)
            self.install("skyrl", stand_in, Credit(scheme))
            data = skyrl_batch("aaaa", ones, mask, ids, -ones, -ones, gained, is_last_step=[False, True, False, True, True])
            made = RayPPOTrainer(config).compute_advantages_and_returns(data)["advantages"]
            self.assertEqual(made.tolist(), [*want, [1, 1, 1]])
        self.install("skyrl", stand_in, Credit("rloo", save_every=1))
        with mock.patch("reweight.adapters.skyrl.token_advantages", side_effect=InterruptedError) as given:
            with self.assertRaises(InterruptedError):
                RayPPOTrainer(config).compute_advantages_and_returns(data)
        self.assertEqual([row.tolist() for row in given.call_args.kwargs["prompt_ids"]], [[8, 9], [8, 9]])

    def test_files(self):
        """A response that is shorter than others stands behind its prompt, a part of which is in its columns before it."""
        mask = torch.tensor([[1, 1, 1], [0, 1, 1], [0, 0, 1], [1, 0, 1]])
        ids = torch.tensor([[2, 3, 4], [9, 3, 4], [8, 9, 4], [2, 3, 4]])
        made, folder = [], tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for save_every in 0, 1:
            stand_in, RayPPOTrainer, config = skyrl()
            self.install("skyrl", stand_in, Credit("actfocus", tags=None, dir=folder.name, save_every=save_every))
            data = skyrl_batch("aabb", torch.ones(4, 3), mask, ids, -torch.ones(4, 3), -torch.ones(4, 3), mask * 1.0)
            data["response_mask"][:3] = mask[:3]
            data["sequences"][1, :3] = torch.tensor([0, 7, 8])
            data["sequences"][2, :3] = torch.tensor([0, 0, 7])
            data["attention_mask"] = (data["sequences"] != 0).long()
            made.append(RayPPOTrainer(config).compute_advantages_and_returns(data)["advantages"])
        self.assertEqual(made[0].tolist(), made[1].tolist())
        [file] = Path(folder.name).iterdir()
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        self.assertEqual([line["token_ids"] for line in lines], [[7, 8, 9, 2, 3, 4], [7, 8, 9, 3, 4], [7, 8, 9, 4], [7, 8, 9, 2, 3, 4]])
        self.assertEqual([line["role"] for line in lines], [[0, 0, 0, 2, 2, 2], [0, 0, 0, 2, 2], [0, 0, 0, 2], [0, 0, 0, 2, 0, 2]])

    def test_refused(self):
        for change, step_wise, credit, message in (
            ({"policy_loss_type": "clip_cov"}, False, ESTIMATED, "trainer.algorithm.policy_loss_type=clip_cov was not tested"),
            ({"loss_reduction": "token_mean_legacy"}, False, ESTIMATED, "loss_reduction=token_mean_legacy was not tested"),
            ({"advantage_batch_normalize": True}, False, ESTIMATED, "advantage_batch_normalize=True was not tested"),
            ({"loss_reduction": "sequence_mean"}, True, ESTIMATED, "takes means over rows, of which a step-wise trajectory has several"),
            ({"use_kl_loss": False}, False, Credit("actfocus", beta=1.0, signal="log_ratio"), "reads ref_logprobs, for which SkyRL needs"),
        ):
            stand_in, RayPPOTrainer, config = skyrl(step_wise=step_wise)
            vars(config.trainer.algorithm).update(change)
            self.install("skyrl", stand_in, credit)
            with self.assertRaisesRegex(ValueError, message):
                RayPPOTrainer(config)


@needs_torch
class MsSwiftTest(unittest.TestCase):
    def test_files(self):
        """The columns of a micro-batch are as many as its longest completion needs: before others they hold prompts."""
        ids = torch.tensor([[0, 7, 8, 9, 2, 3, 4], [0, 0, 7, 8, 9, 3, 4]]), torch.tensor([[0, 7, 8, 9, 2, 3, 0], [7, 8, 9, 4, 0, 0, 0]])
        masks = torch.tensor([[1, 1, 1], [0, 1, 1]]), torch.tensor([[0, 1, 1, 0], [1, 0, 0, 0]])
        made = []
        for save_every in 0, 1:
            with tempfile.TemporaryDirectory() as folder, mock.patch("reweight.adapters.trl._parts", lambda part: [part]):
                encoded = []
                for row, mask in zip(ids, masks):
                    there = torch.full(mask.shape, -0.5)
                    batch = SimpleNamespace(
                        completion_mask=mask != 0, truncated_mask=torch.zeros(2) != 0, advantages=torch.tensor([[1.0], [-1]]), old_per_token_logps=there,
                        teacher_per_token_logps=None,
                    )  # fmt: skip
                    encoded.append({"grpo_batch": batch, "model_inputs": {"input_ids": row, "attention_mask": (row != 0).long()}})
                trainer = SimpleNamespace(
                    dynamic_num_samples=False, accelerator=SimpleNamespace(process_index=0, num_processes=1, is_main_process=True), loss_type="dapo",
                    overlong_filter=False, template=SimpleNamespace(tokenizer=None), model=None, beta=0, num_generations=4, _metrics=mock.MagicMock(),
                    _get_per_token_logps_and_entropies=lambda model, inputs, batch, **_: (None, torch.ones(batch.completion_mask.shape)),
                    _rewards_per_func=torch.tensor([[1.0], [0], [2], [0]]), reward_weights=torch.ones(1), state=SimpleNamespace(global_step=0),
                    args=SimpleNamespace(run_name="run", output_dir=folder),
                )  # fmt: skip
                credit = Credit("actfocus", tags=([2], [3]), dir=folder, save_every=save_every)
                with contextlib.redirect_stderr(io.StringIO()):
                    ms_swift._credited(trainer, encoded, credit, mock.Mock())
                made.append([one["grpo_batch"].advantages.tolist() for one in encoded])
                lines = [json.loads(line) for file in Path(folder).iterdir() for line in file.read_text().splitlines()]
        self.assertEqual(made[0], made[1])
        self.assertEqual([line["token_ids"] for line in lines], [[7, 8, 9, 2, 3, 4], [7, 8, 9, 3, 4], [7, 8, 9, 2, 3], [7, 8, 9, 4]])
        self.assertEqual([line["reward"] for line in lines], [1, 0, 2, 0])


@needs_torch
class NeverCalledTest(TrainerCase):
    """A trainer whose class never calls the method that gives the credit ends before it learns, and the class is named."""

    SHADOW = r"^mine\.Shadow is about to learn without the credit: mine\.Shadow has a {} of its own, which does not call that of {}$"

    def install(self, adapter, stand_in, credit, **options):
        return super().install(adapter, stand_in, replace(credit, tokenizer=self.rollouts.tokenizer), **options)

    def shadow(self, base, name, method):
        return type("Shadow", (base,), {name: method, "__module__": "mine"})

    def ends(self, call, name, owner):
        with self.assertRaisesRegex(HookError, self.SHADOW.format(name, owner)):
            call()

    def test_nemo_rl(self):
        NeMoRLTest.setUp(self)
        self.install("nemo_rl", self.modules, ESTIMATED)
        kind = self.shadow(type(self.grpo), "compute_advantage", lambda self, rewards, mask, **rest: rewards[:, None].expand(mask.shape))
        own, self.grpo = self.grpo, kind()
        self.ends(lambda: NeMoRLTest.step(self), "compute_advantage", "GRPOAdvantageEstimator")
        other = sys.modules["nemo_rl.algorithms.advantage_estimator"].GeneralizedAdvantageEstimator()
        with self.assertRaisesRegex(HookError, "GeneralizedAdvantageEstimator has a compute_advantage of its own"):
            other.compute_advantage(self.prompt_ids, torch.from_numpy(self.rollouts.scores), self.mask, values=None)
        self.install("nemo_rl", self.modules, ESTIMATED)
        self.grpo = self.shadow(type(own), "other", None)()
        NeMoRLTest.step(self)
        NeMoRLTest.setUp(self)
        self.install("nemo_rl", self.modules, ESTIMATED, estimator="GeneralizedAdvantageEstimator")
        self.grpo = type(self.grpo)()  # which the configuration has chosen in its place
        with self.assertRaisesRegex(HookError, "it is no GeneralizedAdvantageEstimator, to which reweight gives the credit"):
            NeMoRLTest.step(self)

    def test_prime_rl(self):
        PrimeRLTest.setUp(self)
        self.install("prime_rl", self.modules, ESTIMATED)
        base = type(self.algorithm)
        run = lambda kind: asyncio.run(kind().finalize_group(self.groups[0]))

        async def own(self, episodes):
            await asyncio.sleep(0)

        self.ends(lambda: run(self.shadow(base, "finalize_group", own)), "finalize_group", "Algorithm")

        async def passing(self, episodes):
            await base.finalize_group(self, episodes)

        run(self.shadow(base, "finalize_group", passing))

    def test_skyrl(self):
        stand_in, RayPPOTrainer, config = skyrl()
        self.install("skyrl", stand_in, ESTIMATED)
        made = self.shadow(RayPPOTrainer, "compute_advantages_and_returns", lambda self, data: data)(config)
        made.compute_advantages_and_returns(None)
        self.ends(lambda: made.train_critic_and_policy(None), "compute_advantages_and_returns", "RayPPOTrainer")
        self.assertEqual(made.steps, 0)

    def test_openrlhf(self):
        class RemoteExperienceMaker:
            def make_experience_batch(self, samples):
                return self.compute_advantages_and_returns(samples)

            def compute_advantages_and_returns(self, experiences):
                return experiences

        with modules(openrlhf__trainer__ppo_utils__experience_maker={"RemoteExperienceMaker": RemoteExperienceMaker}):
            adapter = importlib.import_module("reweight.adapters.openrlhf")
            adapter.install(ESTIMATED)
            with mock.patch.object(adapter, "_check_maker"), mock.patch.object(adapter, "_reweigh"):
                kind = self.shadow(RemoteExperienceMaker, "compute_advantages_and_returns", lambda self, experiences: experiences)
                made = kind()
                self.ends(lambda: made.make_experience_batch([1]), "compute_advantages_and_returns", "RemoteExperienceMaker")
                self.assertEqual(RemoteExperienceMaker().make_experience_batch([1]), [1])

    def test_verl(self):
        class PPOTrainer:
            def __init__(self, config):
                self.config, self.use_reference_policy, self.updates = config, False, 0

            def fit(self):
                self._step_once()

            def _step_once(self):
                self._compute_advantage(batch=None, metrics=None)
                self._update_actor(None)

            def _compute_advantage(self, batch, metrics):
                pass

            def _update_actor(self, batch):
                self.updates += 1

        def step(self):
            self._update_actor(None)

        def credited(trainer, original, credit, report, batch, metrics):
            report.batches += 1

        with modules(verl__trainer__ppo__v1__trainer_base={"PPOTrainer": PPOTrainer}):
            adapter = importlib.import_module("reweight.adapters.verl")
            with mock.patch.multiple(adapter, _check=mock.DEFAULT, _compute_advantage=credited, _installed=None):
                adapter.install(ESTIMATED)
                made = self.shadow(PPOTrainer, "_step_once", step)({})
                with contextlib.redirect_stderr(io.StringIO()):
                    self.ends(made.fit, "_step_once", "PPOTrainer")
                self.assertEqual(made.updates, 0)
                own = self.shadow(PPOTrainer, "_compute_advantage", lambda self, batch, metrics: None)({})
                for trainer in PPOTrainer({}), own:  # the credit is given to what that method has made
                    trainer.fit()
                    self.assertEqual(trainer.updates, 1)


@needs_torch
class FewTokensTest(TrainerCase):
    """Every scheme in every adapter but TRL's, with a batch of which no token is left, and one: a run goes on."""

    SCORES = (1.0, 0.0, 0.25, 2.0)

    def nemo_rl(self, credit, kept):
        NeMoRLTest.setUp(self)
        self.install("nemo_rl", self.modules, credit)
        return self.grpo.compute_advantage(
            torch.tensor([[1, 5]] * 4), torch.tensor(self.SCORES), kept.float(), logprobs_policy=-kept.float() - 1,
            logprobs_reference=-kept.float() - 1, repeated_batch={"idx": [0, 0, 1, 1], "extra_env_info": [{"turn_rewards": [0.5]}] * 4},
        )  # fmt: skip

    def slime(self, credit, kept):
        mpu = SimpleNamespace(get_data_parallel_group=lambda: "group", get_data_parallel_rank=lambda: 0)

        def compute_advantages_and_returns(args, rollout_data):
            rollout_data["advantages"] = [torch.ones(4) * score for score in self.SCORES]

        contents = modules(
            slime__backends__megatron_utils__loss={"compute_advantages_and_returns": compute_advantages_and_returns},
            slime__utils__processing_utils={"load_tokenizer": lambda name_or_path, **_: None}, megatron__core={"mpu": mpu},
        )  # fmt: skip
        args = argparse.Namespace(
            normalize_advantages=False, use_rollout_logprobs=False, calculate_per_token_loss=False, hf_checkpoint="model",
            n_samples_per_prompt=2, advantage_estimator="grpo", kl_coef=0, custom_advantage_function_path="", use_opd=False,
        )  # fmt: skip
        data = {
            "tokens": [torch.arange(6)] * 4, "loss_masks": list(kept.int()), "response_lengths": [4] * 4,
            "log_probs": [-torch.ones(4)] * 4, "ref_log_probs": [-torch.ones(4)] * 4, "sample_indices": range(4),
            "local_raw_reward": self.SCORES, "rollout_mask_sums": kept.sum(1),
        }  # fmt: skip

        def all_gather_object(parts, part, group=None):
            parts[:] = [part]

        patches = mock.patch.multiple("torch.distributed", create=True, all_gather_object=all_gather_object, get_world_size=lambda group: 1)
        with contents, patches:
            importlib.import_module("reweight.adapters.slime").advantage_function(credit)(args, data)
        return torch.stack(data["advantages"])

    def prime_rl(self, credit, kept):
        adapter = importlib.import_module("reweight.adapters.prime_rl")
        credit.check("prime-rl", adapter._OWN, ("span_rewards",))
        out = torch.zeros(kept.shape)
        for rows in (0, 1), (2, 3):
            n = kept.sum(1).tolist()
            traces = [
                SimpleNamespace(reward=self.SCORES[b], info={"turn_rewards": [0.5]}, nodes=[SimpleNamespace(
                    token_ids=[1, 2, 3, 4], mask=kept[b].tolist(), logprobs=[-1.0] * n[b], reference_logprobs=[-1.0] * n[b],
                    advantages=[self.SCORES[b]] * n[b] or None,
                )]) for b in rows
            ]  # fmt: skip
            adapter.reweigh(traces, credit, mock.Mock())
            for b, trace in zip(rows, traces):
                out[b, kept[b]] = torch.tensor(trace.nodes[0].advantages or [], dtype=torch.float32)
        return out

    def verl(self, credit, kept):
        adapter = importlib.import_module("reweight.adapters.verl")
        credit.check("verl", adapter._OWN, ("entropy",))
        jagged = lambda x: torch.nested.nested_tensor_from_jagged(x.reshape(-1), torch.arange(0, 17, 4))

        class Fields(dict):
            def select(self, *names):
                return Fields((name, self[name]) for name in names)

        fields = Fields(
            response_mask=jagged(kept.int()), responses=jagged(torch.ones(4, 4, dtype=torch.int64)), uid=["a", "a", "b", "b"],
            old_log_probs=jagged(-torch.ones(4, 4)), ref_log_prob=jagged(-torch.ones(4, 4)), entropy=jagged(torch.ones(4, 4)),
            rm_scores=jagged(kept * torch.tensor(self.SCORES)[:, None]), advantages=jagged(torch.ones(4, 4)),
        )  # fmt: skip
        put = {}
        queue = SimpleNamespace(
            kv_batch_get=lambda keys, partition_id, select_fields: fields.select(*select_fields),
            kv_batch_put=lambda keys, partition_id, fields: put.update(fields),
        )
        actor = SimpleNamespace(policy_loss=SimpleNamespace(loss_mode="vanilla"), loss_agg_mode="token-mean")
        config = SimpleNamespace(
            algorithm=SimpleNamespace(use_kl_in_reward=False), actor_rollout_ref=SimpleNamespace(actor=actor),
            trainer=SimpleNamespace(experiment_name="run"),
        )  # fmt: skip
        trainer = SimpleNamespace(config=config, tokenizer=None, global_steps=1)
        batch = SimpleNamespace(keys=["a_0", "b_0", "c_0", "d_0"], tags=[{}] * 4, partition_id="train")
        with modules(transfer_queue=vars(queue)):
            adapter._compute_advantage(trainer, lambda batch, metrics: batch, credit, mock.Mock(), batch, {})
        return put["advantages"].values().reshape(4, 4)

    def openrlhf(self, credit, kept):
        adapter = importlib.import_module("reweight.adapters.openrlhf")
        credit.check("OpenRLHF", adapter._OWN)
        actor = SimpleNamespace(policy_loss_type="ppo", loss_agg_mode="token-mean")
        args = SimpleNamespace(actor=actor, rollout=SimpleNamespace(n_samples_per_prompt=2))
        experience = SimpleNamespace(
            advantages=torch.ones(4, 4), action_mask=kept, sequences=torch.ones(4, 5, dtype=torch.int64), index=[0, 1, 2, 3],
            action_log_probs=-torch.ones(4, 4), base_action_log_probs=-torch.ones(4, 4), rewards=torch.tensor(self.SCORES), info={},
        )  # fmt: skip
        adapter._reweigh(SimpleNamespace(args=args, tokenizer=None, credit_report=mock.Mock()), [experience], credit)
        return experience.advantages

    def skyrl(self, credit, kept):
        adapter = importlib.import_module("reweight.adapters.skyrl")
        credit.check("SkyRL", adapter._OWN, ("span_rewards",))
        _, _, cfg = skyrl()
        reward = torch.tensor(self.SCORES)[:, None] * torch.tensor([0.0, 0, 0, 1])
        log, ids = -torch.ones(4, 4), torch.ones(4, 4, dtype=torch.int64)
        data = skyrl_batch("aabb", torch.ones(4, 4), kept, ids, log, log, reward)
        adapter._reweigh(SimpleNamespace(cfg=cfg, tokenizer=None, all_metrics={}), data, credit, mock.Mock())
        return data["advantages"][:4]

    def test_every_scheme(self):
        none = torch.zeros(4, 4, dtype=torch.bool)
        one, two = none.clone(), none.clone()
        one[2, 1] = True
        two[2, 1:3] = True
        walked = 0
        for adapter in (self.nemo_rl, self.slime, self.prime_rl, self.verl, self.openrlhf, self.skyrl):
            for e in reweight.schemes():
                if e.kind not in ("advantage", "factor", "weight"):
                    continue
                for scheme in e.name, f"overlong+{e.name}", f"{e.name}+actfocus", f"{e.name}+aem":
                    for kept in (none, one, two):
                        try:
                            credit = Credit(scheme, entropy="exact" if e.single_entropies else "surprisal", tags=None)
                            with contextlib.redirect_stderr(io.StringIO()):
                                got = adapter(credit, kept)
                        except reweight.InputError as error:
                            # Before a batch is there: what the trainer does not keep, and what cannot be joined.
                            self.assertIn(error.argument, ("scheme", "tags", "entropy"), (adapter.__name__, scheme, error))
                            break
                        with self.subTest(adapter.__name__, scheme=scheme, kept=int(kept.sum())):
                            self.assertTrue(torch.isfinite(got).all(), got)
                            self.assertFalse(got[~kept].any())
                            if kept is one and scheme.startswith("reinforce++"):
                                self.assertFalse(got.any())
                        walked += 1
        sys.stderr.write(f"\n{walked} batches with few tokens\n")
        self.assertGreater(walked, 600)


class Config(dict):
    """A configuration, by names and by attributes."""

    __getattr__ = dict.get


@needs_torch
class HooksTest(unittest.TestCase):
    """What a user reads where a trainer has changed."""

    HOOKS = {
        "verl": (
            "verl", "verl__trainer__ppo__v1__trainer_base", "PPOTrainer", "_compute_advantage", "batch",
            "verl 0.7.1, 0.8.0, 0.9.0 and 0.9.1",
        ),
        "trl": (
            "TRL", "trl__trainer__grpo_trainer", "GRPOTrainer", "_generate_and_score_completions", "inputs", "TRL 1.16.0",
        ),
        "openrlhf": (
            "OpenRLHF", "openrlhf__trainer__ppo_utils__experience_maker", "RemoteExperienceMaker",
            "compute_advantages_and_returns", "experiences", "OpenRLHF 0.11.2",
        ),
        "nemo_rl": (
            "NeMo RL", "nemo_rl__algorithms__advantage_estimator", "GRPOAdvantageEstimator", "compute_advantage", "mask",
            "NeMo RL 0.7.0",
        ),
        "skyrl": ("SkyRL", "skyrl__train__trainer", "RayPPOTrainer", "compute_advantages_and_returns", "data", "SkyRL 0.4.0"),
        "slime": (
            "slime", "slime__backends__megatron_utils__loss", None, "compute_advantages_and_returns", "rollout_data", "slime 0.3.1",
        ),
        "prime_rl": ("prime-rl", "prime_rl__orchestrator__algo__base", "Algorithm", "finalize_group", "episodes", "prime-rl 0.8.0"),
    }  # fmt: skip

    def install(self, adapter, **contents):
        module = importlib.import_module("reweight.adapters." + adapter)
        function = module.advantage_function if adapter == "slime" else module.install
        gone = ModuleNotFoundError(name=self.HOOKS[adapter][1].partition("__")[0])
        with modules(**contents) if contents else mock.patch("importlib.import_module", side_effect=gone):
            with self.assertRaises(HookError) as caught:
                function(ESTIMATED)
        return str(caught.exception)

    def holder(self, path, owner, functions):
        # TRL's adapter looks at this method first.
        more = {"_get_per_token_logps_and_entropies": lambda self, attention_mask, compute_entropy: None}
        content = functions if owner is None else {owner: type(owner, (), {**more, **functions})}
        return {path.split("__")[0]: {"__version__": "99.1"}, path: content}

    def test_hooks(self):
        for adapter, (trainer, path, owner, hook, parameter, written_for) in self.HOOKS.items():
            with self.subTest(adapter):
                self.assertRegex(self.install(adapter), f"written for {written_for} .* but {trainer} is not installed")
                text = self.install(adapter, **self.holder(path, owner, {"other": lambda: None}))
                place = owner or path.replace("__", ".")
                self.assertRegex(text, rf"written for {written_for} .* in {trainer} 99.1 there is no {hook} in {place}")
                text = self.install(adapter, **self.holder(path, owner, {hook: lambda self, things: None}))
                self.assertRegex(text, rf"in {trainer} 99.1 it is {hook}\(self, things\): no .*{parameter}")
                text = self.install(adapter, **{path.split("__")[0]: {"__version__": "99.1"}})
                self.assertRegex(text, f"in {trainer} 99.1 there is no module {path.split('__')[0]}.{path.split('__')[1]}")

    def test_agent_lightning(self):
        """Its configuration says before the first rollout that its trainer gets no rewards of turns."""
        actor = Config(policy_loss=Config(loss_mode="vanilla"), loss_agg_mode="token-mean")
        config = Config(actor_rollout_ref=Config(actor=actor), algorithm=Config(), agentlightning=Config(port=1))
        from reweight.adapters import verl

        verl._check(config, False, Credit("rloo"), ("vanilla",))
        with self.assertRaisesRegex(reweight.InputError, "^scheme reads span_rewards, but Agent Lightning hands its trainer the last reward"):
            verl._check(config, False, Credit("turn_returns"), ("vanilla",))
        verl._check(Config({**config, "agentlightning": None}), False, Credit("turn_returns"), ("vanilla",))

    def test_credit(self):
        """What a trainer does not keep is found before anything is installed."""
        for adapter, hook in self.HOOKS.items():
            module = importlib.import_module("reweight.adapters." + adapter)
            function = module.advantage_function if adapter == "slime" else module.install
            with self.assertRaisesRegex(ValueError, f'signal is "ref_entropy", which {hook[0]} does not keep, want one of'):
                function(Credit(beta=0.5, signal="ref_entropy"))
            if adapter not in ("verl", "trl"):
                message = rf'entropy is "exact", but {hook[0]} keeps no .* use Credit\(entropy="surprisal"\)'
                with self.assertRaisesRegex(ValueError, message):
                    function(Credit())


class NoCreditTest(unittest.TestCase):
    def test_names(self):
        """The name of a scheme is no credit, as the first thing that install says."""
        for trainer in "nemo_rl", "openrlhf", "prime_rl", "skyrl", "slime", "tinker", "verl":
            module = importlib.import_module(f"reweight.adapters.{trainer}")
            with self.subTest(trainer), self.assertRaisesRegex(TypeError, "^credit is a str, want a Credit$"):
                getattr(module, "install", getattr(module, "advantage_function", None))("actfocus")


if __name__ == "__main__":
    unittest.main()
