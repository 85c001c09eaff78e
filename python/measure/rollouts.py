"""What the measurements of adapters share: rollouts in which tags are strings, each of three or four tokens."""

from __future__ import annotations

from typing import List, Tuple

import numpy as np

TRAJECTORIES, TOKENS, TURN, RESPONSE = 256, 4096, 512, 452
SHAPE = TRAJECTORIES, TOKENS
WORDS = ["<", "/", "answer", ">", *(f" w{i}" for i in range(49148))]


class Tokenizer:
    """A vocabulary in which tags are no tokens of their own."""

    def decode(self, ids: List[int]) -> str:
        return "".join(WORDS[i] for i in ids)


def rollouts(g: np.random.Generator) -> Tuple[np.ndarray, np.ndarray]:
    """Token ids, of which 452 of each 512 are a response with one action, and the mask of responses."""
    ids = np.minimum(4 + (20 * g.pareto(1.0, SHAPE)).astype(np.int64), len(WORDS) - 1)
    mask = np.zeros(SHAPE, np.int64)
    for begin in range(0, TOKENS, TURN):
        mask[:, begin : begin + RESPONSE] = 1
        ids[:, begin + RESPONSE - 20 : begin + RESPONSE - 17] = [0, 2, 3]
        ids[:, begin + RESPONSE - 4 : begin + RESPONSE] = [0, 1, 2, 3]
    return ids, mask
