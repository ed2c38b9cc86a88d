"""Many runs of one command: which folders they may have, and what happens while they are trained."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..files import check_folder
from ..recipe import Recipe
from ..runs import RunFolder, load_run
from .events import Caution, Event, Notice, Progress
from .flags import Stop
from .words import duration, percent
from .workers import How, Update, train_runs

if TYPE_CHECKING:
    from ..data import Dataset


def check_folders(out: Path, jobs: Mapping[Path, Recipe]) -> None:
    """Refuse folders that hold something else, before anything is trained."""
    from ..engine.run import check_same

    if out.exists() and not out.is_dir():
        raise InputError(f"'{out}' is a file; the runs need a folder: choose another one with --out.")
    check_folder(out)
    for folder, recipe in jobs.items():
        if RunFolder(folder).exists():
            load_run(folder)  # says which file is damaged
            with RunFolder(folder).hold():  # says which process is in it
                pass
            try:
                check_same(recipe, RunFolder(folder))
            except InputError as problem:
                raise InputError(f"{str(problem).removesuffix('.')}: choose another folder with --out.") from None
        elif folder.exists():
            RunFolder(folder).create(force=False)  # says why this folder cannot be used


def places_for(device: str) -> list[str]:
    """Every device that a name stands for: all visible GPUs where none in particular was chosen."""
    from ..machine.device import all_devices, choose_device

    return [str(place) for place in all_devices(choose_device(device))]


def train_all(
    jobs: Mapping[Path, Recipe],
    dataset: Dataset,
    places: Sequence[str],
    how: How,
    stop: Stop,
    after_each: Callable[[Mapping[Path, str]], object],
) -> Generator[Event, None, dict[Path, str]]:
    """Train what is not finished, and let `after_each` keep tables up to date; returns why runs failed."""
    failed: dict[Path, str] = {}
    kept = [folder for folder in jobs if RunFolder(folder).exists() and load_run(folder).results is not None]
    left = {folder: recipe for folder, recipe in jobs.items() if folder not in kept}
    yield from beginnings(jobs, kept)
    for folder in kept:
        yield Notice(f"{describe_run(folder)} (was there)", run=folder.name)
    if kept:
        after_each(failed)
    with closing(train_runs(left, dataset, places, how, stop)) as updates:
        for update in updates:
            if update.problem is not None:
                failed[update.folder] = update.problem
            yield from tell(update, jobs[update.folder], several=len(places) > 1)
            if update.ended:
                after_each(failed)
    return failed


def beginnings(jobs: Mapping[Path, Recipe], kept: Sequence[Path] = ()) -> Generator[Event]:
    """How far every run is before anything happens: whoever shows a bar then knows all steps."""
    for folder, recipe in jobs.items():
        steps = recipe.plan["steps"]
        yield Progress(steps if folder in kept else 0, steps, run=folder.name)


def tell(update: Update, recipe: Recipe, *, several: bool) -> Generator[Event]:
    """What was heard of a run, as events; of `several` places each is named."""
    name, steps, place = update.folder.name, recipe.plan["steps"], update.place if several else ""
    if update.warning is not None:
        yield Caution(f"{name}: {update.warning}")
        return
    yield Progress(steps if update.ended else update.step, steps, run=name, place=place)
    if update.problem is not None:
        yield Caution(f"{name} failed: {update.problem}", "Error")
    elif update.ended:
        yield Notice(f"{describe_run(update.folder)}{f' on {place}' if place else ''}", run=name)


def describe_run(folder: Path) -> str:
    """One finished run in one line."""
    from ..report import group_runs

    finished = load_run(folder)
    assert finished.results is not None
    (group,) = group_runs([finished])
    results = finished.results
    return (
        f"{group.label}, seed {group.seeds[0]}: {percent(results['last']['error'], 1)} test error "
        f"after {duration(results['seconds'])}"
    )


def describe_failures(failed: Mapping[Path, str], count: int) -> str:
    """Which of so many runs are missing, in a sentence; nothing if none is."""
    names = ", ".join(folder.name for folder in failed)
    return f"{len(failed)} of {count} runs failed ({names}); the same command tries them again." if failed else ""


def describe_damaged(damaged: Mapping[Path, str], count: int) -> str:
    """Which of so many runs cannot be read, in a sentence; nothing if all can."""
    names = ", ".join(folder.name for folder in damaged)
    sentence = f"{len(damaged)} of {count} runs are left out ({names}); without their folders they start anew."
    return sentence if damaged else ""
