"""Batches from tables: Parquet files of rollouts, and the texts that trainers dump."""

from __future__ import annotations

import importlib
import json
import os
import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple, Union

import numpy as np

from ._errors import InputError, described, file_name
from ._values import check_logprobs, groups, held
from .batch import MASKED, Batch, roles_from_mask, spans_from_mask

PathLike = Union[str, "os.PathLike[str]"]

# What a compressed file may expand to: so many bytes, or so many times its size.
FREE_EXPANSION, MOST_EXPANSION = 64 << 20, 250

# The columns with an element per token, per span or per part of the reward.
_PER_TOKEN = (
    *("role", "mask", "token_ids", "span_ids", "ref_energy", "entropy", "old_logprobs", "logprobs", "ref_logprobs"),
    *("ref_entropy", "advantages", "values", "rollout_logprobs", "token_rewards", "returns", "new_values"),
    *("teacher_logprobs", "sum_sq_probs", "entropy_drop", "actfocus_weights", "aem_factors"),
)
_LISTS = (*_PER_TOKEN, "anchors", "span_rewards", "reward_parts")


def from_parquet(path: PathLike, *, open_tag: Sequence[int] = (), close_tag: Sequence[int] = ()) -> Batch:
    """Returns the batch of a Parquet file whose rows are trajectories, or of the directory of
    such files that Ray Data's write_parquet leaves. It needs pyarrow.

    The columns are the fields of our own lines of JSON (docs/formats.md): lists with an element
    per token, of which mask or role has to be there, and reward and group_id, a value each.
    Columns of other names are not read. Without span_ids, the runs of the mask are the spans;
    without group_id, or where it is null, the trajectories with equal token_ids before the first
    response are a group.

    open_tag and close_tag are the token ids of the tags of an action: see roles_from_mask.

    Raises InputError, a ValueError, if the file is another one, if it expands to more than 250
    times its size, if a column has lists of another length, and for a value that the array of the
    batch cannot hold, such as a role of 1.7: as the program does for a line of JSON. It names the
    column, and the row and the element.
    """
    table = _table(path, [*_LISTS, "reward", "group_id", "group_ids", "trajectory_id"])
    if _column(table, "group_ids") is not None:
        raise InputError("group_ids", "is of many trajectories, want group_id, of the one of a row")
    turns = _column(table, "trajectory_id")
    if turns is not None:
        numbers = groups("trajectory_id", turns.to_pylist(), [b"row %d" % row for row in range(len(table))])
        if len(np.unique(numbers)) < len(table):
            problem = "is there twice, as in the turns of one trajectory, want all of a trajectory in one row"
            raise InputError("trajectory_id", problem)
    if "mask" not in table.column_names and "role" not in table.column_names:
        problem = f"is {os.fspath(path)}, whose columns lack mask, or role, which says which tokens are the response's"
        raise InputError("path", problem)
    none = (np.zeros(len(table), np.int64), np.zeros(0, np.uint8))
    lists = {name: _lists(table, name) for name in _LISTS if name in table.column_names}
    lengths, role = _joined(lists.pop("role", none), lists.pop("mask", none))
    if not len(role):
        raise InputError("path", f"is {os.fspath(path)}, which has no tokens")
    offsets = np.append(0, np.cumsum(lengths))
    arrays: Dict[str, Any] = {}
    for name in _PER_TOKEN:
        if name in lists and name != "span_ids" and lists[name][0].any():
            _check_lengths(name, lists[name][0], lengths, "token")
            arrays[name] = lists[name][1]
            _placed(lengths, check_logprobs, name, arrays[name], role)
    response = role != MASKED
    arrays["span_ids"], spans = _spans(lists.get("span_ids", none), role, offsets)
    if open_tag or close_tag:
        tags = {"open_tag": open_tag, "close_tag": close_tag}
        role = roles_from_mask(response, arrays.get("token_ids"), seq_offsets=offsets, **tags)
    for name in ("anchors", "span_rewards"):
        if name in lists and lists[name][0].any():
            _check_lengths(name, lists[name][0], spans, "span")
            arrays[name] = lists[name][1]
    parts, values = lists.get("reward_parts", none)
    if parts.any():
        _check_lengths("reward_parts", parts, np.repeat(parts[:1], len(parts)), "part")
        arrays["reward_parts"] = values.reshape(len(parts), -1)
    rewards, ids = _column(table, "reward"), _column(table, "group_id")
    if rewards is not None:
        arrays["rewards"] = held("rewards", _elements(rewards), "reward")
    prompts = _prompts(arrays.get("token_ids", role[:0]), response, offsets)
    arrays["group_ids"] = groups("group_id", [None] * len(table) if ids is None else ids.to_pylist(), prompts)
    return Batch(role=role, seq_offsets=offsets, **arrays)


def _table(path: PathLike, columns: Sequence[str]) -> Any:
    """Returns those of the columns that the Parquet files of that path have."""
    name = file_name("path", path)
    arrow = importlib.import_module("pyarrow")
    datasets, parquet = importlib.import_module("pyarrow.dataset"), importlib.import_module("pyarrow.parquet")
    os.stat(name)  # an error that says what is wrong
    try:
        dataset = datasets.dataset(name, format="parquet")
        for file in dataset.files:
            metadata = parquet.read_metadata(file)
            groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
            # A page of equal values has no more bytes than one of them: what counts is the values.
            elements = sum(group.column(i).num_values for group in groups for i in range(group.num_columns))
            if 4 * elements > max(FREE_EXPANSION, MOST_EXPANSION * os.path.getsize(file)):
                problem = f"is {name}, whose {file} expands to more than {MOST_EXPANSION} times its size"
                raise InputError("path", problem)
        return dataset.to_table(columns=[c for c in columns if c in dataset.schema.names])
    except (arrow.ArrowInvalid, OSError) as error:
        raise InputError("path", f"is {name}, which is no Parquet: {str(error).splitlines()[0]}") from None


def _column(table: Any, name: str) -> Any:
    """Returns the column of that name, or None if it is not there or all null."""
    column = table.column(name) if name in table.column_names else None
    return None if column is None or column.null_count == len(column) else column


def _lists(table: Any, name: str) -> Tuple[Any, Any]:
    """Returns the length of the list of each row, 0 where it is null, and the elements of all of them."""
    types, compute = importlib.import_module("pyarrow.types"), importlib.import_module("pyarrow.compute")
    column = table.column(name)
    if types.is_null(column.type):
        return np.zeros(len(column), np.int64), held(name, [])
    if not (types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type)):
        raise InputError(name, f"has elements of the type {column.type}, want lists with an element per token")
    lengths = compute.fill_null(compute.list_value_length(column), 0).to_numpy().astype(np.int64)
    return lengths, _placed(lengths, held, name, _elements(compute.list_flatten(column)))


def _elements(column: Any) -> Any:
    """Returns the elements of a column, as an array if they are numbers."""
    types = importlib.import_module("pyarrow.types")
    kind = column.type
    numbers = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return column.to_numpy() if numbers and not column.null_count else column.to_pylist()


def _placed(lengths: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """Makes a call about the elements of all rows, whose error has the row and the place in it."""
    try:
        return call(*arguments)
    except InputError as error:
        assert error.index is not None
        ends = np.cumsum(lengths)
        row = int(np.searchsorted(ends, error.index[0], "right"))
        raise InputError(error.argument, error.problem, (row, int(error.index[0] - ends[row] + lengths[row]))) from None


def _joined(role: Tuple[Any, Any], mask: Tuple[Any, Any]) -> Tuple[Any, Any]:
    """Returns the number of tokens of each row and the roles, which are those of the mask in rows without roles."""
    of_role = role[0] > 0
    role_ends, mask_ends = np.cumsum(role[0]), np.cumsum(mask[0])
    for row in np.flatnonzero(of_role & (mask[0] > 0)):
        of_roles = role[1][role_ends[row] - role[0][row] : role_ends[row]] != MASKED
        of_mask = mask[1][mask_ends[row] - mask[0][row] : mask_ends[row]] != 0
        if not np.array_equal(of_roles, of_mask):
            problem = f"and role say different tokens of row {row} to be the response's, want one of them"
            raise InputError("mask", problem)
    lengths = np.where(of_role, role[0], mask[0])
    roles = np.empty(int(lengths.sum()), np.uint8)
    of_role_tokens = np.repeat(of_role, lengths)
    roles[of_role_tokens] = role[1]
    roles[~of_role_tokens] = mask[1][np.repeat(~of_role, mask[0])]
    return lengths, roles


def _check_lengths(name: str, lengths: Any, want: Any, unit: str) -> None:
    wrong = np.flatnonzero(lengths != want)
    if len(wrong):
        row = int(wrong[0])
        expected = f"want {want[row]}, one per {unit}"
        if unit == "token" and not want[row]:
            expected = "which has neither mask nor role"
        raise InputError(name, f"has {lengths[row]} elements in row {row}, {expected}")


def _spans(given: Tuple[Any, Any], role: Any, offsets: Any) -> Tuple[Any, Any]:
    """Returns the span_ids of all rows, each numbered on from those before, and how many spans each has. Those of a
    row without any are the runs of its response."""
    all_ids, counts, total, at = spans_from_mask(role != MASKED, offsets), [], 0, 0
    for row, (first, end) in enumerate(zip(offsets, offsets[1:])):
        ids, n = all_ids[first:end], int(given[0][row])
        if n:
            _check_lengths("span_ids", given[0][row : row + 1], np.array([end - first]), "token")
            own = given[1][at : at + n].astype(np.int64)
            at += n
            before = np.maximum.accumulate(np.append(-1, own))[:-1]
            wrong = np.flatnonzero((own < -1) | (own > before + 1) | (own < 0) & (role[first:end] != MASKED))
            if len(wrong):
                t = int(wrong[0])
                want = f"-1 to {before[t] + 1}, spans in the order in which they begin"
                if own[t] == -1:
                    want = "the number of a span, at a response token"
                raise InputError("span_ids", f"is {own[t]}, want {want}", (row, t))
        else:
            own = ids - ids[ids >= 0].min(initial=len(role))
        counts.append(int(own.max(initial=-1)) + 1)
        ids[:] = np.where(own < 0, -1, own + total)
        total += counts[-1]
    return all_ids, np.array(counts)


def _prompts(ids: Any, response: Any, offsets: Any) -> List[bytes]:
    """Returns the tokens of each trajectory before its first response."""
    prompts = []
    for first, end in zip(offsets, offsets[1:]):
        said = np.flatnonzero(response[first:end])
        prompts.append(ids[first : first + said[0] if len(said) else end].tobytes())
    return prompts


def from_text(path: PathLike, tokenizer: Any, *, open_tag: Sequence[int] = (), close_tag: Sequence[int] = ()) -> Batch:
    """Returns the batch of the texts that a trainer dumps: of completions_*.parquet, which TRL
    writes with log_completions (it needs pyarrow), or of {step}.jsonl, which verl writes with
    trainer.rollout_data_dir.

    tokenizer is that of the model, as transformers has it. The tokens are those that it makes of
    the texts, which need not be the ones that were sampled: decoding has lost the special tokens,
    and a text has many tokenizations. The messages of a conversation are put into the tokenizer's
    chat template one after another, and those of the assistant are the responses. There are no
    log-probabilities and no entropies.

    Of verl the score is the reward, and samples of one uid are a group. Of TRL the file has
    advantages, and of rewards only what each function gave; samples of equal prompts are a group.

    open_tag and close_tag are the token ids of the tags of an action: see roles_from_mask.

    Raises InputError, a ValueError, if the file is another one, or if the chat template does not
    append a message to those before it.
    """
    with open(file_name("path", path), "rb") as file:
        parquet = file.read(4) == b"PAR1"
    name, rows = ("advantages", _trl_rows(path)) if parquet else ("rewards", _verl_rows(path))
    if not rows:
        raise InputError("path", f"is {os.fspath(path)}, which has no samples")
    ids: List[Any] = []
    mask: List[Any] = []
    ends = []
    for row in rows:
        for text, said in _pieces(tokenizer, row.prompt, row.completion):
            tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
            ids += tokens
            mask += [said] * len(tokens)
        ends.append(len(ids))
    offsets, token_ids, response = np.append(0, ends), held("token_ids", ids, "tokenizer"), np.array(mask, bool)
    try:
        credit = held(name, [row.credit for row in rows], "advantage" if parquet else "score")
    except InputError as error:
        assert error.index is not None
        raise InputError("path", f"has a sample {error.index[0]} whose {error.argument} {error.problem}") from None
    prompts = groups("uid", [row.uid for row in rows], [json.dumps(row.prompt).encode() for row in rows])
    steps = groups("step", [row.step for row in rows], [b"none"] * len(rows))
    role = roles_from_mask(response, token_ids, open_tag=open_tag, close_tag=close_tag, seq_offsets=offsets)
    per_token = np.where(response, np.repeat(credit, np.diff(offsets)), np.float32(0))
    arrays = {name: per_token if name == "advantages" else credit}
    return Batch(
        role=role,
        seq_offsets=offsets,
        group_ids=groups("uid", [f"{step} {prompt}" for step, prompt in zip(steps, prompts)], [b""] * len(rows)),
        span_ids=spans_from_mask(response, offsets),
        token_ids=token_ids,
        **arrays,
    )


class _Row(NamedTuple):
    """A trajectory of texts."""

    step: Any
    uid: Any  # of its group, or None
    prompt: Any
    completion: Any
    credit: Any  # the reward, or the advantage


def _trl_rows(path: PathLike) -> List[_Row]:
    table = _table(path, ["step", "prompt", "completion", "advantage"])
    missing = sorted({"prompt", "completion", "advantage"} - set(table.column_names))
    if missing:
        raise InputError("path", f"is {os.fspath(path)}, which lacks {' and '.join(missing)} of TRL's log_completions")
    rows = table.to_pylist()
    return [_Row(row.get("step"), None, row["prompt"], row["completion"], row["advantage"]) for row in rows]


def _verl_rows(path: PathLike) -> List[_Row]:
    rows = []
    for number, line in enumerate(Path(path).read_bytes().splitlines(), 1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not {"input", "output", "score"} <= set(row):
            problem = f"is {os.fspath(path)}, whose line {number} is no object with input, output and score"
            raise InputError("path", problem)
        uid = row.get("uid")
        if isinstance(uid, str):  # verl's keys are those of a prompt, its rollout, and the output of that
            uid = re.sub(r"_\d+_\d+$", "", uid)
        rows.append(_Row(row.get("step"), uid, row["input"], row["output"], row["score"]))
    return rows


def _pieces(tokenizer: Any, prompt: Any, completion: Any) -> Iterator[Tuple[str, bool]]:
    """Returns the texts of a trajectory, and whether each is the policy's."""
    if isinstance(prompt, str) and isinstance(completion, str):
        yield prompt, False
        yield completion, True
        return
    if not (isinstance(prompt, list) and isinstance(completion, list)):
        problem = f"has a prompt that is {described(prompt)}, want a text or a list of messages, as the completion"
        raise InputError("path", problem)
    messages = _without_none(prompt + completion)

    def rendered(n: int, reply: bool) -> str:
        text: str = tokenizer.apply_chat_template(messages[:n], tokenize=False, add_generation_prompt=reply)
        return text

    before = ""
    for n in range(len(prompt), len(messages)):
        said = messages[n]["role"] == "assistant"
        for text, of_policy in ((rendered(n, said), False), (rendered(n + 1, False), said)):
            if not text.startswith(before):
                raise InputError("tokenizer", f"has a chat template that changes what stands before message {n}")
            yield text[len(before) :], of_policy
            before = text


def _without_none(value: Any) -> Any:
    """Returns messages without the fields that Parquet gives each because another has them."""
    if isinstance(value, list):
        return [_without_none(v) for v in value]
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    return value
