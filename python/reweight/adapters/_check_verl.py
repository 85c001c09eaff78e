"""What check-trainer compares in verl: the policy losses of core_algos."""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import os
from types import SimpleNamespace
from typing import Any, Dict, Iterator, Mapping, Tuple

import numpy as np
import numpy.typing as npt

from . import Credit, verl
from ._hooks import version_of

_ACTOR = "actor_rollout_ref.actor."


def formula(
    rows: Mapping[str, Any], w: Any, A: Any, actor: Any, tokens: float, count: float, name: str, mode: str, kept: Any = None, importance: Any = None
) -> Tuple[float, npt.NDArray[np.float64]]:
    """The loss of a name and an aggregation in float64, and its gradient by rows["new"]: w l(A), divided as the aggregation
    says; penalty and bonus are not weighted.

    rows: [B, T] each: old, new, ref, entropy; kept, the tokens of the loss. A: [B, T], with AEM's factors. actor: verl's
    options. tokens, count: those of the mini-batch by which verl divides. kept: where the loss rejects tokens itself,
    those that stay. importance: [B, T] of verl's rollout correction."""
    torch: Any = importlib.import_module("torch")

    def d(x: Any) -> Any:
        return torch.from_numpy(np.asarray(x, np.float64))

    w, A, old, kept = d(w), d(A), d(rows["old"]), d(rows["kept"] if kept is None else kept)
    x = d(rows["new"]).requires_grad_()
    ratio, low, high = (x - old).exp(), actor.clip_ratio_low, actor.clip_ratio_high
    if name == "vanilla":
        l = -torch.min(ratio * A, ratio.clamp(1 - low, 1 + high) * A)
        l = torch.where(A < 0, torch.min(l, -A * actor.clip_ratio_c), l)
    elif name == "gspo":  # of the tokens, whose ratio is the sequence's in value
        mean = ((x - old) * kept).sum(1, keepdim=True) / kept.sum(1, keepdim=True).clamp(min=1)
        ratio = mean.detach().exp() * (x - x.detach()).exp()
        l = -torch.min(ratio * A, ratio.clamp(1 - low, 1 + high) * A)
    elif name == "sapo":
        tau = torch.where(A > 0, actor.tau_pos, actor.tau_neg)
        l = -A * torch.sigmoid(tau * (ratio - 1)) * 4 / tau
    elif name == "gpg":
        l = -A * x
    elif name == "cispo":
        l = -ratio.detach().clamp(1 - low, 1 + high) * A * x
    else:  # DPPO: the ratio is cut, and a token left out where the policies have parted too far in the direction of A
        p, q = old.exp(), x.detach().exp()
        binary = p * (p / q).log() + (1 - p) * ((1 - p + 1e-8) / (1 - q + 1e-8)).log()
        away = (q - p).abs() if name == "dppo_tv" else binary
        parted = torch.where(A > 0, (away > high) & (q > p), (away > low) & (q < p))
        l = -A * ratio.detach().clamp(max=actor.clip_ratio_c) * x * ~parted
    if importance is not None:
        l = l * d(importance)

    def divided(l: Any, w: Any, mode: str) -> Any:
        total = (w * l * kept).sum()
        if mode == "token-mean":
            return total / w.sum() * d(rows["kept"]).sum() / tokens
        if mode == "seq-mean-token-mean":
            alive = kept.sum(1) > 0
            return ((w * l * kept).sum(1)[alive] / (w * kept).sum(1)[alive]).sum() / count
        if mode == "token-sum":
            return total
        return total / count / ((actor.loss_scale_factor or x.shape[1]) if mode.endswith("norm") else 1)

    apart, alike = d(rows["ref"]) - x, d(rows["kept"])
    loss = divided(l, w, mode)
    loss = loss - actor.entropy_coeff * divided(d(rows["entropy"]), alike, actor.loss_agg_mode)
    if actor.use_kl_loss:
        loss = loss + actor.kl_loss_coef * divided(apart.exp() - apart - 1, alike, actor.loss_agg_mode)
    loss.backward()
    return loss.item(), x.grad.numpy()


class Verl:
    """The policy losses of the verl that is installed, of the configuration that its command has, and the credit that the
    adapter gives RayPPOTrainer."""

    def __init__(self, folder: str, credit: Credit, x: SimpleNamespace, w: Any, f: Any) -> None:
        """x: rollouts. w, f: what the credit makes of their tokens."""
        hydra: Any = importlib.import_module("hydra")
        self.losses: Any = importlib.import_module("verl.trainer.ppo.core_algos").POLICY_LOSS_REGISTRY
        self.dataclass: Any = getattr(importlib.import_module("verl.utils.config"), "omega_conf_to_dataclass")
        configs = os.path.dirname(str(importlib.import_module("verl.trainer.config").__file__))
        with hydra.initialize_config_dir(configs, version_base=None):
            self.config = hydra.compose("ppo_trainer", [_ACTOR + "ppo_micro_batch_size_per_gpu=1"])
        omegaconf: Any = importlib.import_module("omegaconf")  # bypass_mode has weights of its own by default
        omegaconf.OmegaConf.update(self.config, _ACTOR + "policy_loss.rollout_correction.rollout_is", None, force_add=True)
        self.credit, self.x, self.w, self.f = credit, x, w, f
        self.title = f"verl {version_of('verl')}, policy losses"

    def cases(self) -> Iterator[Dict[str, Any]]:
        for name, mode in itertools.product(dict.fromkeys([*verl._LOSSES, *self.losses]), verl._MODES):
            yield {"loss_mode": name, "loss_agg_mode": mode}

    def known(self, loss_mode: str, **_: Any) -> bool:
        """Whether formula has the loss."""
        return loss_mode in verl._LOSSES

    def loss(self, credited: bool, loss_mode: str, loss_agg_mode: str) -> Tuple[float, npt.NDArray[np.float64]]:
        """verl's loss and dL/dlogprobs. Raises AttributeError if the version has no such loss."""
        if loss_mode not in self.losses:
            raise AttributeError(loss_mode)
        torch: Any = importlib.import_module("torch")
        x, actor = self.x, self._actor(loss_mode, loss_agg_mode)
        rows = {name: torch.from_numpy(getattr(x, name).astype(np.float32)) for name in ("old", "new", "entropy")}
        mask, scores = torch.from_numpy(x.mask.astype(np.int64)), torch.from_numpy(x.scores.astype(np.float32))
        tensors = {"response_mask": mask, "responses": torch.from_numpy(x.ids), "old_log_probs": rows["old"], "entropys": rows["entropy"]}
        tensors.update(advantages=scores[:, None] * mask, token_level_rewards=torch.zeros(mask.shape))
        if credited:
            batch = SimpleNamespace(batch=tensors, non_tensor_batch={"uid": np.arange(len(mask)) // 4})
            trainer = SimpleNamespace(config=self.config, tokenizer=None, use_reference_policy=False)
            with contextlib.redirect_stderr(io.StringIO()):
                verl.credit_batch(batch, trainer, self.credit)
        new = rows["new"].requires_grad_()
        options = dict(loss_agg_mode=loss_agg_mode, config=actor, rollout_is_weights=None)
        loss, _ = self.losses[loss_mode](rows["old"], new, tensors["advantages"], mask, **options)
        loss.backward()
        return loss.item(), new.grad.double().numpy()

    def exact(self, credited: bool, loss_mode: str, loss_agg_mode: str) -> Tuple[float, npt.NDArray[np.float64]]:
        """The same by the formula."""
        actor, x = self._actor(loss_mode, loss_agg_mode), self.x
        w, f = (self.w, self.f) if credited else (x.mask, 1.0)
        mode = verl._aggregation(self.config.actor_rollout_ref.actor).replace("_", "-")
        rows = {"kept": x.mask, "old": x.old, "new": x.new, "ref": x.ref, "entropy": x.entropy}
        name = "vanilla" if loss_mode == "bypass_mode" else loss_mode
        return formula(rows, w, x.scores[:, None] * f * x.mask, actor, x.mask.sum(), len(x.mask), name, mode)

    def _actor(self, loss_mode: str, loss_agg_mode: str) -> Any:
        """Sets verl's options, and returns those that its loss gets, of an aggregation that every version has."""
        actor = self.config.actor_rollout_ref.actor
        actor.policy_loss.loss_mode, actor.loss_agg_mode = loss_mode, "token-mean"
        made = self.dataclass(actor)
        actor.loss_agg_mode = loss_agg_mode
        return made
