"""What the fold makes: a Run with its Intents and Machines, an Account, the Ledger itself.

Times are integer microseconds UTC, positions those of events, costs dollars per hour. A fact that nobody has stated
is None. The objects belong to the fold; readers do not change them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ledger.policy import Policy

GCE_ENDED = frozenset({"TERMINATED", "STOPPED", "SUSPENDED"})
POD_ENDED = frozenset({"EXITED", "TERMINATED", "DEAD"})
ENDED_STATUSES = GCE_ENDED | POD_ENDED
# position, type, stage, attempt, machine, occurred_at, generation
Odd = tuple[int, str, str, str | None, str | None, int, int]
Claim = Literal["ours", "import", "user", "orphan", "name"]


@dataclass(slots=True)
class Intent:
    """A create call: the intent before it, and what came of it."""

    position: int
    generation: int
    attempt: str
    attempt_try: int
    backend: str
    rung: str
    name: str
    account: str
    zone: str | None
    model: str | None
    request_id: str
    holder: str
    requested_at: int
    call_before: int
    deadline: int
    failover: str | None
    stage: str = "none"
    cls: str | None = None  # of the refusal
    sent: bool = True
    replied_at: int | None = None
    resolved_pos: int | None = None
    machines: list[str] = field(default_factory=list)

    @property
    def open(self) -> bool:
        """Whether nobody knows yet what came of it."""
        return self.stage in ("requested", "unresolved")


@dataclass(slots=True)
class Step:
    """A launch or a teardown that was asked for: the newest intent of it."""

    position: int
    requested_at: int
    call_before: int
    deadline: int
    holder: str
    count: int = 1


@dataclass(slots=True)
class Machine:
    """One thing that a cloud bills."""

    id: str
    generation: int
    backend: str
    attempt: str | None = None
    attempt_try: int = 1
    claim: Claim = "ours"
    stage: str = "none"
    name: str = ""
    account: str = ""
    zone: str | None = None
    rung: str | None = None
    requested_model: str | None = None
    model: str | None = None  # observed
    handle_model: str | None = None  # as the handle states them: from what named or re-found the machine
    handle_zone: str | None = None
    handle_ports: str | None = None
    created_at: int | None = None
    known_at: int = 0
    known_pos: int = 0
    adopted: bool = False
    ended_before: bool = False  # it had ended before the ledger knew it
    late: bool = False  # its intent had been concluded to have made nothing
    cost_per_hour: float | None = None
    # what was seen
    status: str | None = None
    status_at: int = 0
    status_pos: int = 0
    status_since: int = 0
    observed: bool = False
    phase: str | None = None
    phase_at: int | None = None
    phase_pos: int = 0
    workload_started: bool | None = None
    ports: str | None = None
    portless_since: int | None = None
    portless_pos: int = 0
    gpus: str = "unknown"
    gpus_pos: int = 0
    gpu_util: int | None = None
    log: str = "unknown"
    log_pos: int = 0
    last_line_at: int | None = None
    pid: int | None = None
    pid_alive: bool | None = None
    suspect: int = 0
    suspects: list[tuple[int, int]] = field(default_factory=list)  # (position, occurred_at) of the row of suspicions
    idles: list[tuple[int, int]] = field(default_factory=list)  # an orphan's idle readings in a row
    observed_pos: int = 0
    stale_at: int | None = None  # the first observation that differs from what the handle states
    stale_pos: int = 0
    unreached_at: int | None = None  # the first of a row of probes that did not reach it
    unreached_pos: int = 0
    # its clocks
    queue_since: int | None = None  # the create was requested; None once it has left PENDING
    queued: bool = False  # PENDING is what was last seen
    past_pending_at: int | None = None
    billed_since: int | None = None
    billed_until: int | None = None
    bound_began: int | None = None
    bound_pos: int = 0
    # its launch and its end
    launch: Step | None = None
    launched_at: int | None = None
    launched_pos: int = 0
    launch_failed_at: int | None = None
    launch_failed_pos: int = 0
    ended_at: int | None = None
    ended_pos: int = 0
    outcome: str | None = None
    exit: int | None = None
    reconnected: bool = False
    status_at_reconnect: str | None = None
    reconnected_ended_at: int | None = None
    reconnected_ended_pos: int = 0
    left_at: int | None = None
    left_pos: int = 0
    left_reason: str | None = None
    teardown: Step | None = None
    teardown_first_at: int | None = None
    teardown_first_pos: int = 0
    teardown_reason: str | None = None
    teardown_failures: int = 0
    teardown_error: str | None = None
    teardown_failed_at: int | None = None
    marker: str | None = None  # an orphan's own, with an intent that the log does not know
    absent_at: int | None = None
    absent_pos: int = 0
    gone_at: int | None = None
    gone_pos: int = 0
    gone_by: str | None = None

    @property
    def open(self) -> bool:
        """Whether it has not been seen to be gone."""
        return self.gone_at is None

    @property
    def owed(self) -> bool:
        """Whether it still has to be seen to be gone. One that had ended before the ledger knew it is left alone."""
        return self.gone_at is None and not (self.ended_before and self.ended_status)

    @property
    def ended_status(self) -> bool:
        """Whether the cloud keeps it but no longer runs it."""
        return self.status in ENDED_STATUSES

    @property
    def billed(self) -> bool:
        """Whether, as far as is known, it is billed now."""
        return self.billed_since is not None and self.billed_until is None and self.gone_at is None


@dataclass(slots=True)
class Failover:
    """A failover under way: from its decision until Repointed, or the run's end."""

    id: str
    reason: str
    from_machine: str | None
    next_rung: str | None
    decided_at: int
    position: int
    base_at: int | None  # newest request or machine of it; None while its machine is queued
    base_pos: int
    machine: str | None = None


@dataclass(slots=True)
class Decision:
    """A decision as it stands in the log, with what it rests on; conduct invariants are queries over these."""

    position: int
    type: str
    attempt: str | None
    machine: str | None
    reason: str
    at: int
    actor: str
    evidence: tuple[int, ...]
    claim: str
    idle_reads: int = 0
    idle_span: int = 0  # microseconds
    probe: str | None = None
    generation: int = 1


@dataclass(slots=True)
class Run:
    """One run's stream. `attempts`, pins, handle and failover are the newest generation's."""

    stream: str
    version: int = 0
    position: int = 0
    hash: str = ""
    generation: int = 0
    stage: str = "none"
    issue: int = 0
    lane: str | None = None
    backend: str | None = None
    driven: bool = True
    opened: dict[str, Any] = field(default_factory=dict)
    opened_at: int = 0
    opened_pos: int = 0
    imported: dict[str, Any] | None = None  # the old sidecar, whole
    import_sha: str | None = None
    relaunchable: bool = True
    ladder: tuple[str, ...] = ()
    ladders: dict[int, tuple[str, ...]] = field(default_factory=dict)  # generation → the rungs that it owes a try
    start_rung: str | None = None
    intents: dict[tuple[str, int], Intent] = field(default_factory=dict)
    machines: dict[str, Machine] = field(default_factory=dict)
    attempts: list[str] = field(default_factory=list)
    handle: str | None = None
    handle_pos: int = 0
    failover: Failover | None = None
    failovers: list[Failover] = field(default_factory=list)
    cancel_at: int | None = None
    cancel_pos: int = 0
    closed_at: int | None = None
    closed_pos: int = 0
    outcome: str | None = None
    reason: str | None = None
    failure_class: str | None = None
    kept: dict[str, Any] = field(default_factory=dict)  # unknown keys that another program wrote
    edited_at: int | None = None
    edited_pos: int = 0
    edited: tuple[str, ...] = ()
    acks: dict[str, int] = field(default_factory=dict)
    host_keys: dict[str, str] = field(default_factory=dict)
    odd: list[Odd] = field(default_factory=list)
    unreadable: list[tuple[int, str]] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    creates: list[int] = field(default_factory=list)  # when calls were asked for

    @property
    def open(self) -> bool:
        """Whether the run itself is not closed."""
        return self.stage == "open"

    @property
    def active(self) -> bool:
        """Not closed, or with a machine or an intent still open."""
        return (
            self.open
            or any(m.owed for m in self.machines.values() if m.claim != "orphan")
            or any(i.open for i in self.intents.values())
        )

    @property
    def closing(self) -> bool:
        """Whether its end is decided: cancelled, its workload ended, its launch failed; what is owed is being done."""
        if not self.open:
            return True
        machine = self.handle_machine()
        last = machine if self.failover is None else self.machines.get(self.failover.machine or "")
        ending = last is not None and last.launched_at is None and last.launch_failed_at is not None
        ended = last is not None and last.ended_at is not None and self.failover is None
        return self.cancel_at is not None or ending or ended

    def mine(self) -> list[Machine]:
        """The machines of this generation, orphans not among them, in the order in which they became known."""
        return [m for m in self.machines.values() if m.generation == self.generation and m.claim != "orphan"]

    def tries(self) -> list[Intent]:
        """The creates of this generation in order."""
        return [i for i in self.intents.values() if i.generation == self.generation]

    def handle_machine(self) -> Machine | None:
        """The machine that the handle names, if it is known."""
        return self.machines.get(self.handle) if self.handle else None


@dataclass(slots=True)
class Account:
    """One account's stream: when it was last read well, and what lies there that no run knows."""

    stream: str
    version: int = 0
    position: int = 0
    hash: str = ""
    backend: str = ""
    account: str = ""
    read_at: int | None = None
    read_pos: int = 0
    complete: bool = False
    complete_at: int | None = None
    complete_pos: int = 0
    machines: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()
    fingerprint: str | None = None
    orphans: dict[str, Machine] = field(default_factory=dict)
    odd: list[Odd] = field(default_factory=list)
    unreadable: list[tuple[int, str]] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)


@dataclass(slots=True)
class LedgerState:
    """The ledger's own stream: its id, its policy, what a person has acknowledged."""

    stream: str = "ledger"
    version: int = 0
    position: int = 0
    hash: str = ""
    id: str = ""
    created_at: int = 0
    policy: Policy = field(default_factory=Policy)
    policies: list[tuple[int, int, Policy]] = field(default_factory=list)  # position, recorded_at, as of then
    acks: dict[str, int] = field(default_factory=dict)
    odd: list[Odd] = field(default_factory=list)
    unreadable: list[tuple[int, str]] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)


State = Run | Account | LedgerState
