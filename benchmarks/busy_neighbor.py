"""How long a training step takes on the CPU, alone and beside one busy program, by how torch's threads wait.

    python benchmarks/busy_neighbor.py [--recipe digits-simmatch] [--steps 20] [--repeats 3]

The command line of epass lets threads spin only briefly; this is why.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

CHILD = """
import json, sys, time
import torch
from epass.engine.build import build
from epass.recipe import read_recipe
from epass.training.step import make_step

experiment = build(read_recipe(sys.argv[1]), torch.device("cpu"))
step, seconds = make_step(experiment.method, experiment.optimizer, experiment.average), []
for number in range(int(sys.argv[2]) + 3):
    started = time.perf_counter()
    step(experiment.feed(number))
    seconds.append(time.perf_counter() - started)
print(json.dumps(1000 * sorted(seconds[3:])[len(seconds[3:]) // 2]))
"""


def milliseconds(policy: dict[str, str], busy: bool, recipe: str, steps: int) -> float:
    """The median step in a process of its own."""
    # In a session of its own, like a browser: schedulers share the cores between sessions, then between programs.
    neighbor = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) if busy else None
    try:
        done = subprocess.run(
            [sys.executable, "-c", CHILD, recipe, str(steps)],
            env={**os.environ, **policy},
            stdout=subprocess.PIPE,
            check=True,
        )
    finally:
        if neighbor is not None:
            neighbor.kill()
    return float(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--recipe", default="digits-simmatch")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(f"{options.recipe}, {os.cpu_count()} cores, median of {options.steps} steps")
    policies = {
        "as torch does": {},
        "briefly": {"GOMP_SPINCOUNT": "10000"},
        "not at all": {"OMP_WAIT_POLICY": "PASSIVE"},
    }
    for name, policy in policies.items():
        for busy in (False, True):
            found = [milliseconds(policy, busy, options.recipe, options.steps) for _ in range(options.repeats)]
            where = "beside one busy program" if busy else "alone"
            print(f"threads spin {name:13}, {where:23}: {', '.join(f'{ms:.0f}' for ms in found)} ms")


if __name__ == "__main__":
    main()
