"""Who is compared: from the methods that were typed to recipes that differ in nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import NamedTuple

from ..errors import InputError, unknown
from ..extensions import is_code, located, short, trust_typed
from ..recipe import Recipe, arguments, differences
from ..runs import load_run
from .request import Request, Shared, compose, starting_recipe

LABELS_ONLY = "supervised"
EPASS = 3  # projectors, in "all"
SAME_FOR_ALL = ("net.", "data.", "plan.steps:")
DECIDED = {
    "seed": "--seeds",
    "method.name": "--methods",
    "projector.size": "--projectors 1,3 or --methods simmatch+3",
    "projector.combine": "--strategies mean,concat",
}


class Contender(NamedTuple):
    """A way of training: a method and, where it has an embedding, its projectors and how several are combined."""

    method: str
    projectors: int | None
    strategy: str = "mean"

    @property
    def name(self) -> str:
        projectors = "" if self.projectors in (None, 1) else f"+{self.projectors}"
        return f"{short(self.method)}{projectors}{'' if self.strategy == 'mean' else f'-{self.strategy}'}"


def parse_contenders(methods: str, projectors: str | None = None, strategies: str | None = None) -> list[Contender]:
    """`fixmatch,simmatch+3` or `all`, labels only first and nothing twice; the other two are for the embeddings.

    Every method with an embedding, unless it says +3 itself, comes with each number of `projectors`, and with each of
    `strategies` where there are several projectors. One projector has nothing to combine.
    """
    sizes = parse_sizes(projectors)
    ways = parse_strategies(strategies)
    found = []
    for contender in parse_methods(methods, sizes):
        several = (contender.projectors or 1) > 1
        found += [contender._replace(strategy=way) for way in (ways if several else ["mean"])]
    if projectors is not None and all(contender.projectors is None for contender in found):
        raise InputError(f"--projectors is for methods with an embedding: use one of {', '.join(embedding_methods())}.")
    if strategies is not None and all((contender.projectors or 1) == 1 for contender in found):
        raise InputError("--strategies is for several projectors: add --projectors 1,3 or a method such as simmatch+3.")
    return list(dict.fromkeys(found))


def parse_methods(text: str, sizes: Sequence[int] = ()) -> list[Contender]:
    """The methods, each with its projectors; `sizes` are those of the methods that do not say it, else 1."""
    from ..engine.models import method_class, takes_projector
    from ..methods import METHODS

    def plain(name: str, default: Sequence[int]) -> list[Contender]:
        choices = (sizes or default) if takes_projector(method_class(name)) else (None,)
        return [Contender(name, size) for size in choices]

    found = [Contender(LABELS_ONLY, None)]
    for word in words_of(text):
        name, plus, size = word.partition("+")
        trust_typed(name)
        name = located(name)
        if plus and not re.fullmatch("[1-9][0-9]*", size):
            raise InputError(f"'{word}' names no number of projectors: write {name}+3.")
        if name == "all" and not plus:
            everyone = [contender for other in METHODS for contender in plain(other, (1, EPASS))]
            found += sorted(everyone, key=lambda contender: contender.projectors or 1)  # the plain methods first
        elif name not in METHODS and not is_code(name):
            raise unknown("method", name, [*METHODS, "all"])
        else:
            found += [Contender(name, int(size))] if plus else plain(name, (1,))
    found = list(dict.fromkeys(found))
    names = [contender.name for contender in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"Two of the methods are called '{name}', and so would be their folders: rename one.")
    return found


def parse_sizes(text: str | None) -> list[int]:
    """`1,3`: numbers of projectors."""
    words = words_of(text or "")
    odd = [word for word in words if not re.fullmatch("[1-9][0-9]*", word)]
    if odd or (text is not None and not words):
        raise InputError(f"'{odd[0] if odd else text}' is no number of projectors: write --projectors 1,3.")
    return [int(word) for word in words]


def parse_strategies(text: str | None) -> list[str]:
    """`mean,concat`: ways to combine projectors."""
    from ..engine.models import STRATEGIES

    words = words_of("mean" if text is None else text)
    if not words:
        raise InputError(f"--strategies names none: use some of {', '.join(STRATEGIES)}.")
    for word in words:
        if word not in STRATEGIES:
            raise unknown("strategy", word, STRATEGIES)
    return words


def words_of(text: str) -> list[str]:
    """What stands between commas."""
    return [word for word in map(str.strip, text.split(",")) if word]


def embedding_methods() -> list[str]:
    """The methods that take projectors."""
    from ..engine.models import takes_projector
    from ..methods import METHODS

    return [name for name, cls in METHODS.items() if takes_projector(cls)]


def recipes_for(asked: Shared, contenders: Sequence[Contender], seed: int) -> dict[Contender, Recipe]:
    """The recipe of every contender; refuses what cannot work or would not be a comparison."""
    from ..engine.build import check_recipe

    said = {field.name: getattr(asked, field.name) for field in fields(Shared)}
    fitting_settings = settings_by_method(asked.settings, contenders)
    found: dict[Contender, Recipe] = {}
    for contender in contenders:
        settings = (*fitting_settings[contender.method], *strategy_setting(contender))
        own = {"method": contender.method, "projectors": contender.projectors, "seed": seed, "settings": settings}
        request = Request(**said | own)
        recipe = without_unfit(compose(request, starting_recipe(request)), contender)
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


def without_unfit(recipe: Recipe, contender: Contender) -> Recipe:
    """The recipe without a wrapper that its method cannot have; refuses heads that were not pre-trained."""
    from ..engine.models import left_heads, method_class

    if recipe.start is not None and contender.projectors is not None:
        earlier = load_run(recipe.start["weights"])
        learned = earlier.recipe.get("projector", {}).get("size", 1)
        any_number = earlier.pretraining and not left_heads(earlier.path)
        if learned != contender.projectors and not any_number:
            raise InputError(
                f"'{contender.name}' has {contender.projectors} projectors and the pre-training {learned}: pre-train "
                f"with --projectors {contender.projectors}, or compare without this one."
            )
    views = method_class(contender.method).views.unlabeled
    return recipe if {"weak", "strong"} <= set(views) else replace(recipe, wrapper=None)


def refuse_decided(settings: Sequence[str], decided: Mapping[str, str]) -> None:
    """Refuse keys of which every run of many has a value of its own, `decided` by another flag."""
    for key in (text.partition("=")[0].strip() for text in settings):
        if key in decided:
            raise InputError(f"'{key}' is not one for all runs: it is decided by {decided[key]}.")


def strategy_setting(contender: Contender) -> list[str]:
    """What is not the way of the recipes has to be said."""
    return [] if contender.strategy == "mean" else [f"projector.combine={contender.strategy}"]


def settings_by_method(settings: Sequence[str], contenders: Sequence[Contender]) -> dict[str, tuple[str, ...]]:
    """The `--set` texts for each method: `method.*` and `projector.*` go only to those that have the key."""
    from ..engine.models import method_class, takes_projector

    classes = {contender.method: method_class(contender.method) for contender in contenders}
    known = {name: {f"method.{key}" for key in arguments(cls)} for name, cls in classes.items()}
    found: dict[str, tuple[str, ...]] = dict.fromkeys(known, ())
    refuse_decided(settings, DECIDED)
    for text in settings:
        key = text.partition("=")[0].strip()
        takers = list(known)
        if key.startswith("method."):
            takers = [name for name in known if key in known[name]]
        elif key.startswith("projector."):
            takers = [name for name in known if takes_projector(classes[name])]
        if not takers:
            choices = set().union(*known.values())
            problem = f"None of {', '.join(known)} has the setting '{key}': remove it."
            raise unknown("setting", key, choices) if choices else InputError(problem)
        found |= {name: (*found[name], text) for name in takers}
    return found
