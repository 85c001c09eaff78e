"""Credit in OpenRLHF's PPO trainer with Ray.

Tested in whole runs of OpenRLHF 0.11.2. A script of your own takes the place of python -m openrlhf.cli.train_ppo_ray,
with the same arguments:

    from reweight.adapters import Credit
    from reweight.adapters.openrlhf import main

    main(Credit(entropy="surprisal"))

OpenRLHF has no place for advantages of one's own: RemoteExperienceMaker.compute_advantages_and_returns(experiences),
which runs in an actor of Ray, is replaced there. An Experience holds some samples, padded, [B, T]: action_mask,
action_log_probs and advantages are [B, T-1] and belong to the tokens sequences[:, 1:]. The responses are the runs of
action_mask, from which OpenRLHF takes nothing away, and samples whose index lies in the same n_samples_per_prompt share
a group. OpenRLHF hands no entropy to this method: schemes that read it need Credit(entropy="surprisal"). The scalars of
token_advantages are in OpenRLHF's log. Returns, which the critic learns from, stay as they are.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from typing import Any, Dict, List, Tuple

from .._errors import InputError
from . import Credit, token_advantages
from ._hooks import check_calls, find_hook, replace, version_of, when_imported
from ._report import Report

WRITTEN_FOR = "OpenRLHF 0.11.2"

# What OpenRLHF does itself, by its options.
_OWN = {
    "loss": "--actor.policy_loss_type (with --actor.loss_agg_mode)",
    "rollout_logprobs": "--algo.advantage.is_correction_level",
    "values": "--algo.advantage.estimator gae",
}
_MODULE = "openrlhf.trainer.ppo_utils.experience_maker"
# What meets an advantage, and with which values the loss was compared with the papers' formulas.
_TESTED = {
    "algo.advantage.estimator": (
        "gae", "reinforce", "rloo", "reinforce_baseline", "group_norm", "dr_grpo", "flash_reinforce",
    ),
    "algo.advantage.is_correction_level": ("off", "token", "seq"),
    "algo.advantage.is_correction_mode": ("mask", "clip"),
    "algo.advantage.is_correction_gating": ("ratio", "binary_kl", "tv"),
    "actor.policy_loss_type": ("ppo", "gspo"),
    "actor.loss_agg_mode": ("token-mean", "seq-mean-token-mean"),
}  # fmt: skip


def main(credit: Credit = Credit(entropy="surprisal")) -> None:
    """Runs openrlhf.cli.train_ppo_ray with the arguments of this process, and the credit in it.

    Ray calls install in every process that it starts for this run, on all nodes: each needs reweight.
    Raises HookError for an OpenRLHF that the adapter does not fit, and RuntimeError if ray.init was called before.
    """
    _check_openrlhf(credit)
    ray = importlib.import_module("ray")
    if ray.is_initialized():
        raise RuntimeError("ray.init was called before, and its workers would miss the credit: leave it to OpenRLHF")

    def setup() -> None:
        install(credit)

    def make(original: Any) -> Any:
        def init(*args: Any, runtime_env: Any = None, **options: Any) -> Any:
            return original(*args, runtime_env={**(runtime_env or {}), "worker_process_setup_hook": setup}, **options)

        return init

    replace(ray, "init", make)
    runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__")


def install(credit: Credit = Credit(entropy="surprisal")) -> None:
    """Makes every RemoteExperienceMaker of this process give its advantages to token_advantages, with the credit, once
    its module has been imported. It raises ValueError, when it is made, for arguments that the credit does not fit."""
    Credit.check(credit, "OpenRLHF", _OWN)
    when_imported(_MODULE, lambda: _install(credit))


def _check_openrlhf(credit: Credit) -> Tuple[Any, str]:
    """Looks at the OpenRLHF that is installed, and returns where the adapter takes hold of it."""
    Credit.check(credit, "OpenRLHF", _OWN)
    hook = f"{_MODULE}:RemoteExperienceMaker.compute_advantages_and_returns"
    return find_hook("OpenRLHF", hook, ("experiences",), WRITTEN_FOR)


def _install(credit: Credit) -> None:
    maker, name = _check_openrlhf(credit)

    def make_init(original: Any) -> Any:
        def init(self: Any, *args: Any, **options: Any) -> None:
            original(self, *args, **options)
            _check_maker(self, credit)
            check_calls(self, "make_experience_batch", maker, name)
            self.credit_report = Report(credit, f"OpenRLHF {version_of('openrlhf')}")

        return init

    def make(original: Any) -> Any:
        def compute_advantages_and_returns(self: Any, experiences: List[Any]) -> Any:
            experiences = original(self, experiences)
            self._reweight_credited = True
            _reweigh(self, experiences, credit)
            return experiences

        return compute_advantages_and_returns

    replace(maker, "__init__", make_init)
    replace(maker, name, make)


def _check_maker(maker: Any, credit: Credit) -> None:
    """Wants arguments of OpenRLHF for which the adapter was tested, and that give the credit what it needs."""
    for flag, tested in _TESTED.items():
        value = maker.args
        for name in flag.split("."):
            value = getattr(value, name, None)
        if value not in tested:
            want = " ".join(tested)
            raise ValueError(f"--{flag} {value} was not tested with weights of tokens, want one of [{want}]")
    kl = maker.args.algo.kl
    if "ref_logprobs" in credit.reads and not (kl.use_loss and maker.initial_model_group is not None):
        raise InputError(
            "scheme",
            "reads ref_logprobs, for which OpenRLHF needs --algo.kl.use_loss and an --algo.kl.init_coef above 0; "
            'or use signal="surprisal" for ActFocus',
        )
    if credit.makes_advantages and kl.init_coef > 0 and not kl.use_loss:
        problem = f"is {credit.scheme}, whose advantages would have no part in the penalty of --algo.kl.init_coef"
        raise InputError("scheme", f"{problem}: add --algo.kl.use_loss, or set the coefficient to 0")


def _reweigh(maker: Any, experiences: List[Any], credit: Credit) -> None:
    """Gives the advantages to the credit, and adds the scalars of the credit to what is logged."""
    torch, actor = sys.modules["torch"], maker.args.actor
    # PolicyLoss does not heed loss_agg_mode with gspo.
    mode = "seq-mean-token-mean" if actor.policy_loss_type == "gspo" else actor.loss_agg_mode
    aggregation = mode.replace("-", "_")

    def rows(name: str) -> List[Any]:
        return [row for e in experiences for row in getattr(e, name)]

    log: Dict[str, float] = {}
    made = token_advantages(
        rows("advantages"),
        rows("action_mask"),
        credit=credit,
        aggregation=aggregation,
        token_ids=[row[1:] for row in rows("sequences")],
        tokenizer=maker.tokenizer,
        old_logprobs=rows("action_log_probs"),
        ref_logprobs=rows("base_action_log_probs") if "ref_logprobs" in credit.reads else None,
        rewards=rows("rewards"),
        # A sample's index counts the samples in the order of their prompts.
        group_ids=[i // maker.args.rollout.n_samples_per_prompt for i in rows("index")],
        prompt_ids=[row[:1] for row in rows("sequences")] if credit.wants_prompts else None,
        log=log,
    )
    of_samples = iter(made)
    for e in experiences:
        e.advantages = torch.stack([next(of_samples) for _ in e.index])
        # OpenRLHF averages these over the samples of micro-batches and processes, which leaves the batch's number.
        e.info.update({name: torch.full((len(e.index),), value, dtype=torch.float32) for name, value in log.items()})
    maker.credit_report.batch(f"{actor.policy_loss_type} ({aggregation})", log)
