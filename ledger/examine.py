"""What a poll needs, looked at without changing anything: each part is ok, worth a note, or stops a poll."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from ledger.clouds.configured import SIMULATED, configured, found_credentials, open_cloud
from ledger.clouds.values import Listing, Unknown
from ledger.errors import LedgerError
from ledger.log.open import SCHEMA, display, open_log
from ledger.moments import MICROS, iso
from ledger.source import Source

if TYPE_CHECKING:
    from ledger.clouds.port import Cloud
    from ledger.log.store import Log
    from ledger.settings import Settings

State = Literal["ok", "note", "stops"]
LIST_SECONDS = 20.0
_HOLDS = """
SELECT 1 FROM machines WHERE backend = :backend AND gone_at IS NULL AND claim <> 'orphan'
UNION ALL SELECT 1 FROM intents WHERE backend = :backend AND stage IN ('requested', 'unresolved') LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. `stops`: a poll could not do its work."""

    about: str
    state: State
    said: str

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return {"about": self.about, "state": self.state, "said": self.said}


def examine(settings: Settings, source: Source, env: Mapping[str, str]) -> list[Check]:
    """Every check, in the order in which a person would mend them. Nothing is recorded, made or ended."""
    checks = [_settings(settings)]
    held: set[str] = set()
    try:
        log = open_log(settings.database, source)
    except LedgerError as error:
        checks.append(Check("database", "stops", str(error)))
    else:
        try:
            checks += _log(settings, log)
            held = {b for b in ("gcp", "runpod") if log.connection.query(_HOLDS, {"backend": b})}
        finally:
            log.connection.close()
    checks.append(_sidecars(settings))
    checks += _clouds(settings, source, env, held)
    checks.append(_ssh(settings, env))
    missing = [name for name in settings.secrets if not env.get(name)]
    if missing:
        checks.append(Check("secrets", "note", f"not in this environment: {', '.join(missing)}; launches need them"))
    return checks


def _settings(settings: Settings) -> Check:
    where = str(settings.file) if settings.file is not None else "no ledger.toml here: the built-in settings"
    return Check("settings", "ok", f"{where}; ladder {', '.join(settings.policy.ladder)}")


def _log(settings: Settings, log: Log) -> list[Check]:
    events, newest = log.connection.query("SELECT count(*), max(recorded_at) FROM events")[0]
    said = f"{display(settings.database)}: schema {SCHEMA}, {events} events, the newest of {iso(newest)}"
    checks = [Check("database", "ok", f"{said}; {len(log.active_streams())} active runs; ledger {log.ledger_id()}")]
    if log.policy().paused:
        checks.append(Check("brake", "note", "paused: nothing is created or torn down until `ledger resume`"))
    return checks


def _sidecars(settings: Settings) -> Check:
    folder = settings.sidecars
    if folder is None:
        return Check("handle files", "note", "no folder is configured (sidecars in ledger.toml): none are written")
    there = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Check("handle files", "stops", f"{folder} cannot be written; check what {there} is and who owns it")
    return Check("handle files", "ok", f"{folder}{'' if there == folder else ', made at the first write'}")


def _clouds(settings: Settings, source: Source, env: Mapping[str, str], held: set[str]) -> list[Check]:
    """Credentials and one list of each cloud, all clouds side by side; and the clocks."""
    from ledger.poller.together import threads

    checks: list[Check] = []
    clouds: list[Cloud] = []
    failed: list[tuple[str, str]] = []
    world = getattr(source, "world", None)
    if world is not None:
        clouds = list(world.clouds())
        checks.append(Check("clouds", "note", f"{SIMULATED} names a simulated world; no real cloud is reached"))
    for backend in configured(settings) if world is None else ():
        try:
            credentials = found_credentials(backend, settings, env)
            clouds.append(open_cloud(backend, settings, source, lambda _: None, env=env))
            checks.append(Check(f"{backend} credentials", "ok", credentials))
        except LedgerError as error:
            failed.append((backend, str(error)))
    if world is None and not settings.gcp.project:
        failed.append(("gcp", "no project is set ([gcp] project in ledger.toml): nothing is rented there"))
    for backend, why in failed:
        # The others are polled all the same, unless there are none, or something of ours lies there.
        checks.append(Check(f"{backend} credentials", "note" if clouds and backend not in held else "stops", why))
    skews: dict[str, float] = {}

    def ask(cloud: Cloud) -> Listing | Unknown:
        answer = cloud.list_all(timeout=LIST_SECONDS)
        if isinstance(answer, Listing) and answer.server_time is not None:
            # Now, and not when the last of the others has answered.
            skews[cloud.backend] = (source.now() - answer.server_time) / MICROS
        return answer

    answers = threads([partial(ask, cloud) for cloud in clouds], LIST_SECONDS + 1)
    checks += [_answer(cloud, answer) for cloud, answer in zip(clouds, answers, strict=True)]
    return [*checks, _clocks(skews, settings)]


def _answer(cloud: Cloud, answer: Listing | Unknown) -> Check:
    if isinstance(answer, Unknown):
        return Check(cloud.backend, "stops", f"does not answer: {answer.error}; {answer.message}".rstrip("; "))
    if answer.account != cloud.account:
        said = f"the credentials are of {answer.account}, and {cloud.account} is configured"
        return Check(cloud.backend, "stops", said)
    shown = f"account {answer.account} answers, with {len(answer.machines)} machines"
    if not answer.complete:
        return Check(cloud.backend, "note", f"{shown}; not all of it could be read: {', '.join(answer.unreachable)}")
    return Check(cloud.backend, "ok", shown)


def _clocks(skews: Mapping[str, float], settings: Settings) -> Check:
    if not skews:
        return Check("clock", "note", "no cloud told the time, so this clock is not compared")
    backend = max(skews, key=lambda name: abs(skews[name]))
    skew = skews[backend]
    most = settings.policy.max_clock_skew_seconds
    said = f"{skew:+.1f} s off the one of {backend} (at most {most:g})"
    if abs(skew) > most:
        return Check("clock", "stops", f"{said}: nothing would be decided or ended; set it")
    return Check("clock", "ok", said)


def _ssh(settings: Settings, env: Mapping[str, str]) -> Check:
    user, key = settings.ssh.user, settings.ssh.key
    if key is None:
        agent = env.get("SSH_AUTH_SOCK")
        if agent:
            return Check("ssh", "ok", f"as {user}, with the keys of the agent at {agent}")
        return Check("ssh", "note", "no key ([ssh] key in ledger.toml) and no agent: pods may let no launch in")
    if not os.access(key, os.R_OK):
        return Check("ssh", "stops", f"the key {key} cannot be read ([ssh] key in ledger.toml)")
    public = key.with_name(f"{key.name}.pub")
    if not public.is_file():
        said = f"{public} is not there, so new machines are not told it: `ssh-keygen -y -f {key} > {public}`"
        return Check("ssh", "note", said)
    return Check("ssh", "ok", f"as {user}, with {key}")
