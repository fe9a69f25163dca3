"""What was broken and is so no more: from the log alone, step by step.

The log is replayed in position order into read models in memory. What one moment recorded is one step: before it the
state invariants are asked at that moment, under the policy and the facts that stood until then; what was broken then
and is no longer after the step is past. Conduct was judged once; of it is past what was acknowledged or whose run was
closed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby

from ledger.events import Event, is_run
from ledger.invariants.audit import (
    CONDUCT,
    Breach,
    check,
    conduct_breach,
    look_for_files,
    state_breaches,
)
from ledger.log.connection import Connection
from ledger.log.rows import write_rows
from ledger.log.store import Log
from ledger.projections.rebuild import in_memory, judge_again, keep
from ledger.projections.tables import Before, Rows, before, join, touched
from ledger.state.fold import advance, new_state
from ledger.state.model import State


def history(log: Log, now: int, only: Collection[str] | None = None, run: str | None = None) -> list[Breach]:
    """The past breaches of both kinds as of `now`, the newest ended first; `status` is `past` or `acknowledged`.

    `only`: ids of invariants; `run`: one stream. Raises LedgerError for an id that no invariant has.
    """
    check(only)
    connection = in_memory()
    try:
        look_for_files(connection, None)
        with log.connection.read():
            events = (e for e in log.read_all(until=now) if run is None or e.stream == run or not is_run(e.stream))
            past = list(_replayed(connection, events, only))
        past += _conduct(connection, now, only)
    finally:
        connection.close()
    return sorted((b for b in past if run is None or b.run == run), key=lambda b: (-(b.until or 0), b.id))


def _replayed(connection: Connection, events: Iterable[Event], only: Collection[str] | None) -> Iterator[Breach]:
    states: dict[str, State] = {}
    for moment, step in groupby(events, key=lambda event: event.recorded_at):
        before = _broken(connection, moment, only)
        taken = list(step)
        _take(connection, taken, states)
        if before:
            after = _broken(connection, moment, only)
            yield from (breach.ended(moment) for id_, breach in before.items() if id_ not in after)


def _broken(connection: Connection, moment: int, only: Collection[str] | None) -> dict[str, Breach]:
    return {breach.id: breach for breach in state_breaches(connection, moment, True, only)}


def _take(connection: Connection, events: list[Event], states: dict[str, State]) -> None:
    """One step of the log into the read models: the rows that it changes."""
    keep(connection, events)
    was: dict[str, Before] = {}
    for event in events:
        state = states.setdefault(event.stream, new_state(event.stream))
        was.setdefault(event.stream, before(state))
        advance(state, event)
    rows: Rows = {}
    for stream, found in was.items():
        join(rows, touched(states[stream], found, [event for event in events if event.stream == stream]))
    write_rows(connection, rows)


def _conduct(connection: Connection, now: int, only: Collection[str] | None) -> Iterator[Breach]:
    judge_again(connection)
    for row in connection.query(CONDUCT):
        acknowledged, over = row[-2], row[-1]
        if (only is not None and row[0] not in only) or not (acknowledged or over):
            continue
        breach = conduct_breach(row, now)
        ends = [(at, "acknowledged") for at in _recorded(connection, acknowledged)]
        if over:
            ends += [(at, "past") for at in _closed(connection, row[2], row[1])]
        until, status = min(ends, default=(now, "past"))
        yield breach.ended(until, status)


def _recorded(connection: Connection, position: int | None) -> list[int]:
    rows = connection.query("SELECT recorded_at FROM events WHERE position = :position", {"position": position or 0})
    return [row[0] for row in rows]


def _closed(connection: Connection, stream: str, position: int) -> list[int]:
    """When the run of a breach at `position` was closed, or else dispatched again."""
    sql = """SELECT recorded_at FROM events WHERE stream = :stream AND type IN {types} AND position > :position
        ORDER BY version LIMIT 1"""
    for types in ("('RunClosed')", "('RunOpened', 'HandleImported')"):
        rows = connection.query(sql.replace("{types}", types), {"stream": stream, "position": position})
        if rows:
            return [rows[0][0]]
    return []
