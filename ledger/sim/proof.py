"""What the universal truths ask of a ledger's database: whether its read models are those that the log gives."""

from __future__ import annotations

from ledger.log.connection import Connection
from ledger.log.store import Log
from ledger.projections.rebuild import rebuild


def differences(log: Log) -> list[str]:
    """The tables of the read models in which a rebuild from the log gives other rows."""
    from ledger.log.schema import metadata

    events = list(log.read_all())
    made = rebuild(events)
    try:
        tables = [table.name for table in metadata.sorted_tables]
        return [name for name in tables if _rows(made, name) != _rows(log.connection, name)]
    finally:
        made.close()


def _rows(connection: Connection, table: str) -> list[str]:
    return sorted(map(repr, connection.query(f"SELECT * FROM {table}")))
