"""What verl lacks for a run on a CPU, which its registries take: a platform, its FSDP engine there, a rollout that
samples tokens at random, an agent loop of two turns. And an observer of the loss: what is passed to ppo_loss, and the
gradient that comes back, are written to the folder that the rows of the data name. Nothing of verl's trainer is
replaced.

verl imports this by VERL_USE_EXTERNAL_MODULES=verl_cpu, in each of its processes.
"""

import contextlib
import functools
import itertools
import os
import pickle
import random
import tempfile
import types

import ray
import torch
import verl.workers.utils.losses as losses
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register
from verl.plugin.platform import set_platform
from verl.plugin.platform.platform_base import PlatformBase
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

OPENING, CLOSING, OBSERVATION = 2, 3, 4  # the tags of actions, and what the environment says
FIRST_WORD, WORDS = 5, 24
SESSIONS = itertools.count()


class Device(types.ModuleType):
    """torch.cpu, and what verl calls of torch.cuda beside it."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(torch.cpu, name, lambda *args, **options: 0)

    def mem_get_info(self):
        return 0, 1

    def get_device_name(self):
        return "CPU"


class CPU(PlatformBase):
    device_name, vendor_name, device_module = "cpu", "generic", Device("cpu")
    nvtx_range = contextlib.nullcontext

    def nothing(self, *args, **options):
        """What has no meaning here."""

    set_device = synchronize = manual_seed_all = set_allocator_settings = empty_cache = nothing
    profiler_start = profiler_stop = cudart = nothing

    def is_available(self):
        return True

    def current_device(self):
        return "cpu"

    def device_count(self):
        return 1

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    def get_device_capability(self, device_index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CUDA_VISIBLE_DEVICES"

    def ray_resource_name(self):
        return "NPU"  # GPU and NPU are the only names that verl counts

    def ray_noset_envvars(self):
        return []

    def is_ipc_supported(self):
        return False


class Rollout(BaseRollout):
    """The trainer's side of the rollout: weights are sent here after each step, and nobody samples from them."""

    async def resume(self, tags):
        pass

    async def release(self):
        pass

    async def update_weights(self, weights, wire_format="named_tensors", **options):
        for _ in weights:
            pass


@ray.remote(num_cpus=0)
class Server:
    def __init__(self):
        self.random = random.Random(0)

    async def generate(self, sampling_params, **options):
        ids = [self.random.randrange(FIRST_WORD, WORDS) for _ in range(sampling_params["max_tokens"])]
        extra = {"global_steps": 0}
        return TokenOutput(
            token_ids=ids, log_probs=[-3.0 - i % 3 for i in ids], stop_reason="completed", extra_fields=extra
        )


class Replica(RolloutReplica):
    async def launch_servers(self):
        self._server_handle, self._server_address = Server.remote(), f"cpu:{self.replica_rank}"
        self.servers = [self._server_handle]

    async def nothing(self, *args, **options):
        pass

    sleep = wake_up = abort_all_requests = resume_generation = clear_kv_cache = nothing


def score(ids):
    """The reward of a turn."""
    return sum(ids) % 5 / 4


@register("two_turns")
class TwoTurns(AgentLoopBase):
    """A thought and an action, once or twice with an observation between. Some trajectories are masked whole, and of
    the last prompt of each batch of four fewer are returned: PPOTrainer then pads the batch."""

    async def run(self, sampling_params, **options):
        session = options.get("session_id")  # RayPPOTrainer gives none
        g = random.Random(f"{options['index']} {next(SESSIONS) if session is None else session}")
        ids, mask, logprobs, scores = [], [], [], []

        async def sample(n):
            out = await self.server_manager.generate("", prompt_ids=[], sampling_params={"max_tokens": n})
            ids.extend(out.token_ids), mask.extend([1] * n), logprobs.extend(out.log_probs)

        def add(token, by_policy):
            ids.append(token), mask.append(by_policy), logprobs.append(-2.0 * by_policy)

        for turn in range(g.choice([1, 2, 2])):
            if turn:
                add(OBSERVATION, 0)
            await sample(g.randint(3, 9))
            add(OPENING, 1)
            await sample(g.randint(1, 3))
            add(CLOSING, 1)
            scores.append(score(ids[ids.index(OBSERVATION) if turn else 0 :]))
        if g.random() < 0.15:
            mask = [0] * len(ids)
        output = AgentLoopOutput(
            prompt_ids=self.tokenizer.encode(options["raw_prompt"][0]["content"]),
            response_ids=ids, response_mask=mask, response_logprobs=logprobs, num_turns=2, metrics={},
            reward_score=float(len(set(ids)) % 5), extra_fields={"min_global_steps": 0, "max_global_steps": 0},
        )  # fmt: skip
        output.extra_fields.update(reward_extra_info={}, turn_scores=scores, tool_rewards=[])
        return [] if options["index"] % 4 == 3 and session is not None and session > 1 else output


def observed(original):
    """ppo_loss, which writes what it saw."""

    @functools.wraps(original)
    def ppo_loss(config, model_output, data, dp_group=None):
        loss, metrics = original(config, model_output, data, dp_group)
        logprobs = model_output["log_probs"]
        if torch.is_grad_enabled():
            seen = {name: x.unbind() for name, x in data.items() if getattr(x, "is_nested", False)}
            if "responses" not in seen:  # of RayPPOTrainer, whose rows are padded
                there = data["attention_mask"].bool().split([data["prompts"].shape[1], data["responses"].shape[1]], 1)
                for name, x in data.items():
                    for kept in there if isinstance(x, torch.Tensor) and not x.is_nested else ():
                        if x.shape == kept.shape:
                            seen[name] = [row[k] for row, k in zip(x, kept)]
                seen["entropy"] = model_output["entropy"].detach().unbind()
            seen["logprobs"] = logprobs.detach().unbind()
            rows = {name: [row.numpy() for row in x] for name, x in seen.items()}
            rows["uid"] = list(data["uid"])

            def write(gradient):
                rows["gradient"] = [row.numpy() for row in gradient.unbind()]
                with tempfile.NamedTemporaryFile(dir=data["extra_info"][0]["folder"], delete=False) as file:
                    pickle.dump({"loss": loss.item(), "rows": rows}, file)
                os.rename(file.name, file.name + ".pickle")

            logprobs.register_hook(write)
        return loss, metrics

    return ppo_loss


def gloo(original):
    """init_process_group, which takes a back end once for a device."""

    @functools.wraps(original)
    def init_process_group(backend=None, *args, **options):
        return original("gloo" if backend == "cpu:gloo,cpu:gloo" else backend, *args, **options)

    return init_process_group


set_platform(CPU())
EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")(FSDPEngineWithLMHead)
_ROLLOUT_REGISTRY["cpu", "async"] = "verl_cpu.Rollout"
RolloutReplicaRegistry.register("cpu", lambda: Replica)
torch.distributed.init_process_group = gloo(torch.distributed.init_process_group)
losses.ppo_loss = observed(losses.ppo_loss)
