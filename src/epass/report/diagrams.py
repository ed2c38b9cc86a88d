"""What the trained model says about the test images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..evaluation import SCORES, confusion, reliability
from ..runs import Predictions
from .style import BLUE, FAINT, INK, PALE_BLUE, VERMILLION, Drawing, house_style, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT = 4.6  # inches, of both: they stand side by side
MAX_NUMBERS = 15  # classes up to which a cell has room for its number
MAX_CELLS = 500  # in a row: more than the pixels of the figure show nothing
MAX_NAMES = 25  # classes up to which an axis has room for names
MAX_NAME_LENGTH = 18


def reliability_diagram(predictions: Predictions, name: str) -> Drawing:
    """Accuracy against confidence, and under it how often each confidence occurs."""
    bins, ece = reliability(*predictions), SCORES["ece"]
    filled = bins.counts > 0
    left, width = bins.edges[:-1], np.diff(bins.edges)
    share = bins.counts / bins.counts.sum()
    accuracy, confidence = (float((share * np.nan_to_num(part)).sum()) for part in (bins.accuracy, bins.confidence))
    with house_style():
        figure = new_figure(3.7, HEIGHT)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        top.bar(left, bins.accuracy, width, align="edge", color=PALE_BLUE, edgecolor="white", lw=0.6, label="accuracy")
        gap = bins.confidence - bins.accuracy  # upwards where the model is too sure of itself
        top.bar(
            left,
            gap,
            width,
            bottom=bins.accuracy,
            align="edge",
            facecolor="none",
            edgecolor=VERMILLION,
            hatch="////",
            lw=0.8,
            label="gap to confidence",
        )
        top.hlines(bins.accuracy[filled], left[filled], bins.edges[1:][filled], color=BLUE, lw=2)
        top.plot([0, 1], [0, 1], color=INK, linestyle="--", lw=1, label="perfect")
        top.set_title(f"{ece.short} {ece.text(bins.ece)}", loc="left", weight="bold")
        top.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")

        bottom.bar(left, 100 * share, width, align="edge", color=FAINT, edgecolor="white", lw=0.6)
        bottom.axvline(accuracy, color=INK, linestyle="-", lw=1.3, label=f"overall accuracy {100 * accuracy:.1f} %")
        bottom.axvline(confidence, color=INK, linestyle=":", lw=1.8, label=f"mean confidence {100 * confidence:.1f} %")
        bottom.set(xlabel="confidence", ylabel="images (%)")
        bottom.invert_yaxis()
        figure.legend(loc="outside lower center", ncols=2, columnspacing=1.2, handlelength=1.6)
        return Drawing(figure, name, f"Reliability diagram, {ece.name} {ece.text(bins.ece)}")


def confusion_matrix(predictions: Predictions, classes: Sequence[str], name: str) -> Drawing:
    """Shares of each true class, row by row; of very many, so many neighbors together that they can be seen."""
    num_classes = predictions.logits.shape[1]
    together = -(-num_classes // MAX_CELLS)
    counts = confusion(*predictions, together)
    each = f", {together} together" if together > 1 else ""
    with np.errstate(invalid="ignore"):  # a class without test images has no shares
        shares = 100 * counts / counts.sum(axis=1, keepdims=True)
    with house_style():
        figure = new_figure(4.5, HEIGHT)
        axes = figure.add_subplot()
        many = num_classes > MAX_NAMES
        # thousands of cells are drawn as pixels, and without the white lines that would cover them
        image = axes.pcolormesh(
            shares,
            cmap="Blues",
            vmin=0,
            vmax=100,
            rasterized=many,
            edgecolors="none" if many else "white",
            linewidth=0.4,
        )
        axes.set(aspect="equal", xlabel=f"predicted class{each}", ylabel=f"true class{each}")
        axes.invert_yaxis()
        axes.grid(False)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        if not many:
            _name_classes(axes, classes)
        if num_classes <= MAX_NUMBERS:
            for row, column in np.argwhere(np.isfinite(shares)):
                value = shares[row, column]
                color = "white" if value > 55 else INK if value >= 0.5 else FAINT
                axes.text(column + 0.5, row + 0.5, f"{value:.0f}", ha="center", va="center", color=color, size=7.5)
        else:
            figure.colorbar(image, ax=axes, shrink=0.7, label="share of the true class (%)").outline.set_visible(False)
        return Drawing(figure, name, "Confusion matrix, in percent of each true class")


def _name_classes(axes: Axes, classes: Sequence[str]) -> None:
    names = [name if len(name) <= MAX_NAME_LENGTH else name[: MAX_NAME_LENGTH - 1] + "…" for name in classes]
    places = np.arange(len(names)) + 0.5
    size = min(8.5, 140 / len(names))  # points: names of neighbors must not touch
    axes.set_yticks(places, names, size=size)
    if max(map(len, names)) * len(names) <= 50:
        axes.set_xticks(places, names, size=size)
    else:
        turn = 45 if len(names) <= MAX_NUMBERS else 90
        axes.set_xticks(places, names, size=size, rotation=turn, ha="right", va="center", rotation_mode="anchor")
