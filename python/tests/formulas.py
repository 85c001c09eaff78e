"""ActFocus and AEM from the papers, in float64, without the library."""

import numpy as np

from reweight.adapters._check import roles, spans, weights_and_factors  # noqa: F401


def scalars(role, surprisal, w, f, groups, credit):
    """What token_advantages logs, by name."""
    mask, action = role > 0, role == 2
    of_spans = [[f[b, s] for b in np.flatnonzero(groups == g) for s, _ in spans(mask[b])] for g in set(groups.tolist())]
    every = np.concatenate(of_spans)
    several = [x for x in of_spans if len(x) > 1]
    answered = mask.any(1)
    found = {
        "actions": action.sum(),
        "no_action": (answered & ~action.any(1)).sum() / answered.sum(),
        "action_share": action.sum() / mask.sum(),
        "action_weight": (w * f)[action].sum() / (w * f).sum(),
        "effective_tokens": w.sum() ** 2 / (w**2).sum(),
        "surprisal_action": surprisal[action].mean(),
        "surprisal_reasoning": surprisal[mask & ~action].mean(),
        "aem_min": every.min(),
        "aem_max": every.max(),
        "aem_std": every.std(),
        "aem_guarded": sum((np.array(x) == 1).all() for x in several) / len(several),
        "not_finite": 0.0,
    }
    return {"credit/" + name: float(value) for name, value in found.items()}


def advantages(name, rewards, mask, entropy, groups):
    """The advantages of a scheme with its default options, [B, T]; rewards and groups are [B]."""
    A, count = np.zeros(mask.shape), mask.sum(1)
    for g in set(groups):
        rows = np.flatnonzero(groups == g)
        r, n = rewards[rows], len(rows)
        if name.startswith("group_"):
            std = r.std(ddof=1) + 1e-6 if name == "group_norm" and n > 1 else 1
            A[rows] = ((r - (r.mean() if n > 1 else 0)) / std)[:, None]
        elif name == "gpg_advantages":
            paid = len(rewards) / max(1, np.count_nonzero(rewards))
            A[rows] = ((r - (r.mean() if n > 1 else 0)) * paid)[:, None]
        elif name == "pass_at_k":
            *_, second, first = np.sort(r)
            A[rows[r.argmax()]] = (first - second) / (r.std(ddof=1) + 1e-6)
        elif name == "grpo_s":
            answered = rows[count[rows] > 0]
            h = (entropy * mask)[answered].sum(1) / count[answered]
            success, u = rewards[answered] > 0.5, np.zeros(len(answered))
            u[success] = rewards[answered][success] + 0.1 * success.sum() * h[success] / max(h[success].sum(), 1e-8)
            v = 1 / (h[~success] + 1e-8)
            u[~success] = -1 - 0.1 * len(v) * v / max(v.sum(), 1e-8)
            A[answered] = ((u - u.mean()) / np.sqrt(u.var() + 1e-8))[:, None] if len(u) else 0
        elif name == "reinforce++":
            A[rows] = r[:, None]
        elif name == "rloo":
            A[rows] = ((r - r.mean()) * n / (n - 1) if n > 1 else 0 * r)[:, None]
        elif name == "opo":
            A[rows] = (r - (count[rows] * r).sum() / max(count[rows].sum(), 1))[:, None]
        elif name == "reinforce++_baseline":
            A[rows] = (r - (r.mean() if n > 1 else 0))[:, None]
        elif name == "gtpo":
            answered = [b for b in rows if count[b]]
            for sign, side in (1, [b for b in answered if rewards[b] > 0.5]), (-1, [b for b in answered if rewards[b] <= 0.5]):
                tokens = [np.flatnonzero(mask[b]) for b in side]
                shaped = [np.zeros(len(row)) for row in tokens]
                for j in range(max(map(len, tokens), default=0)):
                    there = [i for i, row in enumerate(tokens) if j < len(row)]
                    share = np.array([entropy[side[i], tokens[i][j]] for i in there])
                    share = share if sign > 0 else 1 / (share + 1e-8)
                    for i, part in zip(there, len(there) * share / max(share.sum(), 1e-8)):
                        shaped[i][j] = rewards[side[i]] + 0.1 * part if sign > 0 else -1 - 0.1 * part
                u = np.concatenate([*shaped, np.zeros(0)])
                for b, row, x in zip(side, tokens, shaped):
                    A[b, row] = (x - u.mean()) / np.sqrt(u.var() + 1e-8)
    if name.startswith("reinforce++") and mask.sum() > 1:
        A = (A - A[mask].mean()) / np.sqrt(A[mask].var(ddof=1) + 1e-8)
    return A * mask


def turn_returns(rewards, of_turns, mask, groups):
    """The advantages of turn_returns without a discount, [B, T]; of_turns has the rewards of the turns of each trajectory."""
    G = [r + np.cumsum(turns[::-1])[::-1] if len(turns) else np.array([r]) for r, turns in zip(rewards, of_turns)]
    A = np.zeros(mask.shape)
    for b, group in enumerate(groups):
        others = [G[p] for p in np.flatnonzero(groups == group) if p != b]
        for k, (first, end) in enumerate(spans(mask[b])):
            A[b, first:end] = G[b][k] - (np.mean([g[min(k, len(g) - 1)] for g in others]) if others else 0)
    return A


def mt_grpo(rewards, of_turns, mask, groups):
    """The advantages of MT-GRPO, [B, T], of the same arguments."""

    def normalised(x):
        x = np.array(x, np.float64)
        return (x - x.mean()) / (x.std(ddof=1) + 1e-6) if len(x) > 1 else 0 * x

    ends = np.array([r + sum(turns[-1:]) for r, turns in zip(rewards, of_turns)])
    A = np.zeros(mask.shape)
    for group in np.unique(groups):
        fellows = np.flatnonzero(groups == group)
        for b, end in zip(fellows, normalised(ends[fellows])):
            for k, (first, after) in enumerate(spans(mask[b])):
                there = [p for p in fellows if k < len(of_turns[p])]
                of_turn = normalised([of_turns[p][k] for p in there])[there.index(b)]
                A[b, first:after] = of_turn + 0.5 * end if k < len(of_turns[b]) - 1 else end
    return A


def entropy_mask(entropy, mask):
    """The weights of the fifth of the tokens with the highest entropies."""
    return mask * (entropy >= np.sort(entropy[mask])[-int(0.2 * mask.sum() + 0.9999)])
