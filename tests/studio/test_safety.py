"""The door of the studio: who is let in, who is turned away, and what every answer tells a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from visiting import JSON, TOKEN, Visitor, serving

from epass.studio.safety import POLICY, Door

INSIDE = ["/", "/static/main.js", "/thumb/0/160", "/image/0", "/report/run", "/api/state", "/api/events", "/nowhere"]


async def inside(request: Request) -> PlainTextResponse:
    return PlainTextResponse(f"inside: {len(await request.body())}")


@pytest.fixture(scope="module")
def house() -> Iterator[tuple[Visitor, Door]]:
    with serving(Starlette(routes=[Route("/{path:path}", inside, methods=["GET", "POST"])])) as served:
        yield served


@pytest.fixture
def visitor(house: tuple[Visitor, Door]) -> Visitor:
    return house[0]


@pytest.mark.parametrize("path", INSIDE)
def test_nothing_is_answered_without_the_cookie(visitor: Visitor, path: str) -> None:
    assert visitor.get(path).status == 200
    for cookie in (None, f"epass-{visitor.port}=", f"epass-{visitor.port}=\xe9", f"epass-1={TOKEN}"):
        answer = visitor.get(path, Cookie=cookie)
        assert answer.status == 401
        assert b"Open the address that the terminal printed" in answer.content
    assert visitor.post("/api/answers", {}, Cookie=None).status == 401


def test_the_token_becomes_a_cookie_that_no_script_and_no_other_site_gets(visitor: Visitor) -> None:
    answer = visitor.get(f"/?token={TOKEN}", Cookie=None)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie, *traits = answer.headers["set-cookie"].split("; ")
    assert cookie == visitor.cookie
    assert {trait.lower() for trait in traits} == {"httponly", "path=/", "samesite=strict"}
    for token in ("", "wrong", TOKEN[:-1], "%ff"):
        answer = visitor.get(f"/?token={token}", Cookie=None)
        assert (answer.status, "set-cookie" in answer.headers) == (401, False)
    assert visitor.get(f"/api/state?token={TOKEN}", Cookie=None).status == 401  # it opens the front door alone


def test_what_a_program_is_started_with_opens_the_door_once(house: tuple[Visitor, Door]) -> None:
    visitor, door = house
    door.tickets.add("a-ticket")
    answer = visitor.get("/?token=a-ticket", Cookie=None)
    assert (answer.status, answer.headers["set-cookie"].split(";")[0]) == (303, visitor.cookie)
    assert visitor.get("/?token=a-ticket", Cookie=None).status == 401


def test_a_link_of_another_page_leads_in_at_the_second_attempt(visitor: Visitor) -> None:
    assert visitor.get(f"/?token={TOKEN}", Cookie=None, Sec_Fetch_Site="cross-site").status == 303
    # the browser follows, and keeps the strict cookie to itself
    first = visitor.get("/", Cookie=None, Sec_Fetch_Site="cross-site")
    assert (first.status, b'http-equiv="refresh"' in first.content) == (401, True)
    assert visitor.get("/", Sec_Fetch_Site="same-origin").status == 200
    again = visitor.get("/", Cookie=None, Sec_Fetch_Site="same-origin")
    assert (again.status, b"refresh" in again.content) == (401, False)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "192.168.0.9", "a]b", ""]
)
def test_a_name_that_leads_here_but_is_not_ours_is_refused(visitor: Visitor, host: str) -> None:
    for answer in (visitor.get("/api/state", Host=host), visitor.get(f"/?token={TOKEN}", Host=host, Cookie=None)):
        assert answer.status in (400, 403)  # the library itself refuses what is no name
        assert b"inside" not in answer.content


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:8765", "LOCALHOST"])
def test_the_names_of_this_machine_are_ours_at_any_port(visitor: Visitor, host: str) -> None:
    assert visitor.get("/api/state", Host=host).status == 200  # as behind a tunnel of ssh


def test_other_machines_may_ask_by_number_and_never_by_a_name_of_their_own() -> None:
    async def nothing(*_: object) -> None: ...

    door = Door(nothing, TOKEN, 1, {"studio.local"}, numbers=True)
    names = ["192.168.0.9:8765", "[fe80::1]:80", "studio.local", "evil.example", "localhost.evil.example", "1.2.3.4.5"]
    assert [door.is_name_of_ours(name) for name in names] == [True, True, True, False, False, False]


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", "https://127.0.0.1"])
def test_a_request_of_another_page_is_refused(visitor: Visitor, origin: str) -> None:
    assert visitor.get("/api/state", Origin=origin).status == 403
    assert visitor.post("/api/answers", {}, Origin=origin).status == 403
    assert visitor.get("/api/state", Origin=f"http://{visitor.host}").status == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])  # the second: another port of this machine
def test_what_a_browser_fetches_for_another_page_is_refused(visitor: Visitor, site: str) -> None:
    for path in INSIDE[1:]:
        assert visitor.get(path, Sec_Fetch_Site=site).status == 403
    assert visitor.post("/api/answers", {}, Sec_Fetch_Site=site).status == 403
    assert visitor.get("/", Sec_Fetch_Site=site).status == 200  # a link may lead here; no page may be around it


def test_only_the_page_can_change_something(visitor: Visitor) -> None:
    assert visitor.post("/api/answers", {}).status == 200
    assert visitor.post("/api/answers", {}, Origin=None).status == 403
    assert visitor.post("/api/answers", {}, Origin=None, Sec_Fetch_Site="none").status == 403
    assert visitor.post("/api/answers", {}, Origin=None, Sec_Fetch_Site="same-origin").status == 200


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "json"]
)
def test_what_a_form_can_send_changes_nothing(visitor: Visitor, kind: str | None) -> None:
    assert visitor.post("/api/answers", {}, Content_Type=kind).status == 403
    assert visitor.post("/api/import", b"file,label\n", Content_Type=kind).status == 403


def test_a_file_is_sent_as_bytes_and_nothing_else_is(visitor: Visitor) -> None:
    assert visitor.post("/api/import", b"file,label\n", Content_Type="application/octet-stream").status == 200
    assert visitor.post("/api/import", b"file,label\n").status == 403
    assert visitor.post("/api/answers", b"", Content_Type="application/octet-stream").status == 403
    assert visitor.post("/api/answers", {}, Content_Type=f"{JSON}; charset=utf-8").status == 200


def test_every_answer_tells_the_browser_what_it_may_do(visitor: Visitor) -> None:
    for answer in (
        visitor.get("/"),
        visitor.get("/api/state"),
        visitor.get("/api/state", Cookie=None),
        visitor.get("/", Host="evil.example"),
        visitor.get(f"/?token={TOKEN}"),
    ):
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
        assert not [name for name in answer.headers if name.startswith("access-control")]
        assert "server" not in answer.headers


def test_the_policy_allows_no_code_but_ours() -> None:
    rules = dict(rule.split(" ", 1) for rule in POLICY.split("; "))
    assert rules["default-src"] == rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert "unsafe" not in POLICY
