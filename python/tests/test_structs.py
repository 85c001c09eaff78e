"""The structs, names and defaults of reweight.h, as the C compiler sees them."""

import ctypes
import inspect
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from support import ROOT, TestCase

import reweight
from reweight import _generated, _policies, _schemes

COMPILER = next((c for c in (os.environ.get("CC"), "cc", "gcc", "clang") if c and shutil.which(c)), None)
HEADER = ROOT / "native" / "reweight.h"

DEFAULTS = {
    "reweight_row_gradient_options": ("ROW_GRADIENT", reweight.row_gradient),
    "reweight_actfocus_options": ("ACTFOCUS", reweight.actfocus),
    "reweight_aem_options": ("AEM", reweight.aem),
    "reweight_grpo_options": ("GRPO", reweight.grpo),
    "reweight_gae_options": ("GAE", reweight.gae),
}
# By the numbers of the policies.
POLICY_DEFAULTS = ("LOSS", "GSPO", "GRPO_S_LOSS", "CISPO", "SAPO", "PG", "DPPO_TV", "VESPO", "DPPO_KL", "DRO", "GMPO", "CLIP_COV", "KL_COV")
STRUCTS = {
    kind.__doc__[:-1]: kind
    for kind in vars(_generated).values()
    if isinstance(kind, type) and (kind.__doc__ or "").startswith("reweight_")
}


def c_name(field):
    return field.rstrip("_")


@unittest.skipIf(COMPILER is None, "no C compiler is installed")
class Header(TestCase):
    @classmethod
    def setUpClass(cls):
        """Runs a program that prints what the header declares, a line each."""
        lines = []
        for struct, mirror in STRUCTS.items():
            lines.append(f'printf("{struct} %zu\\n", sizeof({struct}));')
            for name, _ in mirror._fields_:
                field = f"{struct}, {c_name(name)}"
                size = f"sizeof((({struct} *)0)->{c_name(name)})"
                lines.append(f'printf("{struct}.{name} %zu %zu\\n", offsetof({field}), {size});')
        for role in ("MASKED", "REASONING", "ACTION"):
            lines.append(f'printf("{role} %d\\n", (int)REWEIGHT_ROLE_{role});')
        macros = [(struct, macro) for struct, (macro, _) in DEFAULTS.items()]
        for struct, macro in macros + [("reweight_loss_options", macro) for macro in POLICY_DEFAULTS]:
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

    def test_structs(self):
        for name, mirror in STRUCTS.items():
            self.assertEqual(int(self.facts[name][0]), ctypes.sizeof(mirror), name)
            for field, _ in mirror._fields_:
                placed = getattr(mirror, field)
                self.assertEqual([placed.offset, placed.size], list(map(int, self.facts[f"{name}.{field}"])), f"{name}.{field}")

    def test_roles(self):
        for role in ("MASKED", "REASONING", "ACTION"):
            self.assertEqual(int(self.facts[role][0]), getattr(reweight, role))

    def test_defaults(self):
        for struct, (macro, function) in DEFAULTS.items():
            parameters = inspect.signature(function).parameters
            for field, _ in STRUCTS[struct]._fields_:
                default = parameters[field].default
                names = _generated.NAMES
                if field in names:
                    default = names[field].index(default)
                self.assertEqual(float(self.facts[f"{macro}.{field}"][0]), float(default), f"{macro}.{field}")

    def test_defaults_of_policies(self):
        for policy, macro in zip(_generated.POLICIES, POLICY_DEFAULTS):
            made = _policies.POLICIES[policy](*[0] if policy == "dro" else [])  # whose beta has no default
            for given in [made] if policy == "dro" else [made, policy]:
                got = _schemes.loss_values({**reweight.loss.__kwdefaults__, "policy": given})
                want = [float(self.facts[f"{macro}.{field}"][0]) for field, _ in STRUCTS["reweight_loss_options"]._fields_]
                self.assertEqual(list(map(float, got)), want, policy)


if __name__ == "__main__":
    unittest.main()
