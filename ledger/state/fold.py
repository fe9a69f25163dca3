"""fold: the events of one stream → its state. Pure and total: any order, subset or repetition gives a state.

What the transition table does not allow is folded as far as it makes sense and noted in `odd`; an event that this
version does not know makes the stream unreadable, which is noted too. Nothing raises.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ledger.events import ACCOUNT_PREFIX, LEDGER_STREAM, UPCASTERS, Event, readable
from ledger.policy import lenient
from ledger.state import machines, runs
from ledger.state.branch import branch
from ledger.state.model import Account, LedgerState, Machine, Run, State
from ledger.state.transitions import machine_step


def new_state(stream: str) -> State:
    """The state of a stream without events."""
    if stream == LEDGER_STREAM:
        return LedgerState()
    if stream.startswith(ACCOUNT_PREFIX):
        return Account(stream=stream)
    return Run(stream=stream)


def fold(events: Iterable[Event], state: State) -> State:
    """`state` with `events` of its stream applied in order. `state` itself is left as it was."""
    events = list(events)
    state = branch(state, events)
    for event in events:
        advance(state, event)
    return state


def fold_run(stream: str, events: Iterable[Event]) -> Run:
    """A run's state from all its events."""
    run = Run(stream=stream)
    for event in events:
        advance(run, event)
    return run


def advance(state: State, event: Event, payload: dict[str, Any] | None = None) -> None:
    """Apply one event to a state that the caller owns. Raises nothing. `payload`: the event's, as it is stored."""
    state.version = event.version
    state.position = event.position
    state.hash = event.hash
    if not readable(event.type, event.schema):
        state.unreadable.append((event.position, event.type))
        return
    try:
        if payload is None or UPCASTERS:
            payload = event.data()
        if type(state) is Run:
            handler = _HANDLERS.get(event.type)
            if handler is None:
                _odd(state, event, "run")
            else:
                handler(state, event, payload)
        elif type(state) is Account:
            _account(state, event, payload)
        elif type(state) is LedgerState:
            _ledger(state, event, payload)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
        # A payload of a shape that no version wrote: past the validation of every append, so another's hand.
        state.unreadable.append((event.position, event.type))


_HANDLERS = {**machines.HANDLERS, **runs.HANDLERS}


def _account(account: Account, event: Event, payload: dict[str, Any]) -> None:
    if event.type == "InventoryRead":
        account.backend = payload["backend"]
        account.account = payload["account"]
        account.read_at = event.occurred_at
        account.read_pos = event.position
        account.complete = payload["complete"]
        account.machines = tuple(payload["machines"])
        account.unreachable = tuple(payload["unreachable"])
        account.fingerprint = payload.get("fingerprint")
        if account.complete:
            account.complete_at = event.occurred_at
            account.complete_pos = event.position
        return
    machine = account.orphans.get(event.machine or "")
    if event.type == "TeardownRequested":
        account.decisions.append(machines.decision(machine, 0, event, payload, payload["reason"]))
    if event.type == "OrphanObserved" and event.machine:
        if machine is None:
            machine = account.orphans[event.machine] = Machine(id=event.machine, generation=0, backend="")
        machines.orphan(machine, event, payload)
    elif machine is None or event.type not in (
        "TornDown",
        "TeardownRequested",
        "TeardownFailed",
        "MachineObserved",
    ):
        _odd(account, event, "account")
        return
    elif event.type == "MachineObserved":
        machines.observe(machine, event, payload)
    else:
        machines.leave(machine, event, payload)
    _, allowed = machine_step(machine.stage, event.type)
    machine.stage, _ = machine_step(machine.stage, event.type)
    if not allowed:
        _odd(account, event, machine.stage)


def _ledger(state: LedgerState, event: Event, payload: dict[str, Any]) -> None:
    if event.type == "LedgerCreated":
        if state.id:
            _odd(state, event, "created")
            return
        state.id = payload["ledger"]
        state.created_at = event.occurred_at
        _policy(state, event, payload)
    elif event.type == "PolicyChanged":
        _policy(state, event, payload)
    elif event.type == "BreachAcknowledged":
        state.acks.setdefault(payload["breach"], event.position)
    else:
        _odd(state, event, "ledger")


def _policy(state: LedgerState, event: Event, payload: dict[str, Any]) -> None:
    state.policy = lenient(payload["policy"])
    state.policies.append((event.position, event.recorded_at, state.policy))


def _odd(state: State, event: Event, stage: str) -> None:
    generation = state.generation if isinstance(state, Run) else 0
    state.odd.append((event.position, event.type, stage, event.attempt, event.machine, event.occurred_at, generation))
