"""GRPO with ActFocus on Tinker: a model learns to multiply. `pip install tinker reweight-rl`, TINKER_API_KEY, and run it."""

import random
import sys

import tinker

from reweight.adapters import Credit
from reweight.adapters.tinker import credit_datums

MODEL = "Qwen/Qwen3-4B-Instruct-2507"
CREDIT = Credit("actfocus")  # actions are what stands between <answer> and </answer>


def datum(prompt, answer, advantage):
    """Targets are the tokens after each token, so that the first target is the prompt's second token."""
    told, said = len(prompt) - 1, len(answer.tokens)
    fields = {
        "target_tokens": [*prompt[1:], *answer.tokens],
        "logprobs": [0.0] * told + list(answer.logprobs),
        "advantages": [0.0] * told + [advantage] * said,
        "mask": [0.0] * told + [1.0] * said,
    }
    return tinker.Datum(model_input=tinker.ModelInput.from_ints([*prompt, *answer.tokens[:-1]]), loss_fn_inputs={
        name: tinker.TensorData(data=x, dtype="int64" if name == "target_tokens" else "float32") for name, x in fields.items()})


def main(steps=50, prompts=16, samples=8):
    training = tinker.ServiceClient().create_lora_training_client(base_model=MODEL).result()
    tokenizer = training.get_tokenizer()
    for step in range(steps):
        sampler, asked = training.save_weights_and_get_sampling_client().result(), []
        how = tinker.SamplingParams(max_tokens=256, stop=[tokenizer.eos_token_id])
        for _ in range(prompts):
            a, b = random.randint(11, 99), random.randint(11, 99)
            question = {"role": "user", "content": f"{a} * {b}? Think, then end with <answer>the number</answer>."}
            text = tokenizer.apply_chat_template([question], tokenize=False, add_generation_prompt=True)
            prompt = tokenizer.encode(text, add_special_tokens=False)
            asked.append((prompt, a * b, sampler.sample(tinker.ModelInput.from_ints(prompt), samples, how)))
        datums, groups, rewards = [], [], []
        for group, (prompt, want, future) in enumerate(asked):
            answers = future.result().sequences
            scores = [float(f"<answer>{want}</answer>" in tokenizer.decode(answer.tokens)) for answer in answers]
            datums += [datum(prompt, x, score - sum(scores) / len(scores)) for x, score in zip(answers, scores)]
            groups, rewards = groups + [group] * len(answers), rewards + scores
        log = credit_datums(datums, groups, rewards, CREDIT, tokenizer=tokenizer)
        for d in datums:
            del d.loss_fn_inputs["mask"]  # which the service does not take
        learned = training.forward_backward(datums, loss_fn="importance_sampling")
        training.optim_step(tinker.AdamParams(learning_rate=4e-5)).result()
        learned.result()
        print(f"{step} reward {sum(rewards) / len(rewards):.3f}, answers have {log['credit/action_weight']:.1%} of the weight")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
