"""Measures one call of each scheme, and beside it the trainer's own function where verl has one.

    PYTHONPATH=SITE $(python/environment verl)/bin/python python/measure/schemes.py [--rounds 21]

SITE has the unpacked wheel. 256 trajectories of 4,096 tokens in groups of 8, padded, each with 8 responses of 452 tokens, as
tensors on the CPU; both functions in turns, milliseconds, medians. A loss is computed with its gradient. verl's losses are not
here: they differentiate, and their gradients come from autograd.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any, Callable, Dict, Optional

import numpy as np
import torch

import reweight

TRAJECTORIES, TOKENS, GROUP, TURN, RESPONSE = 256, 4096, 8, 512, 452


def batch() -> reweight.Batch:
    g, shape = torch.Generator().manual_seed(0), (TRAJECTORIES, TOKENS)

    def draw(scale: float) -> torch.Tensor:
        return torch.randn(shape, generator=g) * scale

    at = torch.arange(TOKENS) % TURN
    role = torch.where(at < RESPONSE, reweight.REASONING, reweight.MASKED)
    role[(at >= RESPONSE - 20) & (at < RESPONSE - 4)] = reweight.ACTION
    role = role.to(torch.uint8).expand(shape).contiguous()
    spans = torch.arange(TRAJECTORIES * TOKENS // TURN, dtype=torch.int32).repeat_interleave(TURN).view(shape)
    old, rewards = -draw(1.2).abs(), (torch.rand(TRAJECTORIES, generator=g) < 0.4).float()
    return reweight.Batch(
        role=role,
        group_ids=torch.arange(TRAJECTORIES, dtype=torch.int32) // GROUP,
        rewards=rewards,
        reward_parts=torch.rand(TRAJECTORIES, 3, generator=g),
        span_ids=torch.where(role != reweight.MASKED, spans, -1),
        anchors=torch.arange(len(spans.unique()), dtype=torch.int32) % 97,
        span_rewards=torch.rand(len(spans.unique()), generator=g),
        entropy=draw(1).abs(),
        ref_energy=draw(3),
        ref_entropy=draw(1).abs(),
        old_logprobs=old,
        logprobs=old + draw(0.05),
        ref_logprobs=old + draw(0.1),
        rollout_logprobs=old + draw(0.01),
        teacher_logprobs=old + draw(0.2),
        advantages=draw(1),
        values=draw(0.1),
        new_values=draw(0.1),
        returns=draw(1),
        token_rewards=torch.zeros(shape).index_put((torch.arange(TRAJECTORIES), torch.tensor(TOKENS - TURN + RESPONSE - 1)), rewards),
        sum_sq_probs=torch.rand(shape, generator=g),
        entropy_drop=draw(0.1),
    )


def of_verl(b: reweight.Batch) -> Dict[str, Callable[[], Any]]:
    """verl's functions of the batch, by our names."""
    from verl.trainer.config.algorithm import AlgoConfig
    from verl.trainer.ppo import core_algos as verl

    x, mask, index = b.token_rewards, (b.role != reweight.MASKED).float(), np.asarray(b.group_ids)
    config = AlgoConfig()
    more = {"old_log_probs": b.old_logprobs, "sum_pi_squared": b.sum_sq_probs}
    calls = {
        name: lambda f=f: f(x, mask, index, config=config)
        for name, f in {
            "grpo": verl.compute_grpo_outcome_advantage,
            "rloo": verl.compute_rloo_outcome_advantage,
            "opo": verl.compute_opo_outcome_advantage,
            "pass_at_k": verl.compute_grpo_passk_outcome_advantage,
            "gpg_advantages": verl.compute_gpg_outcome_advantage,
            "reinforce_plus_plus_baseline": verl.compute_reinforce_plus_plus_baseline_outcome_advantage,
        }.items()
    }
    calls["gae"] = lambda: verl.compute_gae_advantage_return(x, b.values, mask, 1.0, 0.95)
    calls["reinforce_plus_plus"] = lambda: verl.compute_reinforce_plus_plus_outcome_advantage(x, mask, config=AlgoConfig(gamma=1.0))
    calls["otb"] = lambda: verl.compute_optimal_token_baseline_advantage(x, mask, index, **more)
    calls["otb_turns"] = lambda: verl.compute_multi_turn_optimal_token_baseline_advantage(x, mask, index, **more)
    return calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=21)
    rounds = parser.parse_args().rounds
    b = batch()
    ours: Dict[str, Callable[[], Any]] = {}
    for e in reweight.schemes():
        function = getattr(reweight, e.function, None)
        if e.kind == "loss" and e.function == "loss":
            ours.setdefault(f"loss, {e.name}", lambda e=e: reweight.loss(b, **{"beta": 0.5, **e.defaults}))
        elif e.name == "gae":
            ours["gae"] = lambda: reweight.gae(b, b.token_rewards)
        elif function is not None and e.function != "off_policy_mask":
            name = e.name if e.name.startswith("otb") else e.function
            ours.setdefault(name, lambda f=function, e=e: f(b, **e.defaults))
    theirs = of_verl(b)
    print(f"{torch.get_num_threads()} threads; {'scheme':26} {'reweight':>9} {'verl':>9}  verl / reweight")
    for name, call in ours.items():
        try:
            call()
        except (reweight.InputError, TypeError) as error:
            print(f"{name:38} {type(error).__name__}: {error}")
            continue
        rival: Optional[Callable[[], Any]] = theirs.get(name)
        times = [[seconds(f) for f in (call, rival) if f is not None] for _ in range(rounds)]
        columns = list(zip(*times))
        line = f"{name:38} {1e3 * statistics.median(columns[0]):9.2f}"
        if rival is not None:
            ratio = statistics.median(theirs / own for own, theirs in times)
            line += f" {1e3 * statistics.median(columns[1]):9.2f}  {ratio:.1f}"
        print(line)


def seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
