"""The real shell against the simulated machines: the outcomes of the in-process door, over a real wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from ledger.clouds.host_keys import HostKeys
from ledger.clouds.port import Cloud
from ledger.clouds.shell import Shell
from ledger.clouds.values import Accepted, LaunchSpec, Probe, Refused, Unknown, Unresolved
from ledger.sim.caller import Caller
from ledger.sim.wire.door import WiredCloud
from ledger.sim.wire.gate import Gate
from ledger.sim.wire.shell import VirtualShell
from ledger.sim.wire.ssh import SshServer, host_key
from tests.clouds.sshd import shell
from tests.sim.making import LATE, LAUNCH, Scene

POD, GCE = "runpod:p", "gcp:example-gpu-project/us-central1-a/7"
THERE = "machines: [{cloud: runpod, name: pod-1, id: p}, {cloud: gcp, name: eps-issue-1, id: '7'}]\n"
SPEC = replace(LAUNCH, log_path="/workspace/logs/issue-1.log", pid_file="/workspace/logs/issue-1.pid")


class OverSsh:
    """A cloud whose control plane is the in-process one and whose SSH is the wire's."""

    def __init__(self, inner: Cloud, virtual: VirtualShell) -> None:
        self.backend, self.account = inner.backend, inner.account
        self.create, self.describe, self.list_all = inner.create, inner.describe, inner.list_all
        self.delete, self.guest = inner.delete, inner.guest
        self._virtual = virtual

    def launch(
        self, machine: str, spec: LaunchSpec, *, send_before: float, timeout: float
    ) -> Accepted | Refused | Unresolved:
        return self._virtual.launch(machine, ("198.51.100.1", 22), spec, send_before=send_before, timeout=timeout)

    def probe(self, machine: str, spec: LaunchSpec, *, timeout: float) -> Probe | Unknown:
        return self._virtual.probe(machine, ("198.51.100.1", 22), spec, timeout=timeout)


class Wire:
    """Scenes reached over SSH."""

    def __init__(self, key_path: Path) -> None:
        self.key_path = key_path
        self.keys = HostKeys()
        self.said: list[str] = []
        self.servers: list[SshServer] = []

    def doors(self, backend: str) -> list[Callable[[Scene], Cloud]]:
        """The ways to a scene: in process, and over SSH."""
        return [lambda scene: scene.gcp if backend == "gcp" else scene.runpod, lambda scene: self.reach(scene, backend)]

    def reach(self, scene: Scene, backend: str = "runpod") -> Cloud:
        gate = Gate(scene.world, scene.rules, lambda: scene.schedule.now)
        server = SshServer(gate)
        self.servers.append(server)
        caller = Caller(scene.rules, scene.schedule, scene.process, scene.source)
        plain = Shell("root", self.key_path, scene.source, self.keys.pinned, self.keys.pin, say=self.said.append)
        inner = scene.gcp if backend == "gcp" else scene.runpod
        return WiredCloud(OverSsh(inner, VirtualShell(plain, server, gate, caller)), gate, caller)


@pytest.fixture(scope="module")
def key_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "id"
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(str(path))
    return path


@pytest.fixture
def wire(key_path: Path) -> Iterator[Wire]:
    wire = Wire(key_path)
    yield wire
    for server in wire.servers:
        server.close()


def outcome(answer: Any) -> Any:
    """An answer without its words; SSH has no HTTP status and no refusal of a cloud's."""
    match answer:
        case Refused(cls):
            return ("refused", cls)
        case Unresolved(error) | Unknown(error):
            odd = error.startswith("http_") or error == "malformed"
            return (type(answer).__name__, "malformed" if odd else error)
    return answer


COURSES = {
    "by default": "",
    "not reachable": "world: [{at: 100, cloud: CLOUD, name: NAME, reachable: false}]",
    "reachable again": (
        "world: [{at: 50, cloud: CLOUD, name: NAME, reachable: false}, "
        "{at: 150, cloud: CLOUD, name: NAME, reachable: true}]"
    ),
    "no ports": "world: [{at: 100, cloud: CLOUD, name: NAME, ports: false}]",
    "gone": "world: [{at: 100, cloud: CLOUD, name: NAME, becomes: gone}]",
    "ended": "world: [{at: 100, cloud: CLOUD, name: NAME, becomes: TERMINATED}]",
    "never starts": "workloads: [{cloud: CLOUD, does: never_starts}]",
    "done": "workloads: [{cloud: CLOUD, does: starts, after: 10, runs: 100}]",
    "crashes": "workloads: [{cloud: CLOUD, does: starts, after: 10, runs: 100, exit: 3}]",
    "old log": "world: [{at: 100, cloud: CLOUD, name: NAME, log_age: 1234, gpu_util: 0}]",
    "no log": "world: [{at: 100, cloud: CLOUD, name: NAME, log_age: null}]",
    "pid dead": "world: [{at: 100, cloud: CLOUD, name: NAME, pid: dead}]",
    "pid alive": "world: [{at: 100, cloud: CLOUD, name: NAME, pid: alive, gpu_util: 55}]",
    "phase": "world: [{at: 100, cloud: CLOUD, name: NAME, phase: workload}]",
}


@pytest.mark.parametrize("course", COURSES.values(), ids=COURSES)
@pytest.mark.parametrize("backend", ["runpod", "gcp"])
def test_a_machine_says_the_same_over_ssh_as_in_process(wire: Wire, backend: str, course: str) -> None:
    name, machine = ("pod-1", POD) if backend == "runpod" else ("eps-issue-1", GCE)
    text = course.replace("CLOUD", backend).replace("NAME", name)
    if backend == "gcp":
        text = text.replace("EXITED", "TERMINATED")
    else:
        text = text.replace("TERMINATED", "EXITED").replace(", phase: workload", ", gpu_util: 1")
    given = []
    for reach in wire.doors(backend):
        scene = Scene(THERE + text)
        cloud = reach(scene)

        def probe(cloud: Cloud = cloud) -> Any:
            return cloud.probe(machine, SPEC, timeout=20)

        def launch(cloud: Cloud = cloud) -> Any:
            return cloud.launch(machine, SPEC, send_before=LATE, timeout=20)

        steps: dict[float, Any] = {
            0: probe,
            10: probe,
            35: launch,
            36: probe,
            58: launch,
            60: probe,
            99: probe,
            100: probe,
            160: probe,
        }
        if backend == "gcp":
            steps = {when: step for when, step in steps.items() if step is not launch}
        answers = scene.at(
            {**steps, 170: launch, 400: probe, 4000: probe} if backend == "runpod" else {**steps, 400: probe}
        )
        given.append([outcome(answer) for answer in answers])
        assert scene.rules.counts[backend, "probe"] == sum(step is probe for step in steps.values()) + (
            2 if backend == "runpod" else 1
        )
    assert given[1] == given[0]
    assert any(isinstance(answer, Probe) for answer in given[0])


ANSWERS = ("ok", "timeout", "reset", "unauthorized", "not_found", "malformed", "error, http: 500", "error, http: 403")


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("effect", ["none", "done", "twice", "{late: 40}"])
def test_a_launch_under_every_rule(wire: Wire, answer: str, effect: str) -> None:
    rule = f"calls: [{{cloud: runpod, call: launch, answer: {answer}, takes: 5, effect: {effect}}}]"
    given = []
    for reach in wire.doors("runpod"):
        scene = Scene(THERE + rule)
        cloud = reach(scene)
        numbers: list[Any] = []

        def look(scene: Scene = scene, numbers: list[Any] = numbers) -> None:
            numbers.append((scene.world.machines[0].work_number, scene.world.machines[0].state.work))

        answers = scene.at(
            {
                40: partial(cloud.launch, POD, SPEC, send_before=LATE, timeout=20),
                79: look,
                100: look,
            }
        )
        given.append((outcome(answers[0]), numbers, scene.schedule.now, dict(scene.rules.counts)))
    assert given[1] == given[0]


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("takes", [0, 5, 30])
def test_a_probe_under_every_rule(wire: Wire, answer: str, takes: int) -> None:
    rule = f"calls: [{{cloud: gcp, call: probe, nth: 2, answer: {answer}, takes: {takes}}}]"
    given = []
    for reach in wire.doors("gcp"):
        scene = Scene(THERE + rule)
        cloud = reach(scene)
        ends: list[Any] = []

        def probes(cloud: Cloud = cloud, scene: Scene = scene, ends: list[Any] = ends) -> None:
            for _ in range(3):
                ends.append((outcome(cloud.probe(GCE, SPEC, timeout=20)), scene.schedule.now))

        scene.now(probes)
        given.append(ends)
    assert given[1] == given[0]
    assert len(given[0]) == 3


def test_launched_twice_over_the_wire_it_is_one_workload(wire: Wire) -> None:
    scene = Scene(THERE + "calls: [{cloud: runpod, call: launch, nth: 1, answer: reset, effect: done}]")
    cloud = wire.reach(scene)

    def launch() -> Any:
        return cloud.launch(POD, SPEC, send_before=LATE, timeout=20)

    answers = scene.at({40: launch, 41: launch, 90: launch, 95: lambda: cloud.probe(POD, SPEC, timeout=20)})
    assert [outcome(answer) for answer in answers[:3]] == [("Unresolved", "reset"), Accepted(), Accepted()]
    assert answers[3].pid_alive
    assert [machine.work_number for machine in scene.world.machines] == [1, None]


def test_the_same_machine_has_the_same_host_key_in_every_rehearsal(wire: Wire) -> None:
    for _ in range(2):
        scene = Scene(THERE)
        cloud = wire.reach(scene)
        assert isinstance(scene.at({40: partial(cloud.probe, POD, SPEC, timeout=20)})[0], Probe)
    assert list(wire.keys.new()) == [POD]
    assert (wire.keys.pinned(POD) or "?") in host_key(POD).export_public_key("openssh").decode()
    assert host_key(POD) != host_key(GCE)
    assert wire.said == []


def test_past_the_last_moment_nothing_reaches_the_wire(wire: Wire) -> None:
    scene = Scene(THERE)
    cloud = wire.reach(scene)
    answer = scene.at({40: lambda: cloud.launch(POD, SPEC, send_before=39, timeout=20)})[0]
    assert answer.unsent
    assert scene.rules.counts["runpod", "launch"] == 0


def test_a_client_on_the_real_clock_needs_to_say_nothing(wire: Wire, key_path: Path) -> None:
    scene = Scene(THERE + "calls: [{cloud: gcp, call: probe, nth: 2, answer: reset}]")
    gate = Gate(scene.world, scene.rules, lambda: 0)
    server = SshServer(gate)
    wire.servers.append(server)
    by = shell(key_path, wire.keys, wire.said)

    def probe() -> Any:
        return outcome(by.probe(GCE, server.endpoint(GCE), SPEC, timeout=20))

    first, second, third = probe(), probe(), probe()
    assert (first, second) == (third, ("Unknown", "reset"))
    assert isinstance(first, Probe)
    assert scene.rules.counts["gcp", "probe"] == 3


def test_only_the_authorized_key_is_let_in(wire: Wire, key_path: Path) -> None:
    scene = Scene(THERE)
    gate = Gate(scene.world, scene.rules, lambda: 0)
    keys = (asyncssh.read_private_key(key_path), asyncssh.generate_private_key("ssh-ed25519"))
    answers = []
    for key in keys:
        server = SshServer(gate, key.export_public_key("openssh").decode())
        wire.servers.append(server)
        by = shell(key_path, wire.keys, wire.said)
        answers.append(outcome(by.probe(GCE, server.endpoint(GCE), SPEC, timeout=20)))
    assert isinstance(answers[0], Probe)
    assert answers[1] == ("Unknown", "unauthorized")
