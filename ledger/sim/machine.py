"""One simulated machine: what it is, its states in time, and what a cloud or a probe reads from a state.

Times are integer microseconds after the scenario's start. States are frozen and kept with the moment from which
they held, so that a stale list is a look-up and a bill is a sum.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger.clouds.values import Guest, Probe, Seen
from ledger.moments import MICROS
from ledger.sim.schema import ACCOUNT_RUNPOD, PROJECT

PORT_AFTER = 30 * MICROS
BUSY = 90
UNBILLED = frozenset({"TERMINATED", "STOPPED", "EXITED"})
NOT_YET_BILLED = frozenset({"PENDING", "PROVISIONING", "STAGING", "SUSPENDED"})
DOLLARS = {  # an hour and GPU: on an instance, in a pod
    "H200": (10.60, 3.59),
    "H100": (8.80, 2.99),
    "A100": (3.67, 1.89),
    "L40S": (2.10, 0.86),
    "L4": (0.71, 0.43),
}
OTHER_DOLLARS = (2.00, 1.00)
CPU_DOLLARS = 0.12


@dataclass(frozen=True, slots=True)
class State:
    """What is true of a machine from one moment to the next.

    `work` is what the launched process does: None (none), `waiting`, `alive`, `ended`. `fixed` holds what rows set;
    it stays as set. `bill` says whether it is billed, `up_since` since when it has been RUNNING.
    """

    status: str
    gone: bool = False
    bill: bool = False
    up_since: int | None = None
    phase: str | None = None
    workload_started: bool | None = None
    work: str | None = None
    exit: int | None = None
    died_at: int | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Machine:
    """A machine and its history. `id` is the cloud's own; `key` is `gcp:<project>/<zone>/<id>` or `runpod:<id>`."""

    cloud: str
    id: str
    name: str
    zone: str | None
    created: int
    provisioning_model: str | None
    gpu_type: str | None
    gpus: int | None
    marker: str | None
    keep_running: bool = False
    by_call: bool = False
    ours: bool = False
    number: int = 0
    reached_at: str | None = None
    first_live: int | None = None
    course: int = 0
    ending: bool = False
    work_number: int | None = None
    times: list[int] = field(default_factory=list)
    states: list[State] = field(default_factory=list)

    @property
    def key(self) -> str:
        """How the port names it."""
        return f"gcp:{PROJECT}/{self.zone}/{self.id}" if self.cloud == "gcp" else f"runpod:{self.id}"

    @property
    def label(self) -> str:
        """`cloud/name`."""
        return f"{self.cloud}/{self.name}"

    @property
    def state(self) -> State:
        """The newest state."""
        return self.states[-1]

    def as_of(self, when: int) -> State | None:
        """The state that held at `when`; None before it was created."""
        at = bisect.bisect_right(self.times, when)
        return self.states[at - 1] if at else None

    def gone_at(self) -> int | None:
        """When it was gone, if it is."""
        return self.times[-1] if self.state.gone else None

    def billed(self, end: int) -> list[tuple[int, int | None]]:
        """The spans in which it was billed up to `end`; the last may be open (None)."""
        spans: list[tuple[int, int | None]] = []
        since: int | None = None
        for when, state in zip(self.times, self.states, strict=True):
            if when > end:
                break
            if state.bill and since is None:
                since = when
            elif not state.bill and since is not None:
                spans.append((since, when))
                since = None
        if since is not None:
            spans.append((since, None))
        return [span for span in spans if span[1] is None or span[1] > span[0]]


def alive(machine: Machine, state: State) -> bool:
    """Whether its workload lives: a row's word, else by the phase (an instance) or the process (a pod)."""
    if state.gone or state.status != "RUNNING":
        return False
    if "pid" in state.fixed:
        return bool(state.fixed["pid"] == "alive")
    return state.phase == "workload" if machine.cloud == "gcp" else state.work == "alive"


def shows_port(machine: Machine, state: State, when: int) -> bool:
    """Whether the cloud shows an address for SSH."""
    if state.gone or state.status != "RUNNING" or state.up_since is None:
        return False
    if "ports" in state.fixed:
        return bool(state.fixed["ports"])
    return machine.cloud == "gcp" or when >= state.up_since + PORT_AFTER


def reachable(machine: Machine, state: State, when: int) -> bool:
    """Whether SSH reaches it."""
    if state.gone or state.status != "RUNNING" or not state.fixed.get("reachable", True):
        return False
    return machine.cloud == "gcp" or shows_port(machine, state, when)


def gpu_util(machine: Machine, state: State) -> int | None:
    """Percent of the busiest GPU; None where a row says that it cannot be told."""
    if "gpu_util" in state.fixed:
        value: int | None = state.fixed["gpu_util"]
        return value
    return BUSY if alive(machine, state) else 0


def log_age(machine: Machine, state: State, when: int) -> float | None:
    """Seconds since the last log line; None: no log."""
    if "log_age" in state.fixed:
        value: float | None = state.fixed["log_age"]
        return value
    if alive(machine, state):
        return 0.0
    return None if state.died_at is None else (when - state.died_at) / MICROS


def cost_per_hour(machine: Machine) -> float:
    """Dollars an hour while it is billed."""
    return price(machine.cloud, machine.gpu_type, machine.gpus)


def price(cloud: str, gpu_type: str | None, gpus: int | None) -> float:
    """Dollars an hour of a machine with these GPUs."""
    if not gpus:
        return CPU_DOLLARS
    prices = DOLLARS.get((gpu_type or "").upper(), OTHER_DOLLARS)
    return round(prices[0 if cloud == "gcp" else 1] * gpus, 2)


def labels(marker: str | None) -> dict[str, str]:
    """The GCE labels of a marker, a key a part."""
    parts = marker.split(".") if marker else []
    keys = ("ledger", "ledger-run", "ledger-attempt", "ledger-try")
    return dict(zip(keys, parts, strict=True)) if len(parts) == len(keys) else {}


def seen(machine: Machine, state: State, when: int, start: int) -> Seen:
    """The machine as its cloud shows it at `when`; `start` is the epoch of the scenario."""
    pod = machine.cloud == "runpod"
    port = shows_port(machine, state, when)
    told = port or "gpu_util" in state.fixed
    return Seen(
        machine=machine.key,
        backend=machine.cloud,
        account=ACCOUNT_RUNPOD if pod else PROJECT,
        name=machine.name,
        status=state.status,
        zone=machine.zone,
        created_at=start + machine.created,
        provisioning_model=machine.provisioning_model,
        marker=machine.marker,
        cost_per_hour=cost_per_hour(machine),
        ports=address(machine) if port else None,
        gpu_util=gpu_util(machine, state) if pod and told and state.status == "RUNNING" else None,
        gpus=machine.gpus,
        keep_running=machine.keep_running,
        had_runtime=pod and _had_runtime(machine, when),
        labels={} if pod else labels(machine.marker),
    )


def guest(state: State) -> Guest:
    """The guest attributes."""
    return Guest(state.phase, state.workload_started)


def probe(machine: Machine, state: State, when: int) -> Probe:
    """What a probe over SSH reads from a machine that it reaches."""
    lives = alive(machine, state)
    age = log_age(machine, state, when)
    began = machine.first_live
    ran = lives or began is not None
    pid = 4000 + machine.number if ran else None
    size = 0 if age is None else 1024 + (0 if began is None else (when - began) // MICROS)
    done = _done(machine, state) and age is not None
    if age is None:
        excerpt = ""
    elif done:
        excerpt = "[phase=done]"
    else:
        excerpt = "step" if lives else "ended"
    return Probe(
        pid=pid,
        pid_alive=lives,
        log_bytes=size,
        log_age=age,
        done=done,
        gpu_util=gpu_util(machine, state),
        exit=None if lives else state.exit,
        excerpt=excerpt,
    )


def _done(machine: Machine, state: State) -> bool:
    if state.phase == "done":
        return True
    return machine.cloud == "runpod" and state.work == "ended" and state.exit == 0


def address(machine: Machine) -> str:
    """`host:port` of SSH: where it is really reached, else one of a range that is for examples."""
    if machine.reached_at is not None:
        return machine.reached_at
    host = f"198.51.100.{machine.number % 250 + 1}"
    return f"{host}:22" if machine.cloud == "gcp" else f"{host}:{10000 + machine.number}"


def _had_runtime(machine: Machine, when: int) -> bool:
    """A runtime comes with the first port: some state up to `when` showed one by its end."""
    ends = [*machine.times[1:], when]
    return any(
        shows_port(machine, state, min(end, when))
        for begin, end, state in zip(machine.times, ends, machine.states, strict=True)
        if begin <= when
    )
