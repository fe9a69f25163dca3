"""The tables, in SQLAlchemy Core. `migrations/` makes them; a test holds that both say the same.

`events` is the log; on PostgreSQL each also bears its transaction's id (`xid`, see `postgresql.py`). All other tables
are read models: kept in the append's transaction, rebuildable from `events`, compared with it by `ledger verify` — but
for `vitals`, the newest raw reading of each machine, which is no evidence.
Times are integer microseconds UTC, costs dollars per hour, flags 0 or 1. `*_pos` is the position of an event.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Integer, MetaData, Table, Text, UniqueConstraint, text

metadata = MetaData()


# INTEGER PRIMARY KEY is SQLite's own row number: no second index for it.
_BIG = BigInteger().with_variant(Integer, "sqlite")
# In the order of their bytes, as SQLite has them, whatever language the server speaks.
_TEXT = Text().with_variant(Text(collation="C"), "postgresql")


def _int(name: str, *, key: bool = False, needed: bool = False) -> Column[int]:
    return Column(name, _BIG, primary_key=key, nullable=not (key or needed), autoincrement=False)


def _text(name: str, *, key: bool = False, needed: bool = False) -> Column[str]:
    return Column(name, _TEXT, primary_key=key, nullable=not (key or needed))


events = Table(
    "events",
    metadata,
    _int("position", key=True),
    _text("stream", needed=True),
    _int("version", needed=True),
    _text("event_id", needed=True),
    _text("type", needed=True),
    _int("schema", needed=True),
    _int("occurred_at", needed=True),
    _int("recorded_at", needed=True),
    _text("actor", needed=True),
    _text("correlation_id"),
    _text("attempt"),
    _text("machine"),
    _text("payload", needed=True),
    _text("hash", needed=True),
    UniqueConstraint("stream", "version", name="events_stream_version"),
    UniqueConstraint("event_id", name="events_event_id"),
)

streams = Table(
    "streams",
    metadata,
    _text("stream", key=True),
    _text("kind", needed=True),
    _int("version", needed=True),
    _int("position", needed=True),
    _text("hash", needed=True),
    _int("unreadable_pos"),
)

runs = Table(
    "runs",
    metadata,
    _text("stream", key=True),
    _int("generation", needed=True),
    _int("issue", needed=True),
    _text("lane"),
    _text("backend"),
    _int("driven", needed=True),
    _text("stage", needed=True),
    _int("active", needed=True),
    _int("closing", needed=True),
    _int("opened_at", needed=True),
    _int("opened_pos", needed=True),
    _int("closed_at"),
    _int("closed_pos"),
    _text("outcome"),
    _text("reason"),
    _text("failure_class"),
    _text("handle_machine"),
    _int("handle_pos"),
    _int("failover_at"),
    _int("failover_pos"),
    _int("failover_base_at"),
    _int("failover_base_pos"),
    _text("failover_reason"),
    _text("failover_machine"),
    _int("failover_queued", needed=True),
    _int("budget_us"),
    _int("edited_at"),
    _int("edited_pos"),
    _int("edited_owned", needed=True),
    _int("position", needed=True),
)
Index("runs_active", runs.c.stream, sqlite_where=runs.c.active == 1, postgresql_where=runs.c.active == 1)

machines = Table(
    "machines",
    metadata,
    _text("machine", key=True),
    _text("stream", key=True),
    _int("generation", needed=True),
    _text("attempt"),
    _text("backend", needed=True),
    _text("account", needed=True),
    _text("name", needed=True),
    _text("zone"),
    _text("rung"),
    _text("claim", needed=True),
    _text("stage", needed=True),
    _text("marker"),
    _text("requested_model"),
    _text("model"),
    _text("handle_model"),
    _text("handle_zone"),
    _text("handle_ports"),
    _text("ports"),
    _int("created_at"),
    _int("known_at", needed=True),
    _int("known_pos", needed=True),
    Column("cost_per_hour", Float),
    _text("status"),
    _int("status_since"),
    _int("status_pos"),
    _text("phase"),
    _int("observed_pos"),
    _int("stale_at"),
    _int("stale_pos"),
    _int("unreached_at"),
    _int("unreached_pos"),
    _text("gpus", needed=True),
    _int("gpus_pos"),
    _text("log", needed=True),
    _int("log_pos"),
    _int("last_line_at"),
    _int("queued", needed=True),
    _int("queue_since"),
    _int("billed_since"),
    _int("billed_until"),
    _int("bound_began"),
    _int("bound_pos"),
    _int("launched_at"),
    _int("launched_pos"),
    _int("ended_at"),
    _int("ended_pos"),
    _text("outcome"),
    _int("reconnected_ended_at"),
    _int("reconnected_ended_pos"),
    _int("left_at"),
    _int("left_pos"),
    _int("teardown_at"),
    _int("teardown_pos"),
    _int("teardown_failures", needed=True),
    _text("teardown_error"),
    _int("absent_at"),
    _int("absent_pos"),
    _int("gone_at"),
    _int("gone_pos"),
    _text("gone_by"),
)
Index(
    "machines_open", machines.c.stream, sqlite_where=text("gone_at IS NULL"), postgresql_where=text("gone_at IS NULL")
)
Index("machines_stream", machines.c.stream)

intents = Table(
    "intents",
    metadata,
    _int("position", key=True),
    _text("stream", needed=True),
    _int("generation", needed=True),
    _text("attempt", needed=True),
    _int("attempt_try", needed=True),
    _text("backend", needed=True),
    _text("account", needed=True),
    _text("rung", needed=True),
    _text("zone"),
    _int("requested_at", needed=True),
    _int("call_before", needed=True),
    _int("deadline", needed=True),
    _text("stage", needed=True),
    _text("class"),
    _int("resolved_pos"),
)
Index(
    "intents_open",
    intents.c.stream,
    sqlite_where=text("stage IN ('requested', 'unresolved')"),
    postgresql_where=text("stage IN ('requested', 'unresolved')"),
)
Index("intents_stream", intents.c.stream, intents.c.generation)

decisions = Table(
    "decisions",
    metadata,
    _int("position", key=True),
    _text("stream", needed=True),
    _int("generation", needed=True),
    _text("type", needed=True),
    _text("attempt"),
    _text("machine"),
    _text("reason", needed=True),
    _int("at", needed=True),
    _text("actor", needed=True),
    _text("claim", needed=True),
    _int("idle_reads", needed=True),
    _int("idle_span", needed=True),
    _text("probe"),
)

evidence = Table(
    "evidence",
    metadata,
    _int("decision", key=True),
    _int("position", key=True),
)

rungs = Table(
    "rungs",
    metadata,
    _text("stream", key=True),
    _int("generation", key=True),
    _text("rung", key=True),
)

oddities = Table(
    "oddities",
    metadata,
    _int("position", key=True),
    _text("stream", needed=True),
    _int("generation", needed=True),
    _text("type", needed=True),
    _text("stage", needed=True),
    _text("attempt"),
    _text("machine"),
    _int("at", needed=True),
)

accounts = Table(
    "accounts",
    metadata,
    _text("stream", key=True),
    _text("backend", needed=True),
    _text("account", needed=True),
    _int("read_at"),
    _int("read_pos"),
    _int("complete", needed=True),
    _int("complete_at"),
    _int("complete_pos"),
    _int("listed", needed=True),
    _text("fingerprint"),
)

policies = Table(
    "policies",
    metadata,
    _int("position", key=True),
    _int("recorded_at", needed=True),
    _text("ledger", needed=True),
    _text("policy", needed=True),
)

acks = Table(
    "acks",
    metadata,
    _text("breach", key=True),
    _int("position", key=True),
)

# Conduct: points in the past, judged once.
breaches = Table(
    "breaches",
    metadata,
    _text("breach", key=True),
    _int("position", needed=True),
    _text("invariant", needed=True),
    _text("stream", needed=True),
    _int("generation", needed=True),
    _text("attempt"),
    _text("machine"),
    _int("began", needed=True),
    _int("since", needed=True),
    _text("evidence", needed=True),
    _text("detail", needed=True),
)
Index("breaches_stream", breaches.c.stream)

vitals = Table(
    "vitals",
    metadata,
    _text("machine", key=True),
    _int("read_at", needed=True),
    _text("reading", needed=True),
)

READ_MODELS = tuple(table for table in metadata.sorted_tables if table.name not in ("events", "vitals"))
