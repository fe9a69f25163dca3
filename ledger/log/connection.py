"""The connection port: what the log needs of a database. SQL is text with `:name` parameters.

Readers run on this port alone, so that on SQLite a command that only reads needs no library. Each database's adapter
is one small file (`sqlite.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

Params = Mapping[str, Any]


class Connection(Protocol):
    """One connection. Raises StorageError or SchemaError, never a driver's own exception."""

    dialect: str
    where: str  # for messages: the file or the server

    def query(self, sql: str, params: Params = ...) -> list[tuple[Any, ...]]:
        """All rows."""

    def stream(self, sql: str, params: Params = ...) -> Iterator[tuple[Any, ...]]:
        """Rows one by one, for what does not fit in memory."""

    def execute(self, sql: str, params: Params = ...) -> None:
        """One statement."""

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any] | Params]) -> None:
        """One statement for many rows."""

    def write(self) -> AbstractContextManager[None]:
        """A write transaction: holds the write lock from its first moment, durable when it ends without an error."""

    def read(self) -> AbstractContextManager[None]:
        """A read transaction: every query in it sees the same log."""

    def schema_version(self) -> int:
        """The number of the newest migration applied; 0 where there is none."""

    def is_empty(self) -> bool:
        """Whether it holds no table at all."""

    def close(self) -> None:
        """Give it back."""
