"""ActFocus and AEM in TRL's GRPOTrainer.

Written for TRL 1.9.0 (2026-07-21) and its main branch at commit f2cd57710 (2026-07-24):
trl/trainer/grpo_trainer.py, GRPOTrainer._generate_and_score_completions(inputs), which
returns the advantages, and _compute_loss, which takes them as [B, T] since TRL 0.26.

Before the trainer is made:

    from reweight.adapters import trl
    trl.install()

The advantages [B] of a generation batch become [B, T], of the shape of completion_ids.
The responses are the runs of completion_mask * tool_mask. Log-probabilities are
old_per_token_logps, else those of vLLM, sampling_per_token_logps. Where there are neither,
and for the entropy of AEM, one more forward pass of the policy is made without gradients;
Credit(entropy="surprisal") saves it. Sums and groups are those of all processes.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from typing import Any, Dict, List, Tuple

from . import Credit, HookError, find_hook, replace, token_multiplier, version_of

WRITTEN_FOR = "TRL 1.9.0"

# How GRPOTrainer._compute_loss makes one number of its tokens' losses, by loss_type.
_AGGREGATIONS = {
    "grpo": "seq_mean_token_mean",
    "sapo": "seq_mean_token_mean",
    "bnpo": "token_mean",
    "dapo": "token_mean",
    "cispo": "token_mean",
    "vespo": "token_mean",
    "dr_grpo": "token_sum",
}


def install(credit: Credit = Credit()) -> None:
    """Makes GRPOTrainer multiply its advantages by the credit's token_multiplier."""
    credit.check("TRL", entropy=True)
    path = "trl.trainer.grpo_trainer:GRPOTrainer."
    find_hook("TRL", path + "_get_per_token_logps_and_entropies", ("attention_mask", "compute_entropy"), WRITTEN_FOR)
    trainer, name = find_hook("TRL", path + "_generate_and_score_completions", ("inputs",), WRITTEN_FOR)
    if tuple(int(part) for part in version_of("trl").split(".")[:2]) < (0, 26):
        found = version_of("trl")
        raise HookError(f"reweight.adapters.trl needs TRL 0.26, which takes advantages per token, but found {found}")

    def make(original: Any) -> Any:
        def generate_and_score_completions(self: Any, inputs: Any) -> Any:
            output = original(self, inputs)
            if not self.model.training:
                return output
            if self.use_liger_kernel or self.loss_type not in _AGGREGATIONS:
                what = "use_liger_kernel=True" if self.use_liger_kernel else f'loss_type="{self.loss_type}"'
                want = f"one of the loss types {', '.join(_AGGREGATIONS)} without the kernel of Liger"
                raise ValueError(f"{what} takes one advantage per completion, want {want}")
            if credit.wants_ref_logprobs and "ref_per_token_logps" not in output:
                raise ValueError(
                    "the signal log_ratio needs a reference model: set beta above 0, or use Credit(signal=\"surprisal\")"
                )
            mask = output["completion_mask"] * output.get("tool_mask", 1)
            rows, rank = mask.shape[0], self.accelerator.process_index
            logps, entropy = output.get("old_per_token_logps", output.get("sampling_per_token_logps")), None
            if credit.wants_entropy or logps is None:
                new, entropy = _forward(self, output)
                logps = new if logps is None else logps
            multiplier = token_multiplier(
                mask,
                credit=credit,
                aggregation=_AGGREGATIONS[self.loss_type],
                token_ids=output["completion_ids"],
                tokenizer=getattr(self, "_tokenizer", self.processing_class),
                old_logprobs=logps,
                ref_logprobs=output.get("ref_per_token_logps"),
                entropy=entropy,
                group_ids=[(rank * rows + row) // self.num_generations for row in range(rows)],
                gather=lambda part: (_gathered(part), rank),
            )
            advantages = output["advantages"]
            output["advantages"] = (advantages.unsqueeze(1) if advantages.dim() == 1 else advantages) * multiplier
            return output

        return generate_and_score_completions

    replace(trainer, name, make)


def _forward(trainer: Any, output: Dict[str, Any]) -> Tuple[Any, Any]:
    """Returns the log-probabilities of the completions under the policy, and its entropy."""
    torch, method = sys.modules["torch"], trainer._get_per_token_logps_and_entropies
    images = {key: output[key] for key in inspect.signature(method).parameters if key in output}
    with torch.no_grad():
        logps, entropy = method(
            trainer.model,
            torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1),
            torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1),
            output["completion_ids"].shape[1],
            trainer.args.per_device_train_batch_size,
            compute_entropy=True,
            **images,
        )[:2]
    return logps, entropy


def _gathered(part: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Returns the dicts of all processes."""
    parts: List[Dict[str, Any]] = importlib.import_module("accelerate.utils").gather_object([part])
    return parts
