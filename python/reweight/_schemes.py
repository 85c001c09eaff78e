"""The schemes on batches of rollouts: ActFocus, AEM, advantages and the loss."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Collection, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _generated, _policies
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
from ._policies import Policy
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
    names = _generated.SIGNAL_ARRAYS[signal]
    if options.beta == 0 and not getattr(batch.role, "is_cuda", False):
        names = tuple(name for name in names if getattr(batch, name) is not None)
    b = bind(batch, *names)
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
    policy: Union[str, Policy] = POLICIES[DEFAULT_LOSS.policy],
    aggregation: Optional[str] = None,
    norm_length: int = DEFAULT_LOSS.norm_length,
    kl: str = KLS[DEFAULT_LOSS.kl],
    kl_coef: float = DEFAULT_LOSS.kl_coef,
    out: Optional[ArrayLike] = None,
) -> LossResult:
    """Computes the loss of a policy with token weights, and its gradient with respect to each
    log-probability:

        reweight.loss(batch, weights)                                          # PPO
        reweight.loss(batch, weights, policy="gspo")                           # GSPO's defaults
        reweight.loss(batch, weights, policy=reweight.GSPO(clip_low=1e-4))     # another constant

    weights: those of actfocus, float32; None stands for ones. DRO, GMPO, ClipCov and KLCov
        have none.
    policy: one of reweight.PPO, GSPO, GRPOS, GMPO, CISPO, PG, DPPOTV, DPPOKL, VESPO, SAPO, DRO,
        ClipCov and KLCov, which have the formulas and the constants; or the name of one, for
        its defaults: "ppo", "gspo", "grpo_s", "gmpo", "cispo", "pg", "dppo_tv", "dppo_kl",
        "vespo", "sapo", "clip_cov" or "kl_cov". DRO has no default.
    aggregation: "token_mean" is sum w l / sum w over the batch; "seq_mean_token_sum" and
        "seq_mean_token_mean" are means over trajectories of sum w l and of sum w l / sum w;
        "seq_mean_token_sum_norm" is the sum over trajectories of sum w l, over norm_length.
        None is the one of the policy's paper.
    norm_length: tokens; 0 is the longest trajectory, with its masked tokens.
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
    0, seq_offsets unless the aggregation is "token_mean" and the policy none of GSPO, GRPOS,
    VESPO and GMPO, and span_ids where the sequence is the span. The values of masked tokens do not
    matter. Raises InputError, a ValueError, for a wrong shape or option, for a weight that is
    not finite, and with another policy than PPO or with a kl_coef for a value of a response
    token that is not; nothing is written then. A GPU has PPO without a kl_coef alone; all else
    is an InputError there.
    """
    options = loss_values(dict(policy=policy, aggregation=aggregation, norm_length=norm_length, kl=kl, kl_coef=kl_coef))
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


def policy_of(policy: Union[str, Policy]) -> Policy:
    """Returns the policy, or the one of that name with its defaults."""
    if type(policy) in _policies.POLICIES.values():
        return policy  # type: ignore[return-value]
    if isinstance(policy, type) and policy in _policies.POLICIES.values():
        raise TypeError(f"policy is the class {policy.__name__}, want an object of it: {without_default(policy.name)}")
    if not isinstance(policy, str):
        classes = ", ".join(c.__name__ for c in _policies.POLICIES.values())
        raise TypeError(f"policy is {described(policy)}, want the name of a loss, or one of reweight's {classes}")
    choice("policy", policy, POLICIES)
    try:
        return _policies.POLICIES[policy]()
    except TypeError:
        raise InputError("policy", f'is "{policy}", want {without_default(policy)}: it has no default') from None


def without_default(policy: str) -> str:
    """Says how to make the policy of that name, of which a constant has no default: "reweight.DRO(beta=...)"."""
    of = _policies.POLICIES[policy]
    lacking = (f"{name}=..." for name in of.__annotations__ if not hasattr(of, name))  # a default is in the class
    return f"reweight.{of.__name__}({', '.join(lacking)})"


def loss_values(options: Dict[str, Any], unread: Collection[str] = ()) -> List[Any]:
    """Returns the fields of LossOptions of options of loss. Those that are unread are 1."""
    policy = policy_of(options["policy"])
    defaults = _generated.LOSS_DEFAULTS[POLICIES.index(policy.name)]
    values: List[Any] = []
    for name, *_ in _generated.LossOptions._fields_:
        value: Any = 1.0
        if name == "policy":
            value = POLICIES.index(policy.name)
        elif name in unread:
            pass
        elif name == "aggregation" and options[name] is None or name not in options and not hasattr(policy, name):
            value = getattr(defaults, name)  # of the policy's paper, or a constant of another policy
        else:
            value = options[name] if name in options else getattr(policy, name)
            if name in NAMES:
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
