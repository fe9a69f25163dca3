"""Invariants of accounts: nothing lies there that the ledger does not know, and somebody looks."""

from __future__ import annotations

from ledger.invariants.base import BILLED, COST, KNOWN_ELSEWHERE, OPEN_INTENT, Invariant

UNLEDGERED = Invariant(
    id="unledgered-machine",
    kind="state",
    about="The newest inventory shows an orphan that is neither taken over nor gone; or a create is unresolved"
    " absence_settle_seconds after its deadline.",
    sql=f"""
        SELECT CAST(m.known_pos AS TEXT), m.stream, m.generation, m.attempt, m.machine, m.known_at, m.known_at, {COST},
            'orphan ' || m.name || ', status ' || COALESCE(m.status, 'unknown'), m.known_pos, m.status_pos
        FROM machines m
        WHERE m.gone_at IS NULL AND m.claim = 'orphan' AND m.absent_at IS NULL
            AND NOT EXISTS ({KNOWN_ELSEWHERE})
        UNION ALL
        SELECT CAST(i.position AS TEXT), i.stream, i.generation, i.attempt, CAST(NULL AS TEXT), i.requested_at,
            i.deadline + :absence_settle, CAST(NULL AS DOUBLE PRECISION),
            'a create on ' || i.rung || ' is ' || CASE WHEN i.stage = 'unresolved' THEN 'unresolved'
                ELSE 'without an answer' END || ': a machine may be there',
            i.position, COALESCE(i.resolved_pos, 0)
        FROM intents i
        WHERE {OPEN_INTENT} AND i.deadline + :absence_settle <= :now
    """,
    advice="`ledger reconcile`, then `ledger adopt` or `ledger end` what it finds: {machine} {run}",
)

_BILLED = f"CASE WHEN {BILLED} THEN 1 ELSE 0 END"
UNWATCHED = Invariant(
    id="unwatched",
    kind="state",
    about="An account with an open machine or intent has had no complete list for blind_seconds: the poller is not"
    " running, or is blind.",
    sql=f"""
        SELECT w.backend || ':' || w.account, 'account-' || w.backend || '-' || w.account, 0, CAST(NULL AS TEXT),
            CAST(NULL AS TEXT), w.last, w.last + :blind,
            CASE WHEN w.unknown > 0 THEN NULL ELSE w.cost END,
            CASE WHEN w.complete_pos = 0 THEN 'never listed' ELSE 'not listed' END
                || ', with ' || CAST(w.things AS TEXT) || ' machines or creates open there',
            w.first_pos, w.complete_pos
        FROM (
            SELECT q.backend AS backend, q.account AS account, q.first_pos AS first_pos, q.things AS things,
                q.cost AS cost, q.unknown AS unknown,
                COALESCE((SELECT MAX(a.complete_at) FROM accounts a
                    WHERE a.backend = q.backend AND (q.account = '' OR a.account = q.account)), q.since) AS last,
                COALESCE((SELECT MAX(a.complete_pos) FROM accounts a
                    WHERE a.backend = q.backend AND (q.account = '' OR a.account = q.account)), 0) AS complete_pos
            FROM (
                SELECT t.backend AS backend, t.account AS account, MIN(t.since) AS since, MIN(t.pos) AS first_pos,
                    COUNT(*) AS things, SUM(COALESCE(t.cost, 0)) AS cost,
                    SUM(CASE WHEN t.billed = 1 AND t.cost IS NULL THEN 1 ELSE 0 END) AS unknown
                FROM (
                    SELECT m.backend AS backend, m.account AS account, m.known_at AS since, m.known_pos AS pos,
                        {_BILLED} AS billed, {COST} AS cost
                    FROM machines m JOIN runs r ON r.stream = m.stream
                    WHERE m.gone_at IS NULL AND m.claim <> 'orphan' AND r.driven = 1 AND r.active = 1
                    UNION ALL
                    SELECT i.backend, i.account, i.requested_at, i.position, 0, 0
                    FROM intents i
                    WHERE {OPEN_INTENT}
                ) t
                GROUP BY t.backend, t.account
            ) q
        ) w
        WHERE w.last + :blind <= :now
    """,
    advice="start `ledger poll --watch`, or see why its reads of this account fail (`ledger status`)",
)
