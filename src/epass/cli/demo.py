"""`epass demo`: labels only, SimMatch and SimMatch + EPASS on the embedded digits, and what came out."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from ..app.words import duration, percent
from ..machine.cpu import keep_freed_memory
from ..recipe import Recipe, read_recipe
from ..runs import RunFolder, load_run
from .progress import overall
from .screen import complain, screen, show_table
from .stopping import exit_code, stop_signals

if TYPE_CHECKING:
    from ..report import Group

CONTENDERS = (("supervised", None), ("simmatch", 1), ("simmatch", 3))  # method, projectors


def demo(
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each kind; more seeds, more certainty.")] = 3,
    labels: Annotated[int, typer.Option(help="Labeled images in all, equally many of each digit.")] = 40,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimization steps of each run.")] = None,
    out: Annotated[Path, typer.Option(help="Where the runs and the page go; earlier ones are replaced.")] = Path(
        "runs/demo"
    ),
) -> None:
    """See it work: do 1,402 unlabeled scans of digits help a classifier that has 40 labels?

    Needs no download and no GPU. Trains without and with the unlabeled images, with one projector and with three.
    """
    from ..data import open_dataset
    from ..engine.build import check_recipe, split_for

    console = screen()
    recipes = {
        out / "-".join([method, *(["epass"] if (projectors or 1) > 1 else []), str(seed)]): recipe_for(
            method, projectors, seed, labels, steps
        )
        for method, projectors in CONTENDERS
        for seed in range(seeds)
    }
    digits = open_dataset("digits")
    for folder, recipe in recipes.items():
        check_recipe(recipe)
        split_for(recipe, digits)  # says why so many labels cannot be had
        if folder.exists() and not RunFolder(folder).exists():
            RunFolder(folder).create(force=True)  # says why this folder cannot be used
    console.print(
        f"Training {len(recipes)} small networks on scans of digits, {labels} of them labeled: "
        f"{len(CONTENDERS)} ways of training, {seeds} seed{'s' * (seeds != 1)} each."
    )
    started = time.perf_counter()
    try:
        with stop_signals():
            train_all(recipes, console)
    except KeyboardInterrupt as stopped:
        complain(f"finished runs are in {out}; the same command starts over.", "Stopped")
        raise typer.Exit(exit_code(stopped)) from None
    except BrokenProcessPool:
        complain("A training process was killed, perhaps for lack of memory; the same command starts over.")
        raise typer.Exit(1) from None
    show_outcome(list(recipes), labels, time.perf_counter() - started, out, console)


def recipe_for(method: str, projectors: int | None, seed: int, labels: int, steps: int | None) -> Recipe:
    """The recipe of one run."""
    settings = {"seed": seed, "data.labels": labels, "projector.size": projectors, "plan.steps": steps}
    return read_recipe(f"digits-{method}").with_settings({k: v for k, v in settings.items() if v is not None})


def train_all(recipes: dict[Path, Recipe], console: Console) -> None:
    """Train in parallel, one core each: for networks this small that is faster than all cores on one run."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    total = sum(recipe.plan["steps"] for recipe in recipes.values())
    with (
        ProcessPoolExecutor(
            min(cores, len(recipes)),
            multiprocessing.get_context("spawn"),
            initializer=signal.signal,  # Ctrl-C reaches all processes: this one ends the others
            initargs=(signal.SIGINT, signal.SIG_IGN),
        ) as pool,
        overall(console) as bar,
    ):
        task = bar.add_task("training", total=total)
        waiting: dict[Future[None], Path] = {
            pool.submit(train_one, recipe, folder): folder for folder, recipe in recipes.items()
        }
        started = time.time()
        try:
            while waiting:
                done, _ = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                bar.update(task, completed=sum(steps_done(folder, started) for folder in recipes))
                for future in done:
                    folder = waiting.pop(future)
                    future.result()
                    console.print(Text(f"  {describe_run(folder)}"))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def train_one(recipe: Recipe, folder: Path) -> None:
    """One run, in a process of its own."""
    keep_freed_memory()
    import torch

    from ..engine.run import run

    torch.set_num_threads(1)
    for _ in run(recipe, folder, device="cpu", force=True, command="epass demo"):
        pass


def steps_done(folder: Path, since: float) -> int:
    """How far the run in `folder` is, if its metrics are younger than `since`."""
    metrics = folder / "metrics.jsonl"
    if not metrics.exists() or metrics.stat().st_mtime < since:
        return 0
    rows = RunFolder(folder).metrics()
    return int(rows[-1]["step"]) if rows else 0


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


def show_outcome(folders: Sequence[Path], labels: int, seconds: float, out: Path, console: Console) -> None:
    """The table, the verdict and the page, from the run folders just written."""
    from ..report import group_runs, verdict, write_page

    runs = [load_run(folder) for folder in folders]
    groups = group_runs(runs)
    page = write_page(out / "report.html", runs, title=f"Digits with {labels} labels: did the unlabeled images help?")
    console.print()
    show_table(console, ("", "test error", "ECE", "seconds", "seeds"), [outcome_row(group) for group in groups])
    console.print()
    console.print(Text(verdict(groups)), soft_wrap=not console.is_terminal)
    console.print()
    console.print(
        f"{len(runs)} runs in {duration(seconds)}. Open the page: {page.resolve()}", soft_wrap=True, markup=False
    )


def outcome_row(group: Group) -> list[str]:
    """One way of training: error and calibration at the last step, mean ± std over seeds, and the time of one run."""
    from ..evaluate import SCORES

    spreads = {replace(SCORES[key], digits=1): group.spread("last", key) for key in ("error", "ece")}
    shares = [score.text(spread.mean, spread.deviation) if spread else "-" for score, spread in spreads.items()]
    seconds = group.spread("seconds")
    return [group.label, *shares, f"{seconds.mean:.0f}" if seconds else "-", str(len(group.seeds))]
