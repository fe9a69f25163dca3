"""What the clouds say, as values.

Times are integer microseconds UTC, costs dollars per hour, log ages seconds, GPU use percent.
`Unknown` means that nothing was learned; it is never an absence.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Seen:
    """One machine as a cloud shows it. `machine` is `gcp:<project>/<zone>/<id>` or `runpod:<pod id>`."""

    machine: str
    backend: str
    account: str
    name: str
    status: str
    zone: str | None = None
    created_at: int | None = None
    provisioning_model: str | None = None
    marker: str | None = None
    cost_per_hour: float | None = None
    ports: str | None = None  # "host:port" of SSH; None: the cloud shows none
    gpu_util: int | None = None  # the busiest GPU; None: not told
    gpus: int | None = None
    keep_running: bool = False  # KEEP_RUNNING=1 in its environment
    had_runtime: bool = False  # it has ever had a runtime
    labels: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listing:
    """What one list of an account said. `complete` only when every page and zone answered."""

    account: str
    complete: bool
    machines: tuple[Seen, ...] = ()
    unreachable: tuple[str, ...] = ()
    fingerprint: str | None = None  # of the key that read it, never the key
    server_time: int | None = None  # the cloud's own `Date`


@dataclass(frozen=True, slots=True)
class Absent:
    """A good read that did not find it, under `account`."""

    account: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A read that failed: nothing was learned. `error` is a class: timeout, reset, http_503, malformed, ..."""

    error: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The cloud did it, and for a create says which machine it is."""

    seen: Seen | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The cloud said no; surely nothing was made. Classes as in `ProvisionRefused`.

    `unsent`: the last moment had passed before the call went out, so nothing was sent.
    """

    cls: str
    message: str = ""
    unsent: bool = False


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A call whose outcome nobody knows: time-out, 5xx, reset, a malformed answer."""

    error: str
    message: str = ""
    operation: str | None = None


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """A launch step. Idempotent on the machine: asked twice, one process."""

    run: str
    attempt: str
    command: str
    log_path: str
    pid_file: str
    env: dict[str, str] = field(default_factory=dict)
    branch: str | None = None
    secrets: tuple[str, ...] = ()  # names of variables of the poller's own environment


@dataclass(frozen=True, slots=True)
class CreateSpec:
    """What a create asks for. `marker` is `<ledger id>.<stream>.<attempt>.<try>`."""

    name: str
    rung: str
    zone: str | None
    provisioning_model: str | None
    gpu_type: str | None
    gpus: int | None
    marker: str
    request_id: str
    intent: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    workload: str | None = None
    launch: LaunchSpec | None = None  # what a start-up script runs (GCP); None: nothing
    fence_hours: float = 168.0


@dataclass(frozen=True, slots=True)
class Guest:
    """Guest attributes of an instance; None: not set."""

    phase: str | None
    workload_started: bool | None


@dataclass(frozen=True, slots=True)
class Probe:
    """What a probe over SSH read. None: that part could not be told."""

    pid: int | None
    pid_alive: bool | None
    log_bytes: int | None
    log_age: float | None
    done: bool  # `[phase=done]` stands in the log
    gpu_util: int | None
    exit: int | None = None
    excerpt: str = ""
