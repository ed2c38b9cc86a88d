"""Answer questions about images over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from .. import extensions
from .events import Caution, Event, Notice, Plan, Result, work
from .flags import Device, Flag, Model, Trust
from .web import LOCAL, address_of, is_local, listen, need_libraries, server_settings
from .words import some


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
    need_libraries("Serving", "serve")

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
    address = address_of(host, listener)
    local = is_local(host)
    settings = server_settings(make_server(desk, LOCAL | {host} if local else None), 4 * WAITING)
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
