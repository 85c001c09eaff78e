"""Stands for vLLM: an engine that samples all tokens alike, and learns no weights."""

import random
import sys
import uuid
from types import SimpleNamespace

import no_gpu  # noqa: F401
from transformers import AutoConfig, PreTrainedModel

__version__ = "0.29.0"
__path__ = []
for name in ("inputs", "utils", "distributed", "distributed.utils", "distributed.device_communicators"):
    sys.modules[f"{__name__}.{name}"] = sys.modules[__name__]
sys.modules[__name__ + ".distributed.device_communicators.pynccl"] = sys.modules[__name__]

# OpenRLHF packs rows only if it asks for flash attention.
PreTrainedModel._check_and_adjust_attn_implementation = lambda *args, **options: "sdpa"

SamplingParams = AsyncEngineArgs = SimpleNamespace


def TokensPrompt(**fields):
    return fields


def random_uuid():
    return str(uuid.uuid4())


class StatelessProcessGroup:
    create = staticmethod(lambda **options: None)


class PyNcclCommunicator:
    def __init__(self, group, device):
        pass

    def broadcast(self, tensor, src, stream):
        pass


class AsyncLLMEngine:
    @classmethod
    def from_engine_args(cls, options):
        engine = cls()
        engine.random = random.Random(options.seed)
        engine.vocabulary = AutoConfig.from_pretrained(options.model).vocab_size
        engine.output_processor = SimpleNamespace(get_num_unfinished_requests=lambda: 0)
        return engine

    async def nothing(self, *args, **options):
        pass

    is_sleeping = collective_rpc = pause_generation = resume_generation = nothing

    async def generate(self, prompt, sampling_params, request_id):
        weights = [4, 4, *[1] * (self.vocabulary - 4)]  # the first two are tags
        tokens = self.random.choices(range(2, self.vocabulary), weights, k=self.random.randint(6, 16))
        tokens = tokens[: sampling_params.max_tokens]
        logprobs = [{token: SimpleNamespace(logprob=-3.0)} for token in tokens]
        yield SimpleNamespace(
            outputs=[SimpleNamespace(token_ids=tokens, text="x" * len(tokens), finish_reason="stop", logprobs=logprobs)]
        )
