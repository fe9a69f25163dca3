"""`ledger log` and `ledger status`: views of the log and its read models. Nothing here is folded or decided."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ledger.cli import output
from ledger.cli.base import Call, Command, pass_call
from ledger.cli.names import Moment, known, stream_of
from ledger.cli.words import payload_of, words
from ledger.events import KINDS, Event

if TYPE_CHECKING:
    from ledger.log.store import Log

FOLLOW_SECONDS = 1.0


@click.command(cls=Command)
@click.argument("issue", required=False)
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only events of this type; may be given again.")
@click.option("--since", type=Moment(), help="Only what was recorded since: ISO 8601, or 2h, 30min, 1d ago.")
@click.option("--limit", type=click.IntRange(1, 10**9), metavar="N", help="Only the newest N.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is appended, until Ctrl-C.")
@pass_call
def log(
    call: Call, issue: str | None, types: tuple[str, ...], since: int | None, limit: int | None, follow: bool
) -> None:
    """The events, oldest first: of all streams, or of ISSUE alone.

    ISSUE is a run (1417, issue-1417, or 1417-b for lane b), `ledger`, or an account's stream such as
    account-gcp-my-project. With --json: one JSON object a line, an event each, as it is stored.

    \b
    Examples:
      ledger log 1417
      ledger log --type FailoverDecided --type Repointed --since 1d
      ledger log --follow --json | jq .type
    """
    unknown = [name for name in types if name not in KINDS]
    if unknown:
        raise click.BadParameter(f"there is no event type {unknown[0]!r}; there are {', '.join(KINDS)}")
    with call.reading() as ledger_log:
        stream = known(ledger_log, stream_of(issue)) if issue else None
        position = 0
        for event in events(ledger_log, stream, types, since, limit, settled=follow):
            _print(call, event)
            position = event.position
        while follow:
            ledger_log.connection.wait(FOLLOW_SECONDS, call.sleep)
            for event in events(ledger_log, stream, types, since, None, after=position, settled=True):
                _print(call, event)
                position = event.position


def events(
    log: Log,
    stream: str | None = None,
    types: tuple[str, ...] = (),
    since: int | None = None,
    limit: int | None = None,
    after: int = 0,
    settled: bool = False,
) -> Iterator[Event]:
    """The events that fit, in position order; with `limit` the newest so many.

    `settled`: only those in front of which none can appear any more, to go on from the last.
    """
    from ledger.log.reader import SELECT

    where = ["position > :after"]
    params: dict[str, Any] = {"after": after}
    if settled:
        where.append(log.connection.settled)
    if stream is not None:
        where.append("stream = :stream")
        params["stream"] = stream
    if since is not None:
        where.append("recorded_at >= :since")
        params["since"] = since
    if types:
        names = {f"type_{i}": name for i, name in enumerate(types)}
        where.append(f"type IN ({', '.join(f':{name}' for name in names)})")
        params.update(names)
    sql = f"{SELECT} WHERE {' AND '.join(where)} ORDER BY position"
    if limit is not None:
        newest = log.connection.query(f"{sql} DESC LIMIT :limit", {**params, "limit": limit})
        return map(Event._make, reversed(newest))
    return map(Event._make, log.connection.stream(sql, params))


def _print(call: Call, event: Event) -> None:
    if call.json:
        return output.emit_line({**event._asdict(), "payload": payload_of(event) or event.payload})
    return output.say(line(event))


def line(event: Event, *, with_stream: bool = True) -> str:
    """One event on one line: position, moment, stream, type, machine, and what it says."""
    stream = f"{event.stream:<18} " if with_stream else ""
    said = ", ".join(text for text in (event.machine, words(event)) if text)
    return f"{event.position:>6}  {output.when(event.occurred_at)}  {stream}{event.type:<20} {said}".rstrip()


@click.command(cls=Command)
@pass_call
def status(call: Call) -> None:
    """Active runs, the machines that are open, what they cost, and what is wrong.

    A run of a backend that the ledger does not drive (a SLURM cluster) is shown as not driven: it is never
    polled. $/h is 0 for a machine that is not billed now, ? where nobody knows.

    \b
    Examples:
      ledger status
      ledger status --json | jq .usd_per_hour
    """
    from ledger.cli.status import collect, show

    with call.reading() as ledger_log:
        value = collect(call, ledger_log)
    if call.json:
        return output.emit(output.iso_times(value))
    return show(value)
