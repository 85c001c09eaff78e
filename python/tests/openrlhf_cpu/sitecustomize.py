"""Writes what passes through OpenRLHF to the folder that the variable SPY names, a file for each call: the experiences
of a batch, and what PolicyLoss gets and what gradient it gives the log-probabilities. Python imports a module of this
name when a process starts."""

import functools
import os
import sys
import uuid


def write(kind, content):
    import torch

    torch.save(content, os.path.join(os.environ["SPY"], f"{kind}-{uuid.uuid4()}.pt"))


def after(owner, name, act):
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapper(*args, **options):
        return act(original, *args, **options)

    setattr(owner, name, wrapper)


def batch(original, maker, samples):
    experiences = original(maker, samples)
    write("batch", [{**vars(e), "mm_train_inputs": None} for e in experiences])
    return experiences


def loss(original, self, log_probs, old, advantages, **options):
    log_probs = log_probs.view_as(log_probs)  # whose gradient is PolicyLoss's alone
    seen = {"new": log_probs.detach(), "old": old, "mask": options["action_mask"], "nccl": os.environ.get("NCCL_DEBUG")}
    log_probs.register_hook(lambda gradient: write("loss", {**seen, "gradient": gradient}))
    return original(self, log_probs, old, advantages, **options)


if "SPY" in os.environ:
    from reweight.adapters._hooks import when_imported

    maker, policy_loss = "openrlhf.trainer.ppo_utils.experience_maker", "openrlhf.models.loss"
    when_imported(maker, lambda: after(sys.modules[maker].RemoteExperienceMaker, "make_experience_batch", batch))
    when_imported(policy_loss, lambda: after(sys.modules[policy_loss].PolicyLoss, "forward", loss))
