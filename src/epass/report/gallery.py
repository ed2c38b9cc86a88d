"""The test images in the page: a map to wander about, the most confident mistakes, the error of every class."""

from __future__ import annotations

import json
from html import escape

import numpy as np
from numpy.typing import NDArray

from ..runs import Embeddings, Run
from .answers import answers_of, class_errors, class_names, image_names, predictions_of
from .maps import MAX_NAMED, Atlas, embeddings_of
from .pictures import Pictures, address_of, sprite_of
from .style import CLASS_COLORS, NoDataError

LISTED = 30  # classes up to which each has its row; of more, these many with the highest error
MARGIN = 40  # thousandths of a map that stay free on each side


def interactive_maps(atlas: Atlas, pictures: Pictures) -> str:
    """Maps of dots, the same image marked in all of them; the page's script shows what is pointed at."""
    sprite = sprite_of(atlas.found.thumbnails)
    larger = dict(zip(atlas.found.mistakes.tolist(), _photos(atlas.found, pictures), strict=True))
    scaled = {title: (MARGIN + (1000 - 2 * MARGIN) * places).round() for title, places in atlas.maps.items()}
    answers = atlas.answers
    facts = {
        "places": [places.astype(int).flatten().tolist() for places in scaled.values()],
        "labels": answers.labels.tolist(),
        "predicted": answers.predicted.tolist(),
        "confidence": (100 * answers.confidence).round(1).tolist(),
        "classes": atlas.classes,
        "names": atlas.names,
        "larger": {
            number: larger[place] for number, place in enumerate(atlas.found.chosen.tolist()) if place in larger
        },
        "columns": sprite.columns,
        "width": sprite.width,
        "height": sprite.height,
    }
    sheet = pictures.name(sprite.address, max(sprite.height, sprite.width))
    panels = "".join(_panel(atlas, title, places) for title, places in scaled.items())
    data = escape(json.dumps(facts, separators=(",", ":"), ensure_ascii=False))
    return f"""<div class="atlas" data-atlas="{data}">
<div class="panels">{panels}</div>
<div class="card" role="status" hidden><span class="thumb {sheet}"></span><span class="words"></span>
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


def confident_mistakes(run: Run, pictures: Pictures) -> str:
    """The wrong answers that the model was most sure of, as pictures."""
    found, classes = embeddings_of(run), class_names(run)
    if not len(found.mistakes):
        raise NoDataError("The model makes no mistake on the test images, so there is none to show.")
    answers, names = answers_of(run, found.mistakes), map(escape, image_names(run, found.mistakes))
    items = []
    for label, predicted, confidence, name, picture in zip(*answers, names, _photos(found, pictures), strict=True):
        true, said = classes[label], classes[predicted]
        items.append(
            f'<li><span class="photo {picture}" role="img" aria-label="{name}"></span>'
            f"predicted <b>{escape(said)}</b>, {100 * confidence:.1f}&nbsp;%<br>"
            f'is <b>{escape(true)}</b><br><small title="{name}">{name.rpartition("/")[2]}</small></li>'
        )
    return f'<ul class="mistakes">{"".join(items)}</ul>'


def _photos(found: Embeddings, pictures: Pictures) -> list[str]:
    """The classes of the pictures of all mistakes."""
    return [pictures.name(address_of(pixels), max(pixels.shape[1:])) for pixels in found.mistake_thumbnails]


def class_table(run: Run) -> str:
    """Error and accuracy of every class, with what its images are taken for."""
    predictions, classes = predictions_of(run), class_names(run)
    rows = []
    for one in class_errors(predictions, LISTED):
        error = 100 * one.wrong / one.images if one.images else None
        cells = [
            f"{one.images:,}",
            "–" if error is None else f'{error:.1f}<i class="bar" style="width: {error:.1f}%"></i>',
            "–" if error is None else f"{100 - error:.1f}",
            f"{escape(classes[one.taken_for])} ({one.times:,})" if one.wrong else "–",
        ]
        told = "".join(f"<td>{cell}</td>" for cell in cells)
        rows.append(f'<tr><th scope="row">{escape(classes[one.number])}</th>{told}</tr>')
    few = f'<p class="note">The {LISTED} classes with the highest error, of {len(classes):,}.</p>'
    heads = ("class", "test images", "error, %", "accuracy, %", "most often taken for")
    return f"""{few if len(classes) > LISTED else ""}<table class="classes"><thead><tr>
{"".join(f'<th scope="col">{head}</th>' for head in heads)}</tr></thead><tbody>{"".join(rows)}</tbody></table>"""
