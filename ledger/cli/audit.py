"""`ledger audit` and `ledger ack`: what must never be, and is; and a person's word that it was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ledger.cli import output
from ledger.cli.base import Call, Command, pass_call
from ledger.cli.breaches import open_breaches, rate, show_reasons, show_table, types_at
from ledger.cli.names import Past, known, stream_of
from ledger.errors import Conflict, LedgerError
from ledger.events import LEDGER_STREAM, Draft, is_run
from ledger.moments import iso

if TYPE_CHECKING:
    from ledger.invariants.audit import Breach
    from ledger.log.store import Log


@click.command(cls=Command)
@click.option("--as-of", type=Past(), help="What the log had recorded by then, under the policy of then.")
@click.option("--history", is_flag=True, help="Past breaches too: each kept for ever, with when it ended.")
@click.option("--only", metavar="ID", help="This invariant alone.")
@click.option("--run", metavar="ISSUE", help="This run alone: 1417, issue-1417, or 1417-b for lane b.")
@click.option("--from-log", is_flag=True, help="Rebuild everything from the events first; slower, and the same.")
@pass_call
def audit(call: Call, as_of: int | None, history: bool, only: str | None, run: str | None, from_log: bool) -> int:
    """What must never be, and is: each breach with its evidence, the money at risk, and what to do.

    Exit status: 0 none open, 1 some open, 2 could not run.

    \b
    Examples:
      ledger audit
      ledger audit --only unlaunched-machine --json
      ledger audit --as-of 2026-07-18T01:15:00Z
      ledger audit --history --run 1417
    """
    from ledger.invariants.audit import check
    from ledger.invariants.audit import from_log as audit_from_log

    ids = [only] if only is not None else None
    check(ids)
    if history and as_of is not None:
        raise click.UsageError("--history tells every time; give --as-of or --history, not both")
    now = as_of if as_of is not None else call.source.now()
    with call.reading() as log:
        stream = known(log, stream_of(run)) if run else None
        with output.progress("reading the log", quiet=call.json or not (history or from_log or as_of is not None)):
            if from_log and as_of is None:
                breaches = audit_from_log(log, now, ids, stream)
            else:
                breaches = open_breaches(call, log, now, only=only, run=stream, at=as_of)
            past = _past(log, now, ids, stream) if history else []
        types = types_at(log, sorted({p for breach in (*breaches, *past) for p in breach.evidence}))
    per_hour, unknown = rate(breaches)
    if call.json:
        output.emit(
            {
                "at": iso(now),
                "open": [breach.to_json() for breach in breaches],
                **({"past": [breach.to_json() for breach in past]} if history else {}),
                "usd_per_hour": per_hour,
                "unknown_prices": unknown,
            }
        )
    else:
        _show(breaches, past if history else None, types, per_hour, unknown)
    return 1 if breaches else 0


def _past(log: Log, now: int, ids: list[str] | None, stream: str | None) -> list[Breach]:
    # Replays the log in a database in memory: loaded only where it is asked for.
    from ledger.invariants.history import history

    return history(log, now, ids, stream)


def _show(
    breaches: list[Breach], past: list[Breach] | None, types: dict[int, str], per_hour: float, unknown: int
) -> None:
    if breaches:
        more = f" and {output.count(unknown, 'unknown price')}" if unknown else ""
        number = output.count(len(breaches), "breach", "breaches")
        output.say(f"{number} open, {output.dollars(per_hour)} an hour at risk{more}", "bad")
        show_table(breaches)
        show_reasons(breaches, types)
    else:
        output.say("no breach open", "good")
    if past is not None:
        output.say()
        output.say(f"{output.count(len(past), 'breach', 'breaches')} past", "title")
        if past:
            show_table(past)
            show_reasons(past, types)


@click.command(cls=Command)
@click.argument("breach")
@click.option("--note", default="", help="Why it is all right now; kept with it.")
@pass_call
def ack(call: Call, breach: str, note: str) -> None:
    """Say that a breach has been seen. BREACH is its id as `ledger audit` shows it.

    Only what is a point in the past (a conduct invariant) or says that the log is not what the world is
    (log-broken) can be acknowledged; any other breach closes by itself when what it says is no longer so.
    Twice is fine.

    \b
    Example:
      ledger ack thin-evidence@1204 --note "seen; the machine was mine"
    """
    with call.writing() as log:
        stream = _stream_to_acknowledge(call, log, breach)
        written = stream is not None and _acknowledge(log, stream, breach, note)
        if stream is not None and is_run(stream):
            call.project(log, [stream])
    what = "acknowledged" if written else "was acknowledged, or is past, already"
    if call.json:
        return output.emit({"breach": breach, "acknowledged": True, "written": written})
    return output.say(f"{breach} {what}")


def _stream_to_acknowledge(call: Call, log: Log, breach: str) -> str | None:
    """The stream that an acknowledgement belongs to; None where there is nothing to say any more."""
    if _acknowledged(log, breach):
        return None
    rows = log.connection.query("SELECT stream FROM breaches WHERE breach = :breach", {"breach": breach})
    if rows:
        return str(rows[0][0]) if is_run(rows[0][0]) else LEDGER_STREAM
    found = next((b for b in open_breaches(call, log, call.source.now()) if b.id == breach), None)
    if found is None:
        raise LedgerError(f"no breach {breach!r} is open; `ledger audit` shows the ids of those that are")
    if found.invariant != "log-broken":
        raise LedgerError(f"{breach} cannot be acknowledged, it closes by itself: {found.advice}")
    return LEDGER_STREAM


def _acknowledged(log: Log, breach: str) -> bool:
    return bool(log.connection.query("SELECT 1 FROM acks WHERE breach = :breach", {"breach": breach}))


def _acknowledge(log: Log, stream: str, breach: str, note: str) -> bool:
    from ledger.secrets import redact

    payload: dict[str, Any] = {"breach": breach, "note": redact(note)}
    while True:
        version = log.state(stream).version
        if _acknowledged(log, breach):
            return False
        try:
            log.append(stream, version, [Draft("BreachAcknowledged", payload, log.source.now(), actor="user")])
        except Conflict:
            continue
        return True
