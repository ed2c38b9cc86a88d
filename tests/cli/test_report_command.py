from __future__ import annotations

import io
import json
import re
import shutil
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from calling import RECIPE, Epass, Trained, call

from epass.runs import load_run


@pytest.fixture(scope="session")
def validated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that kept a fifth of its labels for validation; tests must not change it."""
    home = tmp_path_factory.mktemp("validated")
    (home / "tiny.toml").write_text(RECIPE)
    line = ("train", "--recipe", home / "tiny.toml", "--set", "data.validation=0.25", "--out", home / "run")
    answer = call(*line)
    assert answer.code == 0, answer.err
    return home / "run"


def copies(trained: Trained, home: Path, *names: str) -> list[Path]:
    return [Path(shutil.copytree(trained.folder, home / name)) for name in names]


def written(home: Path) -> list[str]:
    return sorted(path.name for path in home.iterdir() if path.is_file() and path.name != "tiny.toml")


def test_the_page_of_one_run(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    answer = epass("report", trained.folder)

    assert (answer.code, answer.err) == (0, "")
    assert answer.out == f"Open the page: {tmp_path / 'report.html'}\n"
    assert written(tmp_path) == ["report.html"]
    page = Path("report.html").read_text()
    assert "<h1>SimMatch + EPASS (3) on digits, 40 labels</h1>" in page
    assert "two-fold cross-fitting on the test images" in page


def test_several_runs_and_a_title(epass: Epass, trained: Trained, validated: Path, tmp_path: Path) -> None:
    answer = epass(
        "report", trained.folder, validated, f"{trained.folder}/", "--out", "both.html", "--title", "A < B", "--no-maps"
    )

    assert (answer.code, answer.err) == (0, "")
    page = Path("both.html").read_text()
    assert "<h1>A &lt; B</h1>" in page
    assert page.count('<tr><th scope="row">run</th>') == 2  # one of them was named twice
    assert "on the 10 validation images of the run" in page
    assert epass("report", trained.folder, validated, "--no-maps").code == 0
    assert "<h1>2 runs on digits</h1>" in Path("report.html").read_text()


def test_an_unfinished_run_is_shown(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    (folder,) = copies(trained, tmp_path, "early")
    for name in ("results.json", "model.json", "predictions.npz"):
        (folder / name).unlink()

    assert epass("report", folder).code == 0
    assert "1 unfinished" in Path("report.html").read_text()
    refused = epass("report", folder, "--card", "card.md", "--out", "other.html")
    assert (refused.code, refused.out) == (2, "")
    assert "no finished model yet" in refused.err
    assert written(tmp_path) == ["report.html"]


def test_the_page_has_maps_unless_told_otherwise(epass: Epass, trained: Trained) -> None:
    assert epass("report", trained.folder).code == 0
    assert Path("report.html").read_text().count("data-atlas=") == 1
    assert epass("report", trained.folder, "--no-maps").code == 0
    assert "data-atlas=" not in Path("report.html").read_text()


@pytest.mark.slow
def test_figures_for_a_paper(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    (folder,) = copies(trained, tmp_path, "old")
    (folder / "embeddings.safetensors").unlink()  # as in runs of an older version

    answer = epass("report", folder, "--figures", "paper")

    assert answer.code == 0
    reasons = [line.split(": ")[:2] for line in answer.err.splitlines()]
    assert reasons == [["No figure", "quantity-quality"], ["No figure", "map"]]  # no pseudo-label was used in six steps
    assert answer.out.startswith("Figures: 8 in paper\n")
    assert len(list(Path("paper").iterdir())) == 3 * 8
    without = epass("report", folder, "--no-maps", "--figures", "paper")
    assert "No figure: map" not in without.err


def test_a_collapse_is_told(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    (folder,) = copies(trained, tmp_path, "lost")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows[0]["coverage"], rows[-1]["coverage"] = 0.5, 0.0
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    answer = epass("report", folder, "--no-maps")

    assert answer.code == 0
    assert answer.err.startswith("Warning: SimMatch + EPASS (3) stopped using its unlabeled images: ")
    assert "<b>Warning:</b> SimMatch" in Path("report.html").read_text()


def spoil(folder: Path, name: str, content: bytes | None) -> None:
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)


def misfit() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, logits=np.zeros(3), labels=np.zeros(3, dtype=np.int64))
    return buffer.getvalue()


def shift_labels(folder: Path) -> None:
    with np.load(folder / "predictions.npz") as kept:
        arrays = dict(kept)
    np.savez(folder / "predictions.npz", **arrays | {"labels": np.roll(arrays["labels"], 1)})


def raise_error_by_an_image(folder: Path) -> None:
    results = json.loads((folder / "results.json").read_text())
    results["last"]["error"] += 1 / 355
    (folder / "results.json").write_text(json.dumps(results))


@pytest.mark.parametrize("spoiled", [shift_labels, raise_error_by_an_image])
def test_results_and_predictions_that_contradict_each_other_are_left_out(
    epass: Epass, trained: Trained, tmp_path: Path, spoiled: Callable[[Path], None]
) -> None:
    (bad,) = copies(trained, tmp_path, "bad")
    spoiled(bad)

    answer = epass("report", bad, trained.folder, "--no-maps")

    assert answer.code == 1
    assert re.fullmatch(
        rf"Left out: results\.json and predictions\.npz of '{bad}' disagree: a test error of [\d.]+ % and of [\d.]+ %; "
        r"copy both again\.\n",
        answer.err,
    )


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("recipe.toml", RECIPE.replace("format = 1", "format = 2").encode(), "this version reads recipes with"),
        ("recipe.toml", b"= 3", "is damaged"),
        (
            "recipe.toml",
            RECIPE.replace("size = 1", 'size = "x"').encode(),
            "its 'projector.size' is not",
        ),
        ("recipe.toml", None, "is not a run folder"),
        ("environment.json", b"[]", "no JSON object"),
        ("results.json", b'{"last": ', "is damaged"),
        ("results.json", b'{"last": {}}', "it lacks 'steps'"),
        ("metrics.jsonl", b'{"seconds": 1}\n{"seconds": 2}\n', "no object with a step"),
        ("metrics.jsonl", b"[]\n[]\n", "no object with a step"),
        ("predictions.npz", b"PK", "is damaged"),
        ("predictions.npz", misfit(), "do not fit together"),
        ("predictions.npz", None, "lacks predictions.npz"),
        ("model.json", None, "lacks model.json"),
    ],
)
def test_what_cannot_be_used_is_named_and_left_out(
    epass: Epass, trained: Trained, tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    (bad,) = copies(trained, tmp_path, "bad")
    spoil(bad, name, content)

    alone = epass("report", bad)
    assert (alone.code, alone.out, alone.err.count("\n")) == (2, "", 1)
    assert alone.err.startswith("Error: ")
    assert written(tmp_path) == []

    beside = epass("report", bad, trained.folder, "--no-maps")
    assert (beside.code, beside.err.count("\n")) == (1, 1)
    assert beside.err.startswith("Left out: ")
    assert words in beside.err
    assert "bad" in beside.err
    assert 'scope="row">bad<' not in Path("report.html").read_text()


def test_a_folder_of_runs_and_one_that_is_not_there(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    copies(trained, tmp_path, "all/first", "all/second")

    answer = epass("report", "all", "nowhere")

    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        "Error: 'all' is not a run, but holds 2: name them, 'all/first' for one.\n"
        "Error: There is no run at 'nowhere'.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a", "--out", "."), "'.' cannot be written"),
        (("a", "--card", "none/card.md"), "'none/card.md' cannot be written"),
        (("a", "b", "--card", "card.md"), "about one run, not 2"),
        (("a", "--figures", "tiny.toml"), "'tiny.toml' is a file"),
        (("a", "--card", "report.html"), "cannot both be 'report.html'"),
    ],
)
def test_a_mistake_in_a_report_is_one_sentence(
    epass: Epass, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    answer = epass("report", *arguments)

    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert words in answer.err
    assert written(tmp_path) == []


def test_the_card_says_what_the_run_says_and_its_code_runs(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    answer = epass("report", trained.folder, "--card", "card.md")

    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("Model card: card.md\n")
    card, run = Path("card.md").read_text(), load_run(trained.folder)
    assert run.results is not None
    assert f"{100 * run.results['last']['error']:.2f} %: the stored weights" in card
    for fact in ("labeled images trained on: 40", "test images: 355", "--recipe", "two-fold cross-fitting", "torch: 2"):
        assert fact in card
    assert "validation selected" not in card
    (code,) = re.findall(r"^```python\n(.*?)^```", card, re.M | re.S)
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(code, {})
    assert printed.getvalue().strip("['\n]") in json.loads((trained.folder / "model.json").read_text())["classes"]


def test_a_card_of_damaged_facts_is_refused(epass: Epass, trained: Trained, tmp_path: Path) -> None:
    (bad,) = copies(trained, tmp_path, "bad")
    (bad / "model.json").write_text('{"classes": []}')

    answer = epass("report", bad, "--card", "card.md")

    assert (answer.code, answer.out) == (2, "")
    assert answer.err == f"Error: '{bad}/model.json' is damaged: its 'classes' is not what a run writes there.\n"
    assert written(tmp_path) == []


def test_the_card_of_a_run_with_validation(epass: Epass, validated: Path) -> None:
    assert epass("report", validated, "--card", "card.md").code == 0

    card, run = Path("card.md").read_text(), load_run(validated)
    assert run.validation is not None
    assert run.validation.logits.shape == (10, 10)
    assert "labeled images kept back for validation: 10" in card
    assert "| test error, validation selected | " in card
    assert "on the 10 validation images of the run, which were neither trained on nor tested" in card
    assert "cross-fitting" not in card
