"""The kernels one by one."""

import unittest

import numpy as np
from support import TestCase, f32, random_batch

import reweight
from reweight import MinMax


def normal(n, seed=0):
    return np.random.default_rng(seed).normal(size=n).astype(np.float32)


class Kernels(TestCase):
    def setUp(self):
        self.arrays = random_batch(11)
        self.role = self.arrays["role"]
        self.x = self.arrays["values"]

    def test_masked_moments(self):
        for roles in ((1, 2), (2,), (0,), (0, 1), ()):
            chosen = np.isin(self.role, roles)
            x = self.x[chosen].astype(np.float64) - 0.25
            got = reweight.masked_moments(self.x, self.role, roles, shift=0.25)
            self.assertEqual(got.n, len(x))
            self.assertNear(got.sum, x.sum(), 1e-6, 1e-6)
            self.assertNear(got.squares, (x**2).sum(), 1e-6, 1e-6)
        self.assertInputError(
            "roles", "roles has 3, want 0, 1 and 2", lambda: reweight.masked_moments(self.x, self.role, (3,))
        )
        self.assertInputError(
            "shift",
            "shift is +Inf, want a finite number",
            lambda: reweight.masked_moments(self.x, self.role, shift=float("inf")),
        )

    def test_actfocus_weights(self):
        b = reweight.Batch(**self.arrays)
        want = reweight.actfocus(b, alpha=0.3, beta=2)
        got = reweight.actfocus_weights(b.ref_energy, self.role, want.mean, want.sigma, alpha=0.3, beta=2)
        self.assertBits(got, want.weights)
        out = b.ref_energy.copy()
        self.assertIs(reweight.actfocus_weights(out, self.role, want.mean, want.sigma, alpha=0.3, beta=2, out=out), out)
        self.assertBits(out, want.weights)
        self.assertInputError(
            "sigma", "sigma is -1, want 0 to 3.4e38", lambda: reweight.actfocus_weights(self.x, self.role, 0, -1)
        )

    def test_span_means(self):
        x, offsets = normal(50), np.array([0, 10, 10, 37], np.int32)
        got = reweight.span_means(x, offsets)
        self.assertNear(got[[0, 2]], [x[:10].mean(dtype=np.float64), x[10:37].mean(dtype=np.float64)], 1e-6)
        self.assertTrue(np.isnan(got[1]))
        out = np.empty(3, np.float32)
        self.assertIs(reweight.span_means(x, offsets, out=out), out)
        self.assertBits(out, got)
        for wrong, text in (
            ([-1, 3], "offsets[0] is -1, want at least 0"),
            ([0, 5, 4], "offsets[2] is 4, below the 5 before it"),
            ([0, 51], "offsets[1] is 51, want at most 50, the elements of x"),
            ([], "offsets has the shape [0], want one dimension of at least 1 element"),
        ):
            self.assertInputError("offsets", text, lambda: reweight.span_means(x, np.array(wrong, np.int32)))

    def test_min_max(self):
        x, offsets = normal(50), np.array([0, 10, 10, 37], np.int32)
        got = reweight.min_max(x, offsets)
        self.assertBits(got.lo, f32([x[:10].min(), np.inf, x[10:37].min()]))
        self.assertBits(got.hi, f32([x[:10].max(), -np.inf, x[10:37].max()]))
        out = MinMax(np.empty(3, np.float32), np.empty(3, np.float32))
        reweight.min_max(x, offsets, out=out)
        self.assertBits(out.hi, got.hi)
        self.assertInputError(
            "out.hi",
            "out.hi has the shape [2], want [3], one element per group",
            lambda: reweight.min_max(x, offsets, out=MinMax(out.lo, np.empty(2, np.float32))),
        )
        self.assertTypeError("out is a tuple, want a MinMax", lambda: reweight.min_max(x, offsets, out=(out.lo, out.hi)))

    def test_exp_scale(self):
        x = normal(300)
        lo = float(x.min())
        want = np.exp(-2.0 * (x.astype(np.float64) - lo))
        self.assertNear(reweight.exp_scale(x, lo, 2.0), want / want.mean(), 1e-6)
        out = x.copy()
        self.assertIs(reweight.exp_scale(out, lo, 2.0, out=out), out)
        self.assertBits(out, reweight.exp_scale(x, lo, 2.0))
        self.assertInputError("rate", "rate is -1, want 0 to 3.4e38", lambda: reweight.exp_scale(x, 0, -1))
        self.assertInputError("x", "x is empty, want at least 1 element", lambda: reweight.exp_scale(x[:0], 0, 1))
        self.assertInputError(
            "x", "x has the shape [3, 100], want one dimension", lambda: reweight.exp_scale(x.reshape(3, 100), 0, 1)
        )

    def test_multiply(self):
        a, b = normal(1000), normal(1000, 1)
        self.assertBits(reweight.multiply(a, b), a * b)
        self.assertBits(reweight.multiply(a.reshape(10, 100), b.reshape(10, 100)), (a * b).reshape(10, 100))
        for out in (a, b):
            want = a * b
            self.assertIs(reweight.multiply(a, b, out=out), out)
            self.assertBits(out, want)
        self.assertInputError(
            "b", "b has the shape [999], want [1000], one element per element of a", lambda: reweight.multiply(a, b[1:])
        )

    def test_surrogate(self):
        b = reweight.Batch(**self.arrays)
        weights = reweight.actfocus(b).weights
        for w in (None, weights):
            loss = reweight.loss(b, w)
            got = reweight.surrogate(b.logprobs, b.old_logprobs, b.advantages, b.role, w, scale=1 / loss.weight_sum)
            self.assertBits(got.grad, loss.grad)
            self.assertEqual(got.tokens, loss.tokens)
            self.assertNear(got.loss / loss.weight_sum, loss.loss)
            self.assertEqual(got.clipped / got.tokens, loss.clip_fraction)
            self.assertNear(got.log_ratio / got.tokens, loss.mean_log_ratio)
            out = b.logprobs.copy()
            other = reweight.surrogate(out, b.old_logprobs, b.advantages, b.role, w, scale=1 / loss.weight_sum, out=out)
            self.assertIs(other.grad, out)
            self.assertBits(out, got.grad)
        self.assertInputError(
            "scale",
            "scale is NaN, want a number that float32 can hold",
            lambda: reweight.surrogate(b.logprobs, b.old_logprobs, b.advantages, b.role, scale=float("nan")),
        )


if __name__ == "__main__":
    unittest.main()
