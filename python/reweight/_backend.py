"""What runs the kernels: the C library on the CPU, or a GPU."""

from __future__ import annotations

from typing import NamedTuple, Optional, Protocol

from . import _library
from ._generated import (
    ActFocusOptions,
    AEMOptions,
    Batch,
    GAEOptions,
    GRPOOptions,
    Ids,
    LossOptions,
    RowGradientOptions,
    Rows,
    Stats,
)


class Apart(NamedTuple):
    """Rows of [B, T, V] that are not all the same distance apart, which a GPU takes in one call."""

    sequence: int  # T
    logits: int  # elements beyond the stride from the last row of a sequence to the first of the next
    dst: int  # the same of a gradient
    ids: int  # elements between the ids of two sequences


class Backend(Protocol):
    """The functions of reweight.h, on one device.

    Addresses are ints, in the memory of the device. 0 stands for no array, where one may be
    left out; that of an array without elements is any other. The functions of this package have
    checked types, shapes, sizes, strides, alignment and devices. A backend checks what
    reweight.h says of options and contents, and raises an InputError.

    result is the address, in the memory of the device, of the struct of that name:
    fields of 8 bytes each. A GPU queues its work on the current stream of PyTorch.
    workers are threads that share rows of logits: 0 stands for the CPUs that this
    process may use, and a GPU does not read it. apart is for a GPU alone. tensors says that
    the logits are PyTorch's, whose own threads may share them on the CPU.
    """

    def token_stats(
        self,
        dst: Stats,
        logits: Rows,
        ids: Ids,
        temperature: float,
        workers: int,
        apart: Optional[Apart] = None,
        tensors: bool = False,
    ) -> None: ...

    def row_gradient(
        self,
        dst: Rows,
        logits: Rows,
        ids: Ids,
        logprobs: int,
        entropy: int,
        grad: int,
        grad_entropy: int,
        lse: int,
        options: RowGradientOptions,
        workers: int,
        apart: Optional[Apart] = None,
        tensors: bool = False,
    ) -> None: ...

    def actfocus(self, result: int, weights: int, batch: Batch, options: ActFocusOptions) -> None: ...

    def aem(self, factors: int, batch: Batch, options: AEMOptions) -> None: ...

    def grpo(self, advantages: int, batch: Batch, options: GRPOOptions) -> None: ...

    def gae(self, advantages: int, returns: int, rewards: int, batch: Batch, options: GAEOptions) -> None: ...

    def whiten(self, dst: int, x: int, role: int, tokens: int) -> None: ...

    def loss(self, result: int, grad: int, weights: int, batch: Batch, options: LossOptions) -> None: ...

    def masked_moments(self, result: int, x: int, role: int, n: int, roles: int, shift: float) -> None: ...

    def actfocus_weights(
        self, dst: int, signal: int, role: int, n: int, mean: float, sigma: float, options: ActFocusOptions
    ) -> None: ...

    def span_means(self, dst: int, spans: int, x: int, n: int, offsets: int) -> None: ...

    def min_max(self, lo: int, hi: int, groups: int, x: int, n: int, offsets: int) -> None: ...

    def exp_scale(self, dst: int, x: int, n: int, lo: float, rate: float) -> None: ...

    def multiply(self, dst: int, a: int, b: int, n: int) -> None: ...

    def surrogate(
        self,
        result: int,
        grad: int,
        logprobs: int,
        old_logprobs: int,
        advantages: int,
        weights: int,
        role: int,
        n: int,
        scale: float,
        options: LossOptions,
    ) -> None: ...


def backend(device: Optional[int]) -> Backend:
    """Returns what runs on the device: None is the CPU, a number is that of a GPU."""
    if device is None:
        return _library.cpu()
    from . import _cuda

    return _cuda.backend(device)
