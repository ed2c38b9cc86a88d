"""`epass pretrain`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..loggers import make_loggers
from .flags import (
    WHAT,
    Budget,
    Data,
    Device,
    Devices,
    Force,
    FromRecipe,
    ImageSize,
    Log,
    Net,
    Out,
    Projectors,
    Resume,
    Seed,
    Settings,
    Steps,
    Stream,
    Trust,
)
from .settings import DEFAULT_PRETRAINING, Request
from .train import carry_out


def pretrain(
    data: Data = None,
    labels: Annotated[
        int | None, typer.Option(help="How many labels judge the features; none teach.", rich_help_panel=WHAT)
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help=f"See 'epass methods'. [dim]\\[default: {DEFAULT_PRETRAINING}][/]", rich_help_panel=WHAT),
    ] = None,
    projectors: Projectors = None,
    net: Net = None,
    image_size: ImageSize = None,
    stream: Stream = False,
    seed: Seed = None,
    steps: Steps = None,
    budget: Budget = None,
    out: Out = None,
    device: Device = "auto",
    devices: Devices = None,
    resume: Resume = False,
    force: Force = False,
    log: Log = None,
    recipe: FromRecipe = None,
    settings: Settings = None,
    trust: Trust = None,
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
        stream=stream,
        steps=steps,
        seed=seed,
        settings=tuple(settings or ()),
        trust=tuple(trust or ()),
    )
    # no label teaches, so a test image among the labeled ones teaches nothing either
    carry_out(
        request,
        budget=budget,
        out=out,
        device=device,
        devices=devices,
        resume=resume,
        force=force,
        allow_leak=True,
        loggers=make_loggers(log or ()),
    )
