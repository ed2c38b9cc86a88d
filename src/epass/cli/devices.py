"""A command that several processes carry out together."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from ..app.flags import WHERE
from ..machine.launch import is_one_of_several, run_together
from .screen import complain

RESUMED, REPEATED = "the same command with --resume", "the same command"


def on_devices(command: Callable[..., None], shared: str = "every batch", again: str = RESUMED) -> Callable[..., None]:
    """The command with --devices: as many processes, started with the same command line, then do its work.

    `shared` is what each has a part of, `again` what to type when one of them was lost.
    """
    told = typer.Option(
        min=1, help=f"Processes that share {shared}: one per GPU, or on the CPU.", rich_help_panel=WHERE
    )
    spoken = list(inspect.signature(command).parameters.values())
    kind = Annotated[int | None, told]
    asked = inspect.Parameter("devices", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
    spoken.insert([parameter.name for parameter in spoken].index("device") + 1, asked)

    def spread(devices: int | None, **said: Any) -> None:
        if devices in (None, 1) or is_one_of_several():
            return command(**said)
        code, sentence = run_together(devices, said["device"], again)
        if sentence:
            complain(sentence)
        raise typer.Exit(code)

    spread.__signature__ = inspect.Signature(spoken)  # type: ignore[attr-defined]
    spread.__annotations__ = {parameter.name: parameter.annotation for parameter in spoken}
    spread.__name__, spread.__doc__ = command.__name__, command.__doc__
    return spread
