"""Fixtures of all tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.log.open import open_log
from ledger.log.store import Log
from tests.support import FakeSource, ledger_at


@pytest.fixture(scope="session")
def born(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger's database right after its birth, to copy: a migration takes longer than most tests."""
    path = tmp_path_factory.mktemp("born") / "ledger.db"
    with ledger_at(path):
        pass
    return path


@pytest.fixture
def log(tmp_path: Path, born: Path) -> Iterator[Log]:
    """A new ledger on a temporary SQLite file, its clock in the test's hand (`tests.support.clock`)."""
    path = tmp_path / "ledger.db"
    shutil.copyfile(born, path)
    made = open_log(f"sqlite:///{path}", FakeSource(seed=1))
    yield made
    made.connection.close()
