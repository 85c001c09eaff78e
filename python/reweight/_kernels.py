"""The kernels one by one, for callers who compose their own step."""

from __future__ import annotations

from typing import Any, Iterable, NamedTuple, Optional, Tuple

from . import _generated
from ._arrays import F32, I32, Array, ArrayLike, check, check_apart, output, view
from ._errors import InputError, described, number
from ._backend import backend
from ._generated import DEFAULT_ACTFOCUS, DEFAULT_LOSS, LossOptions
from ._scalars import Scalars
from ._schemes import _actfocus_options, _output, _pointer, _run
from .batch import ACTION, MASKED, REASONING, Batch, bind


class Moments(NamedTuple):
    """The sums of masked_moments over n tokens."""

    n: Any
    sum: Any
    """of x - shift"""
    squares: Any
    """of (x - shift)^2"""


def masked_moments(
    x: ArrayLike, role: ArrayLike, roles: Iterable[int] = (REASONING, ACTION), *, shift: float = 0.0
) -> Moments:
    """Sums x - shift and its square over the tokens whose role is one of roles.

    x is float32 and role uint8, of the same shape, [T] or [B, T]; shift is finite. The
    values of other tokens do not matter. Raises InputError, a ValueError, for anything
    else.
    """
    bits = 0
    for r in roles:
        if r not in (MASKED, REASONING, ACTION):
            raise InputError("roles", f"has {r!r}, want 0, 1 and 2")
        bits |= 1 << r
    b = bind(Batch(role=role))
    values = view("x", x, (F32,))
    check("x", values, b.shape, "token", b.role, "role")
    shift = number("shift", shift)
    result = Scalars(_generated.Moments, b.role)
    _run(b, lambda run: run.masked_moments(result.address, values.pointer, b.role.pointer, b.role.size, bits, shift))
    return Moments(*result.values())


def actfocus_weights(
    signal: ArrayLike,
    role: ArrayLike,
    mean: float,
    sigma: float,
    *,
    alpha: float = DEFAULT_ACTFOCUS.alpha,
    beta: float = DEFAULT_ACTFOCUS.beta,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns the weights of actfocus, with the given mean and sigma of the signal: alpha for
    reasoning, 1 + beta sigmoid((signal[t] - mean) / sigma) for action and 0 for masked
    tokens (arXiv 2605.14558).

    signal is float32 and role uint8, of the same shape, [T] or [B, T]; out, float32, may
    be signal. sigma is at least 0; 0 makes every sigmoid 1/2. Raises InputError, a
    ValueError, for a wrong shape, mean, sigma or option; out is not written then.
    """
    options = _actfocus_options(alpha, beta, 0.0, "energy")
    mean, sigma = number("mean", mean), number("sigma", sigma)
    b = bind(Batch(role=role))
    values = view("signal", signal, (F32,))
    check("signal", values, b.shape, "token", b.role, "role")
    dst = _output(out, b, signal=values)
    _run(
        b,
        lambda run: run.actfocus_weights(
            dst.pointer, values.pointer, b.role.pointer, b.role.size, mean, sigma, options
        ),
    )
    return dst.owner


def span_means(x: ArrayLike, offsets: ArrayLike, *, out: Optional[ArrayLike] = None) -> Any:
    """Returns the mean of x over each span s, its elements offsets[s] to offsets[s+1]; NaN
    for an empty one.

    x is float32, [n]; offsets int32, [spans+1], not decreasing, within x; out float32,
    [spans], and does not overlap x. Raises InputError, a ValueError, for anything else;
    out is not written then.
    """
    values, ranges = _ranges(x, offsets)
    spans = ranges.shape[0] - 1
    dst = output("out", out, (spans,), "span", {"x": values, "offsets": ranges})
    check_apart("out", dst, "x", values)
    backend(values.device).span_means(dst.pointer, spans, values.pointer, values.size, ranges.pointer)
    return dst.owner


class MinMax(NamedTuple):
    """The extremes of groups, float32."""

    lo: Any
    hi: Any


def min_max(x: ArrayLike, offsets: ArrayLike, *, out: Optional[MinMax] = None) -> MinMax:
    """Returns the extremes of each group g of x, its elements offsets[g] to offsets[g+1]:
    both NaN if one is NaN, +inf and -inf for an empty group.

    x is float32, [n]; offsets int32, [groups+1], not decreasing, within x; out is a MinMax
    of float32 arrays, [groups], that do not overlap x nor each other. Raises InputError, a
    ValueError, for anything else; nothing is written then.
    """
    values, ranges = _ranges(x, offsets)
    groups = ranges.shape[0] - 1
    if out is not None and not isinstance(out, MinMax):
        raise TypeError(f"out is {described(out)}, want a MinMax")
    inputs = {"x": values, "offsets": ranges}
    lo = output("out.lo", None if out is None else out.lo, (groups,), "group", inputs)
    hi = output("out.hi", None if out is None else out.hi, (groups,), "group", inputs)
    check_apart("out.lo", lo, "x", values)
    check_apart("out.hi", hi, "x", values)
    check_apart("out.hi", hi, "out.lo", lo)
    backend(values.device).min_max(lo.pointer, hi.pointer, groups, values.pointer, values.size, ranges.pointer)
    return MinMax(lo.owner, hi.owner)


def _ranges(x: ArrayLike, offsets: ArrayLike) -> Tuple[Array, Array]:
    values = _vector("x", x)
    ranges = view("offsets", offsets, (I32,))
    if len(ranges.shape) != 1 or ranges.shape[0] < 1:
        raise InputError("offsets", f"has the shape {list(ranges.shape)}, want one dimension of at least 1 element")
    check("offsets", ranges, ranges.shape, "boundary", values, "x")
    return values, ranges


def _vector(argument: str, obj: ArrayLike) -> Array:
    """Returns an array of one dimension."""
    array = view(argument, obj, (F32,))
    if len(array.shape) != 1:
        raise InputError(argument, f"has the shape {list(array.shape)}, want one dimension")
    check(argument, array, array.shape, "element", array, argument)
    return array


def exp_scale(x: ArrayLike, lo: float, rate: float, *, out: Optional[ArrayLike] = None) -> Any:
    """Returns exp(-rate (x[i] - lo)), divided by the mean of these: AEM's map of a scope's
    span entropies (arXiv 2605.00425), with lo the smallest and rate = lambda / (max - min).
    The exponent is kept between -86 and 83.

    x is float32, [n], n at least 1; out, float32, may be x. lo is finite, rate at least 0
    and finite. Raises InputError, a ValueError, for anything else; out is not written then.
    """
    values = _vector("x", x)
    lo, rate = number("lo", lo), number("rate", rate)
    dst = output("out", out, values.shape, "element of x", {"x": values})
    backend(values.device).exp_scale(dst.pointer, values.pointer, values.size, lo, rate)
    return dst.owner


def multiply(a: ArrayLike, b: ArrayLike, *, out: Optional[ArrayLike] = None) -> Any:
    """Returns a[i] b[i]: AEM's factors onto advantages.

    a, b and out are float32, of one shape; out may be a or b. Raises InputError, a
    ValueError, for anything else.
    """
    first, second = view("a", a, (F32,)), view("b", b, (F32,))
    check("a", first, first.shape, "element", first, "a")
    check("b", second, first.shape, "element of a", first, "a")
    dst = output("out", out, first.shape, "element of a", {"a": first, "b": second})
    backend(first.device).multiply(dst.pointer, first.pointer, second.pointer, first.size)
    return dst.owner


class SurrogateSums(NamedTuple):
    """The gradient of surrogate, and what it sums over response tokens."""

    grad: Any
    """float32, one element per token"""
    tokens: Any
    clipped: Any
    """those whose clipped term is the larger"""
    loss: Any
    """of weight times clipped surrogate"""
    log_ratio: Any
    """of the clamped log-ratio, nats"""


def surrogate(
    logprobs: ArrayLike,
    old_logprobs: ArrayLike,
    advantages: ArrayLike,
    role: ArrayLike,
    weights: Optional[ArrayLike] = None,
    *,
    scale: float = 1.0,
    clip_low: float = DEFAULT_LOSS.clip_low,
    clip_high: float = DEFAULT_LOSS.clip_high,
    dual_clip: float = DEFAULT_LOSS.dual_clip,
    out: Optional[ArrayLike] = None,
) -> SurrogateSums:
    """Computes the weighted clipped surrogate of each response token as loss defines it of ppo,
    its sums, and grad[t] = scale * dl_t/dlogprobs[t] * weight.

    All are float32, role is uint8, of one shape, [T] or [B, T]. weights None stands for
    ones. out is the array for grad; it may be any of the float arrays. Raises InputError, a
    ValueError, for a wrong shape or option; out is not written then.
    """
    options = LossOptions(number("clip_low", clip_low), number("clip_high", clip_high), number("dual_clip", dual_clip))
    scale = number("scale", scale)
    b = bind(
        Batch(role=role, logprobs=logprobs, old_logprobs=old_logprobs, advantages=advantages),
        "logprobs",
        "old_logprobs",
        "advantages",
    )
    w = None
    if weights is not None:
        w = view("weights", weights, (F32,))
        check("weights", w, b.shape, "token", b.role, "role")
    grad = _output(out, b, weights=w)
    result = Scalars(_generated.SurrogateSums, b.role)
    s = b.struct
    _run(
        b,
        lambda run: run.surrogate(
            result.address,
            grad.pointer,
            s.logprobs or 0,
            s.old_logprobs or 0,
            s.advantages or 0,
            _pointer(w),
            b.role.pointer,
            b.role.size,
            scale,
            options,
        ),
    )
    return SurrogateSums(grad.owner, *result.values())
