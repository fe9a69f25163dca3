"""A rehearsal: the ledger's own program against the simulated world, from the first dispatch to the verdict.

The ledger comes in as a `Program`; nothing of it is imported here, so that the rehearsal judges it from outside.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ledger.moments import MICROS
from ledger.sim import record
from ledger.sim.doors import Door, InProcess
from ledger.sim.history import History
from ledger.sim.judge import Facts, Failure, judge
from ledger.sim.rules import Rules
from ledger.sim.schedule import COMMAND, IMPORT, TICK, Killed, Process, Schedule, Task, VirtualSource
from ledger.sim.schema import Dispatch, Scenario
from ledger.sim.stage import Bench, Ledger, Program
from ledger.sim.truths import Evidence, Violation, violations
from ledger.sim.world import World

__all__ = ["Bench", "Ledger", "Outcome", "Program", "events_of", "rehearse"]

E = TypeVar("E")
_PLAIN = tempfile.gettempdir()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a rehearsal. `said` is (seconds, process, text); `failures` and `truths` empty: all held."""

    scenario: str
    seed: int
    failures: tuple[Failure, ...]
    facts: Facts
    world: World
    world_report: dict[str, Any]
    ticks: int
    said: tuple[tuple[float, str, str], ...]
    wall_seconds: float
    history: History
    truths: tuple[Violation, ...] = ()
    folder: Path | None = None

    @property
    def held(self) -> bool:
        """Whether every line of `expect` held, and every universal truth."""
        return not self.failures and not self.truths

    def to_json(self) -> dict[str, Any]:
        """The object of `rehearse --json`."""
        names = [f"{stream}-handle.json" for stream in self.facts.runs]
        return {
            "scenario": self.scenario,
            "held": self.held,
            "failures": [f.to_json() for f in self.failures] + [t.to_json() for t in self.truths],
            "events": [dict(event) for event in self.facts.events],
            "handles": {
                name.removesuffix("-handle.json"): self.facts.handles.get(name)
                for name in dict.fromkeys((*names, *self.facts.handles))
            },
            "world": self.world_report,
            "audit": {"open": sorted(self.facts.audit_open), "ever": sorted(self.facts.audit_ever)},
            "ticks": self.ticks,
            "wall_seconds": self.wall_seconds,
        }


def rehearse(
    scenario: Scenario, seed: int, program: Program[E], keep: Path | None = None, door: Door | None = None
) -> Outcome:
    """Run `scenario` with that seed and judge it. `keep`: leave database, sidecars and `world.json` in that folder.

    `door`: the way to the clouds; None: in process.

    The verdict is of the last tick: of `until`, or of the moment at which what was under way then has ended.
    Raises what the program raises; a scenario that does not hold is an Outcome, not an error.
    """
    began = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="rehearse-", dir=_scratch())) if keep is None else keep
    folder.mkdir(parents=True, exist_ok=True)
    try:
        stage = _Stage(scenario, seed, program, folder, door or InProcess())
        try:
            stage.run()
            facts = stage.facts()
            truths = stage.truths(facts)
        finally:
            stage.opened.close()
            stage.ledger.close()
        told = record.report(stage.world, stage.schedule.now, facts.max_stale_seconds)
        if keep is not None:
            (folder / "world.json").write_text(json.dumps(told, indent=2, sort_keys=True), encoding="utf-8")
        return Outcome(
            scenario=scenario.name,
            seed=seed,
            failures=tuple(judge(scenario.expect, facts)),
            facts=facts,
            world=stage.world,
            world_report=told,
            ticks=stage.ticks,
            said=tuple(stage.said),
            wall_seconds=time.perf_counter() - began,
            history=stage.history,
            truths=truths,
            folder=keep,
        )
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def events_of(scenario: Scenario, seed: int, program: Program[E]) -> tuple[Mapping[str, Any], ...]:
    """The events of the rehearsal that `rehearse` judges, which looks at nothing on the way: for truth 8."""
    with tempfile.TemporaryDirectory(prefix="rehearse-", dir=_scratch(), ignore_cleanup_errors=True) as folder:
        stage = _Stage(scenario, seed, program, Path(folder), InProcess(), judged=False)
        try:
            stage.run()
            return tuple(stage.ledger.events())
        finally:
            stage.opened.close()
            stage.ledger.close()


def _scratch() -> str | None:
    """A folder in memory, where the machine has one: what is thrown away need not reach a disk."""
    memory = "/dev/shm"
    # Not where another folder was named for what is temporary.
    return memory if tempfile.gettempdir() == _PLAIN and os.access(memory, os.W_OK) else None


class _Hooks:
    def __init__(self, rules: Rules, schedule: Schedule) -> None:
        self._rules = rules
        self._schedule = schedule

    def before_append(self) -> None:
        self._schedule.yield_point()

    def after_event(self, *types: str) -> None:
        # All of a commit are counted, whichever of them is deadly.
        if sum(self._rules.dies_at_event(event_type) for event_type in types):
            raise Killed

    def during_projection(self) -> None:
        if self._rules.dies_at_file():
            raise Killed


@dataclass(eq=False, slots=True)
class _Poller(Generic[E]):
    number: int
    process: Process
    edges: E | None = None
    lives: int = 0
    busy: bool = False
    due: bool = False


class _Stage(Generic[E]):
    """One rehearsal while it runs."""

    def __init__(
        self, scenario: Scenario, seed: int, program: Program[E], folder: Path, door: Door, *, judged: bool = True
    ) -> None:
        self.scenario = scenario
        self.judged = judged
        self.said: list[tuple[float, str, str]] = []
        self.ticks = 0
        self.exits: dict[int, int | None] = {}
        self.lines: dict[str, Mapping[str, Any]] = {}
        self._ended = False
        self._died = False
        self._texts: dict[str, tuple[str, Any]] = {}  # file name → its text at the last look, and what that says
        self.schedule = Schedule(seed, scenario.poll.pollers > 1, self._advance)
        self.rules = Rules.of(scenario)
        self.history = self.rules.history
        setup = VirtualSource(self.schedule, scenario.start, "setup")
        self.ledger = program.open(folder, setup, scenario)
        self.world = World(scenario, self.ledger.ledger_id)
        self.stale = record.StaleClock(self.world)
        self.opened = door.open(self.world, self.rules, self.schedule)

    def run(self) -> None:
        """From the start to the end of what was under way at `until`."""
        if self.judged:
            self.schedule.settled = self._settled
        files = self._write_sidecars()
        self._look_for_stale(count=False)
        if files:
            self._command(0, IMPORT, "import", lambda edges: self.ledger.import_sidecars(edges, files))
        for place, row in sorted(enumerate(self.scenario.dispatches), key=lambda pair: pair[1].at):
            self._dispatch(place, row)
        for kind, rows, job in (
            ("cancel", self.scenario.cancels, self.ledger.cancel),
            ("finalize", self.scenario.finalizes, self.ledger.finalize),
        ):
            for number, command in enumerate(sorted(rows, key=lambda row: row.at), 1):
                self._command(
                    command.at,
                    COMMAND,
                    f"{kind}-{number}",
                    lambda edges, job=job, it=command: job(edges, it.issue, it.lane),  # type: ignore[misc]
                )
        for number in range(1, self.scenario.poll.pollers + 1):
            poller: _Poller[E] = _Poller(number, Process(f"poller-{number}", TICK, number))
            self._next_tick(poller, self.scenario.poll.every)
        self.schedule.run(self.scenario.poll.until)

    def _advance(self, when: int) -> None:
        self.world.advance(when)

    def facts(self) -> Facts:
        """What came of it."""
        end = self.schedule.now
        still_open = frozenset(self.ledger.audit(self.scenario.start + end))
        handles = self._handles()
        return Facts(
            live=record.live(self.world, end),
            created=dict(self.world.created),
            deleted=dict(self.world.deleted),
            max_unlaunched_seconds=record.max_unlaunched(self.world, end),
            max_double_seconds=record.max_double(self.world, end),
            max_stale_seconds=self.stale.longest / MICROS,
            handles=handles,
            events=tuple(self.ledger.events()),
            ticks=self.lines,
            exits=tuple(self.exits[place] for place in self.exits),
            runs=dict(self.ledger.runs()),
            audit_open=still_open,
            audit_ever=frozenset(self.ledger.watched() | still_open),
        )

    def truths(self, facts: Facts) -> tuple[Violation, ...]:
        """The universal truths that are broken."""
        proof = self.ledger.proof()
        if proof is None:
            return ()
        wrong = {} if self._under_way() else self.ledger.wrong_files()
        self.history.files += [(self.schedule.now, file, what) for file, what in wrong.items()]
        return violations(
            Evidence(self.scenario, self.world, self.history, facts.events, self.schedule.now, facts.handles, proof)
        )

    def _under_way(self) -> bool:
        """Whether a process is in the middle of something, so that files may lag behind the log."""
        return bool(self.schedule.waiting())

    # Processes.

    def _bench(self, process: Process, name: str) -> Bench:
        jumps = [jump for jump in self.scenario.clocks if jump.poller == process.poller]
        source = VirtualSource(self.schedule, self.scenario.start, name, jumps)

        def say(text: str) -> None:
            self.said.append((self.schedule.now / MICROS, name, text))

        clouds, host_keys = self.opened.reach(process, source, say)
        return Bench(
            holder=name,
            source=source,
            clouds=clouds,
            together=self.schedule.together,
            hooks=_Hooks(self.rules, self.schedule),
            say=say,
            host_keys=host_keys,
        )

    def _command(
        self, at: int, rank: int, name: str, job: Callable[[E], Any], then: Callable[[Task], None] | None = None
    ) -> None:
        if at > self.scenario.poll.until:
            return
        process = Process(name, rank)

        def start() -> None:
            self.schedule.spawn(process, lambda: job(self.ledger.edges(self._bench(process, name))), ended)

        def ended(task: Task) -> None:
            self._over(process, task)
            if then is not None:
                then(task)
            self._look_for_stale(count=False)

        self.schedule.at(at, start)

    def _over(self, process: Process, task: Task) -> None:
        died = isinstance(task.error, Killed)
        self._died |= died
        self.history.ended(process.name, well=task.error is None)
        if died:
            torn = [name for name, content in self._handles().items() if isinstance(content, str)]
            self.history.files += [(self.schedule.now, name, "torn by a death") for name in torn]
        if died and not self.schedule.closing:
            self.history.faults_end = max(self.history.faults_end, self.schedule.now)

    def _dispatch(self, place: int, row: Dispatch) -> None:
        def ended(task: Task) -> None:
            self.exits[place] = task.result if task.error is None else None

        if row.at <= self.scenario.poll.until:
            self.exits[place] = None
            name = f"dispatch-{place + 1}"
            self._command(row.at, COMMAND, name, lambda edges: self.ledger.dispatch(edges, row), ended)

    def _next_tick(self, poller: _Poller[E], when: int) -> None:
        def fall_due() -> None:
            self._next_tick(poller, when + self.scenario.poll.every)
            self._tick(poller)

        if when <= self.scenario.poll.until:
            self.schedule.at(when, fall_due)

    def _tick(self, poller: _Poller[E]) -> None:
        if self.schedule.closing or self.scenario.poll.sleeps(self.schedule.now):
            return
        if poller.busy:
            poller.due = True
            return
        poller.busy, poller.due = True, False
        self.ticks += 1

        def job() -> Sequence[tuple[str, Mapping[str, Any]]]:
            if poller.edges is None:
                poller.lives += 1
                poller.edges = self.ledger.edges(self._bench(poller.process, f"poller-{poller.number}-{poller.lives}"))
            return self.ledger.tick(poller.edges)

        def ended(task: Task) -> None:
            poller.busy = False
            self._over(poller.process, task)
            if task.error is not None:
                # The next tick is a new process; what fell due for this one died with it.
                poller.edges, poller.due = None, False
                return
            self.lines.update(task.result)
            self._ended = True
            self._look_for_stale(count=True)
            if poller.due:
                self._tick(poller)

        self.schedule.spawn(poller.process, job, ended)

    def _look_for_stale(self, *, count: bool) -> None:
        if self.judged:
            self.stale.look(self._handles(), self.schedule.now, count=count)

    def _settled(self) -> None:
        """Nothing more happens at this moment: the invariants are looked at once for all ticks that ended in it."""
        # A process that died in between may have left what only the next tick sets right.
        if self._ended and not self._died:
            self.ledger.watch(self.scenario.start + self.schedule.now)
            if not self._under_way():
                wrong = self.ledger.wrong_files()
                self.history.files += [(self.schedule.now, file, what) for file, what in wrong.items()]
                self.history.named += record.naming_the_gone(self.world, self._handles())
        self._ended = self._died = False

    # Files.

    def _write_sidecars(self) -> list[Path]:
        files = []
        for name, content in self.scenario.sidecars.items():
            path = self.ledger.sidecars / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content, indent=2, sort_keys=True), encoding="utf-8")
            # The import records the file's time, so it must be the scenario's.
            os.utime(path, ns=(self.scenario.start * 1000, self.scenario.start * 1000))
            files.append(path)
        return files

    def _handles(self) -> dict[str, Any]:
        """The active sidecars on disk, file name to content; what is no JSON is its text."""
        found: dict[str, Any] = {}
        for name in sorted(os.listdir(self.ledger.sidecars)):  # noqa: PTH208 - at every tick's end: names are enough
            if name.endswith("-handle.json"):
                text = (self.ledger.sidecars / name).read_text(encoding="utf-8", errors="replace")
                before = self._texts.get(name)
                if before is None or before[0] != text:
                    before = self._texts[name] = text, _json(text)
                found[name] = before[1]
        return found


def _json(text: str) -> Any:
    """What a file says; what is no JSON is its text."""
    try:
        return json.loads(text)
    except ValueError:
        return text
