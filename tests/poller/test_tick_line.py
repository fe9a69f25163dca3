"""The tick line for every GCE status and guest phase, through the poller, with a rung left to go to and with none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.poller.conftest import MakeScene

BASE = {
    "status",
    "current_phase",
    "new_milestone",
    "last_log_mtime_sec_ago",
    "pid_alive",
    "log_tail_excerpt",
    "gate",
    "sentinels_processed",
    "phase_log_mtime_sec_ago",
    "shard_log_mtime_sec_ago",
    "gpu_util",
    "next_interval",
    "stall_reason",
}
DEAD = BASE | {"failure_class", "reason", "issue"}
VANISHED = ("running", "gcp_queue_vanish_failover_runpod")
FAILED = ("running", "gcp_workload_failover_runpod_async")
BOOT_LOOP = ("running", "gcp_boot_loop_failover_runpod")
# What the instance becomes, the line with nothing left, and the line with RunPod left (None: the same).
TABLE: list[tuple[str, tuple[str, str], tuple[str, str] | None]] = [
    ("becomes: gone", ("dead", "terminal_queue_vanish"), VANISHED),
    ("becomes: PENDING", ("running", "pending"), None),
    ("becomes: PROVISIONING", ("running", "provisioning"), None),
    ("becomes: STAGING", ("running", "staging"), None),
    ("becomes: STOPPING", ("stalled", "stopping"), None),
    ("becomes: REPAIRING", ("stalled", "repairing"), None),
    ("becomes: RUNNING, phase: null", ("running", "running"), None),
    ("becomes: RUNNING, phase: startup", ("running", "startup"), None),
    ("becomes: RUNNING, phase: workload", ("running", "workload"), None),
    ("becomes: RUNNING, phase: other", ("running", "other"), None),
    ("becomes: RUNNING, phase: done", ("done", "workload_done"), None),
    (
        "becomes: RUNNING, phase: finalize_failed_artifacts_ok",
        ("done", "workload_done_finalize_failed"),
        None,
    ),
    ("becomes: RUNNING, phase: failed, workload_started: true", ("dead", "terminal_workload_failed"), FAILED),
    ("becomes: RUNNING, phase: failed", ("dead", "terminal_setup_failed"), BOOT_LOOP),
    ("becomes: TERMINATED, phase: done", ("done", "workload_done_self_poweroff"), None),
    ("becomes: TERMINATED, phase: wedged", ("dead", "terminal_wedged_terminated"), FAILED),
    ("becomes: TERMINATED, phase: failed", ("dead", "terminal_setup_failed"), BOOT_LOOP),
    ("becomes: TERMINATED, phase: failed, workload_started: true", ("dead", "terminal_terminated"), FAILED),
    ("becomes: TERMINATED, phase: null", ("dead", "terminal_terminated"), BOOT_LOOP),
    ("becomes: TERMINATED, phase: startup", ("dead", "terminal_terminated"), BOOT_LOOP),
    ("becomes: TERMINATED, phase: workload", ("dead", "terminal_terminated"), None),
    ("becomes: STOPPED", ("dead", "terminal_stopped"), BOOT_LOOP),
    ("becomes: SUSPENDED", ("dead", "terminal_suspended"), BOOT_LOOP),
    ("becomes: SUSPENDING", ("stalled", "unknown_SUSPENDING"), None),
    ("becomes: PENDING_STOP", ("stalled", "unknown_PENDING_STOP"), None),
    ("becomes: DEPROVISIONING", ("stalled", "unknown_DEPROVISIONING"), None),
]
FIRST = 100  # the issue of the first row


def _lines(make_scene: MakeScene, rows: list[str], ladder: str) -> list[dict[str, Any]]:
    """One run a row, all in one tick; a boot loop is one boot death here, so that the first one ends the rung."""
    issues = range(FIRST, FIRST + len(rows))
    world = [f"{{at: 130, cloud: gcp, name: eps-issue-{n}, {row}}}" for n, row in zip(issues, rows, strict=True)]
    policy = [f"ladder = {ladder}", "boot_death_limit = 1", "max_teardowns_per_tick = 1000"]
    scene = make_scene(f"world: [{', '.join(world)}]", policy=policy)
    for issue in issues:
        dispatched = scene("dispatch", "--issue", issue, "--intent", "ft-7b", "--workload-cmd", "bash x")
        assert dispatched.status == 0, dispatched.err
    scene.host.advance(140)
    polled = scene("poll")
    assert polled.status == 0, polled.err
    lines = [json.loads(line) for line in polled.out.splitlines()]
    assert len(lines) == len(rows)
    return lines


@pytest.mark.parametrize("left", [False, True], ids=["nothing left", "RunPod left"])
def test_every_status_and_phase(left: bool, make_scene: MakeScene) -> None:
    ladder = '["gcp:FLEX_START", "runpod"]' if left else '["gcp:FLEX_START"]'
    lines = _lines(make_scene, [row for row, _, _ in TABLE], ladder)
    wanted = [(second or first) if left else first for _, first, second in TABLE]
    assert [(line["status"], line["current_phase"]) for line in lines] == wanted
    for issue, (line, (row, _, second)) in enumerate(zip(lines, TABLE, strict=True), FIRST):
        failed_over = left and second is not None
        keys = DEAD if line["status"] == "dead" else BASE | {"issue"} if failed_over else BASE
        assert set(line) == keys, row
        assert line.get("issue", issue) == issue
        assert (line["stall_reason"] is None) == (line["status"] != "stalled")
        assert line["last_log_mtime_sec_ago"] == (0 if line["current_phase"] == "workload" else 10**9)
        assert line["next_interval"] == 540
        if line["status"] == "dead":
            code = line["current_phase"] == "terminal_workload_failed"
            assert line["failure_class"] == ("code" if code else "infra")


def test_a_run_that_has_nothing_left_says_why(make_scene: MakeScene) -> None:
    [line] = _lines(make_scene, ["becomes: gone"], '["gcp:FLEX_START"]')
    assert (line["reason"], line["failure_class"]) == ("no_compute_available", "infra")


def test_an_instance_that_was_up_and_is_gone(make_scene: MakeScene) -> None:
    scene = make_scene(
        "world: [{at: 30, cloud: gcp, name: eps-issue-7, becomes: RUNNING, phase: workload},"
        " {at: 130, cloud: gcp, name: eps-issue-7, becomes: gone}]"
    )
    scene("dispatch", "--issue", 7, "--intent", "ft-7b", "--workload-cmd", "bash x")
    scene.host.advance(60)
    assert scene.backend_poll(7).line["current_phase"] == "workload"
    scene.host.advance(80)
    line = scene.backend_poll(7).line
    assert (line["status"], line["current_phase"]) == ("dead", "terminal_instance not found")
    assert set(line) == DEAD


def test_a_cloud_that_cannot_be_read(make_scene: MakeScene) -> None:
    scene = make_scene(
        "calls: [{cloud: gcp, call: list, answer: timeout}, {cloud: gcp, call: describe, answer: error, http: 503}]"
    )
    scene("dispatch", "--issue", 7, "--intent", "ft-7b", "--workload-cmd", "bash x")
    scene.host.advance(60)
    line = scene.backend_poll(7).line
    assert (line["status"], line["current_phase"], set(line)) == ("stalled", "describe_failed", BASE)
    assert line["stall_reason"]


def test_a_pod(make_scene: MakeScene) -> None:
    scene = make_scene("workloads: [{cloud: runpod, does: starts, after: 50, runs: 100}]")
    scene("dispatch", "--issue", 7, "--backend", "runpod", "--intent", "ft-7b", "--workload-cmd", "bash x")
    lines = []
    for seconds in (10, 50, 60, 60, 60):
        scene.host.advance(seconds)
        lines.append(scene.backend_poll(7).line)
    assert [(line["status"], line["current_phase"]) for line in lines] == [
        ("running", "runpod_no_port_observed"),
        ("running", "launching"),
        ("running", "workload"),
        ("running", "workload"),
        ("done", "workload_done"),
    ]
    assert lines[2]["pid_alive"] is True
    assert lines[2]["gpu_util"] == "90"
    assert lines[2]["log_tail_excerpt"] == "step"
    assert all(set(line) == BASE for line in lines)
