"""The test images in the page: a map to wander about, the most confident mistakes, the error of every class."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from html import escape

import numpy as np
from numpy.typing import NDArray

from ..runs import Run
from .answers import answers_of, class_errors, class_names, predictions_of
from .maps import MAX_NAMED, Atlas, embeddings_of
from .microscope import class_history
from .pictures import SMALL, Sprite, address_of, sprite_of
from .style import CLASS_COLORS, NoDataError

LISTED = 30  # classes up to which each has its row; of more, these many with the highest error
MARGIN = 40  # thousandths of a map that stay free on each side


class Sprites:
    """The pictures of all maps in a page: runs on the same test images share one."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.style = ""

    def name(self, sprite: Sprite) -> str:
        key = sha256(sprite.address.encode()).hexdigest()
        if key not in self.names:
            self.names[key] = f"sprite-{len(self.names)}"
            crisp = "; image-rendering: pixelated" if max(sprite.height, sprite.width) <= SMALL else ""
            self.style += f".{self.names[key]} {{ background-image: url({sprite.address}){crisp}; }}\n"
        return self.names[key]


def interactive_maps(atlas: Atlas, sprites: Sprites) -> str:
    """Maps of dots, the same image marked in all of them; the page's script shows what is pointed at."""
    sprite = sprite_of(atlas.thumbnails)
    scaled = {title: (MARGIN + (1000 - 2 * MARGIN) * places).round() for title, places in atlas.maps.items()}
    answers = atlas.answers
    facts = {
        "places": [places.astype(int).flatten().tolist() for places in scaled.values()],
        "labels": answers.labels.tolist(),
        "predicted": answers.predicted.tolist(),
        "confidence": (100 * answers.confidence).round(1).tolist(),
        "classes": atlas.classes,
        "columns": sprite.columns,
        "width": sprite.width,
        "height": sprite.height,
    }
    panels = "".join(_panel(atlas, title, places) for title, places in scaled.items())
    data = escape(json.dumps(facts, separators=(",", ":"), ensure_ascii=False))
    return f"""<div class="atlas" data-atlas="{data}">
<div class="panels">{panels}</div>
<div class="card" role="status" hidden><span class="thumb {sprites.name(sprite)}"></span><span class="words"></span>
</div></div>"""


def _panel(atlas: Atlas, title: str, places: NDArray[np.float64]) -> str:
    labels, wrong = atlas.answers.labels, atlas.answers.wrong
    present = np.unique(labels).tolist()
    marks, names = [], []
    for label in present:
        color = CLASS_COLORS[label % len(CLASS_COLORS)]
        dots = "".join(f"M{x:.0f} {y:.0f}h0" for x, y in places[(labels == label) & ~wrong])
        crosses = "".join(f"M{x - 8:.0f} {y - 8:.0f}l16 16m0-16l-16 16" for x, y in places[(labels == label) & wrong])
        marks.append(f'<path class="dots" stroke="{color}" d="{dots}"/>' if dots else "")
        marks.append(f'<path class="crosses" stroke="{color}" d="{crosses}"/>' if crosses else "")
        center = atlas.center(places, label)
        if center is not None and len(present) <= MAX_NAMED:
            names.append(f'<text x="{center[0]:.0f}" y="{center[1]:.0f}">{escape(atlas.classes[label])}</text>')
    words = f"Map of {len(labels):,} test images by the {title}; the arrow keys go from image to image"
    return f"""<figure><svg viewBox="0 0 1000 1000" tabindex="0" role="img" aria-label="{words}">
{"".join(marks)}{"".join(names)}<circle class="ring" r="20" cx="0" cy="0"/></svg>
<figcaption>By the {title}</figcaption></figure>"""


def confident_mistakes(run: Run) -> str:
    """The wrong answers that the model was most sure of, as pictures."""
    found, answers, classes = embeddings_of(run), answers_of(run), class_names(run)
    if not len(found.mistakes):
        raise NoDataError("The model makes no mistake on the test images, so there is none to show.")
    items = []
    for position, pixels in zip(found.mistakes.tolist(), found.mistake_thumbnails, strict=True):
        true, said = classes[answers.labels[position]], classes[answers.predicted[position]]
        crisp = ' class="crisp"' if max(pixels.shape[1:]) <= SMALL else ""
        items.append(
            f'<li><img{crisp} src="{address_of(pixels)}" alt="test image {position}"><span>'
            f"predicted <b>{escape(said)}</b>, {100 * answers.confidence[position]:.1f}&nbsp;%<br>"
            f"is <b>{escape(true)}</b></span></li>"
        )
    return f'<ul class="mistakes">{"".join(items)}</ul>'


def class_table(run: Run) -> str:
    """The error of every class, with what its images are taken for and, where it is known, its last pseudo-labels."""
    predictions, classes = predictions_of(run), class_names(run)
    found = class_errors(predictions, LISTED)
    pseudo = _last_pseudo_labels(run, len(classes))
    heads = ["class", "test images", "error, %", "most often taken for"]
    heads += ["share of the pseudo-labels, %", "of these right, %"] if pseudo else []
    rows = []
    for one in found:
        error = 100 * one.wrong / one.images if one.images else None
        cells = [
            f"{one.images:,}",
            "–" if error is None else f'{error:.1f}<i class="bar" style="width: {error:.1f}%"></i>',
            f"{escape(classes[one.taken_for])} ({one.times:,})" if one.wrong else "–",
        ]
        cells += [_share(values[one.number]) for values in pseudo]
        rows.append(f'<tr><th scope="row">{escape(classes[one.number])}</th>{_cells(cells)}</tr>')
    few = f'<p class="note">The {LISTED} classes with the highest error, of {len(classes):,}.</p>'
    return f"""{few if len(classes) > LISTED else ""}<div class="scroll"><table class="classes"><thead><tr>
{"".join(f'<th scope="col">{head}</th>' for head in heads)}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>"""


def _last_pseudo_labels(run: Run, num_classes: int) -> list[NDArray[np.float64]]:
    """Share and correctness (C,) at the last test, if the run counted them."""
    try:
        _, share, right = class_history(run)
    except NoDataError:
        return []
    return [share[-1], right[-1]] if share.shape[1] == num_classes else []


def _share(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) else "–"


def _cells(values: Sequence[str]) -> str:
    return "".join(f"<td>{value}</td>" for value in values)
