"""PostgreSQL behind the connection port, through psycopg 3.

**Why a reader in position order never misses an event.** Transactions become visible in another order than that in
which they took their positions: a reader that has seen position 8 may find 7 only later. A lock held to the commit
would cure it and let one writer commit at a time. Instead:

* `ledger_take` assigns the transaction's id and then its positions under one lock, taken and given back inside the
  function, and refuses a transaction that has an id already. So of two transactions the one with the lower id has the
  lower positions, all of them.
* Each event bears its transaction's id (`xid`), and a follower takes only those below the oldest one that still runs
  (`pg_snapshot_xmin`). Whatever has a lower position than one of these has a lower id, so it has ended: it is visible
  too, or it will never be. A transaction that takes its positions later has a higher id, and so higher positions.

A writer that hangs holds back the followers, never the other writers, nor a reader of one stream by its versions, nor
one of a whole snapshot (`Log.read_all`). A position that was taken and rolled back is a gap; versions have none.

**Few round trips.** What needs no answer waits, and goes to the server with the next question, or with the COMMIT, as
one batch of prepared statements (libpq's pipeline mode, see `batch.py`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Final, NoReturn
from urllib.parse import urlencode

from ledger.errors import LedgerError, SchemaError, StorageError, Taken, Unsure
from ledger.log.connection import SCHEMA, Params, check_version

try:
    import psycopg
    from psycopg import conninfo

    from ledger.log.batch import Batches, numbered
except ImportError as error:
    raise StorageError(
        f"this ledger is on PostgreSQL, and its driver is missing ({error}): pip install 'handle-ledger[postgresql]'"
    ) from None

DriverError = psycopg.Error
LOCK_SECONDS: Final = 30
OLDEST: Final = 14  # a server's major version: 13 is the first with the functions used, 14 the oldest still maintained
APPENDING: Final = 0x6C656467  # every append holds this advisory lock shared; one that is alone, alone
CHANNEL: Final = "ledger_events"
_BEGIN_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ"  # not READ ONLY: an audit has a temporary table
_ALONE = f"SELECT pg_advisory_xact_lock({APPENDING})"
_SESSION = f"""SELECT set_config('lock_timeout', '{LOCK_SECONDS}s', false), set_config('client_min_messages', 'warning',
    false), CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', false)
    END"""
_NOTIFY_SECONDS = 0.05


def connect(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    """A raw connection as the ledger uses it: explicit transactions, durable commits. Raises as psycopg does."""
    # Its own prepared statements off: it would throw ours away with them.
    raw = psycopg.connect(_given(url), autocommit=True, prepare_threshold=None)
    raw.execute(_SESSION)
    return raw


@lru_cache(maxsize=8)
def _given(url: str) -> str:
    """libpq's own form of the URL, with what a poller needs to notice that its server is gone."""
    bare = re.sub(r"^postgres(ql)?(\+psycopg)?://", "postgresql://", url)
    usual = {
        "application_name": "ledger",
        "connect_timeout": "10",
        "keepalives_idle": "15",
        "keepalives_interval": "5",
        "keepalives_count": "3",
        "tcp_user_timeout": "30000",
    }
    return conninfo.make_conninfo(bare, **{k: v for k, v in usual.items() if k not in conninfo.conninfo_to_dict(bare)})


def beside(url: str, database: str) -> str:
    """The URL of another database on the same server."""
    parts = {**conninfo.conninfo_to_dict(_given(url)), "dbname": database}
    return "postgresql://?" + urlencode({name: str(value) for name, value in parts.items()})


def display(url: str) -> str:
    """The URL for people: user, host, port and database, never a password. Raises StorageError for what is no URL."""
    try:
        parts = {name: str(value) for name, value in conninfo.conninfo_to_dict(_given(url)).items()}
    except psycopg.Error:
        scheme = url.split("://", 1)[0]
        raise StorageError(f"that {scheme}:// URL cannot be read; write postgresql://USER@HOST:PORT/DATABASE") from None
    user = f"{parts['user']}@" if "user" in parts else ""
    host = parts.get("host", "localhost")
    port = f":{parts['port']}" if "port" in parts else ""
    name = parts.get("dbname", parts.get("user", ""))
    return f"postgresql:///{name}?host={host}" if host.startswith("/") else f"postgresql://{user}{host}{port}/{name}"


class PostgresConnection:
    """The connection port on one PostgreSQL database. A connection that was lost is made anew at the next use."""

    dialect = "postgresql"
    optimistic = True
    settled = "xid < pg_snapshot_xmin(pg_current_snapshot())"

    def __init__(self, url: str) -> None:
        self.where = display(url)
        self._url = url
        self._raw: psycopg.Connection[tuple[Any, ...]] | None = None
        self._batches: Batches | None = None
        self._listener: psycopg.Connection[tuple[Any, ...]] | None = None
        self._waiting: list[tuple[str, Any]] = []
        self._mode = ""  # of the transaction that is under way
        self._began = False  # whether the server knows of it
        self._cursors = 0
        self._told = self._lively = 0.0
        version = self.raw.info.server_version // 10000
        if version < OLDEST:
            self.close()
            raise StorageError(f"{self.where} is PostgreSQL {version}; the ledger needs {OLDEST} or newer")

    @property
    def raw(self) -> psycopg.Connection[tuple[Any, ...]]:
        """The driver's connection, made anew where it was lost between two transactions."""
        if self._raw is None or self._raw.closed:
            if self._began:
                raise StorageError(f"{self.where}: the connection was lost in the middle; run it again")
            try:
                self._raw = connect(self._url)
                self._batches = Batches(self._raw.pgconn)
            except psycopg.Error as error:
                self._raw = None
                self._fail(error)
        return self._raw

    def query(self, sql: str, params: Params = {}) -> list[tuple[Any, ...]]:  # noqa: B006 - never changed
        return self._send(sql, params)

    def stream(self, sql: str, params: Params = {}) -> Iterator[tuple[Any, ...]]:  # noqa: B006
        with self.read():
            self._send()
            try:
                self._cursors += 1
                text, names = numbered(sql)
                with psycopg.RawServerCursor(self.raw, f"ledger_{self._cursors}") as cursor:
                    cursor.itersize = 5000
                    cursor.execute(text.encode(), [params[name] for name in names])
                    yield from cursor
            except psycopg.Error as error:
                self._fail(error)

    def execute(self, sql: str, params: Params = {}) -> None:  # noqa: B006
        self._waiting.append((sql, params))
        if not self._mode:
            self._send()

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any] | Params]) -> None:
        self._waiting += ((sql, row) for row in rows)
        if not self._mode:
            self._send()

    @contextmanager
    def write(self, *, alone: bool = False) -> Iterator[None]:
        with self._transaction("write", (_BEGIN_WRITE, _ALONE) if alone else (_BEGIN_WRITE,), "COMMIT"):
            yield

    @contextmanager
    def read(self) -> Iterator[None]:
        if self._mode:
            yield
            return
        with self._transaction("read", (_BEGIN_READ,), "ROLLBACK"):
            yield

    @contextmanager
    def _transaction(self, mode: str, begin: Sequence[str], end: str) -> Iterator[None]:
        if self._mode:
            raise StorageError(f"{self.where}: a transaction is under way on this connection already")
        self._mode, self._waiting = mode, [(sql, ()) for sql in begin]
        try:
            yield
            if self._began or len(self._waiting) > len(begin):
                self._end(mode, end)
        except BaseException as error:
            self._roll_back(isinstance(error, Exception))
            raise
        finally:
            self._mode, self._began, self._waiting = "", False, []

    def _end(self, mode: str, end: str) -> None:
        if mode == "read":
            self._waiting = []  # nothing of it was to stay
        tell = mode == "write" and time.monotonic() - self._told > _NOTIFY_SECONDS
        try:
            # The notification is no part of the transaction: it would let one commit at a time.
            self._send(end, (), then=f"SELECT pg_notify('{CHANNEL}', '')" if tell else None)
        except StorageError as error:
            if mode == "write" and (self._raw is None or self._raw.closed):
                raise Unsure(f"{self.where}: the connection was lost at the commit ({error})") from error
            raise
        if tell:
            self._told = time.monotonic()

    def _roll_back(self, sound: bool) -> None:
        """Leave no transaction open. `sound`: not interrupted in the middle of an exchange with the server."""
        raw = self._raw
        if raw is None or raw.closed:
            return
        try:
            if not sound:
                raw.close()
            elif raw.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                self._exchange([("ROLLBACK", ())], None)
        except psycopg.Error:
            with suppress(psycopg.Error):
                raw.close()

    def take(self, n: int, now: int | None) -> tuple[int, int]:
        sql = "SELECT first, recorded_at, schema FROM ledger_take(:n, :now, :schema)"
        first, recorded_at, schema = self.query(sql, {"n": n, "now": now, "schema": SCHEMA})[0]
        check_version(self.where, schema)
        return first, recorded_at

    def clock(self) -> int | None:
        return int(self.query("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")[0][0])

    def wait(self, seconds: float, sleep: Callable[[float], None]) -> bool:  # noqa: ARG002 - the server wakes us
        try:
            if self._listener is None or self._listener.closed:
                self._listener = connect(self._url)
                self._listener.execute(f"LISTEN {CHANNEL}")
                return True  # what came before it listened is there to be seen
            # A writer tells at most once in a moment: for a while after it told there may be more.
            lively = time.monotonic() < self._lively
            for _ in self._listener.notifies(timeout=_NOTIFY_SECONDS if lively else seconds, stop_after=1):
                self._lively = time.monotonic() + 4 * _NOTIFY_SECONDS
                return True
            return lively
        except psycopg.Error as error:
            self._fail(error)

    def share(self) -> None:
        """A server is shared from the start."""

    def moved(self) -> str:
        return ""

    def schema_version(self) -> int:
        known, copying = self.query("SELECT to_regclass('alembic_version'), to_regclass('ledger_copy')")[0]
        if copying is not None:
            raise SchemaError(
                f"{self.where}: a ledger is being copied here; run `ledger db copy` again if that broke off"
            )
        if known is None:
            return 0
        rows = self.query("SELECT version_num FROM alembic_version")
        return int(rows[0][0]) if rows else 0

    def is_empty(self) -> bool:
        return not self.query("SELECT 1 FROM pg_class WHERE relnamespace = current_schema()::regnamespace LIMIT 1")

    def close(self) -> None:
        for raw in (self._raw, self._listener):
            if raw is not None:
                raw.close()

    def _send(self, sql: str | None = None, params: Any = (), then: str | None = None) -> list[tuple[Any, ...]]:
        """What waits, and one more, to the server in one round trip; the rows of that one."""
        todo, self._waiting = self._waiting, []
        if sql is not None:
            todo.append((sql, params))
        if not todo:
            return []
        try:
            try:
                rows = self._exchange(todo, then)
            except psycopg.OperationalError:
                # Lost while it was idle, most likely: nothing was done on it yet.
                if self._began or sql == "COMMIT" or self._raw is None or not self._raw.closed:
                    raise
                rows = self._exchange(todo, then)
        except psycopg.Error as error:
            self._fail(error)
        self._began = bool(self._mode)
        return rows

    def _exchange(self, todo: Sequence[tuple[str, Any]], then: str | None) -> list[tuple[Any, ...]]:
        assert self.raw  # connected
        assert self._batches is not None
        results = self._batches.exchange(todo if then is None else [*todo, (then, ())])
        return results[len(todo) - 1]

    def _fail(self, error: psycopg.Error) -> NoReturn:
        raise for_people(error, self.where) from error


_SAID: dict[str, str] = {
    "25006": "the server takes no writes (a standby?); name the primary",
    "28000": "the server lets this user not in ({text}); check the user and the server's pg_hba.conf",
    "28P01": "the server refuses the password; check the URL, PGPASSWORD or ~/.pgpass",
    "3D000": "there is no such database on the server; `createdb` makes one",
    "53100": "the server's disk is full; nothing was recorded; free some space and run it again",
    "53300": "the server has no connection left; try again, or raise its max_connections",
    "55P03": f"another process has held the log for {LOCK_SECONDS} s; try again",
}


def for_people(error: BaseException | None, where: str) -> LedgerError:
    """A driver's error as one line that says what, where and what to do."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0].removeprefix("ERROR:").strip()
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    if state in ("23505", "40001", "40P01"):
        return Taken(f"{where}: another process wrote first ({text})")
    if state in ("42P01", "42703", "42883"):
        return SchemaError(f"{where} is not a ledger database ({text}); `ledger db check` says more")
    if state in _SAID:
        return StorageError(f"{where}: {_SAID[state].format(text=text)}")
    if state == "42501":
        return StorageError(f"{where}: this user may not do that ({text}); `ledger db roles` prints what to grant")
    if isinstance(error, psycopg.OperationalError) and (state is None or state[:2] in ("08", "57")):
        return StorageError(f"{where}: the server cannot be reached ({text}); see that it runs, then run it again")
    return StorageError(f"{where}: {text}")
