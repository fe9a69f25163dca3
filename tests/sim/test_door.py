"""The in-process door: each answer of each call, effects, time, deaths, pauses."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.clouds.port import Cloud
from ledger.clouds.values import Absent, Accepted, Guest, Listing, Probe, Refused, Seen, Unknown, Unresolved
from ledger.moments import MICROS
from tests.sim.making import LATE, LAUNCH, Scene, pod, spec

POD = "machines: [{cloud: runpod, name: pod-1, id: p}, {cloud: gcp, name: eps-issue-1, id: 7}]\n"
GCE = "gcp:example-gpu-project/us-central1-a/7"
ANSWERS = ("no_capacity", "quota", "unauthorized", "already_exists", "not_found", "timeout", "reset", "malformed")
HTTP = (400, 401, 402, 403, 404, 409, 422, 429, 500, 503)


def scene(call: str, answer: str = "ok", more: str = "", cloud: str = "runpod") -> Scene:
    said = f"answer: error, http: {answer}" if answer.isdigit() else f"answer: {answer}"
    return Scene(POD + f"calls: [{{cloud: {cloud}, call: {call}, {said}{more}}}]")


def brief(answer: Any) -> str:
    """An answer in a word."""
    match answer:
        case Refused(cls):
            return f"refused {cls}"
        case Unresolved(error) | Unknown(error):
            return f"unknown {error}"
        case Absent(account):
            return f"absent {account}"
    return type(answer).__name__.lower()


CREATE = dict(
    zip(
        (*ANSWERS, *map(str, HTTP)),
        [
            *("refused capacity", "refused quota", "refused unauthorized", "refused name_taken", "refused invalid"),
            *("unknown timeout", "unknown reset", "unknown malformed"),
            *("refused invalid", "refused unauthorized", "refused quota", "refused unauthorized", "refused invalid"),
            *("refused name_taken", "refused invalid", "refused quota", "unknown http_500", "unknown http_503"),
        ],
        strict=True,
    )
)


@pytest.mark.parametrize(("answer", "expected"), CREATE.items())
@pytest.mark.parametrize("effect", ["none", "done", "twice"])
def test_answers_of_create(answer: str, expected: str, effect: str) -> None:
    here = scene("create", answer, f", effect: {effect}")
    given = here.now(lambda: here.runpod.create(pod(), send_before=LATE, timeout=30))
    assert brief(given) == expected
    assert here.world.created["runpod"] == {"none": 0, "done": 1, "twice": 2}[effect]


def test_a_create_that_goes_well_shows_the_machine() -> None:
    here = Scene()
    given = here.now(lambda: here.gcp.create(spec(), send_before=LATE, timeout=30))
    assert isinstance(given, Accepted)
    assert given.seen is not None
    shown = given.seen
    assert (shown.status, shown.zone, shown.provisioning_model) == ("PROVISIONING", "us-central1-a", "STANDARD")
    assert shown.machine.startswith("gcp:example-gpu-project/us-central1-a/55")
    assert shown.marker == spec().marker
    assert shown.labels["ledger-run"] == "issue-1"
    assert shown.created_at == here.scenario.start
    assert shown.cost_per_hour


def test_answer_ok_does_not_lift_the_409() -> None:
    here = scene("create", "ok", cloud="gcp")
    given = here.now(lambda: here.gcp.create(spec(), send_before=LATE, timeout=30))
    assert brief(given) == "refused name_taken"
    assert here.world.created["gcp"] == 0


READ = {
    "ok": "seen",
    "not_found": "absent example-runpod-account",
    "404": "absent example-runpod-account",
    "other_account": "absent another-account",
    "unauthorized": "unknown unauthorized",
    "403": "unknown unauthorized",
    "503": "unknown http_503",
    "timeout": "unknown timeout",
    "reset": "unknown reset",
    "malformed": "unknown malformed",
}


@pytest.mark.parametrize(("answer", "expected"), READ.items())
def test_answers_of_describe(answer: str, expected: str) -> None:
    here = scene("describe", answer)
    assert brief(here.now(lambda: here.runpod.describe("runpod:p", timeout=9))) == expected


def test_describe_of_what_is_not_there() -> None:
    here = Scene(POD)
    assert here.now(lambda: here.gcp.describe("gcp:x/y/1", timeout=9)) == Absent("example-gpu-project")


DELETE = {
    "ok": "accepted",
    "not_found": "absent example-runpod-account",
    "404": "absent example-runpod-account",
    "unauthorized": "refused unauthorized",
    "409": "refused invalid",
    "429": "refused quota",
    "500": "unknown http_500",
    "timeout": "unknown timeout",
    "reset": "unknown reset",
    "malformed": "unknown malformed",
}


@pytest.mark.parametrize(("answer", "expected"), DELETE.items())
def test_answers_of_delete(answer: str, expected: str) -> None:
    here = scene("delete", answer)
    given = here.now(lambda: here.runpod.delete("runpod:p", send_before=LATE, timeout=9))
    assert brief(given) == expected
    assert here.world.deleted == {"runpod/pod-1": 1}
    assert (here.world.find("runpod:p") is None) is (answer == "ok")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("ok", "accepted"),
        ("timeout", "unknown timeout"),
        ("500", "unknown http_500"),
        ("400", "unknown http_400"),
        ("reset", "unknown reset"),
        ("unauthorized", "refused unauthorized"),
        ("not_found", "unknown unreachable"),
    ],
)
@pytest.mark.parametrize("effect", ["none", "done"])
def test_answers_of_launch(answer: str, expected: str, effect: str) -> None:
    here = scene("launch", answer, f", effect: {effect}")
    given = here.now(lambda: here.runpod.launch("runpod:p", LAUNCH, send_before=LATE, timeout=9))
    assert brief(given) == expected
    pod_ = here.world.find("runpod:p")
    assert pod_ is not None
    assert (pod_.work_number == 1) is (answer == "ok" or effect == "done")


def test_a_launch_that_ssh_does_not_carry() -> None:
    here = Scene("world: [{at: 0, cloud: runpod, name: pod-1, ports: false}]\n" + POD)
    assert brief(here.now(lambda: here.runpod.launch("runpod:p", LAUNCH, send_before=LATE, timeout=9))) == (
        "unknown unreachable"
    )
    here = Scene(POD)
    assert brief(here.now(lambda: here.gcp.launch(GCE, LAUNCH, send_before=LATE, timeout=9))) == "refused invalid"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("ok", "probe"),
        ("timeout", "unknown timeout"),
        ("500", "unknown http_500"),
        ("not_found", "unknown unreachable"),
    ],
)
def test_answers_of_probe(answer: str, expected: str) -> None:
    here = scene("probe", answer)
    given = here.now(lambda: here.runpod.probe("runpod:p", LAUNCH, timeout=9))
    assert brief(given) == expected
    if answer == "ok":
        assert given == Probe(pid=None, pid_alive=False, log_bytes=0, log_age=None, done=False, gpu_util=0)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("gpu_util: 5", "probe"),
        ("reachable: false", "unknown unreachable"),
        ("becomes: STOPPING", "unknown unreachable"),
    ],
)
def test_a_running_instance_answers_a_probe(row: str, expected: str) -> None:
    here = Scene(POD + f"world: [{{at: 0, cloud: gcp, name: eps-issue-1, {row}}}]")
    assert brief(here.now(lambda: here.gcp.probe(GCE, LAUNCH, timeout=9))) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("ok", Guest("workload", True)), ("503", None), ("not_found", None), ("timeout", None)],
)
def test_answers_of_guest_attributes(answer: str, expected: Guest | None) -> None:
    here = scene("guest_attributes", answer, cloud="gcp")
    here.world.advance(0)
    here.world._set(here.world.machines[1], 0, phase="workload", workload_started=True)
    given = here.now(lambda: here.gcp.guest(GCE, timeout=9))
    assert given == expected if expected else isinstance(given, Unknown)
    assert isinstance(here.runpod.guest("runpod:p", timeout=9), Unknown)


def names(listing: Listing | Unknown) -> list[str]:
    assert isinstance(listing, Listing)
    return [seen.name for seen in listing.machines]


def test_answers_of_list() -> None:
    zones = (
        "zones: [a, b]\nmachines: [{cloud: gcp, name: x}, {cloud: gcp, name: y, zone: b}]\n"
        "world: [{at: 100, cloud: gcp, name: x, becomes: gone}]\n"
    )

    def told(answer: str, at: float = 0) -> Any:
        here = Scene(zones + f"calls: [{{cloud: gcp, call: list, {answer}}}]")
        return here.at({at: lambda: here.gcp.list_all(timeout=9)})[0]

    whole = told("answer: ok")
    assert (names(whole), whole.complete, whole.unreachable) == (["x", "y"], True, ())
    assert whole.fingerprint
    assert whole.server_time == Scene().scenario.start
    assert names(told("answer: ok", 100)) == ["y"]
    assert names(told("answer: stale, lag: 30", 120)) == ["x", "y"]
    assert names(told("answer: stale, lag: 20", 120)) == ["y"]
    empty = told("answer: empty")
    assert (names(empty), empty.complete, empty.account) == ([], True, "example-gpu-project")
    partial = told("answer: partial")
    assert (names(partial), partial.complete, partial.unreachable) == (["y"], False, ("a",))
    assert names(told("answer: partial, zone: b")) == ["x"]
    other = told("answer: other_account")
    assert (names(other), other.complete, other.account) == ([], True, "another-account")
    assert other.fingerprint != whole.fingerprint
    for answer, error in (("error, http: 500", "http_500"), ("timeout", "timeout"), ("unauthorized", "unauthorized")):
        assert brief(told(f"answer: {answer}")) == f"unknown {error}"


def test_a_partial_list_of_pods_shows_none() -> None:
    here = scene("list", "partial")
    told = here.now(lambda: here.runpod.list_all(timeout=9))
    assert (names(told), told.complete) == ([], False)


def test_pods_show_gpus_once_they_have_a_runtime() -> None:
    here = Scene()
    shown: list[Seen] = []

    def look() -> None:
        told = here.runpod.list_all(timeout=9)
        assert isinstance(told, Listing)
        shown.extend(told.machines)

    here.at({0: lambda: here.runpod.create(pod(), send_before=LATE, timeout=9), 29: look, 30: look})
    assert [(seen.ports is None, seen.gpu_util, seen.had_runtime) for seen in shown] == [
        (True, None, False),
        (False, 0, True),
    ]


def test_a_late_effect_comes_late() -> None:
    here = scene("create", "timeout", ", effect: {late: 90}")
    give = here.at(
        {
            0: lambda: here.runpod.create(pod(), send_before=LATE, timeout=30),
            89: lambda: here.world.created["runpod"],
            90: lambda: here.world.created["runpod"],
        }
    )
    assert [brief(give[0]), *give[1:]] == ["unknown timeout", 0, 1]
    here = scene("delete", "500", ", effect: {late: 5}")
    gone = here.at(
        {
            0: lambda: here.runpod.delete("runpod:p", send_before=LATE, timeout=30),
            4: lambda: here.world.find("runpod:p") is None,
            5: lambda: here.world.find("runpod:p") is None,
        }
    )
    assert gone[1:] == [False, True]


@pytest.mark.parametrize(
    ("takes", "timeout", "spent", "expected"),
    [(10, 30, 10, "accepted"), (30, 30, 30, "accepted"), (31, 30, 30, "unknown timeout"), (0, 30, 0, "accepted")],
)
def test_a_call_takes_its_time_but_no_longer_than_its_caller_waits(
    takes: int, timeout: int, spent: int, expected: str
) -> None:
    here = scene("create", "ok", f", takes: {takes}")
    seen: list[Any] = []

    def call() -> None:
        seen.append(brief(here.runpod.create(pod(), send_before=LATE, timeout=timeout)))
        seen.append(here.schedule.now / MICROS)

    here.at({0: call, 100: lambda: None})
    assert seen == [expected, spent]
    assert here.world.machines[-1].created == 0  # it happened at its start


def test_rules_first_match_nth_times_names_and_moments() -> None:
    here = Scene(
        "calls:\n"
        "  - {cloud: runpod, call: create, name: other-*, answer: quota}\n"
        "  - {cloud: runpod, call: create, nth: 2, answer: reset}\n"
        "  - {cloud: runpod, call: create, nth: 3, times: 2, answer: timeout}\n"
        "  - {cloud: runpod, call: create, from: 10, to: 20, answer: no_capacity}\n"
        "  - {cloud: runpod, call: create, times: 1, answer: malformed}\n"
    )

    def call(name: str = "pod-1") -> Any:
        return lambda: brief(here.runpod.create(pod(name), send_before=LATE, timeout=9))

    steps: dict[float, Any] = {
        0: call(),
        1: call(),
        2: call(),
        3: call("other-1"),
        9: call(),
        10: call(),
        19: call(),
        20: call(),
    }
    assert here.at(steps) == [
        "unknown malformed",
        "unknown reset",
        "unknown timeout",
        "refused quota",
        "accepted",
        "refused capacity",
        "refused capacity",
        "accepted",
    ]


@pytest.mark.parametrize(("point", "made"), [("before", 0), ("after", 1)])
def test_a_process_dies_at_a_call_once(point: str, made: int) -> None:
    here = Scene(f"crashes: [{{{point}: call, cloud: runpod, call: create, nth: 1}}]")
    create = lambda: brief(here.runpod.create(pod(), send_before=LATE, timeout=9))  # noqa: E731
    given = here.at({0: create, 1: lambda: here.world.created["runpod"], 2: create})
    assert given == [None, made, "accepted"]


def test_after_a_pause_the_last_moment_to_send_has_passed() -> None:
    here = Scene(
        "pauses: [{poller: 1, before: call, cloud: runpod, call: create, nth: 1, for: 900}]\n"
        "crashes: [{after: call, cloud: runpod, call: create, nth: 1}]\n"
    )
    given = here.at({0: lambda: here.runpod.create(pod(), send_before=20, timeout=9), 900: lambda: None})
    assert given[0] == Refused("absent", given[0].message, unsent=True)
    assert here.world.created["runpod"] == 0
    assert here.rules.counts["runpod", "create"] == 0


def test_only_that_poller_pauses() -> None:
    here = Scene("poll: {pollers: 2}\npauses: [{poller: 2, before: call, cloud: runpod, call: create, for: 900}]")
    assert brief(here.now(lambda: here.runpod.create(pod(), send_before=20, timeout=9))) == "accepted"


def test_a_list_is_dated_when_it_comes() -> None:
    here = scene("list", "ok", ", takes: 7")
    told = here.at({0: lambda: here.runpod.list_all(timeout=9), 10: lambda: None})[0]
    assert told.server_time == here.scenario.start + 7 * MICROS


def test_the_door_is_a_port() -> None:
    here = Scene()
    clouds: list[Cloud] = [here.gcp, here.runpod]
    assert [(cloud.backend, cloud.account) for cloud in clouds] == [
        ("gcp", "example-gpu-project"),
        ("runpod", "example-runpod-account"),
    ]
