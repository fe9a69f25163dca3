"""The tick line: what the poller prints of a run, one JSON object as existing readers expect it. Pure."""

from __future__ import annotations

from typing import Any

from ledger.clouds.values import Guest, Probe
from ledger.decide.facts import STALE_SECONDS
from ledger.decide.teardown import current
from ledger.decide.view import View
from ledger.policy import GCP_STANDARD, RUNPOD
from ledger.state.model import Machine, Run

UNKNOWN_AGE = 10**9
NEXT_INTERVAL = 540

_TO_RUNPOD = {
    "queue_timeout": "gcp_queue_timeout_failover_runpod",
    "queue_vanish": "gcp_queue_vanish_failover_runpod",
    "workload_failed": "gcp_workload_failover_runpod_async",
    "wedged": "gcp_workload_failover_runpod_async",
    "boot_loop": "gcp_boot_loop_failover_runpod",
    "no_port": "runpod_noport_wedge_failover_fresh_pod",
}
_TO_ON_DEMAND = {
    "queue_timeout": "queue_timeout_gcp_ondemand_retry",
    "queue_vanish": "queue_vanish_gcp_ondemand_retry",
}
# The names under which old readers know a terminal reason.
_OLD_REASONS = {"launch_unconfirmed": "runpod_workload_start_failed"}
_DONE = {"done": "workload_done", "finalize_failed_artifacts_ok": "workload_done_finalize_failed"}


def missing(issue: int) -> dict[str, Any]:
    """The line of an issue that has no sidecar."""
    line = _line("dead", "missing-sidecar")
    return {**line, "failure_class": "infra", "reason": "missing_handle_sidecar", "issue": issue}


def tick_line(run: Run, view: View) -> dict[str, Any]:
    """The run's line after this tick, from its state and what the tick read."""
    if run.stage == "closed":
        return _closed(run, view)
    if run.failover is not None or _left_this_tick(run, view):
        failover = run.failover or run.failovers[-1]
        if failover.next_rung is not None:
            return {**_line("running", label(run, failover.reason, failover.next_rung)), "issue": run.issue}
    machine = current(run) or run.handle_machine()
    if machine is None:
        return _waiting(run)
    line = _gcp(run, machine, view) if machine.backend == "gcp" else _runpod(run, machine, view)
    return {**line, **_readings(machine, view)}


def label(run: Run, reason: str, rung: str | None) -> str:
    """The phase of a run that is on its way to another machine."""
    intents = [i for i in run.tries() if run.failover is None or i.position > run.failover.position]
    to = intents[-1].rung if intents else rung
    if to == RUNPOD and reason in _TO_RUNPOD:
        return _TO_RUNPOD[reason]
    if to == GCP_STANDARD and reason in _TO_ON_DEMAND:
        return _TO_ON_DEMAND[reason]
    return f"{reason}_failover_{(to or 'none').replace(':', '_').lower()}"


def _left_this_tick(run: Run, view: View) -> bool:
    return bool(run.failovers) and run.failovers[-1].decided_at >= view.now


def _line(status: str, phase: str) -> dict[str, Any]:
    return {
        "status": status,
        "current_phase": phase,
        "new_milestone": False,
        "last_log_mtime_sec_ago": UNKNOWN_AGE,
        "pid_alive": False,
        "log_tail_excerpt": "",
        "gate": None,
        "sentinels_processed": 0,
        "phase_log_mtime_sec_ago": UNKNOWN_AGE,
        "shard_log_mtime_sec_ago": UNKNOWN_AGE,
        "gpu_util": "unknown",
        "next_interval": NEXT_INTERVAL,
        "stall_reason": None,
    }


def _dead(run: Run, phase: str, *, reason: str | None = None, failure_class: str = "infra") -> dict[str, Any]:
    return {
        **_line("dead", f"terminal_{phase}"),
        "failure_class": failure_class,
        "reason": reason or phase,
        "issue": run.issue,
    }


def stalled(phase: str, why: str) -> dict[str, Any]:
    """The line of a run of which nothing can be told now, and why."""
    return {**_line("stalled", phase), "stall_reason": why}


def _closed(run: Run, view: View) -> dict[str, Any]:
    if run.outcome == "finished":
        return _line("done", run.reason or "workload_done")
    reason = run.reason or "closed"
    reason = _OLD_REASONS.get(reason, reason)
    machine = run.handle_machine()
    phase = reason
    if machine is not None and reason in ("machine_lost", "workload_failed", "boot_loop", "no_compute_available"):
        phase = _why_it_left(run, machine, view) or reason
    return _dead(run, phase, reason=reason, failure_class=run.failure_class or "infra")


def _why_it_left(run: Run, machine: Machine, view: View) -> str | None:
    """The old phase of a GCP machine that the run ended on."""
    if machine.backend != "gcp":
        return None
    seen = view.seen.get(machine.id)
    if seen is not None:
        phase = str(_gcp(run, machine, view)["current_phase"])
        if phase.startswith("terminal_"):
            return phase.removeprefix("terminal_")
    left = machine.left_reason
    if left is None and machine.gone_by == "external":
        return "instance not found"  # the spaces are the old readers'
    return {"wedged": "workload_wedged"}.get(left or "", left)


def _waiting(run: Run) -> dict[str, Any]:
    """No machine yet: a create is on its way, or its outcome is not known."""
    tries = run.tries()
    if run.imported is not None and not tries:
        return stalled("describe_failed", "the handle names no machine that the ledger knows")
    if tries and tries[-1].open:
        return _line("running", "waiting_capacity" if tries[-1].stage == "unresolved" else "provisioning")
    return _line("running", "provisioning")


def _gcp(run: Run, machine: Machine, view: View) -> dict[str, Any]:
    seen = view.seen.get(machine.id)
    if seen is None:
        if view.absent(machine.id, machine.backend, machine.account) or not machine.open:
            return _dead(run, "instance not found")
        return stalled("describe_failed", "the cloud could not be read")
    status = seen.status
    if status in ("PENDING", "PROVISIONING", "STAGING"):
        return _line("running", status.lower())
    if status in ("STOPPING", "REPAIRING"):
        return stalled(status.lower(), f"the instance is {status}")
    guest = view.guests.get(machine.id)
    phase = (guest.phase or "") if isinstance(guest, Guest) else (machine.phase or "")
    started = machine.workload_started or machine.launched_at is not None
    unreadable = not isinstance(guest, Guest)
    if status == "RUNNING":
        return _gcp_running(run, machine, phase, started=started or unreadable)
    if status == "TERMINATED":
        return _gcp_terminated(run, phase, started=started)
    if status in ("STOPPED", "SUSPENDED"):
        return _dead(run, status.lower())
    return stalled(f"unknown_{status}", f"status {status} is not known; the machine is taken to be alive")


def _gcp_running(run: Run, machine: Machine, phase: str, *, started: bool) -> dict[str, Any]:
    if phase in _DONE:
        return _line("done", _DONE[phase])
    if phase == "failed":
        return _dead(run, "workload_failed", failure_class="code") if started else _dead(run, "setup_failed")
    if machine.left_reason == "wedged":
        return _dead(run, "workload_wedged")
    return _line("running", phase or "running")


def _gcp_terminated(run: Run, phase: str, *, started: bool) -> dict[str, Any]:
    if phase == "done":
        return _line("done", "workload_done_self_poweroff")
    if phase == "wedged":
        return _dead(run, "wedged_terminated")
    if phase == "failed" and not started:
        return _dead(run, "setup_failed")
    return _dead(run, "terminated")


def _runpod(run: Run, machine: Machine, view: View) -> dict[str, Any]:
    if machine.ended_at is not None:
        if machine.outcome == "crashed":
            return _dead(run, "workload_failed", failure_class="code")
        return _line("done", "workload_done")
    seen = view.seen.get(machine.id)
    if seen is None:
        if view.absent(machine.id, machine.backend, machine.account) or not machine.open:
            return _dead(run, "pod_not_found")
        return stalled("describe_failed", "the cloud could not be read")
    if machine.launch_failed_at is not None and machine.launched_at is None:
        return _dead(run, "runpod_workload_start_failed")
    if seen.status == "EXITED":
        return _dead(run, "pod_exited")
    if seen.status != "RUNNING":
        return stalled(f"unknown_{seen.status}", f"status {seen.status} is not known; the pod is taken to be alive")
    if not seen.ports:
        return _line("running", "runpod_no_port_observed")
    if machine.launched_at is None:
        return _line("running", "launching")
    probe = view.probes.get(machine.id)
    if isinstance(probe, Probe) and (probe.log_age or 0) > STALE_SECONDS and machine.gpus == "idle":
        return stalled("workload", "the log is stale and every GPU is idle")
    return _line("running", "workload")


def _readings(machine: Machine, view: View) -> dict[str, Any]:
    probe = view.probes.get(machine.id)
    found: dict[str, Any] = {}
    seen = view.seen.get(machine.id)
    gpu = seen.gpu_util if seen is not None else None
    if isinstance(probe, Probe):
        gpu = probe.gpu_util if probe.gpu_util is not None else gpu
        found["pid_alive"] = bool(probe.pid_alive)
        found["log_tail_excerpt"] = probe.excerpt
        if probe.log_age is not None:
            found["last_log_mtime_sec_ago"] = int(probe.log_age)
    if gpu is not None:
        found["gpu_util"] = str(gpu)
    return found
