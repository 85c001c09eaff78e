"""Credit in NeMo RL's GRPO.

Written for NeMo RL 0.7.0 and its main branch at commit 7ea279abf (2026-08-22):
nemo_rl/algorithms/advantage_estimator.py, GRPOAdvantageEstimator.compute_advantage(
prompt_ids, rewards, mask, **kwargs), as nemo_rl/algorithms/grpo.py calls it, and
nemo_rl/algorithms/loss/loss_functions.py, ClippedPGLossFn.

In the script that runs grpo_train, before it does:

    from reweight.adapters.nemo_rl import install
    install(Credit(tokenizer=tokenizer, entropy="surprisal"))

mask, the log-probabilities and the advantages are [B, S], at the tokens themselves: the
log-probability at position t is that of token t, and the loss drops position 0. Token ids
are taken from repeated_batch, which has them as "message_log" in grpo_train and
async_grpo_train; where there is "input_ids", [B, S], from that. NeMo RL keeps no entropy:
schemes that read it need Credit(entropy="surprisal").

NeMo RL adds the rewards of an environment's steps up. Rewards of turns are "turn_rewards" of the metadata that a step
returns, which is extra_env_info of repeated_batch: a list of the rewards of the turns until then. What the total has more
is the reward of the last turn.

prompt_ids, by which NeMo RL finds groups, holds the tokens of each prompt there, [B, S]. Where it holds the id of a
group for each row, [B] or [B, 1], these are taken. Of tokens, two groups with the same words, whose prompts differ in an
image or the state of an environment, would be one: "idx" of repeated_batch, the place of the prompt in its dataset, tells
them apart in grpo_train and async_grpo_train without NeMo Gym. Where neither is there, a warning says so.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any, Dict, List, Tuple

from . import Credit, token_advantages
from ._hooks import check_calls, find_hook, replace
from ._report import Report
from ._step import saying_how

WRITTEN_FOR = "NeMo RL 0.7.0"

_MODULE = "nemo_rl.algorithms.advantage_estimator"
# What NeMo RL does itself, by its options.
_OWN = {
    "loss": "loss_fn (with use_cispo, sequence_level_importance_ratios, token_level_loss)",
    "rollout_logprobs": "loss_fn.use_importance_sampling_correction",
    "values": "grpo.adv_estimator.name=gae",
    "gdpo": "grpo.adv_estimator.name=gdpo",
}
_TURNS = (
    'in NeMo RL, an environment keeps the rewards of turns in the metadata that its step returns, as "turn_rewards", a list with a '
    "number for each turn, of which the last may be missing"
)


def install(
    credit: Credit = Credit(entropy="surprisal"), *, token_level_loss: bool = True, estimator: str = "GRPOAdvantageEstimator"
) -> None:
    """Makes an advantage estimator give its advantages to token_advantages, with the credit. The scalars of the log are in the
    estimator's last_metrics, which async_grpo_train logs, and grpo_train does not.

    token_level_loss: as loss_fn.token_level_loss of the configuration.
    estimator: the class, of nemo_rl.algorithms.advantage_estimator.
    """
    Credit.check(credit, "NeMo RL", _OWN, ("span_rewards",))
    owner, name = find_hook(
        "NeMo RL",
        f"{_MODULE}:{estimator}.compute_advantage",
        ("prompt_ids", "rewards", "mask", "kwargs"),
        WRITTEN_FOR,
    )
    report = Report(credit, "NeMo RL")
    aggregation = "token_mean" if token_level_loss else "seq_mean_token_mean"

    def make(original: Any) -> Any:
        @saying_how(_TURNS)
        def compute_advantage(self: Any, prompt_ids: Any, rewards: Any, mask: Any, **kwargs: Any) -> Any:
            self._reweight_credited = True
            result = original(self, prompt_ids=prompt_ids, rewards=rewards, mask=mask, **kwargs)
            logprobs = kwargs.get("logprobs_policy", kwargs.get("logprobs"))
            reference = kwargs.get("logprobs_reference", kwargs.get("reference_logprobs"))
            kept = mask.bool()
            if logprobs is None or kept.any() and not logprobs.any():
                raise ValueError(
                    "with loss_fn.force_on_policy_ratio=true, NeMo RL computes no log-probabilities of the old policy: "
                    "set it to false"
                )
            if "ref_logprobs" in credit.reads and (reference is None or kept.any() and not reference.any()):
                raise ValueError(
                    "the scheme reads ref_logprobs, which needs grpo.skip_reference_policy_logprobs_calculation=false, "
                    "or use Credit(signal=\"surprisal\")"
                )
            if credit.makes_advantages and getattr(self, "use_kl_in_reward", False) and self.kl_coef > 0:
                raise ValueError(f"the advantages of {credit.scheme} have no penalty: set loss_fn.use_kl_in_reward=false")
            batch, turns = kwargs.get("repeated_batch", {}), None
            if "span_rewards" in credit.reads:
                turns, rewards = _turns(batch, rewards)
            mask = mask.clone()
            mask[:, 0] = 0
            log: Dict[str, float] = {}
            advantages = result[0] if isinstance(result, tuple) else result
            advantages = token_advantages(
                advantages.expand(mask.shape),
                mask,
                credit=credit,
                aggregation=aggregation,
                token_ids=_token_ids(batch, mask) if credit.wants_actions or credit.wants_prompts else None,
                old_logprobs=logprobs,
                ref_logprobs=reference if "ref_logprobs" in credit.reads else None,
                rewards=rewards,
                span_rewards=turns,
                group_ids=_groups(prompt_ids, batch, "group_ids" in credit.reads),
                log=log,
            )
            report.batch(f"{estimator} ({aggregation})", log)
            self.last_metrics = {**getattr(self, "last_metrics", {}), **log}  # async_grpo_train logs them
            if isinstance(result, tuple):  # advantages and returns, of estimators with a critic
                return (advantages, *result[1:])
            return advantages

        return compute_advantage

    def make_init(init: Any) -> Any:
        def init_and_check(self: Any, *args: Any, **options: Any) -> None:
            init(self, *args, **options)
            check_calls(self, name, owner, name)

        return init_and_check

    replace(owner, name, make, report)
    for kind in vars(sys.modules[_MODULE]).values():  # the configuration may choose another estimator
        if isinstance(kind, type) and hasattr(kind, name):
            replace(kind, "__init__", make_init)


def _groups(prompt_ids: Any, batch: Any, read: bool) -> Any:
    """Returns the group of each row, with a warning if the scheme reads groups and they may be wrong."""
    groups = sys.modules["torch"].unique(prompt_ids, dim=0, return_inverse=True)[1]
    if prompt_ids.dim() == 1 or prompt_ids.shape[1] == 1:  # ids of groups
        return groups
    if "idx" in batch:
        return [f"{idx} {group}" for idx, group in zip(batch["idx"], groups.tolist())]
    if read:
        warnings.warn(
            "NeMo RL names no groups here, and rows with the same prompt tokens are taken for one: two groups whose prompts "
            "differ in an image or in the state of an environment alone are compared as one"
        )
    return groups


def _turns(batch: Any, totals: Any) -> Tuple[List[Any], Any]:
    """Returns the rewards of turns that environments have kept, and what is left of the totals: grpo_train drops the metadata
    of the step that ends an episode, so that the reward of the last turn is what is left."""
    found: List[Any] = [None] * len(totals)
    if "extra_env_info" in batch:
        found = [info.get("turn_rewards") if isinstance(info, dict) else None for info in batch["extra_env_info"]]
    turns = []
    for row, messages in zip(found, batch.get("message_log", [()] * len(found))):
        ended = row is not None and len(row) + 1 == sum(message["role"] == "assistant" for message in messages)
        turns.append([*row, 0.0] if ended else row)
    return turns, totals - totals.new_tensor([sum(row or ()) for row in turns])


def _token_ids(batch: Any, mask: Any) -> Any:
    """Returns the ids of the tokens, in the layout of mask."""
    if "input_ids" in batch:
        return batch["input_ids"]
    if "message_log" not in batch:
        raise ValueError(
            "repeated_batch has neither message_log nor input_ids, want one to find the tags of actions: "
            "set data_plane.enabled=false, or use Credit(tags=None)"
        )
    torch = sys.modules["torch"]
    ids = torch.zeros(tuple(mask.shape), dtype=torch.int64)
    for row, messages in zip(ids, batch["message_log"]):
        tokens = torch.cat([message["token_ids"] for message in messages])
        row[: len(tokens)] = tokens
    return ids
