"""The figures of docs/plan-words.md, from prompts.csv and actions.csv of this folder, as docs/evidence.md has them:

python studies/words/figures.py
"""

import csv
import pathlib

import numpy as np

FOLDER = pathlib.Path(__file__).parent
SIGNALS = ("energy", "entropy", "surprisal")


def columns(name):
    with open(FOLDER / name, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {key: np.array([float(row[key]) for row in rows]) for key in rows[0] if key != "question"}


def ranks(x):
    _, place, count = np.unique(x, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count + 1) / 2)[place]


def correlation(x, y, given=None):
    """Spearman's, and given z the partial one of the ranks."""
    x, y = ranks(x), ranks(y)
    if given is not None:
        z = np.column_stack([np.ones(len(x)), ranks(given)])
        x, y = (v - z @ np.linalg.lstsq(z, v, rcond=None)[0] for v in (x, y))
    return np.corrcoef(x, y)[0, 1]


def with_interval(p, x, given):
    """The correlation with the variance over questions, and the middle 95% of those of 2,000 bootstrap samples."""
    chance = np.random.default_rng(1)
    known = ~np.isnan(x)
    x, success = x[known], p["right"][known] / p["answers"][known]
    variance = success * (1 - success)

    def of(pick):
        return correlation(variance[pick], x[pick], success[pick] if given else None)

    samples = [of(chance.integers(0, len(x), len(x))) for _ in range(2000)]
    low, high = np.nanquantile(samples, [0.025, 0.975])
    return f"{of(np.arange(len(x))):+.2f} ({low:+.2f} to {high:+.2f})"


def lines():
    p, actions = columns("prompts.csv"), columns("actions.csv")
    answers, tokens = p["answers"].sum(), p["tokens"].sum()
    yield f"{len(p['answers'])} questions, {answers:.0f} answers, {tokens:.0f} tokens. In the format: {p['in_format'].sum() / answers:.0%}; right:"
    yield f"{p['right'].sum() / answers:.0%}; questions with both outcomes: {np.mean((p['right'] > 0) & (p['right'] < p['answers'])):.0%}. Actions are {p['actions'].sum() / tokens:.1%} of the tokens, and have"
    yield f"{p['action_weight'].sum() / p['weight'].sum():.0%} of the weight by ActFocus. AEM's guard holds in {np.mean(p['entropy_range'] < 0.1):.0%} of the groups. Energy and entropy of"
    yield f"the {len(actions['energy'])} action tokens: Spearman {correlation(actions['energy'], actions['entropy']):+.2f}."
    yield ""
    yield "| of the group, with the variance of its reward | Spearman | given the success rate |"
    yield "|---|---|---|"
    for signal in SIGNALS:
        for role in ("action", "reasoning"):
            x = p[f"{role}_{signal}"]
            yield f"| mean {signal} of {role} tokens | {with_interval(p, x, False)} | {with_interval(p, x, True)} |"


if __name__ == "__main__":
    print("\n".join(lines()))
