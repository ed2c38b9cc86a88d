"""Long work that a page starts: every job is a process, which outlives the server, and a file of its events."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np

from ..app.flags import DEFAULT_METHOD, DEFAULT_PRETRAINING
from ..app.request import default_folder
from ..errors import InputError, unknown
from ..files import as_text, write_atomically
from ..recipe import read_recipe
from ..runs import RunFolder
from .forms import FUNCTIONS, arguments_of, command_of, forms
from .past import Past, Photos
from .process import Job, is_training, launch, parsed, plain_paths, read_job

BEAT = 0.5  # seconds between two looks at the files of running jobs
PATIENCE = 600.0  # seconds that a plan may take: photos are embedded before it, once
LISTED = 200  # jobs
NONE_OF_THESE = 3  # the mark
Publish = Callable[[str, dict[str, Any]], None]
Lines = list[dict[str, Any]]


class Jobs:
    """All jobs of a project, those of earlier servers among them."""

    def __init__(
        self, project: Photos, runs: Path, publish: Publish, *, write_labels: Callable[[], None] = lambda: None
    ) -> None:
        """`write_labels` brings the labels.csv of the photos up to date, which a job learns from."""
        self.project, self.runs, self.publish, self._write_labels = project, Path(runs), publish, write_labels
        self.past = Past(project, self.runs)
        self._home = project.home / "jobs"
        if self._home.is_symlink():
            raise InputError(f"'{self._home}' is a link: remove it, and the studio makes a folder there.")
        self._home.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        found = sorted(path.stem for path in self._home.glob("*.json") if is_id(path.stem))[-LISTED:]
        jobs = (read_job(self._home, number) for number in found)
        self._jobs = {job.id: job for job in jobs if job is not None}
        self._closed = threading.Event()
        threading.Thread(target=self._follow, name="jobs", daemon=True).start()

    def close(self) -> None:
        """Follow no more: the jobs themselves go on."""
        self._closed.set()

    def forms(self) -> Lines:
        """What can be started, with the finished runs to choose from."""
        return forms([run["name"] for run in self.past.runs() if run["state"] == "finished"])

    def list(self) -> Lines:
        """All jobs, the newest first."""
        with self._lock:
            for job in self._jobs.values():
                job.read()
            return [self.facts(job) for job in reversed(self._jobs.values())]

    def plan(self, do: Any, said: Any) -> Lines:
        """What would happen, as events; nothing for what is done in a moment. What cannot be done is refused."""
        arguments = self._arguments(do, said)
        if not is_training(do):
            return []
        self._write_labels()
        with tempfile.TemporaryFile() as file:
            process = launch(file.fileno(), do, arguments, only_plan=True)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                raise InputError("The plan takes too long: start the job, and look at what it says.") from None
            finally:
                process.kill()
                process.wait()
            file.seek(0)
            lines = [line for line in map(parsed, file) if line]
        if not lines or lines[-1]["kind"] != "end":
            raise InputError("The plan ended early, perhaps for lack of memory: start the job, and look at it.")
        if lines[-1]["state"] != "finished":
            raise InputError(lines[-1]["sentence"])
        return [line for line in lines if line["kind"] not in ("start", "progress", "end")]

    def start(self, do: Any, said: Any) -> str:
        """Begin; the number of the job."""
        with self._lock:
            arguments = self._arguments(do, said)
            self._write_labels()
            at = time.time()
            stem = f"{time.strftime('%Y%m%d-%H%M%S', time.localtime(at))}-{do}"
            number = next(name for name in numbered(stem) if not (self._home / f"{name}.json").exists())
            request = {"do": do, "said": said, "out": Path(arguments.get("out", "")).name, "at": at}
            write_atomically(self._home / f"{number}.json", json.dumps(request).encode())
            job = Job(self._home, number, request)
            job.begin(arguments, self._remarks(do))
            self._jobs[number] = job
            return number

    def stop(self, number: str) -> None:
        """End a job as Ctrl-C does: a run keeps a checkpoint."""
        with self._lock:
            self._find(number).stop()

    def resume(self, number: str) -> None:
        """Let a job that was stopped, or died, go on."""
        with self._lock:
            job = self._find(number)
            job.read()
            if not job.resumable:
                raise InputError(f"'{number}' cannot go on, for it is {job.state}: start another one.")
            asked = arguments_of(job.do, job.said, self.past.find) | self._decided(job.do)
            if job.out:
                asked["out"] = self.runs / job.out
            if "resume" in inspect.signature(FUNCTIONS[job.do]).parameters:
                if not asked.get("fine_tune") and RunFolder(self.runs / job.out).exists():
                    asked = {name: asked[name] for name in ("out", "device", "guard") if name in asked}
                asked["resume"] = True
            job.begin(asked, [])

    def result(self, number: str, name: str) -> Path:
        """A file that a job wrote."""
        with self._lock:
            job = self._find(number)
            job.read()
            written = {Path(path).name: Path(path) for path in job.files.values()}
        if name not in written:
            raise unknown("file", name, written)
        path, home = written[name], self.runs.resolve()
        # the file of events may come from somebody else, with the folder of photos
        if path.is_symlink() or not path.is_file() or not path.resolve().is_relative_to(home):
            raise InputError(f"'{name}' is no longer where the job wrote it.")
        return path

    def facts(self, job: Job) -> dict[str, Any]:
        """What a page shows of a job."""
        try:
            asked = arguments_of(job.do, job.said, lambda name: self.runs / name) | self._decided(job.do)
            command = command_of(job.do, asked | ({"out": self.runs / job.out} if job.out else {}))
        except InputError:  # of another version
            command = ""
        run = job.out if is_training(job.do) and job.do != "compare" else ""
        return {**job.facts(), "command": command, "run": run or None}

    def _find(self, number: str) -> Job:
        if number not in self._jobs:
            raise unknown("job", number, self._jobs)
        return self._jobs[number]

    def _arguments(self, do: Any, said: Any) -> dict[str, Any]:
        """All that the function is called with."""
        asked = arguments_of(do, said, self.past.find)
        arguments = asked | self._decided(do)
        if "out" in inspect.signature(FUNCTIONS[do]).parameters:
            self.runs.mkdir(parents=True, exist_ok=True)
            arguments["out"] = self.runs / self._free_name(do, asked)
        return plain_paths(arguments)

    def _decided(self, do: str) -> dict[str, Any]:
        """The images, where they are said by position."""
        parameters = inspect.signature(FUNCTIONS[do]).parameters.values()
        named = [one.name for one in parameters if one.name in ("data", "images") and one.kind is not one.KEYWORD_ONLY]
        return dict.fromkeys(named, self.project.folder)

    def _free_name(self, do: str, asked: Mapping[str, Any]) -> str:
        """What the product would call the result, or that with a number: nothing is replaced."""
        usual = inspect.signature(FUNCTIONS[do]).parameters["out"].default
        if is_training(do) and usual is None:
            name = run_name(do, asked, self.project.folder)
        else:
            name = "exported" if usual is None else Path(usual).name
            name = f"{asked['run'].name}-{name}" if "run" in asked else name
        taken = {job.out for job in self._jobs.values() if job.is_running()}
        stem, suffix = (Path(name).stem, Path(name).suffix) if Path(name).suffix in (".csv", ".html") else (name, "")
        names = (f"{one}{suffix}" for one in numbered(stem))
        return next(one for one in names if one not in taken and not os.path.lexists(self.runs / one))

    def _remarks(self, do: str) -> Lines:
        """What has to be said of the images before it begins."""
        marked = int(np.count_nonzero(self.project.marks == NONE_OF_THESE)) if is_training(do) else 0
        if not marked:
            return []
        which = f"{marked:,} image{'s' * (marked != 1)} marked as none of these"
        sentence = f"{which} cannot be left out of a run: it sees {'them' if marked > 1 else 'it'} without a label."
        return [{"kind": "notice", "sentence": sentence, "run": "", "apart": False}]

    def _follow(self) -> None:
        told = {number: job.changes for number, job in self._jobs.items()}
        while not self._closed.wait(BEAT):
            with self._lock:
                for job in self._jobs.values():
                    job.read()
                new = [job for job in self._jobs.values() if job.changes != told.get(job.id, 0)]
                told |= {job.id: job.changes for job in new}
                changed = [self.facts(job) for job in new]
            for facts in changed:
                self.publish("job", facts)


def is_id(name: str) -> bool:
    """Whether a job may be called so."""
    return re.fullmatch(r"\d{8}-\d{6}-[a-z]+(-\d+)?", name) is not None


def numbered(name: str) -> chain[str]:
    """The name, then with 2, 3 and so on behind it."""
    return chain([name], (f"{name}-{number}" for number in count(2)))


def run_name(do: str, asked: Mapping[str, Any], folder: Path) -> str:
    """What the command line would call the run, as far as can be told without building it."""
    if "earlier" in asked:
        return f"{asked['earlier'].name}-continued"
    kind, usual = ("folder", DEFAULT_PRETRAINING) if do == "pretrain" else ("photos", DEFAULT_METHOD)
    recipe = read_recipe(asked.get("recipe", f"{kind}-{asked.get('method', usual)}"))
    settings = {"data.name": as_text(folder), "projector.size": asked.get("projectors"), "seed": asked.get("seed")}
    recipe = recipe.with_settings({name: value for name, value in settings.items() if value is not None})
    if "wrap" in asked:
        recipe = replace(recipe, wrapper={"name": asked["wrap"]})
    if "start" in asked:
        recipe = replace(recipe, start={"weights": as_text(asked["start"])})
    return default_folder(recipe).name
