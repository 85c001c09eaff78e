"""RESULTS.md and docs/evidence.md have the figures of studies/words as its tables give them, and the tables follow from
testdata."""

import contextlib
import importlib.util
import itertools
import runpy
import sys
import types
import unittest

import numpy as np
from support import ROOT, TESTDATA, read_safetensors, torch

import reweight

STUDY = ROOT / "studies" / "words"


class Words(unittest.TestCase):
    def setUp(self):
        self.figures = runpy.run_path(str(STUDY / "figures.py"))

    def test_page(self):
        page = (STUDY / "RESULTS.md").read_text(encoding="utf-8").splitlines()
        audits = runpy.run_path(str(STUDY / "audits.py"))
        lines = [self.figures[name]() for name in ("lines", "lake_lines", "training_lines")] + [audits["lake_lines"]()]
        for line in filter(None, itertools.chain(*lines)):
            self.assertIn(line, page)

    def test_short_page(self):
        """docs/evidence.md repeats a few figures."""
        page = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
        interval, words, lake = self.figures["with_interval"], self.figures["columns"]("prompts.csv"), self.figures["columns"]("lake.csv")
        rows = {
            "energy of action tokens with the variance": (interval(words, "action_energy", False), interval(lake, "action_energy", False)),
            "the same, given the success rate": (
                interval(words, "action_energy", True),
                interval(lake, "first_action_energy", True) + " on first turns",
            ),
        }
        for name, figures in rows.items():
            self.assertIn(f"| {name} | {' | '.join(figures)} |\n", page)

    def test_tables(self):
        """The means over questions, counts and weights of the first part are those of the answers in testdata."""
        prompts, actions = self.figures["columns"]("prompts.csv"), self.figures["columns"]("actions.csv")
        arrays, _ = read_safetensors(TESTDATA / "large" / "smollm2-words.safetensors")
        role, offsets = arrays["role"], arrays["seq_offsets"]
        response, action = role != 0, role == reweight.ACTION
        self.assertEqual(len(np.unique(arrays["group_ids"])), self.figures["FIRST"])
        groups = np.repeat(arrays["group_ids"], np.diff(offsets))
        np.testing.assert_allclose(actions["energy"][: action.sum()], arrays["ref_energy"][action], atol=5.1e-4)
        np.testing.assert_allclose(actions["entropy"][: action.sum()], arrays["entropy"][action], atol=5.1e-5)
        weights = reweight.actfocus(reweight.Batch(role=role, ref_energy=arrays["ref_energy"])).weights
        signals = {"energy": arrays["ref_energy"], "entropy": arrays["entropy"], "surprisal": -arrays["old_logprobs"]}
        spans = np.add.reduceat(arrays["entropy"] * response, offsets[:-1]) / np.add.reduceat(response, offsets[:-1], dtype=int)
        for k, group in enumerate(dict.fromkeys(arrays["group_ids"].tolist())):
            mine, answers = groups == group, arrays["group_ids"] == group
            want = {
                "answers": answers.sum(), "right": arrays["rewards"][answers].sum(), "tokens": (mine & response).sum(),
                "in_format": np.logical_or.reduceat(action, offsets[:-1])[answers].sum(), "actions": (mine & action).sum(),
                "weight": weights[mine].sum(), "action_weight": weights[mine & action].sum(), "entropy_range": np.ptp(spans[answers]),
            }  # fmt: skip
            for name, signal in signals.items():
                want[f"action_{name}"] = signal[mine & action].mean()
                want[f"reasoning_{name}"] = signal[mine & (role == reweight.REASONING)].mean()
            for name, value in want.items():
                np.testing.assert_allclose(prompts[name][k], value, atol=2e-4, err_msg=f"{name} of group {group}")


@unittest.skipUnless(importlib.util.find_spec("trl"), "TRL is not installed")
class Training(unittest.TestCase):
    def test_forward(self):
        """What train.py computes once for texts that begin alike is what TRL computes for each answer, and so is the gradient."""
        sys.path.insert(0, str(STUDY))
        self.addCleanup(sys.path.remove, str(STUDY))
        import train
        import words
        from models import llama
        from trl.trainer.utils import add_fused_lm_head

        words.BLOCKS = train.BLOCKS = 1  # of the two
        model = llama()
        model.requires_grad_(False)
        model.model.layers[-1].requires_grad_(True)
        add_fused_lm_head(model, outputs=("log_probs", "entropy"))
        prompts, answers = torch.randint(1, 512, (2, 11)), torch.randint(1, 512, (6, 7))
        prompts[1, :5], answers[2, :4] = prompts[0, :5], answers[1, :4]  # both are computed once
        mask = (torch.arange(7) < torch.tensor([7, 3, 5, 7, 1, 6])[:, None]).long()
        ids = torch.cat([prompts[[1, 0, 0, 1, 0, 1]], answers * mask], 1)
        there = torch.cat([torch.ones(6, 11, dtype=torch.long), mask], 1)
        tree = words.Tree(model.model)
        with torch.no_grad():
            ends = tree.add([-1, -1], prompts.tolist())
            for end, row, n in zip([ends[k] for k in (1, 0, 0, 1, 0, 1)], answers.tolist(), mask.sum(1)):
                for id in row[: n - 1]:  # nothing is drawn behind the last one
                    (end,) = tree.add([end], [[id]])
        self.assertEqual(len(tree.nodes), 2 * 11 - 5 + (mask.sum() - 6).item() - 2)
        accelerator = types.SimpleNamespace(autocast=contextlib.nullcontext, is_main_process=False)
        trainer, found = types.SimpleNamespace(model=model, tree=tree, accelerator=accelerator), []
        for kind in train.Trainer, train.Trainer.__base__:
            logprobs, entropy, _ = kind._get_per_token_logps_and_entropies(trainer, model, ids, there, 7, compute_entropy=True)
            (logprobs * mask * torch.arange(42).view(6, 7)).sum().backward()
            grads = torch.cat([p.grad.flatten() for p in model.parameters() if p.requires_grad])
            model.zero_grad()
            found.append((logprobs * mask, entropy * mask, grads))
        for mine, theirs in zip(*found):
            self.assertLess((mine - theirs).abs().max(), 2e-5 * theirs.abs().max())


if __name__ == "__main__":
    unittest.main()
