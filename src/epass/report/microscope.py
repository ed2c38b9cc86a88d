"""Pseudo-labels under the microscope: how many against how good, and class by class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..runs import Run
from .curves import WIDTH, mean_curve, recorded, thin
from .style import FAINT, Drawing, NoDataError, count_in_steps, explain_below, group_style, house_style, new_figure
from .summary import Group

if TYPE_CHECKING:
    from matplotlib.lines import Line2D

MAX_NAMES = 25  # classes up to which an axis has room for names
Matrix = NDArray[np.float64]


def quantity_against_quality(groups: Sequence[Group]) -> Drawing:
    """The way of each group through coverage and quality; means over the seeds."""
    from matplotlib.ticker import MaxNLocator

    with house_style():
        figure = new_figure(WIDTH, 4.0)
        axes = figure.add_subplot()
        legend: dict[str, Line2D] = {}
        for position, group in enumerate(groups):
            together = [run for run in group.runs if recorded([run], "coverage") and recorded([run], "quality")]
            if not together:
                continue
            (steps, coverage), (also, quality) = (
                mean_curve(recorded(together, key)) for key in ("coverage", "quality")
            )
            both = np.intersect1d(steps, also)
            if not len(both):
                continue
            x, y = 100 * coverage[np.isin(steps, both)], 100 * quality[np.isin(also, both)]
            style = group_style(position)
            (legend[group.label],) = axes.plot(*thin(x, y), lw=1.3, alpha=0.8, **style)
            axes.plot(x[:1], y[:1], "o", markersize=6, markerfacecolor="white", color=style["color"])
            axes.plot(x[-1:], y[-1:], "o", markersize=7, color=style["color"])
        if not legend:
            raise NoDataError("No run here knows how good its pseudo-labels are, so quantity has no quality beside it.")
        axes.set(xlabel="quantity: unlabeled images used (%)", ylabel="quality: of these, labeled right (%)")
        axes.set_xlim(-2, 102)
        axes.set_ylim(max(-2.0, min(axes.dataLim.y0 - 2, 90)), 101)
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        (begin,) = axes.plot([], [], "o", markersize=6, markerfacecolor="white", color=FAINT)
        (end,) = axes.plot([], [], "o", markersize=7, color=FAINT)
        explain_below(figure, legend | {"first report": begin, "last report": end})
        return Drawing(figure, "quantity-quality", "Quality against quantity of the pseudo-labels during training")


def pseudo_labels_by_class(run: Run, classes: Sequence[str], name: str) -> Drawing:
    """Which classes the pseudo-labels name over the steps, and how often each is right."""
    steps, used, right = class_history(run)
    if len(classes) != used.shape[1]:
        classes = [str(label) for label in range(used.shape[1])]
    panels = [(used, "share of the pseudo-labels (%)", "Blues"), (right, "of these, labeled right (%)", "Greens")]
    panels = [panel for panel in panels if np.isfinite(panel[0]).any()]  # nobody may know the truth
    with house_style():
        figure = new_figure(WIDTH, len(panels) * max(2.4, min(4.6, 1.2 + 0.19 * len(classes))))
        edges = np.concatenate([[0], steps])
        for axes, (values, label, colors) in zip(
            figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True
        ):
            axes.patch.set(facecolor="#f1f1f1", edgecolor="#bbbbbb", hatch="////", lw=0)  # no pseudo-label, no quality
            top = 100 if values is right else max(20.0, float(values.max()))
            image = axes.pcolormesh(
                edges, np.arange(len(classes) + 1), values.T, cmap=colors, vmin=0, vmax=top, rasterized=True
            )
            axes.grid(False)
            count_in_steps(axes)
            bar = figure.colorbar(image, ax=axes, label=label, location="top", aspect=30, shrink=0.9)
            bar.outline.set_visible(False)
            axes.set_ylabel("class that they name")
            axes.invert_yaxis()
            if len(classes) <= MAX_NAMES:
                axes.set_yticks(np.arange(len(classes)) + 0.5, [_short(text) for text in classes])
                axes.tick_params(axis="y", length=0)
        return Drawing(figure, name, "Share and correctness of the pseudo-labels of every class over training steps")


def class_history(run: Run) -> tuple[Matrix, Matrix, Matrix]:
    """Steps (T,), and (T, C) in percent: share of a class in the pseudo-labels, and how many of its own are right."""
    rows = [row for row in run.metrics if row.get("used_by_class")]
    if not rows:
        raise NoDataError("This run did not count its pseudo-labels class by class.")
    steps = np.array([row["step"] for row in rows], dtype=np.float64)
    used, known, right = (
        np.array([row[f"{key}_by_class"] for row in rows], dtype=np.float64) for key in ("used", "known", "right")
    )
    share = 100 * used / np.maximum(used.sum(axis=1, keepdims=True), 1e-12)
    return steps, share, 100 * np.divide(right, known, out=np.full_like(right, np.nan), where=known > 0)


def _short(name: str) -> str:
    return name if len(name) <= 16 else f"{name[:15]}…"
