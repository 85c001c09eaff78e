"""The batch of rollouts that the schemes take, and what makes its roles and spans."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import numpy.typing as npt

from . import _generated
from ._arrays import (
    BOOL,
    F32,
    I32,
    I64,
    U8,
    Array,
    ArrayLike,
    DType,
    as_numpy,
    check,
    check_shape,
    made_like,
    multiples,
    view,
)
from ._errors import InputError, described

MASKED = 0
"""The role of prompts, observations and padding: no part in the loss."""
REASONING = 1
"""The role of response tokens outside the action body."""
ACTION = 2
"""The role of tokens strictly between <answer> and </answer>."""


@dataclass(eq=False)
class Batch:
    """Tokens of trajectories, in one of two layouts.

    Packed: T tokens of S trajectories, one after another. Arrays per token are [T], and
    seq_offsets, [S+1], says where each trajectory begins, and where the last one ends.

    Padded: B trajectories of T tokens. Arrays per token are [B, T], seq_offsets is None,
    and padding has the role 0. Arrays per trajectory are [B]. Results have the shape
    [B, T], with 0 at padding (1 in the factors of AEM).

    Arrays are NumPy arrays or tensors of PyTorch, contiguous, and all on one device. A
    function reads only those that it names, so that a batch may carry just what the call
    at hand needs. Energies, entropies and log-probabilities are in nats.

    role: uint8 [T], MASKED, REASONING or ACTION; see roles_from_mask.
    seq_offsets: int64 [S+1], tokens seq_offsets[s] to seq_offsets[s+1] are trajectory s.
    group_ids: int32 [S], trajectories sampled from one prompt share a group.
    rewards: float32 [S], outcome reward.
    span_ids: int32 [T], response of each token, numbered from 0 in the order in which
        they appear; -1 outside; see spans_from_mask.
    token_ids: int32 or int64 [T], sampled token. No scheme reads it.
    ref_energy: float32 [T], -logsumexp of the frozen reference's logits.
    entropy: float32 [T], entropy of the old policy.
    old_logprobs: float32 [T], log-probability of the sampled token, old policy.
    logprobs: float32 [T], the same, current policy.
    ref_logprobs: float32 [T], the same, frozen reference.
    ref_entropy: float32 [T], entropy of the frozen reference.
    advantages: float32 [T].
    values: float32 [T], of the critic.
    rollout_logprobs: float32 [T], log-probability of the sampled token, by the engine that
        sampled.
    teacher_logprobs: float32 [T], log-probability of the sampled token, by a teacher; NaN
        throughout a trajectory that has none.
    sum_sq_probs: float32 [T], sum of the squared probabilities of the vocabulary, old policy:
        e^log_sum_sq_probs of token_stats.
    entropy_drop: float32 [T], sum of p^2 (entropy + log p) over the vocabulary, old policy.
    token_rewards: float32 [T], reward of each token.
    reward_parts: float32 [S, K], the K parts of each outcome reward, K at least 1.
    anchors: int32 [N], one per span that span_ids numbers: number of the state before it.
    span_rewards: float32 [N], reward of each span.

    returns: float32 [T], what the critic is to predict.
    new_values: float32 [T], of the current critic; values is then the old one.

    These are for files and pages only (see reweight.rollout and reweight.show):

    actfocus_weights: float32 [T], weight of each token by ActFocus, as a trainer used it.
    aem_factors: float32 [T], factor of each token's advantage by AEM, as a trainer used it.
    """

    role: ArrayLike
    seq_offsets: Optional[ArrayLike] = None
    group_ids: Optional[ArrayLike] = None
    rewards: Optional[ArrayLike] = None
    span_ids: Optional[ArrayLike] = None
    token_ids: Optional[ArrayLike] = None
    ref_energy: Optional[ArrayLike] = None
    entropy: Optional[ArrayLike] = None
    old_logprobs: Optional[ArrayLike] = None
    logprobs: Optional[ArrayLike] = None
    ref_logprobs: Optional[ArrayLike] = None
    ref_entropy: Optional[ArrayLike] = None
    advantages: Optional[ArrayLike] = None
    values: Optional[ArrayLike] = None
    rollout_logprobs: Optional[ArrayLike] = None
    token_rewards: Optional[ArrayLike] = None
    returns: Optional[ArrayLike] = None
    new_values: Optional[ArrayLike] = None
    teacher_logprobs: Optional[ArrayLike] = None
    reward_parts: Optional[ArrayLike] = None
    anchors: Optional[ArrayLike] = None
    span_rewards: Optional[ArrayLike] = None
    actfocus_weights: Optional[ArrayLike] = None
    aem_factors: Optional[ArrayLike] = None
    sum_sq_probs: Optional[ArrayLike] = None
    entropy_drop: Optional[ArrayLike] = None


class Bound(NamedTuple):
    """The arrays of a batch that a call reads."""

    struct: _generated.Batch
    role: Array
    arrays: Dict[str, Array]  # by their fields; the owners must live as long as the struct is used

    @property
    def shape(self) -> Tuple[int, ...]:
        """The shape of arrays per token: [T], or [B, T]."""
        return self.role.shape


def bind(batch: Batch, *names: str) -> Bound:
    """Returns the addresses of the role and of the arrays of those names."""
    if not isinstance(batch, Batch):
        raise TypeError(f"batch is {described(batch)}, want a Batch")
    role = view("role", batch.role, (U8,))
    _check_layout("role", role)
    check("role", role, role.shape, "token", role, "role")
    struct = _generated.Batch(tokens=role.size, role=role.pointer)
    bound = Bound(struct, role, {})
    # seq_offsets says how many trajectories there are: it comes before the arrays of [S].
    if "seq_offsets" in names:
        offsets = offsets_of(batch.seq_offsets, role)
        struct.trajectories = offsets.shape[0] - 1
        struct.seq_offsets = offsets.pointer
        bound.arrays["seq_offsets"] = offsets
    for name in names:
        if name == "seq_offsets":
            continue
        shape, unit = role.shape, "token"
        if name in ("group_ids", "rewards"):
            shape, unit = (struct.trajectories,), "trajectory"
        elif name in ("anchors", "span_rewards"):  # after span_ids
            shape, unit = (_spans_of(bound.arrays["span_ids"]),), "span"
        elif name == "reward_parts":
            shape, unit = (struct.trajectories, parts_of(batch)), "part of a trajectory"
            struct.parts = shape[1]
        dtype = I32 if name in ("group_ids", "span_ids", "anchors") else F32
        obj = getattr(batch, name)
        if obj is None:
            raise InputError(name, f"is None, want the shape {list(shape)}, one element per {unit}")
        array = view(name, obj, (dtype,))
        if unit != "span" or shape[0] <= role.size:  # with more spans than tokens, the ids are wrong: the library says how
            check(name, array, shape, unit, role, "role")
        setattr(struct, name, array.pointer)
        bound.arrays[name] = array
    return bound


def parts_of(batch: Batch) -> int:
    """Returns K of the reward_parts, [S, K]."""
    if batch.reward_parts is None:
        raise InputError("reward_parts", "is None, want the shape [S, K], K parts of the reward of each trajectory")
    shape = view("reward_parts", batch.reward_parts, (F32,)).shape
    if len(shape) != 2 or shape[1] == 0:
        raise InputError("reward_parts", f"has the shape {list(shape)}, want [S, K] with K of at least 1")
    return shape[1]


def _spans_of(span_ids: Array) -> int:
    """Returns how many spans the ids number."""
    return int(as_numpy(span_ids).max(initial=-1)) + 1


def _check_layout(argument: str, array: Array) -> None:
    """Wants one of the two layouts."""
    shape = list(array.shape)
    if len(shape) not in (1, 2):
        raise InputError(argument, f"has the shape {shape}, want [T] of a packed batch or [B, T] of a padded one")


def offsets_of(offsets: Optional[ArrayLike], like: Array, name: str = "role") -> Array:
    """Returns the offsets of a packed layout, or those that a padded one implies. like is
    the argument of that name, one element per token."""
    shape = list(like.shape)
    if len(shape) == 1:
        if offsets is None:
            raise InputError("seq_offsets", f"is None, want where each trajectory begins: {name} has the shape {shape}")
        array = view("seq_offsets", offsets, (I64,))
        if len(array.shape) != 1 or array.shape[0] < 2:
            problem = f"has the shape {list(array.shape)}, want [S+1], at least 2 elements, for one trajectory"
            raise InputError("seq_offsets", problem)
        check("seq_offsets", array, array.shape, "boundary", like, name)
        return array
    if offsets is not None:
        problem = f"is set, want None: {name} has the shape {shape}, which says where trajectories begin"
        raise InputError("seq_offsets", problem)
    rows, tokens = shape
    if rows == 0:
        raise InputError(name, f"has the shape {shape}, want at least 1 trajectory")
    return multiples(like, tokens, rows + 1)


_MASK = (BOOL, U8, I32, I64, F32)


def _tokens(
    argument: str, obj: ArrayLike, dtypes: Tuple[DType, ...], like: Optional[Array]
) -> Tuple[Array, npt.NDArray[Any]]:
    """Returns an array per token, and its elements one after another in the host's memory."""
    array = view(argument, obj, dtypes)
    if like is None:
        _check_layout(argument, array)
    else:
        check_shape(argument, array, like.shape, "token", like, "response_mask")
    return array, as_numpy(array).reshape(-1)


def _spans(
    response: npt.NDArray[np.bool_], seq_offsets: Optional[ArrayLike], mask: Array
) -> npt.NDArray[np.int32]:
    """Numbers the runs of response tokens, which end where a trajectory does; -1 outside."""
    offsets = as_numpy(offsets_of(seq_offsets, mask, "response_mask"))
    if offsets[0] != 0:
        raise InputError("seq_offsets", f"is {offsets[0]}, want 0", 0)
    decreases = np.flatnonzero(offsets[1:] < offsets[:-1])
    if len(decreases):
        s = int(decreases[0]) + 1
        raise InputError("seq_offsets", f"is {offsets[s]}, below the {offsets[s - 1]} before it", s)
    if offsets[-1] != len(response):
        problem = f"is {offsets[-1]}, want {len(response)}, the number of tokens"
        raise InputError("seq_offsets", problem, len(offsets) - 1)
    begins = response.copy()
    begins[1:] &= ~response[:-1]
    first = offsets[:-1][offsets[:-1] < offsets[1:]]  # of trajectories that have tokens
    begins[first] = response[first]
    starts = np.flatnonzero(begins)
    numbers = np.arange(-1, len(starts), dtype=np.int32)  # -1 is of what stands before the first run
    spans = np.repeat(numbers, np.diff(starts, prepend=0, append=len(response)))
    np.copyto(spans, np.int32(-1), where=~response)
    return spans


def spans_from_mask(response_mask: ArrayLike, seq_offsets: Optional[ArrayLike] = None) -> Any:
    """Returns the span_ids of a batch: the runs of response tokens of each trajectory,
    numbered from 0 in the order in which they appear, and -1 at other tokens.

    What a multi-turn agent says between two observations is such a run. response_mask is
    [T] with seq_offsets, or [B, T] without; a token is of a response where it is not 0.
    It may be of bool, uint8, int32, int64 or float32. The result is int32, of its shape.
    """
    mask, elements = _tokens("response_mask", response_mask, _MASK, None)
    spans = _spans(elements != 0, seq_offsets, mask)
    return made_like(mask, spans.reshape(mask.shape)).owner


def roles_from_mask(
    response_mask: ArrayLike,
    token_ids: Optional[ArrayLike] = None,
    *,
    open_tag: Sequence[int] = (),
    close_tag: Sequence[int] = (),
    seq_offsets: Optional[ArrayLike] = None,
) -> Any:
    """Returns the role of each token: ACTION strictly between the tags of an action,
    REASONING for the other response tokens, the tags among them, and MASKED elsewhere.

    open_tag and close_tag are the token ids of, for example, <answer> and </answer>.
    A tokenizer may write a tag in several ways, by what stands next to it: give the ids
    that it has in the rollouts. A tag lies within one response, a run of the mask. An
    action begins after an open tag, anew after each further one, and ends before the next
    close tag of the same response; without one it is no action. Without tags, no token is
    ACTION.

    response_mask is [T] with seq_offsets, or [B, T] without, as for spans_from_mask;
    token_ids, int32 or int64, has its shape. The result is uint8, of that shape.
    """
    mask, elements = _tokens("response_mask", response_mask, _MASK, None)
    spans = _spans(elements != 0, seq_offsets, mask)
    roles = (spans >= 0).astype(np.uint8)
    open_tag, close_tag = _tag("open_tag", open_tag), _tag("close_tag", close_tag)
    if open_tag or close_tag:
        if not (open_tag and close_tag):
            empty = "close_tag" if open_tag else "open_tag"
            raise InputError(empty, "is empty, want the token ids of both tags or of neither")
        if token_ids is None:
            raise InputError("token_ids", "is None, want the token ids in which the tags are looked for")
        ids = _tokens("token_ids", token_ids, (I32, I64), mask)[1]
        closes = set(_places(ids, spans, close_tag).tolist())
        opens = set(_places(ids, spans, open_tag).tolist())
        begin, after = -1, 0  # of the action, if an open tag came, and of what follows the last tag
        for at in sorted(opens | closes):
            if begin >= 0 and spans[at] != spans[begin - 1]:
                begin = -1
            if at < after:
                continue  # within the tag before it
            if begin >= 0 and at in closes:
                roles[begin:at] = ACTION
                begin, after = -1, at + len(close_tag)
            elif at in opens:
                begin = after = at + len(open_tag)
    return made_like(mask, roles.reshape(mask.shape)).owner


def _tag(argument: str, tag: Sequence[int]) -> List[int]:
    """Returns the token ids of a tag, which a tokenizer may have in an array."""
    try:
        return [operator.index(id) for id in tag]
    except TypeError:
        raise TypeError(f"{argument} is {described(tag)}, want a sequence of token ids") from None


def _places(ids: npt.NDArray[Any], spans: npt.NDArray[np.int32], tag: Sequence[int]) -> npt.NDArray[np.int64]:
    """Returns where the tag begins within a span."""
    n = len(ids) - len(tag) + 1
    if n <= 0:
        return np.empty(0, np.int64)
    found = (spans[:n] >= 0) & (spans[:n] == spans[len(tag) - 1 :])
    for i, id in enumerate(tag):
        found &= ids[i : n + i] == id
    return np.flatnonzero(found)
