"""A run that goes on from a finished one: from its weights, on data that may have grown, with the test it had."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from epass.app.events import Caution, Event, Notice
from epass.app.train import train
from epass.engine.models import load_model, trained_heads
from epass.errors import InputError
from epass.networks import make_network
from epass.parts.pretrained import go_on_from
from epass.parts.projector import ProjectorEnsemble
from epass.report import group_runs
from epass.runs import load_run
from noise_photos import make_photos, save

SAID: dict[str, Any] = {"device": "cpu"}


@pytest.fixture(autouse=True)
def _photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_photos(tmp_path, monkeypatch)
    train("photos", recipe="tiny.toml", method="supervised", labels=4, out="run", **SAID).result()


def go_on(**said: Any) -> tuple[list[str], Any]:
    events: list[Event] = list(train(earlier="run", **SAID, **said))
    return [event.sentence for event in events if isinstance(event, Notice) and "cache" not in event.sentence], events[
        -1
    ]


def cautions(**said: Any) -> list[str]:
    return [event.sentence for event in train(earlier="run", **SAID, **said) if isinstance(event, Caution)]


def parts(run: str) -> dict[str, Any]:
    return json.loads(Path(run, "split.json").read_text())


def test_it_goes_on_from_the_weights_and_keeps_the_run() -> None:
    before = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    said, result = go_on(steps=1, settings=["plan.lr=1e-12"])
    assert result.values["run"] == "run-continued"
    error = 100 * json.loads(Path("run/results.json").read_text())["last"]["error"]
    steps = json.loads(Path("run/results.json").read_text())["steps"]
    assert said[0] == f"Starts from 'run', {error:.1f} % test error after {steps} steps. It is kept."
    assert said[1] == "Since then: the same images and labels. The test images stay the same."
    old, new = load_model("run")[0].state_dict(), load_model("run-continued")[0].state_dict()
    learned = [name for name, _ in load_model("run")[0].named_parameters()]
    assert all(
        torch.allclose(old[name], new[name], rtol=0, atol=1e-6) for name in learned
    )  # hardly learned at such a rate
    assert before == {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    assert parts("run") == parts("run-continued")
    assert group_runs([load_run("run-continued")])[0].label == "labels only, continued"


def test_a_second_one_gets_a_folder_of_its_own_and_resume_finds_its_own_split() -> None:
    go_on(steps=1)
    assert go_on(steps=1)[1].values["run"].endswith("run-continued-2")
    save(["a/00.png"], seed=3)
    go_on(steps=2, out="third")
    went = parts("third")
    shutil.rmtree("third/checkpoints")
    Path("third/results.json").unlink()
    train(resume=True, out="third", **SAID).result()
    assert parts("third") == went


def test_what_was_tested_is_never_trained_on_whatever_was_added() -> None:
    save([f"{label}/{number:02d}.png" for label in "ab" for number in range(6)], seed=1)  # every position moves
    said, _ = go_on(steps=1, labels=8)
    assert said[1] == "Since then: 12 added, 4 labels more. The test images stay the same."
    old, new = parts("run"), parts("run-continued")
    assert new["test"] == old["test"]
    assert set(old["labeled"]) < set(new["labeled"])
    assert len(new["labeled"]) == 8
    assert not set(new["test"]) & {*new["labeled"], *new["unlabeled"]}
    assert {*new["unlabeled"], *new["test"]} == {
        str(path.relative_to("photos")) for path in Path("photos").rglob("*.png")
    }


def test_images_that_are_gone_and_labels_that_changed_are_said() -> None:
    old = parts("run")
    moved = old["labeled"][0]
    gone = next(name for name in old["unlabeled"] if name not in old["labeled"])
    Path("photos", gone).unlink()
    said, _ = go_on(steps=1)
    assert said[1] == "Since then: 1 missing. The test images stay the same."
    assert cautions(steps=1, out="quiet") == []
    Path("photos", moved).rename(Path("photos", "b" if moved[0] == "a" else "a", "moved.png"))
    said, _ = go_on(steps=1, out="again")
    assert "missing" in said[1]
    assert len(parts("again")["labeled"]) == 4


CHANGED = "The test images are not those of 'run' ({}): the test errors of the two runs cannot be compared."


@pytest.mark.parametrize("written", [True, False])
def test_a_test_that_is_another_one_is_said_and_not_compared(written: bool) -> None:
    tested = parts("run")["test"]
    if not written:  # by an old version
        content = {key: value for key, value in parts("run").items() if key != "labels"}
        Path("run/split.json").write_text(json.dumps(content))
    Path("photos", tested[0]).unlink()
    said, _ = go_on(steps=1)
    assert said[1] == "Since then: 1 missing."
    assert cautions(steps=1, out="again") == [CHANGED.format(f"1 of {len(tested)} missing")]


def test_a_test_folder_of_other_images_is_another_test() -> None:
    shutil.rmtree("run")
    Path("photos").rename("labeled")
    Path("photos").mkdir()
    Path("labeled").rename("photos/labeled")
    save([f"test/{label}/{number:02d}.png" for label in "ab" for number in range(4)], seed=4)
    train("photos", recipe="tiny.toml", method="supervised", labels=4, out="run", **SAID).result()
    for number in range(3):
        Path(f"photos/test/b/{number:02d}.png").unlink()
    Path("photos/test/a/00.png").rename("photos/test/b/moved.png")
    said, _ = go_on(steps=1)
    assert said[1] == "Since then: 1 added, 4 missing."
    assert cautions(steps=1, out="again") == [CHANGED.format("1 added, 4 of 8 missing")]


def test_test_images_with_other_labels_are_another_test() -> None:
    names = sorted(f"{path.parent.name}/{path.name}" for path in Path("photos").rglob("*.png"))
    labels = {name: name[0] for name in names}

    def write() -> None:
        rows = [f"{name},{label}" for name, label in labels.items()]
        Path("photos/list.csv").write_text("\n".join(["path,label", *rows]))

    shutil.rmtree("run")
    write()
    train("photos/list.csv", recipe="tiny.toml", method="supervised", labels=4, out="run", **SAID).result()
    labels |= {name: "ab"[labels[name] == "a"] for name in parts("run")["test"][:2]}
    write()
    assert cautions(steps=1) == [CHANGED.format("2 relabeled")]


def test_a_new_class_starts_from_nothing_and_is_tested() -> None:
    save([f"c/{number:02d}.png" for number in range(10)], seed=2)
    said, _ = go_on(steps=1, labels=6)
    assert said[2] == "New classes, which start from nothing: c."
    assert cautions(steps=1, labels=6, out="again") == [CHANGED.format("2 added")]
    new = parts("run-continued")
    assert new["classes"] == ["a", "b", "c"]
    assert any(name.startswith("c/") for name in new["test"])
    assert set(parts("run")["test"]) < set(new["test"])


def test_classes_keep_their_rows_under_other_numbers() -> None:
    trained = make_network("small", width=4, in_channels=1, num_classes=2)
    fresh = make_network("small", width=4, in_channels=1, num_classes=3)
    before = fresh.head.weight.clone()
    go_on_from(trained.state_dict(), fresh, ["b", "c"], ["a", "b", "c"])
    torch.testing.assert_close(fresh.head.weight[1:], trained.head.weight, rtol=0, atol=0)
    torch.testing.assert_close(fresh.head.bias[1:], trained.head.bias, rtol=0, atol=0)
    torch.testing.assert_close(fresh.head.weight[0], before[0], rtol=0, atol=0)
    other = make_network("small", width=4, in_channels=3, num_classes=3)
    with pytest.raises(InputError, match="has another network"):
        go_on_from(trained.state_dict(), other, ["b", "c"], ["a", "b", "c"])


def test_projection_heads_go_on_too_as_long_as_a_checkpoint_is_there() -> None:
    settings = ["method.warmup_steps=1"]
    train("photos", recipe="tiny.toml", method="simmatch", labels=4, out="sim", settings=settings, **SAID).result()
    _, width = load_model("sim")[0].head.weight.shape
    heads = trained_heads(Path("sim"), ProjectorEnsemble(width, 16))
    assert heads.keys() == ProjectorEnsemble(width, 16).state_dict().keys()
    assert trained_heads(Path("sim"), ProjectorEnsemble(width, 16, size=2)) == {}
    train(earlier="sim", steps=2, settings=["plan.lr=1e-12"], out="kept", **SAID).result()
    kept = trained_heads(Path("kept"), ProjectorEnsemble(width, 16))
    assert all(torch.allclose(kept[name], head, rtol=0, atol=1e-6) for name, head in heads.items())
    shutil.rmtree("sim/checkpoints")
    assert trained_heads(Path("sim"), ProjectorEnsemble(width, 16)) == {}
    events = list(train(earlier="sim", steps=2, **SAID))
    assert "projection heads with them: these start fresh" in " ".join(
        e.sentence for e in events if isinstance(e, Notice)
    )


def test_a_finished_run_that_should_be_longer_says_how() -> None:
    with pytest.raises(InputError, match=r"is finished .* epass train --continue run --steps 50"):
        train("photos", recipe="tiny.toml", method="supervised", labels=4, out="run", resume=True, steps=50).result()


def test_what_cannot_be_continued_is_refused() -> None:
    with pytest.raises(InputError, match="leave out --recipe"):
        train(earlier="run", recipe="tiny.toml").result()
    with pytest.raises(InputError, match="There is no run at"):
        train(earlier="nowhere").result()
    Path("run/results.json").unlink()
    with pytest.raises(InputError, match="is not finished: say epass train --resume --out run"):
        train(earlier="run").result()
    Path("run").rename("first run")
    with pytest.raises(InputError, match="say epass train --resume --out 'first run'"):
        train(earlier="first run").result()


def test_data_that_were_moved_are_named_by_their_new_place() -> None:
    place = Path("photos").absolute()
    place.rename("moved")
    with pytest.raises(InputError) as refused:
        train(earlier="run", steps=1, **SAID).result()
    assert str(refused.value) == (
        f"'run' remembers its data at '{place}', where there is nothing now: put them back, put a link to them there, "
        "or say epass train PLACE --continue run."
    )
    said, _ = go_on(data="moved", steps=1)
    assert said[1] == "Since then: the same images and labels. The test images stay the same."


def test_a_calibration_is_not_carried_over_and_that_is_said() -> None:
    facts = json.loads(Path("run/model.json").read_text())
    Path("run/model.json").write_text(json.dumps(facts | {"calibration": {"temperature": 2.0}}))
    said, _ = go_on(steps=1)
    assert said[1] == "Its calibration belongs to its model alone: 'epass calibrate' the new run, too."
    assert "calibration" not in json.loads(Path("run-continued/model.json").read_text())


def test_labels_from_a_table_are_more_labels_and_nothing_else() -> None:
    shutil.rmtree("run")
    Path("photos").rename("labeled")
    Path("photos/unlabeled").mkdir(parents=True)
    Path("labeled").rename("photos/labeled")
    names = sorted(path.name for path in Path("photos/labeled/b").iterdir())[:4]
    for name in names:
        Path("photos/labeled/b", name).rename(Path("photos/unlabeled", name))
    train("photos", recipe="tiny.toml", method="supervised", out="run", settings=["data.labels=8"], **SAID).result()
    Path("photos/labels.csv").write_text("path,label\n" + "".join(f"unlabeled/{name},b\n" for name in names))
    said, _ = go_on(steps=1, labels=10)
    assert said[1] == "Since then: 2 labels more. The test images stay the same."
