"""Detail reads within their budget: whoever was left out has its turn, whatever the reads show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest

from ledger.clouds.values import Probe, Seen
from ledger.decide.view import Rent
from ledger.edges import Edges
from ledger.log.store import Log
from ledger.policy import Policy
from ledger.poller.observe import Observation, read_details
from tests.support import POD_ACCOUNT, clock, launched, ledger_at, opened, provisioned, requested, us, write

PODS = [f"runpod:pod-{n}" for n in range(6)]
POLICY = Policy(detail_reads_per_minute=2, poll_interval_seconds=60.0)


class Pods:
    backend, account = "runpod", POD_ACCOUNT

    def __init__(self) -> None:
        self.read: list[str] = []

    def probe(self, machine: str, spec: Any, *, timeout: float) -> Probe:
        self.read.append(machine)
        return Probe(pid=1, pid_alive=True, log_bytes=1, log_age=0.0, done=False, gpu_util=90)


def now(calls: Sequence[Callable[[], Any]], seconds: float) -> list[Any]:
    return [call() for call in calls]


def edges(log: Log, pods: Pods, policy: Policy) -> Edges:
    return Edges(
        clock(log), log, [pods], None, policy, Rent((), None, POD_ACCOUNT), {}, now, "test", print  # type: ignore[list-item]
    )  # fmt: skip


def ticks(log: Log, count: int, policy: Policy = POLICY, *, remember: bool = True) -> list[list[str]]:
    """What each of so many ticks, a minute apart, reads; each as a process of its own would."""
    told = []
    for _ in range(count):
        clock(log).micros += 60_000_000
        seen = {pod: Seen(pod, "runpod", POD_ACCOUNT, "x", "RUNNING", ports="h:22") for pod in PODS}
        pods = Pods()
        runs = [log.run(f"issue-{n}") for n in range(len(PODS))]
        read_details(edges(log, pods, policy), Observation(clock(log).now(), seen=seen), runs, 10, remember=remember)
        told.append(pods.read)
    return told


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with ledger_at(tmp_path / "ledger.db") as made:
        for n, pod in enumerate(PODS):
            steps = [opened(0, n), requested(1, f"a{n}"), provisioned(2, pod, f"a{n}")]
            write(made, [(f"issue-{n}", draft) for draft in (*steps, launched(3, pod, f"a{n}"))])
        yield made


def test_each_has_its_turn_though_nothing_new_is_seen(log: Log) -> None:
    told = ticks(log, 6)
    assert [len(read) for read in told] == [2] * 6
    assert sorted(chain(*told[:3])) == sorted(chain(*told[3:])) == sorted(PODS)


def test_the_unsure_come_first_and_nobody_waits_ten_minutes(log: Log) -> None:
    unsure = PODS[:2]
    for n, pod in enumerate(unsure):
        suspect = {"status": "RUNNING", "source": "probe", "suspect": 1, "reachable": False}
        draft = replace(launched(9, pod), type="MachineObserved", payload=suspect, occurred_at=us(9))
        write(log, [(f"issue-{n}", draft)])
    told = ticks(log, 30)
    assert sum(set(read) == set(unsure) for read in told) > 15
    for pod in PODS:
        at = [n for n, read in enumerate(told, start=1) if pod in read]
        assert max(b - a for a, b in pairwise(at)) <= 10, (pod, at)


def test_where_all_can_be_read_nothing_is_kept(log: Log) -> None:
    assert {frozenset(read) for read in ticks(log, 2, replace(POLICY, detail_reads_per_minute=600))} == {
        frozenset(PODS)
    }
    assert log.connection.query("SELECT count(*) FROM vitals") == [(0,)]


def test_a_look_that_may_write_nothing_keeps_nothing(log: Log) -> None:
    ticks(log, 2, remember=False)
    assert log.connection.query("SELECT count(*) FROM vitals") == [(0,)]
