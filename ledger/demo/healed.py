"""The same incidents with the ledger at work: rehearsals, told from the log and the clouds' own record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger.events import COLUMNS, Event, is_run
from ledger.moments import MICROS
from ledger.sim.doors import Door
from ledger.sim.program import TheProgram
from ledger.sim.rehearse import Outcome, rehearse
from ledger.sim.scenario import load

SCENARIOS = Path(__file__).parent / "scenarios"
# What a reader can follow: intents, outcomes and decisions. Readings in between are left out.
_TOLD = frozenset(
    {
        "RunOpened",
        "Provisioned",
        "ProvisionUnresolved",
        "AbsenceObserved",
        "ReconnectObserved",
        "FailoverDecided",
        "ProvisionRequested",
        "LaunchRequested",
        "LaunchConfirmed",
        "LaunchFailed",
        "Repointed",
        "TeardownRequested",
        "TornDown",
        "RunClosed",
    }
)


@dataclass(frozen=True, slots=True)
class Replay:
    """One incident, the ledger at work. `events` are the told ones; dollars and seconds are the world's own."""

    issue: str
    title: str
    told: str
    events: tuple[Event, ...]
    held: bool
    ever: tuple[str, ...]
    still_open: tuple[str, ...]
    handle: str
    usd: float
    idle_usd: float
    idle_seconds: float

    def to_json(self) -> dict[str, Any]:
        """A JSON object; events by position, stream and type."""
        return {
            "incident": self.issue,
            "title": self.title,
            "told": self.told,
            "events": [
                {"position": e.position, "stream": e.stream, "type": e.type, "occurred_at": e.occurred_at}
                for e in self.events
            ],
            "held": self.held,
            "breaches_ever": list(self.ever),
            "breaches_open": list(self.still_open),
            "handle": self.handle,
            "usd": self.usd,
            "usd_with_nothing_on_it": self.idle_usd,
            "seconds_with_nothing_on_it": self.idle_seconds,
        }


REPLAYS = {
    "#1417": (
        (
            "1417-heals",
            "the same night, with the ledger polling",
            (
                "The intent is in the log before each call, the outcome after it. The handle moves only together with "
                "a confirmed launch."
            ),
        ),
        (
            "1417-never-launches",
            "the same night, and nothing works: the poller is killed after the create, and the job never starts",
            (
                "The next tick finds the pod by the marker that it bears, asks for the launch again and again, and "
                "when the bound has passed ends the pod and says so."
            ),
        ),
    ),
    "#1776": (
        (
            "1776-reconnects",
            "the same evening, with the ledger polling",
            (
                "The create outlasts its cap (exit 75), the launcher is run again (exit 0). What the live machine says "
                "is a fact of its own, so no default can take its place."
            ),
        ),
    ),
}


def replays(issue: str, *, wire: bool = False) -> list[Replay]:
    """The rehearsals of one incident, each run now. `wire`: by the real clients, over real sockets."""
    door: Door | None = None
    if wire:
        from ledger.sim.wire.rehearsed import Wire

        door = Wire()
    return [_replay(issue, door, *row) for row in REPLAYS[issue]]


def _replay(issue: str, door: Door | None, name: str, title: str, told: str) -> Replay:
    outcome = rehearse(load(SCENARIOS / f"{name}.yaml"), 0, TheProgram(), door=door)
    rates = {e.machine: e.data().get("cost_per_hour") or 0.0 for e in _events(outcome) if e.type == "Provisioned"}
    usd = idle_usd = idle = 0.0
    until = outcome.facts.events[-1]["recorded_at"] / MICROS - outcome.facts.events[0]["recorded_at"] / MICROS
    for row in outcome.world_report["billing"]:
        rate = rates.get(row["machine"], 0.0)
        end = until if row["to"] is None else row["to"]
        usd += rate * (end - row["from"]) / 3600
        idle_usd += rate * row["unlaunched_seconds"] / 3600
        idle += row["unlaunched_seconds"]
    return Replay(
        issue=issue,
        title=title,
        told=told,
        events=tuple(e for e in _events(outcome) if is_run(e.stream) and e.type in _TOLD),
        held=outcome.held,
        ever=tuple(sorted(outcome.facts.audit_ever)),
        still_open=tuple(sorted(outcome.facts.audit_open)),
        handle=_handle(outcome),
        usd=usd,
        idle_usd=idle_usd,
        idle_seconds=idle,
    )


def _events(outcome: Outcome) -> list[Event]:
    from ledger.canonical import dumps

    return [Event(**{**{c: row[c] for c in COLUMNS}, "payload": dumps(row["payload"])}) for row in outcome.facts.events]


def _handle(outcome: Outcome) -> str:
    files: list[Mapping[str, Any]] = [f for f in outcome.facts.handles.values() if isinstance(f, dict)]
    if not files:
        return "retired: nothing runs, and nothing is billed"
    file = files[0]
    state = file["extra"].get("ledger", {}).get("state", "")
    return f"{file['backend']}, {file['pod_name']}, {state}"
