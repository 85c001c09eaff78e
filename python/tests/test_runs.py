"""python -m reweight runs: logs of training runs, what is compared, and the page."""

import contextlib
import io
import itertools
import json
import math
import re
import tempfile
import unittest
import unittest.mock
import warnings
from pathlib import Path

import numpy as np
from support import TestCase

from reweight import InputError, _runs

try:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
except ImportError:
    EventFileWriter = None


def state(path, rewards, **more):
    """Writes a trainer_state.json; more has values of other names, one for each reward."""
    path.parent.mkdir(parents=True, exist_ok=True)
    history = [{"step": i + 1, "loss": 0.5, "reward": r, **{name: x[i] for name, x in more.items()}} for i, r in enumerate(rewards)]
    history.append({"step": len(rewards), "train_runtime": 3.5, "note": "<b>"})
    path.write_text(json.dumps({"global_step": len(rewards), "log_history": history}))


def events(folder, first, rewards):
    folder.mkdir(parents=True, exist_ok=True)
    writer = EventFileWriter(str(folder))
    for i, r in enumerate(rewards):
        event = Event(step=first + i)
        event.summary.value.add(tag="train/reward", simple_value=r)
        writer.add_event(event)
    writer.close()


class Runs(TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_(self, *arguments):
        """The exit status, what is printed, and the errors."""
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            status = _runs.main([*map(str, arguments), "--out", str(self.folder / "page.html")])
        return status, out.getvalue(), errors.getvalue()

    def good(self, *arguments):
        """What is printed, and the page."""
        status, out, errors = self.run_(*arguments)
        self.assertEqual((status, errors), (0, ""))
        return out, (self.folder / "page.html").read_text()

    def test_settings_and_curves(self):
        for setting, seed in itertools.product((0, 1), (1, 2, 3)):
            rewards = [setting + 0.1 * seed + 0.01 * i for i in range(8)]
            more = {"completions/mean_length": [20.0] * 8, "credit/no_action": [0.25] * 8, "credit/actions": [3] * 8}
            state(self.folder / f"{'ab'[setting]}/seed-{seed}" / "trainer_state.json", rewards, **more)
        out, page = self.good(self.folder / "a", self.folder / "b")
        self.assertIn("after 6 and until 8, the last quarter", out)
        self.assertRegex(out, r"a +3 +0\.265 +0\.1\n")
        self.assertRegex(out, r"b +3 +1\.265 +0\.1\n")
        self.assertIn("b less a: +1, 95% interval +1 to +1 (paired by the numbers in the runs' names, 1, 2, 3), which tells them", out)
        headings = re.findall("<h2>(.*?)</h2>", page)
        self.assertEqual(headings, ["reward", "length", "credit/no_action", "credit/actions"])
        self.assertEqual(page.count("<polyline"), 8)
        self.assertEqual(page.count("<polygon"), 8)
        flat, _ = self.good(f"a={self.folder}/a/*", f"b={self.folder}/b/*")
        self.assertEqual(flat.split("\n\n")[1:], out.split("\n\n")[1:])

    def test_a_curve_is_where_its_values_are(self):
        state(self.folder / "a" / "trainer_state.json", [0.0, 1.0, 0.5])
        state(self.folder / "b" / "trainer_state.json", [0.0, 0.0, 0.0])
        _, page = self.good(self.folder / "a", self.folder / "b")
        self.assertIn('points="70.0,190.0 380.0,10.0 690.0,100.0"', page)  # the lowest is at 190, the highest at 10
        self.assertIn('points="70.0,190.0 380.0,190.0 690.0,190.0"', page)

    def test_the_band_is_one_deviation(self):
        """Of two runs at 0 and 2: 1 less and more the root of 2, which the axis ends with."""
        for seed, reward in enumerate((0.0, 2.0)):
            state(self.folder / "a" / f"seed-{seed}" / "trainer_state.json", [reward] * 4)
        _, page = self.good(self.folder / "a")
        for label in ">-0.414<", ">1<", ">2.41<":
            self.assertIn(label, page)

    def test_many_steps_are_pieces(self):
        state(self.folder / "a" / "trainer_state.json", [float(i // 10) for i in range(600)])
        _, page = self.good(self.folder / "a")
        self.assertEqual(len(re.search('polyline points="(.*?)"', page)[1].split()), 60)

    def test_the_newest_state_of_a_run(self):
        state(self.folder / "a" / "checkpoint-4" / "trainer_state.json", [0.0] * 4)
        state(self.folder / "a" / "checkpoint-12" / "trainer_state.json", [1.0] * 12)
        out, _ = self.good(self.folder / "a")
        self.assertRegex(out, r"^a: 1 run: ")
        self.assertRegex(out, r"a +1 +1 +\?")

    def test_csv(self):
        for name, head in ("a", "step,train/reward,note"), ("b", "\ufeffglobal_step,critic/score/mean,note"):
            (self.folder / f"{name}.csv").write_text(f"{head}\n1,0.5,x\n\n2,,y\n3,1.5,\n4,NaN,z\n", encoding="utf-8")
        out, _ = self.good(self.folder / "a.csv", self.folder / "b.csv")
        self.assertRegex(out, r"a\.csv +1 +1\.5 ")
        self.assertRegex(out, r"b\.csv +1 +1\.5 ")
        self.assertIn("one run says nothing of the spread over seeds", out)

    @unittest.skipIf(EventFileWriter is None, "tensorboard is not installed")
    def test_tensorboard(self):
        events(self.folder / "a" / "runs" / "Nov1", 1, [0.25] * 4)
        events(self.folder / "a" / "runs" / "Nov2", 3, [0.75] * 4)  # resumed after step 2
        run = _runs.read([str(self.folder / "a")])["a"]
        self.assertEqual(len(run), 1)
        steps, values = run[0].curves["reward"]
        self.assertEqual((steps.tolist(), values.tolist()), ([1, 2, 3, 4, 5, 6], [0.25] * 2 + [0.75] * 4))
        (self.folder / "b").mkdir()
        (self.folder / "b" / "events.out.tfevents.1").write_bytes(b"nonsense" * 40)
        status, out, errors = self.run_(self.folder / "b")
        self.assertEqual((status, out, errors.count("\n")), (2, "", 1), errors)

    def test_seeds(self):
        """Against numbers of tables of the power of t tests."""
        self.assertEqual([_runs.seeds(1 / s, 1, True) for s in (0.5, 1, 2, 5)], [5, 10, 34, 199])
        self.assertEqual([_runs.seeds(1 / s, 2, False) for s in (0.5, 1, 2, 5)], [6, 17, 64, 394])
        self.assertEqual(_runs.seeds(0, 1, True), 100_001)
        self.assertEqual(_runs.seeds(1e-9, 1, False), 100_001)
        self.assertEqual(_runs.seeds(1, 0, True), 2)

    def test_difference(self):
        a, b = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.5, 2.0, 5.5, 4.0])
        said = _runs.difference("a", "b", a, b, [1, 2, 3, 4], [1, 2, 3, 4])
        d = b - a
        half = 3.182 * d.std(ddof=1) / 2
        self.assertIn(f"b less a: +1, 95% interval {1 - half:+.4g} to {1 + half:+.4g} (paired", said)
        self.assertIn("does not tell them apart. For a difference of this size, 14 seeds", said)
        said = _runs.difference("a", "b", a, b, [1, 2, 3, 4], [5, 6, None, 1])
        self.assertIn("by Welch", said)
        of = [x.var(ddof=1) / 4 for x in (a, b)]
        freedom = int(sum(of) ** 2 / sum(x**2 / 3 for x in of))
        half = _runs.student(freedom) * math.sqrt(sum(of))
        self.assertIn(f"interval {1 - half:+.4g} to {1 + half:+.4g}", said)
        said = _runs.difference("a", "b", a[:2], a[:2], [1, 1], [1, 2])  # two runs of one number
        self.assertIn("by Welch", said)
        self.assertIn("More than 100,000 seeds", said)
        said = _runs.difference("a", "b", a[:1] * [1, 1], a[:1] * [1, 1], [1, 2], [1, 2])
        self.assertIn("check that their seeds differ", said)

    def test_texts_of_files_are_quoted(self):
        state(self.folder / "a\x1b[1m<i>" / "trainer_state.json", [1.0, 2.0], **{"credit/<script>\x1b": [1, 2]})
        out, page = self.good(self.folder / "a\x1b[1m<i>")
        for text in out, page:
            self.assertNotIn("\x1b", text)
        self.assertNotIn("<script>", page)
        self.assertNotIn("<i>", page)
        self.assertIn("credit/&lt;script&gt;\\x1b", page)

    def test_values_that_no_plot_has(self):
        """Not finite, too large, of another kind, equal, one alone."""
        odd = [float("nan"), float("inf"), 1e300, -1e300, 10**400, True, "x", None, [1]]
        for values in ([*odd, 1.0], [1.0, *odd], [1.0, 1.0]):
            state(self.folder / "a" / "trainer_state.json", values)
            _, page = self.good(self.folder / "a")
            self.assertNotRegex(page, r"\b(nan|inf)\b")
        state(self.folder / "a" / "trainer_state.json", odd)
        self.assertEqual(self.run_(self.folder / "a")[0], 2)

    def test_what_is_wrong(self):
        """One line, status 2, and no page."""
        texts = {
            "trainer_state.json": {
                "": "is no trainer_state.json", "{": "is no trainer_state.json", "[" * 100_000: "is no trainer_state.json",
                "[]": "no list log_history", '{"log_history": 7}': "no list log_history", '{"log_history": []}': "has no steps with",
                '{"log_history": [7]}': "log_history[0] has no step", '{"log_history": [{"step": "1"}]}': "log_history[0] has no step",
                '{"log_history": [{"step": NaN}]}': "log_history[0] has no step", '{"log_history": [{"step": 1e999}]}': "has no step",
                '{"log_history": [{"step": 1, "loss": 1}]}': "has no steps with one of reward, completions/mean_length, credit/*", "\xff": "is no",
            },
            "log.csv": {
                "": "no column of the name step", "a,b\n1,2\n": "no column of the name step, global_step or _step",
                "step,reward\n1\n": "line 2 has 1 columns, want 2", "step,reward\nx,1\n": "line 2 has the step 'x'",
                "step,reward\nnan,1\n": "has the step 'nan'", "step,reward\n1,\x1b\n": "has 'reward' '\\x1b', want a number",
                "step,reward\n": "has no steps with", "step,loss\n1,1\n": "has no steps with",
                'step,reward\n1,"' + "x" * 200_000: "is no CSV file",
            },
        }  # fmt: skip
        for name, cases in texts.items():
            for text, want in cases.items():
                (self.folder / name).write_bytes(text.encode("latin-1"))
                with self.subTest(name=name, text=text[:40]):
                    status, out, errors = self.run_(self.folder / name)
                    self.assertEqual((status, out, errors.count("\n")), (2, "", 1), errors)
                    self.assertIn(want, errors)
                    self.assertNotIn("\x1b", errors)
            (self.folder / name).unlink()
        (self.folder / "empty").mkdir()
        state(self.folder / "a" / "trainer_state.json", [1.0])
        a = self.folder / "a"
        for arguments, want in (
            (["nosuch\x1b"], "there is no such file or folder"), (["a="], "there is no such file"), (["a=nosuch*"], "no such file"),
            ([self.folder / "empty"], "where there is no trainer_state.json"), ([a, a], "twice, in 'a' and 'a'"),
            ([a, f"b={a}"], "twice, in 'a' and 'b'"), ([a, a / "trainer_state.json"], "twice, in 'a' and 'trainer_state.json'"),
            ([a, "--out", self.folder / "no" / "page"], "/no/page', want a file in a folder that is there"),
            ([a, "--out", ""], "out is '', want a file"), ([a, "--out", a], "want a file"), (["nosuch", "--out", "."], "out is '.', want"),
            ([], "arguments are required"), ([a, "--nosuch\x1b"], "unrecognized arguments: --nosuch\\x1b"),
        ):  # fmt: skip
            with self.subTest(arguments=arguments):
                errors = io.StringIO()
                with contextlib.redirect_stderr(errors):
                    status = _runs.main([*map(str, arguments)] if "--out" in arguments else [*map(str, arguments), "--out", str(self.folder / "p")])
                self.assertEqual((status, errors.getvalue().count("\n")), (2, 1), errors.getvalue())
                self.assertIn(want, errors.getvalue())
        self.assertFalse((self.folder / "page.html").exists() or (self.folder / "p").exists())

    def test_runs_of_different_lengths(self):
        state(self.folder / "a" / "trainer_state.json", [1.0] * 100)
        state(self.folder / "b" / "trainer_state.json", [0.0] * 40)
        out, _ = self.good(self.folder / "a", self.folder / "b")
        self.assertIn(f"Runs end at different steps, up to 100: the shortest one is {self.folder}/b.", out)
        self.assertIn("after 30 and until 40", out)

    def test_one_ends_before_another_begins(self):
        (self.folder / "a.csv").write_text("step,reward\n1,0.5\n")
        (self.folder / "b.csv").write_text("step,reward\n10,0.5\n20,0.7\n")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            out, page = self.good(self.folder / "a.csv", self.folder / "b.csv")
        want = f"Rewards are not compared: the last one of {self.folder}/a.csv is at step 1, before the first one of {self.folder}/b.csv."
        self.assertIn(want, out)
        self.assertEqual(page.count("<svg"), 1)

    def test_without_rewards(self):
        (self.folder / "a.csv").write_text("step,credit/actions\n1,2\n2,3\n")
        out, page = self.good(self.folder / "a.csv")
        self.assertIn("Rewards are not compared: there are none in the log of", out)
        self.assertIn("No log has reward, length, credit/no_action.", page)

    def test_tensorboard_is_missing(self):
        (self.folder / "events.out.tfevents.1").write_bytes(b"")
        found = _runs.importlib.util.find_spec
        with unittest.mock.patch.object(_runs.importlib.util, "find_spec", lambda n: None if n == "tensorboard" else found(n)):
            with self.assertRaisesRegex(InputError, "for which the package tensorboard is needed: pip install tensorboard"):
                _runs.read([str(self.folder)])


if __name__ == "__main__":
    unittest.main()
