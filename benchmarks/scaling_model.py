"""The costs of a training step on many GPUs, in seconds and bytes; docs/scaling.md explains the formulae.

Prices come from benchmarks/scaling_inputs.json, where each has its source; batch, queue and views from the recipes and
methods of the package.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from epass.methods import METHODS
from epass.networks import make_network
from epass.parts.projector import ProjectorEnsemble
from epass.recipe import Recipe, read_recipe
from epass.training.exchange import LEAST_BYTES, MOST_MESSAGES

INPUTS = json.loads((Path(__file__).parent / "scaling_inputs.json").read_text(encoding="utf-8"))
CLASSES, LABELED, IMAGE_SIZE, PROJECTORS, WIDTH = 1000, 100_000, 224, 3, 128

# Messages


class Link(NamedTuple):
    """What a message costs: `latency + bytes / bandwidth`."""

    latency: float  # s
    bandwidth: float  # bytes/s


class Cluster(NamedTuple):
    """Nodes of GPUs; every GPU has a port of its own to the network."""

    gpus: int
    per_node: int
    inside: Link
    outside: Link

    @property
    def nodes(self) -> int:
        return math.ceil(self.gpus / self.per_node)

    @property
    def in_node(self) -> int:
        return min(self.gpus, self.per_node)

    def one_node(self) -> Cluster:
        return self._replace(gpus=self.in_node)


def ring_all_reduce(size: float, ranks: int, link: Link) -> float:
    """Reduce-scatter and all-gather around a ring, in parts of `size / ranks`."""
    return 2 * (ranks - 1) * (link.latency + size / ranks / link.bandwidth) if ranks > 1 else 0.0


def tree_all_reduce(size: float, ranks: int, link: Link) -> float:
    """Up and down a binary tree whose messages are cut finely enough to travel on all levels at once."""
    return 2 * math.ceil(math.log2(ranks)) * link.latency + 2 * size / link.bandwidth if ranks > 1 else 0.0


def flat_all_reduce(size: float, ranks: int, link: Link) -> float:
    """The faster of both, as NCCL chooses."""
    return min(ring_all_reduce(size, ranks, link), tree_all_reduce(size, ranks, link))


def ring_all_gather(size: float, ranks: int, link: Link) -> float:
    """`size` bytes of every rank to all."""
    return (ranks - 1) * (link.latency + size / link.bandwidth) if ranks > 1 else 0.0


def all_reduce(size: float, cluster: Cluster) -> float:
    """Over all GPUs: halves of an all-reduce inside the nodes, and between them one of each GPU's part."""
    inside = flat_all_reduce(size, cluster.in_node, cluster.inside)
    return inside + flat_all_reduce(size / cluster.in_node, cluster.nodes, cluster.outside)


def all_gather(size: float, cluster: Cluster) -> float:
    """`size` bytes of every GPU to all: between the nodes, then the parts of whole columns inside them."""
    outside = ring_all_gather(size, cluster.nodes, cluster.outside)
    return outside + ring_all_gather(size * cluster.nodes, cluster.in_node, cluster.inside)


# The work


class Network(NamedTuple):
    """What of the network travels and is stored."""

    parameters: int  # of backbone, classifier and projectors
    averaged: int  # of these, those that the moving average follows
    buffers: int
    norms: tuple[int, ...]  # the channels of every BatchNorm layer


@cache
def network(name: str = "resnet-50", classes: int = CLASSES) -> Network:
    with torch.device("meta"):
        net = make_network(name, in_channels=3, num_classes=classes)
        projector = ProjectorEnsemble(net.num_features, WIDTH, size=PROJECTORS)
    averaged = sum(p.numel() for p in net.parameters())
    return Network(
        averaged + sum(p.numel() for p in projector.parameters()),
        averaged,
        sum(b.numel() for b in net.buffers()),
        tuple(module.num_features for module in net.modules() if isinstance(module, nn.BatchNorm2d)),
    )


@cache
def recipe_of(method: str) -> Recipe:
    return read_recipe(f"imagenet-{method}")


@dataclass(frozen=True)
class Case:
    """A method on a cluster, with what the whole cluster trains on in a step."""

    method: str
    cluster: Cluster
    labeled: int
    unlabeled: int
    costs: dict[str, Any]
    norm_group: Literal["all", "node"] = "all"  # whose images a BatchNorm layer sees
    cached: bool = False  # every node keeps the files it has read

    @property
    def recipe(self) -> Recipe:
        return recipe_of(self.method)

    @property
    def own_labeled(self) -> int:
        return math.ceil(self.labeled / self.cluster.gpus)

    @property
    def own_unlabeled(self) -> int:
        return math.ceil(self.unlabeled / self.cluster.gpus)

    @property
    def own_images(self) -> int:
        """Images that pass the network of the busiest GPU, every view counted."""
        views = METHODS[self.method].views
        return self.own_labeled * len(views.labeled) + self.own_unlabeled * len(views.unlabeled)

    @property
    def images(self) -> int:
        views = METHODS[self.method].views
        return self.labeled * len(views.labeled) + self.unlabeled * len(views.unlabeled)

    @property
    def possible(self) -> bool:
        """Every GPU needs an image of each kind."""
        return min(self.labeled, self.unlabeled) >= self.cluster.gpus


def line(points: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Slope and offset of the best line; a single point says that the time is proportional."""
    if len(points) == 1:
        return points[0][1] / points[0][0], 0.0
    images, spent = np.array(points, dtype=np.float64).T
    slope, offset = np.polyfit(images, spent, 1)
    return float(slope), max(0.0, float(offset))


def compute(case: Case) -> float:
    slope, offset = line(case.costs[f"{case.method}_step_ms"])
    return (slope * case.own_images + offset) / 1000


def gradients(case: Case) -> float:
    """What the backward pass does not hide of the all-reduce of the gradients."""
    backward: float = case.costs["backward_share"] * compute(case)
    return exposed(4 * network().parameters, backward / len(network().norms), case.cluster)


def exposed(size: float, gap: float, cluster: Cluster) -> float:
    """Of the messages of `size` bytes of gradients, all of the last, and of the others what outlasts a `gap`.

    That is the time between two normalizations, whose own messages wait for those that were sent before.
    """
    messages = min(MOST_MESSAGES, max(1, int(size / LEAST_BYTES)))
    each = all_reduce(size / messages, cluster)
    return each + (messages - 1) * max(0.0, each - gap)


def batch_norm(case: Case) -> float:
    """Each layer waits for an all-gather of means, deviations and counts forward and an all-reduce of sums backward."""
    group = case.cluster.one_node() if case.norm_group == "node" else case.cluster
    return sum(all_gather(4 * (2 * width + 1), group) + all_reduce(4 * 2 * width, group) for width in network().norms)


def exchanged(case: Case) -> list[tuple[str, int]]:
    """What the method itself exchanges in a step: a collective, and the bytes that every GPU brings to it."""
    width, classes, labeled, unlabeled = 4 * WIDTH, 4 * CLASSES, case.own_labeled, case.own_unlabeled
    alignment = ("all-reduce", classes)  # the mean prediction
    if case.method == "simmatch":  # for the memory: positions, embeddings, labels
        return [alignment, *(("all-gather", labeled * size) for size in (8, width, 8))]
    rows = labeled + unlabeled
    return [
        alignment,
        ("all-gather", unlabeled * classes),  # pseudo-labels, for the graph
        ("all-gather", unlabeled * width),  # the other view
        ("all-reduce", case.unlabeled * width),  # its gradients
        ("all-gather", rows * width),  # for the queue
        ("all-gather", rows * classes),
    ]


def gathers(case: Case) -> float:
    """All of it where the step waits."""
    prices = {"all-reduce": all_reduce, "all-gather": all_gather}
    return sum(prices[collective](size, case.cluster) for collective, size in exchanged(case))


def decoding(case: Case) -> float:
    """Every file is decoded once, whatever its views; threads work while the GPU does."""
    rate: float = case.costs["decode_per_core"] * case.costs["cores_per_gpu"]
    return (case.own_labeled + case.own_unlabeled) / rate


def reading(case: Case) -> float:
    """The files of all GPUs from one file system, as if nothing were kept from the last pass over them."""
    return (
        0.0
        if case.cached
        else (case.labeled + case.unlabeled) * case.costs["file_bytes"] / case.costs["read_bandwidth"]
    )


class Times(NamedTuple):
    """Seconds of a step. Decoding and reading run beside the others, which wait for each other."""

    computing: float
    gradients: float
    batch_norm: float
    gathers: float
    decoding: float
    reading: float

    @property
    def step(self) -> float:
        return max(self.computing + self.gradients + self.batch_norm + self.gathers, self.decoding, self.reading)

    @property
    def limit(self) -> str:
        """What to improve first."""
        if self.step > sum(self[:4]):
            return "decoding" if self.decoding > self.reading else "reading files"
        names = {
            "computing": "computing",
            "gradients": "gradients",
            "batch_norm": "SyncBatchNorm",
            "gathers": "gathers",
        }
        return names[max(names, key=lambda name: float(getattr(self, name)))]


def times(case: Case) -> Times:
    return Times(compute(case), gradients(case), batch_norm(case), gathers(case), decoding(case), reading(case))


def memory_rows(case: Case) -> dict[str, float]:
    """Bytes of what a method remembers: a row for every labeled image, or a queue."""
    if case.method == "simmatch":
        return {"memory": LABELED * (4 * WIDTH + 4)}
    return {"memory": case.recipe.method["queue_size"] * 4 * (WIDTH + CLASSES)}


def memory(case: Case) -> dict[str, float]:
    """Bytes on every GPU."""
    net, unlabeled = network(), case.own_unlabeled
    parts = {
        "weights": 4 * net.parameters + 2 * net.parameters,  # and their copies in bfloat16
        "gradients": 2 * 4 * net.parameters,  # and the messages they travel in
        "optimizer": 4 * net.parameters,
        "average": 4 * net.averaged,
        "activations": 2 * case.costs["activation_elements"] * case.own_images,
        "images": 4 * 3 * IMAGE_SIZE**2 * case.own_images,
        "context": case.costs["context_bytes"],
        **memory_rows(case),
    }
    if case.method == "simmatch":  # classes of the memory as one-hot rows; similarities to it, of both views
        parts["similarities"] = 4 * LABELED * CLASSES + 6 * 4 * unlabeled * LABELED
    else:  # to the queue and to the batch of all GPUs, whose rows are here as well
        queue = case.recipe.method["queue_size"]
        parts["similarities"] = 4 * unlabeled * (2 * queue + 5 * case.unlabeled)
        parts["gathered"] = 4 * (WIDTH + CLASSES) * (2 * case.unlabeled + case.labeled)
    return parts


def checkpoint(case: Case) -> float:
    """Bytes: weights, momentum, moving average, buffers of both networks, memory."""
    net = network()
    alignment: int = CLASSES * case.recipe.method["alignment_length"]
    return 4 * (2 * net.parameters + net.averaged + 2 * net.buffers + alignment) + sum(memory_rows(case).values())


# Cases


def costs(**changes: Any) -> dict[str, Any]:
    return {name: entry["value"] for name, entry in INPUTS.items()} | changes


def slower(values: dict[str, Any], factor: float) -> dict[str, Any]:
    return values | {name: factor * values[name] for name in ("nvlink_latency", "network_latency")}


def cluster(gpus: int, values: dict[str, Any]) -> Cluster:
    inside = Link(values["nvlink_latency"], values["nvlink_bandwidth"])
    outside = Link(values["network_latency"], values["network_bandwidth"])
    return Cluster(gpus, values["gpus_per_node"], inside, outside)


def case(
    method: str, gpus: int, *, shared: bool = False, labeled: int | None = None, values: dict[str, Any] | None = None
) -> Case:
    """The batch of the recipe, on every GPU or `shared` by all of them; or one with `labeled` labeled images in all."""
    values = costs() if values is None else values
    plan = recipe_of(method).plan
    labeled = labeled or plan["labeled_batch"] * (1 if shared else gpus)
    return Case(method, cluster(gpus, values), labeled, labeled * plan["unlabeled_ratio"], values)
