"""Credit in TRL's GRPOTrainer.

Tested in whole runs of TRL 1.16.0, and with TRL 1.9.0 (2026-07-21) by reading. In the place of TRL's trainer:

    from reweight.adapters.trl import GRPOTrainer

    trainer = GRPOTrainer(credit=Credit(), model=...)

for a subclass of your own, the mixin in front of it:

    class MyTrainer(CreditMixin, MyGRPOTrainer): ...

and where the class cannot be changed, in the same process, before the trainer is made:

    from reweight.adapters import trl
    trl.install()

install(None, head=True) gives every model of this process a faster head, and no credit.

The advantages [B] of a generation batch become [B, T], of the shape of completion_ids, which _compute_loss takes "to
support subclasses". The responses are the runs of completion_mask * tool_mask. Log-probabilities are
old_per_token_logps, else those of vLLM, sampling_per_token_logps. Where there are neither, and for the entropy of AEM, one
more forward pass of the policy is made without gradients; Credit(entropy="surprisal") saves it. Credit(signal="energy"),
ActFocus's own signal, takes what the reference's forward pass leaves in the head of install(head=True). Sums and groups
are those of all processes. Rewards are the weighted sums of what _calculate_rewards returns, and as for TRL a completion
that no function scored has none. The scalars of token_advantages are in TRL's log. TRL's table of completions keeps the
advantages of whole completions. Credit(show_every=50) counts generation batches, not those of an evaluation.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import re
import sys
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from .. import InputError
from .._errors import described
from . import Credit, HookError, token_advantages
from ._hooks import find_hook, replace, version_of
from ._report import Report

WRITTEN_FOR = "TRL 1.16.0"

_TRAINER = "trl.trainer.grpo_trainer:GRPOTrainer."
# How GRPOTrainer._compute_loss makes one number of its tokens' losses, by loss_type. luspo sums them, and divides by
# numbers that the tokens have no part in.
_AGGREGATIONS = {
    "grpo": "seq_mean_token_mean",
    "sapo": "seq_mean_token_mean",
    "bnpo": "token_mean",
    "dapo": "token_mean",
    "cispo": "token_mean",
    "vespo": "token_mean",
    "dr_grpo": "token_sum",
    "luspo": "token_sum",
}
_NO_PLACE = (
    "has one ratio and one advantage per completion, and no place for weights of tokens: use GRPOTrainer; "
    'its scale_rewards="none" gives the advantages of RLOO times (n-1)/n for n generations'
)
# What TRL does itself, by its options.
_OWN = {
    "loss": "loss_type (with importance_sampling_level)",
    "rollout_logprobs": "vllm_importance_sampling_correction",
    "off_policy_mask": "off_policy_mask_threshold",
    "gdpo": 'multi_objective_aggregation="normalize_then_sum"',
}
# The module of the head, once install(head=True) has put it into TRL.
_head: Any = None


class CreditMixin:
    """Makes a subclass of TRL's GRPOTrainer of it that gives its advantages to token_advantages, with the credit.

    credit: what is computed; the other arguments are the trainer's. Raises HookError for a TRL or a trainer that it does
    not fit, and ValueError for a configuration that leaves no place for weights of tokens.
    """

    def __init__(self, *args: Any, credit: Credit = Credit(), **options: Any) -> None:
        trainer, _ = _check_trl(credit)
        if not isinstance(self, trainer):
            raise HookError(f"{type(self).__name__} {_NO_PLACE}")
        super().__init__(*args, **options)
        _check_trainer(self, credit)
        self.credit, self.report = credit, Report(credit, f"TRL {version_of('trl')}")

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        return _credited(self, super()._generate_and_score_completions, inputs, self.credit, self.report)  # type: ignore[misc]


def __getattr__(name: str) -> Any:
    """GRPOTrainer: TRL is imported when it is asked for."""
    if name != "GRPOTrainer":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    trainer, _ = find_hook("TRL", _TRAINER + "_generate_and_score_completions", ("inputs",), WRITTEN_FOR)
    made = type("GRPOTrainer", (CreditMixin, trainer), {"__module__": __name__, "__doc__": CreditMixin.__doc__})
    globals()[name] = made
    return made


def install(credit: Optional[Credit] = Credit(), *, head: bool = False) -> None:
    """Makes every GRPOTrainer of this process give its advantages to token_advantages, with the credit. A trainer that has
    no place for it raises HookError when it is made, and one with a credit of its own before its first rollout. None: no
    credit.

    head: whether every model of this process, whose head TRL would have score its labels in chunks of the vocabulary,
    does so by reweight.torch.linear_token_stats: the same log-probabilities and entropies, in less time.
    Credit(signal="energy") needs it.
    """
    global _head
    if head:
        _head = importlib.import_module("reweight.adapters._trl_head")  # which imports PyTorch
        _head.install()
    if credit is None:
        return
    trainer, name = _check_trl(credit)
    report = Report(credit, f"TRL {version_of('trl')}")

    def make_init(original: Any) -> Any:
        def init(self: Any, *args: Any, **options: Any) -> None:
            original(self, *args, **options)
            _check_trainer(self, credit)

        return init

    def make(original: Any) -> Any:
        def generate_and_score_completions(self: Any, inputs: Any) -> Any:
            if isinstance(self, CreditMixin):
                raise HookError(f"{type(self).__name__} has a credit, and trl.install was called: want one of them")
            return _credited(self, functools.partial(original, self), inputs, credit, report)

        return generate_and_score_completions

    def refuse(original: Any) -> Any:
        def init(self: Any, *args: Any, **options: Any) -> None:
            raise HookError(f"{type(self).__name__} {_NO_PLACE}")

        return init

    replace(trainer, "__init__", make_init)
    replace(trainer, name, make, report)
    replace(find_hook("TRL", "trl.trainer.rloo_trainer:RLOOTrainer.__init__", (), WRITTEN_FOR)[0], "__init__", refuse)


def _check_trl(credit: Credit) -> Tuple[Any, str]:
    """Looks at the TRL that is installed, and returns where the adapter takes hold of it."""
    if not isinstance(credit, Credit):
        raise TypeError(f"credit is {described(credit)}, want a Credit")
    if "ref_energy" in credit.reads and _head is None:
        problem = 'is "energy", which needs the head of reweight.adapters.trl.install(head=True)'
        raise InputError("signal", f'{problem}, or install(None, head=True) where a subclass has the credit')
    credit.check("TRL", _OWN, ("entropy", "ref_energy"))
    forward = ("attention_mask", "compute_entropy")
    find_hook("TRL", _TRAINER + "_get_per_token_logps_and_entropies", forward, WRITTEN_FOR)
    found = find_hook("TRL", _TRAINER + "_generate_and_score_completions", ("inputs",), WRITTEN_FOR)
    find_hook("TRL", _TRAINER + "_calculate_rewards", (), WRITTEN_FOR)
    version = version_of("trl")
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < (0, 26):
        raise HookError(f"reweight.adapters.trl needs TRL 0.26, which takes advantages per token, but found {version}")
    return found


def _check_trainer(trainer: Any, credit: Credit) -> None:
    """Wants a configuration in which a token's loss is in proportion to its advantage."""
    # Before TRL 1.16 the kernel of Liger computed the loss, which took one advantage per completion.
    liger = getattr(trainer, "use_liger_kernel", False)
    if liger or trainer.loss_type not in _AGGREGATIONS:
        what = "use_liger_kernel=True" if liger else f'loss_type="{trainer.loss_type}"'
        want = f"one of the loss types {', '.join(_AGGREGATIONS)} without the kernel of Liger"
        raise ValueError(f"{what} takes one advantage per completion, want {want}")
    loss = type(trainer)._compute_loss
    if loss is not find_hook("TRL", _TRAINER + "_compute_loss", ("inputs",), WRITTEN_FOR)[0]._compute_loss:
        if loss.__module__.startswith("trl."):
            raise HookError(f"{type(trainer).__name__} has a loss of its own, for which no weights of tokens are known")
        warnings.warn(
            f"{loss.__qualname__} is not TRL's: the credit is right if the loss of a token is in proportion to its "
            f'advantage, and the sum is divided as TRL does for loss_type="{trainer.loss_type}"'
        )
    needed = sorted({"ref_logprobs", "ref_energy"} & credit.reads)
    if needed and trainer.beta == 0:
        problem = f'reads {needed[0]}, for which TRL needs a reference model: set beta above 0, or use signal="surprisal"'
        raise InputError("scheme", f"{problem} for ActFocus")


def _credited(
    trainer: Any, generate: Callable[[Any], Dict[str, Any]], inputs: Any, credit: Credit, report: Report
) -> Dict[str, Any]:
    """Returns what generate, the trainer's _generate_and_score_completions, returns, with advantages per token."""
    if not trainer.model.training:
        return generate(inputs)
    energies_of = _head.energies(trainer) if "ref_energy" in credit.reads else contextlib.nullcontext([None])
    with energies_of as energies, _scores(trainer) as scores:
        output = generate(inputs)
    mask = output["completion_mask"] * output.get("tool_mask", 1)
    rows, rank = mask.shape[0], trainer.accelerator.process_index
    logps, entropy = output.get("old_per_token_logps", output.get("sampling_per_token_logps")), None
    if "entropy" in credit.reads or (logps is None and "old_logprobs" in credit.reads):
        new, entropy = _forward(trainer, output)
        logps = new if logps is None else logps
    advantages = output["advantages"]
    advantages = advantages.unsqueeze(1) if advantages.dim() == 1 else advantages
    prompts = None
    if credit.show_every:
        prompts = [ids[kept != 0] for ids, kept in zip(output["prompt_ids"], output["prompt_mask"])]
    aggregation = _AGGREGATIONS[trainer.loss_type]
    log: Dict[str, float] = {}
    output["advantages"] = token_advantages(
        advantages.expand_as(mask),
        mask,
        credit=credit,
        aggregation=aggregation,
        token_ids=output["completion_ids"],
        tokenizer=getattr(trainer, "_tokenizer", trainer.processing_class),
        old_logprobs=logps,
        ref_logprobs=output.get("ref_per_token_logps"),
        ref_energy=energies[-1],  # the reference is the last model that TRL has score the completions
        entropy=entropy if "entropy" in credit.reads else None,
        rewards=_rewards(trainer, scores, rows, rank, credit),
        group_ids=[(rank * rows + row) // trainer.num_generations for row in range(rows)],
        gather=lambda part: (_gathered(part), rank),
        log=log,
        prompt_ids=prompts,
    )
    for name, value in log.items():
        trainer._metrics["train"][name].append(value)
    report.batch(f"{trainer.loss_type} ({aggregation})", log, trainer.accelerator.is_main_process)
    return output


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


@contextlib.contextmanager
def _scores(trainer: Any) -> Iterator[List[Any]]:
    """Gives a list, to which every call of the trainer's _calculate_rewards within adds what it returns: the score of each
    completion of all processes by each reward function, NaN where a function gave none."""
    scores: List[Any] = []
    calculate, own = trainer._calculate_rewards, "_calculate_rewards" in vars(trainer)

    def calculate_rewards(*args: Any, **options: Any) -> Any:
        scores.append(calculate(*args, **options))
        return scores[-1]

    trainer._calculate_rewards = calculate_rewards
    try:
        yield scores
    finally:
        if own:
            trainer._calculate_rewards = calculate
        else:
            del trainer._calculate_rewards


def _rewards(trainer: Any, scores: List[Any], rows: int, rank: int, credit: Credit) -> Any:
    """Returns the rewards of this process's completions, as TRL makes them of the scores: NaN where no function gave one."""
    needed = not credit.reads.isdisjoint(("rewards", "token_rewards"))
    found, want = [len(of_call) for of_call in scores], rows * trainer.accelerator.num_processes
    if found != [want]:
        if not needed:
            return None  # and neither the pages nor the log have rewards
        raise HookError(
            f"{type(trainer).__name__} scored batches of {found} completions by _calculate_rewards, want one of [{want}], all "
            f"completions of its processes: {credit.scheme} reads the rewards"
        )
    rewards = (scores[0] * trainer.reward_weights.to(scores[0].device)).nansum(dim=1)
    rewards[scores[0].isnan().all(dim=1)] = float("nan")
    return rewards[rank * rows : (rank + 1) * rows]


def _gathered(part: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Returns the dicts of all processes."""
    parts: List[Dict[str, Any]] = importlib.import_module("accelerate.utils").gather_object([part])
    return parts
