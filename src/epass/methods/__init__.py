"""The methods by name, the wrappers around them and what is trained before them. A new one is one file here.

A file holds one class and is called as recipes call it; `abc_wrapper.py` is the wrapper `abc`.
"""

from __future__ import annotations

import math
from importlib import import_module
from pkgutil import iter_modules

from ..method import Method, Wrapper


def _in_file(name: str) -> type[Method]:
    """The class of a file of this folder."""
    module = import_module(f"{__name__}.{name}")
    classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Method)]
    (own,) = [cls for cls in classes if cls.__module__ == module.__name__]
    return own


_FOUND = {entry.name.removesuffix("_wrapper"): _in_file(entry.name) for entry in iter_modules(__path__)}

WRAPPERS: dict[str, type[Wrapper]] = {name: cls for name, cls in _FOUND.items() if issubclass(cls, Wrapper)}
PRETRAINING: dict[str, type[Method]] = {name: cls for name, cls in _FOUND.items() if cls.pretraining}
METHODS: dict[str, type[Method]] = {
    name: cls for name, cls in _FOUND.items() if name not in WRAPPERS and name not in PRETRAINING
}


def known_class(name: str) -> type[Method] | None:
    """What a recipe means by a name, if it is one of a table: of ours, or of yours once you have put it in."""
    return METHODS.get(name) or WRAPPERS.get(name) or PRETRAINING.get(name)


def table_order(name: str) -> tuple[float, str]:
    """Where a method stands in tables: those without unlabeled images, the papers by year, the others, all labels."""
    cls = METHODS.get(name) or PRETRAINING.get(name)
    if cls is not None and (cls.all_labels or not cls.views.unlabeled):
        return (math.inf if cls.all_labels else -math.inf), name
    return (cls.paper.year if cls is not None and cls.paper is not None else 9999), name
