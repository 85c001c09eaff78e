"""ActFocus and AEM in NeMo RL's GRPO.

Written for NeMo RL 0.7.0 and its main branch at commit 7ea279abf (2026-08-22):
nemo_rl/algorithms/advantage_estimator.py, GRPOAdvantageEstimator.compute_advantage(
prompt_ids, rewards, mask, **kwargs), as nemo_rl/algorithms/grpo.py calls it, and
nemo_rl/algorithms/loss/loss_functions.py, ClippedPGLossFn.

In the script that runs grpo_train, before it does:

    from reweight.adapters import nemo_rl
    nemo_rl.install(Credit(tokenizer=tokenizer, entropy="surprisal"))

mask, the log-probabilities and the advantages are [B, S], at the tokens themselves: the
log-probability at position t is that of token t, and the loss drops position 0. Token ids
are taken from repeated_batch, which has them as "message_log" in grpo_train and
async_grpo_train; where there is "input_ids", [B, S], from that. NeMo RL keeps no entropy:
AEM needs Credit(entropy="surprisal").
"""

from __future__ import annotations

import sys
from typing import Any, Dict

from . import Credit, Report, find_hook, replace, token_multiplier

WRITTEN_FOR = "NeMo RL 0.7.0"


def install(
    credit: Credit = Credit(entropy="surprisal"), *, token_level_loss: bool = True, estimator: str = "GRPOAdvantageEstimator"
) -> None:
    """Makes an advantage estimator multiply its advantages by the credit's token_multiplier. The scalars of the log are in the
    estimator's last_metrics, which async_grpo_train logs, and grpo_train does not.

    token_level_loss: as loss_fn.token_level_loss of the configuration.
    estimator: the class, of nemo_rl.algorithms.advantage_estimator.
    """
    credit.check("NeMo RL", entropy=False)
    owner, name = find_hook(
        "NeMo RL",
        f"nemo_rl.algorithms.advantage_estimator:{estimator}.compute_advantage",
        ("prompt_ids", "rewards", "mask", "kwargs"),
        WRITTEN_FOR,
    )
    report = Report(credit, "NeMo RL")
    aggregation = "token_mean" if token_level_loss else "seq_mean_token_mean"

    def make(original: Any) -> Any:
        def compute_advantage(self: Any, prompt_ids: Any, rewards: Any, mask: Any, **kwargs: Any) -> Any:
            result = original(self, prompt_ids=prompt_ids, rewards=rewards, mask=mask, **kwargs)
            logprobs = kwargs.get("logprobs_policy", kwargs.get("logprobs"))
            reference = kwargs.get("logprobs_reference", kwargs.get("reference_logprobs"))
            kept = mask.bool()
            if logprobs is None or kept.any() and not logprobs[kept].any():
                raise ValueError(
                    "with loss_fn.force_on_policy_ratio=true, NeMo RL computes no log-probabilities of the old policy: "
                    "set it to false"
                )
            if credit.wants_ref_logprobs and (reference is None or kept.any() and not reference[kept].any()):
                raise ValueError(
                    "the signal log_ratio needs grpo.skip_reference_policy_logprobs_calculation=false, "
                    "or use Credit(signal=\"surprisal\")"
                )
            torch = sys.modules["torch"]
            mask = mask.clone()
            mask[:, 0] = 0
            log: Dict[str, float] = {}
            multiplier = token_multiplier(
                mask,
                credit=credit,
                aggregation=aggregation,
                token_ids=_token_ids(kwargs.get("repeated_batch", {}), mask) if credit.actfocus and credit.tags else None,
                old_logprobs=logprobs,
                ref_logprobs=reference if credit.wants_ref_logprobs else None,
                group_ids=torch.unique(prompt_ids, dim=0, return_inverse=True)[1],
                log=log,
            )
            report.batch(f"{estimator} ({aggregation})", log)
            self.last_metrics = {**getattr(self, "last_metrics", {}), **log}  # async_grpo_train logs them
            if isinstance(result, tuple):  # advantages and returns, of estimators with a critic
                return (result[0] * multiplier, *result[1:])
            return result * multiplier

        return compute_advantage

    replace(owner, name, make, report)


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
