"""Times token statistics of this package beside what else computes log-probabilities and entropies of the same logits,
on the same GPU in the same rounds: the median, and the share of the time in which the GPU copies as many bytes as are read."""

import statistics
import sys

import torch

import reweight

if not torch.cuda.is_available():
    print("PyTorch finds no GPU")
    sys.exit(127)
ROUNDS, ROWS, VOCAB = 30, 8192, 151936


def plain(logits, ids):
    logp = torch.log_softmax(logits.float(), -1)
    return logp.gather(-1, ids[..., None])[..., 0], -(logp.exp() * logp).sum(-1)


def trl():
    from trl.kernels.logprob_entropy import selective_log_softmax_and_entropy

    return selective_log_softmax_and_entropy


def liger():
    from liger_kernel.ops.grpo_loss import fused_selective_log_softmax

    # It leaves out the last row of each sequence.
    return lambda logits, ids: (fused_selective_log_softmax(logits, ids[:, 1:], temperature=1.0), None)


def ours(logits, ids):
    stats = reweight.token_stats(logits, ids)
    return stats.logprobs, stats.entropy


def cut(logits, ids):
    return ours(logits[:, :-1], ids[:, 1:])


MAKERS = {
    "reweight": lambda: ours,
    "reweight, logits[:, :-1]": lambda: cut,
    "TRL's Triton kernel": trl,
    "Liger, no entropy": liger,
    "torch.compile": lambda: torch.compile(plain),
}


def milliseconds(call):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


for dtype in (torch.bfloat16, torch.float32):
    logits = (3 * torch.randn(8, ROWS // 8, VOCAB, device="cuda", dtype=dtype)).contiguous()
    ids = torch.randint(VOCAB, (8, ROWS // 8), device="cuda")
    half = logits.view(-1)[: logits.numel() // 2], logits.view(-1)[logits.numel() // 2 :]
    other = torch.empty_like(half[0])
    calls = {"copy of half, as many bytes": lambda: other.copy_(half[1])}
    for name, make in MAKERS.items():
        try:
            function = make()
            logprobs = function(logits, ids)[0]
            torch.cuda.synchronize()
            calls[name] = lambda function=function: function(logits, ids)
            print(f"{dtype} {name}: mean log-probability {logprobs.mean().item():.6f}")
        except Exception as error:  # what is not installed, or does not work here, is said and left out
            print(f"{dtype} {name}: {type(error).__name__}: {error}".splitlines()[0])
    times = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            times[name].append(milliseconds(call))
    copied = statistics.median(times["copy of half, as many bytes"])
    for name, found in times.items():
        took = statistics.median(found)
        print(f"{dtype} {name}: {took:.3f} ms, {copied / took:.2f} of the copy")
    reweight.check()
    del logits, half, other, calls
