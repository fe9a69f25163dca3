"""A ledger copied from its file to a server: ids, positions, versions and hashes as they are.

The file refuses every append from the first moment on, by a trigger that says where the ledger goes, whichever version
of the ledger or other program writes. The server's database has no schema version until the copy is complete and
compared, so nobody can work in it before. A copy that broke off goes on from the last batch that was committed.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final

from psycopg import Error

from ledger.errors import LedgerError, StorageError
from ledger.events import COLUMNS
from ledger.log.connection import SCHEMA
from ledger.log.open import check_schema, migrate
from ledger.log.postgresql import PostgresConnection, for_people
from ledger.log.schema import READ_MODELS, vitals
from ledger.log.sqlite import MOVED, SqliteConnection

BATCH: Final = 20_000  # events a transaction
_EVENTS = f"SELECT {', '.join(COLUMNS)} FROM events WHERE position > :after ORDER BY position LIMIT :n"
_INTO = f"COPY events ({', '.join(COLUMNS)}) FROM STDIN"
_OUT = f"COPY (SELECT {', '.join(COLUMNS)} FROM events ORDER BY position) TO STDOUT"
_SPECIAL = re.compile(r"[\\\t\n\r\b\f\v]")
_ESCAPES = {c: "\\" + e for c, e in zip("\\\t\n\r\b\f\v", "\\tnrbfv", strict=True)}
# Copied without its keys and triggers, which are faster made at the end; it is no ledger until then.
_BEGIN = """
    ALTER TABLE alembic_version RENAME TO ledger_copy_version;
    CREATE TABLE ledger_copy (ledger text NOT NULL, through bigint NOT NULL);
    ALTER TABLE events DISABLE TRIGGER USER;
    ALTER TABLE events DROP CONSTRAINT events_pkey, DROP CONSTRAINT events_stream_version,
        DROP CONSTRAINT events_event_id
"""
_KEYS = """
    ALTER TABLE events ADD CONSTRAINT events_pkey PRIMARY KEY (position),
        ADD CONSTRAINT events_stream_version UNIQUE (stream, version),
        ADD CONSTRAINT events_event_id UNIQUE (event_id);
    ALTER TABLE events ENABLE TRIGGER USER;
    SELECT setval('ledger_positions', max(position)), setval('ledger_clock', max(recorded_at)) FROM events
"""
_OPEN = "DROP TABLE ledger_copy; ALTER TABLE ledger_copy_version RENAME TO alembic_version"


def copy(source: SqliteConnection, target: PostgresConnection, url: str, progress: Callable[[int], None]) -> int:
    """Copy the ledger in `source` to the empty database of `target`, at `url`; the number of its events.

    What stands there afterwards was compared with the file, event by event and row by row. Called again after it broke
    off, it goes on; after it was complete, it only says so. Raises LedgerError where the target holds something else,
    StorageError where a copy differs.
    """
    check_schema(source)
    ledger = _id(source)
    events = int(source.query("SELECT count(*) FROM events")[0][0])
    if not ledger or not events:
        raise LedgerError(f"{source.where} holds no ledger yet: there is nothing to copy")
    if source.moved() and not _going(source):
        raise LedgerError(source.moved())
    try:
        if not _complete(target, ledger):
            through = _begun(source, target, url, ledger)
            digest = _send(source, target, through, progress)
            _finish(source, target, digest)
    except Error as error:
        raise for_people(error, target.where) from error
    _say(source, f"this ledger has moved to {target.where}: name that database (ledger.toml, --db)")
    return events


def give_up(source: SqliteConnection, target: PostgresConnection) -> None:
    """Let the file be the ledger again, where no complete copy is there. Raises LedgerError where one is."""
    if _complete(target, _id(source)) or (source.moved() and not _going(source)):
        raise LedgerError(f"the ledger is on {target.where} already, complete; two of it would rent machines twice")
    with source.write():
        source.execute(f"DROP TRIGGER IF EXISTS {MOVED}")


def _going(source: SqliteConnection) -> bool:
    return "is being copied" in source.moved()


def _id(connection: SqliteConnection | PostgresConnection) -> str:
    rows = connection.query("SELECT ledger FROM policies ORDER BY position LIMIT 1")
    return str(rows[0][0]) if rows else ""


def _say(source: SqliteConnection, words: str) -> None:
    """Every append to the file is refused with these words."""
    quoted = f"{MOVED}: {words}".replace("'", "''")
    with source.write():
        source.execute(f"DROP TRIGGER IF EXISTS {MOVED}")
        source.execute(f"CREATE TRIGGER {MOVED} BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, '{quoted}'); END")


def _copying(target: PostgresConnection) -> bool:
    return target.query("SELECT to_regclass('ledger_copy')") != [(None,)]


def _complete(target: PostgresConnection, ledger: str) -> bool:
    """Whether the whole ledger is there. Raises LedgerError where another one is, or something else."""
    if _copying(target) or target.is_empty():
        return False
    check_schema(target)
    there = _id(target)
    if there and there != ledger:
        raise LedgerError(f"{target.where} holds another ledger ({there}); name an empty database")
    return bool(there)


def _begun(source: SqliteConnection, target: PostgresConnection, url: str, ledger: str) -> int:
    """Close the file, make the tables where they are not there yet; up to which position events are there already."""
    raw = target.raw
    if not _copying(target):
        if target.is_empty():
            migrate(target, url)
        check_schema(target)
        with raw.transaction():
            raw.execute(_BEGIN.encode())
            raw.execute("INSERT INTO ledger_copy VALUES (%s, 0)", (ledger,))
    there, through = target.query("SELECT ledger, through FROM ledger_copy")[0]
    if there != ledger:
        raise LedgerError(f"a copy of another ledger ({there}) into {target.where} broke off; name an empty database")
    _say(
        source,
        f"this ledger is being copied to {target.where}; run `ledger db copy` again if that broke off",
    )
    return int(through)


def _send(source: SqliteConnection, target: PostgresConnection, through: int, progress: Callable[[int], None]) -> str:
    """Send the events after `through`. The digest of all, as they are written on the wire."""
    digest = hashlib.sha256()
    done = last = 0
    while rows := source.query(_EVENTS, {"after": last, "n": BATCH}):
        text = "".join(map(_line, rows)).encode()
        digest.update(text)
        last = rows[-1][0]
        done += len(rows)
        if last > through:
            # A batch is whole or not there: it ends where one ended before it broke off.
            assert rows[0][0] > through
            with target.raw.transaction(), target.raw.cursor() as cursor:
                with cursor.copy(_INTO.encode()) as into:
                    into.write(text)
                cursor.execute("UPDATE ledger_copy SET through = %s", (last,))
        progress(done)
    return digest.hexdigest()


def _line(row: Sequence[Any]) -> str:
    return "\t".join([_field(value) for value in row]) + "\n"


def _field(value: Any) -> str:
    if value is None:
        return "\\N"
    text = value if type(value) is str else str(value)
    return text if _SPECIAL.search(text) is None else "".join(_ESCAPES.get(c, c) for c in text)


def _finish(source: SqliteConnection, target: PostgresConnection, digest: str) -> None:
    """The read models, the keys, the comparison; then it is a ledger. In one transaction."""
    raw = target.raw
    with raw.transaction(), raw.cursor() as cursor:
        for table in (*READ_MODELS, vitals):
            names = ", ".join(f'"{column.name}"' for column in table.columns)
            cursor.execute(f"DELETE FROM {table.name}".encode())
            with cursor.copy(f"COPY {table.name} ({names}) FROM STDIN".encode()) as into:
                for row in source.stream(f"SELECT {names} FROM {table.name}"):
                    into.write(_line(row))
            keys = ", ".join(column.name for column in table.primary_key.columns)
            sql = f"SELECT {names} FROM {table.name} ORDER BY {keys}"
            cursor.execute(sql.encode())
            for here, there in zip_longest(source.stream(sql), cursor):
                if here != there:
                    raise StorageError(f"{target.where}: table {table.name} differs from the file's: {there} is {here}")
        cursor.execute(_KEYS.encode())
        found = hashlib.sha256()
        for data in _copied_out(cursor):
            found.update(data)
        if found.hexdigest() != digest:
            raise StorageError(f"{target.where}: the events there differ from the file's; copy to another database")
        cursor.execute(_OPEN.encode())
    assert target.schema_version() == SCHEMA
    raw.execute(b"ANALYZE")


def _copied_out(cursor: Any) -> Iterator[bytes]:
    with cursor.copy(_OUT.encode()) as out:
        yield from out
