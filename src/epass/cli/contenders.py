"""Who is compared: from the methods that were typed to recipes that differ in nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ..errors import InputError, unknown
from ..recipe import Recipe, arguments, differences
from .settings import Request, compose, starting_recipe

LABELS_ONLY = "supervised"
EPASS = 3  # projectors, in "all"
SAME_FOR_ALL = ("net.", "data.", "plan.steps:")
DECIDED = {"seed": "--seeds", "method.name": "--methods", "projector.size": "--methods simmatch+3"}


class Contender(NamedTuple):
    """A way of training: a method and, where it has an embedding, its projectors."""

    method: str
    projectors: int | None

    @property
    def name(self) -> str:
        return self.method if self.projectors in (None, 1) else f"{self.method}+{self.projectors}"


def parse_methods(text: str) -> list[Contender]:
    """`fixmatch,simmatch+3` or `all`, labels only first and nothing twice."""
    from ..methods import METHODS
    from ..models import takes_projector

    found = [Contender(LABELS_ONLY, None)]
    for word in filter(None, map(str.strip, text.split(","))):
        name, plus, size = word.partition("+")
        if plus and not re.fullmatch("[1-9][0-9]*", size):
            raise InputError(f"'{word}' names no number of projectors: write {name}+3.")
        if name == "all" and not plus:
            plain = [Contender(other, 1 if takes_projector(cls) else None) for other, cls in METHODS.items()]
            found += [*plain, *(Contender(other.method, EPASS) for other in plain if other.projectors)]
        elif name not in METHODS:
            raise unknown("method", name, [*METHODS, "all"])
        else:
            found.append(Contender(name, int(size or 1) if plus or takes_projector(METHODS[name]) else None))
    return list(dict.fromkeys(found))


def recipes_for(request: Request, contenders: Sequence[Contender], seed: int) -> dict[Contender, Recipe]:
    """The recipe of every contender; refuses what cannot work or would not be a comparison."""
    from ..experiment import check_recipe

    fitting_settings = settings_by_method(request.settings, contenders)
    found: dict[Contender, Recipe] = {}
    for contender in contenders:
        own = replace(
            request,
            method=contender.method,
            projectors=contender.projectors,
            seed=seed,
            settings=fitting_settings[contender.method],
        )
        recipe = compose(own, starting_recipe(own))
        check_recipe(recipe)
        found[contender] = recipe
        first = found[contenders[0]]
        odd = [change for change in differences(recipe, first) if change.startswith(SAME_FOR_ALL)]
        if odd:
            raise InputError(
                f"The recipes of '{contenders[0].name}' and '{contender.name}' differ in {'; '.join(odd)}: make them "
                "equal with --net, --steps or --set."
            )
    return found


def settings_by_method(settings: Sequence[str], contenders: Sequence[Contender]) -> dict[str, tuple[str, ...]]:
    """The `--set` texts for each method: `method.*` and `projector.*` go only to those that have the key."""
    from ..methods import METHODS
    from ..models import takes_projector

    known = {name: {f"method.{key}" for key in arguments(METHODS[name])} for name, _ in contenders}
    found: dict[str, tuple[str, ...]] = dict.fromkeys(known, ())
    for text in settings:
        key = text.partition("=")[0].strip()
        if key in DECIDED:
            raise InputError(f"'{key}' is not one for all runs: it is decided by {DECIDED[key]}.")
        takers = list(known)
        if key.startswith("method."):
            takers = [name for name in known if key in known[name]]
        elif key.startswith("projector."):
            takers = [name for name in known if takes_projector(METHODS[name])]
        if not takers:
            choices = set().union(*known.values())
            problem = f"None of {', '.join(known)} has the setting '{key}': remove it."
            raise unknown("setting", key, choices) if choices else InputError(problem)
        found |= {name: (*found[name], text) for name in takers}
    return found
