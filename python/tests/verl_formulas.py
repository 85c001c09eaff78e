"""What the tests of verl have in common, whichever of its versions runs: its configuration, and its losses with ActFocus
and AEM from the papers, in float64."""

import copy
import functools
import os

import formulas
import numpy as np
import verl.trainer.config
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from reweight.adapters._check_verl import formula

OPENING, CLOSING, OBSERVATION, EOS, FIRST_WORD = 2, 3, 4, 1, 5
WORDS = ["<pad>", "<eos>", "<answer>", "</answer>", "<obs>", *(f"w{i}" for i in range(19))]
OPTIONS = {"alpha": 0.2, "beta": 2.0, "guard": 0.0}  # of the credit: no guard hides AEM
MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "token-sum")
ACTOR, CORRECTION = "actor_rollout_ref.actor.", "algorithm.rollout_correction."
LOSS, IN_LOSS = ACTOR + "policy_loss.loss_mode", ACTOR + "policy_loss.rollout_correction."
NO_IMPORTANCE = {IN_LOSS + "rollout_is": None}  # of loss_mode=bypass_mode, which has some by default


def tokenizer():
    t = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="w0"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<eos>", pad_token="<pad>", unk_token="w0")
    made.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    return made


@functools.cache
def default_config():
    """verl's, as its command makes it, for GRPO."""
    with initialize_config_dir(os.path.dirname(verl.trainer.config.__file__), version_base=None):
        return compose("ppo_trainer", ["algorithm.adv_estimator=grpo", ACTOR + "ppo_micro_batch_size_per_gpu=4"])


def config(changes=(), reweight=OPTIONS):
    made = copy.deepcopy(default_config())
    for name, value in {"reweight": reweight, **dict(changes)}.items():
        OmegaConf.update(made, name, value, force_add=True)
    return made


def spans(mask):
    """Pairs of the first token of each response and the one after its last."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
    return edges.reshape(-1, 2)


def weights_and_factors(rows, groups, credit):
    """ActFocus and AEM from the papers, in float64, without the library: [B, T] each, and what a token is.

    rows: [B, T] each: responses; sampled, what the policy said; kept, what was not rejected of it; old, ref, entropy.
    groups: of each row, those of trajectories where that is AEM's scope.
    """
    role = rows["sampled"].astype(int)
    for b, ids in enumerate(rows["responses"]):
        for first, end in spans(rows["sampled"][b]):
            opened = None
            for t in range(first, end):
                if ids[t] == OPENING:
                    opened = t
                elif opened is not None and ids[t] == CLOSING:
                    role[b, opened : t + 1] = 2  # with the tags, by default
                    opened = None
    role *= rows["kept"]
    action = role == 2
    w = (role > 0).astype(float)
    if "entropy_mask" in credit.scheme:
        w = formulas.entropy_mask(rows["entropy"], rows["kept"])
    if "actfocus" in credit.scheme:
        signal = -rows["old"] if credit.signal == "surprisal" else rows["old"] - rows["ref"]
        mu = signal[action].mean()
        sigma = np.sqrt(((signal[action] - mu) ** 2).mean() + credit.eps)
        w[role == 1] = credit.alpha
        w[action] = 1 + credit.beta / (1 + np.exp(-(signal[action] - mu) / sigma))
    f = np.ones_like(w)
    entropy = rows["entropy"] if credit.entropy == "exact" else -rows["old"]
    scopes = [0] * len(groups) if credit.scope == "batch" else groups
    for g in set(scopes) if "aem" in credit.scheme else ():
        found = [(b, s, e) for b in range(len(groups)) if scopes[b] == g for s, e in spans(rows["sampled"][b])]
        found = [(b, s, e) for b, s, e in found if rows["kept"][b, s:e].any()]
        h = np.array([entropy[b, s:e][rows["kept"][b, s:e]].mean() for b, s, e in found])
        if len(h) and h.max() - h.min() >= max(credit.guard, 1e-12):
            factor = np.exp(-credit.lambda_ * (h - h.min()) / (h.max() - h.min()))
            for (b, s, e), value in zip(found, factor / factor.mean()):
                f[b, s:e] = value
    return w, f, role


def multiplier(rows, w, f, mode):
    """By which an advantage is multiplied, [B, T]: AEM's factor, and the weight over the mean of what mode averages."""
    if mode == "token-mean":
        return w * f * rows["kept"].sum() / w.sum()
    if mode == "seq-mean-token-mean":
        return w * f * rows["kept"].sum(1, keepdims=True) / np.maximum(w.sum(1, keepdims=True), 1e-300)
    return w * f


def group_advantages(rewards, groups, trajectories, kept):
    """GRPO's, [B, T]: of several outputs of one trajectory all have the last one's, which verl reads at one of its
    tokens and finds 0 where all are rejected."""
    last = {trajectory: row for row, trajectory in enumerate(trajectories)}
    of = {}
    for g in set(groups):
        rows = [row for row in last.values() if groups[row] == g]
        r = rewards[rows]
        a = (r - r.mean()) / (r.std(ddof=1) + 1e-6) if len(r) > 1 else r / (1 + 1e-6)
        of.update(zip((trajectories[row] for row in rows), a * kept[rows].any(1)))
    return np.array([of[trajectory] for trajectory in trajectories])[:, None] * kept


def scores(ids):
    """The rewards of turns that verl_cpu's agent loop gives."""
    at = ids.index(OBSERVATION) if OBSERVATION in ids else len(ids)
    return [sum(part) % 5 / 4 for part in (ids[:at], ids[at:]) if part]


def turn_advantages(rewards, turns, kept, groups):
    """Those of turn_returns, where a trajectory without a token of the loss has its rewards of turns in its reward."""
    there = kept.any(1)
    rewards = rewards + [0 if x else sum(row) for x, row in zip(there, turns)]
    return formulas.turn_returns(rewards, [row if x else [] for x, row in zip(there, turns)], kept, np.array(groups))


def loss_of(rows, w, A, actor, tokens, count, importance=None, name=None, mode=None):
    """The loss in float64 and its gradient by rows["new"]: w l(A), divided as the aggregation says; penalty and bonus
    are not weighted.

    A: [B, T], with AEM's factors. actor: verl's options. tokens: of the mini-batch, rejected ones too, and count, its
    trajectories, empty ones too: verl divides by these. importance: [B, T] of verl's rollout correction. name and mode:
    of the loss and its aggregation, where these are not the actor's."""
    name, kept = name or actor.policy_loss.loss_mode, None
    if name == "bypass_mode":
        correction, ratios = actor.policy_loss.rollout_correction, np.exp(rows["new"] - rows["old"])
        name = "gpg" if correction.get("loss_type") == "reinforce" else "vanilla"
        kept = rows["kept"] & accepted(ratios, rows["kept"], correction)
        importance = importances(ratios, rows["kept"], correction) if name == "gpg" else None
    mode = mode or ("seq-mean-token-mean" if name == "sapo" else actor.loss_agg_mode)
    return formula(rows, w, A, actor, tokens, count, name, mode, kept, importance)


def accepted(ratio, mask, correction):
    """Which tokens verl's rejection sampling keeps, [B, T]; ratio is of the training to the sampling policy."""
    if correction.get("rollout_rs") is None:
        return mask
    low, high = (float(x) for x in correction["rollout_rs_threshold"].split("_"))
    if correction["rollout_rs"] == "token_k1":
        inside = (1 / ratio >= low) & (1 / ratio <= high)
    else:
        mean = np.exp(-(np.log(ratio) * mask).sum(1, keepdims=True) / np.maximum(mask.sum(1, keepdims=True), 1))
        inside = (mean >= low) & (mean <= high)
    return mask & inside


def importances(ratio, mask, correction):
    """verl's weights for the difference of the training from the sampling policy, [B, T], or None."""
    if correction.get("rollout_is") is None:
        return None
    if correction["rollout_is"] == "sequence":
        ratio = np.exp((np.log(ratio) * mask).sum(1, keepdims=True)) * np.ones_like(ratio)
    weights = np.minimum(ratio, correction.get("rollout_is_threshold", 2.0)) * mask
    return weights / weights[mask].mean() if correction.get("rollout_is_batch_normalize") else weights
