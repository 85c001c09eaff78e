"""Pages of rollouts, by the program of the project."""

import html
import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import numpy as np
from support import TESTDATA, TestCase, needs_go, needs_torch, program, read_safetensors, torch

import reweight
import reweight.rollout
from reweight.distributed import CommandError, FileError


def sections(path):
    """Returns the title of each rollout on a page, and its tokens: texts, and floats under the names of the columns."""
    found = []
    for section in Path(path).read_text().split("<section>")[1:]:
        title = re.search("<h2>(.*?)</h2>", section)[1]
        names = re.findall("<th [^>]*>(.*?)</th>", section)
        cells = [re.findall("<td[^>]*>(.*?)</td>", row) for row in section.split("<tbody>")[1].split("<tr>")[1:]]
        columns = dict(zip(names, map(list, zip(*cells))))
        for name in names:
            if name not in ("text", "role"):
                columns[name] = np.array([float("nan" if x == "-" else x.strip("~")) for x in columns[name]])
        columns["text"] = [html.unescape(text) for text in columns["text"]]
        found.append((html.unescape(title), columns))
    return found


class Pages(TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        environ = mock.patch.dict(os.environ, PATH=program().name + os.pathsep + os.environ["PATH"])
        environ.start()
        self.addCleanup(environ.stop)


@needs_go
class Show(Pages):
    def setUp(self):
        super().setUp()
        self.arrays, metadata = read_safetensors(TESTDATA / "frozenlake-small.safetensors")
        self.words = json.loads(metadata["vocab"])
        self.page = self.folder / "one.html"

    def test_page(self):
        """It is the page of the program, from a vocabulary and from a tokenizer, and of tensors."""

        class Tokenizer:
            def decode(tokenizer, ids):
                return self.words[ids[0]]

        file = TESTDATA / "frozenlake-small.safetensors"
        page = self.folder / "want.html"
        command = ["bench", "show", "-html", page, "-trajectory", "3,9", "-signal", "surprisal", file]
        subprocess.run(command, check=True)
        want = page.read_text().replace(str(file), "one")
        batches = [reweight.Batch(**self.arrays)]
        if torch is not None:
            batches.append(reweight.Batch(**{name: torch.from_numpy(x.copy()) for name, x in self.arrays.items()}))
        for batch in batches:
            for vocab in self.words, Tokenizer():
                self.assertIsNone(reweight.show(batch, self.page, vocab=vocab, trajectories=[3, 9], signal="surprisal"))
                self.assertEqual(self.page.read_text(), want)
        self.assertEqual(sorted(os.listdir(self.folder)), ["one.html", "want.html"])

    def test_path(self):
        """A path is that of this process, the page is called by its name, and ids stand for texts."""
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)
        reweight.show(reweight.Batch(**self.arrays), "-one two.html")
        ((title, columns),) = sections(self.folder / "-one two.html")
        self.assertEqual(title, "Trajectory 0 of -one two: group 0, reward 0, 5 turns, 241 tokens.")
        self.assertEqual(columns["text"][:2], [f"#{id}" for id in self.arrays["token_ids"][:2]])

    def test_errors(self):
        self.page.write_text("old")
        rewards = np.where(np.arange(32) == 3, np.nan, 0).astype(np.float32)
        shape = "entropy has the shape [2], want [6272], one element per token"
        for kind, text, arrays, options in (
            (FileError, "one: trajectory 3: rewards[0] is NaN, want a finite reward", {"rewards": rewards}, {}),
            (FileError, "-trajectory has 32, want 0 to 31", {}, {"trajectories": [32]}),
            (FileError, '-signal is "x", want one of [energy ref_entropy surprisal log_ratio]', {}, {"signal": "x"}),
            (reweight.InputError, shape, {"entropy": np.zeros(2, np.float32)}, {}),
        ):
            with self.assertRaises(kind) as caught:
                reweight.show(reweight.Batch(**{**self.arrays, **arrays}), self.page, **options)
            self.assertEqual((type(caught.exception), str(caught.exception)), (kind, text))
        with mock.patch.dict(os.environ, PATH=str(self.folder)), self.assertRaises(CommandError) as caught:
            reweight.show(reweight.Batch(**self.arrays), self.page)
        text = f"bench does not run on {os.uname().nodename}: No such file or directory"
        self.assertEqual(str(caught.exception), text)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["one.html"])
        self.assertEqual(self.page.read_text(), "old")


if __name__ == "__main__":
    unittest.main()
