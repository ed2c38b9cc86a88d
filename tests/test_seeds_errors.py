from __future__ import annotations

import itertools

import pytest
import torch

from epass.errors import InputError, unknown
from epass.seeds import drawing, fold


def test_seeds_are_the_same_on_every_machine() -> None:
    # Published runs depend on these values: they may never change.
    assert fold(0, "weak", 0) == 1_871_136_699_795_736_991
    assert fold(42, "a name of more than eight bytes", 7) == 526_780_350_893_246_841


def test_seeds_differ_in_every_word_and_its_place() -> None:
    words: list[tuple[int | str, ...]] = [
        (),
        (0,),
        (1,),
        (0, 0),
        (0, 1),
        (1, 0),
        ("a",),
        ("b",),
        ("a", "b"),
        ("b", "a"),
    ]
    words += [("ab",), ("a" * 8,), ("a" * 9,)]
    seeds = [fold(seed, *word) for seed, word in itertools.product((0, 1, 3, 2**62), words)]
    assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize("seed", [-1, 0, 2**63, 2**70 + 1])
@pytest.mark.parametrize("word", [-1, -(2**70), 0, 2**100, "é", ""])
def test_any_integer_and_name_gives_a_seed_that_torch_takes(seed: int, word: int | str) -> None:
    assert 0 <= fold(seed, word) < 2**63


def test_neighboring_steps_share_no_bits_on_average() -> None:
    distances = [(fold(0, "weak", step) ^ fold(0, "weak", step + 1)).bit_count() for step in range(200)]
    assert 30 < sum(distances) / len(distances) < 33


def test_what_is_drawn_from_a_seed_leaves_the_state_of_torch_as_it_was() -> None:
    state = torch.get_rng_state()
    with drawing(3):
        drawn = torch.rand(4)
        with drawing(3):  # the same thread need not wait for itself
            assert torch.equal(torch.rand(4), drawn)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(torch.rand(4, generator=torch.Generator().manual_seed(3)), drawn)


def test_a_near_miss_is_named() -> None:
    error = unknown("method", "simmatsch", ["fixmatch", "simmatch", "supervised"])
    assert str(error) == "Unknown method 'simmatsch': did you mean 'simmatch'?"


def test_without_a_near_miss_all_choices_are_listed_in_order() -> None:
    error = unknown("method", "xyz", iter(["simmatch", "fixmatch"]))
    assert str(error) == "Unknown method 'xyz': choose one of: fixmatch, simmatch."


def test_input_errors_are_value_errors() -> None:
    assert isinstance(unknown("method", "x", ["y"]), InputError)
    assert issubclass(InputError, ValueError)
