"""Jobs are processes that go on by themselves, and files that tell how they are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epass.app.events import Caution, Intention, Line, Notice, Plan, Progress, Result, Section, Table
from epass.errors import InputError, RunError
from epass.labeling import job as module
from epass.labeling.job import as_json, ending
from epass.labeling.jobs import Jobs
from epass.labeling.process import Job
from epass.machine.signals import Stopped
from epass.runs import RunFolder
from epass.training.checkpoint import checkpoints
from photo_project import SMALL, Folder, make_folder, train_small

PATIENCE = 300  # seconds, for a machine that does other things, too
LONG = {**SMALL, "steps": 300}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return make_folder(tmp_path, monkeypatch)


@pytest.fixture
def jobs(project: Folder) -> Iterator[Jobs]:
    """None of their processes survives the test."""
    with_jobs = Jobs(project, Path("runs"), lambda kind, facts: None)
    yield with_jobs
    with_jobs.close()
    for one in with_jobs._jobs.values():
        if one._process is not None:
            one._process.kill()
            one._process.wait()


def wait(jobs: Jobs, number: str, reached: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The facts of a job once something is so."""
    deadline = time.monotonic() + PATIENCE
    while not reached(facts := next(one for one in jobs.list() if one["id"] == number)):
        assert time.monotonic() < deadline, facts
        assert reached is not trains or facts["state"] == "running", facts
        time.sleep(0.02)  # whoever looks all the time takes a core from the process
    return facts


def trains(facts: dict[str, Any]) -> bool:
    return facts["progress"] is not None and facts["progress"]["what"] == "step" and facts["progress"]["step"] > 0


def ended(facts: dict[str, Any]) -> bool:
    return facts["state"] not in ("running", "stopping")


def wrote(home: Folder, number: str, *lines: dict[str, Any] | str) -> None:
    """The files of a job that some server started."""
    folder = home.home / "jobs"
    folder.mkdir(exist_ok=True)
    do = number.split("-")[2]
    request = {"do": do, "said": {}, "out": "out", "at": 1.0}
    (folder / f"{number}.json").write_text(json.dumps(request))
    texts = [line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines]
    (folder / f"{number}.jsonl").write_text("".join(texts))


@pytest.mark.slow
def test_a_job_is_stopped_killed_and_resumed_to_its_end_and_the_whole_folder_predicted(
    project: Folder, jobs: Jobs
) -> None:
    number = jobs.start("train", LONG)
    home = Path("runs/photos-simmatch-0")
    wait(jobs, number, trains)
    assert next(run["state"] for run in jobs.past.runs()) == "running"
    jobs.stop(number)
    facts = wait(jobs, number, ended)
    assert (facts["state"], facts["resumable"]) == ("stopped", True)
    assert facts["sentence"].startswith("continue with epass train --resume --out runs/photos-simmatch-0")
    kept = checkpoints(RunFolder(home).checkpoints)
    assert kept
    with pytest.raises(InputError, match="is not running"):
        jobs.stop(number)

    jobs.resume(number)
    assert wait(jobs, number, trains)["progress"]["step"] > int(kept[-1].stem.removeprefix("step-"))
    with pytest.raises(InputError, match="cannot go on, for it is running"):
        jobs.resume(number)
    pid = jobs._jobs[number]._pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    facts = wait(jobs, number, ended)
    assert (facts["state"], facts["resumable"]) == ("failed", True)
    assert facts["sentence"].endswith("resume it, and it goes on from what it last kept.")

    jobs.close()
    later = Jobs(project, Path("runs"), lambda kind, facts: None)  # another server
    later.resume(number)
    facts = wait(later, number, ended)
    assert facts["state"] == "finished", facts
    assert facts["result"]["facts"]["test error, last step"]
    assert {file["name"] for file in facts["files"]} == {"report.html", "model.safetensors"}
    assert later.result(number, "report.html").read_text().startswith("<!DOCTYPE html>")
    assert len(RunFolder(home).metrics()) == LONG["steps"]

    later.close()
    told: list[Any] = []
    arguments = later._arguments("predict", {"run": "photos-simmatch-0"})
    assert ending({"do": "predict", "arguments": arguments, "only_plan": False}, told.append) == ("finished", "")
    table = Path("runs/photos-simmatch-0-predictions.csv")
    assert told[-1]["files"] == {"table": str(table)}
    assert len(table.read_text().splitlines()) == 1 + len(project.names)


@pytest.mark.slow
def test_a_plan_comes_before_anything_is_written_and_says_why_not(project: Folder, jobs: Jobs) -> None:
    written: list[str] = []
    jobs._write_labels = lambda: written.append("labels")
    events = jobs.plan("train", SMALL)
    assert [event["kind"] for event in events][-1] == "plan"
    assert events[-1]["facts"]["run folder"] == "runs/photos-simmatch-0"
    assert written == ["labels"]
    assert not list(Path("runs").iterdir())
    with pytest.raises(InputError, match="soon"):
        jobs.plan("train", {**SMALL, "budget": "soon"})


def test_what_cannot_be_is_refused_before_a_process_begins(project: Folder, jobs: Jobs) -> None:
    with pytest.raises(InputError, match="Unknown run 'nothing'"):
        jobs.start("predict", {"run": "nothing"})
    for ask in (jobs.stop, jobs.resume, lambda number: jobs.result(number, "x")):
        with pytest.raises(InputError, match="Unknown job"):
            ask("../../x")
    assert jobs.list() == []


def test_nothing_is_replaced_and_everything_is_named(project: Folder, jobs: Jobs) -> None:
    Path("runs").mkdir()
    jobs.past.find = Path("runs").joinpath  # type: ignore[method-assign,assignment]

    def out(do: str, **said: Any) -> str:
        path = Path(jobs._arguments(do, said)["out"])
        assert path.parent == Path("runs")
        return path.name

    assert out("train", method="fixmatch", seed=3) == "photos-fixmatch-3"
    assert out("train", projectors=3) == "photos-simmatch-epass-0"
    assert out("train", earlier="ours") == "ours-continued"
    assert out("pretrain") == "photos-moco-0"
    assert out("compare") == "compare"
    assert out("export", run="compare/ours") == "ours-exported"
    assert out("report", runs=["ours"]) == "report.html"
    assert out("predict", run="ours") == "ours-predictions.csv"
    for name in ("photos-moco-0", "photos-moco-0-2", "report.html"):
        Path("runs", name).touch()
    assert out("pretrain") == "photos-moco-0-3"
    assert out("report", runs=["ours"]) == "report-2.html"
    assert jobs._arguments("predict", {"run": "ours"})["images"] == str(project.folder)
    assert jobs.plan("predict", {"run": "ours"}) == []


def test_events_are_json_with_paths_as_text() -> None:
    events = [
        Plan("Plan", {"data": "<b>"}),
        Progress(1, 2, {"loss": float("nan"), "size": np.float32(0.5)}),
        Notice("A sentence."),
        Intention("Two runs."),
        Caution("Beware.", "Error"),
        Section("Head", lines=("one",)),
        Table(("a",), [["1"]]),
        Line({"file": "x"}),
        Result("Done", values={"n": np.int64(3)}, files={"page": Path("runs/report.html")}),
    ]
    told = [as_json(event) for event in events]
    json.dumps(told, allow_nan=False)
    kinds = ["plan", "progress", "notice", "notice", "caution", "section", "table", "line", "result"]
    assert [line["kind"] for line in told] == kinds
    assert told[0]["facts"] == {"data": "<b>"}  # the page escapes it
    assert told[1]["values"] == {"loss": None, "size": 0.5}
    assert told[4] == {"kind": "caution", "word": "Error", "sentence": "Beware."}
    assert told[8]["files"] == {"page": "runs/report.html"}
    assert told[8]["values"] == {"n": 3}


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (InputError("No."), ("refused", "No.")),
        (RunError("Loss is NaN."), ("failed", "Loss is NaN.")),
        (Stopped("go on so.", KeyboardInterrupt()), ("stopped", "go on so.")),
        (KeyboardInterrupt(), ("stopped", "nothing more is done.")),
        (OSError(28, "No space left", "runs/x"), ("failed", "No space left: 'runs/x'.")),
        (MemoryError(), ("failed", "There is not enough memory for this")),
        (None, ("finished", "One image cannot be read.")),
    ],
)
def test_an_end_is_a_state_and_a_sentence(
    monkeypatch: pytest.MonkeyPatch, problem: BaseException | None, expected: tuple[str, str]
) -> None:
    def work(command: str) -> Iterator[Notice | Result]:
        yield Notice(command)
        if problem is not None:
            raise problem
        yield Result(complaint="One image cannot be read.")

    monkeypatch.setitem(module.FUNCTIONS, "report", work)
    told: list[Any] = []
    state, sentence = ending({"do": "report", "arguments": {}, "only_plan": False}, told.append)
    assert state == expected[0]
    assert sentence.startswith(expected[1])
    assert told[0]["sentence"] == "epass report"


def test_a_mistake_of_ours_ends_a_job_too(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "epass.labeling.job", str(file.fileno())],
            input='{"do": "nothing", "arguments": {}, "only_plan": false}',
            pass_fds=[file.fileno()],
            capture_output=True,
            text=True,
            check=False,
        )
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["start", "end"]
    assert lines[1]["state"] == "failed"
    assert lines[1]["sentence"] == "Something went wrong inside of epass (KeyError: 'nothing')."
    assert "Traceback" in done.stderr


@pytest.mark.slow
def test_the_plan_of_a_comparison_is_its_sentence(project: Folder) -> None:
    said = {name: value for name, value in SMALL.items() if name not in ("guard", "settings")}
    asked = {**said, "settings": ["net.width=4"], "methods": "supervised", "seeds": 1, "data": "photos"}
    told: list[Any] = []
    request = {"do": "compare", "arguments": {**asked, "out": "runs/compare"}, "only_plan": True}
    assert ending(request, told.append) == ("finished", "")
    assert "1 runs of 6 steps" in told[-1]["sentence"]
    assert not Path("runs").exists()


def test_a_process_that_said_no_end_was_ended_from_outside(project: Folder) -> None:
    start = {"kind": "start", "pid": os.getpid(), "at": 1.0}
    step = as_json(Progress(5, 10, {"loss": 0.5}))
    wrote(project, "20260101-000000-train", start, step, '{"kind": "progr')
    wrote(project, "20260101-000001-predict", start)
    wrote(project, "20260101-000002-export", start)
    facts = Jobs(project, Path("runs"), lambda kind, facts: None).list()
    assert [one["state"] for one in facts] == ["failed"] * 3
    assert [one["resumable"] for one in facts] == [False, True, True]
    assert facts[0]["sentence"].endswith("start it again.")
    assert {one["sentence"].rpartition(": ")[2] for one in facts[1:]} == {
        "resume it, and it goes on from what it last kept."
    }


def test_events_are_folded_into_facts(project: Folder) -> None:
    lines = [
        {"kind": "start", "pid": 1, "at": 1.0},
        as_json(Plan("Plan", {"data": "photos"})),
        as_json(Progress(10, 20, {"loss": 0.5}, run="one")),
        as_json(Progress(5, 20, run="two")),
    ]
    wrote(project, "20260101-000000-train", *lines)
    job = Job(project.home / "jobs", "20260101-000000-train", {"do": "train", "said": {}, "out": "x", "at": 1.0})
    job.read()
    assert job._progress is not None
    assert (job._progress["step"], job._progress["steps"], job._progress["values"]) == (15, 40, {"loss": 0.5})
    with (project.home / "jobs" / "20260101-000000-train.jsonl").open("a") as log:
        for piece in ('{"kind": "notice", ', '"sentence": "Half a line."}\n'):
            log.write(piece)
            log.flush()
            job.watched = True
            job.read()
    assert [event["kind"] for event in job.facts()["events"]] == ["plan", "notice"]  # nothing is read twice
    result = as_json(Result("Done", files={"page": Path("runs/x/report.html")}))
    wrote(
        project,
        "20260101-000000-train",
        *lines,
        result,
        {"kind": "end", "state": "finished", "sentence": "", "at": 2.0},
    )
    (facts,) = Jobs(project, Path("runs"), lambda kind, facts: None).list()
    assert (facts["state"], facts["started"], facts["ended"], facts["plan"]) == (
        "finished",
        1.0,
        2.0,
        {"data": "photos"},
    )
    assert facts["files"] == [{"what": "page", "name": "report.html"}]
    assert facts["command"] == f"epass train {project.folder} --out runs/out"
    assert (facts["progress"], facts["run"], facts["resumable"]) == (None, "out", False)
    assert [event["kind"] for event in facts["events"]] == ["plan", "result"]


def test_a_folder_of_photos_from_a_stranger_leads_nowhere(project: Folder) -> None:
    end = {"kind": "end", "state": "finished", "sentence": "", "at": 2.0}
    files = {"one": "/etc/passwd", "two": "runs/link", "three": "runs/real"}
    wrote(project, "20260101-000000-train", {"kind": "result", "files": files}, end)
    for number, change in enumerate(({"out": "../x"}, {"do": "rm"}, {"at": "never"}, {"out": 3})):
        path = project.home / "jobs" / f"20260102-00000{number}-train.json"
        path.write_text(json.dumps({"do": "train", "said": {}, "out": "out", "at": 1.0, **change}))
    (project.home / "jobs" / "20260103-000000-train.json").write_text("[")
    wrote(project, "20260104-000000-train", {"kind": "result", "files": 3})
    wrote(project, "20260105-000000-train", {"kind": "start", "pid": os.getpid(), "at": 1.0})
    jobs = Jobs(project, Path("runs"), lambda kind, facts: None)
    assert [one["id"][:8] for one in jobs.list()] == ["20260105", "20260101"]
    Path("runs").mkdir()
    Path("runs/real").write_text("text")
    Path("runs/link").symlink_to("/etc/passwd")
    number = "20260101-000000-train"
    assert jobs.result(number, "real").read_text() == "text"
    for name in ("passwd", "link", "../../etc/passwd"):
        with pytest.raises(InputError, match=r"no longer where|Unknown file"):
            jobs.result(number, name)
    with pytest.raises(InputError, match="is not running"):  # whose number the stranger wrote there is not ended
        jobs.stop("20260105-000000-train")


def test_what_is_new_is_published_and_marked_images_are_told(project: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    project.marks[:2] = 3
    heard: list[tuple[str, dict[str, Any]]] = []
    jobs = Jobs(project, Path("runs"), lambda kind, facts: heard.append((kind, facts)))
    asked: list[Any] = []

    def launched(number: int, do: str, arguments: Any, **_: Any) -> subprocess.Popen[bytes]:
        asked.append((do, arguments))
        process = subprocess.Popen([sys.executable, "-c", ""])
        process.wait()
        return process

    monkeypatch.setattr("epass.labeling.process.launch", launched)
    number = jobs.start("train", SMALL)
    jobs.list()  # whoever asks takes nothing away from those who listen
    deadline = time.monotonic() + PATIENCE
    while not heard:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    jobs.close()
    assert heard[0][0] == "job"
    sentence = "2 images marked as none of these cannot be left out of a run: it sees them without a label."
    assert heard[0][1]["events"][0]["sentence"] == sentence
    assert (number, asked[0][1]["out"]) == (heard[0][1]["id"], "runs/photos-simmatch-0")
    jobs.resume(number)  # nothing was written yet: it begins again
    assert asked[1][1] == {**asked[0][1], "resume": True}
    train_small(Path("runs/photos-simmatch-0"), "photos")
    jobs._jobs[number].read()
    jobs.resume(number)
    assert asked[2][1] == {"out": "runs/photos-simmatch-0", "device": "cpu", "guard": False, "resume": True}


def test_jobs_take_no_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import epass.labeling.jobs, epass.labeling.job"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr == ""
