"""The paper's tables beside ours: its numbers are data, in paper/*.toml; ours are counted or come from run folders."""

from .ablations import ablation_sheet
from .benchmarks import (
    Benchmark,
    Gap,
    Outcome,
    Trial,
    benchmark_sheet,
    choose,
    obstacles,
    on_other_data,
    read_benchmark,
)
from .counts import parameters
from .normalization import is_published, other_normalization
from .sheet import Sheet, paper_table

__all__ = [
    "Benchmark",
    "Gap",
    "Outcome",
    "Sheet",
    "Trial",
    "ablation_sheet",
    "benchmark_sheet",
    "choose",
    "is_published",
    "obstacles",
    "on_other_data",
    "other_normalization",
    "paper_table",
    "parameters",
    "read_benchmark",
]
