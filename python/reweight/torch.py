"""Operations of PyTorch with gradients: log-probability and entropy of tokens, the LM head in chunks, the loss.

They are operators of torch.library, in eager and in compiled code alike, and read and write the tensors' own memory,
with as many threads as torch.get_num_threads() says. For PyTorch 2.6 and later. There are first derivatives only, and
only backwards.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Literal, Optional, Sequence, Tuple, overload

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 6):
    raise ImportError(f"reweight.torch needs PyTorch 2.6 or newer, and this is {torch.__version__}")

import reweight  # noqa: E402
from reweight import InputError, _head as _parts, _operators, _schemes  # noqa: E402
from reweight._arrays import check_plain, overlaps  # noqa: E402
from reweight._errors import choice, described, integer, number  # noqa: E402
from reweight._scalars import fields  # noqa: E402
from reweight._generated import (  # noqa: E402
    AGGREGATIONS,
    LossOptions as _LossOptions,
    LossResult as _LossStruct,
    ValueLossResult as _ValueLossStruct,
)

__all__ = ["linear_loss", "linear_token_stats", "loss", "token_stats", "value_loss"]

_OPERANDS = "hidden", "weight", "bias"
# What torch.autocast changes.
_CAST = (torch.float32, torch.bfloat16, torch.float16)


@overload
def token_stats(
    logits: Tensor, ids: Tensor, *, log_sum_sq_probs: Literal[False] = False, **options: Any
) -> Tuple[Tensor, Optional[Tensor]]: ...


@overload
def token_stats(
    logits: Tensor, ids: Tensor, *, log_sum_sq_probs: bool, **options: Any
) -> Tuple[Tensor, Optional[Tensor], Tensor]: ...


def token_stats(  # type: ignore[misc]  # the others leave the options' names to this one
    logits: Tensor,
    ids: Tensor,
    *,
    temperature: float = 1.0,
    entropy: bool = True,
    inplace: bool = False,
    log_sum_sq_probs: bool = False,
) -> Any:
    """Log-probability of ids and entropy, both under softmax(logits / temperature), in nats.

    logits is [N, V], [B, T, V] or [V], float32 or bfloat16; float16 too if no gradient is
    wanted. The V logits of a row lie next to each other, and the rows anywhere: logits[:, :-1]
    is not copied. ids, int32 or int64, and both results, float32, have one element per row, and
    the shape of logits without V. With entropy=False the second is None, and the pass does less
    work. log_sum_sq_probs=True adds a third result, without a gradient: the log of the sum of the
    squared probabilities.

    The gradient is a new tensor of the shape of logits. inplace=True writes it over the logits
    instead, and needs no memory for it: after the backward pass the logits are gone, for you and
    for every operation that goes backward later and needs them. PyTorch raises its error about a
    variable "modified by an inplace operation" where it sees that. It does not where the other
    operation saved the logits under hooks on saved tensors, reads them in a region of
    torch.utils.checkpoint with use_reentrant=False, or is part of a compiled graph: there the
    gradients are wrong without an error. Use it where nothing but token_stats reads the logits.
    Where this function can know that it would be wrong, inplace=True raises InputError: in code
    that is compiled, under hooks on saved tensors, and for logits that are a leaf, the result of a
    compiled graph, or a view of one.

    float64 logits are computed by PyTorch, in float64. They are for torch.autograd.gradcheck.

    Raises ValueError or TypeError naming the argument, before anything is computed.
    """
    _check_backward_only()
    _check_tensor("logits", logits)
    wants_gradient = torch.is_grad_enabled() and logits.requires_grad
    if not wants_gradient:
        direct = _operators.token_stats_directly(logits, ids, temperature, entropy, log_sum_sq_probs)
        if direct is not None:
            return direct if log_sum_sq_probs else direct[:2]
    _check_rows("logits", logits, ids, wants_gradient)
    if logits.dim() > 3:
        raise InputError("logits", f"has the shape {list(logits.shape)}, want [N, V], [B, T, V] or [V]")
    stats = _operators.token_stats
    if inplace and wants_gradient:
        _check_inplace(logits)
        stats = _operators.TokenStatsInPlace.apply
    numbers = _numbers({"temperature": temperature})
    logprobs, h, squares = stats(logits, ids.contiguous(), numbers, entropy, log_sum_sq_probs)
    results = logprobs, h if entropy else None
    return (*results, squares) if log_sum_sq_probs else results


def linear_token_stats(
    hidden: Tensor,
    weight: Tensor,
    ids: Tensor,
    *,
    mask: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    temperature: float = 1.0,
    softcap: Optional[float] = None,
    logit_scale: float = 1.0,
    entropy: bool = True,
    lse: bool = False,
    log_sum_sq_probs: bool = False,
    chunk: Optional[int] = None,
    group: Any = None,
) -> Any:
    """token_stats of the logits of an LM head, which never exist all at once:

        logits = (hidden @ weight.T + bias) * logit_scale, or with a softcap c, c tanh(that / c)

    hidden is [..., H], weight [V, H], bias [V] and ids [...]; the first three have one dtype.
    Where the id is -100 or mask, [...], is 0, no logits are computed, and all results are 0.
    Returns log-probabilities and entropies, or None with entropy=False. lse=True adds a
    result, the logsumexp of the logits at temperature 1: its negative is the energy of ActFocus.
    log_sum_sq_probs=True adds a last one, the log of the sum of the squared probabilities. Neither
    has a gradient. temperature, softcap and logit_scale are 1e-30 to 1e30.

    The logits for chunk ids of the vocabulary at a time are computed into one buffer, in the
    forward pass and again in the backward pass, where their gradient takes their place. By
    default it takes 0.15 of the logits' memory at most, and chunk is 256 to 4,096. Gradients flow to hidden, weight and bias,
    where they are wanted. No sum is rounded to 16 bits before it is complete. torch.autocast is
    respected: operands are rounded to its dtype, and the gradients are not. A weight or bias
    that FSDP2 has cut into shards, a DTensor, is gathered, and its gradient is averaged over the
    processes, as FSDP2 does.

    group: a process group of torch.distributed whose processes have, in the order of their ranks,
    the parts of weight and bias, as torch.chunk or any other cut makes them; some may be empty.
    hidden, ids, mask and all options are the same in all, and so are the results and the gradient of
    hidden. With a chunk that divides every part but the last, they have the bits of one process. The
    processes compare their arguments first, but not the floats in arrays: where something is wrong
    in one, or not the same in all, every process raises InputError. In code that is compiled, wrong
    types and shapes in one process are an error there, and the others wait for it.
    """
    _check_backward_only()

    def arguments() -> Tuple[Any, ...]:
        *head, wanted = _head(hidden, weight, bias, ids, temperature, softcap, logit_scale, chunk, group)
        if mask is not None:
            _check_tensor("mask", mask)
            if mask.shape != ids.shape:
                raise InputError("mask", f"has the shape {list(mask.shape)}, want {list(ids.shape)}, one element per row")
        return *head, mask, entropy, lse, log_sum_sq_probs, wanted

    results = _operators.linear_token_stats(*_of_all(group, (hidden, weight, ids), arguments))
    logprobs, h, _, at_1, squares, _ = results
    more = [at_1] * lse + [squares] * log_sum_sq_probs
    return logprobs, h if entropy else None, *more


# The options of reweight.loss, all but the array for its gradient, which is a result of the operator.
_LOSS_OPTIONS = {name: value for name, value in (reweight.loss.__kwdefaults__ or {}).items() if name != "out"}
_VALUE_LOSS_OPTIONS = {name: value for name, value in (reweight.value_loss.__kwdefaults__ or {}).items() if name != "out"}


def loss(
    logprobs: Tensor, batch: reweight.Batch, weights: Optional[Tensor] = None, **options: Any
) -> Tuple[Tensor, reweight.LossResult]:
    """reweight.loss of the batch with these logprobs, as a tensor without dimensions and with a gradient.

    logprobs is float32, of the shape of batch.role, and stands in for batch.logprobs. weights and
    options are those of reweight.loss but out. The gradient with respect to logprobs is computed
    here, and the backward pass multiplies it by the one that comes in; no other argument gets
    one. The second result is that of reweight.loss. Its scalars are tensors without dimensions,
    float64, and int64 for tokens: loss.item() is a number, which has to wait for a GPU. Its grad
    is what the backward pass uses, and not yours to change.
    """
    _check_backward_only()
    _check_tensor("logprobs", logprobs)
    value, grad, scalars = _operators.loss(logprobs, *_loss_arguments(batch, weights, options, logprobs.shape))
    return value, _loss_result(grad, scalars)


def value_loss(new_values: Tensor, batch: reweight.Batch, **options: Any) -> Tuple[Tensor, reweight.ValueLossResult]:
    """reweight.value_loss of the batch with these new_values, float32 and of the shape of batch.role, as a tensor
    without dimensions and with a gradient, as loss has it. The second result is that of reweight.value_loss."""
    _check_backward_only()
    _check_tensor("new_values", new_values)
    for name in options:
        if name not in _VALUE_LOSS_OPTIONS:
            raise TypeError(f"value_loss has no option {name}, want one of {', '.join(_VALUE_LOSS_OPTIONS)}")
    arrays = [_tensor(name, getattr(batch, name)) for name in ("role", "seq_offsets", "values", "returns")]
    for name, array in zip(("role", "seq_offsets", "values", "returns"), arrays):
        if array is None and name != "seq_offsets":
            raise InputError(name, f"is None, want the shape {list(new_values.shape)}, one element per token")
    clip, norm_length, aggregation = {**_VALUE_LOSS_OPTIONS, **options}.values()
    aggregation = choice("aggregation", aggregation, AGGREGATIONS)
    more = _numbers({"clip": clip}), integer("norm_length", norm_length, 64), aggregation
    value, grad, scalars = _operators.value_loss(new_values, *arrays, *more)
    others = fields(_ValueLossStruct, scalars)
    return value, reweight.ValueLossResult(others[0], grad, *others[1:])


def linear_loss(
    hidden: Tensor,
    weight: Tensor,
    ids: Tensor,
    batch: reweight.Batch,
    weights: Optional[Tensor] = None,
    *,
    bias: Optional[Tensor] = None,
    temperature: float = 1.0,
    softcap: Optional[float] = None,
    logit_scale: float = 1.0,
    chunk: Optional[int] = None,
    memory: Optional[int] = None,
    group: Any = None,
    **options: Any,
) -> Tuple[Tensor, reweight.LossResult]:
    """loss of the log-probabilities that linear_token_stats has for these ids, in one pass: the gradients are computed
    with the loss, and the backward pass multiplies them by the one that comes in, once.

    ids and batch.role have one shape. Rows whose role is MASKED are left out before their logits,
    whatever their ids are. With a float32 weight the logits are computed once, a quarter of the
    rows at a time (at least 64 and at most 1,024), and that is what they take of memory. With one
    in 16 bits they are computed twice, as linear_token_stats does, so that its gradient is rounded
    once; and so they are of gspo, grpo_s, vespo and gmpo, which need all log-probabilities of a
    sequence first, and of clip_cov and kl_cov, which need those of the batch.

    memory is how many bytes of logits may be held at a time. The more rows, the faster; where all
    fit (4 bytes for each of N V logits, on a CPU of 16-bit weights too), they are computed once,
    whatever the weight and the policy. The other arguments are those of linear_token_stats and of loss.
    """
    _check_backward_only()

    def arguments() -> Tuple[Any, ...]:
        *head, wanted = _head(hidden, weight, bias, ids, temperature, softcap, logit_scale, chunk, group)
        of_loss = _loss_arguments(batch, weights, options, ids.shape)
        if of_loss[0].shape != ids.shape:
            raise InputError("role", f"has the shape {list(of_loss[0].shape)}, want {list(ids.shape)} like ids")
        if memory is not None and integer("memory", memory, 64) < 1:
            raise InputError("memory", f"is {memory}, want at least 1")
        return *head, *of_loss, memory or 0, wanted

    value, grad, scalars, *_ = _operators.linear_loss(*_of_all(group, (hidden, weight, ids), arguments))
    return value, _loss_result(grad, scalars)


def _loss_arguments(batch: reweight.Batch, weights: Any, options: Dict[str, Any], shape: Sequence[int]) -> List[Any]:
    """The arguments of the operator loss but the first."""
    if not isinstance(batch, reweight.Batch):
        raise TypeError(f"batch is {described(batch)}, want a Batch")
    for name in options:
        if name not in _LOSS_OPTIONS:
            of_policy = ": a policy has the constants of its loss, such as reweight.PPO(clip_low=0.2)"
            raise TypeError(f"loss has no option {name}, want one of {', '.join(_LOSS_OPTIONS)}{of_policy}")
    arrays = []
    for name in ("role", "seq_offsets", "span_ids", "old_logprobs", "advantages", "ref_logprobs"):
        array = getattr(batch, name)
        if array is None and name in ("role", "old_logprobs", "advantages"):
            raise InputError(name, f"is None, want the shape {list(shape)}, one element per token")
        arrays.append(_tensor(name, array))
    policy = options.get("policy")
    numbers = {name: x for name, x in options.items() if name in _operators.LOSS_NUMBERS}
    if policy is not None and not isinstance(policy, str):  # a name has the defaults
        policy = _schemes.policy_of(policy)
        numbers.update({name: getattr(policy, name) for name in _operators.LOSS_NUMBERS if hasattr(policy, name)})
    values = _schemes.loss_values({**_LOSS_OPTIONS, **options}, numbers)
    integers = [x for x, (name, *_) in zip(values, _LossOptions._fields_) if name not in _operators.LOSS_NUMBERS]
    return [*arrays, _tensor("weights", weights), list(numbers), _numbers(numbers), *integers]


def _loss_result(grad: Tensor, scalars: Tensor) -> reweight.LossResult:
    others = fields(_LossStruct, scalars)
    return reweight.LossResult(others[0], grad, *others[1:])


def _of_all(group: Any, tensors: Tuple[Any, ...], arguments: Callable[[], Tuple[Any, ...]]) -> Tuple[Any, ...]:
    """The arguments. Where this process refuses its own, the others of the group, which would wait for it, raise an
    error as well. In code that is compiled they are not told."""
    if group is not None and not isinstance(group, torch.distributed.ProcessGroup):
        raise TypeError(f"group is {described(group)}, want a process group of torch.distributed that has this process")
    if group is None or torch.compiler.is_compiling():
        return arguments()
    try:
        return arguments()
    except (TypeError, ValueError) as e:
        device = next((t.device for t in tensors if isinstance(t, Tensor)), torch.device("cpu"))
        _parts.agreed(group, device, [], error=e)
        raise


def _head(
    hidden: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    ids: Tensor,
    temperature: float,
    softcap: Optional[float],
    logit_scale: float,
    chunk: Optional[int],
    group: Any,
) -> List[Any]:
    """The first arguments of the operators of the head, and the last: which gradients are wanted."""
    weight, bias = _gathered(weight), _gathered(bias)
    operands = {"hidden": hidden, "weight": weight}
    if bias is not None:
        operands["bias"] = bias
    for name, t in operands.items():
        _check_tensor(name, t)
    dtypes = {name: _product_dtype(t) for name, t in operands.items()}
    graded = torch.is_grad_enabled() and any(t.requires_grad for t in operands.values())
    _check_rows("hidden", hidden, ids, graded)
    width = hidden.shape[-1]
    if weight.dim() != 2 or weight.shape[1] != width or (weight.shape[0] == 0 and group is None):
        raise InputError("weight", f"has the shape {list(weight.shape)}, want [V, {width}], V at least 1")
    vocab = weight.shape[0]
    if bias is not None and bias.shape != weight.shape[:1]:
        raise InputError("bias", f"has the shape {list(bias.shape)}, want [{vocab}]")
    for name, dtype in dtypes.items():
        if dtype != dtypes["hidden"]:
            raise TypeError(f"{name} has dtype {_plain(dtype)}, want {_plain(dtypes['hidden'])} like hidden")
    if chunk is not None and integer("chunk", chunk, 64) < 1:
        raise InputError("chunk", f"is {chunk}, want at least 1")
    numbers = {"temperature": temperature, "logit_scale": logit_scale}
    if softcap is not None:
        numbers["softcap"] = softcap
    wanted = [torch.is_grad_enabled() and name in operands and operands[name].requires_grad for name in _OPERANDS]
    form = chunk or 0, _numbers(numbers), dtypes["hidden"], "" if group is None else group.group_name
    return [hidden.reshape(-1, width), weight, bias, ids, *form, wanted]


def _gathered(t: Any) -> Any:
    """The whole of a weight that FSDP2 has cut into shards. It averages gradients over processes, and full_tensor would
    take each process's for that of all."""
    if not _is_dtensor(t):
        return t
    from torch.distributed.tensor import Partial

    return t.full_tensor(grad_placements=[Partial("avg")] * t.device_mesh.ndim)


def _is_dtensor(t: Any) -> bool:
    return type(t) is not Tensor and type(t).__name__ == "DTensor"


def _tensor(name: str, array: Any) -> Optional[Tensor]:
    """The array as a tensor in the same memory."""
    if array is None:
        return None
    if isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray):
        if not torch.compiler.is_compiling() and not array.flags.writeable:
            array = array.copy()  # PyTorch has no tensors that are read-only
        try:
            return torch.from_numpy(array)
        except (TypeError, ValueError) as e:  # of its dtype and its strides
            raise TypeError(f"{name} is an array that PyTorch does not take: {e}") from None
    if not isinstance(array, Tensor):
        raise TypeError(f"{name} is {described(array)}, want a NumPy array or a torch.Tensor")
    _check_tensor(name, array)
    return array


def _check_tensor(name: str, t: Tensor) -> None:
    """Wants a tensor that the operators take."""
    if not isinstance(t, Tensor):
        raise TypeError(f"{name} is {described(t)}, want a torch.Tensor")
    if _is_dtensor(t):
        raise InputError(name, f"is a DTensor of {list(getattr(t, 'placements'))}, want {_plain_tensor(name, t)}")
    if t.layout is not torch.strided or t.is_nested or t.is_quantized:
        check_plain(name, t)


def _check_backward_only() -> None:
    """Has forward mode fail instead of giving zeros. Where its levels are nested, a tensor does not tell which it is in:
    no call is taken inside of any."""
    if forward_ad._current_level >= 0:
        raise RuntimeError("reweight.torch has no derivatives of forward mode, and this is inside of torch.func.jvp")


def _plain_tensor(name: str, t: Any) -> str:
    """What to make of a DTensor."""
    last = t.dim() - 1 if name in ("logits", "hidden") else t.dim()  # the dimension that has to be whole
    if all(p.is_replicate() or (p.is_shard() and p.dim % max(t.dim(), 1) != last) for p in t.placements):
        return "a plain tensor: its to_local()"
    return "a plain tensor of whole rows: its full_tensor()"


def _check_rows(name: str, x: Tensor, ids: Tensor, wants_gradient: bool) -> None:
    """What both functions want of their rows, beside tensors. The library checks more."""
    _check_tensor("ids", ids)
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        raise TypeError(f"{name} has dtype {_plain(x.dtype)}, want float32, bfloat16, float16 or float64")
    if x.dtype == torch.float16 and wants_gradient:
        raise TypeError(f"{name} has dtype float16, which has no gradient here, want float32 or bfloat16")
    if ids.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"ids has dtype {_plain(ids.dtype)}, want int32 or int64")
    if x.dim() == 0 or x.shape[-1] == 0:
        raise InputError(name, f"has the shape {list(x.shape)}, want rows of at least 1 element")
    if ids.shape != x.shape[:-1]:
        raise InputError("ids", f"has the shape {list(ids.shape)}, want {list(x.shape[:-1])}, one element per row")
    if ids.device != x.device:
        raise InputError("ids", f"is on {ids.device}, want {x.device} like {name}")


def _check_inplace(logits: Tensor) -> None:
    """Refuses to overwrite logits where that is known to be wrong."""

    def refused(problem: str) -> InputError:
        return InputError("inplace", f"is True, want False {problem}")

    if torch.compiler.is_compiling():
        raise refused("in code that is compiled: the compiler does not see the write")
    base = logits if logits._base is None else logits._base
    if base.grad_fn is None:
        raise refused("for logits that are a leaf tensor, or a view of one: they are not the result of an operation")
    if type(logits) is not Tensor:
        raise refused(f"for logits that are {described(logits)}, a subclass of torch.Tensor")
    nodes = [base.grad_fn]
    for _ in range(base._version + 1):  # what has made the logits, and what has changed them in place since
        if any("CompiledFunction" in node.name() for node in nodes):
            raise refused("for logits from a compiled graph: its backward pass may read them, unseen by PyTorch")
        nodes = [before for node in nodes for before, _ in node.next_functions if before is not None]
    if overlaps(logits.shape, logits.stride()):
        raise refused(f"for logits whose rows share memory: their strides are {list(logits.stride())} elements")
    try:
        with torch.autograd.graph.disable_saved_tensors_hooks(""):
            pass
    except RuntimeError:
        problem = "under hooks on saved tensors, as torch.utils.checkpoint and save_on_cpu have them: "
        raise refused(problem + "there PyTorch does not notice the write") from None


def _numbers(values: Dict[str, Any]) -> Tensor:
    """The values as the operators take them. A compiler would make a number a constant of its graph, and another graph
    for each; one that is added to a tensor it does not."""
    numbers: List[float] = []
    compiling = torch.compiler.is_compiling()
    for name, x in values.items():
        if isinstance(x, Tensor) and x.requires_grad:
            raise TypeError(f"{name} is a torch.Tensor that requires grad, want a number: it gets no gradient")
        numbers.append(x if compiling and isinstance(x, (int, float)) else number(name, x))
    if numbers and compiling:
        zero = torch.zeros((), dtype=torch.float64, device="cpu")
        return torch.stack([zero + x for x in numbers])
    if len(numbers) == 1:  # in half the time
        return torch.full((1,), numbers[0], dtype=torch.float64, device="cpu")
    return torch.tensor(numbers, dtype=torch.float64, device="cpu")


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).replace("torch.", "")


def _product_dtype(t: Tensor) -> torch.dtype:
    """The dtype that a matrix product would take t in: torch.autocast may change it."""
    device = t.device.type
    if t.dtype not in _CAST or device == "meta" or not torch.is_autocast_enabled(device):
        return t.dtype
    return torch.get_autocast_dtype(device)
