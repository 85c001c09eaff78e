"""Random calls of every function of the backends: the results on the GPU are those of the C
library to the last bit, and so are the errors."""

import ctypes
import threading
import unittest

import numpy as np
from comparing import EDGES, GPU, ROUNDS, Comparison, Draws
from reweight._errors import InputError
from reweight._generated import (
    ActFocusOptions,
    ActFocusResult,
    AEMOptions,
    Batch,
    GAEOptions,
    GRPOOptions,
    Ids,
    LossResult,
    Moments,
    RowGradientOptions,
    Rows,
    Stats,
    SurrogateSums,
)


class Test(Comparison):
    # ---- Rows of logits ----

    def logits(self, d, dtypes=3):
        """Draws rows with gaps between them, as an array of bytes, and their ids."""
        dtype = d.to(dtypes - 1)
        vocab = d.one(1 + d.to(300), 1 + d.to(3000), 128 * d.to(10) + 1 + d.to(2), 1024 + d.to(40) - 20)
        rows = 1 + d.to(5 if vocab <= 300 else 2)
        stride = vocab + d.one(0, 0, d.to(20))
        x = d.random.normal(size=(rows, stride)).astype(np.float32) * np.float32(d.one(1, 3, 30))
        kind = d.to(9)
        if kind == 0:
            x += np.cumsum(d.random.random((rows, stride)) < 0.02, axis=1) * np.float32(10)
        elif kind == 1:
            x[d.random.random((rows, stride)) < 0.5] = -np.inf
        elif kind == 2:
            x *= np.float32(1e6)
        elif kind == 3:
            x = d.floats(rows, stride)
        elif kind == 4:
            x[d.random.random((rows, stride)) < 0.3] = -1e9
        elif kind == 5:
            x[...] = 2.5
        elif kind == 6:
            x[d.to(rows - 1), d.to(vocab - 1)] = d.random.choice(EDGES)
        if dtype == 1:
            bits = x.view(np.uint32) >> 16
            data = np.where(np.isnan(x), 0x7FC0, bits).astype(np.uint16)
        else:
            with np.errstate(over="ignore"):
                data = x.astype(np.float16 if dtype == 2 else np.float32)
        ids = d.random.integers(vocab, size=rows).astype(d.one(np.int32, np.int64))
        if d.error():
            ids[d.to(rows - 1)] = d.one(-1, vocab, vocab + 5, -(1 << 31), (1 << 31) - 1)
        # The last row has no gap behind it.
        data = data.reshape(-1)[: (rows - 1) * stride + vocab].copy()
        return data, Rows(0, rows, vocab, stride, dtype), ids

    def temperature(self, d):
        if d.to(1):
            return 1.0
        if d.to(7) == 0 and d.error():
            return d.one(0.0, -1.0, float("nan"), float("inf"))
        return d.one(0.7, 0.7, 1.3, 30.0, 1e-5, 0.5**18, 0.5**19)

    def rows_at(self, on, data, rows, past):
        """Returns the rows with the address of data, so many elements past a multiple of 256
        bytes."""
        return Rows(on.place(data, past * data.itemsize), rows.rows, rows.vocab, rows.stride, rows.dtype)

    def token_stats(self, d):
        data, rows, ids = self.logits(d)
        temperature, past = self.temperature(d), d.to(8)
        outputs = [np.full(rows.rows, 1.5, np.float32) if d.to(3) else None for _ in range(4)]
        if all(o is None for o in outputs):
            outputs[d.to(2)] = np.full(rows.rows, 1.5, np.float32)

        def call(on):
            dst = Stats(*[None if o is None else on.place(o) for o in outputs])
            chosen = Ids(on.place(ids), ids.dtype == np.int64) if outputs[2] is not None or d.wrong else Ids()
            on.backend.token_stats(dst, self.rows_at(on, data, rows, past), chosen, temperature, 1)

        return self.compare(call, [o for o in outputs if o is not None], spoiled=False)

    def test_token_stats(self):
        self.rounds(self.token_stats, 2 * ROUNDS)

    def row_gradient(self, d):
        data, rows, ids = self.logits(d, 2)
        temperature, past = self.temperature(d), d.to(8)
        n = rows.rows
        logprobs, entropy = np.empty(n, np.float32), np.empty(n, np.float32)
        try:
            dst = Stats(None, entropy.ctypes.data, logprobs.ctypes.data)
            chosen = Ids(ids.ctypes.data, ids.dtype == np.int64)
            self.host.backend.token_stats(dst, self.rows_at(self.host, data, rows, 0), chosen, temperature, 1)
        except InputError:
            logprobs, entropy = d.floats(n), d.floats(n)
        grad = d.floats(n)
        grad[d.random.random(n) < 0.2] = 0
        bonus = d.one(0.0, 0.0, 0.01, -3.0)
        grad_entropy = d.one(None, d.floats(n))
        if grad_entropy is not None:
            grad_entropy[d.random.random(n) < 0.3] = bonus
        if d.to(7) == 0 and d.error():
            bonus = d.one(float("nan"), float("inf"))
        if bonus == 0 and grad_entropy is None and d.to(1):
            entropy = None
        lse = d.one(None, None, d.floats(n))
        if lse is not None:
            ids[d.random.random(n) < 0.3] = -1
        out = data if d.to(1) else np.full(rows.rows * rows.vocab, 7, data.dtype)

        def call(on):
            logits = self.rows_at(on, data, rows, past)
            dst = logits if out is data else Rows(on.place(out), n, rows.vocab, 0, rows.dtype)
            floats = [0 if x is None else on.place(x) for x in (logprobs, entropy, grad, grad_entropy, lse)]
            chosen = Ids(on.place(ids), ids.dtype == np.int64)
            on.backend.row_gradient(dst, logits, chosen, *floats, RowGradientOptions(temperature, bonus), 1)

        return self.compare(call, [out], spoiled=False)

    def test_row_gradient(self):
        self.rounds(self.row_gradient, 2 * ROUNDS)

    # ---- Tokens ----

    def multiply(self, d):
        a = d.floats(d.tokens())
        b = d.floats(a.size)
        out = d.one(a, b, np.zeros_like(a))

        def call(on):
            at = {id(x): on.place(x) for x in (a, b, out)}
            on.backend.multiply(at[id(out)], at[id(a)], at[id(b)], a.size)

        return self.compare(call, [out])

    def test_multiply(self):
        for seed in range(10):
            self.assertIsNone(self.multiply(Draws(seed)))

    def masked_moments(self, d):
        x = d.floats(d.tokens())
        role, shift, roles = d.roles(x.size), d.number(1.5, 0, -3), d.to(7)
        result = np.zeros(3, np.float64)

        def call(on):
            on.backend.masked_moments(on.place(result), on.place(x), on.place(role), x.size, roles, shift)

        return self.compare(call, [result], spoiled=False)

    def test_masked_moments(self):
        self.rounds(self.masked_moments)

    def actfocus_options(self, d):
        return ActFocusOptions(d.number(0.1, 0, 1), d.number(0.5, 0, 1e-40), d.number(1e-8, 0), d.to(3))

    def actfocus(self, d):
        options, n = self.actfocus_options(d), d.tokens()
        role = d.roles(n)
        arrays = {name: d.finite(n) for name in ("ref_energy", "ref_entropy", "old_logprobs", "ref_logprobs")}
        of_signal = (("ref_energy",), ("ref_entropy",), ("old_logprobs",), ("old_logprobs", "ref_logprobs"))
        actions = np.flatnonzero(role == 2)
        if len(actions) and d.error():
            x = arrays[d.one(*of_signal[options.signal])]
            x[d.one(*actions)] = d.one(float("nan"), float("inf"), -float("inf"))
        result = np.zeros(3, np.float64)
        weights = d.one(np.zeros(n, np.float32), arrays[of_signal[options.signal][0]])

        def call(on):
            at = {name: on.place(x) for name, x in arrays.items()}
            b = Batch(tokens=n, role=on.place(role), **at)
            out = next((at[name] for name, x in arrays.items() if x is weights), None) or on.place(weights)
            on.backend.actfocus(on.place(result), out, b, options)

        return self.compare(call, [weights])

    def test_actfocus(self):
        self.rounds(self.actfocus, 3 * ROUNDS)

    def actfocus_weights(self, d):
        signal = d.floats(d.tokens())
        role, options = d.roles(signal.size), self.actfocus_options(d)
        mean, sigma = d.number(0.3, -2), d.number(2.5, 0, 1e-30)
        out = d.one(signal, np.zeros_like(signal))

        def call(on):
            x = on.place(signal)
            dst = x if out is signal else on.place(out)
            on.backend.actfocus_weights(dst, x, on.place(role), signal.size, mean, sigma, options)

        return self.compare(call, [out], spoiled=False)

    def test_actfocus_weights(self):
        self.rounds(self.actfocus_weights)

    def whiten(self, d):
        x = d.finite(0 if d.error() else 2 + d.tokens())
        role = d.roles(x.size)
        if x.size and d.to(3):
            role[:2] = 1
        responses = np.flatnonzero(role)
        if len(responses) > 1 and d.error():
            x[d.one(*responses)] = d.one(float("nan"), float("inf"))
        out = d.one(x, np.zeros_like(x))

        def call(on):
            at = on.place(x)
            on.backend.whiten(at if out is x else on.place(out), at, on.place(role), x.size)

        return self.compare(call, [out])

    def test_whiten(self):
        self.rounds(self.whiten)

    # ---- Spans and trajectories ----

    def span_means(self, d):
        x = d.floats(d.tokens())
        offsets = d.ranges(x.size)
        dst = np.zeros(len(offsets) - 1, np.float32)

        def call(on):
            on.backend.span_means(on.place(dst), dst.size, on.place(x), x.size, on.place(offsets))

        return self.compare(call, [dst], spoiled=False)

    def test_span_means(self):
        self.rounds(self.span_means)

    def min_max(self, d):
        x = d.floats(d.tokens())
        offsets = d.ranges(x.size)
        lo, hi = np.zeros(len(offsets) - 1, np.float32), np.zeros(len(offsets) - 1, np.float32)

        def call(on):
            on.backend.min_max(on.place(lo), on.place(hi), lo.size, on.place(x), x.size, on.place(offsets))

        return self.compare(call, [lo, hi], spoiled=False)

    def test_min_max(self):
        self.rounds(self.min_max)

    def exp_scale(self, d):
        x = d.floats(0 if d.error() else 1 + d.tokens())
        lo, rate = float(d.finite(1)[0]), d.number(d.one(1, 0.1, 30), 0)
        out = d.one(x, np.zeros_like(x))

        def call(on):
            at = on.place(x)
            on.backend.exp_scale(at if out is x else on.place(out), at, x.size, lo, rate)

        return self.compare(call, [out])

    def test_exp_scale(self):
        self.rounds(self.exp_scale)

    def aem(self, d):
        arrays = d.batch()
        n = arrays["role"].size
        arrays["entropy"] = np.abs(d.finite(n))
        spans = np.flatnonzero(arrays["span_ids"] >= 0)
        if len(spans) and d.error():
            arrays["entropy"][d.one(*spans)] = d.one(float("nan"), float("inf"), 1e31)
        options = AEMOptions(d.number(1, 0, 30), d.number(0.1, 0), d.to(2))
        factors = d.one(arrays["entropy"], np.zeros(n, np.float32))

        def call(on):
            b = self.batch_at(on, arrays)
            on.backend.aem((b.entropy or 0) if factors is arrays["entropy"] else on.place(factors), b, options)

        return self.compare(call, [factors])

    def test_aem(self):
        self.rounds(self.aem, 2 * ROUNDS)

    def test_most_spans(self):
        """Every token is a span of its own: there cannot be more of them."""
        n, entropy, factors = 70, Draws(0).floats(70), np.zeros(70, np.float32)
        arrays = {
            "role": np.ones(n, np.uint8),
            "seq_offsets": np.arange(n + 1),
            "span_ids": np.arange(n, dtype=np.int32),
            "entropy": np.abs(np.nan_to_num(entropy)),
        }

        def call(on):
            on.backend.aem(on.place(factors), self.batch_at(on, arrays), AEMOptions(1, 0.1, 2))

        self.assertIsNone(self.compare(call, [factors]))

    def grpo(self, d):
        arrays = d.batch()
        advantages = np.zeros(arrays["role"].size, np.float32)
        options = GRPOOptions(d.number(1e-6, 0), d.to(1))
        return self.compare(
            lambda on: on.backend.grpo(on.place(advantages), self.batch_at(on, arrays), options), [advantages]
        )

    def test_grpo(self):
        self.rounds(self.grpo)

    def gae(self, d):
        arrays = d.batch()
        n = arrays["role"].size
        arrays["values"], rewards = d.floats(n), d.floats(n)
        advantages, returns = d.one(rewards, np.zeros(n, np.float32)), d.one(None, np.zeros(n, np.float32))
        options = GAEOptions(d.number(1, 0.9, 0), d.number(1, 0.95, 0))

        def call(on):
            r = on.place(rewards)
            to = r if advantages is rewards else on.place(advantages)
            on.backend.gae(to, 0 if returns is None else on.place(returns), r, self.batch_at(on, arrays), options)

        return self.compare(call, [advantages] + ([] if returns is None else [returns]))

    def test_gae(self):
        self.rounds(self.gae)

    # ---- The clipped surrogate ----

    def policies(self, d, n):
        """Log-probabilities of two policies, whose ratios are not far from 1 mostly."""
        now = d.floats(n)
        with np.errstate(over="ignore", invalid="ignore"):
            old = now - d.random.choice(np.array([0, 0, 0.2, -0.2, 0.28, 20, -20, 20.000002], np.float32), size=n)
        return now, old.astype(np.float32)

    def surrogate(self, d):
        n = d.one(d.tokens(), 128 * d.to(40) + d.to(1))
        role = d.roles(n)
        now, old = self.policies(d, n)
        advantages, weights = d.floats(n), d.one(None, d.floats(n))
        options, scale = d.loss_options(), d.number(0.5, 1)
        grad, result = d.one(now, old, advantages, np.zeros(n, np.float32)), np.zeros(4, np.float64)

        def call(on):
            at = {id(x): on.place(x) for x in (now, old, advantages, grad)}
            w = 0 if weights is None else on.place(weights)
            inputs = [at[id(x)] for x in (now, old, advantages)]
            on.backend.surrogate(on.place(result), at[id(grad)], *inputs, w, on.place(role), n, scale, options)

        return self.compare(call, [grad, result], spoiled=False)

    def test_surrogate(self):
        self.rounds(self.surrogate)

    def loss(self, d):
        arrays = d.batch()
        n = arrays["role"].size
        arrays["logprobs"], arrays["old_logprobs"] = self.policies(d, n)
        arrays["advantages"] = d.floats(n)
        if d.to(1):
            arrays["ref_logprobs"] = d.floats(n)
        weights = d.one(None, d.finite(n))
        responses = np.flatnonzero(arrays["role"])
        if weights is not None and len(responses) and d.error():
            weights[d.one(*responses)] = d.one(float("nan"), float("inf"))
        options = d.loss_options()
        grad, result = d.one(arrays["logprobs"], np.zeros(n, np.float32)), np.zeros(7, np.float64)

        def call(on):
            b = self.batch_at(on, arrays)
            w = 0 if weights is None else on.place(weights)
            to = (b.logprobs or 0) if grad is arrays["logprobs"] else on.place(grad)
            on.backend.loss(on.place(result), to, w, b, options)

        return self.compare(call, [grad, result], spoiled=False)

    def test_loss(self):
        self.rounds(self.loss, 2 * ROUNDS)

    def test_threads(self):
        """Threads call the two devices at the same time."""
        failures = []

        def work(thread):
            try:
                self.local.gpu = GPU(self.driver, thread % 2)
                for seed in range(thread, ROUNDS, 8):
                    for trial in (self.token_stats, self.row_gradient, self.aem, self.loss):
                        draws = Draws(seed)
                        draws.wrong = False  # a status is of all threads
                        trial(draws)
            except BaseException as e:
                failures.append(e)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


class TestSizes(unittest.TestCase):
    def test_results(self):
        """The arrays of results above are as large as the structs that they stand for."""
        for struct, fields in ((Moments, 3), (ActFocusResult, 3), (SurrogateSums, 4), (LossResult, 7)):
            self.assertEqual(ctypes.sizeof(struct), 8 * fields)


if __name__ == "__main__":
    unittest.main()
