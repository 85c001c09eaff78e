"""The figures of plan.md, plan-more.md, plan-lake.md and plan-train.md, from the tables of this folder:

python studies/words/figures.py
"""

import csv
import pathlib

import numpy as np

FOLDER = pathlib.Path(__file__).parent
SIGNALS = ("energy", "entropy", "surprisal")
FIRST = 67  # questions of the first part


def columns(name, text=("question",)):
    with open(FOLDER / name, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {key: np.array([row[key] if key in text else float(row[key]) for row in rows]) for key in rows[0]}


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


def with_interval(p, name, given):
    """The correlation with the variance over questions, and the middle 95% of those of 2,000 bootstrap samples."""
    chance = np.random.default_rng(1)
    known = ~np.isnan(p[name])
    x, success = p[name][known], p["right"][known] / p["answers"][known]
    variance = success * (1 - success)

    def of(pick):
        return correlation(variance[pick], x[pick], success[pick] if given else None)

    samples = [of(chance.integers(0, len(x), len(x))) for _ in range(2000)]
    low, high = np.nanquantile(samples, [0.025, 0.975])
    return f"{of(np.arange(len(x))):+.2f} ({low:+.2f} to {high:+.2f})"


def decided(a, questions, joined=True):
    """D of the questions with at least two reasonings of at least two answers, by unbiased variances; reasonings of the
    same words are joined or not."""
    between = within = 0
    for question in questions:
        mine = (a["question"] == question) & (a["answers"] > 1)
        n, right = a["answers"][mine], a["right"][mine]
        if joined:
            _, of = np.unique(a["reasoning"][mine], return_inverse=True)
            n, right = np.bincount(of, n), np.bincount(of, right)
        if len(n) > 1:
            means = right / n
            variances = means * (1 - means) * n / (n - 1)
            within += variances.mean()
            between += means.var(ddof=1) - (variances / n).mean()
    return between / (between + within)


def lines():
    p, actions, again = columns("prompts.csv"), columns("actions.csv"), columns("again.csv")
    questions, answers, tokens = len(p["answers"]), p["answers"].sum(), p["tokens"].sum()
    success = p["right"] / p["answers"]
    asked = np.unique(again["question"])
    chance = np.random.default_rng(1)
    samples = [chance.choice(asked, len(asked)) for _ in range(2000)]
    yield "| of the answers | |"
    yield "|---|---|"
    yield f"| questions; answers; tokens | {questions}; {answers:,.0f}; {tokens:,.0f} |"
    yield f"| answers in the format; right | {p['in_format'].sum() / answers:.0%}; {p['right'].sum() / answers:.0%} |"
    yield f"| questions with both outcomes; more often right than wrong | {((success > 0) & (success < 1)).sum()}; {(success > 0.5).sum()} |"
    yield f"| action tokens, of all; their weight by ActFocus, of all | {p['actions'].sum() / tokens:.1%}; {p['action_weight'].sum() / p['weight'].sum():.0%} |"
    yield f"| groups in which AEM's guard holds | {(p['entropy_range'] < 0.1).sum()} |"
    yield f"| Spearman of energy and entropy, {len(actions['energy']):,} action tokens | {correlation(actions['energy'], actions['entropy']):+.2f} |"
    first = int(p["actions"][:FIRST].sum())
    both = [correlation(actions["energy"][part], actions["entropy"][part]) for part in (slice(first), slice(first, None))]
    yield f"| the same of the first 67 questions; of the new ones | {both[0]:+.2f}; {both[1]:+.2f} |"
    new = success[FIRST:]
    yield f"| new questions; more often wrong than right; more often right | {len(new)}; {(new < 0.5).sum()}; {(new > 0.5).sum()} |"
    for joined, how in ((True, "equal reasonings as one, as `reweight show` has it"), (False, "each reasoning as drawn")):
        low, high = np.quantile([decided(again, sample, joined) for sample in samples], [0.025, 0.975])
        yield f"| D, {how} | {decided(again, asked, joined):.2f} ({low:.2f} to {high:.2f}) |"
    yield f"| of these: questions; reasonings; answers in the format | {len(asked)}; {len(again['right'])}; {again['answers'].sum():.0f} |"
    yield ""
    parts = ("first 67", slice(FIRST)), ("new ones", slice(FIRST, None)), ("all", slice(None))
    for given, how in ((False, "Spearman"), (True, "given the success rate")):
        yield f"| with the variance of the reward, over questions: {how} | " + " | ".join(name for name, _ in parts) + " |"
        yield "|---|---|---|---|"
        for signal in SIGNALS:
            for role in ("action", "reasoning"):
                found = [with_interval({k: x[part] for k, x in p.items()}, f"{role}_{signal}", given) for _, part in parts]
                yield f"| mean {signal} of {role} tokens | " + " | ".join(found) + " |"
        yield ""


def lake_lines():
    p = columns("lake.csv")
    walks, tokens, success = p["answers"].sum(), p["tokens"].sum(), p["right"] / p["answers"]
    yield "| of the walks | |"
    yield "|---|---|"
    yield f"| maps; walks; turns a walk | {len(success)}; {walks:.0f}; {p['turns'].sum() / walks:.1f} |"
    yield f"| walks to the goal; maps with both outcomes | {p['right'].sum() / walks:.0%}; {((success > 0) & (success < 1)).sum()} |"
    yield f"| action tokens, of all; their weight by ActFocus, of all | {p['actions'].sum() / tokens:.1%}; {p['action_weight'].sum() / p['weight'].sum():.0%} |"
    yield f"| groups in which AEM's guard holds | {(p['entropy_range'] < 0.1).sum()} |"
    yield ""
    yield "| with the variance of the reward, over maps | all turns | first turns | first turns, given the success rate |"
    yield "|---|---|---|---|"
    for signal in SIGNALS:
        for role in ("action", "reasoning"):
            forms = (("", False), ("first_", False), ("first_", True))
            found = [with_interval(p, f"{turns}{role}_{signal}", given) for turns, given in forms]
            yield f"| mean {signal} of {role} tokens | " + " | ".join(found) + " |"


def training_lines():
    """The runs of seeds above 0: those of seed 0 chose the rate. A run is [steps, 2]: reward, in_format."""
    rows, runs = columns("train.csv", text=("scheme",)), {}
    for scheme, rate, seed, *step in zip(*(rows[name] for name in ("scheme", "rate", "seed", "reward", "in_format"))):
        runs.setdefault((scheme, rate), {}).setdefault(seed, []).append(step)
    tried = {rate: np.mean(by[0], 0)[0] for (_, rate), by in runs.items() if 0 in by}
    yield "| rate of the runs that chose it | " + " | ".join(f"{rate:g}" for rate in tried) + " |"
    yield "|---" * (len(tried) + 1) + "|"
    yield "| mean reward of uniform weights, seed 0 | " + " | ".join(f"{reward:.3f}" for reward in tried.values()) + " |"
    yield ""
    yield "| scheme, rate | mean reward | over uniform weights, in hundredths | of each seed | last ten steps | in the format | runs below 0.1 at the end |"
    yield "|---|---|---|---|---|---|---|"
    for scheme, rate in sorted(runs, key=lambda key: -key[1]):
        by, even = (np.array([steps for seed, steps in sorted(runs[name, rate].items()) if seed]) for name in (scheme, "uniform"))
        if len(by) == 0:
            continue
        more = 100 * (by[..., 0].mean(1) - even[..., 0].mean(1))
        of, last = by.mean((0, 1)), by[:, -10:, 0].mean(1)
        error = more.std(ddof=1) / len(more) ** 0.5
        over = "|" if scheme == "uniform" else f"{more.mean():+.1f} (standard error {error:.1f}) | " + ", ".join(f"{d:+.1f}" for d in more)
        yield f"| {scheme}, {rate:g} | {of[0]:.3f} | {over} | {last.mean():.3f} | {of[1]:.0%} | {(last < 0.1).sum()} of {len(by)} |"


if __name__ == "__main__":
    print("\n".join([*lines(), *lake_lines(), "", *training_lines()]))
