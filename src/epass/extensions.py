"""Code of your own by name: `package.module:Class` or `file.py:Class`, wherever a recipe or a flag names something.

Loading such a name runs its module. A recipe or a run folder may come from anybody, so what stands in one is refused
until a person says it: `trust` is for the names of `--trust` and for Python, `trust_typed` for whatever else was typed.
Whoever takes flags from a person calls both before the first name is looked up: `trust_typed` with DATA, --method,
--methods, --wrap, --net and the values of --set. A process that is started to train on somebody's behalf is told
`trusted()`. A file is loaded alone, as if its folder were not there; several files make a package, to be installed.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import pkgutil
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from .errors import InputError, unknown
from .files import from_home

T = TypeVar("T")
# networks of other libraries have names of this form, too
NAME = re.compile(r"(?!timm:|hf:)(.+\.py|[^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)")

_trusted: set[str] = set()


class Kind(NamedTuple):
    """What can be named: its word, whether something is one, and how to make one."""

    word: str
    fits: Callable[[Any], bool]
    wanted: str


def takes(found: object, *arguments: object, **named: object) -> bool:
    """Whether something can be called with these arguments, perhaps among others."""
    try:
        inspect.signature(found).bind_partial(*arguments, **named)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # not to be called, or not with these; a class that is not written in Python
        return False
    return True


def is_code(name: object) -> bool:
    """Whether a name is that of code outside of the package."""
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def located(name: str) -> str:
    """The name with the whole path of its file, so that a run can be used from any folder; others as they are."""
    found = NAME.fullmatch(name)
    if found is None or not found[1].endswith(".py"):
        return name
    return f"{os.path.abspath(from_home(found[1]))}:{found[2]}"


def short(name: str) -> str:
    """`Mine` of `folder/file.py:Mine`, for titles and folders; the names of the package are short already."""
    return name.rpartition(":")[2] if is_code(name) else name


def trust(*names: str) -> None:
    """Allow code of your own to be loaded, which runs it: `trust("mine.py:RisingMatch")`."""
    for name in names:
        if not is_code(name):
            raise InputError(f"'{name}' does not name code: write package.module:Class or file.py:Class.")
        _trusted.add(located(name))


def trust_typed(*values: object) -> None:
    """Trust those of the values that a person typed which name code."""
    trust(*names_in(values))


def names_in(values: Iterable[object]) -> Iterator[str]:
    """The names of code among settings, which may be lists of them."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from names_in(value)
        elif isinstance(value, str) and is_code(value):
            yield value


def trusted() -> list[str]:
    """What this process may load."""
    return sorted(_trusted)


def trust_flags(names: Iterable[str] | None = None) -> list[str]:
    """What a person types so that another process may load these names, or all that this one may."""
    return [word for name in (trusted() if names is None else names) for word in ("--trust", name)]


def check_trusted(values: Iterable[object]) -> None:
    """Refuse the names of code among values that somebody wrote into a file, unless all of them are trusted."""
    named = {located(name) for name in names_in(values)}
    if missing := sorted(named - _trusted):
        raise InputError(
            "This run or recipe names code outside of epass, which would be run: if you know what it does, allow it "
            f"with {shlex.join(trust_flags(missing))} (in Python: epass.trust)."
        )


def find(name: object, kind: Kind, table: Mapping[str, T], others: Iterable[str] = ()) -> T:
    """The entry of a table, or what is loaded for the name of code; `others` are further choices, for the message."""
    if isinstance(name, str) and name in table:
        return table[name]
    if isinstance(name, str) and is_code(name):
        return load(name, kind)  # type: ignore[no-any-return]
    raise unknown(kind.word, str(name), [*table, *others])


def load(name: str, kind: Kind) -> Any:
    """What a trusted name stands for."""
    name = located(name)
    check_trusted([name])
    place, _, attribute = name.rpartition(":")
    module = _module(place)
    if not hasattr(module, attribute):
        own = {key: value for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__}
        able = [key for key, value in own.items() if kind.fits(value)]
        if able:
            raise unknown(f"{kind.word} of '{place}',", attribute, able)
        raise InputError(f"'{place}' has no '{attribute}': a {kind.word} is {kind.wanted}.")
    found = getattr(module, attribute)
    if not kind.fits(found):
        raise InputError(f"'{name}' is not a {kind.word}: that is {kind.wanted}.")
    return found


def _module(place: str) -> ModuleType:
    """The module of a dotted name or of a file, run the first time that it is asked for."""
    try:
        return _from_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except InputError:
        raise
    except (Exception, SystemExit) as problem:
        if isinstance(problem, ModuleNotFoundError) and f"{place}.".startswith(f"{problem.name}."):
            raise _missing(f"module '{problem.name}'", *_neighbors(str(problem.name))) from None
        frame = traceback.extract_tb(problem.__traceback__)[-1]
        reason = " ".join(str(problem).split()).rstrip(".") or "no reason"
        where = "" if isinstance(problem, SyntaxError) else f" ({Path(frame.filename).name}, line {frame.lineno})"
        raise InputError(f"'{place}' cannot be loaded: {type(problem).__name__}: {reason}{where}.") from problem


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise _missing(f"file '{path}'", path.name, [other.name for other in path.parent.glob("*.py")])
    # a name of its own, whatever other files are called; an identifier, because compilers make words of it
    name = re.sub(r"\W", "_", path.stem) + "_" + sha256(str(path).encode()).hexdigest()[:8]
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _neighbors(module: str) -> tuple[str, list[str]]:
    """The last word of a module's name, and what there is beside it."""
    package, _, last = module.rpartition(".")
    path = getattr(sys.modules[package], "__path__", []) if package else None  # a module without one has no parts
    return last, [entry.name for entry in pkgutil.iter_modules(path)]


def _missing(what: str, word: str, choices: list[str]) -> InputError:
    near = get_close_matches(word, choices, n=1)
    return InputError(f"There is no {what}: " + (f"did you mean '{near[0]}'?" if near else "look at its name again."))
