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
from typing import Dict, List, Optional

import numpy as np

from reweight.adapters import token_advantages

TRAJECTORIES, TOKENS, TURN, RESPONSE = 256, 4096, 512, 452
WORDS = ["<", "/", "answer", ">", *(f" w{i}" for i in range(49148))]


class Tokenizer:
    """A vocabulary in which tags are no tokens of their own."""

    def decode(self, ids: List[int]) -> str:
        return "".join(WORDS[i] for i in ids)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=41)
    rounds = parser.parse_args().rounds
    g, shape = np.random.default_rng(0), (TRAJECTORIES, TOKENS)
    ids = np.minimum(4 + (20 * g.pareto(1.0, shape)).astype(np.int64), len(WORDS) - 1)
    mask = np.zeros(shape, np.int64)
    for begin in range(0, TOKENS, TURN):
        mask[:, begin : begin + RESPONSE] = 1
        ids[:, begin + RESPONSE - 20 : begin + RESPONSE - 17] = [0, 2, 3]
        ids[:, begin + RESPONSE - 4 : begin + RESPONSE] = [0, 1, 2, 3]
    arrays = {
        "token_ids": ids,
        "old_logprobs": -g.gamma(1.0, 1.0, shape).astype(np.float32),
        "entropy": g.gamma(2.0, 0.5, shape).astype(np.float32),
        "group_ids": np.arange(TRAJECTORIES) // 8,
    }
    advantages, tokenizer = g.normal(size=shape).astype(np.float32), Tokenizer()

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
