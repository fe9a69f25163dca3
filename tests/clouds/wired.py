"""RunPod's real adapters against the simulated world, as a process of a rehearsal reaches them."""

from __future__ import annotations

from collections.abc import Callable

import requests

from ledger.clouds.pods import Key
from ledger.clouds.port import Cloud
from ledger.clouds.runpod import RunPodCloud
from ledger.clouds.runpod_v2 import RunPodV2Cloud
from ledger.sim.caller import Caller
from ledger.sim.schema import ACCOUNT_RUNPOD
from ledger.sim.wire import runpod as server
from ledger.sim.wire.door import WiredCloud
from ledger.sim.wire.gate import Gate
from ledger.sim.wire.httpx_transport import VirtualHttpxTransport
from ledger.sim.wire.server import Reply, Request
from ledger.sim.wire.transport import VirtualTransport
from tests.sim.making import Scene

KEY = Key("a-key-of-nobody")
Seen = Callable[[Request, Reply], None]


def wired(scene: Scene, api: str, closing: list[Callable[[], None]], seen: Seen | None = None) -> Cloud:
    """The RunPod cloud of `scene` over the wire of `api`: `graphql` or `rest_v2`."""
    gate = Gate(scene.world, scene.rules, lambda: scene.schedule.now)
    caller = Caller(scene.rules, scene.schedule, scene.process, scene.source)
    served = server.serve(gate, seen=seen)
    closing.append(served.close)
    inner: RunPodCloud | RunPodV2Cloud
    if api == "graphql":
        session = requests.Session()
        session.trust_env = False
        session.mount("http://", VirtualTransport(gate, caller))
        closing.append(session.close)
        inner = RunPodCloud(KEY, scene.source, url=served.url, account=ACCOUNT_RUNPOD, recheck=True, session=session)
    else:
        inner = RunPodV2Cloud(
            KEY,
            scene.source,
            url=served.url,
            graphql_url=served.url,
            account=ACCOUNT_RUNPOD,
            recheck=True,
            transport=VirtualHttpxTransport(gate, caller),
        )
    return WiredCloud(inner, gate, caller)
