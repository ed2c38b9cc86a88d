"""The published mean and deviation of every data set that a recipe names, and whether others are noticed."""

from __future__ import annotations

import pytest

from epass.data.read.formats import cifar
from epass.recipe import read_recipe
from epass.recipes import builtin_recipes
from epass.reproduce import is_published, other_normalization, paper_table, read_benchmark

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
# As the tests of the readers know them.
PUBLISHED = {
    "cifar10": cifar.CIFAR10_PYTHON.statistics,
    "cifar100": cifar.CIFAR100_PYTHON.statistics,
    "svhn": ((0.4380, 0.4440, 0.4730), (0.1751, 0.1771, 0.1744)),
    "stl10": ((112.4 / 255, 109.1 / 255, 98.6 / 255), (68.4 / 255, 66.6 / 255, 68.5 / 255)),
    "imagenet": IMAGENET,
    "semi_aves": IMAGENET,
    "eurosat": HALF,
    "tissuemnist": HALF,
}


def test_the_numbers_are_those_of_the_readers() -> None:
    assert set(paper_table("normalization")) == set(PUBLISHED)
    for name, numbers in PUBLISHED.items():
        assert is_published(name, *numbers), name
        assert other_normalization(name, *numbers) == ""


@pytest.mark.parametrize("name", builtin_recipes())
def test_a_recipe_names_a_data_set_whose_numbers_are_published(name: str) -> None:
    files = read_recipe(name).data.get("name", "your own")
    known = {entry["files"] for entry in paper_table("normalization").values()}
    assert files in known | {"digits", "your own"}


@pytest.mark.parametrize("table", ["classic", "imagenet", "longtail", "usb"])
def test_every_column_of_a_table_can_be_checked(table: str) -> None:
    assert {trial.column.data for trial in read_benchmark(table).trials} <= set(PUBLISHED)


def test_other_numbers_are_told_beside_the_published_ones() -> None:
    measured = (0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)
    for name in ("cifar10", "cifar-10-batches-py"):
        assert other_normalization(name, *measured) == (
            "mean 0.491, 0.482, 0.447 and deviation 0.247, 0.243, 0.262; the published runs on cifar10 have "
            "mean 0.485, 0.456, 0.406 and deviation 0.229, 0.224, 0.225"
        )
    assert other_normalization("photos", *measured) == ""


@pytest.mark.parametrize("odd", [None, [], [0.5], "0.5", ["a", "b", "c"], 0.5, {"a": 1}])
def test_whatever_a_run_folder_tells_is_no_published_number(odd: object) -> None:
    assert not is_published("cifar10", odd, odd)
    assert "the published runs on cifar10" in other_normalization("cifar10", odd, odd)
