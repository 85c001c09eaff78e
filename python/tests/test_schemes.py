"""The schemes: layouts, outputs that are inputs, and what is said of wrong batches."""

import dataclasses
import pickle
import threading
import unittest

import numpy as np
from support import TestCase, needs_torch, random_batch, torch

import reweight
from reweight import Batch

TOKENS = "role span_ids ref_energy entropy old_logprobs logprobs ref_logprobs ref_entropy advantages values".split()


def calls(b):
    """Every scheme with several options: the names of what it may write over, and the call."""
    rewards = np.array(b.ref_entropy) if isinstance(b.ref_entropy, np.ndarray) else b.ref_entropy.clone()
    weights = reweight.actfocus(b, alpha=0.4).weights
    signals = ("energy", "ref_entropy", "surprisal", "log_ratio")
    for signal, array in zip(signals, ("ref_energy", "ref_entropy", "old_logprobs", "ref_logprobs")):
        yield f"actfocus {signal}", array, lambda out=None, s=signal: reweight.actfocus(b, signal=s, beta=1.5, out=out)
    for scope in ("group", "trajectory", "batch"):
        yield f"aem {scope}", "entropy", lambda out=None, s=scope: reweight.aem(b, scope=s, guard=0, out=out)
    yield "grpo", "values", lambda out=None: reweight.grpo(b, out=out)
    yield "whiten", "values", lambda out=None: reweight.whiten(b.values, b.role, out=out)
    yield "gae", None, lambda out=None: reweight.gae(b, rewards, gamma=0.9, lambda_=0.8)
    for aggregation in ("token_mean", "seq_mean_token_sum", "seq_mean_token_mean", "seq_mean_token_sum_norm"):
        for w in (None, weights):
            name = f"loss {aggregation} {'with' if w is not None else 'without'} weights"
            yield name, "logprobs", lambda out=None, a=aggregation, w=w: reweight.loss(b, w, aggregation=a, out=out)


def flat(result):
    """The arrays and numbers of a result."""
    return list(result) if isinstance(result, tuple) else [result]


class Layouts(TestCase):
    def test_padded_is_packed(self):
        """A padded batch has the bits of the packed batch with the same tokens."""
        padded = random_batch(3, padded=True)
        B, T = padded["role"].shape
        packed = {k: v.reshape(-1) for k, v in padded.items()}
        packed["seq_offsets"] = np.arange(B + 1) * T
        for (name, _, of_padded), (_, _, of_packed) in zip(calls(Batch(**padded)), calls(Batch(**packed))):
            for got, want in zip(flat(of_padded()), flat(of_packed())):
                if isinstance(got, np.ndarray) and got.shape:
                    self.assertEqual(got.shape, (B, T), name)
                    got = got.reshape(-1)
                self.assertBits(got, want, name)

    def test_padding_does_not_matter(self):
        """Without padding a batch has the same advantages and weights, and nearly the same sums."""
        packed = random_batch(4)
        offsets = packed["seq_offsets"]
        lengths = np.diff(offsets)
        wide = {k: v for k, v in packed.items() if k in ("group_ids", "rewards")}
        there = np.arange(lengths.max() + 3) < lengths[:, None]
        for name in TOKENS:
            array = np.zeros(there.shape, packed[name].dtype)
            array[there] = packed[name]
            array[~there] = {"role": 0, "span_ids": -1}.get(name, 123)
            wide[name] = array
        for (name, _, of_padded), (_, _, of_packed) in zip(calls(Batch(**wide)), calls(Batch(**packed))):
            for got, want in zip(flat(of_padded()), flat(of_packed())):
                if isinstance(got, np.ndarray) and got.shape:
                    self.assertTrue((got[~there] == (1 if name.startswith("aem") else 0)).all(), name)
                    got = got[there]
                if "norm" in name:
                    continue  # the longest trajectory is longer
                self.assertNear(got, want, 1e-5, 1e-6)

    @needs_torch
    def test_tensors(self):
        for padded in (False, True):
            arrays = random_batch(5, padded=padded)
            tensors = {k: torch.from_numpy(v.copy()) for k, v in arrays.items()}
            for (name, _, of_numpy), (_, _, of_torch) in zip(calls(Batch(**arrays)), calls(Batch(**tensors))):
                for got, want in zip(flat(of_torch()), flat(of_numpy())):
                    if isinstance(want, np.ndarray):
                        self.assertIsInstance(got, torch.Tensor, name)
                    else:
                        self.assertNotIsInstance(got, torch.Tensor, name)
                    self.assertBits(got, want, name)

    def test_results_can_be_pickled(self):
        for name, _, call in calls(Batch(**random_batch(6))):
            result = call()
            again = pickle.loads(pickle.dumps(result))
            self.assertIs(type(again), type(result))
            for got, want in zip(flat(again), flat(result)):
                self.assertBits(got, want, name)

    def test_named_results(self):
        b = Batch(**random_batch(6))
        result = reweight.actfocus(b)
        action = b.role == reweight.ACTION
        self.assertEqual(result.actions, action.sum())
        self.assertIsInstance(result.actions, int)
        energy = b.ref_energy[action].astype(np.float64)
        self.assertNear(result.mean, energy.mean())
        self.assertNear(result.sigma, np.sqrt(energy.var() + 1e-8))
        result = reweight.loss(b)
        response = b.role > 0
        self.assertEqual(result.tokens, response.sum())
        self.assertEqual(result.weight_sum, response.sum())
        d = (b.logprobs.astype(np.float64) - b.old_logprobs)[response]
        self.assertNear(result.mean_log_ratio, d.mean(), 1e-5, 1e-6)
        self.assertGreater(result.kl, 0)
        b.ref_logprobs = None
        self.assertEqual(reweight.loss(b).kl, 0)


class Outputs(TestCase):
    def test_out(self):
        """out is what is returned, and has the same bits, where it is an input as well."""
        for padded in (False, True):
            arrays = random_batch(8, padded=padded)
            for name, over, call in calls(Batch(**{k: v.copy() for k, v in arrays.items()})):
                if over is None:
                    continue
                want = flat(call())
                got = flat(call(np.full(arrays["role"].shape, 7, np.float32)))
                for a, w in zip(got, want):
                    self.assertBits(a, w, name)
            for i, (name, over, _) in enumerate(list(calls(Batch(**arrays)))):
                if over is None:
                    continue
                b = Batch(**{k: v.copy() for k, v in arrays.items()})
                call = list(calls(b))[i][2]
                want = flat(call())
                out = getattr(b, over)
                got = flat(call(out))
                self.assertTrue(any(a is out for a in got), name)
                for a, w in zip(got, want):
                    self.assertBits(a, w, name)

    def test_gae(self):
        arrays = random_batch(9)
        b = Batch(**arrays)
        rewards = arrays["entropy"]
        want = reweight.gae(b, rewards)
        r = rewards.copy()
        got = reweight.gae(b, r, out=reweight.GAEResult(advantages=r))
        self.assertIs(got.advantages, r)
        self.assertIsNone(got.returns)
        self.assertBits(r, want.advantages)
        returns = np.empty_like(r)
        got = reweight.gae(b, rewards, out=reweight.GAEResult(None, returns))
        self.assertIs(got.returns, returns)
        self.assertBits(returns, want.returns)
        self.assertBits(got.advantages, want.advantages)
        self.assertTypeError("out is a ndarray, want a GAEResult", lambda: reweight.gae(b, rewards, out=r))

    def test_wrong_out(self):
        b = Batch(**random_batch(9))
        T = len(b.role)
        self.assertInputError(
            "out",
            f"out has the shape [3], want [{T}], one element per token",
            lambda: reweight.aem(b, out=np.zeros(3, np.float32)),
        )
        self.assertTypeError("out has dtype float64, want float32", lambda: reweight.grpo(b, out=np.zeros(T)))


class Errors(TestCase):
    def setUp(self):
        self.arrays = random_batch(10)
        self.padded = random_batch(10, padded=True)

    def batch(self, padded=False, **changes):
        arrays = {k: v.copy() for k, v in (self.padded if padded else self.arrays).items()}
        return Batch(**{**arrays, **changes})

    def test_arrays_that_are_missing(self):
        b = Batch(role=np.ones(4, np.uint8))
        for name, call in (
            ("ref_energy", lambda: reweight.actfocus(b)),
            ("old_logprobs", lambda: reweight.actfocus(b, signal="log_ratio")),
            ("logprobs", lambda: reweight.loss(b)),
        ):
            self.assertInputError(name, f"{name} is None, want the shape [4], one element per token", call)
        zeros = np.zeros(4, np.float32)
        for call in (lambda: reweight.aem(b), lambda: reweight.grpo(b), lambda: reweight.gae(b, zeros)):
            self.assertInputError(
                "seq_offsets", "seq_offsets is None, want where each trajectory begins: role has the shape [4]", call
            )
        b.seq_offsets = np.array([0, 4])
        self.assertInputError(
            "group_ids", "group_ids is None, want the shape [1], one element per trajectory", lambda: reweight.grpo(b)
        )

    def test_layouts(self):
        self.assertInputError(
            "seq_offsets",
            "seq_offsets is set, want None: role has the shape [12, 60], which says where trajectories begin",
            lambda: reweight.grpo(self.batch(padded=True, seq_offsets=np.arange(13))),
        )
        self.assertInputError(
            "seq_offsets",
            "seq_offsets has the shape [1], want [S+1], at least 2 elements, for one trajectory",
            lambda: reweight.grpo(self.batch(seq_offsets=np.arange(1))),
        )
        self.assertInputError(
            "role",
            "role has the shape [2, 2, 2], want [T] of a packed batch or [B, T] of a padded one",
            lambda: reweight.actfocus(Batch(role=np.zeros((2, 2, 2), np.uint8))),
        )
        self.assertInputError(
            "role",
            "role has the shape [0, 4], want at least 1 trajectory",
            lambda: reweight.grpo(Batch(role=np.zeros((0, 4), np.uint8))),
        )
        self.assertInputError(
            "rewards",
            "rewards has the shape [11], want [12], one element per trajectory",
            lambda: reweight.grpo(self.batch(rewards=np.zeros(11, np.float32))),
        )
        # An array that is not read may be anything.
        reweight.actfocus(self.batch(rewards="nothing", seq_offsets=None, entropy=3))

    def test_elements(self):
        """The library's sentences, with the place in the caller's layout; nothing is written."""
        T = len(self.arrays["role"])
        out = np.full(T, 7, np.float32)
        offsets = self.arrays["seq_offsets"].copy()
        offsets[3] = offsets[4] + 1
        role = self.arrays["role"].copy()
        role[5] = 3
        energy = self.arrays["ref_energy"].copy()
        t = int(np.flatnonzero(self.arrays["role"] == 2)[1])
        energy[t] = np.nan
        spans = self.arrays["span_ids"].copy()
        first = int(np.flatnonzero(spans == 0)[0])
        spans[first] = 4
        rewards = self.arrays["rewards"].copy()
        rewards[2] = np.inf
        for argument, text, call in (
            (
                "seq_offsets",
                f"seq_offsets[4] is {offsets[4]}, below the {offsets[3]} before it",
                lambda: reweight.grpo(self.batch(seq_offsets=offsets), out=out),
            ),
            ("role", "role[5] is 3, want 0, 1 or 2", lambda: reweight.actfocus(self.batch(role=role), out=out)),
            (
                "ref_energy",
                f"ref_energy[{t}] is NaN at an action token, want a finite number",
                lambda: reweight.actfocus(self.batch(ref_energy=energy), out=out),
            ),
            (
                "span_ids",
                f"span_ids[{first}] is 4, want -1 to 0: spans are numbered from 0 in the order in which they appear",
                lambda: reweight.aem(self.batch(span_ids=spans), out=out),
            ),
            (
                "rewards",
                "rewards[2] is +Inf, want a finite reward",
                lambda: reweight.grpo(self.batch(rewards=rewards), out=out),
            ),
        ):
            self.assertInputError(argument, text, call)
            self.assertTrue((out == 7).all(), argument)

    def test_options_of_zeros(self):
        """What nobody would ask for is refused with the names of Python. One zero is a wish."""
        b = self.batch()
        for argument, text, call in (
            (
                "alpha",
                "alpha is 0 like beta, want one that is not 0, as in the defaults of actfocus",
                lambda: reweight.actfocus(b, alpha=0, beta=0),
            ),
            (
                "lambda_",
                "lambda_ is 0 like guard, want one that is not 0, as in the defaults of aem",
                lambda: reweight.aem(b, lambda_=0, guard=0),
            ),
            (
                "gamma",
                "gamma is 0 like lambda_, want one that is not 0, as in the defaults of gae",
                lambda: reweight.gae(b, b.advantages, gamma=0, lambda_=0),
            ),
            (
                "clip_low",
                "clip_low is 0 like clip_high, want one that is not 0, as in the defaults of reweight.PPO",
                lambda: reweight.loss(b, policy=reweight.PPO(clip_low=0, clip_high=0)),
            ),
            (
                "clip_low",
                "clip_low is 0 like clip_high, want one that is not 0, as in the defaults of reweight.GSPO",
                lambda: reweight.loss(b, policy=reweight.GSPO(clip_low=0, clip_high=0)),
            ),
            (
                "clip_low",
                "clip_low is 0 like clip_high, want one that is not 0, as in the defaults of reweight.GRPOS",
                lambda: reweight.loss(b, policy=reweight.GRPOS(clip_low=0, clip_high=0)),
            ),
            (
                "power_pos",
                "power_pos is 0 like decay_pos, power_neg and decay_neg, want one that is not 0, as in the defaults of reweight.VESPO",
                lambda: reweight.loss(b, policy=reweight.VESPO(0, 0, 0, 0)),
            ),
            (
                "ratio_cap",
                "ratio_cap is 0, want a finite number above 0",
                lambda: reweight.loss(b, policy=reweight.DPPOTV(ratio_cap=0)),
            ),
            ("policy", 'policy is "dro", want reweight.DRO(beta=...): it has no default', lambda: reweight.loss(b, policy="dro")),
            (
                "cov_high",
                "cov_high is 0.5, want at least the 1 of cov_low",
                lambda: reweight.loss(b, policy=reweight.ClipCov(cov_high=0.5)),
            ),
            (
                "weights",
                "weights is given, want none: this policy has no weights of tokens",
                lambda: reweight.loss(b, b.advantages, policy="gmpo"),
            ),
            ("seed", "seed is 9223372036854775808, want an integer of 64 bits", lambda: reweight.loss(b, policy=reweight.ClipCov(seed=1 << 63))),
            ("kl", 'kl is "k4", want one of [k3 k2 k1 abs k3+ k1+ abs+]', lambda: reweight.loss(b, kl="k4")),
            (
                "span_ids",
                "span_ids is None, want the shape [{}], one element per token".format(len(b.role)),
                lambda: reweight.loss(dataclasses.replace(b, span_ids=None), policy=reweight.GSPO(sequence="span")),
            ),
        ):
            self.assertInputError(argument, text, call)
        self.assertTrue((reweight.aem(b, lambda_=0) == 1).all())
        self.assertEqual(set(reweight.actfocus(b, beta=0).weights[b.role == 2]), {1})

    def test_far_policies(self):
        """Every loss and its gradient are finite, however far the policy has moved from the old one."""
        role, offsets = np.ones(2, np.uint8), np.array([0, 2])
        for policy in reweight._generated.POLICIES:
            for far in (100, -100, 500, -500, 1e4, -1e4):
                for advantage in (1, -1):
                    new = np.array([-0.5 + min(far, 0), -0.5], np.float32)
                    old = np.array([-0.5 - max(far, 0), -0.5], np.float32)
                    b = Batch(role, seq_offsets=offsets, logprobs=new, old_logprobs=old, advantages=np.full(2, advantage, np.float32))
                    r = reweight.loss(b, policy=reweight.DRO(beta=0.5) if policy == "dro" else policy)
                    self.assertTrue(np.isfinite(r.loss) and np.isfinite(r.grad).all(), (policy, far, advantage, r))

    def test_elements_of_padded_batches(self):
        role = self.padded["role"].copy()
        role[3, 4] = 9
        self.assertInputError(
            "role", "role[3, 4] is 9, want 0, 1 or 2", lambda: reweight.actfocus(self.batch(padded=True, role=role))
        )
        rewards = self.padded["rewards"].copy()
        rewards[2] = np.nan
        self.assertInputError(
            "rewards",
            "rewards[2] is NaN, want a finite reward",
            lambda: reweight.grpo(self.batch(padded=True, rewards=rewards)),
        )
        entropy = self.padded["entropy"].copy()
        b, t = (int(i[0]) for i in np.nonzero(self.padded["role"] == 2))
        entropy[b, t] = np.inf
        span = self.padded["span_ids"][b, t]
        self.assertInputError(
            "entropy",
            f"entropy[{b}, {t}] is +Inf in span {span}, want a finite number of at most 1e+30",
            lambda: reweight.aem(self.batch(padded=True, entropy=entropy)),
        )

    def test_options(self):
        b = self.batch()
        for argument, text, call in (
            ("alpha", "alpha is 2, want 0 to 1", lambda: reweight.actfocus(b, alpha=2)),
            ("beta", "beta is -1, want 0 to 3.4e38", lambda: reweight.actfocus(b, beta=-1)),
            ("lambda_", "lambda_ is 81, want 0 to 80", lambda: reweight.aem(b, lambda_=81)),
            ("lambda_", "lambda_ is 1.5, want 0 to 1", lambda: reweight.gae(b, b.values, lambda_=1.5)),
            (
                "dual_clip",
                "dual_clip is 1, want a finite number above 1, or 0 for none",
                lambda: reweight.loss(b, policy=reweight.PPO(dual_clip=1)),
            ),
            ("norm_length", "norm_length is -1, want at least 0", lambda: reweight.loss(b, norm_length=-1)),
            (
                "signal",
                'signal is "heat", want one of [energy ref_entropy surprisal log_ratio]',
                lambda: reweight.actfocus(b, signal="heat"),
            ),
            ("scope", 'scope is "all", want one of [group trajectory batch]', lambda: reweight.aem(b, scope="all")),
            (
                "aggregation",
                'aggregation is "token-mean", want one of '
                "[token_mean seq_mean_token_sum seq_mean_token_mean seq_mean_token_sum_norm]",
                lambda: reweight.loss(b, aggregation="token-mean"),
            ),
        ):
            self.assertInputError(argument, text, call)
        for name in ("kl", "kl_coef", "norm_length", "policy"):  # aggregation alone has a meaning of None
            with self.subTest(name), self.assertRaisesRegex(TypeError, f"^{name} is None, want"):
                reweight.loss(b, **{name: None})
        for policy, made in ((reweight.GSPO, "reweight.GSPO()"), (reweight.DRO, "reweight.DRO(beta=...)")):
            text = f"policy is the class {policy.__name__}, want an object of it: {made}"
            self.assertTypeError(text, lambda: reweight.loss(b, policy=policy))

    def test_too_few_tokens_to_whiten(self):
        """A single response token has nothing to be compared with: it gets 0, as masked ones do."""
        x, zero = np.array([np.nan, 0.1, np.nan], np.float32), np.zeros(3, np.float32)
        for role in (np.zeros(3, np.uint8), np.array([0, 1, 0], np.uint8)):
            self.assertBits(reweight.whiten(x, role), zero)
            batch = reweight.Batch(
                role, np.array([0, 0, 3]), np.array([4, 4], np.int32), np.array([1, 0.1], np.float32), token_rewards=x,
                values=x, reward_parts=np.array([[1, 0.1], [0.7, 0.2]], np.float32),
            )  # fmt: skip
            for name in ("reinforce++", "reinforce++_baseline", "gdpo", "gae"):
                with self.subTest(name):
                    self.assertBits(reweight.scheme(name).credit(batch).advantages, zero)

    def test_batches_that_grow(self):
        """A thread's scratch memory follows."""
        lengths = []

        def run():
            for n in (10, 19):
                role = np.ones((1, n), np.uint8)
                spans = np.arange(n, dtype=np.int32).reshape(1, n)
                b = Batch(role, span_ids=spans, entropy=spans.astype(np.float32))
                lengths.append(reweight.aem(b, scope="batch").size)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        self.assertEqual(lengths, [10, 19])

    def test_no_tokens(self):
        empty = [(np.zeros(0, np.uint8), np.zeros(0, np.float32))]
        if torch is not None:
            empty.append((torch.zeros(0, dtype=torch.uint8), torch.zeros(0)))
        for role, x in empty:
            b = Batch(role=role, ref_energy=x, logprobs=x, old_logprobs=x, advantages=x)
            self.assertEqual(reweight.actfocus(b).actions, 0)
            self.assertEqual(reweight.loss(b, x).loss, 0)
            self.assertEqual(reweight.masked_moments(x, role).n, 0)


if __name__ == "__main__":
    unittest.main()
