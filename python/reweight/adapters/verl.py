"""Credit in verl's PPO trainer.

Tested in whole runs of verl 0.9.1 (2026-11). Where this package is installed, verl loads it in every process, by the
entry point verl.plugins of the wheel, and a run asks for the credit by a key of verl's own configuration:

    python -m verl.trainer.main_ppo ... +reweight.scheme=rloo+actfocus '+reweight.tags=["<tool_call>","</tool_call>"]'

with the names of Credit, or +reweight={} for its defaults. The key travels with the configuration to the process of Ray
that holds the trainer. Who starts the trainer from Python may call install instead, in the process that makes it.

What does not fit is an error when the trainer is made. When the trainer has computed the advantages of a batch, they
are read from its TransferQueue and written back with the credit. All arrays there are nested tensors of the layout jagged,
one row per output of the agent loop. Responses and tags are found in the response_mask that the agent loop gave; what
verl's rejection takes out of it has no part in sums and statistics. Rewards of turns are turn_scores of the agent loop's
extra_fields. The scalars of token_advantages are in verl's log.
PPOTrainer is that of verl/trainer/ppo/v1, in each trainer_mode: sync, colocate_async and separate_async inherit the
method. The trainers of trainer.use_v1=False and of verl/experimental are refused.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
from dataclasses import fields
from typing import Any, Callable, Dict, Mapping, Optional, Sequence

from .._errors import InputError
from . import Credit, HookError, token_advantages
from ._advantages import AGGREGATIONS
from ._hooks import find_hook, never_called, replace, version_of, when_imported
from ._pages import batch_name
from ._report import Report
from ._step import saying_how

WRITTEN_FOR = "verl 0.9.1"

_TRAINER = "verl.trainer.ppo.v1.trainer_base"
_METHOD = _TRAINER + ":PPOTrainer._compute_advantage"
# Policy losses in which a token's loss is in proportion to its advantage, and its sum is divided as loss_agg_mode says.
_LOSSES = ("vanilla", "gspo", "sapo", "gpg", "cispo", "dppo_tv", "dppo_kl", "bypass_mode")
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

_installed: Optional[Credit] = None


def install(credit: Credit = Credit()) -> None:
    """Makes every PPOTrainer of this process give its advantages to token_advantages, with the credit.

    Raises InputError, a ValueError, for a wrong option, and HookError if verl's trainer is gone or has changed, here or
    when it is imported. A trainer whose configuration does not fit raises ValueError when it is made.
    """
    global _installed
    credit.check("verl", _OWN, _GIVEN)
    when_imported(_TRAINER, _find)
    _installed = credit
    watch()


def watch() -> None:
    """Makes verl's trainers ask for a credit when they are made. Changes nothing else, and raises nothing: verl has
    every process do this, also for people who never asked for a credit."""
    for module, owner, name, make in (
        (_TRAINER, "PPOTrainer", "__init__", _credited),
        ("verl.trainer.ppo.ray_trainer", "RayPPOTrainer", "__init__", _refused),
        # Its subclasses do not call its __init__; this comes before their first rollout.
        ("verl.experimental.separation.ray_trainer", "SeparateRayPPOTrainer", "_init_resource_pools", _refused),
    ):
        when_imported(module, functools.partial(_wrap, module, owner, name, make))


def _wrap(module: str, owner: str, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    found = getattr(sys.modules.get(module), owner, None)
    if isinstance(found, type) and hasattr(found, name):
        replace(found, name, make)


def _find() -> None:
    """Raises HookError if the method is gone or has changed."""
    find_hook("verl", _METHOD, ("batch", "metrics"), WRITTEN_FOR)
    release = tuple(int(part) for part in re.findall(r"\d+", version_of("verl"))[:3])
    if () < release < (0, 9, 1):
        problem = "needs verl 0.9.1, whose gspo heeds loss_agg_mode"
        raise HookError(f"reweight.adapters.verl {problem}, but found {version_of('verl')}")


def _refused(original: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **options: Any) -> Any:
        made = original(self, *args, **options)
        if _asked(self.config) is not None:
            problem = f"{type(self).__name__} of verl computes its advantages where reweight does not reach them"
            raise HookError(problem + ": run python -m verl.trainer.main_ppo with trainer.use_v1=True")
        return made

    return method


def _credited(original: Callable[..., Any]) -> Callable[..., Any]:
    def init(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **options)
        credit = _asked(self.config)
        if credit is not None:
            _find()
            _check(self.config, self.use_reference_policy, credit)
            report = Report(credit, "verl " + version_of("verl"))
            self._compute_advantage = functools.partial(
                _compute_advantage, self, self._compute_advantage, credit, report
            )
            self._update_actor = functools.partial(_update_actor, self, self._update_actor, report)
            self.fit = functools.partial(_fit, self.fit, report)

    return init


def _asked(config: Any) -> Optional[Credit]:
    """Returns the credit that the configuration or install asks for."""
    options = config.get("reweight")
    if options is None:
        return _installed
    if _installed is not None:
        raise ValueError("reweight is in the configuration, and verl.install was called: want one of them")
    credit = _credit(options)
    credit.check("verl", _OWN, _GIVEN)
    return credit


def _credit(options: Any) -> Credit:
    """Returns the Credit with these options of a configuration."""
    defaults: Dict[str, Any] = {
        field.name: {} if field.name == "options" else field.default
        for field in fields(Credit)
        if field.init and field.name != "tokenizer"
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
        kind = type(defaults[name])
        number = kind is float and isinstance(value, int) and not isinstance(value, bool)
        if not isinstance(value, kind) and not number:
            raise ValueError(f"reweight.{name} is {value!r}, want a {kind.__name__} such as {defaults[name]!r}")
        values[name] = kind(value)
    return Credit(**values)


def _tuples(value: Any) -> Any:
    """Returns the lists of a configuration as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _check(config: Any, reference: bool, credit: Credit) -> None:
    """Wants a configuration in which a token's loss is in proportion to its advantage."""
    actor = config.actor_rollout_ref.actor
    loss, correction = actor.policy_loss, config.algorithm.get("rollout_correction") or {}
    for option, value, tested in (
        ("policy_loss.loss_mode", loss.loss_mode, _LOSSES),
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
    of_rewards = not credit.reads.isdisjoint(("rewards", "token_rewards"))
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
    loss = actor.policy_loss.loss_mode
    log: Dict[str, float] = {}
    # sapo does not heed loss_agg_mode.
    aggregation = "seq_mean_token_mean" if loss == "sapo" else _MODES[actor.loss_agg_mode]
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
    report.batch(f"{loss} ({aggregation})", log)
    return batch
