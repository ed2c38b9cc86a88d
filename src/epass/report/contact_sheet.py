"""Pictures with a field for the label of each, on a page that needs no network and saves what was typed as a table."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from .frame import frame, resource
from .pictures import Pictures, Pixels, address_of


class Entry(NamedTuple):
    """One picture."""

    name: str
    pixels: Pixels  # (C, h, w)
    words: str  # below the picture
    known: str = ""  # the label that it has


def contact_sheet(
    title: str, column: str, classes: Sequence[str], strips: Sequence[tuple[str, Sequence[Entry]]]
) -> str:
    """The page: strips of pictures under headings. `column` is what the names are called in the table it saves."""
    pictures = Pictures()
    known = "".join(f'<option value="{escape(name)}">' for name in classes)
    body = [
        f"<header><h1>{escape(title)}</h1></header>",
        f'<datalist id="classes">{known}</datalist>',
        *(_strip(heading, entries, pictures) for heading, entries in strips),
        f'<footer class="save" data-column="{escape(column)}"><button type="button">Save the labels</button>'
        '<output>none yet</output><span class="note">as labeled.csv, for epass label. What is left empty stays '
        "unlabeled. Nothing is kept in this page: save before you close it.</span></footer>",
    ]
    return frame(
        title,
        "\n".join(body),
        style=resource("contact_sheet.css") + pictures.style,
        script=resource("contact_sheet.js"),
    )


def _strip(heading: str, entries: Sequence[Entry], pictures: Pictures) -> str:
    items = []
    for entry in entries:
        picture = pictures.name(address_of(entry.pixels), max(entry.pixels.shape[1:]))
        name, words = escape(entry.name), f"{escape(entry.words)}<br>" if entry.words else ""
        items.append(
            f'<li><span class="photo {picture}" role="img" aria-label="{name}"></span>'
            f'<input list="classes" aria-label="label of {name}" placeholder="label" autocomplete="off" '
            f'data-name="{name}" data-known="{escape(entry.known)}">'
            f'{words}<small title="{name}">{name.rpartition("/")[2]}</small></li>'
        )
    return f'<section><h2>{escape(heading)}</h2>\n<ul class="mistakes">{"".join(items)}</ul></section>'
