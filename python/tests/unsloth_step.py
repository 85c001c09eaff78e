"""Trains a small model by Unsloth's GRPOTrainer with a credit, case by case, and prints how far each gradient is off."""

import copy
import json
import sys

import unsloth  # before TRL
from unsloth.models.rl import PatchFastRL

PatchFastRL("GRPO", unsloth.FastLanguageModel)

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from torch._dynamo.utils import get_compilation_metrics
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from reweight import InputError
from reweight.adapters import Credit, trl
from reweight.adapters._unsloth import completions

WORDS = ["<pad>", "<eos>", "<answer>", "</answer>", *(f"w{i}" for i in range(12))]


def made():
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, eos_token_id=1, bos_token_id=1, initializer_range=0.3,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained("model")
    model = LlamaForCausalLM.from_pretrained("model")  # of a name, by which TRL makes the reference
    model.max_seq_length, model._unsloth_user_float32 = 128, True
    model.for_training = lambda *a, **k: model.train()  # what FastLanguageModel gives its models
    model.for_inference = lambda *a, **k: model.eval()
    t = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="w0"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return model, PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", eos_token="<eos>", padding_side="left")


def logps(model, inputs):
    """The log-probabilities [B, T] of the completions, by a plain forward pass."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    width = inputs["completion_ids"].shape[1]
    logits = model(input_ids=ids, attention_mask=mask).logits[:, -width - 1 : -1].double()
    return logits.log_softmax(-1).gather(-1, ids[:, -width:, None])[..., 0]


def exact(trainer, model, first, inputs):
    """The loss in float64."""
    mask = inputs["completion_mask"] * (inputs["completion_ids"] != 0)
    new, advantages, kind = logps(model, inputs), inputs["advantages"].double(), trainer.loss_type
    old = new.detach() if inputs.get("old_per_token_logps") is None else completions(trainer, inputs, inputs["old_per_token_logps"]).double()
    ratio = (new - old).exp()
    terms = torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    if kind == "cispo":
        terms = ratio.clamp(max=trainer.epsilon_high).detach() * advantages * new
    elif kind == "sapo":
        tau = torch.where(advantages > 0, trainer.args.sapo_temperature_pos, trainer.args.sapo_temperature_neg)
        terms = torch.sigmoid(tau * (ratio - 1)) * 4 / tau * advantages
    if trainer.beta:
        with torch.no_grad():
            d = logps(first, inputs)
        terms = terms - trainer.beta * ((d - new).exp() - (d - new) - 1)
    terms, steps = terms.where(mask > 0, 0), trainer.current_gradient_accumulation_steps
    if kind in ("grpo", "sapo"):
        return -(terms.sum(1) / mask.sum(1).clamp(min=1)).mean() / steps
    if kind == "bnpo":
        return -terms.sum() / mask.sum().clamp(min=1) / steps
    if kind == "dr_grpo":
        return -terms.sum() / (len(mask) * trainer.max_completion_length) / steps
    return -terms.sum() / (inputs["num_items_in_batch"] * steps / trainer.args.steps_per_generation)


def run(case):
    steps = []
    model, tokenizer = made()
    first = copy.deepcopy(model)
    prompts = [{"prompt": " ".join(f"w{i * k % 12}" for k in range(1, 2 + i % 5))} for i in range(32)]
    credit = Credit(entropy=case.pop("entropy", "surprisal"), guard=0.0, tags=("w1", "w2"))
    mixin = case.pop("mixin", False)
    settings = dict(
        output_dir="out", per_device_train_batch_size=4, gradient_accumulation_steps=2, steps_per_generation=4, num_generations=4,
        max_completion_length=10, learning_rate=1e-3, max_steps=4, logging_steps=1, report_to=[], use_cpu=True, bf16=False,
        fp16=False, save_strategy="no", seed=1, gradient_checkpointing=False, loss_type="dapo", beta=0.0, optim="sgd",
        max_grad_norm=1e9, disable_tqdm=True, temperature=1.0, epsilon_high=0.2,
        generation_kwargs={"suppress_tokens": [0]},  # padding, which Unsloth takes out of the middle of a completion
    )  # fmt: skip
    arguments = dict(
        model=model, args=GRPOConfig(**{**settings, **case}), train_dataset=Dataset.from_list(prompts), processing_class=tokenizer,
        reward_funcs=lambda completions, **_: [float(len(set(c.split())) % 5) for c in completions],
    )  # fmt: skip
    try:
        if mixin:
            trl.install(None)
            trainer = trl.GRPOTrainer(credit=credit, **arguments)
        else:
            trl.install(credit)
            trainer = GRPOTrainer(**arguments)
    except InputError as error:
        return str(error)
    compute_loss, forwards = trainer.compute_loss, []

    def seen(of, batch, given):  # of the forward pass where the trainer has no log-probabilities
        found = completions(of, batch, given)
        mask = batch["completion_mask"] > 0
        forwards.append(float((found - logps(model, batch)).where(mask, 0).abs().max()) if given is not None else 0.0)
        return found

    trl.completions = seen
    parameters = [p for p in model.parameters() if p.requires_grad]

    def checked(of, inputs, *rest, **more):
        loss = compute_loss(of, inputs, *rest, **more)
        got = torch.autograd.grad(loss, parameters, retain_graph=True)
        value = exact(trainer, model, first, inputs)
        want = torch.autograd.grad(value, parameters)
        norm = sum(w.norm() ** 2 for w in want) ** 0.5
        off = sum((g - w).norm() ** 2 for g, w in zip(got, want)) ** 0.5
        padding, old, apart = (inputs["prompt_ids"] == 0).sum(1), inputs.get("old_per_token_logps"), 0.0
        if old is not None and trainer.state.global_step == 0:  # of the policy as it is
            apart = (completions(trainer, inputs, old) - logps(model, inputs)).where(inputs["completion_mask"] > 0, 0).abs().max()
        step = {"gradient": off / norm if norm else off, "loss": (loss - value).abs(), "old_logprobs": apart, "padding": padding.max() - padding.min()}
        steps.append({"old": old is not None, **{name: float(x) for name, x in step.items()}})
        return loss

    trainer.compute_loss = checked
    trainer.train()
    steps[0]["forwards"] = forwards
    steps[0]["compiled"] = sorted({x.co_name for x in get_compilation_metrics() if x.co_name and not x.fail_type})
    return steps


print(json.dumps([run(case) for case in json.loads(sys.argv[1])]))
