"""`ledger confirm`, `adopt`, `pause`, `resume`: a person's word, recorded as what it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ledger.cli import output
from ledger.cli.base import Call, Command, pass_call
from ledger.cli.names import known, machine_of, run_of
from ledger.errors import Conflict, LedgerError
from ledger.events import Draft
from ledger.moments import iso
from ledger.source import uuid4

if TYPE_CHECKING:
    from ledger.log.store import Log
    from ledger.state.model import Machine, Run


@click.command(cls=Command)
@click.argument("issue")
@click.option(
    "--pid", type=click.IntRange(1, 2**31 - 1), required=True, metavar="N", help="The workload's process id there."
)
@click.option("--machine", "machine_id", metavar="ID", help="Where it runs; else the machine in hand.")
@pass_call
def confirm(call: Call, issue: str, pid: int, machine_id: str | None) -> None:
    """A launch that was done by hand: the workload of ISSUE runs as process N.

    The machine in hand is that of a failover under way, else the handle's. Where the handle named another
    machine, it names this one from now on. Twice is fine. Exit status: 0, 2 refused (the run is closed, or
    has no open machine).

    \b
    Examples:
      ledger confirm 1417 --pid 4242
      ledger confirm 1417 --pid 4242 --machine runpod:8f3k2j1h
    """
    if machine_id is not None:
        machine_of(machine_id)
    stream = run_of(issue)
    with call.writing() as log:
        known(log, stream)
        machine, written = _confirm(log, stream, pid, machine_id)
        call.project(log, [stream])
    value = {"run": stream, "machine": machine, "pid": pid, "written": written}
    if call.json:
        return output.emit(value)
    return output.say(f"{stream} runs on {machine} as pid {pid}{'' if written else ' (known already)'}")


def _confirm(log: Log, stream: str, pid: int, machine_id: str | None) -> tuple[str, bool]:
    while True:
        run = log.run(stream)
        machine = _to_confirm(run, machine_id)
        moved = run.handle != machine.id
        if machine.launched_at is not None and not moved and machine.pid == pid:
            return machine.id, False
        now = log.source.now()
        which: dict[str, Any] = {"attempt": machine.attempt, "machine": machine.id, "actor": "user"}
        drafts = [Draft("LaunchConfirmed", {"pid": pid, "source": "user"}, now, **which)]
        if moved:
            correlation = run.failover.id if run.failover else None
            to = {"from": run.handle, "to": machine.id}
            drafts.append(Draft("Repointed", to, now, correlation_id=correlation, **which))
        try:
            log.append(stream, run.version, drafts)
        except Conflict:
            continue
        return machine.id, True


def _to_confirm(run: Run, machine_id: str | None) -> Machine:
    """The machine that a confirmation is about. Raises LedgerError saying why there is none."""
    refuse_unfit(run, "confirm a launch")
    in_hand = (run.failover.machine if run.failover else None) or run.handle
    machine = run.machines.get(machine_id or in_hand or "")
    if machine is None or machine.generation != run.generation:
        if machine_id:
            raise LedgerError(
                f"{run.stream} has no machine {machine_id}; `ledger adopt {machine_id} --run {run.stream}`"
            )
        raise LedgerError(f"{run.stream} has no machine yet; `ledger show {run.stream}` says what it waits for")
    why = {
        "gone": f"it was seen to be gone ({iso(machine.gone_at)})" if machine.gone_at is not None else None,
        "orphan": f"it is not this run's; `ledger adopt {machine.id} --run {run.stream}` first",
        "left": f"the run left it ({machine.left_reason}); nothing runs there any more that counts",
        "leaving": f"its teardown was requested ({machine.teardown_reason})",
        "ended": f"its workload has ended ({machine.outcome})",
    }.get(machine.stage)
    if why or not machine.attempt:
        raise LedgerError(f"{run.stream} cannot run on {machine.id}: {why or 'no attempt of the run asked for it'}")
    return machine


def refuse_unfit(run: Run, what: str) -> None:
    """Raises LedgerError where a run is not to be acted on at all."""
    if run.unreadable:
        position, type_ = run.unreadable[0]
        raise LedgerError(
            f"cannot {what} of {run.stream}: event {position} ({type_}) is of a newer version; install that one"
        )
    if not run.open:
        raise LedgerError(f"cannot {what} of {run.stream}: it is closed ({run.outcome}, {run.reason})")
    if not run.driven:
        raise LedgerError(f"cannot {what} of {run.stream}: its backend {run.backend} is not driven by the ledger")


@click.command(cls=Command)
@click.argument("machine")
@click.option("--run", "issue", required=True, metavar="ISSUE", help="The run that takes it: 1417, or 1417-b.")
@click.option("--name", metavar="NAME", help="Its name on its cloud; else as it was seen, else the run's usual one.")
@click.option(
    "--cost-per-hour", type=click.FloatRange(0, 1e6), metavar="USD", help="What it costs; else as it was seen."
)
@pass_call
def adopt(call: Call, machine: str, issue: str, name: str | None, cost_per_hour: float | None) -> None:
    """Take MACHINE over into a run: it is the ledger's from then on, to watch and to end.

    MACHINE is the cloud's own id: gcp:PROJECT/ZONE/NUMERIC-ID or runpod:POD-ID. A run without a machine gets
    it as its handle; otherwise the handle moves to it when its launch is confirmed (`ledger confirm`). Exit
    status: 0 (also where it is this run's already), 2 refused (another run holds it, or the run is closed).

    \b
    Example:
      ledger adopt runpod:8f3k2j1h --run 1417 --cost-per-hour 11.96
    """
    machine_of(machine)
    stream = run_of(issue)
    with call.writing() as log:
        known(log, stream)
        written = _adopt(log, stream, machine, name, cost_per_hour, lambda: _pod_account(call))
        call.project(log, [stream])
        handle = log.run(stream).handle == machine
    if call.json:
        return output.emit({"run": stream, "machine": machine, "written": written, "handle": handle})
    output.say(f"{machine} is {stream}'s{'' if written else ' already'}")
    if not handle:
        output.say(f"the handle moves to it with `ledger confirm {stream} --pid N --machine {machine}`")
    return None


def _adopt(
    log: Log, stream: str, machine: str, name: str | None, cost: float | None, pod_account: Callable[[], str]
) -> bool:
    whose: str | None = None
    while True:
        run = log.run(stream)
        mine = run.machines.get(machine)
        if mine is not None and mine.claim != "orphan" and mine.open:
            return False
        refuse_unfit(run, "adopt a machine into a run")
        if mine is not None and not mine.open:
            raise LedgerError(
                f"{machine} was seen to be gone ({iso(mine.gone_at or 0)}); there is nothing to take over"
            )
        seen = _seen(log, stream, machine)
        if whose is None and not (machine_of(machine)[3] or seen.get("account")):
            whose = pod_account()
        draft = _taken_over(log, run, machine, seen, name, cost, whose or "")
        try:
            # Asked again under the write lock: of two runs that take one machine at once, one is refused.
            log.append(stream, run.version, [draft], only_if=lambda: _seen(log, stream, machine))
        except Conflict:
            continue
        return True


def _seen(log: Log, stream: str, machine: str) -> dict[str, Any]:
    """What was seen of it as an orphan. Raises LedgerError where another run holds it, or it is gone."""
    columns = ("stream", "claim", "name", "account", "zone", "cost_per_hour", "created_at", "status", "gone_at")
    rows = log.connection.query(
        f"SELECT {', '.join(columns)} FROM machines WHERE machine = :machine ORDER BY known_pos", {"machine": machine}
    )
    seen: dict[str, Any] = {}
    for row in rows:
        found = dict(zip(columns, row, strict=True))
        if found["claim"] != "orphan" and found["stream"] != stream:
            state = "holds" if found["gone_at"] is None else "held"
            raise LedgerError(f"{found['stream']} {state} {machine}; one machine is one run's")
        seen = found
    if seen and seen["gone_at"] is not None:
        raise LedgerError(f"{machine} was seen to be gone ({iso(seen['gone_at'])}); there is nothing to take over")
    return seen


def _taken_over(
    log: Log, run: Run, machine: str, seen: dict[str, Any], name: str | None, cost: float | None, pod_account: str
) -> Draft:
    _, backend, zone, account = machine_of(machine)
    usual = log.policy().name(backend, run.issue, run.lane)
    payload = {
        "backend": backend,
        "name": name or seen.get("name") or usual,
        "zone": zone,
        "account": account or seen.get("account") or pod_account,
        "created_at": seen.get("created_at"),
        "cost_per_hour": cost if cost is not None else seen.get("cost_per_hour"),
        "adopted": True,
        "matched_by": "user",
        "status": seen.get("status"),
    }
    attempt = uuid4(log.source)
    return Draft("Provisioned", payload, log.source.now(), actor="user", attempt=attempt, machine=machine)


def _pod_account(call: Call) -> str:
    """The account of the key, as RunPod tells it; "" (any account of RunPod) where it cannot be told."""
    from ledger.clouds.configured import account_of

    return account_of("runpod", call.settings(), call.source, call.env)


@click.command(cls=Command)
@pass_call
def pause(call: Call) -> None:
    """The brake: from now on nothing is created and nothing torn down, until `ledger resume`.

    Observing goes on, and so does the audit. Twice is fine.

    \b
    Example:
      ledger pause
    """
    _brake(call, paused=True)


@click.command(cls=Command)
@pass_call
def resume(call: Call) -> None:
    """Let go of the brake that `ledger pause` pulled. Twice is fine.

    \b
    Example:
      ledger resume
    """
    _brake(call, paused=False)


def _brake(call: Call, *, paused: bool) -> None:
    from ledger.recording import change_policy

    with call.writing() as log:
        written = bool(change_policy(log, lambda policy: dataclasses.replace(policy, paused=paused)))
    if call.json:
        return output.emit({"paused": paused, "written": written})
    state = "paused: no create and no teardown until `ledger resume`" if paused else "not paused"
    return output.say(f"{state}{'' if written else ' (it was so already)'}")
