"""Label photos in the browser while a model learns from the labels."""

from __future__ import annotations

import errno
import os
import secrets
import shlex
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..app.events import Caution, Event, Notice, Plan, Result, work
from ..app.flags import Device, Flag, Images
from ..app.web import LOCAL, address_of, is_local, listen, need_libraries, server_settings
from ..errors import InputError
from ..machine.signals import polite_ends
from .stream import Stream

if TYPE_CHECKING:
    from .desk import Desk

AT_ONCE = 256  # connections; a browser has six
THINKING = 120  # seconds between two answers, after which a line is closed
ANY = {"0.0.0.0", "::"}  # every network that this machine is in


@work
def studio(
    photos: Annotated[Images, Flag("The folder of photos.", metavar="PHOTOS")],
    *,
    host: Annotated[str, Flag("Where to listen; 0.0.0.0 is every network that this machine is in.")] = "127.0.0.1",
    port: Annotated[int, Flag("The port; 0, or one that is taken, means a free one.", least=0)] = 8765,
    runs: Annotated[str | Path, Flag("Where runs are written, and looked for.", metavar="FOLDER")] = "runs",
    browser: Annotated[bool, Flag("Open the page in the browser.")] = True,
    device: Device = "auto",
) -> Iterator[Event]:
    """Label photos in the browser while a model learns from the labels, until Ctrl-C.

    Everything is kept in PHOTOS/.epass-studio, and the labels in PHOTOS/labels.csv,
    which 'epass train' learns from. Only this machine can open the page, unless
    --host says otherwise, and only by the printed address.
    """
    need_libraries("The studio", "studio")
    if not fspath(photos):  # as a path, nothing would be the folder that we are in
        raise InputError("Name the folder of photos: epass studio photos.")

    from .safety import Door
    from .server import make_studio

    with ExitStack() as held:
        held.enter_context(polite_ends())
        listener, taken = listen_near(host, port)
        held.enter_context(listener)
        said: list[str] = []
        stream = Stream()

        def notice(sentence: str) -> None:
            said.append(sentence)  # printed, if it comes before the page; later only pages are looked at
            stream.publish("notice", {"sentence": sentence, "kind": "warning"})

        desk = open_desk(Path(photos), Path(runs), device, stream, notice, held)
        number, local = listener.getsockname()[1], is_local(host)
        token = secrets.token_urlsafe(32)
        names = LOCAL | {host.lower()} | (set() if local else names_of_this_machine())
        door = Door(make_studio(desk, stream), token, number, names, numbers=not local)
        address = address_of(own_address(host) if host in ANY else host, listener)
        images, labeled = len(desk.project.names), int((desk.project.labels >= 0).sum())
        yield Plan(
            f"{fspath(photos)}, at {address}",
            {
                "images": f"{images:,}, {labeled:,} with a label",
                "kept in": f"{desk.project.home}, and the labels in {desk.project.folder / 'labels.csv'}",
                "runs": fspath(runs),
            },
        )
        yield from map(Notice, said)
        if taken:
            yield Notice(f"Port {port} is taken, so this is at port {number}.")
        if not local:
            yield Caution(
                "Whoever gets the address below can see these photos, change their labels and start runs, and nothing "
                "is encrypted: do this only in a network that you trust, or leave out --host and use a tunnel of ssh."
            )
        yield Notice(f"Open {address}/?token={token}")
        yield Notice("Stop with Ctrl-C: every answer is on disk, and runs that were started go on.")
        if browser and has_screen():
            ticket = secrets.token_urlsafe(32)
            door.tickets.add(ticket)
            threading.Thread(target=webbrowser.open, args=[f"{address}/?token={ticket}"], daemon=True).start()
        with suppress(KeyboardInterrupt):  # which uvicorn passes on when it has ended
            serve_until_stopped(door, stream, listener)
        labeled, used = int((desk.project.labels >= 0).sum()), sum(one.count > 0 for one in desk.project.classes())
        running = [job for job in desk.jobs.list() if job.get("state") == "running"]
    going_on = {"still running": f"{len(running)}: the studio shows them when it is opened again"} if running else {}
    table = desk.project.folder / "labels.csv"
    yield Result(
        "Stopped",
        facts={"labels": f"{labeled:,} of {images:,} images, in {table}", **going_on},
        values={"folder": str(desk.project.folder), "images": images, "labeled": labeled, "running": len(running)},
        files={"labels": table} if table.exists() else {},
        following=shlex.join(["epass", "studio" if running or used < 2 else "train", fspath(photos)]),
    )


def open_desk(
    photos: Path, runs: Path, device: str, stream: Stream, notice: Callable[[str], None], held: ExitStack
) -> Desk:
    """The project, and beside it what learns and what runs; all is closed in good order when `held` is."""
    from ..labeling.jobs import Jobs
    from ..labeling.learner import Learner
    from ..labeling.project import Project
    from .desk import Desk

    project = held.enter_context(closing(Project(photos, notice)))
    learner = held.enter_context(closing(Learner(project, stream.publish, device=device)))
    jobs = held.enter_context(closing(Jobs(project, runs, stream.publish, write_labels=project.write_labels)))
    desk = Desk(project, learner, jobs, stream)
    learner.start()
    return desk


def serve_until_stopped(door: Any, stream: Stream, listener: socket.socket) -> None:
    """Answer until a signal comes; then end the streams first, since no answer to them ever ends."""
    import uvicorn

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            stream.close()
            await super().shutdown(sockets)

    Server(server_settings(door, AT_ONCE, THINKING)).run(sockets=[listener])


def listen_near(host: str, port: int) -> tuple[socket.socket, bool]:
    """A socket at that port, or at a free one if somebody has it; and whether somebody has."""
    try:
        return listen(host, port), False
    except InputError as problem:
        if getattr(problem.__cause__, "errno", None) != errno.EADDRINUSE:
            raise
        return listen(host, 0), True


def names_of_this_machine() -> set[str]:
    """By what others in the network may call it."""
    name = socket.gethostname().lower()
    return {name, f"{name.partition('.')[0]}.local"}


def own_address(host: str) -> str:
    """The number by which others in the network reach this machine; nothing is sent to find out."""
    six = ":" in host
    with socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        probe.connect(("2001:db8::1" if six else "192.0.2.1", 9))  # addresses that nobody has
        return str(probe.getsockname()[0])
    return "::1" if six else "127.0.0.1"


def has_screen() -> bool:
    """Whether a browser would have a window; without one, a browser in letters would take the terminal."""
    return sys.platform != "linux" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
