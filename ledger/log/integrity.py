"""Integrity: every stored byte against the chain of its stream, the read models against the log, and the digest over
all streams that can be kept elsewhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ledger import canonical
from ledger.errors import LedgerError
from ledger.events import COLUMNS, Event, from_row
from ledger.log.connection import Connection
from ledger.log.store import Log
from ledger.projections.tables import KEYS, Rows, join, rows_of
from ledger.state.fold import advance, new_state
from ledger.state.model import State

_INTEGERS = frozenset({"position", "version", "schema", "occurred_at", "recorded_at"})
_OPTIONAL = frozenset({"correlation_id", "attempt", "machine"})
assert COLUMNS[-1] == "hash", "the chain is over all columns before it"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: of an event (its position, stream, version, type), a stream, or a read model's row."""

    problem: str
    position: int | None = None
    stream: str | None = None
    version: int | None = None
    type: str | None = None
    table: str | None = None
    key: str | None = None

    def __str__(self) -> str:
        if self.table:
            return f"{self.table} {self.key or ''}: {self.problem}"
        at = f" (position {self.position})" if self.position is not None else ""
        return f"{self.stream} version {self.version}{' ' + self.type if self.type else ''}{at}: {self.problem}"

    def to_json(self) -> dict[str, Any]:
        """A JSON object of every field."""
        return asdict(self)


_Last = tuple[int, int, str]  # position, version and hash of the newest event of a stream
_NONE: _Last = (0, 0, "")


def verify(log: Log, projections: bool = False, progress: Callable[[int], None] | None = None) -> list[Finding]:
    """All that is wrong with the log; with `projections` also with its read models, which are rebuilt and compared.

    `progress` is told the number of events read, every thousand. Reads the whole log in one read transaction.
    """
    heads: dict[str, _Last] = {}
    with log.connection.read():
        if not projections:
            return [*_chain(log, heads, progress), *_heads(log.connection, heads)]
        from ledger.projections.rebuild import uncollected

        states: dict[str, State] = {}
        with uncollected():
            findings = [*_chain(log, heads, progress, states), *_heads(log.connection, heads)]
            if findings or not _as_stored(log.connection, states):
                findings += _projections(log)
        return findings


def _as_stored(connection: Connection, states: dict[str, State]) -> bool:
    """Whether the read models are, row by row, what follows from the states. What differs, `_projections` says."""
    from ledger.projections.rebuild import judged

    rows: Rows = {table: {} for table in KEYS}
    while states:
        join(rows, rows_of(states.popitem()[1]))
    for table, want in rows.items():
        key = KEYS[table]
        for row in connection.stream(f"SELECT * FROM {table}"):
            if want.pop(row[:key], None) != row:
                return False
        if want:
            return False
    # Conduct is judged on what was just found to be as the log has it.
    return sorted(judged(connection)) == sorted(connection.query("SELECT * FROM breaches"))


def head(log: Log) -> str:
    """A digest (SHA-256, hex) over the ledger's id and the newest version and hash of every stream."""
    with log.connection.read():
        rows = log.connection.query("""
            SELECT e.stream, e.version, e.hash FROM events e
            JOIN (SELECT stream, MAX(version) AS version FROM events GROUP BY stream) n
                ON n.stream = e.stream AND n.version = e.version
        """)
        return canonical.digest(canonical.dumps([log.ledger_id(), sorted(list(row) for row in rows)]))


def _chain(
    log: Log,
    heads: dict[str, _Last],
    progress: Callable[[int], None] | None,
    states: dict[str, State] | None = None,
) -> Iterator[Finding]:
    """What is wrong with each event, in order. Those with which nothing is are folded into `states`."""
    recorded_at, count = 0, 0
    loads, dumps, sha256 = canonical.loads(), canonical.writer(), hashlib.sha256
    for count, row in enumerate(log.rows(), start=1):
        # Written out, since this is done for every event that was ever recorded: `canonical.chain`.
        position, stream, version, id_, type_, schema, at, recorded, actor, failover, attempt, machine, text, hash_ = (
            row
        )
        before = heads.get(stream, _NONE)
        payload = None
        try:
            stored = dumps(
                (before[2], position, stream, version, id_, type_, schema, at, recorded, actor, failover, attempt,
                 machine, text)
            )  # fmt: skip
            # A hash that fits says that every column is of the kind and the value that was stored.
            if version == before[1] + 1 and recorded >= recorded_at and sha256(stored).hexdigest() == hash_:
                payload = loads(text)
        except (TypeError, ValueError, RecursionError):
            pass
        if type(payload) is dict:
            recorded_at = recorded
            heads[stream] = (position, version, hash_)
            if states is not None:
                state = states.get(stream)
                if state is None:
                    state = states[stream] = new_state(stream)
                advance(state, from_row(row), payload)
        else:
            event = from_row(row)
            yield from _findings(event, heads, recorded_at)
            if not _bent(event):
                recorded_at = max(recorded_at, recorded)
        if progress and count % 1000 == 0:
            progress(count)
    if progress:
        progress(count)


def _findings(event: Event, heads: dict[str, _Last], recorded_at: int) -> Iterator[Finding]:
    bent = _bent(event)
    if bent:
        yield Finding(
            f"its {', '.join(bent)} is not as an event is stored: it is not as it was recorded",
            event.position,
            str(event.stream),
            event.version,
            str(event.type),
        )
        if not {"position", "stream", "version", "hash"}.intersection(bent):
            heads[event.stream] = (event.position, event.version, event.hash)
        return
    for problem in _wrong(event, heads.get(event.stream, _NONE), recorded_at):
        yield Finding(problem, event.position, event.stream, event.version, event.type)
    heads[event.stream] = (event.position, event.version, event.hash)


def _bent(event: Event) -> list[str]:
    """The columns whose values are of another kind than an append stores: SQLite takes anything anywhere."""
    return [
        name
        for name, value in zip(COLUMNS, event, strict=True)
        if not isinstance(value, int if name in _INTEGERS else str) and not (value is None and name in _OPTIONAL)
    ]


def _wrong(event: Event, before: _Last, recorded_at: int) -> Iterator[str]:
    if event.version != before[1] + 1:
        missing = event.version - before[1] - 1
        if missing > 0:
            yield f"{missing} event(s) of the stream before it are missing, after version {before[1]}"
        else:
            yield f"it stands after version {before[1]} of its stream: out of order"
    elif event.hash != canonical.chain(before[2], event[:-1]):
        yield "its hash does not fit: it, or the event before it in its stream, is not as it was recorded"
    if event.recorded_at < recorded_at:
        yield "it was recorded before the event in front of it"
    try:
        if not isinstance(json.loads(event.payload), dict):
            yield "its payload is no JSON object"
    except (TypeError, ValueError, RecursionError):
        yield "its payload is no JSON"


def _heads(connection: Connection, heads: dict[str, _Last]) -> Iterator[Finding]:
    """The streams' heads as the read models hold them, against the log: a tail that was cut off shows here."""
    known = set()
    for stream, version, position, hash_ in connection.query(
        "SELECT stream, version, position, hash FROM streams ORDER BY stream"
    ):
        known.add(stream)
        found = heads.get(stream)
        if found is None:
            yield Finding(f"its {version} event(s) are missing from the log", position, stream, version)
        elif found[1] < version:
            problem = f"the log ends at version {found[1]}: {version - found[1]} event(s) are missing"
            yield Finding(problem, position, stream, version)
        elif found != (position, version, hash_):
            problem = "the head of the stream differs from the one that the read models hold"
            yield Finding(problem, found[0], stream, found[1])
    for stream in sorted(heads.keys() - known):
        yield Finding("the read models do not know the stream", heads[stream][0], stream, heads[stream][1])


def _projections(log: Log) -> Iterator[Finding]:
    from ledger.log.schema import READ_MODELS
    from ledger.projections.rebuild import rebuild

    if any(map(_bent, log.read_all())):
        return
    try:
        rebuilt = rebuild(log.read_all())
    except LedgerError as error:
        yield Finding(f"cannot be rebuilt from the log: {error}", table="read models")
        return
    try:
        for table in READ_MODELS:
            names = [column.name for column in table.columns]
            keys = [names.index(column.name) for column in table.primary_key.columns]
            yield from _compare(table.name, names, keys, log.connection, rebuilt)
    finally:
        rebuilt.close()


def _compare(
    table: str, names: list[str], keys: list[int], stored: Connection, rebuilt: Connection
) -> Iterator[Finding]:
    sql = f"SELECT {', '.join(f'{chr(34)}{name}{chr(34)}' for name in names)} FROM {table}"
    have = {tuple(row[index] for index in keys): row for row in stored.query(sql)}
    want = {tuple(row[index] for index in keys): row for row in rebuilt.query(sql)}
    for key in sorted(have.keys() | want.keys(), key=str):
        text = "/".join(str(part) for part in key)
        if key not in have:
            yield Finding("the row is missing", table=table, key=text)
        elif key not in want:
            yield Finding("the row follows from no event", table=table, key=text)
        elif have[key] != want[key]:
            differs = ", ".join(
                f"{name} is {a!r}, the log says {b!r}"
                for name, a, b in zip(names, have[key], want[key], strict=True)
                if a != b
            )
            yield Finding(differs, table=table, key=text)
