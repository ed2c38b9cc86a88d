"""A web server on this machine that stands in for the owner of a data set, with the bad habits of real ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread


class Owner(ThreadingHTTPServer):
    """Serves `files`; the switches say what it does wrong."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.files: dict[str, bytes] = {}
        self.ranges = True  # it honors Range
        self.says_ranges = True
        self.shifted = False  # it sends another part than the one asked for
        self.says_length = True
        self.silence: Event | None = None  # before it breaks off, it is silent for as long as this
        self.break_offs: list[int] = []  # of the coming answers, after how many bytes each one breaks off
        self.codes: list[int] = []  # of the coming answers, instead of a file
        self.asked: list[str | None] = []  # the Range of every request

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no news."""

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class _Answer(BaseHTTPRequestHandler):
    server: Owner

    def do_GET(self) -> None:
        owner, wanted = self.server, self.headers.get("Range")
        owner.asked.append(wanted)
        body = owner.files.get(self.path.lstrip("/").partition("?")[0])
        if owner.codes or body is None:
            self.send_error(owner.codes.pop(0) if owner.codes else 404)
            return
        start = int(re.findall(r"\d+", wanted)[0]) if wanted and owner.ranges else 0
        if start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            start -= owner.shifted
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if owner.ranges and owner.says_ranges:
            self.send_header("Accept-Ranges", "bytes")
        if owner.says_length:
            self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        end = start + owner.break_offs.pop(0) if owner.break_offs else len(body)
        self.wfile.write(body[start:end])
        if end < len(body) and owner.silence is not None:
            owner.silence.wait(30)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def serving() -> Iterator[Owner]:
    with Owner() as owner:
        thread = Thread(target=owner.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield owner
        finally:
            owner.shutdown()
            thread.join()
