"""A table of the paper on the screen and in files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ..errors import InputError
from .screen import show_json, show_table

if TYPE_CHECKING:
    from ..reproduce import Sheet


def refuse_file(out: Path | None) -> None:
    """Tables need a folder."""
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"'{out}' is a file; the tables need a folder: choose another one with --out.")


def show(sheet: Sheet, out: Path | None, console: Console, as_json: bool, name: str = "table") -> None:
    """A table on the screen, below what one must know to read it, and in files."""
    if out is not None:
        sheet.write(out, name)
    if as_json:
        show_json(sheet.cells)
        return
    console.print(Text(sheet.title, "bold"))
    for note in sheet.notes:
        console.print(Text(note), soft_wrap=not console.is_terminal)
    console.print()
    show_table(console, sheet.heads, sheet.rows)
    if out is not None:
        files = f"{out / name}.csv, {name}.md, {name}.tex"
        console.print(f"\nThe same as files: {files}", markup=False, soft_wrap=True)
