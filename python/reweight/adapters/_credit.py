"""What an adapter adds to a trainer, and what it refuses."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, FrozenSet, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

import reweight

from .._errors import described

from .._generated import TAG_PRESETS
from .._program import PROGRAM, find
from .._step import Step, scheme
from ._pages import Pages
from ._step import reads
from ._tags import Labels, named
from ._watch import Watch

Tag = Union[str, Sequence[int]]

# The options of two entries are arguments of Credit.
_ARGUMENTS = {"actfocus": ("alpha", "beta", "eps", "signal"), "aem": ("lambda_", "guard", "scope")}
# The scheme whose weights are measured while the run goes on, and how often if audit_every does not say it.
MEASURED, MEASURED_EVERY = "measured", 50
# What every adapter can give a scheme, besides role and old_logprobs.
_KEPT = ("seq_offsets", "group_ids", "span_ids", "rewards", "token_rewards", "advantages", "old_logprobs", "ref_logprobs")


@dataclass(frozen=True)
class Credit:
    """The token credit that an adapter adds to a trainer. The defaults of ActFocus are the form that did the least harm in
    our own runs (docs/evidence.md). Its paper has alpha=0.1, beta=0.5, tags_as="reasoning" and signal="energy".

    scheme: names of reweight.schemes() with + between them. Advantages that a scheme makes, such as "rloo" or "gtpo",
        take the place of the trainer's; factors and weights are multiplied into them. A name of a loss is an
        InputError: the loss is the trainer's, and an option of the trainer chooses it. "uniform" alone changes nothing:
        it is a baseline with the same scalars and pages. "measured", in TRL: the best weights of actions, tags and
        reasoning by the audits of this run (docs/audit.md).
    options: options of the scheme's entries, by the names of the entries: {"gtpo": {"bonus": 0.2}}. ActFocus and AEM
        have theirs as the following arguments.
    alpha, beta, eps: options of ActFocus (arXiv 2605.14558), as reweight.actfocus has them.
    signal: what ActFocus orders action tokens by if beta is above 0. "surprisal" is -old_logprobs; "log_ratio" is
        old_logprobs - ref_logprobs; "energy" is the paper's own, in TRL with a reference and install(head=True).
        Callers of token_advantages who have the arrays may use "energy" and "ref_entropy".
    tags: where the actions of ActFocus are. Names of presets with + between them: "answer", "tool_call", "json", "react",
        "boxed", "code". Or what opens and what closes an action, two strings or two sequences of token ids; or a list
        of such pairs. The tokens strictly between both tags in one response are actions. Of several opening tags before
        a closing one the last counts, and strings in a closed block of <think> do not. "\\n" as the closing string is the
        end of the line or of the response, "" that of the response. A pair such as "{" and "}", or "\\boxed{" and "}",
        encloses balanced brackets. None: all response tokens are actions. docs/formats.md has all rules.
    tags_as: whether the tokens that hold a part of a tag are "reasoning" or "action".
    action: in the place of tags, a function of the ids of one response, their texts and the tokenizer. It returns a mask,
        bools that are true at actions, or labels, 1 for reasoning and 2 for an action, as many as there are ids. In TRL
        also the name of an output of rollout_func, which has such a list for each completion, or of a column of the data
        set, which has tags for each prompt, as tags takes them.
    tokenizer: decodes token ids, for tags that are strings. None: the trainer's own, in verl, TRL and OpenRLHF.
    lambda_, guard, scope: options of AEM (arXiv 2605.00425), as reweight.aem has them.
    entropy: "exact": the entropy of the old policy at each token. "surprisal": -old_logprobs takes its place, for
        trainers that keep no entropy. Its expectation is the entropy. Schemes read its mean over a response, whose
        error for n tokens is of order 1/sqrt(n).
    not_finite: what to do with a log-probability or entropy that is NaN, infinite or above 1e30. Engines return such
        values for tokens that they could not score. "error": raise an InputError. "ignore": an action token without
        a signal has the weight 1, and does not count in the signal's mean and deviation; a token without an entropy
        does not count in the mean of its response; an advantage that would be made from such a value is 0. The log
        counts the tokens.
    keep: None, or "norm": all advantages of a batch are multiplied by one number, so that the sum of their sizes, each
        divided as the trainer's loss divides it, is what it was without factors and weights. A learning rate and a
        limit of the gradient's norm then stay nearer to what they were tuned for.
    show_every: write a page for people about the first batch and every batch whose number is a multiple of this, with
        the weight of every token: DIR/RUN-step-000050.html, of the trainer's names where it has them, else
        DIR/batch-000050.html. 0: never. It needs the program reweight, which the wheel has. Of several processes the
        first writes. A restarted run counts its batches from 1, and writes over no file.
    save_every: write such batches whole, as lines of JSON: DIR/RUN-step-000050.jsonl, of each process its own. 0: never.
        The program reweight and python -m reweight audit read them: prompts where the trainer has them, token ids, texts,
        roles, rewards, log-probabilities, and entropies and energies where the scheme reads them; advantages are those
        before the credit, credited_advantages those that the trainer got.
    dir: the folder DIR of pages and files, which is made if it does not exist.
    audit_every: audit the first batch and every batch whose number is a multiple of this, in TRL: up to eight of its
        prompts with all their answers, by the gradients of the model that trains. 0: never. The scheme "measured" has
        weights from it: 0 stands for 50 there. Each audit writes DIR/RUN-step-000050-audit.html and DIR/audit.json.
    audit_turns: the parts that an audit compares are the turns of an answer, so many of them, of which the last one has all
        later ones too. 0: they are actions, tags and reasoning.
    """

    scheme: str = "actfocus+aem"
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    alpha: float = 0.3
    beta: float = 0.0
    eps: float = 1e-8
    signal: str = "surprisal"
    tags: Union[None, str, Tuple[Tag, Tag], Sequence[Tuple[Tag, Tag]]] = ("<answer>", "</answer>")
    tags_as: str = "action"
    action: Union[None, str, Labels] = None
    tokenizer: Any = None
    lambda_: float = 1.0
    guard: float = 0.1
    scope: str = "group"
    entropy: str = "exact"
    not_finite: str = "ignore"
    keep: Optional[str] = None
    show_every: int = 0
    save_every: int = 0
    dir: str = "credit"
    audit_every: int = 0
    audit_turns: int = 0
    _pages: Pages = field(default_factory=Pages, init=False, repr=False, compare=False)
    _watch: Watch = field(default_factory=Watch, init=False, repr=False, compare=False)

    def step(self) -> Step:
        """Returns the step of the scheme, with its options, without the weights that are measured."""
        try:
            rest = "+".join(name for name in self.scheme.split("+") if name != MEASURED) if self.measured else self.scheme
            step = scheme(rest or "uniform" if self.measured else rest)
        except reweight.InputError as error:
            raise reweight.InputError("scheme", error.problem) from None
        if (rest or "uniform") == "uniform":  # which is what the trainer does
            step.entries = ()
        names = [e.name for e in step.entries]
        if not isinstance(self.options, Mapping) or not all(isinstance(of, Mapping) for of in self.options.values()):
            raise reweight.InputError("options", f'is {self.options!r}, want options by entries, such as {{"gtpo": {{"bonus": 0.2}}}}')
        for name, options in self.options.items():
            if name in _ARGUMENTS:
                raise reweight.InputError("options", f"has {name}, whose options are arguments of Credit: {', '.join(_ARGUMENTS[name])}")
            if name not in names:
                raise reweight.InputError("options", f'has "{name}", want entries of the scheme {self.scheme}: [{" ".join(names)}]')
            known = step.options[name]
            for option, value in options.items():
                if option not in known:
                    raise reweight.InputError("options", f'has "{option}" of {name}, want some of [{" ".join(known)}]')
                known[option] = value
        for name, arguments in _ARGUMENTS.items():
            for argument in arguments:
                value = getattr(self, argument)
                if name in names:
                    step.options[name][argument] = value
                elif value != getattr(Credit, argument):
                    problem = f"is {value!r}, an option of {name}, which is not in the scheme {self.scheme}"
                    raise reweight.InputError(argument, problem)
        return step

    @property
    def measured(self) -> bool:
        """Whether the weights of tokens come from the audit of the run."""
        return isinstance(self.scheme, str) and MEASURED in self.scheme.split("+")

    @property
    def audited(self) -> int:
        """An audit is made of the first batch and of each multiple of this; 0: never."""
        return self.audit_every or (MEASURED_EVERY if self.measured else 0)

    @property
    def reads(self) -> FrozenSet[str]:
        """The arrays of a Batch that the scheme reads, besides role."""
        return frozenset().union(*(reads(e, self.signal, self.entropy == "exact") for e in self.step().entries))

    @property
    def makes_advantages(self) -> bool:
        """Whether the scheme's advantages take the place of the trainer's."""
        return self.step()._maker() is not None

    @property
    def wants_actions(self) -> bool:
        """Whether actions are looked for in token ids."""
        return self.counts_actions and (self.tags is not None or self.action is not None)

    @property
    def counts_actions(self) -> bool:
        """Whether the scheme tells actions from reasoning. Uniform weights do for the log alone."""
        return self.uniform or any(e.name == "actfocus" for e in self.step().entries)

    @property
    def uniform(self) -> bool:
        """Whether the credit changes nothing."""
        return self.scheme == "uniform"

    @property
    def wants_prompts(self) -> bool:
        """Whether pages or files of batches are written, which have prompts."""
        return self.show_every > 0 or self.save_every > 0

    @property
    def saves_next(self) -> bool:
        """Whether the next batch is written to a file."""
        return self._pages.next_due(self.save_every)

    def pairs(self) -> Tuple[Tuple[Any, Any], ...]:
        """Returns the pairs of tags: of strings, or of sequences of token ids."""
        tags: Any = self.tags
        if isinstance(tags, str):
            found = named(tags)
            if found is None:
                want = f"want some of [{' '.join(TAG_PRESETS)}] with + between them, or what opens and what closes an action"
                raise reweight.InputError("tags", f"is {tags!r}, {want}")
            return found
        if isinstance(tags, (list, tuple)) and len(tags) == 2 and all(isinstance(t, str) and t in TAG_PRESETS for t in tags):
            raise reweight.InputError("tags", f'is {tags!r}, two names of presets, want "{"+".join(tags)}"')
        all_ = [tags] if _is_pair(tags) else tags
        if not isinstance(all_, (list, tuple)) or not all_ or not all(map(_is_pair, all_)) or len({type(p[0]) is str for p in all_}) > 1:
            want = "want what opens and what closes an action: two strings or two sequences of token ids, or a list of such pairs"
            raise reweight.InputError("tags", f"is {tags!r}, {want}")
        return tuple((opening, closing) for opening, closing in all_)

    def check(
        self, trainer: str, own: Mapping[str, str], keeps: Sequence[str] = (), audits: bool = False, columns: bool = False
    ) -> None:
        """Raises InputError for a wrong option, which a trainer would meet only after its first rollouts, and if the
        credit wants what the trainer does not keep, or does itself.

        keeps: the arrays that this trainer can give, besides those that all can. own: the trainer's options that do
        what the credit does not, by "loss", by an array, or by the name of an entry. audits: whether the adapter can
        audit batches. columns: whether it reads the actions of a column. Raises TypeError for what is no Credit, which
        Credit.check(credit, ...) tells from one."""
        if not isinstance(self, Credit):
            raise TypeError(f"credit is {described(self)}, want a Credit")
        if isinstance(self.action, str) and not columns:
            problem = f'is "{self.action}", the name of a column, which the adapter of TRL reads: for {trainer}, want a function'
            raise reweight.InputError("action", problem)
        if self.audited and not audits:
            argument, problem = ("scheme", "has measured") if self.measured else ("audit_every", f"is {self.audit_every}")
            problem += f", but {trainer} does not audit a run: write rollouts to a file, for python -m reweight audit"
            raise reweight.InputError(argument, problem)
        step = self.step()
        kept = ["surprisal", "log_ratio"] + ["energy"] * ("ref_energy" in keeps)
        if self.signal not in kept and "actfocus" in (e.name for e in step.entries):
            problem = f'is "{self.signal}", which {trainer} does not keep, want one of [{" ".join(kept)}]'
            raise reweight.InputError("signal", problem)
        losses = [e for e in step.entries if e.kind in ("loss", "critic")]
        if losses:
            rest = "+".join(e.name for e in step.entries if e not in losses)
            problem = f"has {losses[0].name}, a loss: {trainer} has its own, which {own['loss']} chooses"
            raise reweight.InputError("scheme", problem + (f', and "{rest}" is the rest of the scheme' if rest else ""))
        for e in step.entries:
            if e.kind == "reward" and not self.makes_advantages:
                problem = f"has {e.name}, which changes rewards, but {trainer} has made its advantages of them already"
                raise reweight.InputError("scheme", f'{problem}: name advantages too, as in "group_norm+{self.scheme}"')
            if e.name == "actfocus":
                continue
            wanted = reads(e, self.signal, self.entropy == "exact")
            if "entropy" in wanted and "entropy" not in keeps:
                problem = f'is "exact", but {trainer} keeps no entropy of the old policy, and {e.name} reads it: use'
                instead = " another scheme" if e.single_entropies else ' Credit(entropy="surprisal")'
                raise reweight.InputError("entropy", problem + instead)
            for need in sorted(wanted.difference(_KEPT, keeps)):
                problem = f"has {e.name}, which reads {need}"
                if e.name in own or need in own:
                    problem += f": {trainer} does this by {own.get(e.name) or own[need]}"
                elif need == "span_rewards":
                    problem += f", the rewards of turns, of which {trainer} hands on the sum alone: TRL, verl, NeMo RL, prime-rl,"
                    problem += " SkyRL and Tinker have a place for each"
                elif need == "logprobs":
                    problem += ", the policy's after each update: a credit is made before the first"
                else:
                    problem += f", which {trainer} does not keep"
                raise reweight.InputError("scheme", problem)
        if self.show_every and find() is None:
            problem = f"is {self.show_every}, for which the program {PROGRAM} must be installed: install the wheel, or"
            problem += " go install github.com/seed621a2839/reweight/cmd/reweight@latest"
            raise reweight.InputError("show_every", problem)
        x = np.full((2, 2), -1, np.float32)
        one = reweight.Batch(np.ones((2, 2), np.uint8), old_logprobs=x, ref_logprobs=x, ref_energy=x, ref_entropy=x)
        one.advantages, one.token_rewards, one.entropy = x, x, -x
        one.group_ids, one.rewards = np.zeros(2, np.int32), np.arange(2, dtype=np.float32)
        one.span_rewards, one.anchors = one.rewards, one.group_ids
        one.span_ids = np.repeat(np.arange(2, dtype=np.int32), 2).reshape(2, 2)
        try:
            step.credit(one)
        except reweight.InputError as error:
            raise error if error.argument != "names" else reweight.InputError("scheme", error.problem) from None

    def __post_init__(self) -> None:
        entries = self.step().entries
        other = next((e.name for e in entries if e.kind == "weight"), None)
        if self.measured and (other or self.scheme.split("+").count(MEASURED) > 1):
            raise reweight.InputError("scheme", f"has {MEASURED} and {other or MEASURED}, want one that weights tokens")
        if type(self.audit_every) is not int or self.audit_every < 0:
            raise reweight.InputError("audit_every", f"is {self.audit_every!r}, want a number of batches, or 0 for no audits")
        if type(self.audit_turns) is not int or self.audit_turns < 0 or self.audit_turns == 1:
            raise reweight.InputError("audit_turns", f"is {self.audit_turns!r}, want a number of turns, at least 2, or 0 for other parts")
        if self.audit_turns and not self.audited:
            raise reweight.InputError("audit_turns", f"is {self.audit_turns}, but no batch is audited: give audit_every too")
        if self.audited and not self.audit_turns and self.tags is None and self.action is None:
            raise reweight.InputError("tags", "is None, but an audit compares the tokens between two tags with the others")
        if self.beta == 0 and self.signal != Credit.signal and any(e.name == "actfocus" for e in entries):
            problem = f'is "{self.signal}", which orders no tokens while beta is 0: give beta too, which is 0.5 in the paper'
            raise reweight.InputError("signal", problem)
        if self.entropy not in ("exact", "surprisal"):
            raise reweight.InputError("entropy", f'is "{self.entropy}", want one of [exact surprisal]')
        name = next((e.name for e in entries if e.single_entropies), None)
        if self.entropy == "surprisal" and name:
            problem = f'is "surprisal", which stands for the mean entropy of a response, but {name} reads that of single tokens'
            raise reweight.InputError("entropy", problem)
        if self.keep not in (None, "norm"):
            raise reweight.InputError("keep", f'is {self.keep!r}, want None or "norm"')
        if self.not_finite not in ("ignore", "error"):
            raise reweight.InputError("not_finite", f'is "{self.not_finite}", want one of [ignore error]')
        if self.tags_as not in ("reasoning", "action"):
            raise reweight.InputError("tags_as", f'is "{self.tags_as}", want one of [reasoning action]')
        if self.action is not None and not callable(self.action) and not (isinstance(self.action, str) and self.action):
            want = "want a function of ids, texts and the tokenizer, or in TRL the name of a column"
            raise reweight.InputError("action", f"is {self.action!r}, {want}")
        if self.tags is not None:
            self.pairs()
        if self.tokenizer is not None and not hasattr(self.tokenizer, "decode"):
            raise reweight.InputError("tokenizer", f"is {self.tokenizer!r}, want an object that decodes token ids")
        if not isinstance(self.dir, (str, os.PathLike)) or not os.fspath(self.dir):
            raise reweight.InputError("dir", f"is {self.dir!r}, want the name of a folder")
        for argument, what in ("show_every", "pages"), ("save_every", "files"):
            value = getattr(self, argument)
            if type(value) is not int or value < 0:
                raise reweight.InputError(argument, f"is {value!r}, want a number of batches, or 0 for no {what}")


def _is_pair(tags: Any) -> bool:
    """Returns whether it is two strings, of which the first is not empty, or two sequences of integers that are not empty."""
    if not isinstance(tags, (list, tuple)) or len(tags) != 2:
        return False
    if any(isinstance(tag, str) for tag in tags):
        return all(isinstance(tag, str) for tag in tags) and tags[0] != ""
    if any(isinstance(x, (str, list, tuple)) for tag in tags if isinstance(tag, (list, tuple)) for x in tag):
        return False
    return all(np.ndim(tag) == 1 and len(tag) and np.asarray(tag).dtype.kind in "iu" for tag in tags)
