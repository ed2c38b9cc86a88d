"""The contract between a semi-supervised method and everything around it."""

from __future__ import annotations

import re
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from .errors import ContractError, InputError


class Views(NamedTuple):
    """The augmented views a method asks for, by policy name, in the order it unpacks them."""

    labeled: tuple[str, ...]
    unlabeled: tuple[str, ...]


@dataclass(frozen=True)
class Problem:
    """The facts known before training starts."""

    num_classes: int
    num_labeled: int
    num_unlabeled: int
    label_counts: tuple[int, ...]  # labeled images per class
    labeled_batch: int  # labeled images per step, over all processes
    unlabeled_batch: int  # unlabeled images per step, over all processes
    steps: int  # of the whole run


class Batch(NamedTuple):
    """One step's input. Every field is a tensor on the training device, of the same shape at every step."""

    labeled: tuple[Tensor, ...]  # views of (B, C, H, W), normalized
    labels: Tensor  # (B,) int64
    unlabeled: tuple[Tensor, ...]  # views of (U, C, H, W), normalized
    labeled_index: Tensor  # (B,) position in the labeled set
    unlabeled_index: Tensor  # (U,) position in the unlabeled set
    unlabeled_truth: Tensor  # (U,) true class or -1: for diagnostics, no method reads it
    step: Tensor  # () int64
    seed: Tensor  # () int64, another one at every step: what a method draws at random, it draws from this


class PseudoLabels(NamedTuple):
    """The classes a method believes its unlabeled images have, and which of them it trains on."""

    labels: Tensor  # (U,) int64
    mask: Tensor  # (U,) float, 0 = not used
    probs: Tensor | None = None  # (U, C) what the mask was taken from


class Features(NamedTuple):
    """What the backbone made of the images, for a wrapper that builds on it. Gradients may flow through it."""

    labeled: Tensor  # (B, D)
    weak: Tensor  # (U, D)
    strong: Tensor  # (U, D), of the first strong view


class Outcome(NamedTuple):
    """One step's result. `memory` is handed to `Method.update` once the weights have moved."""

    losses: dict[str, Tensor]  # scalars, already weighted: their sum is minimized
    metrics: dict[str, Tensor] = {}  # noqa: RUF012  (detached scalars, still on the device)
    memory: dict[str, Tensor] = {}  # noqa: RUF012
    pseudo: PseudoLabels | None = None
    features: Features | None = None

    @property
    def loss(self) -> Tensor:
        """What is minimized: the sum of the parts, so that the log adds up."""
        return torch.stack(list(self.losses.values())).sum()


class Paper(NamedTuple):
    """Where a method comes from, as the first line of its file says."""

    name: str  # of the method
    title: str
    authors: str
    venue: str
    year: int


def read_paper(docstring: str | None) -> Paper | None:
    """`Name: Title (Authors, VENUE YEAR).`, if that is the first line."""
    line = (docstring or "").strip().partition("\n")[0]
    found = re.fullmatch(r"([^:]+): (.+) \(([^()]+), ([^,()]+) ([0-9]{4})\)\.", line)
    return Paper(found[1], found[2], found[3], found[4], int(found[5])) if found else None


class Method(nn.Module):
    """A semi-supervised objective around a classifier `net`.

    `forward` reads state and never writes it (BatchNorm's running statistics excepted); `update` writes it, after the
    optimizer step. All state is parameters and registered buffers, so `state_dict()` is the whole method. The
    keyword-only arguments of `__init__` are the hyper-parameters: their names and defaults are the schema of a recipe.
    """

    views: ClassVar[Views]
    paper: ClassVar[Paper | None] = None  # in whose file's first line it stands
    display_name: ClassVar[str]  # in tables and pages; that of the paper or of the class, unless the class says another
    all_labels: ClassVar[bool] = False  # an upper bound that trains on every known label, not on the few
    pretraining: ClassVar[bool] = False  # it learns from images alone: the network it leaves cannot classify yet
    open_set: ClassVar[bool] = False  # it can say that an image is of none of the classes, by `open_logits`
    shared_crop: ClassVar[bool] = False  # all views of an image show one crop of it, mirrored alike
    not_compiled: ClassVar[str] = ""  # why `torch.compile` cannot take the objective as one graph, if it cannot

    needs_pixels: str = ""  # what it does to images that cannot be done to vectors, if it does
    unlabeled_weight: float = 1.0  # of the loss on unlabeled images
    projector: nn.Module | None  # from features to embeddings, of a method that has them

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.paper = read_paper(getattr(sys.modules.get(cls.__module__), "__doc__", None))
        if "display_name" not in vars(cls):
            cls.display_name = cls.paper.name if cls.paper else cls.__name__

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.projector = None

    @property
    def host(self) -> Method:
        """The method at the core, however many wrappers are around it."""
        return self

    @classmethod
    def adapt(cls, net: nn.Module) -> nn.Module:
        """The network that this method trains, made from a recipe's classifier; most take it as it is."""
        return net

    @abstractmethod
    def forward(self, batch: Batch) -> Outcome:
        """The whole objective of one step."""

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        """Remember what this step taught; a method without memory keeps this default."""

    def open_logits(self, features: Tensor) -> Tensor:
        """(N, D) features of an averaged `net` -> (N, C + 1), the last for no known class, where `open_set`."""
        raise NotImplementedError


def made(cls: type[Method], *parts: object, **settings: Any) -> Method:
    """A method or a wrapper from its class, or a sentence if its `__init__` forgets that it is a module."""
    make: Callable[..., Method] = cls
    try:
        method = make(*parts, **settings)
        whole = isinstance(getattr(method, "net", None), nn.Module)
    except AttributeError as problem:
        if "Module.__init__() call" not in str(problem):  # how torch refuses a layer that comes too early
            raise
        whole = False
    if not whole:
        inner = "method" if issubclass(cls, Wrapper) else "net"
        raise ContractError(f"{cls.__name__} must call `super().__init__({inner})` before all else in `__init__`.")
    return method


def check_losses(outcome: object, who: str) -> None:
    """Refuse what has no sum that can be minimized.

    It looks at types and shapes, never at numbers: a step does not wait, and a compiler leaves no trace of it.
    """
    if not isinstance(outcome, Outcome) or not outcome.losses:
        raise ContractError(f"{who} must return an `Outcome` with losses.")
    for name, loss in outcome.losses.items():
        if not isinstance(loss, Tensor):
            raise ContractError(f"{who} returns losses['{name}'] that is no tensor: compute it from the logits.")
        if loss.ndim:
            raise ContractError(f"{who} returns losses['{name}'] of shape {tuple(loss.shape)}: reduce it to a scalar.")
    if not [loss for loss in outcome.losses.values() if loss.requires_grad]:
        raise ContractError(
            f"{who} has no loss that weights learn from: compute one from logits that nothing detached."
        )


def check_places(before: Mapping[str, Tensor], after: Mapping[str, Tensor], who: str) -> None:
    """Refuse state that steps replace instead of writing into it: a recorded step would read the old one for ever."""
    moved = [name for name, tensor in before.items() if after[name].data_ptr() != tensor.data_ptr()]
    if moved:
        raise ContractError(
            f"{who} puts other tensors in the place of {', '.join(moved)}: write into what is there (`copy_`, `lerp_`, "
            "`add_`), because a step that is recorded on a GPU goes on with the old ones."
        )


class Wrapper(Method):
    """A method around another one, to whose objective it adds; neither knows what the other consists of.

    It is built as `Wrapper(method, problem, **settings)` from a method whose outcome has `features`.
    """

    def __init__(self, method: Method) -> None:
        nn.Module.__init__(self)
        self.method = method
        if not {"weak", "strong"} <= set(method.views.unlabeled):
            raise InputError(
                f"{type(self).__name__} builds on weak and strong views of the unlabeled images, which "
                f"{type(self.host).__name__} does not have: wrap a method that has both, such as FixMatch."
            )

    @property
    def views(self) -> Views:  # type: ignore[override]
        return self.method.views

    @property
    def host(self) -> Method:
        return self.method.host

    @property
    def net(self) -> nn.Module:  # type: ignore[override]
        """What is evaluated and kept; a wrapper with a classifier of its own puts that here."""
        return self.method.net

    @torch.no_grad()
    def update(self, memory: dict[str, Tensor]) -> None:
        """The wrapped method remembers; a wrapper with a memory of its own calls this, too."""
        self.method.update(memory)

    def features_of(self, outcome: Outcome) -> Features:
        """What the wrapped method exports, or a sentence that says that it does not."""
        if outcome.features is None:
            raise InputError(
                f"{type(self).__name__} builds on features, and {type(self.host).__name__} exports none: wrap another "
                "method, or give its outcome `features=Features(labeled, weak, strong)`."
            )
        return outcome.features
