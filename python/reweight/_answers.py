"""Compares the kernels of a GPU with the C library before anybody trusts them: each when it is used first, on a few
rows and tokens that are hard. The Go package gpu/internal/answers does the same for Go."""

from __future__ import annotations

from ctypes import sizeof
from typing import Any, Callable, Dict, List, Optional, Protocol, Tuple

import numpy as np
import numpy.typing as npt

from . import _generated, _library
from ._backend import Backend
from ._generated import KERNELS_OF, Batch, Ids, Rows

Array = npt.NDArray[Any]
Results = Dict[str, Array]


class Place(Protocol):
    """Memory that a backend reads and writes: of the process, or of a GPU."""

    def put(self, x: Array) -> int:
        """Copies an array there and returns its address."""

    def get(self, x: Array, address: int) -> Array:
        """Returns what has become of an array there."""


class Here:
    """The memory of this process. It keeps what it was given."""

    def __init__(self) -> None:
        self._kept: List[Array] = []

    def put(self, x: Array) -> int:
        self._kept.append(x.copy())
        address: int = self._kept[-1].ctypes.data
        return address

    def get(self, x: Array, address: int) -> Array:
        return next(kept for kept in self._kept if kept.ctypes.data == address)


def difference(kernel: str, backend: Backend, place: Place) -> Optional[str]:
    """Says what a kernel of the backend, with those that its function launches besides, computes wrong, if it does."""
    call = _call(kernel)
    want = call(_library.cpu(), Here())
    got = call(backend, place)
    for name, x in want.items():
        y = got[name]
        bits = [np.where(np.isnan(z), z.dtype.type(np.nan), z).view(f"u{z.itemsize}") for z in (x, y)]
        wrong = np.flatnonzero((bits[0] != bits[1]).ravel())
        if len(wrong):
            at = int(wrong[0])
            pair = [float(z.ravel()[at]) for z in (y, x)]
            return (
                f"{len(wrong)} of {x.size} numbers of {name} differ from the CPU's, element {at} is {pair[0]} "
                f"({pair[0].hex()}), want {pair[1]} ({pair[1].hex()})"
            )
    return None


def group(kernel: str) -> Tuple[str, ...]:
    """Returns the kernels that are checked together with one. Empty if nothing comes of the kernel alone."""
    if kernel.startswith(("token_stats", "row_gradient")):
        return (kernel,)
    of = [names for names in KERNELS_OF.values() if kernel in names and kernel != "check_layout"]
    return tuple(sorted(of, key=len)[0]) if of else ()


def _call(kernel: str) -> Callable[[Backend, Place], Results]:
    for number, dtype in enumerate(_generated.DTYPES):
        temperature = 0.7 if kernel.endswith("_tempered") else 1.0
        name = kernel.removesuffix("_tempered")
        if name in (f"token_stats_{dtype}", f"token_stats_squares_{dtype}"):
            return lambda b, p: _token_stats(b, p, number, temperature, "squares" in name)
        if name == f"row_gradient_{dtype}":
            return lambda b, p: _row_gradient(b, p, number, temperature)
    function = next(name for name, kernels in KERNELS_OF.items() if tuple(kernels) == group(kernel))
    return _CALLS[function]


_VOCAB = 4500  # more than a kernel holds of a row at a time, and no multiple of anything


def _logits(dtype: int) -> Tuple[Array, npt.NDArray[np.int64]]:
    """Returns rows that take every way through a kernel, and an id for each."""
    g, i = np.random.default_rng(1), np.arange(_VOCAB)
    x = 3 * g.normal(size=(10, _VOCAB))
    x[1] += i // 500 * 9 - 30.0  # the largest so far grows on and on
    x[2] += 50  # masked, the first chunk as a whole
    x[2, (i < 2100) | (i % 3 == 0)] = -np.inf
    x[3] = 8 * x[3] - 90  # most far below the first
    x[3, 0] = 20
    x[4] = 1.25  # flat
    x[5] = -i / 8  # the largest first, the last far below it
    x[6] = (i * i % 9973) / 512 - 40
    x[7, -1] = 300  # nothing else is near
    x[8, 4321] = np.nan
    x[9] *= 1e6  # too large for float32 in units of log 2
    ids = np.arange(10) * 731 % _VOCAB
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == 2:
            return x.astype(np.float16), ids
        single = x.astype(np.float32)
    return (single.view(np.uint32) >> 16).astype(np.uint16) if dtype == 1 else single, ids


def _token_stats(backend: Backend, place: Place, dtype: int, temperature: float, squares: bool) -> Results:
    x, ids = _logits(dtype)
    names = ["entropy", "logprobs"] + ["lse"] * (temperature == 1) + ["log_sum_sq_probs"] * squares
    empty = np.zeros(len(ids), np.float32)
    to = {name: place.put(empty) for name in names}
    rows = Rows(place.put(x), *x.shape, _VOCAB, dtype)
    backend.token_stats(_generated.Stats(**to), rows, Ids(place.put(ids), 1), temperature, 1)
    return {name: place.get(empty, address) for name, address in to.items()}


def _row_gradient(backend: Backend, place: Place, dtype: int, temperature: float) -> Results:
    x, ids = _logits(dtype)
    here = Here()
    stats = _token_stats(_library.cpu(), here, dtype, temperature, False)
    lse = _token_stats(_library.cpu(), here, dtype, 1, False)["lse"] / np.float32(temperature)
    grad = np.array([1, -0.5, 2, 0.25, -3, 1, 0.1, 1e-3, -20, 0.75], np.float32)
    options = _generated.RowGradientOptions(temperature, 0.01)
    results: Results = {}
    rows, chosen = Rows(place.put(x), *x.shape, _VOCAB, dtype), Ids(place.put(ids), 1)
    logprobs, entropy, of_loss = place.put(stats["logprobs"]), place.put(stats["entropy"]), place.put(grad)
    for name, given in (("the gradient", 0), ("the gradient with lse", place.put(lse))):
        to = place.put(np.zeros_like(x))
        dst = Rows(to, *x.shape, _VOCAB, dtype)
        backend.row_gradient(dst, rows, chosen, logprobs, entropy, of_loss, 0, given, options, 1)
        got = place.get(x, to)
        results[name] = got if dtype == 0 else (got.astype(np.uint32) << 16).view(np.float32)
    return results


_TOKENS = 331  # more than two groups of the one summation order
_OFFSETS = np.array([0, 1, 9, 9, 26, 58, 190, _TOKENS], np.int32)  # of ranges of several lengths, of 0 too


def _values(seed: int) -> npt.NDArray[np.float32]:
    """Returns numbers whose exponents differ."""
    g = np.random.default_rng(seed)
    return (g.normal(size=_TOKENS) * np.exp(g.normal(size=_TOKENS))).astype(np.float32)


def _arrays() -> Dict[str, Array]:
    """Returns the arrays of five trajectories of two groups, with three responses each; one is long."""
    ends = np.array([0, 40, 81, 100, 290, _TOKENS])
    role, span = np.zeros(_TOKENS, np.uint8), np.full(_TOKENS, -1, np.int32)
    for s, begin in enumerate(ends[:-1]):
        n = ends[s + 1] - begin
        part = 9 * np.arange(n) // n
        role[begin : begin + n] = part % 3
        span[begin : begin + n] = np.where(part % 3 > 0, 3 * s + part // 3, -1)
    logprobs = _values(4)
    old = logprobs + _values(3) / 8
    old[7::50] -= 30  # beyond the bounds of the ratio
    return {
        "role": role,
        "seq_offsets": ends.astype(np.int64),
        "group_ids": np.array([0, 1, 0, 1, 1], np.int32),
        "rewards": np.array([1, 0, 0.25, -2, 3], np.float32),
        "span_ids": span,
        "ref_energy": _values(1),
        "entropy": np.abs(_values(2)),
        "old_logprobs": old,
        "logprobs": logprobs,
        "ref_logprobs": _values(5),
        "advantages": _values(6),
        "values": _values(7),
    }


def _batch(place: Place) -> Batch:
    return Batch(tokens=_TOKENS, trajectories=5, **{name: place.put(x) for name, x in _arrays().items()})


class _Tokens:
    """An array of tokens that a function writes, and the struct that it returns besides, in 8 bytes a field."""

    def __init__(self, place: Place, struct: Any = None, n: int = _TOKENS) -> None:
        self._place, self._x = place, np.zeros(n, np.float32)
        self._struct = np.zeros(sizeof(struct) // 8 if struct else 1, np.float64)
        self.to, self.struct = place.put(self._x), place.put(self._struct)

    def results(self, name: str = "the results") -> Results:
        struct = self._place.get(self._struct, self.struct)
        return {name: self._place.get(self._x, self.to), f"the sums of {name}": struct}


def _actfocus(backend: Backend, place: Place) -> Results:
    results: Results = {}
    for number, signal in enumerate(_generated.SIGNALS):
        if signal != "ref_entropy":
            t = _Tokens(place, _generated.ActFocusResult)
            backend.actfocus(t.struct, t.to, _batch(place), _generated.ActFocusOptions(0.1, 0.5, 1e-8, number))
            results.update(t.results(f"the weights by {signal}"))
    return results


def _aem(backend: Backend, place: Place) -> Results:
    results: Results = {}
    for scope in range(3):
        t = _Tokens(place)
        backend.aem(t.to, _batch(place), _generated.AEMOptions(1, 0.1, scope))
        results.update(t.results(f"the factors in scope {scope}"))
    return results


def _grpo(backend: Backend, place: Place) -> Results:
    t = _Tokens(place)
    backend.grpo(t.to, _batch(place), _generated.GRPOOptions(1e-6, 1))
    return t.results()


def _gae(backend: Backend, place: Place) -> Results:
    t, returns = _Tokens(place), _Tokens(place)
    backend.gae(t.to, returns.to, place.put(_values(9)), _batch(place), _generated.GAEOptions(0.99, 0.9))
    return {**t.results("the advantages"), **returns.results("the returns")}


def _whiten(backend: Backend, place: Place) -> Results:
    t = _Tokens(place)
    backend.whiten(t.to, place.put(_values(1)), place.put(_arrays()["role"]), _TOKENS)
    return t.results()


def _loss_options(aggregation: int) -> _generated.LossOptions:
    return _generated.LossOptions(
        clip_low=0.2, clip_high=0.28, dual_clip=3, aggregation=aggregation, policy=_generated.POLICIES.index("ppo")
    )


def _loss(backend: Backend, place: Place) -> Results:
    results: Results = {}
    for number, aggregation in enumerate(_generated.AGGREGATIONS):
        t = _Tokens(place, _generated.LossResult)
        weights = place.put(np.abs(_values(8)) + np.float32(0.125))
        backend.loss(t.struct, t.to, weights, _batch(place), _loss_options(number))
        results.update(t.results(f"the gradient by {aggregation}"))
    return results


def _surrogate(backend: Backend, place: Place) -> Results:
    t, arrays = _Tokens(place, _generated.SurrogateSums), _arrays()
    logprobs, old, advantages = (place.put(arrays[name]) for name in ("logprobs", "old_logprobs", "advantages"))
    weights, role = place.put(np.abs(_values(8)) + np.float32(0.125)), place.put(arrays["role"])
    backend.surrogate(t.struct, t.to, logprobs, old, advantages, weights, role, _TOKENS, 0.75, _loss_options(0))
    return t.results()


def _masked_moments(backend: Backend, place: Place) -> Results:
    t = _Tokens(place, _generated.Moments)
    backend.masked_moments(t.struct, place.put(_values(1)), place.put(_arrays()["role"]), _TOKENS, 6, 0.125)
    return t.results()


def _actfocus_weights(backend: Backend, place: Place) -> Results:
    t, role = _Tokens(place), place.put(_arrays()["role"])
    options = _generated.ActFocusOptions(0.1, 0.5, 1e-8, 0)
    backend.actfocus_weights(t.to, place.put(_values(1)), role, _TOKENS, 0.25, 0.04, options)
    return t.results()


def _span_means(backend: Backend, place: Place) -> Results:
    n = len(_OFFSETS) - 1
    t = _Tokens(place, n=n)
    backend.span_means(t.to, n, place.put(_values(1)), _TOKENS, place.put(_OFFSETS))
    return t.results()


def _min_max(backend: Backend, place: Place) -> Results:
    n, x = len(_OFFSETS) - 1, _values(1)
    x[30] = np.nan
    lo, hi = _Tokens(place, n=n), _Tokens(place, n=n)
    backend.min_max(lo.to, hi.to, n, place.put(x), _TOKENS, place.put(_OFFSETS))
    return {**lo.results("the least"), **hi.results("the largest")}


def _exp_scale(backend: Backend, place: Place) -> Results:
    t = _Tokens(place)
    backend.exp_scale(t.to, place.put(np.abs(_values(2))), _TOKENS, 0, 3)
    return t.results()


def _multiply(backend: Backend, place: Place) -> Results:
    t, a, b = _Tokens(place), _values(1), _values(2)
    a[:7], b[:7] = [0, np.inf, np.inf, 1e-30, 1e30, -0.0, 1e-45], [-1, 0, -1, 1e-12, 1e30, 3, 0.5]
    backend.multiply(t.to, place.put(a), place.put(b), _TOKENS)
    return t.results()


_CALLS: Dict[str, Callable[[Backend, Place], Results]] = {
    "actfocus": _actfocus,
    "aem": _aem,
    "grpo": _grpo,
    "gae": _gae,
    "whiten": _whiten,
    "loss": _loss,
    "masked_moments": _masked_moments,
    "actfocus_weights": _actfocus_weights,
    "span_means": _span_means,
    "min_max": _min_max,
    "exp_scale": _exp_scale,
    "multiply": _multiply,
    "surrogate": _surrogate,
}
