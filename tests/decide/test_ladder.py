"""The ladder as a table: what was tried, what happened, what comes next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ledger.decide import ladder
from ledger.policy import Policy
from tests import support as s
from tests.decide.making import RENT, look, run_of, verdict

FLEX, POD, STANDARD, SPOT = "gcp:FLEX_START", "runpod", "gcp:STANDARD", "gcp:SPOT"
DEFAULT = [FLEX, POD, STANDARD]


@pytest.mark.parametrize(
    ("rungs", "start", "paid", "expected"),
    [
        (DEFAULT, FLEX, True, (FLEX, POD, STANDARD)),
        (DEFAULT, POD, True, (POD, STANDARD, FLEX)),
        (DEFAULT, STANDARD, True, (STANDARD, FLEX, POD)),
        (DEFAULT, SPOT, True, (SPOT, FLEX, POD, STANDARD)),  # not on the ladder: there, then from its top
        (DEFAULT, FLEX, False, (FLEX, STANDARD)),
        (DEFAULT, POD, False, (POD, FLEX, STANDARD)),  # asked for by name, paid or not
        ([POD], POD, True, (POD,)),
    ],
)
def test_the_order_of_a_dispatch(rungs: list[str], start: str, paid: bool, expected: tuple[str, ...]) -> None:
    run = run_of(s.opened(0, ladder=rungs, rung=start, allow_paid_fallback=paid))
    assert ladder.order(run, Policy()) == expected


@pytest.mark.parametrize(
    ("tried", "refusal", "queue", "failure"),
    [
        ([FLEX], POD, POD, POD),
        ([FLEX, POD], STANDARD, STANDARD, None),
        ([FLEX, POD, STANDARD], None, None, None),
        ([STANDARD], FLEX, POD, POD),
        ([STANDARD, FLEX], POD, POD, POD),
        ([STANDARD, FLEX, POD], None, None, None),
    ],
)
def test_the_next_rung(tried: list[str], refusal: Any, queue: Any, failure: Any) -> None:
    drafts = [s.opened(0, ladder=DEFAULT, rung=tried[0])]
    for number, rung in enumerate(tried):
        drafts += [s.requested(number, f"attempt-{number}", rung), s.refused(number, f"attempt-{number}")]
    run = run_of(*drafts)
    policy = Policy()
    assert ladder.after_refusal(run, policy) == refusal
    assert ladder.after_queue(run, policy, "gcp") == queue
    assert ladder.after_failure(run, policy, "gcp") == failure


def test_a_queue_that_has_no_other_cloud_takes_what_is_no_queue() -> None:
    run = run_of(s.opened(0, ladder=[FLEX, STANDARD], rung=FLEX), s.requested(0, rung=FLEX))
    assert ladder.after_queue(run, Policy(), "gcp") == STANDARD


@pytest.mark.parametrize(
    ("refusals", "expected"),
    [
        ([], ("a", 1)),
        ([("a", "capacity")], ("b", 2)),
        ([("a", "name_taken")], ("b", 2)),
        ([("a", "absent")], ("b", 2)),
        ([("a", "quota"), ("b", "capacity")], (None, 1)),  # the next rung, a fresh attempt
    ],
)
def test_zones_in_order_then_the_next_rung(refusals: list[tuple[str, str]], expected: Any) -> None:
    drafts = [s.opened(0, ladder=DEFAULT, rung=FLEX)]
    for number, (zone, cls) in enumerate(refusals, 1):
        drafts += [s.requested(number, s.A, FLEX, number=number, zone=zone), s.refused(number, s.A, cls, number)]
    view = look(100, rent=replace(RENT, zones=("a", "b")))
    from ledger.decide.provision import target

    goal = target(run_of(*drafts), view, Policy())
    assert goal is not None
    assert (goal[1], goal[3]) == expected
    assert goal[0] == (FLEX if expected[0] else POD)


def test_a_zone_that_was_asked_for_comes_first() -> None:
    run = run_of(s.opened(0, rung=FLEX, zone="c"))
    assert ladder.zones_of(run, FLEX, replace(RENT, zones=("a", "b"))) == ("c", "a", "b")


def test_every_rung_refused_closes_for_want_of_compute() -> None:
    drafts = [s.opened(0)]
    for number, rung in enumerate(DEFAULT):
        drafts += [s.requested(number, f"attempt-{number}", rung), s.refused(number, f"attempt-{number}")]
    assert verdict(run_of(*drafts), look(100)) == "RunClosed(failed/no_compute_available)"
    assert verdict(run_of(*drafts[:-2]), look(100)) == f"ProvisionRequested({STANDARD}) create"


def test_an_unknown_outcome_stops_the_walk() -> None:
    run = run_of(s.opened(0), s.requested(0, rung=FLEX), s.unresolved(10))
    assert verdict(run, look(60)) == "-"


def test_a_name_held_by_our_own_leaving_machine_is_waited_for() -> None:
    leaving = (s.requested(0, rung=FLEX), s.provisioned(1, s.VM), s.observed(60, s.VM, phase="failed"))
    away = (s.failover(100, s.VM, "boot_death"), s.teardown(100, s.VM, "boot_death"))
    run = run_of(s.opened(0, ladder=[FLEX], rung=FLEX), *leaving, *away)
    boot_again = replace(run.failovers[-1], next_rung=FLEX)
    run.failover = boot_again
    assert verdict(run, look(130)) == "-"
    later = run_of(s.opened(0, ladder=[FLEX], rung=FLEX), *leaving, *away, s.torn_down(160, s.VM))
    later.failover = boot_again
    assert verdict(later, look(160)) == f"ProvisionRequested({FLEX}) create"
