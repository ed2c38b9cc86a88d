from __future__ import annotations

import calibration
import disagreement
import numpy as np
import pytest
import torch

from epass.parts.projector import ProjectorEnsemble


def test_disagreement_is_what_similarity_lacks() -> None:
    projector, features = ProjectorEnsemble(6, 4, size=3), torch.randn(50, 6)
    with torch.no_grad():
        found = disagreement.disagreement(projector, features)
    assert found.shape == (50,)
    assert found.mean() == pytest.approx(1 - projector.similarity(features).item(), abs=1e-5)


def test_a_row_says_what_a_calibration_is_worth() -> None:
    random = np.random.default_rng(0)
    labels = random.integers(4, size=400)
    logits = 6 * np.eye(4)[np.where(random.random(400) < 0.8, labels, (labels + 1) % 4)]
    known, test = ((logits[part::2], labels[part::2]) for part in (0, 1))
    row = calibration.row_of("held out", known, test)
    assert row["temperature"] > 1.5
    assert row["ece_after"] < row["ece_before"]
    assert row["low"] < 0.9 < row["high"]
    assert "coverage" not in calibration.row_of("few", (known[0][:8], known[1][:8]), test)
