"""Runs that go on from a finished one: with its recipe and its weights, and tested on what it was tested on."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..files import from_home
from ..recipe import Recipe, read_recipe
from ..runs import SPLIT, RunFolder, load_run
from .events import Caution, Event, Notice
from .seen import check_place
from .words import percent, some

if TYPE_CHECKING:
    from ..data import Dataset, Split
    from .request import Request


def recipe_to_continue(folder: str | Path, request: Request) -> Recipe:
    """The recipe of a finished run, which starts from what that run has learned."""
    for flag, value in (("--recipe", request.recipe), ("--from", request.start), ("--weights", request.weights)):
        if value is not None:
            raise InputError(f"--continue goes on with the recipe and the weights of a run: leave out {flag}.")
    earlier = load_run(folder)
    where, typed = str(from_home(folder).absolute()), shlex.quote(str(folder))
    if earlier.results is None:
        raise InputError(f"'{folder}' is not finished: say epass train --resume --out {typed}.")
    recipe = read_recipe(str(earlier.path / "recipe.toml"))
    if request.data is None:
        check_place(folder, recipe, f", or say epass train PLACE --continue {typed}")
    if earlier.pretraining or recipe.wrapper is not None or "net" not in (earlier.model or {}):
        raise InputError(
            f"'{folder}' cannot be continued, as it is a pre-training, a baseline or a run with a wrapper: "
            "start a new run."
        )
    return replace(recipe, start={"weights": where, "continued": True})


def continues(recipe: Recipe) -> Path | None:
    """The finished run that a recipe goes on from, if it does; a pre-training or features to be tuned are none."""
    start = recipe.start or {}
    return Path(start["weights"]) if start.get("continued") else None


def introduce(earlier: Path, recipe: Recipe) -> Iterator[Event]:
    """What a run goes on from."""
    from ..training.checkpoint import checkpoints

    run = load_run(earlier)
    assert run.results is not None
    error = f"{percent(run.results['last']['error'], 1)} test error " if "last" in run.results else ""
    yield Notice(f"Starts from '{earlier}', {error}after {run.results['steps']:,} steps. It is kept.")
    if (run.model or {}).get("calibration") is not None:
        yield Notice("Its calibration belongs to its model alone: 'epass calibrate' the new run, too.")
    if recipe.projector is not None and not checkpoints(RunFolder(earlier).checkpoints):
        yield Notice("Its checkpoints are gone, and the projection heads with them: these start fresh.")


def carried_over(recipe: Recipe, earlier: Path, dataset: Dataset) -> Generator[Event, None, Split]:
    """The split of a run that goes on from another one; says what is different about the data."""
    from ..data import carry_over, cut
    from ..engine.build import split_for
    from ..engine.run import split_record

    record = split_record(RunFolder(earlier))
    if not record:
        raise InputError(f"'{earlier}' has no split.json, so what it was tested on is not known: start a new run.")
    found = carry_over(record, earlier / SPLIT, dataset, split_for(recipe, dataset).positions)
    same = "" if found.test_change or not len(found.positions.test) else " The test images stay the same."
    yield Notice(f"Since then: {found.change or 'the same images and labels'}.{same}")
    if found.test_change:
        yield Caution(
            f"The test images are not those of '{earlier}' ({found.test_change}): the test errors of the two runs "
            "cannot be compared."
        )
    if found.new_classes:
        yield Notice(f"New classes, which start from nothing: {some(found.new_classes)}.")
    return cut(dataset, found.positions)
