"""Which arrays are taken, and what is said of those that are not."""

import tempfile
import unittest
import warnings
from pathlib import Path

import numpy as np
from support import TestCase, needs_torch, random_batch, torch

import reweight
from reweight import TokenStats


def rows(dtype=np.float32, shape=(3, 5)):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


class Types(TestCase):
    def test_what_is_no_array(self):
        for obj, described in (
            ([[1.0, 2.0]], "a list"),
            (None, "None"),
            (1.5, "a float"),
            (np.float32(1), "a float32"),
            (range(3), "a range"),
            (np.ma.masked_array(rows()), "a MaskedArray"),
        ):
            want = f"logits is {described}, want a NumPy array or a torch.Tensor of float32, bfloat16 or float16"
            self.assertTypeError(want, lambda: reweight.token_stats(obj))

    def test_dtypes(self):
        for dtype, described in (
            (np.float64, "float64"),
            (np.int32, "int32"),
            (object, "object"),
            (">f4", "float32 in the other byte order (>f4)"),
            (np.complex64, "complex64"),
            ([("a", np.float32)], "[('a', '<f4')]"),
        ):
            logits = np.zeros((3, 5), dtype)
            self.assertTypeError(
                f"logits has dtype {described}, want float32, bfloat16 or float16", lambda: reweight.token_stats(logits)
            )
        self.assertTypeError(
            "ids has dtype uint8, want int32 or int64", lambda: reweight.token_stats(rows(), np.zeros(3, np.uint8))
        )
        self.assertTypeError(
            "ids has dtype int64 in the other byte order (>i8), want int32 or int64",
            lambda: reweight.token_stats(rows(), np.zeros(3, ">i8")),
        )
        self.assertTypeError(
            "role has dtype int64, want uint8", lambda: reweight.whiten(np.zeros(3, np.float32), np.zeros(3, np.int64))
        )

    def test_subclasses_of_arrays(self):
        class Sub(np.ndarray):
            pass

        got = reweight.token_stats(rows().view(Sub))
        self.assertBits(got.lse, reweight.token_stats(rows()).lse)
        self.assertIs(type(got.lse), np.ndarray)

    def test_options_are_numbers(self):
        self.assertTypeError(
            "temperature is a str, want a number", lambda: reweight.token_stats(rows(), temperature="hot")
        )
        for text in ("0.5", b"0.5", bytearray(b"1"), np.str_("2")):  # numbers to float, which are texts here
            kind = type(text).__name__
            with self.subTest(kind):
                self.assertTypeError(
                    f"temperature is a {kind}, want a number", lambda: reweight.token_stats(rows(), temperature=text)
                )
        self.assertInputError(
            "temperature",
            "temperature is an integer above all of float64",
            lambda: reweight.token_stats(rows(), temperature=10**400),
        )
        batch = reweight.Batch(role=np.zeros(3, np.uint8))
        self.assertTypeError("alpha is a list, want a number", lambda: reweight.actfocus(batch, alpha=[1]))
        self.assertTypeError("norm_length is a float, want an integer", lambda: reweight.loss(batch, norm_length=1.5))
        self.assertInputError(
            "norm_length",
            f"norm_length is {2**63}, want an integer of 64 bits",
            lambda: reweight.loss(batch, norm_length=2**63),
        )
        self.assertTypeError(
            "workers is a float, want an integer", lambda: reweight.token_stats(rows(), workers=1.0)
        )
        self.assertInputError(
            "workers",
            f"workers is {2**32 + 1}, want an integer of 32 bits",
            lambda: reweight.token_stats(rows(), workers=2**32 + 1),
        )
        self.assertTypeError("batch is a dict, want a Batch", lambda: reweight.grpo({"role": batch.role}))
        self.assertTypeError(
            "scope is an int, want one of the strings group, trajectory, batch", lambda: reweight.aem(batch, scope=1)
        )

    @needs_torch
    def test_tensors(self):
        for dtype in (torch.float64, torch.int64, torch.bool, torch.complex64, torch.int8):
            logits = torch.zeros((3, 5), dtype=dtype)
            name = str(dtype).replace("torch.", "")
            self.assertTypeError(
                f"logits has dtype {name}, want float32, bfloat16 or float16", lambda: reweight.token_stats(logits)
            )
        sparse = torch.eye(3).to_sparse()
        self.assertTypeError("logits is a sparse_coo tensor, want a plain one", lambda: reweight.token_stats(sparse))
        meta = torch.zeros(3, 5, device="meta")
        self.assertTypeError(
            "logits is on the device meta, want the CPU or a CUDA device", lambda: reweight.token_stats(meta)
        )

    @needs_torch
    def test_tensors_that_require_grad(self):
        x = torch.from_numpy(rows()).requires_grad_()
        got = reweight.token_stats(x)
        self.assertFalse(got.lse.requires_grad)
        self.assertBits(got.lse, reweight.token_stats(rows()).lse)

    @needs_torch
    def test_kind_of_results(self):
        x, ids = rows(), np.array([0, 1, 2])
        of_numpy = reweight.token_stats(x, ids, log_sum_sq_probs=True)
        mixed = reweight.token_stats(torch.from_numpy(x), ids, log_sum_sq_probs=True)
        for got, want in zip(mixed, of_numpy):
            self.assertIsInstance(want, np.ndarray)
            self.assertIsInstance(got, torch.Tensor)
            self.assertEqual(got.dtype, torch.float32)
            self.assertBits(got, want)


class Memory(TestCase):
    def test_misaligned(self):
        memory = np.zeros(4 * 15 + 1, np.uint8)
        x = memory[1:].view(np.float32).reshape(3, 5)
        want = "logits is not aligned to 4 bytes, the size of an element"
        self.assertInputError("logits", want, lambda: reweight.token_stats(x))
        ids = np.zeros(3 * 8 + 4, np.uint8)[4:].view(np.int64)
        want = "ids is not aligned to 8 bytes, the size of an element"
        self.assertInputError("ids", want, lambda: reweight.token_stats(rows(), ids))

    @needs_torch
    def test_misaligned_tensors(self):
        memory = np.zeros(4 * 15 + 1, np.uint8)
        x = torch.frombuffer(memory.data, dtype=torch.float32, offset=1, count=15).reshape(3, 5)
        want = "logits is not aligned to 4 bytes, the size of an element"
        self.assertInputError("logits", want, lambda: reweight.token_stats(x))

    def test_aligned_to_an_element_only(self):
        x = np.zeros(16, np.float32)[1:].reshape(3, 5)
        x[:] = rows()
        self.assertBits(reweight.token_stats(x).lse, reweight.token_stats(rows()).lse)

    def test_read_only(self):
        x = rows()
        x.flags.writeable = False
        stats = reweight.token_stats(x, np.zeros(3, np.int64))  # it is only read
        out = np.zeros(3, np.float32)
        out.flags.writeable = False
        self.assertInputError(
            "out.lse",
            "out.lse is read-only, want an array that can be written",
            lambda: reweight.token_stats(x, out=reweight.TokenStats(lse=out)),
        )
        self.assertInputError(
            "out",
            "out is read-only, want an array that can be written",
            lambda: reweight.row_gradient(x, np.zeros(3, np.int64), stats.logprobs, stats.logprobs, out=x),
        )

    @needs_torch
    def test_freed_storage(self):
        x = torch.zeros(3, 5)
        x.untyped_storage().resize_(0)
        self.assertInputError("logits", "logits has no memory: its storage was freed", lambda: reweight.token_stats(x))

    @needs_torch
    def test_fake_tensors(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            x = torch.zeros(3, 5)
        want = "logits has no memory: it is a FakeTensor, want a plain tensor"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of PyTorch, about the address of such a tensor
            self.assertInputError("logits", want, lambda: reweight.token_stats(x))

    @needs_torch
    def test_signs_that_are_not_in_memory(self):
        negated = torch._neg_view(torch.ones(5))  # as the imaginary part of a conjugate is
        self.assertTrue(negated.is_neg())
        self.assertInputError(
            "logits",
            "logits is a view whose signs PyTorch has not changed in memory yet, want its resolve_neg()",
            lambda: reweight.token_stats(negated),
        )
        self.assertBits(reweight.token_stats(negated.resolve_neg()).lse, reweight.token_stats(-torch.ones(5)).lse)

    @needs_torch
    def test_autograd_sees_what_is_written(self):
        logprobs, advantages, one = torch.ones(5, requires_grad=True), torch.ones(5), torch.ones((), requires_grad=True)
        total = (logprobs * advantages).sum()
        reweight.multiply(advantages, advantages, out=advantages)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            total.backward()
        square = one**2
        reweight.token_stats(torch.from_numpy(rows()[0]), out=reweight.TokenStats(lse=one))
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            square.backward()
        with torch.inference_mode():
            out = torch.zeros(5)
        reweight.multiply(advantages, advantages, out=out)
        self.assertBits(out, advantages)

    @needs_torch
    def test_expanded_outputs(self):
        self.assertInputError(
            "out.lse",
            "out.lse has elements that share their memory: for the shape [3] its strides are [0] elements",
            lambda: reweight.token_stats(rows(), out=reweight.TokenStats(lse=torch.zeros(1).expand(3))),
        )

    def test_overlapping_outputs(self):
        memory = np.zeros(24, np.float32)
        windows = np.lib.stride_tricks.as_strided(memory, (2, 3), (4, 4))
        self.assertInputError(
            "out.lse",
            "out.lse has elements that share their memory: for the shape [2, 3] its strides are [1, 1] elements",
            lambda: reweight.token_stats(rows(shape=(2, 3, 5)), out=reweight.TokenStats(lse=windows)),
        )
        for shape, strides, apart in (
            ((2, 2, 5), (5, 5, 1), False),
            ((2, 2, 5), (9, 5, 1), False),
            ((2, 2, 5), (10, 5, 1), True),
            ((2, 2, 5), (5, 10, 1), True),
            ((2, 1, 5), (5, 3, 1), True),
        ):
            out = np.lib.stride_tricks.as_strided(memory, shape, tuple(4 * s for s in strides))
            x, ids, per_row = rows(shape=shape), np.zeros(shape[:-1], np.int64), np.zeros(shape[:-1], np.float32)
            call = lambda: reweight.row_gradient(x, ids, per_row, per_row, out=out)
            with self.subTest(strides=strides):
                if apart:
                    self.assertIs(call(), out)
                else:
                    with self.assertRaisesRegex(reweight.InputError, "out has elements that share their memory"):
                        call()

    def test_not_contiguous(self):
        wide = rows(shape=(3, 10))
        self.assertInputError(
            "logits",
            "logits is not contiguous: for the shape [3, 5] its strides are [10, 2] elements",
            lambda: reweight.token_stats(wide[:, ::2]),
        )
        self.assertInputError(
            "logits",
            "logits is not contiguous: for the shape [3, 10] its strides are [10, -1] elements",
            lambda: reweight.token_stats(wide[:, ::-1]),
        )
        self.assertInputError(
            "logits",
            "logits has a row every 0 elements, want at least 10, the logits of a row",
            lambda: reweight.token_stats(np.broadcast_to(wide[:1], (3, 10))),
        )
        self.assertInputError(
            "logits",
            "logits has a row every -10 elements, want at least 10, the logits of a row",
            lambda: reweight.token_stats(wide[::-1]),
        )
        role = np.ones(8, np.uint8)
        x = np.zeros(16, np.float32)[::2]
        self.assertInputError(
            "x", "x is not contiguous: for the shape [8] its strides are [2] elements", lambda: reweight.whiten(x, role)
        )
        self.assertInputError(
            "role",
            "role is not contiguous: for the shape [4] its strides are [2] elements",
            lambda: reweight.whiten(x[:4], role[::2]),
        )

    def test_strides_within_an_element(self):
        pairs = np.zeros((4, 5), [("a", np.float32), ("b", np.int16)])["a"]
        self.assertInputError(
            "logits",
            "logits is not aligned to 4 bytes, the size of an element",
            lambda: reweight.token_stats(pairs),
        )

    def test_shapes(self):
        for shape in ((), (1, 2, 3, 4)):
            self.assertInputError(
                "logits",
                f"logits has the shape {list(shape)}, want [N, V], [B, T, V] or [V]",
                lambda: reweight.token_stats(np.zeros(shape, np.float32)),
            )
        self.assertInputError(
            "logits",
            "logits has rows of 0 logits, want at least 1",
            lambda: reweight.token_stats(np.zeros((3, 0), np.float32)),
        )
        self.assertInputError(
            "ids",
            "ids has the shape [4], want [3], one element per row",
            lambda: reweight.token_stats(rows(), np.zeros(4, np.int64)),
        )
        self.assertInputError(
            "entropy",
            "entropy has the shape [4], want [3], one element per token",
            lambda: reweight.aem(
                reweight.Batch(
                    role=np.ones(3, np.uint8),
                    seq_offsets=np.array([0, 3]),
                    span_ids=np.zeros(3, np.int32),
                    entropy=np.zeros(4, np.float32),
                )
            ),
        )


class NumPy(TestCase):
    """What NumPy's users hand over besides plain arrays."""

    def test_scalars(self):
        x, ids = rows(), np.array([0, 1, 2])
        want = reweight.token_stats(x, ids, temperature=0.5, workers=1)
        for half, one in ((np.float32(0.5), np.int64(1)), (np.float64(0.5), np.uint8(1)), (np.array(0.5), np.array(1))):
            got = reweight.token_stats(x, ids, temperature=half, workers=one)
            for g, w in zip(got, want):
                self.assertBits(g, w)
        self.assertTypeError(
            "temperature is a ndarray, want a number", lambda: reweight.token_stats(x, temperature=np.array([1.0, 2.0]))
        )

    def test_numbers_are_python_s(self):
        batch = reweight.Batch(role=np.full(3, 2, np.uint8), ref_energy=np.arange(3, dtype=np.float32))
        focus = reweight.actfocus(batch)
        self.assertEqual([type(v) for v in focus[1:]], [int, float, float])

    def test_nothing_is_copied(self):
        x, out = rows(), np.zeros(3, np.float32)
        got = reweight.token_stats(x, out=reweight.TokenStats(lse=out))
        self.assertIs(got.lse, out)
        self.assertIs(np.asarray(got.lse, copy=False) if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else out, out)
        gradient = reweight.row_gradient(x, np.zeros(3, np.int64), out, out, out=x)
        self.assertIs(gradient, x)

    def test_float16(self):
        x, ids = np.random.default_rng(1).normal(size=(4, 33)).astype(np.float16), np.arange(4)
        got, wide = reweight.token_stats(x, ids), x.astype(np.float64)
        lse = np.log(np.exp(wide).sum(-1))
        self.assertNear(got.lse, lse, 1e-6)
        self.assertNear(got.logprobs, wide[np.arange(4), ids] - lse, 1e-6)

    def test_memory_maps(self):
        x, ids = rows(), np.array([0, 1, 2])
        want = reweight.token_stats(x, ids, log_sum_sq_probs=True)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "logits")
            x.tofile(file)
            mapped = np.memmap(file, np.float32, "r", shape=x.shape)
            for got, w in zip(reweight.token_stats(mapped, ids, log_sum_sq_probs=True), want):
                self.assertIs(type(got), np.ndarray)
                self.assertBits(got, w)
            self.assertInputError(
                "out",
                "out is read-only, want an array that can be written",
                lambda: reweight.row_gradient(mapped, ids, want.logprobs, want.logprobs, out=mapped),
            )
            written = np.memmap(file, np.float32, "r+", shape=x.shape)
            self.assertIs(reweight.row_gradient(written, ids, want.logprobs, want.logprobs, out=written), written)
            written.flush()
            gradient = reweight.row_gradient(x, ids, want.logprobs, want.logprobs)
            self.assertBits(np.fromfile(file, np.float32).reshape(x.shape), gradient)

    @needs_torch
    def test_dlpack(self):
        x, ids = rows(), np.array([0, 1, 2])
        want = reweight.token_stats(x, ids)
        for logits in (np.from_dlpack(torch.from_numpy(x)), torch.from_dlpack(x)):
            got = reweight.token_stats(logits, ids)
            self.assertIs(type(got.lse), type(logits))
            self.assertBits(got.lse, want.lse)
        memory = np.zeros(3, np.float32)
        reweight.token_stats(x, out=reweight.TokenStats(lse=torch.from_dlpack(memory)))
        self.assertBits(memory, want.lse)


class Overlaps(TestCase):
    """out is an input, or has memory of its own."""

    def check(self, call, inputs, shape, argument="out", wrap=lambda out: out):
        """Wants the call to refuse an output over each of the inputs, and to write nothing."""
        for name, array in inputs.items():
            memory = np.zeros(max(array.nbytes, 4 + 4 * int(np.prod(shape))) + 8, np.uint8)
            memory[: array.nbytes] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
            given = memory[: array.nbytes].view(array.dtype).reshape(array.shape)
            begin = 4 if shape == array.shape or array.dtype != np.uint8 else 0
            out = memory[begin:][: 4 * int(np.prod(shape))].view(np.float32).reshape(shape)
            before = memory.copy()
            with self.subTest(name):
                text = f"{argument} overlaps {name}, want memory of its own"
                self.assertInputError(argument, text, lambda: call(**{**inputs, name: given}, out=wrap(out)))
                self.assertBits(memory, before)

    def of(self, arrays, *names):
        return {name: arrays[name] for name in names}

    def test_schemes(self):
        def scheme(function, *parameters, **options):
            """The function, whose parameters are not of the batch."""

            def call(out, **inputs):
                rest = {name: inputs.pop(name) for name in parameters}
                return function(reweight.Batch(**inputs), **rest, **options, out=out)

            return call

        arrays = random_batch(4)
        arrays["weights"] = np.abs(arrays["values"])
        shape = arrays["role"].shape
        layout = ("role", "seq_offsets", "group_ids")
        for call, *names in (
            (scheme(reweight.actfocus, signal="log_ratio"), "role", "old_logprobs", "ref_logprobs"),
            (scheme(reweight.aem), *layout, "span_ids", "entropy"),
            (scheme(reweight.grpo), *layout, "rewards"),
            (
                scheme(reweight.loss, "weights", aggregation="seq_mean_token_mean"),
                *("role", "seq_offsets", "logprobs", "old_logprobs", "advantages", "ref_logprobs", "weights"),
            ),
        ):
            self.check(call, self.of(arrays, *names), shape)
        inputs = dict(self.of(arrays, "role", "seq_offsets", "values"), rewards=arrays["entropy"])

        def gae(role, seq_offsets, values, rewards, out):
            batch = reweight.Batch(role=role, seq_offsets=seq_offsets, values=values)
            return reweight.gae(batch, rewards, out=out)

        self.check(gae, inputs, shape, "out.advantages", lambda out: reweight.GAEResult(out, None))
        other = np.zeros(shape, np.float32)
        self.check(gae, inputs, shape, "out.returns", lambda out: reweight.GAEResult(other, out))
        self.assertInputError(
            "out.returns",
            "out.returns overlaps out.advantages, want memory of its own",
            lambda: gae(**inputs, out=reweight.GAEResult(other, other)),
        )
        self.check(reweight.whiten, {"x": arrays["values"], "role": arrays["role"]}, shape)

    def test_kernels(self):
        arrays = random_batch(4)
        role, x = arrays["role"], arrays["values"]
        self.check(
            lambda signal, role, out: reweight.actfocus_weights(signal, role, 0, 1, out=out),
            {"signal": x, "role": role},
            x.shape,
        )
        floats = self.of(arrays, "logprobs", "old_logprobs", "advantages", "role")
        self.check(reweight.surrogate, {**floats, "weights": np.abs(x)}, x.shape)
        self.check(lambda x, out: reweight.exp_scale(x, 0, 1, out=out), {"x": x}, x.shape)
        self.check(reweight.multiply, {"a": x, "b": arrays["entropy"]}, x.shape)
        offsets = np.array([0, 3, 9, 20], np.int32)
        ranges = {"x": x, "offsets": offsets}
        self.check(reweight.span_means, ranges, (3,))
        other = np.zeros(3, np.float32)
        self.check(reweight.min_max, ranges, (3,), "out.lo", lambda out: reweight.MinMax(out, other))
        self.check(reweight.min_max, ranges, (3,), "out.hi", lambda out: reweight.MinMax(other, out))
        for argument, name, call in (
            ("out.hi", "out.lo", lambda: reweight.min_max(x, offsets, out=reweight.MinMax(other, other))),
            ("out", "x", lambda: reweight.span_means(x[:3], np.array([0, 1, 2, 3], np.int32), out=x[:3])),
        ):
            self.assertInputError(argument, f"{argument} overlaps {name}, want memory of its own", call)

    def test_rows(self):
        x = rows(shape=(6, 9))
        ids = np.arange(6, dtype=np.int32)
        stats = reweight.token_stats(x, ids)
        for name in TokenStats._fields:
            wrap = lambda out: TokenStats(**{name: out})
            self.check(reweight.token_stats, {"logits": x, "ids": ids}, (6,), "out." + name, wrap)
        per_row = {"logprobs": stats.logprobs, "grad": stats.lse, "entropy": stats.entropy, "grad_entropy": stats.lse}
        self.check(reweight.row_gradient, {"logits": x, "ids": ids, **per_row}, x.shape)

    def test_gaps(self):
        """Rows that are apart, with other rows between them."""
        wide = rows(shape=(4, 30))
        x, ids, grad = wide[:, :10], np.zeros(4, np.int32), np.ones(4, np.float32)
        logprobs = reweight.token_stats(x, ids).logprobs
        want = reweight.row_gradient(x, ids, logprobs, grad)
        call = lambda x, out: reweight.row_gradient(x, ids, logprobs, grad, out=out)
        text = "out overlaps logits, want memory of its own"
        for columns in range(1, 10):
            slanted = np.lib.stride_tricks.as_strided(wide, (4, 10), (4 * (30 - columns), 4))
            for out in wide[:, columns : columns + 10], slanted:
                self.assertInputError("out", text, lambda: call(x, out))
        self.assertBits(call(x, wide[:, 10:20]), want)
        self.assertBits(call(x, x), want)

    def test_the_same(self):
        """Where out may be an input, the results are those without out."""
        arrays = random_batch(4)
        batch = lambda: reweight.Batch(**{name: array.copy() for name, array in arrays.items()})
        b = batch()
        self.assertBits(reweight.whiten(b.values, b.role, out=b.values), reweight.whiten(arrays["values"], b.role))
        for name in ("logprobs", "old_logprobs", "advantages", "ref_logprobs"):
            b = batch()
            self.assertBits(reweight.loss(b, out=getattr(b, name)).grad, reweight.loss(batch()).grad, name)
        b = batch()
        got = reweight.gae(b, b.entropy, out=reweight.GAEResult(b.entropy, None)).advantages
        self.assertBits(got, reweight.gae(batch(), arrays["entropy"]).advantages)
        b = batch()
        self.assertBits(reweight.aem(b, out=b.entropy), reweight.aem(batch()))
        b = batch()
        self.assertBits(reweight.actfocus(b, out=b.ref_energy).weights, reweight.actfocus(batch()).weights)


if __name__ == "__main__":
    unittest.main()
