"""The ways from the processes of a rehearsal to its simulated clouds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ledger.clouds.host_keys import HostKeys
from ledger.clouds.port import Cloud
from ledger.sim.door import SimCloud
from ledger.sim.rules import Rules
from ledger.sim.schedule import Process, Schedule
from ledger.sim.world import World
from ledger.source import Source


class OpenDoor(Protocol):
    """A door while a rehearsal runs."""

    def reach(
        self, process: Process, source: Source, say: Callable[[str], None]
    ) -> tuple[tuple[Cloud, ...], HostKeys | None]:
        """The clouds as a new process reaches them, and the host keys that its SSH knows (None: there is no SSH)."""

    def close(self) -> None:
        """The rehearsal is over."""


class Door(Protocol):
    """A way to the clouds, before it is opened."""

    def open(self, world: World, rules: Rules, schedule: Schedule) -> OpenDoor:
        """Open it for one rehearsal."""


class InProcess:
    """The clouds as plain objects."""

    def open(self, world: World, rules: Rules, schedule: Schedule) -> OpenDoor:
        """Open it for one rehearsal."""
        return _InProcess(world, rules, schedule)


class _InProcess:
    def __init__(self, world: World, rules: Rules, schedule: Schedule) -> None:
        self._reach = (world, rules, schedule)

    def reach(
        self,
        process: Process,
        source: Source,
        say: Callable[[str], None],  # noqa: ARG002  # the door's
    ) -> tuple[tuple[Cloud, ...], HostKeys | None]:
        return (SimCloud("gcp", *self._reach, process, source), SimCloud("runpod", *self._reach, process, source)), None

    def close(self) -> None:
        pass
