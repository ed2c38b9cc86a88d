from __future__ import annotations

import numpy as np
import pytest
import torch

from epass.evaluation import bin_by_confidence, reliability, score


def test_row_16_ece():
    confidence = np.array([0.05, 0.1, 0.15, 0.55, 0.6, 0.95, 1.0])
    correct = np.array([0, 1, 0, 1, 0, 1, 1], dtype=bool)
    got = bin_by_confidence(confidence, correct)
    assert got.ece == pytest.approx(0.171429, rel=1e-4)
    assert got.counts.tolist() == [2, 1, 0, 0, 0, 2, 0, 0, 0, 2]
    assert got.mce == pytest.approx(0.425)  # first bin: half right at a mean confidence of .075


def test_bins_are_closed_on_the_right_and_zero_is_dropped():
    got = bin_by_confidence(np.array([0.0, 0.5, 0.5 + 1e-9, 1.0]), np.ones(4, dtype=bool), bins=2)
    assert got.counts.tolist() == [1, 2]
    assert got.edges.tolist() == [0.0, 0.5, 1.0]
    assert got.ece == pytest.approx((0.5 + 2 * 0.25) / 4)  # the dropped answer still counts in the denominator


@pytest.mark.parametrize("bins", [5, 10, 15])
def test_equals_a_loop_over_samples(bins):
    generator = np.random.default_rng(3)
    logits = torch.from_numpy(generator.normal(size=(300, 4)) * 2)
    labels = torch.from_numpy(generator.integers(4, size=300))
    confidence, predicted = logits.softmax(1).max(1)
    gaps, weights = [], []
    for low in range(bins):
        inside = (confidence > low / bins) & (confidence <= (low + 1) / bins)
        if inside.any():
            accuracy = (predicted == labels)[inside].double().mean()
            gaps.append(float(abs(accuracy - confidence[inside].mean())))
            weights.append(float(inside.double().mean()))
    got = reliability(logits, labels, bins=bins)
    assert got.ece == pytest.approx(np.dot(gaps, weights))
    assert got.mce == pytest.approx(max(gaps))
    assert np.isnan(got.accuracy).tolist() == (got.counts == 0).tolist()
    assert got.counts.sum() == 300


def test_score_reports_the_same_calibration():
    logits, labels = np.array([[2.0, 0.0], [0.0, 3.0], [1.0, 0.0]]), np.array([0, 1, 1])
    bins = reliability(logits, labels)
    assert (score(logits, labels)["ece"], score(logits, labels)["mce"]) == (bins.ece, bins.mce)


def test_perfect_and_certain_is_perfectly_calibrated():
    got = reliability(1000 * np.eye(3), np.arange(3))
    assert (got.ece, got.mce) == (0.0, 0.0)
    assert got.counts[-1] == 3
