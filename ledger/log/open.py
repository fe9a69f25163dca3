"""Open a ledger's database by its URL: which adapter serves it, whether its schema is ours, and making a new one."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from ledger.errors import SchemaError, StorageError
from ledger.events import LEDGER_STREAM, Draft
from ledger.log.sqlite import SqliteConnection, for_people
from ledger.log.store import Hooks, Log
from ledger.policy import Policy
from ledger.source import Source, uuid4

# The newest migration that this version knows; a test holds it against migrations/.
SCHEMA: Final = 1


def sqlite_path(url: str) -> Path:
    """The file behind `sqlite:///FILE`, or behind a plain path. Raises StorageError for a URL that no driver serves."""
    if url.startswith("sqlite:///"):
        name = url.removeprefix("sqlite:///")
        if not name or name == ":memory:":
            raise StorageError(f"{url} names no file; a ledger is kept: write sqlite:///FILE")
        return Path(name)
    if "://" in url:
        scheme = url.split("://", 1)[0]
        raise StorageError(f"no driver serves {scheme}:// here; this version works with sqlite:///FILE")
    return Path(url)


def open_log(url: str, source: Source, *, hooks: Hooks | None = None, write: bool = False) -> Log:
    """The log of an existing ledger.

    `write`: an older schema is migrated first. Raises StorageError where there is no database, SchemaError where
    it is newer than this version, older (only reading), or no ledger.
    """
    path = sqlite_path(url)
    if not path.is_file():
        raise StorageError(f"no ledger database at {path}; `ledger init` makes one, `ledger db upgrade` there")
    connection = SqliteConnection(path, reads=not write)
    try:
        version = connection.schema_version()
        if version < SCHEMA and write and (version > 0 or connection.is_empty()):
            migrate(connection)
        else:
            check_schema(connection)
        connection.share()
    except BaseException:
        connection.close()
        raise
    return Log(connection, source, hooks)


def create_log(url: str, source: Source, policy: Policy, version: str, *, hooks: Hooks | None = None) -> Log:
    """The log at `url`, made and migrated where there is none yet; its id is born with it."""
    path = sqlite_path(url)
    if not path.parent.is_dir():
        raise StorageError(f"{path.parent} is no folder; make it first, or name another database")
    connection = SqliteConnection(path)
    try:
        if connection.is_empty() or 0 < connection.schema_version() < SCHEMA:
            migrate(connection)
        check_schema(connection)
        connection.share()
        log = Log(connection, source, hooks)
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


def check_schema(connection: SqliteConnection) -> None:
    """Raises SchemaError unless the database has the schema of this version."""
    version = connection.schema_version()
    if version == SCHEMA:
        return
    if version > SCHEMA:
        raise SchemaError(
            f"{connection.where} has schema {version}; this version of ledger knows {SCHEMA}: install a newer one"
        )
    if version == 0 and connection.is_empty():
        raise SchemaError(f"{connection.where} has no ledger in it yet; `ledger db upgrade` makes one there")
    if version == 0:
        raise SchemaError(f"{connection.where} is no ledger database; name another with --db, or `ledger init` one")
    raise SchemaError(f"{connection.where} has schema {version}, older than {SCHEMA}: run `ledger db upgrade`")


def migrate(connection: SqliteConnection) -> None:
    """Bring the database to this version's schema, in one transaction. Raises SchemaError for a newer one."""
    from sqlalchemy.exc import DBAPIError

    from ledger.log.migrate import upgrade

    if connection.schema_version() > SCHEMA:
        check_schema(connection)
    try:
        upgrade(connection.where, SCHEMA)
    except DBAPIError as error:
        raise for_people(error.orig, connection.where) from error
    except sqlite3.Error as error:
        raise for_people(error, connection.where) from error
