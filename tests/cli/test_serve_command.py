"""A model behind HTTP: what it answers, what it refuses, and that it never shows a traceback."""

from __future__ import annotations

import asyncio
import io
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from calling import Epass
from PIL import Image

from epass.app import server
from epass.app.answers import Judge
from epass.app.events import Caution, Notice, Plan, Result
from epass.app.serve import serve
from epass.app.server import Desk, make_server
from epass.app.web import LOCAL, is_local, listen
from epass.evaluation.calibrated import Calibration
from epass.evaluation.novelty import Novelty

CLASSES = ["dark", "light"]


class Brightness:
    """A model that looks at the mean of an image."""

    def __init__(self) -> None:
        self.model: dict[str, Any] = {"classes": CLASSES, "channels": 3, "height": 8, "width": 8}
        self.known: Novelty | None = Novelty(np.random.default_rng(0).normal((9, 0), 1, (40, 2)))
        self.settings: dict[str, Any] = {}
        self.tested = None
        self.waits: threading.Event | None = None

    def answer(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.waits is not None:
            self.waits.wait(20)
        if images.shape[1:] == (1, 8, 8):
            raise RuntimeError("gray")
        light = images.reshape(len(images), -1).mean(1) / 255
        return np.stack([1 - light, light], 1).astype(np.float32), np.stack([light, 1 - light], 1)


@pytest.fixture
def model() -> Brightness:
    return Brightness()


@pytest.fixture
def port(model: Brightness) -> Iterator[int]:
    judge = Judge(CLASSES, Calibration(temperature=0.1, coverage=0.9, set_from=0.3), model.known, 2)
    settings = uvicorn.Config(make_server(Desk(model, judge), LOCAL), http="h11", lifespan="off", log_config=None)
    running = uvicorn.Server(settings)
    with listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            running.should_exit = True
            thread.join()


def ask(port: int, body: bytes = b"", method: str = "POST", path: str = "/predict", **headers: str) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    content = json.loads(answer.read())
    connection.close()
    return answer.status, content


def photo(level: int, kind: str = "JPEG", side: int = 20, mode: str = "RGB") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (side, side), (level,) * 3).convert(mode).save(stream, kind)
    return stream.getvalue()


def test_an_image_gets_its_classes_its_set_and_whether_it_is_none_of_these(port: int) -> None:
    status, said = ask(port, photo(250))
    assert (status, said["prediction"], said["set"], said["unlike"]) == (200, "light", ["light"], False)
    assert said["confidence"] > 0.99
    assert [entry["prediction"] for entry in said["top"]] == ["light", "dark"]
    assert "file" not in said
    status, said = ask(port, photo(127, "PNG", mode="L"))  # gray becomes color, as everywhere
    assert (status, sorted(said["set"]), said["unlike"]) == (200, CLASSES, True)
    assert ask(port, method="GET", path="/health") == (200, {"status": "ok", "classes": CLASSES, "answered": 2})


def test_a_gray_model_gets_gray_and_what_it_raises_is_shown_to_who_serves_it_alone(
    port: int, model: Brightness, caplog: pytest.LogCaptureFixture
) -> None:
    model.model["channels"] = 1
    assert ask(port, photo(9)) == (500, {"error": "The model failed on this image."})
    (record,) = caplog.records
    assert (record.getMessage(), record.exc_info[1].args) == ("POST /predict", ("gray",))


def test_whoever_hangs_up_is_no_failure(port: int, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf")
    assert ask(port, photo(250))[0] == 200
    assert caplog.records == []


def test_a_vector_is_a_list_of_numbers(port: int, model: Brightness) -> None:
    model.model = {"classes": CLASSES, "numbers": 3}
    assert ask(port, b"[255, 255, 200.5]")[1]["prediction"] == "light"
    for body in (b"[1, 2]", b"[[1, 2, 3]]", b'["a", 1, 2]', b"{", b"[1e99, 0, 0]", photo(3)):
        assert ask(port, body) == (400, {"error": "The model takes a vector: send a JSON list of 3 numbers."})


def test_the_help_names_the_address(port: int) -> None:
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/")
    assert f"http://127.0.0.1:{port}/predict" in connection.getresponse().read().decode()
    connection.close()


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ({"body": b"no image"}, 400, "The image cannot be read (not an image)."),
        ({"body": photo(3)[:-40]}, 400, "cannot be read"),
        ({"body": b""}, 400, "There is no image"),
        ({"body": photo(3), "Content-Type": "multipart/form-data; boundary=x"}, 415, "curl --data-binary"),
        ({"body": photo(3, side=99, kind="BMP")}, 413, "more than 5,000 bytes"),
        ({"body": photo(3), "Host": "elsewhere.example"}, 403, "by its own name"),
        ({"method": "GET"}, 405, "Method Not Allowed"),
        ({"path": "/admin"}, 404, "Not Found"),
    ],
    ids=["text", "cut off", "nothing", "form", "large", "other name", "method", "path"],
)
def test_what_cannot_be_answered_is_said_in_json(
    port: int, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], status: int, words: str
) -> None:
    monkeypatch.setattr(server, "LARGEST_BODY", 5000)
    found, said = ask(port, **asked)
    assert found == status
    assert words in said["error"]
    assert ask(port, photo(250))[0] == 200


def test_a_body_without_a_length_is_limited_too(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LARGEST_BODY", 5000)
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(
        "POST", "/predict", iter([bytes(4000)] * 2), encode_chunked=True, headers={"Transfer-Encoding": "chunked"}
    )
    assert connection.getresponse().status == 413
    connection.close()


def test_whoever_sends_too_slowly_is_told(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\nbegun")
        assert line.recv(1000).startswith(b"HTTP/1.1 408")


def test_too_many_at_once_are_sent_away(port: int, model: Brightness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WAITING", 1)
    model.waits = threading.Event()
    first: list[Any] = []
    thread = threading.Thread(target=lambda: first.append(ask(port, photo(250))))
    thread.start()
    for _ in range(500):  # until the first one has arrived
        status, said = ask(port, b"")
        if status == 503:
            break
        time.sleep(0.01)
    assert "Too many" in said["error"]
    model.waits.set()
    thread.join()
    assert first[0][0] == 200


def test_small_answers_are_not_held_back() -> None:
    async def accepted() -> int:
        found = asyncio.get_running_loop().create_future()

        class Line(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                line = transport.get_extra_info("socket")
                found.set_result(line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
                transport.close()

        listener = listen("127.0.0.1", 0)
        async with await asyncio.get_running_loop().create_server(Line, sock=listener):
            with socket.create_connection(listener.getsockname()):
                return await found

    assert asyncio.run(accepted()) != 0


@pytest.mark.parametrize(
    ("host", "local"), [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("0.0.0.0", False), ("lab", False)]
)
def test_only_this_machine_is_local(host: str, local: bool) -> None:
    assert is_local(host) == local


def test_other_machines_only_with_a_warning(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    events = list(serve(exported / "model.onnx", host="0.0.0.0", port=0))
    assert [type(event) for event in events] == [Plan, Caution, Notice, Result]
    assert "no password" in events[1].sentence
    assert Caution not in [type(event) for event in serve(exported, port=0)]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have to be told of such addresses")
def test_every_address_of_this_machine_is_its_own_name(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, said = uvicorn.Server.run, []

    def asked(self: uvicorn.Server, sockets: list[socket.socket]) -> None:
        def ask_once() -> None:
            connection = HTTPConnection(*sockets[0].getsockname(), timeout=30)
            connection.request("GET", "/health")
            said.append(connection.getresponse().status)
            connection.close()
            self.should_exit = True

        thread = threading.Thread(target=ask_once)
        thread.start()
        run(self, sockets)
        thread.join()

    monkeypatch.setattr(uvicorn.Server, "run", asked)
    serve(exported / "model.onnx", host="127.0.0.2", port=0).result()
    assert said == [200]


def test_a_mistake_is_one_sentence(epass: Epass, exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        answer = epass("serve", exported, "--port", str(port))
        assert (answer.code, answer.out) == (2, "")
        assert f"port {port} (address already in use): choose others" in answer.err
    assert "There is no port 70000" in epass("serve", exported, "--port", "70000").err
    assert "is not a run folder" in epass("serve", exported.parent).err
    monkeypatch.setattr("epass.app.web.find_spec", lambda name: None)
    assert epass("serve", exported).err == "Error: Serving needs starlette and uvicorn: pip install epass[serve].\n"


def test_a_server_without_torch_until_ctrl_c(exported: Path) -> None:
    code = f"import sys\nsys.modules['torch'] = None\nsys.argv[1:] = ['serve', {str(exported)!r}, '--port', '0']\n"
    command = [sys.executable, "-u", "-c", f"{code}from epass.cli import main\nmain()"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "Ask it with" in line:
                break
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert found is not None, line
        status, said = ask(int(found[1]), photo(99, side=8))
        assert (status, len(said["top"])) == (200, 5)
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 0, rest
    assert "images answered  1" in rest
