"""What is wrong, in the words of Go."""

import json
import unittest

from support import TESTDATA, TestCase

from reweight._errors import reported
from reweight._generated import ARGUMENTS, PROBLEMS, Error


class Problems(TestCase):
    def test_sentences(self):
        """Python makes the sentence of Go of each report: of every problem, about every argument."""
        codes, arguments = set(), set()
        for line in (TESTDATA / "problems.json").read_text().splitlines():
            example = json.loads(line)
            codes.add(example["Code"])
            arguments.add(example["Argument"])
            values = type(Error().values)(*example["Values"])
            error = reported(Error(example["Code"], example["Argument"], example["Index"], values))
            self.assertEqual(str(error), example["Sentence"])
        self.assertEqual((codes, arguments), (set(PROBLEMS), set(ARGUMENTS)))


if __name__ == "__main__":
    unittest.main()
