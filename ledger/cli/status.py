"""What `ledger status` shows, collected from the read models, and how."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ledger.cli import output
from ledger.cli.breaches import open_breaches
from ledger.moments import MICROS

if TYPE_CHECKING:
    from ledger.cli.base import Call
    from ledger.log.store import Log

# An orphan that a run took over since is that run's machine; it stands here once.
_MACHINES = """
SELECT m.machine, m.stream, m.claim, m.name, m.backend, m.account, m.zone, m.status, m.status_since, m.gpus,
       m.billed_since, m.billed_until, m.cost_per_hour, m.launched_at
FROM machines m WHERE m.gone_at IS NULL AND NOT (m.claim = 'orphan' AND EXISTS (
    SELECT 1 FROM machines o WHERE o.machine = m.machine AND o.claim <> 'orphan'))
ORDER BY m.stream, m.known_pos
"""
_ACCOUNTS = "SELECT stream, backend, account, read_at, complete, complete_at FROM accounts ORDER BY stream"


def collect(call: Call, log: Log) -> dict[str, Any]:
    """What `ledger status --json` prints. Times in microseconds UTC, costs in dollars (per hour)."""
    now = call.source.now()
    with log.connection.read():
        machines = [_machine(row, now) for row in log.connection.query(_MACHINES)]
        runs = [_run(log, stream) for stream in log.active_streams()]
        accounts = [
            dict(zip(("stream", "backend", "account", "read_at", "complete", "complete_at"), row, strict=True))
            for row in log.connection.query(_ACCOUNTS)
        ]
        paused = log.policy().paused
        ledger_id = log.ledger_id()
        breaches = open_breaches(call, log, now)
    rates = [m["cost_per_hour"] for m in machines if m["billed"]]
    by_run: dict[str, float | None] = {run["run"]: 0.0 for run in runs}
    for m in machines:
        if m["billed"] and m["claim"] != "orphan":
            so_far = by_run.get(m["run"])
            unknown = so_far is None or m["cost_per_hour"] is None
            by_run[m["run"]] = None if unknown else so_far + m["cost_per_hour"]
    return {
        "ledger": ledger_id,
        "database": log.connection.where,
        "at": now,
        "paused": paused,
        "runs": [{**run, "usd_per_hour": by_run[run["run"]]} for run in runs],
        "machines": machines,
        "usd_per_hour": sum(rate for rate in rates if rate is not None),
        "billed_without_a_price": sum(rate is None for rate in rates),
        "accounts": [{**account, "complete": bool(account["complete"])} for account in accounts],
        "breaches": dict(sorted(Counter(breach.invariant for breach in breaches).items())),
    }


def _machine(row: tuple[Any, ...], now: int) -> dict[str, Any]:
    machine, stream, claim, name, backend, account, zone, status, since, gpus, start, end, cost, launched = row
    billed = start is not None and end is None
    hours = ((end if end is not None else now) - start) / MICROS / 3600 if start is not None else 0.0
    return {
        "machine": machine,
        "run": stream,
        "claim": claim,
        "name": name,
        "backend": backend,
        "account": account,
        "zone": zone,
        "status": status,
        "status_since": since,
        "gpus": gpus,
        "launched_at": launched,
        "billed": billed,
        "billed_since": start,
        "cost_per_hour": cost,
        "usd": None if cost is None and start is not None else (cost or 0.0) * hours,
    }


def _run(log: Log, stream: str) -> dict[str, Any]:
    from ledger.projections.sidecar import state_word

    run = log.run(stream)
    machine = run.handle_machine()
    since = run.failover.decided_at if run.failover else machine.known_at if machine else run.opened_at
    return {
        "run": stream,
        "issue": run.issue,
        "lane": run.lane,
        "backend": run.backend,
        "driven": run.driven,
        "state": state_word(run),
        "machine": run.handle,
        "next": run.failover.machine if run.failover else None,
        "since": since,
        "readable": not run.unreadable,
    }


def show(value: dict[str, Any]) -> None:
    """For people."""
    now = value["at"]
    if value["paused"]:
        output.say("PAUSED: no create and no teardown until `ledger resume`", "bad")
    runs, machines = value["runs"], value["machines"]
    output.say(output.count(len(runs), "active run"), "title")
    if runs:
        rows: list[tuple[Any, ...]] = [
            (
                run["run"],
                _state(run),
                run["machine"],
                output.span(now - run["since"]),
                output.dollars(run["usd_per_hour"]),
            )
            for run in runs
        ]
        output.table(("run", "state", "machine", "since", "$/h"), rows, right=("$/h",))
    output.say()
    output.say(f"{output.count(len(machines), 'open machine')}, {_rate(value)}", "title")
    if machines:
        output.table(
            ("machine", "run", "status", "GPUs", "billed", "$/h", "so far"),
            [_machine_row(machine, now) for machine in machines],
            right=("$/h", "so far"),
        )
    output.say()
    output.say(output.count(len(value["accounts"]), "account"), "title")
    if value["accounts"]:
        rows = [
            (
                f"{account['backend']} {account['account']}",
                output.when(account["complete_at"]),
                f"{output.span(now - account['complete_at'])} ago" if account["complete_at"] is not None else "never",
                "well" if account["complete"] else "partly",
            )
            for account in value["accounts"]
        ]
        output.table(("account", "last read well", "ago", "newest read"), rows)
    output.say()
    breaches = value["breaches"]
    if not breaches:
        return output.say("nothing is wrong", "good")
    number = sum(breaches.values())
    output.say(f"{output.count(number, 'breach', 'breaches')} open: see `ledger audit`", "bad")
    return output.table(("invariant", "open"), breaches.items(), right=("open",))


def _state(run: dict[str, Any]) -> str:
    state = "not driven" if not run["driven"] else run["state"].replace("_", " ")
    ahead = f", next {run['next']}" if run["next"] else ""
    return f"{state}{ahead}{'' if run['readable'] else ' (unreadable)'}"


def _machine_row(machine: dict[str, Any], now: int) -> tuple[Any, ...]:
    return (
        machine["machine"],
        "an orphan" if machine["claim"] == "orphan" else machine["run"],
        machine["status"],
        machine["gpus"] if machine["gpus"] != "unknown" else None,
        output.span(now - machine["billed_since"]) if machine["billed"] else "no",
        output.dollars(machine["cost_per_hour"] if machine["billed"] else 0.0),
        output.dollars(machine["usd"]),
    )


def _rate(value: dict[str, Any]) -> str:
    unknown = value["billed_without_a_price"]
    more = f" and {output.count(unknown, 'machine')} of unknown price" if unknown else ""
    return f"{output.dollars(value['usd_per_hour'])} an hour{more}"
