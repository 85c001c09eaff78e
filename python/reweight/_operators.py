"""The operators torch.ops.reweight.*, which reweight.torch calls.

Each has a kernel for every device that the library has, a kernel for tensors without data (torch.compile and
torch.export ask it for shapes), and, where it has a gradient, that. row_gradient and linear_row_gradient are backward
passes. Operators take what reweight.torch has checked, and the library checks the rest.
"""

from __future__ import annotations

from ctypes import ArgumentError, c_double
from typing import Any, Optional, Sequence, Tuple

import torch
from torch import Tensor

from . import _generated, _head, _library, _openmp, _rows, _schemes
from ._arrays import BF16, F16, F32, I32, I64, view
from ._errors import InputError, factor
from .batch import Batch

_library.share_threads(_openmp.share())

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


def _save(ctx: Any, *tensors: Optional[Tensor]) -> None:
    """Saves the tensors for the backward pass: copies of those of inference mode, which cannot be saved."""
    ctx.save_for_backward(*(t.clone() if t is not None and t.is_inference() else t for t in tensors))


# token_stats


def _token_stats(
    logits: Tensor, ids: Tensor, numbers: Tensor, entropy: bool, squares: bool
) -> Tuple[Tensor, Tensor, Tensor]:
    """Log-probability, entropy and the log of the sum of squared probabilities, of the shape of ids. Without entropy
    the second is empty, without squares the third. numbers, float64 on the CPU as in all operators, is the temperature
    here."""
    temperature = numbers.item()
    if logits.dtype == torch.float64:
        factor("temperature", temperature)
        if ids.is_cpu:
            _rows._check_ids(view("ids", ids, (I32, I64)), logits.shape[-1])
        return _forward64(logits, ids, temperature, entropy, squares)
    results = _results(logits, ids, temperature, entropy, squares)
    l, h, q = (logits.new_empty(0, dtype=torch.float32) if r is None else r for r in results)
    return l, h, q


_Results = Tuple[Tensor, Optional[Tensor], Optional[Tensor]]


def _results(logits: Tensor, ids: Tensor, temperature: float, entropy: bool, squares: bool) -> _Results:
    """The results, None for those that are not wanted."""
    # In less time than torch.empty takes.
    l = torch.empty_like(ids, dtype=torch.float32, memory_format=torch.contiguous_format)
    h = torch.empty_like(l) if entropy else None
    q = torch.empty_like(l) if squares else None
    if not _write_plain(logits, ids, l, h, q, temperature):
        _rows.write_token_stats(logits, ids, (None, h, l, q), temperature, torch.get_num_threads())
    return l, h, q


_LOGITS = {torch.float32: F32, torch.bfloat16: BF16, torch.float16: F16}
_IDS = {torch.int32: I32, torch.int64: I64}


def _write_plain(logits: Tensor, ids: Tensor, l: Tensor, h: Optional[Tensor], q: Optional[Tensor], temperature: float) -> bool:
    """write_token_stats in half of the time of a few short rows, where all of them lie one after another on the CPU. Returns
    False, and has written nothing, where they do not or an argument is wrong: that one does it, or says what is wrong."""
    dtype, chosen, shape = _LOGITS.get(logits.dtype), _IDS.get(ids.dtype), logits.shape
    if (
        dtype is None or chosen is None or not (logits.is_cpu and ids.is_cpu)
        or not (logits.is_contiguous() and ids.is_contiguous()) or logits.is_neg() or ids.is_neg()
        or not 1 <= len(shape) <= 3 or ids.shape != shape[:-1]
    ):  # fmt: skip
        return False
    at, of, V = logits.data_ptr(), ids.data_ptr(), shape[-1]
    if at % dtype.size or of % chosen.size:
        return False
    dst = _generated.Stats(0, 0 if h is None else h.data_ptr(), l.data_ptr(), 0 if q is None else q.data_ptr())
    rows = _generated.Rows(at, ids.numel(), V, V, dtype.number)
    try:
        _library.cpu().token_stats(dst, rows, _generated.Ids(of, chosen is I64), temperature, torch.get_num_threads(), tensors=True)
    except InputError:
        return False
    return True


def token_stats_directly(logits: Tensor, ids: Any, temperature: Any, entropy: Any, squares: Any) -> Optional[_Results]:
    """The results without a gradient and without the operator, whose way through PyTorch takes longer than small rows
    do. None where something would see the operator, and where an argument is wrong: its checks say how."""
    if torch.compiler.is_compiling():
        return None
    try:
        if not (_unseen(logits, ids) and type(temperature) in (float, int) and type(entropy) is type(squares) is bool):
            return None
        return _results(logits, ids.contiguous(), temperature, entropy, squares)
    except (TypeError, ValueError, ArgumentError):
        return None


_C: Any = torch._C
_USUAL = (_C.DispatchKeySet(_C.DispatchKey.BackendSelect) | _C.DispatchKeySet(_C.DispatchKey.ADInplaceOrView)).raw_repr()


def _unseen(logits: Tensor, ids: Any) -> bool:
    """Whether an operator on these would do nothing but run its kernel, or its kernel refuses them: they are plain tensors
    on the CPU, and this thread has no mode, transform of functions, tracer or profiler. Each of these has a dispatch
    key, but for modes of functions and profilers."""
    if type(logits) not in (Tensor, torch.nn.Parameter) or type(ids) is not Tensor or not logits.is_cpu:
        return False
    if ids.dtype not in _IDS or ids.layout is not torch.strided or ids.is_nested:  # of which PyTorch makes no such results
        return False
    if _C._dispatch_tls_local_include_set().raw_repr() | _USUAL != _USUAL or _C._len_torch_function_stack():
        return False
    return not torch.autograd.profiler._is_profiler_enabled


def _token_stats_fake(
    logits: Tensor, ids: Tensor, numbers: Tensor, entropy: bool, squares: bool
) -> Tuple[Tensor, Tensor, Tensor]:
    dtype = _dtype(logits)
    l, h, q = (logits.new_empty(ids.shape if wanted else (0,), dtype=dtype) for wanted in (True, entropy, squares))
    return l, h, q


def _token_stats_setup(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[Tensor, Tensor, Tensor]) -> None:
    logits, ids, numbers, ctx.with_entropy, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[2])
    _save(ctx, logits, ids, *output[:2], numbers)


def _token_stats_backward(ctx: Any, grad: Optional[Tensor], grad_entropy: Optional[Tensor], _: Any) -> Any:
    _first_derivative()
    if not ctx.with_entropy:
        grad_entropy = None
    *of, numbers = ctx.saved_tensors
    return row_gradient(*of, grad, grad_entropy, numbers), None, None, None, None


def _token_stats_vmap(
    info: Any,
    in_dims: Tuple[Optional[int], ...],
    logits: Tensor,
    ids: Tensor,
    numbers: Tensor,
    entropy: bool,
    squares: bool,
) -> Tuple[Tuple[Tensor, ...], Tuple[Optional[int], ...]]:
    x, y = (_front(t, d, info.batch_size) for t, d in zip((logits, ids), in_dims))
    results = token_stats(x.reshape(-1, x.shape[-1]), y.reshape(-1), numbers, entropy, squares)
    wanted = (True, entropy, squares)
    return (
        tuple(r.view(y.shape) if w else r for r, w in zip(results, wanted)),
        tuple(0 if w else None for w in wanted),
    )


def _front(t: Tensor, dim: Optional[int], n: int) -> Tensor:
    """t with the dimension that vmap maps over, of size n, in front."""
    return t.expand(n, *t.shape) if dim is None else t.movedim(dim, 0)


class TokenStatsInPlace(torch.autograd.Function):
    """token_stats whose backward pass writes the gradient over the logits. It is for eager code alone: compilers and
    transforms of functions have to know what an operator writes, and when."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, ids: Tensor, numbers: Tensor, entropy: bool, squares: bool
    ) -> Tuple[Tensor, Tensor, Tensor]:
        output = _token_stats(logits, ids, numbers, entropy, squares)
        _token_stats_setup(ctx, (logits, ids, numbers, entropy, squares), output)
        ctx.overwritten = False
        return output

    @staticmethod
    def backward(ctx: Any, grad: Optional[Tensor], grad_entropy: Optional[Tensor], _: Any) -> Any:
        _first_derivative()
        if ctx.overwritten:
            raise RuntimeError(
                "the first backward pass through token_stats wrote the gradient over the logits; "
                "a second one needs token_stats(..., inplace=False)"
            )
        logits, ids, logprobs, entropy, numbers = ctx.saved_tensors
        ctx.overwritten = True
        x, e = logits.detach(), grad_entropy if ctx.with_entropy else None
        return _row_gradient(x, ids, logprobs, entropy, grad, e, numbers, out=x), None, None, None, None


# row_gradient, the backward pass of token_stats


def _row_gradient(
    logits: Tensor,
    ids: Tensor,
    logprobs: Tensor,
    entropy: Tensor,
    grad: Optional[Tensor],
    grad_entropy: Optional[Tensor],
    numbers: Tensor,
    out: Optional[Tensor] = None,
) -> Tensor:
    """The gradient with respect to logits, in out, which may be logits, or in a new tensor. The gradient of a result
    that is not used is None."""
    temperature = numbers.item()
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


# linear_token_stats. What makes logits of hidden states is the same in all three operators of the head.

_HEAD = (
    "Tensor hidden, Tensor weight, Tensor? bias, Tensor ids, SymInt chunk, Tensor numbers, ScalarType dtype, str group"
)


def _linear_token_stats(
    hidden: Tensor, weight: Tensor, bias: Optional[Tensor], ids: Tensor, *rest: Any
) -> Tuple[Tensor, ...]:
    """Log-probability, entropy, logsumexp, logsumexp at temperature 1, and the log of the sum of squared probabilities of
    hidden, [N, H]; of the shape of ids. The second and the last two are empty where they are not wanted. Then the sizes
    of the parts of the vocabulary. wanted are the gradients of hidden, weight and bias."""
    *form, mask, entropy, energy, squares, wanted = rest
    counted = _head.counted(ids, mask)
    results = zip(("entropy", "lse", "log_sum_sq_probs"), (entropy, energy, squares))
    said = [("group", "computes linear_token_stats"), *((name, f"is {want}") for name, want in results)]
    sizes = _head.sizes(hidden, weight, bias, ids, form, ("mask", counted), wanted, said)
    head = _head.Head(weight, bias, ids.numel(), sizes, *form)
    found = _head.stats(head, hidden, ids, counted, entropy, energy, squares)
    return *(found.lse.new_empty(0) if t is None else t for t in found), torch.tensor(sizes, device="cpu")


def _linear_token_stats_fake(
    hidden: Tensor, weight: Tensor, bias: Optional[Tensor], ids: Tensor, *rest: Any
) -> Tuple[Tensor, ...]:
    *_, group, _, entropy, energy, squares, _ = rest
    results = (
        hidden.new_empty(ids.shape if wanted else (0,), dtype=_dtype(hidden))
        for wanted in (True, entropy, True, energy, squares)
    )
    return *results, torch.empty(_head.group_of(group).size() if group else 1, dtype=torch.int64, device="cpu")


def _linear_token_stats_setup(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[Tensor, ...]) -> None:
    hidden, weight, bias, ids, ctx.chunk, numbers, *ctx.form, mask, ctx.with_entropy, _, _, _ = inputs
    logprobs, entropy, *others = output
    ctx.mark_non_differentiable(*others)
    ctx.set_materialize_grads(False)
    lse, *_, sizes = others
    _save(ctx, hidden, weight, bias, ids, numbers, sizes, mask, logprobs, entropy, lse)


def _linear_token_stats_backward(ctx: Any, grad: Optional[Tensor], grad_entropy: Optional[Tensor], *_: Any) -> Any:
    _first_derivative()
    wanted = list(ctx.needs_input_grad[:3])
    if not ctx.with_entropy:
        grad_entropy = None
    hidden, weight, bias, ids, numbers, *rows = ctx.saved_tensors
    form = ctx.chunk, numbers, *ctx.form
    gradients = linear_row_gradient(hidden, weight, bias, ids, *form, *rows, grad, grad_entropy, wanted)
    return *(g if want else None for g, want in zip(gradients, wanted)), *[None] * (len(ctx.needs_input_grad) - 3)


# linear_row_gradient, the backward pass of linear_token_stats


def _linear_row_gradient(
    hidden: Tensor, weight: Tensor, bias: Optional[Tensor], ids: Tensor, *rest: Any
) -> Tuple[Tensor, Tensor, Tensor]:
    """The gradients with respect to hidden, weight and bias; those that are not wanted are empty."""
    *form, sizes, mask, logprobs, entropy, lse, grad, grad_entropy, wanted = rest
    gradients = _head.empty_gradients(hidden, weight, bias, wanted)
    of = _head.Stats(logprobs, None if grad_entropy is None else entropy, lse, None)
    g, e = (None if t is None else t.resolve_neg() for t in (grad, grad_entropy))
    head = _head.Head(weight, bias, ids.numel(), sizes.tolist(), *form)
    _head.row_gradient(head, hidden, ids, mask, of, g, e, _to(gradients, wanted))
    return gradients


def _to(gradients: Sequence[Tensor], wanted: Sequence[bool]) -> _head.Gradients:
    return _head.Gradients(*(g if want else None for g, want in zip(gradients, wanted)))


def _linear_row_gradient_fake(
    hidden: Tensor, weight: Tensor, bias: Optional[Tensor], *rest: Any
) -> Tuple[Tensor, Tensor, Tensor]:
    return _head.empty_gradients(hidden, weight, bias, rest[-1])


# linear_loss


def _linear_loss(
    hidden: Tensor, weight: Tensor, bias: Optional[Tensor], ids: Tensor, *rest: Any
) -> Tuple[Tensor, ...]:
    """The results of loss, and the gradients with respect to hidden, weight and bias; those that are not wanted are
    empty."""
    form, arrays, options, memory, wanted = rest[:4], rest[4:11], _loss_options(*rest[11:-2]), *rest[-2:]
    role, seq_offsets, span_ids, old_logprobs, advantages, ref_logprobs, weights = arrays
    batch = _batch(role, seq_offsets, span_ids, old_logprobs, old_logprobs, advantages, ref_logprobs)
    said = [("group", f"computes linear_loss of {_generated.POLICIES[options.policy]}")]
    said += [(name, f"is {getattr(options, name)}") for name, *_ in options._fields_]
    said.append(("memory", f"is {memory or None}"))
    for name, t in (("seq_offsets", seq_offsets), ("span_ids", span_ids)):
        said.append((name, "is None" if t is None else f"has the checksum {_head.checksum(t)}"))
    for name, t in (("ref_logprobs", ref_logprobs), ("weights", weights)):
        said.append((name, f"is {'None' if t is None else 'given'}"))
    check = lambda: _schemes.run_loss(batch, weights, options)
    sizes = _head.sizes(hidden, weight, bias, ids, form, ("role", role != 0), wanted, said, check)
    gradients = _head.empty_gradients(hidden, weight, bias, wanted)
    scalars = role.new_empty(_SCALARS, dtype=torch.int64)
    head = _head.Head(weight, bias, ids.numel(), sizes, *form)
    grad = _head.loss(head, hidden, ids, batch, weights, options, _to(gradients, wanted), scalars, memory)
    return _value(scalars), grad, scalars, *gradients


def _linear_loss_fake(
    hidden: Tensor, weight: Tensor, bias: Optional[Tensor], ids: Tensor, *rest: Any
) -> Tuple[Tensor, ...]:
    return *_loss_fake(hidden.new_empty(ids.shape, dtype=torch.float32)), *_head.empty_gradients(hidden, weight, bias, rest[-1])


def _linear_loss_setup(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[Tensor, ...]) -> None:
    _, *others = output
    ctx.mark_non_differentiable(*others)
    ctx.set_materialize_grads(False)  # those of the gradients are as large as they are
    ctx.used = False
    ctx.save_for_backward(*others[2:])


def _linear_loss_backward(ctx: Any, scale: Tensor, *_: Any) -> Any:
    """Scales the gradients where they are."""
    _first_derivative()
    if ctx.used:
        raise RuntimeError("a second backward pass through linear_loss: the first took the gradients, which exist once")
    ctx.used = True
    gradients = [
        _scaled(g, scale) if want else None for g, want in zip(ctx.saved_tensors, ctx.needs_input_grad)
    ]
    return *gradients, *[None] * (len(ctx.needs_input_grad) - 3)


def _scaled(x: Tensor, scale: Tensor) -> Tensor:
    """x times scale: x itself, but for compilers, which do not see that it changes."""
    if type(x) is not Tensor:
        return x * scale
    if not scale.is_cpu or scale.item() != 1:  # looking waits for a GPU
        x.mul_(scale)
    return x


# loss

_SCALARS = len(_generated.LossResult._fields_)
LOSS_NUMBERS = tuple(name for name, kind, *_ in _generated.LossOptions._fields_ if kind is c_double)
_LOSS_INTEGERS = tuple(name for name, kind, *_ in _generated.LossOptions._fields_ if kind is not c_double)


def _loss_options(given: Sequence[str], values: Tensor, *integers: int) -> _generated.LossOptions:
    """The options that have these values, and the defaults of their policy for the others."""
    return _schemes.loss_options({**dict(zip(_LOSS_INTEGERS, integers)), **dict(zip(given, values.tolist()))})


def _loss(
    logprobs: Tensor,
    role: Tensor,
    seq_offsets: Optional[Tensor],
    span_ids: Optional[Tensor],
    old_logprobs: Tensor,
    advantages: Tensor,
    ref_logprobs: Optional[Tensor],
    weights: Optional[Tensor],
    *options: Any,
) -> Tuple[Tensor, Tensor, Tensor]:
    """The loss, float32 without dimensions; its gradient with respect to logprobs; the scalars of a LossResult."""
    batch = _batch(role, seq_offsets, span_ids, logprobs, old_logprobs, advantages, ref_logprobs)
    scalars = role.new_empty(_SCALARS, dtype=torch.int64)
    grad, _ = _schemes.run_loss(batch, weights, _loss_options(*options), memory=scalars)
    return _value(scalars), grad, scalars


def _batch(role: Tensor, *arrays: Optional[Tensor]) -> Batch:
    names = ("seq_offsets", "span_ids", "logprobs", "old_logprobs", "advantages", "ref_logprobs")
    return Batch(role=role, **dict(zip(names, arrays)))


def _value(scalars: Tensor) -> Tensor:
    """The loss, the first of the scalars."""
    return scalars.view(torch.float64)[0].to(torch.float32)


def _loss_fake(logprobs: Tensor, *args: Any) -> Tuple[Tensor, Tensor, Tensor]:
    scalars = logprobs.new_empty(_SCALARS, dtype=torch.int64)
    return logprobs.new_empty((), dtype=torch.float32), logprobs.new_empty(logprobs.shape), scalars


def _value_loss(
    new_values: Tensor,
    role: Tensor,
    seq_offsets: Optional[Tensor],
    values: Tensor,
    returns: Tensor,
    numbers: Tensor,
    *integers: int,
) -> Tuple[Tensor, Tensor, Tensor]:
    """The critic's loss, its gradient with respect to new_values, and the scalars of a ValueLossResult."""
    batch = Batch(role=role, seq_offsets=seq_offsets, new_values=new_values, values=values, returns=returns)
    scalars = role.new_empty(len(_generated.ValueLossResult._fields_), dtype=torch.int64)
    options = _generated.ValueLossOptions(numbers.item(), *integers)
    grad, _ = _schemes.run_value_loss(batch, options, memory=scalars)
    return _value(scalars), grad, scalars


def _value_loss_fake(new_values: Tensor, *args: Any) -> Tuple[Tensor, Tensor, Tensor]:
    scalars = new_values.new_empty(len(_generated.ValueLossResult._fields_), dtype=torch.int64)
    return new_values.new_empty((), dtype=torch.float32), new_values.new_empty(new_values.shape), scalars


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
    "token_stats(Tensor logits, Tensor ids, Tensor numbers, bool entropy, bool squares) -> (Tensor, Tensor, Tensor)",
    _token_stats,
    _token_stats_fake,
)
row_gradient = _define(
    f"row_gradient(Tensor logits, Tensor ids, {_RESULTS}, Tensor numbers) -> Tensor",
    _row_gradient,
    _row_gradient_fake,
)
linear_token_stats = _define(
    f"linear_token_stats({_HEAD}, Tensor? mask, bool entropy, bool energy, bool squares, bool[] wanted) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _linear_token_stats,
    _linear_token_stats_fake,
)
linear_row_gradient = _define(
    f"linear_row_gradient({_HEAD}, Tensor sizes, Tensor? mask, Tensor logprobs, Tensor entropy, Tensor lse, Tensor? grad, "
    "Tensor? grad_entropy, bool[] wanted) -> (Tensor, Tensor, Tensor)",
    _linear_row_gradient,
    _linear_row_gradient_fake,
)
_LOSS = (
    "Tensor role, Tensor? seq_offsets, Tensor? span_ids, Tensor old_logprobs, Tensor advantages, Tensor? ref_logprobs, "
    "Tensor? weights, str[] given, Tensor values, "
) + ", ".join(f"SymInt {name}" for name in _LOSS_INTEGERS)
loss = _define(f"loss(Tensor logprobs, {_LOSS}) -> (Tensor, Tensor, Tensor)", _loss, _loss_fake)
value_loss = _define(
    "value_loss(Tensor new_values, Tensor role, Tensor? seq_offsets, Tensor values, Tensor returns, Tensor numbers, "
    "SymInt norm_length, int aggregation) -> (Tensor, Tensor, Tensor)",
    _value_loss,
    _value_loss_fake,
)
linear_loss = _define(
    f"linear_loss({_HEAD}, {_LOSS}, SymInt memory, bool[] wanted) -> "
    "(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _linear_loss,
    _linear_loss_fake,
)
for _name, _backward, _setup in (
    ("token_stats", _token_stats_backward, _token_stats_setup),
    ("linear_token_stats", _linear_token_stats_backward, _linear_token_stats_setup),
    ("loss", _loss_backward, _loss_setup),
    ("value_loss", _loss_backward, _loss_setup),
    ("linear_loss", _linear_loss_backward, _linear_loss_setup),
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


def _forward64(
    x: Tensor, ids: Tensor, temperature: float, entropy: bool, squares: bool
) -> Tuple[Tensor, Tensor, Tensor]:
    l, _, pl = _terms64(x, temperature)
    logprobs = l.gather(-1, ids.long()[..., None])[..., 0]
    h = -pl.sum(-1) if entropy else x.new_empty(0)
    return logprobs.contiguous(), h, torch.logsumexp(2 * l, -1) if squares else x.new_empty(0)


def _backward64(x: Tensor, ids: Tensor, grad: Tensor, grad_entropy: Optional[Tensor], temperature: float) -> Tensor:
    _, p, pl = _terms64(x, temperature)
    g = grad[..., None]
    e = torch.zeros_like(g) if grad_entropy is None else grad_entropy[..., None]
    d = -g * p - e * (pl - p * pl.sum(-1, keepdim=True))
    d.scatter_add_(-1, ids.long()[..., None], g)
    return (d / temperature).masked_fill((g == 0) & (e == 0), 0)
