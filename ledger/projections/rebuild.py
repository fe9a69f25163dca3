"""The read models made anew from the log, in memory: for `--as-of`, for `ledger verify`, for what is past."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise

from ledger.events import Event
from ledger.invariants.conduct import END, judge
from ledger.log import statements
from ledger.log.connection import SCHEMA, Connection
from ledger.log.reader import Reader
from ledger.log.rows import replay
from ledger.log.sqlite import SqliteConnection
from ledger.policy import Policy, lenient
from ledger.projections.tables import KEYS, Row

_BATCH = 5000
_MADE = frozenset(KEYS) | {"breaches"}


def in_memory() -> SqliteConnection:
    """An empty ledger in memory, every table of the schema in it."""
    connection = SqliteConnection(":memory:")
    connection.raw.deserialize(_empty())
    return connection


@lru_cache(maxsize=1)
def _empty() -> bytes:
    connection = SqliteConnection(":memory:")
    for statement in (*(text for _, text in _ddl()), f"PRAGMA user_version = {SCHEMA}"):
        connection.execute(statement)
    made: bytes = connection.raw.serialize()
    connection.close()
    return made


@lru_cache(maxsize=1)
def _ddl() -> tuple[tuple[str, str], ...]:
    """(table, statement) for every table and index of the schema."""
    from sqlalchemy.dialects import sqlite
    from sqlalchemy.schema import CreateIndex, CreateTable

    from ledger.log.schema import metadata

    dialect = sqlite.dialect()
    made: list[tuple[str, str]] = []
    for table in metadata.sorted_tables:
        made.append((table.name, str(CreateTable(table).compile(dialect=dialect)).strip()))
        made += [(table.name, str(CreateIndex(index).compile(dialect=dialect)).strip()) for index in table.indexes]
    return tuple(made)


def rebuild(events: Iterable[Event]) -> SqliteConnection:
    """A ledger in memory that holds `events` and the read models that follow from them. The caller closes it.

    What was decided is judged under the policy that was in force when it was recorded.
    """
    connection = in_memory()
    try:
        with connection.write(), uncollected():
            replay(connection, _kept(connection, events))
            judge_again(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def rebuild_beside(log: Reader, until: int | None = None) -> SqliteConnection:
    """As `rebuild` of the log's events up to a moment. The caller closes it.

    The events of a file stay where they are: the read models are temporary tables in front of the file's own.
    """
    if not isinstance(log.connection, SqliteConnection) or log.connection.where == ":memory:":
        with log.connection.read():
            return rebuild(log.read_all(until=until))
    connection = SqliteConnection(log.connection.where, reads=True)
    try:
        connection.execute("PRAGMA temp_store=MEMORY")
        connection.execute("BEGIN")  # to the end: whatever is asked of it is asked of the same log
        for table, statement in _ddl():
            if table in _MADE:
                hidden = statement.replace("CREATE TABLE ", "CREATE TEMPORARY TABLE ", 1)
                connection.execute(hidden.replace("CREATE INDEX ", "CREATE INDEX temp.", 1))
        if until is not None:
            then = f"recorded_at <= {int(until)}"
            connection.execute(f"CREATE TEMPORARY VIEW events AS SELECT * FROM main.events WHERE {then}")
        with uncollected():
            replay(connection, Reader(connection, log.source).read_all())
            judge_again(connection)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def uncollected() -> Iterator[None]:
    """Where millions of objects are made that all stay, looking for those that do not is lost time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


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
    connection.execute_many(statements.upsert("breaches"), judged(connection, first))


def judged(connection: Connection, first: int = 1) -> list[Row]:
    """The rows of `breaches` of the decisions from position `first`, each judged under the policy of its time."""
    recorded = connection.query("SELECT position, policy FROM policies ORDER BY position")
    spans: list[tuple[int, Policy]] = [
        (0, Policy()),
        *((at, lenient(json.loads(text))) for at, text in recorded),
        (END, Policy()),
    ]
    rows: list[Row] = []
    for (begin, policy), (end, _) in pairwise(spans):
        if end > first:
            rows += judge(connection, max(begin, first), policy, end - 1)
    return rows
