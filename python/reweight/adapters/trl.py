"""Credit in TRL's GRPOTrainer.

Tested in whole runs of TRL 1.16.0, and of older versions from 0.26.2, which python/tests/TRAINERS.md lists. In the place
of TRL's trainer:

    from reweight.adapters.trl import GRPOTrainer

    trainer = GRPOTrainer(credit=Credit(), model=...)

for a subclass of your own, the mixin in front of it:

    class MyTrainer(CreditMixin, MyGRPOTrainer): ...

and where the class cannot be changed, in the same process, before the trainer is made:

    from reweight.adapters.trl import install
    install()

install(None, head=True) gives every model of this process a faster head, and no credit.

The advantages [B] of a generation batch become [B, T], of the shape of completion_ids, which _compute_loss takes "to
support subclasses". The responses are the runs of completion_mask * tool_mask. Log-probabilities are
old_per_token_logps, else those of vLLM, sampling_per_token_logps. Where there are neither, and for the entropy of AEM, one
more forward pass of the policy is made without gradients; Credit(entropy="surprisal") saves it. Credit(signal="energy"),
ActFocus's own signal, takes what the reference's forward pass leaves in the head of install(head=True). Sums and groups
are those of all processes. Rewards are the weighted sums of what _calculate_rewards returns, and as for TRL a completion
that no function scored has none. Rewards of turns are lists that reward functions return, of which TRL gets the sums,
or what rollout_func returns as span_rewards, with the states before turns as anchors for gigpo. A column of the data set,
or an output of rollout_func, tells actions if Credit(action=...) has its name. A batch that Credit(save_every=50) writes
takes that forward pass too. The scalars of token_advantages are in TRL's log. TRL's table of completions keeps the advantages of whole completions.
Credit(show_every=50) counts generation batches, not those of an evaluation, and so do save_every and audit_every, whose
audits go on from those of the checkpoint that a run is resumed from.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import re
import sys
import warnings
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from .. import InputError
from . import Credit, HookError, token_advantages
from ._advantages import of_column
from ._audit import RunAudit
from ._hooks import find_hook, never_called, replace, version_of, when_imported
from ._layout import to_numpy
from ._pages import batch_name
from ._report import Report
from ._step import numbers, saying_how
from ._unsloth import aligned, completions, is_unsloth, packed

WRITTEN_FOR = "TRL 1.16.0"
# The older versions whose whole runs passed, as the table of python/tests/TRAINERS.md has them.
TESTED = (
    "0.26.2", "0.27.2", "0.28.0", "0.29.1", "1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0", "1.5.1", "1.6.0", "1.7.1", "1.8.0", "1.9.2",
    "1.10.0", "1.11.0", "1.12.0", "1.13.0", "1.14.2", "1.15.0",
)  # fmt: skip

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
# The first versions that compute these for advantages per token.
_SINCE = {"sapo": (0, 28), "luspo": (1, 10)}
_NO_PLACE = (
    "has one ratio and one advantage per completion, and no place for weights of tokens: use GRPOTrainer; "
    'its scale_rewards="none" gives the advantages of RLOO times (n-1)/n for n generations'
)
_TURNS = (
    "in TRL, the rewards of turns are lists, one for each completion, with a number for each run of tokens of the policy: a "
    "reward function or get_reward of an environment returns them, or rollout_func as span_rewards"
)
_STATES = "in TRL, rollout_func returns the states before turns as anchors, lists of integers or strings as long as those of span_rewards"
_ASYNC = "trl.experimental.async_grpo.async_grpo_trainer"
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
        _begin_audits(self, credit, self.report)

    def train(self, *args: Any, **options: Any) -> Any:
        with _watched(self, CreditMixin):
            return super().train(*args, **options)  # type: ignore[misc]

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        return _credited(self, super()._generate_and_score_completions, inputs, self.credit, self.report)  # type: ignore[misc]

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        inputs = packed(self, inputs) if is_unsloth(type(self)) else inputs
        return super().compute_loss(model, inputs, *args, **options)  # type: ignore[misc]


def __getattr__(name: str) -> Any:
    """GRPOTrainer: TRL is imported when it is asked for."""
    if name != "GRPOTrainer":
        raise AttributeError(f"module {__name__} has no attribute {name}")
    trainer, _ = _hook("_generate_and_score_completions", ("inputs",))
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

    def made(self: Any) -> None:
        _check_trainer(self, credit)
        _begin_audits(self, credit, report)

    def make(original: Any) -> Any:
        def generate_and_score_completions(self: Any, inputs: Any) -> Any:
            if isinstance(self, CreditMixin):
                raise HookError(f"{type(self).__name__} has a credit, and install of reweight.adapters.trl was called: want one of them")
            return _credited(self, functools.partial(original, self), inputs, credit, report)

        return generate_and_score_completions

    watch(trainer, name, made)
    replace(trainer, name, make, report)
    if is_unsloth(trainer):
        replace(trainer, "compute_loss", _packing)
    rloo, _ = find_hook("TRL", "trl.trainer.rloo_trainer:RLOOTrainer.__init__", (), WRITTEN_FOR, TESTED)
    replace(rloo, "__init__", functools.partial(refused, _NO_PLACE))
    when_imported(_ASYNC, _refuse_async)


def _packing(original: Any) -> Any:
    def compute_loss(self: Any, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
        return original(self, model, packed(self, inputs), *args, **options)

    return compute_loss


def watch(owner: Any, name: str, made: Callable[[Any], None]) -> None:
    """Has the trainers of the class owner call made when they are, and raise HookError before their first optimizer step if
    no batch had the credit, which the method of that name gives."""

    def make_init(original: Any) -> Any:
        def init(self: Any, *args: Any, **options: Any) -> None:
            original(self, *args, **options)
            made(self)

        return init

    def make_train(original: Any) -> Any:
        def train(self: Any, *args: Any, **options: Any) -> Any:
            with _watched(self, owner, name):
                return original(self, *args, **options)

        return train

    replace(owner, "__init__", make_init)
    replace(owner, "train", make_train)


def refused(problem: str, original: Any) -> Any:
    """Returns an __init__ in the place of the original, which raises HookError."""

    def init(self: Any, *args: Any, **options: Any) -> None:
        raise HookError(f"{type(self).__name__} {problem}")

    return init


def _refuse_async() -> None:
    kind = getattr(sys.modules.get(_ASYNC), "AsyncGRPOTrainer", None)
    if kind is not None:
        replace(kind, "__init__", functools.partial(refused, "computes its advantages where reweight does not reach them: use GRPOTrainer"))


@contextlib.contextmanager
def _watched(trainer: Any, owner: Any, name: str = "_generate_and_score_completions") -> Iterator[None]:
    """Within it the trainer raises HookError before its first optimizer step if no batch had the credit, because owner's
    method of that name, which gives it, was not called."""

    def before_step(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not getattr(trainer, "_reweight_credited", False):
            raise never_called(trainer, owner, name)

    base = importlib.import_module("transformers").TrainerCallback
    callback = type("Watch", (base,), {"on_pre_optimizer_step": before_step})()
    trainer.add_callback(callback)
    try:
        yield
    finally:
        trainer.remove_callback(callback)


def _check_trl(credit: Credit) -> Tuple[Any, str]:
    """Looks at the TRL that is installed, and returns where the adapter takes hold of it."""
    Credit.check(credit, "TRL", _OWN, ("entropy", "ref_energy", "span_rewards", "anchors"), audits=True, columns=True)
    if "ref_energy" in credit.reads and _head is None:
        problem = (
            'is "energy", which needs two things in TRL: a head, by install(head=True) of reweight.adapters.trl, or by '
            "install(None, head=True) where a subclass has the credit; and a reference model, by GRPOConfig(beta=...) above 0"
        )
        raise InputError("signal", problem)
    version = version_of("trl")
    if _numbers(version) < (0, 26):
        raise HookError(f"reweight.adapters.trl needs TRL 0.26, which takes advantages per token, but found {version}")
    _hook("_get_per_token_logps_and_entropies", ("attention_mask", "compute_entropy"))
    found = _hook("_generate_and_score_completions", ("inputs",))
    _hook("_calculate_rewards", ())
    return found


def _hook(name: str, parameters: Tuple[str, ...]) -> Tuple[Any, str]:
    """Returns GRPOTrainer, and the name of its method, which has these parameters."""
    return find_hook("TRL", _TRAINER + name, parameters, WRITTEN_FOR, TESTED)


def _numbers(version: str) -> Tuple[int, ...]:
    """The first two numbers of a version; of one without numbers, such as an unknown one, those of the version that this
    was written for."""
    return tuple(int(n) for n in (re.findall(r"\d+", version) or re.findall(r"\d+", WRITTEN_FOR))[:2])


def _check_trainer(trainer: Any, credit: Credit) -> None:
    """Wants a configuration in which a token's loss is in proportion to its advantage."""
    # Before TRL 1.16 the kernel of Liger computed the loss, which took one advantage per completion.
    liger = getattr(trainer, "use_liger_kernel", False)
    if liger:
        raise ValueError("use_liger_kernel=True takes one advantage per completion, want use_liger_kernel=False")
    if trainer.loss_type not in _AGGREGATIONS:
        want = f"want one of [{' '.join(_AGGREGATIONS)}], the losses of {WRITTEN_FOR}"
        raise InputError("loss_type", f'is "{trainer.loss_type}", {want}')
    version, since = version_of("trl"), _SINCE.get(trainer.loss_type, (0,))
    if _numbers(version) < since:
        problem = f"which TRL {version} computes for one advantage per completion: want TRL {'.'.join(map(str, since))}"
        raise InputError("loss_type", f'is "{trainer.loss_type}", {problem}')
    if getattr(trainer, "rollout_func", None) is not None and _numbers(version) < (0, 29):
        raise InputError("rollout_func", f"is called by TRL {version} for vLLM alone, and was not tested there: want TRL 0.29")
    if is_unsloth(type(trainer)):
        if "entropy" in credit.reads:
            raise InputError("entropy", 'is "exact", which the forward pass of Unsloth\'s trainer does not give: use Credit(entropy="surprisal")')
        if "ref_energy" in credit.reads:
            raise InputError("signal", 'is "energy", which was not tested in Unsloth: use Credit(signal="surprisal")')
        if credit.audited:
            raise InputError("audit_every", "was not tested in Unsloth: write rollouts with save_every, for python -m reweight audit")
        return _check_arrays(trainer, credit)
    loss = type(trainer)._compute_loss
    if loss is not _hook("_compute_loss", ("inputs",))[0]._compute_loss:
        if loss.__module__.startswith("trl."):
            raise HookError(f"{type(trainer).__name__} has a loss of its own, for which no weights of tokens are known")
        warnings.warn(
            f"{loss.__qualname__} is not TRL's: the credit is right if the loss of a token is in proportion to its "
            f'advantage, and the sum is divided as TRL does for loss_type="{trainer.loss_type}"'
        )
    _check_arrays(trainer, credit)


def _check_arrays(trainer: Any, credit: Credit) -> None:
    """Wants the trainer to have what the credit reads."""
    needed = sorted({"ref_logprobs", "ref_energy"} & credit.reads)
    if needed and trainer.beta == 0:
        problem = f"reads {needed[0]}, for which TRL needs a reference model: set GRPOConfig(beta=...) above 0, which is not"
        raise InputError("scheme", f'{problem} the beta of Credit, or use Credit(signal="surprisal") for ActFocus')
    if "anchors" in credit.reads and getattr(trainer, "rollout_func", None) is None:
        raise InputError("scheme", f"reads anchors, but the trainer has no rollout_func: {_STATES}")
    if "span_rewards" in credit.reads and getattr(trainer, "rollout_func", None) is None:
        if all(isinstance(function, sys.modules["torch"].nn.Module) for function in trainer.reward_funcs):
            raise InputError("scheme", f"reads span_rewards, but the trainer has reward models alone: {_TURNS}")


def _begin_audits(trainer: Any, credit: Credit, report: Report) -> None:
    """Sets the trainer's audits, if the credit has any, which are saved and loaded with its checkpoints."""
    if not credit.audited:
        return
    argument = "audit_every" if credit.audit_every else "scheme"
    value = getattr(credit, argument)
    if trainer.num_generations < 3:
        raise InputError(argument, f"is {value}, and num_generations {trainer.num_generations}: an audit needs three answers to each prompt")
    accelerator = trainer.accelerator
    kind, plugin = str(accelerator.distributed_type).rpartition(".")[2], getattr(accelerator.state, "deepspeed_plugin", None)
    if kind in ("FSDP", "MEGATRON_LM") or (plugin is not None and plugin.zero_stage == 3):
        raise InputError(argument, f"is {value}, but no process has all weights of the model: write rollouts to a file, for python -m reweight audit")
    audit = RunAudit(credit, report, _parts, accelerator.process_index)

    def saved(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            audit.save(os.path.join(args.output_dir, f"checkpoint-{state.global_step}"))

    def begins(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step:
            audit.load(os.path.join(args.output_dir, f"checkpoint-{state.global_step}"))

    base = importlib.import_module("transformers").TrainerCallback
    trainer.add_callback(type("Audits", (base,), {"on_save": saved, "on_train_begin": begins}))
    trainer._reweight_audit = audit


@saying_how(_TURNS)
def _credited(
    trainer: Any, generate: Callable[[Any], Dict[str, Any]], inputs: Any, credit: Credit, report: Report
) -> Dict[str, Any]:
    """Returns what generate, the trainer's _generate_and_score_completions, returns, with advantages per token."""
    lists_of: Any = _lists(trainer) if "span_rewards" in credit.reads else contextlib.nullcontext({})
    if not trainer.model.training:
        with lists_of:
            return generate(inputs)
    trainer._reweight_credited = True
    energies_of = _head.energies(trainer) if "ref_energy" in credit.reads else contextlib.nullcontext([None])
    rollouts_of: Any = contextlib.nullcontext([])
    if "span_rewards" in credit.reads and getattr(trainer, "rollout_func", None) is not None:
        rollouts_of = _returned(trainer, "rollout_func")
    with energies_of as energies, _returned(trainer, "_calculate_rewards") as scores, rollouts_of as rollouts, lists_of as lists:
        output = generate(inputs)
    audit = trainer._reweight_audit if credit.audited else None
    due = audit is not None and audit.due()
    torch, own = sys.modules["torch"], aligned(trainer, output)
    mask = own["completion_mask"] * output.get("tool_mask", 1)
    rows, rank = mask.shape[0], trainer.accelerator.process_index
    logps, entropy = own.get("old_per_token_logps"), None
    logps = own.get("sampling_per_token_logps") if logps is None else logps
    saves = credit.saves_next
    if saves or "entropy" in credit.reads or (logps is None and "old_logprobs" in credit.reads):
        new, entropy = _forward(trainer, output)
        logps = new if logps is None else logps
    advantages = output["advantages"]
    advantages = advantages.unsqueeze(1) if advantages.dim() == 1 else advantages
    prompts = None
    if credit.wants_prompts or due:
        prompts = [ids[kept != 0] for ids, kept in zip(output["prompt_ids"], output["prompt_mask"])]
    aggregation = _AGGREGATIONS[trainer.loss_type]
    tokenizer = getattr(trainer, "_tokenizer", trainer.processing_class)
    rewards = outcomes = _rewards(trainer, scores, rows, rank, credit, due)
    turns = rollouts[-1].get("span_rewards") if rollouts else None
    if turns is not None and any(row is not None for of_function in lists.values() for row in of_function):
        raise InputError("span_rewards", "is returned by rollout_func and by a reward function, want one of them")
    anchors = rollouts[-1].get("anchors") if rollouts else None
    if anchors is None and "anchors" in credit.reads:
        raise InputError("anchors", f"is nothing that rollout_func returns: {_STATES}")
    if turns is None and "span_rewards" in credit.reads:
        turns, rest = _of_functions(trainer, lists, scores[0], mask, rank)
        outcomes = _rewards(trainer, [rest], rows, rank, credit)
    groups = [(rank * rows + row) // trainer.num_generations for row in range(rows)]
    labels = weights = actions = None
    if isinstance(credit.action, str):
        actions = of_column(inputs, credit, output["completion_mask"], mask, output["completion_ids"], tokenizer)
    if audit:
        labels = audit.labels(mask, output["completion_ids"], tokenizer, actions) if due or credit.measured else None
        weights = torch.ones_like(mask) if labels is None else torch.from_numpy(audit.weights_of(labels)).to(mask.device)
    compute = functools.partial(
        token_advantages,
        mask=mask,
        token_ids=output["completion_ids"],
        tokenizer=tokenizer,
        actions=actions,
        old_logprobs=logps,
        ref_logprobs=own.get("ref_per_token_logps"),
        ref_energy=energies[-1],  # the reference is the last model that TRL has score the completions
        entropy=entropy if saves or "entropy" in credit.reads else None,
        rewards=outcomes,
        span_rewards=turns,
        anchors=anchors,
        group_ids=groups,
        weights=weights,
        gather=lambda part: (_parts(part), rank),
        prompt_ids=prompts,
        batch_name=batch_name(trainer.args.run_name or trainer.args.output_dir, trainer.state.global_step + 1),
    )
    log: Dict[str, float] = {}
    output["advantages"] = compute(advantages.expand_as(mask), credit=credit, aggregation=aggregation, log=log)
    report.batch(f"{trainer.loss_type} ({aggregation})", log, trainer.accelerator.is_main_process)
    if audit:
        log.update(audit.weights_log())
    if due:
        log.update(_look(trainer, output, compute, prompts, labels, rewards, groups))
    for name, value in log.items():
        trainer._metrics["train"][name].append(value)
    return output


def _look(
    trainer: Any, output: Dict[str, Any], compute: "functools.partial[Any]", prompts: Any, labels: Any, rewards: Any, groups: List[int]
) -> Dict[str, float]:
    """Audits prompts of the batch, and returns the scalars."""
    audit: RunAudit = trainer._reweight_audit
    images = _images(trainer, output)
    if images:
        raise InputError("audit_every", f"is {audit.credit.audited}, but the batch has {', '.join(images)}, which no audit reads")
    there, of_credit = output["completion_mask"] != 0, audit.of_credit
    weights = None
    if of_credit is not None:
        made = compute(output["advantages"].new_ones(there.shape), credit=of_credit, aggregation="token_sum")
        weights = [to_numpy(row[kept]) for row, kept in zip(made, there)]
    return audit.look(
        trainer.accelerator.unwrap_model(trainer.model, keep_torch_compile=False),
        trainer.temperature,
        [to_numpy(row) for row in prompts],
        [to_numpy(row[kept]) for row, kept in zip(output["completion_ids"], there)],
        [row[to_numpy(kept)] for row, kept in zip(labels, there)],
        to_numpy(rewards),
        groups,
        weights,
        compute.keywords["batch_name"],
    )


def _forward(trainer: Any, output: Dict[str, Any]) -> Tuple[Any, Any]:
    """Returns the log-probabilities of the completions under the policy, and its entropy."""
    torch, method = sys.modules["torch"], trainer._get_per_token_logps_and_entropies
    with torch.no_grad():
        logps, entropy = method(
            trainer.model,
            torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1),
            torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1),
            output["completion_ids"].shape[1],
            batch_size=trainer.args.per_device_train_batch_size,
            compute_entropy=True,
            **_images(trainer, output),
        )[:2]
    return completions(trainer, output, logps), entropy


def _images(trainer: Any, output: Dict[str, Any]) -> Dict[str, Any]:
    """What the model reads besides tokens."""
    # In TRL 1.14 the method hands **kwargs to another one.
    method = getattr(trainer, "_full_logits_logps", trainer._get_per_token_logps_and_entropies)
    names = inspect.signature(method).parameters
    return {key: output[key] for key in names if key in output}


@contextlib.contextmanager
def _returned(trainer: Any, name: str) -> Iterator[List[Any]]:
    """Gives a list, to which every call of the trainer's function of that name within adds what it returns."""
    found: List[Any] = []
    function, own = getattr(trainer, name), name in vars(trainer)

    def call(*args: Any, **options: Any) -> Any:
        found.append(function(*args, **options))
        return found[-1]

    setattr(trainer, name, call)
    try:
        yield found
    finally:
        if own:
            setattr(trainer, name, function)
        else:
            delattr(trainer, name)


@contextlib.contextmanager
def _lists(trainer: Any) -> Iterator[Dict[int, List[Any]]]:
    """Within it a reward function may return a list for a completion, of which TRL gets the sum. Gives the lists of each
    function by its place, None for a completion for which it returned no list."""
    found: Dict[int, List[Any]] = {}
    functions = trainer.reward_funcs

    def summed(place: int, given: Any) -> Any:
        given = list(given)
        found[place] = [numbers(x, q) if getattr(x, "ndim", hasattr(x, "__len__")) else None for q, x in enumerate(given)]
        return [x if row is None else float(row.sum()) for x, row in zip(given, found[place])]

    def of(place: int, function: Any) -> Any:
        async def later(*args: Any, **options: Any) -> Any:
            return summed(place, await function(*args, **options))

        def now(*args: Any, **options: Any) -> Any:
            return summed(place, function(*args, **options))

        if isinstance(function, sys.modules["torch"].nn.Module):
            return function
        inner = getattr(function, "func", function)  # of functools.partial
        return later if inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(inner.__call__) else now

    trainer.reward_funcs = [of(place, function) for place, function in enumerate(functions)]
    try:
        yield found
    finally:
        trainer.reward_funcs = functions


def _of_functions(trainer: Any, lists: Dict[int, List[Any]], scores: Any, mask: Any, rank: int) -> Tuple[List[Any], Any]:
    """Returns the rewards of turns of this process's completions by the lists of reward functions, and the scores of all
    completions without them. A completion that no function scored has zeros."""
    scores, weights, found = scores.clone(), trainer.reward_weights.tolist(), []
    turns = (sys.modules["torch"].diff(mask, dim=1, prepend=mask[:, :1] * 0) > 0).sum(1).tolist()
    for b, n in enumerate(turns):
        own = scores[rank * len(mask) + b]
        rows = {place: of_function[b] for place, of_function in lists.items() if of_function[b] is not None}
        lengths = [len(row) for row in rows.values()]
        if len(set(lengths)) > 1:
            raise InputError("span_rewards", f"has lists of {lengths} numbers by different functions, want one length", b)
        found.append(sum(weights[place] * row for place, row in rows.items()) if rows else [0.0] * n if own.isnan().all() else None)
        own[list(rows)] = 0
    return found, scores


def _rewards(trainer: Any, scores: List[Any], rows: int, rank: int, credit: Credit, audited: bool = False) -> Any:
    """Returns the rewards of this process's completions, as TRL makes them: NaN where no function gave one.

    scores: what _calculate_rewards returned, the scores of the completions of all processes by each reward function."""
    needed = audited or not credit.reads.isdisjoint(("rewards", "token_rewards"))
    found, want = [len(of_call) for of_call in scores], rows * trainer.accelerator.num_processes
    if found != [want]:
        if not needed:
            return None  # and neither the pages nor the log have rewards
        raise HookError(
            f"{type(trainer).__name__} scored batches of {found} completions by _calculate_rewards, want one of [{want}], all "
            f"completions of its processes: {'the audit' if audited else credit.scheme} reads the rewards"
        )
    rewards = (scores[0] * trainer.reward_weights.to(scores[0].device)).nansum(dim=1)
    rewards[scores[0].isnan().all(dim=1)] = float("nan")
    return rewards[rank * rows : (rank + 1) * rows]


def _parts(part: Any) -> List[Any]:
    """Returns what all processes give, in their order."""
    parts: List[Any] = importlib.import_module("accelerate.utils").gather_object([part])
    return parts
