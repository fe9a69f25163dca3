"""The ledger against every scenario file: held under five interleavings, and no line of `expect` is idle.

Each event of each log gives a sidecar that a strict reader takes.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from ledger.events import COLUMNS, Event, is_run
from ledger.projections.sidecar import Tracker
from ledger.sim.judge import judge
from ledger.sim.program import TheProgram
from ledger.sim.rehearse import Outcome, rehearse
from ledger.sim.scenario import load, loads
from tests import strict_reader

FOLDER = Path(__file__).parent / "scenarios"
FILES = sorted(FOLDER.rglob("*.yaml"))
SEEDS = range(5)


def _name(path: Path) -> str:
    return path.relative_to(FOLDER).as_posix().removesuffix(".yaml")


@cache
def outcome(path: Path, seed: int = 0) -> Outcome:
    """The rehearsal of a file, run once a seed."""
    return rehearse(load(path), seed, TheProgram())


def interleavings() -> list[Any]:
    """The files of the contract under five seeds, and every file in which pollers interleave; the others under one."""
    rows = []
    for path in FILES:
        many = path.parent == FOLDER or load(path).poll.pollers > 1
        rows += [pytest.param(path, seed, id=f"{_name(path)}-{seed}") for seed in (SEEDS if many else SEEDS[:1])]
    return rows


@pytest.mark.parametrize(("path", "seed"), interleavings())
def test_a_scenario_is_held(path: Path, seed: int) -> None:
    result = outcome(path, seed)
    assert result.failures == ()
    assert result.truths == ()


def wrong(key: str, value: Any, result: Outcome) -> Any:
    """Another value for a line of `expect`, which did not come about; None where there is none."""
    facts = result.facts
    if key == "handle":
        return {"backend": "nowhere"} if value is None or isinstance(value, dict) else [{"backend": "nowhere"}]
    if key == "events":
        return [*value, "HostKeyPinned"]
    if key == "never":
        return [*value, facts.events[0]["type"]]
    if key == "live":
        return [*value, "runpod/nobody"]
    if key in ("created", "deleted"):
        return {name: number + 1 for name, number in value.items()}
    if key.startswith("max_"):
        measured = getattr(facts, key)
        return measured / 2 if measured > 0 else None
    if key == "poll":
        return {**value, "status": "gate"}
    if key == "exits":
        return [*value, 4]
    return {"run": "cancelled" if value != "cancelled" else "active", "reason": "no_reason_at_all"}[key]


def wrong_audit(key: str, result: Outcome) -> Any:
    """The same for a word of `audit`."""
    ever, still_open = result.facts.audit_ever, result.facts.audit_open
    if key == "open":
        return sorted(still_open ^ {"log-broken"})
    if key == "ever":
        return sorted({"log-broken", "stalled-run", "stale-fact"} - ever)[:1]
    return sorted(ever)[:1] or None


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_each_line_of_expect_fails_when_it_is_wrong_and_is_named(path: Path) -> None:
    result = outcome(path)
    text = path.read_text(encoding="utf-8")
    written = yaml.safe_load(text)["expect"]
    asked = 0
    for key, value in written.items():
        words = value if key == "audit" else {None: value}
        for word in words:
            other = wrong_audit(str(word), result) if key == "audit" else wrong(key, value, result)
            if other is None:
                continue
            changed = {**written, key: {word: other} if key == "audit" else other}
            head = text.split("\nexpect:")[0]
            spoilt = head + "\nexpect:\n" + "".join(f"  {k}: {json.dumps(v)}\n" for k, v in changed.items())
            line = head.count("\n") + 3 + list(changed).index(key)
            failures = judge(loads(spoilt.encode(), "spoilt").expect, result.facts)
            assert [failure.line for failure in failures] == [line], (key, word, failures)
            asked += 1
    assert asked


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_a_strict_reader_takes_the_sidecar_after_every_event(path: Path) -> None:
    result = outcome(path)
    trackers: dict[str, Tracker] = {}
    ledger_id = next(e["payload"]["ledger"] for e in result.facts.events if e["type"] == "LedgerCreated")
    for envelope in result.facts.events:
        event = Event(**{**{c: envelope[c] for c in COLUMNS}, "payload": json.dumps(envelope["payload"])})
        if not is_run(event.stream):
            continue
        tracker = trackers.setdefault(event.stream, Tracker(event.stream, ledger_id))
        projection = tracker.follow([event]).projection()
        if projection.text is not None:
            strict_reader.read(projection.name, projection.text, imported=tracker.run.imported is not None)
    for stream, tracker in trackers.items():
        found = result.facts.handles.get(f"{stream}-handle.json")
        text = tracker.projection().text
        assert found == (None if text is None else json.loads(text))
