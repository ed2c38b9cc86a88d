"""Reports to the tools that people already use, beside metrics.jsonl, which every run writes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from .errors import InputError, unknown

if TYPE_CHECKING:
    from .training.loop import Report

Values = Mapping[str, float]
R = TypeVar("R", bound="Report | None")


class Logger(Protocol):
    """Where the reports of a run go. Write these three methods to add a tool of your own."""

    def start(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """A run begins, or goes on, in this folder; `settings` are those of its recipe by their full names."""

    def report(self, step: int, values: Values) -> None:
        """What was measured since the last report."""

    def finish(self) -> None:
        """The run is over, or was stopped."""


class TensorBoard:
    """Event files in the run folder: `tensorboard --logdir RUN`."""

    def start(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Remember where; the file is opened by the first report, which knows what it replaces."""
        self._folder, self._settings = folder / "tensorboard", settings
        self._writer: Any = None

    def report(self, step: int, values: Values) -> None:
        """One point on every curve. What a stopped run wrote from this step on is no longer shown."""
        from torch.utils.tensorboard import SummaryWriter

        if self._writer is None:
            self._writer = SummaryWriter(str(self._folder), purge_step=step)
            rows = "".join(f"| {name} | {value} |\n" for name, value in self._settings.items())
            self._writer.add_text("recipe", f"| setting | value |\n|---|---|\n{rows}", step)
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def finish(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()


class WeightsAndBiases:
    """A run of the project "epass", named after its folder; wandb's own environment variables say where and whether."""

    def start(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Open the run, or go on with it: a folder is always the same run."""
        import wandb

        name = folder.resolve().name
        self._run = wandb.init(
            project="epass", name=name, id=name, resume="allow", dir=str(folder), config=dict(settings)
        )

    def report(self, step: int, values: Values) -> None:
        """One point on every curve."""
        self._run.log(dict(values), step=step)

    def finish(self) -> None:
        """Wait until everything has been sent."""
        self._run.finish()


class MLflow:
    """A run of the experiment "epass", named after its folder, at MLflow's own tracking address."""

    def start(self, folder: Path, settings: Mapping[str, Any]) -> None:
        """Open a run; one that goes on after a stop is another one with the same name."""
        import mlflow

        self._mlflow = mlflow
        mlflow.set_experiment("epass")
        mlflow.start_run(run_name=folder.resolve().name)
        mlflow.log_params(dict(settings))

    def report(self, step: int, values: Values) -> None:
        """One point on every curve."""
        self._mlflow.log_metrics(dict(values), step=step)

    def finish(self) -> None:
        """Close the run."""
        self._mlflow.end_run()


LOGGERS: dict[str, tuple[str, type[Logger]]] = {  # by name: the library it needs, and the class
    "tensorboard": ("tensorboard", TensorBoard),
    "wandb": ("wandb", WeightsAndBiases),
    "mlflow": ("mlflow", MLflow),
}


def make_loggers(names: Iterable[str]) -> list[Logger]:
    """The loggers of these names, each once; refuses one whose library is not installed."""
    loggers: list[Logger] = []
    for name in dict.fromkeys(names):
        if name not in LOGGERS:
            raise unknown("logger", name, LOGGERS)
        library, cls = LOGGERS[name]
        try:
            import_module(library)
        except Exception as problem:  # a library can be there and broken
            raise InputError(
                f"'{library}' cannot be imported ({problem}): install it with pip install 'epass[{name}]'."
            ) from None
        loggers.append(cls())
    return loggers


def logged(reports: Iterable[R], loggers: Sequence[Logger], folder: Path, settings: Mapping[str, Any]) -> Iterator[R]:
    """The reports, unchanged, while every logger hears of them too; a step without one is None.

    A logger that fails is named in a warning and left out from then on: a broken connection ends no training.
    """
    listening = [logger for logger in loggers if _works(logger, "start", folder, settings)]
    try:
        for report in reports:
            if report is not None:
                values = {name: value for name, value in report.values.items() if isinstance(value, int | float)}
                listening = [logger for logger in listening if _works(logger, "report", report.step, values)]
            yield report
    finally:
        for logger in listening:
            _works(logger, "finish")


def _works(logger: Logger, what: str, *arguments: Any) -> bool:
    try:
        getattr(logger, what)(*arguments)
    except Exception as problem:
        name, reason = type(logger).__name__, str(problem).partition("\n")[0]
        warnings.warn(f"{name} failed ({reason}); going on without it.", stacklevel=2)
        return False
    return True
