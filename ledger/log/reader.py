"""The log as one process reads it: states that are folded once and kept up, and answers that hold until it grows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

from ledger.events import COLUMNS, Event, from_row
from ledger.log.connection import Connection, Params
from ledger.log.tail import Tail
from ledger.policy import Policy, lenient
from ledger.source import Source, SystemSource
from ledger.state.fold import advance, fold, new_state
from ledger.state.model import Run, State

SELECT = f"SELECT {', '.join(COLUMNS)} FROM events"
_STREAM = f"{SELECT} WHERE stream = :stream AND version > :after ORDER BY version"
_HEAD = "SELECT max(position) FROM events"
_NEWS = f"{SELECT} WHERE position > :after ORDER BY position"
_ACTIVE = "SELECT stream FROM runs WHERE active = 1 ORDER BY stream"
POLICY = "SELECT policy FROM policies ORDER BY position DESC LIMIT 1"
_JITTER = 50_000  # microseconds


class Reader:
    """One ledger's log on one connection, for reading. Not to be shared between threads."""

    def __init__(self, connection: Connection, source: Source) -> None:
        self.connection = connection
        self.source = source
        self._states: dict[str, State] = {}
        self._head: int | None = None  # every state in `_states` is at least as new as this position
        self._tail: Tail | None = None  # where events may appear behind others
        self._still = False  # nothing that is read can change now
        self._rows: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}  # what was asked at `_rows_at`
        self._rows_at = -1
        self._id: str | None = None

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


class _AtOnce(AbstractContextManager[None]):
    """See `Reader.at_once`. A class, since it is entered some hundred times a tick and a generator costs thrice."""

    def __init__(self, log: Reader) -> None:
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
