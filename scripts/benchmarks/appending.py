"""Section `append`: one durable event at a time. Section `batch`: a thousand in one transaction.

All contenders store the same events, each in a file of its own: WAL, `synchronous=FULL`, one event a transaction.
"""

from __future__ import annotations

import itertools
import sqlite3
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.harness import Block, Bound, Remote, Result, Row, Setting, ratio, take_turns_apart
from benchmarks.history import T0, event_of, first_drafts
from benchmarks.stories import tell
from ledger import canonical
from ledger.events import COLUMNS, Event
from ledger.log.open import create_log
from ledger.log.store import Log
from ledger.policy import Policy
from ledger.source import SystemSource

BATCH = 1000
_RAW = "CREATE TABLE events (" + ", ".join(COLUMNS) + ")"
_INSERT = f"INSERT INTO events VALUES ({', '.join('?' * len(COLUMNS))})"


def _events(n: int) -> list[Event]:
    """The first `n` of them as they are stored."""
    heads: dict[str, tuple[int, str]] = {}
    events = []
    for position, (stream, draft) in enumerate(first_drafts(n), start=1):
        version, head = heads.get(stream, (0, ""))
        event = event_of(stream, draft, position, version + 1, T0, head)
        heads[stream] = (event.version, event.hash)
        events.append(event)
    return events


def raw_connection(path: Path) -> sqlite3.Connection:
    """A bare connection with the same promises: WAL, durable on commit."""
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("PRAGMA journal_mode=WAL")
    raw.execute("PRAGMA synchronous=FULL")
    return raw


def bare(path: Path, block: int, turns: int) -> Block:
    """The floor: one INSERT into a table without a key, in a transaction."""
    raw = raw_connection(path)
    raw.execute(_RAW)
    events = itertools.cycle(_events(block * min(turns, 4)))

    def run() -> None:
        for _ in range(block):
            raw.execute("BEGIN IMMEDIATE")
            raw.execute(_INSERT, next(events))
            raw.execute("COMMIT")

    return run


_TABLES = (
    """CREATE TABLE events (position INTEGER PRIMARY KEY, stream TEXT NOT NULL, version INTEGER NOT NULL,
        event_id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, schema INTEGER NOT NULL, occurred_at INTEGER NOT NULL,
        recorded_at INTEGER NOT NULL, actor TEXT NOT NULL, correlation_id TEXT, attempt TEXT, machine TEXT,
        payload TEXT NOT NULL, hash TEXT NOT NULL, UNIQUE (stream, version))""",
    "CREATE INDEX requested ON events (machine) WHERE type = 'TeardownRequested'",
    "CREATE INDEX gone ON events (machine) WHERE type = 'TornDown'",
    "CREATE INDEX failed ON events (position) WHERE type = 'LaunchFailed'",
    """CREATE TRIGGER no_update BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'append-only'); END""",
    """CREATE TRIGGER no_delete BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'append-only'); END""",
    """CREATE TABLE streams (stream TEXT PRIMARY KEY, version INTEGER NOT NULL, hash TEXT NOT NULL,
        status TEXT, at INTEGER)""",
)
_HEAD = "SELECT version, hash FROM streams WHERE stream = ?"
_SET = "INSERT OR REPLACE INTO streams VALUES (?, ?, ?, ?, ?)"


def by_hand(path: Path, block: int, turns: int) -> Block:
    """What a careful hand would write for this alone: keys, version check, triggers, hash, indexes, one read model."""
    raw = raw_connection(path)
    for statement in _TABLES:
        raw.execute(statement)
    events = iter(_events(block * turns))

    def run() -> None:
        for event in itertools.islice(events, block):
            raw.execute("BEGIN IMMEDIATE")
            version, head = next(iter(raw.execute(_HEAD, (event.stream,))), (0, ""))
            if version + 1 != event.version or canonical.chain(head, event[:-1]) != event.hash:
                raise AssertionError(event)
            raw.execute(_INSERT, event)
            raw.execute(_SET, (event.stream, event.version, event.hash, event.type, event.occurred_at))
            raw.execute("COMMIT")

    return run


def bare_batch(path: Path, block: int) -> Block:
    """The floor of a batch: one executemany into a table without a key."""
    raw = raw_connection(path)
    raw.execute(_RAW)
    events = _events(block)

    def run() -> None:
        raw.execute("BEGIN IMMEDIATE")
        raw.executemany(_INSERT, events)
        raw.execute("COMMIT")

    return run


def _log(path: Path) -> Log:
    return create_log(f"sqlite:///{path}", SystemSource(), Policy(), "bench")


def ours(path: Path, block: int, turns: int) -> Block:
    """`Log.append`: validated, chained, folded, judged, its read models kept."""
    log = _log(path)
    source = iter(first_drafts(block * turns))

    def run() -> None:
        for stream, draft in itertools.islice(source, block):
            log.append(stream, log.known_version(stream), [draft])

    return run


def ours_batch(path: Path, block: int) -> Block:
    """`Log.append_seen` of facts of a thousand runs, one each, as a tick of a thousand runs records them."""
    log = _log(path)
    streams = []
    for issue in range(1, block + 1):
        story = tell(issue, T0, still_open=True)
        stream = f"issue-{issue}"
        log.append(stream, 0, [draft for _, draft in story])
        streams.append((stream, next(draft for _, draft in reversed(story) if draft.type == "MachineObserved")))

    def run() -> None:
        log.append_seen([(stream, log.known_version(stream), [draft]) for stream, draft in streams])

    return run


def append(setting: Setting, result: Result) -> None:
    """One durable event at a time."""
    block = setting.some(200, 100)
    rounds = setting.some(25, 8)
    folder = setting.folder
    turns = rounds + 1
    made: dict[str, tuple[Any, ...]] = {
        "raw sqlite3, no key": (bare, folder / "bare.db", block, turns),
        "raw sqlite3, all by hand": (by_hand, folder / "hand.db", block, turns),
        "SQLAlchemy Core, kept connection": (peers.core, folder / "core.db", block, turns),
        "SQLAlchemy ORM": (peers.orm, folder / "orm.db", block, turns),
        "eventsourcing app.save": (peers.eventsourcing_save, folder / "es.db", block, turns),
        "DBOS step": (peers.dbos_step, folder / "dbos.db", block, turns),
        "ledger append": (ours, folder / "ours.db", block, turns),
    }
    times = take_turns_apart({name: Remote(*arguments) for name, arguments in made.items()}, rounds)
    floor = "raw sqlite3, no key"
    for name, taken in times.items():
        cpu = ratio(times, name, floor, cpu=True)
        result.rows.append(
            Row("append", name, taken.median() / block * 1e6, "us/event", ratio(times, floor, name), f"cpu {cpu:.1f}x")
        )
    mine = "ledger append"
    result.bounds += [
        Bound("append", "of the raw floor's speed", ratio(times, floor, mine), "at least", 0.55),
        Bound("append", "processor time, of the raw floor's", ratio(times, mine, floor, cpu=True), "at most", 2.5),
        Bound(
            "append", "ahead of eventsourcing app.save", ratio(times, "eventsourcing app.save", mine), "at least", 1.25
        ),
        Bound("append", "ahead of a DBOS step", ratio(times, "DBOS step", mine), "at least", 3.0),
    ]


def batch(setting: Setting, result: Result) -> None:
    """A thousand events in one transaction."""
    folder = setting.folder
    made = {
        "raw executemany, no key": Remote(bare_batch, folder / "bare-batch.db", BATCH),
        "ledger append_seen": Remote(ours_batch, folder / "ours-batch.db", BATCH),
    }
    times = take_turns_apart(made, setting.some(25, 8))
    floor, mine = made
    for name, taken in times.items():
        cpu = ratio(times, name, floor, cpu=True)
        value = taken.median() / BATCH * 1e6
        result.rows.append(Row("batch", name, value, "us/event", ratio(times, floor, name), f"cpu {cpu:.1f}x"))
    result.bounds.append(Bound("batch", "of the raw floor's speed", ratio(times, floor, mine), "at least", 0.33))
