"""Measures what the adapter adds to a step of OpenRLHF, in the environment of python/pins/openrlhf.txt:

    python python/measure/openrlhf_step.py [--rounds 11]

What follows RemoteExperienceMaker.compute_advantages_and_returns, on OpenRLHF's Experiences: 256 trajectories of 4,096
tokens in micro-batches of 8, of which 452 of each 512 are a response, tags that are strings, ActFocus and AEM.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "openrlhf_cpu"))  # in the place of vLLM
import numpy as np
import torch
from openrlhf.trainer.ppo_utils.experience import Experience

from reweight.adapters import Credit, Report, openrlhf

TRAJECTORIES, TOKENS, TURN, RESPONSE, MICRO = 256, 4096, 512, 452, 8
WORDS = ["<", "/", "answer", ">", *(f" w{i}" for i in range(49148))]


class Tokenizer:
    """A vocabulary in which tags are no tokens of their own."""

    def decode(self, ids):
        return "".join(WORDS[i] for i in ids)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    rounds = parser.parse_args().rounds
    g, shape = np.random.default_rng(0), (TRAJECTORIES, TOKENS)
    ids = np.minimum(4 + (20 * g.pareto(1.0, (TRAJECTORIES, TOKENS + 1))).astype(np.int64), len(WORDS) - 1)
    mask = np.zeros(shape, np.int64)
    for begin in range(0, TOKENS, TURN):
        mask[:, begin : begin + RESPONSE] = 1
        ids[:, begin + RESPONSE - 19 : begin + RESPONSE - 16] = [0, 2, 3]
        ids[:, begin + RESPONSE - 3 : begin + RESPONSE + 1] = [0, 1, 2, 3]
    old = -g.gamma(1.0, 1.0, shape).astype(np.float32)
    credit = Credit(entropy="surprisal")
    actor = SimpleNamespace(policy_loss_type="ppo", loss_agg_mode="token-mean")
    args = SimpleNamespace(actor=actor, rollout=SimpleNamespace(n_samples_per_prompt=8))
    maker = SimpleNamespace(args=args, tokenizer=Tokenizer(), credit_report=Report(credit, "OpenRLHF"))
    times = []
    for _ in range(rounds + 1):
        experiences = [
            Experience(
                index=list(range(i, i + MICRO)), sequences=torch.from_numpy(ids[i : i + MICRO]), info={},
                action_mask=torch.from_numpy(mask[i : i + MICRO]), action_log_probs=torch.from_numpy(old[i : i + MICRO]),
                advantages=torch.ones(MICRO, TOKENS),
            )
            for i in range(0, TRAJECTORIES, MICRO)
        ]  # fmt: skip
        begin = time.perf_counter()
        openrlhf._multiply(maker, experiences, credit)
        times.append(time.perf_counter() - begin)
    print(f"{statistics.median(times[1:]) * 1e3:.0f} ms a step, the median of {rounds}; the first {times[0] * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
