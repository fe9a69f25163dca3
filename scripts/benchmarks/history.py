"""A log of any length, made in bulk: the same rows, chains and read models as appends would have left.

What is written is checked by `ledger verify --projections` (section `verify`); it is made without the append, which
takes the lock, the fold and the disk once an event.
"""

from __future__ import annotations

import gc
import heapq
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.stories import GCP_ACCOUNT, POD_ACCOUNT, PROJECT, RUNPOD_ACCOUNT, tell
from ledger import canonical
from ledger.events import Draft, Event, from_row, read_many
from ledger.log.connection import Connection
from ledger.log.open import create_log
from ledger.log.rows import write_rows
from ledger.payloads import validate
from ledger.policy import Policy
from ledger.projections.rebuild import judge_again
from ledger.projections.tables import Rows, join, rows_of
from ledger.state.fold import advance, new_state
from ledger.state.model import State

T0 = 1_750_000_000_000_000
_MICROS = 1_000_000
_GAP = 40.0  # seconds between two dispatches
_TOGETHER = 300  # runs that are under way at the same time in the log
EVENTS_A_RUN = 12
# What rests on evidence: here, on what was last known of its machine.
_RESTS = frozenset(
    (
        "FailoverDecided",
        "TeardownRequested",
        "TornDown",
        "WorkloadEnded",
        "LaunchFailed",
        "ProvisionRefused",
        "RunClosed",
    )
)


@dataclass(frozen=True, slots=True)
class Made:
    """A log that was made: where, how long, how many runs of it are open, and the moment of its end (microseconds)."""

    path: Path
    events: int
    runs: int
    open_runs: int
    until: int
    payload_bytes: tuple[int, int, int]  # the first tenth, the median, the last tenth


def make(path: Path, events: int, open_runs: int | None = None) -> Made:
    """A ledger at `path` with about `events` events; 1 % of its runs are open, or `open_runs`."""
    log = create_log(f"sqlite:///{path}", AtT0(), Policy(), "bench")
    connection = log.connection
    writer = _Writer(connection, last=next(reversed(list(log.read_all()))))
    runs = max(1, events // EVENTS_A_RUN)
    still_open = runs // 100 if open_runs is None else open_runs
    # The triggers come back at the end: what is written here is in order, and `verify` reads it.
    triggers = connection.query("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("PRAGMA cache_size=-200000")
    read_many()
    issue = 0
    gc.freeze()
    while writer.count < events:
        issue += _TOGETHER
        ending = writer.count + _TOGETHER * EVENTS_A_RUN >= events
        left = min(still_open, _TOGETHER) if ending or runs - issue < still_open else 0
        still_open -= left
        writer.chunk(issue - _TOGETHER + 1, _TOGETHER, left)
    while still_open > 0:
        left = min(still_open, _TOGETHER)
        writer.chunk(issue + 1, left, left)
        still_open, issue = still_open - left, issue + left
    writer.accounts_now()
    with connection.write():
        judge_again(connection)
    connection.execute("PRAGMA synchronous=FULL")
    for _, sql in triggers:
        connection.execute(sql)
    connection.execute("ANALYZE")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    open_now = connection.query("SELECT count(*) FROM runs WHERE active = 1")[0][0]
    connection.close()
    sizes = sorted(writer.sizes)
    tenths = sizes[len(sizes) // 10], sizes[len(sizes) // 2], sizes[len(sizes) * 9 // 10]
    return Made(path, writer.count, issue, open_now, writer.now, tenths)


class AtT0:
    """A source with real chance, and a clock that stands where the logs begin."""

    def now(self) -> int:
        return T0

    def steady(self) -> float:
        return T0 / _MICROS

    def random_bytes(self, n: int) -> bytes:
        return os.urandom(n)


class _Writer:
    def __init__(self, connection: Connection, last: Event) -> None:
        self.connection = connection
        self.position = self.count = last.position
        self.now = T0
        self.states: dict[str, State] = {}
        self.lasting: dict[str, State] = {}  # accounts, which go on from chunk to chunk
        self.last: dict[str, list[int]] = {}  # machine, or stream → positions
        self.sizes: list[int] = []
        self.listed_at = 0

    def chunk(self, first: int, runs: int, still_open: int) -> None:
        """The whole life of some runs, interleaved as they happen; the last `still_open` of them still work."""
        stories = []
        for n in range(runs):
            issue = first + n
            began = self.now + round(n * _GAP * _MICROS)
            story = tell(issue, began, still_open=n >= runs - still_open)
            stories.append([(draft.occurred_at, issue, index, draft) for index, (_, draft) in enumerate(story)])
        events: list[Event] = []
        for at, issue, _, draft in heapq.merge(*stories):
            self.now = max(self.now, at)
            if self.now - self.listed_at > 300 * _MICROS:
                events += self._lists()
            events.append(self._event(f"issue-{issue}", draft, self.states))
        self._write(events)

    def accounts_now(self) -> None:
        """Both accounts are listed once more, at the end."""
        self._write(list(self._lists()))

    def _lists(self) -> Iterator[Event]:
        self.listed_at = self.now
        for stream, backend, account in ((GCP_ACCOUNT, "gcp", PROJECT), (RUNPOD_ACCOUNT, "runpod", POD_ACCOUNT)):
            machines = [f"{backend}:{account}/{self.position + n}" for n in range(12)]
            payload = {"backend": backend, "account": account, "complete": True, "machines": machines}
            yield self._event(stream, Draft("InventoryRead", payload, self.now), self.lasting)

    def _event(self, stream: str, draft: Draft, states: dict[str, State]) -> Event:
        state = states.get(stream)
        if state is None:
            state = states[stream] = new_state(stream)
        self.position += 1
        if draft.type in _RESTS:
            draft = replace(
                draft, payload={**draft.payload, "evidence": self.last.get(draft.machine or stream, [])[-3:]}
            )
        seen = self.last.setdefault(draft.machine or stream, [])
        seen.append(self.position)
        event = event_of(stream, draft, self.position, state.version + 1, self.now, state.hash)
        advance(state, event)
        return event

    def _write(self, events: Sequence[Event]) -> None:
        from ledger.log import statements

        rows: Rows = {}
        for state in (*self.states.values(), *self.lasting.values()):
            join(rows, rows_of(state))
        with self.connection.write():
            self.connection.execute_many(statements.insert_event(), events)
            write_rows(self.connection, rows)
        self.states.clear()
        self.last.clear()
        self.count += len(events)
        self.sizes += [len(event.payload) for event in events[:: 1 + self.count // 100_000]]


def first_drafts(n: int, issue: int = 1) -> list[tuple[str, Draft]]:
    """(stream, draft) of run after run from `issue` on, each from its beginning to its end: the first `n` of them."""

    def drafts() -> Iterator[tuple[str, Draft]]:
        for number in itertools.count(issue):
            for _, draft in tell(number, T0 + number * 1000):
                yield f"issue-{number}", draft

    return list(itertools.islice(drafts(), n))


def event_of(stream: str, draft: Draft, position: int, version: int, now: int, head: str) -> Event:
    """The event that `draft` becomes."""
    stored: list[Any] = [
        position, stream, version, f"0198{position:08x}-{version & 0xFFF:04x}"[:13] + f"-7abc-8def-{position:012x}",
        draft.type, 1, draft.occurred_at, now, draft.actor, draft.correlation_id, draft.attempt, draft.machine,
        canonical.dumps(validate(draft)),
    ]  # fmt: skip
    return from_row((*stored, canonical.chain(head, stored)))
