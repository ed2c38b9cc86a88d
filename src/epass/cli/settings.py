"""From what was typed to a recipe."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import InputError, unknown
from ..recipe import Recipe, builtin_recipes, parse_setting, read_recipe

DEFAULT_METHOD = "simmatch"


@dataclass(frozen=True, kw_only=True)
class Request:
    """The flags that decide what is trained; None leaves the choice to the recipe."""

    data: str | None = None
    recipe: str | None = None
    method: str | None = None
    projectors: int | None = None
    net: str | None = None
    labels: int | None = None
    image_size: int | None = None
    steps: int | None = None
    seed: int | None = None
    settings: tuple[str, ...] = ()


def starting_recipe(request: Request) -> Recipe:
    """The recipe that was asked for, or the one that comes with the package for this data and method."""
    from ..data import DATASETS
    from ..methods import METHODS

    if request.recipe is not None:
        return read_recipe(request.recipe)
    if request.data is None:
        raise no_data()
    method = request.method or DEFAULT_METHOD
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    own = f"{request.data}-{method}"
    return read_recipe(own if request.data in DATASETS and own in builtin_recipes() else f"folder-{method}")


def compose(request: Request, recipe: Recipe) -> Recipe:
    """`recipe` with the flags on top of it, and `--set` on top of these."""
    from ..experiment import takes_projector
    from ..methods import METHODS

    if request.method not in (None, recipe.method.get("name")):
        if request.method not in METHODS:
            raise unknown("method", str(request.method), METHODS)
        # the settings of one method mean nothing to another
        projector = recipe.projector if takes_projector(METHODS[request.method]) else None
        recipe = replace(recipe, method={"name": request.method}, projector=projector)
    if request.net not in (None, recipe.net.get("name")):
        recipe = replace(recipe, net={"name": request.net})
    flags = {
        "data.name": locate(request.data),
        "data.labels": request.labels,
        "data.image_size": request.image_size,
        "projector.size": request.projectors,
        "plan.steps": request.steps,
        "seed": request.seed,
    }
    recipe = recipe.with_settings({name: value for name, value in flags.items() if value is not None})
    recipe = recipe.with_settings(dict(map(parse_setting, request.settings)))
    if isinstance(split_file := recipe.data.get("split_file"), str):
        recipe = recipe.with_settings({"data.split_file": locate(split_file)})
    if type(recipe.seed) is not int:
        raise InputError(f"seed is a whole number, not '{recipe.seed}'.")
    if "name" not in recipe.data:
        raise no_data()
    return recipe


def no_data() -> InputError:
    """The error for a command line that names no images."""
    from ..data import DATASETS

    names = ", ".join(sorted(DATASETS))
    return InputError(f"Say which images: a built-in data set ({names}), a folder of images or an .npz file.")


def locate(data: str | None) -> str | None:
    """A path becomes absolute, so that the run can be resumed and evaluated from any folder."""
    from ..data import DATASETS

    if data is None or data in DATASETS or not Path(data).expanduser().exists():
        return data  # what does not exist is refused later, in the words it was typed
    return str(Path(data).expanduser().absolute())


def default_folder(recipe: Recipe) -> Path:
    """Where a run goes when nobody says."""
    data = re.sub(r"[^\w.-]+", "-", Path(str(recipe.data.get("name", ""))).stem) or "data"
    epass = ["epass"] if (recipe.projector or {}).get("size", 1) != 1 else []
    return Path("runs") / "-".join([data, str(recipe.method.get("name")), *epass, str(recipe.seed)])


def describe_recipe(recipe: Recipe) -> str:
    """The method of a recipe and its projectors, in words."""
    return describe_method(str(recipe.method["name"]), (recipe.projector or {}).get("size"))


def describe_method(name: str, projectors: int | None) -> str:
    """A method and its projectors, in words."""
    return name if projectors in (None, 1) else f"{name} + EPASS ({projectors} projectors)"


@contextmanager
def fitting(batch: int, setting: str, flag: str) -> Iterator[None]:
    """Say which setting to lower, and to what, when a labeled batch of this size does not fit into the device."""
    try:
        yield
    except RuntimeError as problem:
        if type(problem).__name__ != "OutOfMemoryError":  # by name: torch is not imported before it is needed
            raise
        fewer = max(1, batch // 2)
        raise InputError(
            f"The batch does not fit into the memory of the device: lower {setting} from {batch} to {fewer} "
            f"({flag}{fewer})."
        ) from None


def parse_budget(text: str) -> float:
    """`90s`, `10m` or `1.5h` in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip().lower())
    seconds = float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]] if found else 0.0
    if not seconds:
        raise InputError(f"'{text}' is not a length of time: use --budget 90s, 10m or 1.5h.")
    return seconds
