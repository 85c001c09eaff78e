"""The structs and kernels of the GPU's half against the sources that they repeat."""

import ctypes
import gzip
import re
import unittest

from false_cuda import ROOT
from reweight import _cuda_driver, _cuda_params

GO = ROOT / "gpu"
TYPES = {
    "Ptr": ctypes.c_uint64,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "int32": ctypes.c_int32,
    "uint32": ctypes.c_uint32,
    "float64": ctypes.c_double,
    "float32": ctypes.c_float,
}


def snake(name):
    """SpanIDs is span_ids."""
    name = name.replace("IDs", "Ids")
    return re.sub(r"(?<=[a-z0-9])[A-Z]", lambda m: "_" + m.group().lower(), name).lower()


def go_structs():
    """Returns the fields of every struct of the Go package gpu: their names and types."""
    structs = {}
    for file in sorted(GO.glob("*.go")):
        for name, body in re.findall(r"^type (\w+) struct \{\n(.*?)^\}", file.read_text(), re.M | re.S):
            fields = []
            for line in body.splitlines():
                names, _, kind = re.sub(r"\s*//.*", "", line).strip().rpartition(" ")
                fields += [(n.strip(), kind) for n in names.split(",") if n.strip()]
            structs[name] = fields
    return structs


class Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not GO.is_dir():
            raise unittest.SkipTest("not in a checkout: there is nothing to compare with")
        cls.go = go_structs()

    def compare(self, python, go):
        """Compares the fields of two structs, and of those in them."""
        fields = self.go[go]
        self.assertEqual([f[0] for f in python._fields_], [snake(name) for name, _ in fields], go)
        for (name, kind), (_, want) in zip(python._fields_, fields):
            if issubclass(kind, ctypes.Structure):
                self.compare(kind, want)
            else:
                self.assertIs(kind, TYPES[want], f"{go}.{name}")

    def test_structs(self):
        compared = 0
        for name, struct in vars(_cuda_params).items():
            if isinstance(struct, type) and issubclass(struct, ctypes.Structure) and struct is not ctypes.Structure:
                go = name[0].lower() + name[1:]
                go = {"aEMParams": "aemParams", "gRPOParams": "grpoParams", "gAEParams": "gaeParams"}.get(go, go)
                self.compare(struct, go)
                self.assertEqual(ctypes.sizeof(struct), bytes_of(struct), f"{name} has gaps")
                compared += 1
        self.assertEqual(compared, 22)

    def test_kernels(self):
        """Every kernel is in its module, takes so many threads, and none is left out."""
        found = {}
        for file in sorted((GO / "internal" / "device").glob("*.ptx.gz")):
            text = gzip.decompress(file.read_bytes()).decode()
            entry = r"^\.visible \.entry (\w+)\(.*?\n\)\n\.maxntid (\d+), 1, 1$"
            for name, threads in re.findall(entry, text, re.M | re.S):
                found[name] = (file.name.split(".")[0], int(threads))
        of_benches = {"read_memory", "copy_memory"}
        self.assertEqual({n: (k.module, k.threads) for n, k in _cuda_driver.KERNELS.items()},
                         {n: k for n, k in found.items() if n not in of_benches})

    def test_shared_memory(self):
        rows = (GO / "rows.go").read_text()
        self.assertIn("rowWarps  = 4  ", rows)
        self.assertIn("rowBuffer = 8192 + 128 ", rows)
        self.assertIn("rowSums   = 4 * 32 * 4 ", rows)
        self.assertIn("named(statsKernels[:], rowWarps*(2*rowBuffer+rowSums))", rows)
        self.assertIn("named(gradientKernels[:], rowWarps*(rowBuffer+rowSums))", rows)
        for name, kernel in _cuda_driver.KERNELS.items():
            buffers = 2 if name.startswith("token_stats") else 1 if name.startswith("row_gradient") else 0
            self.assertEqual(kernel.shared, 4 * (buffers * (8192 + 128) + 512) if buffers else 0, name)


def bytes_of(struct):
    """Returns the bytes of a struct's fields."""
    if not issubclass(struct, ctypes.Structure):
        return ctypes.sizeof(struct)
    return sum(bytes_of(kind) for _, kind in struct._fields_)


if __name__ == "__main__":
    unittest.main()
