"""reweight.adapters.ms_swift in whole runs of ms-swift as it is installed, and what it refuses."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

if importlib.util.find_spec("swift") is None or importlib.util.find_spec("trl") is None:
    raise unittest.SkipTest("ms-swift is not installed")

import formulas
from support import environment
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

from reweight import InputError
from reweight.adapters import Credit, HookError, ms_swift

WORDS = ["<pad>", "<eos>", "<answer>", "</answer>", "Left", "Right", "Up", "Down", *(f"w{i}" for i in range(16))]
PLUGIN = Path(__file__).with_name("ms_swift_plugin.py")
CREDIT = Credit(beta=2.0, guard=0.0)


def setUpModule():
    global folder
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    t = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="w0"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<eos>", pad_token="<pad>", unk_token="w0")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    set_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, eos_token_id=1, bos_token_id=1, initializer_range=0.5,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder.name + "/model")
    tokenizer.save_pretrained(folder.name + "/model")
    prompts = ({"messages": [{"role": "user", "content": " ".join(["w1"] * (1 + i % 3) + [f"w{i // 8}"])}]} for i in range(64))
    Path(folder.name, "data.jsonl").write_text("".join(json.dumps(p) + "\n" for p in prompts))


def run(*options, plugin=PLUGIN, records=""):
    """Runs swift rlhf for three steps of two micro-batches."""
    where, micro = folder.name, "--num_generations 4 --per_device_train_batch_size 4 --gradient_accumulation_steps 2"
    command = [sys.executable, "-m", "swift.cli.main", "rlhf", "--rlhf_type", "grpo", "--model", f"{where}/model", "--dataset"]
    command += [f"{where}/data.jsonl", "--external_plugins", str(plugin), "--output_dir", f"{where}/out", *micro.split(), *options]
    command += (
        "--model_type llama --template dummy --tuner_type full --torch_dtype float32 --reward_funcs left --max_completion_length 24 "
        "--max_steps 3 --logging_steps 1 --save_strategy no --report_to none --load_from_cache_file false"
    ).split()
    env = environment(RECORDS=records, HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="", MODELSCOPE_CACHE=f"{where}/cache")
    return subprocess.run(command, cwd=where, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)


class Runs(unittest.TestCase):
    def test_steps(self):
        """Every batch of a run against NumPy: the credit's sums are those of both micro-batches."""
        for loss_type, options in (
            ("grpo", ()),
            ("dapo", ("--overlong_filter", "true")),
            ("dr_grpo", ("--advantage_estimator", "rloo", "--importance_sampling_level", "sequence_token", "--beta", "0")),
        ):
            with self.subTest(loss_type):
                records = Path(folder.name, loss_type)
                records.mkdir()
                done = run("--loss_type", loss_type, *options, records=str(records))
                self.assertEqual(done.returncode, 0, done.stdout[-4000:])
                self.assertEqual(done.stdout.count("reweight: in ms-swift"), 1, done.stdout[-4000:])
                self.assertIn("'credit/grad_scale'", done.stdout)
                pages = sorted(page.name.partition("-step-")[2] for page in Path(f"{records}-pages").iterdir())
                self.assertEqual(pages, ["000001.html", "000001.jsonl", "000002.html", "000002.jsonl"])
                worst, truncated, found = 0.0, 0, sorted(records.iterdir())
                self.assertEqual(len(found), 3)
                for file in found:
                    x = dict(np.load(file))
                    mask, cut = x["mask"] != 0, x["truncated"] != 0
                    truncated += cut.any(1).sum()
                    role = formulas.roles([[WORDS[int(t)] for t in row] for row in x["ids"]], mask)
                    kept = mask & ~cut if options[:1] == ("--overlong_filter",) else mask
                    groups = np.arange(len(mask)) // 4
                    w, f = formulas.weights_and_factors(role * kept, x["surprisal"], x["entropy"], groups, CREDIT)
                    if loss_type == "grpo":
                        m = w * mask.sum(1, keepdims=True) / w.sum(1, keepdims=True)
                    else:
                        m = w * kept.sum() / w.sum() if loss_type == "dapo" else w
                    want = x["before"] * f * m
                    worst = max(worst, np.abs(x["after"] - want).max() / np.abs(want).max())
                self.assertLess(worst, 1e-5)
                self.assertTrue(truncated or loss_type != "dapo")
                sys.stderr.write(f"\nms-swift, {loss_type}: advantages within {worst:.1e}\n")

    def test_shadowed(self):
        """A trainer whose class has a hook of its own does not learn without the credit."""
        plugin = Path(folder.name, "shadow.py")
        plugin.write_text(PLUGIN.read_text() + (
            "\nimport swift.rlhf_trainers.grpo_trainer as module\n"
            "class Mine(GRPOTrainer):\n    def _postprocess_batch(self, *args):\n        plain(self, *args)\n"
            "import swift.trainers.trainer_factory as factory\n"
            "factory.TrainerFactory.get_trainer_cls = classmethod(lambda *_: Mine)\n"
        ))  # fmt: skip
        done = run(plugin=plugin)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"HookError: \S+Mine is about to learn without the credit: \S+Mine has a _postprocess_batch of its own")


class Refused(unittest.TestCase):
    def made(self, **options):
        """What _check_trainer reads of a trainer that it takes."""
        template = types.SimpleNamespace(padding_free=options.pop("padding_free", False), sequence_parallel_size=options.pop("parallel", 1))
        right = dict(loss_type="grpo", use_liger_loss=False, off_policy_sequence_mask_delta=None, kl_in_reward=False, beta=0.04)
        return types.SimpleNamespace(template=template, **{**right, **options})

    def test_configurations(self):
        ms_swift._check_trainer(self.made(), CREDIT)
        ms_swift._check_trainer(self.made(kl_in_reward=True), CREDIT)
        for options, credit, message in (
            (dict(loss_type="real"), CREDIT, 'loss_type is "real", want one of .grpo sapo'),
            (dict(loss_type="fipo"), CREDIT, 'loss_type is "fipo", want one of .grpo sapo'),
            (dict(use_liger_loss=True), CREDIT, "use_liger_kernel=True takes one advantage per completion"),
            (dict(off_policy_sequence_mask_delta=0.1), CREDIT, "off_policy_sequence_mask_delta takes completions out of the loss"),
            (dict(padding_free=True), CREDIT, "padding_free=True joins the rows"),
            (dict(parallel=2), CREDIT, "sequence_parallel_size above 1"),
            (dict(kl_in_reward=True), Credit("rloo"), "kl_in_reward=True puts a penalty into .* in whose place rloo makes others"),
            (dict(beta=0), Credit(beta=1.0, signal="log_ratio"), "reads ref_logprobs, for which ms-swift needs a reference"),
        ):
            with self.subTest(**options), self.assertRaisesRegex(ValueError, message):
                ms_swift._check_trainer(self.made(**options), credit)

    def test_batches(self):
        batch = {"grpo_batch": mock.Mock(teacher_per_token_logps=[])}
        for options, message in ((dict(dynamic_num_samples=True), "splits trajectories"), (dict(dynamic_num_samples=False), "a teacher makes")):
            with self.assertRaisesRegex(HookError, message):
                ms_swift._credited(mock.Mock(**options), [batch], CREDIT, None)

    def test_credits(self):
        for credit, message in (
            (Credit("rlsd"), "ms-swift does this by --advantage_reweight rlsd"),
            (Credit("fipo"), "ms-swift does this by --loss_type fipo"),
            (Credit("cispo"), "a loss: ms-swift has its own, which --loss_type"),
            (Credit("turn_returns"), "reads span_rewards, the rewards of turns, of which ms-swift hands on the sum alone: TRL, verl, NeMo RL, prime-rl, SkyRL and Tinker"),
            (Credit("measured"), "ms-swift does not audit a run"),
            (Credit(beta=1.0, signal="energy"), "which ms-swift does not keep"),
        ):
            with self.subTest(credit.scheme), self.assertRaisesRegex(InputError, message):
                ms_swift.install(credit)
        with self.assertRaisesRegex(TypeError, "^credit is .*, want a Credit$"):
            ms_swift.install("rloo")

    def test_elsewhere(self):
        """The trainers of ms-swift on Megatron and Ray, which import more than is installed here."""
        for name, kind in (("swift.megatron.trainers.grpo_trainer", "MegatronGRPOTrainer"), ("swift.ray.megatron.grpo_trainer", "GRPOTrainer")):
            path = Path(importlib.util.find_spec("swift").origin).parent.joinpath(*name.split(".")[1:]).with_suffix(".py")
            self.assertRegex(path.read_text(), rf"(?m)^class {kind}\(")
            module = types.ModuleType(name)
            setattr(module, kind, type(kind, (), {"__init__": lambda self: None}))
            with mock.patch.dict(sys.modules, {name: module}), self.assertRaisesRegex(HookError, "where reweight does not reach them"):
                ms_swift._refuse(name, kind)
                getattr(module, kind)()


if __name__ == "__main__":
    unittest.main()
