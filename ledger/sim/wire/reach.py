"""How a process of a rehearsal reaches the wires: a real adapter whose time is the scenario's."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ledger.clouds import gcp_client
from ledger.clouds.gcp import GcpCloud
from ledger.moments import MICROS
from ledger.sim.caller import Caller
from ledger.sim.wire.door import WiredCloud
from ledger.sim.wire.gate import Gate
from ledger.sim.wire.gce_json import SimSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from ledger.clouds.gcp_settings import Shell

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
