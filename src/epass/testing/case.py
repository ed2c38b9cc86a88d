"""The tiny problem on which the checks run a method."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import keystr, tree_flatten_with_path

from ..augment import make_policies
from ..errors import unknown
from ..machine.distributed import rank, world_size
from ..method import Batch, Method, Outcome, Problem, made
from ..networks.classifier import Classifier
from ..networks.mlp import MLP
from ..parts.projector import ProjectorEnsemble
from ..parts.teacher import Average
from ..seeds import drawing
from ..training.checkpoint import RunState
from ..training.optimizer import make_optimizer
from ..training.schedule import Plan
from ..training.step import Step, make_step

LATE = 10**6  # a step after every warm-up
# Batches that two and three processes can share.
PROBLEM = Problem(3, 6, 32, label_counts=(2, 2, 2), labeled_batch=12, unlabeled_batch=18, steps=2 * LATE)
RUNNING = {"running_mean", "running_var", "num_batches_tracked"}  # BatchNorm's statistics, which `forward` may write


class TinyBackbone(nn.Sequential):
    """One convolution and the mean over the image."""

    num_features = 6

    def __init__(self) -> None:
        norm, conv = nn.BatchNorm2d(self.num_features), nn.Conv2d(3, self.num_features, 3, stride=2)
        super().__init__(conv, norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


IMAGE, VECTOR = (3, 8, 8), (12,)  # shapes of an example


@dataclass(frozen=True)
class Case:
    """A method with its hyper-parameters on the tiny problem.

    `projector` holds the keyword arguments of the `ProjectorEnsemble` that the method gets if its `__init__` has a
    parameter of that name: `{"size": 3}`. With `vectors` the problem consists of vectors instead of images.
    """

    method: type[Method]
    arguments: Mapping[str, Any]
    projector: Mapping[str, Any] | None = None
    wrap: Callable[[Method, Problem], Method] | None = None  # a wrapper around the method, such as `ABC`
    vectors: bool = False

    @property
    def name(self) -> str:
        """Of the class that is checked, for messages."""
        return getattr(self.wrap, "__name__", self.method.__name__)

    def build(self, seed: int = 0) -> Method:
        """A fresh method; another seed gives other weights and, where they start random, other memories."""
        takes_projector = "projector" in inspect.signature(self.method).parameters
        self.require(takes_projector or self.projector is None, "takes no projector, so do not give it one.")
        with drawing(seed):
            width = TinyBackbone.num_features
            backbone = MLP(in_channels=VECTOR[0], hidden=width) if self.vectors else TinyBackbone()
            net = Classifier(backbone, PROBLEM.num_classes)
            arguments = dict(self.arguments)
            if takes_projector:
                arguments["projector"] = ProjectorEnsemble(net.num_features, 5, **(self.projector or {}))
            method = made(self.method, self.method.adapt(net), PROBLEM, **arguments)
            return method if self.wrap is None else self.wrap(method, PROBLEM)

    def batch(self, position: int, step: int | None = None) -> Batch:
        """The batch at a position, a pure function of it. The clock jumps past every warm-up after two batches."""
        step = (position if position < 2 else LATE + position) if step is None else step
        self.require(hasattr(self.method, "views"), "needs `views = Views(labeled=(...), unlabeled=(...))`.")
        views, policies = self.method.views, make_policies()
        for view in (*views.labeled, *views.unlabeled):
            self.require(view in policies, f"is mistaken in `views`. {unknown('view', view, policies)}")
        shape = VECTOR if self.vectors else IMAGE
        pattern = torch.randn(PROBLEM.num_classes, *shape, generator=torch.Generator().manual_seed(0))
        generator = torch.Generator().manual_seed(1 + position)

        def draw(classes: Tensor, count: int) -> tuple[Tensor, ...]:
            noise = torch.randn(count, len(classes), *shape, generator=generator)
            return tuple(pattern[classes] + (0.3 + 0.2 * view) * noise[view] for view in range(count))

        # More rows than labeled images, so that indices repeat.
        size = PROBLEM.labeled_batch if views.labeled else 0
        index = torch.randint(PROBLEM.num_labeled, (size,), generator=generator)
        size = PROBLEM.unlabeled_batch if views.unlabeled else 0
        unlabeled_index = torch.randint(PROBLEM.num_unlabeled, (size,), generator=generator)
        labels, classes = index % PROBLEM.num_classes, unlabeled_index % PROBLEM.num_classes
        labeled, unlabeled = draw(labels, len(views.labeled)), draw(classes, len(views.unlabeled))
        truth = torch.where(unlabeled_index < 24, classes, -1)  # not every one is known
        seed = torch.randint(2**62, (), generator=generator)
        return Batch(labeled, labels, unlabeled, index, unlabeled_index, truth, torch.tensor(step), seed)

    def start(self, seed: int = 0) -> tuple[RunState, Step]:
        """A fresh method with optimizer and average, and its step."""
        method = self.build(seed)
        optimizer = make_optimizer(method, Plan(steps=6, lr=0.05))  # SGD: Adam on the CPU reads its step count
        progress = RunState(method, Average(method.net, 0.9), optimizer)
        return progress, make_step(method, optimizer, progress.average)

    def trained(self) -> Method:
        """A method whose memories hold something: two early steps and one late one are done."""
        progress, step = self.start()
        for position in range(3):
            step(self.batch(position))
        return progress.method

    def require(self, condition: object, message: str) -> None:
        """Raise with the method's name unless the rule holds; `assert` would be silent under `python -O`."""
        if not condition:
            raise AssertionError(f"{self.name} {message}")

    def keep(self, these: Mapping[str, Tensor], those: Mapping[str, Tensor], rule: str, tolerance: float = 0.0) -> None:
        """Require equal tensors, bit for bit without a tolerance."""
        odd = difference(these, those, tolerance)
        self.require(odd is None, f"changes {odd} {rule}")


def own_share(part: Tensor) -> Tensor:
    """This process's rows of a part of a batch."""
    return part[rank() :: world_size()] if part.ndim else part


def named(part: Batch | Outcome) -> dict[str, Tensor]:
    """All tensors of a batch or an outcome by name."""
    leaves = tree_flatten_with_path(part)[0]
    return {keystr(path).lstrip("."): value for path, value in leaves if isinstance(value, Tensor)}


def snapshot(method: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters and buffers but BatchNorm's running statistics."""
    state = {**dict(method.named_parameters()), **dict(method.named_buffers())}
    return {name: value.detach().clone() for name, value in state.items() if name.split(".")[-1] not in RUNNING}


def difference(these: Mapping[str, Tensor], those: Mapping[str, Tensor], tolerance: float = 0.0) -> str | None:
    """The first name whose tensors differ by more than `tolerance`, or None; a NaN equals a NaN."""
    for name in {**these, **those}:
        this, that = these.get(name), those.get(name)
        if this is None or that is None or this.shape != that.shape or this.dtype != that.dtype:
            return name
        if not torch.allclose(this.detach(), that.detach(), rtol=tolerance, atol=tolerance, equal_nan=True):
            return name
    return None
