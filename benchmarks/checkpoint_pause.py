"""How long training is held up by a checkpoint: written by the loop itself, and by a thread beside it.

    python benchmarks/checkpoint_pause.py [--recipe digits-simmatch] [--set net.width=64] [--repeats 10] [--steps 5]

A number of steps is timed without a checkpoint, with one written between two of them, and with one that is copied there
and written while the steps go on. The held-up time is the median of what the second and third take longer than the
first; the pause is what passes between the two steps. On a machine whose cores are all busy with the steps, the
thread's work is paid for by the steps; where a GPU computes them, or a core is free, it is not.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from epass.engine.build import build
from epass.recipe import parse_setting, read_recipe
from epass.training.checkpoint import save_checkpoint, write_checkpoint
from epass.training.step import make_step
from epass.training.writer import Writer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="digits-simmatch")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--steps", type=int, default=5, help="after each checkpoint")
    parser.add_argument("--repeats", type=int, default=10)
    given = parser.parse_args()
    recipe = read_recipe(given.recipe).with_settings(dict(map(parse_setting, given.settings)))
    experiment = build(recipe, torch.device("cpu"))
    step = make_step(experiment.method, experiment.optimizer, experiment.average)

    def timed(save: Callable[[], object]) -> tuple[float, float]:
        """Seconds of the saving alone, and of it and the steps that follow."""
        began = time.perf_counter()
        save()
        saved = time.perf_counter()
        for number in range(given.steps):
            step(experiment.feed(number))
        return saved - began, time.perf_counter() - began

    with tempfile.TemporaryDirectory() as name, Writer(1e9) as writer:
        folder = Path(name)

        def beside() -> None:
            writer.start(experiment.progress.tensors(), partial(write_checkpoint, folder, 2))

        size = save_checkpoint(folder, experiment.progress, 1).stat().st_size
        ways = {"none": lambda: None, "loop": lambda: save_checkpoint(folder, experiment.progress, 1), "thread": beside}
        found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        timed(ways["none"])
        for _ in range(given.repeats):
            for way, save in ways.items():
                found[way].append(timed(save))
                writer.wait()
    print(f"{given.recipe}: {size / 1e6:.1f} MB a checkpoint, {given.steps} steps, median of {given.repeats}")
    alone = statistics.median(total for _, total in found["none"])
    print(f"steps alone        {1e3 * alone:8.1f} ms")
    for way, words in (("loop", "written by the loop"), ("thread", "written beside it")):
        pause = statistics.median(pause for pause, _ in found[way])
        longer = statistics.median(total for _, total in found[way]) - alone
        print(f"{words}   pause {1e3 * pause:8.1f} ms   held up {1e3 * longer:8.1f} ms")


if __name__ == "__main__":
    main()
