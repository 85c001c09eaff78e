"""Measures the peak memory of log-probability and entropy, forward and backward, on the CPU.

    python python/measure/memory.py [--rows 256] [--vocab 151936] [--hidden 1536]

Each way runs in a process of its own, on one thread. What counts is the largest resident
memory, VmHWM of /proc/self/status, less that before the first operation, when the
arguments are there already; for the LM head also less the gradients of hidden and weight.
It is given in MiB and in units of the logits, [N, V] in their dtype. Of an audit, what counts
is beyond that of one whose vocabulary has 1,024 tokens.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Callable, List, Optional

import torch
from torch import Tensor

import reweight
from reweight.torch import linear_loss, linear_token_stats
from forms import FORMS, machine
from reweight.audit.gradients import VIEWS, Gradients

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
MIB = 1 << 20
WARM = 1024  # V of the first call, which loads and compiles what PyTorch does only once
FROZEN, TRAINED, LOSS = "linear_token_stats", "the same, head trained", "linear_loss, the same"


def resident(field: str) -> int:
    """VmRSS or VmHWM of this process, in bytes."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def peak(step: Callable[[], None]) -> int:
    """The most resident memory while step runs, in bytes beyond that before it."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins again at VmRSS
    before = resident("VmRSS")
    step()
    return resident("VmHWM") - before


def logits_step(form: str, rows: int, vocab: int, dtype: torch.dtype) -> Callable[[], None]:
    """One forward and backward pass from logits, which are the result of an operation."""
    zero = torch.zeros((), dtype=dtype, requires_grad=True)
    logits = torch.randn(rows, vocab).to(dtype).add_(zero)
    ids = torch.randint(vocab, (rows,))
    return lambda: backward(*FORMS[form](logits, ids))


def head_step(form: str, rows: int, vocab: int, dtype: torch.dtype, hidden: int) -> Callable[[], None]:
    """The same from a hidden state, through an LM head that is frozen unless form says otherwise."""
    x = torch.randn(rows, hidden).to(dtype).requires_grad_()
    weight = (torch.randn(vocab, hidden) / hidden**0.5).to(dtype).requires_grad_(form in (TRAINED, LOSS))
    ids = torch.randint(vocab, (rows,))
    if form in (FROZEN, TRAINED):
        return lambda: backward(*linear_token_stats(x, weight, ids))
    if form == LOSS:
        role, offsets = torch.ones(rows, dtype=torch.uint8), torch.tensor([0, rows])
        batch = reweight.Batch(role=role, old_logprobs=torch.zeros(rows), advantages=torch.ones(rows), seq_offsets=offsets)
        return lambda: linear_loss(x, weight, ids, batch)[0].backward()
    return lambda: backward(*FORMS[form](x @ weight.t(), ids))


def audit_step(view: str, rows: int, vocab: int, dtype: torch.dtype, hidden: int) -> Callable[[], None]:
    """The audit of 16 answers of three parts, with N tokens in all, by a model of one block."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocab, hidden_size=hidden, intermediate_size=hidden, num_hidden_layers=1, num_attention_heads=8
    )  # fmt: skip
    gradients = Gradients(LlamaForCausalLM(config).to(dtype).eval(), view=view)
    ids = torch.randint(vocab, (16, rows // 16 + 1)).tolist()
    labels = [[-1] + [k % 3 for k in range(rows // 16)]] * 16

    def step() -> None:
        gradients.grams(ids, labels, 3)

    return step


def backward(logprobs: Tensor, entropy: Optional[Tensor]) -> None:
    assert entropy is not None
    (logprobs.float().mean() + 0.01 * entropy.float().mean()).backward()


def one(a: argparse.Namespace) -> None:
    """Measures one way and prints bytes."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dtype = DTYPES[a.dtype]
    if a.what == "logits":
        logits_step(a.form, a.rows, WARM, dtype)()
        print(peak(logits_step(a.form, a.rows, a.vocab, dtype)))
    elif a.what == "audit":
        audit_step(a.form, a.rows, WARM, dtype, a.hidden)()
        small, large = (peak(audit_step(a.form, a.rows, vocab, dtype, a.hidden)) for vocab in (WARM, a.vocab))
        print(large - small)
    else:
        head_step(a.form, a.rows, WARM, dtype, a.hidden)()
        gradients = (a.rows + (a.vocab if a.form in (TRAINED, LOSS) else 0)) * a.hidden * (torch.finfo(dtype).bits // 8)
        print(peak(head_step(a.form, a.rows, a.vocab, dtype, a.hidden)) - gradients)


def in_process(a: argparse.Namespace, what: str, form: str, dtype: str) -> int:
    sizes = ["--vocab", a.vocab, "--hidden", a.hidden, "--rows", a.rows]
    command = [sys.executable, __file__, "--what", what, "--form", form, "--dtype", dtype, *map(str, sizes)]
    # With this, memory that is freed goes back at once, and does not count any more.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=256, help="N")
    parser.add_argument("--vocab", type=int, default=151936, help="V")
    parser.add_argument("--hidden", type=int, default=1536, help="width of the hidden state")
    for name in ("--what", "--form", "--dtype"):  # of a process that measures
        parser.add_argument(name, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.what is not None:
        return one(a)

    print(machine())
    print(f"N = {a.rows}, V = {a.vocab}, H = {a.hidden}\n")
    print("What is beyond the logits and the ids, the gradient of the logits included:\n")
    table(a, "logits", list(FORMS))
    print("\nWhat is beyond hidden state, head, ids and the gradients of the first two:\n")
    table(a, "head", [FROZEN, TRAINED, LOSS, *FORMS])
    print("\nWhat an audit takes beyond one with a small vocabulary, by its views:\n")
    table(a, "audit", list(VIEWS))


def table(a: argparse.Namespace, what: str, forms: List[str]) -> None:
    """Measures the ways and prints them."""
    print(f"{'':22}" + "".join(f"{dtype + ', MiB':>16}{'of [N, V]':>11}" for dtype in DTYPES))
    for form in forms:
        line = f"{form:22}"
        for name, dtype in DTYPES.items():
            used = in_process(a, what, form, name)
            line += f"{used / MIB:16.1f}{used / (a.rows * a.vocab * torch.finfo(dtype).bits / 8):11.3f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
