"""The composition root: a recipe becomes the objects of a run."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import torch
from torch import nn
from torch.utils._pytree import tree_map

from ..augment import Policy, Strong, Weak, check_padding, make_policies
from ..data import (
    Dataset,
    Feed,
    Lookahead,
    Protocol,
    Split,
    StreamedImages,
    Vectors,
    decide,
    divide,
    open_dataset,
    render,
)
from ..errors import InputError
from ..extensions import check_trusted
from ..features import drained, embed_dataset, in_color, make_extractor
from ..machine.device import choose_device, choose_precision
from ..machine.distributed import largest_over_ranks
from ..method import Batch, Method, Outcome, Problem, check_places
from ..methods import METHODS, WRAPPERS
from ..networks import NETWORKS, Classifier, find_network
from ..networks.shared_norm import share_statistics
from ..parts.projector import ProjectorEnsemble
from ..parts.teacher import Average
from ..recipe import Recipe, arguments, check_table
from ..seeds import drawing, fold
from ..training.checkpoint import RunState
from ..training.exchange import early_messages
from ..training.optimizer import make_optimizer
from ..training.recording import Overlap, Recorded
from ..training.schedule import Plan
from ..training.step import make_step
from .models import (
    make_method,
    method_class,
    network_schema,
    scale_of_start,
    start_settings,
    takes_projector,
    use_scores,
    without,
    wrapper_class,
)

COMPILE_PAYS = 10_000  # steps: compiling takes a minute or two
# Keys of [data] that `open_dataset` takes.
READING = ("image_size", "path_column", "label_column", "streaming", "decoder", "skip_unreadable")


def data_schema() -> dict[str, inspect.Parameter]:
    """The schema of a recipe's [data] table: what reads the images, what divides them, and the feed's order."""
    name = inspect.signature(open_dataset).parameters["name_or_path"].replace(name="name", annotation=str)
    reading = {key: arguments(open_dataset)[key] for key in READING}
    return {"name": name, **reading, "order": arguments(Feed)["order"], **arguments(Protocol)}


def setting_names() -> list[str]:
    """The dotted name of everything that a recipe can set, whatever its method, wrapper and network of ours."""
    tables = {
        "data": [data_schema()],
        "plan": [arguments(Plan)],
        "net": map(network_schema, NETWORKS),
        "features": [arguments(make_extractor)],
        "augment": [arguments(make_policies)],
        "projector": [arguments(ProjectorEnsemble)],
        "method": map(arguments, METHODS.values()),
        "wrapper": map(arguments, WRAPPERS.values()),
    }
    return list(dict.fromkeys(f"{name}.{key}" for name, schemas in tables.items() for keys in schemas for key in keys))


def check_recipe(recipe: Recipe) -> None:
    """Refuse, before anything is read or written, what cannot work."""
    if type(recipe.seed) is not int or not 0 <= recipe.seed < 2**32:
        raise InputError(f"seed is a whole number from 0 to {2**32 - 1}, not '{recipe.seed}'.")
    check_trusted(recipe.flat().values())
    check_table("data", recipe.data, data_schema())
    check_table("plan", recipe.plan, arguments(Plan))  # first: other durations follow its steps
    cls = method_class(recipe.method.get("name"))
    check_table("method", without(recipe.method, "name"), arguments(cls))
    check_table("net", without(recipe.net, "name"), network_schema(str(recipe.net.get("name"))))
    policy_schema = {key: parameter.replace(default=None) for key, parameter in arguments(make_policies).items()}
    check_table("augment", recipe.augment, policy_schema, least_count=0)
    if recipe.projector is not None:
        if not takes_projector(cls):
            able = ", ".join(name for name, other in METHODS.items() if takes_projector(other))
            name = recipe.method["name"]
            raise InputError(f"'{name}' has no embedding and so takes no projector: use one of {able}.")
        schema = {"out_dim": inspect.signature(ProjectorEnsemble).parameters["out_dim"].replace(annotation=int)}
        check_table("projector", recipe.projector, schema | arguments(ProjectorEnsemble))
    if recipe.features is not None:
        check_table("features", recipe.features, arguments(make_extractor), least_count=0)
        find_network(str(recipe.features.get("net", "efficientnet-lite0")))
    if recipe.start is not None:
        check_table("start", recipe.start, arguments(start_settings))
    if recipe.wrapper is not None:
        wrapper = wrapper_class(recipe.wrapper.get("name"))
        check_table("wrapper", without(recipe.wrapper, "name"), arguments(wrapper))
    plan = Plan(**recipe.plan)
    for name, parameter in arguments(cls).items():
        duration = recipe.method.get(name, parameter.default)
        if name.endswith("_steps") and duration is not None and duration >= plan.steps:
            raise InputError(
                f"method.{name} is {duration}, but the whole run has {plan.steps} steps: use --set method.{name}="
                f"{plan.steps // 10} or more steps."
            )


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
    def progress(self) -> RunState:
        return RunState(self.method, self.average, self.optimizer)

    @property
    def network(self) -> nn.Module:
        """The averaged network."""
        return self.average.module

    @cached_property
    def pipeline(self) -> tuple[Callable[[Any], Outcome], Callable[[int], Any]]:
        """What the loop needs, made once: compiling and recording take their time."""
        return self.make_pipeline()

    def make_pipeline(self) -> tuple[Callable[[Any], Outcome], Callable[[int], Any]]:
        """A step, and a feed of its inputs. On CUDA each is a captured graph, and they overlap."""
        if self.device.type != "cuda":
            return make_step(self.method, self.optimizer, self.average), self.batch
        wanted = self.plan.compile == "on" or (self.plan.compile == "auto" and self.plan.steps >= COMPILE_PAYS)
        if wanted:
            pipeline, reason = None, "in another process"
            try:
                pipeline = self.captured(compiled=True)
            except torch.OutOfMemoryError:
                raise
            except Exception as problem:  # whatever a compiler trips over: the run works without it
                reason = str(problem).partition("\n")[0]
            failed = largest_over_ranks(pipeline is None)  # all of several processes compile, or none does
            if pipeline is not None and not failed:
                return pipeline
            warnings.warn(f"Compiling failed ({reason}); going on without it, more slowly.", stacklevel=2)
        return self.captured(compiled=False)

    def batch(self, step: int) -> Batch:
        """The batch of a step, on the device that trains."""
        batch: Batch = tree_map(lambda tensor: tensor.to(self.device), self.feed(step))
        return batch

    def captured(self, *, compiled: bool) -> tuple[Callable[[Any], Outcome], Callable[[int], Any]]:
        """The step and the making of its batch, each as a CUDA graph."""
        # Shapes never change, so a search for the fastest kernels pays, and one among all of them: 2 % of a step.
        torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit = True, 0
        warnings.filterwarnings("ignore", message="TensorFloat32")  # similarities are kept in full float32 on purpose
        self.feed.render = torch.compile(render, dynamic=False) if compiled else render
        compiler = partial(torch.compile, dynamic=False, options=early_messages()) if compiled else None
        step = make_step(self.method, self.optimizer, self.average, compiler=compiler)
        selection = self.feed.select(0)
        make = Recorded(self.feed.batch, selection, generators=[self.feed.generator])
        state = self.progress.tensors()
        overlap = Overlap(self.feed.select, make, Recorded(step, make(selection), state=list(state.values())))
        check_places(state, self.progress.tensors(), type(self.method).__name__)
        return overlap.step, overlap.feed


def build(
    recipe: Recipe, device: str | torch.device, dataset: Dataset | None = None, split: Split | None = None
) -> Experiment:
    """Objects from a recipe. A `dataset` that is already open is not read again, nor a `split` of it drawn."""
    check_recipe(recipe)
    place = choose_device(device)
    plan = Plan(**recipe.plan)
    use_scores(plan.scores)
    dataset = open_examples(recipe, place, dataset)
    split = split or split_for(recipe, dataset)
    problem = Problem(
        num_classes=len(split.classes),
        num_labeled=len(split.labeled),
        num_unlabeled=len(split.unlabeled),
        label_counts=split.label_counts,
        labeled_batch=plan.labeled_batch,
        unlabeled_batch=plan.unlabeled_batch,
        steps=plan.steps,
    )
    with drawing(fold(recipe.seed, "weights")):
        precision = choose_precision(place, plan.precision)
        shape, classes = split.labeled.shape, split.classes
        method = make_method(recipe, problem, image_shape=shape, precision=precision, classes=classes)
    share_statistics(method)
    method.to(place)
    if place.type == "cuda":
        method.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # before the optimizer copies layouts
    # Apple's GPUs know no float64, which equality with Pillow takes: there the images stay with the CPU.
    home = torch.device("cpu") if place.type == "mps" else place
    feed_of = Lookahead if isinstance(split.labeled, StreamedImages) else Feed
    average = Average(method.net, plan.average_momentum)
    cast(Classifier, average.module).precision = torch.float32  # what is kept is tested as it will be used
    return Experiment(
        recipe=recipe,
        plan=plan,
        device=place,
        dataset=dataset,
        split=split,
        problem=problem,
        method=method,
        average=average,
        optimizer=make_optimizer(method, plan),
        feed=feed_of(
            split.labeled.to(home),
            split.unlabeled.to(home),
            method.views,
            policies_for(recipe, dataset),
            mean=dataset.mean,
            std=dataset.std,
            labeled_batch=plan.labeled_batch,
            unlabeled_batch=plan.unlabeled_batch,
            seed=recipe.seed,
            order=recipe.data.get("order", "seed"),
            shared_crop=method.host.shared_crop,
            device=home,
        ),
    )


def open_examples(recipe: Recipe, device: torch.device, dataset: Dataset | None = None, **how: Any) -> Dataset:
    """What a recipe learns from: images, which may be open already, or the features of them.

    A network that goes on from another run gets images as it got them there. What else is to be said about `how` files
    are read goes before the recipe's own settings.
    """
    if dataset is None:
        dataset = open_dataset(recipe.data["name"], **reading_settings(recipe) | how)
    scale = scale_of_start(recipe)
    if recipe.features is not None and scale is None:
        return drained(embed_dataset(dataset, recipe.features, device))
    decide(dataset.train, device)
    return dataset if scale is None else replace(in_color(dataset), mean=scale.mean, std=scale.std)


def reading_settings(recipe: Recipe) -> dict[str, Any]:
    """The part of a recipe's [data] table that says how files are read; nobody measures pixels for features."""
    own = {key: value for key, value in recipe.data.items() if key in READING}
    return own if recipe.features is None else {**own, "measured": False}


def split_for(recipe: Recipe, dataset: Dataset) -> Split:
    """The labeled, unlabeled, validation and test images of a recipe."""
    settings = {key: value for key, value in recipe.data.items() if key in arguments(Protocol)}
    return divide(dataset, seed=recipe.seed, all_labels=method_class(recipe.method["name"]).all_labels, **settings)


def policies_for(recipe: Recipe, dataset: Dataset) -> dict[str, Policy]:
    """The data set's own augmentation with the recipe's changes."""
    settings: dict[str, Any] = {**dataset.augment, **recipe.augment}
    policies = make_policies(**settings)
    if not isinstance(dataset.train, Vectors):
        if any(isinstance(policy, Weak | Strong) for policy in policies.values()):
            check_padding(settings.get("padding", 0), *dataset.train.shape[-2:])
    elif recipe.features is None:  # else another run may go on from this one, with the photos themselves
        taken = {key for policy in policies.values() for key in inspect.signature(type(policy)).parameters}
        idle = [key for key in settings_of_pixels(recipe) if key not in taken]
        if idle:
            raise InputError(f"'{dataset.name}' holds vectors, which have no augment.{idle[0]}: leave it out.")
    return policies


def settings_of_pixels(recipe: Recipe) -> dict[str, Any]:
    """What a recipe says of views that vectors and features do not have, unless somebody's own policy makes them."""
    return {key: value for key, value in recipe.augment.items() if key in arguments(Strong)}
