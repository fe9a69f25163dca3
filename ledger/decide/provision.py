"""Provisioning: concluding what a create made, and asking for the next one. One intent a zone, each its own lease."""

from __future__ import annotations

from ledger.decide import ladder
from ledger.decide.ends import NO_COMPUTE, End
from ledger.decide.view import Create, Step, View, micros
from ledger.events import Draft
from ledger.moments import MICROS, request_id
from ledger.policy import Policy
from ledger.state.model import Intent, Run

DAY = 24 * 3600 * MICROS


def conclude(run: Run, view: View, policy: Policy) -> Step | None:
    """A create whose outcome is unknown made nothing: its time is over, and a complete list shows no such marker.

    Anyone may find its machine at any time (that is a fact); only after the deadline, or after a recorded reply, and
    the settle time, may a good read say that there is none.
    """
    for intent in run.intents.values():
        if not intent.open:
            continue
        base = intent.replied_at if intent.replied_at is not None else intent.deadline
        if view.now < base + micros(policy.absence_settle_seconds):
            continue
        if view.complete(intent.backend, intent.account) is None:
            continue
        payload = {
            "class": "absent",
            "message": "nothing bears its marker",
            "zone": intent.zone,
            "try": intent.attempt_try,
            "evidence": [intent.position],
        }
        draft = Draft("ProvisionRefused", payload, view.now, attempt=intent.attempt, correlation_id=intent.failover)
        return Step((draft,), why="the create made nothing")
    return None


def exhausted(run: Run, view: View, policy: Policy) -> End | None:
    """The end of a run that every rung has refused."""
    if not needs_machine(run) or target(run, view, policy) is not None:
        return None
    if _waits(run, view, policy):
        return None
    return End("failed", NO_COMPUTE, "infra", tuple(i.resolved_pos or i.position for i in run.tries()))


def needs_machine(run: Run) -> bool:
    """Whether nothing is in hand and nothing is on its way; the caller knows that no machine is in hand."""
    return run.open and run.cancel_at is None and not any(intent.open for intent in run.intents.values())


def target(run: Run, view: View, policy: Policy) -> tuple[str, str | None, str | None, int] | None:
    """Where the next create goes: (rung, zone, attempt or None for a fresh one, try). None: nowhere is left."""
    tries = run.tries()
    failover = run.failover
    since = [i for i in tries if failover is None or i.position > failover.position]
    if not since:
        rung = failover.next_rung if failover is not None else run.start_rung
        if rung is None:
            return None
        return _first(run, rung, view)
    last = since[-1]
    if last.stage == "refused":
        again = _again(run, last, view, policy)
        if again is not None:
            return last.rung, last.zone, last.attempt, _next_try(run, last)
        if last.cls not in ("cap", "invalid") or last.sent:
            zone = ladder.next_zone(run, last, view.rent)
            if zone is not None:
                return last.rung, zone, last.attempt, _next_try(run, last)
    return _first(run, ladder.after_refusal(run, policy), view)


def _first(run: Run, rung: str | None, view: View) -> tuple[str, str | None, str | None, int] | None:
    if rung is None:
        return None
    zones = ladder.zones_of(run, rung, view.rent)
    return rung, zones[0] if zones else None, None, 1


def _next_try(run: Run, last: Intent) -> int:
    return max(i.attempt_try for i in run.intents.values() if i.attempt == last.attempt) + 1


def _holds_name(run: Run, last: Intent) -> bool:
    """Whether a machine of ours that is ended or on its way out still holds the name that was taken."""
    return any(
        m.open and m.name == last.name and m.zone == last.zone and (m.teardown is not None or m.ended_status)
        for m in run.machines.values()
    )


def _again(run: Run, last: Intent, view: View, policy: Policy) -> bool | None:
    """Whether the same zone is to be tried again: nothing was sent, or our own old machine held the name."""
    if not last.sent and last.cls == "absent":
        return True
    if last.cls != "name_taken":
        return None
    firsts = [i for i in run.tries() if i.attempt == last.attempt and i.zone == last.zone]
    ours = any(
        m.name == last.name
        and m.zone == last.zone
        and m.teardown is not None
        and (m.open or (m.gone_at or 0) >= last.requested_at)
        for m in run.machines.values()
    )
    within = view.now < firsts[0].requested_at + micros(policy.teardown_confirm_seconds)
    return True if ours and within else None


def _waits(run: Run, view: View, policy: Policy) -> bool:
    """Whether our own leaving machine still holds the name in the zone where the next create goes."""
    goal = target(run, view, policy)
    if goal is None:
        return False
    rung, zone, _, _ = goal
    if ladder.backend_of(rung) != "gcp":
        return False
    name = policy.name("gcp", run.issue, run.lane)
    holders = [
        m
        for m in run.machines.values()
        if m.open and m.backend == "gcp" and m.name == name and m.zone == zone and m.teardown_first_at is not None
    ]
    bound = micros(policy.teardown_confirm_seconds)
    return any(view.now < (m.teardown_first_at or 0) + bound for m in holders)


def create(run: Run, view: View, policy: Policy, new_id: str) -> Step | None:
    """The next create: its intent, then the call."""
    if not needs_machine(run) or not view.may_create or not view.may_call or not run.driven:
        return None
    goal = target(run, view, policy)
    if goal is None or _waits(run, view, policy):
        return None
    rung, zone, attempt, attempt_try = goal
    backend = ladder.backend_of(rung)
    account = view.rent.account(backend)
    attempt = attempt or new_id
    failover = run.failover.id if run.failover else None
    payload = {
        "backend": backend,
        "rung": rung,
        "name": policy.name(backend, run.issue, run.lane),
        "account": account or "",
        "zone": zone,
        "provisioning_model": ladder.model_of(rung),
        "try": attempt_try,
        "request_id": request_id(view.ledger_id, attempt, attempt_try),
        "holder": view.holder,
        "call_before": view.now + view.call_before,
        "deadline": view.now + view.call_deadline,
    }
    intent = Draft("ProvisionRequested", payload, view.now, attempt=attempt, correlation_id=failover)
    no = _not_sent(run, view, policy, backend, zone)
    if no is not None:
        cls, message = no
        refused = {"class": cls, "message": message, "zone": zone, "try": attempt_try, "sent": False}
        refusal = Draft("ProvisionRefused", refused, view.now, attempt=attempt, correlation_id=failover)
        return Step((intent, refusal), why=message)
    return Step((intent,), Create(attempt, attempt_try), why=f"create on {rung}")


def _not_sent(run: Run, view: View, policy: Policy, backend: str, zone: str | None) -> tuple[str, str] | None:
    """Why this create is refused before it is sent: nothing to rent with, or a cap is reached."""
    if view.rent.account(backend) is None or (backend == "gcp" and zone is None):
        return "invalid", f"{backend} is not configured here"
    sent = sum(1 for i in run.intents.values() if i.sent and i.requested_at > view.now - DAY)
    if sent >= policy.max_creates_per_run_day:
        return "cap", f"{sent} creates of this run within 24 hours (max_creates_per_run_day)"
    if policy.max_usd_per_hour is not None and view.usd_per_hour >= policy.max_usd_per_hour:
        return "cap", f"{view.usd_per_hour:.2f} dollars per hour are billed already (max_usd_per_hour)"
    return None
