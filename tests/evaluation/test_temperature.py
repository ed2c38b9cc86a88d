from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from epass.errors import InputError
from epass.evaluation import cross_fit_temperature, fit_temperature, score


def answers(num_images=400, num_classes=5, sharpness=1.0, seed=0):
    """Logits whose softmax is the truth about the labels, times `sharpness`."""
    generator = np.random.default_rng(seed)
    logits = 2 * generator.normal(size=(num_images, num_classes))
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = np.array([generator.choice(num_classes, p=row) for row in probs])
    return sharpness * logits, labels


def nll(logits, labels, temperature):
    return score(logits / temperature, labels)["nll"]


@pytest.mark.parametrize("sharpness", [1e-4, 0.3, 1.0, 2.5, 40.0, 1e4])
@pytest.mark.parametrize("seed", [0, 1])
def test_it_is_the_minimum_that_scipy_finds(sharpness, seed):
    logits, labels = answers(sharpness=sharpness, seed=seed)
    got = fit_temperature(logits, labels)
    found = minimize_scalar(
        lambda power: nll(logits, labels, sharpness * np.exp(power)), bounds=(-3, 3), options={"xatol": 1e-9}
    )
    assert got == pytest.approx(sharpness * np.exp(found.x), rel=1e-5)
    grid = sharpness * np.geomspace(0.2, 5, 200)
    assert nll(logits, labels, got) <= min(nll(logits, labels, value) for value in grid)
    assert got / sharpness == pytest.approx(1, abs=0.25)  # the labels were drawn at temperature 1


def test_a_hand_computed_case():
    # two classes, 3 of 4 right, all with the margin 2: the best confidence is 3 / 4, at the margin log 3
    logits = np.array([[2.0, 0.0]] * 4)
    assert fit_temperature(logits, np.array([0, 0, 0, 1])) == pytest.approx(2 / np.log(3), rel=1e-9)


def test_a_shift_of_an_image_changes_nothing_and_a_factor_is_taken_out():
    logits, labels = answers()
    shifted = logits + np.arange(len(logits))[:, None]
    assert fit_temperature(shifted, labels) == pytest.approx(fit_temperature(logits, labels), rel=1e-8)
    assert fit_temperature(3 * logits, labels) == pytest.approx(3 * fit_temperature(logits, labels), rel=1e-8)


def test_tensors_of_float32_are_fitted_in_float64():
    logits, labels = answers()
    single = torch.from_numpy(logits).float()
    assert fit_temperature(single, torch.from_numpy(labels)) == fit_temperature(single.numpy().astype(float), labels)


def test_one_extreme_image_does_not_stop_it():
    logits, labels = answers()
    logits[0] = 0
    logits[0, (labels[0] + 1) % 5] = 1e3  # wrong, and certain: Newton's first step leads below 0
    got = fit_temperature(logits, labels)
    assert np.isfinite(got)
    assert all(nll(logits, labels, got) <= nll(logits, labels, got * factor) for factor in (0.99, 1.01))


def test_no_best_temperature_is_said():
    with pytest.raises(InputError, match="the 3 images are all right"):
        fit_temperature(np.eye(3), np.arange(3))
    with pytest.raises(InputError, match="no higher logit than the average"):
        fit_temperature(-np.eye(3), np.arange(3))
    with pytest.raises(InputError, match="no higher logit than the average"):
        fit_temperature(np.ones((2, 3)), np.arange(2))
    with pytest.raises(InputError, match="not finite"):
        fit_temperature(np.full((2, 3), np.nan), np.arange(2))


def test_no_image_is_scaled_by_its_own_label():
    logits, labels = answers(sharpness=2)
    whole = cross_fit_temperature(logits, labels)
    scales = logits[:, 0] / whole.logits[:, 0]
    for number in (0, 1, 2, 3):  # the scale of an image stays when its half is answered in another way
        own_half = np.isclose(scales, scales[number])
        changed = np.where(own_half[:, None], logits * 7, logits)
        again = cross_fit_temperature(changed, labels)
        assert (changed / again.logits)[number, 0] == pytest.approx(scales[number])
        assert (changed / again.logits)[~own_half][0, 0] == pytest.approx(7 * scales[~own_half][0])
    assert set(np.round(whole.temperatures, 6)) == set(np.round(scales, 6))


def test_the_halves_share_every_class_and_the_scales_are_those_of_the_other_half():
    logits, labels = answers()
    order = np.argsort(labels, kind="stable")  # a folder is read class by class
    logits, labels = logits[order], labels[order]
    got = cross_fit_temperature(logits, labels)
    first = np.isclose(logits[:, 0] / got.logits[:, 0], got.temperatures[1])
    assert first.sum() == 200
    counts = np.bincount(labels[first]), np.bincount(labels[~first])
    assert np.abs(counts[0] - counts[1]).max() <= 1
    assert got.temperatures == (
        fit_temperature(logits[first], labels[first]),
        fit_temperature(logits[~first], labels[~first]),
    )


def test_classes_that_take_turns_are_shared_by_the_halves_too():
    logits, labels = answers(num_classes=2)
    turns = np.stack([np.flatnonzero(labels == label)[:100] for label in (0, 1)], axis=1).ravel()
    logits, labels = logits[turns], labels[turns]  # every second image alone would give each half one class
    got = cross_fit_temperature(logits, labels)
    first = np.isclose(logits[:, 0] / got.logits[:, 0], got.temperatures[1])
    assert np.bincount(labels[first]).tolist() == [50, 50]


def test_it_calibrates_and_changes_no_answer():
    logits, labels = answers(2000, sharpness=3)
    got = cross_fit_temperature(logits, labels)
    before, after = score(logits, labels), score(got.logits, labels)
    assert after["error"] == before["error"]
    assert after["ece"] < before["ece"] / 3
    assert after["nll"] < before["nll"]


def test_one_image_has_no_halves():
    with pytest.raises(InputError, match="at least two images"):
        cross_fit_temperature(np.array([[1.0, 0.0]]), np.array([0]))
