"""The log, its triggers and its read models.

Revision 0001. What it makes is frozen here: later migrations change it, this file does not.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_SQLITE = (
    """
    CREATE TRIGGER events_no_update BEFORE UPDATE ON events
    BEGIN SELECT RAISE(ABORT, 'events is append-only: an event is never changed'); END
    """,
    """
    CREATE TRIGGER events_no_delete BEFORE DELETE ON events
    BEGIN SELECT RAISE(ABORT, 'events is append-only: an event is never deleted'); END
    """,
    # INSERT OR REPLACE deletes without firing the trigger above, so a replacement is refused here; and what is in
    # front of the last position, or leaves a gap in its stream, can never be inserted at all.
    """
    CREATE TRIGGER events_in_order BEFORE INSERT ON events
    WHEN NEW.position <= (SELECT coalesce(max(position), 0) FROM events)
      OR NEW.version <> 1 + (SELECT coalesce(max(version), 0) FROM events WHERE stream = NEW.stream)
      OR EXISTS (SELECT 1 FROM events WHERE event_id = NEW.event_id)
    BEGIN SELECT RAISE(ABORT, 'events is append-only: an event comes after the last, once'); END
    """,
)
# Two sequences, for what is taken must not wait for a commit: the positions, and a clock that never goes back.
_POSTGRESQL = (
    "CREATE SEQUENCE ledger_positions",
    "CREATE SEQUENCE ledger_clock",
    # A copied event has no transaction here: 0 is older than any.
    "ALTER TABLE events ADD COLUMN xid xid8 NOT NULL DEFAULT '0'",
    # The transaction's id first, then its positions, under a lock that is given back at once: see postgresql.py. It
    # takes nothing where the schema is not the caller's. It runs as its owner: a poller's role cannot set a sequence.
    """
    CREATE FUNCTION ledger_take(n bigint, now bigint, INOUT schema bigint, OUT first bigint, OUT recorded_at bigint)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $$
    DECLARE wanted bigint := schema;
    BEGIN
        IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
            RAISE EXCEPTION 'ledger_take comes first in its transaction, and once';
        END IF;
        SELECT version_num::bigint INTO schema FROM alembic_version;
        IF schema <> wanted OR n < 1 THEN
            first := 0;
            recorded_at := 0;
            RETURN;
        END IF;
        -- Shared by every append, held alone by one that nobody may append beside.
        PERFORM pg_advisory_xact_lock_shared(1818584167);
        PERFORM pg_advisory_lock(1818584168);
        PERFORM pg_current_xact_id();
        first := nextval('ledger_positions');
        IF n > 1 THEN
            PERFORM setval('ledger_positions', first + n - 1);
        END IF;
        recorded_at := setval('ledger_clock', greatest((SELECT last_value FROM ledger_clock),
            coalesce(now, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)));
        PERFORM pg_advisory_unlock(1818584168);
    END $$
    """,
    """
    CREATE FUNCTION events_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'events is append-only: an event is never %', TG_ARGV[0];
    END $$
    """,
    """
    CREATE TRIGGER events_no_update BEFORE UPDATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION events_refuse('changed')
    """,
    """
    CREATE TRIGGER events_no_delete BEFORE DELETE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION events_refuse('deleted')
    """,
    """
    CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION events_refuse('deleted')
    """,
    # Nothing in front of the last event of its stream, no gap behind it. A version that is taken is left to the
    # unique constraint, which waits for the one that takes it.
    """
    CREATE FUNCTION events_in_order() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE last record;
    BEGIN
        SELECT version, position INTO last FROM events
            WHERE stream = NEW.stream AND version >= NEW.version - 1 ORDER BY version DESC LIMIT 1;
        IF NEW.version < 1 OR NEW.position < 1 OR (NEW.version > 1 AND last.version IS NULL)
            OR (last.version < NEW.version AND NEW.position <= last.position) THEN
            RAISE EXCEPTION 'events is append-only: an event comes after the last, once';
        END IF;
        NEW.xid := pg_current_xact_id();
        RETURN NEW;
    END $$
    """,
    """
    CREATE TRIGGER events_in_order BEFORE INSERT ON events
    FOR EACH ROW EXECUTE FUNCTION events_in_order()
    """,
)


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column("position", _BIG, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("stream", _TEXT, nullable=False),
        sa.Column("version", _BIG, nullable=False),
        sa.Column("event_id", _TEXT, nullable=False),
        sa.Column("type", _TEXT, nullable=False),
        sa.Column("schema", _BIG, nullable=False),
        sa.Column("occurred_at", _BIG, nullable=False),
        sa.Column("recorded_at", _BIG, nullable=False),
        sa.Column("actor", _TEXT, nullable=False),
        sa.Column("correlation_id", _TEXT, nullable=True),
        sa.Column("attempt", _TEXT, nullable=True),
        sa.Column("machine", _TEXT, nullable=True),
        sa.Column("payload", _TEXT, nullable=False),
        sa.Column("hash", _TEXT, nullable=False),
        sa.UniqueConstraint("event_id", name="events_event_id"),
        sa.UniqueConstraint("stream", "version", name="events_stream_version"),
    )
    op.create_table(
        "streams",
        sa.Column("stream", _TEXT, primary_key=True, nullable=False),
        sa.Column("kind", _TEXT, nullable=False),
        sa.Column("version", _BIG, nullable=False),
        sa.Column("position", _BIG, nullable=False),
        sa.Column("hash", _TEXT, nullable=False),
        sa.Column("unreadable_pos", _BIG, nullable=True),
    )
    op.create_table(
        "runs",
        sa.Column("stream", _TEXT, primary_key=True, nullable=False),
        sa.Column("generation", _BIG, nullable=False),
        sa.Column("issue", _BIG, nullable=False),
        sa.Column("lane", _TEXT, nullable=True),
        sa.Column("backend", _TEXT, nullable=True),
        sa.Column("driven", _BIG, nullable=False),
        sa.Column("stage", _TEXT, nullable=False),
        sa.Column("active", _BIG, nullable=False),
        sa.Column("closing", _BIG, nullable=False),
        sa.Column("opened_at", _BIG, nullable=False),
        sa.Column("opened_pos", _BIG, nullable=False),
        sa.Column("closed_at", _BIG, nullable=True),
        sa.Column("closed_pos", _BIG, nullable=True),
        sa.Column("outcome", _TEXT, nullable=True),
        sa.Column("reason", _TEXT, nullable=True),
        sa.Column("failure_class", _TEXT, nullable=True),
        sa.Column("handle_machine", _TEXT, nullable=True),
        sa.Column("handle_pos", _BIG, nullable=True),
        sa.Column("failover_at", _BIG, nullable=True),
        sa.Column("failover_pos", _BIG, nullable=True),
        sa.Column("failover_base_at", _BIG, nullable=True),
        sa.Column("failover_base_pos", _BIG, nullable=True),
        sa.Column("failover_reason", _TEXT, nullable=True),
        sa.Column("failover_machine", _TEXT, nullable=True),
        sa.Column("failover_queued", _BIG, nullable=False),
        sa.Column("budget_us", _BIG, nullable=True),
        sa.Column("edited_at", _BIG, nullable=True),
        sa.Column("edited_pos", _BIG, nullable=True),
        sa.Column("edited_owned", _BIG, nullable=False),
        sa.Column("position", _BIG, nullable=False),
    )
    op.create_index(
        "runs_active", "runs", ["stream"], sqlite_where=sa.text("active = 1"), postgresql_where=sa.text("active = 1")
    )
    op.create_table(
        "machines",
        sa.Column("machine", _TEXT, primary_key=True, nullable=False),
        sa.Column("stream", _TEXT, primary_key=True, nullable=False),
        sa.Column("generation", _BIG, nullable=False),
        sa.Column("attempt", _TEXT, nullable=True),
        sa.Column("backend", _TEXT, nullable=False),
        sa.Column("account", _TEXT, nullable=False),
        sa.Column("name", _TEXT, nullable=False),
        sa.Column("zone", _TEXT, nullable=True),
        sa.Column("rung", _TEXT, nullable=True),
        sa.Column("claim", _TEXT, nullable=False),
        sa.Column("stage", _TEXT, nullable=False),
        sa.Column("marker", _TEXT, nullable=True),
        sa.Column("requested_model", _TEXT, nullable=True),
        sa.Column("model", _TEXT, nullable=True),
        sa.Column("handle_model", _TEXT, nullable=True),
        sa.Column("handle_zone", _TEXT, nullable=True),
        sa.Column("handle_ports", _TEXT, nullable=True),
        sa.Column("ports", _TEXT, nullable=True),
        sa.Column("created_at", _BIG, nullable=True),
        sa.Column("known_at", _BIG, nullable=False),
        sa.Column("known_pos", _BIG, nullable=False),
        sa.Column("cost_per_hour", sa.Float(), nullable=True),
        sa.Column("status", _TEXT, nullable=True),
        sa.Column("status_since", _BIG, nullable=True),
        sa.Column("status_pos", _BIG, nullable=True),
        sa.Column("phase", _TEXT, nullable=True),
        sa.Column("observed_pos", _BIG, nullable=True),
        sa.Column("stale_at", _BIG, nullable=True),
        sa.Column("stale_pos", _BIG, nullable=True),
        sa.Column("unreached_at", _BIG, nullable=True),
        sa.Column("unreached_pos", _BIG, nullable=True),
        sa.Column("gpus", _TEXT, nullable=False),
        sa.Column("gpus_pos", _BIG, nullable=True),
        sa.Column("log", _TEXT, nullable=False),
        sa.Column("log_pos", _BIG, nullable=True),
        sa.Column("last_line_at", _BIG, nullable=True),
        sa.Column("queued", _BIG, nullable=False),
        sa.Column("queue_since", _BIG, nullable=True),
        sa.Column("billed_since", _BIG, nullable=True),
        sa.Column("billed_until", _BIG, nullable=True),
        sa.Column("bound_began", _BIG, nullable=True),
        sa.Column("bound_pos", _BIG, nullable=True),
        sa.Column("launched_at", _BIG, nullable=True),
        sa.Column("launched_pos", _BIG, nullable=True),
        sa.Column("ended_at", _BIG, nullable=True),
        sa.Column("ended_pos", _BIG, nullable=True),
        sa.Column("outcome", _TEXT, nullable=True),
        sa.Column("reconnected_ended_at", _BIG, nullable=True),
        sa.Column("reconnected_ended_pos", _BIG, nullable=True),
        sa.Column("left_at", _BIG, nullable=True),
        sa.Column("left_pos", _BIG, nullable=True),
        sa.Column("teardown_at", _BIG, nullable=True),
        sa.Column("teardown_pos", _BIG, nullable=True),
        sa.Column("teardown_failures", _BIG, nullable=False),
        sa.Column("teardown_error", _TEXT, nullable=True),
        sa.Column("absent_at", _BIG, nullable=True),
        sa.Column("absent_pos", _BIG, nullable=True),
        sa.Column("gone_at", _BIG, nullable=True),
        sa.Column("gone_pos", _BIG, nullable=True),
        sa.Column("gone_by", _TEXT, nullable=True),
    )
    op.create_index(
        "machines_open",
        "machines",
        ["stream"],
        sqlite_where=sa.text("gone_at IS NULL"),
        postgresql_where=sa.text("gone_at IS NULL"),
    )
    op.create_index("machines_stream", "machines", ["stream"])
    op.create_table(
        "intents",
        sa.Column("position", _BIG, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("stream", _TEXT, nullable=False),
        sa.Column("generation", _BIG, nullable=False),
        sa.Column("attempt", _TEXT, nullable=False),
        sa.Column("attempt_try", _BIG, nullable=False),
        sa.Column("backend", _TEXT, nullable=False),
        sa.Column("account", _TEXT, nullable=False),
        sa.Column("rung", _TEXT, nullable=False),
        sa.Column("zone", _TEXT, nullable=True),
        sa.Column("requested_at", _BIG, nullable=False),
        sa.Column("call_before", _BIG, nullable=False),
        sa.Column("deadline", _BIG, nullable=False),
        sa.Column("stage", _TEXT, nullable=False),
        sa.Column("class", _TEXT, nullable=True),
        sa.Column("resolved_pos", _BIG, nullable=True),
    )
    op.create_index(
        "intents_open",
        "intents",
        ["stream"],
        sqlite_where=sa.text("stage IN ('requested', 'unresolved')"),
        postgresql_where=sa.text("stage IN ('requested', 'unresolved')"),
    )
    op.create_index("intents_stream", "intents", ["stream", "generation"])
    op.create_table(
        "decisions",
        sa.Column("position", _BIG, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("stream", _TEXT, nullable=False),
        sa.Column("generation", _BIG, nullable=False),
        sa.Column("type", _TEXT, nullable=False),
        sa.Column("attempt", _TEXT, nullable=True),
        sa.Column("machine", _TEXT, nullable=True),
        sa.Column("reason", _TEXT, nullable=False),
        sa.Column("at", _BIG, nullable=False),
        sa.Column("actor", _TEXT, nullable=False),
        sa.Column("claim", _TEXT, nullable=False),
        sa.Column("idle_reads", _BIG, nullable=False),
        sa.Column("idle_span", _BIG, nullable=False),
        sa.Column("probe", _TEXT, nullable=True),
    )
    op.create_table(
        "evidence",
        sa.Column("decision", _BIG, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("position", _BIG, primary_key=True, autoincrement=False, nullable=False),
    )
    op.create_table(
        "rungs",
        sa.Column("stream", _TEXT, primary_key=True, nullable=False),
        sa.Column("generation", _BIG, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("rung", _TEXT, primary_key=True, nullable=False),
    )
    op.create_table(
        "oddities",
        sa.Column("position", _BIG, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("stream", _TEXT, nullable=False),
        sa.Column("generation", _BIG, nullable=False),
        sa.Column("type", _TEXT, nullable=False),
        sa.Column("stage", _TEXT, nullable=False),
        sa.Column("attempt", _TEXT, nullable=True),
        sa.Column("machine", _TEXT, nullable=True),
        sa.Column("at", _BIG, nullable=False),
    )
    op.create_table(
        "accounts",
        sa.Column("stream", _TEXT, primary_key=True, nullable=False),
        sa.Column("backend", _TEXT, nullable=False),
        sa.Column("account", _TEXT, nullable=False),
        sa.Column("read_at", _BIG, nullable=True),
        sa.Column("read_pos", _BIG, nullable=True),
        sa.Column("complete", _BIG, nullable=False),
        sa.Column("complete_at", _BIG, nullable=True),
        sa.Column("complete_pos", _BIG, nullable=True),
        sa.Column("listed", _BIG, nullable=False),
        sa.Column("fingerprint", _TEXT, nullable=True),
    )
    op.create_table(
        "policies",
        sa.Column("position", _BIG, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("recorded_at", _BIG, nullable=False),
        sa.Column("ledger", _TEXT, nullable=False),
        sa.Column("policy", _TEXT, nullable=False),
    )
    op.create_table(
        "acks",
        sa.Column("breach", _TEXT, primary_key=True, nullable=False),
        sa.Column("position", _BIG, primary_key=True, autoincrement=False, nullable=False),
    )
    op.create_table(
        "breaches",
        sa.Column("breach", _TEXT, primary_key=True, nullable=False),
        sa.Column("position", _BIG, nullable=False),
        sa.Column("invariant", _TEXT, nullable=False),
        sa.Column("stream", _TEXT, nullable=False),
        sa.Column("generation", _BIG, nullable=False),
        sa.Column("attempt", _TEXT, nullable=True),
        sa.Column("machine", _TEXT, nullable=True),
        sa.Column("began", _BIG, nullable=False),
        sa.Column("since", _BIG, nullable=False),
        sa.Column("evidence", _TEXT, nullable=False),
        sa.Column("detail", _TEXT, nullable=False),
    )
    op.create_index("breaches_stream", "breaches", ["stream"])
    op.create_table(
        "vitals",
        sa.Column("machine", _TEXT, primary_key=True, nullable=False),
        sa.Column("read_at", _BIG, nullable=False),
        sa.Column("reading", _TEXT, nullable=False),
    )
    if op.get_bind().dialect.name == "sqlite":
        for statement in (*_SQLITE, "PRAGMA user_version = 1"):
            op.execute(statement)
    else:
        schema = op.get_bind().exec_driver_sql("SELECT quote_ident(current_schema())").scalar_one()
        for statement in _POSTGRESQL:
            op.get_bind().exec_driver_sql(statement.replace("{schema}", schema).replace("%", "%%"))


def downgrade() -> None:
    raise NotImplementedError("the log is never taken away: keep the database, or start another")
