"""The flags that several commands have, each explained once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

WHAT, HOW_LONG, WHERE, RECIPE = "What to train", "How long", "Where", "Every other setting"

Data = Annotated[
    str | None,
    typer.Argument(metavar="DATA", help="A built-in data set, or a folder, archive, table or .npz file of yours."),
]
Projectors = Annotated[
    int | None, typer.Option(help="Projection heads; EPASS is 3, the plain method 1.", rich_help_panel=WHAT)
]
Net = Annotated[str | None, typer.Option(help="See 'epass networks'.", rich_help_panel=WHAT)]
ImageSize = Annotated[int | None, typer.Option(help="Scale images to this side.", rich_help_panel=WHAT)]
Stream = Annotated[
    bool,
    typer.Option("--stream", help="Decode images while training: for more than fit into memory.", rich_help_panel=WHAT),
]
Seed = Annotated[
    int | None, typer.Option(help="Decides the labeled images, the weights and the batches.", rich_help_panel=WHAT)
]
Steps = Annotated[int | None, typer.Option(help="Optimization steps.", rich_help_panel=HOW_LONG)]
Budget = Annotated[
    str | None, typer.Option(help="As many steps as fit into 90s, 10m or 1.5h.", rich_help_panel=HOW_LONG)
]
Out = Annotated[
    Path | None,
    typer.Option(help="The run folder. [dim]\\[default: runs/DATA-METHOD-SEED][/]", rich_help_panel=WHERE),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.", rich_help_panel=WHERE)]
Devices = Annotated[
    int | None,
    typer.Option(min=1, help="Processes that share every batch: one per GPU, or on the CPU.", rich_help_panel=WHERE),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the run in the folder, or start it.", rich_help_panel=WHERE)
]
Force = Annotated[bool, typer.Option("--force", help="Throw away the run in the folder.", rich_help_panel=WHERE)]
Log = Annotated[
    list[str] | None,
    typer.Option(help="Also report to tensorboard, wandb or mlflow; may be given twice.", rich_help_panel=WHERE),
]
FromRecipe = Annotated[
    str | None, typer.Option(help="A name from 'epass recipes' or a .toml file.", rich_help_panel=RECIPE)
]
Trust = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Code of yours that a recipe or run may name: package.module:Class or file.py:Class. It is run.",
        rich_help_panel=RECIPE,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Any key of a recipe: method.threshold=0.9", rich_help_panel=RECIPE
    ),
]
