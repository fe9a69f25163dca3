"""The fold of what happens to a run: opened, provisioned, failed over, re-pointed, closed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ledger.events import Event
from ledger.policy import RUNPOD
from ledger.state import imported
from ledger.state.machines import compare_handle, decided, see_status
from ledger.state.model import Claim, Failover, Intent, Machine, Run
from ledger.state.transitions import intent_step, machine_step, run_step

_CLAIMS: dict[str, Claim] = {"user": "user", "import": "import", "name": "name"}


def _odd(run: Run, event: Event, stage: str) -> None:
    run.odd.append((event.position, event.type, stage, event.attempt, event.machine, event.occurred_at, run.generation))


def _enter(run: Run, event: Event) -> bool:
    """Advance the run's stage; False (and an odd row) where the table does not allow the event."""
    before = run.stage
    run.stage, allowed = run_step(before, event.type)
    if not allowed:
        _odd(run, event, before)
    return allowed


def _generation(run: Run, event: Event) -> None:
    """A dispatch after the run was closed: the fold starts afresh, the machines and intents stay known."""
    run.generation += 1
    run.opened, run.opened_at, run.opened_pos = {}, event.occurred_at, event.position
    run.imported, run.import_sha, run.relaunchable = None, None, True
    run.attempts, run.handle, run.handle_pos = [], None, 0
    run.failover, run.failovers = None, []
    run.cancel_at, run.cancel_pos = None, 0
    run.closed_at, run.closed_pos = None, 0
    run.outcome = run.reason = run.failure_class = None
    run.kept, run.edited_at, run.edited_pos, run.edited = {}, None, 0, ()


def _run_opened(run: Run, event: Event, payload: dict[str, Any]) -> None:
    if not _enter(run, event):
        return
    _generation(run, event)
    run.opened = payload
    run.issue, run.lane = payload["issue"], payload.get("lane")
    run.start_rung = payload["rung"]
    run.backend = "runpod" if run.start_rung == RUNPOD else "gcp"
    run.driven = True
    paid = payload.get("allow_paid_fallback", True)
    run.ladder = run.ladders[run.generation] = tuple(r for r in payload["ladder"] if paid or r != RUNPOD)


def _handle_imported(run: Run, event: Event, payload: dict[str, Any]) -> None:
    if not _enter(run, event):
        return
    file = json.loads(payload["file"])
    old = imported.read(file)
    _generation(run, event)
    run.imported, run.import_sha = file, payload["sha256"]
    run.relaunchable = payload["relaunchable"]
    run.issue, run.lane = payload["issue"], payload.get("lane")
    run.backend = old.backend
    run.driven = old.backend in imported.DRIVEN_BACKENDS
    run.ladder = tuple(payload.get("ladder") or ())
    run.ladders[run.generation] = run.ladder
    run.start_rung = old.rung
    if event.attempt:
        run.attempts.append(event.attempt)
    if not event.machine:
        return
    known = run.machines.get(event.machine)
    machine = known or Machine(id=event.machine, generation=run.generation, backend=old.backend)
    run.machines[event.machine] = machine
    machine.stage, _ = machine_step("none", event.type)
    if known is not None:
        _odd(run, event, known.stage)
    _took_over(machine, old, event, run.generation)
    run.handle, run.handle_pos = machine.id, event.position


def _took_over(machine: Machine, old: imported.OldHandle, event: Event, generation: int) -> None:
    machine.generation = generation
    machine.claim = "import"
    machine.attempt = event.attempt
    # The import may have filled in the project of a file that names none; the machine's id has it.
    account = machine.id.removeprefix("gcp:").split("/")[0] if old.backend == "gcp" else old.account
    machine.account, machine.name, machine.zone, machine.rung = account, old.name, old.zone, old.rung
    machine.handle_model, machine.handle_zone = old.model, old.zone
    machine.known_at, machine.known_pos = event.occurred_at, event.position
    machine.created_at = old.started_at
    machine.queue_since = old.started_at if old.started_at is not None else event.occurred_at
    if old.status:
        see_status(machine, old.status, old.status_at or event.occurred_at, event.position)
        machine.observed = True
    if old.backend == "runpod":
        machine.billed_since = old.started_at if old.started_at is not None else event.occurred_at
    if old.backend == "runpod" or (old.status and old.status != "PENDING"):
        # Taken over: whatever came before, the bound of its launch begins now.
        machine.bound_began, machine.bound_pos = event.occurred_at, event.position
    compare_handle(machine, event.occurred_at, event.position)
    if old.phase:
        machine.phase, machine.phase_at = old.phase, old.status_at or event.occurred_at
        machine.phase_pos = event.position
    if old.launched:
        machine.stage = "running"
        machine.launched_at, machine.launched_pos = event.occurred_at, event.position
        machine.pid = old.pid


def _provision_requested(run: Run, event: Event, payload: dict[str, Any]) -> None:
    if run.stage != "open":
        _odd(run, event, run.stage)
    key = (event.attempt or "", payload["try"])
    if key in run.intents:
        _odd(run, event, run.intents[key].stage)
        return
    failover = run.failover
    intent = Intent(
        position=event.position,
        generation=run.generation,
        attempt=key[0],
        attempt_try=key[1],
        backend=payload["backend"],
        rung=payload["rung"],
        name=payload["name"],
        account=payload["account"],
        zone=payload.get("zone"),
        model=payload.get("provisioning_model"),
        request_id=payload["request_id"],
        holder=payload["holder"],
        requested_at=event.occurred_at,
        call_before=payload["call_before"],
        deadline=payload["deadline"],
        failover=failover.id if failover else None,
        stage="requested",
    )
    run.intents[key] = intent
    if key[0] not in run.attempts:
        run.attempts.append(key[0])
    if failover:
        failover.base_at, failover.base_pos = event.occurred_at, event.position
        failover.machine = None


def _reply(run: Run, event: Event, payload: dict[str, Any]) -> None:
    """ProvisionRefused, ProvisionUnresolved."""
    intent = run.intents.get((event.attempt or "", payload["try"]))
    if intent is None:
        _odd(run, event, "none")
        return
    before = intent.stage
    intent.stage, allowed = intent_step(before, event.type)
    if not allowed:
        _odd(run, event, before)
    intent.replied_at = intent.replied_at or event.occurred_at
    if event.type == "ProvisionRefused" and before != "provisioned":
        intent.cls = payload["class"]
        intent.sent = payload.get("sent", True)
        intent.resolved_pos = intent.resolved_pos or event.position


def _provisioned(run: Run, event: Event, payload: dict[str, Any]) -> None:
    if event.machine is None:
        raise ValueError("Provisioned without a machine")
    intent = run.intents.get((event.attempt or "", payload["try"]))
    by_hand = payload["matched_by"] in ("user", "import")
    late = intent is not None and intent.stage == "refused"
    if intent is not None:
        intent.stage, _ = intent_step(intent.stage, event.type)
        intent.replied_at = intent.replied_at or event.occurred_at
        intent.resolved_pos = intent.resolved_pos or event.position
        if event.machine not in intent.machines:
            intent.machines.append(event.machine)
    elif not by_hand or run.stage == "none":
        _odd(run, event, "none")
    if event.attempt and event.attempt not in run.attempts and by_hand:
        run.attempts.append(event.attempt)
    machine = run.machines.get(event.machine)
    fresh = machine is None or machine.claim == "orphan"
    if machine is None:
        machine = run.machines[event.machine] = Machine(
            id=event.machine, generation=run.generation, backend=payload["backend"]
        )
    machine.stage, allowed = machine_step(machine.stage, event.type)
    if not allowed:
        _odd(run, event, machine.stage)
    if payload.get("adopted"):
        machine.claim = _CLAIMS.get(payload["matched_by"], "ours")
        decided(run, event, payload, "adopted")
    if fresh:
        if intent is None:
            machine.generation = run.generation  # an orphan of an earlier generation that was taken over
        _became_known(machine, intent, event, payload)
        machine.late = late
        _point(run, machine, intent, late=late, by_hand=by_hand, event=event)


def _became_known(machine: Machine, intent: Intent | None, event: Event, payload: dict[str, Any]) -> None:
    at, position = event.occurred_at, event.position
    machine.claim = _CLAIMS.get(payload["matched_by"], "ours")
    machine.generation = intent.generation if intent else machine.generation
    machine.backend = payload["backend"]
    machine.attempt, machine.attempt_try = event.attempt, payload["try"]
    machine.account, machine.name, machine.zone = payload["account"], payload["name"], payload.get("zone")
    machine.rung = intent.rung if intent else None
    machine.requested_model = payload.get("requested_model") or (intent.model if intent else None)
    machine.model = payload.get("provisioning_model")
    machine.handle_model = machine.model or machine.requested_model
    machine.handle_zone = machine.zone
    machine.created_at = payload.get("created_at")
    machine.known_at, machine.known_pos = at, position
    machine.adopted = payload.get("adopted", False)
    machine.cost_per_hour = payload.get("cost_per_hour", machine.cost_per_hour)
    # Taken over: whatever came before, the bound of its launch begins now.
    began = at if machine.claim in ("user", "import") else (machine.created_at or at)
    if machine.backend == "gcp":
        status = payload.get("status")
        machine.queue_since = intent.requested_at if intent else at
        if status:
            see_status(machine, status, at, position)
        elif (machine.model or machine.requested_model) == "FLEX_START":
            machine.queued = True
        else:
            machine.bound_began, machine.bound_pos = at, position
    else:
        machine.billed_since = machine.created_at or at
        machine.bound_began, machine.bound_pos = began, position
        if payload.get("status"):
            see_status(machine, payload["status"], at, position)
    if payload.get("ports"):
        machine.ports = machine.handle_ports = payload["ports"]


def _point(run: Run, machine: Machine, intent: Intent | None, *, late: bool, by_hand: bool, event: Event) -> None:
    """A first machine is named by its Provisioned; a failover's waits for Repointed."""
    newest = next(reversed(run.intents.values())) if run.intents else None
    current = by_hand or (intent is newest and intent is not None and not late)
    if run.handle is None and current and run.open:
        run.handle, run.handle_pos = machine.id, event.position
    failover = run.failover
    if failover and intent is not None and intent.failover == failover.id and current:
        failover.machine = machine.id
        failover.base_at = None if machine.queued else event.occurred_at
        failover.base_pos = event.position


def _failover_decided(run: Run, event: Event, payload: dict[str, Any]) -> None:
    _enter(run, event)
    decided(run, event, payload, payload["reason"])
    machine = run.machines.get(event.machine or "")
    if machine is not None:
        machine.stage, allowed = machine_step(machine.stage, event.type)
        if not allowed:
            _odd(run, event, machine.stage)
        if machine.left_at is None:
            machine.left_at, machine.left_pos = event.occurred_at, event.position
            machine.left_reason = payload["reason"]
        if machine.absent_at is not None and machine.gone_at is None:
            # Seen to be gone, and nothing was ever asked of it: not a teardown.
            machine.gone_at, machine.gone_pos = machine.absent_at, machine.absent_pos
            machine.gone_by = "never_materialised" if machine.past_pending_at is None else "external"
            machine.stage = "gone"
    elif event.machine:
        _odd(run, event, "none")
    run.failover = Failover(
        id=event.correlation_id or event.event_id,
        reason=payload["reason"],
        from_machine=event.machine,
        next_rung=payload.get("next_rung"),
        decided_at=event.occurred_at,
        position=event.position,
        base_at=event.occurred_at,
        base_pos=event.position,
    )
    run.failovers.append(run.failover)


def _repointed(run: Run, event: Event, payload: dict[str, Any]) -> None:
    allowed = _enter(run, event)
    machine = run.machines.get(payload["to"])
    if allowed and (
        machine is None or machine.launched_at is None or not machine.open or payload["to"] != event.machine
    ):
        # The handle may name only a machine whose launch was confirmed.
        _odd(run, event, machine.stage if machine else "none")
    run.handle, run.handle_pos = payload["to"], event.position
    run.failover = None


def _cancel_requested(run: Run, event: Event, payload: dict[str, Any]) -> None:  # noqa: ARG001 - a handler's shape
    _enter(run, event)
    if run.cancel_at is None:
        run.cancel_at, run.cancel_pos = event.occurred_at, event.position


def _run_closed(run: Run, event: Event, payload: dict[str, Any]) -> None:
    before = run.stage
    _enter(run, event)
    decided(run, event, payload, payload["reason"])
    owed = [m for m in run.mine() if m.owed and m.stage != "none"]
    if owed or any(i.open for i in run.tries()):
        # Closed with a machine or an intent still open: what must never be.
        _odd(run, event, "open machines" if owed else "open intents")
    if before == "closed":
        return
    run.closed_at, run.closed_pos = event.occurred_at, event.position
    run.outcome, run.reason = payload["outcome"], payload["reason"]
    run.failure_class = payload.get("failure_class")
    run.failover = None


def _sidecar_edited(run: Run, event: Event, payload: dict[str, Any]) -> None:
    _enter(run, event)
    run.kept = {**run.kept, **payload["added"]}
    run.edited_at, run.edited_pos = event.occurred_at, event.position
    run.edited = tuple(sorted(payload["changed"]))


def _acknowledged(run: Run, event: Event, payload: dict[str, Any]) -> None:
    _enter(run, event)
    run.acks.setdefault(payload["breach"], event.position)


def _host_key(run: Run, event: Event, payload: dict[str, Any]) -> None:
    run.host_keys[event.machine or ""] = payload["key"]


HANDLERS: dict[str, Callable[[Run, Event, dict[str, Any]], None]] = {
    "RunOpened": _run_opened,
    "HandleImported": _handle_imported,
    "ProvisionRequested": _provision_requested,
    "ProvisionRefused": _reply,
    "ProvisionUnresolved": _reply,
    "Provisioned": _provisioned,
    "FailoverDecided": _failover_decided,
    "Repointed": _repointed,
    "CancelRequested": _cancel_requested,
    "RunClosed": _run_closed,
    "SidecarEdited": _sidecar_edited,
    "BreachAcknowledged": _acknowledged,
    "HostKeyPinned": _host_key,
}
