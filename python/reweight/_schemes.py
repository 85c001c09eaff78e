"""The schemes on batches of rollouts: ActFocus, AEM, advantages and the loss."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import _generated
from ._arrays import F32, Array, ArrayLike, as_numpy, check, check_apart, made_like, output, view
from ._backend import Backend, backend
from ._errors import InputError, choice, described, integer, located, number
from ._generated import (
    AGGREGATIONS,
    DEFAULT_ACTFOCUS,
    DEFAULT_AEM,
    DEFAULT_GAE,
    DEFAULT_GRPO,
    DEFAULT_KL_REWARDS,
    DEFAULT_LOSS,
    DEFAULT_VALUE_LOSS,
    KLS,
    NAMES,
    POLICIES,
    SCOPES,
    SEQUENCES,
    SIGNALS,
)
from ._library import cpu
from ._scalars import Scalars
from .batch import Batch, Bound, bind, parts_of


class ActFocusResult(NamedTuple):
    """The weights of actfocus, and what they were made of."""

    weights: Any
    """float32, one element per token"""
    actions: Any
    """n, action tokens"""
    mean: Any
    """of the signal over action tokens, nats; 0 if there are none"""
    sigma: Any
    """the same"""


def actfocus(
    batch: Batch,
    *,
    alpha: float = DEFAULT_ACTFOCUS.alpha,
    beta: float = DEFAULT_ACTFOCUS.beta,
    eps: float = DEFAULT_ACTFOCUS.eps,
    signal: str = SIGNALS[DEFAULT_ACTFOCUS.signal],
    out: Optional[ArrayLike] = None,
) -> ActFocusResult:
    """Returns the weight of each token by its role (arXiv 2605.14558): alpha for reasoning
    tokens, 0 for masked ones, and for action tokens

        w_t = 1 + beta sigmoid((E_t - mu) / sigma)
        mu = sum E / n    sigma = sqrt(sum (E - mu)^2 / n + eps)

    with the sums over the n action tokens of the batch.

    alpha: weight of reasoning tokens, in [0, 1].
    beta: strength of the action tokens' signal, at least 0. alpha or beta is not 0.
    eps: inside the root of sigma, at least 0.
    signal: what stands for E, in nats: "energy" (ref_energy), "ref_entropy", "surprisal"
        (-old_logprobs) or "log_ratio" (old_logprobs - ref_logprobs). The paper finds the
        energy best and compares it with the others.
    out: the array for the weights, float32. It may be the array of the signal.

    Reads role and the arrays of the signal. alpha 1 and beta 0 give weights of exactly 1.
    Raises InputError, a ValueError, for a wrong shape or option, and for a signal of an
    action token that is not finite; nothing is written then.
    """
    options = _actfocus_options(alpha, beta, eps, signal)
    b = bind(batch, *_generated.SIGNAL_ARRAYS[signal])
    weights = _output(out, b)
    result = Scalars(_generated.ActFocusResult, b.role)
    _run(b, lambda run: run.actfocus(result.address, weights.pointer, b.struct, options))
    return ActFocusResult(weights.owner, *result.values())


def _actfocus_options(alpha: float, beta: float, eps: float, signal: str) -> _generated.ActFocusOptions:
    return _generated.ActFocusOptions(
        number("alpha", alpha), number("beta", beta), number("eps", eps), choice("signal", signal, SIGNALS)
    )


def aem(
    batch: Batch,
    *,
    lambda_: float = DEFAULT_AEM.lambda_,
    guard: float = DEFAULT_AEM.guard,
    scope: str = SCOPES[DEFAULT_AEM.scope],
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns the factor that the advantage of each token is to be multiplied by (arXiv
    2605.00425). With Hbar_s the mean entropy of the response tokens of span s, and
    minimum, maximum and mean over the spans of s's scope:

        Htil_s = (Hbar_s - min) / (max - min)
        factor = exp(-lambda Htil_s) / mean exp(-lambda Htil)

    The factor is 1 for tokens outside spans and masked ones, and in scopes where max - min
    is below guard (or so small that lambda over it is infinite). The mean over the spans
    of a scope is 1, and every factor is positive: no advantage changes its sign.

    lambda_: strength, 0 to 80.
    guard: a scope whose span entropies differ by less, in nats, is left alone; at least 0.
        lambda_ or guard is not 0.
    scope: the spans that are compared with each other: those of all trajectories of a
        "group", of a "trajectory", or of the "batch".
    out: the array for the factors, float32. It may be entropy.

    Reads role, seq_offsets, span_ids, entropy, and group_ids for the scope "group". A span
    needs at least one response token. Raises InputError, a ValueError, for wrong shapes,
    spans or options, and for an entropy in a span that is not finite or above 1e30;
    nothing is written then.
    """
    options = _generated.AEMOptions(
        number("lambda_", lambda_), number("guard", guard), choice("scope", scope, SCOPES)
    )
    names = ["seq_offsets", "span_ids", "entropy"] + (["group_ids"] if scope == "group" else [])
    b = bind(batch, *names)
    factors = _output(out, b)
    _run(b, lambda run: run.aem(factors.pointer, b.struct, options))
    return factors.owner


def grpo(
    batch: Batch,
    *,
    eps: float = DEFAULT_GRPO.eps,
    divide_by_std: bool = bool(DEFAULT_GRPO.divide_by_std),
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns the advantage of each token: for response tokens the reward of the trajectory
    relative to its group (verl, compute_grpo_outcome_advantage), for masked ones 0:

        A = (r - mean_g) / (std_g + eps)

    with n-1 in the variance; a group of one has mean 0 and std 1.

    eps: added to the standard deviation, at least 0.
    divide_by_std: False is Dr. GRPO.
    out: the array for the advantages, float32: any array per token that is not read.

    Reads role, seq_offsets, group_ids and rewards. Raises InputError, a ValueError, for a
    wrong shape or option, and for a reward that is not finite; nothing is written then.
    """
    options = _generated.GRPOOptions(number("eps", eps), bool(divide_by_std))
    b = bind(batch, "seq_offsets", "group_ids", "rewards")
    advantages = _output(out, b)
    _run(b, lambda run: run.grpo(advantages.pointer, b.struct, options))
    return advantages.owner


class GAEResult(NamedTuple):
    """The outputs of gae, float32, one element per token."""

    advantages: Any
    returns: Any = None


def gae(
    batch: Batch,
    rewards: ArrayLike,
    *,
    gamma: float = DEFAULT_GAE.gamma,
    lambda_: float = DEFAULT_GAE.lambda_,
    out: Optional[GAEResult] = None,
) -> GAEResult:
    """Returns the advantage and the return of each response token, backwards over each
    trajectory (generalized advantage estimation; verl, compute_gae_advantage_return):

        delta = r_t + gamma V' - V_t    A_t = delta + gamma lambda A'    return = A_t + V_t

    where V' and A' are those of the next response token, 0 after the last: masked tokens
    are passed over, and get 0.

    rewards: float32, per token.
    gamma: discount, in [0, 1].
    lambda_: in [0, 1]. gamma or lambda_ is not 0.
    out: a GAEResult of arrays to write to. advantages may be rewards; returns may be None,
        and are not computed then.

    Reads role, seq_offsets and values. Raises InputError, a ValueError, for a wrong shape
    or option; nothing is written then.
    """
    options = _generated.GAEOptions(number("gamma", gamma), number("lambda_", lambda_))
    b = bind(batch, "seq_offsets", "values")
    r = view("rewards", rewards, (F32,))
    check("rewards", r, b.shape, "token", b.role, "role")
    if out is not None and not isinstance(out, GAEResult):
        raise TypeError(f"out is {described(out)}, want a GAEResult")
    advantages = _output(None if out is None else out.advantages, b, "out.advantages", rewards=r)
    returns = None
    if out is None or out.returns is not None:
        returns = _output(None if out is None else out.returns, b, "out.returns", rewards=r)
        check_apart("out.returns", returns, "out.advantages", advantages)
    _run(b, lambda run: run.gae(advantages.pointer, _pointer(returns), r.pointer, b.struct, options))
    return GAEResult(advantages.owner, None if returns is None else returns.owner)


def whiten(x: ArrayLike, role: ArrayLike, *, out: Optional[ArrayLike] = None) -> Any:
    """Returns (x[t] - mean) / sqrt(var + 1e-8) for response tokens and 0 for masked ones,
    with the mean and the variance (n-1) over response tokens (verl, masked_whiten). A single
    response token gets 0.

    x: float32, per token.
    role: uint8, of the same shape.
    out: the array for the result, float32. It may be x.

    Raises InputError, a ValueError, for shapes that do not match, and for a response token that
    is not finite; nothing is written then.
    """
    b = bind(Batch(role=role))
    values = view("x", x, (F32,))
    check("x", values, b.shape, "token", b.role, "role")
    dst = _output(out, b, x=values)
    _run(b, lambda run: run.whiten(dst.pointer, values.pointer, b.role.pointer, b.role.size))
    return dst.owner


def kl_rewards(
    batch: Batch,
    *,
    kl: str = KLS[DEFAULT_KL_REWARDS.kl],
    kl_coef: float = DEFAULT_KL_REWARDS.kl_coef,
    out: Optional[ArrayLike] = None,
) -> Any:
    """Returns the reward of each response token, which gae and reinforce_plus_plus take as
    token_rewards (verl, apply_kl_penalty):

        r_t = [t is the last response token of q] r_q - kl_coef k_t

    with the reward r_q of its trajectory and the divergence k_t of old_logprobs from
    ref_logprobs. Masked tokens get 0.

    kl: the form of k, as in loss, with x = old_logprobs - ref_logprobs.
    kl_coef: finite; 0 leaves the outcome alone.
    out: the array for the rewards, float32. It may be old_logprobs or ref_logprobs.

    Reads role, seq_offsets, rewards and, unless kl_coef is 0, old_logprobs and ref_logprobs.
    Raises InputError, a ValueError, for a wrong shape or option, and for a reward, or a
    log-probability of a response token, that is not finite; nothing is written then.
    """
    options = _generated.KLRewardsOptions(number("kl_coef", kl_coef), choice("kl", kl, KLS))
    reads = ("old_logprobs", "ref_logprobs") if options.kl_coef != 0 else ()
    return run_scheme("kl_rewards", batch, options, ("seq_offsets", "rewards", *reads), out)


class LossResult(NamedTuple):
    """What loss returns."""

    loss: Any
    grad: Any
    """float32, dL/dlogprobs of each token"""
    tokens: Any
    """response tokens"""
    weight_sum: Any
    """sum of w over them"""
    clip_fraction: Any
    """share of response tokens that count as clipped"""
    mean_log_ratio: Any
    """mean of log pi - log pi_old over response tokens, nats"""
    kl: Any
    """mean of the k3 estimate against ref_logprobs, nats; 0 without them. A token counts at
    most 10."""
    kl_loss: Any
    """the part of loss that kl_coef adds"""


class ValueLossResult(NamedTuple):
    """What value_loss returns."""

    loss: Any
    grad: Any
    """float32, dL/dnew_values of each token"""
    tokens: Any
    """response tokens"""
    clip_fraction: Any
    """share of them whose clipped term is the larger"""


def value_loss(
    batch: Batch,
    *,
    clip: float = DEFAULT_VALUE_LOSS.clip,
    norm_length: int = DEFAULT_VALUE_LOSS.norm_length,
    aggregation: str = AGGREGATIONS[DEFAULT_VALUE_LOSS.aggregation],
    out: Optional[ArrayLike] = None,
) -> ValueLossResult:
    """Computes the clipped loss of the critic, and its gradient with respect to each value (verl,
    compute_value_loss):

        c = clamp(v, v_old - clip, v_old + clip)    l = max((v - G)^2, (c - G)^2) / 2

    with v of new_values, v_old of values and G of returns.

    clip: above 0.
    aggregation, norm_length: as in loss, with weights of 1.
    out: the array for grad, float32. It may be new_values, values or returns.

    grad is 0 at masked tokens and where the clipped term is the larger. Reads role, new_values, values,
    returns and, unless the aggregation is "token_mean", seq_offsets. Raises InputError, a ValueError, for a
    wrong shape or option, and for a value of a response token that is not finite; nothing is written then.
    Tensors on a GPU are copied to the host, and the gradient back.
    """
    options = _generated.ValueLossOptions(
        number("clip", clip), integer("norm_length", norm_length, 64), choice("aggregation", aggregation, AGGREGATIONS)
    )
    grad, result = run_value_loss(batch, options, out)
    value, *others = result.values()
    return ValueLossResult(value, grad, *others)


def run_value_loss(
    batch: Batch, options: _generated.ValueLossOptions, out: Optional[ArrayLike] = None, memory: Any = None
) -> Tuple[Any, Scalars]:
    """Returns the gradient and the scalars of value_loss; memory is where Scalars has the latter."""
    names = ["new_values", "values", "returns"]
    if options.aggregation != AGGREGATIONS.index("token_mean"):
        names.append("seq_offsets")
    b = bind(batch, *names)
    grad = _output(out, b)
    result = Scalars(_generated.ValueLossResult, b.role, memory)
    if b.role.device is None:
        _run(b, lambda _: cpu().value_loss(result.address, grad.pointer, b.struct, options))
        return grad.owner, result
    host = Batch(role=as_numpy(b.role), **{name: as_numpy(b.arrays[name]) for name in names if getattr(batch, name) is not None})
    values, of_host = run_value_loss(host, options)
    grad.owner.detach().copy_(made_like(grad, values).owner)
    result.set(of_host)
    return grad.owner, result


def loss(
    batch: Batch,
    weights: Optional[ArrayLike] = None,
    *,
    policy: str = POLICIES[DEFAULT_LOSS.policy],
    clip_low: Optional[float] = None,
    clip_high: Optional[float] = None,
    dual_clip: Optional[float] = None,
    aggregation: Optional[str] = None,
    norm_length: int = DEFAULT_LOSS.norm_length,
    sequence: str = SEQUENCES[DEFAULT_LOSS.sequence],
    tau_pos: Optional[float] = None,
    tau_neg: Optional[float] = None,
    ratio_cap: Optional[float] = None,
    power_pos: Optional[float] = None,
    decay_pos: Optional[float] = None,
    power_neg: Optional[float] = None,
    decay_neg: Optional[float] = None,
    beta: Optional[float] = None,
    cov_share: Optional[float] = None,
    cov_low: Optional[float] = None,
    cov_high: Optional[float] = None,
    cov_coef: Optional[float] = None,
    seed: int = DEFAULT_LOSS.seed,
    kl: str = KLS[DEFAULT_LOSS.kl],
    kl_coef: float = DEFAULT_LOSS.kl_coef,
    out: Optional[ArrayLike] = None,
) -> LossResult:
    """Computes the loss of a policy with token weights, and its gradient with respect to each
    log-probability. With raw = logprobs - old_logprobs, d = clamp(raw, -20, 20), rho = e^d and
    clip(x) = clamp(x, 1 - clip_low, 1 + clip_high), the loss l of a token and its derivative l'
    by the token's log-probability are

        ppo      l = max(-A s, -A clip(s)); where A < 0: min(l, -A dual_clip)
                 s = rho    l' = -A rho
        gspo     the same with s = exp(min(mean raw, 10)) over the sequence    l' = -A s
        grpo_s   the same with s = mean rho over the sequence    l' = -A rho
        cispo    l = -c A logprobs    l' = -c A    c = clip(rho)
        sapo     l = -A 4 s / tau    l' = -A 4 s (1 - s) rho    s = sigmoid(tau (rho - 1))
        pg       l = -A logprobs    l' = -A
        dppo_tv  l = -c A logprobs    l' = -c A    c = min(rho, ratio_cap), but 0 where
                 pi - pi_old > clip_high and A > 0, or pi - pi_old < -clip_low and A <= 0
        vespo    l = -phi A logprobs    l' = -phi A    phi = exp(decay + power y - decay e^y)
                 y = clamp(sum d, log 1e-8, 20) over the trajectory
        dppo_kl  as dppo_tv, with c 0 where kl > clip_high, A > 0 and pi > pi_old, or
                 kl > clip_low, A <= 0 and pi < pi_old; with q = pi_old,
                 kl = q log(q/pi) + (1-q) log((1-q + 1e-8) / (1-pi + 1e-8))
        dro      l = -(A logprobs - beta raw^2 / 2)    l' = -(A - beta raw)
        gmpo     of a trajectory with n response tokens: -A_q rho_q
                 A_q = sum A / (n + 1e-8)    rho_q = exp(min(sum m / (n + 1e-8), 20))
                 m = s min(s raw, s clamp(raw, -clip_low, clip_high)), s the sign of A, -1, 0 or 1
        clip_cov as ppo without the dual clip; at chosen tokens l = 0 and l' = 0
        kl_cov   l = -A rho, and + cov_coef |raw| at chosen tokens
                 l' = -A rho, and + cov_coef sign(raw)

    In the first three l' is 0 where l is not -A s. Where l' has rho in it, l' is 0 where d is
    not raw; so is gspo's where the mean is above 10, and gmpo's where it is above 20. A token counts as clipped in the first
    three where -A clip(s) is the larger, in cispo where c is not rho, in dppo_tv and dppo_kl
    where c is 0, in gmpo where m is not raw and A is not 0, and in clip_cov also where it is
    chosen. PPO is arXiv 1707.06347 (verl, compute_policy_loss_vanilla), GSPO 2507.18071, GRPO-S
    2508.04349, CISPO 2506.13585, SAPO 2511.20347, DPPO 2602.04879, VESPO 2602.10693, GMPO
    2507.20673, Clip-Cov and KL-Cov 2505.22617; DRO is verl's.

    clip_cov and kl_cov choose among the n response tokens of the call by the covariance
    c = (A - mean A) (logprobs - mean logprobs), with means over these tokens. kl_cov chooses the
    max(1, floor(cov_share n)) with the largest c, of equal ones the first; clip_cov as many of
    those that ppo does not clip and cov_low < c < cov_high, at random by seed. gmpo's loss is
    the mean over all trajectories of the batch, whatever the aggregation, which is that of the
    KL alone; one without response tokens adds 0 and counts.

    Where an option may be None, that is the default of the policy, of reweight.h; options that
    the policy does not use do not matter.

    weights: those of actfocus, float32; None stands for ones. dro, gmpo, clip_cov and kl_cov
        have none.
    policy: one of the names above.
    clip_low, clip_high: in ppo, gspo, grpo_s and clip_cov clip_low is in [0, 1]; both are at
        least 0, and one of them is not 0.
    dual_clip: of ppo, gspo and grpo_s: bound of the loss where A < 0, in units of |A|: above 1,
        or 0 for none.
    aggregation: "token_mean" is sum w l / sum w over the batch; "seq_mean_token_sum" and
        "seq_mean_token_mean" are means over trajectories of sum w l and of sum w l / sum w;
        "seq_mean_token_sum_norm" is the sum over trajectories of sum w l, over norm_length.
    norm_length: tokens; 0 is the longest trajectory, with its masked tokens.
    sequence: what gspo and grpo_s take the ratio of: "trajectory", or "span", turn by turn.
    tau_pos, tau_neg: tau of sapo where A > 0, and elsewhere; 1e-30 to 1e30.
    ratio_cap: of dppo_tv and dppo_kl: the largest ratio; above 0.
    power_pos, decay_pos, power_neg, decay_neg: of vespo, where A >= 0, and where A < 0; at
        least 0, and not all of them 0.
    beta: of dro: of the penalty; above 0, and without a default.
    cov_share: of clip_cov and kl_cov: share of the response tokens that are chosen; above 0 and
        at most 1.
    cov_low, cov_high: of clip_cov: a token is chosen where c is between them.
    cov_coef: of kl_cov: of the penalty of chosen tokens; at least 0.
    seed: of clip_cov, an integer of 64 bits: another one for each step.
    kl, kl_coef: kl_coef times the divergence from the reference is added to the loss,
        aggregated in the same way with weights of 1; 0 adds none. With x = logprobs -
        ref_logprobs and y = clamp(-x, -20, 20), kl is "k3", min(10, e^y - y - 1), "k2", x^2/2,
        "k1", x, or "abs", |x|, each with its own derivative; or "k3+", "k1+" or "abs+", with
        the derivative x.
    out: the array for grad, float32. It may be any of the float arrays that are read.

    grad is 0 at masked tokens. If the weights that divide a sum add up to 0 (or to less than
    float32 can divide by), its loss and gradients are 0. Trajectories without response tokens
    do not count in a mean. Weights are taken as they are, negative ones too. The terms w l are
    summed in float32 by groups of eight tokens: where A rho or w A rho exceeds 4e37, the results
    may be infinite or NaN, and where w A rho is below 1e-37, they are coarse.

    Reads role, logprobs, old_logprobs and advantages, ref_logprobs if set or if kl_coef is not
    0, seq_offsets unless the aggregation is "token_mean" and the policy none of gspo, grpo_s,
    vespo and gmpo, and span_ids where the sequence is the span. The values of masked tokens do not
    matter. Raises InputError, a ValueError, for a wrong shape or option, for a weight that is
    not finite, and with another policy than ppo or with a kl_coef for a value of a response
    token that is not; nothing is written then. A GPU has ppo without a kl_coef alone; all else
    is an InputError there.
    """
    options = loss_values(
        dict(
            policy=policy, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip, aggregation=aggregation,
            norm_length=norm_length, sequence=sequence, tau_pos=tau_pos, tau_neg=tau_neg, ratio_cap=ratio_cap,
            power_pos=power_pos, decay_pos=decay_pos, power_neg=power_neg, decay_neg=decay_neg, beta=beta,
            cov_share=cov_share, cov_low=cov_low, cov_high=cov_high, cov_coef=cov_coef, seed=seed, kl=kl, kl_coef=kl_coef,
        )
    )
    grad, result = run_loss(batch, weights, _generated.LossOptions(*options), out)
    value, *others = result.values()
    return LossResult(value, grad, *others)


def run_loss(
    batch: Batch,
    weights: Optional[ArrayLike],
    options: _generated.LossOptions,
    out: Optional[ArrayLike] = None,
    memory: Any = None,
) -> Tuple[Any, Scalars]:
    """Returns the gradient and the scalars of loss; memory is where Scalars has the latter."""
    names = ["logprobs", "old_logprobs", "advantages"]
    if batch.ref_logprobs is not None or options.kl_coef != 0:
        names.append("ref_logprobs")
    if options.aggregation != AGGREGATIONS.index("token_mean") or by_sequence(options):
        names.append("seq_offsets")
    if options.policy in _generated.BY_SPAN and SEQUENCES[options.sequence] == "span":
        names.append("span_ids")
    b = bind(batch, *names)
    w = None
    if weights is not None:
        w = view("weights", weights, (F32,))
        check("weights", w, b.shape, "token", b.role, "role")
    grad = _output(out, b, weights=w)
    result = Scalars(_generated.LossResult, b.role, memory)
    _run(b, lambda run: run.loss(result.address, grad.pointer, _pointer(w), b.struct, options))
    return grad.owner, result


def by_sequence(options: _generated.LossOptions) -> bool:
    """Whether the factor of a token is that of its sequence."""
    return options.policy in _generated.BY_SEQUENCE


def by_batch(options: _generated.LossOptions) -> bool:
    """Whether the term of a token is that of its sequence, or of all tokens: those that are chosen."""
    return by_sequence(options) or options.policy in _generated.CHOOSING


def loss_options(values: Dict[str, Any]) -> _generated.LossOptions:
    """Returns the options that have these values, and the defaults of their policy for the others."""
    options = _generated.LossOptions.from_buffer_copy(_generated.LOSS_DEFAULTS[values["policy"]])
    for name, value in values.items():
        setattr(options, name, value)
    return options


def loss_values(options: Dict[str, Any]) -> List[Any]:
    """Returns the fields of LossOptions of options of loss: the defaults of the policy where they are None."""
    if options["policy"] == "dro" and options["beta"] is None:
        raise InputError("beta", "is None, want a finite number above 0: dro has no default")
    values = []
    defaults = _generated.LOSS_DEFAULTS[choice("policy", options["policy"], POLICIES)]
    for name, *_ in _generated.LossOptions._fields_:
        value = options[name]
        if value is None:
            value = getattr(defaults, name)
        elif name in NAMES:
            value = choice(name, value, NAMES[name])
        elif name in ("norm_length", "seed"):
            value = integer(name, value, 64)
        else:
            value = number(name, value)
        values.append(value)
    return values


def _output(out: Optional[ArrayLike], b: Bound, argument: str = "out", **others: Optional[Array]) -> Array:
    """Returns the array of a result per token. others are inputs that are not of the batch."""
    return output(argument, out, b.shape, "token", {"role": b.role, **b.arrays, **others})


def _pointer(array: Optional[Array]) -> int:
    return 0 if array is None else array.pointer


def _run(b: Bound, call: Callable[[Backend], None]) -> None:
    """Makes the call on the batch's device. An element of a padded batch that is wrong is
    named by its trajectory and its place in that."""
    try:
        call(backend(b.role.device))
    except InputError as e:
        if e.argument in ("seq_offsets", "group_ids", "anchors", "span_rewards", "reward_weights") or (e.argument == "rewards" and b.struct.rewards):
            raise
        raise located(e, b.arrays[e.argument].shape if e.argument == "reward_parts" else b.shape) from None


def of_parts(name: str, values: Optional[Sequence[float]], batch: Batch) -> Any:
    """Returns an option with a number for each of the reward_parts of a trajectory, as C has it."""
    if values is None:
        return None
    numbers = [number(name, value) for value in values]
    if len(numbers) != parts_of(batch):
        raise InputError(name, f"has {len(numbers)} elements, want {parts_of(batch)}, one per part")
    return (ctypes.c_double * len(numbers))(*numbers)


def run_scheme(
    name: str,
    batch: Batch,
    options: Optional[ctypes.Structure],
    reads: Tuple[str, ...],
    out: Optional[ArrayLike],
    unit: str = "token",
) -> Any:
    """Returns what the function of reweight.h of that name computes, an element per unit. Tensors on
    a GPU are copied to the host, and the result back: there is no kernel for them."""
    b = bind(batch, *reads)
    shape = b.shape if unit == "token" else (b.struct.trajectories,)
    dst = output("out", out, shape, unit, {"role": b.role, **b.arrays})
    if b.role.device is None:
        _run(b, lambda _: cpu().scheme(name, dst.pointer, b.struct, options))
        return dst.owner
    arrays = {field: as_numpy(array) for field, array in b.arrays.items() if getattr(batch, field) is not None}
    host = Batch(role=as_numpy(b.role), **arrays)
    values = made_like(dst, run_scheme(name, host, options, reads, None, unit))
    dst.owner.detach().copy_(values.owner)
    return dst.owner
