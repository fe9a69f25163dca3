"""Virtual time, and the processes that live in it. One runs at a time; it gives way when a call takes time, when
it stands still, and, with several pollers, at each call and each append.

Each process is a greenlet, so that the ledger's own code runs in it unchanged. `now` is integer microseconds after
the scenario's start.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]  # its stubs are a package of their own

from ledger.clouds.values import Unknown
from ledger.moments import MICROS
from ledger.sim.schema import ClockJump

T = TypeVar("T")
MOST_AFTER = 3600 * MICROS  # how long what is under way at the end may still go on

IMPORT, COMMAND, TICK = 0, 1, 2


class Killed(BaseException):
    """The process dies here. No part of the ledger may catch it, so it is no Exception."""


@dataclass(eq=False, slots=True)
class Process:
    """A process of the ledger. `rank`: who goes first at one second; `poller`: its number, None for a command.

    `frozen`: until when all of it stands still.
    """

    name: str
    rank: int
    poller: int | None = None
    frozen: int = 0
    tasks: list[Task] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Task:
    """One line of control in a process: its main one, or a call of `together`."""

    process: Process
    job: Callable[[], Any]
    then: Callable[[Task], None]
    side: bool = False
    glet: greenlet | None = None
    dead: bool = False
    finished: bool = False
    wait: int = 0
    result: Any = None
    error: BaseException | None = None


class Schedule:
    """Runs processes on virtual time. `advance` is told each new moment before any process sees it."""

    def __init__(self, seed: int, interleave: bool, advance: Callable[[int], None]) -> None:
        self.now = 0
        self.seed = seed
        self.closing = False
        self._chance = random.Random(f"order/{seed}")
        self._interleave = interleave
        self._advance = advance
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._ready: list[Task] = []
        self._alive: list[Task] = []
        self._hub: greenlet | None = None
        self._current: Task | None = None
        self.settled: Callable[[], None] = lambda: None

    def at(self, when: int, action: Callable[[], None]) -> None:
        """Let `action` happen outside any process at `when`; what is asked for first happens first."""
        self._sequence += 1
        heapq.heappush(self._timers, (max(when, self.now), self._sequence, action))

    def spawn(self, process: Process, job: Callable[[], Any], then: Callable[[Task], None], side: bool = False) -> Task:
        """Make `job` runnable in `process` now; `then` is called with the task when it has ended, however it did.

        `side`: what it raises is its starter's to see; else `run` raises it.
        """
        task = Task(process, job, then, side)
        process.tasks.append(task)
        self._alive.append(task)
        self._ready.append(task)
        return task

    def run(self, until: int) -> None:
        """Run everything up to and including `until`, then what is under way to its end (but no one who stands still).

        Raises what a process raised, `Killed` aside.
        """
        self._hub = getcurrent()
        try:
            self._run(until)
            self.closing = True
            while self._timers and any(task.process.frozen <= self.now for task in self._alive):
                if self._timers[0][0] > until + MOST_AFTER:
                    break
                self._run(self._timers[0][0])
        finally:
            self.closing = True
            for task in list(self._alive):
                self._kill(task)

    def _run(self, until: int) -> None:
        self._advance(self.now)
        while True:
            while self._timers and self._timers[0][0] <= self.now:
                heapq.heappop(self._timers)[2]()
            if self._ready:
                self._switch_to(self._pick())
                continue
            self.settled()
            if not self._timers or self._timers[0][0] > until:
                break
            self.now = self._timers[0][0]
            self._advance(self.now)
        if until > self.now and not self.closing:
            self.now = until
            self._advance(until)
            self.settled()

    def _pick(self) -> Task:
        ready = self._ready
        if len(ready) == 1:
            return ready.pop()
        processes: list[Process] = []  # of the first rank, in order
        for task in ready:
            process = task.process
            if not processes or process.rank < processes[0].rank:
                processes = [process]
            elif process.rank == processes[0].rank and process not in processes:
                processes.append(process)
        chosen = self._chance.choice(processes) if self._interleave and len(processes) > 1 else processes[0]
        place = next(place for place, task in enumerate(ready) if task.process is chosen)
        return ready.pop(place)

    def _switch_to(self, task: Task) -> None:
        if task.glet is None:
            task.glet = greenlet(lambda: self._body(task), parent=self._hub)
        self._current = task
        task.glet.switch()
        self._current = None
        if task.error is not None and not task.side and not isinstance(task.error, Killed):
            raise task.error

    def _body(self, task: Task) -> None:
        try:
            task.result = task.job()
        except BaseException as error:
            task.error = error
        self._end(task)

    def _end(self, task: Task) -> None:
        if task.finished:
            return
        task.finished = True
        task.process.tasks.remove(task)
        self._alive.remove(task)
        if task in self._ready:
            self._ready.remove(task)
        task.then(task)

    def _kill(self, task: Task) -> None:
        if task.finished or task.dead:
            return
        task.dead = True
        if task.glet is None:
            task.error = Killed()
            self._end(task)
            return
        before = self._current
        task.glet.parent = getcurrent()
        self._current = task
        task.glet.throw(Killed)
        self._current = before

    def waiting(self) -> list[Task]:
        """The tasks that have begun and not ended."""
        return list(self._alive)

    # What a process calls.

    def park(self, micros: int) -> None:
        """Let the current task wait so long in virtual time."""
        task = self._me()
        wait = self._waits(task)
        self.at(self.now + micros, lambda: self._wake(task, wait))
        self._give_way(task)

    def stand_still(self, micros: int) -> None:
        """Let the whole current process stand still so long: what it waits for passes without it."""
        task = self._me()
        task.process.frozen = self.now + micros
        wait = self._waits(task)
        self.at(self.now + micros, lambda: self._wake(task, wait))
        for other in [other for other in self._ready if other.process is task.process]:
            self._ready.remove(other)
            self._wake(other, other.wait)
        self._give_way(task)

    def yield_point(self) -> None:
        """Let another process go on here, where there are several pollers and the seed says so."""
        task = self._current
        if task is None or not self._interleave:
            return
        rank = task.process.rank
        if any(other.process is not task.process and other.process.rank == rank for other in self._ready):
            self._ready.append(task)
            self._give_way(task)

    def together(self, calls: Sequence[Callable[[], T]], seconds: float) -> list[T | Unknown]:
        """Run calls side by side; one that has not returned after `seconds` is `Unknown("timeout")`.

        Its effects stay, its answer is lost. Raises what a call raised.
        """
        if not calls:
            return []
        me = self._me()
        wait = self._waits(me)
        left = [len(calls)]

        def ended(task: Task) -> None:
            left[0] -= 1
            if left[0] == 0 or task.error is not None:
                self._wake(me, wait)

        def late() -> None:
            # Once more round, so that a call which returns at this very moment has returned in time.
            self.at(self.now, lambda: self._wake(me, wait))

        children = [self.spawn(me.process, call, ended, side=True) for call in calls]
        self.at(self.now + round(seconds * MICROS), late)
        try:
            self._give_way(me)
        finally:
            self._waits(me)
            for child in children:
                self._kill(child)
        for child in children:
            if child.error is not None and not child.dead:
                raise child.error
        return [Unknown("timeout") if child.dead else child.result for child in children]

    def _me(self) -> Task:
        if self._current is None:
            raise RuntimeError("only a process of the rehearsal can wait in virtual time")
        return self._current

    def _waits(self, task: Task) -> int:
        """A new wait of a task; what would end an older one of it no longer wakes it."""
        task.wait += 1
        return task.wait

    def _wake(self, task: Task, wait: int) -> None:
        if task.wait != wait or task.finished or task in self._ready:
            return
        if task.process.frozen > self.now:
            self.at(task.process.frozen, lambda: self._wake(task, wait))
        else:
            self._ready.append(task)

    def _give_way(self, task: Task) -> None:
        if task.dead or self._hub is None:
            raise Killed
        self._hub.switch()
        if task.dead:
            raise Killed


class VirtualSource:
    """The source of one process: virtual time, its poller's clock jumps, and chance of its own from the seed."""

    def __init__(self, schedule: Schedule, start: int, name: str, jumps: Sequence[ClockJump] = ()) -> None:
        self._schedule = schedule
        self._start = start
        self._jumps = jumps
        self._chance = random.Random(f"chance/{schedule.seed}/{name}")

    def now(self) -> int:
        """Wall clock, microseconds UTC."""
        when = self._schedule.now
        jumped = sum(jump.by for jump in self._jumps if jump.at <= when) if self._jumps else 0
        return self._start + when + jumped

    def steady(self) -> float:
        """Seconds after the scenario's start."""
        return self._schedule.now / MICROS

    def random_bytes(self, n: int) -> bytes:
        """`n` bytes of chance."""
        return self._chance.randbytes(n)
