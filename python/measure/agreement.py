"""Measures how far linear_token_stats is from PyTorch with all logits at once, on the CPU.

    python python/measure/agreement.py [--rows 32] [--vocab 151936] [--hidden 1536] [--chunk 4096]

Both start from the same hidden state and LM head. In float32 they are compared with each
other, and each with a softmax in float64 of the same float32 logits; in bfloat16 each is
compared with PyTorch in float32, from the same operands. A difference is in units of the
largest element of what is compared.
"""

from __future__ import annotations

import argparse
from typing import Callable, List, Optional, Tuple

import torch
from torch import Tensor

from reweight.torch import linear_token_stats
from forms import log_softmax, machine

Form = Callable[[Tensor, Tensor, Tensor], Tuple[Tensor, Optional[Tensor]]]


def step(form: Form, hidden: Tensor, weight: Tensor, ids: Tensor) -> List[Tensor]:
    """Log-probabilities, entropies, and the gradients of the operands, all in float32."""
    hidden, weight = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    logprobs, entropy = form(hidden, weight, ids)
    assert entropy is not None
    (logprobs.float().mean() + 0.01 * entropy.float().mean()).backward()
    assert hidden.grad is not None and weight.grad is not None
    return [t.detach().float() for t in (logprobs, entropy, hidden.grad, weight.grad)]


def distances(got: List[Tensor], want: List[Tensor]) -> str:
    return "".join(f"{float((g - w).abs().max() / w.abs().max()):14.1e}" for g, w in zip(got, want))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32, help="N")
    parser.add_argument("--vocab", type=int, default=151936, help="V")
    parser.add_argument("--hidden", type=int, default=1536, help="width of the hidden state")
    parser.add_argument("--chunk", type=int, default=4096, help="ids whose logits linear_token_stats holds")
    a = parser.parse_args()
    torch.manual_seed(0)

    def chunks(x: Tensor, w: Tensor, y: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
        return linear_token_stats(x, w, y, chunk=a.chunk)

    def whole(x: Tensor, w: Tensor, y: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
        return log_softmax(x @ w.t(), y)

    hidden = torch.randn(a.rows, a.hidden)
    weight = torch.randn(a.vocab, a.hidden) / a.hidden**0.5
    ids = torch.randint(a.vocab, (a.rows,))
    print(machine())
    print(f"N = {a.rows}, V = {a.vocab}, H = {a.hidden}, {a.chunk} ids a chunk\n")
    columns = "".join(f"{name:>14}" for name in ("log-prob", "entropy", "d hidden", "d weight"))
    print(f"{'the largest difference, relative':42}{columns}")
    ours, want = step(chunks, hidden, weight, ids), step(whole, hidden, weight, ids)
    print(f"{'float32: ours from PyTorch':42}" + distances(ours, want), flush=True)
    exact = [t for t in log_softmax((hidden @ weight.t()).double(), ids) if t is not None]
    for name, got in ("ours", ours), ("PyTorch", want):
        title = f"float32: {name} from a softmax in float64"
        print(f"{title:42}" + distances(got, exact), flush=True)
    small = hidden.bfloat16(), weight.bfloat16()
    want = step(whole, small[0].float(), small[1].float(), ids)
    for name, form in ("ours", chunks), ("PyTorch", whole):
        title = f"bfloat16: {name} from PyTorch in float32"
        print(f"{title:42}" + distances(step(form, *small, ids), want), flush=True)


if __name__ == "__main__":
    main()
