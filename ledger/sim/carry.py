"""What a call does to the world and what a list reads of it: the part of a call that is the same at every door.

The world stands at the moment of the call (`World.now`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ledger.sim.machine import Machine, State
from ledger.sim.rules import Rules
from ledger.sim.schema import ACCOUNT_RUNPOD, OTHER_ACCOUNT, PROJECT, CallRule
from ledger.sim.world import World

T = TypeVar("T")
ACCOUNTS = {"gcp": PROJECT, "runpod": ACCOUNT_RUNPOD}


@dataclass(frozen=True, slots=True)
class Shown:
    """What a list shows: the machines as they were at `as_of`, under which account, and which zones it missed."""

    account: str
    as_of: int
    machines: tuple[tuple[Machine, State], ...]
    complete: bool = True
    missing: tuple[str, ...] = ()


def carry_out(world: World, rule: CallRule, effect: Callable[[], T]) -> T | None:
    """What a call does: at its start; once if it answers `ok`, else as its rule's effect says."""
    if rule.answer == "ok":
        return effect()
    if rule.effect.late:

        def late(_: int) -> None:
            effect()

        world.later(world.now + rule.effect.late, late)
        return None
    for _ in range(rule.effect.times):
        effect()
    return None


def delete(world: World, rules: Rules, backend: str, machine: str, rule: CallRule) -> bool:
    """A delete call of the machine with that port id reached the cloud; False: it found nothing."""
    known = world.known(machine)
    label = known.label if known else f"{backend}/{machine.rpartition('/')[2].removeprefix('runpod:')}"
    world.deleted[label] = world.deleted.get(label, 0) + 1
    rules.history.deletes.append((world.now, machine))
    return bool(carry_out(world, rule, lambda: world.delete(machine)))


def zones(world: World, backend: str) -> tuple[str, ...]:
    """The zones of a cloud: the scenario's, then those that machines of it were ever in."""
    if backend != "gcp":
        return ()
    used = [machine.zone for machine in world.machines if machine.zone]
    return tuple(dict.fromkeys((*world.scenario.zones, *used)))


def shown(world: World, backend: str, rule: CallRule) -> Shown | None:
    """What a list of the account shows under `rule`; None: it fails."""
    account, now = ACCOUNTS[backend], world.now
    match rule.answer:
        case "ok":
            return Shown(account, now, tuple(world.existing(backend, now)))
        case "stale":
            return Shown(account, now - rule.lag, tuple(world.existing(backend, now - rule.lag)))
        case "empty":
            return Shown(account, now, ())
        case "other_account":
            return Shown(OTHER_ACCOUNT, now, ())
        case "partial":
            missing = (rule.zone or zones(world, backend)[0],) if backend == "gcp" else ()
            pairs = [(m, state) for m, state in world.existing(backend, now) if m.zone not in (None, *missing)]
            return Shown(account, now, tuple(pairs), False, missing)
    return None
