"""The simulated world: both clouds as one pure model on virtual time. It answers no one wrongly: how a cloud lies
or fails is the door's part (`ledger.sim.door`).

Times are integer microseconds after the scenario's start; `start` is that moment as microseconds since the epoch.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid5

from ledger.clouds.values import CreateSpec
from ledger.moments import MICROS
from ledger.policy import Policy
from ledger.sim import machine as read
from ledger.sim.machine import Machine, State
from ledger.sim.schema import PROJECT, CallRule, MachineRow, Scenario, WorkloadRule, WorldRow

NAMES = UUID("7d3a52a4-3a0e-5d0b-9a55-6f1f4d1c0b11")
OTHER_LEDGER = str(uuid5(NAMES, "another ledger"))
PROVISIONING = 10 * MICROS
STAGING = 20 * MICROS
STOPPING = 30 * MICROS
INSTANCE_AFTER = 30 * MICROS
POD_AFTER = 20 * MICROS
FIRST_INSTANCE = 5_513_402_277_619_834_112
FIRST_POD = 36**13


@dataclass(frozen=True, slots=True)
class NameTaken:
    """An instance of that name is in that zone already (409)."""

    machine: Machine


@dataclass(slots=True)
class World:
    """The machines of both clouds, past and present. `ledger_id` is whose marker `ours` is; `reach` gives the address
    at which a machine (its port id) really takes SSH."""

    scenario: Scenario
    ledger_id: str
    now: int = 0
    machines: list[Machine] = field(default_factory=list)
    reach: Callable[[str], str | None] | None = None
    created: dict[str, int] = field(default_factory=lambda: {"gcp": 0, "runpod": 0})
    deleted: dict[str, int] = field(default_factory=dict)
    creates: list[tuple[int, str]] = field(default_factory=list)  # when a create call reached a cloud, its marker
    _agenda: list[tuple[int, int, Callable[[int], None]]] = field(default_factory=list)
    _sequence: int = 0
    _numbers: dict[str, int] = field(default_factory=dict)
    _asked: dict[tuple[str, str], str] = field(default_factory=dict)
    _requests: dict[str, Machine] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for row in self.scenario.machines:
            self._appear(row, row.created)
        for row_ in sorted(self.scenario.world, key=lambda row: row.at):
            self.later(row_.at, lambda when, row=row_: self._row(row, when))  # type: ignore[misc]

    @property
    def start(self) -> int:
        """The scenario's start, microseconds since the epoch."""
        return self.scenario.start

    def later(self, when: int, action: Callable[[int], None]) -> None:
        """Let `action` happen at `when`; what is asked for first happens first."""
        self._sequence += 1
        heapq.heappush(self._agenda, (when, self._sequence, action))

    def advance(self, when: int) -> None:
        """Let everything happen that falls due up to and including `when`."""
        while self._agenda and self._agenda[0][0] <= when:
            due, _, action = heapq.heappop(self._agenda)
            self.now = max(self.now, due)
            action(due)
        self.now = max(self.now, when)

    def upcoming(self) -> int | None:
        """When the next thing happens by itself."""
        return self._agenda[0][0] if self._agenda else None

    def asked(self, cloud: str, spec: CreateSpec) -> None:
        """A create call reached the cloud, whatever came of it: its marker is one that the log knows."""
        self._asked[cloud, spec.name] = spec.marker
        self.creates.append((self.now, spec.marker))

    def create(self, cloud: str, spec: CreateSpec, rule: CallRule | None = None) -> Machine | NameTaken:
        """Make a machine. The same GCE request id makes no second one."""
        zone = (spec.zone or self.scenario.zones[0]) if cloud == "gcp" else None
        if cloud == "gcp":
            made = self._requests.get(spec.request_id)
            if made is not None and not made.state.gone:
                return made
            holder = self._bearer(cloud, spec.name, zone)
            if holder is not None:
                return NameTaken(holder)
        model = (rule.provisioning_model if rule else None) or spec.provisioning_model or "STANDARD"
        machine = self._new(
            Machine(
                cloud=cloud,
                id="",
                name=spec.name,
                zone=zone,
                created=self.now,
                provisioning_model=model if cloud == "gcp" else None,
                gpu_type=spec.gpu_type,
                gpus=spec.gpus,
                marker=spec.marker,
                keep_running=spec.env.get("KEEP_RUNNING") == "1",
                by_call=True,
                ours=True,
            )
        )
        self.created[cloud] += 1
        if cloud == "gcp":
            self._requests[spec.request_id] = machine
        status = rule.status if rule else None
        if status is not None or cloud == "runpod":
            self._begin(machine, self.now, status or "RUNNING")
        elif model == "FLEX_START":
            self._begin(machine, self.now, "PENDING")
        else:
            self._default_course(machine, self.now)
        return machine

    def find(self, key: str) -> Machine | None:
        """The machine of a port id, unless it is gone."""
        for machine in self.machines:
            if machine.key == key and not machine.state.gone:
                return machine
        return None

    def known(self, key: str) -> Machine | None:
        """The machine of a port id, gone or not."""
        return next((machine for machine in self.machines if machine.key == key), None)

    def existing(self, cloud: str, when: int) -> list[tuple[Machine, State]]:
        """The machines that a cloud had at `when`, oldest first."""
        pairs = [(machine, machine.as_of(when)) for machine in self.machines if machine.cloud == cloud]
        return [(machine, state) for machine, state in pairs if state is not None and not state.gone]

    def delete(self, key: str) -> bool:
        """Carry out a delete; False: there is no such machine."""
        machine = self.find(key)
        if machine is None:
            return False
        if machine.cloud == "runpod" or machine.state.status == "PENDING":
            self._set(machine, self.now, gone=True)
        elif not machine.ending:
            machine.ending = True
            machine.course += 1
            self._set(machine, self.now, status="STOPPING")
            self.later(self.now + STOPPING, lambda when: self._set(machine, when, gone=True))
        return True

    def launch(self, key: str) -> bool:
        """Carry out a launch on a pod; False: SSH does not reach it. A second one changes nothing."""
        machine = self.find(key)
        if machine is None or not read.reachable(machine, machine.state, self.now):
            return False
        if machine.work_number is None and machine.state.work is None:
            rule = self._workload_rule(machine)
            self._set(machine, self.now, work="waiting")
            if rule is None or rule.does == "starts":
                rule = rule or WorkloadRule("runpod", "starts")
                self._process(machine, self.now + (POD_AFTER if rule.after is None else rule.after), rule)
        return True

    # Life courses.

    def _default_course(self, machine: Machine, when: int) -> None:
        self._begin(machine, when, "PROVISIONING")
        self._in_course(machine, when + PROVISIONING, status="STAGING")
        course = machine.course

        def run(due: int) -> None:
            if machine.course == course and not machine.state.gone:
                self._set(machine, due, status="RUNNING")
                self._came_up(machine, due, WorkloadRule("gcp", "starts"))

        self.later(when + PROVISIONING + STAGING, run)

    def _came_up(self, machine: Machine, when: int, default: WorkloadRule | None) -> None:
        """An instance came to RUNNING: its workload by its rule, else by `default`."""
        rule = (self._workload_rule(machine) if machine.work_number is None else None) or default
        if rule is None:
            return
        self._set(machine, when, phase="startup")
        if rule.does == "starts":
            begin = when + (INSTANCE_AFTER if rule.after is None else rule.after)
            self._in_course(machine, begin, phase="workload", workload_started=True)
            last = {"phase": "failed" if rule.exit else "done", "exit": rule.exit}
            self._in_course(machine, begin + rule.runs, **last)

    def _in_course(self, machine: Machine, when: int, **changes: Any) -> None:
        course = machine.course

        def happen(due: int) -> None:
            if machine.course == course and not machine.state.gone:
                self._set(machine, due, **changes)

        self.later(when, happen)

    def _process(self, machine: Machine, begin: int, rule: WorkloadRule) -> None:
        """A launched process on a pod: it lives and dies with its container, whatever rows say of the status."""

        def start(when: int) -> None:
            if machine.state.work == "waiting":
                self._set(machine, when, work="alive")
                self.later(when + rule.runs, end)

        def end(when: int) -> None:
            # One that a row killed has not come to its end: its log never says done.
            killed = machine.state.fixed.get("pid") == "dead"
            if machine.state.work == "alive" and not machine.state.gone and not killed:
                self._set(machine, when, work="ended", exit=rule.exit)

        self.later(begin, start)

    def _workload_rule(self, machine: Machine) -> WorkloadRule | None:
        self._numbers[machine.cloud] = machine.work_number = self._numbers.get(machine.cloud, 0) + 1
        for rule in self.scenario.workloads:
            if rule.cloud == machine.cloud and rule.nth in (None, machine.work_number):
                return rule
        return None

    # Rows.

    def _row(self, row: WorldRow, when: int) -> None:
        if row.appears is not None:
            self._appear(row.appears, when)
            return
        machine = self._bearer(row.cloud, row.name) if row.id is None else self._with_id(row.cloud, row.id)
        if machine is None or (row.name is not None and machine.name != row.name):
            return
        if row.becomes == "gone":
            self._set(machine, when, gone=True)
            return
        fields = row.changes.fields
        changes: dict[str, Any] = {k: v for k, v in fields.items() if k in ("phase", "workload_started")}
        if changes.get("phase") == "workload":
            changes.setdefault("workload_started", True)
        fixed = {k: v for k, v in fields.items() if k not in ("phase", "workload_started")}
        was = machine.state.status
        if row.becomes is not None or "phase" in fields:
            machine.course += 1
        if row.becomes is not None:
            changes["status"] = row.becomes
        self._set(machine, when, fixed={**machine.state.fixed, **fixed}, **changes)
        came_up = row.becomes == "RUNNING" and was != "RUNNING" and machine.cloud == "gcp"
        if came_up and "phase" not in fields:
            self._came_up(machine, when, None)
        elif came_up and machine.work_number is None:
            self._workload_rule(machine)

    def _appear(self, row: MachineRow, when: int) -> None:
        zone = self._zone(row)
        gcp = row.cloud == "gcp"
        marker = self._marker(row)
        machine = Machine(
            cloud=row.cloud,
            id=row.id or "",
            name=row.name,
            zone=zone,
            created=row.created,
            provisioning_model=(row.provisioning_model or "STANDARD") if gcp else None,
            gpu_type=row.gpu_type or "H100",
            gpus=1 if row.gpus is None else row.gpus,
            marker=marker,
            ours=marker is not None and marker == self._asked.get((row.cloud, row.name)),
        )
        pending = gcp and row.provisioning_model == "FLEX_START"
        status = row.status or ("PENDING" if pending else "RUNNING")
        guests = {k: v for k, v in row.changes.fields.items() if k in ("phase", "workload_started")}
        fixed = {k: v for k, v in row.changes.fields.items() if k not in ("phase", "workload_started")}
        if row.workload and gcp:
            guests.setdefault("phase", "workload")
        if guests.get("phase") == "workload":
            guests.setdefault("workload_started", True)
        work = "alive" if row.workload and not gcp else None
        # A machine that was there before the start has been RUNNING ever since, and its history begins then.
        self._new(machine)
        self._begin(machine, when, status, since=row.created, fixed=fixed, work=work, **guests)

    def _zone(self, row: MachineRow) -> str | None:
        if row.cloud != "gcp":
            return None
        for sidecar in self.scenario.sidecars.values():
            if row.zone is None and row.id and sidecar["job_id"] == row.id and sidecar["extra"].get("zone"):
                return str(sidecar["extra"]["zone"])
        return row.zone or self.scenario.zones[0]

    def _marker(self, row: MachineRow) -> str | None:
        if row.marker == "none":
            return None
        known = self._asked.get((row.cloud, row.name))
        if row.marker == "ours" and known is not None:
            return known
        owner = self.ledger_id if row.marker == "ours" else OTHER_LEDGER
        attempt = uuid5(NAMES, f"{owner}/{row.cloud}/{row.name}/{row.created}/{row.id}")
        return f"{owner}.{stream_of(self.scenario.policy, row.cloud, row.name) or row.name}.{attempt}.1"

    # The one place where a machine changes.

    def _new(self, machine: Machine) -> Machine:
        machine.number = len(self.machines) + 1
        if not machine.id and machine.cloud == "gcp":
            machine.id = str(FIRST_INSTANCE + machine.number * 1_000_003)
        elif not machine.id:
            machine.id = _base36(FIRST_POD + machine.number * 7_777_777_777_777)
        if self.reach is not None:
            machine.reached_at = self.reach(machine.key)
        self.machines.append(machine)
        return machine

    def _begin(self, machine: Machine, when: int, status: str, since: int | None = None, **changes: Any) -> None:
        bill = status not in read.UNBILLED and (machine.cloud == "runpod" or status not in read.NOT_YET_BILLED)
        up = (when if since is None else since) if status == "RUNNING" else None
        state = State(status=status, bill=bill, up_since=up, **changes)
        machine.times.append(when)
        machine.states.append(state)
        if read.alive(machine, state):
            machine.first_live = when
        if status == "RUNNING" and machine.cloud == "gcp" and machine.by_call:
            self._came_up(machine, when, None)

    def _set(self, machine: Machine, when: int, **changes: Any) -> None:
        old = machine.state
        if old.gone:
            return
        new = replace(old, **changes)
        if new.gone or new.status in read.UNBILLED:
            new = replace(new, bill=False)
        elif new.status == "RUNNING":
            new = replace(new, bill=True)
        if new.status != "RUNNING" or new.gone:
            # The container or the boot is over, and its processes with it.
            new = replace(new, up_since=None, work="ended" if new.work in ("waiting", "alive") else new.work)
        elif old.status != "RUNNING":
            new = replace(new, up_since=when)
        if read.alive(machine, old) and not read.alive(machine, new):
            new = replace(new, died_at=when)
        if machine.first_live is None and read.alive(machine, new):
            machine.first_live = when
        machine.times.append(when)
        machine.states.append(new)

    def _bearer(self, cloud: str, name: str | None, zone: str | None = None) -> Machine | None:
        """The youngest machine of that name that is not gone."""
        bearers = [
            machine
            for machine in self.machines
            if machine.cloud == cloud and machine.name == name and not machine.state.gone
            if zone is None or machine.zone == zone
        ]
        return max(bearers, key=lambda machine: (machine.created, machine.number), default=None)

    def _with_id(self, cloud: str, raw: str) -> Machine | None:
        for machine in self.machines:
            if machine.cloud == cloud and raw in (machine.id, machine.key) and not machine.state.gone:
                return machine
        return None


def stream_of(policy: Policy, cloud: str, name: str) -> str | None:
    """The run whose machine bears that name: `issue-<N>[-lane]`; None for a name of another pattern."""
    pattern = policy.name_gcp if cloud == "gcp" else policy.name_runpod
    quoted = re.escape(pattern).replace(re.escape("{issue}"), r"(?P<issue>\d+)", 1)
    quoted = quoted.replace(re.escape("{-lane}"), r"(?:-(?P<lane>[a-z0-9-]+))?", 1)
    match = re.fullmatch(quoted, name)
    if match is None:
        return None
    parts = match.groupdict()
    return f"issue-{parts['issue']}" + (f"-{parts['lane']}" if parts.get("lane") else "")


def key_of_sidecar(sidecar: Mapping[str, Any], zone: str) -> str | None:
    """The port id of the machine that a sidecar names; None: it names none. `zone` where the file has none."""
    extra = sidecar.get("extra")
    extra = extra if isinstance(extra, Mapping) else {}
    if sidecar.get("backend") == "gcp" and sidecar.get("job_id"):
        return f"gcp:{extra.get('project') or PROJECT}/{extra.get('zone') or zone}/{sidecar['job_id']}"
    if sidecar.get("backend") == "runpod" and extra.get("pod_id"):
        return f"runpod:{extra['pod_id']}"
    return None


def _base36(number: int) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    text = ""
    while number:
        number, rest = divmod(number, 36)
        text = digits[rest] + text
    return text
