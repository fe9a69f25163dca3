"""Real poller processes killed at random points of failovers, then ticking on: what the world's own books say after."""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ledger.invariants.audit import audit
from ledger.log.integrity import verify
from ledger.projections.files import SidecarFolder
from ledger.sim import record
from ledger.sim.remote import Fault
from tests.poller.processes import begin, end
from tests.poller.scene import Scene, scene, scratch

KILLED = -9
TICK = 60.0
POLICY = ("queue_wait_seconds = 180", "launch_confirm_seconds = 600", "teardown_confirm_seconds = 300")
WORLDS = {
    "the queue entry vanishes": "world: [{at: 200, cloud: gcp, name: eps-issue-1417, becomes: gone}]",
    "the queue is too long, and no pod is to be had": (
        "calls: [{cloud: runpod, call: create, nth: 1, answer: no_capacity}]"
    ),
    "the pod's launch never shows": "workloads: [{cloud: runpod, does: never_starts}]",
}


@dataclass(frozen=True, slots=True)
class Story:
    """What a run of killed processes came to: how many were killed, at which points, and what is wrong."""

    seed: int
    world: str
    kills: int
    points: tuple[str, ...]
    outcome: str
    wrong: tuple[str, ...]


def story(seed: int, folder: Path, *, ticks: int = 12, settle: int = 14) -> Story:
    """Tick with a kill at a random point in most ticks, then without; and look into every book."""
    chance = random.Random(f"kills/{seed}")
    title = list(WORLDS)[seed % len(WORLDS)]
    with scene(folder, WORLDS[title], policy=POLICY) as it:
        end(begin(it, "dispatch", "--issue", 1417, "--gpu-type", "H100", "--gpus", 4, "--workload-cmd", "bash x"))
        kills = 0
        for _ in range(ticks):
            it.host.advance(TICK)
            kills += _tick_killed(it, chance)
        it.host.lay()
        statuses = []
        for _ in range(settle):
            it.host.advance(TICK)
            statuses.append(end(begin(it, "poll")))
        wrong = [f"a tick without a fault ended with {status}" for status in statuses if status != 0]
        wrong += books(it)
        with_log = it.log()
        run = with_log.run("issue-1417")
        with_log.connection.close()
        points = tuple(f"{point} {what}".strip() for _, point, what in it.host.struck)
        return Story(seed, title, kills, points, run.reason or "running", tuple(wrong))


def _tick_killed(it: Scene, chance: random.Random) -> bool:
    """One tick; whether it was killed. Mostly at the nth point that it passes, sometimes at any moment at all."""
    how = chance.random()
    if how < 0.7:
        it.host.lay(Fault(nth=chance.choice((1, 2, 3, 4, 5, 6, 8, 10, 13, 17))))
    elif how < 0.8:
        it.host.lay(Fault("after-call", chance.choice(("gcp create", "runpod create", "runpod delete"))))
    elif how < 0.9:
        it.host.lay(Fault("during-projection"))
    else:
        it.host.lay()
        process = begin(it, "poll")
        process.join(chance.uniform(0.005, 0.12))
        process.kill()
        return end(process) == KILLED
    return end(begin(it, "poll")) == KILLED


def books(it: Scene, *, at_once: float = 0.0) -> list[str]:
    """What the world's books and the ledger's do not agree on; [] where no machine is lost, doubled or wrong.

    `at_once`: seconds for which two may have been billed at once.
    """
    wrong = []
    log = it.log()
    try:
        run = log.run("issue-1417")
        with it.host.books() as world:
            ours = [machine for machine in world.machines if machine.ours]
            wrong += [f"{m.key} is not in the log" for m in ours if m.key not in run.machines]
            wrong += [
                f"{m.key} is gone and the log has it open"
                for m in ours
                if m.state.gone and m.key in run.machines and run.machines[m.key].open
            ]
            billed = [m.key for m in world.machines if m.state.bill]
            double = record.max_double(world, world.now)
            wasted = record.max_unlaunched(world, world.now)
            calls = sum(world.created.values())
        held = [run.handle] if run.open and run.handle_machine() is not None else []
        if not set(billed) <= set(held):
            wrong.append(f"billed: {billed}, and the handle is {held}")
        if double > at_once:
            wrong.append(f"two machines were billed at once for {double} s")
        if wasted > 600 + 300 + 2 * TICK:
            wrong.append(f"a machine was billed for {wasted} s without a workload")
        asked = sum(event.type == "ProvisionRequested" for event in log.read("issue-1417"))
        if calls > asked:
            wrong.append(f"{calls} machines were made by {asked} intents")
        wrong += [str(finding) for finding in verify(log, projections=True)]
        folder = SidecarFolder(it.folder / "handles")
        wrong += [f"{one.path.name}: {one.detail}" for one in folder.check(log)]
        wrong += [f"open: {breach.id}" for breach in audit(log, it.source.now(), folder.rows(log))]
    finally:
        log.connection.close()
    return wrong


def main(argv: Sequence[str]) -> int:
    """`scripts/kills N [SEED]`: stories until N processes were killed; 1 if anything is wrong after one."""
    wanted, seed = int(argv[0]), int(argv[1]) if len(argv) > 1 else 0
    killed = bad = 0
    with tempfile.TemporaryDirectory(prefix="kills-", dir=scratch()) as folder:
        while killed < wanted:
            told = story(seed, Path(folder) / str(seed))
            killed += told.kills
            bad += bool(told.wrong)
            print(f"seed {seed}: {told.world}: {told.kills} killed, ends {told.outcome}", flush=True)
            for line in told.wrong:
                print(f"  WRONG: {line}  (killed at: {', '.join(told.points)})", flush=True)
            seed += 1
    print(f"{killed} processes killed; {bad or 'no'} stories are wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
