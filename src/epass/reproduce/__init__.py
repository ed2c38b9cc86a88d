"""The paper's tables beside ours: its numbers are data, in paper/*.toml; ours are counted or come from run folders."""

from .ablations import Variant, ablation, obstacles, variants
from .benchmarks import Benchmark, Gap, Outcome, Trial, benchmark_sheet, choose, on_other_data, read_benchmark
from .counts import parameters
from .sheet import Sheet, paper_table

__all__ = [
    "Benchmark",
    "Gap",
    "Outcome",
    "Sheet",
    "Trial",
    "Variant",
    "ablation",
    "benchmark_sheet",
    "choose",
    "obstacles",
    "on_other_data",
    "paper_table",
    "parameters",
    "read_benchmark",
    "variants",
]
