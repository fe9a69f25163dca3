"""The log on PostgreSQL: the contract, on each major that is supported, and what only a server can do."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool

from ledger.errors import SchemaError, StorageError
from ledger.invariants.audit import audit
from ledger.log import postgresql
from ledger.log.integrity import verify
from ledger.log.open import create_log, open_log
from ledger.log.postgresql import PostgresConnection, display
from ledger.log.roles import roles_sql
from ledger.log.schema import metadata
from ledger.log.store import Log
from ledger.policy import Policy
from ledger.source import SystemSource
from tests.log import processes
from tests.log.contract import START, LogContract, spawned, until
from tests.log.test_schema import described
from tests.server import Databases, databases
from tests.support import RUN, FakeSource, cancelled, observed, opened, us, write

OTHER = "issue-1418"


class TestPostgresql(LogContract):
    @pytest.fixture(params=databases(), ids=str)
    def url(self, request: pytest.FixtureRequest, servers: dict[int, Databases]) -> Iterator[str]:
        server = servers[request.param]
        name = server.make(server.template())
        yield server.url(name)
        server.drop(name)

    def change_past_the_triggers(self, log: Log, sql: str) -> None:
        log.connection.execute("ALTER TABLE events DISABLE TRIGGER USER")
        log.connection.execute(sql)
        log.connection.execute("ALTER TABLE events ENABLE TRIGGER USER")

    def pretend_schema(self, log: Log, version: int) -> None:
        log.connection.execute(f"UPDATE alembic_version SET version_num = '{version:04}'")


@pytest.fixture
def url(server: Databases) -> Iterator[str]:
    name = server.make(server.template())
    yield server.url(name)
    server.drop(name)


@pytest.fixture
def log(url: str) -> Iterator[Log]:
    made = open_log(url, FakeSource(seed=1))
    yield made
    made.connection.close()


def connection_of(log: Log) -> PostgresConnection:
    assert isinstance(log.connection, PostgresConnection)
    return log.connection


# order


def test_an_event_is_not_followed_past_one_that_is_still_under_way(log: Log, url: str) -> None:
    write(log, START)
    until(lambda: len(list(log.follow())) == 4)
    slow, fast = open_log(url, FakeSource(seed=2)), open_log(url, FakeSource(seed=3))
    with slow.connection.write():
        first, _ = slow.connection.take(1, None)
        [later] = fast.append(OTHER, 0, [opened(30, 1418)])
        assert later.position > first
        assert later in list(log.read_all()), "it stands"
        assert later not in list(log.follow()), "and what is in front of it may yet appear"
        assert fast.state(OTHER).version == 1, "a writer waits for nobody"
    until(lambda: later in list(log.follow()))
    for other in (slow, fast):
        other.connection.close()


def test_an_event_that_appears_behind_a_newer_one_is_news_once(log: Log, url: str) -> None:
    """A state that was read, what was asked of the read models, and a tail: none of them misses it."""
    write(log, START)
    active = "SELECT stream FROM runs WHERE active = 1 ORDER BY stream"
    tail = log.tail()
    assert (log.state(RUN).version, log.state(OTHER).version, log.asked(active)) == (3, 0, [(RUN,)])
    slow, fast = open_log(url, FakeSource(seed=2)), open_log(url, FakeSource(seed=3))
    insert = slow._insert
    seen: list[Any] = []

    def held_back(*rows: Any) -> None:
        seen.append(fast.append(RUN, 3, [observed(30)])[0])
        seen.append((log.state(RUN).version, log.state(OTHER).version, log.asked(active)))
        seen.append([event.position for event in tail.news(log.connection)])
        insert(*rows)

    slow._insert = held_back  # type: ignore[assignment,method-assign]
    [late] = slow.append(OTHER, 0, [opened(20, 1418)])
    newer, before, told = seen
    assert late.position < newer.position
    assert before == (4, 0, [(RUN,)])
    assert told == [newer.position]
    assert (log.state(RUN).version, log.state(OTHER).version, log.asked(active)) == (4, 1, [(RUN,), (OTHER,)])
    assert [event.position for event in tail.news(log.connection)] == [late.position]
    assert tail.news(log.connection) == []
    for other in (slow, fast):
        other.connection.close()


def test_positions_are_taken_once_and_first_in_a_transaction(log: Log) -> None:
    def take_after(sql: str) -> None:
        with log.connection.write():
            log.connection.query(sql)
            log.connection.take(1, None)

    for before in ("SELECT pg_current_xact_id()", "SELECT first FROM ledger_take(1, NULL, 1)"):
        with pytest.raises(StorageError, match="comes first in its transaction"):
            take_after(before)
    assert log.append(RUN, 0, [opened()])


def test_a_position_that_was_rolled_back_is_a_gap_that_verify_allows(log: Log) -> None:
    with suppress(KeyError), log.connection.write():
        first, _ = log.connection.take(3, None)
        raise KeyError
    [event] = log.append(RUN, 0, [opened()])
    assert event.position > first + 2
    assert verify(log, projections=True) == []


def test_what_others_are_judged_by_changes_while_nobody_appends(log: Log, url: str) -> None:
    write(log, START)
    other = open_log(url, FakeSource(seed=2))
    with log.connection.write():
        log.connection.take(1, None)
        other.connection.execute("SELECT set_config('lock_timeout', '50ms', false)")
        with pytest.raises(StorageError, match="another process has held the log"):
            other.append(RUN, 3, [observed(30)], only_if=lambda: None)
        assert other.append(RUN, 3, [observed(30)])
    other.connection.close()


# the server's clock


def test_the_server_s_clock_counts_not_a_poller_s_own(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time_ns
    hour = 3600 * 10**9
    monkeypatch.setattr("ledger.source.time.time_ns", lambda: real() - hour)
    log = open_log(url, SystemSource())
    [event] = log.append(RUN, 0, [opened()])
    for told in (event.recorded_at, log.source.now()):
        assert abs(told * 1000 - real()) < 60 * 10**9
    monkeypatch.setattr("ledger.source.time.time_ns", lambda: real() + hour)
    assert abs(log.source.now() * 1000 - real() - 2 * hour) < 60 * 10**9
    log.keep_time()
    assert abs(log.source.now() * 1000 - real()) < 60 * 10**9
    log.connection.close()


# a connection that is lost


def break_off(log: Log, server: Databases) -> None:
    pid = connection_of(log).raw.info.backend_pid
    with psycopg.connect(server.admin, autocommit=True) as raw:
        raw.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))


def broken(log: Log, server: Databases) -> None:
    log.connection.query("SELECT 1")
    break_off(log, server)


def test_a_connection_lost_between_two_appends_is_made_anew(log: Log, server: Databases) -> None:
    write(log, START)
    break_off(log, server)
    assert log.append(RUN, 3, [observed(30)])[0].version == 4
    break_off(log, server)
    assert len(list(log.read_all())) == 5


def test_a_connection_lost_in_the_middle_is_one_line_and_nothing_stands(log: Log, server: Databases) -> None:
    write(log, START)
    with pytest.raises(StorageError, match="cannot be reached") as raised:
        log.append(RUN, 3, [observed(30)], only_if=lambda: broken(log, server))
    assert "\n" not in str(raised.value)
    assert log.state(RUN).version == 3
    assert log.append(RUN, 3, [observed(30)])


@pytest.mark.parametrize("reached", [True, False], ids=["the commit was done", "it was not"])
@pytest.mark.parametrize("seen", [True, False], ids=["append_seen", "append"])
def test_a_lost_answer_to_the_commit_is_found_out(
    log: Log, server: Databases, monkeypatch: pytest.MonkeyPatch, reached: bool, seen: bool
) -> None:
    write(log, START)
    connection = connection_of(log)
    exchange = connection._exchange
    lost: list[Any] = []

    def lose(todo: Any, then: Any) -> Any:
        if todo[-1][0] == "COMMIT" and not lost:
            lost.append(todo)
            if reached:
                exchange(todo, then)
            break_off(log, server)
            connection.raw.close()
            raise psycopg.OperationalError("the connection was lost")
        return exchange(todo, then)

    monkeypatch.setattr(connection, "_exchange", lose)
    if seen:
        [event] = log.append_seen([(RUN, 3, [observed(30)])]).stood[RUN]
    else:
        [event] = log.append(RUN, 3, [observed(30)])
    assert event.version == 4
    assert [e.event_id for e in log.read(RUN, after=3)] == [event.event_id], "once, and it stands"
    assert lost
    assert verify(log, projections=True) == []


# errors for people


def test_a_password_is_never_shown() -> None:
    for url in (
        "postgresql://me:secret@db.example:5433/ledger",
        "postgresql+psycopg://me:secret@db.example:5433/ledger",
    ):
        assert display(url) == "postgresql://me@db.example:5433/ledger"
    with pytest.raises(StorageError) as raised:
        open_log("postgresql://me:secret@127.0.0.1:1/ledger", FakeSource())
    assert "secret" not in str(raised.value)


def test_what_is_no_ledger_on_a_server_is_told_and_left_alone(server: Databases) -> None:
    name = server.make()
    empty = server.url(name)
    with pytest.raises(SchemaError, match="no ledger in it yet; `ledger db upgrade`"):
        open_log(empty, FakeSource())
    with psycopg.connect(empty, autocommit=True) as raw:
        raw.execute("CREATE TABLE theirs (a int)")
    for open_it in (open_log, lambda url, source: create_log(url, source, Policy(), "test")):
        with pytest.raises(SchemaError, match="no ledger database"):
            open_it(empty, FakeSource())
    server.drop(name)
    with pytest.raises(StorageError, match=r"no such database on the server|does not exist"):
        open_log(empty, FakeSource())


def test_a_missing_driver_is_told() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from ledger.log.open import connect\n"
        "try: connect('postgresql://x/y')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith("StorageError this ledger is on PostgreSQL, and its driver is missing")
    assert "pip install 'handle-ledger[postgresql]'" in said


# the schema


@pytest.mark.filterwarnings("ignore:Did not recognize type 'xid8'")
def test_the_migrations_make_the_schema_on_a_server_too(server: Databases, url: str) -> None:
    name = server.make()

    def engine(there: str) -> Engine:
        return create_engine("postgresql+psycopg://", creator=lambda: postgresql.connect(there), poolclass=NullPool)

    metadata.create_all(engine(server.url(name)))
    made, wanted = described(engine(url)), described(engine(server.url(name)))
    assert made["events"]["columns"].pop() == ("xid", "NULL", False)  # a type that SQLAlchemy does not know
    assert made == wanted
    assert set(made) == set(metadata.tables)
    server.drop(name)


def test_processes_that_make_one_ledger_at_the_same_moment_make_one(server: Databases) -> None:
    name = server.make()
    ids = spawned([(processes.make, (server.url(name),)) for _ in range(3)])
    assert len(set(ids)) == 1
    assert len(ids[0]) == 36
    server.drop(name)


# roles


def test_a_poller_s_role_appends_and_can_change_nothing(server: Databases, url: str, log: Log) -> None:
    poller, reader = f"{server.tag}_poller", f"{server.tag}_reader"
    with psycopg.connect(url, autocommit=True) as raw:
        for _ in range(2):  # once more does no harm
            raw.execute(roles_sql(poller, reader).encode())
        for role in (poller, reader):
            raw.execute(f"CREATE USER {role}_user IN ROLE {role}".encode())
    try:
        polls = open_log(server.url(database_of(url), user=f"{poller}_user"), FakeSource(seed=2), write=True)
        write(polls, [*START, cancelled(30)])
        polls.append(RUN, 4, [observed(40)], only_if=lambda: None)
        reads = open_log(server.url(database_of(url), user=f"{reader}_user"), FakeSource(seed=3))
        for seen in (polls, reads):
            assert verify(seen, projections=True) == []
            assert audit(seen, us(50)) == audit(log, us(50))
            assert list(seen.follow())
        forbidden = [
            "UPDATE events SET payload = '{}'",
            "DELETE FROM events",
            "TRUNCATE events",
            "ALTER TABLE events DISABLE TRIGGER USER",
            "SELECT setval('ledger_positions', 1)",
            "SELECT setval('ledger_clock', 1)",
            "UPDATE alembic_version SET version_num = '0000'",
            "DROP TABLE events",
        ]
        for sql in forbidden:
            for seen in (polls, reads):
                with pytest.raises(StorageError, match=r"this user may not do that .*; `ledger db roles`"):
                    seen.connection.execute(sql)
        with pytest.raises(StorageError, match="this user may not do that"):
            reads.append(RUN, reads.state(RUN).version, [observed(50)])
        assert verify(log, projections=True) == []
        for seen in (polls, reads):
            seen.connection.close()
    finally:
        with psycopg.connect(url, autocommit=True) as raw:
            for role in (f"{poller}_user", f"{reader}_user", poller, reader):
                raw.execute(f"DROP OWNED BY {role}".encode())
                raw.execute(f"DROP ROLE {role}".encode())


def database_of(url: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])
