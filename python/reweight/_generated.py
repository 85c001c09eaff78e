"""What Go and reweight.h say of names, structs, defaults, problems and the kernels of the GPU:
`go generate ./...` writes this file. An address is an int, and 0 is no array. ctypes reads it back as None then."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_double, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from math import inf
from typing import Any, Dict, List, Optional, Sequence

VERSION = "0.1.0"

# The names of the enumerations. The place of a name is its number.
ISAS = ("auto", "portable", "avx2", "avx512", "neon")
DTYPES = ("f32", "bf16", "f16")
SIGNALS = ("energy", "ref_entropy", "surprisal", "log_ratio")
SCOPES = ("group", "trajectory", "batch")
AGGREGATIONS = ("token_mean", "seq_mean_token_sum", "seq_mean_token_mean", "seq_mean_token_sum_norm")
NORMALIZATIONS = ("separate", "joint", "none")
LEVELS = ("token", "sequence", "geometric")
STATISTICS = ("token_k1", "token_k2", "token_k3", "seq_sum_k1", "seq_sum_k2", "seq_sum_k3", "seq_mean_k1", "seq_mean_k2", "seq_mean_k3", "seq_max_k2", "seq_max_k3")
POLICIES = ("ppo", "gspo", "grpo_s", "cispo", "sapo", "pg", "dppo_tv", "vespo", "dppo_kl", "dro", "gmpo", "clip_cov", "kl_cov")
SEQUENCES = ("trajectory", "span")
KLS = ("k3", "k2", "k1", "abs", "k3+", "k1+", "abs+")
# The same by the argument that has such a number.
NAMES = {
    "aggregation": AGGREGATIONS,
    "isa": ISAS,
    "scope": SCOPES,
    "signal": SIGNALS,
    "dst": DTYPES,
    "logits": DTYPES,
    "normalization": NORMALIZATIONS,
    "kl": KLS,
    "policy": POLICIES,
    "sequence": SEQUENCES,
    "level": LEVELS,
    "statistic": STATISTICS,
}

# The arrays that each signal is made of.
SIGNAL_ARRAYS = {
    "energy": ("ref_energy",),
    "ref_entropy": ("ref_entropy",),
    "surprisal": ("old_logprobs",),
    "log_ratio": ("old_logprobs", "ref_logprobs"),
}

# The texts around actions, as chat templates and prompts write them.
TAG_PRESETS = {
    "answer": (("<answer>", "</answer>"),),
    "tool_call": (("<tool_call>", "</tool_call>"),),
    "json": (("{", "}"),),
    "react": (("Action:", "\n"), ("Action Input:", "\n"), ("Final Answer:", ""),),
    "boxed": (("\\boxed{", "}"),),
    "code": (("```", "```"),),
}

# The policy losses by their numbers of which that is so: the factor of a token is that of its
# sequence; the sequence may be the span; it chooses among the tokens of a call.
BY_SEQUENCE = (1, 2, 7, 10)
BY_SPAN = (1, 2)
CHOOSING = (11, 12)

# The problems by their codes: the kinds of the values, and the sentence.
PROBLEMS = {
    1: ("i", "is {}, want 0 to 2^48"),
    2: ("ii", "is {}, want 0 to {}"),
    3: ("i", "is {}, want at least 0"),
    4: ("i", "is {}, want at least 1"),
    5: ("ddd", "is {}, want {} to {}"),
    6: ("d", "is {}, want at least 0"),
    7: ("d", "is {}, want 0 to 3.4e38"),
    8: ("d", "is {}, want a finite number"),
    9: ("d", "is {}, want a number that float32 can hold"),
    10: ("iii", "is {}, want -1 to {}, for rows of {} logits"),
    11: ("d", "is {}, want a finite number above 1, or 0 for none"),
    12: ("iil", "is {}, want 0 to {}: one of {}"),
    13: ("i", "is NULL, want {} elements"),
    14: ("", "is empty, want at least 1 element"),
    15: ("nl", "is {}, want one of {}, which this machine and this library have"),
    16: ("iiiii", "is {}, want {} for {} tokens, {} trajectories and {} spans"),
    17: ("i", "is NULL, want {} bytes"),
    18: ("", "is not aligned to 8 bytes"),
    19: ("ii", "is NULL, want {} rows of {} logits"),
    20: ("i", "is NULL, want {} elements, one per row"),
    21: ("", "has no output: lse, entropy, logprobs and log_sum_sq_probs are all NULL"),
    22: ("i", "has rows of {} logits, want at least 1"),
    23: ("ii", "has rows of {} logits, want at most {}"),
    24: ("i", "has {} rows, want at least 0"),
    25: ("ii", "has a stride of {}, want at least {}, the logits of a row"),
    26: ("ii", "has {} rows, {} elements apart, want at most 2^48 elements in all"),
    27: ("iil", "has the dtype {}, want 0 to {}: one of {}"),
    28: ("iii", "has {} rows of {} logits, want {} rows"),
    29: ("ii", "has rows of {} logits, want {} like the logits"),
    30: ("nn", "is {}, want {} like the logits"),
    31: ("", "is logits with another stride, want the same"),
    32: ("", "is float16, want float32 or bfloat16"),
    33: ("iii", "is {}, want 0 to {}, for rows of {} logits"),
    34: ("iii", "is {}, want 0 to {}, for {} rows of logits"),
    35: ("i", "is {}, want 0, 1 or 2"),
    36: ("f", "is {} at a response token, want a finite number"),
    37: ("f", "is {} at an action token, want a finite number"),
    38: ("f", "is {}, too far from the reference's log-probability for float32 to hold the difference"),
    39: ("i", "is {}, want 0"),
    40: ("ii", "is {}, below the {} before it"),
    41: ("ii", "is {}, want {}, the number of tokens"),
    42: ("ii", "is {}, want at most {}, the elements of x"),
    43: ("f", "is {}, want a finite reward"),
    44: ("ii", "has {} elements, want at most {}: tokens of spans are counted in 32 bits"),
    45: ("ii", "is {}, want -1 to {}: spans are numbered from 0 in the order in which they appear"),
    46: ("ii", "is {} in trajectory {}, but that span began in an earlier trajectory"),
    47: ("i", "is -1 at a response token (role {}), want its span"),
    48: ("ii", "has {} spans, want at most {}, for which the workspace was made"),
    49: ("i", "has no response token in span {}, want at least one in each"),
    50: ("fi", "is {} in span {}, want a finite number of at most 1e+30"),
    51: ("d", "is {}, want a finite number above 0"),
    52: ("nn", "is {}, want {}: there are no spans here"),
    53: ("", "is 0, want above 0, as in the defaults of value_loss"),
    54: ("", "is 0 like beta, want one that is not 0, as in the defaults of actfocus"),
    55: ("", "is 0 like guard, want one that is not 0, as in the defaults of aem"),
    56: ("", "is 0 like lambda_, want one that is not 0, as in the defaults of gae"),
    57: ("", "is 0 like clip_high, want one that is not 0, as in the defaults of reweight.PPO"),
    58: ("", "is 0 like clip_high, want one that is not 0, as in the defaults of reweight.GSPO"),
    59: ("", "is 0 like clip_high, want one that is not 0, as in the defaults of reweight.GRPOS"),
    60: ("", "is 0 like clip_high, want one that is not 0, as in the defaults of reweight.CISPO"),
    61: ("", "is 0 like clip_high, want one that is not 0, as in the defaults of reweight.DPPOTV"),
    62: ("", "is 0 like decay_pos, power_neg and decay_neg, want one that is not 0, as in the defaults of reweight.VESPO"),
    63: ("", "is 0 like omega, want one that is not 0, as in the defaults of gigpo"),
    64: ("", "is 0 like bonus, want one that is not 0, as in the defaults of gtpo"),
    65: ("", "is 0 like bonus, want one that is not 0, as in the defaults of grpo_s"),
    66: ("", "is 0 like k_future and zeta, want one that is not 0, as in the defaults of empg"),
    67: ("", "is 0, want above 0, as in the defaults of reinforce_plus_plus"),
    68: ("", "is 0, want above 0, as in the defaults of gtpo"),
    69: ("", "is 0, want above 0, as in the defaults of grpo_s"),
    70: ("", "is 0, want above 0, as in the defaults of rollout_correction"),
    71: ("", "is 0, want above 0, as in the defaults of reject"),
    72: ("dd", "is {}, want at least the {} of low"),
    73: ("dd", "is {}, want at least the {} of entropy_low"),
    74: ("ii", "is {}, want at least the {} of buffer"),
    75: ("d", "is {}, want above 0 and at most 1"),
    76: ("n", "is {}, want group or batch"),
    77: ("i", "is {}, which no other trajectory has, want at least 2 in each group"),
    78: ("", "is 0, want above 0, as in the defaults of fipo"),
    79: ("", "is 0, want above 0, as in the defaults of rlsd"),
    80: ("dd", "is {}, want at least the {} of cov_low"),
    81: ("", "is 0 like clip_high, want one that is not 0, as in the defaults of reweight.DPPOKL"),
    82: ("", "is 0 like clip_high, want one that is not 0, as in the defaults of reweight.GMPO"),
    83: ("", "is 0 like clip_high, want one that is not 0, as in the defaults of reweight.ClipCov"),
    84: ("d", "is {}, want a number above 0, or +Inf"),
    85: ("", "is given, want none: this policy has no weights of tokens"),
    86: ("ni", "is {}, whose kernel {} computes other bits than portable on this CPU: use portable"),
}

# The arguments by their numbers.
ARGUMENTS = {
    1: "tokens",
    2: "trajectories",
    3: "role",
    4: "seq_offsets",
    5: "group_ids",
    6: "rewards",
    7: "span_ids",
    8: "ref_energy",
    9: "entropy",
    10: "old_logprobs",
    11: "logprobs",
    12: "ref_logprobs",
    13: "ref_entropy",
    14: "advantages",
    15: "values",
    16: "aggregation",
    17: "alpha",
    18: "beta",
    19: "clip_high",
    20: "clip_low",
    21: "dual_clip",
    22: "entropy_bonus",
    23: "eps",
    24: "gamma",
    25: "guard",
    26: "isa",
    27: "lambda",
    28: "norm_length",
    29: "scope",
    30: "scratch",
    31: "scratch_size",
    32: "signal",
    33: "temperature",
    34: "workers",
    35: "a",
    36: "b",
    37: "dst",
    38: "factors",
    39: "grad",
    40: "groups",
    41: "hi",
    42: "ids",
    43: "lo",
    44: "logits",
    45: "logits_index",
    46: "mean",
    47: "n",
    48: "offsets",
    49: "rate",
    50: "scale",
    51: "shift",
    52: "sigma",
    53: "spans",
    54: "weights",
    55: "x",
    56: "role",
    57: "token_rewards",
    58: "anchors",
    59: "span_rewards",
    60: "base",
    61: "bonus",
    62: "buffer",
    63: "entropy_high",
    64: "entropy_low",
    65: "k",
    66: "k_future",
    67: "maximum",
    68: "normalization",
    69: "omega",
    70: "penalty",
    71: "rho",
    72: "threshold",
    73: "zeta",
    74: "mask",
    75: "penalties",
    76: "returns",
    77: "new_values",
    78: "clip",
    79: "decay_neg",
    80: "decay_pos",
    81: "kl",
    82: "kl_coef",
    83: "policy",
    84: "power_neg",
    85: "power_pos",
    86: "ratio_cap",
    87: "sequence",
    88: "tau_neg",
    89: "tau_pos",
    90: "old_logprobs",
    91: "rollout_logprobs",
    92: "delta",
    93: "high",
    94: "level",
    95: "low",
    96: "statistic",
    97: "teacher_logprobs",
    98: "filter",
    99: "half_life",
    100: "safety",
    101: "sum_sq_probs",
    102: "reward_parts",
    103: "parts",
    104: "reward_weights",
    105: "cov_coef",
    106: "cov_high",
    107: "cov_low",
    108: "cov_share",
    109: "mu",
    110: "entropy_drop",
    111: "max_share",
}

# ---- reweight.h ----


class Error(Structure):
    """reweight_error."""

    code: int
    argument: int
    index: int
    values: Sequence[int]
    _fields_ = [
        ("code", c_uint32),
        ("argument", c_uint32),
        ("index", c_int64),
        ("values", c_int64 * 5),
    ]


class Workspace(Structure):
    """reweight_workspace."""

    isa: int
    workers: int
    scratch: Optional[int]
    scratch_size: int
    parallel: Optional[int]
    _fields_ = [
        ("isa", c_int32),
        ("workers", c_int32),
        ("scratch", c_void_p),
        ("scratch_size", c_int64),
        ("parallel", c_void_p),
    ]


class Rows(Structure):
    """reweight_rows."""

    data: Optional[int]
    rows: int
    vocab: int
    stride: int
    dtype: int
    _fields_ = [
        ("data", c_void_p),
        ("rows", c_int64),
        ("vocab", c_int64),
        ("stride", c_int64),
        ("dtype", c_int32),
    ]


class Ids(Structure):
    """reweight_ids."""

    data: Optional[int]
    wide: int
    _fields_ = [
        ("data", c_void_p),
        ("wide", c_int32),
    ]


class Stats(Structure):
    """reweight_stats."""

    lse: Optional[int]
    entropy: Optional[int]
    logprobs: Optional[int]
    log_sum_sq_probs: Optional[int]
    _fields_ = [
        ("lse", c_void_p),
        ("entropy", c_void_p),
        ("logprobs", c_void_p),
        ("log_sum_sq_probs", c_void_p),
    ]


class RowGradientOptions(Structure):
    """reweight_row_gradient_options."""

    temperature: float
    entropy_bonus: float
    _fields_ = [
        ("temperature", c_double),
        ("entropy_bonus", c_double),
    ]


class Batch(Structure):
    """reweight_batch."""

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
    rollout_logprobs: Optional[int]
    token_rewards: Optional[int]
    anchors: Optional[int]
    span_rewards: Optional[int]
    returns: Optional[int]
    new_values: Optional[int]
    teacher_logprobs: Optional[int]
    sum_sq_probs: Optional[int]
    entropy_drop: Optional[int]
    reward_parts: Optional[int]
    parts: int
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
        ("rollout_logprobs", c_void_p),
        ("token_rewards", c_void_p),
        ("anchors", c_void_p),
        ("span_rewards", c_void_p),
        ("returns", c_void_p),
        ("new_values", c_void_p),
        ("teacher_logprobs", c_void_p),
        ("sum_sq_probs", c_void_p),
        ("entropy_drop", c_void_p),
        ("reward_parts", c_void_p),
        ("parts", c_int64),
    ]


class ActFocusOptions(Structure):
    """reweight_actfocus_options."""

    alpha: float
    beta: float
    eps: float
    signal: int
    _fields_ = [
        ("alpha", c_double),
        ("beta", c_double),
        ("eps", c_double),
        ("signal", c_int32),
    ]


class ActFocusResult(Structure):
    """reweight_actfocus_result."""

    actions: int
    mean: float
    sigma: float
    _fields_ = [
        ("actions", c_int64),
        ("mean", c_double),
        ("sigma", c_double),
    ]


class AEMOptions(Structure):
    """reweight_aem_options."""

    lambda_: float
    guard: float
    scope: int
    _fields_ = [
        ("lambda_", c_double),
        ("guard", c_double),
        ("scope", c_int32),
    ]


class GRPOOptions(Structure):
    """reweight_grpo_options."""

    eps: float
    divide_by_std: int
    _fields_ = [
        ("eps", c_double),
        ("divide_by_std", c_int32),
    ]


class GAEOptions(Structure):
    """reweight_gae_options."""

    gamma: float
    lambda_: float
    _fields_ = [
        ("gamma", c_double),
        ("lambda_", c_double),
    ]


class KLRewardsOptions(Structure):
    """reweight_kl_rewards_options."""

    kl_coef: float
    kl: int
    _fields_ = [
        ("kl_coef", c_double),
        ("kl", c_int32),
    ]


class LossOptions(Structure):
    """reweight_loss_options."""

    clip_low: float
    clip_high: float
    dual_clip: float
    norm_length: int
    aggregation: int
    policy: int
    sequence: int
    kl: int
    kl_coef: float
    tau_pos: float
    tau_neg: float
    ratio_cap: float
    power_pos: float
    decay_pos: float
    power_neg: float
    decay_neg: float
    beta: float
    cov_share: float
    cov_low: float
    cov_high: float
    cov_coef: float
    seed: int
    _fields_ = [
        ("clip_low", c_double),
        ("clip_high", c_double),
        ("dual_clip", c_double),
        ("norm_length", c_int64),
        ("aggregation", c_int32),
        ("policy", c_int32),
        ("sequence", c_int32),
        ("kl", c_int32),
        ("kl_coef", c_double),
        ("tau_pos", c_double),
        ("tau_neg", c_double),
        ("ratio_cap", c_double),
        ("power_pos", c_double),
        ("decay_pos", c_double),
        ("power_neg", c_double),
        ("decay_neg", c_double),
        ("beta", c_double),
        ("cov_share", c_double),
        ("cov_low", c_double),
        ("cov_high", c_double),
        ("cov_coef", c_double),
        ("seed", c_uint64),
    ]


class LossResult(Structure):
    """reweight_loss_result."""

    loss: float
    tokens: int
    weight_sum: float
    clip_fraction: float
    mean_log_ratio: float
    kl: float
    kl_loss: float
    _fields_ = [
        ("loss", c_double),
        ("tokens", c_int64),
        ("weight_sum", c_double),
        ("clip_fraction", c_double),
        ("mean_log_ratio", c_double),
        ("kl", c_double),
        ("kl_loss", c_double),
    ]


class ValueLossOptions(Structure):
    """reweight_value_loss_options."""

    clip: float
    norm_length: int
    aggregation: int
    _fields_ = [
        ("clip", c_double),
        ("norm_length", c_int64),
        ("aggregation", c_int32),
    ]


class ValueLossResult(Structure):
    """reweight_value_loss_result."""

    loss: float
    tokens: int
    clip_fraction: float
    _fields_ = [
        ("loss", c_double),
        ("tokens", c_int64),
        ("clip_fraction", c_double),
    ]


class Moments(Structure):
    """reweight_moments."""

    n: int
    sum: float
    squares: float
    _fields_ = [
        ("n", c_int64),
        ("sum", c_double),
        ("squares", c_double),
    ]


class SurrogateSums(Structure):
    """reweight_surrogate_sums."""

    tokens: int
    clipped: int
    loss: float
    log_ratio: float
    _fields_ = [
        ("tokens", c_int64),
        ("clipped", c_int64),
        ("loss", c_double),
        ("log_ratio", c_double),
    ]


class OverlongPenaltyOptions(Structure):
    """reweight_overlong_penalty_options."""

    maximum: int
    buffer: int
    penalty: float
    _fields_ = [
        ("maximum", c_int64),
        ("buffer", c_int64),
        ("penalty", c_double),
    ]


class ReinforcePlusPlusOptions(Structure):
    """reweight_reinforce_plus_plus_options."""

    gamma: float
    _fields_ = [
        ("gamma", c_double),
    ]


class OTBOptions(Structure):
    """reweight_otb_options."""

    turns: int
    zero_tail: int
    _fields_ = [
        ("turns", c_int32),
        ("zero_tail", c_int32),
    ]


class GiGPOOptions(Structure):
    """reweight_gigpo_options."""

    gamma: float
    omega: float
    divide_by_std: int
    per_step: int
    _fields_ = [
        ("gamma", c_double),
        ("omega", c_double),
        ("divide_by_std", c_int32),
        ("per_step", c_int32),
    ]


class TurnReturnsOptions(Structure):
    """reweight_turn_returns_options."""

    gamma: float
    divide_by_std: int
    _fields_ = [
        ("gamma", c_double),
        ("divide_by_std", c_int32),
    ]


class MTGRPOOptions(Structure):
    """reweight_mt_grpo_options."""

    lambda_: float
    divide_by_std: int
    _fields_ = [
        ("lambda_", c_double),
        ("divide_by_std", c_int32),
    ]


class GTPOOptions(Structure):
    """reweight_gtpo_options."""

    base: float
    bonus: float
    threshold: float
    entropy_low: float
    entropy_high: float
    normalization: int
    scope: int
    _fields_ = [
        ("base", c_double),
        ("bonus", c_double),
        ("threshold", c_double),
        ("entropy_low", c_double),
        ("entropy_high", c_double),
        ("normalization", c_int32),
        ("scope", c_int32),
    ]


class PassAtKOptions(Structure):
    """reweight_pass_at_k_options."""

    eps: float
    divide_by_std: int
    _fields_ = [
        ("eps", c_double),
        ("divide_by_std", c_int32),
    ]


class GDPOOptions(Structure):
    """reweight_gdpo_options."""

    eps: float
    divide_by_std: int
    reward_weights: Any
    _fields_ = [
        ("eps", c_double),
        ("divide_by_std", c_int32),
        ("reward_weights", POINTER(c_double)),
    ]


class EMPGOptions(Structure):
    """reweight_empg_options."""

    k: float
    k_future: float
    zeta: float
    _fields_ = [
        ("k", c_double),
        ("k_future", c_double),
        ("zeta", c_double),
    ]


class EntropyMaskOptions(Structure):
    """reweight_entropy_mask_options."""

    rho: float
    _fields_ = [
        ("rho", c_double),
    ]


class ClipBOptions(Structure):
    """reweight_clip_b_options."""

    mu: float
    _fields_ = [
        ("mu", c_double),
    ]


class ClipVOptions(Structure):
    """reweight_clip_v_options."""

    mu: float
    max_share: float
    _fields_ = [
        ("mu", c_double),
        ("max_share", c_double),
    ]


class RolloutCorrectionOptions(Structure):
    """reweight_rollout_correction_options."""

    level: int
    mask: int
    low: float
    high: float
    normalize: int
    _fields_ = [
        ("level", c_int32),
        ("mask", c_int32),
        ("low", c_double),
        ("high", c_double),
        ("normalize", c_int32),
    ]


class RejectOptions(Structure):
    """reweight_reject_options."""

    statistic: int
    low: float
    high: float
    _fields_ = [
        ("statistic", c_int32),
        ("low", c_double),
        ("high", c_double),
    ]


class OffPolicyMaskOptions(Structure):
    """reweight_off_policy_mask_options."""

    delta: float
    _fields_ = [
        ("delta", c_double),
    ]


class FIPOOptions(Structure):
    """reweight_fipo_options."""

    half_life: float
    filter: float
    clip: float
    high_only: int
    safety: float
    _fields_ = [
        ("half_life", c_double),
        ("filter", c_double),
        ("clip", c_double),
        ("high_only", c_int32),
        ("safety", c_double),
    ]


class RLSDOptions(Structure):
    """reweight_rlsd_options."""

    lambda_: float
    clip: float
    negative_only: int
    _fields_ = [
        ("lambda_", c_double),
        ("clip", c_double),
        ("negative_only", c_int32),
    ]


# The defaults.
DEFAULT_ROW_GRADIENT = RowGradientOptions(1, 0)
DEFAULT_LOSS = LossOptions(0.2, 0.28, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
DEFAULT_ACTFOCUS = ActFocusOptions(0.1, 0.5, 1e-08, 0)
DEFAULT_AEM = AEMOptions(1, 0.1, 0)
DEFAULT_GRPO = GRPOOptions(1e-06, 1)
DEFAULT_KL_REWARDS = KLRewardsOptions(0.001, 2)
DEFAULT_GAE = GAEOptions(1, 1)
DEFAULT_GSPO = LossOptions(0.0003, 0.0004, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
DEFAULT_LUSPO = LossOptions(0.0003, 0.0004, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
DEFAULT_GRPO_S_LOSS = LossOptions(0.2, 0.28, 0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
DEFAULT_CISPO = LossOptions(1, 4, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
DEFAULT_SAPO = LossOptions(0, 0, 0, 0, 2, 4, 0, 0, 0, 1, 1.05, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
DEFAULT_PG = LossOptions(0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
DEFAULT_DPPO_TV = LossOptions(0.2, 0.2, 0, 0, 0, 6, 0, 0, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
DEFAULT_VESPO = LossOptions(0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 2, 3, 3, 2, 0, 0, 0, 0, 0, 0)
DEFAULT_DPPO_KL = LossOptions(0.05, 0.05, 0, 0, 0, 8, 0, 0, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
DEFAULT_DRO = LossOptions(0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
DEFAULT_GMPO = LossOptions(0.4, 0.4, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
DEFAULT_CLIP_COV = LossOptions(0.2, 0.2, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0002, 1, 5, 0, 0)
DEFAULT_KL_COV = LossOptions(0, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0002, 0, 0, 1, 0)
DEFAULT_VALUE_LOSS = ValueLossOptions(0.5, 0, 0)
DEFAULT_OVERLONG_PENALTY = OverlongPenaltyOptions(20480, 4096, 1)
DEFAULT_REINFORCE_PLUS_PLUS = ReinforcePlusPlusOptions(1)
DEFAULT_OTB = OTBOptions(0, 1)
DEFAULT_GIGPO = GiGPOOptions(0.95, 1, 0, 0)
DEFAULT_TURN_RETURNS = TurnReturnsOptions(1, 0)
DEFAULT_MT_GRPO = MTGRPOOptions(0.5, 1)
DEFAULT_GTPO = GTPOOptions(1, 0.1, 0.5, 0, inf, 0, 0)
DEFAULT_GRPO_S = GTPOOptions(1, 0.1, 0.5, 0, inf, 1, 0)
DEFAULT_PASS_AT_K = PassAtKOptions(1e-06, 1)
DEFAULT_GDPO = GDPOOptions(1e-06, 1, None)
DEFAULT_EMPG = EMPGOptions(1, 1, 0.05)
DEFAULT_ENTROPY_MASK = EntropyMaskOptions(0.2)
DEFAULT_CLIP_B = ClipBOptions(2.5)
DEFAULT_CLIP_V = ClipVOptions(8.5, 0.0001)
DEFAULT_ROLLOUT_CORRECTION = RolloutCorrectionOptions(0, 0, 0, 2, 0)
DEFAULT_REJECT = RejectOptions(0, 0.5, 2)
DEFAULT_FIPO = FIPOOptions(32, 10, 0.2, 1, 4)
DEFAULT_RLSD = RLSDOptions(0.5, 0.2, 0)
# Those of the policy losses, by their numbers.
LOSS_DEFAULTS = (DEFAULT_LOSS, DEFAULT_GSPO, DEFAULT_GRPO_S_LOSS, DEFAULT_CISPO, DEFAULT_SAPO, DEFAULT_PG, DEFAULT_DPPO_TV, DEFAULT_VESPO, DEFAULT_DPPO_KL, DEFAULT_DRO, DEFAULT_GMPO, DEFAULT_CLIP_COV, DEFAULT_KL_COV)

# The types of the arguments of each function, between the workspace and the error.
FUNCTIONS: Dict[str, List[Any]] = {
    "token_stats": [POINTER(Stats), POINTER(Rows), POINTER(Ids), c_double],
    "row_gradient": [
        POINTER(Rows), POINTER(Rows), POINTER(Ids), c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, POINTER(RowGradientOptions),
    ],
    "actfocus": [c_void_p, c_void_p, POINTER(Batch), POINTER(ActFocusOptions)],
    "aem": [c_void_p, POINTER(Batch), POINTER(AEMOptions)],
    "grpo": [c_void_p, POINTER(Batch), POINTER(GRPOOptions)],
    "gae": [c_void_p, c_void_p, c_void_p, POINTER(Batch), POINTER(GAEOptions)],
    "whiten": [c_void_p, c_void_p, c_void_p, c_int64],
    "kl_rewards": [c_void_p, POINTER(Batch), POINTER(KLRewardsOptions)],
    "loss": [c_void_p, c_void_p, c_void_p, POINTER(Batch), POINTER(LossOptions)],
    "value_loss": [c_void_p, c_void_p, POINTER(Batch), POINTER(ValueLossOptions)],
    "masked_moments": [c_void_p, c_void_p, c_void_p, c_int64, c_uint32, c_double],
    "actfocus_weights": [c_void_p, c_void_p, c_void_p, c_int64, c_double, c_double, POINTER(ActFocusOptions)],
    "span_means": [c_void_p, c_int64, c_void_p, c_int64, c_void_p],
    "min_max": [c_void_p, c_void_p, c_int64, c_void_p, c_int64, c_void_p],
    "exp_scale": [c_void_p, c_void_p, c_int64, c_float, c_double],
    "multiply": [c_void_p, c_void_p, c_void_p, c_int64],
    "surrogate": [
        c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int64, c_double, POINTER(LossOptions),
    ],
    "overlong_penalty": [c_void_p, POINTER(Batch), POINTER(OverlongPenaltyOptions)],
    "group_filter": [c_void_p, POINTER(Batch)],
    "rloo": [c_void_p, POINTER(Batch)],
    "reinforce_plus_plus": [c_void_p, POINTER(Batch), POINTER(ReinforcePlusPlusOptions)],
    "reinforce_plus_plus_baseline": [c_void_p, POINTER(Batch)],
    "otb": [c_void_p, POINTER(Batch), POINTER(OTBOptions)],
    "gigpo": [c_void_p, POINTER(Batch), POINTER(GiGPOOptions)],
    "turn_returns": [c_void_p, POINTER(Batch), POINTER(TurnReturnsOptions)],
    "mt_grpo": [c_void_p, POINTER(Batch), POINTER(MTGRPOOptions)],
    "gtpo": [c_void_p, POINTER(Batch), POINTER(GTPOOptions)],
    "grpo_s": [c_void_p, POINTER(Batch), POINTER(GTPOOptions)],
    "opo": [c_void_p, POINTER(Batch)],
    "pass_at_k": [c_void_p, POINTER(Batch), POINTER(PassAtKOptions)],
    "gdpo": [c_void_p, POINTER(Batch), POINTER(GDPOOptions)],
    "gpg_advantages": [c_void_p, POINTER(Batch)],
    "empg": [c_void_p, POINTER(Batch), POINTER(EMPGOptions)],
    "entropy_mask": [c_void_p, POINTER(Batch), POINTER(EntropyMaskOptions)],
    "clip_b": [c_void_p, POINTER(Batch), POINTER(ClipBOptions)],
    "clip_v": [c_void_p, POINTER(Batch), POINTER(ClipVOptions)],
    "rollout_correction": [c_void_p, POINTER(Batch), POINTER(RolloutCorrectionOptions)],
    "reject": [c_void_p, POINTER(Batch), POINTER(RejectOptions)],
    "off_policy_mask": [c_void_p, POINTER(Batch), POINTER(OffPolicyMaskOptions)],
    "fipo": [c_void_p, POINTER(Batch), POINTER(FIPOOptions)],
    "rlsd": [c_void_p, POINTER(Batch), POINTER(RLSDOptions)],
}

# ---- The kernels of the GPU: what they take, one struct each ----


class RowsParams(Structure):
    _fields_ = [
        ("logits", c_uint64),
        ("stride", c_int64),
        ("sequence", c_uint64),
        ("gap", c_int64),
        ("count", c_int64),
        ("index", c_uint64),
        ("selected", c_int64),
        ("ids", c_uint64),
        ("id_gap", c_int64),
        ("status", c_uint64),
        ("temperature", c_double),
        ("vocab", c_int32),
        ("wide_ids", c_uint32),
    ]


class TokenStatsParams(Structure):
    _fields_ = [
        ("exact", c_uint64),
        ("lse", c_uint64),
        ("entropy", c_uint64),
        ("logprob", c_uint64),
        ("log_sum_sq_probs", c_uint64),
        ("rows", RowsParams),
    ]


class RowGradientParams(Structure):
    _fields_ = [
        ("exact", c_uint64),
        ("dst", c_uint64),
        ("dst_stride", c_int64),
        ("dst_gap", c_int64),
        ("logprobs", c_uint64),
        ("entropy", c_uint64),
        ("grad", c_uint64),
        ("grad_entropy", c_uint64),
        ("lse", c_uint64),
        ("bonus", c_double),
        ("rows", RowsParams),
    ]


class MultiplyParams(Structure):
    _fields_ = [
        ("dst", c_uint64),
        ("a", c_uint64),
        ("b", c_uint64),
        ("n", c_int64),
    ]


class MomentsParams(Structure):
    _fields_ = [
        ("x", c_uint64),
        ("role", c_uint64),
        ("result", c_uint64),
        ("status", c_uint64),
        ("n", c_int64),
        ("shift", c_double),
        ("roles", c_uint64),
    ]


class Values(Structure):
    _fields_ = [
        ("a", c_uint64),
        ("b", c_uint64),
        ("form", c_uint64),
    ]


class SpreadParams(Structure):
    _fields_ = [
        ("signal", Values),
        ("role", c_uint64),
        ("result", c_uint64),
        ("curve", c_uint64),
        ("status", c_uint64),
        ("n", c_int64),
        ("eps", c_double),
        ("first", c_int64),
    ]


class WeightsParams(Structure):
    _fields_ = [
        ("dst", c_uint64),
        ("signal", Values),
        ("role", c_uint64),
        ("curve", c_uint64),
        ("status", c_uint64),
        ("n", c_int64),
        ("mean", c_double),
        ("sigma", c_double),
        ("alpha", c_float),
        ("beta", c_float),
    ]


class WhitenParams(Structure):
    _fields_ = [
        ("dst", c_uint64),
        ("x", c_uint64),
        ("role", c_uint64),
        ("scale", c_uint64),
        ("n", c_int64),
    ]


class WhitenSpreadParams(Structure):
    _fields_ = [
        ("x", c_uint64),
        ("role", c_uint64),
        ("scale", c_uint64),
        ("status", c_uint64),
        ("n", c_int64),
    ]


class Segments(Structure):
    _fields_ = [
        ("offsets", c_uint64),
        ("count", c_int64),
        ("tokens", c_int64),
    ]


class SurrogateParams(Structure):
    _fields_ = [
        ("grad", c_uint64),
        ("logprobs", c_uint64),
        ("old", c_uint64),
        ("advantages", c_uint64),
        ("weights", c_uint64),
        ("role", c_uint64),
        ("sums", c_uint64),
        ("counts", c_uint64),
        ("status", c_uint64),
        ("segments", Segments),
        ("low", c_float),
        ("high", c_float),
        ("dual", c_float),
        ("scale", c_float),
    ]


class SurrogateTotalParams(Structure):
    _fields_ = [
        ("of", SurrogateParams),
        ("result", c_uint64),
    ]


class LossParams(Structure):
    _fields_ = [
        ("of", SurrogateParams),
        ("reference", c_uint64),
        ("offsets", c_uint64),
        ("trajectories", c_int64),
        ("segments", c_uint64),
        ("state", c_uint64),
        ("result", c_uint64),
        ("aggregation", c_int64),
        ("norm_length", c_int64),
    ]


class RangesParams(Structure):
    _fields_ = [
        ("offsets", c_uint64),
        ("count", c_int64),
        ("size", c_int64),
        ("status", c_uint64),
    ]


class SpanMeansParams(Structure):
    _fields_ = [
        ("dst", c_uint64),
        ("x", c_uint64),
        ("ranges", RangesParams),
    ]


class MinMaxParams(Structure):
    _fields_ = [
        ("lo", c_uint64),
        ("hi", c_uint64),
        ("x", c_uint64),
        ("ranges", RangesParams),
    ]


class ExpScaleParams(Structure):
    _fields_ = [
        ("dst", c_uint64),
        ("x", c_uint64),
        ("n", c_int64),
        ("rate", c_double),
        ("lo", c_float),
        ("_", c_uint32),
    ]


class LayoutParams(Structure):
    _fields_ = [
        ("role", c_uint64),
        ("offsets", c_uint64),
        ("tokens", c_int64),
        ("trajectories", c_int64),
        ("problem", c_uint64),
        ("status", c_uint64),
    ]


class AEMParams(Structure):
    _fields_ = [
        ("layout", LayoutParams),
        ("factors", c_uint64),
        ("entropy", c_uint64),
        ("span_ids", c_uint64),
        ("group_ids", c_uint64),
        ("lambda_", c_double),
        ("guard", c_double),
        ("scope", c_int64),
        ("most_spans", c_int64),
        ("values", c_uint64),
        ("tops", c_uint64),
        ("firsts", c_uint64),
        ("counts", c_uint64),
        ("scopes", c_uint64),
        ("places", c_uint64),
        ("sizes", c_uint64),
        ("responses", c_uint64),
        ("ends", c_uint64),
        ("spots", c_uint64),
        ("means", c_uint64),
        ("sorted", c_uint64),
    ]


class GRPOParams(Structure):
    _fields_ = [
        ("layout", LayoutParams),
        ("advantages", c_uint64),
        ("rewards", c_uint64),
        ("group_ids", c_uint64),
        ("scores", c_uint64),
        ("eps", c_double),
        ("divide_by_std", c_int64),
    ]


class GAEParams(Structure):
    _fields_ = [
        ("layout", LayoutParams),
        ("advantages", c_uint64),
        ("returns", c_uint64),
        ("rewards", c_uint64),
        ("values", c_uint64),
        ("gamma", c_double),
        ("decay", c_double),
    ]


# The module, the threads of a CTA, its bytes of dynamic shared memory, and how many times as
# much of both it has where all that a call needs can run at a time; 0: always the same.
KERNELS = {
    "token_stats_f32": ("token_stats_f32", 32, 17168, 4),
    "token_stats_f32_tempered": ("token_stats_f32", 32, 17168, 4),
    "token_stats_bf16": ("token_stats_bf16", 32, 17168, 4),
    "token_stats_bf16_tempered": ("token_stats_bf16", 32, 17168, 4),
    "token_stats_f16": ("token_stats_f16", 32, 17168, 4),
    "token_stats_f16_tempered": ("token_stats_f16", 32, 17168, 4),
    "token_stats_squares_f32": ("token_stats_squares_f32", 32, 17424, 4),
    "token_stats_squares_f32_tempered": ("token_stats_squares_f32", 32, 17424, 4),
    "token_stats_squares_bf16": ("token_stats_squares_bf16", 32, 17424, 4),
    "token_stats_squares_bf16_tempered": ("token_stats_squares_bf16", 32, 17424, 4),
    "token_stats_squares_f16": ("token_stats_squares_f16", 32, 17424, 4),
    "token_stats_squares_f16_tempered": ("token_stats_squares_f16", 32, 17424, 4),
    "row_gradient_f32": ("row_gradient_f32", 32, 8848, 4),
    "row_gradient_f32_tempered": ("row_gradient_f32", 32, 8848, 4),
    "row_gradient_bf16": ("row_gradient_bf16", 32, 8848, 4),
    "row_gradient_bf16_tempered": ("row_gradient_bf16", 32, 8848, 4),
    "multiply": ("multiply", 256, 0, 0),
    "masked_moments": ("moments", 544, 0, 0),
    "actfocus_spread": ("actfocus", 544, 0, 0),
    "actfocus_weights": ("actfocus", 256, 0, 0),
    "whiten_spread": ("whiten", 544, 0, 0),
    "whiten": ("whiten", 256, 0, 0),
    "surrogate": ("surrogate", 256, 0, 0),
    "surrogate_total": ("surrogate", 32, 0, 0),
    "loss_check": ("loss", 256, 0, 0),
    "loss_weights": ("loss", 544, 0, 0),
    "loss_tokens": ("loss", 256, 0, 0),
    "loss_segments": ("loss", 128, 0, 0),
    "loss_total": ("loss", 256, 0, 0),
    "span_means": ("spans", 128, 0, 0),
    "min_max": ("spans", 128, 0, 0),
    "exp_scale": ("spans", 128, 0, 0),
    "check_layout": ("layout", 256, 0, 0),
    "aem_tops": ("aem", 128, 0, 0),
    "aem_spans": ("aem", 128, 0, 0),
    "aem_sort": ("aem", 128, 0, 0),
    "aem_scopes": ("aem", 128, 0, 0),
    "aem_factors": ("aem", 256, 0, 0),
    "grpo_scores": ("advantage", 128, 0, 0),
    "grpo_advantages": ("advantage", 256, 0, 0),
    "gae": ("advantage", 128, 0, 0),
}

# The kernels that a function launches.
KERNELS_OF = {
    "actfocus": ["actfocus_spread", "actfocus_weights"],
    "aem": ["check_layout", "aem_tops", "aem_spans", "aem_sort", "aem_scopes", "aem_factors"],
    "grpo": ["check_layout", "grpo_scores", "grpo_advantages"],
    "gae": ["check_layout", "gae"],
    "whiten": ["whiten_spread", "whiten"],
    "loss": ["loss_check", "loss_weights", "loss_tokens", "loss_segments", "loss_total"],
    "masked_moments": ["masked_moments"],
    "actfocus_weights": ["actfocus_weights"],
    "span_means": ["span_means"],
    "min_max": ["min_max"],
    "exp_scale": ["exp_scale"],
    "multiply": ["multiply"],
    "surrogate": ["surrogate", "surrogate_total"],
}

# The same for functions on rows of logits, by the number of the dtype.
KERNELS_OF_ROWS = {
    "token_stats": [
        ["token_stats_f32", "token_stats_f32_tempered", "token_stats_squares_f32", "token_stats_squares_f32_tempered"],
        ["token_stats_bf16", "token_stats_bf16_tempered", "token_stats_squares_bf16", "token_stats_squares_bf16_tempered"],
        ["token_stats_f16", "token_stats_f16_tempered", "token_stats_squares_f16", "token_stats_squares_f16_tempered"],
    ],
    "row_gradient": [
        ["row_gradient_f32", "row_gradient_f32_tempered"],
        ["row_gradient_bf16", "row_gradient_bf16_tempered"],
    ],
}

# What a CTA takes, by the kind of kernel.
PASS = 1024  # tokens of the passes over them
GROUPS_OF_CTA = 16
SEGMENTS_OF_CTA = 4
WARPS_OF_CTA = 4  # of the kernels that give a warp to each of their things
GROUP = 128  # tokens of a group, which half a warp sums

LOSS_STATE, SEGMENT_STATE = 24, 56  # bytes of scratch memory
PLAIN, NEGATED, DIFFERENCE = 0, 1, 2  # forms of Values
