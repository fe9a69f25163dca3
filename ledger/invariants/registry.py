"""Every invariant by its id, in the order in which they are told."""

from __future__ import annotations

from ledger.invariants import accounts, decisions, handles, integrity, machines
from ledger.invariants.base import Invariant

ALL: dict[str, Invariant] = {
    invariant.id: invariant
    for invariant in (
        machines.UNLAUNCHED,
        handles.DANGLING_HANDLE,
        handles.FAILOVER_OVERDUE,
        accounts.UNLEDGERED,
        machines.DOUBLE_BILLING,
        machines.TEARDOWN_UNCONFIRMED,
        machines.QUEUE_OVERDUE,
        handles.STALE_FACT,
        machines.STALLED_RUN,
        machines.DONE_BUT_BILLING,
        accounts.UNWATCHED,
        handles.LOSSY_PROJECTION,
        integrity.LOG_BROKEN,
        decisions.ATTEMPT_LEAK,
        decisions.THIN_EVIDENCE,
        decisions.SKIPPED_RUNG,
        decisions.FOREIGN_TOUCH,
        decisions.UNPROBED_FAILURE,
        decisions.ILLEGAL_TRANSITION,
    )
}


def of_kind(kind: str) -> list[Invariant]:
    """The `state` or the `conduct` invariants, in order."""
    return [invariant for invariant in ALL.values() if invariant.kind == kind]
