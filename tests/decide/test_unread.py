"""What is done and told where nothing can be read: obligations go on, and blindness is no silence."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.clouds.values import Guest, Unknown
from ledger.decide.facts import facts
from ledger.policy import Policy
from tests import support as s
from tests.decide.making import ALIVE, look, pod, run_of, verdict, vm

RUNS = (s.opened(0, rung="runpod"), s.requested(0), s.provisioned(0), s.launched(60), s.cancelled(500))
AGAIN = "TeardownRequested(cancelled) delete"


@pytest.mark.parametrize(
    ("failures", "requests", "at", "expected"),
    [
        # None failed: it was accepted or its sender died, and only a sight of it says that it is still there.
        (0, 1, 9999, "-"),
        (1, 1, 660, AGAIN),
        # The second and the third failed too, and only the second was worth an event.
        (1, 2, 719, "-"),
        (1, 2, 720, AGAIN),
        (2, 3, 839, "-"),
        (2, 3, 840, AGAIN),
        (4, 7, 1199, "-"),
        (4, 7, 1200, AGAIN),
    ],
)
def test_a_delete_that_failed_is_sent_again_though_no_list_answers(
    failures: int, requests: int, at: float, expected: str
) -> None:
    tries: list[Any] = []
    for number in range(1, requests + 1):
        sent = 600 - requests + number
        tries.append(s.teardown(sent))
        if number <= failures:
            tries.append(s.teardown_failed(sent, count=number))
    assert verdict(run_of(*RUNS, *tries), look(at, complete=False)) == expected


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("unreachable", True),
        ("host_key_changed", True),
        ("unauthorized", True),
        ("http_500", True),
        ("malformed", True),
        ("unsupported", False),  # no SSH is configured: it was not tried
    ],
)
def test_that_no_probe_reads_it_is_told_whatever_the_error_once(error: str, told: bool) -> None:
    drafts: tuple[Any, ...] = (*RUNS[:4], s.observed(90, gpus="busy", log="fresh", ports="10.0.0.1:22"))
    view = look(120, pod(gpu_util=90), probe=Unknown(error))
    found = facts(run_of(*drafts), view, Policy())
    assert [draft.payload.get("reachable") for draft in found] == ([False] if told else [])
    if told:
        run = run_of(*drafts, *found)
        assert run.machines[s.POD].unreached_at == s.us(120)
        again = facts(run, look(180, pod(gpu_util=90), probe=Unknown(error)), Policy())
        assert [draft.payload["suspect"] for draft in again] == ([2] if error == "unreachable" else [])
        seen = facts(run, look(180, pod(gpu_util=90), probe=ALIVE), Policy())
        assert run_of(*drafts, *found, *seen).machines[s.POD].unreached_at is None


def test_what_cannot_be_read_of_an_instance_is_no_suspicion_against_it() -> None:
    run = run_of(s.opened(0), s.requested(0, rung="gcp:FLEX_START"), s.provisioned(0, s.VM))
    found = facts(run, look(1100, vm(), guest=Guest("workload", True), probe=Unknown("host_key_changed")), Policy())
    assert [(draft.payload["suspect"], draft.payload["reachable"]) for draft in found] == [(0, False)]
