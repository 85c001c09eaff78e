"""Credit for Tinker, whose users train on a service and make the advantages themselves.

Tested with tinker 0.38.0 and tinker-cookbook 0.6.1, and with tinker 0.25.0 on SkyRL's server. A tinker.Datum has an
advantage for each token. In a loop of one's own, when the datums of a batch are made:

    from reweight.adapters import Credit, tinker
    metrics.update(tinker.credit_datums(datums, groups, rewards, Credit(entropy="surprisal"), tokenizer=tokenizer))

and in a script that runs tinker_cookbook.rl.train, before it does:

    tinker.install(Credit(entropy="surprisal"))

Of a datum, loss_fn_inputs["advantages"] is replaced, and "target_tokens", "logprobs" and "mask" are read, which are 1 at
the sampled tokens; tinker-cookbook's datums have a mask, which it takes out before they are sent. Tinker keeps no entropy
and gives no reference: schemes that read the entropy need Credit(entropy="surprisal"). The penalty of
tinker-cookbook's kl_penalty_coef is added after the credit and is not weighted. In tinker-cookbook the rewards of turns
are those of transitions, and the outcome is the reward of the whole group.

Tinker's losses are sums over tokens: advantages are multiplied by the weights as they are, and no mean is divided by
their sum. With ActFocus the tokens of reasoning count alpha times what they did, and those of actions what they did, so
that the gradient gets shorter, by credit/grad_scale of the log. SkyRL's server divides each datum's sum by its tokens, and
the whole by the datums, neither of which depends on the weights.
"""

from __future__ import annotations

import contextvars
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from .._errors import InputError
from . import Credit, HookError, token_advantages
from ._hooks import find_hook, replace, version_of
from ._report import Report

WRITTEN_FOR = "tinker-cookbook 0.6.1"

# The losses whose formula Tinker documents and in which a token's loss is in proportion to its advantage.
_LOSSES = ("importance_sampling", "ppo", "cispo")
# What Tinker does itself, by its options.
_OWN = {"loss": "loss_fn", "rollout_logprobs": "loss_fn, whose ratio is to the sampler"}
_FIELDS = ("advantages", "mask", "target_tokens", "logprobs")
# The batch that tinker-cookbook is making datums of.
_batch: contextvars.ContextVar[Optional[Dict[str, Any]]] = contextvars.ContextVar("_batch", default=None)


def credit_datums(
    datums: Sequence[Any],
    groups: Sequence[Any],
    rewards: Sequence[float],
    credit: Credit = Credit(entropy="surprisal"),
    *,
    trajectories: Optional[Sequence[Any]] = None,
    span_rewards: Optional[Sequence[Any]] = None,
    tokenizer: Any = None,
) -> Dict[str, float]:
    """Gives the advantages of the datums of a batch to the credit, which replaces them, and returns the scalars for the log.

    groups: of each datum, the prompt from which its trajectory was sampled: integers or strings.
    rewards: of each datum, the reward of its trajectory.
    trajectories: of each datum, its trajectory, in any names, where one has several datums; they are joined in their order.
        None: each datum is a trajectory.
    span_rewards: of each datum, the rewards of the turns of its whole trajectory, a list of numbers, for schemes that read
        them; a turn is a run of sampled tokens. rewards must not have them in it again.
    tokenizer: for tags that are strings, if the credit has none.

    Raises InputError, a ValueError, before anything is changed, for a datum that lacks what is read, and for lists of
    another length.
    """
    _check(credit)
    if len(datums) == 0:
        return {}
    names = range(len(datums)) if trajectories is None else trajectories
    per_datum: List[Tuple[str, Sequence[Any]]] = [("groups", groups), ("rewards", rewards), ("trajectories", names)]
    if span_rewards is not None:
        per_datum.append(("span_rewards", [row.tolist() if hasattr(row, "tolist") else row for row in span_rewards]))
    for argument, of_datums in per_datum:
        if len(of_datums) != len(datums):
            raise InputError(argument, f"has {len(of_datums)} elements, want {len(datums)}, one per datum")
    rows = [_row(at, datum) for at, datum in enumerate(datums)]
    joined: Dict[Any, List[int]] = {}
    for at, name in enumerate(names):
        joined.setdefault(name, []).append(at)
    for of_one in joined.values():
        for argument, of_datums in per_datum:
            for at in of_one:
                first, value = of_datums[of_one[0]], of_datums[at]
                if value != first and not (value != value and first != first):  # NaN is a reward that nobody gave
                    raise InputError(argument, f"is {value!r}, but {first!r} at another datum of its trajectory", at)

    def spread(field: str) -> List[Any]:
        # A masked token follows each datum, so that no response and no tag goes on in the next one.
        end = np.zeros(1, rows[0][field].dtype)
        return [np.concatenate([part for at in of_one for part in (rows[at][field], end)]) for of_one in joined.values()]

    log: Dict[str, float] = {}
    made = token_advantages(
        spread("advantages"),
        spread("mask"),
        credit=credit,
        aggregation="token_sum",
        token_ids=spread("target_tokens") if credit.wants_actions or credit.wants_prompts else None,
        tokenizer=tokenizer,
        old_logprobs=spread("logprobs"),
        rewards=[rewards[of_one[0]] for of_one in joined.values()],
        span_rewards=None if span_rewards is None else [span_rewards[of_one[0]] for of_one in joined.values()],
        group_ids=[groups[of_one[0]] for of_one in joined.values()],
        prompt_ids=[_first(datums[of_one[0]]) for of_one in joined.values()] if credit.wants_prompts else None,
        log=log,
    )
    for of_one, row in zip(joined.values(), made):
        first = 0
        for at in of_one:
            values = datums[at].loss_fn_inputs
            end = first + len(rows[at]["mask"])
            values["advantages"] = type(values["advantages"]).from_numpy(row[first:end].astype(np.float32))
            first = end + 1
    return log


def _check(credit: Credit) -> None:
    Credit.check(credit, "Tinker", _OWN, ("span_rewards",))
    if "ref_logprobs" in credit.reads:
        raise InputError("scheme", 'reads ref_logprobs, which the datums of Tinker do not have; use signal="surprisal" for ActFocus')


def _turns(trajectory: Any) -> Tuple[List[float], float]:
    """Returns the rewards of the turns of tinker-cookbook's trajectory, and what was earned before the first of them. A
    transition without a token of the loss is no turn, and its reward comes with the turn before it."""
    turns, before = [], 0.0
    for transition in trajectory.transitions:
        if transition.ac.tokens and not transition.metrics.get("parse_error_masked"):
            turns.append(transition.reward)
        elif turns:
            turns[-1] += transition.reward
        else:
            before += transition.reward
    return turns, before


def _first(datum: Any) -> Any:
    """Returns the first token of the model's input, which is no target; nothing if it is an image."""
    return np.array(getattr(datum.model_input.chunks[0], "tokens", ())[:1], np.int64)


def _row(at: int, datum: Any) -> Dict[str, Any]:
    """Returns the arrays of a datum."""
    row = {}
    for field in _FIELDS:
        if field not in datum.loss_fn_inputs:
            more = ": 1 at the sampled tokens; take it out before you send the datum" if field == "mask" else ""
            raise InputError("datums", f'has no loss_fn_inputs["{field}"]{more}', at)
        row[field] = np.asarray(datum.loss_fn_inputs[field].to_numpy())
        shape, want = row[field].shape, row["advantages"].shape
        if len(shape) != 1 or shape != want:
            raise InputError("datums", f'has loss_fn_inputs["{field}"] of shape {shape}, want one number per token, of {want}', at)
    return row


def install(credit: Credit = Credit(entropy="surprisal")) -> None:
    """Makes prepare_minibatch of tinker_cookbook.rl.train give its advantages to the credit, whose scalars are in its metrics.

    A loss_fn for which weights of tokens were not tested is a ValueError, and a batch with advantages that is sent before
    any has had the credit a HookError.
    """
    _check(credit)
    train = "tinker_cookbook.rl.train:"
    module, name = find_hook("tinker-cookbook", train + "prepare_minibatch", ("trajectory_groups_P", "tokenizer"), WRITTEN_FOR)
    find_hook("tinker-cookbook", train + "assemble_training_data", ("trajectory_groups_P", "advantages_P"), WRITTEN_FOR)
    client, _ = find_hook("Tinker", "tinker:TrainingClient.forward_backward", ("data", "loss_fn"), "tinker 0.38.0")
    report = Report(credit, f"tinker-cookbook {version_of('tinker-cookbook')}")

    def make_prepare(original: Any) -> Any:
        async def prepare_minibatch(builders: Any, trajectory_groups_P: Any, tokenizer: Any, *args: Any, **options: Any) -> Any:
            batch = {"groups": trajectory_groups_P, "tokenizer": tokenizer}
            token = _batch.set(batch)
            try:
                datums, metrics, *rest = await original(builders, trajectory_groups_P, tokenizer, *args, **options)
            finally:
                _batch.reset(token)
            if "log" not in batch:
                raise HookError("prepare_minibatch has made datums without assemble_training_data of tinker_cookbook.rl.train, "
                                "by which reweight gives the credit")  # fmt: skip
            return (datums, {**metrics, **batch["log"]}, *rest)

        return prepare_minibatch

    def make_assemble(original: Any) -> Any:
        def assemble_training_data(trajectory_groups_P: Any, *args: Any, **options: Any) -> Any:
            datums, metadata = original(trajectory_groups_P, *args, **options)
            batch = _batch.get()
            if batch is not None and batch["groups"] is trajectory_groups_P:  # and not a group that is printed
                names = [(m["group_idx"], m["traj_idx"]) for m in metadata]
                rewards, turns = [group.get_total_rewards() for group in trajectory_groups_P], None
                if "span_rewards" in credit.reads:
                    found = [[_turns(trajectory) for trajectory in group.trajectories_G] for group in trajectory_groups_P]
                    turns = [found[g][t][0] for g, t in names]
                    rewards = [
                        [reward + before for reward, (_, before) in zip(group.final_rewards_G, of_group)]
                        for group, of_group in zip(trajectory_groups_P, found)
                    ]
                batch["log"] = credit_datums(
                    datums,
                    [g for g, _ in names],
                    [rewards[g][t] for g, t in names],
                    credit,
                    trajectories=names,
                    span_rewards=turns,
                    tokenizer=batch["tokenizer"],
                )
                report.batch("sums of the loss (token_sum)", batch["log"])
            return datums, metadata

        return assemble_training_data

    def make_send(original: Any) -> Any:
        def forward_backward(self: Any, data: Any, loss_fn: Any, *args: Any, **options: Any) -> Any:
            if any("advantages" in datum.loss_fn_inputs for datum in data):
                if loss_fn not in _LOSSES:
                    raise ValueError(f"loss_fn is {loss_fn!r}, with which a weight per token was not tested, want one of [{' '.join(_LOSSES)}]")
                if report.batches == 0:
                    raise HookError("Tinker is about to learn without the credit: prepare_minibatch of tinker_cookbook.rl.train was "
                                    "never called; in a loop of your own call credit_datums in the place of install")  # fmt: skip
            return original(self, data, loss_fn, *args, **options)

        return forward_backward

    replace(module, name, make_prepare, report)
    replace(module, "assemble_training_data", make_assemble)
    for send in "forward_backward", "forward_backward_custom":
        replace(client, send, make_send)
