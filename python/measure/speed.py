"""Measures this package against PyTorch on CPU tensors, side by side in one process.

    python python/measure/speed.py [--rounds 25] [--rows 32]

Ours and PyTorch's way take turns, and who goes first changes from round to round. A round
gives the ratio of PyTorch's time to ours: at 3, ours takes a third of the time. The table
has the median of the ratios and, in brackets, the order statistics between which the true
median lies with 95% confidence. The time of one thread is that of the CPU, so that other
processes do not count; the time of several threads is that of the clock on the wall.
"""

from __future__ import annotations

import argparse
import functools
import math
import statistics
import time
from typing import Any, Callable, List, Optional, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import reweight
import reweight.torch
from reweight import _library
from forms import FORMS, machine, pick

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
Step = Callable[[], object]


class Way:
    """Something to be timed. before is called, untimed, before each call of step."""

    def __init__(self, step: Step, before: Optional[Step] = None) -> None:
        self.step, self.before = step, before

    def seconds(self, calls: int) -> float:
        """The time of a call, by as many calls."""
        clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
        if self.before is None:
            begin = clock()
            for _ in range(calls):
                self.step()
            return (clock() - begin) / calls
        total = 0.0
        for _ in range(calls):
            self.before()
            total -= clock()
            self.step()
            total += clock()
        return total / calls

    def calls(self, turn: float) -> int:
        """How many calls take that many seconds."""
        n = 1
        while self.seconds(n) * n < turn:
            n *= 2
        return n


def compare(name: str, ours: Way, theirs: Way, a: argparse.Namespace) -> None:
    """Has both take turns, and prints a line of the table."""
    turn = a.turn / 1000
    n, m = ours.calls(turn), theirs.calls(turn)
    times, ratios = [], []
    for i in range(a.rounds):
        if i % 2 == 0:
            t, u = ours.seconds(n), theirs.seconds(m)
        else:
            u, t = theirs.seconds(m), ours.seconds(n)
        times.append(t)
        ratios.append(u / t)
    middle, low, high = interval(ratios)
    print(f"{name:54}{micros(statistics.median(times)):>12}{middle:9.2f}  [{low:.2f}, {high:.2f}]", flush=True)


def interval(ratios: List[float]) -> Tuple[float, float, float]:
    """The median, and the order statistics that hold the true one in 95 of 100 cases."""
    n, x = len(ratios), sorted(ratios)
    k, most = 0, math.comb(n, 0) / 2**n  # the probability that at most k of n lie below the true median
    while most + math.comb(n, k + 1) / 2**n <= 0.025:
        k += 1
        most += math.comb(n, k) / 2**n
    return statistics.median(x), x[k], x[n - 1 - k]


def micros(seconds: float) -> str:
    return f"{seconds * 1e6:,.2f} us" if seconds < 1e-4 else f"{seconds * 1e3:,.2f} ms"


def head(title: str) -> None:
    print(f"\n{title}\n{'':54}{'ours':>12}{'ratio':>9}  [95%]")


def calls(a: argparse.Namespace) -> None:
    """What one call costs, by a row that is so short that its arithmetic is nothing."""
    x, y = np.zeros((1, 16), np.float32), np.zeros(1, np.int32)
    tx, ty = torch.zeros(1, 16), torch.zeros(1, dtype=torch.int64)
    theirs = Way(lambda: pick(F.log_softmax(tx, -1), ty))
    has_isa = _library._lib.reweight_has_isa
    head("One call, one row of 16 logits; PyTorch's is log_softmax and gather")
    with torch.no_grad():
        compare("a bare ctypes call of the library", Way(lambda: has_isa(1)), theirs, a)
        compare("token_stats, NumPy", Way(lambda: reweight.token_stats(x, y)), theirs, a)
        compare("token_stats, PyTorch", Way(lambda: reweight.token_stats(tx, ty)), theirs, a)
        compare("reweight.torch.token_stats, no gradient", Way(lambda: reweight.torch.token_stats(tx, ty)), theirs, a)


def rowwise(logits: Tensor, ids: Tensor) -> Tuple[Tensor, Tensor]:
    """Both, a row at a time, so that PyTorch's temporaries stay in the cache."""
    logprobs, entropy = torch.empty(len(logits)), torch.empty(len(logits))
    for i, x in enumerate(logits):
        l = F.log_softmax(x.float(), -1)
        logprobs[i] = l[ids[i]]
        entropy[i] = torch.dot(l.exp(), l).neg_()
    return logprobs, entropy


# The strongest rival: PyTorch's compiler makes one pass or two of each.
compiled_logprobs = torch.compile(lambda x, y: -F.cross_entropy(x.float(), y, reduction="none"), dynamic=False)
compiled_both = torch.compile(lambda x, y: FORMS["log_softmax"](x.float(), y), dynamic=False)


def rows(a: argparse.Namespace, dtype: torch.dtype, vocab: int) -> None:
    """Statistics of rows of logits, and their gradients."""
    source = (torch.randn(a.rows, vocab) * 3).to(dtype)
    y = torch.randint(vocab, (a.rows,))
    x = source.clone()
    stats = reweight.torch.token_stats
    forms = {**{name: form for name, form in FORMS.items() if name != "reweight"}, "log_softmax, compiled": compiled_both}
    with torch.no_grad():
        ours = Way(lambda: stats(x, y, entropy=False))
        for name, way in {
            "log_softmax and gather": lambda: pick(F.log_softmax(x, -1), y),
            "gather - logsumexp": lambda: pick(x, y) - torch.logsumexp(x, -1),
            "cross_entropy": lambda: F.cross_entropy(x, y, reduction="none"),
            "cross_entropy, compiled": lambda: compiled_logprobs(x, y),
        }.items():
            compare("log-probability / " + name, ours, Way(way), a)
        ours = Way(lambda: stats(x, y))
        for name, form in forms.items():
            compare("both / " + name, ours, Way(functools.partial(form, x, y)), a)
        compare("both / log_softmax, a row at a time", ours, Way(lambda: rowwise(x, y)), a)

    def restore() -> Tensor:  # ours overwrites x
        return x.copy_(source)

    ours = Way(lambda: backward(*stats(root(x), y)), restore)
    for name, form in forms.items():
        compare("both and backward / " + name, ours, Way(lambda: backward(*form(root(x), y)), restore), a)
    ours = Way(lambda: backward(stats(root(x), y, entropy=False)[0]), restore)
    theirs = Way(lambda: backward(pick(F.log_softmax(root(x), -1), y)), restore)
    compare("log-probability and backward / log_softmax", ours, theirs, a)
    theirs = Way(lambda: backward(F.cross_entropy(root(x), y, reduction="none")), restore)
    compare("log-probability and backward / cross_entropy", ours, theirs, a)
    theirs = Way(lambda: backward(compiled_logprobs(root(x), y)), restore)
    compare("log-probability and backward / cross_entropy, compiled", ours, theirs, a)


class _Root(torch.autograd.Function):
    """Gives a tensor a gradient without an operation on it."""

    @staticmethod
    def forward(ctx: Any, handle: Tensor, x: Tensor) -> Tensor:
        return x.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad.new_zeros(()), None


def root(x: Tensor) -> Tensor:
    result: Tensor = _Root.apply(torch.zeros((), requires_grad=True), x)
    return result


def backward(logprobs: Tensor, entropy: Optional[Tensor] = None) -> None:
    loss = logprobs.float().mean()
    if entropy is not None:
        loss = loss + 0.01 * entropy.float().mean()
    loss.backward()


def linear(a: argparse.Namespace, dtype: torch.dtype, vocab: int, hidden: int) -> None:
    """The LM head in chunks against PyTorch with all logits."""
    x = torch.randn(a.rows, hidden).to(dtype).requires_grad_()
    weight = (torch.randn(vocab, hidden) / hidden**0.5).to(dtype).requires_grad_()
    y = torch.randint(vocab, (a.rows,))

    def clear() -> None:
        x.grad = weight.grad = None

    def ours() -> None:
        backward(*reweight.torch.linear_token_stats(x, weight, y))

    def theirs() -> None:
        backward(*FORMS["log_softmax"](x @ weight.t(), y))

    with torch.no_grad():
        forward = Way(lambda: reweight.torch.linear_token_stats(x, weight, y))
        compare("forward / log_softmax", forward, Way(lambda: FORMS["log_softmax"](x @ weight.t(), y)), a)
    compare("forward and backward / log_softmax", Way(ours, clear), Way(theirs, clear), a)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--rows", type=int, default=32, help="rows of logits")
    parser.add_argument("--turn", type=float, default=20, help="the least milliseconds of a turn")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--vocab", type=int, nargs="+", default=[151936, 32000])
    a = parser.parse_args()
    torch.manual_seed(0)
    print(machine())
    print(f"{a.rows} rows, {a.rounds} rounds; a line names what it compares with after the stroke")
    torch.set_num_threads(1)
    calls(a)
    for threads in a.threads:
        torch.set_num_threads(threads)
        where = "1 thread" if threads == 1 else f"{threads} threads"
        for name, dtype in DTYPES.items():
            for vocab in a.vocab:
                head(f"Rows of logits: {name}, V = {vocab}, {where}")
                rows(a, dtype, vocab)
            head(f"LM head: {name}, H = 512, V = 32000, {where}")
            linear(a, dtype, 32000, 512)


if __name__ == "__main__":
    main()
