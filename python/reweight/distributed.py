"""Many files of rollouts, scored as one batch by the workers of Dask or Ray.

ActFocus needs the mean and the deviation of the whole batch's action tokens, AEM the extremes
of a group's spans, and GRPO a group's rewards. They are computed in two passes over the files:

    partial(file)        a small summary of one file
    merge(partials)      the summary of all of them
    apply(file, ...)     weights and advantages of one file, from the summary of all

The sums are exact, so that the results have the same bits for any split into files, any order
and any worker. dask_reweight and ray_reweight run the three on a cluster, and ray_reweight_rows
does it for the rows of a dataset of Ray; any other engine can call the three itself.

Each of the three runs `reweight score`, of the program in the wheel, which must be installed on
every worker and here. program is the path of another one. Files are named by paths that are the
same on all workers. flags are flags of `reweight score`, the same for all files, for example
["-signal", "surprisal"].

A worker that is killed costs time and nothing else: a piece that runs again gives the same
bytes, and a file of results appears under its name when it is complete.

dask_audit and ray_audit run an audit (docs/audit.md) on a cluster: each task does prompts, whole, by a model of its own.
Its result has the same bits whatever the split, where the workers' machines compute alike.

Neither Dask nor Ray is imported before its function is called.
"""

from __future__ import annotations

import importlib
import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

from ._errors import InputError, file_name
from ._program import PROGRAM, CommandError, FileError, run

import numpy as np

if TYPE_CHECKING:
    from .audit import Audit

__all__ = [
    *("CommandError", "FileError", "apply", "dask_audit", "dask_reweight", "merge", "partial", "ray_audit", "ray_reweight"),
    "ray_reweight_rows",
]

PathLike = Union[str, "os.PathLike[str]"]

# So many partials are the arguments of one command.
_AT_ONCE = 1000


def partial(file: PathLike, *, flags: Sequence[str] = (), program: str = PROGRAM) -> bytes:
    """Returns what the batch needs to know of one file: a few hundred bytes, and as many for
    each group.

    Raises FileError if the file or a flag is wrong, and CommandError if the command fails.
    """
    return _partial([file_name("file", file)], flags, program)


def _partial(files: Sequence[str], flags: Sequence[str], program: str) -> bytes:
    """Returns the partial of several files."""
    return run(program, ["score", "partial"], "file", *flags, "--", *files)


def merge(partials: Iterable[bytes], *, program: str = PROGRAM) -> bytes:
    """Returns the partial of all files from the partials of each, in any order. Merged
    partials can be merged again. The partial of one file given twice is an error.
    """
    merged = list(partials)
    if not merged:
        raise InputError("partials", "has no elements, want one for each file")
    with tempfile.TemporaryDirectory(prefix="reweight-") as folder:
        while True:
            parts = [merged[first : first + _AT_ONCE] for first in range(0, len(merged), _AT_ONCE)]
            merged = []
            for part in parts:
                names = [os.path.join(folder, str(i)) for i in range(len(part))]
                for name, content in zip(names, part):
                    Path(name).write_bytes(content)
                merged.append(run(program, ["score", "merge"], "partials", "--", *names))
            if len(merged) == 1:
                return merged[0]


def apply(
    file: PathLike, merged: bytes, output: PathLike, *, flags: Sequence[str] = (), program: str = PROGRAM
) -> None:
    """Writes weights and advantages of one file of the batch to output, a safetensors file,
    from the merged partials of all its files. An older file of that name is replaced.
    """
    _apply([file_name("file", file)], merged, file_name("output", output), flags, program)


def _apply(files: Sequence[str], merged: bytes, output: str, flags: Sequence[str], program: str) -> None:
    """Scores several files into a folder, which output names with a slash after it."""
    with tempfile.TemporaryDirectory(prefix="reweight-") as folder:
        name = os.path.join(folder, "merged")
        Path(name).write_bytes(merged)
        run(program, ["score", "apply"], "file", "-merged", name, "-o", output, *flags, "--", *files)


def dask_reweight(
    client: Any,
    files: Sequence[PathLike],
    folder: PathLike,
    *,
    flags: Sequence[str] = (),
    program: str = PROGRAM,
    **resources: Any,
) -> List[str]:
    """Scores files as one batch on the workers of a Dask client, and returns the names of the
    files written to the folder, one for each file, in their order.

    client: a distributed.Client. resources are options of its map, such as
    resources={"cores": 4}, retries=3 or priority=10. Dask's dashboard shows the progress.
    """
    names, outputs = _outputs(files, folder)
    size = -(-len(names) // _MOST_TASKS)
    parts = [names[first : first + size] for first in range(0, len(names), size)]
    # pure=False: files may have changed since a call with the same names.
    options = {"flags": list(flags), "program": program, "pure": False, **resources}
    partials = client.map(_partial, parts, **options)
    merged = client.submit(merge, partials, program=program, pure=False)
    client.gather(client.map(_apply, parts, merged=merged, output=os.path.join(folder, ""), **options))
    return outputs


def ray_reweight(
    files: Sequence[PathLike],
    folder: PathLike,
    *,
    flags: Sequence[str] = (),
    program: str = PROGRAM,
    **resources: Any,
) -> Any:
    """Scores files as one batch with Ray Data, on the cluster that ray.init has connected to, and
    returns a dataset with a row for each file, in their order: file, and output, the name of the
    file written to the folder.

    resources are options of ray.data.Dataset.map_batches, such as num_cpus=4 or memory=1e9: those
    of a task, which does several files one after another. Ray shows the progress.
    """
    names, outputs = _outputs(files, folder)
    data = importlib.import_module("ray.data")
    options: Dict[str, Any] = {"flags": list(flags), "program": program}
    rows = data.from_items([{"file": name, "output": output} for name, output in zip(names, outputs)])
    # A block is what a task does again if its worker is killed.
    rows = rows.repartition(min(len(names), _MOST_TASKS)).materialize()
    done = _checked(rows.map_batches(_ray_partial, batch_size=None, fn_kwargs=options, **resources).take_all())
    options["merged"] = merge([row["done"] for row in done], program=program)
    options["output"] = os.path.join(folder, "")
    _checked(rows.map_batches(_ray_apply, batch_size=None, fn_kwargs=options, **resources).take_all())
    return rows


def ray_reweight_rows(dataset: Any, *, flags: Sequence[str] = (), program: str = PROGRAM, **resources: Any) -> Any:
    """Scores the rows of a ray.data.Dataset as one batch, and returns a dataset of the same rows
    with two columns more: weights and advantages, lists of float32 with an element per token,
    which take the place of columns of these names.

    dataset: each row is a trajectory, with the fields of a line of JSON (docs/formats.md): what
    ray.data.read_json and ray.data.read_parquet make of such files. The rows of a group may be
    anywhere in it if they have a group_id, a number or a text.

    resources are options of ray.data.Dataset.map_batches, as for ray_reweight. A task does one
    block of the dataset.
    """
    rows = dataset.materialize()  # so that both passes see the same blocks
    options: Dict[str, Any] = {"flags": list(flags), "program": program}
    blocks = {"batch_size": None, "batch_format": "pyarrow", "fn_kwargs": options, **resources}
    done = _checked(rows.map_batches(_rows_partial, **blocks).take_all())
    if not done:
        raise InputError("dataset", "has no rows, want at least one")
    options["merged"] = merge([row["done"] for row in done], program=program)
    scored = rows.map_batches(_rows_apply, **blocks).materialize()
    _checked([json.loads(error) for error in scored.unique(_ERROR)])
    return scored.drop_columns([_ERROR])


def dask_audit(client: Any, files: Sequence[PathLike], *, flags: Sequence[str], **resources: Any) -> "Audit":
    """Audits files on the workers of a Dask client, and returns the reweight.audit.Audit of all their prompts:
    print(audit.report()).

    files: rollouts, which are read here. The answers to a prompt may be in several files.
    flags: those of python -m reweight audit, without --out: ["--model", "Qwen/Qwen3-0.6B"]. Each worker loads the model.
    resources: as for dask_reweight.
    """
    options, parts = _audit_parts(files, flags)
    return _joined(client.gather(client.map(_audited, parts, options=options, pure=False, **resources)))


def ray_audit(files: Sequence[PathLike], *, flags: Sequence[str], **resources: Any) -> "Audit":
    """Audits files on the cluster that ray.init has connected to, as dask_audit does.

    resources: options of ray.remote, such as num_gpus=1: those of a task.
    """
    options, parts = _audit_parts(files, flags)
    ray = importlib.import_module("ray")
    task = ray.remote(_audited)
    task = task.options(**resources) if resources else task
    return _joined(ray.get([task.remote(part, options) for part in parts]))


def _audit_parts(files: Sequence[PathLike], flags: Sequence[str]) -> Tuple[Any, Any]:
    command = importlib.import_module("reweight.audit._command")
    names = [file_name("files", file) for file in files]
    if not names:
        raise InputError("files", "has no elements, want at least one")
    options = command.options_of(names, flags)
    return options, command.parts_of(options, _MOST_TASKS)


def _audited(prompts: Any, options: Any) -> Tuple[Any, Optional[InputError]]:
    """The audit of some prompts, or what is wrong, which Ray would wrap in an error of its own."""
    try:
        return importlib.import_module("reweight.audit._command").measured(prompts, options), None
    except InputError as error:
        return None, error


def _joined(done: Sequence[Tuple[Any, Optional[InputError]]]) -> "Audit":
    """The audit of all prompts."""
    for _, error in done:
        if error is not None:
            raise error
    audit: "Audit" = done[0][0]
    for other, _ in done[1:]:
        audit.merge(other)
    return audit


# So many tasks do the files of a call, at most: starting one takes longer than a small file,
# and each reads the merged partials.
_MOST_TASKS = 1000


def _ray_partial(batch: Dict[str, Any], **options: Any) -> Dict[str, Any]:
    """Returns the partial of the files of a batch."""
    return _caught(lambda: _partial(list(batch["file"]), **options))


def _ray_apply(batch: Dict[str, Any], **options: Any) -> Dict[str, Any]:
    """Scores the files of a batch."""
    return _caught(lambda: _apply(list(batch["file"]), **options))


_ROWS, _ERROR = "rows.jsonl", "reweight_error"  # the file of a block in a folder of its own, and a column


def _rows_partial(table: Any, **options: Any) -> Dict[str, Any]:
    """Returns the partial of a block of rows."""

    def done() -> bytes:
        with tempfile.TemporaryDirectory(prefix="reweight-") as folder:
            _write_rows(table, folder)
            # Without -rows, a block that is equal to another would be a file that is given twice.
            arguments = [*options["flags"], "-rows", _ROWS]
            found = run(options["program"], ["score", "partial"], "dataset", *arguments, folder=folder)
        head, *lines = map(json.loads, found.splitlines())
        trajectories = sum(file["trajectories"] for file in lines[: head["files"]])
        if trajectories != len(table):
            raise FileError("dataset", f"{len(table)} rows are {trajectories} trajectories, want one in each row")
        return found

    return _caught(done)


def _rows_apply(table: Any, **options: Any) -> Any:
    """Returns the rows of a block with their weights and advantages, and what was wrong."""
    arrow = importlib.import_module("pyarrow")
    columns = {name: arrow.nulls(len(table), arrow.list_(arrow.float32())) for name in ("weights", "advantages")}

    def done() -> None:
        with tempfile.TemporaryDirectory(prefix="reweight-") as folder:
            _write_rows(table, folder)
            Path(folder, "merged").write_bytes(options["merged"])
            arguments = ["-merged", "merged", "-o", "scores", *options["flags"], _ROWS]
            run(options["program"], ["score", "apply"], "dataset", *arguments, folder=folder)
            content = Path(folder, "scores").read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:start])
        found = {}
        for name in ("seq_offsets", *columns):
            first, end = (start + offset for offset in header[name]["data_offsets"])
            found[name] = np.frombuffer(content[first:end], "<i8" if header[name]["dtype"] == "I64" else "<f4")
        for name in columns:
            columns[name] = arrow.ListArray.from_arrays(found["seq_offsets"].astype(np.int32), found[name])

    row = _caught(done)
    error = json.dumps({"kind": row["kind"][0], "error": row["error"][0]})
    table = table.drop_columns([name for name in columns if name in table.column_names])
    for name, values in (*columns.items(), (_ERROR, arrow.repeat(error, len(table)))):
        table = table.append_column(name, values)
    return table


def _write_rows(table: Any, folder: str) -> None:
    """Writes rows as lines of JSON, each without the fields that are null in it. What JSON has no
    word for, such as the bytes of an image, is text."""
    with open(os.path.join(folder, _ROWS), "w") as file:
        for row in table.to_pylist():
            line = {name: value for name, value in row.items() if value is not None}
            file.write(json.dumps(line, default=lambda x: x.tolist() if hasattr(x, "tolist") else str(x)) + "\n")


def _caught(do: Callable[[], Optional[bytes]]) -> Dict[str, Any]:
    """Returns a row of what the call returns, or of its error, which Ray would wrap in errors of
    its own."""
    try:
        return {"done": [do() or b""], "kind": [""], "error": [""]}
    except (FileError, CommandError) as error:
        return {"done": [b""], "kind": [type(error).__name__], "error": [str(error)]}


def _checked(rows: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    for row in rows:
        if row["kind"]:
            raise FileError("files", row["error"]) if row["kind"] == "FileError" else CommandError(row["error"])
    return rows


def _outputs(files: Sequence[PathLike], folder: PathLike) -> Tuple[List[str], List[str]]:
    """Returns the names of the files and of what is written for each, and makes the folder."""
    names = [file_name("files", file) for file in files]
    if not names:
        raise InputError("files", "has no elements, want at least one")
    folder = file_name("folder", folder)
    outputs: Dict[str, int] = {}
    for i, name in enumerate(names):
        output = os.path.join(folder, os.path.basename(name) + ".safetensors")
        if output in outputs:
            raise InputError("files", f"is {name}, whose results would have the same name as the results of {names[outputs[output]]}", i)
        outputs[output] = i
    os.makedirs(folder, exist_ok=True)
    return names, list(outputs)
