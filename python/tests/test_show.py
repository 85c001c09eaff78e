"""Pages of rollouts, by the program of the project: those of a batch, and those of a trainer's batches."""

import contextlib
import html
import io
import json
import os
import re
import subprocess
import tempfile
import tracemalloc
import unicodedata
import unittest
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
from adapter_rollouts import Tokenizer, load, padded, rows, scheme
from support import TESTDATA, TestCase, f32, needs_go, needs_torch, program, read_safetensors, torch

import reweight
import reweight.rollout
from reweight._errors import printable
from reweight.adapters import Credit, token_advantages
from reweight.adapters._pages import batch_name
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

    @contextlib.contextmanager
    def no_program(self):
        with mock.patch.dict(os.environ, PATH=str(self.folder)), mock.patch("shutil.which", return_value=None):
            yield


@needs_go
class Show(Pages):
    def setUp(self):
        super().setUp()
        self.arrays, metadata = read_safetensors(TESTDATA / "frozenlake-small.safetensors")
        self.words = json.loads(metadata["vocab"])
        self.page = self.folder / "one.html"

    def test_page(self):
        """It is the page of the program, from a vocabulary and from a tokenizer, and of tensors."""
        file = TESTDATA / "frozenlake-small.safetensors"
        page = self.folder / "want.html"
        command = ["reweight", "show", "-html", page, "-trajectory", "3,9", "-signal", "surprisal", file]
        subprocess.run(command, check=True)
        want = page.read_text().replace(str(file), "one")
        batches = [reweight.Batch(**self.arrays)]
        if torch is not None:
            batches.append(reweight.Batch(**{name: torch.from_numpy(x.copy()) for name, x in self.arrays.items()}))
        for batch in batches:
            for vocab in self.words, Tokenizer(self.words):
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
            (FileError, "one: rewards[3] is NaN, want a finite reward", {"rewards": rewards}, {}),
            (FileError, "-trajectory has 32, want 0 to 31", {}, {"trajectories": [32]}),
            (FileError, '-signal is "x", want one of [energy ref_entropy surprisal log_ratio]', {}, {"signal": "x"}),
            (reweight.InputError, shape, {"entropy": np.zeros(2, np.float32)}, {}),
        ):
            with self.assertRaises(kind) as caught:
                reweight.show(reweight.Batch(**{**self.arrays, **arrays}), self.page, **options)
            self.assertEqual((type(caught.exception), str(caught.exception)), (kind, text))
        with self.no_program(), self.assertRaises(CommandError) as caught:
            reweight.show(reweight.Batch(**self.arrays), self.page)
        text = f"reweight does not run on {os.uname().nodename}: No such file or directory"
        self.assertEqual(str(caught.exception), text)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["one.html"])
        self.assertEqual(self.page.read_text(), "old")


    def test_large_id(self):
        """A page of the largest id has its text."""
        ids = self.arrays["token_ids"].copy()
        ids[1] = 2**31 - 1
        vocab = mock.Mock(spec=["decode"], decode=lambda ids: {ids[0]: f"t{ids[0]}"}[ids[0]] * len(ids))
        tracemalloc.start()
        reweight.show(reweight.Batch(**{**self.arrays, "token_ids": ids}), self.page, vocab=vocab)
        self.assertLess(tracemalloc.get_traced_memory()[1], 16 << 20)
        tracemalloc.stop()
        self.assertEqual(sections(self.page)[0][1]["text"][:2], [f"t{id}" for id in ids[:2]])

    def test_printable(self):
        """The program escapes the same characters, of those that both know."""
        old = unicodedata.ucd_3_2_0
        known = [c for c in map(chr, range(0x110000)) if old.category(c) not in ("Cn", "Cs")]
        folder = self.folder
        (folder / "x.jsonl").write_text(json.dumps({"mask": [1], "x" + "".join(known): 1}))
        done = subprocess.run(["reweight", "convert", folder / "x.jsonl", folder / "x.npz"], check=True, capture_output=True)
        self.assertIn(printable("x" + "".join(known)), done.stdout.decode())


@needs_go
class Compare(Pages):
    def test_table(self):
        """It is the table of the program and the figures of its JSON, of packed and of padded batches and of tensors."""
        file = TESTDATA / "frozenlake-small.safetensors"
        command = ["reweight", "-scheme", "uniform,gtpo+actfocus", "-alpha", "0.3", file]
        table = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        figures = json.loads(subprocess.run(command[:1] + ["-format=json"] + command[1:], check=True, capture_output=True).stdout)
        arrays, _ = read_safetensors(file)
        batches = [reweight.Batch(**arrays)]
        if torch is not None:
            batches.append(reweight.Batch(**{name: torch.from_numpy(x.copy()) for name, x in arrays.items()}))
        for batch in batches:
            got = reweight.compare(batch, "uniform,gtpo+actfocus", alpha=0.3)
            self.assertEqual((str(got), got.schemes), (table, figures["schemes"]))
            self.assertEqual(html.unescape(got._repr_html_()), f"<pre>{table}</pre>")
        names = [s["scheme"] for s in reweight.compare(batches[0]).schemes]
        self.assertEqual(names, ["uniform", "actfocus", "aem", "actfocus+aem"])

    def test_errors(self):
        arrays, _ = read_safetensors(TESTDATA / "frozenlake-small.safetensors")
        for text, change, arguments in (
            ('-scheme has "x"', {}, {"scheme": "x"}),
            ("flag provided but not defined: -beat", {}, {"beat": 3}),
            ("batch: aem needs entropy: ", {"entropy": None}, {"scheme": "aem"}),
        ):
            with self.assertRaises(FileError) as caught:
                reweight.compare(reweight.Batch(**{**arrays, **change}), **arguments)
            self.assertIn(text, str(caught.exception))


class Notebook(TestCase):
    """A step in a notebook."""

    def test_step(self):
        arrays, metadata = read_safetensors(TESTDATA / "frozenlake-small.safetensors")
        step = reweight.scheme("gtpo+actfocus")
        self.assertEqual(step._repr_html_(), "<code>reweight.scheme(&#x27;actfocus+gtpo&#x27;)</code>")
        packed, end = reweight.Batch(**arrays), int(arrays["seq_offsets"][1])
        batches = [packed]
        if torch is not None:
            batches.append(reweight.Batch(**{n: torch.from_numpy(x.copy()) for n, x in arrays.items()}))
        for batch in batches:
            advantages, weights = step.credit(batch)
            step.vocab = None
            said = re.findall('<span title="(.*?)" style="(.*?)">(.*?)</span>', step._repr_html_())
            self.assertEqual([text for *_, text in said], [f"#{id}" for id in arrays["token_ids"][:end]])
            for t, (about, style, _) in enumerate(said):
                if arrays["role"][t] == reweight.MASKED:
                    self.assertEqual((about, style), (f"token {t}, no response", "color:gray"))
                else:
                    self.assertTrue(about.endswith(f"advantage {advantages[t]:.4g}, weight {weights[t]:.4g}"), about)
                    colour = "0,114,178" if advantages[t] > 0 else "194,65,12"
                    self.assertIn(f"background:rgba({colour},", style)
            step.vocab = ["<script>alert(1)</script>\n"] * 100
            self.assertEqual(step._repr_html_().count("&lt;script&gt;alert(1)&lt;/script&gt;\u21b5<br>"), end)
            self.assertNotIn("<script>", step._repr_html_())
        del batch, batches, packed
        self.assertEqual(step._repr_html_(), "<code>reweight.scheme(&#x27;actfocus+gtpo&#x27;)</code>")  # keeps no batch

    def test_characters(self):
        """Control characters and those that turn text around are shown as the pages of the program show them."""
        batch = reweight.Batch(role=np.array([[1, 2]], np.uint8), token_ids=np.array([[0, 1]]), advantages=f32([[1, -1]]))
        step = reweight.scheme("uniform")
        step.vocab = ["a\u202eb\x1b[2J\x7f\u0085\u2028\ufeff", "\t\n<\U000e0001\u00ad\ud800"]
        step.credit(batch)
        page = step._repr_html_()
        self.assertIn(r">a\u202eb\x1b[2J\x7f\u0085\u2028\ufeff</span>", page)
        self.assertIn(r">\t" + "\u21b5<br>&lt;" + r"\U000e0001\u00ad\ud800</span>", page)
        self.assertTrue(page.isprintable())

    def test_large_ids(self):
        """An id takes no more memory than another, and is shown as a number where there is no text."""
        decode = mock.Mock(spec=["decode"], decode=lambda ids: "go" * len(ids))
        for vocab, texts in ((None, ["#3", "#2147483647", "#4611686018427387904", "#-1"]), (["a"] * 4, ["a"]), (decode, ["go", "go"])):
            texts = texts + ["#3", "#2147483647", "#4611686018427387904", "#-1"][len(texts) :]
            ids = np.array([[3, 2**31 - 1, 2**62, -1]])
            batch = reweight.Batch(role=np.ones((1, 4), np.uint8), token_ids=ids, advantages=np.ones((1, 4), np.float32))
            step = reweight.scheme("uniform")
            step.vocab = vocab
            step.credit(batch)
            tracemalloc.start()
            page = step._repr_html_()
            self.assertLess(tracemalloc.get_traced_memory()[1], 1 << 20)
            tracemalloc.stop()
            self.assertEqual(re.findall("<span .*?>(.*?)</span>", page), texts)

    def test_edges(self):
        """No tokens, no token_ids, padding, figures that are not finite, and more tokens than are shown."""
        step = reweight.scheme("group_mean")

        def shown(**arrays):
            batch = reweight.Batch(**{name: np.array(x, {"role": np.uint8}.get(name, np.float32)) for name, x in arrays.items()})
            batch.group_ids = np.zeros(len(arrays["rewards"]), np.int32)
            if batch.role.ndim == 1:
                batch.seq_offsets = np.array([0, len(batch.role)])
            step.credit(batch)
            return step._repr_html_()

        self.assertNotIn("<span", shown(role=[], rewards=[1]))
        page = shown(role=[[2, 1, 0], [1, 1, 1]], rewards=[1, 0])
        self.assertEqual(page.count(">#?</span>"), 3)
        self.assertIn("token 0, action, advantage 0.5, weight 1", page)
        page = shown(role=[2] * 5000, rewards=[1])
        self.assertEqual((page.count("<span"), "904 more tokens are left out" in page), (4096, True))
        batch = reweight.Batch(role=np.array([[2, 2]], np.uint8), advantages=np.array([[np.inf, 1]], np.float32))
        step = reweight.scheme("uniform")
        step.credit(batch)
        self.assertIn("advantage inf", step._repr_html_())


@needs_go
class Batches(Pages):
    """Pages of token_advantages."""

    @classmethod
    def setUpClass(cls):
        cls.rollouts = load()

    def call(self, credit, keep=slice(None), **change):
        """Calls token_advantages with those of the trajectories, each without the prompt before its first response."""
        r = self.rollouts
        names = ("mask", "token_ids", "old_logprobs", "entropy", "advantages")
        parts = {name: rows(r, getattr(r, name))[keep] for name in names}
        first = [int(np.argmax(mask)) for mask in parts["mask"]]
        arguments = {name: [row[n:] for row, n in zip(part, first)] for name, part in parts.items()}
        arguments["prompt_ids"] = [row[:n] for row, n in zip(parts["token_ids"], first)]
        arguments.update(group_ids=[f"g{g}" for g in r.group_ids[keep]], rewards=r.rewards[keep], tokenizer=r.tokenizer)
        if "entropy" not in credit.reads and not credit.save_every:
            arguments["entropy"] = None
        return token_advantages(**{**arguments, **change}, credit=credit)

    def test_figures(self):
        """The page has the prompt, the texts, and the numbers that the credit made, of the first eight trajectories."""
        r = self.rollouts
        for name, options, columns in (
            ("both", {"alpha": 0.3, "lambda_": 0.5}, {"entropy", "ActFocus weight", "AEM factor"}),
            ("actfocus", {"scheme": "actfocus"}, {"ActFocus weight"}),
            ("aem", {"scheme": "aem", "scope": "batch"}, {"entropy", "AEM factor"}),
            ("surprisal", {"entropy": "surprisal"}, {"ActFocus weight", "AEM factor"}),
        ):
            credit = Credit(show_every=5, dir=str(self.folder / name / "pages"), **options)
            self.call(credit)
            (path,) = (self.folder / name / "pages").iterdir()
            self.assertEqual(path.name, "batch-000001.html")
            weights, factors = scheme(r, credit)
            found = sections(path)
            self.assertEqual(len(found), 8)
            columns |= {"token", "text", "role", "log-probability", "weight", "advantage"}
            for b, (title, tokens) in enumerate(found):
                self.assertEqual(set(tokens), columns)
                begin = r.seq_offsets[b]
                end = begin + np.flatnonzero(r.mask[begin : r.seq_offsets[b + 1]])[-1] + 1
                about = f"Trajectory {b} of batch-000001: group {r.group_ids[b]}, reward {r.rewards[b]:g}, "
                self.assertEqual(title[: len(about)], about)
                self.assertEqual(tokens["text"], [r.tokenizer.words[id] for id in r.token_ids[begin:end]])
                if "actfocus" in credit.scheme:
                    names = np.array(["masked", "reasoning", "action"])
                    self.assertEqual(tokens["role"], names[r.role[begin:end]].tolist())
                for column, x in (
                    ("entropy", r.entropy), ("log-probability", r.old_logprobs), ("ActFocus weight", weights),
                    ("AEM factor", factors), ("weight", weights * factors), ("advantage", r.advantages),
                ):  # fmt: skip
                    if column in columns:
                        want = x[begin:end].astype(float)
                        if column != "ActFocus weight":
                            want[~r.mask[begin:end]] = np.nan
                        np.testing.assert_allclose(tokens[column], want, 6e-4)

    def test_layouts(self):
        """Padding is not shown, nor a trajectory without a response; nobody need give more than the mask."""
        r = self.rollouts
        mask = [row.copy() for row in rows(r, r.mask)[:3]]
        mask[1][:] = False
        ids = padded(rows(r, r.token_ids)[:3])
        credit = Credit(show_every=1, dir=str(self.folder), scheme="actfocus", tags=None)
        token_advantages(np.ones(ids.shape), padded(mask), credit=credit, old_logprobs=np.zeros(ids.shape), token_ids=ids)
        found = sections(self.folder / "batch-000001.html")
        want = [np.flatnonzero(mask[b])[-1] + 1 for b in (0, 2)]
        self.assertEqual([len(tokens["text"]) for _, tokens in found], want)
        self.assertEqual(found[1][1]["text"][0], f"#{ids[2, 0]}")
        token_advantages(np.ones(ids.shape), padded(mask), credit=credit, old_logprobs=np.zeros(ids.shape))
        self.assertEqual(sections(self.folder / "batch-000002.html")[0][1]["text"][0], "#?")

    def test_rejected(self):
        """A token that was rejected is within its turn and has no figures; a figure that is not finite is shown as such."""
        r = self.rollouts
        sampled = rows(r, r.mask)[0][None]
        first, end = [int(np.argmax(sampled)), int(np.flatnonzero(sampled)[-1]) + 1]
        mask, logprobs = sampled.copy(), np.full(sampled.shape, -1.0)
        mask[0, first + 2] = False
        logprobs[0, first + 3] = -np.inf
        credit = Credit(show_every=1, dir=str(self.folder), tags=None, entropy="surprisal", guard=0)
        token_advantages(np.ones(mask.shape), mask, sampled=sampled, credit=credit, old_logprobs=logprobs, group_ids=[0])
        ((title, tokens),) = sections(self.folder / "batch-000001.html")
        turns = 1 + (np.diff(np.flatnonzero(sampled)) > 1).sum()
        self.assertIn(f" {turns} turns, {end} tokens.", title)
        self.assertEqual(list(tokens["role"][first : first + 4]), ["action", "action", "masked", "action"])
        self.assertTrue(np.isnan(tokens["weight"][first + 2]))
        self.assertEqual(tokens["ActFocus weight"][first + 3], 1)
        self.assertEqual(tokens["log-probability"][first + 3], -np.inf)

    def test_numbers(self):
        """The first batch, and multiples; none without show_every; each credit counts for itself."""
        credit = Credit(show_every=3, dir=str(self.folder))
        for _ in range(7):
            self.call(credit, slice(8))
        self.assertEqual(sorted(os.listdir(self.folder)), [f"batch-{n:06}.html" for n in (1, 3, 6)])
        before = os.getcwd()
        os.chdir(self.folder)
        self.addCleanup(os.chdir, before)
        self.call(Credit(), slice(8))
        self.assertEqual(len(os.listdir(self.folder)), 3)

    def test_processes(self):
        """Of two processes the first writes: its own trajectories, with the numbers of both."""
        r, half = self.rollouts, 16
        both = {}
        for rank, keep in enumerate((slice(half), slice(half, None))):
            self.call(Credit(), keep, gather=lambda part: both.setdefault(rank, part) and ([part], 0))
        for rank, keep in enumerate((slice(half), slice(half, None))):
            credit = Credit(show_every=1, dir=str(self.folder / str(rank)), scope="batch")
            self.call(credit, keep, gather=lambda part: ([both[0], both[1]], rank))
        self.assertFalse((self.folder / "1").exists())
        weights, factors = scheme(r, credit)
        for b, (_, tokens) in enumerate(sections(self.folder / "0" / "batch-000001.html")):
            first = r.seq_offsets[b]
            mask = r.mask[first : first + len(tokens["weight"])]
            np.testing.assert_allclose(tokens["weight"][mask], (weights * factors)[first:][: len(mask)][mask], 6e-4)

    def test_failures(self):
        """A run goes on without its pages, with one warning; what was there stays."""
        (self.folder / "file").write_text("")
        unscored = "none of its trajectories has a response, and a reward where there are any"
        infinite = "batch-000001: rewards[0] is +Inf, want a finite reward"
        cases = [
            (str(self.folder / "file"), {}, "File exists"),
            (str(self.folder / "a"), {"rewards": np.full(8, np.nan)}, unscored),
            (str(self.folder / "d"), {"rewards": np.full(8, np.inf)}, infinite),
            (str(self.folder / "b"), {"prompt_ids": [np.zeros(1)]}, "index out of range"),
            (str(self.folder / "c"), {"tokenizer": mock.Mock(decode=lambda ids: 1 / 0)}, "division by zero"),
        ]
        for folder, change, problem in cases:
            credit = Credit(show_every=1, dir=folder, tags=([6], [7]))
            want = self.call(Credit(tags=([6], [7])), slice(8))
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                for _ in range(3):
                    for got, row in zip(self.call(credit, slice(8), **change), want):
                        self.assertBits(got, row)
            (one,) = said
            text = str(one.message)
            self.assertIn(f"{folder}/batch-000001.html was not written, and later ones may be missing too: ", text)
            self.assertIn(problem, text)
            self.call(credit, slice(8))
            if os.path.isdir(folder):
                self.assertEqual(os.listdir(folder), ["batch-000004.html"])

    def test_saved(self):
        """A file has all trajectories, each behind its prompt, with what was given and made, and the program reads it without
        a flag; it is not written over."""
        r = self.rollouts
        for case, options in enumerate(({}, {"scheme": "actfocus", "keep": "norm"}, {"scheme": "rloo"}, {"scheme": "uniform"},
                                        {"scheme": "entropy_mask"}, {"scheme": "gtpo+actfocus+aem"}, {"scheme": "aem", "tags": None})):  # fmt: skip
            folder = self.folder / str(case)
            credit = Credit(save_every=2, dir=str(folder), **options)
            for name in "run-step-000001", None, "run-step-000001":
                made = self.call(credit, batch_name=name, log={})
            names = ["batch-000002.jsonl", "run-step-000001.jsonl"]
            self.assertEqual(sorted(os.listdir(folder)), names)
            self.call(credit, batch_name="run-step-000001")
            self.assertEqual(sorted(os.listdir(folder)), [names[0], "run-step-000001-2.jsonl", names[1]])
            lines = [json.loads(line) for line in (folder / names[1]).read_text().splitlines()]
            self.assertEqual(len(lines), len(r.rewards))
            for b, line in enumerate(lines):
                begin = r.seq_offsets[b]
                end = begin + np.flatnonzero(r.mask[begin : r.seq_offsets[b + 1]])[-1] + 1
                first = begin + np.argmax(r.mask[begin:end])
                self.assertEqual(line["token_ids"], r.token_ids[begin:end].tolist())
                self.assertEqual(line["texts"], [r.tokenizer.words[i] for i in line["token_ids"]])
                np.testing.assert_array_equal(line["role"], (r.mask if "tags" in options else r.role)[begin:end])
                self.assertEqual(line["reward"], r.rewards[b])
                self.assertEqual(line["group_id"], f"run-step-000001 g{r.group_ids[b]}")
                for field, x in ("old_logprobs", r.old_logprobs), ("entropy", r.entropy):
                    self.assertBits(np.array(line[field], np.float32)[first - begin :], x[first:end])
                self.assertBits(np.array(line["credited_advantages"], np.float32)[first - begin :], made[b][: end - first])
                if "rloo" not in credit.scheme and "gtpo" not in credit.scheme:
                    self.assertBits(np.array(line["advantages"], np.float32)[first - begin :], r.advantages[first:end])
            for flags in ["-format=json"], ["show"]:
                done = subprocess.run(["reweight", *flags, *map(str, folder.glob("*.jsonl"))], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertNotIn("no array takes", done.stdout)
            table = json.loads(subprocess.run(["reweight", "-format=json", folder / names[1]], capture_output=True).stdout)
            self.assertEqual([s["scheme"] for s in table["schemes"]], ["uniform", "actfocus", "aem", "actfocus+aem"])

    def test_saved_turns(self):
        """A file has the rewards of turns, from which the program computes the same advantages. A turn that the loss lacks
        is no span of the file, and has given its reward to the turn before it."""
        r = self.rollouts
        masks = [row[int(np.argmax(row)) :] for row in rows(r, r.mask)]
        runs = [np.flatnonzero(np.diff(np.concatenate([[0], mask, [0]]))).reshape(-1, 2) for mask in masks]
        turns = [[0.25 * b - k for k in range(len(of))] for b, of in enumerate(runs)]
        b = next(i for i, of in enumerate(runs) if len(of) > 2)
        lost, merged = [mask.copy() for mask in masks], list(turns)
        lost[b][slice(*runs[b][1])] = 0
        merged[b] = [turns[b][0] + turns[b][1], *turns[b][2:]]
        for name, mask, want in ("whole", masks, turns), ("lost", lost, merged):
            for scheme in "turn_returns", "rloo":
                path = self.folder / f"{name}-{scheme}.jsonl"
                credit = Credit(scheme, save_every=1, show_every=1, dir=str(self.folder))
                made = self.call(credit, mask=mask, sampled=masks, span_rewards=turns, batch_name=path.stem)
                lines = [json.loads(line) for line in path.read_text().splitlines()]
                if scheme == "turn_returns":
                    self.assertEqual([line["span_rewards"] for line in lines], want)
                done = subprocess.run(["reweight", f"-scheme={scheme}", "-o", self.folder / "out.npz", path], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                got = np.load(self.folder / "out.npz")["advantages"]
                kept = np.concatenate([np.array(line["role"]) > 0 for line in lines])
                self.assertBits(got[kept], np.concatenate([row[there != 0] for row, there in zip(made, mask)]))
                self.assertTrue(path.with_suffix(".html").exists())

    def test_saved_by_processes(self):
        """Each process writes its own trajectories, and groups are one over the files of a batch."""
        r, half = self.rollouts, 14
        both = {}
        for rank, keep in enumerate((slice(half), slice(half, None))):
            self.call(Credit(), keep, gather=lambda part: both.setdefault(rank, part) and ([part], 0))
        credits = [Credit(save_every=1, show_every=1, dir=str(self.folder)) for _ in both]
        for rank, keep in enumerate((slice(half), slice(half, None))):
            self.call(credits[rank], keep, gather=lambda part: ([both[0], both[1]], rank), batch_name="a-step-000007")
        names = ["a-step-000007-process-0.jsonl", "a-step-000007-process-1.jsonl", "a-step-000007.html"]
        self.assertEqual(sorted(os.listdir(self.folder)), names)
        lines = [json.loads(line) for name in names[:2] for line in (self.folder / name).read_text().splitlines()]
        weights, factors = scheme(r, credits[0])
        self.assertEqual([line["group_id"] for line in lines], [f"a-step-000007 g{g}" for g in r.group_ids])
        for b, line in enumerate(lines):
            of = slice(r.seq_offsets[b], r.seq_offsets[b] + len(line["role"]))
            self.assertBits(np.array(line["actfocus_weights"], np.float32)[r.mask[of]], weights[of][r.mask[of]])
            self.assertBits(np.array(line["aem_factors"], np.float32)[r.mask[of]], factors[of][r.mask[of]])

    def test_what_no_file_may_have(self):
        """A trajectory with a log-probability that is not finite, or without a reward, is left out, and a line says so."""
        r = self.rollouts
        first = [int(np.argmax(mask)) for mask in rows(r, r.mask)]
        logprobs, rewards = [row[n:].copy() for row, n in zip(rows(r, r.old_logprobs), first)], r.rewards.astype(np.float32)
        logprobs[1][0] = np.nan
        logprobs[2][np.argmin(rows(r, r.mask)[2][first[2] :])] = np.nan  # at what the environment says
        rewards[3] = np.nan
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            self.call(Credit(save_every=1, dir=str(self.folder)), old_logprobs=logprobs, rewards=rewards)
        text = f"{self.folder}/batch-000001.jsonl has {len(rewards) - 2} of {len(rewards)} trajectories: others have no response, no reward, or a"
        self.assertIn(text, said.getvalue())
        done = subprocess.run(["reweight", "show", self.folder / "batch-000001.jsonl"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_names(self):
        for run, want in (
            ("out/my run", "my-run-step-000007"), ("/tmp/a.b=1/", "a.b=1-step-000007"), ("..", "step-000007"), (None, "step-000007"),
            ("\x1b[1m\n", "1m-step-000007"), ("x" * 300, "x" * 80 + "-step-000007"), ("Q: why?", "Q-why-step-000007"),
        ):  # fmt: skip
            self.assertEqual(batch_name(run, 7), want)

    def test_checked_first(self):
        for wrong in -1, 2.5, "x", None:
            with self.assertRaises(reweight.InputError) as caught:
                Credit(show_every=wrong)
            text = f"show_every is {wrong!r}, want a number of batches, or 0 for no pages"
            self.assertEqual(str(caught.exception), text)
        with self.assertRaisesRegex(reweight.InputError, "save_every is -1, want a number of batches, or 0 for no files"):
            Credit(save_every=-1)
        Credit(show_every=50).check("TRL", {}, ("entropy",))
        with self.no_program():
            Credit().check("TRL", {}, ("entropy",))
            with self.assertRaises(reweight.InputError) as caught:
                Credit(show_every=50).check("TRL", {}, ("entropy",))
        text = "show_every is 50, for which the program reweight must be installed: install the wheel, or go install "
        self.assertEqual(str(caught.exception), text + "github.com/seed621a2839/reweight/cmd/reweight@latest")


if __name__ == "__main__":
    unittest.main()
