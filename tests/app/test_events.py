from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import pytest

import epass
from epass.app.events import Event, Result, with_arguments_of, work
from epass.app.flags import Data, Out, Run


@work
def named(runs: str | Path | list[str | Path], data: Data = None, *, out: Out = None) -> Iterator[Event]:
    yield Result(values={"runs": runs, "data": data, "out": out})


@work
def evaluated(run: Run) -> Iterator[Event]:
    yield Result(values={"run": run})


@dataclass
class Asked:
    run: Run
    _: KW_ONLY
    out: Out = None


@with_arguments_of(Asked)
def asked(request: Asked) -> Iterator[Event]:
    yield Result(values={"run": request.run, "out": request.out})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_paths_may_begin_at_the_home_folder_wherever_they_are_said(home: Path) -> None:
    assert named("~/run").result().values == {"runs": home / "run", "data": None, "out": None}
    several = named(["~/a", Path("~/b"), "c"], out=Path("~/out")).result().values
    assert several == {"runs": [home / "a", home / "b", "c"], "data": None, "out": home / "out"}
    assert asked("~/run", out="~/out").result().values == {"run": home / "run", "out": home / "out"}


def test_data_and_other_names_stay_as_they_were_said(home: Path) -> None:
    said = {"runs": "~nobody has this name", "data": "~/photos", "out": "runs/~"}
    assert named(**said).result().values == {**said, "runs": Path("~nobody has this name")}


def test_too_many_and_unknown_arguments_are_refused_by_the_function_itself(home: Path) -> None:
    for arguments, by_name in ((("a", "b", "c"), {}), (("a",), {"where": "b"})):
        with pytest.raises(TypeError, match=r"named\(\)"):
            named(*arguments, **by_name)
    with pytest.raises(TypeError, match=r"evaluated\(\)"):
        evaluated("a", "b")


def test_what_a_command_writes_is_put_into_the_home_folder(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here := tmp_path / "here").mkdir()
    monkeypatch.chdir(here)
    written = epass.check("digits", out="~/page.html").result().files
    assert [*written.values()] == [home / "page.html"]
    assert (home / "page.html").is_file()
    assert not [*here.iterdir()]
