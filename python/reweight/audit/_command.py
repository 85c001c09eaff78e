"""python -m reweight audit: an audit of rollouts in files, by the gradients of a language model."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, NoReturn, Optional, Sequence, Tuple

import numpy as np

from .. import _program, rollout
from .._errors import InputError, factor, printable
from .._step import scheme
from ..adapters._tags import roles
from ..batch import ACTION, MASKED, Batch, spans_from_mask
from . import Audit

SOON, LATER = 120, 600
"""Seconds after which what is known so far is printed, and again."""

_DESCRIPTION = """Says, before a training run, in which parts of the answers the signal of the policy gradient is, and
which weights of these parts are best: from rollouts in files of any format that reweight reads, with
token ids, and the gradients of the model that drew them. It trains nothing."""


class Prompt(NamedTuple):
    """The answers to a prompt: of each all token ids, and for each token its part, its role and its turn, which is -1 where
    the policy drew nothing, as the part is."""

    key: str
    rewards: np.ndarray[Any, Any]
    ids: List[np.ndarray[Any, Any]]
    labels: List[np.ndarray[Any, Any]]
    roles: List[np.ndarray[Any, Any]]
    turns: List[np.ndarray[Any, Any]]


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {printable(message)}\n")


def parser() -> argparse.ArgumentParser:
    """The parser of the command's arguments."""
    raw = argparse.RawDescriptionHelpFormatter
    made = Parser("python -m reweight audit", description=_DESCRIPTION, allow_abbrev=False, formatter_class=raw)
    made.add_argument("files", metavar="FILE", nargs="+", help="rollouts: any file that reweight reads, with token ids")
    made.add_argument("--model", required=True, help="directory or name of a causal language model of transformers")
    made.add_argument("--gguf", metavar="NAME", help="file of the model's directory with its weights, in GGUF")
    made.add_argument("--tags", metavar="OPEN,CLOSE", default="<answer>,</answer>",
                      help="texts before and after an action, which are a part of their own; \"\" for none (%(default)s)")  # fmt: skip
    made.add_argument("--action-tags", action="store_true", help="actions stand between the tags, whatever roles the files have")
    made.add_argument("--turns", metavar="N", type=int,
                      help="the parts are the turns of an answer, N of them: turn N has all later ones too")  # fmt: skip
    made.add_argument("--view", choices=("full", "hidden", "head"), default="full",
                      help="gradients by the blocks' weights, or, for a first look without backward passes, by the hidden state "
                           "before the head, or by the head's weight (%(default)s)")  # fmt: skip
    made.add_argument("--layers", metavar="N,N...", help="numbers of the blocks that count; all by default")
    made.add_argument("--schemes", metavar="NAME,NAME...", default="actfocus,aem",
                      help="weights and factors of the catalogue to compare with equal weights (%(default)s)")  # fmt: skip
    made.add_argument("--temperature", type=float, default=1.0, help="of the sampling (%(default)s)")
    made.add_argument("--prompts", type=int, metavar="N", help="the first N prompts with different rewards alone")
    made.add_argument("--device", default="", help="of the model, such as cuda; the GPU by default if there is one")
    made.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32", help="of the weights (%(default)s)")
    made.add_argument("--out", metavar="DIR", help="writes audit.txt, audit.json and audit.html there, and goes on from there")
    return made


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status: 2 for bad use."""
    return command(parser(), run, arguments)


def command(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], str], arguments: Sequence[str]) -> int:
    """Prints what run returns for the arguments, and returns the exit status: 2 for bad use."""
    try:
        options = parser.parse_args(arguments)
    except SystemExit as exit:
        return int(exit.code or 0)
    try:
        print(run(options), flush=True)
    except BrokenPipeError:
        raise
    except (InputError, _program.CommandError, OSError) as error:
        print(f"{parser.prog}: {printable(' '.join(str(error).split()))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


class Work:
    """What an audit by these options is of: the prompts of the files, and the labels and weights that it compares."""

    def __init__(self, options: argparse.Namespace, read: bool = True) -> None:
        if options.prompts is not None and options.prompts < 2:
            raise InputError("prompts", f"is {options.prompts}, want at least 2")
        factor("temperature", options.temperature)
        tags = tuple(options.tags.split(",")) if options.tags else ()
        if tags and (len(tags) != 2 or not all(tags)):
            raise InputError("tags", f"is {options.tags!r}, want two texts with a comma between them")
        if options.action_tags and not tags:
            raise InputError("action_tags", "needs tags")
        if options.turns is not None and options.turns < 2:
            raise InputError("turns", f"is {options.turns}, want at least 2")
        self.options, self.tags = options, tags
        self.layers = None if options.layers is None else _numbers("layers", options.layers)
        self.steps = _steps(options.schemes)
        self.parts = parts_of_turns(options.turns) if options.turns else ("action", "tags", "reasoning") if tags else ("action", "reasoning")
        self.folder = None if options.out is None else _folder(options.out)
        if read:
            self.batch = _read(options.files)
            _check(self.batch)
            if not (options.turns or options.action_tags or (np.asarray(self.batch.role) == ACTION).any()):
                want = "give --action-tags, if actions stand between the tags, or --turns"
                raise InputError("role", f"has no action in the files, which are a part of the tokens: {want}")
            most = int(turns_of(self.batch.span_ids, self.batch.seq_offsets).max()) + 1
            if options.turns and options.turns > most:
                raise InputError("turns", f"is {options.turns}, but no answer of the files has more than {most}")

    def audit(self, view: Any) -> Audit:
        """An audit without prompts."""
        return Audit(self.parts, {} if self.options.turns else _weights(self.parts), list(self.steps), view.names)

    def prompts(self, tokenizer: Any) -> List[Prompt]:
        """All prompts of the files."""
        if self.options.action_tags:
            self.batch.role = role = _between_tags(self.batch, self.tags, tokenizer)
            if not (self.options.turns or (role == ACTION).any()):
                raise InputError("tags", f"is {self.options.tags!r}, and no token of the answers stands between them")
        of = (self.options.model, self.options.gguf, self.options.dtype, self.options.temperature, self.options.tags)
        return list(_prompts(self.batch, tokenizer, self.tags, self.options.turns, repr(of)))

    def asked(self, prompts: List[Prompt]) -> List[Prompt]:
        """Those prompts that the options ask for."""
        if self.options.prompts is None:
            return prompts
        known = np.cumsum([_has_signal(p.rewards) for p in prompts])
        return prompts[: int(np.searchsorted(known, self.options.prompts)) + 1]


def view_of(options: argparse.Namespace, layers: Optional[List[int]], model: Any) -> Any:
    """The gradients of the model."""
    from .gradients import Gradients

    return Gradients(model, layers, temperature=options.temperature, view=options.view)


def check_ids(batch: Batch, vocabulary: int) -> None:
    """Wants tokens of the model."""
    ids = np.asarray(batch.token_ids)
    if ids.size and (ids.min() < 0 or ids.max() >= vocabulary):
        raise InputError("token_ids", f"has {ids.min()} to {ids.max()}, want 0 to {vocabulary - 1}, the tokens of the model")


def add(audit: Audit, view: Any, steps: Dict[str, Any], prompt: Prompt) -> None:
    """Adds a prompt to the audit, by the gradients of its answers."""
    import torch

    labels, parts = np.concatenate(prompt.labels), len(audit.parts)
    counts = np.bincount(labels[labels >= 0], minlength=parts)
    grams = np.zeros((len(view.names), *[parts + len(steps)] * 2, *[len(prompt.rewards)] * 2))
    if _has_signal(prompt.rewards):

        def weights(said: Any) -> List[Any]:
            return [_direction(step, prompt, said) for step in steps.values()]

        try:
            grams = view.grams(prompt.ids, prompt.labels, parts, weights).numpy()
        except torch.OutOfMemoryError:
            raise InputError("device", f"has too little memory for {sum(map(len, prompt.ids)):,} tokens of a prompt at once") from None
        except (RuntimeError, IndexError) as error:  # such as of a model with fewer positions
            longest = max(map(len, prompt.ids))
            raise InputError("model", f"fails at answers of up to {longest:,} tokens, prompts included: {error}") from None
    audit.add(prompt.rewards, grams, counts, prompt.key)


def options_of(files: Sequence[str], flags: Sequence[str]) -> argparse.Namespace:
    """The options of an audit that others run: those of the command, without a folder."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            options = parser().parse_args([*flags, "--", *files])
    except SystemExit:
        problem = (said.getvalue().splitlines() or [""])[-1].removeprefix("python -m reweight audit: ")
        raise InputError("flags", f"is {list(flags)}, want flags of python -m reweight audit: {problem}") from None
    if options.out is not None:
        raise InputError("flags", "has --out, and the audit is returned: save it, or write its report")
    return options


_loaded_once = threading.Lock()
_views: Dict[str, Any] = {}


def measured(prompts: List[Prompt], options: argparse.Namespace) -> Audit:
    """The audit of some prompts, in a process that keeps the model for its next ones."""
    work = Work(options, read=False)
    with _loaded_once:  # threads would take part in each other's passes through the model
        key = repr(vars(options))
        if key not in _views:
            _views.clear()
            _views[key] = view_of(options, work.layers, _model(options)[0])
        view = _views[key]
        audit = work.audit(view)
        for prompt in prompts:
            add(audit, view, work.steps, prompt)
    return audit


def parts_of(options: argparse.Namespace, most: int) -> List[List[Prompt]]:
    """The prompts of the files, whole, whichever files their answers are in, for at most so many tasks."""
    work = Work(options)
    prompts = work.asked(work.prompts(_loaded(options, "AutoTokenizer")))
    size = -(-len(prompts) // most)
    return [prompts[first : first + size] for first in range(0, len(prompts), size)]


def run(options: argparse.Namespace) -> str:
    """Runs the audit, and returns its text."""
    work = Work(options)
    model, tokenizer = _model(options)
    view = view_of(options, work.layers, model)
    check_ids(work.batch, view.head.weight.shape[0])
    audit, folder = work.audit(view), work.folder
    everyone = work.prompts(tokenizer)
    if folder and (folder / "audit.npz").exists():
        audit = audit.load(folder / "audit.npz")
        if sum(p.key in audit for p in everyone) < len(audit):
            raise InputError("out", f"is {folder}, with an audit of other files, or by another model, dtype, temperature or tags")
    prompts = work.asked(everyone)
    unasked = {p.key for p in everyone[len(prompts) :]}
    todo = [p for p in prompts if p.key not in audit]
    begun = shown = time.monotonic()
    wait = SOON
    try:
        for number, prompt in enumerate(todo):
            add(audit, view, work.steps, prompt)
            if folder:
                folder.mkdir(parents=True, exist_ok=True)
                audit.save(folder / "audit.npz")
            now = time.monotonic()
            left = (now - begun) / (number + 1) * (len(todo) - number - 1)
            at = len(prompts) - len(todo) + number + 1
            print(f"\r{at} of {len(prompts)} prompts, about {left / 60:.0f} min left ", end="", file=sys.stderr, flush=True)
            if now - shown > wait and (found := audit.without(unasked)).counted > 1:
                shown, wait = now, LATER
                print(f"\nSo far:\n{found.report()}", file=sys.stderr)
    finally:
        print(file=sys.stderr)
    found = audit.without(unasked)
    report = found.report()
    about = (
        f"{view.counted:,} of {view.parameters:,} parameters count: the linear layers of {len(view.layers)} of {len(view.blocks)} blocks."
    )
    if options.view != "full":
        about = f"This is a first look, by the view {options.view}, which may say another thing than the blocks do: decide by --view full."
    text = f"{report}\n{about}"
    if folder:
        _write(folder / "audit.txt", text + "\n")
        _write(folder / "audit.json", found.as_json())
        _write(folder / "audit.html", report.html(about))
    return text


def _folder(name: str) -> Path:
    """The folder of that name, which is there or can be made."""
    folder = Path(name)
    there = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not name or not there.is_dir():
        raise InputError("out", f"is {name!r}, which is no folder")
    if not os.access(there, os.W_OK):
        raise InputError("out", f"is {name!r}, and {there} cannot be written")
    return folder


def _read(files: Sequence[str]) -> Batch:
    if "-" in files:
        raise InputError("files", "has -, but an audit reads no standard input: name files")
    with tempfile.TemporaryDirectory(prefix="reweight-") as folder:
        path = os.path.join(folder, "batch.npz")
        _program.run(_program.PROGRAM, ["convert"], "files", *files, path)
        batch = rollout.load(path)
    if batch.span_rewards is not None and batch.rewards is not None:  # which is the outcome alone, as turn_returns has it
        spans, begins = np.unique(np.asarray(batch.span_ids), return_index=True)
        rows = np.searchsorted(np.asarray(batch.seq_offsets), begins[spans >= 0], "right") - 1
        rewards = np.asarray(batch.rewards)
        batch.rewards = rewards + np.bincount(rows, np.asarray(batch.span_rewards), len(rewards))
    return batch


def _steps(names: str) -> Dict[str, Any]:
    """The steps of schemes, whose names have commas between them."""
    found: Dict[str, Any] = {}
    for name in filter(None, names.split(",")):
        try:
            found[name] = scheme(name)
        except InputError as error:
            raise InputError("schemes", error.problem) from None
        if any(e.kind not in ("weight", "factor") for e in found[name].entries):
            raise InputError("schemes", f"has {name!r}, want schemes of weights and factors of tokens alone")
    return found


def _check(batch: Batch) -> None:
    for name in ("token_ids", "rewards", "group_ids", "seq_offsets"):
        if getattr(batch, name) is None:
            raise InputError(name, "is missing in the files: an audit needs the answers' token ids, prompts too, and rewards by group")
    offsets, role = np.asarray(batch.seq_offsets), np.asarray(batch.role)
    if not role.any():
        raise InputError("role", "has no token in the files that the policy drew")
    begins = offsets[:-1][np.diff(offsets) > 0]
    if (role[begins] != MASKED).any():
        first = int(begins[role[begins] != MASKED][0])
        raise InputError("role", "counts the first token of an answer: an audit needs the prompts' tokens before the answers", first)
    groups, rewards = np.asarray(batch.group_ids), np.asarray(batch.rewards)
    found = sum(_has_signal(rewards[groups == group]) for group in np.unique(groups))
    if found < 2:
        raise InputError("rewards", f"differ in {found} prompts with three answers or more, want at least 2 such prompts")


def _between_tags(batch: Batch, tags: Sequence[str], tokenizer: Any) -> Any:
    """The roles of the tokens by the tags, as -action-tags has them, from what the tokenizer decodes."""
    ids, drawn = np.asarray(batch.token_ids).astype(np.int64), np.asarray(batch.role) != MASKED
    return roles(drawn, ids, np.asarray(batch.seq_offsets), ((tags[0], tags[1]),), tokenizer)[0]


def _numbers(name: str, text: str) -> List[int]:
    try:
        return [int(x) for x in text.split(",")]
    except ValueError:
        raise InputError(name, f"is {text!r}, want numbers with commas between them") from None


def _loaded(options: argparse.Namespace, kind: str) -> Any:
    """A model or a tokenizer of the directory or name."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise InputError("model", f"needs PyTorch and transformers: {error}") from None
    given: Dict[str, Any] = {"dtype": getattr(torch, options.dtype)} if "Model" in kind else {}
    if options.gguf:
        given["gguf_file"] = options.gguf
    try:
        return getattr(transformers, kind).from_pretrained(options.model, **given)
    except Exception as error:  # of many kinds, from transformers and from what it loads with
        raise InputError("model", f"is {options.model}, which transformers does not load: {error}") from None


def _model(options: argparse.Namespace) -> Tuple[Any, Any]:
    model, tokenizer = (_loaded(options, kind) for kind in ("AutoModelForCausalLM", "AutoTokenizer"))
    import torch

    try:
        return model.to(options.device or ("cuda" if torch.cuda.is_available() else "cpu")), tokenizer
    except (RuntimeError, AssertionError) as error:
        raise InputError("device", f"is {options.device!r}, to which the model does not go: {error}") from None


def _weights(parts: Sequence[str]) -> Dict[str, Tuple[float, ...]]:
    """What people use: ActFocus's weight of the rest, tags in it or beside the actions."""
    found: Dict[str, Tuple[float, ...]] = {}
    for alpha in (0.1, 0.3):
        found[f"alpha {alpha}"] = (1.0, *[alpha] * (len(parts) - 1))
        if "tags" in parts:
            found[f"alpha {alpha}, tags 1"] = (1.0, 1.0, alpha)
    return found


def parts_of_turns(n: int) -> Tuple[str, ...]:
    """The names of the parts that are turns."""
    return tuple(f"turn {k + 1}" for k in range(n))


def turns_of(span_ids: Any, seq_offsets: Any) -> Any:
    """The number of the turn of each token, which is its response's: from 0 on in each answer, and -1 at masked tokens."""
    spans, offsets = np.asarray(span_ids), np.asarray(seq_offsets)
    before = np.append([0], np.maximum.accumulate(spans) + 1)[offsets[:-1]]
    return np.where(spans < 0, -1, spans - np.repeat(before, np.diff(offsets)))


def _prompts(batch: Batch, tokenizer: Any, tags: Sequence[str], most: Optional[int], of: str) -> Iterator[Prompt]:
    """The prompts; their keys are other ones where anything that their inner products come from is, of says the rest. most is the
    number of turns, if they are the parts."""
    offsets, ids, role = (np.asarray(x) for x in (batch.seq_offsets, batch.token_ids, batch.role))
    turns = turns_of(batch.span_ids, offsets)
    groups, rewards = np.asarray(batch.group_ids), np.asarray(batch.rewards)
    texts: Dict[int, str] = {}
    for group in np.unique(groups):
        mine = np.flatnonzero(groups == group)
        rows = [slice(offsets[i], offsets[i + 1]) for i in mine]
        labels = [np.minimum(turns[row], most - 1) for row in rows] if most else []
        for row in rows if not most else ():
            for token in set(ids[row].tolist()) - texts.keys():
                texts[token] = tokenizer.decode([token])
            labels.append(labels_of(role[row], [texts[t] for t in ids[row].tolist()], tags))
        digest = hashlib.sha256(of.encode())
        for row, label, reward in zip(rows, labels, rewards[mine]):
            said = role[row].tolist() if most else []  # which the labels do not say then
            digest.update(repr((ids[row].tolist(), label.tolist(), float(reward), *said)).encode())
        key, of_rows = f"{group} {digest.hexdigest()[:16]}", ([x[row] for row in rows] for x in (role, turns))
        yield Prompt(key, rewards[mine], [ids[row] for row in rows], labels, *of_rows)


def labels_of(role: Any, texts: Sequence[str], tags: Sequence[str]) -> Any:
    """The parts of the tokens of an answer: 0 for actions, 1 for tags and what stands behind the last one of a response,
    and 2, or 1 without tags, for the rest; -1 for masked tokens."""
    rest = 2 if tags else 1
    labels = np.where(role == MASKED, -1, np.where(role == ACTION, 0, rest))
    if not tags:
        return labels
    spans = spans_from_mask((role != MASKED)[None])[0]
    for span in range(int(spans.max(initial=-1)) + 1):
        at = np.flatnonzero(spans == span)
        pieces = [texts[t] for t in at.tolist()]
        ends = np.cumsum([len(piece) for piece in pieces])
        starts = ends - [len(piece) for piece in pieces]
        whole, of = "".join(pieces), labels[at]
        begin = whole.find(tags[0])
        while begin >= 0:
            end = begin + len(tags[0])
            of[(ends > begin) & (starts < end) & (of == rest)] = 1
            close = whole.find(tags[1], end)
            if close < 0:
                break
            begin = whole.find(tags[0], close)
            behind = close + len(tags[1]) if begin >= 0 else len(whole) + 1
            of[(ends > close) & (starts < behind) & (of == rest)] = 1
        labels[at] = of
    return labels


def _has_signal(rewards: Any) -> bool:
    scored = rewards[~np.isnan(rewards)]
    return len(scored) > 2 and bool((scored != scored[0]).any())


def _direction(step: Any, prompt: Prompt, said: Any) -> Any:
    """Weights times factors of the scheme, with the prompt's answers as the batch."""
    n, longest = said.entropy.shape
    role, spans = np.zeros((n, longest), np.uint8), np.full((n, longest), -1, np.int32)
    for i, (roles, turns) in enumerate(zip(prompt.roles, prompt.turns)):
        role[i, : len(roles)] = roles
        spans[i, : len(turns)] = np.where(turns < 0, -1, turns + spans.max() + 1)
    entropy, energy, logprobs = (x.cpu().numpy() for x in (said.entropy, said.energy, said.logprobs))
    given = Batch(role=role, group_ids=np.zeros(n, np.int32), rewards=prompt.rewards.astype(np.float32), span_ids=spans,
                  entropy=entropy, ref_energy=energy, ref_entropy=entropy, old_logprobs=logprobs, logprobs=logprobs,
                  ref_logprobs=logprobs, rollout_logprobs=logprobs, advantages=np.ones((n, longest), np.float32))  # fmt: skip
    try:
        return np.prod([np.ones((n, longest)), *(step._compute(e, given) for e in step.entries)], 0)
    except InputError as error:
        raise InputError("schemes", f"has one that the audit cannot compute: {error}") from None


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None
