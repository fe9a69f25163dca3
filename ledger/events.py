"""The vocabulary: the envelope, the name of every event, what each must carry, and the upcasters.

An event says what is true, in the past tense. A *fact* is what a cloud, a file or a person said: it is true whoever
records it and however late, so it is appended again where the stream moved on. A *decision* rests on a state: where
the stream moved on it is decided again. The payloads' shapes are in `ledger.payloads` (pydantic, at the append);
what is here is light, since every reader needs it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from ledger.canonical import loads

LEDGER_STREAM: Final = "ledger"
ACCOUNT_PREFIX: Final = "account-"
RUN_PREFIX: Final = "issue-"


@dataclass(frozen=True, slots=True)
class Kind:
    """What an event type is: its newest schema, whether it is a fact, and which envelope fields it must bear."""

    name: str
    fact: bool
    attempt: bool = False
    machine: bool = False
    schema: int = 1


_KINDS = (
    Kind("RunOpened", fact=False),
    Kind("HandleImported", fact=False),
    Kind("ProvisionRequested", fact=False, attempt=True),
    Kind("ProvisionRefused", fact=True, attempt=True),
    Kind("ProvisionUnresolved", fact=True, attempt=True),
    Kind("Provisioned", fact=True, attempt=True, machine=True),
    Kind("MachineObserved", fact=True, machine=True),
    Kind("AbsenceObserved", fact=True, machine=True),
    Kind("ReconnectObserved", fact=True, machine=True),
    Kind("LaunchRequested", fact=False, attempt=True, machine=True),
    Kind("LaunchConfirmed", fact=True, attempt=True, machine=True),
    Kind("LaunchFailed", fact=False, attempt=True, machine=True),
    Kind("WorkloadEnded", fact=True, machine=True),
    Kind("FailoverDecided", fact=False),
    Kind("Repointed", fact=False, machine=True),
    Kind("TeardownRequested", fact=False, machine=True),
    Kind("TeardownFailed", fact=True, machine=True),
    Kind("TornDown", fact=True, machine=True),
    Kind("OrphanObserved", fact=True, machine=True),
    Kind("CancelRequested", fact=False),
    Kind("RunClosed", fact=False),
    Kind("SidecarEdited", fact=True),
    Kind("InventoryRead", fact=True),
    Kind("HostKeyPinned", fact=True, machine=True),
    Kind("BreachAcknowledged", fact=False),
    Kind("PolicyChanged", fact=False),
    Kind("LedgerCreated", fact=False),
)
KINDS: Final[Mapping[str, Kind]] = {kind.name: kind for kind in _KINDS}
FACTS: Final = frozenset(kind.name for kind in _KINDS if kind.fact)
ACTORS: Final = ("poller", "user", "import")


_read: Callable[[str], Any] = json.loads


def read_many() -> None:
    """From here on payloads are read by a library that takes as long to load as a thousand of them to read."""
    global _read  # noqa: PLW0603 - the same values either way
    _read = loads()


class Event(NamedTuple):
    """One stored event. Times are integer microseconds UTC; `payload` is canonical JSON text.

    `position` increases over the whole log and may have gaps; `version` counts from 1 without a gap in its stream.
    """

    position: int
    stream: str
    version: int
    event_id: str
    type: str
    schema: int
    occurred_at: int
    recorded_at: int
    actor: str
    correlation_id: str | None
    attempt: str | None
    machine: str | None
    payload: str
    hash: str

    def data(self) -> dict[str, Any]:
        """The payload as an object, of the newest schema of its type."""
        value = _read(self.payload)
        return upcast(self.type, self.schema, value) if (self.type, self.schema) in UPCASTERS else value

    def to_json(self) -> dict[str, Any]:
        """The envelope as a JSON object, the payload as an object."""
        return {**self._asdict(), "payload": self.data()}


COLUMNS: Final = Event._fields
# What Event._make does, without a call in Python.
from_row: Callable[[tuple[Any, ...]], Event] = partial(tuple.__new__, Event)


@dataclass(frozen=True, slots=True)
class Draft:
    """An event that is to be appended. `event_id` is given by the log where it is left out."""

    type: str
    payload: Mapping[str, Any]
    occurred_at: int
    actor: str = "poller"
    attempt: str | None = None
    machine: str | None = None
    correlation_id: str | None = None
    event_id: str | None = None

    @property
    def fact(self) -> bool:
        """Whether it may be appended again on another version as it is."""
        return self.type in FACTS


Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
# (type, schema) → the payload one schema newer. Stored events never change; readers see the newest shape.
UPCASTERS: dict[tuple[str, int], Upcaster] = {}


def upcast(type_: str, schema: int, payload: dict[str, Any]) -> dict[str, Any]:
    """`payload` of `type_` as written under `schema`, step by step up to the newest schema."""
    while (step := UPCASTERS.get((type_, schema))) is not None:
        payload = step(dict(payload))
        schema += 1
    return payload


def readable(type_: str, schema: int) -> bool:
    """Whether this version knows the event: of a known type, and not of a newer schema."""
    kind = KINDS.get(type_)
    return kind is not None and 1 <= schema <= kind.schema


def run_stream(issue: int, lane: str | None = None) -> str:
    """`issue-1417`, or `issue-1417-b` for a lane."""
    return f"{RUN_PREFIX}{issue}-{lane}" if lane else f"{RUN_PREFIX}{issue}"


def account_stream(backend: str, account: str) -> str:
    """The stream of what was listed under one account."""
    return f"{ACCOUNT_PREFIX}{backend}-{account}"


def is_run(stream: str) -> bool:
    """Whether the stream is that of a run."""
    return stream.startswith(RUN_PREFIX)


@dataclass(frozen=True, slots=True)
class Marker:
    """What a machine of ours bears: which ledger, run, attempt and try asked for it."""

    ledger: str
    stream: str
    attempt: str
    attempt_try: int

    def __str__(self) -> str:
        return f"{self.ledger}.{self.stream}.{self.attempt}.{self.attempt_try}"


def parse_marker(text: str | None) -> Marker | None:
    """The marker in `text`, or None where it is none."""
    parts = (text or "").split(".")
    if len(parts) != 4 or not all(parts) or not parts[3].isascii() or not parts[3].isdigit():
        return None
    return Marker(parts[0], parts[1], parts[2], int(parts[3]))
