"""What the messages of several processes cost a training step, on one device: a process that sends them to itself.

    python benchmarks/messages.py [--method simmatch] [--net wrn-28-2] [--turns 5] [--steps 100]

The same step is built twice, once as in a single process and once as in one of several, whose every message is sent
and received. Both stand ready and are timed in turns. What this leaves out is the way between devices.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import median

from epass.engine.build import build
from epass.engine.timing import machine, noise, state_kept, time_steps, warm_up, whole_step
from epass.machine.device import choose_device
from epass.recipe import Recipe
from epass.runs import environment
from epass.testing.world_of_one import talking, world_of_one


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="simmatch")
    parser.add_argument("--net", default="wrn-28-2")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100, help="of each turn")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="a JSON file for every number")
    given = parser.parse_args(arguments)
    device = choose_device(given.device)
    dataset = noise(images=50_000 if device.type == "cuda" else 5_000, classes=10)
    recipe = Recipe(
        source="benchmarks/messages.py",
        data={"name": "noise", "labels": 40, "validation": 0},
        net={"name": given.net},
        method={"name": given.method},
        projector={"size": 3},
        plan={"steps": 2**20},
    )
    ways: dict[str, Callable[[], AbstractContextManager[None]]] = {"alone": nullcontext, "talking": talking}
    turns: dict[str, list[float]] = {name: [] for name in ways}
    with world_of_one(device.type):
        works = {}
        for name, way in ways.items():
            with way():
                experiment = build(recipe, device, dataset)
                with state_kept(experiment):
                    works[name] = whole_step(experiment)
                    warm_up(works[name], device)
        for _ in range(given.turns):
            for name, way in ways.items():
                with way():
                    turns[name].append(median(time_steps(works[name], device, given.steps)))

    facts = environment(0, shlex.join(["python", *sys.argv]), str(device)) | machine(device)
    print(f"{given.method}, {given.net}, on {facts['device_name']}, {given.turns} turns of {given.steps} steps")
    first = median(turns["alone"])
    for name, times in turns.items():
        spread = f"{min(times):.3f} to {max(times):.3f}"
        print(f"{name:8}  {median(times):.3f} ms ({spread}), {100 * (median(times) / first - 1):+.1f} %")
    if given.out is not None:
        given.out.write_text(json.dumps({"turns_ms": turns, "environment": facts}, indent=2) + "\n")


if __name__ == "__main__":
    main()
