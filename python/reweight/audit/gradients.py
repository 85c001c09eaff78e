"""Inner products of the gradients of answers by parts of their tokens, layer by layer, with PyTorch: what an audit needs.

The gradient of the weight of a linear layer is a sum over positions of outer products g x: x is the layer's input, g the
gradient by its output. The gradient of one part of one answer is the sum over the positions of that answer, with the g
that come from the part's tokens. So one forward pass over all answers gives x, and a backward pass for each part g, of
all answers at once; no gradient of a weight is computed by PyTorch.

Blocks of the model are passed through one after another, from the last one to the first: each is computed again from its
input, which is all that is kept of the forward pass.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from .._errors import InputError
from ..torch import linear_token_stats

SLICE = 1 << 24
"""Numbers of the gradients that are held at once, at most: all answers' and parts' for a slice of a weight."""


class Answers(NamedTuple):
    """What the model says of the answers of a prompt: [n, T], in nats, and 0 where a token has no label."""

    logprobs: Tensor
    entropy: Tensor
    energy: Tensor


Directions = Callable[[Answers], Sequence[Any]]
"""Of what the model says, weights of the tokens: [n, T] each."""


class _Stop(Exception):
    pass


class Gradients:
    """The gradients of a causal language model of transformers, or of one that is built like these: blocks in an
    nn.ModuleList, and a head, get_output_embeddings(), whose input is the hidden state after all of them.

    layers: numbers of blocks, negative ones from the end; by default all.
    temperature: of the sampling.

    The weights and biases of linear layers (and of transformers' Conv1D) in the blocks count, of those that require a
    gradient, or of all if none does: with LoRA the adapters. Norms, embeddings, the head, fused experts and routers do not;
    counted and parameters say how many numbers that is.
    """

    def __init__(self, model: Any, layers: Optional[Sequence[int]] = None, *, temperature: float = 1.0) -> None:
        self.model, self.temperature = model, temperature
        lists: List[nn.Module] = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) and any(_linears(m[-1]))]
        if not lists:
            raise InputError("model", f"is a {type(model).__name__}, which has no nn.ModuleList of blocks with linear layers")
        self.blocks = list(max(lists, key=_size).children())
        self.head: Any = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
        if not isinstance(self.head, nn.Linear):
            raise InputError("model", f"is a {type(model).__name__} whose get_output_embeddings() is no linear layer, want its head")
        if any(p.is_meta for p in model.parameters()):
            raise InputError("model", "has parameters that are not in memory, want all on devices: without offloading")
        n = len(self.blocks)
        numbers = range(n) if layers is None else layers
        for i in numbers:
            if not -n <= i < n:
                raise InputError("layers", f"has {i}, want {-n} to {n - 1}, the blocks of the model")
        self.layers = sorted({i % n for i in numbers})
        if not self.layers:
            raise InputError("layers", "is empty, want numbers of blocks")
        trained = any(p.requires_grad for p in model.parameters())
        self._counts = {
            id(p): p.requires_grad or not trained for block in self.blocks for _, m in _linears(block) for p in m.parameters(False)
        }
        self.parameters = sum(p.numel() for p in model.parameters() if p.requires_grad or not trained)
        self.counted = sum(
            p.numel() for i in self.layers for _, m in _linears(self.blocks[i]) for p in m.parameters(False) if self._counts[id(p)]
        )
        if not self.counted:
            raise InputError("model", "trains no linear layer of these blocks, want at least one")
        self._checked = False
        config: Any = getattr(model, "config", None)
        config = config.get_text_config() if hasattr(config, "get_text_config") else config
        self.softcap = getattr(config, "final_logit_softcapping", None)
        scale = getattr(config, "logit_scale", None)
        self.scale = float(scale if scale is not None else 1 / (getattr(config, "logits_scaling", None) or 1))

    def grams(self, ids: Sequence[Any], labels: Sequence[Any], parts: int, directions: Optional[Directions] = None) -> Tensor:
        """The inner products of the answers to a prompt: [L, K, K, n, n], in float64.

        ids: of each answer all tokens, the prompt's first. labels: of each of these tokens the number of its part, or -1
        for one that the policy has not drawn. directions: what gives weights of tokens that stand behind the parts.
        """
        device = self.head.weight.device
        rows, lengths = [np.asarray(row) for row in ids], [len(row) for row in ids]
        if any(row.ndim != 1 or row.dtype.kind not in "iu" for row in rows):
            raise InputError("ids", "has other things than lists of integers, want one list for each answer")
        if len(labels) != len(rows) or any(np.asarray(of).shape != row.shape for of, row in zip(labels, rows)):
            raise InputError("labels", "has another shape than ids, want one label for each token")
        n, longest = len(rows), max(lengths, default=0)
        if not longest:
            raise InputError("ids", "has no tokens")
        padded = np.zeros((n, longest), np.int64)
        mark = np.full((n, longest), -1, np.int64)
        for i, row in enumerate(rows):
            padded[i, : len(row)], mark[i, : len(row)] = row, labels[i]
        if not (-1 <= mark.min() and mark.max() < parts):
            raise InputError("labels", f"has {mark.min()} to {mark.max()}, want -1 to {parts - 1}")
        if (mark[:, 0] >= 0).any():
            raise InputError("labels", "counts the first token of an answer, of which the model says nothing")
        vocabulary = self.head.weight.shape[0]
        if padded.min() < 0 or padded.max() >= vocabulary:
            raise InputError("ids", f"has {padded.min()} to {padded.max()}, want 0 to {vocabulary - 1}")
        tokens = torch.from_numpy(padded).to(device)
        there = torch.from_numpy((np.arange(longest) < np.array(lengths)[:, None]).astype(np.int64)).to(device)
        with self._frozen(), torch.enable_grad():
            if not self._checked:
                self._check_head(tokens[:1, :2])
            return self._grams(tokens, there, torch.from_numpy(mark).to(device), parts, directions)

    def _grams(self, tokens: Tensor, there: Tensor, mark: Tensor, parts: int, directions: Optional[Directions]) -> Tensor:
        inputs, before, after = self._forward(tokens, there)
        weight, bias = self.head.weight.detach(), self.head.bias
        if weight.dtype == torch.float16:  # which linear_token_stats does not take
            weight = weight.float()
        # Log-probabilities come from the position before the token.
        drawn = mark >= 0
        where = drawn[:, 1:].nonzero(as_tuple=True)
        hidden = after.detach()[:, :-1].to(weight)[where].requires_grad_()
        logprobs, entropy, lse = linear_token_stats(
            hidden,
            weight,
            tokens[:, 1:][where],
            bias=None if bias is None else bias.detach().to(weight),
            temperature=self.temperature,
            softcap=self.softcap,
            logit_scale=self.scale,
            entropy=True,
            lse=True,
        )
        (slope,) = torch.autograd.grad(logprobs.sum(), hidden)
        weights = [(mark == part).float() for part in range(parts)]
        more = []
        if directions is not None:
            said = Answers(*(_spread(x.detach().float(), where, tokens.shape) for x in (logprobs, entropy, -lse)))
            more = [torch.as_tensor(w, dtype=torch.float32, device=mark.device) for w in directions(said)]
            for w in more:
                if w.shape != mark.shape:
                    raise InputError("directions", f"gives the shape {list(w.shape)}, want {list(mark.shape)}")
            more = [torch.where(drawn, w, 0) for w in more]
        weights, factors = _passes(weights, more)
        gradients: List[Tensor] = []
        for w in weights:
            g = torch.zeros_like(after)
            g[:, :-1][where] = (slope * w[:, 1:][where][:, None]).to(g)
            gradients.append(*torch.autograd.grad(after, before, g, retain_graph=True))
        K, n = len(weights), len(tokens)
        grams = torch.zeros(len(self.layers), K, K, n, n, dtype=torch.float64)
        for i in range(len(self.blocks) - 1, self.layers[0] - 1, -1):
            gram = grams[self.layers.index(i)] if i in self.layers else None
            gradients = self._through(self.blocks[i], inputs.pop(), gradients, gram)
        return torch.einsum("kai,labij,mbj->lkmij", factors, grams, factors)

    def _forward(self, tokens: Tensor, there: Tensor) -> Tuple[List[Any], Tensor, Tensor]:
        """Runs the model, without its head: the arguments of each block, what the last one has computed, and what comes
        into the head."""
        inputs: List[Any] = []
        outputs: List[Tensor] = []
        ends: List[Tensor] = []

        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            at = len(inputs)
            given = _input(args, kwargs)
            if at == len(self.blocks) or module is not self.blocks[at] or given is None or (at and given is not outputs[-1]):
                raise InputError("model", "does not give each of its blocks what the one before has computed")
            if kwargs.get("shared_kv_states"):
                raise InputError("model", "has blocks that share keys and values, whose gradients the audit does not follow")
            inputs.append((args, kwargs))

        def leave(module: nn.Module, args: Any, output: Any) -> Any:
            outputs.append(_hidden(output))
            if len(outputs) < len(self.blocks):
                return None
            torch.set_grad_enabled(True)
            ends.append(outputs[-1].detach().requires_grad_())
            return _with_hidden(output, ends[0])

        def stop(module: nn.Module, args: Any) -> None:
            ends.append(args[0])
            raise _Stop

        hooks = [block.register_forward_pre_hook(enter, with_kwargs=True) for block in self.blocks]
        hooks += [block.register_forward_hook(leave) for block in self.blocks]
        hooks.append(self.head.register_forward_pre_hook(stop))
        try:
            with torch.no_grad():  # until the last block is left
                self.model(input_ids=tokens, attention_mask=there, use_cache=False)
        except _Stop:
            pass
        finally:
            for hook in hooks:
                hook.remove()
        if len(inputs) != len(self.blocks) or len(ends) != 2 or ends[1].shape[:2] != tokens.shape:
            raise InputError("model", "does not pass its blocks one after another, and then its head, with all tokens")
        return inputs, ends[0], ends[1]

    def _check_head(self, tokens: Tensor) -> None:
        """Wants logits that are computed as this class and linear_token_stats do: for some models there is more to it."""
        heads: List[Tensor] = []
        hook = self.head.register_forward_hook(lambda module, args, output: heads.append(output))
        try:
            with torch.no_grad():
                logits = self.model(input_ids=tokens, attention_mask=torch.ones_like(tokens), use_cache=False).logits.float()
        finally:
            hook.remove()
        if len(heads) == 1 and heads[0].shape == logits.shape:
            mine = heads[0].to(logits) * self.scale
            mine = mine if self.softcap is None else self.softcap * torch.tanh(mine / self.softcap)
            self._checked = bool(torch.allclose(mine, logits, rtol=0.02, atol=0.02 * float(logits.abs().max())))
        if not self._checked:
            raise InputError("model", "computes its logits in another way than by its head, logit scale and softcap")

    def _through(self, block: nn.Module, given: Any, gradients: List[Tensor], gram: Optional[Tensor]) -> List[Tensor]:
        """The gradients by the block's input, and the inner products of those by its weights, which are added to gram."""
        args, kwargs = given
        hidden = _input(args, kwargs).detach().requires_grad_()
        calls: Dict[nn.Module, List[Tuple[Tensor, Any]]] = {}

        def keep(module: nn.Module, args: Any, output: Tensor) -> None:
            if not torch.is_grad_enabled():
                return
            if not output.requires_grad:  # what it is given does not depend on the block's input
                output.requires_grad_()
            # The edge stays that of the layer's own output, should the block write over it.
            calls.setdefault(module, []).append((args[0].detach(), get_gradient_edge(output)))

        counted = [m for _, m in _linears(block) if any(self._counts[id(p)] for p in m.parameters(False))]
        hooks = [m.register_forward_hook(keep) for m in counted] if gram is not None else []
        try:
            with torch.enable_grad():
                if args:
                    output = _hidden(block(hidden, *args[1:], **kwargs))
                else:
                    output = _hidden(block(**{**kwargs, "hidden_states": hidden}))
        finally:
            for hook in hooks:
                hook.remove()
        outputs = [y for pairs in calls.values() for _, y in pairs]
        found = [
            torch.autograd.grad(output, [hidden, *outputs], g, retain_graph=k + 1 < len(gradients), allow_unused=True)
            for k, g in enumerate(gradients)
        ]
        at = 1
        for module, pairs in calls.items():
            assert gram is not None  # nothing is called back without it
            weight, bias = module.weight, getattr(module, "bias", None)
            inner, outer = pairs[0][0].shape[-1], _width(module)
            n, T = gram.shape[-1], hidden.shape[-2]
            if any(x.shape[0] != n and x.shape[:-1] != (n * T,) for x, _ in pairs):
                raise InputError("model", f"has a {type(module).__name__} in its blocks whose rows are not those of the answers")
            of_calls = range(at, at + len(pairs))
            at += len(pairs)
            ys = [[x.new_zeros(*x.shape[:-1], outer) if of[j] is None else of[j] for (x, _), j in zip(pairs, of_calls)] for of in found]
            g = torch.stack([torch.cat([y.reshape(n, -1, outer) for y in of], 1) for of in ys])
            x = torch.cat([x.reshape(n, -1, inner) for x, _ in pairs], 1)
            if self._counts[id(weight)]:
                gram += products(x.float(), g.float()).cpu()
            if bias is not None and self._counts[id(bias)]:
                sums = g.double().sum(2)
                gram += torch.einsum("aio,bjo->abij", sums, sums).cpu()
        return [torch.zeros_like(hidden) if of[0] is None else of[0] for of in found]

    @contextlib.contextmanager
    def _frozen(self) -> Iterator[None]:
        """No parameter requires a gradient, and no dropout is at work."""
        parameters = [(p, p.requires_grad) for p in self.model.parameters()]
        training = [m for m in self.model.modules() if m.training]
        try:
            for p, _ in parameters:
                p.requires_grad_(False)
            self.model.eval()
            yield
        finally:
            for p, before in parameters:
                p.requires_grad_(before)
            for m in training:
                m.training = True


def _passes(parts: List[Tensor], directions: List[Tensor]) -> Tuple[List[Tensor], Tensor]:
    """The weights that need a backward pass, and factors [K, passes, n] with which the gradients of each part and each
    direction are sums of theirs. A direction that weights all tokens of a part of an answer alike needs none."""
    n = len(parts[0])
    rows, passes = [torch.eye(len(parts), dtype=torch.float64)[:, :, None].repeat(1, 1, n)], list(parts)
    for w in directions:
        most = torch.stack([w.masked_fill(p == 0, -torch.inf).amax(1) for p in parts])
        least = torch.stack([w.masked_fill(p == 0, torch.inf).amin(1) for p in parts])
        if (most <= least).all():  # alike, or no tokens
            rows.append(most.masked_fill(most.isinf(), 0).double().cpu()[None])
        else:
            rows.append(torch.zeros(1, len(passes) + 1, n, dtype=torch.float64))
            rows[-1][0, -1] = 1
            passes.append(w)
    factors = torch.cat([torch.nn.functional.pad(row, (0, 0, 0, len(passes) - row.shape[1])) for row in rows])
    return passes, factors


def products(x: Tensor, g: Tensor) -> Tensor:
    """[K, K, n, n] in float64: inner products of the gradients of a weight, sums of outer products of x [n, T, in] and g
    [K, n, T, out] over T. The gradients are made for a slice of the weight after another, or not at all where products
    of all pairs of tokens are fewer."""
    K, n, T, out = g.shape
    width = x.shape[2]
    pairs = (n * T) ** 2 * (width + K * (K + 1) // 2 * out)
    if pairs < K * n * width * out * (T + K * n):
        return _of_pairs(x, g)
    return _of_slices(x, g)


def _of_slices(x: Tensor, g: Tensor) -> Tensor:
    """The same from the gradients, for a slice of the weight after another."""
    K, n, T, out = g.shape
    width = x.shape[2]
    if out < width:  # the slices are of the longer side
        inner, outer = g.transpose(2, 3), x.expand(K, *x.shape)
    else:
        inner, outer = x.transpose(1, 2).expand(K, n, width, T), g
    step = max(1, SLICE // (K * n * inner.shape[2]))
    total = torch.zeros(K * n, K * n, dtype=torch.float64, device=x.device)
    for at in range(0, outer.shape[3], step):
        rows = (inner @ outer[..., at : at + step]).reshape(K * n, -1)
        total += rows @ rows.T
    return total.reshape(K, n, K, n).transpose(1, 2)


def _of_pairs(x: Tensor, g: Tensor) -> Tensor:
    """The same from the products of all pairs of tokens, for the tokens of an answer after another."""
    K, n, T, _ = g.shape
    total = torch.zeros(K, K, n, n, dtype=torch.float64, device=x.device)
    rows = x.reshape(n * T, -1)
    for i in range(n):
        alike = x[i] @ rows.T  # [T, n T]
        for a in range(K):
            for b in range(K):
                total[a, b, i] = (alike * (g[a, i] @ g[b].reshape(n * T, -1).T)).reshape(T, n, T).sum((0, 2))
    return total


def _linears(module: nn.Module) -> Iterator[Tuple[str, nn.Module]]:
    for name, m in module.named_modules():
        if type(m).forward is nn.Linear.forward or type(m).__name__ == "Conv1D":  # others compute more than a linear layer
            yield name, m


def _size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _width(module: Any) -> int:
    return int(module.out_features if isinstance(module, nn.Linear) else module.weight.shape[1])


def _input(args: Any, kwargs: Any) -> Any:
    return args[0] if args else kwargs.get("hidden_states")


def _hidden(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]


def _with_hidden(output: Any, hidden: Tensor) -> Any:
    return hidden if isinstance(output, Tensor) else (hidden, *output[1:])


def _spread(x: Tensor, where: Any, shape: Any) -> Tensor:
    spread = torch.zeros(shape, device=x.device)
    spread[:, 1:][where] = x
    return spread
