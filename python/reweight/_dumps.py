"""Batches from tables: Parquet files of rollouts, and the texts that trainers dump."""

from __future__ import annotations

import importlib
import json
import os
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple, Union

import numpy as np

from ._errors import InputError, described
from .batch import Batch, roles_from_mask, spans_from_mask

PathLike = Union[str, "os.PathLike[str]"]

# What a compressed file may expand to: so many bytes, or so many times its size.
FREE_EXPANSION, MOST_EXPANSION = 64 << 20, 250

_FLOATS = (
    *("ref_energy", "entropy", "old_logprobs", "logprobs", "ref_logprobs", "ref_entropy", "advantages", "values"),
    *("rollout_logprobs", "token_rewards", "returns", "new_values", "teacher_logprobs", "sum_sq_probs"),
)
# The columns with an element per token, per span or per part of the reward, and the types that they become.
_LISTS = {"role": np.uint8, "mask": np.float32, "token_ids": np.int64, "span_ids": np.int32, "anchors": np.int32}
_LISTS.update(dict.fromkeys((*_FLOATS, "span_rewards", "reward_parts"), np.float32))


def from_parquet(path: PathLike, *, open_tag: Sequence[int] = (), close_tag: Sequence[int] = ()) -> Batch:
    """Returns the batch of a Parquet file whose rows are trajectories, or of the directory of
    such files that Ray Data's write_parquet leaves. It needs pyarrow.

    The columns are the fields of our own lines of JSON (docs/formats.md): lists with an element
    per token, of which mask or role has to be there, and reward and group_id, a value each.
    Columns of other names are not read. Without span_ids, the runs of the mask are the spans;
    without group_id, the trajectories with equal token_ids before the first response are a group.

    open_tag and close_tag are the token ids of the tags of an action: see roles_from_mask.

    Raises InputError, a ValueError, if the file is another one, if a column has lists of another
    length or elements of another kind, and if the file expands to more than 250 times its size.
    """
    table = _table(path, [*_LISTS, "reward", "group_id"])
    lists = {name: _lists(table, name) for name in _LISTS if name in table.column_names}
    first = next((name for name in ("mask", "role") if name in lists), None)
    if first is None:
        problem = f"is {os.fspath(path)}, whose columns lack mask, or role, which says which tokens are the response's"
        raise InputError("path", problem)
    lengths, mask = lists[first]
    if not len(mask):
        raise InputError("path", f"is {os.fspath(path)}, which has no tokens")
    offsets = np.append(0, np.cumsum(lengths))
    for name, (others, _) in lists.items():
        if name not in ("anchors", "span_rewards", "reward_parts"):
            _check_lengths(name, others, lengths, "token")
    arrays: Dict[str, Any] = {name: values for name, (_, values) in lists.items() if name != "mask"}
    if "role" not in arrays or open_tag or close_tag:
        tags = {"open_tag": open_tag, "close_tag": close_tag}
        arrays["role"] = roles_from_mask(mask, arrays.get("token_ids"), seq_offsets=offsets, **tags)
    if "span_ids" in arrays:
        spans = _renumbered(arrays["span_ids"], offsets)
    else:
        arrays["span_ids"] = spans_from_mask(mask, offsets)
        spans = np.array([len(np.unique(ids[ids >= 0])) for ids in np.split(arrays["span_ids"], offsets[1:-1])])
    for name in ("anchors", "span_rewards"):
        if name in lists:
            _check_lengths(name, lists[name][0], spans, "span")
    if "reward_parts" in lists:
        parts, values = lists["reward_parts"]
        _check_lengths("reward_parts", parts, np.repeat(parts[:1], len(parts)), "part")
        arrays["reward_parts"] = values.reshape(len(parts), -1)
    if "reward" in table.column_names:
        arrays["rewards"] = _numbers(table.column("reward"), "reward").astype(np.float32)
    if "group_id" in table.column_names:
        arrays["group_ids"] = _groups(table.column("group_id").to_pylist())
    elif "token_ids" in arrays:
        arrays["group_ids"] = _groups(_prompts(arrays["token_ids"], mask, offsets))
    return Batch(seq_offsets=offsets, **arrays)


def _table(path: PathLike, columns: Sequence[str]) -> Any:
    """Returns those of the columns that the Parquet files of that path have."""
    arrow = importlib.import_module("pyarrow")
    datasets, parquet = importlib.import_module("pyarrow.dataset"), importlib.import_module("pyarrow.parquet")
    name = os.fspath(path)
    os.stat(path)  # an error that says what is wrong
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


def _lists(table: Any, name: str) -> Tuple[Any, Any]:
    """Returns the length of each list of a column, and the elements of all of them."""
    types, compute = importlib.import_module("pyarrow.types"), importlib.import_module("pyarrow.compute")
    column = table.column(name)
    if not (types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type)):
        raise InputError(name, f"has elements of the type {column.type}, want lists with an element per token")
    if column.null_count:
        raise InputError(name, f"is missing in {column.null_count} of {len(column)} rows")
    lengths = compute.list_value_length(column).to_numpy().astype(np.int64)
    return lengths, _numbers(compute.list_flatten(column), name).astype(_LISTS[name], copy=False)


def _numbers(values: Any, name: str) -> Any:
    types = importlib.import_module("pyarrow.types")
    kind = values.type
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or len(values) == 0):
        raise InputError(name, f"has elements of the type {kind}, want numbers")
    if values.null_count:
        raise InputError(name, f"has {values.null_count} elements that are null, want numbers")
    return values.to_numpy()


def _check_lengths(name: str, lengths: Any, want: Any, unit: str) -> None:
    wrong = np.flatnonzero(lengths != want)
    if len(wrong):
        row = int(wrong[0])
        raise InputError(name, f"has {lengths[row]} elements in row {row}, want {want[row]}, one per {unit}")


def _renumbered(ids: Any, offsets: Any) -> Any:
    """Numbers the spans of each trajectory on from those before, and returns how many each has."""
    spans, total = [], 0
    for first, end in zip(offsets, offsets[1:]):
        own = ids[first:end]
        spans.append(int(own.max(initial=-1)) + 1)
        own[own >= 0] += total
        total += spans[-1]
    return np.array(spans)


def _groups(keys: Sequence[Any]) -> Any:
    """Numbers equal keys in the order in which they appear."""
    numbers: Dict[Any, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int32)


def _prompts(ids: Any, mask: Any, offsets: Any) -> List[bytes]:
    """Returns the tokens of each trajectory before its first response."""
    prompts = []
    for first, end in zip(offsets, offsets[1:]):
        response = np.flatnonzero(mask[first:end])
        prompts.append(ids[first : first + response[0] if len(response) else end].tobytes())
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
    with open(path, "rb") as file:
        parquet = file.read(4) == b"PAR1"
    name, rows = ("advantages", _trl_rows(path)) if parquet else ("rewards", _verl_rows(path))
    ids: List[Any] = []
    mask: List[Any] = []
    ends = []
    for _, prompt, completion, _ in rows:
        for text, said in _pieces(tokenizer, prompt, completion):
            tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
            ids += tokens
            mask += [said] * len(tokens)
        ends.append(len(ids))
    offsets, token_ids, response = np.append(0, ends), np.array(ids, np.int64), np.array(mask, bool)
    for i, row in enumerate(rows):
        if not isinstance(row[3], (int, float)):
            raise InputError("path", f"has {described(row[3])} for the {name[:-1]} of sample {i}, want a number")
    credit = np.array([row[3] for row in rows], np.float32)
    role = roles_from_mask(response, token_ids, open_tag=open_tag, close_tag=close_tag, seq_offsets=offsets)
    arrays = {name: np.repeat(credit, np.diff(offsets)) * response if name == "advantages" else credit}
    return Batch(
        role=role,
        seq_offsets=offsets,
        group_ids=_groups([row[0] for row in rows]),
        span_ids=spans_from_mask(response, offsets),
        token_ids=token_ids,
        **arrays,
    )


# The group, the prompt, the completion, and the reward or the advantage of a trajectory.
_Row = Tuple[Any, Any, Any, float]


def _trl_rows(path: PathLike) -> List[_Row]:
    table = _table(path, ["step", "prompt", "completion", "advantage"])
    missing = sorted({"prompt", "completion", "advantage"} - set(table.column_names))
    if missing:
        raise InputError("path", f"is {os.fspath(path)}, which lacks {' and '.join(missing)} of TRL's log_completions")
    return [
        ((row.get("step"), json.dumps(row["prompt"])), row["prompt"], row["completion"], row["advantage"])
        for row in table.to_pylist()
    ]


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
        # verl's keys are those of a prompt, its rollout, and the output of that.
        key = re.sub(r"_\d+_\d+$", "", row["uid"]) if isinstance(row.get("uid"), str) else row["input"]
        rows.append(((row.get("step"), key), row["input"], row["output"], row["score"]))
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
