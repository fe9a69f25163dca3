"""The log on SQLite: the contract, and what only a file can do."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ledger.errors import SchemaError, StorageError, Unsure
from ledger.events import COLUMNS
from ledger.log.integrity import verify
from ledger.log.open import create_log, open_log, sqlite_path
from ledger.log.sqlite import SqliteConnection
from ledger.log.store import Log
from ledger.policy import Policy
from tests.log import processes
from tests.log.contract import LogContract, spawned
from tests.support import RUN, FakeSource, observed, opened, write

TRIGGERS = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"


class TestSqlite(LogContract):
    @pytest.fixture
    def url(self, tmp_path: Path, born: Path) -> str:
        path = tmp_path / "ledger.db"
        shutil.copyfile(born, path)
        return f"sqlite:///{path}"

    def change_past_the_triggers(self, log: Log, sql: str) -> None:
        with closing(sqlite3.connect(log.connection.where, isolation_level=None)) as raw:
            triggers = raw.execute(TRIGGERS).fetchall()
            for name, _ in triggers:
                raw.execute(f"DROP TRIGGER {name}")
            raw.execute(sql)
            for _, made in triggers:
                raw.execute(made)

    def pretend_schema(self, log: Log, version: int) -> None:
        with closing(sqlite3.connect(log.connection.where)) as raw:
            raw.execute(f"PRAGMA user_version = {version}")

    @pytest.mark.parametrize("change", ["payload = x'00ff'", "type = x'41'", "recorded_at = 'noon'", "machine = x'41'"])
    def test_a_value_of_another_kind_is_found_and_named(self, log: Log, change: str) -> None:
        """SQLite stores anything in any column."""
        write(log, [(RUN, opened(0)), (RUN, observed(10)), (RUN, observed(20))])
        self.change_past_the_triggers(log, f"UPDATE events SET {change} WHERE position = 3")
        for projections in (False, True):
            [found] = verify(log, projections=projections)
            assert (found.position, found.stream, found.version) == (3, RUN, 2)
            assert f"its {change.split(maxsplit=1)[0]} is not as an event is stored" in str(found)

    @pytest.mark.parametrize("verb", ["INSERT OR REPLACE", "REPLACE"])
    def test_a_replacement_is_a_deletion_in_disguise(self, log: Log, verb: str) -> None:
        write(log, [opened()])
        before = list(log.read_all())
        for taken in ("position", "version", "event_id"):
            new = {"position": "100", "version": "2", "event_id": "'new'", taken: taken}
            picked = ", ".join(new.get(column, column) for column in COLUMNS)
            sql = f"{verb} INTO events ({', '.join(COLUMNS)}) SELECT {picked} FROM events WHERE position = 2"
            raw = sqlite3.connect(log.connection.where, isolation_level=None)
            with closing(raw), pytest.raises(sqlite3.IntegrityError, match="append-only"):
                raw.execute(sql)
        assert list(log.read_all()) == before

    def test_it_is_durable_and_shared(self, log: Log) -> None:
        assert log.connection.query("PRAGMA journal_mode") == [("wal",)]
        assert log.connection.query("PRAGMA synchronous") == [(2,)]

    def test_a_held_database_is_waited_for_and_told(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        write(log, [opened()])
        log.connection.execute("PRAGMA busy_timeout = 1")
        with closing(sqlite3.connect(log.connection.where, isolation_level=None)) as raw:
            raw.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageError, match="try again"):
                log.append("issue-1417", 1, [observed(30)])
        assert log.append("issue-1417", 1, [observed(30)])


def test_a_url_that_no_driver_serves_is_told(tmp_path: Path) -> None:
    for url in ("mysql://x/y", "sqlite:///", "sqlite:///:memory:"):
        with pytest.raises(StorageError, match="sqlite:///FILE"):
            sqlite_path(url)
    with pytest.raises(StorageError, match="ledger init"):
        open_log(f"sqlite:///{tmp_path}/none.db", FakeSource())
    with pytest.raises(StorageError, match="no folder"):
        create_log(f"sqlite:///{tmp_path}/none/x.db", FakeSource(), Policy(), "test")


@pytest.mark.parametrize("content", [b"this is a text, and long enough to be none of ours" * 40, b""])
def test_what_is_no_ledger_is_told(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(content)
    with pytest.raises(SchemaError):
        open_log(f"sqlite:///{path}", FakeSource())
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as raw:
        raw.execute("CREATE TABLE theirs (a)")
    before = path.read_bytes()
    for open_it in (open_log, lambda url, source: create_log(url, source, Policy(), "test")):
        with pytest.raises(SchemaError, match="no ledger database"):
            open_it(f"sqlite:///{path}", FakeSource())
    assert path.read_bytes() == before


def test_a_copy_that_has_lost_its_mode_is_shared_again(tmp_path: Path, born: Path) -> None:
    path = tmp_path / "copy.db"
    with closing(sqlite3.connect(born)) as raw:
        raw.execute("VACUUM INTO ?", (str(path),))
    log = open_log(f"sqlite:///{path}", FakeSource())
    assert log.connection.query("PRAGMA journal_mode") == [("wal",)]
    log.connection.close()


def test_processes_that_make_one_ledger_at_the_same_moment_make_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    ids = spawned([(processes.make, (url,)) for _ in range(3)])
    assert len(set(ids)) == 1
    assert len(ids[0]) == 36


def test_a_newer_and_an_older_schema_are_told(tmp_path: Path, born: Path) -> None:
    for version, words in ((99, "install a newer one"), (0, "no ledger database")):
        path = tmp_path / f"{version}.db"
        shutil.copyfile(born, path)
        with closing(sqlite3.connect(path)) as raw:
            raw.execute(f"PRAGMA user_version = {version}")
        with pytest.raises(SchemaError, match=words):
            open_log(f"sqlite:///{path}", FakeSource(), write=True)


def test_a_file_that_was_written_over_is_told_in_one_line(tmp_path: Path, born: Path) -> None:
    path = tmp_path / "ledger.db"
    shutil.copyfile(born, path)
    connection = SqliteConnection(path)
    path.write_text("hello\n" * 4000, encoding="utf-8")
    with pytest.raises(SchemaError, match="is not a ledger database"), connection.write():
        pass
    connection.close()


class _Unsure(SqliteConnection):
    """Its commits never stand, and nobody says so."""

    @contextmanager
    def write(self, *, alone: bool = False) -> Iterator[None]:
        with super().write(alone=alone):
            yield
            if not alone:
                raise Unsure("the connection was lost at the commit")


def test_a_commit_that_is_never_answered_is_tried_again_and_then_told(tmp_path: Path, born: Path) -> None:
    path = tmp_path / "ledger.db"
    shutil.copyfile(born, path)
    log = Log(_Unsure(path), FakeSource())
    with pytest.raises(StorageError, match="nothing was recorded; try again"):
        log.append(RUN, 0, [opened()])
    assert log.read(RUN) == []
    log.connection.close()
