"""Autograd functions: log-probability and entropy of tokens, the LM head in chunks, the loss.

The kernels read and write the tensors' own memory, with as many threads as
torch.get_num_threads() says. For PyTorch 1.13 and later. There are first derivatives only.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Callable, Iterator, Optional, Tuple, TypeVar

import torch
from torch import Tensor

import reweight
from reweight import InputError, TokenStats
from reweight._arrays import overlaps
from reweight._errors import integer, located, number

__all__ = ["linear_token_stats", "loss", "token_stats"]

_F = TypeVar("_F", bound=Callable[..., Any])

# A matrix product of this many bytes of logits runs at full speed.
_CHUNK_BYTES = 256 << 20


def _eager(function: _F) -> _F:
    """Keeps torch.compile, where there is one, from tracing into ctypes."""
    compiler = getattr(torch, "compiler", None)
    disable: Optional[Callable[[_F], _F]] = getattr(compiler, "disable", None)
    return function if disable is None else disable(function)


def _once(backward: _F) -> _F:
    """Has create_graph=True fail instead of leaving these functions out of second derivatives."""

    @functools.wraps(backward)
    def checked(*args: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError("reweight.torch has first derivatives only, and create_graph=True asks for second ones")
        return backward(*args)

    return checked  # type: ignore[return-value]


@_eager
def token_stats(
    logits: Tensor, ids: Tensor, *, temperature: float = 1.0, entropy: bool = True, inplace: bool = True
) -> Tuple[Tensor, Optional[Tensor]]:
    """Log-probability of ids and entropy, both under softmax(logits / temperature), in nats.

    logits is [N, V], [B, T, V] or [V], float32 or bfloat16; float16 too if no gradient is
    wanted. The V logits of a row lie next to each other, and the rows anywhere: logits[:, :-1]
    is not copied. ids, int32 or int64, and both results, float32, have one element per row, and
    the shape of logits without V. With entropy=False the second is None, and the pass does less
    work.

    The backward pass writes the gradient over the logits. After it their memory holds that
    gradient, and there was never a second [..., V]. Another operation that needs the old
    logits later in the backward pass fails with PyTorch's error about a variable "modified
    by an inplace operation"; so does a second call of this function, on the same logits or on
    another part of them. A second backward pass raises RuntimeError. inplace=False leaves the
    logits alone and makes a new tensor for the gradient. So does a leaf tensor, or a view of
    one, whatever inplace says: it belongs to the caller. So do hooks on saved tensors, such
    as those of torch.utils.checkpoint with use_reentrant=False: under them PyTorch does not
    look for changes.

    float64 logits are computed by PyTorch, in float64, and never in place. They are for
    torch.autograd.gradcheck.

    Raises ValueError or TypeError naming the argument, before anything is computed.
    """
    _check_rows("logits", logits, ids)
    if logits.stride(-1) == 1 and overlaps(logits.shape, logits.stride()):
        raise InputError("logits", f"has strides of {list(logits.stride())} elements, want rows that do not overlap")
    temperature = _temperature(temperature)
    inplace = inplace and not (logits if logits._base is None else logits._base).is_leaf
    logprobs, h = _TokenStats.apply(logits, ids.contiguous(), temperature, entropy, inplace)
    return logprobs, h


class _TokenStats(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, logits: Tensor, ids: Tensor, temperature: float, entropy: bool, inplace: bool
    ) -> Any:
        ctx.set_materialize_grads(False)
        ctx.temperature, ctx.inplace, ctx.overwritten = temperature, inplace, False
        logprobs, h = _outputs(logits, ids, entropy)
        _forward(logits, ids, logprobs, h, temperature)
        # This comes back as the same object, unless hooks on saved tensors are in between.
        ctx.mark = torch.empty(0)
        ctx.save_for_backward(logits, ids, logprobs, h, ctx.mark)
        return logprobs, h

    @staticmethod
    @_once  # type: ignore[override]
    def backward(ctx: Any, grad: Optional[Tensor], grad_entropy: Optional[Tensor]) -> Any:
        if ctx.overwritten:
            raise RuntimeError(
                "the first backward pass through token_stats wrote the gradient over the logits; "
                "a second one needs token_stats(..., inplace=False)"
            )
        logits, ids, logprobs, h, mark = ctx.saved_tensors
        logits = logits.detach()
        dst = logits
        # What hooks return is not looked at for changes: others that saved the logits would
        # read the gradient instead.
        if ctx.inplace and mark is ctx.mark and logits.dtype != torch.float64:
            ctx.overwritten = True
        else:
            dst = torch.empty_like(logits)
        _backward(dst, logits, ids, logprobs, h, *_gradients(logprobs, grad, grad_entropy), ctx.temperature)
        return dst, None, None, None, None


@_eager
def linear_token_stats(
    hidden: Tensor,
    weight: Tensor,
    ids: Tensor,
    *,
    chunk: Optional[int] = None,
    temperature: float = 1.0,
    entropy: bool = True,
    bias: Optional[Tensor] = None,
) -> Tuple[Tensor, Optional[Tensor]]:
    """token_stats of the logits hidden @ weight.T + bias, which never exist all at once.

    hidden is [..., H], weight [V, H], bias [V] and ids [...]; the first three have one dtype.
    The logits of chunk rows at a time are computed into one buffer of chunk * V elements, in
    the forward pass and again in the backward pass, where their gradient takes their place.
    Memory beyond the arguments, the results and the gradients is that buffer. By default it
    has 256 MiB. Gradients flow to hidden, weight and bias, where they are wanted. That of
    weight is summed over the chunks in the dtype of weight. torch.autocast is respected.
    """
    for name, t in ("hidden", hidden), ("weight", weight), ("bias", bias):
        if not isinstance(t, Tensor) and not (name == "bias" and t is None):
            raise TypeError(f"{name} is a {type(t).__name__}, want a torch.Tensor")
    hidden, weight, bias = _operand(hidden), _operand(weight), None if bias is None else _operand(bias)
    _check_rows("hidden", hidden, ids)
    width = hidden.shape[-1]
    if weight.dim() != 2 or weight.shape[1] != width or weight.shape[0] == 0:
        raise InputError("weight", f"has the shape {list(weight.shape)}, want [V, {width}], V at least 1")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise InputError("bias", f"has the shape {list(bias.shape)}, want [{weight.shape[0]}]")
    for name, t in ("weight", weight), ("bias", bias):
        if t is not None and t.dtype != hidden.dtype:
            raise TypeError(f"{name} has dtype {_plain(t.dtype)}, want {_plain(hidden.dtype)} like hidden")
    temperature = _temperature(temperature)
    if chunk is None:
        chunk = max(1, _CHUNK_BYTES // (weight.shape[0] * weight.element_size()))
    chunk = integer("chunk", chunk, 64)
    if chunk < 1:
        raise InputError("chunk", f"is {chunk}, want at least 1")
    logprobs, h = _LinearTokenStats.apply(hidden.reshape(-1, width), weight, bias, ids, chunk, temperature, entropy)
    return logprobs.view(ids.shape), None if h is None else h.view(ids.shape)


class _LinearTokenStats(torch.autograd.Function):
    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Optional[Tensor],
        ids: Tensor,
        chunk: int,
        temperature: float,
        entropy: bool,
    ) -> Any:
        ctx.set_materialize_grads(False)
        ctx.chunk, ctx.temperature = chunk, temperature
        shape, ids = ids.shape, ids.reshape(-1)
        logprobs, h = _outputs(hidden, ids, entropy)
        for rows, x in _logits(hidden, weight, bias, chunk):
            try:
                _forward(x, ids[rows], logprobs[rows], _at(h, rows), temperature)
            except InputError as e:
                raise located(e, shape, rows.start) from None
        ctx.save_for_backward(hidden, weight, bias, ids, logprobs, h)
        return logprobs, h

    @staticmethod
    @_once  # type: ignore[override]
    def backward(ctx: Any, grad: Optional[Tensor], grad_entropy: Optional[Tensor]) -> Any:
        hidden, weight, bias, ids, logprobs, h = ctx.saved_tensors
        of_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        of_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        of_bias = torch.zeros_like(bias) if ctx.needs_input_grad[2] else None
        g, e = _gradients(logprobs, grad, grad_entropy)
        for rows, x in _logits(hidden, weight, bias, ctx.chunk):
            _backward(x, x, ids[rows], logprobs[rows], _at(h, rows), g[rows], _at(e, rows), ctx.temperature)
            if of_hidden is not None:
                torch.mm(x, weight, out=of_hidden[rows])
            if of_weight is not None:
                of_weight.addmm_(x.t(), hidden[rows])
            if of_bias is not None:
                of_bias.add_(x.sum(0))
        return of_hidden, of_weight, of_bias, None, None, None, None


@_eager
def loss(
    logprobs: Tensor, batch: reweight.Batch, weights: Optional[Tensor] = None, **options: Any
) -> Tuple[Tensor, reweight.LossResult]:
    """reweight.loss of the batch with these logprobs, as a 0-d tensor with a gradient.

    logprobs is float32, of the shape of batch.role, and stands in for batch.logprobs. weights
    and options are those of reweight.loss. The gradient with respect to logprobs is computed
    here, and the backward pass multiplies it by the one that comes in; no other argument gets
    one. The second result is that of reweight.loss, with its metrics.
    """
    if not isinstance(logprobs, Tensor):
        raise TypeError(f"logprobs is a {type(logprobs).__name__}, want a torch.Tensor")
    result = reweight.loss(dataclasses.replace(batch, logprobs=logprobs.detach()), weights, **options)
    value: Tensor = _Known.apply(logprobs, result.loss, torch.as_tensor(result.grad))
    return value, result


class _Known(torch.autograd.Function):
    """A value of x whose gradient is known already."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(grad)
        return torch.as_tensor(value).to(dtype=x.dtype, device=x.device, copy=True)

    @staticmethod
    @_once  # type: ignore[override]
    def backward(ctx: Any, scale: Tensor) -> Any:
        (grad,) = ctx.saved_tensors
        return grad * scale, None, None


def _check_rows(name: str, x: Tensor, ids: Tensor) -> None:
    """What both functions want of their rows. The kernels check more."""
    for argument, t in (name, x), ("ids", ids):
        if not isinstance(t, Tensor):
            raise TypeError(f"{argument} is a {type(t).__name__}, want a torch.Tensor")
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        raise TypeError(f"{name} has dtype {_plain(x.dtype)}, want float32, bfloat16, float16 or float64")
    if x.dtype == torch.float16 and x.requires_grad and torch.is_grad_enabled():
        raise TypeError(f"{name} has dtype float16 and requires grad, want float32 or bfloat16")
    if ids.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"ids has dtype {_plain(ids.dtype)}, want int32 or int64")
    if x.dim() == 0 or x.shape[-1] == 0:
        raise InputError(name, f"has the shape {list(x.shape)}, want rows of at least 1 element")
    if ids.shape != x.shape[:-1]:
        raise InputError("ids", f"has the shape {list(ids.shape)}, want {list(x.shape[:-1])}, one element per row")
    if ids.device != x.device:
        raise InputError("ids", f"is on {ids.device}, want {x.device} like {name}")


def _temperature(value: float) -> float:
    """The temperature as a number. The float64 formulas would take any."""
    if isinstance(value, Tensor) and value.requires_grad:
        raise TypeError("temperature is a torch.Tensor that requires grad, want a number: it gets no gradient")
    t = number("temperature", value)
    if not 0 < t < math.inf:
        raise InputError("temperature", f"is {value}, want a positive, finite number")
    return t


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).replace("torch.", "")


def _outputs(x: Tensor, ids: Tensor, entropy: bool) -> Tuple[Tensor, Optional[Tensor]]:
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    logprobs = torch.empty(ids.shape, dtype=dtype, device=x.device)
    return logprobs, torch.empty_like(logprobs) if entropy else None


def _gradients(
    logprobs: Tensor, grad: Optional[Tensor], grad_entropy: Optional[Tensor]
) -> Tuple[Tensor, Optional[Tensor]]:
    """The gradients of the results as the kernels want them; PyTorch has None for one that is not used."""
    g = torch.zeros_like(logprobs) if grad is None else grad.resolve_neg().contiguous()
    return g, None if grad_entropy is None else grad_entropy.resolve_neg().contiguous()


def _at(t: Optional[Tensor], rows: slice) -> Optional[Tensor]:
    return None if t is None else t[rows]


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


def _operand(t: Tensor) -> Tensor:
    """t in the dtype that a matrix product would take it in: torch.autocast may change it."""
    return t.to(torch.mm(t.new_empty(0, 1), t.new_empty(1, 0)).dtype)


def _forward(x: Tensor, ids: Tensor, logprobs: Tensor, entropy: Optional[Tensor], temperature: float) -> None:
    """Writes logprobs and, if it is set, entropy. x is [n, V], the others are [n]."""
    if x.dtype == torch.float64:
        return _forward64(x, ids, logprobs, entropy, temperature)
    out = TokenStats(None, entropy, logprobs)
    reweight.token_stats(x, ids, temperature=temperature, out=out, workers=torch.get_num_threads())


def _backward(
    dst: Tensor,
    x: Tensor,
    ids: Tensor,
    logprobs: Tensor,
    entropy: Optional[Tensor],
    grad: Tensor,
    grad_entropy: Optional[Tensor],
    temperature: float,
) -> None:
    """Writes to dst, which may be x, the gradient with respect to x. Both are [n, V], the others are [n]."""
    if x.dtype == torch.float64:
        return _backward64(dst, x, ids, grad, grad_entropy, temperature)
    reweight.row_gradient(
        x,
        ids,
        logprobs,
        grad,
        entropy=None if grad_entropy is None else entropy,
        grad_entropy=grad_entropy,
        temperature=temperature,
        out=dst,
        workers=torch.get_num_threads(),
    )


def _terms64(x: Tensor, temperature: float) -> Tuple[Tensor, Tensor, Tensor]:
    """log p, p and p log p of softmax(x / temperature); NaN in rows without a finite logsumexp."""
    z = x / temperature
    lse = torch.logsumexp(z, -1, keepdim=True)
    l = z - lse + (lse - lse)
    p = l.exp()
    return l, p, (p * l).masked_fill(p == 0, 0)


def _forward64(x: Tensor, ids: Tensor, logprobs: Tensor, entropy: Optional[Tensor], temperature: float) -> None:
    l, _, pl = _terms64(x, temperature)
    logprobs.copy_(l.gather(-1, ids.long()[..., None])[..., 0])
    if entropy is not None:
        entropy.copy_(-pl.sum(-1))


def _backward64(
    dst: Tensor, x: Tensor, ids: Tensor, grad: Tensor, grad_entropy: Optional[Tensor], temperature: float
) -> None:
    _, p, pl = _terms64(x, temperature)
    g = grad[..., None]
    e = torch.zeros_like(g) if grad_entropy is None else grad_entropy[..., None]
    d = -g * p - e * (pl - p * pl.sum(-1, keepdim=True))
    d.scatter_add_(-1, ids.long()[..., None], g)
    dst.copy_((d / temperature).masked_fill((g == 0) & (e == 0), 0))
