"""Credit in slime.

Written for slime 0.3.1 and its main branch at commit 624b824a8 (2026-08-21):
slime/backends/megatron_utils/loss.py, compute_advantages_and_returns(args, rollout_data),
which calls the function of --custom-advantage-function-path in each Megatron process of
the last pipeline stage; cp_utils.py, get_sum_of_sample_mean.

In a module of your own, say my_credit.py:

    from reweight.adapters.slime import advantage_function
    advantages = advantage_function()

and on the command line --custom-advantage-function-path my_credit.advantages.

The function lets slime compute the advantages of --advantage-estimator, and gives
them to the credit. rollout_data holds lists of one tensor per sample: tokens [total_length]; loss_masks,
log_probs, rollout_log_probs, ref_log_probs, advantages [response_length]. Sums and groups
are those of all data-parallel processes. slime keeps no entropy: schemes that
read it need Credit(entropy="surprisal").
"""

from __future__ import annotations

import argparse
import importlib
from typing import Any, Callable, Dict, List, Tuple

from . import Credit, token_advantages
from ._hooks import find_hook
from ._report import Report

WRITTEN_FOR = "slime 0.3.1"

# What slime does itself, by its options.
_OWN = {
    "loss": "--advantage-estimator (with --eps-clip, --calculate-per-token-loss)",
    "rollout_logprobs": "--use-tis",
    "off_policy_mask": "--use-opsm",
    "values": "--advantage-estimator ppo",
}


def advantage_function(credit: Credit = Credit(entropy="surprisal")) -> Callable[[Any, Dict[str, Any]], None]:
    """Returns the function for --custom-advantage-function-path. Tags that are strings are
    decoded by credit.tokenizer, or else by the one of --hf-checkpoint."""
    Credit.check(credit, "slime", _OWN)
    loss, name = find_hook(
        "slime", "slime.backends.megatron_utils.loss:compute_advantages_and_returns", ("args", "rollout_data"), WRITTEN_FOR
    )
    find_hook("slime", "slime.utils.processing_utils:load_tokenizer", ("name_or_path",), WRITTEN_FOR)
    tokenizers: Dict[str, Any] = {}
    report = Report(credit, "slime")

    def advantages(args: Any, rollout_data: Dict[str, Any]) -> None:
        if args.normalize_advantages:
            raise ValueError("--normalize-advantages would whiten the advantages of the credit: leave it out")
        inner = argparse.Namespace(**{**vars(args), "custom_advantage_function_path": None, "use_opd": False})
        getattr(loss, name)(inner, rollout_data)
        masks, lengths = rollout_data["loss_masks"], rollout_data["response_lengths"]
        logprobs = rollout_data.get("rollout_log_probs" if args.use_rollout_logprobs else "log_probs")
        logprobs = logprobs or rollout_data.get("rollout_log_probs")
        if not logprobs:
            raise ValueError("rollout_data has neither log_probs nor rollout_log_probs: add --use-rollout-logprobs")
        if "ref_logprobs" in credit.reads and not rollout_data.get("ref_log_probs"):
            raise ValueError('the scheme reads ref_logprobs, which needs --use-kl-loss or --kl-coef; or use signal="surprisal"')
        if credit.makes_advantages and args.kl_coef:
            raise ValueError(f"the advantages of {credit.scheme} have no penalty: use --use-kl-loss in the place of --kl-coef")
        if [len(row) for row in logprobs] != [int(n) for n in lengths]:
            raise ValueError("log_probs are split among processes: set --context-parallel-size 1")
        per_sample, sums = [int(mask.sum()) for mask in masks], rollout_data.get("rollout_mask_sums")
        if sums is not None and [int(n) for n in sums] != per_sample:
            if not credit.reads.isdisjoint(("rewards", "token_rewards")):
                raise ValueError(f"a rollout has several samples, of which the scheme {credit.scheme} would take each for one")
            if not args.calculate_per_token_loss and "rollout_ids" not in rollout_data:
                raise ValueError("a rollout has several samples, over which slime averages, and no rollout_ids: add --calculate-per-token-loss")
        if credit.tokenizer is None and args.hf_checkpoint not in tokenizers:
            load = importlib.import_module("slime.utils.processing_utils").load_tokenizer
            tokenizers[args.hf_checkpoint] = load(args.hf_checkpoint, trust_remote_code=True)
        aggregation = "token_mean" if args.calculate_per_token_loss else "seq_mean_token_mean"
        log: Dict[str, float] = {}
        rollout_data["advantages"] = token_advantages(
            rollout_data["advantages"],
            masks,
            credit=credit,
            aggregation=aggregation,
            token_ids=[row[len(row) - int(n) :] for row, n in zip(rollout_data["tokens"], lengths)],
            tokenizer=tokenizers.get(args.hf_checkpoint),
            old_logprobs=logprobs,
            ref_logprobs=rollout_data["ref_log_probs"] if "ref_logprobs" in credit.reads else None,
            rewards=rollout_data.get("local_raw_reward"),  # "rewards" are centred already
            group_ids=[int(i) // args.n_samples_per_prompt for i in rollout_data["sample_indices"]],
            rollout_ids=rollout_data.get("rollout_ids"),
            prompt_ids=[row[: len(row) - int(n)] for row, n in zip(rollout_data["tokens"], lengths)],
            gather=_gather,
            log=log,
        )
        report.batch(f"{args.advantage_estimator} ({aggregation})", log, _rank() == 0)
        # slime logs the mean of a list, over the samples of all processes.
        rollout_data.update({name: [value] * len(masks) for name, value in log.items()})

    return advantages


def _gather(part: Dict[str, Any]) -> Tuple[List[Dict[str, Any]], int]:
    """Returns the dicts of all data-parallel processes, and the place of this one's."""
    mpu = importlib.import_module("megatron.core").mpu
    distributed = importlib.import_module("torch.distributed")
    group = mpu.get_data_parallel_group()
    parts: List[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(parts, part, group=group)
    return parts, _rank()


def _rank() -> int:
    """Returns the place of this process among the data-parallel ones."""
    return int(importlib.import_module("megatron.core").mpu.get_data_parallel_rank())
