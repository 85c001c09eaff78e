"""reweight: token-level credit for people who train LLM agents.

The kernels and schemes of the Go package github.com/seed621a2839/reweight, with the same
results to the last bit. Arrays are NumPy arrays or tensors of PyTorch, on the CPU or on a
GPU; they are read and written where they are, and results are of the same kind.
"""

from . import _catalogue, _policies
from ._catalogue import *  # noqa: F403
from ._cuda import check, prepare
from ._errors import InputError
from ._generated import VERSION as __version__
from ._kernels import (
    MinMax,
    Moments,
    SurrogateSums,
    actfocus_weights,
    exp_scale,
    masked_moments,
    min_max,
    multiply,
    span_means,
    surrogate,
)
from ._library import available_isas, best_isa
from ._policies import *  # noqa: F403
from ._rows import TokenStats, row_gradient, token_stats
from ._schemes import (
    ActFocusResult,
    GAEResult,
    LossResult,
    ValueLossResult,
    actfocus,
    aem,
    gae,
    grpo,
    kl_rewards,
    loss,
    value_loss,
    whiten,
)
from ._show import Comparison, compare, show
from ._step import Credit, Result, Step, scheme, schemes
from .batch import ACTION, MASKED, REASONING, Batch, roles_from_mask, spans_from_mask

__all__ = [
    "ACTION",
    "ActFocusResult",
    "Batch",
    "Comparison",
    "Credit",
    "GAEResult",
    "InputError",
    "LossResult",
    "MASKED",
    "MinMax",
    "Moments",
    "REASONING",
    "Result",
    "Step",
    "SurrogateSums",
    "TokenStats",
    "ValueLossResult",
    "__version__",
    "actfocus",
    "actfocus_weights",
    "aem",
    "available_isas",
    "best_isa",
    "check",
    "compare",
    "exp_scale",
    "gae",
    "grpo",
    "kl_rewards",
    "loss",
    "masked_moments",
    "min_max",
    "multiply",
    "prepare",
    "roles_from_mask",
    "row_gradient",
    "scheme",
    "schemes",
    "show",
    "span_means",
    "spans_from_mask",
    "surrogate",
    "token_stats",
    "value_loss",
    "whiten",
]
__all__ += _catalogue.__all__ + _policies.__all__
