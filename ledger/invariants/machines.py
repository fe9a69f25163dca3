"""Invariants of machines: what bills must work, and what was asked to go must go."""

from __future__ import annotations

from ledger.invariants.base import BILLED, COST, Invariant

UNLAUNCHED = Invariant(
    id="unlaunched-machine",
    kind="state",
    about="A billed machine has had neither LaunchConfirmed nor TornDown for launch_confirm_seconds since its bound"
    " began.",
    sql=f"""
        SELECT CAST(m.bound_pos AS TEXT), m.stream, m.generation, m.attempt, m.machine,
            m.bound_began, m.bound_began + :launch_confirm, {COST},
            'billed, and no launch is confirmed; stage ' || m.stage || ', GPUs ' || m.gpus,
            m.bound_pos, m.known_pos, m.observed_pos
        FROM machines m
        WHERE {BILLED} AND m.launched_at IS NULL AND m.claim <> 'orphan'
            AND m.bound_began + :launch_confirm <= :now
    """,
    advice="look at {machine}: `ledger confirm {run} --pid N` if its workload runs, else `ledger end {machine}`",
)

# One row for the machine that came later, beside the newest of those that were billed before it.
DOUBLE_BILLING = Invariant(
    id="double-billing",
    kind="state",
    about="Two machines of one run have been billed for longer than teardown_confirm_seconds.",
    sql=f"""
        SELECT CAST(m.known_pos AS TEXT), m.stream, m.generation, m.attempt, m.machine,
            m.billed_since, m.billed_since + :teardown_confirm, {COST},
            'billed beside ' || o.machine, m.known_pos, o.known_pos, m.status_pos, o.status_pos
        FROM machines m JOIN machines o ON o.stream = m.stream AND o.machine <> m.machine
        WHERE {BILLED} AND m.claim <> 'orphan'
            AND o.billed_since IS NOT NULL AND o.billed_until IS NULL AND o.gone_at IS NULL AND o.claim <> 'orphan'
            AND (o.billed_since < m.billed_since
                OR (o.billed_since = m.billed_since AND o.known_pos < m.known_pos))
            AND NOT EXISTS (
                SELECT 1 FROM machines b
                WHERE b.stream = m.stream AND b.machine <> m.machine
                    AND b.billed_since IS NOT NULL AND b.billed_until IS NULL AND b.gone_at IS NULL
                    AND b.claim <> 'orphan'
                    AND (b.billed_since < m.billed_since
                        OR (b.billed_since = m.billed_since AND b.known_pos < m.known_pos))
                    AND (b.billed_since > o.billed_since
                        OR (b.billed_since = o.billed_since AND b.known_pos > o.known_pos)))
            AND m.billed_since + :teardown_confirm <= :now
    """,
    advice="two machines bill for {run}: end the one without its workload, `ledger end {machine}` if it is this one",
)

TEARDOWN_UNCONFIRMED = Invariant(
    id="teardown-unconfirmed",
    kind="state",
    about="A teardown was requested, and the machine was not seen to be gone within teardown_confirm_seconds.",
    sql=f"""
        SELECT CAST(m.teardown_pos AS TEXT), m.stream, m.generation, m.attempt, m.machine,
            m.teardown_at, m.teardown_at + :teardown_confirm, {COST},
            'status ' || COALESCE(m.status, 'unknown') || CASE WHEN m.teardown_failures > 0
                THEN ', ' || CAST(m.teardown_failures AS TEXT) || ' failed deletes, last '
                    || COALESCE(m.teardown_error, 'unknown')
                ELSE ', no delete is known to have failed' END,
            m.teardown_pos, m.status_pos, m.absent_pos
        FROM machines m
        WHERE m.gone_at IS NULL AND m.teardown_at + :teardown_confirm <= :now
    """,
    advice="delete {machine} in its cloud's console; the poller records that it is gone",
)

QUEUE_OVERDUE = Invariant(
    id="queue-overdue",
    kind="state",
    about="An attempt has been PENDING for longer than queue_wait_seconds + 2 × poll_interval_seconds and nothing was"
    " decided.",
    sql=f"""
        SELECT CAST(m.known_pos AS TEXT), m.stream, m.generation, m.attempt, m.machine,
            m.queue_since, m.queue_since + :queue_overdue, {COST},
            'queued on ' || COALESCE(m.rung, m.backend) || ', and nothing was decided', m.known_pos, m.status_pos
        FROM machines m JOIN runs r ON r.stream = m.stream
        WHERE m.gone_at IS NULL AND m.queued = 1 AND m.claim <> 'orphan'
            AND m.left_at IS NULL AND m.teardown_at IS NULL AND r.closing = 0
            AND m.queue_since + :queue_overdue <= :now
    """,
    advice="run `ledger poll` for {run} and see what it says: {machine} should have been left by now",
)

_STALE_LOG = "m.log IN ('stale', 'none') AND COALESCE(m.last_line_at, m.launched_at) + :stall <= :now"
_NO_LINE = f"{_STALE_LOG} AND m.gpus IN ('idle', 'unknown')"
_UNREACHED = "m.unreached_at + :stall <= :now AND m.gpus IN ('idle', 'unknown')"
_OVER_BUDGET = f"{_STALE_LOG} AND m.launched_at + :budget_factor * r.budget_us <= :now"
_HELD = "m.launched_at IS NULL AND m.gpus = 'busy' AND m.bound_began + :launch_confirm <= :now"
_LAST_LINE = "COALESCE(m.last_line_at, m.launched_at)"
STALLED_RUN = Invariant(
    id="stalled-run",
    kind="state",
    about="A launched workload has not ended and shows no log line for stall_seconds with its GPUs idle or unknown;"
    " or it is past stall_budget_factor × its time budget with its log stale; or its launch bound passed with the GPUs"
    " busy.",
    sql=f"""
        SELECT CAST(COALESCE(m.launched_pos, m.bound_pos) AS TEXT), m.stream, m.generation, m.attempt, m.machine,
            CASE WHEN {_HELD} THEN m.bound_began WHEN {_NO_LINE} THEN {_LAST_LINE}
                WHEN {_OVER_BUDGET} THEN m.launched_at ELSE m.unreached_at END,
            CASE WHEN {_HELD} THEN m.bound_began + :launch_confirm WHEN {_NO_LINE} THEN {_LAST_LINE} + :stall
                WHEN {_OVER_BUDGET} THEN
                    CASE WHEN m.launched_at + :budget_factor * r.budget_us >= {_LAST_LINE} + :stall
                        THEN m.launched_at + :budget_factor * r.budget_us ELSE {_LAST_LINE} + :stall END
                ELSE m.unreached_at + :stall END,
            {COST},
            CASE WHEN {_HELD} THEN 'the launch bound passed and the GPUs are busy: held'
                WHEN {_NO_LINE} THEN 'no log line, GPUs ' || m.gpus
                WHEN {_OVER_BUDGET} THEN 'past its time budget and the log is ' || m.log
                ELSE 'its cloud shows it and no probe reaches it' END,
            m.launched_pos, m.bound_pos, m.log_pos, m.gpus_pos,
            CASE WHEN m.unreached_at IS NOT NULL THEN m.unreached_pos ELSE 0 END
        FROM machines m JOIN runs r ON r.stream = m.stream
        WHERE {BILLED} AND m.claim <> 'orphan' AND m.ended_at IS NULL
            AND m.left_at IS NULL AND m.teardown_at IS NULL
            AND (({_HELD}) OR (m.launched_at IS NOT NULL AND (({_NO_LINE}) OR ({_OVER_BUDGET}) OR ({_UNREACHED}))))
    """,
    advice="look at the log and the processes on {machine}; `ledger cancel {run}` if it will not go on",
)

_OVERSTAYED = "m.ended_at + :done_grace + :teardown_confirm"
_BY_RECONNECT = f"m.reconnected_ended_at IS NOT NULL AND m.reconnected_ended_at < {_OVERSTAYED}"
DONE_BUT_BILLING = Invariant(
    id="done-but-billing",
    kind="state",
    about="The workload has ended and its machine is billed past done_grace_seconds + teardown_confirm_seconds; or a"
    " re-run reconnected to a machine whose workload had ended.",
    sql=f"""
        SELECT CAST(m.ended_pos AS TEXT), m.stream, m.generation, m.attempt, m.machine, m.ended_at,
            CASE WHEN {_BY_RECONNECT} THEN m.reconnected_ended_at ELSE {_OVERSTAYED} END,
            {COST},
            CASE WHEN {_BY_RECONNECT} THEN 'a re-run reconnected to it after its workload had ended: '
                ELSE 'its workload has ended: ' END || COALESCE(m.outcome, 'unknown'),
            m.ended_pos, m.reconnected_ended_pos, m.teardown_pos
        FROM machines m
        WHERE {BILLED} AND m.ended_at IS NOT NULL
            AND ({_OVERSTAYED} <= :now OR m.reconnected_ended_at IS NOT NULL)
    """,
    advice="fetch the results of {run}, then `ledger finalize` it, or `ledger end {machine}`",
)
