"""An environment for OpenRLHF's --train.agent_func_path: three turns at most, and what it says is masked."""

import torch
from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor


class Environment(AgentInstanceBase):
    def __init__(self):
        self.turns = 0

    async def reset(self, states, **options):
        return states

    async def step(self, states, **options):
        self.turns += 1
        length = len(states["action_text"])
        return {
            "rewards": torch.tensor(0.1 * length), "environment_feedback": " w7 w8 ", "done": self.turns > length % 3,
            "extra_logs": {"turns": self.turns},
        }  # fmt: skip


class AgentExecutor(MultiTurnAgentExecutor):
    def __init__(self):
        super().__init__(Environment)
        self.samples = 0

    async def execute(self, prompt, *args, **options):
        response = await super().execute(prompt, *args, **options)
        self.samples += 1
        if self.samples % 5 == 0:
            response["action_ranges"] = []  # a sample without any token in the loss
        return response
