"""Writing the read models' rows: all of them, what differs, or what a whole log comes to."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress, count
from operator import ne

from ledger.events import Event
from ledger.log.connection import Connection
from ledger.projections.tables import Row, Rows, join, rows_of
from ledger.state.fold import advance, new_state
from ledger.state.model import State


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
