"""Alembic behind a few functions. Loaded only when a schema is made or changed, never by a command that reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import ledger
from ledger.log.sqlite import connect

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection


def locate() -> Path:
    """The folder of migrations: inside an installed wheel, or beside the package in a checkout."""
    package = Path(ledger.__file__).parent
    inside = package / "migrations"
    return inside if inside.is_dir() else package.parent / "migrations"


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(locate()).replace("%", "%%"))
    return config


def head() -> str:
    """The newest revision that the folder of migrations holds."""
    from alembic.script import ScriptDirectory

    newest = ScriptDirectory.from_config(_config()).get_current_head()
    assert newest is not None, "the folder of migrations is empty"
    return newest


def upgrade(path: str, target: int) -> None:
    """Bring the SQLite file at `path` to `head` in one write transaction; nothing where it has schema `target`.

    Raises sqlite3.Error or sqlalchemy.exc.DBAPIError as the driver does.
    """
    from sqlalchemy import NullPool, create_engine

    # AUTOCOMMIT leaves the transaction to the BEGIN below: two processes that start at once take turns, and a kill in
    # the middle leaves the old schema whole.
    engine = create_engine("sqlite://", creator=lambda: connect(path), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        if connection.exec_driver_sql("PRAGMA user_version").scalar_one() < target:
            _to_head(connection)
        connection.exec_driver_sql("COMMIT")


def upgrade_server(url: str, target: int) -> None:
    """Bring the PostgreSQL database at `url` to `head` in one transaction, beside which nobody appends.

    Nothing where it has schema `target`, or a newer one. Raises psycopg.Error or sqlalchemy.exc.DBAPIError as the
    driver does.
    """
    from sqlalchemy import NullPool, create_engine

    from ledger.log import postgresql

    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: postgresql.connect(url),
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",
    )
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({postgresql.APPENDING})")
        has = connection.exec_driver_sql("SELECT to_regclass('alembic_version')").scalar_one()
        version = has and connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        if int(version or 0) < target:
            _to_head(connection)
        connection.exec_driver_sql("COMMIT")


def _to_head(connection: Connection) -> None:
    from alembic import command

    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
