"""What people read: styles on a terminal, plain text anywhere else."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from ..machine.launch import is_first_process
from ..untrusted import printable

LONGEST_SENTENCE = 2000  # letters of a complaint, which may quote a file


def screen() -> Console:
    """Standard output. Not a terminal: no escape codes, whatever the environment asks for, and room for long lines."""
    if not is_first_process():
        return Console(quiet=True, force_terminal=False)
    terminal = sys.stdout is not None and sys.stdout.isatty()  # None: whoever started this has closed it
    return Console(force_terminal=terminal, highlight=False, width=None if terminal else 1000)


def plain(text: str, style: str = "") -> Text:
    """Text as a terminal may get it: whatever names it holds, it obeys none of them."""
    return Text(printable(text), style)


def complain(sentence: str, kind: str = "Error") -> None:
    """One plain line on standard error."""
    line = printable(" ".join(sentence.splitlines()))
    shown = line if len(line) <= LONGEST_SENTENCE else f"{line[:LONGEST_SENTENCE]} ..."
    if sys.stderr is not None:  # else it would be printed among what is asked for
        print(f"{kind}: {shown}", file=sys.stderr)


def show_facts(console: Console, title: str, facts: Mapping[str, str]) -> None:
    """A heading and aligned lines."""
    width = max(map(len, facts))
    console.print(plain(title, "bold"))
    for name, value in facts.items():
        console.print(Text.assemble(plain(f"  {name:<{width}}  ", "cyan"), plain(value)), soft_wrap=True)
    console.print()


def show_table(
    console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], *, several_lines: bool = False
) -> None:
    """Columns without lines around them; cells have `several_lines` only where no stranger wrote them."""
    text = Text if several_lines else plain
    table = Table(
        *map(Column, map(plain, columns)), box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold"
    )
    for row in rows:
        first, *others = row
        table.add_row(text(first, "cyan"), *map(text, others))
    console.print(table)


def show_json(value: Any) -> None:
    """One JSON value and nothing else; what a terminal would obey is written as JSON writes control characters."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    print("".join(c if c == "\n" or printable(c) == c else f"\\u{ord(c):04x}" for c in text))


def show_line(value: Any) -> None:
    """One JSON value in one line, which whoever listens gets at once."""
    print(json.dumps(value, allow_nan=False), flush=True)
