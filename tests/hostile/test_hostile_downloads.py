"""Servers that send something else, something endless, or somebody else's address."""

from __future__ import annotations

import hashlib
import sys
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import epass.data.read.fetch
from epass.data.read.fetch import RemoteFile, _NoDowngrade, fetch
from epass.errors import InputError

Serve = Callable[[Callable[[BaseHTTPRequestHandler], None]], str]
RIGHT = "sha256:" + hashlib.sha256(b"right").hexdigest()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Answer every request as a function says, and return the address."""
    servers: list[tuple[ThreadingHTTPServer, Thread]] = []

    def start(answer: Callable[[BaseHTTPRequestHandler], None]) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer(self)

            def log_message(self, *_: object) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """A client that hangs up is no news."""

        server = Server(("127.0.0.1", 0), Handler)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_address[1]}/file.npz"

    yield start
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "diary.txt").write_text("dear diary")
    return tmp_path / "home"


def refuse(url: str, home: Path, words: str, size: int | None = None) -> None:
    with pytest.raises(InputError, match=words):
        fetch(RemoteFile(url, RIGHT, size), home, pause=lambda _: None)
    assert [path.name for path in home.parent.iterdir() if path.name not in ("home", "diary.txt")] == []
    assert not (home / "file.npz").exists()


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x", "gopher://x/", "javascript:x"]
)
def test_a_redirect_out_of_the_web_is_not_followed(serve: Serve, home: Path, target: str) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(302)
        request.send_header("Location", target)
        request.end_headers()

    refuse(serve(answer), home, "not safe to follow|withdrew it")


def test_an_encrypted_address_is_not_left_for_a_plain_one() -> None:
    request = urllib.request.Request("https://owner.example/file")
    with pytest.raises(InputError, match="not safe to follow"):
        _NoDowngrade().redirect_request(request, None, 302, "", {}, "http://owner.example/file")
    assert _NoDowngrade().redirect_request(request, None, 302, "", {}, "https://other.example/file") is not None


def test_redirects_in_a_circle_end(serve: Serve, home: Path) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(302)
        request.send_header("Location", request.path)
        request.end_headers()

    refuse(serve(answer), home, "302")


@pytest.mark.parametrize("size", [None, 5])
def test_a_body_without_an_end_is_given_up(
    serve: Serve, home: Path, monkeypatch: pytest.MonkeyPatch, size: int | None
) -> None:
    monkeypatch.setattr(epass.data.read.fetch, "LARGEST_UNSTATED", 2**20)

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        while True:
            request.wfile.write(bytes(2**16))

    refuse(serve(answer), home, "does not end" if size is None else "has the checksum", size)
    assert sum(path.stat().st_size for path in home.iterdir()) <= 2**20 + epass.data.read.fetch.CHUNK


@pytest.mark.parametrize("length", [str(2**60), "5000000000"])
def test_a_length_beyond_all_is_not_waited_for(serve: Serve, home: Path, length: str) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", length)
        request.end_headers()

    refuse(serve(answer), home, "more than it can have")
    refuse(serve(answer), home, "not 5", size=5)


@pytest.mark.parametrize("length", ["-1", "1e9", "0x10", "９", ""])
def test_a_length_that_is_no_number(serve: Serve, home: Path, length: str) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.wfile.write(f"Content-Length: {length}\r\n".encode())
        request.end_headers()
        request.wfile.write(b"wrong")

    refuse(serve(answer), home, "has the checksum|could not be downloaded")


def test_what_is_not_http_at_all(serve: Serve, home: Path) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"\x80\x04\x95" * 100 + b"\r\n\r\n")

    refuse(serve(answer), home, "could not be downloaded")


def test_a_header_that_never_ends(serve: Serve, home: Path) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"HTTP/1.0 200 OK\r\n" + b"X-Long: " + b"x" * 200_000 + b"\r\n\r\n")

    refuse(serve(answer), home, "could not be downloaded")


@pytest.mark.parametrize("name", ["../../x", "a%2f..%2f..%2fx", "..%5cx"])
def test_the_name_of_a_file_cannot_lead_out(name: str) -> None:
    found = RemoteFile(f"https://owner.example/{name}?download=1", RIGHT).name
    assert "/" not in found
    assert found not in ("", ".", "..")
    assert sys.platform == "win32" or "\\" not in found
