"""Train one run, on a few labels or on none."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError, RunError
from ..extensions import trust_flags
from ..loggers import Logger, logged, make_loggers
from ..machine.launch import all_or_none, devices_asked, is_first_process, join_processes, restarts
from ..machine.signals import Stopped
from ..recipe import Recipe, read_recipe
from ..runs import PRETRAINED, RunFolder, load_run
from .budget import parse_budget, steps_in, steps_planned
from .events import Caution, Event, Notice, Plan, Progress, Result, with_arguments_of
from .plan import plan_facts, result_facts
from .request import (
    PretrainRequest,
    Request,
    compose,
    default_folder,
    describe_recipe,
    fitting,
    starting_recipe,
    trusting,
)
from .words import duration

if TYPE_CHECKING:
    from ..engine.build import Experiment
    from ..training.loop import Report

FIRST_ESTIMATE = 3.0  # seconds of training after which people want to know how long it takes


@with_arguments_of(Request)
def train(request: Request) -> Iterator[Event]:
    """Train a classifier on a few labeled and many unlabeled images.

    The flags and --set change the recipe, which decides everything else.
    """
    return train_one(request)


@with_arguments_of(PretrainRequest)
def pretrain(request: PretrainRequest) -> Iterator[Event]:
    """Learn from images alone, then train with 'epass train DATA --from RUN'.

    No label is used for learning. Labeled images only judge the features:
    every test asks for the class whose mean features are nearest.
    """
    return train_one(request)


def train_one(request: Request) -> Iterator[Event]:
    """Train what was asked for, or say why not."""
    seconds, loggers = parse_budget(request), make_loggers(request.log)
    if request.resume and request.force:
        raise InputError("--resume continues a run and --force throws it away: give one of them.")
    request = trusting(request)
    from ..machine.distributed import of_first_rank, on_first_rank

    place = join_processes(request.device)
    if restarts():
        request = replace(request, resume=True, force=False)
    continued = request.resume and request.data is None and request.recipe is None
    base = recipe_to_resume(request.out) if continued else starting_recipe(request)
    home = RunFolder(request.out or default_folder(compose(request, base)))
    continues = bool(of_first_rank(request.resume and home.exists()))
    if seconds is not None and continues:
        request, seconds = replace(request, steps=int(of_first_rank(steps_planned(home)))), None
    asked = compose(request, base)
    on_first_rank(lambda: check_request(asked, home, request))
    may_leak = request.allow_leak or continues  # whoever started a run that is resumed has decided about it
    try:
        with fitting(asked.plan.get("labeled_batch", 64), "plan.labeled_batch", "--set plan.labeled_batch="):
            sentences: list[str] = []
            experiment = prepare(request, base, place, seconds, may_leak, sentences.append)
            yield from map(Notice, sentences)
            done = steps_kept(home) if request.resume else 0
            yield Plan("Plan", plan_facts(experiment, home.path, done))
            yield from follow(experiment, home, request, loggers, done)
        if is_first_process():
            yield from finish(experiment, home)
        else:
            yield Result()
    except KeyboardInterrupt as interrupt:
        sentence = f"continue with {line_to_go_on(request, home)}" if home.exists() else "nothing was written yet."
        raise Stopped(sentence, interrupt) from None
    except OSError as problem:  # a full disk, a folder that became read-only
        if problem.filename is None or problem.strerror is None or not home.exists():
            raise
        raise RunError(
            f"{problem.strerror}: '{problem.filename}'. {what_is_kept(home)}; mend this, then continue with "
            f"{line_to_go_on(request, home)}"
        ) from None


def line_to_go_on(request: Request, home: RunFolder) -> str:
    """What to type to continue a run."""
    command = ["epass", "pretrain" if request.pretrain else "train", "--resume", "--out", str(home.path)]
    command += [] if request.device == "auto" else ["--device", request.device]
    command += trust_flags()
    devices = devices_asked()
    return shlex.join([*command, *([] if devices is None else ["--devices", str(devices)])])


def what_is_kept(home: RunFolder) -> str:
    """Where a run is that failed, and whether it can be continued in the middle."""
    kept = bool(list(home.checkpoints.glob("step-*")))
    return f"The run is in '{home.path}', {'its last good checkpoint is kept' if kept else 'it had no checkpoint yet'}"


def steps_kept(home: RunFolder) -> int:
    """The step of the newest checkpoint in a run folder, 0 without one."""
    from ..training.checkpoint import checkpoints

    return max((int(path.stem.removeprefix("step-")) for path in checkpoints(home.checkpoints)), default=0)


def recipe_to_resume(folder: str | Path | None) -> Recipe:
    """The recipe of a run that is to be continued."""
    if folder is None:
        raise InputError("Say which run to resume: --out FOLDER.")
    return read_recipe(str(load_run(folder).path / "recipe.toml"))


def check_request(recipe: Recipe, home: RunFolder, request: Request) -> None:
    """Refuse what cannot work before anything is read, built or written."""
    from ..engine.build import check_recipe
    from ..engine.run import check_same

    if home.path.exists() and not (home.exists() and (request.resume or request.force)):
        home.create(force=False)  # changes nothing in a folder that is there: says why this one cannot be used
    check_recipe(recipe)
    if request.resume and home.exists():
        check_same(recipe, home)
    if home.exists():
        with home.hold():  # says which process is in it; the run takes the folder for good
            pass


def prepare(
    request: Request, base: Recipe, device: str, seconds: float | None, may_leak: bool, notice: Callable[[str], None]
) -> Experiment:
    """The objects of the run; with a budget, one of as many steps as fit into `seconds`."""
    from ..data import open_dataset
    from ..engine.build import build, reading_settings, split_for
    from ..engine.run import refuse_leaks
    from ..machine.device import choose_device

    recipe, place = compose(request, base), choose_device(device)
    with all_or_none():
        name, how = recipe.data["name"], reading_settings(recipe)
        dataset = open_dataset(name, **how, progress=request.reading, notice=notice)
        if not may_leak:
            refuse_leaks(recipe, split_for(recipe, dataset))
        experiment = build(recipe, place, dataset)
    if seconds is not None:
        timed = replace(request, steps=steps_in(seconds, [experiment]))
        experiment = build(compose(timed, base), place, dataset)
    _ = experiment.pipeline  # where a GPU has too little memory, this fails, and no folder is left behind
    return experiment


def follow(
    experiment: Experiment, home: RunFolder, request: Request, loggers: Sequence[Logger], done: int
) -> Iterator[Event]:
    """Train, and say how it goes and how long it takes."""
    from ..engine.run import train_steps
    from ..training.window import NotFiniteError

    resume, force, command, stop = request.resume, request.force, request.command, request.stop
    listening, settings = loggers if is_first_process() else (), experiment.recipe.flat()
    clock, waiting = Clock(done, experiment.plan.steps), True
    try:
        training = train_steps(experiment, home, resume=resume, force=force, command=command, stop=stop)
        with closing(training) as steps:
            for report in logged(steps, listening, home.path, settings):
                left = clock.tick(report)
                # the host runs ahead of a GPU, whose time only a report can tell
                known = experiment.device.type == "cpu" and clock.spent > FIRST_ESTIMATE
                if waiting and clock.step < clock.steps and (known or report is not None):
                    waiting = False
                    yield Progress(clock.step, clock.steps, seconds_left=left)
                    yield Notice(f"About {duration(max(1.0, clock.spent + left))}.")
                if report is not None:
                    yield Progress(report.step, clock.steps, report.values, left)
    except NotFiniteError as problem:
        raise RunError(f"{problem} {what_is_kept(home)}; a lower plan.lr may help.") from None


class Clock:
    """The time that a run still takes, told by the steps of this process, which may start anywhere."""

    def __init__(self, done: int, steps: int) -> None:
        self.step, self.steps = done, steps
        self.began = self.since = time.perf_counter()
        self.made = 0  # steps since `since`

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.began

    def tick(self, report: Report | None) -> float:
        """A step was made: the seconds that are left."""
        self.step = self.step + 1 if report is None else report.step
        self.made += 1
        now = time.perf_counter()
        pace = (now - self.since) / self.made
        if self.since == self.began:  # the first step takes longer than any other: the next estimates leave it out
            self.since, self.made = now, 0
        return (self.steps - self.step) * pace


def finish(experiment: Experiment, home: RunFolder) -> Iterator[Event]:
    """Write the page and say what came out."""
    from ..report import group_runs, warnings_of, write_page

    finished = load_run(home.path)
    assert finished.results is not None
    labels = f"{len(experiment.split.labeled):,} labels"
    title = f"{describe_recipe(experiment.recipe)} on {experiment.dataset.name}, {labels}"
    page = write_page(home.path / "report.html", [finished], title=title)
    for warning in warnings_of(group_runs([finished])):
        yield Caution(warning)
    following = ["predict", str(home.path), "PHOTOS", *trust_flags()]
    if (home.path / PRETRAINED).exists():
        following = ["train", str(experiment.recipe.data["name"]), "--from", str(home.path)]
    yield Result(
        "Results",
        result_facts(finished.results, home.path, page),
        values={"run": str(home.path), "data": experiment.dataset.name, "results": finished.results},
        files={"page": page, "model": home.path / "model.safetensors"},
        following=shlex.join(["epass", *following]),
    )
