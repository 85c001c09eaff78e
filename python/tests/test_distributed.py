"""Many files as one batch: the pieces in one process, and the same bytes from Dask and Ray."""

import datetime
import decimal
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np
from support import LAKES, needs_go, program, read_safetensors, run_python, write_safetensors

import reweight
from reweight import _program, distributed
from reweight._program import find


def write_shards(folder, shards):
    """Writes the rollouts of testdata to so many files, whose names it returns. Their groups
    have 16 trajectories."""
    arrays, _ = read_safetensors(LAKES[1])
    offsets = arrays["seq_offsets"]
    trajectories, tokens = len(offsets) - 1, int(offsets[-1])
    cuts = np.linspace(0, trajectories, shards + 1).astype(int)
    names = []
    for first, end in zip(cuts, cuts[1:]):
        part = {"seq_offsets": offsets[first : end + 1] - offsets[first]}
        for name, array in arrays.items():
            if array.shape == (tokens,):
                part[name] = array[offsets[first] : offsets[end]]
            elif array.shape == (trajectories,):
                part[name] = array[first:end]
        spans = part["span_ids"]
        part["span_ids"] = np.where(spans < 0, spans, spans - spans[spans >= 0].min()).astype(np.int32)
        names.append(str(Path(folder, f"shard-{len(names):02}.safetensors")))
        write_safetensors(names[-1], part)
    return names


def contents(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@needs_go
class TestCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        if find() is None:  # this is a clone, and not the wheel
            environ = mock.patch.dict(os.environ, PATH=program().name + os.pathsep + os.environ["PATH"])
            environ.start()
            cls.addClassCleanup(environ.stop)
        cls.program = find()
        (cls.folder / "shards").mkdir()
        cls.files = write_shards(cls.folder / "shards", 48)
        cls.want = cls.folder / "one-process"
        cls.want.mkdir()
        merged = distributed.merge([distributed.partial(f) for f in cls.files])
        for file in cls.files:
            distributed.apply(file, merged, cls.want / (Path(file).name + ".safetensors"))

    def script(self, name, text):
        """Writes a script for the shell that stands in for the command."""
        path = self.folder / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o700)
        return str(path)

    def assertSame(self, folder):
        got, want = contents(folder), contents(self.want)
        self.assertEqual(sorted(got), sorted(want))
        self.assertEqual([name for name in want if got[name] != want[name]], [])

    def assertRaisesText(self, kind, text, call, *args, **options):
        with self.assertRaises(kind) as caught:
            call(*args, **options)
        self.assertIs(type(caught.exception), kind)
        self.assertEqual(str(caught.exception), text)
        return caught.exception


class Pieces(TestCase):
    def test_merge(self):
        """Any order and any tree give the same bytes."""
        partials = [distributed.partial(file) for file in self.files]
        want = distributed.merge(partials)
        with mock.patch.object(distributed, "_AT_ONCE", 5):
            self.assertEqual(distributed.merge(reversed(partials)), want)
        left = distributed.merge(partials[:7])
        self.assertEqual(distributed.merge([left, *partials[7:]]), want)

    def test_names(self):
        """Names that look like flags, and paths that are no strings."""
        file, output = self.folder / "-o", self.folder / "-merged"
        shutil.copy(self.files[0], file)
        one = distributed.partial(file)
        distributed.apply(file, one, output)
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)
        self.assertEqual(len(distributed.partial("-o")), len(one) + len("-o") - len(str(file)))

    def test_errors(self):
        missing = str(self.folder / "missing.jsonl")
        text = f"{missing}: no such file or directory"
        error = self.assertRaisesText(distributed.FileError, text, distributed.partial, missing)
        self.assertIsInstance(error, reweight.InputError)
        self.assertEqual(error.argument, "file")
        self.assertRaisesText(reweight.InputError, "partials has no elements, want one for each file", distributed.merge, [])
        self.assertRaisesText(
            reweight.InputError,
            "files has no elements, want at least one",
            distributed.dask_reweight,
            None,
            [],
            self.folder / "nothing",
        )
        self.assertRaisesText(
            reweight.InputError,
            "files[2] is b/x, whose results would have the same name as the results of a/x",
            distributed.dask_reweight,
            None,
            ["a/x", "a/y", "b/x"],
            self.folder / "nothing",
        )
        self.assertFalse((self.folder / "nothing").exists())

    def test_command(self):
        """What is not the fault of the input."""
        where = os.uname().nodename
        nowhere = str(self.folder / "nowhere")
        for named, text in [
            (nowhere, f"{nowhere} does not run on {where}: No such file or directory"),
            (self.script("fails", "echo first >&2\necho 'reweight score partial: it failed' >&2\nexit 1"),
             "reweight score partial ended with status 1: it failed"),
            (self.script("dies", "kill -9 $$"), "reweight score partial ended with signal 9: no error was printed"),
        ]:  # fmt: skip
            self.assertRaisesText(distributed.CommandError, text, distributed.partial, self.files[0], program=named)

    def test_find(self):
        """The program that came with the package comes before another one on the PATH."""
        folders = [self.folder / name for name in ("site/bin", "scripts", "path")]
        module = mock.patch.object(_program, "__file__", str(self.folder / "site" / "reweight" / "_program.py"))
        scripts = mock.patch("sysconfig.get_path", return_value=str(folders[1]))
        with module, scripts, mock.patch.dict(os.environ, PATH=str(folders[2])):
            self.assertIsNone(find())
            for folder in reversed(folders):
                folder.mkdir(parents=True)
                path = self.script(str(folder / "reweight"), "exit 1")
                self.assertEqual(find(), path)

    def test_flags(self):
        """Flags go to both passes, and stand before the file."""
        log = self.folder / "log"
        named = self.script("logs", f'echo "$*" >>{log}\nexec {self.program} "$@"')
        options = {"flags": ["-signal", "surprisal"], "program": named}
        one = distributed.partial(self.files[0], **options)
        distributed.apply(self.files[0], one, self.folder / "flagged", **options)
        first, second = log.read_text().splitlines()
        self.assertEqual(first, f"score partial -signal surprisal -- {self.files[0]}")
        self.assertTrue(second.endswith(f"-signal surprisal -- {self.files[0]}"), second)
        text = "the merged statistics are of the signal surprisal, not of energy"
        self.assertRaisesText(
            distributed.FileError, text, distributed.apply, self.files[0], one, self.folder / "other"
        )

    @unittest.skipIf(importlib.util.find_spec("pyarrow") is None, "PyArrow is not installed")
    def test_other_columns(self):
        """Bytes and times, which JSON has no word for, in columns of their own and as the group."""
        import pyarrow

        rows = {"role": [[0, 1, 2, 2]] * 4, "old_logprobs": [[-0.1, -0.2, -0.3, -0.4]] * 4, "entropy": [[0.1, 0.2, 0.3, 0.4]] * 4}
        rows.update(reward=[0.0, 1.0, 0.0, 1.0], group_id=[b"a", b"a", b"b", b"b"])
        rows.update(image=[b"\x89PNG"] * 4, at=[datetime.datetime(2026, 1, 1)] * 4, price=[decimal.Decimal("1.5")] * 4)
        options = {"flags": ["-signal", "surprisal"], "program": self.program}
        scored = []
        for table in (pyarrow.table(rows), pyarrow.table({**rows, "group_id": [1, 1, 2, 2]}).drop_columns(["image", "at", "price"])):
            done = distributed._rows_partial(table, **options)["done"]
            found = distributed._rows_apply(table, merged=distributed.merge(done), **options)
            self.assertEqual(found.select(table.column_names), table)
            scored.append(found.select(["weights", "advantages"]))
        self.assertEqual(*scored)

    @unittest.skipIf(importlib.util.find_spec("pyarrow") is None, "PyArrow is not installed")
    def test_equal_blocks(self):
        """Rows that are there several times count as often, however they are cut into blocks."""
        import pyarrow

        rows = []
        for reward in (1.0, 1.0, 0.0, 1.0):
            row = {"role": [0, 1, 2], "old_logprobs": [0.0, -1.0, -0.5], "entropy": [0.0, 1.0, reward], "ref_energy": [0.0, 1.0, 1.5]}
            rows.append({**row, "reward": reward, "group_id": "g"})
        for flags in ([], ["-scope", "batch"], ["-group-size", "1"]):
            scored = []
            for size in (1, 2, 4):
                options = {"flags": flags, "program": self.program}
                blocks = [pyarrow.Table.from_pylist(rows[first : first + size]) for first in range(0, 4, size)]
                done = [distributed._rows_partial(block, **options) for block in blocks]
                self.assertEqual([row["error"] for row in done], [[""]] * len(blocks))
                merged = distributed.merge([row["done"][0] for row in done])
                found = [distributed._rows_apply(block, merged=merged, **options) for block in blocks]
                scored.append(pyarrow.concat_tables(found).select(["weights", "advantages"]).to_pylist())
            self.assertEqual(scored[0], scored[2], flags)
            self.assertEqual(scored[1], scored[2], flags)

    def test_imports(self):
        """The engines are not imported with the package."""
        run = run_python(
            "import sys, reweight.distributed; print({'dask', 'distributed', 'ray'} & set(sys.modules))"
        )
        self.assertEqual((run.stdout, run.stderr), ("set()\n", ""))


DASK = """
import json, os, sys, logging
from distributed import Client, LocalCluster
from reweight import distributed


def main(folder, killer, files):
    said = {}
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None) as cluster:
        with Client(cluster) as client:
            before = sorted(client.run(os.getpid).values())
            said["outputs"] = distributed.dask_reweight(client, files, os.path.join(folder, "dask"))
            distributed.dask_reweight(client, files, os.path.join(folder, "killed"), program=killer)
            said["survivors"] = len(set(before) & set(client.run(os.getpid).values()))
            try:
                distributed.dask_reweight(client, files[:3] + ["missing"], os.path.join(folder, "wrong"))
            except distributed.FileError as error:
                said["error"] = str(error)
            said["left"] = os.listdir(os.path.join(folder, "wrong"))
    print(json.dumps(said))

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
"""


@unittest.skipIf(importlib.util.find_spec("distributed") is None, "Dask's distributed is not installed")
class Dask(TestCase):
    def test_dask(self):
        """Two processes, 48 files, a worker killed in the middle: the bytes of one process."""
        # The first time that it applies to shard 20, the command kills the worker that runs it.
        mark = self.folder / "mark"
        killer = self.script(
            "kills",
            f'case "$2 $*" in apply*shard-20*) mkdir {mark} 2>/dev/null && kill -9 $PPID;; esac\nexec {self.program} "$@"',
        )
        run = run_python(DASK, str(self.folder), killer, *self.files, timeout=600)
        self.assertEqual(run.returncode, 0, run.stderr)
        said = json.loads(run.stdout)
        self.assertEqual([Path(output).name for output in said["outputs"]], sorted(contents(self.want)))
        self.assertSame(self.folder / "dask")
        self.assertTrue(mark.exists(), "no worker was killed")
        self.assertEqual(said["survivors"], 1)
        self.assertSame(self.folder / "killed")
        self.assertEqual(said["error"], "missing: no such file or directory")
        self.assertEqual(said["left"], [])


RAY = """
import json, os, sys
import numpy as np
import ray
from reweight import distributed


def call(folder, name, files, **options):
    return distributed.ray_reweight(files, os.path.join(folder, name), **options)


def rows(folder, killer):
    # What the rows of lines of JSON get, as bytes in the order of their numbers.
    lines = ray.data.read_json(os.path.join(folder, "lines"), override_num_blocks=6)
    scored = distributed.ray_reweight_rows(lines, program=killer, num_cpus=2)
    found = sorted(scored.take_all(), key=lambda row: row["number"])
    said = [np.concatenate([row[name] for row in found]).astype(np.float32).tobytes().hex() for name in ("weights", "advantages")]
    # The same rows twice, in blocks of one row.
    twice = lines.limit(4).materialize()
    twice = distributed.ray_reweight_rows(twice.union(twice).repartition(8), flags=["-signal", "surprisal"]).take_all()
    scores = sorted((row["number"], list(row["weights"]), list(row["advantages"])) for row in twice)
    assert len(scores) == 8 and scores[::2] == scores[1::2], scores
    try:
        distributed.ray_reweight_rows(lines.drop_columns(["role"]))
    except distributed.FileError as error:
        said.append(str(error))
    try:
        distributed.ray_reweight_rows(lines.limit(0))
    except distributed.InputError as error:
        said.append(str(error))
    return said + [scored.schema().names[-3:]]


def main(folder, killer, broken, line_killer, files):
    said = {}
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=os.path.join(folder, "r"))
    said["rows"] = call(folder, "ray", files).take_all()
    call(folder, "ray-killed", files, program=killer, num_cpus=2)
    for name, some, program in (("missing", files[:3] + ["missing"], "reweight"), ("broken", files, broken)):
        try:
            call(folder, name, some, program=program)
        except Exception as error:
            said[name] = [type(error).__name__, str(error), os.listdir(os.path.join(folder, name))]
    said["lines"] = rows(folder, line_killer)
    ray.shutdown()
    print(json.dumps(said))

if __name__ == "__main__":
    main(*sys.argv[1:5], sys.argv[5:])
"""


@unittest.skipIf(importlib.util.find_spec("ray") is None, "Ray is not installed")
class Ray(TestCase):
    def test_ray(self):
        """Two processes, 48 files, a worker killed in the middle: the bytes of one process."""
        marks, killers = [self.folder / "ray-mark", self.folder / "lines-mark"], []
        for mark, when in zip(marks, ("*shard-20*", "*rows.jsonl")):
            kill = f'case "$2 $*" in apply{when}) mkdir {mark} 2>/dev/null && kill -9 $PPID;; esac'
            killers.append(self.script(f"{mark.name}-kills", f'{kill}\nexec {self.program} "$@"'))
        broken = self.script("ray-broken", "echo 'reweight score partial: it failed' >&2\nexit 1")
        (self.folder / "lines").mkdir()
        for i in range(3):
            lines = self.folder / "lines" / f"{i}.jsonl"
            distributed.run(self.program, ["convert"], "", *self.files[16 * i : 16 * (i + 1)], str(lines))
            numbered = [dict(json.loads(line), number=[i, j]) for j, line in enumerate(lines.read_text().splitlines())]
            lines.write_text("".join(json.dumps(line) + "\n" for line in numbered))
        run = run_python(RAY, str(self.folder), killers[0], broken, killers[1], *self.files, timeout=600)
        self.assertEqual(run.returncode, 0, run.stderr)
        said = json.loads(run.stdout.splitlines()[-1])
        outputs = [str(self.folder / "ray" / (Path(file).name + ".safetensors")) for file in self.files]
        self.assertEqual(said["rows"], [{"file": f, "output": o} for f, o in zip(self.files, outputs)])
        self.assertSame(self.folder / "ray")
        self.assertSame(self.folder / "ray-killed")
        want = [read_safetensors(output)[0] for output in sorted(self.want.iterdir())]
        for name, got in zip(("weights", "advantages"), said["lines"]):
            self.assertEqual(got, b"".join(arrays[name].tobytes() for arrays in want).hex(), name)
        error, empty, names = said["lines"][2:]
        self.assertEqual(empty, "dataset has no rows, want at least one")
        self.assertRegex(error, "^rows.jsonl:1: mask, or role, is missing")
        self.assertEqual(names, ["number", "weights", "advantages"])
        self.assertEqual([mark.exists() for mark in marks], [True, True], "no worker was killed")
        self.assertEqual(said["missing"], ["FileError", "missing: no such file or directory", []])
        self.assertEqual(said["broken"], ["CommandError", "reweight score partial ended with status 1: it failed", []])


if __name__ == "__main__":
    unittest.main()
