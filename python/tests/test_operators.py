"""The operators of reweight.torch in PyTorch's compilers and transforms."""

import contextlib
import dataclasses
import itertools
import unittest
import warnings
from unittest import mock

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed")

import numpy as np
import reweight
from reweight import _operators, _policies
from reweight.torch import linear_loss, linear_token_stats, loss, token_stats, value_loss
from test_torch import Case, Stats, chosen, expected, numbers

ops = torch.ops.reweight
FLOATS = (torch.float32, torch.bfloat16, torch.float64)
BOTH = (False, True)


def exact(*values):
    """Numbers as the operators take them."""
    return torch.tensor(values, dtype=torch.float64)


def loss_options(**options):
    """The options of the operators of losses."""
    one = torch.ones(1)
    batch = reweight.Batch(role=one, old_logprobs=one, advantages=one)
    return reweight.torch._loss_arguments(batch, None, options, one.shape)[7:]


class Check(unittest.TestCase):
    """torch.library.opcheck: schema, registration of the gradient, fake kernel, and tracing with dynamic shapes."""

    def check(self, operator, *args):
        results = torch.library.opcheck(operator.default, args)
        self.assertEqual(set(results.values()), {"SUCCESS"}, results)

    def test_token_stats(self):
        for dtype, entropy, squares in itertools.product((*FLOATS, torch.float16), BOTH, BOTH):
            width = torch.int32 if entropy == squares else torch.int64
            with self.subTest(dtype=dtype, entropy=entropy, squares=squares):
                logits = numbers((2, 3, 40), 1, 1, dtype).requires_grad_(dtype != torch.float16)
                self.check(ops.token_stats, logits, chosen((2, 3), 40, 2, width), exact(0.7), entropy, squares)
                ids = chosen((2, 3), 33, 2, width)[:, 1:]
                self.check(ops.token_stats, logits[:, 1:, :33], ids, exact(1), entropy, squares)

    def test_row_gradient(self):
        ids = chosen((2, 3), 40, 2)
        for dtype, (g, e) in itertools.product(FLOATS, ((True, False), (False, True), (True, True))):
            with self.subTest(dtype=dtype, grad=g, grad_entropy=e):
                logits = numbers((2, 3, 40), 1, 1, dtype)
                stats = ops.token_stats(logits, ids, exact(0.7), True, False)[:2]
                grad, grad_entropy = (numbers((2, 3), 3).to(stats[0].dtype) if want else None for want in (g, e))
                self.check(ops.row_gradient, logits, ids, *stats, grad, grad_entropy, exact(0.7))
                apart = numbers((3, 2, 50), 1, 1, dtype).transpose(0, 1)[..., :40]
                self.check(ops.row_gradient, apart, ids, *stats, grad, grad_entropy, exact(0.7))

    def test_linear_token_stats(self):
        ids, mask = chosen((5,), 40, 2), torch.tensor([1, 1, 0, 1, 1])
        for dtype, entropy, bias, capped in itertools.product(FLOATS, BOTH, BOTH, BOTH):
            with self.subTest(dtype=dtype, entropy=entropy, bias=bias, capped=capped):
                x, w, b = (numbers(shape, 1, 1, dtype) for shape in ((5, 8), (40, 8), (40,)))
                b = b if bias else None
                form = (16, exact(0.7, 0.5, *[2.0] * capped), dtype, "")
                g = numbers((5,), 3).to(torch.float64 if dtype == torch.float64 else torch.float32)
                for wanted in ([True, True, bias], [True, False, False], [False, True, False]):
                    args = [t if t is None else t.clone().requires_grad_(on) for t, on in zip((x, w, b), wanted)]
                    self.check(ops.linear_token_stats, *args, ids, *form, mask, entropy, True, True, wanted)
                    *stats, _, _, sizes = ops.linear_token_stats(x, w, b, ids, *form, mask, entropy, False, False, wanted)
                    args = [x, w, b, ids, *form, sizes, mask, *stats, g, g if entropy else None]
                    self.check(ops.linear_row_gradient, *args, wanted)

    def test_linear_loss(self):
        ids, role = chosen((2, 4), 40, 2), torch.tensor([[1, 2, 2, 0], [1, 1, 2, 2]], dtype=torch.uint8)
        old, advantages, ref, weights = (numbers((2, 4), i, 0.3) for i in range(4))
        for dtype, wanted in itertools.product(FLOATS[:2], ([True] * 3, [False, True, False])):
            with self.subTest(dtype=dtype, wanted=wanted):
                shapes = (8, 6), (40, 6), (40,)
                args = [numbers(shape, 1, 1, dtype).requires_grad_(on) for shape, on in zip(shapes, wanted)]
                self.check(
                    ops.linear_loss, *args, ids, 16, exact(0.7, 1), dtype, "", role, None, None, old, advantages,
                    ref, weights.abs(), *loss_options(aggregation="seq_mean_token_mean", policy=reweight.PPO(clip_low=0.1), kl_coef=0.01), 0, wanted,
                )  # fmt: skip

    def test_loss(self):
        role = torch.tensor([[1, 2, 2, 0], [1, 1, 2, 2]], dtype=torch.uint8)
        new, old, advantages, ref, weights = (numbers((2, 4), i, 0.3) for i in range(5))
        for aggregation, packed, w in itertools.product(
            ("token_mean", "seq_mean_token_sum", "seq_mean_token_mean", "seq_mean_token_sum_norm"), BOTH, BOTH
        ):
            with self.subTest(aggregation=aggregation, packed=packed, weights=w):
                offsets = torch.tensor([0, 4, 8]) if packed else None
                flat = (lambda t: t.reshape(-1)) if packed else (lambda t: t)
                self.check(
                    ops.loss, flat(new).clone().requires_grad_(), flat(role), offsets, None, flat(old), flat(advantages),
                    flat(ref), flat(weights).abs() if w else None, *loss_options(aggregation=aggregation, policy=reweight.PPO(clip_low=0.1), kl_coef=0.01),
                )  # fmt: skip


    def test_value_loss(self):
        role = torch.tensor([[1, 2, 2, 0], [1, 1, 2, 2]], dtype=torch.uint8)
        new, old, returns = (numbers((2, 4), i, 0.3) for i in range(3))
        for aggregation, packed in itertools.product(range(4), BOTH):
            with self.subTest(aggregation=aggregation, packed=packed):
                offsets = torch.tensor([0, 4, 8]) if packed else None
                flat = (lambda t: t.reshape(-1)) if packed else (lambda t: t)
                arrays = [flat(t) for t in (role, old, returns)]
                arrays.insert(1, offsets)
                self.check(ops.value_loss, flat(new).clone().requires_grad_(), *arrays, exact(0.5), 0, aggregation)


class Compiled(Case):
    """torch.compile gives the bits of eager, in one graph."""

    def setUp(self):
        torch._dynamo.reset()

    def same(self, step, leaves, *sizes, **options):
        """Wants results and gradients of the compiled step to be those of the step. leaves makes its arguments from
        one of the sizes; what requires grad has its gradient compared."""
        fast = torch.compile(step, fullgraph=True, **options)
        for size in sizes:
            with self.subTest(size=size, **options):
                outcomes = []
                for f in (step, fast):
                    args = leaves(size)
                    results = f(*args)
                    graded = [r for r in results if r.requires_grad]
                    torch.autograd.backward(graded, [numbers(r.shape, k).to(r.dtype) for k, r in enumerate(graded)])
                    grads = [a.grad for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
                    outcomes.append([*results, *grads])
                for got, want in zip(*outcomes):
                    self.assertTrue(torch.equal(got, want))

    def test_token_stats(self):
        def step(logits, others, ids):
            logprobs, entropy = token_stats(logits[:, :-1], ids[:, 1:], temperature=0.9)
            return logprobs, entropy, token_stats(others, ids, entropy=False)[0]

        for dtype in (torch.float32, torch.bfloat16):
            leaves = lambda n: (
                numbers((2, n, 40), 1, 1, dtype).requires_grad_(),
                numbers((2, n, 40), 3, 1, dtype).requires_grad_(),
                chosen((2, n), 40, 2),
            )
            self.same(step, leaves, 5, 9, 4)
            self.same(step, leaves, 5, 9, dynamic=True)

    def test_number_of_graphs(self):
        """Five lengths are two graphs: one for the first, and one for all others."""
        from torch._dynamo.utils import counters

        counters.clear()
        step = torch.compile(lambda x, y: token_stats(x, y)[0].sum(), fullgraph=True, backend="aot_eager")
        for n in (8, 5, 13, 21, 34):
            step(numbers((n, 40), n).requires_grad_(), chosen((n,), 40, n)).backward()
        self.assertEqual(counters["stats"]["unique_graphs"], 2)

    def test_numbers(self):
        """Twelve values of an option are two graphs, as plain PyTorch has them: one for the first value, and one for
        all others. Each gives the bits of eager."""
        from torch._dynamo.utils import counters

        def graphs(step, leaves, values):
            """How many graphs the values of step(value, *leaves) are."""
            torch._dynamo.reset()
            counters.clear()
            fast = torch.compile(step, fullgraph=True, backend="aot_eager")
            for value in values:
                outcomes = []
                for f in (fast, step):
                    x = [leaf.clone().requires_grad_() for leaf in leaves]
                    results = f(value, *x)
                    results[0].sum().backward()
                    outcomes.append([*results, *(t.grad for t in x)])
                for got, want in zip(*outcomes):
                    self.assertTrue(torch.equal(got, want), (value, got, want))
            return counters["stats"]["unique_graphs"]

        hidden, weight, logits = numbers((2, 5, 8), 1), numbers((40, 8), 2), numbers((2, 5, 40), 3)
        ids, role = chosen((2, 5), 40, 4), torch.ones(2, 5, dtype=torch.uint8)
        new, old, other, ref = (numbers((2, 5), seed, 0.3) for seed in range(5, 9))
        arrays = dict(role=role, old_logprobs=old, advantages=other, ref_logprobs=ref, values=old, returns=other)

        def options(names, policy="ppo", shift={}, **more):
            """What makes the options of a loss of a number: the constants of the policy and others."""
            of = _policies.POLICIES[policy]
            fields = [field.name for field in dataclasses.fields(of) if field.name in names]
            others = [name for name in names if name not in fields]
            return lambda x: {
                "policy": of(**{name: x + shift.get(name, 0) for name in fields}), **more, **{name: x for name in others}
            }  # fmt: skip

        def of_loss(*names, **more):
            made = options(names, **more)
            return lambda x, new: loss(new, reweight.Batch(**arrays), **made(x))[:1], [new]

        of_critic = lambda name, **more: (
            lambda x, new: value_loss(new, reweight.Batch(**arrays), **more, **{name: x})[:1], [new]
        )  # fmt: skip
        of_head = lambda name: (lambda x, h, w: linear_token_stats(h, w, ids, lse=True, **{name: x}), [hidden, weight])

        def of_both(*names, **more):
            made = options(names, **more)
            return lambda x, h, w: linear_loss(h, w, ids, reweight.Batch(**arrays), **made(x))[:1], [hidden, weight]

        shares, counts = [(k + 1) / 16 for k in range(12)], range(1, 13)
        per_length = dict(aggregation="seq_mean_token_sum_norm")
        steps = {
            "token_stats temperature": (lambda x, z: token_stats(z, ids, temperature=x), [logits], shares),
            "value_loss clip": (*of_critic("clip"), shares),
            "value_loss norm_length": (*of_critic("norm_length", **per_length), counts),
            "loss norm_length": (*of_loss("norm_length", **per_length), counts),
            "loss seed": (*of_loss("seed", policy="clip_cov"), range(12)),
            "loss negative seed": (*of_loss("seed", policy="clip_cov"), range(-6, 6)),
            "linear_token_stats chunk": (*of_head("chunk"), counts),
            "linear_loss kl_coef": (*of_both("kl_coef"), shares),
            "linear_loss seed": (*of_both("seed", policy="clip_cov"), range(12)),
            "linear_loss several": (*of_both("kl_coef", "temperature", "clip_low", "clip_high", policy="dppo_kl"), shares),
        }
        policies = dict(
            ppo="clip_low clip_high dual_clip kl_coef", sapo="tau_pos tau_neg", dppo_tv="ratio_cap", dro="beta",
            vespo="power_pos decay_pos power_neg decay_neg", clip_cov="cov_share cov_low cov_high", kl_cov="cov_coef",
        )  # fmt: skip
        self.assertEqual(set(" ".join(policies.values()).split()), set(_operators.LOSS_NUMBERS))
        for policy, names in policies.items():
            step = of_loss(*names.split(), policy=policy, shift=dict(dual_clip=1, cov_high=1))
            steps["loss " + policy] = *step, shares
        for name in ("temperature", "softcap", "logit_scale"):
            steps["linear_token_stats " + name] = *of_head(name), shares
            steps["linear_loss " + name] = *of_both(name), shares
        most = {type(values[0]): graphs(lambda x, a: (a * x,), [old], values) for values in (shares, counts)}
        self.assertEqual(set(most.values()), {2})
        for name, (step, leaves, values) in steps.items():
            with self.subTest(name):
                self.assertLessEqual(graphs(step, leaves, values), most[type(values[0])])

    def test_what_a_number_is(self):
        """A tensor, and an integer where a float is wanted, are numbers; what is none is an error of eager code."""
        x, ids = numbers((3, 40), 1), chosen((3,), 40, 2)
        step = torch.compile(lambda t: token_stats(x, ids, temperature=t)[0], backend="aot_eager")
        for value in (2, 0.5, torch.tensor(0.5), torch.tensor([2.0]), np.float32(0.5), np.float64(0.7), True):
            self.assertTrue(torch.equal(step(value), token_stats(x, ids, temperature=value)[0]))
        for value, kind, message in (
            ("one", TypeError, "temperature is a str"),
            (None, TypeError, "temperature is None"),
            (0.0, ValueError, "temperature is 0, want"),
            (-1.0, ValueError, "temperature is -1, want"),
            (torch.tensor(0.5, requires_grad=True), TypeError, "temperature is a torch.Tensor that requires grad"),
        ):
            for f in (step, lambda t: token_stats(x, ids, temperature=t)):
                torch._dynamo.reset()
                with self.subTest(value=value), self.assertRaisesRegex(kind, message):
                    f(value)

    def test_linear_token_stats(self):
        def step(hidden, weight, bias, ids):
            logprobs, entropy = linear_token_stats(hidden, weight, ids, bias=bias, chunk=16, mask=ids != 7)
            return logprobs, entropy

        leaves = lambda n: (
            *(numbers(shape, 1).requires_grad_() for shape in ((n, 8), (40, 8), (40,))), chosen((n,), 40, 2)
        )  # fmt: skip
        self.same(step, leaves, 5, 8)
        self.same(step, leaves, 5, 8, dynamic=True)

    def test_linear_loss(self):
        def step(hidden, weight, bias, ids, role, old, advantages):
            batch = reweight.Batch(role=role, old_logprobs=old, advantages=advantages)
            value, metrics = linear_loss(hidden * 2, weight, ids, batch, bias=bias, chunk=16)
            return 3 * value, metrics.clip_fraction, metrics.grad

        leaves = lambda n: (
            *(numbers(shape, 1).requires_grad_() for shape in ((2, n, 8), (40, 8), (40,))),
            chosen((2, n), 40, 2),
            torch.ones((2, n), dtype=torch.uint8),
            *(numbers((2, n), seed, 0.3) for seed in (3, 4)),
        )
        self.same(step, leaves, 5, 8)
        self.same(step, leaves, 5, 8, dynamic=True)

    def test_loss(self):
        def step(logprobs, role, old, advantages, weights):
            batch = reweight.Batch(role=role, old_logprobs=old, advantages=advantages)
            value, metrics = loss(logprobs, batch, weights, aggregation="seq_mean_token_mean", policy=reweight.PPO(clip_low=0.1))
            return value, metrics.clip_fraction, metrics.tokens, metrics.grad

        leaves = lambda n: (
            numbers((2, n), 1, 0.3).requires_grad_(),
            chosen((2, n), 3, 2).to(torch.uint8),
            *(numbers((2, n), seed, 0.3) for seed in (3, 4)),
            torch.ones(2, n),
        )
        self.same(step, leaves, 5, 8)

    def test_batch_of_numpy_arrays(self):
        role, old = np.ones((2, 5), np.uint8), np.zeros((2, 5), np.float32)
        step = lambda x: (loss(x, reweight.Batch(role=role, old_logprobs=old, advantages=old + 1))[0],)
        self.same(step, lambda n: (numbers((2, n), 1, 0.3).requires_grad_(),), 5)

    def test_autocast(self):
        def step(hidden, others, weight, ids):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = hidden @ weight.t()
                logprobs, entropy = token_stats(logits, ids)
                head, _ = linear_token_stats(others, weight, ids)
            return logprobs, entropy, head

        leaves = lambda n: (
            numbers((n, 8), 1).requires_grad_(), numbers((n, 8), 1).requires_grad_(), numbers((40, 8), 2), chosen((n,), 40, 3)
        )  # fmt: skip
        self.same(step, leaves, 6)

    def test_errors(self):
        """What is wrong with the elements is found when the graph runs, and is the error of eager code."""
        step = torch.compile(lambda x, y: token_stats(x, y)[0] * 2, fullgraph=True, backend="aot_eager")
        with self.assertRaisesRegex(reweight.InputError, r"^ids\[1, 2\] is 40, want 0 to 39"):
            step(numbers((2, 3, 40), 1), torch.tensor([[0, 1, 2], [3, 4, 40]]))

    def test_errors_of_policies(self):
        """Where a compiler has to say why it stops, it says the error of eager code."""
        role = torch.ones(3, dtype=torch.uint8)
        batch = reweight.Batch(role=role, old_logprobs=numbers((3,), 2), advantages=numbers((3,), 3))
        for policy, message in (
            ("gsop", 'is "gsop", want one of'),
            ("dro", 'is "dro", want reweight.DRO\\(beta=...\\): it has no default'),
            (reweight.PPO, "policy is the class PPO, want an object of it: reweight.PPO\\(\\)"),
        ):
            torch._dynamo.reset()
            step = torch.compile(lambda x: loss(x, batch, policy=policy)[0], fullgraph=True, backend="aot_eager")
            with self.subTest(policy=policy), self.assertRaisesRegex(Exception, message):
                step(numbers((3,), 1))

    def test_the_whole_step_with_its_backward_pass(self):
        """Compiled autograd: the backward pass is traced too."""
        leaf, ids = numbers((6, 40), 1).requires_grad_(), chosen((6,), 40, 2)

        def train(x, y):
            logprobs, entropy = token_stats(x * 1, y)
            (logprobs.sum() + entropy.sum()).backward()

        train(leaf, ids)
        want, leaf.grad = leaf.grad, None
        # PyTorch 2.6 stops there with an error of its own at every operator of torch.library, but for this backend.
        backend = "eager" if torch.__version__.startswith("2.6.") else "aot_eager"
        with torch._dynamo.config.patch(compiled_autograd=True):
            torch.compile(train, backend=backend)(leaf, ids)
        self.assertTrue(torch.equal(leaf.grad, want))


class InferenceMode(unittest.TestCase):
    """Every tensor of every function may be one of torch.inference_mode, which autograd does not save."""

    def test_all(self):
        role = torch.tensor([1, 2, 0, 1, 1, 2], dtype=torch.uint8)
        rows = dict(old_logprobs=numbers((6,), 1) - 2, advantages=numbers((6,), 2), ref_logprobs=numbers((6,), 3) - 2)
        spans = dict(seq_offsets=torch.tensor([0, 4, 6]), span_ids=torch.tensor([0, 0, -1, 1, 2, 2], dtype=torch.int32))
        of_batch = dict(role=role, **rows, **spans)
        head = dict(hidden=numbers((6, 4), 4), weight=numbers((9, 4), 5), bias=numbers((9,), 6))
        ids, weights = chosen((6,), 9, 7), numbers((6,), 8).abs()

        def batch(arrays):
            return reweight.Batch(**{name: arrays.pop(name) for name in of_batch if name in arrays})

        def of_loss(new, weights, **arrays):
            return loss(new, batch(arrays), weights, kl_coef=0.1, policy=reweight.GSPO(sequence="span"))[:1]

        def of_head(hidden, weight, ids, **more):
            return linear_token_stats(hidden, weight, ids, **more)

        def of_both(hidden, weight, ids, weights, bias, **arrays):
            return linear_loss(hidden, weight, ids, batch(arrays), weights, bias=bias, kl_coef=0.1)[:1]

        def of_critic(new_values, values, returns, seq_offsets, role):
            more = dict(role=role, values=values, returns=returns, seq_offsets=seq_offsets)
            return value_loss(new_values, reweight.Batch(**more), aggregation="seq_mean_token_sum")[:1]

        critic = dict(values=rows["old_logprobs"], returns=weights, seq_offsets=spans["seq_offsets"], role=role)
        functions = [
            (lambda logits, ids: token_stats(logits, ids), dict(logits=numbers((6, 9), 9)), dict(ids=ids)),
            (lambda x, ids: token_stats(x * 1, ids, inplace=x.requires_grad), dict(x=numbers((6, 9), 9)), dict(ids=ids)),
            (of_head, head, dict(ids=ids, mask=role)),
            (of_loss, dict(new=numbers((6,), 9) - 2), dict(weights=weights, **of_batch)),
            (of_both, head, dict(ids=ids, weights=weights, **of_batch)),
            (of_critic, dict(new_values=numbers((6,), 9)), critic),
        ]
        count = 0
        for call, leaves, others in functions:

            def run(inference):
                with torch.inference_mode():
                    made = {name: (leaves | others)[name].clone() for name in inference}
                graded = {name: t.clone().requires_grad_() for name, t in leaves.items() if name not in made}
                results = call(**{**others, **graded, **made})
                found = [t for t in results if t is not None]
                given = [t for t in found if t.requires_grad]
                with torch.inference_mode():
                    grads = [numbers(t.shape, 20 + i) for i, t in enumerate(given)]
                if given:
                    torch.autograd.backward(given, grads)
                return found, {name: t.grad for name, t in graded.items()}

            want, gradients = run([])
            for n in range(1, 3):
                for inference in (*itertools.combinations(leaves | others, n), [*others], [*leaves], [*leaves, *others]):
                    with self.subTest(leaves=[*leaves], inference=inference):
                        got, of = run(inference)
                        self.assertTrue(all(map(torch.equal, got, want)))
                        for name, gradient in of.items():
                            self.assertTrue(torch.equal(gradient, gradients[name]), name)
                    count += 1
        self.assertGreater(count, 150)


class Subclass(torch.Tensor):
    """A tensor of one's own, as a result of any operator is that has one."""


class Directly(Case):
    """Without a gradient the kernel of token_stats is called directly, unless something would see its operator."""

    def setUp(self):
        self.logits, self.ids = numbers((2, 3, 40), 1), chosen((2, 3), 40, 2)
        self.want = ops.token_stats(self.logits, self.ids, exact(0.7), True, True)

    def check(self, calls, logits, ids, context=contextlib.nullcontext(), temperature=0.7):
        with mock.patch.object(_operators, "token_stats", side_effect=_operators.token_stats) as operator, context:
            got = token_stats(logits, ids, temperature=temperature, log_sum_sq_probs=True)
        self.assertEqual(operator.call_count, calls)
        return got

    def test_directly(self):
        graded = self.logits.clone().requires_grad_()
        for logits, context in (
            (self.logits, contextlib.nullcontext()),
            (graded, torch.no_grad()),
            (torch.nn.Parameter(self.logits), torch.no_grad()),
            (self.logits, torch.inference_mode()),
            (self.logits, torch.autocast("cpu")),
        ):
            with self.subTest(type(logits), graded=logits.requires_grad, context=context):
                for got, want in zip(self.check(0, logits, self.ids, context), self.want):
                    self.assertTrue(torch.equal(got, want))
                    self.assertEqual((type(got), got.dtype, got.stride()), (torch.Tensor, want.dtype, want.stride()))
        self.check(0, self.logits[:, 1:, :33], self.ids.int()[:, 1:] % 33)
        for got, want in zip(self.check(0, self.logits, self.ids.t().contiguous().t()), self.want):
            self.assertTrue(torch.equal(got, want))
        self.check(1, graded, self.ids)
        logprobs, entropy = token_stats(self.logits, self.ids, entropy=False)
        self.assertEqual((logprobs.shape, entropy), (self.ids.shape, None))

    def test_seen(self):
        class Functions(torch.overrides.TorchFunctionMode):
            seen = 0

            def __torch_function__(self, f, types, args=(), kwargs=None):
                self.seen += f is ops.token_stats.default
                return f(*args, **kwargs or {})

        class Operators(torch.utils._python_dispatch.TorchDispatchMode):
            seen = 0

            def __torch_dispatch__(self, f, types, args=(), kwargs=None):
                self.seen += f is ops.token_stats.default
                return f(*args, **kwargs or {})

        for mode in Functions(), Operators():
            self.check(1, self.logits, self.ids, mode)
            self.assertEqual(mode.seen, 1)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            self.check(1, self.logits, self.ids)
        self.assertIn("reweight::token_stats", [e.key for e in profile.key_averages()])
        with warnings.catch_warnings():  # of what PyTorch would have instead of a trace
            warnings.simplefilter("ignore")
            trace = torch.jit.trace(lambda x, y: token_stats(x, y)[0], (self.logits, self.ids))
        self.assertIn("reweight::token_stats", str(trace.graph))
        graph = torch.fx.experimental.proxy_tensor.make_fx(lambda x, y: token_stats(x, y))(self.logits, self.ids)
        self.assertIn("reweight.token_stats", graph.code)
        for one, two in ((Subclass, None), (None, Subclass)):
            logits, ids = (t.as_subclass(kind or torch.Tensor) for t, kind in ((self.logits, one), (self.ids, two)))
            self.assertIs(type(self.check(1, logits, ids)[0]), Subclass)

    def test_what_the_operator_has_to_say(self):
        """What is not for the kernel as it is, and errors, which have one text."""
        signs = torch.complex(self.logits, -self.logits).conj().imag
        self.assertTrue(signs.is_neg())
        self.assertTrue(torch.equal(self.check(1, signs, self.ids)[0], self.want[0]))
        self.check(1, self.logits.double(), self.ids)
        self.check(1, self.logits, self.ids, temperature=torch.tensor(0.7))
        self.check(1, self.logits.to("meta"), self.ids.to("meta"))
        self.assertFalse(_operators._unseen(self.logits.to("meta"), self.ids))
        for message, kind, args, options in (
            (r"ids\[1, 2\] is 40, want 0 to 39", ValueError, (self.logits, torch.tensor([[0, 0, 0], [0, 0, 40]])), {}),
            ("temperature is 0, want", ValueError, (self.logits, self.ids), dict(temperature=0)),
            ("entropy", RuntimeError, (self.logits, self.ids), dict(entropy="yes")),
            ("logits has dtype int64, want .*, float16 or float64", TypeError, (self.logits.long(), self.ids), {}),
            ("ids is None, want a torch.Tensor", TypeError, (self.logits, None), {}),
        ):
            with self.subTest(message), self.assertRaisesRegex(kind, message):
                token_stats(*args, **options)


class Transforms(Case):
    def test_export(self):
        n = torch.export.Dim("n")
        args = (numbers((5, 40), 1), chosen((5,), 40, 2))
        program = torch.export.export(Stats(), args, dynamic_shapes={"x": {0: n}, "ids": {0: n}})
        self.assertIn("torch.ops.reweight.token_stats.default", program.graph_module.code)
        x, ids = numbers((9, 40), 3), chosen((9,), 40, 4)
        for got, want in zip(program.module()(x, ids), token_stats(x, ids)):
            self.assertTrue(torch.equal(got, want))

    def test_vmap(self):
        x, ids = numbers((3, 5, 40), 1).requires_grad_(), chosen((3, 5), 40, 2)
        want = token_stats(x, ids)
        wide = x.detach().double().requires_grad_()
        expected(wide, ids)[0].sum().backward()
        for f, args, dims in (
            (token_stats, (x, ids), 0),
            (token_stats, (x.movedim(0, 1), ids.t()), (1, 1)),
            (torch.vmap(token_stats), (x[None], ids[None]), 0),
        ):
            for got, w in zip(torch.vmap(f, in_dims=dims)(*args), want):
                self.assertTrue(torch.equal(got.view_as(w), w))
        for got, w in zip(torch.vmap(token_stats, in_dims=(0, None))(x, ids[0]), token_stats(x, ids[:1].expand(3, 5))):
            self.assertTrue(torch.equal(got, w))
        squares = lambda x, y: token_stats(x, y, entropy=False, log_sum_sq_probs=True)[2]
        self.assertTrue(torch.equal(torch.vmap(squares)(x, ids), squares(x, ids)))
        torch.vmap(lambda x, y: token_stats(x, y, entropy=False)[0])(x, ids).sum().backward()
        self.gradient_close(x.grad, wide.grad, torch.float32, 1)
        weight = numbers((40, 40), 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch says that it calls this one for each of the three
            got = torch.vmap(lambda x, y: linear_token_stats(x, weight, y)[0])(x, ids)
        self.close(got, linear_token_stats(x, weight, ids)[0], 1e-5)  # products of other sizes

    def test_what_is_refused(self):
        x, ids = numbers((5, 40), 1), chosen((5,), 40, 2)
        with self.assertRaisesRegex(RuntimeError, "functorch transforms"):
            torch.func.grad(lambda x: token_stats(x, ids)[0].sum())(x)
        forward = torch.compile(
            lambda x: torch.func.jvp(lambda x: token_stats(x, ids)[0], (x,), (x,)), backend="eager", fullgraph=True
        )
        with self.assertRaises(Exception):
            forward(x)

    def test_tensors_without_data(self):
        x, ids = torch.empty(2, 5, 40, device="meta"), torch.empty(2, 5, dtype=torch.int64, device="meta")
        logprobs, entropy = token_stats(x, ids)
        self.assertEqual((logprobs.shape, entropy.shape, logprobs.device.type), ((2, 5), (2, 5), "meta"))
        logprobs, entropy = linear_token_stats(x, torch.empty(7, 40, device="meta"), ids, entropy=False)
        self.assertEqual((logprobs.shape, entropy), ((2, 5), None))


if __name__ == "__main__":
    unittest.main()
