"""The simulated clouds: life courses, bills, names, deletes, history, and the world's own measures."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.moments import MICROS
from ledger.policy import Policy
from ledger.sim import machine as read
from ledger.sim import record
from ledger.sim.machine import Machine
from ledger.sim.world import NameTaken, World, key_of_sidecar, stream_of
from tests.sim.making import LEDGER, pod, spec, world


def make(here: World, cloud: str = "gcp", **changes: Any) -> Machine:
    made = here.create(cloud, spec(**changes) if cloud == "gcp" else pod(**changes))
    assert isinstance(made, Machine)
    return made


def course(machine: Machine, here: World, until: int) -> list[tuple[float, str, str | None]]:
    """(second, status, phase) whenever one of them changed."""
    here.advance(until * MICROS)
    steps: list[tuple[float, str, str | None]] = []
    for when, state in zip(machine.times, machine.states, strict=True):
        step = (when / MICROS, "gone" if state.gone else state.status, state.phase)
        if steps and steps[-1][0] == step[0]:
            steps.pop()
        if not steps or steps[-1][1:] != step[1:]:
            steps.append(step)
    return steps


UP = [(0, "PROVISIONING", None), (10, "STAGING", None), (30, "RUNNING", "startup")]


@pytest.mark.parametrize(
    ("text", "model", "expected"),
    [
        ("", "STANDARD", [*UP, (60, "RUNNING", "workload"), (3660, "RUNNING", "done")]),
        ("", "SPOT", [*UP, (60, "RUNNING", "workload"), (3660, "RUNNING", "done")]),
        ("", "FLEX_START", [(0, "PENDING", None)]),
        ("workloads: [{cloud: gcp, nth: 1, does: never_starts}]", "STANDARD", UP),
        (
            "workloads: [{cloud: gcp, nth: 1, does: starts, after: 60, runs: 100, exit: 1}]",
            "STANDARD",
            [*UP, (90, "RUNNING", "workload"), (190, "RUNNING", "failed")],
        ),
        (
            "workloads: [{cloud: gcp, nth: 2, does: never_starts}]",
            "STANDARD",
            [*UP, (60, "RUNNING", "workload"), (3660, "RUNNING", "done")],
        ),
        # A row with becomes or phase ends the default course of both; other fields end nothing.
        (
            "world: [{at: 15, cloud: gcp, name: eps-issue-1, becomes: REPAIRING}]",
            "STANDARD",
            [*UP[:2], (15, "REPAIRING", None)],
        ),
        ("world: [{at: 40, cloud: gcp, name: eps-issue-1, phase: odd}]", "STANDARD", [*UP, (40, "RUNNING", "odd")]),
        (
            "world: [{at: 40, cloud: gcp, name: eps-issue-1, reachable: false}]",
            "STANDARD",
            [*UP, (60, "RUNNING", "workload"), (3660, "RUNNING", "done")],
        ),
        # By a row alone no phase follows; by a workload's rule it does.
        (
            "world: [{at: 50, cloud: gcp, name: eps-issue-1, becomes: RUNNING}]",
            "FLEX_START",
            [(0, "PENDING", None), (50, "RUNNING", None)],
        ),
        (
            (
                "world: [{at: 50, cloud: gcp, name: eps-issue-1, becomes: RUNNING}]\n"
                "workloads: [{cloud: gcp, nth: 1, does: starts, runs: 60}]"
            ),
            "FLEX_START",
            [(0, "PENDING", None), (50, "RUNNING", "startup"), (80, "RUNNING", "workload"), (140, "RUNNING", "done")],
        ),
        (
            (
                "world: [{at: 50, cloud: gcp, name: eps-issue-1, becomes: RUNNING, phase: workload},"
                " {at: 90, cloud: gcp, name: eps-issue-1, becomes: gone}]"
            ),
            "FLEX_START",
            [(0, "PENDING", None), (50, "RUNNING", "workload"), (90, "gone", "workload")],
        ),
    ],
)
def test_the_life_of_an_instance(text: str, model: str, expected: list[tuple[float, str, str | None]]) -> None:
    here = world(text)
    assert course(make(here, model=model), here, 9000) == expected


def test_a_create_rule_says_what_the_machine_starts_as_and_really_is() -> None:
    here = world(
        "calls: [{cloud: gcp, call: create, status: RUNNING}, {cloud: gcp, call: create, provisioning_model: SPOT}]"
    )
    first = here.create("gcp", spec(), here.scenario.calls[0])
    second = here.create("gcp", spec("b", "FLEX_START"), here.scenario.calls[1])
    assert isinstance(first, Machine)
    assert isinstance(second, Machine)
    assert course(first, here, 9000) == [(0, "RUNNING", None)]
    assert second.provisioning_model == "SPOT"
    assert second.state.status == "RUNNING"


def test_a_pod_runs_at_once_shows_its_port_after_thirty_seconds_and_works_when_launched() -> None:
    here = world()
    made = make(here, "runpod")
    assert (made.state.status, made.state.bill) == ("RUNNING", True)
    assert not here.launch(made.key)
    here.advance(30 * MICROS)
    assert read.seen(made, made.state, here.now, 0).ports is not None
    assert here.launch(made.key)
    here.advance(49 * MICROS)
    early = read.probe(made, made.state, here.now)
    assert (early.pid, early.pid_alive, early.log_bytes, early.log_age) == (None, False, 0, None)
    here.advance(60 * MICROS)
    assert here.launch(made.key)
    alive = read.probe(made, made.state, here.now)
    assert (alive.pid_alive, alive.log_age, alive.gpu_util, alive.done) == (True, 0.0, 90, False)
    assert alive.log_bytes
    here.advance(3700 * MICROS)
    done = read.probe(made, made.state, here.now)
    assert (done.pid_alive, done.log_age, done.gpu_util, done.done, done.exit) == (False, 50.0, 0, True, 0)
    assert "[phase=done]" in done.excerpt


def test_a_workload_that_crashes_says_nothing_of_done() -> None:
    here = world("workloads: [{cloud: runpod, does: starts, after: 0, runs: 5, exit: 3}]")
    made = make(here, "runpod")
    here.advance(30 * MICROS)
    here.launch(made.key)
    here.advance(60 * MICROS)
    found = read.probe(made, made.state, here.now)
    assert (found.pid is not None, found.pid_alive, found.done, found.exit) == (True, False, False, 3)


def test_workloads_count_the_pods_that_a_launch_reached() -> None:
    here = world("workloads: [{cloud: runpod, nth: 2, does: never_starts}]")
    one, two, three = (make(here, "runpod") for _ in range(3))
    here.advance(30 * MICROS)
    for made in (two, two, three, one):
        here.launch(made.key)
    here.advance(60 * MICROS)
    assert [read.alive(made, made.state) for made in (two, three, one)] == [True, False, True]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("pid: dead", (False, 10.0, 0)),
        ("gpu_util: 3", (True, 0.0, 3)),
        ("log_age: 2000", (True, 2000.0, 90)),
        ("log_age: null", (True, None, 90)),
        ("gpu_util: null", (True, 0.0, None)),
    ],
)
def test_rows_set_what_stays_as_set(row: str, expected: tuple[bool, float | None, int | None]) -> None:
    here = world(f"world: [{{at: 100, cloud: runpod, name: pod-1, {row}}}]")
    made = make(here, "runpod")
    here.advance(30 * MICROS)
    here.launch(made.key)
    here.advance(110 * MICROS)
    found = read.probe(made, made.state, here.now)
    assert (found.pid_alive, found.log_age, found.gpu_util) == expected
    here.advance(9000 * MICROS)
    assert read.probe(made, made.state, here.now).done is (row not in {"pid: dead", "log_age: null"})


def test_a_row_by_name_means_the_youngest_that_is_not_gone_and_by_id_that_one() -> None:
    here = world(
        "machines: [{cloud: runpod, name: pod-1, id: old}]\n"
        "world: [{at: 5, cloud: runpod, name: pod-1, becomes: gone}, {at: 6, cloud: runpod, id: old, becomes: EXITED},"
        " {at: 7, cloud: runpod, name: nobody, becomes: gone}, {at: 8, cloud: runpod, name: pod-1, becomes: gone}]"
    )
    young = make(here, "runpod")
    old = here.known("runpod:old")
    assert old is not None
    here.advance(5 * MICROS)
    assert (young.state.gone, old.state.gone) == (True, False)
    here.advance(7 * MICROS)
    assert old.state.status == "EXITED"
    here.advance(8 * MICROS)
    assert old.state.gone


def test_names_are_unique_in_a_zone_for_instances_only() -> None:
    here = world("zones: [a, b]")
    first = make(here, zone="a")
    again = here.create("gcp", spec(zone="a", attempt="2"))
    assert isinstance(again, NameTaken)
    assert again.machine is first
    assert here.create("gcp", spec(zone="a")) is first  # the same request id makes no second one
    make(here, zone="b", attempt="3")
    make(here, "runpod")
    make(here, "runpod")
    assert here.created == {"gcp": 2, "runpod": 2}
    assert len({machine.key for machine in here.machines}) == 4


@pytest.mark.parametrize(
    ("after", "model", "expected"),
    [
        (5, "FLEX_START", [(0, "PENDING", None), (5, "gone", None)]),
        (5, "STANDARD", [(0, "PROVISIONING", None), (5, "STOPPING", None), (35, "gone", None)]),
        (40, "STANDARD", [*UP, (40, "STOPPING", "startup"), (70, "gone", "startup")]),
    ],
)
def test_deletes_of_instances(after: int, model: str, expected: list[tuple[float, str, str | None]]) -> None:
    here = world()
    made = make(here, model=model)
    here.advance(after * MICROS)
    assert here.delete(made.key)
    assert here.delete(made.key) is not made.state.gone
    assert course(made, here, 9000) == expected
    assert not here.delete(made.key)


def test_bills() -> None:
    here = world(
        "world: [{at: 100, cloud: gcp, name: eps-issue-1, becomes: TERMINATED},"
        " {at: 200, cloud: gcp, name: eps-issue-1, becomes: RUNNING},"
        " {at: 300, cloud: gcp, name: eps-issue-1, becomes: STOPPING},"
        " {at: 310, cloud: gcp, name: eps-issue-1, becomes: STOPPED},"
        " {at: 50, cloud: runpod, name: pod-1, becomes: EXITED}]"
    )
    instance, pod_ = make(here), make(here, "runpod")
    here.advance(1000 * MICROS)
    second = MICROS
    assert instance.billed(here.now) == [(30 * second, 100 * second), (200 * second, 310 * second)]
    assert pod_.billed(here.now) == [(0, 50 * second)]
    assert record.live(here, 40 * second) == ["gcp/eps-issue-1", "runpod/pod-1"]
    assert record.live(here, 20 * second) == ["runpod/pod-1"]
    assert record.live(here, here.now) == []
    assert record.max_unlaunched(here, here.now) == 50
    assert record.max_double(here, here.now) == 20
    assert [row["machine"] for row in record.billing(here, here.now)] == [instance.key, instance.key, pod_.key]


def test_an_instance_is_in_vain_until_its_workload_lives() -> None:
    here = world()
    make(here)
    here.advance(500 * MICROS)
    assert record.max_unlaunched(here, here.now) == 30
    assert record.billing(here, here.now) == [
        {"machine": here.machines[0].key, "from": 30.0, "to": None, "unlaunched_seconds": 30.0}
    ]


def test_machines_of_others_are_no_measure_of_ours() -> None:
    here = world(
        "machines: [{cloud: runpod, name: pod-1, marker: none}, {cloud: runpod, name: pod-1, marker: ours},"
        " {cloud: runpod, name: pod-1, marker: other}]"
    )
    here.advance(500 * MICROS)
    assert (record.max_unlaunched(here, here.now), record.max_double(here, here.now)) == (0, 0)
    markers = [machine.marker for machine in here.machines]
    assert markers[0] is None
    assert markers[1] is not None
    assert markers[1].startswith(f"{LEDGER}.issue-1.")
    assert markers[1].endswith(".1")
    assert markers[2] is not None
    assert LEDGER not in markers[2]
    assert here.created == {"gcp": 0, "runpod": 0}


def test_a_machine_that_appears_with_our_marker_fits_the_intent_that_asked_for_its_name() -> None:
    here = world("world: [{at: 5, cloud: runpod, appears: pod-1, marker: ours, id: x1}]")
    here.asked("runpod", pod())
    here.advance(5 * MICROS)
    assert here.machines[0].marker == pod().marker
    assert here.machines[0].key == "runpod:x1"


def test_what_was_there_before() -> None:
    here = world(
        "machines: [{cloud: runpod, name: pod-1, id: p, gpu_util: 0},"
        " {cloud: gcp, name: eps-issue-1, id: 77, workload: true}, {cloud: runpod, name: w, workload: true},"
        " {cloud: gcp, name: q, provisioning_model: FLEX_START}]"
    )
    idle, instance, busy, queued = (
        (m, read.seen(m, m.state, 0, here.start)) for m, _ in ((m, 0) for m in here.machines)
    )
    assert (idle[1].status, idle[1].gpu_util, idle[1].ports is None, idle[1].had_runtime) == ("RUNNING", 0, False, True)
    assert instance[1].machine == "gcp:example-gpu-project/us-central1-a/77"
    assert read.alive(instance[0], instance[0].state)
    assert instance[0].state.workload_started is True
    assert busy[1].gpu_util == 90
    assert queued[1].status == "PENDING"
    assert idle[1].created_at == here.start - 3600 * MICROS


def test_the_past_is_kept() -> None:
    here = world("world: [{at: 50, cloud: gcp, name: eps-issue-1, becomes: gone}]")
    make(here)
    here.advance(60 * MICROS)
    assert here.existing("gcp", here.now) == []
    assert [state.status for _, state in here.existing("gcp", 20 * MICROS)] == ["STAGING"]
    assert here.existing("gcp", -1) == []


@pytest.mark.parametrize(
    ("sidecar", "key"),
    [
        ({"backend": "gcp", "job_id": "7", "extra": {}}, "gcp:example-gpu-project/z/7"),
        ({"backend": "gcp", "job_id": "7", "extra": {"project": "p", "zone": "y"}}, "gcp:p/y/7"),
        ({"backend": "gcp", "job_id": "", "extra": {}}, None),
        ({"backend": "runpod", "job_id": "", "extra": {"pod_id": "q"}}, "runpod:q"),
        ({"backend": "fir", "job_id": "9", "extra": {}}, None),
    ],
)
def test_whom_a_sidecar_names(sidecar: dict[str, Any], key: str | None) -> None:
    assert key_of_sidecar(sidecar, "z") == key


def test_a_sidecar_is_stale_from_the_end_of_its_machine() -> None:
    here = world("world: [{at: 50, cloud: runpod, name: pod-1, becomes: gone}]")
    made = make(here, "runpod")
    clock = record.StaleClock(here)
    files = {"f": {"backend": "runpod", "extra": {"pod_id": made.id}}}
    for second in (0, 40, 100, 160):
        here.advance(second * MICROS)
        clock.look(files, here.now, count=second != 160)
    assert clock.longest == 50 * MICROS
    clock.look({"g": files["f"]}, 500 * MICROS, count=True)
    assert clock.longest == 50 * MICROS  # another file: stale only since it names it
    clock.look({"g": {"backend": "runpod", "extra": {"pod_id": "never"}}}, 500 * MICROS, count=True)
    clock.look({"g": {"backend": "runpod", "extra": {"pod_id": "never"}}}, 590 * MICROS, count=True)
    assert clock.longest == 90 * MICROS


def test_streams_of_names() -> None:
    policy = Policy()
    assert stream_of(policy, "gcp", "eps-issue-12-armb") == "issue-12-armb"
    assert stream_of(policy, "runpod", "pod-12") == "issue-12"
    assert stream_of(policy, "runpod", "someone-else") is None
