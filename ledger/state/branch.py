"""A state to go on from, the old one left as it is: only what its next events can change is copied.

An event changes its own machine, the intents of its own attempt and the failover under way; whatever else a run holds
is shared by the old state and the new one. A test holds this against whole copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, TypeVar

from ledger.events import Event
from ledger.state.model import Account, Failover, Intent, LedgerState, Machine, Run, State

T = TypeVar("T")


def branch(state: State, events: Sequence[Event]) -> State:
    """A copy of `state` to which `events` may be applied."""
    if isinstance(state, Run):
        return _run(state, events)
    copy: Account | LedgerState
    if isinstance(state, Account):
        copy = _account(state)
        copy.orphans = _machines(copy.orphans, events)
    else:
        copy = _ledger(state)
        copy.policies, copy.acks = copy.policies.copy(), copy.acks.copy()
    copy.odd, copy.unreadable, copy.decisions = copy.odd.copy(), copy.unreadable.copy(), copy.decisions.copy()
    return copy


def _run(old: Run, events: Sequence[Event]) -> Run:
    run = _copy_run(old)
    run.ladders, run.acks, run.host_keys = run.ladders.copy(), run.acks.copy(), run.host_keys.copy()
    run.attempts, run.creates = run.attempts.copy(), run.creates.copy()
    run.odd, run.unreadable, run.decisions = run.odd.copy(), run.unreadable.copy(), run.decisions.copy()
    run.machines = _machines(run.machines, events)
    run.intents = run.intents.copy()
    for attempt in {event.attempt or "" for event in events}:
        for key, intent in old.intents.items():
            if key[0] == attempt:
                run.intents[key] = _intent(intent)
                run.intents[key].machines = intent.machines.copy()
    run.failovers = run.failovers.copy()
    if run.failover is not None:
        run.failover = _failover(run.failover)
        run.failovers = [run.failover if one is old.failover else one for one in run.failovers]
    return run


def _machines(known: dict[str, Machine], events: Sequence[Event]) -> dict[str, Machine]:
    machines = known.copy()
    for name in {event.machine for event in events if event.machine in known}:
        assert name is not None
        machines[name] = machine = _machine(known[name])
        machine.suspects, machine.idles = machine.suspects.copy(), machine.idles.copy()
    return machines


def _copier(cls: type[T]) -> Callable[[T], T]:
    values: Callable[[T], tuple[Any, ...]] = attrgetter(*(field.name for field in fields(cls)))  # type: ignore[arg-type]
    return lambda old: cls(*values(old))


_copy_run, _account, _ledger = _copier(Run), _copier(Account), _copier(LedgerState)
_machine, _intent, _failover = _copier(Machine), _copier(Intent), _copier(Failover)
