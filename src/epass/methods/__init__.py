"""The methods by name. A new method is one file here and one line below."""

from __future__ import annotations

from ..method import Method
from .comatch import CoMatch
from .dash import Dash
from .fixmatch import FixMatch
from .fixmatch_eman import FixMatchEMAN
from .flexmatch import FlexMatch
from .multihead import MultiHeadCoTraining
from .simmatch import SimMatch
from .supervised import FullySupervised, Supervised

METHODS: dict[str, type[Method]] = {
    "comatch": CoMatch,
    "dash": Dash,
    "fixmatch": FixMatch,
    "fixmatch_eman": FixMatchEMAN,
    "flexmatch": FlexMatch,
    "fully_supervised": FullySupervised,
    "multihead": MultiHeadCoTraining,
    "simmatch": SimMatch,
    "supervised": Supervised,
}
