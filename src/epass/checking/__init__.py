"""What is wrong with a data set, before anyone trains on it: duplicates, leaks, contradictions, odd files."""

from .duplicates import leaks
from .findings import Findings, Group, Leak, Member, examine
from .page import write_check
from .summary import as_values, describe, facts, verdict

__all__ = [
    "Findings",
    "Group",
    "Leak",
    "Member",
    "as_values",
    "describe",
    "examine",
    "facts",
    "leaks",
    "verdict",
    "write_check",
]
