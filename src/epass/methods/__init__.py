"""The methods by name. A new method is one file here and one line below."""

from __future__ import annotations

from ..method import Method
from .comatch import CoMatch
from .fixmatch import FixMatch
from .iomatch import IOMatch
from .simmatch import SimMatch
from .simmatchv2 import SimMatchV2
from .supervised import FullySupervised, Supervised

METHODS: dict[str, type[Method]] = {
    "comatch": CoMatch,
    "fixmatch": FixMatch,
    "fully_supervised": FullySupervised,
    "iomatch": IOMatch,
    "simmatch": SimMatch,
    "simmatchv2": SimMatchV2,
    "supervised": Supervised,
}
