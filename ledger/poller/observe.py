"""Observe: one list an account for all runs together, then only what the lists cannot tell.

A read that failed or was partial is unknown, never absent. Nothing here is appended; see `ledger.decide.facts`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ledger.clouds.port import Cloud
from ledger.clouds.values import Absent, Guest, Listing, Probe, Seen, Unknown
from ledger.decide.view import View, micros
from ledger.edges import Edges
from ledger.events import parse_marker, run_stream
from ledger.moments import MICROS
from ledger.policy import Policy
from ledger.poller import turns
from ledger.poller.specs import launch_spec
from ledger.state.model import Machine, Run

LIST_SECONDS = 30.0
DETAIL_SECONDS = 20.0
MONTH = 30 * 24 * 3600 * MICROS
_HOUR = 3600 * MICROS
# Statuses in which an instance or a pod may answer a probe.
UP = frozenset({"RUNNING", "PROVISIONING", "STAGING", "REPAIRING"})

_ACCOUNTS = """
SELECT backend, account FROM machines WHERE claim <> 'orphan' AND (gone_at IS NULL OR known_at > :month)
UNION SELECT backend, account FROM intents WHERE requested_at > :month
"""


@dataclass(slots=True, eq=False)
class Observation:
    """What one tick read. `lists` has an entry for every account that was asked, good or not."""

    at: int
    lists: dict[tuple[str, str], Listing | Unknown] = field(default_factory=dict)
    seen: dict[str, Seen] = field(default_factory=dict)
    described: dict[str, Seen | Absent | Unknown] = field(default_factory=dict)
    guests: dict[str, Guest | Unknown] = field(default_factory=dict)
    probes: dict[str, Probe | Unknown] = field(default_factory=dict)
    marked: dict[str, list[Seen]] = field(default_factory=dict)  # stream → machines that bear its marker
    named: dict[str, list[Seen]] = field(default_factory=dict)  # stream → unmarked machines of its names
    skew: int | None = None  # this clock less the clouds', microseconds

    def good(self) -> dict[tuple[str, str], Listing]:
        """The lists that answered, complete or partial, under the account that was asked."""
        return {
            key: answer
            for key, answer in self.lists.items()
            if isinstance(answer, Listing) and answer.account == key[1]
        }

    def view(self, stream: str, **rest: Any) -> View:
        """What a decision on one run may see of it."""
        rest.setdefault("now", self.at)
        return View(
            listings=self.good(),
            seen=self.seen,
            described=self.described,
            guests=self.guests,
            probes=self.probes,
            marked=self.marked.get(stream, ()),
            named=self.named.get(stream, ()),
            **rest,
        )


def accounts(edges: Edges) -> set[tuple[str, str]]:
    """(backend, account) of all that hold or held a machine or intent of ours in the last 30 days."""
    # In whole hours, so that the log is not asked again in each tick.
    month = (edges.source.now() - MONTH) // _HOUR * _HOUR
    return {(str(backend), str(account)) for backend, account in edges.log.asked(_ACCOUNTS, {"month": month})}


def read_lists(edges: Edges, seconds: float, wanted: Iterable[tuple[str, str]]) -> Observation:
    """List the accounts `wanted`."""
    pairs = set(wanted)
    backends = {backend for backend, _ in pairs}
    # One that has not told its account may be any: its list tells.
    clouds = [
        c
        for c in edges.clouds
        if (c.backend, c.account) in pairs or (c.backend, "") in pairs or (c.backend in backends and not c.account)
    ]
    limit = min(LIST_SECONDS, seconds)
    calls = [partial(_list, edges, cloud, limit) for cloud in clouds]
    answers = edges.together(calls, limit) if calls else []
    observation = Observation(at=edges.source.now())
    _learn_accounts(edges)
    ledger_id = edges.log.ledger_id()
    for cloud, told in zip(clouds, answers, strict=True):
        answer, heard_at = told if isinstance(told, tuple) else (told, observation.at)
        accounts = [cloud.account] if cloud.account else [a for b, a in pairs if b == cloud.backend and a]
        for account in accounts:
            observation.lists[(cloud.backend, account)] = answer
        if isinstance(answer, Listing):
            _sort(edges, observation, answer, heard_at, cloud, ledger_id)
    return observation


def _list(edges: Edges, cloud: Cloud, limit: float) -> tuple[Listing | Unknown, int]:
    """What the list says, and this clock when it said so: a slower list beside it makes no clock wrong."""
    answer = cloud.list_all(timeout=limit)
    return answer, edges.source.now()


def _learn_accounts(edges: Edges) -> None:
    """A cloud that could not tell its account when the process began has told it by now: creates bear it."""
    if edges.rent.runpod_account == "":
        told = next((cloud.account for cloud in edges.clouds if cloud.backend == "runpod"), "")
        edges.rent = replace(edges.rent, runpod_account=told)


def _sort(
    edges: Edges, observation: Observation, listing: Listing, heard_at: int, cloud: Cloud, ledger_id: str
) -> None:
    if listing.server_time is not None:
        skew = heard_at - listing.server_time
        if observation.skew is None or abs(skew) > abs(observation.skew):
            observation.skew = skew
    if listing.account != cloud.account:
        return  # a good read of somebody else's account says nothing of ours
    for seen in listing.machines:
        marker = parse_marker(seen.marker)
        if marker is not None and marker.ledger == ledger_id:
            observation.marked.setdefault(marker.stream, []).append(seen)
        elif marker is None:
            stream = stream_of_name(seen.backend, seen.name, edges.policy)
            if stream is not None:
                observation.named.setdefault(stream, []).append(seen)
        observation.seen[seen.machine] = seen


def stream_of_name(backend: str, name: str, policy: Policy) -> str | None:
    """The run that a machine of that exact name would be of, by the policy's patterns."""
    pattern = policy.name_gcp if backend == "gcp" else policy.name_runpod
    expression = re.escape(pattern).replace(r"\{issue\}", r"(?P<issue>\d+)")
    expression = expression.replace(r"\{\-lane\}", r"(?:-(?P<lane>[a-z0-9-]{1,43}))?")
    match = re.fullmatch(expression, name)
    if match is None:
        return None
    return run_stream(int(match["issue"]), match.groupdict().get("lane"))


@dataclass(frozen=True, slots=True)
class _Read:
    unsure: bool
    machine: str
    into: dict[str, Any]
    call: Callable[[], Any]


def read_details(
    edges: Edges, observation: Observation, runs: Sequence[Run], seconds: float, *, remember: bool = False
) -> None:
    """Describe, guest attributes and probes, side by side, the most urgent first, within the budget of a tick.

    `remember`: what had to be left out has its turn in the next ticks.
    """
    limit = min(DETAIL_SECONDS, seconds)
    if limit <= 0:
        return
    _settle(edges, observation, runs, limit)
    reads: list[_Read] = []
    for run in runs:
        if not run.driven or run.unreadable:
            continue
        for machine in run.machines.values():
            reads += _wanted(edges, observation, run, machine, limit)
    budget = max(1, round(edges.policy.detail_reads_per_minute * edges.policy.poll_interval_seconds / 60))
    if len(reads) > budget:
        # What shows nothing new leaves no event behind: only what is kept here says that it was read.
        last = turns.last_read(edges.log)
        reads.sort(key=lambda read: (turns.order(read.unsure, last.get(read.machine, 0), observation.at), read.machine))
    chosen = reads[:budget]
    if remember and len(reads) > budget:
        turns.keep(edges.log, {read.machine for read in chosen}, observation.at)
    answers = edges.together([read.call for read in chosen], limit) if chosen else []
    for read, answer in zip(chosen, answers, strict=True):
        read.into[read.machine] = answer


def _settle(edges: Edges, observation: Observation, runs: Sequence[Run], limit: float) -> None:
    """Describe what a list cannot settle: machines that it lacks, that it should lack, or that are about to be left."""
    asked: list[tuple[str, Callable[[], Any]]] = []
    for run in runs:
        if not run.driven:
            continue
        for machine in run.machines.values():
            cloud = edges.cloud(machine.backend, machine.account)
            shown = observation.seen.get(machine.id)
            if cloud is None or not _unsettled(machine, shown, observation, edges.policy):
                continue
            asked.append((machine.id, partial(cloud.describe, machine.id, timeout=limit)))
    answers = edges.together([call for _, call in asked], limit) if asked else []
    for (machine_id, _), answer in zip(asked, answers, strict=True):
        observation.described[machine_id] = answer
        if isinstance(answer, Seen):
            observation.seen[machine_id] = answer
        elif isinstance(answer, Absent):
            # The list may be older than the describe: one alone is unknown.
            observation.seen.pop(machine_id, None)


def _unsettled(machine: Machine, shown: Seen | None, observation: Observation, policy: Policy) -> bool:
    if shown is None:
        return machine.open
    if not machine.open:
        return True  # a list shows what was seen to be gone: is it really there?
    overdue = machine.queue_since is not None and observation.at - machine.queue_since > micros(
        policy.queue_wait_seconds
    )
    return shown.status == "PENDING" and overdue


def _wanted(edges: Edges, observation: Observation, run: Run, machine: Machine, limit: float) -> list[_Read]:
    seen = observation.seen.get(machine.id)
    cloud = edges.cloud(machine.backend, machine.account)
    if seen is None or cloud is None or not machine.open:
        return []
    reads = []
    unsure = machine.launched_at is None or machine.suspect > 0
    if machine.backend == "gcp" and seen.status != "PENDING" and machine.claim != "orphan":
        call = partial(cloud.guest, machine.id, timeout=limit)
        reads.append(_Read(unsure, machine.id, observation.guests, call))
    if seen.status in UP and machine.ended_at is None and (seen.ports or machine.backend == "gcp" or unsure):
        spec = launch_spec(run, machine, edges.hydra_command)
        reads.append(
            _Read(unsure, machine.id, observation.probes, partial(cloud.probe, machine.id, spec, timeout=limit))
        )
    return reads
