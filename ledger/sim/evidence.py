"""What the universal truths are judged by, and what a broken one looks like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ledger.sim.history import History
from ledger.sim.schema import Scenario
from ledger.sim.world import World

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Violation:
    """A truth that did not hold: which (1 to 8), what is wrong in stable words, of whom, from when to when (seconds).

    Two violations are the same one where `key` is equal.
    """

    truth: int
    what: str
    who: str = ""
    since: float = 0.0
    until: float = 0.0

    @property
    def key(self) -> tuple[int, str]:
        """What does not change while a scenario shrinks."""
        return self.truth, self.what

    def to_json(self) -> dict[str, Any]:
        """As a line of `failures` in `rehearse --json`."""
        actual = {"what": self.what, "who": self.who, "from": self.since, "to": self.until}
        return {"key": f"truth {self.truth}", "expected": "holds", "actual": actual}

    def __str__(self) -> str:
        return f"truth {self.truth}: {self.what}: {self.who} ({self.since:.0f} s to {self.until:.0f} s)"


@dataclass(frozen=True, slots=True)
class Proof:
    """What the ledger shows of itself: ids of the events whose append returned, and where a rebuild of its
    projections gives other bytes."""

    acknowledged: frozenset[str] = frozenset()
    rebuilt: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the truths are judged by. `events` are envelopes in the log's order, `end` is when the rehearsal ended."""

    scenario: Scenario
    world: World
    history: History
    events: Sequence[Event]
    end: int
    handles: Mapping[str, Any] = field(default_factory=dict)
    proof: Proof = field(default_factory=Proof)


def same_events(first: Sequence[Event], second: Sequence[Event]) -> tuple[Violation, ...]:
    """Truth 8: a second run of the same scenario with the same seed appends the same events."""
    for place, (one, two) in enumerate(zip(first, second, strict=False)):
        if one != two:
            return (Violation(8, "a second run differs", f"event {place + 1}, {one['type']} and {two['type']}"),)
    if len(first) != len(second):
        return (Violation(8, "a second run differs", f"{len(first)} events, then {len(second)}"),)
    return ()
