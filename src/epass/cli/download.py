"""`epass download`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import filesize

from ..errors import unknown
from .progress import downloading
from .screen import screen, show_facts, show_table


def download(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The data set. Without it, list what there is.")
    ] = None,
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="Make the folder NAME in here.")] = Path("data"),
) -> None:
    """Download a public data set from its owner: resumed where it broke off, checked, unpacked.

    [cyan]epass download[/]                        what there is

    [cyan]epass download eurosat[/]                into data/eurosat

    [cyan]epass download stl10 --to /datasets[/]   into /datasets/stl10
    """
    from ..data.read.download import SOURCES, contents, is_filled
    from ..data.read.download import download as download_from_owner

    console = screen()
    if name is None:
        rows = [
            [key, source.summary, "unknown" if source.size is None else filesize.decimal(source.size), source.license]
            for key, source in SOURCES.items()
        ]
        show_table(console, ("data set", "images", "download", "license"), rows)
        console.print("\nGet one: epass download NAME", markup=False)
        return
    if name not in SOURCES:
        raise unknown("data set to download", name, SOURCES)
    folder = to.expanduser()
    there = is_filled(folder / name)
    with downloading(console) as progress:
        files = contents(download_from_owner(name, folder, progress))
    show_facts(
        console,
        f"{name} was there already: remove '{folder / name}' to download it again" if there else name,
        {"files": str(files), "license": SOURCES[name].license, "owner": SOURCES[name].page},
    )
