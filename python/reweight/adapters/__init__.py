"""The schemes of the catalogue in the trainers that people use: ActFocus, AEM, GTPO and others.

Let A be the advantage of a token: the trainer's, or that of a scheme which makes advantages,
such as RLOO, in its place. Let f be the product of the factors of the scheme (AEM), and w that
of its weights (ActFocus). The loss l of a token is homogeneous in its advantage in most
trainers: for m >= 0, l(m A) = m l(A). This holds for the clipped surrogate of PPO, with dual
clip too, for CISPO, and for a ratio per sequence as in GSPO. f and w can therefore be
multiplied into the advantages, and the loss of the trainer stays as it is. What differs is the
number by which the sum of the tokens' losses is divided. Let N and N_s be the response tokens
of the batch and of trajectory s, and S the trajectories that have one:

    aggregation                wanted                          the trainer's loss            m
    token_mean                 sum w l(f A) / sum w            sum l(m A) / N                w f N / sum w
    seq_mean_token_mean        mean_s sum_s w l(f A) / sum_s w mean_s sum_s l(m A) / N_s     w f N_s / sum_s w
    seq_mean_token_sum         sum w l(f A) / S                sum l(m A) / S                w f
    seq_mean_token_sum_norm    sum w l(f A) / length           sum l(m A) / length           w f
    token_sum                  sum w l(f A)                    sum l(m A)                    w f

token_advantages computes m A. Each module of this package puts it into one trainer, by one
method of that trainer: reweight.adapters.verl, trl, openrlhf, nemo_rl, slime, prime_rl.
None of them is imported here, and none imports its trainer before its install is called.

The sums, and all means and groups of the schemes, are those of the batch that the
trainer hands over at once. A trainer that then divides it into mini-batches divides the
loss of each by its own N. A penalty on the divergence from the reference, or a bonus on
the entropy, is not part of l, and stays as the trainer has it.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import importlib.abc
import importlib.metadata
import importlib.util
import inspect
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

import reweight

from .._catalogue import ENTRIES
from .._program import PROGRAM, find
from .._step import Step, scheme
from . import _tags
from ._pages import Pages, first_answered
from ._step import TrainerStep, outcomes, per_trajectory, reads, scalars

__all__ = ["Credit", "HookError", "token_advantages"]

AGGREGATIONS = ("token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm", "token_sum")

Tag = Union[str, Sequence[int]]
Gather = Callable[[Dict[str, Any]], Tuple[List[Dict[str, Any]], int]]


# The options of two entries are arguments of Credit.
_ARGUMENTS = {"actfocus": ("alpha", "beta", "eps", "signal"), "aem": ("lambda_", "guard", "scope")}
# What every adapter can give a scheme, besides role and old_logprobs.
_KEPT = ("seq_offsets", "group_ids", "span_ids", "rewards", "token_rewards", "advantages", "old_logprobs", "ref_logprobs")


@dataclass(frozen=True)
class Credit:
    """What an adapter adds to a trainer. The defaults are those of the papers, but for the
    signal: trainers keep no logsumexp of the raw logits, from which the energy follows.

    scheme: names of reweight.schemes() with + between them. Advantages, such as those of "rloo" or
        "gtpo", take the place of the trainer's; factors and weights are multiplied into them. The
        loss is the trainer's: a name that has one is an InputError, and the trainer's option chooses it.
    options: of the scheme's entries but ActFocus and AEM, by their names: {"gtpo": {"bonus": 0.2}}.
    alpha, beta, eps: options of ActFocus (arXiv 2605.14558), as reweight.actfocus has them.
    signal: of ActFocus: "surprisal", which is -old_logprobs; "log_ratio", old_logprobs - ref_logprobs; "energy", the
        paper's own, in TRL with a reference and install(head=True); "energy" or "ref_entropy" for callers of
        token_advantages who have these.
    tags: what opens and closes an action of ActFocus: two strings, or two sequences of token ids. The
        tokens strictly between them are actions, if both are in one response; a token
        that holds a part of a tag is none. None: all response tokens are actions.
    tokenizer: what decodes token ids, for tags that are strings. None: the trainer's, in
        trainers that have one where the adapter works (verl, TRL, OpenRLHF).
    lambda_, guard, scope: options of AEM (arXiv 2605.00425), as reweight.aem has them.
    entropy: "exact", the entropy of the old policy at each token; "surprisal", in its
        place -old_logprobs, whose expectation it is: for trainers that keep no entropy, and schemes
        that take its mean over a response, which for n tokens then has an error of order 1/sqrt(n).
    not_finite: what a log-probability or entropy is that is read and is NaN, infinite or above
        1e30, as engines give at tokens that they could not score. "ignore": an action token
        without a signal has the weight 1 and no part in the signal's mean and deviation, a
        token without an entropy no part in that of its response; where a scheme makes the advantages
        from it, the token's is 0. The log counts them. "error": an InputError.
    show_every: so many batches apart, some rollouts of a batch are shown to people with
        the weight of every token: the pages DIR/batch-000001.html, and of each batch whose
        number is a multiple of it. 0: never. It needs the program reweight, which the wheel has.
        Of several processes the first writes. A restarted run counts from 1 again.
    dir: the folder DIR, which is made where it is not there.
    """

    scheme: str = "actfocus+aem"
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    alpha: float = 0.1
    beta: float = 0.5
    eps: float = 1e-8
    signal: str = "surprisal"
    tags: Optional[Tuple[Tag, Tag]] = ("<answer>", "</answer>")
    tokenizer: Any = None
    lambda_: float = 1.0
    guard: float = 0.1
    scope: str = "group"
    entropy: str = "exact"
    not_finite: str = "ignore"
    show_every: int = 0
    dir: str = "credit"
    _pages: Pages = field(default_factory=Pages, init=False, repr=False, compare=False)

    def step(self) -> Step:
        """Returns the step of the scheme, with its options."""
        try:
            step = scheme(self.scheme)
        except reweight.InputError as error:
            raise reweight.InputError("scheme", error.problem) from None
        names = [e.name for e in step.entries]
        for name, options in self.options.items():
            if name in _ARGUMENTS:
                raise reweight.InputError("options", f"has {name}, whose options are arguments of Credit: {', '.join(_ARGUMENTS[name])}")
            if name not in names:
                raise reweight.InputError("options", f'has "{name}", want entries of the scheme {self.scheme}: [{" ".join(names)}]')
            known = step.options[name]
            for option, value in options.items():
                if option not in known:
                    raise reweight.InputError("options", f'has "{option}" of {name}, want some of [{" ".join(known)}]')
                known[option] = value
        for name, arguments in _ARGUMENTS.items():
            for argument in arguments:
                value = getattr(self, argument)
                if name in names:
                    step.options[name][argument] = value
                elif value != getattr(Credit, argument):
                    problem = f"is {value!r}, an option of {name}, which is not in the scheme {self.scheme}"
                    raise reweight.InputError(argument, problem)
        return step

    @property
    def reads(self) -> FrozenSet[str]:
        """The arrays of a Batch that the scheme reads, besides role."""
        return frozenset().union(*(reads(e, self.signal, self.entropy == "exact") for e in self.step().entries))

    @property
    def makes_advantages(self) -> bool:
        """Whether the scheme's advantages take the place of the trainer's."""
        return self.step()._maker() is not None

    @property
    def wants_actions(self) -> bool:
        """Whether actions are looked for between tags."""
        return self.tags is not None and any(e.name == "actfocus" for e in self.step().entries)

    def check(self, trainer: str, own: Mapping[str, str], keeps: Sequence[str] = ()) -> None:
        """Raises InputError for a wrong option, which a trainer would meet only after its first rollouts, and if the
        credit wants what the trainer does not keep, or does itself.

        keeps: the arrays that this trainer can give, besides those that all can. own: the trainer's options that do
        what the credit does not, by "loss", by an array, or by the name of an entry."""
        step = self.step()
        kept = ["surprisal", "log_ratio"] + ["energy"] * ("ref_energy" in keeps)
        if self.signal not in kept and "actfocus" in (e.name for e in step.entries):
            problem = f'is "{self.signal}", which {trainer} does not keep, want one of [{" ".join(kept)}]'
            raise reweight.InputError("signal", problem)
        losses = [e for e in step.entries if e.kind in ("loss", "critic")]
        if losses:
            rest = "+".join(e.name for e in step.entries if e not in losses)
            problem = f"has {losses[0].name}, a loss: {trainer} has its own, which {own['loss']} chooses"
            raise reweight.InputError("scheme", problem + (f', and "{rest}" is the rest of the scheme' if rest else ""))
        for e in step.entries:
            if e.kind == "reward" and not self.makes_advantages:
                problem = f"has {e.name}, which changes rewards, but {trainer} has made its advantages of them already"
                raise reweight.InputError("scheme", f'{problem}: name advantages too, as in "group_norm+{self.scheme}"')
            if e.name == "actfocus":
                continue
            wanted = reads(e, self.signal, self.entropy == "exact")
            if "entropy" in wanted and "entropy" not in keeps:
                problem = f'is "exact", but {trainer} keeps no entropy of the old policy, and {e.name} reads it: use'
                instead = " another scheme" if e.single_entropies else ' Credit(entropy="surprisal")'
                raise reweight.InputError("entropy", problem + instead)
            for need in sorted(wanted.difference(_KEPT, keeps)):
                problem = f"has {e.name}, which reads {need}"
                if e.name in own or need in own:
                    problem += f": {trainer} does this by {own.get(e.name) or own[need]}"
                elif need == "logprobs":
                    problem += ", the policy's after each update: a credit is made before the first"
                else:
                    problem += f", which {trainer} does not keep"
                raise reweight.InputError("scheme", problem)
        if self.show_every and find() is None:
            problem = f"is {self.show_every}, for which the program {PROGRAM} must be installed: install the wheel, or"
            problem += " go install github.com/seed621a2839/reweight/cmd/reweight@latest"
            raise reweight.InputError("show_every", problem)
        x = np.full((2, 2), -1, np.float32)
        one = reweight.Batch(np.ones((2, 2), np.uint8), old_logprobs=x, ref_logprobs=x, ref_energy=x, ref_entropy=x)
        one.advantages, one.token_rewards, one.entropy = x, x, -x
        one.group_ids, one.rewards = np.zeros(2, np.int32), np.arange(2, dtype=np.float32)
        one.span_ids = np.repeat(np.arange(2, dtype=np.int32), 2).reshape(2, 2)
        try:
            step.credit(one)
        except reweight.InputError as error:
            raise error if error.argument != "names" else reweight.InputError("scheme", error.problem) from None

    def __post_init__(self) -> None:
        entries = self.step().entries
        if self.entropy not in ("exact", "surprisal"):
            raise reweight.InputError("entropy", f'is "{self.entropy}", want one of [exact surprisal]')
        name = next((e.name for e in entries if e.single_entropies), None)
        if self.entropy == "surprisal" and name:
            problem = f'is "surprisal", which stands for the mean entropy of a response, but {name} reads that of single tokens'
            raise reweight.InputError("entropy", problem)
        if self.not_finite not in ("ignore", "error"):
            raise reweight.InputError("not_finite", f'is "{self.not_finite}", want one of [ignore error]')
        if self.tags is not None and not _are_tags(self.tags):
            want = "want what opens and what closes an action: two strings or two sequences of token ids"
            raise reweight.InputError("tags", f"is {self.tags!r}, {want}")
        if self.tokenizer is not None and not hasattr(self.tokenizer, "decode"):
            raise reweight.InputError("tokenizer", f"is {self.tokenizer!r}, want an object that decodes token ids")
        if not isinstance(self.show_every, int) or self.show_every < 0:
            problem = f"is {self.show_every!r}, want a number of batches, or 0 for no pages"
            raise reweight.InputError("show_every", problem)


def _are_tags(tags: Any) -> bool:
    """Returns whether it is two strings, or two sequences of integers, and none of them is empty."""
    if not isinstance(tags, (list, tuple)) or len(tags) != 2:
        return False
    if any(isinstance(tag, str) for tag in tags):
        return all(isinstance(tag, str) and tag for tag in tags)
    return all(np.ndim(tag) == 1 and len(tag) and np.asarray(tag).dtype.kind in "iu" for tag in tags)


def token_advantages(
    advantages: Any,
    mask: Any,
    *,
    sampled: Any = None,
    credit: Credit = Credit(),
    aggregation: str = "token_mean",
    token_ids: Any = None,
    tokenizer: Any = None,
    rewards: Any = None,
    group_ids: Any = None,
    seq_offsets: Any = None,
    prompt_ids: Any = None,
    gather: Optional[Gather] = None,
    log: Optional[Dict[str, float]] = None,
    **arrays: Any,
) -> Any:
    """Returns the advantages m A that the trainer is to take: float32, in the layout of mask and on its device, 0 where
    the mask is 0.

    advantages: the trainer's, of the layout of mask. Advantages that the scheme makes take their place, and
        they may be None then.
    mask: not 0 at the tokens of the loss. One of
        [B, T], padded, a trajectory per row;
        a sequence of B arrays [T_b], a trajectory each;
        a nested tensor of PyTorch with the layout torch.jagged, a trajectory per row;
        [T], packed, with seq_offsets [B+1], where each trajectory begins, and T.
    sampled: not 0 at the tokens that the policy sampled, which mask is a part of if tokens were
        rejected afterwards; None: those of mask. A response is a run of sampled tokens within
        a trajectory, and tags are looked for in it. Rejected tokens have no part in sums and means.
    credit: what is computed.
    aggregation: how the trainer makes one number of its tokens' losses, as above.
    token_ids: of the layout of mask, aligned with it; for actions, unless tags is None.
    tokenizer: used for tags that are strings, if credit has none.
    rewards: [B], of the outcomes; for schemes that make advantages. Without token_rewards it is also
        the reward of the last token of each trajectory. NaN is that of a trajectory that nobody scored:
        what is computed from rewards is 0 there, and elsewhere as if it were not in the batch. Where it
        leaves another one alone in its group, that one is not compared with itself: it gets 0 too.
    group_ids: [B], trajectories sampled from one prompt share a group. Integers or strings.
    prompt_ids: the tokens before those of mask, B sequences; for the pages of credit.show_every alone.
    gather: for trainers whose processes hold a part of the batch each. Called once with a
        dict; returns the dicts of all processes, and which of them is this one's. Sums,
        means and groups are then those of all.
    log: gets the scalars that describe what the credit does to this batch, of all processes:
        credit/advantage                  mean |A| of the response tokens, if the scheme makes A
        credit/actions                    action tokens
        credit/no_action                  share of trajectories with a response that have none
        credit/action_share               share of the response tokens that are actions
        credit/action_weight              their share of sum |w f|
        credit/effective_tokens           (sum w)^2 / sum w^2
        credit/surprisal_action, credit/surprisal_reasoning
                                          mean -old_logprobs of them, nats, if given
        credit/aem_min, credit/aem_max, credit/aem_std
                                          of AEM's factors, one of each response
        credit/aem_guarded                share of the scopes with two spans or more that AEM's
                                          guard leaves alone
        credit/not_finite                 tokens of which a value that is read is not finite
        credit/unscored                   trajectories whose reward is NaN, if the scheme reads rewards
    arrays: what the scheme reads of each token, of the layout of mask, by its name in reweight.Batch:
        old_logprobs, entropy (unless credit.entropy is "surprisal"), ref_logprobs, token_rewards and others.

    Warns if ActFocus finds no action, because the tags may be others than the policy's.
    Raises InputError, a ValueError, naming the argument, if one is missing or has another shape than
    mask, and, with credit.not_finite "error", if a value that is read is not finite.
    """
    if aggregation not in AGGREGATIONS:
        raise reweight.InputError("aggregation", f'is "{aggregation}", want one of [{" ".join(AGGREGATIONS)}]')
    layout, wanted = _Layout(mask, seq_offsets), credit.reads
    kept = layout.pack("mask", mask) != 0
    response = kept if sampled is None else layout.pack("sampled", sampled) != 0
    if sampled is not None and (kept & ~response).any():
        raise reweight.InputError("sampled", "is 0 at a token of mask, want all tokens of the loss among the sampled")
    rows: Dict[str, Any] = {"lengths": layout.lengths, "kept": kept}
    if advantages is not None and ("advantages" in wanted or not credit.makes_advantages):
        arrays["advantages"] = advantages
    for name, x in arrays.items():
        if name not in _PER_TOKEN:
            raise TypeError(f"token_advantages got an unexpected keyword argument '{name}'")
        if x is not None:
            rows[name] = layout.pack(name, x).astype(np.float32, copy=False)
    if "actfocus" not in (e.name for e in credit.step().entries):
        rows["role"] = response.view(np.uint8)
    elif credit.tags is None:
        rows["role"] = np.where(response, np.uint8(reweight.ACTION), np.uint8(reweight.MASKED))
    elif token_ids is None:
        raise reweight.InputError("token_ids", "is None, want the ids in which the tags of actions are found")
    else:
        ids = layout.pack("token_ids", token_ids).astype(np.int64, copy=False)
        rows["role"] = _roles(response, ids, layout.offsets, credit.tags, credit.tokenizer or tokenizer)
    for name, x in (("group_ids", group_ids), ("rewards", rewards)):
        if x is not None:
            if len(x) != len(layout.lengths):
                raise reweight.InputError(name, f"has {len(x)} elements, want {len(layout.lengths)}, one per trajectory")
            rows[name] = _numpy(x) if name == "group_ids" else _numpy(x).astype(np.float32)
    rank, first, joined = 0, 0, rows
    if gather is not None:
        parts, rank = gather(rows)
        filled = [part for part in parts if len(part["lengths"])] or parts  # an empty one has no type of its group_ids
        joined = {name: np.concatenate([part[name] for part in filled]) for name in rows}
        first = sum(len(part["role"]) for part in parts[:rank])
    if len(joined["lengths"]) == 0:  # a batch of the library has a trajectory: here two, without a token
        two = {"lengths": np.zeros(2, np.int64), "group_ids": np.zeros(2, np.int64), "rewards": np.zeros(2, np.float32)}
        joined = {**joined, **{name: x for name, x in two.items() if name in joined}}
    made, step = _computed(joined, credit, aggregation, log)
    if credit._pages.due(credit.show_every) and rank == 0:  # whose tokens come first
        page = functools.partial(_page, layout, rows, step, token_ids, prompt_ids, advantages)
        credit._pages.write(credit.dir, credit.tokenizer or tokenizer, page)
    return layout.unpack(made[first : first + len(kept)])


_PER_TOKEN = (
    "advantages", "old_logprobs", "logprobs", "ref_logprobs", "ref_energy", "ref_entropy", "entropy", "values",
    "rollout_logprobs", "teacher_logprobs", "token_rewards", "sum_sq_probs",
)  # fmt: skip


def _page(
    layout: _Layout, rows: Dict[str, Any], step: TrainerStep, token_ids: Any, prompt_ids: Any, advantages: Any
) -> reweight.Batch:
    """Returns the trajectories of this process that a page shows."""
    per_token: Dict[str, Any] = {name: rows[name] for name in ("old_logprobs", "entropy") if name in rows}
    per_token.update(role=rows["role"] * rows["kept"], sampled=rows["role"])
    for field_, name in (("actfocus_weights", "actfocus"), ("aem_factors", "aem")):
        if name in step.made:
            per_token[field_] = step.made[name]
    maker = step._maker()
    if token_ids is not None:
        per_token["token_ids"] = layout.pack("token_ids", token_ids).astype(np.int64)
    if maker is not None:
        per_token["advantages"] = step.made[maker.name]
    elif advantages is not None:
        per_token["advantages"] = rows["advantages"]
    per_trajectory = {}
    if "group_ids" in rows:
        per_trajectory["group_ids"] = np.unique(rows["group_ids"], return_inverse=True)[1].astype(np.int32)
    if "rewards" in rows:
        per_trajectory["rewards"] = rows["rewards"]
    prompts = None if prompt_ids is None else [_numpy(row) for row in prompt_ids]
    return first_answered(per_token, per_trajectory, layout.offsets, prompts)


def _computed(
    rows: Dict[str, npt.NDArray[Any]], credit: Credit, aggregation: str, log: Optional[Dict[str, float]]
) -> Tuple[npt.NDArray[np.float32], TrainerStep]:
    """Returns m A of the tokens of all processes, and the step that has made it."""
    kept, wanted = rows["kept"], credit.reads
    offsets, sampled = np.append(0, np.cumsum(rows["lengths"])), rows["role"] != reweight.MASKED
    scored, rewards = np.ones(len(rows["lengths"]), bool), rows.get("rewards")
    if rewards is not None:
        scored = ~np.isnan(rewards)
        rewards = np.where(scored, rewards, np.float32(0))
    batch = reweight.Batch(rows["role"] * kept, seq_offsets=offsets, rewards=rewards)
    for name in _PER_TOKEN:
        setattr(batch, name, rows.get(name))
    if credit.entropy == "surprisal" and "old_logprobs" in rows:
        batch.entropy = -rows["old_logprobs"]
    if "group_ids" in rows:
        batch.group_ids = np.unique(rows["group_ids"], return_inverse=True)[1].astype(np.int32)
    if "span_ids" in wanted:
        batch.span_ids = reweight.spans_from_mask(sampled, offsets)
    if "token_rewards" in wanted and batch.token_rewards is None and rewards is not None:
        batch.token_rewards = outcomes(rewards, kept, offsets)
    step = TrainerStep(credit.step(), kept, sampled, scored, credit.signal, credit.not_finite == "ignore")
    made, weights = step.credit(batch)
    if "actfocus" in step.made and kept.any() and not (np.asarray(batch.role) == reweight.ACTION).any():
        warnings.warn(f"no token of the batch is between the tags {credit.tags}: ActFocus weights all of them alike")
    if weights is None:
        weights = kept.astype(np.float32)
    if log is not None:
        log.update(scalars(step, batch, weights))
    made *= weights
    if aggregation == "token_mean":
        made *= np.float32(kept.sum() / (weights.sum(dtype=np.float64) or np.inf))  # 0 where all weights are
    elif aggregation == "seq_mean_token_mean":
        total = per_trajectory(weights, offsets, np.float64)
        scale = per_trajectory(kept, offsets, np.float64) / np.where(total == 0, np.inf, total)
        made *= np.repeat(scale.astype(np.float32), rows["lengths"])
    return made, step


def _roles(
    response: npt.NDArray[np.bool_],
    ids: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    tags: Tuple[Tag, Tag],
    tokenizer: Any,
) -> npt.NDArray[np.uint8]:
    """Returns the role of each token: an action strictly between two tags of one response."""
    opening, closing = tags
    if not isinstance(opening, str) or not isinstance(closing, str):
        roles: npt.NDArray[np.uint8] = reweight.roles_from_mask(
            response, ids, open_tag=[int(i) for i in opening], close_tag=[int(i) for i in closing], seq_offsets=offsets
        )
        return roles
    if tokenizer is None:
        raise reweight.InputError("tokenizer", "is None, want one for tags that are strings (or tags that are token ids)")
    return _tags.roles(response, ids, offsets, (opening, closing), tokenizer)


class _Layout:
    """Where the tokens of each trajectory lie in an array that is made like the mask."""

    def __init__(self, mask: Any, seq_offsets: Any) -> None:
        self.mask = mask
        if isinstance(mask, (list, tuple)):
            lengths = [len(row) for row in mask]
        elif getattr(mask, "is_nested", False):
            lengths = np.diff(_numpy(mask.offsets())).tolist()
        elif len(mask.shape) == 2:
            lengths = [mask.shape[1]] * mask.shape[0]
        elif seq_offsets is None:
            problem = f"is None, want where each trajectory begins: mask has the shape {list(mask.shape)}"
            raise reweight.InputError("seq_offsets", problem)
        else:
            offsets = _numpy(seq_offsets)
            lengths = np.diff(offsets).tolist()
            if len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(mask) or min(lengths, default=0) < 0:
                raise reweight.InputError("seq_offsets", f"is {offsets.tolist()}, want 0 to {len(mask)} in ascending order")
        self.lengths = np.asarray(lengths, np.int64)
        self.offsets = np.append(0, np.cumsum(self.lengths))

    def pack(self, name: str, x: Any) -> npt.NDArray[Any]:
        """Returns x, which has the layout of mask, as one array [tokens]."""
        if isinstance(self.mask, (list, tuple)):
            shapes, want = [list(row.shape) for row in x], [[n] for n in self.lengths.tolist()]
            if shapes != want:
                raise reweight.InputError(name, f"has rows of the shapes {shapes}, want {want} like mask")
            return np.concatenate([np.zeros(0, np.uint8), *(_numpy(row) for row in x)])
        if getattr(self.mask, "is_nested", False):
            if not getattr(x, "is_nested", False) or np.diff(_numpy(x.offsets())).tolist() != self.lengths.tolist():
                raise reweight.InputError(name, "is not a nested tensor whose rows are as long as those of mask")
            return _numpy(x.values())
        if tuple(x.shape) != tuple(self.mask.shape):
            raise reweight.InputError(name, f"has the shape {list(x.shape)}, want {list(self.mask.shape)} like mask")
        return _numpy(x).reshape(-1)

    def unpack(self, m: npt.NDArray[np.float32]) -> Any:
        """Returns m, [tokens], in the layout of mask and on its device."""
        if isinstance(self.mask, (list, tuple)):
            return [_like(row, part) for row, part in zip(self.mask, np.split(m, np.cumsum(self.lengths)[:-1]))]
        if getattr(self.mask, "is_nested", False):
            nested = sys.modules["torch"].nested.nested_tensor_from_jagged
            return nested(_like(self.mask.values(), m), self.mask.offsets())
        return _like(self.mask, m.reshape(tuple(self.mask.shape)))


def _numpy(x: Any) -> npt.NDArray[Any]:
    """Returns a tensor, which may be on a GPU or have a type that NumPy lacks, a list or an
    array as an array."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        x = (x.float() if x.is_floating_point() else x).numpy()
    return np.asarray(x)


def _like(x: Any, values: npt.NDArray[np.float32]) -> Any:
    """Returns the values as an array of the kind of x."""
    return sys.modules["torch"].from_numpy(values).to(x.device) if hasattr(x, "detach") else values


class Report:
    """What an adapter says on the standard error of the trainer's process: that it works, at the first batch, or when the
    process ends that there was none.

    trainer: its name and version.
    """

    def __init__(self, credit: Credit, trainer: str) -> None:
        self.credit, self.trainer, self.batches, self.ignored = credit, trainer, 0, False
        atexit.register(self.end)

    def batch(self, aggregation: str, log: Dict[str, float], first_process: bool = True) -> None:
        """Takes the scalars of a batch. Of several processes the first one speaks."""
        credit, schemes = self.credit, []
        self.batches += 1
        if not first_process:
            return
        if log["credit/not_finite"] and not self.ignored:
            self.ignored = True
            self._say(f"{log['credit/not_finite']:.0f} tokens of a batch have no finite log-probability or entropy, and no part "
                      "in the statistics; credit/not_finite counts them")  # fmt: skip
        if self.batches > 1:
            return
        step = credit.step()
        for e in sorted(step.entries, key=lambda e: (e is not step._maker(), ENTRIES.index(e))):
            if e.name == "actfocus":
                actions = f"{log['credit/actions']:.0f} action tokens, {log['credit/action_share']:.1%} of the responses"
                schemes.append(f"ActFocus by {credit.signal} ({actions}, {log['credit/action_weight']:.1%} of the weight)")
            elif e.name == "aem":
                factors = f"factors {log.get('credit/aem_min', 1):.2f} to {log.get('credit/aem_max', 1):.2f}"
                by = "entropy" if credit.entropy == "exact" else "surprisal"
                schemes.append(f"AEM by {by} per {credit.scope} ({factors})")
            elif e is step._maker():
                size = f"mean size {log['credit/advantage']:.2g}"
                schemes.append(f"the advantages of {e.title} in the place of the trainer's ({size})")
            else:
                schemes.append(e.title)
        self._say(f"{aggregation}: {' and '.join(schemes)}")

    def end(self) -> None:
        """Says that there was no batch, if so. The end of the process calls it, and a trainer that ends another way."""
        atexit.unregister(self.end)
        if self.batches == 0:
            self._say("the credit was never called: no batch of this process has it")

    def _say(self, what: str) -> None:
        print(f"reweight: in {self.trainer}, {what}", file=sys.stderr, flush=True)


class HookError(RuntimeError):
    """The trainer is not there, or has changed where the adapter takes hold of it."""


def find_hook(trainer: str, path: str, parameters: Sequence[str], written_for: str) -> Tuple[Any, str]:
    """Returns the object that holds a hook, and the hook's name, for the path
    "module:function" or "module:Class.method".

    Raises HookError if the hook is gone or lacks one of the parameters, and warns if another version than that of
    written_for is installed.
    """
    module, _, names = path.partition(":")
    package = module.partition(".")[0]
    error = f"reweight.adapters.{package} was written for {written_for} and its {names}({', '.join(parameters)})"
    owner: Any = None
    try:
        target: Any = importlib.import_module(module)
    except ModuleNotFoundError as e:
        if e.name == package:
            raise HookError(f"{error}, but {trainer} is not installed") from e
        if e.name is None or not (module + ".").startswith(e.name + "."):
            raise  # something else that the trainer needs
        raise HookError(f"{error}, but in {trainer} {version_of(package)} there is no module {e.name}") from e
    for name in names.split("."):
        owner, target = target, getattr(target, name, None)
        if target is None:
            raise HookError(f"{error}, but in {trainer} {version_of(package)} there is no {name} in {owner.__name__}")
    found = inspect.signature(target)
    missing = [p for p in parameters if p not in found.parameters]
    if missing:
        raise HookError(f"{error}, but in {trainer} {version_of(package)} it is {name}{found}: no {', '.join(missing)}")
    version = version_of(package)
    if version not in (written_for.split()[-1], _UNKNOWN):
        warnings.warn(f"reweight.adapters.{package} was tested with {written_for}, not with {trainer} {version}")
    return owner, name


def when_imported(module: str, act: Callable[[], None]) -> None:
    """Calls act once the module has been imported, which may be now. Where a trainer starts
    processes of its own, an adapter is installed in each of them, also in those that must
    not import the trainer's driver, or not before they have been given a GPU."""
    package, _, rest = module.partition(".")
    if package in sys.modules:
        roots = list(getattr(sys.modules[package], "__path__", []))
    else:
        spec = importlib.util.find_spec(package)
        roots = list(spec.submodule_search_locations or []) if spec else []
    later = any(Path(root, *rest.split(".")).with_suffix(".py").is_file() for root in roots)
    if module not in sys.modules and later:
        sys.meta_path.insert(0, _WhenImported(module, act))
    else:
        act()  # which imports the module, or says that it is gone


class _WhenImported(importlib.abc.MetaPathFinder):
    """Finds one module once, as others find it, and acts after it has been executed."""

    def __init__(self, module: str, act: Callable[[], None]) -> None:
        self.module, self.act = module, act

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                self.act()

            setattr(spec.loader, "exec_module", exec_module)
        return spec


_UNKNOWN = "of unknown version"


def version_of(package: str) -> str:
    """Returns the version of an installed package, or "of unknown version"."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(sys.modules.get(package), "__version__", _UNKNOWN))


def replace(
    owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]], report: Optional[Report] = None
) -> None:
    """Sets owner.name to make(original), which reports to report. If an earlier call did, that is undone first, and its
    report says nothing when the process ends."""
    earlier = getattr(owner, name)
    original = getattr(earlier, "_reweight_original", earlier)
    if getattr(earlier, "_reweight_report", None) is not None:
        atexit.unregister(earlier._reweight_report.end)
    wrapper = functools.wraps(original)(make(original))
    setattr(wrapper, "_reweight_original", original)
    setattr(wrapper, "_reweight_report", report)
    setattr(owner, name, wrapper)
