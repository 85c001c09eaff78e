"""studies/transformer: its game and its runs in TRL, and RESULTS.md has its figures as its tables give them."""

import concurrent.futures
import importlib.util
import multiprocessing
import random
import runpy
import sys
import tempfile
import unittest
from pathlib import Path

from support import ROOT

STUDY = ROOT / "studies" / "transformer"
sys.path.insert(0, str(STUDY))
import transformer


class Page(unittest.TestCase):
    def test_page(self):
        page = (STUDY / "RESULTS.md").read_text(encoding="utf-8").splitlines()
        for line in filter(None, runpy.run_path(str(STUDY / "figures.py"))["lines"]()):
            self.assertIn(line, page)


class Game(unittest.TestCase):
    def test_best(self):
        """The cell that is shown has one candidate, which what is shown leaves; the best answers end in success."""
        for puzzle in range(300):
            game, turns = transformer.Sudoku(puzzle), 0
            self.assertEqual(game.turns, game.board.count(0) + 2)
            while not game.done:
                best, seen = game.best(), game.observe()
                self.assertEqual([d for d in range(1, 5) if transformer.DIGITS[d - 1] not in seen], [best])
                game.act(best)
                turns += 1
            self.assertTrue(game.success)
            for unit in (unit for units in game.UNITS for unit in units):
                self.assertEqual(sorted(game.board[cell] for cell in unit), [1, 2, 3, 4])

    def say(self, words, puzzle=1, fluent=0):
        episode = transformer.Episode(puzzle, fluent)
        for word in words.split():
            episode.say(transformer.TOKEN[word])
        return episode

    def test_say(self):
        best = transformer.Sudoku(1).best()
        wrong = best % 4 + 1
        for words, turns, malformed, done in (
            (f"<answer> {best} </answer>", 1, 0, False),
            (f"w3 not <answer> {best} </answer>", 1, 0, False),
            (f"<answer> {wrong} </answer>", 1, 0, True),
            ("<answer> row </answer>", 1, 0, False),  # a turn that is lost
            ("<answer> </answer>", 1, 1, False),
            ("</answer>", 1, 1, False),
            ("<answer> 1 1 1 1", 0, 0, False),
            ("<answer> 1 1 1 1 1", 1, 1, False),  # too long an answer
            (" ".join(["w1"] * 11), 0, 0, False),
            (" ".join(["w1"] * 12), 1, 1, False),  # too long a response
        ):
            episode = self.say(words)
            self.assertEqual((episode.turns, episode.malformed, episode.game.done), (turns, malformed, done), words)
            self.assertEqual(sum(episode.said), len(words.split()), words)
        self.assertEqual(self.say(" ".join(["w1"] * 47), fluent=36).turns, 0)
        self.assertAlmostEqual(self.say("</answer>").reward(), -0.1)

    def test_demonstrate(self):
        """The reasoning is that of the answer where the reasoning errs, and that of the best answer where it does not."""
        chance, found = random.Random(1), {}
        for errors in (0, 1):
            mistakes = 0
            for puzzle in range(2000):
                episode = transformer.Episode(puzzle, 4)
                best, begin = episode.game.best(), len(episode.ids)
                episode.demonstrate(chance, errors)
                said = [transformer.WORDS[id] for id in episode.ids[begin:]]
                self.assertTrue(all(word in transformer.FILLERS for word in said[:4]))
                at = said.index("<answer>")
                answer = int(said[at + 1])
                mistakes += answer != best
                self.assertEqual(said[4:at], ["not", *(d for d in "1234" if d != str(answer))] if errors else [])
            found[errors] = mistakes / 2000
        for share in found.values():
            self.assertAlmostEqual(share, transformer.MISTAKES * 3 / 4, delta=0.03)


def one_iteration(folder):
    transformer.ITERATIONS, transformer.DEMONSTRATIONS = 1, {0: 64}
    start = Path(folder) / "start"
    transformer.warm(((0, 1), 0, start))
    return [transformer.train(((0, 1), scheme, 1e-3, 1, start)) for scheme in transformer.SCHEMES]


@unittest.skipIf(importlib.util.find_spec("trl") is None, "TRL is not installed")
class Runs(unittest.TestCase):
    def test_whole(self):
        """A run of one iteration from a start that has imitated a little, by each scheme: the same games."""
        spawn = multiprocessing.get_context("spawn")  # another process, because each run puts the head into TRL
        with tempfile.TemporaryDirectory() as folder, concurrent.futures.ProcessPoolExecutor(1, spawn) as pool:
            lines = pool.submit(one_iteration, folder).result()
        for scheme, line in zip(transformer.SCHEMES, lines):
            self.assertEqual(line[:5], [0, 1, scheme, 1e-3, 1])
            self.assertEqual(len(line), len(transformer.COLUMNS))
        self.assertEqual(lines[0][-1], lines[1][-1])


if __name__ == "__main__":
    unittest.main()
