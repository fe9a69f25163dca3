"""`ledger demo`: the story of two incidents, told by the real log, import, projection and audit."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ledger.cli import output
from ledger.cli.base import Call, Command, pass_call
from ledger.moments import MICROS

if TYPE_CHECKING:
    from ledger.demo.healed import Replay
    from ledger.demo.stage import Stage
    from ledger.demo.story import Incident, Moment
    from ledger.invariants.audit import Breach

_WIDTH = 92


@click.command(cls=Command)
@click.option("--wire", is_flag=True, help="The ledger speaks through the real clients, over loopback HTTP and SSH.")
@pass_call
def demo(call: Call, wire: bool) -> None:
    """Two incidents that really happened, in a temporary ledger on a virtual clock.

    #1417: a pod with four H100 GPUs was rented, nothing was ever started on it, and a person noticed the bill.
    #1776: a re-run wrote a default over a fact, and so switched off the timeout that should have saved the run.
    First as it happened: at each moment what the old handle file said, what was billed, and what `ledger audit`
    says. Then with the ledger polling, on simulated clouds. Takes seconds, needs no account anywhere, leaves nothing
    behind.

    \b
    Examples:
      ledger demo
      ledger demo --wire
      ledger demo --json | jq '.moments[].open'
    """
    from ledger.demo.healed import replays
    from ledger.demo.stage import temporary
    from ledger.demo.story import INCIDENTS
    from ledger.invariants.history import history

    moments = []
    healed: list[Replay] = []
    with temporary(INCIDENTS[0].as_it_happened[0].at) as stage:
        for incident in INCIDENTS:
            if not call.json:
                _open_act(incident)
            told: set[str] = set()
            for moment, value, breaches in play(stage, incident):
                moments.append({**output.iso_times(value), "open": [breach.to_json() for breach in breaches]})
                if not call.json:
                    _show_moment(moment, value, breaches, told)
            if not call.json:
                _paragraph(incident.lesson, "  ", "good")
            for replay in replays(incident.issue, wire=wire):
                healed.append(replay)
                if not call.json:
                    _show_replay(replay)
        past = history(stage.log, stage.source.now())
        if call.json:
            return output.emit(
                {
                    "moments": moments,
                    "with_the_ledger": [output.iso_times(replay.to_json()) for replay in healed],
                    "past": [breach.to_json() for breach in past],
                }
            )
        return _close(stage, past)


def play(stage: Stage, incident: Incident) -> Iterator[tuple[Moment, dict[str, Any], list[Breach]]]:
    """Act each moment; give it, what the old file and the ledger said and the cloud billed, and the open breaches."""
    from ledger.demo.story import watch

    for moment in incident.as_it_happened:
        watch(stage, incident.streams, until=moment.at)
        at = stage.set_clock(moment.at)
        before = int(stage.log.connection.query("SELECT COALESCE(MAX(position), 0) FROM events")[0][0])
        moment.act(stage)
        usd, rate = _bill(stage, incident, at)
        yield (
            moment,
            {
                "incident": incident.issue,
                "at": at,
                "title": moment.title,
                "told": moment.told,
                "events": [
                    {"position": e.position, "stream": e.stream, "type": e.type}
                    for e in stage.log.read_all(after=before)
                ],
                "old_files": {stream: _old(stage, stream) for stream in incident.streams},
                "handles": {stream: _handle(stage, stream) for stream in incident.streams},
                "usd_per_hour": rate,
                "usd": usd,
            },
            stage.audit(),
        )


def _bill(stage: Stage, incident: Incident, now: int) -> tuple[float, float]:
    """(dollars so far, dollars per hour now) of the machines of an incident."""
    total = rate = 0.0
    for stream in incident.streams:
        for machine in stage.run(stream).machines.values():
            if machine.billed_since is not None:
                until = machine.billed_until if machine.billed_until is not None else now
                total += (machine.cost_per_hour or 0.0) * (until - machine.billed_since) / MICROS / 3600
                rate += (machine.cost_per_hour or 0.0) if machine.billed else 0.0
    return total, rate


def _old(stage: Stage, stream: str) -> str:
    file = stage.old_file(stream)
    extra = file["extra"]
    said = extra.get("last_phase") or str(extra.get("status_at_reconnect", "")).lower()
    return ", ".join((file["backend"], said, extra.get("provisioning_model") or "no model"))


def _handle(stage: Stage, stream: str) -> str:
    from ledger.projections.sidecar import state_word

    run = stage.run(stream)
    if not run.open:
        return f"retired: {run.outcome} ({run.reason})"
    words = state_word(run).replace("_", " ")
    machine = run.handle_machine()
    model = f", {machine.model or machine.handle_model or 'no model'}" if machine and machine.backend == "gcp" else ""
    ahead = f", next {run.failover.machine}" if run.failover and run.failover.machine else ""
    return f"{words}{ahead}" if ahead else f"{words}{model}"


def _open_act(incident: Incident) -> None:
    output.say()
    output.say(f"{incident.issue}: {incident.title}", "title")
    output.say("=" * (len(incident.issue) + 2 + len(incident.title)), "title")
    _paragraph(incident.begins, "")


def _paragraph(text: str, indent: str, style: str | None = None) -> None:
    for line in textwrap.wrap(
        text, _WIDTH, initial_indent=indent, subsequent_indent=" " * len(indent), break_on_hyphens=False
    ):
        output.say(line, style)


def _show_moment(moment: Moment, value: dict[str, Any], breaches: list[Breach], told: set[str]) -> None:
    """`told`: the breaches that were explained before; they are named again, and not explained."""
    output.say()
    output.say(f"{output.when(value['at'])}  {moment.title}", "title")
    _paragraph(moment.told, "  ")
    several = len(value["old_files"]) > 1
    pairs = [(f"the old file{_of(stream, several)}", said) for stream, said in value["old_files"].items()]
    pairs += [(f"the ledger{_of(stream, several)}", said) for stream, said in value["handles"].items()]
    pairs.append(("billed", f"{output.dollars(value['usd'])} so far, {output.dollars(value['usd_per_hour'])} an hour"))
    output.facts(pairs)
    if not breaches:
        return output.say("  ledger audit: no breach open", "good")
    output.say(f"  ledger audit: {output.count(len(breaches), 'breach', 'breaches')} open", "bad")
    for breach in breaches:
        cost = f", {output.dollars(breach.usd_at_risk)} at risk" if breach.cost_per_hour else ""
        where = breach.run if several else breach.machine or breach.run
        output.say(f"    {breach.invariant}: {where}, since {output.when(breach.since)}{cost}", "bad")
        if breach.id not in told:
            _paragraph(breach.detail or breach.about, "      ")
            _paragraph(breach.advice, "      -> ")
    told.update(breach.id for breach in breaches)
    return None


def _show_replay(replay: Replay) -> None:
    from ledger.cli.words import words

    output.say()
    output.say(f"{replay.issue}, {replay.title}", "title")
    _paragraph(replay.told, "  ")
    for _, group in itertools.groupby(replay.events, key=lambda event: (event.type, event.machine, event.attempt)):
        first, *again = group
        said = words(first)
        more = f" ({len(again)} times more, to {output.when(again[-1].occurred_at)[11:19]})" if again else ""
        line = f"{output.when(first.occurred_at)[11:19]}  {first.type}{': ' + said if said else ''}{more}"
        for part in textwrap.wrap(line, _WIDTH, initial_indent="  ", subsequent_indent=" " * 12):
            output.say(part)
    minutes = f"{replay.idle_seconds / 60:.1f} minutes"
    output.facts(
        [
            ("the handle", replay.handle),
            (
                "billed",
                f"{output.dollars(replay.usd)}, of it {output.dollars(replay.idle_usd)} ({minutes}) for nothing",
            ),
        ]
    )
    breaches = ", ".join(replay.ever) or "none at any tick"
    output.say(f"  ledger audit: {breaches}", "bad" if replay.ever else "good")


def _of(stream: str, several: bool) -> str:
    return f", #{stream.removeprefix('issue-')}" if several else ""


def _close(stage: Stage, past: list[Breach]) -> None:
    events = int(stage.log.connection.query("SELECT COUNT(*) FROM events")[0][0])
    output.say()
    output.say("what stays", "title")
    _paragraph(
        f"{events} events that nobody can change, and {output.count(len(past), 'past breach', 'past breaches')} "
        "(`ledger audit --history`):",
        "  ",
    )
    rows = [
        (b.invariant, b.run, output.when(b.since), output.when(b.until), output.dollars(b.usd_at_risk)) for b in past
    ]
    if rows:
        output.table(("breach", "run", "since", "until", "at risk"), rows, right=("at risk",))
    output.say()
    output.say("Your own: `ledger init`, `ledger import PATH`, `ledger audit`.", "title")
