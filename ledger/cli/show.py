"""`ledger show`: one run, now or as the log had it at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ledger.cli import output
from ledger.cli.base import Call, Command, pass_call
from ledger.cli.breaches import open_breaches, show_reasons, show_table
from ledger.cli.names import Past, known, run_of
from ledger.cli.reading import line
from ledger.cli.words import payload_of, words
from ledger.errors import LedgerError
from ledger.events import Event
from ledger.moments import MICROS, iso

if TYPE_CHECKING:
    from ledger.invariants.audit import Breach
    from ledger.log.store import Log
    from ledger.state.model import Intent, Machine, Run

_PINS = (
    "workload_cmd",
    "hydra_args",
    "intent",
    "gpus",
    "gpu_type",
    "env_pins",
    "time_budget_hours",
    "repo_branch",
    "boot_disk_gb",
    "min_ram_gb",
    "allow_paid_fallback",
    "owner",
)


@click.command(cls=Command)
@click.argument("issue")
@click.option("--as-of", type=Past(), help="As the log had it then: ISO 8601, or 2h, 30min, 1d ago.")
@pass_call
def show(call: Call, issue: str, as_of: int | None) -> None:
    """One run: its state, what was pinned, its machines with their clocks and costs, its timeline, its breaches.

    ISSUE is 1417, issue-1417, or 1417-b for lane b.

    \b
    Examples:
      ledger show 1417
      ledger show 1417 --as-of 2026-07-18T00:30:00Z
      ledger show 1417 --json | jq .machines
    """
    from ledger.state.fold import fold_run

    stream = run_of(issue)
    now = as_of if as_of is not None else call.source.now()
    with call.reading() as log, log.connection.read():
        known(log, stream)
        events = [event for event in log.read(stream) if as_of is None or event.recorded_at <= as_of]
        if not events:
            raise LedgerError(f"{stream} was not in the ledger at {iso(now)}; `ledger log {stream}` says since when")
        run = fold_run(stream, events)
        breaches = open_breaches(call, log, now, run=stream, at=as_of)
        sidecar = _sidecar(call, log, run) if as_of is None else None
    if call.json:
        value = output.iso_times(value_of(run, breaches, sidecar, now))
        stored = [{**event._asdict(), "payload": payload_of(event), "words": words(event)} for event in events]
        return output.emit({**value, "events": stored})
    return _show(run, events, breaches, sidecar, now)


def _sidecar(call: Call, log: Log, run: Run) -> dict[str, Any] | None:
    """Where its file is, and what is wrong with it, if anything."""
    folder = call.folder()
    if folder is None:
        return None
    wrong = next((d.detail for d in folder.check(log, [run.stream])), None)
    return {"path": str(folder.path_of(run)), "right": wrong is None, "wrong": wrong}


def value_of(run: Run, breaches: list[Breach], sidecar: dict[str, Any] | None, now: int) -> dict[str, Any]:
    """What `ledger show --json` prints beside the events. Times in microseconds UTC, costs in dollars (per hour)."""
    failover = run.failover
    return {
        "run": run.stream,
        "issue": run.issue,
        "lane": run.lane,
        "generation": run.generation,
        "backend": run.backend,
        "driven": run.driven,
        "state": _state(run),
        "opened_at": run.opened_at,
        "closed_at": run.closed_at,
        "outcome": run.outcome,
        "reason": run.reason,
        "failure_class": run.failure_class,
        "unreadable": [{"position": position, "type": type_} for position, type_ in run.unreadable],
        "pins": pins(run),
        "ladder": list(run.ladder),
        "handle": run.handle,
        "failover": None
        if failover is None
        else {
            "reason": failover.reason,
            "from": failover.from_machine,
            "next_rung": failover.next_rung,
            "decided_at": failover.decided_at,
            "machine": failover.machine,
            "position": failover.position,
        },
        "machines": [_machine(machine, run, now) for machine in run.machines.values()],
        "intents": [_intent(intent) for intent in run.intents.values()],
        "breaches": [breach.to_json() for breach in breaches],
        "sidecar": sidecar,
    }


def pins(run: Run) -> dict[str, Any]:
    """What was pinned at the dispatch, or stated by the file that was taken over."""
    extra = run.imported.get("extra") if run.imported is not None else None
    stated = run.opened or (extra if isinstance(extra, dict) else {})
    return {name: stated[name] for name in _PINS if stated.get(name) not in (None, "", [], {})}


def _state(run: Run) -> str:
    from ledger.projections.sidecar import state_word

    return state_word(run) if run.open else "closed"


def _machine(machine: Machine, run: Run, now: int) -> dict[str, Any]:
    return {
        "machine": machine.id,
        "name": machine.name,
        "generation": machine.generation,
        "attempt": machine.attempt,
        "claim": machine.claim,
        "stage": machine.stage,
        "handle": machine.id == run.handle,
        "backend": machine.backend,
        "account": machine.account,
        "zone": machine.zone,
        "rung": machine.rung,
        "requested_model": machine.requested_model,
        "provisioning_model": machine.model,
        "status": machine.status,
        "status_since": machine.status_since or None,
        "phase": machine.phase,
        "gpus": machine.gpus,
        "log": machine.log,
        "pid": machine.pid,
        "created_at": machine.created_at,
        "known_at": machine.known_at,
        "queue_since": machine.queue_since if machine.queued else None,
        "billed_since": machine.billed_since,
        "billed_until": machine.billed_until,
        "bound_began": machine.bound_began,
        "launched_at": machine.launched_at,
        "ended_at": machine.ended_at,
        "outcome": machine.outcome,
        "left_at": machine.left_at,
        "teardown_at": machine.teardown_first_at,
        "gone_at": machine.gone_at,
        "gone_by": machine.gone_by,
        "billed": machine.billed,
        "cost_per_hour": machine.cost_per_hour,
        "usd": spent(machine, now),
    }


def spent(machine: Machine, now: int) -> float | None:
    """Dollars that it has cost until `now`; None where nobody knows its price."""
    if machine.billed_since is None:
        return 0.0
    until = machine.billed_until if machine.billed_until is not None else machine.gone_at
    hours = ((until if until is not None else now) - machine.billed_since) / MICROS / 3600
    return None if machine.cost_per_hour is None else machine.cost_per_hour * max(0.0, hours)


def _intent(intent: Intent) -> dict[str, Any]:
    return {
        "attempt": intent.attempt,
        "try": intent.attempt_try,
        "rung": intent.rung,
        "zone": intent.zone,
        "name": intent.name,
        "stage": intent.stage,
        "class": intent.cls,
        "requested_at": intent.requested_at,
        "deadline": intent.deadline,
        "machines": intent.machines,
        "position": intent.position,
    }


def _show(run: Run, events: list[Event], breaches: list[Breach], sidecar: dict[str, Any] | None, now: int) -> None:
    output.say(f"{run.stream}: {_words(run)}", "title")
    failover = run.failover
    output.facts(
        [
            ("opened", output.when(run.opened_at)),
            ("closed", output.when(run.closed_at) if run.closed_at is not None else None),
            ("generation", run.generation if run.generation > 1 else None),
            (
                "unreadable",
                f"{len(run.unreadable)} events of a newer version: not acted on" if run.unreadable else None,
            ),
            ("handle", run.handle or "names no machine"),
            ("failover", f"{failover.reason}, since {output.when(failover.decided_at)}" if failover else None),
            ("in hand", failover.machine if failover else None),
            ("ladder", ", ".join(run.ladder)),
            *((name, " ".join(value) if isinstance(value, list) else value) for name, value in pins(run).items()),
            ("sidecar", _sidecar_words(sidecar)),
        ]
    )
    for machine in run.machines.values():
        output.say()
        _show_machine(machine, run, now)
    if run.intents:
        output.say()
        output.say(output.count(len(run.intents), "create"), "title")
        rows = [
            (i.position, i.rung, i.zone, i.name, f"{i.stage} {i.cls or ''}".strip(), output.when(i.requested_at))
            for i in run.intents.values()
        ]
        output.table(("event", "rung", "zone", "name", "outcome", "asked for"), rows, right=("event",))
    output.say()
    output.say("timeline", "title")
    for event in events:
        output.say(line(event, with_stream=False))
    output.say()
    if not breaches:
        return output.say("no breach open", "good")
    output.say(f"{output.count(len(breaches), 'breach', 'breaches')} open", "bad")
    show_table(breaches)
    return show_reasons(breaches, {event.position: event.type for event in events})


def _words(run: Run) -> str:
    if not run.open:
        return f"closed, {run.outcome} ({run.reason})"
    return "not driven by the ledger" if not run.driven else _state(run).replace("_", " ")


def _sidecar_words(sidecar: dict[str, Any] | None) -> str | None:
    if sidecar is None:
        return None
    return f"{sidecar['path']} ({'as the log says' if sidecar['right'] else sidecar['wrong']})"


def _show_machine(machine: Machine, run: Run, now: int) -> None:
    handle = ", the handle" if machine.id == run.handle else ""
    output.say(f"{machine.id}  {machine.stage}{handle}", "title")
    since = f" since {output.when(machine.status_since)}" if machine.status_since else ""
    billed = None
    if machine.billed_since is not None:
        ended = machine.billed_until if machine.billed_until is not None else machine.gone_at
        length = output.span((ended if ended is not None else now) - machine.billed_since)
        price = f"{output.dollars(machine.cost_per_hour)}/h, {output.dollars(spent(machine, now))} so far"
        billed = f"since {output.when(machine.billed_since)}, {length}{'' if ended is None else ', ended'}, {price}"
    output.facts(
        [
            ("name", machine.name),
            ("where", ", ".join(filter(None, (machine.backend, machine.account, machine.zone)))),
            ("model", machine.model or machine.requested_model),
            ("status", f"{machine.status}{since}" if machine.status else "never seen"),
            ("phase", machine.phase),
            ("GPUs", machine.gpus if machine.gpus != "unknown" else None),
            ("log", machine.log if machine.log != "unknown" else None),
            ("queued", f"since {output.when(machine.queue_since)}" if machine.queued else None),
            ("billed", billed),
            ("launched", _launched(machine)),
            ("ended", f"{output.when(machine.ended_at)}, {machine.outcome}" if machine.ended_at is not None else None),
            ("left", f"{output.when(machine.left_at)}, {machine.left_reason}" if machine.left_at is not None else None),
            ("teardown", _teardown(machine)),
            ("gone", f"{output.when(machine.gone_at)}, by {machine.gone_by}" if machine.gone_at is not None else None),
        ]
    )


def _launched(machine: Machine) -> str | None:
    if machine.launched_at is not None:
        return f"{output.when(machine.launched_at)}{f', pid {machine.pid}' if machine.pid else ''}"
    if machine.launch_failed_at is not None:
        return f"failed {output.when(machine.launch_failed_at)}"
    return f"not confirmed; its bound began {output.when(machine.bound_began)}" if machine.bound_began else None


def _teardown(machine: Machine) -> str | None:
    if machine.teardown_first_at is None:
        return None
    failed = (
        f", failed {machine.teardown_failures} times ({machine.teardown_error})" if machine.teardown_failures else ""
    )
    return f"requested {output.when(machine.teardown_first_at)}, {machine.teardown_reason}{failed}"
