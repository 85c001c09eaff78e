"""Credit in verl's PPO trainers.

Tested in whole runs of verl 0.9.1 (2026-11), and with the functions of verl 0.7.1, 0.8.0 and 0.9.0 and of Agent
Lightning 1.0.2. Where this package is installed, verl loads it in every process, from 0.9.0 by the entry point
verl.plugins of the wheel, before by VERL_USE_EXTERNAL_MODULES=reweight.adapters.verl_plugin. A run asks for the credit by
a key of verl's own configuration:

    python -m verl.trainer.main_ppo ... +reweight.scheme=rloo+actfocus '+reweight.tags=["<tool_call>","</tool_call>"]'

with the names of Credit, or +reweight={} for its defaults. The key travels with the configuration to the process of Ray
that holds the trainer. Who starts the trainer from Python may call install instead, in the process that makes it.

What does not fit is an error when the trainer is made. Two kinds of trainers have two hooks:

- PPOTrainer of verl/trainer/ppo/v1, in each trainer_mode. When it has computed the advantages of a batch, they are read
  from its TransferQueue and written back with the credit. All arrays there are nested tensors of the layout jagged, one
  row per output of the agent loop.
- RayPPOTrainer, of trainer.use_v1=False and of older versions, and what is built on it: verl.experimental, Agent
  Lightning, recipes. Before its _update_actor, credit_batch changes the advantages of the DataProto, [B, T], of which
  _compute_old_log_prob has kept the entropy. A trainer that calls its workers' update_actor itself is an error, which says
  that it calls credit_batch itself, a line before.

Responses and tags are found in the response_mask that the agent loop gave; what verl's rejection takes out of it has no
part in sums and statistics. Rewards of turns are turn_scores of the agent loop's extra_fields. The scalars of
token_advantages are in verl's log.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
from collections import Counter
from dataclasses import fields
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

import numpy as np

from .._errors import InputError
from . import Credit, HookError, token_advantages
from ._advantages import AGGREGATIONS
from ._hooks import find_hook, never_called, replace, version_of, when_imported
from ._pages import batch_name
from ._report import Report
from ._step import saying_how

WRITTEN_FOR = "verl 0.7.1, 0.8.0, 0.9.0 and 0.9.1"

_TRAINER = "verl.trainer.ppo.v1.trainer_base"
_METHOD = _TRAINER + ":PPOTrainer._compute_advantage"
_RAY_TRAINER = "verl.trainer.ppo.ray_trainer"
# Policy losses in which a token's loss is in proportion to its advantage, and its sum is divided as loss_agg_mode says.
_LOSSES = ("vanilla", "gspo", "sapo", "gpg", "cispo", "dppo_tv", "dppo_kl", "bypass_mode")
# Those of Agent Lightning, which are means over rollouts of several rows.
_PER_ROLLOUT = ("per_rollout_mean", "cispo_per_rollout_mean")
# What verl does itself, by its options.
_OWN = {
    "loss": "actor_rollout_ref.actor.policy_loss.loss_mode (with loss_agg_mode)",
    "rollout_logprobs": "algorithm.rollout_correction",
    "values": "algorithm.adv_estimator=gae",
    "gdpo": "algorithm.adv_estimator=gdpo",
}
# What verl keeps besides log-probabilities.
_GIVEN = ("entropy", "span_rewards")
_TURNS = (
    'in verl, an agent loop gives the rewards of turns as extra_fields["turn_scores"], a list with a number for each run of 1 '
    "in its response_mask"
)
_MODES = {name.replace("_", "-"): name for name in AGGREGATIONS}

_OF_REWARDS = ("rewards", "token_rewards")
# What stays in a batch of RayPPOTrainer from the old policy's log-probabilities to the update.
_SAMPLED, _ENTROPY = "reweight_sampled", "reweight_entropy"

_installed: Optional[Credit] = None


def install(credit: Credit = Credit()) -> None:
    """Makes every PPOTrainer and RayPPOTrainer of this process give its advantages to token_advantages, with the credit.

    Raises InputError, a ValueError, for a wrong option, and HookError if verl's trainer is gone or has changed, here or
    when it is imported. A trainer whose configuration does not fit raises ValueError when it is made.
    """
    global _installed
    Credit.check(credit, "verl", _OWN, _GIVEN)
    if _release() >= (0, 9):
        when_imported(_TRAINER, _find)
    else:
        when_imported(_RAY_TRAINER, _find_ray)
    _installed = credit
    watch()


def watch() -> None:
    """Makes verl's trainers ask for a credit when they are made. Changes nothing else, and raises nothing: verl has
    every process do this, also for people who never asked for a credit."""
    for module, owner, name, make in (
        (_TRAINER, "PPOTrainer", "__init__", _credited),
        (_RAY_TRAINER, "RayPPOTrainer", "__init__", _credited_ray),
        # Some of its subclasses do not call its __init__; this comes before their first rollout.
        ("verl.experimental.separation.ray_trainer", "SeparateRayPPOTrainer", "_init_resource_pools", _credited_ray),
        ("verl.trainer.main_ppo_sync", "PPOTrainer", "__init__", _refused),
    ):
        when_imported(module, functools.partial(_wrap, module, owner, name, make))


def _wrap(module: str, owner: str, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    found = getattr(sys.modules.get(module), owner, None)
    if isinstance(found, type) and hasattr(found, name):
        replace(found, name, make)


def _find() -> None:
    """Raises HookError if the method of PPOTrainer is gone or has changed."""
    find_hook("verl", _METHOD, ("batch", "metrics"), WRITTEN_FOR)
    if _release() < (0, 9, 1):
        raise HookError(f"PPOTrainer of verl {version_of('verl')} was not tested: set trainer.use_v1=False, or install verl 0.9.1")


def _find_ray() -> None:
    """The same of RayPPOTrainer."""
    for name in "_update_actor", "_compute_old_log_prob":
        find_hook("verl", f"{_RAY_TRAINER}:RayPPOTrainer.{name}", ("batch",), WRITTEN_FOR)


def _release() -> Tuple[int, ...]:
    """The version of verl; of one without numbers, the newest that this was written for."""
    return tuple(int(part) for part in (re.findall(r"\d+", version_of("verl")) or re.findall(r"\d+", WRITTEN_FOR)[-3:])[:3])


def _refused(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **options: Any) -> Any:
        if _asked(args[0] if args else options["config"]) is not None:
            problem = "verl.trainer.main_ppo_sync computes its advantages where reweight does not reach them"
            raise HookError(f"{problem}: run python -m verl.trainer.main_ppo")
        return original(self, *args, **options)

    return method


def _credited(original: Callable[..., Any]) -> Callable[..., Any]:
    def init(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        credit = _asked(self.config)
        if credit is not None:
            _find()
            report = _report(self, credit, _LOSSES)
            self._compute_advantage = functools.partial(
                _compute_advantage, self, self._compute_advantage, credit, report
            )
            self._update_actor = functools.partial(_update_actor, self, self._update_actor, report)
            self.fit = functools.partial(_fit, self.fit, report)

    return init


def _credited_ray(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **options: Any) -> Any:
        made = original(self, *args, **options)
        credit = _asked(self.config)
        if credit is None or hasattr(self, "credit_report"):
            return made
        _find_ray()
        self.credit_report = report = _report(self, credit, _LOSSES + _PER_ROLLOUT)
        self._compute_old_log_prob = functools.partial(_compute_old_log_prob, self._compute_old_log_prob, credit)
        self._update_actor = functools.partial(_update_ray_actor, self, self._update_actor, credit)
        begin = "_init_models" if hasattr(self, "_init_models") else "init_workers"
        setattr(self, begin, functools.partial(_init_workers, self, getattr(self, begin), report))
        if not inspect.iscoroutinefunction(self.fit):
            self.fit = functools.partial(_fit, self.fit, report)
        return made

    return method


def _report(trainer: Any, credit: Credit, losses: Sequence[str]) -> Report:
    """Returns what says that the credit works in a trainer, whose configuration has to fit it."""
    _check(trainer.config, trainer.use_reference_policy, credit, losses)
    return Report(credit, "verl " + version_of("verl"))


def _asked(config: Any) -> Optional[Credit]:
    """Returns the credit that the configuration or install asks for."""
    options = config.get("reweight")
    if options is None:
        return _installed
    if _installed is not None:
        raise ValueError("reweight is in the configuration, and verl.install was called: want one of them")
    credit = from_configuration(options)
    Credit.check(credit, "verl", _OWN, _GIVEN)
    return credit


def from_configuration(options: Any) -> Credit:
    """Returns the Credit with these options of a configuration."""
    defaults: Dict[str, Any] = {
        field.name: {} if field.name == "options" else field.default
        for field in fields(Credit)
        if field.init and field.name not in ("tokenizer", "action")
    }
    if not isinstance(options, Mapping):
        raise ValueError(f"reweight is {options!r}, want options of [{' '.join(defaults)}], or {{}} for their defaults")
    values: Dict[str, Any] = {}
    for name, value in options.items():
        if name not in defaults:
            raise ValueError(f"reweight.{name} is no option, want one of [{' '.join(defaults)}]")
        if name == "tags":
            values[name] = _tuples(value)
            continue
        if name == "options":
            if not isinstance(value, Mapping) or not all(isinstance(of_entry, Mapping) for of_entry in value.values()):
                raise ValueError(f"reweight.options is {value!r}, want options by entries, such as {{gtpo:{{bonus:0.2}}}}")
            values[name] = {entry: dict(of_entry) for entry, of_entry in value.items()}
            continue
        default = "norm" if defaults[name] is None else defaults[name]  # of keep
        kind = type(default)
        number = kind is float and isinstance(value, int) and not isinstance(value, bool)
        if not isinstance(value, kind) and not number:
            raise ValueError(f"reweight.{name} is {value!r}, want a {kind.__name__} such as {default!r}")
        values[name] = kind(value)
    return Credit(**values)


def _tuples(value: Any) -> Any:
    """Returns the lists of a configuration as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _aggregation(actor: Any) -> str:
    """How the trainer makes one number of its tokens' losses."""
    loss = actor.policy_loss.loss_mode
    # These do not heed loss_agg_mode.
    alone = loss in ("sapo", *_PER_ROLLOUT) or (loss == "gspo" and _release() < (0, 9, 1))
    return "seq_mean_token_mean" if alone else _MODES[actor.loss_agg_mode]


def _check(config: Any, reference: bool, credit: Credit, losses: Sequence[str]) -> None:
    """Wants a configuration in which a token's loss is in proportion to its advantage."""
    actor = config.actor_rollout_ref.actor
    loss, correction = actor.policy_loss, config.algorithm.get("rollout_correction") or {}
    for option, value, tested in (
        ("policy_loss.loss_mode", loss.loss_mode, losses),
        ("loss_agg_mode", actor.loss_agg_mode, _MODES),
    ):
        if value not in tested:
            want = f'is "{value}", want one of [{" ".join(tested)}], with which a weight per token was tested'
            raise ValueError(f"actor_rollout_ref.actor.{option} {want}")
    for option in ("distillation.enabled", "algorithm.use_pf_ppo"):
        section, _, name = option.partition(".")
        if (config.get(section) or {}).get(name):
            raise ValueError(f"{option} is True, with which a weight per token was not tested: set it to False")
    # This loss rejects tokens when the weights are made already; of a trajectory it divides by those that remain.
    rejection = str((loss.get("rollout_correction") or {}).get("rollout_rs") or "")
    if loss.loss_mode == "bypass_mode" and "token_" in rejection and actor.loss_agg_mode == "seq-mean-token-mean":
        problem = f'is "{rejection}" with loss_mode=bypass_mode and loss_agg_mode=seq-mean-token-mean'
        want = "want a rejection of sequences, or loss_agg_mode=token-mean"
        raise ValueError(f"actor_rollout_ref.actor.policy_loss.rollout_correction.rollout_rs {problem}, {want}")
    if "entropy" in credit.reads and correction.get("bypass_mode"):
        raise InputError(
            "scheme",
            f"is {credit.scheme}, which reads the entropy of the old policy, and verl does not compute it with "
            "algorithm.rollout_correction.bypass_mode=True: set it to False, or use entropy=surprisal or another scheme",
        )
    if "ref_logprobs" in credit.reads and not reference:
        raise InputError(
            "scheme",
            "reads ref_logprobs, for which verl needs a reference policy: set actor_rollout_ref.actor.use_kl_loss=True or "
            "algorithm.use_kl_in_reward=True, or use signal=surprisal for ActFocus",
        )
    if "span_rewards" in credit.reads and config.get("agentlightning"):
        raise InputError("scheme", f"reads span_rewards, but Agent Lightning hands its trainer the last reward of a rollout alone: {_TURNS}")


def _fit(original: Callable[..., Any], report: Report, *args: Any, **options: Any) -> Any:
    """Trains, and ends the report: Ray ends the trainer's process without its exit handlers."""
    try:
        return original(*args, **options)
    finally:
        report.end()


def _update_actor(trainer: Any, original: Callable[..., Any], report: Report, *args: Any, **options: Any) -> Any:
    """Trains the policy, whose batch must have the credit."""
    if report.batches == 0:
        raise never_called(trainer, sys.modules[_TRAINER].PPOTrainer, "_step_once")
    return original(*args, **options)


@saying_how(_TURNS)
def _compute_advantage(
    trainer: Any, original: Callable[..., Any], credit: Credit, report: Report, batch: Any, metrics: Dict[str, Any]
) -> Any:
    """Has verl compute the advantages of a batch, and gives them to the credit."""
    queue = importlib.import_module("transfer_queue")

    def read(keys: Any, *fields: str) -> Any:
        return queue.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=list(fields))

    # Rows with which verl fills a batch up are no trajectories.
    keys = [key for key, tag in zip(batch.keys, batch.tags) if not tag.get("is_padding")]
    needed = [field for name, field in (("entropy", "entropy"), ("ref_logprobs", "ref_log_prob")) if name in credit.reads]
    of_rewards = not credit.reads.isdisjoint(_OF_REWARDS)
    if of_rewards and len({key.rpartition("_")[0] for key in keys}) < len(keys):
        raise ValueError(f"a trajectory has several outputs, of which the scheme {credit.scheme} would take each for one")
    names = ["response_mask", "responses", "old_log_probs", "uid", "rm_scores", *needed, *["prompts"] * credit.wants_prompts]
    given, turns = read(keys, *names), None  # before tokens are rejected
    if "span_rewards" in credit.reads:
        more = [getattr(x, "data", x) for x in read(keys, "extra_fields")["extra_fields"]]
        turns = [x.get("turn_scores") for x in more]
    batch = original(batch, metrics)
    penalized = "token_level_rewards" if trainer.config.algorithm.use_kl_in_reward else None
    data = read(keys, "advantages", "response_mask", *([penalized] if penalized else []))
    token_rewards = data[penalized] if penalized else given["rm_scores"]
    actor = trainer.config.actor_rollout_ref.actor
    aggregation = _aggregation(actor)
    log: Dict[str, float] = {}
    made = token_advantages(
        data["advantages"],
        data["response_mask"],
        sampled=given["response_mask"],
        credit=credit,
        aggregation=aggregation,
        token_ids=given["responses"],
        tokenizer=trainer.tokenizer,
        old_logprobs=given["old_log_probs"],
        ref_logprobs=given["ref_log_prob"] if "ref_log_prob" in needed else None,
        entropy=given["entropy"] if "entropy" in needed else None,
        token_rewards=token_rewards if of_rewards else None,
        rewards=[row.sum() for row in token_rewards.unbind()] if of_rewards or credit.save_every else None,
        span_rewards=turns,
        group_ids=list(given["uid"]),
        prompt_ids=given["prompts"].unbind() if credit.wants_prompts else None,
        batch_name=batch_name(trainer.config.trainer.experiment_name, getattr(trainer, "global_steps", 0)),
        log=log,
    )
    data["advantages"] = made
    queue.kv_batch_put(keys=keys, partition_id=batch.partition_id, fields=data.select("advantages"))
    metrics.update(log)
    report.batch(f"{actor.policy_loss.loss_mode} ({aggregation})", log)
    return batch


def _init_workers(trainer: Any, original: Callable[..., Any], report: Report, *args: Any, **options: Any) -> Any:
    """Makes the workers, and has those of the policy learn from no batch while none has had the credit."""
    made = original(*args, **options)
    group = trainer.actor_rollout_wg
    update = group.update_actor

    def update_actor(*args: Any, **options: Any) -> Any:
        if report.batches == 0:
            problem = f"{type(trainer).__module__}.{type(trainer).__qualname__} is about to learn without the credit: it calls "
            problem += "actor_rollout_wg.update_actor itself. Leave out the key reweight, and call "
            raise HookError(problem + "reweight.adapters.verl.credit_batch(batch, self, Credit(...)) a line before")
        return update(*args, **options)

    group.update_actor = update_actor
    return made


def _compute_old_log_prob(original: Callable[..., Any], credit: Credit, batch: Any) -> Any:
    """Has the entropy of the old policy stay in the batch, from which the trainer takes it, and the mask from which tokens
    may be rejected."""
    made = original(batch)
    tensors = made[0].batch
    tensors[_SAMPLED] = batch.batch["response_mask"]
    if "entropy" in credit.reads:
        tensors[_ENTROPY] = tensors["entropys"]
    return made


def _update_ray_actor(trainer: Any, original: Callable[..., Any], credit: Credit, batch: Any) -> Any:
    """Trains the policy with the credit, whose scalars come to those of the step."""
    log = credit_batch(batch, trainer, credit)
    made = original(batch)
    made.meta_info["metrics"].update(log)
    return made


@saying_how(_TURNS)
def credit_batch(batch: Any, trainer: Any, credit: Credit = Credit()) -> Dict[str, float]:
    """Gives the advantages of a batch the credit, and returns the scalars of token_advantages. For a trainer built on
    RayPPOTrainer that calls its workers' update_actor itself, a line before:

        metrics.update(credit_batch(batch, self, Credit("actfocus")))
        actor_output = self.actor_rollout_wg.update_actor(batch)

    batch: a DataProto with responses, response_mask, old_log_probs, advantages and token_level_rewards, [B, T], and the
        entropys of the old policy if the credit reads the entropy. uid says which rows share a prompt. Rows with one
        rollout_id_list or traj_uid are turns of one rollout, which then is a trajectory: its rows have one reward.
    trainer: its config, tokenizer and use_reference_policy are read.

    Raises ValueError for a configuration or a batch that does not fit.
    """
    if not hasattr(trainer, "credit_report"):
        Credit.check(credit, "verl", _OWN, _GIVEN)
        trainer.credit_report = _report(trainer, credit, _LOSSES + _PER_ROLLOUT)
    torch, tensors, more = sys.modules["torch"], batch.batch, batch.non_tensor_batch
    config, actor = trainer.config, trainer.config.actor_rollout_ref.actor
    aggregation, mask, token_rewards = _aggregation(actor), tensors["response_mask"], tensors["token_level_rewards"]
    sampled, entropy = tensors.pop(_SAMPLED, mask), tensors.pop(_ENTROPY, tensors.get("entropys"))
    rewards = token_rewards.sum(-1) if credit.save_every or not credit.reads.isdisjoint(_OF_REWARDS) else None
    rollouts, divisor = more.get("rollout_id_list", more.get("traj_uid")), torch.ones(len(mask), 1, device=mask.device)
    if actor.policy_loss.loss_mode in _PER_ROLLOUT:  # advantages are divided by a rollout's tokens and the number of rows
        if rollouts is None:
            raise ValueError(f"the batch has no rollout_id_list, which loss_mode={actor.policy_loss.loss_mode} needs")
        of = np.unique(rollouts, return_inverse=True)[1]
        tokens = np.bincount(of, mask.sum(-1).cpu().numpy())[of] * len(mask)
        divisor = torch.from_numpy(tokens).clamp(min=1).to(divisor)[:, None]
    order, counts = _by_rollout(batch, aggregation, credit, config) if rollouts is not None else (None, [])

    def joined(x: Any) -> Any:
        """Rows [B, T] as trajectories: where rollouts have several, they are one after another, with a token between."""
        if order is None or x is None:
            return x
        return torch.nn.functional.pad(x[order], (0, 1)).flatten().split([n * (mask.shape[1] + 1) for n in counts])

    first = slice(None) if order is None else order[np.cumsum([0, *counts[:-1]])]
    prompts = None
    if credit.wants_prompts:
        there = tensors["attention_mask"][first, : tensors["prompts"].shape[1]] != 0
        prompts = [ids[kept] for ids, kept in zip(tensors["prompts"][first], there)]
    log: Dict[str, float] = {}
    made = token_advantages(
        joined(tensors["advantages"] * divisor),
        joined(mask),
        sampled=joined(sampled),
        credit=credit,
        aggregation=aggregation,
        token_ids=joined(tensors["responses"]),
        tokenizer=trainer.tokenizer,
        old_logprobs=joined(tensors["old_log_probs"]),
        ref_logprobs=joined(tensors["ref_log_prob"]) if "ref_logprobs" in credit.reads else None,
        entropy=joined(entropy) if "entropy" in credit.reads else None,
        token_rewards=token_rewards if order is None and rewards is not None else None,
        rewards=None if rewards is None else rewards[first],
        span_rewards=more.get("turn_scores") if "span_rewards" in credit.reads else None,
        group_ids=more["uid"][first],
        prompt_ids=prompts,
        batch_name=batch_name(config.trainer.experiment_name, getattr(trainer, "global_steps", 0)),
        log=log,
    )
    if order is not None:
        made = torch.cat(made).view(len(mask), -1)[np.argsort(order), :-1]
    tensors["advantages"] = made / divisor
    trainer.credit_report.batch(f"{actor.policy_loss.loss_mode} ({aggregation})", log)
    return log


def _by_rollout(batch: Any, aggregation: str, credit: Credit, config: Any) -> Tuple[Any, Sequence[int]]:
    """Returns the rows in the order of their rollouts, and how many each rollout has; None where each row is a
    trajectory."""
    more, actor = batch.non_tensor_batch, config.actor_rollout_ref.actor
    rollouts = more.get("rollout_id_list", more.get("traj_uid")).tolist()
    counts = Counter(rollouts)  # in the order in which they come
    if len(counts) == len(rollouts):
        return None, []
    of_rewards, of_trajectories = not credit.reads.isdisjoint(_OF_REWARDS), credit.scope == "trajectory"
    by_row = aggregation == "seq_mean_token_mean" and actor.policy_loss.loss_mode not in _PER_ROLLOUT
    scored = set(zip(rollouts, batch.batch["token_level_scores"].sum(-1).tolist()))
    for wrong, problem in (
        (by_row and (of_rewards or of_trajectories), f"loss_mode={actor.policy_loss.loss_mode} with loss_agg_mode={actor.loss_agg_mode} takes means over rows"),
        (of_rewards and config.algorithm.use_kl_in_reward, "algorithm.use_kl_in_reward=True gives each row a penalty of its own"),
        (of_rewards and len(scored) > len(counts), "they have different rewards"),
        ("span_rewards" in credit.reads, "turn_scores are those of rows"),
    ):
        if wrong:
            raise ValueError(f"a rollout has several rows, which {credit.scheme} takes for one trajectory, but {problem}")
    if by_row:
        return None, []
    place = {rollout: i for i, rollout in enumerate(counts)}
    turns = more.get("turn_index_list", range(len(rollouts)))
    order = sorted(range(len(rollouts)), key=lambda row: (place[rollouts[row]], turns[row]))
    return np.array(order), list(counts.values())
