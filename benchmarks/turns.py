"""Ways to train that stand ready side by side and are timed in turns, so that what slows the machine slows all."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median

import torch

from epass.data import Dataset
from epass.engine.build import build
from epass.engine.timing import machine, noise, state_kept, time_steps, warm_up, whole_step
from epass.recipe import Recipe
from epass.runs import environment


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """What all such comparisons can be told."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="simmatch")
    parser.add_argument("--net", default="wrn-28-2")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100, help="of each turn")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="a JSON file for every number")
    return parser


def images_for(device: torch.device) -> Dataset:
    """Random pixels, more of them where there is room."""
    return noise(images=50_000 if device.type == "cuda" else 5_000, classes=10)


def recipe_of(given: argparse.Namespace, projectors: int) -> Recipe:
    """A run of the published length, so that it is compiled where that pays."""
    return Recipe(
        source="benchmarks",
        data={"name": "noise", "labels": 40, "validation": 0},
        net={"name": given.net},
        method={"name": given.method},
        projector={"size": projectors},
        plan={"steps": 2**20},
    )


def stand_ready(
    given: argparse.Namespace, projectors: int, device: torch.device, dataset: Dataset
) -> Callable[[], list[float]]:
    """Build a step and warm it up: what is returned gives the milliseconds of some more of them."""
    experiment = build(recipe_of(given, projectors), device, dataset)
    with state_kept(experiment):
        work = whole_step(experiment)
        warm_up(work, device)
    return partial(time_steps, work, device, given.steps)


def compare(ways: Mapping[str, Callable[[], list[float]]], given: argparse.Namespace, device: torch.device) -> None:
    """Have each way give the milliseconds of some steps, turn by turn; percentages are against the first one."""
    turns: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(given.turns):
        for name, way in ways.items():
            turns[name].append(median(way()))
    facts = environment(0, shlex.join(["python", *sys.argv]), str(device)) | machine(device)
    print(f"{given.method}, {given.net}, on {facts['device_name']}, {given.turns} turns of {given.steps} steps")
    first = median(next(iter(turns.values())))
    for name, times in turns.items():
        spread = f"{min(times):.3f} to {max(times):.3f}"
        print(f"{name}  {median(times):.3f} ms ({spread}), {100 * (median(times) / first - 1):+.1f} %")
    if given.out is not None:
        given.out.write_text(json.dumps({"turns_ms": turns, "environment": facts}, indent=2) + "\n")
