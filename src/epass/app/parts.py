"""What a prediction has answered, on disk: one that was stopped goes on there, and several processes meet there.

The parts lie in a hidden folder beside the table, and are removed once it is written. The name of a part begins with a
digest of everything that the answers in it depend on, so that no other prediction ever takes it for its own.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import time
import warnings
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from ..errors import InputError
from ..extensions import trusted
from ..files import from_home, write_atomically
from ..runs.exported import KNOWN, ONNX
from ..runs.folder import EMBEDDINGS, MODEL, WEIGHTS
from ..untrusted import parse_json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..data.read.listing import Place

SECONDS = 5.0  # of work in a part: a process that is killed loses no more, or one chunk
PATIENCE = 60.0  # seconds until a file of one machine is seen by another: network file systems remember what was there
FORMAT = 1  # of parts; to be raised when they hold something else
LIBRARIES = ("epass", "numpy", "onnxruntime", "pillow", "timm", "torch", "transformers")  # decode, or compute
_PART = re.compile(r"\.?([0-9a-f]{32})-\d{8}-(\d+)\.npz(\.\d+\.part)?")  # with an ending, one that was never finished


class Said(NamedTuple):
    """What a model says about the images of one chunk."""

    number: int  # of the chunk
    positions: NDArray[np.int64]  # of the images among all, (n,)
    logits: NDArray[np.float32]  # (n, C)
    novelty: NDArray[np.float64] | None  # (n,), where the model can tell
    unreadable: dict[int, str]  # position and reason

    @property
    def images(self) -> int:
        return len(self.positions) + len(self.unreadable)


class Job(NamedTuple):
    """What the answers of a process depend on."""

    content: str  # a digest of what all processes must have in common
    view: str  # and of what tells a changed file, which copies on several machines have of their own


def by_device(digest: str) -> str:
    """The same digest for images that a device decodes, to other pixels."""
    mark = f"device {_version('torchvision')}".encode()
    return hashlib.blake2b(bytes.fromhex(digest) + mark, digest_size=16).hexdigest()


def digest_model(model: Path) -> bytes:
    """Changes with what a model answers. To be asked for before the model is loaded: what is loaded is no older."""
    content = hashlib.blake2b()
    for path in [*_model_files(model), *_code_files()]:
        with path.open("rb") as file:
            content.update(hashlib.file_digest(file, "blake2b").digest())
    return content.digest()


def describe_job(model: bytes, way: str, names: Iterable[str], files: Iterable[Place]) -> Job:
    """The digests for the answers of a model, computed in some way, to the images with these names in these files.

    To be asked for before the images are read, for the same reason.
    """
    from ..data.read.decode import DECODER

    facts = [f"{FORMAT} {DECODER}", way, *(f"{library} {_version(library)}" for library in LIBRARIES)]
    content = hashlib.blake2b("\n".join(facts).encode() + model, digest_size=16)
    view, seen = hashlib.blake2b(digest_size=16), dict[Path, tuple[int, str]]()
    for file in files:
        place = file if isinstance(file, Path) else file.archive
        if place not in seen:
            seen[place] = _marks(place)
        size, changed = seen[place]
        content.update(f"{size}\n".encode())
        view.update(changed.encode())
    for name in names:
        content.update(f"{name}\0".encode(errors="surrogateescape"))
    view.update(content.digest())
    return Job(content.hexdigest(), view.hexdigest())


def _marks(path: Path) -> tuple[int, str]:
    from ..data.read.listing import change_of

    try:
        facts = path.stat()
    except OSError:  # the one who reads it says what is wrong
        return -1, ""
    return facts.st_size, f"{change_of(facts)}\n"


def _model_files(model: Path) -> list[Path]:
    """The files of a model that decide what it answers."""
    place = from_home(model)
    known = [place] if place.is_file() else [place / name for name in (MODEL, WEIGHTS, ONNX, EMBEDDINGS, KNOWN)]
    return [path for path in known if path.is_file()]


def _code_files() -> Iterator[Path]:
    """The files of somebody's own code that a model may consist of."""
    for place in sorted({name.rpartition(":")[0] for name in trusted()}):
        file: str | None = place
        if not place.endswith(".py"):
            with suppress(Exception):  # whoever loads it says what is wrong
                file = getattr(find_spec(place), "origin", None)
        if file is not None and Path(file).is_file():
            yield Path(file)


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return ""


class Parts:
    """The parts of one prediction.

    Args:
        table: What is to be written in the end.
        job: What the answers depend on.
        classes: How many there are.
        needed: Whether other processes wait for the parts; otherwise they only save time, some day.
    """

    def __init__(self, table: Path, job: Job, classes: int, needed: bool = False) -> None:
        self.folder = table.with_name(f".{table.name}.parts")
        self.job, self.classes, self.needed = job, classes, needed
        self.views = {job.view}  # of all processes
        self.before = {path.name for path in self._files()}  # we came
        self.known: set[str] = set()  # parts that were read
        self.damaged: list[str] = []
        self.waiting: list[Said] = []
        self.refused = False  # by the disk
        self.written = time.perf_counter()

    def meet(self) -> None:
        """See that all processes are asked the same, and that they see what the first one writes."""
        import torch

        from ..machine.distributed import bytes_of_first_rank, gather_rows, on_first_rank, rank
        from ..machine.launch import all_or_none

        content = bytes_of_first_rank(self.job.content.encode()).decode()
        token = f"{bytes_of_first_rank(uuid4().hex.encode()).decode()}-{0:08d}-0.npz"  # a part of nothing
        try:
            on_first_rank(lambda: self._write(token, b""))
            with all_or_none():
                if content != self.job.content:
                    raise InputError(
                        f"Process {rank()} finds other images or another model than the first one does: give all "
                        "machines the same ones, under the same names."
                    )
                if not appears(self.folder / token):
                    raise InputError(
                        f"Process {rank()} does not see what the first one writes to '{self.folder}': choose a table "
                        "in a folder that all machines share (--out)."
                    )
        finally:
            if rank() == 0:
                with suppress(OSError):  # the first error is the one to tell
                    (self.folder / token).unlink()
        own = torch.frombuffer(bytearray.fromhex(self.job.view), dtype=torch.uint8)
        self.views = {view.numpy().tobytes().hex() for view in gather_rows(own[None])}

    @property
    def stale(self) -> bool:
        """Whether there are parts of another prediction."""
        found = (_PART.fullmatch(name) for name in self.before)
        return any(part[1] not in self.views and int(part[2]) and not part[3] for part in found if part)

    @property
    def kept(self) -> int:
        """The images whose answers are on disk."""
        return sum(int(part[2]) for part in self._of(self.views))

    @property
    def kept_by_device(self) -> int:
        """The same of answers to images that a device has decoded."""
        return sum(int(part[2]) for part in self._of({*map(by_device, self.views)}))

    def turn_to_device(self) -> None:
        """From now on a device decodes the images."""
        self.job, self.views = Job(*map(by_device, self.job)), {*map(by_device, self.views)}

    def found(self) -> Iterator[Said]:
        """What is in the parts that were not read before."""
        for part in sorted(self._of(self.views), key=lambda part: part[0]):
            if part[0] not in self.known:
                self.known.add(part[0])
                yield from self._read(part[0])

    def keep(self, said: Said) -> None:
        """Add what was said about a chunk; it is written after some seconds of work."""
        if not self.refused:
            self.waiting.append(said)
        if time.perf_counter() - self.written > SECONDS:
            self.write()

    def write(self) -> None:
        """Write what waits."""
        import numpy as np

        if self.waiting:
            arrays: dict[str, Any] = {"chunks": np.array([said.number for said in self.waiting])}
            for said in self.waiting:
                arrays |= {f"positions-{said.number}": said.positions, f"logits-{said.number}": said.logits}
                arrays |= {} if said.novelty is None else {f"novelty-{said.number}": said.novelty}
                reasons = json.dumps(list(said.unreadable.items())).encode()
                arrays[f"unreadable-{said.number}"] = np.frombuffer(reasons, np.uint8)
            content = io.BytesIO()
            np.savez(content, **arrays)
            first, images = self.waiting[0].number, sum(said.images for said in self.waiting)
            name = f"{self.job.view}-{first:08d}-{images}.npz"
            try:
                self._write(name, content.getvalue())
            except OSError as error:
                if self.needed:
                    raise
                self.refused = True
                warnings.warn(
                    f"Answers cannot be kept in '{self.folder}' ({error.strerror}): a prediction that is stopped will "
                    "start over.",
                    stacklevel=2,
                )
            self.known.add(name)
        self.waiting, self.written = [], time.perf_counter()

    def remove(self) -> None:
        """Remove the parts of this prediction, and those that somebody left here before."""
        for path in self._files():
            part = _PART.fullmatch(path.name)
            if part and (part[1] in self.views or path.name in self.before):
                path.unlink(missing_ok=True)
        with suppress(OSError):  # somebody else's are in it, or there is none
            self.folder.rmdir()

    def _files(self) -> list[Path]:
        try:
            return list(self.folder.iterdir())
        except OSError:  # there is no folder, or none that we may look into
            return []

    def _of(self, views: Container[str]) -> Iterator[re.Match[str]]:
        for path in self._files():
            part = _PART.fullmatch(path.name)
            if part and part[1] in views and not part[3]:
                yield part

    def _read(self, name: str) -> Sequence[Said]:
        """The content of a part; nothing if it is damaged."""
        import numpy as np

        try:
            with np.load(io.BytesIO((self.folder / name).read_bytes()), allow_pickle=False) as arrays:
                said = []
                for number in arrays["chunks"].tolist():
                    reasons = parse_json(arrays[f"unreadable-{number}"].tobytes())
                    novelty = arrays.get(f"novelty-{number}")
                    positions, logits = arrays[f"positions-{number}"], arrays[f"logits-{number}"]
                    said.append(Said(number, positions, logits, novelty, dict(reasons)))
                    if logits.shape != (len(positions), self.classes):
                        raise ValueError("of another kind")
        except Exception:  # NumPy raises nearly anything on bytes that nobody wrote
            self.damaged.append(name)
            return ()
        return said

    def _write(self, name: str, content: bytes) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)  # the images may be nobody else's business
        write_atomically(self.folder / name, content)


def appears(path: Path) -> bool:
    """Whether a file that another process wrote is there, after a while."""
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        if time.monotonic() > deadline:
            return False
        with suppress(OSError):
            list(path.parent.iterdir())  # what makes a network file system look again
        time.sleep(0.1)
    return True
