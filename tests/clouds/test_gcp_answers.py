"""Each answer of GCE, of its client and of the network between, as a row: what a create, a delete, a describe and a
list then say. docs/clouds/gcp.md has the same rows, by the same names."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
import urllib3
from google.api_core.exceptions import RetryError, from_http_status
from google.auth import exceptions as auth

from ledger.clouds import gcp_client
from ledger.clouds.gcp_errors import as_call, as_unknown, fault
from ledger.clouds.values import Absent, Accepted, Refused, Unresolved
from tests.clouds.contract import brief
from tests.clouds.gce_script import (
    ID,
    MACHINE,
    PROJECT,
    ZONE,
    Answer,
    Clock,
    Script,
    Step,
    cloud,
    operation,
    refusal,
    resource,
)
from tests.sim.making import LATE, spec

DOCS = Path(__file__).resolve().parents[2] / "docs" / "clouds" / "gcp.md"
HTML = b"<html><title>502 Bad Gateway</title></html>"
GONE = f"The resource 'projects/{PROJECT}/zones/{ZONE}/instances/{ID}' was not found"
OTHERS = f"The resource 'projects/other/zones/{ZONE}/instances/{ID}' was not found"
REFUSED = requests.ConnectionError(
    urllib3.exceptions.MaxRetryError(
        urllib3.HTTPConnectionPool("h"),
        "/",
        urllib3.exceptions.NewConnectionError(None, "refused"),  # type: ignore[arg-type]
    )
)

Said = tuple[str, str, str, str]  # what a create, a delete, a describe and a list say


def both(call: str, read: str) -> Said:
    """What both calls and what both reads say."""
    return call, call, read, read


ROWS: dict[str, tuple[Step, Said]] = {
    "400": (refusal(400, "invalid"), both("refused invalid", "unknown http_400")),
    "400 resourceNotReady": (refusal(400, "resourceNotReady"), both("refused invalid", "unknown http_400")),
    "401": (refusal(401, "authError"), both("refused unauthorized", "unknown unauthorized")),
    "402": (refusal(402, "paymentRequired"), both("refused quota", "unknown http_402")),
    "403 forbidden": (refusal(403, "forbidden"), both("refused unauthorized", "unknown unauthorized")),
    "403 quotaExceeded": (refusal(403, "quotaExceeded"), both("refused quota", "unknown http_403")),
    "403 rateLimitExceeded": (refusal(403, "rateLimitExceeded"), both("refused quota", "unknown http_403")),
    "403 HTML": (Answer(403, HTML), both("refused unauthorized", "unknown unauthorized")),
    "404 of this instance": (
        refusal(404, "notFound", GONE),
        ("refused invalid", "absent", "absent", "unknown http_404"),
    ),
    "404 in another project": (
        refusal(404, "notFound", OTHERS),
        ("refused invalid", "absent elsewhere", "absent elsewhere", "unknown http_404"),
    ),
    "404 of something else": (
        refusal(404, "notFound", f"The resource 'projects/{PROJECT}' was not found"),
        both("refused invalid", "unknown http_404"),
    ),
    "404 HTML": (Answer(404, HTML), both("refused invalid", "unknown http_404")),
    "408": (Answer(408, b""), both("unresolved http_408", "unknown http_408")),
    "409 alreadyExists": (refusal(409, "alreadyExists"), both("refused name_taken", "unknown http_409")),
    "409 another reason": (refusal(409, "resourceInUseByAnotherResource"), both("refused invalid", "unknown http_409")),
    "410": (refusal(410, "gone"), both("refused invalid", "unknown http_410")),
    "412": (refusal(412, "conditionNotMet"), both("refused invalid", "unknown http_412")),
    "422": (refusal(422, "invalid"), both("refused invalid", "unknown http_422")),
    "429 with Retry-After": (
        refusal(429, "rateLimitExceeded", headers={"Retry-After": "30"}),
        both("refused quota", "unknown http_429"),
    ),
    "500": (refusal(500, "internalError"), both("unresolved http_500", "unknown http_500")),
    "502 HTML": (Answer(502, HTML), both("unresolved http_502", "unknown http_502")),
    "503": (refusal(503, "backendError"), both("unresolved http_503", "unknown http_503")),
    "503 resourcePoolExhausted": (refusal(503, "resourcePoolExhausted"), both("refused capacity", "unknown http_503")),
    "504 empty": (Answer(504, b""), both("unresolved http_504", "unknown http_504")),
    "an error that is no object": (Answer(500, b"[1]"), both("unresolved http_500", "unknown http_500")),
    "a redirect": (
        Answer(302, b"", {"Location": "http://127.0.0.1:1/"}),
        both("unresolved malformed", "unknown malformed"),
    ),
    "200 HTML": (Answer(200, HTML), both("unresolved malformed", "unknown malformed")),
    "200 empty": (Answer(200, b""), both("unresolved malformed", "unknown malformed")),
    "200 cut short": (Answer(200, b'{"kind": "com'), both("unresolved malformed", "unknown malformed")),
    "200 no text": (Answer(200, b"\xff\xfe\x00"), both("unresolved malformed", "unknown malformed")),
    "200 another object": (Answer(200, {}), both("unresolved malformed", "unknown malformed")),
    "200 null": (Answer(200, b"null"), both("unresolved malformed", "unknown malformed")),
    "200 a list": (Answer(200, []), both("unresolved malformed", "unknown malformed")),
    "200 wrong types": (
        Answer(200, {"kind": 5, "id": "x", "name": [], "status": 7, "targetId": "y"}),
        both("unresolved malformed", "unknown malformed"),
    ),
    "reset": (
        requests.ConnectionError(urllib3.exceptions.ProtocolError("Connection aborted.", ConnectionResetError(104))),
        both("unresolved reset", "unknown reset"),
    ),
    "cut in the body": (
        requests.exceptions.ChunkedEncodingError("IncompleteRead"),
        both("unresolved reset", "unknown reset"),
    ),
    "refused, no route, no such name": (REFUSED, both("unresolved unreachable", "unknown unreachable")),
    "read time-out": (requests.ReadTimeout("t"), both("unresolved timeout", "unknown timeout")),
    "connect time-out": (requests.ConnectTimeout("t"), both("unresolved timeout", "unknown timeout")),
    "hangs": (TimeoutError("no answer within 9 s"), both("unresolved timeout", "unknown timeout")),
    "TLS": (requests.exceptions.SSLError("certificate"), both("unresolved reset", "unknown reset")),
}
CALLS: tuple[Callable[[Any], Any], ...] = (
    lambda gce: gce.create(spec(), send_before=LATE, timeout=30),
    lambda gce: gce.delete(MACHINE, send_before=LATE, timeout=9),
    lambda gce: gce.describe(MACHINE, timeout=9),
    lambda gce: gce.list_all(timeout=9),
)


@pytest.mark.parametrize("call", range(4), ids=["create", "delete", "describe", "list"])
@pytest.mark.parametrize("row", ROWS)
def test_an_answer(row: str, call: int) -> None:
    answer, expected = ROWS[row]
    script = Script(answer)
    assert brief(CALLS[call](cloud(script)), PROJECT) == expected[call]
    assert len(script.asked) == 1  # sent once, whatever came of it


def guest(answer: Step) -> str:
    return brief(cloud(Script(answer)).guest(MACHINE, timeout=9), PROJECT)


@pytest.mark.parametrize("row", ROWS)
def test_guest_attributes_fail_as_a_describe_does(row: str) -> None:
    answer, (_, _, expected, _) = ROWS[row]
    assert guest(answer) == ("unknown http_404" if expected.startswith("absent") else expected)


NO_TOKEN: dict[str, tuple[Exception, str, str]] = {
    "no credentials": (
        auth.DefaultCredentialsError("File x was not found."),
        "refused unauthorized unsent",
        "unauthorized",
    ),
    "credentials that are refused": (auth.RefreshError("invalid_grant"), "refused unauthorized", "unauthorized"),
    "a token server that fails for now": (
        auth.RefreshError("unavailable", retryable=True),
        "unresolved unreachable",
        "unreachable",
    ),
    "a token server that cannot be reached": (auth.TransportError("dns"), "unresolved unreachable", "unreachable"),
}


@pytest.mark.parametrize("row", NO_TOKEN)
def test_without_a_token_nothing_is_sent(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    error, create, read = NO_TOKEN[row]

    def fail(endpoint: str | None) -> Any:
        raise error

    monkeypatch.setattr(gcp_client, "_credentials", fail)
    script = Script()
    gce = cloud(script)
    made = CALLS[0](gce)
    assert brief(made, PROJECT) == create
    assert brief(CALLS[2](gce), PROJECT) == brief(CALLS[3](gce), PROJECT) == f"unknown {read}"
    assert script.asked == []
    if row == "no credentials":
        assert "GOOGLE_APPLICATION_CREDENTIALS" in made.message
        assert "gcloud auth application-default login" in made.message


FAILED: dict[str, tuple[dict[str, Any], str]] = {
    "operation: ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": (
        {
            "error": {"errors": [{"code": "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "message": "m"}]},
            "httpErrorStatusCode": 503,
            "httpErrorMessage": "SERVICE UNAVAILABLE",
        },
        "refused capacity",
    ),
    "operation: an error without an HTTP status": (
        {"error": {"errors": [{"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "m"}]}},
        "refused capacity",
    ),
    "operation: QUOTA_EXCEEDED": (
        {"error": {"errors": [{"code": "QUOTA_EXCEEDED", "message": "m"}]}, "httpErrorStatusCode": 403},
        "refused quota",
    ),
    "operation: RESOURCE_ALREADY_EXISTS": (
        {"error": {"errors": [{"code": "RESOURCE_ALREADY_EXISTS"}]}, "httpErrorStatusCode": 409},
        "refused name_taken",
    ),
    "operation: PERMISSIONS_ERROR": ({"error": {"errors": [{"code": "PERMISSIONS_ERROR"}]}}, "refused unauthorized"),
    "operation: INVALID_USAGE": ({"error": {"errors": [{"code": "INVALID_USAGE"}]}}, "refused invalid"),
    "operation: INTERNAL_ERROR": (
        {"error": {"errors": [{"code": "INTERNAL_ERROR"}]}},
        "unresolved operation_internal_error",
    ),
    "operation: a code that nobody knows": (
        {"error": {"errors": [{"code": "SOME_FUTURE_CODE"}]}, "httpErrorStatusCode": 400},
        "unresolved operation_some_future_code",
    ),
    "operation: an HTTP status alone": (
        {"httpErrorStatusCode": 403, "httpErrorMessage": "FORBIDDEN"},
        "refused unauthorized",
    ),
    "operation: a 5xx alone": ({"httpErrorStatusCode": 503}, "unresolved http_503"),
}


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("row", FAILED)
def test_an_operation_that_failed(row: str, later: bool) -> None:
    more, expected = FAILED[row]
    steps = [operation("RUNNING"), operation("DONE", **more)] if later else [operation("DONE", **more)]
    script = Script(*steps)
    given = CALLS[0](cloud(script))
    assert brief(given, PROJECT) == expected
    assert script.steps == []
    if isinstance(given, Unresolved) and "operation_" in given.error:
        assert given.operation == "operation-1"


def test_a_made_instance_is_shown_as_gce_shows_it() -> None:
    script = Script(operation("RUNNING"), operation("DONE"), Answer(body=resource()))
    given = CALLS[0](cloud(script))
    assert isinstance(given, Accepted)
    shown = given.seen
    assert shown is not None
    assert (shown.machine, shown.status, shown.zone, shown.name) == (MACHINE, "RUNNING", ZONE, "eps-issue-1")
    assert (shown.provisioning_model, shown.marker, shown.ports) == ("SPOT", "l.issue-1.a.2", "198.51.100.7:22")
    assert (shown.cost_per_hour, shown.gpus, shown.created_at) == (12.0, 4, 1_784_365_200_000_000)
    assert script.paths() == [
        f"POST projects/p/zones/{ZONE}/instances",
        f"GET projects/p/zones/{ZONE}/operations/operation-1",
        f"GET projects/p/zones/{ZONE}/instances/{ID}",
    ]


def test_a_queued_instance_is_known_while_its_operation_goes_on() -> None:
    script = Script(operation("RUNNING"), Answer(body=resource(status="PENDING")))
    given = cloud(script).create(spec(model="FLEX_START"), send_before=LATE, timeout=30)
    assert isinstance(given, Accepted)
    assert given.seen is not None
    assert (given.seen.status, given.seen.ports) == ("PENDING", None)


def test_a_queued_instance_that_is_not_shown_yet_is_looked_for_again() -> None:
    script = Script(
        operation("RUNNING"),
        refusal(404, "notFound", GONE),
        operation("RUNNING"),
        refusal(503, "backendError"),
        operation("RUNNING"),
        Answer(body=resource(status="PENDING")),
    )
    given = cloud(script).create(spec(model="FLEX_START"), send_before=LATE, timeout=30)
    assert isinstance(given, Accepted)


def test_an_operation_that_cannot_be_read_is_read_again() -> None:
    unread: list[Step] = [
        refusal(500, "internalError"),
        requests.ReadTimeout("t"),
        operation("SOME_FUTURE_STATUS"),
        Answer(200, HTML),
    ]
    steps = [operation("RUNNING"), *unread, operation("DONE"), Answer(body=resource())]
    script = Script(*steps)
    assert brief(CALLS[0](cloud(script)), PROJECT) == "accepted"


def test_an_operation_that_does_not_end_in_time() -> None:
    clock = Clock()
    script = Script(*[operation("RUNNING")] * 50)
    given = CALLS[0](cloud(script, clock))
    assert isinstance(given, Unresolved)
    assert (given.error, given.operation) == ("timeout", "operation-1")
    assert clock.time == 30


def test_an_instance_that_was_made_and_cannot_be_read_is_unresolved() -> None:
    given = CALLS[0](cloud(Script(operation("DONE"), *[refusal(503, "backendError")] * 50)))
    assert brief(given, PROJECT) == "unresolved timeout"
    given = CALLS[0](cloud(Script(operation("DONE"), refusal(404, "notFound", GONE))))
    assert brief(given, PROJECT) == "unresolved vanished"


def test_the_last_moment_is_looked_at_when_the_token_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    script = Script()
    gce = cloud(script, clock)
    connect = gce._connect

    def slowly(settings: Any) -> Any:
        clock.sleep(25)  # a token server that took its time
        return connect(settings)

    monkeypatch.setattr(gce, "_connect", slowly)
    expected = Refused("absent", "the last moment to send had passed", unsent=True)
    assert gce.create(spec(), send_before=20.0, timeout=30) == expected
    assert gce.delete(MACHINE, send_before=20.0, timeout=30) == expected
    assert script.asked == []


@pytest.mark.parametrize("call", range(4))
def test_each_request_has_its_callers_time_and_no_more(call: int) -> None:
    script = Script(requests.ReadTimeout("t"))
    CALLS[call](cloud(script))
    assert sum(script.limits[0]) == pytest.approx(30 if call == 0 else 9, abs=0.01)


def test_a_token_that_was_refused_is_fetched_anew_at_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    from google.auth.credentials import Credentials

    class Counting(Credentials):
        fetched = 0
        service_account_email = "robot@p.iam"

        def refresh(self, request: Any) -> None:
            Counting.fetched += 1
            self.token = f"token-{Counting.fetched}"

    monkeypatch.setattr(gcp_client, "_credentials", lambda endpoint: counting())
    counting: Any = Counting
    script = Script(refusal(401, "authError"), Answer(body=resource()), Answer(body=resource()))
    gce = cloud(script)
    answers = [brief(CALLS[2](gce), PROJECT) for _ in range(3)]
    assert answers == ["unknown unauthorized", "seen", "seen"]
    headers = [request.headers["Authorization"] for request in script.asked]
    assert headers == ["Bearer token-1", "Bearer token-2", "Bearer token-2"]


def test_nothing_secret_is_in_a_message() -> None:
    secret = "ya29." + "a" * 40
    token = "hf_" + "b" * 30
    for answer in (
        refusal(400, "invalid", f"Authorization: Bearer {secret}"),
        refusal(500, "internalError", f"metadata HF_TOKEN={token}"),
        requests.ConnectionError(f"https://user:{token}@h/ failed"),
    ):
        for call in CALLS:
            told = str(call(cloud(Script(answer))))
            assert secret not in told
            assert token not in told


@pytest.mark.parametrize(
    ("named", "where"),
    [("/keys/sa.json", "/keys/sa.json"), (None, "gcloud's application default or a metadata server")],
)
def test_of_credentials_that_are_not_taken_it_is_told_where_they_are(
    named: str | None, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    if named:
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", named)
    for told in (CALLS[3](cloud(Script(refusal(401, "authError")))), as_unknown(fault(auth.RefreshError("invalid")))):
        assert brief(told, PROJECT) == "unknown unauthorized"
        assert told.message.endswith(f"the credentials are those of {where}")


def test_messages_are_one_line_and_not_too_long() -> None:
    given = CALLS[0](cloud(Script(refusal(400, "invalid", "a\nb\t" + "c" * 5000))))
    assert isinstance(given, Refused)
    assert "\n" not in given.message
    assert len(given.message) == 500
    told = CALLS[1](cloud(Script(ROWS["429 with Retry-After"][0])))
    assert isinstance(told, Refused)
    assert told.message == "no (retry after 30 s)"


def test_errors_of_the_client_that_only_its_own_retries_make() -> None:
    retry: Any = RetryError
    status: Any = from_http_status
    inner = fault(retry("gave up", status(503, "m")))
    assert (inner.error, as_unknown(inner).error) == ("http_503", "http_503")
    assert as_call(fault(retry("gave up", None))) == Unresolved("timeout", "gave up, last exception: None")


def test_an_absence_is_of_the_very_instance() -> None:
    other = f"The resource 'projects/{PROJECT}/zones/{ZONE}/instances/9' was not found"
    assert brief(CALLS[2](cloud(Script(refusal(404, "notFound", other)))), PROJECT) == "unknown http_404"
    assert CALLS[2](cloud(Script(refusal(404, "notFound", OTHERS)))) == Absent("other")


def test_a_describe_that_tells_of_another_instance_tells_nothing() -> None:
    assert brief(CALLS[2](cloud(Script(Answer(body=resource(id="9"))))), PROJECT) == "unknown malformed"


@pytest.mark.parametrize(
    "machine", ["gcp:p/us-central1-a/eps-issue-1", "gcp:p/us-central1-a/", "runpod:x", "gcp:p/z/1/2"]
)
def test_only_a_numeric_id_designates_an_instance(machine: str) -> None:
    script = Script()
    gce = cloud(script)
    assert brief(gce.describe(machine, timeout=9), PROJECT) == "unknown invalid"
    assert brief(gce.guest(machine, timeout=9), PROJECT) == "unknown invalid"
    assert brief(gce.delete(machine, send_before=LATE, timeout=9), PROJECT) == "refused invalid"
    assert script.asked == []


def test_the_documentation_has_a_row_for_each_answer() -> None:
    text = DOCS.read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| ([^|]+?) \|", text, re.MULTILINE))
    assert [row for row in (*ROWS, *NO_TOKEN, *FAILED) if row not in rows] == []


@pytest.mark.parametrize("row", ROWS)
def test_the_documentation_says_what_an_answer_means(row: str) -> None:
    line = next(line for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {row} |"))
    _, expected = ROWS[row]
    assert [cell.strip() for cell in line.strip("|").split("|")][1:5] == [*expected]


@pytest.mark.parametrize("row", FAILED)
def test_the_documentation_says_what_a_failed_operation_means(row: str) -> None:
    line = next(line for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {row} |"))
    assert line.split("|")[2].strip() == FAILED[row][1]
