"""Makes a failing scenario small: rows and keys go, numbers become simple, as long as it fails the same way."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

Document = dict[str, Any]
LISTS = (
    "pauses",
    "clocks",
    "crashes",
    "machines",
    "sidecars",
    "cancels",
    "finalizes",
    "calls",
    "world",
    "workloads",
    "dispatches",
)
MOST_TRIES = 400


def shrink(made: Document, fails: Callable[[Document], bool], tries: int = MOST_TRIES) -> Document:
    """The smallest document found that still `fails`; `made` itself fails. At most `tries` candidates are tried."""
    small = copy.deepcopy(made)
    left = tries
    moved = True
    while moved and left > 0:
        moved = False
        for candidate in _candidates(small):
            if left <= 0:
                break
            left -= 1
            if fails(candidate):
                small, moved = candidate, True
                break
    return small


def _candidates(made: Document) -> Iterator[Document]:
    """Simpler documents, the boldest first."""
    for section in LISTS:
        if made.get(section):
            yield {key: value for key, value in made.items() if key != section}
    for section in LISTS:
        rows = made.get(section) or []
        for place in range(len(rows) if len(rows) > 1 else 0):
            yield {**made, section: rows[:place] + rows[place + 1 :]}
    if made["poll"].get("off"):
        yield {**made, "poll": {key: value for key, value in made["poll"].items() if key != "off"}}
    pollers = made["poll"].get("pollers", 1)
    if pollers > 1:
        yield {**made, "poll": {**made["poll"], "pollers": pollers - 1}}
    if len(made.get("zones", ())) > 1:
        yield {**made, "zones": made["zones"][:1]}
    for key in made.get("policy", {}):
        yield {**made, "policy": {name: value for name, value in made["policy"].items() if name != key}}
    for section in LISTS:
        for place, row in enumerate(made.get(section) or []):
            for simpler in _rows(section, row):
                rows = list(made[section])
                rows[place] = simpler
                yield {**made, section: rows}
    until = made["poll"].get("until", 3600)
    for shorter in (until // 2, until * 3 // 4, until - 120):
        if 0 < shorter < until:
            yield {**made, "poll": {**made["poll"], "until": shorter}}


def _rows(section: str, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    optional = ("env_pins", "time_budget_hours", "lane", "zone", "takes", "times", "name", "workload_started", "phase")
    for key in (*optional, "allow_paid_fallback", "effect", "http", "gpu_util", "from", "to"):
        if key in row and not (section in ("machines", "world") and key == "name"):
            yield {name: value for name, value in row.items() if name != key}
    for key in ("at", "takes", "for", "from", "to", "runs", "after", "lag"):
        value = row.get(key)
        if isinstance(value, int) and value > 0:
            for simpler in (0, round(value, -2), value // 60 * 60):
                if simpler != value:
                    yield {**row, key: simpler}
