"""What the universal truths ask of a ledger's database: whether its read models are those that the log gives."""

from __future__ import annotations

from ledger.log.connection import Connection
from ledger.log.store import Log
from ledger.projections.rebuild import rebuild


def differences(log: Log) -> list[str]:
    """The tables of the read models in which a rebuild from the log gives other rows."""
    from ledger.log.schema import READ_MODELS

    events = list(log.read_all())
    made = rebuild(events)
    try:
        # Not the vitals: they are no evidence, and no event says them.
        names = [table.name for table in READ_MODELS]
        return [name for name in names if _rows(made, name) != _rows(log.connection, name)]
    finally:
        made.close()


def _rows(connection: Connection, table: str) -> list[str]:
    return sorted(map(repr, connection.query(f"SELECT * FROM {table}")))
