"""The composition root: a recipe becomes objects, the objects become reports and a run folder."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from .augment import Policy, make_policies, normalize
from .data import Dataset, Feed, Images, Selection, Split, divide, open_dataset, render
from .device import choose_device, choose_precision
from .errors import InputError, unknown
from .evaluate import score
from .method import Batch, Method, Outcome, Problem
from .methods import METHODS
from .networks import NETWORKS, Classifier, make_network
from .parts.projector import ProjectorEnsemble
from .parts.teacher import Average
from .recipe import Recipe, arguments, check_table, differences, parse_recipe
from .runs import RunFolder, environment
from .seeds import fold
from .train.checkpoint import Progress, restore_newest, save_checkpoint
from .train.loop import NotFiniteError, Report, train
from .train.optimizer import make_optimizer
from .train.schedule import Plan
from .train.step import capture, kept, make_step

COMPILE_PAYS = 10_000  # steps: compiling takes a minute or two


def data_settings(
    *,
    name: str,
    labels: int | None = None,
    image_size: int | None = None,
    holdout: float = 0.2,
    include_labeled: bool = True,
    order: Literal["seed", "reference"] = "seed",
) -> None:
    """The schema of a recipe's [data] table. Without `labels` every known label is kept."""


def takes_projector(method: type[Method]) -> bool:
    """Whether a method has an embedding, and so a place for EPASS."""
    return "projector" in inspect.signature(method).parameters


def memory_per_image(cls: type[Method]) -> dict[str, int]:
    """How many bytes a method with its default settings keeps of every labeled and every unlabeled image."""
    labeled, unlabeled = 10_007, 100_003  # primes: nothing else in a method has that many rows
    counts = (1_000,) * 9 + (1_007,)
    problem = Problem(10, labeled, unlabeled, counts, labeled_batch=64, unlabeled_batch=448, steps=10_000)
    make: Callable[..., Method] = cls
    with torch.device("meta"):  # shapes without memory or initialization
        net = make_network("small", in_channels=3, num_classes=10)
        parts = [ProjectorEnsemble(net.num_features)] if takes_projector(cls) else []
        buffers = list(make(cls.adapt(net), problem, *parts).buffers())
    sides = {"labeled": labeled, "unlabeled": unlabeled}
    return {side: sum(b.nbytes for b in buffers if rows in b.shape) // rows for side, rows in sides.items()}


def check_recipe(recipe: Recipe) -> None:
    """Refuse, before anything is read or written, what cannot work."""
    if type(recipe.seed) is not int or not 0 <= recipe.seed < 2**32:
        raise InputError(f"seed is a whole number from 0 to {2**32 - 1}, not '{recipe.seed}'.")
    check_table("data", recipe.data, arguments(data_settings))
    method_name, net_name = recipe.method.get("name"), recipe.net.get("name")
    if not isinstance(method_name, str) or method_name not in METHODS:
        raise unknown("method", str(method_name), METHODS)
    if not isinstance(net_name, str) or net_name not in NETWORKS:
        raise unknown("network", str(net_name), NETWORKS)
    cls = METHODS[method_name]
    check_table("method", without(recipe.method, "name"), arguments(cls))
    net_schema = arguments(NETWORKS[net_name])
    check_table("net", without(recipe.net, "name"), without(net_schema, "in_channels"))
    check_table("plan", recipe.plan, arguments(Plan))
    policy_schema = {key: parameter.replace(default=None) for key, parameter in arguments(make_policies).items()}
    check_table("augment", recipe.augment, policy_schema, least_count=0)
    if recipe.projector is not None:
        if not takes_projector(cls):
            able = ", ".join(name for name, other in METHODS.items() if takes_projector(other))
            raise InputError(f"'{method_name}' has no embedding and so takes no projector: use one of {able}.")
        schema = {"out_dim": inspect.signature(ProjectorEnsemble).parameters["out_dim"].replace(annotation=int)}
        check_table("projector", recipe.projector, schema | arguments(ProjectorEnsemble))
    plan = Plan(**recipe.plan)
    for name, parameter in arguments(cls).items():
        duration = recipe.method.get(name, parameter.default)
        if name.endswith("_steps") and duration >= plan.steps:
            raise InputError(
                f"method.{name} is {duration}, but the whole run has {plan.steps} steps: use --set method.{name}="
                f"{plan.steps // 10} or more steps."
            )


def without(table: Any, key: str) -> dict[str, Any]:
    """A copy of a table that lacks one key."""
    return {name: value for name, value in table.items() if name != key}


@dataclass(frozen=True)
class Experiment:
    """Everything a run consists of, ready to train."""

    recipe: Recipe
    plan: Plan
    device: torch.device
    dataset: Dataset
    split: Split
    problem: Problem
    method: Method
    average: Average
    optimizer: torch.optim.Optimizer
    feed: Feed

    @property
    def progress(self) -> Progress:
        return Progress(self.method, self.average, self.optimizer)

    @cached_property
    def pipeline(self) -> tuple[Callable[[Any], Outcome], Callable[[int], Any]]:
        """What the loop needs, made once: compiling and recording take their time."""
        return self.make_pipeline()

    def make_pipeline(self) -> tuple[Callable[[Any], Outcome], Callable[[int], Any]]:
        """A step, and a feed of its inputs. On CUDA both together are one captured graph."""
        if self.device.type != "cuda":
            return make_step(self.method, self.optimizer, self.average), self.batch
        if self.plan.compile == "on" or (self.plan.compile == "auto" and self.plan.steps >= COMPILE_PAYS):
            try:
                return self.captured(compiled=True), self.feed.select
            except torch.OutOfMemoryError:
                raise
            except Exception as problem:  # whatever a compiler trips over: the run works without it
                reason = str(problem).partition("\n")[0]
                warnings.warn(f"Compiling failed ({reason}); going on without it, more slowly.", stacklevel=2)
        return self.captured(compiled=False), self.feed.select

    def batch(self, step: int) -> Batch:
        """The batch of a step, on the device that trains."""
        batch: Batch = tree_map(lambda tensor: tensor.to(self.device), self.feed(step))
        return batch

    def captured(self, *, compiled: bool) -> Callable[[Selection], Outcome]:
        """The making of a batch and the step on it, as one CUDA graph."""
        # Shapes never change, so a search for the fastest kernels pays, and one among all of them: 2 % of a step.
        torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit = True, 0
        warnings.filterwarnings("ignore", message="TensorFloat32")  # similarities are kept in full float32 on purpose
        self.feed.render = torch.compile(render, dynamic=False) if compiled else render
        forward = torch.compile(self.method, dynamic=False) if compiled else self.method
        step = make_step(self.method, self.optimizer, self.average, forward=cast(nn.Module, forward))

        def work(selection: Selection) -> Outcome:
            return step(self.feed.batch(selection))

        state = list(self.progress.tensors().values())
        return capture(work, self.feed.select(0), state=state, generators=[self.feed.generator])


def build(recipe: Recipe, device: torch.device, dataset: Dataset | None = None) -> Experiment:
    """Objects from a recipe. A `dataset` that is already open is not read again."""
    check_recipe(recipe)
    plan, cls = Plan(**recipe.plan), METHODS[recipe.method["name"]]
    if dataset is None:
        dataset = open_dataset(recipe.data["name"], image_size=recipe.data.get("image_size"))
    split = split_for(recipe, dataset)
    problem = Problem(
        num_classes=len(dataset.classes),
        num_labeled=len(split.labeled),
        num_unlabeled=len(split.unlabeled),
        label_counts=split.label_counts,
        labeled_batch=plan.labeled_batch,
        unlabeled_batch=plan.unlabeled_batch,
        steps=plan.steps,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(fold(recipe.seed, "weights"))
        net = make_network(
            recipe.net["name"],
            in_channels=split.labeled.pixels.shape[1],
            num_classes=problem.num_classes,
            **without(recipe.net, "name"),
        )
        parts = [ProjectorEnsemble(net.num_features, **(recipe.projector or {}))] if takes_projector(cls) else []
        make: Callable[..., Method] = cls
        net.precision = choose_precision(device, plan.precision)
        method = make(cls.adapt(net), problem, *parts, **without(recipe.method, "name")).train()
    method.to(device)
    if device.type == "cuda":
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # before the optimizer copies layouts
    # Apple's GPUs know no float64, which equality with Pillow takes: there the images stay with the CPU.
    home = torch.device("cpu") if device.type == "mps" else device
    average = Average(method.net, plan.average_momentum)
    cast(Classifier, average.module).precision = torch.float32  # what is kept is tested as it will be used
    return Experiment(
        recipe=recipe,
        plan=plan,
        device=device,
        dataset=dataset,
        split=split,
        problem=problem,
        method=method,
        average=average,
        optimizer=make_optimizer(method, plan),
        feed=Feed(
            split.labeled.to(home),
            split.unlabeled.to(home),
            cls.views,
            policies_for(recipe, dataset),
            mean=dataset.mean,
            std=dataset.std,
            labeled_batch=plan.labeled_batch,
            unlabeled_batch=plan.unlabeled_batch,
            seed=recipe.seed,
            order=recipe.data.get("order", "seed"),
            device=home,
        ),
    )


def split_for(recipe: Recipe, dataset: Dataset) -> Split:
    """The labeled, unlabeled and test images of a recipe."""
    settings = {key: recipe.data[key] for key in ("holdout", "include_labeled") if key in recipe.data}
    labels = None if METHODS[recipe.method["name"]].all_labels else recipe.data.get("labels")
    return divide(dataset, labels=labels, seed=recipe.seed, **settings)


def policies_for(recipe: Recipe, dataset: Dataset) -> dict[str, Policy]:
    """The data set's own augmentation with the recipe's changes."""
    settings: dict[str, Any] = {**dataset.augment, **recipe.augment}
    return make_policies(**settings)


@torch.no_grad()
def predict(net: torch.nn.Module, images: Images, dataset: Dataset, device: torch.device, rows: int = 512) -> Tensor:
    """(N, C) float32 logits on the CPU, of images that are not augmented."""
    mean, std = torch.tensor(dataset.mean, device=device), torch.tensor(dataset.std, device=device)
    chunks = [normalize(chunk.to(device), mean, std) for chunk in torch.split(images.pixels, rows)]
    return torch.cat([net(chunk).logits for chunk in chunks]).float().cpu()


def seconds_per_step(experiment: Experiment, patience: float = 5.0) -> float:
    """Try a few steps, put everything back, and say how long one takes."""
    seconds: list[float] = []
    with kept(list(experiment.progress.tensors().values())):
        step, feed = experiment.pipeline
        while len(seconds) < 12 and sum(seconds) < patience:
            started = time.perf_counter()
            outcome = step(feed(len(seconds)))
            outcome.loss.item()
            seconds.append(time.perf_counter() - started)
    return sorted(seconds)[len(seconds) // 2]


def run(
    recipe: Recipe,
    folder: str | Path,
    *,
    device: str = "auto",
    resume: bool = False,
    force: bool = False,
    command: str = "",
    experiment: Experiment | None = None,
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
    """
    experiment = experiment or build(recipe, choose_device(device))
    home = RunFolder(folder)
    start = 0
    if resume and home.exists():
        check_same(recipe, home)
        start = restore_newest(home.checkpoints, experiment.progress)
        home.truncate_metrics(start)
    else:
        home.create(force)
        home.write_json("environment.json", environment(recipe.seed, command, str(experiment.device)))
        home.write_text("recipe.toml", recipe.to_toml())  # last: from now on the folder is a run
    rows = home.metrics()
    spent, started = (rows[-1]["seconds"] if rows else 0.0), time.perf_counter()
    for report in train(*experiment.pipeline, experiment.optimizer, experiment.plan, start=start):
        values = dict(report.values)
        if experiment.plan.evaluates_after(report.step):
            logits = predict(experiment.average, experiment.split.test, experiment.dataset, experiment.device)
            if not logits.isfinite().all():
                raise NotFiniteError(f"The weights were no longer finite at step {report.step}.")
            tested = score(logits, experiment.split.test.labels)
            values |= {f"test_{name}": tested[name] for name in ("error", "ece", "nll", "balanced_accuracy")}
        seconds = spent + time.perf_counter() - started
        home.append_metrics({"step": report.step, "seconds": round(seconds, 3), **values})
        if experiment.plan.evaluates_after(report.step):
            save_checkpoint(home.checkpoints, experiment.progress, report.step)
        yield Report(report.step, values)
    finish(experiment, home)


def check_same(recipe: Recipe, home: RunFolder) -> None:
    """Refuse to resume a run under another recipe."""
    stored = home.path / "recipe.toml"
    changed = differences(recipe, parse_recipe(stored.read_text(encoding="utf-8"), str(stored)))
    if changed:
        raise InputError(f"'{home.path}' was started with another recipe ({'; '.join(changed)}).")


def finish(experiment: Experiment, home: RunFolder) -> None:
    """Write what people keep: weights, model card data, predictions, results."""
    net, dataset, recipe = experiment.average.module, experiment.dataset, experiment.recipe
    test = experiment.split.test
    logits = predict(net, test, dataset, experiment.device)
    weights = {name: tensor.detach().cpu().numpy() for name, tensor in net.state_dict().items()}
    home.write_tensors("model.safetensors", weights, {"format": "epass"})
    channels, height, width = test.pixels.shape[1:]
    home.write_json(
        "model.json",
        {
            "classes": dataset.classes,
            "mean": dataset.mean,
            "std": dataset.std,
            "channels": channels,
            "height": height,
            "width": width,
            "net": dict(recipe.net),
            "method": dict(recipe.method),
        },
    )
    home.write_predictions(logits.numpy(), test.labels.numpy())
    rows = home.metrics()
    tested = [row for row in rows if row.get("test_error") is not None]
    best = min(tested, key=lambda row: row["test_error"])
    home.write_json(
        "results.json",
        {
            "steps": experiment.plan.steps,
            "seconds": rows[-1]["seconds"],
            "labels": len(experiment.split.labeled),
            "images": len(experiment.split.unlabeled),
            "held_out": experiment.split.held_out,
            "last": score(logits, test.labels),
            "best_on_test": {"step": best["step"], "error": best["test_error"]},
        },
    )


def load_model(folder: str | Path) -> tuple[nn.Module, dict[str, Any]]:
    """The trained network of a run folder, on the CPU, and what model.json says about it."""
    from safetensors.torch import load_file

    from .runs import load_run

    model = load_run(folder).model
    if model is None:
        raise InputError(f"'{folder}' holds no finished model yet: resume the run first.")
    net_settings = dict(model["net"])
    plain = make_network(
        net_settings.pop("name"), in_channels=model["channels"], num_classes=len(model["classes"]), **net_settings
    )
    net = METHODS[model["method"]["name"]].adapt(plain)
    net.load_state_dict(load_file(Path(folder) / "model.safetensors"))
    return net.eval(), model
