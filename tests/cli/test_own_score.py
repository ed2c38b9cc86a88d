"""A score of one's own: one entry, and every place that shows scores shows it; and one that only a run folder knows."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from calling import Epass, Trained

from epass.evaluation import SCORES, Outputs, Score, add_score

NAME, HEAD = "mean confidence", "confidence, %"


def confidence(outputs: Outputs) -> float:
    return float(outputs.probs.max(axis=1).mean())


@pytest.fixture
def mine() -> Iterator[None]:
    add_score(
        Score("confidence", NAME, "mean of the highest probability", "higher", confidence, short="confidence", digits=1)
    )
    yield
    del SCORES["confidence"]


def page_table(page: Path) -> list[list[str]]:
    """The cells of the table of results."""
    table = page.read_text(encoding="utf-8").partition('<table class="results stacked">')[2].partition("</table>")[0]
    rows = re.findall("<tr.*?</tr>", table)
    return [[unescape(re.sub("<.*?>", "", cell)) for cell in re.findall("<t[hd].*?</t[hd]>", row)] for row in rows]


def expected(run: Path) -> float:
    logits = np.load(run / "predictions.npz")["logits"].astype(np.float64)
    odds = np.exp(logits - logits.max(1, keepdims=True))
    return float((1 / odds.sum(1)).mean())


@pytest.mark.usefixtures("mine")
def test_one_entry_is_trained_evaluated_and_reported(epass: Epass, trained: Trained) -> None:
    answer = epass("train", "--recipe", "tiny.toml", "--out", "mine")

    assert answer.code == 0, answer.err
    stored = json.loads(Path("mine/results.json").read_text())["last"]
    value = pytest.approx(expected(Path("mine")))
    assert stored["confidence"] == value
    shown = f"{100 * stored['confidence']:.1f} %"
    assert re.search(rf"^  {NAME} +{shown}$", answer.out, re.M)
    rows = [json.loads(line) for line in Path("mine/metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["test_confidence"] == value
    assert re.search(rf"^  {NAME} +{shown}$", epass("evaluate", "mine").out, re.M)
    assert json.loads(epass("evaluate", "mine", "--json").out)["scores"] == stored

    assert epass("report", "mine", "--card", "card.md", "--no-maps").code == 0
    card = Path("card.md").read_text(encoding="utf-8")
    assert f"| {NAME}, last step | {shown} |" in card
    assert "- Mean confidence: mean of the highest probability (higher is better)." in card
    # a run from before the score was there
    assert epass("report", "mine", trained.folder, "--no-maps").code == 0
    heads, *groups = page_table(Path("report.html"))
    cells = {row[0]: row[heads.index(HEAD)] for row in groups}
    assert cells == {"SimMatch": shown.removesuffix(" %"), "SimMatch + EPASS (3)": "–"}
    assert "mean of the highest probability (higher is better)." in Path("report.html").read_text(encoding="utf-8")
    assert epass("report", trained.folder, "--card", "old.md", "--no-maps").code == 0
    assert f"| {NAME}, last step | – |" in Path("old.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("mine")
def test_one_entry_is_compared(epass: Epass) -> None:
    grid = ("--methods", "fixmatch", "--labels", "40", "--seeds", "1", "--steps", "3")
    answer = epass("compare", "digits", *grid, "--out", "out")

    assert answer.code == 0, answer.err
    values = {name: expected(Path("out") / f"{name}-0") for name in ("supervised", "fixmatch")}
    on_screen = [re.split(" {2,}", line.strip()) for line in answer.out.splitlines()]
    table = Path("out/table.md").read_text(encoding="utf-8")
    in_file = [[cell.strip("* ") for cell in line.split(" | ")] for line in table.splitlines() if line.startswith("| ")]
    for rows in (on_screen, in_file):
        place = next(row.index(HEAD) for row in rows if HEAD in row)
        for label, name in (("labels only", "supervised"), ("FixMatch", "fixmatch")):
            row = next(row for row in rows if row[0].strip("|* ") == label)
            assert row[place] == f"{100 * values[name]:.1f}"
    assert "Mean confidence: mean of the highest probability (higher is better)." in table
    record = json.loads(Path("out/comparison.json").read_text(encoding="utf-8"))
    assert {run["method"]: run["confidence"] for run in record["runs"]} == pytest.approx(values)
    assert [group["confidence"]["mean"] for group in record["methods"]] == pytest.approx(list(values.values()))
    with Path("out/results.csv").open(newline="") as file:
        assert {row["method"]: float(row["confidence"]) for row in csv.DictReader(file)} == pytest.approx(values)
    assert page_table(Path("out/report.html"))[0][6:8] == ["NLL", HEAD]


def test_a_score_that_only_the_run_knows_is_shown_under_its_key(epass: Epass, trained: Trained) -> None:
    from epass.report import comparison_record
    from epass.runs import load_run

    Path("run").mkdir()
    for file in trained.folder.iterdir():
        if file.is_file():
            (Path("run") / file.name).write_bytes(file.read_bytes())
    results = json.loads(Path("run/results.json").read_text())
    results["last"] |= {"theirs": 0.123456, "<script>": 2, "method": 3, "words": "no number"}
    Path("run/results.json").write_text(json.dumps(results))

    assert epass("report", "run", "--card", "card.md", "--no-maps").code == 0

    heads, cells = page_table(Path("report.html"))
    assert list(zip(heads, cells, strict=True))[7:-1] == [
        ("theirs", "0.1235"),
        ("_script_", "2.0000"),
        ("method", "3.0000"),
    ]
    assert "<script>" not in Path("report.html").read_text(encoding="utf-8")
    card = Path("card.md").read_text(encoding="utf-8")
    assert "| theirs, last step | 0.1235 |" in card
    record = comparison_record([load_run("run")], title="", missing={})
    assert (record["runs"][0]["theirs"], record["runs"][0]["method"]) == (0.123456, "simmatch")
