"""Run folders in, one page out: did the unlabeled images help, and can the answer be trusted?"""

from .page import write_page
from .summary import Group, Spread, group_runs
from .verdict import verdict

__all__ = ["Group", "Spread", "group_runs", "verdict", "write_page"]
