"""Which of several run folders can be shown, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError
from ..recipe import read_recipe
from ..runs import Run, RunFolder, load_run


def sort_out(folders: Sequence[Path]) -> tuple[list[Run], dict[Path, str]]:
    """The runs that can be shown, and a sentence about each of the others."""
    usable: list[Run] = []
    problems: dict[Path, str] = {}
    for folder in folders:
        try:
            usable.append(readable_run(folder))
        except InputError as problem:
            problems[folder] = str(problem)
        except OSError as problem:
            problems[folder] = f"'{folder}' cannot be read: {problem.strerror or problem}."
    return usable, problems


def readable_run(folder: Path) -> Run:
    """A run with everything in it that the page needs."""
    if folder.is_dir() and not RunFolder(folder).exists():
        inside = [entry.name for entry in sorted(folder.iterdir()) if RunFolder(entry).exists()]
        if inside:
            first = folder / inside[0]
            raise InputError(f"'{folder}' is not a run, but holds {len(inside)}: name them, '{first}' for one.")
    run = load_run(folder)
    read_recipe(str(run.path / "recipe.toml"))  # says that it is of a newer version
    if run.results is not None:
        if "last" not in run.results:
            raise InputError(f"'{folder}' was not tested (data.holdout=0), so there is nothing to show of it.")
        needed = {"model.json": run.model, "predictions.npz": run.predictions}
        lacking = [name for name, found in needed.items() if found is None]
        if lacking:
            raise InputError(f"'{folder}' is incomplete: it has results, but lacks {' and '.join(lacking)}.")
        assert run.wrong is not None
        told, found = float(run.results["last"]["error"]), float(run.wrong.mean())
        if abs(told - found) * len(run.wrong) >= 0.5:  # an image more or less
            raise InputError(
                f"results.json and predictions.npz of '{folder}' disagree: a test error of {100 * told:.2f} % and of "
                f"{100 * found:.2f} %; copy both again."
            )
    return run
