"""RunPod's GraphQL through its SDK: the SDK's own request, with what it lacks put around it.

The SDK sends one text without variables and splices strings raw, so literals are made here. It loses the HTTP status
of an answer and fixes its time-out, so its `requests` is replaced, in that one module, by something that keeps the
answer. Importing the `runpod` package would configure the root logger and start subprocesses, so only its module of
that one call is imported, under a bare package.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ledger.clouds.http_dates import parse_date
from ledger.clouds.pod_answers import Failed, Reply
from ledger.clouds.pods import Key
from ledger.clouds.within import within
from ledger.source import Source

DEFAULT_URL = "https://api.runpod.io"
_lock = threading.Lock()
_here = threading.local()


class _Unsent(Exception):
    """The last moment to send had passed."""


@dataclass(slots=True)
class _Call:
    """One call on its way through the SDK."""

    url: str
    timeout: float
    source: Source
    send_before: float | None
    session: Any
    response: Any = None


class _Requests:
    """What the SDK takes for `requests`: this call's address and time-out, and its answer kept."""

    def __init__(self, real: ModuleType) -> None:
        self._real = real
        self.exceptions = real.exceptions

    def post(self, url: str, *, headers: Mapping[str, str], data: str, timeout: float) -> Any:  # noqa: ARG002
        call: _Call = _here.call
        if call.send_before is not None and call.source.steady() > call.send_before:
            raise _Unsent
        call.response = (call.session or self._real).post(
            call.url, headers=dict(headers), data=data.encode(), timeout=call.timeout, allow_redirects=False
        )
        return call.response


def sdk() -> ModuleType:
    """The SDK's module `runpod.api.graphql`, imported at the first call and without the package around it."""
    with _lock:
        if "runpod" not in sys.modules:
            spec = importlib.util.find_spec("runpod")
            if spec is None or spec.submodule_search_locations is None:
                raise ImportError("the package `runpod` is not installed")
            bare = ModuleType("runpod")
            bare.__path__ = list(spec.submodule_search_locations)
            bare.__spec__ = spec
            bare.__dict__["api_key"] = None
            sys.modules["runpod"] = bare
        module = importlib.import_module("runpod.api.graphql")
        if not isinstance(module.__dict__["requests"], _Requests):
            module.__dict__["requests"] = _Requests(module.__dict__["requests"])
        return module


def send(
    query: str,
    key: Key,
    url: str,
    source: Source,
    *,
    timeout: float,
    send_before: float | None = None,
    session: Any = None,
) -> Reply | Failed:
    """Send one query. `url` is the API's base, without `/graphql`; `session` sends in the caller's own thread."""
    if timeout <= 0:
        return Failed("timeout", "no time was left for the call")
    call = _Call(f"{url.rstrip('/')}/graphql", timeout, source, send_before, session)
    module = sdk()

    def run() -> None:
        _here.call = call
        module.run_graphql_query(query, key.reveal())

    try:
        if session is None:
            within(timeout, run)
        else:
            run()
    except TimeoutError:
        return Failed("timeout", "no answer within the time-out")
    except _Unsent:
        return Failed("timeout", "the last moment to send had passed", unsent=True)
    except Exception as error:
        # Its errors hold the query, and with it the environment: nothing of them is told but their kind.
        if call.response is None:
            return _failed(error)
    return _reply(call.response)


def _failed(error: Exception) -> Failed:
    requests = sys.modules["requests"]
    urllib3 = sys.modules["urllib3"]
    kind = type(error).__name__
    cause: Any = error
    for _ in range(4):  # ConnectionError(MaxRetryError(reason=NewConnectionError)), ConnectionError(ReadTimeoutError)
        if isinstance(cause, requests.exceptions.Timeout | urllib3.exceptions.ReadTimeoutError | TimeoutError):
            return Failed("timeout", "no answer within the time-out")
        if isinstance(cause, urllib3.exceptions.NewConnectionError | urllib3.exceptions.SSLError):
            return Failed("unreachable", f"no connection ({type(cause).__name__})")
        inner = getattr(cause, "reason", None) or next(iter(getattr(cause, "args", ())), None)
        if not isinstance(inner, Exception):
            break
        cause = inner
    if isinstance(error, requests.exceptions.SSLError):
        return Failed("unreachable", f"no connection ({kind})")
    if isinstance(error, requests.exceptions.RequestException | OSError):
        return Failed("reset", f"the connection broke ({kind})")
    return Failed("malformed", f"the answer could not be read ({kind})")


def _reply(response: Any) -> Reply:
    headers = response.headers
    try:
        body, malformed = response.json(), False
    except (ValueError, RecursionError):
        body, malformed = None, True
    after = headers.get("Retry-After", "")
    return Reply(
        status=response.status_code,
        body=body,
        malformed=malformed,
        text=_said(body),
        date=parse_date(headers.get("Date")),
        retry_after=int(after) if after.isdecimal() else None,
    )


def _said(body: Any) -> str:
    """What an error body says: GraphQL's errors, or a problem's detail."""
    if not isinstance(body, dict):
        return ""
    said = [errors_text(body), *(body[k] for k in ("detail", "title") if isinstance(body.get(k), str))]
    return "; ".join(text for text in said if text)


def errors_of(body: Any) -> list[dict[str, Any]]:
    """The errors of a GraphQL answer; one that is no object is `{"message": "..."}`."""
    errors = body.get("errors") if isinstance(body, dict) else None
    if not isinstance(errors, list):
        return []
    return [error if isinstance(error, dict) else {"message": str(error)} for error in errors]


def errors_text(body: Any) -> str:
    """Their messages and codes."""
    said = []
    for error in errors_of(body):
        extensions = error.get("extensions")
        code = extensions.get("code") if isinstance(extensions, dict) else None
        said += [str(part) for part in (error.get("message"), code) if isinstance(part, str) and part]
    return "; ".join(said)


def literal(value: Any) -> str:
    """`value` as a GraphQL literal: text, numbers, truth, lists and objects of them; `Word` stands for itself."""
    if isinstance(value, Word):
        return value.name
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {literal(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(literal(item) for item in value) + "]"
    # A GraphQL string escapes as a JSON string does; letters beyond ASCII stand as they are.
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Word:
    """A name of an enumeration."""

    name: str
