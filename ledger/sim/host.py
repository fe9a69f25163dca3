"""The host of a simulated world that outlives the processes which use it: it serves them the clouds and the clock.

Real operating-system processes reach it by `ledger.sim.remote`, and may be killed or stopped at any point. Its clock
stands until it is set; a call that takes time lets that much pass for everybody.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge
from multiprocessing.context import AuthenticationError
from pathlib import Path
from typing import Any

from ledger.moments import MICROS
from ledger.sim import record
from ledger.sim.door import SimCloud
from ledger.sim.remote import Fault
from ledger.sim.rules import Rules
from ledger.sim.schedule import Killed
from ledger.sim.schema import Scenario
from ledger.sim.world import World

CALLS = frozenset({"create", "describe", "list_all", "delete", "guest", "launch", "probe"})


@dataclass(frozen=True, slots=True)
class _Caller:
    name: str = "remote"
    poller: int | None = None


class _Time:
    """The door's timeline on a clock that is set: what takes time moves it."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def now(self) -> int:
        return self._world.now

    def yield_point(self) -> None:
        """The operating system lets others go on."""

    def stand_still(self, micros: int) -> None:
        self._world.advance(self._world.now + micros)

    def park(self, micros: int) -> None:
        self._world.advance(self._world.now + micros)


class _Clock:
    """The world's clock as a `ledger.source.Source` of the door."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> int:
        return self._world.start + self._world.now

    def steady(self) -> float:
        return self._world.now / MICROS

    def random_bytes(self, n: int) -> bytes:
        return os.urandom(n)


@dataclass(slots=True)
class _Laid:
    fault: Fault
    passed: int = 0


@dataclass(slots=True)
class Host:
    """A world and who may reach it. `address` is for `LEDGER_SIM`; `passed` counts the points that were passed.

    `trail` is each point that was passed, in order; `acknowledged` the ids of events whose append returned. `until`
    (seconds after the start): where it is set, time passes as processes sleep, and who would sleep past it is to end.
    """

    scenario: Scenario
    ledger_id: str
    address: str
    world: World = field(init=False)
    rules: Rules = field(init=False)
    until: float | None = None
    passed: Counter[str] = field(default_factory=Counter)
    trail: list[str] = field(default_factory=list)
    acknowledged: set[str] = field(default_factory=set)
    struck: list[tuple[int, str, str]] = field(default_factory=list)  # (pid, point, what it was about)
    _laid: list[_Laid] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _clouds: dict[str, SimCloud] = field(init=False)

    def __post_init__(self) -> None:
        self.world = World(self.scenario, self.ledger_id)
        self.rules = Rules.of(self.scenario)
        reach = (self.world, self.rules, _Time(self.world), _Caller(), _Clock(self.world))
        self._clouds = {backend: SimCloud(backend, *reach) for backend in ("gcp", "runpod")}
        self.world.advance(0)

    def advance(self, seconds: float) -> None:
        """Let so much time pass."""
        with self._lock:
            self.world.advance(self.world.now + round(seconds * MICROS))

    def lay(self, *faults: Fault) -> None:
        """Lay faults, in the place of those that lay there. None: no fault lies any more."""
        with self._lock:
            self._laid = [_Laid(fault) for fault in faults]

    def died(self) -> None:
        """A process of the ledger died: what it had read and not recorded is lost, and a fault was served."""
        with self._lock:
            self.rules.history.ended(_Caller().name, well=False)
            self.rules.history.fault(self.world.now, "a process was killed")

    @contextlib.contextmanager
    def books(self) -> Iterator[World]:
        """The world while nothing moves in it."""
        with self._lock:
            yield self.world

    def report(self) -> dict[str, Any]:
        """Who was billed when: the `world` object of a rehearsal."""
        with self._lock:
            return record.report(self.world, self.world.now, 0.0)

    def answer(self, verb: str, *arguments: Any) -> tuple[str, Any]:
        """One question of a process, answered: ok, error, or a signal that it is to give itself."""
        answers: dict[str, Callable[..., tuple[str, Any]]] = {
            "now": lambda: ("ok", self.world.start + self.world.now),
            "steady": lambda: ("ok", self.world.now / MICROS),
            "accounts": lambda: ("ok", [(cloud.backend, cloud.account) for cloud in self._clouds.values()]),
            "call": self._call,
            "passes": self._passes,
            "advance": self._advance,
            "sleep": self._sleep,
            "acknowledged": self._acknowledged,
            "report": lambda: ("ok", self.report()),
        }
        if verb not in answers:
            return "error", f"there is no question {verb!r}"
        with self._lock:
            try:
                return answers[verb](*arguments)
            except Killed:
                return "signal", "kill"

    def _advance(self, seconds: float) -> tuple[str, Any]:
        self.advance(seconds)
        return "ok", None

    def _sleep(self, seconds: float) -> tuple[str, Any]:
        self.rules.history.ended(_Caller().name, well=True)
        if self.until is None:
            return "ok", False
        if self.world.now + round(seconds * MICROS) > self.until * MICROS:
            return "signal", "term"
        self.advance(seconds)
        return "ok", True

    def _acknowledged(self, ids: Sequence[str]) -> tuple[str, Any]:
        self.acknowledged.update(ids)
        return "ok", None

    def _call(self, backend: str, call: str, arguments: Sequence[Any], named: dict[str, float]) -> tuple[str, Any]:
        if call not in CALLS:
            return "error", f"a cloud has no call {call!r}"
        return "ok", getattr(self._clouds[backend], call)(*arguments, **named)

    def _passes(self, point: str, what: Sequence[str], pid: int) -> tuple[str, Any]:
        self.passed[point] += 1
        self.trail.append(" ".join((point, *what)))
        does = next((laid.fault.does for laid in self._laid if _strikes(laid, point, what)), None)
        dies = point == "after-commit" and sum(self.rules.dies_at_event(type_) for type_ in what)
        dies = dies or (point == "during-projection" and self.rules.dies_at_file())
        if does is None and not dies:
            return "ok", None
        self.struck.append((pid, point, " ".join(what)))
        return "signal", does or "kill"


def _strikes(laid: _Laid, point: str, what: Sequence[str]) -> bool:
    fault = laid.fault
    if fault.point not in ("", point) or (fault.what and fault.what not in what):
        return False
    laid.passed += 1
    return laid.passed == fault.nth


@contextlib.contextmanager
def hosted(scenario: Scenario, ledger_id: str = "") -> Iterator[Host]:
    """A host in threads of this process, on a socket of its own, until the end of the block.

    `ledger_id` is the ledger whose markers the scenario's `ours` bear.
    """
    key = os.urandom(16)
    with tempfile.TemporaryDirectory(prefix="world-") as folder:
        path = str(Path(folder) / "socket")
        host = Host(scenario, ledger_id, f"{path}#{key.hex()}")
        listener = Listener(path, "AF_UNIX", backlog=64)
        over = threading.Event()
        door = threading.Thread(target=_accept, args=(listener, host, key, over), daemon=True)
        door.start()
        try:
            yield host
        finally:
            # Closing a socket does not wake a thread that waits on it, and its number may be another's by then.
            over.set()
            with contextlib.suppress(OSError):
                Client(path).close()
            door.join()
            listener.close()


def _accept(listener: Listener, host: Host, key: bytes, over: threading.Event) -> None:
    while True:
        try:
            connection = listener.accept()
        except OSError:
            continue  # it went away while it waited
        if over.is_set():
            return connection.close()
        threading.Thread(target=_serve, args=(connection, host, key), daemon=True).start()


def _serve(connection: Connection[Any, Any], host: Host, key: bytes) -> None:
    """Answer one thread of one process until it goes away, however it does."""
    with connection, contextlib.suppress(EOFError, OSError, AuthenticationError):
        deliver_challenge(connection, key)
        answer_challenge(connection, key)
        while True:
            connection.send(host.answer(*connection.recv()))


def main() -> int:
    """A host in a process of its own: prints the address, and serves until its standard input ends."""
    from ledger.sim.scenario import ScenarioError, load

    try:
        scenario = load(Path(sys.argv[1]))
    except IndexError:
        print("usage: python -m ledger.sim.host SCENARIO [LEDGER-ID]", file=sys.stderr)
        return 2
    except ScenarioError as error:
        print(error, file=sys.stderr)
        return 2
    with hosted(scenario, *sys.argv[2:3]) as host:
        print(host.address, flush=True)
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
