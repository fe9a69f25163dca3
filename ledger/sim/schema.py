"""What a scenario says, as frozen values. Times are integer microseconds after the scenario's start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger.policy import Policy

PROJECT = "example-gpu-project"
ACCOUNT_RUNPOD = "example-runpod-account"
OTHER_ACCOUNT = "another-account"

CLOUDS = ("gcp", "runpod")
CALLS = ("create", "describe", "list", "delete", "launch", "probe", "guest_attributes")
CALLS_OF = {
    "gcp": ("create", "describe", "list", "delete", "probe", "guest_attributes"),
    "runpod": ("create", "describe", "list", "delete", "launch", "probe"),
}
ANSWERS = (
    "ok",
    "no_capacity",
    "quota",
    "unauthorized",
    "already_exists",
    "not_found",
    "error",
    "timeout",
    "reset",
    "malformed",
    "empty",
    "partial",
    "stale",
    "other_account",
)
LIST_ANSWERS = ("empty", "partial", "stale")
EFFECTS = ("none", "done", "twice")
MODELS = ("STANDARD", "SPOT", "FLEX_START")
GCE_STATUSES = (
    "PENDING",
    "PROVISIONING",
    "STAGING",
    "RUNNING",
    "PENDING_STOP",
    "STOPPING",
    "STOPPED",
    "TERMINATED",
    "SUSPENDING",
    "SUSPENDED",
    "REPAIRING",
    "DEPROVISIONING",
)
POD_STATUSES = ("RUNNING", "EXITED")
STATUSES = {"gcp": GCE_STATUSES, "runpod": POD_STATUSES}
MARKERS = ("none", "ours", "other")
EVENT_TYPES = (
    "RunOpened",
    "HandleImported",
    "ProvisionRequested",
    "ProvisionRefused",
    "ProvisionUnresolved",
    "Provisioned",
    "MachineObserved",
    "AbsenceObserved",
    "ReconnectObserved",
    "LaunchRequested",
    "LaunchConfirmed",
    "LaunchFailed",
    "WorkloadEnded",
    "FailoverDecided",
    "Repointed",
    "TeardownRequested",
    "TeardownFailed",
    "TornDown",
    "OrphanObserved",
    "CancelRequested",
    "RunClosed",
    "SidecarEdited",
    "InventoryRead",
    "HostKeyPinned",
    "BreachAcknowledged",
    "PolicyChanged",
    "LedgerCreated",
)
INVARIANTS = (
    "unlaunched-machine",
    "dangling-handle",
    "failover-overdue",
    "unledgered-machine",
    "double-billing",
    "teardown-unconfirmed",
    "queue-overdue",
    "stale-fact",
    "stalled-run",
    "done-but-billing",
    "unwatched",
    "lossy-projection",
    "log-broken",
    "attempt-leak",
    "thin-evidence",
    "skipped-rung",
    "foreign-touch",
    "unprobed-failure",
    "illegal-transition",
)
SIDECAR_KEYS = ("backend", "cluster", "job_id", "pod_name", "scratch_dir", "log_path", "extra")
RUN_STATES = ("active", "finished", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Poll:
    """When the pollers tick: at `every`, 2 x `every`, ... up to and including `until`, except while `off`."""

    every: int = 60_000_000
    until: int = 3_600_000_000
    pollers: int = 1
    off: tuple[tuple[int, int], ...] = ()

    def sleeps(self, when: int) -> bool:
        """Whether nobody polls then: from <= t < to of a pair."""
        return any(begin <= when < end for begin, end in self.off)


@dataclass(frozen=True, slots=True)
class Dispatch:
    """What the user runs; None: left out. `gpus` and the command may be left out by a re-run only."""

    at: int
    issue: int
    lane: str | None
    backend: str
    provisioning_model: str | None = None
    zone: str | None = None
    gpu_type: str | None = None
    gpus: int | None = None
    workload_cmd: str | None = None
    hydra_args: tuple[str, ...] = ()
    env_pins: Mapping[str, str] = field(default_factory=dict)
    time_budget_hours: float | None = None
    allow_paid_fallback: bool | None = None


@dataclass(frozen=True, slots=True)
class UserCommand:
    """A `ledger cancel` or `ledger finalize`."""

    at: int
    issue: int
    lane: str | None


@dataclass(frozen=True, slots=True)
class Changes:
    """What a row sets on a machine. A key stands in `fields` only where the row names it.

    phase str|None, workload_started bool, gpu_util int|None, log_age float|None, ports bool, pid `alive`|`dead`,
    reachable bool.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MachineRow:
    """A machine that no create call made: one of `machines` or of an `appears` row."""

    cloud: str
    name: str
    created: int
    id: str | None = None
    zone: str | None = None
    status: str | None = None
    provisioning_model: str | None = None
    gpu_type: str | None = None
    gpus: int | None = None
    marker: str = "none"
    workload: bool = False
    changes: Changes = field(default_factory=Changes)


@dataclass(frozen=True, slots=True)
class WorldRow:
    """What happens by itself: to the machine of that name or id, or `appears`: a new one."""

    at: int
    cloud: str
    name: str | None = None
    id: str | None = None
    becomes: str | None = None
    appears: MachineRow | None = None
    changes: Changes = field(default_factory=Changes)


@dataclass(frozen=True, slots=True)
class Effect:
    """How often a call that answered otherwise than `ok` was carried out all the same, and how much later."""

    times: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class CallRule:
    """How a cloud answers. `begin` <= t < `end`; None: no such selector."""

    cloud: str
    call: str
    answer: str = "ok"
    name: str | None = None
    zone: str | None = None
    nth: int | None = None
    times: int | None = None
    begin: int | None = None
    end: int | None = None
    http: int = 500
    effect: Effect = field(default_factory=Effect)
    takes: int = 0
    lag: int = 60_000_000
    status: str | None = None
    provisioning_model: str | None = None


@dataclass(frozen=True, slots=True)
class WorkloadRule:
    """What a workload does on the `nth` machine of a cloud (None: on every one)."""

    cloud: str
    does: str
    nth: int | None = None
    after: int | None = None
    runs: int = 3_600_000_000
    exit: int = 0


@dataclass(frozen=True, slots=True)
class Crash:
    """Where a process dies: `point` is `before-call`, `after-call`, `after-event` or `during-projection`."""

    point: str
    nth: int = 1
    cloud: str | None = None
    call: str | None = None
    type: str | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """Poller `poller` stands still for `lasts` before the `nth` such call on that cloud."""

    poller: int
    cloud: str
    call: str
    lasts: int
    nth: int = 1


@dataclass(frozen=True, slots=True)
class ClockJump:
    """The wall clock of `poller` jumps by `by` (it may be negative)."""

    at: int
    poller: int
    by: int


@dataclass(frozen=True, slots=True)
class EventMatch:
    """An event of that type whose payload holds at least `fields`."""

    type: str
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Expectation:
    """One line of `expect`: a key of the contract's table (`audit` gives one for each of its words)."""

    key: str
    value: Any
    line: int


@dataclass(frozen=True, slots=True)
class Scenario:
    """One file, checked. `start` is microseconds since the epoch; `sidecars` maps file names to JSON objects."""

    file: str
    name: str
    about: str
    start: int
    policy: Policy
    policy_values: Mapping[str, Any]
    poll: Poll
    zones: tuple[str, ...]
    dispatches: tuple[Dispatch, ...]
    cancels: tuple[UserCommand, ...]
    finalizes: tuple[UserCommand, ...]
    sidecars: Mapping[str, Mapping[str, Any]]
    machines: tuple[MachineRow, ...]
    calls: tuple[CallRule, ...]
    world: tuple[WorldRow, ...]
    workloads: tuple[WorkloadRule, ...]
    crashes: tuple[Crash, ...]
    pauses: tuple[Pause, ...]
    clocks: tuple[ClockJump, ...]
    expect: tuple[Expectation, ...]
