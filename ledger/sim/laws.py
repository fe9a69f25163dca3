"""What the log owes each call that reached a cloud: its intent before it, and not sent past its `call_before`.

Held in every random scenario beside the universal truths, as number 0: they are the ledger's own conduct.
"""

from __future__ import annotations

from collections.abc import Iterator

from ledger.events import parse_marker
from ledger.moments import MICROS
from ledger.sim.evidence import Event, Evidence, Violation


def broken(evidence: Evidence) -> tuple[Violation, ...]:
    """Every law that does not hold."""
    return (*_creates(evidence), *_deletes(evidence))


def _creates(evidence: Evidence) -> Iterator[Violation]:
    start = evidence.world.start
    asked: dict[tuple[str, int], Event] = {}
    for event in evidence.events:
        if event["type"] == "ProvisionRequested":
            asked[event["attempt"], event["payload"]["try"]] = event
    for when, text in evidence.world.creates:
        marker = parse_marker(text)
        intent = asked.get((marker.attempt, marker.attempt_try)) if marker else None
        if intent is None or (_dated(evidence) and intent["recorded_at"] - start > when):
            yield _violation("a create was sent before its intent", text, when)
        elif _dated(evidence) and when > intent["payload"]["call_before"] - start:
            yield _violation("a create was sent past its call_before", text, when)


def _deletes(evidence: Evidence) -> Iterator[Violation]:
    start = evidence.world.start
    asked: dict[str, list[Event]] = {}
    for event in evidence.events:
        if event["type"] == "TeardownRequested":
            asked.setdefault(event["machine"], []).append(event)
    for when, machine in evidence.history.deletes:
        intents = asked.get(machine, [])
        if not intents:
            yield _violation("a delete was sent without its intent", machine, when)
        elif _dated(evidence):
            before = [intent for intent in intents if intent["recorded_at"] - start <= when]
            if not before:
                yield _violation("a delete was sent before its intent", machine, when)
            elif all(when > intent["payload"]["call_before"] - start for intent in before):
                yield _violation("a delete was sent past its call_before", machine, when)


def _dated(evidence: Evidence) -> bool:
    """Whether the moments of the log are those of the world: no poller's clock jumps."""
    return not evidence.scenario.clocks


def _violation(what: str, who: str, when: int) -> Violation:
    return Violation(0, what, who, when / MICROS, when / MICROS)
