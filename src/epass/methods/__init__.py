"""The methods by name. A new method is one file here and one line below."""

from __future__ import annotations

from ..method import Method
from .comatch import CoMatch
from .fixmatch import FixMatch
from .mean_teacher import MeanTeacher
from .pi_model import PiModel
from .pseudo_label import PseudoLabel
from .mixmatch import MixMatch
from .remixmatch import ReMixMatch
from .simmatch import SimMatch
from .supervised import FullySupervised, Supervised
from .vat import VAT

METHODS: dict[str, type[Method]] = {
    "comatch": CoMatch,
    "fixmatch": FixMatch,
    "fully_supervised": FullySupervised,
    "mean_teacher": MeanTeacher,
    "pi_model": PiModel,
    "pseudo_label": PseudoLabel,
    "mixmatch": MixMatch,
    "remixmatch": ReMixMatch,
    "simmatch": SimMatch,
    "supervised": Supervised,
    "vat": VAT,
}
