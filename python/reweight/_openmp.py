"""The threads of PyTorch. After an operation they spin for milliseconds in wait for the next one, and threads of the
library's own would have to share the CPUs with them. They end before a fork: the child has none of them, and its first
operation in parallel would wait for them for ever."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Optional

import torch

_SOFT = 1  # omp_pause_soft of omp.h


class _Symbol(ctypes.Structure):
    """Dl_info of dlfcn.h."""

    _fields_ = [(name, ctypes.c_void_p if "base" in name or "addr" in name else ctypes.c_char_p) for name in (
        "dli_fname", "dli_fbase", "dli_sname", "dli_saddr")]  # fmt: skip


def share() -> Optional[int]:
    """Returns where GOMP_parallel of the OpenMP is that PyTorch uses, a reweight_parallel, and has the threads of who
    forks end before. Returns None if that OpenMP is not GNU's, or older than GCC 9's, which does not end them."""
    try:
        opened = ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"), os.RTLD_NOLOAD | os.RTLD_NOW)
        found = ctypes.cast(opened.GOMP_parallel, ctypes.c_void_p)
        symbol = _Symbol()
        of_gnu = ctypes.CDLL(None).dladdr(found, ctypes.byref(symbol)) and b"libgomp" in os.path.basename(symbol.dli_fname)
        pause = opened.omp_pause_resource_all
    except (OSError, AttributeError):
        return None
    if not of_gnu:
        return None
    os.register_at_fork(before=lambda: pause(_SOFT))
    return found.value
