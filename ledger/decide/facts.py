"""Readings → facts: what this tick saw that the log does not say yet. Pure; a fact is made where a band changed."""

from __future__ import annotations

from typing import Any

from ledger.clouds.values import Guest, Probe, Seen, Unknown
from ledger.decide.view import UNREACHABLE, View, micros, seconds
from ledger.events import Draft, parse_marker
from ledger.moments import MICROS
from ledger.policy import Policy
from ledger.state.model import Machine, Run

# A log that has not grown for this long is stale (the old readers' bound for `stalled`).
STALE_SECONDS = 900.0
HOUR = 3600 * MICROS


def facts(run: Run, view: View, policy: Policy) -> list[Draft]:
    """Everything that this tick learned of the run's machines, in the order in which it is to be appended."""
    drafts = _found(run, view, policy)
    for machine in run.machines.values():
        if machine.claim == "orphan":
            drafts += _orphan_gone(machine, view)
            continue
        drafts += _machine(run, machine, view, policy)
    drafts += _orphans(run, view, policy)
    return drafts


def in_window(seen: Seen, requested_at: int, deadline: int, policy: Policy) -> bool:
    """Whether a marked machine was created when its intent could have made it; else it is a clone."""
    if seen.created_at is None:
        return True
    return requested_at - micros(policy.max_clock_skew_seconds) <= seen.created_at <= deadline + HOUR


def clones(run: Run, view: View, policy: Policy) -> list[Seen]:
    """Machines that bear a marker of ours under another name or outside its window: reported, never ended by us."""
    found = []
    for seen in view.marked:
        marker = parse_marker(seen.marker)
        intent = run.intents.get((marker.attempt, marker.attempt_try)) if marker else None
        if intent is None or seen.machine in run.machines:
            continue
        if seen.name != intent.name or not in_window(seen, intent.requested_at, intent.deadline, policy):
            found.append(seen)
    return found


def _found(run: Run, view: View, policy: Policy) -> list[Draft]:
    """Machines of ours that the log does not know yet: recorded at once, by whoever sees them."""
    drafts = []
    strange = {seen.machine for seen in clones(run, view, policy)}
    for seen in view.marked:
        if seen.machine in strange:
            continue
        marker = parse_marker(seen.marker)
        if marker is None or (seen.machine in run.machines and run.machines[seen.machine].claim != "orphan"):
            continue
        intent = run.intents.get((marker.attempt, marker.attempt_try))
        if intent is None:
            known = run.machines.get(seen.machine)
            if known is None or not known.open or known.status != seen.status:
                drafts.append(orphan_draft(seen, view, workload=None))
            continue
        drafts.append(
            provisioned(seen, view.now, marker.attempt, marker.attempt_try, intent.model, matched_by="marker")
        )
    nameless = _nameless(run, view)
    if nameless is not None:
        drafts.append(provisioned(nameless, view.now, run.attempts[0], 1, None, matched_by="import"))
    return drafts


def _nameless(run: Run, view: View) -> Seen | None:
    """The machine of an old handle that names no id which the ledger could use: the one that bears its name.

    Not where several do, nor where the file says another instance id: same name, another id donates nothing.
    """
    if not run.open or run.imported is None or run.mine() or run.tries() or len(view.named) != 1 or not run.attempts:
        return None
    seen = view.named[0]
    job = run.imported.get("job_id")
    if seen.backend != run.backend or (run.backend == "gcp" and job and not seen.machine.endswith(f"/{job}")):
        return None
    return seen


def provisioned(
    seen: Seen, now: int, attempt: str, attempt_try: int, requested_model: str | None, *, matched_by: str
) -> Draft:
    """The Provisioned of a machine as a cloud shows it."""
    return Draft(
        "Provisioned",
        {
            "backend": seen.backend,
            "name": seen.name,
            "zone": seen.zone,
            "account": seen.account,
            "requested_model": requested_model,
            "provisioning_model": seen.provisioning_model,
            "created_at": seen.created_at,
            "cost_per_hour": seen.cost_per_hour,
            "adopted": matched_by != "reply",
            "matched_by": matched_by,
            "try": attempt_try,
            "status": seen.status,
            "ports": seen.ports,
        },
        now,
        attempt=attempt,
        machine=seen.machine,
    )


def _machine(run: Run, machine: Machine, view: View, policy: Policy) -> list[Draft]:
    seen = view.seen.get(machine.id)
    if seen is None:
        return _absence(run, machine, view, policy)
    reading = reading_of(machine, seen, view, policy)
    return [Draft("MachineObserved", reading, view.now, attempt=machine.attempt, machine=machine.id)] if reading else []


def _absence(run: Run, machine: Machine, view: View, policy: Policy) -> list[Draft]:
    if not machine.open or not view.absent(machine.id, machine.backend, machine.account):
        return []
    # Lists lag behind creates; what was asked for only now may not be shown yet.
    born = machine.queue_since if machine.queue_since is not None else machine.created_at or machine.known_at
    age = seconds(view.now - born)
    if age < policy.absence_settle_seconds:
        return []
    drafts = []
    if machine.absent_at is None:
        payload = {"scope": "both", "account": machine.account, "age_seconds": age}
        drafts.append(Draft("AbsenceObserved", payload, view.now, attempt=machine.attempt, machine=machine.id))
    if machine.teardown is not None:
        drafts.append(_torn_down(machine, view, "ledger"))
    elif machine.past_pending_at is not None or machine.launched_at is not None or machine.backend != "gcp":
        drafts.append(_torn_down(machine, view, "external"))
    elif not may_vanish(run, machine, age, policy):
        drafts.append(_torn_down(machine, view, "external" if not machine.observed else "never_materialised"))
    return drafts


def may_vanish(run: Run, machine: Machine, age: float, policy: Policy) -> bool:
    """Whether a queued instance that is absent counts as vanished: the decision to leave it then closes it.

    `age` is in seconds since its create was requested. A run that was never polled counts only while it is young.
    """
    if not run.open or run.cancel_at is not None or machine.left_at is not None:
        return False
    return machine.observed or age < policy.vanish_unpolled_seconds


def _torn_down(machine: Machine, view: View, by: str) -> Draft:
    return Draft("TornDown", {"by": by}, view.now, attempt=machine.attempt, machine=machine.id)


def reading_of(machine: Machine, seen: Seen, view: View, policy: Policy) -> dict[str, Any] | None:
    """The payload of a MachineObserved, or None where no band changed."""
    guest = view.guests.get(machine.id)
    probe = view.probes.get(machine.id)
    reading: dict[str, Any] = {"status": seen.status, "source": "list"}
    if machine.id in view.described:
        reading["source"] = "describe"
    new = seen.status != machine.status or not machine.observed or not machine.open or machine.absent_at is not None
    if seen.provisioning_model and seen.provisioning_model != machine.model:
        reading["provisioning_model"] = seen.provisioning_model
        new = True
    if seen.cost_per_hour is not None and machine.cost_per_hour is None:
        reading["cost_per_hour"] = seen.cost_per_hour
        new = True
    if machine.backend == "runpod" and seen.status == "RUNNING":
        reading["ports"] = seen.ports or ""
        portless = not seen.ports and machine.portless_since is None
        new = new or (seen.ports or None) != machine.ports or portless
    new = _guest(machine, guest, reading) or new
    new = _probe(machine, seen, probe, reading) or new
    new = _suspicion(machine, seen, probe, policy, reading) or new
    return reading if new else None


def _guest(machine: Machine, guest: Guest | Unknown | None, reading: dict[str, Any]) -> bool:
    if not isinstance(guest, Guest):
        return False
    reading["phase"] = guest.phase or ""
    reading["workload_started"] = guest.workload_started
    started = guest.workload_started is not None and guest.workload_started != machine.workload_started
    return started or (guest.phase or None) != machine.phase


def _probe(machine: Machine, seen: Seen, probe: Probe | Unknown | None, reading: dict[str, Any]) -> bool:
    gpu = seen.gpu_util
    new = False
    if isinstance(probe, Probe):
        gpu = probe.gpu_util if probe.gpu_util is not None else gpu
        log = "none" if not probe.log_bytes else "unknown"
        if probe.log_bytes and probe.log_age is not None:
            log = "fresh" if probe.log_age < STALE_SECONDS else "stale"
        reading.update(
            pid=probe.pid, pid_alive=probe.pid_alive, log=log, log_bytes=probe.log_bytes, log_age=probe.log_age
        )
        reading["reachable"] = True
        new = log not in ("unknown", machine.log) or (
            probe.pid_alive is not None and probe.pid_alive != machine.pid_alive
        )
    reading["gpu_util"] = gpu
    reading["gpus"] = "unknown" if gpu is None else "busy" if gpu > 0 else "idle"
    return new or reading["gpus"] != machine.gpus


def _suspicion(
    machine: Machine, seen: Seen, probe: Probe | Unknown | None, policy: Policy, reading: dict[str, Any]
) -> bool:
    """Ticks in a row in which the machine ran and could not be reached; saturated once they would suffice."""
    reading["suspect"] = machine.suspect
    if isinstance(probe, Probe) or seen.status != "RUNNING":
        reading["suspect"] = 0
        return machine.suspect > 0 or machine.unreached_at is not None
    if not isinstance(probe, Unknown) or probe.error == "unsupported":
        return False
    reading["reachable"] = False
    if probe.error not in UNREACHABLE:
        return machine.unreached_at is None  # no sign of a wedge, and yet nobody can look: that is told
    if enough_suspicion(machine, policy):
        return False
    reading["suspect"] = machine.suspect + 1
    return True


def enough_suspicion(machine: Machine, policy: Policy) -> bool:
    """Whether the row of unreachable ticks is long enough, in number and in span."""
    row = machine.suspects
    if len(row) < max(policy.wedge_min_ticks, 1):
        return False
    return seconds(row[-1][1] - row[0][1]) >= policy.wedge_min_span_seconds


def orphan_draft(seen: Seen, view: View, *, workload: bool | None) -> Draft:
    """The OrphanObserved of a machine as a cloud shows it."""
    probe = view.probes.get(seen.machine)
    gpu = seen.gpu_util
    if isinstance(probe, Probe) and probe.gpu_util is not None:
        gpu = probe.gpu_util
    return Draft(
        "OrphanObserved",
        {
            "backend": seen.backend,
            "account": seen.account,
            "name": seen.name,
            "status": seen.status,
            "zone": seen.zone,
            "cost_per_hour": seen.cost_per_hour,
            "marker": seen.marker,
            "gpu_util": gpu,
            "workload": workload,
            "created_at": seen.created_at,
        },
        view.now,
        machine=seen.machine,
    )


def _orphans(run: Run, view: View, policy: Policy) -> list[Draft]:
    drafts = []
    adopted = _nameless(run, view)
    for seen in view.named:
        if seen is adopted:
            continue
        known = run.machines.get(seen.machine)
        if known is not None and known.claim != "orphan":
            continue
        probe = view.probes.get(seen.machine)
        workload = bool(probe.pid_alive) if isinstance(probe, Probe) else None
        draft = orphan_draft(seen, view, workload=workload)
        if known is None or not known.open or _orphan_changed(known, draft, view, policy):
            drafts.append(draft)
    return drafts


def _orphan_changed(known: Machine, draft: Draft, view: View, policy: Policy) -> bool:
    if draft.payload["status"] != known.status:
        return True
    idle = draft.payload["gpu_util"] == 0 and draft.payload["workload"] is not True
    if idle != bool(known.idles):
        return True
    # A second idle reading, once the grace has passed since the first: the evidence of the rule.
    grace = micros(policy.idle_grace_seconds)
    return idle and len(known.idles) == 1 and view.now - known.idles[0][1] >= grace


def _orphan_gone(machine: Machine, view: View) -> list[Draft]:
    if not machine.open or not view.absent(machine.id, machine.backend, machine.account):
        return []
    return [_torn_down(machine, view, "ledger" if machine.teardown else "external")]
