"""The commands, and what happens when one fails."""

from __future__ import annotations

import sys
import warnings
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any

import typer

from ..app.bench import bench
from ..app.calibrate import calibrate
from ..app.check import check
from ..app.compare import compare
from ..app.demo import demo
from ..app.download import download
from ..app.embed import embed
from ..app.evaluate import evaluate
from ..app.export import export
from ..app.label import label
from ..app.listing import datasets, methods, networks, recipes
from ..app.predict import predict
from ..app.report import report
from ..app.reproduce import ABLATIONS, BENCHMARKS, SKIPPING, parameters, reproduce
from ..app.serve import serve
from ..app.suggest import suggest
from ..app.train import pretrain, train
from ..errors import InputError, RunError, out_of_memory
from ..machine.cpu import prepare_cpu
from ..machine.launch import exiting_at_once, has_joined, is_first_process
from ..studio.command import studio
from .devices import REPEATED, on_devices
from .examples import examples
from .expose import expose
from .mistakes import Command, Group
from .screen import complain

EXAMPLES = """[bold]Examples[/]

[cyan]epass train digits --labels 40 --projectors 3[/]   a first run, no download

[cyan]epass studio photos/[/]                            label your photos in the browser

[cyan]epass train photos/ --projectors 3[/]              your photos, in a minute or two

[cyan]epass compare digits --methods all[/]              every method, one table

[cyan]epass evaluate runs/digits-simmatch-epass-0[/]     all scores of a model

[cyan]epass predict runs/photos-simmatch-0 new/[/]       the classes of new images"""

COMPARISONS = """[bold]Examples[/]

[cyan]epass compare digits --methods all[/]                        every method

[cyan]epass compare digits --methods simmatch,simmatch+3[/]        +3: EPASS

[cyan]epass compare digits --projectors 1,3 --strategies mean,concat[/]   a grid

[cyan]epass compare photos/ --labels 100 --seeds 5[/]              your images

[bold]What it shows[/]

Mean ± standard deviation over seeds of the test error at the last step, at the
step that validation images select (with --set data.validation=0.2) and at the
best step on test, as papers report; then the differences to labels only, and of
EPASS to one projector, with 95 % intervals that resample seeds and test images;
and one sentence each: did the unlabeled images help, did EPASS, by how much, is
it more than noise.

[bold]What it writes[/]

OUT/table.md and OUT/report.html for people, OUT/results.csv with one line per
run and OUT/comparison.json for programs, and for each run an ordinary run
folder OUT/METHOD-SEED. Stop it whenever you like: the same command
goes on where it was."""

tables = typer.Typer(
    cls=Group, no_args_is_help=True, help="Fill a table of the paper: its numbers, ours, and the difference."
)
filling = partial(tables.command, cls=Command)
filling()(expose(parameters))
for table, summary in ABLATIONS.items():
    filling(table)(expose(reproduce, summary, table=table, root="data"))  # the data set is always named
for table, summary in BENCHMARKS.items():
    filling(table)(expose(reproduce, f"{summary}\n\n{SKIPPING}", table=table))

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
work = partial(app.command, cls=Command, rich_help_panel="Work")
work()(expose(demo))
work(epilog=examples("studio"))(expose(studio))
work(epilog=examples("check"))(expose(check))
work(epilog=examples("embed"))(on_devices(expose(embed), "the photos", REPEATED))
work(epilog=examples("suggest"))(expose(suggest))
work(epilog=examples("label"))(expose(label))
work(epilog=examples("train"))(on_devices(expose(train)))
work(epilog=examples("pretrain"))(on_devices(expose(pretrain)))
work(epilog=COMPARISONS)(expose(compare))
app.add_typer(tables, name="reproduce", rich_help_panel="Work")
work(epilog=examples("evaluate"))(expose(evaluate))
work(epilog=examples("calibrate"))(expose(calibrate))
work(epilog=examples("predict"))(on_devices(expose(predict), "the images", REPEATED))
work(epilog=examples("export"))(expose(export))
work(epilog=examples("serve"))(expose(serve))
work(epilog=examples("report"))(expose(report))
work(epilog=examples("bench"))(expose(bench))
work(epilog=examples("download"))(expose(download))
for listing in (methods, networks, datasets, recipes):
    app.command(cls=Command, rich_help_panel="What there is")(expose(listing))


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
            app(prog_name="epass")
        except InputError as problem:
            if is_first_process() or has_joined():  # before they meet, all see the same mistake
                complain(str(problem))
            sys.exit(2)
        except RunError as problem:
            if is_first_process():
                complain(str(problem))
            sys.exit(1)
        except (MemoryError, RuntimeError) as problem:
            if not out_of_memory(problem):
                raise
            complain("There is not enough memory for this: end other programs, or ask for smaller or fewer images.")
            sys.exit(1)
        except OSError as problem:  # a full disk, a folder that may not be written
            if problem.filename is None or problem.strerror is None:
                raise
            complain(f"{problem.strerror}: '{problem.filename}'.")
            sys.exit(1)


def show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """One line instead of Python's two, which name a line of our source."""
    if is_first_process():
        complain(str(message), "Warning")
