"""One training step on the responses of a file, up to the gradient that goes into the model: it
finds the actions, makes advantages and weights under ActFocus and AEM, and computes the loss.
main.go does the same in Go, and prints the same.

    python examples/step/step.py examples/step/responses.jsonl

The file has a JSON object per response: docs/formats.md says which fields there are. These are
answers of SmolLM2-135M-Instruct to two questions, and its own numbers.
"""

import json
import sys

import numpy as np
import reweight

with open(sys.argv[1], encoding="utf-8") as file:
    responses = [json.loads(line) for line in file]


def roles(texts):
    """What stands between the tags is the action, and the rest is reasoning."""
    ends = np.cumsum([len(text) for text in texts])
    starts = ends - [len(text) for text in texts]
    opening, closing = ("".join(texts).rfind(tag) for tag in ("<answer>", "</answer>"))
    action = (starts >= opening + len("<answer>")) & (ends <= closing)
    return np.where(action & (opening >= 0), reweight.ACTION, reweight.REASONING).astype(np.uint8)


def packed(name):
    return np.concatenate([np.array(response[name], np.float32) for response in responses])


lengths = [len(response["texts"]) for response in responses]
offsets = np.cumsum([0] + lengths, dtype=np.int64)
groups = {}  # responses to one prompt are compared with each other
batch = reweight.Batch(
    role=np.concatenate([roles(response["texts"]) for response in responses]),
    seq_offsets=offsets,
    span_ids=np.repeat(np.arange(len(lengths), dtype=np.int32), lengths),
    group_ids=np.array([groups.setdefault(r["group_id"], len(groups)) for r in responses], np.int32),
    rewards=np.array([response["reward"] for response in responses], np.float32),
    old_logprobs=packed("old_logprobs"),
    entropy=packed("entropy"),
    ref_energy=packed("ref_energy"),
)
batch.logprobs = batch.old_logprobs  # until the first update; then those of the current policy
batch.advantages = reweight.grpo(batch) * reweight.aem(batch)
weights = reweight.actfocus(batch).weights
loss = reweight.loss(batch, weights)

print(f"{len(lengths)} responses of {offsets[-1]} tokens, loss {loss.loss:.6f}")
print("reward  tokens  actions  their weight  advantage  gradient of actions, of reasoning")
for i, (begin, end) in enumerate(zip(offsets[:-1], offsets[1:])):
    w, grad = weights[begin:end].astype(float), loss.grad[begin:end].astype(float)  # grad is dL/dlogprob
    action = batch.role[begin:end] == reweight.ACTION
    print(
        f"{batch.rewards[i]:6.0f} {end - begin:7} {action.sum():8} {100 * w[action].sum() / w.sum():12.1f}%"
        f" {batch.advantages[begin]:10.4f} {grad[action].sum():20.6f} {grad[~action].sum():13.6f}"
    )
