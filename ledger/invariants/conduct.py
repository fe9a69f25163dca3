"""Conduct is judged once, in the transaction that records what was decided."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final

from ledger.invariants.base import params
from ledger.invariants.decisions import LOG_ALONE
from ledger.invariants.registry import of_kind
from ledger.log.connection import Connection
from ledger.policy import Policy
from ledger.projections.tables import Row, Rows

END: Final = 2**62  # a position after every other

def _may_break(type_: str, reason: str, actor: str, claim: str, probe: str | None) -> set[str]:
    """The invariants that a decision (a row of `decisions`) can break at all: of the others it is not asked."""
    asked = {"attempt-leak"}  # if it cites anything
    if type_ == "FailoverDecided" or (type_ == "TeardownRequested" and actor != "user" and reason not in LOG_ALONE):
        asked.add("thin-evidence")
    if type_ == "RunClosed" and reason == "no_compute_available":
        asked.add("skipped-rung")
    if type_ in ("TeardownRequested", "Provisioned") and claim in ("none", "name", "orphan"):
        asked.add("foreign-touch")
    if type_ == "LaunchFailed" and probe is None:
        asked.add("unprobed-failure")
    return asked


def worth_asking(rows: Rows) -> set[str]:
    """The invariants that these rows, newly written, can break: the others are not asked of the database."""
    asked = {"illegal-transition"} if "oddities" in rows else set()
    for _, _, _, type_, _, _, reason, _, actor, claim, _, _, probe in rows.get("decisions", {}).values():
        asked |= _may_break(type_, reason, actor, claim, probe)
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
