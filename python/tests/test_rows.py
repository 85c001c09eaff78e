"""token_stats and row_gradient on rows of every layout."""

import pickle
import unittest

import numpy as np
from support import TestCase, needs_torch, to_bf16, torch

import reweight
from reweight import TokenStats


def rows(*shape, seed=0):
    g = np.random.default_rng(seed)
    x = g.normal(scale=3, size=shape).astype(np.float32)
    x[g.random(shape) < 0.05] = -np.inf
    return x


def ids_for(x, dtype=np.int64, seed=1):
    return np.random.default_rng(seed).integers(0, x.shape[-1], x.shape[:-1]).astype(dtype)


def formula(x, ids, temperature=1.0):
    """The four results in float64."""
    x = x.astype(np.float64)
    lse = np.logaddexp.reduce(x, -1)
    z = x / temperature
    logp = z - np.logaddexp.reduce(z, -1)[..., None]
    p = np.exp(logp)
    entropy = -np.where(p > 0, p * np.where(p > 0, logp, 0), 0).sum(-1)
    return lse, entropy, np.take_along_axis(logp, ids[..., None], -1)[..., 0], np.log((p * p).sum(-1))


def all_stats(x, ids, **options):
    return reweight.token_stats(x, ids, log_sum_sq_probs=True, **options)


class Stats(TestCase):
    def test_formula(self):
        for temperature in (1.0, 0.7, 2.5):
            x = rows(20, 333)
            ids = ids_for(x)
            got = all_stats(x, ids, temperature=temperature)
            for a, b in zip(got, formula(x, ids, temperature)):
                self.assertNear(a, b, 1e-6, 1e-5)

    def test_rows_do_not_depend_on_their_neighbours(self):
        x = rows(4, 6, 130)
        ids = ids_for(x)
        got = all_stats(x, ids)
        self.assertEqual(got.lse.shape, (4, 6))
        for b in range(4):
            whole = all_stats(x[b], ids[b])
            self.assertBits(TokenStats(*(a[b] for a in got)).entropy, whole.entropy)
            for t in range(6):
                one = all_stats(x[b, t], ids[b, t, ...].reshape(()))
                for name in TokenStats._fields:
                    self.assertEqual(getattr(one, name).shape, ())
                    self.assertBits(getattr(one, name), getattr(got, name)[b, t], name)
                    self.assertBits(getattr(whole, name)[t], getattr(got, name)[b, t], name)

    def test_views(self):
        """Views have the bits of their copies."""
        x = rows(5, 7, 40)
        ids = ids_for(x)
        memory = rows(5, 7, 64, seed=3)
        views = {
            "all but the last": (x[:, :-1], ids[:, 1:]),
            "all but the first": (x[:, 1:], ids[:, 1:]),
            "every other trajectory": (x[::2], ids[::2]),
            "trajectories backwards": (x[::-1], ids[::-1]),
            "every other token": (x[:, ::2], ids[:, 3:]),
            "one token": (x[:, 2:3], ids[:, 2:3]),
            "one trajectory": (x[1:2, 2:], ids[1:2, 2:]),
            "rows with padding": (memory[..., :40], ids),
            "rows from the middle": (memory[:, 1:, 3:43], ids[:, :-1]),
            "tokens first": (x.transpose(1, 0, 2), ids.T),
            "one for all": (np.broadcast_to(x[:1], (5, 7, 40)), ids),
            "one row for all": (np.broadcast_to(x[:1, :1], (5, 1, 40)), ids[:, :1].copy()),
            "matrix with padding": (memory[0, :, :40], ids[0]),
            "every other row": (x[0, ::2], ids[0, ::2].copy()),
            "one logit": (x[:, :, 5:6], np.zeros((5, 7), np.int64)),
        }
        for name, (view, chosen) in views.items():
            with self.subTest(name):
                chosen = chosen.copy() if name == "tokens first" else chosen
                got = all_stats(view, chosen)
                want = all_stats(view.copy(), chosen.copy())
                for field in TokenStats._fields:
                    self.assertBits(getattr(got, field), getattr(want, field), field)

    def test_views_are_not_copied(self):
        """A row that is far from the one before it is read where it is."""
        x = rows(3, 4, 8)
        before = reweight.token_stats(x[:, :-1])
        x[1, 2, 5] += 1
        after = reweight.token_stats(x[:, :-1])
        self.assertEqual(np.argwhere(before.lse != after.lse).tolist(), [[1, 2]])

    @needs_torch
    def test_formats(self):
        x = rows(9, 200)
        ids = ids_for(x)
        for dtype in (torch.bfloat16, torch.float16):
            low = torch.from_numpy(x).to(dtype)
            got = all_stats(low, torch.from_numpy(ids))
            want = all_stats(low.float(), torch.from_numpy(ids))
            for field in TokenStats._fields:
                self.assertBits(getattr(got, field), getattr(want, field), field)
        view = torch.from_numpy(rows(3, 5, 16)).bfloat16()[:, :-1]
        self.assertFalse(view.is_contiguous())
        self.assertBits(reweight.token_stats(view).lse, reweight.token_stats(view.contiguous()).lse)

    def test_float16_of_numpy(self):
        x = rows(3, 50).astype(np.float16)
        self.assertBits(reweight.token_stats(x).lse, reweight.token_stats(x.astype(np.float32)).lse)

    def test_ids(self):
        x = rows(9, 60)
        wide = ids_for(x)
        want = reweight.token_stats(x, wide).logprobs
        self.assertBits(reweight.token_stats(x, wide.astype(np.int32)).logprobs, want)
        self.assertIsNone(reweight.token_stats(x).logprobs)

    def test_the_fourth_result_changes_no_other(self):
        x = rows(9, 3000)
        ids = ids_for(x)
        got, without = all_stats(x, ids), reweight.token_stats(x, ids)
        self.assertIsNone(without.log_sum_sq_probs)
        for field in TokenStats._fields[:3]:
            self.assertBits(getattr(got, field), getattr(without, field), field)
        alone = reweight.token_stats(x, out=TokenStats(log_sum_sq_probs=np.zeros(9, np.float32)))
        self.assertBits(alone.log_sum_sq_probs, got.log_sum_sq_probs)

    def test_workers(self):
        x = rows(300, 500)
        ids = ids_for(x)
        want = all_stats(x, ids, workers=1)
        for workers in (0, 2, 3, 7):
            got = all_stats(x, ids, workers=workers)
            for field in TokenStats._fields:
                self.assertBits(getattr(got, field), getattr(want, field), field)
        self.assertInputError("workers", "workers is -1, want at least 0", lambda: reweight.token_stats(x, workers=-1))

    def test_out(self):
        x = rows(6, 30)
        ids = ids_for(x)
        want = reweight.token_stats(x, ids)
        memory = np.full((3, 6), 7, np.float32)
        out = TokenStats(lse=memory[0], logprobs=memory[2])
        got = reweight.token_stats(x, ids, out=out)
        self.assertIs(got.lse, out.lse)
        self.assertIsNone(got.entropy)
        self.assertBits(memory, np.stack([want.lse, np.full(6, 7, np.float32), want.logprobs]))
        # ids are not read where logprobs is not wanted.
        got = reweight.token_stats(x, np.full(6, -1), out=TokenStats(entropy=memory[1]))
        self.assertBits(memory[1], want.entropy)
        self.assertIsNone(got.logprobs)

    def test_out_with_rows_apart(self):
        x = rows(3, 4, 20)
        want = reweight.token_stats(x)
        memory = np.full((3, 6), 7, np.float32)
        reweight.token_stats(x, out=TokenStats(lse=memory[:, 1:5]))
        self.assertBits(memory[:, 1:5], want.lse)
        self.assertTrue((memory[:, [0, 5]] == 7).all())

    def test_out_is_wrong(self):
        x = rows(6, 30)
        wrong = np.zeros(5, np.float32)
        self.assertTypeError("out is a dict, want a TokenStats", lambda: reweight.token_stats(x, out={"lse": wrong}))
        self.assertInputError(
            "out",
            "out has no output: lse, entropy, logprobs and log_sum_sq_probs are all None",
            lambda: reweight.token_stats(x, out=TokenStats()),
        )
        self.assertInputError(
            "out.entropy",
            "out.entropy has the shape [5], want [6], one element per row",
            lambda: reweight.token_stats(x, out=TokenStats(entropy=wrong)),
        )
        self.assertInputError(
            "ids",
            "ids is None, want the shape [6], one element per row, for out.logprobs",
            lambda: reweight.token_stats(x, out=TokenStats(logprobs=np.zeros(6, np.float32))),
        )

    def test_wrong_ids_are_named_and_nothing_is_written(self):
        x = rows(3, 4, 20)
        ids = ids_for(x)
        ids[2, 1] = 20
        out = TokenStats(*(np.full((3, 4), 7, np.float32) for _ in range(4)))
        for logits in (x, rows(3, 5, 20)[:, :-1]):
            self.assertInputError(
                "ids",
                "ids[2, 1] is 20, want 0 to 19, for rows of 20 logits",
                lambda: reweight.token_stats(logits, ids, out=out),
            )
            self.assertTrue(all((a == 7).all() for a in out))
        self.assertInputError(
            "ids",
            "ids[1] is -1, want 0 to 19, for rows of 20 logits",
            lambda: reweight.token_stats(x[0], np.array([0, -1, 0, 0])),
        )
        self.assertInputError(
            "ids",
            "ids is 20, want 0 to 19, for rows of 20 logits",
            lambda: reweight.token_stats(x[0, 0], np.array(20)),
        )

    def test_ids_apart(self):
        ids = np.zeros((3, 8), np.int64)
        self.assertInputError(
            "ids",
            "ids is not contiguous: for the shape [3, 4] its strides are [8, 2] elements",
            lambda: reweight.token_stats(rows(3, 4, 20), ids[:, ::2]),
        )
        self.assertInputError(
            "ids",
            "ids is not contiguous: for the shape [4] its strides are [2] elements",
            lambda: reweight.token_stats(rows(4, 20), ids[0, ::2]),
        )

    def test_temperature(self):
        x, row = rows(2, 3), np.zeros(2, np.float32)
        for value in (0.0, -1.0, 1e-300, 9e-31, 1.1e30, 1e300, float("inf"), float("nan")):
            for call in (
                lambda: reweight.token_stats(x, temperature=value),
                lambda: reweight.row_gradient(x, np.zeros(2, np.int64), row, row, temperature=value),
            ):
                with self.assertRaisesRegex(reweight.InputError, r"^temperature is \S+, want 1e-30 to 1e\+30$"):
                    call()
        for value in (1e-30, 1e30):
            self.assertTrue(np.isfinite(reweight.token_stats(x, np.array([0, 1]), temperature=value).logprobs).all())

    def test_no_rows(self):
        for shape in ((0, 5), (0, 3, 5), (3, 0, 5)):
            got = reweight.token_stats(np.zeros(shape, np.float32), np.zeros(shape[:-1], np.int64))
            self.assertEqual(got.logprobs.shape, shape[:-1])

    @needs_torch
    def test_no_rows_of_torch(self):
        got = reweight.token_stats(torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64))
        self.assertEqual(tuple(got.logprobs.shape), (0,))
        got = reweight.token_stats(torch.zeros(0, 5), out=TokenStats(lse=torch.zeros(0)))
        self.assertEqual(tuple(got.lse.shape), (0,))
        no_ids = torch.zeros(0, dtype=torch.int64)
        got = reweight.row_gradient(torch.zeros(0, 5), no_ids, torch.zeros(0), torch.zeros(0))
        self.assertEqual(tuple(got.shape), (0, 5))

    def test_results_are_tuples_that_can_be_pickled(self):
        got = reweight.token_stats(rows(6, 30))
        again = pickle.loads(pickle.dumps(got))
        self.assertIs(type(again), TokenStats)
        self.assertBits(again.lse, got.lse)
        try:
            reweight.token_stats(rows(6, 30), temperature=0)
        except reweight.InputError as e:
            self.assertEqual(str(pickle.loads(pickle.dumps(e))), str(e))


class Apart(TestCase):
    """Outputs that overlap each other or the logits are refused."""

    def test_stats(self):
        x, memory = rows(4, 5), np.zeros(6, np.float32)
        for argument, other, out in (
            ("out.entropy", "out.lse", TokenStats(memory[:4], memory[2:])),
            ("out.logprobs", "out.lse", TokenStats(memory[:4], None, memory[:4])),
            ("out.lse", "logits", TokenStats(x.reshape(-1)[:4])),
        ):
            want = f"{argument} overlaps {other}, want memory of its own"
            self.assertInputError(argument, want, lambda: reweight.token_stats(x, ids_for(x), out=out))
        memory = np.zeros(8, np.float32)
        reweight.token_stats(x, out=TokenStats(memory[:4], memory[4:]))

    def test_gradient(self):
        x = rows(5, 7)
        ids = ids_for(x)[1:]
        stats = reweight.token_stats(x[1:], ids)
        grad = np.ones(4, np.float32)
        want = "out overlaps logits, want memory of its own"
        self.assertInputError("out", want, lambda: reweight.row_gradient(x[1:], ids, stats.logprobs, grad, out=x[:-1]))
        reweight.row_gradient(x[1:], ids, stats.logprobs, grad, out=x[1:])


class Gradient(TestCase):
    def setUp(self):
        self.x = rows(8, 90)
        self.ids = ids_for(self.x)
        self.stats = reweight.token_stats(self.x, self.ids)
        g = np.random.default_rng(2)
        self.g = g.normal(size=8).astype(np.float32)
        self.gh = g.normal(size=8).astype(np.float32)

    def gradient(self, x=None, **options):
        x = self.x if x is None else x
        return reweight.row_gradient(x, self.ids, self.stats.logprobs, self.g, **options)

    def test_formula(self):
        z = self.x.astype(np.float64)
        logp = z - np.logaddexp.reduce(z, -1)[:, None]
        p = np.exp(logp)
        chosen = np.arange(90) == self.ids[:, None]
        of_l = self.g[:, None] * (chosen - p)
        with np.errstate(invalid="ignore"):
            of_h = np.where(p > 0, p * (logp + self.stats.entropy[:, None]), 0)
        self.assertNear(self.gradient(), of_l, 1e-5, 1e-6)
        want = of_l + 0.3 * of_h
        self.assertNear(self.gradient(entropy=self.stats.entropy, entropy_bonus=0.3), want, 1e-5, 1e-5)
        want = of_l + (0.3 - self.gh)[:, None] * of_h
        got = self.gradient(entropy=self.stats.entropy, entropy_bonus=0.3, grad_entropy=self.gh)
        self.assertNear(got, want, 1e-5, 1e-5)

    def test_parts(self):
        """With lse some columns have the bits that they have among all, and the chosen logit moves no other."""
        options = dict(entropy=self.stats.entropy, grad_entropy=self.gh, lse=self.stats.lse)
        want = self.gradient(**options)
        self.assertNear(want, self.gradient(entropy=self.stats.entropy, grad_entropy=self.gh), 1e-5, 1e-6)
        for part in (slice(0, 37), slice(37, 90)):
            here = np.ascontiguousarray(self.x[:, part])
            ids = np.where((self.ids >= part.start) & (self.ids < part.stop), self.ids - part.start, -1)
            got = reweight.row_gradient(here, ids, self.stats.logprobs, self.g, **options)
            self.assertBits(got, want[:, part])
        moved = self.x.copy()
        moved[np.arange(8), self.ids] += 1
        self.assertBits(self.gradient(moved, **options), want)
        none = self.ids.copy()
        none[5] = -1
        for ids, lse, problem in ((none, None, "is -1"), (none - 1, self.stats.lse, "is -2")):
            with self.assertRaisesRegex(reweight.InputError, problem):
                reweight.row_gradient(self.x, ids, self.stats.logprobs, self.g, lse=lse)

    def test_in_place(self):
        want = self.gradient()
        x = self.x.copy()
        self.assertIs(self.gradient(x, out=x), x)
        self.assertBits(x, want)

    def test_views(self):
        """The gradient of a view, in place and beside it; what is around it stays."""
        memory = rows(3, 5, 33, seed=4)
        ids = ids_for(memory)
        stats = reweight.token_stats(memory, ids)
        g = np.random.default_rng(2).normal(size=(3, 5)).astype(np.float32)
        part = np.s_[:, 1:, 2:]
        shifted = reweight.token_stats(memory[part], ids[:, 1:] % 31)
        want = reweight.row_gradient(memory[part].copy(), ids[:, 1:] % 31, shifted.logprobs, g[:, 1:])
        self.assertEqual(stats.lse.shape, g.shape)
        beside = memory.copy()
        reweight.row_gradient(memory[part], ids[:, 1:] % 31, shifted.logprobs, g[:, 1:], out=beside[part])
        inside = memory.copy()
        reweight.row_gradient(inside[part], ids[:, 1:] % 31, shifted.logprobs, g[:, 1:], out=inside[part])
        for got in (beside, inside):
            self.assertBits(got[part], want)
            got[part] = memory[part]
            self.assertBits(got, memory)

    @needs_torch
    def test_bfloat16(self):
        x = torch.from_numpy(self.x).bfloat16()
        ids = torch.from_numpy(self.ids)
        stats = reweight.token_stats(x, ids)
        g = torch.from_numpy(self.g)
        want = reweight.row_gradient(x.float(), ids, stats.logprobs, g)
        got = reweight.row_gradient(x, ids, stats.logprobs, g)
        self.assertBits(got.view(torch.int16), to_bf16(want.numpy()).view(np.int16))
        self.assertIs(reweight.row_gradient(x, ids, stats.logprobs, g, out=x), x)
        self.assertBits(x.view(torch.int16), got.view(torch.int16))

    def test_workers(self):
        want = self.gradient(workers=1)
        for workers in (0, 2, 5):
            self.assertBits(self.gradient(workers=workers), want)

    def test_errors(self):
        self.assertInputError(
            "entropy",
            "entropy is None, want the shape [8], one element per row, because entropy_bonus is not 0",
            lambda: self.gradient(entropy_bonus=0.1),
        )
        self.assertInputError(
            "entropy",
            "entropy is None, want the shape [8], one element per row, because grad_entropy is set",
            lambda: self.gradient(grad_entropy=self.gh),
        )
        self.assertInputError(
            "entropy_bonus",
            "entropy_bonus is NaN, want a finite number",
            lambda: self.gradient(entropy_bonus=float("nan")),
        )
        self.assertInputError(
            "out",
            "out has the shape [8, 89], want [8, 90], one element per logit",
            lambda: self.gradient(out=np.zeros((8, 89), np.float32)),
        )
        self.assertTypeError(
            "out has dtype float16, want float32", lambda: self.gradient(out=np.zeros((8, 90), np.float16))
        )
        self.assertTypeError(
            "logits has dtype float16, want float32 or bfloat16", lambda: self.gradient(self.x.astype(np.float16))
        )
        ids = self.ids.copy()
        ids[3] = 90
        x = self.x.copy()
        self.assertInputError(
            "ids",
            "ids[3] is 90, want 0 to 89, for rows of 90 logits",
            lambda: reweight.row_gradient(x, ids, self.stats.logprobs, self.g, out=x),
        )
        self.assertBits(x, self.x)
        apart = rows(2, 5, 90)[:, :4]
        for logits, shape, place in ((x, (8,), "3"), (apart, (2, 4), "0, 3")):
            for wrong in (-2, 90):
                ids, row = np.full(shape, -1), np.zeros(shape, np.float32)
                ids.reshape(-1)[3] = wrong
                out = np.full(logits.shape, 7, np.float32)
                self.assertInputError(
                    "ids",
                    f"ids[{place}] is {wrong}, want -1 to 89, for rows of 90 logits",
                    lambda: reweight.row_gradient(logits, ids, row, row, lse=row, out=out),
                )
                self.assertTrue((out == 7).all())

    def test_out_that_shares_memory(self):
        memory = np.zeros((1, 4, 10), np.float32)
        out = np.lib.stride_tricks.as_strided(memory, (3, 4, 10), (0, 40, 4))
        x = rows(3, 4, 10)
        ids = ids_for(x)
        s = reweight.token_stats(x, ids)
        self.assertInputError(
            "out",
            "out has elements that share their memory: for the shape [3, 4, 10] its strides are [0, 10, 1] elements",
            lambda: reweight.row_gradient(x, ids, s.logprobs, s.logprobs, out=out),
        )


if __name__ == "__main__":
    unittest.main()
