"""When to leave a machine. One function a rule, in the order in which they are asked; each gives a step or None.

When a failover fires is as it always was (#783, #1116, #658/#659, #669, #1029, #664); what is new is that it ends.
"""

from __future__ import annotations

from ledger.clouds.values import Guest, Seen
from ledger.decide import ladder
from ledger.decide.ends import is_lost, workload_end
from ledger.decide.facts import enough_suspicion
from ledger.decide.teardown import protected, teardown_draft
from ledger.decide.view import Delete, Step, View, micros, seconds
from ledger.events import Draft
from ledger.policy import Policy
from ledger.state.model import Machine, Run


def leave(run: Run, machine: Machine, view: View, policy: Policy, new_id: str) -> Step | None:
    """The step by which the run leaves the machine it is on, if a rule says so."""
    if machine.left_at is not None or machine.teardown is not None or run.cancel_at is not None:
        return None
    if machine.launch_failed_at is not None and machine.launched_at is None:
        return None  # given up already: the run's end is decided
    if not machine.open:
        return _gone(run, machine, view, policy, new_id)
    if machine.absent_at is not None:
        return _vanish(run, machine, view, policy, new_id)
    seen = view.seen.get(machine.id)
    if seen is None:
        return None  # unread, or one good read alone: unknown
    for rule in (_queue_timeout, _failed, _ended, _wedged, _no_port):
        step = rule(run, machine, seen, view, policy, new_id)
        if step is not None:
            return step
    return None


def _decided(
    machine: Machine, view: View, reason: str, rung: str | None, evidence: tuple[int, ...], new_id: str
) -> Draft:
    payload = {
        "reason": reason,
        "from": machine.id,
        "next_rung": rung,
        "evidence": sorted({p for p in evidence if p}),
    }
    return Draft(
        "FailoverDecided",
        payload,
        view.now,
        attempt=machine.attempt,
        machine=machine.id,
        correlation_id=new_id,
    )


def _away(
    machine: Machine,
    view: View,
    policy: Policy,
    reason: str,
    rung: str | None,
    evidence: tuple[int, ...],
    new_id: str,
    *,
    delete: bool,
    before: tuple[Draft, ...] = (),
) -> Step | None:
    """Leave, and where the machine may live ask for its end in the same breath."""
    decided = _decided(machine, view, reason, rung, evidence, new_id)
    if not delete:
        return Step((*before, decided), why=reason)
    if not view.may_end or not view.may_call or protected(machine, view, policy):
        return None
    owed = teardown_draft(machine, view, reason, evidence, correlation=new_id)
    return Step((*before, decided, owed), Delete(machine.id), why=reason)


def _queue_timeout(run: Run, machine: Machine, seen: Seen, view: View, policy: Policy, new_id: str) -> Step | None:
    if seen.status != "PENDING" or not machine.queued or machine.queue_since is None:
        return None
    if seconds(view.now - machine.queue_since) <= policy.queue_wait_seconds:
        return None
    rung = ladder.after_queue(run, policy, machine.backend)
    evidence = (machine.known_pos, machine.status_pos)
    return _away(machine, view, policy, "queue_timeout", rung, evidence, new_id, delete=True)


def _vanish(run: Run, machine: Machine, view: View, policy: Policy, new_id: str) -> Step | None:
    """Never seen past PENDING, and seen to be gone: not a crash, not a teardown."""
    if machine.past_pending_at is not None or machine.launched_at is not None or machine.backend != "gcp":
        return None
    rung = ladder.after_queue(run, policy, machine.backend)
    evidence = (machine.known_pos, machine.absent_pos)
    return _away(machine, view, policy, "queue_vanish", rung, evidence, new_id, delete=False)


def _gone(run: Run, machine: Machine, view: View, policy: Policy, new_id: str) -> Step | None:
    """Gone by another's hand: before its workload ran it was taken, after it it is lost."""
    if machine.ended_at is not None or machine.launch_failed_at is not None:
        return None
    if is_lost(machine):
        return _lost(run, machine, view, policy, new_id)
    rung = ladder.after_refusal(run, policy)
    return _away(machine, view, policy, "taken", rung, (machine.gone_pos,), new_id, delete=False)


def _lost(run: Run, machine: Machine, view: View, policy: Policy, new_id: str) -> Step | None:
    """By default the run is closed as lost, and the rule of its end says so; `on_lost: failover` goes on instead."""
    if policy.on_lost != "failover":
        return None
    evidence = (machine.gone_pos or machine.status_pos,)
    rung = ladder.after_refusal(run, policy)
    return _away(machine, view, policy, "lost", rung, evidence, new_id, delete=machine.open)


def _failed(run: Run, machine: Machine, seen: Seen, view: View, policy: Policy, new_id: str) -> Step | None:
    """GCP: the guest says that its workload failed, or that its set-up did."""
    if machine.backend != "gcp" or machine.phase not in ("failed", "wedged") or machine.ended_at is not None:
        return None
    evidence = (machine.phase_pos, machine.launched_pos, machine.status_pos)
    started = machine.workload_started or machine.launched_at is not None
    unreadable = seen.status == "RUNNING" and not isinstance(view.guests.get(machine.id), Guest)
    if machine.phase == "failed" and not started and not (unreadable and machine.workload_started is None):
        return _boot_death(run, machine, view, policy, new_id, evidence)
    crashed = Draft(
        "WorkloadEnded",
        {"outcome": "crashed", "evidence": sorted({p for p in evidence if p})},
        view.now,
        attempt=machine.attempt,
        machine=machine.id,
    )
    rung = ladder.after_failure(run, policy, "gcp")
    return _away(machine, view, policy, "workload_failed", rung, evidence, new_id, delete=True, before=(crashed,))


def _ended(
    run: Run,
    machine: Machine,
    seen: Seen,  # noqa: ARG001 - a rule's shape
    view: View,
    policy: Policy,
    new_id: str,
) -> Step | None:
    """The cloud keeps it but no longer runs it, and neither done nor failed was seen."""
    if not machine.ended_status or machine.ended_at is not None or workload_end(machine) is not None:
        return None
    evidence = (machine.status_pos, machine.launched_pos)
    if is_lost(machine):
        return _lost(run, machine, view, policy, new_id)
    if machine.backend == "gcp":
        began = machine.past_pending_at if machine.past_pending_at is not None else machine.known_at
        if seconds(machine.status_since - began) < policy.boot_death_young_seconds:
            return _boot_death(run, machine, view, policy, new_id, evidence)
    rung = ladder.after_refusal(run, policy)
    return _away(machine, view, policy, "taken", rung, evidence, new_id, delete=not machine.ended_before)


def boot_deaths(run: Run, rung: str | None) -> int:
    """How many boot deaths in a row, up to now, this rung has had."""
    deaths = 0
    for failover in reversed(run.failovers):
        machine = run.machines.get(failover.from_machine or "")
        if failover.reason != "boot_death" or machine is None or machine.rung != rung:
            break
        deaths += 1
    return deaths


def _boot_death(
    run: Run, machine: Machine, view: View, policy: Policy, new_id: str, evidence: tuple[int, ...]
) -> Step | None:
    if boot_deaths(run, machine.rung) + 1 >= policy.boot_death_limit:
        rung = ladder.after_failure(run, policy, machine.backend)
        return _away(machine, view, policy, "boot_loop", rung, evidence, new_id, delete=True)
    return _away(machine, view, policy, "boot_death", machine.rung, evidence, new_id, delete=True)


def _wedged(run: Run, machine: Machine, seen: Seen, view: View, policy: Policy, new_id: str) -> Step | None:
    """GCP: the phase has not moved, and the machine was out of reach in enough ticks over enough time."""
    if machine.backend != "gcp" or seen.status != "RUNNING" or machine.ended_at is not None:
        return None
    if not enough_suspicion(machine, policy):
        return None
    since = machine.phase_at if machine.phase_at is not None else machine.status_since
    if seconds(view.now - since) < policy.wedge_frozen_seconds:
        return None
    evidence = tuple(position for position, _ in machine.suspects)
    rung = ladder.after_failure(run, policy, "gcp")
    return _away(machine, view, policy, "wedged", rung, evidence, new_id, delete=True)


def _no_port(run: Run, machine: Machine, seen: Seen, view: View, policy: Policy, new_id: str) -> Step | None:
    """A pod that runs and shows no public port: a fresh one on the same rung, once, then the next rung."""
    if machine.backend != "runpod" or seen.status != "RUNNING" or seen.ports or machine.ended_at is not None:
        return None
    if machine.portless_since is None or view.now - machine.portless_since < micros(policy.no_port_seconds):
        return None
    before = sum(1 for failover in run.failovers if failover.reason == "no_port")
    rung = machine.rung if before == 0 and machine.rung else ladder.after_refusal(run, policy)
    evidence = (machine.portless_pos, machine.status_pos)
    return _away(machine, view, policy, "no_port", rung, evidence, new_id, delete=True)
