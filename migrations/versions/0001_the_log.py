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
_APPEND_ONLY = (
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


def upgrade() -> None:
    op.create_table(
        "events",
        sa.Column("position", _BIG, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("version", _BIG, nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("schema", _BIG, nullable=False),
        sa.Column("occurred_at", _BIG, nullable=False),
        sa.Column("recorded_at", _BIG, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("correlation_id", sa.Text(), nullable=True),
        sa.Column("attempt", sa.Text(), nullable=True),
        sa.Column("machine", sa.Text(), nullable=True),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.UniqueConstraint("event_id", name="events_event_id"),
        sa.UniqueConstraint("stream", "version", name="events_stream_version"),
    )
    op.create_table(
        "streams",
        sa.Column("stream", sa.Text(), primary_key=True, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("version", _BIG, nullable=False),
        sa.Column("position", _BIG, nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("unreadable_pos", _BIG, nullable=True),
    )
    op.create_table(
        "runs",
        sa.Column("stream", sa.Text(), primary_key=True, nullable=False),
        sa.Column("generation", _BIG, nullable=False),
        sa.Column("issue", _BIG, nullable=False),
        sa.Column("lane", sa.Text(), nullable=True),
        sa.Column("backend", sa.Text(), nullable=True),
        sa.Column("driven", _BIG, nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("active", _BIG, nullable=False),
        sa.Column("closing", _BIG, nullable=False),
        sa.Column("opened_at", _BIG, nullable=False),
        sa.Column("opened_pos", _BIG, nullable=False),
        sa.Column("closed_at", _BIG, nullable=True),
        sa.Column("closed_pos", _BIG, nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("failure_class", sa.Text(), nullable=True),
        sa.Column("handle_machine", sa.Text(), nullable=True),
        sa.Column("handle_pos", _BIG, nullable=True),
        sa.Column("failover_at", _BIG, nullable=True),
        sa.Column("failover_pos", _BIG, nullable=True),
        sa.Column("failover_base_at", _BIG, nullable=True),
        sa.Column("failover_base_pos", _BIG, nullable=True),
        sa.Column("failover_reason", sa.Text(), nullable=True),
        sa.Column("failover_machine", sa.Text(), nullable=True),
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
        sa.Column("machine", sa.Text(), primary_key=True, nullable=False),
        sa.Column("stream", sa.Text(), primary_key=True, nullable=False),
        sa.Column("generation", _BIG, nullable=False),
        sa.Column("attempt", sa.Text(), nullable=True),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("zone", sa.Text(), nullable=True),
        sa.Column("rung", sa.Text(), nullable=True),
        sa.Column("claim", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("marker", sa.Text(), nullable=True),
        sa.Column("requested_model", sa.Text(), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("handle_model", sa.Text(), nullable=True),
        sa.Column("handle_zone", sa.Text(), nullable=True),
        sa.Column("handle_ports", sa.Text(), nullable=True),
        sa.Column("ports", sa.Text(), nullable=True),
        sa.Column("created_at", _BIG, nullable=True),
        sa.Column("known_at", _BIG, nullable=False),
        sa.Column("known_pos", _BIG, nullable=False),
        sa.Column("cost_per_hour", sa.Float(), nullable=True),
        sa.Column("status", sa.Text(), nullable=True),
        sa.Column("status_since", _BIG, nullable=True),
        sa.Column("status_pos", _BIG, nullable=True),
        sa.Column("phase", sa.Text(), nullable=True),
        sa.Column("observed_pos", _BIG, nullable=True),
        sa.Column("stale_at", _BIG, nullable=True),
        sa.Column("stale_pos", _BIG, nullable=True),
        sa.Column("unreached_at", _BIG, nullable=True),
        sa.Column("unreached_pos", _BIG, nullable=True),
        sa.Column("gpus", sa.Text(), nullable=False),
        sa.Column("gpus_pos", _BIG, nullable=True),
        sa.Column("log", sa.Text(), nullable=False),
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
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("reconnected_ended_at", _BIG, nullable=True),
        sa.Column("reconnected_ended_pos", _BIG, nullable=True),
        sa.Column("left_at", _BIG, nullable=True),
        sa.Column("left_pos", _BIG, nullable=True),
        sa.Column("teardown_at", _BIG, nullable=True),
        sa.Column("teardown_pos", _BIG, nullable=True),
        sa.Column("teardown_failures", _BIG, nullable=False),
        sa.Column("teardown_error", sa.Text(), nullable=True),
        sa.Column("absent_at", _BIG, nullable=True),
        sa.Column("absent_pos", _BIG, nullable=True),
        sa.Column("gone_at", _BIG, nullable=True),
        sa.Column("gone_pos", _BIG, nullable=True),
        sa.Column("gone_by", sa.Text(), nullable=True),
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
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("generation", _BIG, nullable=False),
        sa.Column("attempt", sa.Text(), nullable=False),
        sa.Column("attempt_try", _BIG, nullable=False),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("rung", sa.Text(), nullable=False),
        sa.Column("zone", sa.Text(), nullable=True),
        sa.Column("requested_at", _BIG, nullable=False),
        sa.Column("call_before", _BIG, nullable=False),
        sa.Column("deadline", _BIG, nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("class", sa.Text(), nullable=True),
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
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("generation", _BIG, nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Text(), nullable=True),
        sa.Column("machine", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", _BIG, nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("claim", sa.Text(), nullable=False),
        sa.Column("idle_reads", _BIG, nullable=False),
        sa.Column("idle_span", _BIG, nullable=False),
        sa.Column("probe", sa.Text(), nullable=True),
    )
    op.create_table(
        "evidence",
        sa.Column("decision", _BIG, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("position", _BIG, primary_key=True, autoincrement=False, nullable=False),
    )
    op.create_table(
        "rungs",
        sa.Column("stream", sa.Text(), primary_key=True, nullable=False),
        sa.Column("generation", _BIG, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("rung", sa.Text(), primary_key=True, nullable=False),
    )
    op.create_table(
        "oddities",
        sa.Column("position", _BIG, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("generation", _BIG, nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Text(), nullable=True),
        sa.Column("machine", sa.Text(), nullable=True),
        sa.Column("at", _BIG, nullable=False),
    )
    op.create_table(
        "accounts",
        sa.Column("stream", sa.Text(), primary_key=True, nullable=False),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("read_at", _BIG, nullable=True),
        sa.Column("read_pos", _BIG, nullable=True),
        sa.Column("complete", _BIG, nullable=False),
        sa.Column("complete_at", _BIG, nullable=True),
        sa.Column("complete_pos", _BIG, nullable=True),
        sa.Column("listed", _BIG, nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=True),
    )
    op.create_table(
        "policies",
        sa.Column("position", _BIG, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("recorded_at", _BIG, nullable=False),
        sa.Column("ledger", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
    )
    op.create_table(
        "acks",
        sa.Column("breach", sa.Text(), primary_key=True, nullable=False),
        sa.Column("position", _BIG, primary_key=True, autoincrement=False, nullable=False),
    )
    op.create_table(
        "breaches",
        sa.Column("breach", sa.Text(), primary_key=True, nullable=False),
        sa.Column("position", _BIG, nullable=False),
        sa.Column("invariant", sa.Text(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("generation", _BIG, nullable=False),
        sa.Column("attempt", sa.Text(), nullable=True),
        sa.Column("machine", sa.Text(), nullable=True),
        sa.Column("began", _BIG, nullable=False),
        sa.Column("since", _BIG, nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
    )
    op.create_index("breaches_stream", "breaches", ["stream"])
    op.create_table(
        "vitals",
        sa.Column("machine", sa.Text(), primary_key=True, nullable=False),
        sa.Column("read_at", _BIG, nullable=False),
        sa.Column("reading", sa.Text(), nullable=False),
    )
    for trigger in _APPEND_ONLY:
        op.execute(trigger)
    op.execute("PRAGMA user_version = 1")


def downgrade() -> None:
    raise NotImplementedError("the log is never taken away: keep the database, or start another")
