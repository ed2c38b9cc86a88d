"""What happens, for every page that is open: server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from ..app.web import Refusal

WAITING = 256  # events that a page may be behind
PAGES = 32  # that may listen
QUIET = 15.0  # seconds after which something is sent, so that nobody takes the line for dead


class Stream:
    """The pages that listen. Events may come from any thread, and never wait for a page.

    A page that is too far behind is cut off: its browser connects again, and it reads everything anew.
    """

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None  # of the server, once a page listens
        self.pages: set[asyncio.Queue[str | None]] = set()
        self.closed = False
        self.progress: dict[str, Any] | None = None  # for a page that comes later

    def publish(self, kind: str, value: Any) -> None:
        """Tell every page."""
        if kind == "progress":
            self.progress = None if value.get("done") is True else value
        if self.loop is None:
            return
        with suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(self.hand_out, f"event: {kind}\ndata: {json.dumps(value)}\n\n")

    def hand_out(self, text: str) -> None:
        """In the loop: give an event to each page, or end what cannot follow."""
        for page in list(self.pages):
            if page.full():
                self.cut_off(page)
            else:
                page.put_nowait(text)

    def cut_off(self, page: asyncio.Queue[str | None]) -> None:
        """In the loop: send nothing more to a page."""
        self.pages.discard(page)
        while not page.empty():
            page.get_nowait()
        page.put_nowait(None)

    def listen(self) -> AsyncIterator[str]:
        """The events from now on, as a browser reads them."""
        if len(self.pages) >= PAGES or self.closed:
            raise Refusal(503, "Too many pages are open: close some.")
        self.loop = asyncio.get_running_loop()
        page: asyncio.Queue[str | None] = asyncio.Queue(WAITING)
        self.pages.add(page)  # at once, so that nothing is missed between this and what a page reads next
        return self.events(page)

    async def events(self, page: asyncio.Queue[str | None]) -> AsyncIterator[str]:
        try:
            yield "retry: 1000\n\n"
            while True:
                try:
                    text = await asyncio.wait_for(page.get(), QUIET)
                except TimeoutError:
                    text = ": still here\n\n"
                if text is None:
                    return
                yield text
        finally:
            self.pages.discard(page)

    def close(self) -> None:
        """In the loop: end all streams, which otherwise would never end."""
        self.closed = True
        for page in list(self.pages):
            self.cut_off(page)
