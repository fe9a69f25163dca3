"""What every writing command records beside its own events: a policy that is no longer the one in the log."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from ledger.errors import Conflict
from ledger.events import LEDGER_STREAM, Draft, Event
from ledger.policy import Policy

if TYPE_CHECKING:
    from ledger.log.store import Log
    from ledger.settings import Settings


def change_policy(log: Log, change: Callable[[Policy], Policy]) -> list[Event]:
    """Record `change(the policy in force)` where it differs; [] where it does not. Raises StorageError."""
    while True:
        version = log.state(LEDGER_STREAM).version
        before = log.policy()
        after = change(before)
        if after == before:
            return []
        old, new = before.to_payload(), after.to_payload()
        changed = [name for name in new if new[name] != old[name]]
        draft = Draft("PolicyChanged", {"policy": new, "changed": changed}, log.source.now(), actor="user")
        try:
            return log.append(LEDGER_STREAM, version, [draft])
        except Conflict:
            continue


def sync_policy(log: Log, settings: Settings) -> list[Event]:
    """Record the settings' policy where it differs from the recorded one.

    `paused` is never taken from the settings: the brake is a person's, pulled with `ledger pause`.
    """
    return change_policy(log, lambda now: dataclasses.replace(settings.policy, paused=now.paused))
