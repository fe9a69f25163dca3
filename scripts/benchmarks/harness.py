"""How it is measured: contenders take turns, block by block, and what counts is the median of the ratios of each turn.

A machine that is busy with other things slows all contenders of a turn alike, so a ratio within one turn holds where
seconds would not.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, Literal

from benchmarks.history import Made, make

Block = Callable[[], object]


@dataclass(slots=True)
class Times:
    """What each turn of one contender took, seconds: on the wall's clock, and of the processor."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def median(self) -> float:
        return statistics.median(self.wall)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `ratio` is to the section's floor, or None where the line is a floor or a bare figure."""

    section: str
    what: str
    value: float
    unit: str
    ratio: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Bound:
    """One thing that is wanted: `value` at least or at most `wanted`."""

    section: str
    what: str
    value: float
    kind: Literal["at least", "at most"]
    wanted: float
    unit: str = "x"

    @property
    def met(self) -> bool:
        return self.value >= self.wanted if self.kind == "at least" else self.value <= self.wanted


@dataclass(slots=True)
class Result:
    """All that was measured."""

    rows: list[Row] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": [asdict(row) for row in self.rows],
            "bounds": [{**asdict(bound), "met": bound.met} for bound in self.bounds],
            "notes": self.notes,
        }


@dataclass(frozen=True, slots=True)
class Setting:
    """Where to work, and how much of it is done."""

    folder: Path
    quick: bool
    logs: Path

    def log(self, events: int, open_runs: int | None = None) -> Made:
        """A log of that length, made once: what lies in the folder of logs is taken as it is."""
        path = self.logs / f"log-{events}-{open_runs}.db"
        notes = path.with_suffix(".json")
        if notes.exists():
            return Made(path, **json.loads(notes.read_text(encoding="utf-8")))
        path.unlink(missing_ok=True)
        with told(f"a log of {events:,} events"):
            made = make(path, events, open_runs)
        told_of = {name: value for name, value in asdict(made).items() if name != "path"}
        notes.write_text(json.dumps(told_of), encoding="utf-8")
        return made

    def some(self, full: int, quick: int) -> int:
        return quick if self.quick else full


def clocked(block: Block, times: Times) -> None:
    """Run it, and note what it took."""
    wall, cpu = time.perf_counter(), time.process_time()
    block()
    times.wall.append(time.perf_counter() - wall)
    times.cpu.append(time.process_time() - cpu)


def take_turns(contenders: Mapping[str, Block], rounds: int) -> dict[str, Times]:
    """Each contender once a round; who begins changes from round to round. One turn of each is not counted."""
    names = list(contenders)
    for name in names:
        contenders[name]()
    times = {name: Times() for name in names}
    for turn in range(rounds):
        for n in range(len(names)):
            name = names[(n + turn) % len(names)]
            clocked(contenders[name], times[name])
    return times


def ratio(times: Mapping[str, Times], of: str, to: str, *, cpu: bool = False) -> float:
    """The median over the rounds of what `of` took, divided by what `to` took in the same round."""
    a, b = times[of], times[to]
    pairs = zip(a.cpu if cpu else a.wall, b.cpu if cpu else b.wall, strict=True)
    return statistics.median(x / max(y, 1e-9) for x, y in pairs)


class Remote:
    """A contender in a process of its own. `make(*arguments)` gives there what a turn runs.

    Its turn is told as its own process saw it: wall and processor, without the way there and back.
    """

    def __init__(self, make: Callable[..., Block], *arguments: object) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, there = context.Pipe()
        self.process = context.Process(target=_serve, args=(there, make, arguments), daemon=True)
        self.process.start()
        there.close()
        self.ready = self.pipe.recv()
        if isinstance(self.ready, str):
            raise RuntimeError(self.ready)

    def turn(self) -> tuple[float, float]:
        self.pipe.send(True)
        told = self.pipe.recv()
        if isinstance(told, str):
            raise RuntimeError(told)
        wall, cpu = told
        return wall, cpu

    def close(self) -> None:
        self.pipe.send(False)
        self.process.join(10)
        if self.process.is_alive():
            self.process.terminate()
            self.process.join(10)
        self.pipe.close()


def _serve(pipe: Pipe, make: Callable[..., Block], arguments: Sequence[object]) -> None:
    try:
        block = make(*arguments)
        pipe.send(True)
        while pipe.recv():
            times = Times()
            clocked(block, times)
            pipe.send((times.wall[0], times.cpu[0]))
    except BaseException as error:  # told to the one who asks, whatever it is
        pipe.send(f"{type(error).__name__}: {error}")
    finally:
        pipe.close()
        os._exit(0)  # some peers leave threads behind


def take_turns_apart(contenders: Mapping[str, Remote], rounds: int) -> dict[str, Times]:
    """As `take_turns`, each contender in its own process. They are closed at the end."""
    names = list(contenders)
    times = {name: Times() for name in names}
    try:
        for turn in range(-1, rounds):
            for n in range(len(names)):
                name = names[(n + turn) % len(names)]
                wall, cpu = contenders[name].turn()
                if turn >= 0:
                    times[name].wall.append(wall)
                    times[name].cpu.append(cpu)
    finally:
        for remote in contenders.values():
            remote.close()
    return times


def command(arguments: Sequence[str], environment: Mapping[str, str], cwd: Path) -> Block:
    """A whole command as a block. Its exit status 0 or 1 is well."""

    def run() -> None:
        done = subprocess.run(arguments, env=dict(environment), cwd=cwd, capture_output=True, check=False)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{' '.join(arguments)}: exit {done.returncode}: {done.stderr.decode()[-500:]}")

    return run


def peak_megabytes() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextmanager
def told(what: str) -> Iterator[None]:
    """Say on stderr what is being done."""
    import sys

    began = time.perf_counter()
    print(f"  {what} …", end="", file=sys.stderr, flush=True)
    yield
    print(f" {time.perf_counter() - began:.1f} s", file=sys.stderr, flush=True)
