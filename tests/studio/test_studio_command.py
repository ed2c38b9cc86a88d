"""epass studio: where it listens, what it prints, what it refuses, and how it ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from PIL import Image
from stand_ins import open_with_stand_ins
from visiting import Visitor

from epass.app.events import Caution, Event, Notice, Plan, Result
from epass.app.web import LOCAL, listen
from epass.errors import InputError
from epass.labeling.project import Change
from epass.studio import command
from epass.studio.command import own_address, studio
from epass.studio.safety import Door
from epass.studio.stream import Stream

ADDRESS = re.compile(r"http://([\w.]+):(\d+)/\?token=([\w-]{43})")
STARTED = f"""
import sys
sys.modules["torch"] = None  # nobody who serves needs it
sys.path.insert(0, {str(Path(__file__).parent)!r})
from epass.labeling.project import Change
from epass.studio import command
from stand_ins import open_with_stand_ins
command.open_desk = open_with_stand_ins
sys.argv = ["epass", "studio", *sys.argv[1:]]
from epass.cli import main
main()
"""


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(3):
        Image.new("RGB", (20, 30), (90 * number,) * 3).save(folder / f"{number}.jpg")
    return folder


@pytest.fixture
def doors(monkeypatch: pytest.MonkeyPatch) -> list[Door]:
    """What would have been served: the command comes back at once."""
    served: list[Door] = []
    monkeypatch.setattr(command, "open_desk", open_with_stand_ins)
    monkeypatch.setattr(command, "serve_until_stopped", lambda door, stream, listener: served.append(door))
    monkeypatch.setattr(command, "has_screen", lambda: False)
    return served


def address_in(events: list[Event]) -> tuple[str, int, str]:
    sentences = [event.sentence for event in events if isinstance(event, Notice)]
    (found,) = [match for sentence in sentences if (match := ADDRESS.search(sentence))]
    return found[1], int(found[2]), found[3]


def test_it_says_where_it_is_and_what_it_keeps(photos: Path, doors: list[Door]) -> None:
    events = list(studio(photos, port=0))
    assert [type(event) for event in events] == [Plan, Notice, Notice, Result]
    host, port, token = address_in(events)
    (door,) = doors
    assert (host, door.token, door.cookie) == ("127.0.0.1", token, f"epass-{port}")
    assert (door.names, door.numbers, door.tickets) == (LOCAL, False, set())
    assert isinstance(events[0], Plan)
    assert events[0].facts["images"] == "3, 0 with a label"
    assert str(photos / ".epass-studio") in events[0].facts["kept in"]
    assert isinstance(events[-1], Result)
    assert events[-1].facts["still running"].startswith("1:")
    assert address_in(list(studio(photos, port=0)))[2] != token


def test_a_taken_port_is_not_the_end(photos: Path, doors: list[Door]) -> None:
    with listen("127.0.0.1", 0) as taken:
        busy = taken.getsockname()[1]
        events = list(studio(photos, port=busy))
    assert address_in(events)[1] != busy
    assert any(isinstance(event, Notice) and f"Port {busy} is taken" in event.sentence for event in events)
    with pytest.raises(InputError, match="There is no port 70000"):
        studio(photos, port=70000).result()
    with pytest.raises(InputError, match=r"Nothing can listen at 203\.0\.113\.1"):
        studio(photos, host="203.0.113.1").result()


def test_other_machines_only_on_request_and_never_without_the_token(photos: Path, doors: list[Door]) -> None:
    events = list(studio(photos, host="0.0.0.0", port=0))
    (caution,) = [event for event in events if isinstance(event, Caution)]
    assert "encrypted" in caution.sentence
    host, _, token = address_in(events)
    assert host == own_address("0.0.0.0")
    assert (doors[0].token, doors[0].numbers) == (token, True)
    assert not any(isinstance(event, Caution) for event in studio(photos, port=0))
    list(studio(photos, host="127.0.0.2", port=0))  # another number of this machine alone
    assert (doors[-1].is_name_of_ours("127.0.0.2:1"), doors[-1].numbers) == (True, False)


def test_the_browser_is_started_with_a_token_for_one_use(
    photos: Path, doors: list[Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: Queue[str] = Queue()
    monkeypatch.setattr(command.webbrowser, "open", opened.put)
    monkeypatch.setattr(command, "has_screen", lambda: True)
    list(studio(photos, port=0, browser=False))
    assert opened.empty()
    events = list(studio(photos, port=0))
    found = ADDRESS.search(opened.get(timeout=60))
    assert found is not None
    assert found[3] != address_in(events)[2]
    assert doors[1].tickets == {found[3]}


def test_a_mistake_is_one_sentence(photos: Path, doors: list[Door], monkeypatch: pytest.MonkeyPatch) -> None:
    (photos.parent / "empty").mkdir()
    for place in ("nowhere", "empty", "photos/0.jpg"):
        with pytest.raises(InputError) as problem:
            studio(photos.parent / place, port=0).result()
        assert len(str(problem.value).splitlines()) == 1
    with pytest.raises(InputError, match="Name the folder of photos"):
        studio("", port=0).result()
    monkeypatch.setattr("epass.app.web.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"The studio needs starlette and uvicorn: pip install epass\[studio\]\."):
        studio(photos).result()
    assert doors == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_in_good_order_while_a_page_listens(photos: Path, number: signal.Signals) -> None:
    words = [str(photos), "--port", "0", "--no-browser"]
    with subprocess.Popen(
        [sys.executable, "-u", "-c", STARTED, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        found = next(match for line in process.stdout if (match := ADDRESS.search(line)))
        visitor = Visitor(int(found[2]))
        visitor.cookie = f"epass-{found[2]}={found[3]}"
        added = visitor.post("/api/classes", {"do": "add", "name": "forest", "tab": "a"})
        assert added.status == 200, added.said
        (known,) = visitor.get("/api/state").said["classes"]
        change = {"id": 1, "label": known["id"], "mark": None, "seen": {"label": None, "mark": None}}
        assert visitor.post("/api/answers", {"tab": "a", "changes": [change]}).status == 200
        with visitor.open("GET", "/api/events") as page:
            assert page.status == 200
            process.send_signal(number)
            assert b"data" not in page.read()  # the stream ends, instead of being waited for
        rest = process.stdout.read()
    assert process.returncode == 0, rest
    assert "Traceback" not in rest
    assert "Cancel" not in rest
    assert "1 of 3 images" in rest
    assert "1.jpg,forest" in (photos / "labels.csv").read_text()
    with pytest.raises(ConnectionRefusedError):
        HTTPConnection("127.0.0.1", visitor.port).connect()


def test_a_run_learns_from_the_labels_of_this_moment(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epass.labeling.project.LATE", 3600.0)  # nothing else writes the table in time
    monkeypatch.setattr("epass.labeling.learner.Learner.start", lambda learner: None)
    begun = []

    def begin(job: Any, *_: Any) -> None:
        begun.append((photos / "labels.csv").read_text())

    monkeypatch.setattr("epass.labeling.jobs.Job.begin", begin)
    with ExitStack() as held:
        desk = command.open_desk(photos, photos.parent / "runs", "cpu", Stream(), print, held)
        desk.project.add_class("dark")
        desk.project.answer([Change(0, 0, None, None, None)], "tab")
        desk.jobs.start("train", {})
    assert begun == ["path,label\n0.jpg,dark\n"]
