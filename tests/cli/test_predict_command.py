from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from calling import Epass, Trained
from numpy.typing import NDArray
from PIL import Image

from epass.app.answers import Answer, as_csv
from epass.app.predict import doubts
from epass.data import open_dataset


def save_digits(folder: Path, count: int = 355, mode: str = "L") -> None:
    """Test images of the run as files, in the order of their names."""
    test = open_dataset("digits").test
    assert test is not None
    for number, pixels in enumerate(test.pixels[:count, 0].numpy()):
        path = folder / f"{number // 100}" / f"{number:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).convert(mode).save(path)


def probabilities(run: Path) -> NDArray[np.float64]:
    """What the run itself said about its test images."""
    logits = np.load(run / "predictions.npz")["logits"].astype(np.float64)
    shares = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(shares / shares.sum(1, keepdims=True))


def rows(path: str | Path = "predictions.csv") -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_files_get_the_answers_that_the_run_gave_its_test_images(
    epass: Epass, trained: Trained, tmp_path: Path, mode: str
) -> None:
    save_digits(tmp_path / "new", mode=mode)

    answer = epass("predict", trained.folder, "new")

    assert (answer.code, answer.err) == (0, "")
    expected, found = probabilities(trained.folder), rows()
    assert [row["file"] for row in found] == [f"{number // 100}/{number:03d}.png" for number in range(355)]
    assert [int(row["prediction"]) for row in found] == expected.argmax(1).tolist()
    assert np.allclose([float(row["confidence"]) for row in found], expected.max(1), atol=2e-6)
    assert list(found[0]) == ["file", "prediction", "confidence", "novelty", "unlike", "error"]
    assert {row["error"] for row in found} == {""}
    unlike = [row["unlike"] == "true" for row in found]
    assert unlike == [float(row["novelty"]) > 1 for row in found]
    assert sum(unlike) <= 0.05 * 355  # its own neighbor, each is nearer than it was when the limit was found


def test_the_summary_counts_and_names_the_least_certain(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    save_digits(tmp_path / "new")

    answer = epass("predict", trained.folder, "new", "--out", "named.csv")

    lines = [" ".join(line.split()) for line in answer.out.splitlines()]
    assert lines[0] == f"355 images of new, by {trained.folder}"
    expected = probabilities(trained.folder)
    for number, count in enumerate(np.bincount(expected.argmax(1), minlength=10).tolist()):
        line = f"{number} {count} image{'s' * (count != 1)}, {100 * count / 355:.1f} %"
        assert (line in lines) == (count > 0)
    heading = lines.index("least certain prediction confidence")
    doubtful = np.sort(expected.max(1))[:10]
    assert [line.split()[2] for line in lines[heading + 1 : heading + 11]] == [f"{100 * s:.1f}" for s in doubtful]
    assert lines[heading + 11] == ""
    assert "less certain than nine tenths" not in answer.out  # they are the test images themselves
    assert lines[-1] == "Every image with its class: named.csv"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["named.csv", "new", "tiny.toml"]


def test_runners_up(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    save_digits(tmp_path / "new", 20)

    assert epass("predict", trained.folder, "new", "--top", "3").code == 0

    expected = probabilities(trained.folder)
    columns = ["prediction", "prediction_2", "prediction_3"]
    for row, shares in zip(rows(), expected, strict=False):
        assert list(row) == [
            "file",
            *(f"{kind}{rank}" for rank in ("", "_2", "_3") for kind in ("prediction", "confidence")),
            "novelty",
            "unlike",
            "error",
        ]
        assert [int(row[column]) for column in columns] == np.argsort(-shares)[:3].tolist()
        found = [float(row[column.replace("prediction", "confidence")]) for column in columns]
        assert np.allclose(found, -np.sort(-shares)[:3], atol=2e-6)


@pytest.mark.parametrize("kind", ["archive", "table", "image"])
def test_other_shapes(epass: Epass, trained: Trained, tmp_path: Path, kind: str) -> None:
    save_digits(tmp_path / "new", 12)
    names = [f"0/{number:03d}.png" for number in range(12)]
    if kind == "archive":
        with zipfile.ZipFile(tmp_path / "new.zip", "w") as zipped:
            for name in reversed(names):
                zipped.write(tmp_path / "new" / name, name)
        place = "new.zip"
    elif kind == "table":
        (tmp_path / "new" / "list.csv").write_text("path\n" + "\n".join(names))
        place = "new/list.csv"
    else:
        names, place = ["000.png"], "new/0/000.png"

    answer = epass("predict", trained.folder, place)

    assert answer.code == 0, answer.err
    assert [row["file"] for row in rows()] == names
    assert [int(row["prediction"]) for row in rows()] == probabilities(trained.folder).argmax(1)[: len(names)].tolist()


def test_the_table_follows_the_names_over_many_chunks(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    save_digits(tmp_path / "new", 1)
    image = (tmp_path / "new" / "0" / "000.png").read_bytes()
    names = [f"{number:04d}.png" for number in range(1100)]
    with zipfile.ZipFile(tmp_path / "new.zip", "w") as zipped:
        for name in reversed(names):
            zipped.writestr(name, image)

    assert epass("predict", trained.folder, "new.zip").code == 0

    assert [row["file"] for row in rows()] == names


def test_unreadable_images_get_a_row_with_the_reason(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    save_digits(tmp_path / "new", 12)
    for name in ("002", "007"):
        (tmp_path / "new" / "0" / f"{name}.png").write_text("nothing")

    answer = epass("predict", trained.folder, "new", "--top", "2", "--probabilities", "all.npy")

    assert (answer.code, answer.err) == (1, "")
    found, kept = rows(), [number for number in range(12) if number not in (2, 7)]
    assert [row["file"] for row in found] == [f"0/{number:03d}.png" for number in range(12)]
    expected = probabilities(trained.folder)
    assert [int(found[number]["prediction"]) for number in kept] == expected.argmax(1)[kept].tolist()
    reason = "cannot be read (not an image): replace or remove it"
    for number in (2, 7):
        row = {"file": f"0/{number:03d}.png", "error": reason}
        assert {name: cell for name, cell in found[number].items() if cell} == row
    assert f"2 images without an answer:\n  0/002.png {reason}\n  0/007" in answer.out
    shares = np.load("all.npy")
    assert np.isnan(shares).all(1).tolist() == [number in (2, 7) for number in range(12)]


def test_nothing_readable_at_all(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    (tmp_path / "one.png").write_text("nothing")

    answer = epass("predict", trained.folder, "one.png")

    assert (answer.code, answer.err) == (1, "")
    assert "1 image without an answer:\n  one.png cannot be read" in answer.out
    heads, row = Path("predictions.csv").read_text().splitlines()
    assert heads == "file,prediction,confidence,novelty,unlike,error"
    assert row.startswith("one.png,,,,,cannot be read")


@pytest.mark.parametrize("ending", ["csv", "npy", "parquet"])
def test_all_probabilities_on_request(epass: Epass, trained: Trained, tmp_path: Path, ending: str) -> None:
    if ending == "parquet":
        parquet = pytest.importorskip("pyarrow.parquet")
    save_digits(tmp_path / "new", 30)

    answer = epass("predict", trained.folder, "new", "--probabilities", f"all.{ending}")

    assert (answer.code, answer.err) == (0, "")
    assert answer.out.endswith(f"All probabilities: all.{ending}\n")
    names, digits = [row["file"] for row in rows()], [str(number) for number in range(10)]
    if ending == "npy":
        found = np.load("all.npy", allow_pickle=False)
    elif ending == "csv":
        table = rows("all.csv")
        assert list(table[0]) == ["file", *digits]
        assert [row["file"] for row in table] == names
        found = np.array([[float(row[digit]) for digit in digits] for row in table])
    else:
        read = parquet.read_table("all.parquet")
        assert read.column_names == ["file", *digits]
        assert read["file"].to_pylist() == names
        found = np.stack([read[digit].to_numpy() for digit in digits], 1)
    np.testing.assert_allclose(found, probabilities(trained.folder)[:30], atol=2e-6)


def test_parquet_without_pyarrow_is_one_sentence(
    epass: Epass, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_digits(tmp_path / "new", 2)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    answer = epass("predict", trained.folder, "new", "--probabilities", "all.parquet")
    assert (answer.code, answer.out) == (2, "")
    assert "needs pyarrow: pip install pyarrow, or write a .csv or .npy file." in answer.err
    assert not Path("predictions.csv").exists()


def test_a_filter_answers_every_line_at_once(
    epass: Epass, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_digits(tmp_path / "new", 3)
    (tmp_path / "new" / "bad.png").write_text("nothing")
    typed = [
        "new/0/000.png",
        "",
        '{"file": "new/0/002.png", "id": 7}',
        "new/bad.png",
        "gone.png",
        '{"name": "new/0/001.png"}',
        '{"file": "\\u0000"}',
        "{",
        str(tmp_path / "new" / "0" / "001.png"),
    ]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(typed)))

    answer = epass("predict", trained.folder, "-", "--top", "2")

    assert (answer.code, answer.err) == (1, "")
    found = [json.loads(line) for line in answer.out.splitlines()]
    assert [one["file"] for one in found] == [typed[0], "new/0/002.png", *typed[3:]]
    wrong = [one["error"].partition(" ")[0] for one in found if "error" in one]
    assert len(wrong) == 5
    assert [one.keys() for one in found if "error" in one] == [{"file", "error"}] * 5
    expected = probabilities(trained.folder)
    for place, number in ((0, 0), (1, 2), (7, 1)):
        one = found[place]
        assert int(one["prediction"]) == expected[number].argmax()
        assert one["confidence"] == pytest.approx(expected[number].max(), abs=1e-5)
        assert one["top"][0] == {"prediction": one["prediction"], "confidence": one["confidence"]}
        assert one["top"][1]["confidence"] == pytest.approx(np.sort(expected[number])[-2], abs=1e-5)
        assert one["unlike"] == (one["novelty"] > 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "tiny.toml"]


def test_a_filter_writes_nothing_but_lines(epass: Epass, trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert epass("predict", trained.folder, "-", "--json") == (0, "", "")
    answer = epass("predict", trained.folder, "-", "--probabilities", "x.npy")
    assert (answer.code, answer.out) == (2, "")
    assert "'-' writes no file: leave out --probabilities, and say --top 10 to get all." in answer.err


def test_json_for_programs(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    save_digits(tmp_path / "new", 30)
    (tmp_path / "new" / "bad.png").write_text("nothing")

    answer = epass("predict", trained.folder, "new", "--json", "--device", "cpu")

    assert answer.code == 1
    found = json.loads(answer.out)
    assert (found["run"], found["data"], found["out"]) == (str(trained.folder), "new", "predictions.csv")
    assert found["images"] == sum(found["predictions"].values()) == 30
    assert found["unreadable"] == {"bad.png": "cannot be read (not an image): replace or remove it"}
    confidences = [entry["confidence"] for entry in found["least_certain"]]
    assert len(confidences) == 10
    assert confidences == pytest.approx(np.sort(probabilities(trained.folder)[:30].max(1))[:10].tolist())
    assert found["doubt"]["limit"] == pytest.approx(np.quantile(probabilities(trained.folder).max(1), 0.1))
    assert len(rows()) == 31


def answers(confidences: list[float]) -> list[Answer]:
    return [Answer(f"{number}.png", ["a"], [share]) for number, share in enumerate(confidences)]


def test_many_doubtful_images_are_worth_a_sentence() -> None:
    test = np.array([[share, 1 - share] for share in np.linspace(0.5, 1, 101)[:-1]])

    found = doubts(answers([0.54] * 25 + [0.56] * 75), test)

    assert found is not None
    assert found.limit == pytest.approx(0.5495)
    assert (found.images, found.many) == (25, True)
    fewer, few = doubts(answers([0.54] * 24 + [0.56] * 76), test), doubts(answers([0.54] * 19), test)
    assert fewer is not None
    assert few is not None
    assert (fewer.many, few.many) == (False, False)
    assert doubts(answers([0.5] * 100), None) is None


def test_the_sentence_is_said(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    save_digits(tmp_path / "new", 30)
    run = tmp_path / "sure"
    shutil.copytree(trained.folder, run, ignore=shutil.ignore_patterns("checkpoints"))
    np.savez(run / "predictions.npz", logits=np.eye(10, dtype=np.float32) * 50, labels=np.arange(10))

    answer = epass("predict", "sure", "new")

    assert "30 of 30 images are less certain than nine tenths of the run's test images (below 100.0 %)" in answer.out


def test_images_of_another_kind_are_told_however_certain_the_answers(
    epass: Epass, trained: Trained, tmp_path: Path
) -> None:
    save_digits(tmp_path / "new", 60)
    (tmp_path / "blank").mkdir()
    for number in range(30):
        Image.new("L", (8, 8), 226 + number).save(tmp_path / "blank" / f"{number}.png")

    sentence = "look unlike the run's test images, of which 5 % would"
    assert sentence not in epass("predict", trained.folder, "new").out
    answer = epass("predict", trained.folder, "blank")
    found = re.search(rf"(\d+) of 30 images {sentence}: if they are of another kind", " ".join(answer.out.split()))
    assert found is not None
    assert "less certain than" not in answer.out  # one sentence is enough
    told = json.loads(epass("predict", trained.folder, "blank", "--json").out)
    assert told["unlike"] == int(found[1]) > 15

    shutil.copytree(trained.folder, "old", ignore=shutil.ignore_patterns("checkpoints", "embeddings.safetensors"))
    assert sentence not in epass("predict", "old", "blank").out  # what it saw was not kept
    assert json.loads(epass("predict", "old", "blank", "--json").out)["unlike"] is None


def test_odd_names_are_whole_in_the_table_and_harmless_on_the_screen(
    epass: Epass, trained: Trained, tmp_path: Path
) -> None:
    save_digits(tmp_path / "new", 1)
    image = (tmp_path / "new" / "0" / "000.png").read_bytes()
    shutil.rmtree(tmp_path / "new" / "0")
    for name in ("a,\u202fb.png", "red\x1b[31m\nx.png"):
        (tmp_path / "new" / name).write_bytes(image)

    answer = epass("predict", trained.folder, "new")

    assert answer.code == 0, answer.err
    assert [row["file"] for row in rows()] == ["a,\u202fb.png", "red\x1b[31m\nx.png"]
    assert "\x1b" not in answer.out
    assert "red\ufffd[31m\ufffdx.png" in answer.out


def test_a_table_without_answers_has_its_columns() -> None:
    assert as_csv([], 2, more=["set"]) == b"file,prediction,confidence,prediction_2,confidence_2,set,error\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere", "new"), "There is no run at 'nowhere'."),
        (("new", "new"), "'new' is not a run folder, and no exported one"),
        (("RUN", "old"), "There is no file or folder 'old'"),
        (("RUN", ""), "There is no file or folder ''"),
        (("RUN", "empty"), "'empty' holds no image"),
        (("RUN", "tiny.toml"), "'tiny.toml' is neither an image nor holds any"),
        (("RUN", "new", "--top", "0"), "--top 0 is not possible"),
        (("RUN", "new", "--top", "11"), "knows 10 classes"),
        (("RUN", "new", "--out", "none/x.csv"), "'none/x.csv' cannot be written"),
        (("RUN", "new", "--out", "new/0/000.png"), "ends in .csv"),
        (("RUN", "list.csv", "--out", "./list.csv"), "would be replaced"),
        (("RUN", "new", "--probabilities", "x.txt"), "ends in .csv, .npy, .parquet"),
        (("RUN", "new", "--probabilities", "predictions.csv"), "'predictions.csv' cannot be both tables"),
        (("RUN", "list.csv", "--probabilities", "list.csv"), "would be replaced: choose another file with --prob"),
        (("RUN", "new", "--device", "cdua"), "did you mean 'cuda'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_a_mistake_in_a_prediction_is_one_sentence(
    epass: Epass, trained: Trained, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    save_digits(tmp_path / "new", 2)
    (tmp_path / "empty").mkdir()
    (tmp_path / "list.csv").write_text("path\nnew/0/000.png\n")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    answer = epass("predict", *(str(trained.folder) if word == "RUN" else word for word in arguments))

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
    assert words in answer.err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("lacks", ["model.json", "model.safetensors"])
def test_a_run_that_is_not_finished(epass: Epass, trained: Trained, tmp_path: Path, lacks: str) -> None:
    save_digits(tmp_path / "new", 1)
    shutil.copytree(trained.folder, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints", lacks))

    answer = epass("predict", "run", "new")

    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "Error: 'run' holds no finished model yet: resume the run first.\n"


def test_damaged_weights_are_named(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    save_digits(tmp_path / "new", 1)
    shutil.copytree(trained.folder, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    (tmp_path / "run" / "model.safetensors").write_bytes(b"nothing")

    answer = epass("predict", "run", "new")

    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("Error: 'run/model.safetensors' is damaged: ")
