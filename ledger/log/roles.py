"""The roles of a team's ledger on PostgreSQL, as SQL for its owner to run: who may append, and who may only read."""

from __future__ import annotations

from ledger.log.schema import READ_MODELS, vitals

_SQL = """\
-- Run as the owner of the ledger's tables, on its database; again after `ledger db upgrade`.
-- Then: CREATE USER somebody PASSWORD '...' IN ROLE {poller};
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{poller}') THEN CREATE ROLE {poller}; END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{reader}') THEN CREATE ROLE {reader}; END IF;
    EXECUTE format('GRANT CONNECT, TEMPORARY ON DATABASE %I TO {poller}, {reader}', current_database());
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO {poller}, {reader}', current_schema());
END $$;
REVOKE ALL ON FUNCTION ledger_take FROM PUBLIC;
GRANT EXECUTE ON FUNCTION ledger_take TO {poller};
GRANT SELECT ON alembic_version, events, {models} TO {poller}, {reader};
GRANT INSERT ON events TO {poller};
GRANT INSERT, UPDATE ON {models} TO {poller};
"""


def roles_sql(poller: str, reader: str) -> str:
    """The statements that make the two roles, where they are not there, and grant what each needs.

    A poller may INSERT and SELECT events and set the rows of the read models; a reader may SELECT. Neither may update
    or delete an event, set a position or the clock, or turn the triggers off.
    """
    models = ", ".join(table.name for table in (*READ_MODELS, vitals))
    return _SQL.format(poller=poller, reader=reader, models=models)
