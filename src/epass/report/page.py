"""The report: one HTML file that needs nothing else, on screen, in the dark and on paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from ..errors import InputError
from ..files import write_atomically
from ..runs import Run
from . import curves, diagrams
from .scaling import scale
from .style import NoDataError
from .summary import ALL_LABELS, Group, group_runs, seed_of
from .table import duration, percent, plain, seeds
from .verdict import sentences

COLUMNS = (
    ("method", ""),
    ("seeds", ""),
    ("test error,", "last step, %"),
    ("best on test,", "as papers report, %"),
    ("ECE", "%"),
    ("NLL", ""),
    ("time", "per run"),
)
RELIABILITY = (
    "Top: accuracy at each confidence; hatched, how far that is from the confidence. Below: how often it occurs."
)
CONFUSION = "Where the images of each true class end up, in percent; every row adds up to 100."
SCALED = "After temperature scaling: no answer changes, only how sure it is. A temperature above 1: it was too sure."
VERSIONS = ("epass", "commit", "python", "torch", "numpy", "platform", "device")


def write_page(path: str | Path, runs: Sequence[Run], *, title: str) -> Path:
    """Write the report of these runs and return where it is."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, render(runs, title).encode())
    return target


def render(runs: Sequence[Run], title: str) -> str:
    """The page as text."""
    groups = group_runs(runs)
    first, *others = sentences(groups)
    body = [
        f"<header><h1>{escape(title)}</h1>",
        f'<p class="verdict">{_prose(first)}</p>',
        *(f'<p class="verdict more">{_prose(sentence)}</p>' for sentence in others),
        "</header>",
        _results(groups),
        "<section><h2>During training</h2>",
        _figure(
            lambda: curves.error_curves(groups),
            "Test error. Thin lines are seeds; a thick line is their mean, as far as all of them got.",
        ),
        _figure(
            lambda: curves.pseudo_labels(groups),
            "Pseudo-labels: the share of unlabeled images that a method trains on, and how many of those got their "
            "true class. Means over seeds.",
        ),
        _figure(lambda: curves.loss_parts(groups), "Weighted parts of the loss; they add up to the total."),
        "</section>",
        "<section><h2>Calibration and confusion</h2>",
        *(_diagrams(group, number) for number, group in enumerate(groups)),
        "</section>",
        _reproduce(groups),
    ]
    style = files("epass.report").joinpath("page.css").read_text(encoding="utf-8")
    return PAGE.format(title=escape(title), style=style, body="\n".join(body))


def _results(groups: Sequence[Group]) -> str:
    # the lowest error is marked, except that of an upper bound that saw all labels
    errors = [
        spread.mean for group in groups if group.method != ALL_LABELS and (spread := group.spread("last", "error"))
    ]
    rows = []
    for group in groups:
        error = group.spread("last", "error")
        cells = [
            seeds(group),
            percent(error),
            percent(group.spread("best_on_test", "error")),
            percent(group.spread("last", "ece")),
            plain(group.spread("last", "nll")),
            duration(group.spread("seconds")),
        ]
        mark = ' class="lowest"' if error and len(errors) > 1 and error.mean == min(errors) else ""
        rows.append(f'<tr{mark}><th scope="row">{_unbroken(group.label, " · ")}</th>{_cells(cells)}</tr>')
    heads = "".join(f'<th scope="col">{name} <small>{detail}</small></th>' for name, detail in COLUMNS)
    return f"""<section><h2>Results</h2>
<div class="scroll"><table class="results"><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>
<p class="note">Mean ± standard deviation over seeds (population, ddof 0). The last step is what you get when you train
once and use the model. Best on test picks the step by looking at the test images: it is there to compare with papers.
ECE: expected calibration error, 10 bins. NLL: negative log-likelihood. More than noise: every seed agrees on the
direction, and 0 lies outside the 95 % confidence interval of the difference.</p></section>"""


def _diagrams(group: Group, number: int) -> str:
    run = next((run for run in group.runs if run.predictions is not None), group.runs[0])
    heading = f"<h3>{escape(group.label)}, seed {seed_of(run)}</h3>"
    predictions = run.predictions
    if predictions is None:
        return f'{heading}\n<p class="missing">No predictions yet: a run writes them when it ends.</p>'
    classes = [str(name) for name in (run.model or {}).get("classes") or []]
    if len(classes) != predictions.logits.shape[1]:
        classes = [str(label) for label in range(predictions.logits.shape[1])]
    return f"""{heading}
<div class="pair">
{_figure(lambda: diagrams.reliability_diagram(predictions, f"reliability-{number}"), RELIABILITY)}
{_figure(lambda: diagrams.confusion_matrix(predictions, classes, f"confusion-{number}"), CONFUSION)}
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
        f'<tr><th scope="row">{escape(run.name)}</th><td>{seed_of(run)}</td><td>{_command(run)}</td></tr>'
        for run in runs
    ]
    facts = []
    for key in VERSIONS:
        values = dict.fromkeys(str(run.environment.get(key) or "not recorded") for run in runs)
        facts.append(f"<dt>{key}</dt><dd>{escape(', '.join(values))}</dd>")
    return f"""<section><h2>How to reproduce</h2>
<div class="scroll"><table class="commands"><thead><tr><th scope="col">run</th>
<th scope="col">seed</th><th scope="col">command</th></tr></thead><tbody>{"".join(rows)}</tbody></table></div>
<dl>{"".join(facts)}</dl></section>"""


def _command(run: Run) -> str:
    return f"<code>{_unbroken(str(run.environment.get('command') or 'not recorded'), ' ')}</code>"


def _figure(draw: Callable[[], str], caption: str) -> str:
    try:
        return f"<figure>{draw()}<figcaption>{escape(caption)}</figcaption></figure>"
    except (NoDataError, InputError) as reason:
        return f'<p class="missing">{escape(str(reason))}</p>'


def _prose(sentence: str) -> str:
    return escape(sentence).replace(" %", "&nbsp;%")


def _unbroken(text: str, separator: str) -> str:
    """Text that a browser breaks at the separators only, not inside of "--seed"."""
    return separator.join(f"<span>{escape(part)}</span>" for part in text.split(separator))


def _cells(values: Sequence[str]) -> str:
    return "".join(f"<td>{escape(value)}</td>" for value in values)


PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
{style}</style>
</head>
<body><main>
{body}
</main></body>
</html>
"""
