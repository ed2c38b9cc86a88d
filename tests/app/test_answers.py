"""What the application answers a program: events, values, refusals, and not a word on the screen."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from PIL import Image

from epass.app.bench import bench
from epass.app.check import check
from epass.app.compare import compare
from epass.app.download import download
from epass.app.evaluate import evaluate
from epass.app.events import Caution, Notice, Result, Section, Table, Work
from epass.app.listing import datasets, methods, networks, recipes
from epass.app.predict import predict
from epass.app.report import report
from epass.app.reproduce import parameters, reproduce
from epass.app.train import train
from epass.app.words import file_size
from epass.cli import main
from epass.engine import timing
from epass.errors import InputError
from epass.runs import load_run
from tiny_recipe import tiny_recipe

Ask = Callable[[], Work]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, two images of which one is damaged, and data with a leak; tests must not change them."""
    home = tmp_path_factory.mktemp("answers")
    (home / "tiny.toml").write_text(tiny_recipe())
    with pytest.warns(UserWarning, match="hardly better than guessing"):
        train(recipe=str(home / "tiny.toml"), out=home / "run", device="cpu").result()
    (home / "images").mkdir()
    Image.fromarray(np.zeros((8, 8), dtype=np.uint8)).save(home / "images" / "good.png")
    (home / "images" / "bad.png").write_text("nothing")
    pixels = np.random.default_rng(0).integers(0, 255, (44, 8, 8), dtype=np.uint8)
    arrays = {"train_images": pixels[:40], "train_labels": np.arange(40) % 2}
    np.savez(home / "leak.npz", **arrays, test_images=pixels[36:], test_labels=np.arange(8) % 2)
    return home


@pytest.fixture(autouse=True)
def _elsewhere(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of its own, in which those things have the same names."""
    for entry in place.iterdir():
        (tmp_path / entry.name).symlink_to(entry)
    monkeypatch.chdir(tmp_path)


def typed(*words: str) -> tuple[int, str, str]:
    """Exit code, output and complaints of a command."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with patch.object(sys, "argv", ["epass", *words]), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return code, out.getvalue(), err.getvalue()


def name_of(value: object) -> str:
    return " ".join(value) if isinstance(value, list) else ""


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: evaluate("run"), ["evaluate", "run"]),
        (lambda: predict(Path("run"), Path("images")), ["predict", "run", "images"]),
        (lambda: check(Path("leak.npz"), labels=40), ["check", "leak.npz", "--labels", "40"]),
        (lambda: check("digits"), ["check", "digits"]),
        (lambda: report("run", maps=False), ["report", "run", "--no-maps"]),
        (lambda: report(["run", Path("nowhere")], maps=False), ["report", "run", "nowhere", "--no-maps"]),
        (lambda: download(), ["download"]),
        (lambda: methods(), ["methods"]),
        (lambda: methods("simmatch"), ["methods", "simmatch"]),
        (lambda: networks(), ["networks"]),
        (lambda: datasets(), ["datasets"]),
        (lambda: datasets(Path("images")), ["datasets", "images"]),
        (lambda: recipes(), ["recipes"]),
        (lambda: recipes("digits-simmatch"), ["recipes", "digits-simmatch"]),
        (lambda: parameters(out="tables"), ["reproduce", "parameters", "--out", "tables"]),
        (lambda: reproduce("strategies", dry_run=True), ["reproduce", "strategies", "--dry-run"]),
        (lambda: reproduce("usb", only="uda"), ["reproduce", "usb", "--only", "uda"]),
    ],
    ids=name_of,
)
def test_a_program_gets_what_the_command_prints_as_json(
    ask: Ask, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    *others, result = ask()

    assert capsys.readouterr() == ("", "")
    assert isinstance(result, Result)
    assert not any(isinstance(event, Result) for event in others)
    assert all(Path(file).exists() for file in result.files.values())
    code, out, _ = typed(*words, "--json")
    assert json.loads(out) == json.loads(json.dumps(result.values))
    assert code == int(bool(result.complaint or result.partial))


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: predict("nowhere", "images"), ["predict", "nowhere", "images"]),
        (lambda: predict("run", "images", out="no/x.csv"), ["predict", "run", "images", "--out", "no/x.csv"]),
        (lambda: predict("run", "images", top=11), ["predict", "run", "images", "--top", "11"]),
        (lambda: predict("run", ""), ["predict", "run", ""]),
        (lambda: check("digts"), ["check", "digts"]),
        (lambda: check("digits", out="no/x.html"), ["check", "digits", "--out", "no/x.html"]),
        (lambda: report(["run"], out="."), ["report", "run", "--out", "."]),
        (lambda: report("nowhere"), ["report", "nowhere"]),
        (lambda: report("run", figures="tiny.toml"), ["report", "run", "--figures", "tiny.toml"]),
        (lambda: bench(method="simatch"), ["bench", "--method", "simatch"]),
        (lambda: bench("digits", classes=3), ["bench", "digits", "--classes", "3"]),
        (lambda: bench(out="no/x.json"), ["bench", "--out", "no/x.json"]),
        (lambda: download("svnh"), ["download", "svnh"]),
        (lambda: methods("simatch"), ["methods", "simatch"]),
        (lambda: datasets("nowhere"), ["datasets", "nowhere"]),
        (lambda: recipes("none-such"), ["recipes", "none-such"]),
        (lambda: parameters(out="tiny.toml"), ["reproduce", "parameters", "--out", "tiny.toml"]),
        (lambda: reproduce("projectors", scale=0), ["reproduce", "projectors", "--scale", "0"]),
        (lambda: reproduce("classic", only="udo"), ["reproduce", "classic", "--only", "udo"]),
        (lambda: reproduce("classic", settings=["seed=1"]), ["reproduce", "classic", "--set", "seed=1"]),
    ],
    ids=name_of,
)
def test_it_refuses_in_the_words_of_the_command(
    ask: Ask, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.iterdir())
    work = ask()  # which does nothing yet

    with pytest.raises(InputError) as refusal:
        work.result()

    assert capsys.readouterr() == ("", "")
    assert typed(*words) == (2, "", f"Error: {refusal.value}\n")
    assert sorted(tmp_path.iterdir()) == before


def test_what_only_python_can_say() -> None:
    with pytest.raises(InputError, match="Unknown table 'clasic': did you mean 'classic'"):
        reproduce("clasic").result()
    with pytest.raises(InputError, match="Name at least one run folder"):
        report([]).result()


def test_predictions_are_told_in_parts() -> None:
    summary, table, *others, left_out, where, result = predict("run", "images", out="named.csv")

    assert isinstance(summary, Section)
    assert summary.title == "1 image of images, by run"
    assert list(summary.facts.values()) == ["1 image, 100.0 %"]
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["good.png"]
    assert not any(isinstance(event, Caution) for event in others)
    reason = "bad.png cannot be read (not an image): replace or remove it"
    assert left_out == Section("1 image without an answer:", lines=[reason])
    assert where == Notice("Every image with its class: named.csv")
    assert isinstance(result, Result)
    assert result.partial
    assert result.files == {"table": Path("named.csv")}
    assert result.values["predictions"] == {table.rows[0][1]: 1}


def test_findings_are_told_in_parts() -> None:
    sections = [event for event in check("leak.npz", labels=40, out="page.html") if isinstance(event, Section)]

    assert sections[0].title.startswith("4 test images (50.0%) can be answered from memory")
    assert sections[1].title == "Check of leak"
    assert sections[1].facts["leaks, labeled"] == "4 test images (4 exact)"
    assert sections[2].title == "Test images among the labeled ones"
    assert sections[2].lines[0] == "test 0 (test, 0) = train 36 (labeled, 0), exact 1.00"
    assert Path("page.html").exists()


def test_a_result_that_is_no_better_than_guessing_is_told_wherever_it_is_shown() -> None:
    said = " is hardly better than guessing: "
    settings = ["net.width=4", "plan.labeled_batch=4"]
    same: dict[str, Any] = {"steps": 1, "device": "cpu", "settings": settings}
    works = [
        train("digits", method="fixmatch", out="new", **same),
        compare("digits", methods="pi_model", seeds=1, out="out", **same),
        evaluate("new", device="cpu"),
        report(["new"], maps=False),
    ]
    told = [[event.sentence for event in work if isinstance(event, Caution)] for work in works]
    assert [[sentence.partition(said)[0] for sentence in each] for each in told] == [
        ["The result of FixMatch"],
        ["The result of labels only", "The result of Pi-Model"],
        ["The result of this model"],
        ["The result of FixMatch"],
    ]
    results = load_run("new").results
    assert results is not None
    assert results["alarms"] == told[2]
    assert said in Path("report.html").read_text(encoding="utf-8")


def test_a_run_that_cannot_be_shown_is_a_caution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.evaluation.alarms.is_near_chance", lambda pairs: False)
    caution, page, result = report(["nowhere", "run"], maps=False, title="Both")

    assert caution == Caution("There is no run at 'nowhere'.", "Left out")
    assert page == Notice(f"Open the page: {Path('report.html').resolve()}")
    assert isinstance(result, Result)
    assert result.values == {
        "title": "Both",
        "runs": ["run"],
        "left_out": {"nowhere": "There is no run at 'nowhere'."},
        "warnings": [],
        "files": {"page": "report.html"},
    }


def test_a_table_of_the_paper_is_trained_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    events = list(reproduce("strategies", only="simmatch+3", columns="concat,mean", scale=0.0001, out="out"))

    assert capsys.readouterr() == ("", "")
    (table,) = [event for event in events if isinstance(event, Table)]
    assert table.title == "Combining three projectors: top-1 accuracy"
    assert any("Not comparable" in note for note in table.notes)
    result = events[-1]
    assert isinstance(result, Result)
    assert not result.complaint
    assert [cell["strategy"] for cell in result.values] == ["concat", "mean"]
    error = load_run("out/simmatch+3-concat-0").results["last"]["error"]  # type: ignore[index]
    assert result.values[0]["ours"] == pytest.approx(100 * (1 - error), abs=1e-4)
    assert result.files == {kind: Path(f"out/table.{kind}") for kind in ("csv", "md", "tex")}


def test_a_timed_step_is_a_result_with_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "warm_up", lambda work, device: 1.0)
    small: dict[str, Any] = {"net": "small", "labeled_batch": 4, "unlabeled_ratio": 2, "steps": 1, "device": "cpu"}

    (result,) = bench(Path("leak.npz"), **small, out=Path("speed.json"))

    assert isinstance(result, Result)
    assert json.loads(Path("speed.json").read_text()) == result.values
    assert result.values["arguments"]["data"] == "leak.npz"
    assert result.values["arguments"]["labeled_batch"] == 4
    assert result.values["environment"]["command"] == ""  # nobody typed one
    assert result.facts["batch"].startswith("4 labeled + 8 unlabeled")


def test_a_result_is_asked_for_once() -> None:
    work = networks()

    assert "not done yet" in repr(work)
    assert work.result().values["small"]["features"] > 0
    with pytest.raises(RuntimeError, match="networks was iterated over before"):
        work.result()


def test_cautions_become_warnings_of_python_and_nothing_else_does() -> None:
    cautions = Caution("Look here."), Caution("One run failed.", "Error")
    done = Work(iter([Notice("All is well."), *cautions, Result(title="done")]), "do")
    with pytest.warns(UserWarning) as warned:  # noqa: PT030  (the whole sentences are compared)
        assert done.result().title == "done"
    assert [str(one.message) for one in warned] == ["Look here.", "Error: One run failed."]


@pytest.mark.parametrize(
    ("count", "words"),
    [(1, "1 byte"), (999, "999 bytes"), (1000, "1.0 kB"), (246_316_178, "246.3 MB"), (2 * 10**12, "2.0 TB")],
)
def test_the_size_of_a_file_in_words(count: int, words: str) -> None:
    assert file_size(count) == words
