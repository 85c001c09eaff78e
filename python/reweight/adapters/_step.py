"""A step on the tokens of a trainer's batch."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Set, Tuple

import numpy as np
import numpy.typing as npt

import reweight

from .._catalogue import Entry
from .._errors import described, shown
from .._generated import SIGNAL_ARRAYS
from .._step import Step
from ._layout import to_numpy

_LARGEST = 1e30  # of an entropy that AEM takes
_REWARDS = ("rewards", "token_rewards")
_PER_TRAJECTORY = ("group_ids", "rewards")
_KINDS = (("action", reweight.ACTION), ("reasoning", reweight.REASONING))


def reads(e: Entry, signal: str, exact: bool) -> Set[str]:
    """Returns the arrays that an entry reads, where ActFocus has that signal, and the entropy is the exact one."""
    if e.function == "actfocus":
        return set(SIGNAL_ARRAYS.get(signal, ()))
    names = {need.split("|")[0] for need in e.reads}
    return names if exact or "entropy" not in names else names - {"entropy"} | {"old_logprobs"}


def finite(x: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Returns where a value is one that the schemes take."""
    if -_LARGEST <= x.min(initial=0) and x.max(initial=0) <= _LARGEST:  # all, as nearly always, and no NaN
        return np.ones(x.shape, bool)
    found: npt.NDArray[np.bool_] = x <= _LARGEST
    found &= x >= -_LARGEST
    return found


class TrainerStep(Step):
    """A step in which the trainer's advantages stay where the scheme makes none, and a token has no part in what an entry
    computes if a value that the entry reads there is not finite: such a token has the weight 1, AEM's factor of its
    response, and the advantage 0 of schemes that make advantages.

    scored: the trajectories that have a reward. Others have no part in what an entry makes of rewards, and get 0.
    ignored: the tokens of which a value is not finite. made: what the entries made, by their names. plain: the
    advantages before any factor.
    """

    def __init__(
        self,
        step: Step,
        kept: npt.NDArray[np.bool_],
        sampled: npt.NDArray[np.bool_],
        scored: npt.NDArray[np.bool_],
        signal: str,
        ignore: bool,
    ) -> None:
        vars(self).update(vars(step))
        self.kept, self.sampled, self.scored, self.signal, self.ignore = kept, sampled, scored, signal, ignore
        self.ignored = np.zeros(len(kept), bool)
        self.made: Dict[str, npt.NDArray[np.float32]] = {}

    def _advantages(self, batch: reweight.Batch, own: reweight.Batch) -> Any:
        if self._maker() or batch.advantages is None:
            made = super()._advantages(batch, own)
        else:
            # Bits times 1 or 0, which is 0 for a NaN too, in a third of the time of np.where.
            made = (np.ascontiguousarray(batch.advantages).view(np.uint32) * self.kept).view(np.float32)
        self.plain = np.array(made)  # which is multiplied in place
        return made

    def _compute(self, e: Entry, batch: reweight.Batch, **more: Any) -> Any:
        ignored = np.zeros(len(self.kept), bool)
        names = reads(e, self.signal, True)
        for name in names if self.ignore else ():
            x = getattr(batch, name)
            if isinstance(x, np.ndarray) and x.dtype == np.float32 and x.shape == ignored.shape:
                ignored |= self.kept & ~finite(x)
        if e.function == "actfocus":
            ignored &= batch.role == reweight.ACTION
        if ignored.any():
            self.ignored |= ignored
            batch = dataclasses.replace(batch, role=np.where(ignored, np.uint8(reweight.MASKED), np.asarray(batch.role)))
        if "span_ids" in names:
            counted, spans = self.kept & ~ignored, np.asarray(batch.span_ids)
            batch = dataclasses.replace(batch, span_ids=self.numbered(counted, spans))
        compared = self._compared(e, names, batch.group_ids)
        made = super()._compute(e, batch, **more) if compared.all() else self._of_part(e, batch, names, compared)
        if e.kind == "weight" and ignored.any():
            made[ignored] = 1
        elif e.function == "aem" and ignored.any():
            of_span = np.ones(spans.max() + 2, np.float32)
            of_span[spans[counted]] = made[counted]
            made[ignored] = of_span[spans[ignored]]
        several = e.kind == "weight" and len(self._of("weight")) > 1  # the first of which is multiplied in place
        self.made[e.name] = made.copy() if several else made
        return made

    def _compared(self, e: Entry, names: Set[str], groups: Any) -> npt.NDArray[np.bool_]:
        """Returns the trajectories that have a part in what an entry makes of the arrays it reads: all, or of rewards those
        that have one, and are not alone in their group because the others have none."""
        if names.isdisjoint(_REWARDS):
            return np.ones(len(self.scored), bool)
        if "group_ids" not in names or groups is None:
            return self.scored
        members, scored = np.bincount(groups)[groups], np.bincount(groups, self.scored)[groups]
        compared: npt.NDArray[np.bool_] = self.scored & ((scored > 1) | (members == 1))
        if e.name == "pass_at_k" and (len(members) == 1 or (members > 1).any()):
            compared &= members > 1  # a group of one is an error of the library, and here where all groups are
        return compared

    def _of_part(self, e: Entry, batch: reweight.Batch, names: Set[str], chosen: npt.NDArray[np.bool_]) -> Any:
        """Returns what an entry that reads arrays of those names makes of the chosen trajectories, and 0 at the others."""
        made = np.zeros(len(self.kept), np.float32)
        if not chosen.any():
            return made
        lengths = np.diff(np.asarray(batch.seq_offsets))
        tokens = np.repeat(chosen, lengths)
        part = reweight.Batch(np.asarray(batch.role)[tokens], np.append(0, np.cumsum(lengths[chosen])))
        where: Dict[str, Any] = dict.fromkeys(_PER_TRAJECTORY, chosen)
        if "span_rewards" in names:
            spans = np.asarray(batch.span_ids)
            there = tokens & (spans >= 0)
            where["span_rewards"] = where["anchors"] = np.unique(spans[there])
            batch = dataclasses.replace(batch, span_ids=self.numbered(there, spans))
        for name in names - {"seq_offsets"}:
            x = getattr(batch, name)
            if x is not None:  # else the entry says so
                setattr(part, name, np.asarray(x)[where.get(name, tokens)])
        try:
            made[tokens] = super()._compute(e, part)
        except reweight.InputError as error:
            if error.index is None:
                raise
            place = np.flatnonzero(chosen if error.argument in _PER_TRAJECTORY else tokens)[error.index[0]]
            raise reweight.InputError(error.argument, error.problem, int(place)) from None
        return made

    def numbered(self, counted: npt.NDArray[np.bool_], spans: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Returns the spans without those of which no token is counted, and -1 at tokens that are not."""
        if np.array_equal(counted, self.sampled):
            return spans
        alive = np.zeros(spans.max() + 2, np.int32)
        alive[spans[counted]] = 1
        return np.where(counted, (np.cumsum(alive, dtype=np.int32) - np.int32(1))[spans], np.int32(-1))


def per_trajectory(x: npt.NDArray[Any], offsets: npt.NDArray[np.int64], dtype: Any) -> npt.NDArray[Any]:
    """Returns the sum of each trajectory."""
    sums = np.zeros(len(offsets) - 1, dtype)
    nonempty = offsets[:-1] < offsets[1:]
    if len(x):
        sums[nonempty] = np.add.reduceat(x, offsets[:-1][nonempty], dtype=dtype)
    return sums


def outcomes(rewards: npt.NDArray[np.float32], kept: npt.NDArray[np.bool_], offsets: npt.NDArray[np.int64]) -> Any:
    """Returns the rewards of tokens: a trajectory's own at its last response token."""
    places = np.flatnonzero(kept)
    last = np.searchsorted(places, offsets[1:]) - 1
    answered = per_trajectory(kept, offsets, np.int64) > 0
    of_tokens = np.zeros(len(kept), np.float32)
    of_tokens[places[last[answered]]] = rewards[answered]
    return of_tokens


def of_turns(
    given: Any, sampled: npt.NDArray[np.bool_], kept: npt.NDArray[np.bool_], offsets: npt.NDArray[np.int64]
) -> Tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Returns the rewards of the turns that have a token of the loss, and the sum of all rewards of each trajectory.

    given: of each trajectory the rewards of its turns, the runs of sampled tokens. The reward of a turn without a token
    of the loss comes with the turn before it. A trajectory without a sampled token may have any number of rewards."""
    if not hasattr(given, "__len__") or len(given) != len(offsets) - 1:
        found = f"has {len(given)} elements" if hasattr(given, "__len__") else f"is {described(given)}"
        raise reweight.InputError("span_rewards", f"{found}, want {len(offsets) - 1}, the rewards of the turns of each trajectory")
    counts, alive = _turns(sampled, kept, offsets)
    sums, packed, first = [], [np.zeros(0, np.float32)], 0
    for q, n in enumerate(counts):
        rewards = numbers(given[q], q)
        if n not in (0, len(rewards)):
            raise reweight.InputError("span_rewards", f"has {len(rewards)} numbers, want {n}, one for each turn of the trajectory", q)
        sums.append(rewards.sum())
        there = alive[first : first + n]
        for k in range(n - 1, 0, -1):
            if not there[k]:
                rewards[k - 1] += rewards[k]
        packed.append(rewards[:n][there])
        first += n
    return np.concatenate(packed), np.array(sums, np.float32)


def states(given: Any, sampled: npt.NDArray[np.bool_], kept: npt.NDArray[np.bool_], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.str_]:
    """Returns the state before each turn that has a token of the loss, as text, from lists of those of all turns."""
    counts, alive = _turns(sampled, kept, offsets)
    if not hasattr(given, "__len__") or len(given) != len(counts):
        found = f"has {len(given)} elements" if hasattr(given, "__len__") else f"is {described(given)}"
        raise reweight.InputError("anchors", f"{found}, want {len(counts)}, the states before the turns of each trajectory")
    found_states: List[str] = []
    first = 0
    for q, n in enumerate(counts):
        row = given[q].tolist() if hasattr(given[q], "tolist") else given[q]
        if not isinstance(row, (list, tuple)):
            raise reweight.InputError("anchors", f"is {described(row)}, want a list of integers or strings, one for each turn of the trajectory", q)
        for k, x in enumerate(row):
            if not isinstance(x, (str, int, np.integer)):
                raise reweight.InputError("anchors", f"is {described(x)}, want an integer or a string", (q, k))
        if n not in (0, len(row)):
            raise reweight.InputError("anchors", f"has {len(row)} states, want {n}, one for each turn of the trajectory", q)
        found_states += [str(x) for x, there in zip(row, alive[first : first + n]) if there]
        first += n
    return np.array(found_states, np.str_)


def _turns(
    sampled: npt.NDArray[np.bool_], kept: npt.NDArray[np.bool_], offsets: npt.NDArray[np.int64]
) -> Tuple[List[int], npt.NDArray[np.bool_]]:
    """Returns how many turns each trajectory has, and of each turn whether it has a token of the loss."""
    begins = sampled.copy()
    begins[1:] &= ~sampled[:-1]
    starts = offsets[:-1][offsets[:-1] < len(sampled)]
    begins[starts] = sampled[starts]
    alive = np.zeros(begins.sum(), bool)
    alive[(np.cumsum(begins) - 1)[kept]] = True
    return per_trajectory(begins, offsets, np.int64).tolist(), alive


@contextlib.contextmanager
def saying_how(way: str) -> Iterator[None]:
    """An error of rewards of turns says by which way the trainer gives them."""
    try:
        yield
    except reweight.InputError as error:
        if error.argument != "span_rewards":
            raise
        raise reweight.InputError("span_rewards", f"{error.problem}: {way}", error.index) from None


def numbers(row: Any, q: int) -> npt.NDArray[np.float32]:
    """Returns the rewards of the turns of trajectory q."""
    try:
        x = to_numpy(row)
    except (TypeError, ValueError):  # of lists of different lengths
        x = np.asarray(None)
    for k, value in enumerate(row if x.ndim != 0 and isinstance(row, (list, tuple)) else ()):
        if value is None or isinstance(value, str):
            raise reweight.InputError("span_rewards", f"is {described(value)}, want a number", (q, k))
    if x.ndim != 1 or x.dtype.kind not in "fiub":
        raise reweight.InputError("span_rewards", f"is {described(row)}, want a list of numbers, one for each turn of the trajectory", q)
    with np.errstate(over="ignore"):
        rewards = np.array(x, np.float32)
    bad = np.flatnonzero(~np.isfinite(rewards))
    if len(bad):
        raise reweight.InputError("span_rewards", f"is {shown(rewards[bad[0]])}, want a finite number", (q, int(bad[0])))
    return rewards


def scalars(
    step: TrainerStep,
    batch: reweight.Batch,
    weights: npt.NDArray[np.float32],
    credited: npt.NDArray[np.float32],
    counts_actions: bool,
) -> Dict[str, float]:
    """Returns what the log has of a step that has been computed, as token_advantages lists it; weights are those of its
    tokens, and credited the same times their factors."""
    kept, offsets, role = step.kept, np.asarray(batch.seq_offsets), np.asarray(batch.role)
    log: Dict[str, Any] = {"not_finite": step.ignored.sum()}
    kinds = {e.kind for e in step.entries}
    if not all(reads(e, step.signal, True).isdisjoint(_REWARDS) for e in step.entries):
        log["unscored"] = (~step.scored).sum()
    if "weight" in kinds or not step.entries:
        of_all = reweight.masked_moments(weights, role)
        log["effective_tokens"] = _share(of_all.sum**2, of_all.squares)
    maker = step._maker()
    if maker is not None:
        log["advantage"] = _share(np.abs(step.made[maker.name]).sum(dtype=np.float64), np.count_nonzero(kept))
    if counts_actions:
        log.update(_focused(batch.old_logprobs, role, offsets, credited))
    if "aem" in step.made:
        log.update(_spread(step, batch, offsets))
    return {"credit/" + name: float(value) for name, value in log.items()}


def multipliers(
    step: TrainerStep,
    made: npt.NDArray[np.float32],
    credited: npt.NDArray[np.float32],
    scale: npt.NDArray[np.float32],
    divisor: npt.NDArray[np.float32],
    batch: reweight.Batch,
    counts_actions: bool,
) -> Dict[str, float]:
    """Returns the scalars of what the trainer's loss gets: made is m A, and m credited times scale, of which divisor is what
    the trainer divides the loss of the token by, relative to others. scale and divisor are of each token, or one for all."""
    log, role = {}, np.asarray(batch.role)
    multiplier, of_all = (credited, float(scale[0])) if len(scale) == 1 else (credited * scale, 1.0)
    for name, kind in _KINDS if counts_actions else ():
        of_kind = reweight.masked_moments(multiplier, role, [kind])
        if of_kind.n:
            log["credit/multiplier_" + name] = of_all * of_kind.sum / of_kind.n
    squares = [reweight.masked_moments(x / divisor if len(divisor) > 1 else x, role).squares for x in (made, step.plain)]
    log["credit/grad_scale"] = float(np.sqrt(squares[0] / squares[1])) if squares[1] > 0 else 1.0
    return log


def mixed(rewards: npt.NDArray[np.float32], groups: npt.NDArray[np.int32]) -> float:
    """Returns the share of the groups of two or more in which rewards differ; 1 where there are none."""
    if not len(rewards):
        return 1.0
    of_group = np.unique(groups, return_inverse=True)[1]
    lowest, highest = np.full(of_group.max() + 1, np.inf, np.float32), np.full(of_group.max() + 1, -np.inf, np.float32)
    np.minimum.at(lowest, of_group, rewards)
    np.maximum.at(highest, of_group, rewards)
    several = np.bincount(of_group) > 1
    return float((lowest < highest)[several].mean()) if several.any() else 1.0


def product(x: npt.NDArray[np.float32], others: Iterable[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
    for other in others:
        x = x * other
    return x


def _spread(step: TrainerStep, batch: reweight.Batch, offsets: npt.NDArray[np.int64]) -> Mapping[str, Any]:
    """Returns the scalars of AEM's factors, one of each response that has a token with an entropy."""
    spans, factors = np.asarray(batch.span_ids), step.made["aem"]
    counted = step.kept & finite(np.asarray(batch.entropy)) if step.ignore else step.kept
    found = spans if np.array_equal(counted, step.sampled) else np.where(counted, spans, np.int32(-1))
    begin = found >= 0
    begin[1:] &= found[1:] != found[:-1]
    begins = np.flatnonzero(begin)
    begins = begins[np.unique(found[begins], return_index=True)[1]]
    if len(begins) == 0:
        return {}
    of_span, trajectory = factors[begins].astype(np.float64), np.searchsorted(offsets, begins, "right") - 1
    scope = {"group": batch.group_ids, "trajectory": np.arange(len(offsets)), "batch": np.zeros(len(offsets), int)}
    members = np.unique(np.asarray(scope[step.options["aem"]["scope"]])[trajectory], return_inverse=True)[1]
    several = np.bincount(members) > 1
    changed = np.bincount(members, of_span != 1) > 0
    guarded = _share((several & ~changed).sum(), several.sum())
    return {"aem_min": of_span.min(), "aem_max": of_span.max(), "aem_std": of_span.std(), "aem_guarded": guarded}


def _focused(
    old_logprobs: Any,
    role: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    credited: npt.NDArray[np.float32],
) -> Mapping[str, Any]:
    """Returns the scalars of actions; credited is w f of each token."""
    of_actions, of_all = reweight.masked_moments(credited, role, [reweight.ACTION]), reweight.masked_moments(credited, role)
    highest = np.maximum.reduceat(role, offsets[:-1][offsets[:-1] < offsets[1:]]) if len(role) else role
    log = {"actions": of_actions.n, "action_share": _share(of_actions.n, of_all.n)}
    log["no_action"] = _share((highest == reweight.REASONING).sum(), np.count_nonzero(highest))
    log["action_weight"] = _share(of_actions.sum, of_all.sum)
    if old_logprobs is not None:
        counted = finite(old_logprobs)
        if not counted.all():
            role = role * counted
        for name, kind in _KINDS:
            of_kind = reweight.masked_moments(old_logprobs, role, [kind])
            if of_kind.n:
                log["surprisal_" + name] = -of_kind.sum / of_kind.n
    return log


def _share(part: Any, whole: Any) -> float:
    """Returns part / whole, 0 where that is 0 / 0."""
    return float(part) / max(float(whole), float(np.finfo(np.float64).tiny))
