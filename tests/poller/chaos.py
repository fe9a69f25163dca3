"""Four real pollers and many runs on a PostgreSQL server that is killed and started again every few seconds.

Nothing that was acknowledged is lost, no machine is lost or doubled, and the pollers come back by themselves: they are
started once. The runs begin in a queue that is too long, so that each has a failover; time passes as the pollers sleep.

The world stands still while the server is down: its hours pass in a minute, and nobody could work in them. What a tick
that broke off was to do waits for the next one, so what the laws of the calls say of time is left out. For the last of
the hours the server is left alone.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ledger.moments import MICROS
from ledger.sim.scenario import loads
from tests.poller.processes import begin
from tests.poller.scene import Scene, scene, scratch
from tests.poller.watchers import faults
from tests.server import DURABLE, Server

POLICY = (
    "queue_wait_seconds = 300",
    "max_teardowns_per_tick = 10000",
    "poll_interval_seconds = 60",
)
POLLERS = 4
HOURS = 2.0
ALONE = 0.75  # of the hours, when the killing ends
_OF_TIME = 0  # the number of the laws of the calls
FIRST = 2000
PATIENCE = 3600.0  # real seconds


@dataclass(frozen=True, slots=True)
class Story:
    """What came of it."""

    runs: int
    kills: int
    seconds: float
    events: int
    wrong: tuple[str, ...]


def story(runs: int, seed: int, folder: Path, *, every: float = 3.0) -> Story:
    """Dispatch, then let the pollers work while the server dies about `every` seconds; then look into every book."""
    chance = random.Random(f"chaos/{seed}")
    server = Server(settings=DURABLE)
    try:
        name = server.make()
        began = time.monotonic()
        with scene(folder, policy=POLICY, database=server.url(name)) as it:
            _dispatch(it, runs)
            it.host.until = HOURS * 3600
            pollers = [begin(it, "poll", "--watch") for _ in range(POLLERS)]
            kills = 0
            while any(poller.is_alive() for poller in pollers):
                for poller in pollers:
                    poller.join(chance.uniform(0.5, 1.5) * every / POLLERS)
                late = it.host.world.now > ALONE * HOURS * 3600 * MICROS
                if not late and all(poller.is_alive() for poller in pollers):
                    with it.host.books():
                        server.kill()
                        time.sleep(chance.uniform(0, 0.5))
                        server.start()
                    kills += 1
                if time.monotonic() - began > PATIENCE:
                    break
            wrong = [f"a poller ended with {p.exitcode}" for p in pollers if p.exitcode != 0]
            for poller in pollers:
                poller.kill()
                poller.join()
            output = (it.folder / "output").read_text(encoding="utf-8")
            wrong += ["a traceback: " + output[output.index("Traceback") :][:2000]] if "Traceback" in output else []
            found = faults(it, loads(b"scenario: s\nexpect: {}\n", "s.yaml"))
            wrong += [fault for fault in found if not fault.startswith(f"truth {_OF_TIME}:")]
            log = it.log()
            events = int(log.connection.query("SELECT count(*) FROM events")[0][0])
            launched = log.connection.query("SELECT count(DISTINCT stream) FROM events WHERE type = 'LaunchConfirmed'")
            wrong += [f"{launched[0][0]} of {runs} runs were launched"] if launched[0][0] != runs else []
            log.connection.close()
        return Story(runs, kills, time.monotonic() - began, events, tuple(wrong))
    finally:
        server.stop()


def _dispatch(it: Scene, runs: int) -> None:
    for first in range(0, runs, POLLERS):
        words = ("--gpu-type", "H100", "--gpus", 4, "--workload-cmd", "bash x")
        batch = [begin(it, "dispatch", "--issue", FIRST + n, *words) for n in range(first, min(first + POLLERS, runs))]
        for process in batch:
            process.join(60)
            assert process.exitcode == 0, (it.folder / "output").read_text(encoding="utf-8")[-2000:]


def main(argv: list[str]) -> int:
    """`RUNS [SEED]`: exit 1 if anything is wrong after."""
    runs, seed = int(argv[0]), int(argv[1]) if len(argv) > 1 else 1
    with tempfile.TemporaryDirectory(dir=scratch()) as folder:
        told = story(runs, seed, Path(folder) / "scene")
    print(
        f"{told.runs} runs, {POLLERS} pollers, the server killed {told.kills} times in {told.seconds:.0f} s,"
        f" {told.events} events: {'nothing is wrong' if not told.wrong else 'WRONG'}"
    )
    for line in told.wrong:
        print(f"  {line}")
    return 1 if told.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
