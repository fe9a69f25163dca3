"""Holds the outcome of a rehearsal against the scenario's `expect`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ledger.sim.schema import EventMatch, Expectation

KILLED = (None, 137, -9)  # what a process that was killed may be written as in `exits`


@dataclass(frozen=True, slots=True)
class Failure:
    """One line of `expect` that did not hold. `line` is where the file says it (1-based)."""

    key: str
    expected: Any
    actual: Any
    line: int

    def to_json(self) -> dict[str, Any]:
        """The object of `rehearse --json`."""
        return {"key": self.key, "expected": self.expected, "actual": self.actual}


@dataclass(frozen=True, slots=True)
class Facts:
    """What came of a rehearsal. The first six are the world's own record, the others the ledger's.

    `handles` maps file names to the active sidecars, `events` are envelopes in the log's order, `ticks` maps a
    stream to its last tick line, `exits` are statuses in the order of the dispatches (None: killed), `runs` maps a
    stream to status and reason.
    """

    live: Sequence[str] = ()
    created: Mapping[str, int] = field(default_factory=dict)
    deleted: Mapping[str, int] = field(default_factory=dict)
    max_unlaunched_seconds: float = 0.0
    max_double_seconds: float = 0.0
    max_stale_seconds: float = 0.0
    handles: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[Mapping[str, Any]] = ()
    ticks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    exits: Sequence[int | None] = ()
    runs: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    audit_open: frozenset[str] = frozenset()
    audit_ever: frozenset[str] = frozenset()


def judge(expect: Iterable[Expectation], facts: Facts) -> list[Failure]:
    """Every line of `expect` that the facts do not hold, in the order of the file."""
    failures = []
    for line in expect:
        actual = _JUDGES[line.key](line.value, facts)
        if actual is not HELD:
            failures.append(Failure(line.key, plain(line.value), actual, line.line))
    return failures


class _Held:
    """The line held."""


HELD = _Held()


def same(expected: Any, actual: Any) -> bool:
    """Equal as JSON: numbers by value (12 is 12.0), true and false are no numbers."""
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return expected.keys() == actual.keys() and all(same(value, actual[key]) for key, value in expected.items())
    if isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        return len(expected) == len(actual) and all(map(same, expected, actual))
    return bool(expected == actual)


def holds(expected: Any, actual: Any) -> bool:
    """Whether `expected` is a nested subset of `actual`; a `null` is held by a key that is left out."""
    if isinstance(expected, Mapping):
        return isinstance(actual, Mapping) and all(holds(value, actual.get(key)) for key, value in expected.items())
    return same(expected, actual)


def matches(match: EventMatch, event: Mapping[str, Any]) -> bool:
    """Whether an envelope is of that type and holds those fields: of the payload, else of the envelope."""
    if event.get("type") != match.type:
        return False
    payload = event.get("payload")
    known = {**event, **(payload if isinstance(payload, Mapping) else {})}
    return holds(match.fields, known)


def plain(value: Any) -> Any:
    """An expectation as JSON."""
    if isinstance(value, EventMatch):
        return {value.type: dict(value.fields)} if value.fields else value.type
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value


def _handle(expected: Any, facts: Facts) -> Any:
    files = list(facts.handles.values())
    if expected is None:
        return HELD if not files else _several(files)
    wanted = list(expected) if isinstance(expected, list) else [expected]
    choices = [[place for place, file in enumerate(files) if _bears(want, file)] for want in wanted]
    return HELD if _assign(choices, frozenset()) else _several(_nearest(wanted, files))


def _bears(want: Mapping[str, Any], file: Any) -> bool:
    return _of_issue(want, file) and holds({k: v for k, v in want.items() if k != "issue"}, file)


def _of_issue(want: Mapping[str, Any], file: Any) -> bool:
    extra = file.get("extra") if isinstance(file, Mapping) else None
    return "issue" not in want or (isinstance(extra, Mapping) and same(want["issue"], extra.get("issue")))


def _assign(choices: list[list[int]], taken: frozenset[int]) -> bool:
    """Whether each expectation finds a file of its own."""
    if not choices:
        return True
    return any(_assign(choices[1:], taken | {place}) for place in choices[0] if place not in taken)


def _nearest(wanted: list[Mapping[str, Any]], files: list[Any]) -> list[Any]:
    return [file for file in files if any(_of_issue(want, file) for want in wanted)] or files


def _several(files: list[Any]) -> Any:
    return files[0] if len(files) == 1 else (files or None)


def _events(expected: Sequence[EventMatch], facts: Facts) -> Any:
    rest = iter(facts.events)
    for place, match in enumerate(expected):
        if not any(matches(match, event) for event in rest):
            return {"missing": plain(match), "after": place, "log": [event.get("type") for event in facts.events]}
    return HELD


def _never(expected: Sequence[EventMatch], facts: Facts) -> Any:
    found = [
        {"type": event.get("type"), "payload": event.get("payload")}
        for event in facts.events
        if any(matches(match, event) for match in expected)
    ]
    return found or HELD


def _live(expected: Sequence[str], facts: Facts) -> Any:
    return HELD if sorted(expected) == sorted(facts.live) else sorted(facts.live)


def _created(expected: Mapping[str, int], facts: Facts) -> Any:
    return _counts(expected, facts.created)


def _deleted(expected: Mapping[str, int], facts: Facts) -> Any:
    return _counts(expected, facts.deleted)


def _counts(expected: Mapping[str, int], actual: Mapping[str, int]) -> Any:
    counted = {key: actual.get(key, 0) for key in expected}
    return HELD if counted == expected else counted


def _bound(name: str) -> Callable[[float, Facts], Any]:
    def within(expected: float, facts: Facts) -> Any:
        measured = getattr(facts, name)
        return HELD if measured <= expected else measured

    return within


def _audit(expected: Mapping[str, Sequence[str]], facts: Facts) -> Any:
    for word, ids in expected.items():
        wanted = set(ids)
        ever = facts.audit_ever | facts.audit_open
        if word == "open" and wanted != facts.audit_open:
            return {word: sorted(facts.audit_open)}
        if word == "ever" and not wanted <= ever:
            return {word: sorted(ever)}
        if word == "not" and wanted & ever:
            return {word: sorted(wanted & ever)}
    return HELD


def _poll(expected: Mapping[str, Any], facts: Facts) -> Any:
    lines = dict(facts.ticks)
    wanted = dict(expected)
    if len(lines) > 1 and "issue" in wanted:
        issue = wanted.pop("issue")
        lines = {s: line for s, line in lines.items() if s == f"issue-{issue}" or s.startswith(f"issue-{issue}-")}
    if any(holds(wanted, line) for line in lines.values()):
        return HELD
    return _several([dict(line) for line in lines.values()])


def _exits(expected: Sequence[int | None], facts: Facts) -> Any:
    # What a killed process exits with is no choice of the ledger's: any way to write it, or to leave it out, will do.
    written = [None if status in KILLED else status for status in expected]
    survivors = [status for status in facts.exits if status is not None]
    return HELD if written == list(facts.exits) or list(expected) == survivors else list(facts.exits)


def _run(expected: str, facts: Facts) -> Any:
    states = [status for status, _ in facts.runs.values()]
    return HELD if expected in states else _several(states)


def _reason(expected: str | None, facts: Facts) -> Any:
    reasons = [reason for _, reason in facts.runs.values()]
    return HELD if expected in reasons else _several(reasons)


_JUDGES: dict[str, Callable[[Any, Facts], Any]] = {
    "handle": _handle,
    "events": _events,
    "never": _never,
    "live": _live,
    "created": _created,
    "deleted": _deleted,
    "max_unlaunched_seconds": _bound("max_unlaunched_seconds"),
    "max_double_seconds": _bound("max_double_seconds"),
    "max_stale_seconds": _bound("max_stale_seconds"),
    "audit": _audit,
    "poll": _poll,
    "exits": _exits,
    "run": _run,
    "reason": _reason,
}
