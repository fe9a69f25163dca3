"""What every writing command records beside its own events: a policy that is no longer the one in the log."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ledger.errors import Conflict
from ledger.events import LEDGER_STREAM, Draft, Event
from ledger.policy import FIELDS, Policy

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

    Where `ledger.toml` names the database, its policy is the whole policy. Where another word does (`--db`,
    LEDGER_DATABASE_URL), only what is stated counts: a default of this process is no wish for a ledger elsewhere.
    `paused` is never taken from the settings: the brake is a person's, pulled with `ledger pause`.
    """
    return change_policy(log, lambda now: dataclasses.replace(now, **_stated(settings)))


def policy_in_force(log: Log, settings: Settings) -> Policy:
    """The policy that `sync_policy` would leave, for a command that records nothing."""
    return dataclasses.replace(log.policy(), **_stated(settings))


def _stated(settings: Settings) -> dict[str, Any]:
    whole = settings.file is not None and settings.source("database") in (str(settings.file), "default")
    names = [name for name in FIELDS if name != "paused" and (whole or settings.source(name) != "default")]
    return {name: getattr(settings.policy, name) for name in names}
