"""Writing the read models' rows: all of them, what differs, or what a whole log comes to."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress, count, islice
from operator import ne
from typing import Final

from ledger import canonical
from ledger.events import Event
from ledger.log.connection import Connection
from ledger.log.reader import Reader
from ledger.projections.tables import Row, Rows, join, rows_of
from ledger.state.fold import advance, new_state
from ledger.state.model import State

_CHUNK: Final = 20_000  # streams whose rows are made and written together


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


def keep_readings(log: Reader, readings: Iterable[Row]) -> None:
    """Set rows of `vitals`, (name, microseconds UTC, text) each: what is no evidence, and no event."""
    from ledger.log import statements

    with log.connection.write():
        log.connection.execute_many(statements.upsert("vitals", log.connection.dialect), readings)


def replay(connection: Connection, events: Iterable[Event]) -> None:
    """Fold `events` and write the rows that follow into `connection`'s read models, which are empty.

    Conduct is judged by the caller. Rows of an earlier generation stay, as they do in the log's own appends.
    """
    from ledger.log import statements

    states: dict[str, State] = {}
    get, loads = states.get, canonical.loads()
    for event in events:
        state = get(event.stream)
        if state is None:
            state = states[event.stream] = new_state(event.stream)
        try:
            payload = loads(event.payload)
        except ValueError:
            payload = None  # the fold notes it
        advance(state, event, payload)
    while states:
        rows: Rows = {}
        for stream in list(islice(states, _CHUNK)):
            join(rows, rows_of(states.pop(stream)))
        for table, group in rows.items():
            connection.execute_many(statements.insert(table, connection.dialect), group.values())
