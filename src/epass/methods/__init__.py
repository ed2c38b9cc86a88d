"""The methods by name. A new method is one file here and one line below."""

from __future__ import annotations

from ..method import Method
from .comatch import CoMatch
from .fixmatch import FixMatch
from .moco import MoCo
from .simmatch import SimMatch
from .supervised import FullySupervised, Supervised

METHODS: dict[str, type[Method]] = {
    "comatch": CoMatch,
    "fixmatch": FixMatch,
    "fully_supervised": FullySupervised,
    "simmatch": SimMatch,
    "supervised": Supervised,
}

# What learns from images alone; the network that it leaves behind cannot classify yet.
PRETRAINING: dict[str, type[Method]] = {"moco": MoCo}
