"""What the tests share: the files of testdata, the program of the project, and equality of bits."""

import dataclasses
import functools
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np

import reweight

ROOT = Path(__file__).resolve().parents[2]
TESTDATA = ROOT / "testdata"
LAKES = (TESTDATA / "frozenlake-small.safetensors", TESTDATA / "large" / "frozenlake.safetensors")

try:
    import torch
except ImportError:
    torch = None

needs_torch = unittest.skipIf(torch is None, "PyTorch is not installed")

needs_go = unittest.skipIf(shutil.which("go") is None, "Go is not installed")


@functools.cache
def program():
    """Returns the folder, which lives as long as this process, of the program reweight, made of this clone."""
    folder = tempfile.TemporaryDirectory()
    subprocess.run(["go", "build", "-o", folder.name, "./cmd/reweight"], cwd=ROOT, check=True)
    return folder


def with_policy(options):
    """The options of reweight.loss, from such as have the constants of the policy beside its name."""
    options = dict(options)
    of = reweight._policies.POLICIES[options.pop("policy", "ppo")]
    names = {field.name for field in dataclasses.fields(of)}
    return {"policy": of(**{name: options.pop(name) for name in list(options) if name in names}), **options}


_DTYPES = {"U8": np.uint8, "I32": np.int32, "I64": np.int64, "F32": np.float32, "BF16": np.uint16, "F16": np.float16}
_NAMES = {"uint8": "U8", "int32": "I32", "int64": "I64", "float32": "F32", "float16": "F16"}


def read_safetensors(path):
    """Returns the arrays and the metadata of a file. An array of BF16 has its bits, uint16."""
    data = Path(path).read_bytes()
    (n,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + n])
    metadata = header.pop("__metadata__", {})
    arrays = {}
    for name, tensor in header.items():
        begin, end = (8 + n + offset for offset in tensor["data_offsets"])
        arrays[name] = np.frombuffer(data[begin:end], _DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
    return arrays, metadata


def write_safetensors(path, arrays):
    """Writes the arrays to a file; those of uint16 as BF16."""
    header, data = {}, b""
    for name, array in arrays.items():
        dtype = "BF16" if array.dtype == np.uint16 else _NAMES[array.dtype.name]
        block = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [len(data), len(data) + len(block)]}
        data += block
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def golden(name):
    """Returns a file of golden answers; the strings nan, inf and -inf are numbers."""

    def numbers(value):
        if isinstance(value, list):
            return [numbers(v) for v in value]
        if isinstance(value, dict):
            return {k: v if k == "name" else numbers(v) for k, v in value.items()}
        return float(value) if value in ("nan", "inf", "-inf") else value

    return numbers(json.loads((TESTDATA / "golden" / name).read_text()))


def f32(values):
    return np.array(values, np.float32)


def to_bf16(x):
    """Returns the bits of float32 numbers rounded to bfloat16, ties to even, as uint16."""
    bits = x.view(np.uint32)
    return np.where(np.isnan(x), bits >> 16 | 0x40, (bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def bits(array):
    """Returns the bits of the elements, where every NaN has the same."""
    if torch is not None and isinstance(array, torch.Tensor):
        array = array.detach()
        array = array.view(torch.int16).numpy() if array.dtype == torch.bfloat16 else array.numpy()
    array = np.array(array)
    if array.dtype.kind == "f":
        array[np.isnan(array)] = np.nan
        array = array.reshape(-1).view(f"u{array.itemsize}").reshape(array.shape)
    return array


class TestCase(unittest.TestCase):
    def assertBits(self, got, want, what=""):
        """Wants the same bits and the same shape."""
        got, want = bits(got), bits(want)
        self.assertEqual(got.shape, want.shape, what)
        self.assertEqual(got.dtype, want.dtype, what)
        different = np.argwhere(got != want)
        if len(different):
            first = tuple(different[0])
            bits_there = f"{got[first]:#x}, want {want[first]:#x}"
            self.fail(f"{what}: {len(different)} of {got.size} elements differ, the first at {first}: {bits_there}")

    def assertNear(self, got, want, relative=1e-5, absolute=0.0):
        np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(want, np.float64), relative, absolute)

    def assertInputError(self, argument, text, call):
        """Wants an InputError about the argument, with this text."""
        import reweight

        with self.assertRaises(reweight.InputError) as caught:
            call()
        self.assertEqual(str(caught.exception), text)
        self.assertEqual(caught.exception.argument, argument)
        self.assertIsInstance(caught.exception, ValueError)

    def assertTypeError(self, text, call):
        with self.assertRaises(TypeError) as caught:
            call()
        self.assertEqual(str(caught.exception), text)


def environment(**more):
    """The environment of a process of Python that finds the package where this process does."""
    return dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p), **more)


def run_python(code, *args, env=None, timeout=120, **options):
    """Runs a program of Python."""
    command = [sys.executable, "-c", code, *args]
    environ = environment(**(env or {}))
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=timeout, **options)


def random_batch(seed, trajectories=12, longest=60, padded=False):
    """Returns the arrays of a batch of rollouts in which everything occurs: groups that
    interleave, a trajectory without responses, several spans in each other one."""
    g = np.random.default_rng(seed)
    lengths = [int(n) for n in g.integers(8, longest, trajectories)]
    width = longest if padded else None
    role, spans, offsets, span = [], [], [0], 0
    for s, n in enumerate(lengths):
        r, i = np.zeros(n, np.uint8), np.full(n, -1, np.int32)
        t = int(g.integers(1, 4))
        while t < n and s != 1:
            end = min(n, t + int(g.integers(2, 9)))
            r[t:end], i[t:end] = 1, span
            if end - t > 3:
                r[t + 1 : end - 1] = 2
            span += 1
            t = end + int(g.integers(1, 4))
        if padded:
            r, i = np.pad(r, (0, width - n)), np.pad(i, (0, width - n), constant_values=-1)
        role.append(r)
        spans.append(i)
        offsets.append(offsets[-1] + len(r))
    role, spans = np.concatenate(role), np.concatenate(spans)
    T = len(role)
    arrays = {
        "role": role,
        "span_ids": spans,
        "seq_offsets": np.array(offsets, np.int64),
        "group_ids": g.integers(0, 4, trajectories).astype(np.int32) * 7 - 3,
        "rewards": g.normal(size=trajectories).astype(np.float32),
        "entropy": g.gamma(1.0, 1.0, T).astype(np.float32),
    }
    for name in ("ref_energy", "old_logprobs", "logprobs", "ref_logprobs", "ref_entropy", "advantages", "values"):
        arrays[name] = g.normal(size=T).astype(np.float32)
    if padded:
        del arrays["seq_offsets"]
        for name, array in arrays.items():
            if len(array) == T:
                arrays[name] = array.reshape(trajectories, width)
    return arrays
