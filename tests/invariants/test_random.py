"""On any log: the audit says the same from the read models and from the events, and a rebuild gives the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.events import LEDGER_STREAM, Draft
from ledger.invariants.audit import Breach, as_of, ask, audit, from_log
from ledger.invariants.history import history
from ledger.log.integrity import verify
from ledger.log.store import Log
from ledger.policy import Policy
from ledger.projections.rebuild import in_memory, rebuild
from tests.strategies import steps
from tests.support import FakeSource, clock, ledger_at, us, write

quick = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@contextmanager
def random_log(made: list[tuple[str, Draft]]) -> Iterator[Log]:
    connection = in_memory()
    try:
        log = Log(connection, FakeSource())
        born = {"ledger": "l", "policy": Policy().to_payload(), "version": "test"}
        log.append(LEDGER_STREAM, 0, [Draft("LedgerCreated", born, us(0), actor="user")])
        write(log, made)
        yield log
    finally:
        connection.close()


@quick
@given(steps())
def test_a_rebuild_gives_the_rows_that_the_appends_made(made: list[tuple[str, Draft]]) -> None:
    with random_log(made) as log:
        assert [str(finding) for finding in verify(log, projections=True)] == []


@quick
@given(steps(), st.sampled_from([0, 1, 1000, 5000]))
def test_the_audit_is_that_of_the_log(made: list[tuple[str, Draft]], later: int) -> None:
    with random_log(made) as log:
        now = clock(log).now() + later * 1_000_000
        found = audit(log, now)
        assert found == from_log(log, now)
        assert found == as_of(log, now)
        assert len({breach.id for breach in found}) == len(found)


@settings(quick, max_examples=15)
@given(steps(20), st.sampled_from([0, 1000]))
def test_the_audit_of_a_file_is_that_of_its_log(made: list[tuple[str, Draft]], later: int) -> None:
    with TemporaryDirectory() as folder, ledger_at(Path(folder) / "random.db") as log:
        write(log, made)
        now = clock(log).now() + later * 1_000_000
        found = audit(log, now)
        assert found == from_log(log, now)
        for event in list(log.read_all())[::4]:
            assert as_of(log, event.recorded_at) == _as_of_a_copy(log, event.recorded_at)
        assert [str(finding) for finding in verify(log, projections=True)] == []


def _as_of_a_copy(log: Log, at: int) -> list[Breach]:
    copy = rebuild(log.read_all(until=at))
    try:
        return ask(copy, at)
    finally:
        copy.close()


@settings(quick, max_examples=25)
@given(steps(15))
def test_what_was_open_once_is_open_or_past(made: list[tuple[str, Draft]]) -> None:
    with random_log(made) as log:
        now = clock(log).now()
        ever: set[str] = set()
        for event in log.read_all():
            ever |= {b.id for b in as_of(log, event.recorded_at)}
        told = {b.id for b in audit(log, now)} | {b.id for b in history(log, now)}
        assert ever <= told
