"""Labeled examples that are there twice: what training refuses, and what it tells of."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ..checking.duplicates import contradictions, digests, leaks
from ..data import Dataset, Split, Vectors
from ..errors import InputError
from ..recipe import Recipe


def check_copies(recipe: Recipe, dataset: Dataset, split: Split, *, allow_leak: bool) -> str:
    """Refuse test images among the labeled ones, unless allowed, and say if labels contradict each other.

    Both look at the digests of the labeled images, since reading all of these twice takes minutes where they are many.
    """
    prints = digests(split.labeled)
    if not allow_leak:
        refuse_leaks(recipe, split, prints)
    return contradictory_labels(recipe, dataset, split, prints)


def refuse_leaks(recipe: Recipe, split: Split, prints: Sequence[bytes]) -> None:
    """Test images that are trained on with their labels would make the result too good."""
    found = leaks(split, prints)
    if found:
        if isinstance(split.test, Vectors) and recipe.features is None:
            raise InputError(
                f"{len(found):,} of {len(split.test):,} test vectors are among the labeled ones: remove them or train "
                "all the same with --allow-leak."
            )
        labels = ["--labels", str(recipe.data["labels"])] if "labels" in recipe.data else []
        command = check_command(recipe, "--seed", str(recipe.seed), *labels)
        raise InputError(
            f"{len(found):,} of {len(split.test):,} test images are among the labeled ones: remove them "
            f"(see {command}) or train all the same with --allow-leak."
        )


def contradictory_labels(recipe: Recipe, dataset: Dataset, split: Split, prints: Sequence[bytes]) -> str:
    """That labels contradict each other, if some of the same examples do."""
    found = contradictions(prints, split.labeled.labels)
    if not found:
        return ""
    labels, positions = split.labeled.labels.tolist(), split.positions.labeled.tolist()
    first = min(sorted((positions[place], labels[place]) for place in group) for group in found)
    one, other = first[0], next(copy for copy in first if copy[1] != first[0][1])
    names = dataset.train_names

    def describe(number: int, label: int) -> str:
        return f"'{names[number] if names else f'train {number}'}' ({split.classes[label]})"

    vectors = isinstance(split.labeled, Vectors) and recipe.features is None
    things, where = ("vectors", "") if vectors else ("images", f" ({check_command(recipe)} lists all)")
    return (
        f"{sum(map(len, found)):,} labeled {things} have an exact copy with another label, such as {describe(*one)} "
        f"and {describe(*other)}: correct them{where}."
    )


def check_command(recipe: Recipe, *said: str) -> str:
    """The command that looks at the images of a recipe, as large as they are read."""
    data = recipe.data
    size = ["--image-size", str(data["image_size"])] if "image_size" in data else []
    return shlex.join(["epass", "check", str(data["name"]), *said, *size])
