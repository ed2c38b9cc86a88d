"""The commands, and what happens when one fails."""

from __future__ import annotations

import sys
import warnings
from importlib.metadata import version
from typing import Annotated, Any

import typer

from ..app.evaluate import evaluate
from ..errors import InputError
from ..machine.cpu import prepare_cpu
from ..machine.launch import exiting_at_once, has_joined, is_first_process
from .bench import bench
from .check import check
from .compare import COMPARISONS, compare
from .demo import demo
from .download import download
from .expose import expose
from .listings import datasets, methods, networks, recipes
from .predict import predict
from .pretrain import pretrain
from .report import report
from .reproduce import app as reproduce
from .screen import complain
from .train import train

EXAMPLES = """[bold]Examples[/]

[cyan]epass train digits --labels 40 --projectors 3[/]   a first run, no download

[cyan]epass train photos/ --budget 10m[/]                your images, ten minutes

[cyan]epass compare digits --methods all[/]              every method, one table

[cyan]epass evaluate runs/digits-simmatch-epass-0[/]     all scores of a model

[cyan]epass predict runs/photos-simmatch-0 new/[/]       the classes of new images"""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(rich_help_panel="Work")(demo)
app.command(rich_help_panel="Work")(check)
app.command(rich_help_panel="Work")(train)
app.command(rich_help_panel="Work")(pretrain)
app.command(rich_help_panel="Work", epilog=COMPARISONS)(compare)
app.add_typer(reproduce, name="reproduce", rich_help_panel="Work")
app.command(rich_help_panel="Work")(expose(evaluate))
app.command(rich_help_panel="Work")(predict)
app.command(rich_help_panel="Work")(report)
app.command(rich_help_panel="Work")(bench)
app.command(rich_help_panel="Work")(download)
for listing in (methods, networks, datasets, recipes):
    app.command(rich_help_panel="What there is")(listing)


def show_version(asked: bool) -> None:
    """Answer `--version`."""
    if asked:
        print(f"epass {version('epass')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Semi-supervised image classification: a few labels, many images, calibrated answers."""


def main() -> None:
    """Run the command line; a mistake in the input is one sentence and exit code 2."""
    prepare_cpu()
    with exiting_at_once(), warnings.catch_warnings():
        warnings.showwarning = show_warning
        try:
            app()
        except InputError as problem:
            if is_first_process() or has_joined():  # before they meet, all see the same mistake
                complain(str(problem))
            sys.exit(2)
        except OSError as problem:  # a full disk, a folder that may not be written
            if problem.filename is None or problem.strerror is None:
                raise
            complain(f"{problem.strerror}: '{problem.filename}'.")
            sys.exit(1)


def show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """One line instead of Python's two, which name a line of our source."""
    if is_first_process():
        complain(str(message), "Warning")
