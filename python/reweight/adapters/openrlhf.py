"""ActFocus and AEM in OpenRLHF's PPO trainer with Ray.

Written for OpenRLHF 0.11.0 (2026-08-13): openrlhf/trainer/ppo_utils/experience_maker.py,
RemoteExperienceMaker.compute_advantages_and_returns(experiences), which runs in the
trainer's Ray actor, and openrlhf/models/loss.py, PolicyLoss.

The actor is a process of its own, so that Ray has to install it there. In a module of your
own, say my_credit.py:

    from reweight.adapters import openrlhf
    install = openrlhf.install

and in a script that takes the place of python -m openrlhf.cli.train_ppo_ray:

    ray.init(runtime_env={"worker_process_setup_hook": "my_credit.install"})
    runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__")

Ray calls it in every process; it takes effect where OpenRLHF makes experience.

An Experience holds some samples, padded, [B, T]: action_mask, action_log_probs and
advantages are [B, T-1] and belong to the tokens sequences[:, 1:]. The responses are the
runs of action_mask, and samples whose index lies in the same n_samples_per_prompt share a
group. OpenRLHF hands no entropy to this method: AEM needs Credit(entropy="surprisal").
"""

from __future__ import annotations

import sys
from typing import Any, List

from . import Credit, find_hook, replace, token_multiplier, when_imported

WRITTEN_FOR = "OpenRLHF 0.11.0"


def install(credit: Credit = Credit(entropy="surprisal")) -> None:
    """Makes RemoteExperienceMaker multiply its advantages by the credit's token_multiplier."""
    credit.check("OpenRLHF", entropy=False)
    when_imported("openrlhf.trainer.ppo_utils.experience_maker", lambda: _install(credit))


def _aggregation(actor: Any) -> str:
    """How PolicyLoss makes one number of its tokens' losses. loss_agg_mode is new in 0.11.2, and gspo does not heed it."""
    mode = "seq-mean-token-mean" if actor.policy_loss_type == "gspo" else getattr(actor, "loss_agg_mode", "token-mean")
    return str(mode).replace("-", "_")


def _install(credit: Credit) -> None:
    maker, name = find_hook(
        "OpenRLHF",
        "openrlhf.trainer.ppo_utils.experience_maker:RemoteExperienceMaker.compute_advantages_and_returns",
        ("experiences",),
        WRITTEN_FOR,
    )

    def make(original: Any) -> Any:
        def compute_advantages_and_returns(self: Any, experiences: List[Any]) -> Any:
            # A sample's index counts the samples in the order of their prompts.
            groups = [i // self.args.rollout.n_samples_per_prompt for e in experiences for i in e.index]
            experiences = original(self, experiences)
            if credit.wants_ref_logprobs and experiences[0].base_action_log_probs is None:
                raise ValueError(
                    "the signal log_ratio needs --algo.kl.use_loss, without which OpenRLHF drops base_action_log_probs; "
                    "or use Credit(signal=\"surprisal\")"
                )
            reference = None
            if credit.wants_ref_logprobs:
                reference = [row for e in experiences for row in e.base_action_log_probs]
            multiplier = token_multiplier(
                [row for e in experiences for row in e.action_mask],
                credit=credit,
                aggregation=_aggregation(self.args.actor),
                token_ids=[row[1:] for e in experiences for row in e.sequences],
                tokenizer=self.tokenizer,
                old_logprobs=[row for e in experiences for row in e.action_log_probs],
                ref_logprobs=reference,
                group_ids=groups,
            )
            rows = iter(multiplier)
            for e in experiences:
                e.advantages = e.advantages * sys.modules["torch"].stack([next(rows) for _ in e.action_mask])
            return experiences

        return compute_advantages_and_returns

    replace(maker, name, make)
