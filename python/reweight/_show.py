"""A page of rollouts for people."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, List, Sequence, Union

import numpy as np

from ._arrays import I32, I64, as_numpy, view
from ._program import PROGRAM, run
from .batch import Batch
from .rollout import save

__all__ = ["show"]


def show(
    batch: Batch,
    path: Union[str, "os.PathLike[str]"],
    *,
    vocab: Any = None,
    trajectories: Sequence[int] = (0,),
    signal: str = "energy",
) -> None:
    """Writes a page for a browser: what the environment and the policy said in each turn of
    some rollouts, and the weight of every token. It is the page of `reweight show -html`, of the
    program in the wheel or, without one there, on the PATH. An old file of that path is replaced when the new one
    is complete.

    batch: its actfocus_weights, aem_factors and advantages are shown as they are if it has
        one of the first two. If not, they are computed, with the papers' options, from
        what it has of the arrays that reweight.actfocus, reweight.aem and reweight.grpo
        read. It may have entropy and old_logprobs for the table of tokens, and token_ids
        for the texts. A note on the page says what is missing.
    vocab: the texts of tokens: a tokenizer, whose decode(ids) returns the text of tokens,
        or a list, the first element of which is the text of token 0. None: ids are shown.
    trajectories: numbers of those to show, from 0. A token takes about half a kilobyte of
        the page.
    signal: of ActFocus, where weights are computed: as reweight.actfocus has it.

    Raises InputError, a ValueError, if the batch or an argument is wrong, and
    reweight.distributed.CommandError if the program is not there or fails.
    """
    path = Path(os.path.abspath(path))
    with tempfile.TemporaryDirectory(prefix="reweight-") as folder:
        # The page calls the batch by the name of its file.
        save(Path(folder, path.stem), batch)
        flags = ["-html", str(path), "-trajectory", ",".join(map(str, trajectories)), "-signal", signal]
        if vocab is not None and batch.token_ids is not None:
            file = Path(folder, path.stem + ".vocab")
            file.write_text(json.dumps(_texts(vocab, batch.token_ids)))
            flags += ["-vocab-file", file.name]
        run(PROGRAM, ["show"], "batch", *flags, "--", path.stem, folder=folder)


def _texts(vocab: Any, token_ids: Any) -> List[str]:
    """Returns the texts of the tokens from 0 on; of a tokenizer, only those that occur."""
    if not hasattr(vocab, "decode"):
        return list(vocab)
    ids = np.unique(as_numpy(view("token_ids", token_ids, (I32, I64))))
    texts = [""] * (int(ids.max(initial=-1)) + 1)
    for id in ids[ids >= 0].tolist():
        twice = vocab.decode([id, id])  # a tokenizer may leave the space out that a text begins with
        texts[id] = twice[len(twice) // 2 :]
    return texts
