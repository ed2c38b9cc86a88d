"""The way from the files of a data set to their pixels."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from ...augment import reflect_padding
from ...errors import InputError
from ..dataset import Dataset, channel_statistics, count_levels, statistics_of
from ..images import Images, ImageSource
from ..stream.device_jpeg import Decoder
from ..stream.disk import Files, Mapped, Streaming, is_streamed, stream
from .cache import Entry, load, store
from .decode import ADVICE, ProgressCallback, decode_all, decode_readable
from .listing import Listing, cannot_be_used, change_of, from_disk, names_inside
from .square import check_image_size

_LEVELS = (3, 256 * 8)  # counts of 256 levels in three channels, as bytes
_ROWS = 512  # images at a time, where they are not all in memory
Notice = Callable[[str], None]  # takes a sentence for the person who waits


def read_listing(
    listing: Listing,
    image_size: int | None,
    progress: ProgressCallback | None = None,
    notice: Notice | None = None,
    started: float = 0.0,
    streaming: Streaming = False,
    skip_unreadable: bool = False,
    decoder: Decoder = "auto",
    measured: bool = True,
) -> Dataset:
    """The data set of a listing, from the cache if nothing changed since it was last read.

    The cache holds what the CPU decoded: it is not asked by whoever streams and wants a device to decode. Streamed
    images that are not `measured` have neither mean nor deviation.
    """
    size, tested = check_image_size(32 if image_size is None else image_size), bool(listing.test)
    listing, known = _present(listing), False
    if skip_unreadable:
        listing, known = _without_known(listing, size)
    entry = _entry_of(listing, size)
    streams = _streams(listing, entry, streaming)
    pixels = None if streams and decoder == "device" else load(entry)
    reasons: dict[int, str] = {}
    decoded = pixels is None and not streams
    if pixels is not None and notice is not None:
        notice(f"Read {len(pixels):,} images from the cache in {time.perf_counter() - started:.1f} s.")
    elif decoded:
        found, reasons = decode_all(listing.read(listing.files), len(listing.files), size, progress)
        pixels = torch.from_numpy(found)
    elif pixels is None and skip_unreadable and not known:
        reasons = _damaged(listing, range(len(listing.files)), size, progress)
    if skip_unreadable and not known and (reasons or streams):
        store(_entry_of_damaged(listing, size), _mask(reasons, len(listing.files)))
    if reasons:
        kept = torch.tensor([place for place in range(len(listing.files)) if place not in reasons], dtype=torch.int64)
        pixels = pixels[kept] if pixels is not None else None
        listing = listing.without(reasons)
    if listing.problems:
        if not skip_unreadable:
            raise cannot_be_used(listing.problems, listing.place, str(listing.root), skip=listing.opened)
        _check_what_is_left(listing, tested)
    if decoded and pixels is not None:
        store(_entry_of(listing, size), pixels)
    return _open(listing, pixels, size, streams, measured, progress)


def _open(
    listing: Listing, pixels: Tensor | None, size: int, streams: bool, measured: bool, progress: ProgressCallback | None
) -> Dataset:
    """The data set of files that can be read; `pixels` are there if they are in the cache or not streamed."""
    split = len(listing.train)
    names = names_inside(listing.files, listing.root)
    statistics: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    train: ImageSource
    test: ImageSource
    if streams:
        on_disk = [file for file in listing.files if isinstance(file, Path)]
        rows = Files(on_disk, size) if pixels is None else Mapped(pixels)
        train, test = stream(rows, listing.labels, listing.test_labels)
        levels = Entry.of(listing.root / f"levels-{size}", listing.marks[:split], _LEVELS)
        try:
            statistics = statistics_of(_count(train, levels, progress)) if measured else ((), ())
        except InputError:  # of the first file that cannot be read
            if reasons := _damaged(listing, range(len(on_disk)), size, progress):
                problems = listing.without(reasons).problems
                raise cannot_be_used(problems, listing.place, str(listing.root), skip=listing.opened) from None
            raise
    else:
        assert pixels is not None
        train = Images(pixels[:split], torch.tensor(listing.labels))
        test = Images(pixels[split:], torch.tensor(listing.test_labels))
    return dataset_from_listing(
        listing, train, test if listing.test else None, names[:split], names[split:], statistics
    )


def _present(listing: Listing) -> Listing:
    """The files that are there, with their marks."""
    marks: list[str] = []
    reasons: dict[int, str] = {}
    files, of_archive = listing.files, cache(Path.stat)  # which is the same for all of its members
    for position, (file, name) in enumerate(zip(files, names_inside(files, listing.root), strict=True)):
        try:
            marks.append(_mark(name, file.stat() if isinstance(file, Path) else of_archive(file.archive)))
        except OSError as error:
            reasons[position] = f"cannot be read ({error.strerror}){ADVICE}"
    return replace(listing.without(reasons) if reasons else listing, marks=marks)


def _without_known(listing: Listing, size: int) -> tuple[Listing, bool]:
    """The listing without what an earlier run could not read, and whether one has tried: reasons are not kept."""
    mask = load(_entry_of_damaged(listing, size))
    if mask is None:
        return listing, False
    reasons = _damaged(listing, mask.nonzero().flatten().tolist(), size)
    return listing.without(reasons), True


def _damaged(
    listing: Listing, positions: Sequence[int], size: int, progress: ProgressCallback | None = None
) -> dict[int, str]:
    """Which of these files cannot be read, and why."""
    files = listing.files
    images = iter(listing.read([files[position] for position in positions]))
    reasons: dict[int, str] = {}
    for start in range(0, len(positions), _ROWS):
        _, found = decode_readable(islice(images, _ROWS), size)
        reasons |= {positions[number]: reason for number, reason in found.items()}
        if progress is not None:
            progress(min(start + _ROWS, len(positions)), len(positions))
    return reasons


def _mask(positions: Iterable[int], count: int) -> Tensor:
    mask = torch.zeros(count, dtype=torch.uint8)
    mask[list(positions)] = 1
    return mask


def _entry_of(listing: Listing, size: int) -> Entry:
    return Entry.of(listing.root, listing.marks, (len(listing.marks), 3, size, size))


def _entry_of_damaged(listing: Listing, size: int) -> Entry:
    return Entry.of(listing.root / f"damaged-{size}", listing.marks, (len(listing.marks),))


def _check_what_is_left(listing: Listing, tested: bool) -> None:
    left = set(listing.labels[: len(listing.labels) - listing.validation])
    for number, name in enumerate(listing.classes):
        if number not in left:
            raise InputError(
                f"None of the labeled images of class '{name}' in '{listing.root}' can be read: replace them."
            )
    if tested and not listing.test:
        raise InputError(f"None of the test images in '{listing.root}' can be read: replace them.")


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
        validation=listing.validation,
        parts=listing.parts,
        unused=tuple(listing.unused),
        skipped=tuple(listing.problems),
        passed_over=listing.passed_over,
    )


def _mark(name: str, facts: os.stat_result) -> str:
    """A text that is another one as soon as the file is."""
    return f"{name}\0{facts.st_size}\0{change_of(facts)}"
