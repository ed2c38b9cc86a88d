"""Train one run, on a few labels or on none."""

from __future__ import annotations

import shlex
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError, RunError
from ..extensions import trust_flags
from ..files import check_folder
from ..loggers import Logger, logged, make_loggers
from ..machine.launch import all_or_none, devices_asked, is_first_process, join_processes, restarts
from ..machine.signals import Stopped
from ..recipe import Recipe, read_recipe
from ..recipes import builtin_recipes
from ..runs import RunFolder, load_run
from .budget import (
    Budget,
    budget_facts,
    enough_steps,
    limited,
    misjudged,
    parse_budget,
    steps_in,
    steps_planned,
    too_few,
)
from .continued import carried_over, introduce
from .doubts import doubts_about
from .events import Caution, Event, Notice, Plan, Progress, Result, with_arguments_of
from .features import embedded
from .flags import DEFAULT_METHOD
from .guard import guard_facts, guarded
from .plan import plan_facts, result_facts
from .report import describe_runs
from .request import (
    PretrainRequest,
    Request,
    compose,
    default_folder,
    fitting,
    size_words,
    starting_recipe,
    trusting,
)
from .seen import check_place
from .words import duration

if TYPE_CHECKING:
    from ..engine.build import Experiment
    from ..training.loop import Report

FIRST_ESTIMATE = 3.0  # seconds of training after which people want to know how long it takes
RECENT = 3.0  # seconds by which the present pace is told


@with_arguments_of(Request)
def train(request: Request) -> Iterator[Event]:
    """Train a classifier on a few labeled and many unlabeled images.

    The flags and --set change the recipe, which decides everything else.
    """
    from .fine_tune import fine_tune

    return fine_tune(request) if request.fine_tune else train_one(request)


@with_arguments_of(PretrainRequest)
def pretrain(request: PretrainRequest) -> Iterator[Event]:
    """Learn from images alone, then train with 'epass train DATA --from RUN'.

    No label is used for learning. Labeled images only judge the features:
    every test asks for the class whose mean features are nearest.
    """
    return train_one(request)


def train_one(request: Request, given: Recipe | None = None) -> Iterator[Event]:
    """Train what was asked for, on top of the recipe that is `given`, or say why not."""
    seconds, loggers = parse_budget(request), make_loggers(request.log)
    if request.resume and request.force:
        raise InputError("--resume continues a run and --force throws it away: give one of them.")
    request = trusting(request)
    from ..machine.distributed import of_first_rank, on_first_rank

    place = join_processes(request.device)
    if restarts():
        request = replace(request, resume=True, force=False)
    base = given or (recipe_to_resume(request.out) if is_continued(request) else starting_recipe(request))
    home = RunFolder(request.out or default_folder(compose(request, base)))
    continues = bool(of_first_rank(request.resume and home.exists()))
    if seconds is not None and continues:
        request, seconds = replace(request, steps=int(of_first_rank(steps_planned(home)))), None
    asked = compose(request, base)
    on_first_rank(lambda: check_request(asked, home, request))
    if request.earlier is not None and not continues:
        yield from introduce(Path(request.earlier), asked)
    try:
        with fitting(asked.plan.get("labeled_batch", 64), "plan.labeled_batch", "--set plan.labeled_batch="):
            experiment = yield from prepare(request, base, place, home if continues else None)
            budget, most = None, enough_steps(experiment)
            if seconds is not None:
                budget = Budget(seconds, most)
                steps = limited(steps_in(seconds, [experiment]), most)
                experiment = with_steps(steps, experiment, request, base)
            _ = experiment.pipeline  # where a GPU has too little memory, this fails, and no folder is left behind
            done = steps_kept(home) if request.resume else 0
            meant, sized = base.data.get("name", ""), "" if given or continues else size_words(request)
            beside = guard_facts(experiment, request)
            limit = budget_facts(experiment.plan.steps, seconds, most)
            yield Plan("Plan", plan_facts(experiment, home.path, done, meant, sized) | limit | beside)
            yield from cautions(experiment, budget)
            while better := (yield from follow(experiment, home, request, loggers, done, budget)):
                planned = experiment.plan.steps
                now = f"The machine is {'faster' if better > planned else 'slower'} than when its steps were timed"
                yield Notice(f"{now}: starting over with {better:,} steps instead of {planned:,}.")
                experiment = with_steps(better, experiment, request, base)
                request = replace(request, resume=False, force=True)
                yield Plan("Plan", plan_facts(experiment, home.path, meant=meant, sized=sized) | beside)
                yield from cautions(experiment, budget)
            if budget is not None and (
                sentence := misjudged(budget.spent, budget.seconds, experiment.plan.steps, most)
            ):
                yield Caution(sentence)
            if beside:
                yield from guarded(experiment, home, request)
        if is_first_process():
            yield from finish(experiment, home, request.recipe)
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
    if request.fine_tune and request.command:  # another run follows this one
        return request.command if request.resume else f"{request.command} --resume"
    command = ["epass", "pretrain" if request.pretrain else "train", "--resume", "--out", str(home.path)]
    command += [] if request.device == "auto" else ["--device", str(request.device)]
    command += [] if request.guard is None else ["--guard" if request.guard else "--no-guard"]
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


def is_continued(request: Request) -> bool:
    """Whether nothing but the folder of a run says what to train."""
    return request.resume and request.data is None and request.recipe is None


def recipe_to_resume(folder: str | Path | None) -> Recipe:
    """The recipe of a run that is to be continued."""
    if folder is None:
        raise InputError("Say which run to resume: --out FOLDER.")
    recipe = read_recipe(str(load_run(folder).path / "recipe.toml"))
    check_place(folder, recipe)
    return recipe


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
    else:
        check_folder(home.path)


def prepare(request: Request, base: Recipe, device: str, began: RunFolder | None) -> Generator[Event, None, Experiment]:
    """The objects of a run, or of the one that `began`."""
    from ..data import decide, open_dataset
    from ..engine.begun import recorded_decoder
    from ..engine.build import build, reading_settings, split_for
    from ..engine.copies import check_copies
    from ..engine.run import continued, split_record
    from ..machine.device import choose_device

    recipe, place = compose(request, base), choose_device(device)
    record = b"" if began is None else split_record(began)
    with all_or_none():
        name, how = recipe.data["name"], reading_settings(recipe)
        how |= {} if began is None else {"decoder": recorded_decoder(began)}
        sentences: list[str] = []
        dataset = open_dataset(name, **how, progress=request.reading, notice=sentences.append)
        if recipe.features is None:  # else those whose features are kept have a say in it
            sentences += filter(None, [decide(dataset.train, place)])
        yield from map(Notice, sentences)
        yield from doubts_about(dataset)
        dataset = yield from embedded(recipe, dataset, place, request.stop)
        if began is None and request.earlier is not None:
            split = yield from carried_over(recipe, Path(request.earlier), dataset)
        elif began is None:
            split = split_for(recipe, dataset)
        else:
            dataset, split, change = continued(recipe, began, record, dataset)
            yield from [Notice(change)] if change else []
        if began is None and not request.pretrain:  # whoever started a run that is resumed has decided about it
            doubt = check_copies(recipe, dataset, split, allow_leak=request.allow_leak)
            yield from [Caution(doubt)] if doubt else []
        return build(recipe, place, dataset, split)


def with_steps(steps: int, experiment: Experiment, request: Request, base: Recipe) -> Experiment:
    """The same experiment, not begun, with another number of steps."""
    from ..engine.build import build

    recipe = compose(replace(request, steps=steps), base)
    return build(recipe, experiment.device, experiment.dataset, experiment.split)


def cautions(experiment: Experiment, budget: Budget | None) -> Iterator[Event]:
    """What has to be said about a number of steps that time decides."""
    plan = experiment.plan
    labels = len(experiment.split.labeled)
    if budget is not None and (few := too_few(plan.steps, labels, plan.labeled_batch, budget.seconds)):
        yield Caution(few)


def follow(
    experiment: Experiment,
    home: RunFolder,
    request: Request,
    loggers: Sequence[Logger],
    done: int,
    budget: Budget | None,
) -> Generator[Event, None, int]:
    """Train, and say how it goes and how long it takes.

    Within a `budget` the number of steps is judged by the first part of the run: returns another one to start over
    with, if that is better, or 0 at the end. Loggers hear of a run when it is settled.
    """
    from ..engine.run import train_steps
    from ..training.window import NotFiniteError

    resume, force, command, stop = request.resume, request.force, request.command, request.stop
    listening, settings = loggers if is_first_process() else (), experiment.recipe.flat()
    clock = Clock(done, experiment.plan.steps, experiment.device.type == "cpu")
    early: list[Report | None] = []
    try:
        training = train_steps(experiment, home, resume=resume, force=force, command=command, stop=stop)
        with closing(training) as steps:
            if budget is not None and (better := (yield from judge(budget, clock, steps, early))):
                return better
            for number, report in enumerate(logged(chain(early, steps), listening, home.path, settings)):
                if number >= len(early):
                    yield from clock.tick(report)
        return 0
    except NotFiniteError as problem:
        advice = "a lower plan.lr may help"
        if problem.at_once:
            advice = "no weight had moved yet, so the reason is not plan.lr but a setting of the method or the data"
        raise RunError(f"{problem} {what_is_kept(home)}; {advice}.") from None


def judge(
    budget: Budget, clock: Clock, steps: Iterator[Report | None], made: list[Report | None]
) -> Generator[Event, None, int]:
    """Make the first part of a run, and say whether another number of steps would be better: 0 if not."""
    from ..machine.distributed import first_rank_says, of_first_rank

    for report in steps:
        made.append(report)
        yield from clock.tick(report)
        if clock.knows and clock.step < clock.steps and (better := int(of_first_rank(budget.better_steps(clock)))):
            return better
        if first_rank_says(lambda: budget.settled):
            break
    return 0


class Clock:
    """The time that a run still takes, told by the steps of this process, which may start anywhere."""

    def __init__(self, done: int, steps: int, exact: bool) -> None:
        self.step, self.steps = done, steps
        self.exact = exact  # the host does not run ahead of the device, whose time only a report can tell
        self.began = self.since = time.perf_counter()
        self.made = 0  # steps since `since`
        self.pace = 0.0  # seconds per step
        self.marks = deque([(self.since, done)])  # when so many steps were done, of late
        self.knows = False  # how far the device is
        self.waiting = True  # for the first estimate

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.began

    @property
    def left(self) -> float:
        return (self.steps - self.step) * self.pace

    @property
    def recent_pace(self) -> float:
        """Seconds per step of late."""
        (then, before), (now, step) = self.marks[0], self.marks[-1]
        return (now - then) / (step - before)

    def tick(self, report: Report | None) -> Iterator[Event]:
        """A step was made: what there is to say."""
        self.step = self.step + 1 if report is None else report.step
        self.made += 1
        self.knows = self.exact or report is not None
        now = time.perf_counter()
        self.pace = (now - self.since) / self.made
        self.marks.append((now, self.step))
        while len(self.marks) > 3 and now - self.marks[1][0] > RECENT:
            self.marks.popleft()
        if self.since == self.began:  # the first step takes longer than any other: the next estimates leave it out
            self.since, self.made = now, 0
        known = report is not None or (self.exact and self.spent > FIRST_ESTIMATE)
        if self.waiting and self.step < self.steps and known:
            self.waiting = False
            yield Progress(self.step, self.steps, seconds_left=self.left)
            yield Notice(f"About {duration(max(1.0, self.spent + self.left))}.")
        if report is not None:
            yield Progress(report.step, self.steps, report.values, self.left)
            yield from map(Caution, report.alarms)


def finish(experiment: Experiment, home: RunFolder, named: str | None) -> Iterator[Event]:
    """Write the page and say what came out, and what to do next; `named` is the recipe that was asked for."""
    from ..report import group_runs, warnings_of, write_page

    finished = load_run(home.path)
    assert finished.results is not None
    page = None
    if "last" in finished.results:  # else there was no test, and so nothing to draw
        page = write_page(home.path / "report.html", [finished], title=describe_runs([finished]))
        yield from map(Caution, warnings_of(group_runs([finished])))
    following = ["predict", str(home.path), "PHOTOS", *trust_flags()]
    if finished.pretraining:
        of_same_data = f"{(named or '').partition('-')[0]}-{DEFAULT_METHOD}"
        recipe = ["--recipe", of_same_data] if of_same_data in builtin_recipes() else []
        following = ["train", str(experiment.recipe.data["name"]), *recipe, "--from", str(home.path)]
    yield Result(
        "Results",
        result_facts(finished, page),
        values={"run": str(home.path), "data": experiment.dataset.name, "results": finished.results},
        files={**({} if page is None else {"page": page}), "model": home.path / "model.safetensors"},
        following=shlex.join(["epass", *following]),
    )
