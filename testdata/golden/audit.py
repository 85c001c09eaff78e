"""Writes audit.json: small audits, each as reweight.audit writes one, with the text of its report.

    python testdata/golden/audit.py      # where the package is installed
"""

import json
from pathlib import Path

import numpy as np

from reweight.audit import Audit

SCHEMES = {"alpha 0.1": (1, 0.1, 0.1), "alpha 0.3, tags 1": (1, 1, 0.3)}


def audit(seed, prompts, pull, parts=("action", "tags", "reasoning"), schemes=SCHEMES, directions=("aem",), layers=("0", "7"), scale=(1, 40)):
    """Answers with a gradient in each part, which goes with the reward as pull says."""
    chance = np.random.default_rng(seed)
    found = Audit(parts, schemes, directions, layers)
    K = len(parts) + len(directions)
    common = chance.normal(size=(len(layers), 6))
    for key in range(prompts):
        n = int(chance.integers(4, 9))
        rewards = np.array([1.0, 0.0, *chance.integers(0, 2, n - 2)])
        v = chance.normal(size=(len(layers), K, n, 6)) * np.array([*chance.uniform(0.5, 1.5, K)])[None, :, None, None]
        for r in range(K):
            v[:, r] += pull[r] * (rewards - rewards.mean())[None, :, None] * common[:, None]
            v[:, r] *= pull[r] is not None
        v = np.round(v, 2) * np.array(scale[: len(layers)])[:, None, None, None]  # few digits, so that the file is small
        grams = np.einsum("lrid,lsjd->lrsij", v, v)
        found.add(rewards, grams, chance.integers(1, 50, len(parts)), f"q{key * 7 % 100}")
    for key in range(2):
        found.add([1.0, 1.0, 1.0], np.zeros((len(layers), K, K, 3, 3)), key=f"alike {key}")
    return found


def without(found, part):
    """The same where a part has no tokens."""
    for p in found._prompts.values():
        for x in (p.S, p.T):
            x[:, part], x[:, :, part] = 0, 0
        p.tokens[part] = 0
    return found


CASES = {
    "use": audit(1, 24, (3.0, 1.0, 0.1, 0.8)),
    "keep": audit(2, 60, (1.2, 1.2, 1.2, 1.2), directions=(), layers=("0",)),
    "more": audit(3, 9, (0.5, 0.2, 0.5, 0.3)),
    "nothing known": audit(4, 12, (0.01, 0, 0.02, 0.01)),
    "two prompts": audit(5, 2, (1, 1, 1, 1)),
    "a weight that is not below 0": audit(6, 14, (1.0, -0.6, 0.4, 0.3)),
    "no tags": without(audit(7, 11, (1.0, 0, 0.4, 0.3)), 1),
    "one part": audit(8, 12, (1.0,), parts=("all",), schemes={}, directions=(), layers=("3",)),
    "five parts": audit(9, 12, (1.0, 0.3, 0.1, 0.8, 0.2, 0.5), parts=("a", "b", "c", "d", "e"), schemes={}, layers=("1", "2")),
}

if __name__ == "__main__":
    cases = [{"name": name, "text": str(a.report()), "file": json.loads(a.as_json())} for name, a in CASES.items()]
    text = "[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n"
    Path(__file__).with_suffix(".json").write_text(text)
