"""The C library: where it is found, and its functions."""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import contextmanager
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64
from pathlib import Path
from typing import Any, Iterator, List, Optional

import numpy as np

from ._errors import InputError, reported
from ._generated import (
    FUNCTIONS,
    ISAS,
    VERSION,
    ActFocusOptions,
    AEMOptions,
    Batch,
    Error,
    GAEOptions,
    GRPOOptions,
    Ids,
    LossOptions,
    RowGradientOptions,
    Rows,
    Stats,
    ValueLossOptions,
    Workspace,
)


def path() -> str:
    """Returns where the library is: what REWEIGHT_LIBRARY says, or beside this file."""
    return os.environ.get("REWEIGHT_LIBRARY") or str(Path(__file__).with_name("libreweight.so"))


def _load() -> ctypes.CDLL:
    """Opens the library."""
    try:
        lib = ctypes.CDLL(path())
    except OSError as e:
        raise ImportError(
            f"reweight: cannot open its library: {e}. It is libreweight.so beside the package, or the file that the "
            "environment variable REWEIGHT_LIBRARY names; `go run ./native/build` makes it."
        ) from e
    try:
        lib.reweight_version.restype = c_char_p
    except AttributeError:
        raise ImportError(f"reweight: {path()} is another library, want libreweight.so of version {VERSION}") from None
    version = lib.reweight_version().decode()
    if version != VERSION:  # another version may lack functions
        raise ImportError(f"reweight: {path()} is version {version}, want {VERSION}")
    _declare(lib)
    return lib


def _declare(lib: ctypes.CDLL) -> None:
    """States the types of the functions of reweight.h."""
    for name, types in FUNCTIONS.items():
        function = getattr(lib, "reweight_" + name)
        function.argtypes = [POINTER(Workspace)] + types + [POINTER(Error)]
        function.restype = c_int
    lib.reweight_has_isa.argtypes = [c_int32]
    lib.reweight_has_isa.restype = c_int32
    lib.reweight_scratch_size.argtypes = [c_int64] * 3
    lib.reweight_scratch_size.restype = c_int64


class _Workspace(Workspace):
    """A workspace with what owns its scratch memory."""

    memory: object


class _Thread(threading.local):
    """The workspace and the error of a thread."""

    def __init__(self, isa: int) -> None:
        self.workspace = _Workspace(isa)
        self.error = Error()

    def grow(self, size: int) -> None:
        """Gives the workspace at least so many bytes of scratch memory.

        A signal handler may make calls at any point of the thread's own: the workspace is
        replaced at once, and one that a call has taken keeps its memory.
        """
        if self.workspace.scratch_size < size:
            memory = np.empty(size, np.uint8)
            workspace = _Workspace(self.workspace.isa, 1, memory.ctypes.data, size)
            workspace.memory = memory
            self.workspace = workspace


class CPU:
    """The functions of the C library, by one instruction set: a Backend.

    Each thread has scratch memory of its own, which grows to what its largest call needed.
    """

    def __init__(self, isa: int) -> None:
        self.thread = _Thread(isa)

    def _call(self, function: Any, *args: Any, workers: int = 1, parallel: Optional[int] = None) -> None:
        """Calls the function, and raises what it finds wrong."""
        thread = self.thread
        workspace, error = thread.workspace, thread.error
        workspace.workers, workspace.parallel = workers, parallel
        if function(workspace, *args, error):
            raise reported(error)

    def _scratch(self, batch: Batch) -> None:
        """Sees to enough scratch memory for the batch. Its spans are not counted: each has at
        least one token, and memory that is not touched costs nothing."""
        self.thread.grow(_lib.reweight_scratch_size(batch.tokens, batch.trajectories, batch.tokens))

    def token_stats(
        self,
        dst: Stats,
        logits: Rows,
        ids: Ids,
        temperature: float,
        workers: int,
        apart: object = None,
        tensors: bool = False,
    ) -> None:
        self._call(
            _lib.reweight_token_stats, dst, logits, ids, temperature,
            workers=workers or cpus(), parallel=_parallel if tensors else None,
        )

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
        apart: object = None,
        tensors: bool = False,
    ) -> None:
        self._call(
            _lib.reweight_row_gradient, dst, logits, ids, logprobs, entropy, grad, grad_entropy, lse, options,
            workers=workers or cpus(), parallel=_parallel if tensors else None,
        )

    def actfocus(self, result: int, weights: int, batch: Batch, options: ActFocusOptions) -> None:
        self._scratch(batch)
        self._call(_lib.reweight_actfocus, result, weights, batch, options)

    def aem(self, factors: int, batch: Batch, options: AEMOptions) -> None:
        self._scratch(batch)
        self._call(_lib.reweight_aem, factors, batch, options)

    def grpo(self, advantages: int, batch: Batch, options: GRPOOptions) -> None:
        self._scratch(batch)
        self._call(_lib.reweight_grpo, advantages, batch, options)

    def gae(self, advantages: int, returns: int, rewards: int, batch: Batch, options: GAEOptions) -> None:
        self._call(_lib.reweight_gae, advantages, returns, rewards, batch, options)

    def whiten(self, dst: int, x: int, role: int, tokens: int) -> None:
        self._call(_lib.reweight_whiten, dst, x, role, tokens)

    def loss(self, result: int, grad: int, weights: int, batch: Batch, options: LossOptions) -> None:
        self._scratch(batch)
        self._call(_lib.reweight_loss, result, grad, weights, batch, options)

    def value_loss(self, result: int, grad: int, batch: Batch, options: ValueLossOptions) -> None:
        self._scratch(batch)
        self._call(_lib.reweight_value_loss, result, grad, batch, options)

    def scheme(self, name: str, dst: int, batch: Batch, options: Optional[ctypes.Structure]) -> None:
        """Calls the function of that name, of the form that the schemes of _catalogue.py have."""
        self._scratch(batch)
        function = getattr(_lib, "reweight_" + name)
        if options is None:
            self._call(function, dst, batch)
        else:
            self._call(function, dst, batch, options)

    def masked_moments(self, result: int, x: int, role: int, n: int, roles: int, shift: float) -> None:
        self._call(_lib.reweight_masked_moments, result, x, role, n, roles, shift)

    def actfocus_weights(
        self, dst: int, signal: int, role: int, n: int, mean: float, sigma: float, options: ActFocusOptions
    ) -> None:
        self._call(_lib.reweight_actfocus_weights, dst, signal, role, n, mean, sigma, options)

    def span_means(self, dst: int, spans: int, x: int, n: int, offsets: int) -> None:
        self._call(_lib.reweight_span_means, dst, spans, x, n, offsets)

    def min_max(self, lo: int, hi: int, groups: int, x: int, n: int, offsets: int) -> None:
        self._call(_lib.reweight_min_max, lo, hi, groups, x, n, offsets)

    def exp_scale(self, dst: int, x: int, n: int, lo: float, rate: float) -> None:
        self._call(_lib.reweight_exp_scale, dst, x, n, lo, rate)

    def multiply(self, dst: int, a: int, b: int, n: int) -> None:
        self._call(_lib.reweight_multiply, dst, a, b, n)

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
    ) -> None:
        self._call(
            _lib.reweight_surrogate, result, grad, logprobs, old_logprobs, advantages, weights, role, n, scale, options
        )


# The reweight_parallel that rows of tensors take: an address, or None for threads of the library's own.
_parallel: Optional[int] = None


def share_threads(address: Optional[int]) -> None:
    """Has rows of tensors shared among the threads of a reweight_parallel that outlives the process, or by None among
    threads of the library's own, as those of NumPy's arrays are. It serves in a fork, too."""
    global _parallel
    _parallel = address


def cpus() -> int:
    """Returns the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


_lib = _load()


def _available(name: str) -> List[str]:
    """Returns the instruction sets that the library and this machine have, the slowest
    first, up to the one of that name."""
    isas = [isa for i, isa in enumerate(ISAS) if i > 0 and _lib.reweight_has_isa(i)]
    if name == "":
        return isas
    if name not in isas:
        raise InputError("REWEIGHT_ISA", f'is "{name}", want one of [{" ".join(isas)}]')
    return isas[: isas.index(name) + 1]


# What REWEIGHT_ISA leaves, or what is wrong with it: importing the package is no place for
# that error.
_isas: List[str] = []
_isa_error: Optional[InputError] = None
try:
    _isas = _available(os.environ.get("REWEIGHT_ISA", ""))
except InputError as e:
    _isa_error = e
_cpu = CPU(ISAS.index(_isas[-1]) if _isas else 0)


def cpu() -> CPU:
    """Returns the CPU with the best instruction set that REWEIGHT_ISA leaves."""
    if _isa_error is not None:
        raise InputError(*_isa_error.args)
    return _cpu


@contextmanager
def using(other: CPU) -> Iterator[None]:
    """Makes calls use another CPU meanwhile."""
    global _cpu
    before, _cpu = cpu(), other
    try:
        yield
    finally:
        _cpu = before


def available_isas() -> List[str]:
    """Returns the instruction sets that this machine and the library can run, the slowest
    first: of "portable", "avx2", "avx512" and "neon".

    All give the same bits. The environment variable REWEIGHT_ISA, read when the package is
    imported, cuts the list after the one that it names. If it names none of them, this and
    every call of a kernel on the CPU raises an InputError that lists them.
    """
    cpu()
    return list(_isas)


def best_isa() -> str:
    """Returns the instruction set that calls use: the last of available_isas()."""
    return available_isas()[-1]
