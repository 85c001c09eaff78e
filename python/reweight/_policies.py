"""The losses of a policy, a class for each: `go generate ./...` writes this file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Dict, Type

__all__ = ["Policy", "PPO", "GSPO", "GRPOS", "CISPO", "SAPO", "PG", "DPPOTV", "VESPO", "DPPOKL", "DRO", "GMPO", "ClipCov", "KLCov"]


@dataclass(frozen=True)
class Policy:
    """The loss of a policy with its constants: the loss l of a token that reweight.loss aggregates, and its
    derivative l' by the token's log-probability. Those that there are have their formulas, with these names:

        A      the advantage
        d      log pi - log pi_old, kept between -20 and 20
        rho    e^d
        clip   kept between 1 - clip_low and 1 + clip_high

    Where l' has rho in it, l' is 0 where d is not log pi - log pi_old. A factor of A other than these ratios is a
    constant to the derivative, so that a clipped token still has one, and the value of a loss with log pi in it means
    nothing by itself.

    GMPO, DRO, ClipCov and KLCov have no weights of tokens: a factor of A or a weight of a token would mean something
    else in them than in the others, so that weights are an error.
    """

    name: ClassVar[str] = ""


@dataclass(frozen=True)
class PPO(Policy):
    """PPO is the clipped surrogate (arXiv 1707.06347), with the dual clip (arXiv 1912.09729):

        l = max(-A rho, -A clip(rho)); where A < 0: min(l, -A dual_clip)
        l' = -A rho where l is -A rho, else 0

    A token counts as clipped where -A clip(rho) is the larger. PPO takes values of response tokens that are not
    finite as they are. clip_low and clip_high that are both 0 are an error: nobody has set them. One of them may
    be 0.

    clip_low: in [0, 1].
    clip_high: at least 0.
    dual_clip: where A < 0, l is at most -A times this: above 1, or 0 for none.
    """

    name: ClassVar[str] = "ppo"
    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float = 3.0


@dataclass(frozen=True)
class GSPO(Policy):
    """GSPO is PPO with the ratio of the sequence (arXiv 2507.18071); LUSPO (arXiv 2602.05261) is GSPO with
    "seq_mean_token_sum":

        s = exp(min(mean of log pi - log pi_old over the sequence, 10))
        l = max(-A s, -A clip(s)); where A < 0: min(l, -A dual_clip)
        l' = -A s where l is -A s and the mean is at most 10, else 0

    This is the form with a loss for each token: where A and the weights are the same in all of a sequence, the
    sum is the sequence's loss, and its gradient. A token counts as clipped where -A clip(s) is the larger.
    clip_low and clip_high that are both 0 are an error.

    clip_low: in [0, 1].
    clip_high: at least 0.
    dual_clip: where A < 0, l is at most -A times this: above 1, or 0 for none.
    sequence: the tokens that share a ratio: "trajectory", "span".
    """

    name: ClassVar[str] = "gspo"
    clip_low: float = 0.0003
    clip_high: float = 0.0004
    dual_clip: float = 0.0
    sequence: str = "trajectory"


@dataclass(frozen=True)
class GRPOS(Policy):
    """GRPOS is PPO with the mean ratio of the sequence (GRPO-S, arXiv 2508.04349):

        s = mean of rho over the sequence
        l = max(-A s, -A clip(s)); where A < 0: min(l, -A dual_clip)
        l' = -A rho where l is -A s, else 0

    As GSPO it has a loss for each token. A token counts as clipped where -A clip(s) is the larger. clip_low and
    clip_high that are both 0 are an error.

    clip_low: in [0, 1].
    clip_high: at least 0.
    dual_clip: where A < 0, l is at most -A times this: above 1, or 0 for none.
    sequence: the tokens that share a ratio: "trajectory", "span".
    """

    name: ClassVar[str] = "grpo_s"
    clip_low: float = 0.2
    clip_high: float = 0.28
    dual_clip: float = 0.0
    sequence: str = "trajectory"


@dataclass(frozen=True)
class CISPO(Policy):
    """CISPO has the clipped ratio as a factor (arXiv 2506.13585):

        c = clip(rho)    l = -c A log pi    l' = -c A

    A token counts as clipped where c is not rho. clip_low and clip_high that are both 0 are an error.

    clip_low: at least 0.
    clip_high: at least 0.
    """

    name: ClassVar[str] = "cispo"
    clip_low: float = 1.0
    clip_high: float = 4.0


@dataclass(frozen=True)
class SAPO(Policy):
    """SAPO has a soft gate in the place of a clip (arXiv 2511.20347):

        s = sigmoid(tau (rho - 1))    l = -A 4 s / tau    l' = -A 4 s (1 - s) rho

    No token counts as clipped. Each tau is 1e-30 to 1e30, so that one of 0 is an error.

    tau_pos: tau where A > 0.
    tau_neg: tau elsewhere.
    """

    name: ClassVar[str] = "sapo"
    tau_pos: float = 1.0
    tau_neg: float = 1.05


@dataclass(frozen=True)
class PG(Policy):
    """PG is the policy gradient without a ratio (GPG):

        l = -A log pi    l' = -A

    It has no constants, and no token counts as clipped.
    """

    name: ClassVar[str] = "pg"


@dataclass(frozen=True)
class DPPOTV(Policy):
    """DPPO leaves out the tokens whose probability has moved too far in the direction of the advantage (arXiv
    2602.04879):

        c = min(rho, ratio_cap), but 0 at a token that is left out    l = -c A log pi    l' = -c A

    A token is left out, with DPPOTV, where pi - pi_old > clip_high and A > 0, or pi - pi_old < -clip_low and A <=
    0. With DPPOKL it is where kl > clip_high, A > 0 and pi > pi_old, or kl > clip_low, A <= 0 and pi < pi_old;
    with q = pi_old,

        kl = q log(q/pi) + (1-q) log((1-q + 1e-8) / (1-pi + 1e-8))

    A token that is left out counts as clipped. clip_low and clip_high that are both 0 are an error, and so is a
    ratio_cap of 0.

    clip_low: at least 0.
    clip_high: at least 0.
    ratio_cap: the largest ratio; above 0.
    """

    name: ClassVar[str] = "dppo_tv"
    clip_low: float = 0.2
    clip_high: float = 0.2
    ratio_cap: float = 20.0


@dataclass(frozen=True)
class VESPO(Policy):
    """VESPO has a soft factor of the trajectory's ratio (arXiv 2602.10693):

        l = -phi A log pi    l' = -phi A    phi = exp(Decay + Power y - Decay e^y)
        y = the sum of d over the trajectory, kept between log 1e-8 and 20

    No token counts as clipped. Four constants that are all 0 are an error: nobody has set them.

    power_pos: Power and Decay where A >= 0; at least 0.
    decay_pos: Power and Decay where A >= 0; at least 0.
    power_neg: and where A < 0.
    decay_neg: and where A < 0.
    """

    name: ClassVar[str] = "vespo"
    power_pos: float = 2.0
    decay_pos: float = 3.0
    power_neg: float = 3.0
    decay_neg: float = 2.0


@dataclass(frozen=True)
class DPPOKL(Policy):
    """DPPO leaves out the tokens whose probability has moved too far in the direction of the advantage (arXiv
    2602.04879):

        c = min(rho, ratio_cap), but 0 at a token that is left out    l = -c A log pi    l' = -c A

    A token is left out, with DPPOTV, where pi - pi_old > clip_high and A > 0, or pi - pi_old < -clip_low and A <=
    0. With DPPOKL it is where kl > clip_high, A > 0 and pi > pi_old, or kl > clip_low, A <= 0 and pi < pi_old;
    with q = pi_old,

        kl = q log(q/pi) + (1-q) log((1-q + 1e-8) / (1-pi + 1e-8))

    A token that is left out counts as clipped. clip_low and clip_high that are both 0 are an error, and so is a
    ratio_cap of 0.

    clip_low: at least 0.
    clip_high: at least 0.
    ratio_cap: the largest ratio; above 0.
    """

    name: ClassVar[str] = "dppo_kl"
    clip_low: float = 0.05
    clip_high: float = 0.05
    ratio_cap: float = 20.0


@dataclass(frozen=True)
class DRO(Policy):
    """DRO is the policy gradient with a quadratic penalty (verl). With raw = log pi - log pi_old, which is not
    clamped,

        l = -(A log pi - beta raw^2 / 2)    l' = -(A - beta raw)

    No token counts as clipped. The penalty is not scaled by A, and there are no weights of tokens. A beta of 0 is
    an error.

    beta: of the penalty; above 0; it has no default.
    """

    name: ClassVar[str] = "dro"
    beta: float


@dataclass(frozen=True)
class GMPO(Policy):
    """GMPO has one ratio for each trajectory, the geometric mean of those of its n response tokens, each of which is
    clipped (arXiv 2507.20673). Of a trajectory

        l = -mean A exp(min(mean m, 20)), means being sums divided by n + 1e-8
        m = raw = log pi - log pi_old, at most clip_high where A > 0, at least -clip_low where A < 0; 0 where A = 0
        l' = l / (n + 1e-8) where m is raw and the mean is at most 20, else 0

    The loss is the mean over all trajectories of the batch, whatever the aggregation says, which is that of the
    KL alone. One without response tokens adds 0 and counts. A token counts as clipped where m is not raw and A is
    not 0. A trajectory has one advantage, and no weights of tokens. clip_low and clip_high that are both 0 are an
    error.

    clip_low: nats, at least 0.
    clip_high: nats, at least 0.
    """

    name: ClassVar[str] = "gmpo"
    clip_low: float = 0.4
    clip_high: float = 0.4


@dataclass(frozen=True)
class ClipCov(Policy):
    """ClipCov is PPO without the dual clip that leaves out some tokens of high covariance c (Clip-Cov, arXiv
    2505.22617):

        l = max(-A rho, -A clip(rho))    l' = -A rho where l is -A rho, else 0
        c = (A - mean A) (log pi - mean log pi)    l = l' = 0 at chosen tokens

    with means over the n response tokens of the call. Of the tokens where -A clip(rho) is not the larger and
    cov_low < c < cov_high it chooses max(1, floor(cov_share n)) at random: token t has number t of the generator
    SplitMix64 whose state is seed, and the lowest numbers are chosen. Give each step its own seed. A token counts
    as clipped where -A clip(rho) is the larger and where it is chosen. It chooses by A, and has no weights of
    tokens. clip_low and clip_high that are both 0 are an error, and so is a cov_share of 0.

    clip_low: in [0, 1].
    clip_high: at least 0.
    cov_share: share of the response tokens that are chosen; above 0, at most 1.
    cov_low: a token is chosen where its covariance is between these; finite.
    cov_high: at least cov_low.
    seed: of the choice; another one for each step.
    """

    name: ClassVar[str] = "clip_cov"
    clip_low: float = 0.2
    clip_high: float = 0.2
    cov_share: float = 0.0002
    cov_low: float = 1.0
    cov_high: float = 5.0
    seed: int = 0


@dataclass(frozen=True)
class KLCov(Policy):
    """KLCov gives a penalty to the tokens of the highest covariance c (KL-Cov, arXiv 2505.22617):

        l = -A rho, and + cov_coef |raw| at chosen tokens
        l' = -A rho, and + cov_coef sign(raw) at chosen tokens
        raw = log pi - log pi_old    c = (A - mean A) (log pi - mean log pi)

    with means over the n response tokens of the call. It chooses the max(1, floor(cov_share n)) tokens with the
    largest c, of equal ones the first. No token counts as clipped. It chooses by A, which the penalty is not
    scaled by, and has no weights of tokens. A cov_share of 0 is an error.

    cov_share: share of the response tokens that are chosen; above 0, at most 1.
    cov_coef: of the penalty; at least 0.
    """

    name: ClassVar[str] = "kl_cov"
    cov_share: float = 0.0002
    cov_coef: float = 1.0


POLICIES: Dict[str, Type[Policy]] = {
    "ppo": PPO,
    "gspo": GSPO,
    "grpo_s": GRPOS,
    "cispo": CISPO,
    "sapo": SAPO,
    "pg": PG,
    "dppo_tv": DPPOTV,
    "vespo": VESPO,
    "dppo_kl": DPPOKL,
    "dro": DRO,
    "gmpo": GMPO,
    "clip_cov": ClipCov,
    "kl_cov": KLCov,
}
"""Those that there are, by their names."""
