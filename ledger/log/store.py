"""The log: append and read.

`append` is all or nothing, in one short transaction, durable when it returns. In that transaction stand the events,
the read models' rows that they change, and the judgement of what was decided. A cloud is never called inside it.

When to record what: the intent (`ProvisionRequested`, `LaunchRequested`, `TeardownRequested`) before the call, alone;
the outcome after it, as a fact. A wrong expected version is `Conflict`: read again; decide a decision again; append a
fact as it is, for it is true on any version.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ledger import canonical
from ledger.errors import Conflict, EventError, StorageError, Taken, Unsure
from ledger.events import KINDS, LEDGER_STREAM, Draft, Event, read_many
from ledger.log.connection import Connection
from ledger.log.reader import SELECT, Reader
from ledger.log.rows import write_changes
from ledger.projections.tables import Rows, before, join, touched
from ledger.source import Source, SystemSource, uuid7
from ledger.state.fold import fold, new_state
from ledger.state.model import State

_TRIES = 20
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


class Log(Reader):
    """One ledger's log on one connection. Not to be shared between threads."""

    def __init__(self, connection: Connection, source: Source, hooks: Hooks | None = None) -> None:
        super().__init__(connection, source)
        self.hooks = hooks or Hooks()
        self._wrote: dict[str, int] = {}  # stream → the version whose rows this log itself has written

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
                if not left:
                    raise StorageError(f"{unsure}, {_TRIES} times; nothing was recorded; try again") from unsure
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
        else:
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
