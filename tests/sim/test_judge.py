"""The judge: for every key of `expect`, what is right holds and what is wrong fails and names its line."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.sim.judge import Facts, holds, judge
from tests.sim.making import scenario

FILE: dict[str, Any] = {
    "backend": "runpod",
    "pod_name": "pod-1",
    "job_id": "",
    "extra": {"issue": 1, "gpus": 4, "pins": {"a": "b"}},
}
TWO: dict[str, Any] = {
    "issue-1-handle.json": FILE,
    "issue-2-handle.json": {**FILE, "pod_name": "pod-2", "extra": {"issue": 2}},
}
LOG: list[dict[str, Any]] = [
    {"type": "RunOpened", "machine": None, "payload": {"issue": 1}},
    {"type": "Provisioned", "machine": "runpod:p", "payload": {"backend": "runpod", "hours": 12.0, "adopted": True}},
    {"type": "RunClosed", "machine": None, "payload": {"outcome": "failed", "list": [1, 2]}},
]
FACTS: dict[str, Any] = {
    "live": ["runpod/pod-1", "runpod/pod-1", "gcp/x"],
    "created": {"gcp": 1, "runpod": 2},
    "deleted": {"gcp/x": 1},
    "max_unlaunched_seconds": 120.5,
    "max_double_seconds": 0.0,
    "max_stale_seconds": 60.0,
    "handles": {"issue-1-handle.json": FILE},
    "events": LOG,
    "ticks": {"issue-1": {"status": "running", "current_phase": "workload", "pid_alive": True}},
    "exits": [75, 0],
    "runs": {"issue-1": ("failed", "launch_unconfirmed")},
    "audit_open": frozenset({"stalled-run"}),
    "audit_ever": frozenset({"double-billing"}),
}
SEVERAL = {**FACTS, "handles": TWO, "ticks": {"issue-1": {"status": "dead"}, "issue-2-b": {"status": "done"}}}
NONE = {**FACTS, "handles": {}, "ticks": {}, "events": []}

HOLDS = [
    ("handle: {backend: runpod, extra: {gpus: 4.0, pins: {a: b}}}", FACTS),
    ("handle: {extra: {launch_error: null}}", FACTS),
    ("handle: {issue: 2, pod_name: pod-2}", SEVERAL),
    ("handle: {pod_name: pod-2}", SEVERAL),
    ("handle: [{pod_name: pod-2}, {issue: 1}]", SEVERAL),
    ("handle: [{backend: runpod}, {pod_name: pod-1}]", SEVERAL),
    ("handle: null", NONE),
    ("events: [RunOpened, RunClosed]", FACTS),
    ("events: [Provisioned: {hours: 12, adopted: true}, RunClosed: {list: [1, 2]}]", FACTS),
    ("events: [Provisioned: {machine: 'runpod:p'}]", FACTS),
    ("events: []", NONE),
    ("never: [Repointed, Provisioned: {backend: gcp}]", FACTS),
    ("live: [gcp/x, runpod/pod-1, runpod/pod-1]", FACTS),
    ("created: {gcp: 1}", FACTS),
    ("deleted: {gcp/x: 1, gcp/y: 0}", FACTS),
    ("max_unlaunched_seconds: 120.5", FACTS),
    ("max_double_seconds: 0", FACTS),
    ("max_stale_seconds: 240", FACTS),
    ("audit: {open: [stalled-run], ever: [double-billing, stalled-run], not: [log-broken]}", FACTS),
    ("poll: {status: running, pid_alive: true}", FACTS),
    ("poll: {issue: 2, status: done}", SEVERAL),
    ("exits: [75, 0]", FACTS),
    ("exits: [75, null]", {**FACTS, "exits": [75, None]}),
    ("exits: [75, 137]", {**FACTS, "exits": [75, None]}),
    ("exits: [75]", {**FACTS, "exits": [75, None]}),
    ("run: failed", FACTS),
    ("reason: launch_unconfirmed", FACTS),
]
FAILS = [
    ("handle: {backend: gcp}", FACTS, FILE),
    ("handle: {extra: {gpus: 5}}", FACTS, FILE),
    ("handle: {extra: {gpus: true}}", FACTS, FILE),
    ("handle: {extra: {other: 1}}", FACTS, FILE),
    ("handle: {issue: 3}", FACTS, FILE),
    ("handle: {issue: 2, pod_name: pod-1}", SEVERAL, TWO["issue-2-handle.json"]),
    ("handle: [{pod_name: pod-1}, {issue: 1}]", SEVERAL, list(TWO.values())),
    ("handle: null", FACTS, FILE),
    ("handle: {backend: gcp}", NONE, None),
    (
        "events: [RunClosed, RunOpened]",
        FACTS,
        {"missing": "RunOpened", "after": 1, "log": ["RunOpened", "Provisioned", "RunClosed"]},
    ),
    (
        "events: [Provisioned: {backend: gcp}]",
        FACTS,
        {"missing": {"Provisioned": {"backend": "gcp"}}, "after": 0, "log": ["RunOpened", "Provisioned", "RunClosed"]},
    ),
    ("never: [RunClosed]", FACTS, [{"type": "RunClosed", "payload": LOG[2]["payload"]}]),
    ("live: [gcp/x, runpod/pod-1]", FACTS, ["gcp/x", "runpod/pod-1", "runpod/pod-1"]),
    ("created: {gcp: 1, runpod: 1}", FACTS, {"gcp": 1, "runpod": 2}),
    ("deleted: {gcp/x: 0}", FACTS, {"gcp/x": 1}),
    ("max_unlaunched_seconds: 120", FACTS, 120.5),
    ("max_double_seconds: 0", {**FACTS, "max_double_seconds": 1.0}, 1.0),
    ("max_stale_seconds: 59", FACTS, 60.0),
    ("audit: {open: []}", FACTS, {"open": ["stalled-run"]}),
    ("audit: {ever: [log-broken]}", FACTS, {"ever": ["double-billing", "stalled-run"]}),
    ("audit: {not: [stalled-run, log-broken]}", FACTS, {"not": ["stalled-run"]}),
    ("poll: {status: done}", FACTS, FACTS["ticks"]["issue-1"]),
    ("poll: {issue: 1, status: done}", SEVERAL, {"status": "dead"}),
    ("poll: {status: done}", NONE, None),
    ("exits: [0, 75]", FACTS, [75, 0]),
    ("run: active", FACTS, "failed"),
    ("reason: no_compute_available", FACTS, "launch_unconfirmed"),
]


@pytest.mark.parametrize(("line", "facts"), HOLDS)
def test_what_is_right_holds(line: str, facts: dict[str, Any]) -> None:
    assert judge(scenario(expect=f"\n  {line}").expect, Facts(**facts)) == []


@pytest.mark.parametrize(("line", "facts", "actual"), FAILS)
def test_what_is_wrong_fails_and_names_its_line(line: str, facts: dict[str, Any], actual: Any) -> None:
    made = scenario(expect=f"\n  {line}").expect
    failures = judge(made, Facts(**facts))
    assert [(failure.key, failure.line) for failure in failures] == [(line.partition(":")[0], 3)]
    known = {"one": failures[0].actual} if not isinstance(failures[0].actual, dict) else failures[0].actual
    assert known == (actual if isinstance(actual, dict) else {"one": actual})
    assert set(failures[0].to_json()) == {"key", "expected", "actual"}


@pytest.mark.parametrize(
    ("expected", "actual", "held"),
    [
        (12, 12.0, True),
        (True, 1, False),
        (1, True, False),
        ([1, {"a": 2}], [1.0, {"a": 2}], True),
        ([1, {"a": 2}], [1, {"a": 2, "b": 3}], False),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, True),
        ({"a": {}}, {"a": 3}, False),
        ({"a": None}, {}, True),
        ("12", 12, False),
    ],
)
def test_subsets(expected: Any, actual: Any, held: bool) -> None:
    assert holds(expected, actual) is held
