"""Two defaults of the C libraries under torch that slow down training on a CPU.

The command line changes them at its start; nobody's process is changed by `import epass`.
"""

from __future__ import annotations

import ctypes
import os
import platform

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt's names for them


def prepare_cpu() -> None:
    """Call before torch is imported."""
    # Threads wait for each other by spinning. Beside one busy program they spin against it, and a step takes fifty
    # times as long. Spinning only briefly keeps the speed of an idle machine.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    keep_freed_memory()


def count_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_freed_memory() -> bool:
    """Let glibc keep the memory of activations, which every step frees and takes again; whether it could be told."""
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return bool(libc.mallopt(_MMAP_THRESHOLD, 1 << 30) and libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1))
