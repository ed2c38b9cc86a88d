"""Answer questions about images over HTTP."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

from .. import extensions
from ..errors import InputError
from .events import Caution, Event, Notice, Plan, Result, work
from .flags import Device, Flag, Model, Trust
from .words import some

LOCAL = {"127.0.0.1", "localhost", "::1"}


@work
def serve(
    model: Model,
    *,
    host: Annotated[str, Flag("Where to listen; 0.0.0.0 is every network that this machine is in.")] = "127.0.0.1",
    port: Annotated[int, Flag("The port; 0 takes a free one.", least=0)] = 8000,
    top: Annotated[int, Flag("How many classes to name for every image, the likeliest first.", least=1)] = 5,
    trust: Trust = None,
    device: Device = "auto",
) -> Iterator[Event]:
    """Answer questions about images over HTTP, until Ctrl-C.

    POST an image to /predict and get its classes as JSON. Only this machine can
    ask, unless --host says otherwise; there is no password and no encryption.
    """
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise InputError(f"Serving needs {' and '.join(missing)}: pip install epass[serve].")

    import uvicorn

    from ..engine.answer import open_answerer
    from ..evaluation.calibrated import Calibration
    from .answers import Judge
    from .server import WAITING, Desk, make_server

    extensions.trust(*(trust or ()))
    answerer = open_answerer(Path(model), device)
    classes: list[str] = answerer.model["classes"]
    calibration = Calibration.from_json(answerer.model.get("calibration"))
    desk = Desk(answerer, Judge(classes, calibration, answerer.known, min(top, len(classes))))
    listener = listen(host, port)
    address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
    local = is_local(host)
    settings = uvicorn.Config(
        make_server(desk, LOCAL if local else None),
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=4 * WAITING,
        timeout_graceful_shutdown=5,
    )
    yield Plan(
        f"{model}, at {address}",
        {
            "classes": f"{len(classes)}: {some(classes)}",
            "sets": "no" if calibration.coverage is None else f"of {calibration.coverage:.0%} coverage",
            "none of these": "no" if answerer.known is None else "yes",
        },
    )
    if not local:
        yield Caution(f"Whoever reaches {address} can ask this model: there is no password and no encryption.")
    asked = "--data '[...]'" if "numbers" in answerer.model else "--data-binary @photo.jpg"
    yield Notice(f"Ask it with: curl {asked} {address}/predict. Stop it with Ctrl-C.")
    with listener, suppress(KeyboardInterrupt):  # which uvicorn passes on when it has ended
        uvicorn.Server(settings).run(sockets=[listener])
    yield Result(
        "Stopped",
        facts={"images answered": f"{desk.answered:,}"},
        values={"model": str(model), "answered": desk.answered},
    )


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
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()  # who asks before the server runs waits
    except OSError as problem:
        listener.close()
        reason = (problem.strerror or str(problem)).lower()
        raise InputError(f"Nothing can listen at {host}, port {port} ({reason}): choose others.") from None
    return listener
