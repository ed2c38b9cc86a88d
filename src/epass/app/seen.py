"""What a run has seen, found again by its pixels among other images: these test and calibrate nothing."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import InputError
from ..extensions import is_code
from ..files import from_home
from ..recipe import Recipe, read_recipe
from ..runs import SPLIT, RunFolder
from .events import Caution, Event
from .flags import Reading
from .words import counted, some

if TYPE_CHECKING:
    from ..data import Dataset, ImageSource

Part = Literal["labeled", "test"]


def own_images(
    run: Path, reading: Reading | None, skip: bool = False, *, place: str | None = None, instead: str = ""
) -> tuple[Recipe, Dataset]:
    """What a run was asked for, and the images that it began with.

    Args:
        run: The folder of the run.
        reading: Told how many images are read.
        skip: Whether to leave out those that cannot be read now.
        place: Where they are, if they were moved.
        instead: How else the command goes on where they are gone.
    """
    from ..data import open_dataset
    from ..engine.build import reading_settings

    recipe = read_recipe(str(run / "recipe.toml"))
    if place is None:
        check_place(run, recipe, instead)
    how = reading_settings(recipe) | ({"skip_unreadable": True} if skip else {})
    return recipe, open_dataset(place or recipe.data["name"], **how, progress=reading)


def check_place(run: str | Path, recipe: Recipe, instead: str = "") -> None:
    """Refuse to look for the data of a run where they were, if there is nothing any more."""
    name = str(recipe.data.get("name"))
    path = from_home(name)
    if path.is_absolute() and not path.exists() and not is_code(name):
        back = f"put them back{',' if instead else ' or'} put a link to them there{instead}"
        raise InputError(f"'{run}' remembers its data at '{name}', where there is nothing now: {back}.")


def left_out(dataset: Dataset, asked: bool) -> Iterator[Event]:
    """Which files of a data set are not used, if this command was `asked` to leave some out."""
    names = [name for name, _ in dataset.skipped] if asked else []
    if names:
        files = f"{counted(len(names), 'file')} of '{dataset.name}'"
        yield Caution(f"{files} cannot be used and {'is' if len(names) == 1 else 'are'} left out: {some(names)}.")


def images_to_answer(recipe: Recipe, dataset: Dataset) -> Dataset:
    """Images of a run as its model takes them."""
    from ..features import in_color

    return in_color(dataset) if recipe.features is not None or "behind" in recipe.net else dataset


def seen_again(
    data: str, images: ImageSource, run: Path, parts: tuple[Part, ...], reading: Reading | None, skip: bool
) -> Generator[Event, None, int]:
    """How many of the `images` of `data` are among those parts of a run; says so where nobody can tell."""
    from ..checking.duplicates import digests

    try:
        known = _parts_of(run, parts, *own_images(run, reading, skip))
    except InputError as problem:
        try:
            known = _parts_of(run, parts, *own_images(run, reading, skip, place=data), unchanged=True)
        except InputError:  # so these are not its own, which were moved
            yield Caution(f"Whether the run has seen the labels of '{data}' cannot be checked: {problem}")
            return 0
    seen = {digest for part in known for digest in digests(part)}
    return sum(digest in seen for digest in digests(images))


def _parts_of(
    run: Path, parts: tuple[Part, ...], recipe: Recipe, dataset: Dataset, *, unchanged: bool = False
) -> list[ImageSource]:
    """These parts of a run; `unchanged`: refuse data with any other image or label than it began with."""
    from ..data import cut, find_recorded
    from ..engine.build import split_for
    from ..engine.run import NOT_RECORDED, split_record

    dataset, record = images_to_answer(recipe, dataset), split_record(RunFolder(run))
    change = NOT_RECORDED
    if record:
        _, positions, change = find_recorded(record, run / SPLIT, dataset, needed=parts)
        split = cut(dataset, positions)
    else:
        split = split_for(recipe, dataset)
    if unchanged and change:
        raise InputError(change)
    return [getattr(split, part) for part in parts]


def kind_of(model: Mapping[str, Any]) -> str:
    """What a model takes, in a word."""
    return "vector" if "numbers" in model else "image"
