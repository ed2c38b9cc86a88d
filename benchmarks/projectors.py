"""The time of a training step against the number of projectors. All pipelines stand ready and are timed in turns.

    python benchmarks/projectors.py [--projectors 1 3 8] [--net wrn-28-2] [--turns 5] [--steps 100]

The percentages are against the first number of projectors.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from statistics import median

from epass.engine.build import build
from epass.engine.timing import machine, noise, state_kept, time_steps, warm_up, whole_step
from epass.machine.device import choose_device
from epass.recipe import Recipe
from epass.runs import environment


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--projectors", type=int, nargs="+", default=[1, 3, 8])
    parser.add_argument("--method", default="simmatch")
    parser.add_argument("--net", default="wrn-28-2")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100, help="of each turn")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="a JSON file for every number")
    given = parser.parse_args(arguments)
    device = choose_device(given.device)
    dataset = noise(images=50_000 if device.type == "cuda" else 5_000, classes=10)
    works = {}
    for size in given.projectors:
        recipe = Recipe(
            source="benchmarks/projectors.py",
            data={"name": "noise", "labels": 40, "validation": 0},
            net={"name": given.net},
            method={"name": given.method},
            projector={"size": size},
            plan={"steps": 2**20},
        )
        experiment = build(recipe, device, dataset)
        with state_kept(experiment):
            works[size] = whole_step(experiment)
            warm_up(works[size], device)
    turns: dict[int, list[float]] = {size: [] for size in works}
    for _ in range(given.turns):
        for size, work in works.items():
            turns[size].append(median(time_steps(work, device, given.steps)))

    first = median(turns[given.projectors[0]])
    facts = environment(0, shlex.join(["python", *sys.argv]), str(device)) | machine(device)
    print(f"{given.method}, {given.net}, on {facts['device_name']}, {given.turns} turns of {given.steps} steps")
    for size, times in turns.items():
        spread = f"{min(times):.3f} to {max(times):.3f}"
        print(f"{size} projectors  {median(times):.3f} ms ({spread}), {100 * (median(times) / first - 1):+.1f} %")
    if given.out is not None:
        given.out.write_text(json.dumps({"turns_ms": turns, "environment": facts}, indent=2) + "\n")


if __name__ == "__main__":
    main()
