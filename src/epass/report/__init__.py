"""Run folders in, one page out: did the unlabeled images help, and can the answer be trusted?"""

from .card import data_name, write_card
from .collapse import warnings_of
from .figures import write_figures
from .guarded import guard_sentences
from .page import write_page
from .readable import sort_out
from .summary import Group, Spread, group_runs
from .table import (
    DIFFERENCE_HEADS,
    comparison_record,
    difference_rows,
    table_heads,
    table_rows,
    write_record,
    write_rows,
    write_table,
)
from .verdict import verdict

__all__ = [
    "DIFFERENCE_HEADS",
    "Group",
    "Spread",
    "comparison_record",
    "data_name",
    "difference_rows",
    "group_runs",
    "guard_sentences",
    "sort_out",
    "table_heads",
    "table_rows",
    "verdict",
    "warnings_of",
    "write_card",
    "write_figures",
    "write_page",
    "write_record",
    "write_rows",
    "write_table",
]
