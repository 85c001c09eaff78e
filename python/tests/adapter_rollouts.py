"""What the tests of the adapters share: real rollouts, and what trainers make of losses."""

import json
from types import SimpleNamespace

import numpy as np

import reweight
from support import TESTDATA, TestCase, read_safetensors


class Tokenizer:
    """The vocabulary of the rollouts. As tokenizers of subwords do, it cannot tell how a tag
    was written from the tag alone: only decode is there."""

    def __init__(self, words):
        self.words = words

    def decode(self, ids):
        return "".join(self.words[i] for i in ids)


def load():
    """Returns the rollouts: arrays [T] and [S], as the file names them, their tokenizer, and
    advantages that differ from trajectory to trajectory."""
    arrays, metadata = read_safetensors(TESTDATA / "frozenlake-small.safetensors")
    rollouts = SimpleNamespace(**arrays)
    rollouts.trajectory = np.repeat(np.arange(len(rollouts.rewards)), np.diff(rollouts.seq_offsets))
    rollouts.mask = rollouts.role > 0
    rollouts.tokenizer = Tokenizer(json.loads(metadata["vocab"]))
    # Token 4285 ends a turn of the form <answer> ... <answer> ... </answer>. The game rejected it, and the file has no
    # action there; by its tags it has.
    rollouts.role = rollouts.role.copy()
    rollouts.role[4285] = reweight.ACTION
    _with_tags(rollouts)
    scores = np.random.default_rng(7).normal(size=len(rollouts.rewards)).astype(np.float32)
    rollouts.scores = scores
    rollouts.advantages = scores[rollouts.trajectory] * rollouts.mask
    return rollouts


def _with_tags(rollouts):
    """Makes the tokens that hold a part of a tag around actions actions too, as Credit does."""
    words = [rollouts.tokenizer.words[i] for i in rollouts.token_ids]
    edges = np.flatnonzero(np.diff(np.concatenate([[0], rollouts.role == reweight.ACTION, [0]])))
    for first, end in edges.reshape(-1, 2).tolist():
        begin = next(t for t in range(first - 1, -1, -1) if "<answer>" in "".join(words[t:first]))
        stop = next(t for t in range(end, len(words)) if "</answer>" in "".join(words[end : t + 1]))
        rollouts.role[begin : stop + 1] = reweight.ACTION


def rows(rollouts, x, drop=0):
    """Returns the tokens of each trajectory, without the first so many."""
    return [part[drop:] for part in np.split(x, rollouts.seq_offsets[1:-1])]


def prompts(rollouts):
    """Returns how many tokens come before the first response token of each trajectory."""
    return [int(np.argmax(row)) for row in rows(rollouts, rollouts.mask)]


def padded(parts, value=0, left=False, width=None):
    """Returns arrays of different lengths as rows of one."""
    width = width or max(len(part) for part in parts)
    out = np.full((len(parts), width), value, parts[0].dtype)
    for row, part in zip(out, parts):
        if left:
            row[width - len(part) :] = part
        else:
            row[: len(part)] = part
    return out


def batch(rollouts, **more):
    """Returns the rollouts as the library takes them."""
    names = ["role", "seq_offsets", "group_ids", "span_ids", "entropy"]
    names += ["old_logprobs", "logprobs", "ref_logprobs", "ref_energy"]
    return reweight.Batch(**{**{name: getattr(rollouts, name) for name in names}, **more})


def scheme(rollouts, credit, **more):
    """Returns ActFocus's weights and AEM's factors of the rollouts, computed directly."""
    b = batch(rollouts, **more)
    weights = rollouts.mask.astype(np.float32)
    factors = np.ones_like(weights)
    if "actfocus" in credit.scheme:
        weights = reweight.actfocus(b, alpha=credit.alpha, beta=credit.beta, eps=credit.eps, signal=credit.signal).weights
    if "aem" in credit.scheme:
        if credit.entropy == "surprisal":
            b.entropy = -b.old_logprobs
        factors = reweight.aem(b, lambda_=credit.lambda_, guard=credit.guard, scope=credit.scope)
    return weights, factors


def weighted_loss(rollouts, credit, aggregation, norm_length=0, **more):
    """Returns the loss of the library: weights on the terms, factors on the advantages."""
    policy = more.pop("policy", "ppo")
    weights, factors = scheme(rollouts, credit, **more)
    b = batch(rollouts, advantages=rollouts.advantages * factors, **more)
    return float(reweight.loss(b, weights=weights, aggregation=aggregation, norm_length=norm_length, policy=policy).loss)


def surrogate(rollouts, advantages, clip_low=0.2, clip_high=0.28, dual_clip=3.0):
    """Returns each token's clipped surrogate, as trainers compute it, in float64."""
    a = np.asarray(advantages, np.float64)
    ratio = np.exp(np.clip(rollouts.logprobs.astype(np.float64) - rollouts.old_logprobs, -20, 20))
    terms = np.maximum(-a * ratio, -a * np.clip(ratio, 1 - clip_low, 1 + clip_high))
    return np.where(a < 0, np.minimum(terms, -a * dual_clip), terms)


def aggregate(rollouts, terms, aggregation, norm_length=0):
    """Returns the loss as trainers make it of tokens that all weigh the same."""
    parts = [part[keep] for part, keep in zip(rows(rollouts, terms), rows(rollouts, rollouts.mask)) if keep.any()]
    if aggregation == "token_mean":
        return np.concatenate(parts).mean()
    if aggregation == "token_sum":
        return np.concatenate(parts).sum()
    if aggregation == "seq_mean_token_mean":
        return np.mean([part.mean() for part in parts])
    sums = [part.sum() for part in parts]
    return np.mean(sums) if aggregation == "seq_mean_token_sum" else np.sum(sums) / norm_length


class Case(TestCase):
    """A test of the rollouts."""

    @classmethod
    def setUpClass(cls):
        cls.rollouts = load()

    def multiplied(self, advantages, credit, aggregation="token_mean", **more):
        """Returns the advantages by the library's weights and factors."""
        r = self.rollouts
        w, f = scheme(r, credit, **more)
        m = advantages * f * w
        if aggregation == "token_mean":
            m *= np.float32(r.mask.sum() / w.sum(dtype=np.float64))
        elif aggregation == "seq_mean_token_mean":
            m *= (np.bincount(r.trajectory, r.mask) / np.bincount(r.trajectory, w)).astype(np.float32)[r.trajectory]
        return m

    def assertBits(self, got, want, what=""):
        super().assertBits(np.asarray(got, np.float32), np.asarray(want, np.float32), what)

    def assertClose(self, got, want, relative=1e-6):
        self.assertLessEqual(abs(got - want), relative * max(abs(want), 1e-3), f"{got} is not {want}")
