"""What each request asks of the project, the learner, the jobs and the runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import one_of
from ..labeling.views import describe_images, describe_project, list_images
from .asked import ROWS, Asked

if TYPE_CHECKING:
    from ..labeling.jobs import Jobs
    from ..labeling.learner import Learner
    from ..labeling.project import Changed, Project
    from .stream import Stream

EXPORTS = ("csv", "json", "folders")


@dataclass
class Desk:
    """Where a request in words becomes a call, and its outcome what the page reads."""

    project: Project
    learner: Learner
    jobs: Jobs
    stream: Stream

    def __post_init__(self) -> None:
        self.project.on_change(self.tell)

    def tell(self, changed: Changed) -> None:
        """Let every page know what changed in any of them."""
        rows = {"rows": self.describe(changed.ids)} if len(changed.ids) <= ROWS else {"many": True}
        self.stream.publish("labels", {"n": changed.n, **rows})
        if changed.classes:
            known = describe_project(self.project, self.learner)
            self.stream.publish("classes", {"n": changed.n, "classes": known["classes"], "keys": known["keys"]})

    def describe(self, ids: Iterable[int]) -> list[dict[str, Any]]:
        return describe_images(self.project, self.learner, list(ids)[:ROWS])

    # What is shown
    def state(self, _: Asked) -> dict[str, Any]:
        return describe_project(self.project, self.learner)

    def ids(self, asked: Asked) -> dict[str, Any]:
        n, which = self.project.n, asked.numbers("class", "true", "guess")
        found, title = list_images(self.project, self.learner, asked.text("view", "all"), which, asked.text("q", ""))
        return {"n": n, "ids": found, "title": title}

    def rows(self, asked: Asked) -> dict[str, Any]:
        return {"rows": self.describe(asked.images(len(self.project.names)))}

    def model(self, _: Asked) -> dict[str, Any] | None:
        return self.learner.summary()

    def map(self, _: Asked) -> dict[str, Any] | None:
        return self.learner.map()

    def confusion(self, _: Asked) -> dict[str, Any] | None:
        return self.learner.confusion()

    def calibration(self, _: Asked) -> dict[str, Any] | None:
        return self.learner.calibration()

    # What is changed
    def outcome(self, changed: Changed) -> dict[str, Any]:
        return {"n": changed.n, "rows": self.describe(changed.ids), "said": changed.said}

    def answer(self, asked: Asked) -> dict[str, Any]:
        return self.outcome(self.project.answer(asked.changes(len(self.project.names)), asked.text("tab")))

    def undo(self, asked: Asked) -> dict[str, Any]:
        return self.outcome(self.project.undo(asked.text("tab")))

    def change_class(self, asked: Asked) -> dict[str, Any]:
        project, tab = self.project, asked.text("tab", "")
        ways: dict[str, Callable[[], Changed]] = {
            "add": lambda: project.add_class(asked.text("name"), tab),
            "rename": lambda: project.rename_class(asked.whole("id"), asked.text("name"), tab),
            "merge": lambda: project.merge_classes(asked.whole("id"), asked.whole("into"), tab),
            "remove": lambda: project.remove_class(asked.whole("id"), tab),
            "key": lambda: project.set_key(asked.whole("id"), asked.text("key"), tab),
        }
        one_of("change of a class", do := asked.text("do"), ways)
        return self.outcome(ways[do]())

    def set_key(self, asked: Asked) -> dict[str, Any]:
        return self.outcome(self.project.set_key(asked.text("action"), asked.text("key"), asked.text("tab", "")))

    def take_in(self, asked: Asked) -> dict[str, Any]:
        changed = self.project.take_in(asked.text("name"), asked.body, asked.flag("force"), asked.text("tab", ""))
        return {"n": changed.n, "said": changed.said}

    def hand_out(self, asked: Asked) -> tuple[str, Iterator[bytes]]:
        one_of("kind of export", kind := asked.text("kind"), EXPORTS)
        return self.project.hand_out(kind)  # type: ignore[arg-type]  # it is one of them

    # What runs
    def forms(self, _: Asked) -> list[dict[str, Any]]:
        return self.jobs.forms()

    def list_jobs(self, _: Asked) -> list[dict[str, Any]]:
        return self.jobs.list()

    def start_job(self, asked: Asked) -> Any:
        do, said = asked.text("do"), asked.table("said")
        return self.jobs.plan(do, said) if asked.flag("plan") else {"id": self.jobs.start(do, said)}

    def stop_job(self, asked: Asked) -> dict[str, Any]:
        self.jobs.stop(asked.text("job"))
        return {"id": asked.text("job")}

    def resume_job(self, asked: Asked) -> dict[str, Any]:
        self.jobs.resume(asked.text("job"))
        return {"id": asked.text("job")}

    def result(self, asked: Asked) -> Path:
        return self.jobs.result(asked.text("job"), asked.text("file"))

    def runs(self, _: Asked) -> list[dict[str, Any]]:
        return self.jobs.past.runs()

    def run(self, asked: Asked) -> dict[str, Any]:
        return self.jobs.past.run(asked.text("run"))

    def pair(self, asked: Asked) -> dict[str, Any]:
        return self.jobs.past.pair(asked.text("a"), asked.text("b"))

    def report(self, asked: Asked) -> Path:
        return self.jobs.past.page(asked.text("run"))
