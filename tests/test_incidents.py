"""What of the incidents is no scenario's matter; `tests/scenarios/incidents/README.md` says which test holds which."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from ledger.clouds.values import Guest
from ledger.decide.facts import facts
from ledger.errors import StorageError
from ledger.events import Draft
from ledger.log.store import Log
from ledger.policy import Policy
from ledger.state.model import Machine, Run
from tests import support as s
from tests.decide.making import look, pod, run_of, verdict, vm
from tests.poller.scene import scene

DISPATCH = ("dispatch", "--intent", "ft-7b", "--workload-cmd", "bash x", "--issue")

MADE = (s.opened(0, rung="runpod"), s.requested(0), s.provisioned(0))


def _odd(run: Run) -> list[str]:
    """What the transition table did not allow."""
    return [type_ for _, type_, *_ in run.odd]


# 6: an earlier attempt, whatever came of it, leaves nothing on the next one.
EARLIER: dict[str, tuple[Draft, ...]] = {
    "it worked": (s.launched(60, s.POD), s.ended(600)),
    "it was wedged": (s.launched(60), s.observed(900, suspect=1), s.observed(1500, suspect=2)),
    "its launch failed": (s.launch_requested(30), s.launch_failed(1800)),
    "it had no port": (s.observed(100, ports=""), s.failover(1000, s.POD, "no_port")),
    "it died at boot": (s.failover(300, s.POD, "boot_death"),),
    "it vanished": (s.failover(400, s.POD, "queue_vanish"),),
}
AT = 5000.0
QUEUED = (
    s.opened(AT),
    s.requested(AT, s.B, "gcp:FLEX_START"),
    s.provisioned(AT, s.VM, s.B),
    s.observed(AT + 60, s.VM, status="PENDING"),
)
# What differs by the place in the log, and by how often the run was opened.
COUNTED = {"attempt", "generation"}


def _bare(machine: Machine) -> dict[str, Any]:
    values = {f.name: getattr(machine, f.name) for f in fields(machine)}
    return {k: v for k, v in values.items() if k not in COUNTED and not k.endswith("pos") and k != "suspects"}


@pytest.mark.parametrize("earlier", EARLIER)
def test_06_nothing_of_an_earlier_attempt_is_on_the_next(earlier: str) -> None:
    history = (*MADE, *EARLIER[earlier], s.teardown(4000), s.torn_down(4060), s.closed(4060))
    alone, after = run_of(*QUEUED), run_of(*history, *QUEUED)
    assert _bare(after.machines[s.VM]) == _bare(alone.machines[s.VM])
    view = look(AT + 400, gone=[s.VM])
    assert [(d.type, d.machine) for d in facts(after, view, Policy())] == [("AbsenceObserved", s.VM)]
    seen = facts(after, view, Policy())
    assert verdict(run_of(*history, *QUEUED, *seen), view) == "FailoverDecided(queue_vanish>runpod)"


def test_11_machines_of_one_name_are_as_many_as_there_are() -> None:
    ids = [s.POD, s.OTHER_POD, "runpod:third"]
    statuses = ["RUNNING", "RUNNING", "EXITED"]
    orphans = [s.orphan(50, machine, status=status) for machine, status in zip(ids[1:], statuses[1:], strict=True)]
    for order in (orphans, orphans[::-1]):
        run = run_of(s.opened(0, rung="runpod"), s.requested(0), s.provisioned(0, status="RUNNING"), *order)
        assert {m.id: m.status for m in run.machines.values()} == dict(zip(ids, statuses, strict=True))
        assert {m.name for m in run.machines.values()} == {"pod-1417"}


ALIVE = ("PENDING", "PROVISIONING", "STAGING", "RUNNING", "REPAIRING", "STOPPING", "SUSPENDING", "PENDING_STOP")


@pytest.mark.parametrize("status", [*ALIVE, "DEPROVISIONING", "SOMETHING_NEW"])
def test_13_no_status_that_is_not_an_end_ends_anything(status: str) -> None:
    drafts = (s.opened(0), s.requested(0, rung="gcp:FLEX_START"), s.provisioned(0, s.VM))
    view = look(300, vm(status), guest=Guest(None, None))
    run = run_of(*drafts, *facts(run_of(*drafts), view, Policy()))
    assert run.machines[s.VM].open
    assert not run.machines[s.VM].ended_status
    assert verdict(run, view) == "-"


@pytest.mark.parametrize("status", ["UNKNOWN", "CREATED"])
def test_13_nor_does_one_of_a_pod(status: str) -> None:
    drafts = (*MADE, s.launched(60))
    view = look(300, pod(status))
    run = run_of(*drafts, *facts(run_of(*drafts), view, Policy()))
    assert run.machines[s.POD].open
    assert verdict(run, view) == "-"


def test_25_a_launch_told_as_failed_may_be_corrected() -> None:
    run = run_of(*MADE, s.launch_requested(60), s.launch_failed(1800), s.launched(1860))
    assert _odd(run) == []
    assert run.machines[s.POD].stage == "running"


def test_27_a_teardown_that_failed_may_end_in_gone_and_may_be_asked_twice() -> None:
    asked = (s.cancelled(100), s.teardown(100), s.teardown(100), s.teardown_failed(110))
    drafts = (*MADE, *asked, s.absent(900, s.POD), s.torn_down(900))
    run = run_of(*drafts)
    assert _odd(run) == []
    assert not run.machines[s.POD].open
    # Even what the table does not allow gives a state and a row, and the machine stays gone.
    assert _odd(run_of(*drafts, s.launch_requested(950))) == ["LaunchRequested"]


def test_27_a_run_that_cannot_be_read_stops_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with scene(tmp_path, capsys=capsys) as stage:
        for issue in (1, 2):
            assert stage(*DISPATCH, issue, "--backend", "runpod").status == 0
        with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as raw:
            raw.execute(
                "INSERT INTO events SELECT 999, stream, version + 1, 'x', 'SomethingNewer', 1, occurred_at,"
                " recorded_at, actor, correlation_id, attempt, machine, payload, 'h'"
                " FROM events WHERE stream = 'issue-1' ORDER BY version DESC LIMIT 1"
            )
        for _ in range(4):
            stage.host.advance(60)
            polled = stage("poll")
        assert polled.status == 1
        assert "SomethingNewer" in polled.err
        assert "LaunchConfirmed" in stage.types("issue-2")
        assert "LaunchRequested" not in stage.types("issue-1")


def test_28_no_create_is_sent_whose_intent_could_not_be_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Log.append

    def full(self: Log, stream: str, version: int, drafts: Sequence[Draft], *rest: Any) -> Any:
        if any(draft.type == "ProvisionRequested" for draft in drafts):
            raise StorageError("ledger.db: disk full; free some space")
        return append(self, stream, version, drafts, *rest)

    with scene(tmp_path, capsys=capsys) as stage:
        monkeypatch.setattr(Log, "append", full)
        told = stage(*DISPATCH, 1, "--backend", "runpod")
        assert told.status == 4
        assert "disk full; free some space" in told.out + told.err
        assert stage.host.report()["created"] == {"gcp": 0, "runpod": 0}
        monkeypatch.undo()
        # Nothing was lost: the run is open, and the next tick asks for its machine.
        stage.host.advance(60)
        assert stage("poll").status == 0
        assert stage.host.report()["created"] == {"gcp": 0, "runpod": 1}
