"""The audit of a run: some prompts of every N-th batch, by the gradients of the model that is trained.

An audit looks at the model as it was when the batch was drawn, and changes nothing of it: no gradient, no mode, no state
of random numbers. A run with audits has the same weights to the last bit as one without.

Of several processes each audits prompts of its own, whichever processes drew their answers, and all have what all found.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
import warnings
from collections import deque
from pathlib import Path
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence

import numpy as np
import numpy.typing as npt

import reweight

from ..audit import Audit
from ..audit._command import _has_signal, _write, parts_of_turns, turns_of
from . import _tags
from ._advantages import _roles
from ._credit import Credit
from ._layout import to_numpy
from ._pages import free
from ._report import Report

PARTS = ("action", "tags", "reasoning")
# So many prompts of a batch are audited, and so many audits count: the policy moves on.
PROMPTS, AUDITS = 8, 32
# So many prompts with different rewards are enough for weights that are measured.
ENOUGH = 8
# The direction of an audit that is the credit of the run, and where a checkpoint has the audits.
CREDIT, FILE = "credit", "reweight_audit.npz"

Gather = Callable[[Any], List[Any]]


class RunAudit:
    """The audits of a run. gather returns what all processes give it, in their order."""

    def __init__(self, credit: Credit, report: Report, gather: Gather, rank: int) -> None:
        self.credit, self.report, self.gather, self.rank = credit, report, gather, rank
        self.apart = dataclasses.replace(credit, tags_as="reasoning", show_every=0, save_every=0)
        self.batches, self.number = 0, 0
        self.found: Deque[Audit] = deque(maxlen=AUDITS)
        self.parts = parts_of_turns(credit.audit_turns) or PARTS
        self.weights = dict.fromkeys(self.parts, 1.0)
        self.verdict, self.name = "", ""
        self.warned = self.measures = False

    def due(self) -> bool:
        """Counts a batch, and says whether it is one to audit: the first, and each multiple of every."""
        self.batches += 1
        return self.batches == 1 or self.batches % self.credit.audited == 0

    @property
    def of_credit(self) -> Optional[Credit]:
        """The part of the credit that is a factor or a weight of each token; None if there is none."""
        entries = [e for e in self.credit.step().entries if e.kind in ("factor", "weight")]
        if not entries and not self.credit.measured:
            return None
        names = [e.name for e in entries]
        options = {name: of for name, of in self.credit.options.items() if name in names}
        scheme = "+".join(names) or "uniform"
        return dataclasses.replace(
            self.credit, scheme=scheme, options=options, show_every=0, save_every=0, audit_every=0, audit_turns=0
        )

    def labels(self, mask: Any, ids: Any, tokenizer: Any, actions: Any = None) -> npt.NDArray[np.int64]:
        """The part of each token of [B, T], -1 where the mask is 0: actions, tags with what follows the last closed one of a
        response, and reasoning. Without tags, where actions are roles of tokens, no token is a tag. With audit_turns, turns."""
        if self.credit.audit_turns:
            there = to_numpy(mask) != 0
            offsets = np.arange(len(there) + 1) * there.shape[1]
            turns = turns_of(reweight.spans_from_mask(there.reshape(-1), offsets), offsets).reshape(there.shape)
            return np.array(np.minimum(turns, self.credit.audit_turns - 1), np.int64)
        if actions is not None:
            return np.where(to_numpy(mask) == 0, -1, np.where(actions == reweight.ACTION, 0, 2))
        response, shape = to_numpy(mask).reshape(-1) != 0, to_numpy(mask).shape
        tokens = to_numpy(ids).reshape(-1).astype(np.int64)
        offsets = np.arange(shape[0] + 1) * shape[1]
        tokenizer = self.credit.tokenizer or tokenizer
        role, _ = _roles(response, tokens, offsets, self.apart, tokenizer)
        labels = np.where(role == reweight.MASKED, -1, np.where(role == reweight.ACTION, 0, 2))
        if self.credit.action is not None:
            return labels.reshape(shape)
        joined, _ = _roles(response, tokens, offsets, dataclasses.replace(self.apart, tags_as="action"), tokenizer)
        labels[(joined == reweight.ACTION) & (labels == 2)] = 1
        for begin, end in zip(*_tags._runs(response, offsets)):
            of = labels[begin:end]
            if (of < 2).any():
                of[np.flatnonzero(of < 2)[-1] :][1:] = 1
        return labels.reshape(shape)

    def weights_of(self, labels: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """The measured weights of tokens, ones if the credit has no such weights."""
        table = [self.weights[part] if self.credit.measured else 1.0 for part in self.parts]
        return np.array([*table, 1.0], np.float32)[labels]  # -1 is the last

    def look(
        self, model: Any, temperature: float, prompts: Sequence[Any], completions: Sequence[Any], labels: Sequence[Any],
        rewards: Any, groups: Sequence[Any], weights: Optional[Sequence[Any]], name: str,
    ) -> Dict[str, float]:  # fmt: skip
        """Audits prompts of the batch of that name, and returns scalars of all audits that count. Each argument has a row for each
        answer of this process; weights are those of the credit."""
        self.name = name
        mine = [
            (groups[b], float(rewards[b]), np.concatenate([prompts[b], completions[b]]),
             np.concatenate([np.full(len(prompts[b]), -1), labels[b]]),
             None if weights is None else np.concatenate([np.zeros(len(prompts[b]), np.float32), weights[b]]))
            for b in range(len(prompts))
        ]  # fmt: skip
        answers: Dict[Any, List[Any]] = {}
        everyone = self.gather(mine)
        for part in everyone:
            for group, *answer in part:
                answers.setdefault(group, []).append(answer)
        own: Any
        try:
            own = self._audited(model, temperature, list(answers.values()), weights is not None, len(everyone))
        except reweight.InputError as error:  # of one process, while the others wait for it
            own = error
        found, *others = self.gather(own)
        for other in (found, *others):
            if isinstance(other, reweight.InputError):
                raise other
        for other in others:
            found.merge(other)
        if any((a.layers, a.directions) != (found.layers, found.directions) for a in self.found):
            self.found.clear()  # they are of a checkpoint, and another model or credit
        self.found.append(found)
        self.number += 1
        return self._log()

    def _audited(self, model: Any, temperature: float, groups: List[Any], weighted: bool, processes: int) -> Audit:
        """The audit of the prompts of this process."""
        torch = sys.modules["torch"]
        view = importlib.import_module("reweight.audit.gradients").Gradients(model, temperature=temperature)
        audit = Audit(self.parts, directions=(CREDIT,) * weighted, layers=[str(i) for i in view.layers])
        looked_at, K = 0, len(self.parts) + weighted
        for number, answers in enumerate(groups):
            rewards, ids, labels, weights = map(list, zip(*answers))
            n, key = len(rewards), f"{self.number:08} {number:06}"
            counts = np.bincount(np.concatenate(labels) + 1, minlength=len(self.parts) + 1)[1:]
            grams: Any = np.zeros((len(view.layers), K, K, n, n))
            if _has_signal(np.array(rewards)):
                looked_at += 1
                if looked_at > PROMPTS or looked_at % processes != self.rank:
                    continue
                longest = max(map(len, ids))
                padded = [np.pad(w, (0, longest - len(w))) for w in weights] if weighted else []
                try:
                    directions = [np.array(padded)] if weighted else []
                    grams = view.grams(ids, labels, len(self.parts), lambda _: directions).numpy()
                except torch.OutOfMemoryError:
                    self._warn(f"the audit left a prompt out: there is too little memory for its {sum(map(len, ids)):,} tokens at once")
                    continue
            elif self.rank:  # the first one counts what has no signal
                continue
            audit.add(rewards, grams, counts, key)
        return audit

    def _total(self) -> Audit:
        first = self.found[0]
        total = Audit(first.parts, first.schemes, first.directions, first.layers)
        for audit in self.found:
            total.merge(audit)
        return total

    def _log(self) -> Dict[str, float]:
        total = self._total()
        log: Dict[str, float] = {"prompts": total.counted}
        if total.counted > 1:
            report = total.report()
            for part in report.parts:
                for name, share in ("signal", part.signal), ("noise", part.noise):
                    if share.known:
                        log[f"{name}_{part.name}".replace(" ", "_")] = share.value
            for name, of in ("efficiency", report.efficiencies), ("best_efficiency", [report.measured]):
                if of and of[0].here.known:
                    log.update({name: of[0].here.value, f"{name}_low": of[0].here.low, f"{name}_high": of[0].here.high})
            if self.rank == 0 and self.credit.audit_turns and not report.parts[1].tokens:
                self._warn("no audited answer has a second turn")
            elif self.rank == 0 and not any(part.tokens for part in report.parts[:2]):
                self._warn(f"no token of the audited answers is in or between the tags {self.credit.tags}")
            if self.rank == 0 and report.verdict != self.verdict:
                self.verdict = report.verdict
                self.report.say(f"by the audits until now: {report.advice}")
        if self.credit.measured and total.counted >= ENOUGH:
            if self.rank == 0 and not self.measures:
                self.report.say(f"{total.counted} prompts with different rewards are audited: the weights are measured from now on")
            self.measures, self.weights = True, total.shrunk()
        if self.rank == 0:
            self._write(total)
        return {f"credit/audit/{name}": float(value) for name, value in log.items()}

    def weights_log(self) -> Dict[str, float]:
        """The measured weights of the batch at hand."""
        weights = self.weights if self.credit.measured else {}
        return {f"credit/audit/weight_{part}".replace(" ", "_"): w for part, w in weights.items()}

    def _write(self, total: Audit) -> None:
        """A page, and the file that `reweight show` prints. What goes wrong ends no run."""
        folder = Path(self.credit.dir)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _write(folder / "audit.json", total.as_json())
            if total.counted > 1 and self.name:  # and not from a checkpoint
                _write(Path(free(self.credit.dir, self.name + "-audit", ".html")), total.report().html())
        except OSError as error:
            self._warn(f"the audit was not written: {error}")

    def _warn(self, what: str) -> None:
        if not self.warned:
            warnings.warn(what)
        self.warned = True

    def save(self, folder: str) -> None:
        """Writes the audits that count to a folder, such as a checkpoint."""
        if self.found:
            self._total().save(os.path.join(folder, FILE))

    def load(self, folder: str) -> None:
        """Goes on from what save wrote, on all processes."""
        path, found = os.path.join(folder, FILE), None
        if self.rank == 0 and os.path.exists(path):
            found = Audit.open(path)
        found = self.gather(found)[0]
        if found is None or found.parts != self.parts:
            if self.rank == 0:
                self.report.say(f"there are no audits of these parts in {folder}: they begin anew")
            return
        self.found.clear()
        keys = {*found._prompts, *found._left_out}
        for number in sorted({key.split()[0] for key in keys}):
            self.number = int(number) + 1
            self.found.append(found.without({key for key in keys if key.split()[0] != number}))
        self._log()
