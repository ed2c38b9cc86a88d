"""A recipe becomes a run folder: train, report, test, save, and write down what came out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from .data import join, split_text
from .device import choose_device
from .embeddings import keep_embeddings
from .errors import InputError
from .evaluate import open_set_accuracy, score
from .experiment import Experiment, build, look, predict
from .methods import PRETRAINING
from .models import learned_without_labels
from .recipe import Recipe, differences, read_recipe
from .runs import PRETRAINED, WEIGHTS, RunFolder, environment
from .train.checkpoint import Unreported, restore_newest, write_checkpoint
from .train.loop import Report, train
from .train.window import NotFiniteError, Window
from .train.writer import Snapshot, Writer, saving_between_steps


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
    home = RunFolder(folder)
    with home.hold(), closing(experiment.feed), Writer(experiment.plan.checkpoint_minutes) as writer:
        start, unreported = 0, Unreported(Window(0))
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
        rows = home.metrics()
        spent, started = unreported.seconds or (rows[-1]["seconds"] if rows else 0.0), time.perf_counter()

        def save(step: int) -> None:
            unreported.seconds = spent + time.perf_counter() - started
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
            home.append_metrics({"step": report.step, "seconds": seconds, **values, **by_class})
            if experiment.plan.evaluates_after(report.step):
                save(report.step)
            yield Report(report.step, values, by_class)
        writer.wait()
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
    validation = None
    if (kept_back := experiment.split.validation) is not None:
        answers = predict(net, kept_back, dataset, experiment.device)
        validation = (answers.numpy(), kept_back.labels.numpy())
    home.write_predictions(logits.numpy(), test.labels.numpy(), validation)
    keep_embeddings(experiment, home, net, logits)
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
    open_logits = getattr(experiment.method, "open_logits", None)  # of a method that can say "none of these"
    if experiment.split.outliers is not None and open_logits is not None:
        everything = join(test, experiment.split.outliers)
        features = look(net, everything, dataset, experiment.device).features
        results["open_set"] = {
            "balanced_accuracy": open_set_accuracy(open_logits(features).cpu(), everything.labels),
            "outliers": len(experiment.split.outliers),
        }
    home.write_json("results.json", results)
