"""Inner products of the gradients of answers by parts of their tokens, layer by layer, with PyTorch: what an audit needs.

The gradient of the weight of a linear layer is a sum over positions of outer products g x: x is the layer's input, g the
gradient by its output. The gradient of one part of one answer is the sum over the positions of that answer, with the g
that come from the part's tokens. So one forward pass over all answers gives x, and a backward pass for each part g, of
all answers at once; no gradient of a weight is computed by PyTorch.

Blocks of the model are passed through one after another, from the last one to the first: each is computed again from its
input, which is all that is kept of the forward pass.

The tokens that all answers have in common at their beginning are passed once, as a prompt whose keys and values the
answers see. What comes back to these is passed on for one part of one answer after another, but through the linear
layers for many of them at once: large products of matrices are the faster ones.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from .._errors import InputError
from ..torch import linear_token_stats

SLICE = 1 << 22
"""Numbers of the gradients that are held at once, at most: all answers' and parts' for a slice of a weight. A CPU's cache
holds them; with four times as many _of_slices took 1.4 times as long. Elsewhere it has four times as many."""
TOKENS = 1 << 13
"""Tokens of all passes that go back through a linear layer at once. With more of them a product is no faster."""
PAIRS = 512
"""Tokens whose products with others are held at once."""


class Answers(NamedTuple):
    """What the model says of the answers of a prompt: [n, T], in nats, and 0 where a token has no label."""

    logprobs: Tensor
    entropy: Tensor
    energy: Tensor


_Layers = Dict[nn.Module, Tuple[Tensor, Tensor]]

Directions = Callable[[Answers], Sequence[Any]]
"""Of what the model says, weights of the tokens: [n, T] each."""


def _cache_argument(model: nn.Module) -> str:
    """By what name the model takes keys and values: transformers calls them cache since 5.24."""
    for module in model.modules():
        names = inspect.signature(module.forward).parameters
        for name in ("cache", "past_key_values"):
            if name in names:
                return name
    return "past_key_values"


class _Stop(Exception):
    pass


VIEWS = ("full", "hidden", "head")


class Gradients:
    """The gradients of a causal language model of transformers, or of one that is built like these: blocks in an
    nn.ModuleList, and a head, get_output_embeddings(), whose input is the hidden state after all of them.

    layers: numbers of blocks, negative ones from the end; by default all that train, as the last ones may alone.
    temperature: of the sampling.
    view: by what the gradients are. "full": by the blocks' weights. Two views need no backward pass through the model, and
    are a first look: "hidden", by the hidden state before the head, in sum over the tokens, and "head", by the head's
    weight. names says what the inner products are of: the numbers of the blocks, or the view.

    The weights and biases of linear layers (and of transformers' Conv1D) in the blocks count, of those that require a
    gradient, or of all if none does: with LoRA the adapters. Norms, embeddings, the head, fused experts and routers do not;
    counted and parameters say how many numbers that is.
    """

    def __init__(self, model: Any, layers: Optional[Sequence[int]] = None, *, temperature: float = 1.0, view: str = "full") -> None:
        if view not in VIEWS:
            raise InputError("view", f"is {view!r}, want one of {', '.join(VIEWS)}")
        if layers is not None and view != "full":
            raise InputError("layers", f"are given, but the view {view} is of no blocks")
        self.model, self.temperature, self.view = model, temperature, view
        lists: List[nn.Module] = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) and any(_linears(m[-1]))]
        if not lists:
            raise InputError("model", f"is a {type(model).__name__}, which has no nn.ModuleList of blocks with linear layers")
        self.blocks = list(max(lists, key=_size).children())
        self.head: Any = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
        if not isinstance(self.head, nn.Linear):
            raise InputError("model", f"is a {type(model).__name__} whose get_output_embeddings() is no linear layer, want its head")
        if any(p.is_meta for p in model.parameters()):
            raise InputError("model", "has parameters that are not in memory, want all on devices: without offloading")
        if any(p.is_inference() for p in model.parameters()):
            raise InputError("model", "was made in inference mode, of which PyTorch computes no gradients")
        n = len(self.blocks)
        for i in () if layers is None else layers:
            if not -n <= i < n:
                raise InputError("layers", f"has {i}, want {-n} to {n - 1}, the blocks of the model")
        if layers is not None and not len(layers):
            raise InputError("layers", "is empty, want numbers of blocks")
        trained = any(p.requires_grad for p in model.parameters())
        self._counts = {
            id(p): p.requires_grad or not trained for block in self.blocks for _, m in _linears(block) for p in m.parameters(False)
        }
        numbers = [sum(p.numel() for _, m in _linears(block) for p in m.parameters(False) if self._counts[id(p)]) for block in self.blocks]
        self.layers = [i for i, number in enumerate(numbers) if number] if layers is None else sorted({i % n for i in layers})
        self.names = [str(i) for i in self.layers] if view == "full" else [view]
        self.parameters = sum(p.numel() for p in model.parameters() if p.requires_grad or not trained)
        self.counted = sum(numbers[i] for i in self.layers)
        if not self.counted:
            raise InputError("model", "trains no linear layer of these blocks, want at least one")
        if view == "full":
            self._check_weights()
        self._checked = False
        self._sharing: Optional[bool] = None
        config: Any = getattr(model, "config", None)
        config = config.get_text_config() if hasattr(config, "get_text_config") else config
        self.softcap = getattr(config, "final_logit_softcapping", None)
        scale = getattr(config, "logit_scale", None)
        self.scale = float(scale if scale is not None else 1 / (getattr(config, "logits_scaling", None) or 1))

    def _check_weights(self) -> None:
        """Wants weights that are parameters, each of one layer."""
        owners = [(i, m) for i, block in enumerate(self.blocks) for _, m in _linears(block)]
        times = collections.Counter(id(p) for _, m in owners for p in m.parameters(False))
        for i, m in owners:
            counted = [p for p in m.parameters(False) if i in self.layers and self._counts[id(p)]]
            if any(times[id(p)] > 1 for p in counted):
                raise InputError("model", "has linear layers that share a weight, whose gradients the audit does not add up")
            if counted and "weight" not in m._parameters and not nn.utils.parametrize.is_parametrized(m):
                names = ", ".join(name for name, _ in m.named_parameters(recurse=False))
                raise InputError("model", f"has a linear layer with the parameters {names}, want its weight to be one")

    def grams(self, ids: Sequence[Any], labels: Sequence[Any], parts: int, directions: Optional[Directions] = None) -> Tensor:
        """The inner products of the answers to a prompt: [L, K, K, n, n], in float64; L is 1 in the views hidden and head.

        ids: of each answer all tokens, the prompt's first. labels: of each of these tokens the number of its part, or -1
        for one that the policy has not drawn. directions: what gives weights of tokens that stand behind the parts.
        """
        if any(id(p) not in self._counts for block in self.blocks for _, m in _linears(block) for p in m.parameters(False)):
            raise InputError("model", "has other parameters in its blocks than when the audit began")
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
        # Answers with the same tokens are passed through the model once.
        _, first, kind = np.unique(np.column_stack([lengths, padded]), axis=0, return_index=True, return_inverse=True)
        tokens = torch.from_numpy(padded[first]).to(device)
        there = torch.from_numpy((np.arange(longest) < np.array(lengths)[first, None]).astype(np.int64)).to(device)
        with torch.inference_mode(False), self._frozen(), torch.enable_grad():
            if not self._checked:
                self._check_head(tokens[:1, :2])
            return self._grams(tokens, there, torch.from_numpy(kind.reshape(n)), torch.from_numpy(mark).to(device), parts, directions)

    def _grams(
        self, tokens: Tensor, there: Tensor, kind: Tensor, mark: Tensor, parts: int, directions: Optional[Directions]
    ) -> Tensor:  # fmt: skip
        """kind: of each answer, which of the tokens it has."""
        drawn = torch.zeros_like(tokens).index_add_(0, kind.to(mark.device), (mark >= 0).long()) > 0
        P = _shared(tokens, there, drawn) if self._shares(tokens, there) else 0
        keys = _keys(len(tokens)) if P else None
        prompt = self._forward(tokens[:1, :P], there[:1, :P], keys)[0] if P else []
        labelled, tokens, mark, drawn = mark >= 0, tokens[:, P:], mark[:, P:], drawn[:, P:]
        inputs, before, after = self._forward(tokens, there, keys)
        weight, bias = self.head.weight.detach(), self.head.bias
        if weight.dtype == torch.float16:  # which linear_token_stats does not take
            weight = weight.float()
        # Log-probabilities come from the position before the token.
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
            spread = (_spread(x.detach().float(), where, tokens.shape, P)[kind] for x in (logprobs, entropy, -lse))
            said = Answers(*(torch.where(labelled, x, 0) for x in spread))
            more = [torch.as_tensor(w, dtype=torch.float32, device=mark.device) for w in directions(said)]
            for w in more:
                if w.shape != said.entropy.shape:
                    raise InputError("directions", f"gives the shape {list(w.shape)}, want {list(said.entropy.shape)}")
            more = [torch.where(mark >= 0, w[:, P:], 0) for w in more]
        weights, factors = _passes(weights, more)
        K, n = len(weights), len(mark)
        weights, answer, of, at, same = _rows(tokens, kind, weights)
        grams = torch.zeros(len(self.names), n * K, n * K, dtype=torch.float64)
        if self.view == "full":
            for layer, gram in self._blocks(inputs, prompt, keys, before, after, where, slope, weights, answer, of):
                grams[layer][at[:, None], at] += gram.cpu()[same[:, None], same]
        else:
            by = torch.stack([w[:, 1:][where] for w in weights])[of] * (where[0] == answer[:, None])
            if self.view == "hidden":
                rows = (by @ slope.float()).double()
                gram = rows @ rows.T
            else:
                gram = by @ self._by_head(hidden.detach(), weight, tokens[:, 1:][where]) @ by.T
            grams[0][at[:, None], at] = gram.double().cpu()[same[:, None], same]
        factors = factors.to(grams)
        return torch.einsum("kai,liajb,mbj->lkmij", factors, grams.view(-1, n, K, n, K), factors)

    def _blocks(
        self, inputs: Any, prompt: Any, keys: Any, before: Tensor, after: Tensor, where: Any, slope: Tensor, weights: List[Tensor],
        answer: Tensor, of: Tensor,
    ) -> Iterator[Tuple[int, Tensor]]:  # fmt: skip
        """The inner products by the weights of the linear layers of the blocks, with the number of the block among those
        that count. The rows are those of _rows: of the pass `of` of the answer `answer`."""
        gradients = before.new_empty(len(weights), *before.shape)
        for of_pass, w in zip(gradients, weights):
            g = torch.zeros_like(after)
            g[:, :-1][where] = (slope * w[:, 1:][where][:, None]).to(g)
            of_pass.copy_(*torch.autograd.grad(after, before, g, retain_graph=True))
        above: Optional[Tensor] = None  # by what the last block computes of the prompt, which nothing uses
        lowest = self.layers[0] if len(of) else len(self.blocks)
        for i in range(len(self.blocks) - 1, lowest - 1, -1):
            kept = i in self.layers
            (gradients, *by_keys), layers = self._through(self.blocks[i], inputs.pop(), [gradients], keys, kept, i > lowest)
            of_prompt: _Layers = {}
            if keys is not None:
                by_keys = [above, *(g[of, answer][:, None] for g in by_keys)]
                with keys.of_prompt():
                    (above,), of_prompt = self._through(self.blocks[i], prompt.pop(), by_keys, keys, kept, i > lowest)
            for gram in self._of_layers(layers, of_prompt, answer, of):
                yield self.layers.index(i), gram
            del by_keys, layers, of_prompt  # before those of the next block are made

    def _of_layers(self, layers: _Layers, of_prompt: _Layers, answer: Tensor, of: Tensor) -> Iterator[Tensor]:
        """The inner products by the weights of layers, with what each took and the gradients by what it gave. Those that take
        the same are passed together."""
        alike: Dict[Tuple[int, int], Tuple[Tensor, Tensor, List[Tuple[nn.Module, Tensor, Tensor]]]] = {}
        for module, (x, g) in layers.items():
            x0, g0 = of_prompt.get(module, (x[:1, :0], g.new_zeros(len(of), 1, 0, g.shape[-1])))
            same = id(x0) if module in of_prompt else 0, id(x)
            alike.setdefault(same, (x0, x, []))[2].append((module, g0[:, 0], g))
        for x0, x, of_same in alike.values():
            rows = [(module, g0, g[of, answer]) for module, g0, g in of_same]
            with _without_autocast(x):
                gram = self._products(x0[0], x, rows, answer)
            yield gram

    def _by_head(self, x: Tensor, weight: Tensor, drawn: Tensor) -> Tensor:
        """The inner products [N, N] of the tokens' gradients by the head's weight, for a slice of the vocabulary after
        another: x is the head's input. By its logits, a token's gradient is its own 1 less the probabilities."""
        bias = None if self.head.bias is None else self.head.bias.detach().to(x)
        step = max(1, SLICE // (4 * max(1, len(x))))  # each slice passes over the inner products of all tokens

        def logits(of: slice) -> Tuple[Tensor, Tensor]:
            z = nn.functional.linear(x, weight[of], None if bias is None else bias[of]).float() * self.scale
            if self.softcap is None:
                return z / self.temperature, torch.full_like(z, self.scale / self.temperature)
            z = torch.tanh(z / self.softcap)
            return z * self.softcap / self.temperature, (1 - z * z) * (self.scale / self.temperature)

        slices = [slice(at, at + step) for at in range(0, len(weight), step)]
        lse = torch.stack([logits(of)[0].logsumexp(1) for of in slices]).logsumexp(0)
        inner = torch.zeros(len(x), len(x), device=x.device)
        for of in slices:
            z, slope = logits(of)
            tokens = torch.arange(len(weight), device=x.device)[of]
            g = ((drawn[:, None] == tokens).float() - (z - lse[:, None]).exp()) * slope
            inner += g @ g.T
        return inner * (x.float() @ x.float().T)

    def _products(self, x0: Tensor, x: Tensor, layers: List[Tuple[nn.Module, Tensor, Tensor]], answer: Tensor) -> Tensor:
        """The inner products of the gradients of what counts of linear layers: products says of what."""
        weights = [(g0.float(), g.float()) for module, g0, g in layers if self._counts.get(id(module.weight))]
        total = torch.zeros(len(answer), len(answer), dtype=torch.float64, device=x.device)
        if weights:
            total += products(x0.float(), [g0 for g0, _ in weights], x.float(), [g for _, g in weights], answer)
        for module, g0, g in layers:
            bias = getattr(module, "bias", None)
            if bias is not None and self._counts.get(id(bias)):
                sums = g.double().sum(1) + g0.double().sum(1)
                total += sums @ sums.T
        return total

    def _shares(self, tokens: Tensor, there: Tensor) -> bool:
        """Whether the model says the same of an answer when its prompt was passed before, as keys and values, which is
        tried once."""
        if self._sharing is None:
            longest = int(there.sum(1).argmax())
            tokens, there = tokens[longest : longest + 1], there[longest : longest + 1]
            P, T = max(1, tokens.shape[1] // 2), int(there.sum())
            want = self._forward(tokens[:, :T], there[:, :T])[2]
            try:
                keys = _keys(1)
                self._forward(tokens[:, :P], there[:, :P], keys)
                found = self._forward(tokens[:, P:T], there[:, :T], keys)[2]
                alike = len(keys.kept) == len(self.blocks) and torch.dist(found, want[:, P:]) < 0.02 * want[:, P:].norm()
                self._sharing = bool(alike)
            except Exception:  # of any kind, from a model that has other ways to remember
                self._sharing = False
        return self._sharing

    def _forward(self, tokens: Tensor, there: Tensor, keys: Any = None) -> Tuple[List[Any], Tensor, Tensor]:
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
                cached = {} if keys is None else {_cache_argument(self.model): keys}
                self.model(input_ids=tokens, attention_mask=there, use_cache=keys is not None, **cached)
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
        if logits.isnan().any():
            raise InputError("model", "computes logits that are NaN")
        if len(heads) == 1 and heads[0].shape == logits.shape:
            mine = heads[0].to(logits) * self.scale
            mine = mine if self.softcap is None else self.softcap * torch.tanh(mine / self.softcap)
            self._checked = bool(torch.allclose(mine, logits, rtol=0.02, atol=0.02 * float(logits.abs().max())))
        if not self._checked:
            raise InputError("model", "computes its logits in another way than by its head, logit scale and softcap")

    def _through(
        self, block: nn.Module, given: Any, gradients: Sequence[Optional[Tensor]], keys: Any, kept: bool, below: bool
    ) -> Tuple[List[Any], _Layers]:  # fmt: skip
        """Passes gradients back through a block, [passes, n, T, ...] by what it computes and, of a prompt, by its keys and
        values. Returns those by its input, or None if they are not wanted below, and, of answers, by the prompt's keys and
        values; and, if kept, what its linear layers took, x [n, T, in], and the gradients by what they gave, g [passes, n,
        T, out]."""
        args, kwargs = given
        hidden = _input(args, kwargs).detach().requires_grad_(below)
        linears = [m for _, m in _linears(block)]
        counted = {m for m in linears if kept and any(self._counts[id(p)] for p in m.parameters(False))}
        with _traced(counted), _cut(linears, counted) as calls:  # while it is passed back too: checkpoints compute again
            with torch.enable_grad():
                if args:
                    output = _hidden(block(hidden, *args[1:], **kwargs))
                else:
                    output = _hidden(block(**{**kwargs, "hidden_states": hidden}))
            leaves, tops = [hidden] if below else [], [output]
            if keys is not None:
                leaves, tops = leaves + keys.leaves, tops + keys.tops
            self._leave_out(counted - {call.module for call in calls}, tops + [call.x for call in calls])
            with _without_autocast(hidden):
                found = _back(tops, gradients, calls, leaves, counted)
        passes = next(len(g) for g in gradients if g is not None)
        n, T = hidden.shape[:-1]
        of_modules: Dict[nn.Module, List[_Call]] = {}
        for call in calls:
            if call.module in counted and id(call.y) in found:
                if call.x.shape[0] != n and call.x.shape[:-1] != (n * T,):
                    name = type(call.module).__name__
                    raise InputError("model", f"has a {name} in its blocks whose rows are not those of the answers")
                of_modules.setdefault(call.module, []).append(call)
        taken: Dict[Tuple[int, ...], Tensor] = {}  # one tensor for all that take the same
        layers = {}
        for module, of in of_modules.items():
            same = tuple(id(x) for _, x, _ in of)
            if same not in taken:
                taken[same] = _joined([x.detach().reshape(n, -1, x.shape[-1]) for _, x, _ in of])
            layers[module] = taken[same], _joined([found[id(y)].reshape(passes, n, -1, y.shape[-1]) for _, _, y in of])
        back: List[Any] = [found[id(x)] if id(x) in found else x.new_zeros(passes, *x.shape) for x in leaves]
        return back if below else [None, *back], layers

    def _leave_out(self, idle: Set[nn.Module], computed: List[Tensor]) -> None:
        """Counts weights no more that are used without a call of their layer, whose gradients are not seen."""
        weights = {id(p): p for m in idle for p in m.parameters(False) if self._counts[id(p)]}
        for p in {at for x in computed if weights and x.requires_grad for at in _reached(x) & weights.keys()}:
            self._counts[p] = False
            self.counted -= weights[p].numel()
        if not self.counted:
            raise InputError("model", "trains no linear layer of these blocks that is called, want at least one")

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


def _joined(of_calls: List[Tensor]) -> Tensor:
    return of_calls[0] if len(of_calls) == 1 else torch.cat(of_calls, -2)


def _without_autocast(x: Tensor) -> Any:
    return torch.autocast(x.device.type, enabled=False)


@contextlib.contextmanager
def _traced(linears: Set[nn.Module]) -> Iterator[None]:
    """Has the graph show where weights of linear layers are used."""
    parameters = [p for m in linears for p in m.parameters(False)]
    try:
        for p in parameters:
            p.requires_grad_(True)
        yield
    finally:
        for p in parameters:
            p.requires_grad_(False)


class _Call(NamedTuple):
    """A linear layer that is called: x is what it takes, and y what it gives, from which nothing leads back to x."""

    module: nn.Module
    x: Tensor
    y: Tensor


@contextlib.contextmanager
def _cut(linears: List[nn.Module], counted: Set[nn.Module]) -> Iterator[List[_Call]]:
    """Cuts the graph of what a block computes at its linear layers. What goes in and what comes out is copied, because the
    block may write over it. A layer that does more than its weight says is left whole. If it is counted, its y is a 0 that
    is added to what it gives, so that the gradients by both are the same."""
    calls: List[_Call] = []
    given: List[Tensor] = []
    copies: Dict[Tuple[int, int], Tuple[Tensor, Tensor]] = {}
    everywhere = any(getattr(nn.modules.module, f"_global_{kind}_hooks") for kind in ("forward", "backward", "backward_pre"))
    more = {m for m in linears if m._forward_hooks or m._backward_hooks or m._backward_pre_hooks or "forward" in m.__dict__}

    def whole(module: nn.Module) -> bool:
        return everywhere or module in more or nn.utils.parametrize.is_parametrized(module)

    def enter(module: nn.Module, args: Any, kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return None
        x = [*args, *kwargs.values()][0]
        if whole(module):
            given.append(x.detach().clone())
            return None
        given.append(copies.setdefault((id(x), x._version), (x, x.clone()))[1])
        return (given[-1].detach(),), {}

    def leave(module: nn.Module, args: Any, output: Tensor) -> Optional[Tensor]:
        if not torch.is_grad_enabled():
            return None
        x, y = given.pop(), output.detach().requires_grad_()
        if not whole(module):
            calls.append(_Call(module, x, y))
            return y.clone()
        if module not in counted:
            return None
        calls.append(_Call(module, x, torch.zeros_like(y).requires_grad_()))
        return output + calls[-1].y

    hooks = [m.register_forward_pre_hook(enter, with_kwargs=True) for m in linears]
    hooks += [m.register_forward_hook(leave, prepend=True) for m in linears]  # before what others add to it
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def _back(
    tops: List[Tensor], gradients: Sequence[Optional[Tensor]], calls: Sequence[_Call], leaves: List[Tensor],
    counted: Set[nn.Module],
) -> Dict[int, Tensor]:  # fmt: skip
    """Gradients, [passes, ...] each, by the leaves and by what the calls of counted layers gave, with their ids, from those by
    the tops: through what is between two calls by one pass after another, and through the linear layers by many at once."""
    given = {id(top): g for top, g in zip(tops, gradients) if g is not None and top.requires_grad}
    stages = list(_stages([top for top in tops if id(top) in given], calls, leaves))
    passes = next(len(g) for g in gradients if g is not None)
    step = max(1, TOKENS // max(1, tops[0].shape[:-1].numel()))
    found = []
    for at in range(0, passes, step):
        found.append(_back_at_once({top: g[at : at + step] for top, g in given.items()}, stages, calls, counted))
    return found[0] if len(found) == 1 else {y: torch.cat([of.pop(y) for of in found]) for y in list(found[0])}


def _back_at_once(
    known: Dict[int, Tensor], stages: List[Tuple[List[Tensor], List[Tensor]]], calls: Sequence[_Call], counted: Set[nn.Module]
) -> Dict[int, Tensor]:  # fmt: skip
    """_back of some of the passes. known: the gradients by the tops."""
    found: Dict[int, Tensor] = {}
    for at, (ends, starts) in enumerate(stages):
        for x in ends:
            if id(x) not in known:
                of_x = [call for call in calls if call.x is x and id(call.y) in found]
                by_x = (_by_input(module, found[id(y)]).to(x.dtype) for module, _, y in of_x)
                known[id(x)] = functools.reduce(Tensor.add_, by_x)
                for module, _, y in of_x:
                    if module not in counted:
                        del found[id(y)]
        given = [known[id(x)] for x in ends]
        later = {id(x) for ends, _ in stages[at + 1 :] for x in ends}
        known = {x: g for x, g in known.items() if x in later}
        # A layer that does not count needs no gradient where what it takes needs none.
        unused = {id(call.y) for call in calls if call.module not in counted and id(call.x) not in later}
        starts = [y for y in starts if id(y) not in unused]
        for k in range(len(given[0]) if starts else 0):
            try:
                back = torch.autograd.grad(ends, starts, [g[k] for g in given], retain_graph=True, allow_unused=True)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as e:
                problem = str(e).partition("\n")[0]
                raise InputError("model", f"has a block through which PyTorch does not go back: {problem}") from e
            for y, g in zip(starts, back):
                if id(y) not in found:
                    found[id(y)] = y.new_zeros(len(given[0]), *y.shape)
                if g is not None:
                    found[id(y)][k] = g
    return found


def _stages(tops: List[Tensor], calls: Sequence[_Call], leaves: List[Tensor]) -> Iterator[Tuple[List[Tensor], List[Tensor]]]:
    """From which tensors to which gradients go back, in an order in which those by the former are known: by the tops, and by
    what a call took once those by what it gave are."""
    reached = {id(x): _reached(x) for x in tops + [call.x for call in calls if call.x.requires_grad]}
    known = {id(top): (0, top) for top in tops}  # after how many stages
    stages: Dict[int, List[Tensor]] = {}
    for y, x in [(call.y, call.x) for call in reversed(calls)] + [(leaf, leaf) for leaf in leaves]:
        after = [stage for of, (stage, _) in known.items() if id(y) in reached[of]]
        if after:
            stage = max(after) + 1
            stages.setdefault(stage, []).append(y)
            if id(x) in reached:
                known[id(x)] = max(stage, known.get(id(x), (0, x))[0]), x
    for _, starts in sorted(stages.items()):
        wanted = {id(y) for y in starts}
        yield [x for of, (_, x) in known.items() if reached[of] & wanted], starts


def _reached(top: Tensor) -> Set[int]:
    """The ids of the leaves that a tensor is computed from."""
    nodes: List[Any] = [get_gradient_edge(top).node]
    seen, found = set(), set()
    while nodes:
        node = nodes.pop()
        if node not in seen:
            seen.add(node)
            if type(node).__name__ == "AccumulateGrad":
                found.add(id(node.variable))
            nodes += [before for before, _ in node.next_functions if before is not None]
    return found


def _by_input(module: Any, g: Tensor) -> Tensor:
    """The gradients by what a linear layer took, from those by what it gave. Tokens of several answers to which nothing comes
    back, behind the last one with a weight, are left out."""
    weight = (module.weight if isinstance(module, nn.Linear) else module.weight.T).detach().to(g.dtype)
    if g.shape[1] == 1:
        return g @ weight
    rows = g.flatten(0, -2)
    there = rows.any(1)
    found = g.new_zeros(len(rows), weight.shape[1])
    found[there] = rows[there] @ weight
    return found.view(*g.shape[:-1], weight.shape[1])


def _shared(tokens: Tensor, there: Tensor, drawn: Tensor) -> int:
    """How many tokens at the beginning of all answers are the same, before the first position that says something of a
    token that counts."""
    other = ((tokens != tokens[0]) | (there == 0)).any(0) | drawn.any(0).roll(-1)
    other[-1] = True
    return int(other.int().argmax())


def _keys(answers: int) -> Any:
    """A cache of transformers for the keys and values of a prompt. What is passed first are the prompt's tokens, and then,
    except in of_prompt(), those of the answers to it."""
    from transformers import DynamicCache

    class Keys(DynamicCache):
        def __init__(self) -> None:
            super().__init__()
            self.kept: Dict[int, Tuple[Tensor, Tensor]] = {}
            self.leaves: List[Tensor] = []  # the keys and values for each answer, of the block that was passed last
            self.tops: List[Tensor] = []  # those that it has computed of the prompt
            self.prompt = False

        def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Tuple[Tensor, Tensor]:
            self.leaves, self.tops = [], []
            if layer_idx not in self.kept:
                self.kept[layer_idx] = key_states, value_states
                return super().update(key_states, value_states, layer_idx, *args, **kwargs)  # which counts them
            if self.prompt:
                self.tops = [key_states, value_states]
                return key_states, value_states
            self.leaves = [x.expand(answers, *x.shape[1:]).detach().requires_grad_() for x in self.kept[layer_idx]]
            return torch.cat([self.leaves[0], key_states], -2), torch.cat([self.leaves[1], value_states], -2)

        @contextlib.contextmanager
        def of_prompt(self) -> Iterator[None]:
            self.prompt = True
            try:
                yield
            finally:
                self.prompt = False

    return Keys()


def _passes(parts: List[Tensor], directions: List[Tensor]) -> Tuple[List[Tensor], Tensor]:
    """The weights that need a backward pass, and factors [K, passes, n] with which the gradients of each part and each
    direction are sums of theirs. A direction that weights all tokens of a part of an answer alike needs none there."""
    n = len(parts[0])
    rows, passes = [torch.eye(len(parts), dtype=torch.float64)[:, :, None].repeat(1, 1, n)], list(parts)
    for w in directions:
        most = torch.stack([w.masked_fill(p == 0, -torch.inf).amax(1) for p in parts])
        least = torch.stack([w.masked_fill(p == 0, torch.inf).amin(1) for p in parts])
        alike = (most <= least).all(0)  # or no tokens
        row = most.masked_fill(most.isinf() | ~alike, 0).double().cpu()
        if not alike.all():
            row = torch.cat([row, row.new_zeros(len(passes) - len(row), n), (~alike).double().cpu()[None]])
            passes.append(w.masked_fill(alike[:, None], 0))
        rows.append(row[None])
    factors = torch.cat([torch.nn.functional.pad(row, (0, 0, 0, len(passes) - row.shape[1])) for row in rows])
    return passes, factors


def _rows(tokens: Tensor, kind: Tensor, weights: List[Tensor]) -> Tuple[List[Tensor], Tensor, Tensor, Tensor, Tensor]:
    """What is passed back: weights of passes, and of each row its answer, which tokens has once, and its pass. Then, of each row
    of the Gram matrix, answers by weights, that is not 0, its number there and the number of its row here.

    A row is passed once where it is that of several answers: if tokens and weights are the same up to the last weight, for the
    tokens behind it change no gradient."""
    ids, given = tokens.cpu().numpy(), [w.cpu().numpy() for w in weights]
    passes = [np.zeros(ids.shape, np.float32)]
    found: Dict[Tuple[bytes, bytes], int] = {}
    answer: List[int] = []
    of: List[int] = []
    at: List[int] = []
    same: List[int] = []
    for a in np.argsort(kind.numpy(), kind="stable").tolist():
        to = int(kind[a])
        for k, w in enumerate(given):
            if not w[a].any():
                continue
            end = int(w[a].nonzero()[0][-1]) + 1
            row = ids[to, :end].tobytes(), w[a, :end].tobytes()
            if row not in found:
                found[row] = len(answer)
                of.append(answer.count(to))
                answer.append(to)
                if of[-1] == len(passes):
                    passes.append(np.zeros(ids.shape, np.float32))
                passes[of[-1]][to] = w[a]
            at.append(a * len(weights) + k)
            same.append(found[row])
    on = tokens.device
    index = [torch.tensor(x, dtype=torch.int64) for x in (answer, of, at, same)]
    return [torch.from_numpy(w).to(on) for w in passes], index[0].to(on), index[1].to(on), index[2], index[3]


def products(x0: Tensor, g0: Sequence[Tensor], x: Tensor, g: Sequence[Tensor], answer: Tensor) -> Tensor:
    """[R, R] in float64: inner products of gradients of weights, sums of outer products of x0 [P, in] and, for each of the
    weights, g0 [R, P, out] over the tokens P of the prompt, and of x [n, T, in] of the answer and g [R, T, out] over its
    own. answer [R]: of each gradient, not falling.

    With P below the width, the gradients are split at the space of x0: in it they are made of P numbers for each of out,
    and beside it they have the answers' own tokens alone."""
    if not len(x0):
        return _of_answers(x, g, answer)
    if len(x0) >= x0.shape[1]:
        return _of_slices(x0, g0, x, g, answer)
    basis = torch.linalg.qr(x0.T).Q
    within = x @ basis
    return _of_slices(x0 @ basis, g0, within, g, answer) + _of_answers(x - within @ basis.T, g, answer)


def _of_answers(x: Tensor, g: Sequence[Tensor], answer: Tensor) -> Tensor:
    """The same without a prompt. The gradients are made for a slice of the weight after another, or not at all where
    products of all pairs of tokens are fewer."""
    R, T = g[0].shape[:2]
    width, out = x.shape[2], sum(of.shape[2] for of in g)
    there = torch.stack([of.any(2) for of in g]).any(0)  # not behind the end of an answer, nor behind the last token of a part
    pairs = int(there.sum()) ** 2 * (width + out + R + R * R // PAIRS)  # and their sums by rows
    slices = R * width * out * (T + R)
    return _of_pairs(x, g, answer, there) if pairs < 2 * slices else _of_slices(x[0, :0], [of[:, :0] for of in g], x, g, answer)


def _of_slices(x0: Tensor, g0: Sequence[Tensor], x: Tensor, g: Sequence[Tensor], answer: Tensor) -> Tensor:
    """The same from the gradients, for a slice of a weight after another."""
    R, ours = len(answer), x[answer]
    most = SLICE if x.device.type == "cpu" else 4 * SLICE
    total = torch.zeros(R, R, dtype=torch.float64, device=x.device)
    for of_prompt, of_own in zip(g0, g):
        long, short = (of_prompt, of_own), (x0, ours)
        if of_own.shape[2] < x.shape[2]:  # the slices are of the longer side
            long, short = short, long
        width, longer = short[1].shape[2], long[1].shape[2]
        step = min(longer, max(1, most // (R * width)))
        room = x.new_empty(R * width * step)
        for at in range(0, longer, step):
            outer, own = (side[..., at : at + step] for side in long)
            made = room[: R * width * own.shape[2]].view(R, width, -1)
            torch.matmul(short[0].transpose(-1, -2), outer, out=made)
            made.baddbmm_(short[1].transpose(1, 2), own)
            rows = made.view(R, -1)
            total += rows @ rows.T
    return total


def _of_pairs(x: Tensor, g: Sequence[Tensor], answer: Tensor, there: Tensor) -> Tensor:
    """The same from the products of all pairs of tokens that have a gradient, some of them after others, each with those of
    their own and the ones behind."""
    row, at = there.nonzero(as_tuple=True)
    token, index = torch.unique(answer[row] * x.shape[1] + at, return_inverse=True)
    inner, outer = x.flatten(0, 1)[token], [of[row, at] for of in g]
    rows = nn.functional.one_hot(row, len(answer)).to(x)
    total = torch.zeros(len(answer), len(answer), dtype=torch.float64, device=x.device)
    for low in range(0, len(row), PAIRS):
        of = slice(low, low + PAIRS)
        first, last = int(index[low:].min()), int(index[of].max()) + 1
        alike = inner[first:last] @ inner[first:].T
        both = alike[index[of] - first][:, index[low:] - first]
        both *= torch.stack([y[of] @ y[low:].T for y in outer]).sum(0)
        total += (rows[of].T @ both[:, :PAIRS] @ rows[of]).double()
        behind = (rows[of].T @ both[:, PAIRS:] @ rows[low:][PAIRS:]).double()
        total += behind + behind.T
    return total


def _linears(module: nn.Module) -> Iterator[Tuple[str, nn.Module]]:
    for name, m in module.named_modules():
        if type(m).forward is nn.Linear.forward or type(m).__name__ == "Conv1D":  # others compute more than a linear layer
            yield name, m


def _size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _input(args: Any, kwargs: Any) -> Any:
    return args[0] if args else kwargs.get("hidden_states")


def _hidden(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]


def _with_hidden(output: Any, hidden: Tensor) -> Any:
    return hidden if isinstance(output, Tensor) else (hidden, *output[1:])


def _spread(x: Tensor, where: Any, shape: Any, P: int) -> Tensor:
    spread = torch.zeros(shape, device=x.device)
    spread[:, 1:][where] = x
    return nn.functional.pad(spread, (P, 0))
