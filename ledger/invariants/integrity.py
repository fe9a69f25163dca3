"""The invariant of the log itself, as far as an audit can afford it; `ledger verify` reads every byte."""

from __future__ import annotations

from ledger.invariants.base import COST, KNOWN_ELSEWHERE, Invariant

_STREAMS = """(
    SELECT stream FROM runs WHERE active = 1 UNION SELECT stream FROM accounts UNION SELECT 'ledger')"""
LOG_BROKEN = Invariant(
    id="log-broken",
    kind="state",
    about="A version gap, a hash that does not fit, a projection table that differs from the log, an event that this"
    " version cannot read, or a machine with this ledger's marker that the log does not know.",
    sql=f"""
        SELECT s.stream, s.stream, COALESCE(r.generation, 0), CAST(NULL AS TEXT), CAST(NULL AS TEXT),
            COALESCE(e.recorded_at, :now), COALESCE(e.recorded_at, :now), 0,
            'the stream and the read models differ: the log ends at version '
                || CAST(COALESCE(e.version, 0) AS TEXT) || ', the read models at ' || CAST(s.version AS TEXT),
            s.position, COALESCE(e.position, 0)
        FROM {_STREAMS} a JOIN streams s ON s.stream = a.stream
            LEFT JOIN runs r ON r.stream = s.stream
            LEFT JOIN events e ON e.stream = s.stream
                AND e.version = (SELECT MAX(n.version) FROM events n WHERE n.stream = s.stream)
        WHERE e.version IS NULL OR e.version <> s.version OR e.hash <> s.hash OR e.position <> s.position
            OR (s.kind = 'run' AND s.version <> (SELECT COUNT(*) FROM events n WHERE n.stream = s.stream))
        UNION ALL
        SELECT CAST(s.unreadable_pos AS TEXT), s.stream, COALESCE(r.generation, 0), CAST(NULL AS TEXT),
            CAST(NULL AS TEXT), COALESCE(e.recorded_at, :now), COALESCE(e.recorded_at, :now), 0,
            'this version cannot read ' || COALESCE(e.type, 'an event')
                || ' of the stream: shown, audited, not acted on',
            s.unreadable_pos, 0
        FROM {_STREAMS} a JOIN streams s ON s.stream = a.stream
            LEFT JOIN runs r ON r.stream = s.stream
            LEFT JOIN events e ON e.position = s.unreadable_pos
        WHERE s.unreadable_pos IS NOT NULL
        UNION ALL
        SELECT CAST(m.known_pos AS TEXT), m.stream, m.generation, m.attempt, m.machine, m.known_at, m.known_at, {COST},
            'bears this ledger''s marker ' || m.marker
                || ', which the log does not know: the log is older than the world, or two copies are in use',
            m.known_pos, m.status_pos
        FROM machines m
        WHERE m.gone_at IS NULL AND m.claim = 'orphan' AND m.marker IS NOT NULL
            AND NOT EXISTS ({KNOWN_ELSEWHERE})
            AND NOT EXISTS (SELECT 1 FROM acks k WHERE k.breach = 'log-broken@' || CAST(m.known_pos AS TEXT))
    """,
    advice="`ledger verify --projections` says what differs; `ledger ack` it once it is understood: {run} {machine}",
)
