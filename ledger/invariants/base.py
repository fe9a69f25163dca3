"""What an invariant is, and the parameters of its query.

A query is portable text on the read models. Every row is (key, stream, generation, attempt, machine, began, since,
cost per hour, detail, evidence position...): `began` is when the condition began and `since` when it became a breach,
both microseconds; the cost is 0 where nothing is billed now and NULL where it is billed and unknown; a position 0 or
NULL is none. `<id>@<key>` is the breach's id and stays the same while the breach is open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ledger.moments import MICROS
from ledger.policy import Policy

Kind = Literal["state", "conduct"]

BILLED = "m.billed_since IS NOT NULL AND m.billed_until IS NULL AND m.gone_at IS NULL"
COST = f"CASE WHEN {BILLED} THEN m.cost_per_hour ELSE 0 END"
ENDED = "('TERMINATED', 'STOPPED', 'SUSPENDED', 'EXITED', 'DEAD')"
# As the partial index `intents_open` has it.
OPEN_INTENT = "i.stage IN ('requested', 'unresolved')"

# An orphan that a run has taken over, or that another stream knew first, is told of there; unless it was seen again
# after it was gone there.
KNOWN_ELSEWHERE = """SELECT 1 FROM machines o
    WHERE o.machine = m.machine AND o.stream <> m.stream AND (o.claim <> 'orphan' OR o.known_pos < m.known_pos)
        AND (o.gone_at IS NULL OR o.gone_pos > m.status_pos)"""


@dataclass(frozen=True, slots=True)
class Invariant:
    """What must never be. `advice` is one line that may hold {run}, {machine} and {name}."""

    id: str
    kind: Kind
    about: str
    sql: str
    advice: str


def micros(seconds: float) -> int:
    """Seconds of the policy as the log's microseconds."""
    return round(seconds * MICROS)


def params(policy: Policy, now: int) -> dict[str, Any]:
    """The parameters of every query: the moment, and each bound of the policy in microseconds."""
    return {
        "now": now,
        "launch_confirm": micros(policy.launch_confirm_seconds),
        "teardown_confirm": micros(policy.teardown_confirm_seconds),
        "absence_settle": micros(policy.absence_settle_seconds),
        "queue_overdue": micros(policy.queue_wait_seconds + 2 * policy.poll_interval_seconds),
        "stall": micros(policy.stall_seconds),
        "budget_factor": policy.stall_budget_factor,
        "done_grace": micros(policy.done_grace_seconds),
        "blind": micros(policy.blind_seconds),
        "idle_grace": micros(policy.idle_grace_seconds),
        "wedge_ticks": policy.wedge_min_ticks,
        "wedge_span": micros(policy.wedge_min_span_seconds),
    }
