"""The structs and the names of reweight.h.

An address is an int, and 0 is no array. ctypes reads it back as None then.
"""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_int32, c_int64, c_uint32, c_void_p
from typing import Optional, Sequence

# The names of the enumerations. The place of a name is its number.
ISAS = ("auto", "portable", "avx2", "avx512", "neon")
DTYPES = ("f32", "bf16", "f16")
SIGNALS = ("energy", "ref_entropy", "surprisal", "log_ratio")
SCOPES = ("group", "trajectory", "batch")
AGGREGATIONS = ("token_mean", "seq_mean_token_sum", "seq_mean_token_mean", "seq_mean_token_sum_norm")


class Error(ctypes.Structure):
    """reweight_error, and what a GPU says: Status of common.cuh."""

    code: int
    argument: int
    index: int
    values: Sequence[int]
    _fields_ = [("code", c_uint32), ("argument", c_uint32), ("index", c_int64), ("values", c_int64 * 5)]


class Workspace(ctypes.Structure):
    """reweight_workspace."""

    isa: int
    workers: int
    scratch: Optional[int]
    scratch_size: int
    memory: object  # no field: what owns the scratch memory
    _fields_ = [("isa", c_int32), ("workers", c_int32), ("scratch", c_void_p), ("scratch_size", c_int64)]


class Rows(ctypes.Structure):
    """reweight_rows: rows of vocab logits each, stride elements from one to the next."""

    data: Optional[int]
    rows: int
    vocab: int
    stride: int
    dtype: int
    _fields_ = [("data", c_void_p), ("rows", c_int64), ("vocab", c_int64), ("stride", c_int64), ("dtype", c_int32)]


class Ids(ctypes.Structure):
    """reweight_ids: the chosen id of each row, int64 if wide is 1 and int32 if it is 0."""

    data: Optional[int]
    wide: int
    _fields_ = [("data", c_void_p), ("wide", c_int32)]


class Stats(ctypes.Structure):
    """reweight_stats: the outputs of token_stats. No address: not computed."""

    lse: Optional[int]
    entropy: Optional[int]
    logprobs: Optional[int]
    _fields_ = [("lse", c_void_p), ("entropy", c_void_p), ("logprobs", c_void_p)]


class RowGradientOptions(ctypes.Structure):
    """reweight_row_gradient_options."""

    temperature: float
    entropy_bonus: float
    _fields_ = [("temperature", c_double), ("entropy_bonus", c_double)]


class Batch(ctypes.Structure):
    """reweight_batch: the addresses of a batch's arrays."""

    tokens: int
    trajectories: int
    role: Optional[int]
    seq_offsets: Optional[int]
    group_ids: Optional[int]
    rewards: Optional[int]
    span_ids: Optional[int]
    ref_energy: Optional[int]
    entropy: Optional[int]
    old_logprobs: Optional[int]
    logprobs: Optional[int]
    ref_logprobs: Optional[int]
    ref_entropy: Optional[int]
    advantages: Optional[int]
    values: Optional[int]
    _fields_ = [
        ("tokens", c_int64),
        ("trajectories", c_int64),
        ("role", c_void_p),
        ("seq_offsets", c_void_p),
        ("group_ids", c_void_p),
        ("rewards", c_void_p),
        ("span_ids", c_void_p),
        ("ref_energy", c_void_p),
        ("entropy", c_void_p),
        ("old_logprobs", c_void_p),
        ("logprobs", c_void_p),
        ("ref_logprobs", c_void_p),
        ("ref_entropy", c_void_p),
        ("advantages", c_void_p),
        ("values", c_void_p),
    ]


class ActFocusOptions(ctypes.Structure):
    """reweight_actfocus_options."""

    alpha: float
    beta: float
    eps: float
    signal: int
    _fields_ = [("alpha", c_double), ("beta", c_double), ("eps", c_double), ("signal", c_int32)]


class ActFocusResult(ctypes.Structure):
    """reweight_actfocus_result."""

    actions: int
    mean: float
    sigma: float
    _fields_ = [("actions", c_int64), ("mean", c_double), ("sigma", c_double)]


class AEMOptions(ctypes.Structure):
    """reweight_aem_options."""

    lambda_: float
    guard: float
    scope: int
    _fields_ = [("lambda_", c_double), ("guard", c_double), ("scope", c_int32)]


class GRPOOptions(ctypes.Structure):
    """reweight_grpo_options."""

    eps: float
    divide_by_std: int
    _fields_ = [("eps", c_double), ("divide_by_std", c_int32)]


class GAEOptions(ctypes.Structure):
    """reweight_gae_options."""

    gamma: float
    lambda_: float
    _fields_ = [("gamma", c_double), ("lambda_", c_double)]


class LossOptions(ctypes.Structure):
    """reweight_loss_options."""

    clip_low: float
    clip_high: float
    dual_clip: float
    norm_length: int
    aggregation: int
    _fields_ = [
        ("clip_low", c_double),
        ("clip_high", c_double),
        ("dual_clip", c_double),
        ("norm_length", c_int64),
        ("aggregation", c_int32),
    ]


class LossResult(ctypes.Structure):
    """reweight_loss_result."""

    loss: float
    tokens: int
    weight_sum: float
    clip_fraction: float
    mean_log_ratio: float
    kl: float
    _fields_ = [
        ("loss", c_double),
        ("tokens", c_int64),
        ("weight_sum", c_double),
        ("clip_fraction", c_double),
        ("mean_log_ratio", c_double),
        ("kl", c_double),
    ]


class Moments(ctypes.Structure):
    """reweight_moments."""

    n: int
    sum: float
    squares: float
    _fields_ = [("n", c_int64), ("sum", c_double), ("squares", c_double)]


class SurrogateSums(ctypes.Structure):
    """reweight_surrogate_sums."""

    tokens: int
    clipped: int
    loss: float
    log_ratio: float
    _fields_ = [("tokens", c_int64), ("clipped", c_int64), ("loss", c_double), ("log_ratio", c_double)]
