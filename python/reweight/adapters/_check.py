"""python -m reweight check-trainer: is the loss of the trainer that is installed its formula, with and without credit?"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import io
import itertools
import os
import re
import sys
import tempfile
import warnings
from types import SimpleNamespace
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from .._errors import printable
from . import Credit, HookError, trl
from ._check_openrlhf import OpenRLHF
from ._check_verl import Verl
from ._hooks import version_of
from ._report import Report

USAGE = """Usage: python -m reweight check-trainer trl
       python -m reweight check-trainer verl
       python -m reweight check-trainer openrlhf

Compares the loss of the trainer that is installed, and the gradient by the log-probabilities, with their formulas in float64,
without credit and with it: of TRL's GRPOTrainer every loss_type with every option that changes it, of verl every policy
loss with every loss_agg_mode, of OpenRLHF every policy_loss_type with both, with dual clip and with each correction. Takes
less than a minute.
Exit status: 0 all are right or refused, 1 one is wrong, 2 bad use or no such trainer."""

CREDIT = Credit(beta=2.0, guard=0.0, tags=([2], [3]))
_OPTIONS: Tuple[Dict[str, Any], ...] = (
    {"importance_sampling_level": "token"}, {"importance_sampling_level": "sequence"}, {"beta": 0.0}, {"top_entropy_quantile": 0.5},
    {"off_policy_mask_threshold": 0.01}, {"delta": 1.1}, {"use_bias_correction_kl": True}, {"corrected": True}, {"entropy_coef": 0.1},
)  # fmt: skip
_WITH_DELTA = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")


def spans(mask: Any) -> Any:
    """Pairs of the first token of each response of a trajectory, and the one after its last."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
    return edges.reshape(-1, 2)


def roles(words: Any, mask: Any, opening: Any = "<answer>", closing: Any = "</answer>") -> Any:
    """0 at tokens that are no response, 1 at reasoning, 2 from an opening tag to its closing one. words has a list of the
    tokens of each trajectory, mask is [B, T]."""
    role = mask.astype(int)
    for b, row in enumerate(words):
        for first, end in spans(mask[b]):
            opened = None
            for t in range(first, end):
                if row[t] == opening:
                    opened = t
                elif opened is not None and row[t] == closing:
                    role[b, opened : t + 1] = 2
                    opened = None
    return role


def weights_and_factors(role: Any, signal: Any, entropy: Any, groups: Any, credit: Credit) -> Tuple[Any, Any]:
    """The weight of each token by ActFocus and its factor by AEM, [B, T], without the library; groups is [B]."""
    mask, action = role > 0, role == 2
    w = np.where(role == 1, credit.alpha, 0.0)
    mu = signal[action].mean()
    sigma = np.sqrt(((signal[action] - mu) ** 2).mean() + credit.eps)
    w[action] = 1 + credit.beta / (1 + np.exp(-(signal[action] - mu) / sigma))
    f = np.ones_like(w)
    for g in set(groups.tolist()):
        found = [(b, s, e, entropy[b, s:e].mean()) for b in np.flatnonzero(groups == g) for s, e in spans(mask[b])]
        h = np.array([x[3] for x in found])
        if len(h) and h.max() - h.min() >= max(credit.guard, 1e-12):
            factor = np.exp(-credit.lambda_ * (h - h.min()) / (h.max() - h.min()))
            for (b, s, e, _), value in zip(found, factor / factor.mean()):
                f[b, s:e] = value
    return w, f


def _rollouts() -> SimpleNamespace:
    """Eight completions of two prompts, with numbers that float32 has."""
    g = np.random.default_rng(1)
    B, T = 8, 20
    mask = np.arange(T) < g.integers(8, T + 1, (B, 1))
    mask[:, 9:11] = False
    ids = g.integers(4, 24, (B, T))
    ids[:, 2], ids[:, 6], ids[3, 12], ids[3, 15] = 2, 3, 2, 3
    old = -g.gamma(1.0, 1.0, (B, T))
    new = np.minimum(old + g.normal(size=(B, T)) * 0.3, -1e-3)
    made = {"old": old, "new": new, "ref": new + g.normal(size=(B, T)) * 0.2, "entropy": g.gamma(2.0, 0.5, (B, T))}
    made.update(scores=g.normal(size=B), engine=np.where(mask, np.exp(g.normal(size=(B, T)) * 0.1), 1))
    return SimpleNamespace(mask=mask, ids=ids, **{name: x.astype(np.float32).astype(np.float64) for name, x in made.items()})


def formula(
    x: SimpleNamespace, w: Any, f: Any, loss_type: str, importance_sampling_level: str = "token", beta: float = 0.04,
    top_entropy_quantile: float = 1.0, off_policy_mask_threshold: Any = None, delta: Any = None, use_bias_correction_kl: bool = False,
    epsilon_low: float = 0.2, epsilon_high: float = 0.2, corrected: bool = False, entropy_coef: float = 0.0,
) -> Tuple[float, npt.NDArray[np.float64]]:  # fmt: skip
    """The loss and dL/dlogprobs in float64: w l(f A), divided as the paper of each divides it; the penalty is not weighted."""
    torch: Any = importlib.import_module("torch")

    def d(array: Any) -> Any:
        return torch.from_numpy(np.asarray(array, np.float64))

    w, f, mask = d(w), d(f), d(x.mask)
    A = (d(x.scores)[:, None] * f).expand_as(mask)
    new = d(x.new).requires_grad_()
    ratio = new - d(x.old)
    per_sequence = (ratio * mask).sum(-1, keepdim=True)
    if importance_sampling_level == "sequence":
        ratio = per_sequence / mask.sum(-1, keepdim=True)
    ratio = ratio.exp()
    kept = torch.ones_like(mask)
    if off_policy_mask_threshold is not None:
        drift = ((d(x.old) - new.detach()) * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
        kept = ((A >= 0) | (drift <= off_policy_mask_threshold)).double()
    if top_entropy_quantile < 1:
        kept = kept * d(x.entropy >= np.quantile(x.entropy[x.mask], 1 - top_entropy_quantile))
    if loss_type == "cispo":
        l = -ratio.detach().clamp(max=epsilon_high) * A * new
    elif loss_type == "sapo":
        tau = torch.where(A > 0, 1.0, 1.05)
        l = -A * torch.sigmoid(tau * (ratio - 1)) * 4 / tau
    elif loss_type == "vespo":
        if corrected:
            per_sequence = per_sequence + (d(np.log(x.engine)) * mask).sum(-1, keepdim=True)
        log_w = per_sequence.detach().clamp(np.log(1e-8), 20)
        k, lam = torch.where(A >= 0, 2.0, 3.0), torch.where(A >= 0, 3.0, 2.0)
        l = -torch.exp(lam + k * log_w - lam * log_w.exp()) * A * new
    else:
        bounded = ratio if delta is None else ratio.clamp(max=delta)
        l = -torch.min(bounded * A, ratio.clamp(1 - epsilon_low, 1 + epsilon_high) * A)
    if corrected and loss_type != "vespo":
        l = l * d(x.engine)
    l = l * kept * mask
    kl = ((d(x.ref) - new).exp() - (d(x.ref) - new) - 1) * mask * (ratio if use_bias_correction_kl else 1)
    if loss_type in ("grpo", "sapo"):
        loss = ((w * l).sum(-1) / w.sum(-1)).mean() + beta * (kl.sum(-1) / mask.sum(-1)).mean()
    elif loss_type == "dr_grpo":
        loss = ((w * l).sum() + beta * kl.sum()) / mask.numel()
    elif loss_type == "luspo":
        loss = ((w * l).sum() + beta * kl.sum()) / len(mask)
    else:
        loss = (w * l).sum() / w.sum() + beta * kl.sum() / mask.sum()
    loss = loss - entropy_coef * (d(x.entropy) * mask).sum() / mask.sum()
    loss.backward()
    return loss.item(), new.grad.numpy()


@contextlib.contextmanager
def _with(trainer: Any, options: Mapping[str, Any]) -> Iterator[None]:
    """Within it the trainer has the options. Raises AttributeError if its version has no such option."""
    places = {name: trainer.args if name in ("delta", "use_bias_correction_kl") else trainer for name in options}
    before = {name: getattr(place, name) for name, place in places.items()}
    try:
        for name, place in places.items():
            setattr(place, name, options[name])
        yield
    finally:
        for name, value in before.items():
            setattr(places[name], name, value)


class TRL:
    """GRPOTrainer of TRL, of a tiny model."""

    def __init__(self, folder: str, credit: Credit, x: SimpleNamespace, w: Any, f: Any) -> None:
        """x: rollouts. w, f: what the credit makes of their tokens."""
        # TRL 1.15 scores tokens with Triton, on the CPU too, which Triton can only interpret.
        os.environ.setdefault("TRITON_INTERPRET", "1")
        trl._check_trl(credit)
        transformers: Any = importlib.import_module("transformers")
        tokenizers: Any = importlib.import_module("tokenizers")
        config = transformers.LlamaConfig(
            vocab_size=24, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
            max_position_embeddings=64, pad_token_id=0, eos_token_id=1, bos_token_id=1,
        )  # fmt: skip
        transformers.LlamaForCausalLM(config).save_pretrained(folder)
        vocabulary = tokenizers.models.WordLevel({f"w{i}": i for i in range(24)}, unk_token="w4")
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizers.Tokenizer(vocabulary), pad_token="w0", eos_token="w1", unk_token="w4"
        )
        module: Any = importlib.import_module("trl")
        settings = dict(
            output_dir=folder, per_device_train_batch_size=8, num_generations=4, max_completion_length=20, report_to=[], use_cpu=True,
            bf16=False, beta=0.04, gradient_checkpointing=False,
        )  # fmt: skip
        self.made = module.GRPOTrainer(
            model=folder, reward_funcs=lambda completions, **_: [0.0] * len(completions), args=module.GRPOConfig(**settings),
            train_dataset=importlib.import_module("datasets").Dataset.from_list([{"prompt": "w5"}] * 8), processing_class=tokenizer,
        )  # fmt: skip
        for name, value in {"delta": None, "use_bias_correction_kl": False}.items():
            if hasattr(self.made.args, name):
                setattr(self.made.args, name, value)
        self.made.tools = [None]  # before TRL 0.28, without tools, no loss reads tool_mask
        self.made.current_gradient_accumulation_steps = 1
        self.made.model.train()
        ids = importlib.import_module("torch").ones(1, 4, dtype=importlib.import_module("torch").int64)
        # Older versions return no auxiliary loss beside them.
        self.returned = len(self.made._get_per_token_logps_and_entropies(self.made.model, ids, ids, 2))
        self.title = f"TRL {version_of('trl')}, GRPOTrainer"
        self.report = Report(credit, f"TRL {version_of('trl')}")
        self.report.end = lambda: None  # type: ignore[method-assign]
        self.credit, self.x, self.w, self.f = credit, x, w, f

    def loss_types(self) -> List[str]:
        """Those of the adapter, and all that the installed loss compares its loss_type with."""
        compared = re.findall(r'loss_type\s*(?:==|in)\s*([\[(][^\])]*|"\w+")', inspect.getsource(type(self.made)._compute_loss))
        return list(dict.fromkeys([*trl._AGGREGATIONS, *re.findall(r'"(\w+)"', " ".join(compared))]))

    def loss(self, credited: bool, **options: Any) -> Tuple[float, npt.NDArray[np.float64]]:
        """The trainer's loss and dL/dlogprobs."""
        torch: Any = importlib.import_module("torch")
        made, x = self.made, self.x

        def t(array: Any) -> Any:
            return torch.from_numpy(array.astype(np.float32))

        engine = {}
        if options.pop("corrected", False):
            engine = {"importance_sampling_ratio": t(x.engine)}
            options.update(use_vllm=True, vllm_importance_sampling_correction=True)
        if "entropy_coef" in options:
            options["_entropy_bonus_enabled"] = True
        mask = torch.from_numpy(x.mask.astype(np.int64))
        output = {
            "prompt_ids": torch.ones(8, 2, dtype=torch.int64), "prompt_mask": torch.ones(8, 2, dtype=torch.int64),
            "completion_ids": torch.from_numpy(x.ids), "completion_mask": torch.ones_like(mask), "tool_mask": mask,
            "advantages": t(x.scores), "old_per_token_logps": t(x.old), "ref_per_token_logps": t(x.ref),
            "num_items_in_batch": mask.sum(), **engine,
        }  # fmt: skip
        leaf = t(x.new).requires_grad_()
        with _with(made, options):
            made._get_per_token_logps_and_entropies = lambda *_, **__: (t(x.old), t(x.entropy), None)[: self.returned]
            try:
                if credited:
                    trl._check_trainer(made, self.credit)
                    with contextlib.redirect_stderr(io.StringIO()):
                        output = trl._credited(made, lambda inputs: output, None, self.credit, self.report)
                made._get_per_token_logps_and_entropies = lambda *_, **__: (leaf, t(x.entropy), None)[: self.returned]
                loss = made._compute_loss(made.model, output)
            finally:
                del made._get_per_token_logps_and_entropies
        loss.backward()
        return loss.item(), leaf.grad.double().numpy()

    def known(self, loss_type: str, **_: Any) -> bool:
        """Whether formula has the loss."""
        return loss_type in trl._AGGREGATIONS

    def exact(self, credited: bool, **options: Any) -> Tuple[float, npt.NDArray[np.float64]]:
        """The same by the formula."""
        w, f = (self.w, self.f) if credited else (self.x.mask, 1.0)
        return formula(self.x, w, f, epsilon_low=self.made.epsilon_low, epsilon_high=self.made.epsilon_high, **options)

    def cases(self) -> Iterator[Dict[str, Any]]:
        for loss_type, options in itertools.product(self.loss_types(), _OPTIONS):
            if "delta" not in options or loss_type in _WITH_DELTA:
                yield {"loss_type": loss_type, **options}


TRAINERS = {"trl": TRL, "verl": Verl, "openrlhf": OpenRLHF}


def made(name: str, folder: str) -> Any:
    """Returns the trainer of a name, with rollouts and the credit. It may write to the folder."""
    x, credit = _rollouts(), CREDIT
    if name == "openrlhf":  # which keeps no entropy
        x.entropy, credit = -x.old, dataclasses.replace(CREDIT, entropy="surprisal")
    w, f = weights_and_factors(roles(x.ids, x.mask, 2, 3), -x.old, x.entropy, np.arange(8) // 4, credit)
    return TRAINERS[name](folder, credit, x, w, f)


def compared(trainer: Any, credited: bool, **case: Any) -> Tuple[str, float, float]:
    """Returns right, WRONG, refused or absent, and the relative differences of the loss and of the gradient."""
    try:
        loss, gradient = trainer.loss(credited, **case)
    except AttributeError:
        return "absent", 0, 0
    except (ValueError, HookError):  # by the adapter, or by the trainer where the version has no such loss
        return "refused", 0, 0
    if not trainer.known(**case):
        return "no formula", 0, 0
    want, exact = trainer.exact(credited, **case)
    of_loss, of_gradient = abs(loss - want) / max(abs(want), 0.1), float(np.abs(gradient - exact).max() / np.abs(exact).max())
    right = of_loss < 2e-5 and of_gradient < 1e-5
    return "right" if right else "WRONG", of_loss, of_gradient


def _not_checked(error: Exception, of: str = "") -> int:
    """Says in one line why nothing can be said. Returns the exit status."""
    print(f"not checked: {of}{printable(' '.join(f'{type(error).__name__}: {error}'.split()))}", file=sys.stderr)
    return 2


def main(arguments: Sequence[str]) -> int:
    """Prints the table. Returns the exit status."""
    if list(arguments) in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    if len(arguments) != 1 or arguments[0] not in TRAINERS:
        found = " ".join(map(repr, arguments)) or "nothing"
        print(f"python -m reweight check-trainer takes {', '.join([*TRAINERS][:-1])} or {[*TRAINERS][-1]}, not {found}", file=sys.stderr)
        return 2
    [name] = arguments
    missing = [package for package in ("torch", name) if importlib.util.find_spec(package) is None]
    if missing:
        there = "is" if len(missing) == 1 else "are"
        print(f"not checked: {' and '.join(missing)} of Python {there} not installed: pip install {name}", file=sys.stderr)
        return 2
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    counts = {"right": 0, "refused": 0, "absent": 0, "no formula": 0, "WRONG": 0}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
                trainer = made(name, folder)
        except Exception as e:  # of a version that nobody has tried, or of an installation that is not whole
            return _not_checked(e)
        cases = list(trainer.cases())
        print(f"{trainer.title}: loss and gradient against float64, the larger relative difference\n")
        options = [" ".join(f"{key}={value}" for key, value in list(case.items())[1:]) for case in cases]
        kind, width = next(iter(cases[0])), max(map(len, options))
        first = max(11, len(kind))
        print(f"{kind:<{first}}  {'option':<{width}}  {'without credit':<16}  with credit")
        for case, option in zip(cases, options):
            cells = []
            for credited in False, True:
                try:
                    verdict, *differences = compared(trainer, credited, **case)
                except Exception as e:
                    if not credited:
                        return _not_checked(e, f"{case[kind]} {option}".strip() + ": ")
                    verdict, differences = "WRONG", [np.inf]  # the credit would end a run
                counts[verdict] += 1
                cells.append(f"{verdict} {max(differences):.1e}" if any(differences) else verdict)
            print(f"{case[kind]:<{first}}  {option:<{width}}  {cells[0]:<16}  {cells[1]}", flush=True)
    print("\n" + ", ".join(f"{name} {n}" for name, n in counts.items()))
    if not counts["right"] + counts["WRONG"]:
        print("not checked: no loss of this version could be computed", file=sys.stderr)
        return 2
    return 1 if counts["WRONG"] else 0
