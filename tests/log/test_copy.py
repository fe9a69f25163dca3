"""A ledger's move from its file to a server: all of it, once, whatever breaks off in between."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ledger.errors import LedgerError, SchemaError, StorageError
from ledger.log import copy as copying
from ledger.log.integrity import head, verify
from ledger.log.open import open_log
from ledger.log.postgresql import PostgresConnection
from ledger.log.sqlite import SqliteConnection
from ledger.log.store import Log
from tests.server import Databases
from tests.support import RUN, FakeSource, clock, observed, opened, provisioned, requested, us, write

ODD = 'a\\b\tc\nd "é" \u2028 \\N'


class Broken(Exception):
    """Where the copy is broken off."""


@pytest.fixture
def file(tmp_path: Path, born: Path) -> Path:
    """A ledger of some events in a file."""
    path = tmp_path / "ledger.db"
    shutil.copyfile(born, path)
    log = open_log(str(path), FakeSource(seed=1))
    write(log, [opened(0, workload_cmd=ODD), requested(10), provisioned(20), observed(30, log_age=1.5)])
    write(log, [("issue-1418", opened(40, 1418)), observed(50), observed(60)])
    log.connection.close()
    return path


def there(url: str) -> Log:
    return open_log(url, FakeSource(seed=2))


def copy(file: Path, url: str, stop_at: int | None = None) -> int:
    def progress(done: int) -> None:
        if stop_at is not None and done >= stop_at:
            raise Broken

    source, target = SqliteConnection(file), PostgresConnection(url)
    try:
        return copying.copy(source, target, url, progress)
    finally:
        source.close()
        target.close()


def same(file: Path, url: str) -> None:
    here, copied = open_log(str(file), FakeSource()), there(url)
    assert list(copied.read_all()) == list(here.read_all())
    assert list(copied.follow()) == list(here.read_all())
    assert head(copied) == head(here)
    assert copied.ledger_id() == here.ledger_id()
    assert verify(copied, projections=True) == []
    last = copied.connection.query("SELECT max(position) FROM events")[0][0]
    clock(copied).micros = us(10)
    [event] = copied.append(RUN, copied.state(RUN).version, [observed(70)])
    assert (event.position, event.recorded_at) == (last + 1, us(60)), "positions and the clock go on"
    with pytest.raises(StorageError, match="append-only"):
        copied.connection.execute("DELETE FROM events")
    here.connection.close()
    copied.connection.close()


def test_everything_is_there_and_the_file_says_where_it_went(file: Path, empty: str) -> None:
    assert copy(file, empty) == 8
    same(file, empty)
    with pytest.raises(StorageError, match=r"this ledger has moved to postgresql://.*: name that database"):
        open_log(str(file), FakeSource(), write=True)
    old = open_log(str(file), FakeSource())
    with pytest.raises(StorageError, match="this ledger has moved to"):
        old.append(RUN, old.state(RUN).version, [observed(80)])
    assert verify(old, projections=True) == []
    old.connection.close()
    with pytest.raises(LedgerError, match="has moved to"):
        copy(file, empty)


@pytest.mark.parametrize("stop_at", [3, 6, 8])
def test_a_copy_that_broke_off_goes_on(file: Path, empty: str, monkeypatch: pytest.MonkeyPatch, stop_at: int) -> None:
    monkeypatch.setattr(copying, "BATCH", 3)
    at_work = open_log(str(file), FakeSource(seed=3))
    with pytest.raises(Broken):
        copy(file, empty, stop_at)
    with pytest.raises(StorageError, match="is being copied to"):
        at_work.append(RUN, at_work.state(RUN).version, [observed(80)])
    at_work.connection.close()
    for write_ in (True, False):
        with pytest.raises(SchemaError, match="a ledger is being copied here; run `ledger db copy` again"):
            open_log(empty, FakeSource(), write=write_)
    assert copy(file, empty) == 8
    same(file, empty)


def test_one_that_broke_off_at_the_very_end_only_says_so(
    file: Path, empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    say = copying._say

    def die(source: SqliteConnection, words: str) -> None:
        if "has moved" in words:
            raise Broken
        say(source, words)

    monkeypatch.setattr(copying, "_say", die)
    with pytest.raises(Broken):
        copy(file, empty)
    monkeypatch.setattr(copying, "_say", say)
    source, target = SqliteConnection(file), PostgresConnection(empty)
    with pytest.raises(LedgerError, match="complete; two of it"):
        copying.give_up(source, target)
    source.close()
    target.close()
    copied = there(empty)
    copied.append(RUN, copied.state(RUN).version, [observed(70)])
    copied.connection.close()
    assert copy(file, empty) == 8
    assert "has moved" in SqliteConnection(file).moved()


def test_a_copy_that_differs_is_no_ledger(file: Path, empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "BATCH", 3)
    with pytest.raises(Broken):
        copy(file, empty, 3)
    target = PostgresConnection(empty)
    target.execute("UPDATE events SET payload = '{}' WHERE position = 2")
    with pytest.raises(StorageError, match="the events there differ"):
        copy(file, empty)
    with pytest.raises(SchemaError, match="is being copied here"):
        there(empty)
    target.close()


def test_giving_up_lets_the_file_be_the_ledger_again(file: Path, empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "BATCH", 3)
    with pytest.raises(Broken):
        copy(file, empty, 3)
    source, target = SqliteConnection(file), PostgresConnection(empty)
    copying.give_up(source, target)
    source.close()
    target.close()
    log = open_log(str(file), FakeSource(seed=4), write=True)
    assert log.append(RUN, log.state(RUN).version, [observed(80)])
    log.connection.close()


def test_another_ledger_or_anything_else_is_left_alone(file: Path, server: Databases, empty: str) -> None:
    name = server.make(server.template())
    target = PostgresConnection(server.url(name))
    target.execute("ALTER TABLE events DISABLE TRIGGER USER")
    target.execute("UPDATE policies SET ledger = 'another'")
    target.close()
    with pytest.raises(LedgerError, match=r"holds another ledger \(another\)"):
        copy(file, server.url(name))
    server.drop(name)
    other = PostgresConnection(empty)
    other.execute("CREATE TABLE theirs (a int)")
    other.close()
    with pytest.raises(SchemaError, match="no ledger database"):
        copy(file, empty)
    assert SqliteConnection(file).moved() == ""
