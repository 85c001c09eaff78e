"""Rollouts for people: a page, a table of schemes, and a picture for notebooks."""

from __future__ import annotations

import html
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, List, Sequence, Union

import numpy as np

from ._arrays import F32, I32, I64, U8, as_numpy, view
from ._errors import file_name, printable
from ._program import PROGRAM, run
from .batch import ACTION, MASKED, Batch
from .rollout import save

__all__ = ["Comparison", "compare", "show"]


@dataclass(frozen=True, repr=False)
class Comparison:
    """What schemes do to a batch. str() of it is the table of the program reweight."""

    schemes: List[Dict[str, Any]]
    """for each scheme its name under "scheme", and figures: "loss"; the norms of the gradient by the
    log-probabilities, "grad_l2", "grad_l2_action" and "grad_l2_reasoning"; "clip_fraction",
    "action_credit_share", "effective_tokens", "entropy_drift" in nats, and "spearman_uniform", the rank
    correlation of its credit with uniform's; None is what is not known"""
    text: str
    """the table, and lines that explain it"""

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


def compare(batch: Batch, scheme: str = "uniform,actfocus,aem,actfocus+aem", **flags: Any) -> Comparison:
    """Compares schemes on the batch: for each its loss, the norms of its gradient and what it does to
    the credit of tokens. It is the table of `reweight FILE`, of the program in the wheel or, without
    one there, on the PATH.

        print(reweight.compare(batch, "uniform,gtpo+actfocus"))

    batch: has logprobs, old_logprobs, and what the schemes read: the needs of reweight.scheme(name).
        Without group_ids, trajectories whose token_ids begin alike are groups.
    scheme: names of schemes with commas between them, each as reweight.scheme takes it, or "all",
        which leaves out, and says so, those that the batch has not the arrays for.
    flags: others of `reweight -h`, with _ for -: alpha=0.2, kl_coef=0.01.

    Raises InputError, a ValueError, if the batch, a name or a flag is wrong, and
    reweight.distributed.CommandError if the program is not there or fails.
    """
    words = [f"-{name.replace('_', '-')}={value}" for name, value in {"scheme": scheme, **flags}.items()]
    with tempfile.TemporaryDirectory(prefix="reweight-") as folder:
        save(Path(folder, "batch"), batch)
        table, figures = (run(PROGRAM, [], "batch", *words, f"-format={f}", "--", "batch", folder=folder) for f in ("table", "json"))
    return Comparison(json.loads(figures)["schemes"], table.decode())


def show(
    batch: Batch,
    path: Union[str, "os.PathLike[str]"],
    *,
    vocab: Any = None,
    trajectories: Sequence[int] = (0,),
    signal: str = "energy",
    notes: Sequence[str] = (),
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
    notes: sentences of yours to print above.

    Raises InputError, a ValueError, if the batch or an argument is wrong, and
    reweight.distributed.CommandError if the program is not there or fails.
    """
    path = Path(os.path.abspath(file_name("path", path)))
    with tempfile.TemporaryDirectory(prefix="reweight-") as folder:
        # The page calls the batch by the name of its file.
        save(Path(folder, path.stem), batch)
        flags = ["-html", str(path), "-trajectory", ",".join(map(str, trajectories)), "-signal", signal]
        flags += [f"-note={note}" for note in notes]
        if vocab is not None and batch.token_ids is not None:
            file = Path(folder, path.stem + ".vocab")
            ids = np.unique(as_numpy(view("token_ids", batch.token_ids, (I32, I64)))).tolist()
            added = [{"id": id, "content": text} for id, text in _texts(vocab, ids).items()]
            # Laid out as a tokenizer.json, which has ids, and whose added tokens are texts as they stand.
            file.write_text(json.dumps({"model": {"vocab": {"": -1}}, "added_tokens": added}))
            flags += ["-vocab-file", file.name]
        run(PROGRAM, ["show"], "batch", *flags, "--", path.stem, folder=folder)


MOST_TOKENS = 4096
"""A picture leaves out the tokens after so many."""


def picture(batch: Batch, advantages: Any, weights: Any, vocab: Any) -> str:
    """Returns HTML with the tokens of the first trajectory, in colours by advantage times weight."""
    role = as_numpy(view("role", batch.role, (U8,)))
    end = role.shape[1] if role.ndim == 2 else int(as_numpy(view("seq_offsets", batch.seq_offsets, (I64,)))[1])
    shown = slice(0, min(end, MOST_TOKENS))

    def first(name: str, array: Any, *types: Any) -> Any:
        return as_numpy(view(name, array, types)).reshape(-1)[shown]

    role = role.reshape(-1)[shown]
    factors = np.ones(role.shape) if weights is None else first("weights", weights, F32)
    advantages = first("advantages", advantages, F32)
    credit = advantages * factors
    most = np.abs(credit[np.isfinite(credit)]).max(initial=0) or 1
    words = ["#?"] * len(role)
    if batch.token_ids is not None:
        ids = first("token_ids", batch.token_ids, I32, I64).tolist()
        texts = {} if vocab is None else _texts(vocab, ids)
        words = [texts.get(id, f"#{id}") for id in ids]
    spans = []
    for t, word in enumerate(words):
        about, style = f"token {t}, no response", "color:gray"
        if role[t] != MASKED:
            kind = "action" if role[t] == ACTION else "reasoning"
            about = f"token {t}, {kind}, advantage {advantages[t]:.4g}, weight {factors[t]:.4g}"
            colour = "0,114,178" if credit[t] > 0 else "194,65,12"
            share = min(1, abs(credit[t]) / most) if np.isfinite(credit[t]) else 1
            style = f"background:rgba({colour},{0.6 * share:.3f})" + ";font-weight:bold" * (kind == "action")
        text = "\u21b5<br>".join(html.escape(printable(line)) for line in word.split("\n"))
        spans.append(f'<span title="{about}" style="{style}">{text}</span>')
    left = f" {end - len(role)} more tokens are left out." if end > len(role) else ""
    return (
        "<p>The first trajectory. Blue tokens are made likelier, orange ones less likely, the more the stronger "
        f"the colour; actions are bold. Point at a token for its advantage and weight.{left}</p>"
        f'<pre style="white-space:pre-wrap">{(" " if vocab is None else "").join(spans)}</pre>'
    )


def _texts(vocab: Any, ids: Iterable[int]) -> Dict[int, str]:
    """Returns the texts of tokens by their ids, of those that the vocabulary has."""
    texts = {}
    for id in set(ids):
        if not 0 <= id < 2**31:
            continue
        if hasattr(vocab, "decode"):
            twice = vocab.decode([id, id])  # a tokenizer may leave the space out that a text begins with
            texts[id] = twice[len(twice) // 2 :]
        elif id < len(vocab):
            texts[id] = vocab[id]
    return texts
