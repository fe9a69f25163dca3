"""Where requests on the wires meet the rules of a scenario, and how virtual time passes over a real socket.

One call of the port may be several requests (a create is an insert, a look at its operation and a look at its
instance; a list is its pages), and a rule is for the call. In a rehearsal the call therefore names itself: the door
(`ledger.sim.wire.door`) sets `CALL` in its own context, the client's transport sends it as the header `X-Sim-Call`,
and the gate counts the first request of that kind under it; the others are answered as the world is.

No one waits in a rehearsal. A server answers at once and leaves with the gate how much time its answer would have
taken (`Reply.takes`) or that it never came (`Reply.lost`, with the connection closed). The transport takes that up,
lets the virtual time pass where the real time would, and raises what the client's own library raises for a time-out:
see `ledger.sim.wire.transport`. A request without the header is of a client on the real clock: it is a call by
itself, and the server really waits (`ledger.sim.wire.server`).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

from ledger.sim.carry import zones
from ledger.sim.rules import Rules, Ruling
from ledger.sim.world import World

HEADER = "X-Sim-Call"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the port under way: what it is (`create`, ...), its own number, and when its caller stops waiting."""

    kind: str
    number: int
    until: int

    @property
    def token(self) -> str:
        """What the header says."""
        return f"{self.kind}/{self.number}"


CALL: ContextVar[Call | None] = ContextVar("call", default=None)


@dataclass(slots=True)
class Gate:
    """The rules and the world for all servers of a rehearsal. `now`: microseconds after the scenario's start."""

    world: World
    rules: Rules
    now: Callable[[], int]
    lock: threading.RLock = field(default_factory=threading.RLock)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _admitted: dict[str, Ruling] = field(default_factory=dict)
    _spent: dict[str, tuple[int, bool]] = field(default_factory=dict)

    # The door's side.

    def begin(self, kind: str, until: int) -> Call:
        """A call of the port begins."""
        return Call(kind, next(self._numbers), until)

    def end(self, call: Call) -> Ruling | None:
        """It is over; the rule that it met, None: no request of it reached the cloud."""
        self._spent.pop(call.token, None)
        return self._admitted.pop(call.token, None)

    # The transport's side.

    def passed(self, call: Call) -> tuple[int, bool]:
        """What the answer to the last request took (microseconds), and whether it was lost; told once."""
        return self._spent.pop(call.token, (0, False))

    # The servers' side.

    def admit(self, cloud: str, kind: str, name: str | None, zone: str | None, token: str | None) -> Ruling | None:
        """Count a request that is a call of `kind`; None: it is a part of another call, and answered as the world is.

        The world is brought to this moment first. Call it under `lock`.
        """
        self.world.advance(self.now())
        if token is not None and (token in self._admitted or token.split("/")[0] != kind):
            return None
        ruling = self.rules.admit(cloud, kind, name, zone, zones(self.world, cloud), self.world.now)
        if token is not None:
            self._admitted[token] = ruling
        return ruling

    def note(self, token: str, takes: int, lost: bool) -> None:
        """How long the answer that is about to be sent would have taken."""
        if takes or lost:
            self._spent[token] = (takes, lost)
