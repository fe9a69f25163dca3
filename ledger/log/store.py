"""The log: append and read.

`append` is all or nothing, in one short transaction, durable when it returns. In that transaction stand the events,
the read models' rows that they change, and the judgement of what was decided. A cloud is never called inside it.

When to record what: the intent (`ProvisionRequested`, `LaunchRequested`, `TeardownRequested`) before the call, alone;
the outcome after it, as a fact. A wrong expected version is `Conflict`: read again; decide a decision again; append a
fact as it is, for it is true on any version.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ledger import canonical
from ledger.errors import Conflict, EventError
from ledger.events import COLUMNS, KINDS, Draft, Event
from ledger.log.connection import Connection, Params
from ledger.policy import Policy, lenient
from ledger.projections.tables import Rows, before, join, rows_of, touched
from ledger.source import Source, uuid7
from ledger.state.fold import advance, fold, new_state
from ledger.state.model import Run, State

SELECT = f"SELECT {', '.join(COLUMNS)} FROM events"
_STREAM = f"{SELECT} WHERE stream = :stream AND version > :after ORDER BY version"
_HEAD = "SELECT max(position) FROM events"
_NEWS = f"{SELECT} WHERE position > :after ORDER BY position"
_ACTIVE = "SELECT stream FROM runs WHERE active = 1 ORDER BY stream"
POLICY = "SELECT policy FROM policies ORDER BY position DESC LIMIT 1"


@dataclass(slots=True)
class Hooks:
    """Where a rehearsal may stop a process. In real use they do nothing."""

    before_append: Callable[[], None] = lambda: None
    after_commit: Callable[[Sequence[Event]], None] = lambda _events: None


@dataclass(slots=True)
class Seen:
    """Facts of several streams that went into one transaction: those that stand, and the streams that had moved on."""

    stood: dict[str, list[Event]] = field(default_factory=dict)
    moved: list[str] = field(default_factory=list)


class Log:
    """One ledger's log on one connection. Not to be shared between threads."""

    def __init__(self, connection: Connection, source: Source, hooks: Hooks | None = None) -> None:
        self.connection = connection
        self.source = source
        self.hooks = hooks or Hooks()
        self._states: dict[str, State] = {}
        self._head: int | None = None  # every state in `_states` is at least as new as this position
        self._still = False  # nothing that is read can change now
        self._rows: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}  # what was asked at `_rows_at`
        self._rows_at = -1
        self._id: str | None = None

    # reading

    def read(self, stream: str, after: int = 0) -> list[Event]:
        """The events of one stream after a version, in order."""
        return [Event._make(row) for row in self.connection.query(_STREAM, {"stream": stream, "after": after})]

    def read_all(self, after: int = 0, until: int | None = None) -> Iterator[Event]:
        """All events in position order after a position; `until` is the last `recorded_at` wanted."""
        limit = "" if until is None else " AND recorded_at <= :until"
        rows = self.connection.stream(
            f"{SELECT} WHERE position > :after{limit} ORDER BY position", {"after": after, "until": until}
        )
        return map(Event._make, rows)

    def at_once(self) -> AbstractContextManager[None]:
        """For all that is read within the log is asked for its news once, at its beginning. For reads that wait for
        nothing; nothing is appended within."""
        return _AtOnce(self)

    def head(self) -> int:
        """The position of the newest event; 0 where there is none. The states that were read are brought up to it."""
        if self._still and self._head is not None:
            return self._head
        newest = self.connection.query(_HEAD)[0][0] or 0
        if self._head is None:
            self._head = newest
        elif newest > self._head:
            self._catch_up(self._head)
        return self._head

    def _catch_up(self, after: int) -> None:
        news: dict[str, list[Event]] = {}
        for row in self.connection.query(_NEWS, {"after": after}):
            event = Event._make(row)
            self._head = event.position
            news.setdefault(event.stream, []).append(event)
        for stream in news.keys() & self._states.keys():
            state = self._states[stream]
            if later := [event for event in news[stream] if event.version > state.version]:
                self._states[stream] = fold(later, state)

    def asked(self, sql: str, params: Params = {}) -> list[tuple[Any, ...]]:  # noqa: B006 - never changed
        """The rows of a query on the read models. They change with the log alone, so it is asked again once that has
        moved on. Not for a write transaction."""
        head, key = self.head(), (sql, *params.values())
        if head != self._rows_at:
            self._rows, self._rows_at = {}, head
        rows = self._rows.get(key)
        if rows is None:
            rows = self._rows[key] = self.connection.query(sql, params)
        return rows

    def state(self, stream: str) -> State:
        """The stream's state now. It belongs to the log: read it, do not change it."""
        self.head()
        return self._state(stream)

    def _state(self, stream: str) -> State:
        state = self._states.get(stream)
        if state is None:
            state = self._states[stream] = new_state(stream)
            for event in self.read(stream):
                advance(state, event)
        return state

    def known_version(self, stream: str) -> int:
        """The version of the stream as this log last read or wrote it; another process may have moved it on."""
        state = self._states.get(stream)
        return state.version if state is not None else 0

    def run(self, stream: str) -> Run:
        """A run's state now."""
        state = self.state(stream)
        assert isinstance(state, Run), stream
        return state

    def policy(self) -> Policy:
        """The policy in force, as the log has it; the defaults where it has none."""
        return policy_of(self.connection.query(POLICY))

    def ledger_id(self) -> str:
        """The id that was born with the database; "" before its first event."""
        if not self._id:
            rows = self.connection.query("SELECT ledger FROM policies ORDER BY position LIMIT 1")
            self._id = str(rows[0][0]) if rows else ""
        return self._id

    def active_streams(self) -> list[str]:
        """The streams of all active runs, in order."""
        return [row[0] for row in self.asked(_ACTIVE)]

    # appending

    def append(
        self, stream: str, expected_version: int, drafts: Sequence[Draft], only_if: Callable[[], object] | None = None
    ) -> list[Event]:
        """Append `drafts` to `stream`, which must be at `expected_version`.

        `only_if` is called in the write transaction: what it reads of other streams cannot change before the events
        stand, and nothing is appended where it raises.

        All of them or none; durable on return. An event whose `event_id` is in the log already with the same content
        is a success that changes nothing. Raises Conflict where the stream is elsewhere, EventError for what the
        vocabulary does not allow or an id that bears other content, StorageError where the disk refuses.
        """
        prepared = self._prepare(stream, drafts)
        if not prepared:
            return []
        self.hooks.before_append()
        with self.connection.write():
            done = self._already(stream, prepared)
            if done is not None:
                return done
            if only_if is not None:
                only_if()
            stored, states = self._store([(stream, expected_version, prepared)], strict=True)
        self._stored(stored, states)
        events = stored.get(stream, [])
        self.hooks.after_commit(events)
        return events

    def append_seen(self, batches: Iterable[tuple[str, int, Sequence[Draft]]]) -> Seen:
        """Append facts of many streams in one transaction: (stream, expected version, drafts) each.

        A stream that moved on is left out and told in `moved`; the others stand. Raises EventError for a decision.
        """
        prepared = []
        for stream, version, drafts in batches:
            wrong = next((d.type for d in drafts if not d.fact), None)
            if wrong:
                raise EventError(f"append_seen takes facts; {wrong} is a decision")
            if drafts:
                prepared.append((stream, version, self._prepare(stream, drafts)))
        if not prepared:
            return Seen()
        self.hooks.before_append()
        with self.connection.write():
            stored, states = self._store(prepared, strict=False)
        self._stored(stored, states)
        for events in stored.values():
            self.hooks.after_commit(events)
        return Seen(stored, [stream for stream, _, _ in prepared if stream not in stored])

    def append_facts(self, stream: str, drafts: Callable[[State], Sequence[Draft]]) -> list[Event]:
        """Append the facts that `drafts` makes of the stream's state, on whatever version it is at.

        `drafts` is asked again after each Conflict, so that what another has recorded by then is left out.
        """
        while True:
            state = self.state(stream)
            try:
                return self.append(stream, state.version, drafts(state))
            except Conflict:
                continue

    def _prepare(self, stream: str, drafts: Sequence[Draft]) -> list[dict[str, Any]]:
        from ledger.payloads import validate

        return [
            {
                "stream": stream,
                "event_id": draft.event_id or uuid7(self.source),
                "type": draft.type,
                "schema": KINDS[draft.type].schema if draft.type in KINDS else 1,
                "occurred_at": draft.occurred_at,
                "actor": draft.actor,
                "correlation_id": draft.correlation_id,
                "attempt": draft.attempt,
                "machine": draft.machine,
                "payload": canonical.dumps(validate(draft)),
                "given": draft.event_id is not None,
            }
            for draft in drafts
        ]

    def _already(self, stream: str, prepared: Sequence[Mapping[str, Any]]) -> list[Event] | None:
        """The stored events, if these were appended before."""
        given = [row for row in prepared if row["given"]]
        found: list[Event] = []
        for row in given:
            for stored in self.connection.query(f"{SELECT} WHERE event_id = :id", {"id": row["event_id"]}):
                event = Event._make(stored)
                same = ("type", "payload", "attempt", "machine", "occurred_at", "correlation_id")
                if event.stream != stream or any(getattr(event, name) != row[name] for name in same):
                    raise EventError(
                        f"event {event.event_id} is in the log already (position {event.position}) with other content"
                    )
                found.append(event)
        if found and len(found) != len(prepared):
            raise EventError(f"of the {len(prepared)} events for {stream}, {len(found)} are in the log already")
        return found or None

    def _store(
        self, batches: Sequence[tuple[str, int, Sequence[Mapping[str, Any]]]], *, strict: bool
    ) -> tuple[dict[str, list[Event]], dict[str, State]]:
        last = self.connection.query("SELECT position, recorded_at FROM events ORDER BY position DESC LIMIT 1")
        position, recorded_at = last[0] if last else (0, 0)
        first = position + 1
        recorded_at = max(recorded_at, self.source.now())
        stored: dict[str, list[Event]] = {}
        states: dict[str, State] = {}
        rows: Rows = {}
        self.head()
        for stream, expected, prepared in batches:
            state = states.get(stream) or self._state(stream)
            if state.version != expected:
                if strict:
                    raise Conflict(stream, expected, state.version)
                continue
            events = []
            head, version = state.hash, state.version
            for row in prepared:
                position, version = position + 1, version + 1
                event = _event(row, position, version, recorded_at, head)
                head = event.hash
                events.append(event)
            was = before(state)
            state = fold(events, state)
            join(rows, touched(state, was, events))
            stored[stream] = events
            states[stream] = state
        self._insert([event for events in stored.values() for event in events], rows, first)
        return stored, states

    def _stored(self, stored: Mapping[str, Sequence[Event]], states: Mapping[str, State]) -> None:
        """What was committed is known: it was stored right behind what `_store` had asked for."""
        self._states.update(states)
        self._head = max((events[-1].position for events in stored.values() if events), default=self._head)

    def _insert(self, events: Sequence[Event], rows: Rows, first: int) -> None:
        from ledger.invariants.conduct import judge, worth_asking
        from ledger.log import statements

        self.connection.execute_many(statements.insert_event(), events)
        write_rows(self.connection, rows)
        asked = worth_asking(rows)
        if asked:
            judged = judge(self.connection, first, self.policy(), only=asked)
            if judged:
                self.connection.execute_many(statements.upsert("breaches"), judged)


class _AtOnce(AbstractContextManager[None]):
    """See `Log.at_once`."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._outer = log._still

    def __enter__(self) -> None:
        self._log.head()
        self._log._still = True

    def __exit__(self, *_: object) -> None:
        self._log._still = self._outer


def policy_of(rows: Sequence[tuple[Any, ...]]) -> Policy:
    """The policy that these rows of `policies` record, the first of them; the defaults where there is none."""
    return _policy(rows[0][0]) if rows else Policy()


@lru_cache(maxsize=64)
def _policy(text: str) -> Policy:
    return lenient(json.loads(text))


def _event(row: Mapping[str, Any], position: int, version: int, recorded_at: int, head: str) -> Event:
    stored = (
        position,
        row["stream"],
        version,
        row["event_id"],
        row["type"],
        row["schema"],
        row["occurred_at"],
        recorded_at,
        row["actor"],
        row["correlation_id"],
        row["attempt"],
        row["machine"],
        row["payload"],
    )
    return Event(*stored, canonical.chain(head, stored))


def write_rows(connection: Connection, rows: Rows) -> None:
    """Set the read models' rows as given."""
    from ledger.log import statements

    for table, group in rows.items():
        connection.execute_many(statements.upsert(table), group.values())


def replay(connection: Connection, events: Iterable[Event]) -> dict[str, State]:
    """Fold `events` into states and write their rows into `connection`'s read models. Conduct is judged by the caller.

    Rows of an earlier generation stay, as they do in the log's own appends.
    """
    states: dict[str, State] = {}
    for event in events:
        state = states.get(event.stream)
        if state is None:
            state = states[event.stream] = new_state(event.stream)
        advance(state, event)
    rows: Rows = {}
    for state in states.values():
        join(rows, rows_of(state))
    write_rows(connection, rows)
    return states
