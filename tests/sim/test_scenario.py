"""The scenario language: what it takes, and how it says no."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.moments import MICROS, parse_time
from ledger.sim.scenario import ScenarioError, load, loads
from ledger.sim.schema import Effect, EventMatch
from tests.sim.making import scenario

FILES = sorted((Path(__file__).parents[1] / "scenarios").glob("*.yaml"))
DISPATCH = "dispatches: [{at: 0, issue: 1, backend: gcp, gpu_type: H100, gpus: 1, workload_cmd: x"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_shipped_scenario_is_read(path: Path) -> None:
    assert load(path).name == path.stem


def test_defaults() -> None:
    plain = scenario()
    assert plain.poll.every == 60 * MICROS
    assert plain.poll.until == 3600 * MICROS
    assert plain.poll.pollers == 1
    assert plain.zones == ("us-central1-a",)
    assert plain.policy.queue_wait_seconds == 600


def test_values_that_yaml_would_take_for_something_else() -> None:
    made = scenario(
        "start: 2026-07-18 00:00:00Z\n"
        "poll: {off: [[600, 900]]}\n"
        "machines: [{cloud: gcp, name: no, id: 5513402277619834112, zone: on}]\n"
        "dispatches: [{at: 1.5, issue: 1, lane: 2, backend: gcp, gpu_type: H100, gpus: 1, hydra_args: [1, a=b],"
        " env_pins: {on: yes, N: 3, E: ''}}]\n"
    )
    assert made.start == parse_time("2026-07-18T00:00:00Z")
    assert made.poll.off == ((600 * MICROS, 900 * MICROS),)
    assert (made.machines[0].name, made.machines[0].id, made.machines[0].zone) == ("no", "5513402277619834112", "on")
    row = made.dispatches[0]
    assert (row.at, row.lane, row.hydra_args) == (1_500_000, "2", ("1", "a=b"))
    assert dict(row.env_pins) == {"on": "yes", "N": "3", "E": ""}


def test_effects_and_crashes() -> None:
    made = scenario(
        "calls:\n"
        "  - {cloud: runpod, call: create, answer: timeout, effect: {late: 90}}\n"
        "  - {cloud: runpod, call: create, answer: timeout, effect: twice}\n"
        "crashes: [{after: event, type: Repointed, nth: 2}, {during: projection},"
        " {before: call, cloud: gcp, call: list}]\n"
    )
    assert [rule.effect for rule in made.calls] == [Effect(1, 90 * MICROS), Effect(2)]
    assert [(crash.point, crash.nth) for crash in made.crashes] == [
        ("after-event", 2),
        ("during-projection", 1),
        ("before-call", 1),
    ]


def test_expect_is_normalised_and_keeps_its_lines() -> None:
    made = loads(
        b"scenario: s\nexpect:\n"
        b"  handle: {job_id: 5513402277619834112, extra: {gpus: 4}}\n"
        b"  events: [Repointed, {RunClosed: {outcome: failed}}, RunOpened: ]\n"
        b"  audit:\n    open: []\n    not: [log-broken]\n"
        b"  max_stale_seconds: 12\n"
    )
    assert [(line.key, line.line) for line in made.expect] == [
        ("handle", 3),
        ("events", 4),
        ("audit", 6),
        ("audit", 7),
        ("max_stale_seconds", 8),
    ]
    assert made.expect[0].value["job_id"] == "5513402277619834112"
    assert made.expect[1].value == (
        EventMatch("Repointed"),
        EventMatch("RunClosed", {"outcome": "failed"}),
        EventMatch("RunOpened"),
    )
    assert made.expect[4].value == 12


def test_a_rerun_may_leave_out_what_a_first_dispatch_may_not() -> None:
    assert scenario(DISPATCH + "}, {at: 9, issue: 1, backend: gcp}]").dispatches[1].gpus is None
    with pytest.raises(ScenarioError, match="gpus"):
        scenario(DISPATCH + "}, {at: 9, issue: 2, backend: gcp}]")


SIDECAR = (
    "sidecars: [{backend: gcp, cluster: null, job_id: 77, pod_name: eps-issue-1-b, scratch_dir: /w, log_path: /l,"
    " extra: {issue: 1, zone: us-central1-c}}]\n"
)


def test_sidecars_are_named_by_issue_and_lane_and_count_as_a_first_dispatch() -> None:
    made = scenario(SIDECAR + "dispatches: [{at: 9, issue: 1, lane: b, backend: gcp}]")
    assert list(made.sidecars) == ["issue-1-b-handle.json"]
    assert made.sidecars["issue-1-b-handle.json"]["job_id"] == "77"


WRONG = [
    ("foo: 1", "s.yaml:3: a scenario has no key 'foo'; allowed: scenario, about"),
    ("scenario: t", "has the key 'scenario' twice"),
    ("start: soon", "start must be a time such as"),
    ("start: 1850-01-01", "start must be a time such as"),
    ("policy: {queue_wait: 1}", "policy has no field 'queue_wait'; allowed: absence_settle_seconds"),
    ("policy: {ladder: [aws]}", "policy ladder must list rungs"),
    ("poll: {every: 0}", "poll every must be more than 0 seconds, not '0'"),
    ("poll: {every: 1:30}", "poll every must be a number, not '1:30'"),
    ("poll: {every: .inf}", "poll every must be a number"),
    ("poll: {every: true}", "poll every must be a number"),
    ("poll: {pollers: 1.5}", "poll pollers must be a whole number, 1 or more"),
    ("poll: {off: [[9, 3]]}", "must be [from, to] with from before to"),
    ("poll: {off: [3]}", "a pair of poll off must be a list"),
    ("poll: {tick: 3}", "poll has no key 'tick'; allowed: every, until, pollers, off"),
    ("zones: []", "zones must list at least one zone"),
    ("dispatches: 3", "dispatches must be a list, not '3'"),
    ("dispatches: [3]", "dispatches must be a mapping, not '3'"),
    ("dispatches: [{issue: 1}]", "dispatches needs the key 'backend'; allowed: gcp, runpod"),
    (DISPATCH + ", lane: A}]", "dispatches lane must be up to 43 of a-z"),
    (DISPATCH + ", zones: a}]", "dispatches has no key 'zones'; allowed: at, issue"),
    (DISPATCH + ", provisioning_model: flex}]", "has no value 'flex'; allowed: STANDARD, SPOT, FLEX_START"),
    (DISPATCH + ", hydra_args: [a]}]", "not both"),
    (DISPATCH + ", time_budget_hours: 0}]", "more than 0 hours"),
    (DISPATCH + ", allow_paid_fallback: maybe}]", "must be true or false, not 'maybe'"),
    (DISPATCH + ", env_pins: {A: [1]}}]", "env_pins A must be a word, not a list"),
    ("dispatches: [{at: 0, issue: 0, backend: gcp}]", "dispatches issue must be a whole number, 1 or more"),
    ("dispatches: [{at: -1, issue: 1, backend: gcp}]", "dispatches at must be 0 or more seconds"),
    ("dispatches: [{at: 0, issue: 1, backend: aws}]", "dispatches backend has no value 'aws'; allowed: gcp, runpod"),
    ("dispatches: [{at: 0, issue: 1, backend: runpod, provisioning_model: SPOT}]", "for backend gcp only"),
    ("cancels: [{at: 1}]", "cancels needs the key 'issue'"),
    ("sidecars: [{backend: gcp}]", "sidecars needs the key 'cluster'"),
    (SIDECAR.replace("cluster", "klaster"), "sidecars has no key 'klaster'; allowed: backend, cluster"),
    ("machines: [{cloud: gcp, name: a, marker: mine}]", "has no value 'mine'; allowed: none, ours, other"),
    ("machines: [{cloud: runpod, name: a, status: PENDING}]", "has no value 'PENDING'; allowed: RUNNING, EXITED"),
    ("machines: [{cloud: gcp, name: a, created: 5}]", "created must not be later"),
    ("calls: [{cloud: gcp, call: creat}]", "calls call has no value 'creat'; allowed: create, describe"),
    ("calls: [{cloud: gcp, call: launch}]", "is no call on gcp; allowed: create, describe"),
    ("calls: [{cloud: gcp, call: create, answer: partial}]", "has no value 'partial'; allowed: ok"),
    ("calls: [{cloud: gcp, call: list, status: RUNNING}]", "calls has no key 'status' here; allowed: cloud"),
    ("calls: [{cloud: gcp, call: list, effect: maybe}]", "has no value 'maybe'; allowed: none, done, twice, {late"),
    ("calls: [{cloud: gcp, call: list, effect: {later: 3}}]", "calls effect has no key 'later'; allowed: late"),
    ("calls: [{cloud: gcp, call: list, http: 200}]", "calls http must be a whole number, 400 or more"),
    ("calls: [{cloud: gcp, call: list, from: 9, to: 9}]", "from must be before to"),
    ("calls: [{cloud: gcp, call: create, status: UP}]", "has no value 'UP'; allowed: PENDING"),
    ("world: [{at: 1, cloud: gcp, becomes: gone}]", "world needs one of the keys 'name', 'id' and 'appears'"),
    ("world: [{at: 1, cloud: gcp, name: a, becomes: flown}]", "world becomes has no value 'flown'; allowed: PENDING"),
    ("world: [{at: 1, cloud: runpod, name: a, becomes: STAGING}]", "allowed: RUNNING, EXITED, gone"),
    ("world: [{at: 1, cloud: gcp, name: a, status: RUNNING}]", "world has no key 'status' here"),
    ("world: [{at: 1, cloud: gcp, name: a, pid: 3}]", "world pid has no value '3'; allowed: alive, dead"),
    ("world: [{at: 1, cloud: gcp, name: a, gpu_util: 101}]", "a percentage"),
    ("world: [{at: 1, cloud: gcp, appears: a, becomes: gone}]", "world has no key 'becomes' here"),
    ("workloads: [{cloud: gcp, does: runs}]", "workloads does has no value 'runs'; allowed: never_starts, starts"),
    ("crashes: [{nth: 1}]", "crashes needs one of the keys 'before', 'after' and 'during'"),
    ("crashes: [{after: event, type: Launched}]", "has no value 'Launched'; allowed: RunOpened"),
    ("crashes: [{before: event, type: Repointed}]", "crashes before has no value 'event'; allowed: call"),
    ("crashes: [{during: projection, type: Repointed}]", "crashes has no key 'type' here"),
    ("pauses: [{poller: 2, before: call, cloud: gcp, call: list, for: 9}]", "must be one of the 1 of poll, not 2"),
    ("clocks: [{at: 1, poller: 1}]", "clocks needs the key 'by'"),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
def test_a_mistake_is_one_line_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario(text)
    message = str(caught.value)
    assert said in message
    assert message.startswith("s.yaml:3: ")
    assert "\n" not in message


WRONG_EXPECT = [
    ("{handles: {}}", "expect has no key 'handles'; allowed: handle, events"),
    ("[]", "expect must be a mapping, not a list"),
    ("{handle: {pod: x}}", "expect handle has no key 'pod'; allowed: backend"),
    ("{handle: {extra: 3}}", "expect handle extra must be a mapping"),
    ("{events: [Launched]}", "expect events has no value 'Launched'; allowed: RunOpened"),
    ("{never: [{Launched: {}}]}", "expect never has no key 'Launched'; allowed: RunOpened"),
    ("{events: [{RunOpened: {}, RunClosed: {}}]}", "one type an entry"),
    ("{live: [aws/x]}", "must name machines as cloud/name"),
    ("{created: {aws: 1}}", "expect created has no key 'aws'; allowed: gcp, runpod"),
    ("{created: {gcp: -1}}", "must be a whole number, 0 or more"),
    ("{deleted: {pod-1: 0}}", "must name machines as cloud/name"),
    ("{max_double_seconds: x}", "expect max_double_seconds must be a number"),
    ("{audit: {closed: []}}", "expect audit has no key 'closed'; allowed: open, ever, not"),
    ("{audit: {open: [bad-thing]}}", "expect audit open has no value 'bad-thing'; allowed: unlaunched-machine"),
    ("{poll: {state: x}}", "expect poll has no key 'state'; allowed: status"),
    ("{poll: {status: fine}}", "expect poll status has no value 'fine'; allowed: running"),
    ("{exits: [a]}", "expect exits must be a number"),
    ("{run: dead}", "expect run has no value 'dead'; allowed: active, finished, failed, cancelled"),
    ("{reason: []}", "expect reason must be a word, not a list"),
]


@pytest.mark.parametrize(("text", "said"), WRONG_EXPECT)
def test_a_mistake_in_expect(text: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario(expect=text)
    assert str(caught.value).startswith("s.yaml:2: ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "f:1: is empty"),
        (b"# nothing\n", "f:1: is empty"),
        (b"- a\n", "f:1: a scenario must be a mapping, not a list"),
        (b"scenario: a\nabout: [\n", "f:3: is no YAML"),
        (b"scenario: a\n\xff\xfe", "f:2: is no UTF-8 text"),
        (b"scenario: a\n\x00", "f:2: is no YAML"),
        (b"scenario: a\n---\nscenario: b\n", "f:2: is no YAML"),
        (b"scenario: a\n", "f:1: a scenario needs the key 'expect'"),
        (b"expect: {}\n", "f:1: a scenario needs the key 'scenario'"),
        (b"scenario: A b\nexpect: {}\n", "f:1: scenario must be of the letters"),
        (b"scenario: a\nexpect: {poll: {gate: &x [*x]}}", "f:2: expect poll gate holds an alias of itself"),
        (b"[" * 5000, "is nested too deeply"),
        (b"scenario: a\nexpect: {exits: [" + b"9" * 5000 + b"]}", "f:2: expect exits must be a number"),
        (b"scenario: a\nexpect: {}\n<<: {about: b}\n", "f:3: a scenario has no key '<<'"),
        (b"? [a]\n: b\n", "f:1: a key of a scenario must be a word, not a list"),
    ],
)
def test_what_is_no_scenario_at_all(data: bytes, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(data, "f")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(ScenarioError, match="cannot be read"):
            load(path)
