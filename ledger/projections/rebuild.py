"""The read models made anew from the log, in memory: for `--as-of`, for `ledger verify`, for what is past."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from ledger.events import Event
from ledger.invariants.conduct import END, judge
from ledger.log import statements
from ledger.log.connection import SCHEMA, Connection
from ledger.log.rows import replay
from ledger.log.sqlite import SqliteConnection
from ledger.policy import Policy, lenient

_BATCH = 5000


def in_memory() -> SqliteConnection:
    """An empty ledger in memory, every table of the schema in it."""
    connection = SqliteConnection(":memory:")
    connection.raw.deserialize(_empty())
    return connection


@lru_cache(maxsize=1)
def _empty() -> bytes:
    connection = SqliteConnection(":memory:")
    for statement in (*_ddl(), f"PRAGMA user_version = {SCHEMA}"):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {SCHEMA}")
    made: bytes = connection.raw.serialize()
    connection.close()
    return made


def _ddl() -> tuple[str, ...]:
    from sqlalchemy.dialects import sqlite
    from sqlalchemy.schema import CreateIndex, CreateTable

    from ledger.log.schema import metadata

    dialect = sqlite.dialect()
    made: list[str] = []
    for table in metadata.sorted_tables:
        made.append(str(CreateTable(table).compile(dialect=dialect)))
        made += [str(CreateIndex(index).compile(dialect=dialect)) for index in table.indexes]
    return tuple(made)


def rebuild(events: Iterable[Event]) -> SqliteConnection:
    """A ledger in memory that holds `events` and the read models that follow from them. The caller closes it.

    What was decided is judged under the policy that was in force when it was recorded.
    """
    connection = in_memory()
    try:
        replay(connection, _kept(connection, events))
        judge_again(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _kept(connection: Connection, events: Iterable[Event]) -> Iterator[Event]:
    """The same events, each also inserted into the ledger in memory."""
    batch: list[Event] = []
    for event in events:
        batch.append(event)
        if len(batch) >= _BATCH:
            keep(connection, batch)
            batch = []
        yield event
    keep(connection, batch)


def keep(connection: Connection, events: Sequence[Event]) -> None:
    """Insert events, as they are stored."""
    connection.execute_many(statements.insert_event(), events)


def judge_again(connection: Connection, first: int = 1) -> None:
    """Judge every decision from position `first` under the policy of its time; write the rows of `breaches`."""
    recorded = connection.query("SELECT position, policy FROM policies ORDER BY position")
    spans: list[tuple[int, Policy]] = [
        (0, Policy()),
        *((at, lenient(json.loads(text))) for at, text in recorded),
        (END, Policy()),
    ]
    for (begin, policy), (end, _) in pairwise(spans):
        if end > first:
            rows = judge(connection, max(begin, first), policy, end - 1)
            connection.execute_many(statements.upsert("breaches"), rows)
