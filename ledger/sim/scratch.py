"""A database on a PostgreSQL server to rehearse on: made beside those that are there, emptied before each rehearsal,
dropped at the end of the process. Nothing that another made is touched."""

from __future__ import annotations

import atexit
import os
import secrets
from functools import cache
from typing import TYPE_CHECKING

from ledger.errors import StorageError
from ledger.log.open import migrate, on_server

if TYPE_CHECKING:
    from ledger.log.postgresql import PostgresConnection


class Scratch:
    """One such database. Its connections are kept from one rehearsal to the next."""

    def __init__(self, server: str) -> None:
        from ledger.log.postgresql import PostgresConnection, beside

        self._server = PostgresConnection(server)
        self.name = f"ledger_rehearsal_{os.getpid()}_{secrets.token_hex(3)}"
        # In one batch it would be in a transaction, which a CREATE DATABASE refuses.
        self._server.raw.execute(f"CREATE DATABASE {self.name} TEMPLATE template0".encode())
        self.url = beside(server, self.name)
        self._idle: list[PostgresConnection] = []
        self._lent: list[PostgresConnection] = []
        migrate(self.connection(), self.url)
        atexit.register(self.drop)

    def connection(self) -> PostgresConnection:
        """One to it. Closing it does nothing: it is lent again once the database was emptied."""
        from ledger.log.postgresql import PostgresConnection

        class Kept(PostgresConnection):
            def close(self) -> None:
                """Not yet."""

        connection = self._idle.pop() if self._idle else Kept(self.url)
        self._lent.append(connection)
        return connection

    def empty(self) -> None:
        """As a migration leaves it: no event, positions and clock from their start."""
        self._idle += self._lent
        self._lent = []
        connection = self.connection()
        deletes = "".join(f"DELETE FROM {table};" for table in _tables())
        connection.raw.execute(
            f"BEGIN; ALTER TABLE events DISABLE TRIGGER USER; {deletes} ALTER TABLE events ENABLE TRIGGER USER;"
            "ALTER SEQUENCE ledger_positions RESTART; ALTER SEQUENCE ledger_clock RESTART; COMMIT".encode()
        )
        # What was deleted lies there until then, and every look goes through it.
        connection.raw.execute(f"VACUUM ANALYZE {', '.join(_tables())}".encode())

    def drop(self) -> None:
        """Away with it."""
        atexit.unregister(self.drop)
        for connection in (*self._idle, *self._lent):
            connection.raw.close()
        self._server.raw.execute(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)".encode())
        self._server.close()


@cache
def _tables() -> tuple[str, ...]:
    from ledger.log.schema import metadata

    return tuple(table.name for table in metadata.sorted_tables)


@cache
def scratch(server: str) -> Scratch:
    """This process's database on that server. Raises StorageError where the URL names no server."""
    if not on_server(server):
        raise StorageError(f"{server} names no PostgreSQL server; write postgresql://USER@HOST/DATABASE")
    return Scratch(server)
