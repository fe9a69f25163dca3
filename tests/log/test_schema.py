"""The migrations make what `ledger.log.schema` says, and the code knows the newest of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, inspect
from sqlalchemy.pool import NullPool

from ledger.log import migrate
from ledger.log.open import SCHEMA
from ledger.log.schema import READ_MODELS, metadata
from ledger.projections.rebuild import in_memory
from ledger.projections.tables import KEYS


def described(engine: Engine) -> dict[str, Any]:
    """Every table by its columns, key, indexes and uniques."""
    inspector = inspect(engine)
    tables = {}
    for name in inspector.get_table_names():
        if name == "alembic_version":
            continue
        tables[name] = {
            "columns": [(c["name"], str(c["type"]), c["nullable"]) for c in inspector.get_columns(name)],
            "key": inspector.get_pk_constraint(name)["constrained_columns"],
            "indexes": sorted(
                (i["name"] or "", tuple(i["column_names"]), str(i.get("dialect_options", {}).get("sqlite_where", "")))
                for i in inspector.get_indexes(name)
            ),
            "uniques": sorted(
                (u["name"] or "", tuple(u["column_names"])) for u in inspector.get_unique_constraints(name)
            ),
        }
    return tables


def test_the_migrations_make_the_schema(tmp_path: Path, born: Path) -> None:
    wanted = create_engine(f"sqlite:///{tmp_path}/wanted.db", poolclass=NullPool)
    metadata.create_all(wanted)
    made = described(create_engine(f"sqlite:///{born}", poolclass=NullPool))
    assert made == described(wanted)
    assert set(made) == set(metadata.tables)


def test_the_code_knows_the_newest_migration(born: Path) -> None:
    assert int(migrate.head()) == SCHEMA
    with closing(sqlite3.connect(born)) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (SCHEMA,)
        assert raw.execute("SELECT version_num FROM alembic_version").fetchone() == (migrate.head(),)


def test_a_second_upgrade_changes_nothing(tmp_path: Path, born: Path) -> None:
    path = tmp_path / "again.db"
    path.write_bytes(born.read_bytes())
    migrate.upgrade(str(path), SCHEMA)
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("SELECT count(*) FROM events").fetchone() == (1,)


@pytest.mark.parametrize("table", READ_MODELS, ids=lambda table: table.name)
def test_rows_are_keyed_as_the_tables_are(table: Any) -> None:
    if table.name != "breaches":
        assert list(table.columns)[: KEYS[table.name]] == list(table.primary_key.columns)


def test_a_ledger_in_memory_has_every_table() -> None:
    connection = in_memory()
    names = {row[0] for row in connection.query("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    assert names == set(metadata.tables)
