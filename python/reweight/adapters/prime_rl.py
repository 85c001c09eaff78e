"""Credit in prime-rl.

Written for prime-rl 0.8.0 at commit 559b44772 (2026-08-21), with verifiers at commit
a60a606ec: src/prime_rl/orchestrator/algo/base.py, Algorithm.finalize_group(episodes), which
runs in the orchestrator; verifiers/v1/graph.py, MessageNode; and
src/prime_rl/trainer/rl/loss.py, compute_loss.

In a script of your own that takes the place of the command orchestrator:

    from reweight.adapters.prime_rl import install, main
    install(Credit(tokenizer=tokenizer, entropy="surprisal"))
    main()

After an algorithm has scored a group of episodes, the advantages of their traces are
given to the credit. A trace is a graph of messages; one that the policy has sampled is a response.
Its token_ids and mask are [n]; logprobs, reference_logprobs and advantages have one
element per True of mask. The loss is a mean over tokens. prime-rl scores one group at a
time, so that sums and means are those of a group. It keeps no entropy: schemes that
read it need Credit(entropy="surprisal"). Rewards of turns are info["turn_rewards"] of a trace, where
verifiers' environments may write what they like: a number for each sampled message, or None for 0.
trace.reward is the outcome, and has them not in it.
"""

from __future__ import annotations

import importlib
from typing import Any, Dict, List

import numpy as np

from . import Credit, token_advantages
from ._hooks import find_hook, never_called, replace
from ._report import Report
from ._step import saying_how

WRITTEN_FOR = "prime-rl 0.8.0"

# What prime-rl does itself, by its options.
_OWN = {"loss": "trainer.loss", "rollout_logprobs": "trainer.loss, whose ratio is to the engine"}
_TURNS = (
    'in prime-rl, an environment writes the rewards of turns to info["turn_rewards"] of its trace, a list with a number, or None '
    "for 0, for each message that was sampled"
)


def install(credit: Credit = Credit(entropy="surprisal")) -> None:
    """Makes all algorithms give their advantages to token_advantages, with the credit."""
    Credit.check(credit, "prime-rl", _OWN, ("span_rewards",))
    algorithm, name = find_hook(
        "prime-rl", "prime_rl.orchestrator.algo.base:Algorithm.finalize_group", ("episodes",), WRITTEN_FOR
    )
    report = Report(credit, "prime-rl")

    def make(original: Any) -> Any:
        async def finalize_group(self: Any, episodes: List[Any]) -> None:
            self._reweight_credited = True
            await original(self, episodes)
            traces = [trace for episode in episodes for trace in episode.traces]
            reweigh(traces, credit, report)

        return finalize_group

    def make_init(init: Any) -> Any:
        def init_and_check(self: Any, *args: Any, **options: Any) -> None:
            init(self, *args, **options)
            finalize = self.finalize_group

            async def checked(episodes: List[Any]) -> None:
                await finalize(episodes)
                if not getattr(self, "_reweight_credited", False):
                    raise never_called(self, algorithm, name)

            self.finalize_group = checked

        return init_and_check

    replace(algorithm, name, make, report)
    replace(algorithm, "__init__", make_init)


@saying_how(_TURNS)
def reweigh(traces: List[Any], credit: Credit, report: Report) -> None:
    """Gives the advantages of the sampled nodes of the traces of a group to the credit."""
    scored = [[node for node in trace.nodes if any(node.mask) and node.advantages] for trace in traces]
    of_rewards = not credit.reads.isdisjoint(("rewards", "token_rewards"))
    rewards = [trace.reward for trace, nodes in zip(traces, scored) if nodes] if of_rewards or credit.save_every else None
    turns = None
    if "span_rewards" in credit.reads:
        turns = [trace.info.get("turn_rewards") for trace, nodes in zip(traces, scored) if nodes]
        turns = [row and [0.0 if x is None else x for x in row] for row in turns]
    traces = [nodes for nodes in scored if nodes]
    nodes = [node for trace in traces for node in trace]
    if not nodes:
        return
    if "ref_logprobs" in credit.reads and any(node.reference_logprobs is None for node in nodes):
        raise ValueError('the scheme reads ref_logprobs, which needs an algorithm with a reference model; or use signal="surprisal"')
    # One row per trace. A masked token stands between nodes, so that each is a response.
    masks = [np.array([m for node in trace for m in [*node.mask, False]], bool) for trace in traces]

    def spread(field: str) -> List[Any]:
        rows = []
        for trace, mask in zip(traces, masks):
            row = np.zeros(len(mask), np.float32)
            row[mask] = [x for node in trace for x in getattr(node, field)]
            rows.append(row)
        return rows

    log: Dict[str, float] = {}
    made = token_advantages(
        spread("advantages"),
        masks,
        credit=credit,
        token_ids=[np.array([i for node in trace for i in [*node.token_ids, 0]], np.int64) for trace in traces],
        old_logprobs=spread("logprobs"),
        ref_logprobs=spread("reference_logprobs") if "ref_logprobs" in credit.reads else None,
        rewards=rewards,
        span_rewards=turns,
        group_ids=[0] * len(traces),
        log=log,
    )
    report.batch("the first group (token_mean)", log)
    for trace, mask, row in zip(traces, masks, made):
        values = iter(row[mask].tolist())
        for node in trace:
            node.advantages = [next(values) for _ in node.advantages]


def main() -> None:
    """Runs prime-rl's orchestrator, as its command does."""
    importlib.import_module("prime_rl.entrypoints.orchestrator").main()
