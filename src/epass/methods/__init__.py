"""The methods by name, and the wrappers around them. A new one is one file here and one line below."""

from __future__ import annotations

from ..method import Method, Wrapper
from .abc_wrapper import ABC
from .comatch import CoMatch
from .fixmatch import FixMatch
from .shrink_wrapper import Shrink
from .shrinkmatch import ShrinkMatch
from .simmatch import SimMatch
from .supervised import FullySupervised, Supervised

METHODS: dict[str, type[Method]] = {
    "comatch": CoMatch,
    "fixmatch": FixMatch,
    "fully_supervised": FullySupervised,
    "shrinkmatch": ShrinkMatch,
    "simmatch": SimMatch,
    "supervised": Supervised,
}

WRAPPERS: dict[str, type[Wrapper]] = {"abc": ABC, "shrink": Shrink}
