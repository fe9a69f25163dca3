"""SQLite behind the connection port. Standard library only: a command that reads starts with nothing else loaded."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from ledger.errors import LedgerError, SchemaError, StorageError
from ledger.log.connection import Params, check_version

BUSY_SECONDS = 30.0
_NAP_SECONDS, _LONG_SECONDS = 0.001, 0.01
_PATIENT = f"PRAGMA busy_timeout={round(BUSY_SECONDS * 1000)}"
# The trigger that refuses every append to a ledger which went elsewhere, and begins its message.
MOVED = "ledger_moved"


def connect(path: str, *, at_rest: bool = False) -> sqlite3.Connection:
    """A raw connection as the ledger uses it: synchronous=FULL, explicit transactions. Changes nothing in the file.

    `at_rest`: the file as it lies there, for reading alone, with no lock and no file beside it.
    """
    name = f"{Path(path).absolute().as_uri()}?mode=ro&immutable=1" if at_rest else path
    raw = sqlite3.connect(name, timeout=BUSY_SECONDS, isolation_level=None, cached_statements=256, uri=at_rest)
    try:
        raw.execute("PRAGMA synchronous=FULL")
    except sqlite3.Error:
        raw.close()
        raise
    return raw


class SqliteConnection:
    """The connection port on one SQLite file (or `:memory:`)."""

    dialect = "sqlite"
    optimistic = False
    settled = "1 = 1"  # one writer at a time: positions become visible in their order
    _seen: Sequence[tuple[Any, ...]] = ()
    # SQLite's own count of what other connections wrote, and the last event that stood then: position, recorded_at.
    _version: Sequence[tuple[Any, ...]] = ()
    _last: tuple[int, int] | None = None

    def __init__(self, path: str | Path, *, reads: bool = False) -> None:
        """`reads`: for reading alone, which is done even where nothing can be written."""
        self.where = str(path)
        try:
            self.raw = _connect_to_read(self.where) if reads else connect(self.where)
        except sqlite3.Error as error:
            self._fail(error)

    @classmethod
    def of(cls, raw: sqlite3.Connection, where: str) -> SqliteConnection:
        """The port on a raw connection that is open already, in explicit transactions."""
        made = cls.__new__(cls)
        made.raw, made.where = raw, where
        return made

    def query(self, sql: str, params: Params = {}) -> list[tuple[Any, ...]]:  # noqa: B006 - never changed
        try:
            return self.raw.execute(sql, params).fetchall()
        except sqlite3.Error as error:
            self._fail(error)

    def stream(self, sql: str, params: Params = {}) -> Iterator[tuple[Any, ...]]:  # noqa: B006
        try:
            yield from self.raw.execute(sql, params)
        except sqlite3.Error as error:
            self._fail(error)

    def execute(self, sql: str, params: Params = {}) -> None:  # noqa: B006
        try:
            self.raw.execute(sql, params)
        except sqlite3.Error as error:
            self._fail(error)

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any] | Params]) -> None:
        try:
            self.raw.executemany(sql, rows)
        except sqlite3.Error as error:
            self._fail(error)

    @contextmanager
    def write(self, *, alone: bool = False) -> Iterator[None]:  # noqa: ARG002 - one writer is always alone
        self._take_turn()
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            if self.raw.in_transaction:
                self.raw.execute("ROLLBACK")
            self._last = None
            raise

    def _take_turn(self) -> None:
        """The write lock. SQLite itself would wait for it in ever longer naps, and some writer would starve."""
        began = 0.0
        self.execute("PRAGMA busy_timeout=0")
        try:
            while True:
                try:
                    self.raw.execute("BEGIN IMMEDIATE")
                    return
                except sqlite3.Error as error:
                    now = time.monotonic()
                    began = began or now
                    busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
                    if not busy or now - began > BUSY_SECONDS:
                        self._fail(error)
                # Who has waited longer looks more often, so that the lock goes round.
                time.sleep(_NAP_SECONDS / (1 + (now - began) / _LONG_SECONDS))
        finally:
            self.execute(_PATIENT)

    def take(self, n: int, now: int | None) -> tuple[int, int]:
        version = self.query("PRAGMA data_version")
        if self._last is None or version != self._version:  # another connection wrote, or this one does so first
            check_version(self.where, self.schema_version())
            last = self.query("SELECT position, recorded_at FROM events ORDER BY position DESC LIMIT 1")
            self._last, self._version = last[0] if last else (0, 0), version
        position, recorded_at = self._last
        recorded_at = max(recorded_at, time.time_ns() // 1000 if now is None else now)
        self._last = (position + n, recorded_at)
        return position + 1, recorded_at

    @contextmanager
    def read(self) -> Iterator[None]:
        nested = self.raw.in_transaction
        if not nested:
            self.execute("BEGIN")
        try:
            yield
        finally:
            if not nested:
                self.raw.execute("ROLLBACK")

    def clock(self) -> int | None:
        return None

    def wait(self, seconds: float, sleep: Callable[[float], None]) -> bool:
        sleep(seconds)
        before, self._seen = self._seen, self.query("PRAGMA data_version")
        return before != self._seen

    def share(self) -> None:
        """Readers beside a writer (WAL), for a file that is known to be a ledger: the mode stays in the file."""
        if self.query("PRAGMA journal_mode") != [("wal",)]:
            # Refused at once, without the busy time-out, while another process is at work in the file. All that is
            # written is as durable without it; the next to open the file sets it.
            with suppress(sqlite3.OperationalError):
                self.raw.execute("PRAGMA journal_mode=WAL")

    def moved(self) -> str:
        rows = self.query("SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = :name", {"name": MOVED})
        return rows[0][0].split(f"{MOVED}: ", 1)[1].rsplit("')", 1)[0].replace("''", "'") if rows else ""

    def schema_version(self) -> int:
        return int(self.query("PRAGMA user_version")[0][0])

    def is_empty(self) -> bool:
        return not self.query("SELECT 1 FROM sqlite_master LIMIT 1")

    def close(self) -> None:
        self.raw.close()

    def _fail(self, error: sqlite3.Error) -> NoReturn:
        raise for_people(error, self.where) from error


def _connect_to_read(path: str) -> sqlite3.Connection:
    """A connection to the file as it lies there where the two files beside it cannot be made: on a read-only or full
    disk, or in another's folder. Only where they are not there: then no process has it open, and all is in the file."""
    try:
        raw = connect(path)
        try:
            raw.execute("SELECT 1 FROM sqlite_master LIMIT 1")
        except sqlite3.Error:
            raw.close()
            raise
    except sqlite3.OperationalError as error:
        cannot = error.sqlite_errorname.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_IOERR"))
        if not cannot or _not_empty(f"{path}-wal"):
            raise
        return connect(path, at_rest=True)
    return raw


def _not_empty(name: str) -> bool:
    try:
        return Path(name).stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError:
        return True


def for_people(error: BaseException | None, where: str) -> LedgerError:
    """A driver's error as one line that says what, where and what to do."""
    text = str(error)
    if text.startswith(f"{MOVED}: "):
        return StorageError(f"{where}: {text.removeprefix(f'{MOVED}: ')}")
    if "not a database" in text or "malformed" in text:
        return SchemaError(f"{where} is not a ledger database ({text}); name another with --db, or restore a copy")
    if "locked" in text or "busy" in text:
        return StorageError(f"{where}: another process has held the database for {BUSY_SECONDS:.0f} s; try again")
    if "full" in text:
        return StorageError(f"{where}: the disk is full; nothing was recorded; free some space and run it again")
    if "disk I/O" in text:
        return StorageError(f"{where} cannot be read or written ({text}); see whether the disk is full, or failing")
    if "readonly" in text:
        return StorageError(f"{where} cannot be written; check who owns the file and its folder")
    if "unable to open" in text:
        return StorageError(f"{where} cannot be opened; check that its folder exists and may be written")
    if "append-only" in text:
        return StorageError(f"{where}: {text}")
    if "no such table" in text or "no such column" in text:
        return SchemaError(f"{where} is not a ledger database ({text}); `ledger db check` says more")
    return StorageError(f"{where}: {text}")
