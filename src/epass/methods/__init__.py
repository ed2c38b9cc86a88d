"""The methods by name, and the wrappers around them. A new one is one file here and one line below."""

from __future__ import annotations

from ..method import Method
from .adamatch import AdaMatch
from ..method import Method, Wrapper
from .abc_wrapper import ABC
from .comatch import CoMatch
from .dash import Dash
from .fixmatch import FixMatch
from .mean_teacher import MeanTeacher
from .pi_model import PiModel
from .pseudo_label import PseudoLabel
from .mixmatch import MixMatch
from .remixmatch import ReMixMatch
from .freematch import FreeMatch
from .fixmatch_eman import FixMatchEMAN
from .flexmatch import FlexMatch
from .multihead import MultiHeadCoTraining
from .shrink_wrapper import Shrink
from .shrinkmatch import ShrinkMatch
from .moco import MoCo
from .simmatch import SimMatch
from .softmatch import SoftMatch
from .iomatch import IOMatch
from .simmatch import SimMatch
from .simmatchv2 import SimMatchV2
from .supervised import FullySupervised, Supervised
from .vat import VAT
from .uda import UDA

METHODS: dict[str, type[Method]] = {
    "adamatch": AdaMatch,
    "comatch": CoMatch,
    "dash": Dash,
    "fixmatch": FixMatch,
    "freematch": FreeMatch,
    "fully_supervised": FullySupervised,
    "mean_teacher": MeanTeacher,
    "pi_model": PiModel,
    "pseudo_label": PseudoLabel,
    "mixmatch": MixMatch,
    "remixmatch": ReMixMatch,
    "fixmatch_eman": FixMatchEMAN,
    "flexmatch": FlexMatch,
    "fully_supervised": FullySupervised,
    "multihead": MultiHeadCoTraining,
    "shrinkmatch": ShrinkMatch,
    "simmatch": SimMatch,
    "softmatch": SoftMatch,
    "iomatch": IOMatch,
    "simmatch": SimMatch,
    "simmatchv2": SimMatchV2,
    "supervised": Supervised,
    "vat": VAT,
    "uda": UDA,
}

WRAPPERS: dict[str, type[Wrapper]] = {"abc": ABC, "shrink": Shrink}
# What learns from images alone; the network that it leaves behind cannot classify yet.
PRETRAINING: dict[str, type[Method]] = {"moco": MoCo}
