"""What check-trainer compares in OpenRLHF: its PolicyLoss."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import itertools
import re
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from . import Credit, openrlhf
from ._hooks import version_of
from ._report import Report

# Level, mode and gating of its correction, with bounds that drop a part of the rollouts.
_CORRECTIONS = {
    "token clip ratio": (0.9, 1.1), "token mask ratio": (0.9, 1.1), "token mask binary_kl": (-1.0, 0.02), "token mask tv": (-1.0, 0.07),
    "seq mask ratio": (0.98, 1.02), "seq mask binary_kl": (-1.0, 0.0135), "seq mask tv": (-1.0, 0.0425),
}  # fmt: skip
_OPTIONS: Tuple[Dict[str, Any], ...] = ({}, {"dual_clip": 1.02}, *({"correction": name} for name in _CORRECTIONS))
_CLIP = (0.2, 0.27)


def formula(
    A: Any, new: Any, old: Any, w: Any, f: Any, mask: Any, policy_loss_type: str = "ppo", loss_agg_mode: str = "token-mean",
    dual_clip: Any = None, clip: Sequence[float] = _CLIP, rollout: Any = None, level: str = "off", mode: str = "mask",
    gating: str = "ratio", threshold: Sequence[float] = (0.5, 5.0),
) -> Tuple[float, npt.NDArray[np.float64]]:  # fmt: skip
    """w l(f A), and what it is divided by, in float64, and its gradient by new; arrays are [B, T]."""
    torch: Any = importlib.import_module("torch")

    def d(array: Any) -> Any:
        return torch.from_numpy(np.asarray(array, np.float64))

    x, old, w, m = d(new).requires_grad_(), d(old), d(w), d(mask)
    A = d(A) * d(f)
    count = m.sum(1, keepdim=True).clamp(min=1)
    coefficient = torch.ones_like(m)
    if policy_loss_type == "gspo":
        ratio = (((x - (old if level == "off" else d(rollout))) * m).sum(1, keepdim=True) / count).exp()
    else:
        ratio = (x - old).exp()
        if level != "off":
            drift = old - d(rollout)
            p, q = d(rollout).exp(), old.exp()
            statistic = {
                "ratio": drift, "tv": (p - q).abs(),
                "binary_kl": p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log().nan_to_num(),  # 0/0 at padding
            }[gating]  # fmt: skip
            if level == "seq":
                statistic = (statistic * m).sum(1, keepdim=True) / count
            if gating == "ratio":
                statistic = statistic.exp()
            if mode == "clip":
                coefficient = statistic.clamp(*threshold)
            else:
                coefficient = drift.exp() * ((statistic >= threshold[0]) & (statistic <= threshold[1]))
    l = torch.min(ratio * A, ratio.clamp(1 - clip[0], 1 + clip[1]) * A)
    if dual_clip is not None:
        l = torch.where(A < 0, torch.max(l, dual_clip * A), l)
    l = -l * coefficient * m
    if policy_loss_type == "gspo" or loss_agg_mode == "seq-mean-token-mean":
        total = ((w * l).sum(1) / w.sum(1).clamp(min=1e-300))[d(mask.any(1)) > 0].mean()
    else:
        total = (w * l).sum() / w.sum()
    total.backward()
    return total.item(), x.grad.numpy()


class OpenRLHF:
    """The PolicyLoss of the OpenRLHF that is installed, and the credit that the adapter gives its experiences."""

    def __init__(self, folder: str, credit: Credit, x: SimpleNamespace, w: Any, f: Any) -> None:
        """x: rollouts. w, f: what the credit makes of their tokens."""
        openrlhf._check_openrlhf(credit)
        self.kind: Any = importlib.import_module("openrlhf.models.loss").PolicyLoss
        self.credit, self.x, self.w, self.f = credit, x, w, f
        self.rollout = np.minimum(x.old - np.log(x.engine), -1e-3).astype(np.float32).astype(np.float64)
        self.title = f"OpenRLHF {version_of('openrlhf')}, PolicyLoss"
        self.report = Report(credit, self.title)
        self.report.end = lambda: None  # type: ignore[method-assign]

    def cases(self) -> Iterator[Dict[str, Any]]:
        compared = re.findall(r'policy_loss_type\s*==\s*"(\w+)"', inspect.getsource(self.kind))
        names = dict.fromkeys([*openrlhf._TESTED["actor.policy_loss_type"], *compared])
        for name, mode, options in itertools.product(names, openrlhf._TESTED["actor.loss_agg_mode"], _OPTIONS):
            yield {"policy_loss_type": name, "loss_agg_mode": mode, **options}

    def known(self, policy_loss_type: str, **_: Any) -> bool:
        """Whether formula has the loss."""
        return policy_loss_type in openrlhf._TESTED["actor.policy_loss_type"]

    def loss(self, credited: bool, policy_loss_type: str, loss_agg_mode: str, **options: Any) -> Tuple[float, npt.NDArray[np.float64]]:
        """OpenRLHF's loss and dL/dlogprobs. Raises AttributeError if the version has no such option."""
        torch: Any = importlib.import_module("torch")
        x, correction = self.x, self._correction(**options)

        def t(array: Any) -> Any:
            return torch.from_numpy(array.astype(np.float32))

        mask = torch.from_numpy(x.mask.astype(np.int64))
        e = SimpleNamespace(
            sequences=torch.nn.functional.pad(torch.from_numpy(x.ids), (1, 0), value=5), action_mask=mask, action_log_probs=t(x.old),
            rewards=t(x.scores), advantages=t(x.scores[:, None] * x.mask), index=list(range(len(mask))), info={},
        )  # fmt: skip
        if credited:
            actor = SimpleNamespace(policy_loss_type=policy_loss_type, loss_agg_mode=loss_agg_mode)
            correction_of = {f"is_correction_{name}": correction[name] for name in ("level", "mode", "gating")}
            algo = SimpleNamespace(
                advantage=SimpleNamespace(estimator="group_norm", **correction_of), kl=SimpleNamespace(use_loss=False, init_coef=0.0)
            )
            args = SimpleNamespace(actor=actor, algo=algo, rollout=SimpleNamespace(n_samples_per_prompt=4))
            maker = SimpleNamespace(args=args, tokenizer=None, initial_model_group=None, credit_report=self.report)
            openrlhf._check_maker(maker, self.credit)
            with contextlib.redirect_stderr(io.StringIO()):
                openrlhf._reweigh(maker, [e], self.credit)
        wanted = {f"is_correction_{name}": value for name, value in correction.items() if options.get("correction")}
        wanted.update({name: value for name, value in options.items() if name != "correction"})
        has: List[str] = list(inspect.signature(self.kind).parameters)
        if not wanted.keys() <= set(has):
            raise AttributeError(", ".join(wanted))
        policy = self.kind(
            clip_eps_low=_CLIP[0], clip_eps_high=_CLIP[1], token_level_loss=loss_agg_mode == "token-mean", policy_loss_type=policy_loss_type, **wanted
        )
        leaf = t(x.new).requires_grad_()
        divisors = {"batch_num_tokens": mask.sum().float(), "global_batch_size": torch.tensor(float(len(mask)))}
        loss = policy(leaf, e.action_log_probs, e.advantages, action_mask=mask, rollout_log_probs=t(self.rollout), **divisors)[0]
        loss.backward()
        return loss.item(), leaf.grad.double().numpy()

    def exact(self, credited: bool, **case: Any) -> Tuple[float, npt.NDArray[np.float64]]:
        """The same by the formula."""
        x, (w, f) = self.x, (self.w, self.f) if credited else (self.x.mask, np.ones(self.x.mask.shape))
        gate = self._correction(case.pop("correction", None))
        return formula(x.scores[:, None] * x.mask, x.new, x.old, w, f, x.mask, rollout=self.rollout, **gate, **case)

    def _correction(self, correction: Any = None, **_: Any) -> Dict[str, Any]:
        level, mode, gating = correction.split() if correction else ("off", "mask", "ratio")
        return {"level": level, "mode": mode, "gating": gating, "threshold": _CORRECTIONS.get(correction, (0.5, 5.0))}
