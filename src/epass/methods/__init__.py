"""The methods by name, and the wrappers around them. A new one is one file here and one line below."""

from __future__ import annotations

from ..method import Method, Wrapper
from .abc_wrapper import ABC
from .adamatch import AdaMatch
from .comatch import CoMatch
from .dash import Dash
from .fixmatch import FixMatch
from .fixmatch_eman import FixMatchEMAN
from .flexmatch import FlexMatch
from .freematch import FreeMatch
from .iomatch import IOMatch
from .mean_teacher import MeanTeacher
from .mixmatch import MixMatch
from .moco import MoCo
from .multihead import MultiHeadCoTraining
from .pi_model import PiModel
from .pseudo_label import PseudoLabel
from .remixmatch import ReMixMatch
from .shrink_wrapper import Shrink
from .shrinkmatch import ShrinkMatch
from .simmatch import SimMatch
from .simmatchv2 import SimMatchV2
from .softmatch import SoftMatch
from .supervised import FullySupervised, Supervised
from .uda import UDA
from .vat import VAT

METHODS: dict[str, type[Method]] = {
    "adamatch": AdaMatch,
    "comatch": CoMatch,
    "dash": Dash,
    "fixmatch": FixMatch,
    "fixmatch_eman": FixMatchEMAN,
    "flexmatch": FlexMatch,
    "freematch": FreeMatch,
    "fully_supervised": FullySupervised,
    "iomatch": IOMatch,
    "mean_teacher": MeanTeacher,
    "mixmatch": MixMatch,
    "multihead": MultiHeadCoTraining,
    "pi_model": PiModel,
    "pseudo_label": PseudoLabel,
    "remixmatch": ReMixMatch,
    "shrinkmatch": ShrinkMatch,
    "simmatch": SimMatch,
    "simmatchv2": SimMatchV2,
    "softmatch": SoftMatch,
    "supervised": Supervised,
    "uda": UDA,
    "vat": VAT,
}
# What goes around a method of the table above.
WRAPPERS: dict[str, type[Wrapper]] = {"abc": ABC, "shrink": Shrink}
# What learns from images alone; the network that it leaves behind cannot classify yet.
PRETRAINING: dict[str, type[Method]] = {"moco": MoCo}
