"""Measures what an adapter costs a trainer: the time and the memory of token_advantages.

    python python/measure/multiplier.py [--rounds 41]

256 trajectories of 4,096 tokens, of which 452 of each 512 are a response; tags that are strings, each written by three or
four tokens, one action in every response; ActFocus and AEM, with and without the scalars of the log, in turns. The first call
decodes each token id once. Memory is the most that NumPy and Python had allocated during a call, beside the arguments.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
from typing import Dict, Optional

import numpy as np

from reweight.adapters import token_advantages
from rollouts import SHAPE, TRAJECTORIES, Tokenizer, rollouts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=41)
    rounds = parser.parse_args().rounds
    g = np.random.default_rng(0)
    ids, mask = rollouts(g)
    arrays = {
        "token_ids": ids,
        "old_logprobs": -g.gamma(1.0, 1.0, SHAPE).astype(np.float32),
        "entropy": g.gamma(2.0, 0.5, SHAPE).astype(np.float32),
        "group_ids": np.arange(TRAJECTORIES) // 8,
    }
    advantages, tokenizer = g.normal(size=SHAPE).astype(np.float32), Tokenizer()

    def seconds(log: Optional[Dict[str, float]]) -> float:
        start = time.perf_counter()
        token_advantages(advantages, mask, tokenizer=tokenizer, log=log, **arrays)
        return time.perf_counter() - start

    print(f"first call       {seconds({}) * 1e3:6.1f} ms")
    times = [(seconds(None), seconds({})) for _ in range(rounds)]
    for name, column in zip(("without the log ", "with the log    "), zip(*times)):
        print(f"{name} {statistics.median(column) * 1e3:6.1f} ms, median of {rounds}")
    tracemalloc.start()
    seconds({})
    peak, size = tracemalloc.get_traced_memory()[1], sum(x.nbytes for x in (mask, advantages, *arrays.values()))
    print(f"memory           {peak / 1e6:6.1f} MB, {peak / size:.2f} times the arguments")


if __name__ == "__main__":
    main()
