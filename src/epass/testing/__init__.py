"""The contract of a method, as checks to run on your own: `check_method(MyMethod, threshold=0.5)`.

`check_method` runs every check of `CHECKS` on a tiny problem that it makes up itself, on the CPU, in a few seconds.
`check_replicas` starts two processes, then three, and takes longer. A broken rule raises an `AssertionError` that says
which rule it is and how to mend it.
"""

from __future__ import annotations

from .case import LATE, PROBLEM, Case, difference, named, snapshot
from .checks import CHECKS, check_method
from .replicas import check_replicas, compare_compiled_replicas, compare_replicas

__all__ = [
    "CHECKS",
    "LATE",
    "PROBLEM",
    "Case",
    "check_method",
    "check_replicas",
    "compare_compiled_replicas",
    "compare_replicas",
    "difference",
    "named",
    "snapshot",
]
