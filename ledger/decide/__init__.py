"""What to do next: state and readings → events and actions, pure, every rule a table of examples in a test."""

from __future__ import annotations

from ledger.decide import ends, launch, leave, provision, teardown
from ledger.decide.ends import End
from ledger.decide.view import Step, View
from ledger.events import Draft
from ledger.policy import Policy
from ledger.state.model import Run

__all__ = ["Step", "View", "decide", "ending"]


def decide(run: Run, view: View, policy: Policy, new_id: str) -> Step | None:
    """The next step for one run; None: nothing is due now. `new_id` is a fresh UUID, used where the step needs one.

    Asked again after each step, on the state that the step led to, until it answers None.
    """
    if run.unreadable or not run.driven or not view.steady_clock:
        return None
    here = teardown.current(run) if run.open else None
    if run.open and here is not None and here.stage != "none":
        step = launch.launch(run, here, view, policy) or leave.leave(run, here, view, policy, new_id)
        if step is not None:
            return step
    step = provision.conclude(run, view, policy) or teardown.request(run, view, policy)
    if step is not None:
        return step
    if not run.open:
        return None
    end = ending(run, view, policy)
    if end is not None:
        return _close(run, view, end)
    if here is None and _in_need(run):
        return provision.create(run, view, policy, new_id)
    return None


def ending(run: Run, view: View, policy: Policy) -> End | None:
    """The end that is decided for an open run; it may still owe machines and intents."""
    here = teardown.current(run)
    end = ends.end_of(run, here)
    if end is None and here is None and _in_need(run):
        if not run.relaunchable and run.failover is not None:
            # Nothing could be launched on a new machine: renting one would only bill.
            return End("failed", "not_relaunchable", "infra", (run.failover.position,))
        end = provision.exhausted(run, view, policy)
    return end


def _in_need(run: Run) -> bool:
    """A run whose old handle names no machine that anyone knows is looked for by name, never rented for."""
    return run.imported is None or bool(run.mine())


def _close(run: Run, view: View, end: End) -> Step | None:
    """RunClosed, once every intent is resolved and every machine was seen to be gone."""
    if any(machine.owed for machine in run.machines.values() if machine.claim != "orphan"):
        return None
    if any(intent.open for intent in run.intents.values()):
        return None
    payload = {
        "outcome": end.outcome,
        "reason": end.reason,
        "failure_class": end.failure_class,
        "evidence": sorted({p for p in end.evidence if p}),
    }
    return Step((Draft("RunClosed", payload, view.now),), why=end.reason)
