"""Invariants of handles: a handle names the machine that the run is on, and its file says so."""

from __future__ import annotations

from ledger.invariants.base import COST, ENDED, Invariant

_AT_REST = f"(m.status IN {ENDED} AND m.ended_at IS NULL)"
_SINCE_GONE = f"""CASE WHEN {_AT_REST} THEN COALESCE(m.status_since, m.known_at)
    ELSE COALESCE(m.absent_at, m.gone_at) END"""
_BOUND = "r.failover_base_at + :launch_confirm + :teardown_confirm"
DANGLING_HANDLE = Invariant(
    id="dangling-handle",
    kind="state",
    about="An active run's handle names a machine that is known to be gone or ended, and no failover of it is within"
    " its bound.",
    sql=f"""
        SELECT CAST(r.handle_pos AS TEXT), r.stream, r.generation, m.attempt, m.machine,
            {_SINCE_GONE},
            CASE WHEN r.failover_pos IS NOT NULL AND {_BOUND} > {_SINCE_GONE} THEN {_BOUND} ELSE {_SINCE_GONE} END,
            {COST},
            CASE WHEN m.gone_at IS NOT NULL THEN 'the machine is gone'
                WHEN m.absent_at IS NOT NULL THEN 'the machine was not found'
                ELSE 'the machine is ' || m.status END
                || CASE WHEN r.failover_pos IS NULL THEN ', and no failover of it is under way'
                    ELSE ', and its failover is past its bound' END,
            r.handle_pos, m.absent_pos, m.gone_pos, m.status_pos, r.failover_pos, r.failover_base_pos
        FROM runs r JOIN machines m ON m.machine = r.handle_machine AND m.stream = r.stream
        WHERE r.active = 1 AND r.closing = 0
            AND (m.gone_at IS NOT NULL OR m.absent_at IS NOT NULL OR {_AT_REST})
            AND (r.failover_pos IS NULL OR (r.failover_queued = 0 AND {_BOUND} <= :now))
    """,
    advice="`ledger poll {run}`: its handle names {machine}, which is not there to run anything",
)

FAILOVER_OVERDUE = Invariant(
    id="failover-overdue",
    kind="state",
    about="launch_confirm_seconds + teardown_confirm_seconds have passed since the newest request or machine of a"
    " failover, queue time not counted, and it is neither re-pointed nor its run closed.",
    sql=f"""
        SELECT CAST(r.failover_pos AS TEXT), r.stream, r.generation, m.attempt, r.failover_machine,
            r.failover_base_at, {_BOUND},
            CASE WHEN m.machine IS NULL THEN 0 ELSE {COST} END,
            'failover for ' || COALESCE(r.failover_reason, 'a reason unknown')
                || CASE WHEN r.failover_machine IS NULL THEN ', no machine yet'
                    ELSE ', its machine is ' || m.stage END,
            r.failover_pos, r.failover_base_pos, m.known_pos
        FROM runs r LEFT JOIN machines m ON m.machine = r.failover_machine AND m.stream = r.stream
        WHERE r.active = 1 AND r.stage = 'open' AND r.failover_pos IS NOT NULL AND r.failover_queued = 0
            AND {_BOUND} <= :now
    """,
    advice="`ledger poll {run}` and read what it says; `ledger cancel` it if nothing moves",
)

STALE_FACT = Invariant(
    id="stale-fact",
    kind="state",
    about="A fact in the handle (provisioning_model, zone, id, ports) differs from the newest observation of that"
    " machine.",
    sql=f"""
        SELECT CAST(m.stale_pos AS TEXT), r.stream, r.generation, m.attempt, m.machine,
            m.stale_at, m.stale_at, {COST},
            CASE WHEN m.model <> m.handle_model
                THEN 'provisioning_model is ' || m.model || ', the handle says ' || m.handle_model || '; '
                ELSE '' END
            || CASE WHEN m.zone <> m.handle_zone
                THEN 'zone is ' || m.zone || ', the handle says ' || m.handle_zone || '; ' ELSE '' END
            || CASE WHEN m.ports <> m.handle_ports
                THEN 'ports are ' || m.ports || ', the handle says ' || m.handle_ports || '; ' ELSE '' END,
            m.stale_pos, m.observed_pos, r.handle_pos
        FROM runs r JOIN machines m ON m.machine = r.handle_machine AND m.stream = r.stream
        WHERE r.active = 1 AND m.stale_at IS NOT NULL
            AND (m.model <> m.handle_model OR m.zone <> m.handle_zone OR m.ports <> m.handle_ports)
            AND NOT EXISTS (SELECT 1 FROM sidecar_files f WHERE f.stream = r.stream AND f.wanted = f.found)
    """,
    advice="`ledger project {run}` writes into the handle what was seen of {machine}",
)

# What is looked for in the audit's temporary table: what each file should hold, and what it holds.
FILES = """CREATE TEMPORARY TABLE IF NOT EXISTS sidecar_files
    (stream TEXT NOT NULL PRIMARY KEY, wanted TEXT, found TEXT, since BIGINT)"""
NO_FILES = "DELETE FROM sidecar_files"
ADD_FILE = "INSERT INTO sidecar_files VALUES (:stream, :wanted, :found, :since)"
# Without the files the log alone is asked: what was edited or seen last has not been written into the file yet; once
# something comes after it, it has, for every command ends with the sidecars.
FILES_OF_LOG = """
    INSERT INTO sidecar_files
    SELECT r.stream, 'as the log has it', 'edited', r.edited_at FROM runs r
    WHERE r.active = 1 AND r.edited_owned > 0 AND r.edited_pos = r.position
    UNION ALL
    SELECT r.stream, 'as the log has it', 'as the log has it', m.stale_at
    FROM runs r JOIN machines m ON m.machine = r.handle_machine AND m.stream = r.stream
    WHERE r.active = 1 AND m.stale_at IS NOT NULL AND m.stale_pos <> r.position
        AND NOT (r.edited_owned > 0 AND r.edited_pos = r.position)
"""
LOSSY_PROJECTION = Invariant(
    id="lossy-projection",
    kind="state",
    about="A sidecar differs from the projection of the log, is missing, or lies there for a closed run.",
    sql=f"""
        SELECT f.stream, f.stream, COALESCE(r.generation, 0), m.attempt, r.handle_machine,
            COALESCE(f.since, :now), COALESCE(f.since, :now),
            CASE WHEN m.machine IS NULL THEN 0 ELSE {COST} END,
            CASE WHEN f.wanted IS NULL THEN 'a sidecar lies there, and the run is closed'
                WHEN f.found IS NULL THEN 'the sidecar is missing'
                ELSE 'the sidecar differs from the projection of the log' END,
            r.position, CASE WHEN r.edited_owned > 0 THEN r.edited_pos ELSE 0 END
        FROM sidecar_files f LEFT JOIN runs r ON r.stream = f.stream
            LEFT JOIN machines m ON m.machine = r.handle_machine AND m.stream = r.stream
        WHERE (f.wanted IS NULL AND f.found IS NOT NULL) OR (f.wanted IS NOT NULL AND f.found IS NULL)
            OR f.wanted <> f.found
    """,
    advice="`ledger project {run}` writes its sidecar as the log has it",
)
