"""The functions of the package on CUDA tensors: the same arguments, results and errors as
on the CPU. Where there is a GPU they run on it, and elsewhere on what stands for one."""

import os
import unittest
from unittest import mock

import false_cuda
import numpy as np
import reweight
from comparing import differing
from reweight import _cuda_driver

try:
    import torch
except ImportError:
    raise unittest.SkipTest("no PyTorch here") from None

import false_torch
import reweight.torch


def on(device, x):
    """Returns a tensor, or what is made of tensors, on a device."""
    if isinstance(x, torch.Tensor):
        return x.to(device)
    if isinstance(x, reweight.Batch):
        return reweight.Batch(**{name: on(device, y) for name, y in vars(x).items()})
    return x


def elements(x):
    """Returns the elements of a result on the CPU."""
    if isinstance(x, torch.Tensor):
        x = x.detach().cpu()
        return (x.view(torch.int16).numpy().view(np.uint16) if x.dtype is torch.bfloat16 else x.numpy()).reshape(-1)
    return np.array([x]).reshape(-1)


class Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if torch.cuda.is_available():
            cls.second = f"cuda:{torch.cuda.device_count() - 1}"
            return
        cls.second = "cuda:1"
        os.environ["REWEIGHT_GPU"] = "unchecked"  # answers.py has the check
        devices = false_torch.devices(false_cuda.start())
        devices.__enter__()
        cls.addClassCleanup(devices.__exit__, None, None, None)

    def setUp(self):
        torch.manual_seed(7)

    def compare(self, function, *arguments, device="cuda:0", **options):
        """Calls a function on the CPU and on the device, and compares the results."""
        want = function(*arguments, **options)
        got = function(
            *[on(device, x) for x in arguments], **{name: on(device, x) for name, x in options.items()}
        )
        reweight.check(device)
        both = zip(got, want) if isinstance(want, tuple) else [(got, want)]
        for place, (g, w) in enumerate(both):
            if w is None:
                self.assertIsNone(g)
                continue
            self.assertEqual(g.device, torch.device(device))
            self.assertEqual(tuple(g.shape), tuple(np.shape(w)))
            g, w = elements(g), elements(w)
            places = differing(g.astype(w.dtype), w)
            self.assertEqual(len(places), 0, f"result {place}: {g} is not {w}")
        return want, got

    def batch(self, *shape):
        """Returns four trajectories: packed for [T], padded for [B, T]."""
        role = torch.randint(0, 3, shape, dtype=torch.uint8)
        offsets = torch.tensor([0, 20, 20, 37, 60]) if len(shape) == 1 else None
        mask = (role != 0).numpy().astype(np.uint8)
        spans = reweight.spans_from_mask(mask, None if offsets is None else offsets.numpy())
        floats = ("ref_energy", "entropy", "old_logprobs", "logprobs", "ref_logprobs", "advantages", "values")
        return reweight.Batch(
            role=role,
            seq_offsets=offsets,
            span_ids=torch.from_numpy(spans),
            group_ids=torch.tensor([0, 1, 0, 1], dtype=torch.int32),
            rewards=torch.rand(4),
            **{name: torch.rand(shape) - 2 for name in floats},
        )

    def test_token_stats(self):
        views = (
            lambda x: x,
            lambda x: x[:, :-1],
            lambda x: x[1],
            lambda x: x[1, 2],
            lambda x: x[:, 1:, 3:],
            lambda x: x[:, :1, 3:],
        )
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            logits = (3 * torch.randn(3, 5, 83)).to(dtype)
            ids = torch.randint(0, 80, (3, 5))
            for temperature in (1.0, 0.7):
                for view in views:
                    with self.subTest(dtype=dtype, temperature=temperature, shape=tuple(view(logits).shape)):

                        def call(logits, ids):
                            x = view(logits)
                            if x.dim() == 3:
                                y = ids[:, ids.shape[1] - x.shape[1] :]  # those of the next tokens
                            else:
                                y = ids[1] if x.dim() == 2 else ids[1, 2]
                            return reweight.token_stats(x, y, temperature=temperature, log_sum_sq_probs=True)

                        self.compare(call, logits, ids)
        self.compare(reweight.token_stats, logits)
        self.compare(reweight.token_stats, logits, ids.int(), device=self.second)

    def test_row_gradient(self):
        for dtype in (torch.float32, torch.bfloat16):
            logits = (3 * torch.randn(6, 83)).to(dtype)
            ids = torch.randint(0, 83, (6,))
            stats = reweight.token_stats(logits, ids)
            grad, grad_entropy = torch.randn(6), torch.randn(6)
            inputs, entropy = (ids, stats.logprobs, grad), stats.entropy
            self.compare(reweight.row_gradient, logits, *inputs)
            self.compare(reweight.row_gradient, logits, *inputs, entropy=entropy, entropy_bonus=0.01)
            want, _ = self.compare(reweight.row_gradient, logits, *inputs, entropy=entropy, grad_entropy=grad_entropy)
            there = on("cuda:0", logits)
            arguments = [on("cuda:0", x) for x in inputs]
            options = {"entropy": on("cuda:0", entropy), "grad_entropy": on("cuda:0", grad_entropy)}
            self.assertIs(reweight.row_gradient(there, *arguments, **options, out=there), there)
            self.assertEqual(len(differing(elements(there), elements(want))), 0)

    def test_gaps(self):
        """[B, T, V] with gaps after each b is one launch, whatever lies in them."""

        def call(logits, ids):
            x, y = logits[:, :-1, 1:], ids[:, 1:]
            stats = reweight.token_stats(x, y, log_sum_sq_probs=True)
            arguments = (x, y, stats.logprobs, -stats.logprobs)
            gradient = reweight.row_gradient(*arguments)
            reweight.row_gradient(*arguments, out=x)
            return stats.logprobs, stats.log_sum_sq_probs, gradient, logits

        launch, launched = _cuda_driver.Device.launch, []

        def counted(device, name, *arguments):
            launched.append(name)
            launch(device, name, *arguments)

        for dtype in (torch.float32, torch.bfloat16):
            for shape in ((3, 6, 84), (4, 2, 133), (2, 4, 1100)):
                logits, ids = (3 * torch.randn(shape)).to(dtype), torch.randint(0, 83, shape[:2])
                with mock.patch.object(_cuda_driver.Device, "launch", counted):
                    self.compare(lambda logits, ids: call(logits.clone(), ids), logits, ids)
        ids[1, 3] = -7
        there = [on("cuda:0", x) for x in (logits, ids)]
        with mock.patch.object(_cuda_driver.Device, "launch", counted):
            reweight.token_stats(there[0][:, :-1], there[1][:, 1:])
        with self.assertRaisesRegex(ValueError, r"ids\[5\] is -7"):
            reweight.check()
        stats, gradient = "token_stats_squares_", "row_gradient_"
        names = [name + dtype for dtype in ("f32", "bf16") for _ in range(3) for name in (stats, gradient, gradient)]
        self.assertEqual(launched, [*names, "token_stats_bf16"])

    def test_schemes(self):
        for b in (self.batch(60), self.batch(4, 15)):
            shape = b.role.shape
            for signal in ("energy", "surprisal", "log_ratio"):
                self.compare(reweight.actfocus, b, signal=signal)
            for scope in ("group", "trajectory", "batch"):
                self.compare(reweight.aem, b, scope=scope, device=self.second)
            self.compare(reweight.grpo, b)
            self.compare(reweight.gae, b, torch.rand(shape), gamma=0.9, lambda_=0.8)
            self.compare(reweight.whiten, b.values, b.role)
            for aggregation in ("token_mean", "seq_mean_token_sum", "seq_mean_token_mean", "seq_mean_token_sum_norm"):
                self.compare(reweight.loss, b, torch.rand(shape), aggregation=aggregation)

    def test_kernels(self):
        b = self.batch(60)
        offsets = torch.tensor([0, 7, 7, 40, 60], dtype=torch.int32)
        self.compare(reweight.multiply, b.values, b.entropy)
        self.compare(reweight.masked_moments, b.values, b.role, shift=0.5)
        self.compare(reweight.actfocus_weights, b.values, b.role, mean=-1.5, sigma=0.3)
        self.compare(reweight.span_means, b.values, offsets)
        self.compare(reweight.min_max, b.values, offsets)
        self.compare(reweight.exp_scale, b.values, lo=-2.0, rate=1.5)
        self.compare(reweight.surrogate, b.logprobs, b.old_logprobs, b.advantages, b.role)

    def test_operators(self):
        """The kernels of the operators. They are called one by one, because PyTorch's dispatcher does not work with
        what stands for a GPU."""
        from reweight import _operators

        def exact(*values):
            return torch.tensor(values, dtype=torch.float64)

        def of_loss(b):
            b = reweight.Batch(role=b.role, old_logprobs=b.old_logprobs, advantages=b.advantages)
            options = dict(aggregation="seq_mean_token_mean", policy=reweight.PPO(clip_low=0.1))
            return reweight.torch._loss_arguments(b, None, options, b.role.shape)

        def token_stats(logits, ids, grad, grad_entropy):
            results = _operators._token_stats(logits, ids, exact(0.7), True, True)
            stats = results[:2]
            gradient = _operators._row_gradient(logits, ids, *stats, grad, grad_entropy, exact(0.7))
            over = logits.clone()
            _operators._row_gradient(over, ids, *stats, grad, grad_entropy, exact(0.7), out=over)
            return (*results, gradient, over)

        def linear(hidden, weight, bias, ids, mask, grad, grad_entropy):
            form, wanted = (16, exact(0.7, 0.5, 3), hidden.dtype, ""), [True, True, True]
            *results, sizes = _operators._linear_token_stats(
                hidden, weight, bias, ids, *form, mask, True, True, True, wanted
            )
            gradients = _operators._linear_row_gradient(
                hidden, weight, bias, ids, *form, sizes, mask, *results[:3], grad, grad_entropy, wanted
            )
            return (*results, *gradients)

        def linear_loss(hidden, weight, bias, ids, b):
            form, wanted = (16, exact(0.7, 0.5), hidden.dtype, ""), [True, True, True]
            return _operators._linear_loss(hidden, weight, bias, ids, *form, *of_loss(b), wanted)

        def loss(b):
            return _operators._loss(b.logprobs, *of_loss(b))

        def value_loss(b):
            return _operators._value_loss(b.new_values, b.role, None, b.values, b.returns, exact(0.5), 0, 2)

        ids, grad, grad_entropy = torch.randint(0, 33, (10,)), torch.randn(10), torch.randn(10)
        for dtype in (torch.float32, torch.bfloat16):
            self.compare(token_stats, torch.randn(10, 33).to(dtype), ids, grad, grad_entropy)
        self.compare(loss, self.batch(4, 15), device=self.second)
        critic = self.batch(4, 15)
        critic.new_values, critic.returns = torch.rand(4, 15), torch.rand(4, 15)
        self.compare(value_loss, critic)
        operands, mask, b = (torch.randn(10, 8), torch.randn(33, 8), torch.randn(33)), torch.arange(10) % 3, self.batch(4, 15)
        tokens = torch.randn(60, 8), *operands[1:], torch.randint(0, 33, (4, 15)), b
        for f, arguments in (
            (linear, (*operands, ids, mask, grad, grad_entropy)),
            (linear, (*operands, ids, torch.ones(10), grad, grad_entropy)),
            (linear_loss, tokens),
        ):
            got = f(*[on("cuda:0", x) for x in arguments])
            reweight.check()
            for g, w in zip(got, f(*arguments)):
                if g.dtype != torch.int64:  # the scalars of the loss
                    self.assertLess(float((g.cpu() - w).abs().max()), 1e-4)  # the products may differ

    @unittest.skipUnless(torch.cuda.is_available(), "needs a GPU: PyTorch's engine does not work with what stands for one")
    def test_gradients(self):
        def step(logits, ids):
            leaf = logits.clone().requires_grad_()
            logprobs, entropy = reweight.torch.token_stats(leaf * 1, ids, inplace=inplace)
            (logprobs + entropy).sum().backward()
            return logprobs.detach(), entropy.detach(), leaf.grad

        def compiled(logits, ids):
            leaf = logits.clone().requires_grad_()
            logprobs, entropy = torch.compile(reweight.torch.token_stats, fullgraph=True)(leaf, ids)
            torch.autograd.backward([logprobs, entropy], [torch.ones_like(logprobs)] * 2)
            return logprobs.detach(), entropy.detach(), leaf.grad

        logits, ids = torch.randn(10, 33), torch.randint(0, 33, (10,))
        for inplace in (False, True):
            self.compare(step, logits, ids)
        self.compare(compiled, logits, ids)

    def test_nothing_waits(self):
        """Calls queue work and return, those on padded batches too."""
        b = on("cuda:0", self.batch(4, 15))
        logits, ids = on("cuda:0", torch.randn(4, 15, 33)), on("cuda:0", torch.randint(0, 33, (4, 15)))

        def calls():
            stats = reweight.token_stats(logits, ids)
            reweight.actfocus(b)
            reweight.aem(b)
            reweight.grpo(b)
            reweight.gae(b, b.values)
            reweight.whiten(b.values, b.role)
            result = reweight.loss(b, b.entropy, aggregation="seq_mean_token_mean")
            reweight.row_gradient(logits, ids, stats.logprobs, result.grad, out=logits)

        calls()  # the device is opened and the kernels are compiled
        torch.cuda.set_sync_debug_mode("error")
        try:
            calls()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        reweight.check()

    def test_errors(self):
        """What is wrong is found on the host at once, and on the GPU by check, which forgets
        it then."""
        logits, ids = torch.randn(4, 10), torch.tensor([1, 10, 3, 4])
        there, chosen = on("cuda:0", logits), on("cuda:0", ids)
        with self.assertRaises(ValueError) as on_cpu:
            reweight.token_stats(logits, ids)
        stats = reweight.token_stats(there, chosen)
        with self.assertRaises(ValueError) as on_gpu:
            reweight.check()
        self.assertEqual(str(on_gpu.exception), str(on_cpu.exception))
        self.assertEqual(stats.logprobs.isnan().cpu().tolist(), [False, True, False, False])
        reweight.check()
        with self.assertRaisesRegex(ValueError, r"^temperature is 0, want 1e-30 to 1e\+30$"):
            reweight.token_stats(there, temperature=0)
        with self.assertRaisesRegex(ValueError, "^ids is on the CPU, want cuda:0 like logits$"):
            reweight.token_stats(there, ids)
        with self.assertRaisesRegex(ValueError, "^device is cpu, want a CUDA device$"):
            reweight.check("cpu")
        reweight.check()

    def test_rocm(self):
        """PyTorch calls the GPUs of ROCm cuda, too."""
        with mock.patch.object(torch.version, "hip", "6.4"):
            with self.assertRaisesRegex(TypeError, "^logits is on cuda:0, a GPU of ROCm, want the CPU or an NVIDIA GPU$"):
                reweight.token_stats(on("cuda:0", torch.randn(4, 10)))

    def test_check_is_of_its_device(self):
        """What is found on one device is not told of another."""
        if self.second == "cuda:0":
            self.skipTest("there is one GPU here: it is not compared with a second one")
        for device, other in (("cuda:0", "cuda:1"), ("cuda:1", torch.device("cuda", 0))):
            reweight.token_stats(*[on(device, x) for x in (torch.randn(4, 10), torch.tensor([1, 2, 3, -4]))])
            reweight.check(other)
            with self.assertRaisesRegex(ValueError, r"^ids\[3\] is -4, want 0 to 9, for rows of 10 logits$"):
                reweight.check(int(device[-1]))


if __name__ == "__main__":
    unittest.main()
