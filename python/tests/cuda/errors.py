"""What is wrong with a call: on the GPU it is said as the C library says it."""

import re
import unittest
from unittest import mock

import numpy as np
from comparing import Comparison
from false_cuda import ROOT
from reweight import _cuda
from reweight._errors import InputError
from reweight._generated import (
    ActFocusOptions,
    AEMOptions,
    Batch,
    GAEOptions,
    GRPOOptions,
    Ids,
    LossOptions,
    RowGradientOptions,
    Rows,
    Stats,
)


DEVICE = ROOT / "gpu" / "internal" / "device"


def code_of(name):
    """Returns the code that CUDA has for a problem."""
    return int(re.search(rf"\bPROBLEM_{name} = (\d+),", (DEVICE / "problems.cuh").read_text())[1])


def reported_codes():
    """Returns the codes that the kernels report."""
    sources = [f for f in DEVICE.glob("*.cu*") if f.name != "problems.cuh"]
    names = {name for f in sources for name in re.findall(r"\bPROBLEM_([A-Z]\w*)", f.read_text())}
    return {code_of(name) for name in names}


class Test(Comparison):
    def test_every_code(self):
        """Each thing that the device can find wrong is said as the CPU says it."""
        nan, codes = float("nan"), set()
        arrays = {
            "role": np.array([1, 2, 2, 1], np.uint8),
            "seq_offsets": np.array([0, 2, 4], np.int64),
            "span_ids": np.array([0, 0, 1, 1], np.int32),
            "group_ids": np.array([0, 0], np.int32),
            "rewards": np.array([0, 1], np.float32),
            **{name: np.ones(4, np.float32) for name in ("ref_energy", "ref_entropy", "old_logprobs", "ref_logprobs")},
            **{name: np.ones(4, np.float32) for name in ("entropy", "logprobs", "advantages")},
        }

        def actfocus(signal):
            return lambda on, to, b: on.backend.actfocus(0, to, b, ActFocusOptions(0.1, 0.5, 1e-8, signal))

        def aem(on, to, b):
            on.backend.aem(to, b, AEMOptions(1, 0.1, 0))

        def grpo(on, to, b):
            on.backend.grpo(to, b, GRPOOptions(1e-6, 1))

        def loss(on, to, b):
            on.backend.loss(on.place(np.zeros(7)), to, b.entropy, b, LossOptions(0.2, 0.28, 3, 0, 1))

        def whiten(on, to, b):
            on.backend.whiten(to, b.entropy, b.role, 4)

        def span_means(on, to, b):
            # The offsets of spans are the ids.
            on.backend.span_means(to, 3, b.entropy, 4, b.span_ids)

        def token_stats(on, to, b):
            chosen = Ids(b.span_ids, 0)
            on.backend.token_stats(Stats(None, None, to), Rows(b.entropy, 4, 1, 1, 0), chosen, 1, 1)

        def row_gradient(on, to, b):
            x, at = Rows(b.entropy, 4, 1, 1, 0), b.logprobs
            on.backend.row_gradient(Rows(to, 4, 1, 1, 0), x, Ids(b.span_ids, 0), at, 0, at, 0, at, RowGradientOptions(1, 0), 1)

        for call, wrong in (
            (token_stats, {"span_ids": [0, 0, 7, 0]}),
            (row_gradient, {"span_ids": [0, 0, -2, -1]}),
            (grpo, {"role": [1, 2, 9, 1]}),
            (actfocus(0), {"ref_energy": [1, nan, 1, 1]}),
            (actfocus(1), {"ref_entropy": [1, 1, np.inf, 1]}),
            (actfocus(2), {"old_logprobs": [1, 1, -np.inf, 1]}),
            (actfocus(3), {"old_logprobs": [1, 1, nan, 1]}),
            (actfocus(3), {"ref_logprobs": [1, 1, nan, 1]}),
            (actfocus(3), {"old_logprobs": [1, 3e38, 1, 1], "ref_logprobs": [1, -3e38, 1, 1]}),
            (loss, {"entropy": [1, 1, 1, nan]}),
            (whiten, {"entropy": [1, np.inf, 1, 1]}),
            (loss, {"seq_offsets": [1, 2, 4]}),
            (grpo, {"seq_offsets": [0, -1, 4]}),
            (aem, {"seq_offsets": [0, 2, 3]}),
            (span_means, {"span_ids": [-1, 0, 1, 1]}),
            (span_means, {"span_ids": [0, 2, 1, 2]}),
            (span_means, {"span_ids": [0, 2, 2, 5]}),
            (aem, {"span_ids": [0, 0, 1, 3]}),
            (aem, {"span_ids": [0, 0, 0, 1]}),
            (aem, {"span_ids": [0, 0, -1, 1]}),
            (aem, {"role": [0, 0, 1, 1]}),
            (aem, {"entropy": [1, 1, 2e30, 1]}),
            (grpo, {"rewards": [nan, 0]}),
        ):
            told = _cuda.reported

            def note(error):
                codes.add(error.code)
                return told(error)

            with self.subTest(wrong=wrong), mock.patch.object(_cuda, "reported", note):
                changed = {**arrays, **{name: np.array(x, arrays[name].dtype) for name, x in wrong.items()}}
                to = np.zeros(4, np.float32)
                error = self.compare(lambda on: call(on, on.place(to), self.batch_at(on, changed)), [to], spoiled=False)
                self.assertIsNotNone(error)
        # No call lists rows, and there never are more spans than tokens.
        self.assertEqual(codes, reported_codes() - {code_of("ROW_INDEX"), code_of("SPAN_COUNT")})

    def test_options(self):
        """A wrong option is found at once, and nothing is written."""
        x, role, result = np.ones(4, np.float32), np.ones(4, np.uint8), np.zeros(6)
        offsets, groups = np.array([0, 2, 4], np.int64), np.zeros(2, np.int32)  # groups are ids, too
        nan, inf = float("nan"), float("inf")

        def call(f):
            def made(on):
                at, r = on.place(x), on.place(role)
                rewards = on.place(x[:2])
                b = Batch(4, 2, r, on.place(offsets), on.place(groups), rewards, 0, *[at] * 8)
                f(on.backend, on.place(result), at, r, b)

            return made

        def rows(at):
            return Rows(at, 2, 2, 2, 0)

        for f in (
            lambda on, result, at, role, b: on.token_stats(Stats(at), rows(at), Ids(), 0, 1),
            lambda on, result, at, role, b: on.token_stats(Stats(), rows(at), Ids(), 1, 1),
            lambda on, result, at, role, b: on.row_gradient(
                rows(at), rows(at), Ids(b.group_ids), at, at, at, 0, 0, RowGradientOptions(1, inf), 1
            ),
            lambda on, result, at, role, b: on.row_gradient(
                rows(at), rows(at), Ids(b.group_ids), at, at, at, 0, 0, RowGradientOptions(0, 1), 1
            ),
            lambda on, result, at, role, b: on.actfocus(result, at, b, ActFocusOptions(-1, 0.5, 0, 0)),
            lambda on, result, at, role, b: on.actfocus(result, at, b, ActFocusOptions(0.5, -1, 0, 0)),
            lambda on, result, at, role, b: on.actfocus(result, at, b, ActFocusOptions(0.5, 1, nan, 0)),
            lambda on, result, at, role, b: on.actfocus_weights(at, at, role, 4, nan, 1, ActFocusOptions(0.5, 1, 0, 0)),
            lambda on, result, at, role, b: on.actfocus_weights(at, at, role, 4, 0, -1, ActFocusOptions(0.5, 1, 0, 0)),
            lambda on, result, at, role, b: on.aem(at, b, AEMOptions(81, 0.1, 1)),
            lambda on, result, at, role, b: on.aem(at, b, AEMOptions(1, -0.1, 1)),
            lambda on, result, at, role, b: on.grpo(at, b, GRPOOptions(-1, 1)),
            lambda on, result, at, role, b: on.gae(at, 0, at, b, GAEOptions(2, 1)),
            lambda on, result, at, role, b: on.gae(at, 0, at, b, GAEOptions(1, -1)),
            lambda on, result, at, role, b: on.loss(result, at, 0, b, LossOptions(2, 0, 0, 0, 0)),
            lambda on, result, at, role, b: on.loss(result, at, 0, b, LossOptions(0, 0, 0, -1, 0)),
            lambda on, result, at, role, b: on.surrogate(
                result, at, at, at, at, 0, role, 4, nan, LossOptions(0, 0, 0, 0, 0)
            ),
            lambda on, result, at, role, b: on.masked_moments(result, at, role, 4, 6, inf),
            lambda on, result, at, role, b: on.exp_scale(at, at, 4, 0, -1),
            lambda on, result, at, role, b: on.exp_scale(at, at, 4, nan, 1),
            lambda on, result, at, role, b: on.exp_scale(at, at, 0, 0, 1),
        ):
            with self.assertRaises(InputError) as cpu:
                call(f)(self.host)
            with self.assertRaises(InputError) as gpu:
                call(f)(self.gpu)
            self.assertEqual(str(gpu.exception), str(cpu.exception))
            self.assertTrue((self.gpu.back(x) == 1).all())
            self.gpu.check()


if __name__ == "__main__":
    unittest.main()
