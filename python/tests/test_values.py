"""Values that an array of a batch cannot hold: each reader of Python refuses what the program refuses in the same
rows as lines of JSON, and makes of the others the batch that the program makes."""

import importlib.util
import json
import math
import subprocess
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from support import TestCase, needs_go, program, torch

from reweight import InputError, distributed, rollout
from reweight._program import find
from reweight._values import groups

PYARROW = importlib.util.find_spec("pyarrow") is not None
if PYARROW:
    import pyarrow
    from pyarrow import parquet

INTEGERS = (0, 1, 3, 255, 256, 257, -1, -2, 2**24 + 1, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**64 - 1)
INTEGERS += (-(2**31), -(2**31) - 1)
FLOATS = (0.5, 1.0, 1.7, -0.0, 1e-50, 1e-7, 2e-6, -9999.0, -9998.0, 1e300, -1e300, 3.4028235e38, 3.4028236e38)
FLOATS += (math.nan, math.inf, -math.inf)
OTHERS = (True, False, None, "x", "", "1", "NaN", "Infinity", "-Infinity", [1], {"a": 1}, 2**70, 10**400)
VALUES = (*INTEGERS, *FLOATS, *OTHERS)
FEW = (2**40, -9999.0, 1e300, math.nan, True, None, "x")  # for arrays of the same kind as others

FLOAT_ARRAYS = (
    *("ref_energy", "entropy", "old_logprobs", "logprobs", "ref_logprobs", "ref_entropy", "advantages", "values"),
    *("rollout_logprobs", "token_rewards", "returns", "new_values", "teacher_logprobs", "sum_sq_probs", "entropy_drop"),
    *("actfocus_weights", "aem_factors"),
)


def rows():
    """Two trajectories with every field of a line of JSON."""
    made = []
    for reward in (1.0, 0.0):
        row = {"group_id": "g", "reward": reward, "role": [0, 1, 2], "token_ids": [5, 6, 7], "span_ids": [-1, 0, 0]}
        row.update(anchors=[3], span_rewards=[0.5], reward_parts=[1.0, 2.0])
        made.append({**row, **{name: [-0.25, -0.5, -0.75] for name in FLOAT_ARRAYS}})
    return made


@needs_go
class Walk(TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.program = find() or str(Path(program().name, "reweight"))

    def wanted(self, lines):
        """The arrays that the program makes of the lines, or None where it refuses them."""
        file, output = self.folder / "x.jsonl", self.folder / "x.npz"
        file.write_text("".join(json.dumps({k: v for k, v in line.items() if v is not None}) + "\n" for line in lines))
        done = subprocess.run([self.program, "convert", file, output], capture_output=True, text=True)
        if done.returncode == 2:
            return None
        self.assertEqual(done.returncode, 0, done.stderr)
        with np.load(output) as found:
            return dict(found)

    def check(self, what, lines, read):
        """Wants the reader to refuse what the program refuses, or to have the same batch. Returns whether it does."""
        with self.subTest(what):
            want = self.wanted(lines)
            try:
                batch = read()
            except InputError as error:
                self.assertIsNone(want, f"the program takes it, and the reader says: {error}")
                return True
            self.assertIsNotNone(want, "the program refuses it")
            for name, array in want.items():
                got = getattr(batch, name)
                if got is None:
                    # The program takes those of the policy that sampled, and a padded batch has no offsets.
                    self.assertIn(name, ("logprobs", "seq_offsets"))
                    continue
                got = np.asarray(got)
                self.assertBits(got.reshape(-1) if name != "reward_parts" else got, array.astype(got.dtype), name)
            return False

    def cases(self, names):
        """Each name of an array, with the values to be tried in it."""
        for name in names:
            alike = name in FLOAT_ARRAYS and name not in ("entropy", "old_logprobs")
            yield from ((name, value, f"{name} {value!r:.40}") for value in (FEW if alike else VALUES))

    @unittest.skipIf(not PYARROW, "PyArrow is not installed")
    def test_parquet(self):
        """And rows of Ray, whose blocks are such tables."""
        cases, refused = 0, 0
        for name, value, what in self.cases((*rows()[0], "mask")):
            table = self.table(name, value)
            if table is None:
                continue
            file = self.folder / "x.parquet"
            parquet.write_table(table, file)
            lines = parquet.read_table(file).to_pylist()
            cases += 1
            refused += self.check(what, lines, lambda: rollout.from_parquet(file)) or 0
            distributed._write_rows(table, str(self.folder))
            self.assertEqual((self.folder / "rows.jsonl").read_text(), (self.folder / "x.jsonl").read_text(), what)
        self.assertGreater(cases, 400)
        self.assertGreater(refused, 200)

    def table(self, name, value):
        """The rows with that value at the end of the second, or if a column cannot have it beside the others, in their
        place. None if no column can have it."""
        for alone in (False, True):
            made = rows()
            for i, row in enumerate(made):
                if name == "mask":
                    row["mask"] = [0, 1, 1]
                    del row["role"]
                if isinstance(row[name], list):
                    n = len(row[name])
                    row[name] = [value] * n if alone else [*row[name][:-1], value] if i else row[name]
                elif alone or i:
                    row[name] = value
            try:
                return pyarrow.table({key: [row[key] for row in made] for key in made[0]})
            except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError):
                pass
        return None

    @unittest.skipIf(not PYARROW, "PyArrow is not installed")
    def test_shapes(self):
        """Fields that are null or empty in all rows or in some."""
        empty = {name: [] if isinstance(value, list) else value for name, value in rows()[0].items()}
        absent = [{name: None} for name in rows()[0]]
        absent += [{name: []} for name, value in rows()[0].items() if isinstance(value, list)]
        changes = [(change, other) for change in absent for other in ({}, change)]
        # Where only some rows have logprobs, the program takes those of the policy that sampled for the others.
        changes = [c for c in changes if "logprobs" not in c[0] or c[1]]
        changes += [
            ({"mask": [0, 1, 1], "role": None}, {}),
            ({"mask": [0, 1, 1], "role": []}, {"mask": [0, 1, 1]}),
            ({"mask": [0, 1, 1], "role": None}, {"mask": [0, 0, 1], "role": None, "span_ids": None}),
            ({"mask": [0, 1, 1]}, {"mask": [0, 1, 1]}),
            ({"mask": [0, 1, 1]}, {"mask": [1, 1, 1]}),
            ({"mask": [0, 1]}, {"mask": [0, 1, 1]}),
            ({"span_ids": None}, {"span_ids": [-1, 0, 1], "anchors": [1, 2], "span_rewards": [1.0, 2.0]}),
            ({"span_ids": None, "role": [1, 0, 1], "anchors": [1, 2], "span_rewards": [1.0, 2.0]}, {}),
            ({"span_ids": [-1, 0, 2]}, {}),
            ({"span_ids": [-1, 1, 0]}, {}),
            ({"span_ids": [-1, -1, 0]}, {}),
            ({"span_ids": [-1, 0, 2**31 - 1]}, {}),
            ({"span_ids": [0, 0, 0], "role": [0, 1, 1]}, {}),
            ({"anchors": [1, 2]}, {}),
            ({"reward_parts": [1.0]}, {}),
            ({"reward_parts": [1.0]}, {"reward_parts": [2.0]}),
            ({"token_ids": [1, 2]}, {}),
            ({**empty, "reward": 2.0}, {}),
            ({**empty, "reward_parts": [3.0, 4.0]}, {}),
            ({**empty, "reward_parts": [3.0, 4.0], "reward": None}, {}),
            ({"role": [0, 0, 0], "span_ids": [-1, -1, -1], "anchors": None, "span_rewards": []}, {}),
            ({"group_id": None}, {"group_id": None, "token_ids": [4, 6, 7]}),
            ({"group_id": None}, {"group_id": None, "role": [1, 1, 1], "span_ids": [0, 0, 0]}),
            ({"group_id": None, "token_ids": None}, {"group_id": None, "token_ids": None}),
            ({"group_id": None, "token_ids": None}, {"token_ids": None}),
            ({"group_id": ""}, {}),
            ({"group_ids": [1]}, {}),
            ({"group_ids": None}, {}),
            ({"note": "not read"}, {"note": "neither"}),
            ({"trajectory_id": "a"}, {"trajectory_id": "b"}),
            ({"trajectory_id": "a"}, {"trajectory_id": None}),
        ]
        file, refused = self.folder / "x.parquet", 0
        for i, change in enumerate(changes):
            made = [{**row, **more} for row, more in zip(rows(), change)]
            names = {name: None for row in made for name in row}
            for kind in (None, "large", "fixed") if i < 8 else (None,):
                columns = {}
                for name in names:
                    column = pyarrow.array([row.get(name) for row in made])
                    if kind and pyarrow.types.is_list(column.type):
                        lengths = {len(row[name]) for row in made if row.get(name) is not None}
                        if kind == "large":
                            column = column.cast(pyarrow.large_list(column.type.value_type))
                        elif len(lengths) == 1 and 0 not in lengths:
                            kind_of = pyarrow.list_(column.type.value_type, lengths.pop())
                            column = pyarrow.array([row.get(name) for row in made], kind_of)
                    columns[name] = column
                parquet.write_table(pyarrow.table(columns), file)
                refused += self.check(f"{i} {kind} {change}", made, lambda: rollout.from_parquet(file)) or 0
        self.assertGreater(refused, 40)
        parquet.write_table(pyarrow.table({"mask": [[0, 1]] * 2, "trajectory_id": ["a", "a"]}), file)
        problem = "trajectory_id is there twice, as in the turns of one trajectory, want all of a trajectory in one row"
        self.assertInputError("trajectory_id", problem, lambda: rollout.from_parquet(file))

    @unittest.skipIf(torch is None, "PyTorch is not installed")
    def test_slime(self):
        fields = {"token_ids": "tokens", "mask": "loss_mask", "reward": "reward", "group_id": "group_index"}
        floats = {name: name for name in ("entropy", "returns", "advantages", "values")}
        floats.update(old_logprobs="log_probs", ref_logprobs="ref_log_probs", rollout_logprobs="rollout_log_probs")
        file, refused, cases = self.folder / "x.pt", 0, 0
        for name, value, what in self.cases((*fields, *floats)):
            lines, samples = [], []
            for i in range(2):
                line = {"token_ids": [5, 6, 7], "mask": [0, 1, 1], "reward": float(i), "group_id": 1}
                line.update({field: [0.0, -0.25, -0.5] for field in floats})
                if i and name in ("reward", "group_id"):
                    line[name] = value
                elif i:
                    line[name][2] = value
                sample = {fields[field]: line[field] for field in ("token_ids", "reward", "group_id")}
                sample.update({theirs: line[ours][1:] for ours, theirs in (("mask", "loss_mask"), *floats.items())})
                lines.append(line)
                samples.append({**sample, "response_length": 2})
            torch.save({"samples": samples}, file)
            cases += 1
            refused += self.check(what, lines, lambda: rollout.from_slime(file)) or 0
        self.assertGreater(cases, 250)
        self.assertGreater(refused, 150)

    @unittest.skipIf(torch is None, "PyTorch is not installed")
    def test_verl(self):
        floats = {name: name for name in ("returns", "advantages", "values")}
        floats.update(entropy="entropys", old_logprobs="old_log_probs", ref_logprobs="ref_log_prob")
        floats.update(rollout_logprobs="rollout_log_probs", token_rewards="token_level_rewards")
        fields = {"token_ids": "responses", "mask": "response_mask", "reward": "token_level_scores", **floats}
        refused, cases = 0, 0
        for name, value, what in self.cases((*fields, "group_id")):
            kind = {bool: torch.bool, int: torch.int64, float: torch.float64}.get(type(value))  # a tensor has one
            if name != "group_id" and (kind is None or kind == torch.int64 and not -(2**63) <= value < 2**63):
                continue
            lines = []
            for i in range(2):
                line = {"token_ids": [5, 6, 7], "mask": [0, 1, 1], "reward": 0.0, "group_id": "a"}
                line.update({field: [-0.25, -0.5, -0.75] for field in floats})
                if name == "group_id":
                    line[name] = value if i else "a"
                elif name == "reward":
                    line[name] = torch.tensor(value if i else 0, dtype=kind).item()
                    if kind == torch.float64:
                        line[name] += 0.0  # the sum of others with -0.0
                else:
                    line[name] = torch.tensor([0, 0, value if i else 0], dtype=kind).tolist()
                lines.append(line)
            tensors = {"prompts": torch.tensor([[5], [5]])}
            for ours, theirs in fields.items():
                of_row = [[0, line["reward"], 0] if ours == "reward" else line[ours] for line in lines]
                tensors[theirs] = torch.tensor(of_row, dtype=kind if name == ours else None)
            uids = np.empty(2, object)
            uids[:] = [line["group_id"] for line in lines]
            data = SimpleNamespace(batch=tensors, non_tensor_batch={"uid": uids})
            cases += 1
            refused += self.check(what, lines, lambda: rollout.from_verl(data)) or 0
        self.assertGreater(cases, 200)
        self.assertGreater(refused, 60)

    def test_text(self):
        """The dumps of verl: a score, a uid and a step, and of TRL: an advantage."""

        def tokenizer(text, add_special_tokens):
            return {"input_ids": list(map(ord, text))}

        file = self.folder / "1.jsonl"
        for name, value, what in self.cases(("reward", "group_id")):
            lines = [{"token_ids": [65, 66], "mask": [0, 1], "reward": 1.0, "group_id": "A"} for _ in range(2)]
            lines[1][name] = value
            dumped = [{"input": "A", "output": "B", "score": line["reward"], "uid": line["group_id"]} for line in lines]
            file.write_text("".join(json.dumps(line) + "\n" for line in dumped))
            self.check(what, lines, lambda: rollout.from_text(file, tokenizer))
        if PYARROW:
            file = self.folder / "x.parquet"
            for value in VALUES:
                lines = [{"token_ids": [65, 66], "mask": [0, 1], "advantages": [0.0, value]}]
                row = {"step": 3, "prompt": "A", "completion": "B", "advantage": value}
                try:
                    parquet.write_table(pyarrow.Table.from_pylist([row]), file)
                except (pyarrow.ArrowInvalid, OverflowError):
                    continue
                self.check(f"advantage {value!r:.40}", lines, lambda: rollout.from_text(file, tokenizer))

    def test_ids(self):
        """Equal numbers are one id, whatever their types. What is no id is refused, and null goes by prompts."""
        ids = [1, 1.0, np.float32(1), "1", np.array(1), 2**53, 2.0**53, 2**53 + 1, 0, -0.0, 1.5, b"a", None, "", None]
        prompts = [b"p"] * (len(ids) - 1) + [b"q"]
        self.assertEqual(groups("id", ids, prompts).tolist(), [0, 0, 0, 0, 0, 1, 1, 2, 3, 3, 4, 5, 6, 6, 7])
        self.assertIsNone(groups("id", [None, ""], [b"", b""]))
        shown = [(math.nan, "NaN"), (-math.inf, "-Infinity"), (True, "true"), ([1], "an array"), ({"a": 1}, "an object")]
        for value, text in (*shown, (np.zeros(2), "an array")):
            problem = f"id[1] is {text}, want the id of a group: a text or a finite number"
            self.assertInputError("id", problem, lambda: groups("id", ["a", value], [b"", b""]))
        problem = "id[1] is missing, and so is a prompt, want one of them, as others have"
        self.assertInputError("id", problem, lambda: groups("id", ["a", None], [b"", b""]))


if __name__ == "__main__":
    unittest.main()
