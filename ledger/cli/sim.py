"""`ledger sim serve`: the simulated clouds at loopback addresses, on the real clock."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from shlex import quote
from typing import Any

import click

from ledger.cli import output
from ledger.cli.base import Call, Command, Entry, LazyGroup, common, pass_call
from ledger.errors import LedgerError


@click.group(
    cls=LazyGroup,
    params=common(),
    no_args_is_help=True,
    lazy={"serve": Entry("ledger.cli.sim", "The simulated clouds on loopback ports, until Ctrl-C.")},
)
def sim() -> None:
    """The simulated clouds by themselves.

    \b
    Example:
      ledger sim serve
    """


@click.command(cls=Command)
@click.argument("file", required=False, metavar="[FILE]", type=click.Path(path_type=Path))
@click.option(
    "--books", metavar="FILE", type=click.Path(path_type=Path), help="Write the world's books there at the end."
)
@click.option("--ledger", "ledger_id", metavar="ID", default="", help="Whose marker the scenario's `ours` is.")
@pass_call
def serve(call: Call, file: Path | None, books: Path | None, ledger_id: str) -> None:
    """GCE's REST, RunPod's GraphQL and REST v2, and SSH to the machines, on loopback ports and on the real clock.

    FILE is a scenario: its machines, its rules for calls and its world; none: an empty world in which every call goes
    well. Prints the environment variables that lead real clients there, serves until Ctrl-C, then prints the books:
    what was made, ended and billed. Nothing is rented anywhere. SSH commands run in throw-away folders of this
    computer, so serve nobody whom you do not trust. Exit status: 0, 2 the file could not be read.

    \b
    Examples:
      ledger sim serve
      ledger sim serve tests/scenarios/every-rung-refuses.yaml --books books.json
    """
    from ledger.sim.scenario import ScenarioError, load
    from ledger.sim.wire.serve import Serving, empty

    try:
        scenario = load(file) if file is not None else empty()
    except ScenarioError as error:
        raise LedgerError(str(error)) from None
    if books is not None and not books.absolute().parent.is_dir():
        raise LedgerError(f"{books}: there is no folder {books.absolute().parent} for the books")
    told = threading.Event()
    before = {number: signal.signal(number, lambda *_: told.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        serving = Serving(scenario, call.source, ledger_id)
        try:
            _say(call, serving.environment(), serving.project)
            serving.wait(told)
            kept = serving.books()
        finally:
            serving.close()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if books is not None:
        books.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    if call.json:
        return output.emit_line({"books": kept})
    return _show(kept)


def _say(call: Call, environment: dict[str, str], project: str) -> None:
    if call.json:
        output.emit_line({"environment": environment, "project": project})
    else:
        for name, value in environment.items():
            output.say(f"export {name}={quote(value)}")
        output.say(f'# in ledger.toml: [gcp] project = "{project}"; Ctrl-C ends it and shows the books')


def _show(books: dict[str, Any]) -> None:
    output.facts(
        [
            ("made", ", ".join(f"{count} on {cloud}" for cloud, count in books["created"].items())),
            ("ended", output.count(sum(books["deleted"].values()), "machine")),
            ("still billed", ", ".join(books["live"]) or "none"),
        ]
    )
    rows = [
        (row["machine"], f"{row['from']:.0f} s", "" if row["to"] is None else f"{row['to']:.0f} s")
        for row in books["billing"]
    ]
    if rows:
        output.table(("machine", "billed from", "to"), rows)
