"""The LM head, a tile of the vocabulary after another: what the operators linear_* compute.

The logits of the row h are

    z = (W h + b) scale / temperature, or with a softcap
    z = tanh((W h + b) scale / softcap) softcap / temperature

A tile is the logits of some rows for the ids of a slice of the vocabulary. The statistics of its rows are put together
over the tiles in float64, and the parts of the gradient of h in float32. The gradient of W is complete after one tile:
it is rounded once, and no two parts of it are added, unless rows come in several turns (see loss).

With a group of processes each has a part of W and b, in the order of ranks, and all rows. What belongs to rows is the
same in all of them, and has the bits of a group of one with the same tiles: parts of the gradient of h, which are
float32, are added in float64 there, where their order is not seen.
"""

from __future__ import annotations

import json
import math
import zlib
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from . import _generated, _rows, _schemes
from ._arrays import I32, I64, view
from ._errors import InputError, factor
from ._rows import TokenStats

IGNORED = -100  # the id that stands for no id, as in PyTorch's cross_entropy


def product_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The dtype of matrix products. CPUs without units for bfloat16 take four times as long for it as for float32."""
    if device.type == "cpu" and dtype in (torch.bfloat16, torch.float16):
        return dtype if dtype == torch.bfloat16 and torch.cpu._is_amx_tile_supported() else torch.float32
    return dtype


def group_of(name: str) -> Any:
    """The process group of that name; None for ""."""
    return getattr(dist.distributed_c10d, "_resolve_process_group")(name) if name else None


_Said = List[Tuple[str, str]]  # arguments, and what is said of each: verb and object of a sentence
_LONGEST = 8192  # bytes of all that a process says


def agreed(
    group: Any, device: torch.device, said: _Said, size: int = 0, error: Optional[Exception] = None
) -> List[int]:
    """The sizes that the processes of the group say, in the order of ranks. All say the same of their arguments, and
    none has an error; otherwise each raises one, before a process waits for what another does not send."""
    refused = "" if error is None else str(error)[:500] or type(error).__name__
    text = json.dumps((size, refused, said)).encode()
    sent = torch.frombuffer(bytearray(text.ljust(_LONGEST)), dtype=torch.uint8)[None].to(device)
    all_said = [json.loads(row.tobytes()) for row in _gathered(sent, group).cpu().numpy()]
    errors = [(rank, why) for rank, (_, why, _) in enumerate(all_said) if why]
    if error is not None and len(errors) == group.size():
        raise error
    for rank, why in errors:
        raise InputError("group", f"has process {rank}, which refuses its arguments: {why}") from error
    for rank, (*_, theirs) in enumerate(all_said):
        for (name, here), (_, there) in zip(theirs, all_said[0][2]):
            if here != there:
                raise InputError(name, f"{here} in process {rank} of the group and {there} in process 0")
    return [n for n, *_ in all_said]


def sizes(
    hidden: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    ids: Tensor,
    form: Sequence[Any],
    mask: Tuple[str, Tensor],
    wanted: Sequence[bool],
    said: _Said,
    check: Callable[[], Any] = lambda: None,
) -> List[int]:
    """How many ids of the vocabulary each process of the group has. mask is the argument that says which rows count,
    and which these are, said what the operator says besides, and check refuses what is wrong in this process alone."""
    chunk, numbers, dtype, name = form
    if not name:
        return [weight.shape[0]]
    error: Optional[Exception] = None
    try:
        check()
    except (TypeError, ValueError) as e:
        error = e
    operands = {"hidden": hidden, "weight": weight, "bias": bias}
    temperature, scale, *capped = numbers.tolist()
    of_rows, counted = mask
    said = [
        *said,
        ("ids", f"has the shape {list(ids.shape)}"),
        ("hidden", f"has rows of {hidden.shape[1]} elements, computed in {dtype}"),
        *((of, "is None" if t is None else f"has dtype {t.dtype}") for of, t in operands.items()),
        *((of, f"requires {'a' if want else 'no'} gradient") for of, want in zip(operands, wanted)),
        ("chunk", f"is {chunk or None}"),
        ("temperature", f"is {temperature}"),
        ("logit_scale", f"is {scale}"),
        ("softcap", f"is {capped[0] if capped else None}"),
        (of_rows, f"counts {int(counted.sum())} rows, with the checksum {checksum(counted)}"),
        ("ids", f"has the checksum {checksum(ids.long() * counted)}"),
    ]
    found = agreed(group_of(name), weight.device, said, weight.shape[0], error)
    if not any(found):
        raise InputError("weight", "has no rows in any process of the group")
    return found


def checksum(t: Tensor) -> str:
    return f"{zlib.crc32(t.contiguous().cpu().numpy().tobytes()):08x}"


class Head:
    """The last layer, and its tiles. sizes are those of the parts of the vocabulary."""

    def __init__(
        self,
        weight: Tensor,
        bias: Optional[Tensor],
        rows: int,
        sizes: List[int],
        chunk: int,
        numbers: Tensor,
        dtype: torch.dtype,
        group: str,
    ) -> None:
        self.weight, self.bias, self.sizes = weight, bias, sizes
        self.temperature, scale, *capped = numbers.tolist()
        self.softcap: Optional[float] = capped[0] if capped else None
        factors = [*zip(("temperature", "logit_scale", "softcap"), (self.temperature, scale, *capped))]
        for i, (name, x) in enumerate(factors):
            factor(name, x)
            for other, y in factors[:i]:
                factor(name, x / y, f" times the {other}", 1e-37, 1e37)
        self.slope = scale / self.temperature  # of z with respect to W h + b, at 0
        self.dtype, self.product = dtype, product_dtype(dtype, weight.device)
        # The dtype of logits: a softcap is not computed in 16 bits.
        self.logit = self.product if self.softcap is None else torch.promote_types(self.product, torch.float32)
        self.group = group_of(group)
        self.first = sum(sizes[: self.group.rank()]) if group else 0  # the first id of this process
        self.vocab, size = sum(sizes), weight.shape[0]
        self.chunk = chunk or self._chunk(rows)
        self.tiles = [slice(i, min(i + self.chunk, size)) for i in range(0, size, self.chunk)]

    def _chunk(self, rows: int) -> int:
        """The width of a tile that is wide enough for full speed, and takes 0.15 of the logits' memory at most."""
        per_id = 4 * rows * (1 if self.softcap is None else 3)
        if self.weight.dtype != self.product:
            per_id += 8 * self.weight.shape[1]  # of the weight as the product takes it, and of its gradient
        most = int(0.15 * rows * self.vocab * self.dtype.itemsize) // max(per_id, 1)
        return min(max(most // 64 * 64, 256), 4096)

    def starts(self, device: torch.device) -> Tensor:
        """The first ids of the tiles of all processes."""
        parts, first = [], 0
        for size in self.sizes:
            parts.append(torch.arange(first, first + size, self.chunk, device=device))
            first += size
        return torch.cat(parts)

    def gathered(self, parts: Tensor) -> Tensor:
        """The parts of the tiles of all processes."""
        if self.group is None:
            return parts
        counts = [-(-size // self.chunk) for size in self.sizes]
        padded = F.pad(parts, (0, 0, 0, 0, 0, max(counts) - len(parts)))[None]  # all send as many
        return torch.cat([part[:count] for part, count in zip(_gathered(padded, self.group), counts)])

    def cast(self, t: Tensor) -> Tensor:
        """t as the products take it, rounded to the dtype of the head."""
        return t.to(self.dtype).to(self.product)

    def buffer(self, rows: int) -> Tensor:
        """Memory for a tile, in rows that begin at multiples of 64 bytes."""
        width = min(self.chunk, self.weight.shape[0])
        return self.weight.new_empty(rows, -(-(width + 1) // 32) * 32, dtype=self.product)

    def logits(self, x: Tensor, tile: slice, buffer: Tensor) -> Tensor:
        """The tile for the rows x, in the buffer where it is not capped."""
        z = buffer[:, : tile.stop - tile.start]
        slope = self.slope if self.softcap is None else self.slope * self.temperature / self.softcap
        weight = self.cast(self.weight[tile]).t()
        if self.bias is None:
            torch.addmm(z, x, weight, beta=0, alpha=slope, out=z)
        else:
            torch.addmm(self.cast(self.bias[tile]), x, weight, beta=slope, alpha=slope, out=z)
        if self.softcap is None:
            return z
        capped = z.to(self.logit)  # the same memory where that is its dtype
        capped.tanh_().mul_(self.softcap / self.temperature)
        return capped


class Stats(NamedTuple):
    """One element per row. lse is the logsumexp of z, energy that of z at temperature 1, and squares the log of the sum of
    the squared probabilities."""

    logprobs: Tensor
    entropy: Optional[Tensor]
    lse: Tensor
    energy: Optional[Tensor]
    squares: Optional[Tensor] = None


class Gradients(NamedTuple):
    """What is wanted of the gradients. Those of weight and bias are summed over several turns of rows."""

    hidden: Optional[Tensor]
    weight: Optional[Tensor]
    bias: Optional[Tensor]


class Rows:
    """Some rows on their way through the head. held says that the logits are kept for the backward pass, and not
    computed again there."""

    def __init__(self, head: Head, hidden: Tensor, ids: Tensor, held: bool = False) -> None:
        self.head, self.held = head, held
        self.x = head.cast(hidden)
        self.ids = ids.long()
        self.wrong = (self.ids < 0) | (self.ids >= head.vocab)  # on a GPU; elsewhere it is an error before
        if held and head.logit == head.product:  # otherwise the logits have memory of their own
            self.buffers = [head.buffer(len(ids)) for _ in head.tiles]
        else:
            self.buffers = [head.buffer(len(ids))] * len(head.tiles)
        self.logits: List[Tensor] = []

    def local(self, tile: slice) -> Tensor:
        """Where in the tile the ids are: -1 for those of other tiles."""
        at: Tensor = self.ids - (self.head.first + tile.start)
        return at.masked_fill((at < 0) | (at >= tile.stop - tile.start), -1)

    def forward(self, entropy: bool, energy: bool, squares: bool = False) -> Stats:
        head, n = self.head, len(self.ids)
        dtype = torch.promote_types(self.x.dtype, torch.float32)
        parts = self.x.new_zeros(len(head.tiles), 5, n, dtype=dtype)
        for part, tile, buffer in zip(parts, head.tiles, self.buffers):
            z = head.logits(self.x, tile, buffer)
            ids = self.local(tile).clamp(min=0).masked_fill(self.wrong, -1)  # the kernel reports -1
            _tile_stats(z, ids, part[0], part[1] if entropy else None, part[2], part[3] if squares else None)
            if energy and head.temperature != 1:
                _tile_stats(z.to(dtype) * head.temperature, None, part[4], None, None, None)
            if self.held:
                self.logits.append(z)
        return self._combined(head.gathered(parts).double(), dtype, entropy, energy, squares)

    def _combined(self, parts: Tensor, dtype: torch.dtype, entropy: bool, energy: bool, squares: bool) -> Stats:
        """The statistics of whole rows, from those of tiles."""
        head = self.head
        lse = parts[:, 0]
        total = torch.logsumexp(lse, 0)
        nothing = total - total  # 0, or NaN where the logsumexp is not finite
        valid = self.ids.clamp(0, head.vocab - 1)
        of = (torch.searchsorted(head.starts(valid.device), valid, right=True) - 1)[None]
        of_lse = lse.gather(0, of)[0]
        others = torch.logsumexp(lse.scatter(0, of, -math.inf), 0)  # a small part of the whole keeps its digits
        logprobs = parts[:, 2].gather(0, of)[0] - F.softplus(others - of_lse)
        logprobs = logprobs.masked_fill(of_lse == -math.inf, -math.inf)
        h = None
        if entropy:
            share = (lse - total).exp()
            h = (share * (parts[:, 1] - (lse - total))).masked_fill(share == 0, 0).sum(0)
            h = (h + nothing).clamp(0, math.log(head.vocab)).to(dtype)
        q = None
        if squares:
            q = torch.logsumexp((parts[:, 3] + 2 * (lse - total)).masked_fill(lse == -math.inf, -math.inf), 0)
            q = (q + nothing).clamp(-math.log(head.vocab), 0).to(dtype)
        at_1 = None
        if energy:
            at_1 = (total if head.temperature == 1 else torch.logsumexp(parts[:, 4], 0)).to(dtype, copy=True)
        return Stats((logprobs + nothing).clamp(max=0).to(dtype), h, total.to(dtype), at_1, q)

    def backward(self, stats: Stats, grad: Tensor, grad_entropy: Optional[Tensor], to: Gradients, add: bool) -> None:
        """Writes the gradients; add adds those of weight and bias to what is there. Only where the product's dtype is that of
    the weight are they added."""
        head = self.head
        slope = head.slope if head.vocab > 1 else 0.0  # the only id has no gradient
        g, e = grad * slope, None if grad_entropy is None else grad_entropy * slope
        of_x = None
        if to.hidden is not None:
            sums = torch.float64 if head.group is not None else torch.promote_types(head.product, torch.float32)
            of_x = to.hidden.zero_() if to.hidden.dtype == sums else self.x.new_zeros(self.x.shape, dtype=sums)
        for i, (tile, buffer) in enumerate(zip(head.tiles, self.buffers)):
            d = self.logits[i] if self.held else head.logits(self.x, tile, buffer)
            bent = None
            if head.softcap is not None:
                bent = (d * (head.temperature / head.softcap)).square_().neg_().add_(1)
            _tile_gradient(d, self.local(tile), stats, g, e)
            if bent is not None:
                d.mul_(bent)
                d = d.to(head.product)
            if of_x is not None:
                _product(of_x, d, head.cast(head.weight[tile]), add=True)
            if to.weight is not None:
                _product(to.weight[tile], d.t(), self.x, add)
            if to.bias is not None:
                part = d.sum(0, dtype=torch.promote_types(d.dtype, torch.float32))
                to.bias[tile].copy_(to.bias[tile] + part if add else part)
        if of_x is not None:
            if head.group is not None:
                dist.all_reduce(of_x, group=head.group)
            if of_x is not to.hidden:
                to.hidden.copy_(of_x)  # type: ignore[union-attr]


def _tile_stats(
    z: Tensor,
    ids: Optional[Tensor],
    lse: Tensor,
    entropy: Optional[Tensor],
    logprobs: Optional[Tensor],
    squares: Optional[Tensor],
) -> None:
    if z.dtype != torch.float64:
        out = TokenStats(lse, entropy, logprobs, squares)
        _rows.token_stats(z, ids, out=out, workers=torch.get_num_threads())
        return
    lse.copy_(torch.logsumexp(z, -1))
    l = z - lse[:, None] + (lse - lse)[:, None]
    if entropy is not None:
        p = l.exp()
        entropy.copy_(-(p * l).masked_fill(p == 0, 0).sum(-1))
    if squares is not None:
        squares.copy_(torch.logsumexp(2 * l, -1))
    if logprobs is not None and ids is not None:
        logprobs.copy_(l.gather(-1, ids[:, None])[:, 0])


def _tile_gradient(z: Tensor, ids: Tensor, stats: Stats, g: Tensor, e: Optional[Tensor]) -> None:
    """Overwrites the tile with its gradient. ids are -1 where the chosen one is in another tile."""
    entropy = None if e is None else stats.entropy
    if z.dtype != torch.float64:
        _rows.row_gradient(
            z, ids, stats.logprobs, g, entropy=entropy, grad_entropy=e, lse=stats.lse, out=z,
            workers=torch.get_num_threads(),
        )  # fmt: skip
        return
    chosen = torch.arange(z.shape[1], device=z.device) == ids[:, None]
    l = torch.where(chosen, stats.logprobs[:, None], z - stats.lse[:, None])
    p = l.exp()
    d = g[:, None] * torch.where(chosen, -torch.expm1(l), -p)
    none = g == 0
    if e is not None and entropy is not None:
        d = d - e[:, None] * (p * (l + entropy[:, None])).masked_fill(p == 0, 0)
        none = none & (e == 0)
    nothing = stats.lse - stats.lse  # 0, or NaN where the logsumexp is not finite
    z.copy_((d + nothing[:, None]).masked_fill(none[:, None], 0))


def _product(out: Tensor, a: Tensor, b: Tensor, add: bool) -> None:
    """Writes a @ b, rounded once, or adds it."""
    if out.dtype == a.dtype:
        out.addmm_(a, b, beta=int(add))  # with 0 what is there is not read
    elif add:
        out.add_(a @ b)
    else:
        out.copy_(a @ b)


def _gathered(part: Tensor, group: Any) -> Tensor:
    """The parts of all processes, of one shape, in the order of ranks."""
    parts = [torch.empty_like(part) for _ in range(group.size())]
    dist.all_gather(parts, part, group=group)
    return torch.cat(parts)


_Where = Union[slice, Tensor]


def counted(ids: Tensor, mask: Optional[Tensor]) -> Tensor:
    """Which rows count."""
    of_ids = ids != IGNORED
    return of_ids if mask is None else of_ids & (mask != 0)


def _where(counted: Tensor) -> _Where:
    """Where they are: flat indices, or a slice of all."""
    where = counted.reshape(-1).nonzero()[:, 0]  # its length is the only thing that a GPU is waited for here
    return slice(0, counted.numel()) if len(where) == counted.numel() else where


def _check_ids(ids: Tensor, counted: Tensor, vocab: int) -> None:
    """Wants those that count in the vocabulary. On a GPU the kernels look."""
    if ids.is_cpu:
        _rows._check_ids(view("ids", ids.masked_fill(~counted, 0), (I32, I64)), vocab)


def _at(t: Optional[Tensor], where: _Where) -> Any:
    return None if t is None else t.reshape(-1)[where]


def stats(
    head: Head, hidden: Tensor, ids: Tensor, counted: Tensor, entropy: bool, energy: bool, squares: bool
) -> Stats:
    """The statistics of all rows, of the shape of ids; 0 for those that are left out."""
    _check_ids(ids, counted, head.vocab)
    where = _where(counted)
    found = Rows(head, hidden[where], _at(ids, where)).forward(entropy, energy, squares)
    return Stats(*(None if t is None else _spread(t, where, ids) for t in found))  # type: ignore[arg-type]


def _put(t: Tensor, where: _Where, values: Any) -> None:
    if isinstance(where, slice):
        t[where].copy_(values)
    else:
        t.index_copy_(0, where, values.to(t.dtype))


def _spread(t: Tensor, where: _Where, ids: Tensor) -> Tensor:
    if isinstance(where, Tensor):
        t = t.new_zeros(ids.numel()).index_copy_(0, where, t)
    return t.view(ids.shape)


def row_gradient(
    head: Head,
    hidden: Tensor,
    ids: Tensor,
    mask: Optional[Tensor],
    stats: Stats,
    grad: Optional[Tensor],
    grad_entropy: Optional[Tensor],
    to: Gradients,
) -> None:
    """Writes the gradients of all rows."""
    where = _where(counted(ids, mask))
    rows = Rows(head, hidden[where], _at(ids, where))
    of = Stats(*(_at(t, where) for t in stats))
    g = torch.zeros_like(of.logprobs) if grad is None else _at(grad, where).contiguous()
    e = None if grad_entropy is None else _at(grad_entropy, where).contiguous()
    _backward(rows, of, g, e, to, where, add=False)


def _backward(
    rows: Rows, of: Stats, g: Tensor, e: Optional[Tensor], to: Gradients, where: _Where, add: bool
) -> None:
    part = to.hidden
    if to.hidden is not None:
        part = to.hidden[where] if isinstance(where, slice) else to.hidden.new_empty(rows.x.shape)
    rows.backward(of, g, e, to._replace(hidden=part), add)
    if to.hidden is not None and isinstance(where, Tensor):
        if not add:
            to.hidden.zero_()  # the rows that are left out
        _put(to.hidden, where, part)


def loss(
    head: Head,
    hidden: Tensor,
    ids: Tensor,
    batch: Any,
    weights: Optional[Tensor],
    options: _generated.LossOptions,
    to: Gradients,
    scalars: Tensor,
    memory: int,
) -> Tensor:
    """The gradient of the loss with respect to the log-probabilities, its scalars, and the gradients of what made them.

    The gradient of a token's log-probability depends on no other. So the rows take turns: when the log-probabilities
    of some are there, the loss of the whole batch, with any others for the rest, gives their gradients. Their logits
    are not computed a second time for these: they are held, so many that they take at most so many bytes of memory, or
    with 0 a quarter of all. Two cases are other matters. Parts of the gradient of a weight in 16 bits that are rounded
    and added lose digits, and a sum in float32 would take more memory than the logits. And the policies with a factor
    of the sequence, or that choose tokens, need all log-probabilities. There all rows take one turn, and their logits
    are computed twice unless the memory holds all.
    """
    counted: Tensor = batch.role != 0
    _check_ids(ids, counted, head.vocab)
    where = _where(counted)
    n = where.stop if isinstance(where, slice) else len(where)
    backward = any(t is not None for t in to)
    turns = head.product == head.weight.dtype and head.product in (torch.float32, torch.float64)
    turns = turns and not _schemes.by_batch(options)
    rows_held = min(max(64, -(-n // 4)), 1024)
    if memory > 0:  # with the longest part of the vocabulary: all processes have the same turns
        rows_held = memory // (max(head.sizes) * head.logit.itemsize)
    turn = min(max(rows_held, 1), n) if turns else n
    held = backward and (turns or 0 < memory and rows_held >= n)
    logprobs = batch.old_logprobs.clone()
    batch.logprobs = logprobs
    grad = torch.empty_like(logprobs)
    for begin in range(0, max(n, 1), max(turn, 1)):
        end = min(begin + turn, n)
        part = slice(begin, end) if isinstance(where, slice) else where[begin:end]
        rows = Rows(head, hidden[part], _at(ids, part), held)
        of = rows.forward(False, False)
        _put(logprobs.view(-1), part, of.logprobs)
        if backward or end == n:
            _schemes.run_loss(batch, weights, options, out=grad, memory=scalars)
        if backward:
            _backward(rows, of, _at(grad, part).contiguous(), None, to, part, add=begin > 0)
    return grad


def empty_gradients(
    hidden: Tensor, weight: Tensor, bias: Optional[Tensor], wanted: Sequence[bool]
) -> Tuple[Tensor, Tensor, Tensor]:
    """Memory for the gradients of hidden, weight and bias; those that are not wanted are empty."""
    tensors = hidden, weight, weight.new_empty(0) if bias is None else bias
    a, b, c = (t.new_empty(t.shape if want else (0,)) for t, want in zip(tensors, wanted))
    return a, b, c
