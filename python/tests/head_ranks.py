"""The LM head with its vocabulary in several processes, with torch.distributed's gloo.

    python head_ranks.py RANK RANKS STORE

Prints the bits of results and gradients as JSON: hexadecimal numbers of a few elements, or a list with one for each row
of this process's part of weight and bias. STORE is a file that all see, and that is not there yet.
"""

import hashlib
import json
import sys

import torch
import torch.distributed as dist

import reweight
from reweight.torch import linear_loss, linear_token_stats
from test_torch import chosen, numbers

VOCAB, WIDTH, ROWS, CHUNK = 960, 24, 300, 48


def digest(t):
    return hashlib.sha256(t.detach().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def main():
    rank, ranks, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=ranks)
    part = slice(rank * VOCAB // ranks, (rank + 1) * VOCAB // ranks)
    ids = chosen((ROWS,), VOCAB, 1)
    ids[5] = -100
    batch = reweight.Batch(
        role=(ids != -100).to(torch.uint8), old_logprobs=numbers((ROWS,), 2) - 7, advantages=numbers((ROWS,), 3),
        seq_offsets=torch.tensor([0, ROWS]),
    )  # fmt: skip
    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        hidden = numbers((ROWS, WIDTH), 4, 1, dtype).requires_grad_()
        weight = numbers((VOCAB, WIDTH), 5, 0.5, dtype)[part].clone().requires_grad_()
        bias = numbers((VOCAB,), 6, 1, dtype)[part].clone().requires_grad_()
        options = dict(bias=bias, chunk=CHUNK, temperature=0.8, softcap=20.0, group=dist.group.WORLD)

        def stats():
            logprobs, entropy, lse = linear_token_stats(hidden, weight, ids, lse=True, **options)
            found[f"{dtype} lse"], found[f"{dtype} logprobs"], found[f"{dtype} entropy"] = map(digest, (lse, logprobs, entropy))
            return (logprobs * batch.advantages).sum() + entropy.sum()

        def loss():
            value, result = linear_loss(hidden, weight, ids, batch, **options)
            found[f"{dtype} loss"] = value.item().hex()
            return value

        for step in (stats, loss):
            gradients = torch.autograd.grad(step(), (hidden, weight, bias))
            name = f"{dtype} {step.__name__}"
            found[name + " gradient of hidden"] = digest(gradients[0])
            found[name + " gradient of weight"] = [digest(row) for row in gradients[1]]
            found[name + " gradient of bias"] = [digest(row) for row in gradients[2][:, None]]
    print(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
