"""Section `audit`: the state invariants on logs of different length, and the same answer from the log alone."""

from __future__ import annotations

from benchmarks.harness import Block, Bound, Result, Row, Setting, ratio, take_turns
from benchmarks.history import Made
from benchmarks.reading import opened
from ledger.invariants.audit import audit as asked
from ledger.invariants.audit import from_log, look_for_files, state_breaches


def _states(made: Made) -> Block:
    connection = opened(made).connection
    look_for_files(connection, None)

    def run() -> None:
        with connection.read():
            list(state_breaches(connection, made.until, from_the_log=True))

    return run


def audit(setting: Setting, result: Result) -> None:
    """State invariants together, at two lengths with the same machines open; then all of it from the log."""
    still_open = setting.some(1000, 100)
    short = setting.log(setting.some(1_000_000, 60_000), still_open)
    long = setting.log(setting.some(5_000_000, 240_000), still_open)
    a, b = f"{short.events:,} events", f"{long.events:,} events"
    times = take_turns({a: _states(short), b: _states(long)}, 15)
    for name, taken in times.items():
        what = f"state invariants, {still_open} machines open, {name}"
        result.rows.append(Row("audit", what, taken.median() * 1e3, "ms", ratio(times, name, a)))
    result.bounds += [
        Bound("audit", f"state invariants together, {still_open} open", times[a].median() * 1e3, "at most", 20.0, "ms"),
        Bound("audit", "the longer log, of the shorter", ratio(times, b, a), "at most", 1.2),
    ]
    log = opened(short)
    if asked(log, short.until) != from_log(log, short.until):
        raise AssertionError("--from-log differs")
    both = take_turns(
        {"audit": lambda: asked(log, short.until), "audit --from-log": lambda: from_log(log, short.until)},
        setting.some(2, 2),
    )
    for name, taken in both.items():
        result.rows.append(Row("audit", name, taken.median() * 1e3, "ms", ratio(both, name, "audit")))
    slower = ratio(both, "audit --from-log", "audit")
    result.bounds.append(Bound("audit", "--from-log, slower", slower, "at least", 50.0))
