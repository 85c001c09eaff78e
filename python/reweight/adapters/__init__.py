"""ActFocus and AEM in the trainers that people use.

The loss l of a token is homogeneous in its advantage A in most trainers: for m >= 0,
l(m A) = m l(A). This holds for the clipped surrogate of PPO, with dual clip too, for CISPO,
and for a ratio per sequence as in GSPO. A weight w of ActFocus and a factor f of AEM can
therefore be multiplied into the advantages, and the loss of the trainer stays as it is.
What differs is the number by which the sum of the tokens' losses is divided.
Let N and N_s be the response tokens of the batch and of trajectory s, and S the
trajectories that have one:

    aggregation                wanted                          the trainer's loss            m
    token_mean                 sum w l(f A) / sum w            sum l(m A) / N                w f N / sum w
    seq_mean_token_mean        mean_s sum_s w l(f A) / sum_s w mean_s sum_s l(m A) / N_s     w f N_s / sum_s w
    seq_mean_token_sum         sum w l(f A) / S                sum l(m A) / S                w f
    seq_mean_token_sum_norm    sum w l(f A) / length           sum l(m A) / length           w f
    token_sum                  sum w l(f A)                    sum l(m A)                    w f

token_multiplier computes m. Each module of this package puts it into one trainer, by one
method of that trainer: reweight.adapters.verl, trl, openrlhf, nemo_rl, slime, prime_rl.
None of them is imported here, and none imports its trainer before its install is called.

The sums, and the mean and deviation of ActFocus's signal, are those of the batch that the
trainer hands over at once. A trainer that then divides it into mini-batches divides the
loss of each by its own N. A penalty on the divergence from the reference, or a bonus on
the entropy, is not part of l, and stays as the trainer has it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.metadata
import importlib.util
import inspect
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

import reweight

from . import _tags

__all__ = ["Credit", "HookError", "token_multiplier"]

AGGREGATIONS = ("token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm", "token_sum")

Tag = Union[str, Sequence[int]]
Gather = Callable[[Dict[str, Any]], Tuple[List[Dict[str, Any]], int]]


@dataclass(frozen=True)
class Credit:
    """What an adapter adds to a trainer. The defaults are those of the papers, but for the
    signal: trainers keep no logsumexp of the raw logits, from which the energy follows.

    actfocus: whether tokens are weighted (arXiv 2605.14558).
    alpha, beta, eps: its options, as reweight.actfocus has them.
    signal: "surprisal", which is -old_logprobs; "log_ratio", old_logprobs - ref_logprobs;
        "energy" or "ref_entropy", for callers of token_multiplier who have these.
    tags: what opens and closes an action: two strings, or two sequences of token ids. The
        tokens strictly between them are actions, if both are in one response; a token
        that holds a part of a tag is none. None: all response tokens are actions.
    tokenizer: what decodes token ids, for tags that are strings. None: the trainer's, in
        trainers that have one where the adapter works (verl, TRL, OpenRLHF).
    aem: whether advantages are multiplied by AEM's factors (arXiv 2605.00425).
    lambda_, guard, scope: its options, as reweight.aem has them.
    entropy: "exact", the entropy of the old policy at each token; "surprisal", in its
        place -old_logprobs, whose expectation it is: for trainers that keep no entropy.
        The mean over a response of n tokens then has an error of order 1/sqrt(n).
    """

    actfocus: bool = True
    alpha: float = 0.1
    beta: float = 0.5
    eps: float = 1e-8
    signal: str = "surprisal"
    tags: Optional[Tuple[Tag, Tag]] = ("<answer>", "</answer>")
    tokenizer: Any = None
    aem: bool = True
    lambda_: float = 1.0
    guard: float = 0.1
    scope: str = "group"
    entropy: str = "exact"

    def check(self, trainer: str, *, entropy: bool) -> None:
        """Raises InputError for a wrong option, which a trainer would meet only after its first
        rollouts, and if the credit wants what the trainer does not keep; entropy is whether it
        keeps that of the old policy."""
        if self.actfocus and self.signal not in ("surprisal", "log_ratio"):
            problem = f'is "{self.signal}", which {trainer} does not keep, want one of [surprisal log_ratio]'
            raise reweight.InputError("signal", problem)
        if self.wants_entropy and not entropy:
            problem = f'is "exact", but {trainer} keeps no entropy of the old policy'
            raise reweight.InputError("entropy", problem + ': use Credit(entropy="surprisal") or Credit(aem=False)')
        role, x = np.zeros((1, 1), np.uint8), np.zeros((1, 1), np.float32)
        one = reweight.Batch(role, old_logprobs=x, ref_logprobs=x, entropy=x)
        one.span_ids, one.group_ids = np.full((1, 1), -1, np.int32), np.zeros(1, np.int32)
        if self.actfocus:
            reweight.actfocus(one, alpha=self.alpha, beta=self.beta, eps=self.eps, signal=self.signal)
        if self.aem:
            reweight.aem(one, lambda_=self.lambda_, guard=self.guard, scope=self.scope)

    @property
    def wants_entropy(self) -> bool:
        """Whether the entropy of the old policy is needed."""
        return self.aem and self.entropy == "exact"

    @property
    def wants_ref_logprobs(self) -> bool:
        """Whether the log-probabilities of the reference are needed."""
        return self.actfocus and self.signal == "log_ratio"

    def __post_init__(self) -> None:
        if self.entropy not in ("exact", "surprisal"):
            raise reweight.InputError("entropy", f'is "{self.entropy}", want one of [exact surprisal]')
        if self.tags is not None and (len(self.tags) != 2 or not all(self.tags)):
            raise reweight.InputError("tags", f"is {self.tags!r}, want what opens and what closes an action")


def token_multiplier(
    mask: Any,
    *,
    credit: Credit = Credit(),
    aggregation: str = "token_mean",
    token_ids: Any = None,
    tokenizer: Any = None,
    old_logprobs: Any = None,
    ref_logprobs: Any = None,
    ref_energy: Any = None,
    ref_entropy: Any = None,
    entropy: Any = None,
    group_ids: Any = None,
    seq_offsets: Any = None,
    gather: Optional[Gather] = None,
    log: Optional[Dict[str, float]] = None,
) -> Any:
    """Returns m, by which each token's advantage is to be multiplied: float32, in the
    layout of mask and on its device, 0 where the mask is 0.

    mask: not 0 at the tokens of the loss. One of
        [B, T], padded, a trajectory per row;
        a sequence of B arrays [T_b], a trajectory each;
        a nested tensor of PyTorch with the layout torch.jagged, a trajectory per row;
        [T], packed, with seq_offsets [B+1], where each trajectory begins, and T.
        A response is a run of tokens of the mask within a trajectory.
    credit: what is computed.
    aggregation: how the trainer makes one number of its tokens' losses, as above.
    token_ids: of the layout of mask, aligned with it; for actions, unless tags is None.
    tokenizer: used for tags that are strings, if credit has none.
    old_logprobs, ref_logprobs: of the sampled token, nats; for surprisal and log_ratio.
    ref_energy, ref_entropy: of the reference, nats; for the signals of these names.
    entropy: of the old policy, nats; for AEM, unless credit.entropy is "surprisal".
    group_ids: [B], trajectories sampled from one prompt share a group; for AEM's scope
        "group". Integers or strings.
    gather: for trainers whose processes hold a part of the batch each. Called once with a
        dict; returns the dicts of all processes, and which of them is this one's. Sums,
        means and groups are then those of all.
    log: gets the scalars that describe what the credit does to this batch, of all processes:
        credit/actions                    action tokens
        credit/no_action                  share of trajectories with a response that have none
        credit/action_share               share of the response tokens that are actions
        credit/action_weight              their share of sum |w f|
        credit/effective_tokens           (sum w)^2 / sum w^2
        credit/surprisal_action, credit/surprisal_reasoning
                                          mean -old_logprobs of them, nats, if given
        credit/aem_min, credit/aem_max, credit/aem_std
                                          of AEM's factors, one of each response
        credit/aem_guarded                share of the scopes with two spans or more that AEM's
                                          guard leaves alone

    Warns if ActFocus finds no action, because the tags may be others than the policy's.
    Raises InputError, a ValueError, naming the argument, if one is missing or has another shape than
    mask, and if a value that is read is not finite.
    """
    if aggregation not in AGGREGATIONS:
        raise reweight.InputError("aggregation", f'is "{aggregation}", want one of [{" ".join(AGGREGATIONS)}]')
    layout = _Layout(mask, seq_offsets)
    response = layout.pack("mask", mask) != 0
    rows: Dict[str, Any] = {"lengths": layout.lengths}
    per_token = {"old_logprobs": old_logprobs, "ref_logprobs": ref_logprobs, "ref_energy": ref_energy}
    for name, x in {**per_token, "ref_entropy": ref_entropy, "entropy": entropy}.items():
        if x is not None:
            rows[name] = layout.pack(name, x).astype(np.float32)
    rows["role"] = response.astype(np.uint8)
    if credit.actfocus and credit.tags is None:
        rows["role"][response] = reweight.ACTION
    elif credit.actfocus and credit.tags is not None:
        if token_ids is None:
            raise reweight.InputError("token_ids", "is None, want the ids in which the tags of actions are found")
        ids = layout.pack("token_ids", token_ids).astype(np.int64)
        rows["role"] = _roles(response, ids, layout.offsets, credit.tags, credit.tokenizer or tokenizer)
    if group_ids is not None:
        if len(group_ids) != len(layout.lengths):
            problem = f"has {len(group_ids)} elements, want {len(layout.lengths)}, one per trajectory"
            raise reweight.InputError("group_ids", problem)
        rows["group_ids"] = _numpy(group_ids)
    parts, rank = gather(rows) if gather is not None else ([rows], 0)
    joined = {name: np.concatenate([part[name] for part in parts]) for name in rows}
    m = _multiplier(joined, credit, aggregation, log)
    first = sum(len(part["role"]) for part in parts[:rank])
    return layout.unpack(m[first : first + len(response)])


def _multiplier(
    rows: Dict[str, npt.NDArray[Any]], credit: Credit, aggregation: str, log: Optional[Dict[str, float]]
) -> npt.NDArray[np.float32]:
    """Returns m for the tokens of all processes."""
    lengths, response = rows["lengths"], rows["role"] != reweight.MASKED
    batch = reweight.Batch(role=rows["role"], seq_offsets=np.append(0, np.cumsum(lengths)))
    for name in ("old_logprobs", "ref_logprobs", "ref_energy", "ref_entropy", "entropy"):
        setattr(batch, name, rows.get(name))
    weights = response.astype(np.float64)
    if credit.actfocus:
        focus = reweight.actfocus(batch, alpha=credit.alpha, beta=credit.beta, eps=credit.eps, signal=credit.signal)
        weights = focus.weights.astype(np.float64)
        if focus.actions == 0 and response.any():
            warnings.warn(f"no token of the batch is between the tags {credit.tags}: ActFocus weights all of them alike")
    m: npt.NDArray[Any] = weights.copy()
    factors = None
    if credit.aem:
        batch.span_ids = reweight.spans_from_mask(response, batch.seq_offsets)
        if credit.entropy == "surprisal" and batch.old_logprobs is not None:
            batch.entropy = -rows["old_logprobs"]
        if "group_ids" in rows:
            batch.group_ids = np.unique(rows["group_ids"], return_inverse=True)[1].astype(np.int32)
        factors = reweight.aem(batch, lambda_=credit.lambda_, guard=credit.guard, scope=credit.scope)
        m *= factors
    if log is not None:
        log.update(_scalars(rows, batch, credit, weights, factors))
    smallest = np.finfo(np.float32).tiny  # all m are 0 where all weights are
    if aggregation == "token_mean":
        m *= response.sum() / max(weights.sum(), smallest)
    elif aggregation == "seq_mean_token_mean":
        trajectory = np.repeat(np.arange(len(lengths)), lengths)
        sums = np.bincount(trajectory, weights, len(lengths))
        counts = np.bincount(trajectory, response, len(lengths))
        m *= (counts / np.maximum(sums, smallest))[trajectory]
    return np.asarray(m, np.float32)


def _scalars(
    rows: Dict[str, npt.NDArray[Any]],
    batch: reweight.Batch,
    credit: Credit,
    weights: npt.NDArray[np.float64],
    factors: Optional[npt.NDArray[np.float32]],
) -> Dict[str, float]:
    """Returns the scalars that token_multiplier logs."""
    role, offsets = rows["role"], np.asarray(batch.seq_offsets)
    action, response = role == reweight.ACTION, role != reweight.MASKED
    actions, responses = (np.append(0, np.cumsum(kind))[offsets] for kind in (action, response))
    log: Dict[str, float] = {}
    if credit.actfocus:
        answered = np.diff(responses) > 0
        credited = np.abs(weights if factors is None else weights * factors)
        log["actions"] = actions[-1]
        log["no_action"] = _share((answered & (np.diff(actions) == 0)).sum(), answered.sum())
        log["action_share"] = _share(actions[-1], responses[-1])
        log["action_weight"] = _share(credited[action].sum(), credited.sum())
        log["effective_tokens"] = _share(weights.sum() ** 2, weights @ weights)
        if "old_logprobs" in rows:
            for name, kind in ("action", action), ("reasoning", response & ~action):
                if kind.any():
                    log["surprisal_" + name] = -rows["old_logprobs"][kind].mean(dtype=np.float64)
    if factors is not None and response.any():
        first = np.flatnonzero(response & (np.diff(np.asarray(batch.span_ids), prepend=-1) != 0))  # of each response
        of_spans, trajectory = factors[first].astype(np.float64), np.searchsorted(offsets, first, "right") - 1
        log.update(aem_min=of_spans.min(), aem_max=of_spans.max(), aem_std=of_spans.std())
        scope = {"group": batch.group_ids, "trajectory": np.arange(len(offsets)), "batch": np.zeros(len(offsets), int)}
        members = np.unique(np.asarray(scope[credit.scope])[trajectory], return_inverse=True)[1]
        several = np.bincount(members) > 1
        changed = np.bincount(members, of_spans != 1) > 0
        log["aem_guarded"] = _share((several & ~changed).sum(), several.sum())
    return {"credit/" + name: float(value) for name, value in log.items()}


def _share(part: Any, whole: Any) -> float:
    """Returns part / whole, 0 where that is 0 / 0."""
    return float(part) / max(float(whole), float(np.finfo(np.float64).tiny))


def _roles(
    response: npt.NDArray[np.bool_],
    ids: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    tags: Tuple[Tag, Tag],
    tokenizer: Any,
) -> npt.NDArray[np.uint8]:
    """Returns the role of each token: an action strictly between two tags of one response."""
    opening, closing = tags
    if not isinstance(opening, str) or not isinstance(closing, str):
        roles: npt.NDArray[np.uint8] = reweight.roles_from_mask(
            response, ids, open_tag=[int(i) for i in opening], close_tag=[int(i) for i in closing], seq_offsets=offsets
        )
        return roles
    if tokenizer is None:
        raise reweight.InputError("tokenizer", "is None, want one for tags that are strings (or tags that are token ids)")
    return _tags.roles(response, ids, offsets, (opening, closing), tokenizer)


class _Layout:
    """Where the tokens of each trajectory lie in an array that is made like the mask."""

    def __init__(self, mask: Any, seq_offsets: Any) -> None:
        self.mask = mask
        if isinstance(mask, (list, tuple)):
            lengths = [len(row) for row in mask]
        elif getattr(mask, "is_nested", False):
            lengths = np.diff(_numpy(mask.offsets())).tolist()
        elif len(mask.shape) == 2:
            lengths = [mask.shape[1]] * mask.shape[0]
        elif seq_offsets is None:
            problem = f"is None, want where each trajectory begins: mask has the shape {list(mask.shape)}"
            raise reweight.InputError("seq_offsets", problem)
        else:
            offsets = _numpy(seq_offsets)
            lengths = np.diff(offsets).tolist()
            if len(offsets) < 2 or offsets[0] != 0 or offsets[-1] != len(mask) or min(lengths) < 0:
                raise reweight.InputError("seq_offsets", f"is {offsets.tolist()}, want 0 to {len(mask)} in ascending order")
        self.lengths = np.asarray(lengths, np.int64)
        self.offsets = np.append(0, np.cumsum(self.lengths))

    def pack(self, name: str, x: Any) -> npt.NDArray[Any]:
        """Returns x, which has the layout of mask, as one array [tokens]."""
        if isinstance(self.mask, (list, tuple)):
            shapes, want = [list(row.shape) for row in x], [[n] for n in self.lengths.tolist()]
            if shapes != want:
                raise reweight.InputError(name, f"has rows of the shapes {shapes}, want {want} like mask")
            return np.concatenate([np.zeros(0, np.uint8), *(_numpy(row) for row in x)])
        if getattr(self.mask, "is_nested", False):
            if not getattr(x, "is_nested", False) or np.diff(_numpy(x.offsets())).tolist() != self.lengths.tolist():
                raise reweight.InputError(name, "is not a nested tensor whose rows are as long as those of mask")
            return _numpy(x.values())
        if tuple(x.shape) != tuple(self.mask.shape):
            raise reweight.InputError(name, f"has the shape {list(x.shape)}, want {list(self.mask.shape)} like mask")
        return _numpy(x).reshape(-1)

    def unpack(self, m: npt.NDArray[np.float32]) -> Any:
        """Returns m, [tokens], in the layout of mask and on its device."""
        if isinstance(self.mask, (list, tuple)):
            return [_like(row, part) for row, part in zip(self.mask, np.split(m, np.cumsum(self.lengths)[:-1]))]
        if getattr(self.mask, "is_nested", False):
            nested = sys.modules["torch"].nested.nested_tensor_from_jagged
            return nested(_like(self.mask.values(), m), self.mask.offsets())
        return _like(self.mask, m.reshape(tuple(self.mask.shape)))


def _numpy(x: Any) -> npt.NDArray[Any]:
    """Returns a tensor, which may be on a GPU or have a type that NumPy lacks, a list or an
    array as an array."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        x = (x.float() if x.is_floating_point() else x).numpy()
    return np.asarray(x)


def _like(x: Any, values: npt.NDArray[np.float32]) -> Any:
    """Returns the values as an array of the kind of x."""
    return sys.modules["torch"].from_numpy(values).to(x.device) if hasattr(x, "detach") else values


def announce(credit: Credit, trainer: str, aggregation: str, log: Dict[str, float]) -> None:
    """Says once, at the first batch, that the credit works, and what it found there."""
    schemes = []
    if credit.actfocus:
        actions = f"{log['credit/actions']:.0f} action tokens, {log['credit/action_share']:.1%} of the responses"
        schemes.append(f"ActFocus by {credit.signal} ({actions}, {log['credit/action_weight']:.1%} of the weight)")
    if credit.aem:
        factors = f"factors {log.get('credit/aem_min', 1):.2f} to {log.get('credit/aem_max', 1):.2f}"
        schemes.append(f"AEM by {'entropy' if credit.wants_entropy else 'surprisal'} per {credit.scope} ({factors})")
    print(f"reweight: in {trainer}, {aggregation}: {' and '.join(schemes) or 'nothing'}", file=sys.stderr, flush=True)


class HookError(RuntimeError):
    """The trainer is not there, or has changed where the adapter takes hold of it."""


def find_hook(trainer: str, path: str, parameters: Sequence[str], written_for: str) -> Tuple[Any, str]:
    """Returns the object that holds a hook, and the hook's name, for the path
    "module:function" or "module:Class.method".

    Raises HookError if the hook is gone or lacks one of the parameters.
    """
    module, _, names = path.partition(":")
    package = module.partition(".")[0]
    error = f"reweight.adapters.{package} was written for {written_for} and its {names}({', '.join(parameters)})"
    owner: Any = None
    try:
        target: Any = importlib.import_module(module)
    except ModuleNotFoundError as e:
        if e.name == package:
            raise HookError(f"{error}, but {trainer} is not installed") from e
        if e.name is None or not (module + ".").startswith(e.name + "."):
            raise  # something else that the trainer needs
        raise HookError(f"{error}, but in {trainer} {version_of(package)} there is no module {e.name}") from e
    for name in names.split("."):
        owner, target = target, getattr(target, name, None)
        if target is None:
            raise HookError(f"{error}, but in {trainer} {version_of(package)} there is no {name} in {owner.__name__}")
    found = inspect.signature(target)
    missing = [p for p in parameters if p not in found.parameters]
    if missing:
        raise HookError(f"{error}, but in {trainer} {version_of(package)} it is {name}{found}: no {', '.join(missing)}")
    return owner, name


def when_imported(module: str, act: Callable[[], None]) -> None:
    """Calls act once the module has been imported, which may be now. Where a trainer starts
    processes of its own, an adapter is installed in each of them, also in those that must
    not import the trainer's driver, or not before they have been given a GPU."""
    package, _, rest = module.partition(".")
    if package in sys.modules:
        roots = list(getattr(sys.modules[package], "__path__", []))
    else:
        spec = importlib.util.find_spec(package)
        roots = list(spec.submodule_search_locations or []) if spec else []
    later = any(Path(root, *rest.split(".")).with_suffix(".py").is_file() for root in roots)
    if module not in sys.modules and later:
        sys.meta_path.insert(0, _WhenImported(module, act))
    else:
        act()  # which imports the module, or says that it is gone


class _WhenImported(importlib.abc.MetaPathFinder):
    """Finds one module once, as others find it, and acts after it has been executed."""

    def __init__(self, module: str, act: Callable[[], None]) -> None:
        self.module, self.act = module, act

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != self.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                self.act()

            setattr(spec.loader, "exec_module", exec_module)
        return spec


def version_of(package: str) -> str:
    """Returns the version of an installed package, or "of unknown version"."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return str(getattr(sys.modules.get(package), "__version__", "of unknown version"))


def replace(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Sets owner.name to make(original). If an earlier call did, that is undone first."""
    original = getattr(owner, name)
    original = getattr(original, "_reweight_original", original)
    wrapper = functools.wraps(original)(make(original))
    setattr(wrapper, "_reweight_original", original)
    setattr(owner, name, wrapper)
