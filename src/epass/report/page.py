"""The report: one HTML file that needs nothing else, on screen, in the dark and on paper."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..files import write_atomically
from ..runs import Run
from . import curves, diagrams, microscope
from .answers import NOT_YET, class_names
from .collapse import warnings_of
from .frame import frame, resource
from .gallery import class_table, confident_mistakes, interactive_maps
from .guarded import guard_sentences
from .maps import atlas_of
from .pictures import Pictures
from .scaling import scale
from .style import Drawing, NoDataError
from .summary import ALL_LABELS, Group, group_runs, seed_of
from .table import NOTE, explanations, table_heads, table_rows
from .verdict import sentences

NOISE = (
    "More than noise: there are several seeds, and the 95 % interval of the difference, over seeds and test images, "
    "leaves out 0."
)
ERRORS = (
    "Test error. A thick line is the mean over seeds, as far as all of them got; thin lines are the seeds, and the "
    "band reaches from the lowest to the highest."
)
SIMILARITY = (
    "Diversity of the projectors: the mean cosine between the outputs of two heads. The lower, the more the heads of "
    "an ensemble differ. Means over seeds, in a band from the lowest to the highest."
)
PSEUDO_LABELS = (
    "The share of unlabeled images that a method trains on, and how many of those got their true class. Means over "
    "seeds."
)
QUANTITY = "The same two against each other, from the first report to the last: up and to the right is better."
BY_CLASS = (
    "Which classes the pseudo-labels name, and how many of these are right, since the report before each test. A class "
    "that swallows the others is a dark row; hatched: no pseudo-label, or none whose class is known."
)
MAPS = (
    "The test images by t-SNE: those lie near each other that the model finds alike. Colored by the true class, wrong "
    "answers as crosses. Point at an image, tap it, or use the arrow keys, to see it and the answer. Only "
    "neighborhoods mean something; directions and the distances between groups do not."
)
NO_MAPS = "The map of the test images is not in this page, because it takes a while: epass report draws it."
RELIABILITY = (
    "Top: accuracy at each confidence; hatched, how far that is from the confidence. Below: how often it occurs."
)
CONFUSION = "Where the images of each true class end up, in percent; every row adds up to 100."
SCALED = "After temperature scaling: no answer changes, only how sure it is. A temperature above 1: it was too sure."
DETAILED = 30  # groups up to which each has figures of its own: they take half a second and 140 kB, maps far more
FEWER = (
    "Of {count:,} ways of training, the {shown} with the lowest test error have pictures, diagrams, maps and panels of "
    "their own here. 'epass report' of one run shows those of any other."
)
VERSIONS = ("epass", "commit", "python", "torch", "numpy", "platform", "device")


def write_page(path: str | Path, runs: Sequence[Run], *, title: str, maps: bool = False) -> Path:
    """Write the report of these runs and return where it is; `maps` of the test images take seconds for each method."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, render(runs, title, maps=maps).encode())
    return target


def render(runs: Sequence[Run], title: str, *, maps: bool = False) -> str:
    """The page as text."""
    groups = group_runs(runs)
    guards = _about_guards(runs)
    first, *others = guards if len(runs) == 1 and guards else [*sentences(groups), *guards]
    pictures, detailed = Pictures(), _detailed(groups)
    body = [
        f"<header><h1>{escape(title)}</h1>",
        f'<p class="verdict">{_prose(first)}</p>',
        *(f'<p class="verdict more">{_prose(sentence)}</p>' for sentence in others),
        *(f'<p class="verdict warning"><b>Warning:</b> {_prose(sentence)}</p>' for sentence in warnings_of(groups)),
        "</header>",
        _results(groups),
        "<section><h2>Test images</h2>",
        f'<p class="note">{FEWER.format(count=len(groups), shown=DETAILED)}</p>' if len(groups) > DETAILED else "",
        *(_images(group, pictures) for group in detailed),
        "</section>",
        "<section><h2>Calibration and confusion</h2>",
        *(_diagrams(group, number) for number, group in enumerate(detailed)),
        "</section>",
        f'<section><h2>Map of the test images</h2>\n<p class="note">{MAPS if maps else NO_MAPS}</p>',
        *(_map(group, pictures) for group in detailed if maps),
        "</section>",
        '<section><h2>During training</h2>\n<div class="charts">',
        _figure(lambda: curves.error_curves(groups), ERRORS),
        _figure(lambda: curves.loss_parts(detailed), "Weighted parts of the loss; they add up to the total."),
        _figure(lambda: curves.head_similarity(groups), SIMILARITY),
        "</div></section>",
        '<section><h2>Pseudo-labels under the microscope</h2>\n<div class="charts">',
        _figure(lambda: curves.pseudo_labels(groups), PSEUDO_LABELS),
        _figure(lambda: microscope.quantity_against_quality(groups), QUANTITY),
        *(_by_class(group, number) for number, group in enumerate(detailed) if _makes_pseudo_labels(group)),
        "</div></section>",
        _reproduce(groups),
    ]
    text = "\n".join(body)
    script = resource("atlas.js") if 'class="atlas"' in text else ""
    return frame(title, text, style=pictures.style, script=script)


def _about_guards(runs: Sequence[Run]) -> list[str]:
    found = {run.name: " ".join(guard_sentences(run.results)) for run in runs}
    return [f"{name}: {text}" if len(runs) > 1 else text for name, text in found.items() if text]


def _detailed(groups: Sequence[Group]) -> list[Group]:
    """The groups that have figures of their own, in their order: of many, those with the lowest test error."""
    by_error = sorted(groups, key=lambda group: np.mean(group.errors) if group.errors else np.inf)
    chosen = {group.label for group in by_error[:DETAILED]}
    return [group for group in groups if group.label in chosen]


def shown_run(group: Group) -> Run:
    """The run of a group that figures about one model show: the first that has ended."""
    return next((run for run in group.runs if run.predictions is not None), group.runs[0])


def _results(groups: Sequence[Group]) -> str:
    # the lowest error is marked, except that of an upper bound that saw all labels
    errors = {group.label: np.mean(group.errors) for group in groups if group.method != ALL_LABELS and group.errors}
    lowest = [label for label, error in errors.items() if len(errors) > 1 and error == min(errors.values())]
    cells = {label: others for _, (label, *others) in table_rows(groups, "page")}
    told, rows = table_heads(groups, "page"), []
    for group in groups:
        mark = ' class="lowest"' if group.label in lowest else ""
        values = _cells(cells[group.label], told[1:])
        rows.append(f'<tr{mark}><th scope="row">{_unbroken(group.label, " · ")}</th>{values}</tr>')
    names = [escape(head).partition(", ") for head in told]
    heads = "".join(f'<th scope="col">{name}{comma}<small>{detail}</small></th>' for name, comma, detail in names)
    notes = escape(" ".join([f"{NOTE}.", *explanations(groups, "page"), NOISE]))
    return f"""<section><h2>Results</h2>
<div class="scroll"><table class="results stacked"><thead><tr>{heads}</tr></thead>
<tbody>{"".join(rows)}</tbody></table></div>
<details class="note"><summary>What these numbers mean</summary>{notes}</details></section>"""


def _by_class(group: Group, number: int) -> str:
    run = shown_run(group)
    classes = [str(name) for name in (run.model or {}).get("classes") or []]
    figure = _figure(lambda: microscope.pseudo_labels_by_class(run, classes, f"by-class-{number}"), BY_CLASS)
    return f"<div>{_heading(group)}{figure}</div>"


def _makes_pseudo_labels(group: Group) -> bool:
    return any("coverage" in row for run in group.runs for row in run.metrics)


def _images(group: Group, pictures: Pictures) -> str:
    run = shown_run(group)
    if run.predictions is None:
        return f'{_heading(group)}\n<p class="missing">{NOT_YET}</p>'
    return f"""{_heading(group)}
<h4>The most confident mistakes</h4>
{_part(lambda: confident_mistakes(run, pictures))}
<h4>The error of every class</h4>
{_part(lambda: class_table(run))}"""


def _map(group: Group, pictures: Pictures) -> str:
    return f"{_heading(group)}\n{_part(lambda: interactive_maps(atlas_of(shown_run(group)), pictures))}"


def _heading(group: Group) -> str:
    return f"<h3>{escape(group.label)}, seed {seed_of(shown_run(group))}</h3>"


def _diagrams(group: Group, number: int) -> str:
    run = shown_run(group)
    predictions = run.predictions
    if predictions is None:
        return f'{_heading(group)}\n<p class="missing">{NOT_YET}</p>'
    return f"""{_heading(group)}
<div class="pair">
{_figure(lambda: diagrams.reliability_diagram(predictions, f"reliability-{number}"), RELIABILITY)}
{_figure(lambda: diagrams.confusion_matrix(predictions, class_names(run), f"confusion-{number}"), CONFUSION)}
{_scaled(run, f"scaled-{number}")}
</div>"""


def _scaled(run: Run, name: str) -> str:
    """The reliability after temperature scaling, under the one before, and beside it what was done."""
    try:
        scaled = scale(run)
    except InputError as reason:
        return f'<p class="missing">Temperature scaling: {escape(str(reason))}</p>'
    figure = _figure(lambda: diagrams.reliability_diagram(scaled.predictions, name), SCALED)
    return f'{figure}\n<p class="note">{scaled.how} {scaled.temperature} The scores above are without it.</p>'


def _reproduce(groups: Sequence[Group]) -> str:
    runs = [run for group in groups for run in group.runs]
    rows = [
        f'<tr><th scope="row">{escape(run.name)}</th><td data-head="seed">{seed_of(run)}</td>'
        f"<td>{_command(run)}</td></tr>"
        for run in runs
    ]
    facts = []
    for key in VERSIONS:
        values = dict.fromkeys(str(run.environment.get(key) or "not recorded") for run in runs)
        facts.append(f"<dt>{key}</dt><dd>{escape(', '.join(values))}</dd>")
    return f"""<section><h2>How to reproduce</h2>
<div class="scroll"><table class="commands stacked"><thead><tr><th scope="col">run</th>
<th scope="col">seed</th><th scope="col">command</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>
<dl>{"".join(facts)}</dl></section>"""


def _command(run: Run) -> str:
    return f"<code>{_unbroken(str(run.environment.get('command') or 'not recorded'), ' ')}</code>"


def _figure(draw: Callable[[], Drawing], caption: str) -> str:
    return _part(lambda: f"<figure>{draw().svg()}<figcaption>{escape(caption)}</figcaption></figure>")


def _part(write: Callable[[], str]) -> str:
    """A part of the page or, in its place, the reason why it is not there."""
    try:
        return write()
    except (NoDataError, InputError) as reason:
        return f'<p class="missing">{escape(str(reason))}</p>'


def _prose(sentence: str) -> str:
    """Text whose numbers stay with their signs, and whose flags are not broken after their dashes."""
    return re.sub(r"(?<!\S)--\w[\w-]*", r"<span>\g<0></span>", escape(sentence).replace(" %", "&nbsp;%"))


def _unbroken(text: str, separator: str) -> str:
    """Text that a browser breaks at the separators only, not inside of "--seed"."""
    return separator.join(f"<span>{escape(part)}</span>" for part in text.split(separator))


def _cells(values: Sequence[str], heads: Sequence[str]) -> str:
    """The cells of a row; a narrow window shows the head beside each."""
    pairs = zip(values, heads, strict=True)
    return "".join(f'<td data-head="{escape(head)}">{escape(value)}</td>' for value, head in pairs)
