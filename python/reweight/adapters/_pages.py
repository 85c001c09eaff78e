"""Pages of a trainer's batches for people."""

from __future__ import annotations

import os
import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np
import numpy.typing as npt

import reweight

# So many trajectories are on a page.
_SHOWN = 8


class Pages:
    """Counts the batches of a trainer, and writes pages of some of them."""

    def __init__(self) -> None:
        self.batches = 0
        self.warned = False

    def due(self, every: int) -> bool:
        """Counts a batch, and says whether it is one to show: the first, and each multiple of every."""
        self.batches += 1
        return every > 0 and (self.batches == 1 or self.batches % every == 0)

    def write(self, folder: str, vocab: Any, make: Callable[[], reweight.Batch], notes: Sequence[str] = ()) -> None:
        """Writes the page of the batch that was counted last, with the notes. What goes wrong ends no run: there is one
        warning."""
        path = os.path.join(folder, f"batch-{self.batches:06}.html")
        try:
            batch = make()
            os.makedirs(folder, exist_ok=True)
            reweight.show(batch, path, vocab=vocab, trajectories=range(len(np.asarray(batch.seq_offsets)) - 1), notes=notes)
        except Exception as error:
            if not self.warned:
                warnings.warn(f"{path} was not written, and later pages may be missing too: {error}")
            self.warned = True


def first_answered(
    per_token: Dict[str, npt.NDArray[Any]],
    per_trajectory: Dict[str, npt.NDArray[Any]],
    offsets: npt.NDArray[np.int64],
    prompts: Optional[Sequence[npt.NDArray[Any]]],
) -> reweight.Batch:
    """Returns the first trajectories that have a response, and, if there are rewards, one that is not NaN, each behind its
    prompt and without what follows its last response. Arrays of tokens are packed, as those of a Batch are; "sampled" is
    not 0 at the tokens of responses, of which "role" may leave some out."""
    parts: Dict[str, List[npt.NDArray[Any]]] = {name: [] for name in per_token}
    chosen: List[int] = []
    lengths = [0]
    for b, first in enumerate(offsets[:-1]):
        response = np.flatnonzero(per_token["sampled"][first : offsets[b + 1]])
        scored = "rewards" not in per_trajectory or not np.isnan(per_trajectory["rewards"][b])
        if len(response) == 0 or not scored or len(chosen) == _SHOWN:
            continue
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
    arrays["span_ids"] = reweight.spans_from_mask(arrays.pop("sampled"), arrays["seq_offsets"])
    return reweight.Batch(**arrays)
