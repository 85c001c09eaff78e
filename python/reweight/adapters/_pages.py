"""Pages of a trainer's batches for people, and files of them for programs."""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import numpy as np
import numpy.typing as npt

import reweight

from .._show import _texts
from ._step import finite

# What has to be finite in a file.
_FINITE = ("old_logprobs", "ref_logprobs", "rollout_logprobs")
# So many trajectories are on a page.
_SHOWN = 8

Arrays = Dict[str, npt.NDArray[Any]]


def batch_name(run: Optional[str], step: int) -> str:
    """The name of a batch's files: of the run, in letters that any file may have, and of the trainer's global step."""
    name = re.sub(r"[^\w.=-]+", "-", os.path.basename(os.path.normpath(run or ""))).strip("-.")[:80]
    return f"{name}-step-{step:06}" if name else f"step-{step:06}"


def free(folder: str, name: str, ending: str) -> str:
    """A path in the folder, in which there is no such file yet: of the name, or else of the name with -2, -3 and so on."""
    path, n = os.path.join(folder, name + ending), 1
    while os.path.lexists(path):
        n += 1
        path = os.path.join(folder, f"{name}-{n}{ending}")
    return path


class Pages:
    """Counts the batches of a trainer, and writes pages and files of some of them."""

    def __init__(self) -> None:
        self.batches = 0
        self.name = ""
        self.warned = False

    def count(self, name: Optional[str]) -> None:
        """Counts a batch of that name."""
        self.batches += 1
        self.name = name or f"batch-{self.batches:06}"

    def due(self, every: int) -> bool:
        """Says whether the batch is one to show: the first, and each multiple of every."""
        return every > 0 and (self.batches == 1 or self.batches % every == 0)

    def next_due(self, every: int) -> bool:
        """Says whether the batch after that is one to show."""
        return every > 0 and (self.batches + 1) % (every if self.batches else 1) == 0

    def write(self, folder: str, vocab: Any, make: Callable[[], Arrays], notes: Sequence[str] = ()) -> None:
        """Writes the page of the batch that was counted last, with the notes."""

        def page(path: str) -> None:
            batch = reweight.Batch(**make())
            os.makedirs(folder, exist_ok=True)
            reweight.show(batch, path, vocab=vocab, trajectories=range(len(np.asarray(batch.seq_offsets)) - 1), notes=notes)

        self._try(free(folder, self.name, ".html"), page)

    def save(self, folder: str, vocab: Any, make: Callable[[], Arrays], process: str, trajectories: int) -> None:
        """Writes the batch that was counted last as lines of JSON, which the program reweight reads: those of a process, which
        has so many trajectories."""

        def file(path: str) -> None:
            stem = os.path.basename(path)[: -len(".jsonl")]
            arrays = make()
            text = _lines(arrays, vocab, stem.replace(process, ""))
            os.makedirs(folder, exist_ok=True)
            with open(path + ".tmp", "w", encoding="utf-8") as out:
                out.write(text)
            os.replace(path + ".tmp", path)
            written = len(arrays["seq_offsets"]) - 1
            if written < trajectories:
                said = f"{path} has {written} of {trajectories} trajectories: others have no response, no reward, or a log-probability"
                print(f"reweight: {said} that is not finite", file=sys.stderr, flush=True)

        self._try(free(folder, self.name + process, ".jsonl"), file)

    def _try(self, path: str, write: Callable[[str], None]) -> None:
        """Writes a file. What goes wrong ends no run: there is one warning."""
        try:
            write(path)
        except Exception as error:
            if not self.warned:
                warnings.warn(f"{path} was not written, and later ones may be missing too: {error}")
            self.warned = True


def _lines(arrays: Arrays, vocab: Any, name: str) -> str:
    """A line of JSON for each trajectory, as docs/formats.md has them. Groups have the name of the batch before theirs, so
    that those of other batches are others."""
    offsets, lines = arrays["seq_offsets"], []
    ids = arrays.get("token_ids")
    texts: Mapping[int, str] = {} if ids is None or vocab is None else _texts(vocab, ids.tolist())
    for s, (first, end) in enumerate(zip(offsets, offsets[1:])):
        line: Dict[str, Any] = {}
        if "group_ids" in arrays:
            line["group_id"] = f"{name} {arrays['group_ids'][s]}"
        if "rewards" in arrays:
            line["reward"] = _number(arrays["rewards"][s])
        for field, x in arrays.items():
            if field == "span_ids":
                own = x[first:end]
                line[field] = np.where(own < 0, own, own - own[own >= 0].min(initial=len(x))).tolist()
            elif field in ("span_rewards", "anchors"):  # of which every token has its span's
                starts = np.unique(arrays["span_ids"][first:end], return_index=True)[1]
                of_spans = [x[first + at] for at in sorted(starts) if arrays["span_ids"][first + at] >= 0]
                line[field] = [int(v) if field == "anchors" else _number(v) for v in of_spans]
            elif field not in ("group_ids", "rewards", "seq_offsets"):
                line[field] = [_number(v) for v in x[first:end]] if x.dtype.kind == "f" else x[first:end].tolist()
        if texts and ids is not None:
            line["texts"] = [texts.get(i, "") for i in ids[first:end].tolist()]
        lines.append(json.dumps(line) + "\n")
    return "".join(lines)


def _number(x: Any) -> float:
    """A float32 as the shortest number that is read as the same one."""
    return float(str(np.float32(x)))


def first_answered(
    per_token: Dict[str, npt.NDArray[Any]],
    per_trajectory: Dict[str, npt.NDArray[Any]],
    offsets: npt.NDArray[np.int64],
    prompts: Optional[Sequence[npt.NDArray[Any]]],
    few: bool = True,
) -> Arrays:
    """Returns the arrays of a few first trajectories, or of all with finite log-probabilities, that have a response, and, if there are rewards, one that is not NaN, each behind its
    prompt and without what follows its last response. Arrays of tokens are packed, as those of a Batch are; "sampled" is
    not 0 at the tokens of responses, of which "role" may leave some out."""
    parts: Dict[str, List[npt.NDArray[Any]]] = {name: [] for name in per_token}
    chosen: List[int] = []
    lengths = [0]
    for b, first in enumerate(offsets[:-1]):
        response = np.flatnonzero(per_token["sampled"][first : offsets[b + 1]])
        scored = "rewards" not in per_trajectory or not np.isnan(per_trajectory["rewards"][b])
        if len(response) == 0 or not scored or few and len(chosen) == _SHOWN:
            continue
        inside = slice(first, offsets[b + 1])
        if not few and any(not finite(x[inside])[per_token["role"][inside] > 0].all() for n, x in per_token.items() if n in _FINITE):
            continue  # which no file may have
        end = first + response[-1] + 1
        prompt = np.zeros(0) if prompts is None else prompts[b]
        for name, x in per_token.items():
            before = prompt if name == "token_ids" else np.zeros(len(prompt))
            kind = x.dtype if x.dtype.kind in "iu" else np.float32
            parts[name].append(np.concatenate([before, x[first:end]]).astype(kind))
        chosen.append(b)
        lengths.append(len(prompt) + int(end - first))
    if not chosen:
        raise ValueError("none of its trajectories has a response, and a reward where there are any")
    arrays = {name: np.concatenate(part) for name, part in parts.items()}
    arrays.update({name: x[chosen] for name, x in per_trajectory.items()})
    arrays["seq_offsets"] = np.cumsum(lengths)
    spans = reweight.spans_from_mask(arrays.pop("sampled"), arrays["seq_offsets"])
    alive = np.unique(spans[arrays["role"] > 0])  # no span may be without a response token
    number = np.full(spans.max(initial=-1) + 2, -1, np.int32)  # the last of which is that of -1
    number[alive] = np.arange(len(alive))
    arrays["span_ids"] = number[spans]
    return arrays
