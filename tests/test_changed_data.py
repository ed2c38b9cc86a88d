"""Data that changed under a run: it is noticed, said, and nothing but the recorded images is used, or it is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epass.app.calibrate import calibrate
from epass.app.compare import compare
from epass.app.evaluate import evaluate
from epass.app.events import Caution, Event, Notice, Progress
from epass.app.suggest import suggest
from epass.app.train import train
from epass.engine.run import NOT_RECORDED
from epass.errors import InputError
from noise_photos import make_photos, save

BEGAN = "The images in 'photos' are not those that the run began with"
SAID: dict[str, Any] = {"recipe": "tiny.toml", "method": "supervised", "labels": 4, "out": "run", "device": "cpu"}


@pytest.fixture(autouse=True)
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_photos(tmp_path, monkeypatch)
    return tmp_path / "photos"


def add_images() -> None:
    """They come first in their classes, so every position moves."""
    save([f"{label}/{number:02d}.png" for label in "ab" for number in range(6)], seed=1)


def scores(run: str = "run") -> tuple[list[Event], dict[str, float]]:
    *events, result = evaluate(run, device="cpu")
    return events, result.values["scores"]


def stop_after(step: int) -> None:
    asked = False

    def stop() -> None:
        if asked:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        for event in train("photos", stop=stop, **SAID):
            asked = isinstance(event, Progress) and event.step == step
    assert not Path("run/results.json").exists()


def test_a_test_is_on_the_recorded_images_whatever_was_added() -> None:
    train("photos", **SAID).result()
    events, before = scores()
    assert events == []
    add_images()
    events, after = scores()
    assert events == [Caution(f"{BEGAN} (12 added): the test is on its own 8 images.")]
    assert after == before
    trained_on = set(json.loads(Path("run/split.json").read_text())["unlabeled"])
    lost = sorted(trained_on)[0]
    Path("photos", lost).unlink()  # is not needed for a test
    assert scores()[0] == [Caution(f"{BEGAN} (12 added, 1 missing): the test is on its own 8 images.")]
    tested = json.loads(Path("run/split.json").read_text())["test"][0]
    Path("photos", tested).unlink()
    with pytest.raises(InputError) as refused:
        evaluate("run", device="cpu").result()
    assert str(refused.value) == f"{BEGAN} (12 added, 2 missing), and some are needed: put back {tested}."


def test_who_asks_for_the_result_alone_is_warned_too() -> None:
    train("photos", **SAID).result()
    add_images()
    with pytest.warns(UserWarning, match=BEGAN) as warned:
        evaluate("run", device="cpu").result()
    assert [Path(one.filename).name for one in warned] == ["test_changed_data.py"]  # once, and here


def test_a_run_goes_on_with_its_own_images_and_labels_to_the_same_bytes() -> None:
    stop_after(3)
    split = Path("run/split.json").read_bytes()
    train("photos", **{**SAID, "out": "undisturbed"}).result()
    add_images()
    events = list(train(resume=True, out="run", device="cpu"))
    assert events[0] == Notice(f"{BEGAN} (12 added): it goes on with its own.")
    for file in ("model.safetensors", "model.json", "predictions.npz"):  # the mean is that of the beginning, too
        assert Path("run", file).read_bytes() == Path("undisturbed", file).read_bytes()
    assert Path("run/split.json").read_bytes() == split


def test_a_run_goes_on_without_a_file_that_it_never_had() -> None:
    stop_after(3)
    train("photos", **{**SAID, "out": "undisturbed"}).result()
    Path("photos/a/00.jpg").touch()
    with pytest.raises(InputError, match=r"a/00.jpg' .* --skip-unreadable"):
        train(resume=True, out="run", device="cpu").result()
    train(resume=True, out="run", skip_unreadable=True, device="cpu").result()
    assert Path("run/model.safetensors").read_bytes() == Path("undisturbed/model.safetensors").read_bytes()


def test_a_run_does_not_go_on_without_its_images() -> None:
    stop_after(3)
    gone = json.loads(Path("run/split.json").read_text())["labeled"][0]
    Path("photos", gone).unlink()
    with pytest.raises(InputError) as refused:
        train(resume=True, out="run", device="cpu").result()
    assert str(refused.value) == f"{BEGAN} (1 missing), and some are needed: put back {gone}."


def test_what_cannot_be_read_since_is_left_out_on_request_and_never_a_test_image() -> None:
    train("photos", **SAID).result()
    before = scores()[1]
    tested = json.loads(Path("run/split.json").read_text())["test"][0]
    Path("photos/a/00.jpg").touch()
    for asked in (evaluate("run", device="cpu"), suggest("run", device="cpu"), calibrate("run", device="cpu")):
        with pytest.raises(InputError, match=r"a/00.jpg' .* or leave it out with --skip-unreadable"):
            asked.result()
    said = Caution("1 file of 'photos' cannot be used and is left out: a/00.jpg.")
    *events, result = evaluate("run", skip_unreadable=True, device="cpu")
    assert events == [said]
    assert result.values["scores"] == before
    assert said in suggest("run", skip_unreadable=True, device="cpu")
    assert said in suggest("photos", skip_unreadable=True, device="cpu")
    assert said in calibrate("run", skip_unreadable=True, device="cpu")
    Path("photos", tested).write_text("no image")
    with pytest.raises(InputError, match=f"1 missing.*, and some are needed: put back {tested}"):
        evaluate("run", skip_unreadable=True, device="cpu").result()


def test_other_images_are_tested_and_calibrated_without_those_that_cannot_be_read() -> None:
    train("photos", **SAID).result()
    Path("photos").rename("kept")
    save([f"{label}/{number:02d}.png" for label in "ab" for number in range(6)], seed=7)
    Path("photos").rename("others")
    Path("kept").rename("photos")
    Path("others/b/bad.png").touch()
    said = Caution("1 file of 'others' cannot be used and is left out: b/bad.png.")
    for function in (evaluate, calibrate):
        with pytest.raises(InputError, match=r"b/bad.png' .* --skip-unreadable"):
            function("run", data="others", device="cpu").result()
        events = list(function("run", data="others", skip_unreadable=True, device="cpu"))
        assert events[:-1] == [said]
    assert events[-1].values["calibration"]["labels"] == 12


def test_data_that_were_moved_are_named_with_the_ways_to_go_on(photos: Path) -> None:
    train("photos", **SAID).result()
    before = scores()[1]
    photos.rename("moved")
    gone = f"'run' remembers its data at '{photos}', where there is nothing now: put them back"
    ways = {
        evaluate: ", put a link to them there, or name their new place with --data.",
        calibrate: ", put a link to them there, or give other labeled images with --data.",
        suggest: " or put a link to them there.",
    }
    for function, advice in ways.items():
        with pytest.raises(InputError) as refused:
            function("run", device="cpu").result()
        assert str(refused.value) == gone + advice
    with pytest.raises(InputError) as refused:
        train(resume=True, out="run", device="cpu").result()
    assert str(refused.value) == f"{gone} or put a link to them there."

    labeled = "4 of 40 images of 'moved' are labeled images that the run has learned from"
    (caution,) = [event for event in evaluate("run", data="moved", device="cpu") if isinstance(event, Caution)]
    assert caution.sentence.startswith(labeled)
    save(["others/a/1.png", "others/b/1.png"], seed=9)
    Path("photos/others").rename("others")
    photos.rmdir()
    names = [str(path.relative_to("moved")) for path in Path("moved").rglob("*.png")]
    save([f"alike/{name}" for name in [*names, "a/more.png"]], seed=10)  # the same names alone prove nothing
    Path("photos/alike").rename("alike")
    photos.rmdir()
    (caution,) = [event for event in evaluate("run", data="alike", device="cpu") if isinstance(event, Caution)]
    assert "'alike' cannot be checked" in caution.sentence
    (caution,) = [event for event in evaluate("run", data="others", device="cpu") if isinstance(event, Caution)]
    assert caution.sentence.startswith(f"Whether the run has seen the labels of 'others' cannot be checked: {gone}")

    photos.symlink_to("moved")
    assert scores() == ([], before)


def write_table(labels: dict[str, str]) -> None:
    Path("photos/list.csv").write_text("path,label\n" + "".join(f"{name},{label}\n" for name, label in labels.items()))


def test_other_labels_are_tested_with_and_not_trained_on(photos: Path) -> None:
    labels = {str(path.relative_to(photos)): path.parent.name for path in sorted(photos.rglob("*.png"))}
    write_table(labels)
    train("photos/list.csv", **{**SAID, "out": "done"}).result()
    record = json.loads(Path("done/split.json").read_text())

    def swap(name: str) -> None:
        write_table(labels | {name: "ab"[labels[name] == "a"]})

    write_table(dict(reversed(labels.items())))
    events, same = scores("done")
    assert "(another order, or others that it does not use): the test is on its own" in events[0].sentence
    swap(record["test"][0])
    events, other = scores("done")
    assert "(1 relabeled): the test is on its own" in events[0].sentence
    assert other != same
    swap(record["labeled"][0])
    with pytest.raises(InputError, match=r"\(1 relabeled\), and its labels would be others: put the old ones back"):
        train("photos/list.csv", **{**SAID, "out": "done", "resume": True}).result()
    assert scores("done")[1] == same  # the image is not tested with


def test_images_without_names_are_refused_when_they_changed() -> None:
    random = np.random.default_rng(0)
    pixels, labels = random.integers(0, 255, (60, 8, 8), dtype=np.uint8), np.arange(60) % 2
    np.savez("mine.npz", train_images=pixels[:40], train_labels=labels[:40])
    train("mine.npz", **SAID).result()
    assert scores()[0] == []
    np.savez("mine.npz", train_images=pixels, train_labels=labels)
    for again in (evaluate("run", device="cpu"), train(resume=True, out="run", device="cpu")):
        with pytest.raises(InputError, match=r"without file names .* 'mine' \(40 .* where 'mine' \(60 .* is now\.$"):
            again.result()


def test_a_comparison_does_not_mix_old_and_new_images() -> None:
    said: dict[str, Any] = {"methods": "pi_model", "labels": 4, "steps": 1, "device": "cpu", "out": "out"}
    said["settings"] = ["net.width=4", "plan.labeled_batch=4"]
    list(compare("photos", seeds=1, **said))
    add_images()
    assert not compare("photos", seeds=1, **said).result().complaint  # all runs are there
    with pytest.raises(InputError) as refused:
        compare("photos", seeds=2, **said).result()
    beginning = f"{BEGAN} (12 added) in 'out/supervised-0': start the comparison anew"
    assert str(refused.value) == f"{beginning} in another folder with --out."


def test_runs_of_older_versions() -> None:
    train("photos", **SAID).result()
    path = Path("run/split.json")
    content = json.loads(path.read_text())
    old = {key: value for key, value in content.items() if key != "labels"}
    old["data"] = {key: value for key, value in content["data"].items() if key not in ("mean", "std")}
    path.write_text(json.dumps(old))
    events, before = scores()
    assert events == []
    assert train(resume=True, out="run", device="cpu").result().files
    add_images()
    events, after = scores()
    assert (len(events), after) == (1, before)
    with pytest.raises(InputError, match=r"\(12 added\), and it did not write down its labels: put the old ones back"):
        train(resume=True, out="run", device="cpu").result()
    path.unlink()
    assert scores()[0] == [Caution(NOT_RECORDED)]
    assert Notice(NOT_RECORDED) in list(train(resume=True, out="run", device="cpu"))


@pytest.mark.parametrize(
    "damage",
    [
        {"labels": 3},
        {"labels": {"labeled": []}},
        {"data": {"train": "many", "mean": "gray"}},
        {"data": {"std": [None]}},
        {"test": [0]},
        {"test": [["a"]]},
        {"classes": [1, 2]},
        {"classes": ["b", "a"]},
    ],
)
def test_a_damaged_record_of_changed_data_is_refused_with_a_sentence(damage: dict[str, Any]) -> None:
    train("photos", **{**SAID, "steps": 1}).result()
    add_images()
    path = Path("run/split.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | damage))
    for again in (evaluate("run", device="cpu"), train(resume=True, out="run", device="cpu")):
        with pytest.raises(InputError):
            again.result()
