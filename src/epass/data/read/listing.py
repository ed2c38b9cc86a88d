"""Which images a data set consists of, wherever they lie, and the way from there to pixels."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import torch
from torch import Tensor

from ...augment import reflect_padding
from ...errors import InputError, unknown
from ..dataset import Dataset, channel_statistics, count_levels, statistics_of
from ..images import Images, ImageSource
from ..stream.disk import Files, Mapped, Streaming, is_streamed, stream
from .cache import Entry, load, store
from .decode import Packed, ProgressCallback, decode_all
from .resize import check_image_size

_DIGITS = 18  # longer names are no numbers of classes
_LEVELS = (3, 256 * 8)  # counts of 256 levels in three channels, as bytes
_ROWS = 512  # images at a time, where they are not all in memory
Notice = Callable[[str], None]  # takes a sentence for the person who waits


@dataclass(frozen=True, eq=False)
class Member:
    """A file or folder inside an archive, which is walked like a folder on disk."""

    archive: Path
    path: PurePosixPath  # inside of the archive
    children: dict[str, Member] | None = None  # of a folder

    def __str__(self) -> str:
        return str(self.archive / self.path)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def suffix(self) -> str:
        return self.path.suffix

    def is_dir(self) -> bool:
        return self.children is not None

    def iterdir(self) -> Iterable[Member]:
        return (self.children or {}).values()


Place = Path | Member
Read = Callable[[Sequence[Place]], Iterable[tuple[int, Path | Packed]]]  # images with their positions, in any order


def from_disk(files: Sequence[Place]) -> Iterable[tuple[int, Path | Packed]]:
    """Files that need no opening of anything around them."""
    return ((position, file) for position, file in enumerate(files) if isinstance(file, Path))


@dataclass(frozen=True)
class Listing:
    """The images of a data set, their labels, and how to get at them."""

    name: str
    root: Path  # the folder, table or archive that was opened
    classes: list[str]
    train: list[Place]
    labels: list[int]  # of the training images
    test: list[Place] = field(default_factory=list)
    test_labels: list[int] = field(default_factory=list)
    read: Read = from_disk


def nothing_at(path: str | Path) -> InputError:
    """The error for a path at which there is nothing, with the nearest folder that is there."""
    nearest = next(parent for parent in (Path(path).expanduser() / "_").absolute().parents if parent.is_dir())
    return InputError(f"There is no file or folder '{path}': the nearest folder that exists is '{nearest}'.")


def number_classes(names: Iterable[str]) -> list[str]:
    """The classes in their order: alphabetical, or by size if they are whole numbers."""
    distinct = sorted(set(names))
    numbers = all(name.isdecimal() and len(name) <= _DIGITS for name in distinct)
    return sorted(distinct, key=int) if numbers else distinct


def number(labels: Iterable[str], classes: Sequence[str], kind: str) -> list[int]:
    """The position of each label among the classes, -1 for an empty one."""
    positions = {"": -1} | {name: position for position, name in enumerate(classes)}
    labels = list(labels)
    for label in labels:
        if label not in positions:
            raise unknown(kind, label, classes)
    return [positions[label] for label in labels]


def check_number(classes: Sequence[str], where: str) -> None:
    """A classifier needs something to choose from."""
    if not classes:
        raise InputError(f"{where} holds no class: label some images of two or more classes.")
    if len(classes) == 1:
        raise InputError(f"{where} holds the single class '{classes[0]}': add a second one.")


def read_listing(
    listing: Listing,
    image_size: int | None,
    progress: ProgressCallback | None,
    notice: Notice | None,
    started: float,
    streaming: Streaming = False,
) -> Dataset:
    """The data set of a listing, from the cache if nothing changed since it was last read."""
    size = check_image_size(32 if image_size is None else image_size)
    files, split = listing.train + listing.test, len(listing.train)
    marks = [_mark(file, listing.root) for file in files]
    entry = Entry.of(listing.root, marks, (len(files), 3, size, size))
    streams = _streams(listing, entry, streaming)
    pixels = load(entry)
    if pixels is not None and notice is not None:
        notice(f"Read {len(files):,} images from the cache in {time.perf_counter() - started:.1f} s.")
    names, statistics = [name_inside(file, listing.root) for file in files], None
    train: ImageSource
    test: ImageSource
    if streams:
        on_disk = [file for file in files if isinstance(file, Path)]
        rows = Files(on_disk, size) if pixels is None else Mapped(pixels)
        train, test = stream(rows, listing.labels, listing.test_labels)
        levels = Entry.of(listing.root / f"levels-{size}", marks[:split], _LEVELS)
        statistics = statistics_of(_count(train, levels, progress))
    else:
        if pixels is None:
            pixels = decode_all(listing.read(files), len(files), size, progress)
            store(entry, pixels)
        train = Images(pixels[:split], torch.tensor(listing.labels))
        test = Images(pixels[split:], torch.tensor(listing.test_labels))
    return dataset_from_listing(
        listing, train, test if listing.test else None, names[:split], names[split:], statistics
    )


def _streams(listing: Listing, entry: Entry, streaming: Streaming) -> bool:
    """Whether the images are to stay on disk, where they can be read in any order."""
    if listing.read is not from_disk:
        if streaming is True:
            raise InputError(
                f"'{listing.root}' is an archive, which is read from its beginning: unpack it to stream it."
            )
        return False
    return is_streamed(entry.shape, streaming)


def _count(images: ImageSource, entry: Entry, progress: ProgressCallback | None) -> Tensor:
    """How often each level occurs in each channel, from the cache if the files have not changed."""
    known = load(entry)
    if known is not None:
        return known.view(torch.int64)
    counts, done = torch.zeros(3, 256, dtype=torch.int64), 0
    for chunk in images.chunks(_ROWS):
        counts += count_levels(chunk)
        done += len(chunk)
        if progress is not None:
            progress(done, len(images))
    store(entry, counts.view(torch.uint8))
    return counts


def dataset_from_listing(
    listing: Listing,
    train: ImageSource,
    test: ImageSource | None,
    train_names: Sequence[str],
    test_names: Sequence[str],
    statistics: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
) -> Dataset:
    """The data set of these images; their mean and deviation are computed where nobody did."""
    mean, std = statistics or channel_statistics(train.pixels)
    return Dataset(
        name=listing.name,
        classes=tuple(listing.classes),
        train=train,
        test=test,
        mean=mean,
        std=std,
        augment={"padding": reflect_padding(train.shape[-1], 0.875), "horizontal_flip": True},
        train_names=tuple(train_names),
        test_names=tuple(test_names),
    )


def name_inside(file: Place, root: Path) -> str:
    """The path of an image inside of its data set."""
    if isinstance(file, Path):
        return file.relative_to(root if root.is_dir() else root.parent).as_posix()
    return file.path.as_posix()


def _mark(file: Place, root: Path) -> str:
    """A text that is another one as soon as the file is."""
    name, facts = name_inside(file, root), (file if isinstance(file, Path) else file.archive).stat()
    # The time of the last change can be set back, and copying programs do: that of the last change of status cannot.
    return f"{name}\0{facts.st_size}\0{facts.st_mtime_ns}\0{facts.st_ctime_ns}"
