"""How a process of a rehearsal reaches the wires: a real adapter whose time is the scenario's."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ledger.clouds import gcp_client
from ledger.clouds.gcp import GcpCloud
from ledger.clouds.pods import Key
from ledger.clouds.runpod import RunPodCloud
from ledger.clouds.runpod_v2 import RunPodV2Cloud
from ledger.moments import MICROS
from ledger.sim.caller import Caller
from ledger.sim.schema import ACCOUNT_RUNPOD
from ledger.sim.wire.door import WiredCloud
from ledger.sim.wire.gate import Gate
from ledger.sim.wire.gce_json import SimSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from ledger.clouds.gcp_settings import Shell
    from ledger.clouds.pods import Shell as PodShell

    T = TypeVar("T")


def at_once(seconds: float, call: Callable[[], T]) -> T:  # noqa: ARG001  # a process of a rehearsal is one thread
    """A call without a limit on the real clock: the transport bounds it on the virtual one."""
    return call()


def wired_gcp(url: str, gate: Gate, caller: Caller, shell: Shell | None = None) -> WiredCloud:
    """GCE at `url` as that process reaches it."""
    from ledger.sim.wire.transport import VirtualTransport

    inner = GcpCloud(
        SimSettings(zones=gate.world.scenario.zones, endpoint=url),
        caller.source,
        shell,
        connect=partial(gcp_client.connect, transport=VirtualTransport(gate, caller)),
        limit=at_once,
        sleep=lambda seconds: caller.schedule.park(round(seconds * MICROS)),
    )
    return WiredCloud(inner, gate, caller)


def wired_runpod(api: str, url: str, gate: Gate, caller: Caller, shell: PodShell | None = None) -> WiredCloud:
    """RunPod at `url`, by `graphql` or `rest_v2`, as that process reaches it."""
    key = Key("a-key-of-the-simulation")
    if api == "graphql":
        import requests

        from ledger.sim.wire.transport import VirtualTransport

        session = requests.Session()
        session.trust_env = False
        session.headers["Connection"] = "close"  # the process may die without a word, and leave none open
        session.mount("http://", VirtualTransport(gate, caller))
        inner: RunPodCloud | RunPodV2Cloud = RunPodCloud(
            key, caller.source, url=url, account=ACCOUNT_RUNPOD, shell=shell, recheck=True, session=session
        )
    else:
        from ledger.sim.wire.httpx_transport import VirtualHttpxTransport

        inner = RunPodV2Cloud(
            key,
            caller.source,
            url=url,
            graphql_url=url,
            account=ACCOUNT_RUNPOD,
            shell=shell,
            recheck=True,
            transport=VirtualHttpxTransport(gate, caller),
        )
    return WiredCloud(inner, gate, caller)
