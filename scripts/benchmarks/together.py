"""Section `eight`: eight processes append to one ledger at the same time, beside one that appends alone."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from benchmarks.harness import Bound, Result, Row, Setting
from benchmarks.history import first_drafts
from ledger.log.open import create_log, open_log
from ledger.policy import Policy
from ledger.source import SystemSource

PROCESSES = 8


def eight(setting: Setting, result: Result) -> None:
    """Total throughput, the slowest of a thousand, and whether any was refused."""
    seconds = float(setting.some(20, 5))
    rates: dict[int, list[float]] = {1: [], PROCESSES: []}
    waits: list[float] = []
    refused = 0
    for turn in range(setting.some(3, 2)):
        for processes, found in rates.items():
            path = setting.folder / f"{processes}-{turn}.db"
            create_log(f"sqlite:///{path}", SystemSource(), Policy(), "bench").connection.close()
            taken, wrong = _run(path, processes, seconds)
            refused += wrong
            found.append(len(taken) / seconds)
            if processes > 1:
                waits += taken
    waits.sort()
    slowest = waits[int(len(waits) * 0.999)] * 1e3
    share = sorted(many / one for one, many in zip(*rates.values(), strict=True))[len(rates[1]) // 2]
    result.rows += [
        Row("eight", f"{n} process{'es' * (n > 1)}", sorted(found)[len(found) // 2], "events/s", note="all together")
        for n, found in rates.items()
    ]
    result.rows.append(Row("eight", f"{PROCESSES} processes, p99.9 of an append", slowest, "ms"))
    result.bounds += [
        Bound("eight", "all together, of one alone", share, "at least", 0.7),
        Bound("eight", "p99.9 of an append", slowest, "at most", 150.0, "ms"),
        Bound("eight", "refused", float(refused), "at most", 0.0, "appends"),
    ]


def _run(path: Path, processes: int, seconds: float) -> tuple[list[float], int]:
    context = multiprocessing.get_context("spawn")
    running = []
    for worker in range(processes):
        here, there = context.Pipe()
        process = context.Process(target=_append, args=(str(path), worker, seconds, there))
        process.start()
        there.close()
        running.append((process, here))
    for _, here in running:
        here.recv()
    for _, here in running:
        here.send(True)
    taken: list[float] = []
    refused = 0
    for process, here in running:
        times, wrong = here.recv()
        taken += times
        refused += wrong
        process.join()
        here.close()
    return taken, refused


def _append(path: str, worker: int, seconds: float, pipe: Pipe) -> None:
    log = open_log(f"sqlite:///{path}", SystemSource(), write=True)
    told = iter(first_drafts(40_000, 1 + worker * 1_000_000))
    stream, draft = next(told)
    log.append(stream, 0, [draft])
    pipe.send(True)
    pipe.recv()
    times, refused = [], 0
    ends = time.perf_counter() + seconds
    for stream, draft in told:
        began = time.perf_counter()
        if began > ends:
            break
        try:
            log.append(stream, log.known_version(stream), [draft])
        except Exception:  # whatever it is: it was refused
            refused += 1
        times.append(time.perf_counter() - began)
    pipe.send((times, refused))
