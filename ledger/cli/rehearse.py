"""`ledger rehearse`: scenario files against the simulated clouds, held to what they expect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ledger.cli import output
from ledger.cli.base import Call, Command, pass_call
from ledger.cli.output import complain
from ledger.errors import LedgerError

if TYPE_CHECKING:
    from ledger.sim.doors import Door
    from ledger.sim.rehearse import Outcome
    from ledger.sim.schema import Scenario

_LONGEST = 300


@click.command(cls=Command)
@click.argument("files", nargs=-1, metavar="FILE...", type=click.Path(path_type=Path))
@click.option("--keep", metavar="DIR", type=click.Path(path_type=Path), help="Leave database, handles and world there.")
@click.option("--seed", type=int, default=0, show_default=True, help="Which interleaving of several pollers.")
@click.option("--wire", is_flag=True, help="Through the real clients, over loopback HTTP and SSH.")
@click.option(
    "--runpod-api", type=click.Choice(["graphql", "rest_v2"]), help="RunPod's API on the wire.  [default: graphql]"
)
@click.option(
    "--random", type=click.IntRange(min=1), metavar="N", help="N generated scenarios of --seed instead of files."
)
@click.option(
    "--server",
    metavar="URL",
    help="With the ledgers on this PostgreSQL server: in a database of their own, made there and dropped again.",
)
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes for --random.")
@pass_call
def rehearse(
    call: Call,
    files: tuple[Path, ...],
    keep: Path | None,
    seed: int,
    wire: bool,
    runpod_api: str | None,
    random: int | None,
    jobs: int,
    server: str | None,
) -> int:
    """Run the real poller and dispatcher against simulated clouds, as a file scripts them, on a virtual clock.

    FILE is a scenario, or a folder of them (its *.yaml). Every line of its `expect` is held, and the universal
    truths. With --wire the ledger speaks through the libraries that its users run, over real sockets: GCE's REST,
    RunPod's GraphQL or REST v2, SSH; the clock stays virtual. With --random N scenarios are made of --seed, held to
    the universal truths alone; one that breaks a truth is shrunk to a small file, in --keep DIR or here. With
    --json one object a scenario, one a line; one of the whole search with --random. Exit status: 0 all held, 1 some
    did not, 2 a file could not be read (the others are run).

    \b
    Examples:
      ledger rehearse tests/scenarios
      ledger rehearse incident.yaml --keep /tmp/look --seed 3
      ledger rehearse incident.yaml --wire --runpod-api rest_v2
      ledger rehearse --random 200 --seed 7 --jobs 2
      ledger rehearse --random 5000 --server postgresql://me@db.example/postgres
    """
    if server is not None:
        _reach(server)
    if random is not None:
        if files or wire:
            raise click.UsageError("--random makes its own scenarios, in process: give neither FILE nor --wire.")
        return _search(call, random, seed, jobs, keep, server)
    if runpod_api is not None and not wire:
        raise click.UsageError("--runpod-api says which API --wire speaks: give --wire too.")
    if not files:
        raise click.UsageError("Missing argument 'FILE...'.")
    scenarios, unread = _load(_expand(files))
    _room(keep, scenarios)
    bad = 0
    door = _door(runpod_api or "graphql") if wire else None
    with output.progress("rehearsing", quiet=call.json) as step:
        for number, scenario in enumerate(scenarios):
            where = keep if keep is None or len(scenarios) == 1 else keep / scenario.name
            outcome = _run(scenario, seed, where, door, server)
            bad += not outcome.held
            if call.json:
                output.emit_line(outcome.to_json())
            else:
                _show(outcome)
            step(number + 1, len(scenarios))
    if not call.json and len(scenarios) > 1:
        output.say(f"{len(scenarios) - bad} of {len(scenarios)} held", "bad" if bad else "good")
    return 2 if unread else 1 if bad else 0


def _reach(server: str) -> None:
    """Raises LedgerError where the server is none or cannot be reached: that is no finding of a rehearsal."""
    from ledger.log.open import connect, on_server

    if not on_server(server):
        raise LedgerError("--server names no PostgreSQL server: write postgresql://USER@HOST/DATABASE")
    connect(server).close()


def _search(call: Call, number: int, seed: int, jobs: int, keep: Path | None, server: str | None) -> int:
    from ledger.sim.search import search
    from ledger.sim.universe import told

    report = search(number, seed, jobs, keep or Path.cwd(), server=server)
    if call.json:
        output.emit_line(report.to_json())
        return 0 if report.held else 1
    for failure in report.failures:
        output.say(f"NOT HELD  {failure}", "bad")
    rows = [
        (kind, word, str(times)) for kind, counted in told(report.counts).items() for word, times in counted.items()
    ]
    output.table(("kind", "what occurred", "times"), rows, right=("times",))
    held = number - len(report.failures)
    rate = number / report.wall_seconds if report.wall_seconds else 0.0
    output.say(f"{held} of {number} held (seed {seed}, {rate:.1f} a second)", "good" if report.held else "bad")
    return 0 if report.held else 1


def _expand(files: tuple[Path, ...]) -> list[Path]:
    found: list[Path] = []
    for file in files:
        if file.is_dir():
            inside = sorted(file.glob("*.yaml"))
            if not inside:
                raise LedgerError(f"{file} holds no *.yaml; name a scenario or a folder of them")
            found += inside
        else:
            found.append(file)
    return list(dict.fromkeys(found))


def _load(files: list[Path]) -> tuple[list[Scenario], int]:
    """The scenarios, and how many files could not be read, each told in one line."""
    from ledger.sim.scenario import ScenarioError, load

    scenarios, unread = [], 0
    for file in files:
        try:
            scenarios.append(load(file))
        except ScenarioError as error:
            complain(str(error))
            unread += 1
    return scenarios, unread


def _room(keep: Path | None, scenarios: list[Scenario]) -> None:
    """Raises LedgerError where what is kept would go over what lies there, or over itself."""
    if keep is None:
        return
    names = [scenario.name for scenario in scenarios]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise LedgerError(f"two files are the scenario {twice!r}; --keep needs each name once")
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise LedgerError(f"{keep} is there and is not empty; name a new folder for --keep")


def _door(api: str) -> Door:
    from ledger.sim.wire.rehearsed import Wire

    return Wire(api)


def _run(scenario: Scenario, seed: int, keep: Path | None, door: Door | None, server: str | None) -> Outcome:
    from ledger.sim.program import TheProgram
    from ledger.sim.rehearse import rehearse as run

    return run(scenario, seed, TheProgram(server=server), keep, door)


def _show(outcome: Outcome) -> None:
    took = f"{output.count(outcome.ticks, 'tick')}, {outcome.wall_seconds:.1f} s"
    if outcome.held:
        return output.say(f"held      {outcome.scenario}  ({took})", "good")
    output.say(f"NOT HELD  {outcome.scenario}  ({took})", "bad")
    for failure in outcome.failures:
        output.say(
            f"  {outcome.world.scenario.file}:{failure.line}: {failure.key}: expected {_short(failure.expected)},"
            f" actual {_short(failure.actual)}"
        )
    for truth in outcome.truths:
        output.say(f"  {truth}")
    return None


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
