"""The whole ledger on PostgreSQL: every scenario is held as on SQLite, event for event; random ones hold the truths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.sim.program import TheProgram
from ledger.sim.rehearse import rehearse
from ledger.sim.scenario import load
from ledger.sim.scratch import scratch
from ledger.sim.search import search
from tests.server import Databases
from tests.test_scenarios import FILES, _name, outcome

RANDOM = 200
PART = 50


@pytest.fixture(scope="session")
def admin(server: Databases) -> Iterator[str]:
    url = server.url("postgres")
    yield url
    scratch(url).drop()


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_a_scenario_is_held_as_on_sqlite(path: Path, admin: str) -> None:
    result = rehearse(load(path), 0, TheProgram(server=admin))
    assert result.failures == ()
    assert result.truths == ()
    assert told(result.facts.events) == told(outcome(path).facts.events)


def told(events: Any) -> list[tuple[Any, ...]]:
    """What was recorded of each stream, but for the positions: a conflict leaves a gap on a server."""
    return sorted(
        (e["stream"], e["version"], e["type"], e["occurred_at"], e["recorded_at"], e["machine"]) for e in events
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(RANDOM // PART))
def test_random_scenarios_hold_the_truths(seed: int, admin: str) -> None:
    report = search(PART, 1000 + seed, twice=PART, server=admin)
    assert [str(failure) for failure in report.failures] == []
    assert report.events > 10 * PART
