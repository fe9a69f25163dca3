"""Breaches on the command line: how they are asked for, and how they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ledger.cli import output
from ledger.moments import MICROS

if TYPE_CHECKING:
    from ledger.cli.base import Call
    from ledger.invariants.audit import Breach
    from ledger.log.store import Log


def open_breaches(
    call: Call, log: Log, now: int, *, only: str | None = None, run: str | None = None, at: int | None = None
) -> list[Breach]:
    """What is open now (files compared where a folder is configured), or as the log had it `at` a time."""
    from ledger.invariants.audit import as_of, audit

    ids = [only] if only is not None else None
    if at is not None:
        return as_of(log, at, ids, run)
    folder = call.folder()
    files = folder.rows(log) if folder is not None else None
    return audit(log, now, files, ids, run)


def types_at(log: Log, positions: Sequence[int]) -> dict[int, str]:
    """The types of the events at these positions, for evidence that a person can read."""
    found: dict[int, str] = {}
    for position in positions:
        rows = log.connection.query("SELECT type FROM events WHERE position = :position", {"position": position})
        found.update({position: rows[0][0]} if rows else {})
    return found


def rate(breaches: Sequence[Breach]) -> tuple[float, int]:
    """(dollars per hour that is at risk, how many prices nobody knows). A machine in several breaches is billed once.

    A breach without a machine is of a whole account: its cost counts as far as its backend's machines are not yet in.
    """
    machines: dict[str, float | None] = {}
    for breach in breaches:
        if breach.machine is not None and machines.get(breach.machine) is None:
            machines[breach.machine] = breach.cost_per_hour
    total = sum(cost or 0.0 for cost in machines.values())
    unknown = sum(cost is None for cost in machines.values())
    for breach in breaches:
        if breach.machine is None and breach.cost_per_hour is not None:
            backend = breach.id.partition("@")[2].partition(":")[0]
            counted = sum(cost or 0.0 for machine, cost in machines.items() if machine.startswith(f"{backend}:"))
            total += max(0.0, breach.cost_per_hour - counted)
        elif breach.machine is None:
            unknown += 1
    return total, unknown


def show_table(breaches: Sequence[Breach]) -> None:
    """One line a breach."""
    rows = [
        (
            breach.id,
            breach.run,
            breach.machine,
            output.span(breach.age_seconds * MICROS),
            output.dollars(breach.cost_per_hour),
            output.dollars(breach.usd_at_risk),
        )
        for breach in breaches
    ]
    output.table(("breach", "run", "machine", "for", "$/h", "at risk"), rows, right=("$/h", "at risk"))


def show_reasons(breaches: Sequence[Breach], types: Mapping[int, str]) -> None:
    """Under each breach: what is wrong, on which evidence, and what to do."""
    for breach in breaches:
        output.say()
        output.say(breach.id, "bad" if breach.status == "open" else "dim")
        evidence = "  ".join(f"{position} {types.get(position, '(no event)')}" for position in breach.evidence)
        output.facts(
            [
                ("what", breach.detail or breach.about),
                ("since", output.when(breach.since)),
                ("until", output.when(breach.until) if breach.until is not None else None),
                ("evidence", evidence),
                ("do", breach.advice if breach.status == "open" else None),
            ]
        )
