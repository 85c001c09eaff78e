"""python -m reweight runs: several training runs on one page, and how many seeds their difference would need."""

from __future__ import annotations

import argparse
import csv
import glob
import html
import importlib
import importlib.util
import json
import math
import os
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ._errors import InputError, printable
from .audit import _COLOURS, _NORMAL, _STYLE, _table, student
from .audit._command import Parser, _write, command

_DESCRIPTION = """Writes a page that compares training runs: reward, length and credit/* over the steps, with bands over seeds,
and says how many seeds their difference would need. A setting is a folder of runs that differ in the seed
alone, or several arguments of one name. The first setting is what the others are compared with.

  python -m reweight runs out/uniform out/actfocus
  python -m reweight runs 'uniform=out/uniform-*' 'actfocus=out/actfocus-*'

Of a run it reads trainer_state.json (TRL, transformers), the newest one of its folder and its checkpoints;
else TensorBoard's files, if tensorboard is installed; else a CSV file, which has a column step."""

# The names that trainers have for a figure, the first of which is shown; credit/* are read besides.
_NAMES = {
    "reward": ("reward", "critic/rewards/mean", "critic/score/mean"),
    "length": ("completions/mean_length", "response_length/mean", "response_length"),
}
_STEPS = ("step", "global_step", "_step")
_STATE, _EVENTS = "trainer_state.json", "events.out.tfevents"
# A curve has at most so many points, each the mean of equally many steps.
_POINTS = 60
_POWER = 0.8416212335729143  # the quantile of a power of 0.8
_MOST = 100_000  # of seeds
_LARGEST = 1e30  # of a value, whose square is finite

Curve = Tuple[Any, Any]  # steps in ascending order, and values


class Run(NamedTuple):
    """A training run: a curve of each figure. number is the last one in its name, such as its seed."""

    path: str
    number: Optional[int]
    curves: Dict[str, Curve]


def parser() -> argparse.ArgumentParser:
    """The parser of the command's arguments."""
    raw = argparse.RawDescriptionHelpFormatter
    made = Parser("python -m reweight runs", description=_DESCRIPTION, allow_abbrev=False, formatter_class=raw)
    made.add_argument("runs", metavar="[NAME=]PATH", nargs="+", help="a folder of runs, or a log; arguments of one NAME are one setting")
    made.add_argument("--out", metavar="FILE", default="runs.html", help="the page (%(default)s)")
    return made


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status: 2 for bad use."""
    return command(parser(), run, arguments)


def run(options: argparse.Namespace) -> str:
    """Writes the page, and returns what is printed."""
    out = Path(options.out)
    if not options.out or out.is_dir() or not out.parent.is_dir():
        raise InputError("out", f"is {options.out!r}, want a file in a folder that is there")
    settings = read(options.runs)
    text = compared(settings)
    _write(out, page(settings, text))
    return f"{text}\n{printable(options.out)} has the curves"


def read(arguments: Sequence[str]) -> Dict[str, List[Run]]:
    """The runs of each setting, by the names of the settings, which are safe to print."""
    found: Dict[str, List[Run]] = {}
    seen: Dict[str, str] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or os.path.exists(argument):
            name, path = "", argument
        paths = [path] if os.path.exists(path) else sorted(glob.glob(path))
        if not paths or not path:
            raise InputError("runs", f"has {argument!r}, and there is no such file or folder")
        name = printable(name or os.path.basename(os.path.abspath(path)))
        logs = [log for path in paths for log in _logs(path)]
        if not logs:
            raise InputError("runs", f"has {argument!r}, where there is no {_STATE}, file of TensorBoard or CSV file")
        for run, files in logs:
            for real in map(os.path.realpath, files):
                if real in seen:
                    raise InputError("runs", f"has {run!r} twice, in {seen[real]!r} and {name!r}")
                seen[real] = name
            found.setdefault(name, []).append(_run(run, files))
    return found


def _logs(path: str) -> Iterator[Tuple[str, List[str]]]:
    """Each run under a path, and its logs of one kind, of the kinds that it has the first."""
    if os.path.isfile(path):
        yield path, [path]
        return
    runs: Dict[str, List[str]] = {}
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            if name == _STATE or name.startswith(_EVENTS) or name.endswith(".csv"):
                runs.setdefault(_run_of(path, folder), []).append(os.path.join(folder, name))
    for run, files in runs.items():
        states, events = [f for f in files if _kind(f) == "state"], [f for f in files if _kind(f) == "events"]
        if states or events:
            yield run, states or events
        else:
            for file in files:
                yield file, [file]


def _run_of(top: str, folder: str) -> str:
    """The folder of the run that a folder of logs is in."""
    parent, name = os.path.split(folder)
    if folder == top:
        return folder
    if re.fullmatch(r"checkpoint-\d+", name):
        return parent
    if os.path.basename(parent) == "runs" and parent != top:  # as the Trainer of transformers names it
        return os.path.dirname(parent)
    return parent if name == "runs" else folder


def _kind(file: str) -> str:
    name = os.path.basename(file)
    return "events" if name.startswith(_EVENTS) else "csv" if name.endswith(".csv") else "state"


def _run(path: str, files: List[str]) -> Run:
    kind = _kind(files[0])
    if kind == "state":
        states = [_state(file) for file in files]
        values = max(states, key=lambda s: s[0])[1]  # of the last step
    elif kind == "events":
        values = {}
        for file in files:  # a run that was resumed goes on in another one
            for name, of in _events(file).items():
                values.setdefault(name, {}).update(of)
    else:
        values = _csv(files[0])
    curves = {}
    for name, of in values.items():
        steps = sorted(step for step, value in of.items() if abs(value) <= _LARGEST)
        if steps:
            curves[name] = np.array(steps, float), np.array([of[step] for step in steps], float)
    shown: Dict[str, Curve] = {}
    for figure, names in _NAMES.items():
        known = next((n for n in names if n in curves), None)
        if known:
            shown[figure] = curves[known]
    shown.update({name: curve for name, curve in sorted(curves.items()) if name.startswith("credit/")})
    if not shown:
        raise InputError("runs", f"has {path!r}, whose log has no steps with one of {', '.join(n[0] for n in _NAMES.values())}, credit/*")
    numbers = re.findall(r"\d+", re.sub(r"\.\w+$", "", os.path.basename(os.path.abspath(path))))
    return Run(path, int(numbers[-1]) if numbers else None, shown)


def _state(file: str) -> Tuple[float, Dict[str, Dict[float, float]]]:
    """The last step of a trainer_state.json, and its values by name and step."""
    problem = f"has {file!r}, which is no trainer_state.json"
    try:
        state = json.loads(Path(file).read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError("runs", f"{problem}: {error}") from None
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        raise InputError("runs", f"{problem}: it has no list log_history")
    values: Dict[str, Dict[float, float]] = {}
    last = 0.0
    for i, entry in enumerate(history):
        step = _number(entry.get("step")) if isinstance(entry, dict) else None
        if step is None or not abs(step) <= _LARGEST:
            raise InputError("runs", f"{problem}: log_history[{i}] has no step that is a number")
        last = max(last, step)
        for name, value in entry.items():
            number = _number(value)
            if number is not None:
                values.setdefault(name, {})[step] = number
    return last, values


def _number(value: Any) -> Optional[float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _events(file: str) -> Dict[str, Dict[float, float]]:
    """The scalars of a file of TensorBoard, without the name train/ that transformers gives them."""
    if importlib.util.find_spec("tensorboard") is None:
        raise InputError("runs", f"has {file!r}, for which the package tensorboard is needed: pip install tensorboard")
    loader = importlib.import_module("tensorboard.backend.event_processing.event_file_loader")
    values: Dict[str, Dict[float, float]] = {}
    try:
        for event in loader.LegacyEventFileLoader(file).Load():
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    values.setdefault(value.tag.removeprefix("train/"), {})[float(event.step)] = float(value.simple_value)
    except Exception as error:  # of many kinds, from tensorboard and from protobuf
        raise InputError("runs", f"has {file!r}, which is no file of TensorBoard: {error}") from None
    return values


def _csv(file: str) -> Dict[str, Dict[float, float]]:
    problem = f"has {file!r}"
    values: Dict[str, Dict[float, float]] = {}
    try:
        with open(file, newline="", encoding="utf-8-sig") as text:
            rows = csv.reader(text)
            head = next(rows, [])
            names = [name.strip().removeprefix("train/") for name in head]
            at = next((i for wanted in _STEPS for i, name in enumerate(names) if name.lower() == wanted), None)
            if at is None:
                raise InputError("runs", f"{problem}, whose first line has no column of the name {', '.join(_STEPS[:-1])} or {_STEPS[-1]}")
            for row in filter(None, rows):
                place = f"{problem}, whose line {rows.line_num}"
                if len(row) != len(head):
                    raise InputError("runs", f"{place} has {len(row)} columns, want {len(head)} as in the first line")
                try:
                    step = float(row[at])
                except ValueError:
                    step = math.nan
                if not abs(step) <= _LARGEST:
                    raise InputError("runs", f"{place} has the step {row[at]!r}, want a number")
                for name, cell in zip(names, row):
                    try:
                        number = float(cell or "nan")
                    except ValueError:
                        if name in _NAMES or name.startswith("credit/"):
                            raise InputError("runs", f"{place} has {name!r} {cell!r}, want a number") from None
                        continue
                    values.setdefault(name, {})[step] = number
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError("runs", f"{problem}, which is no CSV file: {error}") from None
    return values


def compared(settings: Dict[str, List[Run]]) -> str:
    """What the rewards say, as text."""
    lines = [f"{name}: {len(runs)} {'run' if len(runs) == 1 else 'runs'}: {', '.join(printable(run.path) for run in runs)}"
             for name, runs in settings.items()]  # fmt: skip
    without = [printable(run.path) for runs in settings.values() for run in runs if "reward" not in run.curves]
    if without:
        return "\n".join([*lines, "", f"Rewards are not compared: there are none in the log of {', '.join(without)}."])
    everyone = [run for runs in settings.values() for run in runs]
    ends = [float(run.curves["reward"][0][-1]) for run in everyone]
    end, begin = min(ends), 0.75 * min(ends)
    shortest = printable(everyone[int(np.argmin(ends))].path)
    late = [printable(run.path) for run in everyone if run.curves["reward"][0][0] > end]
    if late:
        why = f"the last one of {shortest} is at step {end:g}, before the first one of {', '.join(late)}"
        return "\n".join([*lines, "", f"Rewards are not compared: {why}."])
    lines += ["", f"Reward of a run: its mean over the steps after {begin:g} and until {end:g}, the last quarter of the shortest run."]
    if max(ends) > 1.1 * end:
        lines.append(f"Runs end at different steps, up to {max(ends):g}: the shortest one is {shortest}.")
    last = {}
    for name, runs in settings.items():
        of_runs = []
        for run in runs:
            steps, values = run.curves["reward"]
            inside = (steps > begin) & (steps <= end)
            of_runs.append(float((values[inside] if inside.any() else values[steps <= end][-1:]).mean()))
        last[name] = np.array(of_runs)
    rows = [(name, str(len(x)), f"{x.mean():.4g}", f"{x.std(ddof=1):.2g}" if len(x) > 1 else "?") for name, x in last.items()]
    lines += ["", *_table(("setting", "runs", "reward", "deviation"), rows)]
    first, *others = settings
    for other in others:
        lines += ["", difference(first, other, last[first], last[other], [r.number for r in settings[first]], [r.number for r in settings[other]])]
    return "\n".join(lines)


def difference(first: str, other: str, a: Any, b: Any, of_a: Sequence[Optional[int]], of_b: Sequence[Optional[int]]) -> str:
    """A sentence about the difference of two settings, b - a, and the seeds that it would need. of_a and of_b have the
    numbers of the runs, by which they are paired where at least two are in both."""
    common = sorted(set(of_a) & set(of_b) - {None}, key=lambda n: n or 0)
    paired = len(common) > 1 and len(set(of_a)) == len(a) and len(set(of_b)) == len(b)
    if paired:
        d = np.array([b[list(of_b).index(n)] - a[list(of_a).index(n)] for n in common])
        mean, variance, freedom = d.mean(), d.var(ddof=1), len(d) - 1
        error = variance / len(d)
        how = f"paired by the numbers in the runs' names, {', '.join(map(str, common))}"
    else:
        mean = b.mean() - a.mean()
        if min(len(a), len(b)) < 2:
            return (f"{other} less {first}: {mean:+.4g}. This may be chance: one run says nothing of the spread over seeds. Train at "
                    "least two more seeds of each setting.")  # fmt: skip
        of_means = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
        variance, error = a.var(ddof=1) + b.var(ddof=1), sum(of_means)
        parts = of_means[0] ** 2 / (len(a) - 1) + of_means[1] ** 2 / (len(b) - 1)
        freedom = int(error**2 / parts) if parts > 0 else len(a) + len(b) - 2
        how = "by Welch, because the runs are not paired by a number in their names"
    half = student(freedom) * math.sqrt(error)
    says = "which does not tell them apart" if abs(mean) <= half else "which tells them apart"
    needed = seeds(mean, variance, paired)
    if error == 0:
        want = "All runs of a setting have the same reward: check that their seeds differ"
    elif needed > _MOST:
        want = f"More than {_MOST:,} seeds of each setting would be needed for a difference of this size"
    else:
        want = f"For a difference of this size, {needed:,} seeds of each setting would be needed"
    return (f"{other} less {first}: {mean:+.4g}, 95% interval {mean - half:+.4g} to {mean + half:+.4g} ({how}), {says}. {want} "
            f"({'paired' if paired else 'Welch'}, power 0.8 at the level 0.05, two-sided).")  # fmt: skip


def seeds(difference: float, variance: float, paired: bool) -> int:
    """The least number of seeds of each setting with which a test of the level 0.05 finds a difference with a power of
    0.8: n >= (t(0.975) + t(0.8))^2 variance / difference^2. variance is of the differences of pairs, or the sum of those
    of both settings. More than _MOST is _MOST + 1."""
    if difference == 0:
        return _MOST + 1
    size = variance / difference**2
    n: int = max(2, int(min((_NORMAL + _POWER) ** 2 * size, _MOST + 1)))  # with the normal distribution too few
    while n <= _MOST:
        freedom = n - 1 if paired else 2 * (n - 1)
        if (student(freedom) + student(freedom, _POWER)) ** 2 * size <= n:
            break
        n += 1
    return n


def page(settings: Dict[str, List[Run]], text: str) -> str:
    """The page: the text, and a plot of each figure that a run has."""
    names = {name for runs in settings.values() for run in runs for name in run.curves}
    order: List[str] = [n for n in ("reward", "length", "credit/no_action") if n in names]
    order += sorted(names.difference(order))
    missing = [n for n in ("reward", "length", "credit/no_action") if n not in names]
    note = f"<p>No log has {', '.join(missing)}.</p>" if missing else ""
    legend = "".join(f'<li style="color:{_colour(i)}">{html.escape(name)}</li>' for i, name in enumerate(settings))
    plots = "".join(f"<h2>{html.escape(printable(name))}</h2>{_plot(name, settings)}" for name in order)
    return (
        f'<!doctype html><meta charset="utf-8"><title>reweight runs</title><style>{_STYLE}</style><h1>Training runs</h1>'
        f"<pre>{html.escape(text)}</pre>{note}<p>A line is the mean of a setting's runs, each the mean of equally many steps; the band is "
        f"one standard deviation over the runs to each side.</p><ul>{legend}</ul>{plots}\n"
    )


def _colour(i: int) -> str:
    return _COLOURS[i % len(_COLOURS)]


def _binned(runs: Sequence[Run], name: str, begin: float, width: float, count: int) -> Any:
    """The mean of each run in each piece of the steps: NaN where it has none."""
    made = np.full((len(runs), count), np.nan)
    for row, run in zip(made, runs):
        if name in run.curves:
            steps, values = run.curves[name]
            at = np.minimum(((steps - begin) / width).astype(int), count - 1)
            there = np.bincount(at, minlength=count)
            row[there > 0] = np.bincount(at, values, minlength=count)[there > 0] / there[there > 0]
    return made


def _plot(name: str, settings: Dict[str, List[Run]]) -> str:
    curves = [run.curves[name] for runs in settings.values() for run in runs if name in run.curves]
    begin, end = min(s[0] for s, _ in curves), max(s[-1] for s, _ in curves)
    most = max(len(s) for s, _ in curves)
    count = min(most, _POINTS)
    width = (end - begin) / max(count - 1, 1) if most <= _POINTS else (end - begin) / count
    width = width or 1.0
    lines, low, high = [], math.inf, -math.inf
    for i, runs in enumerate(settings.values()):
        made = _binned(runs, name, begin, width, count)
        there = np.flatnonzero(~np.isnan(made).all(0))
        if not len(there):
            continue
        x = begin + there * width + (width / 2 if most > _POINTS else 0)
        mean = np.nanmean(made[:, there], 0)
        seen = (~np.isnan(made[:, there])).sum(0)
        spread = np.sqrt(np.nansum((made[:, there] - mean) ** 2, 0) / np.maximum(seen - 1, 1))
        lines.append((_colour(i), x, mean, spread if (seen > 1).any() else None))
        low, high = min(low, (mean - spread).min()), max(high, (mean + spread).max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    left, top, wide, tall = 70, 10, 620, 180

    def points(x: Any, y: Any) -> str:
        across = left + wide * (x - begin) / ((end - begin) or 1)
        down = top + tall * (high - y) / (high - low)
        return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(across, down))

    parts = []
    for share in (0, 0.5, 1):
        y = top + tall * (1 - share)
        parts.append(f'<path d="M{left} {y}H{left + wide}" stroke="#999" stroke-dasharray="2 3"/>'
                     f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{low + share * (high - low):.3g}</text>')  # fmt: skip
        parts.append(f'<text x="{left + wide * share:.0f}" y="{top + tall + 18}" text-anchor="middle">{begin + share * (end - begin):g}</text>')
    for colour, x, mean, spread in lines:
        if spread is not None:
            band = points(np.append(x, x[::-1]), np.append(mean + spread, (mean - spread)[::-1]))
            parts.append(f'<polygon points="{band}" fill="{colour}" opacity=".15"/>')
        if len(x) == 1:
            a, b = points(x, mean).split(",")
            parts.append(f'<circle cx="{a}" cy="{b}" r="3" fill="{colour}"/>')
        parts.append(f'<polyline points="{points(x, mean)}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return f'<svg viewBox="0 0 {left + wide + 20} {top + tall + 24}" role="img">{"".join(parts)}</svg>'
