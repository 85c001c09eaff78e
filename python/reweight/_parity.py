"""A check of the library on this machine: every instruction set gives the same bits, and
these are the formulas' results."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import numpy as np
import numpy.typing as npt

from . import _generated, _library
from ._kernels import multiply
from ._schemes import actfocus, aem, gae, grpo, loss, whiten
from .batch import ACTION, MASKED, Batch

TOLERANCE = 1e-5  # relative; absolute where the result is below 1

Arrays = Dict[str, npt.NDArray[Any]]

_ROWS, _VOCAB = 48, 5003  # a vocabulary that no block divides
_TEMPERATURES = (1.0, 0.7)


def check() -> Tuple[int, List[str]]:
    """Compares the instruction sets with each other and with NumPy's float64. Returns how
    many numbers were compared, and a sentence about each array that is wrong."""
    rows, ids, grad = _random_rows()
    batch = _random_batch()
    isas = _library.available_isas()
    computed = [_compute(isa, rows, ids, grad, batch) for isa in isas]
    problems, numbers = [], 0
    for name, first in computed[0].items():
        for isa, other in zip(isas[1:], computed[1:]):
            numbers += first.size
            different = int((_bits(first) != _bits(other[name])).sum())
            if different:
                problems.append(f"{different} of {first.size} numbers of {name} differ between {isas[0]} and {isa}")
    for name, want in {**_row_formulas(rows, ids, grad), **_batch_formulas(batch)}.items():
        got = computed[-1][name].astype(np.float64)
        numbers += got.size
        with np.errstate(invalid="ignore"):
            near = (np.abs(got - want) <= TOLERANCE * np.maximum(1, np.abs(want))) | (got == want)
        if not near.all():
            wrong = int((~near).sum())
            problems.append(f"{wrong} of {got.size} numbers of {name} by {isas[-1]} differ from float64")
    return numbers, problems


def _bits(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns the bits of float32 or float64 numbers, where every NaN has the same."""
    bits: npt.NDArray[Any] = np.where(np.isnan(x), x.dtype.type(np.nan), x).view(f"u{x.itemsize}")
    return bits


def _random_rows() -> Tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Returns rows of logits, from flat to peaked and with masked ids, an id for each, and
    the loss's derivative with respect to its log-probability."""
    g = np.random.default_rng(1)
    x = g.normal(size=(_ROWS, _VOCAB)) * np.geomspace(0.01, 30, _ROWS)[:, None] + g.normal(scale=20, size=(_ROWS, 1))
    x[::3, ::7] = -np.inf
    ids = g.integers(0, _VOCAB, _ROWS)
    # Rounded to bfloat16, so that the three formats hold the same values up to float16's range.
    rounded = (x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return rounded, ids, g.normal(size=_ROWS).astype(np.float32)


def _random_batch() -> Batch:
    """Returns a packed batch of 16 trajectories, each with four responses."""
    g = np.random.default_rng(2)
    turn = np.array([0] * 20 + [1] * 50 + [2] * 5 + [1] * 2, np.uint8)
    role = np.tile(turn, 4 * 16)
    T = len(role)
    response = np.arange(T) // len(turn)

    def normal() -> npt.NDArray[np.float32]:
        return g.normal(size=T).astype(np.float32)

    return Batch(
        role=role,
        seq_offsets=np.arange(17) * 4 * len(turn),
        group_ids=np.arange(16, dtype=np.int32) % 3,
        rewards=g.normal(size=16).astype(np.float32),
        span_ids=np.where(role == MASKED, -1, response).astype(np.int32),
        ref_energy=normal(),
        entropy=g.gamma(np.repeat(g.random(64), len(turn))).astype(np.float32),
        old_logprobs=normal(),
        logprobs=normal(),
        values=normal(),
    )


def _compute(
    isa: str, rows: npt.NDArray[np.float32], ids: npt.NDArray[np.int64], grad: npt.NDArray[np.float32], batch: Any
) -> Arrays:
    """Returns what the library computes by the instruction set."""
    cpu = _library.CPU(_generated.ISAS.index(isa))
    computed: Arrays = {}
    with np.errstate(over="ignore"):
        halves = (rows.view(np.uint32) >> 16).astype(np.uint16)
        formats: Arrays = {"f32": rows, "bf16": halves, "f16": rows.astype(np.float16)}
    for number, name in enumerate(_generated.DTYPES):
        for t in _TEMPERATURES:
            stats = np.empty((3, _ROWS), np.float32)
            x = formats[name].copy()
            logits = _generated.Rows(x.ctypes.data, _ROWS, _VOCAB, _VOCAB, number)
            chosen = _generated.Ids(ids.ctypes.data, 1)
            addresses = [row.ctypes.data for row in stats]
            cpu.token_stats(_generated.Stats(*addresses), logits, chosen, t, 0)
            computed[f"token_stats {name} {t}"] = stats
            if name == "f16":
                continue
            options = _generated.RowGradientOptions(t, 0.01)
            cpu.row_gradient(logits, logits, chosen, addresses[2], addresses[1], grad.ctypes.data, 0, 0, options, 0)
            computed[f"row_gradient {name} {t}"] = x if name == "f32" else (x.astype(np.uint32) << 16).view(np.float32)
    with _library.using(cpu):
        weights = actfocus(batch)
        computed["actfocus"] = np.append(weights.weights, [weights.mean, weights.sigma])
        advantages, factors = grpo(batch), aem(batch)
        computed.update(grpo=advantages, aem=factors, whiten=whiten(batch.values, batch.role))
        computed["gae"] = np.stack(gae(batch, batch.ref_energy, gamma=0.99, lambda_=0.9))
        step = Batch(**{**vars(batch), "advantages": multiply(advantages, factors)})
        for aggregation in _generated.AGGREGATIONS:
            result = loss(step, weights.weights, aggregation=aggregation)
            computed[f"loss {aggregation}"] = np.append(result.grad, [result.loss, result.weight_sum])
    return computed


def _row_formulas(
    rows: npt.NDArray[np.float32], ids: npt.NDArray[np.int64], grad: npt.NDArray[np.float32]
) -> Arrays:
    x = rows.astype(np.float64)
    lse = np.logaddexp.reduce(x, -1)
    wanted: Arrays = {}
    for t in _TEMPERATURES:
        logp = x / t - np.logaddexp.reduce(x / t, -1)[:, None]
        p = np.exp(logp)
        logp[p == 0] = 0
        entropy = -(p * logp).sum(-1)
        own = (x / t - np.logaddexp.reduce(x / t, -1)[:, None])[np.arange(_ROWS), ids]
        wanted[f"token_stats f32 {t}"] = np.stack([lse, entropy, own])
        chosen = np.arange(_VOCAB) == ids[:, None]
        wanted[f"row_gradient f32 {t}"] = (grad[:, None] * (chosen - p) + 0.01 * p * (logp + entropy[:, None])) / t
    return wanted


def _batch_formulas(b: Any) -> Arrays:
    action, response = b.role == ACTION, b.role != MASKED
    energy = b.ref_energy.astype(np.float64)
    mean, sigma = energy[action].mean(), np.sqrt(energy[action].var() + 1e-8)
    weights = np.where(action, 1 + 0.5 / (1 + np.exp(-(energy - mean) / sigma)), 0.1 * response)

    trajectory = np.repeat(np.arange(16), np.diff(b.seq_offsets))
    rewards = b.rewards.astype(np.float64)
    groups = [rewards[b.group_ids == g] for g in b.group_ids]
    scores = np.array([(r - g.mean()) / (g.std(ddof=1) + 1e-6) for r, g in zip(rewards, groups)])
    advantages = np.where(response, scores[trajectory], 0)

    span = b.span_ids[response]
    means = np.bincount(span, b.entropy[response]) / np.bincount(span)
    of_group = b.group_ids[np.arange(64) // 4]
    factors = np.empty(64)
    for g in range(3):
        h = means[of_group == g]
        a = np.exp(-(h - h.min()) / (h.max() - h.min()))
        factors[of_group == g] = a / a.mean()
    factor = np.where(response, factors[b.span_ids], 1)

    values = b.values.astype(np.float64)
    white = np.where(response, (values - values[response].mean()) / np.sqrt(values[response].var(ddof=1) + 1e-8), 0)

    ratio = np.exp(b.logprobs.astype(np.float64) - b.old_logprobs)
    a = advantages * factor
    clipped = np.maximum(-a * ratio, -a * np.clip(ratio, 0.8, 1.28))
    bound = np.where(a < 0, np.minimum(clipped, -3 * a), clipped)
    slope = np.where(bound == -a * ratio, -a * ratio, 0)
    w = weights / weights.sum()
    return {
        "actfocus": np.append(weights, [mean, sigma]),
        "grpo": advantages,
        "aem": factor,
        "whiten": white,
        "loss token_mean": np.append(w * slope, [(w * bound).sum(), weights.sum()]),
    }
