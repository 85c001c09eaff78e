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
import secrets
import stat
import zipfile
import zlib
from dataclasses import fields
from typing import Any, BinaryIO, Callable, Dict, List, Sequence

import numpy as np

from ._arrays import F32, I32, I64, as_numpy, check, view
from ._dumps import FREE_EXPANSION, MOST_EXPANSION, PathLike, from_parquet, from_text
from ._errors import InputError, described
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
    _write(os.path.realpath(path), lambda file: np.savez(file, **arrays))


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
    name = os.fspath(path)
    with open(path, "rb") as content:
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
    one prompt are a group.

    Raises InputError if the file is another one, and pickle.UnpicklingError if it holds
    more than numbers, texts, lists, dicts and tensors.
    """
    torch = importlib.import_module("torch")
    file = torch.load(os.fspath(path), map_location="cpu", weights_only=True)
    samples: Any = file.get("samples") if isinstance(file, dict) else None
    if not isinstance(samples, list) or not samples or not all(isinstance(s, dict) and "tokens" in s for s in samples):
        problem = "has no samples of slime, want a file of --save-debug-train-data or --save-debug-rollout-data"
        raise InputError("path", problem)

    def row(i: int, name: str, values: Any, dtype: Any) -> Any:
        """A list of numbers of a sample."""
        try:
            array = torch.as_tensor(values, dtype=dtype).numpy()
        except (TypeError, ValueError, RuntimeError):
            array = None
        if array is None or array.ndim != 1:
            raise InputError("path", f"has a sample {i} whose {name} is no list of numbers")
        return array

    def numbers(kind: Any, *names: str) -> List[Any]:
        """A number of each sample, or None where one has none."""
        values = [_first(sample, *names) for sample in samples]
        for i, value in enumerate(values):
            try:
                values[i] = None if value is None else kind(value)
            except (TypeError, ValueError, OverflowError):
                problem = f"has a sample {i} whose {names[-1]} is {described(value)}, want a number"
                raise InputError("path", problem) from None
        return values

    tokens = [row(i, "tokens", sample["tokens"], torch.int64) for i, sample in enumerate(samples)]
    lengths = [len(ids) for ids in tokens]
    responses = numbers(int, "response_lengths", "response_length")
    for i, (response, length) in enumerate(zip(responses, lengths)):
        if response is None or not 0 <= response <= length:
            problem = f"has a sample {i} whose response_length is {response}, want 0 to {length}, its tokens"
            raise InputError("path", problem)

    def packed(*names: str) -> Any:
        """The elements of the responses, and 0 for those of prompts, or None."""
        if any(_first(sample, *names) is None for sample in samples):
            return None
        rows: List[Any] = []
        for i, (sample, length, response) in enumerate(zip(samples, lengths, responses)):
            values = row(i, names[0], _first(sample, *names), torch.float32)
            if values.shape != (response,):
                problem = f"has {names[0]} of the shape {list(values.shape)}, want [{response}] like the response"
                raise InputError("path", problem)
            rows += [np.zeros(length - response, np.float32), values]
        return np.concatenate(rows)

    for sample, response in zip(samples, responses):
        if _first(sample, "loss_masks", "loss_mask") is None:
            sample["loss_mask"] = np.ones(response, np.float32)
    mask = packed("loss_masks", "loss_mask")
    seq_offsets = np.append(0, np.cumsum(lengths))
    if any(isinstance(_first(sample, "rewards", "reward"), dict) for sample in samples):
        problem = "has rewards that are dicts, want the file of --save-debug-train-data, which has the one of --reward-key"
        raise InputError("path", problem)
    rewards = numbers(float, "rewards", "reward")
    groups: Dict[Any, int] = {}
    prompts = [row[: length - response].tobytes() for row, length, response in zip(tokens, lengths, responses)]
    keys = [prompt if index is None else index for index, prompt in zip(numbers(int, "group_index"), prompts)]
    ids = np.concatenate(tokens)
    return Batch(
        role=roles_from_mask(mask, ids, open_tag=open_tag, close_tag=close_tag, seq_offsets=seq_offsets),
        seq_offsets=seq_offsets,
        group_ids=np.array([groups.setdefault(key, len(groups)) for key in keys], np.int32),
        rewards=None if None in rewards else np.array(rewards, np.float32),
        span_ids=spans_from_mask(mask, seq_offsets),
        token_ids=ids,
        entropy=packed("entropy"),
        old_logprobs=packed("log_probs", "rollout_log_probs"),
        ref_logprobs=packed("ref_log_probs"),
        advantages=packed("advantages"),
        values=packed("values"),
        rollout_logprobs=packed("rollout_log_probs"),
        returns=packed("returns"),
    )


def _first(sample: Dict[str, Any], *names: str) -> Any:
    """Returns the first of these fields that the sample has."""
    return next((sample[name] for name in names if sample.get(name) is not None), None)


def from_verl(data: Any, *, open_tag: Sequence[int] = (), close_tag: Sequence[int] = ()) -> Batch:
    """Returns the padded batch of the responses of a verl.DataProto, in a trainer, or from
    a file that only verl can read:

        from_verl(verl.DataProto.load_from_disk(path))

    That runs any program that the file holds: let it read your own files only.

    responses and response_mask must be there. The rewards are the sums of
    token_level_scores, and trajectories of one uid are a group; old_log_probs,
    ref_log_prob, entropys, advantages, values, rollout_log_probs, token_level_rewards (as
    token_rewards) and returns are taken where they are there.
    """
    tensors = data.batch
    for name in ("responses", "response_mask"):
        if name not in tensors.keys():
            raise InputError("data", f"has no {name}")

    def floats(name: str) -> Any:
        return tensors[name].detach().float().cpu().contiguous() if name in tensors.keys() else None

    mask = tensors["response_mask"].detach().cpu().contiguous()
    ids = tensors["responses"].detach().cpu().contiguous()
    scores = floats("token_level_scores")
    uids = data.non_tensor_batch.get("uid")
    groups: Dict[Any, int] = {}
    return Batch(
        role=roles_from_mask(mask, ids, open_tag=open_tag, close_tag=close_tag),
        group_ids=None if uids is None else np.array([groups.setdefault(uid, len(groups)) for uid in uids], np.int32),
        rewards=None if scores is None else scores.sum(-1),
        span_ids=spans_from_mask(mask),
        token_ids=ids,
        entropy=floats("entropys"),
        old_logprobs=floats("old_log_probs"),
        ref_logprobs=floats("ref_log_prob"),
        advantages=floats("advantages"),
        values=floats("values"),
        rollout_logprobs=floats("rollout_log_probs"),
        token_rewards=floats("token_level_rewards"),
        returns=floats("returns"),
    )
