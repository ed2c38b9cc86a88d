"""What there is to choose from: methods, networks, data sets, recipes."""

from __future__ import annotations

import inspect
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any

import typer

from ..errors import InputError, unknown
from ..recipe import arguments, builtin_recipes, describe, read_recipe, toml_value
from .screen import screen, show_facts, show_json, show_table

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]

OWN_DATA = {
    "a folder of classes": "FOLDER/<class>/*.jpg: every image has a label",
    "a folder with unlabeled images": "FOLDER/labeled/<class>/*.jpg, FOLDER/unlabeled/*.jpg and, for a test set, "
    "FOLDER/test/<class>/*.jpg",
    "an archive": "a .zip, .tar or .tar.gz file of such a folder, which is not unpacked",
    "a table": "a .csv or .parquet file with the columns path, label (empty = unlabeled) and, for a test set, split",
    "an .npz file": "train_images, train_labels (-1 = unlabeled) and, for a test set, test_images and test_labels, as "
    "in MedMNIST",
}


def methods(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show the settings of this method.")] = None,
    json: Json = False,
) -> None:
    """List the methods, or the settings of one."""
    from ..methods import METHODS

    if name is not None and name not in METHODS:
        raise unknown("method", name, METHODS)
    found = {key: method_facts(key) for key in METHODS}
    if json:
        show_json(found if name is None else {name: found[name]})
    elif name is None:
        rows = [
            [key, "yes" if facts["projector"] else "no", views(facts), facts["title"]] for key, facts in found.items()
        ]
        show_table(screen(), ("method", "EPASS", "views", "title"), rows)
        screen().print("\nSettings of one: epass methods simmatch")
    else:
        show_method(name, found[name])


def method_facts(name: str) -> dict[str, Any]:
    """What a method's file says about it."""
    from ..methods import METHODS
    from ..models import takes_projector

    cls = METHODS[name]
    alone = sum(other.__module__ == cls.__module__ for other in METHODS.values()) == 1
    return {
        # a file of several methods, such as the two bounds, tells them apart in the docstrings of the classes
        "title": first_line(inspect.getdoc(inspect.getmodule(cls)) if alone else cls.__doc__),
        "summary": first_line(cls.__doc__),
        "views": {"labeled": list(cls.views.labeled), "unlabeled": list(cls.views.unlabeled)},
        "projector": takes_projector(cls),
        "settings": {
            key: {"type": describe(parameter.annotation), "default": parameter.default}
            for key, parameter in arguments(cls).items()
        },
    }


def show_method(name: str, facts: dict[str, Any]) -> None:
    """One method with its settings."""
    console = screen()
    epass = "yes: --projectors 3" if facts["projector"] else "no: it has no embedding"
    about = {"title": facts["title"], "summary": facts["summary"], "views": views(facts), "EPASS": epass}
    show_facts(console, name, about)
    rows = [
        [f"method.{key}", "not set" if setting["default"] is None else toml_value(setting["default"]), setting["type"]]
        for key, setting in facts["settings"].items()
    ]
    if rows:
        show_table(console, ("setting", "default", "takes"), rows)
        console.print(f"\nChange one: epass train digits --method {name} --set {rows[0][0]}={rows[0][1]}", markup=False)
    else:
        console.print("It has no settings of its own.")


def networks(json: Json = False) -> None:
    """List the networks."""
    import torch

    from ..networks import NETWORKS, count_parameters, make_network

    found = {}
    for name in NETWORKS:
        with torch.device("meta"):  # shapes without memory or initialization
            net = make_network(name, in_channels=3, num_classes=10)
        found[name] = {"parameters": count_parameters(net), "features": net.num_features}
    if json:
        show_json(found)
        return
    rows = [[name, f"{facts['parameters']:,}", str(facts["features"])] for name, facts in found.items()]
    show_table(screen(), ("network", "parameters (color, 10 classes)", "features"), rows)


def datasets(
    path: Annotated[
        str | None, typer.Argument(metavar="PATH", help="Say which original files lie there and what is missing.")
    ] = None,
    json: Json = False,
) -> None:
    """List the built-in data sets, the original files that can be read, and the shapes your own data may have."""
    from ..data import DATASETS, FORMATS

    if path is not None:
        show_format(path, json)
        return
    if json:
        known = {name: {"summary": entry.summary, "needs": entry.needs} for name, entry in DATASETS.items()}
        files = [{"name": entry.name, "layout": entry.layout.text} for entry in FORMATS]
        show_json({"built_in": known, "original_files": files, "own": OWN_DATA})
        return
    console = screen()
    rows = [[name, entry.summary, entry.needs] for name, entry in DATASETS.items()]
    show_table(console, ("data set", "images", "needs"), rows)
    console.print()
    layouts: dict[str, list[str]] = {}
    for entry in FORMATS:
        layouts.setdefault(entry.layout.text, []).append(entry.name)
    rows = [[fill(", ".join(names), 44, break_on_hyphens=False), text] for text, names in layouts.items()]
    show_table(console, ("original files", "layout"), rows)
    console.print()
    show_table(console, ("your own data", "layout"), [list(row) for row in OWN_DATA.items()])


def show_format(name: str, json: bool) -> None:
    """Which data set the files at a path look like, and which of them are missing."""
    from ..data import closest, recognize

    path = Path(name).expanduser()
    if not path.exists():
        raise InputError(f"There is no file or folder '{path}': give the path of the original files of a data set.")
    whole = recognize(path)
    entry, missing = (whole, []) if whole is not None else closest(path) or (None, [])
    if json:
        show_json({"format": entry and entry.name, "missing": missing})
        return
    facts = {"looks like": entry.name if entry else "no data set whose original files are known"}
    if entry is not None:
        facts |= {"layout": entry.layout.text, "missing": ", ".join(missing) or "nothing"}
    show_facts(screen(), str(path), facts)


def recipes(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Print this recipe as TOML.")] = None,
    json: Json = False,
) -> None:
    """List the recipes, or print one."""
    known = builtin_recipes()
    if name is not None and name not in known:
        raise unknown("recipe", name, known)
    found = {key: read_recipe(key) for key in (known if name is None else [name])}
    if json:
        show_json({key: {"source": recipe.source, **recipe.flat()} for key, recipe in found.items()})
    elif name is not None:
        print(known[name].read_text(encoding="utf-8"), end="")
    else:
        rows = [
            [key, str(recipe.method.get("name")), str(recipe.data.get("name", "your own")), recipe.source]
            for key, recipe in found.items()
        ]
        show_table(screen(), ("recipe", "method", "data", "source"), rows)
        screen().print("\nPrint one: epass recipes NAME", markup=False)


def views(facts: dict[str, Any]) -> str:
    """The views of a method in one phrase."""
    return "; ".join(f"{side}: {', '.join(names)}" for side, names in facts["views"].items() if names)


def first_line(text: str | None) -> str:
    """The first line of a docstring, without its full stop."""
    return (text or "").strip().partition("\n")[0].removesuffix(".")
