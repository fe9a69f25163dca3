"""Run → its sidecar: the seven keys that existing readers take, and `extra`. Pure; `files` puts it on disk.

A fact that nobody has stated is left out, never written as null (`gpus` and `time_budget_hours` are null where none
was pinned: their readers ask for the key). What belongs to one machine (its clocks, its rung, its cloud's own keys)
comes from that machine alone, so that a re-point leaves nothing of the old one behind; what was pinned at the dispatch
comes from the run and is on every machine's sidecar. Times in a sidecar are float seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any, Final

from ledger.canonical import digest
from ledger.decide.ends import end_of
from ledger.decide.teardown import current
from ledger.events import Event
from ledger.moments import MICROS
from ledger.policy import Policy
from ledger.projections.handle_file import OWNED, PINNED, TOP, File, file_name, fingerprint, render
from ledger.projections.tables import budget_hours
from ledger.state import imported
from ledger.state.fold import advance
from ledger.state.model import GCE_ENDED, Intent, Machine, Run
from ledger.state.places import log_path, pid_file, scratch_dir

STATES: Final = ("queued", "provisioning", "launching", "running", "failing_over", "closing", "unknown", "not_driven")
_LAST_SECOND = 253_402_300_799  # of the year 9999, the last that a calendar names
_ALIVE = ("PENDING", "PROVISIONING", "STAGING", "RUNNING", "STOPPING", "REPAIRING")


@lru_cache(maxsize=1024)
def attempt_name(backend: str, attempt: str, at: int) -> str:
    """What old readers know an attempt by: `att-20260718-001502-4f1c0e` or `rp-20260718T005510Z-9c1e`.

    `attempt` is its UUID, `at` when its first create was asked for (microseconds).
    """
    digits = attempt.replace("-", "")
    moment = datetime.fromtimestamp(min(max(at // MICROS, 0), _LAST_SECOND), UTC)
    if backend == "gcp":
        return f"att-{moment:%Y%m%d-%H%M%S}-{digits[:6]}"
    return f"rp-{moment:%Y%m%dT%H%M%SZ}-{digits[:4]}"


def phase(machine: Machine) -> tuple[str, int] | None:
    """The phase of an instance as old readers name it, and since when (microseconds); None where it was never seen."""
    status = machine.status
    if machine.backend != "gcp" or status is None:
        return None
    if status == "RUNNING" and machine.phase is not None:
        return machine.phase, max(machine.status_since, machine.phase_at or 0)
    if status in GCE_ENDED:
        return f"terminal_{status.lower()}", machine.status_since
    return status.lower() if status in _ALIVE else f"unknown_{status.lower()}", machine.status_since


def state_word(run: Run) -> str:
    """Where the run stands, one of `STATES`."""
    machine = run.handle_machine()
    if not run.driven:
        return "not_driven"
    # Its end may be decided by what is known, as where its machine was lost, and wait for whatever else the run owes.
    here = current(run)
    if run.closing or end_of(run, here) is not None:
        return "closing"
    # Of two machines of one intent the one that the handle names may go: it follows once the other is launched.
    follows = machine is not None and not machine.open and here is not None and here is not machine
    if run.failover is not None or follows:
        return "failing_over"
    if machine is None:
        return "provisioning" if any(i.open for i in run.tries()) else "unknown"
    if machine.queued:
        return "queued"
    if machine.launched_at is not None:
        return "running"
    coming = machine.backend == "gcp" and machine.status in (None, "PROVISIONING", "STAGING")
    return "provisioning" if coming else "launching"


def content(run: Run, ledger_id: str) -> File | None:
    """The sidecar of `run` but for version, position and checksum; None where it has no handle.

    A run has a handle from its first create on (before a machine is known its ids are empty), none where every create
    so far was refused, and none once it is closed. The value shares parts with `run`: read it, do not change it.
    """
    file = _file(run) if run.open else None
    if file is None:
        return None
    block: dict[str, Any] = {"id": ledger_id, "stream": run.stream, "state": state_word(run)}
    if block["state"] == "failing_over" and run.failover is not None and run.failover.machine:
        block["next"] = run.failover.machine
    return {**file, "extra": {**file["extra"], **_kept(run, run.kept), "ledger": block}}


def _kept(run: Run, keys: Mapping[str, Any]) -> dict[str, Any]:
    # A handle that the ledger does not drive is another program's: there only the ledger's own block is the ledger's.
    owned = OWNED if run.driven else {"ledger"}
    return {key: value for key, value in keys.items() if key not in owned}


def _file(run: Run) -> File | None:
    machine, old = run.handle_machine(), _old(run)
    if machine is not None and run.driven:
        if old is not None and imported.read(old).machine == machine.id:
            return _learned(old, run, machine)
        return _fresh(run, _machine_place(run, machine))
    intent = next((i for i in reversed(run.tries()) if i.open), None)
    if intent is not None and run.driven:
        return _fresh(run, _intent_place(intent))
    return old


def _old(run: Run) -> File | None:
    """The imported file, if it is one: a log may hold what no import of this version would take."""
    old = run.imported
    whole = old is not None and all(key in old for key in TOP) and isinstance(old["extra"], dict)
    return old if whole else None


def _learned(old: File, run: Run, machine: Machine) -> File:
    """The imported file with what the ledger has learned since of the machine that it names."""
    extra = dict(old["extra"])
    if machine.backend == "gcp":
        if machine.model:
            extra["provisioning_model"] = machine.model
        if machine.zone:
            extra["zone"] = machine.zone
        extra.update(_reconnect(machine))
        if max(machine.status_pos, machine.phase_pos) > run.opened_pos:
            clocks = _clocks(machine, old["job_id"])
            if clocks["last_phase"] != extra.get("last_phase") or not _same_moment(clocks, extra):
                extra.update(clocks)
    else:
        extra.update(_launch(run, machine))
        if machine.launched_at is not None:
            extra.pop("workload_start_error", None)
    return {**old, "extra": extra}


def _same_moment(clocks: Mapping[str, Any], extra: Mapping[str, Any]) -> bool:
    # A file's own seconds may have more digits than a microsecond: the same moment keeps its bytes.
    seconds = extra.get("last_phase_change_ts")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return False
    same = extra.get("last_phase_incarnation") == clocks["last_phase_incarnation"]
    return same and abs(seconds - float(clocks["last_phase_change_ts"])) < 1e-5


@dataclass(frozen=True, slots=True)
class _Place:
    """What names a sidecar's machine, known or only asked for. Times are microseconds."""

    backend: str
    name: str
    account: str
    zone: str | None
    model: str | None
    rung: str | None
    attempt: str
    asked_at: int  # when this very create was asked for
    machine: Machine | None = None


def _machine_place(run: Run, machine: Machine) -> _Place:
    intent = run.intents.get((machine.attempt or "", machine.attempt_try))
    return _Place(
        backend=machine.backend,
        name=machine.name,
        account=machine.account,
        zone=machine.zone or machine.handle_zone,
        model=machine.model or machine.handle_model,
        rung=machine.rung,
        attempt=machine.attempt or "",
        asked_at=intent.requested_at if intent else machine.created_at or machine.known_at,
        machine=machine,
    )


def _intent_place(intent: Intent) -> _Place:
    return _Place(
        backend=intent.backend,
        name=intent.name,
        account=intent.account,
        zone=intent.zone,
        model=intent.model,
        rung=intent.rung,
        attempt=intent.attempt,
        asked_at=intent.requested_at,
    )


def _fresh(run: Run, place: _Place) -> File:
    began = min((i.requested_at for i in run.intents.values() if i.attempt == place.attempt), default=place.asked_at)
    attempt = attempt_name(place.backend, place.attempt, began)
    scratch = scratch_dir(place.backend, run.issue)
    sentinel = f"{scratch}/eval_results/issue_{run.issue}/{attempt}/.completion-sentinel.json"
    extra = _pins(run)
    extra["expected_artifacts"] = {**extra["expected_artifacts"], "issue": run.issue, "sentinel_path": sentinel}
    if place.backend == "gcp":
        extra.update(_gcp(run, place, attempt))
    else:
        extra.update(_runpod(run, place, attempt))
    return {
        "backend": place.backend,
        "cluster": None,
        "job_id": _instance_id(place),
        "pod_name": place.name,
        "scratch_dir": scratch,
        "log_path": log_path(run.issue),
        "extra": extra,
    }


def _pins(run: Run) -> dict[str, Any]:
    """What was pinned at the dispatch, or stated by the imported file; with the keys there that nobody knows."""
    file = _old(run)
    old = file["extra"] if file is not None else {}
    given = run.opened or old
    extra = {key: given[key] for key in PINNED if given.get(key)}
    budget = budget_hours(run)
    return {
        **_kept(run, old),
        **extra,
        "issue": run.issue,
        "expected_artifacts": extra.get("expected_artifacts") or {},
        "workload_cmd": given.get("workload_cmd") or "",
        "hydra_args": given.get("hydra_args") or [],
        "gpus": given.get("gpus"),
        "time_budget_hours": budget,
    }


def _instance_id(place: _Place) -> str:
    if place.backend != "gcp" or place.machine is None:
        return ""
    return place.machine.id.rsplit("/", 1)[-1]


def _gcp(run: Run, place: _Place, attempt: str) -> dict[str, Any]:
    machine = place.machine
    asked = place.rung.partition(":")[2] if place.rung else ""
    extra: dict[str, Any] = {
        "project": place.account,
        "zone": place.zone,
        "instance_name": place.name,
        "attempt_id": attempt,
        "provisioning_model": place.model or asked or Policy().default_provisioning_model,
        "gcp_ladder_rung": place.rung,
        "gcp_launched_ts": place.asked_at / MICROS,
        "reconnected": False,
        "per_zone_attempts": _misses(run, place),
    }
    extra = {key: value for key, value in extra.items() if value not in (None, "", [])}
    if run.opened.get("gpus") is not None:
        extra["gpu_count"] = extra["requested_gpus"] = run.opened["gpus"]
    elif (old := _old(run)) is not None and old["extra"].get("gpu_count") is not None:
        extra["gpu_count"] = old["extra"]["gpu_count"]
    if machine is not None:
        extra.update(_reconnect(machine))
        incarnation = _instance_id(place) or f"{attempt}:{extra['gcp_launched_ts']}"
        extra.update(_clocks(machine, incarnation))
    return extra


def _misses(run: Run, place: _Place) -> list[dict[str, Any]]:
    """The zones that refused this attempt before the one that took it."""
    return [
        {
            "zone": i.zone,
            "returncode": 1,
            "matched_pattern": i.cls,
            "elapsed_s": max(0, (i.replied_at or i.requested_at) - i.requested_at) / MICROS,
            "stderr_tail": "",
        }
        for i in run.tries()
        if i.attempt == place.attempt and i.stage == "refused" and i.sent and i.zone
    ]


def _reconnect(machine: Machine) -> dict[str, Any]:
    if not machine.reconnected:
        return {}
    status = machine.status_at_reconnect
    return {"reconnected": True, **({"status_at_reconnect": status} if status else {})}


def _clocks(machine: Machine, incarnation: str) -> dict[str, Any]:
    seen = phase(machine)
    if seen is None:
        return {}
    return {
        "last_phase": seen[0],
        "last_phase_change_ts": seen[1] / MICROS,
        "last_phase_incarnation": incarnation,
    }


def _runpod(run: Run, place: _Place, attempt: str) -> dict[str, Any]:
    machine = place.machine
    extra: dict[str, Any] = {
        "runpod_attempt_id": attempt,
        "pid_file": pid_file(run.issue),
        "workload_executed": False,
    }
    if machine is not None:
        extra["pod_id"] = machine.id.partition(":")[2]
        extra.update(_launch(run, machine))
    return extra


def _launch(run: Run, machine: Machine) -> dict[str, Any]:
    if machine.launched_at is not None:
        return {"workload_executed": True, **({"workload_pid": machine.pid} if machine.pid is not None else {})}
    if machine.launch_failed_at is None:
        return {}
    said = [d.reason for d in run.decisions if d.type == "LaunchFailed" and d.machine == machine.id]
    return {"workload_executed": False, "workload_start_error": said[-1] if said else "launch failed"}


@dataclass(frozen=True)
class Projection:
    """What a stream's sidecar is to be. `text` None: there is to be none.

    `version`, `position` and `since` (recorded_at, microseconds) are those of the event that last changed it.
    """

    name: str
    text: str | None
    version: int
    position: int
    since: int

    @cached_property
    def raw(self) -> bytes | None:
        """The file's bytes."""
        return None if self.text is None else self.text.encode()

    @cached_property
    def sha(self) -> str | None:
        """Their SHA-256, hex."""
        return None if self.text is None else digest(self.text)


class Tracker:
    """Follows one stream event by event, and so knows which event last changed its sidecar's content."""

    def __init__(self, stream: str, ledger_id: str) -> None:
        self.run = Run(stream=stream)
        self._ledger = ledger_id
        self._file: File | None = None
        self._said: bytes | None = None
        self._at = (0, 0, 0)
        self._made: Projection | None = None

    def follow(self, events: Iterable[Event]) -> Tracker:
        """Take in the stream's next events; gives itself."""
        for event in events:
            advance(self.run, event)
            file = content(self.run, self._ledger)
            said = None if file is None else fingerprint(file)
            if said != self._said or self._at[0] == 0:
                self._file, self._said = file, said
                self._at = (event.version, event.position, event.recorded_at)
                self._made = None
        return self

    def projection(self) -> Projection:
        """The sidecar after the events so far. Written out once for each change of its content."""
        if self._made is None:
            version, position, since = self._at
            text = None if self._file is None else render(self._file, version, position)
            self._made = Projection(file_name(self.run.stream), text, version, position, since)
        return self._made


def project(stream: str, events: Iterable[Event], ledger_id: str) -> Projection:
    """The sidecar after all of a stream's events."""
    return Tracker(stream, ledger_id).follow(events).projection()
