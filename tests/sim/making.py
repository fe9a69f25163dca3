"""Short ways to make what the tests of the simulation are about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from ledger.clouds.values import CreateSpec, LaunchSpec
from ledger.moments import MICROS
from ledger.sim.caller import Caller
from ledger.sim.door import SimCloud
from ledger.sim.rules import Rules
from ledger.sim.scenario import loads
from ledger.sim.schedule import TICK, Process, Schedule, VirtualSource
from ledger.sim.schema import Scenario
from ledger.sim.world import World

LEDGER = "11111111-1111-4111-8111-111111111111"
LATE = 1e9
LAUNCH = LaunchSpec(run="issue-1", attempt="a", command="bash run.sh", log_path="/l", pid_file="/p")


def scenario(text: str = "", expect: str = "{}") -> Scenario:
    """A scenario of these sections."""
    return loads(f"scenario: s\nexpect: {expect}\n{text}".encode(), "s.yaml")


def world(text: str = "") -> World:
    """The world of a scenario of these sections."""
    return World(scenario(text), LEDGER)


def spec(name: str = "eps-issue-1", model: str | None = "STANDARD", **changes: Any) -> CreateSpec:
    """A create of one machine for issue 1."""
    number = changes.pop("attempt", "1")
    values: dict[str, Any] = {
        "name": name,
        "rung": "gcp:STANDARD",
        "zone": "us-central1-a",
        "provisioning_model": model,
        "gpu_type": "H100",
        "gpus": 4,
        "marker": f"{LEDGER}.issue-1.attempt-{number}.1",
        "request_id": str(uuid5(NAMESPACE_URL, f"{name!a}/{number}")),
    }
    return CreateSpec(**{**values, **changes})


def pod(name: str = "pod-1", **changes: Any) -> CreateSpec:
    """A create of one pod for issue 1."""
    return spec(name, None, **{"zone": None, "rung": "runpod", **changes})


class Scene:
    """A world with its clouds, reached by one process."""

    def __init__(self, text: str = "", poller: int | None = 1) -> None:
        self.scenario = scenario(text)
        self.world = World(self.scenario, LEDGER)
        self.schedule = Schedule(0, False, self.world.advance)
        self.rules = Rules.of(self.scenario)
        self.process = Process("p", TICK, poller)
        self.source = VirtualSource(self.schedule, self.scenario.start, "p")
        self.caller = Caller(self.rules, self.schedule, self.process, self.source)
        reach = (self.world, self.rules, self.schedule, self.process, self.source)
        self.gcp = SimCloud("gcp", *reach)
        self.runpod = SimCloud("runpod", *reach)

    def at(self, steps: dict[float, Callable[[], Any]]) -> list[Any]:
        """Take each step as a process at its second; what each gave, in that order (None: it died)."""
        results: list[Any] = [None] * len(steps)
        for place, (when, step) in enumerate(steps.items()):

            def start(place: int = place, step: Callable[[], Any] = step) -> None:
                self.schedule.spawn(self.process, step, lambda task: results.__setitem__(place, task.result))

            self.schedule.at(round(when * MICROS), start)
        self.schedule.run(round(max(steps) * MICROS))
        return results

    def now(self, step: Callable[[], Any]) -> Any:
        """What one step at the start gives."""
        return self.at({0: step})[0]
