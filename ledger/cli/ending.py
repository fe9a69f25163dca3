"""`ledger cancel`, `finalize`, `end`: a person ends a run or a machine. Each begins at once, and the poller goes on."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import click

from ledger.cli import output
from ledger.cli.base import Call, Command, pass_call
from ledger.cli.names import known, machine_of, run_of
from ledger.cli.output import complain

if TYPE_CHECKING:
    from ledger.log.store import Log
    from ledger.state.model import Run

GATE = 3
CHECK_SECONDS = 600.0


@click.command(cls=Command)
@click.argument("issue")
@pass_call
def cancel(call: Call, issue: str) -> None:
    """Stop a run: its machines are torn down, and it ends as cancelled once they were seen to be gone.

    Twice is fine. Exit status: 0, 2 refused.

    \b
    Example:
      ledger cancel 1417
    """
    from ledger.poller import manual

    stream = run_of(issue)
    with call.edges() as edges:
        known(edges.log, stream)
        run = manual.cancel(edges, stream)
        return _show(call, value_of(run))


@click.command(cls=Command)
@click.argument("issue")
@click.option("--skip-check", is_flag=True, help="Do not ask finalize_check.")
@pass_call
def finalize(call: Call, issue: str, skip_check: bool) -> int:
    """A run is done: tear its machine down and retire its handle.

    The settings' finalize_check is asked first, with the run's facts in its environment (LEDGER_RUN, LEDGER_ISSUE,
    LEDGER_LANE, LEDGER_BACKEND, LEDGER_MACHINE, LEDGER_SIDECAR). Twice is fine. Exit status: 0; 2 refused; 3 the
    check said no, and nothing was torn down.

    \b
    Examples:
      ledger finalize 1417
      ledger finalize 1417 --skip-check
    """
    status, value = finish(call, run_of(issue), skip_check=skip_check)
    _show(call, value)
    return status


def finish(call: Call, stream: str, *, skip_check: bool) -> tuple[int, dict[str, Any]]:
    """Finalize a run, and give the exit status and what came of it."""
    from ledger.poller import manual

    with call.edges() as edges:
        known(edges.log, stream)
        run = edges.log.run(stream)
        kept = any(m.owed and m.teardown is None for m in run.machines.values() if m.claim != "orphan")
        # Asked only while there is something to lose: a second finalize waits for the first one's teardown.
        why = refused(call, edges.log, stream) if run.open and kept and not skip_check else None
        if why is not None:
            return GATE, {**value_of(run), "ok": False, "refused": why}
        return 0, value_of(manual.finalize(edges, stream))


def refused(call: Call, log: Log, stream: str) -> str | None:
    """Why `finalize_check` says no; None: it says yes, or there is none. Its own output goes to stderr."""
    command = call.settings().finalize_check
    if command is None:
        return None
    run, folder = log.run(stream), call.folder()
    facts = {
        "LEDGER_RUN": stream,
        "LEDGER_ISSUE": str(run.issue),
        "LEDGER_LANE": run.lane or "",
        "LEDGER_BACKEND": run.backend or "",
        "LEDGER_MACHINE": run.handle or "",
        "LEDGER_SIDECAR": str(folder.path_of(run)) if folder is not None else "",
    }
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            env={**os.environ, **call.env, **facts},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=CHECK_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"finalize_check took longer than {CHECK_SECONDS:.0f} s; nothing was torn down"
    except OSError as error:
        return f"finalize_check could not be run ({error.strerror}); nothing was torn down"
    lines = done.stdout.decode(errors="replace").splitlines()
    for line in lines:
        complain(f"finalize_check: {line}")
    return None if done.returncode == 0 else f"finalize_check exited {done.returncode}; nothing was torn down"


@click.command(cls=Command)
@click.argument("machine")
@pass_call
def end(call: Call, machine: str) -> None:
    """Tear one machine down by hand. MACHINE is the cloud's own id, as `ledger status` shows it.

    An orphan can be ended so too; a machine that the ledger does not know cannot. Twice is fine. Exit status: 0,
    2 refused.

    \b
    Examples:
      ledger end runpod:8f3k2j1h
      ledger end gcp:my-project/us-central1-a/5513402277619834112
    """
    from ledger.poller import manual

    machine_of(machine)
    with call.edges() as edges:
        run = manual.end(edges, machine)
        gone = not run.machines[machine].open
        return _show(call, {**value_of(run), "machine": machine, "gone": gone})


def value_of(run: Run) -> dict[str, Any]:
    """What came of it: the run's end, or what is still open of it."""
    return {
        "ok": True,
        "run": run.stream,
        "issue": run.issue,
        "closed": not run.open,
        "outcome": run.outcome,
        "reason": run.reason,
        "open_machines": [m.id for m in run.machines.values() if m.owed and m.claim != "orphan"],
        "open_creates": sum(intent.open for intent in run.intents.values()),
    }


def _show(call: Call, value: dict[str, Any]) -> None:
    if call.json:
        return output.emit(value)
    if value.get("refused"):
        return output.say(f"{value['run']}: {value['refused']}", "bad")
    if "machine" in value:
        seen = "was seen to be gone" if value["gone"] else "is asked to end; the poller goes on until it is gone"
        return output.say(f"{value['machine']} {seen}")
    if value["closed"]:
        return output.say(f"{value['run']} is closed: {value['outcome']} ({value['reason']})")
    waits = [output.count(len(value["open_machines"]), "machine"), output.count(value["open_creates"], "create")]
    return output.say(f"{value['run']} is ending: {' and '.join(waits)} still open; the poller goes on")
