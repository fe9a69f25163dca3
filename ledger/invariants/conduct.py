"""Conduct is judged once, in the transaction that records what was decided."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any, Final

from ledger.invariants.base import params
from ledger.invariants.decisions import LOG_ALONE
from ledger.invariants.registry import of_kind
from ledger.log.connection import Connection
from ledger.policy import Policy
from ledger.projections.tables import Row, Rows

END: Final = 2**62  # a position after every other

# Which decisions (rows of `decisions`) each invariant can break at all: what is no such decision is not asked about.
_MAY_BREAK: Final[dict[str, Callable[[str, str, str, str, str | None], bool]]] = {
    "attempt-leak": lambda *_: True,  # if it cites anything
    "thin-evidence": lambda type_, reason, actor, claim, probe: (
        type_ == "FailoverDecided" or (type_ == "TeardownRequested" and actor != "user" and reason not in LOG_ALONE)
    ),
    "skipped-rung": lambda type_, reason, actor, claim, probe: (
        type_ == "RunClosed" and reason == "no_compute_available"
    ),
    "foreign-touch": lambda type_, reason, actor, claim, probe: (
        type_ in ("TeardownRequested", "Provisioned") and claim in ("none", "name", "orphan")
    ),
    "unprobed-failure": lambda type_, reason, actor, claim, probe: type_ == "LaunchFailed" and probe is None,
}


def worth_asking(rows: Rows) -> set[str]:
    """The invariants that these rows, newly written, can break: the others are not asked of the database."""
    asked = {"illegal-transition"} if "oddities" in rows else set()
    for _, _, _, type_, _, _, reason, _, actor, claim, _, _, probe in rows.get("decisions", {}).values():
        asked |= {name for name, may in _MAY_BREAK.items() if may(type_, reason, actor, claim, probe)}
    if "evidence" not in rows:
        asked.discard("attempt-leak")
    return asked


def judge(
    connection: Connection, first: int, policy: Policy, last: int = END, only: Collection[str] | None = None
) -> list[Row]:
    """The rows for table `breaches` of what was decided from position `first` to `last`, under `policy`.

    Reads `decisions`, `evidence`, `rungs`, `intents`, `oddities` and `events`, which must hold those positions.
    `only`: ids of invariants.
    """
    bounds: dict[str, Any] = {**params(policy, 0), "first": first, "last": last}
    rows: list[Row] = []
    for invariant in of_kind("conduct"):
        if only is not None and invariant.id not in only:
            continue
        for key, stream, generation, attempt, machine, began, since, _, detail, *found in connection.query(
            invariant.sql, bounds
        ):
            cited = connection.query("SELECT position FROM evidence WHERE decision = :decision", {"decision": int(key)})
            positions = {*(position for (position,) in cited), *found, int(key)}
            evidence = json.dumps(sorted(positions), separators=(",", ":"))
            breach = f"{invariant.id}@{key}"
            rows.append(
                (breach, int(key), invariant.id, stream, generation, attempt, machine, began, since, evidence, detail)
            )
    return rows
