"""The kernels on rows of logits."""

from __future__ import annotations

import math
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from . import _generated
from ._arrays import (
    BF16,
    F16,
    F32,
    I32,
    I64,
    Array,
    ArrayLike,
    DType,
    as_numpy,
    check_apart,
    check_out,
    check_shape,
    empty,
    inner_contiguous,
    new,
    not_contiguous,
    view,
)
from ._backend import Apart, backend
from ._generated import DEFAULT_ROW_GRADIENT
from ._errors import InputError, described, integer, located, number


class TokenStats(NamedTuple):
    """The outputs of token_stats, float32, one element per row of logits, in nats."""

    lse: Any = None
    """logsumexp of the raw logits; the energy E is -lse"""
    entropy: Any = None
    """entropy H of softmax(x / temperature)"""
    logprobs: Any = None
    """log-probability of the row's id under softmax(x / temperature)"""
    log_sum_sq_probs: Any = None
    """log of the sum of the squared probabilities of softmax(x / temperature)"""


def token_stats(
    logits: ArrayLike,
    ids: Optional[ArrayLike] = None,
    *,
    temperature: float = 1.0,
    log_sum_sq_probs: bool = False,
    out: Optional[TokenStats] = None,
    workers: int = 0,
) -> TokenStats:
    """Computes statistics of each row x of logits and of its id y:

        lse              = log sum_v exp(x_v)
        entropy          = log sum_v exp(z_v) - sum_v p_v z_v      z = x / temperature, p = softmax(z)
        logprobs         = z_y - log sum_v exp(z_v)
        log_sum_sq_probs = log sum_v p_v^2

    (softmax and its entropy; verl, logprobs_from_logits and entropy_from_logits; TRL,
    log_sum_sq_probs) in one pass over the row, two if temperature is not 1 and lse is wanted.

    logits: [N, V], [B, T, V] or [V], of float32, bfloat16 or float16. They are read where
        they are. Rows may be apart, such as those of logits[:, :-1]; the logits of a row
        lie one after another.
    ids: int32 or int64, of the shape of logits without V. Without them logprobs is None.
    temperature: 1e-30 to 1e30. lse is always at 1.
    log_sum_sq_probs: whether it is computed; without it, it is None. It has no meaning with out.
    out: a TokenStats of arrays to write to, which overlap neither each other nor the inputs.
        What is None in it is not computed. Without it, the others are, in new arrays.
    workers: threads that share the rows; 0 is the CPUs that this process may use. The
        results do not depend on it. A GPU does not use it.

    entropy is at least 0 and at most log V, and so is -log_sum_sq_probs; logprobs is at most
    0. Masked ids (-inf) add nothing. A row that is all -inf has lse -inf, one with +inf has lse
    +inf, one with a NaN has lse NaN, and all three have the others NaN.

    Raises InputError, a ValueError, for an id outside of the vocabulary, for shapes and
    devices that do not match, and for a wrong temperature; nothing is written then.
    """
    x = view("logits", logits, (F32, BF16, F16))
    shape = _rows_shape("logits", x)
    y = None
    if ids is not None:
        y = _per_row("ids", ids, (I32, I64), shape, x)
    if out is None:
        results = [
            None if unwanted else empty(x, shape, F32) for unwanted in (False, False, y is None, not log_sum_sq_probs)
        ]
    else:
        if not isinstance(out, TokenStats):
            raise TypeError(f"out is {described(out)}, want a TokenStats")
        results = [
            None if obj is None else _per_row("out." + name, obj, (F32,), shape, x, writable=True)
            for name, obj in zip(TokenStats._fields, out)
        ]
        if results == [None] * len(results):
            raise InputError("out", "has no output: lse, entropy, logprobs and log_sum_sq_probs are all None")
        for i, (name, result) in enumerate(zip(TokenStats._fields, results)):
            if result is not None:
                check_apart("out." + name, result, "logits", x)
                if y is not None:
                    check_apart("out." + name, result, "ids", y)
                for other, earlier in zip(TokenStats._fields[:i], results):
                    if earlier is not None:
                        check_apart("out." + name, result, "out." + other, earlier)
        if results[2] is None:
            y = None
        elif y is None:
            raise InputError("ids", f"is None, want the shape {list(shape)}, one element per row, for out.logprobs")
    _token_stats(x, y, results, number("temperature", temperature), integer("workers", workers, 32))
    return TokenStats(*[None if r is None else r.owner for r in results])


def write_token_stats(
    logits: ArrayLike, ids: ArrayLike, results: Sequence[Optional[Any]], temperature: float, workers: int
) -> None:
    """Writes those of a TokenStats that are not None: new tensors with an element per row, one after another."""
    x = view("logits", logits, (F32, BF16, F16))
    y = _per_row("ids", ids, (I32, I64), _rows_shape("logits", x), x)
    _token_stats(x, y, [None if t is None else new(t, F32, x.device) for t in results], temperature, workers)


def _token_stats(
    x: Array, y: Optional[Array], results: Sequence[Optional[Array]], temperature: float, workers: int
) -> None:
    """Writes the results, those of a TokenStats in their order."""
    for part in _parts(x, x, [y, *results]):
        _call_token_stats(x, y, part, temperature, workers)


def _call_token_stats(x: Array, y: Optional[Array], part: _Part, temperature: float, workers: int) -> None:
    ids, *results = part.pointers
    dst = _generated.Stats(*results)
    chosen = _generated.Ids(ids, y is not None and y.dtype is I64)
    try:
        backend(x.device).token_stats(dst, part.logits, chosen, temperature, workers, part.apart, _of_torch(x))
    except InputError as e:
        raise located(e, x.shape[:-1]) from None


def row_gradient(
    logits: ArrayLike,
    ids: ArrayLike,
    logprobs: ArrayLike,
    grad: ArrayLike,
    *,
    entropy: Optional[ArrayLike] = None,
    grad_entropy: Optional[ArrayLike] = None,
    lse: Optional[ArrayLike] = None,
    temperature: float = DEFAULT_ROW_GRADIENT.temperature,
    entropy_bonus: float = DEFAULT_ROW_GRADIENT.entropy_bonus,
    out: Optional[ArrayLike] = None,
    workers: int = 0,
) -> Any:
    """Returns the gradient of the loss with respect to each logit. With z = x / temperature,
    p = softmax(z), y the row's id, l its log-probability, H the row's entropy, g = dL/dl
    and c = entropy_bonus - dL/dH:

        out_v = (g ([v = y] - p_v) + c p_v (log p_v + H)) / temperature

    logits: [N, V], [B, T, V] or [V], of float32 or bfloat16, as token_stats has them. The
        other arrays have this shape without V.
    ids: int32 or int64. With lse an id may be -1: that of a column that is not among these.
    logprobs, entropy: float32, those of token_stats for the same logits and temperature.
        entropy may be left out where c is 0 by its terms.
    grad: float32, dL/dl, as loss returns it.
    grad_entropy: float32, dL/dH; None stands for zeros.
    lse: float32, the logsumexp of z; None to have it from the chosen logit and logprobs, whose
        last bits move the whole row then. It is for logits that have been computed a second time,
        or that are some columns of the rows; logprobs and entropy are those of the whole row. It is
        that of token_stats where temperature is 1.
    temperature: of the policy, 1e-30 to 1e30.
    entropy_bonus: c in the loss L - c sum_t H_t; finite.
    out: the array to write to, of the shape and dtype of logits, rounded to nearest even.
        It may be logits itself, which are then overwritten. Otherwise it overlaps no argument.
        Without it a new array is made.
    workers: threads that share the rows; 0 is the CPUs that this process may use.

    A row with g = 0 and c = 0 is not read and gets 0. A logit of -inf gets exactly 0, but for that
    of the id, which gets g / temperature. A row whose log-probability is NaN, or whose lse is not
    finite, gets NaN. Raises InputError, a ValueError, as token_stats does; nothing is written then.
    """
    x = view("logits", logits, (F32, BF16))
    shape = _rows_shape("logits", x)
    y = _per_row("ids", ids, (I32, I64), shape, x)
    l = _per_row("logprobs", logprobs, (F32,), shape, x)
    g = _per_row("grad", grad, (F32,), shape, x)
    gh = None if grad_entropy is None else _per_row("grad_entropy", grad_entropy, (F32,), shape, x)
    total = None if lse is None else _per_row("lse", lse, (F32,), shape, x)
    options = _generated.RowGradientOptions(number("temperature", temperature), number("entropy_bonus", entropy_bonus))
    h = None
    if entropy is not None:
        h = _per_row("entropy", entropy, (F32,), shape, x)
    elif gh is not None or (options.entropy_bonus != 0 and math.isfinite(options.entropy_bonus)):
        why = "grad_entropy is set" if gh is not None else "entropy_bonus is not 0"
        raise InputError("entropy", f"is None, want the shape {list(shape)}, one element per row, because {why}")
    if out is None:
        dst = empty(x, x.shape, x.dtype)
    else:
        dst = view("out", out, (x.dtype,), True)
        check_shape("out", dst, x.shape, "logit", x, "logits")
        _rows_shape("out", dst)
        rest = {"ids": y, "logprobs": l, "grad": g, "grad_entropy": gh, "entropy": h, "lse": total}
        check_out("out", dst, {"logits": x, **rest})
    workers = integer("workers", workers, 32)
    run = backend(x.device)
    for part in _parts(x, dst, [y, l, h, g, gh, total], 0 if lse is None else -1):
        p = part.pointers
        chosen = _generated.Ids(p[0], y.dtype is I64)
        try:
            run.row_gradient(
                part.dst, part.logits, chosen, p[1], p[2], p[3], p[4], p[5], options, workers, part.apart, _of_torch(x)
            )
        except InputError as e:
            raise located(e, shape) from None
    return dst.owner


def _of_torch(x: Array) -> bool:
    return not isinstance(x.owner, np.ndarray)


def _rows_shape(argument: str, x: Array) -> Tuple[int, ...]:
    """Returns the shape of arrays with an element per row of x."""
    shape = x.shape
    if not 1 <= len(shape) <= 3:
        raise InputError(argument, f"has the shape {list(shape)}, want [N, V], [B, T, V] or [V]")
    if shape[-1] < 1:
        raise InputError(argument, "has rows of 0 logits, want at least 1")
    if not x.contiguous:
        if not inner_contiguous(x):
            raise not_contiguous(argument, x)
        if len(shape) > 1 and shape[-2] > 1 and x.strides[-2] < shape[-1]:
            problem = f"has a row every {x.strides[-2]} elements, want at least {shape[-1]}, the logits of a row"
            raise InputError(argument, problem)
    return shape[:-1]


def _per_row(
    argument: str, obj: Any, dtypes: Tuple[DType, ...], shape: Tuple[int, ...], like: Array, writable: bool = False
) -> Array:
    """Returns an array with an element per row of logits."""
    array = view(argument, obj, dtypes, writable)
    check_shape(argument, array, shape, "row", like, "logits")
    if not inner_contiguous(array):
        raise not_contiguous(argument, array)
    return array


class _Part(NamedTuple):
    """Rows that one call does."""

    logits: _generated.Rows
    dst: _generated.Rows  # of row_gradient
    pointers: List[int]  # of the arrays with an element per row; 0 for None
    apart: Optional[Apart] = None


def _parts(x: Array, dst: Array, arrays: List[Optional[Array]], lowest: int = 0) -> List[_Part]:
    """Returns the calls that do all rows: one, or where rows are not the same distance
    apart, one for each b of [B, T, V]. A GPU needs only one there, too, if no other array
    with an element per row than the ids, the first of the arrays, has gaps."""
    rows = _rows(x)
    out = rows if dst is x else _rows(dst)
    pointers, contiguous = [], True
    for a in arrays:
        if a is None:
            pointers.append(0)
        else:
            pointers.append(a.pointer)
            contiguous = contiguous and a.contiguous
    if rows is not None and out is not None and contiguous:
        return [_Part(rows, out, pointers)]
    ids = arrays[0]
    if x.device is not None and all(a is None or a.contiguous for a in arrays[1:]):
        gaps = [0 if a is None else _gap(a, sequence) for a, sequence in ((x, -2), (dst, -2), (ids, -1))]
        first, to = (_all(a) for a in (x, dst))
        return [_Part(first, to, pointers, Apart(x.shape[1], *gaps))]
    if x.device is None and ids is not None:
        _check_ids(ids, x.shape[-1], lowest)  # all of them, before the first call writes
    parts = []
    for b in range(x.shape[0]):
        pointers = [0 if a is None else _at(a, b) for a in arrays]
        parts.append(_Part(_matrix(x, b), _matrix(dst, b), pointers))
    return parts


def _rows(x: Array) -> Optional[_generated.Rows]:
    """Returns the rows of x, or None if they are not the same distance apart."""
    shape, n = x.shape, 1
    vocab = stride = shape[-1]
    for d in shape[:-1]:
        n *= d
    if not x.contiguous and n > 1:
        strides = x.strides
        if len(shape) == 2 or shape[0] == 1:
            stride = strides[-2]
        elif shape[1] == 1:
            stride = strides[0]
        elif strides[0] == shape[1] * strides[1]:
            stride = strides[1]
        else:
            return None
        if stride < vocab:
            return None
    return _generated.Rows(x.pointer, n, vocab, stride, x.dtype.number)


def _all(x: Array) -> _generated.Rows:
    """Returns the rows of [B, T, V] as if b began where the rows of b - 1 end."""
    b, n, vocab = x.shape
    return _generated.Rows(x.pointer, b * n, vocab, x.strides[1] if n > 1 else vocab, x.dtype.number)


def _gap(x: Array, row: int) -> int:
    """Returns how many elements x[b] begins behind the place where the rows of x[b - 1] end.
    row is the number of the dimension of rows."""
    n = x.shape[row]
    stride = x.strides[row] if n > 1 else x.shape[-1]
    return 0 if x.contiguous else x.strides[0] - n * stride


def _at(x: Array, b: int) -> int:
    """Returns the address of x[b]."""
    return x.pointer + b * x.strides[0] * x.dtype.size


def _matrix(x: Array, b: int) -> _generated.Rows:
    """Returns the rows of x[b]."""
    n, vocab = x.shape[1:]
    return _generated.Rows(_at(x, b), n, vocab, x.strides[1] if n > 1 else vocab, x.dtype.number)


def _check_ids(ids: Array, vocab: int, lowest: int = 0) -> None:
    """Wants ids of the vocabulary, or -1 if that is the lowest."""
    elements = as_numpy(ids)
    wrong = np.argwhere((elements < lowest) | (elements >= vocab))
    if len(wrong):
        index = tuple(int(i) for i in wrong[0])
        raise InputError("ids", f"is {elements[index]}, want {lowest} to {vocab - 1}, for rows of {vocab} logits", index)
