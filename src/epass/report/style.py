"""One look for all figures, in a page and in files."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

from ..files import write_atomically

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colors, told apart with any kind of color vision; their yellow is too pale for a line on white
COLORS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("-", "--", ":", "-.")  # for more groups than colors
# of the classes of a map, where a name stands at each: ten that are told apart, then again
CLASS_COLORS = (*COLORS[1:], "#882255", "#999933", "#6A3D9A", "#8C8C8C")
BLUE, VERMILLION, PALE_BLUE = COLORS[1], COLORS[2], "#b3d4e7"
INK, FAINT = "#222222", "#888888"

STYLE: dict[Any, Any] = {
    "pdf.fonttype": 42,  # journals ask for TrueType
    "svg.fonttype": "none",  # text stays text: it can be searched, copied and tested
    "text.parse_math": False,  # a dollar sign in a class name is a dollar sign
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "legend.fontsize": 8.5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "figure.constrained_layout.w_pad": 0.09,
    "figure.constrained_layout.h_pad": 0.07,
    "hatch.linewidth": 0.6,
}


class NoDataError(Exception):
    """Why a figure cannot be drawn; the page prints it in the figure's place."""


@contextmanager
def house_style() -> Iterator[None]:
    """Draw inside of this."""
    import matplotlib

    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        # a class name in a script that our font lacks: only measured here, the reader's browser draws it
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def new_figure(width: float, height: float) -> Figure:
    """A figure that arranges its own margins; without pyplot, so nothing global is left behind."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def group_style(position: int) -> dict[str, Any]:
    """Color and dash of the group at this position of the table, the same in every figure."""
    return {
        "color": COLORS[position % len(COLORS)],
        "linestyle": DASHES[position // len(COLORS) % len(DASHES)],
    }


def count_in_steps(axes: Axes) -> None:
    """Label the horizontal axis with training steps, 20k for 20,000."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.set_xlabel("training steps")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def explain_below(figure: Figure, legend: Mapping[str, Artist]) -> None:
    """A legend under the plots, in as many columns as its texts leave room for."""
    letters = int(15 * figure.get_figwidth())  # over the width of the figure
    names = [fill(name, letters - 6) for name in legend]
    columns = max(1, min(letters // (max(map(len, legend)) + 6), len(legend)))
    rows = [
        max(name.count("\n") for name in names[first : first + columns]) + 1 for first in range(0, len(names), columns)
    ]
    more_rows = max(0, sum(rows) - 2)  # the figures have room for two
    figure.set_figheight(figure.get_figheight() + 0.2 * more_rows)
    figure.legend(list(legend.values()), names, loc="outside lower center", ncols=columns)


class Drawing(NamedTuple):
    """A figure that is ready to be shown in a page or written to files."""

    figure: Figure
    name: str  # unique in a page, because ids start with it; also that of the files
    description: str

    def svg(self) -> str:
        """An <svg> element: the same text for the same data, with ids that are unique in a page."""
        svg = self._vector()
        svg = svg[svg.index("<svg") :]
        svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
        svg = re.sub(r'\bid="', f'id="{self.name}-', svg)
        svg = re.sub(r'(url\(#|href="#)', rf"\g<1>{self.name}-", svg)
        # the width in the page is the page's business; the shape follows from the viewBox
        svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
        return svg.replace("<svg", f'<svg role="img" aria-label="{escape(self.description)}"', 1).strip()

    def save(self, folder: Path) -> None:
        """Three files: vectors as SVG and PDF, and pixels as PNG."""
        write_atomically(folder / f"{self.name}.svg", self._vector().encode())
        for kind in ("pdf", "png"):
            buffer = io.BytesIO()
            dates = {"CreationDate": None} if kind == "pdf" else None
            with house_style():
                self.figure.savefig(buffer, format=kind, dpi=200, metadata=dates)
            write_atomically(folder / f"{self.name}.{kind}", buffer.getvalue())

    def _vector(self) -> str:
        import matplotlib

        buffer = io.StringIO()
        with house_style(), matplotlib.rc_context({"svg.hashsalt": self.name}):
            self.figure.savefig(buffer, format="svg", dpi=200, metadata={"Date": None, "Creator": None})
        return buffer.getvalue()
