"""Sections that read a long log: `verify`, `rebuild`, `asof`, each beside a bare iteration over its rows."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Block, Bound, Result, Row, Setting, ratio, take_turns
from benchmarks.history import Made
from benchmarks.peers import eventsourcing_app
from ledger.events import COLUMNS
from ledger.log.integrity import verify as check
from ledger.log.open import open_log
from ledger.log.store import Log
from ledger.projections.rebuild import rebuild_beside
from ledger.source import SystemSource
from ledger.state.fold import fold_run

SELECT = f"SELECT {', '.join(COLUMNS)} FROM events"
FLOOR = "raw iterate"


def opened(made: Made) -> Log:
    """The log, for reading."""
    return open_log(f"sqlite:///{made.path}", SystemSource())


def iterate(made: Made) -> Block:
    """Every row of `events`, all columns, and nothing done with it."""
    raw = sqlite3.connect(made.path)

    def run() -> None:
        for _ in raw.execute(f"{SELECT} ORDER BY position"):
            pass

    return run


def _tell(section: str, result: Result, times: dict[str, Any], events: int) -> None:
    for name, taken in times.items():
        value = taken.median() / events * 1e6
        result.rows.append(Row(section, name, value, "us/event", ratio(times, name, FLOOR)))


def verify(setting: Setting, result: Result) -> None:
    """`ledger verify`: the chain and the gaps; with `--projections` the read models too."""
    made = setting.log(setting.some(1_000_000, 60_000), setting.some(1000, 100))
    log = opened(made)

    def checked(projections: bool) -> Callable[[], None]:
        def run() -> None:
            findings = check(log, projections=projections)
            if findings:
                raise AssertionError(findings[:3])

        return run

    chain, both = "verify: chain and gaps", "verify --projections"
    times = take_turns({FLOOR: iterate(made), chain: checked(False), both: checked(True)}, setting.some(3, 3))
    _tell("verify", result, times, made.events)
    result.bounds += [
        Bound("verify", "chain and gaps, of a raw iterate", ratio(times, chain, FLOOR), "at most", 3.0),
        Bound("verify", "with --projections, of a raw iterate", ratio(times, both, FLOOR), "at most", 7.0),
    ]


def rebuild(setting: Setting, result: Result) -> None:
    """Every projection made anew from the log; beside it `eventsourcing` reading and decoding as many events."""
    made = setting.log(setting.some(1_000_000, 60_000), setting.some(1000, 100))
    log = opened(made)
    share = setting.some(20, 6)
    peer, theirs = "eventsourcing: read and decode", _eventsourcing(setting, made, made.events // share)

    mine = "rebuild every projection"
    times = take_turns({FLOOR: iterate(made), mine: lambda: rebuild_beside(log).close(), peer: theirs}, 3)
    times[peer].wall = [wall * share for wall in times[peer].wall]
    _tell("rebuild", result, times, made.events)
    result.notes.append(f"eventsourcing read {made.events // share:,} of the events; its figure is scaled by {share}.")
    result.bounds += [
        Bound("rebuild", "every projection, of a raw iterate", ratio(times, mine, FLOOR), "at most", 3.5),
        Bound("rebuild", "ahead of eventsourcing", ratio(times, peer, mine), "at least", 2.0),
    ]


def _eventsourcing(setting: Setting, made: Made, n: int) -> Block:
    """Its own application's log with the payloads of our first `n` events, and a turn that reads and decodes them."""
    app, work = eventsourcing_app(setting.folder / "es-read.db")
    log = opened(made)
    aggregate: Any = None
    for count, event in enumerate(itertools.islice(log.read_all(), n)):
        if count % 12 == 0:
            if aggregate is not None:
                app.save(aggregate)
            aggregate = work(event.stream)
        else:
            aggregate.happened(event.type, event.data())
    app.save(aggregate)

    def run() -> None:
        start: int | None = 1
        while start is not None:
            found = app.recorder.select_notifications(start=start, limit=1000)
            for stored in found:
                app.mapper.to_domain_event(stored)
            start = found[-1].id + 1 if len(found) == 1000 else None

    return run


def asof(setting: Setting, result: Result) -> None:
    """The state of one run as of a moment, in a long log."""
    made = setting.log(setting.some(5_000_000, 240_000), setting.some(1000, 100))
    log = opened(made)
    raw = sqlite3.connect(made.path)
    streams = [f"issue-{1 + n * made.runs // 500}" for n in range(500)]

    def read() -> None:
        for stream in streams:
            raw.execute(f"{SELECT} WHERE stream = ? ORDER BY version", (stream,)).fetchall()

    def ours() -> None:
        for stream in streams:
            fold_run(stream, [event for event in log.read(stream) if event.recorded_at <= made.until])

    times = take_turns({FLOOR: read, "state of one run, as of a moment": ours}, 15)
    for name, taken in times.items():
        value = taken.median() / len(streams) * 1e6
        result.rows.append(
            Row("asof", name.replace("iterate", "read of its stream"), value, "us", ratio(times, name, FLOOR))
        )
    share = ratio(times, "state of one run, as of a moment", FLOOR)
    result.bounds.append(Bound("asof", f"one run in {made.events:,} events, of a raw read", share, "at most", 3.0))
