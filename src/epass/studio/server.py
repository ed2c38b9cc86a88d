"""The addresses of the studio: requests become calls, and what comes back becomes answers."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import quote

from ..app.web import Refusal, read_body
from ..errors import InputError
from ..labeling.beliefs import digest_of
from ..labeling.steps import Conflict
from ..labeling.thumbnails import picture, thumbnail
from ..machine.cpu import count_cores
from .asked import LARGEST_ANSWERS, LARGEST_FILE, LARGEST_JSON, Asked
from .desk import Desk
from .safety import REPORT_POLICY
from .stream import Stream

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    Handler = Callable[[Request], Awaitable[Response]]

T = TypeVar("T")

STATIC = Path(__file__).with_name("static")
TYPES = {  # not those of the machine, which may call a script plain text
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}
SIDES: dict[str, Literal[160, 320]] = {"160": 160, "320": 320}  # of thumbnails, in pixels
SECONDS = 60.0  # for a request to be sent
ANSWERING = 8  # requests that are answered at a time, beside pictures
FOREVER = "private, max-age=31536000, immutable"


@dataclass
class Kitchen:
    """Where blocking work is done, so that the loop that serves all pages never waits.

    Pictures wait for each other outside of the threads: a page that scrolls asks for hundreds, and an answer must not
    stand behind them.
    """

    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(ANSWERING + count_cores(), "studio"))
    drawing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(count_cores()))

    async def do(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.threads, work, *arguments)

    async def draw(self, request: Request, work: Callable[..., T], *arguments: Any) -> T:
        async with self.drawing:
            if await request.is_disconnected():  # whoever scrolled on does not look at it any more
                raise Refusal(404, "Nobody waits for this picture any more.")
            return await self.do(work, *arguments)


def make_studio(desk: Desk, stream: Stream, static: Path = STATIC) -> Starlette:
    """The application, which trusts whoever asks: `safety.Door` stands before it."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.responses import FileResponse, Response, StreamingResponse
    from starlette.routing import Route

    kitchen, version = Kitchen(), secrets.token_hex(4)
    digest = digest_of(desk.project.names)  # of another start: as long as it is the same, numbers of images are, too

    def guarded(handler: Handler) -> Handler:
        """Let every refusal be one sentence; nobody who asks is to see a traceback."""

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except Refusal as refusal:
                return as_json({"error": str(refusal)}, refusal.status)
            except Conflict as conflict:
                return as_json({"error": str(conflict), "rows": desk.describe(conflict.rows)}, 409)
            except InputError as problem:
                return as_json({"error": str(problem)}, 400)
            except Exception:
                logging.getLogger(__name__).exception("%s %s", request.method, request.url.path)
                return as_json({"error": "The studio failed on this: its terminal says why."}, 500)

        return answer

    def telling(work: Callable[[Asked], Any]) -> Handler:
        """A GET whose answer is JSON."""

        async def tell(request: Request) -> Response:
            return Response(await kitchen.do(lambda: encoded(work(in_address(request)))), media_type="application/json")

        return guarded(tell)

    def changing(work: Callable[[Asked], Any], most: int = LARGEST_JSON) -> Handler:
        """A POST with a body in JSON, or with a file."""

        async def change(request: Request) -> Response:
            try:
                async with asyncio.timeout(SECONDS):
                    body = await read_body(request, most, "The request")
            except TimeoutError:
                raise Refusal(408, f"The request took more than {SECONDS:g} seconds: send it again.") from None
            values = in_address(request).values

            def do() -> bytes:
                said = Asked(values, body) if most == LARGEST_FILE else Asked.in_json(values, body)
                if said.text("version", version) != version:  # its numbers may mean other images now
                    raise Refusal(412, "The studio was started again meanwhile: reload the page.")
                return encoded(work(said))

            return Response(await kitchen.do(do), media_type="application/json")

        return guarded(change)

    async def page(request: Request) -> Response:
        content, kind = await kitchen.do(static_file, static, request.path_params.get("file", "index.html"))
        return with_tag(request, content, kind, "no-cache")

    async def thumb(request: Request) -> Response:
        side = SIDES.get(request.path_params["side"])
        if side is None:
            raise Refusal(404, f"Thumbnails have a side of {' or '.join(SIDES)} pixels.")
        return await image(request, lambda number: (thumbnail(desk.project, number, side), "image/jpeg"))

    async def image(request: Request, draw: Callable[[int], tuple[bytes, str]] | None = None) -> Response:
        number = in_address(request).image(len(desk.project.names))
        try:
            content, kind = await kitchen.draw(request, draw or (lambda number: picture(desk.project, number)), number)
        except InputError as problem:
            raise Refusal(404, str(problem)) from None
        # a number is a position in the folder, which another start may list anew
        fresh = request.query_params.get("v") == version
        return with_tag(request, content, kind, FOREVER if fresh else "no-cache")

    async def events(request: Request) -> Response:
        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(stream.listen(), media_type="text/event-stream", headers=headers)

    async def hand_out(request: Request) -> Response:
        name, pieces = await kitchen.do(desk.hand_out, in_address(request))
        return StreamingResponse(pieces, media_type="application/octet-stream", headers=attachment(name))

    async def result(request: Request) -> Response:
        path = await kitchen.do(desk.result, in_address(request))
        return FileResponse(path, media_type="application/octet-stream", headers=attachment(path.name))

    async def report(request: Request) -> Response:
        path = await kitchen.do(desk.report, in_address(request))
        return FileResponse(path, media_type=TYPES[".html"], headers={"Content-Security-Policy": REPORT_POLICY})

    async def complain(_: Request, problem: Exception) -> Response:
        assert isinstance(problem, HTTPException)
        return as_json({"error": f"{problem.detail}: reload the page."}, problem.status_code)

    def state(asked: Asked) -> dict[str, Any]:
        known = desk.state(asked)
        project = {**known["project"], "version": version, "digest": digest}
        return {**known, "project": project, "progress": stream.progress}

    shown: dict[str, Handler] = {
        "/": guarded(page),
        "/static/{file}": guarded(page),
        "/thumb/{id}/{side}": guarded(thumb),
        "/image/{id}": guarded(image),
        "/report/{run:path}": guarded(report),
        "/api/events": guarded(events),
        "/api/export/{kind}": guarded(hand_out),
        "/api/jobs/{job}/files/{file:path}": guarded(result),
    }
    told: dict[str, Callable[[Asked], Any]] = {
        "/api/state": state,
        "/api/ids": desk.ids,
        "/api/model": desk.model,
        "/api/look/map": desk.map,
        "/api/look/confusion": desk.confusion,
        "/api/look/calibration": desk.calibration,
        "/api/forms": desk.forms,
        "/api/jobs": desk.list_jobs,
        "/api/runs": desk.runs,
        "/api/runs/{run:path}": desk.run,
        "/api/pair": desk.pair,
    }
    changed: dict[str, Callable[[Asked], Any]] = {
        "/api/rows": desk.rows,
        "/api/answers": desk.answer,
        "/api/undo": desk.undo,
        "/api/classes": desk.change_class,
        "/api/keys": desk.set_key,
        "/api/import": desk.take_in,
        "/api/jobs": desk.start_job,
        "/api/jobs/{job}/stop": desk.stop_job,
        "/api/jobs/{job}/resume": desk.resume_job,
    }
    limits = {"/api/answers": LARGEST_ANSWERS, "/api/import": LARGEST_FILE}
    routes = [
        *(Route(path, handler) for path, handler in shown.items()),
        *(Route(path, telling(work)) for path, work in told.items()),
        *(
            Route(path, changing(work, limits.get(path, LARGEST_JSON)), methods=["POST"])
            for path, work in changed.items()
        ),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: complain})


def in_address(request: Request) -> Asked:
    """What the path and the query say."""
    return Asked({**request.query_params, **request.path_params})


def encoded(value: Any) -> bytes:
    """JSON in plain letters: names of files may hold what is no text elsewhere."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def as_json(value: Any, status: int) -> Response:
    """An answer that is not the usual one."""
    from starlette.responses import Response

    return Response(encoded(value), status, media_type="application/json")


def static_file(static: Path, name: str) -> tuple[bytes, str]:
    """A file of the page and its type; nothing but the files that lie there can be named."""
    kind = TYPES.get(Path(name).suffix)
    if kind is None or name not in {path.name for path in static.iterdir()}:
        raise Refusal(404, "The page has no such file: reload it.")
    return (static / name).read_bytes(), kind


def with_tag(request: Request, content: bytes, kind: str, caching: str) -> Response:
    """An answer that a browser need not be sent again, if it has it."""
    from starlette.responses import Response

    headers = {"ETag": f'"{sha256(content).hexdigest()[:32]}"', "Cache-Control": caching}
    if headers["ETag"] in [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)


def attachment(name: str) -> Mapping[str, str]:
    """What lets a browser save an answer under that name, whatever letters it has."""
    return {"Content-Disposition": f"attachment; filename*=utf-8''{quote(name, safe='', errors='replace')}"}
