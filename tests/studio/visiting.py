"""A server in this process, and a browser without a window that speaks to it through a real socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any, NamedTuple

import uvicorn

from epass.app.web import LOCAL, listen, server_settings
from epass.studio.safety import Door

TOKEN = "the-token-of-this-test"
JSON = "application/json"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def said(self) -> Any:
        return json.loads(self.content)


class Visitor:
    """Whoever has the cookie, and asks as a page of ours does unless told otherwise."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.host = f"127.0.0.1:{port}"
        self.cookie = f"epass-{port}={TOKEN}"

    def headers(self, method: str, **more: str | None) -> dict[str, str]:
        """Those of our page; None leaves one out."""
        ours: dict[str, str | None] = {"Host": self.host, "Cookie": self.cookie}
        if method == "POST":
            ours |= {"Origin": f"http://{self.host}", "Content-Type": JSON}
        ours |= {name.replace("_", "-"): value for name, value in more.items()}
        return {name: value for name, value in ours.items() if value is not None}

    @contextmanager
    def open(
        self, method: str, path: str, body: Any = None, *, chunked: bool = False, **headers: str | None
    ) -> Iterator[HTTPResponse]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = self.headers(method, **headers)
        if chunked:
            sent["Transfer-Encoding"] = "chunked"
        connection.request(method, path, body, sent, encode_chunked=chunked)
        try:
            yield connection.getresponse()
        finally:
            connection.close()

    def get(self, path: str, **headers: str | None) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, value: Any = None, **headers: str | None) -> Answer:
        body = value if isinstance(value, bytes) else json.dumps(value or {}).encode()
        return self.ask("POST", path, body, **headers)

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Answer:
        with self.open(method, path, body, **more) as found:
            return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())


@contextmanager
def serving(application: Any, *, stream: Any = None, numbers: bool = False) -> Iterator[tuple[Visitor, Door]]:
    """The application behind its door."""
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        door = Door(application, TOKEN, port, LOCAL, numbers=numbers)
        running = uvicorn.Server(server_settings(door, 64))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield Visitor(port), door
        finally:
            if stream is not None and stream.loop is not None:
                stream.loop.call_soon_threadsafe(stream.close)
            running.should_exit = True
            thread.join()
