"""GRPO of a tiny model, from scratch on a CPU, on a game of three turns that each have a reward. See README.md."""

import argparse
import os
import random
import statistics

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # TRL calls rollout_func experimental

from audit import COLOURS, imitator, words
from datasets import Dataset
from game import sample
from transformers import PrinterCallback
from trl import GRPOConfig

from reweight.adapters import Credit
from reweight.adapters.trl import GRPOTrainer

TURNS = 3


def play(prompts, trainer):
    """TRL's rollout_func: in each turn the game says two colours, and the second one is the right answer. A group of games
    has the same colours."""
    tokenizer, first = trainer.processing_class, 0
    pairs = [[prompt.split()] for prompt in prompts]
    for i, prompt in enumerate(prompts):
        first = i if prompt != prompts[first] else first
        chance = random.Random(f"{trainer.state.global_step} {first}")
        pairs[i] += [chance.choices(COLOURS, k=2) for _ in range(TURNS - 1)]
    ids = [tokenizer(prompt)["input_ids"] for prompt in prompts]
    completions, masks, rewards = [[] for _ in prompts], [[] for _ in prompts], [[] for _ in prompts]
    for turn in range(TURNS):
        for i, of_game in enumerate(pairs):
            said = tokenizer(" ".join(of_game[turn]))["input_ids"] if turn else []
            completions[i] += said
            masks[i] += [0] * len(said)
        for i, answer in enumerate(sample(trainer, [a + b for a, b in zip(ids, completions)])):
            completions[i] += answer
            masks[i] += [1] * len(answer)
            text = tokenizer.decode(answer).partition("<answer> ")[2].partition(" </answer>")[0]
            rewards[i].append(float(text == pairs[i][turn][1]))
    return {"prompt_ids": ids, "completion_ids": completions, "logprobs": None, "env_mask": masks, "turn_rewards": rewards}


def main(arguments=None):
    parser = argparse.ArgumentParser(description="GRPO of a tiny model on a game of three turns.")
    parser.add_argument("--sums", action="store_true", help="the sum of a game's rewards in the place of those of its turns")
    parser.add_argument("--steps", type=int, default=40, help="of training (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="(%(default)s)")
    parser.add_argument("--out", help="the folder of the pages (default: out/turns or out/sums)")
    options = parser.parse_args(arguments)
    out = options.out or ("out/sums" if options.sums else "out/turns")
    tokenizer = words()

    def reward(turn_rewards, **_):
        return [sum(rewards) for rewards in turn_rewards] if options.sums else turn_rewards

    trainer = GRPOTrainer(
        credit=Credit("uniform" if options.sums else "turn_returns", show_every=10, save_every=10, dir=out),
        model=imitator(tokenizer, TURNS),
        processing_class=tokenizer,
        rollout_func=play,
        reward_funcs=reward,
        train_dataset=Dataset.from_dict({"prompt": [f"{a} {b}" for a in COLOURS for b in COLOURS]}),
        args=GRPOConfig(
            out, max_steps=options.steps, per_device_train_batch_size=64, num_generations=8, learning_rate=3e-4, use_cpu=True,
            bf16=False, scale_rewards="none", save_strategy="no", logging_steps=1, report_to=[], disable_tqdm=True, seed=options.seed,
        ),
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    trainer.save_model(f"{out}/model")
    rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    for i in range(0, len(rewards), 10):
        print(f"steps {i + 1} to {min(i + 10, len(rewards))}: {statistics.mean(rewards[i : i + 10]):.2f} right answers of {TURNS}")


if __name__ == "__main__":
    main()
