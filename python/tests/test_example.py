"""examples/trl, with a tiny model in the place of SmolLM2."""

import contextlib
import importlib.util
import io
import os
import re
import sys
import tempfile
import unittest
import warnings
from unittest import mock

from support import ROOT, needs_go, program

if importlib.util.find_spec("trl") is None:
    raise unittest.SkipTest("TRL is not installed")

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import numpy as np
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from test_show import sections
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WORDS = "<|im_start|> <|im_end|> <unk> <answer> </answer> Wrong. Paris Tokyo cold small white".split()


def write_model(folder):
    """Writes a model that was not trained, of so few words that it puts one between tags now and then."""
    t = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    t.pre_tokenizer, t.decoder = pre_tokenizers.WhitespaceSplit(), decoders.Fuse()
    t.add_special_tokens(WORDS[:2])
    PreTrainedTokenizerFast(tokenizer_object=t, eos_token=WORDS[1], pad_token=WORDS[1]).save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, pad_token_id=1, eos_token_id=1, bos_token_id=0, initializer_range=0.2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)


@needs_go
class Example(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        spec = importlib.util.spec_from_file_location("game", ROOT / "examples" / "trl" / "game.py")
        cls.game = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(cls.game)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        write_model(cls.folder)

    def play(self, arm, *more):
        """Trains three steps, and returns the lines that are printed and TensorBoard's scalars."""
        out = io.StringIO()
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.dict(os.environ, PATH=program().name + os.pathsep + os.environ["PATH"]))
            stack.enter_context(contextlib.redirect_stdout(out))
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            self.game.main(["--model", self.folder, "--steps", "3", "--out", f"{self.folder}/{arm}", *more])
        (run,) = os.listdir(f"{self.folder}/{arm}/runs")
        events = EventAccumulator(f"{self.folder}/{arm}/runs/{run}")
        events.Reload()
        return out.getvalue().splitlines(), {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}

    def test_arms(self):
        plain, without = self.play("plain")
        lines, scalars = self.play("credit", "--credit")
        for printed in plain, lines:
            self.assertEqual([line.split()[0] for line in printed], ["1", "2", "3", "a"])
        self.assertEqual(plain[0].split()[:3], lines[0].split()[:3])  # the same games before the first step
        self.assertIn(" action_weight ", lines[0])
        self.assertFalse([tag for tag in without if "credit" in tag])
        self.assertEqual(len(scalars["train/credit/action_weight"]), 3)
        self.assertGreater(max(event.value for event in without["train/reward_std"]), 0)
        self.assertEqual(os.listdir(f"{self.folder}/credit/pages"), ["credit-step-000001.html"])
        found = sections(f"{self.folder}/credit/pages/credit-step-000001.html")
        self.assertEqual(len(found), 8)
        for title, tokens in found:
            reward = float(re.search("reward (.*?),", title)[1])
            roles = "".join(role[0] for role in tokens["role"])  # masked, reasoning, action
            answers = re.findall("[ra]+", roles)
            self.assertEqual(len(answers), 1 if reward == 1 else 2, title)
            self.assertIn(reward, (0, np.float32(0.05), 0.5, 1))

    def test_audit(self):
        """The program with audits, for four steps: what it prints, and the files that it leaves."""
        spec = importlib.util.spec_from_file_location("audit", ROOT / "examples" / "trl" / "audit.py")
        program_ = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(program_)
        for scheme, names in ("uniform", ["reward", "prompts"]), ("measured", ["reward", "weight_action"]):
            out, folder = io.StringIO(), f"{self.folder}/{scheme}"
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program_.main(["--steps", "4", "--out", folder, "--scheme", scheme])
            lines = out.getvalue().splitlines()
            self.assertEqual([line.split()[0] for line in lines], ["1", "2", "4"])
            self.assertEqual([lines[0].split()[1], lines[0].split()[3]], names)
            self.assertTrue({"audit.json", f"{scheme}-step-000004-audit.html"} <= set(os.listdir(folder)))

    def test_rewards_of_turns(self):
        """The game of three turns, for two steps with their rewards and with the sums."""
        with mock.patch.object(sys, "path", [str(ROOT / "examples" / "trl"), *sys.path]):
            turns = importlib.import_module("turns")
        games = []

        def play(prompts, trainer, play=turns.play):
            games.append(play(prompts, trainer))
            return games[-1]

        for name, more in ("turns", []), ("sums", ["--sums"]):
            out, said, folder = io.StringIO(), io.StringIO(), f"{self.folder}/{name}"
            with contextlib.ExitStack() as stack:
                stack.enter_context(mock.patch.object(turns, "play", play))
                stack.enter_context(mock.patch.dict(os.environ, PATH=program().name + os.pathsep + os.environ["PATH"]))
                stack.enter_context(contextlib.redirect_stdout(out))
                stack.enter_context(contextlib.redirect_stderr(said))
                stack.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
                turns.main(["--steps", "2", "--out", folder, *more])
            self.assertRegex(out.getvalue(), r"^steps 1 to 2: \d\.\d\d right answers of 3$")
            self.assertIn("returns of turns" if name == "turns" else "uniform weights", said.getvalue())
            self.assertEqual(len(sections(f"{folder}/{name}-step-000001.html")), 8)
        for game in games:
            self.assertEqual({len(rewards) for rewards in game["turn_rewards"]}, {3})
            self.assertGreater(sum(map(sum, game["turn_rewards"])), 0)
            for i, (ids, mask) in enumerate(zip(game["completion_ids"], game["env_mask"])):
                self.assertEqual(len(ids), len(mask))
                said = [ids[k] for k, own in enumerate(mask) if not own]
                self.assertEqual(len(said), 4)  # two colours before each of two turns
                group = slice(i // 8 * 8, i // 8 * 8 + 8)
                of_group = zip(game["completion_ids"][group], game["env_mask"][group])
                self.assertEqual([[k for k, own in zip(*g) if not own] for g in of_group], [said] * 8)

    def test_turns(self):
        """A game ends with a right answer, which has half the reward the second time. The environment is masked."""
        words = PreTrainedTokenizerFast.from_pretrained(self.folder)
        right, wrong, bare = ("<answer> Paris </answer>", "<answer> Tokyo </answer> <|im_end|>", "Tokyo <|im_end|>")
        script = iter([[right, wrong, bare, wrong], [right + " <|im_end|>", wrong, bare]])
        asked = []

        def sample(trainer, prompts):
            asked.append(prompts)
            return [words.encode(answer) for answer in next(script)]

        with mock.patch.object(self.game, "sample", sample):
            played = self.game.play(["What is the capital of France?"] * 4, mock.Mock(processing_class=words))
        self.assertEqual([len(prompts) for prompts in asked], [4, 3])
        self.assertEqual(played["rewards"], [1, 0.5, 0.05, 0])
        for prompt, completion, mask, said in zip(
            played["prompt_ids"], played["completion_ids"], played["env_mask"],
            ([right], [wrong, right + " <|im_end|>"], [bare, wrong], [wrong, bare]),
        ):  # fmt: skip
            self.assertEqual(len(completion), len(mask))
            self.assertEqual([i for i, own in zip(completion, mask) if own], words.encode(" ".join(said)))
            between = words.decode([i for i, own in zip(completion, mask) if not own])
            self.assertEqual("Wrong." in between, len(said) > 1)
            if len(said) > 1:  # what the policy said has one end, and so has the remark
                self.assertEqual(between.count("<|im_end|>"), 1 if said[0].endswith("<|im_end|>") else 2)
        self.assertEqual(asked[0], played["prompt_ids"])
        for prompt, i in zip(asked[1], (1, 2, 3)):
            whole = played["prompt_ids"][i] + played["completion_ids"][i]
            self.assertEqual(prompt, whole[: len(prompt)])
            self.assertEqual(words.decode(prompt[-2:]), words.decode(played["prompt_ids"][i][-2:]))

    def test_requirements(self):
        """They are the versions that the tests run on."""

        def pins(path):
            lines = (ROOT / path).read_text().splitlines()
            return dict(line.split("==") for line in lines if not line.startswith("#"))

        tested = pins("python/pins/newest.txt")
        wanted = pins("examples/trl/requirements.txt")
        del wanted["gguf"]  # which reads SmolLM2
        self.assertEqual(wanted, {name: tested.get(name) for name in wanted})

    def test_rewards(self):
        judge = self.game.judge
        question = "What is the capital of France?"
        for answer, want in (
            ("It is Paris. <answer>Paris</answer><|im_end|>", 1), ("<answer> paris </answer>", 1),
            ("<answer>Rome</answer>", 0.1), ("<answer>Rome</answer><answer>Paris</answer>", 0.1),
            ("It is Paris.", 0), ("<answer>Paris", 0),
        ):  # fmt: skip
            self.assertEqual(judge(question, answer), want, answer)


if __name__ == "__main__":
    unittest.main()
