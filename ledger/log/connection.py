"""The connection port: what the log needs of a database. SQL is text with `:name` parameters.

Readers run on this port alone, so that on SQLite a command that only reads needs no library. Each database's adapter
is one small file (`sqlite.py`, `postgresql.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from ledger.errors import SchemaError

Params = Mapping[str, Any]

# The newest migration that this version knows; a test holds it against migrations/.
SCHEMA: Final = 1


class Connection(Protocol):
    """One connection. Raises StorageError or SchemaError, never a driver's own exception."""

    dialect: str
    where: str  # for messages: the file or the server
    optimistic: bool  # a version that another has taken is noticed by the insert: no read in front of it is needed
    settled: str  # SQL that holds of an event once none can appear in front of it any more

    def query(self, sql: str, params: Params = ...) -> list[tuple[Any, ...]]:
        """All rows."""

    def stream(self, sql: str, params: Params = ...) -> Iterator[tuple[Any, ...]]:
        """Rows one by one, for what does not fit in memory."""

    def execute(self, sql: str, params: Params = ...) -> None:
        """One statement."""

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any] | Params]) -> None:
        """One statement for many rows."""

    def write(self, *, alone: bool = False) -> AbstractContextManager[None]:
        """A write transaction, durable when it ends without an error. `alone`: no other one stands beside it.

        Raises Taken where another one wrote first: nothing of this one stands, and it may be tried again; Unsure where
        nobody said whether it stands.
        """

    def take(self, n: int, now: int | None) -> tuple[int, int]:
        """The next `n` positions, of which the first is told, and the moment at which they are recorded.

        Once a write transaction, before it writes. `now`: the caller's clock; None: the database's own. The moment
        never goes back. Raises SchemaError where the database has moved on to another schema.
        """

    def read(self) -> AbstractContextManager[None]:
        """A read transaction: every query in it sees the same log."""

    def clock(self) -> int | None:
        """The server's clock, microseconds UTC; None where the database has none of its own."""

    def wait(self, seconds: float, sleep: Callable[[float], None]) -> bool:
        """Wait till another may have appended, `seconds` at most. Whether one may have: a hint, look now and then."""

    def share(self) -> None:
        """The database is known to be a ledger: many may work in it now."""

    def moved(self) -> str:
        """One line on where the ledger went that was here; "" where it is here."""

    def schema_version(self) -> int:
        """The number of the newest migration applied; 0 where there is none."""

    def is_empty(self) -> bool:
        """Whether it holds no table at all."""

    def close(self) -> None:
        """Give it back."""


def check_version(where: str, version: int) -> None:
    """Raises SchemaError where a ledger's schema is not the one of this version."""
    if version > SCHEMA:
        raise SchemaError(f"{where} has schema {version}; this version of ledger knows {SCHEMA}: install a newer one")
    if version < SCHEMA:
        raise SchemaError(f"{where} has schema {version}, older than {SCHEMA}: run `ledger db upgrade`")
