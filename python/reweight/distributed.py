"""Many files of rollouts, scored as one batch by the workers of Dask or Ray.

ActFocus needs the mean and the deviation of the whole batch's action tokens, AEM the extremes
of a group's spans, and GRPO a group's rewards. They are computed in two passes over the files:

    partial(file)        a small summary of one file
    merge(partials)      the summary of all of them
    apply(file, ...)     weights and advantages of one file, from the summary of all

The sums are exact, so that the results have the same bits for any split into files, any order
and any worker. dask_reweight and ray_reweight run the three on a cluster; any other engine can
call them itself.

Each of the three runs `reweight score`, of the program in the wheel, which must be installed on
every worker and here. program is the path of another one. Files are named by paths that are the same on all
workers. flags are flags of `reweight score`, the same for all files, for example
["-signal", "surprisal"].

A worker that is killed costs time and nothing else: a piece that runs again gives the same
bytes, and a file of results appears under its name when it is complete.

Neither Dask nor Ray is imported before its function is called.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Sequence, Tuple, Union

from ._errors import InputError
from ._program import PROGRAM, CommandError, FileError, run

__all__ = ["CommandError", "FileError", "apply", "dask_reweight", "merge", "partial", "ray_reweight"]

PathLike = Union[str, "os.PathLike[str]"]

# So many partials are the arguments of one command.
_AT_ONCE = 1000


def partial(file: PathLike, *, flags: Sequence[str] = (), program: str = PROGRAM) -> bytes:
    """Returns what the batch needs to know of one file: a few hundred bytes, and as many for
    each group.

    Raises FileError if the file or a flag is wrong, and CommandError if the command fails.
    """
    return run(program, ["score", "partial"], "file", *flags, "--", os.fspath(file))


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
    with tempfile.TemporaryDirectory(prefix="reweight-") as folder:
        name = os.path.join(folder, "merged")
        Path(name).write_bytes(merged)
        run(program, ["score", "apply"], "file", "-merged", name, "-o", os.fspath(output), *flags, "--", os.fspath(file))


def dask_reweight(
    client: Any, files: Sequence[PathLike], folder: PathLike, *, flags: Sequence[str] = (), program: str = PROGRAM
) -> List[str]:
    """Scores files as one batch on the workers of a Dask client, and returns the names of the
    files written to the folder, one for each file, in their order.

    client: a distributed.Client.
    """
    names, outputs = _outputs(files, folder)
    options = {"flags": list(flags), "program": program}
    # pure=False: files may have changed since a call with the same names.
    partials = client.map(partial, names, pure=False, **options)
    merged = client.submit(merge, partials, program=program, pure=False)
    client.gather(client.map(apply, names, [merged] * len(names), outputs, pure=False, **options))
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
    _checked(rows.map_batches(_ray_apply, batch_size=None, fn_kwargs=options, **resources).take_all())
    return rows


# So many tasks do the files of a call, at most: starting one takes longer than a small file.
_MOST_TASKS = 1000


def _ray_partial(batch: Dict[str, Any], **options: Any) -> Dict[str, Any]:
    """Returns the merged partial of the files of a batch."""

    def done() -> bytes:
        return merge([partial(str(file), **options) for file in batch["file"]], program=options["program"])

    return _caught(done)


def _ray_apply(batch: Dict[str, Any], **options: Any) -> Dict[str, Any]:
    """Scores the files of a batch."""

    def done() -> bytes:
        for file, output in zip(batch["file"], batch["output"]):
            apply(str(file), output=str(output), **options)
        return b""

    return _caught(done)


def _caught(do: Callable[[], bytes]) -> Dict[str, Any]:
    """Returns a row of what the call returns, or of its error, which Ray would wrap in errors of
    its own."""
    try:
        return {"done": [do()], "kind": [""], "error": [""]}
    except (FileError, CommandError) as error:
        return {"done": [b""], "kind": [type(error).__name__], "error": [str(error)]}


def _checked(rows: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    for row in rows:
        if row["kind"]:
            raise FileError("files", row["error"]) if row["kind"] == "FileError" else CommandError(row["error"])
    return rows


def _outputs(files: Sequence[PathLike], folder: PathLike) -> Tuple[List[str], List[str]]:
    """Returns the names of the files and of what is written for each, and makes the folder."""
    names = [os.fspath(file) for file in files]
    if not names:
        raise InputError("files", "has no elements, want at least one")
    outputs: Dict[str, int] = {}
    for i, name in enumerate(names):
        output = os.path.join(os.fspath(folder), os.path.basename(name) + ".safetensors")
        if output in outputs:
            raise InputError("files", f"is {name}, whose results would have the name of those of {names[outputs[output]]}", i)
        outputs[output] = i
    os.makedirs(folder, exist_ok=True)
    return names, list(outputs)
