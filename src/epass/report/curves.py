"""What happened during training."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..runs import Run
from .style import (
    COLORS,
    FAINT,
    Drawing,
    NoDataError,
    count_in_steps,
    explain_below,
    group_style,
    house_style,
    new_figure,
)
from .summary import Group, number

if TYPE_CHECKING:
    from matplotlib.lines import Line2D

WIDTH = 4.7  # inches: half of a page, and as much as a telephone shows in letters that can be read
MAX_POINTS = 200  # per line: more cannot be seen and would make the page heavy

Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


def error_curves(groups: Sequence[Group]) -> Drawing:
    """Test error over the steps: one color per group, a band and thin lines for seeds, a thick one for their mean."""
    drawn = [(position, group, recorded(group.runs, "test_error")) for position, group in enumerate(groups)]
    if not any(curves for _, _, curves in drawn):
        raise NoDataError("The test error was not measured during training.")
    with house_style():
        figure = new_figure(WIDTH, 3.6)
        axes = figure.add_subplot()
        legend: dict[str, Line2D] = {}
        for position, group, curves in drawn:
            if not curves:
                continue
            style = group_style(position)
            for steps, values in curves if len(curves) > 1 else []:
                axes.plot(*thin(steps, 100 * values), lw=0.8, alpha=0.45, **style)
            if len(curves) > 1:
                steps, lowest, highest = _extent(curves)
                axes.fill_between(steps, 100 * lowest, 100 * highest, color=style["color"], alpha=0.14, lw=0)
            steps, values = mean_curve(curves)
            marker = "o" if len(steps) < 25 else ""
            label = f"{group.label}, {len(curves)} {'seed' if len(curves) == 1 else 'seeds'}"
            (legend[label],) = axes.plot(*thin(steps, 100 * values), lw=2, marker=marker, markersize=3, **style)
        axes.set_ylabel("test error (%)")
        axes.set_ylim(bottom=0)
        count_in_steps(axes)
        explain_below(figure, legend)
        return Drawing(figure, "test-error", "Test error in percent over training steps, by method")


def pseudo_labels(groups: Sequence[Group]) -> Drawing:
    """How many unlabeled images are used, and how many of those with the right label; means over the seeds."""
    panels = {"coverage": "images used (%)", "quality": "of these right (%)"}
    found = {key: [recorded(group.runs, key) for group in groups] for key in panels}
    shown = {key: label for key, label in panels.items() if any(found[key])}  # nobody may know the truth
    if not shown:
        raise NoDataError("No method here makes pseudo-labels, so there is no coverage or quality to show.")
    with house_style():
        figure = new_figure(WIDTH, 0.7 + 1.75 * len(shown))
        legend: dict[str, Line2D] = {}
        for axes, (key, label) in zip(figure.subplots(len(shown), squeeze=False)[:, 0], shown.items(), strict=True):
            for position, (group, curves) in enumerate(zip(groups, found[key], strict=True)):
                if curves:
                    steps, values = mean_curve(curves)
                    (legend[group.label],) = axes.plot(*thin(steps, 100 * values), lw=1.6, **group_style(position))
            axes.set_ylabel(label)
            axes.set_ylim(0, 102)
            count_in_steps(axes)
        explain_below(figure, legend)
        return Drawing(figure, "pseudo-labels", "Coverage and quality of the pseudo-labels over training steps")


def head_similarity(groups: Sequence[Group]) -> Drawing:
    """How alike the projectors of an ensemble are over the steps; means over the seeds, in a band of all of them."""
    drawn = [
        (position, group, curves)
        for position, group in enumerate(groups)
        if group.projectors > 1 and (curves := recorded(group.runs, "head_cosine"))
    ]
    if not drawn:
        raise NoDataError("No run here has more than one projector, so there is no diversity of projectors to show.")
    with house_style():
        figure = new_figure(WIDTH, 3.1)
        axes = figure.add_subplot()
        legend: dict[str, Line2D] = {}
        for position, group, curves in drawn:
            style = group_style(position)
            if len(curves) > 1:
                axes.fill_between(*_extent(curves), color=style["color"], alpha=0.14, lw=0)
            (legend[group.label],) = axes.plot(*thin(*mean_curve(curves)), lw=1.8, **style)
        axes.axhline(1, color=FAINT, lw=1, linestyle="--")
        axes.text(0.995, 0.985, "1: all heads are one head", transform=axes.get_yaxis_transform(), ha="right", va="top")
        axes.set_ylabel("mean cosine between two heads")
        axes.set_ylim(top=1.03)
        count_in_steps(axes)
        explain_below(figure, legend)
        return Drawing(figure, "head-similarity", "Mean cosine between the projectors over training steps, by method")


def loss_parts(groups: Sequence[Group]) -> Drawing:
    """The weighted parts of each group's loss; means over the seeds."""
    parts = {group.label: _loss_names(group.runs) for group in groups}
    shown = [group for group in groups if parts[group.label]]
    names = list(dict.fromkeys(name for found in parts.values() for name in found if name != "loss"))
    if not shown:
        raise NoDataError("The loss was not recorded during training.")
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    with house_style():
        figure = new_figure(WIDTH, 0.6 + 2.3 * rows)
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flatten()
        drawn: dict[str, Line2D] = {}
        for axes, group in zip(panels, shown, strict=False):
            for name in parts[group.label]:
                style = {"color": COLORS[0], "linestyle": ":"} if name == "loss" else group_style(1 + names.index(name))
                steps, values = mean_curve(recorded(group.runs, name))
                (drawn[name],) = axes.plot(*thin(steps, values), lw=1.4, **style)
            axes.set_title(fill(group.label.replace(" = ", "\u00a0=\u00a0"), 50 // columns), loc="left")
        # only now: a limit ends the automatic scaling, and the panels share it
        if min(axes.dataLim.y0 for axes in panels[: len(shown)]) >= 0:
            panels[0].set_ylim(bottom=0)
        for axes in panels[: len(shown)]:
            count_in_steps(axes)
            axes.tick_params(labelbottom=True)
        for axes in panels[::columns]:
            axes.set_ylabel("loss")
        for axes in panels[len(shown) :]:
            axes.remove()
        order = [name for name in ("loss", *names) if name in drawn]
        explain_below(
            figure, {name.removeprefix("loss_") if name != "loss" else "total": drawn[name] for name in order}
        )
        return Drawing(figure, "loss-parts", "Parts of the training loss over training steps, by method")


def _loss_names(runs: Sequence[Run]) -> list[str]:
    """The recorded losses, total first; a total of one part is that part."""
    names = dict.fromkeys(key for run in runs for row in run.metrics for key in row if key.startswith("loss"))
    found = [name for name in names if recorded(runs, name)]
    parts = [name for name in found if name != "loss"]
    return parts if len(parts) == 1 else [name for name in ("loss", *parts) if name in found]


def recorded(runs: Sequence[Run], key: str) -> list[Curve]:
    """One (steps, values) per run that recorded `key`."""
    found = []
    for run in runs:
        points = [(row["step"], value) for row in run.metrics if (value := number(row, key)) is not None]
        if points:
            steps, values = np.array(points, dtype=np.float64).T
            found.append((steps, values))
    return found


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean over the steps that all curves have: it ends where the first of them does."""
    common = reduce(np.intersect1d, [steps for steps, _ in curves])
    return common, np.mean([values[np.isin(steps, common)] for steps, values in curves], axis=0)


def _extent(curves: Sequence[Curve]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The steps that all curves have, and the lowest and the highest value at each."""
    common = reduce(np.intersect1d, [steps for steps, _ in curves])
    values = np.array([values[np.isin(steps, common)] for steps, values in curves])
    (thinned, lowest), (_, highest) = thin(common, values.min(axis=0)), thin(common, values.max(axis=0))
    return thinned, lowest, highest


def thin(steps: NDArray[np.float64], values: NDArray[np.float64]) -> Curve:
    """Evenly chosen points, first and last included."""
    kept = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), MAX_POINTS)).round().astype(int))
    return steps[kept], values[kept]
