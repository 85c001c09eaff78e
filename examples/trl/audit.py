"""GRPO of a tiny model, from scratch on a CPU, with an audit of every second batch. See README.md."""

import argparse
import os
import random

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback
from trl import GRPOConfig

from reweight.adapters import Credit
from reweight.adapters.trl import GRPOTrainer

COLOURS = ["red", "blue", "green", "black"]
THOUGHTS = ["perhaps", "surely", "it", "is", "maybe", "so"]
WORDS = ["<pad>", "<end>", "<other>", "<answer>", "</answer>", *COLOURS, *THOUGHTS]


def words():
    """A tokenizer whose tokens are words."""
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<other>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<end>", unk_token="<other>")


def imitator(tokenizer, turns=1):
    """A model that has learned the form of some turns, two colours, a few thoughts and any colour between tags, and not which
    one is right."""
    torch.manual_seed(0)
    chance = random.Random(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(WORDS), hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4,
            max_position_embeddings=64 * turns, pad_token_id=0, bos_token_id=1, eos_token_id=1,
        )  # fmt: skip
    )
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(60):
        texts = []
        for _ in range(32):
            said = []
            for _ in range(turns):
                thoughts = chance.choices(THOUGHTS, k=chance.randint(2, 5))
                said += [*chance.choices(COLOURS, k=2), *thoughts, "<answer>", chance.choice(COLOURS), "</answer> <end>"]
            texts.append(" ".join(said))
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        model(**batch, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def reward(prompts, completions, **_):
    """1 for the second colour of the prompt between tags, 0.2 for another one."""
    found = []
    for prompt, completion in zip(prompts, completions):
        answer = completion.partition("<answer> ")[2].partition(" </answer>")[0]
        found.append(1.0 if answer == prompt.split()[1] else 0.2 * (answer in COLOURS))
    return found


def main(arguments=None):
    parser = argparse.ArgumentParser(description="GRPO of a tiny model with audits.")
    parser.add_argument("--scheme", default="uniform", help="of the credit: uniform changes nothing, measured follows the audits (%(default)s)")
    parser.add_argument("--steps", type=int, default=10, help="of training (%(default)s)")
    parser.add_argument("--out", default="out/audit", help="the folder of the pages (%(default)s)")
    options = parser.parse_args(arguments)
    tokenizer = words()
    trainer = GRPOTrainer(
        credit=Credit(options.scheme, audit_every=2, dir=options.out),
        model=imitator(tokenizer),
        processing_class=tokenizer,
        reward_funcs=reward,
        train_dataset=Dataset.from_dict({"prompt": [f"{a} {b}" for a in COLOURS for b in COLOURS]}),
        args=GRPOConfig(
            options.out, max_steps=options.steps, per_device_train_batch_size=64, num_generations=8, max_completion_length=12,
            learning_rate=1e-4, use_cpu=True, bf16=False, save_strategy="no", logging_steps=1, report_to=[], disable_tqdm=True, seed=1,
        ),
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    for entry in trainer.state.log_history:
        found = {name.rpartition("/")[2]: x for name, x in entry.items() if name.startswith("credit/audit/")}
        if "prompts" in found:
            print(entry["step"], f"reward {entry['reward']:.3g}", *(f"{name} {x:.3g}" for name, x in found.items()))


if __name__ == "__main__":
    main()
