"""Scenarios through the real clients, over real sockets on the virtual clock: held, and as they go in process.

Six files of different kinds stand for all; `scripts/wire` goes through every file.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from ledger.sim.program import TheProgram
from ledger.sim.rehearse import Outcome, rehearse
from ledger.sim.scenario import load
from ledger.sim.wire.rehearsed import APIS, Wire
from tests.sim.over_the_wire import FOLDER, difference

FILES = (
    "queue-vanish-heals",  # GCE's queue, a pod, a launch over SSH
    "every-rung-refuses",
    "pod-behind-a-500",  # made, and the answer says otherwise
    "no-port-wedge",
    "one-blip-is-no-wedge",  # SSH that does not reach
    "died-between-file-and-rename",
)


@cache
def plain(path: Path) -> Outcome:
    return rehearse(load(path), 0, TheProgram())


@cache
def wired(name: str, api: str) -> Outcome:
    return rehearse(load(FOLDER / f"{name}.yaml"), 0, TheProgram(), door=Wire(api))


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("name", FILES)
def test_a_scenario_over_the_wire_is_held_and_goes_as_in_process(name: str, api: str) -> None:
    outcome = wired(name, api)
    assert outcome.failures == ()
    assert outcome.truths == ()
    assert difference(outcome, plain(FOLDER / f"{name}.yaml")) is None


def test_a_launch_over_the_wire_pins_the_host_key_in_the_log_once() -> None:
    outcome = wired("queue-vanish-heals", "graphql")
    pinned = [event for event in outcome.facts.events if event["type"] == "HostKeyPinned"]
    assert [event["machine"].partition(":")[0] for event in pinned] == ["runpod"]
    assert pinned[0]["payload"]["key"].startswith("ssh-ed25519 ")


def test_an_outcome_is_the_same_twice_but_for_the_time_it_took() -> None:
    again = rehearse(load(FOLDER / "pod-behind-a-500.yaml"), 0, TheProgram(), door=Wire("rest_v2"))
    assert again.facts.events == wired("pod-behind-a-500", "rest_v2").facts.events
