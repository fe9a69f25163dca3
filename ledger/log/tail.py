"""What is new in the log since it was last asked: each event once, also one that appears behind a newer one."""

from __future__ import annotations

from ledger.events import COLUMNS, Event
from ledger.log.connection import Connection

_SELECT = f"SELECT {', '.join(COLUMNS)} FROM events WHERE position >= :first AND position <= :last ORDER BY position"


class Tail:
    """A place in the log: all up to `settled` is known, and of what is behind it `seen`.

    On a server a transaction may end after a later one (see `postgresql.py`), so what is behind the last settled event
    is looked at again until it is settled.
    """

    def __init__(self, connection: Connection) -> None:
        """All that stands now is known."""
        rows = connection.query(
            f"SELECT position FROM events WHERE {connection.settled} ORDER BY position DESC LIMIT 1"
        )
        self.settled: int = rows[0][0] if rows else 0
        self.seen: set[int] = set()
        self.look(connection)

    def look(self, connection: Connection) -> list[int]:
        """The positions of what is new."""
        rows = connection.query(
            f"SELECT position, CASE WHEN {connection.settled} THEN 1 ELSE 0 END FROM events"
            " WHERE position > :settled ORDER BY position",
            {"settled": self.settled},
        )
        fresh = [position for position, _ in rows if position not in self.seen]
        self.settled = max((position for position, settled in rows if settled), default=self.settled)
        self.seen = {position for position, settled in rows if not settled}
        return fresh

    def news(self, connection: Connection) -> list[Event]:
        """What is new, in position order."""
        fresh = set(self.look(connection))
        if not fresh:
            return []
        rows = connection.query(_SELECT, {"first": min(fresh), "last": max(fresh)})
        return [Event._make(row) for row in rows if row[0] in fresh]
