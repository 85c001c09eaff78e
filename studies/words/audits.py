"""The figures of plan-audit.md, from the sums of the two audits, without the model.

    python studies/words/audits.py
"""

import pathlib

import numpy as np
from reweight.audit import Audit

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
    print("beta, of both: {:.3f} ({:.3f} to {:.3f})".format(*over(both, "actfocus", "alpha 0.1")))


if __name__ == "__main__":
    main()
