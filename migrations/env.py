"""Alembic's environment: on a connection that the ledger hands over, or by URL for developers (`alembic -x url=…`)."""

from alembic import context
from sqlalchemy import Connection, create_engine

from ledger.log.schema import metadata


def run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True, transactional_ddl=False)
    context.run_migrations()


handed_over = context.config.attributes.get("connection")
if handed_over is not None:
    run(handed_over)
else:
    url = context.get_x_argument(as_dictionary=True).get("url") or context.config.get_main_option("sqlalchemy.url")
    assert url, "say which database: alembic -x url=sqlite:///FILE upgrade head"
    with create_engine(url).begin() as own:
        run(own)
