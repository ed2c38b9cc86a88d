"""A stand-in for the studio's server: the routes that the page asks for, with everything in memory.

For the tests of the page, and to look at the page by hand: python tests/studio/fake_server.py 8771 --photos FOLDER
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import random
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvicorn
from PIL import Image
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

STATIC = Path(__file__).parents[2] / "src" / "epass" / "studio" / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
KEYS = {"accept": "Enter", "undo": "u", "clear": "c", "skip": "s", "unsure": "x", "none": "n", "next": "ArrowRight"}
KEYS |= {"previous": "ArrowLeft", "grid": "g", "search": "/", "help": "h"}
MARKS = ("skip", "unsure", "none")
KINDS = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}


class FakeStudio:
    """What the server knows and answers; `gone` lets every request fail, `held` and `wait` let writes take long.

    `start` is the number of its start, and `locked` is how a page finds the next one: its cookie is of no use.
    """

    def __init__(self, names: list[str], truth: list[str], photos: Path | None = None) -> None:
        self.names, self.truth, self.photos = names, truth, photos
        self.n, self.gone, self.held, self.wait = 0, False, False, 0.0
        self.start, self.digest, self.locked = "1", "of these photos", False
        self.classes: list[dict[str, Any]] = []
        self.labels: dict[int, int] = {}
        self.marks: dict[int, str] = {}
        self.keys = dict(KEYS)
        self.guesses: dict[int, tuple[int, float]] = {}
        self.model: dict[str, Any] | None = None
        self.past: list[tuple[str, Any]] = []
        self.answers: list[dict[str, Any]] = []  # every change that was written, in order
        self.listeners: list[asyncio.Queue[str]] = []
        self.teach_from = 12
        self.loop: asyncio.AbstractEventLoop | None = None

    # what it knows
    def row(self, i: int) -> dict[str, Any]:
        guess, confidence = self.guesses.get(i, (None, None))
        why = None if i in self.labels else ("typical of its kind" if guess is None else "the model hesitates here")
        return {
            "id": i, "name": self.names[i], "label": self.labels.get(i), "mark": self.marks.get(i), "guess": guess,
            "confidence": confidence, "why": why, "disagreement": None if guess is None else (i * 37 % 100) / 100,
        }  # fmt: skip

    def counted(self) -> list[dict[str, Any]]:
        held = list(self.labels.values())
        return [{**each, "count": held.count(each["id"])} for each in self.classes]

    def state(self) -> dict[str, Any]:
        held = list(self.marks.values())
        return {
            "project": {"name": "photos", "images": len(self.names), "folder": "/home/me/photos",
                        "version": self.start, "digest": self.digest},
            "n": self.n,
            "classes": self.counted(), "marks": {mark: held.count(mark) for mark in MARKS},
            "labeled": len(self.labels), "keys": self.keys, "model": self.model, "progress": None,
        }  # fmt: skip

    def ids(self, view: str, said: dict[str, str]) -> list[int]:
        every = range(len(self.names))
        empty = [i for i in every if i not in self.labels and i not in self.marks]
        if view == "suggested":
            found = sorted(empty, key=lambda i: self.guesses.get(i, (0, (i * 7919 % 997) / 997))[1])[:200]
        elif view == "unlabeled":
            found = empty
        elif view == "labeled":
            found = sorted(self.labels)
        elif view in MARKS:
            found = [i for i in every if self.marks.get(i) == view]
        elif view == "class":
            found = [i for i in every if self.labels.get(i) == int(said["class"])]
        elif view == "guessed":
            found = [i for i in empty if self.guesses.get(i, (None,))[0] == int(said["class"])]
        elif view == "cell":
            found = [i for i in every if self.labels.get(i) == int(said["true"])]
            found = [i for i in found if self.guesses.get(i, (None,))[0] == int(said["guess"])]
        elif view in ("mistakes", "suspects"):
            found = [i for i in self.labels if i in self.guesses and self.guesses[i][0] != self.labels[i]]
        elif view in ("unlike", "disagreement"):
            found = list(every)[5::17]
        else:
            found = list(every)
        return [i for i in found if said.get("q", "").lower() in self.names[i].lower()]

    # what changes it
    def publish(self, event: str, value: Any) -> None:
        for queue in self.listeners:
            queue.put_nowait(f"event: {event}\ndata: {json.dumps(value)}\n\n")

    def changed(self, ids: list[int], said: str, classes: bool = False) -> dict[str, Any]:
        self.n += 1
        rows = [self.row(i) for i in ids]
        self.publish("labels", {"n": self.n, "rows": rows} if len(rows) <= 200 else {"n": self.n, "many": True})
        if classes:
            self.publish("classes", {"n": self.n, "classes": self.counted()})
        asyncio.get_running_loop().call_later(0.3, self.teach, self.n)
        return {"n": self.n, "rows": rows, "said": said}

    def put(self, i: int, label: int | None, mark: str | None) -> None:
        for held, value in ((self.labels, label), (self.marks, mark)):
            held.pop(i, None)  # type: ignore[attr-defined]
            if value is not None:
                held[i] = value  # type: ignore[index]

    def remember(self, tab: str) -> None:
        kept = [dict(each) for each in self.classes]
        self.past.append((tab, (dict(self.labels), dict(self.marks), kept)))

    def answer(self, body: dict[str, Any]) -> Response:
        changes = body["changes"]
        stale = [c["id"] for c in changes if c["seen"] != {k: self.row(c["id"])[k] for k in ("label", "mark")}]
        if stale:
            sentence = f"{self.names[stale[0]]} was changed in another tab meanwhile."
            return JSONResponse({"error": sentence, "rows": [self.row(i) for i in stale]}, 409)
        self.remember(body["tab"])
        for change in changes:
            self.put(change["id"], change["label"], change["mark"])
            self.answers.append(change)
        return JSONResponse(self.changed([c["id"] for c in changes], ""))

    def undo(self, tab: str) -> Response:
        mine = [k for k, (who, _) in enumerate(self.past) if who == tab]
        if not mine:
            return JSONResponse({"error": "There is nothing left to undo in this tab."}, 400)
        labels, marks, classes = self.past.pop(mine[-1])[1]
        ids = [
            i
            for i in range(len(self.names))
            if (labels.get(i), marks.get(i)) != (self.labels.get(i), self.marks.get(i))
        ]
        self.labels, self.marks, self.classes = labels, marks, classes
        said = f"Undid: {self.names[ids[0]]}" if ids else "Undid the change of classes."
        return JSONResponse(self.changed(ids, said, classes=not ids))

    def change_class(self, body: dict[str, Any]) -> Response:
        do, name = body["do"], body.get("name", "").strip()
        if do in ("add", "rename") and any(each["name"] == name for each in self.classes):
            return JSONResponse({"error": f"There is already a class named {name}."}, 400)
        self.remember(body.get("tab", ""))
        if do == "add":
            free = [key for key in "1234567890" if key not in [each["key"] for each in self.classes]]
            self.classes.append({"id": len(self.past) + 10, "name": name, "key": free[0] if free else ""})
            return JSONResponse(self.changed([], f"Added '{name}'.", classes=True))
        chosen = next(each for each in self.classes if each["id"] == body["id"])
        ids = [i for i, label in self.labels.items() if label == chosen["id"]]
        if do == "rename":
            chosen["name"] = name
        elif do == "key":
            chosen["key"] = body["key"]
        elif do == "remove" and ids:
            return JSONResponse({"error": f"'{chosen['name']}' still has labels: merge it instead."}, 400)
        else:
            self.classes.remove(chosen)
            for i in ids:
                self.labels[i] = body["into"]
        return JSONResponse(self.changed(ids, f"Changed '{chosen['name']}'.", classes=True))

    def teach(self, n: int) -> None:
        """A model that is right more often the more labels there are; the newest request wins."""
        used = set(self.labels.values())
        if n != self.n or len(self.labels) < self.teach_from or len(used) < 2:
            return
        dice, by_name = random.Random(n), {each["name"]: each["id"] for each in self.classes}
        right = 1 - 0.8 / (1 + len(self.labels) / 10)
        for i, truth in enumerate(self.truth):
            known = by_name.get(truth) in used and dice.random() < right
            guess = by_name[truth] if known else dice.choice(sorted(used))
            self.guesses[i] = (guess, round(dice.uniform(0.5 if known else 0.3, 0.99 if known else 0.7), 3))
        history = (self.model or {"history": []})["history"]
        count, wide = len(self.labels), 1.2 / len(self.labels) ** 0.5
        score = {"value": right, "low": max(0.0, right - wide), "high": min(1.0, right + wide / 2), "labels": count}
        row = {
            "n": n,
            "labels": count,
            "classes": len(used),
            "how": "semi-supervised",
            "seconds": 4.0,
            "at": time.time(),
        }
        self.model = {
            "n": n, "labels": count, "how": "semi-supervised", "accuracy": score, "seconds": 4.0, "behind": 0,
            "labels_only": {**score, "value": right - 0.08},
            "about": "Measured on all labels.",
            "helped": "The unlabeled images helped: 8 more of 100 photos are right than with the labels alone.",
            "history": [*history, {**row, "accuracy": right, "low": score["low"], "high": score["high"]}],
            "enough": {"verdict": "not yet", "sentence": "Not yet: the last 10 labels still helped by 4 points."},
        }  # fmt: skip
        self.publish("model", self.model)

    # what it shows
    def picture(self, i: int, side: int) -> bytes:
        made = io.BytesIO()
        if self.photos:
            with Image.open(self.photos / self.names[i]) as photo:
                small = photo.convert("RGB")
        else:
            small = Image.linear_gradient("L").resize((side, side * 3 // 4)).convert("RGB")
            small.paste((i * 53 % 256, i * 97 % 256, i * 29 % 256), (side // 4, side // 4, side * 3 // 4, side // 2))
        small.thumbnail((side, side))
        small.save(made, "JPEG")
        return made.getvalue()

    def app(self, *folders: Path) -> Starlette:
        async def serve(request: Request) -> Response:
            self.loop = asyncio.get_running_loop()
            if self.gone:
                return Response(status_code=503)
            if self.locked and request.url.path.startswith("/api/"):
                return JSONResponse({"error": "Open the address that the terminal printed."}, 401)
            response = await self._serve(request, folders)
            response.headers["Content-Security-Policy"] = POLICY
            response.headers.setdefault("Cache-Control", "no-cache")
            return response

        return Starlette(routes=[Route("/{path:path}", serve, methods=["GET", "POST"])])

    async def _serve(self, request: Request, folders: tuple[Path, ...]) -> Response:
        path, said = request.url.path, dict(request.query_params)
        if request.method == "POST":
            await asyncio.sleep(self.wait)
            while self.held:
                await asyncio.sleep(0.01)
            return self._write(path, said, await request.body())
        top, _, rest = path.strip("/").partition("/")
        if top in ("thumb", "image"):
            i, _, side = rest.partition("/")
            content = self.picture(int(i), int(side or 1200))
            return Response(content, media_type="image/jpeg", headers={"Cache-Control": "max-age=3600"})
        if path == "/api/events":
            return StreamingResponse(self._events(), media_type="text/event-stream")
        if top == "api":
            return JSONResponse(self._facts(rest, said))
        name = "index.html" if path == "/" else rest
        found = next((folder / name for folder in folders if (folder / name).is_file()), None)
        return FileResponse(found, media_type=KINDS.get(found.suffix)) if found else Response(status_code=404)

    def _write(self, path: str, said: dict[str, str], content: bytes) -> Response:
        if path == "/api/import":
            return JSONResponse(self.changed([], f"Took in {said['name']}: {len(content)} bytes."))
        body = json.loads(content)
        if path == "/api/rows":
            return JSONResponse({"rows": [self.row(i) for i in body["ids"]]})
        if path == "/api/answers" and body["version"] != self.start:
            return JSONResponse({"error": "The studio was started again meanwhile: reload the page."}, 412)
        if path == "/api/answers":
            return self.answer(body)
        if path == "/api/undo":
            return self.undo(body["tab"])
        if path == "/api/classes":
            return self.change_class(body)
        if path == "/api/keys":
            self.keys[body["action"]] = body["key"]
            return JSONResponse(self.changed([], "Changed the key."))
        return JSONResponse({"error": "There is no such address."}, 404)

    def _facts(self, what: str, said: dict[str, str]) -> Any:
        if what == "state":
            return self.state()
        if what == "ids":
            return {"n": self.n, "ids": self.ids(said.get("view", "all"), said), "title": said.get("view", "all")}
        if what == "model":
            return self.model
        if what == "look/map":
            dice = random.Random(1)
            kinds = sorted(set(self.truth))
            spots = [dice.gauss(2000 + 2500 * (kinds.index(t) >> k & 1) * 2, 900) for t in self.truth for k in (0, 1)]
            return {"n": self.n, "xy": [int(min(10000, max(0, spot))) for spot in spots], "ids": None}
        if what == "look/confusion":
            of = [each["id"] for each in self.classes]
            pairs = [(self.labels[i], self.guesses[i][0]) for i in self.labels if i in self.guesses]
            matrix = [[pairs.count((true, guess)) for guess in of] for true in of]
            return {"classes": of, "matrix": matrix, "labels": len(pairs), "how": "semi-supervised"}
        if what == "look/calibration":
            bins = [
                {"low": k / 5, "high": k / 5 + 0.2, "count": 4, "confidence": k / 5 + 0.1, "accuracy": k / 5 + 0.05}
                for k in range(5)
            ]
            return {"bins": bins, "ece": 0.05, "labels": len(self.labels), "how": "semi-supervised"}
        return []

    async def _events(self) -> AsyncIterator[str]:
        queue: asyncio.Queue[str] = asyncio.Queue()
        self.listeners.append(queue)
        try:
            yield ": hello\n\n"
            while True:
                yield await queue.get()
        finally:
            self.listeners.remove(queue)


def start(studio: FakeStudio, *folders: Path, port: int = 0) -> tuple[uvicorn.Server, str]:
    """Serve from a thread; the server (say `should_exit` to end it) and its address."""
    config = uvicorn.Config(studio.app(*folders), port=port, log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    return server, f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"


if __name__ == "__main__":
    words = argparse.ArgumentParser()
    words.add_argument("port", type=int)
    words.add_argument("--photos", type=Path, default=None)
    words.add_argument("--over", type=Path, default=None, help="a folder whose files come before the page's own")
    words.add_argument("--static", type=Path, default=STATIC)
    words.add_argument("--classes", default="", help="classes that are there from the start, with commas")
    words.add_argument("--images", type=int, default=240)
    asked = words.parse_args()
    if asked.photos:
        files = sorted(asked.photos.rglob("*.jpg"))
        random.Random(0).shuffle(files)
        files = files[: asked.images]
        fake = FakeStudio(
            [str(f.relative_to(asked.photos)) for f in files], [f.parent.name for f in files], asked.photos
        )
    else:
        kinds = ("beach", "forest", "mountain", "street")
        numbers = range(asked.images)
        fake = FakeStudio([f"photo_{i:05}.jpg" for i in numbers], [kinds[i % 4] for i in numbers])
    for number, name in enumerate(filter(None, asked.classes.split(","))):
        fake.classes.append({"id": number, "name": name, "key": "1234567890"[number]})
    folders = [folder for folder in (asked.over, asked.static) if folder]
    print(start(fake, *folders, port=asked.port)[1], flush=True)
    threading.Event().wait()
