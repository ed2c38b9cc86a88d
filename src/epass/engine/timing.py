"""How long a training step takes here, where the time goes, and how far that is from what the machine can do."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from ..data import Dataset, from_arrays, render
from ..errors import InputError
from ..machine.device import device_name
from ..machine.distributed import largest_over_ranks
from ..method import Batch
from ..networks import count_parameters
from ..runs import environment
from ..training.optimizer import set_lr
from ..training.recording import Recorded, kept
from ..training.step import make_step
from ..training.window import Window
from .build import Experiment

STEADY_STEPS, STEADY_SECONDS = 12, 2.0  # that are tried at least: a neighbor's work comes and goes in a second
STEADY = 0.1  # relative difference

Work = Callable[[int], object]  # what is timed, given the number of a step


def noise(*, images: int, classes: int, channels: int = 3, image_size: int = 32, seed: int = 0) -> Dataset:
    """Random pixels and labels in turn: no step of ours takes longer for one image than for another."""
    if classes < 2 or image_size < 8:
        what = f"{classes} classes" if classes < 2 else f"images of {image_size} pixels"
        raise InputError(f"There is nothing to time with {what}: use at least {2 if classes < 2 else 8}.")
    shape = (max(images, 4 * classes), channels, image_size, image_size)
    pixels = torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    return from_arrays(pixels.numpy(), (torch.arange(len(pixels)) % classes).numpy(), name="noise")


def seconds_per_step(experiment: Experiment, patience: float = 5.0) -> float:
    """Try steps until they take the same time for a while, put everything back, and say how long one takes.

    Only for a time budget, which has to become a number of steps before the first one: whoever estimates how long a
    run still takes counts its real steps.
    """
    seconds: list[float] = []
    with kept(list(experiment.progress.tensors().values())):
        step, feed = experiment.pipeline
        while not seconds or (sum(seconds) < patience and not is_steady(seconds)):
            started = time.perf_counter()
            outcome = step(feed(len(seconds)))
            outcome.loss.item()
            seconds.append(largest_over_ranks(time.perf_counter() - started))  # all stop trying after the same step
    return statistics.fmean(seconds[len(seconds) // 2 :])  # the first ones are slower than any other


def is_steady(seconds: Sequence[float]) -> bool:
    """Whether the last half of some steps, and the half of it before its end, took about the same time."""
    half, quarter = seconds[len(seconds) // 2 :], seconds[len(seconds) * 3 // 4 :]
    if len(seconds) < STEADY_STEPS or sum(seconds) < STEADY_SECONDS:
        return False
    return abs(statistics.fmean(half) / statistics.fmean(quarter) - 1) < STEADY


def measure(
    experiment: Experiment, *, steps: int | None = None, seconds: float = 10.0, command: str = ""
) -> dict[str, Any]:
    """Time the step of `experiment`, as the training loop makes it, and leave everything as it was.

    Args:
        experiment: What to time.
        steps: Timed steps of every pass; without it, as many as take about `seconds` in all.
        seconds: For all timing together, warming up aside.
        command: The line that started this, for the record.
    """
    if steps is not None and steps < 1:
        raise InputError(f"At least one step must be timed, not {steps}.")
    recipe, device, plan = experiment.recipe, experiment.device, experiment.plan
    facts = environment(recipe.seed, command, str(device)) | machine(device)
    precision = cast(torch.dtype, experiment.method.net.precision)
    with state_kept(experiment):
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        work = whole_step(experiment)
        pace = warm_up(work, device)
        steps = steps or min(2000, max(3, int(1000 * seconds / 4 / pace)))
        passes = [time_steps(work, device, steps) for _ in range(2)]
        memory = peak_memory(device)
        del work  # and with it the memory of a captured graph
        batch = time_batch(experiment, steps)
        forward, both = (time_part(experiment, stage, steps) for stage in ("forward", "backward"))
        flops, moved = count_flops(experiment), count_bytes(experiment)
    ceilings = measure_ceilings(device, precision)
    first, again = map(statistics.median, passes)
    low, step_ms, high = (torch.tensor(passes).quantile(share).item() for share in (0.1, 0.5, 0.9))
    waited = 0.0 if device.type == "cuda" else batch  # there it is made beside the step before
    labeled, unlabeled = (len(names) for names in experiment.feed.views)
    images = plan.labeled_batch * labeled + plan.unlabeled_batch * unlabeled
    reached = {"flops_per_second": 1000 * flops / step_ms, "bytes_per_second": 1000 * moved / step_ms}
    shape = experiment.split.labeled.shape
    return {
        "work": {
            "data": experiment.dataset.name,
            "classes": len(experiment.split.classes),
            "channels": shape[0],
            "image_size": shape[-1],
            "images_in_memory": len(experiment.split.unlabeled),
            "method": recipe.method["name"],
            "projectors": (recipe.projector or {}).get("size"),
            "net": recipe.net["name"],
            "parameters": count_parameters(experiment.method.net),
            "labeled_batch": plan.labeled_batch,
            "unlabeled_batch": plan.unlabeled_batch if unlabeled else 0,
            "precision": str(precision).removeprefix("torch."),
            "captured": device.type == "cuda",
            "compiled": experiment.feed.render is not render,
        },
        "steps_per_pass": steps,
        "step_ms": {"median": step_ms, "p10": low, "p90": high},
        "pass_ms": [first, again],
        "pass_spread": abs(first - again) / min(first, again),
        "images_per_step": images,
        "images_per_second": 1000 * images / step_ms,
        "peak_memory_bytes": memory,
        "batch_ms": batch,
        "split_ms": {
            "batch": waited,
            "forward": forward,
            "backward": both - forward,
            "rest": step_ms - waited - both,
        },
        "flops": flops,
        "bytes": moved,
        "reached": reached,
        "ceilings": ceilings,
        "shares": {name: value / ceilings[name] for name, value in reached.items()},
        "environment": facts,
    }


@contextmanager
def state_kept(experiment: Experiment) -> Iterator[None]:
    """Put weights, memories, averages, optimizer state and learning rate back at the end."""
    try:
        with kept(list(experiment.progress.tensors().values()), "cpu"):  # the device's memory is being measured
            yield
    finally:
        set_lr(experiment.optimizer, experiment.plan.lr)
        experiment.optimizer.zero_grad()


def whole_step(experiment: Experiment) -> Work:
    """One turn of the training loop: learning rate, batch, step, sums for the report."""
    step_fn, feed = experiment.make_pipeline()  # not the one that is kept, whose memory would stay
    window, plan = Window(0), experiment.plan

    def work(step: int) -> None:
        set_lr(experiment.optimizer, plan.lr * plan.lr_factor(step))
        window.add(step_fn(feed(step)))

    return work


def time_batch(experiment: Experiment, steps: int) -> float:
    """Milliseconds of making a batch while nothing else runs."""
    feed, device = experiment.feed, experiment.device
    if device.type != "cuda":
        return median_time(experiment.batch, device, steps)
    make = Recorded(feed.batch, feed.select(0), generators=[feed.generator])
    return median_time(lambda step: make(feed.select(step)), device, steps)


def time_part(experiment: Experiment, stage: str, steps: int) -> float:
    """Milliseconds from a batch to the end of `stage`, run in the way that the pipeline chose for the whole step."""
    device, method, batch = experiment.device, experiment.method, experiment.batch(0)
    compiled = experiment.feed.render is not render
    compute: Callable[..., Any] = torch.compile(method, dynamic=False) if compiled else method

    def part(batch: Batch) -> Any:
        loss = compute(batch).loss
        if stage == "backward":
            loss.backward()
            experiment.optimizer.zero_grad()
        return loss.detach()

    run: Callable[[Batch], Any] = part
    if device.type == "cuda":
        run = Recorded(part, batch, state=list(experiment.progress.tensors().values()))
    return median_time(lambda _: run(batch), device, steps)


def median_time(work: Work, device: torch.device, steps: int) -> float:
    """Milliseconds of a step, warmed up."""
    warm_up(work, device)
    return statistics.median(time_steps(work, device, steps))


def warm_up(work: Work, device: torch.device) -> float:
    """Work for half a second and three steps, unless these take very long; milliseconds of one."""
    work(0)
    spent: list[float] = []
    while sum(spent) < 500 or (len(spent) < 3 and sum(spent) < 5000):
        spent += time_steps(work, device, 1)
    return statistics.median(spent)


def time_steps(work: Work, device: torch.device, steps: int) -> list[float]:
    """Milliseconds of every step, by the device's own clock on CUDA."""
    if device.type == "cuda":
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]  # type: ignore[no-untyped-call]
        marks[0].record()
        for step in range(steps):
            work(step)
            marks[step + 1].record()
        torch.cuda.synchronize(device)
        return [start.elapsed_time(end) for start, end in pairwise(marks)]
    times = [time.perf_counter()]
    for step in range(steps):
        work(step)
        if device.type == "mps":
            torch.mps.synchronize()
        times.append(time.perf_counter())
    return [1000 * (end - start) for start, end in pairwise(times)]


def count_flops(experiment: Experiment) -> int:
    """Operations of convolutions and matrix products in one eager step; a multiplication and an addition are two."""
    step, batch = make_step(experiment.method, experiment.optimizer, experiment.average), experiment.batch(0)
    with FlopCounterMode(display=False) as counter:
        step(batch)
    return int(counter.get_total_flops())


@torch.no_grad()
def count_bytes(experiment: Experiment) -> int:
    """What a step moves at least when every layer of the network runs by itself.

    Three times the inputs and outputs of all layers (the modules that hold no others), once forward and twice backward,
    and once the parameters, everything in the precision of the network. A compiler that fuses layers moves less.
    """
    net, numbers = experiment.method.net, [count_parameters(experiment.method.net)]

    def count(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        numbers.append(3 * sum(value.numel() for value in (*inputs, output) if isinstance(value, Tensor)))

    layers = [module for module in net.modules() if not list(module.children())]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    experiment.method(experiment.batch(0))
    for hook in hooks:
        hook.remove()
    return sum(numbers) * cast(torch.dtype, net.precision).itemsize


def measure_ceilings(device: torch.device, precision: torch.dtype) -> dict[str, float]:
    """The best of a few large matrix products, and of a few large copies (bytes read and written)."""
    size, length = (8192, 2**29) if device.type == "cuda" else (1024, 2**26)
    left, right = torch.randn(2, size, size, device=device).to(precision)
    source, target = torch.ones(2, length, dtype=torch.uint8, device=device)
    product = min(time_steps(lambda _: left @ right, device, 12)[2:])
    copy = min(time_steps(lambda _: target.copy_(source), device, 12)[2:])
    return {"flops_per_second": 1000 * 2 * size**3 / product, "bytes_per_second": 1000 * 2 * length / copy}


def peak_memory(device: torch.device) -> int | None:
    """Bytes: on CUDA the most that tensors took of the device, else the most that the process took since it began."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def machine(device: torch.device) -> dict[str, Any]:
    """What a time depends on: the name of the device, threads, and how busy the machine is."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {"device_name": device_name(device), "threads": torch.get_num_threads(), "load": load}
