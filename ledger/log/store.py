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
from dataclasses import dataclass, field
from itertools import compress, count, islice
from operator import ne
from typing import Any

from ledger import canonical
from ledger.errors import Conflict, EventError
from ledger.events import COLUMNS, KINDS, Draft, Event, from_row, read_many
from ledger.log.connection import Connection
from ledger.policy import Policy, lenient
from ledger.projections.tables import Row, Rows, before, join, rows_of, touched
from ledger.source import Source, uuid7
from ledger.state.fold import advance, fold, new_state
from ledger.state.model import Run, State

SELECT = f"SELECT {', '.join(COLUMNS)} FROM events"

_CHUNK = 20_000  # streams whose rows are made and written together


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
        self._wrote: dict[str, int] = {}  # stream → the version whose rows this log itself has written
        self._id: str | None = None

    # reading

    def read(self, stream: str, after: int = 0) -> list[Event]:
        """The events of one stream after a version, in order."""
        rows = self.connection.query(
            f"{SELECT} WHERE stream = :stream AND version > :after ORDER BY version",
            {"stream": stream, "after": after},
        )
        return [Event._make(row) for row in rows]

    def read_all(self, after: int = 0, until: int | None = None) -> Iterator[Event]:
        """All events in position order after a position; `until` is the last `recorded_at` wanted."""
        return map(from_row, self.rows(after, until))

    def rows(self, after: int = 0, until: int | None = None) -> Iterator[tuple[Any, ...]]:
        """As `read_all`, the bare rows."""
        limit = "" if until is None else " AND recorded_at <= :until"
        return self.connection.stream(
            f"{SELECT} WHERE position > :after{limit} ORDER BY position", {"after": after, "until": until}
        )

    def state(self, stream: str) -> State:
        """The stream's state now. It belongs to the log: read it, do not change it."""
        state = self._states.get(stream)
        if state is None:
            state = new_state(stream)
        news = self.read(stream, state.version)
        if news or stream not in self._states:
            state = fold(news, state)
            self._states[stream] = state
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
        rows = self.connection.query("SELECT policy FROM policies ORDER BY position DESC LIMIT 1")
        return lenient(json.loads(rows[0][0])) if rows else Policy()

    def ledger_id(self) -> str:
        """The id that was born with the database; "" before its first event."""
        if not self._id:
            rows = self.connection.query("SELECT ledger FROM policies ORDER BY position LIMIT 1")
            self._id = str(rows[0][0]) if rows else ""
        return self._id

    def active_streams(self) -> list[str]:
        """The streams of all active runs, in order."""
        return [row[0] for row in self.connection.query("SELECT stream FROM runs WHERE active = 1 ORDER BY stream")]

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
        self._stand(states)
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
        self._stand(states)
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

        read_many()
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
        old: Rows = {}
        rows: Rows = {}
        for stream, expected, prepared in batches:
            state = states.get(stream) or self.state(stream)
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
            was, found = before(state), state
            state = fold(events, state)
            if self._wrote.get(stream) == found.version:
                join(old, touched(found, was, events))
            join(rows, touched(state, was, events))
            stored[stream] = events
            states[stream] = state
        self._insert([event for events in stored.values() for event in events], old, rows, first)
        return stored, states

    def _stand(self, states: Mapping[str, State]) -> None:
        """What was stored is committed."""
        self._states.update(states)
        self._wrote.update((stream, state.version) for stream, state in states.items())

    def _insert(self, events: Sequence[Event], old: Rows, rows: Rows, first: int) -> None:
        from ledger.invariants.conduct import judge, worth_asking
        from ledger.log import statements

        self.connection.execute_many(statements.insert_event(), events)
        write_changes(self.connection, old, rows)
        asked = worth_asking(rows)
        if asked:
            judged = judge(self.connection, first, self.policy(), only=asked)
            if judged:
                self.connection.execute_many(statements.upsert("breaches"), judged)


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


def write_changes(connection: Connection, old: Rows, rows: Rows) -> None:
    """As `write_rows`, where `old` are the rows of the same keys as they stand: only what differs is written.

    An index that no changed column is in is left alone, which is what most of a row's cost is.
    """
    from ledger.log import statements

    for table, group in rows.items():
        known = old.get(table, {})
        added: list[Row] = []
        changed: dict[tuple[int, ...], list[Row]] = {}
        for key, row in group.items():
            before_ = known.get(key)
            if before_ is None:
                added.append(row)
            elif before_ != row:
                places = tuple(compress(count(), map(ne, row, before_)))
                changed.setdefault(places, []).append((*[row[n] for n in places], *key))
        if added:
            connection.execute_many(statements.upsert(table), added)
        for places, values in changed.items():
            connection.execute_many(statements.update(table, places), values)


def replay(connection: Connection, events: Iterable[Event]) -> None:
    """Fold `events` and write the rows that follow into `connection`'s read models, which are empty.

    Conduct is judged by the caller. Rows of an earlier generation stay, as they do in the log's own appends.
    """
    from ledger.log import statements

    states = fold_all((event, None) for event in events)
    while states:
        rows: Rows = {}
        for stream in list(islice(states, _CHUNK)):
            join(rows, rows_of(states.pop(stream)))
        for table, group in rows.items():
            connection.execute_many(statements.insert(table), group.values())


def fold_all(events: Iterable[tuple[Event, Any]]) -> dict[str, State]:
    """The state of every stream: `events` in order, each with its payload where it was read already."""
    states: dict[str, State] = {}
    get, loads = states.get, canonical.loads()
    for event, payload in events:
        state = get(event.stream)
        if state is None:
            state = states[event.stream] = new_state(event.stream)
        if payload is None:
            try:
                payload = loads(event.payload)
            except ValueError:
                pass  # the fold notes it
        advance(state, event, payload)
    return states
