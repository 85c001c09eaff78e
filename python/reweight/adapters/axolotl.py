"""Credit in axolotl's GRPO trainer, which is a subclass of TRL's. In the configuration of axolotl:

    plugins:
      - reweight.adapters.axolotl.Plugin
    reweight:
      scheme: actfocus
      tags: tool_call

with the names of Credit, or reweight: {} for its defaults. All that reweight.adapters.trl says holds, for the TRL that
axolotl installs. Tested with AxolotlGRPOTrainer of axolotl 0.21.0 on TRL 1.14.1, two steps. Its trainers of async_prefetch
and context_parallel_size compute their advantages themselves, and are refused.
"""

from __future__ import annotations

import importlib
from typing import Any, Dict

from . import HookError, trl
from .verl import from_configuration

_base: Any = importlib.import_module("axolotl.integrations.base")
_pydantic: Any = importlib.import_module("pydantic")


class Options(_pydantic.BaseModel):  # type: ignore[misc]
    """What the plugin adds to axolotl's configuration."""

    reweight: Dict[str, Any] = {}


class Plugin(_base.BasePlugin):  # type: ignore[misc]
    def get_input_args(self) -> str:
        return f"{__name__}.Options"

    def pre_model_load(self, cfg: Any) -> None:
        trl.install(from_configuration(cfg.reweight or {}))

    def post_trainer_create(self, cfg: Any, trainer: Any) -> None:
        if type(trainer).__name__ != "AxolotlGRPOTrainer":
            want = "set rl: grpo, without async_prefetch, use_data_producer and context_parallel_size"
            raise HookError(f"{type(trainer).__name__} of axolotl computes its advantages where reweight does not reach them: {want}")
