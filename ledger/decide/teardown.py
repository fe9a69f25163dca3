"""Teardown: what has to go, asking for it, and asking again.

An obligation ends when the machine was seen to be gone.
"""

from __future__ import annotations

from ledger.decide.ends import is_lost
from ledger.decide.view import Delete, Step, View, micros, seconds
from ledger.events import Draft
from ledger.moments import MICROS
from ledger.policy import Policy
from ledger.state.model import Machine, Run

BACKOFF_MIN = 60 * MICROS
BACKOFF_MAX = 600 * MICROS


def teardown_draft(
    machine: Machine, view: View, reason: str, evidence: tuple[int, ...], correlation: str | None = None
) -> Draft:
    """The intent before a delete call, which is also its lease."""
    payload = {
        "reason": reason,
        "evidence": sorted({p for p in evidence if p}),
        "holder": view.holder,
        "call_before": view.now + view.call_before,
        "deadline": view.now + view.call_deadline,
    }
    return Draft(
        "TeardownRequested",
        payload,
        view.now,
        attempt=machine.attempt,
        machine=machine.id,
        correlation_id=correlation,
    )


def current(run: Run) -> Machine | None:
    """The machine in hand: under a failover that of its newest intent, else the one that the handle names.

    Of two machines of that intent the one with a live workload, else the older. One that the run has left, or whose
    intent had been concluded to have made nothing, is never in hand.
    """
    candidates = [m for m in run.mine() if m.left_at is None and not m.late]
    tries = run.tries()
    newest = tries[-1] if tries else None
    failover = run.failover
    if failover is not None:
        mine = [
            m
            for m in candidates
            if (newest is not None and newest.failover == failover.id and _of(m, newest.attempt, newest.attempt_try))
            or (m.claim == "user" and m.known_pos > failover.position)
        ]
        return chosen(mine) if mine else None
    handle = run.handle_machine()
    if handle is not None:
        mine = [m for m in candidates if m is handle or _of(m, handle.attempt, handle.attempt_try)]
        return chosen(mine) if mine else None
    mine = [m for m in candidates if newest is not None and _of(m, newest.attempt, newest.attempt_try)]
    return chosen(mine) if mine else None


def _of(machine: Machine, attempt: str | None, attempt_try: int) -> bool:
    return machine.attempt == attempt and machine.attempt_try == attempt_try


def chosen(machines: list[Machine]) -> Machine:
    """Of several machines of one intent: open before gone, with a live workload before without, else the older."""
    return min(
        machines,
        key=lambda m: (
            not m.open,
            m.teardown is not None,
            m.launched_at is None,
            m.created_at if m.created_at is not None else m.known_at,
            m.known_pos,
        ),
    )


def unwanted(run: Run, view: View, policy: Policy) -> list[tuple[Machine, str, tuple[int, ...]]]:
    """The machines that have to go and were not asked to: with the reason and what it rests on."""
    found: list[tuple[Machine, str, tuple[int, ...]]] = []
    here = current(run) if run.open else None
    for machine in run.machines.values():
        if not machine.open or machine.teardown is not None:
            continue
        if machine.claim == "orphan":
            if _idle_orphan(run, machine, view, policy):
                found.append((machine, "orphan_idle", tuple(position for position, _ in machine.idles)))
            continue
        why = _why_unwanted(run, machine, here, view, policy)
        if why is not None:
            found.append((machine, *why))
    return found


def _why_unwanted(
    run: Run, machine: Machine, here: Machine | None, view: View, policy: Policy
) -> tuple[str, tuple[int, ...]] | None:
    if machine.absent_at is not None:
        return None  # there is nothing to ask of it
    if not run.open:
        return "run_closed", (machine.known_pos, run.closed_pos)
    if run.cancel_at is not None:
        return "cancelled", (run.cancel_pos,)
    if machine.left_at is not None:
        return machine.left_reason or "left", (machine.left_pos,)
    by_hand = machine.claim == "user" and run.handle != machine.id  # it becomes the handle once it is launched
    if machine is not here and not by_hand:
        return "superseded", (machine.known_pos,)
    if machine.launch_failed_at is not None and machine.launched_at is None:
        return "launch_unconfirmed", (machine.launch_failed_pos,)
    if machine.ended_at is None:
        return ("lost", (machine.status_pos,)) if is_lost(machine) and not machine.ended_before else None
    if view.redispatch:
        return "redispatched", (machine.ended_pos,)
    nothing_to_fetch = machine.outcome == "crashed" and machine.launched_at is None
    if nothing_to_fetch or seconds(view.now - machine.ended_at) >= policy.done_grace_seconds:
        return "done", (machine.ended_pos,)
    return None


def _idle_orphan(run: Run, machine: Machine, view: View, policy: Policy) -> bool:
    """Seen idle in two good reads over the grace, while the handle names a vanished, ended or other machine."""
    seen = view.seen.get(machine.id)
    if seen is None or machine.marker is not None or len(machine.idles) < 2:
        return False
    if seen.status != "RUNNING" or run.handle == machine.id:
        return False
    return machine.idles[-1][1] - machine.idles[0][1] >= micros(policy.idle_grace_seconds)


def request(run: Run, view: View, policy: Policy) -> Step | None:
    """Ask for the end of one machine that has to go, or ask again for one whose end was not seen."""
    if not view.may_end or not view.may_call:
        return None
    for machine, reason, evidence in unwanted(run, view, policy):
        if protected(machine, view, policy) or _may_be_kept(run, machine, view):
            continue
        if view.read_well(machine.id, machine.backend, machine.account) or reason in ("cancelled", "redispatched"):
            return Step((teardown_draft(machine, view, reason, evidence),), Delete(machine.id), why=reason)
    for machine in run.machines.values():
        if machine.claim == "orphan" and not _idle_orphan(run, machine, view, policy):
            continue  # it may have come to use since; unknown is not idle
        if due_again(machine, view) and not protected(machine, view, policy) and not _may_be_kept(run, machine, view):
            reason = machine.teardown_reason or "again"
            draft = teardown_draft(machine, view, reason, (machine.teardown_first_pos,))
            return Step((draft,), Delete(machine.id), why=f"{reason}, again")
    return None


def due_again(machine: Machine, view: View) -> bool:
    """Whether the delete is to be sent again: its lease is over, its back-off too, and it is not on its way out."""
    step = machine.teardown
    if step is None or not machine.open or machine.absent_at is not None:
        return False
    seen = view.seen.get(machine.id)
    if seen is not None and seen.status in ("STOPPING", "DEPROVISIONING"):
        return False
    failed = machine.teardown_failed_at is not None and machine.teardown_failed_at >= step.requested_at
    wait = min(BACKOFF_MAX, BACKOFF_MIN << min(step.count - 1, 10))
    if failed:
        return view.now >= step.requested_at + wait
    # No failure of this one on record: it was accepted, its sender died, or the failure was not worth an event. Where
    # none ever failed, only a sight of it says that it is still there.
    unheard = seen is None and machine.teardown_failed_at is None
    return not unheard and view.now >= max(step.deadline, step.requested_at + wait)


def _may_be_kept(run: Run, machine: Machine, view: View) -> bool:
    """Whether it is a pod that nobody could look at now, and that may say KEEP_RUNNING=1."""
    if machine.backend != "runpod" or machine.id in view.seen:
        return False
    pins = run.opened.get("env_pins") or {}
    ours = machine.claim == "ours" and machine.generation == run.generation
    return not ours or pins.get("KEEP_RUNNING") == "1"


def protected(machine: Machine, view: View, policy: Policy) -> bool:
    """Whether it is never touched: its name is protected, or it says KEEP_RUNNING=1 and has ever had a runtime."""
    seen = view.seen.get(machine.id)
    return machine.name in policy.protect or (seen is not None and seen.keep_running and seen.had_runtime)
