"""What every server of the package needs: where it listens, how much may be sent to it, and how it says no."""

from __future__ import annotations

import socket
from importlib.util import find_spec
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    import uvicorn
    from starlette.requests import Request
    from starlette.types import ASGIApp

LOCAL = {"127.0.0.1", "localhost", "::1"}
ENDING = 5  # seconds that requests have to be answered in when the server ends


class Refusal(Exception):
    """A request that gets no answer, with the status and the sentence that it gets instead."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def need_libraries(what: str, extra: str) -> None:
    """Refuse to serve where the libraries for it are not installed."""
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise InputError(f"{what} needs {' and '.join(missing)}: pip install epass[{extra}].")


def is_local(host: str) -> bool:
    """Whether only programs of this machine get through to an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A socket at that address."""
    if port > 65535:
        raise InputError(f"There is no port {port}: choose one up to 65535 with --port.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # with its protocol named, asyncio sends small answers at once: else the system holds them back for 40 ms
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # who asks before the server runs waits
    except OSError as problem:
        listener.close()
        reason = (problem.strerror or str(problem)).lower()
        raise InputError(f"Nothing can listen at {host}, port {port} ({reason}): choose others.") from problem
    return listener


def address_of(host: str, listener: socket.socket) -> str:
    """Where a browser finds it."""
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def server_settings(application: ASGIApp, at_once: int, kept: int = 5) -> uvicorn.Config:
    """A server that logs nothing, says nothing of itself, and sends away whoever is one too many.

    Lines on which nothing is said are `kept` for so many seconds.
    """
    import uvicorn

    silent: dict[str, Any] = {"log_config": None, "access_log": False, "server_header": False}
    return uvicorn.Config(
        application,
        http="h11",
        ws="none",
        lifespan="off",
        limit_concurrency=at_once,
        timeout_graceful_shutdown=ENDING,
        timeout_keep_alive=kept,
        **silent,
    )


async def read_body(request: Request, most: int, what: str) -> bytes:
    """All that is sent, if it is not too much, whatever the request says of its length."""
    too_large = Refusal(413, f"{what} has more than {most:,} bytes: send a smaller one.")
    said = request.headers.get("content-length", "0")
    if said.isdecimal() and int(said) > most:
        raise too_large
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise too_large
    return bytes(body)
