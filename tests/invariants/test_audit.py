"""The audit around its queries: the files, the log itself, filters, order, and the policy of the time."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from ledger.errors import LedgerError
from ledger.invariants.audit import as_of, audit, from_log
from ledger.invariants.history import history
from ledger.log.integrity import verify
from ledger.log.store import Log
from ledger.policy import Policy
from ledger.projections.rows import SidecarRow
from tests.invariants.cases import ON_POD, WEDGED
from tests.support import (
    OTHER_POD,
    POD,
    RUN,
    VM,
    B,
    acknowledged,
    edited,
    failover,
    observed,
    opened,
    policy_changed,
    provisioned,
    requested,
    torn_down,
    us,
    write,
)

LOSSY = ["lossy-projection"]


def files(log: Log, *rows: SidecarRow, at: float = 100) -> list[tuple[str | None, str, int]]:
    return [(b.run, b.detail, b.since) for b in audit(log, us(at), files=rows, only=LOSSY)]


def test_a_sidecar_as_the_log_has_it_is_no_breach(log: Log) -> None:
    write(log, [*ON_POD, edited(50, backend="gcp")])
    assert files(log, SidecarRow(RUN, "a", "a"), SidecarRow("issue-9", None, None)) == []
    assert files(log) == []
    assert [b.id for b in audit(log, us(100), only=LOSSY)] == [f"lossy-projection@{RUN}"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (SidecarRow(RUN, "a", "b", us(70)), "differs"),
        (SidecarRow(RUN, "a", None, us(70)), "missing"),
        (SidecarRow(RUN, None, "b", us(70)), "closed"),
        (SidecarRow("issue-9", None, "b", us(70)), "closed"),
    ],
)
def test_a_sidecar_that_is_not_as_the_log_has_it(log: Log, row: SidecarRow, words: str) -> None:
    write(log, ON_POD)
    ((run, detail, since),) = files(log, row)
    assert run == row.stream
    assert words in detail
    assert since == us(70)


def test_a_sidecar_s_money_is_that_of_the_machine_on_which_its_run_is(log: Log) -> None:
    write(log, ON_POD)
    (breach,) = audit(log, us(3620), files=[SidecarRow(RUN, "a", None, us(20))], only=LOSSY)
    assert breach.usd_at_risk == pytest.approx(4.0)
    (unknown_since,) = audit(log, us(3620), files=[SidecarRow(RUN, "a", None)], only=LOSSY)
    assert (unknown_since.age_seconds, unknown_since.usd_at_risk) == (0, 0)


def broken(log: Log) -> list[tuple[str, str | None, str]]:
    return [(b.id, b.run, b.detail) for b in audit(log, us(1000), only=["log-broken"])]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        (f"DELETE FROM events WHERE stream = '{RUN}' AND version = 3", "ends at version 2, the read models at 3"),
        (f"DELETE FROM events WHERE stream = '{RUN}' AND version = 2", "ends at version 3"),
        (f"UPDATE events SET hash = 'x' WHERE stream = '{RUN}' AND version = 3", "differ"),
        (f"UPDATE streams SET version = 2 WHERE stream = '{RUN}'", "the read models at 2"),
        (f"DELETE FROM events WHERE stream = '{RUN}'", "ends at version 0"),
    ],
)
def test_a_stream_that_does_not_fit_is_broken(log: Log, sql: str, words: str) -> None:
    write(log, ON_POD)
    assert broken(log) == []
    with closing(sqlite3.connect(log.connection.where, isolation_level=None)) as raw:
        for trigger in ("events_no_update", "events_no_delete"):
            raw.execute(f"DROP TRIGGER {trigger}")
        raw.execute(sql)
    ((id_, run, detail),) = broken(log)
    assert (id_, run) == (f"log-broken@{RUN}", RUN)
    assert words in detail


def test_a_run_with_an_event_of_a_newer_version_is_told(log: Log) -> None:
    write(log, ON_POD)
    with closing(sqlite3.connect(log.connection.where, isolation_level=None)) as raw:
        raw.execute(
            f"INSERT INTO events SELECT 5, stream, 4, 'x', 'SomethingNewer', 1, {us(30)}, {us(30)}, actor,"
            " correlation_id, attempt, machine, payload, 'h' FROM events WHERE position = 4"
        )
    write(log, [observed(40)])
    assert broken(log) == [
        ("log-broken@5", RUN, "this version cannot read SomethingNewer of the stream: shown, audited, not acted on")
    ]


def test_an_invariant_that_is_none_is_told(log: Log) -> None:
    for ask in (audit, as_of, from_log, history):
        with pytest.raises(LedgerError, match="there is no invariant 'x'; there are unlaunched-machine, "):
            ask(log, us(0), only=["x"])


def test_the_worst_money_comes_first_and_a_run_can_be_asked_alone(log: Log) -> None:
    cheap = provisioned(20, OTHER_POD, B, cost_per_hour=1.0)
    unknown = provisioned(20, "runpod:c", "0198-c", cost_per_hour=None)
    idle = [opened(0, 1420), requested(10, "0198-d", "gcp:FLEX_START"), provisioned(20, VM, "0198-d")]
    write(log, [("issue-1418", opened(0, 1418)), ("issue-1418", requested(10, B)), ("issue-1418", cheap)])
    write(log, [("issue-1419", opened(0, 1419)), ("issue-1419", requested(10, "0198-c")), ("issue-1419", unknown)])
    write(log, [("issue-1420", draft) for draft in idle])
    write(log, ON_POD)
    only = ["unlaunched-machine", "queue-overdue"]
    found = audit(log, us(3620), only=only)
    assert [b.run for b in found] == [RUN, "issue-1418", "issue-1419", "issue-1420"]
    assert [b.usd_at_risk for b in found] == [pytest.approx(4.0), pytest.approx(1.0), None, 0.0]
    assert [b.run for b in audit(log, us(3620), only=only, run="issue-1418")] == ["issue-1418"]


def test_three_machines_of_one_run_are_two_too_many(log: Log) -> None:
    write(log, [*ON_POD, provisioned(100, OTHER_POD), provisioned(200, "runpod:c")])
    found = audit(log, us(3800), only=["double-billing"])
    assert [b.machine for b in found] == [OTHER_POD, "runpod:c"]
    assert [b.usd_at_risk for b in found] == [pytest.approx(4.0 * 3700 / 3600), pytest.approx(4.0)]
    ids = {b.machine: b.id for b in found}
    write(log, [torn_down(3900, OTHER_POD)])
    assert [b.id for b in audit(log, us(3900), only=["double-billing"])] == [ids["runpod:c"]]


def test_the_policy_of_then_is_the_policy_of_then(log: Log) -> None:
    write(log, ON_POD)
    write(log, [("ledger", policy_changed(500, Policy(launch_confirm_seconds=60.0)))])
    only = ["unlaunched-machine"]
    assert not as_of(log, us(499), only)
    assert [b.since for b in as_of(log, us(500), only)] == [us(80)]
    write(log, [("ledger", policy_changed(600, Policy(launch_confirm_seconds=7200.0)))])
    assert not audit(log, us(600), only=only)
    assert [b.until for b in history(log, us(700), only)] == [us(600)]


def test_conduct_is_judged_under_the_policy_of_its_time(log: Log) -> None:
    write(log, [*WEDGED, failover(1900, reason="wedged", evidence=[7])])
    write(log, [("ledger", policy_changed(2000, Policy(wedge_min_ticks=1, wedge_min_span_seconds=0.0)))])
    assert [b.id for b in audit(log, us(2100), only=["thin-evidence"])] == ["thin-evidence@8"]
    assert verify(log, projections=True) == []


def test_the_earlier_of_two_acknowledgements_counts(log: Log) -> None:
    write(log, [*WEDGED, failover(1900, reason="wedged", evidence=[7])])
    write(log, [acknowledged(2000, "thin-evidence@8"), ("ledger", acknowledged(2100, "thin-evidence@8"))])
    assert [(b.status, b.until) for b in history(log, us(2200), ["thin-evidence"])] == [("acknowledged", us(2000))]
    assert verify(log, projections=True) == []


def test_a_breach_that_comes_and_goes_twice_is_past_twice(log: Log) -> None:
    looks = [observed(100, ports="1:22"), observed(200, ports="1:23"), observed(300, ports="1:22")]
    write(log, [*ON_POD, *looks, observed(400, ports="1:24"), observed(500, ports="1:22")])
    past = history(log, us(600), ["stale-fact"], run=RUN)
    assert [(b.id, b.until) for b in past] == [("stale-fact@8", us(500)), ("stale-fact@6", us(300))]
    assert [b.usd_at_risk for b in past] == [pytest.approx(4.0 * 100 / 3600)] * 2
    assert history(log, us(600), ["stale-fact"], run="issue-9") == []
    assert past[0].machine == POD


def test_an_audit_loads_no_library_that_it_does_not_need(log: Log) -> None:
    write(log, ON_POD)
    code = (
        "import sys; from ledger.log.open import open_log; from ledger.invariants.audit import audit;"
        "from ledger.source import SystemSource; s = SystemSource();"
        f"print(len(audit(open_log({log.connection.where!r}, s), s.now())), 'sqlalchemy' in sys.modules,"
        "'pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[1:] == ["False", "False"]
