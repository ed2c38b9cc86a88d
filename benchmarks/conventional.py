"""The conventional pipeline against ours, on the same data, method, network and batch, in one run.

Conventional is what public code for semi-supervised learning does: worker processes that augment one image at a time
with Pillow, a DataLoader, an eager float32 step in contiguous layout, a loop over projectors, an optimizer and a moving
average that go through the parameters one by one, and every loss read at every step. It gets every customary
convenience: persistent workers, prefetching, pinned memory, asynchronous copies.

    GOMP_SPINCOUNT=10000 python benchmarks/conventional.py --net small --labeled-batch 32 --workers 1+1

With the variable, torch's threads stop spinning soon when they wait, so that they and the worker processes disturb each
other less where there are fewer cores than processes.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler
from torch.utils.data import Dataset as TorchDataset

from epass.augment import CUTOUT_COLOR, OPERATIONS, Strong, Weak
from epass.data import Images, open_dataset
from epass.engine.build import Experiment, build, check_recipe
from epass.engine.models import takes_projector
from epass.engine.timing import machine, noise, time_steps, whole_step
from epass.errors import InputError
from epass.features.views import PILLOW
from epass.machine.device import choose_device
from epass.method import Batch, Method, Outcome
from epass.methods import METHODS
from epass.parts.projector import ProjectorEnsemble
from epass.recipe import Recipe
from epass.runs import environment
from epass.seeds import fold
from epass.training.optimizer import make_optimizer, parameter_groups
from epass.training.step import make_step, observe

Array = np.ndarray[Any, np.dtype[np.uint8]]
PREFETCHED = 2  # batches that every worker makes ahead, the default of DataLoader
CUTOUT_GRAY = 123

# Augmentation, one image at a time


class PillowWeak:
    """A random crop of the reflect-padded image, randomly mirrored; settings from our policy."""

    def __init__(self, policy: Weak) -> None:
        self.padding, self.horizontal, self.vertical = policy.padding, policy.horizontal_flip, policy.vertical_flip

    def __call__(self, pixels: Array) -> Image.Image:
        """An (H, W) or (H, W, C) array as an image."""
        height, width = pixels.shape[:2]
        around = [(self.padding, self.padding)] * 2 + [(0, 0)] * (pixels.ndim - 2)
        top, left = random.randint(0, 2 * self.padding), random.randint(0, 2 * self.padding)
        image = Image.fromarray(np.pad(pixels, around, mode="reflect")).crop((left, top, left + width, top + height))
        if self.horizontal and random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if self.vertical and random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
        return image


class PillowStrong:
    """Crop and mirror, then RandAugment, then Cutout; settings from our policy."""

    def __init__(self, policy: Strong) -> None:
        self.weak, self.cutout = PillowWeak(policy.weak), policy.cutout
        self.operations, self.num_operations = policy.operations, policy.num_operations

    def draw(self) -> list[tuple[str, float]]:
        """The operations of one image and their magnitudes."""
        names = random.choices(self.operations, k=self.num_operations)
        return [(name, random.uniform(*OPERATIONS[name])) for name in names]

    def __call__(self, pixels: Array) -> Image.Image:
        """An (H, W) or (H, W, C) array as an image."""
        image = self.weak(pixels)
        for name, value in self.draw():
            image = PILLOW[name](image, value)
        side = self.cutout * random.random() * image.width
        left = int(max(0.0, random.random() * image.width - side / 2))
        top = int(max(0.0, random.random() * image.height - side / 2))
        if side > 0:
            corners = (left, top, min(image.width, left + side), min(image.height, top + side))
            ImageDraw.Draw(image).rectangle(corners, CUTOUT_COLOR if image.mode == "RGB" else CUTOUT_GRAY)
        return image


class Augmented(TorchDataset[tuple[int, int, tuple[Tensor, ...]]]):
    """Views of one image at a time, as normalized tensors."""

    def __init__(self, images: Images, names: tuple[str, ...], experiment: Experiment) -> None:
        pixels, policies = images.pixels.cpu(), experiment.feed.policies
        self.pixels = pixels[:, 0].numpy() if pixels.shape[1] == 1 else pixels.permute(0, 2, 3, 1).contiguous().numpy()
        self.labels = images.labels.tolist()
        weak, strong = cast(Weak, policies["weak"]), cast(Strong, policies["strong"])
        transforms: dict[str, Callable[[Array], Image.Image]]
        transforms = {"weak": PillowWeak(weak), "strong": PillowStrong(strong)}
        self.transforms = [transforms[name] for name in names]
        self.mean = torch.tensor(experiment.dataset.mean)[:, None, None]
        self.std = torch.tensor(experiment.dataset.std)[:, None, None]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[int, int, tuple[Tensor, ...]]:
        views = tuple(self.to_tensor(transform(self.pixels[index])) for transform in self.transforms)
        return index, self.labels[index], views

    def to_tensor(self, image: Image.Image) -> Tensor:
        """(C, H, W), normalized."""
        array = torch.from_numpy(np.array(image))
        array = array[None] if array.ndim == 2 else array.permute(2, 0, 1).contiguous()
        return array.float().div_(255).sub_(self.mean).div_(self.std)


class Endless(Sampler[int]):
    """Shuffled passes without an end."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from torch.randperm(self.count).tolist()


def batches(experiment: Experiment, workers: tuple[int, int]) -> Iterator[Batch]:
    """The batches of the conventional side, on the device."""
    plan, views, device = experiment.plan, experiment.feed.views, experiment.device

    def load(images: Images, names: tuple[str, ...], rows: int, processes: int) -> Iterator[Any]:
        return iter(
            DataLoader(
                Augmented(images, names, experiment),
                batch_size=rows,
                sampler=Endless(len(images)),
                drop_last=True,
                num_workers=processes,
                prefetch_factor=PREFETCHED if processes else None,
                persistent_workers=processes > 0,
                pin_memory=device.type == "cuda",
            )
        )

    def to_device(value: Any) -> Any:
        return torch.utils._pytree.tree_map(lambda tensor: tensor.to(device, non_blocking=True), value)

    labeled = load(experiment.split.labeled, views.labeled, plan.labeled_batch, workers[0])
    unlabeled = None
    if views.unlabeled:
        unlabeled = load(experiment.split.unlabeled, views.unlabeled, plan.unlabeled_batch, workers[1])
    step, none = 0, torch.empty(0, dtype=torch.int64, device=device)
    while True:
        index, labels, x = to_device(next(labeled))
        other, truth, u = to_device(next(unlabeled)) if unlabeled is not None else (none, none, ())
        clock, seed = torch.tensor([step, fold(experiment.recipe.seed, "method", step)], device=device)
        yield Batch(tuple(x), labels, tuple(u), index, other, truth, clock, seed)
        step += 1


# The step


class LoopedProjectors(ProjectorEnsemble):
    """The heads one after the other, as published."""

    def forward(self, features: Tensor) -> Tensor:
        """(N, in_dim) -> (N, self.out_dim)."""
        embedding = self.combine_heads(self.outputs(features))
        return embedding if self.normalize == "before" else F.normalize(embedding.float(), dim=1, eps=self.eps)


class Conventional(NamedTuple):
    """The state of the conventional side."""

    method: Method
    optimizer: torch.optim.Optimizer
    average: nn.Module
    momentum: float

    def step(self, batch: Batch) -> dict[str, float]:
        """One optimization step; every loss and metric is read at once."""
        outcome: Outcome = self.method(batch)
        self.optimizer.zero_grad()
        outcome.loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.method.update(outcome.memory)
        with torch.no_grad():
            for slow, value in zip(self.average.parameters(), self.method.net.parameters(), strict=True):
                slow.mul_(self.momentum).add_(value, alpha=1 - self.momentum)
            for buffer, now in zip(self.average.buffers(), self.method.net.buffers(), strict=True):
                buffer.copy_(now)
        values = {**outcome.losses, **outcome.metrics, **observe(outcome.pseudo, batch.unlabeled_truth)}
        return {name: value.item() for name, value in values.items() if value.ndim == 0}  # nobody reads counts by class


def conventional(experiment: Experiment, original: Method | None = None) -> Conventional:
    """A copy of `original`, or of the method of `experiment`, for the conventional step."""
    method, plan = copy.deepcopy(original or experiment.method), experiment.plan
    cast(Any, method.net).precision = torch.float32
    method.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    if isinstance(own := getattr(method, "projector", None), ProjectorEnsemble):
        features = cast(int, cast(Any, method.net).num_features)
        looped = LoopedProjectors(features, **(experiment.recipe.projector or {}))
        looped.load_state_dict(own.state_dict())
        method.projector = looped.to(experiment.device)
    optimizer = torch.optim.SGD(
        parameter_groups(method, plan.weight_decay), lr=plan.lr, momentum=plan.momentum, nesterov=True
    )
    average = copy.deepcopy(experiment.average.module)
    average.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return Conventional(method, optimizer, average, experiment.average.momentum)


def largest_difference(experiment: Experiment, steps: int = 3) -> float:
    """How far the losses of both steps are apart, relatively, over a few steps on the same batches, in float32.

    Every part of the objective takes part: the steps are late ones, after warming up, and every pseudo-label is used.
    """
    ours = copy.deepcopy(experiment.method)
    cast(Any, ours.net).precision = torch.float32
    if hasattr(ours, "threshold"):
        cast(Any, ours).threshold = 0.0
    optimizer, average = make_optimizer(ours, experiment.plan), copy.deepcopy(experiment.average)
    step, other = make_step(ours, optimizer, average), conventional(experiment, ours)
    worst = 0.0
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for number in range(steps):
            batch = experiment.batch(number)
            batch = batch._replace(step=torch.full_like(batch.step, experiment.plan.steps - steps + number))
            expected, found = step(batch).losses, other.step(batch)
            for name, loss in expected.items():
                worst = max(worst, abs(loss.item() - found[name]) / max(1e-3, abs(loss.item())))
    return worst


# Timing


def time_conventional(side: Conventional, source: Iterator[Batch], steps: int) -> tuple[list[float], list[float]]:
    """Milliseconds of waiting for data, and of the step, of every step; reading the losses waits for the device."""
    waiting, working = [], []
    for _ in range(steps):
        start = time.perf_counter()
        batch = next(source)
        ready = time.perf_counter()
        side.step(batch)
        waiting.append(1000 * (ready - start))
        working.append(1000 * (time.perf_counter() - ready))
    return waiting, working


def compare(experiment: Experiment, workers: tuple[int, int], steps: int, rounds: int) -> dict[str, Any]:
    """Both sides in turns, each number the median over the turns of their means: a disturbance spoils one turn."""
    device = experiment.device
    side, source, work = conventional(experiment), batches(experiment, workers), whole_step(experiment)
    ahead = PREFETCHED * max(workers)  # what lies ready when a turn begins must not count
    turns: dict[str, list[float]] = {"conventional": [], "data": [], "step": [], "epass": []}
    for _ in range(rounds):
        time_conventional(side, source, 2 + ahead)
        waiting, working = time_conventional(side, source, steps)
        time_steps(work, device, 2)
        ours = time_steps(work, device, steps)
        turns["data"].append(mean(waiting))
        turns["step"].append(mean(working))
        turns["conventional"].append(mean(waiting) + mean(working))
        turns["epass"].append(mean(ours))
    found = {name: median(values) for name, values in turns.items()}
    return {
        "conventional_ms": found["conventional"],
        "conventional_split_ms": {"data": found["data"], "step": found["step"]},
        "epass_ms": found["epass"],
        "ratio": found["conventional"] / found["epass"],
        "turns_ms": turns,
    }


def parse_workers(text: str) -> tuple[int, int]:
    parts = text.split("+")
    if len(parts) != 2 or not all(part.isdigit() for part in parts):
        raise InputError(f"'{text}' is no number of workers: write labeled+unlabeled, such as 1+2, or 0+0 for none.")
    return int(parts[0]), int(parts[1])


def prepare(options: argparse.Namespace) -> Experiment:
    device, method = choose_device(options.device), options.method
    projectors = options.projectors
    if projectors is None and method in METHODS and takes_projector(METHODS[method]):
        projectors = 3
    recipe = Recipe(
        source="benchmarks/conventional.py",
        data={"name": options.data},
        net={"name": options.net},
        method={"name": method},
        projector=None if projectors is None else {"size": projectors},
        plan={
            "steps": 2**20,
            "labeled_batch": options.labeled_batch,
            "unlabeled_ratio": options.unlabeled_ratio,
        },
        seed=options.seed,
    )
    check_recipe(recipe)
    if options.data == "noise":
        dataset = noise(images=5000, classes=10, channels=options.channels, image_size=options.image_size or 32)
    else:
        dataset = open_dataset(options.data, image_size=options.image_size)
    if dataset.train.pixels.shape[1] not in (1, 3):
        raise InputError("Pillow knows images of 1 or 3 channels.")
    dataset = replace(dataset, test=dataset.train.select(torch.empty(0, dtype=torch.int64)))
    recipe = replace(recipe, data={"name": options.data, "labels": 4 * len(dataset.classes)})
    return build(recipe, device, dataset)


def describe(options: argparse.Namespace, found: dict[str, Any]) -> str:
    split, machine_facts = found["conventional_split_ms"], found["environment"]

    def turns(name: str) -> str:
        values = found["turns_ms"][name]
        return f"{min(values):.4g} to {max(values):.4g} in {len(values)} turns of {options.steps} steps"

    lines = [
        f"{options.method} ({found['projectors'] or 'no'} projectors), {options.net}, {found['shape']}, "
        f"batch {options.labeled_batch} + {found['unlabeled_batch']}, {found['images_per_step']} images with all views",
        f"conventional  {found['conventional_ms']:.4g} ms a step, {split['data']:.4g} waiting for data and "
        f"{split['step']:.4g} in the step, {options.workers} workers ({turns('conventional')})",
        f"epass         {found['epass_ms']:.4g} ms a step ({turns('epass')})",
        f"ratio         {found['ratio']:.2f}",
        f"same losses   {'yes' if found['same_losses'] else 'NO'}, largest relative difference over three steps "
        f"{found['largest_difference']:.1e}",
        f"machine       {machine_facts['device_name']}, {machine_facts['cpu_count']} cores, torch "
        f"{machine_facts['torch']}, load {machine_facts['load']:.2f} before",
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="noise", help="noise, a built-in data set, a folder or an .npz file")
    parser.add_argument("--method", default="simmatch")
    parser.add_argument("--projectors", type=int, help="3 where the method has them")
    parser.add_argument("--net", default="wrn-28-2")
    parser.add_argument("--labeled-batch", type=int, default=64)
    parser.add_argument("--unlabeled-ratio", type=int, default=7)
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--channels", type=int, default=3, help="of the noise")
    parser.add_argument(
        "--workers", default="1+2", help="worker processes, labeled+unlabeled (default 1+2, as published)"
    )
    parser.add_argument("--steps", type=int, default=20, help="timed steps of every turn (default 20)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side (default 5)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="JSON file")
    options = parser.parse_args(arguments)
    try:
        workers = parse_workers(options.workers)
        if min(options.steps, options.rounds) < 1:
            raise InputError("At least one step of one round must be timed.")
        experiment = prepare(options)
    except InputError as problem:
        print(f"Error: {problem}", file=sys.stderr)
        return 2
    random.seed(options.seed)
    torch.manual_seed(options.seed)
    command = shlex.join(["python", "benchmarks/conventional.py", *(sys.argv[1:] if arguments is None else arguments)])
    facts = environment(options.seed, command, str(experiment.device)) | machine(experiment.device)
    difference = largest_difference(experiment)
    labeled, unlabeled = (len(names) for names in experiment.feed.views)
    plan = experiment.plan
    found = {
        **compare(experiment, workers, options.steps, options.rounds),
        "same_losses": difference < 1e-3,
        "largest_difference": difference,
        "images_per_step": plan.labeled_batch * labeled + plan.unlabeled_batch * unlabeled,
        "unlabeled_batch": plan.unlabeled_batch if unlabeled else 0,
        "projectors": (experiment.recipe.projector or {}).get("size"),
        "shape": " x ".join(map(str, experiment.split.labeled.pixels.shape[1:])),
        "arguments": {name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()},
        "environment": facts | {name: os.environ.get(name) for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")},
    }
    print(describe(options, found))
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0 if found["same_losses"] else 1


if __name__ == "__main__":
    sys.exit(main())
