"""An application function as a command: the same names, types, defaults and help."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from ..app.events import Work
from ..app.flags import Images, flag_of
from .show import show

JSON = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def expose(function: Callable[..., Work], about: str | None = None, **decided: Any) -> Callable[..., None]:
    """What typer makes a command of: it calls the function and shows what happens.

    What is `decided` here cannot be said; `about` then is what the command does.
    """
    hints = get_type_hints(function, include_extras=True)
    known = inspect.signature(function).parameters.values()
    parameters = [p for p in known if p.name not in decided and flag_of(hints[p.name]) is not None]

    def command(json: bool, **said: Any) -> None:
        show(function, {**said, **decided}, as_json=json)

    spoken = [as_option(parameter, hints[parameter.name]) for parameter in parameters]
    asked = inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JSON)
    command.__signature__ = inspect.Signature([*spoken, asked])  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in (*spoken, asked)}
    command.__name__, command.__doc__ = function.__name__, about or function.__doc__
    return command


def as_option(parameter: inspect.Parameter, hint: Any) -> inspect.Parameter:
    """A parameter as typer wants it: by position an argument, by name an option."""
    flag = flag_of(hint)
    assert flag is not None
    help_text = f"{flag.help} [dim]\\[default: {flag.default}][/]" if flag.default else flag.help
    panel = {"rich_help_panel": flag.panel} if flag.panel else {}
    shown: dict[str, Any] = {"help": help_text, "metavar": flag.metavar or None, "min": flag.least, **panel}
    if names := flag.names:
        shown["autocompletion"] = lambda incomplete: [name for name in names() if name.startswith(incomplete)]
    if parameter.kind is not parameter.KEYWORD_ONLY:
        told: Any = typer.Argument(**shown)
    elif flag.name or parameter.default is False:  # nobody needs --no-stream
        told = typer.Option(flag.called(parameter.name), **shown)
    else:
        told = typer.Option(**shown)
    return parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=Annotated[typed(get_args(hint)[0]), told])


def typed(kind: Any) -> Any:
    """The type that a text of the command line becomes: where Python takes a text or a path, mostly a path."""
    paths = {str | Path: Path, str | Path | None: Path | None, str | Path | list[str | Path]: list[Path]}
    return {**paths, Images: str, Images | None: str | None, Sequence[str]: list[str]}.get(kind, kind)
