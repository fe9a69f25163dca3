"""The payload of every event, validated by pydantic at the append and at the import.

One model a type; `MODELS` is the union discriminated by the envelope's `type`. Unknown fields are refused, so that
nothing enters the log that no reader knows. Times are integer microseconds UTC, costs dollars per hour, ages
seconds. Keys that are Python words bear their name as an alias (`class`, `from`, `try`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ledger.errors import EventError
from ledger.events import KINDS, Draft

Refusal = Literal["capacity", "quota", "unauthorized", "invalid", "name_taken", "cap", "absent"]
Reason = Literal[
    "queue_timeout",
    "queue_vanish",
    "workload_failed",
    "wedged",
    "boot_death",
    "boot_loop",
    "no_port",
    "taken",
    "lost",
]
Lane = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,43}$")]
Positions = list[int]
Micros = Annotated[int, Field(ge=0)]


class Payload(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True, serialize_by_alias=True)


class Lease(Payload):
    """An intent's lease: who holds it, until when the call may be sent, by when it must have returned."""

    holder: str
    call_before: Micros
    deadline: Micros


class RunOpened(Payload):
    issue: Annotated[int, Field(ge=0)]
    lane: Lane | None = None
    workload_cmd: str = ""
    hydra_args: list[str] = []
    gpus: Annotated[int, Field(ge=0)] | None = None
    gpu_type: str | None = None
    intent: str | None = None
    env_pins: dict[str, str] = {}
    expected_artifacts: dict[str, Any] = {}
    time_budget_hours: Annotated[float, Field(gt=0)] | None = None
    repo_branch: str | None = None
    allow_paid_fallback: bool = True
    ladder: list[str]
    owner: str | None = None
    rung: str
    zone: str | None = None
    boot_disk_gb: int | None = None
    min_ram_gb: int | None = None
    secrets: list[str] = []


class HandleImported(Payload):
    issue: Annotated[int, Field(ge=0)]
    lane: Lane | None = None
    file: str
    path: str
    mtime: Micros
    sha256: str
    relaunchable: bool
    redacted: bool = False
    ladder: list[str] = []


class ProvisionRequested(Lease):
    backend: Literal["gcp", "runpod"]
    rung: str
    name: str
    account: str
    zone: str | None = None
    provisioning_model: str | None = None
    attempt_try: Annotated[int, Field(ge=1, alias="try")] = 1
    request_id: str


class ProvisionRefused(Payload):
    cls: Refusal = Field(alias="class")
    message: str = ""
    zone: str | None = None
    attempt_try: Annotated[int, Field(ge=1, alias="try")] = 1
    sent: bool = True
    evidence: Positions = []


class ProvisionUnresolved(Payload):
    error_class: str
    message: str = ""
    operation: str | None = None
    attempt_try: Annotated[int, Field(ge=1, alias="try")] = 1


class Provisioned(Payload):
    backend: str
    name: str
    zone: str | None = None
    account: str
    requested_model: str | None = None
    provisioning_model: str | None = None
    created_at: Micros | None = None
    cost_per_hour: Annotated[float, Field(ge=0)] | None = None
    adopted: bool = False
    matched_by: Literal["reply", "marker", "name", "user", "import"] = "reply"
    attempt_try: Annotated[int, Field(ge=1, alias="try")] = 1
    status: str | None = None
    ports: str | None = None


class MachineObserved(Payload):
    status: str | None = None
    phase: str | None = None
    workload_started: bool | None = None
    ports: str | None = None
    gpu_util: int | None = None
    gpus: Literal["idle", "busy", "unknown"] = "unknown"
    log: Literal["fresh", "stale", "none", "unknown"] = "unknown"
    log_age: float | None = None
    log_bytes: int | None = None
    pid: int | None = None
    pid_alive: bool | None = None
    source: str
    suspect: Annotated[int, Field(ge=0)] = 0
    reachable: bool | None = None
    provisioning_model: str | None = None
    zone: str | None = None
    cost_per_hour: float | None = None


class AbsenceObserved(Payload):
    scope: Literal["describe", "full_list", "both"]
    account: str
    age_seconds: float | None = None


class ReconnectObserved(Payload):
    status: str | None = None
    zone: str | None = None
    provisioning_model: str | None = None
    labels: dict[str, str] = {}
    created_at: Micros | None = None
    ports: str | None = None


class LaunchRequested(Lease):
    method: str
    log_path: str
    pid_file: str


class LaunchConfirmed(Payload):
    pid: int | None = None
    log_path: str | None = None
    log_bytes: int | None = None
    gpu_util: int | None = None
    source: Literal["probe", "guest", "user", "import"]


class LaunchFailed(Payload):
    reason: str
    probe: str | None = None
    evidence: Positions = []


class WorkloadEnded(Payload):
    outcome: Literal["done", "crashed", "finalize_failed"]
    exit: int | None = None
    evidence: Positions = []


class FailoverDecided(Payload):
    reason: Reason
    from_: str | None = Field(alias="from")
    next_rung: str | None = None
    evidence: Positions = []


class Repointed(Payload):
    from_: str | None = Field(alias="from")
    to: str


class TeardownRequested(Lease):
    reason: str
    evidence: Positions = []


class TeardownFailed(Payload):
    error_class: str
    count: Annotated[int, Field(ge=1)]
    message: str = ""


class TornDown(Payload):
    by: Literal["ledger", "external", "never_materialised"]
    evidence: Positions = []


class OrphanObserved(Payload):
    backend: str
    account: str
    name: str
    status: str
    zone: str | None = None
    cost_per_hour: float | None = None
    marker: str | None = None
    gpu_util: int | None = None
    workload: bool | None = None
    created_at: Micros | None = None


class CancelRequested(Payload):
    by: str | None = None


class RunClosed(Payload):
    outcome: Literal["finished", "failed", "cancelled"]
    reason: str
    failure_class: Literal["infra", "code"] | None = None
    evidence: Positions = []


class SidecarEdited(Payload):
    added: dict[str, Any] = {}
    changed: dict[str, Any] = {}


class InventoryRead(Payload):
    backend: str
    account: str
    complete: bool
    unreachable: list[str] = []
    machines: list[str] = []
    fingerprint: str | None = None


class HostKeyPinned(Payload):
    key: str


class BreachAcknowledged(Payload):
    breach: str
    note: str = ""


class PolicyChanged(Payload):
    policy: dict[str, Any]
    changed: list[str]


class LedgerCreated(Payload):
    ledger: str
    policy: dict[str, Any]
    version: str


MODELS: dict[str, type[Payload]] = {
    name: value for name, value in list(globals().items()) if name in KINDS and isinstance(value, type)
}
# What `model_validate` and `model_dump` call in the end.
VALIDATORS: dict[str, Callable[[Any], Any]] = {
    name: model.__pydantic_validator__.validate_python for name, model in MODELS.items()
}
SERIALIZERS: dict[str, Callable[..., dict[str, Any]]] = {
    name: model.__pydantic_serializer__.to_python for name, model in MODELS.items()
}


def validate(draft: Draft) -> dict[str, Any]:
    """The payload of `draft` as it is to be stored: every field of its model, defaults left out where None or empty.

    Raises EventError naming the event and the first field that is wrong.
    """
    kind = KINDS.get(draft.type)
    if kind is None:
        raise EventError(f"there is no event type {draft.type!r}")
    if kind.attempt and not draft.attempt:
        raise EventError(f"{draft.type} must name its attempt")
    if kind.machine and not draft.machine:
        raise EventError(f"{draft.type} must name its machine")
    try:
        model = VALIDATORS[draft.type](dict(draft.payload))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise EventError(f"{draft.type}: {where or 'payload'}: {first['msg']}") from None
    return SERIALIZERS[draft.type](model, by_alias=True)
