from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from pictures_with_copies import brighter, darker, photos, recompressed, shifted
from torch import Tensor

from epass.checking import duplicates
from epass.checking.duplicates import connected, near_pairs
from epass.checking.fingerprint import candidates, fingerprints, thumbnails
from epass.checking.likeness import ALIKE, likeness, threshold
from epass.data import open_dataset

COPIES: dict[str, Callable[[Tensor], Tensor]] = {
    "recompressed": lambda image: recompressed(image, 60),
    "shifted right": lambda image: shifted(image, 0, 1),
    "shifted down": lambda image: shifted(image, 1, 0),
    "brighter": brighter,
    "darker": darker,
    "mirrored": lambda image: image.flip(2),
    "mirrored and recompressed": lambda image: recompressed(image.flip(2), 75),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_are_found_and_nothing_else(name: str) -> None:
    originals = photos(400)
    copies = torch.stack([COPIES[name](image) for image in originals[:40]])

    pairs, least = near_pairs(torch.cat([originals, copies]), mirror=True)

    assert {(pair.first, pair.second) for pair in pairs} == {(number, 400 + number) for number in range(40)}
    assert {pair.kind for pair in pairs} == {"mirrored" if "mirrored" in name else "near"}
    assert all(least <= pair.likeness <= 1 for pair in pairs)
    assert [pair.likeness for pair in pairs] == sorted((pair.likeness for pair in pairs), reverse=True)


def test_mirrored_copies_are_found_only_if_asked_for() -> None:
    originals = photos(100)
    images = torch.cat([originals, originals[:10].flip(3)])

    assert near_pairs(images, mirror=False)[0] == []
    assert len(near_pairs(images, mirror=True)[0]) == 10


def test_large_and_gray_images_are_compared_too() -> None:
    originals = photos(60, side=72, channels=1)
    images = torch.cat([originals, torch.stack([brighter(image) for image in originals[:5]])])

    assert thumbnails(images).shape == (65, 1, 32, 32)
    pairs, _ = near_pairs(images, mirror=True)
    assert {(pair.first, pair.second) for pair in pairs} == {(number, 60 + number) for number in range(5)}


def test_the_digits_are_alike_and_hardly_any_is_called_a_copy() -> None:
    digits = open_dataset("digits").train.pixels
    least = threshold(digits)

    assert least > 0.95  # two scans of a zero have a likeness that two photos never have
    assert threshold(photos(400)) == ALIKE
    assert len(near_pairs(digits, mirror=False)[0]) <= 2
    darker_copies = torch.stack([darker(image) for image in digits[:100]])
    found = {(pair.first, pair.second) for pair in near_pairs(torch.cat([digits, darker_copies]), mirror=False)[0]}
    assert len(found & {(number, len(digits) + number) for number in range(100)}) >= 95


def test_images_without_structure_are_left_out() -> None:
    flat = torch.arange(20, dtype=torch.uint8)[:, None, None, None].expand(20, 3, 32, 32).clone()
    flat[:, :, 0, 0] += 1

    assert near_pairs(torch.cat([photos(50), flat]), mirror=True)[0] == []
    assert near_pairs(flat, mirror=True)[0] == []
    assert near_pairs(flat[:0], mirror=True)[0] == []


def test_two_images_are_enough() -> None:
    one = photos(1)
    pairs, _ = near_pairs(torch.cat([one, brighter(one[0])[None]]), mirror=True)
    assert [(pair.first, pair.second) for pair in pairs] == [(0, 1)]


def test_many_copies_of_few_images_are_found() -> None:
    images = photos(10)
    pairs, _ = near_pairs(torch.cat([images, torch.stack([brighter(image) for image in images])]), mirror=True)
    assert {(pair.first, pair.second) for pair in pairs} == {(number, number + 10) for number in range(10)}


def test_likeness_knows_neither_brightness_nor_contrast_but_structure() -> None:
    first, second = photos(2)
    horizon = torch.zeros(3, 32, 32, dtype=torch.uint8)
    horizon[:, 16:] = 120

    def alike(one: Tensor, other: Tensor) -> float:
        return float(likeness(one[None], other[None]))

    assert alike(first, first) == pytest.approx(1)
    assert alike(first, darker(first)) > 0.97
    assert alike(first, shifted(first, 1, 1)) > 0.97
    assert alike(first, shifted(first, 3, 3)) < ALIKE
    assert alike(first, second) < 0.5
    assert alike(first, 255 - first) < 0
    ship, tanker = horizon.clone(), horizon.clone()
    ship[:, 10:18, 4:12], tanker[:, 13:17, 15:30] = 220, 60
    assert alike(ship, tanker) < 0.5


def test_the_signs_mirror_a_fingerprint() -> None:
    images = photos(30)
    both, signs = fingerprints(torch.cat([images, images.flip(3)]))

    assert torch.allclose(both[:30] * signs, both[30:], atol=1e-5)
    assert not torch.allclose(both[:30], both[30:], atol=0.1)


def test_the_search_finds_what_comparing_all_pairs_finds() -> None:
    originals = photos(3000)
    images = torch.cat([originals, torch.stack([shifted(image, 1, 1) for image in originals[:300]])])
    vectors, _ = fingerprints(images)
    close = torch.triu(vectors @ vectors.T, 1) > 0.9

    found = candidates(images, mirror=False)

    keys = set(zip(found.first.tolist(), found.second.tolist(), strict=True))
    wanted = set(map(tuple, torch.nonzero(close).tolist()))
    assert len(wanted) > 200
    assert keys <= wanted
    assert len(keys) >= 0.97 * len(wanted)
    assert not found.mirrored.any()
    assert (found.first < found.second).all()


def test_linked_positions_become_groups() -> None:
    assert connected(8, [(1, 5), (7, 2), (5, 6), (6, 1)]) == [[1, 5, 6], [2, 7]]
    assert connected(3, []) == []


def test_the_same_is_found_every_time() -> None:
    images = torch.cat([photos(200), torch.stack([brighter(image) for image in photos(20)])])
    state = torch.random.get_rng_state()

    assert near_pairs(images, mirror=True) == near_pairs(images, mirror=True)
    assert np.array_equal(state, torch.random.get_rng_state())


def test_pixels_of_pairs_are_in_memory_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    digits, together = open_dataset("digits").train.pixels[:300], []
    monkeypatch.setattr(duplicates, "TOGETHER", 10**9)
    whole = near_pairs(digits, mirror=True)

    def counted(first: Tensor, second: Tensor) -> Tensor:
        together.append(len(first))
        return likeness(first, second)

    monkeypatch.setattr(duplicates, "likeness", counted)
    monkeypatch.setattr(duplicates, "TOGETHER", 512)
    assert near_pairs(digits, mirror=True) == whole
    assert len(together) > 1
    assert max(together) <= 512
