"""token_advantages: a trainer's arrays, the step of the scheme on them, and m A."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

import reweight

from .._errors import described
from . import _tags
from ._credit import Credit
from ._layout import Layout, to_numpy
from ._pages import first_answered
from ._step import TrainerStep, finite, mixed, multipliers, of_turns, outcomes, per_trajectory, product, scalars, states

AGGREGATIONS = ("token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm", "token_sum")

Gather = Callable[[Dict[str, Any]], Tuple[List[Dict[str, Any]], int]]


def token_advantages(
    advantages: Any,
    mask: Any,
    *,
    sampled: Any = None,
    credit: Credit = Credit(),
    aggregation: str = "token_mean",
    token_ids: Any = None,
    tokenizer: Any = None,
    actions: Any = None,
    rewards: Any = None,
    span_rewards: Any = None,
    anchors: Any = None,
    group_ids: Any = None,
    rollout_ids: Any = None,
    seq_offsets: Any = None,
    prompt_ids: Any = None,
    weights: Any = None,
    gather: Optional[Gather] = None,
    log: Optional[Dict[str, float]] = None,
    batch_name: Optional[str] = None,
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
    sampled: not 0 at the tokens that the policy sampled. Give it if tokens were rejected afterwards, so
        that mask lacks them. None: the tokens of mask. A response is a run of sampled tokens within a
        trajectory, and tags are looked for in it. Rejected tokens do not count in sums and means.
    credit: what is computed.
    aggregation: how the trainer makes one number of its tokens' losses, as above.
    token_ids: of the layout of mask, aligned with it; for actions, unless tags is None.
    tokenizer: used for tags that are strings, if credit has none.
    actions: in the place of credit's tags and action, of the layout of mask: bools that are true at actions, or labels,
        1 for reasoning and 2 for an action.
    rewards: [B], one per trajectory, for schemes that make advantages. Without token_rewards it is also
        the reward of the last token of each trajectory. NaN marks a trajectory that nobody scored: what is
        computed from rewards is 0 for it, and for the others as if it were not in the batch. A trajectory
        that is then alone in its group gets 0 too.
    span_rewards: the rewards of turns, for schemes that read them: B sequences of numbers, one per trajectory, each with
        one number for each turn. A turn is a response. rewards must not have them in it again. The reward of a turn
        whose tokens mask lacks comes with the turn before it, and where a trajectory has no token in mask, the
        rewards of its turns are added to its reward.
    anchors: for "gigpo", the states before turns: B sequences of integers or strings, one for each turn, equal where states
        are. The reward of an episode is then rewards and span_rewards together, and rewards comes with the last turn.
    group_ids: [B], trajectories sampled from one prompt share a group. Integers or strings.
    rollout_ids: [B], trajectories of one rollout share one, where the trainer's seq_mean_token_mean divides by the tokens of
        whole rollouts; None: each trajectory is a rollout. Integers or strings. Schemes take each trajectory by itself.
    prompt_ids: the tokens before the tokens of mask, B sequences; for pages and files of batches alone.
    weights: of each token, of the layout of mask, at least 0: they are multiplied into those of the scheme. The weights
        of the scheme "measured" come in here.
    gather: for trainers whose processes hold a part of the batch each. Called once with a
        dict; returns the dicts of all processes, and which of them is this one's. Sums,
        means and groups are then taken over all.
    log: gets the scalars that describe what the credit does to this batch, of all processes:
        credit/advantage                  mean |A| of the response tokens, if the scheme makes A
        credit/actions                    action tokens
        credit/ambiguous                  responses with an opening tag that was passed over for another one
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
        credit/mixed_groups               share of the groups of two or more in which rewards differ, if given,
                                          with those of turns if the scheme reads them
        credit/multiplier_action, credit/multiplier_reasoning
                                          mean m of them: what the advantages are multiplied by
        credit/grad_scale                 the norm of the loss's gradient by the log-probabilities at the old policy,
                                          over the norm with the same advantages and m = 1
        credit/warnings                   how many warnings there are of the batch, on the standard error too
    batch_name: what its pages and files are called; without one, batch-000001 and so on.
    arrays: what the scheme reads of each token, of the layout of mask, by its name in reweight.Batch:
        old_logprobs, entropy (unless credit.entropy is "surprisal"), ref_logprobs, token_rewards and others.

    With a log, what is wrong with a batch is said on the standard error of the first process, each kind at
    most every 20 batches: actions that get lost, no group with different rewards, advantages that are all 0,
    weights on few tokens, and values that are not finite.
    Raises InputError, a ValueError, naming the argument, if one is missing or has another shape than
    mask, and, with credit.not_finite "error", if a value that is read is not finite.
    """
    if not isinstance(credit, Credit):
        raise TypeError(f"credit is {described(credit)}, want a Credit")
    if aggregation not in AGGREGATIONS:
        raise reweight.InputError("aggregation", f'is "{aggregation}", want one of [{" ".join(AGGREGATIONS)}]')
    layout, wanted = Layout(mask, seq_offsets), credit.reads
    kept = layout.pack("mask", mask) != 0
    response = kept if sampled is None else layout.pack("sampled", sampled) != 0
    if sampled is not None and (kept & ~response).any():
        raise reweight.InputError("sampled", "is 0 at a token of mask, want all tokens of the loss among the sampled")
    rows: Dict[str, Any] = {"lengths": layout.lengths, "kept": kept}
    if credit.audited and weights is None:
        argument = "scheme" if credit.measured else "audit_every"
        raise reweight.InputError(argument, f"is {getattr(credit, argument)}, which needs a trainer whose adapter audits runs")
    if weights is not None:
        rows["weights"] = layout.pack("weights", weights).astype(np.float32, copy=False)
        wrong = kept & ~(finite(rows["weights"]) & (rows["weights"] >= 0))
        if wrong.any():
            at = int(wrong.argmax())
            raise reweight.InputError("weights", f"is {rows['weights'][at]}, want finite numbers of at least 0", at)
    if advantages is not None and ("advantages" in wanted or not credit.makes_advantages):
        arrays["advantages"] = advantages
    for name, x in arrays.items():
        if name not in _PER_TOKEN:
            raise TypeError(f"token_advantages got an unexpected keyword argument '{name}'")
        if x is not None:
            rows[name] = layout.pack(name, x).astype(np.float32, copy=False)
    if not credit.counts_actions or credit.uniform and log is None:
        rows["role"] = response.view(np.uint8)
    elif actions is not None:
        rows["role"] = _given(response, layout.pack("actions", actions))
    elif not credit.wants_actions:
        rows["role"] = np.where(response, np.uint8(reweight.ACTION), np.uint8(reweight.MASKED))
    elif token_ids is None:
        raise reweight.InputError("token_ids", "is None, want the ids in which the tags of actions are found")
    else:
        ids = _ids(layout, token_ids)
        rows["role"], ambiguous = _roles(response, ids, layout.offsets, credit, credit.tokenizer or tokenizer)
        rows["ambiguous"] = np.array([ambiguous])
    for name, x in (("group_ids", group_ids), ("rollout_ids", rollout_ids), ("rewards", rewards)):
        if x is not None:
            rows[name] = _of_trajectories(name, x, len(layout.lengths))
    if "span_rewards" in wanted:
        rows["span_rewards"], sums = of_turns(span_rewards, response, kept, layout.offsets)
        if rewards is not None:  # else the scheme says so
            rows["returns"] = rows["rewards"] + sums
            rows["rewards"] = np.where(per_trajectory(kept, layout.offsets, np.int64) > 0, rows["rewards"], rows["returns"])
    if "anchors" in wanted:
        rows["anchors"] = states(anchors, response, kept, layout.offsets)
        if rewards is not None and len(layout.lengths):
            spans = reweight.spans_from_mask(response, layout.offsets)
            ends = np.array([np.max(spans[a:b][kept[a:b]], initial=-1) for a, b in zip(layout.offsets, layout.offsets[1:])], np.int64)
            last = np.searchsorted(np.unique(spans[kept]), ends[ends >= 0])
            rows["span_rewards"][last] += np.nan_to_num(rows["rewards"][ends >= 0])
            rows["rewards"] = rows["returns"]
    rank, first, joined, parts = 0, 0, rows, [rows]
    if gather is not None:
        parts, rank = gather(rows)
        filled = [part for part in parts if len(part["lengths"])] or parts  # an empty one has no type of its group_ids
        joined = {name: np.concatenate([part[name] for part in filled]) for name in rows}
        first = sum(len(part["role"]) for part in parts[:rank])
    if len(joined["lengths"]) == 0:  # a batch of the library has a trajectory: here two, without a token
        two: Dict[str, Any] = {name: np.zeros(2, np.int64) for name in ("lengths", "group_ids", "rollout_ids")}
        two.update(rewards=np.zeros(2, np.float32), returns=np.zeros(2, np.float32))
        joined = {**joined, **{name: x for name, x in two.items() if name in joined}}
    made, step = _computed(joined, credit, aggregation, log)
    notes: List[str] = []
    if log is not None:
        tags = f"tags={credit.tags!r}" if credit.action is None and actions is None else "action="
        notes = credit._watch.look(log, int(np.count_nonzero(joined["kept"])), bool(step.plain.any()), tags, rank == 0)
        log["credit/warnings"] = float(len(notes))
    pages, vocab = credit._pages, credit.tokenizer or tokenizer
    pages.count(batch_name)
    of = layout, rows, step, slice(first, first + len(kept)), token_ids, actions, prompt_ids, advantages, credit, vocab
    look = functools.partial(_looked_at, *of)
    if pages.due(credit.show_every) and rank == 0:
        pages.write(credit.dir, vocab, look, [*notes, *_multiplied(log)])
    if pages.due(credit.save_every):
        process = f"-process-{rank}" if len(parts) > 1 else ""
        pages.save(credit.dir, vocab, functools.partial(look, made), process, len(layout.lengths))
    return layout.unpack(made[first : first + len(kept)])


def _ids(layout: Layout, token_ids: Any) -> npt.NDArray[np.int64]:
    given = layout.pack("token_ids", token_ids)
    with np.errstate(invalid="ignore"):
        ids = given.astype(np.int64, copy=False)
    if ids is not given and (ids != given).any():
        at = int((ids != given).argmax())
        raise reweight.InputError("token_ids", f"is {given[at]}, want an integer", at)
    return ids


def _of_trajectories(name: str, x: Any, count: int) -> npt.NDArray[Any]:
    """Returns rewards, which are None or NaN where there are none, or the ids of groups or rollouts."""
    found = f"has {len(x)} elements" if hasattr(x, "__len__") else f"is {described(x)}"
    if not hasattr(x, "__len__") or len(x) != count:
        raise reweight.InputError(name, f"{found}, want {count}, one per trajectory")
    if isinstance(x, (list, tuple)):
        x = [v.item() if hasattr(v, "item") and np.ndim(v) == 0 else v for v in x]
    want = "numbers" if name == "rewards" else "integers or strings"
    try:
        made: npt.NDArray[Any] = to_numpy(x)
        if name == "rewards":
            with np.errstate(over="ignore"):
                made = made.astype(np.float32)
        elif made.dtype.kind == "f" and np.isnan(made).any():  # which would be one group
            raise ValueError
        else:
            np.unique(made)
    except (TypeError, ValueError):  # lists of different lengths, or None beside others, which have no order
        raise reweight.InputError(name, f"has other elements than {want}, want one per trajectory") from None
    if made.shape != (count,):
        raise reweight.InputError(name, f"has the shape {list(made.shape)}, want [{count}], one element per trajectory")
    return made


# What a file of a batch has besides, where it is known.
_SAVED = ("ref_logprobs", "ref_energy", "ref_entropy", "rollout_logprobs", "token_rewards")
_PER_TOKEN = (
    "advantages", "old_logprobs", "logprobs", "ref_logprobs", "ref_energy", "ref_entropy", "entropy", "values",
    "rollout_logprobs", "teacher_logprobs", "token_rewards", "sum_sq_probs", "entropy_drop",
)  # fmt: skip


def _looked_at(
    layout: Layout, rows: Dict[str, Any], step: TrainerStep, own: slice, token_ids: Any, actions: Any, prompt_ids: Any,
    advantages: Any, credit: Credit, vocab: Any, made: Any = None,
) -> Dict[str, Any]:  # fmt: skip
    """Returns arrays of trajectories of this process, whose tokens are own of all: those that a page shows, or with made,
    the advantages of all processes, all for a file."""
    per_token: Dict[str, Any] = {name: rows[name] for name in ("old_logprobs", "entropy") if name in rows}
    role, maker = rows["role"], step._maker()
    if token_ids is not None:
        per_token["token_ids"] = _ids(layout, token_ids)
    weights = [step.made[e.name][own] for e in step.entries if e.kind == "weight"] + [rows[n] for n in ("weights",) if n in rows]
    factors = [step.made[e.name][own] for e in step.entries if e.kind == "factor"]
    if weights or not factors:
        per_token["actfocus_weights"] = product(np.ones(len(role), np.float32), weights)
    if factors:
        per_token["aem_factors"] = product(factors[0], factors[1:])
    if maker is not None:
        per_token["advantages"] = step.made[maker.name][own]
    elif advantages is not None:
        per_token["advantages"] = rows["advantages"]
    if made is not None:
        per_token.update({name: rows[name] for name in _SAVED if name in rows})
        per_token["credited_advantages"] = made[own]
        if "span_rewards" in rows:
            spans = reweight.spans_from_mask(role != reweight.MASKED, layout.offsets)
            of_spans = {"span_rewards": rows["span_rewards"]}
            if "anchors" in rows:
                of_spans["anchors"] = np.unique(rows["anchors"], return_inverse=True)[1]
            for name, x in of_spans.items():
                of_span = np.zeros(spans.max(initial=-1) + 2, x.dtype)  # the last of which is that of -1
                of_span[np.unique(spans[rows["kept"]])] = x
                per_token[name] = of_span[spans]
    if not credit.counts_actions and actions is not None:
        role = _given(role != reweight.MASKED, layout.pack("actions", actions))
    elif not credit.counts_actions and credit.tags is not None and token_ids is not None and vocab is not None:
        role = _roles(role != reweight.MASKED, per_token["token_ids"], layout.offsets, credit, vocab)[0]
    per_token.update(role=role * rows["kept"], sampled=rows["role"])
    per_trajectory = {}
    if "group_ids" in rows:
        labels = rows["group_ids"]
        numbers = np.unique(labels, return_inverse=True)[1].astype(np.int32)
        per_trajectory["group_ids"] = numbers if made is None else labels
    if "rewards" in rows:
        per_trajectory["rewards"] = rows["rewards"]
    prompts = None if prompt_ids is None else [to_numpy(row) for row in prompt_ids]
    return first_answered(per_token, per_trajectory, layout.offsets, prompts, made is None)


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
    batch.span_rewards = rows.get("span_rewards")
    if "anchors" in rows:
        batch.anchors = np.unique(rows["anchors"], return_inverse=True)[1].astype(np.int32)
    if "span_ids" in wanted:
        batch.span_ids = reweight.spans_from_mask(sampled, offsets)
    if "token_rewards" in wanted and batch.token_rewards is None and rewards is not None:
        batch.token_rewards = outcomes(rewards, kept, offsets)
    step = TrainerStep(credit.step(), kept, sampled, scored, credit.signal, credit.not_finite == "ignore")
    made, weights = step.credit(batch)
    if weights is None:
        weights = kept.astype(np.float32)
    if "weights" in rows:
        weights = np.where(kept, weights * rows["weights"], np.float32(0))
    if log is not None:
        credited = product(weights, [step.made[e.name] for e in step.entries if e.kind == "factor"])
        log.update(scalars(step, batch, weights, credited, credit.counts_actions))
        if "ambiguous" in rows:
            log["credit/ambiguous"] = float(rows["ambiguous"].sum())
        if rewards is not None and "group_ids" in rows:
            log["credit/mixed_groups"] = mixed(rows.get("returns", rewards)[scored], np.asarray(batch.group_ids)[scored])
    made *= weights
    # By whole batch or by trajectory: what the sum of the losses is to be multiplied by, and what the trainer divides it by.
    scale, divisor = np.ones(1, np.float32), np.ones(1, np.float32)
    if aggregation == "token_mean":
        scale[:] = np.count_nonzero(kept) / (weights.sum(dtype=np.float64) or np.inf)  # 0 where all weights are
    elif aggregation == "seq_mean_token_mean":
        total, count = per_trajectory(weights, offsets, np.float64), per_trajectory(kept, offsets, np.float64)
        if "rollout_ids" in rows:
            rollout = np.unique(rows["rollout_ids"], return_inverse=True)[1]
            total, count = np.bincount(rollout, total)[rollout], np.bincount(rollout, count)[rollout]
        scale = np.repeat((count / np.where(total == 0, np.inf, total)).astype(np.float32), rows["lengths"])
        divisor = np.repeat(np.maximum(count, 1).astype(np.float32), rows["lengths"])
    if aggregation in ("token_mean", "seq_mean_token_mean"):
        made *= scale
    if credit.keep == "norm":
        kept_norm = np.abs(step.plain / divisor).sum(dtype=np.float64) / (np.abs(made / divisor).sum(dtype=np.float64) or np.inf)
        made *= np.float32(kept_norm)
        scale = scale * np.float32(kept_norm)
    if log is not None:
        log.update(multipliers(step, made, credited, scale, divisor, batch, credit.counts_actions))
    return made, step


def _multiplied(log: Optional[Dict[str, float]]) -> List[str]:
    """Says on a page what the advantages of the whole batch are multiplied by."""
    if log is None or "credit/multiplier_reasoning" not in log:
        return []
    of_actions = f", those of actions by {log['credit/multiplier_action']:.3g}" if "credit/multiplier_action" in log else ""
    return [
        "The trainer's loss divides by the number of tokens, and not by the sum of the weights: the advantages of reasoning are "
        f"multiplied by {log['credit/multiplier_reasoning']:.3g} on average{of_actions}. The gradient by the log-probabilities is "
        f"{log['credit/grad_scale']:.3g} times as long as with equal weights."
    ]


def _given(response: npt.NDArray[np.bool_], actions: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Returns the role of each token, as labels say that come with the tokens."""
    role = response.astype(np.uint8)
    role[response] = _tags.as_roles("actions", "has", actions[response])
    return role


def _roles(
    response: npt.NDArray[np.bool_], ids: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64], credit: Credit, tokenizer: Any
) -> Tuple[npt.NDArray[np.uint8], int]:
    """Returns the role of each token, and how many responses have an opening tag that was passed over for another one."""
    if isinstance(credit.action, str):
        raise reweight.InputError("action", f'is "{credit.action}", a name for adapters that read columns: give actions, or a function')
    if credit.action is not None:
        return _tags.labelled(response, ids, offsets, credit.action, tokenizer), 0
    pairs = credit.pairs()
    if not isinstance(pairs[0][0], str):
        ids, pairs, tokenizer = _tags.as_characters(ids, pairs)
    if tokenizer is None:
        raise reweight.InputError("tokenizer", "is None, want one for tags that are strings (or tags that are token ids)")
    return _tags.roles(response, ids, offsets, pairs, tokenizer, credit.tags_as)


def of_column(inputs: Sequence[Mapping[str, Any]], credit: Credit, completed: Any, mask: Any, ids: Any, tokenizer: Any) -> npt.NDArray[np.uint8]:
    """Returns the roles of [B, T] by the column of the B inputs that credit.action names: labels of a completion's tokens,
    or tags as Credit takes them. completed is not 0 at all tokens of a completion, mask at the sampled ones; ids are [B, T]."""
    completed, response, ids = to_numpy(completed) != 0, np.asarray(to_numpy(mask) != 0), to_numpy(ids).astype(np.int64)
    roles: npt.NDArray[np.uint8] = response.astype(np.uint8)
    name = str(credit.action)
    with_tags: Dict[str, List[int]] = {}
    for b, row in enumerate(inputs):
        if name not in row:
            raise reweight.InputError("action", f'is "{name}", which is no column of the data set and no output of rollout_func', b)
        value = row[name]
        if value is None or isinstance(value, str) or any(isinstance(x, (str, list, tuple)) for x in value):
            with_tags.setdefault(repr(value), []).append(b)
            continue
        found, n = _tags.as_roles("action", "has", to_numpy(value)), int(completed[b].sum())
        if n == 0:  # a completion that the loss lacks, whose length is gone
            continue
        if len(found) != n:
            raise reweight.InputError("action", f"has {len(found)} labels, want {n}, one for each token of the completion", b)
        roles[b, completed[b]] = found
    for rows in with_tags.values():
        of, (count, width) = response[rows], (len(rows), response.shape[1])
        tags = inputs[rows[0]][name]
        if tags is None:  # all tokens, as in Credit
            roles[rows] = of * np.uint8(reweight.ACTION)
            continue
        own = dataclasses.replace(credit, tags=tags, action=None)
        found, _ = _roles(of.reshape(-1), ids[rows].reshape(-1), np.arange(count + 1) * width, own, credit.tokenizer or tokenizer)
        roles[rows] = found.reshape(count, width)
    return roles
