"""The cloud port's contract, held by google-cloud-compute against the simulated GCE."""

from __future__ import annotations

import pytest

from ledger.clouds.port import Cloud
from ledger.sim.wire.gate import Gate
from ledger.sim.wire.gce import GceServer
from ledger.sim.wire.reach import wired_gcp
from tests.clouds.contract import CloudContract
from tests.sim.making import Scene

pytest.importorskip("google.cloud.compute_v1")


class TestGceWire(CloudContract):
    backend = "gcp"
    over_ssh = False

    def reach(self, scene: Scene) -> Cloud:
        gate = Gate(scene.world, scene.rules, lambda: scene.schedule.now)
        server = GceServer(gate, page_size=2)
        self.closing.append(server.close)
        return wired_gcp(server.url, gate, scene.caller)
