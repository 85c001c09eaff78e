"""The operators torch.ops.reweight.*, which reweight.torch calls.

Each has a kernel for every device that the library has, a kernel for tensors without data (torch.compile and
torch.export ask it for shapes), and, where it has a gradient, that. row_gradient and linear_row_gradient are backward
passes. Operators take what reweight.torch has checked, and the library checks the rest.
"""

from __future__ import annotations

from typing import Any, Iterator, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import _generated, _rows, _schemes
from ._errors import InputError, located
from ._rows import TokenStats
from .batch import Batch

_LIBRARY: Any = torch.library.Library("reweight", "DEF")  # type: ignore[no-untyped-call]


def _define(schema: str, kernel: Any, fake: Any) -> Any:
    """Defines an operator and returns it. The kernel and the fake one have its name."""
    name = schema[: schema.index("(")]
    _LIBRARY.define(schema, tags=torch.Tag.pt2_compliant_tag)
    # For every device: the kernel itself refuses those that the library does not have.
    _LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"reweight::{name}", fake, lib=_LIBRARY)
    return getattr(torch.ops.reweight, name).default


def _first_derivative() -> None:
    """Has create_graph=True fail instead of leaving these functions out of second derivatives."""
    if torch.is_grad_enabled():
        raise RuntimeError("reweight.torch has first derivatives only, and create_graph=True asks for second ones")


def _dtype(x: Tensor) -> torch.dtype:
    """The dtype of log-probabilities and entropies of x."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _savable(ids: Tensor) -> Tensor:
    """ids that can be saved for the backward pass, which those of inference mode cannot."""
    return ids.clone() if ids.is_inference() else ids


# token_stats


def _token_stats(logits: Tensor, ids: Tensor, temperature: float, entropy: bool) -> Tuple[Tensor, Tensor]:
    """Log-probability and entropy, of the shape of ids. Without entropy the second is empty."""
    if logits.dtype == torch.float64:
        return _forward64(logits, ids, temperature, entropy)
    return _rows.logprobs_and_entropy(logits, ids, temperature, entropy, torch.get_num_threads())


def _token_stats_fake(logits: Tensor, ids: Tensor, temperature: float, entropy: bool) -> Tuple[Tensor, Tensor]:
    dtype = _dtype(logits)
    return logits.new_empty(ids.shape, dtype=dtype), logits.new_empty(ids.shape if entropy else (0,), dtype=dtype)


def _token_stats_setup(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[Tensor, Tensor]) -> None:
    logits, ids, ctx.temperature, ctx.with_entropy = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(logits, _savable(ids), *output)


def _token_stats_backward(ctx: Any, grad: Optional[Tensor], grad_entropy: Optional[Tensor]) -> Any:
    _first_derivative()
    if not ctx.with_entropy:
        grad_entropy = None
    return row_gradient(*ctx.saved_tensors, grad, grad_entropy, ctx.temperature), None, None, None


def _token_stats_vmap(
    info: Any, in_dims: Tuple[Optional[int], ...], logits: Tensor, ids: Tensor, temperature: float, entropy: bool
) -> Tuple[Tuple[Tensor, Tensor], Tuple[int, Optional[int]]]:
    x, y = (_front(t, d, info.batch_size) for t, d in zip((logits, ids), in_dims))
    l, h = token_stats(x.reshape(-1, x.shape[-1]), y.reshape(-1), temperature, entropy)
    if not entropy:
        return (l.view(y.shape), h), (0, None)
    return (l.view(y.shape), h.view(y.shape)), (0, 0)


def _front(t: Tensor, dim: Optional[int], n: int) -> Tensor:
    """t with the dimension that vmap maps over, of size n, in front."""
    return t.expand(n, *t.shape) if dim is None else t.movedim(dim, 0)


class TokenStatsInPlace(torch.autograd.Function):
    """token_stats whose backward pass writes the gradient over the logits. It is for eager code alone: compilers and
    transforms of functions have to know what an operator writes, and when."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, ids: Tensor, temperature: float, entropy: bool
    ) -> Tuple[Tensor, Tensor]:
        output = _token_stats(logits, ids, temperature, entropy)
        _token_stats_setup(ctx, (logits, ids, temperature, entropy), output)
        ctx.overwritten = False
        return output

    @staticmethod
    def backward(ctx: Any, grad: Optional[Tensor], grad_entropy: Optional[Tensor]) -> Any:
        _first_derivative()
        if ctx.overwritten:
            raise RuntimeError(
                "the first backward pass through token_stats wrote the gradient over the logits; "
                "a second one needs token_stats(..., inplace=False)"
            )
        logits, ids, logprobs, entropy = ctx.saved_tensors
        ctx.overwritten = True
        x, e = logits.detach(), grad_entropy if ctx.with_entropy else None
        return _row_gradient(x, ids, logprobs, entropy, grad, e, ctx.temperature, out=x), None, None, None


# row_gradient, the backward pass of token_stats


def _row_gradient(
    logits: Tensor,
    ids: Tensor,
    logprobs: Tensor,
    entropy: Tensor,
    grad: Optional[Tensor],
    grad_entropy: Optional[Tensor],
    temperature: float,
    out: Optional[Tensor] = None,
) -> Tensor:
    """The gradient with respect to logits, in out, which may be logits, or in a new tensor. The gradient of a result
    that is not used is None."""
    g = torch.zeros_like(logprobs) if grad is None else grad.resolve_neg().contiguous()
    e = None if grad_entropy is None else grad_entropy.resolve_neg().contiguous()
    if logits.dtype == torch.float64:
        d = _backward64(logits, ids, g, e, temperature)
        return d if out is None else out.copy_(d)
    h = None if e is None else entropy
    workers = torch.get_num_threads()
    gradient: Tensor = _rows.row_gradient(
        logits, ids, logprobs, g, entropy=h, grad_entropy=e, temperature=temperature, out=out, workers=workers
    )
    return gradient


def _row_gradient_fake(logits: Tensor, *args: Any) -> Tensor:
    return logits.new_empty(logits.shape)


# linear_token_stats


def _linear_token_stats(
    hidden: Tensor, weight: Tensor, bias: Optional[Tensor], ids: Tensor, chunk: int, temperature: float, entropy: bool
) -> Tuple[Tensor, Tensor]:
    """token_stats of hidden @ weight.T + bias, [N, V], chunk rows at a time. Results have the shape of ids."""
    logprobs, entropies = _linear_token_stats_fake(hidden, weight, bias, ids, chunk, temperature, entropy)
    y, l = ids.reshape(-1), logprobs.view(-1)
    h = entropies.view(-1) if entropy else None
    for rows, x in _logits(hidden, weight, bias, chunk):
        out = TokenStats(None, None if h is None else h[rows], l[rows])
        try:
            _write_stats(out, x, y[rows], temperature)
        except InputError as e:
            raise located(e, ids.shape, rows.start) from None
    return logprobs, entropies


def _write_stats(out: TokenStats, x: Tensor, ids: Tensor, temperature: float) -> None:
    if x.dtype != torch.float64:
        _rows.token_stats(x, ids, temperature=temperature, out=out, workers=torch.get_num_threads())
        return
    logprobs, entropy = _forward64(x, ids, temperature, out.entropy is not None)
    out.logprobs.copy_(logprobs)
    if out.entropy is not None:
        out.entropy.copy_(entropy)


def _linear_token_stats_fake(
    hidden: Tensor, weight: Tensor, bias: Optional[Tensor], ids: Tensor, chunk: int, temperature: float, entropy: bool
) -> Tuple[Tensor, Tensor]:
    return _token_stats_fake(hidden, ids, temperature, entropy)


def _linear_token_stats_setup(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[Tensor, Tensor]) -> None:
    hidden, weight, bias, ids, ctx.chunk, ctx.temperature, ctx.with_entropy = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(hidden, weight, bias, _savable(ids), *output)


def _linear_token_stats_backward(ctx: Any, grad: Optional[Tensor], grad_entropy: Optional[Tensor]) -> Any:
    _first_derivative()
    wanted = list(ctx.needs_input_grad[:3])
    if not ctx.with_entropy:
        grad_entropy = None
    gradients = linear_row_gradient(*ctx.saved_tensors, grad, grad_entropy, ctx.chunk, ctx.temperature, wanted)
    return *(g if want else None for g, want in zip(gradients, wanted)), None, None, None, None


def _logits(hidden: Tensor, weight: Tensor, bias: Optional[Tensor], chunk: int) -> Iterator[Tuple[slice, Tensor]]:
    """The logits of chunk rows after chunk rows, in one buffer."""
    n = hidden.shape[0]
    buffer = hidden.new_empty(min(chunk, n), weight.shape[0])
    for begin in range(0, n, chunk):
        rows = slice(begin, min(begin + chunk, n))
        x = buffer[: rows.stop - begin]
        if bias is None:
            torch.mm(hidden[rows], weight.t(), out=x)
        else:
            torch.addmm(bias, hidden[rows], weight.t(), out=x)
        yield rows, x


# linear_row_gradient, the backward pass of linear_token_stats


def _linear_row_gradient(
    hidden: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    ids: Tensor,
    logprobs: Tensor,
    entropy: Tensor,
    grad: Optional[Tensor],
    grad_entropy: Optional[Tensor],
    chunk: int,
    temperature: float,
    wanted: Sequence[bool],
) -> Tuple[Tensor, Tensor, Tensor]:
    """The gradients with respect to hidden, weight and bias; those that are not wanted are empty."""
    of_hidden, of_weight, of_bias = _linear_row_gradient_fake(hidden, weight, bias, *[None] * 7, wanted)
    of_weight.zero_()
    of_bias.zero_()
    y, l, h = (t.reshape(-1) for t in (ids, logprobs, entropy))
    g, e = (None if t is None else t.reshape(-1) for t in (grad, grad_entropy))
    for rows, x in _logits(hidden, weight, bias, chunk):
        of_rows = _at(g, rows), _at(e, rows)
        _row_gradient(x, y[rows], l[rows], h[rows], *of_rows, temperature, out=x)
        if wanted[0]:
            torch.mm(x, weight, out=of_hidden[rows])
        if wanted[1]:
            of_weight.addmm_(x.t(), hidden[rows])
        if wanted[2]:
            of_bias.add_(x.sum(0))
    return of_hidden, of_weight, of_bias


def _at(t: Optional[Tensor], rows: slice) -> Optional[Tensor]:
    return None if t is None else t[rows]


def _linear_row_gradient_fake(
    hidden: Tensor, weight: Tensor, bias: Optional[Tensor], *args: Any
) -> Tuple[Tensor, Tensor, Tensor]:
    shapes: List[Sequence[int]] = [hidden.shape, weight.shape, weight.shape[:1]]
    a, b, c = (hidden.new_empty(shape if want else (0,)) for shape, want in zip(shapes, args[-1]))
    return a, b, c


# loss

_SCALARS = len(_generated.LossResult._fields_)


def _loss(
    logprobs: Tensor,
    role: Tensor,
    seq_offsets: Optional[Tensor],
    old_logprobs: Tensor,
    advantages: Tensor,
    ref_logprobs: Optional[Tensor],
    weights: Optional[Tensor],
    clip_low: float,
    clip_high: float,
    dual_clip: float,
    aggregation: str,
    norm_length: int,
) -> Tuple[Tensor, Tensor, Tensor]:
    """The loss, float32 without dimensions; its gradient with respect to logprobs; the scalars of a LossResult."""
    batch = Batch(
        role=role,
        seq_offsets=seq_offsets,
        logprobs=logprobs,
        old_logprobs=old_logprobs,
        advantages=advantages,
        ref_logprobs=ref_logprobs,
    )
    options = _schemes.loss_options(clip_low, clip_high, dual_clip, aggregation, norm_length)
    scalars = role.new_empty(_SCALARS, dtype=torch.int64)
    grad, _ = _schemes.run_loss(batch, weights, options, memory=scalars)
    return scalars.view(torch.float64)[0].to(torch.float32), grad, scalars


def _loss_fake(logprobs: Tensor, *args: Any) -> Tuple[Tensor, Tensor, Tensor]:
    scalars = logprobs.new_empty(_SCALARS, dtype=torch.int64)
    return logprobs.new_empty((), dtype=torch.float32), logprobs.new_empty(logprobs.shape), scalars


def _loss_setup(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[Tensor, Tensor, Tensor]) -> None:
    _, grad, scalars = output
    ctx.mark_non_differentiable(grad, scalars)
    ctx.save_for_backward(grad)


def _loss_backward(ctx: Any, scale: Tensor, *_: Any) -> Any:
    _first_derivative()
    (grad,) = ctx.saved_tensors
    return grad * scale, *[None] * (len(ctx.needs_input_grad) - 1)


_RESULTS = "Tensor logprobs, Tensor entropy, Tensor? grad, Tensor? grad_entropy"
token_stats = _define(
    "token_stats(Tensor logits, Tensor ids, float temperature, bool entropy) -> (Tensor, Tensor)",
    _token_stats,
    _token_stats_fake,
)
row_gradient = _define(
    f"row_gradient(Tensor logits, Tensor ids, {_RESULTS}, float temperature) -> Tensor",
    _row_gradient,
    _row_gradient_fake,
)
linear_token_stats = _define(
    "linear_token_stats(Tensor hidden, Tensor weight, Tensor? bias, Tensor ids, int chunk, float temperature, "
    "bool entropy) -> (Tensor, Tensor)",
    _linear_token_stats,
    _linear_token_stats_fake,
)
linear_row_gradient = _define(
    f"linear_row_gradient(Tensor hidden, Tensor weight, Tensor? bias, Tensor ids, {_RESULTS}, int chunk, "
    "float temperature, bool[] wanted) -> (Tensor, Tensor, Tensor)",
    _linear_row_gradient,
    _linear_row_gradient_fake,
)
loss = _define(
    "loss(Tensor logprobs, Tensor role, Tensor? seq_offsets, Tensor old_logprobs, Tensor advantages, "
    "Tensor? ref_logprobs, Tensor? weights, float clip_low, float clip_high, float dual_clip, str aggregation, "
    "int norm_length) -> (Tensor, Tensor, Tensor)",
    _loss,
    _loss_fake,
)
for _name, _backward, _setup in (
    ("token_stats", _token_stats_backward, _token_stats_setup),
    ("linear_token_stats", _linear_token_stats_backward, _linear_token_stats_setup),
    ("loss", _loss_backward, _loss_setup),
):
    torch.library.register_autograd(f"reweight::{_name}", _backward, setup_context=_setup, lib=_LIBRARY)
torch.library.register_vmap("reweight::token_stats", _token_stats_vmap, lib=_LIBRARY)


# float64, by PyTorch: for torch.autograd.gradcheck


def _terms64(x: Tensor, temperature: float) -> Tuple[Tensor, Tensor, Tensor]:
    """log p, p and p log p of softmax(x / temperature); NaN in rows without a finite logsumexp."""
    z = x / temperature
    lse = torch.logsumexp(z, -1, keepdim=True)
    l = z - lse + (lse - lse)
    p = l.exp()
    return l, p, (p * l).masked_fill(p == 0, 0)


def _forward64(x: Tensor, ids: Tensor, temperature: float, entropy: bool) -> Tuple[Tensor, Tensor]:
    l, _, pl = _terms64(x, temperature)
    logprobs = l.gather(-1, ids.long()[..., None])[..., 0]
    return logprobs.contiguous(), -pl.sum(-1) if entropy else x.new_empty(0)


def _backward64(x: Tensor, ids: Tensor, grad: Tensor, grad_entropy: Optional[Tensor], temperature: float) -> Tensor:
    _, p, pl = _terms64(x, temperature)
    g = grad[..., None]
    e = torch.zeros_like(g) if grad_entropy is None else grad_entropy[..., None]
    d = -g * p - e * (pl - p * pl.sum(-1, keepdim=True))
    d.scatter_add_(-1, ids.long()[..., None], g)
    return (d / temperature).masked_fill((g == 0) & (e == 0), 0)
