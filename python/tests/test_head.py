"""The LM head: linear_token_stats and linear_loss, against PyTorch with all logits at once in float64."""

import itertools
import json
import math
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed")

import reweight
from reweight import _generated, _head
from reweight.torch import linear_loss, linear_token_stats, loss, token_stats
from support import environment
from test_torch import Case, chosen, expected, numbers

INF = math.inf
HALF = (torch.float32, torch.bfloat16)  # dtypes of the products of bfloat16


def operands(n, vocab, width, dtype=torch.float32, seed=30):
    hidden = numbers((n, width), seed, 1, dtype).requires_grad_()
    weight = numbers((vocab, width), seed + 1, 0.3, dtype).requires_grad_()
    bias = numbers((vocab,), seed + 2, 1, dtype).requires_grad_()
    return hidden, weight, bias, chosen((n,), vocab, seed + 3)


def wide(*tensors):
    return [t.detach().double().requires_grad_() for t in tensors]


def products(dtype):
    """Has products of 16 bits computed in that dtype, whatever the CPU is."""
    return mock.patch.object(_head, "product_dtype", lambda t, device: dtype if t.itemsize == 2 else t)


def error(got, want):
    return ((got.double() - want).norm() / want.norm()).item()


class Forms(Case):
    """What stands between hidden states and logits."""

    def test_softcap_scale_and_temperature(self):
        hidden, weight, bias, ids = operands(9, 300, 16)
        a, b = numbers((9,), 34), numbers((9,), 35)
        for softcap, scale, temperature, count in itertools.product((None, 2.0), (1.0, 0.25), (1.0, 0.7), (2, 3)):
            with self.subTest(softcap=softcap, scale=scale, temperature=temperature, bias=count == 3):
                args = (hidden, weight, bias)[:count]
                exact = wide(*args)
                z = scale * (exact[0] @ exact[1].t() + (exact[2] if count == 3 else 0))
                z = z if softcap is None else softcap * torch.tanh(z / softcap)
                want = *expected(z, ids, temperature), torch.logsumexp(z, -1)
                of = torch.autograd.grad((want[0] * a + want[1] * b).sum(), exact)
                options = dict(softcap=softcap, logit_scale=scale, temperature=temperature, chunk=128, lse=True)
                for dtype, product, near in ((torch.float32, None, 1e-5), *((torch.bfloat16, d, 0.06) for d in HALF)):
                    x = [t.detach().to(dtype).requires_grad_() for t in args]
                    with products(product):
                        got = linear_token_stats(*x[:2], ids, bias=x[2] if count == 3 else None, **options)
                        grads = torch.autograd.grad((got[0] * a + got[1] * b).sum(), x)
                    for g, w in zip(got, want):
                        self.close(g, w, near)
                    self.assertFalse(got[2].requires_grad)
                    for g, w in zip(grads, of):
                        self.assertEqual(g.dtype, dtype)
                        self.assertLess(error(g, w), near)

    def test_gradcheck(self):
        hidden, weight, bias, ids = operands(5, 6, 3, torch.float64)
        ids[2] = -100
        check = lambda x, w, b: linear_token_stats(
            x, w, ids, bias=b, chunk=4, temperature=0.7, softcap=1.5, logit_scale=0.8
        )
        self.assertTrue(torch.autograd.gradcheck(check, (hidden, weight, bias)))

    def test_extremes(self):
        """What rows of every kind of element are to token_stats, they are to the head."""
        weight, ids = torch.eye(40), chosen((10,), 40, 3)
        logits = numbers((10, 40), 5, 4)
        logits[0, ::2] = logits[1, ids[1]] = logits[2] = -INF
        logits[2, ids[2]] = 3  # the only id
        logits[3, :16] = -INF  # a chunk
        logits[4, :16], ids[4] = -INF, 3
        logits[5, 7] = math.nan
        logits[6] *= 1e6  # beyond what row_gradient has in float32
        logits[7] *= 1e-6
        g, e = numbers((10,), 7), numbers((10,), 8)
        g[9] = e[9] = 0
        e[4] = 0

        def given(self, x, tile, buffer):  # no product with eye, which would make NaN of infinities
            z = buffer[:, : tile.stop - tile.start]
            z[:] = x[:, tile]
            return z

        hidden = logits.clone().requires_grad_()
        with mock.patch.object(_head.Head, "logits", given):
            l, h, lse = linear_token_stats(hidden, weight, ids, chunk=16, lse=True)
            tiles = []
            with mock.patch.object(_head, "_product", lambda out, d, w, add: tiles.append(d.clone())):
                torch.autograd.backward((l, h), [g, e])
        exact = logits.double().requires_grad_()
        torch.autograd.backward(token_stats(exact, ids), [g.double(), e.double()])
        self.close(torch.cat(tiles, 1), exact.grad, 5e-5 * (1 + 10 * (g.abs() + e.abs()))[:, None])
        want = token_stats(logits.double(), ids)
        self.close(l, want[0], 2e-5 + 1e-6 * want[0].abs())
        self.close(h, want[1], 2e-5)
        self.close(lse, torch.logsumexp(logits.double(), -1), 1e-6 * (1 + torch.logsumexp(logits.double(), -1).abs()))

    def test_near_certainty(self):
        """A log-probability near 0 keeps its digits over chunks, and so does the gradient of its logit."""
        hidden, weight = torch.ones(1, 1, requires_grad=True), torch.zeros(64, 1)
        weight[40], ids = 12.0, torch.tensor([40])
        l, _ = linear_token_stats(hidden, weight, ids, chunk=16)
        want, _ = expected(weight.double().t(), ids)
        self.assertLess(abs(l.item() / want.item() - 1), 1e-4)
        l.sum().backward()
        self.assertLess(abs(hidden.grad.item() / (-12 * torch.expm1(want).item()) - 1), 1e-4)


    def test_factors(self):
        """A temperature, a softcap or a scale is between 1e-30 and 1e30, and no ratio of two of them is beyond float32.
        Results and gradients are finite then, of any dtype."""
        names = "temperature", "softcap", "logit_scale"
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            hidden, weight, bias, ids = operands(5, 9, 4, dtype)
            role = torch.ones(5, dtype=torch.uint8)
            batch = reweight.Batch(role=role, old_logprobs=torch.zeros(5), advantages=torch.ones(5))
            for name, value in itertools.product(names, (0.0, -1.0, 1e-300, 9e-31, 1.1e30, 1e300, INF, -INF, math.nan)):
                for call in (
                    lambda: linear_token_stats(hidden, weight, ids, **{name: value}),
                    lambda: linear_loss(hidden, weight, ids, batch, **{name: value}),
                    *([lambda: token_stats(hidden, ids % 4, temperature=value)] if name == "temperature" else []),
                ):
                    with self.subTest(name, value=value, dtype=dtype):
                        with self.assertRaisesRegex(reweight.InputError, rf"^{name} is \S+, want 1e-30 to 1e\+30$"):
                            call()
            ends = 1e-30, 1e-15, 1.0, 1e15, 1e30
            for temperature, softcap, scale in itertools.product(ends, (None, *ends), ends):
                ratios = scale / temperature, softcap and scale / softcap, softcap and softcap / temperature
                options = dict(temperature=temperature, softcap=softcap, logit_scale=scale)
                with self.subTest(**options, dtype=dtype):
                    call = lambda: linear_token_stats(hidden, weight, ids, bias=bias, lse=True, **options)
                    if not all(r is None or 1e-37 <= r <= 1e37 for r in ratios):
                        with self.assertRaisesRegex(reweight.InputError, r" times the \w+, want 1e-37 to 1e\+37$"):
                            call()
                        continue
                    results = call()
                    self.assertTrue(all(t.isfinite().all() for t in results))
                    grads = torch.autograd.grad(results[0].sum() + results[1].sum(), (hidden, weight, bias))
                    if max(r or 0 for r in ratios) < 1e30:
                        self.assertTrue(all(t.isfinite().all() for t in grads))

    def test_one_id(self):
        """Which it is is certain: nothing has a gradient."""
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            hidden, weight, bias, ids = operands(5, 1, 4, dtype)
            l, h = linear_token_stats(hidden * 30, weight, ids, bias=bias)
            self.close(l, torch.zeros(5), 1e-6)
            self.assertFalse(h.any())
            for gradient in torch.autograd.grad(l.sum() + h.sum(), (hidden, weight, bias)):
                self.assertFalse(gradient.any())


class Rows(Case):
    """Rows that are left out."""

    def test_masks(self):
        hidden, weight, bias, ids = operands(12, 90, 8)
        mask = torch.tensor([1, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1])
        ignored = ids.clone()
        ignored[[3, 10]] = -100
        for labels, where in ((ignored, None), (ids, mask), (ignored, mask.bool()), (ids.masked_fill(mask == 0, 1000), mask)):
            counts = (labels != -100) & (mask != 0 if where is not None else True)
            with torch.no_grad():
                hidden[~counts] = math.nan  # nobody looks
            self.assertFalse(bool(counts.all()))
            got = linear_token_stats(hidden, weight, labels, mask=where, bias=bias, chunk=32, lse=True)
            want = linear_token_stats(hidden[counts], weight, ids[counts], bias=bias, chunk=32, lse=True)
            for g, w in zip(got, want):
                self.assertTrue(torch.equal(g[counts], w))
                self.assertTrue((g[~counts] == 0).all())
            # NaN in the gradients of rows that are left out, as PyTorch's own operations may have them, too
            grads = numbers((12,), 36).masked_fill(~counts, math.nan), numbers((12,), 37)
            of = torch.autograd.grad(got[:2], (hidden, weight, bias), grads)
            wanted = torch.autograd.grad(want[:2], (hidden, weight, bias), [t[counts] for t in grads])
            for g, w in zip(of, wanted):
                self.assertTrue(torch.equal(g, w))
            with torch.no_grad():
                hidden.copy_(operands(12, 90, 8)[0])

    def test_no_rows(self):
        hidden, weight, bias, ids = operands(6, 50, 8)
        for x, y in ((hidden, torch.full_like(ids, -100)), (hidden[:0], ids[:0])):
            l, h = linear_token_stats(x, weight, y, bias=bias)
            self.assertEqual((l.shape, l.abs().sum(), h.abs().sum()), (y.shape, 0, 0))
            for t in torch.autograd.grad(l.sum() + h.sum(), (hidden, weight, bias)):
                self.assertTrue((t == 0).all())
        role = torch.zeros(6, dtype=torch.uint8)
        batch = reweight.Batch(role=role, old_logprobs=torch.zeros(6), advantages=torch.ones(6), seq_offsets=torch.tensor([0, 6]))
        value, _ = linear_loss(hidden, weight, ids, batch, bias=bias)
        self.assertEqual(value.item(), 0)
        for t in torch.autograd.grad(value, (hidden, weight, bias)):
            self.assertTrue((t == 0).all())


class Rounding(Case):
    def test_bfloat16(self):
        """The gradient of the weight is rounded once, for any number of chunks; that of hidden, too, where products are
        in float32, and elsewhere each chunk's part is rounded first. Logits are rounded in products of bfloat16 only."""
        hidden, weight, _, ids = operands(200, 700, 32, torch.bfloat16)
        exact = wide(hidden, weight)
        sums = lambda stats: stats[0].sum() + stats[1].sum()
        want = torch.autograd.grad(sums(expected(exact[0] @ exact[1].t(), ids)), exact)
        logits = hidden @ weight.t()
        plain = torch.autograd.grad(sums(token_stats(logits, ids)), (hidden, weight))
        once = [error(w.bfloat16(), w) for w in want]
        for product in HALF:
            z = exact[0] @ exact[1].t() if product == torch.float32 else logits
            for chunk in (10, 70, 700):
                with self.subTest(product=product, chunk=chunk), products(product):
                    l, h = linear_token_stats(hidden, weight, ids, chunk=chunk)
                    self.close(l, expected(z, ids)[0], 1e-5)
                    self.close(h, expected(z, ids)[1], 1e-5)
                    got = torch.autograd.grad(l.sum() + h.sum(), (hidden, weight))
                    if product == torch.float32:
                        for g, w, o in zip(got, want, once):
                            self.assertLess(error(g, w), 1.01 * o)
                    else:
                        self.assertLess(error(got[1], want[1]), 1.02 * error(plain[1], want[1]))
                        self.assertLess(error(got[0], want[0]), 2 * error(plain[0], want[0]))

    def test_another_product(self):
        """A logit that the backward pass finds otherwise changes its own gradient at most: the logsumexp is kept."""
        hidden, weight, bias, ids = operands(1, 300, 16, torch.bfloat16)
        logits = _head.Head.logits
        for product, place in itertools.product(HALF, (int(ids[0]), 5)):

            def other(head, x, tile, buffer):
                z = logits(head, x, tile, buffer)
                if tile.start <= place < tile.stop:
                    z[0, place - tile.start] += 1
                return z

            with self.subTest(product=product, place=place), products(product):
                l, _ = linear_token_stats(hidden, weight, ids, bias=bias, chunk=70)
                (want,) = torch.autograd.grad(l.sum(), bias, retain_graph=True)
                with mock.patch.object(_head.Head, "logits", other):
                    (got,) = torch.autograd.grad(l.sum(), bias)
                changed = set((got != want).nonzero()[:, 0].tolist())
                self.assertEqual(changed, {place} - {int(ids[0])})

    def test_autocast(self):
        """Operands are rounded as autocast rounds them; gradients of float32 are not."""
        hidden, weight, bias, ids = operands(40, 300, 16)
        exact = wide(*(t.bfloat16() for t in (hidden, weight, bias)))
        z = exact[0] @ exact[1].t() + exact[2]
        want = torch.autograd.grad(expected(z, ids)[0].sum(), exact)
        with torch.autocast("cpu", dtype=torch.bfloat16), products(torch.float32):
            l, _ = linear_token_stats(hidden, weight, ids, bias=bias, chunk=70)
        self.close(l, expected(z, ids)[0], 1e-5)
        with products(torch.float32):
            got = torch.autograd.grad(l.sum(), (hidden, weight, bias))
        for g, w in zip(got, want):
            self.assertEqual(g.dtype, torch.float32)
            self.assertLess(error(g, w), 1e-5)


class Loss(Case):
    def batch(self, n=300, seed=40, **changed):
        arrays = dict(
            role=chosen((n,), 3, seed).to(torch.uint8),
            old_logprobs=-numbers((n,), seed + 1).abs() - 5,
            advantages=numbers((n,), seed + 2),
            seq_offsets=torch.tensor([0, 100, 101, n]),
        )
        return reweight.Batch(**{**arrays, **changed})

    def test_against_two_functions(self):
        """loss of linear_token_stats, in one turn of rows and in several."""
        weights = numbers((300,), 50).abs()
        for dtype, with_bias, options in (
            (torch.float32, True, {}),
            (torch.float32, False, dict(aggregation="seq_mean_token_mean", policy=reweight.PPO(clip_low=0.1))),
            (torch.float32, False, dict(softcap=3.0, logit_scale=0.5, temperature=0.7, aggregation="seq_mean_token_sum")),
            (torch.float32, True, dict(policy=reweight.GRPOS(clip_high=1e30), kl_coef=0.01)),
            (torch.bfloat16, True, {}),
        ):
            batch = self.batch(ref_logprobs=-numbers((300,), 51).abs())
            hidden, weight, bias, ids = operands(300, 500, 16, dtype)
            ids[batch.role == 0] = -100
            leaves = (hidden, weight, bias) if with_bias else (hidden, weight)
            head = {k: v for k, v in options.items() if k in ("softcap", "logit_scale", "temperature")}
            of_loss = {k: v for k, v in options.items() if k not in head}
            b = bias if with_bias else None
            with self.subTest(dtype=dtype, bias=with_bias, **options):
                logprobs, _ = linear_token_stats(hidden, weight, ids, mask=batch.role, bias=b, chunk=128, entropy=False, **head)
                want, result = loss(logprobs, batch, weights, **of_loss)
                wanted = torch.autograd.grad(3 * want, leaves)
                # A quarter of the rows at a time, a row, 70, and all, whose logits are computed once, by four tiles.
                for memory in (None, 1, 4 * 500 * 70, 4 * 500 * 300):
                    with mock.patch.object(_head.Head, "logits", autospec=True, side_effect=_head.Head.logits) as tiles:
                        value, got = linear_loss(
                            hidden, weight, ids, batch, weights, bias=b, chunk=128, memory=memory, **options
                        )
                    grads = torch.autograd.grad(3 * value, leaves)
                    if memory == 4 * 500 * 300:
                        self.assertEqual(tiles.call_count, 4)
                    self.close(value, want, 1e-5)
                    for g, w in zip(got, result):
                        self.close(g.double(), w.double(), 1e-4 if dtype == torch.float32 else 1e-3)
                    for g, w in zip(grads, wanted):
                        self.assertEqual(g.dtype, dtype)
                        self.assertLess(error(g, w.double()), 2e-6 if dtype == torch.float32 else 1e-2)
                with torch.no_grad():
                    again, _ = linear_loss(hidden, weight, ids, batch, weights, bias=b, chunk=128, **options)
                self.close(again, want, 1e-5)
                self.assertIsNone(batch.logprobs)

    def test_dtypes(self):
        """With rows that are left out and without, of every dtype, in every policy; and of the mixtures that autocast
        takes."""
        floats = torch.float32, torch.bfloat16
        kinds = [((dtype,) * 3, False) for dtype in (*floats, torch.float64)]
        kinds += [(dtypes, True) for dtypes in itertools.product(floats, repeat=3)]
        for (dtypes, cast), masked in itertools.product(kinds, (False, True)):
            policies = _generated.POLICIES if dtypes[0] in (torch.float64, torch.float32) and not cast else ("ppo", "gspo")
            for policy in policies:
                batch = self.batch(ref_logprobs=-numbers((300,), 51).abs())
                if not masked:
                    batch.role = torch.ones_like(batch.role)
                hidden, weight, bias, ids = operands(300, 50, 8)
                leaves = [t.detach().to(d).requires_grad_() for t, d in zip((hidden, weight, bias), dtypes)]
                options = dict(policy=reweight.DRO(beta=0.5) if policy == "dro" else policy, kl_coef=0.1)
                with self.subTest(dtypes=dtypes, autocast=cast, masked=masked, policy=policy):
                    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=cast):
                        logprobs, _ = linear_token_stats(*leaves[:2], ids, bias=leaves[2], mask=batch.role)
                        want, result = loss(logprobs.float(), batch, **options)
                        value, got = linear_loss(*leaves[:2], ids, batch, bias=leaves[2], **options)
                    wanted, grads = (torch.autograd.grad(x, leaves) for x in (want, value))
                    self.close(value, want, 1e-4)
                    self.close(got.grad, result.grad, 1e-4)
                    for g, w, leaf in zip(grads, wanted, leaves):
                        self.assertEqual((g.dtype, g.shape), (leaf.dtype, leaf.shape))
                        self.assertLess(error(g, w.double()), 1e-5 if torch.bfloat16 not in dtypes and not cast else 2e-2)

    def test_shapes(self):
        hidden, weight, _, ids = operands(300, 90, 8)
        flat, grads = [], []
        for shape in ((300,), (3, 100)):
            batch = self.batch(seq_offsets=None if len(shape) == 2 else torch.tensor([0, 100, 200, 300]))
            batch = reweight.Batch(**{k: v if v is None or k == "seq_offsets" else v.view(shape) for k, v in vars(batch).items()})
            value, _ = linear_loss(hidden.view(*shape, 8), weight, ids.view(shape), batch, aggregation="seq_mean_token_sum")
            flat.append(value.item())
            grads.append(torch.autograd.grad(value, weight)[0])
        self.assertEqual(*flat)
        self.assertTrue(torch.equal(*grads))

    def test_turns(self):
        """No more rows of logits exist than a quarter, and at least 64."""
        hidden, weight, _, ids = operands(300, 90, 8)
        real, rows = _head.Rows.__init__, []

        def init(self, head, hidden, ids, held=False):
            real(self, head, hidden, ids, held)
            rows.append((len(ids), held))

        batch = self.batch(role=torch.ones(300, dtype=torch.uint8))
        with mock.patch.object(_head.Rows, "__init__", init):
            linear_loss(hidden, weight, ids, batch)
        self.assertEqual(rows, [(75, True)] * 4)
        rows.clear()
        with mock.patch.object(_head.Rows, "__init__", init):
            linear_loss(hidden.bfloat16(), weight.bfloat16(), ids, batch)
        self.assertEqual(rows, [(300, False)])

    def test_memory_of_16_bits(self):
        """Held logits of 16-bit products take 2 bytes, and 4 with a softcap, which is computed in float32: beside them
        there is the buffer of one tile."""
        real, held = _head.Rows.backward, []

        def backward(rows, *args):
            used = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in rows.buffers + rows.logits}
            held.append(sum(used.values()) if rows.held else 0)
            real(rows, *args)

        hidden, weight, _, ids = operands(300, 512, 8, torch.bfloat16)
        batch = self.batch(role=torch.ones(300, dtype=torch.uint8))
        logits, tile = 300 * 512, 2 * 300 * (128 + 32)
        for softcap, memory, most in ((None, 2 * logits, 4 * tile), (3.0, 4 * logits, 4 * logits + tile)):
            grads = []
            for given, want in ((memory, most), (memory - 1, 0)):
                with self.subTest(softcap=softcap, memory=given), products(torch.bfloat16):
                    with mock.patch.object(_head.Rows, "backward", backward):
                        value, _ = linear_loss(hidden, weight, ids, batch, chunk=128, softcap=softcap, memory=given)
                    self.assertEqual(held.pop(), want)
                    grads.append(torch.cat([g.view(-1) for g in torch.autograd.grad(value, (hidden, weight))]))
            self.assertTrue(torch.equal(*grads))

    def test_only_what_is_wanted(self):
        hidden, weight, bias, ids = operands(300, 50, 8)
        leaves = [hidden, weight, bias]
        value, _ = linear_loss(hidden, weight, ids, self.batch(), bias=bias)
        want = torch.autograd.grad(value, leaves)
        for wanted in range(3):
            for i, t in enumerate(leaves):
                t.requires_grad_(i == wanted)
            value, _ = linear_loss(hidden, weight, ids, self.batch(), bias=bias)
            value.backward()
            self.assertEqual([t.grad is not None for t in leaves], [i == wanted for i in range(3)])
            self.assertTrue(torch.equal(leaves[wanted].grad, want[wanted]))
            leaves[wanted].grad = None

    def test_backward_once(self):
        hidden, weight, _, ids = operands(300, 50, 8)
        value, _ = linear_loss(hidden, weight, ids, self.batch())
        value.backward(retain_graph=True)
        with self.assertRaisesRegex(RuntimeError, "a second backward pass through linear_loss"):
            value.backward()
        value, _ = linear_loss(hidden, weight, ids, self.batch())
        with self.assertRaisesRegex(RuntimeError, "first derivatives only"):
            torch.autograd.grad(value, hidden, create_graph=True)

    def test_errors(self):
        hidden, weight, bias, ids = operands(300, 50, 8)
        bad = ids.clone()
        bad[7] = 50
        ignored = ids.clone()
        ignored[9] = -100
        ones = self.batch(role=torch.ones(300, dtype=torch.uint8))
        for message, kind, call in [
            (r"ids\[7\] is 50, want 0 to 49", ValueError, lambda: linear_loss(hidden, weight, bad, ones)),
            (r"ids\[9\] is -100, want 0 to 49", ValueError, lambda: linear_loss(hidden, weight, ignored, ones)),
            ("role has the shape", ValueError, lambda: linear_loss(hidden[:9], weight, ids[:9], ones)),
            ("batch is a dict", TypeError, lambda: linear_loss(hidden, weight, ids, {})),
            ("loss has no option cliplow", TypeError, lambda: linear_loss(hidden, weight, ids, ones, cliplow=1)),
            ("memory is 0, want at least 1", ValueError, lambda: linear_loss(hidden, weight, ids, ones, memory=0)),
            ("memory is a float, want an integer", TypeError, lambda: linear_loss(hidden, weight, ids, ones, memory=1e9)),
            ("mask has the shape", ValueError, lambda: linear_token_stats(hidden, weight, ids, mask=ids[:2])),
            ("softcap is 0, want 1e-30 to 1e\\+30", ValueError, lambda: linear_token_stats(hidden, weight, ids, softcap=0)),
            ("group is a str, want", TypeError, lambda: linear_loss(hidden, weight, ids, ones, group="tp")),
            ("group is an int, want", TypeError, lambda: linear_token_stats(hidden, weight, ids, group=-100)),
            ("logit_scale is -1", ValueError, lambda: linear_token_stats(hidden, weight, ids, logit_scale=-1)),
        ]:
            with self.subTest(message), self.assertRaisesRegex(kind, message):
                call()


class Group(unittest.TestCase):
    def run_ranks(self, mode, *cuts):
        """What head_ranks.py finds for each of these parts of the vocabulary: a list, with what each process has."""
        ranks = max(map(len, cuts))
        of_cuts = [",".join(map(str, sizes)) for sizes in cuts]
        with tempfile.TemporaryDirectory() as folder:
            program = str(Path(__file__).with_name("head_ranks.py"))
            processes = [
                subprocess.Popen(
                    [sys.executable, program, mode, str(rank), str(ranks), folder + "/store", *of_cuts],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env=environment(),
                )
                for rank in range(ranks)
            ]
            outputs = [process.communicate(timeout=600) for process in processes]
        for process, (_, said) in zip(processes, outputs):
            self.assertEqual(process.returncode, 0, said)
        found = [json.loads(out.splitlines()[-1]) for out, _ in outputs]
        return {sizes: [rank[name] for rank in found[: len(sizes)]] for sizes, name in zip(cuts, of_cuts)}

    def test_bits(self):
        """Parts of the vocabulary in several processes give the bits of one process."""
        cuts = (950,), (480, 470), (240, 240, 240, 230), (528, 0, 422), (0, 950), (950, 0)
        found = self.run_ranks("bits", *cuts)
        (want,) = found[cuts[0]]
        for sizes in cuts[1:]:
            for name, bits in want.items():
                with self.subTest(name, sizes=sizes):
                    if name.endswith(("of weight", "of bias")):
                        self.assertEqual([row for rank in found[sizes] for row in rank[name]], bits)
                    else:
                        self.assertEqual([rank[name] for rank in found[sizes]], [bits] * len(sizes))

    def test_unequal_parts(self):
        """Parts as torch.chunk cuts them, others, and empty ones: in all processes what float64 has."""
        chunked = [tuple(map(len, torch.empty(50257).chunk(n))) for n in (2, 3)]
        more = (1, 50256), (50000, 257), (0, 50257), (20000, 0, 30257), (1, 1, 0), (1, 0), (0, 0, 2), (30, 0, 11)
        for sizes, found in self.run_ranks("near", *chunked, *more).items():
            for name in found[0]:
                with self.subTest(name, sizes=sizes):
                    for rank in found:
                        self.assertLess(rank[name], 2e-5)

    def test_what_one_process_has_otherwise(self):
        """Every process raises the same InputError, and none waits for another."""
        right = {"stats: nothing", "loss: nothing", "nothing again", "no rows in all"}
        for sizes, found in self.run_ranks("refused", (40, 40), (40, 40, 40)).items():
            for name in found[0]:
                errors = [rank[name] for rank in found]
                kind = "" if name in right else "TypeError" if name == "the same type in all" else "InputError"
                with self.subTest(name, sizes=sizes):
                    self.assertEqual(errors, [[kind, errors[0][1]]] * len(sizes))
            self.assertGreater(len(found[0]), 70)


if __name__ == "__main__":
    unittest.main()
