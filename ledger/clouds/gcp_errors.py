"""Everything that GCE, its client and the network between can answer, as the port's values.

An exception becomes a `Fault` once; what a fault means then depends on the call: a read is unknown, a create or a
delete is refused where the cloud surely did nothing, and else unresolved. `docs/clouds/gcp.md` has the whole table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ledger.clouds.values import Absent, Refused, Unknown, Unresolved
from ledger.secrets import redact

MESSAGE_MAX = 500
NO_CREDENTIALS = (
    "no Google credentials: looked at GOOGLE_APPLICATION_CREDENTIALS, at gcloud's application default and for a"
    " metadata server; run `gcloud auth application-default login`"
)
# By Google's own word, wherever it stands: the reason of an HTTP error, or the code of an operation's.
REASONS = {
    "alreadyExists": "name_taken",
    "quotaExceeded": "quota",
    "limitExceeded": "quota",
    "rateLimitExceeded": "quota",
    "userRateLimitExceeded": "quota",
    "dailyLimitExceeded": "quota",
    "resourcePoolExhausted": "capacity",
    "ZONE_RESOURCE_POOL_EXHAUSTED": "capacity",
    "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": "capacity",
    "STOCKOUT": "capacity",
    "QUOTA_EXCEEDED": "quota",
    "LIMIT_EXCEEDED": "quota",
    "RATE_LIMIT_EXCEEDED": "quota",
    "RESOURCE_ALREADY_EXISTS": "name_taken",
    "PERMISSIONS_ERROR": "unauthorized",
    "FORBIDDEN": "unauthorized",
    "CONDITION_NOT_MET": "invalid",
    "INVALID_FIELD_VALUE": "invalid",
    "INVALID_USAGE": "invalid",
    "RESOURCE_NOT_FOUND": "invalid",
    "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE": "invalid",
    "UNSUPPORTED_OPERATION": "invalid",
}
STATUSES = {401: "unauthorized", 402: "quota", 403: "unauthorized", 429: "quota"}
_NOT_FOUND = re.compile(r"'projects/(?P<project>[^/']+)/zones/[^/']+/instances/(?P<instance>[^/']+)'")


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong. `error`: `http_503`, `timeout`, `reset`, `unreachable`, `malformed`, `no_credentials`, ...

    `status` is HTTP's, None where no answer came; `reason` is Google's word for it. The message is one line without
    a secret.
    """

    error: str
    message: str = ""
    status: int | None = None
    reason: str | None = None


class Malformed(Exception):
    """An answer that is good JSON and not what was asked for."""


def fault(error: BaseException) -> Fault:
    """What an exception of the client, its transport or its credentials says."""
    import requests
    from google.api_core import exceptions as api
    from google.auth import exceptions as auth
    from google.protobuf.json_format import ParseError  # type: ignore[import-untyped]  # its stubs are a package of their own

    message = clean(str(error) or type(error).__name__)
    match error:
        case api.RetryError():
            return fault(error.cause) if error.cause is not None else Fault("timeout", message)
        case api.GoogleAPICallError():
            return _of_status(error, message)
        case auth.DefaultCredentialsError():
            return Fault("no_credentials", f"{NO_CREDENTIALS} ({message})")
        case auth.TransportError():
            return Fault("unreachable", message)
        case auth.GoogleAuthError():
            if getattr(error, "retryable", False):
                return Fault("unreachable", message)
            return Fault("unauthorized", _of_credentials(message), 401)
        case requests.Timeout() | TimeoutError():
            # ConnectTimeout is both; nothing was sent then, but no one can tell the two apart from what is told here.
            return Fault("timeout", message)
        case requests.exceptions.InvalidJSONError() | ParseError() | Malformed():
            return Fault("malformed", message)
        case requests.ConnectionError():
            return Fault("unreachable" if _never_connected(error) else "reset", message)
        case requests.RequestException():
            return Fault("reset", message)
    # Bytes that are no text, JSON that is no object: the client's parser has no exception of its own for them.
    return Fault("malformed", clean(f"{type(error).__name__}: {error}"))


def _of_status(error: Any, message: str) -> Fault:
    entries = [entry for entry in error.errors or () if isinstance(entry, dict)]
    reason = next((str(entry["reason"]) for entry in entries if entry.get("reason")), error.reason)
    said = next((str(entry["message"]) for entry in entries if entry.get("message")), None)
    wait = getattr(error.response, "headers", {}).get("Retry-After")
    told = clean(f"{said or message}{f' (retry after {wait} s)' if wait else ''}")
    status = int(error.code or 0)
    return Fault(f"http_{status}", _of_credentials(told) if status == 401 else told, status, reason)


def _of_credentials(message: str) -> str:
    """What was said of credentials that are not taken, and where those were found."""
    where = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS") or "gcloud's application default or a metadata server"
    return clean(f"{message}; the credentials are those of {where}")


def _never_connected(error: BaseException) -> bool:
    """Whether no connection came to be: refused, no route, no such name."""
    from urllib3.exceptions import MaxRetryError, NewConnectionError

    cause = error.args[0] if error.args else None
    return isinstance(cause, MaxRetryError) and isinstance(cause.reason, NewConnectionError)


def as_unknown(told: Fault) -> Unknown:
    """A read that failed."""
    if told.error == "no_credentials" or (told.status in (401, 403) and REASONS.get(told.reason or "") != "quota"):
        return Unknown("unauthorized", told.message)
    return Unknown(told.error, told.message)


def as_call(told: Fault) -> Refused | Unresolved:
    """A create or a delete that failed: refused where surely nothing was done."""
    if told.error == "no_credentials":
        return Refused("unauthorized", told.message, unsent=True)
    if told.reason in REASONS:
        return Refused(REASONS[told.reason], told.message)
    if told.status is None or told.status >= 500 or told.status in (0, 408):
        return Unresolved(told.error, told.message)
    return Refused(STATUSES.get(told.status, "invalid"), told.message)


def as_absent(told: Fault, instance: str) -> Absent | None:
    """The absence that a 404 of that instance tells, under the project that it names.

    None: it is of something else (the project, the zone, a proxy's page), and tells nothing of the instance.
    """
    named = _NOT_FOUND.search(told.message) if told.status == 404 and told.reason == "notFound" else None
    return Absent(named["project"]) if named and named["instance"] == instance else None


def of_operation(operation: Any) -> Refused | Unresolved | None:
    """What an operation that is DONE failed with; None: it went well.

    Read from its own list of errors: the client's `result()` takes an operation without an HTTP status for a success.
    """
    entries = list(operation.error.errors)
    codes = [str(entry.code) for entry in entries]
    if not entries and not operation.http_error_status_code:
        return None
    told = _messages(entries) or clean(operation.http_error_message) or "the operation failed"
    known = next((REASONS[code] for code in codes if code in REASONS), None)
    if known is not None:
        return Refused(known, told)
    if not codes and 400 <= operation.http_error_status_code < 500:
        return as_call(Fault("", told, int(operation.http_error_status_code)))
    code = codes[0].lower() if codes else f"http_{operation.http_error_status_code}"
    return Unresolved(f"operation_{code}" if codes else code, told, operation.name or None)


def _messages(entries: Iterable[Any]) -> str:
    return clean("; ".join(f"{entry.code}: {entry.message}" for entry in entries))


def clean(text: str) -> str:
    """One line, not too long, without a secret."""
    line = " ".join(redact(text).split())
    return line if len(line) <= MESSAGE_MAX else line[: MESSAGE_MAX - 1] + "…"
