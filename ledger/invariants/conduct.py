"""Conduct is judged once, in the transaction that records what was decided."""

from __future__ import annotations

import json
from typing import Any, Final

from ledger.invariants.base import params
from ledger.invariants.registry import of_kind
from ledger.log.connection import Connection
from ledger.policy import Policy

END: Final = 2**62  # a position after every other


def judge(connection: Connection, first: int, policy: Policy, last: int = END) -> list[dict[str, Any]]:
    """The rows for table `breaches` of what was decided from position `first` to `last`, under `policy`.

    Reads `decisions`, `evidence`, `rungs`, `intents`, `oddities` and `events`, which must hold those positions.
    """
    bounds = {**params(policy, 0), "first": first, "last": last}
    rows: list[dict[str, Any]] = []
    for invariant in of_kind("conduct"):
        for key, stream, generation, attempt, machine, began, since, _, detail, *found in connection.query(
            invariant.sql, bounds
        ):
            cited = connection.query("SELECT position FROM evidence WHERE decision = :decision", {"decision": int(key)})
            positions = {*(position for (position,) in cited), *found, int(key)}
            rows.append(
                {
                    "breach": f"{invariant.id}@{key}",
                    "position": int(key),
                    "invariant": invariant.id,
                    "stream": stream,
                    "generation": generation,
                    "attempt": attempt,
                    "machine": machine,
                    "began": began,
                    "since": since,
                    "evidence": json.dumps(sorted(positions), separators=(",", ":")),
                    "detail": detail,
                }
            )
    return rows
