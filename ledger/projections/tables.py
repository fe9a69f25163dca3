"""State → rows of the read models. Pure: the same state gives the same rows, in an append and in a rebuild.

A row is a tuple in the order of its table's columns (`ledger.log.schema`; a test holds both together). It is written
as it stands: an append makes the rows that its events can have changed, and no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from ledger.canonical import dumps
from ledger.events import Event
from ledger.moments import MICROS
from ledger.state.model import Account, Decision, Intent, LedgerState, Machine, Odd, Run, State

Row = tuple[Any, ...]
Table = dict[Row, Row]  # key → row
Rows = dict[str, Table]

# Table → how many of its columns, from the first on, are its key.
KEYS: dict[str, int] = {
    "streams": 1,
    "runs": 1,
    "machines": 2,
    "intents": 1,
    "decisions": 1,
    "evidence": 2,
    "rungs": 3,
    "oddities": 1,
    "accounts": 1,
    "policies": 1,
    "acks": 2,
}


class Before(NamedTuple):
    """How long the lists of a state were before it went on: they only grow."""

    odd: int = 0
    decisions: int = 0
    acks: int = 0
    ladders: int = 0
    policies: int = 0


def before(state: State) -> Before:
    """What `touched` needs to know of a state, kept before it goes on."""
    odd, decisions = len(state.odd), len(state.decisions)
    if isinstance(state, Run):
        return Before(odd, decisions, len(state.acks), len(state.ladders))
    if isinstance(state, LedgerState):
        return Before(odd, decisions, len(state.acks), 0, len(state.policies))
    return Before(odd, decisions)


def rows_of(state: State) -> Rows:
    """Every row that `state` stands for."""
    if state.version == 0:
        return {}
    if isinstance(state, Run):
        machines: Iterable[Machine] = state.machines.values()
        return _rows(state, Before(), machines, state.intents.values())
    return _rows(state, Before(), state.orphans.values() if isinstance(state, Account) else (), ())


def touched(state: State, was: Before, events: Sequence[Event]) -> Rows:
    """The rows that `events` can have changed: `state` is as they left it, `was` as they found it.

    Of the state that they found, with the same `was`: those of these rows that were there, as they were.
    """
    if state.version == 0:
        return {}
    intents: list[Intent] = []
    names = {event.machine for event in events if event.machine}
    if isinstance(state, Run):
        known = state.machines
        asked = {event.attempt for event in events if event.type in _OF_INTENTS}
        if asked:
            intents = [intent for intent in state.intents.values() if intent.attempt in asked]
    else:
        known = state.orphans if isinstance(state, Account) else {}
    return _rows(state, was, [known[name] for name in names if name in known], intents)


def join(rows: Rows, more: Rows) -> None:
    """Add `more` to `rows`; what is newer takes the place of what is older."""
    for table, group in more.items():
        if table in rows:
            rows[table].update(group)
        else:
            rows[table] = group


_OF_INTENTS = frozenset(("ProvisionRequested", "ProvisionRefused", "ProvisionUnresolved", "Provisioned"))


def _rows(state: State, was: Before, machines: Iterable[Machine], intents: Iterable[Intent]) -> Rows:
    kind = "run" if isinstance(state, Run) else "account" if isinstance(state, Account) else "ledger"
    unreadable = state.unreadable[0][0] if state.unreadable else None
    stream = state.stream
    rows: Rows = {"streams": {(stream,): (stream, kind, state.version, state.position, state.hash, unreadable)}}
    if isinstance(state, Run):
        rows["runs"] = {(stream,): _run(state)}
        if len(state.ladders) > was.ladders:
            newest = islice(state.ladders.items(), was.ladders, None)
            every = [(stream, generation, rung) for generation, ladder in newest for rung in ladder]
            rows["rungs"] = {row: row for row in every}
    elif isinstance(state, Account):
        rows["accounts"] = {(stream,): _account(state)}
    elif len(state.policies) > was.policies:
        made = _policies(state, was.policies)
        rows["policies"] = {(row[0],): row for row in made}
    if machines:
        rows["machines"] = {(m.id, stream): _machine(stream, m) for m in machines}
    if intents:
        rows["intents"] = {(i.position,): _intent(stream, i) for i in intents}
    if len(state.odd) > was.odd:
        rows["oddities"] = {(odd[0],): _oddity(stream, odd) for odd in state.odd[was.odd :]}
    if len(state.decisions) > was.decisions:
        decisions = state.decisions[was.decisions :]
        rows["decisions"] = {(d.position,): _decision(stream, d) for d in decisions}
        evidence = [(d.position, position) for d in decisions for position in d.evidence]
        if evidence:
            rows["evidence"] = {row: row for row in evidence}
    if not isinstance(state, Account) and len(state.acks) > was.acks:
        rows["acks"] = {row: row for row in islice(state.acks.items(), was.acks, None)}
    return rows


def _run(run: Run) -> Row:
    failover = run.failover
    budget = budget_hours(run)
    return (
        run.stream,
        run.generation,
        run.issue,
        run.lane,
        run.backend,
        int(run.driven),
        run.stage,
        int(run.active),
        int(run.closing),
        run.opened_at,
        run.opened_pos,
        run.closed_at,
        run.closed_pos or None,
        run.outcome,
        run.reason,
        run.failure_class,
        run.handle,
        run.handle_pos or None,
        failover.decided_at if failover else None,
        failover.position if failover else None,
        failover.base_at if failover else None,
        failover.base_pos if failover else None,
        failover.reason if failover else None,
        failover.machine if failover else None,
        int(failover is not None and failover.base_at is None),
        round(budget * 3600 * MICROS) if budget else None,
        run.edited_at,
        run.edited_pos or None,
        len(run.edited),
        run.position,
    )


def budget_hours(run: Run) -> float | None:
    """The run's time budget in hours, pinned at its dispatch or stated by the file it was imported from."""
    value: Any = run.opened.get("time_budget_hours")
    if value is None and run.imported is not None:
        extra = run.imported.get("extra")
        value = extra.get("time_budget_hours") if isinstance(extra, dict) else None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 < value < 1e6 else None


def _machine(stream: str, m: Machine) -> Row:
    return (
        m.id,
        stream,
        m.generation,
        m.attempt,
        m.backend,
        m.account,
        m.name,
        m.zone,
        m.rung,
        m.claim,
        m.stage,
        m.marker,
        m.requested_model,
        m.model,
        m.handle_model,
        m.handle_zone,
        m.handle_ports,
        m.ports,
        m.created_at,
        m.known_at,
        m.known_pos,
        m.cost_per_hour,
        m.status,
        m.status_since or None,
        m.status_pos or None,
        m.phase,
        m.observed_pos or None,
        m.stale_at,
        m.stale_pos or None,
        m.unreached_at,
        m.unreached_pos or None,
        m.gpus,
        m.gpus_pos or None,
        m.log,
        m.log_pos or None,
        m.last_line_at,
        int(m.queued),
        m.queue_since,
        m.billed_since,
        m.billed_until,
        m.bound_began,
        m.bound_pos or None,
        m.launched_at,
        m.launched_pos or None,
        m.ended_at,
        m.ended_pos or None,
        m.outcome,
        m.reconnected_ended_at,
        m.reconnected_ended_pos or None,
        m.left_at,
        m.left_pos or None,
        m.teardown_first_at,
        m.teardown_first_pos or None,
        m.teardown_failures,
        m.teardown_error,
        m.absent_at,
        m.absent_pos or None,
        m.gone_at,
        m.gone_pos or None,
        m.gone_by,
    )


def _intent(stream: str, i: Intent) -> Row:
    return (
        i.position,
        stream,
        i.generation,
        i.attempt,
        i.attempt_try,
        i.backend,
        i.account,
        i.rung,
        i.zone,
        i.requested_at,
        i.call_before,
        i.deadline,
        i.stage,
        i.cls,
        i.resolved_pos,
    )


def _decision(stream: str, d: Decision) -> Row:
    return (
        d.position,
        stream,
        d.generation,
        d.type,
        d.attempt,
        d.machine,
        d.reason,
        d.at,
        d.actor,
        d.claim,
        d.idle_reads,
        d.idle_span,
        d.probe,
    )


def _oddity(stream: str, odd: Odd) -> Row:
    position, type_, stage, attempt, machine, at, generation = odd
    return position, stream, generation, type_, stage, attempt, machine, at


def _account(account: Account) -> Row:
    return (
        account.stream,
        account.backend,
        account.account,
        account.read_at,
        account.read_pos or None,
        int(account.complete),
        account.complete_at,
        account.complete_pos or None,
        len(account.machines),
        account.fingerprint,
    )


def _policies(state: LedgerState, first: int) -> list[Row]:
    return [
        (at_position, recorded_at, state.id, dumps(policy.to_payload()))
        for at_position, recorded_at, policy in state.policies[first:]
    ]
