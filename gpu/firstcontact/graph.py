"""Captures a step on rows of logits in a CUDA graph, replays it, and compares the bits with those of the CPU."""

import torch

import reweight

logits = 3 * torch.randn(300, 5000)
logits = logits.bfloat16()
ids, grad = torch.randint(5000, (300,)), torch.randn(300)
want = reweight.token_stats(logits, ids)
want_gradient = reweight.row_gradient(logits, ids, want.logprobs, grad)

reweight.prepare(0, dtypes=[torch.bfloat16], functions=["token_stats", "row_gradient"])
there, chosen, g = torch.zeros_like(logits).cuda(), ids.cuda(), grad.cuda()
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    stats = reweight.token_stats(there, chosen)
    gradient = reweight.row_gradient(there, chosen, stats.logprobs, g)
there.copy_(logits)
graph.replay()
reweight.check()
for name, got, expected in (*zip(stats._fields, stats, want), ("gradient", gradient, want_gradient)):
    print(name, "same bits" if torch.equal(got.cpu(), expected) else "OTHER BITS")
