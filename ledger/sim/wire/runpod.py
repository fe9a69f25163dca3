"""One loopback server for RunPod: GraphQL under `/graphql`, REST v2 under `/v2`, over the same pods."""

from __future__ import annotations

from collections.abc import Callable

from ledger.sim.wire import runpod_graphql, runpod_rest
from ledger.sim.wire.gate import Gate
from ledger.sim.wire.pods import PodSite, problem
from ledger.sim.wire.server import LoopbackServer, Reply, Request


def serve(
    gate: Gate, port: int = 0, seen: Callable[[Request, Reply], None] | None = None, *, graphql: bool = True
) -> LoopbackServer:
    """A server, until it is closed. `seen` is told each exchange; `graphql=False`: GraphQL is retired (410)."""
    site = PodSite(gate)

    def handle(request: Request) -> Reply:
        if request.path == "/graphql":
            return runpod_graphql.handle(site, request) if graphql else problem(410, "GraphQL is retired")
        if request.path.startswith("/v2/"):
            return runpod_rest.handle(site, request)
        return problem(404, "resource not found")

    return LoopbackServer(gate, handle, port, seen)
