"""Random scenarios over the whole language, biased to the moments at which failovers go wrong.

Scenario `index` of `seed` is always the same document. Faults end early enough that the truths, which bound what
follows, can be judged. Numbers are seconds, as in a scenario file.
"""

from __future__ import annotations

import random
from typing import Any

import yaml

from ledger.sim import schema
from ledger.sim.mishaps import LADDERS, Row
from ledger.sim.nodes import node_of
from ledger.sim.rarities import Rarities
from ledger.sim.scenario import of_node
from ledger.sim.schema import Scenario

Document = dict[str, Any]

# Bounds short enough that a failover and its verdict fit into some forty ticks.
BRISK: dict[str, Any] = {
    "queue_wait_seconds": 240,
    "absence_settle_seconds": 60,
    "launch_confirm_seconds": 400,
    "teardown_confirm_seconds": 240,
    "idle_grace_seconds": 180,
    "no_port_seconds": 240,
    "wedge_frozen_seconds": 240,
    "wedge_min_span_seconds": 120,
    "boot_death_young_seconds": 500,
    "vanish_unpolled_seconds": 600,
    "done_grace_seconds": 300,
    "create_timeout_seconds": 120,
    "tick_deadline_seconds": 50,
}
QUIET = 1500  # seconds after the last fault in which the brisk bounds pass
DEATHS = (
    "ProvisionRequested",
    "Provisioned",
    "ProvisionRefused",
    "ProvisionUnresolved",
    "FailoverDecided",
    "TeardownRequested",
    "LaunchRequested",
    "LaunchConfirmed",
    "Repointed",
    "TornDown",
    "MachineObserved",
    "WorkloadEnded",
    "RunOpened",
    "RunClosed",
    "AbsenceObserved",
    "InventoryRead",
    "CancelRequested",
    "LaunchFailed",
    "OrphanObserved",
    "TeardownFailed",
    "ReconnectObserved",
    "HandleImported",
)


def document(seed: int, index: int) -> Document:
    """Scenario `index` of `seed` as a YAML document."""
    return _Maker(random.Random(f"scenario/{seed}/{index}"), f"random-{seed}-{index}").made()


def generate(seed: int, index: int) -> Scenario:
    """Scenario `index` of `seed`, checked."""
    return scenario_of(document(seed, index))


def scenario_of(made: Document) -> Scenario:
    """A document as a checked scenario: that of its text, without writing and reading it. Raises ScenarioError."""
    top: list[tuple[yaml.Node, yaml.Node]] = []
    line = 1
    for section, value in made.items():
        key = node_of(section, line)
        if _rows(value):
            first = node_of([], line + 1)
            first.value = [node_of(row, line + number) for number, row in enumerate(value, 1)]
            top.append((key, first))
            line += len(value)
        else:
            top.append((key, node_of(value, line)))
        line += 1
    node = node_of({}, 1)
    node.value = top
    return of_node(node, str(made["scenario"]))


def _rows(value: Any) -> bool:
    """Whether a section is a list of rows, each on a line of its own."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def text_of(made: Document) -> str:
    """A document as a scenario file: a row a line."""
    lines = []
    for section, value in made.items():
        if _rows(value):
            lines.append(f"{section}:")
            lines += [f"  - {_flow(row)}" for row in value]
        else:
            lines.append(f"{section}: {_flow(value)}")
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...").strip()


class _Maker(Rarities):
    """Draws one document. What is drawn depends on the chance alone, in one fixed order."""

    def made(self) -> Document:
        """The whole document."""
        self.policy = dict(BRISK)
        self._policy()
        self._runs()
        self._stories()
        self._faults()
        self._strangers()
        self._commands()
        self._deaths()
        poll: Row = {"every": self.every, "until": self.span + QUIET, "pollers": self.pollers}
        if self._maybe(0.12):
            begin = self._when()
            asleep = self.chance.choice((300, 900, 3600, 20_000))
            poll["off"] = [[begin, begin + asleep]]
            poll["until"] = max(poll["until"], begin + asleep + QUIET)
        self._clocks()
        poll["until"] = max(poll["until"], self.rarely() + QUIET)
        made: Document = {"scenario": self.name, "policy": self.policy, "poll": poll, "zones": self.zones}
        order = ("dispatches", "cancels", "finalizes", "sidecars", "machines", "calls", "world", "workloads")
        for section in (*order, "crashes", "pauses", "clocks"):
            if self.sections.get(section):
                made[section] = self.sections[section]
        return {**made, "expect": {}}

    # Sections.

    def _policy(self) -> None:
        if self._maybe(0.5):
            self.ladder = self.chance.choice(LADDERS)
            self.policy["ladder"] = list(self.ladder)
        if self._maybe(0.15):
            self.policy["on_lost"] = "failover"
        if self._maybe(0.1):
            self.policy["max_usd_per_hour"] = self.chance.choice((5, 20, 40))
        if self._maybe(0.1):
            self.policy["max_creates_per_run_day"] = self.chance.choice((1, 2, 3))
        if self._maybe(0.1):
            self.policy["default_provisioning_model"] = self.chance.choice(schema.MODELS)

    def _runs(self) -> None:
        for number in range(self.chance.choice((1, 1, 1, 2, 3))):
            lane = self.chance.choice((None, None, "b"))
            issue = 1 if number and self._maybe(0.3) else number + 1
            run = (issue, lane)
            if run in self.runs:
                continue
            self.runs.append(run)
            if self._maybe(0.12):
                self._legacy(run)
                if self._maybe(0.7):
                    continue
            self._dispatch(run, self.chance.choice((0, 0, 0, 1, 30, 61)))

    def _dispatch(self, run: tuple[int, str | None], at: int, **changes: Any) -> None:
        backend = self.chance.choice(("gcp", "gcp", "gcp", "runpod"))
        model = self.chance.choice(("FLEX_START", "FLEX_START", "FLEX_START", "STANDARD", "SPOT", None))
        gpus = self.chance.choice((1, 2, 4, 8))
        hydra = self._maybe(0.2)
        pins = {"KEEP_RUNNING": "1"} if self._maybe(0.04) else {"WANDB_PROJECT": "x"} if self._maybe(0.2) else None
        row: Row = {
            "at": at,
            "issue": run[0],
            "lane": run[1],
            "backend": backend,
            "provisioning_model": model if backend == "gcp" else None,
            "zone": self.chance.choice(self.zones) if backend == "gcp" and self._maybe(0.15) else None,
            "gpu_type": self.chance.choice(("H100", "H100", "A100", "H200")),
            "gpus": gpus,
            "workload_cmd": None if hydra else "bash run.sh",
            "hydra_args": ["a=1", "b=2"] if hydra else None,
            "env_pins": pins,
            "time_budget_hours": self.chance.choice((None, None, 0.1, 12)),
            "allow_paid_fallback": self.chance.choice((None, None, None, None, False, True)),
        }
        self._add("dispatches", **{**row, **changes})

    def _legacy(self, run: tuple[int, str | None]) -> None:
        """An old sidecar, with its machine or without."""
        issue, lane = run
        cloud = self._cloud()
        name = self._name(cloud, run)
        command = self.chance.choice(("bash run.sh", "bash run.sh", ""))
        extra: Row = {"issue": issue, "workload_cmd": command, "gpus": 1, "intent": "lora-7b"}
        known = self._maybe(0.8)
        ident = f"90{issue}00{len(lane or '')}7" if cloud == "gcp" else f"old{issue}{lane or ''}"
        if cloud == "gcp":
            extra |= {"zone": self.zones[0], "instance_name": name, "attempt_id": "att-20260630-235000"}
            extra |= {"provisioning_model": self.chance.choice(schema.MODELS), "gcp_launched_ts": 1782863400.0}
            phase = self.chance.choice((None, "pending", "workload", "startup"))
            if phase:
                extra |= {"last_phase": phase, "last_phase_change_ts": 1782863500.0, "last_phase_incarnation": ident}
        elif known:
            extra |= {"pod_id": ident, "workload_executed": self._maybe(0.5)}
            if extra["workload_executed"]:
                extra["workload_pid"] = 4242
        lives = extra.get("last_phase") == "workload" or self._maybe(0.5)
        self._add(
            "sidecars",
            backend=cloud,
            job_id=ident if cloud == "gcp" and known else "",
            pod_name=name,
            scratch_dir="/workspace",
            log_path=f"/workspace/logs/issue-{issue}.log",
            extra=extra,
        )
        self.sections["sidecars"][-1]["cluster"] = None
        if self._maybe(0.8):
            status = self.chance.choice(("PENDING", "RUNNING", "RUNNING")) if cloud == "gcp" else "RUNNING"
            if extra.get("last_phase") == "workload":
                status = "RUNNING"  # what the file says of it is true
            self._add(
                "machines",
                cloud=cloud,
                name=name,
                id=ident,
                created=-self.chance.choice((100, 600, 3600)),
                status=status,
                workload=lives if status == "RUNNING" else None,
                provisioning_model="FLEX_START" if status == "PENDING" else None,
            )

    def _commands(self) -> None:
        known = {(row["issue"], row.get("lane")) for row in self.sections.get("dispatches", ())}
        for run in self.runs:
            imported = run not in known
            for _ in range(self.chance.choice((0, 0, 0, 1, 1, 2))):
                at = self._when() + 62
                if imported or self._maybe(0.5):
                    bare = {"gpu_type": None, "gpus": None, "workload_cmd": None, "hydra_args": None}
                    if imported:
                        bare = {}
                    self._dispatch(run, at, **bare)
                else:
                    self._dispatch(run, at)
            if self._maybe(0.12):
                self._add("cancels", at=self._when(), issue=run[0], lane=run[1])
            if self._maybe(0.12):
                self._add("finalizes", at=self._when(), issue=run[0], lane=run[1])

    def _deaths(self) -> None:
        for _ in range(self.chance.choice((0, 0, 1, 1, 2, 3))):
            kind = self.chance.choice(("before", "after", "after", "event", "event", "projection"))
            nth = self.chance.choice((1, 1, 1, 2, 3, 5))
            if kind == "event":
                self._add("crashes", after="event", type=self.chance.choice(DEATHS), nth=nth)
            elif kind == "projection":
                self._add("crashes", during="projection", nth=nth)
            else:
                cloud = self._cloud()
                call = self.chance.choice((*schema.CALLS_OF[cloud], "create", "delete"))
                self._add("crashes", **{kind: "call"}, cloud=cloud, call=call, nth=nth)
        for _ in range(self.chance.choice((0, 0, 0, 1, 2))):
            cloud = self._cloud()
            self._add(
                "pauses",
                poller=self.chance.randint(1, self.pollers),
                before="call",
                cloud=cloud,
                call=self.chance.choice((*schema.CALLS_OF[cloud], "create", "create", "delete")),
                nth=self.chance.choice((1, 1, 2, 3)),
                lasts=self.chance.choice((10, 25, 60, 120, 400, 900)),
            )

    def _clocks(self) -> None:
        if not self._maybe(0.12):
            return
        poller = self.chance.randint(1, self.pollers)
        by = self.chance.choice((60, -60, 100, 400, -400, 86_400, -86_400))
        at = self._when()
        self._add("clocks", at=at, poller=poller, by=by)
        self._add("clocks", at=at + self.chance.choice((60, 200, 500)), poller=poller, by=-by)
