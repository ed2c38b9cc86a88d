from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from epass.evaluation import fit_temperature
from epass.report import page as page_module
from epass.report import write_page
from epass.runs import Predictions

VOID = {"meta", "br"}


class Reader(HTMLParser):
    """Collects tags, ids and text, and insists that every tag is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.words = ""
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data


def page_of(tmp_path, runs, title="A title"):
    path = write_page(tmp_path / "out" / "page.html", runs, title=title)
    text = path.read_text(encoding="utf-8")
    return text, Reader(text)


@pytest.fixture(scope="module")
def nine(make_runs, tmp_path_factory):
    """The page of three methods with three seeds each; drawn once, it takes seconds."""
    runs = (
        make_runs("supervised", [0.50, 0.52, 0.54])
        + make_runs("simmatch", [0.20, 0.23, 0.23])
        + make_runs("simmatch", [0.18, 0.20, 0.21], size=3)
    )
    return page_of(tmp_path_factory.mktemp("nine"), runs)


def test_the_whole_page(nine):
    text, page = nine
    assert "The unlabeled images helped" in page.words
    assert "EPASS" in page.words
    for heading in ("Results", "During training", "Pseudo-labels under the microscope", "Test images"):
        assert f"<h2>{heading}</h2>" in text
    for heading in ("Calibration and confusion", "How to reproduce"):
        assert f"<h2>{heading}</h2>" in text
    assert "52.00 ± 1.63" in page.words
    assert "best on test, as papers report" in page.words
    assert "test error, last step" in page.words
    assert page.tags.count("svg") == 5 + 2 + 3 * 3  # curves, two methods by class, three diagrams a group
    assert page.words.count("ECE") >= 4
    for fact in ("epass train --seed 2", "abc123", "2.13.0", "10 min"):
        assert fact in page.words
    assert set(re.findall(r'class="missing">([^<]*)', text)) == {
        "This run kept no features of its test images: runs of older versions did not."
    }
    assert "Warning" not in page.words
    assert len(text) < 1_500_000


def test_the_lowest_error_is_marked_unless_it_saw_all_labels(tmp_path, make_runs):
    runs = make_runs("supervised", [0.5]) + make_runs("simmatch", [0.2]) + make_runs("fully_supervised", [0.1])
    text, _ = page_of(tmp_path, runs)
    assert re.findall(r'<tr class="lowest"><th scope="row"><span>([^<]*)', text) == ["SimMatch"]


def test_it_needs_no_network_and_no_script(nine):
    text, page = nine
    assert not {"script", "link", "iframe"} & set(page.tags)
    assert not re.search(r'(?:src|href)\s*=\s*"(?!#|data:)', text)
    assert not re.search(r"@import|url\((?!#|data:)", text)
    assert "default-src 'none'" in text


def test_ids_are_unique_and_every_reference_has_its_target(nine):
    text, page = nine
    assert len(page.ids) == len(set(page.ids))
    assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', text)) <= set(page.ids)


def test_everything_given_is_escaped(tmp_path, make_run):
    evil = "<script>alert(1)</script>"
    run = make_run(evil, classes=[evil, "b", "c"])
    run.environment.update(command=f"epass {evil}", commit=evil)
    object.__setattr__(run, "name", evil)
    text, page = page_of(tmp_path, [run], title=evil)
    assert "script" not in page.tags
    assert "<script" not in text
    assert page.words.count(evil) >= 5
    assert "<script>aler" in page.words.replace(evil, "")  # the class name, shortened


def test_the_same_runs_give_the_same_page(tmp_path, make_run):
    assert page_of(tmp_path / "a", [make_run()])[0] == page_of(tmp_path / "b", [make_run()])[0]


def test_a_single_run(tmp_path, make_run):
    _, page = page_of(tmp_path, [make_run()])
    assert "cannot be said without a run with labels only" in page.words
    assert "10.00" in page.words
    assert "10.00 ±" not in page.words


def test_what_is_missing_is_explained(tmp_path, make_run):
    run = make_run("supervised", finished=False)
    run.metrics.clear()
    _, page = page_of(tmp_path, [run])
    for reason in ("was not measured", "No method here makes pseudo-labels", "was not recorded", "No predictions yet"):
        assert reason in page.words
    assert "0 (1 unfinished)" in page.words
    assert page.tags.count("svg") == 0


def test_diverged_predictions_do_not_cost_the_page(tmp_path, make_run):
    run = make_run()
    object.__setattr__(run, "predictions", Predictions(np.full((4, 3), np.nan, dtype=np.float32), np.arange(4) % 3))
    _, page = page_of(tmp_path, [run])
    assert "4 of 4 images are not finite" in page.words


def test_what_scaling_was_fitted_on_is_named(tmp_path, make_run):
    _, page = page_of(tmp_path, [make_run()])
    assert "two-fold cross-fitting on the test images" in page.words
    kept_back = make_run(seed=5).predictions
    _, page = page_of(tmp_path, [replace(make_run(), validation=kept_back)])
    assert "cross-fitting" not in page.words
    assert "on the 60 validation images of the run" in page.words
    assert f"The temperature is {fit_temperature(*kept_back):.2f}." in page.words


def test_scaling_changes_the_calibration_and_not_the_accuracy(tmp_path, make_run):
    run = make_run()
    sure = replace(run, predictions=Predictions(8 * run.predictions.logits, run.predictions.labels))
    _, page = page_of(tmp_path, [sure])
    before, after = (float(value) for value in re.findall(r"ECE (\d+\.\d+) %", page.words))
    assert after < before - 3
    assert len(set(re.findall(r"overall accuracy (\S+) %", page.words))) == 1


def test_where_no_temperature_fits_the_reason_is_there(tmp_path, make_run):
    right = Predictions(np.tile(np.eye(3, dtype=np.float32), (4, 1)), np.arange(12) % 3)
    _, page = page_of(tmp_path, [replace(make_run(), predictions=right)])
    assert "Temperature scaling: No temperature fits best: the 6 images are all right" in page.words
    assert page.tags.count("svg") == 5 + 2


def test_an_old_page_is_replaced(tmp_path, make_run):
    target = tmp_path / "page.html"
    target.write_text("old")
    assert write_page(str(target), [make_run()], title="new") == target
    assert "<title>new</title>" in target.read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == [target]


def test_importing_a_report_loads_neither_torch_nor_matplotlib():
    script = "import sys, epass.report; print({'torch', 'matplotlib', 'sklearn'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_of_many_ways_those_with_the_lowest_error_have_figures_of_their_own(tmp_path, make_run, monkeypatch):
    monkeypatch.setattr(page_module, "DETAILED", 2)
    errors = {"supervised": 0.5, "fixmatch": 0.1, "comatch": 0.3, "simmatch": 0.2}
    runs = [*(make_run(method, error=error) for method, error in errors.items()), make_run("dash", finished=False)]
    text, read = page_of(tmp_path, runs)
    assert re.findall(r"<h3>([^<]*)", text) == ["FixMatch, seed 0", "SimMatch, seed 0"] * 3  # not in the map
    assert "Of 5 ways of training, the 2 with the lowest test error have pictures" in read.words
    assert all(f">{name}<" in text for name in ("labels only", "CoMatch", "Dash")), "in the table, whatever they are"
    few, read = page_of(tmp_path, runs[:2])
    assert few.count("<h3>") == 5  # labels only make no pseudo-labels
    assert "ways of training, the" not in read.words
