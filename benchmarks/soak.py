"""What `kill -9` does to a run: kill it again and again, resume it every time, and compare what comes out.

    python benchmarks/soak.py [--kills 200] [--steps 400] [--seed 0] [--out soak.json]

A small run on the CPU writes checkpoints almost without pause. Its process gets SIGKILL at a random moment: while it
reads its folder, trains, tests or writes; a part of the kills waits for a checkpoint that is half written. `epass train
--resume` goes on each time. A run that ends before its next kill is compared with an undisturbed one, byte by byte, and
the next run begins, until there were as many kills as wanted; the last one may end in peace. How long a process may
live at most follows the speed of the machine: shorter after a run that ended, longer after a process that had not even
read its checkpoint.

Each training process is forked from this one, which has imported everything: most kills would otherwise hit that.
What a kill cannot show is a power cut, in which the system, too, forgets what it has not yet written.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

os.environ["OMP_NUM_THREADS"] = "1"  # a forked process must find no threads missing

import torch

from epass.cli import main as epass
from epass.engine import run as running
from epass.runs import environment
from epass.training.checkpoint import checkpoints, read_checkpoint

RECIPE = """
format = 1
source = "made up to be killed"

[data]
name = "digits"
labels = 40

[net]
name = "small"
width = 24

[method]
name = "simmatch"
threshold = 0.3
warmup_steps = 10

[projector]
size = 3
out_dim = 64

[plan]
steps = {steps}
labeled_batch = 8
unlabeled_ratio = 2
average_momentum = 0.9
report_every = 5
evaluate_every = 35
checkpoint_minutes = 1e-4
"""
AIMED = 0.3  # of the kills wait for the next moment in which a checkpoint is half written
BYTES = ("model.safetensors", "predictions.npz", "model.json", "recipe.toml")


class Run:
    """One run folder, its training process, and what is known of its checkpoints."""

    def __init__(self, folder: Path, recipe: Path) -> None:
        self.folder, self.recipe = folder, recipe
        self.starts = folder.with_suffix(".starts")  # the step that each process of the run started from
        self.errors = folder.with_suffix(".errors")
        self.complete = 0  # the step of the newest checkpoint that was complete at the last kill

    def start(self) -> int:
        """Train, or go on, in a new process; returns its number."""
        self.starts.write_text("")
        sys.stdout.flush()
        number = os.fork()
        if number == 0:
            self._train()
        return number

    def _train(self) -> NoReturn:
        restore = running.restore_newest

        def noting(*given: Any) -> int:
            step = restore(*given)
            self.starts.write_text(str(step))
            return step

        running.restore_newest = noting
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(self.errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), 2)
        how = ["--resume"] if (self.folder / "recipe.toml").exists() else ["--recipe", str(self.recipe)]
        try:
            os._exit(train(self.folder, *how))
        except BaseException as problem:  # a traceback of the command line, which must not be taken for ours
            os.write(2, repr(problem).encode())
            os._exit(99)

    def lost(self) -> list[str]:
        """Checkpoints that were complete and are gone: not readable now, or not the one that was gone on from."""
        found = []
        for path in checkpoints(self.folder / "checkpoints"):
            try:
                read_checkpoint(path)
            except Exception as problem:  # whatever it is, the checkpoint is no good
                found.append(f"{path.name} cannot be read: {problem}")
        started = self.starts.read_text()
        if started and int(started) < self.complete:
            found.append(f"resumed from step {started} although step {self.complete} was complete")
        newest = next(iter(checkpoints(self.folder / "checkpoints")), None)
        step = int(newest.stem.removeprefix("step-")) if newest else 0
        if step < self.complete:
            found.append(f"the checkpoint of step {self.complete} has vanished")
        self.complete = step
        return found

    def writing(self, number: int) -> bool:
        """Whether there is half a checkpoint of this process."""
        return any((self.folder / "checkpoints").glob(f".step-*.{number}.part"))

    def rows(self) -> list[dict[str, Any]]:
        """The metrics, without the time that a computer took."""
        rows = [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]
        return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]

    def equals(self, other: Run) -> bool:
        """Whether all that a run leaves behind is the same."""
        same = all((self.folder / name).read_bytes() == (other.folder / name).read_bytes() for name in BYTES)
        return same and self.rows() == other.rows()


def train(folder: Path, *how: str) -> int:
    """`epass train` in this process; returns its exit code."""
    sys.argv = ["epass", "train", "--device", "cpu", "--out", str(folder), *how]
    try:
        epass()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def ends_within(number: int, seconds: float, until: Callable[[], bool] = lambda: False) -> int | None:
    """The status of a process that ends by itself in this time, or before `until`; None of one that does not."""
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline and not until():
        ended, status = os.waitpid(number, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.0005)
    return None


def soak(kills: int, seed: int, steps: int, home: Path) -> dict[str, Any]:
    rng, recipe = random.Random(seed), home / "soak.toml"
    recipe.write_text(RECIPE.format(steps=steps))
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        train(home / "first", "--recipe", str(recipe), "--steps", "20")  # imports what a run needs
    began = time.perf_counter()
    calm = Run(home / "undisturbed", recipe)
    if os.waitpid(calm.start(), 0)[1]:
        raise SystemExit(f"The undisturbed run failed: {calm.errors.read_text()}")
    longest = (time.perf_counter() - began) / 4
    killed = during_write = before_start = resumes = runs = 0
    lost: list[str] = []
    differing: list[str] = []
    while killed < kills:
        runs += 1
        run = Run(home / f"killed-{runs}", recipe)
        status = None
        while status is None:
            resumes += run.folder.exists() and (run.folder / "recipe.toml").exists()
            number = run.start()
            status = ends_within(number, rng.uniform(0, longest) if killed < kills else 600)
            if status is None and rng.random() < AIMED:
                status = ends_within(number, longest, until=partial(run.writing, number))
            if status is None:
                os.kill(number, signal.SIGKILL)
                status = os.waitpid(number, 0)[1]
                if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                    status = None
                    killed += 1
                    during_write += run.writing(number)
                    if run.complete and not run.starts.read_text():
                        before_start += 1
                        longest *= 1.1
            lost += run.lost()
        if status or not run.equals(calm):
            differing.append(f"{run.folder.name}: status {status}, {run.errors.read_text()[-500:]}")
        longest *= 0.8
        warned = run.errors.read_text()
        lost += [warned] if warned else []
        print(f"run {runs}: {killed} kills so far, {during_write} in a write, {len(lost)} lost", flush=True)
    facts = environment(seed, "", "cpu")
    return {
        "kills": killed,
        "kills_during_a_write": during_write,
        "kills_before_the_checkpoint_was_read": before_start,
        "resumes": resumes,
        "runs": runs,
        "steps": steps,
        "lost_checkpoints": len(lost),
        "identical": not differing,
        "seconds": round(time.perf_counter() - began, 1),
        "seed": seed,
        **{key: facts[key] for key in ("commit", "platform", "cpu_count", "python", "torch")},
        "complaints": lost + differing,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--steps", type=int, default=400, help="of each run")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="soak-") as home:
        figures = soak(given.kills, given.seed, given.steps, Path(home))
    text = json.dumps(figures, indent=2)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")
    sys.exit(figures["lost_checkpoints"] > 0 or not figures["identical"])


if __name__ == "__main__":
    main()
