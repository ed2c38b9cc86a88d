"""Download a public data set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from ..errors import unknown
from ..files import from_home
from .events import Event, Notice, Result, Table, work
from .flags import Fetching, Flag
from .words import file_size


@work
def download(
    name: Annotated[str | None, Flag("The data set. Without it, list what there is.", metavar="NAME")] = None,
    *,
    to: Annotated[str | Path, Flag("Make the folder NAME in here.", metavar="FOLDER")] = "data",
    fetching: Fetching | None = None,
) -> Iterator[Event]:
    """Download a public data set from its owner: resumed where it broke off, checked, unpacked."""
    from ..data.read.download import SOURCES, contents, is_filled
    from ..data.read.download import download as download_from_owner

    if name is None:
        rows = [
            [key, s.summary, "unknown" if s.size is None else file_size(s.size), s.license]
            for key, s in SOURCES.items()
        ]
        yield Table(("data set", "images", "download", "license"), rows)
        facts = {
            key: {"summary": s.summary, "bytes": s.size, "license": s.license, "owner": s.page}
            for key, s in SOURCES.items()
        }
        yield Notice("Get one: epass download NAME")
        yield Result(values=facts)
        return
    if name not in SOURCES:
        raise unknown("data set to download", name, SOURCES)
    folder, source = from_home(to), SOURCES[name]
    there = is_filled(folder / name)
    files = contents(download_from_owner(name, folder, fetching))
    yield Result(
        f"{name} was there already: remove '{folder / name}' to download it again" if there else name,
        facts={"files": str(files), "license": source.license, "owner": source.page},
        values={"data": name, "files": str(files), "license": source.license, "owner": source.page, "was_there": there},
        files={"data": files},
    )
