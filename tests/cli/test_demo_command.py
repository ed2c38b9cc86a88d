"""`epass demo` as people run it: the table, the verdict and the page must say what the runs say."""

from __future__ import annotations

import inspect
import json
import re
import statistics
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from calling import Answer, Epass, call

from epass.app.demo import CONTENDERS, demo, outcome_row, recipe_for
from epass.report import group_runs, verdict
from epass.runs import load_run

STEPS = 6
KINDS = {"labels only": "supervised", "SimMatch": "simmatch", "SimMatch + EPASS (3)": "simmatch-epass"}


class Shown(NamedTuple):
    out: Path
    answer: Answer


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """A finished demo; tests must not change it."""
    out = tmp_path_factory.mktemp("demo") / "out"
    answer = call("demo", "--steps", str(STEPS), "--seeds", "2", "--out", out)
    assert answer.code == 0, answer.err
    return Shown(out, answer)


def results(out: Path, kind: str, seeds: int = 2) -> list[dict[str, Any]]:
    return [json.loads((out / f"{kind}-{seed}" / "results.json").read_text()) for seed in range(seeds)]


def mean_and_std(values: list[float]) -> str:
    return f"{100 * statistics.mean(values):.1f} ± {100 * statistics.pstdev(values):.1f} %"


def table(text: str) -> dict[str, list[str]]:
    """The lines of the table, split where columns are at least three spaces apart."""
    lines = text.splitlines()
    head = next(number for number, line in enumerate(lines) if "test error" in line and "seconds" in line)
    assert lines[head].split() == ["test", "error", "accuracy", "ECE", "seconds", "seeds"]
    found = {}
    for line in lines[head + 1 :]:
        if not line.strip():
            break
        label, *cells = re.split(r"\s{3,}", line.strip())
        found[label] = cells
    return found


def test_three_seeds_and_forty_labels_unless_asked_otherwise() -> None:
    defaults = {name: parameter.default for name, parameter in inspect.signature(demo).parameters.items()}
    assert {"seeds": 3, "labels": 40, "steps": None, "out": "runs/demo"}.items() <= defaults.items()
    steps = {recipe_for(method, size, 0, 40, None).plan["steps"] for method, size in CONTENDERS}
    assert len(steps) == 1


def test_it_says_what_it_does_and_reports_every_run(shown: Shown) -> None:
    first, *lines = shown.answer.out.splitlines()
    assert first == (
        "Training 6 small networks on scans of digits, 40 of them labeled: 3 ways of training, 2 seeds each."
    )
    told = {line.strip() for line in lines if line.startswith("  ") and "after" in line}
    assert len(told) == 6
    for label, kind in KINDS.items():
        for seed, result in enumerate(results(shown.out, kind)):
            error, seconds = 100 * result["last"]["error"], result["seconds"]
            assert f"{label}, seed {seed}: {error:.1f} % test error after {seconds:.0f} s" in told
    assert shown.answer.err == ""
    assert "\x1b" not in shown.answer.out


def test_six_finished_runs_that_differ_in_nothing_but_method_projectors_and_seed(shown: Shown) -> None:
    assert {path.name for path in shown.out.iterdir()} == {
        *(f"{kind}-{seed}" for kind in KINDS.values() for seed in range(2)),
        "report.html",
    }
    for kind in KINDS.values():
        for seed in range(2):
            run = load_run(shown.out / f"{kind}-{seed}")
            assert run.recipe["seed"] == run.environment["seed"] == seed
            assert run.recipe["data"] == {"name": "digits", "labels": 40}
            assert run.recipe["method"]["name"] == kind.partition("-")[0]
            assert run.recipe.get("projector", {}).get("size") == {"simmatch-epass": 3, "simmatch": 1}.get(kind)
            assert run.environment["command"] == "epass demo"
            assert run.results is not None
            assert run.results["steps"] == STEPS
            assert (run.results["labels"], run.results["images"]) == (40, 1442)


def test_every_figure_of_the_table_is_that_of_the_runs(shown: Shown) -> None:
    found = table(shown.answer.out)
    assert list(found) == list(KINDS)
    for label, kind in KINDS.items():
        runs = results(shown.out, kind)
        assert found[label] == [
            mean_and_std([run["last"]["error"] for run in runs]),
            mean_and_std([1 - run["last"]["error"] for run in runs]),
            mean_and_std([run["last"]["ece"] for run in runs]),
            f"{statistics.mean(run['seconds'] for run in runs):.0f}",
            "2",
        ]


def test_a_row_shows_the_mean_of_the_seconds_and_both_spreads(shown: Shown) -> None:
    # two runs of a few steps take "0" seconds: with other numbers it can be seen where each column comes from
    runs = [load_run(shown.out / f"simmatch-{seed}") for seed in range(2)]
    for run, error, ece, seconds in zip(runs, (0.1, 0.2), (0.03, 0.05), (61.0, 64.0), strict=True):
        assert run.results is not None
        run.results["last"].update(error=error, accuracy=1 - error, ece=ece)
        run.results["seconds"] = seconds
    (group,) = group_runs(runs)
    assert outcome_row(group) == ["SimMatch", "15.0 ± 5.0 %", "85.0 ± 5.0 %", "4.0 ± 1.0 %", "62", "2"]


def test_the_verdict_says_whether_and_by_how_much(shown: Shown) -> None:
    runs = [load_run(shown.out / f"{kind}-{seed}") for kind in KINDS.values() for seed in range(2)]
    lines = [line for line in shown.answer.out.splitlines() if line.startswith("The unlabeled images ")]
    assert lines == [verdict(group_runs(runs))]
    (sentence,) = lines

    means = {
        label: 100 * statistics.mean(run["last"]["error"] for run in results(shown.out, kind))
        for label, kind in KINDS.items()
    }
    best = min(("SimMatch", "SimMatch + EPASS (3)"), key=lambda label: means[label])
    gain = means[best] - means["labels only"]
    assert f"{best}, the best of 2 configurations, ends at {means[best]:.2f} % test error" in sentence
    assert f"against {means['labels only']:.2f} % with labels only" in sentence
    assert f", {abs(gain):.2f} points {'less' if gain < 0 else 'more'} " in sentence
    assert "the noise of 2 seeds" in sentence
    assert "EPASS" in sentence.partition("test images. ")[2]


def test_the_page_is_there_and_its_path_is_told(shown: Shown) -> None:
    last = shown.answer.out.splitlines()[-1]
    found = re.fullmatch(r"6 runs in \d+ s\. Open the page: (.+)", last)
    assert found
    page = Path(found[1])
    assert page.is_absolute()
    assert page == (shown.out / "report.html").resolve()
    text = page.read_text(encoding="utf-8")
    assert "Digits with 40 labels" in text
    for label in KINDS:
        assert label in text


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one core the demo trains without processes of its own, which take seconds to start."""
    monkeypatch.setattr("epass.app.demo.count_cores", lambda: 1)


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_again_with_other_settings_replaces_the_runs(epass: Epass) -> None:
    assert epass("demo", "--steps", "2", "--seeds", "1").code == 0
    old = {path: path.read_bytes() for path in Path("runs/demo").rglob("model.safetensors")}
    assert len(old) == 3
    Path("runs/demo/simmatch-0/notes.txt").write_text("mine")

    answer = epass("demo", "--steps", "3", "--seeds", "1", "--labels", "20")

    assert answer.code == 0, answer.err
    assert "20 of them labeled: 3 ways of training, 1 seed each." in answer.out
    for path, data in old.items():
        assert path.read_bytes() != data
        assert load_run(path.parent).recipe["plan"]["steps"] == 3
        assert [row["step"] for row in load_run(path.parent).metrics][-1] == 3
    assert Path("runs/demo/simmatch-0/notes.txt").read_text() == "mine"
    assert answer.out.endswith(f"Open the page: {Path('runs/demo/report.html').resolve()}\n")
    assert re.search(r"(One seed cannot tell whether|On this one seed) the unlabeled images", answer.out)
    assert "Digits with 20 labels" in Path("runs/demo/report.html").read_text(encoding="utf-8")
    assert table(answer.out)["labels only"][-1] == "1"


@pytest.mark.parametrize("name", ["simmatch-0", "supervised-1", "simmatch-epass-1"])
def test_a_folder_of_somebody_else_is_refused_before_anything_is_trained(epass: Epass, name: str) -> None:
    Path("out", name).mkdir(parents=True)
    Path("out", name, "thesis.txt").write_text("mine")

    answer = epass("demo", "--steps", "2", "--seeds", "2", "--out", "out")

    assert (answer.code, answer.out) == (2, "")
    assert answer.err == f"Error: 'out/{name}' is not empty and holds no run; choose another folder for this one.\n"
    assert [str(path) for path in Path("out").rglob("*")] == [f"out/{name}", f"out/{name}/thesis.txt"]


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_an_empty_folder_is_no_obstacle(epass: Epass) -> None:
    Path("out/simmatch-0").mkdir(parents=True)

    assert epass("demo", "--steps", "1", "--seeds", "1", "--out", "out").code == 0
    assert Path("out/simmatch-0/results.json").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--labels", "45"], "45 labels cannot be shared equally by 10 classes: use 40 or 50."),
        (["--labels", "0"], "data.labels must be at least 1, not 0."),
        (["--labels", "3000"], "use at most 1400 labels."),
    ],
)
def test_labels_that_cannot_be_had_are_one_sentence(epass: Epass, arguments: list[str], words: str) -> None:
    answer = epass("demo", "--steps", "2", "--seeds", "2", "--out", "out", *arguments)

    assert answer.code == 2
    assert answer.err.startswith("Error: ")
    assert answer.err.endswith(f"{words}\n")
    assert answer.err.count("\n") == 1
    assert not Path("out").exists()


@pytest.mark.parametrize("arguments", [["--seeds", "0"], ["--steps", "0"], ["--seeds", "many"]])
def test_numbers_that_make_no_sense_are_a_usage_error(epass: Epass, arguments: list[str]) -> None:
    answer = epass("demo", *arguments)

    assert answer.code == 2
    assert arguments[0] in answer.err
    assert not Path("runs").exists()
