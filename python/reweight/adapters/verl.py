"""ActFocus and AEM in verl's PPO trainer.

Written for verl 0.9.0 (2026-08-14) and its main branch at commit 1dda039b9 (2026-08-22):
verl/trainer/ppo/v1/trainer_base.py, PPOTrainer._compute_advantage(batch, metrics), which
runs on the driver, and verl/trainer/ppo/core_algos.py, agg_loss.

In a module of your own, say my_credit.py, which verl imports if you export
VERL_USE_EXTERNAL_MODULES=my_credit:

    from reweight.adapters import verl
    verl.install()

verl imports it in every process; it takes effect where verl imports its trainer. After
the trainer has computed the advantages of a batch, they are read from its
TransferQueue, with response_mask, responses, old_log_probs, ref_log_prob, entropy and
uid, multiplied, and written back. All these are nested tensors of the layout jagged, one
row per output of the agent loop. Works with every estimator and every trainer_mode
(verl chooses its replay buffer by the mode's name, so that a mode of our own would not),
and with the policy losses that are homogeneous in a token's advantage: vanilla, gspo,
sapo, gpg, cispo, dppo_tv, dppo_kl, bypass_mode.
"""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

from . import Credit, find_hook, replace, token_multiplier, version_of, when_imported

WRITTEN_FOR = "verl 0.9.0"

# Policy losses that average an advantage over a response, choose tokens by it, or have a term without it.
_REFUSED = ("geo_mean", "clip_cov", "kl_cov", "dro")
_FIELDS = ["advantages", "entropy", "old_log_probs", "ref_log_prob", "response_mask", "responses", "uid"]


def aggregation_of(loss_mode: str, loss_agg_mode: str) -> str:
    """How verl makes one number of its tokens' losses: sapo does not heed loss_agg_mode, nor did gspo before 0.9.1."""
    release = tuple(int(part) for part in re.findall(r"\d+", version_of("verl"))[:3])
    if loss_mode == "sapo" or (loss_mode == "gspo" and () < release < (0, 9, 1)):
        return "seq_mean_token_mean"
    return loss_agg_mode.replace("-", "_")


def install(credit: Credit = Credit()) -> None:
    """Makes PPOTrainer multiply its advantages by the credit's token_multiplier."""
    credit.check("verl", entropy=True)
    when_imported("verl.trainer.ppo.v1.trainer_base", lambda: _install(credit))


def _install(credit: Credit) -> None:
    trainer, name = find_hook(
        "verl", "verl.trainer.ppo.v1.trainer_base:PPOTrainer._compute_advantage", ("batch", "metrics"), WRITTEN_FOR
    )
    queue = importlib.import_module("transfer_queue")

    def make(original: Any) -> Any:
        def compute_advantage(self: Any, batch: Any, metrics: Any) -> Any:
            batch = original(self, batch, metrics)
            data = queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=_FIELDS)
            if credit.wants_entropy and "entropy" not in data.keys():
                raise ValueError(
                    "AEM needs the entropy of the old policy, which verl does not compute with "
                    "algorithm.rollout_correction.bypass_mode=True: set it to False, or use Credit(entropy=\"surprisal\")"
                )
            if credit.wants_ref_logprobs and "ref_log_prob" not in data.keys():
                raise ValueError(
                    "the signal log_ratio needs a reference policy: set actor_rollout_ref.actor.use_kl_loss=True, "
                    "or use Credit(signal=\"surprisal\")"
                )
            actor = self.config.actor_rollout_ref.actor
            loss = actor.policy_loss.loss_mode
            if loss in _REFUSED:
                problem = f'is "{loss}", which takes no weight per token'
                raise ValueError(f"actor_rollout_ref.actor.policy_loss.loss_mode {problem}")
            multiplier = token_multiplier(
                data["response_mask"],
                credit=credit,
                aggregation=aggregation_of(loss, actor.loss_agg_mode),
                token_ids=data["responses"],
                tokenizer=self.tokenizer,
                old_logprobs=data["old_log_probs"],
                ref_logprobs=data["ref_log_prob"] if credit.wants_ref_logprobs else None,
                entropy=data["entropy"] if credit.wants_entropy else None,
                group_ids=data.pop("uid").tolist(),
            )
            advantages = data["advantages"]
            data["advantages"] = sys.modules["torch"].nested.nested_tensor_from_jagged(
                advantages.values() * multiplier.values(), advantages.offsets()
            )
            queue.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=data.select("advantages"))
            return batch

        return compute_advantage

    replace(trainer, name, make)
