"""Who may ask: whoever has the token, from a page of ours, by a name of this machine."""

from __future__ import annotations

import hmac
from collections.abc import Collection
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..app.web import Refusal

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
# a report is one file with its scripts and pictures inside; in a sandbox it has no origin, so it cannot ask us anything
REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
OURS = {"same-origin", "none"}  # where a browser says a request comes from: our page, or the address bar
JSON, BYTES = "application/json", "application/octet-stream"
LOCKED = "Open the address that the terminal printed: it holds the token, and a new one after each start."


class Door:
    """What stands before the application: it lets in, turns away, and says in every answer what a browser may do."""

    def __init__(self, application: ASGIApp, token: str, port: int, names: Collection[str], *, numbers: bool) -> None:
        """Let in who has the `token`.

        `names` are the names of this machine, and with `numbers` all that are numbers: a page of a stranger can let a
        name of its own lead here, but not a number.
        """
        self.application, self.token, self.cookie = application, token, f"epass-{port}"
        self.names, self.numbers = set(names), numbers
        self.tickets: set[str] = set()  # tokens for one use: a program's arguments can be seen by others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from starlette.requests import Request

        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                held = {name.lower() for name, _ in message["headers"]}
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *((name, value) for name, value in more if name not in held)]
            await send(message)

        request = Request(scope, receive)
        try:
            answer = self.admit(request)
        except Refusal as refusal:
            answer = refuse(request, refusal)
        await (answer or self.application)(scope, receive, send_with_headers)

    def admit(self, request: Request) -> Response | None:
        """Nothing, if the request may go in; the answer that gives a browser its cookie; or a refusal."""
        from starlette.responses import RedirectResponse

        host = request.headers.get("host", "")
        if not self.is_name_of_ours(host):
            raise Refusal(403, "Only requests to this machine by its own name are answered.")
        origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
        entering = request.method == "GET" and request.url.path == "/"
        if origin not in (None, f"http://{host}") or (site is not None and site not in OURS and not entering):
            raise Refusal(403, "Requests of other pages are not answered.")
        if entering and "token" in request.query_params:
            if not self.takes(request.query_params["token"]):
                raise Refusal(401, LOCKED)
            welcome = RedirectResponse("/", 303)
            welcome.set_cookie(self.cookie, self.token, path="/", httponly=True, samesite="strict")
            return welcome
        if not same(request.cookies.get(self.cookie, ""), self.token):
            raise Refusal(401, LOCKED)
        if request.method not in ("GET", "HEAD"):
            wanted = BYTES if request.url.path == "/api/import" else JSON
            if request.headers.get("content-type", "").partition(";")[0].strip().lower() != wanted:
                raise Refusal(403, f"What changes something is sent as {wanted}.")
            if origin is None and site != "same-origin":
                raise Refusal(403, "What changes something is sent by the page alone.")
        return None

    def is_name_of_ours(self, host: str) -> bool:
        """Whether a browser that was led here by a name asked for this machine."""
        try:
            name = urlsplit(f"http://{host}").hostname or ""
            _ = urlsplit(f"http://{host}").port
        except ValueError:
            return False
        return name in self.names or (self.numbers and is_number(name))

    def takes(self, said: str) -> bool:
        """Whether a token is right; a ticket is, once."""
        used = [ticket for ticket in self.tickets if same(said, ticket)]
        self.tickets.difference_update(used)
        return bool(used) or same(said, self.token)


def same(said: str, secret: str) -> bool:
    """Whether both are the same, in a time that does not tell where they differ."""
    return hmac.compare_digest(said.encode(errors="replace"), secret.encode())


def is_number(name: str) -> bool:
    """Whether a host is named by its address."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def refuse(request: Request, refusal: Refusal) -> Response:
    """One sentence, for a person or for the page."""
    from starlette.responses import HTMLResponse, JSONResponse

    if request.url.path != "/":
        return JSONResponse({"error": str(refusal)}, refusal.status)
    # A browser that follows a link of another page does not send the cookie it was given a moment ago. From here,
    # it does, and says that it comes from here: this happens once.
    again = '<meta http-equiv="refresh" content="0;url=/">' if came_from_elsewhere(request, refusal) else ""
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>epass studio</title>{again}'
    return HTMLResponse(f"{head}<p>{refusal}</p></html>", refusal.status)


def came_from_elsewhere(request: Request, refusal: Refusal) -> bool:
    """Whether a cookie may be missing because another page led here."""
    site = request.headers.get("sec-fetch-site", "none")
    return refusal.status == 401 and site not in OURS and "token" not in request.query_params
