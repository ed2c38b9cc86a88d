"""The application's functions as forms of a page, made of their signatures as commands are, and what comes back."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from os import PathLike
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..app.calibrate import calibrate
from ..app.compare import compare
from ..app.evaluate import evaluate
from ..app.events import Work
from ..app.export import export
from ..app.flags import flag_of
from ..app.predict import predict
from ..app.report import report
from ..app.train import pretrain, train
from ..errors import InputError, one_of, shortened, unknown
from ..extensions import is_code

FUNCTIONS: dict[str, Callable[..., Work]] = {
    function.__name__: function for function in (train, compare, pretrain, calibrate, evaluate, predict, export, report)
}
# said to a terminal alone: jobs are resumed by their button, replace nothing, and run no code that a page has named
NOT_ASKED = ("resume", "force", "trust")
YES_OR_NO = {"yes": True, "no": False}
Kind = Literal["text", "int", "bool", "choice", "list"]


@dataclass(frozen=True)
class Field:
    """One argument of a function, as something to fill in."""

    name: str
    flag: str  # on a command line; nothing where it is said by position
    help: str
    panel: str
    kind: Kind
    choices: tuple[str, ...] | None  # all that can be said or, of a text, some of it
    default: Any
    usual: str  # the default in words, where the function decides
    least: int | None
    runs: bool  # whether runs are named
    needed: bool
    number: bool = False  # whether the text is one


def forms(runs: Sequence[str] = ()) -> list[dict[str, Any]]:
    """What can be done, each with its fields; `runs` are those that there are to choose from."""
    return [
        {
            "do": do,
            "title": do.capitalize(),
            "help": inspect.getdoc(function) or "",
            "fields": [shown(field, runs) for field in fields_of(do)],
        }
        for do, function in FUNCTIONS.items()
    ]


def shown(field: Field, runs: Sequence[str]) -> dict[str, Any]:
    """A field in JSON's own types."""
    choices = runs if field.runs else field.choices
    listed = None if choices is None else list(choices)
    return {name: value for name, value in vars(field).items() if name != "number"} | {"choices": listed}


@cache
def fields_of(do: str) -> tuple[Field, ...]:
    """The arguments that are asked for: all but those that the studio decides, as every path on this machine."""
    function = FUNCTIONS[do]
    hints = get_type_hints(function, include_extras=True)
    known = inspect.signature(function).parameters.values()
    found = (field_of(parameter, hints[parameter.name]) for parameter in known)
    return tuple(field for field in found if field is not None)


def field_of(parameter: inspect.Parameter, hint: Any) -> Field | None:
    """An argument as a field, if it is one to ask for."""
    flag = flag_of(hint)
    if flag is None or parameter.name in NOT_ASKED:
        return None
    types = alternatives(get_args(hint)[0])
    runs, by_name = flag.metavar.startswith(("RUN", "MODEL")), parameter.kind is parameter.KEYWORD_ONLY
    if not runs and (not by_name or any(is_a(kind, PathLike) for kind in types)):
        return None
    needed = parameter.default is parameter.empty
    kind, choices = kind_of(types, runs)
    if flag.names is not None:
        kind, choices = "text" if flag.others else "choice", tuple(flag.names())
    return Field(
        name=parameter.name,
        flag=flag.called(parameter.name) if by_name else "",
        help=flag.help,
        panel=flag.panel,
        kind=kind,
        choices=choices,
        default=None if needed else list(parameter.default) if kind == "list" else parameter.default,
        usual=flag.default,
        least=flag.least,
        runs=runs,
        needed=needed,
        number=float in types,
    )


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The types of a union, or the only one."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def is_a(kind: Any, wanted: type) -> bool:
    """Whether a type is of this kind, whatever it holds."""
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, wanted)


def kind_of(types: Sequence[Any], runs: bool) -> tuple[Kind, tuple[str, ...] | None]:
    """What a page shows for these types, and what there is to choose from."""
    several = any(is_a(kind, Sequence) and kind is not str for kind in types)
    if runs or several:
        return ("list" if several else "choice"), None
    if bool in types:
        return ("choice", tuple(YES_OR_NO)) if NoneType in types else ("bool", None)
    named = [kind for kind in types if get_origin(kind) is Literal]
    if named:
        return "choice", get_args(named[0])
    return ("int" if int in types else "text"), None


def arguments_of(do: Any, said: Any, find: Callable[[str], Path]) -> dict[str, Any]:
    """What was said, as arguments of the function; `find` knows the folder of a run by its name."""
    one_of("job", do, FUNCTIONS)
    if not isinstance(said, dict):
        raise InputError("What a job is told is one object, with a value for each field.")
    fields = {field.name: field for field in fields_of(do)}
    for name in said:
        if name not in fields:
            raise unknown("field", str(name), fields)
    given = {name: value for name, value in said.items() if value not in (None, "", [])}
    for field in fields.values():
        if field.needed and field.name not in given:
            raise InputError(f"Say which {'runs' if field.kind == 'list' else 'run'}: choose from the list.")
    return {name: value_of(fields[name], value, find) for name, value in given.items()}


def value_of(field: Field, value: Any, find: Callable[[str], Path]) -> Any:
    """The value of one argument; what cannot be one is refused in the words of the command line."""
    name = field.flag or field.name
    if field.kind == "bool":
        if not isinstance(value, bool):
            raise InputError(f"{name} is on or off, not '{shortened(str(value))}'.")
        return value
    if field.kind == "int":
        return whole_number(name, value, field.least)
    texts = [value] if isinstance(value, str) else value
    if field.kind == "list" and isinstance(value, str):
        texts = [line.strip() for line in value.splitlines() if line.strip()]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"{name} is a text, not '{shortened(str(value))}'.")
    if field.runs:
        folders = [find(text) for text in texts]
        return folders if field.kind == "list" else folders[0]
    refuse_code(name, texts)
    if field.kind == "list":
        return texts
    if field.kind == "choice":
        one_of(name, texts[0], field.choices or ())
        return YES_OR_NO[texts[0]] if field.choices == tuple(YES_OR_NO) else texts[0]
    if field.number:
        try:
            return float(texts[0])
        except ValueError:
            raise InputError(f"{name} is a number, not '{shortened(texts[0])}'.") from None
    return texts[0]


def whole_number(name: str, value: Any, least: int | None) -> int:
    """A whole number, or a text that is one."""
    text = str(value)
    if isinstance(value, bool) or not re.fullmatch(r"\s*-?[0-9]{1,15}\s*", text):
        raise InputError(f"{name} is a whole number, not '{shortened(text)}'.")
    if least is not None and int(text) < least:
        raise InputError(f"{name} is at least {least}, not {int(text)}.")
    return int(text)


def refuse_code(name: str, texts: Sequence[str]) -> None:
    """On a command line, who types the name of code wants it to be run; here, anybody may who has the address.

    A name of code may stand anywhere in a text, in a list of a setting for one.
    """
    for text in texts:
        for word in re.split(r"[\s,+=\[\]\"']+", text):
            if is_code(word):
                raise InputError(
                    f"{name} names code of your own ('{shortened(word)}'), which only a terminal may run: train "
                    "with it there, and the run appears here."
                )


def command_of(do: str, arguments: Mapping[str, Any]) -> str:
    """The line to type for the same in a terminal."""
    hints = get_type_hints(FUNCTIONS[do], include_extras=True)
    parameters = inspect.signature(FUNCTIONS[do]).parameters
    by_position, by_name = [do], list[str]()
    for name, value in arguments.items():
        flag = flag_of(hints[name])
        assert flag is not None
        called = flag.called(name)
        if isinstance(value, bool):
            by_name.append(called if value else f"--no-{called.removeprefix('--')}")
            continue
        for one in value if isinstance(value, list) else [value]:
            if parameters[name].kind is inspect.Parameter.KEYWORD_ONLY:
                by_name += [called, str(one)]
            else:
                by_position.append(str(one))
    return shlex.join(["epass", *by_position, *by_name])
