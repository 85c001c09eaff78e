"""The functions of schemes, and the catalogue: `go generate ./...` writes this file."""

from __future__ import annotations

from math import inf
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

from . import _generated, _policies
from ._arrays import ArrayLike
from ._errors import choice, integer, number
from ._schemes import of_parts, run_scheme
from .batch import Batch

__all__ = [
    "Entry",
    "overlong_penalty",
    "group_filter",
    "rloo",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "otb",
    "gigpo",
    "turn_returns",
    "mt_grpo",
    "gtpo",
    "grpo_s",
    "opo",
    "pass_at_k",
    "gdpo",
    "gpg_advantages",
    "empg",
    "entropy_mask",
    "clip_b",
    "clip_v",
    "rollout_correction",
    "reject",
    "off_policy_mask",
    "fipo",
    "rlsd",
]


def overlong_penalty(
    batch: Batch,
    *,
    maximum: int = 20480,
    buffer: int = 4096,
    penalty: float = 1,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns penalties[q], which is to be added to the reward of trajectory q with n_q
    response tokens (DAPO, arXiv 2503.14476):

        p_q = max(-penalty, min(0, -penalty (n_q - (maximum - buffer)) / buffer))

    It is 0 up to maximum - buffer tokens and -penalty from maximum on. Observations between
    the turns do not count: they are not the policy's.

    penalties has one element per trajectory, and may be rewards, which is not read. A wrong
    shape or option is an error, and penalties is not written.

    maximum: response tokens from which the penalty is full, at least buffer
    buffer: tokens before it over which the penalty grows, above 0
    penalty: at maximum, at least 0; 0: there is none
    out: the array for penalties, float32.

    An error is an InputError, which is a ValueError.
    """
    options = _generated.OverlongPenaltyOptions(
        integer("maximum", maximum, 64),
        integer("buffer", buffer, 64),
        number("penalty", penalty),
    )
    return run_scheme("overlong_penalty", batch, options, ("seq_offsets",), out, "trajectory")


def group_filter(
    batch: Batch,
    *,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns weights: 1 at the response tokens of groups whose rewards differ, or which have
    one member, to 0 elsewhere (DAPO's dynamic sampling, arXiv 2503.14476): trajectories
    whose advantages are all 0 leave numerator and denominator of the loss. rewards are
    compared exactly. Every trajectory of a group counts, also one without response tokens.

    weights has one element per token, rewards and group_ids one per trajectory; weights may
    be any array of the batch that is one float32 per token: none is read. A wrong shape or
    a reward that is not finite is an error, and weights is not written.

    out: the array for weights, float32.

    An error is an InputError, which is a ValueError.
    """
    return run_scheme("group_filter", batch, None, ("seq_offsets", "group_ids", "rewards"), out)


def rloo(
    batch: Batch,
    *,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns advantages: each trajectory's reward less the mean reward of the others of its
    group (leave one out, arXiv 2402.14740):

        A = n / (n-1) (r - mean_g)

    with n the members of the group. A group of one gets 0: there is no other. Every
    trajectory of a group counts, also one without response tokens. Masked tokens get 0.

    advantages has one element per token, rewards and group_ids one per trajectory;
    advantages may be any array of the batch that is one float32 per token: none is read. A
    wrong shape or a reward that is not finite is an error, and advantages is not written.

    out: the array for advantages, float32.

    An error is an InputError, which is a ValueError.
    """
    return run_scheme("rloo", batch, None, ("seq_offsets", "group_ids", "rewards"), out)


def reinforce_plus_plus(
    batch: Batch,
    *,
    gamma: float = 1,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns advantages: the discounted sums of token_rewards, backwards over the response
    tokens of each trajectory, whitened (REINFORCE++, arXiv 2501.03262; verl,
    compute_reinforce_plus_plus_outcome_advantage):

        G_t = r_t + gamma G_next(t)    A_t = (G_t - mean) / sqrt(var + 1e-8)

    where next(t) is the trajectory's next response token, after which masked tokens are
    passed over; mean and variance (n-1) are over the response tokens of the batch. The
    reward of an outcome belongs at the trajectory's last response token. Masked tokens get
    0, and so does a response token that is the only one of the batch.

    advantages, token_rewards and role have one element per token, and seq_offsets must be
    set. advantages may be token_rewards. A wrong shape or option, or a reward of a response
    token that is not finite, is an error, and nothing is written.

    gamma: discount, above 0 and at most 1
    out: the array for advantages, float32.

    An error is an InputError, which is a ValueError.
    """
    options = _generated.ReinforcePlusPlusOptions(
        number("gamma", gamma),
    )
    return run_scheme("reinforce_plus_plus", batch, options, ("seq_offsets", "token_rewards"), out)


def reinforce_plus_plus_baseline(
    batch: Batch,
    *,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns advantages: each trajectory's reward less the mean of its group, whitened over
    response tokens (REINFORCE++-baseline, arXiv 2501.03262; verl,
    compute_reinforce_plus_plus_baseline_outcome_advantage):

        a_q = r_q - mean_g    A_t = (a_q(t) - mean) / sqrt(var + 1e-8)

    A group of one has mean 0; every trajectory of a group counts, also one without response
    tokens. The second mean and the variance (n-1) are over the response tokens of the
    batch, so that long trajectories count more. Masked tokens get 0, and so does a response
    token that is the only one of the batch.

    advantages has one element per token, rewards and group_ids one per trajectory;
    advantages may be any array of the batch that is one float32 per token: none is read. A
    wrong shape, or a reward that is not finite, is an error, and advantages is not written.

    out: the array for advantages, float32.

    An error is an InputError, which is a ValueError.
    """
    return run_scheme("reinforce_plus_plus_baseline", batch, None, ("seq_offsets", "group_ids", "rewards"), out)


def otb(
    batch: Batch,
    *,
    turns: bool = False,
    zero_tail: bool = True,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns advantages: the rewards to come of each response token, less a baseline of its
    position that makes the variance of the gradient small (optimal token baseline; verl,
    compute_optimal_token_baseline_advantage and, with turns,
    compute_multi_turn_optimal_token_baseline_advantage):

        G_t = sum of token_rewards from t on              W_t = sum of w up to t
        w_t = 1 - 2 e^old_logprobs[t] + sum_sq_probs[t]     A_t = G_t - B of the position of t
        B   = sum G W / (sum W + 1e-8)

    The first two sums are over the response tokens of a trajectory. Those of B are over the
    trajectories of a group that have a response token at that position: its place in the
    trajectory, masked tokens counted, or, with turns, among its response tokens. w
    estimates the squared norm of the gradient of the token's log-probability with respect
    to the logits.

    A group of one trajectory has B = 0; every trajectory counts, also one without response
    tokens. With zero_tail, a trajectory with more response tokens than any other of its
    group has B = 0 from the position on that is the second largest number of them. The
    reward of an outcome belongs at the trajectory's last response token. verl multiplies w
    by the squared weight of its rollout correction where it has one; this does not. Masked
    tokens get 0.

    advantages, token_rewards, old_logprobs and sum_sq_probs have one element per token,
    group_ids one per trajectory; advantages may be any array of the batch that is one
    float32 per token: all are read before it is written. A wrong shape, or a value of a
    response token that is not finite, is an error, and advantages is not written.

    turns: positions count response tokens alone, not all tokens of the trajectory
    zero_tail: no baseline where the longest trajectory of its group is alone
    out: the array for advantages, float32.

    An error is an InputError, which is a ValueError.
    """
    options = _generated.OTBOptions(
        bool(turns),
        bool(zero_tail),
    )
    return run_scheme("otb", batch, options, ("seq_offsets", "group_ids", "old_logprobs", "sum_sq_probs", "token_rewards"), out)


def gigpo(
    batch: Batch,
    *,
    gamma: float = 0.95,
    omega: float = 1,
    divide_by_std: bool = False,
    per_step: bool = False,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns advantages from groups of trajectories, and from groups of spans that started in
    the same state (arXiv 2505.10978):

        E_q = (rewards[q] - mean) / F        over the trajectories of q's group
        G_s = span_rewards[s] + gamma G_next(s)
        B_s = (G_s - mean) / F               over the spans of s's group with the anchor of s
        A_t = E_q(t) + omega B_s(t)

    where next(s) is the next span of the same trajectory. F is 1, or with divide_by_std the
    standard deviation (n-1) plus 1e-6. A group of one trajectory has mean 0 and std 1; a
    span that shares its anchor with no other has B 0, and so have spans whose returns are
    equal. With per_step, mean and std of E are over the spans of the group, each with its
    trajectory's reward, so that long trajectories count more; then it is a group of one
    span that has mean 0 and std 1. Trajectories without response tokens count in their
    group, unless per_step. Masked tokens get 0.

    advantages, role and span_ids have one element per token, at most 2^31 - 1; rewards and
    group_ids one per trajectory; anchors and span_rewards one per span; seq_offsets must be
    set. advantages may be any array of the batch that is one float32 per token: none is
    read. A span needs at least one response token. Wrong shapes, spans or options, or a
    reward that is not finite, is an error, and advantages is not written.

    gamma: discount of span rewards, in [0, 1]; 0: a span counts its own reward alone
    omega: weight of the step advantages, finite; 0 leaves them out
    divide_by_std: plus 1e-6, of the group; False: by 1
    per_step: the group's mean and std are over spans, as in the public code; False: over
    trajectories
    out: the array for advantages, float32.

    An error is an InputError, which is a ValueError.
    """
    options = _generated.GiGPOOptions(
        number("gamma", gamma),
        number("omega", omega),
        bool(divide_by_std),
        bool(per_step),
    )
    return run_scheme("gigpo", batch, options, ("seq_offsets", "group_ids", "span_ids", "rewards", "anchors", "span_rewards"), out)


def turn_returns(
    batch: Batch,
    *,
    gamma: float = 1,
    divide_by_std: bool = False,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns advantages: what each turn and the turns after it earn, less what the other
    trajectories of the group earn from there on. A turn is a span, K of them are in a
    trajectory:

        G_k = span_rewards[k] + gamma G_k+1    G_K = span_rewards[K] + rewards[q]
        b_k = mean over the others p of the group of G_min(k, K_p) of p
        A_t = G_k(t) - b_k(t)

    So a trajectory that has ended before turn k counts in b_k by its last turn, and one
    without turns by its reward. As b_k does not depend on this trajectory, and always has
    the same number of terms, the policy gradient is unbiased, also where the policy decides
    when an episode ends. A group of one has b_k = 0. With divide_by_std, A is divided by
    the standard deviation (n-1) of G over all turns of the group, if it has more than one.
    Masked tokens get 0.

    rewards is added to the last turn: it must not contain the rewards of turns again.

    advantages, role and span_ids have one element per token, at most 2^31 - 1; rewards and
    group_ids one per trajectory; span_rewards one per span; seq_offsets must be set.
    advantages may be any array of b that is one float32 per token: none is read. A span
    needs at least one response token. Wrong shapes, spans or options, or a reward that is
    not finite, is an error, and advantages is not written.

    gamma: discount of later turns, above 0 and at most 1
    divide_by_std: plus 1e-6, of the returns of all turns of the group: this makes the
    gradient biased
    out: the array for advantages, float32.

    An error is an InputError, which is a ValueError.
    """
    options = _generated.TurnReturnsOptions(
        number("gamma", gamma),
        bool(divide_by_std),
    )
    return run_scheme("turn_returns", batch, options, ("seq_offsets", "group_ids", "span_ids", "rewards", "span_rewards"), out)


def mt_grpo(
    batch: Batch,
    *,
    lambda_: float = 0.5,
    divide_by_std: bool = True,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns advantages: what each turn has earned relative to the same turn of the group,
    and what the trajectory has earned in the end relative to the group (after arXiv
    2505.11821). A turn is a span, K of them are in a trajectory:

        B_k = (span_rewards[k] - mean) / F                    over the turns k of q's group
        E_q = (rewards[q] + span_rewards[K] - mean) / F       over the trajectories of q's group
        A_t = B_k(t) + lambda_ E_q(t) where k < K, E_q(t) where k = K

    F is 1, or with divide_by_std the standard deviation (n-1) plus 1e-6. What is alone has
    B or E 0, and so have equal rewards. A trajectory without turns has E of its reward.
    Masked tokens get 0.

    Where the policy decides when an episode ends, the gradient is biased: a trajectory that
    goes on has the mean of the turn's rewards subtracted, and one that ends has not, as if
    going on cost that much. There is no such bias in the returns of turns.

    advantages, role and span_ids have one element per token, at most 2^31 - 1; rewards and
    group_ids one per trajectory; span_rewards one per span; seq_offsets must be set.
    advantages may be any array of b that is one float32 per token: none is read. A span
    needs at least one response token. Wrong shapes, spans or options, or a reward that is
    not finite, is an error, and advantages is not written.

    lambda_: of the outcome in turns before the last, above 0
    divide_by_std: plus 1e-6, of what is compared; False: by 1
    out: the array for advantages, float32.

    An error is an InputError, which is a ValueError.
    """
    options = _generated.MTGRPOOptions(
        number("lambda_", lambda_),
        bool(divide_by_std),
    )
    return run_scheme("mt_grpo", batch, options, ("seq_offsets", "group_ids", "span_ids", "rewards", "span_rewards"), out)


def gtpo(
    batch: Batch,
    *,
    base: float = 1,
    bonus: float = 0.1,
    threshold: float = 0.5,
    entropy_low: float = 0,
    entropy_high: float = inf,
    normalization: str = "separate",
    scope: str = "group",
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns advantages from rewards that are shaped by the entropy of each token among the
    tokens at its position (arXiv 2508.04349). In each group, O+ are the trajectories with a
    reward r above threshold and O- the others; H is entropy clamped to [entropy_low,
    entropy_high]; j numbers the response tokens of a trajectory, and d_j, h_j are the
    members of O+ and O- that have a j-th:

        O+: u_ij = base r_i + bonus d_j H_ij / max(sum_{O+} H_.j, 1e-8)
        O-: u_ij = -base - bonus h_j v_ij / max(sum_{O-} v_.j, 1e-8)    v = 1 / (H + 1e-8)
        A = (u - mean) / sqrt(var + 1e-8)

    with mean and population variance over the tokens of O+ and of O- separately
    ("separate", the paper's equation 6), over both ("joint"), or A = u ("none").
    Separately, the outcome's sign is lost: half of the tokens of successes get a negative
    advantage. A set of one token gets 0. With "batch" the whole batch is one group. Masked
    tokens get 0.

    advantages, role and entropy have one element per token, rewards one per trajectory, and
    group_ids too for "group", which alone reads them. advantages may be entropy. A wrong
    shape or option, or a reward or an entropy of a response token that is not finite, is an
    error, and advantages is not written.

    base: weight of the reward: the paper's alpha 1, beta 1; at least 0
    bonus: weight of the entropy's share: its alpha 2, beta 2; at least 0
    threshold: a reward above it is a success
    entropy_low: entropies are clamped to [entropy_low, entropy_high] first, nats; at least
    0
    entropy_high: at least entropy_low, above 0; +Inf for no bound
    normalization: "separate", "joint" or "none"
    scope: "group" or "batch": trajectories that are compared
    out: the array for advantages, float32.

    An error is an InputError, which is a ValueError.
    """
    options = _generated.GTPOOptions(
        number("base", base),
        number("bonus", bonus),
        number("threshold", threshold),
        number("entropy_low", entropy_low),
        number("entropy_high", entropy_high),
        choice("normalization", normalization, _generated.NORMALIZATIONS),
        choice("scope", scope, _generated.SCOPES),
    )
    return run_scheme("gtpo", batch, options, ("seq_offsets", "rewards", "entropy") + (("group_ids",) if scope == "group" else ()), out)


def grpo_s(
    batch: Batch,
    *,
    base: float = 1,
    bonus: float = 0.1,
    threshold: float = 0.5,
    entropy_low: float = 0,
    entropy_high: float = inf,
    normalization: str = "joint",
    scope: str = "group",
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns advantages from rewards that are shaped by the mean entropy of each trajectory
    (GRPO-S, arXiv 2508.04349). In each group, O+ are the trajectories with a reward r above
    threshold and O- the others, and Hbar_i is the mean over trajectory i of entropy clamped
    to [entropy_low, entropy_high]:

        O+: u_i = base r_i + bonus |O+| Hbar_i / max(sum_{O+} Hbar, 1e-8)
        O-: u_i = -base - bonus |O-| v_i / max(sum_{O-} v, 1e-8)    v = 1 / (Hbar + 1e-8)
        A = (u - mean) / sqrt(var + 1e-8)

    with mean and population variance over the trajectories of O+ and O- together ("joint"),
    of each ("separate"), or A = u ("none"). The response tokens of trajectory i get its A;
    a trajectory without any is in neither set. A set of one trajectory gets 0. Masked
    tokens get 0.

    The arguments are as in gtpo, with the same shapes, errors and aliasing.

    base: weight of the reward: the paper's alpha 1, beta 1; at least 0
    bonus: weight of the entropy's share: its alpha 2, beta 2; at least 0
    threshold: a reward above it is a success
    entropy_low: entropies are clamped to [entropy_low, entropy_high] first, nats; at least
    0
    entropy_high: at least entropy_low, above 0; +Inf for no bound
    normalization: "separate", "joint" or "none"
    scope: "group" or "batch": trajectories that are compared
    out: the array for advantages, float32.

    An error is an InputError, which is a ValueError.
    """
    options = _generated.GTPOOptions(
        number("base", base),
        number("bonus", bonus),
        number("threshold", threshold),
        number("entropy_low", entropy_low),
        number("entropy_high", entropy_high),
        choice("normalization", normalization, _generated.NORMALIZATIONS),
        choice("scope", scope, _generated.SCOPES),
    )
    return run_scheme("grpo_s", batch, options, ("seq_offsets", "rewards", "entropy") + (("group_ids",) if scope == "group" else ()), out)


def opo(
    batch: Batch,
    *,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns advantages: each trajectory's reward less the baseline of its group with the
    least variance, for which a long response counts more (on-policy RL with optimal reward
    baseline, arXiv 2505.23585; verl, compute_opo_outcome_advantage):

        A = r - sum_g n r / sum_g n

    with n the response tokens of a trajectory. The baseline of a group of one is 0. Masked
    tokens get 0.

    advantages has one element per token, rewards and group_ids one per trajectory;
    advantages may be any array of the batch that is one float32 per token: none is read. A
    wrong shape or a reward that is not finite is an error, and advantages is not written.

    out: the array for advantages, float32.

    An error is an InputError, which is a ValueError.
    """
    return run_scheme("opo", batch, None, ("seq_offsets", "group_ids", "rewards"), out)


def pass_at_k(
    batch: Batch,
    *,
    eps: float = 1e-06,
    divide_by_std: bool = True,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns advantages: how far the highest reward of each group is above the second
    highest, at the response tokens of the trajectory that has it (the gradient of the
    expected maximum, arXiv 2503.19595; verl, compute_grpo_passk_outcome_advantage):

        A = (r_first - r_second) / (std_g + eps)

    with n-1 in the variance of the group's rewards, or without that divisor. All other
    tokens get 0. Where several have the highest reward, A is 0.

    advantages has one element per token, rewards and group_ids one per trajectory;
    advantages may be any array of the batch that is one float32 per token: none is read. A
    wrong shape or option, a reward that is not finite, or a group of one trajectory, is an
    error, and advantages is not written.

    eps: added to the standard deviation, at least 0
    divide_by_std: False: the difference itself, to which eps does not matter
    out: the array for advantages, float32.

    An error is an InputError, which is a ValueError.
    """
    options = _generated.PassAtKOptions(
        number("eps", eps),
        bool(divide_by_std),
    )
    return run_scheme("pass_at_k", batch, options, ("seq_offsets", "group_ids", "rewards"), out)


def gdpo(
    batch: Batch,
    *,
    eps: float = 1e-06,
    divide_by_std: bool = True,
    reward_weights: Optional[Sequence[float]] = None,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns advantages: what GRPO makes of each part of the reward alone, added up and
    whitened over response tokens, so that no part drowns another one (group
    reward-decoupled normalization, arXiv 2601.05242; verl, compute_gdpo_outcome_advantage):

        a_q = sum_k reward_weights[k] (r_qk - mean_gk) / (std_gk + eps)
        A_t = (a_q(t) - mean) / sqrt(var + 1e-8)

    with r_qk the part k of the reward of trajectory q, and n-1 in the variance of a part in
    a group; a group of one has mean 0 and std 1. Every trajectory of a group counts, also
    one without response tokens. The last mean and the variance (n-1) are over the response
    tokens of the batch, so that long trajectories count more. Masked tokens get 0, and so
    does a response token that is the only one of the batch.

    advantages has one element per token, group_ids one per trajectory, and reward_parts as
    many for each trajectory, one trajectory after another; advantages may be any array of b
    that is one float32 per token: none is read. A wrong shape or option, or a part that is
    not finite, is an error, and advantages is not written.

    eps: added to the standard deviation, at least 0
    divide_by_std: False: the differences themselves, to which eps does not matter
    reward_weights: of the parts, one each; None stands for ones
    out: the array for advantages, float32.

    An error is an InputError, which is a ValueError.
    """
    options = _generated.GDPOOptions(
        number("eps", eps),
        bool(divide_by_std),
        of_parts("reward_weights", reward_weights, batch),
    )
    return run_scheme("gdpo", batch, options, ("seq_offsets", "group_ids", "reward_parts"), out)


def gpg_advantages(
    batch: Batch,
    *,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns advantages: each trajectory's reward less the mean of its group, larger where
    few trajectories have a reward (group policy gradient, arXiv 2504.02546; verl,
    compute_gpg_outcome_advantage):

        A = alpha (r - mean_g)    alpha = S / max(1, trajectories with a reward other than 0)

    with S the trajectories of the batch. A group of one has mean 0; every trajectory
    counts, in S and in its group, also one without response tokens. Masked tokens get 0.
    The loss of GPG is the policy gradient, pg.

    advantages has one element per token, rewards and group_ids one per trajectory;
    advantages may be any array of the batch that is one float32 per token: none is read. A
    wrong shape or a reward that is not finite is an error, and advantages is not written.

    out: the array for advantages, float32.

    An error is an InputError, which is a ValueError.
    """
    return run_scheme("gpg_advantages", batch, None, ("seq_offsets", "group_ids", "rewards"), out)


def empg(
    batch: Batch,
    *,
    k: float = 1,
    k_future: float = 1,
    zeta: float = 0.05,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns advantages from batch.advantages and the entropies of spans (arXiv 2509.09265).
    With Hbar_s the mean of entropy over the response tokens of span s, and minimum, maximum
    and means over the N spans of the batch:

        x_s = (Hbar_s - min) / (max - min + 1e-8)
        g_s = exp(-k x_s) / (mean exp(-k x) + 1e-8)    f_s = exp(-k_future x_s)
        M_t = batch.advantages[t] g_s(t) + zeta f_next(s)
        A_t = M_t - mean_s mean_{t in s} M_t

    where next(s) is the next span of the same trajectory; the last one has no bonus. Where
    all Hbar are equal, x is 0. The means are in float64, because the width that x is
    divided by may be small. One span alone gives advantages of 0, to rounding. Masked
    tokens get 0. batch.advantages is usually what GRPO makes; where it varies within a
    span, the span's mean counts in the last line.

    advantages, role, span_ids, batch.advantages and entropy (in nats) have one element per
    token, at most 2^31 - 1, and seq_offsets must be set. advantages may be batch.advantages
    or entropy. A span needs at least one response token. Wrong shapes, spans or options, or
    an entropy or an advantage of a response token that is not finite, is an error, and
    advantages is not written.

    k: k: how fast the scale of a span's advantage falls with its entropy, 0 to 80; 0: it is
    1
    k_future: k': how fast the bonus falls with the next span's entropy, 0 to 80; 0: not at
    all
    zeta: of the bonus, at least 0; 0: there is none
    out: the array for advantages, float32.

    An error is an InputError, which is a ValueError.
    """
    options = _generated.EMPGOptions(
        number("k", k),
        number("k_future", k_future),
        number("zeta", zeta),
    )
    return run_scheme("empg", batch, options, ("seq_offsets", "span_ids", "advantages", "entropy"), out)


def entropy_mask(
    batch: Batch,
    *,
    rho: float = 0.2,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns mask: 1 at the response tokens with the highest entropies, to 0 elsewhere (arXiv
    2506.01939). Of the n response tokens of the batch,

        K = min(n, max(1, floor(rho n + 0.9999)))    threshold = the K-th largest entropy
        mask_t = 1 where entropy[t] >= threshold

    All tokens at the threshold are kept, so that their order does not matter. The mask is
    meant for the weights of Loss: it leaves numerator and denominator of its means. As a
    factor of the advantage it leaves only the numerator.

    mask, role and entropy have one element per token; mask may be entropy. A wrong shape, a
    rho out of range, or an entropy of a response token that is not finite, is an error, and
    mask is not written.

    rho: share of response tokens to keep, in (0, 1]
    out: the array for mask, float32.

    An error is an InputError, which is a ValueError.
    """
    options = _generated.EntropyMaskOptions(
        number("rho", rho),
    )
    return run_scheme("entropy_mask", batch, options, ("entropy",), out)


def clip_b(
    batch: Batch,
    *,
    mu: float = 2.5,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns weights[t] to 0 at the response tokens with A_t < 0 at which a step would change
    the entropy of the policy by far more than at others, and to 1 at the rest (arXiv
    2602.03392; Trinity-RFT, ClipBAdvantageFn):

        S_t = p_t (entropy[t] + log p_t)    log p_t = old_logprobs[t]
        w_t = 0 where A_t < 0 and S_t - mean < -mu std, else 1

    with the mean and the standard deviation (n) of S over the n response tokens of the
    batch. S is below 0 at tokens that are less likely than the entropy lets expect: to make
    them less likely still sharpens the policy. A standard deviation below 1e-12 leaves out
    nothing. Masked tokens get 0.

    weights, role, old_logprobs, entropy and advantages have one element per token; weights
    may be any of those three float arrays. A wrong shape or option, or a value of a
    response token that is not finite, is an error, and weights is not written.

    mu: standard deviations below the mean from which on tokens are left out, above 0
    out: the array for weights, float32.

    An error is an InputError, which is a ValueError.
    """
    options = _generated.ClipBOptions(
        number("mu", mu),
    )
    return run_scheme("clip_b", batch, options, ("advantages", "old_logprobs", "entropy"), out)


def clip_v(
    batch: Batch,
    *,
    mu: float = 8.5,
    max_share: float = 0.0001,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns weights[t] to 0 at the response tokens with A_t < 0 at which a step would lower
    the entropy of the policy most, by what it does to the whole vocabulary, and to 1 at the
    rest (arXiv 2602.03392; Trinity-RFT, ClipVAdvantageFn):

        D_t = entropy_drop[t] - p_t (entropy[t] + log p_t)    log p_t = old_logprobs[t]
        w_t = 0 where A_t < 0 and D_t > mu std, else 1

    with the standard deviation (n) of D over the n response tokens of the batch. Of these
    tokens at most max(1, floor(max_share n)) have 0: those of the largest D, of equal ones
    the first. A standard deviation below 1e-12 leaves out nothing. Masked tokens get 0.
    Trinity-RFT leaves out tokens with A_t = 0 beyond the bound, too.

    entropy_drop[t] is the mean of p (entropy[t] + log p) over what the old policy could
    have sampled in the place of token t: the sum of p^2 (entropy[t] + log p) over the
    vocabulary.

    weights, role, old_logprobs, entropy, entropy_drop and advantages have one element per
    token; weights may be any of those four float arrays. A wrong shape or option, or a
    value of a response token that is not finite, is an error, and weights is not written.

    mu: standard deviations from which on a token may be left out, above 0
    max_share: share of the response tokens that are left out at most, in (0, 1]
    out: the array for weights, float32.

    An error is an InputError, which is a ValueError.
    """
    options = _generated.ClipVOptions(
        number("mu", mu),
        number("max_share", max_share),
    )
    return run_scheme("clip_v", batch, options, ("advantages", "old_logprobs", "entropy", "entropy_drop"), out)


def rollout_correction(
    batch: Batch,
    *,
    level: str = "token",
    mask: bool = False,
    low: float = 0,
    high: float = 2,
    normalize: bool = False,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns factors that the advantages are to be multiplied by, because the engine that
    sampled is not quite the old policy: truncated importance sampling (TIS) or masked
    (IcePop), as verl, TRL and OpenRLHF have them. With z_t = old_logprobs -
    rollout_logprobs, x the level's exponent (z_t, its sum over the trajectory or its mean)
    and u = e^x, x kept between -20 and 20:

        truncate: c = u kept between low and high
        mask:     c = u where low <= u <= high, else 0
        normalize: c / mean c, if that mean is above 1e-8

    The mean is over response tokens, for the levels of trajectories over those that have
    any. The factor of masked tokens is 1. As a factor of the advantage it scales the loss
    and leaves its denominators.

    factors, role, old_logprobs and rollout_logprobs have one element per token, and
    seq_offsets must be set; factors may be old_logprobs or rollout_logprobs. A wrong shape
    or option, or a log-probability of a response token that is not finite, is an error, and
    factors is not written.

    level: "token", "sequence" or "geometric"
    mask: a ratio outside [low, high] becomes 0 (IcePop); False: the nearer bound (TIS)
    low: 0 <= low <= high; low finite, 0 for no lower bound; high above 0, +Inf for no upper
    bound
    high: 0 <= low <= high; low finite, 0 for no lower bound; high above 0, +Inf for no
    upper bound
    normalize: divide by the mean of the factors
    out: the array for factors, float32.

    An error is an InputError, which is a ValueError.
    """
    options = _generated.RolloutCorrectionOptions(
        choice("level", level, _generated.LEVELS),
        bool(mask),
        number("low", low),
        number("high", high),
        bool(normalize),
    )
    return run_scheme("rollout_correction", batch, options, ("seq_offsets", "old_logprobs", "rollout_logprobs"), out)


def reject(
    batch: Batch,
    *,
    statistic: str = "token_k1",
    low: float = 0.5,
    high: float = 2,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns weights: 1 at the response tokens that are kept, to 0 elsewhere: those where the
    engine that sampled is too far from the old policy leave numerator and denominator of
    the loss (verl's rollout rejection). With v the statistic of the token or of its
    trajectory, and z kept between -20 and 20 in it, a token is kept if

        k1:     log low <= v <= log high
        k2, k3: v <= high

    To ask for several, multiply their weights.

    weights, role, old_logprobs and rollout_logprobs have one element per token, and
    seq_offsets must be set; weights may be old_logprobs or rollout_logprobs. A wrong shape
    or option, or a log-probability of a response token that is not finite, is an error, and
    weights is not written.

    statistic: "token_k1", "token_k2", "token_k3", "seq_sum_k1", "seq_sum_k2", "seq_sum_k3",
    "seq_mean_k1", "seq_mean_k2", "seq_mean_k3", "seq_max_k2" or "seq_max_k3"
    low: k1: the least e^statistic that is kept, above 0; k2 and k3 do not read it
    high: k1: the largest e^statistic, at least low; k2, k3: the largest statistic; +Inf: no
    bound
    out: the array for weights, float32.

    An error is an InputError, which is a ValueError.
    """
    options = _generated.RejectOptions(
        choice("statistic", statistic, _generated.STATISTICS),
        number("low", low),
        number("high", high),
    )
    return run_scheme("reject", batch, options, ("seq_offsets", "old_logprobs", "rollout_logprobs"), out)


def off_policy_mask(
    batch: Batch,
    *,
    delta: float,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns factors of the advantages: 0 at the tokens whose advantage is negative and whose
    trajectory the policy has left, to 1 elsewhere (DeepSeek-V3.2; TRL and slime have it
    too):

        0 where advantages[t] < 0 and mean over the trajectory of old_logprobs - logprobs > delta

    with the mean over response tokens, in nats. The sources have no default for delta.

    factors, role, advantages, old_logprobs and logprobs have one element per token, and
    seq_offsets must be set; factors may be any of the three float arrays. A wrong shape, a
    delta that is not finite, or a value of a response token that is not finite, is an
    error, and factors is not written.

    delta: nats, finite; there is no default
    out: the array for factors, float32.

    An error is an InputError, which is a ValueError.
    """
    options = _generated.OffPolicyMaskOptions(
        number("delta", delta),
    )
    return run_scheme("off_policy_mask", batch, options, ("seq_offsets", "advantages", "old_logprobs", "logprobs"), out)


def fipo(
    batch: Batch,
    *,
    half_life: float = 32,
    filter: float = 10,
    clip: float = 0.2,
    high_only: bool = True,
    safety: float = 4,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns factors[t] by what the policy has done to the tokens after t since the rollout:
    above 1 where they have become likelier (future-KL influenced policy optimization, arXiv
    2603.19835). With d_t = logprobs[t] - old_logprobs[t], which is 0 at masked tokens and
    where e^d_t is above filter, backwards from the trajectory's last response token,

        K_t = d_t + 2^(-1/half_life) K_t+1    f_t = clamp(e^K_t, 1, 1 + clip)

    or clamp(e^K_t, 1 - clip, 1 + clip) without high_only. Where A_t < 0 and e^d_t is above
    safety, f_t is then clamped to [0.8, 1]. Masked tokens count as distance, as every other
    position. K is in float64, and its exponential is taken of -20 to 20. Masked tokens get
    1.

    The factors multiply the advantages before the loss, to whose derivative they are
    constants. They follow the current policy: compute them for every minibatch. On the
    first pass over a rollout logprobs are old_logprobs, and all factors are 1.

    factors, role, logprobs, old_logprobs and advantages have one element per token, and
    seq_offsets must be set; factors may be any of those three float arrays. A wrong shape
    or option, or a value of a response token that is not finite, is an error, and factors
    is not written.

    half_life: tokens after which a later token counts half, above 0
    filter: a ratio above this does not count for the tokens before it, above 0; infinite:
    all count
    clip: factors are at most 1 + clip; above 0
    high_only: factors are at least 1, and not 1 - clip
    safety: a ratio above which a token with A < 0 has a factor from 0.8 to 1, above 0;
    infinite: none
    out: the array for factors, float32.

    An error is an InputError, which is a ValueError.
    """
    options = _generated.FIPOOptions(
        number("half_life", half_life),
        number("filter", filter),
        number("clip", clip),
        bool(high_only),
        number("safety", safety),
    )
    return run_scheme("fipo", batch, options, ("seq_offsets", "advantages", "old_logprobs", "logprobs"), out)


def rlsd(
    batch: Batch,
    *,
    lambda_: float = 0.5,
    clip: float = 0.2,
    negative_only: bool = False,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns factors[t] by what a teacher thinks of token t, that is, the same model with the
    answer in its prompt: above 1 where the teacher agrees with the sign of the advantage
    (self-distilled RLVR, arXiv 2604.03128):

        w_t = e^(sgn(A_t) (teacher_logprobs[t] - old_logprobs[t]))
        f_t = (1 - lambda_) + lambda_ clamp(w_t, 1 - clip, 1 + clip)

    The factors are constants to the derivative of the loss, and at least 0. A trajectory
    whose teacher_logprobs are NaN at every response token has no teacher: its factors are
    1. Masked tokens get 1.

    factors, role, old_logprobs, advantages and teacher_logprobs have one element per token,
    and seq_offsets must be set; factors may be any of those three float arrays. A wrong
    shape or option, or another value of a response token that is not finite, is an error,
    and factors is not written.

    lambda_: how much of the factor is the teacher's, above 0 and at most 1
    clip: the teacher's part is from 1 - clip to 1 + clip; in (0, 1]
    negative_only: where A > 0, the factor is 1
    out: the array for factors, float32.

    An error is an InputError, which is a ValueError.
    """
    options = _generated.RLSDOptions(
        number("lambda_", lambda_),
        number("clip", clip),
        bool(negative_only),
    )
    return run_scheme("rlsd", batch, options, ("seq_offsets", "advantages", "old_logprobs", "teacher_logprobs"), out)



class Entry(NamedTuple):
    """One name of the catalogue of schemes."""

    name: str
    """in reweight.scheme: "reinforce++\""""
    synonyms: Tuple[str, ...]
    """names of trainers, which reweight.scheme takes too"""
    title: str
    """in papers: "REINFORCE++\""""
    doc: str
    """what it is, in one line"""
    source: str
    """the number in arXiv, or the trainer"""
    formula: str
    """what a token gets, in Markdown"""
    kind: str
    """several, reward, advantage, factor, weight, loss or critic"""
    of: Tuple[str, ...]
    """the names that it stands for, if several"""
    function: str
    """of this package, which computes it; "" if several"""
    defaults: Dict[str, Any]
    """the options of the function"""
    reads: Tuple[str, ...]
    """the arrays that it reads with these, besides role; "a|b" is either of two"""
    single_entropies: bool
    """it reads the entropies of single tokens, and not means of them only"""
    one: str
    """why a step has one entry with this; "" if it may have several"""
    without: Dict[str, str]
    """the kinds that a step with it cannot have, and why"""
    no_default: str
    """the option that has no default, and has to be set; "" if all have one"""


KINDS = ("several", "reward", "advantage", "factor", "weight", "loss", "critic")  # in the order of a step

ENTRIES = (
    Entry(
        "uniform", ("vanilla", "ppo", "bnpo", "token_mean"), "PPO",
        "the clipped surrogate, averaged over tokens",
        "1707.06347",
        "max(-Aρ, -A clip(ρ, 1-lo, 1+hi)); where A < 0 at most -A `dual_clip`",
        "loss", (), "loss",
        {"policy": _policies.PPO(clip_low=0.2, clip_high=0.28, dual_clip=3.0), "aggregation": "token_mean"},
        ("advantages", "logprobs", "old_logprobs"),
        False, "both are a loss, and a step has one", {}, "",
    ),
    Entry(
        "actfocus", (), "ActFocus",
        "little for reasoning tokens, for action tokens by their energy",
        "2605.14558",
        "α; 1 + β sigmoid((E - μ)/σ) for action tokens",
        "weight", (), "actfocus",
        {"alpha": 0.1, "beta": 0.5, "eps": 1e-08, "signal": "energy"},
        ("ref_energy",),
        False, "", {}, "",
    ),
    Entry(
        "aem", (), "AEM",
        "by the entropy of the whole response",
        "2605.00425",
        "e^(-λ x)/mean; x is H̄_s scaled to [0, 1] over its group, or `scope`, and the mean is over the spans there; 1 where max - min < `guard`",
        "factor", (), "aem",
        {"lambda_": 1, "guard": 0.1, "scope": "group"},
        ("seq_offsets", "group_ids", "span_ids", "entropy"),
        False, "", {}, "",
    ),
    Entry(
        "grpo", ("grpo_vectorized",), "GRPO",
        "GRPO's advantages, and the mean over trajectories of means over tokens",
        "verl",
        "",
        "several", ("group_norm", "seq_mean_token_mean"), "",
        {},
        (),
        False, "", {}, "",
    ),
    Entry(
        "dr_grpo", (), "Dr. GRPO",
        "no standard deviation, and sums over one length",
        "2503.20783",
        "",
        "several", ("group_mean", "seq_mean_token_sum_norm"), "",
        {},
        (),
        False, "", {}, "",
    ),
    Entry(
        "dapo", (), "DAPO",
        "the overlong penalty, and no groups of equal rewards",
        "2503.14476",
        "",
        "several", ("overlong", "group_filter", "uniform"), "",
        {},
        (),
        False, "", {}, "",
    ),
    Entry(
        "gpg", (), "GPG",
        "the policy gradient without a ratio, and advantages for it",
        "2504.02546",
        "",
        "several", ("gpg_advantages", "pg"), "",
        {},
        (),
        False, "", {}, "",
    ),
    Entry(
        "group_norm", (), "GRPO",
        "the reward among the rewards of its group",
        "verl",
        "(r - mean_g)/(std_g + 1e-6)",
        "advantage", (), "grpo",
        {"eps": 1e-06, "divide_by_std": True},
        ("seq_offsets", "group_ids", "rewards"),
        False, "both make the advantages, and a step has them from one", {}, "",
    ),
    Entry(
        "group_mean", (), "Dr. GRPO",
        "the reward less the mean of its group",
        "2503.20783",
        "r - mean_g",
        "advantage", (), "grpo",
        {"divide_by_std": False},
        ("seq_offsets", "group_ids", "rewards"),
        False, "both make the advantages, and a step has them from one", {}, "",
    ),
    Entry(
        "overlong", ("overlong_buffer",), "overlong penalty",
        "a penalty for responses that are too long",
        "2503.14476",
        "max(-P, min(0, -P (n_q - (Lmax - Lbuf))/Lbuf)), to be added to r; P, Lmax and Lbuf are `penalty`, `maximum` and `buffer`",
        "reward", (), "overlong_penalty",
        {"maximum": 20480, "buffer": 4096, "penalty": 1},
        ("seq_offsets",),
        False, "", {}, "",
    ),
    Entry(
        "kl_rewards", ("use_kl_in_reward",), "KL in the reward",
        "per token: the trajectory's, less the KL from the reference",
        "verl",
        "r_t = [last response token] r - `kl_coef` k_t of l_old against l_ref",
        "reward", (), "kl_rewards",
        {"kl": "k1", "kl_coef": 0.001},
        ("seq_offsets", "rewards", "old_logprobs", "ref_logprobs"),
        False, "", {}, "",
    ),
    Entry(
        "group_filter", ("filter_groups",), "group filter",
        "0 for groups of equal rewards",
        "2503.14476",
        "1 if the rewards of the group differ, or it has one member",
        "weight", (), "group_filter",
        {},
        ("seq_offsets", "group_ids", "rewards"),
        False, "", {}, "",
    ),
    Entry(
        "rloo", ("rloo_vectorized",), "RLOO",
        "the reward less the mean of the others in its group",
        "2402.14740",
        "n/(n-1) (r - mean_g)",
        "advantage", (), "rloo",
        {},
        ("seq_offsets", "group_ids", "rewards"),
        False, "both make the advantages, and a step has them from one", {}, "",
    ),
    Entry(
        "reinforce++", ("reinforce_plus_plus", "reinforce"), "REINFORCE++",
        "discounted sums of token rewards, whitened",
        "2501.03262",
        "G_t = r_t + γ G_next, whitened over the batch",
        "advantage", (), "reinforce_plus_plus",
        {"gamma": 1},
        ("seq_offsets", "token_rewards|rewards"),
        False, "both make the advantages, and a step has them from one", {}, "",
    ),
    Entry(
        "reinforce++_baseline", ("reinforce_plus_plus_baseline", "reinforce_baseline"), "REINFORCE++-baseline",
        "the reward less the mean of its group, whitened",
        "2501.03262",
        "r - mean_g on every token, whitened over the batch",
        "advantage", (), "reinforce_plus_plus_baseline",
        {},
        ("seq_offsets", "group_ids", "rewards"),
        False, "both make the advantages, and a step has them from one", {}, "",
    ),
    Entry(
        "otb", ("optimal_token_baseline",), "OTB",
        "rewards to come, less a baseline of each position",
        "verl",
        "G_t - ΣGW/(ΣW + 1e-8) over the trajectories of g with a response token at the position of t; G_t = r_t + G_next, W_t = W_before + 1 - 2 e^l_old + Σp²; with `zero_tail` G_t alone where the longest of g has no other, see below",
        "advantage", (), "otb",
        {"turns": False, "zero_tail": True},
        ("seq_offsets", "group_ids", "old_logprobs", "sum_sq_probs", "token_rewards|rewards"),
        False, "both make the advantages, and a step has them from one", {}, "",
    ),
    Entry(
        "otb_turns", ("tir_optimal_token_baseline",), "OTB over turns",
        "as OTB, with positions that count response tokens alone",
        "verl",
        "as OTB, the position being the place among the response tokens of the trajectory",
        "advantage", (), "otb",
        {"turns": True, "zero_tail": True},
        ("seq_offsets", "group_ids", "old_logprobs", "sum_sq_probs", "token_rewards|rewards"),
        False, "both make the advantages, and a step has them from one", {}, "",
    ),
    Entry(
        "gigpo", (), "GiGPO",
        "groups of trajectories, and of spans that begin in one state",
        "2505.10978",
        "E_q + ω B_s: E_q = r - mean_g; B_s is G_s = r_s + γ G_next less its mean over the spans of g with the same anchor, 0 if there is no other",
        "advantage", (), "gigpo",
        {"gamma": 0.95, "omega": 1, "divide_by_std": False, "per_step": False},
        ("seq_offsets", "group_ids", "span_ids", "rewards", "anchors", "span_rewards"),
        False, "both make the advantages, and a step has them from one", {}, "",
    ),
    Entry(
        "turn_returns", (), "returns of turns",
        "rewards of turns to come, less the others' of its group",
        "reweight",
        "G_k less the mean of G_min(k, K_p) over the others p of g; G_k = r_k + γ G_next over the turns (spans), G_K = r_K + r, K_p the last turn of p",
        "advantage", (), "turn_returns",
        {"gamma": 1, "divide_by_std": False},
        ("seq_offsets", "group_ids", "span_ids", "rewards", "span_rewards"),
        False, "both make the advantages, and a step has them from one", {}, "",
    ),
    Entry(
        "mt_grpo", (), "MT-GRPO",
        "rewards of turns less those of the same turn, and outcomes",
        "2505.11821",
        "B_k + λ E, in the last turn E; B_k is (r_k - mean)/(std + 1e-6) over the k-th turns (spans) of g, E the same of r + r_K over g; see below",
        "advantage", (), "mt_grpo",
        {"lambda_": 0.5, "divide_by_std": True},
        ("seq_offsets", "group_ids", "span_ids", "rewards", "span_rewards"),
        False, "both make the advantages, and a step has them from one", {}, "",
    ),
    Entry(
        "gtpo", (), "GTPO",
        "rewards shaped by the entropy of single tokens",
        "2508.04349",
        "as GRPO-S, with H of the j-th response token for H̄_q",
        "advantage", (), "gtpo",
        {"base": 1, "bonus": 0.1, "threshold": 0.5, "entropy_low": 0, "entropy_high": inf, "normalization": "separate", "scope": "group"},
        ("seq_offsets", "group_ids", "rewards", "entropy"),
        True, "both make the advantages, and a step has them from one", {}, "",
    ),
    Entry(
        "grpo_s", (), "GRPO-S",
        "rewards shaped by the mean entropy of trajectories",
        "2508.04349",
        "successes: u = `base` r + `bonus` n H̄_q/ΣH̄; failures: u = -`base` - `bonus` n v/Σv, v = 1/H̄_q; A is u normalised, see below",
        "advantage", (), "grpo_s",
        {"base": 1, "bonus": 0.1, "threshold": 0.5, "entropy_low": 0, "entropy_high": inf, "normalization": "joint", "scope": "group"},
        ("seq_offsets", "group_ids", "rewards", "entropy"),
        False, "both make the advantages, and a step has them from one", {}, "",
    ),
    Entry(
        "opo", (), "OPO",
        "the reward less a mean for which long responses count more",
        "2505.23585",
        "r - Σ_g n_q r/Σ_g n_q",
        "advantage", (), "opo",
        {},
        ("seq_offsets", "group_ids", "rewards"),
        False, "both make the advantages, and a step has them from one", {}, "",
    ),
    Entry(
        "pass_at_k", ("grpo_passk",), "pass@k",
        "the best of each group, by how far it is above the second",
        "2503.19595",
        "(r - second highest of g)/(std_g + 1e-6) for the highest of g, 0 for others",
        "advantage", (), "pass_at_k",
        {"eps": 1e-06, "divide_by_std": True},
        ("seq_offsets", "group_ids", "rewards"),
        False, "both make the advantages, and a step has them from one", {}, "",
    ),
    Entry(
        "gdpo", (), "GDPO",
        "the parts of the reward within their group, added up, whitened",
        "2601.05242",
        "Σ_k w_k (r_k - mean_gk)/(std_gk + 1e-6) over the parts r_k of the reward, on every token, whitened over the batch; w are `reward_weights`, or 1",
        "advantage", (), "gdpo",
        {"eps": 1e-06, "divide_by_std": True, "reward_weights": None},
        ("seq_offsets", "group_ids", "reward_parts"),
        False, "both make the advantages, and a step has them from one", {"reward": "the advantages are made from the parts of the reward, to which nothing is added"}, "",
    ),
    Entry(
        "gpg_advantages", (), "GPG",
        "the reward less the mean of its group, more where few have one",
        "2504.02546",
        "(r - mean_g) S/(number of trajectories of the batch with r other than 0)",
        "advantage", (), "gpg_advantages",
        {},
        ("seq_offsets", "group_ids", "rewards"),
        False, "both make the advantages, and a step has them from one", {}, "",
    ),
    Entry(
        "gae", (), "GAE",
        "the advantages of PPO with a critic, whitened",
        "1506.02438",
        "δ + γλ A_next, δ = r_t + γ v_next - v, whitened over the batch",
        "advantage", (), "gae",
        {"gamma": 1, "lambda_": 1},
        ("seq_offsets", "values", "token_rewards|rewards"),
        False, "both make the advantages, and a step has them from one", {}, "",
    ),
    Entry(
        "empg", (), "EMPG",
        "others', by the entropy of spans, with a bonus for the next",
        "2509.09265",
        "M less the mean over spans of M's mean in each, M = A g_s + ζ f_next; g_s = e^(-k x)/mean, f = e^(-k' x), k and k' are `k` and `k_future`; x is H̄_s scaled to [0, 1] over the batch, and the mean is over its spans",
        "advantage", (), "empg",
        {"k": 1, "k_future": 1, "zeta": 0.05},
        ("seq_offsets", "span_ids", "advantages", "entropy"),
        False, "", {}, "",
    ),
    Entry(
        "entropy_mask", (), "high-entropy tokens",
        "the fifth of the tokens with the highest entropies",
        "2506.01939",
        "1 where H is at least the K-th largest, K = ⌊`rho` n + 0.9999⌋",
        "weight", (), "entropy_mask",
        {"rho": 0.2},
        ("entropy",),
        True, "", {}, "",
    ),
    Entry(
        "clip_b", (), "Clip_B",
        "0 for advantages below 0 where they would sharpen the policy most",
        "2602.03392",
        "0 where A < 0 and S is below its mean over the batch by more than `mu` standard deviations, else 1; S = e^l_old (H + l_old)",
        "weight", (), "clip_b",
        {"mu": 2.5},
        ("advantages", "old_logprobs", "entropy"),
        True, "", {}, "",
    ),
    Entry(
        "clip_v", (), "Clip_V",
        "0 for the few advantages below 0 that lower the entropy most",
        "2602.03392",
        "0 where A < 0 and D is above `mu` standard deviations over the batch, else 1; D = Σp²(H + log p) - e^l_old (H + l_old), Σ over the vocabulary; at most max(1, ⌊`max_share` n⌋) tokens have 0, of the largest D",
        "weight", (), "clip_v",
        {"mu": 8.5, "max_share": 0.0001},
        ("advantages", "old_logprobs", "entropy", "entropy_drop"),
        True, "", {}, "",
    ),
    Entry(
        "gspo", (), "GSPO",
        "the ratio of the sequence",
        "2507.18071",
        "as PPO with s = e^(mean_q(l - l_old)) for ρ, the mean being at most 10",
        "loss", (), "loss",
        {"policy": _policies.GSPO(clip_low=0.0003, clip_high=0.0004, dual_clip=0.0, sequence="trajectory"), "aggregation": "seq_mean_token_mean"},
        ("advantages", "logprobs", "old_logprobs", "seq_offsets"),
        False, "both are a loss, and a step has one", {}, "",
    ),
    Entry(
        "luspo", (), "LUSPO",
        "GSPO with sums over tokens",
        "2602.05261",
        "as GSPO",
        "loss", (), "loss",
        {"policy": _policies.GSPO(clip_low=0.0003, clip_high=0.0004, dual_clip=0.0, sequence="trajectory"), "aggregation": "seq_mean_token_sum"},
        ("advantages", "logprobs", "old_logprobs", "seq_offsets"),
        False, "both are a loss, and a step has one", {}, "",
    ),
    Entry(
        "grpo_s_ratio", (), "GRPO-S",
        "the mean ratio of the sequence, the other half of GRPO-S",
        "2508.04349",
        "as PPO with s = mean_q ρ for ρ",
        "loss", (), "loss",
        {"policy": _policies.GRPOS(clip_low=0.2, clip_high=0.28, dual_clip=0.0, sequence="trajectory"), "aggregation": "seq_mean_token_mean"},
        ("advantages", "logprobs", "old_logprobs", "seq_offsets"),
        False, "both are a loss, and a step has one", {}, "",
    ),
    Entry(
        "cispo", (), "CISPO",
        "a clipped ratio that is a constant",
        "2506.13585",
        "-A sg[clip(ρ, 1-lo, 1+hi)] l",
        "loss", (), "loss",
        {"policy": _policies.CISPO(clip_low=1.0, clip_high=4.0), "aggregation": "token_mean"},
        ("advantages", "logprobs", "old_logprobs"),
        False, "both are a loss, and a step has one", {}, "",
    ),
    Entry(
        "sapo", (), "SAPO",
        "a soft gate in place of the clip",
        "2511.20347",
        "-A (4/τ) sigmoid(τ (ρ - 1)), τ is `tau_pos` where A > 0 and `tau_neg` elsewhere",
        "loss", (), "loss",
        {"policy": _policies.SAPO(tau_pos=1.0, tau_neg=1.05), "aggregation": "seq_mean_token_mean"},
        ("advantages", "logprobs", "old_logprobs", "seq_offsets"),
        False, "both are a loss, and a step has one", {}, "",
    ),
    Entry(
        "pg", (), "PG",
        "the policy gradient without a ratio",
        "2504.02546",
        "-A l",
        "loss", (), "loss",
        {"policy": _policies.PG(), "aggregation": "token_mean"},
        ("advantages", "logprobs", "old_logprobs"),
        False, "both are a loss, and a step has one", {}, "",
    ),
    Entry(
        "dppo_tv", (), "DPPO-TV",
        "tokens whose probability has moved too far are left out",
        "2602.04879",
        "-A sg[min(ρ, `ratio_cap`)] l; 0 where A > 0 and e^l - e^l_old > hi, or A <= 0 and e^l - e^l_old < -lo",
        "loss", (), "loss",
        {"policy": _policies.DPPOTV(clip_low=0.2, clip_high=0.2, ratio_cap=20.0), "aggregation": "token_mean"},
        ("advantages", "logprobs", "old_logprobs"),
        False, "both are a loss, and a step has one", {}, "",
    ),
    Entry(
        "vespo", (), "VESPO",
        "a gate on the ratio of the trajectory",
        "2602.10693",
        "-A sg[φ] l, φ = e^(b + k y - b e^y), y = Σ_q (l - l_old), kept between log 1e-8 and 20; k and b are `power_pos` and `decay_pos`, where A < 0 `power_neg` and `decay_neg`",
        "loss", (), "loss",
        {"policy": _policies.VESPO(power_pos=2.0, decay_pos=3.0, power_neg=3.0, decay_neg=2.0), "aggregation": "token_mean"},
        ("advantages", "logprobs", "old_logprobs", "seq_offsets"),
        False, "both are a loss, and a step has one", {}, "",
    ),
    Entry(
        "dppo_kl", (), "DPPO-KL",
        "tokens whose divergence has grown too far are left out",
        "2602.04879",
        "as DPPO-TV; 0 where A > 0, l > l_old and kl > hi, or A <= 0, l < l_old and kl > lo; kl = q log(q/p) + (1-q) log((1-q + 1e-8)/(1-p + 1e-8)), q = e^l_old, p = e^l",
        "loss", (), "loss",
        {"policy": _policies.DPPOKL(clip_low=0.05, clip_high=0.05, ratio_cap=20.0), "aggregation": "token_mean"},
        ("advantages", "logprobs", "old_logprobs"),
        False, "both are a loss, and a step has one", {}, "",
    ),
    Entry(
        "dro", (), "DRO",
        "the policy gradient with a quadratic penalty",
        "verl",
        "-(A l - `beta` (l - l_old)²/2)",
        "loss", (), "loss",
        {"aggregation": "token_mean"},
        ("advantages", "logprobs", "old_logprobs"),
        False, "both are a loss, and a step has one", {"factor": "dro has no factors of tokens", "weight": "dro has no weights of tokens"}, "policy",
    ),
    Entry(
        "gmpo", ("geo_mean",), "GMPO",
        "the geometric mean of the trajectory's ratios",
        "2507.20673",
        "of a trajectory -Ā_q e^(m̄_q), bars over A and m being sums divided by n_q + 1e-8, m̄ at most 20; m = l - l_old, at most hi where A > 0, at least -lo where A < 0, and 0 where A = 0",
        "loss", (), "loss",
        {"policy": _policies.GMPO(clip_low=0.4, clip_high=0.4), "aggregation": "token_mean"},
        ("advantages", "logprobs", "old_logprobs", "seq_offsets"),
        False, "both are a loss, and a step has one", {"factor": "gmpo has no factors of tokens", "weight": "gmpo has no weights of tokens"}, "",
    ),
    Entry(
        "clip_cov", (), "Clip-Cov",
        "some tokens of high covariance are left out",
        "2505.22617",
        "as PPO, and 0 for max(1, ⌊`cov_share` n⌋) of the tokens that PPO does not clip and c is between `cov_low` and `cov_high`, drawn by `seed`; c = (A - mean A)(l - mean l) over the n tokens of the batch",
        "loss", (), "loss",
        {"policy": _policies.ClipCov(clip_low=0.2, clip_high=0.2, cov_share=0.0002, cov_low=1.0, cov_high=5.0, seed=0), "aggregation": "token_mean"},
        ("advantages", "logprobs", "old_logprobs"),
        False, "both are a loss, and a step has one", {"factor": "clip_cov has no factors of tokens", "weight": "clip_cov has no weights of tokens"}, "",
    ),
    Entry(
        "kl_cov", (), "KL-Cov",
        "tokens of the highest covariance have a penalty",
        "2505.22617",
        "-Aρ, and + `cov_coef` abs(l - l_old) for the max(1, ⌊`cov_share` n⌋) tokens of largest c",
        "loss", (), "loss",
        {"policy": _policies.KLCov(cov_share=0.0002, cov_coef=1.0), "aggregation": "token_mean"},
        ("advantages", "logprobs", "old_logprobs"),
        False, "both are a loss, and a step has one", {"factor": "kl_cov has no factors of tokens", "weight": "kl_cov has no weights of tokens"}, "",
    ),
    Entry(
        "seq_mean_token_mean", (), "PPO",
        "PPO, the mean over trajectories of means over tokens",
        "verl",
        "as PPO",
        "loss", (), "loss",
        {"policy": _policies.PPO(clip_low=0.2, clip_high=0.28, dual_clip=3.0), "aggregation": "seq_mean_token_mean"},
        ("advantages", "logprobs", "old_logprobs", "seq_offsets"),
        False, "both are a loss, and a step has one", {}, "",
    ),
    Entry(
        "seq_mean_token_sum", (), "PPO",
        "PPO, the mean over trajectories of sums over tokens",
        "verl",
        "as PPO",
        "loss", (), "loss",
        {"policy": _policies.PPO(clip_low=0.2, clip_high=0.28, dual_clip=3.0), "aggregation": "seq_mean_token_sum"},
        ("advantages", "logprobs", "old_logprobs", "seq_offsets"),
        False, "both are a loss, and a step has one", {}, "",
    ),
    Entry(
        "seq_mean_token_sum_norm", (), "PPO",
        "PPO, sums over tokens, divided by one length",
        "verl",
        "as PPO",
        "loss", (), "loss",
        {"policy": _policies.PPO(clip_low=0.2, clip_high=0.28, dual_clip=3.0), "aggregation": "seq_mean_token_sum_norm"},
        ("advantages", "logprobs", "old_logprobs", "seq_offsets"),
        False, "both are a loss, and a step has one", {}, "",
    ),
    Entry(
        "tis", ("correction",), "truncated importance sampling",
        "the truncated ratio to the engine that sampled",
        "verl",
        "clamp(u, `low`, `high`), u = e^(l_old - l_rollout)",
        "factor", (), "rollout_correction",
        {"level": "token", "mask": False, "low": 0, "high": 2, "normalize": False},
        ("seq_offsets", "old_logprobs", "rollout_logprobs"),
        False, "both are the ratio to the engine, which would count twice", {}, "",
    ),
    Entry(
        "icepop", (), "IcePop",
        "the ratio to the engine that sampled, 0 outside its bounds",
        "verl",
        "u if `low` <= u <= `high`, else 0",
        "factor", (), "rollout_correction",
        {"level": "token", "mask": True, "low": 0.5, "high": 5, "normalize": False},
        ("seq_offsets", "old_logprobs", "rollout_logprobs"),
        False, "both are the ratio to the engine, which would count twice", {}, "",
    ),
    Entry(
        "reject", (), "rejection",
        "0 for tokens whose ratio to the engine is outside its bounds",
        "verl",
        "1 if `low` <= e^(l_rollout - l_old) <= `high`",
        "weight", (), "reject",
        {"statistic": "token_k1", "low": 0.5, "high": 2},
        ("seq_offsets", "old_logprobs", "rollout_logprobs"),
        False, "", {}, "",
    ),
    Entry(
        "off_policy_mask", ("opsm",), "off-policy mask",
        "0 for advantages below 0 where the trajectory's policy has moved",
        "DeepSeek-V3.2",
        "0 where A < 0 and mean_q(l_old - l) > δ, else 1",
        "factor", (), "off_policy_mask",
        {},
        ("seq_offsets", "advantages", "old_logprobs", "logprobs"),
        False, "", {}, "delta",
    ),
    Entry(
        "fipo", (), "FIPO",
        "by how far the policy has moved at the tokens after",
        "2603.19835",
        "clamp(e^K, 1, 1 + `clip`), K_t = d_t + 2^(-1/`half_life`) K_next, d = l - l_old, 0 where e^d > `filter`; from 0.8 to 1 where A < 0 and e^d > `safety`; see below",
        "factor", (), "fipo",
        {"half_life": 32, "filter": 10, "clip": 0.2, "high_only": True, "safety": 4},
        ("seq_offsets", "advantages", "old_logprobs", "logprobs"),
        False, "", {}, "",
    ),
    Entry(
        "rlsd", (), "RLSD",
        "by what a teacher that knows the answer thinks of the token",
        "2604.03128",
        "1 - λ + λ clamp(e^(sgn(A)(l_teacher - l_old)), 1 - `clip`, 1 + `clip`)",
        "factor", (), "rlsd",
        {"lambda_": 0.5, "clip": 0.2, "negative_only": False},
        ("seq_offsets", "advantages", "old_logprobs", "teacher_logprobs"),
        False, "", {}, "",
    ),
    Entry(
        "value_loss", (), "value loss",
        "the clipped loss of the critic, beside the loss of the policy",
        "verl",
        "max((v - G)², (clamp(v, v_old ± `clip`) - G)²)/2",
        "critic", (), "value_loss",
        {"clip": 0.5, "aggregation": "token_mean", "norm_length": 0},
        ("new_values", "values", "returns"),
        False, "", {}, "",
    ),
)
"""The catalogue, in the order of reports."""
