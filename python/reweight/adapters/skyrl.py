"""Credit in SkyRL.

Written for SkyRL 0.4.0: skyrl/train/trainer.py, RayPPOTrainer.compute_advantages_and_returns(data), _normalize_advantages
and train_critic_and_policy, which FullyAsyncRayPPOTrainer inherits; and skyrl/backends/skyrl_train/utils/ppo_utils.py,
the policy losses.

The trainer is made in a process of Ray, so that install is called there, in an entry point of your own:

    @ray.remote(num_cpus=1)
    def entrypoint(cfg):
        install(Credit("actfocus"))
        BasePPOExp(cfg).run()

data holds tensors [B, T] of responses, which end where their rows end: loss_mask, rewards, action_log_probs,
base_action_log_probs, advantages; sequences is [B, prompts and T]. With generator.step_wise_trajectories a trajectory is
several rows, up to one that is_last_step; the other rows' rewards, which SkyRL leaves out, count for schemes that read
rewards of turns alone. A turn gets what the environment gave from its first token to that of the next turn. SkyRL keeps
no entropy: schemes that read it need Credit(entropy="surprisal"). Returns, which the critic learns from, stay as they are.
"""

from __future__ import annotations

import sys
from typing import Any, Dict

import numpy as np
import numpy.typing as npt

from .._errors import InputError
from . import Credit, token_advantages
from ._hooks import find_hook, never_called, replace
from ._report import Report

WRITTEN_FOR = "SkyRL 0.4.0"

_ALGORITHM = "trainer.algorithm."
# What SkyRL does itself, by its options.
_OWN = {
    "loss": _ALGORITHM + "policy_loss_type (with loss_reduction)",
    "rollout_logprobs": _ALGORITHM + "off_policy_correction",
    "values": _ALGORITHM + "advantage_estimator=gae",
}
# What meets an advantage, and with which values the loss was compared with the papers' formulas.
_TESTED = {
    "policy_loss_type": ("regular", "dual_clip", "gspo", "sapo", "cispo", "rollout_is", "importance_sampling", "dppo"),
    "loss_reduction": ("token_mean", "sequence_mean", "seq_mean_token_sum_norm", "prompt_mean"),
    "advantage_batch_normalize": (False,),
}
# prompt_mean takes all trajectories of a prompt for one rollout.
_AGGREGATIONS = {"sequence_mean": "seq_mean_token_mean", "prompt_mean": "seq_mean_token_mean"}


def install(credit: Credit = Credit(entropy="surprisal")) -> None:
    """Makes every RayPPOTrainer of this process give its advantages to token_advantages, with the credit. A trainer whose
    configuration does not fit raises ValueError when it is made."""
    Credit.check(credit, "SkyRL", _OWN, ("span_rewards",))
    trainer, name = find_hook(
        "SkyRL", "skyrl.train.trainer:RayPPOTrainer.compute_advantages_and_returns", ("data",), WRITTEN_FOR
    )
    report = Report(credit, "SkyRL")

    def make(original: Any) -> Any:
        def compute_advantages_and_returns(self: Any, data: Any) -> Any:
            self._reweight_credited = True
            data = original(self, data)
            _reweigh(self, data, credit, report)
            return data

        return compute_advantages_and_returns

    def make_init(init: Any) -> Any:
        def init_and_check(self: Any, *args: Any, **options: Any) -> None:
            init(self, *args, **options)
            _check(self.cfg, credit)
            train = self.train_critic_and_policy

            def checked(data: Any) -> Any:
                if not getattr(self, "_reweight_credited", False):
                    raise never_called(self, trainer, name)
                return train(data)

            self.train_critic_and_policy = checked

        return init_and_check

    replace(trainer, name, make, report)
    replace(trainer, "__init__", make_init)


def _check(cfg: Any, credit: Credit) -> None:
    """Wants a configuration for which the adapter was tested, and that gives the credit what it needs."""
    algorithm = cfg.trainer.algorithm
    for option, tested in _TESTED.items():
        value = getattr(algorithm, option)
        if value not in tested:
            want = " ".join(map(str, tested))
            raise ValueError(f"{_ALGORITHM}{option}={value} was not tested with weights of tokens, want one of [{want}]")
    if cfg.generator.step_wise_trajectories and algorithm.loss_reduction == "sequence_mean":
        problem = f"{_ALGORITHM}loss_reduction=sequence_mean takes means over rows, of which a step-wise trajectory has several"
        raise ValueError(f"{problem}: want token_mean, seq_mean_token_sum_norm or prompt_mean")
    if "ref_logprobs" in credit.reads and not (algorithm.use_kl_loss or algorithm.use_kl_in_reward):
        problem = f"reads ref_logprobs, for which SkyRL needs {_ALGORITHM}use_kl_loss=true"
        raise InputError("scheme", problem + ', or use signal="surprisal" for ActFocus')


def _reweigh(trainer: Any, data: Any, credit: Credit, report: Report) -> None:
    """Gives the advantages of a batch to the credit, and its scalars to SkyRL's log."""
    torch, algorithm, uids = sys.modules["torch"], trainer.cfg.trainer.algorithm, data.metadata["uids"]
    rows, width = len(uids) - data.metadata.get("pad_size", 0), data["loss_mask"].shape[1]  # rows that fill a batch up are last
    last = torch.ones(rows, dtype=torch.bool)
    if trainer.cfg.generator.step_wise_trajectories:
        last = torch.tensor(data.metadata["is_last_step"][:rows])
    ends = (last.nonzero()[:, 0] + 1).tolist()
    first = [0, *ends[:-1]]
    before, prompts = [0] * len(first), None  # columns of the first row that hold its prompt, or nothing
    if credit.wants_prompts:
        wholes, answers = data["attention_mask"].sum(-1), data["response_mask"].sum(-1)
        prompts = [data["sequences"][i].flip(0)[answers[i] : wholes[i]].flip(0) for i in first]
        before = [width - int(answers[i]) for i in first]

    def joined(x: Any) -> Any:
        """Rows as trajectories, whose rows are one after another, with a token between."""
        x = torch.nn.functional.pad(x[:rows, -width:], (0, 1))
        return [x[begin:end].flatten()[n:] for begin, end, n in zip(first, ends, before)]

    rewards, turns = data["rewards"][:rows].sum(-1)[last], None
    if "span_rewards" in credit.reads:
        turns, rewards = list(map(_of_turns, joined(data["rewards"]), joined(data["loss_mask"]))), torch.zeros(len(ends))
    aggregation = _AGGREGATIONS.get(algorithm.loss_reduction, algorithm.loss_reduction)
    old, groups = data["action_log_probs"], [uids[i] for i in first]
    log: Dict[str, float] = {}
    made = token_advantages(
        joined(data["advantages"]),
        joined(data["loss_mask"]),
        credit=credit,
        aggregation=aggregation,
        token_ids=joined(data["sequences"]),
        tokenizer=trainer.tokenizer,
        old_logprobs=joined(data["rollout_logprobs"] if old is None else old),
        ref_logprobs=joined(data["base_action_log_probs"]) if "ref_logprobs" in credit.reads else None,
        rewards=rewards,
        span_rewards=turns,
        group_ids=groups,
        rollout_ids=groups if algorithm.loss_reduction == "prompt_mean" else None,
        prompt_ids=prompts,
        log=log,
    )
    advantages = data["advantages"].clone()  # which may be the returns too
    made = [torch.nn.functional.pad(row, (n, 0)) for row, n in zip(made, before)]
    advantages[:rows] = torch.cat(made).view(rows, -1)[:, :-1]
    data["advantages"] = advantages
    trainer.all_metrics.update(log)
    report.batch(f"{algorithm.policy_loss_type} ({algorithm.loss_reduction})", log)


def _of_turns(rewards: Any, mask: Any) -> npt.NDArray[Any]:
    """Returns the rewards of the turns of a trajectory, from those of its tokens."""
    begun = np.cumsum(np.diff(np.asarray(mask) != 0, prepend=False) & (np.asarray(mask) != 0))
    return np.bincount(np.maximum(begun - 1, 0), np.asarray(rewards))
