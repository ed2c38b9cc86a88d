"""`epass reproduce`: a table of the paper with our numbers beside its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ..recipe import Recipe, read_recipe
from ..recipes import builtin_recipes
from ..runs import RunFolder, load_run
from .benchmarks import Asked, check_scale, fill
from .compare import check_folders, exit_if_failed, train_all
from .flags import Device, Settings
from .progress import reading
from .screen import screen
from .settings import Request, compose
from .sheets import refuse_file, show

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

Only = Annotated[str, typer.Option(help="Rows, with commas between them: simmatch,simmatch+3; +3 is EPASS.")]
Columns = Annotated[
    str, typer.Option(help="Columns as in --dry-run, or data sets: cifar10-40,svhn. With commas between them.")
]
Instead = Annotated[
    str | None,
    typer.Option(help="Train on this in place of the table's data: digits, or images of yours. Without differences."),
]
Root = Annotated[Path, typer.Option(metavar="FOLDER", help="Where the data sets are, as 'epass download' puts them.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List the runs and what is missing; train nothing.")]

BENCHMARKS = {
    "classic": "Eleven methods, EPASS and all labels on CIFAR-10, CIFAR-100, SVHN and STL-10",
    "imagenet": "Top-1 and top-5 error of six methods and EPASS on ImageNet",
    "imagenet-detail": "Epochs, parameters and accuracy on ImageNet with 1 % and 10 % of the labels",
    "longtail": "Six methods, with and without EPASS and ABC, on long-tailed CIFAR-10 and CIFAR-100",
    "usb": "Nine methods, EPASS and all labels with the ViTs of the USB benchmark on five data sets",
    "prf": "Precision, recall, F1 and AUC of seven methods and EPASS on four data sets",
}
SKIPPING = (
    "Cells whose data or recipe is missing are skipped, and the table says so. Finished runs are kept: stop it "
    "whenever you like, the same command goes on."
)

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


def add_benchmark(name: str, summary: str) -> None:
    """A command for a table of methods by data sets."""

    def command(
        only: Only = "",
        columns: Columns = "",
        seeds: Seeds = 1,
        scale: Scale = 1.0,
        data: Instead = None,
        root: Root = Path("data"),
        settings: Settings = None,
        out: Out = None,
        device: Device = "auto",
        dry_run: DryRun = False,
        json: Json = False,
    ) -> None:
        fill(
            Asked(
                table=name,
                only=words(only),
                columns=words(columns),
                seeds=seeds,
                scale=scale,
                data=data,
                root=root,
                settings=tuple(settings or ()),
                out=out,
                device=device,
            ),
            dry_run,
            json,
        )

    command.__doc__ = f"{summary}.\n\n{SKIPPING}"
    app.command(name)(command)


def words(text: str) -> list[str]:
    """`one,two` as a list."""
    return [word for word in map(str.strip, text.split(",")) if word]


for table, summary in BENCHMARKS.items():
    add_benchmark(table, summary)


def train_table(name: str, data: str, scale: float, seeds: int, out: Path | None, device: str, as_json: bool) -> None:
    """Train every cell of an ablation, or go on with it, and show the table."""
    from ..data import open_dataset
    from ..engine.build import check_recipe, reading_settings, split_for
    from ..machine.device import choose_device
    from ..reproduce import ablation, obstacles, paper_table, variants

    check_scale(scale)
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
