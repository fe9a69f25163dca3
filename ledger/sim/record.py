"""What the world itself knows of money: who was billed when, and for how long in vain. Never read from the ledger.

Moments are integer microseconds after the scenario's start; durations that leave this module are seconds.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ledger.moments import MICROS
from ledger.sim.machine import Machine
from ledger.sim.world import World, key_of_sidecar, stream_of


def live(world: World, end: int) -> list[str]:
    """`cloud/name` of every machine billed at `end`, one entry a machine, sorted."""
    states = [(machine, machine.as_of(end)) for machine in world.machines]
    return sorted(machine.label for machine, state in states if state is not None and state.bill)


def unlaunched(machine: Machine, end: int) -> int:
    """Microseconds it was billed up to `end` before a first workload lived on it."""
    stop = end if machine.first_live is None else min(machine.first_live, end)
    return sum(max(0, min(until or stop, stop) - since) for since, until in _spans(machine, end))


def max_unlaunched(world: World, end: int) -> float:
    """The longest of `unlaunched` over the machines of ours, in seconds."""
    return max((unlaunched(machine, end) for machine in world.machines if machine.ours), default=0) / MICROS


def max_double(world: World, end: int) -> float:
    """Seconds of the longest span in which two machines of one run were billed at once."""
    runs: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for machine in world.machines:
        run = run_of(world, machine)
        if run is not None:
            for since, until in _spans(machine, end):
                runs[run] += [(since, 1), (end if until is None else until, -1)]
    return max((_longest_overlap(edges) for edges in runs.values()), default=0) / MICROS


def run_of(world: World, machine: Machine) -> str | None:
    """The stream of the run whose own machine it is: by its marker, or named by a legacy file. An orphan has none."""
    if machine.ours and machine.marker:
        return machine.marker.split(".")[1]
    for sidecar in world.scenario.sidecars.values():
        if key_of_sidecar(sidecar, world.scenario.zones[0]) == machine.key:
            return stream_of(world.scenario.policy, machine.cloud, machine.name)
    return None


def billing(world: World, end: int) -> list[dict[str, Any]]:
    """One row a billed span: machine (as the port names it), from, to (None: still billed), unlaunched_seconds."""
    rows = []
    for machine in world.machines:
        waste = unlaunched(machine, end) / MICROS
        rows += [
            {
                "machine": machine.key,
                "from": since / MICROS,
                "to": None if until is None else until / MICROS,
                "unlaunched_seconds": waste,
            }
            for since, until in _spans(machine, end)
        ]
    return rows


def report(world: World, end: int, stale: float) -> dict[str, Any]:
    """The `world` object of `rehearse --json`; `stale` is `max_stale_seconds`, which its caller measures."""
    return {
        "live": live(world, end),
        "created": dict(world.created),
        "deleted": dict(world.deleted),
        "billing": billing(world, end),
        "max_unlaunched_seconds": max_unlaunched(world, end),
        "max_double_seconds": max_double(world, end),
        "max_stale_seconds": stale,
    }


def named_by(sidecar: Any, world: World) -> tuple[str, str] | None:
    """The port id of the machine that a sidecar names, and the state that the ledger gives it there."""
    key = key_of_sidecar(sidecar, world.scenario.zones[0]) if isinstance(sidecar, dict) else None
    block = sidecar["extra"].get("ledger") if key is not None else None
    return (key, str(block.get("state"))) if key is not None and isinstance(block, dict) else None


def naming_the_gone(world: World, sidecars: dict[str, Any]) -> list[tuple[int, str, str, str]]:
    """(now, file, port id, state) of the `sidecars` (file name to content) that name a machine that is gone."""
    named = [(file, named_by(sidecar, world)) for file, sidecar in sidecars.items()]
    known = [(file, it, world.known(it[0])) for file, it in named if it is not None]
    return [(world.now, file, *it) for file, it, machine in known if machine is None or machine.state.gone]


class StaleClock:
    """How long sidecars went on naming machines that were gone, looked at whenever `look` is called."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._named: dict[tuple[str, str], int] = {}
        self.longest = 0

    def look(self, sidecars: dict[str, Any], when: int, count: bool) -> None:
        """Note whom the active `sidecars` (file name to content) name at `when`; `count`: a tick ends here."""
        named: dict[tuple[str, str], int] = {}
        for file, sidecar in sidecars.items():
            key = key_of_sidecar(sidecar, self._world.scenario.zones[0]) if isinstance(sidecar, dict) else None
            if key is None:
                continue
            since = named[file, key] = self._named.get((file, key), when)
            machine = self._world.known(key)
            gone = since if machine is None else machine.gone_at()
            if count and gone is not None and gone <= when:
                # A file that began to name it after it was gone is stale only since then.
                self.longest = max(self.longest, when - max(gone, since))
        self._named = named


def _spans(machine: Machine, end: int) -> list[tuple[int, int | None]]:
    return [(since, None if until is None else min(until, end)) for since, until in machine.billed(end)]


def _longest_overlap(edges: list[tuple[int, int]]) -> int:
    longest = count = 0
    since: int | None = None
    for when, step in sorted(edges):  # at one moment an end comes before a beginning
        count += step
        if count >= 2 and since is None:
            since = when
        elif count < 2 and since is not None:
            longest = max(longest, when - since)
            since = None
    return longest
