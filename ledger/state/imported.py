"""What an old sidecar says about its machine: pure readings of a handle file, none of them a cloud's word.

Facts and their sources: the keys of the file as its programs wrote them. A recorded phase counts as an observation
only where its incarnation is that of the machine which the file names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ledger.moments import MICROS
from ledger.policy import GCP_FLEX

DRIVEN_BACKENDS = ("gcp", "runpod")
_GCP_ATTEMPT = re.compile(r"^att-(\d{8})-(\d{6})")
_POD_ATTEMPT = re.compile(r"^rp-(\d{8})T(\d{6})Z")
# What a cloud calls its machines. A file may say anything; what is none of these never becomes part of a request.
_PROJECT = re.compile(r"[a-z0-9.:-]+")
_ZONE = re.compile(r"[a-z][a-z0-9-]*")
_INSTANCE = re.compile(r"[0-9]+")
_POD = re.compile(r"[A-Za-z0-9_-]+")
# Guest phases that only a launched workload has.
WORKLOAD_PHASES = ("workload", "done", "finalize_failed_artifacts_ok")


@dataclass(frozen=True, slots=True)
class OldHandle:
    """What can be known from one file. Times are microseconds UTC."""

    backend: str
    machine: str | None
    account: str
    name: str
    zone: str | None
    model: str | None
    rung: str | None
    started_at: int | None  # when its create was asked for
    status: str | None  # as an observation, if it counts as one
    status_at: int | None
    phase: str | None
    launched: bool
    pid: int | None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _stamp(pattern: re.Pattern[str], value: Any) -> int | None:
    match = pattern.match(value) if isinstance(value, str) else None
    if match is None:
        return None
    try:
        moment = datetime.strptime("".join(match.groups()), "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(moment.timestamp()) * MICROS


def _micros(seconds: float | None) -> int | None:
    return round(seconds * MICROS) if seconds is not None and 0 <= seconds < 1e11 else None


def read(file: dict[str, Any], project: str = "") -> OldHandle:
    """The facts of one handle file, which has the seven keys. `project`: that of a GCP handle which names none."""
    extra = file.get("extra") if isinstance(file.get("extra"), dict) else {}
    assert isinstance(extra, dict)
    backend = str(file.get("backend") or "")
    job = _text(file.get("job_id"))
    if backend == "gcp":
        return _gcp(file, extra, job, project)
    if backend == "runpod":
        return _runpod(file, extra)
    return OldHandle(
        backend=backend,
        machine=None,
        account=_text(file.get("cluster")) or "",
        name=str(file.get("pod_name") or ""),
        zone=None,
        model=None,
        rung=None,
        started_at=None,
        status=None,
        status_at=None,
        phase=None,
        launched=False,
        pid=None,
    )


def _gcp(file: dict[str, Any], extra: dict[str, Any], job: str | None, default: str) -> OldHandle:
    zone = _text(extra.get("zone"))
    project = _text(extra.get("project")) or default
    known = bool(_INSTANCE.fullmatch(job or "") and _ZONE.fullmatch(zone or "") and _PROJECT.fullmatch(project))
    launched_ts = _number(extra.get("gcp_launched_ts"))
    incarnation = job or f"{extra.get('attempt_id')}:{launched_ts}"
    counts = extra.get("last_phase_incarnation") == incarnation
    phase = _text(extra.get("last_phase")) if counts else None
    status: str | None = None
    at = _micros(_number(extra.get("last_phase_change_ts"))) if counts else None
    if phase is not None:
        status = phase.upper() if phase in ("pending", "provisioning", "staging") else "RUNNING"
        if phase.startswith("terminal_"):
            status = None
    elif known and extra.get("reconnected") is True:
        # The re-run's own describe, written beside the wrong model: the status was read, the model was not.
        status = _text(extra.get("status_at_reconnect"))
    model = _text(extra.get("provisioning_model"))
    # Which rung is not known until the cloud says the model, which it no longer does of an instance that is gone; but
    # what was seen to wait was in the queue, and only FLEX_START queues, whatever the file asked for.
    rung = GCP_FLEX if status == "PENDING" else f"gcp:{model}" if model else None
    return OldHandle(
        backend="gcp",
        machine=f"gcp:{project}/{zone}/{job}" if known else None,
        account=project,
        name=str(file.get("pod_name") or ""),
        zone=zone,
        model=model,
        rung=rung,
        started_at=_micros(launched_ts) or _stamp(_GCP_ATTEMPT, extra.get("attempt_id")),
        status=status,
        status_at=at,
        phase=phase if status == "RUNNING" and phase != "running" else None,
        launched=phase in WORKLOAD_PHASES,
        pid=None,
    )


def _runpod(file: dict[str, Any], extra: dict[str, Any]) -> OldHandle:
    pod = _text(extra.get("pod_id"))
    pid = extra.get("workload_pid")
    return OldHandle(
        backend="runpod",
        machine=f"runpod:{pod}" if pod and _POD.fullmatch(pod) else None,
        account="",
        name=str(file.get("pod_name") or ""),
        zone=None,
        model=None,
        rung="runpod",
        started_at=_stamp(_POD_ATTEMPT, extra.get("runpod_attempt_id")),
        status=None,
        status_at=None,
        phase=None,
        launched=extra.get("workload_executed") is True and isinstance(pid, int),
        pid=pid if isinstance(pid, int) and not isinstance(pid, bool) else None,
    )
