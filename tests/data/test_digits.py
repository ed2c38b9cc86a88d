import numpy as np
import torch
from sklearn.datasets import load_digits

from epass.data import DATASETS, open_dataset


def test_digits_are_divided_once_and_for_all() -> None:
    digits = open_dataset("digits")
    bunch = load_digits()
    assert digits.name == "digits"
    assert digits.classes == tuple("0123456789")
    assert digits.test is not None
    assert (len(digits.train), len(digits.test)) == (1442, 355)
    for digit in range(10):
        # The last fifth of each class, so both parts keep scikit-learn's order.
        positions = np.flatnonzero(bunch.target == digit)
        first_test = len(positions) - len(positions) // 5
        expected = torch.from_numpy(((bunch.images[positions] * 255 + 8) // 16).astype(np.uint8))[:, None]
        assert torch.equal(digits.train.pixels[digits.train.labels == digit], expected[:first_test])
        assert torch.equal(digits.test.pixels[digits.test.labels == digit], expected[first_test:])
    assert digits.train.labels[:12].tolist() == bunch.target[:12].tolist()


def test_gray_levels_cover_the_range_and_round_half_up() -> None:
    bunch, digits = load_digits(), open_dataset("digits")
    assert digits.train.pixels.shape[1:] == (1, 8, 8)
    assert digits.train.pixels.dtype == torch.uint8
    first = digits.train.pixels[0, 0]
    table = {int(level): int(value) for level, value in zip(bunch.images[0].flat, first.flatten(), strict=True)}
    assert table == {level: int(level * 255 / 16 + 0.5) for level in table}
    assert digits.train.pixels.min() == 0
    assert digits.train.pixels.max() == 255
    assert 128 in digits.train.pixels  # level 8 is 127.5
    assert 127 not in digits.train.pixels


def test_digits_are_never_flipped_and_padded_by_one() -> None:
    digits = open_dataset("digits")
    assert digits.augment["horizontal_flip"] is False
    assert digits.augment["padding"] == 1
    assert len(digits.mean) == len(digits.std) == 1
    assert abs(digits.mean[0] - digits.train.pixels.double().mean().item() / 255) < 1e-9


def test_digits_can_be_enlarged() -> None:
    digits = open_dataset("digits", image_size=16)
    assert digits.train.pixels.shape == (1442, 1, 16, 16)
    assert digits.augment["padding"] == 2


def test_every_data_set_says_what_it_is() -> None:
    for record in DATASETS.values():
        assert record.summary
        assert record.needs
