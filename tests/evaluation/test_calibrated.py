from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta, binom
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from epass.errors import InputError
from epass.evaluation import fit_temperature
from epass.evaluation.calibrated import Calibration, answer_limit, fit_calibration, least_labels, set_limit, spread

WHOLE = Calibration(1.5, 40, "validation", 0.9, 0.2, 0.95, 0.7)


def answers(images, sharpness=1.0, seed=0, classes=4):
    """Logits (N, C) times `sharpness`, of labels that follow them as they are."""
    generator = np.random.default_rng(seed)
    logits = 2 * generator.normal(size=(images, classes))
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return sharpness * logits, (probs.cumsum(1) < generator.random((images, 1))).sum(1)


@pytest.mark.parametrize("calibration", [Calibration(), Calibration(2.0, 7, "x"), WHOLE])
def test_what_is_stored_is_read_back(calibration):
    assert Calibration.from_json(json.loads(json.dumps(calibration.as_json()))) == calibration


def test_nothing_stored_changes_nothing_and_what_a_later_version_adds_is_left_alone():
    assert Calibration.from_json(None) == Calibration()
    assert Calibration.from_json({**WHOLE.as_json(), "new": 1}) == WHOLE
    logits, _ = answers(5)
    want = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(Calibration().probabilities(logits), want, rtol=1e-12)


@pytest.mark.parametrize(
    "found",
    [
        3,
        {"temperature": 0},
        {"temperature": float("nan")},
        {"temperature": "1"},
        {"temperature": True},
        {"labels": 2.5},
        {"source": 1},
        {"coverage": 0.9},
        {"coverage": 0.9, "set_from": 2},
        {"answer_from": 0.9},
    ],
)
def test_nonsense_in_a_file_is_refused(found):
    with pytest.raises(ValueError, match="its 'calibration' is"):
        Calibration.from_json(found)


def test_sets_and_abstentions_by_hand():
    probs = np.array([[0.7, 0.2, 0.1], [0.4, 0.35, 0.25], [0.34, 0.33, 0.33]])
    found = replace(WHOLE, set_from=0.35, answer_from=0.4)
    assert found.sets(probs).tolist() == [[True, False, False], [True, True, False], [False, False, False]]
    assert found.abstains(probs).tolist() == [False, False, True]


def test_the_temperature_is_that_of_scikit_learn():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(400, 5))
    y = (X[:, :3] + generator.normal(size=(400, 3))).argmax(1)
    model = LogisticRegression(C=1e4).fit(X[:40], y[:40])  # too sure of itself
    fitted = CalibratedClassifierCV(FrozenEstimator(model), method="temperature").fit(X[40:], y[40:])
    ours = Calibration(fit_temperature(model.decision_function(X[40:]), y[40:]))
    got = ours.probabilities(model.decision_function(X[40:]))
    np.testing.assert_allclose(got, fitted.predict_proba(X[40:]), atol=1e-5)


def test_few_labels_move_the_temperature_little_and_many_all_the_way():
    far = [fit_calibration(*answers(count, sharpness=3.0, seed=2)).temperature for count in (4, 40, 4_000)]
    assert 1 < far[0] < far[1] < far[2]
    assert far[2] == pytest.approx(3, rel=0.1)
    right = np.array([[9.0, 0.0], [0.0, 9.0]] * 3)
    assert 0.5 < fit_calibration(right, np.array([0, 1] * 3)).temperature <= 1
    certain = np.array([[9_000.0, 0.0], [0.0, 9_000.0]])
    assert fit_calibration(certain, np.array([0, 1])).temperature == 1


def test_the_sets_are_those_of_mapie():
    from mapie.classification import SplitConformalClassifier

    logits, labels = answers(300, seed=1)
    model = LogisticRegression().fit(logits[:100], labels[:100])
    wrapped = SplitConformalClassifier(model, confidence_level=0.9, conformity_score="lac", prefit=True)
    wrapped.conformalize(logits[100:200], labels[100:200])
    want = wrapped.predict_set(logits[200:])[1][:, :, 0]
    limit = set_limit(model.predict_proba(logits[100:200]), labels[100:200], 0.9)
    got = replace(WHOLE, set_from=limit).sets(model.predict_proba(logits[200:]))
    assert 1 < want.sum(1).mean() < 4
    np.testing.assert_array_equal(got, want)


def test_the_coverage_is_inside_its_interval():
    draws, new, few = 200, 50, 29
    covered = 0
    for seed in range(draws):
        logits, labels = answers(few + new, sharpness=2.0, seed=seed)
        found = fit_calibration(logits[:few], labels[:few], coverage=0.9)
        sets = found.sets(found.probabilities(logits[few:]))
        covered += int(sets[np.arange(new), labels[few:]].sum())
    # the coverage of each calibration is itself a draw, Beta(27, 3) here: their mean is known within two numbers
    noise = beta(27, 3).std() / np.sqrt(draws) + binom(draws * new, 0.9).std() / (draws * new)
    assert covered / (draws * new) == pytest.approx(0.9, abs=2.6 * noise)


@pytest.mark.parametrize(("labels", "coverage", "rank"), [(29, 0.9, 27), (40, 0.9, 37), (99, 0.55, 55)])
def test_the_spread_of_the_coverage_is_that_of_a_beta_distribution(labels, coverage, rank):
    # 100 * 0.55 is a little above 55 in binary, which is no reason to take the 56th
    assert spread(labels, coverage) == pytest.approx(beta(rank, labels + 1 - rank).std(), rel=1e-9)
    shares = np.linspace(0.1, 0.9, labels)
    probs = np.stack([shares, 1 - shares], axis=1)
    assert set_limit(probs, np.zeros(labels, dtype=np.int64), coverage) == shares[-rank]


def test_answers_reach_the_accuracy_on_new_images():
    logits, labels = answers(600, seed=2)
    found = fit_calibration(logits, labels, accuracy=0.9)
    logits, labels = answers(20_000, seed=3)
    probs = found.probabilities(logits)
    answered = ~found.abstains(probs)
    assert (probs.argmax(1) == labels).mean() < 0.8
    assert (probs.argmax(1) == labels)[answered].mean() > 0.88
    assert answered.mean() > 0.3


def test_a_threshold_counts_one_mistake_more_than_it_saw():
    probs = np.array([[share, 1 - share] for share in np.linspace(0.99, 0.6, 20)])
    truth = np.zeros(20, dtype=np.int64)
    truth[[12, 19]] = 1
    assert answer_limit(probs, truth, 0.9) == probs[18, 0]  # 1 + 1 mistakes of 19 + 1; the last one is too much
    with pytest.raises(InputError, match=r"95 % cannot be promised from these 20 labels"):
        answer_limit(probs, truth, 0.95)
    equal = np.array([[0.8, 0.2]] * 20)
    assert answer_limit(equal, np.zeros(20, dtype=np.int64), 0.95) == 0.8
    with pytest.raises(InputError, match="cannot be promised"):  # equal ones are all answered, or none
        answer_limit(equal, truth, 0.9)


def test_too_few_labels_are_told_their_number():
    assert [least_labels(share) for share in (0.5, 0.8, 0.9, 0.95, 0.99)] == [1, 4, 9, 19, 99]
    logits, labels = answers(8)
    with pytest.raises(InputError, match=r"Coverage of 90 % needs at least 9 labels .* and there are 8\.$"):
        fit_calibration(logits, labels, coverage=0.9)
    with pytest.raises(InputError, match=r"Accuracy of 95 % needs at least 19 labels"):
        fit_calibration(logits, labels, accuracy=0.95)
    with pytest.raises(InputError, match=r"--coverage 90 is no share of images: give a number between 0 and 1"):
        fit_calibration(logits, labels, coverage=90)


def test_it_needs_no_torch():
    command = (
        "import sys; import epass.evaluation.calibrated, epass.evaluation.novelty; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0
