"""Old sidecars into the log: each file that is whole is taken over by one event, each other is refused with its reason.

Nothing in a file is believed to be a cloud's word (see `ledger.state.imported`); the file itself is kept in the event
as it was, but for secrets. A second import appends nothing and touches no file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ledger import secrets
from ledger.errors import Conflict, EventError
from ledger.events import Draft
from ledger.log.store import Log
from ledger.policy import Policy
from ledger.projections import disk, handle_file
from ledger.source import Source, uuid4
from ledger.state import imported
from ledger.state.model import Run

if TYPE_CHECKING:
    from ledger.projections.files import SidecarFolder

_RETIRED: Final = ".finalized"
_LATEST: Final = (1 << 53) - 1  # what JSON can carry; a file's time may be anything


@dataclass(slots=True)
class Report:
    """What came of each file, in the order in which they were looked at; `redacted` are those of `taken` that held a
    secret, and so cannot be launched again."""

    taken: list[Path] = field(default_factory=list)
    left: list[Path] = field(default_factory=list)
    refused: list[tuple[Path, str]] = field(default_factory=list)
    redacted: list[Path] = field(default_factory=list)


Word = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]
Number = Annotated[float, Field(ge=0)]


class Artifacts(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)
    issue: Count | None = None
    sentinel_path: str | None = None


class Extra(BaseModel):
    """What the ledger reads of `extra`. Keys that nobody knows may stand here, and only here."""

    model_config = ConfigDict(extra="allow", strict=True)
    issue: Count
    intent: str | None = None
    expected_artifacts: Artifacts | None = None
    workload_cmd: str | None = None
    hydra_args: list[str] | None = None
    gpus: Count | None = None
    time_budget_hours: Number | None = None
    repo_branch: str | None = None
    boot_disk_gb: Count | None = None
    min_ram_gb: Count | None = None
    env_pins: dict[str, str] | None = None
    project: str | None = None
    zone: str | None = None
    instance_name: str | None = None
    attempt_id: str | None = None
    provisioning_model: str | None = None
    gpu_count: Count | None = None
    reconnected: bool | None = None
    status_at_reconnect: str | None = None
    gcp_launched_ts: Number | None = None
    last_phase: str | None = None
    last_phase_change_ts: Number | None = None
    last_phase_incarnation: str | None = None
    pod_id: str | None = None
    runpod_attempt_id: str | None = None
    workload_executed: bool | None = None
    workload_pid: Count | None = None


class Handle(BaseModel):
    """The seven keys that an old file has, and no other."""

    model_config = ConfigDict(extra="forbid", strict=True)
    backend: Word
    cluster: str | None
    job_id: str
    pod_name: Word
    scratch_dir: str
    log_path: str
    extra: Extra


class Refused(ValueError):
    """The file is not taken over; the message says why, in one line."""


@dataclass(frozen=True, slots=True)
class _Old:
    stream: str
    issue: int
    lane: str | None
    raw: bytes
    file: dict[str, Any]
    text: str
    sha256: str
    mtime: int
    redacted: bool
    machine: str | None


def import_paths(
    log: Log,
    sidecars: SidecarFolder | None,
    source: Source,
    policy: Policy,
    paths: Iterable[str | Path],
    progress: Callable[[int, int], Any] | None = None,
    project: str = "",
) -> Report:
    """Take over the handle files at `paths`, or in the folders among them; then write their projections.

    A run that the log has already is left alone. `project` is that of a GCP handle which names none.
    `progress(done, total)` is told after each file. Raises StorageError where the log or the sidecar folder refuses;
    what was taken over by then stands.
    """
    report = Report()
    files = [file for path in paths for file in _files(Path(path), report)]
    streams: list[str] = []
    for done, path in enumerate(files, 1):
        try:
            old = _read(path, policy, project)
            if _take(log, sidecars, source, policy, path, old):
                report.taken.append(path)
                streams.append(old.stream)
                if old.redacted:
                    report.redacted.append(path)
            else:
                report.left.append(path)
        except Refused as refusal:
            report.refused.append((path, str(refusal)))
        if progress is not None:
            progress(done, len(files))
    if sidecars is not None and streams:
        sidecars.project(log, streams)
    return report


def _files(path: Path, report: Report) -> list[Path]:
    """The handle files that a path stands for: itself, or those in the folder that it names, sorted."""
    try:
        if path.is_dir():
            return sorted(path.glob("issue-*-handle.json"))
    except OSError as error:
        report.refused.append((path, f"cannot be read: {error.strerror}"))
        return []
    return [path]


def _read(path: Path, policy: Policy, project: str) -> _Old:
    stream = handle_file.stream_of(path.name)
    if stream is None:
        raise Refused(
            "is a retired handle; rename it to take it over"
            if _RETIRED in path.name
            else "is not named issue-<N>-handle.json or issue-<N>-<lane>-handle.json"
        )
    found = disk.look(path)
    if found.nothing:
        raise Refused("is not there")
    if found.broken is not None or found.file is None or found.raw is None:
        raise Refused(found.broken or "is no handle")
    _validate(found.file)
    numbers = re.fullmatch(r"issue-(\d+)(?:-(.+))?", stream)
    assert numbers is not None
    issue, lane = int(numbers[1]), numbers[2]
    _is_of(found.file, issue, lane, policy)
    text = found.raw.decode()
    clean = secrets.redact_all(found.file)
    redacted = clean != found.file
    return _Old(
        stream=f"issue-{issue}-{lane}" if lane else f"issue-{issue}",
        issue=issue,
        lane=lane,
        raw=found.raw,
        file=clean,
        text=handle_file.dump(clean) if redacted else text,
        sha256=hashlib.sha256(found.raw).hexdigest(),
        mtime=min(max(found.mtime or 0, 0), _LATEST),
        redacted=redacted,
        machine=imported.read(clean, project).machine,
    )


def _is_of(file: dict[str, Any], issue: int, lane: str | None, policy: Policy) -> None:
    """Refused unless the issue and lane of the file's name are those inside it."""
    inside = file["extra"]["issue"]
    if inside != issue:
        raise Refused(f"is named for issue {issue}, and the issue inside it is {inside}")
    pattern = {"gcp": policy.name_gcp, "runpod": policy.name_runpod}.get(file["backend"])
    if pattern is None:
        return
    shape = re.escape(pattern).replace(r"\{issue\}", r"(?P<issue>\d+)").replace(r"\{\-lane\}", r"(?:-(?P<lane>.+))?")
    named = re.fullmatch(shape, file["pod_name"])
    if named is None:
        return  # a name that a person chose
    if int(named["issue"]) != issue:
        raise Refused(f"is named for issue {issue}, and its machine {file['pod_name']} is of issue {named['issue']}")
    suffix = named.groupdict().get("lane")
    # Pods of a lane may bear their issue's name alone.
    if suffix != lane and not (file["backend"] == "runpod" and suffix is None):
        raise Refused(f"is named for lane {lane or '(none)'}, and its machine {file['pod_name']} is of another")


def _take(log: Log, sidecars: SidecarFolder | None, source: Source, policy: Policy, path: Path, old: _Old) -> bool:
    """Append the take-over. False where the log has the run, or has had this very file. Raises Refused."""
    ours = _is_ours(log, old)
    while True:
        run = log.run(old.stream)
        if run.open or (run.version and (ours or _had(log, run, old))):
            return False
        if ours:
            raise Refused("was written by this ledger, whose log has no such run: was an older copy of it restored?")
        if run.unreadable:
            raise Refused(f"the log of {old.stream} holds an event that this version does not know: use a newer one")
        _is_free(log, old)
        _is_no_other(sidecars, path, old)
        try:
            event = _event(sidecars, source, policy, path, old)
            # Asked again under the write lock: of two runs that name one machine, only one is taken over.
            log.append(old.stream, run.version, [event], only_if=lambda: _is_free(log, old))
        except Conflict:
            continue
        except EventError as error:
            raise Refused(str(error)) from None
        return True


def _is_ours(log: Log, old: _Old) -> bool:
    """Whether this ledger wrote the file. Raises Refused where another did."""
    if "ledger" not in old.file["extra"]:
        return False
    block = handle_file.block_of(old.file)
    if block is None:
        raise Refused("has an extra.ledger that no ledger wrote; remove it first")
    if block["id"] != log.ledger_id():
        raise Refused(f"belongs to the ledger {block['id']}; take it over there, or remove its extra.ledger first")
    return True


def _had(log: Log, run: Run, old: _Old) -> bool:
    """Whether the log knows already what this file tells: its machine, or the file itself."""
    if old.machine in run.machines:
        return True
    events = (event for event in log.read(old.stream) if event.type == "HandleImported")
    return any(event.data()["sha256"] == old.sha256 for event in events)


def _is_free(log: Log, old: _Old) -> None:
    """Refused where its machine is another run's."""
    machine = old.machine
    rows = log.connection.query(
        "SELECT stream FROM machines WHERE machine = :machine AND stream <> :stream AND gone_at IS NULL"
        " AND claim <> 'orphan' ORDER BY stream",
        {"machine": machine, "stream": old.stream},
    )
    if rows:
        raise Refused(f"names the machine {machine}, which is that of {rows[0][0]}")


def _is_no_other(sidecars: SidecarFolder | None, path: Path, old: _Old) -> None:
    """Refused where the sidecar folder holds another handle of this run."""
    if sidecars is None:
        return
    there = sidecars.path_of(old.stream)
    lies = disk.look(there)
    if there != path.absolute() and not lies.nothing and lies.raw != old.raw:
        raise Refused(f"differs from {there}, which lies in the sidecar folder: take over that one, or move it away")


def _event(sidecars: SidecarFolder | None, source: Source, policy: Policy, path: Path, old: _Old) -> Draft:
    extra = old.file["extra"]
    # Exactly one of the two, or nobody knows what to launch.
    launchable = bool(extra.get("workload_cmd")) is not bool(extra.get("hydra_args"))
    absolute = path.absolute()
    # Within the sidecar folder by its name alone: the folder may move, and a rehearsal's is another each time.
    inside = sidecars is not None and absolute.parent == sidecars.path
    payload = {
        "issue": old.issue,
        "lane": old.lane,
        "file": old.text,
        "path": absolute.name if inside else str(absolute),
        "mtime": old.mtime,
        "sha256": old.sha256,
        "relaunchable": launchable and old.file["backend"] in imported.DRIVEN_BACKENDS and not old.redacted,
        "redacted": old.redacted,
        "ladder": list(policy.ladder),
    }
    machine = old.machine
    return Draft("HandleImported", payload, source.now(), actor="import", attempt=uuid4(source), machine=machine)


def _validate(file: dict[str, Any]) -> None:
    """Refused, naming what is wrong first, unless `file` is what its readers take."""
    try:
        Handle.model_validate(file)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False)
        missing = [str(one["loc"][-1]) for one in errors if one["type"] == "missing"]
        if missing:
            raise Refused(f"lacks {', '.join(missing)}") from None
        first = errors[0]
        where = ".".join(str(part) for part in first["loc"])
        what = "is no key of a handle" if first["type"] == "extra_forbidden" else first["msg"]
        raise Refused(f"{where}: {what}") from None
