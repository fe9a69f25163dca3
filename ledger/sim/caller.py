"""One process of the ledger as it calls the clouds: where it may give way, stand still, be too late, or die."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ledger.sim.rules import Rules
from ledger.sim.schedule import Killed
from ledger.source import Source


class Timeline(Protocol):
    """What a door asks of virtual time: `ledger.sim.schedule.Schedule`, or a clock that a test sets."""

    @property
    def now(self) -> int:
        """Microseconds after the scenario's start."""

    def yield_point(self) -> None:
        """Another process may go on here."""

    def stand_still(self, micros: int) -> None:
        """The whole process stands still so long."""

    def park(self, micros: int) -> None:
        """The call takes so long."""


class Who(Protocol):
    """The process that calls: its name, and its number if it is a poller."""

    @property
    def name(self) -> str: ...

    @property
    def poller(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Caller:
    """A process on virtual time. The way of a call is the same at every door; only what carries it differs."""

    rules: Rules
    schedule: Timeline
    process: Who
    source: Source

    def sends(self, backend: str, call: str, send_before: float | None = None) -> bool:
        """Up to the moment at which the call leaves; False: too late, nothing is sent. Raises Killed."""
        self.schedule.yield_point()
        pause = self.rules.pause(self.process.poller, backend, call)
        if pause:
            self.rules.history.fault(self.schedule.now + pause, f"pause before {backend} {call}")
            self.schedule.stand_still(pause)
        if send_before is not None and self.source.steady() > send_before:
            return False
        if self.rules.dies_before(backend, call):
            raise Killed
        return True

    def spend(self, takes: int, limit: int) -> bool:
        """Let the call's time pass (microseconds); False: longer than its caller waits."""
        limit = max(0, limit)
        if takes:
            self.schedule.park(min(takes, limit))
        return takes <= limit

    def returned(self, backend: str, call: str, number: int) -> None:
        """The call of that number is over and its reply unrecorded. Raises Killed."""
        if self.rules.dies_after(backend, call, number):
            raise Killed
