"""The recipes that come with the package: a file per family holds what its recipes share and a table per method.

A family has the methods that it names, and may build on another one, its `base`. What is said of a method wins over
what is said of all, and the family over its base. Their tables are merged key by key, but [data] and a method's own
settings are taken whole from the nearest file that has them: half of another protocol would be neither.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import InputError, nearest, unknown
from ..untrusted import parse_toml

FOLDER = Path(__file__).parent
TAKEN_WHOLE = ("data", "method")


@cache
def read_family(family: str) -> dict[str, Any]:
    """The content of its file."""
    return parse_toml((FOLDER / f"{family}.toml").read_text(encoding="utf-8"))


@cache
def builtin_recipes() -> tuple[str, ...]:
    """The names of the recipes that come with the package: FAMILY-METHOD."""
    families = [path.stem for path in FOLDER.glob("*.toml")]
    return tuple(sorted(f"{family}-{method}" for family in families for method in read_family(family)["methods"]))


def recipe_families() -> dict[str, list[str]]:
    """The names of the built-in recipes by what stands before the method: one protocol each, `cifar10` for one."""
    families: dict[str, list[str]] = {}
    for name in builtin_recipes():
        families.setdefault(name.partition("-")[0], []).append(name)
    return families


def choose_recipes(name: str | None) -> list[str]:
    """The built-in recipes that a name stands for: itself, those of a family or, without a name, all."""
    known, families = builtin_recipes(), recipe_families()
    if name is not None and name not in (*known, *families):
        raise unknown_recipe(name, *families)
    return list(known) if name is None else families.get(name, [name])


def unknown_recipe(name: str, *others: str) -> InputError:
    """The error for a name that is none of the built-in recipes or `others`: the near miss or, if none, the families.

    The recipes are too many to list them all.
    """
    choices = [*builtin_recipes(), *others]
    if nearest(name, choices):
        return unknown("recipe", name, choices)
    return InputError(
        f"Unknown recipe '{name}': it is called FAMILY-METHOD, digits-simmatch for one, with one of the families "
        f"{', '.join(recipe_families())}."
    )


def compose(name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The content of a built-in recipe as a file would hold it, and where each value stands, by its dotted name.

    Keys stand in the order in which they are first named, those of the base before those of the family, and those of
    all methods before those of one.
    """
    family, _, method = name.partition("-")
    chain = [family]  # the base first
    while base := read_family(chain[0]).get("base"):
        chain.insert(0, base)
    of_all = [(f"{file}.toml", read_family(file)) for file in chain]
    of_one = [(f"{file}.toml [methods.{method}]", read_family(file)["methods"].get(method, {})) for file in chain]
    found: dict[str, Any] = {"method": {"name": method}}
    origins = {"method.name": of_one[-1][0]}
    for place, content in [layer for pair in zip(of_all, of_one, strict=True) for layer in pair]:
        for key, value in content.items():
            if not isinstance(value, dict):  # the source: a file that says one means it for all of its methods
                found[key], origins[key] = value, place
    found.pop("base", None)
    tables = [key for _, content in of_all + of_one for key, value in content.items() if isinstance(value, dict)]
    for table in dict.fromkeys(tables):
        for level in (of_all, of_one):
            layers = [(place, content[table]) for place, content in level if table in content and table != "methods"]
            for place, settings in layers[-1:] if table in TAKEN_WHOLE else layers:
                found.setdefault(table, {}).update(settings)
                origins |= {f"{table}.{key}": place for key in settings}
    return found, origins


def family_rows() -> list[list[str]]:
    """Of each family: its name, data, network and methods."""
    families = recipe_families()
    methods = {family: [name.partition("-")[2] for name in names] for family, names in families.items()}
    every = set().union(*methods.values())
    rows = []
    for family, names in families.items():
        found = [compose(name)[0] for name in names]
        data = found[0]["data"].get("name", "your own")
        network = Counter(recipe["net"]["name"] for recipe in found).most_common(1)[0][0]  # some methods have another
        listed = "all of epass methods" if set(methods[family]) == every else ", ".join(methods[family])
        rows.append([family, data, network, listed])
    return rows
