"""A recipe becomes a run folder: train, report, test, save, and write down what came out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from torch import nn

from ..data import concatenate, split_text
from ..errors import InputError
from ..evaluate import open_set_accuracy, score
from ..machine.device import choose_device
from ..machine.distributed import on_first_rank, rank
from ..methods import PRETRAINING
from ..recipe import Recipe, differences, read_recipe
from ..runs import PRETRAINED, WEIGHTS, RunFolder, environment, write_embeddings
from ..train.checkpoint import Unreported, restore_newest, write_checkpoint
from ..train.loop import Report, train
from ..train.sharing import share_start
from ..train.window import NotFiniteError, Window
from ..train.writer import Snapshot, Writer, saving_between_steps
from .build import Experiment, build
from .infer import infer, predict
from .keep import see_test_images
from .models import learned_without_labels


def run(
    recipe: Recipe,
    folder: str | Path,
    *,
    device: str = "auto",
    resume: bool = False,
    force: bool = False,
    command: str = "",
    experiment: Experiment | None = None,
    stop: Callable[[], None] = lambda: None,
) -> Iterator[Report]:
    """Train a recipe in a run folder and yield a report whenever there is something to say.

    Args:
        recipe: What to train.
        folder: Where everything is written; must be new unless `resume` or `force`.
        device: "auto", "cpu", "cuda" or "mps".
        resume: Continue from the newest intact checkpoint; the recipe must be the one in the folder.
        force: Throw away the run that is in the folder.
        command: The line that started this, for the record.
        experiment: The objects of this recipe, if they are built already.
        stop: Called before every step; what it raises ends the run, with a checkpoint of the steps done.
    """
    experiment = experiment or build(recipe, choose_device(device))
    home, writes = RunFolder(folder), rank() == 0
    with ExitStack() as held:
        held.enter_context(closing(experiment.feed))
        start, unreported = 0, Unreported(Window(0))

        def open_folder() -> None:
            nonlocal start
            held.enter_context(home.hold())
            if resume and home.exists():
                check_same(recipe, home)
                home.sweep()
                start = restore_newest(home.checkpoints, experiment.progress, unreported)
                home.truncate_metrics(start)
            else:
                home.create(force)
                home.write_json("environment.json", environment(recipe.seed, command, str(experiment.device)))
                home.write_text("split.json", split_text(experiment.dataset, experiment.split.positions))
                home.write_text("recipe.toml", recipe.to_toml())  # last: from now on the folder is a run

        on_first_rank(open_folder)
        start = share_start(start, experiment.progress, unreported)
        rows = home.metrics() if writes else []
        writer = held.enter_context(Writer(experiment.plan.checkpoint_minutes))  # ends before the folder is let go
        spent, started = unreported.seconds or (rows[-1]["seconds"] if rows else 0.0), time.perf_counter()

        def save(step: int) -> None:
            unreported.seconds = spent + time.perf_counter() - started
            unreported.window.agree()
            on_first_rank(lambda: begin_to_write(step))

        def begin_to_write(step: int) -> None:
            writer.wait()  # so that there is one copy at most
            copy = Snapshot(experiment.progress.tensors() | unreported.tensors())

            def write() -> None:
                home.sync_metrics()
                write_checkpoint(home.checkpoints, step, copy.fetch())

            writer.start(write)

        work, feed = experiment.pipeline
        feed = saving_between_steps(feed, stop, start, save, writer)
        for report in train(work, feed, experiment.optimizer, experiment.plan, start=start, window=unreported.window):
            values = dict(report.values)
            if experiment.plan.evaluates_after(report.step):
                logits = predict(experiment.network, experiment.split.test, experiment.dataset, experiment.device)
                if not logits.isfinite().all():
                    raise NotFiniteError(f"The weights were no longer finite at step {report.step}.")
                tested = score(logits, experiment.split.test.labels)
                values |= {f"test_{name}": tested[name] for name in ("error", "ece", "nll", "balanced_accuracy")}
                if (kept_back := experiment.split.validation) is not None:
                    logits = predict(experiment.network, kept_back, experiment.dataset, experiment.device)
                    values["valid_error"] = score(logits, kept_back.labels)["error"]
            seconds = round(spent + time.perf_counter() - started, 3)
            by_class = report.by_class if experiment.plan.evaluates_after(report.step) else {}
            if writes:
                home.append_metrics({"step": report.step, "seconds": seconds, **values, **by_class})
            if experiment.plan.evaluates_after(report.step):
                save(report.step)
            yield Report(report.step, values, by_class)
        on_first_rank(writer.wait)
        finish(experiment, home)


def check_same(recipe: Recipe, home: RunFolder) -> None:
    """Refuse to resume a run under another recipe."""
    stored = home.path / "recipe.toml"
    changed = differences(recipe, read_recipe(str(stored)))
    if changed:
        raise InputError(f"'{home.path}' was started with another recipe ({'; '.join(changed)}).")


def finish(experiment: Experiment, home: RunFolder) -> None:
    """Write what people keep: weights, model card data, predictions, results."""
    net, dataset, recipe = experiment.network, experiment.dataset, experiment.recipe
    test = experiment.split.test
    logits = predict(net, test, dataset, experiment.device)
    validation = None
    if (kept_back := experiment.split.validation) is not None:
        answers = predict(net, kept_back, dataset, experiment.device)
        validation = (answers.numpy(), kept_back.labels.numpy())
    open_set = open_set_results(experiment, net)
    seen = see_test_images(experiment, net, logits)
    if rank():  # what follows asks nothing of the network
        return
    weights = {name: tensor.detach().cpu().numpy() for name, tensor in net.state_dict().items()}
    home.write_tensors(WEIGHTS, weights, {"format": "epass"})
    if recipe.method["name"] in PRETRAINING:
        learned = {name: value.cpu().numpy() for name, value in learned_without_labels(experiment.method).items()}
        home.write_tensors(PRETRAINED, learned, {"format": "epass"})
    channels, height, width = test.shape
    home.write_json(
        "model.json",
        {
            "classes": experiment.split.classes,
            "mean": dataset.mean,
            "std": dataset.std,
            "channels": channels,
            "height": height,
            "width": width,
            "net": dict(recipe.net),
            "method": dict(recipe.method),
            "projector": recipe.projector,
            "wrapper": recipe.wrapper,
        },
    )
    home.write_predictions(logits.numpy(), test.labels.numpy(), validation)
    write_embeddings(home, seen)
    rows = home.metrics()
    tested = [row for row in rows if row.get("test_error") is not None]
    best = min(tested, key=lambda row: row["test_error"])
    results = {
        "steps": experiment.plan.steps,
        "seconds": rows[-1]["seconds"],
        "labels": len(experiment.split.labeled),
        "images": len(experiment.split.unlabeled),
        "held_out": experiment.split.held_out,
        "last": score(logits, test.labels),
        "best_on_test": {"step": best["step"], "error": best["test_error"]},
    }
    if experiment.split.validation is not None:  # few images are often equally right: the last of such steps counts
        chosen = min(reversed(tested), key=lambda row: row["valid_error"])
        selected = {"step": chosen["step"], "error": chosen["test_error"], "valid_error": chosen["valid_error"]}
        results["validation_selected"] = {**selected, "images": len(experiment.split.validation)}
    home.write_json("results.json", results | open_set)


def open_set_results(experiment: Experiment, net: nn.Module) -> dict[str, Any]:
    """How well a method that can say "none of these" tells the classes and the images of none of them apart."""
    open_logits = getattr(experiment.method, "open_logits", None)
    if experiment.split.outliers is None or open_logits is None:
        return {}
    everything = concatenate(experiment.split.test, experiment.split.outliers)
    features = infer(net, everything, experiment.dataset, experiment.device).features
    accuracy = open_set_accuracy(open_logits(features).cpu(), everything.labels)
    return {"open_set": {"balanced_accuracy": accuracy, "outliers": len(experiment.split.outliers)}}
