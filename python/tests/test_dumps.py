"""Tables of rollouts, as Ray Data, TRL and verl write them."""

import contextlib
import importlib.util
import io
import json
import os
import tempfile
import unittest
from pathlib import Path

import numpy as np
from support import TESTDATA, TestCase, read_safetensors

import reweight
from reweight import rollout

if importlib.util.find_spec("pyarrow") is None:
    raise unittest.SkipTest("pyarrow is not installed")
import pyarrow
from pyarrow import parquet

RAY, TRL, VERL, TRANSFORMERS = (
    importlib.util.find_spec(name) is not None for name in ("ray", "trl", "verl", "transformers")
)


class Folder(TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.path = str(self.folder / "x.parquet")

    def refuses(self, problem, call, argument="path"):
        self.assertInputError(argument, f"{argument} {problem}", call)


def trajectories():
    """The rollouts of testdata as rows, and as arrays."""
    arrays, _ = read_safetensors(TESTDATA / "frozenlake-small.safetensors")
    offsets = arrays["seq_offsets"]
    rows = []
    for i, (first, end) in enumerate(zip(offsets, offsets[1:])):
        row = {n: a[first:end].tolist() for n, a in arrays.items() if len(a) == offsets[-1]}
        ids = np.array(row["span_ids"])
        row["span_ids"] = np.where(ids < 0, ids, ids - ids[ids >= 0].min(initial=1 << 30)).tolist()
        row.update(reward=float(arrays["rewards"][i]), group_id=f"maze {arrays['group_ids'][i]}", note="not read")
        rows.append(row)
    return rows, arrays


class Parquet(Folder):
    def check(self, batch, arrays, *others):
        for name, want in arrays.items():
            if name not in others:
                self.assertBits(getattr(batch, name), want.astype(np.int64) if name == "token_ids" else want, name)

    def write(self, rows, **options):
        parquet.write_table(pyarrow.Table.from_pylist(rows), self.path, **options)

    def test_rows(self):
        rows, arrays = trajectories()
        self.write(rows)
        batch = rollout.from_parquet(self.path)
        self.check(batch, arrays)
        # What npz keeps is the same.
        npz = self.folder / "x.npz"
        rollout.save(npz, batch)
        self.check(rollout.load(npz), arrays)
        for row in rows:
            row["mask"] = [r != 0 for r in row.pop("role")]
            row.pop("span_ids")
        self.write(rows)
        batch = rollout.from_parquet(self.path)
        self.check(batch, arrays, "role")
        self.assertBits(batch.role, (arrays["role"] != 0).astype(np.uint8))
        tags = {"open_tag": [30], "close_tag": [31]}
        want = reweight.roles_from_mask(arrays["role"] != 0, arrays["token_ids"], seq_offsets=arrays["seq_offsets"], **tags)
        self.assertBits(rollout.from_parquet(self.path, **tags).role, want)

    def test_groups_and_spans(self):
        rows = [
            {"token_ids": [1, 2, 3, 4], "mask": [0, 1, 0, 1], "anchors": [5, 6], "span_rewards": [0.5, 1.0], "reward_parts": [1.0, 0.5]},
            {"token_ids": [9, 2], "mask": [0, 1], "anchors": [7], "span_rewards": [0.0], "reward_parts": [0.0, 1.0]},
            {"token_ids": [1, 5, 5], "mask": [0, 1, 1], "anchors": [8], "span_rewards": [0.0], "reward_parts": [2.0, 3.0]},
        ]
        self.write(rows)
        batch = rollout.from_parquet(self.path)
        self.assertEqual(batch.group_ids.tolist(), [0, 1, 0])
        self.assertEqual(batch.span_ids.tolist(), [-1, 0, -1, 1, -1, 2, -1, 3, 3])
        self.assertEqual(batch.anchors.tolist(), [5, 6, 7, 8])
        self.assertEqual(batch.reward_parts.tolist(), [[1, 0.5], [0, 1], [2, 3]])
        self.assertIsNone(batch.rewards)
        rollout.save(self.folder / "x.npz", batch)
        for change, argument, problem in (
            ({"anchors": [5]}, "anchors", "has 1 elements in row 0, want 2, one per span"),
            ({"reward_parts": [1.0]}, "reward_parts", "has 2 elements in row 1, want 1, one per part"),
            ({"mask": [0, 1, 0]}, "token_ids", "has 4 elements in row 0, want 3, one per token"),
            ({"mask": None}, "token_ids", "has 4 elements in row 0, which has neither mask nor role"),
        ):
            self.write([{**rows[0], **change}, *rows[1:]])
            self.refuses(problem, lambda: rollout.from_parquet(self.path), argument)

    def test_refused(self):
        name = self.path
        with self.assertRaises(FileNotFoundError):
            rollout.from_parquet(name)
        for content in (b"", b"hello", b"PAR1 and no more"):
            Path(name).write_bytes(content)
            with self.assertRaisesRegex(reweight.InputError, f"^path is {name}, which is no Parquet: "):
                rollout.from_parquet(name)
        self.write([{"text": "x"}])
        lacks = f"is {name}, whose columns lack mask, or role, which says which tokens are the response's"
        self.refuses(lacks, lambda: rollout.from_parquet(name))
        self.write([{"mask": 1}])
        problem = "has elements of the type int64, want lists with an element per token"
        self.refuses(problem, lambda: rollout.from_parquet(name), "mask")
        self.write([{"mask": ["a"]}])
        self.assertInputError("mask", 'mask[0, 0] is "a", want true, false, 1 or 0', lambda: rollout.from_parquet(name))
        self.write([{"mask": [1]}, {"mask": [1]}])
        os.truncate(name, os.path.getsize(name) - 40)
        with self.assertRaisesRegex(reweight.InputError, "which is no Parquet"):
            rollout.from_parquet(name)

    def test_bomb(self):
        """Some kilobytes of equal values are refused before they are read."""
        table = pyarrow.table({"mask": pyarrow.array([np.ones(1 << 25, np.uint8)])})
        parquet.write_table(table, self.path, compression="zstd")
        self.assertLess(os.path.getsize(self.path), 100_000)
        problem = f"is {self.path}, whose {self.path} expands to more than 250 times its size"
        self.refuses(problem, lambda: rollout.from_parquet(self.path))

    @unittest.skipIf(not RAY, "Ray is not installed")
    def test_ray_data(self):
        import ray

        ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=str(self.folder / "ray"))
        self.addCleanup(ray.shutdown)
        rows, arrays = trajectories()
        folder = str(self.folder / "parquet")
        ray.data.from_items(rows, override_num_blocks=1).write_parquet(folder)
        self.check(rollout.from_parquet(folder), arrays)


def tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<eos>", "user:", "tool:", "assistant:", "go", "where", "Left", "Right", "a", "wall", "<a>", "</a>"]
    t = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<eos>"))
    t.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = (
        "{% for m in messages %}{{ m.role + ': ' + m.content + ' ' }}"
        "{% if m.role == 'assistant' %}{{ '<eos> ' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    )
    return PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<eos>", chat_template=template)


@unittest.skipIf(not TRANSFORMERS, "transformers is not installed")
class Texts(Folder):
    def texts(self, batch, words):
        """The prompts and the responses of a batch, decoded."""
        found = []
        for first, end in zip(batch.seq_offsets, batch.seq_offsets[1:]):
            ids, role = batch.token_ids[first:end], batch.role[first:end]
            found.append((words.decode(ids[role == 0]), words.decode(ids[role != 0])))
        return found

    @unittest.skipIf(not TRL, "TRL is not installed")
    def test_trl(self):
        """The files that GRPOTrainer writes with log_completions."""
        import test_trl

        trainer = test_trl.trainer(folder=str(self.folder), log_completions=True)
        with contextlib.redirect_stdout(io.StringIO()):  # TRL prints the table too
            trainer.train()
        words = trainer.processing_class
        files = sorted(self.folder.glob("completions/completions_*.parquet"))
        self.assertEqual(len(files), 3)
        for file in files:
            table = parquet.read_table(file).to_pydict()
            batch = rollout.from_text(file, words, open_tag=[2], close_tag=[3])
            self.assertEqual(self.texts(batch, words), list(zip(table["prompt"], table["completion"])))
            self.assertEqual(len(set(batch.group_ids.tolist())), 2)
            first = [int(np.flatnonzero(batch.span_ids == s)[0]) for s in range(len(table["prompt"]))]
            self.assertBits(batch.advantages[first], np.float32(table["advantage"]))
            self.assertFalse(batch.advantages[batch.role == 0].any())
            self.assertTrue((batch.role == 2).any())
            self.assertIsNone(batch.rewards)
            rollout.save(self.folder / "x.npz", batch)

    @unittest.skipIf(not VERL, "verl is not installed")
    def test_verl(self):
        """The file that verl's own function writes."""
        from verl.trainer.ppo.v1.trainer_base import PPOTrainer

        inputs, outputs = ["user: go"] * 2 + ["user: where"] * 2, ["Left", "Right", "a wall", "<a> Left </a>"]
        uids = [f"maze_1_{q}_{n}_0" for q in range(2) for n in range(2)]
        scores = [1.0, 0.0, 0.5, 0.25]
        PPOTrainer._write_generations(inputs, outputs, [None] * 4, scores, {"uid": uids}, str(self.folder), 7)
        words = tokenizer()
        batch = rollout.from_text(self.folder / "7.jsonl", words, open_tag=[10], close_tag=[11])
        self.assertEqual(self.texts(batch, words), list(zip(inputs, outputs)))
        self.assertEqual(batch.group_ids.tolist(), [0, 0, 1, 1])
        self.assertBits(batch.rewards, np.float32([1, 0, 0.5, 0.25]))
        self.assertEqual(int((batch.role == 2).sum()), 1)
        self.assertIsNone(batch.advantages)

    def test_messages(self):
        """A conversation with a tool: its messages are in the template, and the assistant's are the responses."""
        row = {
            "step": 1,
            "prompt": [{"role": "user", "content": "go"}],
            "completion": [
                {"role": "assistant", "content": "<a> Left </a>"},
                {"role": "tool", "content": "a wall", "name": "move"},
                {"role": "assistant", "content": "Right"},
            ],
            "advantage": -0.5,
        }
        parquet.write_table(pyarrow.Table.from_pylist([row]), self.path)
        words = tokenizer()
        batch = rollout.from_text(self.path, words, open_tag=[10], close_tag=[11])
        text = "user: go assistant: <a> Left </a> <eos> tool: a wall assistant: Right <eos>"
        self.assertEqual(words.decode(batch.token_ids), text)
        self.assertEqual(batch.role.tolist(), [0, 0, 0, 1, 2, 1, 1, 0, 0, 0, 0, 1, 1])
        self.assertEqual(batch.span_ids.tolist(), [-1, -1, -1, 0, 0, 0, 0, -1, -1, -1, -1, 1, 1])
        self.assertEqual(batch.advantages.tolist(), [-0.5 * (r > 0) for r in batch.role])
        words.chat_template = "{{ messages | length }}"
        problem = "has a chat template that changes what stands before message 1"
        self.refuses(problem, lambda: rollout.from_text(self.path, words), "tokenizer")

    def test_refused(self):
        words, lines = tokenizer(), self.folder / "1.jsonl"
        good = {"input": "user: go", "output": "Left", "score": 1}
        for line in ("", "{", "[]", json.dumps({"input": "a", "output": "b"})):
            lines.write_text(json.dumps(good) + "\n" + line + "\n")
            problem = f"is {lines}, whose line 2 is no object with input, output and score"
            self.refuses(problem, lambda: rollout.from_text(lines, words))
        for change, problem in (
            ({"score": "high"}, 'has a sample 0 whose score is "high", want a number'),
            ({"output": 3}, "has a prompt that is a str, want a text or a list of messages, as the completion"),
        ):
            lines.write_text(json.dumps({**good, **change}))
            self.refuses(problem, lambda: rollout.from_text(lines, words))
        lines.write_text("")
        self.refuses(f"is {lines}, which has no samples", lambda: rollout.from_text(lines, words))
        columns = {name: pyarrow.array([], pyarrow.string()) for name in ("prompt", "completion", "advantage")}
        parquet.write_table(pyarrow.table(columns), self.path)
        self.refuses(f"is {self.path}, which has no samples", lambda: rollout.from_text(self.path, words))
        parquet.write_table(pyarrow.Table.from_pylist([{"prompt": "x"}]), self.path)
        problem = f"is {self.path}, which lacks advantage and completion of TRL's log_completions"
        self.refuses(problem, lambda: rollout.from_text(self.path, words))


if __name__ == "__main__":
    unittest.main()
