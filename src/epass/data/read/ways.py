"""Which image of a folder is meant by a path that people or other systems wrote.

Ways are compared as texts with the images that are known: nothing on the disk is followed, and nothing outside of the
folder can be named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from posixpath import basename, join, normpath, splitext
from unicodedata import normalize


class Ways:
    """The images of a folder, by every way to them that leaves no doubt."""

    def __init__(self, home: Path, known: Collection[str], here: Path | None = None) -> None:
        """The `known` are the paths of images inside of the folder `home`; ways may also begin `here`."""
        self.known = known
        whole = home.absolute().as_posix()
        self._starts = [whole] if here is None else [here.absolute().as_posix(), whole]
        ends = [text.split("/") for text in (normpath(whole), home.resolve().as_posix())]
        self._prefixes = dict.fromkeys("/".join([*parts[at:], ""]) for parts in ends for at in range(len(parts)))

    def find(self, way: str) -> str:
        """What the image is called that a way leads to; the way itself if that is none of the images, or several."""
        if way in self.known:
            return way
        for shown in dict.fromkeys((way, way.replace("\\", "/"))):
            inside = list(dict.fromkeys(self._inside(shown)))
            if (found := next((one for one in inside if one in self.known), None)) is not None:
                return found
            for among, key in ((self._composed, _composed), (self._small, _small)):
                if (same := next(filter(None, (among.get(key(one)) for one in inside)), ())) and len(same) == 1:
                    return same[0]
        return way

    def near(self, way: str) -> list[str]:
        """The images with the same name in another folder or, failing that, with another ending."""
        last = _small(basename(way.replace("\\", "/")))
        return self._last.get(last) or self._stem.get(splitext(last)[0], [])

    def _inside(self, shown: str) -> Iterator[str]:
        """What a way may be from the folder on."""
        plain = normpath(shown)
        yield plain
        for whole in (plain, *(normpath(join(start, plain)) for start in self._starts)):
            yield from (whole.removeprefix(prefix) for prefix in self._prefixes if whole.startswith(prefix))

    # Macs write an accent as a letter of its own, and neither they nor Windows tell capital letters from small ones.

    @cached_property
    def _composed(self) -> Mapping[str, list[str]]:
        return self._by(_composed)

    @cached_property
    def _small(self) -> Mapping[str, list[str]]:
        return self._by(_small)

    @cached_property
    def _last(self) -> Mapping[str, list[str]]:
        return self._by(lambda name: _small(basename(name)))

    @cached_property
    def _stem(self) -> Mapping[str, list[str]]:
        return self._by(lambda name: splitext(_small(basename(name)))[0])

    def _by(self, key: Callable[[str], str]) -> Mapping[str, list[str]]:
        found = defaultdict[str, list[str]](list)
        for name in self.known:
            found[key(name)].append(name)
        return found


def _composed(name: str) -> str:
    return normalize("NFC", name)


def _small(name: str) -> str:
    return _composed(name).casefold()
