"""Where actions are: the rules on texts as chat templates write them, and the same of the program, on texts at random."""

import json
import random
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np
from adapter_rollouts import Tokenizer
from support import needs_go, program

import reweight
from reweight.adapters import Credit, token_advantages
from reweight.adapters import _tags


def actions(text, tags, mark=None):
    """What of a text is an action."""
    found, passed = _tags.actions(text, Credit(tags=tags).pairs(), len(text) if mark is None else mark)
    return [text[a.begin : a.end] for a in found], passed


def credited(responses, words, tags_as="reasoning", **options):
    """The roles that a trainer's tokens get, by their weights, and the scalars."""
    ids = [np.array(x) for x in responses]
    log = {}
    m = token_advantages(
        [np.ones(len(x), np.float32) for x in ids],
        [np.ones(len(x), bool) for x in ids],
        credit=Credit("actfocus", alpha=0, beta=0.5, tags_as=tags_as, **options),
        aggregation="token_sum",
        token_ids=ids,
        tokenizer=Tokenizer(words),
        old_logprobs=[np.zeros(len(x), np.float32) for x in ids],
        log=log,
    )
    return ["".join(map(str, (row > 0).astype(int).tolist())) for row in m], log


CALL = '{"name": "get_weather", "arguments": {"city": "Paris {north}", "note": "a \\"}\\" b", "days": [1, 2]}}'
# Texts as models and chat templates write them: a preset, a response, and its actions.
TEXTS = (
    ("answer", "<think>Left is a hole.</think><answer>Down</answer>", ["Down"]),
    ("answer", "<think>I use <answer> tags</think><answer>Down</answer>", ["Down"]),
    ("answer", "<think>maybe <answer>Up</answer>, no</think>\n\n<answer> Down </answer><|im_end|>", [" Down "]),
    ("answer", "the template began the thought <answer></think><answer>Down</answer>", ["Down"]),
    ("answer", "<answer>I mean <answer>Down</answer></answer>", ["Down"]),
    ("answer", "<think>never ends <answer>Down</answer>", ["Down"]),
    ("answer", "<think></think><answer>a</answer> text </think> <answer>b</answer>", ["a", "b"]),
    ("answer", "<think>a</think><answer>x<think>b</think>y</answer>", []),
    ("answer", "<answer>Down", []),
    ("tool_call", f"<think>\nA call.\n</think>\n\n<tool_call>\n{CALL}\n</tool_call><|im_end|>", [f"\n{CALL}\n"]),
    ("tool_call", f"Two.\n<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{{}}\n</tool_call>", [f"\n{CALL}\n", "\n{}\n"]),
    ("tool_call", "<scratch_pad>\nGoal: x\n</scratch_pad>\n<tool_call>\n{'a': 1}\n</tool_call>", ["\n{'a': 1}\n"]),
    ("tool_call", "<tool_call>\n<function=go>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>",
     ["\n<function=go>\n<parameter=x>\n1\n</parameter>\n</function>\n"]),
    ("json", f"So: {CALL}<|im_end|>", [CALL[1:-1]]),
    ("json", f"<think>{{ is a brace, and {{1, 2}} a set</think>{CALL}", [CALL[1:-1]]),
    ("json", "never { closed {\"a\": {\"b\": 1}} and {2}", ['"a": {"b": 1}', "2"]),
    ("json", '{"a": "{"} {"b": "\\\\"}', ['"a": "{"', '"b": "\\\\"']),
    ("json", '{5" wide\n} {"a": 1}', ['5" wide\n', '"a": 1']),
    ("json", '```json\n{"a": 1}\n```', ['"a": 1']),
    ("react", "Thought: north.\nAction: go\nAction Input: {\"x\": 1}\nObservation: ok\n", [" go", ' {"x": 1}']),
    ("react", "Thought: done.\nFinal Answer: 42\nor so", [" 42\nor so"]),
    ("react", "Action: left", [" left"]),
    ("boxed", "so $\\boxed{\\frac{1}{2}}$.", ["\\frac{1}{2}"]),
    ("boxed", "\\boxed{\\{1, 2\\}} and \\boxed{3}", ["\\{1, 2\\}", "3"]),
    ("boxed", "<think>\\boxed{1}?</think> {a} \\boxed{\\text{\"a} b}", ["\\text{\"a} b"]),
    ("code", "Run:\n```python\nprint({})\n```\nand\n```\nls\n```", ["python\nprint({})\n", "\nls\n"]),
    ("answer+tool_call", "<tool_call>a</tool_call><answer>b</answer>", ["b", "a"]),
    ([("<a>", "</a>"), ("<b>", "</b>")], "<a>1</a><b>2</b><a>3</b>", ["1", "2"]),
    (("<think>", "</think>"), "<think>so</think>x", ["so"]),
    (("[", "]"), "go [1, [2]] [\"]\"]", ["1, [2]", '"]"']),
    (("|", "|"), "|x|y|z|", ["x", "z"]),
    (("aa", "a"), "aaaab", [""]),
    (("Say:", ""), "Say: a Say: b", [" b"]),
)  # fmt: skip


class Grammar(unittest.TestCase):
    def test_texts(self):
        for tags, text, want in TEXTS:
            with self.subTest(tags=tags, text=text):
                self.assertEqual(actions(text, tags)[0], want)
        self.assertEqual({tags for tags, *_ in TEXTS if isinstance(tags, str)} - {"answer+tool_call"}, set(_tags.TAG_PRESETS))

    def test_passed_over(self):
        for text, want in (
            ("<think>I use <answer> tags</think><answer>Down</answer>", 1),
            ("<answer>a<answer>b</answer>", 1),
            ("<answer>a</answer><answer>b</answer>", 0),
            ("<answer>a<answer>b", 1),
        ):
            self.assertEqual(actions(text, "answer")[1], want, text)
        self.assertEqual(actions("{<think>{</think>{", "json")[1], 0)

    def test_end(self):
        """What ends a response is no action, as a token of its own."""
        words = ["Action:", " left", "<eos>", "\n", " right", "", "Fin", "al Answer: ", "<answer>", "</answer>"]
        got, log = credited([[0, 1, 2], [0, 1], [0, 1, 3, 4, 2], [0, 1, 5, 2, 5], [6, 7, 4, 3, 2], [0, 2]], words, tags="react")
        self.assertEqual(got, ["010", "01", "01000", "01100", "00110", "00"])
        got, log = credited([[8, 1, 8, 4, 9], [8, 1, 9, 2], [8, 8, 8]], words)
        self.assertEqual(got, ["00010", "0100", "000"])
        self.assertEqual(log["credit/ambiguous"], 2)

    def test_tags_as(self):
        words = ["x<ans", "wer>", " left", "</answer> ", "Action:", "\n", "</s>"]
        for tags_as, want in ("reasoning", ["00100", "0", "0"]), ("action", ["01110".replace("011", "111"), "0", "0"]):
            got, _ = credited([[0, 1, 2, 3, 2], [2], [0]], words, tags_as=tags_as)
            self.assertEqual(got, want)
        self.assertEqual(credited([[2, 4, 2, 5, 2], [4, 2, 6], [4, 2]], words, tags="react", tags_as="action")[0], ["01110", "110", "11"])

    def test_action(self):
        """A function of one's own says what an action is, of each response."""
        words = ["a", "b", "go"]
        seen = []

        def mask(ids, texts, tokenizer):
            seen.append((ids, texts, tokenizer.words))
            return [text == "go" for text in texts]

        self.assertEqual(credited([[0, 2, 1], [2], [0, 1]], words, action=mask)[0], ["010", "1", "00"])
        self.assertEqual(seen[0], ([0, 2, 1], ["a", "go", "b"], words))
        labels = lambda ids, texts, tokenizer: np.where(np.array(ids) == 2, reweight.ACTION, reweight.REASONING)
        self.assertEqual(credited([[0, 2, 1], [2]], words, action=labels, tags=None)[0], ["010", "1"])
        with self.subTest("two responses of a trajectory"):
            m = token_advantages(
                np.ones((1, 5)), np.array([[1, 1, 0, 1, 1]]), credit=Credit("actfocus", alpha=0, beta=0.5, action=mask), aggregation="token_sum",
                token_ids=np.array([[0, 2, 2, 2, 1]]), tokenizer=Tokenizer(words), old_logprobs=np.zeros((1, 5)),
            )  # fmt: skip
            self.assertEqual((m > 0).tolist(), [[False, True, False, True, False]])
            self.assertEqual(seen[-1][0], [2, 1])
        for made, want in (
            ([True], r"action returned the shape \[1\], want \[2\]"),
            ([0, 1], r"action returned \[0, 1\] of the type int64, want bools, or 1 for reasoning and 2 for an action"),
            (["a", "b"], "action returned"),
        ):
            with self.assertRaisesRegex(reweight.InputError, want):
                credited([[0, 1]], words, action=lambda *_, made=made: made)

    def test_labels(self):
        """Labels that come with the tokens, as bools or roles, padded, packed or as a list of trajectories."""
        mask, actions = np.array([[1, 1, 0, 1], [1, 1, 1, 0]]), np.array([[1, 0, 1, 1], [0, 0, 1, 1]]) == 1
        want = np.where(actions, 1, 0.25) * mask
        credit = Credit("actfocus", alpha=0.25)
        for of in (actions, actions + 1, np.where(mask, actions + 1, 77)):
            ones = np.ones((2, 4), np.float32)
            m = token_advantages(ones, mask, credit=credit, aggregation="token_sum", actions=of)
            np.testing.assert_array_equal(m, want)
            m = token_advantages(
                ones.reshape(-1), mask.reshape(-1), credit=credit, aggregation="token_sum", actions=of.reshape(-1), seq_offsets=[0, 4, 8]
            )
            np.testing.assert_array_equal(m, want.reshape(-1))
        for of, problem in (
            (actions[:, :3], r"actions has the shape \[2, 3\], want \[2, 4\]"),
            (actions * 3, r"actions has \[3, 0, 3, 0, 0, 3\] of the type int64, want bools, or 1 for reasoning and 2 for an action"),
        ):
            with self.assertRaisesRegex(reweight.InputError, problem):
                token_advantages(ones, mask, credit=credit, aggregation="token_sum", actions=of)
        with self.assertRaisesRegex(reweight.InputError, 'action is "marks", a name for adapters that read columns: give actions'):
            token_advantages(ones, mask, credit=Credit("actfocus", action="marks"), aggregation="token_sum", token_ids=mask)
        with self.assertRaisesRegex(reweight.InputError, 'action is "marks", the name of a column, which the adapter of TRL reads: for verl'):
            Credit(action="marks").check("verl", {}, ("entropy",))

    def test_errors(self):
        for options, want in (
            ({"tags": "anser"}, r"tags is 'anser', want some of \[answer tool_call json react boxed code\] with \+ between them"),
            ({"tags": ""}, "tags is '', want some of"),
            ({"tags": ("answer", "json")}, r"two names of presets, want \"answer\+json\""),
            ({"tags": [("<a>", "</a>"), ([1], [2])]}, "tags is .* want what opens and what closes"),
            ({"tags": [("<a>", "</a>"), ("<b>",)]}, "tags is .* want what opens and what closes"),
            ({"tags": []}, "tags is .* want what opens and what closes"),
            ({"tags": ("", "</a>")}, "tags is .* want what opens and what closes"),
            ({"tags": ("a", [1])}, "tags is .* want what opens and what closes"),
            ({"tags_as": "x"}, r'tags_as is "x", want one of \[reasoning action\]'),
            ({"action": ""}, "action is '', want a function"),
            ({"action": 3}, "action is 3, want a function of ids, texts and the tokenizer, or in TRL the name of a column"),
        ):
            with self.subTest(options), self.assertRaisesRegex(reweight.InputError, want):
                Credit(**options)
        self.assertEqual(Credit(tags=[([1], [2]), ([3, 4], [5])]).pairs(), (([1], [2]), ([3, 4], [5])))

    def test_ids(self):
        """Several pairs of ids."""
        responses, pairs = [[0, 1, 2, 3, 1, 4], [0, 1, 0, 2, 2]], [([0], [2]), ([3], [4])]
        for tags_as, want in ("reasoning", ["010010", "00000"]), ("action", ["111111", "00110"]):
            got, log = credited(responses, list("abcde"), tags_as, tags=pairs)
            self.assertEqual(got, want)
            self.assertEqual(log["credit/ambiguous"], 1)
        got, _ = credited([[7, 2**40, 9], [1, 2**40, 3, 2**40]], [], "action", tags=([2**40], [3]))
        self.assertEqual(got, ["000", "0110"])

    def test_ids_as_the_library(self):
        """Tags that are ids make the actions that reweight.roles_from_mask makes."""
        chance = np.random.default_rng(3)
        marked = 0
        for opening, closing in ([1], [2]), ([1, 2], [3]), ([1, 1], [1, 2]), ([1], [1]), ([1, 2, 1], [2, 1]), ([500], [3, 3]):
            ids = np.where(chance.random((300, 20)) < 0.05, 500, chance.integers(1, 4, (300, 20))).reshape(-1)
            mask, offsets = chance.random(6000) < 0.95, np.arange(0, 6001, 20)
            got, _ = _tags.roles(mask, *self.characters(ids, offsets, ((opening, closing),)))
            want = reweight.roles_from_mask(mask, ids, open_tag=opening, close_tag=closing, seq_offsets=offsets)
            np.testing.assert_array_equal(got, want, str((opening, closing)))
            marked += (got == reweight.ACTION).sum()
        self.assertGreater(marked, 2000)

    def characters(self, ids, offsets, pairs):
        numbers, pairs, tokenizer = _tags.as_characters(ids, pairs)
        return numbers, offsets, pairs, tokenizer


PAIRS = (
    "answer", "json", "react", "boxed", "code", "answer+json+react",
    ("<a>", "</a>"), ("<<", "<>"), ("aa", "a"), ("<a>", "<a>"), ("é<", "≥"), ("<", "\n"), ("a<", ""), ("(", ")"), ("a(", ")"),
    ("<think>", "a"), ("[", "]"), [("<a>", "</a>"), ("{", "}")],
)  # fmt: skip
PIECES = (
    "", "", "<", "<a", "a", ">", "/", "</", "<a>", "</a>", "x", "a><", "aa", "<<", "é", "é<", "≥", "<>", "</a><a>", "\n", "x\n", "<think>",
    "</think>", "<thi", "nk>", "</", "think>", "<answer>", "</answer>", "answer>", "{", "}", "{\"", "\"}", "\"", "\\", "\\\"", "\\boxed{",
    "boxed{", "(", ")", "[", "]", "Action:", "Act", "ion", ":", " Input:", "Final Answer:", "```", "``", "`", "a(", "</s>", "<|im_end|>", "} {",
)  # fmt: skip


class Random(unittest.TestCase):
    def rollouts(self, choose, tags):
        """Tokens that split texts in any way, most of them with a part of one of the tags."""
        pairs = Credit(tags=tags).pairs()
        chars = "".join(tag for pair in pairs for tag in pair)
        near = [piece for piece in PIECES if set(piece) & set(chars)]
        for _ in range(200):
            words = [*choose.choices(near, k=9), *choose.choices(PIECES, k=6), *choose.choice(pairs)]
            choose.shuffle(words)
            n = choose.randrange(1, 40)
            yield words, choose.choices(range(len(words)), k=n), [choose.random() < 0.9 for _ in range(n)]

    @needs_go
    def test_program(self):
        """The program marks the same tokens, and so does a search in the whole text of each response."""
        choose, marked, ambiguous = random.Random(1), 0, 0
        for tags in PAIRS:
            for tags_as in ("reasoning", "action"):
                rollouts = list(self.rollouts(choose, tags))
                want, passed = self.by_program(rollouts, tags, tags_as)
                counted = 0
                for (words, ids, mask), roles in zip(rollouts, want):
                    mask, ids = np.array(mask), np.array(ids)
                    pairs = Credit(tags=tags).pairs()
                    got, n = _tags.roles(mask, ids, np.array([0, len(ids)]), pairs, Tokenizer(words), tags_as)
                    counted += n
                    self.assertEqual(got.tolist(), roles, (tags, tags_as, [words[i] for i in ids], mask.astype(int).tolist()))
                    marked += (got == reweight.ACTION).sum()
                self.assertEqual(counted, passed, tags)
                ambiguous += counted
        self.assertGreater(marked, 5000)
        self.assertGreater(ambiguous, 300)

    def by_program(self, rollouts, tags, tags_as):
        flag = tags if isinstance(tags, str) else ",".join(x for pair in ([tags] if isinstance(tags, tuple) else tags) for x in pair)
        with tempfile.TemporaryDirectory() as folder:
            lines = (
                json.dumps({"texts": [words[i] for i in ids], "mask": mask, "reward": 0, "group_id": 0, "token_ids": ids})
                for words, ids, mask in rollouts
            )
            Path(folder, "in.jsonl").write_text("\n".join(lines) + "\n")
            command = [Path(program().name, "reweight"), "convert", f"-action-tags={flag}", f"-tags-as={tags_as}", "in.jsonl", "out.jsonl"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            roles = [json.loads(line)["role"] for line in Path(folder, "out.jsonl").read_text().splitlines()]
        said = re.search(r"it stands in <think>: (\d+)\.", " ".join((done.stdout + done.stderr).split()))
        return roles, int(said[1]) if said else 0

    def test_whole_text(self):
        """Putting together only the ids that matter changes nothing."""
        choose, marked = random.Random(2), 0
        for tags in PAIRS:
            pairs = Credit(tags=tags).pairs()
            for words, ids, mask in self.rollouts(choose, tags):
                want = np.array(mask).astype(np.uint8)
                for run in np.flatnonzero(np.diff(np.concatenate([[0], want, [0]]))).reshape(-1, 2):
                    text = [words[i] for i in ids[slice(*run)]]
                    ends = np.cumsum([len(word) for word in text])
                    whole, last = "".join(text), next((word for word in text[::-1] if word), "")
                    mark = len(whole) - len(last) if _tags._MARKS.fullmatch(last) else len(whole)
                    for a in _tags.actions(whole, pairs, mark)[0]:
                        first, after = np.searchsorted(ends, a.begin) + 1, np.searchsorted(ends, a.end, "right")
                        want[run[0] + first : run[0] + after] = 2
                got, _ = _tags.roles(np.array(mask), np.array(ids), np.array([0, len(ids)]), pairs, Tokenizer(words))
                self.assertEqual(got.tolist(), want.tolist(), (tags, [words[i] for i in ids], mask))
                marked += (got == 2).sum()
        self.assertGreater(marked, 2000)


if __name__ == "__main__":
    unittest.main()
