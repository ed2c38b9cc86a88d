"""What the package knows of a method stands in its file: the paper in the first line, the rest on the class."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import epass.methods
from epass.method import Method, Paper, read_paper
from epass.methods import METHODS, PRETRAINING, WRAPPERS, known_class, table_order
from epass.methods.fixmatch import FixMatch

EVERY = METHODS | WRAPPERS | PRETRAINING
PUBLISHED = {name: cls for name, cls in EVERY.items() if name not in ("supervised", "fully_supervised")}
OWN_NAMES = {
    "supervised": "labels only",
    "fully_supervised": "all labels",
    "mix": "Mix",
    "shrink": "Shrink",
    "moco": "MoCo",
    "rotnet": "RotNet",
}
WITH_A_SECOND_FOLDER = """
import importlib.util, sys, epass
spec = importlib.util.find_spec("epass.methods")
spec.submodule_search_locations.append(sys.argv[1])
methods = sys.modules["epass.methods"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(methods)
made = methods.METHODS["newmatch"]
print(made.__name__, made.display_name, len(methods.METHODS))
"""


def test_the_tables_are_the_files_of_the_folder() -> None:
    files = sorted(path.stem for path in Path(epass.methods.__path__[0]).glob("*.py") if path.stem != "__init__")
    for table in (METHODS, WRAPPERS, PRETRAINING):
        assert list(table) == sorted(table)
    assert sorted(EVERY) == sorted(name.removesuffix("_wrapper") for name in files)
    assert (list(WRAPPERS), list(PRETRAINING)) == (["abc", "mix", "shrink"], ["moco", "rotnet"])


def test_a_file_in_the_folder_is_a_method(tmp_path: Path) -> None:
    source = Path(inspect.getfile(FixMatch)).read_text("utf-8")
    (tmp_path / "newmatch.py").write_text(source.replace("FixMatch", "NewMatch"))
    done = subprocess.run([sys.executable, "-c", WITH_A_SECOND_FOLDER, tmp_path], stdout=-1, text=True, check=True)
    assert done.stdout == f"NewMatch NewMatch {len(METHODS) + 1}\n"


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_file_begins_with_name_title_authors_venue_and_year(name: str) -> None:
    doc = inspect.getdoc(inspect.getmodule(PUBLISHED[name])) or ""
    first, second, *rest = doc.splitlines()
    paper = PUBLISHED[name].paper

    assert paper, f"'{first}' is not 'Name: Title (Authors, VENUE YEAR).'"
    assert 2010 <= paper.year <= 2030
    assert second == ""
    assert rest, "what it does, in a sentence or two"
    assert PUBLISHED[name].display_name == OWN_NAMES.get(name, paper.name)


def test_facts_of_the_bounds_and_of_what_comes_before() -> None:
    assert {name: EVERY[name].display_name for name in OWN_NAMES} == OWN_NAMES
    assert EVERY["supervised"].paper is None
    assert [name for name, cls in EVERY.items() if cls.pretraining] == ["moco", "rotnet"]
    assert [name for name, cls in EVERY.items() if cls.open_set] == ["iomatch"]
    assert [name for name, cls in EVERY.items() if cls.all_labels] == ["fully_supervised"]


def test_a_subclass_is_called_by_its_own_name() -> None:
    class Cosine(METHODS["supervised"]):  # type: ignore[misc]
        """Not labels only."""

    class Sine(FixMatch):
        """A sine."""

        display_name = "Sine wave"

    assert (Cosine.display_name, Cosine.paper, Sine.display_name) == ("Cosine", None, "Sine wave")


def test_tables_begin_with_labels_only_and_end_with_all_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "mine", type("Mine", (FixMatch,), {}))
    names = sorted([*METHODS, "of a stranger"], key=table_order)
    assert (names[0], names[-3:]) == ("supervised", ["mine", "of a stranger", "fully_supervised"])
    years = [cls.paper.year for name in names if (cls := known_class(name)) is not None and cls.paper is not None]
    assert years == sorted(years)
    assert len(years) == len(METHODS) - 3


@pytest.mark.parametrize(
    "line",
    [
        "A method by somebody (Doe, 2020).",
        "Name: Title (Doe et al.).",
        "Name: Title (Doe et al., ICML).",
        "Name: Title (Doe et al., ICML 21).",
        "Name: Title (Doe et al., ICML 2021)",
        "Title (Doe et al., ICML 2021).",
        "Name: Title (Doe et al., ICML 2021), with a twist.",
        "",
        None,
    ],
)
def test_another_form_is_no_paper(line: str | None) -> None:
    assert read_paper(line) is None


def test_a_paper_is_read_in_parts() -> None:
    line = "New: A Title (of sorts): Really (Doe, Roe & Poe, ICML-W 2021).\n\nThe idea."
    assert read_paper(line) == Paper("New", "A Title (of sorts): Really", "Doe, Roe & Poe", "ICML-W", 2021)
    assert Method.paper is None
