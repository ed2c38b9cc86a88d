"""The methods by name. A new method is one file here and one line below."""

from __future__ import annotations

from ..method import Method
from .comatch import CoMatch
from .fixmatch import FixMatch
from .mixmatch import MixMatch
from .remixmatch import ReMixMatch
from .simmatch import SimMatch
from .supervised import FullySupervised, Supervised

METHODS: dict[str, type[Method]] = {
    "comatch": CoMatch,
    "fixmatch": FixMatch,
    "fully_supervised": FullySupervised,
    "mixmatch": MixMatch,
    "remixmatch": ReMixMatch,
    "simmatch": SimMatch,
    "supervised": Supervised,
}
