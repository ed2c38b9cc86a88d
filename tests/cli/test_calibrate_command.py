from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from calling import Epass, Trained
from test_predict_command import rows, save_digits

from epass.app.calibrate import calibrate
from epass.app.events import Caution, Result
from epass.data import open_dataset
from epass.evaluation import reliability
from epass.evaluation.calibrated import Calibration, fit_calibration
from epass.evaluation.left_out import estimate_error
from epass.runs import load_run


@pytest.fixture
def run(trained: Trained, tmp_path: Path) -> Path:
    """A copy of a finished run, which may be changed."""
    shutil.copytree(trained.folder, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    return tmp_path / "run"


def with_validation(run: Path, images: int = 100, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Let the run have kept back some of its test images, for validation."""
    with np.load(run / "predictions.npz") as arrays:
        logits, labels = arrays["logits"], arrays["labels"]
    kept = np.flatnonzero(labels < classes)[:images]
    rest = np.setdiff1d(np.arange(len(labels)), kept)
    parts = {"logits": logits[rest], "labels": labels[rest]}
    np.savez(run / "predictions.npz", **parts, validation_logits=logits[kept], validation_labels=labels[kept])
    return logits[kept], labels[kept]


def stored(run: Path) -> Calibration:
    return Calibration.from_json(json.loads((run / "model.json").read_text()).get("calibration"))


def test_the_luck_of_the_labels_stands_beside_a_promise_about_answers(epass: Epass, run: Path) -> None:
    logits, labels = with_validation(run)

    answer = epass("calibrate", run, "--accuracy", "0.4")

    assert answer.code == 0, answer.err
    found = stored(run)
    answered = found.probabilities(logits).max(axis=1) >= found.answer_from
    luck = estimate_error((logits.argmax(axis=1) != labels)[answered])
    assert luck.low < luck.value < luck.high
    assert (
        f"to be right in 40 %; by the luck of the {answered.sum()} labels above it, {100 * (1 - luck.high):.0f} to "
        f"{100 * (1 - luck.low):.0f} %" in " ".join(answer.out.split())
    )


def test_validation_labels_calibrate_and_everything_else_stays(epass: Epass, run: Path) -> None:
    logits, labels = with_validation(run)
    model = json.loads((run / "model.json").read_text())
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file() and path.name != "model.json"}

    answer = epass("calibrate", run, "--coverage", "0.9")

    assert (answer.code, answer.err) == (0, "")
    want = fit_calibration(logits, labels, source="validation", coverage=0.9)
    assert stored(run) == want
    now = json.loads((run / "model.json").read_text())
    assert now.pop("calibration")
    assert now == model
    assert before.items() <= {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}.items()
    lines = [" ".join(line.split()) for line in answer.out.splitlines()]
    assert lines[0] == f"{run} is calibrated"
    assert lines[1] == f"temperature {want.temperature:.2f}, from 100 labels, validation"
    test = load_run(run).predictions
    assert test is not None
    shares = [100 * reliability(test.logits / t, test.labels).ece for t in (1, want.temperature)]
    assert lines[2] == f"ECE {shares[0]:.2f} % before, {shares[1]:.2f} % now, on 255 test images"
    assert "give or take 3 points by the luck of the labels" in lines[3]


def test_it_is_used_by_predict_and_told_by_evaluate_and_the_card(epass: Epass, run: Path, tmp_path: Path) -> None:
    with_validation(run)
    save_digits(tmp_path / "new", 40)
    logits = np.load(run / "predictions.npz")
    plain = json.loads(epass("evaluate", run, "--json").out)
    assert "calibrated" not in plain

    model = json.loads((run / "model.json").read_text())
    rule = Calibration(2.5, 100, "validation", 0.9, 0.07, 0.5, 0.2)
    (run / "model.json").write_text(json.dumps({**model, "calibration": rule.as_json()}))

    assert epass("predict", run, "new", "--top", "2").code == 0
    everything = np.concatenate([logits["validation_logits"], logits["logits"]])
    found = rows()
    assert list(found[0])[:5] == ["file", "prediction", "confidence", "prediction_2", "confidence_2"]
    assert list(found[0])[5:] == ["set", "abstain", "novelty", "unlike", "error"]
    for row in found:
        number = int(row["file"].partition("/")[2].removesuffix(".png"))
        probs = rule.probabilities(everything[[number]])[0]
        assert float(row["confidence"]) == pytest.approx(probs.max(), abs=2e-6)
        assert row["set"].split("|") == [str(n) for n in np.argsort(-probs, kind="stable") if probs[n] >= 0.07]
        assert row["abstain"] == str(probs.max() < 0.2).lower()
    abstained = sum(row["abstain"] == "true" for row in found)
    told = json.loads(epass("predict", run, "new", "--json").out)
    assert told["abstained"] == abstained > 0
    assert f"{abstained} of 40 images are too uncertain to be answered" in epass("predict", run, "new").out

    scores = json.loads(epass("evaluate", run, "--json").out)
    assert scores["scores"] == plain["scores"]
    assert scores["calibrated"]["ece"] != plain["scores"]["ece"]
    assert "calibration error (ECE), calibrated" in epass("evaluate", run).out
    assert epass("report", run, "--card", "card.md").code == 0
    assert "as the model has it from 'epass calibrate', by 100 labels (validation)" in Path("card.md").read_text()


def test_calibrating_again_replaces_it_and_remove_forgets_it(epass: Epass, run: Path) -> None:
    with_validation(run)
    model = (run / "model.json").read_bytes()
    assert epass("calibrate", run, "--coverage", "0.8").code == 0
    first = stored(run)

    answer = epass("calibrate", run)

    assert stored(run).set_from is None
    assert (
        f"The calibration of before ({first.temperature:.2f}, from 100 labels, validation) is replaced." in answer.out
    )
    assert epass("calibrate", run, "--remove").code == 0
    assert json.loads((run / "model.json").read_text()) == json.loads(model)
    assert (
        epass("calibrate", run, "--remove").err
        == f"Error: The model of '{run}' has no calibration: there is nothing to remove.\n"
    )
    assert "leave out --data" in epass("calibrate", run, "--remove", "--coverage", "0.9").err


def test_labels_of_the_run_are_answered_by_models_that_did_not_see_them(epass: Epass, run: Path) -> None:
    events = list(calibrate(run, coverage=0.9))

    (caution,) = [event for event in events if isinstance(event, Caution)]
    assert "trained on fewer of them" in caution.sentence
    result = events[-1]
    assert isinstance(result, Result)
    found = stored(run)
    assert (found.labels, found.source, found.coverage) == (40, "cross-fitted", 0.9)
    assert result.values["calibration"] == found.as_json()
    assert result.values["test"]["images"] == 355


def test_other_labeled_images(epass: Epass, run: Path, tmp_path: Path) -> None:
    dataset = open_dataset("digits")
    pixels, labels = dataset.train.pixels.numpy(), dataset.train.labels.numpy()
    split = json.loads((run / "split.json").read_text())
    labeled = {int(str(name)) for name in split["labeled"]}
    free = np.array([number for number in range(len(labels)) if number not in labeled])[:200]
    np.savez("more.npz", train_images=pixels[free], train_labels=labels[free])
    np.savez("mixed.npz", train_images=pixels[[*free, *labeled]], train_labels=labels[[*free, *labeled]])
    model = (run / "model.json").read_bytes()

    answer = epass("calibrate", run, "--data", "mixed.npz")
    assert answer.code == 2
    assert answer.err == (
        "Error: 40 of 240 images of 'mixed.npz' are labeled or test images of the run, which cannot calibrate it: give "
        "others.\n"
    )
    assert "cannot calibrate it" in epass("calibrate", run, "--data", "digits").err
    assert (run / "model.json").read_bytes() == model

    answer = epass("calibrate", run, "--data", "more.npz", "--coverage", "0.9")
    assert (answer.code, answer.err) == (0, "")
    assert (stored(run).labels, stored(run).source) == (200, "more.npz")


def test_what_cannot_be_calibrated_is_one_sentence(epass: Epass, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.engine.crossfit.out_of_fold", lambda *_: pytest.fail("nothing is trained"))
    model = (run / "model.json").read_bytes()

    def said(*arguments: str) -> str:
        answer = epass("calibrate", run, *arguments)
        assert answer.code == 2
        assert answer.err.count("\n") == 1
        assert (run / "model.json").read_bytes() == model
        return answer.err

    assert "Coverage of 99 % needs at least 99 labels that the model was not trained on, and there are 40." in said(
        "--coverage", "0.99"
    )
    assert "--accuracy 95 is no share of images" in said("--accuracy", "95")
    with_validation(run, 30, classes=8)
    assert "The validation images have no label of 8, 9, and calibration needs one of every class" in said()


def test_a_class_with_a_single_label_cannot_be_left_out(
    epass: Epass, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = json.loads((run / "split.json").read_text())
    recipe = (run / "recipe.toml").read_text()
    assert split["labeled"]
    (run / "split.json").unlink()
    (run / "recipe.toml").write_text(recipe.replace("labels = 40", "labels = 10"))

    answer = epass("calibrate", run)

    assert answer.code == 2
    assert "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 have a single label each, which cannot be left out" in answer.err


@pytest.mark.parametrize("nonsense", [{"temperature": -1}, 3])
def test_a_calibration_that_nobody_wrote_is_refused(epass: Epass, run: Path, tmp_path: Path, nonsense: object) -> None:
    save_digits(tmp_path / "new", 1)
    model = json.loads((run / "model.json").read_text())
    (run / "model.json").write_text(json.dumps({**model, "calibration": nonsense}))

    answer = epass("predict", run, "new")

    assert answer.code == 2
    assert "model.json' is damaged" in answer.err
    assert answer.err.count("\n") == 1
