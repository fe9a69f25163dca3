"""The cloud port's contract, held by both of RunPod's APIs over real sockets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ledger.clouds.port import Cloud
from ledger.clouds.values import Seen
from ledger.sim.wire.server import Reply, Request
from tests.clouds.contract import CloudContract
from tests.clouds.v2_specification import violations
from tests.clouds.wired import wired
from tests.sim.making import Scene


class TestGraphql(CloudContract):
    backend = "runpod"
    over_ssh = False

    def reach(self, scene: Scene) -> Cloud:
        return wired(scene, "graphql", self.closing)


class TestRestV2(CloudContract):
    backend = "runpod"
    over_ssh = False

    def reach(self, scene: Scene) -> Cloud:
        exchanges: list[tuple[Request, Reply]] = []

        def hold() -> None:
            """Every exchange is of the specification, but what a scenario breaks on purpose."""
            broken = any(rule.answer in ("malformed", "partial") or rule.http > 500 for rule in scene.scenario.calls)
            for request, reply in exchanges:
                if request.path != "/graphql":
                    found = violations(request, Reply(cut=True) if broken else reply)
                    assert found == [], (request, reply)

        self.closing.append(hold)
        return wired(scene, "rest_v2", self.closing, lambda *exchange: exchanges.append(exchange))

    def as_told(self, seen: Any) -> Any:
        # It tells a cost of 0 for a pod that is stopped, so what that costs is not known.
        return replace(seen, cost_per_hour=None) if isinstance(seen, Seen) and seen.status == "EXITED" else seen
