"""The audit: where the signal of the policy gradient is, and which weights of tokens are best, before a training run.

    found = reweight.audit.Audit(("action", "tags", "reasoning"), {"actions alone": (1, 0, 0)})
    view = reweight.audit.gradients.Gradients(model)       # a causal language model of transformers
    for answers in prompts:                                # each a list of answers to one prompt
        found.add(answers.rewards, view.grams(answers.ids, answers.labels, parts=3).sum(0))
    print(found.report())

An answer's gradient is the sum over its tokens of the gradients of log pi; a part is a label of tokens, and v_ir the sum
over the tokens of part r in answer i. For a prompt with n answers, with rewards R and inner products G_rs[i,j] =
<v_ir, v_js>,

    S_rs = mean over i /= j of ((R_i - b_ij)(R_j - b_ij) - s_ij) G_rs[i,j]    b_ij: the mean of the other n - 2 rewards,
                                                                              s_ij: its variance, estimated from them
    T_rs = mean over i of (R_i - b_i)^2 G_rs[i,i]                    b_i: the mean of the other n - 1

S estimates, without bias, the inner products of the parts of the true gradient: the signal. N = T - S is the noise of one
answer. With c = S 1, what each part has in common with the true gradient of all, and weights w of the parts,

    efficiency(w) = (w c) / sqrt(1'S1 w'(S + N/n) w)    the cosine of a step and the true gradient, at n answers a prompt
    best(w)       = (S + N/n)^-1 c                      up to a scale, which changes no cosine

S, T and all that follows are means over prompts. Intervals are Fieller's, of ratios of such means: where the
denominator may be 0, there is no interval, and the audit says that prompts are missing.
"""

from __future__ import annotations

import dataclasses
import html
import json
import math
import os
import zipfile
from dataclasses import dataclass
from typing import Any, Container, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from .._errors import InputError, number

__all__ = ["Audit", "Efficiency", "Interval", "Part", "Report"]

FEWEST = 10
"""Prompts below which the audit gives no advice."""
GAIN = 1.05
"""The efficiency over equal weights that is worth a change."""

_NORMAL = 1.959963984540054  # the quantile of a 95% interval


class Interval(NamedTuple):
    """An estimate with its 95% interval over prompts, whose ends are infinite where it is not known."""

    value: float
    low: float
    high: float

    @property
    def known(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})" if self.known else "not known"


_UNKNOWN = Interval(math.nan, -math.inf, math.inf)


class Part(NamedTuple):
    """Of a part of the tokens: how many there are, their share of the signal and of the noise, and their best weight where
    the first part has 1."""

    name: str
    tokens: int
    signal: Interval
    noise: Interval
    best: Interval


class Efficiency(NamedTuple):
    """Of some weights, over equal ones: at the answers a prompt of the rollouts, and at others."""

    name: str
    here: Interval
    at: Dict[int, float]


class _Prompt(NamedTuple):
    answers: int
    tokens: np.ndarray[Any, Any]  # [P]
    S: np.ndarray[Any, Any]  # [L, K, K]
    T: np.ndarray[Any, Any]


@dataclass
class Report:
    """What an audit found.

    answers: of a prompt, as the harmonic mean. weights: the best of at least 0, the largest 1, and 1 for a part without
    tokens; measured is their efficiency, by cross-fitting. signal: the share of the signal in the power of one answer's
    gradient. verdict: "use", "keep" or "more", which says that more prompts are needed; advice: the same as a sentence.
    """

    prompts: int
    left_out: int
    answers: float
    layers: List[str]
    parts: List[Part]
    by_layer: Dict[str, List[Part]]
    efficiencies: List[Efficiency]
    measured: Efficiency
    weights: Dict[str, float]
    signal: Interval
    verdict: str
    advice: str

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        total = sum(p.tokens for p in self.parts) or 1
        yield f"{self.prompts} prompts with different rewards, {self.answers:.0f} answers each; {self.left_out} others are left out."
        yield f"Of the power of one answer's gradient, the signal is {self.signal}."
        yield ""
        yield from _table(
            ("part", "tokens", "signal", "noise", "best weight"),
            [(p.name, f"{p.tokens / total:.1%}", str(p.signal), str(p.noise), str(p.best) if i else "1") for i, p in enumerate(self.parts)],
        )
        yield ""
        many = [round(self.answers * k) for k in self.measured.at]
        yield from _table(
            ("weights, over equal ones", f"at {self.answers:.0f} answers", *(f"at {n:,}" for n in many)),
            [
                (e.name, str(e.here), *(_shown(x, e.here.known) for x in e.at.values()))
                for e in (self.measured._replace(name="best, on other prompts"), *self.efficiencies)
            ],
        )
        if self.by_layer:
            yield ""
            yield from _table(
                ("block", *(f"signal of {p.name}" for p in self.parts), "best weights"),
                [
                    (name, *(str(p.signal) for p in parts), ", ".join(["1", *(_shown(p.best.value, p.best.known) for p in parts[1:])]))
                    for name, parts in self.by_layer.items()
                ],
            )
        yield ""
        yield self.advice
        yield from _LIMITS

    def as_dict(self) -> Dict[str, Any]:
        """The same for JSON: an interval is a list of value, low and high, and what is not known is None."""

        def plain(x: Any) -> Any:
            if isinstance(x, (Part, Efficiency)):
                return {name: plain(value) for name, value in x._asdict().items()}
            if isinstance(x, dict):
                return {str(key): plain(value) for key, value in x.items()}
            if isinstance(x, (list, tuple)):
                return [plain(value) for value in x]
            return x if not isinstance(x, float) or math.isfinite(x) else None

        return {field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    def html(self, about: str = "") -> str:
        """A page with two plots and the text."""
        total = sum(p.tokens for p in self.parts) or 1
        rows = [(p.name, Interval(p.tokens / total, *[p.tokens / total] * 2), p.signal, p.noise) for p in self.parts]
        depth = [(p.name, [parts[i].signal for parts in self.by_layer.values()]) for i, p in enumerate(self.parts)]
        text = html.escape(f"{self}\n{about}")
        depth_plot = _depth(depth, list(self.by_layer)) if self.by_layer else ""
        return _PAGE.format(style=_STYLE, advice=html.escape(self.advice), bars=_bars(rows), depth=depth_plot, text=text)

    def _repr_html_(self) -> str:
        return self.html()


_LIMITS = (
    "This is about the model as it is now, on these prompts: a few steps later it may say another thing, so audit again as it",
    "trains. It says nothing of the learning rate, and a better step need not be a better run: train with equal weights too.",
    "Blocks count alike, each divided by its own power, as Adam would.",
)


def _shown(x: float, known: bool) -> str:
    return f"{x:.2f}" if known and math.isfinite(x) else "?"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for row in (head, *rows):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()


_COLOURS = ("#0b6e4f", "#b5651d", "#4059ad", "#8d3b72", "#6b6b6b", "#c1292e")
_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem;color:#1c1c1c;background:#fff}
pre{font-size:13px;overflow-x:auto}svg{max-width:100%;height:auto}text{font:12px system-ui,sans-serif;fill:#1c1c1c}"""
_PAGE = """<!doctype html><meta charset="utf-8"><title>reweight audit</title>
<style>{style}</style>
<h1>Audit</h1><p><strong>{advice}</strong></p>{bars}{depth}<pre>{text}</pre>
"""


def _bars(rows: Sequence[Tuple[str, Interval, Interval, Interval]]) -> str:
    """Shares of tokens, signal and noise of each part, with their intervals."""
    left, width, high = 130, 560, 22
    scale = width / 1.5  # from -0.25 to 1.25
    zero = left + 0.25 * scale
    parts = []
    for i, (name, *shares) in enumerate(rows):
        for j, (what, share) in enumerate(zip(("tokens", "signal", "noise"), shares)):
            y = 24 + (i * 4 + j) * high
            low, top = (min(max(x, -0.25), 1.25) for x in (share.low, share.high))
            value = share.value if math.isfinite(share.value) else 0.0
            size = min(max(value, -0.25), 1.25) * scale
            parts.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{html.escape(name)}: {what}</text>')
            parts.append(
                f'<rect x="{zero + min(size, 0):.1f}" y="{y}" width="{abs(size):.1f}" height="15" fill="{_COLOURS[j]}" opacity=".75"/>'
            )
            if top > low:
                parts.append(f'<path d="M{zero + low * scale:.1f} {y + 7.5}H{zero + top * scale:.1f}" stroke="#1c1c1c" stroke-width="1.5"/>')
    bottom = 24 + len(rows) * 4 * high
    for x in (0, 0.5, 1):
        at = zero + x * scale
        parts.append(f'<path d="M{at:.1f} 16V{bottom}" stroke="#999" stroke-dasharray="2 3"/><text x="{at - 8:.1f}" y="12">{x:.0%}</text>')
    return f'<h2>Shares of each part</h2><svg viewBox="0 0 {left + width + 10} {bottom + 6}" role="img">{"".join(parts)}</svg>'


def _depth(lines: Sequence[Tuple[str, Sequence[Interval]]], layers: Sequence[str]) -> str:
    """The signal's share of each part by block, with bands of the intervals."""
    left, width, top, height = 60, 620, 20, 260

    def point(i: int, share: float) -> str:
        x = left + width * (i + 0.5) / len(layers)
        return f"{x:.1f} {top + height * (1.25 - min(max(share, -0.25), 1.25)) / 1.5:.1f}"

    parts = []
    for share in (0, 0.5, 1):
        y = float(point(0, share).split()[1])
        parts.append(f'<path d="M{left} {y}H{left + width}" stroke="#999" stroke-dasharray="2 3"/><text x="8" y="{y + 4}">{share:.0%}</text>')
    for k, (name, shares) in enumerate(lines):
        colour = _COLOURS[k % len(_COLOURS)]
        band = [point(i, s.high) for i, s in enumerate(shares)] + [point(i, s.low) for i, s in reversed(list(enumerate(shares)))]
        line = [point(i, s.value) for i, s in enumerate(shares) if math.isfinite(s.value)]
        parts.append(f'<polygon points="{" ".join(p.replace(" ", ",") for p in band)}" fill="{colour}" opacity=".12"/>')
        parts.append(f'<polyline points="{" ".join(p.replace(" ", ",") for p in line)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{left + min(90, width // len(lines)) * k}" y="12" style="fill:{colour}">{html.escape(name)}</text>')
    step = max(1, len(layers) // 12)
    for i in range(0, len(layers), step):
        parts.append(f'<text x="{float(point(i, 0).split()[0]) - 6:.1f}" y="{top + height + 16}">{html.escape(layers[i])}</text>')
    size = f"0 0 {left + width + 10} {top + height + 24}"
    return f'<h2>Share of the signal, by block</h2><svg viewBox="{size}" role="img">{"".join(parts)}</svg>'


class Audit:
    """Gathers prompts, and reports.

    parts: the names of the parts, in the order of their labels.
    schemes: weights to compare with equal ones: for a name one weight for each part.
    directions: names of weights of single tokens, whose sums stand behind the parts in the Gram matrices of add.

    A prompt takes 2 L K^2 numbers, with L layers and K parts and directions. Audits of parts of the prompts are put
    together by merge, and the report is the same, to the last bit, whatever the parts and their order were.
    """

    def __init__(
        self,
        parts: Sequence[str],
        schemes: Optional[Mapping[str, Sequence[float]]] = None,
        directions: Sequence[str] = (),
        layers: Sequence[str] = ("all",),
    ) -> None:
        self.parts, self.directions, self.layers = tuple(parts), tuple(directions), tuple(layers)
        if not self.parts or len(set(self.parts + self.directions)) != len(self.parts + self.directions):
            raise InputError("parts", f"is {self.parts}, want different names, and other ones than those of directions")
        if not self.layers or len(set(self.layers)) != len(self.layers):
            raise InputError("layers", f"is {self.layers}, want different names")
        self.schemes: Dict[str, Tuple[float, ...]] = {}
        for name, weights in (schemes or {}).items():
            if len(weights) != len(self.parts):
                raise InputError("schemes", f"has {len(weights)} weights for {name!r}, want {len(self.parts)}, one for each part")
            self.schemes[name] = tuple(number("schemes", w) for w in weights)
            if not (all(map(math.isfinite, self.schemes[name])) and any(self.schemes[name])):
                raise InputError("schemes", f"has weights for {name!r} of {self.schemes[name]}, want finite ones, not all 0")
        self._prompts: Dict[str, _Prompt] = {}
        self._left_out: Dict[str, str] = {}

    def add(self, rewards: Any, grams: Any, tokens: Any = None, key: str = "") -> None:
        """Adds a prompt.

        rewards: [n], of its answers; NaN for an answer without one, which is left out.
        grams: [L, K, K, n, n], inner products of the answers' gradients by layer; without L if there is one layer.
        tokens: [P], how many tokens of all answers are in each part.
        key: names the prompt, in merge too; by default its number.

        A prompt with fewer than three scored answers, or whose rewards are all alike, has no signal: it is counted and
        left out. Raises InputError if a shape is another, if a number is not finite, or if the key was there before.
        """
        rewards, grams = np.asarray(rewards, np.float64), np.asarray(grams, np.float64)
        K, n = len(self.parts) + len(self.directions), rewards.size
        if rewards.ndim != 1:
            raise InputError("rewards", f"has {rewards.ndim} dimensions, want 1")
        if grams.ndim == 4:
            grams = grams[None]
        want = (len(self.layers), K, K, n, n)
        if grams.shape != want:
            raise InputError("grams", f"has the shape {list(grams.shape)}, want {list(want)}")
        counts = np.zeros(len(self.parts), np.int64) if tokens is None else np.asarray(tokens, np.int64)
        if counts.shape != (len(self.parts),):
            raise InputError("tokens", f"has the shape {list(counts.shape)}, want {[len(self.parts)]}")
        key = key or str(len(self._prompts) + len(self._left_out))
        if key in self._prompts or key in self._left_out:
            raise InputError("key", f"is {key!r}, which was added before")
        scored = ~np.isnan(rewards)
        rewards, grams = rewards[scored], grams[..., scored, :][..., scored]
        if not np.isfinite(rewards).all():
            raise InputError("rewards", "has an infinite reward, want finite ones, or NaN for none")
        if not np.isfinite(grams).all():
            raise InputError("grams", "has numbers that are not finite")
        n = len(rewards)
        if n < 3:
            self._left_out[key] = "fewer than three answers with a reward"
            return
        if (rewards == rewards[0]).all():
            self._left_out[key] = "rewards that are all alike"
            return
        self._prompts[key] = _Prompt(n, counts, *moments(rewards, grams))

    def merge(self, other: "Audit") -> None:
        """Adds the prompts of another audit of the same parts, schemes, directions and layers."""
        for name in ("parts", "schemes", "directions", "layers"):
            if getattr(self, name) != getattr(other, name):
                raise InputError("other", f"has {name} {getattr(other, name)}, want {getattr(self, name)}")
        for key in (*other._prompts, *other._left_out):
            if key in self._prompts or key in self._left_out:
                raise InputError("other", f"has the prompt {key!r}, which is here too")
        self._prompts.update(other._prompts)
        self._left_out.update(other._left_out)

    def without(self, keys: Container[str]) -> "Audit":
        """An audit of the other prompts alone."""
        rest = Audit(self.parts, self.schemes, self.directions, self.layers)
        rest._prompts = {key: p for key, p in self._prompts.items() if key not in keys}
        rest._left_out = {key: why for key, why in self._left_out.items() if key not in keys}
        return rest

    def save(self, path: Any) -> None:
        """Writes all that was added to an .npz file, whole or not at all."""
        records = self._prompts
        of: Dict[str, Any] = {field: np.array([getattr(p, field) for p in records.values()]) for field in _Prompt._fields}
        head = {"parts": self.parts, "directions": self.directions, "layers": self.layers, "schemes": self.schemes,
                "keys": list(records), "left_out": self._left_out}  # fmt: skip
        temporary = f"{path}.tmp"
        with open(temporary, "wb") as file:
            np.savez(file, head=np.array(json.dumps(head)), **of)
        os.replace(temporary, path)

    @staticmethod
    def open(path: Any) -> "Audit":
        """Returns what save has written."""
        try:
            with np.load(path, allow_pickle=False) as file:
                head = json.loads(str(file["head"]))
                arrays = [file[name] for name in _Prompt._fields]
            found = Audit(head["parts"], head["schemes"], head["directions"], head["layers"])
            keys, found._left_out = head["keys"], dict(head["left_out"])
            L, P, K, M = len(found.layers), len(found.parts), len(found.parts + found.directions), len(keys)
            if M and [a.shape for a in arrays] != [(M,), (M, P), (M, L, K, K), (M, L, K, K)]:
                raise ValueError("its arrays have wrong shapes")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
            raise InputError("path", f"is {path}, which is no audit: {error}") from None
        found._prompts = {key: _Prompt(int(n), *rest) for key, n, *rest in zip(keys, *arrays)}
        return found

    def load(self, path: Any) -> "Audit":
        """Returns what save has written. Raises InputError where it is of other parts, schemes, directions or layers."""
        found = Audit.open(path)
        made = Audit(self.parts, self.schemes, self.directions, self.layers)
        try:
            made.merge(found)
        except InputError as error:
            raise InputError("path", f"is {path}, whose audit {error.problem}") from None
        return made

    @property
    def counted(self) -> int:
        """How many prompts have signal."""
        return len(self._prompts)

    def __len__(self) -> int:
        return len(self._prompts) + len(self._left_out)

    def __contains__(self, key: str) -> bool:
        return key in self._prompts or key in self._left_out

    def report(self) -> Report:
        """What the prompts say. Raises InputError if there is none with signal."""
        prompts, s, t, answers = self._moments()
        P = len(self.parts)
        S, T = np.stack([p.S for p in prompts]), np.stack([p.T for p in prompts])  # [M, L, K, K]
        tokens = np.sum([p.tokens for p in prompts], 0)
        by_layer = {}
        if len(self.layers) > 1:
            for i, layer in enumerate(self.layers):
                by_layer[layer] = self._of_parts(S[:, i], T[:, i], tokens, answers)
        asked = {**self.schemes, **{name: np.eye(s.shape[1])[P + i] for i, name in enumerate(self.directions)}}
        efficiencies = [_efficiency(name, np.asarray(w, float), s, t, P, answers) for name, w in asked.items()]
        parts = self._of_parts(s, t, tokens, answers)
        measured = _cross_fitted(s[:, :P, :P], t[:, :P, :P], answers)
        (best,) = _positive(s[:, :P, :P].sum(2).mean(0)[None], (s + (t - s) / answers)[:, :P, :P].mean(0)[None])
        there = _there(t[:, :P, :P])
        weights = {name: float(w / best.max()) if best.any() and has else 1.0 for name, w, has in zip(self.parts, best, there)}
        signal = _ratio(s[:, :P, :P].sum((1, 2)), t[:, :P, :P].sum((1, 2)))
        verdict, advice = _advice(weights, measured, len(prompts), answers)
        return Report(
            prompts=len(prompts),
            left_out=len(self._left_out),
            answers=answers,
            layers=list(self.layers),
            parts=parts,
            by_layer=by_layer,
            efficiencies=efficiencies,
            measured=measured,
            weights=weights,
            signal=signal,
            verdict=verdict,
            advice=advice,
        )

    def _moments(self) -> Tuple[List[_Prompt], Any, Any, float]:
        """The prompts in the order of their keys, S and T of each with all layers in one, and the answers of a prompt."""
        prompts = [self._prompts[key] for key in sorted(self._prompts)]
        if len(prompts) < 2:
            raise InputError("prompts", f"are {len(prompts)} with different rewards, of {len(self)}, want at least 2")
        P = len(self.parts)
        S, T = np.stack([p.S for p in prompts]), np.stack([p.T for p in prompts])  # [M, L, K, K]
        power = T[:, :, :P, :P].sum((2, 3)).mean(0)  # [L], of an answer
        scale = 1 / np.where(power > 0, power, np.inf)[:, None, None]
        answers = len(prompts) / sum(1 / p.answers for p in prompts)  # noise falls with 1/n
        return prompts, (S * scale).sum(1), (T * scale).sum(1), answers

    def shrunk(self) -> Dict[str, float]:
        """Weights of the parts that a run may train with: the best of at least 0, where the first part has 1, in 0 to 2.
        What chance may have made is taken back: w becomes 1 + (w - 1) (1 - 2 d), d is the share of 1,000 bootstrap samples
        of the prompts in which w is on the other side of 1, and half is the most. A part without tokens has 1, and all
        have 1 if the first part has none."""
        _, s, t, answers = self._moments()
        P = len(self.parts)
        c, m = s[:, :P, :P].sum(2), (s + (t - s) / answers)[:, :P, :P]
        there = _there(t[:, :P, :P])
        if not there[0]:
            return dict.fromkeys(self.parts, 1.0)

        def best(c: Any, m: Any) -> Any:
            w = _positive(c[None], m[None])[0]
            return np.clip(w / w[0], 0, 2) if w[0] > 0 else np.array([1.0, *[2.0 if x > 0 else 1.0 for x in w[1:]]])

        found = np.where(there, best(c.mean(0), m.mean(0)), 1)
        drawn = np.random.default_rng(0).multinomial(len(s), np.full(len(s), 1 / len(s)), 1000) / len(s)
        samples = np.array([best(x, y) for x, y in zip(drawn @ c, np.einsum("bm,mrs->brs", drawn, m))])
        against = np.minimum((np.sign(samples - 1) != np.sign(found - 1)).mean(0), 0.5)
        return dict(zip(self.parts, (1 + (found - 1) * (1 - 2 * against)).tolist()))

    def as_json(self) -> str:
        """S, T and the tokens of each prompt as JSON, and what report says of them, if there are enough: a file that
        `reweight show` prints."""
        prompts = [
            {"key": key, **{name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in p._asdict().items()}}
            for key, p in sorted(self._prompts.items())
        ]
        sums = {"parts": self.parts, "directions": self.directions, "layers": self.layers, "left_out": len(self._left_out),
                "schemes": [{"name": name, "weights": w} for name, w in self.schemes.items()], "prompts": prompts}  # fmt: skip
        report = self.report().as_dict() if self.counted > 1 else {}
        return json.dumps({"audit": sums, **report}) + "\n"

    def _of_parts(self, s: Any, t: Any, tokens: Any, answers: float) -> List[Part]:
        P = len(self.parts)
        s, t = s[:, :P, :P], t[:, :P, :P]
        c, noise = s.sum(2), np.diagonal(t - s, axis1=1, axis2=2)
        m = s + (t - s) / answers
        best, influence = _best(c, m)
        there = _there(t)
        return [
            Part(
                name,
                int(tokens[r]),
                _ratio(c[:, r], c.sum(1)),
                _ratio(noise[:, r], noise.sum(1)),
                Interval(1.0, 1.0, 1.0) if r == 0 else _fieller(best[r], best[0], influence[:, r], influence[:, 0]) if there[r] else _UNKNOWN,
            )
            for r, name in enumerate(self.parts)
        ]


def moments(rewards: Any, grams: Any) -> Tuple[Any, Any]:
    """S and T of a prompt: [L, K, K] each."""
    n, rewards = len(rewards), rewards - rewards.mean()  # which changes nothing but what is rounded
    total = rewards.sum()
    others = (total - rewards[:, None] - rewards) / (n - 2)  # b_ij
    both = (rewards[:, None] - others) * (rewards - others)
    if n > 3:  # less the variance of b_ij, which would remain where a part is of tokens by what they say
        squares = (rewards**2).sum() - rewards[:, None] ** 2 - rewards**2
        both -= (squares / (n - 2) - others**2) / (n - 3)
    # What rounding leaves is no signal: where one reward alone differs, all are 0.
    both[np.abs(both) < 1e-12 * (rewards**2).max()] = 0
    np.fill_diagonal(both, 0)
    alone = (rewards - (total - rewards) / (n - 1)) ** 2
    S = np.einsum("ij,lrsij->lrs", both, grams) / (n * (n - 1))
    T = np.einsum("i,lrsii->lrs", alone, grams) / n
    return (S + S.transpose(0, 2, 1)) / 2, (T + T.transpose(0, 2, 1)) / 2


def student(freedom: int, z: float = _NORMAL) -> float:
    """The quantile of Student's t for the quantile z of the normal distribution, that of a 95% interval if it is not given:
    within 0.2% from 4 degrees of freedom on."""
    v = freedom
    if v < 4 and z == _NORMAL:
        return {1: 12.706, 2: 4.303, 3: 3.182}[max(v, 1)]
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / float(v ** (k + 1)) for k, term in enumerate(terms))


def _fieller(above: float, below: float, u: Any, v: Any) -> Interval:
    """The ratio of two estimates and all that it may be: the x at which above - x below is within its error of 0. u and v
    have the influence of each prompt on the two, in means."""
    M = len(u)
    above, below = float(above), float(below)
    if not below:
        return _UNKNOWN
    factor = student(M - 1) ** 2 / (M * (M - 1))
    u, v = u - u.mean(), v - v.mean()
    a = below**2 - factor * (v @ v)
    b = above * below - factor * (u @ v)
    c = above**2 - factor * (u @ u)
    if a <= 0:
        return Interval(above / below, -math.inf, math.inf)
    wide = math.sqrt(max(b * b - a * c, 0))
    return Interval(above / below, (b - wide) / a, (b + wide) / a)


def _ratio(above: Any, below: Any) -> Interval:
    """The ratio of the means of two figures of each prompt."""
    return _fieller(above.mean(), below.mean(), above, below)


def _there(t: Any) -> Any:
    """Which of the parts have tokens."""
    return np.diagonal(t, axis1=1, axis2=2).any(0)


def _best(c: Any, m: Any) -> Tuple[Any, Any]:
    """The best weights of the parts, and the influence of each prompt on them."""
    mean = m.mean(0)
    inverse = np.linalg.pinv(mean)
    best = inverse @ c.mean(0)
    return best, (c - m @ best) @ inverse


def _positive(c: Any, m: Any) -> Any:
    """The best weights [M, P] that are at least 0: those of the parts whose own are, one part less at a time."""
    kept = np.ones(c.shape, bool)
    while True:
        w = np.where(kept, (np.linalg.pinv(m * (kept[:, :, None] & kept[:, None])) @ (c * kept)[:, :, None])[:, :, 0], 0.0)
        least = w.min(1, keepdims=True)
        if (least >= 0).all():
            w[~kept.any(1)] = 1
            return w
        kept &= (w > least) | (least >= 0)


def _over_equal(above: Any, square: Any, equal: Any, equal_square: Any) -> Interval:
    """Efficiency over equal weights: w c and w'M w of each prompt, and the same of ones."""
    a, e, q, r = above.mean(), equal.mean(), square.mean(), equal_square.mean()
    if not (q > 0 and r > 0):
        return _UNKNOWN
    rq, rr = math.sqrt(q), math.sqrt(r)
    u = above * rr + a * equal_square / (2 * rr)
    v = equal * rq + e * square / (2 * rq)
    return _fieller(a * rr, e * rq, u, v)


def _efficiency(name: str, w: Any, s: Any, t: Any, P: int, answers: float) -> Efficiency:
    if len(w) < s.shape[1]:
        w = np.concatenate([w, np.zeros(s.shape[1] - len(w))])
    ones = (np.arange(s.shape[1]) < P) * 1.0
    above, equal = s @ ones @ w, s @ ones @ ones

    def at(n: float) -> Interval:
        m = s + (t - s) / n
        return _over_equal(above, m @ w @ w, equal, m @ ones @ ones)

    return Efficiency(name, at(answers), {k: at(answers * k).value for k in (4, 16, 64)})


def _cross_fitted(s: Any, t: Any, answers: float) -> Efficiency:
    """The efficiency of the best weights of at least 0, each prompt judged by those that all others have."""
    M, P = len(s), s.shape[1]
    ones = np.ones(P)
    c = s @ ones

    def at(n: float) -> Interval:
        m = s + (t - s) / n
        middle = m.mean(0)
        others, theirs = (c.sum(0) - c) / (M - 1), (m.sum(0) - m) / (M - 1)
        w = _positive(others, theirs)
        size = np.einsum("mr,rs,ms->m", w, middle, w)
        if not (size > 0).all():
            return _UNKNOWN
        w /= np.sqrt(size)[:, None]
        return _over_equal((c * w).sum(1), np.einsum("mr,mrs,ms->m", w, m, w), c @ ones, m @ ones @ ones)

    return Efficiency("measured", at(answers), {k: at(answers * k).value for k in (4, 16, 64)})


def _advice(weights: Mapping[str, float], measured: Efficiency, prompts: int, answers: float) -> Tuple[str, str]:
    """The rule: weights are used where the measured ones, judged on other prompts than they were fitted on, are at least
    1.05 times as good as equal ones and the interval is above 1; equal ones are kept where the interval is below 1.05; and
    else, or with fewer than 10 prompts, more are needed."""
    e = measured.here
    if prompts >= FEWEST and e.known:
        if e.low > 1 and e.value >= GAIN:
            listed = ", ".join(f"{name} {w:.2f}" for name, w in weights.items())
            return "use", f"Use these weights: {listed}. A step is {e} times as good as with equal weights, at {answers:.0f} answers a prompt."
        if e.high < GAIN:
            return "keep", f"Keep equal weights: those that fit best are {e} times as good, and less than {GAIN} does not matter."
    if not e.known:
        more = 4 * max(prompts, FEWEST)
    else:  # until the interval is above 1, or below what is worth a change
        away = max(e.value - 1 if e.value >= GAIN else GAIN - e.value, 0.01)
        more = max(FEWEST, math.ceil(prompts * ((e.high - e.low) / 2 / away) ** 2), prompts + 1)
    return "more", f"Not enough prompts for advice: {prompts} have different rewards, and about {more} would be needed."
