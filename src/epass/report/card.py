"""The model card: what one should know before using a trained model, as Markdown that can lie beside its weights."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..evaluation import SCORES, Score
from ..evaluation import score as compute_scores
from ..evaluation.scores import duration
from ..extensions import short
from ..files import write_atomically
from ..runs import WEIGHTS, Predictions, Run
from ..untrusted import printable
from .answers import class_errors, class_names
from .scaling import scale
from .summary import group_runs, seed_of
from .table import markdown_row, scores_of, stored

LISTED = 30  # classes up to which each has its row; of more, these many with the highest error
VERSIONS = ("epass", "commit", "python", "torch", "numpy", "platform", "device", "started")


def write_card(path: str | Path, run: Run, *, title: str) -> Path:
    """Write the model card of a finished run and return where it is."""
    text, target = render_card(run, title), Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, text.encode())
    return target


def render_card(run: Run, title: str, loading: str = "") -> str:
    """The card as text; `loading` says how the model is loaded, where that is not by its run."""
    command = printable(str(run.environment.get("command") or "not recorded")).replace("`", "'")
    run = replace(
        run,
        **{name: _harmless(getattr(run, name)) for name in ("recipe", "environment", "results", "model")},
    )
    results, model, predictions = run.results, run.model, run.predictions
    if results is None or model is None or predictions is None:
        raise InputError(f"'{run.path}' holds no finished model yet, so there is nothing to put on a card: resume it.")
    recipe = run.recipe
    names = ", ".join(map(str, model["classes"][:LISTED])) + (", ..." if len(model["classes"]) > LISTED else "")
    if "numbers" in model:
        kind, size = "A classifier", f"vectors of {_count(model['numbers'], 'number')}"
    else:
        kind = "An image classifier"
        size = f"images of {model['width']} by {model['height']} pixels in {_count(model['channels'], 'channel')}"
    sections = {
        "Data": _bullets(_data(run, results, predictions)),
        "Training": _training(run, results, command),
        "Test scores": _scores(run, results, predictions),
        "Calibration": _calibration(run, predictions),
        "Error of every class": _classes(predictions, class_names(run)),
        "Limits": _bullets(_limits(run, results, predictions)),
        "Environment": _bullets(f"{key}: {run.environment.get(key) or 'not recorded'}" for key in VERSIONS),
        "Load it": loading or _loading(run, model),
    }
    introduction = (
        f"{kind}: it takes {size} and answers with one of "
        f"{_count(len(model['classes']), 'class')}: {names}. "
        f"The network is {recipe['net']['name']}, trained by {group_runs([run])[0].label}. This card was written by "
        f"`epass {'export' if loading else 'report'}` from the files of the run."
    )
    body = "\n\n".join(f"## {heading}\n\n{text}" for heading, text in sections.items())
    return f"# {_harmless(title)}\n\n{introduction}\n\n{body}\n"


def _harmless(value: Any) -> Any:
    """What a run says, without the characters that Markdown takes for HTML, links, images and code."""
    if isinstance(value, Mapping):
        return {_harmless(key): _harmless(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_harmless(entry) for entry in value]
    if isinstance(value, str):
        return printable(value).replace("<", "&lt;").replace("[", "&#91;").replace("`", "'")
    return value


def data_name(recipe: Mapping[str, Any]) -> str:
    """The data set of a recipe; of a path only its end, because the rest is of no use elsewhere."""
    name = short(str(recipe.get("data", {}).get("name", "unknown data")))
    return Path(name).name or name


def _data(run: Run, results: Mapping[str, Any], predictions: Predictions) -> Iterator[str]:
    chosen = results.get("validation_selected")
    origin = "held out from the labeled images" if results.get("held_out") else "the data set's own test images"
    yield f"data set: {data_name(run.recipe)}"
    yield f"labeled images trained on: {results.get('labels', 0):,}"
    if chosen is not None:
        yield f"labeled images kept back for validation: {chosen['images']:,}"
    yield f"unlabeled images: {results.get('images', 0):,}"
    yield f"test images: {len(predictions.labels):,}, {origin}"
    settings = {key: value for key, value in run.recipe.get("data", {}).items() if key not in ("name", "labels")}
    if settings:
        yield "further settings: " + ", ".join(f"{key} = {value}" for key, value in settings.items())


def _training(run: Run, results: Mapping[str, Any], command: str) -> str:
    facts = (
        f"{results['steps']:,} steps in {duration(results['seconds'])}, seed {seed_of(run)}",
        f"settings from: {run.recipe.get('source', 'not recorded')}",
    )
    kind = "pretrain" if run.pretraining else "train"
    again = shlex.join(["epass", kind, "--recipe", str(run.path / "recipe.toml"), "--out", f"{run.path}-again"])
    return f"{_bullets(facts)}\n\nIt was started with the first line; the second one repeats it:\n\n" + _fence(
        "sh", f"{command}\n{again}"
    )


def _scores(run: Run, results: Mapping[str, Any], predictions: Predictions) -> str:
    last, best, chosen = results["last"], results["best_on_test"], results.get("validation_selected")
    error = SCORES["error"]
    rows = [("test error, last step", f"{error.text(last['error'])}: the stored weights")]
    if chosen is not None:
        rows.append(
            (
                "test error, validation selected",
                f"{error.text(chosen['error'])} at step {chosen['step']:,}, of the lowest error on "
                f"{chosen['images']:,} validation images{_whether_stored(chosen['step'], results)}",
            )
        )
    rows.append(
        (
            "test error, best on test",
            f"{error.text(best['error'])} at step {best['step']:,}, chosen by looking at the test labels: only to "
            f"compare with papers{_whether_stored(best['step'], results)}",
        )
    )
    others = [score for score in scores_of([run]) if score is not error and not score.calibration]
    values = {score: stored(score, results) for score in others}
    shown = {score: value for score, value in values.items() if value is not None or score.place != "list"}
    rows += [(f"{score.name}, last step", _text(score, value)) for score, value in shown.items()]
    table = _table(("score", f"on {len(predictions.labels):,} test images"), rows)
    return f"{table}\n\n{_explained([error, *shown])}"


def _whether_stored(step: int, results: Mapping[str, Any]) -> str:
    return "" if step == results["steps"] else "; the weights of that step are not stored"


def _calibration(run: Run, predictions: Predictions) -> str:
    shown = [score for score in SCORES.values() if score.calibration]
    scored = {"as trained": compute_scores(*predictions)}
    try:
        scaled = scale(run)
        scored["with temperature scaling"] = compute_scores(*scaled.predictions)
        scaling = f"{scaled.how} {scaled.temperature}"
    except InputError as reason:
        scaling = f"Temperature scaling: {reason}"
    rows = [(one.name, *(_text(one, values.get(one.key)) for values in scored.values())) for one in shown]
    return f"{_table(('score', *scored), rows)}\n\n{_explained(shown)}\n\n{scaling}"


def _text(score: Score, value: float | None) -> str:
    return "–" if value is None else score.text(value)


def _explained(scores: Iterable[Score]) -> str:
    return _bullets(score.explanation() for score in scores if score.definition)


def _classes(predictions: Predictions, classes: Sequence[str]) -> str:
    rows = []
    for found in class_errors(predictions, LISTED):
        taken_for = f"{classes[found.taken_for]} ({found.times:,})" if found.wrong else "–"
        share = found.wrong / found.images if found.images else None
        error, right = (_text(SCORES["error"], value) for value in (share, share if share is None else 1 - share))
        rows.append((classes[found.number], f"{found.images:,}", error, right, taken_for))
    note = f"The {LISTED} classes with the highest error, of {len(classes)}.\n\n" if len(classes) > LISTED else ""
    return note + _table(("class", "test images", "error", "accuracy", "most often taken for"), rows)


def _limits(run: Run, results: Mapping[str, Any], predictions: Predictions) -> Iterator[str]:
    number, error = len(predictions.labels), float(results["last"]["error"])
    yield (
        f"One test image is {100 / number:.2f} points of error, and the standard error of the test error is "
        f"{100 * math.sqrt(error * (1 - error) / number):.2f} points."
    )
    yield "It is one run with one seed: another choice of labeled images and weights gives another error."
    yield "Every image gets one of the classes above, whatever it shows."
    if results.get("held_out"):
        yield "Test and training images are from the same collection: images from elsewhere may be harder."
    missing = int((np.bincount(predictions.labels, minlength=predictions.logits.shape[1]) == 0).sum())
    if missing:
        yield f"{_count(missing, 'class')} without a test image: nothing is known about the error there."
    if len(run.recipe.get("start") or {}) or "weights" in run.recipe.get("net", {}):
        yield "It started from pre-trained weights, whose training data were not examined here."
    yield "Images of other origin, groups of people, and images made to mislead were not tested."


def _loading(run: Run, model: Mapping[str, Any]) -> str:
    sizes = ["numbers"] if "numbers" in model else ["channels", "height", "width"]
    shape = tuple(model[size] for size in sizes)
    name, what, scale, shaped = "pixels", "images", ", from 0 to 1", ".view(-1, 1, 1)"
    if "numbers" in model:
        name, what, scale, shaped = "vectors", "vectors", "", ""
    code = f"""import torch
from epass import load_model

net, facts = load_model({json.dumps(str(run.path))})
mean, std = (torch.tensor(facts[key]){shaped} for key in ("mean", "std"))
{name} = torch.zeros(1, *{shape})  # your {what} (N, {", ".join(map(str, shape))}){scale}
with torch.no_grad():
    probabilities = net(({name} - mean) / std).logits.softmax(1)
print([facts["classes"][number] for number in probabilities.argmax(1)])"""
    return f"The weights are in `{WEIGHTS}`, no file of the run is a pickle.\n\n{_fence('python', code)}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(markdown_row(cells) for cells in (heads, ["---"] * len(heads), *rows))


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _fence(kind: str, text: str) -> str:
    return f"```{kind}\n{text}\n```"


def _count(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
