"""Real processes of the poller: killed at any point, and stopped at the two points that a lease is about."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.sim.remote import Fault
from tests.poller.kills import books, story
from tests.poller.processes import begin, end, go_on, stopped
from tests.poller.scene import Scene, scene

VANISHES = "world: [{at: 200, cloud: gcp, name: eps-issue-1417, becomes: gone}]"
STANDARD = 'ladder = ["gcp:FLEX_START", "runpod", "gcp:STANDARD"]'


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killed_at_random_points_nothing_is_lost_and_nothing_double(seed: int, memory: Path) -> None:
    told = story(seed, memory / "story", ticks=10, settle=12)
    assert told.wrong == ()
    assert told.kills >= 4, told


@pytest.fixture
def vanished(memory: Path) -> Iterator[Scene]:
    """A queued instance that has vanished; nobody has looked since."""
    with scene(memory / "scene", VANISHES, policy=[STANDARD]) as it:
        words = ("--issue", 1417, "--gpu-type", "H100", "--gpus", 4, "--workload-cmd", "bash x")
        assert end(begin(it, "dispatch", *words)) == 0
        it.host.advance(60)
        assert end(begin(it, "poll")) == 0
        it.host.advance(180)
        yield it


def _provisions(it: Scene) -> list[tuple[str, str]]:
    log = it.log()
    try:
        events = log.read("issue-1417")
        asked = {e.attempt: e.data()["rung"] for e in events if e.type == "ProvisionRequested"}
        kept = ("ProvisionRequested", "ProvisionRefused", "Provisioned")
        return [(e.type, asked[e.attempt]) for e in events if e.type in kept]
    finally:
        log.connection.close()


def test_stopped_past_call_before_between_its_intent_and_its_call_it_does_not_send(vanished: Scene) -> None:
    vanished.host.lay(Fault("before-call", "runpod create", does="stop"))
    poller = begin(vanished, "poll")
    stopped(poller)
    vanished.host.lay()
    vanished.host.advance(300)  # its time is over, and the time in which its machine might still be found
    assert end(begin(vanished, "poll")) == 0  # another poller concludes that it made nothing, and goes on
    assert go_on(poller) == 0
    assert vanished.host.report()["created"] == {"gcp": 2, "runpod": 0}
    vanished.host.advance(60)
    assert end(begin(vanished, "poll")) == 0
    assert books(vanished) == []
    assert vanished.live() == ["gcp/eps-issue-1417"]


def test_stopped_for_less_than_a_tick_it_asks_again_and_never_sends_what_was_too_late(vanished: Scene) -> None:
    vanished.host.lay(Fault("before-call", "runpod create", does="stop"))
    poller = begin(vanished, "poll")
    stopped(poller)
    vanished.host.lay()
    vanished.host.advance(30)
    assert go_on(poller) == 0
    assert vanished.host.report()["created"] == {"gcp": 1, "runpod": 1}
    log = vanished.log()
    intents = [e for e in log.read("issue-1417") if e.type == "ProvisionRequested" and e.data()["rung"] == "runpod"]
    refusals = [e.data() for e in log.read("issue-1417") if e.type == "ProvisionRefused"]
    log.connection.close()
    assert [(refusal["class"], refusal["sent"]) for refusal in refusals] == [("absent", False)]
    with vanished.host.books() as world:
        [pod] = [machine for machine in world.machines if machine.cloud == "runpod"]
        assert pod.marker is not None
        assert pod.marker.endswith(f"{intents[-1].attempt}.{intents[-1].data()['try']}")


def test_stopped_after_its_last_look_it_sends_and_its_machine_is_known_and_gone(vanished: Scene) -> None:
    vanished.host.lay(Fault("after-look", "runpod create", does="stop"))
    poller = begin(vanished, "poll")
    stopped(poller)
    vanished.host.lay()
    vanished.host.advance(300)
    assert end(begin(vanished, "poll")) == 0  # concludes that nothing was made, and rents on the next rung
    assert vanished.host.report()["created"] == {"gcp": 2, "runpod": 0}
    assert go_on(poller) == 0  # what no program can fence: the call goes out all the same
    assert vanished.host.report()["created"] == {"gcp": 2, "runpod": 1}
    vanished.host.advance(60)
    assert end(begin(vanished, "poll")) == 0  # within a tick and a teardown
    with vanished.host.books() as world:
        [pod] = [machine for machine in world.machines if machine.cloud == "runpod"]
        assert pod.state.gone
    vanished.host.advance(60)
    assert end(begin(vanished, "poll")) == 0
    assert books(vanished, at_once=60) == []  # until that tick
    log = vanished.log()
    known = log.run("issue-1417").machines[pod.key]
    log.connection.close()
    assert (known.open, known.gone_by) == (False, "ledger")
    assert vanished.live() == ["gcp/eps-issue-1417"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_watching_poller_ends_cleanly(number: int, vanished: Scene) -> None:
    watcher = vanished.start("poll", "--watch")
    assert watcher.stdout is not None
    assert "gcp_queue_vanish_failover_runpod" in watcher.stdout.readline()
    os.kill(watcher.pid, number)
    ended = vanished.wait(watcher)
    assert (ended.status, ended.out, ended.err) == (0, "", "")
