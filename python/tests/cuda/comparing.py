"""Calls of the backends' functions, on the GPU that false_cuda starts and on the C library,
and what differs between them."""

import os
import threading
import unittest

import false_cuda
import numpy as np
from reweight import _cuda, _library
from reweight._errors import InputError
from reweight._generated import AGGREGATIONS, Batch, LossOptions

ROUNDS = int(os.environ.get("REWEIGHT_ROUNDS", "30"))

EDGES = np.array(
    [0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 1, 0x807FFFFF, 0x7F7FFFFF, 0xFF7FFFFF, 0x3F800000]
    + [0xBF800000, 0x41A00000, 0x41A00001, 0xC1A00001, 0x42F00001, 0xC2FA0001],
    np.uint32,
).view(np.float32)


class Draws:
    """Random arguments. Only one of a call is wrong: of two, the GPU may name the other."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.wrong = self.to(2) > 0
        self.kind = self.to(4)

    def to(self, most):
        """An integer from 0 to most."""
        return int(self.random.integers(most + 1))

    def one(self, *choices):
        return choices[self.to(len(choices) - 1)]

    def error(self):
        """Whether the argument at hand is to be wrong."""
        if not self.wrong or self.to(2):
            return False
        self.wrong = False
        return True

    def tokens(self):
        if self.to(9) == 0:
            return 0
        return self.one(self.to(300), self.to(300), self.to(300), 1024 + self.to(40) - 20, self.to(5000))

    def floats(self, *shape):
        x = self.random.normal(size=shape).astype(np.float32) * np.float32(self.one(1, 3, 30))
        if self.kind == 0:
            x = self.random.integers(1 << 32, size=shape, dtype=np.uint32).view(np.float32)
        elif self.kind == 1:
            x = self.random.choice(EDGES, size=shape)
        elif self.kind == 2 and x.size:
            x.reshape(-1)[self.to(x.size - 1)] = self.random.choice(EDGES)
        return np.array(x, np.float32)

    def finite(self, *shape):
        x = self.floats(*shape)
        x[~np.isfinite(x)] = 1.5
        x[np.abs(x) > 1e30] = -2.5
        return x

    def number(self, x, *others):
        """x, another number that is as right, or a wrong one."""
        if self.to(7) == 0 and self.error():
            return self.one(-1.0, -1e30, float("nan"), float("inf"))
        return float(self.one(x, x, x, *others))

    def roles(self, n):
        most = self.to(2)
        role = self.random.integers(max(most, 1) + 1, size=n).astype(np.uint8)
        if most == 0:
            role[self.random.random(n) < 0.99] = 0
        if n and self.to(1) and self.error():
            role[self.to(n - 1)] = 3 + self.to(252)
        return role

    def ranges(self, size):
        cuts = np.sort(self.random.integers(size + 1, size=self.to(40)))
        offsets = np.concatenate([[self.to(size)], cuts[cuts > 0]])
        offsets = np.sort(offsets).astype(np.int32)
        if len(offsets) > 1 and self.error():
            at = self.to(len(offsets) - 2) + 1
            place, value = self.one((0, -1), (at, offsets[at - 1] - 1), (len(offsets) - 1, size + 1))
            offsets[place] = value
        return offsets

    def batch(self):
        """Trajectories with spans, one after another."""
        lengths = [self.one(self.to(20), self.to(20), self.to(200)) for _ in range(1 + self.to(11))]
        if self.to(4) == 0:
            lengths = [self.to(1) for _ in range(self.to(300) + 1)]
        seq_offsets = np.cumsum([0] + lengths).astype(np.int64)
        tokens, trajectories = int(seq_offsets[-1]), len(lengths)
        role, span_ids = self.roles(tokens), np.full(tokens, -1, np.int32)
        span = -1
        for s in range(trajectories):
            inside = False
            for t in range(seq_offsets[s], seq_offsets[s + 1]):
                response = role[t] != 0
                if response and (not inside or self.to(9) == 0):
                    span += 1
                inside = response
                span_ids[t] = span if response else -1
        if tokens and self.error():
            t = self.to(tokens - 1)
            span_ids[t] = self.one(-2, -1, 0, span + 1, span + 2, 1 << 30)
        if self.error():
            place = self.to(trajectories)
            seq_offsets[place] += self.one(-1, -(1 << 40), 1, 1 << 40) if place else -1
        rewards = self.finite(trajectories)
        if self.error():
            rewards[self.to(trajectories - 1)] = self.one(float("nan"), float("inf"), -float("inf"))
        group_ids = self.random.integers(-1, 3, size=trajectories).astype(np.int32)
        return {
            "role": role,
            "seq_offsets": seq_offsets,
            "span_ids": span_ids,
            "rewards": rewards,
            "group_ids": group_ids,
        }

    def loss_options(self):
        return LossOptions(
            self.number(0.2, 0, 1),
            self.number(0.28, 0, 1e30),
            self.one(0.5, -1.0, float("nan")) if self.to(7) == 0 and self.error() else self.one(0, 3, 1.0000001),
            self.one(0, 0, 1, 100),
            self.to(len(AGGREGATIONS) - 1),
        )


def differing(got, want):
    """Returns the places of two arrays where their bits differ, where every NaN counts as
    one. uint16 is bfloat16."""
    if want.dtype == np.uint16:
        got, want = [(x.astype(np.uint32) << 16).view(np.float32) for x in (got, want)]
    if want.dtype.kind != "f":
        return np.flatnonzero(got != want)
    bits = np.dtype(f"u{want.dtype.itemsize}")
    return np.flatnonzero((got.view(bits) != want.view(bits)) & ~(np.isnan(got) & np.isnan(want)))


class Host:
    """Calls the C library on NumPy arrays."""

    backend = _library.cpu()

    def place(self, array, past=0):
        return array.ctypes.data if array.size else 0

    def back(self, array):
        return array

    def check(self):
        pass


class GPU:
    """Calls the GPU on copies of NumPy arrays."""

    def __init__(self, driver, ordinal=0):
        self.backend = _cuda.backend(ordinal)
        self.driver, self.ordinal, self.arrays = driver, ordinal, {}

    def place(self, array, past=0):
        copy = self.driver.upload(array, self.ordinal, past)
        self.arrays[id(array)] = copy
        return copy.pointer if array.size else 0

    def back(self, array):
        return self.driver.download(self.arrays[id(array)])

    def check(self):
        self.backend.check()


class Memory:
    """Memory of PyTorch's stand-in."""

    def __init__(self, driver, ordinal, size):
        self._array = false_cuda.Array(driver, ordinal, np.uint8, (size,))

    def data_ptr(self):
        return self._array.pointer


class Comparison(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["REWEIGHT_GPU"] = "unchecked"  # answers.py has the check
        cls.driver = false_cuda.start()
        _cuda._allocate = lambda ordinal, size: Memory(cls.driver, ordinal, size)
        _cuda._stream = lambda ordinal: false_cuda.STREAM
        cls.host, cls.local = Host(), threading.local()

    @property
    def gpu(self):
        """The GPU of this thread's calls, and their arrays."""
        if not hasattr(self.local, "gpu"):
            self.local.gpu = GPU(self.driver)
        return self.local.gpu

    def compare(self, call, outputs, spoiled=True):
        """Makes a call on both. call(on) draws nothing. outputs are the arrays that it writes,
        which are all NaN on the GPU after an error that it finds, if spoiled is set."""
        before = [o.copy() for o in outputs]
        errors = []
        for on in (self.host, self.gpu):
            try:
                call(on)
                on.check()
                errors.append(None)
            except InputError as e:
                errors.append(e)
            if on is self.host:
                want = [o.copy() for o in outputs]
                for o, b in zip(outputs, before):
                    o[...] = b
        cpu, gpu = errors
        self.assertEqual(str(gpu), str(cpu))
        if cpu is None:
            for i, (o, w) in enumerate(zip(outputs, want)):
                got = self.gpu.back(o)
                places = differing(got, w)
                if len(places):
                    t = places[0]
                    self.fail(f"output {i}: {len(places)} of {w.size} differ, [{t}] is {got[t]!r}, want {w[t]!r}")
        elif cpu.index is not None and spoiled:
            for i, o in enumerate(outputs):
                got = self.gpu.back(o).reshape(-1).view(np.uint8)
                if o.dtype == np.float32:
                    self.assertTrue(np.isnan(got.view(np.float32)).all(), f"after {cpu}: output {i} is not NaN")
        self.gpu.arrays.clear()
        return cpu

    def rounds(self, trial, rounds=ROUNDS):
        """Runs trial(draws) for many seeds, of which some make an error and most do not."""
        wrong = 0
        for seed in range(rounds):
            with self.subTest(seed=seed):
                wrong += trial(Draws(seed)) is not None
        self.assertLess(wrong, 0.7 * rounds)
        self.assertGreater(wrong, 0 if rounds >= 30 else -1)

    def batch_at(self, on, arrays):
        """Returns the batch of arrays of those names."""
        at = {name: on.place(x) for name, x in arrays.items()}
        return Batch(tokens=arrays["role"].size, trajectories=arrays["seq_offsets"].size - 1, **at)
