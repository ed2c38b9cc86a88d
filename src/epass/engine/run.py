"""A recipe becomes a run folder: train, report, test, save, and write down what came out."""

from __future__ import annotations

import shlex
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..data import Dataset, Split, concatenate, cut, decoder_of, find_recorded, split_text
from ..data.stream.decoder import DEVICE
from ..errors import InputError
from ..evaluation import find_alarms, find_doubts, find_swallowing, open_set_accuracy, score
from ..evaluation.alarms import EARLIEST, EARLY
from ..machine.device import choose_device, device_name
from ..machine.distributed import alone, bytes_of_first_rank, first_rank_says, of_first_rank, on_first_rank, rank
from ..recipe import Recipe, differences, read_recipe
from ..runs import METRICS, PRETRAINED, RESULTS, SPLIT, WEIGHTS, RunFolder, environment, write_embeddings
from ..runs.exported import FORMAT
from ..training.checkpoint import Unreported, restore_newest, write_checkpoint
from ..training.loop import Report, train
from ..training.sharing import share_start
from ..training.window import NotFiniteError, Window
from ..training.writer import Writer
from ..untrusted import LARGEST_JSON, read_limited
from .begun import check_decoder, recorded_decoder
from .build import Experiment, build, open_examples, split_for
from .copies import check_copies
from .infer import answering_network, infer, predict
from .keep import see_test_images
from .models import display_names, kept_model, learned_without_labels, with_located_code

LENGTH = ("plan.steps", "plan.report_every", "plan.evaluate_every")  # keys that change when a run is to be longer
ANY_TIME = "data.skip_unreadable:"  # changes nothing of a run that has begun: its own images are on record
NOT_RECORDED = "The run has no split.json: whether its data changed since cannot be checked."


def run(
    recipe: Recipe,
    folder: str | Path,
    *,
    dataset: Dataset | None = None,
    device: str | torch.device = "auto",
    resume: bool = False,
    force: bool = False,
    allow_leak: bool = False,
    command: str = "",
    stop: Callable[[], None] = lambda: None,
) -> Iterator[Report]:
    """Train a recipe in a run folder and yield a report whenever there is something to say.

    Args:
        recipe: What to train.
        folder: Where everything is written; must be new unless `resume` or `force`.
        dataset: The images, if they are open already; else the recipe's are read.
        device: "auto", "cpu", "cuda" or "mps".
        resume: Continue from the newest intact checkpoint; the recipe must be the one in the folder.
        force: Throw away the run that is in the folder.
        allow_leak: Train although test images are among the labeled ones.
        command: The line that started this, for the record.
        stop: Called before every step; what it raises ends the run, with a checkpoint of the steps done.
    """
    recipe = with_located_code(recipe)
    place = choose_device(device)
    home, split = RunFolder(folder), None
    decided = resume and bool(of_first_rank(home.exists()))  # by whoever started the run
    if decided:
        on_first_rank(lambda: check_same(recipe, home))
        decoder = recorded_decoder(home)
        dataset = open_examples(recipe, place, dataset, decoder=decoder)
        check_decoder(home, decoder, dataset)
        dataset, split, change = continued(recipe, home, split_record(home), dataset)
        if change:
            warnings.warn(change, stacklevel=2)
    experiment = build(recipe, place, dataset, split)
    steps = train_steps(experiment, home, resume=resume, force=force, command=command, stop=stop)
    with closing(experiment.feed), closing(steps):
        unchecked = not (allow_leak or decided or experiment.method.pretraining)  # where no label teaches
        if unchecked and (doubt := check_copies(recipe, experiment.dataset, experiment.split, allow_leak=False)):
            warnings.warn(doubt, stacklevel=2)
        yield from (report for report in steps if report is not None)


def train_steps(
    experiment: Experiment,
    home: RunFolder,
    *,
    resume: bool = False,
    force: bool = False,
    command: str = "",
    stop: Callable[[], None] = lambda: None,
) -> Generator[Report | None]:
    """Train an experiment in its folder and yield after every step: a report where one is due, or None.

    The arguments are those of `run`. A stop, and in a single process also a batch that cannot be had, leaves a
    checkpoint of the steps done; what goes wrong within a step leaves those before it, and within the first one no run.
    """
    with ExitStack() as held:
        held.enter_context(closing(experiment.feed))
        training = Training(experiment, home)
        start = training.begin(held, resume=resume, force=force, command=command)
        window = training.unreported.window
        steps = train(*experiment.pipeline, experiment.optimizer, experiment.plan, start=start, window=window)
        for done in range(start, experiment.plan.steps):
            training.save_if_due(done)
            try:
                stop()
            except BaseException:
                training.keep(done)
                raise
            try:
                report = next(steps)
            except BaseException as problem:
                if window.whole and alone():  # of several processes, the others are in the middle of this step
                    training.keep(done)
                if isinstance(problem, Exception) and not (resume or done or window.count or rank()):
                    home.clear()  # there is nothing to go on from, and the next attempt needs no --force
                raise
            yield None if report is None else training.record(report)
        on_first_rank(training.writer.wait)
        finish(experiment, home, tested=training.tested)


class Training:
    """What a run holds while it trains: its folder, the sums since the last report, a clock, a thread that writes."""

    writer: Writer

    def __init__(self, experiment: Experiment, home: RunFolder) -> None:
        self.experiment, self.home = experiment, home
        self.unreported = Unreported(Window(0))
        self.saved = 0  # the step of the newest checkpoint
        self.began = 0.0  # by the clock, less the time of earlier processes
        self.alarmed = False  # somebody was told that this leads nowhere
        self.tested: Tested | None = None  # what was answered after the last step

    def begin(self, held: ExitStack, *, resume: bool, force: bool, command: str) -> int:
        """Take the folder, for as long as `held` lasts, and say after which step the training goes on."""
        on_first_rank(lambda: self.open_folder(held, resume, force, command))
        self.saved = share_start(self.saved, self.experiment.progress, self.unreported)
        self.writer = held.enter_context(Writer(self.experiment.plan.checkpoint_minutes))  # ends before the lock
        rows = [] if rank() else self.home.metrics()
        self.began = time.perf_counter() - (self.unreported.seconds or (rows[-1]["seconds"] if rows else 0.0))
        return self.saved

    def open_folder(self, held: ExitStack, resume: bool, force: bool, command: str) -> None:
        """Go on with the run that is there, or begin one."""
        experiment, home = self.experiment, self.home
        held.enter_context(home.hold())
        if resume and home.exists():
            check_same(experiment.recipe, home)
            home.sweep()
            self.saved = restore_newest(home.checkpoints, experiment.progress, self.unreported)
            home.truncate_metrics(self.saved)
        else:
            home.create(force)
            write_beginning(home, experiment.recipe, experiment.dataset, experiment.split, command, experiment.device)

    def seconds(self) -> float:
        """Training time of the whole run."""
        return time.perf_counter() - self.began

    def record(self, report: Report) -> Report:
        """Write a report down, with scores where a test is due, after which there is a checkpoint."""
        due = self.experiment.plan.evaluates_after(report.step)
        self.tested = tested = run_test(self.experiment, report.step) if due else None
        values, by_class = report.values | (tested.values if tested else {}), report.by_class if tested else {}
        row = {"step": report.step, "seconds": round(self.seconds(), 3), **values, **by_class}
        if rank() == 0:
            self.home.append_metrics(row)
        if tested:
            self.save(report.step)
        return Report(report.step, values, by_class, self.alarms(row, tested.answers) if tested else ())

    def alarms(self, row: dict[str, Any], answers: Tensor) -> tuple[str, ...]:
        """What a test in the middle of a run gives reason to say, once; how it ends is told at its end."""
        experiment, step = self.experiment, row["step"]
        early, untested = step < max(EARLIEST, EARLY * experiment.plan.steps), not len(experiment.split.test)
        if early or untested or step == experiment.plan.steps or self.alarmed:
            return ()
        who = display_names(experiment.recipe)[experiment.recipe.method["name"]]
        labels, start = experiment.split.test.labels, experiment.method.pretraining
        found = find_alarms(answers, labels, f"{who} after {step:,} steps", row, start=start)
        if row.get("used_by_class"):
            found += find_swallowing(row, experiment.split.classes, who)
        self.alarmed = bool(found)
        return tuple(found)

    def save_if_due(self, done: int) -> None:
        """Save when it is time for a checkpoint, by the clock of the first of several processes."""
        if first_rank_says(self.writer.is_due) and done > self.saved:
            self.save(done)

    def keep(self, done: int) -> None:
        """Save the steps done, unless they are, and wait until they are on disk."""
        with suppress(NotFiniteError):  # then the last good checkpoint is the one to go on from
            if done > self.saved:
                self.save(done)
            self.writer.wait()

    def save(self, done: int) -> None:
        """Begin to write a checkpoint of the steps done."""
        self.unreported.seconds = self.seconds()
        self.unreported.window.agree()
        state = self.experiment.progress.tensors() | self.unreported.tensors()
        on_first_rank(lambda: self.writer.start(state, partial(self.write, done)))
        self.saved = done

    def write(self, done: int, state: dict[str, Tensor]) -> None:
        self.home.sync_metrics()
        write_checkpoint(self.home.checkpoints, done, state)


class Tested(NamedTuple):
    """What a network answered in a test, and what that is worth."""

    answers: Tensor  # (N, C) about the test images or, where there are none, the labeled ones
    scores: dict[str, float]  # by their keys; none where there is no test
    validation: Tensor | None  # (V, C)
    values: dict[str, float]  # by the names of a report


def run_test(experiment: Experiment, step: int) -> Tested:
    """Test after `step` steps; where there is no test, the labeled images show whether the weights are numbers."""
    net, split = answering_network(experiment), experiment.split
    answers = predict(net, split.test if len(split.test) else split.labeled, experiment.dataset, experiment.device)
    if not answers.isfinite().all():
        raise NotFiniteError(f"The weights were no longer finite at step {step}.")
    scores = score(answers, split.test.labels) if len(split.test) else {}
    values, validation = {f"test_{name}": value for name, value in scores.items()}, None
    if split.validation is not None:
        validation = predict(net, split.validation, experiment.dataset, experiment.device)
        values["valid_error"] = score(validation, split.validation.labels)["error"]
    return Tested(answers, scores, validation, values)


def check_same(recipe: Recipe, home: RunFolder) -> None:
    """Refuse to resume a run under another recipe."""
    stored = home.path / "recipe.toml"
    changed = [text for text in differences(recipe, read_recipe(str(stored))) if not text.startswith(ANY_TIME)]
    longer = bool(changed) and all(change.startswith(LENGTH) for change in changed)
    if longer and (home.path / RESULTS).is_file():
        line = shlex.join(["epass", "train", "--continue", str(home.path), "--steps", str(recipe.plan["steps"])])
        raise InputError(f"'{home.path}' is finished ({'; '.join(changed)}): go on from it with {line}")
    if changed:
        raise InputError(f"'{home.path}' was started with another recipe ({'; '.join(changed)}).")


def split_record(home: RunFolder) -> bytes:
    """The split file of a run, on all ranks; empty if an old version wrote none."""
    path, content = home.path / SPLIT, [b" "]
    if not of_first_rank(path.is_file()):
        return b""

    def read() -> None:
        content[0] = read_limited(path, LARGEST_JSON) or content[0]

    on_first_rank(read)
    return bytes_of_first_rank(content[0])


def continued(recipe: Recipe, home: RunFolder, record: bytes, dataset: Dataset) -> tuple[Dataset, Split, str]:
    """The data and the split that a run began with, and what has to be said of changes since, if anything."""
    if not record:
        return dataset, split_for(recipe, dataset), NOT_RECORDED
    found = find_recorded(record, home.path / SPLIT, dataset)
    change = f"{found.change}: it goes on with its own." if found.change else ""
    return found.dataset, cut(found.dataset, found.positions), change


def write_beginning(
    home: RunFolder, recipe: Recipe, dataset: Dataset, split: Split, command: str, device: torch.device
) -> None:
    """Make an empty folder that of a run."""
    facts = environment(recipe.seed, command, str(device))
    decoder = {"decoder": DEVICE} if decoder_of(dataset.train) == DEVICE else {}
    home.write_json("environment.json", facts | {"device_name": device_name(device)} | decoder)
    home.write_text(SPLIT, split_text(dataset, split.positions))
    home.write_text("recipe.toml", recipe.to_toml())  # last: from now on the folder is a run


def results_of(
    split: Split, scores: Mapping[str, float], best: Mapping[str, Any], *, steps: int, seconds: float
) -> dict[str, Any]:
    """What results.json says of every run that was tested; `best` is the row of metrics with the lowest test error."""
    return {
        **untested_results(split, steps=steps, seconds=seconds),
        "last": scores,
        "best_on_test": {"step": best["step"], "error": best["test_error"]},
    }


def untested_results(split: Split, *, steps: int, seconds: float) -> dict[str, Any]:
    """What results.json says of a run without a test."""
    return {
        "steps": steps,
        "seconds": seconds,
        "labels": len(split.labeled),
        "images": len(split.unlabeled),
        "held_out": split.held_out,
    }


def finish(
    experiment: Experiment,
    home: RunFolder,
    rows: Sequence[Mapping[str, Any]] | None = None,
    beside: Mapping[str, Any] | None = None,
    tested: Tested | None = None,
) -> None:
    """Write what people keep: weights, model card data, predictions, results and what was found `beside` these.

    `rows` are those of the metrics, unless they are in the folder; `tested` is the test after the last step, if this
    process has made it.
    """
    net, dataset, recipe = answering_network(experiment), experiment.dataset, experiment.recipe
    test, kept_back = experiment.split.test, experiment.split.validation
    tested = tested or run_test(experiment, experiment.plan.steps)
    validation = None
    if kept_back is not None and tested.validation is not None:
        validation = (tested.validation.numpy(), kept_back.labels.numpy())
    open_set = open_set_results(experiment, net)
    seen = see_test_images(experiment, net, tested.answers) if len(test) else None
    if rank():  # what follows asks nothing of the network
        return
    net, facts = kept_model(recipe, dataset, test, net)
    weights = {name: tensor.detach().cpu().numpy() for name, tensor in net.state_dict().items()}
    home.write_tensors(WEIGHTS, weights)
    if experiment.method.pretraining:
        learned = {name: value.cpu().numpy() for name, value in learned_without_labels(experiment.method).items()}
        home.write_tensors(PRETRAINED, learned)
    home.write_json(
        "model.json",
        {
            "format": FORMAT,
            "classes": experiment.split.classes,
            **facts,
            "net": dict(recipe.net),
            "method": dict(recipe.method),
            "projector": recipe.projector,
            "wrapper": recipe.wrapper,
            "names": display_names(recipe),
        },
    )
    rows, steps = rows or home.metrics(), experiment.plan.steps
    if seen is None:
        home.write_json("results.json", untested_results(experiment.split, steps=steps, seconds=rows[-1]["seconds"]))
        return
    home.write_predictions(tested.answers.numpy(), test.labels.numpy(), validation)
    write_embeddings(home, seen)
    wanted = ("test_error", *(["valid_error"] if validation is not None else []))
    measured = [row for row in rows if all(row.get(name) is not None for name in wanted)]
    if not measured:  # each run tests after its last step: somebody took the rows away
        raise InputError(f"'{home.path / METRICS}' is damaged: it holds no test of the run.")
    best = min(measured, key=lambda row: row["test_error"])
    results = results_of(experiment.split, tested.scores, best, steps=steps, seconds=rows[-1]["seconds"])
    classes, start = experiment.split.classes, experiment.method.pretraining
    results["alarms"] = find_doubts(tested.answers, test.labels, classes, row=rows[-1], start=start)
    if experiment.split.validation is not None:  # few images are often equally right: the last of such steps counts
        chosen = min(reversed(measured), key=lambda row: row["valid_error"])
        selected = {"step": chosen["step"], "error": chosen["test_error"], "valid_error": chosen["valid_error"]}
        results["validation_selected"] = {**selected, "images": len(experiment.split.validation)}
    home.write_json("results.json", results | open_set | dict(beside or {}))


def open_set_results(experiment: Experiment, net: nn.Module) -> dict[str, Any]:
    """How well a method that can say "none of these" tells the classes and the images of none of them apart."""
    method = experiment.method.host  # whatever is around it, the open-set head is its own
    if experiment.split.outliers is None or not method.open_set:
        return {}
    everything = concatenate(experiment.split.test, experiment.split.outliers)
    features = infer(net, everything, experiment.dataset, experiment.device).features
    accuracy = open_set_accuracy(method.open_logits(features).cpu(), everything.labels)
    return {"open_set": {"balanced_accuracy": accuracy, "outliers": len(experiment.split.outliers)}}
