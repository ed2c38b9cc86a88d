"""Every figure of a report as files, for papers and slides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ..errors import InputError
from ..runs import Run
from . import curves, diagrams, microscope
from .answers import class_names, predictions_of
from .maps import atlas_of, draw_maps
from .page import shown_run
from .scaling import scale
from .style import Drawing, NoDataError
from .summary import Group, group_runs

Draw = Callable[[], Drawing]


def write_figures(folder: str | Path, runs: Sequence[Run], *, maps: bool = True) -> tuple[list[str], dict[str, str]]:
    """Write each figure as SVG, PDF and PNG; the names of those that were drawn, and why others were not."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    written, left_out = [], {}
    for name, draw in _figures(group_runs(runs), maps=maps):
        try:
            draw()._replace(name=name).save(target)
            written.append(name)
        except (NoDataError, InputError) as reason:
            left_out[name] = str(reason)
    return written, left_out


def _figures(groups: Sequence[Group], *, maps: bool) -> Iterator[tuple[str, Draw]]:
    yield "test-error", lambda: curves.error_curves(groups)
    yield "loss-parts", lambda: curves.loss_parts(groups)
    yield "head-similarity", lambda: curves.head_similarity(groups)
    yield "pseudo-labels", lambda: curves.pseudo_labels(groups)
    yield "quantity-quality", lambda: microscope.quantity_against_quality(groups)
    for position, group in enumerate(groups):
        # the settings in a label can be many: a number tells groups of the same method apart
        end = f"-{position}-{_file_name(group.label.partition(' · ')[0])}" if len(groups) > 1 else ""
        for name, draw in _figures_of(shown_run(group), maps=maps):
            yield name + end, draw


def _figures_of(run: Run, *, maps: bool) -> Iterator[tuple[str, Draw]]:
    """The figures about one run."""
    yield "by-class", lambda: microscope.pseudo_labels_by_class(run, class_names(run), "by-class")
    if maps:
        yield "map", lambda: draw_maps(atlas_of(run), "map")
    yield "confusion", lambda: diagrams.confusion_matrix(predictions_of(run), class_names(run), "confusion")
    yield "reliability", lambda: diagrams.reliability_diagram(predictions_of(run), "reliability")
    yield "reliability-scaled", lambda: diagrams.reliability_diagram(scale(run).predictions, "reliability-scaled")


def _file_name(label: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-")
