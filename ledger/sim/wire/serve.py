"""The wire door on the real clock: the simulated clouds at loopback addresses, for real clients and other tools."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

from ledger.moments import MICROS
from ledger.sim import record
from ledger.sim.rules import Rules
from ledger.sim.scenario import loads
from ledger.sim.schema import PROJECT, Scenario
from ledger.sim.wire import runpod
from ledger.sim.wire.gate import Gate
from ledger.sim.wire.gce import GceServer
from ledger.sim.wire.ssh import SshServer
from ledger.sim.world import World
from ledger.source import Source

KEY = "a-key-of-the-simulation"
EMPTY = b"scenario: an-empty-world\nexpect: {}\n"


def empty() -> Scenario:
    """A world in which there is nothing yet, and every call goes well."""
    return loads(EMPTY, "empty")


class Serving:
    """Servers over the world of a scenario that begins now. Its machines take SSH from anybody on this computer.

    `ledger_id` is whose marker the scenario's `ours` is.
    """

    def __init__(self, scenario: Scenario, source: Source, ledger_id: str = "") -> None:
        self._began = time.monotonic()
        self._servers: list[Any] = []
        world = World(replace(scenario, start=source.now()), ledger_id)
        self.gate = Gate(world, Rules.of(scenario), self.now)
        try:
            ssh = self._started(SshServer(self.gate))
            world.reach = ssh.address
            for machine in world.machines:
                machine.reached_at = ssh.address(machine.key)
            self.gce = self._started(GceServer(self.gate))
            self.runpod = self._started(runpod.serve(self.gate))
        except BaseException:
            self.close()
            raise
        self._ssh_port = ssh.instances_port

    def _started(self, server: Any) -> Any:
        self._servers.append(server)
        return server

    def now(self) -> int:
        """Microseconds since it began."""
        return round((time.monotonic() - self._began) * MICROS)

    def environment(self) -> dict[str, str]:
        """The variables that lead the ledger's clients here."""
        return {
            "LEDGER_GCE_ENDPOINT": self.gce.url,
            "LEDGER_GCE_SSH_PORT": str(self._ssh_port),
            "RUNPOD_API_BASE_URL": self.runpod.url,
            "LEDGER_RUNPOD_V2_ENDPOINT": self.runpod.url,
            "RUNPOD_API_KEY": KEY,
        }

    @property
    def project(self) -> str:
        """The GCP project that there is."""
        return PROJECT

    def books(self) -> dict[str, Any]:
        """What is there now, what was made and ended, and who was billed when (seconds since it began)."""
        with self.gate.lock:
            world = self.gate.world
            world.advance(self.now())
            told = record.report(world, world.now, 0.0)
        del told["max_stale_seconds"]  # of handle files, which are not here
        return told

    def wait(self, until: threading.Event) -> None:
        """Serve until the event is set."""
        while not until.wait(3600.0):
            pass

    def close(self) -> None:
        """Stop serving."""
        for server in reversed(self._servers):
            server.close()
