"""reweight.adapters.trl in TRL as it is installed: whole runs, and the loss and its gradient against the papers' formulas
in float64."""

import contextlib
import dataclasses
import functools
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import warnings
from collections import defaultdict
from pathlib import Path
from unittest import mock

import numpy as np

if importlib.util.find_spec("trl") is None:
    raise unittest.SkipTest("TRL is not installed")

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
import formulas
import torch
import wandb
from accelerate import PartialState
from datasets import Dataset
from support import environment, needs_go, program
from test_show import sections
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig
from trl import GRPOTrainer as Original
from trl import RLOOTrainer
from trl.chat_template_utils import qwen3_chat_template

from reweight import InputError, schemes
from reweight.adapters import Credit, HookError, _check, trl
from reweight.adapters.trl import CreditMixin, GRPOTrainer

WORDS = ["<pad>", "<eos>", "<answer>", "</answer>", "Left", "Right", "Up", "Down", *(f"w{i}" for i in range(16))]
CREDIT = Credit(beta=2.0, guard=0.0)
# trl_versions runs a part of these tests on older versions.
VERSION = trl._numbers(trl.version_of("trl"))
LUSPO = ("luspo",) if VERSION >= trl._SINCE["luspo"] else ()


def tokenizer():
    t = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="w0"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    # transformers 4 would give token_type_ids too, which Llama does not take.
    names = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<eos>", pad_token="<pad>", unk_token="w0", model_input_names=names)


def model(vocabulary=len(WORDS), positions=128):
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=2, max_position_embeddings=positions, pad_token_id=0, eos_token_id=1, bos_token_id=1,
            initializer_range=0.5,
        )  # fmt: skip
    )


@functools.cache
def saved():
    """The folder of the model: TRL reads it again for a reference."""
    folder = tempfile.TemporaryDirectory()
    model().save_pretrained(folder.name)
    return folder


def reward(completions, **_):
    """Something that differs from completion to completion."""
    return [c.count("Left") - 0.1 * len(c.split()) for c in completions]


def trainer(
    kind=functools.partial(GRPOTrainer, credit=CREDIT), folder=None, rollout_func=None, model=None, reward_funcs=reward,
    processing_class=None, prompts=None, **options
):  # fmt: skip
    """A trainer of a tiny model; options are GRPOConfig's."""
    settings = dict(
        output_dir=folder or tempfile.gettempdir(), per_device_train_batch_size=8, num_generations=4, max_completion_length=24,
        learning_rate=1e-3, max_steps=3, logging_steps=1, report_to=[], use_cpu=True, bf16=False, save_strategy="no",
        gradient_checkpointing=False, disable_tqdm=True, seed=3,
    )  # fmt: skip
    data = Dataset.from_list([{"prompt": p} for p in prompts or [f"w{i % 8} w{i // 8}" for i in range(64)]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(
            model=model or saved().name, reward_funcs=reward_funcs, train_dataset=data,
            args=GRPOConfig(**{**settings, **options}), processing_class=processing_class or tokenizer(), rollout_func=rollout_func,
        )  # fmt: skip


def spans(mask):
    """Pairs of the first token of each response and the one after its last."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
    return edges.reshape(-1, 2)


def weights_and_factors(ids, mask, signal, entropy, groups, credit=CREDIT, text=WORDS.__getitem__):
    """ActFocus and AEM from the papers, in float64, without the library: [B, T] each; text is what an id says."""
    role = mask.astype(int)
    for b, row in enumerate(ids):
        for first, end in spans(mask[b]):
            words = [text(t) for t in row[first:end]]
            whole, at = "".join(words), np.cumsum([0] + [len(word) for word in words])
            opening, closing = credit.tags
            begin = whole.find(opening)
            while begin >= 0 and (stop := whole.find(closing, begin + len(opening))) >= 0:
                begin = whole.rfind(opening, begin, stop)  # the last one counts
                if credit.tags_as == "action":
                    inside = (at[1:] > begin) & (at[:-1] < stop + len(closing))
                else:
                    inside = (at[:-1] >= begin + len(opening)) & (at[1:] <= stop)
                role[b, first:end][inside] = 2
                begin = whole.find(opening, stop + len(closing))
    action = role == 2
    w = np.where(role == 1, credit.alpha, 0.0)
    mu = signal[action].mean()
    sigma = np.sqrt(((signal[action] - mu) ** 2).mean() + credit.eps)
    w[action] = 1 + credit.beta / (1 + np.exp(-(signal[action] - mu) / sigma))
    f = np.ones_like(w)
    for g in set(groups):
        found = [(b, s, e, entropy[b, s:e].mean()) for b in np.flatnonzero(groups == g) for s, e in spans(mask[b])]
        h = np.array([x[3] for x in found])
        if len(h) and h.max() - h.min() >= max(credit.guard, 1e-12):
            factor = np.exp(-credit.lambda_ * (h - h.min()) / (h.max() - h.min()))
            for (b, s, e, _), value in zip(found, factor / factor.mean()):
                f[b, s:e] = value
    return w, f, role


@contextlib.contextmanager
def head():
    """TRL with the head of install(head=True)."""
    from trl.trainer import utils

    with (
        mock.patch.object(trl, "_head", None),
        mock.patch.object(utils, "_use_triton", utils._use_triton),
        mock.patch.object(utils._ChunkedLogProbFunction, "apply", utils._ChunkedLogProbFunction.apply),
    ):
        trl.install(None, head=True)
        yield


@contextlib.contextmanager
def installed():
    """TRL with the credit of trl.install."""
    with contextlib.ExitStack() as stack:
        hooks = ((Original, "__init__"), (Original, "train"), (Original, "_generate_and_score_completions"), (RLOOTrainer, "__init__"))
        for kind, name in hooks:
            stack.enter_context(mock.patch.object(kind, name, getattr(kind, name)))
        with mock.patch("atexit.register"):
            trl.install(CREDIT)
        yield


def numpy(t):
    return t.detach().double().numpy()


class Lake:
    """An environment with one tool."""

    def reset(self, **_):
        self.at = 0

    def move(self, to: str) -> str:
        """Moves.

        Args:
            to: where to.
        """
        self.at += to == "Left"
        return f"you are at {self.at}"


@contextlib.contextmanager
def scripted(kind, credit, environment, reward_funcs):
    """A trainer of kind with tools of an environment, and its tokenizer. A script says what the policy calls, since an
    untrained model calls nothing."""
    corpus = '<tool_call>\n{"name": "move", "arguments": {"to": "Left"}}\n</tool_call>'
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    special = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator(
        [corpus] * 20, trainers.BpeTrainer(vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    )
    words = PreTrainedTokenizerFast(tokenizer_object=t, eos_token=special[1], pad_token=special[2], chat_template=qwen3_chat_template)

    class Scripted(kind):
        def _generate_single_turn(self, prompt_ids, *args, **options):
            said = []
            for i, prompt in enumerate(prompt_ids):
                thought = torch.randint(200, (4 + i % 3,), generator=self.script).tolist()
                moves = i % 4 and prompt.count(words.convert_tokens_to_ids(special[0])) < 7
                act = corpus.replace("Left", "Left" if i % 2 else "Up") if moves else "done"
                said.append([3 + t for t in thought] + words.encode(act) + [words.eos_token_id])
            return said, None

    with tempfile.TemporaryDirectory() as folder:
        model(len(words), 1024).save_pretrained(folder)
        made = trainer(
            functools.partial(Scripted, credit=credit, environment_factory=environment), model=folder, processing_class=words,
            reward_funcs=reward_funcs, max_completion_length=256, prompts=[[{"role": "user", "content": f"go {i}"}] for i in range(64)],
        )  # fmt: skip
        made.script = torch.Generator().manual_seed(1)
        yield made, words


class Runs(unittest.TestCase):
    worst = {}

    @classmethod
    def tearDownClass(cls):
        sys.stderr.write("".join(f"\nTRL, {scheme}: advantages within {x:.1e}" for scheme, x in cls.worst.items()) + "\n")

    def run_steps(self, made, steps=3, **how):
        """Trains, and checks each batch's advantages against NumPy, where how is what weights_and_factors takes. Returns the
        log."""
        seen, base = [], type(made)
        original = Original._generate_and_score_completions

        def generate(self, inputs):
            output = original(self, inputs)
            seen.append(dict(output))
            return output

        outputs, policies = [], []
        whole = base._generate_and_score_completions

        def credited(self, inputs):
            output = whole(self, inputs)
            outputs.append(dict(output))
            # Before a step changes the model: the entropy of the policy that sampled.
            with torch.no_grad():
                ids = torch.cat([output["prompt_ids"], output["completion_ids"]], 1)
                attention = torch.cat([output["prompt_mask"], output["completion_mask"]], 1)
                told = slice(output["prompt_ids"].shape[1] - 1, -1)
                logits = self.model(input_ids=ids, attention_mask=attention).logits.double()[:, told]
                l = torch.log_softmax(logits / self.temperature, -1)
                signal = -l.gather(-1, output["completion_ids"][..., None])[..., 0]
                if self.credit.signal == "energy":
                    reference = self.ref_model(input_ids=ids, attention_mask=attention).logits.double()[:, told]
                    signal = -torch.logsumexp(reference, -1)
            policies.append((signal.numpy(), -(l.exp() * l).sum(-1).numpy()))
            return output

        said = io.StringIO()
        with mock.patch.object(Original, "_generate_and_score_completions", generate), mock.patch.object(
            base, "_generate_and_score_completions", credited
        ), contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made.train()
        self.assertEqual(made.state.global_step, steps)
        self.assertEqual(said.getvalue().count("reweight: in TRL"), 1, said.getvalue())
        aggregation = {"grpo": "seq", "sapo": "seq", "dr_grpo": "sum", "luspo": "sum"}.get(made.loss_type, "token")
        worst = 0.0
        for before, after, (signal, entropy) in zip(seen, outputs, policies):
            mask = numpy(after["completion_mask"] * after.get("tool_mask", 1)) != 0
            groups = np.arange(len(mask)) // made.num_generations
            names = made.credit.scheme.split("+")
            w, f, role = weights_and_factors(after["completion_ids"].numpy(), mask, signal, entropy, groups, **how)
            if "actfocus" in names:
                self.assertGreater((role == 2).sum(), 0)
            else:
                w = formulas.entropy_mask(entropy, mask) if "entropy_mask" in names else mask * 1.0
            A = numpy(before["advantages"])[:, None] * (f if "aem" in names else 1)
            for name in {"rloo", "opo", "gtpo"} & set(names):
                said = made.processing_class.batch_decode(after["completion_ids"], skip_special_tokens=True)
                A = formulas.advantages(name, np.array(reward(said)), mask, entropy, groups) * (f if "aem" in names else 1)
            if aggregation == "token":
                m = w * mask.sum() / w.sum()
            elif aggregation == "seq":
                m = w * mask.sum(1, keepdims=True) / np.maximum(w.sum(1, keepdims=True), 1e-300)
            else:
                m = w
            want = A * m
            worst = max(worst, np.abs(numpy(after["advantages"]) - want).max() / np.abs(want).max())
        type(self).worst[made.credit.scheme] = max(self.worst.get(made.credit.scheme, 0), worst)
        self.assertLess(worst, 1e-5)
        self.assertGreater(len(outputs), 0)
        return [entry for entry in made.state.log_history if "loss" in entry]

    def test_loss_types(self):
        """Three steps of each."""
        for loss_type in ("dapo", "grpo", *LUSPO):
            with self.subTest(loss_type):
                self.run_steps(trainer(loss_type=loss_type))

    def test_schemes(self):
        """Advantages that take the place of TRL's, factors, weights, and what they are together."""
        for scheme in ("rloo", "gtpo", "aem", "entropy_mask", "opo+entropy_mask", "gtpo+actfocus", "rloo+actfocus+aem"):
            options = {"beta": 2.0} if "actfocus" in scheme else {}
            options.update({"guard": 0.0} if "aem" in scheme else {})
            credit = Credit(scheme, **options)
            for loss_type in ("dapo", "grpo"):
                with self.subTest(scheme, loss_type=loss_type):
                    log = self.run_steps(trainer(functools.partial(GRPOTrainer, credit=credit), loss_type=loss_type))
                    self.assertEqual("credit/advantage" in log[-1], scheme[:3] in ("rlo", "gtp", "opo"))
        for scheme, message in {
            "cispo": r"has cispo, a loss: TRL has its own, which loss_type \(with importance_sampling_level\) chooses$",
            "tis": "TRL does this by vllm_importance_sampling_correction",
            "off_policy_mask": "TRL does this by off_policy_mask_threshold",
            "gigpo": "reads anchors, but the trainer has no rollout_func",
        }.items():
            with self.assertRaisesRegex(InputError, message):
                trainer(functools.partial(GRPOTrainer, credit=Credit(scheme)))

    def test_energy(self):
        """ActFocus's own signal, from the head that the reference is scored with."""
        credit = dataclasses.replace(CREDIT, signal="energy")
        with head():
            for options in ({}, dict(temperature=0.7), dict(num_iterations=2, steps_per_generation=4)):
                with self.subTest(**options):
                    self.run_steps(trainer(functools.partial(GRPOTrainer, credit=credit), beta=0.1, **options))
            alone = trainer(functools.partial(GRPOTrainer, credit=dataclasses.replace(credit, scheme="actfocus", guard=0.1)), beta=0.1)
            with mock.patch.object(trl, "_forward", side_effect=AssertionError("one more forward pass")):
                alone.train()
            with self.assertRaisesRegex(ValueError, "reads ref_energy, for which TRL needs a reference model: set GRPOConfig.beta=....? above 0"):
                trainer(functools.partial(GRPOTrainer, credit=credit))

    def test_log(self):
        """The scalars are in the log of each step, and in the files of TensorBoard and W&B."""
        with tempfile.TemporaryDirectory() as folder:
            settings = {"TENSORBOARD_LOGGING_DIR": folder, "WANDB_DIR": folder, "WANDB_MODE": "offline", "WANDB_SILENT": "true"}
            with mock.patch.dict(os.environ, settings):
                log = self.run_steps(trainer(folder=folder, report_to=["tensorboard", "wandb"]))
                wandb.teardown(exit_code=0)
            [offline] = Path(folder).glob("wandb/offline-run-*/run-*.wandb")
            in_wandb = set(re.findall(rb"train/credit/(\w+)", offline.read_bytes()))
            from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

            events = EventAccumulator(folder)
            events.Reload()
            tags = events.Tags()["scalars"]
        names = {
            "actions", "no_action", "action_share", "action_weight", "effective_tokens", "surprisal_action",
            "surprisal_reasoning", "aem_min", "aem_max", "aem_std", "aem_guarded", "not_finite", "ambiguous", "mixed_groups",
            "multiplier_action", "multiplier_reasoning", "grad_scale", "warnings",
        }  # fmt: skip
        for entry in log:
            self.assertEqual({name for name in entry if name.startswith("credit/")}, {"credit/" + n for n in names})
            self.assertGreater(entry["credit/action_weight"], entry["credit/action_share"])
            self.assertLess(entry["credit/aem_min"], 1)
            self.assertGreater(entry["credit/aem_max"], 1)
        self.assertTrue({"train/credit/" + n for n in names} <= set(tags), tags)
        self.assertEqual(in_wandb, {n.encode() for n in names})

    def test_losing_actions(self):
        """A run whose actions vanish says so on the standard error, in the log and on the page, and not too often."""

        def rollout(prompts, trainer):
            """Answers that lose their tags: fewer and fewer of a batch have them."""
            rollout.batch += 1
            out = defaultdict(list)
            for i, prompt in enumerate(prompts):
                tagged = i % 8 >= (rollout.batch - 1) * 2 or rollout.batch < 3
                out["prompt_ids"].append(trainer.processing_class(prompt)["input_ids"])
                out["completion_ids"].append([8 + i % 5, 2 if tagged else 9, 4 + i % 3, 3, 10, 1])
            return {**out, "logprobs": None}

        rollout.batch = 0
        environ = mock.patch.dict(os.environ, PATH=program().name + os.pathsep + os.environ["PATH"])
        with tempfile.TemporaryDirectory() as folder, environ, contextlib.redirect_stderr(io.StringIO()) as said:
            credit = Credit("actfocus", alpha=0.3, beta=0, show_every=6, dir=folder)
            made = trainer(functools.partial(GRPOTrainer, credit=credit), rollout_func=rollout, max_steps=26)
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                made.train()
            page = Path(folder, "tmp-step-000006.html").read_text()
        log = [entry for entry in made.state.log_history if "credit/no_action" in entry]
        self.assertEqual([entry["credit/no_action"] for entry in log[:5]], [0, 0, 0.5, 0.75, 1])
        lines = [line for line in said.getvalue().splitlines() if "of the trajectories have no action" in line]
        self.assertEqual([line.split(":")[2] for line in lines], [" batch 3", " batch 23"], said.getvalue())
        self.assertIn("50% of the trajectories have no action, up from 0%", lines[0])
        self.assertEqual([entry["credit/warnings"] > 0 for entry in log], [False] * 2 + [True] * 24)
        self.assertIn("100% of the trajectories have no action, up from 0%", page)

    def test_baseline(self):
        """With uniform weights a run is TRL's own, to the last bit of its weights, and has the scalars of a credit."""
        for options in ({}, {"loss_type": "dapo", "beta": 0.04}, *({"loss_type": name} for name in LUSPO)):
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                runs = [trainer(kind, **options) for kind in (Original, functools.partial(GRPOTrainer, credit=Credit("uniform")))]
                for made in runs:
                    torch.manual_seed(0)
                    made.train()
            plain, credited = (dict(made.model.named_parameters()) for made in runs)
            for name, values in plain.items():
                self.assertTrue(torch.equal(values, credited[name]), name)
            log, own = (made.state.log_history[0] for made in runs[::-1])
            self.assertEqual(log["credit/grad_scale"], 1)
            self.assertIn("credit/no_action", log)
            for name, value in own.items():
                if name not in ("step_time", "completions/clipped_ratio", "train_runtime"):
                    self.assertEqual(log[name], value, name)

    def test_reused_batches(self):
        """num_iterations and steps_per_generation: old log-probabilities are TRL's; a reference is kept."""
        log = self.run_steps(trainer(num_iterations=2, steps_per_generation=4, per_device_train_batch_size=4, beta=0.04))
        self.assertIn("kl", log[-1])

    def test_turns(self):
        """Multi-turn by rollout_func, with observations that env_mask leaves out and a row that is masked whole."""

        def rollout(prompts, trainer):
            g = torch.Generator().manual_seed(len(prompts))
            out = defaultdict(list)
            for i, prompt in enumerate(prompts):
                ids, mask = [], []
                for turn in range(2):
                    said = torch.randint(4, len(WORDS), (5,), generator=g).tolist()
                    ids += [*said[:2], 2, *said[2:4], 3, said[4], 8, 9]
                    mask += [1] * 7 + [0] * 2
                out["prompt_ids"].append(trainer.processing_class(prompt)["input_ids"])
                out["completion_ids"].append(ids + [1])
                out["env_mask"].append([0] * len(ids) + [0] if i == 5 else mask + [1])
            return {**out, "logprobs": None}

        self.run_steps(trainer(rollout_func=rollout))

    @unittest.skipIf(VERSION < (1, 7), "Scripted takes the place of another method, or TRL reads no calls with transformers 5.24")
    def test_tools(self):
        """Tools of an environment: the calls are the actions, and what tools return is no response."""
        credit = Credit(beta=2.0, guard=0.0, tags=("<tool_call>", "</tool_call>"))
        outcome = lambda environments, **_: [e.at + 0.1 * i for i, e in enumerate(environments)]
        with scripted(GRPOTrainer, credit, Lake, outcome) as (made, words):
            log = self.run_steps(made, credit=credit, text=lambda i: words.decode([i]))
        self.assertGreater(log[-1]["tools/call_frequency"], 1)
        self.assertGreater(log[-1]["credit/actions"], 100)

    @needs_go
    def test_pages(self):
        """The first batch, and each second one, with its prompts, rewards and advantages; none of an evaluation."""
        environ = mock.patch.dict(os.environ, PATH=program().name + os.pathsep + os.environ["PATH"])
        with tempfile.TemporaryDirectory() as folder, environ:
            credit = dataclasses.replace(CREDIT, show_every=2, dir=folder + "/pages")
            made = trainer(functools.partial(GRPOTrainer, credit=credit))
            made.reward_weights = torch.tensor([3.0])
            made.eval_dataset = made.train_dataset.select(range(4))
            seen, original = [], Original._generate_and_score_completions

            def generate(self, inputs):
                output = original(self, inputs)
                if self.model.training:
                    seen.append((dict(output), [x["prompt"] for x in inputs]))
                return output

            with mock.patch.object(Original, "_generate_and_score_completions", generate):
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    made.evaluate()
                    made.train()
            run = os.path.basename(made.args.output_dir)
            self.assertEqual(sorted(os.listdir(folder + "/pages")), [f"{run}-step-{n:06}.html" for n in (1, 2)])
            for number in 1, 2:
                output, prompts = seen[number - 1]
                found = sections(f"{folder}/pages/{run}-step-{number:06}.html")
                self.assertEqual(len(found), 8)
                for b, (title, tokens) in enumerate(found):
                    ids = output["completion_ids"][b][output["completion_mask"][b] != 0].tolist()
                    words = [*prompts[b].split(), *(WORDS[i] for i in ids)]
                    self.assertEqual([text.strip() for text in tokens["text"]], words)
                    want = 3 * reward([made.processing_class.decode(ids, skip_special_tokens=True)])[0]
                    group, got = re.search(r": group (\d), reward (\S+), 1 turn,", title).groups()
                    self.assertEqual(int(group), b // 4)
                    self.assertAlmostEqual(float(got), want, places=5)
                    np.testing.assert_allclose(tokens["advantage"][2:], output["advantages"][b].item(), 6e-4)

    def test_mixin_and_install(self):
        class Mine(CreditMixin, Original):
            pass

        self.run_steps(trainer(functools.partial(Mine, credit=CREDIT)))
        with contextlib.ExitStack() as stack:
            for name in ("__init__", "train", "_generate_and_score_completions"):
                stack.enter_context(mock.patch.object(Original, name, getattr(Original, name)))
            trl.install(CREDIT)
            made = trainer(Original)
            hook = Original._generate_and_score_completions
            self.assertTrue(hasattr(hook, "_reweight_original"))
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
                made.train()
            self.assertIn("reweight: in TRL", said.getvalue())
            # A class with a credit of its own, which would be the second one.
            with self.assertRaisesRegex(HookError, "^GRPOTrainer has a credit, and install of reweight.adapters.trl was called: want one of them"):
                trainer().train()
        other = trainer()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            other.train()
        for of_install, of_class in zip(made.state.log_history[:3], other.state.log_history[:3]):
            self.assertIn("credit/actions", of_install)
            self.assertEqual(of_install["loss"], of_class["loss"])

    def test_never_called(self):
        """A trainer that never calls the credit ends before its first optimizer step, and the class that is to blame is named."""

        plain = Original._generate_and_score_completions
        own = {"_generate_and_score_completions": lambda self, inputs: plain(self, inputs), "__module__": "mine"}

        class Passing(GRPOTrainer):
            def _generate_and_score_completions(self, inputs):
                return super()._generate_and_score_completions(inputs)

        of_object = "is about to learn without the credit: the object has a _generate_and_score_completions of its own$"
        named = "is about to learn without the credit: mine.Shadow has a _generate_and_score_completions of its own, which does not"

        def ends(made, message):
            before = [p.detach().clone() for p in made.model.parameters()]
            with contextlib.redirect_stdout(io.StringIO()), self.assertRaisesRegex(HookError, message):
                made.train()
            self.assertTrue(all(torch.equal(p, q) for p, q in zip(made.model.parameters(), before)))
            self.assertEqual(made.state.global_step, 0)

        def goes_on(made):
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                made.train()
            self.assertEqual(made.state.global_step, 3)

        ends(trainer(functools.partial(type("Shadow", (GRPOTrainer,), own), credit=CREDIT)), named + " call that of CreditMixin$")
        made = trainer(gradient_accumulation_steps=2)
        made._generate_and_score_completions = functools.partial(plain, made)
        ends(made, of_object)
        goes_on(trainer(functools.partial(Passing, credit=CREDIT)))
        with installed():
            kind = type("Shadow", (Original,), own)
            ends(trainer(kind), named + " call that of GRPOTrainer$")
            ends(trainer(type("Further", (kind,), {})), named)

            def without_super(self, *args, **options):
                """As a trainer that has taken GRPOTrainer.__init__ out."""
                init(self, *args, **options)

            init = Original.__init__._reweight_original
            ends(trainer(type("Shadow", (Original,), {**own, "__init__": without_super})), named)
            goes_on(trainer(Original))
            ends(trainer(kind), named)  # although another trainer of the process has the credit
            with mock.patch.object(Original, "_generate_and_score_completions", plain):
                ends(trainer(Original), "GRPOTrainer._generate_and_score_completions was replaced after reweight had been installed$")
        goes_on(trainer(type("Shadow", (Original,), own)))  # nothing is installed

    def test_command(self):
        """The script of the command trl grpo, from one that installs the credit."""
        with tempfile.TemporaryDirectory() as folder:
            tokenizer().save_pretrained(folder)
            model().save_pretrained(folder)
            Path(folder, "train.py").write_text(
                "import runpy\n\nfrom reweight.adapters import Credit, trl\n\n"
                'trl.install(Credit(beta=2.0, guard=0.0))\nrunpy.run_module("trl.scripts.grpo", run_name="__main__")\n'
            )
            Path(folder, "lengths.py").write_text("def reward(completions, **_):\n    return [len(c) / 10 for c in completions]\n")
            Path(folder, "data").mkdir()
            Path(folder, "data", "train.jsonl").write_text("".join(f'{{"prompt": "w{i}"}}\n' for i in range(8)))
            options = f"""--model_name_or_path {folder} --dataset_name data --reward_funcs lengths.reward --max_steps 1 --use_cpu
                --bf16 false --num_generations 4 --max_completion_length 24 --logging_steps 1 --report_to none --output_dir out"""
            environ = environment(OMP_NUM_THREADS="1", HF_HOME=folder)
            command = [sys.executable, "train.py", *options.split()]
            done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("reweight: in TRL 1.16.0, dapo (token_mean): ActFocus by surprisal"), 1, done.stderr)
        self.assertIn("credit/actions", done.stdout + done.stderr)

    def test_two_processes(self):
        """Sums and groups are those of both: each has the advantages that one process with all rows gives it."""
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", __file__, folder]
            environ = environment(OMP_NUM_THREADS="1", ACCELERATE_USE_CPU="true")
            done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            parts = [np.load(f"{folder}/{rank}.npz") for rank in range(2)]
        ids, mask, old, entropy, before, after = (
            np.concatenate([part[name] for part in parts]) for name in ("ids", "mask", "old", "entropy", "before", "after")
        )
        w, f, _ = weights_and_factors(ids, mask != 0, -old, entropy, np.arange(len(ids)) // 4)
        want = before[:, None] * w * f * mask.sum() / w.sum()
        self.assertLess(np.abs(after - want).max(), 1e-5 * np.abs(want).max())
        self.assertEqual(done.stderr.count("reweight: in TRL"), 1)


class Judge:
    """A reward function that knows its scores by the places of the completions. All instances have one name."""

    def __init__(self, scores):
        self.scores = scores

    def __call__(self, completions, **_):
        return judged(completions, self.scores)


def judged(completions, scores, **_):
    first = PartialState().process_index * len(completions)
    return list(scores[first : first + len(completions)])


async def judged_later(completions, scores, **_):
    return judged(completions, scores)


def scored(scores, weights):
    """What TRL makes of scores, in float64: the reward of each completion, NaN where nobody scored it."""
    s = np.array(scores, np.float64)  # None is NaN
    return np.where(np.isnan(s).all(0), np.nan, np.nansum(s * np.array(weights)[:, None], 0))


def from_rewards(name, rewards, mask, entropy, groups):
    """The advantages of a scheme, [B, T], and who is compared: not those without a reward, nor, in a group, those that are
    alone because of them."""
    compared = ~np.isnan(rewards)
    if name != "reinforce++":
        compared &= np.array([compared[groups == g].sum() > 1 for g in groups])
    A, rest = np.zeros(mask.shape), compared if name != "group_filter" else slice(0)
    A[rest] = formulas.advantages(name, rewards[rest], mask[rest], entropy[rest], groups[rest])
    return A, compared


class Rewards(unittest.TestCase):
    """Rewards are TRL's own: unlike its log, they know which completion nobody scored, and functions of one name."""

    one, two = (3, 5, None, 4, 2, 6, 4, None), (1, None, None, 4, 0.3, -6, 4, 2)
    CASES = {
        "None": ([Judge], [one], [1]),
        "NaN": ([Judge], [[np.nan if s is None else s for s in one]], [2]),
        "two of one name": ([Judge, Judge], [one, two], [1, -0.5]),
        "partials": ([functools.partial] * 2, [one, two], [0.7, 3]),
        "async": ([functools.partial, Judge], [one, two], [1, 1]),
        "one weighs nothing": ([Judge, Judge], [one, two], [0, 1]),
        "one alone": ([Judge], [[3, None, None, None, 1, 2, 4, 4]], [1]),
        "a group": ([Judge], [[None] * 4 + [1, 0, 0, 2]], [1]),
        "nobody": ([Judge], [[None] * 8], [1]),
        "all": ([Judge], [[1, 0, 0.7, 1, 1, 1, 1, 1]], [1]),
    }
    SCHEMES = (
        "group_mean", "group_norm", "rloo", "opo", "pass_at_k", "gpg_advantages", "gtpo", "grpo_s", "reinforce++",
        "reinforce++_baseline", "group_filter",
    )  # fmt: skip

    def trainer(self, case, **options):
        kinds, scores, weights = self.CASES[case]
        later = judged_later if case == "async" else judged
        functions = [Judge(s) if kind is Judge else functools.partial(later, scores=s) for kind, s in zip(kinds, scores)]
        return trainer(reward_funcs=functions, reward_weights=weights, scale_rewards="none", **options)

    @staticmethod
    def batches(made, run):
        """Runs, and returns for each batch TRL's own advantages, and what came out."""
        before, after, kind = [], [], type(made)
        original, whole = Original._generate_and_score_completions, kind._generate_and_score_completions

        def plain(self, inputs):
            output = original(self, inputs)
            if self.model.training:
                before.append(numpy(output["advantages"]))
            return output

        def credited(self, inputs):
            output = whole(self, inputs)
            if self.model.training:
                after.append(dict(output))
            return output

        with mock.patch.object(Original, "_generate_and_score_completions", plain), mock.patch.object(
            kind, "_generate_and_score_completions", credited
        ), contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run()
        return list(zip(before, after, strict=True))

    def test_every_scheme(self):
        """Every scheme that reads rewards, of scores with holes: as if what nobody scored were not there."""
        inputs = [{"prompt": f"w{i // 4} w1"} for i in range(8)]
        groups, checked, worst = np.arange(8) // 4, 0, 0
        for case, (_, scores, weights) in self.CASES.items():
            for loss_type in ("dr_grpo", "dapo"):
                made = self.trainer(case, loss_type=loss_type, max_completion_length=8)
                made.model.train()
                rewards = scored(scores, weights)
                for name in self.SCHEMES:
                    with self.subTest(case, scheme=name, loss_type=loss_type):
                        made.credit = made.report.credit = Credit(name)
                        [(own, output)] = self.batches(made, lambda: made._generate_and_score_completions(list(inputs)))
                        mask, got = numpy(output["completion_mask"]) != 0, numpy(output["advantages"])
                        A, compared = from_rewards(name, rewards, mask, self.entropy(made, output), groups)
                        if name == "group_filter":
                            differ = [len(set(rewards[compared & (groups == g)])) > 1 for g in groups]
                            kept = compared & np.array(differ)
                            w = mask * kept[:, None]
                            A = own[:, None] * w * (mask.sum() / max(w.sum(), 1) if loss_type == "dapo" else 1)
                        elif name == "group_mean":
                            np.testing.assert_allclose(got, own[:, None] * mask, atol=1e-6)
                        elif name == "rloo":
                            n = np.array([compared[groups == g].sum() for g in groups])
                            np.testing.assert_allclose(got, (own * n / np.maximum(n - 1, 1))[:, None] * mask, atol=3e-6)
                        worst = max(worst, np.abs(got - A).max())
                        np.testing.assert_allclose(got, A, atol=1e-5, rtol=1e-5)
                        self.assertEqual(made._metrics["train"]["credit/unscored"][-1], np.isnan(rewards).sum())
                        self.assertFalse(got[np.isnan(rewards)].any())
                        self.assertNotIn("_calculate_rewards", vars(made))
                        checked += 1
        self.assertEqual(checked, 2 * len(self.CASES) * len(self.SCHEMES))
        sys.stderr.write(f"\nTRL, rewards with holes: {checked} batches, advantages within {worst:.1e}\n")

    @staticmethod
    def entropy(made, output):
        """That of the policy, [B, T], in float64."""
        with torch.no_grad():
            ids = torch.cat([output["prompt_ids"], output["completion_ids"]], 1)
            attention = torch.cat([output["prompt_mask"], output["completion_mask"]], 1)
            told = slice(output["prompt_ids"].shape[1] - 1, -1)
            model = made.accelerator.unwrap_model(made.model)
            l = torch.log_softmax(model(input_ids=ids, attention_mask=attention).logits.double()[:, told], -1)
        return -(l.exp() * l).sum(-1).numpy()

    def test_every_scheme_is_there(self):
        """Those that the adapter takes and that read rewards are all in SCHEMES."""
        found = set()
        for e in schemes():
            if e.kind in ("advantage", "weight") and {"rewards", "token_rewards|rewards"} & set(e.reads):
                with contextlib.suppress(InputError):
                    Credit(e.name).check("TRL", trl._OWN, ("entropy", "ref_energy"))
                    found.add(e.name)
        self.assertEqual(found, set(self.SCHEMES))

    def test_reused_batches(self):
        """Batches that are used again, evaluations between them, and a function of the user's own in the place of the method."""
        made = self.trainer(
            "two of one name", num_iterations=2, steps_per_generation=2, per_device_train_batch_size=4, max_steps=8,
            per_device_eval_batch_size=4,
        )  # fmt: skip
        made.credit = made.report.credit = Credit("group_mean")
        made.args.eval_strategy, made.args.eval_steps = "steps", 1
        made.eval_dataset = made.train_dataset.select(range(2))
        calls, calculate = [], made._calculate_rewards

        def mine(*arguments):
            calls.append(1)
            return calculate(*arguments)

        made._calculate_rewards = mine
        found = self.batches(made, made.train)
        self.assertEqual(len(found), 2)
        self.assertGreater(len(calls), 2)
        self.assertIs(vars(made)["_calculate_rewards"], mine)
        for own, output in found:
            self.assertGreater(np.abs(own).max(), 0)
            np.testing.assert_allclose(numpy(output["advantages"]), own[:, None] * numpy(output["completion_mask"]), atol=1e-6)

    def test_other_scores(self):
        """A trainer whose method has other completions than the batch is an error, and its pages have no rewards."""
        made = self.trainer("None")
        for scores, found in (([], r"\[\]"), ([torch.zeros(4, 1)] * 2, r"\[4, 4\]"), ([torch.zeros(8, 1)], r"\[8\]")):
            with self.assertRaisesRegex(HookError, rf"GRPOTrainer scored batches of {found} completions .* want one of \[4\], all"):
                trl._rewards(made, scores, 4, 0, Credit("rloo"))
            for credit in Credit(), dataclasses.replace(Credit(), show_every=1):
                self.assertIsNone(trl._rewards(made, scores, 4, 0, credit))

    def test_few_tokens(self):
        """Steps of every scheme, of a batch of which TRL masked all completions, and of one or two tokens: training goes on."""
        original, walked = Original._generate_and_score_completions, 0
        for loss_type in "dapo", "grpo":
            made = self.trainer(
                "None", loss_type=loss_type, max_steps=1, mask_truncated_completions=True, max_completion_length=2,
                generation_kwargs={"suppress_tokens": [0, 1]},  # none ends in time
            )  # fmt: skip
            others = "aem", "empg", "entropy_mask", "actfocus", "overlong+reinforce++", "reinforce++_baseline+actfocus+aem"
            for name in (*self.SCHEMES, *others):
                for tokens in 0, 1, 2:

                    def few(trainer, inputs):
                        output = original(trainer, inputs)
                        self.assertFalse(output["completion_mask"].any())
                        output["completion_mask"][5, :tokens] = 1
                        output["num_items_in_batch"] = output["num_items_in_batch"] + tokens
                        return output

                    credit = Credit(name, tags=None)
                    made.credit = made.report.credit = credit
                    with self.subTest(name, loss_type=loss_type, tokens=tokens):
                        with mock.patch.object(Original, "_generate_and_score_completions", few):
                            [(_, output)] = self.batches(made, made.train)
                        got, log = numpy(output["advantages"]), made.state.log_history
                        self.assertTrue(np.isfinite(got).all())
                        self.assertFalse(got[numpy(output["completion_mask"]) == 0].any())
                        if tokens < 2 and "reinforce++" in name:
                            self.assertFalse(got.any())
                        [step] = [entry for entry in log if "loss" in entry]
                        self.assertTrue(np.isfinite([step["loss"], step["grad_norm"]]).all(), step)
                        walked += 1
        self.assertEqual(walked, 2 * 17 * 3)

    @needs_go
    def test_pages(self):
        """What nobody scored is not on the pages, and functions of one name are told apart."""
        environ = mock.patch.dict(os.environ, PATH=program().name + os.pathsep + os.environ["PATH"])
        inputs = [{"prompt": f"w{i // 4} w1"} for i in range(8)]
        for case, scheme in ("two of one name", "actfocus+aem"), ("None", "rloo"), ("one alone", "gtpo"):
            with self.subTest(case), tempfile.TemporaryDirectory() as folder, environ:
                made = self.trainer(case)
                made.model.train()
                made.credit = made.report.credit = Credit(scheme, show_every=1, dir=folder)
                self.batches(made, lambda: made._generate_and_score_completions(list(inputs)))
                titles = [title for title, _ in sections(f"{folder}/tmp-step-000001.html")]
                found = [re.search(r": group (\d), reward (\S+), 1 turn,", title).groups() for title in titles]
                rewards = scored(*self.CASES[case][1:])
                there = np.flatnonzero(~np.isnan(rewards))
                self.assertEqual([int(group) for group, _ in found], (there // 4).tolist())
                np.testing.assert_allclose([float(reward) for _, reward in found], rewards[there], 1e-6)

    def test_two_processes(self):
        """A group lies in both: the numbers are those of the whole."""
        with tempfile.TemporaryDirectory() as folder:
            run = "torch.distributed.run", "--standalone", "--nproc-per-node=2"
            command = [sys.executable, "-m", *run, __file__, folder, "rewards"]
            environ = environment(OMP_NUM_THREADS="1", ACCELERATE_USE_CPU="true")
            done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            parts = [np.load(f"{folder}/{rank}.npz") for rank in range(2)]
        rewards, groups = scored(*TWO[1:]), np.arange(12) // 4
        for name in self.SCHEMES[:-1]:
            with self.subTest(name):
                own, got, mask, entropy = (
                    np.concatenate([p[f"{name} {x}"] for p in parts]) for x in ("own", "got", "mask", "entropy")
                )
                A, _ = from_rewards(name, rewards, mask, entropy, groups)
                np.testing.assert_allclose(got, A, atol=1e-5, rtol=1e-5)
                if name == "group_mean":
                    np.testing.assert_allclose(got, own[:, None] * mask, atol=1e-6)


# The functions, scores and weights of two processes with six completions each.
TWO = ([Judge, Judge], [(3, 5, None, 4, 2, 6, None, None, 1, 8, 2, 0), (None, 1, None, 1, 2, -1, None, 3, 1, None, 2, 0)], [1, -0.5])


def rewards_of_process(folder):
    """One of two processes: a batch of each scheme, and what it saw."""
    Rewards.CASES["two processes"] = TWO
    made = Rewards().trainer("two processes", per_device_train_batch_size=6, folder=folder)
    made.model.train()
    rank, arrays = made.accelerator.process_index, {}
    for name in Rewards.SCHEMES[:-1]:
        made.credit = made.report.credit = Credit(name)
        inputs = [{"prompt": f"w{i // 4} w1"} for i in range(6 * rank, 6 * rank + 6)]
        [(own, output)] = Rewards.batches(made, lambda: made._generate_and_score_completions(inputs))
        found = {"own": own, "got": numpy(output["advantages"]), "mask": numpy(output["completion_mask"]) != 0}
        for x, a in {**found, "entropy": Rewards.entropy(made, output)}.items():
            arrays[f"{name} {x}"] = a if a.ndim == 1 else np.pad(a, ((0, 0), (0, 24 - a.shape[1])))
    np.savez(f"{folder}/{rank}.npz", **arrays)


def game(prompts, trainer, cut=False):
    """Games of one to three turns, with a reward of each turn. The loss lacks the sixth game: by env_mask, or because the
    completion has no end, and TRL leaves it out."""
    g = np.random.default_rng([trainer.state.global_step, trainer.accelerator.process_index])
    out = defaultdict(list)
    for i, prompt in enumerate(prompts):
        ids, mask = [], []
        turns = int(g.integers(1, 4))
        for said in g.integers(4, len(WORDS), (turns, 5)).tolist():
            ids += [*said[:2], 2, *said[2:4], 3, said[4], 8, 9]
            mask += [1] * 7 + [0] * 2
        out["prompt_ids"].append(trainer.processing_class(prompt)["input_ids"])
        out["completion_ids"].append(ids if cut and i == 5 else ids + [1])
        out["env_mask"].append([0] * (len(ids) + 1) if i == 5 and not cut else mask + [0] * (not cut or i != 5))
        out["span_rewards"].append(g.normal(size=turns).tolist())
    return {**out, "logprobs": None}


class Columns(unittest.TestCase):
    """Actions of a column: labels of tokens that rollout_func returns, or tags of each prompt that the data set has."""

    def outputs(self, credit, inputs, rollout_func=None, **options):
        """The batch of these inputs with the credit, and TRL's own advantages [B]."""
        own = []

        class Kept(Original):
            def _generate_and_score_completions(self, inputs):
                own.append(super()._generate_and_score_completions(inputs))
                return dict(own[-1])

        made = trainer(functools.partial(type("Both", (CreditMixin, Kept), {}), credit=credit), rollout_func=rollout_func, **options)
        made.model.train()
        with contextlib.redirect_stderr(io.StringIO()):
            return made._generate_and_score_completions(inputs), numpy(own[-1]["advantages"]), made

    def test_labels(self):
        """For bools and for roles, with tokens of the environment, and a completion that the loss lacks."""

        def play(prompts, trainer, made=lambda label: label):
            out = game(prompts, trainer)
            g = np.random.default_rng(5)
            out["marks"] = [made(g.random(len(ids)) < 0.3).tolist() for ids in out["completion_ids"]]
            marks[:] = out["marks"]
            return out

        marks = []
        inputs = [{"prompt": f"w{i // 4} w1"} for i in range(8)]
        credit = Credit("actfocus", action="marks")
        for rollout in (play, functools.partial(play, made=lambda label: 1 + label)):
            output, own, made = self.outputs(credit, [dict(x) for x in inputs], rollout)
            mask = numpy(output["completion_mask"] * output["tool_mask"])
            action = np.zeros(mask.shape)
            for row, of in zip(action, marks):
                row[: len(of)] = np.array(of) if isinstance(of[0], bool) else np.array(of) - 1
            w = np.where(action == 1, 1, 0.3) * mask
            self.assertTrue((w == 1).any())
            want = own[:, None] * w * mask.sum() / w.sum()
            np.testing.assert_allclose(numpy(output["advantages"]), want, rtol=1e-5, atol=1e-6)
            self.assertEqual(made._metrics["train"]["credit/actions"][-1], (action * mask).sum())
        short = lambda *args: {**play(*args), "marks": [[True]] * 8}  # noqa: E731
        want = r"action\[0\] has 1 labels, want \d+, one for each token of the completion"
        for wrong, problem in (
            (short, want),
            (game, r'action\[0\] is "marks", which is no column of the data set and no output of rollout_func'),
            (functools.partial(play, made=lambda label: 2 * label), r"action has \[.* of the type int64, want bools, or 1"),
        ):
            with self.assertRaisesRegex(InputError, problem):
                self.outputs(credit, [dict(x) for x in inputs], wrong)

    def test_tags(self):
        """Each prompt has tags of its own, those of a preset, or none: all tokens are actions then."""
        tags = [["Left", "Right"]] * 4 + [[["<answer>", "</answer>"], ["Up", "Down"]]] * 4 + ["answer"] * 4 + [None] * 4
        inputs = [{"prompt": f"w{i // 4} w1", "where": x} for i, x in enumerate(tags)]
        output, own, made = self.outputs(
            Credit("actfocus", action="where", audit_every=1, dir=tempfile.mkdtemp()), inputs, per_device_train_batch_size=16
        )
        mask, ids = numpy(output["completion_mask"]), output["completion_ids"].numpy()
        action = np.zeros(mask.shape, bool)
        for b, x in enumerate(tags):
            text = {"answer": ("<answer>", "</answer>")}
            for pair in [] if x is None else [text[x]] if isinstance(x, str) else [x] if isinstance(x[0], str) else x:
                of = dataclasses.replace(CREDIT, tags=tuple(pair), tags_as="action")
                role = weights_and_factors(ids[b : b + 1], mask[b : b + 1] != 0, np.zeros((1, ids.shape[1])), mask[b : b + 1], [0], of)[2]
                action[b] |= role[0] == 2
            if x is None:
                action[b] = mask[b] != 0
        kinds = [action[i : i + 4].sum() for i in range(0, 16, 4)]
        self.assertTrue(min(kinds[0], kinds[1], kinds[3]) > 0, kinds)
        w = np.where(action, 1, 0.3) * mask
        np.testing.assert_allclose(numpy(output["advantages"]), own[:, None] * w * mask.sum() / w.sum(), rtol=1e-5, atol=1e-6)
        self.assertIn("credit/audit/prompts", made._metrics["train"])
        with self.assertRaisesRegex(InputError, "tags is 'nothing'"):
            self.outputs(Credit("actfocus", action="where"), [{**x, "where": "nothing"} for x in inputs[:8]])


class Turns(unittest.TestCase):
    """Rewards of turns, by lists of reward functions, or which rollout_func returns as span_rewards."""

    CREDIT = Credit("turn_returns+actfocus")

    @classmethod
    def played(cls, steps=3, rollout=game, lists=False, credit=CREDIT, **options):
        """Trains, and returns of each step what the rollout returned, the rewards, TRL's batch with the credit, the policy
        before the step, and its gradient. With lists, two reward functions return the rewards of turns."""
        rollouts, rewards, outputs, policies, gradients = [], [], [], [], []

        def rollout_func(prompts, trainer):
            rollouts.append(rollout(prompts, trainer))
            return {"hidden" if lists and name == "span_rewards" else name: x for name, x in rollouts[-1].items()}

        def outcome(completions, hidden=None, span_rewards=None, **_):
            """The rewards of turns of rollout_func reach reward functions too, and one completion is not scored."""
            assert (hidden if lists else span_rewards) == rollouts[-1]["span_rewards"]
            rewards.append([None if i == 6 else c.count("Left") - 0.1 * len(c.split()) for i, c in enumerate(completions)])
            return rewards[-1]

        def listed(hidden, **_):
            return [None if i == 6 else (list, np.array, torch.tensor)[i % 3](row) for i, row in enumerate(hidden)]

        class Later:
            __name__ = "later"

            async def __call__(self, hidden, **_):
                return [None if i == 6 else [2 * x for x in row] for i, row in enumerate(hidden)]

        functions = [outcome]
        if lists:  # the weights make the rewards of rollout_func of both
            # Before 1.14 TRL takes only functions for asynchronous.
            later = functools.partial(Later()) if VERSION >= (1, 14) else Later().__call__
            functions, options = [listed, outcome, later], {**options, "reward_weights": [2.0, 1.0, -0.5]}

        class Kept(GRPOTrainer):
            def _generate_and_score_completions(self, inputs):
                outputs.append(dict(super()._generate_and_score_completions(inputs)))
                return dict(outputs[-1])

        class Look(TrainerCallback):
            def on_pre_optimizer_step(self, args, state, control, model, **_):
                policies.append({name: x.detach().clone() for name, x in model.named_parameters()})
                gradients.append({name: numpy(x.grad) for name, x in model.named_parameters()})

        made = trainer(
            functools.partial(Kept, credit=credit), rollout_func=rollout_func, reward_funcs=functions, max_steps=steps,
            optim="sgd", learning_rate=0.1, max_grad_norm=1e9, max_completion_length=32, **options,
        )  # fmt: skip
        made.add_callback(Look())
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            made.train()
        assert made.reward_funcs == functions
        return made, said.getvalue(), list(zip(rollouts, rewards, outputs, policies, gradients))

    @classmethod
    def wanted(cls, ids, mask, rewards, turns, groups, credit=CREDIT):
        """The advantages by the formulas, in float64."""
        zero = np.zeros(mask.shape)
        w, _, role = weights_and_factors(ids, mask, zero, zero, groups, credit=credit)
        assert (role == 2).any()
        rewards = np.array(rewards, np.float64)  # None is NaN
        there, scored = mask.any(1), ~np.isnan(rewards)
        rewards = rewards + [0 if x else sum(row) for x, row in zip(there, turns)]
        turns = [row if x else [] for x, row in zip(there, turns)]
        A = zero.copy()
        of = getattr(formulas, credit.scheme.split("+")[0])
        A[scored] = of(rewards[scored], [x for x, s in zip(turns, scored) if s], mask[scored], groups[scored])
        return A * w * mask.sum() / w.sum()

    @unittest.skipIf(VERSION < (0, 29), "rollout_func is refused")
    def test_steps(self):
        """The advantages of three steps, and the gradient that trains, against float64."""
        cut = dict(rollout=functools.partial(game, cut=True), mask_truncated_completions=True)
        for name, credit, options, lists in (
            ("env_mask", self.CREDIT, {}, False),
            ("mask_truncated_completions", self.CREDIT, cut, False),
            ("env_mask, lists", self.CREDIT, {}, True),
            ("mask_truncated_completions, lists", self.CREDIT, cut, True),
            ("mt_grpo", Credit("mt_grpo+actfocus"), {}, True),
        ):
            with self.subTest(name):
                made, said, steps = self.played(lists=lists, credit=credit, **options)
                self.assertEqual(len(steps), 3)
                self.assertRegex(said, "the advantages of (returns of turns|MT-GRPO) in the place of the trainer's")
                worst = [0.0, 0.0]
                for rollout, rewards, output, policy, gradient in steps:
                    mask = numpy(output["completion_mask"] * output["tool_mask"]) != 0
                    self.assertEqual(mask.any(1).tolist(), [i != 5 for i in range(8)])
                    self.assertGreater(len({len(row) for row in rollout["span_rewards"]}), 1)
                    want = self.wanted(output["completion_ids"].numpy(), mask, rewards, rollout["span_rewards"], np.arange(8) // 4, credit)
                    worst[0] = max(worst[0], np.abs(numpy(output["advantages"]) - want).max() / np.abs(want).max())
                    exact = model().double()
                    exact.load_state_dict({n: x.double() for n, x in policy.items()})
                    ids = torch.cat([output["prompt_ids"], output["completion_ids"]], 1)
                    attention = torch.cat([output["prompt_mask"], output["completion_mask"]], 1)
                    logits = exact(input_ids=ids, attention_mask=attention).logits[:, output["prompt_ids"].shape[1] - 1 : -1]
                    logps = torch.log_softmax(logits, -1).gather(-1, output["completion_ids"][..., None])[..., 0]
                    # TRL before 1.9 divides by the tokens of completions that it leaves out too.
                    tokens = mask.sum() if VERSION >= (1, 9) else output["num_items_in_batch"].item()
                    (-(logps * torch.from_numpy(want))[torch.from_numpy(mask)].sum() / tokens).backward()
                    for n, x in exact.named_parameters():
                        worst[1] = max(worst[1], np.abs(gradient[n] - numpy(x.grad)).max() / np.abs(numpy(x.grad)).max())
                sys.stderr.write(f"\nTRL, rewards of turns, {name}: advantages within {worst[0]:.1e}, gradients within {worst[1]:.1e}\n")
                self.assertLess(worst[0], 1e-5)
                self.assertLess(worst[1], 1e-4)
                log = [entry for entry in made.state.log_history if "credit/mixed_groups" in entry]
                self.assertEqual([(entry["credit/mixed_groups"], entry["credit/unscored"]) for entry in log], [(1, 1)] * 3)

    def test_states(self):
        """GiGPO goes by the states that rollout_func returns, which a file of the batch has too."""

        def walked(prompts, trainer):
            out = game(prompts, trainer)
            g = np.random.default_rng(trainer.state.global_step)
            return {**out, "anchors": [g.choice(["door", "hall"], len(row)).tolist() for row in out["span_rewards"]]}

        with tempfile.TemporaryDirectory() as folder:
            made, said, steps = self.played(rollout=walked, credit=Credit("gigpo", save_every=1, dir=folder))
            self.assertIn("the advantages of GiGPO in the place of the trainer's", said)
            for rollout, rewards, output, *_ in steps:
                there = [i for i in range(8) if i not in (5, 6)]  # the one that the loss lacks, and the one that nobody scored
                mask = (numpy(output["completion_mask"] * output["tool_mask"]) != 0)[there]
                turns, states = ([row[i] for i in there] for row in (rollout["span_rewards"], rollout["anchors"]))
                scores = np.array([rewards[i] for i in there], np.float32)
                totals = np.array([score + sum(row) for score, row in zip(scores, turns)], np.float32)
                groups = np.array(there) // 4
                wanted = np.zeros(mask.shape)
                for g in range(2):
                    mine = [k for k in range(len(there)) if groups[k] == g]
                    lacking = [] if g == 0 else [sum(rollout["span_rewards"][5]) + rewards[5]]
                    mean = np.mean([*totals[mine], *lacking])
                    returns = {}
                    for k in mine:
                        row, total = [*turns[k][:-1], turns[k][-1] + scores[k]], 0.0
                        for s in reversed(range(len(row))):
                            total = row[s] + 0.95 * total
                            returns[k, s] = total
                    for (k, s), value in returns.items():
                        same = [v for (j, t), v in returns.items() if states[j][t] == states[k][s]]
                        first, end = spans(mask[k])[s]
                        wanted[k, first:end] = totals[k] - mean + (value - np.mean(same) if len(same) > 1 else 0)
                got = numpy(output["advantages"])
                np.testing.assert_allclose(got[there], wanted, atol=1e-5)
                self.assertFalse(got[[5, 6]].any())
            lines = [json.loads(line) for line in max(Path(folder).glob("*.jsonl")).read_text().splitlines()]
            self.assertEqual([len(line["anchors"]) for line in lines], [len(line["span_rewards"]) for line in lines])
            self.assertEqual({type(x) for line in lines for x in line["anchors"]}, {int})
        with self.assertRaises(InputError) as caught:
            trainer(functools.partial(GRPOTrainer, credit=Credit("gigpo")))
        self.assertIn("scheme reads anchors, but the trainer has no rollout_func: in TRL, rollout_func returns the states", str(caught.exception))
        with self.assertRaisesRegex(InputError, "^anchors is nothing that rollout_func returns: in TRL, "):
            self.played(credit=Credit("gigpo"))

    def test_two_processes(self):
        """A group lies in both: the baselines are those of the whole."""
        with tempfile.TemporaryDirectory() as folder:
            run = "torch.distributed.run", "--standalone", "--nproc-per-node=2"
            command = [sys.executable, "-m", *run, __file__, folder, "turns"]
            environ = environment(OMP_NUM_THREADS="1", ACCELERATE_USE_CPU="true")
            done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            for lists in False, True:
                parts = [np.load(f"{folder}/{rank}-{lists}.npz") for rank in range(2)]
                ids, mask, got, rewards, turns = (np.concatenate([p[x] for p in parts]) for x in ("ids", "mask", "got", "rewards", "turns"))
                want = self.wanted(ids, mask, rewards, [row[~np.isnan(row)] for row in turns], np.arange(12) // 4)
                self.assertLess(np.abs(got - want).max(), 1e-5 * np.abs(want).max())

    def test_unscored(self):
        """A batch in which no function scored a completion ends no run: there is nothing to learn from it."""
        made = trainer(functools.partial(GRPOTrainer, credit=self.CREDIT), reward_funcs=lambda completions, **_: [None] * len(completions))
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            made.train()
        log = [entry for entry in made.state.log_history if "credit/unscored" in entry]
        self.assertEqual([(entry["credit/unscored"], entry["credit/advantage"]) for entry in log], [(8, 0)] * 3)

    def test_environment(self):
        """get_reward of an environment returns the rewards of the turns, one for each call of a tool and one for the end."""
        seen = []

        class Rewarding(Lake):
            def reset(self, **more):
                super().reset(**more)
                self.turns = []

            def move(self, to: str) -> str:
                """Moves.

                Args:
                    to: where to.
                """
                self.turns.append(len(self.turns) + 1.0 - 0.3 * (to == "Left"))
                return super().move(to)

            def get_reward(self):
                return [*self.turns, 0.25]

        def outcome(environments, **_):
            seen.append(([0.1 * i for i in range(len(environments))], [e.get_reward() for e in environments]))
            return seen[-1][0]

        class Kept(GRPOTrainer):
            def _generate_and_score_completions(self, inputs):
                output = super()._generate_and_score_completions(inputs)
                if not self.model.training:
                    return output
                mask = numpy(output["completion_mask"] * output["tool_mask"]) != 0
                rewards, turns = seen[-1]
                want = formulas.turn_returns(np.array(rewards), turns, mask, np.arange(8) // 4)
                checked.append(np.abs(numpy(output["advantages"]) - want).max() / np.abs(want).max())
                return output

        checked = []
        with scripted(Kept, Credit("turn_returns"), Rewarding, outcome) as (made, _):
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                made.train()
                log = made.evaluate(made.train_dataset.select(range(2)))
        self.assertEqual((len(checked), len(seen)), (3, 4))
        self.assertAlmostEqual(log["eval_rewards/Rewarding/mean"], np.mean([sum(row) for row in seen[3][1]]), 5)
        self.assertEqual({len(row) for row in seen[0][1]}, {1, 2, 3})
        self.assertLess(max(checked), 1e-6)

    def test_errors(self):
        """What is missing or does not fit is an error before any update, which says how TRL gives it."""
        way = (
            "in TRL, the rewards of turns are lists, one for each completion, with a number for each run of tokens of the policy: "
            "a reward function or get_reward of an environment returns them, or rollout_func as span_rewards"
        )
        small = dict(vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, pad_token_id=0)
        judge = LlamaForSequenceClassification(LlamaConfig(**small))
        with self.assertRaises(InputError) as caught:
            trainer(functools.partial(GRPOTrainer, credit=self.CREDIT, reward_processing_classes=tokenizer()), reward_funcs=judge)
        self.assertEqual(str(caught.exception), f"scheme reads span_rewards, but the trainer has reward models alone: {way}")
        none = "span_rewards[0] is None, want a list of numbers, one for each turn"
        number = "span_rewards[3] is a float, want a list of numbers, one for each turn"
        longer, empty = "span_rewards[1] has 4 numbers, want 3", "span_rewards[1] has 0 numbers, want 3"
        nan = "span_rewards[1, 1] is NaN, want a finite number"
        listed = "span_rewards[1] is a list, want a list of numbers, one for each turn"
        within = "span_rewards[1, 1] is None, want a number"
        text = listed.replace("is a list", "is a str")
        everywhere = (  # what happens to the lists, and the errors of rollout_func and of a reward function
            ("missing", lambda rows: None, none, none),
            ("numbers", lambda rows: [1.0] * 8, "span_rewards[0] is a float, want a list of numbers", none),
            ("one number", lambda rows: [*rows[:3], 1.0, *rows[4:]], number, number.replace("a float", "None")),
            ("one more turn", lambda rows: [rows[0], [*rows[1], 1.0], *rows[2:]], longer, longer),
            ("none of a game", lambda rows: [rows[0], [], *rows[2:]], empty, empty),
            ("NaN", lambda rows: [rows[0], [1, np.nan, 2], *rows[2:]], nan, nan),
            ("NaN in a tensor", lambda rows: [rows[0], torch.tensor([1, np.nan, 2]), *rows[2:]], nan, nan),
            ("None in a list", lambda rows: [rows[0], [1, None, 2], *rows[2:]], within, within),
            ("ragged", lambda rows: [rows[0], [1, [2, 3], 2], *rows[2:]], listed, listed),
            ("a text", lambda rows: [rows[0], "abc", *rows[2:]], text, text),
            ("one more game", lambda rows: [*rows, [1.0]], "span_rewards has 9 elements, want 8", ""),  # TRL has an error of its own
        )
        both = "span_rewards is returned by rollout_func and by a reward function, want one of them"
        lengths = "span_rewards[1] has lists of [3, 4] numbers by different functions, want one length"
        cases = [
            *((name, change, None, message) for name, change, message, _ in everywhere),
            *((name, None, [change], message) for name, change, _, message in everywhere if message),
            ("both", lambda rows: rows, [lambda rows: rows], both),
            ("two lengths", None, [lambda rows: rows, everywhere[3][1]], lengths),
        ]
        for i, (name, by_rollout, by_functions, message) in enumerate(cases):
            with self.subTest(name, by_functions=by_functions is not None):

                def rollout(prompts, trainer):
                    out = game(prompts, trainer)
                    out["hidden"] = out.pop("span_rewards")
                    changed = by_rollout and by_rollout(out["hidden"])
                    return {**out, **({"span_rewards": changed} if name != "missing" and by_rollout else {})}

                def judge_by(change):
                    def now(hidden, **_):
                        return change(hidden) or [None] * 8

                    async def later(hidden, **_):
                        return now(hidden)

                    return later if i % 2 else now

                functions = [reward, *map(judge_by, by_functions or ())]
                made = trainer(functools.partial(GRPOTrainer, credit=self.CREDIT), rollout_func=rollout, reward_funcs=functions)
                before = {n: x.detach().clone() for n, x in made.model.named_parameters()}
                with contextlib.redirect_stdout(io.StringIO()), self.assertRaises(InputError) as caught:
                    made.train()
                self.assertEqual(str(caught.exception).split(": ", 1)[1], way)
                self.assertTrue(str(caught.exception).startswith(message), caught.exception)
                self.assertIs(made.rollout_func, rollout)
                self.assertEqual(made.reward_funcs, functions)
                for n, x in made.model.named_parameters():
                    self.assertTrue(torch.equal(x, before[n]), n)


def turns_of_process(folder):
    """One of two processes: a step of each way to give rewards of turns, and what it saw."""
    for lists in False, True:
        made, _, [(rollout, rewards, output, *_)] = Turns.played(1, lists=lists, per_device_train_batch_size=6, folder=folder)
        arrays = {"ids": output["completion_ids"], "got": output["advantages"], "mask": output["completion_mask"] * output["tool_mask"]}
        wide = {name: np.pad(a.numpy(), ((0, 0), (0, 40 - a.shape[1]))) for name, a in arrays.items()}
        turns = [row + [np.nan] * (3 - len(row)) for row in rollout["span_rewards"]]
        wide.update(mask=wide["mask"] != 0, rewards=np.array(rewards, np.float64), turns=np.array(turns))
        np.savez(f"{folder}/{made.accelerator.process_index}-{lists}.npz", **wide)


class Forward(unittest.TestCase):
    def test_handed_on(self):
        """The pass that scores completions takes them by name where TRL hands whatever it is given to another method."""

        class Handing(Original):
            def _get_per_token_logps_and_entropies(self, model, *args, batch_size=None, **options):
                return self._full_logits_logps(model, *args, batch_size=batch_size, **options)

            def _full_logits_logps(self, model, *args, **options):
                self.options = {**options, "rows": len(args[0])}
                return super()._get_per_token_logps_and_entropies(model, *args, **options)

        made = trainer(kind=Handing)
        tokens = torch.full((2, 3), 7)
        output = {name: tokens for name in ("prompt_ids", "completion_ids")} | {name: tokens * 0 + 1 for name in ("prompt_mask", "completion_mask")}
        logps, entropy = trl._forward(made, output)
        self.assertEqual((made.options["batch_size"], logps.shape, entropy.shape), (8, (2, 3), (2, 3)))
        Handing._full_logits_logps = lambda self, model, input_ids, pixel_values=None: None
        self.assertEqual(trl._images(made, {**output, "pixel_values": 1}), {"pixel_values": 1})


class Losses(unittest.TestCase):
    """GRPOTrainer._compute_loss of the advantages that the adapter makes, and its gradient, against the formulas."""

    def test_against_the_formulas(self):
        with tempfile.TemporaryDirectory() as folder:
            it, worst, cases = _check.made("trl", folder), [0.0, 0.0], 0
            self.assertEqual(it.loss_types(), [*trl._AGGREGATIONS])
            for case in it.cases():
                for credited in False, True:
                    with self.subTest(credited=credited, **case):
                        verdict, *differences = _check.compared(it, credited, **case)
                        self.assertEqual(verdict, "right", differences)
                        worst, cases = np.maximum(worst, differences), cases + 1
        sys.stderr.write(f"\nTRL, {cases} losses: loss within {worst[0]:.1e}, gradient within {worst[1]:.1e}\n")

    def test_check_trainer(self):
        """The command says which losses are wrong, and knows none that TRL has not."""

        def run(*arguments):
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                status = _check.main(arguments)
            return status, out.getvalue(), err.getvalue()

        original = Original._compute_loss

        def wrong(self, model, inputs):
            'loss_type == "new"'
            if self.loss_type == "new":
                raise ValueError("new")
            if self.loss_type == "vespo" and inputs["advantages"].dim() == 2 and self.beta == 0:
                raise IndexError("of an older version")
            return original(self, model, inputs) * (1.001 if self.loss_type == "sapo" and inputs["advantages"].dim() == 2 else 1)

        wrong.__module__ = "mine"
        with mock.patch.object(Original, "_compute_loss", wrong):
            status, out, err = run("trl")
        self.assertEqual(status, 1, out + err)
        self.assertEqual({line.split()[0] for line in out.splitlines() if "WRONG" in line}, {"sapo", "vespo", "right"})
        self.assertRegex(out, r"(?m)^sapo +beta=0.0 +right \S+ +WRONG 1.0e-03$")
        self.assertRegex(out, r"(?m)^vespo +beta=0.0 +right \S+ +WRONG inf$")
        self.assertRegex(out, r"(?m)^new +beta=0.0 +refused +refused$")
        self.assertRegex(out, r"\nright 129, refused 16, absent 0, no formula 0, WRONG 9\n$")
        with mock.patch("reweight.adapters._hooks.version_of", lambda package: "1.17.0"):
            with self.assertWarnsRegex(UserWarning, "not with TRL 1.17.0; python -m reweight check-trainer trl compares its losses"):
                trl._check_trl(CREDIT)
        for version in trl.TESTED:
            with mock.patch("reweight.adapters._hooks.version_of", return_value=version), warnings.catch_warnings():
                warnings.simplefilter("error")
                trl._check_trl(CREDIT)
        for arguments, problem in (((), "nothing"), (("slime",), "'slime'"), (("trl", "x"), "'trl' 'x'")):
            self.assertEqual(run(*arguments), (2, "", f"python -m reweight check-trainer takes trl, verl or openrlhf, not {problem}\n"))
        with mock.patch.dict(_check.TRAINERS, trl=mock.Mock(side_effect=RuntimeError("of\ntwo lines"))):
            self.assertEqual(run("trl"), (2, "", "not checked: RuntimeError: of two lines\n"))
        with mock.patch.object(Original, "_compute_loss", lambda *_: {}["what a newer version reads"]):
            status, out, err = run("trl")
        want = "not checked: grpo importance_sampling_level=token: KeyError: 'what a newer version reads'\n"
        self.assertEqual((status, err), (2, want), out)
        with mock.patch("importlib.util.find_spec", lambda name: None):
            status, out, err = run("trl")
        self.assertEqual((status, out, err), (2, "", "not checked: torch and trl of Python are not installed: pip install trl\n"))

    def test_tested(self):
        """The table of older versions has whole runs of those of which the adapter does not warn."""
        table = (Path(__file__).parent / "TRAINERS.md").read_text().partition("## Older versions of TRL")[2]
        self.assertEqual(re.findall(r"(?m)^\| (\d\S+) .*\| Ran ", table), [*trl.TESTED])

    def test_refused(self):
        """Before the first rollout."""
        with self.assertRaisesRegex(ValueError, 'loss_type is "other", want one of .grpo'):
            trl._check_trainer(mock.Mock(loss_type="other", use_liger_kernel=False), CREDIT)
        for version in "0.29.1", "1.9.2":
            with mock.patch.object(trl, "version_of", return_value=version):
                with self.assertRaisesRegex(InputError, f'^loss_type is "luspo", which TRL {version} computes for one advantage per'):
                    trl._check_trainer(trainer(loss_type="luspo"), CREDIT)
        with mock.patch.object(trl, "version_of", return_value="0.27.2"):
            with self.assertRaisesRegex(InputError, '^loss_type is "sapo", which TRL 0.27.2 computes for one advantage per .*: want TRL 0.28$'):
                trl._check_trainer(trainer(loss_type="sapo"), CREDIT)
        made = trainer(rollout_func=game)
        with mock.patch.object(trl, "version_of", return_value="0.28.0"):
            with self.assertRaisesRegex(InputError, "^rollout_func is called by TRL 0.28.0 for vLLM alone.*: want TRL 0.29$"):
                trl._check_trainer(made, CREDIT)
        with mock.patch.object(trl, "version_of", return_value="0.25.1"):
            with self.assertRaisesRegex(HookError, "needs TRL 0.26, which takes advantages per token, but found 0.25.1$"):
                trl._check_trl(CREDIT)
        for version in "1.10.0", "1.16.0", "of unknown version":
            with mock.patch.object(trl, "version_of", return_value=version):
                trl._check_trainer(trainer(loss_type="luspo"), CREDIT)
        with self.assertRaisesRegex(ValueError, "reads ref_logprobs, for which TRL needs a reference model: set GRPOConfig.beta=....? above 0"):
            trainer(functools.partial(GRPOTrainer, credit=Credit(beta=0.5, signal="log_ratio")))
        with self.assertRaisesRegex(ValueError, r'signal is "energy", which needs two things in TRL: a head, by install\(head=True\).*; and a reference model, by GRPOConfig\(beta='):
            trainer(functools.partial(GRPOTrainer, credit=Credit(beta=0.5, signal="energy")))
        with self.assertRaisesRegex(TypeError, "^credit is .*, want a Credit$"):
            trainer(functools.partial(GRPOTrainer, credit={"alpha": 0.2}))
        with self.assertRaisesRegex(AttributeError, "has no attribute Other"):
            trl.Other
        with self.assertRaisesRegex(HookError, "^Mine has one ratio and one advantage per completion"):
            type("Mine", (CreditMixin, RLOOTrainer), {})()
        with contextlib.ExitStack() as stack:
            stack.enter_context(installed())
            with self.assertRaisesRegex(HookError, "^RLOOTrainer has one ratio and one advantage per completion"):
                RLOOTrainer(model=saved().name)
            from trl.experimental.async_grpo import async_grpo_trainer

            with self.assertRaisesRegex(HookError, "^AsyncGRPOTrainer computes its advantages where reweight does not reach them"):
                async_grpo_trainer.AsyncGRPOTrainer(model=saved().name)
            async_grpo_trainer.AsyncGRPOTrainer.__init__ = async_grpo_trainer.AsyncGRPOTrainer.__init__._reweight_original

    def test_own_loss(self):
        """A loss of TRL's that is not GRPOTrainer's is refused; one of the user's is a warning."""

        class Mine(GRPOTrainer):
            def _compute_loss(self, model, inputs):
                return super()._compute_loss(model, inputs)

        made = Mine.__new__(Mine)
        made.loss_type, made.beta = "dapo", 0.1
        with self.assertWarnsRegex(UserWarning, r"Mine._compute_loss is not TRL's: the credit is right if"):
            trl._check_trainer(made, CREDIT)
        Mine._compute_loss.__module__ = "trl.experimental.gmpo"
        with self.assertRaisesRegex(HookError, "Mine has a loss of its own"):
            trl._check_trainer(made, CREDIT)


def process(folder):
    """One of two processes: a step, and what it saw."""
    made = trainer(folder=folder, max_steps=1)
    generate = type(made)._generate_and_score_completions
    original = Original._generate_and_score_completions
    before = []

    def plain(self, inputs):
        output = original(self, inputs)
        before.append(output["advantages"].clone())
        return output

    def kept(self, inputs):
        output = generate(self, inputs)
        with torch.no_grad():
            ids = torch.cat([output["prompt_ids"], output["completion_ids"]], 1)
            attention = torch.cat([output["prompt_mask"], output["completion_mask"]], 1)
            logits = self.accelerator.unwrap_model(self.model)(input_ids=ids, attention_mask=attention).logits.double()
        l = torch.log_softmax(logits[:, output["prompt_ids"].shape[1] - 1 : -1], -1)
        arrays = {
            "ids": output["completion_ids"], "mask": output["completion_mask"], "after": output["advantages"],
            "before": before[0], "old": l.gather(-1, output["completion_ids"][..., None])[..., 0],
            "entropy": -(l.exp() * l).sum(-1),
        }  # fmt: skip
        wide = {n: np.zeros((len(a), 24)) if a.dim() == 2 else a.numpy() for n, a in arrays.items()}
        for n, a in arrays.items():
            if a.dim() == 2:
                wide[n][:, : a.shape[1]] = a.numpy()
        wide["ids"] = wide["ids"].astype(np.int64)
        np.savez(f"{folder}/{self.accelerator.process_index}.npz", **wide)
        return output

    with mock.patch.object(Original, "_generate_and_score_completions", plain), mock.patch.object(
        type(made), "_generate_and_score_completions", kept
    ):
        made.train()


if __name__ == "__main__":
    if len(sys.argv) > 1 and os.path.isdir(sys.argv[1]):
        {"": process, "rewards": rewards_of_process, "turns": turns_of_process}["".join(sys.argv[2:])](sys.argv[1])
    else:
        unittest.main()
