"""The log: append and read.

`append` is all or nothing, in one short transaction, durable when it returns. In that transaction stand the events,
the read models' rows that they change, and the judgement of what was decided. A cloud is never called inside it.

When to record what: the intent (`ProvisionRequested`, `LaunchRequested`, `TeardownRequested`) before the call, alone;
the outcome after it, as a fact. A wrong expected version is `Conflict`: read again; decide a decision again; append a
fact as it is, for it is true on any version.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress, count
from operator import ne
from typing import Any

from ledger import canonical
from ledger.errors import Conflict, EventError, StorageError, Taken, Unsure
from ledger.events import COLUMNS, KINDS, LEDGER_STREAM, Draft, Event, from_row, read_many
from ledger.log.connection import Connection, Params
from ledger.log.tail import Tail
from ledger.policy import Policy, lenient
from ledger.projections.tables import Row, Rows, before, join, rows_of, touched
from ledger.source import Source, SystemSource, uuid7
from ledger.state.fold import advance, fold, new_state
from ledger.state.model import Run, State

SELECT = f"SELECT {', '.join(COLUMNS)} FROM events"
_STREAM = f"{SELECT} WHERE stream = :stream AND version > :after ORDER BY version"
_HEAD = "SELECT max(position) FROM events"
_NEWS = f"{SELECT} WHERE position > :after ORDER BY position"
_ACTIVE = "SELECT stream FROM runs WHERE active = 1 ORDER BY stream"
POLICY = "SELECT policy FROM policies ORDER BY position DESC LIMIT 1"
_TRIES = 20
_JITTER = 50_000  # microseconds
# How long a server is waited for that took the answer to a commit with it: a restart takes seconds.
_ASKS, _ASK_SECONDS = 20, 0.5


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
        self._tail: Tail | None = None  # where events may appear behind others
        self._still = False  # nothing that is read can change now
        self._rows: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}  # what was asked at `_rows_at`
        self._rows_at = -1
        self._wrote: dict[str, int] = {}  # stream → the version whose rows this log itself has written
        self._id: str | None = None

    # reading

    def read(self, stream: str, after: int = 0) -> list[Event]:
        """The events of one stream after a version, in order."""
        return [Event._make(row) for row in self.connection.query(_STREAM, {"stream": stream, "after": after})]

    def read_all(self, after: int = 0, until: int | None = None) -> Iterator[Event]:
        """All events that stand now, in position order after a position; `until` is the last `recorded_at` wanted.

        To go on later from where one was, see `follow`.
        """
        return map(from_row, self.rows(after, until))

    def rows(self, after: int = 0, until: int | None = None) -> Iterator[tuple[Any, ...]]:
        """As `read_all`, the bare rows."""
        limit = "" if until is None else " AND recorded_at <= :until"
        return self.connection.stream(
            f"{SELECT} WHERE position > :after{limit} ORDER BY position", {"after": after, "until": until}
        )

    def follow(self, after: int = 0) -> Iterator[Event]:
        """The events after a position in front of which none can appear any more, in position order.

        One who goes on from the last that it was told misses none, whoever writes beside it. What `read_all` shows
        may be told here a moment later: a transaction in front of it is still under way.
        """
        rows = self.connection.stream(
            f"{SELECT} WHERE position > :after AND {self.connection.settled} ORDER BY position", {"after": after}
        )
        return map(Event._make, rows)

    def at_once(self) -> AbstractContextManager[None]:
        """For all that is read within the log is asked for its news once, at its beginning. For reads that wait for
        nothing; nothing is appended within."""
        return _AtOnce(self)

    def head(self) -> int:
        """A number that grows whenever the log has grown; 0 where it is empty. The states that were read are brought up
        to it. It is the position of the newest event, where none can appear behind another."""
        if self._still and self._head is not None:
            return self._head
        if self.connection.optimistic:
            return self._late_head()
        newest = self.connection.query(_HEAD)[0][0] or 0
        if self._head is None:
            self._head = newest
        elif newest > self._head:
            self._catch_up(self._head)
        return self._head

    def _catch_up(self, after: int) -> None:
        events = [Event._make(row) for row in self.connection.query(_NEWS, {"after": after})]
        self._head = events[-1].position if events else after
        self._take_in(events)

    def _late_head(self) -> int:
        if self._tail is None:
            self._tail = Tail(self.connection)
            self._head = max([self._tail.settled, *self._tail.seen])
            return self._head
        assert self._head is not None
        events = self._tail.news(self.connection)
        self._head += len(events)
        self._take_in(events)
        return self._head

    def _take_in(self, events: Sequence[Event]) -> None:
        news: dict[str, list[Event]] = {}
        for event in events:
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

    def tail(self) -> Tail:
        """A place in the log, from which its news are told; all that stands now is known there."""
        return Tail(self.connection)

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

    def keep_time(self) -> None:
        """Let the process go by the server's clock, where the database has one and the time is real."""
        if not isinstance(self.source, SystemSource):
            return
        before = self.source.now()
        server = self.connection.clock()
        if server is not None:
            off = server - (before + self.source.now()) // 2
            # What a round trip may make of it is no reason to let time jump.
            self.source.ahead += off if abs(off) > _JITTER else 0

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
        done: list[Event] | None = None
        # What others are judged by is changed while nobody else appends: a rebuild then judges as they did.
        alone = only_if is not None or stream == LEDGER_STREAM

        def write() -> dict[str, list[Event]]:
            nonlocal done
            with self.connection.write(alone=alone):
                done = self._already(stream, prepared)
                if done is not None:
                    return {}
                if only_if is not None:
                    only_if()
                stored, states = self._store([(stream, expected_version, prepared)], strict=True)
            self._stored(stored, states)
            return stored

        events = self._written(write, prepared).get(stream, [])
        if done is not None:
            return done
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

        def write() -> dict[str, list[Event]]:
            with self.connection.write():
                stored, states = self._store(prepared, strict=False)
            self._stored(stored, states)
            return stored

        stored = self._written(write, [row for _, _, rows in prepared for row in rows])
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

    def _written(
        self, write: Callable[[], dict[str, list[Event]]], rows: Sequence[Mapping[str, Any]]
    ) -> dict[str, list[Event]]:
        """What `write` stored of `rows`. Where another process wrote first, it is asked again, with what stands then.

        Where the answer to the commit was lost, the log is asked: the events bear their ids.
        """
        for left in reversed(range(_TRIES)):
            try:
                return write()
            except Taken as taken:
                self._forget()
                if not left:
                    raise StorageError(f"{taken}, {_TRIES} times; try again") from taken
            except Unsure as unsure:
                self._forget()
                found = self._standing(rows, unsure)
                if found:
                    return found
        raise AssertionError

    def _forget(self) -> None:
        self._states.clear()
        self._wrote.clear()

    def _standing(self, rows: Sequence[Mapping[str, Any]], unsure: Unsure) -> dict[str, list[Event]]:
        """Those of `rows` that stand. Raises StorageError where the database cannot be asked."""
        for left in reversed(range(_ASKS)):
            try:
                found: dict[str, list[Event]] = {}
                # Alone: once the lost one has ended, one way or the other.
                with self.connection.write(alone=True):
                    for row in rows:
                        for stored in self.connection.query(f"{SELECT} WHERE event_id = :id", {"id": row["event_id"]}):
                            found.setdefault(row["stream"], []).append(Event._make(stored))
                return found
            except StorageError as error:
                if not left:
                    raise StorageError(
                        f"{unsure}; whether it was recorded is not known: read before you go on"
                    ) from error
                time.sleep(_ASK_SECONDS)
        raise AssertionError

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
        if self.connection.optimistic:  # in one order, so that of two writers of the same streams one waits, not both
            batches = sorted(batches, key=lambda batch: batch[0])
        if not self.connection.optimistic:
            self.head()
        states: dict[str, State] = {}
        standing = []
        for batch in batches:
            stream, expected, prepared = batch
            states[stream] = state = self._state_at(stream, expected)
            if state.version == expected:
                standing.append(batch)
            elif strict:
                raise Conflict(stream, expected, state.version)
        n = sum(len(prepared) for _, _, prepared in standing)
        if not n:
            return {}, {}
        first, recorded_at = self.connection.take(n, self._now())
        position = first - 1
        stored: dict[str, list[Event]] = {}
        old: Rows = {}
        rows: Rows = {}
        for stream, _, prepared in standing:
            state = states[stream]
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
        self._insert([event for events in stored.values() for event in events], old, rows)
        return stored, states

    def _state_at(self, stream: str, expected: int) -> State:
        """The stream's state: as it is known where that is the version expected, and an insert would tell otherwise."""
        known = self._states.get(stream)
        if self.connection.optimistic and (known is None or known.version != expected):
            # Read alone: what a transaction of others has done to the rest is no matter here.
            state = self._states[stream] = fold(
                self.read(stream, known.version if known else 0), known or new_state(stream)
            )
            return state
        return self._state(stream)

    def _now(self) -> int | None:
        """The moment of recording: that of a rehearsal's clock; in real use the database says it."""
        return None if isinstance(self.source, SystemSource) else self.source.now()

    def _stored(self, stored: Mapping[str, Sequence[Event]], states: Mapping[str, State]) -> None:
        """What was committed is known: where one writes at a time, right behind what `_store` had asked for."""
        self._states.update(states)
        self._wrote.update((stream, states[stream].version) for stream in stored)
        if self.connection.optimistic:
            self._head = None if self._head is None else self._head + 1
        else:
            self._head = max((events[-1].position for events in stored.values() if events), default=self._head)

    def _insert(self, events: Sequence[Event], old: Rows, rows: Rows) -> None:
        from ledger.invariants.conduct import judge, worth_asking
        from ledger.log import statements

        dialect = self.connection.dialect
        self.connection.execute_many(statements.insert_event(dialect), events)
        write_changes(self.connection, old, rows)
        asked = worth_asking(rows)
        if asked:
            judged = judge(self.connection, events[0].position, self.policy(), events[-1].position, only=asked)
            if judged:
                self.connection.execute_many(statements.upsert("breaches", dialect), judged)


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
        connection.execute_many(statements.upsert(table, connection.dialect), group.values())


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
            connection.execute_many(statements.upsert(table, connection.dialect), added)
        for places, values in changed.items():
            connection.execute_many(statements.update(table, places, connection.dialect), values)


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
