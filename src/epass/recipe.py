"""The recipe, or config: everything that decides a run, as one frozen object and one TOML file."""

from __future__ import annotations

import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .errors import InputError, shortened, unknown
from .files import from_home
from .recipes import builtin_recipes, compose, unknown_recipe
from .untrusted import LARGEST_RECIPE, parse_toml, read_limited

FORMAT = 1  # of the TOML file; a newer file is refused, not guessed at
SHARES = ("threshold", "smoothing", "momentum")  # settings of methods, or their last word: not above 1
TABLES = ("data", "features", "augment", "start", "net", "method", "projector", "wrapper", "plan")
LARGEST = 3.4e38  # of the numbers that tensors of 32 bits hold
Table = Mapping[str, Any]


@dataclass(frozen=True)
class Recipe:
    """One run. The keys of each table are the keyword arguments of what it configures."""

    source: str  # where these numbers come from
    data: Table
    net: Table
    method: Table
    plan: Table
    projector: Table | None = None  # only for methods with an embedding
    augment: Table = field(default_factory=dict)  # changes to the data set's own policy
    wrapper: Table | None = None  # a method around the method
    start: Table | None = None  # weights to start from
    features: Table | None = None  # a frozen network whose features stand where images did
    seed: int = 0

    def __post_init__(self) -> None:
        for name in TABLES:
            table = getattr(self, name)
            if isinstance(table, Mapping):
                object.__setattr__(self, name, {key: plain(value) for key, value in table.items()})
        object.__setattr__(self, "seed", plain(self.seed))

    def flat(self) -> dict[str, Any]:
        """Every setting under its dotted name, `method.threshold` for one."""
        tables = {name: getattr(self, name) or {} for name in TABLES}
        return {f"{name}.{key}": value for name, table in tables.items() for key, value in table.items()} | {
            "seed": self.seed
        }

    def with_settings(self, settings: Mapping[str, Any]) -> Recipe:
        """The recipe with dotted names set; None removes a key.

        A new `plan.steps` stretches every duration and interval of the recipe (`*_steps`, `*_every`) in proportion,
        except those set here too, so that a shortened run keeps its shape. The averaged weights of a short run
        remember less (`plan.average_momentum`): they would still be the first, random ones otherwise.
        """
        settings = {name: plain(value) for name, value in settings.items()}
        settings = {**stretched(self.flat(), settings), **settings}
        tables: dict[str, Any] = {name: dict(getattr(self, name) or {}) for name in TABLES}
        changes: dict[str, Any] = {}
        for name, value in settings.items():
            table, _, key = name.partition(".")
            if name in ("seed", "source"):
                changes[name] = value
            elif table not in TABLES or not key:
                raise unknown("setting", name, self.flat())
            elif value is None:
                tables[table].pop(key, None)
            else:
                tables[table][key] = value
        tables |= {name: tables[name] or None for name in ("projector", "wrapper", "start", "features")}
        return replace(self, **tables, **changes)

    def to_toml(self, comments: Mapping[str, str] | None = None) -> str:
        """The file that `read_recipe` reads back; `comments`, by dotted name, stand behind the values."""

        def line(key: str, value: Any, name: str) -> str:
            return f"{key} = {toml_value(value)}" + (f"  # {comments[name]}" if comments and name in comments else "")

        lines = [f"format = {FORMAT}", line("source", self.source, "source"), line("seed", self.seed, "seed")]
        for name in TABLES:
            table = getattr(self, name)
            if table:
                lines += ["", f"[{name}]", *(line(key, value, f"{name}.{key}") for key, value in table.items())]
        return "\n".join(lines) + "\n"


def plain(value: Any) -> Any:
    """The numbers of NumPy and its like as Python's own, which is what a file holds."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def stretched(now: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The durations that follow when `settings` changes the number of steps."""
    steps, new_steps = now.get("plan.steps"), settings.get("plan.steps")
    if not isinstance(steps, int) or not isinstance(new_steps, int) or min(steps, new_steps) < 1:
        return {}
    durations = {n: v for n, v in now.items() if n.endswith(("_steps", "_every")) and type(v) is int}
    # intervals are rounded up: they stay at least 1 and the last one is not followed by a stump
    follow: dict[str, Any] = {
        name: math.ceil(value * new_steps / steps) if name.endswith("_every") else value * new_steps // steps
        for name, value in durations.items()
    }
    if {"plan.report_every", "plan.evaluate_every"} <= follow.keys():  # reports fall on tests, not beside them
        report = settings.get("plan.report_every", follow["plan.report_every"])
        if type(report) is int and report > 0:
            follow["plan.evaluate_every"] = math.ceil(follow["plan.evaluate_every"] / report) * report
    if isinstance(now.get("plan.average_momentum"), float):  # averaged weights remember at most a sixth of the run
        follow["plan.average_momentum"] = max(0.0, min(now["plan.average_momentum"], 1 - 6 / new_steps))
    return follow


def read_recipe(name_or_file: str) -> Recipe:
    """A built-in recipe by name, or one from a `.toml` file."""
    if name_or_file in builtin_recipes():
        return make_recipe(compose(name_or_file)[0], name_or_file)
    path = from_home(name_or_file)
    if path.suffix != ".toml":
        raise unknown_recipe(name_or_file)
    if not path.is_file():
        raise InputError(f"There is no recipe file {path}.")
    try:
        text = read_limited(path, LARGEST_RECIPE).decode()
    except UnicodeDecodeError:
        raise InputError(f"{path} is not valid TOML: it is not even text.") from None
    return parse_recipe(text, str(path))


def explained_recipe(name: str) -> str:
    """A built-in recipe as a file of its own, with a comment behind each value that says where it comes from."""
    content, origins = compose(name)
    return make_recipe(content, name).to_toml({"seed": "the default"} | origins)


def parse_recipe(text: str, origin: str) -> Recipe:
    """Read TOML; what is not valid is refused with a sentence."""
    try:
        content = parse_toml(text)
    except ValueError as problem:
        raise InputError(f"{origin} is not valid TOML: {problem}.") from None
    return make_recipe(content, origin)


def make_recipe(content: Mapping[str, Any], origin: str) -> Recipe:
    """The recipe of a file's content; unknown keys, missing tables and newer formats are refused with a sentence."""
    known = ("format", "source", "seed", *TABLES)
    for key in content:
        if key not in known:
            raise InputError(f"{origin}: {unknown('key', key, known)}")
    if content.get("format") != FORMAT:
        raise InputError(f"{origin}: this version reads recipes with 'format = {FORMAT}'.")
    for key in ("source", "data", "net", "method", "plan"):
        if key not in content:
            raise InputError(f"{origin}: '{key}' is missing.")
    for name in TABLES:
        if not isinstance(content.get(name, {}), dict):
            raise InputError(f"{origin}: '{name}' must be a table, [{name}].")
    if not isinstance(content["source"], str) or type(content.get("seed", 0)) is not int:
        raise InputError(f"{origin}: 'source' is a text and 'seed' a whole number.")
    return Recipe(**{key: value for key, value in content.items() if key != "format"})


def differences(asked: Recipe, found: Recipe) -> list[str]:
    """The settings in which two recipes differ, as `name: found -> asked`."""
    ours, theirs = asked.flat(), found.flat()
    return [
        f"{name}: {theirs.get(name, 'not set')} -> {ours.get(name, 'not set')}"
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    ]


def parse_setting(text: str) -> tuple[str, Any]:
    """`method.threshold=0.9` -> ("method.threshold", 0.9); what is not a TOML value is taken as text."""
    name, sign, value = text.partition("=")
    if not sign:
        raise InputError(f"--set takes NAME=VALUE, such as method.threshold=0.9, not '{text}'.")
    try:
        return name.strip(), parse_toml(f"value = {value.strip()}")["value"]
    except (ValueError, KeyError):
        return name.strip(), value.strip()


def toml_value(value: Any) -> str:
    """One value in TOML; recipes hold numbers, texts, booleans and lists of these."""
    value = plain(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return repr(int(value))
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    return str(value)  # dates and times, which TOML knows and no setting takes


def arguments(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The keyword-only parameters of a function or class: the schema of its table, with resolved annotations."""
    bare = function.func if isinstance(function, functools.partial) else function
    hints = typing.get_type_hints(bare.__init__ if isinstance(bare, type) else bare)  # type: ignore[misc]
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.replace(annotation=hints.get(p.name, Any)) for p in parameters if p.kind is p.KEYWORD_ONLY}


def check_table(name: str, table: Table, schema: Mapping[str, inspect.Parameter], *, least_count: int = 1) -> None:
    """Refuse keys that `schema` does not know, and values of another type than it declares or below what makes sense.

    No number is negative; whole numbers are counts of at least `least_count`, durations (`*_steps`) may be 0. What
    a name promises of a method's or a wrapper's number holds, unless its own default is another kind of number.
    """
    for key, value in table.items():
        if key not in schema:
            if not schema:
                raise InputError(f"'{name}' takes no settings here: remove '{name}.{key}'.")
            raise unknown("setting", f"{name}.{key}", [f"{name}.{k}" for k in schema])
        expected = schema[key].annotation
        if type(value) is int and value >= 2**63 and fits(1, expected):
            raise InputError(f"{name}.{key} must be less than 2^63, which {shortened(str(value))} is not.")
        if type(value) is float and math.isfinite(value) and value > LARGEST:
            raise InputError(f"{name}.{key} must be at most {LARGEST:g}, not {value}.")
        if not fits(value, expected):
            raise InputError(f"{name}.{key} is {describe(expected)}, not {toml_value(value)}.")
        counts = not fits(0.5, expected) and not key.endswith("_steps")
        least = least_count if counts else 0
        if type(value) in (int, float) and value < least:
            raise InputError(f"{name}.{key} must be at least {least}, not {value}.")
        if name in ("method", "wrapper") and not keeps_word(key, value) and keeps_word(key, schema[key].default):
            if value <= 0:
                raise InputError(f"{name}.{key} must be above 0, not {value}.")
            percent = f": write {value:g} % as {value / 100:g}" if 10 <= value <= 100 else ""
            raise InputError(f"{name}.{key} lies in [0, 1], not at {value}{percent}.")
    for key, parameter in schema.items():
        if parameter.default is parameter.empty and key not in table:
            raise InputError(f"{name}.{key} is missing: {describe(parameter.annotation)}.")


def keeps_word(key: str, value: Any) -> bool:
    """Whether a value is what the last word of a setting's name says: a share, or a temperature that divides."""
    if type(value) not in (int, float):
        return True
    word = key.rpartition("_")[2]
    return bool(value <= 1 if word in SHARES else value > 0 or word != "temperature")


def fits(value: Any, expected: Any) -> bool:
    """Whether a TOML value has the annotated type; a whole number passes as a float, a boolean never as a number."""
    origin = typing.get_origin(expected)
    if expected is Any:
        return True
    if origin is typing.Literal:
        return value in typing.get_args(expected)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, option) for option in typing.get_args(expected))
    if origin is list:
        return isinstance(value, list) and all(fits(item, *typing.get_args(expected)) for item in value)
    if expected in (int, float) and isinstance(value, bool):
        return False
    if isinstance(value, int) and abs(value) >= 2**63:
        return False
    if expected is float:
        return isinstance(value, (int, float)) and math.isfinite(value)
    return isinstance(value, expected)


def describe(expected: Any) -> str:
    """A type in words."""
    if expected is Any:  # an argument without a type
        return "any value"
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", type(None): "not set"}
    if typing.get_origin(expected) is typing.Literal:
        options = [f"'{option}'" for option in typing.get_args(expected)]
        return ("one of " if len(options) > 1 else "") + ", ".join(options)
    if typing.get_origin(expected) in (typing.Union, types.UnionType):
        return " or ".join(describe(option) for option in typing.get_args(expected))
    if typing.get_origin(expected) is list:
        return f"a list (each entry {describe(*typing.get_args(expected))})"
    return names.get(expected, str(expected))
