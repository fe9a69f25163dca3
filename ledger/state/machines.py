"""The fold of what happens to machines: seen, launched, ended, torn down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledger.events import Event
from ledger.moments import MICROS
from ledger.state.model import ENDED_STATUSES, Decision, Machine, Run, Step
from ledger.state.transitions import machine_step

LIVE_PHASES = ("workload",)


def _enter(run: Run, event: Event) -> Machine | None:
    """The event's machine, its stage advanced; None (and an odd row) where the run does not know it."""
    machine = run.machines.get(event.machine or "")
    stage = machine.stage if machine else "none"
    after, allowed = machine_step(stage, event.type)
    if not allowed:
        run.odd.append(
            (event.position, event.type, stage, event.attempt, event.machine, event.occurred_at, run.generation)
        )
    if machine is not None:
        machine.stage = after
    return machine


def decided(run: Run, event: Event, payload: dict[str, Any], reason: str) -> Decision:
    """Note the decision, with how the machine it concerns stood."""
    noted = decision(run.machines.get(event.machine or ""), run.generation, event, payload, reason)
    run.decisions.append(noted)
    return noted


def decision(machine: Machine | None, generation: int, event: Event, payload: dict[str, Any], reason: str) -> Decision:
    """The decision that `event` is, as the machine it concerns stood when it was taken."""
    idles = machine.idles if machine else []
    return Decision(
        position=event.position,
        type=event.type,
        attempt=event.attempt,
        machine=event.machine,
        reason=reason,
        at=event.occurred_at,
        actor=event.actor,
        evidence=tuple(payload.get("evidence") or ()),
        claim=machine.claim if machine else "none",
        idle_reads=len(idles),
        # Another clock may have made the last reading: what counts is how far the readings are apart.
        idle_span=max(event.occurred_at, idles[-1][1]) - idles[0][1] if idles else 0,
        generation=generation,
    )


def resurface(machine: Machine) -> None:
    """It was thought gone and is there: the look erred, its obligations stand again."""
    machine.gone_at = None
    machine.gone_by = None
    machine.absent_at = None
    if machine.stage == "gone":
        machine.stage = "leaving" if machine.teardown else "left" if machine.left_at is not None else "known"


def see_status(machine: Machine, status: str, at: int, position: int) -> None:
    """A good read of its status."""
    if machine.status is None and status in ENDED_STATUSES and machine.claim in ("import", "user"):
        machine.ended_before = True
    if status != machine.status:
        machine.status_since = at
    machine.status, machine.status_at, machine.status_pos = status, at, position
    if machine.gone_at is not None or machine.absent_at is not None:
        resurface(machine)
        machine.billed_until = None
    if machine.backend == "gcp":
        machine.queued = status == "PENDING"
        if status != "PENDING":
            machine.queue_since = None
            if machine.past_pending_at is None:
                machine.past_pending_at = at
                if machine.bound_began is None:
                    machine.bound_began, machine.bound_pos = at, position
        if status == "RUNNING":
            machine.billed_since = machine.billed_since if machine.billed_since is not None else at
            machine.billed_until = None
    elif status not in ENDED_STATUSES:
        machine.billed_until = None
    if status in ENDED_STATUSES and machine.billed_since is not None and machine.billed_until is None:
        machine.billed_until = at


def observe(machine: Machine, event: Event, payload: dict[str, Any]) -> None:
    """MachineObserved: a field that is None was not told; ports "" and phase "" were read as none."""
    at, position = event.occurred_at, event.position
    machine.observed = True
    machine.observed_pos = position
    if payload.get("status"):
        see_status(machine, payload["status"], at, position)
    phase = payload.get("phase")
    if phase is not None and phase != (machine.phase or ""):
        machine.phase, machine.phase_at, machine.phase_pos = phase or None, at, position
    if payload.get("workload_started") is not None:
        machine.workload_started = payload["workload_started"]
    _ports(machine, payload.get("ports"), at, position)
    machine.gpus, machine.gpus_pos = payload.get("gpus") or "unknown", position
    machine.gpu_util = payload.get("gpu_util")
    if payload.get("log") not in (None, "unknown"):
        machine.log, machine.log_pos = payload["log"], position
        age = payload.get("log_age")
        machine.last_line_at = at - round(age * MICROS) if age is not None else machine.last_line_at
    if payload.get("pid") is not None:
        machine.pid = payload["pid"]
    if payload.get("pid_alive") is not None:
        machine.pid_alive = payload["pid_alive"]
    suspect = payload.get("suspect") or 0
    if suspect <= 1:
        machine.suspects = []
    if suspect:
        machine.suspects.append((position, at))
    machine.suspect = suspect
    _model(machine, payload)
    machine.zone = payload.get("zone") or machine.zone
    if payload.get("cost_per_hour") is not None:
        machine.cost_per_hour = payload["cost_per_hour"]
    live = payload.get("status") in (None, "RUNNING")
    if payload.get("reachable") is True or payload.get("log") not in (None, "unknown") or not live:
        machine.unreached_at = None
    elif payload.get("reachable") is False and machine.unreached_at is None:
        machine.unreached_at, machine.unreached_pos = at, position
    compare_handle(machine, at, position)


def compare_handle(machine: Machine, at: int, position: int) -> None:
    """Note since when what was observed differs from what the handle states; what nobody knows differs from nothing."""
    if not (
        (machine.model != machine.handle_model and machine.model is not None and machine.handle_model is not None)
        or (machine.zone != machine.handle_zone and machine.zone is not None and machine.handle_zone is not None)
        or (machine.ports != machine.handle_ports and machine.ports is not None and machine.handle_ports is not None)
    ):
        machine.stale_at = None
    elif machine.stale_at is None:
        machine.stale_at, machine.stale_pos = at, position


def _model(machine: Machine, payload: dict[str, Any]) -> None:
    machine.model = payload.get("provisioning_model") or machine.model
    if machine.claim == "import" and machine.backend == "gcp" and machine.model:
        # An old handle says a wish, or nothing: on which rung the machine really is, the cloud says.
        machine.rung = f"gcp:{machine.model}"


def _ports(machine: Machine, ports: str | None, at: int, position: int) -> None:
    if ports is None:
        return
    machine.ports = ports or None
    if ports:
        machine.portless_since = None
        machine.handle_ports = machine.handle_ports or ports
    elif machine.portless_since is None:
        machine.portless_since, machine.portless_pos = at, position


def orphan(machine: Machine, event: Event, payload: dict[str, Any]) -> None:
    """OrphanObserved: a machine that no intent of ours made. Unknown use is not idle, and ends a row of idle reads."""
    machine.claim = "orphan"
    machine.backend = payload["backend"]
    machine.account = payload["account"]
    machine.name = payload["name"]
    machine.zone = payload.get("zone") or machine.zone
    machine.cost_per_hour = payload.get("cost_per_hour", machine.cost_per_hour)
    machine.created_at = payload.get("created_at") or machine.created_at
    machine.gpu_util = payload.get("gpu_util")
    machine.marker = payload.get("marker")
    if not machine.known_pos:
        machine.known_at, machine.known_pos = event.occurred_at, event.position
    status = payload["status"]
    if machine.backend == "runpod" and machine.billed_since is None and status not in ENDED_STATUSES:
        machine.billed_since = machine.created_at or event.occurred_at
    see_status(machine, status, event.occurred_at, event.position)
    if payload.get("gpu_util") == 0 and payload.get("workload") is not True:
        machine.idles.append((event.position, event.occurred_at))
    else:
        machine.idles.clear()


def leave(machine: Machine, event: Event, payload: dict[str, Any]) -> None:
    """TeardownRequested, TeardownFailed, TornDown."""
    at, position = event.occurred_at, event.position
    if event.type == "TeardownRequested":
        count = machine.teardown.count + 1 if machine.teardown else 1
        machine.teardown = Step(position, at, payload["call_before"], payload["deadline"], payload["holder"], count)
        machine.teardown_reason = payload["reason"]
        if machine.teardown_first_at is None or machine.gone_at is not None:
            machine.teardown_first_at, machine.teardown_first_pos = at, position
        if machine.gone_at is not None:
            machine.gone_at = machine.absent_at = None
    elif event.type == "TeardownFailed":
        machine.teardown_failures = payload["count"]
        machine.teardown_error = payload["error_class"]
        machine.teardown_failed_at = at
    else:
        machine.gone_at, machine.gone_pos, machine.gone_by = at, position, payload["by"]
        if machine.billed_since is not None and machine.billed_until is None:
            machine.billed_until = at


def _machine_observed(run: Run, event: Event, payload: dict[str, Any]) -> None:
    machine = _enter(run, event)
    if machine is None:
        return
    was_queued = machine.queued
    observe(machine, event, payload)
    failover = run.failover
    if failover and failover.machine == machine.id and was_queued and not machine.queued:
        failover.base_at, failover.base_pos = event.occurred_at, event.position


def _absence_observed(run: Run, event: Event, payload: dict[str, Any]) -> None:
    machine = _enter(run, event)
    if machine is None:
        return
    if payload["scope"] == "both" and machine.absent_at is None:
        machine.absent_at, machine.absent_pos = event.occurred_at, event.position
        if machine.billed_since is not None and machine.billed_until is None:
            machine.billed_until = event.occurred_at


def _reconnect_observed(run: Run, event: Event, payload: dict[str, Any]) -> None:
    machine = _enter(run, event)
    if machine is None:
        return
    if payload.get("status"):
        see_status(machine, payload["status"], event.occurred_at, event.position)
        machine.status_at_reconnect = payload["status"]
    machine.observed = True
    machine.reconnected = True
    _model(machine, payload)
    machine.zone = payload.get("zone") or machine.zone
    machine.handle_model = machine.model or machine.handle_model
    machine.handle_zone = machine.zone or machine.handle_zone
    machine.created_at = payload.get("created_at") or machine.created_at
    if payload.get("ports"):
        machine.ports = machine.handle_ports = payload["ports"]
    if machine.ended_at is not None and machine.reconnected_ended_at is None:
        machine.reconnected_ended_at, machine.reconnected_ended_pos = event.occurred_at, event.position
    compare_handle(machine, event.occurred_at, event.position)


def _launch_requested(run: Run, event: Event, payload: dict[str, Any]) -> None:
    machine = _enter(run, event)
    if machine is None:
        return
    count = machine.launch.count + 1 if machine.launch else 1
    machine.launch = Step(
        event.position,
        event.occurred_at,
        payload["call_before"],
        payload["deadline"],
        payload["holder"],
        count,
    )


def _launch_confirmed(run: Run, event: Event, payload: dict[str, Any]) -> None:
    machine = _enter(run, event)
    if machine is None:
        return
    if machine.launched_at is None:
        machine.launched_at, machine.launched_pos = event.occurred_at, event.position
    machine.launch_failed_at = None
    machine.pid = payload.get("pid") or machine.pid
    machine.pid_alive = True if payload.get("pid") else machine.pid_alive
    if machine.last_line_at is None and payload["source"] != "import":
        machine.last_line_at = event.occurred_at


def _launch_failed(run: Run, event: Event, payload: dict[str, Any]) -> None:
    machine = _enter(run, event)
    decided(run, event, payload, payload["reason"]).probe = payload.get("probe")
    if machine is not None:
        machine.launch_failed_at, machine.launch_failed_pos = event.occurred_at, event.position


def _workload_ended(run: Run, event: Event, payload: dict[str, Any]) -> None:
    machine = _enter(run, event)
    if machine is None:
        return
    if machine.ended_at is None:
        machine.ended_at, machine.ended_pos = event.occurred_at, event.position
    machine.outcome = payload["outcome"]
    machine.exit = payload.get("exit")


def _leave(run: Run, event: Event, payload: dict[str, Any]) -> None:
    machine = _enter(run, event)
    if event.type == "TeardownRequested":
        decided(run, event, payload, payload["reason"])
    if machine is not None:
        leave(machine, event, payload)


def _orphan_observed(run: Run, event: Event, payload: dict[str, Any]) -> None:
    if event.machine and event.machine not in run.machines:
        run.machines[event.machine] = Machine(id=event.machine, generation=run.generation, backend=payload["backend"])
    machine = _enter(run, event)
    if machine is not None and (machine.stage == "orphan" or machine.claim == "orphan"):
        orphan(machine, event, payload)


HANDLERS: dict[str, Callable[[Run, Event, dict[str, Any]], None]] = {
    "MachineObserved": _machine_observed,
    "AbsenceObserved": _absence_observed,
    "ReconnectObserved": _reconnect_observed,
    "LaunchRequested": _launch_requested,
    "LaunchConfirmed": _launch_confirmed,
    "LaunchFailed": _launch_failed,
    "WorkloadEnded": _workload_ended,
    "TeardownRequested": _leave,
    "TeardownFailed": _leave,
    "TornDown": _leave,
    "OrphanObserved": _orphan_observed,
}
