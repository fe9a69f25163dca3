"""Fixtures of all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.log.store import Log
from tests.support import ledger_at


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A new ledger on a temporary SQLite file, its clock in the test's hand (`tests.support.clock`)."""
    with ledger_at(tmp_path / "ledger.db") as made:
        yield made
