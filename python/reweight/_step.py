"""Schemes by their names: the catalogue, and what a step under any of them computes."""

from __future__ import annotations

import dataclasses
import html
import sys
import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

import numpy as np

from . import _catalogue, _schemes
from ._catalogue import ENTRIES, KINDS, Entry
from ._errors import InputError, described
from ._kernels import multiply
from ._schemes import LossResult, ValueLossResult
from ._show import picture
from .batch import MASKED, Batch, bind

_BY_NAME = {name: entry for entry in ENTRIES for name in (entry.name, *entry.synonyms)}
_UNIFORM = _BY_NAME["uniform"]


def schemes() -> List[Entry]:
    """Returns the catalogue of schemes: what reweight.scheme takes, in the order of reports."""
    return list(ENTRIES)


class Credit(NamedTuple):
    """What a scheme makes of a batch, float32, one element per token."""

    advantages: Any
    """after shaping and factors"""
    weights: Any
    """of the tokens in the loss; None stands for ones"""


class Result(NamedTuple):
    """What a step computes."""

    loss: Any
    """of the policy: a number, or, of tensors, a tensor without dimensions that backward goes through, to logprobs"""
    advantages: Any
    """as in Credit"""
    weights: Any
    """as in Credit"""
    metrics: LossResult
    """what reweight.loss returns, the gradient among it"""
    value: Optional[ValueLossResult]
    """the critic's loss, of a scheme with value_loss; of tensors its loss has a gradient to new_values"""


class Step:
    """What reweight.scheme returns: a step under a scheme.

    name: of the scheme, with + between its entries.
    entries: of the catalogue, those that are computed, in that order.
    options: of each entry by its name, and of "group_norm" and "uniform", which stand in for
        advantages and a loss that nobody named. They may be changed between calls. One that has no
        default is None, and has to be set: delta of "off_policy_mask", and for run the policy of "dro".
    vocab: the texts of tokens in a notebook, which shows the first trajectory of the batch that
        credit had last, if that still exists: as reweight.show has it. None: ids are shown.
    """

    def __init__(self, name: str, entries: List[Entry]) -> None:
        self.name = name
        self.entries = tuple(entries)
        self.vocab: Any = None
        self._last: Optional["weakref.ref[Batch]"] = None
        self.options: Dict[str, Dict[str, Any]] = {e.name: dict(e.defaults) for e in (_BY_NAME["group_norm"], _UNIFORM, *entries)}
        for e in entries:
            if e.no_default:
                self.options[e.name][e.no_default] = None

    def __repr__(self) -> str:
        return f"reweight.scheme({self.name!r})"

    def _repr_html_(self) -> str:
        name = f"<code>{html.escape(repr(self))}</code>"
        batch = self._last and self._last()
        return name + picture(batch, *self.credit(batch), self.vocab) if batch else name

    def _maker(self) -> Optional[Entry]:
        """The entry that makes the advantages; without one they are those of GRPO, or given."""
        return next((e for e in self.entries if _makes_advantages(e)), None)

    def _of(self, kind: str) -> List[Entry]:
        return [e for e in self.entries if e.kind == kind]

    def _reads_token_rewards(self) -> bool:
        return any("token_rewards|rewards" in e.reads for e in self.entries)

    @property
    def loss(self) -> Entry:
        """The entry of the policy's loss, which takes the advantages and the weights."""
        losses = self._of("loss")
        return losses[0] if losses else _UNIFORM

    @property
    def needs(self) -> Tuple[str, ...]:
        """The arrays of a batch that credit needs with the default options, besides role: "a|b" is
        either of two. A padded batch has no seq_offsets. run needs logprobs and old_logprobs too, and what
        the critic's loss reads."""
        needs: Set[str] = set()
        for e in self.entries:
            if e.kind not in ("loss", "critic"):
                needs.update(e.reads)
        if self._maker() is None:
            needs.add("rewards|advantages")
        if self._of("reward"):
            needs.add("rewards")
        needs.discard("advantages")
        if self._reads_token_rewards():
            needs.add("token_rewards|rewards")
            needs.discard("rewards")
        return tuple(sorted(needs))

    def lacks(self, batch: Batch) -> Tuple[str, ...]:
        """Returns those of needs that the batch does not have."""
        padded = len(getattr(batch.role, "shape", ())) == 2
        missing = []
        for need in self.needs:
            if not (padded and need == "seq_offsets") and all(getattr(batch, n) is None for n in need.split("|")):
                missing.append(need)
        return tuple(missing)

    def credit(self, batch: Batch) -> Credit:
        """Returns the advantages and the weights of the batch, without a loss. Nothing in the batch is
        written. Raises InputError for an array that is missing, and as the functions of the entries do."""
        if not isinstance(batch, Batch):
            raise TypeError(f"batch is {described(batch)}, want a Batch")
        own = dataclasses.replace(batch)  # whose arrays are replaced, not written
        self._reward(batch, own)
        own.advantages = self._advantages(batch, own)
        own.rewards = batch.rewards  # without the penalty, which groups are not filtered by
        weights = None
        for e in self.entries:
            if e.kind == "advantage" and not _makes_advantages(e):
                own.advantages = self._compute(e, own)
            elif e.kind == "factor":
                own.advantages = multiply(own.advantages, self._compute(e, own), out=own.advantages)
            elif e.kind == "weight":
                made = self._compute(e, own)
                weights = made if weights is None else multiply(weights, made, out=weights)
        self._last = weakref.ref(batch)
        return Credit(own.advantages, weights)

    def run(self, batch: Batch) -> Result:
        """Returns credit and the losses with it. Nothing in the batch is written. Raises InputError as credit,
        reweight.loss and reweight.value_loss do.

            loss = step.run(batch).loss      # batch.logprobs is a tensor with a gradient
            loss.backward()
        """
        options = self._given(self.loss)
        policy = _schemes.policy_of(options.get("policy", "ppo")).name  # which the names of the step need not have
        if self._of("factor") and "factor" in _BY_NAME[policy].without:
            argument = f'options["{self.loss.name}"]["policy"]'
            raise InputError(argument, f"is {policy}, want one with factors of tokens, which {self.name} has")
        advantages, weights = self.credit(batch)
        own = dataclasses.replace(batch, advantages=advantages)
        losses: Any = _schemes
        if batch.logprobs is not None and not isinstance(batch.logprobs, np.ndarray):
            from . import torch as losses
        value = None
        critic = self._of("critic")
        if critic:
            if "gae" in self.options:
                given = dataclasses.replace(batch)
                self._reward(batch, given)
                rewards: Any = given.token_rewards
                own.returns = _schemes.gae(given, rewards, **self.options["gae"]).returns
            if losses is _schemes:
                value = _schemes.value_loss(own, **self.options["value_loss"])
            else:
                of_critic, value = losses.value_loss(own.new_values, own, **self.options["value_loss"])
                value = value._replace(loss=of_critic)
        if losses is _schemes:
            metrics = _schemes.loss(own, weights, **options)
            return Result(metrics.loss, advantages, weights, metrics, value)
        loss, metrics = losses.loss(batch.logprobs, own, weights, **options)
        return Result(loss, advantages, weights, metrics, value)

    def _given(self, e: Entry) -> Dict[str, Any]:
        """Returns the options of the entry, of which none without a default may be None."""
        options = self.options[e.name]
        if e.no_default and options.get(e.no_default) is None:
            want = _schemes.without_default(e.name) if e.kind == "loss" else "a number"
            raise InputError(f'options["{e.name}"]["{e.no_default}"]', f"is None, want {want}: it has no default")
        return options

    def _compute(self, e: Entry, batch: Batch) -> Any:
        """Returns the array that the entry's function makes."""
        options = self._given(e)
        rewards: Any = batch.token_rewards
        if e.function == "actfocus":
            return _schemes.actfocus(batch, **options).weights
        if e.function in ("aem", "grpo"):
            return getattr(_schemes, e.function)(batch, **options)
        if e.function == "gae":
            advantages = _schemes.gae(batch, rewards, **options).advantages
            return _schemes.whiten(advantages, batch.role, out=advantages)
        return getattr(_catalogue, e.function)(batch, **options)

    def _advantages(self, batch: Batch, own: Batch) -> Any:
        maker = self._maker()
        if maker is not None:
            return self._compute(maker, own)
        if batch.rewards is not None:
            return self._compute(_BY_NAME["group_norm"], own)
        if batch.advantages is None:
            raise InputError("advantages", "is None, and so is rewards, want one of them")
        given = bind(batch, "advantages")
        role, advantages = given.role.owner, given.arrays["advantages"].owner
        if isinstance(role, np.ndarray):
            return np.where(role != MASKED, advantages, np.float32(0))
        return sys.modules["torch"].where(role != MASKED, advantages, 0.0)

    def _reward(self, batch: Batch, own: Batch) -> None:
        """Sets the rewards that the advantages are made from. Where the batch has rewards of tokens, the outcome
        is among them."""
        of_tokens = self._reads_token_rewards()
        penalties = [self._compute(e, own) for e in self._of("reward") if e.name != "kl_rewards"]
        if penalties:
            own.rewards = sum(penalties[1:], penalties[0])
            if not of_tokens or batch.token_rewards is None:
                own.rewards = own.rewards + bind(batch, "seq_offsets", "rewards").arrays["rewards"].owner
        if of_tokens:
            own.token_rewards = self._token_rewards(batch, own)

    def _token_rewards(self, batch: Batch, own: Batch) -> Any:
        """The rewards of tokens: those of the batch, or the outcome at the last response token, with the
        penalties of trajectories there and that of the divergence."""
        entries = self._of("reward")
        if batch.token_rewards is not None and not entries:
            return batch.token_rewards
        if batch.token_rewards is not None and not any(e.name != "kl_rewards" for e in entries):
            role: Any = batch.role
            n = len(role) if len(role.shape) == 2 else len(batch.seq_offsets) - 1  # type: ignore[arg-type]
            own.rewards = np.zeros(n, np.float32) if isinstance(role, np.ndarray) else role.new_zeros(n, dtype=sys.modules["torch"].float32)
        kl = self.options["kl_rewards"] if "kl_rewards" in self.options else {"kl_coef": 0}
        made = _schemes.kl_rewards(own, **kl)
        if batch.token_rewards is None:
            return made
        return made + bind(batch, "token_rewards").arrays["token_rewards"].owner


def _makes_advantages(e: Entry) -> bool:
    """Whether the entry makes advantages, and not from others."""
    return e.kind == "advantage" and "advantages" not in e.reads


def _parts(e: Entry) -> List[Entry]:
    return [_BY_NAME[name] for name in e.of] or [e]


def _conflict(a: Entry, b: Entry) -> str:
    """Says why two entries cannot be in one step."""
    if a is b and a.kind != "loss":
        return f"both have {a.name}"
    if a.one == b.one and a.one:
        return a.one
    return a.without.get(b.kind) or b.without.get(a.kind) or ""


def scheme(names: str) -> Step:
    """Returns a step under the scheme: names of the catalogue, or of trainers, with + between them.

        step = reweight.scheme("gtpo+actfocus+cispo")
        advantages, weights = step.credit(batch)
        loss = step.run(batch).loss

    What the names do not say is as in uniform training: the advantages are those of GRPO, or the
    batch's own if it has no rewards, and every response token has the weight 1. reinforce++, gae and
    otb take token_rewards, or without them the rewards of trajectories at their last response tokens;
    kl_rewards is added there. Advantages are made first, then shaped, then multiplied
    by factors; weights multiply. docs/schemes.md has the formulas, and reweight.schemes() the list.

    Hyphens are taken for underscores. Raises InputError, a ValueError, for a name that nobody has and
    for two that cannot be in one step.
    """
    if not isinstance(names, str):
        raise TypeError(f"names is {described(names)}, want a string")
    rest = names.replace("-", "_")
    named: List[Entry] = []
    entries: List[Entry] = []
    while True:
        found = max((n for n in _BY_NAME if rest == n or rest.startswith(n + "+")), key=len, default="")
        if not found:
            unknown = rest.split("+")[0] or rest
            raise InputError("names", f'has "{unknown}", want names of reweight.schemes() with + between them')
        entry = _BY_NAME[found]
        for other in named:
            if other is entry:
                raise InputError("names", f"has {entry.name} twice")
            for a in _parts(other):
                for b in _parts(entry):
                    why = _conflict(a, b)
                    if why:
                        raise InputError("names", f"has {other.name} and {entry.name}: {why}")
        named.append(entry)
        entries += _parts(entry)
        if rest == found:
            break
        rest = rest[len(found) + 1 :]
    if any(e.name == "kl_rewards" for e in entries) and not any("token_rewards|rewards" in e.reads for e in entries):
        raise InputError("names", "has kl_rewards, which makes rewards of tokens, and no advantages that read them: join reinforce++ or gae")
    named.sort(key=ENTRIES.index)
    entries.sort(key=lambda e: (KINDS.index(e.kind), ENTRIES.index(e)))
    if len(named) > 1 and named[0] is _UNIFORM:  # which the others change
        del named[0]
    return Step("+".join(e.name for e in named), entries)
