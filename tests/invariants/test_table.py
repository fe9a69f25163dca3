"""Each invariant on the smallest log on which it opens: open, past, near miss, as of before, at and after."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ledger.invariants.audit import Breach, as_of, audit, from_log
from ledger.invariants.history import history
from ledger.invariants.registry import ALL
from ledger.log.store import Log
from tests.invariants.cases import CASES, Case
from tests.support import clock, ledger_at, us, write

CONTRACT = [
    "unlaunched-machine",
    "dangling-handle",
    "failover-overdue",
    "unledgered-machine",
    "double-billing",
    "teardown-unconfirmed",
    "queue-overdue",
    "stale-fact",
    "stalled-run",
    "done-but-billing",
    "unwatched",
    "lossy-projection",
    "log-broken",
    "attempt-leak",
    "thin-evidence",
    "skipped-rung",
    "foreign-touch",
    "unprobed-failure",
    "illegal-transition",
]


def asked(log: Log, case: Case, at: float) -> list[Breach]:
    return audit(log, us(at), only=[case.invariant])


def test_the_registry_has_the_contract_s_invariants_in_its_order() -> None:
    assert list(ALL) == CONTRACT
    assert {case.invariant for case in CASES} == set(CONTRACT)
    assert [i.id for i in ALL.values() if i.kind == "conduct"] == CONTRACT[13:]
    assert all(i.about.endswith(".") and i.advice and "\n" not in i.advice for i in ALL.values())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_opens(log: Log, case: Case) -> None:
    write(log, case.script)
    (breach,) = asked(log, case, case.at)
    assert breach.invariant == case.invariant
    assert breach.status == "open"
    assert breach.began == us(case.began)
    assert breach.since == us(case.at) or case.name == "the ports"
    assert breach.evidence == tuple(place + 2 for place in case.evidence)
    assert breach.usd_at_risk == (None if case.usd is None else pytest.approx(case.usd))
    assert breach.advice
    assert "{" not in breach.advice
    assert "`ledger confirm" not in breach.advice or "--pid N" in breach.advice, (
        "a command that can be run as it is told"
    )
    assert breach.detail
    assert breach.about == ALL[case.invariant].about
    assert breach.to_json()["since"].endswith("Z")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_without_its_query_it_does_not(log: Log, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = dataclasses.replace(ALL[case.invariant], sql="SELECT 1 WHERE 1 = 0")
    monkeypatch.setitem(ALL, case.invariant, empty)
    write(log, case.script)
    assert not asked(log, case, case.at)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_stands_still_while_it_is_open(log: Log, case: Case) -> None:
    write(log, case.script)
    (first,) = asked(log, case, case.at)
    (later,) = asked(log, case, case.at + 60)
    assert (first.id, first.since) == (later.id, later.since)
    assert later.age_seconds == first.age_seconds + 60
    assert from_log(log, us(case.at + 60), only=[case.invariant]) == [later]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_near_miss_is_silent(log: Log, case: Case) -> None:
    write(log, case.script if case.near is None else case.near)
    assert not asked(log, case, case.at - 1 if case.near is None else case.at)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_as_of_before_at_and_after(log: Log, case: Case) -> None:
    write(log, [*case.script, *case.closes])
    only = [case.invariant]
    (breach,) = as_of(log, us(case.at), only)
    assert not as_of(log, breach.since - 1, only)
    assert breach.id not in {b.id for b in as_of(log, clock(log).now(), only)}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_closes_it_makes_it_past(log: Log, case: Case) -> None:
    write(log, case.script)
    (breach,) = asked(log, case, case.at)
    assert breach.id not in {b.id for b in history(log, us(case.at))}
    end = write(log, case.closes)[-1].recorded_at
    assert breach.id not in {b.id for b in audit(log, end, only=[case.invariant])}
    past = [b for b in history(log, end + 1) if b.id == breach.id]
    assert [(b.status, b.until, b.invariant) for b in past] == [(case.status, end, case.invariant)]


@pytest.mark.parametrize("path", ["machines", "intents", "runs"])
def test_no_query_walks_a_whole_table(tmp_path: Path, path: str) -> None:
    """What an audit reads grows with what is open: through the partial indexes, or by a key."""
    from ledger.invariants.base import params
    from ledger.invariants.handles import FILES
    from ledger.policy import Policy

    with ledger_at(tmp_path / "plan.db") as log:
        log.connection.execute(FILES)
        bounds = {**params(Policy(), 0), "first": 1, "last": 2}
        for invariant in ALL.values():
            plan = log.connection.query(f"EXPLAIN QUERY PLAN {invariant.sql}", bounds)
            walks = [row[3] for row in plan if row[3].startswith("SCAN") and "INDEX" not in row[3]]
            aliases = {"machines": ("m", "o", "b"), "intents": ("i",), "runs": ("r",)}[path]
            assert not [w for w in walks if w.split()[1] in aliases], (invariant.id, plan)
            assert not [w for w in walks if w.split()[1] in ("e", "n", "d", "v")], (invariant.id, plan)
