"""What the files of a run hold. They are checked where they are read, so that nobody else has to doubt them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Rule = Callable[[Any], bool]
BY_CLASS = tuple(f"{name}_by_class" for name in ("used", "known", "right", "images"))


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53  # which a float holds as it is


def _positive(value: Any) -> bool:
    return _whole(value) and value > 0


def _number(value: Any) -> bool:
    return type(value) in (int, float)


def _fraction(value: Any) -> bool:
    return _number(value) and 0 <= value <= 1


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _table(value: Any) -> bool:
    return isinstance(value, dict)


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_number, value))


def _names(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_text, value))


def _or_nothing(rule: Rule) -> Rule:
    return lambda value: value is None or rule(value)


def _simple(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


# By dotted name, a table before what is in it. A question mark: runs without it, of older versions, are whole.
RECIPE: Mapping[str, Rule] = {
    "seed?": _whole,
    **dict.fromkeys(("data", "net", "method"), _table),
    **dict.fromkeys(("plan?", "augment?", "start?", "projector?", "wrapper?"), _table),
    **dict.fromkeys(("data.name", "net.name", "method.name", "wrapper.name"), _text),
    "projector.size?": _positive,
    "data.path_column?": _text,
}
ENVIRONMENT: Mapping[str, Rule] = {
    "seed?": _whole,
    **dict.fromkeys(("command?", "device?", "torch?", "commit?"), _or_nothing(_text)),
}
UNTESTED: Mapping[str, Rule] = {"steps": _whole, "seconds": _number, "labels?": _whole, "images?": _whole}
RESULTS: Mapping[str, Rule] = {
    **UNTESTED,
    "last": _table,
    "last.error": _fraction,
    "best_on_test": _table,
    "best_on_test.step": _whole,
    "best_on_test.error": _fraction,
    "validation_selected?": _table,
    "validation_selected.step": _whole,
    "validation_selected.error": _fraction,
    "validation_selected.images": _whole,
    "guard?": _table,
    **dict.fromkeys(("guard.kept", "guard.basis"), _text),
    "guard.labels": _whole,
    **dict.fromkeys(("guard.method?", "guard.labels_only?", "guard.gap?"), _table),
    **{f"guard.{part}.value": _fraction for part in ("method", "labels_only")},
    **dict.fromkeys(("guard.gap.value", "guard.gap.low", "guard.gap.high"), _number),
    "guard.test": _table,
    **dict.fromkeys(("guard.test.method", "guard.test.labels_only"), _table),
    **dict.fromkeys(("guard.test.method.error", "guard.test.labels_only.error"), _fraction),
}
BASELINE: Mapping[str, Rule] = {"classes": _names, "names?": _or_nothing(_table)}  # a model without a network
MODEL: Mapping[str, Rule] = {
    **BASELINE,
    **dict.fromkeys(("mean", "std"), _numbers),
    **dict.fromkeys(("net", "method"), _table),
    **dict.fromkeys(("projector?", "wrapper?", "features?", "calibration?"), _or_nothing(_table)),
    **dict.fromkeys(("provenance?", "export?"), _or_nothing(_table)),
    **dict.fromkeys(("net.name", "method.name", "wrapper.name", "features.net", "export.input"), _text),
    "provenance.data?": _table,
}
IMAGES: Mapping[str, Rule] = dict.fromkeys(("channels", "height", "width"), _positive)
VECTORS: Mapping[str, Rule] = {"numbers": _positive}


def check_recipe(content: Mapping[str, Any]) -> None:
    """A ValueError says what is not as it is in a recipe; settings are checked by whoever knows them."""
    _check(content, RECIPE)


def check_environment(content: Mapping[str, Any]) -> None:
    """A ValueError says what is not as it is in environment.json."""
    _check(content, ENVIRONMENT)
    if not all(map(_simple, content.values())):
        raise ValueError("it holds more than texts and numbers")


def check_results(content: Mapping[str, Any]) -> None:
    """A ValueError says what is not as it is in results.json; scores may be of others, and be anything."""
    _check(content, RESULTS if content.keys() & {"last", "best_on_test"} else UNTESTED)


def check_model(content: Mapping[str, Any]) -> None:
    """A ValueError says what is not as it is in model.json."""
    if set(content) <= {"classes", "names"}:
        _check(content, BASELINE)
    else:
        _check(content, {**MODEL, **(VECTORS if "numbers" in content else IMAGES)})


def _check(content: Mapping[str, Any], rules: Mapping[str, Rule]) -> None:
    """What no rule is about may be anything: a later version may write more."""
    for name, rule in rules.items():
        *tables, key = name.removesuffix("?").split(".")
        place: Any = content
        for table in tables:
            place = None if place is None else place.get(table)
        if place is None:  # a table that need not be there
            continue
        if key not in place:
            if name.endswith("?"):
                continue
            raise ValueError(f"it lacks '{name}'")
        if not rule(place[key]):
            raise ValueError(f"its '{name.removesuffix('?')}' is not what a run writes there")


class Rows:
    """The rows of the metrics, checked one after the other."""

    def __init__(self) -> None:
        self._step, self._classes = 0, 0

    def check(self, row: Any) -> None:
        """A ValueError says what is wrong with the next row."""
        if not isinstance(row, dict) or not _positive(row.get("step")):
            raise ValueError("it is no object with a step")
        if row["step"] <= self._step:
            raise ValueError(f"step {row['step']} comes after step {self._step}")
        if not _number(row.get("seconds")):
            raise ValueError("its 'seconds' are no number")
        for name, value in row.items():
            if name in BY_CLASS:
                self._check_classes(name, value)
            elif not (value is None or _number(value) or isinstance(value, list)):
                raise ValueError(f"its '{name}' is no number")
        if row.get(BY_CLASS[0]) and not all(name in row for name in BY_CLASS[:3]):
            raise ValueError("its counts of the classes are not complete")
        self._step = row["step"]

    def _check_classes(self, name: str, value: Any) -> None:
        if not _numbers(value) or not value:
            raise ValueError(f"its '{name}' are no numbers")
        self._classes = self._classes or len(value)
        if len(value) != self._classes:
            raise ValueError(f"its '{name}' are not {self._classes}")
