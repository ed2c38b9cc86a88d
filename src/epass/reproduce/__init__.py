"""The paper's tables beside ours: its numbers are data, in paper/*.toml; ours are counted or come from run folders."""

from .ablations import Variant, ablation, obstacles, variants
from .counts import parameters
from .sheet import Sheet, paper_table

__all__ = ["Sheet", "Variant", "ablation", "obstacles", "paper_table", "parameters", "variants"]
