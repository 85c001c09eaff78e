"""Training of the language model of words.py in TRL, by the weights that the audit compares: the study of plan-train.md.

    PYTHONPATH=lib $python studies/words/train.py words    # goes on where it was stopped: words/train.csv
    PYTHONPATH=lib $python studies/words/train.py words 3  # three runs, and no more

Only the last blocks of the model are trained. A run of a seed has the same questions as the other runs of this seed, and
the same random numbers. It is written when it ends: a line for each step.
"""

import csv
import dataclasses
import os
import pathlib
import random
import sys
import tempfile
import time

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # TRL calls rollout_func experimental

import torch
import transformers
from datasets import Dataset
from reweight.adapters import Credit
from reweight.adapters.trl import GRPOTrainer
from reweight.torch import linear_token_stats
from trl import GRPOConfig
from words import BLOCKS, IN_FORMAT, Model, questions, reward

STEPS, QUESTIONS, ANSWERS = 30, 2, 16
TRAINING = 5  # a purpose of chance, beside those of words.py
RATES = (1e-3, 3e-4, 1e-4, 3e-5)  # of which the first three are tried
CREDITS = {
    "uniform": Credit("uniform"),
    "actfocus": Credit("actfocus", alpha=0.1, beta=0.5, tags_as="reasoning"),
    "alpha 0.3, tags 1": Credit("actfocus"),
    "measured": Credit("measured", audit_every=2),
    "uniform, twice the answers": Credit("uniform"),
}
FIELDS = ("scheme", "rate", "seed", "step", "reward", "in_format", "tokens")


class Trainer(GRPOTrainer):
    """TRL's trainer, which computes what is frozen once, when the answers are drawn: self.tree. On a CPU TRL computes prompt and
    answer anew for each answer, and the head at all tokens of these."""

    def _get_per_token_logps_and_entropies(
        self, model, input_ids, attention_mask, logits_to_keep, batch_size=None, compute_entropy=False, **_
    ):
        tree, base, prompt = self.tree, self.model.model, input_ids.shape[1] - logits_to_keep
        drawn, of = {}, torch.zeros(len(input_ids), logits_to_keep, dtype=torch.long)  # tokens behind nodes, by number
        for row, (ids, there) in enumerate(zip(input_ids.tolist(), attention_mask.tolist())):
            node = -1
            for t in filter(there.__getitem__, range(len(ids))):
                if t >= prompt:
                    of[row, t - prompt] = drawn.setdefault((node, ids[t]), len(drawn))
                node = tree.nodes.get((node, ids[t]))  # nothing goes on behind a last token, which is none
        hidden = base.norm(tree.blocks(slice(-BLOCKS, None), tree.read))
        behind, ids = (torch.tensor(x) for x in zip(*drawn))
        logprobs, entropy = linear_token_stats(hidden[behind], self.model.lm_head.weight, ids, entropy=compute_entropy, chunk=1 << 16)
        return logprobs[of], entropy[of] if compute_entropy else None, None


def asked(model, seed):
    """Returns the questions of each step: of those that were answered right and wrong, such as have prompts of one length."""
    with open(pathlib.Path(__file__).with_name("prompts.csv"), encoding="utf-8") as file:
        both = [row["question"] for row in csv.DictReader(file) if 0 < int(row["right"]) < int(row["answers"])]
    by_length = {}
    for question in both:
        by_length.setdefault(len(model.prompt(question)), []).append(question)
    chance, steps = random.Random(seed), []
    while len(steps) < STEPS:
        for alike in by_length.values():
            chance.shuffle(alike)
            steps += [alike[k : k + QUESTIONS] for k in range(0, len(alike) - QUESTIONS + 1, QUESTIONS)]
    chance.shuffle(steps)
    return steps[:STEPS]


def run(scheme, rate, seed):
    """Trains, and returns a row of FIELDS for each step."""
    model, right, rows = Model(), dict(questions()), []
    steps = asked(model, seed)
    answers = ANSWERS * 2 if scheme.endswith("twice the answers") else ANSWERS
    del model.model.config.quantization_config  # the weights are float32, and transformers trains no quantized model
    policy = transformers.AutoModelForCausalLM.from_config(model.model.config)
    policy.load_state_dict(model.model.state_dict())
    model.model = policy
    policy.requires_grad_(False)
    for block in policy.model.layers[-BLOCKS:]:
        block.requires_grad_(True)

    def play(texts, trainer):
        step = len(rows)
        assert list(texts) == [text for text in steps[step] for _ in range(answers)]
        policy.eval()
        drawn = model.sample([model.prompt(text) for text in steps[step]], answers, TRAINING * 10**6 + 1000 * seed + step)
        policy.train()
        trainer.tree = model.tree
        ids = [answer[0] for answer in drawn]
        said = ["".join(model.texts(one)) for one in ids]
        rewards = [reward(text, right[question]) for text, question in zip(said, texts)]
        of = len(said)
        rows.append((scheme, f"{rate:g}", seed, step, f"{sum(rewards) / of:.4f}",
                     f"{sum(bool(IN_FORMAT.match(text)) for text in said) / of:.4f}", f"{sum(map(len, ids)) / of:.2f}"))  # fmt: skip
        return {"prompt_ids": [model.prompt(text) for text in texts], "completion_ids": ids, "logprobs": None, "rewards": rewards}

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            credit=dataclasses.replace(CREDITS[scheme], dir=folder), model=policy, processing_class=model.tokenizer, rollout_func=play,
            reward_funcs=lambda rewards, **_: rewards,
            train_dataset=Dataset.from_dict({"prompt": [text for step in steps for text in step]}),
            args=GRPOConfig(
                folder, max_steps=STEPS, per_device_train_batch_size=QUESTIONS * answers, num_generations=answers,
                learning_rate=rate, lr_scheduler_type="constant", shuffle_dataset=False, bf16=False,
                activation_checkpointing=False, save_strategy="no", report_to="none", disable_tqdm=True, seed=seed,
            ),
        )  # fmt: skip
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    return rows


def runs(done):
    """Returns all runs; those after the rates when these are done: rates are tried with seed 0 and uniform weights."""
    tried = [("uniform", f"{rate:g}", 0) for rate in RATES[:3]]
    if any(key not in done for key in tried):
        return tried
    best = max(tried, key=lambda key: done[key])
    k = [f"{rate:g}" for rate in RATES].index(best[1])
    both = [f"{rate:g}" for rate in RATES[k : k + 2]]
    return tried + [
        (scheme, rate, seed)
        for seed in (1, 2, 3, 4)
        for rate in both
        for scheme in CREDITS
        if rate != both[0] or not scheme.endswith("twice the answers")
    ]


def main(folder, most=10**6):
    path = pathlib.Path(folder) / "train.csv"
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.write_text(",".join(FIELDS) + "\n", encoding="utf-8")
    while True:
        with open(path, encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        done = {}
        for row in rows:
            key = row["scheme"], row["rate"], int(row["seed"])
            done[key] = done.get(key, 0) + float(row["reward"])
        left = [key for key in runs(done) if key not in done]
        if not left or most == 0:
            return
        begin = time.perf_counter()
        made = run(left[0][0], float(left[0][1]), left[0][2])
        with open(path, "a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(made)
        print(*left[0], f"{time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
        most -= 1


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
