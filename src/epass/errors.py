"""What a user did wrong, said in one sentence that names the cause and the nearest valid choice."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST_NAME, MOST_CHOICES = 80, 100  # in a message: names and lists in a file can have any length
MOST_COMPARED = 1000  # choices among which a near miss is looked for
NEAR = 0.65  # share of letters that a near miss has in common


class InputError(ValueError):
    """A mistake of the person at the keyboard: shown without a traceback, exit code 2."""


class ContractError(InputError, AssertionError):
    """A method of one's own that is not what a method is: one sentence at the keyboard, a failed check in a test."""


class RunError(RuntimeError):
    """A run that cannot go on, and what is left of it: shown without a traceback, exit code 1."""


class PeerError(RuntimeError):
    """Another process of this run failed and says why: this one ends quietly."""


def unknown(kind: str, name: str, choices: Iterable[str]) -> InputError:
    """The error for a `name` that is not among `choices`, with the near miss or, failing that, all of them."""
    known = sorted(choices)
    name = shortened(name)
    compared = [shortened(choice) for choice in known[:MOST_COMPARED]]
    few, near = compared[:MOST_CHOICES], nearest(name, compared)
    more = f" and {len(known) - len(few):,} more" if len(known) > len(few) else ""
    hint = f"did you mean '{near}'?" if near else f"choose one of: {', '.join(few)}{more}."
    return InputError(f"Unknown {kind} '{name}': {hint}")


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """The choice that a name is a misspelling of, if there is one; 'dogs' is none of 'digits'."""
    return next(iter(get_close_matches(name, list(choices), n=1, cutoff=NEAR)), None)


def shortened(name: str) -> str:
    """A name as a message quotes it."""
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."


def one_of(kind: str, name: str, choices: Iterable[str]) -> None:
    """Refuse a `name` that is not among `choices`."""
    choices = tuple(choices)
    if name not in choices:
        raise unknown(kind, name, choices)


def out_of_memory(problem: BaseException) -> bool:
    """Whether a device, or the machine itself, has too little memory. Torch has an error for GPUs alone."""
    known = isinstance(problem, MemoryError) or type(problem).__name__ == "OutOfMemoryError"  # torch may not be there
    return known or (isinstance(problem, RuntimeError) and "DefaultCPUAllocator" in str(problem))
