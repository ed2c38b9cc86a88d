"""What a model believes about the images of a folder: one file, which the process that learns writes."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import write_atomically

Ids = NDArray[np.int32]
Shares = NDArray[np.float32]
BELIEFS = "beliefs.npz"
LABELS_ONLY, SEMI_SUPERVISED = "labels only", "semi-supervised"
TYPICAL, UNCERTAIN = "typical", "uncertain"  # by what images were suggested


@dataclass(frozen=True, eq=False)
class Beliefs:
    """Guesses about N images after some labels. Classes are ids of the project, -1 for none.

    The guess about an image whose label was learned is that of a model that did not learn it.
    """

    n: int  # the journal's last record that they know
    digest: str  # of the names of the images
    taught: Ids  # (N,) the labels that were learned
    guess: Ids  # (N,) the likeliest class
    second: Ids  # (N,) the next one
    confidence: Shares  # (N,) of the guess, NaN without one
    margin: Shares  # (N,) by which it is likelier than the next one
    disagreement: Shares  # (N,) between projectors, NaN where there is one or none
    suggested: Ids  # (S,) images to label next
    unlike: Ids  # images unlike all others, the farthest first
    suspects: Ids  # images whose label looks wrong, the most suspicious first
    facts: dict[str, Any] = field(default_factory=dict)  # accuracy and what else there is to say, as JSON

    @property
    def how(self) -> str | None:
        """What was learned from; None as long as two classes have no label."""
        said: str | None = self.facts.get("how")
        return said

    @property
    def unreadable(self) -> list[int]:
        """The images that cannot be read, whatever their label; earlier versions did not say which."""
        found: list[int] = self.facts.get("unreadable", [])
        return found

    def write(self, path: Path) -> None:
        """Replace the file at `path`."""
        arrays: dict[str, Any] = {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        facts = json.dumps({"n": self.n, "digest": self.digest, "facts": self.facts}).encode()
        content = io.BytesIO()
        np.savez(content, head=np.frombuffer(facts, dtype=np.uint8), **arrays)
        write_atomically(path, content.getbuffer())


def read_beliefs(path: Path) -> Beliefs | None:
    """What `write` wrote; None if there is nothing, or something else: it is made again in seconds."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        beliefs = Beliefs(**json.loads(arrays.pop("head").tobytes()), **arrays)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None
    sizes = {len(getattr(beliefs, name)) for name in ("guess", "second", "confidence", "margin", "disagreement")}
    return beliefs if sizes == {len(beliefs.taught)} else None


def digest_of(names: Sequence[str]) -> str:
    """Of the images of a folder, whose positions are their ids."""
    return hashlib.sha256("\0".join(names).encode(errors="surrogatepass")).hexdigest()
