"""The autograd functions, against PyTorch's own autograd in float64."""

import contextlib
import dataclasses
import functools
import math
import random
import types
import unittest
import warnings

import numpy as np

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed")

import reweight
from reweight import _operators
from reweight.torch import linear_token_stats, loss, token_stats
from support import with_policy

INF = math.inf
# Bounds of the kernels for the sizes of these tests, as the Go package documents them.
STATS = 2e-5  # nats
GRADIENT, ENTROPY_GRADIENT = 5e-6, 4.2e-5  # times |dL/dl| and |dL/dH|, over the temperature
UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}  # relative error of a rounding


def expected(logits, ids, temperature=1.0):
    """Log-probability and entropy by PyTorch in float64, with autograd."""
    l = torch.log_softmax(logits.double() / temperature, -1)
    p = l.exp()
    return l.gather(-1, ids.long()[..., None])[..., 0], -torch.where(p == 0, torch.zeros_like(p), p * l).sum(-1)


in_place = functools.partial(token_stats, inplace=True)


def numbers(shape, seed, scale=1.0, dtype=torch.float32):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)


def chosen(shape, vocab, seed, dtype=torch.int64):
    return torch.randint(vocab, shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


class Case(unittest.TestCase):
    def close(self, got, want, most, message=""):
        """Wants every element within most of the wanted one; most is a number or a tensor."""
        self.assertEqual(got.shape, want.shape, message)
        got, want = got.detach().double(), want.detach().double()
        same = (got == want) | (got.isnan() & want.isnan())
        wrong = ~same & ~((got - want).abs() <= most)
        self.assertFalse(wrong.any(), f"{message} {got[wrong][:5]} want {want[wrong][:5]}")

    def gradient_close(self, got, want, dtype, g, e=0.0, temperature=1.0, message=""):
        most = (GRADIENT * g + ENTROPY_GRADIENT * e) / temperature
        self.close(got, want, most + want.detach().double().abs() * UNIT[dtype], message)


class TokenStats(Case):
    def test_autograd(self):
        """Shapes, dtypes, strides and temperatures at random, with both results in the loss."""
        choose = random.Random(1)
        for i in range(60):
            lead = choose.choice([(), (1,), (5,), (3, 4), (2, 1), (1, 6), (0,)])
            vocab = choose.choice([1, 2, 17, 1000, 1025, 3000])
            dtype = choose.choice([torch.float32, torch.bfloat16])
            temperature = choose.choice([1.0, 0.7, 2.5])
            inplace = choose.choice([True, False])
            ids = chosen(lead, vocab, i, choose.choice([torch.int32, torch.int64]))
            leaf = numbers(lead + (vocab + 3,), i, 3, dtype).requires_grad_()
            a, b = numbers(lead, i + 1000), numbers(lead, i + 2000)
            with self.subTest(lead=lead, vocab=vocab, dtype=dtype, temperature=temperature, inplace=inplace):
                logits = (leaf * 1)[..., :vocab]
                logprobs, entropy = token_stats(logits, ids, temperature=temperature, inplace=inplace)
                (logprobs * a + entropy * b).sum().backward()
                got, leaf.grad = leaf.grad, None
                l, h = expected(leaf[..., :vocab], ids, temperature)
                wide = leaf.detach().double().requires_grad_()
                wl, wh = expected(wide[..., :vocab], ids, temperature)
                (wl * a + wh * b).sum().backward()
                self.assertEqual((logprobs.dtype, entropy.dtype, got.dtype), (torch.float32, torch.float32, dtype))
                self.close(logprobs, l, STATS)
                self.close(entropy, h, STATS)
                self.gradient_close(got, wide.grad, dtype, a.abs()[..., None], b.abs()[..., None], temperature)

    def test_log_sum_sq_probs(self):
        """A third result without a gradient, which changes no other."""
        ids = chosen((4,), 3000, 2)
        for inplace in (False, True):
            leaf = numbers((4, 3000), 1).requires_grad_()
            both = token_stats(leaf * 1, ids, temperature=0.7)
            (both[0] + both[1]).sum().backward()
            want, leaf.grad = leaf.grad, None
            logprobs, h, squares = token_stats(
                leaf * 1, ids, temperature=0.7, entropy=True, inplace=inplace, log_sum_sq_probs=True
            )
            self.assertFalse(squares.requires_grad)
            (logprobs + h).sum().backward()
            self.assertTrue(torch.equal(leaf.grad, want))
            self.assertTrue(torch.equal(logprobs, both[0]) and torch.equal(h, both[1]))
            wide = (leaf.detach().double() / 0.7).log_softmax(-1)
            self.close(squares, (2 * wide).logsumexp(-1), STATS)
            _, nothing, again = token_stats(leaf.detach(), ids, temperature=0.7, entropy=False, log_sum_sq_probs=True)
            self.assertIsNone(nothing)
            self.assertTrue(torch.equal(again, squares))
            exact = token_stats(leaf.detach().double(), ids, temperature=0.7, log_sum_sq_probs=True)[2]
            self.close(squares, exact, STATS)

    def test_unused_results(self):
        ids = chosen((4,), 30, 2)
        for pick in (0, 1):
            leaf = numbers((4, 30), 1).requires_grad_()
            token_stats(leaf * 1, ids)[pick].sum().backward()
            wide = leaf.detach().double().requires_grad_()
            expected(wide, ids)[pick].sum().backward()
            self.gradient_close(leaf.grad, wide.grad, torch.float32, 1 - pick, pick)
        leaf = numbers((4, 30), 1).requires_grad_()
        logprobs, entropy = token_stats(leaf * 1, ids, entropy=False)
        self.assertIsNone(entropy)
        logprobs[:2].sum().backward()
        self.assertTrue((leaf.grad[2:] == 0).all())
        self.assertTrue((leaf.grad[:2] != 0).all())

    def test_gradients_with_signs_that_are_not_in_memory(self):
        class Negated(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return -x

            @staticmethod
            def backward(ctx, grad):
                return torch._neg_view(grad)

        ids, leaf = chosen((4,), 30, 2), numbers((4, 30), 1).requires_grad_()
        for pick in (0, 1):
            (want,) = torch.autograd.grad(-token_stats(leaf, ids)[pick].sum(), leaf)
            (got,) = torch.autograd.grad((Negated.apply(token_stats(leaf, ids)[pick]) * torch.ones(4)).sum(), leaf)
            self.assertTrue(torch.equal(got, want))

    def test_gradcheck(self):
        for temperature in (1.0, 0.6):
            ids = chosen((2, 3), 7, 3)
            logits = numbers((2, 3, 7), 4).double().requires_grad_()
            check = lambda x: token_stats(x, ids, temperature=temperature)
            self.assertTrue(torch.autograd.gradcheck(check, (logits,)))
            only = lambda x: token_stats(x, ids, temperature=temperature, entropy=False)[0]
            self.assertTrue(torch.autograd.gradcheck(only, (logits,)))

    def test_float64_is_the_reference(self):
        """The kernels and the float64 formulas agree, in rows with every kind of element too."""
        logits = numbers((9, 50), 5, 4)
        ids = chosen((9,), 50, 6)
        logits[0, ::2] = -INF
        logits[1, ids[1]] = -INF
        logits[2] = -INF
        logits[3, 7] = INF
        logits[4, 49] = math.nan
        logits[5] = -INF
        logits[5, ids[5]] = 3  # the only id
        a, b = numbers((9,), 7), numbers((9,), 8)
        a[3] = b[3] = a[6] = b[6] = b[7] = a[8] = 0
        got = logits.clone().requires_grad_()
        want = logits.double().requires_grad_()
        for temperature in (1.0, 0.8):
            got.grad = want.grad = None
            l, h = token_stats(got, ids, temperature=temperature)
            wl, wh = token_stats(want, ids, temperature=temperature)
            self.assertEqual(wl.dtype, torch.float64)
            self.close(l, wl, STATS)
            self.close(h, wh, STATS)
            torch.autograd.backward([l, h], [a, b])
            torch.autograd.backward([wl, wh], [a.double(), b.double()])
            self.gradient_close(got.grad, want.grad, torch.float32, a.abs()[:, None], b.abs()[:, None], temperature)

    def test_bits(self):
        """The results are those of the package's functions, whatever the number of threads."""
        for dtype in (torch.float32, torch.bfloat16):
            ids = chosen((6,), 2000, 9)
            logits = numbers((6, 2000), 10, 3, dtype)
            g, e = numbers((6,), 11), numbers((6,), 12)
            want = reweight.token_stats(logits, ids, temperature=0.9)
            want_gradient = reweight.row_gradient(
                logits, ids, want.logprobs, g, entropy=want.entropy, grad_entropy=e, temperature=0.9
            )
            threads = torch.get_num_threads()
            for n in (1, 2):
                torch.set_num_threads(n)
                x = logits.clone().requires_grad_()
                l, h = token_stats(x, ids, temperature=0.9)
                torch.autograd.backward([l, h], [g, e])
                self.assertTrue(torch.equal(l, want.logprobs))
                self.assertTrue(torch.equal(h, want.entropy))
                self.assertTrue(torch.equal(x.grad, want_gradient))
            torch.set_num_threads(threads)

    def test_no_grad(self):
        ids = chosen((3,), 40, 13)
        leaf = numbers((3, 40), 14).requires_grad_()
        with torch.no_grad():
            logprobs, entropy = token_stats(leaf, ids)
        self.assertFalse(logprobs.requires_grad or entropy.requires_grad)
        logprobs, _ = token_stats(leaf.detach(), ids)
        self.assertIsNone(logprobs.grad_fn)
        half = leaf.detach().half()
        self.close(token_stats(half, ids)[0], expected(half, ids)[0], STATS)

    def test_where_rows_lie(self):
        """Rows that are not one after another, or are not in memory as they are meant: the same results, or an error."""
        x, y = numbers((4, 8), 44), chosen((4,), 8, 45)
        operator, options = torch.ops.reweight.token_stats.default, (torch.ones((), dtype=torch.float64), True, True)
        want = operator(x, y, *options)
        apart, wide = torch.stack([y, y + 1], -1)[:, 0], torch.cat([x, x], 1)[:, :8]
        for logits, ids in ((wide, y), (x, apart), (wide, apart), (x, y.int()), (torch.nn.Parameter(x, False), y), (x.double(), y),
                            (torch._neg_view(-x), y), (x, torch._neg_view(-y))):  # fmt: skip
            most = 0 if logits.dtype is x.dtype else STATS
            for got, of in zip(token_stats(logits, ids, log_sum_sq_probs=True), want):
                self.close(got, of, most)
        with self.assertRaisesRegex(ValueError, "ids is not contiguous"):  # which token_stats sees to
            operator(x, apart, *options)
        self.assertEqual([list(t.shape) for t in token_stats(x[:0], y[:0])], [[0], [0]])
        freed = x.clone(), y.clone()
        for t in freed:
            t.untyped_storage().resize_(0)

        def odd(t):  # one byte off
            return torch.frombuffer(bytearray(1) + t.numpy().tobytes(), dtype=t.dtype, offset=1).reshape(t.shape)

        for kind, message, make in (
            (ValueError, "has no memory", dict(zip((x, y), freed)).get),
            (ValueError, "is not aligned", odd),
            (TypeError, "is a sparse_coo tensor, want a plain one", torch.Tensor.to_sparse),
            (TypeError, "is a nested tensor", lambda t: torch.nested.nested_tensor([*t])),
            (TypeError, "is a quantized tensor", lambda t: torch.quantize_per_tensor(t.float(), 0.1, 0, torch.quint8)),
        ):
            for name, given in (("logits", (make(x), y)), ("ids", (x, make(y)))):
                with self.subTest(message, argument=name), self.assertRaisesRegex(kind, f"{name} .*{message}"):
                    token_stats(*given)
        with self.assertRaisesRegex(ValueError, "is -7, want 0 to 7"):
            token_stats(x, torch._neg_view(y * 0 + 7))
        l, elsewhere = torch.empty(4), types.SimpleNamespace(dtype=torch.int64, is_cpu=False)
        for ids, written in ((y, True), (y.int(), True), (elsewhere, False)):
            self.assertEqual(_operators._write_plain(x, ids, l.zero_(), None, None, 1.0), written)
            self.close(l, want[0] * written, 0)

    def test_errors(self):
        logits, ids = numbers((2, 3, 8), 15), chosen((2, 3), 8, 16)
        bad = ids.clone()
        bad[1, 2] = 8
        half = logits.half().requires_grad_()
        learned = torch.ones((), requires_grad=True)
        for message, kind, call in [
            ("logits is a list", TypeError, lambda: token_stats([1.0], ids)),
            ("logits has dtype int64", TypeError, lambda: token_stats(ids, ids[0])),
            ("logits has dtype float16, which has no gradient", TypeError, lambda: token_stats(half, ids)),
            ("logits is not contiguous", ValueError, lambda: token_stats(logits.transpose(1, 2), chosen((2, 8), 3, 0))),
            ("logits has a row every 0", ValueError, lambda: token_stats(logits[:, :1].expand(2, 3, 8), ids)),
            ("logits has the shape", ValueError, lambda: token_stats(torch.zeros(3, 0), ids[0])),
            ("logits has the shape", ValueError, lambda: token_stats(logits[None], ids[None])),
            ("ids is on meta, want cpu", ValueError, lambda: token_stats(logits, ids.to("meta"))),
            ("ids has dtype float32", TypeError, lambda: token_stats(logits, ids.float())),
            ("ids has the shape", ValueError, lambda: token_stats(logits, ids[0])),
            (r"ids\[1, 2\] is 8, want 0 to 7", ValueError, lambda: token_stats(logits.double(), bad)),
            (r"ids\[0, 0\] is -1, want 0 to 7", ValueError, lambda: token_stats(logits.double(), ids * 0 - 1)),
            (r"ids\[1, 2\] is 8, want 0 to 7", ValueError, lambda: token_stats(logits, bad)),
            ("temperature is 0", ValueError, lambda: token_stats(logits, ids, temperature=0)),
            ("temperature is -1", ValueError, lambda: token_stats(logits.double(), ids, temperature=-1)),
            ("temperature is an integer above all", ValueError, lambda: token_stats(logits, ids, temperature=10**400)),
            ("temperature is NaN", ValueError, lambda: token_stats(logits.double(), ids, temperature=math.nan)),
            ("temperature .* requires grad", TypeError, lambda: token_stats(logits, ids, temperature=learned)),
        ]:
            with self.subTest(message), self.assertRaisesRegex(kind, message):
                call()


class Gradient(Case):
    """Which memory the gradient takes, and what else reads the logits."""

    def setUp(self):
        self.leaf = numbers((2, 5, 33), 20).requires_grad_()
        self.ids = chosen((2, 5), 33, 21)

    def test_nothing_is_overwritten(self):
        for name, logits in [
            ("a result", self.leaf * 1),
            ("a slice", (self.leaf * 1)[:, 1:]),
            ("a leaf", self.leaf),
            ("a view of a leaf", self.leaf[:, 1:]),
        ]:
            with self.subTest(name):
                before = logits.detach().clone()
                token_stats(logits, self.ids[:, : logits.shape[1]])[0].sum().backward()
                self.assertTrue(torch.equal(logits.detach(), before))

    def test_rows_that_share_memory(self):
        """The gradient of rows that are one in memory is the sum of theirs."""
        row = numbers((1, 5, 33), 22).requires_grad_()
        token_stats(row.expand(2, 5, 33), self.ids)[0].sum().backward()
        wide = row.detach().double().requires_grad_()
        expected(wide.expand(2, 5, 33), self.ids)[0].sum().backward()
        self.gradient_close(row.grad, wide.grad, torch.float32, 2)

    def test_parts(self):
        want = self.leaf.detach().requires_grad_()
        token_stats(want, self.ids)[0].sum().backward()
        for cut in (lambda t: t.split(1), lambda t: t.unbind(0), lambda t: t.chunk(2, dim=1), lambda t: (t[0], t[1])):
            self.leaf.grad = None
            logits = self.leaf * 1
            sum(token_stats(x, y)[0].sum() for x, y in zip(cut(logits), cut(self.ids))).backward()
            self.assertTrue(torch.equal(self.leaf.grad, want.grad))

    def test_backward_twice(self):
        logprobs, _ = token_stats(self.leaf * 1, self.ids)
        logprobs.sum().backward(retain_graph=True)
        once = self.leaf.grad.clone()
        logprobs.sum().backward()
        self.assertTrue(torch.equal(self.leaf.grad, 2 * once))

    def test_changed_before_backward(self):
        logits = self.leaf * 1
        logprobs, _ = token_stats(logits, self.ids)
        logits.detach()[0, 0, 0] = 9
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            logprobs.sum().backward()

    def test_second_derivatives(self):
        weight = numbers((33, 33), 28)
        batch = reweight.Batch(
            role=torch.ones((2, 5), dtype=torch.uint8), old_logprobs=torch.zeros(2, 5), advantages=torch.ones(2, 5)
        )
        for value in (
            token_stats(self.leaf * 1, self.ids)[0].sum(),
            in_place(self.leaf * 1, self.ids)[0].sum(),
            linear_token_stats(self.leaf, weight, self.ids)[1].sum(),
            loss(self.leaf[..., 0].contiguous(), batch)[0],
        ):
            with self.assertRaisesRegex(RuntimeError, "first derivatives only"):
                torch.autograd.grad(value, self.leaf, create_graph=True)

    def test_forward_mode(self):
        batch = reweight.Batch(
            role=torch.ones((2, 5), dtype=torch.uint8), old_logprobs=torch.zeros(2, 5), advantages=torch.ones(2, 5)
        )
        hidden, weight = numbers((4, 8), 23), numbers((33, 8), 24)
        ids = chosen((4,), 33, 25)
        for call, primal in (
            (lambda x: token_stats(x, self.ids)[0], self.leaf.detach()),
            (lambda x: token_stats(x, self.ids)[0], self.leaf),
            (lambda x: linear_token_stats(x, weight, ids)[0], hidden),
            (lambda w: linear_token_stats(hidden, w, ids)[0], weight),
            (lambda b: linear_token_stats(hidden, weight, ids, bias=b)[0], numbers((33,), 26)),
            (lambda x: loss(x, batch)[0], numbers((2, 5), 29)),
            (lambda x: loss(batch.old_logprobs, batch, x)[0], numbers((2, 5), 29)),
            (lambda x: loss(batch.old_logprobs, dataclasses.replace(batch, advantages=x))[0], numbers((2, 5), 29)),
        ):
            with self.assertRaisesRegex(RuntimeError, "no derivatives of forward mode"):
                torch.func.jvp(call, (primal,), (torch.ones_like(primal),))
            nested = lambda x: torch.func.jvp(lambda y: call(x) * y, (torch.ones(()),), (torch.ones(()),))[1]
            with self.assertRaisesRegex(RuntimeError, "no derivatives of forward mode"):
                torch.func.jvp(nested, (primal,), (torch.ones_like(primal),))
            with torch.autograd.forward_ad.dual_level():
                dual = torch.autograd.forward_ad.make_dual(primal, torch.ones_like(primal))
                with self.assertRaisesRegex(RuntimeError, "no derivatives of forward mode"):
                    call(dual)

    def test_ids_of_inference_mode(self):
        with torch.inference_mode():
            ids = self.ids.clone()
        for call in (token_stats, lambda x, y: linear_token_stats(x, numbers((33, 33), 27), y)):
            (want,) = torch.autograd.grad(call(self.leaf, self.ids)[0].sum(), self.leaf)
            (got,) = torch.autograd.grad(call(self.leaf, ids)[0].sum(), self.leaf)
            self.assertTrue(torch.equal(got, want))


def situations():
    """Programs with hooks and checkpoints in which logits have a reader besides token_stats: a name, and a function of
    a leaf and of token_stats. The functions return what goes backward."""
    from torch.autograd import graph
    from torch.utils.checkpoint import checkpoint

    ids = chosen((2, 5), 33, 21)
    hooks = {
        "no hooks": contextlib.nullcontext,
        "save_on_cpu": graph.save_on_cpu,
        "hooks that return what they get": lambda: graph.saved_tensors_hooks(lambda x: x, lambda x: x),
        "hooks that copy what is large": lambda: graph.saved_tensors_hooks(
            lambda x: x if x.numel() < 100 else x.clone(), lambda x: x
        ),
        "hooks that detach what is large": lambda: graph.saved_tensors_hooks(
            lambda x: x if x.numel() < 100 else x.detach(), lambda x: x
        ),
    }

    def tanh_inside(hook, leaf, stats):
        with hook():
            return stats(leaf.tanh(), ids)[0].sum()

    def square_inside(hook, leaf, stats):
        with hook():
            x = leaf * 1
            square = (x**2).sum()
            return stats(x, ids)[0].sum() + square

    def tanh_outside(hook, leaf, stats):
        with hook():
            x = leaf.tanh()
        return stats(x, ids)[0].sum()

    def square_outside(hook, leaf, stats):
        with hook():
            x = leaf * 1
            square = (x**2).sum()
        return stats(x, ids)[0].sum() + square

    for name, hook in hooks.items():
        for f in (tanh_inside, square_inside, tanh_outside, square_outside):
            yield f"{name}, {f.__name__}", functools.partial(f, hook)

    def within(region, leaf, stats):
        return region(lambda x: stats(x.tanh(), ids)[0].sum(), leaf)

    def on_result(region, leaf, stats):
        return stats(region(torch.tanh, leaf), ids)[0].sum()

    def argument(region, leaf, stats):
        x = leaf * 1
        square = region(lambda z: (z**2).sum(), x)
        return stats(x, ids)[0].sum() + square

    def closed_over(region, leaf, stats):
        x = leaf * 1
        square = region(lambda _: (x**2).sum(), torch.zeros(1, requires_grad=True))
        return stats(x, ids)[0].sum() + square

    def read_outside(region, leaf, stats):
        x = leaf * 1
        square = (x**2).sum()
        return region(lambda z: stats(z, ids)[0].sum(), x) + square

    def two_regions(region, leaf, stats):
        x = leaf * 1
        first = region(lambda z: stats(z, ids)[0].sum(), x)
        return first + region(lambda z: stats(z, ids)[1].sum(), x)

    def of_result(region, leaf, stats):
        return region(lambda z: stats(z, ids)[0].sum(), (leaf * 1).tanh())

    def square_and_stats(region, leaf, stats):
        x = leaf * 1
        square = region(lambda z: (z**2).sum(), x)
        return square + region(lambda z: stats(z, ids)[0].sum(), x)

    for reentrant in (True, False):
        region = functools.partial(checkpoint, use_reentrant=reentrant)
        for f in (
            within, on_result, argument, closed_over, read_outside, two_regions, of_result, square_and_stats
        ):  # fmt: skip
            if f is closed_over and reentrant:
                continue  # PyTorch has no gradient there for what is closed over
            yield f"checkpoint(use_reentrant={reentrant}), {f.__name__}", functools.partial(f, region)


def compiled():
    """Models that return logits, [B, T, V], and other functions of them: a name and a function of hidden and weight."""
    ids = chosen((4, 16), 64, 50)

    def alone(hidden, weight):
        return (F.linear(hidden, weight),)

    def softcap(hidden, weight):
        return (torch.tanh(F.linear(hidden, weight) / 3) * 3,)

    def cross_entropy(hidden, weight):
        logits = F.linear(hidden, weight)
        return logits, F.cross_entropy(logits.view(-1, 64), ids.view(-1))

    def z_loss(hidden, weight):
        logits = F.linear(hidden, weight)
        return logits, 0.01 * torch.logsumexp(logits, -1).pow(2).mean()

    def entropy(hidden, weight):
        logits = F.linear(hidden, weight)
        return logits, -(torch.softmax(logits, -1) * torch.log_softmax(logits, -1)).sum(-1).mean()

    return ids, (alone, softcap, cross_entropy, z_loss, entropy)


class OtherReaders(Case):
    """Gradients where another operation reads the logits: right by default; in place right, or an error."""

    # PyTorch cannot see the write in these, nor can token_stats: the documentation of inplace=True names them.
    UNSEEN = {
        f"{hooks}, {f}"
        for hooks in ("save_on_cpu", "hooks that return what they get", "hooks that detach what is large")
        for f in ("tanh_outside", "square_outside")
    } | {"checkpoint(use_reentrant=False), closed_over"}

    def test_hooks_and_checkpoints(self):
        leaf = numbers((2, 5, 33), 20).requires_grad_()
        for name, step in situations():
            wide = leaf.detach().double().requires_grad_()
            step(wide, expected).backward()
            with self.subTest(name):
                leaf.grad = None
                step(leaf, token_stats).backward()
                self.close(leaf.grad, wide.grad, 1e-5)
            if name not in self.UNSEEN:
                with self.subTest(name, inplace=True):
                    leaf.grad = None
                    try:
                        step(leaf, in_place).backward()
                    except (reweight.InputError, RuntimeError) as e:
                        self.assertRegex(str(e), "^inplace is True|modified by an inplace operation")
                    else:
                        self.close(leaf.grad, wide.grad, 1e-5)

    def test_compiled_models(self):
        hidden, weight = numbers((4, 16, 8), 51), numbers((64, 8), 52).requires_grad_()
        ids, models = compiled()

        def step(model, stats, cut, weight):
            logits, *others = model(hidden.to(weight.dtype), weight)
            z, y = (logits[:, :-1], ids[:, 1:]) if cut else (logits, ids)
            logprobs, entropy = stats(z, y)
            return sum(others, -logprobs.mean() - 0.1 * entropy.mean())

        for model in models:
            torch._dynamo.reset()
            fast = torch.compile(model)
            for cut in (False, True):
                wide = weight.detach().double().requires_grad_()
                (want,) = torch.autograd.grad(step(model, expected, cut, wide), wide)
                with self.subTest(model.__name__, cut=cut):
                    (got,) = torch.autograd.grad(step(fast, token_stats, cut, weight), weight)
                    self.close(got, want, 1e-6)
                    scaled = lambda z, y: in_place(z.div_(1), y)
                    for stats in (in_place, scaled):
                        with self.assertRaisesRegex(reweight.InputError, "^inplace is True, .* a compiled graph"):
                            step(fast, stats, cut, weight)


class InPlace(Case):
    """inplace=True: the gradient is written over the logits, and autograd knows it."""

    def setUp(self):
        self.leaf = numbers((2, 5, 33), 20).requires_grad_()
        self.ids = chosen((2, 5), 33, 21)

    def changed(self):
        return self.assertRaisesRegex(RuntimeError, "modified by an inplace operation")

    def test_memory_is_the_gradient(self):
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            self.leaf.grad = None
            logits = self.leaf.to(dtype) * 1
            want = torch.autograd.grad(token_stats(logits, self.ids)[0].sum(), logits)[0]
            logits = self.leaf.to(dtype) * 1
            addresses = []
            logits.register_hook(lambda grad: addresses.append(grad.data_ptr()))
            in_place(logits, self.ids)[0].sum().backward()
            self.assertEqual(addresses, [logits.data_ptr()])
            self.assertTrue(torch.equal(logits.detach(), want))
            self.assertTrue(torch.equal(self.leaf.grad, want.float()))

    def test_slices_are_not_copied(self):
        logits = self.leaf * 1
        in_place(logits[:, :-1], self.ids[:, 1:])[0].sum().backward()
        self.assertTrue(torch.equal(logits[:, :-1].detach(), self.leaf.grad[:, :-1]))
        self.assertTrue((self.leaf.grad[:, -1] == 0).all())
        self.assertTrue(torch.equal(logits[:, -1].detach(), self.leaf[:, -1].detach()))

    def test_parts(self):
        """PyTorch counts the changes of the whole: the second part to go backward finds one."""
        for cut in (lambda t: t.split(1), lambda t: t.unbind(0), lambda t: t.chunk(2, dim=1), lambda t: (t[0], t[1])):
            logits = self.leaf * 1
            total = sum(in_place(x, y)[0].sum() for x, y in zip(cut(logits), cut(self.ids)))
            with self.assertRaisesRegex(RuntimeError, "modified"):
                total.backward()

    def test_saved_as_a_view(self):
        logits = self.leaf * 1
        squares = (logits[0] ** 2).sum()
        logprobs, _ = in_place(logits[:, 1:], self.ids[:, 1:])
        with self.changed():
            (logprobs.sum() + squares).backward()

    def test_twice_the_same_logits(self):
        logits = self.leaf * 1
        first, second = in_place(logits, self.ids)[0], in_place(logits, self.ids)[1]
        with self.changed():
            (first.sum() + second.sum()).backward()

    def test_another_operation_goes_backward_first(self):
        logits = self.leaf * 1
        logprobs, _ = in_place(logits, self.ids)
        (logprobs.sum() + (logits**2).sum()).backward()
        wide = self.leaf.detach().double().requires_grad_()
        (expected(wide, self.ids)[0].sum() + (wide**2).sum()).backward()
        self.gradient_close(self.leaf.grad, wide.grad, torch.float32, 2)

    def test_backward_twice(self):
        logprobs, entropy = in_place(self.leaf * 1, self.ids)
        logprobs.sum().backward(retain_graph=True)
        with self.assertRaisesRegex(RuntimeError, "inplace=False"):
            entropy.sum().backward()

    def test_without_a_gradient(self):
        """There is nothing to overwrite, and the same call serves for evaluation."""
        with torch.no_grad():
            in_place(self.leaf, self.ids)
        in_place(self.leaf.detach(), self.ids)

    def test_refused(self):
        class Sub(torch.Tensor):
            pass

        row = (numbers((1, 5, 33), 22).requires_grad_() * 1).expand(2, 5, 33)
        for message, call in [
            ("leaf tensor, or a view", lambda: in_place(self.leaf, self.ids)),
            ("leaf tensor, or a view", lambda: in_place(self.leaf[:, 1:], self.ids[:, 1:])),
            ("a Sub, a subclass", lambda: in_place((self.leaf * 1).as_subclass(Sub), self.ids)),
            ("share memory", lambda: in_place(row, self.ids)),
            ("functorch transforms", lambda: torch.vmap(functools.partial(in_place, self.leaf * 1))(self.ids[None])),
            ("code that is compiled", lambda: torch.export.export(Stats(True), (self.leaf, self.ids))),
        ]:
            with self.subTest(message), self.assertRaisesRegex(Exception, message):
                call()
        step = lambda x: in_place(x * 1, self.ids)[0].sum()
        with self.assertRaisesRegex(torch._dynamo.exc.Unsupported, "InputError|Observed exception"):
            torch.compile(step, fullgraph=True, backend="eager")(self.leaf)
        # Without fullgraph PyTorch runs the function as it is, or up to the error.
        (want,) = torch.autograd.grad(token_stats(self.leaf, self.ids)[0].sum(), self.leaf)
        try:
            (got,) = torch.autograd.grad(torch.compile(step, backend="aot_eager")(self.leaf), self.leaf)
        except reweight.InputError as e:
            self.assertIn("inplace is True, want False in code that is compiled", str(e))
        else:
            self.assertTrue(torch.equal(got, want))


class Stats(torch.nn.Module):
    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace

    def forward(self, x, ids):
        return token_stats(x * 1, ids, inplace=self.inplace)


class LinearTokenStats(Case):
    def operands(self, n, vocab, width, dtype=torch.float32, seed=30):
        hidden = numbers((n, width), seed, 1, dtype).requires_grad_()
        weight = numbers((vocab, width), seed + 1, 0.3, dtype).requires_grad_()
        bias = numbers((vocab,), seed + 2, 1, dtype).requires_grad_()
        return hidden, weight, bias, chosen((n,), vocab, seed + 3)

    def test_autograd(self):
        """Within 1e-5 of PyTorch with all logits, relative to the largest gradient."""
        a, b = numbers((21,), 34), numbers((21,), 35)
        for chunk in (100, 400, 1500, None):
            for with_bias in (True, False):
                for temperature in (1.0, 0.7):
                    with self.subTest(chunk=chunk, bias=with_bias, temperature=temperature):
                        *leaves, ids = self.operands(21, 1500, 16)
                        hidden, weight, bias = leaves
                        bias = bias if with_bias else None
                        l, h = linear_token_stats(
                            hidden, weight, ids, chunk=chunk, temperature=temperature, bias=bias
                        )
                        (l * a + h * b).sum().backward()
                        got = [t.grad for t in leaves]
                        wide = [t.detach().double().requires_grad_() for t in leaves]
                        logits = wide[0] @ wide[1].t() + (wide[2] if with_bias else 0)
                        wl, wh = expected(logits, ids, temperature)
                        (wl * a + wh * b).sum().backward()
                        self.close(l, wl, 1e-5)
                        self.close(h, wh, 1e-5)
                        for g, w in zip(got, wide):
                            if w.grad is None:
                                self.assertIsNone(g)
                            else:
                                self.close(g, w.grad, 1e-5 * w.grad.abs().max().clamp(min=1))

    def test_shapes(self):
        hidden, weight, _, ids = self.operands(12, 90, 8)
        flat, _ = linear_token_stats(hidden, weight, ids, chunk=5)
        for shape in ((12,), (3, 4), (2, 3, 2)):
            l, h = linear_token_stats(hidden.view(*shape, 8), weight, ids.view(shape), chunk=5)
            self.assertEqual((l.shape, h.shape), (shape, shape))
            self.assertTrue(torch.equal(l.reshape(-1), flat))
        l, h = linear_token_stats(hidden.view(3, 4, 8)[:, :-1], weight, ids.view(3, 4)[:, 1:])
        rows = [i for i in range(12) if i % 4 < 3]
        want, _ = linear_token_stats(hidden[rows], weight, ids[[i + 1 for i in rows]])
        self.assertTrue(torch.equal(l, want.view(3, 3)))
        grads = numbers((3, 4), 36)[:, 1:]
        for got, want in zip(*(torch.autograd.grad(t, (hidden, weight), g) for t, g in ((l, grads), (want, grads.reshape(-1))))):
            self.close(got, want, 1e-6)
        l, h = linear_token_stats(hidden[0], weight, ids[0], entropy=False)
        self.assertEqual((l.shape, h), ((), None))
        l, _ = linear_token_stats(hidden[:0], weight, ids[:0])
        l.sum().backward()
        self.assertTrue((weight.grad == 0).all())

    def test_one_chunk(self):
        """The rows of one chunk are what the matrix product and the kernels make of them."""
        hidden, weight, _, ids = self.operands(10, 400, 8)
        want = reweight.token_stats((hidden @ weight.t()).detach(), ids)
        names = ("logprobs", "entropy", "lse")
        for got, name in zip(linear_token_stats(hidden, weight, ids, chunk=400, lse=True), names):
            self.assertTrue(torch.equal(got, getattr(want, name)))

    def test_log_sum_sq_probs(self):
        """Within 1e-5 of PyTorch with all logits, of float32 and float64; NaN where there is no distribution, and at most 0."""
        *leaves, ids = self.operands(21, 1500, 16)
        for dtype in (torch.float32, torch.float64):
            hidden, weight, bias = (t.detach().to(dtype) for t in leaves)
            hidden[3] *= 1e4
            for chunk in (100, 1500, None):
                for temperature in (1.0, 0.7):
                    logits = (hidden.double() @ weight.double().t() + bias.double()) / temperature
                    want = torch.logsumexp(2 * torch.log_softmax(logits, -1), -1)
                    options = dict(chunk=chunk, temperature=temperature, bias=bias, log_sum_sq_probs=True)
                    l, h, q = linear_token_stats(hidden, weight, ids, **options)
                    self.close(q, want, 1e-5)
                    self.assertTrue((q <= 0).all())
                    *others, lse, again = linear_token_stats(hidden, weight, ids, lse=True, **options)
                    self.assertTrue(torch.equal(again, q) and torch.equal(others[0], l) and torch.equal(others[1], h))
        bias[:100] = -math.inf  # a tile without any
        _, _, q = linear_token_stats(hidden, weight, ids, chunk=100, bias=bias, log_sum_sq_probs=True)
        self.close(q, torch.logsumexp(2 * torch.log_softmax(hidden @ weight.t() + bias, -1), -1), 1e-5)
        bias[:] = math.nan
        _, _, q = linear_token_stats(hidden, weight, ids, chunk=100, bias=bias, log_sum_sq_probs=True)
        self.assertTrue(q.isnan().all())

    def test_gradients_only_where_wanted(self):
        for wanted in range(3):
            *leaves, ids = self.operands(6, 50, 8)
            for i, t in enumerate(leaves):
                t.requires_grad_(i == wanted)
            hidden, weight, bias = leaves
            linear_token_stats(hidden, weight, ids, bias=bias)[0].sum().backward()
            self.assertEqual([t.grad is not None for t in leaves], [i == wanted for i in range(3)])

    def test_backward_twice(self):
        hidden, weight, _, ids = self.operands(6, 50, 8)
        l, _ = linear_token_stats(hidden, weight, ids, chunk=4)
        l.sum().backward(retain_graph=True)
        once = weight.grad.clone()
        l.sum().backward()
        self.assertTrue(torch.equal(weight.grad, 2 * once))

    def test_gradcheck(self):
        *leaves, ids = self.operands(5, 6, 3, torch.float64)
        check = lambda x, w, b: linear_token_stats(x, w, ids, chunk=2, bias=b, temperature=0.7)
        self.assertTrue(torch.autograd.gradcheck(check, leaves))

    def test_autocast_leaves_float64_alone(self):
        hidden, weight, _, ids = self.operands(6, 50, 8)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            l, _ = linear_token_stats(hidden.double(), weight.double(), ids)
        self.assertEqual(l.dtype, torch.float64)  # as PyTorch's products do

    def test_errors(self):
        hidden, weight, bias, ids = self.operands(6, 50, 8)
        cube, bad = hidden.view(2, 3, 8), ids.clone()
        bad[5] = 50
        for message, kind, call in [
            ("hidden is a list", TypeError, lambda: linear_token_stats([1.0], weight, ids)),
            ("ids has the shape", ValueError, lambda: linear_token_stats(hidden, weight, ids[:2])),
            ("weight has the shape", ValueError, lambda: linear_token_stats(hidden, weight.t(), ids)),
            ("weight has dtype bfloat16", TypeError, lambda: linear_token_stats(hidden, weight.bfloat16(), ids)),
            ("bias has the shape", ValueError, lambda: linear_token_stats(hidden, weight, ids, bias=bias[:3])),
            ("chunk is a float", TypeError, lambda: linear_token_stats(hidden, weight, ids, chunk=1.5)),
            ("chunk is 0", ValueError, lambda: linear_token_stats(hidden, weight, ids, chunk=0)),
            ("hidden has dtype int64", TypeError, lambda: linear_token_stats(ids[:, None], ids[:, None], ids)),
            ("hidden has dtype float16", TypeError, lambda: linear_token_stats(hidden.half(), weight.half(), ids)),
            (r"ids\[5\] is 50", ValueError, lambda: linear_token_stats(hidden, weight, bad, chunk=2)),
            (r"ids\[1, 2\] is 50", ValueError, lambda: linear_token_stats(cube, weight, bad.view(2, 3), chunk=2)),
        ]:
            with self.subTest(message), self.assertRaisesRegex(kind, message):
                call()


class Loss(Case):
    def batch(self, **changed):
        """Two trajectories of seven tokens, padded, with every role."""
        arrays = dict(
            role=torch.tensor([[0, 1, 2, 2, 1, 0, 0], [0, 0, 1, 2, 1, 1, 2]], dtype=torch.uint8),
            old_logprobs=-numbers((2, 7), 40).abs(),
            advantages=numbers((2, 7), 41),
        )
        return reweight.Batch(**{**arrays, **changed})

    def test_autograd(self):
        """Against the formula of the clipped surrogate, by PyTorch in float64."""
        batch = self.batch()
        weights = numbers((2, 7), 42).abs()
        for aggregation in ("token_mean", "seq_mean_token_sum", "seq_mean_token_mean"):
            logprobs = (batch.old_logprobs + numbers((2, 7), 43, 0.4)).requires_grad_()
            value, result = loss(logprobs, batch, weights, aggregation=aggregation, policy=reweight.PPO(clip_low=0.1))
            (3 * value).backward()
            wide = logprobs.detach().double().requires_grad_()
            a = batch.advantages.double()
            ratio = (wide - batch.old_logprobs.double()).exp()
            terms = torch.maximum(-a * ratio, -a * ratio.clamp(0.9, 1.28))
            terms = torch.where(a < 0, torch.minimum(terms, -3 * a), terms)
            w = weights.double() * (batch.role != 0)
            if aggregation == "token_mean":
                want = (w * terms).sum() / w.sum()
            elif aggregation == "seq_mean_token_sum":
                want = (w * terms).sum(-1).mean()
            else:
                want = ((w * terms).sum(-1) / w.sum(-1)).mean()
            (3 * want).backward()
            self.assertEqual((value.shape, value.dtype), ((), torch.float32))
            self.assertEqual(value.item(), np.float32(result.loss))
            want_result = reweight.loss(
                dataclasses.replace(batch, logprobs=logprobs), weights, aggregation=aggregation, policy=reweight.PPO(clip_low=0.1)
            )
            for got, number in zip(result._replace(grad=0), want_result._replace(grad=0)):
                self.assertEqual(got, number)
            self.assertFalse(result.grad.requires_grad)
            self.close(value, want, 1e-6)
            self.close(logprobs.grad, wide.grad, 1e-6)
            self.assertTrue(torch.equal(logprobs.grad, 3 * result.grad))
            self.assertIsNone(batch.logprobs)

    def test_options(self):
        """Each option, the reference and the layouts reach the library: the results are its own."""
        batch = self.batch(ref_logprobs=-numbers((2, 7), 46).abs())
        batch.span_ids = reweight.spans_from_mask(batch.role)
        packed = reweight.Batch(
            **{name: t.reshape(-1) for name, t in vars(batch).items() if t is not None}, seq_offsets=torch.tensor([0, 7, 14])
        )
        logprobs = batch.old_logprobs + numbers((2, 7), 47, 0.6)
        changes = (
            {},
            {"clip_low": 0.05},
            {"clip_high": 0.05},
            {"dual_clip": 1.1},
            {"aggregation": "seq_mean_token_sum_norm", "norm_length": 5},
            {"policy": "gspo"},
            {"policy": "grpo_s", "sequence": "span"},
            {"policy": "cispo", "clip_high": 0.1},
            {"policy": "sapo", "tau_neg": 2, "kl": "k1+", "kl_coef": 0.1},
            {"policy": "dppo_tv", "ratio_cap": 1.5},
            {"policy": "vespo", "decay_pos": 1},
            {"policy": "dppo_kl", "clip_high": 0.01},
            {"policy": "dro", "beta": 0.1},
            {"policy": "gmpo", "clip_low": 0.1},
            {"policy": "clip_cov", "cov_share": 0.5, "cov_low": -1, "seed": 3},
            {"policy": "clip_cov", "cov_share": 0.5, "cov_low": -1, "seed": -4},
            {"policy": "kl_cov", "cov_coef": 3},
        )
        seen = set()
        for options in changes:
            options = with_policy(options)
            for b, x in ((batch, logprobs), (packed, logprobs.reshape(-1))):
                value, got = loss(x, b, **options)
                want = reweight.loss(dataclasses.replace(b, logprobs=x), **options)
                self.assertTrue(torch.equal(got.grad, want.grad))
                self.assertEqual([float(t) for t in got._replace(grad=0)], [float(t) for t in want._replace(grad=0)])
                self.assertGreater(got.kl, 0)
                seen.add(value.item())
        self.assertEqual(len(seen), len(changes))

    def test_from_logits(self):
        """The whole step: logits to loss, and the gradient back to them."""
        batch = self.batch()
        ids = chosen((2, 7), 60, 44)
        leaf = numbers((2, 7, 60), 45).requires_grad_()
        logprobs, _ = token_stats(leaf * 1, ids, entropy=False)
        value, result = loss(logprobs, batch)
        value.backward()
        want = reweight.row_gradient(leaf, ids, logprobs, result.grad)
        self.assertTrue(torch.equal(leaf.grad, want))
        self.assertTrue((leaf.grad[batch.role == 0] == 0).all())

    def test_backward_twice(self):
        logprobs = self.batch().old_logprobs.clone().requires_grad_()
        value, result = loss(logprobs, self.batch())
        value.backward(retain_graph=True)
        value.backward()
        self.assertTrue(torch.equal(logprobs.grad, 2 * result.grad))

    def test_batch_of_numpy_arrays(self):
        batch = self.batch()
        arrays = {name: t.numpy() for name, t in vars(batch).items() if t is not None}
        arrays["role"].flags.writeable = False
        grads = []
        for b in (batch, reweight.Batch(**arrays)):
            logprobs = batch.old_logprobs.clone().requires_grad_()
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # PyTorch has one about arrays that are read-only
                loss(logprobs, b)[0].backward()
            grads.append(logprobs.grad)
        self.assertTrue(torch.equal(*grads))

    def test_no_grad(self):
        value, _ = loss(self.batch().old_logprobs, self.batch())
        self.assertFalse(value.requires_grad)

    def test_errors(self):
        logprobs = self.batch().old_logprobs
        for message, kind, call in [
            ("logprobs is a list", TypeError, lambda: loss([1.0], self.batch())),
            ("logprobs has dtype float64", TypeError, lambda: loss(logprobs.double(), self.batch())),
            ("logprobs has the shape", ValueError, lambda: loss(logprobs[0], self.batch())),
            ("advantages is None", ValueError, lambda: loss(logprobs, self.batch(advantages=None))),
            ("clip_low is 2", ValueError, lambda: loss(logprobs, self.batch(), policy=reweight.PPO(clip_low=2))),
            ("loss has no option cliplow", TypeError, lambda: loss(logprobs, self.batch(), cliplow=2)),
            ("batch is a dict", TypeError, lambda: loss(logprobs, {})),
            ("role is a list", TypeError, lambda: loss(logprobs, self.batch(role=[0, 1]))),
            ("weights is a float", TypeError, lambda: loss(logprobs, self.batch(), 1.0)),
            ("dual_clip is a list, want a number", TypeError, lambda: loss(logprobs, self.batch(), policy=reweight.PPO(dual_clip=[]))),
            ("norm_length is a float", TypeError, lambda: loss(logprobs, self.batch(), norm_length=1.5)),
            ("aggregation is an int", TypeError, lambda: loss(logprobs, self.batch(), aggregation=3)),
            ('aggregation is "x"', ValueError, lambda: loss(logprobs, self.batch(), aggregation="x")),
            ("advantages is a MaskedArray", TypeError, lambda: loss(logprobs, self.batch(advantages=np.ma.zeros((2, 7))))),
            ("advantages is an array that", TypeError, lambda: loss(logprobs, self.batch(advantages=np.zeros((2, 7), ">f4")))),
        ]:
            with self.subTest(message), self.assertRaisesRegex(kind, message):
                call()


if __name__ == "__main__":
    unittest.main()
