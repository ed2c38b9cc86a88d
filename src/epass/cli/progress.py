"""Watching a run: a live bar on a terminal, one plain line per report anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as Bar
from rich.text import Text

from ..app.events import Progress
from ..app.words import file_size, percent
from ..untrusted import printable
from .screen import plain


class Watch:
    """How far one run or many are. Away from a terminal, only the reports of one run are shown, in a line each."""

    def __init__(self, console: Console) -> None:
        self.console, self.clock = console, Alarm()
        self.bars: OneRun | ManyRuns | None = None

    def show(self, event: Progress) -> None:
        """Show what an event says."""
        if self.console.is_terminal:
            if self.bars is not None and self.bars.what != event.what:
                self.stop()
            if self.bars is None:
                self.bars = ManyRuns(self.console) if event.run else OneRun(self.console, event)
            self.bars.draw(event)
        elif event.what != "step":
            if event.seconds_left is not None and self.clock.rings():
                words = f"{event.what} {event.step}/{event.steps}  ETA {clock(event.seconds_left)}"
                self.console.print(Text(words), soft_wrap=True)
        elif event.values and not event.run:
            words = f"step {event.step}/{event.steps}  {describe(event.values)}  ETA {clock(event.seconds_left)}"
            self.console.print(Text(words), soft_wrap=True)

    def stop(self) -> None:
        """Leave the screen to others."""
        if self.bars is not None:
            self.bars.stop()
        self.bars = None


class Alarm:
    """Rings at most once in a while: what is not a terminal keeps every line."""

    EVERY = 15.0  # seconds

    def __init__(self) -> None:
        self.rang = time.monotonic()

    def rings(self) -> bool:
        if time.monotonic() - self.rang < self.EVERY:
            return False
        self.rang = time.monotonic()
        return True


class OneRun:
    """A bar over the steps, and below it what the last report said."""

    def __init__(self, console: Console, event: Progress) -> None:
        self.what = event.what
        columns = TextColumn(event.what), MofNCompleteColumn(), BarColumn(None), TextColumn("ETA {task.fields[left]}")
        self.bar = Bar(*columns)
        self.task = self.bar.add_task("", total=event.steps, left=clock(None))
        self.tested: dict[str, float] = {}  # tests are rarer than reports: the last one stays in sight
        self.live = Live(Group(self.bar), console=console, refresh_per_second=4)
        self.live.start()

    def draw(self, event: Progress) -> None:
        self.bar.update(self.task, completed=event.step, left=clock(event.seconds_left))
        if event.values:
            self.tested |= {name: value for name, value in event.values.items() if name == "test_error"}
            self.live.update(Group(self.bar, Text(describe({**event.values, **self.tested}))))

    def stop(self) -> None:
        self.live.stop()


class ManyRuns:
    """A bar over the steps of all runs and, where several devices train, one for the run of each."""

    what = "step"

    def __init__(self, console: Console) -> None:
        columns = TextColumn("{task.description}", markup=False), BarColumn(None), TextColumn("{task.percentage:.0f} %")
        self.bar = Bar(*columns, TimeElapsedColumn(), console=console, transient=True)
        self.all = self.bar.add_task("training")
        self.runs: dict[str, Progress] = {}
        self.places: dict[str, TaskID] = {}
        self.bar.start()

    def draw(self, event: Progress) -> None:
        self.runs[event.run] = event
        runs = self.runs.values()
        self.bar.update(self.all, completed=sum(run.step for run in runs), total=sum(run.steps for run in runs))
        if event.place:
            if event.place not in self.places:
                self.places[event.place] = self.bar.add_task("")
            text = printable(f"{event.place}: {event.run}")
            self.bar.update(self.places[event.place], description=text, completed=event.step, total=event.steps)

    def stop(self) -> None:
        self.bar.stop()


@contextmanager
def reading(console: Console) -> Iterator[Callable[[int, int], None] | None]:
    """Yields what a reader of image files calls with (done, all); nothing to see unless this is a terminal."""
    if not console.is_terminal:
        yield None
        return
    bar = Bar(TextColumn("reading images"), MofNCompleteColumn(), BarColumn(None), console=console, transient=True)
    task = bar.add_task("", total=None)

    def draw(done: int, total: int) -> None:
        bar.update(task, completed=done, total=total)
        bar.start()
        if done == total:
            bar.stop()  # a console shows one live display at a time, and others follow

    try:
        yield draw
    finally:
        bar.stop()


@contextmanager
def downloading(console: Console) -> Iterator[Callable[[str, int, int | None], None]]:
    """Yields what is called with (file, bytes so far, bytes in all); off a terminal, one line per complete file."""
    if not console.is_terminal:

        def write(file: str, done: int, total: int | None) -> None:
            if done == total:
                console.print(plain(f"{file}  {file_size(done)}"), soft_wrap=True)

        yield write
        return

    tasks: dict[str, TaskID] = {}
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(None),
        DownloadColumn(),
        TransferSpeedColumn(),
        "ETA",
    )
    with Bar(*columns, TimeRemainingColumn(), console=console) as bar:

        def draw(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(printable(file))
            bar.update(tasks[file], completed=done, total=total)

        yield draw


def clock(seconds: float | None) -> str:
    """The time left as a clock shows it."""
    if seconds is None:
        return "unknown"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def describe(values: Mapping[str, float]) -> str:
    """The numbers of a report that tell whether it is going well."""
    parts = [f"{name.removeprefix('loss_')} {value:.3f}" for name, value in values.items() if name.startswith("loss_")]
    words = [f"loss {values['loss']:.3f}" + (f" ({', '.join(parts)})" if len(parts) > 1 else "")]
    shares = (name for name in ("coverage", "quality", "turns_found") if name in values)
    words += [f"{name.replace('_', ' ')} {percent(values[name], 0)}" for name in shares]
    if "test_error" in values:
        words.append(f"test error {percent(values['test_error'], 1)}")
    return "  ".join(words)
