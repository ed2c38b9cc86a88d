"""Everything that is worth knowing about a data set before training on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..data import Dataset, ImageFile, Images, ImageSource, Survey, divide
from ..errors import InputError
from .duplicates import Kind, Pair, connected, digests, exact_groups, near_pairs

Part = Literal["labeled", "unlabeled", "validation", "test"]
LONG = 2.0  # sides of an image: beyond this ratio the central square is less than half of it


class Member(NamedTuple):
    """An image of the data set."""

    position: int  # among all images, training ones first
    name: str
    part: Part
    label: str | None  # None where nobody labeled it


class Leak(NamedTuple):
    """A test image and the training image that is most like it."""

    test: Member
    other: Member
    kind: Kind
    likeness: float


class Group(NamedTuple):
    """Images that are the same, or nearly, each like at least one of the others."""

    members: tuple[Member, ...]
    kinds: frozenset[Kind]

    @property
    def contradicts(self) -> bool:
        """Whether some of its images have other labels than the others."""
        return len({member.label for member in self.members} - {None}) > 1


class Odd(NamedTuple):
    """A file that training reads, but perhaps not as one would think."""

    name: str
    reason: str


@dataclass(frozen=True)
class Findings:
    """What `examine` found."""

    name: str
    classes: tuple[str, ...]
    held_out: bool
    counts: Mapping[Part, int]
    class_counts: Mapping[Part, tuple[int, ...]]  # of "unlabeled", those whose label is known and hidden
    unreadable: tuple[tuple[str, str], ...]
    leaks: tuple[Leak, ...]  # into the labeled images first
    groups: tuple[Group, ...]
    odd: tuple[Odd, ...]
    constant: tuple[Member, ...]
    least_likeness: float  # from which two images counted as nearly the same
    refusal: str = ""  # why training would not take these labels; then no image was held out for tests

    def leaks_into(self, part: Part) -> list[Leak]:
        """The leaks of test images into one part."""
        return [leak for leak in self.leaks if leak.other.part == part]

    @property
    def contradictions(self) -> list[Group]:
        return [group for group in self.groups if group.contradicts]

    @property
    def imbalance(self) -> float:
        """How many times as many labeled images the largest class has as the smallest."""
        return max(self.class_counts["labeled"]) / min(self.class_counts["labeled"])

    @property
    def serious(self) -> bool:
        """Whether training must wait: its results would be too good, or it would stop at a damaged file or a label."""
        return bool(self.leaks_into("labeled") or self.unreadable or self.refusal)


def examine(survey: Survey, *, labels: int | None = None, seed: int = 0) -> Findings:
    """Look at all images of a data set, divided as a run with these labels and this seed would divide it."""
    dataset = survey.dataset
    sets = [dataset.train] if dataset.test is None else [dataset.train, dataset.test]
    refusal = ""
    try:
        where = assign(dataset, labels, seed)
    except InputError as problem:
        if dataset.test is not None or labels is not None:
            raise
        # What is damaged or there twice can be told without test images, too.
        where, refusal = assign(dataset, labels, seed, holdout=0.0), str(problem)
    parts: tuple[Part, ...] = ("labeled", "unlabeled", "validation", "test")
    parts = tuple(part for part in parts if part != "validation" or dataset.validation)
    names, truth = (*survey.train_names, *survey.test_names), torch.cat([images.labels for images in sets]).tolist()
    members = [
        Member(position, name, part, dataset.classes[label] if label >= 0 else None)
        for position, (name, part, label) in enumerate(zip(names, where, truth, strict=True))
    ]
    exact = exact_groups([digest for images in sets for digest in digests(images)])
    pixels = torch.cat([images.pixels for images in sets])
    first = torch.tensor([group[0] for group in exact])
    pairs, least = near_pairs(pixels[first], mirror=bool(dataset.augment.get("horizontal_flip")))
    return Findings(
        name=dataset.name,
        classes=dataset.classes,
        held_out=dataset.test is None,
        counts={part: where.count(part) for part in parts},
        class_counts={part: _per_class(members, part, dataset.classes) for part in parts},
        unreadable=survey.unreadable,
        leaks=tuple(find_leaks(members, exact, pairs)),
        groups=tuple(find_groups(members, exact, pairs)),
        odd=tuple(find_odd(survey.files, dataset.train.shape[-1])),
        constant=tuple(members[position] for position in constant_images(pixels)),
        least_likeness=least,
        refusal=refusal,
    )


def assign(dataset: Dataset, labels: int | None, seed: int, **settings: Any) -> list[Part]:
    """The part of every image, training images first, then those of a test set."""
    # What is divided are the positions of the images in place of their pixels, so it is divided as in training.
    train = Images(torch.arange(len(dataset.train)), dataset.train.labels)
    count = len(train) + (0 if dataset.test is None else len(dataset.test))
    test = None if dataset.test is None else Images(torch.arange(len(train), count), dataset.test.labels)
    split = divide(replace(dataset, train=train, test=test), labels=labels, seed=seed, **settings)
    parts: list[Part] = ["unlabeled"] * count
    found: list[tuple[Part, ImageSource | None]] = [
        ("labeled", split.labeled),
        ("validation", split.validation),
        ("test", split.test),
    ]
    for part, images in found:
        for position in [] if images is None else images.pixels.tolist():
            parts[position] = part
    return parts


def find_leaks(members: Sequence[Member], exact: Sequence[Sequence[int]], pairs: Sequence[Pair]) -> Iterator[Leak]:
    """For every test image the labeled, then the unlabeled image that is most like it, if any is nearly the same.

    The pairs are between groups of exact duplicates, the most alike first.
    """
    near: dict[int, list[tuple[int, Kind, float]]] = {number: [(number, "exact", 1.0)] for number in range(len(exact))}
    for pair in pairs:
        near[pair.first].append((pair.second, pair.kind, pair.likeness))
        near[pair.second].append((pair.first, pair.kind, pair.likeness))
    for part in ("labeled", "unlabeled"):
        found = []
        for number, group in enumerate(exact):
            hits = ((_first_in(part, members, exact[other]), kind, alike) for other, kind, alike in near[number])
            hit = next((hit for hit in hits if hit[0] is not None), None)
            if hit is not None and hit[0] is not None:
                tests = (members[position] for position in group if members[position].part == "test")
                found += [Leak(test, hit[0], hit[1], hit[2]) for test in tests]
        yield from sorted(found, key=lambda leak: (-leak.likeness, leak.kind != "exact", leak.test.position))


def find_groups(members: Sequence[Member], exact: Sequence[Sequence[int]], pairs: Sequence[Pair]) -> list[Group]:
    """All duplicates, as groups, the largest first."""
    links = [(exact[pair.first][0], exact[pair.second][0], pair.kind) for pair in pairs]
    same: list[tuple[int, int, Kind]] = [(group[0], other, "exact") for group in exact for other in group[1:]]
    kinds: dict[int, set[Kind]] = {}
    for first, second, kind in links + same:
        kinds.setdefault(first, set()).add(kind)
        kinds.setdefault(second, set()).add(kind)
    groups = connected(len(members), [(first, second) for first, second, _ in links + same])
    found = [
        Group(tuple(members[position] for position in group), frozenset().union(*(kinds[one] for one in group)))
        for group in groups
    ]
    return sorted(found, key=lambda group: (-len(group.members), group.members[0].position))


def find_odd(files: Sequence[ImageFile], image_size: int) -> Iterator[Odd]:
    """Files that are enlarged, lose more than half of their pixels, or are colored unlike most."""
    modes = Counter(file.mode for file in files)
    usual = modes.most_common(1)[0][0] if modes else ""
    for file in files:
        size, short, long = f"{file.width} x {file.height} pixels", *sorted((file.width, file.height))
        if short < image_size:
            yield Odd(file.name, f"{size}: enlarged to {image_size} x {image_size}")
        if long > LONG * short:
            yield Odd(file.name, f"{size}: {1 - short / long:.0%} of it lie outside of the central square")
        if file.mode != usual:
            yield Odd(file.name, f"mode {file.mode}, where most files have {usual}")


def constant_images(pixels: Tensor) -> list[int]:
    """The positions of images without any structure: every channel has one value."""
    flat = pixels.flatten(2)
    return torch.nonzero((flat == flat[:, :, :1]).all(2).all(1)).flatten().tolist()


def _first_in(part: str, members: Sequence[Member], positions: Sequence[int]) -> Member | None:
    return next((members[position] for position in positions if members[position].part == part), None)


def _per_class(members: Sequence[Member], part: Part, classes: Sequence[str]) -> tuple[int, ...]:
    counts = Counter(member.label for member in members if member.part == part)
    return tuple(counts[name] for name in classes)
