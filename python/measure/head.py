"""Measures the LM head against its rivals, forward and backward with the weight trained, on the CPU.

    python python/measure/head.py [--hidden 576 2048] [--vocab 49152 151936] [--rows 512 2048] [--threads 1 2]

There are two tables for each size. In the first, log-probability and entropy are in the loss, and ours is
linear_token_stats, which computes the logits twice. In the second, the loss is the policy loss of reweight.torch, and
ours is linear_loss. A ratio is the time of the way to ours in the same round, all ways take turns in one process, and the
order is reversed every other round; the table has the median and, in brackets, the smallest and the largest. The time
of one thread is that of the CPU, that of several is of the clock on the wall. A way that takes more than --slow times
ours is not run again. Memory is what a process of its own needs at most, beyond arguments and gradients, in units of
the logits. Needs TRL; Liger's head has no kernels for a CPU.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from trl.kernels import ChunkedLogProbFunction

import reweight
from reweight.torch import linear_loss, linear_token_stats, loss, token_stats
from forms import log_softmax, machine, pick
from memory import DTYPES, peak

Way = Callable[[Tensor, Tensor, Tensor, reweight.Batch], Tensor]


def both(logprobs: Tensor, entropy: Any) -> Tensor:
    result: Tensor = -logprobs.float().mean() - 0.01 * entropy.float().mean()
    return result


def policy(logprobs: Tensor, batch: reweight.Batch) -> Tensor:
    return loss(logprobs.float(), batch)[0]


def trl(x: Tensor, w: Tensor, y: Tensor, outputs: Tuple[str, ...]) -> Tuple[Tensor, Tensor]:
    """TRL's head, with the chunk that its trainers give it."""
    result: Tuple[Tensor, Tensor] = ChunkedLogProbFunction.apply(x, w, None, y, 1.0, 32768, None, 1.0, outputs)[:2]
    return result


compiled_stats = torch.compile(lambda x, w, y: log_softmax((x @ w.t()).float(), y), dynamic=False)
compiled_logprobs = torch.compile(lambda x, w, y: pick(F.log_softmax((x @ w.t()).float(), -1), y), dynamic=False)
TABLES: Dict[str, Dict[str, Way]] = {
    "log-probability and entropy": {
        "linear_token_stats": lambda x, w, y, b: both(*linear_token_stats(x, w, y)),
        "plain head, token_stats": lambda x, w, y, b: both(*token_stats(x @ w.t(), y)),
        "TRL's ChunkedLogProbFunction": lambda x, w, y, b: both(*trl(x, w, y, ("entropy",))),
        "torch.compile of the plain head": lambda x, w, y, b: both(*compiled_stats(x, w, y)),
    },
    "policy loss": {
        "linear_loss": lambda x, w, y, b: linear_loss(x, w, y, b)[0],
        "linear_loss, all logits held": lambda x, w, y, b: linear_loss(x, w, y, b, memory=4 * len(x) * len(w))[0],
        "linear_token_stats, loss": lambda x, w, y, b: loss(linear_token_stats(x, w, y, entropy=False)[0], b)[0],
        "plain head, token_stats, loss": lambda x, w, y, b: policy(token_stats(x @ w.t(), y, entropy=False)[0], b),
        "plain head, cross_entropy, loss": lambda x, w, y, b: policy(-F.cross_entropy(x @ w.t(), y, reduction="none"), b),
        "TRL's ChunkedLogProbFunction, loss": lambda x, w, y, b: policy(trl(x, w, y, ())[0], b),
        "torch.compile of the plain head, loss": lambda x, w, y, b: policy(compiled_logprobs(x, w, y), b),
    },
}
if hasattr(F, "linear_cross_entropy"):  # of PyTorch 2.15

    def linear_cross_entropy(x: Tensor, w: Tensor, y: Tensor, b: reweight.Batch) -> Tensor:
        options = torch.nn.LinearCrossEntropyOptions()  # in chunks; without them it is the plain head
        return policy(-F.linear_cross_entropy(x, w, y, reduction="none", options=options), b)

    TABLES["policy loss"]["F.linear_cross_entropy, loss"] = linear_cross_entropy


def operands(rows: int, hidden: int, vocab: int, dtype: str) -> Tuple[Tensor, Tensor, Tensor, reweight.Batch]:
    torch.manual_seed(0)
    x = torch.randn(rows, hidden).to(DTYPES[dtype]).requires_grad_()
    w = (torch.randn(vocab, hidden) / hidden**0.5).to(DTYPES[dtype]).requires_grad_()
    old, advantages = torch.full((1, rows), -11.0), torch.randn(1, rows)
    role = torch.ones(1, rows, dtype=torch.uint8)
    batch = reweight.Batch(role=role[0], old_logprobs=old[0], advantages=advantages[0], seq_offsets=torch.tensor([0, rows]))
    return x, w, torch.randint(vocab, (rows,)), batch


def step(way: Way, x: Tensor, w: Tensor, y: Tensor, batch: reweight.Batch) -> None:
    way(x, w, y, batch).backward()


def seconds(way: Way, args: Any) -> float:
    args[0].grad = args[1].grad = None
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    begin = clock()
    step(way, *args)
    return clock() - begin


def one(a: argparse.Namespace) -> None:
    """Prints the peak memory of a way, in bytes."""
    torch.set_num_threads(a.threads[0])
    way = TABLES[a.table][a.way]
    args = operands(a.rows[0], a.hidden[0], a.vocab[0], a.dtype[0])
    if "compile" in a.way:  # for these sizes
        step(way, *args)
        args[0].grad = args[1].grad = None
    else:
        step(way, *operands(64, a.hidden[0], 1024, a.dtype[0]))
    print(peak(lambda: step(way, *args)) - sum(t.numel() * t.element_size() for t in args[:2]))


def memory(a: argparse.Namespace, table: str, way: str, *sizes: Any) -> float:
    names = ("--rows", "--hidden", "--vocab", "--dtype", "--threads")
    command = [sys.executable, __file__, "--table", table, "--way", way]
    command += [str(x) for pair in zip(names, (*sizes, a.threads[-1])) for x in pair]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout)


def table(a: argparse.Namespace, name: str, threads: int, used: Dict[str, float], *sizes: Any) -> None:
    """Has the ways take turns, and prints the table."""
    args, ways = operands(*sizes), TABLES[name]
    times: Dict[str, List[float]] = {way: [] for way in ways}
    for way, function in ways.items():
        if "compile" in way:  # before the rounds, so that the compiler's time is not taken for slowness
            step(function, *args)
    first = 0.0  # the time of ours
    for i in range(-1, a.rounds):  # the first is to warm up, and to see what is slow
        for way in list(times)[:: 1 if i % 2 else -1]:
            t = seconds(ways[way], args)
            if i >= 0:
                times[way].append(t)
            elif first and t > a.slow * first:
                print(f"    {way}: {t * 1e3:.0f} ms, once; {used[way]:.2f} of the logits")
                del times[way]
            else:
                first = first or t
    print(f"    {name + ', ms':44}{'median':>9}{'ratio':>8}  [min, max]{'of the logits':>18}")
    ours = times[next(iter(ways))]
    for way, ts in times.items():
        ratios = sorted(t / o for t, o in zip(ts, ours))
        spread = f"[{ratios[0]:.2f}, {ratios[-1]:.2f}]"
        print(
            f"    {way:44}{statistics.median(ts) * 1e3:9.0f}{statistics.median(ratios):8.2f}  {spread:14}"
            f"{used[way]:14.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, nargs="+", default=[576, 2048])
    parser.add_argument("--vocab", type=int, nargs="+", default=[49152, 151936])
    parser.add_argument("--rows", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--dtype", nargs="+", default=list(DTYPES), choices=list(DTYPES))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slow", type=float, default=4)
    for name in ("--table", "--way"):  # of a process that measures memory
        parser.add_argument(name, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.way is not None:
        return one(a)
    print(machine())
    for sizes in itertools.product(a.rows, a.hidden, a.vocab, a.dtype):
        rows, hidden, vocab, dtype = sizes
        logits = rows * vocab * torch.finfo(DTYPES[dtype]).bits // 8
        print(f"\n{rows} rows, H = {hidden}, V = {vocab}, {dtype}; logits {logits / 2**20:.0f} MiB", flush=True)
        used = {name: {way: memory(a, name, way, *sizes) / logits for way in ways} for name, ways in TABLES.items()}
        for threads in a.threads:
            torch.set_num_threads(threads)
            print(f"  {threads} thread{'s' * (threads > 1)}", flush=True)
            for name in TABLES:
                table(a, name, threads, used[name], *sizes)


if __name__ == "__main__":
    main()
