"""Invariants of conduct: what a decision rests on, and what may be touched at all.

Each query judges the decisions between the positions :first and :last. It looks at nothing that can change after
the decision, so that a rebuild judges as the append did. The evidence is that of the decision and the decision itself.
"""

from __future__ import annotations

from ledger.invariants.base import Invariant

# Reasons of a teardown that rest on what the log itself has decided, not on a look at the machine.
LOG_ALONE = ("superseded", "cancelled", "run_closed", "redispatched", "done", "launch_unconfirmed")
_COLUMNS = "CAST(d.position AS TEXT), d.stream, d.generation, d.attempt, d.machine, d.at, d.at, 0"
_RANGE = "d.position >= :first AND d.position <= :last"
# What was in the log when it was decided: a position that came later is no evidence.
_THEN = "events e ON e.position = v.position AND e.position < v.decision"
_CITED = f"evidence v JOIN {_THEN}"

# A boot loop is the count of the boot deaths before it: it may rest on those decisions.
ATTEMPT_LEAK = Invariant(
    id="attempt-leak",
    kind="conduct",
    about="A decision rests on evidence of another attempt or another machine.",
    sql=f"""
        SELECT {_COLUMNS},
            d.type || ' ' || d.reason || ' rests on ' || MIN(e.type) || ' of another run, attempt or machine',
            MIN(e.position)
        FROM decisions d JOIN evidence v ON v.decision = d.position JOIN {_THEN}
        WHERE {_RANGE}
            AND ((e.stream <> d.stream AND e.stream LIKE 'issue-%')
                OR e.attempt <> d.attempt OR e.machine <> d.machine)
            AND NOT (d.reason = 'boot_loop' AND e.type = 'FailoverDecided' AND e.stream = d.stream)
        GROUP BY d.position, d.stream, d.generation, d.attempt, d.machine, d.at, d.type, d.reason
    """,
    advice="see with `ledger show {run}` whether what was decided still holds for {machine}, then `ledger ack` it",
)

_SEEN = f"FROM {_CITED} WHERE v.decision = d.position"
# A teardown that follows from an earlier decision: that one was judged.
_FOLLOWS = f"""EXISTS (SELECT 1 {_SEEN} AND e.stream = d.stream AND e.machine = d.machine
                AND e.type IN ('FailoverDecided', 'TeardownRequested'))"""
_REASONS = ", ".join(f"'{reason}'" for reason in LOG_ALONE)
THIN_EVIDENCE = Invariant(
    id="thin-evidence",
    kind="conduct",
    about="A failover or teardown for unreachability rests on fewer than wedge_min_ticks observations or a span under"
    " wedge_min_span_seconds; or anything destructive rests on nothing but failed reads.",
    sql=f"""
        SELECT {_COLUMNS},
            d.type || ' ' || d.reason || ' rests on '
                || CASE WHEN EXISTS (SELECT 1 {_SEEN}) THEN
                    CAST((SELECT COUNT(*) {_SEEN} AND e.type = 'MachineObserved') AS TEXT)
                    || ' observations over ' || CAST(COALESCE((SELECT MAX(e.occurred_at) - MIN(e.occurred_at)
                        {_SEEN} AND e.type = 'MachineObserved'), 0) / 1000000 AS TEXT) || ' s'
                ELSE 'no evidence' END
        FROM decisions d
        WHERE {_RANGE} AND d.type IN ('FailoverDecided', 'TeardownRequested')
            AND (d.type = 'FailoverDecided' OR d.actor <> 'user')
            AND NOT (d.type = 'TeardownRequested' AND {_FOLLOWS})
            AND ((d.reason = 'wedged' AND (
                    (SELECT COUNT(*) {_SEEN} AND e.type = 'MachineObserved') < :wedge_ticks
                    OR COALESCE((SELECT MAX(e.occurred_at) - MIN(e.occurred_at)
                        {_SEEN} AND e.type = 'MachineObserved'), 0) < :wedge_span))
                OR (NOT EXISTS (SELECT 1 {_SEEN})
                    AND (d.type = 'FailoverDecided' OR d.reason NOT IN ({_REASONS}))))
    """,
    advice="see with `ledger show {run}` whether {machine} was well when it was left, then `ledger ack` it",
)

SKIPPED_RUNG = Invariant(
    id="skipped-rung",
    kind="conduct",
    about="A run was closed for want of compute while a rung of its ladder was neither tried nor refused.",
    sql=f"""
        SELECT {_COLUMNS}, 'closed for want of compute, and never tried: ' || MIN(g.rung)
                || CASE WHEN COUNT(*) > 1 THEN ' and ' || CAST(COUNT(*) - 1 AS TEXT) || ' more' ELSE '' END
        FROM decisions d JOIN rungs g ON g.stream = d.stream AND g.generation = d.generation
        WHERE {_RANGE} AND d.type = 'RunClosed' AND d.reason = 'no_compute_available'
            AND NOT EXISTS (
                SELECT 1 FROM intents i
                WHERE i.stream = d.stream AND i.generation = d.generation AND i.rung = g.rung
                    AND i.position < d.position)
            AND NOT EXISTS (
                SELECT 1 FROM machines m
                WHERE m.stream = d.stream AND m.generation = d.generation AND m.claim = 'import' AND m.rung = g.rung)
        GROUP BY d.position, d.stream, d.generation, d.attempt, d.machine, d.at
    """,
    advice="dispatch {run} again: a rung of its ladder was never asked for a machine",
)

FOREIGN_TOUCH = Invariant(
    id="foreign-touch",
    kind="conduct",
    about="A teardown or a take-over of a machine that is neither ours nor an orphan seen idle long enough.",
    sql=f"""
        SELECT {_COLUMNS},
            d.type || ' of a machine whose claim is ' || d.claim || CASE WHEN d.claim = 'orphan'
                THEN ', seen idle ' || CAST(d.idle_reads AS TEXT) || ' times over '
                    || CAST(d.idle_span / 1000000 AS TEXT) || ' s' ELSE '' END
        FROM decisions d
        WHERE {_RANGE} AND d.type IN ('TeardownRequested', 'Provisioned')
            AND (d.claim IN ('none', 'name')
                OR (d.claim = 'orphan' AND NOT (d.type = 'TeardownRequested' AND d.actor = 'user')
                    AND (d.idle_reads < 2 OR d.idle_span < :idle_grace)))
    """,
    advice="ask whose {machine} is, and stop what is being done to it in the name of {run}",
)

UNPROBED_FAILURE = Invariant(
    id="unprobed-failure",
    kind="conduct",
    about="LaunchFailed without a probe of the machine having been tried.",
    sql=f"""
        SELECT {_COLUMNS}, 'LaunchFailed ' || d.reason || ', and no probe was tried'
        FROM decisions d
        WHERE {_RANGE} AND d.type = 'LaunchFailed' AND d.probe IS NULL
    """,
    advice="probe {machine}: `ledger confirm {run} --pid N` if its workload runs after all",
)

ILLEGAL_TRANSITION = Invariant(
    id="illegal-transition",
    kind="conduct",
    about="An event that the transition table does not allow where it stands.",
    sql="""
        SELECT CAST(d.position AS TEXT), d.stream, d.generation, d.attempt, d.machine, d.at, d.at, 0,
            d.type || ' does not follow where the stage is ' || d.stage
        FROM oddities d
        WHERE d.position >= :first AND d.position <= :last
    """,
    advice="read the history of {run} with `ledger show`, then `ledger ack` it",
)
