"""`ledger ssh` and `ledger logs`: onto the machine of a run, with the host key that the log has for it.

Where a machine was set up anew, a person pins the key that it shows now.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from shlex import quote
from typing import TYPE_CHECKING, NoReturn

import click

from ledger.cli import output
from ledger.cli.base import Call, Command, pass_call
from ledger.cli.names import known, run_of
from ledger.errors import LedgerError
from ledger.events import Draft
from ledger.projections.ssh_config import Host, options

if TYPE_CHECKING:
    from ledger.state.model import Machine, Run

KEY_SECONDS = 10.0


@click.command(cls=Command, context_settings={"ignore_unknown_options": True})
@click.argument("issue")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--machine", metavar="ID", help="Another machine of the run than the one that its handle names.")
@click.option(
    "--pin",
    is_flag=False,
    flag_value="",
    metavar="[SHA256:…]",
    help="Show the host key that it shows now; with its fingerprint, pin that one in the place of the old.",
)
@pass_call
def ssh(call: Call, issue: str, command: tuple[str, ...], machine: str | None, pin: str | None) -> int:
    """A shell on the machine of a run, or one COMMAND there.

    Only a machine that shows the host key pinned in the log is entered, by a person and by the poller. A pod whose
    container was made anew shows another one: see with --pin which, make sure that it is that pod, and pin it. With
    --json the command line is printed and not run. Exit status: that of ssh; 2 where the machine shows no address,
    or another key than the one to pin.

    \b
    Examples:
      ledger ssh 1417
      ledger ssh 1417 -- nvidia-smi -l 5
      ledger ssh 1417 --pin SHA256:n0X2pE6pGyqMt5oVjHKQ8h2J5uUc0mJ3pVn1mYd8W8k
    """
    run, found = _machine(call, issue, machine)
    if pin is not None:
        return _pin(call, run, found, pin)
    words = _command_line(call, run, found, tty=not command)
    words += [" ".join(command)] if command else []
    if call.json:
        output.emit({"run": run.stream, "machine": found.id, "address": found.ports, "command": words})
        return 0
    return _become(words)


@click.command(cls=Command)
@click.argument("issue")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is printed, until Ctrl-C.")
@click.option("--lines", "-n", type=click.IntRange(min=0), default=200, show_default=True, help="How many of the last.")
@pass_call
def logs(call: Call, issue: str, follow: bool, lines: int) -> int:
    """The last lines that the workload of a run printed, read on its machine over SSH.

    Exit status: 0; that of ssh or tail where the log could not be read; 2 where the machine shows no address.

    \b
    Examples:
      ledger logs 1417
      ledger logs 1417 -f -n 20
      ledger logs 1417 --json | jq -r '.lines[]'
    """
    from ledger.poller.specs import launch_spec

    if call.json and follow:
        raise click.UsageError("--json prints one object: leave out --follow")
    run, found = _machine(call, issue, None)
    path = launch_spec(run, found).log_path
    words = _command_line(call, run, found, tty=False)
    words.append(f"tail -n {lines} {'-F ' if follow else ''}{quote(path)}")
    if not call.json:
        return _become(words)
    told = subprocess.run(words, stdout=subprocess.PIPE, check=False)
    text = told.stdout.decode("utf-8", errors="replace")
    if told.returncode == 0:
        output.emit({"run": run.stream, "machine": found.id, "log_path": path, "lines": text.splitlines()})
    return told.returncode


def _pin(call: Call, run: Run, machine: Machine, wanted: str) -> int:
    """Tell the key that the machine shows, and pin it where its fingerprint is the one that is wanted."""
    from ledger.clouds.shell import Failed, fingerprint, shown_key

    try:
        told = dict(options(Host(machine.id, machine.ports or ""), call.settings().login()))
        shown = shown_key((told["HostName"], int(told["Port"])), KEY_SECONDS)
    except (ValueError, Failed) as error:
        raise LedgerError(f"{machine.id} of {run.stream} shows no host key: {error}") from None
    old, new = run.host_keys.get(machine.id), fingerprint(shown)
    if wanted and wanted != new:
        raise LedgerError(f"{machine.id} of {run.stream} shows {new}, not {wanted}: nothing is pinned")
    if wanted and old != shown:
        with call.writing() as log:
            draft = Draft(
                "HostKeyPinned", {"key": shown}, call.source.now(), "user", attempt=machine.attempt, machine=machine.id
            )
            log.append_facts(run.stream, lambda _: [draft])
            call.project(log, [run.stream])
    value = {
        "run": run.stream,
        "machine": machine.id,
        "shown": new,
        "pinned": new if wanted else None if old is None else fingerprint(old),
        "written": bool(wanted) and old != shown,
    }
    if call.json:
        output.emit(value)
    elif old == shown or wanted:
        output.say(f"{machine.id} of {run.stream}: {new} is pinned{'' if value['written'] else ', as it was'}")
    else:
        before = "none" if old is None else fingerprint(old)
        output.say(f"{machine.id} of {run.stream} shows {new}; pinned is {before}")
        output.say(f"if it was set up anew and this is its key: ledger ssh {run.stream} --pin {new}")
    return 0


def _machine(call: Call, issue: str, wanted: str | None) -> tuple[Run, Machine]:
    """The run and the machine of it that is meant. Raises LedgerError where there is none that SSH could reach."""
    with call.reading() as log:
        run = log.run(known(log, run_of(issue)))
    if wanted is not None:
        if wanted not in run.machines:
            raise LedgerError(f"{run.stream} has no machine {wanted}; it has {', '.join(run.machines) or 'none'}")
        found = run.machines[wanted]
    else:
        here = run.handle_machine()
        if here is None:
            raise LedgerError(f"{run.stream} has no machine; `ledger show {issue}` says why")
        found = here
    if not found.open:
        raise LedgerError(f"{found.id} of {run.stream} is gone; `ledger show {issue}` says since when")
    if not found.ports:
        raise LedgerError(f"{found.id} of {run.stream} shows no address for SSH; `ledger show {issue}` says how it is")
    return run, found


def _command_line(call: Call, run: Run, machine: Machine, *, tty: bool) -> list[str]:
    """The words of the ssh that enters the machine."""
    program = shutil.which("ssh", path=call.env.get("PATH"))
    if program is None:
        raise LedgerError("there is no ssh on the PATH; install OpenSSH's client")
    host = Host(machine.id, machine.ports or "", host_key=run.host_keys.get(machine.id))
    try:
        told = options(host, call.settings().login())
    except ValueError as error:
        raise LedgerError(f"{machine.id} of {run.stream}: {error}") from None
    words = [program, "-t" if tty else "-T"]
    for name, value in told:
        words += ["-o", f"{name}={value}"]
    return [*words, dict(told)["HostName"]]


def _become(words: list[str]) -> NoReturn:
    """Go on as that program. Raises OSError where it cannot be started."""
    os.execv(words[0], words)
