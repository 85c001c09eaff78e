"""A small language model of transformers in the situations in which trainers run it.

A situation is a function of a model and of stats, which is token_stats or stands in for it. It leaves gradients in the
parameters of the model. Run as a program this prints, for each situation, how far these gradients are from those of
the plain model with inplace=False, and from float64:

    python python/tests/models.py
"""

import copy
import functools
import sys
import warnings

import torch
from torch.autograd import graph
from torch.utils.checkpoint import checkpoint
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM

from reweight.torch import linear_token_stats, token_stats

SIZES = dict(
    vocab_size=512,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    attention_dropout=0.0,
    pad_token_id=0,
)


def llama():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=False))


def gemma2():
    """With a cap on its logits, tanh, whose gradient needs its result."""
    torch.manual_seed(0)
    config = Gemma2Config(**SIZES, head_dim=16, sliding_window=16, final_logit_softcapping=3.0)
    config._attn_implementation = "eager"
    return Gemma2ForCausalLM(config)


def prompts(seed=1, n=3, tokens=17):
    """Ids of tokens, and the advantages of all but the first."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, SIZES["vocab_size"], (n, tokens), generator=generator)
    return ids, torch.randn(n, tokens - 1, generator=generator)


def objective(logprobs, entropy, advantages):
    return -(logprobs * advantages).mean() - 0.01 * entropy.mean()


def loss(model, stats=token_stats, labels=False, ids=None, advantages=None):
    """A policy gradient's loss from the model's logits; with labels, the model's own loss of the same logits is added."""
    if ids is None:
        ids, advantages = prompts()
    out = model(input_ids=ids, labels=ids if labels else None, use_cache=False)
    value = objective(*stats(out.logits[:, :-1], ids[:, 1:]), advantages)
    return value + out.loss if labels else value


def head_loss(model, stats):
    """The same through linear_token_stats, which has no logits; stats is for what stands in for it."""
    ids, advantages = prompts()
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    weight = model.lm_head.weight
    if stats is token_stats:
        return objective(*linear_token_stats(hidden, weight, ids[:, 1:], chunk=100), advantages)
    return objective(*stats(hidden @ weight.t(), ids[:, 1:]), advantages)


def autocast():
    return torch.autocast("cpu", dtype=torch.bfloat16)


def plain(model, stats, labels=False):
    loss(model, stats, labels).backward()


def under(context, model, stats, labels=False):
    with context():
        value = loss(model, stats, labels)
    value.backward()


def compiled(model, stats, labels=False, **options):
    """The model is compiled, and stats runs outside."""
    loss(torch.compile(model, **options), stats, labels).backward()


def whole(model, stats, labels=False, **options):
    """The step is one graph."""
    ids, advantages = prompts()
    step = torch.compile(functools.partial(loss, model, stats, labels), fullgraph=True, **options)
    step(ids, advantages).backward()


def lengths(model, stats):
    """One graph for steps of several lengths."""
    step = torch.compile(functools.partial(loss, model, stats, False), fullgraph=True, dynamic=True, backend="aot_eager")
    ids, advantages = prompts()
    for n in (9, 13, 17):
        step(ids[:, :n], advantages[:, : n - 1]).backward()


def lengths_in_turn(model, stats):
    ids, advantages = prompts()
    for n in (9, 13, 17):
        loss(model, stats, False, ids[:, :n], advantages[:, : n - 1]).backward()


def layers(model, stats, reentrant):
    """Each layer is a checkpoint."""
    model.train()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    plain(model, stats, labels=True)


def region(model, stats, reentrant):
    """token_stats is in a checkpoint, and the logits come from outside."""
    ids, advantages = prompts()
    out = model(input_ids=ids, labels=ids, use_cache=False)
    function = lambda logits: objective(*stats(logits[:, :-1], ids[:, 1:]), advantages)
    (checkpoint(function, out.logits, use_reentrant=reentrant) + out.loss).backward()


def z_loss(model, stats):
    """A checkpoint closes over the logits."""
    ids, advantages = prompts()
    logits = model(input_ids=ids, use_cache=False).logits
    extra = checkpoint(lambda: 0.1 * torch.logsumexp(logits, -1).pow(2).mean(), use_reentrant=False)
    (objective(*stats(logits[:, :-1], ids[:, 1:]), advantages) + extra).backward()


def compiled_autograd(model, stats):
    # PyTorch 2.6 stops there with an error of its own at every operator of torch.library, but for this backend.
    backend = "eager" if torch.__version__.startswith("2.6.") else "aot_eager"
    with torch._dynamo.config.patch(compiled_autograd=True):
        torch.compile(plain, backend=backend)(model, stats)


def accelerated(model, stats, precision):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)
    accelerator = Accelerator(mixed_precision=precision, cpu=True)
    prepared = accelerator.prepare(model)
    accelerator.backward(loss(prepared, stats, labels=True))


def scaled(model, stats):
    """Gradients in two backward passes over one graph."""
    ids, advantages = prompts()
    logprobs, entropy = stats(model(input_ids=ids, use_cache=False).logits[:, :-1], ids[:, 1:])
    (-(logprobs * advantages).mean()).backward(retain_graph=True)
    (-0.01 * entropy.mean()).backward()


def mapped(model, stats):
    """torch.vmap over the sequences; float64 is not mapped."""
    plain(model, torch.vmap(stats) if stats is token_stats else stats)


def with_inference_ids(model, stats):
    """The ids are tensors of inference mode, as those of a sampler are."""
    ids, advantages = prompts()
    with torch.inference_mode():
        sampled = ids.clone()
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    objective(*stats(logits, sampled[:, 1:] if stats is token_stats else ids[:, 1:]), advantages).backward()


labelled = functools.partial(plain, labels=True)
head = lambda model, stats: head_loss(model, stats).backward()  # noqa: E731
in_autocast = functools.partial(under, autocast)
in_bf16 = functools.partial(accelerated, precision="bf16")
in_place = functools.partial(token_stats, inplace=True)
# The name of a situation: the situation; the one that it should give the gradients of; the model.
SITUATIONS = {
    "eager": (plain, plain, llama),
    "inplace=True": (lambda model, stats: plain(model, in_place if stats is token_stats else stats), plain, llama),
    "labels=": (labelled, labelled, llama),
    "softcap": (labelled, labelled, gemma2),
    "two backward passes": (scaled, plain, llama),
    "linear_token_stats": (head, head, llama),
    "vmap": (mapped, plain, llama),
    "ids of inference mode": (with_inference_ids, plain, llama),
    "autocast": (in_autocast, in_autocast, llama),
    # Inductor takes a minute each: it compiles two of these, and the others stop before it.
    "torch.compile(model)": (functools.partial(compiled, backend="aot_eager"), plain, llama),
    "torch.compile(model), labels=": (functools.partial(compiled, labels=True), labelled, llama),
    "torch.compile(model), softcap": (functools.partial(compiled, labels=True, backend="aot_eager"), labelled, gemma2),
    "torch.compile(step, fullgraph=True)": (functools.partial(whole, labels=True), labelled, llama),
    "the same, dynamic=True, three lengths": (lengths, lengths_in_turn, llama),
    "compiled autograd": (compiled_autograd, plain, llama),
    "gradient checkpointing, reentrant": (functools.partial(layers, reentrant=True), labelled, llama),
    "gradient checkpointing, not reentrant": (functools.partial(layers, reentrant=False), labelled, llama),
    "token_stats in a checkpoint, reentrant": (functools.partial(region, reentrant=True), labelled, llama),
    "token_stats in a checkpoint, not reentrant": (functools.partial(region, reentrant=False), labelled, llama),
    "a checkpoint that closes over the logits": (z_loss, z_loss, llama),
    "save_on_cpu": (functools.partial(under, graph.save_on_cpu, labels=True), labelled, llama),
    "accelerate": (functools.partial(accelerated, precision="no"), labelled, llama),
    "accelerate, bf16": (in_bf16, in_bf16, llama),
}


def gradients(situation, model, stats):
    """All gradients of a copy of the model, one after another, in float64."""
    torch._dynamo.reset()
    model = copy.deepcopy(model)
    situation(model, stats)
    return torch.cat([p.grad.flatten().double() for p in model.parameters()])


def wide(logits, ids):
    """What token_stats computes, by PyTorch in float64."""
    logprobs = torch.log_softmax(logits.double(), -1)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    return logprobs.gather(-1, ids[..., None])[..., 0], entropy


def usual(logits, ids):
    """The same in float32."""
    logprobs = torch.log_softmax(logits.float(), -1)
    return logprobs.gather(-1, ids[..., None])[..., 0], -(logprobs.exp() * logprobs).sum(-1)


def difference(got, want):
    """Of two vectors, relative to the second."""
    return ((got - want).norm() / want.norm()).item()


def differences(name):
    """How far a situation is from the plain one with inplace=False, and from float64; how far PyTorch's own way is."""
    situation, like, make = SITUATIONS[name]
    model = make()
    got = gradients(situation, model, token_stats)
    eager = gradients(like, model, functools.partial(token_stats, inplace=False))
    theirs = gradients(like, model, usual)
    exact = gradients(like, model.double(), wide)
    return difference(got, eager), difference(got, exact), difference(theirs, exact)


def main():
    warnings.simplefilter("ignore")  # PyTorch's, about graphs and checkpoints
    print(f"PyTorch {torch.__version__}, relative L2 difference of all gradients\n")
    print(f"{'':44}{'eager, inplace=False':>22}{'float64':>12}{'log_softmax from float64':>28}")
    for name in SITUATIONS:
        eager, exact, theirs = differences(name)
        print(f"{name:44}{eager:22.1e}{exact:12.1e}{theirs:28.1e}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
