"""The search: random scenarios in number, what they reached, and each failure shrunk to a small scenario file."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ledger.sim.generate import Document, document, scenario_of, text_of
from ledger.sim.nodes import ScenarioError
from ledger.sim.rehearse import Outcome, events_of, rehearse
from ledger.sim.shrink import shrink
from ledger.sim.truths import Violation, same_events
from ledger.sim.universe import told

BATCH = 25
Batch = tuple[int, int, int, int, str | None]  # seed, first index, end, how many of them once more, server
# What the audit may find in no scenario, whatever it scripts: the ledger's own conduct.
NEVER = (
    "attempt-leak",
    "thin-evidence",
    "skipped-rung",
    "foreign-touch",
    "unprobed-failure",
    "illegal-transition",
)


@dataclass(frozen=True, slots=True)
class Failure:
    """A random scenario in which a truth did not hold. `file` is the shrunk one, where it was written."""

    seed: int
    index: int
    violations: tuple[Violation, ...]
    shrunk: Document
    file: Path | None = None

    def __str__(self) -> str:
        told = f"seed {self.seed}, scenario {self.index}: {self.violations[0]}"
        return f"{told}; {self.file}" if self.file else told


@dataclass(slots=True)
class Report:
    """What a search did. `counts` maps a kind (event, refusal, reason, answer, death, exit) to word and number."""

    n: int
    seed: int
    failures: list[Failure] = field(default_factory=list)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    ticks: int = 0
    events: int = 0
    wall_seconds: float = 0.0

    @property
    def held(self) -> bool:
        """Whether no truth was broken."""
        return not self.failures

    def count(self, kind: str, word: str, number: int = 1) -> None:
        """Note how often something occurred."""
        self.counts.setdefault(kind, Counter())[word] += number

    def add(self, other: Report) -> None:
        """Take in what another part of the search did."""
        self.failures += other.failures
        self.ticks += other.ticks
        self.events += other.events
        for kind, counted in other.counts.items():
            self.counts.setdefault(kind, Counter()).update(counted)

    def to_json(self) -> dict[str, Any]:
        """A JSON object of everything."""
        return {
            "scenarios": self.n,
            "seed": self.seed,
            "held": self.held,
            "failures": [
                {
                    "index": failure.index,
                    "truths": [str(violation) for violation in failure.violations],
                    "file": str(failure.file) if failure.file else None,
                }
                for failure in self.failures
            ],
            "counts": told(self.counts),
            "ticks": self.ticks,
            "events": self.events,
            "wall_seconds": self.wall_seconds,
        }


def search(
    n: int, seed: int = 0, jobs: int = 1, folder: Path | None = None, twice: int = 1, server: str | None = None
) -> Report:
    """Rehearse scenarios 0 to n - 1 of `seed` in `jobs` processes; shrunk failures are written into `folder`.

    `twice`: every so many are rehearsed a second time for truth 8. `server`: the ledgers are on that PostgreSQL server.
    """
    began = time.perf_counter()
    report = Report(n, seed)
    batches = [(seed, first, min(first + BATCH, n), twice, server) for first in range(0, n, BATCH)]
    for part in _parts(batches, jobs):
        report.add(part)
    report.failures.sort(key=lambda failure: failure.index)
    if folder is not None and report.failures:
        folder.mkdir(parents=True, exist_ok=True)
        report.failures = [_written(failure, folder) for failure in report.failures]
    report.wall_seconds = time.perf_counter() - began
    return report


def judged(
    made: Document, seed: int, *, twice: bool = True, server: str | None = None
) -> tuple[Outcome | None, tuple[Violation, ...]]:
    """Rehearse a document with that seed: what came of it, and the truths that are broken (0: the program raised).

    `twice`: rehearse it again for truth 8. Raises ScenarioError for a document that is no scenario.
    """
    from ledger.sim.program import TheProgram

    scenario = scenario_of(made)
    try:
        program = TheProgram(in_memory=True) if server is None else TheProgram(server=server)
        outcome = rehearse(scenario, seed, program)
        broken = outcome.truths
        found = sorted(outcome.facts.audit_ever & set(NEVER))
        broken += tuple(Violation(0, f"the audit found {invariant}") for invariant in found)
        if twice and not broken:
            again = events_of(scenario, seed, program)
            broken = same_events(outcome.facts.events, again)
    except Exception as error:  # whatever the program raises is a finding
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = f"the program raised {type(error).__name__} in {Path(where.filename).name}:{where.name}"
        return None, (Violation(0, what, str(error)),)
    return outcome, broken


def _parts(batches: list[Batch], jobs: int) -> Iterator[Report]:
    if jobs <= 1 or len(batches) <= 1:
        yield from map(_batch, batches)
        return
    # A fresh interpreter a worker: what one process has loaded or cached cannot colour another's result.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=min(jobs, len(batches), os.cpu_count() or 1), mp_context=context) as pool:
        yield from pool.map(_batch, batches)


def _batch(batch: Batch) -> Report:
    # What is loaded stays, and a rehearsal leaves few cycles: neither is worth a look every few hundred objects.
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    try:
        return _searched(batch)
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _searched(batch: Batch) -> Report:
    seed, first, last, twice, server = batch
    report = Report(last - first, seed)
    for index in range(first, last):
        made = document(seed, index)
        outcome, broken = judged(made, index, twice=index % twice == 0, server=server)
        if outcome is not None:
            _reached(report, made, outcome)
        if broken:
            small = shrink(made, _fails_alike(index, broken[0], server))
            report.failures.append(Failure(seed, index, broken, small))
    return report


def _fails_alike(seed: int, violation: Violation, server: str | None) -> Callable[[Document], bool]:
    def fails(made: Document) -> bool:
        try:
            _, broken = judged(made, seed, twice=violation.truth == 8, server=server)
        except ScenarioError:
            return False
        return violation.key in {found.key for found in broken}

    return fails


def _reached(report: Report, made: Document, outcome: Outcome) -> None:
    """What the scenario really exercised: not what it asked for, but what occurred."""
    report.ticks += outcome.ticks
    report.events += len(outcome.facts.events)
    for event in outcome.facts.events:
        report.count("event", str(event["type"]))
        payload = event["payload"]
        match event["type"]:
            case "ProvisionRefused":
                report.count("refusal", payload["class"])
            case "FailoverDecided" | "TeardownRequested" | "RunClosed":
                report.count(str(event["type"]), payload["reason"])
            case "TornDown":
                report.count("TornDown", payload["by"])
    for what, number in outcome.history.counts.items():
        if what.startswith(("dies ", "pause ")):
            kind, _, word = what.partition(" ")
            report.count("death" if kind == "dies" else kind, word, number)
            continue
        answer, *more = what.split("+")
        report.count("answer", answer, number)
        for word in more:
            report.count("effect", f"{answer.rpartition(' ')[0]} {word}", number)
    for status in outcome.facts.exits:
        report.count("exit", "killed" if status is None else str(status))
    for section, rows in made.items():
        if isinstance(rows, list) and rows and isinstance(rows[0], dict):
            report.count("rows", section, len(rows))
    if made["poll"].get("off"):
        report.count("rows", "off")
    report.count("pollers", str(made["poll"].get("pollers", 1)))


def _written(failure: Failure, folder: Path) -> Failure:
    file = folder / f"found-{failure.seed}-{failure.index}.yaml"
    told = "\n".join(f"# {violation}" for violation in failure.violations)
    about = {"about": f"seed {failure.seed}, scenario {failure.index}; rehearse it with --seed {failure.index}"}
    made = {"scenario": failure.shrunk["scenario"], **about, **failure.shrunk}
    file.write_text(f"{told}\n{text_of(made)}", encoding="utf-8")
    return Failure(failure.seed, failure.index, failure.violations, failure.shrunk, file)
