"""Prepared statements to a PostgreSQL server in batches, one round trip each: psycopg's own libpq, in pipeline mode.

psycopg's cursors do the same and spend several times as long on it as the server does; an append is eight statements.
"""

from __future__ import annotations

import re
import select
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import psycopg
from psycopg import pq

_NAMES = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|::|:([A-Za-z_]\w*)")
_FLOAT: Final = 701
_LOADERS: Final[dict[int, Callable[[bytes], Any]]] = {
    16: lambda value: value == b"t",
    20: int,
    21: int,
    23: int,
    26: int,
    700: float,
    701: float,
    1700: lambda value: int(value) if value.isdigit() else float(Decimal(value.decode())),
}
_FINE = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
_Key = tuple[str, tuple[int, ...]]


@lru_cache(maxsize=512)
def numbered(sql: str) -> tuple[str, tuple[str, ...]]:
    """The statement with `$1` for `:name`, outside of what is quoted, and the names in the order of their numbers."""
    names: dict[str, int] = {}

    def put(match: re.Match[str]) -> str:
        return f"${names.setdefault(match[1], len(names) + 1)}" if match[1] else match[0]

    return _NAMES.sub(put, sql), tuple(names)


class Batches:
    """The statements prepared on one connection. Raises psycopg's errors."""

    def __init__(self, pgconn: pq.abc.PGconn) -> None:
        self._pgconn = pgconn
        self._prepared: dict[_Key, bytes] = {}
        self._names = 0
        self._reads, self._writes = select.poll(), select.poll()
        self._reads.register(pgconn.socket, select.POLLIN)
        self._writes.register(pgconn.socket, select.POLLIN | select.POLLOUT)

    def exchange(self, statements: Sequence[tuple[str, Any]]) -> list[list[tuple[Any, ...]]]:
        """The rows of each, (SQL, parameters by name or in order). Where one fails, none behind it was done."""
        conn = self._pgconn
        if conn.status != pq.ConnStatus.OK:
            raise psycopg.OperationalError("the connection was lost")
        sent: list[_Key | None] = []  # what was prepared; None: a statement's answer
        prepared: dict[_Key, bytes] = {}
        conn.enter_pipeline_mode()
        for sql, params in statements:
            text, names = numbered(sql)
            values = [params[name] for name in names] if isinstance(params, dict) else params
            # The server infers the type of each from its place, but where an integer's place takes a fraction.
            types = (
                tuple(_FLOAT if type(value) is float else 0 for value in values) if float in map(type, values) else ()
            )
            key = (sql, types)
            name = self._prepared.get(key) or prepared.get(key)
            if name is None:
                self._names += 1
                name = prepared[key] = b"ledger_%d" % self._names
                sent.append(key)
                conn.send_prepare(name, text.encode(), types)
            sent.append(None)
            conn.send_query_prepared(name, [None if value is None else str(value).encode() for value in values])
        conn.pipeline_sync()
        self._flush()
        rows: list[list[tuple[Any, ...]]] = []
        failed: psycopg.Error | None = None
        for result in self._results():
            if failed is None and result.status not in _FINE:
                failed = _error(result, conn)
            key_ = sent[len(rows)] if len(rows) < len(sent) else None
            rows.append(_rows(result) if result.status == pq.ExecStatus.TUPLES_OK else [])
            if key_ is not None and result.status in _FINE:
                self._prepared[key_] = prepared[key_]
        if failed is not None:
            raise failed
        conn.exit_pipeline_mode()
        return [answer for answer, key_ in zip(rows, sent, strict=True) if key_ is None]

    def _flush(self) -> None:
        while self._pgconn.flush():
            for _, event in self._writes.poll():
                if event & ~select.POLLOUT:
                    self._pgconn.consume_input()

    def _results(self) -> Iterator[pq.abc.PGresult]:
        """Every result up to the end of the batch."""
        conn = self._pgconn
        silent = 0
        while True:
            while conn.is_busy():
                self._reads.poll()
                conn.consume_input()
            result = conn.get_result()
            if result is None:
                silent += 1
                if silent > 1:  # one stands between two results; a lost connection has no more of them
                    raise psycopg.OperationalError("the connection was lost")
                continue
            silent = 0
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                return
            yield result


def _rows(result: pq.abc.PGresult) -> list[tuple[Any, ...]]:
    width = range(result.nfields)
    loaders = [_LOADERS.get(result.ftype(column), bytes.decode) for column in width]
    return [
        tuple(None if (value := result.get_value(row, column)) is None else loaders[column](value) for column in width)
        for row in range(result.ntuples)
    ]


def _error(result: pq.abc.PGresult, conn: pq.abc.PGconn) -> psycopg.Error:
    text = result.get_error_message() if hasattr(result, "get_error_message") else pq.error_message(result)
    state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
    try:
        kind: type[psycopg.Error] = psycopg.errors.lookup(state)
    except KeyError:
        kind = psycopg.OperationalError if conn.status != pq.ConnStatus.OK else psycopg.DatabaseError
    return kind(text)
