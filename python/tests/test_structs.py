"""The structs, names and defaults of reweight.h, as the C compiler sees them."""

import ctypes
import inspect
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from support import ROOT, TestCase

import reweight
from reweight import _library, _structs

COMPILER = next((c for c in (os.environ.get("CC"), "cc", "gcc", "clang") if c and shutil.which(c)), None)
HEADER = ROOT / "native" / "reweight.h"

STRUCTS = {
    "reweight_error": _structs.Error,
    "reweight_workspace": _structs.Workspace,
    "reweight_rows": _structs.Rows,
    "reweight_ids": _structs.Ids,
    "reweight_stats": _structs.Stats,
    "reweight_row_gradient_options": _structs.RowGradientOptions,
    "reweight_batch": _structs.Batch,
    "reweight_actfocus_options": _structs.ActFocusOptions,
    "reweight_actfocus_result": _structs.ActFocusResult,
    "reweight_aem_options": _structs.AEMOptions,
    "reweight_grpo_options": _structs.GRPOOptions,
    "reweight_gae_options": _structs.GAEOptions,
    "reweight_loss_options": _structs.LossOptions,
    "reweight_loss_result": _structs.LossResult,
    "reweight_moments": _structs.Moments,
    "reweight_surrogate_sums": _structs.SurrogateSums,
}
ENUMS = {
    "reweight_isa": ("REWEIGHT_", _structs.ISAS),
    "reweight_signal": ("REWEIGHT_", _structs.SIGNALS),
    "reweight_scope": ("REWEIGHT_SCOPE_", _structs.SCOPES),
    "reweight_aggregation": ("REWEIGHT_", _structs.AGGREGATIONS),
    "reweight_dtype": ("REWEIGHT_", ("f32", "bf16", "f16")),
}
DEFAULTS = {
    "reweight_row_gradient_options": ("ROW_GRADIENT", reweight.row_gradient),
    "reweight_actfocus_options": ("ACTFOCUS", reweight.actfocus),
    "reweight_aem_options": ("AEM", reweight.aem),
    "reweight_grpo_options": ("GRPO", reweight.grpo),
    "reweight_gae_options": ("GAE", reweight.gae),
    "reweight_loss_options": ("LOSS", reweight.loss),
}


def c_name(field):
    return field.rstrip("_")


@unittest.skipIf(COMPILER is None, "no C compiler is installed")
class Header(TestCase):
    @classmethod
    def setUpClass(cls):
        """Runs a program that prints what the header declares, a line each."""
        text = HEADER.read_text()
        lines = []
        for struct, mirror in STRUCTS.items():
            lines.append(f'printf("{struct} %zu\\n", sizeof({struct}));')
            for name, _ in mirror._fields_:
                field = f"{struct}, {c_name(name)}"
                size = f"sizeof((({struct} *)0)->{c_name(name)})"
                lines.append(f'printf("{struct}.{name} %zu %zu\\n", offsetof({field}), {size});')
        for prefix, names in ENUMS.values():
            for name in names:
                constant = prefix + name.upper()
                lines.append(f'printf("{constant} %d\\n", (int){constant});')
        for role in ("MASKED", "REASONING", "ACTION"):
            lines.append(f'printf("{role} %d\\n", (int)REWEIGHT_ROLE_{role});')
        for struct, (macro, _) in DEFAULTS.items():
            lines.append(f"{struct} {macro} = REWEIGHT_DEFAULT_{macro};")
            for name, _ in STRUCTS[struct]._fields_:
                lines.append(f'printf("{macro}.{name} %.17g\\n", (double){macro}.{c_name(name)});')
        program = f'#include <stdio.h>\n#include "{HEADER}"\nint main(void) {{\n' + "\n".join(lines) + "\nreturn 0;\n}\n"
        with tempfile.TemporaryDirectory() as folder:
            source, binary = Path(folder) / "header.c", Path(folder) / "header"
            source.write_text(program)
            subprocess.run([COMPILER, "-o", binary, source], check=True)
            output = subprocess.run([binary], capture_output=True, text=True, check=True).stdout
        cls.facts = {line.split()[0]: line.split()[1:] for line in output.splitlines()}
        cls.text = text

    def test_structs(self):
        declared = re.findall(r"typedef struct (reweight_\w+) \{(.*?)\n\}", self.text, re.S)
        self.assertEqual({name for name, _ in declared}, set(STRUCTS))
        for name, body in declared:
            body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
            declarations = [f for d in body.split(";") if d.strip() for f in d.split(",")]
            fields = [re.sub(r"\[.*", "", f.split()[-1].lstrip("*")) for f in declarations]
            self.assertEqual(fields, [c_name(f) for f, _ in STRUCTS[name]._fields_], name)
            self.assertEqual(int(self.facts[name][0]), ctypes.sizeof(STRUCTS[name]), name)
            for field, _ in STRUCTS[name]._fields_:
                offset, size = map(int, self.facts[f"{name}.{field}"])
                mirror = getattr(STRUCTS[name], field)
                self.assertEqual((mirror.offset, mirror.size), (offset, size), f"{name}.{field}")

    def test_scalars_have_8_bytes(self):
        """So that a GPU may be given the memory of a tensor for them."""
        for mirror in (_structs.ActFocusResult, _structs.LossResult, _structs.Moments, _structs.SurrogateSums):
            self.assertEqual([getattr(mirror, f).size for f, _ in mirror._fields_], [8] * len(mirror._fields_))

    def test_enumerations(self):
        for name, (prefix, names) in ENUMS.items():
            body = re.search(r"typedef enum " + name + r" \{(.*?)\n\}", self.text, re.S).group(1)
            self.assertEqual(len(re.findall(r"^\s*REWEIGHT_\w+ =", body, re.M)), len(names), name)
            for i, constant in enumerate(names):
                self.assertEqual(int(self.facts[prefix + constant.upper()][0]), i, constant)
        for role in ("MASKED", "REASONING", "ACTION"):
            self.assertEqual(int(self.facts[role][0]), getattr(reweight, role))

    def test_defaults(self):
        for struct, (macro, function) in DEFAULTS.items():
            parameters = inspect.signature(function).parameters
            for field, _ in STRUCTS[struct]._fields_:
                default = parameters[field].default
                names = {"signal": _structs.SIGNALS, "scope": _structs.SCOPES, "aggregation": _structs.AGGREGATIONS}
                if field in names:
                    default = names[field].index(default)
                self.assertEqual(float(self.facts[f"{macro}.{field}"][0]), float(default), f"{macro}.{field}")

    def test_functions(self):
        """Every function is declared to ctypes, with as many arguments."""
        text = re.sub(r"/\*.*?\*/", "", self.text, flags=re.S)
        declared = dict(re.findall(r"REWEIGHT_API[^;(]*?(reweight_\w+)\((.*?)\);", text, re.S))
        self.assertGreater(len(declared), 18)
        for name, arguments in declared.items():
            if name in ("reweight_best_isa", "reweight_isa_name"):
                continue  # REWEIGHT_ISA decides here
            count = 0 if arguments == "void" else arguments.count(",") + 1
            self.assertEqual(len(getattr(_library._lib, name).argtypes or []), count, name)


if __name__ == "__main__":
    unittest.main()
