"""`ledger reconcile`: what the clouds have against what the log has. Reads only; changes nothing anywhere."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from ledger.cli import output
from ledger.cli.base import Call, Command, pass_call

if TYPE_CHECKING:
    from ledger.clouds.values import Seen
    from ledger.edges import Edges
    from ledger.poller.observe import Observation
    from ledger.state.model import Machine, Run

SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One machine on which cloud and log differ.

    `kind`: orphan (bears a run's name, no marker), unrecorded (bears our marker, not in the log), clone (our marker
    where no create of ours can have put it), back (the log saw it gone, the cloud has it), gone (the log has it, the
    cloud does not), unknown (the log has it, the cloud could not be read), differs (a fact is another).
    """

    kind: str
    machine: str
    run: str | None
    detail: str
    usd_per_hour: float | None = None


@click.command(cls=Command)
@pass_call
def reconcile(call: Call) -> int:
    """Every machine of every account against the log: orphans, gone machines, differences; foreign ones are counted.

    Reads the clouds and the log, and changes nothing: `ledger poll` does what is due. Exit status: 0 clean; 1 there
    are findings, or an account could not be read whole.

    \b
    Examples:
      ledger reconcile
      ledger reconcile --json | jq '.findings[] | select(.kind == "orphan")'
    """
    with call.edges(write=False) as edges:
        value = compare(edges)
    if call.json:
        output.emit(value)
    else:
        _show(value)
    return 0 if value["clean"] else 1


def compare(edges: Edges) -> dict[str, Any]:
    """The accounts, how well each was read, and the findings."""
    from ledger.clouds.values import Listing
    from ledger.poller.observe import read_details, read_lists

    observation = read_lists(edges, SECONDS, [(cloud.backend, cloud.account) for cloud in edges.clouds])
    runs = _runs(edges)
    read_details(edges, observation, runs, SECONDS)
    found: list[Finding] = []
    ours: set[str] = set()
    for run in runs:
        for machine in run.machines.values():
            ours.add(machine.id)
            found += _held(observation, run, machine)
    found += _not_held(edges, observation, runs, ours)
    named = {finding.machine for finding in found} | ours
    accounts = []
    for (backend, account), answer in observation.lists.items():
        good = isinstance(answer, Listing) and answer.account == account
        listed = answer.machines if isinstance(answer, Listing) and good else ()
        accounts.append(
            {
                "backend": backend,
                "account": account,
                "read": "no" if not good else "whole" if isinstance(answer, Listing) and answer.complete else "partly",
                "why": "" if good else _why(answer, account),
                "machines": len(listed),
                "foreign": sum(seen.machine not in named for seen in listed),
            }
        )
    whole = all(account["read"] == "whole" for account in accounts)
    return {
        "clean": whole and not found,
        "accounts": accounts,
        "findings": [asdict(finding) for finding in sorted(found, key=lambda f: (f.kind, f.machine))],
    }


def _why(answer: Any, account: str) -> str:
    if hasattr(answer, "account"):
        return f"the key reads the account {answer.account}, not {account}"
    return f"{answer.error}: {answer.message}" if answer.message else str(answer.error)


def _runs(edges: Edges) -> list[Run]:
    streams = edges.log.connection.query("SELECT stream FROM runs ORDER BY stream")
    return [edges.log.run(stream) for (stream,) in streams]


def _held(observation: Observation, run: Run, machine: Machine) -> list[Finding]:
    """What a machine of the log is found to be."""
    from ledger.clouds.values import Absent

    seen = observation.seen.get(machine.id)
    if seen is None:
        if not machine.open or not run.driven:
            return []
        listing = observation.good().get((machine.backend, machine.account))
        described = observation.described.get(machine.id)
        # As for the poller: gone is what both a describe and a complete list say.
        if isinstance(described, Absent) and listing is not None and listing.complete:
            return [_finding("gone", run, machine, f"the log has it as {machine.status or 'never seen'}")]
        return [_finding("unknown", run, machine, "its cloud could not be read well enough to tell")]
    if machine.claim == "orphan":
        return [_finding("orphan", run, machine, f"{seen.status} since {output.when(seen.created_at)}", seen)]
    if not machine.open:
        return [_finding("back", run, machine, f"{seen.status}, though seen to be gone", seen)]
    facts = (
        ("status", machine.status, seen.status),
        ("model", machine.model, seen.provisioning_model),
        ("zone", machine.zone, seen.zone),
    )
    told = [f"{name} {old} in the log, {new} there" for name, old, new in facts if new is not None and old != new]
    return [_finding("differs", run, machine, ", ".join(told), seen)] if told else []


def _finding(kind: str, run: Run, machine: Machine, detail: str, seen: Seen | None = None) -> Finding:
    cost = seen.cost_per_hour if seen is not None else machine.cost_per_hour
    return Finding(kind, machine.id, run.stream, detail, cost)


def _not_held(edges: Edges, observation: Observation, runs: list[Run], ours: set[str]) -> list[Finding]:
    """Machines that no run of the log has: marked as ours, or under exactly the name of one of our runs."""
    from ledger.decide.facts import clones

    known = {run.stream: run for run in runs}
    found = []
    for stream, marked in observation.marked.items():
        run = known.get(stream)
        strange = {s.machine for s in clones(run, observation.view(stream), edges.policy)} if run else set()
        for seen in marked:
            if seen.machine not in ours:
                kind = "clone" if seen.machine in strange else "unrecorded"
                detail = f"{seen.name}, {seen.status}, bears the marker {seen.marker}"
                found.append(Finding(kind, seen.machine, stream if run else None, detail, seen.cost_per_hour))
    for stream, named in observation.named.items():
        for seen in named:
            if stream in known and seen.machine not in ours:
                detail = f"{seen.name}, {seen.status}, bears no marker"
                found.append(Finding("orphan", seen.machine, stream, detail, seen.cost_per_hour))
    return found


def _show(value: dict[str, Any]) -> None:
    rows = [
        (f"{a['backend']} {a['account']}", a["read"], a["machines"], a["foreign"], a["why"]) for a in value["accounts"]
    ]
    output.table(("account", "read", "machines", "foreign", ""), rows, right=("machines", "foreign"))
    output.say()
    if value["findings"]:
        output.say(output.count(len(value["findings"]), "finding"), "bad")
        output.table(
            ("what", "machine", "run", "$/h", "how"),
            [
                (f["kind"], f["machine"], f["run"], output.dollars(f["usd_per_hour"]), f["detail"])
                for f in value["findings"]
            ],
            right=("$/h",),
        )
    elif value["clean"]:
        output.say("the clouds have what the log has", "good")
    else:
        output.say("nothing differs in what could be read; not every account could", "bad")
