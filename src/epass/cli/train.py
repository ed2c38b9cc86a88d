"""`epass train`."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ..errors import InputError
from ..extensions import trust_flags
from ..loggers import Logger, logged, make_loggers
from ..machine.launch import (
    all_or_none,
    first_failure,
    is_first_process,
    is_one_of_several,
    join_processes,
    restarts,
    start_processes,
)
from ..recipe import Recipe, read_recipe
from ..runs import PRETRAINED, RunFolder, load_run
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
from .plan import plan_facts, result_facts
from .progress import reading, watching
from .screen import complain, screen, show_facts
from .settings import (
    DEFAULT_METHOD,
    Request,
    compose,
    default_folder,
    describe_recipe,
    fitting,
    parse_budget,
    starting_recipe,
    trusting,
)
from .stopping import Stop, exit_code, stop_signals

if TYPE_CHECKING:
    from ..engine.build import Experiment

TRAINING_SHARE = 0.9  # of a time budget; the rest is for tests and files


def train(
    data: Data = None,
    labels: Annotated[
        int | None,
        typer.Option(help="How many images keep their label, equally many of every class.", rich_help_panel=WHAT),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help=f"See 'epass methods'. [dim]\\[default: {DEFAULT_METHOD}][/]", rich_help_panel=WHAT),
    ] = None,
    projectors: Projectors = None,
    wrap: Annotated[
        str | None, typer.Option(help="A wrapper around the method: abc, for rare classes.", rich_help_panel=WHAT)
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="RUN", help="Start from 'epass pretrain'.", rich_help_panel=WHAT)
    ] = None,
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
    allow_leak: Annotated[
        bool,
        typer.Option(
            "--allow-leak", help="Train although test images are among the labeled ones.", rich_help_panel=WHAT
        ),
    ] = False,
    recipe: FromRecipe = None,
    settings: Settings = None,
    trust: Trust = None,
) -> None:
    """Train a classifier on a few labeled and many unlabeled images.

    The flags and --set change the recipe, which decides everything else.
    """
    request = Request(
        data=data,
        recipe=recipe,
        method=method,
        projectors=projectors,
        wrap=wrap,
        start=start,
        net=net,
        labels=labels,
        image_size=image_size,
        stream=stream,
        steps=steps,
        seed=seed,
        settings=tuple(settings or ()),
        trust=tuple(trust or ()),
    )
    carry_out(
        request,
        budget=budget,
        out=out,
        device=device,
        devices=devices,
        resume=resume,
        force=force,
        allow_leak=allow_leak,
        loggers=make_loggers(log or ()),
    )


def share_out(devices: int | None, device: str) -> None:
    """Where several devices are wanted, have the command carried out by as many processes instead of this one."""
    if devices in (None, 1) or is_one_of_several():
        return
    number, code = first_failure(start_processes(devices, device))
    if code < 0:
        complain(f"process {number} was ended by {signal.Signals(-code).name}; the same command with --resume goes on.")
        code = 128 - code
    raise typer.Exit(code)


def carry_out(
    request: Request,
    *,
    budget: str | None,
    out: Path | None,
    device: str,
    devices: int | None,
    resume: bool,
    force: bool,
    allow_leak: bool,
    loggers: Sequence[Logger],
) -> None:
    """Train what was asked for, or say why not."""
    seconds = parse_budget(budget) if budget is not None else None
    if seconds is not None and (
        request.steps is not None or any(text.startswith("plan.steps=") for text in request.settings)
    ):
        raise InputError("Steps and --budget both say how long to train: give one of them.")
    if resume and force:
        raise InputError("--resume continues a run and --force throws it away: give one of them.")
    request = trusting(request)
    share_out(devices, device)
    from ..machine.distributed import of_first_rank, on_first_rank

    place = join_processes(device)
    if restarts():
        resume, force = True, False

    continued = resume and request.data is None and request.recipe is None
    base = recipe_of(out) if continued else starting_recipe(request)
    home = RunFolder(out or default_folder(compose(request, base)))
    continues = resume and home.exists()
    if seconds is not None and (planned := int(of_first_rank(steps_planned(home) if continues else 0))):
        # the speed of today would give another number of steps and so another run
        request, seconds = replace(request, steps=planned), None
    asked = compose(request, base)
    on_first_rank(lambda: check(asked, home, resume, force))

    console = screen()
    fits = fitting(asked.plan.get("labeled_batch", 64), "plan.labeled_batch", "--set plan.labeled_batch=")
    try:
        with stop_signals() as stop, fits:
            # whoever started a run that is resumed has decided about its leaks
            allow_leak = allow_leak or bool(of_first_rank(continues))
            experiment, seconds_per_step = prepare(request, base, place, seconds, allow_leak, console)
            done = steps_kept(home) if resume else 0
            show_facts(console, "Plan", plan_facts(experiment, home.path, seconds_per_step, done))
            follow(experiment, home, resume, force, loggers, seconds_per_step, console, stop)
        if is_first_process():
            finish(experiment, home, console)
    except KeyboardInterrupt as stopped:
        if not is_first_process():
            raise typer.Exit(exit_code(stopped)) from None
        again = line_to_go_on(request, home, device, devices)
        complain(f"continue with {again}" if home.exists() else "nothing was written yet.", "Stopped")
        raise typer.Exit(exit_code(stopped)) from None
    except OSError as problem:  # a full disk, a folder that became read-only
        if problem.filename is None or problem.strerror is None or not home.exists():
            raise
        again = line_to_go_on(request, home, device, devices)
        complain(
            f"{problem.strerror}: '{problem.filename}'. {what_is_kept(home)}; mend this, then continue with {again}"
        )
        raise typer.Exit(1) from None


def line_to_go_on(request: Request, home: RunFolder, device: str, devices: int | None) -> str:
    """What to type to continue a run."""
    command = ["epass", "pretrain" if request.pretrain else "train", "--resume", "--out", str(home.path)]
    command += [] if device == "auto" else ["--device", device]
    command += trust_flags()
    return shlex.join([*command, *([] if devices is None else ["--devices", str(devices)])])


def what_is_kept(home: RunFolder) -> str:
    """Where a run is that failed, and whether it can be continued in the middle."""
    kept = any(home.checkpoints.glob("step-*"))
    return f"The run is in '{home.path}', {'its last good checkpoint is kept' if kept else 'it had no checkpoint yet'}"


def steps_kept(home: RunFolder) -> int:
    """The step of the newest checkpoint in a run folder, 0 without one."""
    from ..train.checkpoint import checkpoints

    return max((int(path.stem.removeprefix("step-")) for path in checkpoints(home.checkpoints)), default=0)


def steps_planned(home: RunFolder) -> int:
    """The number of steps of the run in a folder."""
    steps: int = read_recipe(str(home.path / "recipe.toml")).plan["steps"]
    return steps


def recipe_of(folder: Path | None) -> Recipe:
    """The recipe of a run that is to be continued."""
    if folder is None:
        raise InputError("Say which run to resume: --out FOLDER.")
    return read_recipe(str(load_run(folder).path / "recipe.toml"))


def check(recipe: Recipe, home: RunFolder, resume: bool, force: bool) -> None:
    """Refuse what cannot work before anything is read, built or written."""
    from ..engine.build import check_recipe
    from ..engine.run import check_same

    if home.path.exists() and not (home.exists() and (resume or force)):
        home.create(force=False)  # changes nothing in a folder that is there: says why this one cannot be used
    check_recipe(recipe)
    if resume and home.exists():
        check_same(recipe, home)
    if home.exists():
        with home.hold():  # says which process is in it; `run` takes the folder for good
            pass


def prepare(
    request: Request, base: Recipe, device: str, seconds: float | None, allow_leak: bool, console: Console
) -> tuple[Experiment, float]:
    """The objects of the run and how long a step takes; with a budget, as many steps as fit into `seconds`."""
    from ..data import open_dataset
    from ..engine.build import build, reading_settings
    from ..engine.run import refuse_leaks
    from ..engine.timing import seconds_per_step
    from ..machine.device import choose_device

    recipe, place = compose(request, base), choose_device(device)
    with all_or_none():
        with reading(console) as progress:
            dataset = open_dataset(
                recipe.data["name"],
                **reading_settings(recipe),
                progress=progress,
                notice=lambda sentence: console.print(f"{sentence}\n", markup=False),
            )
        experiment = build(recipe, place, dataset)
        if not allow_leak:
            refuse_leaks(experiment)
    pace = seconds_per_step(experiment)
    if seconds is not None:
        steps = max(1, int(TRAINING_SHARE * seconds / pace))
        experiment = build(compose(replace(request, steps=steps), base), place, dataset)
    return experiment, pace


def follow(
    experiment: Experiment,
    home: RunFolder,
    resume: bool,
    force: bool,
    loggers: Sequence[Logger],
    seconds_per_step: float,
    console: Console,
    stop: Stop,
) -> None:
    """Train and show how it goes."""
    from ..engine.run import train_steps
    from ..train.window import NotFiniteError

    command = shlex.join(["epass", *sys.argv[1:]])
    steps = train_steps(experiment, home, resume=resume, force=force, command=command, stop=stop)
    reports = (report for report in steps if report is not None)
    try:
        with stop.patiently(), watching(console, experiment.plan.steps, seconds_per_step) as watch:
            for report in logged(reports, loggers if is_first_process() else (), home.path, experiment.recipe.flat()):
                watch(report)
    except NotFiniteError as problem:
        if is_first_process():
            complain(f"{problem} {what_is_kept(home)}; a lower plan.lr may help.")
        raise typer.Exit(1) from None


def finish(experiment: Experiment, home: RunFolder, console: Console) -> None:
    """Write the page and say what came out."""
    from ..report import group_runs, warnings_of, write_page

    finished = load_run(home.path)
    assert finished.results is not None
    labels = f"{len(experiment.split.labeled):,} labels"
    title = f"{describe_recipe(experiment.recipe)} on {experiment.dataset.name}, {labels}"
    page = write_page(home.path / "report.html", [finished], title=title)
    console.print()
    for warning in warnings_of(group_runs([finished])):
        complain(warning, "Warning")
    show_facts(console, "Results", result_facts(finished.results, home.path, page))
    following = ["evaluate", str(home.path), *trust_flags()]
    if (home.path / PRETRAINED).exists():
        following = ["train", str(experiment.recipe.data["name"]), "--from", str(home.path)]
    console.print(f"Next: {shlex.join(['epass', *following])}", markup=False, soft_wrap=True)
