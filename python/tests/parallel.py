"""token_stats on a small language model in two processes, with torch.distributed's gloo.

    python parallel.py 0 STORE & python parallel.py 1 STORE

Process 0 prints how far the gradients are, in each situation, from those of one process that has all data with
inplace=False, and from float64: JSON, a pair for each name. STORE is a file that both see, and that is not there yet.
"""

import copy
import functools
import json
import os
import sys
import warnings

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as collectives
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import models
import reweight
from reweight.torch import linear_token_stats, loss, token_stats

RANKS = 2
# PyTorch 2.6 has no FSDP2 on CPUs: "'Stream' object has no attribute 'record_event'".
FSDP2 = not torch.__version__.startswith("2.6.")


def step(model, stats, rank):
    models.loss(model, stats, True, *models.prompts(seed=rank)).backward()


def ddp(model, rank, **options):
    step(DistributedDataParallel(model, **options), token_stats, rank)
    return model


def fsdp2(model, rank, checkpoints=False, dtype=None):
    if checkpoints:
        model.train()
        model.gradient_checkpointing_enable({"use_reentrant": False})
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=MixedPrecisionPolicy(dtype, torch.float32))
    fully_shard(model, mp_policy=MixedPrecisionPolicy(dtype, torch.float32, torch.float32))
    step(model, token_stats, rank)
    return model


def head(hidden, weight, rank):
    ids, advantages = models.prompts(seed=rank)
    return models.objective(*linear_token_stats(hidden[:, :-1], weight, ids[:, 1:], chunk=100), advantages)


def sharded_head(model, rank):
    """linear_token_stats with the weight of a head that FSDP2 has cut into shards."""
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model.model)
    fully_shard(model.lm_head)
    hidden = model.model(input_ids=models.prompts(seed=rank)[0], use_cache=False).last_hidden_state
    head(hidden, model.lm_head.weight, rank).backward()
    return model


def plain_head(model, stats, rank):
    ids, advantages = models.prompts(seed=rank)
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    models.objective(*stats(hidden @ model.lm_head.weight.t(), ids[:, 1:]), advantages).backward()


def flat(model):
    grads = [p.grad for p in model.parameters()]
    return torch.cat([(g.full_tensor() if isinstance(g, DTensor) else g).flatten().double() for g in grads])


def alone(model, stats, step=step):
    """The mean of the gradients of all ranks, by one process."""
    model = copy.deepcopy(model)
    for rank in range(RANKS):
        step(model, stats, rank)
    return flat(model) / RANKS


def collective(rank):
    """Rows that other processes have, which PyTorch waits for when they are used."""
    rows, ids = torch.randn(4, 33, generator=torch.Generator().manual_seed(rank)), torch.arange(8)
    want = torch.cat([torch.randn(4, 33, generator=torch.Generator().manual_seed(r)) for r in range(RANKS)])
    want.requires_grad_()
    token_stats(want, ids)[0].sum().backward()
    rows.requires_grad_()
    gathered = collectives.all_gather_tensor_autograd(rows * 1, 0, dist.group.WORLD)
    assert isinstance(gathered, collectives.AsyncCollectiveTensor)
    token_stats(gathered, ids)[0].sum().backward()
    assert torch.allclose(rows.grad, RANKS * want.grad[4 * rank : 4 * rank + 4], rtol=1e-6)


def refused(call, *texts):
    try:
        call()
    except reweight.InputError as e:
        assert all(text in str(e) for text in texts), e
    else:
        raise AssertionError(f"not refused: {texts}")


def refusals(mesh):
    """What stands for tensors in several processes is refused, and the true reason is said."""
    rows, ids = torch.randn(4, 33), torch.arange(4)
    shards = distribute_tensor(rows, mesh, [Shard(0)])
    refused(lambda: token_stats(shards, ids), "logits is a DTensor of [Shard(dim=0)]", "to_local()")
    vocabulary = distribute_tensor(rows[:, :32], mesh, [Shard(-1)])
    refused(lambda: token_stats(vocabulary, ids), "logits is a DTensor of [Shard(dim=1)]", "whole rows: its full_tensor()")
    partial = DTensor.from_local(rows, mesh, [Partial()])
    refused(lambda: token_stats(partial, ids), "logits is a DTensor of [Partial(sum)]", "whole rows: its full_tensor()")
    batch = reweight.Batch(role=torch.ones((2, 2), dtype=torch.uint8), old_logprobs=rows[:2, :2], advantages=rows[:2, :2])
    batch.advantages = distribute_tensor(batch.advantages.contiguous(), mesh, [Shard(0)])
    refused(lambda: loss(rows[:2, :2].contiguous(), batch), "advantages is a DTensor", "to_local()")
    refused(lambda: token_stats(rows, distribute_tensor(ids, mesh, [Shard(0)])), "ids is a DTensor", "to_local()")
    refused(lambda: reweight.token_stats(shards, ids), "logits has no memory: it is a DTensor")
    gathered = collectives.all_gather_tensor(rows, 0, dist.group.WORLD)
    refused(lambda: reweight.token_stats(gathered, ids), "logits has no memory: it is an AsyncCollectiveTensor")
    assert torch.equal(token_stats(gathered, torch.arange(8))[0], token_stats(gathered * 1, torch.arange(8))[0])
    graded = collectives.all_gather_tensor_autograd(rows.requires_grad_() * 1, 0, dist.group.WORLD)
    refused(lambda: token_stats(graded, torch.arange(8), inplace=True), "inplace is True, want False", "subclass")


def main():
    warnings.simplefilter("ignore")
    rank, store = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    collective(rank)
    refusals(mesh)

    situations = {
        "DDP": ddp,
        "DDP, static_graph": functools.partial(ddp, static_graph=True),
        "DDP, find_unused_parameters": functools.partial(ddp, find_unused_parameters=True),
        "DDP, gradient_as_bucket_view": functools.partial(ddp, gradient_as_bucket_view=True),
    }
    if FSDP2:
        situations |= {
            "FSDP2": fsdp2,
            "FSDP2, bf16": functools.partial(fsdp2, dtype=torch.bfloat16),
            "FSDP2, gradient checkpointing": functools.partial(fsdp2, checkpoints=True),
            "FSDP2, gradient checkpointing, bf16": functools.partial(fsdp2, checkpoints=True, dtype=torch.bfloat16),
            "FSDP2, linear_token_stats of the head in shards": sharded_head,
        }
    found = {}
    for name, situation in situations.items():
        reference = plain_head if situation is sharded_head else step
        model = models.llama()
        want = alone(model, functools.partial(token_stats, inplace=False), reference)
        exact = alone(copy.deepcopy(model).double(), models.wide, reference)
        got = flat(situation(model, rank))
        found[name] = models.difference(got, want), models.difference(got, exact)
    if rank == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()
    os._exit(0)  # on a busy machine PyTorch's own threads sometimes abort a process that ends by itself


if __name__ == "__main__":
    main()
