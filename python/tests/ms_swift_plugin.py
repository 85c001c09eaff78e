"""What test_ms_swift gives to swift rlhf as --external_plugins: a reward, the credit, and a record of every batch before and
after the credit in the folder RECORDS."""

import os

import numpy as np
import torch
from swift.rewards import ORM, orms
from swift.rlhf_trainers.grpo_trainer import GRPOTrainer

from reweight.adapters import Credit, ms_swift


class Left(ORM):
    def __call__(self, completions, **_):
        return [c.count("Left") - 0.1 * len(c.split()) for c in completions]


orms["left"] = Left
before = []
original = GRPOTrainer._postprocess_batch


def plain(self, samples, batch_encoded_inputs):
    original(self, samples, batch_encoded_inputs)
    before[:] = [one["grpo_batch"].advantages.clone() for one in batch_encoded_inputs]


def credited(self, samples, encoded):
    installed(self, samples, encoded)
    rows = {name: [] for name in ("ids", "mask", "truncated", "before", "after", "surprisal", "entropy")}
    for A, one in zip(before, encoded):
        batch, ids = one["grpo_batch"], one["model_inputs"]["input_ids"]
        there = dict(input_ids=ids, attention_mask=one["model_inputs"]["attention_mask"])
        width = batch.completion_mask.shape[1]
        with torch.no_grad():
            l = torch.log_softmax(self.model(**there).logits.double()[:, -width - 1 : -1] / self.temperature, -1)
        ids = ids[:, -width:]
        of_batch = {"ids": ids, "mask": batch.completion_mask, "before": A, "after": batch.advantages, "entropy": -(l.exp() * l).sum(-1)}
        of_batch["surprisal"] = -l.gather(-1, ids[..., None])[..., 0]
        of_batch["truncated"] = batch.truncated_mask[:, None].expand(-1, width)
        for name, x in of_batch.items():
            rows[name] += list(np.pad(x.double().numpy(), ((0, 0), (0, 64 - width))))
    number = len(os.listdir(os.environ["RECORDS"]))
    np.savez(f"{os.environ['RECORDS']}/{number}.npz", loss_type=self.loss_type, **{name: np.array(of) for name, of in rows.items()})


if os.environ["RECORDS"]:
    GRPOTrainer._postprocess_batch = plain
ms_swift.install(Credit(beta=2.0, guard=0.0, show_every=2, save_every=2, dir=os.environ["RECORDS"] + "-pages"))
if os.environ["RECORDS"]:
    installed = GRPOTrainer._postprocess_batch
    GRPOTrainer._postprocess_batch = credited
