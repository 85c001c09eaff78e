"""Credit in ms-swift's GRPOTrainer, of swift rlhf --rlhf_type grpo.

Tested in whole runs of ms-swift 4.6.0. In a file credit.py, beside your rewards if you have any:

    from reweight.adapters import ms_swift
    ms_swift.install()

and swift rlhf --rlhf_type grpo --external_plugins credit.py, with your other options.

The advantages [B, T] of the micro-batches of a generation are replaced when ms-swift has made them. The responses are the
runs of completion_mask; those that --overlong_filter takes out of the loss do not count in sums and means.
Log-probabilities are old_per_token_logps. For the entropy one more forward pass of the policy is made without gradients;
Credit(entropy="surprisal") saves it. Rewards are the weighted sums of those of the reward functions. Sums and groups are
those of all processes, and the scalars are in ms-swift's log.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Dict, List

from .. import InputError
from . import Credit, HookError, token_advantages, trl
from ._hooks import find_hook, replace, version_of, when_imported
from ._pages import batch_name
from ._report import Report

WRITTEN_FOR = "ms-swift 4.6.0"

_TRAINER = "swift.rlhf_trainers.grpo_trainer:GRPOTrainer."
# How _compute_loss_and_metrics makes one number of its tokens' losses, by loss_type.
_AGGREGATIONS = {name: trl._AGGREGATIONS[name] for name in ("grpo", "sapo", "bnpo", "dapo", "cispo", "dr_grpo")}
# What ms-swift does itself, by its options.
_OWN = {
    "loss": "--loss_type (with --importance_sampling_level)",
    "rollout_logprobs": "--rollout_importance_sampling_mode",
    "gdpo": "--scale_rewards gdpo",
    "rlsd": "--advantage_reweight rlsd",
    "fipo": "--loss_type fipo",
}
_ELSEWHERE = "computes its advantages where reweight does not reach them: use swift rlhf without Megatron and Ray"


def install(credit: Credit = Credit()) -> None:
    """Makes every GRPOTrainer of ms-swift in this process give its advantages to token_advantages, with the credit. A trainer
    that has no place for it raises ValueError or HookError when it is made."""
    Credit.check(credit, "ms-swift", _OWN, ("entropy",))
    forward = ("model_inputs", "grpo_batch", "compute_entropy")
    find_hook("ms-swift", _TRAINER + "_get_per_token_logps_and_entropies", forward, WRITTEN_FOR)
    find_hook("ms-swift", _TRAINER + "_compute_loss_and_metrics", ("grpo_batch",), WRITTEN_FOR)
    trainer, name = find_hook("ms-swift", _TRAINER + "_postprocess_batch", ("samples", "batch_encoded_inputs"), WRITTEN_FOR)
    report = Report(credit, f"ms-swift {version_of('ms-swift')}")

    def make(original: Any) -> Any:
        def postprocess_batch(self: Any, samples: Any, batch_encoded_inputs: Any) -> None:
            original(self, samples, batch_encoded_inputs)
            if self.model.training:
                _credited(self, batch_encoded_inputs, credit, report)

        return postprocess_batch

    trl.watch(trainer, name, functools.partial(_check_trainer, credit=credit))
    replace(trainer, name, make, report)
    for module, kind in ("swift.megatron.trainers.grpo_trainer", "MegatronGRPOTrainer"), ("swift.ray.megatron.grpo_trainer", "GRPOTrainer"):
        when_imported(module, functools.partial(_refuse, module, kind))


def _refuse(module: str, kind: str) -> None:
    owner = getattr(sys.modules.get(module), kind, None)
    if owner is not None:
        replace(owner, "__init__", functools.partial(trl.refused, _ELSEWHERE))


def _check_trainer(trainer: Any, credit: Credit) -> None:
    """Wants a configuration in which a token's loss is in proportion to its advantage."""
    if trainer.loss_type not in _AGGREGATIONS:
        raise InputError("loss_type", f'is "{trainer.loss_type}", want one of [{" ".join(_AGGREGATIONS)}], tested with {WRITTEN_FOR}')
    for wrong, problem in (
        (trainer.use_liger_loss, "use_liger_kernel=True takes one advantage per completion, want use_liger_kernel=False"),
        (
            trainer.off_policy_sequence_mask_delta is not None,
            "off_policy_sequence_mask_delta takes completions out of the loss by the mean of their advantages, which the credit changes: leave it out",
        ),
        (trainer.template.padding_free, "padding_free=True joins the rows of a batch, with which the credit was not tested, want padding_free=False"),
        (trainer.template.sequence_parallel_size > 1, "sequence_parallel_size above 1 gives processes the same rows, which would count twice, want 1"),
        (
            trainer.kl_in_reward and trainer.beta != 0 and credit.makes_advantages,
            f"kl_in_reward=True puts a penalty into ms-swift's advantages, in whose place {credit.scheme} makes others, want kl_in_reward=False",
        ),
    ):
        if wrong:
            raise ValueError(problem)
    if "ref_logprobs" in credit.reads and trainer.beta == 0:
        raise InputError("scheme", 'reads ref_logprobs, for which ms-swift needs a reference model: set --beta above 0, or use signal="surprisal"')


def _credited(trainer: Any, encoded: List[Dict[str, Any]], credit: Credit, report: Report) -> None:
    """Replaces the advantages of the micro-batches."""
    if trainer.dynamic_num_samples:
        raise HookError("a scheduler splits trajectories into several samples, with which the credit was not tested: let it return one for each")
    torch, rank = sys.modules["torch"], trainer.accelerator.process_index
    batches = [one["grpo_batch"] for one in encoded]
    if any(batch.teacher_per_token_logps is not None for batch in batches):
        raise HookError("a teacher makes a part of the advantages of tokens, with which the credit was not tested: train without one")
    trainer._reweight_credited = True

    def rows(of: Callable[[Any], Any]) -> List[Any]:
        return [row for batch in batches for row in of(batch)]

    def ended(batch: Any) -> Any:
        return ~batch.truncated_mask.unsqueeze(1) if trainer.overlong_filter else True

    sampled = rows(lambda batch: batch.completion_mask)
    whole = [row for one in encoded for row in one["model_inputs"]["input_ids"]]
    entropy, prompts, before = None, None, [0] * len(sampled)  # columns before a completion, of its prompt
    if credit.saves_next or "entropy" in credit.reads:
        with torch.no_grad():
            method = functools.partial(trainer._get_per_token_logps_and_entropies, trainer.model, compute_entropy=True)
            entropy = [row for one in encoded for row in method(one["model_inputs"], one["grpo_batch"])[1]]
    if credit.wants_prompts:
        there = [row != 0 for one in encoded for row in one["model_inputs"]["attention_mask"]]
        before = [int(mask.int().argmax()) for mask in sampled]
        ends = [len(ids) - len(mask) + n for ids, mask, n in zip(whole, sampled, before)]
        prompts = [ids[:end][kept[:end]] for ids, kept, end in zip(whole, there, ends)]

    def cut(x: List[Any]) -> List[Any]:
        return [row[n:] for row, n in zip(x, before)]

    aggregation = _AGGREGATIONS[trainer.loss_type]
    log: Dict[str, float] = {}
    made = token_advantages(
        cut(rows(lambda batch: batch.advantages.expand_as(batch.completion_mask))),
        cut(rows(lambda batch: batch.completion_mask & ended(batch))),
        sampled=cut(sampled),
        credit=credit,
        aggregation=aggregation,
        token_ids=cut([ids[-len(mask) :] for ids, mask in zip(whole, sampled)]),
        tokenizer=trainer.template.tokenizer,
        old_logprobs=cut(rows(lambda batch: batch.old_per_token_logps)),
        ref_logprobs=None if trainer.beta == 0 else cut(rows(lambda batch: batch.ref_per_token_logps)),
        entropy=None if entropy is None else cut(entropy),
        rewards=trl._rewards(trainer, [trainer._rewards_per_func], len(sampled), rank, credit),
        group_ids=[(rank * len(sampled) + row) // trainer.num_generations for row in range(len(sampled))],
        gather=lambda part: (trl._parts(part), rank),
        prompt_ids=prompts,
        log=log,
        batch_name=batch_name(trainer.args.run_name or trainer.args.output_dir, trainer.state.global_step + 1),
    )
    made = [torch.nn.functional.pad(row, (n, 0)) for row, n in zip(made, before)]
    for batch in batches:
        of_batch, made = made[: len(batch.completion_mask)], made[len(batch.completion_mask) :]
        batch.advantages = torch.stack(of_batch)
    report.batch(f"{trainer.loss_type} ({aggregation})", log, trainer.accelerator.is_main_process)
    for name, value in log.items():
        trainer._metrics["train"][name].append(value)
