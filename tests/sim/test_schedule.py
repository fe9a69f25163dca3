"""Virtual time: order, interleaving, waiting, dying, calls side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ledger.clouds.values import Unknown
from ledger.moments import MICROS
from ledger.sim.schedule import COMMAND, TICK, Killed, Process, Schedule, Task, VirtualSource
from ledger.sim.schema import ClockJump
from ledger.source import uuid7


class Stage:
    """A schedule, and what its processes wrote down."""

    def __init__(self, seed: int = 0, interleave: bool = False) -> None:
        self.log: list[Any] = []
        self.schedule = Schedule(seed, interleave, lambda when: None)

    def note(self, what: Any) -> None:
        self.log.append((self.schedule.now // MICROS, what))

    def start(self, when: float, name: str, job: Callable[[], Any], rank: int = TICK) -> Process:
        process = Process(name, rank, None)
        self.schedule.at(round(when * MICROS), lambda: self.spawn(process, job))
        return process

    def spawn(self, process: Process, job: Callable[[], Any]) -> None:
        self.schedule.spawn(process, job, self.ended)

    def ended(self, task: Task) -> None:
        if isinstance(task.error, Killed):
            self.note(f"{task.process.name} died")

    def steps(self, name: str, *waits: float) -> Callable[[], None]:
        def job() -> None:
            for number, wait in enumerate((*waits, None)):
                self.note(f"{name}{number}")
                self.schedule.yield_point()
                if wait:
                    self.schedule.park(round(wait * MICROS))

        return job

    def run(self, until: float) -> list[Any]:
        self.schedule.run(round(until * MICROS))
        return self.log


def test_order_at_one_second_is_by_rank_then_as_asked() -> None:
    stage = Stage()
    moments: list[int] = []
    stage.schedule = Schedule(0, False, moments.append)
    stage.start(1, "t", stage.steps("tick"), TICK)
    stage.start(1, "a", stage.steps("a", 1), COMMAND)
    stage.start(1, "b", stage.steps("b"), COMMAND)
    stage.start(2, "u", stage.steps("tock"), TICK)
    assert stage.run(2) == [(1, "a0"), (1, "b0"), (1, "tick0"), (2, "a1"), (2, "tock0")]
    assert moments == [0, MICROS, 2 * MICROS]


def interleaved(seed: int) -> list[Any]:
    stage = Stage(seed, interleave=True)
    for name in "xy":
        stage.start(1, name, stage.steps(name, 0, 0, 0, 0))
    return stage.run(1)


def test_the_seed_draws_the_order_of_several_pollers() -> None:
    runs = [interleaved(seed) for seed in range(8)]
    assert runs == [interleaved(seed) for seed in range(8)]
    assert len({tuple(run) for run in runs}) > 4
    assert all(sorted(run) == sorted(runs[0]) for run in runs)


def test_one_poller_is_never_interrupted() -> None:
    stage = Stage(3)
    for name in "xy":
        stage.start(1, name, stage.steps(name, 0, 0))
    assert [what for _, what in stage.run(1)] == ["x0", "x1", "x2", "y0", "y1", "y2"]


def test_what_is_under_way_at_the_end_comes_to_its_end() -> None:
    stage = Stage()
    stage.start(1, "x", stage.steps("x", 5, 5))
    assert stage.run(2) == [(1, "x0"), (6, "x1"), (11, "x2")]
    assert stage.schedule.closing


def test_a_process_that_stands_still_at_the_end_is_not_waited_for() -> None:
    stage = Stage()

    def still() -> None:
        stage.schedule.stand_still(900 * MICROS)
        stage.note("never")

    stage.start(1, "x", still)
    assert stage.run(10) == [(10, "x died")]
    assert stage.schedule.now == 10 * MICROS


def test_death_unwinds_and_the_others_go_on() -> None:
    stage = Stage()

    def dies() -> None:
        try:
            stage.schedule.park(MICROS)
            raise Killed
        finally:
            stage.note("unwound")

    stage.start(1, "x", dies)
    stage.start(1, "y", stage.steps("y", 2))
    assert stage.run(5) == [(1, "y0"), (2, "unwound"), (2, "x died"), (3, "y1")]


def test_what_a_process_raises_is_raised() -> None:
    stage = Stage()

    def fails() -> None:
        raise RuntimeError("a bug")

    stage.start(1, "x", fails)
    stage.start(0, "y", stage.steps("y", 9))
    with pytest.raises(RuntimeError, match="a bug"):
        stage.run(5)
    assert stage.log[-1] == (1, "y died")


def side(stage: Stage, *waits: float, seconds: float) -> Callable[[], None]:
    def call(number: int, wait: float) -> Callable[[], int]:
        def job() -> int:
            stage.note(f"begin {number}")
            if wait:
                stage.schedule.park(round(wait * MICROS))
            stage.note(f"end {number}")
            return number

        return job

    def job() -> None:
        stage.note(stage.schedule.together([call(number, wait) for number, wait in enumerate(waits)], seconds))

    return job


LATE = Unknown("timeout")


@pytest.mark.parametrize(
    ("waits", "seconds", "when", "results"),
    [
        ((), 5, 0, []),
        ((0, 0), 5, 0, [0, 1]),
        ((3, 1), 5, 3, [0, 1]),
        ((5, 1), 5, 5, [0, 1]),
        ((6, 1), 5, 5, [LATE, 1]),
        ((0, 1), 0, 0, [0, LATE]),
        ((9, 9), -1, 0, [LATE, LATE]),
    ],
)
def test_together(waits: tuple[float, ...], seconds: float, when: int, results: list[Any]) -> None:
    stage = Stage()
    stage.start(0, "x", side(stage, *waits, seconds=seconds))
    assert stage.run(20)[-1] == (when, results)


def test_together_can_be_nested_and_repeated() -> None:
    stage = Stage()
    inner = side(stage, 1, 2, seconds=9)

    def job() -> None:
        stage.note(stage.schedule.together([inner, lambda: stage.schedule.park(5 * MICROS)], 3))
        stage.schedule.park(4 * MICROS)
        stage.note("later")
        side(stage, 9, seconds=20)()

    stage.start(0, "x", job)
    log = stage.run(50)
    assert (2, [0, 1]) in log
    assert (3, [None, LATE]) in log
    assert (7, "later") in log
    assert log[-1] == (16, [0])


def test_a_death_in_one_call_is_the_death_of_its_process() -> None:
    stage = Stage()

    def dies() -> None:
        stage.schedule.park(MICROS)
        raise Killed

    def waits() -> None:
        try:
            stage.schedule.park(9 * MICROS)
        finally:
            stage.note("sibling unwound")

    stage.start(0, "x", lambda: stage.note(stage.schedule.together([waits, dies], 30)))
    assert stage.run(20) == [(1, "sibling unwound"), (1, "x died")]


def test_what_one_call_raises_is_raised_to_its_process() -> None:
    stage = Stage()

    def fails() -> None:
        raise ValueError("a bug")

    def job() -> None:
        with pytest.raises(ValueError, match="a bug"):
            stage.schedule.together([fails, lambda: stage.schedule.park(9 * MICROS)], 30)
        stage.note("caught")

    stage.start(0, "x", job)
    assert stage.run(20) == [(0, "caught")]


def test_a_pause_stops_the_whole_process() -> None:
    stage = Stage()

    def still() -> str:
        stage.schedule.stand_still(100 * MICROS)
        stage.note("awake")
        return "late but there"

    stage.start(0, "x", lambda: stage.note(stage.schedule.together([still, lambda: stage.note("side")], 10)))
    stage.start(50, "y", stage.steps("y"))
    assert stage.run(200) == [
        (50, "y0"),
        (100, "awake"),
        (100, "side"),
        (100, ["late but there", None]),
    ]


def test_sources() -> None:
    schedule = Schedule(0, False, lambda when: None)
    jumps = [ClockJump(5 * MICROS, 1, 100 * MICROS), ClockJump(9 * MICROS, 1, -30 * MICROS)]
    source = VirtualSource(schedule, 1000, "p", jumps)
    seen = []
    for second in (0, 5, 9):
        schedule.at(second * MICROS, lambda: seen.append((source.now() - 1000, source.steady())))
    schedule.run(9 * MICROS)
    assert seen == [(0, 0.0), (105 * MICROS, 5.0), (79 * MICROS, 9.0)]
    again = VirtualSource(Schedule(0, False, lambda when: None), 1000, "p")
    assert again.random_bytes(8) == VirtualSource(schedule, 1000, "p").random_bytes(8)
    assert again.random_bytes(8) != VirtualSource(schedule, 1000, "q").random_bytes(8)
    assert uuid7(again) != uuid7(again)
    assert VirtualSource(Schedule(1, False, lambda when: None), 0, "p").random_bytes(8) != VirtualSource(
        schedule, 0, "p"
    ).random_bytes(8)


def test_only_a_process_can_wait() -> None:
    schedule = Schedule(0, False, lambda when: None)
    schedule.yield_point()
    with pytest.raises(RuntimeError, match="only a process"):
        schedule.park(1)
