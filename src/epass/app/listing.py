"""What there is to choose from: methods, networks, data sets, recipes."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any

from ..errors import InputError, unknown
from ..files import from_home
from ..recipe import arguments, describe, explained_recipe, read_recipe, toml_value
from ..recipes import builtin_recipes, choose_recipes, family_rows
from .events import Event, Notice, Result, Section, Table, work
from .flags import Flag, Images, method_names

OWN_DATA = {
    "a folder of classes": "FOLDER/<class>/*.jpg: every image has a label",
    "a folder with unlabeled images": "FOLDER/labeled/<class>/*.jpg, FOLDER/unlabeled/*.jpg and, for a test set, "
    "FOLDER/test/<class>/*.jpg",
    "an archive": "a .zip, .tar or .tar.gz file of such a folder, which is not unpacked",
    "a folder with a table": "FOLDER/*.jpg and FOLDER/labels.csv with the columns path and label (see epass label)",
    "a table": "a .csv or .parquet file with the columns path, label (empty = unlabeled) and, for a test set, split",
    "an .npz file": "train_images, train_labels (-1 = unlabeled) and, for a test set, test_images and test_labels, as "
    "in MedMNIST",
    "vectors": "an .npz file with train_vectors instead of train_images, an .npy file beside labels.npy, or a table "
    "with a column vector or columns of numbers instead of paths",
}


@work
def methods(
    name: Annotated[str | None, Flag("Show the settings of this one.", metavar="NAME", names=method_names)] = None,
) -> Iterator[Event]:
    """List the methods, what goes around or before them, or the settings of one.

    labeled, unlabeled: the views of these images that a step needs.
    memory per image: what training keeps of each one, with default settings.
    EPASS: it has an embedding, and so a place for several projectors.
    """
    from ..methods import METHODS, PRETRAINING, WRAPPERS

    tables: dict[str, Mapping[str, type[Any]]] = {"method": METHODS, "wrapper": WRAPPERS, "pretraining": PRETRAINING}
    kinds = {key: kind for kind, table in tables.items() for key in table}
    if name is not None:
        if name not in kinds:
            raise unknown("method", name, kinds)
        kinds = {name: kinds[name]}
    found = {key: method_facts(tables[kind][key], kind) for key, kind in kinds.items()}
    found = dict(sorted(found.items(), key=lambda item: year(item[1])))  # the bounds, which have none, come first
    yield from tell_methods(found) if name is None else tell_method(name, found[name])
    yield Result(values=found)


def method_facts(cls: type[Any], kind: str) -> dict[str, Any]:
    """What a method's file says about it, and what can be seen when it is built; None is up to the wrapped method."""
    from ..engine.models import memory_per_image, takes_projector

    paper = cls.paper
    wrapper = kind == "wrapper"
    views = None if wrapper else {"labeled": list(cls.views.labeled), "unlabeled": list(cls.views.unlabeled)}
    return {
        "kind": kind,
        "title": first_line(inspect.getdoc(inspect.getmodule(cls)) if paper else cls.__doc__),
        "paper": paper and paper._asdict(),
        "summary": first_line(cls.__doc__),
        "views": views,
        "projector": None if wrapper else takes_projector(cls),
        "memory": None if wrapper else memory_per_image(cls),  # bytes per image
        "settings": {
            key: {"type": describe(parameter.annotation), "default": parameter.default}
            for key, parameter in arguments(cls).items()
        },
    }


def tell_methods(found: dict[str, dict[str, Any]]) -> Iterator[Event]:
    """All methods, then what goes around and before them."""
    rows: dict[str, list[list[str]]] = {"method": [], "wrapper": [], "pretraining": []}
    for key, facts in found.items():
        row = [key, paper_name(facts), str(year(facts) or "")]
        if facts["kind"] == "method":
            needs = [count_views(names) for names in facts["views"].values()]
            row += [*needs, memory(facts), "yes" if facts["projector"] else "no"]
        else:
            row.append(facts["summary"])
        rows[facts["kind"]].append(row)
    heads = ("method", "paper", "year", "labeled", "unlabeled", "memory per image", "EPASS")
    yield Table(heads, rows["method"])
    for kind, head in (("wrapper", "around a method"), ("pretraining", "before a method")):
        yield Table((head, "paper", "year", "what it does"), rows[kind])
    yield Notice("Settings of one: epass methods simmatch")


def tell_method(name: str, facts: dict[str, Any]) -> Iterator[Event]:
    """One method with its settings."""
    kind, table = facts["kind"], "wrapper" if facts["kind"] == "wrapper" else "method"
    about = {"title": facts["title"], "summary": facts["summary"]}
    if kind != "wrapper":
        about["views"] = "; ".join(f"{side}: {', '.join(names)}" for side, names in facts["views"].items() if names)
        about["memory per image"] = memory(facts) or "none"
        about["EPASS"] = "yes: --projectors 3" if facts["projector"] else "no: it has no embedding"
    yield Section(name, about)
    rows = [
        [
            f"{table}.{key}",
            "not set" if setting["default"] is None else toml_value(setting["default"]),
            setting["type"],
        ]
        for key, setting in facts["settings"].items()
    ]
    if rows:
        yield Table(("setting", "default", "takes"), rows)
    else:
        yield Notice("It has no settings of its own.")
    command = {"wrapper": f"train digits --wrap {name}", "pretraining": f"pretrain digits --method {name}"}
    if kind != "method":
        yield Notice(f"Use it: epass {command[kind]}")
    if changed := next((row for row in rows if row[1] != "not set"), None):
        asked = command.get(kind, f"train digits --method {name}")
        yield Notice(f"Change one: epass {asked} --set {changed[0]}={changed[1]}")


@work
def networks() -> Iterator[Event]:
    """List the networks, and say where pre-trained weights come from."""
    import torch

    from ..networks import NETWORKS, count_parameters, make_network

    found = {}
    for name, backbone in NETWORKS.items():
        takes_vectors = getattr(backbone, "takes_vectors", False)
        inputs = arguments(backbone)["in_channels"].default if takes_vectors else 3
        with torch.device("meta"):  # shapes without memory or initialization
            net = make_network(name, in_channels=inputs, num_classes=10)
        found[name] = {"parameters": count_parameters(net), "features": net.num_features}
    rows = [[name, f"{facts['parameters']:,}", str(facts["features"])] for name, facts in found.items()]
    yield Table(("network", "parameters (color, 10 classes)", "features"), rows)
    yield Notice("mlp takes vectors, here the features of an efficientnet-lite; the others take images.")
    yield Notice(
        "Pre-trained weights: epass train DATA --net resnet-50 --weights FILE, a .safetensors, .pth or .pt file of "
        "timm, torchvision, MAE or MoCo, or of a run"
    )
    yield Notice(
        "Networks of others: --net timm:NAME or --net hf:NAME (pip install timm or transformers), with their weights: "
        "--weights published"
    )
    yield Result(values=found)


@work
def datasets(
    path: Annotated[
        Images | None, Flag("Say which original files lie there and what is missing.", metavar="PATH")
    ] = None,
) -> Iterator[Event]:
    """List the built-in data sets, the original files that can be read, and the shapes your own data may have."""
    from ..data import DATASETS, FORMATS

    if path is not None:
        yield from tell_format(from_home(path))
        return
    rows = [[name, entry.summary, entry.needs] for name, entry in DATASETS.items()]
    yield Table(("data set", "images", "needs"), rows)
    layouts: dict[str, list[str]] = {}
    for entry in FORMATS:
        layouts.setdefault(entry.layout.text, []).append(entry.name)
    rows = [[fill(", ".join(names), 44, break_on_hyphens=False), text] for text, names in layouts.items()]
    yield Table(("original files", "layout"), rows, several_lines=True)
    yield Table(("your own data", "layout"), list(OWN_DATA.items()))
    yield Notice("More images than memory: epass train DATA --stream")
    known = {name: {"summary": entry.summary, "needs": entry.needs} for name, entry in DATASETS.items()}
    files = [{"name": entry.name, "layout": entry.layout.text} for entry in FORMATS]
    yield Result(values={"built_in": known, "original_files": files, "own": OWN_DATA})


def tell_format(path: Path) -> Iterator[Event]:
    """Which data set the files at a path look like, and which of them are missing."""
    from ..data import closest, recognize

    if not path.exists():
        raise InputError(f"There is no file or folder '{path}': give the path of the original files of a data set.")
    whole = recognize(path)
    entry, missing = (whole, []) if whole is not None else closest(path) or (None, [])
    facts = {"looks like": entry.name if entry else "no data set whose original files are known"}
    if entry is not None:
        facts |= {"layout": entry.layout.text, "missing": ", ".join(missing) or "nothing"}
    yield Result(str(path), facts, values={"format": entry and entry.name, "missing": missing})


@work
def recipes(
    name: Annotated[
        str | None,
        Flag("Print this recipe as TOML, or list those of this family.", metavar="NAME", names=builtin_recipes),
    ] = None,
) -> Iterator[Event]:
    """List the families of recipes, the recipes of one, or print a recipe. Recipes are called FAMILY-METHOD.

    A recipe is printed as a file of its own; a comment behind each value names the file of the package it is from.
    """
    chosen = choose_recipes(name)
    if name is not None and name in chosen:
        yield from map(Notice, explained_recipe(name).splitlines())
    elif name is not None:
        yield Table(("recipe", "source"), [[key, read_recipe(key).source] for key in chosen])
        yield Notice("Print one: epass recipes NAME")
    else:
        yield Table(("family", "data", "network", "methods"), family_rows())
        yield Notice("List a family: epass recipes FAMILY")
        yield Notice("Print one: epass recipes FAMILY-METHOD, digits-simmatch for one")
    found = {key: read_recipe(key) for key in chosen}
    yield Result(values={key: {"source": recipe.source, **recipe.flat()} for key, recipe in found.items()})


def paper_name(facts: dict[str, Any]) -> str:
    """What the paper calls the method; a bound is called by what stands before the colon."""
    return str(facts["paper"]["name"]) if facts["paper"] else facts["title"].partition(":")[0]


def year(facts: dict[str, Any]) -> int:
    """Of the paper; 0 without one."""
    return facts["paper"]["year"] if facts["paper"] else 0


def count_views(names: Sequence[str]) -> str:
    """`weak, 2 strong` of weak, strong and strong."""
    return ", ".join(name if times == 1 else f"{times} {name}" for name, times in Counter(names).items())


def memory(facts: dict[str, Any]) -> str:
    """What a method keeps of every image, in one phrase."""
    return ", ".join(f"{size:,} bytes, {side}" for side, size in facts["memory"].items() if size)


def first_line(text: str | None) -> str:
    """The first line of a docstring, without its full stop."""
    return (text or "").strip().partition("\n")[0].removesuffix(".")
