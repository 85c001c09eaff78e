"""Says what this machine has and which instruction set is used, and checks the library."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import List, Tuple

import numpy as np

from . import _cuda, _cuda_driver, _library
from ._errors import InputError
from ._generated import VERSION
from ._parity import TOLERANCE, check


USAGE = """Usage:
  python -m reweight              is the library right on this machine, and what does it use
  python -m reweight audit -h     where is the signal of the policy gradient, and which weights are best
  python -m reweight runs -h      several training runs on one page, and how many seeds their difference needs
  python -m reweight check-trainer trl, verl or openrlhf  is the loss of the trainer that is installed its formula, with and without credit
  python -m reweight --version    the version
  reweight -h                     the program for rollouts in files, which came with this package

It compares the kernels of each instruction set with one another and with float64, in about a second, and those of
the GPU with the CPU's; the driver of the GPU may have to compile them first. REWEIGHT_GPU=off uses no GPU.
REWEIGHT_ISA=portable, avx2, avx512 or neon narrows the choice of the instruction set.
Exit status: 0 right, 1 wrong, 2 bad use or a library that does not run here."""


def main() -> int:
    """Prints the verdict of the check, then the machine, or what an argument asks for. Returns
    the exit status: 1 if the check failed, 2 for bad use."""
    arguments = sys.argv[1:]
    if arguments in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    if arguments == ["--version"]:
        print(f"reweight {VERSION}")
        return 0
    if arguments[:1] == ["audit"]:
        from .audit import _command

        return _command.main(arguments[1:])
    if arguments[:1] == ["runs"]:
        from . import _runs

        return _runs.main(arguments[1:])
    if arguments[:1] == ["check-trainer"]:
        from .adapters import _check

        return _check.main(arguments[1:])
    if arguments:
        print(f"python -m reweight takes audit, runs, check-trainer, --help or --version alone, not {shlex.join(arguments)!r}", file=sys.stderr)
        return 2
    begin = time.perf_counter()
    try:
        numbers, problems = check()
    except InputError as e:
        print(f"not checked: {e}", file=sys.stderr)
        return 2
    seconds = time.perf_counter() - begin
    gpu, wrong = _gpu()
    problems += wrong
    isas = _library.available_isas()
    if problems:
        print("WRONG: do not use the library on this machine")
        for problem in problems:
            print(f"  {problem}")
    else:
        bits = f"{', '.join(isas)} give the same bits," if len(isas) > 1 else f"{isas[0]} is"
        print(f"ok: {bits} within {TOLERANCE:g} of float64 ({numbers:,} comparisons in {seconds:.1f} s)")
    used = f"{isas[-1]}: the fastest of {', '.join(isas)}"
    if os.environ.get("REWEIGHT_ISA"):
        used += ", which REWEIGHT_ISA leaves"
    for name, value in (
        ("machine", f"{platform.system()} {platform.release()}, {platform.machine()}, {' '.join(platform.libc_ver())}"),
        ("CPU", f"{_cpu_name()}, {_library.cpus()} of {os.cpu_count()} logical CPUs usable"),
        ("kernels", used),
        ("GPU", gpu),
        ("reweight", f"{VERSION}, {_library.path()}"),
        ("Python", f"{platform.python_version()}, NumPy {np.__version__}, {_torch()}"),
    ):
        print(f"{name:<8}  {value}")
    return 1 if problems else 0


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _gpu() -> Tuple[str, List[str]]:
    """Returns a text about the GPU, and what is wrong with it."""
    try:
        device, checked = _cuda_driver.device(0), _cuda_driver.checked()
    except (RuntimeError, InputError) as e:
        return f"none is used: {e}", []
    said = f"{device.name}, driver for CUDA {device.version}"
    if not checked:
        return f"{said}: not checked, because REWEIGHT_GPU is unchecked", []
    try:
        import torch
    except ImportError:
        return f"{said}: not checked, because there is no PyTorch, without which it is not used", []
    if not torch.cuda.is_available():
        return f"{said}: not checked, because this PyTorch has no CUDA", []
    try:
        _cuda.prepare(0)
    except RuntimeError as e:
        return f"{said}: WRONG", [str(e)]
    return f"{said}: right, every kernel gives the CPU's bits on hard rows and tokens", []


def _torch() -> str:
    try:
        return f"PyTorch {metadata.version('torch')}"
    except metadata.PackageNotFoundError:
        return "no PyTorch"


def _ended() -> int:
    """main, and its exit status where nobody reads what it prints any more, or where somebody ends it."""
    try:
        status = main()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is flushed at the end
        return 141  # as of a program that the signal of a closed pipe ends
    except OSError as e:
        print(f"python -m reweight: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(_ended())
