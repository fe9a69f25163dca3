"""State → rows of the read models. Pure: the same state gives the same rows, in an append and in a rebuild."""

from __future__ import annotations

from typing import Any

from ledger.canonical import dumps
from ledger.moments import MICROS
from ledger.state.model import Account, Decision, Intent, LedgerState, Machine, Run, State

Key = tuple[str, tuple[Any, ...]]
Row = dict[str, Any]
Rows = dict[Key, Row]

# Table → the columns of its key.
KEYS: dict[str, tuple[str, ...]] = {
    "streams": ("stream",),
    "runs": ("stream",),
    "machines": ("machine", "stream"),
    "intents": ("position",),
    "decisions": ("position",),
    "evidence": ("decision", "position"),
    "rungs": ("stream", "generation", "rung"),
    "oddities": ("position",),
    "accounts": ("stream",),
    "policies": ("position",),
    "acks": ("breach", "position"),
}


def rows_of(state: State) -> Rows:
    """Every row that `state` stands for."""
    rows: Rows = {}
    if state.version == 0:
        return rows
    kind = "run" if isinstance(state, Run) else "account" if isinstance(state, Account) else "ledger"
    _put(
        rows,
        "streams",
        stream=state.stream,
        kind=kind,
        version=state.version,
        position=state.position,
        hash=state.hash,
        unreadable_pos=state.unreadable[0][0] if state.unreadable else None,
    )
    for position, type_, stage, attempt, machine, at, generation in state.odd:
        _put(
            rows,
            "oddities",
            position=position,
            stream=state.stream,
            generation=generation,
            type=type_,
            stage=stage,
            attempt=attempt,
            machine=machine,
            at=at,
        )
    if isinstance(state, Run):
        _run(rows, state)
    elif isinstance(state, Account):
        _account(rows, state)
    else:
        _ledger(rows, state)
    return rows


def changed(before: Rows, after: Rows) -> Rows:
    """The rows that are new or not as they were. Rows are never taken away: a log only grows."""
    return {key: row for key, row in after.items() if before.get(key) != row}


def _put(rows: Rows, table: str, **row: Any) -> None:
    rows[(table, tuple(row[column] for column in KEYS[table]))] = row


def _run(rows: Rows, run: Run) -> None:
    failover = run.failover
    budget = budget_hours(run)
    _put(
        rows,
        "runs",
        stream=run.stream,
        generation=run.generation,
        issue=run.issue,
        lane=run.lane,
        backend=run.backend,
        driven=int(run.driven),
        stage=run.stage,
        active=int(run.active),
        closing=int(run.closing),
        opened_at=run.opened_at,
        opened_pos=run.opened_pos,
        closed_at=run.closed_at,
        closed_pos=run.closed_pos or None,
        outcome=run.outcome,
        reason=run.reason,
        failure_class=run.failure_class,
        handle_machine=run.handle,
        handle_pos=run.handle_pos or None,
        failover_at=failover.decided_at if failover else None,
        failover_pos=failover.position if failover else None,
        failover_base_at=failover.base_at if failover else None,
        failover_base_pos=failover.base_pos if failover else None,
        failover_reason=failover.reason if failover else None,
        failover_machine=failover.machine if failover else None,
        failover_queued=int(failover is not None and failover.base_at is None),
        budget_us=round(budget * 3600 * MICROS) if budget else None,
        edited_at=run.edited_at,
        edited_pos=run.edited_pos or None,
        edited_owned=len(run.edited),
        position=run.position,
    )
    for generation, ladder in run.ladders.items():
        for rung in ladder:
            _put(rows, "rungs", stream=run.stream, generation=generation, rung=rung)
    for machine in run.machines.values():
        _machine(rows, run.stream, machine)
    for intent in run.intents.values():
        _intent(rows, run.stream, intent)
    _decisions(rows, run.stream, run.decisions)
    for breach, position in run.acks.items():
        _put(rows, "acks", breach=breach, position=position)


def _decisions(rows: Rows, stream: str, decisions: list[Decision]) -> None:
    for d in decisions:
        _put(
            rows,
            "decisions",
            position=d.position,
            stream=stream,
            generation=d.generation,
            type=d.type,
            attempt=d.attempt,
            machine=d.machine,
            reason=d.reason,
            at=d.at,
            actor=d.actor,
            claim=d.claim,
            idle_reads=d.idle_reads,
            idle_span=d.idle_span,
            probe=d.probe,
        )
        for position in d.evidence:
            _put(rows, "evidence", decision=d.position, position=position)


def budget_hours(run: Run) -> float | None:
    """The run's time budget in hours, pinned at its dispatch or stated by the file it was imported from."""
    value: Any = run.opened.get("time_budget_hours")
    if value is None and run.imported is not None:
        extra = run.imported.get("extra")
        value = extra.get("time_budget_hours") if isinstance(extra, dict) else None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 < value < 1e6 else None


def _machine(rows: Rows, stream: str, m: Machine) -> None:
    _put(
        rows,
        "machines",
        machine=m.id,
        stream=stream,
        generation=m.generation,
        attempt=m.attempt,
        backend=m.backend,
        account=m.account,
        name=m.name,
        zone=m.zone,
        rung=m.rung,
        claim=m.claim,
        stage=m.stage,
        marker=m.marker,
        requested_model=m.requested_model,
        model=m.model,
        handle_model=m.handle_model,
        handle_zone=m.handle_zone,
        handle_ports=m.handle_ports,
        ports=m.ports,
        created_at=m.created_at,
        known_at=m.known_at,
        known_pos=m.known_pos,
        cost_per_hour=m.cost_per_hour,
        status=m.status,
        status_since=m.status_since or None,
        status_pos=m.status_pos or None,
        phase=m.phase,
        observed_pos=m.observed_pos or None,
        stale_at=m.stale_at,
        stale_pos=m.stale_pos or None,
        unreached_at=m.unreached_at,
        unreached_pos=m.unreached_pos or None,
        gpus=m.gpus,
        gpus_pos=m.gpus_pos or None,
        log=m.log,
        log_pos=m.log_pos or None,
        last_line_at=m.last_line_at,
        queued=int(m.queued),
        queue_since=m.queue_since,
        billed_since=m.billed_since,
        billed_until=m.billed_until,
        bound_began=m.bound_began,
        bound_pos=m.bound_pos or None,
        launched_at=m.launched_at,
        launched_pos=m.launched_pos or None,
        ended_at=m.ended_at,
        ended_pos=m.ended_pos or None,
        outcome=m.outcome,
        reconnected_ended_at=m.reconnected_ended_at,
        reconnected_ended_pos=m.reconnected_ended_pos or None,
        left_at=m.left_at,
        left_pos=m.left_pos or None,
        teardown_at=m.teardown_first_at,
        teardown_pos=m.teardown_first_pos or None,
        teardown_failures=m.teardown_failures,
        teardown_error=m.teardown_error,
        absent_at=m.absent_at,
        absent_pos=m.absent_pos or None,
        gone_at=m.gone_at,
        gone_pos=m.gone_pos or None,
        gone_by=m.gone_by,
    )


def _intent(rows: Rows, stream: str, i: Intent) -> None:
    row: Row = {
        "position": i.position,
        "stream": stream,
        "generation": i.generation,
        "attempt": i.attempt,
        "attempt_try": i.attempt_try,
        "backend": i.backend,
        "account": i.account,
        "rung": i.rung,
        "zone": i.zone,
        "requested_at": i.requested_at,
        "call_before": i.call_before,
        "deadline": i.deadline,
        "stage": i.stage,
        "class": i.cls,
        "resolved_pos": i.resolved_pos,
    }
    rows[("intents", (i.position,))] = row


def _account(rows: Rows, account: Account) -> None:
    _put(
        rows,
        "accounts",
        stream=account.stream,
        backend=account.backend,
        account=account.account,
        read_at=account.read_at,
        read_pos=account.read_pos or None,
        complete=int(account.complete),
        complete_at=account.complete_at,
        complete_pos=account.complete_pos or None,
        listed=len(account.machines),
        fingerprint=account.fingerprint,
    )
    for machine in account.orphans.values():
        _machine(rows, account.stream, machine)
    _decisions(rows, account.stream, account.decisions)


def _ledger(rows: Rows, state: LedgerState) -> None:
    for at_position, recorded_at, policy in state.policies:
        _put(
            rows,
            "policies",
            position=at_position,
            recorded_at=recorded_at,
            ledger=state.id,
            policy=dumps(policy.to_payload()),
        )
    for breach, position in state.acks.items():
        _put(rows, "acks", breach=breach, position=position)
