"""`ledger init` and `ledger db`: make a ledger, and bring its database to this version's schema."""

from __future__ import annotations

from pathlib import Path

import click

import ledger
from ledger.cli import output
from ledger.cli.base import Call, Command, Entry, LazyGroup, common, pass_call
from ledger.errors import StorageError
from ledger.log.open import SCHEMA, check_schema, connect, create_log, display, on_server, sqlite_path


@click.command(cls=Command)
@click.argument("directory", default=".", type=click.Path(path_type=Path))
@pass_call
def init(call: Call, directory: Path) -> None:
    """Make a ledger in DIRECTORY (here, if none is named).

    Writes ledger.toml, whose comments say what can be set, the database, and the folder of handle files. Exit
    status: 0, 2 where there is one already.

    \b
    Examples:
      ledger init
      ledger init ~/runs
    """
    from ledger import settings

    file, _ = settings.init(directory)
    found = settings.load(cwd=directory, env={})
    create_log(found.database, call.source, found.policy, ledger.__version__).connection.close()
    if call.json:
        return output.emit(
            {"settings": str(file), "database": display(found.database), "sidecars": str(found.sidecars)}
        )
    output.say(f"a ledger in {directory.resolve()}", "good")
    output.facts(
        [
            ("settings", file),
            ("database", display(found.database)),
            ("handle files", found.sidecars),
        ]
    )
    output.say("next:")
    output.say("  look through ledger.toml: projects, zones, what an intent rents")
    output.say("  `ledger import PATH` takes over the handle files that you have")
    output.say("  `ledger audit` says what is wrong, and what it costs")
    return None


@click.group(
    cls=LazyGroup,
    params=common(),
    no_args_is_help=True,
    lazy={
        "upgrade": Entry("ledger.cli.setup", "Bring the database to this version's schema."),
        "current": Entry("ledger.cli.setup", "Which schema it has, and which this version knows."),
        "check": Entry("ledger.cli.setup", "Whether it is at this version's schema."),
        "copy": Entry("ledger.cli.server", "Copy a ledger from its file to a PostgreSQL server."),
        "roles": Entry("ledger.cli.server", "The SQL for a team's roles on PostgreSQL."),
    },
)
def db() -> None:
    """Migrations of the database; a ledger's move to a server.

    \b
    Examples:
      ledger db check
      ledger db upgrade --db sqlite:////srv/ledger.db
    """


@click.command(cls=Command)
@pass_call
def upgrade(call: Call) -> None:
    """Bring the database to this version's schema, in one transaction; make it where there is none yet.

    Nothing is lost where it fails: the old schema stays whole.

    \b
    Example:
      ledger db upgrade
    """
    settings = call.settings()
    before = _schema(settings.database, missing=0)
    create_log(settings.database, call.source, settings.policy, ledger.__version__).connection.close()
    if call.json:
        return output.emit({"from": before, "to": SCHEMA})
    done = f"{'made' if before == 0 else f'from schema {before}'}, now {SCHEMA}" if before != SCHEMA else f"at {SCHEMA}"
    return output.say(f"{display(settings.database)}: {done}")


@click.command(cls=Command)
@pass_call
def current(call: Call) -> None:
    """Which schema the database has, and which one this version knows.

    \b
    Example:
      ledger db current --json
    """
    database = call.settings().database
    found = _schema(database)
    if call.json:
        return output.emit({"database": display(database), "schema": found, "newest": SCHEMA})
    return output.say(f"{display(database)}: schema {found}, newest {SCHEMA}")


@click.command(cls=Command)
@pass_call
def check(call: Call) -> int:
    """Whether the database is at this version's schema. Exit status: 0 it is, 1 it is not.

    \b
    Example:
      ledger db check || ledger db upgrade
    """
    database = call.settings().database
    found = _schema(database)
    if call.json:
        output.emit({"database": display(database), "schema": found, "newest": SCHEMA, "ok": found == SCHEMA})
    elif found == SCHEMA:
        output.say(f"{display(database)}: at schema {SCHEMA}", "good")
    else:
        advice = "install a newer ledger" if found > SCHEMA else "`ledger db upgrade` brings it there"
        output.say(f"{display(database)}: schema {found}, not {SCHEMA}: {advice}", "bad")
    return 0 if found == SCHEMA else 1


def _schema(url: str, missing: int | None = None) -> int:
    if not on_server(url) and not sqlite_path(url).exists():
        if missing is not None:
            return missing
        raise StorageError(f"no ledger database at {display(url)}; `ledger init` makes one, `ledger db upgrade` there")
    connection = connect(url, reads=True)
    try:
        found = connection.schema_version()
        if found == 0 and not connection.is_empty():
            check_schema(connection)
        return found
    finally:
        connection.close()
