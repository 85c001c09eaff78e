"""Measures token_stats and row_gradient right after an operation of PyTorch: by one thread, by threads that the library
starts, and by those of PyTorch, which reweight.torch has it use.

    python python/measure/threads.py [--threads 2] [--rows 256] [--vocab 151936] [--rounds 31]

The three take turns in one process; the table has the medians, and the medians of the ratios to one thread.
"""

import argparse
import statistics
import time

import torch

import reweight
import reweight.torch
from reweight import _library
from forms import machine


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"threads": 2, "rows": 256, "vocab": 151936, "rounds": 31}.items():
        parser.add_argument("--" + name, type=int, default=value)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    print(machine())
    other = torch.ones(1 << 20)
    ways = {"one thread": (1, None), "its own": (a.threads, None), "PyTorch's": (a.threads, _library._parallel)}
    for dtype in torch.float32, torch.bfloat16:
        x = (3 * torch.randn(a.rows, a.vocab)).to(dtype)
        y, g, out = torch.randint(a.vocab, (a.rows,)), torch.ones(a.rows), torch.empty_like(x)
        stats = reweight.token_stats(x, y)
        functions = {
            "token_stats": lambda n: reweight.token_stats(x, y, out=stats, workers=n),
            "row_gradient": lambda n: reweight.row_gradient(
                x, y, stats.logprobs, g, entropy=stats.entropy, grad_entropy=g, out=out, workers=n
            ),
        }
        for name, function in functions.items():
            times = {way: [] for way in ways}
            for i in range(-1, a.rounds):
                for way in list(ways)[:: 1 if i % 2 else -1]:
                    workers, parallel = ways[way]
                    _library.share_threads(parallel)
                    other.mul_(1.0)
                    begin = time.perf_counter()
                    function(workers)
                    if i >= 0:
                        times[way].append(time.perf_counter() - begin)
            one = times["one thread"]
            print(f"{name} {dtype}".replace("torch.", "").ljust(24), *(
                f"{way} {statistics.median(t) * 1e3:.2f} ms ({statistics.median(x / y for x, y in zip(one, t)):.2f})"
                for way, t in times.items()
            ), sep="  ")  # fmt: skip


if __name__ == "__main__":
    main()
