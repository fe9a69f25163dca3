"""The cloud port's contract, held by the in-process door."""

from __future__ import annotations

from ledger.clouds.port import Cloud
from tests.clouds.contract import CloudContract
from tests.sim.making import Scene


class TestGcp(CloudContract):
    backend = "gcp"

    def reach(self, scene: Scene) -> Cloud:
        return scene.gcp


class TestRunPod(CloudContract):
    backend = "runpod"

    def reach(self, scene: Scene) -> Cloud:
        return scene.runpod
