"""`ledger db copy` and `ledger db roles`: a ledger that becomes a team's, on a PostgreSQL server."""

from __future__ import annotations

import re
from typing import Any

import click

from ledger.cli import output
from ledger.cli.base import Call, Command, pass_call
from ledger.errors import LedgerError
from ledger.log.open import connect, on_server, sqlite_path


@click.command(cls=Command)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--give-up", is_flag=True, help="Let FROM be the ledger again, where no complete copy is at TO.")
@pass_call
def copy(call: Call, source: str, target: str, give_up: bool) -> None:
    """Copy the ledger in the file FROM to the empty database TO on a PostgreSQL server.

    Ids, positions and hashes stay what they are; what is there afterwards was compared with the file. From its first
    moment on nothing can be appended to FROM, and afterwards it says where the ledger went. A copy that broke off goes
    on when it is called again.

    \b
    Examples:
      ledger db copy ledger.db postgresql://me@db.example/ledger
      ledger db copy ledger.db postgresql://me@db.example/ledger --give-up
    """
    if on_server(source) or not on_server(target):
        raise LedgerError(
            "a ledger is copied from its file to a server: ledger db copy FILE postgresql://HOST/DATABASE"
        )
    if not sqlite_path(source).is_file():
        raise LedgerError(f"no ledger database at {sqlite_path(source)}")
    there = connect(target)
    from ledger.log import copy as copying
    from ledger.log.postgresql import PostgresConnection
    from ledger.log.sqlite import SqliteConnection

    assert isinstance(there, PostgresConnection)
    here = SqliteConnection(sqlite_path(source))
    try:
        if give_up:
            copying.give_up(here, there)
            return output.say(f"{here.where} is the ledger again", "good")
        total = int(here.query("SELECT count(*) FROM events")[0][0])
        with output.progress("copying", quiet=call.json) as step:
            events = copying.copy(here, there, target, lambda done: step(done, total))
    finally:
        here.close()
        there.close()
    if call.json:
        return output.emit({"from": here.where, "to": there.where, "events": events})
    output.say(f"{output.count(events, 'event')} copied and compared: {here.where} to {there.where}", "good")
    return output.say(f'next: database = "{there.where}" in ledger.toml; `ledger db roles` for a team')


@click.command(cls=Command)
@click.option("--poller", default="ledger_poller", show_default=True, metavar="NAME", help="Who appends.")
@click.option("--reader", default="ledger_reader", show_default=True, metavar="NAME", help="Who reads.")
@pass_call
def roles(call: Call, poller: str, reader: str) -> None:
    """Print the SQL that makes two roles on a team's PostgreSQL server, and grants what each needs.

    A poller may append events and keep the read models; a reader may read. Neither may change or delete an event.

    \b
    Example:
      ledger db roles | psql postgresql://owner@db.example/ledger
    """
    from ledger.log.roles import roles_sql

    for name in (poller, reader):
        if re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", name) is None:
            raise click.BadParameter(f"{name!r} is no plain name of a role: a-z, 0-9 and _")
    sql: Any = roles_sql(poller, reader)
    return output.emit({"sql": sql}) if call.json else click.echo(sql, nl=False)
