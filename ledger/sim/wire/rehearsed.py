"""The wire door of a rehearsal: servers over its world, and the real adapters and shell before them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ledger.clouds.host_keys import HostKeys
from ledger.clouds.port import Cloud
from ledger.clouds.shell import Shell
from ledger.sim.caller import Caller
from ledger.sim.rules import Rules
from ledger.sim.schedule import Process, Schedule
from ledger.sim.wire import runpod
from ledger.sim.wire.gate import Gate
from ledger.sim.wire.gce import GceServer
from ledger.sim.wire.reach import wired_gcp, wired_runpod
from ledger.sim.wire.shell import VirtualShell
from ledger.sim.wire.ssh import SshServer, client_key
from ledger.sim.world import World
from ledger.source import Source

APIS = ("graphql", "rest_v2")


@dataclass(frozen=True, slots=True)
class Wire:
    """A `ledger.sim.doors.Door`: GCE's REST, one of RunPod's APIs, and SSH, each over real sockets."""

    runpod_api: str = "graphql"

    def open(self, world: World, rules: Rules, schedule: Schedule) -> OpenWire:
        """Start the servers."""
        return OpenWire(self.runpod_api, Gate(world, rules, lambda: schedule.now), schedule)


class OpenWire:
    """The servers of one rehearsal."""

    def __init__(self, runpod_api: str, gate: Gate, schedule: Schedule) -> None:
        self._api = runpod_api
        self._gate = gate
        self._schedule = schedule
        self._folder = tempfile.TemporaryDirectory(prefix="wire-")
        self._key, public = client_key(Path(self._folder.name))
        self._servers: list[Any] = []
        try:
            self._gce = self._started(GceServer(gate))
            self._runpod = self._started(runpod.serve(gate))
            self._ssh = self._started(SshServer(gate, public))
        except BaseException:
            self.close()
            raise

    def _started(self, server: Any) -> Any:
        self._servers.append(server)
        return server

    def reach(
        self, process: Process, source: Source, say: Callable[[str], None]
    ) -> tuple[tuple[Cloud, ...], HostKeys | None]:
        """The real adapters, as a new process reaches the servers."""
        caller = Caller(self._gate.rules, self._schedule, process, source)
        keys = HostKeys()
        plain = Shell("root", self._key, source, keys.pinned, keys.pin, environment={}, say=say)
        shell = VirtualShell(plain, self._ssh, self._gate, caller)
        gcp = wired_gcp(self._gce.url, self._gate, caller, shell)
        return (gcp, wired_runpod(self._api, self._runpod.url, self._gate, caller, shell)), keys

    def close(self) -> None:
        """Stop the servers."""
        for server in reversed(self._servers):
            server.close()
        self._folder.cleanup()
