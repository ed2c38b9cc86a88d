"""Watching a run: a live bar on a terminal, one plain line per report anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich import filesize
from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from ..app.words import percent

if TYPE_CHECKING:
    from ..train.loop import Report

Watch = Callable[["Report"], None]


@contextmanager
def watching(console: Console, steps: int, seconds_per_step: float) -> Iterator[Watch]:
    """Yields what is to be called with every report."""
    clock = Clock(steps, seconds_per_step)
    if not console.is_terminal:

        def write(report: Report) -> None:
            left = clock.time_left(report.step)
            console.print(Text(f"step {report.step}/{steps}  {describe(report.values)}  ETA {left}"), soft_wrap=True)

        yield write
        return

    bar = Progress(TextColumn("step"), MofNCompleteColumn(), BarColumn(None), TextColumn("ETA {task.fields[left]}"))
    task = bar.add_task("", total=steps, left=clock.time_left(0))
    tested: dict[str, float] = {}  # tests are rarer than reports: the last one stays in sight
    with Live(Group(bar), console=console, refresh_per_second=4) as live:

        def draw(report: Report) -> None:
            tested.update({name: value for name, value in report.values.items() if name == "test_error"})
            bar.update(task, completed=report.step, left=clock.time_left(report.step))
            live.update(Group(bar, Text(describe({**report.values, **tested}))))

        yield draw


def overall(console: Console) -> Progress:
    """A bar over the steps of many runs; nothing to see unless this is a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(None),
        TextColumn("{task.percentage:.0f} %"),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def reading(console: Console) -> Iterator[Callable[[int, int], None] | None]:
    """Yields what a reader of image files calls with (done, all); nothing to see unless this is a terminal."""
    if not console.is_terminal:
        yield None
        return
    columns = TextColumn("reading images"), MofNCompleteColumn(), BarColumn(None)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


@contextmanager
def downloading(console: Console) -> Iterator[Callable[[str, int, int | None], None]]:
    """Yields what is called with (file, bytes so far, bytes in all); off a terminal, one line per complete file."""
    if not console.is_terminal:

        def write(file: str, done: int, total: int | None) -> None:
            if done == total:
                console.print(Text(f"{file}  {filesize.decimal(done)}"), soft_wrap=True)

        yield write
        return

    tasks: dict[str, TaskID] = {}
    columns = TextColumn("{task.description}"), BarColumn(None), DownloadColumn(), TransferSpeedColumn(), "ETA"
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:

        def draw(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file)
            bar.update(tasks[file], completed=done, total=total)

        yield draw


class Clock:
    """The time left: from an estimate at first, then from the reports of this process, which may start anywhere."""

    def __init__(self, steps: int, seconds_per_step: float) -> None:
        self.steps, self.seconds_per_step = steps, seconds_per_step
        self.first: tuple[int, float] | None = None  # report: step, time

    def time_left(self, step: int) -> str:
        now = time.perf_counter()
        if step and self.first is None:
            self.first = step, now
        elif self.first is not None and step > self.first[0]:
            self.seconds_per_step = (now - self.first[1]) / (step - self.first[0])
        minutes, seconds = divmod(round((self.steps - step) * self.seconds_per_step), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def describe(values: dict[str, float]) -> str:
    """The numbers of a report that tell whether it is going well."""
    parts = [f"{name.removeprefix('loss_')} {value:.3f}" for name, value in values.items() if name.startswith("loss_")]
    words = [f"loss {values['loss']:.3f}" + (f" ({', '.join(parts)})" if len(parts) > 1 else "")]
    words += [f"{name} {percent(values[name], 0)}" for name in ("coverage", "quality") if name in values]
    if "test_error" in values:
        words.append(f"test error {percent(values['test_error'], 1)}")
    return "  ".join(words)
