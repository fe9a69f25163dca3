"""Each rule of leaving, launching, tearing down and closing: a near miss inside its bound, the first moment past."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger.clouds.values import Guest, Seen, Unknown
from ledger.decide import View
from ledger.decide.facts import facts
from ledger.policy import Policy
from tests import support as s
from tests.decide.making import ALIVE, NOTHING, OUT_OF_REACH, RENT, look, pod, run_of, verdict, vm

FLEX = "gcp:FLEX_START"
QUEUED = (s.opened(0), s.requested(0, rung=FLEX), s.provisioned(1, s.VM))
UP = (*QUEUED, s.observed(60, s.VM, phase="startup"))
WORKING = (*UP, s.observed(120, s.VM, phase="workload"), s.launched(120, s.VM))
POD = (s.opened(0, rung="runpod"), s.requested(0), s.provisioned(0))
RUNS = (*POD, s.observed(60, ports="10.0.0.1:22"), s.launched(90))
ON_DEMAND = (
    s.opened(0, rung="gcp:STANDARD"),
    s.requested(0, rung="gcp:STANDARD"),
    s.provisioned(1, s.VM, provisioning_model="STANDARD", status="PROVISIONING"),
    s.observed(60, s.VM, phase="startup"),
)
STARTUP = Guest("startup", False)


@pytest.mark.parametrize(
    ("at", "view", "expected"),
    [
        (600, {}, "-"),
        (600.001, {}, "FailoverDecided(queue_timeout>runpod) TeardownRequested(queue_timeout) delete"),
        (5000, {"paid": False}, "FailoverDecided(queue_timeout>gcp:STANDARD) TeardownRequested(queue_timeout) delete"),
        (5000, {"may_end": False}, "-"),
    ],
)
def test_a_queue_timeout_counts_from_the_create(at: float, view: dict[str, Any], expected: str) -> None:
    paid = view.pop("paid", True)
    run = run_of(s.opened(0, allow_paid_fallback=paid), *QUEUED[1:], s.reconnected(500, status="PENDING"))
    assert verdict(run, look(at, vm("PENDING"), **view)) == expected


def test_a_queue_timeout_rests_on_a_reading_of_this_tick() -> None:
    assert verdict(run_of(*QUEUED), look(5000, complete=False)) == "-"
    assert verdict(run_of(*UP), look(1000, vm("PROVISIONING"), probe=OUT_OF_REACH)) == "-"


def vanished(at: float, *drafts: Any, **more: Any) -> str:
    """What is decided where the instance is gone, the facts of that tick recorded first."""
    run = run_of(*drafts)
    view = look(at, gone=[s.VM], **more)
    for draft in facts(run, view, Policy()):
        drafts = (*drafts, draft)
    return verdict(run_of(*drafts), view)


@pytest.mark.parametrize(
    ("at", "drafts", "more", "expected"),
    [
        (119.9, QUEUED, {}, "-"),
        (120, QUEUED, {}, "FailoverDecided(queue_vanish>runpod)"),
        (1499, QUEUED, {}, "FailoverDecided(queue_vanish>runpod)"),
        # Never polled, and old: it may have run while nobody looked.
        (1500, QUEUED, {}, "RunClosed(failed/machine_lost)"),
        (5000, (*QUEUED, s.observed(60, s.VM, status="PENDING")), {}, "FailoverDecided(queue_vanish>runpod)"),
        (400, QUEUED, {"complete": False}, "-"),
        (400, UP, {}, "FailoverDecided(taken>runpod)"),
        (400, WORKING, {}, "RunClosed(failed/machine_lost)"),
        (400, (*QUEUED, s.cancelled(10)), {}, "RunClosed(cancelled/cancelled)"),
    ],
)
def test_gone(at: float, drafts: tuple[Any, ...], more: dict[str, Any], expected: str) -> None:
    assert vanished(at, *drafts, **more) == expected


def test_gone_needs_both_a_describe_and_a_complete_list() -> None:
    run = run_of(*QUEUED)
    assert not facts(run, look(400), Policy())
    assert not facts(run, look(400, gone=[s.VM], complete=False), Policy())
    both = facts(run, look(400, gone=[s.VM]), Policy())
    assert [draft.type for draft in both] == ["AbsenceObserved"]


def test_lost_goes_on_where_the_policy_says_so() -> None:
    view = look(400, gone=[s.VM])
    run = run_of(*WORKING, *facts(run_of(*WORKING), view, Policy()))
    assert verdict(run, view, Policy(on_lost="failover")) == "FailoverDecided(lost>runpod)"


@pytest.mark.parametrize(
    ("drafts", "phase", "started", "status", "expected"),
    [
        (WORKING, "failed", True, "RUNNING", "workload_failed>runpod"),
        (WORKING, "failed", True, "TERMINATED", "workload_failed>runpod"),
        (WORKING, "wedged", True, "TERMINATED", "workload_failed>runpod"),
        (UP, "failed", False, "RUNNING", f"boot_death>{FLEX}"),
        (UP, "failed", False, "TERMINATED", f"boot_death>{FLEX}"),
        (UP, "startup", False, "TERMINATED", f"boot_death>{FLEX}"),
    ],
)
def test_the_guest_says_that_it_failed(drafts: Any, phase: str, started: bool, status: str, expected: str) -> None:
    run = run_of(*drafts, s.observed(300, s.VM, status=status, phase=phase, workload_started=started))
    said = verdict(run, look(300, vm(status), guest=Guest(phase, started)))
    assert f"FailoverDecided({expected})" in said
    assert said.endswith("delete")


@pytest.mark.parametrize(("ended", "expected"), [(1559, "boot_death"), (1560, "taken")])
def test_an_instance_that_ended_young_died_at_boot(ended: float, expected: str) -> None:
    run = run_of(*UP, s.observed(ended, s.VM, status="TERMINATED"))
    assert f"FailoverDecided({expected}>" in verdict(run, look(ended, vm("TERMINATED")))


def test_two_boot_deaths_in_a_row_on_one_rung_are_a_boot_loop() -> None:
    second = f"gcp:{s.PROJECT}/us-central1-a/4200000000000000002"
    run = run_of(
        *UP,
        s.failover(300, s.VM, "boot_death"),
        s.teardown(300, s.VM, "boot_death"),
        s.torn_down(360, s.VM),
        s.requested(360, s.B, FLEX),
        s.provisioned(361, second, s.B),
        s.observed(420, second, phase="failed", workload_started=False),
    )
    shown = replace(vm(), machine=second)
    assert "FailoverDecided(boot_loop>runpod)" in verdict(run, look(420, shown, guest=Guest("failed", False)))


@pytest.mark.parametrize(
    ("unreachable", "at", "expected"),
    [
        ((1100,), 1100, "-"),
        ((1100, 1579), 1579, "-"),
        ((1100, 1580), 1580, "FailoverDecided(wedged>runpod) TeardownRequested(wedged) delete"),
        ((200, 680), 1019, "-"),  # long enough out of reach, and the phase moved only at 120
        ((200, 680), 1020, "FailoverDecided(wedged>runpod) TeardownRequested(wedged) delete"),
    ],
)
def test_a_wedge_needs_ticks_a_span_and_a_frozen_phase(unreachable: Any, at: float, expected: str) -> None:
    seen = [s.observed(t, s.VM, phase="workload", suspect=n) for n, t in enumerate(unreachable, 1)]
    run = run_of(*WORKING, *seen)
    assert verdict(run, look(at, vm(), guest=Guest("workload", True), probe=OUT_OF_REACH)) == expected


@pytest.mark.parametrize(
    ("error", "suspect"), [("unreachable", 1), ("timeout", 1), ("reset", 1), ("http_500", 0), ("unauthorized", 0)]
)
def test_an_error_of_the_control_plane_is_no_unreachability(error: str, suspect: int) -> None:
    run = run_of(*WORKING)
    view = look(1100, vm(), guest=Guest("workload", True), probe=Unknown(error))
    suspects = [draft.payload["suspect"] for draft in facts(run, view, Policy())]
    assert max(suspects, default=0) == suspect


@pytest.mark.parametrize(
    ("portless", "before", "expected"),
    [
        (899.9, 0, "-"),
        (900, 0, "FailoverDecided(no_port>runpod) TeardownRequested(no_port) delete"),
        (900, 1, "FailoverDecided(no_port>gcp:STANDARD) TeardownRequested(no_port) delete"),
    ],
)
def test_a_pod_without_a_port(portless: float, before: int, expected: str) -> None:
    drafts: list[Any] = [s.opened(0, rung="runpod", ladder=["runpod", "gcp:STANDARD"])]
    drafts += [s.requested(0), s.provisioned(0, ports="")]
    machine = s.POD
    if before:
        drafts += [s.failover(10, s.POD, "no_port"), s.teardown(10, s.POD, "no_port"), s.torn_down(20)]
        drafts += [s.requested(20, s.B), s.provisioned(20, s.OTHER_POD, s.B)]
        machine = s.OTHER_POD
    drafts.append(s.observed(100, machine, ports=""))
    view = look(100 + portless, pod(machine=machine, ports=None))
    assert verdict(run_of(*drafts), view) == expected


@pytest.mark.parametrize(
    ("at", "probe", "gpus", "expected"),
    [
        (1799.9, NOTHING, "idle", "-"),
        (1800, NOTHING, "idle", "LaunchFailed(launch_unconfirmed)"),
        (1800, NOTHING, "unknown", "LaunchFailed(launch_unconfirmed)"),
        (1800, OUT_OF_REACH, "idle", "LaunchFailed(launch_unconfirmed)"),
        (3599.9, OUT_OF_REACH, "unknown", "-"),
        (3600, OUT_OF_REACH, "unknown", "LaunchFailed(launch_unconfirmed)"),
        (99999, OUT_OF_REACH, "busy", "-"),
        (99999, None, "idle", "-"),  # the probe was not tried
    ],
)
def test_the_bound_of_a_launch(at: float, probe: Any, gpus: str, expected: str) -> None:
    run = run_of(*POD, s.launch_requested(at), s.observed(60, ports="10.0.0.1:22", gpus=gpus))
    assert verdict(run, look(at, pod(), probe=probe)) == expected


def test_the_bound_does_not_pass_where_the_cloud_was_not_read() -> None:
    assert verdict(run_of(*POD), look(99999, complete=False)) == "-"


@pytest.mark.parametrize(
    ("probe", "expected"),
    [
        (ALIVE, "LaunchConfirmed"),
        (replace(ALIVE, log_bytes=0), "-"),
        (replace(NOTHING, gpu_util=100), "-"),  # busy GPUs alone confirm nothing
        (replace(ALIVE, pid_alive=False), "LaunchConfirmed WorkloadEnded(crashed)"),
        (replace(ALIVE, pid_alive=False, done=True), "LaunchConfirmed WorkloadEnded(done)"),
    ],
)
def test_what_confirms_a_launch(probe: Any, expected: str) -> None:
    run = run_of(*POD, s.launch_requested(50), s.observed(60, ports="10.0.0.1:22"))
    assert verdict(run, look(120, pod(), probe=probe)) == expected


def test_a_launch_after_a_failover_re_points_the_handle_in_the_same_append() -> None:
    run = run_of(*QUEUED, s.failover(400), s.requested(400, s.B), s.provisioned(400, s.POD, s.B))
    said = verdict(run, look(500, pod(), probe=ALIVE))
    assert said == "LaunchConfirmed Repointed"


@pytest.mark.parametrize(("at", "expected"), [(149, "-"), (150, "LaunchRequested launch")])
def test_a_launch_whose_outcome_is_unknown_is_sent_again_after_its_deadline(at: float, expected: str) -> None:
    run = run_of(*POD, s.launch_requested(50), s.observed(60, ports="10.0.0.1:22"))
    assert verdict(run, look(at, pod(), probe=NOTHING)) == expected


@pytest.mark.parametrize(
    ("at", "expected"),
    [(5489, "-"), (5490, "TeardownRequested(done) delete")],
)
def test_a_machine_is_kept_for_its_results(at: float, expected: str) -> None:
    assert verdict(run_of(*RUNS, s.ended(90)), look(at, pod())) == expected


@pytest.mark.parametrize(
    ("drafts", "expected"),
    [
        ((*RUNS, s.ended(100), s.teardown(5500), s.torn_down(5560)), "finished/workload_done"),
        ((*RUNS, s.ended(100, outcome="crashed"), s.teardown(5500), s.torn_down(5560)), "failed/workload_failed"),
        ((*POD, s.launch_failed(1800), s.teardown(1800), s.torn_down(1860)), "failed/launch_unconfirmed"),
        ((*RUNS, s.cancelled(100), s.teardown(100), s.torn_down(160)), "cancelled/cancelled"),
        ((*RUNS, s.torn_down(100, by="external")), "failed/machine_lost"),
    ],
)
def test_a_run_closes_once_everything_was_seen_to_be_gone(drafts: Any, expected: str) -> None:
    assert verdict(run_of(*drafts), look(9000)) == f"RunClosed({expected})"
    still_there = [draft for draft in drafts if draft.type != "TornDown"]
    assert "RunClosed" not in verdict(run_of(*still_there), look(9000, pod()))


@pytest.mark.parametrize(
    ("failures", "at", "expected"),
    [
        (1, 719, "-"),
        (1, 720, "TeardownRequested(cancelled) delete"),
        (2, 779, "-"),
        (2, 780, "TeardownRequested(cancelled) delete"),
        (9, 1259, "-"),
        (9, 1260, "TeardownRequested(cancelled) delete"),  # never longer than ten minutes
    ],
)
def test_deletes_back_off_to_ten_minutes(failures: int, at: float, expected: str) -> None:
    tries: list[Any] = []
    for number in range(1, failures + 1):
        tries += [s.teardown(660), s.teardown_failed(660, count=number)]
    run = run_of(*RUNS, s.cancelled(600), *tries)
    assert verdict(run, look(at, pod())) == expected


def test_a_machine_on_its_way_out_is_not_asked_again() -> None:
    run = run_of(*WORKING, s.cancelled(200), s.teardown(200, s.VM))
    assert verdict(run, look(5000, vm("STOPPING"))) == "-"


@pytest.mark.parametrize(
    ("at", "complete", "expected"),
    [
        (119, True, "-"),
        (120, False, "-"),
        (120, True, "ProvisionRefused(absent)"),
    ],
)
def test_a_create_made_nothing_once_it_replied_and_a_good_read_lacks_it(
    at: float, complete: bool, expected: str
) -> None:
    run = run_of(s.opened(0, rung="runpod"), s.requested(0), s.unresolved(0))
    assert verdict(run, look(at, complete=complete)) == expected


@pytest.mark.parametrize(("at", "expected"), [(219, "-"), (220, "ProvisionRefused(absent)")])
def test_without_a_reply_its_deadline_counts(at: float, expected: str) -> None:
    assert verdict(run_of(s.opened(0, rung="runpod"), s.requested(0)), look(at)) == expected


def orphaned(idle: tuple[float, ...], **more: Any) -> tuple[Any, View]:
    at = idle[-1]
    seen: Seen = pod(machine=s.OTHER_POD, gpu_util=0, **more)
    run = run_of(*QUEUED, *(s.orphan(t) for t in idle))
    return run, replace(look(at, vm("PENDING"), seen), named=(seen,))


@pytest.mark.parametrize(
    ("idle", "policy", "more", "expected"),
    [
        ((100, 500), {}, {}, "-"),
        ((100, 999), {}, {}, "-"),
        ((100, 1000), {"queue_wait_seconds": 9999}, {}, "TeardownRequested(orphan_idle) delete"),
        ((100, 1000), {"queue_wait_seconds": 9999, "protect": ("pod-1417",)}, {}, "-"),
        ((100, 1000), {"queue_wait_seconds": 9999}, {"keep_running": True, "had_runtime": True}, "-"),
        ((1000,), {"queue_wait_seconds": 9999}, {}, "-"),
    ],
)
def test_an_idle_orphan(idle: Any, policy: dict[str, Any], more: dict[str, Any], expected: str) -> None:
    run, view = orphaned(idle, **more)
    assert verdict(run, view, Policy(**{"queue_wait_seconds": 9999.0, **policy})) == expected


@pytest.mark.parametrize(
    ("creates", "usd", "expected"),
    [
        (0, None, "ProvisionRequested(runpod) create"),
        (16, None, "ProvisionRequested(runpod) ProvisionRefused(cap)"),
        (0, 10.0, "ProvisionRequested(runpod) create"),
        (0, 9.0, "ProvisionRequested(runpod) ProvisionRefused(cap)"),
    ],
)
def test_the_brakes_on_creates(creates: int, usd: float | None, expected: str) -> None:
    before: list[Any] = [s.opened(0, rung="runpod")]
    for number in range(1, creates + 1):
        before += [s.requested(number, f"old-{number}"), s.refused(number, f"old-{number}")]
    run = run_of(*before, s.closed(100), s.opened(200, rung="runpod"))
    policy = Policy(max_usd_per_hour=usd)
    assert verdict(run, look(300, usd_per_hour=9.0), policy) == expected


def test_paused_and_clocks() -> None:
    opened = run_of(s.opened(0, rung="runpod"))
    assert verdict(opened, look(60, may_create=False)) == "-"
    assert verdict(run_of(*RUNS, s.cancelled(100)), look(120, pod(), may_end=False)) == "-"
    assert verdict(opened, look(60, steady_clock=False)) == "-"


REFUSED = {"no zones": replace(RENT, zones=()), "no account": replace(RENT, gcp_account=None)}


@pytest.mark.parametrize("why", REFUSED)
def test_a_rung_that_is_not_configured_is_refused_not_skipped(why: str) -> None:
    run = run_of(s.opened(0, rung=FLEX))
    expected = f"ProvisionRequested({FLEX}) ProvisionRefused(invalid)"
    assert verdict(run, look(60, rent=REFUSED[why])) == expected.replace(f"({FLEX})", f"({FLEX})")


def test_a_superseded_machine_goes_at_once() -> None:
    """Two machines of one intent: the older stays, the younger goes."""
    run = run_of(*POD, s.provisioned(30, s.OTHER_POD, adopted=True, matched_by="marker", created_at=s.us(5)))
    said = verdict(run, look(60, pod(ports=None), pod(machine=s.OTHER_POD, ports=None)))
    assert said == "TeardownRequested(superseded) delete"


def test_a_machine_of_a_refused_intent_goes_at_once() -> None:
    drafts = (s.opened(0, rung="runpod"), s.requested(0), s.unresolved(0), s.refused(200, cls="absent"))
    late = s.provisioned(300, adopted=True, matched_by="marker")
    run = run_of(*drafts, s.requested(200, s.B, "gcp:STANDARD"), late)
    assert verdict(run, look(300, pod(ports=None))) == "TeardownRequested(superseded) delete"


def test_a_machine_of_a_closed_run_goes_at_once() -> None:
    drafts = (s.opened(0, rung="runpod"), s.requested(0), s.refused(1), s.closed(1))
    run = run_of(*drafts, s.provisioned(300, adopted=True, matched_by="marker"))
    assert verdict(run, look(300, pod(ports=None))) == "TeardownRequested(run_closed) delete"
