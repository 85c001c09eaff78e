"""The LM head with its vocabulary in several processes, with torch.distributed's gloo.

    python head_ranks.py MODE RANK RANKS STORE SIZES...

MODE is bits, near or refused. SIZES are the parts of the vocabulary, "480,470", of as many processes as there are
numbers: the first ones of RANKS. STORE is a file that all see, and that is not there yet. The program prints a line of
JSON: for each SIZES what it found, or null in the processes that have no part.

bits finds the bits of results and gradients: hexadecimal numbers of a few elements, or a list with one for each row of
this process's part of weight and bias. near finds how far they are from those of float64, relative to the largest.
refused makes calls in which something is wrong in the last process, and finds the error of each.
"""

import datetime
import hashlib
import json
import sys

import torch
import torch.distributed as dist

import reweight
from reweight.torch import linear_loss, linear_token_stats
from test_torch import chosen, numbers

VOCAB, WIDTH, ROWS, CHUNK = 950, 24, 300, 48


def digest(t):
    return hashlib.sha256(t.detach().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def cut(t, rank, sizes):
    """This process's part."""
    return t.split(sizes)[rank].clone().requires_grad_()


def bits(rank, sizes, group):
    ids = chosen((ROWS,), VOCAB, 1)
    ids[5] = -100
    batch = reweight.Batch(
        role=(ids != -100).to(torch.uint8), old_logprobs=numbers((ROWS,), 2) - 7, advantages=numbers((ROWS,), 3),
        seq_offsets=torch.tensor([0, ROWS]),
    )  # fmt: skip
    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        hidden = numbers((ROWS, WIDTH), 4, 1, dtype).requires_grad_()
        weight = cut(numbers((VOCAB, WIDTH), 5, 0.5, dtype), rank, sizes)
        bias = cut(numbers((VOCAB,), 6, 1, dtype), rank, sizes)
        options = dict(bias=bias, chunk=CHUNK, temperature=0.8, softcap=20.0, group=group)

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
    return found


def near(rank, sizes, group):
    vocab = sum(sizes)
    hidden, ids = numbers((9, WIDTH), 4).requires_grad_(), chosen((9,), vocab, 1)
    ids[:3] = torch.tensor([0, vocab - 1, vocab // 2])
    weight, bias = numbers((vocab, WIDTH), 5, 0.5), numbers((vocab,), 6)
    exact = [t.detach().double().requires_grad_() for t in (hidden, weight, bias)]
    l = torch.log_softmax(exact[0] @ exact[1].t() + exact[2], -1)
    chosen_of = l.gather(-1, ids[:, None])[:, 0]
    h = -(l.exp() * l).sum(-1)
    batch = reweight.Batch(
        role=torch.ones(9, dtype=torch.uint8), old_logprobs=chosen_of.float().detach() - 0.1, advantages=numbers((9,), 3),
        seq_offsets=torch.tensor([0, 9]),
    )  # fmt: skip
    want = reweight.torch.loss(chosen_of.float(), batch, policy=reweight.PPO(clip_low=1, clip_high=9))[0]
    of = [*torch.autograd.grad(chosen_of.sum() + h.sum(), exact, retain_graph=True), *torch.autograd.grad(want, exact)]
    of = [g if i % 3 == 0 else g.split(sizes)[rank] for i, g in enumerate(of)]
    found = {}
    for chunk in (None, 100):
        parts = hidden, cut(weight, rank, sizes), cut(bias, rank, sizes)
        options = dict(bias=parts[2], chunk=chunk, group=group)
        stats = linear_token_stats(*parts[:2], ids, lse=True, log_sum_sq_probs=True, **options)
        value, _ = linear_loss(*parts[:2], ids, batch, policy=reweight.PPO(clip_low=1, clip_high=9), memory=chunk, **options)
        got = torch.autograd.grad(stats[0].sum() + stats[1].sum(), parts), torch.autograd.grad(value, parts)
        lse = torch.logsumexp(exact[0] @ exact[1].t() + exact[2], -1)
        pairs = zip((*stats, value, *got[0], *got[1]), (chosen_of, h, lse, torch.logsumexp(2 * l, -1), want, *of))
        names = "logprobs entropy lse squares loss".split() + [f"{f} of {t}" for f in ("stats", "loss") for t in "hwb"]
        for name, (g, w) in zip(names, pairs):
            largest = w.abs().max().item() if w.numel() else 1
            found[f"{name}, chunk {chunk}"] = (g.double() - w).abs().max().item() / (largest or 1) if w.numel() else 0
    if 9 < vocab < 100:
        function = lambda h, w, b: linear_token_stats(h, w, ids, bias=b, group=group)[0]
        parts = hidden, cut(weight, rank, sizes), cut(bias, rank, sizes)
        outcomes = []
        for f in (function, torch.compile(function, fullgraph=True, backend="aot_eager")):
            l = f(*parts)
            outcomes.append([l, *torch.autograd.grad(l.sum(), parts)])
        found["compiled"] = 0 if all(map(torch.equal, *outcomes)) else 1
    return found


def refused(rank, sizes, group):
    """Calls with something wrong in the last process only, and some that are right."""
    last = rank == len(sizes) - 1
    ids = chosen((ROWS,), sum(sizes), 1)
    ids[5] = -100
    mask = torch.ones(ROWS, dtype=torch.int64)
    mask[7] = 0
    role = mask.to(torch.uint8)
    role[5] = 0
    arrays = dict(role=role, old_logprobs=numbers((ROWS,), 2) - 7, advantages=numbers((ROWS,), 3), seq_offsets=torch.tensor([0, ROWS]))
    moved, other, swapped = ids.clone(), mask.clone(), mask.clone()
    moved[9], other[8] = (ids[9] + 1) % 80, 0
    swapped[[7, 8]] = torch.tensor([1, 0])
    wrong = numbers((ROWS,), 3)
    wrong[20] = float("nan")
    leaf = lambda *shape: numbers(shape, 4).requires_grad_()
    right = dict(hidden=leaf(ROWS, WIDTH), weight=leaf(40, WIDTH), bias=leaf(40), ids=ids, mask=mask)
    # What the last process has in the place of the others' arguments.
    cases = {
        "nothing": {},
        "dtype of weight": dict(weight=leaf(40, WIDTH).detach().bfloat16().requires_grad_()),
        "dtype of all": {k: right[k].detach().bfloat16().requires_grad_() for k in ("hidden", "weight", "bias")},
        "float64": {k: right[k].detach().double().requires_grad_() for k in ("hidden", "weight", "bias")},
        "width of weight": dict(weight=leaf(40, WIDTH + 1)),
        "width of both": dict(hidden=leaf(ROWS, WIDTH + 1), weight=leaf(40, WIDTH + 1)),
        "no bias": dict(bias=None),
        "size of bias": dict(bias=leaf(41)),
        "weight of another shape": dict(weight=leaf(40)),
        "no weight": dict(weight=None),
        "frozen hidden": dict(hidden=leaf(ROWS, WIDTH).detach()),
        "frozen weight": dict(weight=leaf(40, WIDTH).detach()),
        "frozen bias": dict(bias=leaf(40).detach()),
        "all frozen": {k: right[k].detach() for k in ("hidden", "weight", "bias")},
        "rows": dict(hidden=leaf(9, WIDTH), ids=ids[:9], mask=mask[:9]),
        "no rows": dict(hidden=leaf(0, WIDTH), ids=ids[:0], mask=mask[:0]),
        "rows of hidden alone": dict(hidden=leaf(9, WIDTH)),
        "ids": dict(ids=moved),
        "an id beyond all": dict(ids=ids.masked_fill(ids == ids[9], 4000)),
        "mask": dict(mask=other),
        "another mask of as many rows": dict(mask=swapped),
        "no mask": dict(mask=None),
        "shape of mask": dict(mask=mask[:9]),
        "temperature": dict(temperature=0.5),
        "temperature 0": dict(temperature=0.0),
        "temperature of a word": dict(temperature="warm"),
        "softcap": dict(softcap=3.0),
        "logit_scale": dict(logit_scale=2.0),
        "chunk": dict(chunk=7),
        "chunk 0": dict(chunk=0),
        "entropy": dict(entropy=False),
        "lse": dict(lse=True),
        "log_sum_sq_probs": dict(log_sum_sq_probs=True),
    }
    of_loss = {
        "memory": dict(memory=4000),
        "memory 0": dict(memory=0),
        "policy": dict(policy="gspo"),
        "an unknown policy": dict(policy="gsop"),
        "an unknown option": dict(cliplow=1),
        "kl_coef": dict(kl_coef=0.1),
        "clip_low": dict(policy=reweight.PPO(clip_low=0.3)),
        "clip_low of a word": dict(policy=reweight.PPO(clip_low="low")),
        "seed": dict(policy=reweight.ClipCov(seed=9)),
        "aggregation": dict(aggregation="seq_mean_token_mean"),
        "seq_offsets": dict(seq_offsets=torch.tensor([0, 100, ROWS])),
        "no seq_offsets": dict(seq_offsets=None),
        "role": dict(role=(ids >= 0).to(torch.uint8)),
        "no advantages": dict(advantages=None),
        "dtype of advantages": dict(advantages=arrays["advantages"].double()),
        "length of old_logprobs": dict(old_logprobs=arrays["old_logprobs"][:9]),
        "role 7": dict(role=role.masked_fill(role == 1, 7)),
        "weights": dict(weights=numbers((ROWS,), 5)),
        "ref_logprobs": dict(ref_logprobs=arrays["advantages"]),
        "weights that are not finite": dict(weights=wrong),
        "batch": dict(batch={}),
    }

    def stats(**options):
        mine = {**right, **options}
        *tensors, ids = (mine.pop(name) for name in ("hidden", "weight", "ids"))
        results = linear_token_stats(*tensors, ids, group=group, **mine)
        if results[0].requires_grad:
            results[0].sum().backward()

    def loss(**options):
        mine = {**right, **options}
        del mine["mask"]
        batch = mine.pop("batch", None)
        if batch is None:
            batch = reweight.Batch(**{name: mine.pop(name, array) for name, array in arrays.items()})
            batch.ref_logprobs = mine.pop("ref_logprobs", None)
        *tensors, ids = (mine.pop(name) for name in ("hidden", "weight", "ids"))
        value, _ = linear_loss(*tensors, ids, batch, mine.pop("weights", None), group=group, **mine)
        if value.requires_grad:
            value.backward()

    found = {}

    def run(name, call):
        try:
            call()
            found[name] = ["", ""]
        except Exception as e:
            found[name] = [type(e).__name__, str(e)]
        dist.barrier(group)

    for name, options in cases.items():
        run("stats: " + name, lambda: stats(**options if last else {}))
        if not set(options) & {"mask", "entropy", "lse", "log_sum_sq_probs"}:
            run("loss: " + name, lambda: loss(**options if last else {}))
    for name, options in of_loss.items():
        run("loss: " + name, lambda: loss(**options if last else {}))
    run("another function", (lambda: loss()) if last else (lambda: stats()))
    run("no gradient", lambda: torch.no_grad()(stats)() if last else stats())
    run("no vocabulary", lambda: stats(weight=leaf(0, WIDTH), bias=leaf(0)))
    run("the same mistake in all", lambda: stats(temperature=-1.0))
    run("the same type in all", lambda: stats(temperature="warm"))
    run("the same id in all", lambda: stats(ids=ids.masked_fill(ids == ids[9], 4000)))
    run("no rows in all", lambda: stats(hidden=leaf(0, WIDTH), ids=ids[:0], mask=mask[:0]))
    run("nothing again", stats)
    return found


def main():
    mode, rank, ranks, store, *cuts = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method="file://" + store, rank=int(rank), world_size=int(ranks), timeout=datetime.timedelta(seconds=300)
    )
    function, found = {"bits": bits, "near": near, "refused": refused}[mode], {}
    for sizes in cuts:
        parts = [int(size) for size in sizes.split(",")]
        group = dist.new_group(range(len(parts)))  # every process takes part in making it
        found[sizes] = function(int(rank), parts, group) if int(rank) < len(parts) else None
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
