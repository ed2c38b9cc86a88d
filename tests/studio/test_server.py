"""The addresses of the studio: what each answers, what is refused, and that nothing outside of the folder is shown."""

from __future__ import annotations

import io
import json
import os
import re
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image
from stand_ins import StandInJobs, StandInLearner
from visiting import Visitor, serving

from epass.labeling.beliefs import digest_of
from epass.labeling.project import Project
from epass.studio import asked, server, stream
from epass.studio.desk import Desk
from epass.studio.safety import POLICY
from epass.studio.server import make_studio
from epass.studio.stream import Stream

HOSTILE = "<script>alert(1)</script>.jpg".replace("/", "∕")
BYTES = "application/octet-stream"
CHANGE = {"id": 0, "label": None, "mark": "skip", "seen": {"label": None, "mark": None}}


class House(NamedTuple):
    visitor: Visitor
    project: Project
    learner: StandInLearner
    jobs: StandInJobs
    stream: Stream

    def answer(self, number: int, label: int | None, seen: int | None = None, tab: str = "a") -> Any:
        change = {"id": number, "label": label, "mark": None, "seen": {"label": seen, "mark": None}}
        return self.visitor.post("/api/answers", {"tab": tab, "changes": [change]})

    def add(self, *names: str) -> list[int]:
        for name in names:
            assert self.visitor.post("/api/classes", {"do": "add", "name": name, "tab": "a"}).status == 200
        return [row["id"] for row in self.state()["classes"]]

    def state(self) -> Any:
        return self.visitor.get("/api/state").said


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Six photos of different sizes, the first of which has a name that is HTML."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(5):
        Image.new("RGB", (400 + number, 300), (40 * number, 90, 200)).save(folder / f"photo{number}.jpg")
    Image.new("RGB", (20, 30)).save(folder / HOSTILE)
    return folder


@pytest.fixture
def house(photos: Path, tmp_path: Path) -> Iterator[House]:
    page = tmp_path / "static"
    page.mkdir()
    (page / "index.html").write_text("<!doctype html><title>studio</title>")
    (page / "main.js").write_text("start();")
    (tmp_path / "secret.js").write_text("outside")
    events, project = Stream(), Project(photos, pytest.fail)
    learner, jobs = StandInLearner(project, events.publish), StandInJobs(tmp_path / "runs")
    desk = Desk(project, learner, jobs, events)  # type: ignore[arg-type]
    try:
        with serving(make_studio(desk, events, page), stream=events) as (visitor, _):
            yield House(visitor, project, learner, jobs, events)
    finally:
        project.close()


def test_a_page_gets_all_that_it_shows_first(house: House, photos: Path) -> None:
    first, second = house.add("forest", "beach")
    assert house.answer(1, first).status == 200
    house.visitor.post("/api/answers", {"tab": "a", "changes": [{**CHANGE, "id": 2, "mark": "unsure"}]})
    said = house.state()
    facts = {"name": "photos", "images": 6, "folder": str(photos), "digest": digest_of(house.project.names)}
    assert said["project"].items() >= facts.items()
    assert [(row["id"], row["name"], row["count"]) for row in said["classes"]] == [
        (first, "forest", 1),
        (second, "beach", 0),
    ]
    assert (said["labeled"], said["marks"], said["model"]) == (1, {"skip": 0, "unsure": 1, "none": 0}, None)
    assert said["progress"] is None
    house.stream.publish("progress", {"what": "features", "done": 3, "total": 6})
    assert house.state()["progress"] == {"what": "features", "done": 3, "total": 6}
    house.stream.publish("progress", {"done": True})
    assert house.state()["progress"] is None


def test_lists_by_label_mark_class_and_name(house: House) -> None:
    first, second = house.add("forest", "beach")
    house.answer(1, first)
    house.answer(3, second)
    house.visitor.post("/api/answers", {"tab": "a", "changes": [{**CHANGE, "id": 2, "mark": "none"}]})

    def ids(query: str) -> Any:
        return house.visitor.get(f"/api/ids?{query}").said

    everything = ids("view=all")["ids"]
    assert everything == list(range(6))
    assert ids("view=labeled")["ids"] == [1, 3]
    assert ids("view=none")["ids"] == [2]
    assert ids("view=skip")["ids"] == []
    assert ids("view=unlabeled")["ids"] == [0, 4, 5]
    assert ids(f"view=class&class={second}") == {"n": house.project.n, "ids": [3], "title": "Labeled 'beach'"}
    named = ids("view=all&q=PHOTO3")
    assert [house.project.names[number] for number in named["ids"]] == ["photo3.jpg"]
    assert ids("view=suggested")["ids"] == [2, 0]
    assert ids(f"view=cell&true={first}&guess={second}")["title"] == "Labeled 'forest', guessed 'beach'"
    assert house.learner.asked[-1] == ("cell", {"true": first, "guess": second})
    for query in ("view=nothing", "view=class", "view=class&class=99", "view=class&class=x", f"view=cell&true={first}"):
        answer = house.visitor.get(f"/api/ids?{query}")
        assert (answer.status, list(answer.said)) == (400, ["error"])


def test_rows_say_what_is_known(house: House) -> None:
    (first,) = house.add("forest")
    house.answer(1, first)
    rows = house.visitor.post("/api/rows", {"ids": [1, 0]}).said["rows"]
    assert [(row["id"], row["label"], row["mark"], row["guess"]) for row in rows] == [
        (1, first, None, None),
        (0, None, None, None),
    ]
    assert {row["name"] for row in rows} == {house.project.names[1], house.project.names[0]}
    assert house.visitor.post("/api/rows", {"ids": [0] * (asked.ROWS + 1)}).status == 400


def test_two_tabs_do_not_overwrite_each_other(house: House) -> None:
    first, second = house.add("forest", "beach")
    assert house.answer(1, first, tab="a").said["rows"][0]["label"] == first
    answer = house.answer(1, second, tab="b")
    assert answer.status == 409
    assert "another tab" in answer.said["error"]
    assert [(row["id"], row["label"]) for row in answer.said["rows"]] == [(1, first)]
    assert house.answer(1, second, seen=first, tab="b").status == 200
    undone = house.visitor.post("/api/undo", {"tab": "b"})
    assert (undone.status, undone.said["rows"][0]["label"], "Undid" in undone.said["said"]) == (200, first, True)
    assert house.visitor.post("/api/undo", {"tab": "nobody"}).status == 400


def test_a_page_of_an_earlier_start_changes_nothing(house: House) -> None:
    (first,) = house.add("forest")
    version, n = house.state()["project"]["version"], house.project.n
    change = {"id": 1, "label": first, "mark": None, "seen": {"label": None, "mark": None}}
    answer = house.visitor.post("/api/answers", {"tab": "a", "version": "before", "changes": [change]})
    assert (answer.status, house.project.n) == (412, n)
    assert "started again" in answer.said["error"]
    assert house.visitor.post("/api/answers", {"tab": "a", "version": version, "changes": [change]}).status == 200


def test_classes_and_keys_change_and_labels_follow(house: House) -> None:
    first, second = house.add("forest", "beach")
    house.answer(1, first)
    change = house.visitor.post
    assert change("/api/classes", {"do": "rename", "id": first, "name": "wood"}).status == 200
    assert change("/api/classes", {"do": "key", "id": first, "key": "w"}).status == 200
    assert change("/api/keys", {"action": "skip", "key": "k"}).status == 200
    assert change("/api/classes", {"do": "merge", "id": first, "into": second}).said["rows"][0]["label"] == second
    state = house.state()
    assert ([row["name"] for row in state["classes"]], state["keys"]["skip"]) == (["beach"], "k")
    for body in ({"do": "fly"}, {"do": "add"}, {"do": "remove", "id": second}, {"do": "rename", "id": 99, "name": "x"}):
        answer = change("/api/classes", body)
        assert (answer.status, list(answer.said)) == (400, ["error"])


def test_labels_go_out_and_come_back(house: House) -> None:
    (first,) = house.add("forest")
    house.answer(1, first)
    for kind in ("csv", "json", "folders"):
        answer = house.visitor.get(f"/api/export/{kind}")
        assert answer.status == 200
        found = re.fullmatch(r"attachment; filename\*=utf-8''([\w.%-]+)", answer.headers["content-disposition"])
        assert found is not None
        taken = house.visitor.post(f"/api/import?name={found[1]}&force=1", answer.content, Content_Type=BYTES)
        assert taken.status == 200, taken.said
        assert taken.said["n"] == house.project.n
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert len(archive.namelist()) >= 1
    assert house.visitor.get("/api/export/pickle").status == 400
    odd = house.visitor.post("/api/import?name=labels.exe&force=0", b"x", Content_Type=BYTES)
    assert (odd.status, list(odd.said)) == (400, ["error"])


def test_jobs_and_runs_are_asked_for(house: House) -> None:
    visitor, jobs = house.visitor, house.jobs
    assert visitor.get("/api/forms").said == [{"do": "train"}]
    assert visitor.get("/api/jobs").said == [{"id": "7", "state": "running"}]
    assert visitor.post("/api/jobs", {"do": "train", "said": {"steps": 3}}).said == {"id": "8"}
    assert visitor.post("/api/jobs", {"do": "train", "said": {}, "plan": True}).said == [{"kind": "plan"}]
    assert visitor.post("/api/jobs/8/stop").status == visitor.post("/api/jobs/8/resume").status == 200
    assert jobs.told == [("start", "train", {"steps": 3}), ("plan", "train", {}), ("stop", "8"), ("resume", "8")]
    assert visitor.get("/api/runs").said == [{"name": "one"}]
    assert visitor.get("/api/runs/one").said == {"name": "one"}
    assert visitor.get("/api/pair?a=one&b=two").status == 400
    jobs.runs.mkdir()
    (jobs.runs / "table.csv").write_text("file,label\n")
    answer = visitor.get("/api/jobs/7/files/table.csv")
    assert (answer.content, answer.headers["content-type"]) == (b"file,label\n", BYTES)
    assert visitor.get("/api/jobs/7/files/other.csv").status == 400


def test_a_report_is_shown_in_a_sandbox(house: House) -> None:
    page = house.jobs.runs / "one" / "report.html"
    page.parent.mkdir(parents=True)
    page.write_text("<script>1</script>")
    answer = house.visitor.get("/report/one")
    assert (answer.status, answer.content) == (200, b"<script>1</script>")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in policy
    assert "connect-src" not in policy  # so that nothing can be asked for
    assert "default-src 'none'" in policy
    assert house.visitor.get("/report/..%2Fone").status == 400


# What is sent


ODD_BODIES: list[tuple[str, bytes]] = [
    ("/api/rows", b"{"),
    ("/api/rows", b"[1]"),
    ("/api/rows", b"\xff"),
    ("/api/rows", b"[" * 60_000),
    ("/api/rows", b'{"ids": 3}'),
    ("/api/rows", b'{"ids": [-1]}'),
    ("/api/rows", b'{"ids": [6]}'),
    ("/api/rows", b'{"ids": [true]}'),
    ("/api/rows", b'{"ids": [0.5]}'),
    ("/api/rows", b'{"ids": ["../secret.js"]}'),
    ("/api/rows", b'{"ids": [1e400]}'),
    ("/api/answers", b'{"tab": "a"}'),
    ("/api/answers", b'{"tab": "a", "changes": []}'),
    ("/api/answers", b'{"tab": "a", "changes": [3]}'),
    ("/api/answers", json.dumps({"tab": 5, "changes": [CHANGE]}).encode()),
    ("/api/answers", json.dumps({"tab": "a", "changes": [{**CHANGE, "mark": "lost"}]}).encode()),
    ("/api/answers", json.dumps({"tab": "a", "changes": [{**CHANGE, "mark": {}}]}).encode()),
    ("/api/answers", json.dumps({"tab": "a", "changes": [{**CHANGE, "label": "0"}]}).encode()),
    ("/api/answers", json.dumps({"tab": "a", "changes": [{**CHANGE, "label": 77, "mark": None}]}).encode()),
    ("/api/answers", json.dumps({"tab": "a", "changes": [{**CHANGE, "seen": None}]}).encode()),
    ("/api/undo", b"{}"),
    ("/api/classes", b'{"do": "add", "name": ["x"]}'),
    ("/api/classes", json.dumps({"do": "add", "name": "x" * 5000}).encode()),
    ("/api/jobs", b'{"do": "train", "said": []}'),
]


def test_a_body_that_is_something_else_is_one_sentence(house: House) -> None:
    for path, body in ODD_BODIES:
        answer = house.visitor.post(path, body)
        assert (answer.status, list(answer.said)) == (400, ["error"]), (body, answer)
        assert len(answer.said["error"].splitlines()) == 1
    assert house.project.n == 0


def test_what_is_sent_is_limited_whatever_it_says_of_its_length(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    visitor, many = house.visitor, {"tab": "a", "changes": [{**CHANGE, "id": number} for number in range(6)] * 200}
    assert visitor.post("/api/rows", bytes(asked.LARGEST_JSON + 1)).status == 413
    assert visitor.ask("POST", "/api/rows", iter([bytes(40_000)] * 2), chunked=True).status == 413
    assert visitor.post("/api/import?name=a.csv", bytes(asked.LARGEST_FILE + 1), Content_Type=BYTES).status == 413
    assert len(json.dumps(many)) > asked.LARGEST_JSON
    assert visitor.post("/api/answers", many).status == 400  # of six images, a thousand times: long, and read
    monkeypatch.setattr(server, "SECONDS", 0.1)
    with visitor.open("POST", "/api/rows", None, Content_Length="50") as answer:
        assert answer.status == 408


# What is shown


def test_a_picture_is_small_new_and_never_the_file(house: House, photos: Path) -> None:
    for path, side in (("/thumb/3/160", 160), ("/thumb/3/320", 320), ("/image/3", 300)):
        answer = house.visitor.get(path)
        with Image.open(io.BytesIO(answer.content)) as image:
            assert (answer.status, min(image.size) <= side) == (200, True)
        assert answer.headers["content-type"] == "image/jpeg"
        assert answer.content != (photos / house.project.names[3]).read_bytes()
    for path in ("/thumb/3/161", "/thumb/99/160", "/thumb/-1/160", "/thumb/..%2Fx/160", "/image/99", "/image/x"):
        assert house.visitor.get(path).status in (400, 404)


def test_a_picture_is_kept_by_the_browser_as_long_as_its_number_holds(house: House) -> None:
    version = house.state()["project"]["version"]
    kept = house.visitor.get(f"/thumb/3/160?v={version}")
    assert "immutable" in kept.headers["cache-control"]
    other = house.visitor.get("/thumb/3/160?v=another")
    assert other.headers["cache-control"] == "no-cache"
    assert house.visitor.get("/thumb/3/160", If_None_Match=kept.headers["etag"])[::2] == (304, b"")


def test_a_link_out_of_the_folder_is_not_followed(house: House, photos: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.jpg"
    Image.new("RGB", (50, 50)).save(outside)
    number = list(house.project.names).index("photo4.jpg")
    (photos / "photo4.jpg").unlink()
    (photos / "photo4.jpg").symlink_to(outside)
    for path in (f"/thumb/{number}/160", f"/image/{number}"):
        answer = house.visitor.get(path)
        assert (answer.status, list(answer.said)) == (404, ["error"])


def test_a_file_that_is_no_image_is_not_shown(house: House, photos: Path) -> None:
    number = list(house.project.names).index("photo4.jpg")
    (photos / "photo4.jpg").write_text("<script>alert(1)</script>")
    assert house.visitor.get(f"/image/{number}").status == 404
    (photos / "photo4.jpg").unlink()
    os.mkfifo(photos / "photo4.jpg")  # which nobody may wait for
    assert house.visitor.get(f"/thumb/{number}/160").status == 404


def test_names_are_data_and_never_a_page(house: House) -> None:
    number = list(house.project.names).index(HOSTILE)
    house.add("<b>bold</b>")
    answer = house.visitor.post("/api/rows", {"ids": [number]})
    assert answer.said["rows"][0]["name"] == HOSTILE
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert house.state()["classes"][0]["name"] == "<b>bold</b>"
    missing = house.visitor.get("/%3Cscript%3E")
    assert (missing.status, missing.headers["content-type"]) == (404, "application/json")


def test_only_the_files_of_the_page_are_served(house: House) -> None:
    page, script = house.visitor.get("/"), house.visitor.get("/static/main.js")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["content-security-policy"] == POLICY
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"  # whatever the machine calls it
    assert script.headers["cache-control"] == "no-cache"
    assert house.visitor.get("/static/main.js", If_None_Match=script.headers["etag"]).status == 304
    for name in ("none.js", "../secret.js", "..%2Fsecret.js", "%2Fetc%2Fpasswd", "", "..", "main.js%00"):
        assert house.visitor.get(f"/static/{name}").status == 404
    assert house.visitor.get("/api/nothing").said == {"error": "Not Found: reload the page."}
    assert (
        house.visitor.ask(
            "DELETE", "/api/state", Origin="http://" + house.visitor.host, Content_Type="application/json"
        ).status
        == 405
    )


def test_nobody_who_asks_sees_a_traceback(house: House, caplog: pytest.LogCaptureFixture) -> None:
    answer = house.visitor.get("/api/look/calibration")
    assert (answer.status, answer.said) == (500, {"error": "The studio failed on this: its terminal says why."})
    assert "a mistake of ours" in caplog.text
    assert house.visitor.get("/api/look/confusion").status == 200


# What happens


@contextmanager
def listening(house: House) -> Iterator[HTTPResponse]:
    with house.visitor.open("GET", "/api/events") as answer:
        assert answer.getheader("content-type") == "text/event-stream; charset=utf-8"
        assert answer.readline() == b"retry: 1000\n"
        yield answer


def next_event(answer: HTTPResponse) -> tuple[str, Any]:
    lines: list[str] = []
    while not (lines and lines[-1].startswith("data: ")):
        line = answer.readline()
        assert line, "the stream has ended"
        lines.append(line.decode().rstrip("\n"))
    return lines[-2].removeprefix("event: "), json.loads(lines[-1].removeprefix("data: "))


def test_every_page_hears_of_what_changes(house: House) -> None:
    with listening(house) as one, listening(house) as other:
        (first,) = house.add("forest")
        house.answer(1, first)
        house.stream.publish("notice", {"sentence": "a\nb", "kind": "info"})
        for page in (one, other):
            events = [next_event(page) for _ in range(4)]
            assert [kind for kind, _ in events] == ["labels", "classes", "labels", "notice"]
            assert events[1][1]["classes"][0]["name"] == "forest"
            assert events[2][1]["rows"][0].items() >= {"id": 1, "label": first}.items()
            assert events[3][1]["sentence"] == "a\nb"


def test_a_page_that_does_not_read_is_cut_off(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "WAITING", 4)
    monkeypatch.setattr(stream, "QUIET", 3600.0)  # so that a stream that goes on is not taken for one that lives
    with listening(house) as page:
        assert house.stream.loop is not None
        done = threading.Event()

        def flood() -> None:  # at once, so that nothing can be sent in between
            for _ in range(6):
                house.stream.hand_out("event: notice\ndata: {}\n\n")
            done.set()

        house.stream.loop.call_soon_threadsafe(flood)
        done.wait(20)
        assert b"notice" not in page.read()
        assert house.stream.pages == set()


def test_pages_that_listen_are_counted_and_end_with_the_server(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "PAGES", 1)
    with listening(house) as page:
        answer = house.visitor.get("/api/events")
        assert (answer.status, list(answer.said)) == (503, ["error"])
        assert house.stream.loop is not None
        house.stream.loop.call_soon_threadsafe(house.stream.close)
        assert page.read().strip() == b""


def test_a_quiet_line_is_kept_alive(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "QUIET", 0.05)
    with listening(house) as page:
        assert page.readline() == b"\n"
        assert page.readline() == b": still here\n"


def test_answers_do_not_wait_for_what_takes_long(house: House) -> None:
    (first,) = house.add("forest")
    house.learner.waits = threading.Event()
    slow = threading.Thread(target=house.visitor.get, args=["/api/ids?view=suggested"])
    slow.start()
    assert house.answer(1, first).status == 200
    assert slow.is_alive()
    house.learner.waits.set()
    slow.join()
