"""Batches in files, for the command line and for other programs, and batches from the
dumps of trainers that only Python can read.

    batch = reweight.rollout.from_slime("train_3.pt", open_tag=[30], close_tag=[31])
    reweight.rollout.save("train_3.npz", batch)

and then, in a shell, reweight train_3.npz. What save writes is a .npz file of NumPy:
an array under the name of each field that is set, packed.
"""

from __future__ import annotations

import importlib
import os
import pickle
import secrets
import stat
import zipfile
import zlib
from dataclasses import fields
from typing import Any, BinaryIO, Callable, Dict, List, Sequence, Tuple

import numpy as np

from ._arrays import F32, I32, I64, as_numpy, check, view
from ._dumps import FREE_EXPANSION, MOST_EXPANSION, PathLike, from_parquet, from_text
from ._errors import InputError, file_name, located, printable
from ._values import check_logprobs, groups, held
from .batch import Batch, bind, roles_from_mask, spans_from_mask

__all__ = ["from_parquet", "from_slime", "from_text", "from_verl", "load", "save"]

_FIELDS = [field.name for field in fields(Batch)]

# Fields that no scheme reads, and their types.
_PER_TOKEN = {
    "token_ids": (I32, I64),
    "rollout_logprobs": (F32,),
    "token_rewards": (F32,),
    "returns": (F32,),
    "new_values": (F32,),
    "teacher_logprobs": (F32,),
    "sum_sq_probs": (F32,),
    "entropy_drop": (F32,),
    "actfocus_weights": (F32,),
    "aem_factors": (F32,),
}
_PER_SPAN = {"anchors": (I32,), "span_rewards": (F32,)}


def save(path: PathLike, batch: Batch) -> None:
    """Writes the batch to a .npz file. A padded batch is written as the packed one of the
    same tokens, padding included: its trajectories have T tokens each.

    An old file of that path is replaced when the new one is complete and on the disk, and
    keeps its permission bits; of a link, what it points to.

    Raises InputError, a ValueError, or TypeError, naming the field, if an array has another
    shape or type than the field's, and InputError if the path is that of a directory, a
    device or a pipe, before anything is written.
    """
    given = [name for name in _FIELDS if getattr(batch, name, None) is not None]
    names = ["seq_offsets"]
    names += [n for n in given if n not in ("role", "seq_offsets") and n not in _PER_TOKEN and n not in _PER_SPAN]
    bound = bind(batch, *names)
    found = dict(bound.arrays, role=bound.role)
    for name in given:
        if name in _PER_TOKEN:
            found[name] = view(name, getattr(batch, name), _PER_TOKEN[name])
            check(name, found[name], bound.shape, "token", bound.role, "role")
        elif name in _PER_SPAN:
            if batch.span_ids is None:
                raise InputError(name, "is set, want None for tokens without span_ids")
            spans = int(as_numpy(found["span_ids"]).max(initial=-1)) + 1
            found[name] = view(name, getattr(batch, name), _PER_SPAN[name])
            check(name, found[name], (spans,), "span", bound.role, "role")
    arrays: Dict[str, Any] = {n: as_numpy(array).reshape(array.shape if n == "reward_parts" else -1) for n, array in found.items()}
    _write(os.path.realpath(file_name("path", path)), lambda file: np.savez(file, **arrays))


def _write(path: str, fill: Callable[[BinaryIO], None]) -> None:
    """Gives the file of that path the content that fill writes, or leaves all as it was."""
    folder = os.path.dirname(path)
    old = os.stat(path).st_mode if os.path.lexists(path) else None
    if old is not None and not stat.S_ISREG(old):
        raise InputError("path", f"is {path}, which is not a regular file")
    temporary = os.path.join(folder, f".reweight-{secrets.token_hex(8)}.tmp")
    try:
        file = open(temporary, "xb")  # with the permission bits that the system gives new files
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    try:
        with file:
            if old is not None:
                os.chmod(temporary, stat.S_IMODE(old) & 0o777)
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)  # so that the new name survives a crash
    except OSError:
        pass  # some network file systems cannot
    finally:
        os.close(handle)


def load(path: PathLike) -> Batch:
    """Returns the packed batch of a .npz file: the arrays that have the name of a field.

    Raises InputError, a ValueError, if the file is another one or has no role, if an array is a
    pickle, and if the file is compressed and expands to more than 250 times its size.
    """
    name = file_name("path", path)
    with open(name, "rb") as content:
        try:
            file = np.load(content, allow_pickle=False)
        except (ValueError, EOFError, zipfile.BadZipFile):
            file = None
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise InputError("path", f"is {name}, which is not a .npz file")
        assert file.zip is not None  # until it is closed
        expanded = sum(entry.file_size for entry in file.zip.infolist())
        if expanded > max(FREE_EXPANSION, MOST_EXPANSION * os.fstat(content.fileno()).st_size):
            raise InputError("path", f"is {name}, which expands to more than {MOST_EXPANSION} times its size")
        arrays: Dict[str, Any] = {}
        for field in _FIELDS:
            if field in file.files:
                try:
                    arrays[field] = file[field]
                except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
                    raise InputError("path", f"is {name}, whose {field} cannot be read: {error}") from None
    if "role" not in arrays:
        raise InputError("role", f"is missing in {name}")
    return Batch(**arrays)


def from_slime(path: PathLike, *, open_tag: Sequence[int] = (), close_tag: Sequence[int] = ()) -> Batch:
    """Returns the batch of a file that slime's --save-debug-train-data or
    --save-debug-rollout-data wrote. Its tokens are the prompt's and the response's.

    Such a file is a pickle. It is read as PyTorch reads weights, without running the
    programs that a pickle can hold: torch.load(path, weights_only=True), which knows numbers
    with a fraction since PyTorch 2.

    open_tag and close_tag are the token ids of the tags of an action: see roles_from_mask.
    rollout_logprobs are slime's rollout_log_probs, those of the engine, and old_logprobs are
    its log_probs, or where it has not computed them those of the engine as well. Samples of
    one group_index are a group, or without one those of equal prompts.

    Raises InputError if the file is another one, or has a value that the array of a batch
    cannot hold, such as an id of 1.5, and pickle.UnpicklingError if it holds more than
    numbers, texts, lists, dicts and tensors.
    """
    name = file_name("path", path)
    torch = importlib.import_module("torch")
    if os.path.isdir(name):
        raise InputError("path", f"is {name}, which is a directory, want a file")
    with open(name, "rb") as content:
        try:
            file = torch.load(content, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, MemoryError):
            raise
        except Exception as error:  # PyTorch has no one error for what torch.save has not written
            said = printable((str(error).splitlines() or [""])[0])
            problem = f"is {name}, which torch.load cannot read: {type(error).__name__}: {said}"
            raise InputError("path", problem) from None
    samples: Any = file.get("samples") if isinstance(file, dict) else None
    if not isinstance(samples, list) or not samples or not all(isinstance(s, dict) and "tokens" in s for s in samples):
        problem = "has no samples of slime, want a file of --save-debug-train-data or --save-debug-rollout-data"
        raise InputError("path", problem)

    def of_sample(i: int, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except InputError as error:
            raise InputError("path", f"has a sample {i} whose {error}") from None

    def row(i: int, field: str, array: str, values: Any) -> Any:
        """A list of numbers of a sample, as the array of that name has them."""
        if isinstance(values, torch.Tensor):
            values = of_sample(i, _elements, field, values)
        if not isinstance(values, (list, tuple, np.ndarray)) or isinstance(values, np.ndarray) and values.ndim != 1:
            raise InputError("path", f"has a sample {i} whose {field} is no list of numbers")
        return of_sample(i, held, array, values, field)

    def numbers(array: str, *fields: str) -> Any:
        """A number of each sample, or None if none has one."""
        values = [_first(sample, *fields)[1] for sample in samples]
        if all(value is None for value in values):
            return None
        try:
            return held(array, values, fields[-1])
        except InputError as error:
            assert error.index is not None
            raise InputError("path", f"has a sample {error.index[0]} whose {fields[-1]} {error.problem}") from None

    tokens = [row(i, "tokens", "token_ids", sample["tokens"]) for i, sample in enumerate(samples)]
    lengths = [len(ids) for ids in tokens]
    responses = numbers("anchors", "response_lengths", "response_length")
    for i, length in enumerate(lengths):
        if responses is None or not 0 <= responses[i] <= length:
            found = None if responses is None else responses[i]
            problem = f"has a sample {i} whose response_length is {found}, want 0 to {length}, its tokens"
            raise InputError("path", problem)

    for sample, response in zip(samples, responses):
        if _first(sample, "loss_masks", "loss_mask")[1] is None:
            sample["loss_mask"] = np.ones(response, bool)

    def packed(array: str, *fields: str) -> Any:
        """The elements of the responses, and 0 for those of prompts, or None if no response has any."""
        rows: List[Any] = []
        has = [i for i, sample in enumerate(samples) if responses[i] and _first(sample, *fields)[1] is not None]
        if not has:
            return None
        for i, (sample, length, response) in enumerate(zip(samples, lengths, responses)):
            field, found = _first(sample, *fields)
            if found is None and response:
                raise InputError("path", f"has a sample {i} without {fields[-1]}, which sample {has[0]} has")
            values = row(i, field, array, [] if found is None else found)
            if values.shape != (response,):
                problem = f"has {field} of the shape {list(values.shape)}, want [{response}] like the response"
                raise InputError("path", problem)
            if array != "mask":
                end = seq_offsets[i + 1]
                of_sample(i, check_logprobs, array, values, mask[end - response : end], field)
            rows += [np.zeros(length - response, values.dtype), values]
        return np.concatenate(rows)

    seq_offsets = np.append(0, np.cumsum(lengths))
    mask = packed("mask", "loss_masks", "loss_mask")
    if mask is None:
        mask = np.zeros(seq_offsets[-1], bool)
    if any(isinstance(_first(sample, "rewards", "reward")[1], dict) for sample in samples):
        problem = "has rewards that are dicts, want the file of --save-debug-train-data, which has the one of --reward-key"
        raise InputError("path", problem)
    prompts = [ids[: length - response].tobytes() for ids, length, response in zip(tokens, lengths, responses)]
    ids = np.concatenate(tokens)
    arrays = {
        "entropy": packed("entropy", "entropy"),
        "old_logprobs": packed("old_logprobs", "log_probs"),
        "ref_logprobs": packed("ref_logprobs", "ref_log_probs"),
        "advantages": packed("advantages", "advantages"),
        "values": packed("values", "values"),
        "rollout_logprobs": packed("rollout_logprobs", "rollout_log_probs"),
        "returns": packed("returns", "returns"),
    }
    if arrays["old_logprobs"] is None:
        arrays["old_logprobs"] = arrays["rollout_logprobs"]
    return Batch(
        role=roles_from_mask(mask, ids, open_tag=open_tag, close_tag=close_tag, seq_offsets=seq_offsets),
        seq_offsets=seq_offsets,
        group_ids=groups("group_index", [sample.get("group_index") for sample in samples], prompts),
        rewards=numbers("rewards", "rewards", "reward"),
        span_ids=spans_from_mask(mask, seq_offsets),
        token_ids=ids,
        **arrays,
    )


def _elements(name: str, tensor: Any) -> Any:
    """Returns the elements of a tensor as an array in the memory of the host, those of bfloat16 as float32."""
    if tensor.is_nested or tensor.is_sparse or tensor.is_quantized:
        raise InputError(name, "is a nested, sparse or quantized tensor, want a plain one")
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() and tensor.element_size() < 4 else tensor).numpy()


def _first(sample: Dict[str, Any], *names: str) -> Tuple[str, Any]:
    """Returns the first of these fields that the sample has, and its value, or the last one and None."""
    return next(((name, sample[name]) for name in names if sample.get(name) is not None), (names[-1], None))


def from_verl(data: Any, *, open_tag: Sequence[int] = (), close_tag: Sequence[int] = ()) -> Batch:
    """Returns the padded batch of the responses of a verl.DataProto, in a trainer, or from
    a file that only verl can read:

        from_verl(verl.DataProto.load_from_disk(path))

    That runs any program that the file holds: let it read your own files only.

    responses and response_mask must be there. The rewards are the sums of
    token_level_scores, and trajectories of one uid are a group, or where that is None those
    of equal prompts; old_log_probs,
    ref_log_prob, entropys, advantages, values, rollout_log_probs, token_level_rewards (as
    token_rewards) and returns are taken where they are there.

    Raises InputError, a ValueError, for a value that the array of a batch cannot hold, such
    as an id of 1.5 or a number above all of float32.
    """
    tensors = data.batch
    for name in ("responses", "response_mask"):
        if name not in tensors.keys():
            raise InputError("data", f"has no {name}")

    def array(name: str, field: str) -> Any:
        """A tensor as the array of that name has it, or None."""
        if field not in tensors.keys():
            return None
        values = _elements(field, tensors[field])
        return torch.from_numpy(_padded(values, held, name, values.reshape(-1), field).reshape(values.shape))

    torch = importlib.import_module("torch")
    mask, ids = array("mask", "response_mask"), array("token_ids", "responses")
    role = roles_from_mask(mask, ids, open_tag=open_tag, close_tag=close_tag)
    fields = {
        "entropy": "entropys",
        "old_logprobs": "old_log_probs",
        "ref_logprobs": "ref_log_prob",
        "advantages": "advantages",
        "values": "values",
        "rollout_logprobs": "rollout_log_probs",
        "token_rewards": "token_level_rewards",
        "returns": "returns",
    }
    arrays = {name: array(name, field) for name, field in fields.items()}
    for name, values in arrays.items():
        if values is not None and values.shape == role.shape:
            found = values.numpy()
            _padded(found, check_logprobs, name, found.reshape(-1), role.numpy().reshape(-1), fields[name])
    scores = array("token_rewards", "token_level_scores")
    if scores is not None:
        scores = torch.from_numpy(held("rewards", scores.sum(-1).numpy(), "token_level_scores.sum(-1)"))
    uids = data.non_tensor_batch.get("uid")
    if uids is not None:
        prompts = [b""] * len(uids)
        if "prompts" in tensors.keys():  # padded, and all to one length
            prompts = [row.tobytes() for row in _elements("prompts", tensors["prompts"])]
        uids = groups("uid", uids, prompts)
    return Batch(role=role, group_ids=uids, rewards=scores, span_ids=spans_from_mask(mask), token_ids=ids, **arrays)


def _padded(like: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """Makes a call about the elements of a padded array, whose error has the index there."""
    try:
        return call(*arguments)
    except InputError as error:
        raise located(error, like.shape) from None
