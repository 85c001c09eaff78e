"""What an adapter says of its work."""

from __future__ import annotations

import atexit
import sys
from typing import Dict

from .._catalogue import ENTRIES
from ._credit import Credit


class Report:
    """What an adapter says on the standard error of the trainer's process: that it works, at the first batch, or when the
    process ends that there was none.

    trainer: its name and version.
    """

    def __init__(self, credit: Credit, trainer: str) -> None:
        self.credit, self.trainer, self.batches, self.ignored = credit, trainer, 0, False
        atexit.register(self.end)

    def batch(self, aggregation: str, log: Dict[str, float], first_process: bool = True) -> None:
        """Takes the scalars of a batch. Of several processes the first one speaks."""
        credit, schemes = self.credit, []
        self.batches += 1
        if not first_process:
            return
        if log["credit/not_finite"] and not self.ignored:
            self.ignored = True
            self.say(f"{log['credit/not_finite']:.0f} tokens of a batch have no finite log-probability or entropy, and no part "
                      "in the statistics; credit/not_finite counts them")  # fmt: skip
        if self.batches > 1:
            return
        step = credit.step()
        for e in sorted(step.entries, key=lambda e: (e is not step._maker(), ENTRIES.index(e))):
            if e.name == "actfocus":
                gets = [f"{kind} {log[name]:.3g}" for kind in ("action", "reasoning") if (name := "credit/multiplier_" + kind) in log]
                actions = f"{_actions(log)}, {log['credit/action_weight']:.1%} of the weight; advantages times: {', '.join(gets)}"
                form = f"by {credit.signal}" if credit.beta else f"with alpha {credit.alpha:g}"
                schemes.append(f"ActFocus {form} ({actions})")
            elif e.name == "aem":
                factors = f"factors {log.get('credit/aem_min', 1):.2f} to {log.get('credit/aem_max', 1):.2f}"
                by = "entropy" if credit.entropy == "exact" else "surprisal"
                schemes.append(f"AEM by {by} per {credit.scope} ({factors})")
            elif e is step._maker():
                size = f"mean size {log['credit/advantage']:.2g}"
                schemes.append(f"the advantages of {e.title} in the place of the trainer's ({size})")
            else:
                schemes.append(e.title)
        if credit.uniform:
            schemes.append(f"uniform weights, which change nothing ({_actions(log)})")
        if credit.measured:
            schemes.append("weights of parts that are measured, equal ones until the audits have enough prompts")
        self.say(f"{aggregation}: {' and '.join(schemes)}")

    def end(self) -> None:
        """Says that there was no batch, if so. The end of the process calls it, and a trainer that ends another way."""
        atexit.unregister(self.end)
        if self.batches == 0 and not hasattr(sys, "last_value"):  # else an error has ended the process
            self.say("the credit was never called: no batch of this process has it")

    def say(self, what: str) -> None:
        print(f"reweight: in {self.trainer}, {what}", file=sys.stderr, flush=True)


def _actions(log: Dict[str, float]) -> str:
    return f"{log['credit/actions']:.0f} action tokens, {log['credit/action_share']:.1%} of the responses"
