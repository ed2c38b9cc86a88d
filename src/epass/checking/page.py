"""The findings as one HTML file that needs nothing else, with the images side by side."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch

from ..data import Dataset
from ..files import write_atomically
from ..report.frame import frame
from .findings import Findings, Group, Leak, Member
from .fingerprint import thumbnails
from .summary import balance, facts, verdict

SHOWN = 60  # pairs or groups of a kind: more make the page heavy, and --json has them all
SHOWN_IN_GROUP = 8
LISTED = 200  # lines of a table


def write_check(path: Path, findings: Findings, dataset: Dataset) -> Path:
    """Write the page and return where it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, render(findings, dataset).encode())
    return path


def render(findings: Findings, dataset: Dataset) -> str:
    """The page as text."""
    title = f"Check of {findings.name}"
    rows = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts(findings).items())
    body = [
        f'<header><h1>{escape(title)}</h1>\n<p class="verdict">{escape(verdict(findings))}</p></header>',
        f"<section><h2>At a glance</h2><dl>{rows}</dl></section>",
        _list("Files that cannot be read", findings.unreadable),
        _leaks("Test images among the labeled ones", findings.leaks_into("labeled"), dataset),
        _groups("Duplicates with different labels", findings.contradictions, dataset),
        _leaks("Test images among the unlabeled ones", findings.leaks_into("unlabeled"), dataset),
        _groups("Duplicates", [group for group in findings.groups if not group.contradicts], dataset),
        _classes(findings),
        _list("Images of one color", [(member.name, member.part) for member in findings.constant]),
        _list("Odd files", findings.odd),
        '<p class="note">Exact: the same pixels. Near: the same but for brightness, contrast, compression or a shift '
        f"by a pixel, with a likeness of {findings.least_likeness:.2f} or more. Mirrored: near, after mirroring.</p>",
    ]
    style = files("epass.checking").joinpath("page.css").read_text("utf-8")
    return frame(title, "\n".join(part for part in body if part), style=style)


def _leaks(heading: str, leaks: Sequence[Leak], dataset: Dataset) -> str:
    items = [
        _item(f"{leak.kind}, likeness {leak.likeness:.2f}", [leak.test, leak.other], dataset) for leak in leaks[:SHOWN]
    ]
    return _strip(heading, items, len(leaks), "test images")


def _groups(heading: str, groups: Sequence[Group], dataset: Dataset) -> str:
    items = []
    for group in groups[:SHOWN]:
        more = len(group.members) - SHOWN_IN_GROUP
        why = f"{len(group.members)} images, {' and '.join(sorted(group.kinds))}"
        why += f", {SHOWN_IN_GROUP} shown" if more > 0 else ""
        items.append(_item(why, group.members[:SHOWN_IN_GROUP], dataset))
    return _strip(heading, items, len(groups), "groups")


def _strip(heading: str, items: Sequence[str], count: int, noun: str) -> str:
    if not items:
        return ""
    note = f'<p class="note">The first {len(items)} of {count:,} {noun}.</p>' if count > len(items) else ""
    return f'<section><h2>{heading}</h2>{note}\n<ul class="strip">{"".join(items)}</ul></section>'


def _item(why: str, members: Sequence[Member], dataset: Dataset) -> str:
    figures = "".join(
        f'<figure><img alt="" src="{_picture(member, dataset)}"><figcaption>{escape(member.name)}<br>'
        f"{member.part}{'' if member.label is None else f', <b>{escape(member.label)}</b>'}</figcaption></figure>"
        for member in members
    )
    return f'<li><span class="why">{escape(why)}</span><div class="images">{figures}</div></li>\n'


def _classes(findings: Findings) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(f"<td>{findings.class_counts[part][number]:,}</td>" for part in findings.counts)
        + "</tr>"
        for number, name in enumerate(findings.classes)
    )
    names = [f"{part}, label hidden" if part == "unlabeled" else part for part in findings.counts]
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("class", *names))
    return f"""<section><h2>Classes</h2><p>{escape(balance(findings))}.</p>
<div class="scroll"><table class="counts"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>
</section>"""


def _list(heading: str, lines: Sequence[tuple[str, str]]) -> str:
    if not lines:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>' for name, text in lines[:LISTED]
    )
    note = f'<p class="note">The first {LISTED} of {len(lines):,}.</p>' if len(lines) > LISTED else ""
    return f"""<section><h2>{heading}</h2>{note}
<div class="scroll"><table><tbody>{rows}</tbody></table></div></section>"""


def _picture(member: Member, dataset: Dataset) -> str:
    """The image as a data URI, scaled as it was compared."""
    from PIL import Image

    inside = member.position - len(dataset.train)
    images = dataset.train if inside < 0 or dataset.test is None else dataset.test
    pixels = thumbnails(images.take(torch.tensor([member.position if inside < 0 else inside])))[0].numpy()
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))).save(
        buffer, "PNG"
    )
    return f"data:image/png;base64,{b64encode(buffer.getvalue()).decode()}"
