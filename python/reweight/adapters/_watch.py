"""What is said of a run that goes wrong."""

from __future__ import annotations

import sys
from typing import Dict, List, Mapping, Tuple

# A sentence is said again after so many batches at the earliest.
_EVERY = 20


class Watch:
    """Looks at the scalars of each batch of a run, and says on the standard error what is wrong, and what to do."""

    def __init__(self) -> None:
        self.batches = 0
        self.lowest = 1.0  # share of trajectories without an action so far
        self.said: Dict[str, int] = {}  # when

    def look(self, log: Mapping[str, float], tokens: int, advantages: bool, tags: str, speaks: bool) -> List[str]:
        """Returns what is wrong with a batch in whole sentences, and says those that are due, if this process speaks. log has
        the scalars; tokens is how many the loss has; advantages says whether one is not 0; tags are where actions were
        looked for."""
        self.batches += 1
        wrong = self._wrong(log, tokens, advantages, tags) if tokens else []
        self.lowest = min(self.lowest, log.get("credit/no_action", 1.0))
        for kind, sentence in wrong:
            if self.batches - self.said.get(kind, -_EVERY) >= _EVERY and (kind != "ambiguous" or kind not in self.said):
                self.said[kind] = self.batches
                if speaks:
                    print(f"reweight: warning: batch {self.batches}: {sentence}", file=sys.stderr, flush=True)
        return [sentence for kind, sentence in wrong if kind != "ambiguous"]

    def _wrong(self, log: Mapping[str, float], tokens: int, advantages: bool, tags: str) -> List[Tuple[str, str]]:
        found = []
        share = log.get("credit/no_action", 0.0)
        if share > 0.2 and (self.batches == 1 or share > self.lowest + 0.05 or share == 1):
            was = f", up from {self.lowest:.0%}" if self.lowest < share else ""
            found.append((
                "no_action",
                f"{share:.0%} of the trajectories have no action{was}. Actions were looked for by {tags}. If these are not the tags of "
                "your prompts, give others to Credit(tags=...). If they are, the policy loses its format: take reward from answers of a "
                "wrong format, because their tokens have the small weight of reasoning, and are corrected slowly",
            ))  # fmt: skip
        if "credit/mixed_groups" in log and log["credit/mixed_groups"] == 0:
            found.append((
                "mixed_groups",
                "in no group do the rewards differ, so that there is nothing to learn from this batch. Take prompts of another "
                "difficulty, more completions per prompt, or a reward with more steps",
            ))  # fmt: skip
        elif not advantages:
            found.append(("advantages", "all advantages are 0, so that there is nothing to learn from this batch. Look at the rewards"))
        effective = log.get("credit/effective_tokens", tokens) / tokens
        if effective < 0.05:
            found.append((
                "effective_tokens",
                f"few tokens have nearly all of the weight: it is worth {effective:.1%} of as many tokens with equal weights. "
                "Take an alpha nearer to 1, and beta=0",
            ))  # fmt: skip
        if log["credit/not_finite"] > 0.01 * tokens:
            found.append((
                "not_finite",
                f"{log['credit/not_finite'] / tokens:.1%} of the tokens have no finite log-probability or entropy. Look at the engine that "
                "sampled them, and at the type of the model's numbers",
            ))  # fmt: skip
        if log.get("credit/ambiguous"):
            found.append((
                "ambiguous",
                "responses in which an opening tag opens no action, because another one follows it before the closing tag, or because "
                f"it stands in <think>: {log['credit/ambiguous']:.0f}. The last one counts. This is said once; credit/ambiguous counts them",
            ))  # fmt: skip
        return found
