"""What the measurements share: the ways of computing log-probability and entropy.

Each form takes logits [N, V] and ids [N], and returns log-probabilities [N] and entropies
[N]. Those of verl and TRL are written from their formulas.
"""

from __future__ import annotations

import functools
import platform
import re
from pathlib import Path
from typing import Callable, Dict, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

import reweight.torch

Form = Callable[[Tensor, Tensor], Tuple[Tensor, Tensor]]


def ours(logits: Tensor, ids: Tensor, inplace: bool = False) -> Tuple[Tensor, Tensor]:
    logprobs, entropy = reweight.torch.token_stats(logits, ids, inplace=inplace)
    assert entropy is not None
    return logprobs, entropy


def log_softmax(logits: Tensor, ids: Tensor) -> Tuple[Tensor, Tensor]:
    """The usual way: all log-probabilities at once."""
    l = F.log_softmax(logits, -1)
    return pick(l, ids), -(l.exp() * l).sum(-1)


def verl(logits: Tensor, ids: Tensor) -> Tuple[Tensor, Tensor]:
    """verl, logprobs_from_logits without flash-attn, and entropy_from_logits."""
    p = F.softmax(logits, -1)
    return by_logsumexp(logits, ids), torch.logsumexp(logits, -1) - (p * logits).sum(-1)


def verl_chunked(logits: Tensor, ids: Tensor, chunk: int = 2048) -> Tuple[Tensor, Tensor]:
    """verl, the same with entropy_from_logits_with_chunking."""
    entropy = torch.zeros(len(logits), device=logits.device)
    for i in range(0, len(logits), chunk):
        x = logits[i : i + chunk].float()
        p = F.softmax(x, -1)
        entropy[i : i + chunk] = torch.logsumexp(x, -1) - (p * x).sum(-1)
    return by_logsumexp(logits, ids), entropy


def trl(logits: Tensor, ids: Tensor, chunk: int = 128) -> Tuple[Tensor, Tensor]:
    """TRL, selective_log_softmax and entropy_from_logits."""
    entropies = []
    for x in logits.split(chunk):
        l = F.log_softmax(x, -1)
        entropies.append(-(l.exp() * l).sum(-1))
    return by_logsumexp(logits, ids), torch.cat(entropies)


def pick(x: Tensor, ids: Tensor) -> Tensor:
    return x.gather(-1, ids[:, None])[:, 0]


def by_logsumexp(logits: Tensor, ids: Tensor) -> Tensor:
    """Log-probabilities as verl and TRL have them: a row at a time, by log_softmax in bfloat16."""
    if logits.dtype == torch.float32:
        return pick(logits, ids) - torch.stack([torch.logsumexp(x, -1) for x in logits])
    return torch.stack([F.log_softmax(x, -1)[i] for x, i in zip(logits, ids)])


FORMS: Dict[str, Form] = {
    "reweight": ours,
    "reweight, in place": functools.partial(ours, inplace=True),
    "log_softmax": log_softmax,
    "verl": verl,
    "verl, chunked": verl_chunked,
    "TRL": trl,
}


def machine() -> str:
    """A line that says what runs the measurement."""
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    cpu = found[1] if found is not None else platform.machine()
    found = re.search(r"CPU capability usage: (\S+)", torch.__config__.show())
    capability = found[1] if found is not None else "unknown"
    return (
        f"{cpu}, reweight {reweight.__version__} by {reweight.best_isa()}, "
        f"PyTorch {torch.__version__} ({capability}), Python {platform.python_version()}"
    )
