"""What RunPod's answers mean, on either of its APIs: one table, pure.

`Reply` is an HTTP answer that was read to its end, `Failed` one that never was. A refusal is only what says that
surely nothing was made; anything else leaves a create or a delete unresolved.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ledger.clouds.values import Refused, Unknown, Unresolved
from ledger.secrets import redact

MESSAGE_LENGTH = 300
SHORTEST_SECRET = 4


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer. `body` is its JSON; `malformed`: it is none. `text` is what it says for a person, unredacted.

    `date` is the cloud's clock (microseconds UTC), `retry_after` in seconds.
    """

    status: int
    body: Any = None
    malformed: bool = False
    text: str = ""
    date: int | None = None
    retry_after: int | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer: `error` is `timeout`, `reset` or `unreachable`; `unsent`: the last moment to send had passed."""

    error: str
    message: str = ""
    unsent: bool = False


# The texts of RunPod's refusals. Its GraphQL gives no machine code, and v2 answers 400 with the same words.
_CAPACITY: Final = re.compile(
    r"no longer any instances available|no instances (?:are )?(?:currently )?available|not enough free gpus"
    r"|does not have the resources to deploy|(?:insufficient|no) capacity|out of (?:capacity|stock)",
    re.IGNORECASE,
)
_QUOTA: Final = re.compile(
    r"\bbalance\b|spend(?:ing)? limit|insufficient funds|\bquota\b|rate limit|too many requests", re.IGNORECASE
)
_UNAUTHORIZED: Final = re.compile(
    r"unauthori[sz]ed|unauthenticated|forbidden|access denied|not logged in|invalid api key", re.IGNORECASE
)
_INVALID: Final = re.compile(
    r"\b(?:template|gpu type|image|volume|data ?center|registry)\b.*\bnot found", re.IGNORECASE
)
_TAKEN: Final = re.compile(r"\balready exists\b", re.IGNORECASE)
_POD_GONE: Final = re.compile(r"\bpod[ _]not[ _]found", re.IGNORECASE)
_BY_STATUS: Final[Mapping[int, str]] = {401: "unauthorized", 402: "quota", 403: "unauthorized", 429: "quota"}


def refusal_in(text: str) -> str | None:
    """The class of a refusal that these words say; None: they say nothing for sure."""
    for pattern, cls in (
        (_CAPACITY, "capacity"),
        (_QUOTA, "quota"),
        (_UNAUTHORIZED, "unauthorized"),
        (_INVALID, "invalid"),
        (_TAKEN, "name_taken"),
    ):
        if pattern.search(text):
            return cls
    return None


def says_pod_gone(text: str) -> bool:
    """Whether these words (or this code) say that there is no such pod."""
    return bool(_POD_GONE.search(text))


def not_done(reply: Reply, message: str, *, taken: str) -> Refused | Unresolved:
    """A create or delete that was answered with an HTTP error. `taken`: what a 409 means for this call."""
    status = reply.status
    if status in (400, 500) and (cls := refusal_in(reply.text)):
        return Refused(cls, message)
    if status == 409:
        return Refused(taken, message)
    if 300 <= status < 500 and status != 408:
        return Refused(_BY_STATUS.get(status, "invalid"), message)
    return Unresolved(f"http_{status}", message)


def not_read(reply: Reply, message: str) -> Unknown:
    """A read that was answered with an HTTP error."""
    known = {401: "unauthorized", 403: "unauthorized", 404: "not_found"}
    return Unknown(known.get(reply.status, f"http_{reply.status}"), message)


def message_of(reply: Reply, secrets: Iterable[str] = ()) -> str:
    """One line for a person, without anything secret: what was answered, and how long to wait if it says so."""
    said = clean(reply.text, secrets)
    if reply.status == 410:
        said = (f"{said}; " if said else "") + "this API is retired: set the other `api` under [runpod]"
    if reply.retry_after is not None:
        said = (f"{said}; " if said else "") + f"retry after {reply.retry_after} s"
    return f"HTTP {reply.status}" + (f": {said}" if said else "")


def clean(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` on one short line, `secrets` (the key, values of an environment) and what looks like one taken out."""
    for secret in sorted({s for s in secrets if len(s) >= SHORTEST_SECRET}, key=len, reverse=True):
        # An error may quote it as it stood in the query or the body.
        for form in (secret, json.dumps(secret, ensure_ascii=False)[1:-1], json.dumps(secret)[1:-1]):
            text = text.replace(form, "[redacted]")
    line = " ".join(redact(text).split())
    return line if len(line) <= MESSAGE_LENGTH else line[: MESSAGE_LENGTH - 1] + "…"


def number(value: Any) -> float | None:
    """A JSON number that is finite and not negative; else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e9 else None


def percent(values: Iterable[Any]) -> int | None:
    """The busiest of some GPUs' uses; None: none is told."""
    told = [number(value) for value in values]
    return max((round(value) for value in told if value is not None), default=None)
