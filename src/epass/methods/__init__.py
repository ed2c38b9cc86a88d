"""The methods by name. A new method is one file here and one line below."""

from __future__ import annotations

from ..method import Method
from .adamatch import AdaMatch
from .comatch import CoMatch
from .fixmatch import FixMatch
from .freematch import FreeMatch
from .simmatch import SimMatch
from .softmatch import SoftMatch
from .supervised import FullySupervised, Supervised
from .uda import UDA

METHODS: dict[str, type[Method]] = {
    "adamatch": AdaMatch,
    "comatch": CoMatch,
    "fixmatch": FixMatch,
    "freematch": FreeMatch,
    "fully_supervised": FullySupervised,
    "simmatch": SimMatch,
    "softmatch": SoftMatch,
    "supervised": Supervised,
    "uda": UDA,
}
