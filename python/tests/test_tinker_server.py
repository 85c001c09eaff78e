"""reweight.adapters.tinker with a service of Tinker that trains: SkyRL's server with its JAX backend, on a CPU. A tiny model,
which was taught to answer, learns by examples/tinker, and the losses and the lengths of the gradients that the server returns
are compared with the formulas in float64."""

import contextlib
import importlib.util
import io
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

if any(importlib.util.find_spec(name) is None for name in ("tinker", "skyrl", "uv")):
    raise unittest.SkipTest("tinker, SkyRL and uv, by which its server starts, are not installed")

import numpy as np
import tinker
import torch
from safetensors.torch import load as load_safetensors
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from reweight.adapters import Credit
from reweight.adapters.tinker import credit_datums

WORDS = ["<pad>", "<end>", "<answer>", "</answer>", *"0123456789", ".", "?", "*", " "]
OPEN, CLOSE, THINK, QUESTION = 2, 3, 14, 15
LOSSES = ("importance_sampling", "ppo", "cispo")

spec = importlib.util.spec_from_file_location("recipe", Path(__file__).parents[2] / "examples/tinker/train.py")
recipe = importlib.util.module_from_spec(spec)
spec.loader.exec_module(recipe)


def padded(rows):
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


def make_model(folder):
    """A model that answers 11 * 11 right in half of the cases, after some thought."""
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Split(Regex("</?answer>|."), "isolated")
    words.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<end>", unk_token="?")
    tokenizer.chat_template = "{{ messages[0]['content'].partition('?')[0] }}?"
    torch.manual_seed(0)
    shape = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8)
    model = Qwen3ForCausalLM(Qwen3Config(vocab_size=len(WORDS), pad_token_id=0, eos_token_id=1, tie_word_embeddings=False, **shape))
    optimizer, r = torch.optim.Adam(model.parameters(), 1e-2), random.Random(0)
    prompt = tokenizer.encode("11 * 11?", add_special_tokens=False)
    for _ in range(100):
        rows = []
        for _ in range(8):
            said = ["121", "1" + str(r.randrange(10))][r.randrange(2)]
            rows.append([*prompt, *[THINK] * r.randrange(1, 6), OPEN, *(4 + int(digit) for digit in said), CLOSE, 1])
        ids = padded(rows)
        logits = model(ids).logits[:, len(prompt) - 1 : -1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, len(prompt) :].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def exact(folder, adapter, datums, loss_fn):
    """In float64: the loss of each token by Tinker's formulas, and the length of the gradient of what SkyRL makes of them,
    the mean over datums of the mean over their tokens, by the LoRA weights of the adapter."""
    model = Qwen3ForCausalLM.from_pretrained(folder).double()
    weights, values = dict(model.named_parameters()), {name: x.double().requires_grad_() for name, x in adapter["weights"].items()}
    for name in values:
        if ".lora_A." in name:
            of = name.removeprefix("base_model.model.").replace(".lora_A", "")
            weights[of] = weights[of].detach() + adapter["scale"] * values[name.replace("lora_A", "lora_B")] @ values[name]
    inputs = padded([datum.model_input.to_ints() for datum in datums])
    losses, total = [], 0.0
    for datum, logits in zip(datums, torch.func.functional_call(model, weights, (inputs,)).logits):
        targets, old, advantages = (
            torch.from_numpy(datum.loss_fn_inputs[name].to_numpy().copy()) for name in ("target_tokens", "logprobs", "advantages")
        )
        new = logits[: len(targets)].log_softmax(-1).gather(1, targets[:, None].long())[:, 0]
        ratio, a = (new - old.double()).exp(), advantages.double()
        if loss_fn == "ppo":
            terms = torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a)
        elif loss_fn == "cispo":
            terms = ratio.clamp(0.8, 1.2).detach() * new * a
        else:
            terms = ratio * a
        losses.append(-terms.detach().numpy())
        total = total - terms.mean() / len(datums)
    gradient = torch.autograd.grad(total, list(values.values()))
    return losses, float(sum((g**2).sum() for g in gradient) ** 0.5)


def weighted(datum, advantage):
    """The advantages that the credit of the recipe makes of one for the whole answer, by ActFocus's formula."""
    ids = datum.loss_fn_inputs["target_tokens"].to_numpy().tolist()
    weights, inside = np.zeros(len(ids)), False
    for t in range(ids.index(QUESTION) + 1, len(ids)):
        inside = inside or ids[t] == OPEN and [x for x in ids[t + 1 :] if x in (OPEN, CLOSE)][:1] == [CLOSE]
        weights[t] = 1.0 if inside else recipe.CREDIT.alpha
        inside = inside and ids[t] != CLOSE
    return weights * advantage


class Server(unittest.TestCase):
    worst = {"advantages": 0.0, "loss": 0.0, "gradient": 0.0, "later gradient": 0.0}

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        make_model(cls.folder / "model")
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "VIRTUAL_ENV": sys.prefix, "HF_HUB_OFFLINE": "1"}
        environment["PATH"] = os.path.dirname(sys.executable) + os.pathsep + environment["PATH"]
        log = cls.enterClassContext(open(cls.folder / "log", "wb"))
        cls.server = subprocess.Popen(
            [
                *("uv", "run", "--offline", "--no-project", "-m", "skyrl.tinker.api", "--host", "127.0.0.1", "--port", str(port)),
                *("--base-model", cls.folder / "model", "--checkpoints-base", cls.folder / "checkpoints", "--backend", "jax"),
                *("--backend-config", json.dumps({"max_lora_adapters": 3, "max_lora_rank": 32})),
                *("--database-url", f"sqlite:///{cls.folder}/tinker.db"),
            ],
            cwd=cls.folder, env=environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        cls.addClassCleanup(cls.stop)
        url = f"http://127.0.0.1:{port}"
        for name, value in ("TINKER_BASE_URL", url), ("TINKER_API_KEY", "tml-none"):
            cls.enterClassContext(mock.patch.dict(os.environ, {name: value}))
        cls.enterClassContext(mock.patch.object(recipe, "MODEL", str(cls.folder / "model")))
        end = time.monotonic() + 120
        while time.monotonic() < end:
            with contextlib.suppress(OSError), urllib.request.urlopen(url + "/api/v1/healthz"):
                return
            if cls.server.poll() is not None:
                break
            time.sleep(0.5)
        raise AssertionError((cls.folder / "log").read_text()[-4000:])

    @classmethod
    def stop(cls):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(cls.server.pid, signal.SIGKILL)
        cls.server.wait()

    @classmethod
    def tearDownClass(cls):
        sys.stderr.write("\nSkyRL's server: " + ", ".join(f"{name} within {off:.1e}" for name, off in cls.worst.items()) + "\n")

    def adapter(self, path):
        """The LoRA weights that the server has saved for sampling, of a path below its checkpoints."""
        with tarfile.open(self.folder / "checkpoints" / path) as archive:
            files = {Path(m.name).name: archive.extractfile(m).read() for m in archive.getmembers() if m.isfile()}
        config = json.loads(files["adapter_config.json"])
        return {"weights": load_safetensors(files["adapter_model.safetensors"]), "scale": config["lora_alpha"] / config["r"]}

    def near(self, name, got, want, bound):
        off = np.abs(np.asarray(got) - want).max() / np.abs(want).max()
        self.worst[name] = max(self.worst[name], off)
        self.assertLess(off, bound, name)

    def compare(self, adapter, datums, loss_fn, learned, stepped):
        """Once the second matrices of LoRA are not 0 any more, the gradient of SkyRL 0.4.0 is off by up to 0.6%."""
        losses, length = exact(self.folder / "model", adapter, datums, loss_fn)
        got = [output["elementwise_loss"].to_numpy() for output in learned.loss_fn_outputs]
        self.near("loss", np.concatenate(got), np.concatenate(losses), 1e-5)
        moved = any(x.any() for name, x in adapter["weights"].items() if ".lora_B." in name)
        self.near("later gradient" if moved else "gradient", stepped.metrics["skyrl.ai/grad_norm"], length, 1e-2 if moved else 1e-5)

    def test_recipe(self):
        """examples/tinker, whose rate is made greater, for four steps."""
        sent, stepped, rate = [], [], tinker.AdamParams
        forward_backward, optim_step = tinker.TrainingClient.forward_backward, tinker.TrainingClient.optim_step

        def send(client, datums, loss_fn):
            sent.append((client, datums, loss_fn, forward_backward(client, datums, loss_fn)))
            return sent[-1][3]

        def step(client, how):
            stepped.append(optim_step(client, how))
            return stepped[-1]

        def later(make):  # what makes a client returns a future of it in newer versions of tinker
            return lambda *args, **options: SimpleNamespace(result=lambda: make(*args, **options))

        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.multiple(tinker.TrainingClient, forward_backward=send, optim_step=step))
            for owner, name in (tinker.ServiceClient, "create_lora_training_client"), (tinker.TrainingClient, "save_weights_and_get_sampling_client"):
                stack.enter_context(mock.patch.object(owner, name, later(getattr(owner, name))))
            stack.enter_context(mock.patch.object(tinker, "AdamParams", lambda learning_rate: rate(learning_rate=2e-3)))
            stack.enter_context(mock.patch.object(recipe.random, "randint", lambda low, high: 11))
            said = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            recipe.main(4, 2, 16)
        rewards = [float(line.split()[2].rstrip(",")) for line in said.getvalue().splitlines()]
        self.assertEqual([len(sent), len(stepped)], [4, 4])
        self.assertTrue(any(0 < reward < 1 for reward in rewards))
        for at, ((client, datums, loss_fn, learned), step, reward) in enumerate(zip(sent, stepped, rewards)):
            [saved] = (self.folder / "checkpoints" / client.get_info().model_id).glob(f"sampler_weights/ss{at}_*.tar.gz")
            self.compare(self.adapter(saved), datums, loss_fn, learned.result(), step.result())
            texts = ["".join(WORDS[i] for i in datum.loss_fn_inputs["target_tokens"].to_numpy()) for datum in datums]
            scores = np.array(["<answer>121</answer>" in text for text in texts]).reshape(2, 16).astype(float)
            self.assertAlmostEqual(scores.mean(), reward, delta=1e-3)
            own = (scores - scores.mean(1, keepdims=True)).reshape(-1)
            want = [weighted(datum, a) for datum, a in zip(datums, own)]
            if np.any(own):
                self.near("advantages", np.concatenate([d.loss_fn_inputs["advantages"].to_numpy() for d in datums]), np.concatenate(want), 1e-6)

    def test_losses(self):
        """Each loss of an older policy, whose ratios are clipped."""
        training, r = tinker.ServiceClient().create_lora_training_client(base_model=recipe.MODEL, rank=4), random.Random(1)
        tokenizer, rewards = training.get_tokenizer(), [0.0, 1.0] * 4
        prompt = tokenizer.encode("11 * 11?", add_special_tokens=False)
        for loss_fn in LOSSES:
            training.save_weights_for_sampler(loss_fn).result()
            adapter, datums = self.adapter(Path(training.get_info().model_id, "sampler_weights", f"{loss_fn}.tar.gz")), []
            for reward in rewards:
                tokens = [*[THINK] * r.randrange(1, 6), OPEN, *(r.randrange(4, 14) for _ in range(3)), CLOSE, 1]
                answer = SimpleNamespace(tokens=tokens, logprobs=[-r.uniform(0.01, 4) for _ in tokens])
                datums.append(recipe.datum(prompt, answer, reward - 0.5))
            credit_datums(datums, [0] * 8, rewards, recipe.CREDIT, tokenizer=tokenizer)
            for datum in datums:
                del datum.loss_fn_inputs["mask"]
            learned = training.forward_backward(datums, loss_fn).result()
            stepped = training.optim_step(tinker.AdamParams(learning_rate=0.0)).result()
            self.compare(adapter, datums, loss_fn, learned, stepped)


if __name__ == "__main__":
    unittest.main()
