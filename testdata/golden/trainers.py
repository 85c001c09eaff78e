"""Writes the golden answers of trainers' own functions beside itself, in float64.

    $(python/environment verl)/bin/python testdata/golden/trainers.py verl
    PYTHONPATH=FOLDER $(python/environment newest)/bin/python testdata/golden/trainers.py swift
    PYTHONPATH=FOLDER $(python/environment newest)/bin/python testdata/golden/trainers.py trinity
    $(python/environment newest)/bin/python testdata/golden/trainers.py turns

FOLDER has the unpacked wheel of ms-swift 4.6.0, which `pip download --no-deps ms-swift` fetches, or of trinity-rft 0.6.0.
"""

import ast
import importlib.util
import json
import math
import pathlib
import random
import sys
import types
from unittest import mock

import numpy as np
import torch

HERE = pathlib.Path(__file__).parent


class Config(dict):
    """A configuration as verl's functions read it: by attribute, or by get."""

    __getattr__ = dict.get


def float32(x):
    """The nearest float32."""
    return float(np.float32(x))


def short(x):
    """The shortest decimal of a float32, for a file that is read into float32."""
    return float(np.format_float_positional(np.float32(x), unique=True))


class Rollouts:
    """Padded rollouts with holes in the mask and a group of one, and the same packed."""

    def __init__(self, seed, alone=True, columns=12):
        r = random.Random(seed)
        trajectories = 9
        self.group = [0, 1, 0, 2, 1, 0, 1, 3 if alone else 2, 2]
        self.mask, self.place = [], []
        offsets = [0]
        for q in range(trajectories):
            n = r.randint(1, columns)
            row = [1] * n + [0] * (columns - n)
            for i in range(1, n - 1):
                row[i] = int(r.random() > 0.15)
            self.mask.append(row)
            self.place += [(q, i) for i in range(n)]
            offsets.append(len(self.place))
        self.rewards = [r.choice([0, 0.5, 1, 1, 2, -0.25]) for _ in self.group]

        def draw(mean, deviation):
            return [[float32(r.gauss(mean, deviation)) for _ in range(columns)] for _ in range(trajectories)]

        self.logprobs = [[-abs(x) for x in row] for row in draw(0, 1.2)]
        self.old = [[float32(x + d) for x, d in zip(*rows)] for rows in zip(self.logprobs, draw(-0.05, 0.3))]
        self.teacher = [[float32(x + d) for x, d in zip(*rows)] for rows in zip(self.old, draw(0, 0.5))]
        self.advantages = draw(0, 1)
        self.packed = {
            "role": [1 + (i + q) % 2 if self.mask[q][i] else 0 for q, i in self.place],
            "seq_offsets": offsets,
        }

    def pack(self, x):
        x = x.tolist() if isinstance(x, torch.Tensor) else [[short(value) for value in row] for row in x]
        return [x[q][i] if self.mask[q][i] else 0 for q, i in self.place]

    def padded(self, x):
        return torch.tensor(x, dtype=torch.float64)

    def token_rewards(self):
        """The outcome at the last response token, where verl has it."""
        x = torch.zeros(len(self.mask), len(self.mask[0]), dtype=torch.float64)
        for q, row in enumerate(self.mask):
            x[q, max(i for i, m in enumerate(row) if m)] = self.rewards[q]
        return x


def lines(value):
    """JSON of a value: a line for each array of numbers and for each number of an object."""
    if isinstance(value, dict) and value:
        return "{\n" + ",\n".join(f"{json.dumps(name)}: {lines(v)}" for name, v in value.items()) + "\n}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(map(lines, value)) + "\n]"
    return json.dumps(value, separators=(",", ":"))


def write(name, cases):
    (HERE / name).write_text(lines(cases) + "\n")


def verl():
    from verl.trainer.ppo import core_algos

    torch.set_default_dtype(torch.float64)  # of quotients of integers

    def advantages(function, rollouts, **options):
        mask = rollouts.padded(rollouts.mask)
        return rollouts.pack(function(rollouts.token_rewards(), mask, np.array(rollouts.group), **options)[0])

    def case(name, r, options, out, **more):
        given = {"name": name, **r.packed, "group_ids": r.group, "rewards": r.rewards, "options": options, **more}
        return {**given, "out": out}

    seeds = range(5)
    write("opo.json", [case(f"opo {s}", r, {}, advantages(core_algos.compute_opo_outcome_advantage, r)) for s in seeds for r in [Rollouts(s)]])
    write("gpg.json", [case(f"gpg {s}", r, {}, advantages(core_algos.compute_gpg_outcome_advantage, r)) for s in seeds for r in [Rollouts(s)]])
    cases = []
    for s in seeds:
        r = Rollouts(s, alone=False)
        for divide in (True, False):
            config = Config(norm_adv_by_std_in_grpo=divide)
            out = advantages(core_algos.compute_grpo_passk_outcome_advantage, r, config=config)
            cases.append(case(f"pass@k {s}", r, {"DivideByStd": divide}, out))
    write("pass_at_k.json", cases)
    cases = []
    for s in seeds:
        r, draw = Rollouts(s), random.Random(100 + s)
        for weights, divide in ((None, True), ([1, 0.25, -2], True), ([0.5], True), ([1, 3], False)):
            n = 3 if weights is None else len(weights)
            parts = [[draw.choice([0, 0.5, 1, 1, 2, -0.25]) for _ in range(n)] for _ in r.group]
            names = [f"part {k}" for k in range(n)]
            more = {
                "norm_adv_by_std_in_grpo": divide,
                "config": {"gdpo_reward_keys": names, "gdpo_reward_weights": weights},
                "non_tensor_batch": {name: [row[k] for row in parts] for k, name in enumerate(names)},
                "batch": {"prompts": torch.ones(len(parts), 1), "attention_mask": torch.ones(len(parts), 1 + len(r.mask[0]), dtype=torch.int64)},
            }
            # The function asks for float32 by name, and verl's means have 1e-8 tokens too many.
            with (
                mock.patch.object(torch, "float32", torch.float64),
                mock.patch.object(np, "float32", np.float64),
                mock.patch.object(core_algos.verl_F, "masked_mean", lambda x, mask, axis=None: (x * mask).sum(axis) / mask.sum(axis)),
            ):
                out = advantages(core_algos.compute_gdpo_outcome_advantage, r, **more)
            options = {"DivideByStd": divide, "RewardWeights": weights}
            cases.append(case(f"gdpo {s}", r, options, out, reward_parts=sum(parts, [])))
    write("gdpo.json", cases)

    cases = []
    for s in range(3):
        r = Rollouts(s)
        for kind, ours, config in (
            ("dppo_kl", {"lo": 0.02, "hi": 0.05, "cap": 20}, Config(clip_ratio_low=0.02, clip_ratio_high=0.05, clip_ratio_c=20)),
            ("dppo_kl", {"lo": 0.01, "hi": 0.01, "cap": 1.1}, Config(clip_ratio=0.01, clip_ratio_c=1.1)),
            ("gmpo", {"lo": 0.2, "hi": 0.28}, Config(clip_ratio_low=0.2, clip_ratio_high=0.28)),
            ("dro", {"beta": 0.3}, Config(policy_loss=Config(dro_beta=0.3))),
            (
                "clip_cov",  # of all candidates
                {"lo": 0.2, "hi": 0.28, "share": 1, "cov_lo": 0.02, "cov_hi": 0.6},
                Config(clip_ratio_low=0.2, clip_ratio_high=0.28, policy_loss=Config(clip_cov_ratio=1, clip_cov_lb=0.02, clip_cov_ub=0.6)),
            ),
            ("kl_cov", {"share": 0.2, "coef": 0.5}, Config(policy_loss=Config(kl_cov_ratio=0.2, ppo_kl_coef=0.5))),
        ):
            config["global_batch_info"] = {}
            function = core_algos.get_policy_loss_fn({"gmpo": "geo_mean"}.get(kind, kind))
            for aggregation in ("token-mean", "seq-mean-token-sum"):
                logprobs = r.padded(r.logprobs).requires_grad_()
                loss, metrics = function(r.padded(r.old), logprobs, r.padded(r.advantages), r.padded(r.mask), aggregation, config)
                loss.backward()
                clipped = {"clip_fraction": metrics["actor/pg_clipfrac"]} if kind == "dppo_kl" else {}
                cases.append(
                    {
                        "name": f"{kind} {s}",
                        **r.packed,
                        "logprobs": r.pack(r.logprobs),
                        "old_logprobs": r.pack(r.old),
                        "advantages": r.pack(r.advantages),
                        "options": {"kind": kind, "level": "trajectory", "agg": aggregation.replace("-", "_"), **ours},
                        "loss": loss.item(),
                        "gradient": r.pack(logprobs.grad),
                        **clipped,
                    }
                )
    write("verl_losses.json", cases)


def swift():
    import swift

    torch.set_default_dtype(torch.float64)  # of powers of integers
    folder = pathlib.Path(swift.__path__[0])

    def function(file, name):
        """A function of a file whose imports are not there."""
        module = ast.parse((folder / file).read_text())
        found = next(n for n in ast.walk(module) if isinstance(n, ast.FunctionDef) and n.name == name)
        space = {"torch": torch, "Dict": dict, "Tuple": tuple}
        exec(compile(ast.Module([found], []), file, "exec"), space)
        return space[name]

    influence = function("rlhf_trainers/grpo_trainer.py", "_compute_fipo_influence")
    redistribute = function("rl_core/advantage.py", "apply_rlsd_reweight")
    inf = math.inf
    cases = []
    for s in range(3):
        r = Rollouts(s)
        mask = torch.tensor(r.mask, dtype=torch.bool)
        for tau, delta, clip, high_only, safety in ((32, 10, 0.2, True, 4), (3, 1.5, 0.4, False, 1.2), (8, None, 0.3, False, None)):
            trainer = types.SimpleNamespace(
                args=types.SimpleNamespace(delta=delta),
                fipo_gamma=2 ** (-1 / tau),
                fipo_clip_range=clip,
                fipo_clip_high_only=high_only,
                fipo_safety_threshold=safety,
            )
            d = r.padded(r.logprobs) - r.padded(r.old)
            factors, _ = influence(trainer, d, d.exp(), r.padded(r.advantages), mask)
            options = {"HalfLife": tau, "Filter": delta or "inf", "Clip": clip, "HighOnly": high_only, "Safety": safety or "inf"}
            given = {"logprobs": r.pack(r.logprobs), "old_logprobs": r.pack(r.old), "advantages": r.pack(r.advantages)}
            out = [1 if not m else f for m, f in zip(r.pack(r.mask), r.pack(factors))]
            cases.append({"name": f"fipo {s}", **r.packed, **given, "options": options, "out": out})
    write("fipo.json", cases)

    cases = []
    for s in range(3):
        r = Rollouts(s)
        mask = r.padded(r.mask)
        for lam, clip, negative in ((0.5, 0.2, False), (1, 0.4, False), (0.25, 0.1, True)):
            A = r.padded([row[0] for row in r.advantages])
            A[0] = 0
            out = redistribute(A, mask, r.padded(r.teacher), r.padded(r.old), lam, clip, negative)
            out = [1 if not m or not A[q] else out[q, i].item() / A[q].item() for (q, i), m in zip(r.place, r.pack(r.mask))]
            given = {"teacher_logprobs": r.pack(r.teacher), "old_logprobs": r.pack(r.old)}
            given["advantages"] = r.pack([[a] * len(r.mask[0]) for a in A.tolist()])
            options = {"Lambda": lam, "Clip": clip, "NegativeOnly": negative}
            cases.append({"name": f"rlsd {s}", **r.packed, **given, "options": options, "out": out})
    write("rlsd.json", cases)


def trinity():
    for name in ("trinity.algorithm.advantage_fn.advantage_fn", "verl"):
        sys.modules[name] = types.SimpleNamespace(AdvantageFn=object, DataProto=object)
    folder = pathlib.Path(importlib.util.find_spec("trinity").submodule_search_locations[0]) / "algorithm" / "advantage_fn"

    def answer(file, name, r, options, **arrays):
        """GRPO's advantages, and the mask without the tokens that are left out."""
        space = {"__name__": name}
        exec((folder / file).read_text(), space)
        of = space[name](**{**space[name].default_args(), **options})
        rewards = r.padded([[reward] + [0] * (len(r.mask[0]) - 1) for reward in r.rewards])
        batch = {"token_level_rewards": rewards, "response_mask": torch.tensor(r.mask), **{k: r.padded(x) for k, x in arrays.items()}}
        made, _ = of(types.SimpleNamespace(batch=batch, non_tensor_batch={"uid": r.group}))
        return r.pack(made.batch["advantages"].tolist()), r.pack(made.batch["response_mask"])

    cases = []
    for s in range(6):
        r = Rollouts(s)
        entropy = [[abs(x) for x in row] for row in r.advantages]
        old = [[min(x, 0) for x in row] for row in r.old]
        if s % 2:  # a policy that is sure of all but some tokens
            old = [[float32(x / (3 if (i + 3 * q) % 8 == 0 else 100)) for i, x in enumerate(row)] for q, row in enumerate(old)]
            entropy = [[float32(x / 100) for x in row] for row in entropy]
        for options in ({}, {"mu": 1.5}, {"mu": 0.5}):
            A, out = answer("clipb_advantage.py", "ClipBAdvantageFn", r, options, rollout_log_probs=old, entropys=entropy)
            given = {"advantages": A, "old_logprobs": r.pack(old), "entropy": r.pack(entropy)}
            cases.append({"name": f"clip_b {s}", **r.packed, **given, **({"options": options} if options else {}), "out": out})
    write("clip_b.json", cases)
    cases = []
    for s in range(6):
        r = Rollouts(s, columns=60 if s == 5 else 12)  # among few tokens none is 8.5 deviations away
        entropy = [[abs(x) for x in row] for row in r.advantages]
        old = [[min(x, 0) for x in row] for row in r.old]
        drop = [[float32(abs(x) / (1 if (i + 5 * q) % 7 == 0 else 20)) for i, x in enumerate(row)] for q, row in enumerate(r.teacher)]
        for q, reward in enumerate(r.rewards):
            of_group = [r.rewards[p] for p, g in enumerate(r.group) if g == r.group[q]]
            mean = np.mean(of_group) if len(of_group) > 1 else 0
            if s == 5 or reward == mean:  # where A is 0, Trinity leaves tokens out, too
                drop[q] = [float32(math.exp(l) * (h + l)) for l, h in zip(old[q], entropy[q])]
            if s == 5 and q > 6 and reward < mean:
                drop[q][0] = 9 + q
        for options in ({}, {"mu": 1}, {"mu": 0.5, "max_frac": 0.06}, {"mu": 0.5, "max_frac": 0.3}):
            given = {"old_log_probs": old, "entropys": entropy}
            A, out = answer("clipv_advantage.py", "ClipVAdvantageFn", r, options, **given, necs=drop)
            given = {"advantages": A, "old_logprobs": r.pack(old), "entropy": r.pack(entropy), "entropy_drop": r.pack(drop)}
            of = {"Mu": options.get("mu", 8.5), "MaxShare": options.get("max_frac", 1e-4)}
            cases.append({"name": f"clip_v {s}", **r.packed, **given, **({"options": of} if options else {}), "out": out})
    write("clip_v.json", cases)


def turns():
    """Advantages of turns, as their definitions have them: nobody else has a function."""
    cases, mt_grpo = [], []
    for s in range(6):
        r, rows = Rollouts(s), random.Random(100 + s)
        ids, last, rewards = [], -1, []
        for q in range(len(r.mask)):
            turns, before = rows.randint(1, 4), None
            for i in (i for p, i in r.place if p == q):
                turn = min(i // 3, turns - 1)
                if r.mask[q][i] and turn != before:
                    last, before = last + 1, turn
                    rewards.append(rows.choice([0, 0.5, 1, -0.25]))
                ids.append(last if r.mask[q][i] else -1)
        given = {**r.packed, "group_ids": r.group, "span_ids": ids, "rewards": r.rewards, "span_rewards": rewards}
        offsets = r.packed["seq_offsets"]
        of = [sorted(set(ids[a:b]) - {-1}) for a, b in zip(offsets, offsets[1:])]
        for options in ({}, {"gamma": 0.9}, {"gamma": 0.5, "std": True}):
            G = []
            for q, spans in enumerate(of):
                G.append([sum(options.get("gamma", 1) ** (s - k) * rewards[s] for s in spans if s >= k) for k in spans])
                G[-1] = [g + options.get("gamma", 1) ** (spans[-1] - k) * r.rewards[q] for g, k in zip(G[-1], spans)]
            A = {}
            for q, spans in enumerate(of):
                fellows = [p for p in range(len(of)) if r.group[p] == r.group[q]]
                std = np.std([g for p in fellows for g in G[p]], ddof=1) if sum(len(of[p]) for p in fellows) > 1 else 0
                for k, s in enumerate(spans):
                    others = [G[p][min(k, len(of[p]) - 1)] for p in fellows if p != q]
                    A[s] = G[q][k] - (np.mean(others) if others else 0)
                    if options.get("std") and std > 0:
                        A[s] /= std + 1e-6
            out = [float(A[s]) if s >= 0 else 0 for s in ids]
            cases.append({"name": f"turn_returns {s}", **given, **({"options": options} if options else {}), "out": out})
        for options in ({}, {"lambda": 1.0, "std": False}, {"lambda": 2.0, "std": True}):

            def normalised(x):
                x = np.array(x)
                return (x - x.mean()) / (np.std(x, ddof=1) + 1e-6 if options.get("std", True) and len(x) > 1 else 1)

            A = {}
            for group in set(r.group):
                fellows = [p for p in range(len(of)) if r.group[p] == group]
                ends = normalised([r.rewards[p] + rewards[of[p][-1]] for p in fellows])
                for k in range(max(len(of[p]) for p in fellows)):
                    there = [of[p][k] for p in fellows if k < len(of[p])]
                    A.update(zip(there, normalised([rewards[s] for s in there])))
                for p, end in zip(fellows, ends):
                    A.update({s: A[s] + options.get("lambda", 0.5) * end for s in of[p][:-1]})
                    A[of[p][-1]] = end
            out = [float(A[s]) if s >= 0 else 0 for s in ids]
            mt_grpo.append({"name": f"mt_grpo {s}", **given, **({"options": options} if options else {}), "out": out})
    write("turns.json", cases)
    write("mt_grpo.json", mt_grpo)


if __name__ == "__main__":
    {"verl": verl, "swift": swift, "trinity": trinity, "turns": turns}[sys.argv[1]]()
