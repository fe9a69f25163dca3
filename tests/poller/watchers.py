"""`ledger poll --watch` as it runs for hours: one or two real pollers on the scenario files, killed at a point that is
drawn by its kind, started again, and judged by the universal truths and the world's own books.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from ledger.invariants.audit import audit
from ledger.log.integrity import verify
from ledger.projections.files import SidecarFolder
from ledger.sim import record
from ledger.sim.proof import differences
from ledger.sim.remote import Fault
from ledger.sim.scenario import load
from ledger.sim.schema import Scenario
from ledger.sim.truths import Evidence, Proof, violations
from tests import strict_reader
from tests.poller.kills import KILLED
from tests.poller.processes import begin, end
from tests.poller.scene import Scene, scene, scratch

SCENARIOS = Path(__file__).parent.parent / "scenarios"
FAILOVERS = (
    "queue-vanish-heals",
    "queue-timeout",
    "no-port-wedge",
    "workload-crash-fails-over",
    "queue-vanish-launch-never-confirms",
    "slow-cancel-does-not-hold-the-failover",
)
UNTIL = 5400.0
_ENDS = ("Repointed", "RunClosed", "TornDown")


def killed(seed: int) -> tuple[int, list[str]]:
    """One rehearsal: how many were killed, and what is wrong in the end."""
    chance = random.Random(f"watchers/{seed}")
    name = FAILOVERS[seed % len(FAILOVERS)]
    places, took = undisturbed(name)
    pollers = chance.choice((1, 1, 2))
    anytime = chance.random() < 0.2
    # Each kind of point is as likely as another: a create passes once where a list passes a hundred times.
    nth = chance.choice(places[chance.choice(sorted(places))])
    kills = 0
    with on(name) as (it, scenario):
        it.host.lay(*([] if anytime else [Fault(nth=nth)]))
        alive = [begin(it, "poll", "--watch") for _ in range(pollers)]
        if anytime:
            alive[0].join(chance.uniform(0, took))
            alive[0].kill()
        while alive:
            status = end(alive.pop(0))
            if status == KILLED:
                kills += 1
                it.host.died()
                it.host.lay(*([Fault(nth=chance.randint(1, 80))] if chance.random() < 0.5 else []))
                alive.append(begin(it, "poll", "--watch"))
            elif status != 0:
                return kills, [f"a poller ended with {status}: {(it.folder / 'output').read_text(encoding='utf-8')}"]
        wrong = faults(it, scenario) if kills or anytime else ["no poller came to the point at which it was to die"]
        return kills, [f"seed {seed}, {name}: {fault}" for fault in wrong]


@cache
def undisturbed(name: str) -> tuple[dict[str, list[int]], float]:
    """What a poller passes during the failover when nobody kills it, and the real seconds that it takes to the end.

    A kind of point, and when it is passed: the how manieth of all points (from 1).
    """
    with on(name) as (it, scenario):
        before = len(it.host.trail)
        began = time.monotonic()
        assert end(begin(it, "poll", "--watch")) == 0, (it.folder / "output").read_text(encoding="utf-8")
        took = time.monotonic() - began
        assert faults(it, scenario) == []
        trail = it.host.trail[before:]
    first = next(place for place, point in enumerate(trail) if "FailoverDecided" in point)
    last = max(place for place, point in enumerate(trail) if any(word in point for word in _ENDS))
    places: dict[str, list[int]] = {}
    for place in range(first - 1, last + 3):
        places.setdefault(trail[place], []).append(place + 1)
    return places, took


@contextmanager
def on(name: str) -> Iterator[tuple[Scene, Scenario]]:
    """A scenario file's world and policy, its first dispatch done, its time to pass as pollers sleep."""
    file = SCENARIOS / f"{name}.yaml"
    scenario = load(file)
    sections = file.read_text(encoding="utf-8").partition("\nexpect:")[0].splitlines()
    world = "\n".join(line for line in sections if not line.startswith(("scenario:", "about:")))
    # What a policy looks like in TOML, it looks like in JSON.
    policy = [f"{field} = {json.dumps(value)}" for field, value in scenario.policy_values.items()]
    with TemporaryDirectory(dir=scratch()) as folder, scene(Path(folder) / "scene", world, policy=policy) as it:
        row = scenario.dispatches[0]
        words = ["--issue", row.issue, "--backend", row.backend, "--gpu-type", row.gpu_type, "--gpus", row.gpus]
        words += ["--workload-cmd", row.workload_cmd]
        words += ["--provisioning-model", row.provisioning_model] if row.provisioning_model else []
        assert end(begin(it, "dispatch", *words)) == 0
        it.host.until = UNTIL
        yield it, scenario


def faults(it: Scene, scenario: Scenario) -> list[str]:
    """What is wrong in the end, by the universal truths, the world's own books, the chain, the files and the audit."""
    folder = SidecarFolder(it.folder / "handles")
    log = it.log()
    now = it.source.now()  # asked of the host, who answers nobody while its books are looked into
    try:
        with it.host.books() as world:
            files: dict[str, object] = {}
            for path in sorted(folder.path.glob("*-handle.json")):
                text = path.read_text(encoding="utf-8")
                strict_reader.read(path.name, text)
                files[path.name] = json.loads(text)
            history = it.host.rules.history
            history.files += [(world.now, one.path.name, one.kind) for one in folder.check(log)]
            events = [event.to_json() for event in log.read_all()]
            proof = Proof(frozenset(it.host.acknowledged), differences(log))
            evidence = Evidence(scenario, world, history, events, world.now, files, proof)
            wrong = [str(violation) for violation in violations(evidence)]
            wrong += [f"verify: {finding}" for finding in verify(log, projections=True)]
            wrong += [f"open: {one.id}: {one.detail}" for one in audit(log, now, folder.rows(log))]
            for stream, active in log.connection.query("SELECT stream, active FROM runs"):
                billed = [m.key for m in world.machines if m.state.bill and record.run_of(world, m) == stream]
                wanted = [log.run(stream).handle] if active else []
                wrong += [f"{stream}: billed are {billed}, and its machines are {wanted}"] if billed != wanted else []
        return wrong
    finally:
        log.connection.close()
