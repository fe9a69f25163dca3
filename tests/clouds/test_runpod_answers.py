"""Each row of the tables of docs/clouds/runpod.md: an answer over the socket, and what each call makes of it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.clouds.pods import Key
from ledger.clouds.runpod import RunPodCloud
from ledger.clouds.runpod_v2 import RunPodV2Cloud
from ledger.clouds.values import Absent, Listing, Refused, Seen, Unknown, Unresolved
from ledger.sim.rules import Rules
from ledger.sim.wire.gate import Gate
from ledger.sim.wire.pods import FAULT, HTML, NO_CAPACITY, NO_MONEY, html, problem
from ledger.sim.wire.server import LoopbackServer, Reply, Request
from ledger.source import SystemSource
from tests.sim.making import pod, scenario, world

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clouds" / "runpod.md"
KEY = "rpa_THEKEYOFNOBODYATALL0123456789"
SECRET = 'a "secret" value\nof two lines'
CALLS = ("create", "delete", "describe", "list")
SOON = 0.25
NULL_FIELDS = {
    "podFindAndDeployOnDemand": None,
    "podTerminate": None,
    "pod": None,
    "myself": {"id": "u1", "pods": None},
}


def graphql_pod(**changes: Any) -> dict[str, Any]:
    return {"id": "p1", "name": "pod-1", "desiredStatus": "RUNNING", **changes}


def data(**changes: Any) -> dict[str, Any]:
    shown = graphql_pod(**changes)
    return {
        "podFindAndDeployOnDemand": shown,
        "podTerminate": None,
        "pod": shown,
        "myself": {"id": "u1", "pods": [shown]},
    }


def errors(message: str, status: int = 200, path: bool = True, code: str | None = None) -> Reply:
    error: dict[str, Any] = {"message": message}
    if path:
        error["path"] = ["podFindAndDeployOnDemand"]
    if code:
        error["extensions"] = {"code": code}
    return Reply.of({"errors": [error], "data": None} if path else {"errors": [error]}, status)


def graphql(**body: Any) -> Reply:
    return Reply.of(body)


BOTH: dict[str, Reply] = {
    "200, a list": Reply.of([1, 2]),
    "200, HTML": Reply(200, HTML, content_type="text/html"),
    "200, empty": Reply(200),
    "302": Reply(302, headers={"Location": "https://example.invalid/"}),
    "403, HTML": html(403),
    "404, HTML": html(404),
    "422, errors are texts": problem(422, "Request validation failed.", ("$.action: bad",)),
    "429, Retry-After": problem(429, "rate limit exceeded for the minute window"),
    "429, HTML": html(429),
    "502, HTML": html(502),
    "503, empty": Reply(503),
    "504, HTML": html(504),
    "reset": Reply(cut=True),
    "no answer": Reply(lost=True),
    **{str(status): problem(status, f"answered {status}") for status in (401, 402, 403, 404, 408, 409, 410, 422)},
}
GRAPHQL: dict[str, Reply] = {
    **BOTH,
    "200, the data": graphql(data=data()),
    "200, the data, an error beside it": graphql(data=data(), errors=[{"message": "half of it failed"}]),
    "200, the data, `errors: null`": graphql(data=data(), errors=None),
    "200, the data, a status that is new": graphql(data=data(desiredStatus="HIBERNATING")),
    "200, the call is null, no error": graphql(data=NULL_FIELDS),
    "200, `myself` is null": graphql(data={"myself": None}),
    "200, one of the pods is null": graphql(data={"myself": {"id": "u1", "pods": [None, graphql_pod()]}}),
    "200, the status is TERMINATED": graphql(data=data(desiredStatus="TERMINATED")),
    "200, no longer any instances": errors(NO_CAPACITY),
    "400, no longer any instances": errors(NO_CAPACITY, 400),
    "500, no longer any instances": errors(NO_CAPACITY, 500),
    "200, no instances with enough disk space": errors(
        "There are no longer any instances available with enough disk space."
    ),
    "200, not enough free GPUs": errors("There are not enough free GPUs on the host machine to start this pod."),
    "200, the machine does not have the resources": errors(
        "This machine does not have the resources to deploy your pod. Please try a different machine."
    ),
    "200, the spend limit": errors(NO_MONEY),
    "200, an error that says unauthorized": errors("Not logged in", code="UNAUTHENTICATED"),
    "200, template not found": errors("Template not found"),
    "200, pod not found to terminate": Reply.of(
        {
            "errors": [{"message": "pod not found to terminate", "extensions": {"code": "POD_NOT_FOUND"}}],
            "data": {"podTerminate": None, "pod": None, "myself": {"id": "u1", "pods": None}},
        }
    ),
    "200, the data, of another account": graphql(data=data() | {"myself": {"id": "u2", "pods": [graphql_pod()]}}),
    "200, pod not found, of another account": Reply.of(
        {
            "errors": [{"message": "pod not found to terminate", "extensions": {"code": "POD_NOT_FOUND"}}],
            "data": {"podTerminate": None, "pod": None, "myself": {"id": "u2", "pods": []}},
        }
    ),
    "200, something went wrong": errors(FAULT, code="INTERNAL_SERVER_ERROR"),
    "200, an error that is a text": graphql(errors=["odd"], data=None),
    "200, `errors: []`, `data: null`": graphql(errors=[], data=None),
    "200, `data: null`": graphql(data=None),
    "200, wrong types": graphql(
        data={"podFindAndDeployOnDemand": graphql_pod(id=5), "pod": [], "myself": {"id": 7, "pods": {}}}
    ),
    "400, never executed": errors("Syntax Error: Unterminated string.", 400, path=False),
    "400, executed": errors("Unexpected token", 400),
    "500, something went wrong": errors(FAULT, 500, code="INTERNAL_SERVER_ERROR"),
}


def rest_pod(**changes: Any) -> dict[str, Any]:
    return {"id": "p1", "name": "pod-1", "status": "RUNNING", **changes}


def rest(status: int = 200, **changes: Any) -> Reply:
    """A pod and a list of it in one body: each call reads what it asked for."""
    shown = rest_pod(**changes)
    return Reply.of({**shown, "pods": [shown]}, status)


REST: dict[str, Reply] = {
    **BOTH,
    "201, the pod": rest(201),
    "200, the data": rest(),
    "200, the data, of another account": rest(),
    "404, of another account": problem(404, "pod not found"),
    "200, one of the pods is null": Reply.of({"pods": [None, rest_pod()]}),
    "204": Reply(204),
    "200, wrong types": Reply.of({"id": 5, "name": [], "status": {}, "pods": {}}),
    "200, null": Reply.of(None),
    "400, no longer any instances": problem(400, NO_CAPACITY),
    "400, a rule is broken": problem(400, "exactly one of gpu and cpu must be set"),
    "500, no longer any instances": problem(500, NO_CAPACITY),
    "500, something went wrong": problem(500, FAULT),
}
for _name, _status in (
    ("200, the data, a status that is new", "HIBERNATING"),
    ("200, the status is TERMINATED", "TERMINATED"),
):
    _shown = {**rest_pod(), "status": _status}
    REST[_name] = Reply.of({**_shown, "pods": [_shown]})
UNSERVED = {"nothing listens", "the last moment had passed"}


def table(heading: str) -> list[tuple[str, str, str]]:
    """(answer, call, outcome) of the table under a heading of the page."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    head, _, *body = [[cell.strip() for cell in row] for row in rows]
    assert head[1:] == list(CALLS)
    return [(row[0], call, cell) for row in body for call, cell in zip(CALLS, row[1:], strict=True) if cell != "-"]


class Played:
    """An adapter whose cloud answers every request alike (but the question whose the key is: of `whose`)."""

    def __init__(self, api: str, reply: Reply | None, whose: str = "u1") -> None:
        self._whose = whose
        self._api = api
        self._reply = reply
        self.requests: list[Request] = []
        made = world()
        self.server = LoopbackServer(Gate(made, Rules.of(scenario()), lambda: 0), self._answer)
        url = self.server.url
        if reply is None:
            with socket.socket() as unused:
                unused.bind(("127.0.0.1", 0))
                url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        source, key = SystemSource(), Key(KEY, "RUNPOD_API_KEY")
        self.cloud: RunPodCloud | RunPodV2Cloud
        if api == "GraphQL":
            self.cloud = RunPodCloud(key, source, url=url, account="u1")
        else:
            self.cloud = RunPodV2Cloud(key, source, url=url, graphql_url=self.server.url, account="u1")

    def _answer(self, request: Request) -> Reply:
        self.requests.append(request)
        if b"query { myself { id } }" in request.body:
            return graphql(data={"myself": {"id": self._whose}})
        assert self._reply is not None
        return self._reply

    def call(self, call: str, late: bool = False) -> Any:
        timeout = SOON if self._reply is not None and self._reply.lost else 20
        before = self.cloud._source.steady() + (-1 if late else 1000)
        match call:
            case "create":
                return self.cloud.create(pod(env={"PIN": SECRET}), send_before=before, timeout=timeout)
            case "delete":
                return self.cloud.delete("runpod:p1", send_before=before, timeout=timeout)
            case "describe":
                return self.cloud.describe("runpod:p1", timeout=timeout)
        return self.cloud.list_all(timeout=timeout)


@pytest.fixture
def opened() -> Iterator[list[Played]]:
    played: list[Played] = []
    yield played
    for one in played:
        one.server.close()


def outcome(answer: Any) -> str:
    match answer:
        case Refused(cls):
            return f"refused {cls}" + (" unsent" if answer.unsent else "")
        case Unresolved(error):
            return f"unresolved {error}"
        case Unknown(error):
            return f"unknown {error}"
        case Listing():
            elsewhere = "" if answer.account == "u1" else " elsewhere"
            return f"listing{'' if answer.complete else ' incomplete'}{elsewhere}"
        case Absent() | Seen():
            return type(answer).__name__.lower() + ("" if answer.account == "u1" else " elsewhere")
    return type(answer).__name__.lower()


ROWS = [(api, *row) for api in ("GraphQL", "REST v2") for row in table(api)]


@pytest.mark.parametrize(("api", "answer", "call", "expected"), ROWS, ids=lambda value: value.replace(" ", "-"))
def test_what_an_answer_means(api: str, answer: str, call: str, expected: str, opened: list[Played]) -> None:
    known = GRAPHQL if api == "GraphQL" else REST
    whose = "u2" if "another account" in answer else "u1"
    played = Played(api, known["200, the data"] if "moment" in answer else known.get(answer), whose)
    opened.append(played)
    given = played.call(call, late="moment" in answer)
    assert outcome(given) == expected
    said = f"{getattr(given, 'message', '')}"
    assert "\n" not in said
    assert len(said) < 400
    assert all(secret not in f"{given!r}" for secret in (KEY, "secret", "two lines"))
    if answer == "401":
        assert "the key in RUNPOD_API_KEY was sent" in said
    if "Retry-After" in answer:
        assert "retry after 7 s" in said
    if "moment" in answer:
        assert played.requests == []


def test_every_answer_is_on_the_page() -> None:
    for api, known in (("GraphQL", GRAPHQL), ("REST v2", REST)):
        on_page = {answer for answer, _, _ in table(api)}
        assert on_page - UNSERVED - set(known) == set()
        assert set(known) - on_page - ({"404, HTML"} if api == "GraphQL" else {"422"}) == set()


def test_an_error_that_quotes_the_environment_does_not_tell_it(opened: list[Played]) -> None:
    quoted = 'Expected value of type "Int", found "a \\"secret\\" value\\nof two lines" with key ' + KEY
    for api, reply in (("GraphQL", errors(quoted, 400, path=False)), ("REST v2", problem(422, quoted))):
        opened.append(Played(api, reply))
        given = opened[-1].call("create")
        assert outcome(given) == "refused invalid"
        assert KEY not in given.message
        assert "two lines" not in given.message
        assert "[redacted]" in given.message
