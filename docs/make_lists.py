"""Write what the classes say about themselves into the pages that list the methods.

    python docs/make_lists.py

A list stands between a comment such as `<!-- methods -->` and `<!-- end -->`. Nobody edits it by hand.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import fill

from epass.engine.models import takes_projector
from epass.method import Method
from epass.methods import METHODS, PRETRAINING, WRAPPERS, table_order

DOCS = Path(__file__).parent
EVERY: dict[str, type[Method]] = {**METHODS, **WRAPPERS, **PRETRAINING}
ORDERED = sorted(METHODS, key=table_order)


def idea(cls: type[Method]) -> str:
    """What a method does: what its file says after the paper or, without one, the first line of its class."""
    if cls.paper is None:
        return str(cls.__doc__).partition("\n")[0]
    return " ".join(str(inspect.getdoc(inspect.getmodule(cls))).split("\n\n")[1].split())


def source(cls: type[Method]) -> str:
    """The paper in a few words."""
    return f"{cls.paper.name}, {cls.paper.venue} {cls.paper.year}" if cls.paper else cls.display_name


def views(cls: type[Method]) -> str:
    """`weak, 2 strong` of weak, strong and strong."""
    return ", ".join(name if n == 1 else f"{n} {name}" for name, n in Counter(cls.views.unlabeled).items())


def table(*rows: Iterable[str]) -> str:
    """The first row is the head."""
    head, *others = map(list, rows)
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *others))


def links(names: Iterable[str], folder: str) -> str:
    """The pages of these methods."""
    return ", ".join(f"[{EVERY[name].display_name}]({folder}/{name}.md)" for name in names)


def lists() -> Iterator[tuple[Path, str, str]]:
    """Every page with the comment that begins a list, and what must stand there."""
    heads = ["name", "paper", "views of an unlabeled image", "what it does", "EPASS"]
    rows = [
        [f"[`{name}`]({name}.md)", source(cls), views(cls), idea(cls), "yes" if takes_projector(cls) else ""]
        for name in ORDERED
        for cls in [METHODS[name]]
    ]
    yield DOCS / "methods/README.md", "methods", table(heads, *rows)
    for comment, others in (("wrappers", WRAPPERS), ("pretraining", PRETRAINING)):
        rows = [[f"[`{name}`]({name}.md)", source(EVERY[name]), idea(EVERY[name])] for name in others]
        yield DOCS / "methods/README.md", comment, table(["name", "paper", "what it does"], *rows)

    text = f"[Methods](methods/README.md): {links(ORDERED, 'methods')}; [EPASS](methods/epass.md) in them, "
    text += f"{links(WRAPPERS, 'methods')} around them, {links(PRETRAINING, 'methods')} before them."
    listed = fill(
        text, 126, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    yield DOCS / "README.md", "methods", f"{listed}\n"

    able = [name for name in ORDERED if takes_projector(METHODS[name])]
    front = "docs/methods"
    kinds = {
        "methods": [name for name in ORDERED if name not in able],
        "with a place for [EPASS](docs/methods/epass.md) (`--projectors 3`)": able,
        "around a method (`--wrap`)": WRAPPERS,
        "before a method (`epass pretrain`)": PRETRAINING,
    }
    rows = [[kind, links(names, front)] for kind, names in kinds.items()]
    yield DOCS.parent / "README.md", "methods", table(["", ""], *rows)


def written(text: str, comment: str, listed: str) -> str:
    """A page with the list of today."""
    place = re.compile(rf"(<!-- {re.escape(comment)} -->\n).*?(<!-- end -->)", re.S)
    return place.sub(lambda found: found[1] + listed + found[2], text)


def write_all(texts: Iterable[tuple[Path, str, str]]) -> None:
    """Write every text between its comments."""
    for page, comment, listed in texts:
        page.write_text(written(page.read_text(encoding="utf-8"), comment, listed), encoding="utf-8")


if __name__ == "__main__":
    write_all(lists())
