"""The process of a job: it does what was asked for, and writes every event as a line of JSON."""

from __future__ import annotations

import inspect
import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from ..app.events import Event, Intention, Plan, Progress, Result
from ..errors import InputError, RunError, out_of_memory
from ..files import as_text
from ..machine.cpu import prepare_cpu
from ..machine.signals import stop_signals
from .forms import FUNCTIONS, command_of

BEAT = 0.5  # seconds between two signs of life
POLITE = 5  # how far the page goes before a run
Tell = Callable[[Mapping[str, Any]], None]


def as_json(event: Event) -> dict[str, Any]:
    """An event in JSON's own types, with its kind; what kind of caution it is, is its word."""
    kind = next(kind for kind in get_args(Event) if isinstance(event, kind))
    values = {field.name: plain(getattr(event, field.name)) for field in fields(event)}
    if "kind" in values:
        values["word"] = values.pop("kind")
    return {"kind": kind.__name__.lower(), **values}


def plain(value: Any) -> Any:
    """A value in JSON's own types: paths are text, numbers of NumPy are numbers, and NaN is nothing."""
    from ..runs.folder import to_json

    if isinstance(value, Path):
        return as_text(value)
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return to_json(value)


def carry_out(do: str, arguments: Mapping[str, Any], tell: Tell, *, only_plan: bool) -> Result | None:
    """Do what was asked for and tell every event; of a plan, what comes before anything is done."""
    function = FUNCTIONS[do]
    with ExitStack() as held:
        stop, command = held.enter_context(stop_signals()), command_of(do, arguments)
        offered = {"stop": stop, "reading": Reading(tell), "command": command}
        wanted = inspect.signature(function).parameters
        work = function(**arguments, **{name: value for name, value in offered.items() if name in wanted})
        events = held.enter_context(closing(iter(work)))  # type: ignore[type-var]
        for event in events:
            tell(as_json(event))
            if isinstance(event, Result):
                return event
            if only_plan and isinstance(event, Plan | Intention):
                return None
    return None


class Reading:
    """How many images are decoded, told now and then."""

    def __init__(self, tell: Tell) -> None:
        self.tell, self.told = tell, time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() - self.told > BEAT:
            self.told = time.monotonic()
            self.tell(as_json(Progress(done, total, what="image")))


def ending(request: Mapping[str, Any], tell: Tell) -> tuple[str, str]:
    """Do it; how it ended, and the sentence that a person needs to know."""
    try:
        result = carry_out(request["do"], request["arguments"], tell, only_plan=request["only_plan"])
    except KeyboardInterrupt as stopped:
        return "stopped", str(stopped) or "nothing more is done."
    except InputError as problem:
        return "refused", str(problem)
    except RunError as problem:
        return "failed", str(problem)
    except OSError as problem:  # a full disk, a folder that may not be written
        if problem.filename is None or problem.strerror is None:
            raise
        return "failed", f"{problem.strerror}: '{problem.filename}'."
    except (MemoryError, RuntimeError) as problem:
        if not out_of_memory(problem):
            raise
        return (
            "failed",
            "There is not enough memory for this: end other programs, or ask for smaller or fewer images.",
        )
    return "finished", "" if result is None else result.complaint


def main() -> None:
    """Read from standard input what to do; the lines go to the open file whose number is the argument."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the studio in the background ignores it
    number = int(sys.argv[1])
    os.set_inheritable(number, False)  # the file is locked for as long as somebody has it open

    def tell(line: Mapping[str, Any]) -> None:
        data = json.dumps(line, allow_nan=False).encode() + b"\n"
        while data:
            data = data[os.write(number, data) :]

    def caution(message: Warning | str, *_: Any, **__: Any) -> None:
        tell({"kind": "caution", "sentence": str(message), "word": "Warning"})

    tell({"kind": "start", "pid": os.getpid(), "at": time.time()})
    try:
        request = json.load(sys.stdin)
        os.nice(POLITE)
        prepare_cpu()
        with warnings.catch_warnings():
            warnings.showwarning = caution
            state, sentence = ending(request, tell)
    except KeyboardInterrupt:
        state, sentence = "stopped", "nothing was done yet."
    except Exception as problem:  # a mistake of ours: the page must not wait for ever
        traceback.print_exc()
        reason = " ".join(str(problem).split())
        state, sentence = "failed", f"Something went wrong inside of epass ({type(problem).__name__}: {reason})."
    tell({"kind": "end", "state": state, "sentence": sentence, "at": time.time()})


if __name__ == "__main__":
    main()
