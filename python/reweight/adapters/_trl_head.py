"""linear_token_stats in the place of the head that TRL gives its models.

TRL's add_fused_lm_head has GRPOTrainer and others score labels without all logits, by ChunkedLogProbFunction. This takes
the place of that function. The model's forward remains TRL's, with its masks, softcaps and scales; but where TRL scores
every position, without Triton, it now scores those that have a label. The head then also has the logsumexp of the logits,
the energy of ActFocus but for its sign: for a reference, see energies.

Written for TRL 1.16.0.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, Iterator, List, Optional, Tuple

import torch
from torch import Tensor

from ..torch import linear_token_stats
from ._hooks import HookError, find_hook, replace

_WRITTEN_FOR = "TRL 1.16.0"
_OURS = {"log_probs", "entropy"}
# Where the logsumexps go, while energies is at work.
_found: Optional[List[Tensor]] = None


def install() -> None:
    """Has every head that add_fused_lm_head has added, or will add, call linear_token_stats. TRL's own function remains
    for what that does not compute: the outputs log_sum_sq_probs, mean_logits and is_top1, float16, a logit scale that is
    not positive, and weights that DeepSpeed gathers for each operation."""
    find_hook("TRL", "trl.trainer.utils:add_fused_lm_head", ("temperature", "outputs"), _WRITTEN_FOR)
    order = ("hidden", "weight", "bias", "targets", "temperature", "chunk_size", "final_logit_softcapping", "logit_scale")
    utils, _ = find_hook("TRL", "trl.trainer.utils:_use_triton", ("device",), _WRITTEN_FOR)
    function, _ = find_hook("TRL", "trl.trainer.utils:_ChunkedLogProbFunction.forward", (*order, "outputs"), _WRITTEN_FOR)

    def make(theirs: Any) -> Any:
        def apply(*args: Any) -> Tuple[Optional[Tensor], ...]:
            hidden, weight, bias, targets, temperature, _, softcap, scale, outputs = args
            if not _takes(hidden, weight, scale, outputs):
                result: Tuple[Optional[Tensor], ...] = theirs(*args)
                return result
            logprobs, entropy, *lse = linear_token_stats(
                hidden,
                weight,
                targets,
                bias=bias,
                temperature=temperature,
                softcap=softcap,
                logit_scale=scale,
                entropy="entropy" in outputs,
                lse=_found is not None,
            )
            if _found is not None:
                _found.extend(t for t in lse if t is not None)
            return logprobs, entropy, None, None, None

        return apply

    replace(function, "apply", make)
    # What this says decides whether positions without a label are left out.
    replace(utils, "_use_triton", lambda theirs: lambda device: True)


def _takes(hidden: Tensor, weight: Tensor, scale: float, outputs: Tuple[str, ...]) -> bool:
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    return set(outputs) <= _OURS and dtype != torch.float16 and scale > 0 and not hasattr(weight, "ds_id")


@contextlib.contextmanager
def energies(trainer: Any) -> Iterator[List[Tensor]]:
    """Has the trainer's _get_per_token_logps_and_entropies add the energies of the tokens that it scores to the list that
    this gives: float32, of the shape of its log-probabilities, 0 where the attention mask is. The energy of a token is
    minus the logsumexp of the logits, at temperature 1, that it was drawn from. In _generate_and_score_completions the
    last one is that of the reference, where there is one: where beta is not 0.

    Raises HookError if a model's head is not that of install.
    """
    global _found
    method = trainer._get_per_token_logps_and_entropies
    signature = inspect.signature(method)
    result: List[Tensor] = []

    def scored(*args: Any, **options: Any) -> Any:
        global _found
        _found = []
        try:
            answer = method(*args, **options)
            parts = _found
        finally:
            _found = None
        given = signature.bind(*args, **options).arguments
        mask = given["attention_mask"][:, -given["logits_to_keep"] :] != 0
        if not parts or sum(t.numel() for t in parts) != int(mask.sum()):
            raise HookError("the head of this model was not set by reweight.adapters.trl.install(head=True)")
        result.append(torch.zeros_like(answer[0]).masked_scatter(mask, -torch.cat(parts).to(answer[0].dtype)))
        return answer

    trainer._get_per_token_logps_and_entropies = scored
    try:
        yield result
    finally:
        del trainer._get_per_token_logps_and_entropies
