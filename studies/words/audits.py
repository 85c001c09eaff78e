"""The figures of plan-audit.md and plan-lake-audit.md, from the sums of the audits, without the model.

    python studies/words/audits.py
"""

import pathlib

import numpy as np
from reweight.audit import Audit, _command

HERE = pathlib.Path(__file__).parent
UPPER = [str(block) for block in range(20, 30)]
SAMPLES = 2000


def of_blocks(audit, blocks):
    """The same audit by these blocks alone."""
    of = [audit.layers.index(block) for block in blocks]
    found = Audit(audit.parts, audit.schemes, audit.directions, blocks)
    found._prompts = {key: p._replace(S=p.S[of], T=p.T[of]) for key, p in audit._prompts.items()}
    found._left_out = dict(audit._left_out)
    return found


def joined(audit, names, of):
    """The same audit by parts that these are put together to: of has the number of the new one for each."""
    found = Audit(names, _command._weights(names) if "action" in names else {}, audit.directions, audit.layers)
    to = np.zeros((len(names + audit.directions), len(of) + len(audit.directions)))
    to[of + [len(names) + k for k in range(len(audit.directions))], range(to.shape[1])] = 1
    for key, p in audit._prompts.items():
        found._prompts[key] = p._replace(tokens=to[: len(names), : len(of)].astype(int) @ p.tokens, S=to @ p.S @ to.T, T=to @ p.T @ to.T)
    found._left_out = dict(audit._left_out)
    return found


def over(audit, name, other):
    """The efficiency of one set of weights over that of another, and the middle 95% of bootstrap samples of the questions."""
    _, s, t, answers = audit._moments()
    P, K = len(audit.parts), s.shape[1]
    ones, m = (np.arange(K) < P) * 1.0, s + (t - s) / answers
    weights = {**audit.schemes, **{of: np.eye(K)[P + i] for i, of in enumerate(audit.directions)}}
    drawn = np.random.default_rng(0).multinomial(len(s), np.full(len(s), 1 / len(s)), SAMPLES) / len(s)
    drawn = np.vstack([np.full(len(s), 1 / len(s)), drawn])

    def efficiency(w):
        w = np.concatenate([w, np.zeros(K - len(w))])
        return (drawn @ (s @ ones @ w)) / np.sqrt(drawn @ (m @ w @ w))

    ratio = efficiency(weights[name]) / efficiency(weights[other])
    return ratio[0], *np.quantile(ratio[1:], [0.025, 0.975])


def lake_lines():
    """What RESULTS.md says of the walks, by plan-lake-audit.md."""
    walks = Audit.open(HERE / "audit-lake.npz")
    parts = joined(walks, ("action", "tags", "reasoning"), [0, 1, 2, 0, 1, 2])
    turns = joined(walks, ("first turn", "later"), [0, 0, 0, 1, 1, 1])
    six, three, two = (audit.report() for audit in (walks, parts, turns))
    total = sum(p.tokens for p in three.parts)
    yield f"| part, of {three.prompts} maps | tokens | signal | noise | best weight |"
    yield "|---|---|---|---|---|"
    for p in (*three.parts, *two.parts, *six.parts):
        best = p.best if p not in (three.parts[0], two.parts[0], six.parts[0]) else 1
        yield f"| {p.name} | {p.tokens / total:.1%} | {p.signal} | {p.noise} | {best} |"
    yield ""
    yield "| weights, over equal ones | at 16 walks | " + " | ".join(f"at {16 * k:,}" for k in three.measured.at) + " |"
    yield "|---|---|---|---|---|"
    best = [report.measured._replace(name=f"best of the {of}, on other maps") for report, of in ((three, "three parts"), (two, "two"), (six, "six"))]
    for e in (*best, *three.efficiencies):
        yield f"| {e.name} | {e.here} | " + " | ".join(f"{x:.2f}" for x in e.at.values()) + " |"
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield "| ActFocus with beta over alpha 0.3, tags 1 | {:.2f} ({:.2f} to {:.2f}) |".format(*over(parts, "actfocus", "alpha 0.3, tags 1"))
    yield f"| best of the six over best of the three, on other maps | {six.measured.here.value / three.measured.here.value:.2f} |"
    for name, blocks in ("0 to 9", range(10)), ("10 to 19", range(10, 20)), ("20 to 29", range(20, 30)):
        action = of_blocks(parts, [str(block) for block in blocks]).report().parts[0]
        yield f"| of blocks {name}, the share of actions in the signal; in the noise | {action.signal}; {action.noise} |"
    for report in three, two, six:
        yield "| advised | " + ", ".join(f"{name} {w:.2f}" for name, w in report.weights.items()) + " |"


def main():
    first, later = (Audit.open(HERE / f"audit-{part}.npz") for part in ("first", "later"))
    both = first.without([])
    both.merge(later)
    lower = [block for block in later.layers if block not in UPPER]
    for name, audit in ("first", first), ("new", later), ("both", both):
        print(f"The {name} questions, all blocks:\n{audit.report()}\n")
    for name, blocks in ("0 to 19", lower), ("20 to 29", UPPER):
        report = of_blocks(later, blocks).report()
        print(f"New questions, blocks {name}: actions have {report.parts[0].signal} of the signal;",
              *(f"{e.name} {e.here};" for e in report.efficiencies))  # fmt: skip
    print("beta, of both: {:.3f} ({:.3f} to {:.3f})\n".format(*over(both, "actfocus", "alpha 0.1")))

    print("\n".join(lake_lines()))


if __name__ == "__main__":
    main()
