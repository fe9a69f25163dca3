"""The log's writing statements, built by SQLAlchemy Core and compiled once a dialect (`sqlite`, `postgresql`)."""

from __future__ import annotations

from functools import lru_cache

from sqlalchemy import Table, bindparam
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import Dialect

from ledger.log import schema


@lru_cache(maxsize=64)
def upsert(table: str, dialect: str = "sqlite") -> str:
    """Insert a row of `table`, or set it as it is now. Its parameters are the columns in their order."""
    target = schema.metadata.tables[table]
    keys = [column.name for column in target.primary_key.columns]
    # Both say ON CONFLICT in the same words, each in its own class.
    statement = insert(target) if dialect == "sqlite" else postgresql.insert(target)
    others = {c.name: statement.excluded[c.name] for c in target.columns if c.name not in keys}
    if others:
        statement = statement.on_conflict_do_update(index_elements=keys, set_=others)
    else:
        statement = statement.on_conflict_do_nothing(index_elements=keys)
    return str(statement.values(_binds(target)).compile(dialect=_dialect(dialect)))


@lru_cache(maxsize=1024)
def update(table: str, places: tuple[int, ...], dialect: str = "sqlite") -> str:
    """Set the columns at `places` of one row of `table`. Its parameters are those, then the row's key."""
    target = schema.metadata.tables[table]
    columns = list(target.columns)
    statement = target.update().values({columns[n].name: bindparam(f"new_{columns[n].name}") for n in places})
    for key in target.primary_key.columns:
        statement = statement.where(key == bindparam(f"old_{key.name}"))
    return str(statement.compile(dialect=_dialect(dialect)))


@lru_cache(maxsize=8)
def insert_event(dialect: str = "sqlite") -> str:
    """Insert one event. Its parameters are the columns in their order."""
    return str(insert(schema.events).values(_binds(schema.events)).compile(dialect=_dialect(dialect)))


def _binds(table: Table) -> dict[str, object]:
    return {column.name: bindparam(column.name) for column in table.columns}


def _dialect(name: str) -> Dialect:
    make, style = {"sqlite": (sqlite.dialect, "qmark"), "postgresql": (postgresql.dialect, "numeric_dollar")}[name]
    made: Dialect = make(paramstyle=style)
    return made
