"""What a run has seen, found again by its pixels among other images: these test and calibrate nothing."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import InputError
from ..recipe import Recipe, read_recipe
from ..runs import SPLIT, RunFolder
from .events import Caution, Event
from .flags import Reading
from .words import counted, some

if TYPE_CHECKING:
    from ..data import Dataset, ImageSource

Part = Literal["labeled", "test"]


def own_images(run: Path, reading: Reading | None, skip: bool = False) -> tuple[Recipe, Dataset]:
    """What a run was asked for, and the images that it began with; `skip`: without those that cannot be read now."""
    from ..data import open_dataset
    from ..engine.build import reading_settings

    recipe = read_recipe(str(run / "recipe.toml"))
    how = reading_settings(recipe) | ({"skip_unreadable": True} if skip else {})
    return recipe, open_dataset(recipe.data["name"], **how, progress=reading)


def left_out(dataset: Dataset) -> Iterator[Event]:
    """Which files of a data set are not used, because somebody asked for that."""
    names = [name for name, _ in dataset.skipped]
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
        seen = {digest for part in _parts_of(run, parts, reading, skip) for digest in digests(part)}
    except InputError as problem:
        yield Caution(f"Whether the run has seen the labels of '{data}' cannot be checked: {problem}")
        return 0
    return sum(digest in seen for digest in digests(images))


def _parts_of(run: Path, parts: tuple[Part, ...], reading: Reading | None, skip: bool) -> list[ImageSource]:
    from ..data import cut, find_recorded
    from ..engine.build import split_for
    from ..engine.run import split_record

    recipe, dataset = own_images(run, reading, skip)
    dataset, record = images_to_answer(recipe, dataset), split_record(RunFolder(run))
    if record:
        split = cut(dataset, find_recorded(record, run / SPLIT, dataset, needed=parts).positions)
    else:
        split = split_for(recipe, dataset)
    return [getattr(split, part) for part in parts]


def kind_of(model: Mapping[str, Any]) -> str:
    """What a model takes, in a word."""
    return "vector" if "numbers" in model else "image"
