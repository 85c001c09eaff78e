"""reweight.adapters.openrlhf in OpenRLHF as it is installed: its command with a tiny model, and its losses and their
gradients against the papers' formulas in float64. There is no GPU: the folder openrlhf_cpu stands for vLLM, flash-attn
and torch.cuda. All else is the real thing: Ray, the trainers, DeepSpeed, the losses, the log."""

import argparse
import contextlib
import functools
import importlib.util
import io
import itertools
import json
import os
import re
import runpy
import socket
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np

if importlib.util.find_spec("openrlhf") is None:
    raise unittest.SkipTest("OpenRLHF is not installed")

STAND_INS = Path(__file__).parent / "openrlhf_cpu"
sys.path.insert(0, str(STAND_INS))
os.environ.update(DS_ACCELERATOR="cpu", HF_HUB_OFFLINE="1", RAY_USAGE_STATS_ENABLED="0")
warnings.filterwarnings("ignore", "The pynvml package is deprecated")
warnings.filterwarnings("ignore", "'pin_memory' argument is set as true")
import torch
import formulas
from formulas import roles, scalars, weights_and_factors
from openrlhf.models import PolicyLoss
from openrlhf.trainer.ppo_trainer import BasePPOTrainer
from openrlhf.trainer.ppo_utils.experience import Experience, balance_experiences
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer
from openrlhf.utils.config import hierarchize
from openrlhf.utils.deepspeed import DeepspeedStrategy
from support import environment
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from reweight.adapters import Credit, _check, openrlhf
from reweight.adapters._check_openrlhf import formula as loss

WORDS = ["<pad>", "<eos>", "<answer>", "</answer>", "Left", "Right", "Up", "Down", *(f"w{i}" for i in range(16))]
CREDIT = Credit(beta=2.0, guard=0.0, entropy="surprisal")
ESTIMATORS = ("gae", "reinforce", "rloo", "reinforce_baseline", "group_norm", "dr_grpo", "flash_reinforce")
WHITENED = ("gae", "reinforce", "reinforce_baseline")


def tokenizer():
    t = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="w0"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<eos>", pad_token="<pad>", unk_token="w0")


def words(ids):
    return [[WORDS[i] for i in row] for row in ids]


def numpy(t):
    return t.detach().double().numpy()


def advantages(estimator, rewards, mask, values=None, penalty=0.0, n=4, gamma=1.0, lambd=1.0, whiten=True):
    """The advantages of the estimators, [B, T], before any credit. Groups of n follow each other, and the penalty is
    taken from each token's reward."""
    r = rewards.reshape(-1, n)
    if estimator == "rloo":
        r = r - (r.sum(1, keepdims=True) - r) / (n - 1)
    elif estimator in ("reinforce_baseline", "dr_grpo"):
        r = r - r.mean(1, keepdims=True)
    elif estimator == "group_norm":
        r = (r - r.mean(1, keepdims=True)) / (r.std(1, ddof=1, keepdims=True) + 1e-9)
    elif estimator == "flash_reinforce":
        r = r - r.mean()
    A = np.zeros(mask.shape)
    for b, score in enumerate(r.reshape(-1)):
        tokens = np.flatnonzero(mask[b])
        if len(tokens) == 0:
            continue
        reward = -(np.zeros(mask.shape) + penalty)[b] * mask[b]
        reward[tokens[-1]] += score  # at the last token that the policy said
        v = np.append(values[b] * mask[b] if estimator == "gae" else np.zeros(mask.shape[1]), 0)
        delta = reward + gamma * v[1:] - v[:-1]
        decay = gamma * (lambd if estimator == "gae" else 1)
        for t in tokens:
            A[b, t] = (decay ** np.arange(mask.shape[1] - t) * delta[t:]).sum()
    if estimator in WHITENED:
        A = (A - A[mask].mean()) / (np.sqrt(A[mask].var()) if whiten else 1)
    return A * mask


def ratio(mask, w, per_sequence):
    """What makes of the trainer's mean over tokens, or of those of the trajectories, one of weighted tokens."""
    axis = 1 if per_sequence else None
    return mask.sum(axis, keepdims=True) / np.maximum(w.sum(axis, keepdims=True), 1e-300)


class Policy:
    """Has log-probabilities for parameters, [B, T]; a sample's number is its first token less 8."""

    def __init__(self, logprobs):
        self.logprobs = logprobs.requires_grad_()

    def train(self):
        pass

    def __call__(self, sequences, action_mask, **options):
        rows = self.logprobs[sequences[:, 0] - 8, : action_mask.shape[1]]
        return rows * action_mask, SimpleNamespace(entropy=-rows)


class Strategy(DeepspeedStrategy):
    """DeepSpeed's with a backward pass that scales the loss as its engine does, and no step."""

    def backward(self, loss, model, optimizer):
        part = loss / (1 if self.args.train.dynamic_batch_enable else self.accumulated_gradient)
        self.total += part.item()
        part.backward()

    def optimizer_step(self, *args, **options):
        pass

    get_grad_norm = optimizer_step


@functools.cache
def parser():
    """That of OpenRLHF's command, which makes it and then parses."""
    with mock.patch.object(argparse.ArgumentParser, "parse_args", autospec=True, side_effect=InterruptedError) as parse:
        with contextlib.suppress(InterruptedError):
            runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__")
    return parse.call_args.args[0]


def arguments(flags):
    """OpenRLHF's arguments, and those of the samples below."""
    small = "--actor.num_gpus_per_node 1 --actor.eps_clip_low_high 0.2 0.27 --algo.advantage.estimator group_norm"
    small += " --algo.kl.init_coef 0 --algo.kl.estimator k3"
    small += " --rollout.micro_batch_size 3 --rollout.n_samples_per_prompt 4 --rollout.max_tokens_per_gpu 64"
    small += " --train.batch_size 16 --train.micro_batch_size 4 --train.max_tokens_per_gpu 64"
    return hierarchize(parser().parse_args(f"{small} {flags}".split()))


def maker(args, reference=None):
    kl = SimpleNamespace(value=args.algo.kl.init_coef)
    return RemoteExperienceMaker(None, None, None, reference, kl, SimpleNamespace(args=args), tokenizer())


class Losses(unittest.TestCase):
    """RemoteExperienceMaker and ActorPPOTrainer, on samples of several turns, one of which is no part of the loss."""

    @classmethod
    def setUpClass(cls):
        g = np.random.default_rng(1)
        B, T = 16, 24
        cls.lengths = g.integers(12, T + 1, B)
        mask = (np.arange(T) < cls.lengths[:, None]) & (np.arange(T) >= 3)
        mask[:, 9:11] = False
        mask[5] = False
        ids = g.integers(4, len(WORDS), (B, T))
        ids[:, 3], ids[:, 6] = 2, 3
        ids[::3, 12:16] = [2, 9, 10, 3]
        ids[:, 0] = np.arange(8, 24)
        f32 = lambda x: np.asarray(x, np.float32).astype(np.float64)
        cls.ids, cls.mask = ids, mask[:, 1:]
        cls.old = f32(-g.gamma(1.0, 1.0, (B, T - 1)) * cls.mask)
        cls.new = f32((cls.old + g.normal(size=(B, T - 1)) * 0.3) * cls.mask)
        cls.ref = f32((cls.new + g.normal(size=(B, T - 1)) * 0.2) * cls.mask)
        cls.rollout = f32(np.minimum(cls.old + g.normal(size=(B, T - 1)) * 0.3, -1e-3) * cls.mask)
        cls.values = f32(g.normal(size=(B, T - 1)))
        cls.rewards = f32(g.normal(size=B))
        cls.groups = np.arange(B) // 4
        cls.role = roles(words(ids[:, 1:]), cls.mask)
        openrlhf.install(CREDIT)
        with socket.socket() as s:
            s.bind(("", 0))
            port = s.getsockname()[1]
        place = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
        os.environ.update(place)
        with contextlib.redirect_stdout(io.StringIO()):
            Strategy(args=arguments("")).setup_distributed()

    def experiences(self, made):
        """The micro-batches that the maker makes of the samples, with what models would add."""
        t = lambda x, b, n: torch.from_numpy(x[b : b + 1, :n].astype(np.float32 if x.dtype == np.float64 else x.dtype))
        kl = self.old - (self.old if made.args.algo.kl.use_loss else self.ref)
        samples = [
            Experience(
                sequences=t(self.ids, b, n), attention_mask=torch.ones(1, n, dtype=torch.int64),
                action_mask=t(self.mask.astype(np.int64), b, n - 1), rollout_log_probs=t(self.rollout, b, n - 1),
                action_log_probs=t(self.old, b, n - 1), values=t(self.values, b, n - 1), kl=t(kl, b, n - 1),
                base_action_log_probs=t(self.ref, b, n - 1), rewards=torch.tensor(self.rewards[b : b + 1]).float(),
                response_length=torch.tensor([n]), truncated=torch.tensor([False]), total_length=torch.tensor([n]),
                info={"reward": torch.tensor([self.rewards[b]])},
            )
            for b, n in enumerate(self.lengths)
        ]  # fmt: skip
        return made.split_rollout_samples(samples)

    def openrlhfs(self, flags, credit=CREDIT):
        """The loss and dL/dlogprobs of OpenRLHF, its advantages, and what it logs."""
        args = arguments(flags)
        openrlhf.install(credit)
        made = maker(args, reference="a reference")
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            experiences = made.compute_advantages_and_returns(self.experiences(made))
            got = np.zeros(self.mask.shape)
            for e in experiences:
                for i, row in zip(e.index, e.advantages):
                    got[i, : len(row)] = numpy(row)
            if args.train.dynamic_batch_enable:
                experiences = balance_experiences(experiences, args)
            strategy = Strategy(args=args, micro_train_batch_size=4, train_batch_size=16)
            strategy.setup_distributed()
            strategy.total = 0.0
            policy = Policy(torch.from_numpy(self.new.astype(np.float32)))
            scheduler = SimpleNamespace(get_last_lr=lambda: [0.0])
            trainer = ActorPPOTrainer(strategy, policy, None, None, scheduler, micro_train_batch_size=4)
            for e in experiences:
                trainer.replay_buffer.append(e)
            log = trainer.ppo_train(args.algo.kl.init_coef)
        return strategy.total, numpy(policy.logprobs.grad), got, log

    def compare(self, flags, credit=CREDIT, signal=None):
        """Wants what OpenRLHF computes to be the formulas; returns the relative differences."""
        args = arguments(flags)
        got, gradient, multiplied, log = self.openrlhfs(flags, credit)
        correction = args.algo.advantage
        penalty = 0 if args.algo.kl.use_loss else args.algo.kl.init_coef * (self.old - self.ref)
        A = advantages(
            correction.estimator, self.rewards, self.mask, self.values, penalty, gamma=correction.gamma,
            lambd=correction.lambd, whiten=not correction.no_std_norm,
        )  # fmt: skip
        w, f = weights_and_factors(self.role, -self.old if signal is None else signal, -self.old, self.groups, credit)
        names = credit.scheme.split("+")
        w, f = w if "actfocus" in names else self.mask * 1.0, f if "aem" in names else 1 + 0 * f
        for name in {"rloo", "opo"} & set(names):
            A = formulas.advantages(name, self.rewards, self.mask, None, self.groups)
            self.assertGreater(log["credit/advantage"], 0)
        per_sequence = args.actor.policy_loss_type == "gspo" or args.actor.loss_agg_mode == "seq-mean-token-mean"
        m = w * f * ratio(self.mask, w, per_sequence)
        want, exact = loss(
            A, self.new, self.old, w, f, self.mask, args.actor.policy_loss_type, args.actor.loss_agg_mode,
            args.actor.dual_clip, args.actor.eps_clip_low_high, self.rollout, correction.is_correction_level,
            correction.is_correction_mode, correction.is_correction_gating, correction.is_correction_threshold,
        )  # fmt: skip
        if args.algo.kl.use_loss:  # which no weight changes
            d = torch.from_numpy(self.new).requires_grad_()
            r = torch.from_numpy(self.ref) - d
            kl = args.algo.kl.init_coef * ((r.exp() - r - 1) * torch.from_numpy(self.mask)).sum() / self.mask.sum()
            kl.backward()
            want, exact = want + kl.item(), exact + d.grad.numpy()
        logged = scalars(self.role, -self.old, w, f, self.groups, credit) if {"actfocus", "aem"} <= set(names) else {}
        for name, value in logged.items():
            self.assertAlmostEqual(log[name], value, delta=3e-6 * max(abs(value), 1e-3), msg=name)
        differences = (
            np.abs(multiplied - A * m).max() / np.abs(A * m).max(),
            abs(got - want) / max(abs(want), 0.1),
            np.abs(gradient - exact).max() / np.abs(exact).max(),
        )
        for difference, bound in zip(differences, (2e-6, 2e-6, 2e-6)):
            self.assertLess(difference, bound, differences)
        return differences

    def test_against_the_formulas(self):
        estimator, correction = "--algo.advantage.estimator", "--algo.advantage.is_correction_"
        modes = [f"--actor.loss_agg_mode {mode}" for mode in ("token-mean", "seq-mean-token-mean")]
        names = ("level", "mode", "gating", "threshold")
        gates = [  # with bounds that drop a part
            ("token", "clip", "ratio", "0.8 1.3"), ("token", "mask", "ratio", "0.8 1.3"),
            ("token", "mask", "binary_kl", "-1 0.05"), ("token", "mask", "tv", "-1 0.1"),
            ("seq", "mask", "ratio", "0.95 1.1"), ("seq", "mask", "binary_kl", "-1 0.075"),
            ("seq", "mask", "tv", "-1 0.107"),
        ]  # fmt: skip
        losses = [
            *(f"{estimator} {e}" for e in ESTIMATORS),
            *(" ".join(f"{correction}{name} {x}" for name, x in zip(names, gate)) for gate in gates),
            "--train.dynamic_batch_enable",
            "--algo.kl.use_loss --algo.kl.init_coef 0.1",
            "--algo.kl.init_coef 0.1",
            "--actor.entropy_coef 0",
        ]
        cases = [
            f"{case} --actor.policy_loss_type {kind} {mode}"
            for case, kind, mode in itertools.product(losses, ("ppo", "gspo"), modes)
        ]
        cases += [f"--actor.dual_clip 1.1 {mode}" for mode in modes]
        decay = "--algo.advantage.gamma 0.9 --algo.advantage.lambd 0.8"
        cases += [f"{estimator} {e} {decay}" for e in ("gae", "reinforce")]
        cases += [f"{estimator} {e} --algo.advantage.no_std_norm" for e in WHITENED]
        worst = np.zeros(3)
        for case in cases:
            with self.subTest(case):
                worst = np.maximum(worst, self.compare(case))
        with self.subTest("log_ratio"):
            credit = Credit(beta=2.0, signal="log_ratio", entropy="surprisal", guard=0.0)
            flags = "--algo.kl.use_loss --algo.kl.init_coef 0.1"
            worst = np.maximum(worst, self.compare(flags, credit, signal=self.old - self.ref))
        for scheme, options in (
            ("rloo", {}), ("opo", {}), ("actfocus", {"beta": 2.0}), ("aem", {"guard": 0.0}), ("rloo+actfocus", {"beta": 2.0}),
            ("opo+actfocus+aem", {"beta": 2.0, "guard": 0.0}),
        ):  # fmt: skip
            for mode in modes:
                with self.subTest(scheme, mode=mode):
                    worst = np.maximum(worst, self.compare(mode, Credit(scheme, entropy="surprisal", **options)))
        figures = "advantages within {:.1e}, loss within {:.1e}, gradient within {:.1e}".format(*worst)
        sys.stderr.write(f"\nOpenRLHF, {len(cases) + 13} cases: {figures}\n")


class Refused(unittest.TestCase):
    """When the maker of experiences is made, which is before the first rollout."""

    def setUp(self):
        openrlhf.install(CREDIT)

    def test_flags(self):
        for flag, tested in openrlhf._TESTED.items():
            with self.subTest(flag):
                # What OpenRLHF offers is what was tested.
                choices = next(action.choices for action in parser()._actions if action.dest == flag)
                self.assertEqual(sorted(choices), sorted(tested))
                args = arguments("")
                *path, last = flag.split(".")
                setattr(functools.reduce(getattr, path, args), last, "other")
                message = rf"^--{flag} other was not tested with weights of tokens, want one of \[{' '.join(tested)}\]$"
                with self.assertRaisesRegex(ValueError, message):
                    maker(args)

    def test_log_ratio(self):
        openrlhf.install(Credit(beta=0.5, signal="log_ratio", scheme="actfocus"))
        message = "^scheme reads ref_logprobs, for which OpenRLHF needs --algo.kl.use_loss and an --algo.kl.init_coef above 0"
        for flags, reference in ("", "a reference"), ("--algo.kl.use_loss", None):
            with self.assertRaisesRegex(ValueError, message):
                maker(arguments(flags), reference)

    def test_penalty(self):
        """A penalty in the rewards, which advantages of a scheme would not have."""
        openrlhf.install(Credit("rloo"))
        maker(arguments(""))
        maker(arguments("--algo.kl.use_loss --algo.kl.init_coef 0.1"), "a reference")
        with self.assertRaisesRegex(ValueError, "^scheme is rloo, whose advantages would have no part in the penalty of"):
            maker(arguments("--algo.kl.init_coef 0.1"), "a reference")

    def test_trainer(self):
        """OpenRLHF's trainers make one."""
        args = arguments("")
        args.actor.policy_loss_type = "other"
        with self.assertRaisesRegex(ValueError, "^--actor.policy_loss_type other was not tested"):
            BasePPOTrainer(SimpleNamespace(args=args), None, None, None, None, None, tokenizer())

    def test_check_trainer(self):
        """The command says of every loss and option when it is wrong."""
        original = PolicyLoss.forward

        def run(factor):
            forward = lambda self, *args, **options: [factor(self) * original(self, *args, **options)[0]]
            out = io.StringIO()
            with mock.patch.object(PolicyLoss, "forward", forward), contextlib.redirect_stdout(out):
                return _check.main(["openrlhf"]), out.getvalue().splitlines()

        status, lines = run(lambda policy: 1.001 if policy.is_correction_gating == "tv" else 1)
        self.assertEqual(status, 1)
        self.assertEqual({" tv " in line for line in lines if "WRONG 1.0e-03" in line}, {True})
        self.assertEqual(lines[-1], "right 56, refused 0, absent 0, no formula 0, WRONG 16")
        self.assertEqual(run(lambda policy: 1.001)[1][-1], "right 0, refused 0, absent 0, no formula 0, WRONG 72")
        self.assertEqual(run(lambda policy: 1)[0], 0)

    def test_main(self):
        with mock.patch("ray.is_initialized", lambda: True):
            with self.assertRaisesRegex(RuntimeError, "^ray.init was called before"):
                openrlhf.main(CREDIT)
        with self.assertRaisesRegex(ValueError, 'entropy is "exact", but OpenRLHF keeps no entropy'):
            openrlhf.main(Credit())
        with self.assertRaisesRegex(ValueError, r"has gspo, a loss: OpenRLHF has its own, which --actor.policy_loss_type \(with"):
            openrlhf.main(Credit("rloo+gspo"))
        with self.assertRaisesRegex(ValueError, "OpenRLHF does this by --algo.advantage.is_correction_level"):
            openrlhf.main(Credit("tis"))


class Runs(unittest.TestCase):
    """OpenRLHF's command with a tiny model, by a script as the documentation has it."""

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, eos_token_id=1, bos_token_id=1,
            initializer_range=0.5,
        )  # fmt: skip
        LlamaForCausalLM(config).save_pretrained(self.folder / "model")
        tokenizer().save_pretrained(self.folder / "model")
        prompts = [json.dumps({"input": f"w{i} w3" + " w4" * (i % 3)}) for i in range(8)]
        (self.folder / "prompts.jsonl").write_text("\n".join(prompts))
        (self.folder / "spy").mkdir()
        # RAY_TMPDIR: another cluster of this machine is not for us, and ours for nobody else.
        self.environ = environment(SPY=str(self.folder / "spy"), RAY_TMPDIR=str(self.folder), OMP_NUM_THREADS="1")
        self.environ["RAY_OVERRIDE_RESOURCES"] = json.dumps({"CPU": 16, "GPU": 6})

    def train(self, options, flags, **environ):
        """Runs a script of two steps, of four prompts with four samples each, and returns what it says."""
        script = self.folder / "train.py"
        script.write_text(
            "from reweight.adapters import Credit, openrlhf\n\n"
            f'openrlhf.main(Credit({options}, entropy="surprisal"))\n'
        )
        more = f"""
            --actor.model_name_or_path {self.folder}/model
            --data.prompt_dataset {self.folder}/prompts.jsonl --data.max_len 64
            --train.agent_func_path {STAND_INS}/agent.py --vllm.num_engines 1 --actor.adam.lr 1e-3
            --rollout.batch_size 4 --rollout.n_samples_per_prompt 4 --rollout.micro_batch_size 2
            --train.batch_size 16 --train.micro_batch_size 4 --train.max_tokens_per_gpu 64 --actor.num_gpus_per_node 2
            --logger.tensorboard_dir {self.folder}/logs --logger.wandb.run_name run
            --ckpt.output_dir {self.folder}/out --ckpt.path {self.folder}/out"""
        done = subprocess.run(
            [sys.executable, script, *more.split(), *flags.split()], cwd=self.folder, env={**self.environ, **environ},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout[-20000:])
        return done.stdout

    def batches(self):
        """The experiences of each batch, [16, T] by name, in the order of the prompts."""
        for file in sorted(self.folder.glob("spy/batch-*"), key=lambda file: file.stat().st_mtime):
            experiences, rows = torch.load(file, weights_only=False), {}
            names = ("action_mask", "action_log_probs", "base_action_log_probs", "values", "advantages", "sequences")
            for name in names:
                if experiences[0][name] is not None:
                    rows[name] = np.zeros((16, max(e[name].shape[1] for e in experiences)))
                    for e in experiences:
                        rows[name][e["index"], : e[name].shape[1]] = numpy(e[name])
            rows["rewards"] = np.zeros(16)
            for e in experiences:
                rows["rewards"][e["index"]] = numpy(e["rewards"])
            yield SimpleNamespace(**rows)

    def check(self, credit, estimator, loss_agg_mode, said):
        """Wants each batch's advantages, the gradients that DeepSpeed gives it, and the log to be NumPy's. Returns the
        names of what the credit logs."""
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        aggregation = loss_agg_mode.replace("-", "_")
        lines = set(re.findall("reweight: in .*", said))  # Ray repeats a line for each node of a machine
        self.assertEqual(len(lines), 1, said)
        first = "the advantages of RLOO in the place of the trainer's (" if "rloo" in credit.scheme else "ActFocus by "
        self.assertIn(f"reweight: in OpenRLHF 0.11.2, ppo ({aggregation}): {first}", *lines)
        self.assertIn(f"ActFocus by {credit.signal} (", *lines)
        events = EventAccumulator(str(self.folder / "logs" / "run"))
        events.Reload()
        pieces = {}
        for file in self.folder.glob("spy/loss-*"):
            piece = torch.load(file)
            self.assertEqual(piece["nccl"], "WARN")  # which OpenRLHF gives Ray beside the adapter's hook
            for row in zip(*(numpy(piece[name]) for name in ("old", "new", "mask", "gradient"))):
                old, new, mask, gradient = (x[row[2] != 0] for x in row)
                pieces[old.tobytes()] = new, gradient
        worst, groups = np.zeros(3), np.arange(16) // 4
        batches = list(self.batches())
        self.assertEqual(len(batches), 2)
        for step, batch in enumerate(batches):
            mask, old = batch.action_mask != 0, batch.action_log_probs
            self.assertIn((~mask.any(1)).sum(), (3, 4))  # every fifth sample
            role = roles(words(batch.sequences.astype(int)[:, 1:]), mask)
            signal = -old if credit.signal == "surprisal" else old - batch.base_action_log_probs
            w, f = weights_and_factors(role, signal, -old, groups, credit)
            A = advantages(estimator, batch.rewards, mask, getattr(batch, "values", None))
            if "rloo" in credit.scheme:
                A = formulas.advantages("rloo", batch.rewards, mask, None, groups)
            want = A * w * f * ratio(mask, w, loss_agg_mode == "seq-mean-token-mean")
            worst[0] = max(worst[0], np.abs(batch.advantages - want).max() / np.abs(want).max())
            new, gradient = old.copy(), np.zeros_like(old)
            for b in np.flatnonzero(mask.any(1)):
                new[b, mask[b]], gradient[b, mask[b]] = pieces[old[b, mask[b]].tobytes()]
            _, exact = loss(A, new, old, w, f, mask, loss_agg_mode=loss_agg_mode, clip=(0.2, 0.2))
            # Two processes, whose gradients DeepSpeed averages.
            worst[1] = max(worst[1], np.abs(gradient / 2 - exact).max() / np.abs(exact).max())
            wanted = scalars(role, -old, w, f, groups, credit)
            for name, value in wanted.items():
                logged = events.Scalars("train/" + name)[step].value
                worst[2] = max(worst[2], abs(logged - value) / max(abs(value), 1e-3))
        figures = "advantages within {:.1e}, gradient within {:.1e}, log within {:.1e}".format(*worst)
        sys.stderr.write(f"\nOpenRLHF, a run: {figures}\n")
        self.assertLess(worst.max(), 1e-5)
        return wanted.keys()

    def test_new_cluster(self):
        """Packed rows in micro-batches of as many tokens as fit."""
        flags = "--algo.advantage.estimator group_norm --algo.kl.init_coef 0"
        flags += " --train.dynamic_batch_enable --ds.packing_samples"
        offline = {"WANDB_MODE": "offline", "WANDB_API_KEY": "0" * 40, "WANDB_DIR": str(self.folder)}
        said = self.train('"rloo+actfocus+aem", beta=2.0, guard=0.0', f"{flags} --logger.wandb.key offline", **offline)
        credit = Credit("rloo+actfocus+aem", beta=2.0, guard=0.0, entropy="surprisal")
        more = "advantage", "unscored", "ambiguous", "warnings", "mixed_groups", "grad_scale", "multiplier_action", "multiplier_reasoning"
        names = {*self.check(credit, "group_norm", "token-mean", said), *("credit/" + name for name in more)}
        [file] = self.folder.glob("wandb/offline-run-*/run-*.wandb")
        self.assertEqual(set(re.findall(r"train/(credit/\w+)", file.read_bytes().decode(errors="replace"))), names)

    def test_existing_cluster(self):
        """Of two nodes, the second with the GPUs; rollouts go on while the models train, a critic among them."""
        ports = {}
        for name in ("port", "ray-client-server-port", "dashboard-agent-listen-port"):
            with socket.socket() as s:
                s.bind(("", 0))
                ports[name] = s.getsockname()[1]
        address = f"127.0.0.1:{ports['port']}"
        head = ["--head", "--num-gpus=0", "--include-dashboard=false"]
        head += [f"--{name}={port}" for name, port in ports.items()]
        environ = dict(self.environ)
        del environ["RAY_OVERRIDE_RESOURCES"]
        for options in head, [f"--address={address}", "--num-gpus=6"]:
            command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=16", *options]
            log = self.enterContext(open(self.folder / "node.log", "a"))
            node = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
            self.addCleanup(node.wait, 60)
            self.addCleanup(node.terminate)
        flags = "--algo.advantage.estimator gae --actor.loss_agg_mode seq-mean-token-mean --train.async_enable"
        flags += " --algo.kl.use_loss --algo.kl.init_coef 0.1 --critic.num_gpus_per_node 1 --ref.num_gpus_per_node 1"
        said = self.train('beta=2.0, guard=0.0, signal="log_ratio"', flags, RAY_ADDRESS=address)
        self.check(Credit(beta=2.0, guard=0.0, signal="log_ratio"), "gae", "seq-mean-token-mean", said)


if __name__ == "__main__":
    unittest.main()
