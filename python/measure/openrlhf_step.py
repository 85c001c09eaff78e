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

from reweight.adapters import Credit, openrlhf
from reweight.adapters._report import Report
from rollouts import SHAPE, TOKENS, TRAJECTORIES, Tokenizer, rollouts

MICRO = 8


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    rounds = parser.parse_args().rounds
    g = np.random.default_rng(0)
    ids, mask = rollouts(g)
    sequences = np.concatenate([np.full((TRAJECTORIES, 1), 4), ids], axis=1)  # a token of the prompt comes first
    old = -g.gamma(1.0, 1.0, SHAPE).astype(np.float32)
    credit = Credit(entropy="surprisal")
    actor = SimpleNamespace(policy_loss_type="ppo", loss_agg_mode="token-mean")
    args = SimpleNamespace(actor=actor, rollout=SimpleNamespace(n_samples_per_prompt=8))
    maker = SimpleNamespace(args=args, tokenizer=Tokenizer(), credit_report=Report(credit, "OpenRLHF"))
    times = []
    for _ in range(rounds + 1):
        experiences = [
            Experience(
                index=list(range(i, i + MICRO)), sequences=torch.from_numpy(sequences[i : i + MICRO]), info={},
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
