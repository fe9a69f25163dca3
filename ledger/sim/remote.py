"""The simulated world from another process: its clouds and its clock over a socket, as a real poller reaches them.

`LEDGER_SIM` names the world: `SOCKET#KEY` or `HOST:PORT#KEY`, as `ledger.sim.host` gives it. The last look at the
clock before a call is taken here, on this side of the wire, as a real adapter takes it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Client, Connection
from multiprocessing.context import AuthenticationError
from typing import Any

from ledger.clouds.values import (
    Absent,
    Accepted,
    CreateSpec,
    Guest,
    LaunchSpec,
    Listing,
    Probe,
    Refused,
    Seen,
    Unknown,
    Unresolved,
)
from ledger.errors import LedgerError
from ledger.events import Event
from ledger.log.store import Hooks as LogHooks
from ledger.projections.files import Hooks as FileHooks

VARIABLE = "LEDGER_SIM"
UNSENT = Refused("absent", "the last moment to send had passed", unsent=True)
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}


@dataclass(frozen=True, slots=True)
class Fault:
    """The process that passes `point` for the `nth` time since the fault was laid is killed or stopped there.

    `point`: before-call, after-look (the last look is taken, nothing is sent yet; create, delete and launch),
    after-call (the reply is not recorded yet), before-append, after-commit, during-projection; "" is any of them.
    `what`: `gcp create` and the like, or the type of an event; "" is any. `does`: kill or stop.
    """

    point: str = ""
    what: str = ""
    nth: int = 1
    does: str = "kill"


def address_of(text: str) -> tuple[str | tuple[str, int], bytes]:
    """The socket and the key of a world. Raises LedgerError."""
    place, _, key = text.rpartition("#")
    host, _, port = place.rpartition(":")
    try:
        return ((host, int(port)) if host and port.isdigit() else place), bytes.fromhex(key)
    except ValueError:
        raise LedgerError(f"{VARIABLE} must be SOCKET#KEY or HOST:PORT#KEY, as the simulated world gave it") from None


class RemoteWorld:
    """A way to a world: one connection a thread. Raises LedgerError where the world does not answer."""

    def __init__(self, address: str) -> None:
        self._address, self._key = address_of(address)
        self._local = threading.local()

    def ask(self, verb: str, *arguments: Any) -> Any:
        """One question and its answer. A process that is to die or to stop here does so."""
        try:
            connection = self._connection()
            connection.send((verb, *arguments))
            kind, value = connection.recv()
        except (OSError, EOFError, AuthenticationError) as error:
            raise LedgerError(f"the simulated world that {VARIABLE} names does not answer ({error})") from None
        if kind == "error":
            raise LedgerError(f"the simulated world: {value}")
        if kind == "signal":
            # To this very thread, so that it goes no further.
            signal.pthread_kill(threading.get_ident(), SIGNALS[value])
        return value

    def passes(self, point: str, *what: str) -> None:
        """Tell the world that this process is at a point where a fault may lie."""
        self.ask("passes", point, what, os.getpid())

    def clouds(self) -> list[RemoteCloud]:
        """The accounts that the world has."""
        return [RemoteCloud(self, backend, account) for backend, account in self.ask("accounts")]

    def _connection(self) -> Connection[Any, Any]:
        connection: Connection[Any, Any] | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = Client(self._address, authkey=self._key)
        return connection


class RemoteSource:
    """The world's clock, and real chance: a `ledger.source.Source`."""

    def __init__(self, world: RemoteWorld) -> None:
        self.world = world

    def now(self) -> int:
        """The world's wall clock, microseconds UTC."""
        return int(self.world.ask("now"))

    def steady(self) -> float:
        """Seconds after the scenario's start."""
        return float(self.world.ask("steady"))

    def random_bytes(self, n: int) -> bytes:
        """`n` bytes of chance."""
        return os.urandom(n)

    def let_pass(self, seconds: float) -> bool:
        """Where the world has an end, so much time passes at once (past the end: SIGTERM); False: it has none."""
        return bool(self.world.ask("sleep", seconds))


class RemoteCloud:
    """One account of the world: a `ledger.clouds.port.Cloud`."""

    def __init__(self, world: RemoteWorld, backend: str, account: str) -> None:
        self.backend = backend
        self.account = account
        self._world = world

    def create(self, spec: CreateSpec, *, send_before: float, timeout: float) -> Accepted | Refused | Unresolved:
        """Ask for one machine in one zone."""
        return self._send("create", spec, send_before=send_before, timeout=timeout)  # type: ignore[no-any-return]

    def describe(self, machine: str, *, timeout: float) -> Seen | Absent | Unknown:
        """Read one machine."""
        return self._call("describe", machine, timeout=timeout)  # type: ignore[no-any-return]

    def list_all(self, *, timeout: float) -> Listing | Unknown:
        """Every machine of the account."""
        return self._call("list_all", timeout=timeout)  # type: ignore[no-any-return]

    def delete(self, machine: str, *, send_before: float, timeout: float) -> Accepted | Absent | Refused | Unresolved:
        """Ask for its end."""
        return self._send("delete", machine, send_before=send_before, timeout=timeout)  # type: ignore[no-any-return]

    def guest(self, machine: str, *, timeout: float) -> Guest | Unknown:
        """The guest attributes of an instance."""
        return self._call("guest", machine, timeout=timeout)  # type: ignore[no-any-return]

    def launch(
        self, machine: str, spec: LaunchSpec, *, send_before: float, timeout: float
    ) -> Accepted | Refused | Unresolved:
        """Start the workload."""
        return self._send(  # type: ignore[no-any-return]
            "launch", machine, spec, send_before=send_before, timeout=timeout
        )

    def probe(self, machine: str, spec: LaunchSpec, *, timeout: float) -> Probe | Unknown:
        """Look for the workload."""
        return self._call("probe", machine, spec, timeout=timeout)  # type: ignore[no-any-return]

    def _send(self, call: str, *arguments: Any, send_before: float, timeout: float) -> Any:
        what = f"{self.backend} {call}"
        self._world.passes("before-call", what)
        if self._world.ask("steady") > send_before:
            return UNSENT
        self._world.passes("after-look", what)
        # Nobody can fence what is on the wire: the world does not look at `send_before` again.
        return self._reach(call, arguments, {"send_before": float("inf"), "timeout": timeout})

    def _call(self, call: str, *arguments: Any, timeout: float) -> Any:
        self._world.passes("before-call", f"{self.backend} {call}")
        return self._reach(call, arguments, {"timeout": timeout})

    def _reach(self, call: str, arguments: Sequence[Any], named: dict[str, float]) -> Any:
        answer = self._world.ask("call", self.backend, call, tuple(arguments), named)
        self._world.passes("after-call", f"{self.backend} {call}")
        return answer


def log_hooks(world: RemoteWorld) -> LogHooks:
    """The points of the log at which a fault may lie."""

    def committed(events: Sequence[Event]) -> None:
        if events:
            world.ask("acknowledged", [event.event_id for event in events])
            world.passes("after-commit", *(event.type for event in events))

    return LogHooks(before_append=lambda: world.passes("before-append"), after_commit=committed)


def file_hooks(world: RemoteWorld) -> FileHooks:
    """The point of the sidecar folder at which a fault may lie."""
    return FileHooks(during_projection=lambda: world.passes("during-projection"))
