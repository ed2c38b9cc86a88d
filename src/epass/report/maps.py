"""Maps of test images, where those lie near each other that the model finds alike."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..evaluation import tsne_map
from ..runs import Embeddings, Run, load_embeddings
from .answers import Answers, answers_of, class_names, image_names, predictions_of
from .style import CLASS_COLORS, INK, Drawing, NoDataError, house_style, new_figure

MAX_NAMED = 20  # classes up to which their names stand in a map
TITLES = {"features": "features of the backbone", "embedding": "embeddings of the projectors"}


class Atlas(NamedTuple):
    """Maps of the same images, and what is known about each image."""

    maps: dict[str, NDArray[np.float64]]  # by title: (n, 2), from 0 to 1
    answers: Answers  # of these images only
    classes: list[str]
    names: list[str]  # of the images
    found: Embeddings

    def center(self, places: NDArray[np.float64], label: int) -> NDArray[np.float64] | None:
        """Where the name of a class stands: amid its images."""
        own = places[self.answers.labels == label]
        return np.median(own, axis=0) if len(own) else None


def embeddings_of(run: Run) -> Embeddings:
    """What a run kept of its test images, or the reason why there is nothing."""
    count = len(predictions_of(run).labels)
    found = load_embeddings(run.path)
    if found is None:
        raise NoDataError("This run kept no features of its test images: runs of older versions did not.")
    positions = np.concatenate([found.chosen, found.mistakes])
    if len(positions) and not 0 <= positions.min() <= positions.max() < count:
        raise InputError(f"'{run.path}' is damaged: its embeddings and its predictions are of different images.")
    return found


def atlas_of(run: Run) -> Atlas:
    """The maps of a run: of the backbone's features and, where the method has projectors, of the embeddings."""
    found = embeddings_of(run)
    vectors = {TITLES["features"]: found.features}
    if found.embedding is not None:
        vectors[TITLES["embedding"]] = found.embedding
    maps = {title: _to_unit_square(tsne_map(values)) for title, values in vectors.items()}
    return Atlas(maps, answers_of(run, found.chosen), class_names(run), image_names(run, found.chosen), found)


def draw_maps(atlas: Atlas, name: str) -> Drawing:
    """The maps side by side, colored by the true class."""
    labels, wrong = atlas.answers.labels, atlas.answers.wrong
    present = np.unique(labels).tolist()
    with house_style():
        figure = new_figure(7.6, 4.4 if len(atlas.maps) == 2 else 5.6)
        for axes, (title, places) in zip(
            figure.subplots(1, len(atlas.maps), squeeze=False)[0], atlas.maps.items(), strict=True
        ):
            for label in present:
                style = {"color": CLASS_COLORS[label % len(CLASS_COLORS)], "rasterized": len(labels) > 5_000}
                right = (labels == label) & ~wrong
                axes.scatter(*places[right].T, s=7, lw=0, alpha=0.75, **style)
                axes.scatter(*places[(labels == label) & wrong].T, s=22, lw=1.1, marker="x", **style)
            for label in present if len(present) <= MAX_NAMED else []:
                center = atlas.center(places, label)
                assert center is not None
                box = {"facecolor": "white", "alpha": 0.7, "lw": 0, "pad": 1}
                axes.text(*center, atlas.classes[label], ha="center", va="center", weight="bold", bbox=box)
            axes.set_title(f"t-SNE of the {title}", loc="left")
            axes.set(xticks=[], yticks=[], xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
            axes.spines[:].set_visible(False)
        marks = [
            figure.axes[0].scatter([], [], s=20, color=INK, label="right answer"),
            figure.axes[0].scatter([], [], s=26, lw=1.2, marker="x", color=INK, label="wrong answer"),
        ]
        figure.legend(handles=marks, loc="outside lower center", ncols=2, title="color: the true class")
        return Drawing(figure, name, f"Maps of {len(labels):,} test images by t-SNE, colored by their true class")


def _to_unit_square(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Moved and scaled to lie between 0 and 1; both directions alike, so that distances keep their proportions."""
    lowest = places.min(axis=0)
    extent = float((places.max(axis=0) - lowest).max()) or 1.0
    unit: NDArray[np.float64] = (places - lowest) / extent
    unit += (1 - unit.max(axis=0)) / 2
    return unit
