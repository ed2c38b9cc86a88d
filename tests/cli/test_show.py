"""Events on a screen: what stands where, and what ends when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import typer
from rich.console import Console

from epass.app.events import Caution, Event, Notice, Plan, Result, Section, Table, work
from epass.app.flags import Fetching
from epass.cli.show import OFFERED, show
from epass.untrusted import printable

ROWS = Table(("name", "value"), [["a", "1"]])


def shown(capsys: pytest.CaptureFixture[str], *events: Event) -> list[str]:
    @work
    def tell() -> Iterator[Event]:
        yield from events

    show(tell, {}, as_json=False)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


EVIL = "a\x1b[2Jb\rc\u202ed"


@pytest.mark.parametrize(
    "event",
    [
        Notice(EVIL),
        Notice(EVIL, run="x", apart=True),
        Plan(EVIL, {EVIL: EVIL}),
        Section(EVIL, lines=[EVIL]),
        Table((EVIL,), [[EVIL]], EVIL, [EVIL]),
        Result(EVIL, {EVIL: EVIL}, following=EVIL),
    ],
)
def test_no_event_tells_a_terminal_what_to_do(capsys: pytest.CaptureFixture[str], event: Event) -> None:
    text = "".join(shown(capsys, event))
    assert "a\ufffd[2Jb\ufffdc\ufffdd" in text
    assert printable(text) == text


def test_events_stand_below_each_other_with_room_between_tables(capsys: pytest.CaptureFixture[str]) -> None:
    facts, lines = Section("Facts", {"long name": "1", "b": "2"}), Section("Lines", lines=["one", "two\x1b[31m"])

    found = shown(capsys, facts, lines, Notice("Look:"), ROWS, ROWS, Notice("That is all."))

    table = ["name   value", "a      1"]
    assert found == [
        *("Facts", "  long name  1", "  b          2", ""),
        *("Lines", "  one", "  two\ufffd[31m", ""),
        *("Look:", "", *table, "", *table, "", "That is all."),
    ]


def test_a_table_may_have_a_title_and_notes(capsys: pytest.CaptureFixture[str]) -> None:
    titled = Table(ROWS.heads, [["a\nb", "1"]], title="Numbers", notes=["Of nobody."])
    two_lines = Table(ROWS.heads, [["a\nb", "1"]], several_lines=True)

    assert shown(capsys, titled) == ["Numbers", "Of nobody.", "", "name   value", "a\ufffdb    1"]
    assert shown(capsys, two_lines) == ["name   value", "a      1", "b"]


@pytest.mark.parametrize("result", [Result(complaint="One is missing."), Result(partial=True)])
def test_what_is_not_all_ends_with_exit_code_one(result: Result, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as end:
        shown(capsys, Caution("It is damaged.", "Left out"), result)

    assert end.value.exit_code == 1
    said = capsys.readouterr().err.splitlines()
    assert said == ["Left out: It is damaged.", *(["Error: One is missing."] if result.complaint else [])]


def test_no_bar_stays_below_what_came_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    @contextmanager
    def bar(_: Console) -> Iterator[Fetching]:
        yield lambda file, done, total: print(file, done, total)
        print("the bar ends")

    @work
    def fetch(*, fetching: Fetching) -> Iterator[Event]:
        fetching("a.zip", 1, 2)
        yield Result("Fetched", {"file": "a.zip"})

    monkeypatch.setitem(OFFERED, "fetching", bar)
    show(fetch, {}, as_json=False)

    assert capsys.readouterr().out.split("\n")[:3] == ["a.zip 1 2", "the bar ends", "Fetched"]
