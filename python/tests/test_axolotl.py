"""reweight.adapters.axolotl: steps of axolotl's trainer with its plugin. TRAINERS.md says how to run this."""

import contextlib
import importlib.util
import io
import os
import tempfile
import unittest
import warnings

if importlib.util.find_spec("axolotl") is None:
    raise unittest.SkipTest("axolotl is not installed")

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
warnings.simplefilter("ignore")
import numpy as np
import torch
from axolotl.core.trainers.grpo.args import AxolotlGRPOConfig
from axolotl.core.trainers.grpo.trainer import AxolotlAsyncGRPOTrainer, AxolotlGRPOContextParallelTrainer, AxolotlGRPOTrainer
from axolotl.integrations.base import PluginManager
from axolotl.utils.dict import DictDefault
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOTrainer

from reweight.adapters import HookError

CONFIGURATION = {"scheme": "actfocus", "tags": [[2], [3]], "alpha": 0.2}


class Steps(unittest.TestCase):
    def setUp(self):
        self.manager = PluginManager.get_instance()
        self.manager.register("reweight.adapters.axolotl.Plugin")
        # trl.install replaces these methods of the class.
        before = {name: vars(GRPOTrainer)[name] for name in ("__init__", "_generate_and_score_completions")}
        self.addCleanup(lambda: [setattr(GRPOTrainer, name, method) for name, method in before.items()])

    def test_steps(self):
        """Two steps, in which actions have five times the weight of reasoning."""
        self.assertEqual(self.manager.get_input_args()[-1], "reweight.adapters.axolotl.Options")
        self.manager.pre_model_load(DictDefault(reweight=CONFIGURATION))
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as said:
            torch.manual_seed(0)
            size = dict(vocab_size=8, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
            ends = dict(num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, eos_token_id=1, bos_token_id=1)
            LlamaForCausalLM(LlamaConfig(**size, **ends)).save_pretrained(folder)
            vocabulary = models.WordLevel({f"w{i}": i for i in range(8)}, unk_token="w4")
            names = dict(pad_token="w0", eos_token="w1", unk_token="w4")
            args = AxolotlGRPOConfig(
                output_dir=folder, per_device_train_batch_size=8, num_generations=4, max_completion_length=20, report_to=[],
                use_cpu=True, bf16=False, max_steps=2, logging_steps=1, gradient_checkpointing=False, save_strategy="no",
                loss_type="dapo",
            )  # fmt: skip
            made = AxolotlGRPOTrainer(
                model=folder, reward_funcs=lambda completion_ids, **_: [float(len(set(ids))) for ids in completion_ids], args=args,
                train_dataset=Dataset.from_list([{"prompt": "w5"}] * 16),
                processing_class=PreTrainedTokenizerFast(tokenizer_object=Tokenizer(vocabulary), **names),
            )  # fmt: skip
            self.manager.post_trainer_create(None, made)
            outputs, generate = [], made._generate_and_score_completions
            made._generate_and_score_completions = lambda inputs: outputs.append(generate(inputs)) or outputs[-1]
            made.train()
        self.assertRegex(said.getvalue(), r"reweight: in TRL \S+, dapo \(token_mean\): ActFocus with alpha 0.2 \(\d+ action tokens")
        logged = [step["credit/actions"] for step in made.state.log_history if "credit/actions" in step]
        self.assertEqual(len(logged), 2)
        for output, actions in zip(outputs, logged):
            A, mask, ids = (output[name].numpy() for name in ("advantages", "completion_mask", "completion_ids"))
            action = np.zeros(mask.shape, bool)
            for b, row in enumerate(ids):
                opened = None
                for t in np.flatnonzero(mask[b]):
                    opened = t if row[t] == 2 else opened
                    if row[t] == 3 and opened is not None:
                        action[b, opened : t + 1], opened = True, None
            self.assertEqual(action.sum(), actions)
            for b in np.flatnonzero(action.any(1) & (np.abs(A).max(1) > 0)):
                thought = (mask[b] != 0) & ~action[b]
                if thought.any():
                    np.testing.assert_allclose(A[b][action[b]] * 0.2, A[b][thought][0], rtol=1e-5)

    def test_refused(self):
        for kind in AxolotlAsyncGRPOTrainer, AxolotlGRPOContextParallelTrainer:
            with self.assertRaisesRegex(HookError, f"^{kind.__name__} of axolotl computes its advantages where"):
                self.manager.post_trainer_create(None, object.__new__(kind))
        with self.assertRaisesRegex(ValueError, r"^reweight\.alph is no option"):
            self.manager.pre_model_load(DictDefault(reweight={"alph": 1}))


if __name__ == "__main__":
    unittest.main()
