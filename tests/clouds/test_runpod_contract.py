"""The cloud port's contract, held by both of RunPod's APIs over real sockets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ledger.clouds.port import Cloud
from ledger.clouds.values import Seen
from ledger.sim.wire import runpod
from ledger.sim.wire.gate import Gate
from ledger.sim.wire.reach import wired_runpod
from ledger.sim.wire.server import Reply, Request
from tests.clouds.contract import CloudContract
from tests.clouds.v2_specification import violations
from tests.sim.making import Scene


def wired(contract: CloudContract, scene: Scene, api: str, seen: Callable[[Request, Reply], None] | None) -> Cloud:
    gate = Gate(scene.world, scene.rules, lambda: scene.schedule.now)
    server = runpod.serve(gate, seen=seen)
    contract.closing.append(server.close)
    return wired_runpod(api, server.url, gate, scene.caller)


class TestGraphql(CloudContract):
    backend = "runpod"
    over_ssh = False

    def reach(self, scene: Scene) -> Cloud:
        return wired(self, scene, "graphql", None)


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
        return wired(self, scene, "rest_v2", lambda *exchange: exchanges.append(exchange))

    def as_told(self, seen: Any) -> Any:
        # It tells a cost of 0 for a pod that is stopped, so what that costs is not known.
        return replace(seen, cost_per_hour=None) if isinstance(seen, Seen) and seen.status == "EXITED" else seen
