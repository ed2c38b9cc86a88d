"""`epass pretrain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .settings import DEFAULT_PRETRAINING, Request
from .train import HOW_LONG, RECIPE, WHAT, WHERE, carry_out


def pretrain(
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="A built-in data set, a folder of images or an .npz file.")
    ] = None,
    labels: Annotated[
        int | None, typer.Option(help="How many labels judge the features; none teach.", rich_help_panel=WHAT)
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help=f"See 'epass methods'. [dim]\\[default: {DEFAULT_PRETRAINING}][/]", rich_help_panel=WHAT),
    ] = None,
    projectors: Annotated[
        int | None, typer.Option(help="Projection heads; EPASS is 3, the plain method 1.", rich_help_panel=WHAT)
    ] = None,
    net: Annotated[str | None, typer.Option(help="See 'epass networks'.", rich_help_panel=WHAT)] = None,
    image_size: Annotated[int | None, typer.Option(help="Scale images to this side.", rich_help_panel=WHAT)] = None,
    seed: Annotated[int | None, typer.Option(help="Decides the weights and the batches.", rich_help_panel=WHAT)] = None,
    steps: Annotated[int | None, typer.Option(help="Optimization steps.", rich_help_panel=HOW_LONG)] = None,
    budget: Annotated[
        str | None, typer.Option(help="As many steps as fit into 90s, 10m or 1.5h.", rich_help_panel=HOW_LONG)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The run folder. [dim]\\[default: runs/DATA-METHOD-SEED][/]", rich_help_panel=WHERE),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.", rich_help_panel=WHERE)] = "auto",
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in the folder, or start it.", rich_help_panel=WHERE)
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Throw away the run in the folder.", rich_help_panel=WHERE)
    ] = False,
    recipe: Annotated[
        str | None, typer.Option(help="A name from 'epass recipes' or a .toml file.", rich_help_panel=RECIPE)
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any key of a recipe: method.temperature=0.1", rich_help_panel=RECIPE
        ),
    ] = None,
) -> None:
    """Learn from images alone, then train with 'epass train DATA --from RUN'.

    No label is used for learning. Labeled images only judge the features:
    every test asks for the class whose mean features are nearest.
    """
    request = Request(
        pretrain=True,
        data=data,
        recipe=recipe,
        method=method,
        projectors=projectors,
        net=net,
        labels=labels,
        image_size=image_size,
        steps=steps,
        seed=seed,
        settings=tuple(settings or ()),
    )
    carry_out(request, budget=budget, out=out, device=device, resume=resume, force=force)
