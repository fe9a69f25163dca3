"""Each universal truth, broken by a doctored record, is found; an honest record breaks none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ledger.moments import MICROS
from ledger.sim.history import History, Sight
from ledger.sim.program import TheProgram
from ledger.sim.rehearse import Outcome, rehearse
from ledger.sim.truths import Evidence, Proof, Violation, same_events, violations
from tests.sim.making import pod, scenario

RUN = "dispatches: [{at: 0, issue: 1, backend: runpod, gpu_type: H100, gpus: 1, workload_cmd: x}]\n"
STRANGERS = """machines:
  - {cloud: runpod, name: someone-else, id: se1, marker: none}
  - {cloud: runpod, name: pod-1, id: old1, marker: none, gpu_util: 80}
  - {cloud: runpod, name: pod-1, id: theirs, marker: other, gpu_util: 0}
poll: {every: 300, until: 9000}
policy: {launch_confirm_seconds: 600, done_grace_seconds: 600}
"""


def honest(text: str = RUN + STRANGERS) -> tuple[Evidence, Outcome]:
    """What the truths are judged by after a rehearsal in which all went well."""
    told = scenario(text)
    outcome = rehearse(told, 0, TheProgram())
    facts = outcome.facts
    proof = Proof(frozenset(event["event_id"] for event in facts.events))
    end = told.poll.until
    return Evidence(told, outcome.world, outcome.history, list(facts.events), end, facts.handles, proof), outcome


def found(evidence: Evidence) -> set[tuple[int, str]]:
    """The truths that do not hold."""
    return {violation.key for violation in violations(evidence)}


def test_an_honest_record_breaks_no_truth() -> None:
    evidence, outcome = honest()
    assert outcome.truths == ()
    assert found(evidence) == set()


def _silent_pod(evidence: Evidence) -> Evidence:
    """A pod of the run that no workload ever lived on."""
    intent = next(event for event in evidence.events if event["type"] == "ProvisionRequested")
    world = evidence.world
    marker = f"{world.ledger_id}.issue-1.{intent['attempt']}.1"
    world.now = 100 * MICROS
    world.create("runpod", pod("pod-1", marker=marker))
    world.machines[-1].states[0] = replace(world.machines[-1].states[0], fixed={"gpu_util": 0})
    return evidence


def _never_ended(evidence: Evidence) -> Evidence:
    """The workload ended at once, and the machine is there all the same."""
    machine = next(m for m in evidence.world.machines if m.ours)
    end = evidence.end
    over = replace(machine.states[-2], gone=False, bill=True, status="RUNNING", work="ended", died_at=200 * MICROS)
    machine.times[:], machine.states[:] = [*machine.times[:2], 200 * MICROS], [*machine.states[:2], over]
    machine.states[-1] = replace(over, up_since=0)
    return replace(evidence, end=end)


def _idle_orphan(evidence: Evidence) -> Evidence:
    """The orphan was idle all the time, lists showed it, the handle named another."""
    orphan = next(m for m in evidence.world.machines if m.id == "old1")
    orphan.states[0] = replace(orphan.states[0], fixed={"gpu_util": 0})
    return evidence


def _history(evidence: Evidence, change: Callable[[History], Any]) -> Evidence:
    change(evidence.history)
    return evidence


def _log(evidence: Evidence, change: Callable[[list[dict[str, Any]]], Any]) -> Evidence:
    events = [{**event, "payload": dict(event["payload"])} for event in evidence.events]
    change(events)
    return replace(evidence, events=events)


def _stolen(events: list[dict[str, Any]]) -> None:
    event = next(event for event in events if event["type"] == "Provisioned")
    event["machine"] = "runpod:theirs"


def _named_after_it_was_gone(evidence: Evidence) -> Evidence:
    torn = next(event for event in evidence.events if event["type"] == "TornDown")
    pod_id = torn["machine"].partition(":")[2]
    file = {"backend": "runpod", "job_id": "", "extra": {"pod_id": pod_id, "ledger": {"state": "running"}}}
    return replace(evidence, handles={"issue-1-handle.json": file})


def _named_for_a_tick(evidence: Evidence) -> Evidence:
    """The sidecar was right at the end, and not at the end of a tick."""
    torn = next(event for event in evidence.events if event["type"] == "TornDown")
    when = torn["recorded_at"] - evidence.world.start
    evidence.history.named.append((when, f"{torn['stream']}-handle.json", torn["machine"], "running"))
    return evidence


def _failing_over(evidence: Evidence, seconds: int) -> Evidence:
    """A failover that went on for so long after its newest step, the old machine being known to be gone."""
    events = list(evidence.events)
    torn = next(event for event in events if event["type"] == "TornDown")
    decided = {**torn, "type": "FailoverDecided", "payload": {"reason": "taken"}}
    when = torn["recorded_at"] - evidence.world.start + seconds * MICROS
    evidence.history.named.append((when, f"{torn['stream']}-handle.json", torn["machine"], "failing_over"))
    return replace(evidence, events=[*events, decided])


CASES: list[tuple[int, str, Callable[[Evidence], Evidence]]] = [
    (1, "billed without ever a live workload", _silent_pod),
    (1, "billed after its workload had ended", _never_ended),
    (1, "an idle orphan is left", _idle_orphan),
    (2, "two machines of one run billed", _silent_pod),
    (3, "a sidecar is edited", lambda e: _history(e, lambda h: h.files.append((60 * MICROS, "f", "edited")))),
    (3, "a sidecar names a machine that is gone", _named_after_it_was_gone),
    (3, "a sidecar names a machine that is gone", _named_for_a_tick),
    (3, "a sidecar names a machine that is gone", lambda e: _failing_over(e, 1200)),
    (4, "a foreign machine was deleted", lambda e: _history(e, lambda h: h.deletes.append((MICROS, "runpod:se1")))),
    (4, "a foreign machine was deleted", lambda e: _history(e, lambda h: h.deletes.append((MICROS, "runpod:theirs")))),
    (4, "a foreign machine was deleted", lambda e: _history(e, lambda h: h.deletes.append((MICROS, "runpod:old1")))),
    (4, "a delete of no machine's id", lambda e: _history(e, lambda h: h.deletes.append((MICROS, "pod-1")))),
    (4, "a foreign machine was taken over", lambda e: _log(e, _stolen)),
    (
        5,
        "shown, and not in the log",
        lambda e: _log(
            _history(
                e,
                lambda h: h.sights.append(
                    Sight(MICROS, "runpod", True, False, frozenset(m.key for m in e.world.machines))
                ),
            ),
            lambda events: (
                [event.update(machine=None) for event in events if event["type"] != "Provisioned"]
                and [event.update(machine="runpod:nobody") for event in events if event["type"] == "Provisioned"]
            ),
        ),
    ),
    (6, "a rebuild differs", lambda e: replace(e, proof=replace(e.proof, rebuilt=("machines",)))),
    (7, "a version is missing", lambda e: _log(e, lambda events: events.pop(3))),
    (7, "an acknowledged event is missing", lambda e: _log(e, lambda events: events.pop())),
]


@pytest.mark.parametrize(("truth", "what", "doctor"), CASES, ids=[f"{n}-{what}" for n, what, _ in CASES])
def test_a_doctored_record_is_found(truth: int, what: str, doctor: Callable[[Evidence], Evidence]) -> None:
    evidence, _ = honest()
    assert (truth, what) in found(doctor(evidence))


def test_a_failover_within_its_bound_may_name_what_is_gone() -> None:
    evidence, _ = honest()
    assert not {key for key in found(_failing_over(evidence, 1199)) if key[0] == 3}


def test_a_second_run_that_differs_is_found() -> None:
    _, outcome = honest()
    events = outcome.facts.events
    assert same_events(events, events) == ()
    assert [v.truth for v in same_events(events, events[:-1])] == [8]
    changed = [*events[:-1], {**events[-1], "position": 0}]
    assert [v.truth for v in same_events(events, changed)] == [8]


def test_faults_that_do_not_end_judge_nothing_that_waits_for_their_end() -> None:
    evidence, _ = honest(RUN + STRANGERS + "clocks: [{at: 60, poller: 1, by: 86400}]\n")
    assert not {key for key in found(_silent_pod(evidence)) if key[0] in (1, 2)}


def test_a_violation_names_the_truth_the_machine_and_the_times() -> None:
    evidence, _ = honest()
    one = next(v for v in violations(_silent_pod(evidence)) if v.truth == 1)
    assert "runpod/pod-1" in one.who
    assert 0 < one.since < one.until <= 9000
    assert str(one).startswith("truth 1: billed without ever a live workload: runpod/pod-1")
    assert one.to_json()["key"] == "truth 1"
    assert one.key == Violation(1, one.what).key


GUEST = """poll: {every: 90, until: 3000}
policy: {teardown_confirm_seconds: 240}
dispatches:
  - {at: 30, issue: 1, backend: gcp, provisioning_model: FLEX_START, gpu_type: H100, gpus: 8, workload_cmd: x}
world:
  - {at: 181, cloud: gcp, name: eps-issue-1, pid: dead}
  - {at: 300, cloud: gcp, name: eps-issue-1, becomes: RUNNING, phase: PHASE}
"""


def test_a_guest_that_tells_of_a_workload_confirms_it_whatever_a_row_says_of_its_process() -> None:
    outcome = rehearse(scenario(GUEST.replace("PHASE", "workload")), 0, TheProgram())
    assert any(event["type"] == "LaunchConfirmed" for event in outcome.facts.events)
    assert outcome.world.machines[-1].first_live is None
    assert outcome.truths == ()
    silent = rehearse(scenario(GUEST.replace("PHASE", "startup")), 0, TheProgram())
    assert any(event["type"] == "LaunchFailed" for event in silent.facts.events)


def test_a_machine_that_its_create_named_is_ours_by_whatever_clock_it_was_asked_for() -> None:
    told = scenario(
        """poll: {every: 60, until: 900, pollers: 2}
policy: {queue_wait_seconds: 600}
dispatches:
  - {at: 30, issue: 1, backend: gcp, provisioning_model: FLEX_START, gpu_type: H200, gpus: 2, workload_cmd: x}
cancels: [{at: 360, issue: 1}]
calls: [{cloud: gcp, call: list, from: 1, to: 401, answer: error}]
clocks: [{at: 0, poller: 2, by: 400}]
"""
    )
    outcome = rehearse(told, 76, TheProgram())
    assert outcome.world.deleted == {"gcp/eps-issue-1": 1, "runpod/pod-1": 1}
    assert outcome.truths == ()
