"""Batches in files, and batches from the dumps of trainers."""

import io
import json
import os
import pickle
import tempfile
import unittest
import zipfile
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import adapter_rollouts
import numpy as np
from support import TESTDATA, TestCase, needs_torch, read_safetensors, run_python, torch

import reweight
import reweight.rollout

OPEN, CLOSE = 6, 7  # the tags of the rollouts
TAGS = {"open_tag": [OPEN], "close_tag": [CLOSE]}


# Calls with names of files, and what they raise. It runs in a locale without other letters than those of ASCII.
NAMES = """
import json, numpy as np, reweight
from reweight import distributed, rollout

b = reweight.Batch(role=np.array([[0, 1]], np.uint8), advantages=np.ones((1, 2), np.float32))
found = {}
for what, name in ("letters", "s\\u00e4"), ("NUL", "a\\0b"):
    calls = dict(
        save=lambda: rollout.save(name, b), load=lambda: rollout.load(name), slime=lambda: rollout.from_slime(name),
        parquet=lambda: rollout.from_parquet(name), text=lambda: rollout.from_text(name, None),
        show=lambda: reweight.show(b, name), partial=lambda: distributed.partial(name),
        apply=lambda: distributed.apply(name, b"", "a"), to=lambda: distributed.apply("a", b"", name),
        dask=lambda: distributed.dask_reweight(None, [name], "a"), folder=lambda: distributed.dask_reweight(None, ["a"], name),
        flag=lambda: distributed.partial("a", flags=[name]),
    )
    for call in calls:
        try:
            calls[call]()
        except Exception as error:
            found[call + " " + what] = [type(error).__name__, str(error)]
print(json.dumps(found))
"""


class Files(TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.path = self.folder / "x.npz"

    def test_packed(self):
        arrays, _ = read_safetensors(TESTDATA / "frozenlake-small.safetensors")
        for path in (self.path, str(self.path), self.folder / "no extension"):
            reweight.rollout.save(path, reweight.Batch(**arrays))
            batch = reweight.rollout.load(path)
            for name, want in arrays.items():
                self.assertBits(getattr(batch, name), want, name)
                self.assertEqual(getattr(batch, name).dtype, want.dtype)
            self.assertIsNone(batch.advantages)

    def test_padded(self):
        role = np.array([[0, 1, 2], [1, 1, 0]], np.uint8)
        ids = np.array([[5, 6, 7], [8, 9, 0]])
        rewards = np.array([1, 0], np.float32)
        reweight.rollout.save(self.path, reweight.Batch(role=role, token_ids=ids, rewards=rewards))
        batch = reweight.rollout.load(self.path)
        self.assertBits(batch.role, role.reshape(-1))
        self.assertBits(batch.seq_offsets, np.array([0, 3, 6]))
        self.assertBits(batch.token_ids, ids.reshape(-1))
        self.assertBits(batch.rewards, rewards)

    def test_every_field(self):
        def floats(n):
            return np.linspace(-1, 1, n, dtype=np.float32)

        arrays = {
            "role": np.array([0, 1, 1, 2], np.uint8),
            "seq_offsets": np.array([0, 2, 4]),
            "group_ids": np.array([3, 3], np.int32),
            "rewards": floats(2),
            "span_ids": np.array([-1, 0, 1, 1], np.int32),
            "token_ids": np.array([1, 2, 3, 4], np.int32),
            "anchors": np.array([7, -7], np.int32),
            "reward_parts": floats(6).reshape(2, 3),
            "span_rewards": floats(2),
        }
        for field in fields(reweight.Batch):
            arrays.setdefault(field.name, floats(4))
        reweight.rollout.save(self.path, reweight.Batch(**arrays))
        batch = reweight.rollout.load(self.path)
        for name, want in arrays.items():
            self.assertBits(getattr(batch, name), want, name)
        for name, value, problem in (
            ("anchors", np.zeros(3, np.int32), "anchors has the shape [3], want [2], one element per span"),
            ("reward_parts", floats(3).reshape(1, 3), "reward_parts has the shape [1, 3], want [2, 3], one element per part of a trajectory"),
            ("returns", floats(5), "returns has the shape [5], want [4], one element per token"),
            ("span_ids", None, "anchors is set, want None for tokens without span_ids"),
        ):
            with self.assertRaises(reweight.InputError) as caught:
                reweight.rollout.save(self.path, reweight.Batch(**dict(arrays, **{name: value})))
            self.assertEqual(str(caught.exception), problem)

    @needs_torch
    def test_tensors(self):
        entropy = torch.tensor([[0.5, 1.0]], requires_grad=True)
        reweight.rollout.save(self.path, reweight.Batch(role=torch.tensor([[1, 2]], dtype=torch.uint8), entropy=entropy))
        batch = reweight.rollout.load(self.path)
        self.assertBits(batch.entropy, np.array([0.5, 1], np.float32))
        self.assertBits(batch.role, np.array([1, 2], np.uint8))

    def test_errors_write_nothing(self):
        role = np.ones(2, np.uint8)
        for batch, want in (
            (reweight.Batch(role=role), "seq_offsets is None, want where each trajectory begins: role has the shape [2]"),
            (
                reweight.Batch(role=role, seq_offsets=np.array([0, 2]), entropy=np.zeros(3, np.float32)),
                "entropy has the shape [3], want [2], one element per token",
            ),
            (
                reweight.Batch(role=role, seq_offsets=np.array([0, 2]), token_ids=np.zeros(1, np.int32)),
                "token_ids has the shape [1], want [2], one element per token",
            ),
        ):
            with self.assertRaises(reweight.InputError) as caught:
                reweight.rollout.save(self.path, batch)
            self.assertEqual(str(caught.exception), want)
        with self.assertRaises(TypeError):
            reweight.rollout.save(self.path, reweight.Batch(role=role, seq_offsets=np.array([0, 2]), entropy=np.zeros(2)))
        with self.assertRaises(FileNotFoundError):
            reweight.rollout.save(self.folder / "none" / "x.npz", reweight.Batch(role=role.reshape(1, 2)))
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_file_is_replaced_whole(self):
        self.path.write_bytes(b"old")
        reweight.rollout.save(self.path, reweight.Batch(role=np.ones((1, 2), np.uint8)))
        self.assertEqual(os.listdir(self.folder), ["x.npz"])
        other = self.folder / "other"
        other.touch()
        self.assertEqual(self.path.stat().st_mode, other.stat().st_mode)

    def test_what_save_replaces(self):
        """The permission bits stay, and of a link what it is; what is no file stays."""
        batch = reweight.Batch(role=np.ones((1, 2), np.uint8))
        reweight.rollout.save(self.path, batch)
        self.path.chmod(0o600)
        link = self.folder / "link.npz"
        link.symlink_to("x.npz")
        again = reweight.Batch(role=np.zeros((1, 2), np.uint8))
        reweight.rollout.save(link, again)
        self.assertTrue(link.is_symlink())
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o600)
        self.assertBits(reweight.rollout.load(self.path).role, np.zeros(2, np.uint8))
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        for path in (fifo, self.folder):
            want = f"path is {os.path.realpath(path)}, which is not a regular file"
            self.assertInputError("path", want, lambda: reweight.rollout.save(path, batch))
        self.assertEqual(sorted(os.listdir(self.folder)), ["fifo", "link.npz", "x.npz"])

    def test_save_is_on_the_disk(self):
        """The file and its name are written to the disk, and the umask is left alone."""
        synced = []
        fsync = os.fsync

        def noted(handle):
            synced.append(os.readlink(f"/proc/self/fd/{handle}"))
            fsync(handle)

        with mock.patch.object(os, "fsync", noted):
            with mock.patch.object(os, "umask", side_effect=AssertionError("the umask was set")):
                reweight.rollout.save(self.path, reweight.Batch(role=np.ones((1, 2), np.uint8)))
        folder = os.path.realpath(self.folder)
        self.assertRegex(synced[0], f"^{folder}/[.]reweight-[0-9a-f]{{16}}[.]tmp$")
        self.assertEqual(synced[1:], [folder])

    def test_save_fails(self):
        """A write that fails leaves the old file and nothing else, and the error has its name."""
        self.path.write_bytes(b"old")
        with mock.patch.object(np, "savez", side_effect=OSError("the disk is full")):
            with self.assertRaisesRegex(OSError, "the disk is full"):
                reweight.rollout.save(self.path, reweight.Batch(role=np.ones((1, 2), np.uint8)))
        self.assertEqual((os.listdir(self.folder), self.path.read_bytes()), (["x.npz"], b"old"))
        path = os.path.realpath(self.folder / "none" / "x.npz")
        with self.assertRaises(FileNotFoundError) as caught:
            reweight.rollout.save(path, reweight.Batch(role=np.ones((1, 2), np.uint8)))
        self.assertEqual(caught.exception.filename, path)

    def test_names(self):
        """Names that the locale cannot hold, and a NUL, in all that takes the name of a file."""
        run = run_python(NAMES, cwd=self.folder, env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
        self.assertEqual(run.returncode, 0, run.stderr)
        found = json.loads(run.stdout)
        self.assertEqual(len(found), 24)
        arguments = dict(partial="file", apply="file", to="output", dask="files", folder="folder", flag="file")
        problems = {"letters": "in ascii cannot hold: set PYTHONUTF8=1", "NUL": "which has a NUL"}
        for call, (kind, text) in found.items():
            with self.subTest(call):
                function, what = call.split()
                problem = "or a flag cannot be an argument" if function == "flag" else problems[what]
                self.assertEqual(kind, "InputError")
                self.assertRegex(text, f"^{arguments.get(function, 'path')} .*{problem}")
        self.assertEqual(os.listdir(self.folder), [])

    def test_load_refuses(self):
        np.savez(self.path, rewards=np.zeros(1))
        with self.assertRaisesRegex(reweight.InputError, "role is missing in .*x.npz"):
            reweight.rollout.load(self.path)
        np.savez(self.path, role=np.array([{}]))
        with self.assertRaisesRegex(ValueError, "allow_pickle"):
            reweight.rollout.load(self.path)
        for content in (b"", b"hello", b"PK\x03\x04 and no more"):
            self.path.write_bytes(content)
            want = f"path is {self.path}, which is not a .npz file"
            self.assertInputError("path", want, lambda: reweight.rollout.load(self.path))
        with open(self.path, "wb") as file:
            np.save(file, np.zeros(3))
        self.assertInputError("path", want, lambda: reweight.rollout.load(self.path))
        np.savez(self.path, role=np.ones(1000, np.uint8))
        self.path.write_bytes(self.path.read_bytes().replace(b"\x01\x01\x01\x01", b"\x01\x01\x01\x02", 1))
        with self.assertRaisesRegex(reweight.InputError, f"path is {self.path}, whose role cannot be read: Bad CRC-32"):
            reweight.rollout.load(self.path)
        np.savez_compressed(self.path, role=np.ones(65 << 20, np.uint8))
        want = f"path is {self.path}, which expands to more than 250 times its size"
        self.assertInputError("path", want, lambda: reweight.rollout.load(self.path))


@needs_torch
class Trainers(TestCase):
    """The real rollouts as trainers dump them."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "x.pt")
        self.rollouts = adapter_rollouts.load()
        r = self.rollouts
        self.prompts = adapter_rollouts.prompts(r)
        self.role = reweight.roles_from_mask(r.mask, r.token_ids, seq_offsets=r.seq_offsets, **TAGS)

        load = torch.load
        torch.save([0.5], self.path)
        try:
            load(self.path, weights_only=True)
        except pickle.UnpicklingError:  # before PyTorch 2: these files are the test's own
            patch = mock.patch.object(torch, "load", lambda path, map_location, weights_only: load(path, map_location))
            self.safe = patch.stop
            patch.start()
            self.addCleanup(mock.patch.stopall)
        else:
            self.safe = lambda: None

    def responses(self, name):
        return [row[n:].copy() for row, n in zip(adapter_rollouts.rows(self.rollouts, getattr(self.rollouts, name)), self.prompts)]

    def check(self, batch, *names):
        """The response tokens have what the file has."""
        response = np.asarray(self.rollouts.mask)
        for name in names:
            got = getattr(batch, name)
            self.assertBits(np.asarray(got)[response], getattr(self.rollouts, name)[response], name)
        self.assertBits(batch.role, self.role)
        self.assertBits(batch.span_ids, self.rollouts.span_ids)
        self.assertBits(batch.group_ids, self.rollouts.group_ids)
        self.assertBits(batch.rewards, self.rollouts.rewards)
        self.assertBits(batch.seq_offsets, self.rollouts.seq_offsets)
        self.assertBits(batch.token_ids, self.rollouts.token_ids.astype(np.int64))

    def test_slime_rollout_data(self):
        samples = []
        for i, row in enumerate(adapter_rollouts.rows(self.rollouts, self.rollouts.token_ids)):
            samples.append(
                {
                    "group_index": int(self.rollouts.group_ids[i]),
                    "index": i,
                    "prompt": "the map",
                    "tokens": row.tolist(),
                    "response": "so I go",
                    "response_length": len(row) - self.prompts[i],
                    "reward": float(self.rollouts.rewards[i]),
                    "loss_mask": self.responses("mask")[i].astype(int).tolist(),
                    "rollout_log_probs": self.responses("old_logprobs")[i].tolist(),
                    "status": "completed",
                    "metadata": {},
                    "spec_info": {"spec_verify_ct": 0},
                    "train_metadata": None,
                }
            )
        torch.save({"rollout_id": 3, "samples": samples}, self.path)
        batch = reweight.rollout.from_slime(self.path, **TAGS)
        self.check(batch, "old_logprobs")
        self.assertBits(batch.rollout_logprobs, batch.old_logprobs)
        self.assertIsNone(batch.entropy)
        for sample in samples:
            del sample["group_index"]  # equal prompts are a group
        torch.save({"rollout_id": 3, "samples": samples}, self.path)
        self.check(reweight.rollout.from_slime(self.path, **TAGS), "old_logprobs")

    def test_slime_train_data(self):
        names = {"log_probs": "old_logprobs", "ref_log_probs": "ref_logprobs", "entropy": "entropy", "returns": "returns"}
        self.rollouts.returns = self.rollouts.old_logprobs * 2
        samples = []
        for i, row in enumerate(adapter_rollouts.rows(self.rollouts, self.rollouts.token_ids)):
            sample = {
                "tokens": torch.from_numpy(row.astype(np.int64)),
                "response_lengths": len(row) - self.prompts[i],
                "rewards": float(self.rollouts.rewards[i]),
                "loss_masks": torch.from_numpy(self.responses("mask")[i].astype(np.int32)),
                "rollout_log_probs": torch.zeros(len(row) - self.prompts[i]),
                "rollout_position": i,
            }
            for theirs, ours in names.items():
                sample[theirs] = torch.from_numpy(self.responses(ours)[i])
            samples.append(sample)
        torch.save({"format_version": 2, "samples": samples, "dp_shards": [{"rank": 0}]}, self.path)
        batch = reweight.rollout.from_slime(self.path, **TAGS)
        self.check(batch, *names.values())
        self.assertFalse(batch.rollout_logprobs.any())

    def test_slime_refused(self):
        sample = {"tokens": [1, 2, 3], "response_length": 2, "reward": 1.0, "rollout_log_probs": [-1.0, -2.0]}
        batch = None
        for change, want in (
            ({}, None),
            ({"rollout_log_probs": [-1.0]}, "path has rollout_log_probs of the shape [1], want [2] like the response"),
            (
                {"reward": {"format": 1.0}},
                "path has rewards that are dicts, want the file of --save-debug-train-data, which has the one of --reward-key",
            ),
        ):
            torch.save({"samples": [{**sample, **change}]}, self.path)
            if want is None:
                batch = reweight.rollout.from_slime(self.path)
                continue
            with self.assertRaises(reweight.InputError) as caught:
                reweight.rollout.from_slime(self.path)
            self.assertEqual(str(caught.exception), want)
        self.assertBits(batch.role, np.array([0, 1, 1], np.uint8))
        self.assertBits(batch.old_logprobs, np.array([0, -1, -2], np.float32))
        for change, want in (
            ({"tokens": 3}, "path has a sample 1 whose tokens is no list of numbers"),
            ({"tokens": "abc"}, "path has a sample 1 whose tokens is no list of numbers"),
            ({"tokens": [[1]]}, "path has a sample 1 whose tokens[0] is an array, want an integer"),
            ({"response_length": 5}, "path has a sample 1 whose response_length is 5, want 0 to 3, its tokens"),
            ({"response_length": -1}, "path has a sample 1 whose response_length is -1, want 0 to 3, its tokens"),
            ({"response_length": None}, "path has a sample 1 whose response_length is null, want an integer"),
            ({"response_length": [2]}, "path has a sample 1 whose response_length is an array, want an integer"),
            ({"response_length": 1.5}, "path has a sample 1 whose response_length is 1.5, want an integer"),
            ({"reward": "good"}, 'path has a sample 1 whose reward is "good", want a number'),
            ({"reward": None}, "path has a sample 1 whose reward is null, want a number"),
            ({"rollout_log_probs": ["a", "b"]}, 'path has a sample 1 whose rollout_log_probs[0] is "a", want a number'),
            ({"rollout_log_probs": None}, "path has a sample 1 without rollout_log_probs, which sample 0 has"),
        ):
            torch.save({"samples": [sample, {**sample, **change}]}, self.path)
            self.assertInputError("path", want, lambda: reweight.rollout.from_slime(self.path))
        want = "path has no samples of slime, want a file of --save-debug-train-data or --save-debug-rollout-data"
        for samples in ({"a": 1}, [3], [], [{"tokens": [1]}, 3], 7):
            torch.save({"samples": samples}, self.path)
            self.assertInputError("path", want, lambda: reweight.rollout.from_slime(self.path))
        torch.save({"model": torch.zeros(1)}, self.path)
        with self.assertRaisesRegex(reweight.InputError, "no samples of slime"):
            reweight.rollout.from_slime(self.path)

    def test_slime_other_files(self):
        """What torch.save has not written is an InputError, or what PyTorch says of pickles."""
        torch.save({"samples": [{"tokens": [1, 2], "response_length": 1}]}, self.path)
        whole, text = Path(self.path).read_bytes(), json.dumps({"tokens": [1]}).encode()
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("a.txt", "hello")
        npz = io.BytesIO()
        np.savez(npz, role=np.ones(2, np.uint8))
        contents = [b"", b"hello\n", b"e", b"\x80", b"\x80\x02.", b"PK\x03\x04", text, archive.getvalue(), npz.getvalue(), bytes(1000)]
        contents += [whole[:n] for n in (1, 2, 30, 100, len(whole) // 2, len(whole) - 1)]
        contents += [pickle.dumps(x) for x in (3, [1], {"samples": 1}, {"samples": [{"tokens": 1}]})]
        contents += [bytes([first, *b"ello world\n"]) for first in range(256)]
        g = np.random.default_rng(3)
        for _ in range(100):
            spoiled = bytearray(whole)
            spoiled[g.integers(len(whole))] ^= 1 << g.integers(8)
            contents.append(bytes(spoiled))
        self.safe()
        for content in contents:
            Path(self.path).write_bytes(content)
            with self.subTest(content[:60]):
                try:
                    reweight.rollout.from_slime(self.path)
                    self.assertEqual(len(content), len(whole))
                except (reweight.InputError, pickle.UnpicklingError):
                    pass
        folder = os.path.dirname(self.path)
        problem = f"path is {folder}, which is a directory, want a file"
        self.assertInputError("path", problem, lambda: reweight.rollout.from_slime(folder))
        with self.assertRaises(FileNotFoundError):
            reweight.rollout.from_slime(os.path.join(folder, "none"))

    def test_pickles_run_nothing(self):
        class Program:
            def __reduce__(self):
                return os.mkdir, (os.path.join(self.folder, "ran"),)

        program = Program()
        program.folder = os.path.dirname(self.path)
        torch.save({"samples": [program]}, self.path)
        self.safe()
        with self.assertRaises(pickle.UnpicklingError):
            reweight.rollout.from_slime(self.path)
        self.assertEqual(os.listdir(program.folder), ["x.pt"])

    def test_verl(self):
        r = self.rollouts

        def tensor(name):
            return torch.from_numpy(adapter_rollouts.padded(self.responses(name)))

        mask = tensor("mask").long()
        scores = torch.zeros(mask.shape)
        scores[:, -1] = torch.from_numpy(r.rewards.copy())
        tensors = {
            "prompts": torch.zeros(len(r.rewards), 4),
            "responses": tensor("token_ids").long(),
            "response_mask": mask,
            "old_log_probs": tensor("old_logprobs").bfloat16(),
            "entropys": tensor("entropy"),
            "rollout_log_probs": tensor("logprobs"),
            "token_level_rewards": scores / 2,
            "returns": scores * 2,
            "token_level_scores": scores,
        }
        uids = np.array([f"prompt {g}" for g in r.group_ids], object)
        data = SimpleNamespace(batch=tensors, non_tensor_batch={"uid": uids})
        batch = reweight.rollout.from_verl(data, **TAGS)
        roles = [row[n:] for row, n in zip(adapter_rollouts.rows(r, self.role), self.prompts)]
        self.assertBits(batch.role, torch.from_numpy(adapter_rollouts.padded(roles)))
        self.assertBits(batch.group_ids, r.group_ids)
        self.assertBits(batch.rewards, torch.from_numpy(r.rewards.copy()))
        self.assertBits(batch.entropy, tensors["entropys"])
        self.assertBits(batch.old_logprobs, tensors["old_log_probs"].float())
        self.assertBits(batch.rollout_logprobs, tensors["rollout_log_probs"])
        self.assertBits(batch.token_rewards, tensors["token_level_rewards"])
        self.assertBits(batch.returns, tensors["returns"])
        self.assertIsNone(batch.values)
        path = self.path.replace(".pt", ".npz")
        reweight.rollout.save(path, batch)
        self.assertEqual(len(reweight.rollout.load(path).role), mask.numel())
        del tensors["response_mask"]
        with self.assertRaisesRegex(reweight.InputError, "data has no response_mask"):
            reweight.rollout.from_verl(data)


if __name__ == "__main__":
    unittest.main()
