"""`epass reproduce`: a table of the paper with our numbers beside its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from ..errors import InputError
from ..recipe import Recipe, builtin_recipes, read_recipe
from ..runs import RunFolder, load_run
from .compare import check_folders, exit_if_failed, train_all
from .flags import Device
from .progress import reading
from .screen import screen, show_json, show_table
from .settings import Request, compose

if TYPE_CHECKING:
    from ..reproduce import Sheet, Variant

Json = Annotated[bool, typer.Option("--json", help="Print the cells as JSON and nothing else.")]
Data = Annotated[
    str,
    typer.Option(help="A data set with recipes of its own (digits, cifar10, usb_stl10, ...), or images of yours."),
]
Scale = Annotated[float, typer.Option(help="Train for this share of the recipe's steps; 1 is all of them.")]
Seeds = Annotated[int, typer.Option(min=1, help="Runs of every cell.")]
Out = Annotated[
    Path | None,
    typer.Option(help="Where runs and tables go; finished runs are kept. [dim]\\[default: runs/reproduce-TABLE][/]"),
]

app = typer.Typer(no_args_is_help=True, help="Fill a table of the paper: its numbers, ours, and the difference.")


@app.command()
def parameters(
    out: Annotated[Path | None, typer.Option(help="A folder for table.csv, table.md and table.tex.")] = None,
    json: Json = False,
) -> None:
    """How many parameters every network of the paper has. Nothing is trained."""
    from ..reproduce import parameters as count_all

    refuse_file(out)
    show(count_all(), out, screen(), json)


@app.command()
def projectors(
    data: Data = "digits",
    scale: Scale = 1.0,
    seeds: Seeds = 1,
    out: Out = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """CoMatch and SimMatch with one to four projectors."""
    train_table("projectors", data, scale, seeds, out, device, json)


@app.command()
def strategies(
    data: Data = "digits",
    scale: Scale = 1.0,
    seeds: Seeds = 1,
    out: Out = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """CoMatch and SimMatch with three projectors, concatenated, added up or averaged."""
    train_table("strategies", data, scale, seeds, out, device, json)


def train_table(name: str, data: str, scale: float, seeds: int, out: Path | None, device: str, as_json: bool) -> None:
    """Train every cell of an ablation, or go on with it, and show the table."""
    from ..data import open_dataset
    from ..device import choose_device
    from ..experiment import check_recipe, reading_settings, split_for
    from ..reproduce import ablation, obstacles, paper_table, variants

    if not 0 < scale <= 1:
        raise InputError(f"--scale is a share of the recipe's steps, above 0 and at most 1, not {scale:g}.")
    table = paper_table(name)
    out = Path("runs") / f"reproduce-{name}" if out is None else out
    folders = {(variant, seed): out / f"{variant.name}-{seed}" for seed in range(seeds) for variant in variants(table)}
    jobs = {folder: recipe_of(variant, data, scale, seed) for (variant, seed), folder in folders.items()}
    for recipe in jobs.values():
        check_recipe(recipe)
    check_folders(out, jobs)
    place, first = choose_device(device), next(iter(jobs.values()))
    console = Console(quiet=True) if as_json else screen()
    with reading(console) as progress:
        dataset = open_dataset(first.data["name"], **reading_settings(first), progress=progress)
    split_for(first, dataset)  # says why so many labels cannot be had
    console.print(
        f"{table['title']}: {len(jobs)} runs of {first.plan['steps']:,} steps on {dataset.name}, in {out}.",
        markup=False,
        soft_wrap=True,
    )
    odd = obstacles(table, first, dataset.name, scale)

    def sheet() -> Sheet:
        there = {key: load_run(folder) for key, folder in folders.items() if RunFolder(folder).exists()}
        runs = {v: [run for (other, _), run in there.items() if other == v] for v in variants(table)}
        return ablation(table, runs, odd, dataset=dataset.name, scale=scale)

    def keep(_: Mapping[Path, str]) -> None:
        sheet().write(out)

    failed = train_all(jobs, dataset, place, console, out, keep)
    console.print()
    show(sheet(), out, console, as_json)
    exit_if_failed(failed, len(jobs))


def recipe_of(variant: Variant, data: str, scale: float, seed: int) -> Recipe:
    """The data set's own recipe of the method, or that for anybody's images, shortened."""
    own = f"{data}-{variant.method}"
    start = read_recipe(own if own in builtin_recipes() else f"folder-{variant.method}")
    request = Request(
        data=data if Path(data).expanduser().exists() else start.data.get("name", data),
        projectors=variant.projectors,
        steps=max(1, round(scale * start.plan["steps"])),
        seed=seed,
        settings=variant.settings,
    )
    return compose(request, start)


def refuse_file(out: Path | None) -> None:
    """Tables need a folder."""
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"'{out}' is a file; the tables need a folder: choose another one with --out.")


def show(sheet: Sheet, out: Path | None, console: Console, as_json: bool) -> None:
    """A table on the screen, below what one must know to read it, and in files."""
    if out is not None:
        sheet.write(out)
    if as_json:
        show_json(sheet.cells)
        return
    console.print(Text(sheet.title, "bold"))
    for note in sheet.notes:
        console.print(Text(note), soft_wrap=not console.is_terminal)
    console.print()
    show_table(console, sheet.heads, sheet.rows)
    if out is not None:
        console.print(f"\nThe same as files: {out / 'table.csv'}, table.md, table.tex", markup=False, soft_wrap=True)
