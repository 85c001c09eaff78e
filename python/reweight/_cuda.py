"""The functions of reweight.h on an NVIDIA GPU: the kernels of the Go package gpu, which
the driver compiles from the PTX beside this file.

Calls queue work on the current stream of PyTorch and never wait. Their scratch memory is
that of PyTorch, whose allocator gives it to others in the order of the stream.
"""

from __future__ import annotations

import math
import sys
import threading
from ctypes import Structure, addressof, c_float, c_int32, c_int64, sizeof
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import numpy as np
import numpy.typing as npt

from . import _answers, _cuda_driver, _library
from ._arrays import BF16, F16, F32
from ._backend import Apart
from ._errors import InputError, choice, reported
from ._generated import (
    AGGREGATIONS,
    ARGUMENTS,
    DIFFERENCE,
    DTYPES,
    GROUP,
    GROUPS_OF_CTA,
    KERNELS_OF,
    KERNELS_OF_ROWS,
    LOSS_STATE,
    NEGATED,
    PASS,
    PLAIN,
    POLICIES,
    PROBLEMS,
    SEGMENTS_OF_CTA,
    SEGMENT_STATE,
    SIGNALS,
    WARPS_OF_CTA,
    ActFocusOptions,
    ActFocusResult,
    AEMOptions,
    AEMParams,
    Batch,
    Error,
    ExpScaleParams,
    GAEOptions,
    GAEParams,
    GRPOOptions,
    GRPOParams,
    Ids,
    LayoutParams,
    LossOptions,
    LossParams,
    LossResult,
    MinMaxParams,
    Moments,
    MomentsParams,
    MultiplyParams,
    RangesParams,
    RowGradientOptions,
    RowGradientParams,
    Rows,
    RowsParams,
    Segments,
    SpanMeansParams,
    SpreadParams,
    Stats,
    SurrogateParams,
    SurrogateSums,
    SurrogateTotalParams,
    TokenStatsParams,
    Values,
    WeightsParams,
    WhitenParams,
    WhitenSpreadParams,
)

_WIDTHS = (4, 2, 2)  # bytes of an element, by dtype

_NUMBERS = {name: number for number, name in ARGUMENTS.items()}


def _allocate(ordinal: int, size: int) -> Any:
    """Returns a tensor of so many bytes on a GPU, with unspecified contents."""
    torch = sys.modules["torch"]
    return torch.empty((size,), dtype=torch.uint8, device=torch.device("cuda", ordinal))


def _stream(ordinal: int) -> int:
    """Returns the handle of PyTorch's current stream on a GPU."""
    stream: int = sys.modules["torch"].cuda.current_stream(ordinal).cuda_stream
    return stream


def _ctas(n: int, each: int) -> int:
    """Returns how many CTAs give each of n things a place, of so many for a CTA."""
    return -(-n // each)


def _threads(name: str) -> int:
    """Returns the threads of a CTA of a kernel."""
    return _cuda_driver.KERNELS[name].threads


class _Scratch:
    """Memory of the device for a call, in pieces that are aligned to 256 bytes."""

    def __init__(self, ordinal: int, *sizes: int) -> None:
        starts, end = [], 0
        for size in sizes:
            starts.append(end)
            end += (size + 255) & ~255
        self._memory = _allocate(ordinal, max(end, 1))
        base: int = self._memory.data_ptr()
        self.pieces = [base + start for start in starts]


class _Memory:
    """Memory of the device for the check of a kernel: a Place of _answers."""

    _room = 1 << 21

    def __init__(self, ordinal: int, device: _cuda_driver.Device) -> None:
        self._ordinal, self._device, self._used = ordinal, device, 0
        self._memory = _allocate(ordinal, self._room)

    def put(self, x: npt.NDArray[Any]) -> int:
        address: int = self._memory.data_ptr() + self._used
        self._used += (x.nbytes + 255) & ~255
        if self._used > self._room:
            raise RuntimeError(f"cuda: the arrays of a check take more than {self._room} bytes")
        contiguous = np.ascontiguousarray(x)
        self._device.copy_in(address, contiguous.ctypes.data, x.nbytes, _stream(self._ordinal))
        return address

    def get(self, x: npt.NDArray[Any], address: int) -> npt.NDArray[Any]:
        got = np.empty_like(x)
        self._device.copy_out(got.ctypes.data, address, got.nbytes, _stream(self._ordinal))
        return got


# A batch without tokens: of a function of the CPU that gets it, all that is left is the
# check of its options.
_offsets, _group, _reward = (c_int64 * 2)(), c_int32(), c_float()
_nothing = Batch(
    trajectories=1,
    seq_offsets=addressof(_offsets),
    group_ids=addressof(_group),
    rewards=addressof(_reward),
)
_one = c_float()
_moments, _sums = Moments(), SurrogateSums()


class CUDA:
    """A GPU, by its number: a Backend. What only the device can see is in its status word,
    which check() reads; the outputs that depend on it are NaN until then."""

    def __init__(self, ordinal: int, checked: bool = False, teams: bool = True) -> None:
        self._ordinal, self._teams = ordinal, teams
        self._trusted: Optional[Set[str]] = set() if checked else None  # kernels; None: all
        self._wrong: Dict[str, str] = {}  # what is, by kernel
        self._lock = threading.Lock()
        self._device = _cuda_driver.device(ordinal)
        stream = _stream(ordinal)
        self._device.not_captured(stream, "want a call of reweight.prepare before that, because memory is allocated")
        # Written before any stream uses it.
        self._memory = _allocate(ordinal, sizeof(Error))
        self._status: int = self._memory.data_ptr()
        self._device.fill(self._status, 0, sizeof(Error), stream)
        self._device.synchronize()

    def _launch(self, name: str, ctas: int, params: Structure) -> None:
        if self._trusted is not None and name not in self._trusted:
            self.prepare([name])
        self._device.launch(name, ctas, params, _stream(self._ordinal), self._teams)

    def _trust(self, name: str) -> None:
        """Compares a kernel with the CPU, once, with those that are launched with it. A wrong one is an error."""
        with self._lock:
            if self._trusted is None or name in self._trusted:
                return
            together = _answers.group(name)
            if together and name not in self._wrong:
                for teams in (True, False) if together == (name,) and _cuda_driver.KERNELS[name].team else (True,):
                    plain = CUDA(self._ordinal, teams=teams)
                    memory = _Memory(self._ordinal, self._device)
                    try:
                        wrong = _answers.difference(name, plain, memory)
                        plain.check()
                    except InputError as error:  # what is right has been called wrong
                        wrong = str(error)
                    if wrong:
                        self._wrong.update(dict.fromkeys(together, wrong))
            if name in self._wrong:
                raise RuntimeError(
                    f"cuda: kernel {' or '.join(together)} is wrong on {self._device.name} with its driver for CUDA "
                    f"{self._device.version}: {self._wrong[name]}. With the environment variable REWEIGHT_GPU=off no "
                    "GPU is used; with REWEIGHT_GPU=unchecked it is used without this check"
                )
            self._trusted.update(together or (name,))

    def _fill(self, address: int, value: int, size: int) -> None:
        self._device.fill(address, value, size, _stream(self._ordinal))

    def prepare(self, names: List[str]) -> None:
        self._device.prepare(names, _stream(self._ordinal))
        for name in names:
            self._trust(name)

    def check(self) -> None:
        error = Error()
        stream = _stream(self._ordinal)
        self._device.not_captured(stream, "want reweight.check after that, because it waits")
        self._device.read(error, self._status, stream)
        if error.code:
            self._device.fill(self._status, 0, sizeof(Error), stream)
            if error.code not in PROBLEMS or error.argument not in ARGUMENTS:
                raise RuntimeError(f"cuda: the device reports error {error.code}, which is not known")
            raise reported(error)

    # ---- Rows of logits ----

    def _rows(self, logits: Rows, ids: Ids, temperature: float, apart: Optional[Apart]) -> RowsParams:
        return RowsParams(
            logits=logits.data or 0,
            stride=(logits.stride or logits.vocab) * _WIDTHS[logits.dtype],
            sequence=apart.sequence if apart else logits.rows,
            gap=apart.logits * _WIDTHS[logits.dtype] if apart else 0,
            count=logits.rows,
            selected=logits.rows,
            ids=ids.data or 0,
            id_gap=apart.ids if apart else 0,
            status=self._status,
            temperature=temperature,
            vocab=logits.vocab,
            wide_ids=ids.wide,
        )

    def token_stats(
        self,
        dst: Stats,
        logits: Rows,
        ids: Ids,
        temperature: float,
        workers: int,
        apart: Optional[Apart] = None,
        tensors: bool = False,
    ) -> None:
        _library.cpu().token_stats(dst, _no_rows(logits), ids, temperature, 1)
        if logits.rows == 0:
            return
        if temperature != 1 and dst.lse:  # which is always at 1
            self._token_stats(Stats(lse=dst.lse), logits, ids, 1, apart)
            dst = Stats(entropy=dst.entropy, logprobs=dst.logprobs, log_sum_sq_probs=dst.log_sum_sq_probs)
        if dst.lse or dst.entropy or dst.logprobs or dst.log_sum_sq_probs:
            self._token_stats(dst, logits, ids, temperature, apart)

    def _token_stats(
        self, dst: Stats, logits: Rows, ids: Ids, temperature: float, apart: Optional[Apart]
    ) -> None:
        """Queues one pass over the rows, with lse at the temperature of the others."""
        params = TokenStatsParams(
            lse=dst.lse or 0,
            entropy=dst.entropy or 0,
            logprob=dst.logprobs or 0,
            log_sum_sq_probs=dst.log_sum_sq_probs or 0,
            rows=self._rows(logits, ids, temperature, apart),
        )
        name = "token_stats_squares" if dst.log_sum_sq_probs else "token_stats"
        self._launch(_at(temperature, name, logits), logits.rows, params)

    def row_gradient(
        self,
        dst: Rows,
        logits: Rows,
        ids: Ids,
        logprobs: int,
        entropy: int,
        grad: int,
        grad_entropy: int,
        lse: int,
        options: RowGradientOptions,
        workers: int,
        apart: Optional[Apart] = None,
        tensors: bool = False,
    ) -> None:
        _library.cpu().row_gradient(
            _no_rows(dst), _no_rows(logits), ids, logprobs, entropy, grad, grad_entropy, lse, options, 1
        )
        if logits.rows == 0:
            return
        params = RowGradientParams(
            dst=dst.data or 0,
            dst_stride=(dst.stride or dst.vocab) * _WIDTHS[dst.dtype],
            dst_gap=apart.dst * _WIDTHS[dst.dtype] if apart else 0,
            logprobs=logprobs,
            entropy=entropy,
            grad=grad,
            grad_entropy=grad_entropy,
            lse=lse,
            bonus=options.entropy_bonus,
            rows=self._rows(logits, ids, options.temperature, apart),
        )
        self._launch(_at(options.temperature, "row_gradient", logits), logits.rows, params)

    # ---- Tokens ----

    def multiply(self, dst: int, a: int, b: int, n: int) -> None:
        if n > 0:
            self._launch("multiply", _ctas(n, PASS), MultiplyParams(dst, a, b, n))

    def masked_moments(self, result: int, x: int, role: int, n: int, roles: int, shift: float) -> None:
        _library.cpu().masked_moments(addressof(_moments), 0, 0, 0, roles, shift)
        self._launch("masked_moments", 1, MomentsParams(x, role, result, self._status, n, shift, roles))

    def actfocus(self, result: int, weights: int, batch: Batch, options: ActFocusOptions) -> None:
        _library.cpu().actfocus_weights(0, 0, 0, 0, 0, 0, options)
        n, role = batch.tokens, batch.role or 0
        scratch = _Scratch(self._ordinal, 16, sizeof(ActFocusResult))
        curve, unwanted = scratch.pieces
        signal, first = _signal(batch, options)
        spread = SpreadParams(signal, role, result or unwanted, curve, self._status, n, options.eps, _NUMBERS[first])
        self._launch("actfocus_spread", 1, spread)
        self._weights(
            WeightsParams(
                weights, signal, role, curve, self._status, n, alpha=options.alpha, beta=options.beta
            )
        )

    def actfocus_weights(
        self, dst: int, signal: int, role: int, n: int, mean: float, sigma: float, options: ActFocusOptions
    ) -> None:
        _library.cpu().actfocus_weights(0, 0, 0, 0, mean, sigma, options)
        if n > 0:
            self._weights(
                WeightsParams(
                    dst, Values(a=signal), role, 0, self._status, n, mean, sigma, options.alpha, options.beta
                )
            )

    def _weights(self, params: WeightsParams) -> None:
        self._launch("actfocus_weights", _ctas(params.n, PASS), params)

    def whiten(self, dst: int, x: int, role: int, tokens: int) -> None:
        scratch = _Scratch(self._ordinal, 16)
        (scale,) = scratch.pieces
        self._launch("whiten_spread", 1, WhitenSpreadParams(x, role, scale, self._status, tokens))
        self._launch("whiten", _ctas(tokens, PASS), WhitenParams(dst, x, role, scale, tokens))

    # ---- Spans and trajectories ----

    def span_means(self, dst: int, spans: int, x: int, n: int, offsets: int) -> None:
        if spans > 0:
            ranges = RangesParams(offsets, spans, n, self._status)
            self._launch("span_means", _ctas(_ctas(spans, 2), WARPS_OF_CTA), SpanMeansParams(dst, x, ranges))

    def min_max(self, lo: int, hi: int, groups: int, x: int, n: int, offsets: int) -> None:
        if groups > 0:
            ranges = RangesParams(offsets, groups, n, self._status)
            self._launch("min_max", _ctas(groups, WARPS_OF_CTA), MinMaxParams(lo, hi, x, ranges))

    def exp_scale(self, dst: int, x: int, n: int, lo: float, rate: float) -> None:
        one = addressof(_one)
        _library.cpu().exp_scale(one, one, min(n, 1), lo, rate)
        self._launch("exp_scale", 1, ExpScaleParams(dst, x, n, rate, lo))

    def _layout(self, batch: Batch, problem: int) -> LayoutParams:
        """Queues the check of the batch's layout, on which the kernels that follow rely. The
        8 bytes at problem are for them."""
        layout = LayoutParams(
            batch.role or 0, batch.seq_offsets or 0, batch.tokens, batch.trajectories, problem, self._status
        )
        self._fill(problem, 0xFF, 8)
        self._launch("check_layout", _ctas(max(batch.tokens, batch.trajectories + 1), _threads("check_layout")), layout)
        return layout

    def aem(self, factors: int, batch: Batch, options: AEMOptions) -> None:
        _library.cpu().aem(0, _nothing, options)
        # The device counts the spans. Each has at least one token.
        tokens, trajectories, spans = batch.tokens, batch.trajectories, batch.tokens
        scratch = _Scratch(self._ordinal, 8, 4 * tokens, *[4 * trajectories] * 6, *[4 * spans] * 5)
        problem, *pieces = scratch.pieces
        params = AEMParams(
            self._layout(batch, problem),
            factors,
            batch.entropy or 0,
            batch.span_ids or 0,
            batch.group_ids or 0,
            options.lambda_,
            options.guard,
            options.scope,
            spans,
            *pieces,
        )
        warps = _ctas(trajectories, WARPS_OF_CTA)
        self._launch("aem_tops", warps, params)
        self._launch("aem_spans", warps, params)
        self._launch("aem_sort", warps, params)
        self._launch("aem_scopes", trajectories, params)
        self._launch("aem_factors", _ctas(tokens, _threads("aem_factors")), params)

    def grpo(self, advantages: int, batch: Batch, options: GRPOOptions) -> None:
        _library.cpu().grpo(0, _nothing, options)
        scratch = _Scratch(self._ordinal, 8, 4 * batch.trajectories)
        problem, scores = scratch.pieces
        params = GRPOParams(
            self._layout(batch, problem),
            advantages,
            batch.rewards or 0,
            batch.group_ids or 0,
            scores,
            options.eps,
            1 if options.divide_by_std else 0,
        )
        self._launch("grpo_scores", _ctas(batch.trajectories, WARPS_OF_CTA), params)
        self._launch("grpo_advantages", batch.trajectories, params)

    def gae(self, advantages: int, returns: int, rewards: int, batch: Batch, options: GAEOptions) -> None:
        _library.cpu().gae(0, 0, 0, _nothing, options)
        scratch = _Scratch(self._ordinal, 8)
        (problem,) = scratch.pieces
        decay = options.gamma * options.lambda_
        params = GAEParams(
            self._layout(batch, problem), advantages, returns, rewards, batch.values or 0, options.gamma, decay
        )
        self._launch("gae", _ctas(batch.trajectories, WARPS_OF_CTA), params)

    # ---- The clipped surrogate ----

    def surrogate(
        self,
        result: int,
        grad: int,
        logprobs: int,
        old_logprobs: int,
        advantages: int,
        weights: int,
        role: int,
        n: int,
        scale: float,
        options: LossOptions,
    ) -> None:
        _check_loss(options, scale)
        segments = Segments(0, 1, n)
        scratch = _Scratch(self._ordinal, *_group_sizes(segments))
        params = SurrogateTotalParams(
            SurrogateParams(
                *(grad, logprobs, old_logprobs, advantages, weights, role),
                *(*scratch.pieces, self._status),
                *(segments, *_clip(options), scale),
            ),
            result,
        )
        self._launch("surrogate", _group_ctas(segments), params.of)
        self._launch("surrogate_total", 1, params)

    def loss(self, result: int, grad: int, weights: int, batch: Batch, options: LossOptions) -> None:
        _check_loss(options, 0)
        if options.kl_coef != 0:
            raise InputError("kl_coef", f"is {options.kl_coef}, want 0: the GPU adds no divergence to the loss yet")
        aggregation = AGGREGATIONS[options.aggregation]
        of_trajectories = aggregation != "token_mean"
        segments = Segments(0, 1, batch.tokens)
        if of_trajectories and aggregation != "seq_mean_token_sum_norm":
            segments = Segments(batch.seq_offsets or 0, batch.trajectories, batch.tokens)
        state_size = LOSS_STATE + segments.count * SEGMENT_STATE
        scratch = _Scratch(self._ordinal, state_size, *_group_sizes(segments))
        state, *groups = scratch.pieces
        reference = batch.ref_logprobs or 0
        params = LossParams(
            SurrogateParams(
                *(grad, batch.logprobs or 0, batch.old_logprobs or 0, batch.advantages or 0, weights, batch.role or 0),
                *(*groups, self._status),
                *(segments, *_clip(options), 1),
            ),
            reference,
            (batch.seq_offsets or 0) if of_trajectories else 0,
            batch.trajectories if of_trajectories else 0,
            state + LOSS_STATE,
            state,
            result,
            options.aggregation,
            options.norm_length,
        )
        ctas = max(_group_ctas(segments), _ctas(batch.trajectories, _threads("loss_check")))
        self._fill(result + sizeof(LossResult) - 8, 0, 8)  # kl_loss, which the kernels do not write
        self._fill(state, 0, state_size)
        self._launch("loss_check", ctas, params)
        if weights or reference:
            self._launch("loss_weights", segments.count + 1, params)
        self._launch("loss_tokens", ctas, params)
        self._launch("loss_segments", _ctas(segments.count, SEGMENTS_OF_CTA), params)
        self._launch("loss_total", 1, params)


def _no_rows(logits: Rows) -> Rows:
    """Returns the rows without any: what is left for the CPU is the check of the rest."""
    return Rows(logits.data, 0, logits.vocab, logits.stride, logits.dtype)


def _at(temperature: float, name: str, logits: Rows) -> str:
    """Returns the kernel that serves the dtype and the temperature."""
    return f"{name}_{DTYPES[logits.dtype]}" + ("" if temperature == 1 else "_tempered")


def _signal(batch: Batch, options: ActFocusOptions) -> Tuple[Values, str]:
    """Returns what ActFocus's signal is made of, and the name of its first array."""
    signal = SIGNALS[options.signal]
    if signal == "energy":
        return Values(batch.ref_energy or 0, 0, PLAIN), "ref_energy"
    if signal == "ref_entropy":
        return Values(batch.ref_entropy or 0, 0, PLAIN), "ref_entropy"
    if signal == "surprisal":
        return Values(batch.old_logprobs or 0, 0, NEGATED), "old_logprobs"
    return Values(batch.old_logprobs or 0, batch.ref_logprobs or 0, DIFFERENCE), "old_logprobs"


def _check_loss(options: LossOptions, scale: float) -> None:
    if options.policy != POLICIES.index("ppo"):
        raise InputError("policy", f"is {POLICIES[options.policy]}, want ppo: the GPU has no other loss yet")
    _library.cpu().surrogate(addressof(_sums), 0, 0, 0, 0, 0, 0, 0, scale, options)


def _clip(options: LossOptions) -> Tuple[float, float, float]:
    """Returns the bounds of the ratio, and of the loss of a negative advantage."""
    return 1 - options.clip_low, 1 + options.clip_high, options.dual_clip or math.inf


def _group_ctas(segments: Segments) -> int:
    return _ctas(segments.tokens // GROUP + segments.count, GROUPS_OF_CTA)


def _group_sizes(segments: Segments) -> Tuple[int, int]:
    """Returns the bytes of the sums and the counts of groups."""
    slots = segments.tokens // GROUP + segments.count
    return 2 * 16 * 4 * slots, 4 * slots


# ---- The devices that are in use ----

_lock = threading.Lock()
_backends: Dict[int, CUDA] = {}


def backend(ordinal: int) -> CUDA:
    """Returns the GPU of that number, which is opened when it is first asked for."""
    found = _backends.get(ordinal)
    if found is not None:
        return found
    with _lock:
        if ordinal not in _backends:
            _backends[ordinal] = CUDA(ordinal, _cuda_driver.checked())
        return _backends[ordinal]


def prepare(
    device: Any = None, *, dtypes: Optional[Sequence[Any]] = None, functions: Optional[Sequence[str]] = None
) -> None:
    """Opens a GPU, has its driver compile the kernels of functions, and compares each with the CPU on a few rows or
    tokens: a kernel that gives other bits is an error.

    Without it the first call of each function does that. It takes up to seconds in each
    process, longer where the driver has no cache on disk, and waits for all work on the GPU.
    Call prepare before the first collective operation of torch.distributed, in which other
    processes wait for this one, and before a CUDA graph is captured, where it is an error.

    device: a torch.device, its name ("cuda:1") or its number; None stands for PyTorch's
        current GPU.
    dtypes: those of logits, torch.bfloat16 for example; None stands for all.
    functions: their names, "token_stats" for example; None stands for all. Those of
        reweight.torch call token_stats, row_gradient and loss.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        raise TypeError("prepare is for GPUs, but PyTorch is not imported")
    numbers = {getattr(torch, d.name): d.number for d in (F32, BF16, F16)}
    chosen = list(numbers) if dtypes is None else dtypes
    names = []
    for name in [*KERNELS_OF, *KERNELS_OF_ROWS] if functions is None else functions:
        choice("functions", name, (*KERNELS_OF, *KERNELS_OF_ROWS))
        names += KERNELS_OF.get(name, [])
        by_dtype = KERNELS_OF_ROWS.get(name, [])
        for dtype in chosen:
            if dtype not in numbers:
                raise InputError("dtypes", f"has {dtype}, want torch.float32, torch.bfloat16 or torch.float16")
            if numbers[dtype] < len(by_dtype):  # row_gradient has none for float16
                names += by_dtype[numbers[dtype]]
    backend(torch.cuda.current_device() if device is None else _ordinal(device)).prepare(names)


def check(device: Any = None) -> None:
    """Waits for a GPU, and raises the ValueError for what only the GPU could see.

    Calls on CUDA tensors queue work and return. What is wrong with the contents of their
    arrays, such as an id outside the vocabulary, a role above 2, a signal that is not
    finite or offsets that decrease, the GPU finds later. The outputs that depend on it are
    NaN, and this function says what it was, with the text that the CPU has: it names one
    element, by its number in the order of memory, and forgets it then. Call it once a
    step, where you wait for the GPU anyway, or seldom: what was found stays until somebody
    asks. While a CUDA graph is captured, it is an error.

    device: a torch.device, its name ("cuda:1") or its number; None stands for every GPU
        that this package was used on.
    """
    if device is None:
        ordinals: List[int] = sorted(_backends)
    else:
        ordinals = [_ordinal(device)]
    for ordinal in ordinals:
        found: Optional[CUDA] = _backends.get(ordinal)
        if found is not None:
            found.check()


def _ordinal(device: Any) -> int:
    """Returns the number of a device."""
    if isinstance(device, int):
        return device
    torch = sys.modules.get("torch")
    if torch is None:
        raise TypeError(f"device is {device!r}, but PyTorch is not imported")
    device = torch.device(device)
    if device.type != "cuda":
        raise InputError("device", f"is {device}, want a CUDA device")
    ordinal: int = torch.cuda.current_device() if device.index is None else device.index
    return ordinal
