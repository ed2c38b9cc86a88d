"""The stand-in of the studio's server with what the views behind the labels ask for: map, forms, jobs and runs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fake_server import FakeStudio
from starlette.responses import JSONResponse, Response

FORMS: list[dict[str, Any]] = [
    {"do": do, "title": do.capitalize(), "help": f"What '{do}' does.", "fields": []} for do in ("train", "predict")
]
PLAIN = {"help": "", "panel": "What to train", "choices": None, "default": None, "usual": "", "least": None}
PLAIN |= {"runs": False, "needed": False}


def field(name: str, kind: str, **known: Any) -> dict[str, Any]:
    return {**PLAIN, "name": name, "flag": f"--{name}", "kind": kind, **known}


FORMS[0]["fields"] = [
    field("method", "choice", choices=["fixmatch", "simmatch"], usual="simmatch"),
    field("projectors", "int", help="Projection heads.", least=1),
    field("stream", "bool", default=False),
    field("settings", "list", flag="--set", default=[], panel="Every other setting"),
]


class FakeLook(FakeStudio):
    """Keeps what was asked for in `asked`. Images of a class lie together on the map, the first at the upper left."""

    def __init__(self, *said: Any) -> None:
        super().__init__(*said)
        self.asked: list[tuple[str, Any]] = []
        self.jobs: dict[str, dict[str, Any]] = {}
        self.runs = {
            "photos-simmatch-0": self.run("photos-simmatch-0", 1),
            "photos-fixmatch-0": self.run("photos-fixmatch-0", 2),
        }
        self.forms = FORMS
        self.loop: asyncio.AbstractEventLoop | None = None

    def job(self, do: str, said: dict[str, Any], state: str = "running") -> dict[str, Any]:
        """A job as the server tells of it; all pages are told, too."""
        known = {
            "id": f"job-{len(self.jobs)}",
            "do": do,
            "said": said,
            "started": 1.8e9 + len(self.jobs),
            "ended": None,
        }
        known |= {
            "state": state,
            "sentence": "",
            "resumable": False,
            "plan": None,
            "events": [],
            "result": None,
            "files": [],
        }
        known |= {"run": "photos-simmatch-0-2" if do == "train" else None, "command": f"epass {do} photos"}
        known["progress"] = {
            "step": 120,
            "steps": 400,
            "values": {"test_error": 0.14},
            "seconds_left": 95,
            "what": "step",
        }
        self.jobs[known["id"]] = known
        return known

    def run(self, name: str, wrong: int) -> dict[str, Any]:
        """A finished run with so many mistakes in the first class."""
        kinds, method = sorted(set(self.truth)), name.split("-")[1]
        matrix = [[10 if r == c else 0 for c in range(len(kinds))] for r in range(len(kinds))]
        matrix[0][0], matrix[0][-1] = 10 - wrong, wrong
        error = wrong / (10 * len(kinds))
        bins = [
            {"low": k / 5, "high": k / 5 + 0.2, "count": 4 * k, "confidence": k / 5 + 0.1, "accuracy": k / 5 + 0.04}
            for k in range(5)
        ]
        score = {
            "key": "error",
            "name": "Test error",
            "better": "lower",
            "value": error,
            "text": f"{100 * error:.1f} %",
        }
        score |= {
            "labels_only": error + 0.05,
            "labels_only_text": f"{100 * error + 5:.1f} %",
            "definition": "Share that is wrong.",
        }
        guilty = [
            {"id": i, "name": self.names[i], "truth": kinds[0], "guess": kinds[-1], "confidence": 0.9}
            for i in range(wrong)
        ]
        row = {"name": name, "title": f"{method} with 3 projectors", "method": method, "seed": 0, "state": "finished"}
        row |= {"finished": True, "step": 400, "steps": 400, "error": error, "labels_only_error": error + 0.05}
        row |= {"labels": 60, "seconds": 41.0, "kept": None, "started": "2026-11-16T18:00:00+00:00"}
        curve = {"step": [100, 200, 300, 400], "test_error": [0.4, 0.2, 0.12, error], "coverage": [0.1, 0.5, 0.7, 0.8]}
        return {
            **row,
            "command": "epass train photos",
            "device": "cpu",
            "recipe": {"method.name": method, "plan.steps": 400},
            "curve": curve,
            "scores": [score],
            "guard": "The unlabeled images helped: 5.0 points less error than labels only.",
            "files": ["recipe.toml", "results.json"],
            "report": True,
            "confusion": {"classes": kinds, "matrix": matrix},
            "reliability": {"bins": bins, "ece": 0.05, "images": 40},
            "mistakes": guilty,
        }

    def pair(self, a: str, b: str) -> dict[str, Any]:
        sides = [self.runs[a], self.runs[b]]
        more = max(sides, key=lambda run: len(run["mistakes"]))["mistakes"][-1]
        right, wrong = (
            (more["guess"], more["truth"])
            if len(sides[0]["mistakes"]) > len(sides[1]["mistakes"])
            else (more["truth"], more["guess"])
        )
        differ = [{**more, "guesses": [right, wrong], "confidences": [0.8, 0.9]}]
        verdict = f"On this one seed {sides[0]['title']} is better than {sides[1]['title']}: 2.50 points less."
        return {"runs": sides, "verdict": verdict, "images": 40, "differ": differ}

    def publish_soon(self, event: str, value: Any) -> None:
        """Publish from another thread than the server's."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.publish, event, value)

    def _write(self, path: str, said: dict[str, str], content: bytes) -> Response:
        if path == "/api/import" and said["force"] == "0":
            return JSONResponse({"error": "2 images have another label already.", "rows": []}, 409)
        if not path.startswith("/api/jobs"):
            return super()._write(path, said, content)
        body = {name: value for name, value in json.loads(content).items() if name != "version"}
        self.asked.append((path, body))
        if path == "/api/jobs" and body["plan"]:
            facts = {
                "method": "SimMatch with 3 projectors",
                "labels": "60 of 240 images",
                "steps": "400, about 40 s on this machine",
            }
            return JSONResponse([{"kind": "plan", "title": "Train", "facts": facts}])
        if path == "/api/jobs":
            job = self.job(body["do"], body["said"])
        else:
            number, what = path.split("/")[3:]
            job = self.jobs[number]
            stopped = {"state": "stopped", "sentence": "a checkpoint is kept.", "resumable": True}
            job |= stopped if what == "stop" else {"state": "running", "sentence": "", "resumable": False}
        self.publish("job", job)
        return JSONResponse({"id": job["id"]})

    def _facts(self, what: str, said: dict[str, str]) -> Any:
        self.loop = asyncio.get_running_loop()
        if what == "look/map":
            kinds = sorted(set(self.truth))
            spots = [(kinds.index(truth), i) for i, truth in enumerate(self.truth)]
            xy = [
                [(2000, 8000)[kind % 2] + i * 37 % 800, (2000, 8000)[kind // 2 % 2] + i * 61 % 800] for kind, i in spots
            ]
            return {"n": 0, "xy": [number for place in xy for number in place], "ids": None}
        top, _, rest = what.partition("/")
        if top == "runs" and rest:
            return self.runs[rest]
        known = {"forms": self.forms, "jobs": [*self.jobs.values()][::-1], "runs": [*self.runs.values()]}
        if what == "pair":
            return self.pair(said["a"], said["b"])
        return known[what] if what in known else super()._facts(what, said)
