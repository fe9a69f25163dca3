"""The peers: SQLAlchemy as most would use it, `eventsourcing`, and DBOS, each as its own manual says.

All on SQLite in WAL with `synchronous=FULL`; each turn stores `block` events, one a transaction.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from benchmarks.harness import Block
from benchmarks.history import T0, event_of, first_drafts


def _rows(n: int) -> Iterator[dict[str, Any]]:
    told = enumerate(first_drafts(n), start=1)
    return iter([event_of(stream, draft, at, at, T0, "")._asdict() for at, (stream, draft) in told])


def _engine(path: Path) -> Any:
    from sqlalchemy import create_engine, event

    engine = create_engine(f"sqlite:///{path}")

    @event.listens_for(engine, "connect")
    def _pragmas(raw: Any, _record: Any) -> None:
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute("PRAGMA synchronous=FULL")

    return engine


def core(path: Path, block: int, turns: int) -> Block:
    """An INSERT of Core on one kept connection, into the same table, without hash, fold and read models."""
    from sqlalchemy import insert

    from ledger.log.schema import events, metadata

    engine = _engine(path)
    metadata.create_all(engine)
    connection = engine.connect()
    rows = _rows(block * turns)
    statement = insert(events)

    def run() -> None:
        for row in itertools.islice(rows, block):
            with connection.begin():
                connection.execute(statement, row)

    return run


def orm(path: Path, block: int, turns: int) -> Block:
    """A mapped object a session."""
    from sqlalchemy.orm import Session, registry

    from ledger.log.schema import events, metadata

    class Stored:
        pass

    registry(metadata=metadata).map_imperatively(Stored, events)
    engine = _engine(path)
    metadata.create_all(engine)
    rows = _rows(block * turns)

    def run() -> None:
        for row in itertools.islice(rows, block):
            stored: Any = Stored()
            for name, value in row.items():
                setattr(stored, name, value)
            with Session(engine) as session, session.begin():
                session.add(stored)

    return run


def eventsourcing_app(path: Path) -> Any:
    """An application with one aggregate whose events bear a payload."""
    from eventsourcing.application import Application
    from eventsourcing.domain import Aggregate, event

    class Work(Aggregate):
        def __init__(self, name: str) -> None:
            self.name = name
            self.seen = 0

        @event("Happened")
        def happened(self, kind: str, payload: dict[str, Any]) -> None:
            self.seen += 1
            self.kind = kind

    class Works(Application):
        pass

    environment = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(path)}
    return Works(environment), Work


def eventsourcing_save(path: Path, block: int, turns: int) -> Block:
    """`app.save` of an aggregate with one new event."""
    app, work = eventsourcing_app(path)
    source = iter(first_drafts(block * turns))
    current: dict[str, Any] = {}

    def run() -> None:
        for stream, draft in itertools.islice(source, block):
            aggregate = current.get(stream)
            if aggregate is None:
                current.clear()
                aggregate = current[stream] = work(stream)
                app.save(aggregate)
            aggregate.happened(draft.type, dict(draft.payload))
            app.save(aggregate)

    return run


def dbos_step(path: Path, block: int, turns: int) -> Block:
    """A step of a workflow that returns the payload."""
    import logging

    from dbos import DBOS

    logging.disable(logging.CRITICAL)
    os.environ["DBOS__VMID"] = "bench"
    DBOS(config={"name": "bench", "system_database_url": f"sqlite:///{path}", "run_admin_server": False})
    source = iter(first_drafts(block * turns))

    @DBOS.step()
    def happened(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        return payload

    @DBOS.workflow()
    def work() -> None:
        for _, draft in itertools.islice(source, block):
            happened(draft.type, dict(draft.payload))

    DBOS.launch()
    return cast("Block", work)
