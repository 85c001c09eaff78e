"""What Unsloth's GRPOTrainer, which is made of TRL's, has in other columns.

Of text, its loss moves all tokens of padding to the right: the completion of a row with p of them in its prompt begins at
column m - p of W = m + T columns, where T are the columns of TRL's completions, and m is the largest p, or what the
log-probabilities of a larger batch have left it at. So are the log-probabilities that it returns. A token of padding that
was sampled is not in its loss.
"""

from __future__ import annotations

import sys
from typing import Any, Dict

_LOGPROBS = ("old_per_token_logps", "ref_per_token_logps")
_IMAGES = ("pixel_values", "pixel_values_videos")


def is_unsloth(trainer: type) -> bool:
    """Whether a class of trainers computes its loss by Unsloth's function."""
    return any(hasattr(sys.modules.get(c.__module__), "grpo_accumulated_loss") for c in trainer.__mro__)


def aligned(trainer: Any, batch: Dict[str, Any]) -> Dict[str, Any]:
    """Returns what the trainer made of a batch, with T columns in all arrays of the completions."""
    if not is_unsloth(type(trainer)) or _has_images(batch):
        return batch
    own = dict(batch)
    own["completion_mask"] = batch["completion_mask"] * _sampled(trainer, batch)
    for name in _LOGPROBS:
        own[name] = completions(trainer, batch, batch.get(name))
    return own


def completions(trainer: Any, batch: Dict[str, Any], logps: Any) -> Any:
    """Returns the T columns of the completions in log-probabilities with W columns."""
    if logps is None or not is_unsloth(type(trainer)) or _has_images(batch):
        return logps
    width = batch["completion_ids"].shape[1]
    return logps.gather(1, _columns(trainer, batch, logps.shape[1] - width))


def packed(trainer: Any, inputs: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the inputs of the loss, with W columns of advantages."""
    advantages = inputs["advantages"]
    if advantages.dim() == 1 or _has_images(inputs):
        return inputs
    logps = next((inputs[name] for name in _LOGPROBS if inputs.get(name) is not None), None)
    most = int(_padding(trainer, inputs).max()) if logps is None else logps.shape[1] - advantages.shape[1]
    columns, kept = _columns(trainer, inputs, most), advantages * _sampled(trainer, inputs)
    wide = advantages.new_zeros(len(advantages), most + advantages.shape[1])
    return {**inputs, "advantages": wide.scatter_add(1, columns, kept)}


def _columns(trainer: Any, batch: Dict[str, Any], most: int) -> Any:
    """Returns the column of W of each token of the completions, or one to its left of a token of padding; most is m."""
    begins = most - _padding(trainer, batch)
    return (begins[:, None] + _sampled(trainer, batch).cumsum(1) - 1).clamp(min=0)


def _padding(trainer: Any, batch: Dict[str, Any]) -> Any:
    """Returns how many tokens of padding each prompt has, as Unsloth counts them."""
    return (batch["prompt_ids"] == trainer.processing_class.pad_token_id).sum(1)


def _sampled(trainer: Any, batch: Dict[str, Any]) -> Any:
    """Returns where the completions have no token of padding."""
    return batch["completion_ids"] != trainer.processing_class.pad_token_id


def _has_images(batch: Dict[str, Any]) -> bool:
    return any(batch.get(name) is not None for name in _IMAGES)
