"""The figures of plan.md, from the tables of this folder, as RESULTS.md has them:

python studies/transformer/figures.py
"""

import csv
import itertools
import pathlib
import statistics

FOLDER = pathlib.Path(__file__).parent
T_97_5 = 2.3646  # the quantile of Student's t with 7 degrees of freedom
MAP = {(0, 0): -18.4, (0, 1): -22.6, (36, 0): +3.2, (36, 1): -10.7}  # as the plan has it


def rows(name):
    with open(FOLDER / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def sign_flips(differences):
    """The share of all ways to flip their signs that give a sum at least as far from 0."""
    sums = [abs(sum(map(float.__mul__, differences, signs))) for signs in itertools.product((1.0, -1.0), repeat=len(differences))]
    return sum(x >= abs(sum(differences)) - 1e-12 for x in sums) / len(sums)


def holm(ps):
    corrected, least = {}, 0.0
    for k, (corner, p) in enumerate(sorted(ps.items(), key=lambda item: item[1])):
        corrected[corner] = least = max(least, min(1.0, p * (len(ps) - k)))
    return corrected


def lines():
    runs, starts = rows("runs.csv"), rows("starts.csv")
    pairs, rates, lost, first = {}, {}, {}, {}
    for corner in MAP:
        of = {}
        for row in runs:
            if (int(row["fluent"]), int(row["errors"])) == corner and int(row["seed"]) < 100:
                of[row["scheme"], int(row["seed"])] = row
                rates[corner, row["scheme"]] = row["rate"]
                ended = float(row["curve"].split()[-1])
                lost[corner, row["scheme"]] = lost.get((corner, row["scheme"]), 0) + (ended < 0.1)
        seeds = sorted({seed for _, seed in of})
        pairs[corner] = [tuple(100 * float(of[scheme, seed]["success"]) for scheme in ("uniform", "actfocus")) for seed in seeds]
        first[corner] = statistics.fmean(100 * float(of["uniform", seed]["curve"].split()[0]) for seed in seeds)
    differences = {corner: [b - a for a, b in both] for corner, both in pairs.items()}
    shown = holm({corner: sign_flips(d) for corner, d in differences.items()})
    yield "| L | q | D | start | rates | lost | uniform | ActFocus, difference | the map's | the sign |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for corner, d in differences.items():
        mean, half = statistics.fmean(d), T_97_5 * statistics.stdev(d) / len(d) ** 0.5
        text = f"{mean:+.1f} ({mean - half:+.1f} to {mean + half:+.1f})"
        share = [float(row["decided"]) for row in starts if (int(row["fluent"]), int(row["errors"])) == corner]
        yield (
            f"| {corner[0]} | {corner[1]} | {' and '.join(f'{x:.2f}' for x in share)} | {first[corner]:.0f} "
            f"| {rates[corner, 'uniform']}, {rates[corner, 'actfocus']} | {lost[corner, 'uniform']}, {lost[corner, 'actfocus']} | {statistics.fmean(a for a, _ in pairs[corner]):.1f} "
            f"| {f'**{text}**' if shown[corner] <= 0.05 else text} | {MAP[corner]:+.1f} | {'held' if mean * MAP[corner] > 0 else 'refuted'} |"
        )
    yield ""
    yield "| mean success of the runs that chose the rate: uniform, ActFocus | 0.0005 | 0.001 | 0.002 |"
    yield "|---|---|---|---|"
    for corner in MAP:
        cells = []
        for rate in (0.0005, 0.001, 0.002):
            means = [
                statistics.fmean(
                    100 * float(row["success"]) for row in runs
                    if (int(row["fluent"]), int(row["errors"])) == corner and row["scheme"] == scheme
                    and float(row["rate"]) == rate and int(row["seed"]) > 100
                )
                for scheme in ("uniform", "actfocus")
            ]  # fmt: skip
            cells.append(", ".join(f"{x:.1f}" for x in means))
        yield f"| L {corner[0]}, q {corner[1]} | {' | '.join(cells)} |"


if __name__ == "__main__":
    print("\n".join(lines()))
