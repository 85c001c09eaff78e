"""Computes on two streams at once, and compares the bits with those of the CPU."""

import torch

import reweight

reweight.prepare(0, dtypes=[torch.bfloat16], functions=["token_stats", "row_gradient"])
cases, streams = [], [torch.cuda.Stream() for _ in range(2)]
for _ in range(40):
    logits, ids, grad = (3 * torch.randn(60, 5000)).bfloat16(), torch.randint(5000, (60,)), torch.randn(60)
    cases.append((logits, ids, grad, [x.cuda() for x in (logits, ids, grad)]))
torch.cuda.synchronize()
results = []
for i, (_, _, _, (logits, ids, grad)) in enumerate(cases):
    with torch.cuda.stream(streams[i % 2]):
        stats = reweight.token_stats(logits, ids)
        results.append((stats.logprobs, reweight.row_gradient(logits, ids, stats.logprobs, grad)))
reweight.check()
for (logits, ids, grad, _), (logprobs, gradient) in zip(cases, results):
    want = reweight.token_stats(logits, ids)
    if not torch.equal(logprobs.cpu(), want.logprobs):
        raise SystemExit("OTHER BITS of log-probabilities")
    if not torch.equal(gradient.cpu(), reweight.row_gradient(logits, ids, want.logprobs, grad)):
        raise SystemExit("OTHER BITS of gradients")
print(len(cases), "calls of each on two streams: same bits")
