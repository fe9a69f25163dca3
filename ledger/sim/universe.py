"""Every word that a random search can come upon, so that what never occurred is told as 0.

Not among them: events that only a person's command or a real wire brings about (an acknowledgement, a changed policy,
an edited sidecar, a pinned host key), and refusals of a create as answers of other calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import get_args

from ledger.events import KINDS
from ledger.payloads import Reason, Refusal
from ledger.sim import schema

BY_HAND = frozenset({"HostKeyPinned", "BreachAcknowledged", "PolicyChanged", "SidecarEdited"})
# A ledger is born before the first process of a rehearsal.
UNDYING = frozenset({"LedgerCreated"})
OF_A_CREATE = ("no_capacity", "quota", "already_exists")


def words() -> dict[str, frozenset[str]]:
    """Kind (as the search counts them) to every word that can occur."""
    calls = [(cloud, call) for cloud in schema.CLOUDS for call in schema.CALLS_OF[cloud]]
    events = frozenset(KINDS) - BY_HAND
    deaths = {f"{point} {cloud} {call}" for point in ("before-call", "after-call") for cloud, call in calls}
    deaths |= {f"after-event {event}" for event in events - UNDYING} | {"during-projection"}
    return {
        "event": events,
        "refusal": frozenset(get_args(Refusal)),
        "TornDown": frozenset({"ledger", "external", "never_materialised"}),
        "FailoverDecided": frozenset(get_args(Reason)),
        "answer": frozenset(f"{cloud} {call} {answer}" for cloud, call in calls for answer in _answers(call)),
        "effect": frozenset(
            f"{cloud} {call} {effect}"
            for cloud, call in calls
            if call in ("create", "delete", "launch")
            for effect in ("done", "twice", "late")
        ),
        "death": frozenset(deaths),
        "pause": frozenset(f"before {cloud} {call}" for cloud, call in calls),
        "exit": frozenset({"0", "2", "75", "killed"}),
        "pollers": frozenset({"1", "2", "3"}),
    }


def _answers(call: str) -> tuple[str, ...]:
    if call == "list":
        return tuple(answer for answer in schema.ANSWERS if answer not in OF_A_CREATE)
    rest = tuple(answer for answer in schema.ANSWERS if answer not in schema.LIST_ANSWERS)
    return rest if call == "create" else tuple(answer for answer in rest if answer not in OF_A_CREATE)


def told(counts: Mapping[str, Counter[str]]) -> dict[str, dict[str, int]]:
    """The counts with a 0 for each word that could have occurred and did not."""
    known = words()
    found: dict[str, dict[str, int]] = {}
    for kind in sorted({*known, *counts}):
        counted = counts.get(kind, Counter())
        found[kind] = {word: counted[word] for word in sorted({*known.get(kind, ()), *counted})}
    return found
