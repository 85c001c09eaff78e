"""Roles and spans from masks."""

import unittest

import numpy as np
from support import TestCase, needs_torch, torch

import reweight

OPEN, CLOSE = (90, 91), (95,)


def reference(mask, ids, offsets, opened=OPEN, closed=CLOSE):
    """Roles and spans, token by token."""
    roles, spans, span = [], [], -1
    for begin, end in zip(offsets, offsets[1:]):
        inside = False
        run = []  # tokens of the response so far
        for t in list(range(begin, end)) + [None]:
            if t is not None and mask[t]:
                if not inside:
                    span, inside = span + 1, True
                spans.append(span)
                run.append(t)
                continue
            tokens = [int(ids[r]) for r in run]
            of_run, i = [1] * len(run), 0
            begin = None
            while i < len(tokens):
                if begin is not None and tuple(tokens[i : i + len(closed)]) == closed:
                    of_run[begin:i] = [2] * (i - begin)
                    i += len(closed)
                    begin = None
                elif tuple(tokens[i : i + len(opened)]) == opened:
                    i += len(opened)
                    begin = i
                else:
                    i += 1
            roles += of_run
            run, inside = [], False
            if t is not None:
                spans.append(-1)
                roles.append(0)
    return np.array(roles, np.uint8), np.array(spans, np.int32)


class Masks(TestCase):
    def test_random_masks(self):
        g = np.random.default_rng(0)
        for case in range(300):
            lengths = g.integers(0, 15, 6)
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            T = int(offsets[-1])
            mask = g.random(T) < g.choice([0.3, 0.8, 1.0])
            ids = g.choice([90, 91, 95, 1], T)
            for opened, closed in ((OPEN, CLOSE), ((95,), (95,)), ((90, 1), (1, 90))):
                roles, spans = reference(mask, ids, offsets, opened, closed)
                self.assertBits(reweight.spans_from_mask(mask, offsets), spans, f"case {case}")
                got = reweight.roles_from_mask(mask, ids, open_tag=opened, close_tag=closed, seq_offsets=offsets)
                self.assertBits(got, roles, f"case {case}")

    def test_padded(self):
        g = np.random.default_rng(1)
        mask = g.random((5, 40)) < 0.8
        ids = g.choice([90, 91, 95, 1], (5, 40))
        roles, spans = reference(mask.reshape(-1), ids.reshape(-1), np.arange(6) * 40)
        self.assertBits(reweight.spans_from_mask(mask), spans.reshape(5, 40))
        self.assertBits(reweight.roles_from_mask(mask, ids, open_tag=OPEN, close_tag=CLOSE), roles.reshape(5, 40))
        # Views need no copy by the caller.
        self.assertBits(reweight.spans_from_mask(mask[:, ::2]), reweight.spans_from_mask(mask[:, ::2].copy()))

    def test_without_tags(self):
        mask = np.array([[0, 1, 1, 0, 1]])
        self.assertBits(reweight.roles_from_mask(mask), mask.astype(np.uint8))

    def test_formats(self):
        mask = np.array([[0, 1, 1, 0], [1, 0, 0, 1]])
        want = np.array([[-1, 0, 0, -1], [1, -1, -1, 2]], np.int32)
        for dtype in (bool, np.uint8, np.int32, np.int64, np.float32):
            self.assertBits(reweight.spans_from_mask(mask.astype(dtype)), want)

    @needs_torch
    def test_tensors(self):
        mask = torch.tensor([[0, 1, 1, 1, 1, 0], [1, 0, 0, 1, 1, 1]])
        ids = torch.tensor([[1, 90, 7, 7, 95, 5], [9, 2, 3, 90, 7, 95]])
        spans = reweight.spans_from_mask(mask)
        self.assertEqual(spans.dtype, torch.int32)
        self.assertEqual(spans.tolist(), [[-1, 0, 0, 0, 0, -1], [1, -1, -1, 2, 2, 2]])
        roles = reweight.roles_from_mask(mask.bool(), ids.int(), open_tag=[90], close_tag=[95])
        self.assertEqual(roles.dtype, torch.uint8)
        self.assertEqual(roles.tolist(), [[0, 1, 2, 2, 1, 0], [1, 0, 0, 1, 2, 1]])

    @needs_torch
    def test_tags_in_arrays(self):
        mask, ids = np.array([[1, 1, 1, 1, 1]]), np.array([[90, 7, 7, 95, 5]])
        want = reweight.roles_from_mask(mask, ids, open_tag=[90], close_tag=[95])
        for array in (np.array, torch.tensor, lambda ids: tuple(map(np.int32, ids))):
            self.assertBits(reweight.roles_from_mask(mask, ids, open_tag=array([90]), close_tag=array([95])), want)

    def test_tags_that_are_no_ids(self):
        mask = np.ones((1, 3), np.uint8)
        for tag, described in (
            ("<answer>", "a str"),
            (["<answer>"], "a list"),
            ([[90], [91]], "a list"),
            ([90.0], "a list"),
            (90, "an int"),
        ):
            self.assertTypeError(
                f"open_tag is {described}, want a sequence of token ids",
                lambda: reweight.roles_from_mask(mask, mask.astype(np.int32), open_tag=tag, close_tag=[95]),
            )

    def test_errors(self):
        mask = np.ones((2, 3), np.uint8)
        self.assertInputError(
            "seq_offsets",
            "seq_offsets is None, want where each trajectory begins: response_mask has the shape [6]",
            lambda: reweight.spans_from_mask(mask.reshape(-1)),
        )
        for offsets, text in (
            ([1, 6], "seq_offsets[0] is 1, want 0"),
            ([0, 4, 3, 6], "seq_offsets[2] is 3, below the 4 before it"),
            ([0, 5], "seq_offsets[1] is 5, want 6, the number of tokens"),
        ):
            self.assertInputError(
                "seq_offsets", text, lambda: reweight.spans_from_mask(mask.reshape(-1), np.array(offsets))
            )
        self.assertInputError(
            "token_ids",
            "token_ids is None, want the token ids in which the tags are looked for",
            lambda: reweight.roles_from_mask(mask, open_tag=[1], close_tag=[2]),
        )
        self.assertInputError(
            "close_tag",
            "close_tag is empty, want the token ids of both tags or of neither",
            lambda: reweight.roles_from_mask(mask, open_tag=[1]),
        )
        self.assertInputError(
            "token_ids",
            "token_ids has the shape [3], want [2, 3], one element per token",
            lambda: reweight.roles_from_mask(mask, np.zeros(3, np.int64), open_tag=[1], close_tag=[2]),
        )


if __name__ == "__main__":
    unittest.main()
