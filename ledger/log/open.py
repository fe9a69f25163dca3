"""Open a ledger's database by its URL: which adapter serves it, whether its schema is ours, and making a new one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ledger.errors import SchemaError, StorageError
from ledger.events import LEDGER_STREAM, Draft
from ledger.log import connection as port
from ledger.log.connection import SCHEMA, Connection, check_version
from ledger.log.sqlite import SqliteConnection, for_people
from ledger.log.store import Hooks, Log
from ledger.policy import Policy
from ledger.source import Source, uuid4

__all__ = ["SCHEMA", "be_born", "check_schema", "connect", "create_log", "display", "migrate", "on_server", "open_log"]


def on_server(url: str) -> bool:
    """Whether the URL names a database on a PostgreSQL server."""
    return url.split("://", 1)[0] in ("postgresql", "postgres", "postgresql+psycopg") and "://" in url


def sqlite_path(url: str) -> Path:
    """The file behind `sqlite:///FILE`, or behind a plain path. Raises StorageError for a URL that no driver serves."""
    if url.startswith("sqlite:///"):
        name = url.removeprefix("sqlite:///")
        if not name or name == ":memory:":
            raise StorageError(f"{url} names no file; a ledger is kept: write sqlite:///FILE")
        return Path(name)
    if "://" in url:
        scheme = url.split("://", 1)[0]
        raise StorageError(
            f"no driver serves {scheme}:// here: write sqlite:///FILE, or postgresql://USER@HOST/DATABASE"
        )
    return Path(url)


def display(url: str) -> str:
    """The database for people: its file, or its URL without a password."""
    if on_server(url):
        from ledger.log import postgresql

        return postgresql.display(url)
    return str(sqlite_path(url))


def connect(url: str, *, reads: bool = False) -> Connection:
    """A connection to the database, whatever is in it. `reads`: for reading alone. Raises StorageError."""
    if on_server(url):
        from ledger.log.postgresql import PostgresConnection

        return PostgresConnection(url)
    return SqliteConnection(sqlite_path(url), reads=reads)


def open_log(url: str, source: Source, *, hooks: Hooks | None = None, write: bool = False) -> Log:
    """The log of an existing ledger.

    `write`: an older schema is migrated first. Raises StorageError where there is no database, SchemaError where
    it is newer than this version, older (only reading), or no ledger.
    """
    if not on_server(url) and not sqlite_path(url).is_file():
        raise StorageError(
            f"no ledger database at {sqlite_path(url)}; `ledger init` makes one, `ledger db upgrade` there"
        )
    connection = connect(url, reads=not write)
    try:
        version = connection.schema_version()
        if version < port.SCHEMA and write and (version > 0 or connection.is_empty()):
            migrate(connection, url)
        else:
            check_schema(connection)
        connection.share()
        log = Log(connection, source, hooks)
        log.keep_time()
        if write and (words := connection.moved()):
            raise StorageError(f"{connection.where}: {words}")
    except BaseException:
        connection.close()
        raise
    return log


def create_log(url: str, source: Source, policy: Policy, version: str, *, hooks: Hooks | None = None) -> Log:
    """The log at `url`, made and migrated where there is none yet; its id is born with it."""
    if not on_server(url) and not sqlite_path(url).parent.is_dir():
        raise StorageError(f"{sqlite_path(url).parent} is no folder; make it first, or name another database")
    connection = connect(url)
    try:
        if connection.is_empty() or 0 < connection.schema_version() < port.SCHEMA:
            migrate(connection, url)
        check_schema(connection)
        connection.share()
        log = Log(connection, source, hooks)
        log.keep_time()
        be_born(log, source, policy, version)
    except BaseException:
        connection.close()
        raise
    return log


def be_born(log: Log, source: Source, policy: Policy, version: str) -> None:
    """Append the first event of a new log, with which its id is born; nothing where it has one."""
    from ledger.errors import Conflict

    if log.state(LEDGER_STREAM).version:
        return
    payload = {"ledger": uuid4(source), "policy": policy.to_payload(), "version": version}
    try:
        log.append(LEDGER_STREAM, 0, [Draft("LedgerCreated", payload, source.now(), actor="user")])
    except Conflict:
        return  # another process made it at the same moment


def check_schema(connection: Connection) -> None:
    """Raises SchemaError unless the database has the schema of this version."""
    version = connection.schema_version()
    if version == 0 and connection.is_empty():
        raise SchemaError(f"{connection.where} has no ledger in it yet; `ledger db upgrade` makes one there")
    if version == 0:
        raise SchemaError(f"{connection.where} is no ledger database; name another with --db, or `ledger init` one")
    check_version(connection.where, version)


def migrate(connection: Connection, url: str) -> None:
    """Bring the database to this version's schema, in one transaction. Raises SchemaError for a newer one."""
    from sqlalchemy.exc import DBAPIError

    from ledger.log.migrate import upgrade, upgrade_server

    if connection.schema_version() > port.SCHEMA:
        check_schema(connection)
    if on_server(url):
        from ledger.log import postgresql

        try:
            upgrade_server(url, port.SCHEMA)
        except DBAPIError as error:
            raise postgresql.for_people(error.orig, connection.where) from error
        except postgresql.DriverError as error:
            raise postgresql.for_people(error, connection.where) from error
        return
    try:
        upgrade(connection.where, port.SCHEMA)
    except DBAPIError as error:
        raise for_people(error.orig, connection.where) from error
    except sqlite3.Error as error:
        raise for_people(error, connection.where) from error
