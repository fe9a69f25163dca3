"""The cloud port's contract: one class, subclassed for every door and wire.

Each test makes a scene of the simulated world, reaches it as the subclass does, and holds what is answered and what
became of the world against the table. What every field of a machine says is held against the in-process door.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from ledger.clouds.port import Cloud
from ledger.clouds.values import Absent, Accepted, Guest, Listing, Probe, Refused, Seen, Unknown, Unresolved
from ledger.moments import MICROS
from ledger.sim.schema import ACCOUNT_RUNPOD, OTHER_ACCOUNT, PROJECT
from tests.sim.making import LATE, LAUNCH, Scene, pod, spec

ACCOUNT = {"gcp": PROJECT, "runpod": ACCOUNT_RUNPOD}
ID = {"gcp": "gcp:example-gpu-project/us-central1-a/7", "runpod": "runpod:p"}
NAME = {"gcp": "eps-issue-1", "runpod": "pod-1"}
THERE = "machines: [{cloud: runpod, name: pod-1, id: p}, {cloud: gcp, name: eps-issue-1, id: '7'}]\n"
EFFECTS = ("none", "done", "twice", "{late: 90}")
HTTP = (400, 401, 402, 403, 404, 405, 408, 409, 410, 412, 422, 429, 500, 502, 503, 504)

CREATE = {
    "no_capacity": "refused capacity",
    "quota": "refused quota",
    "unauthorized": "refused unauthorized",
    "already_exists": "refused name_taken",
    "not_found": "refused invalid",
    "other_account": "refused unauthorized",
    "timeout": "unresolved timeout",
    "reset": "unresolved reset",
    "malformed": "unresolved malformed",
    **dict.fromkeys(("400", "404", "405", "410", "412", "422"), "refused invalid"),
    **dict.fromkeys(("401", "403"), "refused unauthorized"),
    **dict.fromkeys(("402", "429"), "refused quota"),
    "409": "refused name_taken",
    **{str(code): f"unresolved http_{code}" for code in (408, 500, 502, 503, 504)},
}
DELETE = {
    **CREATE,
    "ok": "accepted",
    "409": "refused invalid",
    "not_found": "absent",
    "404": "absent",
    "other_account": "absent elsewhere",
}
READ = {
    "unauthorized": "unknown unauthorized",
    "timeout": "unknown timeout",
    "reset": "unknown reset",
    "malformed": "unknown malformed",
    **dict.fromkeys(("401", "403"), "unknown unauthorized"),
    **{str(code): f"unknown http_{code}" for code in HTTP if code not in (401, 403, 404)},
}
DESCRIBE = {**READ, "ok": "seen", "not_found": "absent", "404": "absent", "other_account": "absent elsewhere"}
# What no cloud says of a read; that it is unknown is all that is asked.
ODD = ("no_capacity", "quota", "already_exists")


def brief(answer: Any, account: str) -> str:
    """An answer in a few words."""
    match answer:
        case Refused(cls):
            return f"refused {cls}" + (" unsent" if answer.unsent else "")
        case Unresolved(error):
            return f"unresolved {error}"
        case Unknown(error):
            return f"unknown {error}"
        case Absent(where):
            return "absent" if where == account else "absent elsewhere"
    return type(answer).__name__.lower()


def names(listing: Any) -> list[str]:
    """The names that a list shows."""
    assert isinstance(listing, Listing), listing
    return [seen.name for seen in listing.machines]


class CloudContract:
    """A subclass says which `backend` it reaches and how: `reach` gives the port of a scene."""

    backend: ClassVar[str]
    over_ssh: ClassVar[bool] = True  # whether launch and probe are reached too

    @pytest.fixture(autouse=True)
    def _opened(self) -> Iterator[None]:
        self.closing: list[Callable[[], None]] = []
        yield
        for close in reversed(self.closing):
            close()

    def reach(self, scene: Scene) -> Cloud:
        """The cloud of `scene` as one process reaches it; what must be closed goes to `self.closing`."""
        raise NotImplementedError

    # Short ways.

    @property
    def account(self) -> str:
        return ACCOUNT[self.backend]

    @property
    def machine(self) -> str:
        return ID[self.backend]

    def asked(self, **changes: Any) -> Any:
        return spec(**changes) if self.backend == "gcp" else pod(**changes)

    def scene(self, call: str = "", answer: str = "ok", more: str = "", there: bool = True, text: str = "") -> Scene:
        said = f"answer: error, http: {answer}" if answer.isdigit() else f"answer: {answer}"
        rule = f"calls: [{{cloud: {self.backend}, call: {call}, {said}{more}}}]" if call else ""
        return Scene((THERE if there else "") + text + rule)

    def told(self, scene: Scene, step: Callable[[Cloud], Any]) -> str:
        cloud = self.reach(scene)
        return brief(scene.now(lambda: step(cloud)), self.account)

    def as_told(self, seen: Any) -> Any:
        """What this API tells of a machine, if it tells less than the in-process door."""
        return seen

    def twin(self, scene: Scene) -> Cloud:
        return scene.gcp if self.backend == "gcp" else scene.runpod

    def create(self, cloud: Cloud, timeout: float = 30, **changes: Any) -> Any:
        return cloud.create(self.asked(**changes), send_before=LATE, timeout=timeout)

    # Create.

    @pytest.mark.parametrize(("answer", "expected"), CREATE.items())
    @pytest.mark.parametrize("effect", EFFECTS)
    def test_what_a_create_says_and_does(self, answer: str, expected: str, effect: str) -> None:
        scene = self.scene("create", answer, f", effect: {effect}", there=False)
        cloud = self.reach(scene)
        counts: list[int] = []
        given = scene.at(
            {
                0: lambda: self.create(cloud),
                89: lambda: counts.append(scene.world.created[self.backend]),
                90: lambda: counts.append(scene.world.created[self.backend]),
            }
        )
        assert brief(given[0], self.account) == expected
        twice = 1 if self.backend == "gcp" else 2  # the same request id makes no second instance
        assert counts == {"none": [0, 0], "done": [1, 1], "twice": [twice] * 2, "{late: 90}": [0, 1]}[effect]
        assert scene.rules.counts[self.backend, "create"] == 1

    @pytest.mark.parametrize("model", ["STANDARD", "SPOT", "FLEX_START"])
    def test_a_create_that_goes_well_shows_the_machine(self, model: str) -> None:
        scene = self.scene(there=False)
        cloud = self.reach(scene)
        changes: dict[str, Any] = {"model": model} if self.backend == "gcp" else {}
        given = scene.now(lambda: self.create(cloud, **changes))
        other = self.scene(there=False)
        expected = other.now(lambda: self.create(self.twin(other), **changes))
        assert isinstance(given, Accepted)
        assert given == expected

    def test_the_cloud_may_make_another_model_or_status_than_was_asked(self) -> None:
        if self.backend != "gcp":
            pytest.skip("a pod has no model")
        scene = self.scene("create", "ok", ", status: STAGING, provisioning_model: SPOT", there=False)
        cloud = self.reach(scene)
        given = scene.now(lambda: self.create(cloud, model="FLEX_START"))
        assert isinstance(given, Accepted)
        assert given.seen is not None
        assert (given.seen.status, given.seen.provisioning_model) == ("STAGING", "SPOT")

    def test_a_name_that_is_taken(self) -> None:
        scene = self.scene("create", "ok")
        expected = "refused name_taken" if self.backend == "gcp" else "accepted"
        assert self.told(scene, self.create) == expected
        assert scene.world.created[self.backend] == (0 if self.backend == "gcp" else 1)

    def test_the_same_request_makes_no_second_instance(self) -> None:
        if self.backend != "gcp":
            pytest.skip("RunPod knows no request id")
        scene = self.scene(there=False)
        cloud = self.reach(scene)
        first, second = scene.now(lambda: (self.create(cloud), self.create(cloud)))
        assert first == second
        assert scene.world.created["gcp"] == 1

    # Describe, delete.

    @pytest.mark.parametrize(("answer", "expected"), DESCRIBE.items())
    def test_what_a_describe_says(self, answer: str, expected: str) -> None:
        scene = self.scene("describe", answer)
        assert self.told(scene, lambda cloud: cloud.describe(self.machine, timeout=9)) == expected

    @pytest.mark.parametrize("answer", ODD)
    def test_odd_answers_of_reads_are_unknown(self, answer: str) -> None:
        for call in ("describe", "list", "guest_attributes")[: 3 if self.backend == "gcp" else 2]:
            assert self.told(self.scene(call, answer), lambda cloud, call=call: self.read(cloud, call)).startswith(  # type: ignore[misc]
                "unknown "
            )

    def read(self, cloud: Cloud, call: str) -> Any:
        match call:
            case "describe":
                return cloud.describe(self.machine, timeout=9)
            case "list":
                return cloud.list_all(timeout=9)
        return cloud.guest(self.machine, timeout=9)

    def test_a_describe_of_what_is_not_there(self) -> None:
        scene = self.scene(there=False)
        assert self.told(scene, lambda cloud: cloud.describe(self.machine, timeout=9)) == "absent"

    @pytest.mark.parametrize(("answer", "expected"), DELETE.items())
    @pytest.mark.parametrize("effect", EFFECTS)
    def test_what_a_delete_says_and_does(self, answer: str, expected: str, effect: str) -> None:
        if answer == "ok" and effect != "none":
            pytest.skip("an effect is of a call that did not answer ok")
        scene = self.scene("delete", answer, f", effect: {effect}" if answer != "ok" else "")
        cloud = self.reach(scene)
        leaving: list[bool] = []

        def look() -> None:
            found = scene.world.find(self.machine)
            leaving.append(found is None or found.ending)

        given = scene.at({0: lambda: cloud.delete(self.machine, send_before=LATE, timeout=9), 89: look, 90: look})
        assert brief(given[0], self.account) == expected
        at_once = answer == "ok" or effect in ("done", "twice")
        assert leaving == [at_once, at_once or effect == "{late: 90}"]
        assert scene.world.deleted == {f"{self.backend}/{NAME[self.backend]}": 1}

    def test_a_delete_of_what_is_not_there(self) -> None:
        scene = self.scene(there=False)
        gone = self.told(scene, lambda cloud: cloud.delete(self.machine, send_before=LATE, timeout=9))
        assert gone == "absent"
        assert scene.world.deleted == {f"{self.backend}/{self.machine.rpartition('/')[2].removeprefix('runpod:')}": 1}

    def test_a_machine_made_anew_under_the_name_is_not_touched(self) -> None:
        text = (
            f"world: [{{at: 5, cloud: {self.backend}, name: {NAME[self.backend]}, becomes: gone}},"
            f" {{at: 6, cloud: {self.backend}, appears: {NAME[self.backend]}, id: '8'}}]\n"
        )
        scene = self.scene(text=text)
        cloud = self.reach(scene)
        given = scene.at(
            {
                4: lambda: cloud.describe(self.machine, timeout=9),
                7: lambda: cloud.delete(self.machine, send_before=LATE, timeout=9),
                8: lambda: cloud.describe(self.machine, timeout=9),
                9: lambda: cloud.list_all(timeout=9),
            }
        )
        assert [brief(answer, self.account) for answer in given[:3]] == ["seen", "absent", "absent"]
        assert names(given[3]) == [NAME[self.backend]]
        assert scene.world.machines[-1].ending is False

    # List.

    @pytest.mark.parametrize(("answer", "expected"), [*READ.items(), ("404", ""), ("not_found", "")])
    def test_lists_that_fail(self, answer: str, expected: str) -> None:
        told = self.told(self.scene("list", answer), lambda cloud: cloud.list_all(timeout=9))
        assert told == expected if expected else told.startswith("unknown ")

    def test_what_lists_show(self) -> None:
        b = self.backend
        world = (
            f"zones: [a, b]\nmachines: [{{cloud: {b}, name: x}}, {{cloud: {b}, name: y{', zone: b' * (b == 'gcp')}}},"
            f" {{cloud: {b}, name: z}}, {{cloud: {b}, name: other, marker: other}}]\n"
            f"world: [{{at: 100, cloud: {b}, name: x, becomes: gone}}]\n"
        )

        def told(answer: str, at: float = 0) -> Any:
            scene = Scene(world + f"calls: [{{cloud: {b}, call: list, {answer}}}]")
            cloud = self.reach(scene)
            return scene.at({at: lambda: cloud.list_all(timeout=9)})[0]

        def shown(listing: Any) -> tuple[list[str], bool, str]:
            return sorted(names(listing)), listing.complete, listing.account

        everything = ["other", "x", "y", "z"]
        whole = told("answer: ok")
        assert shown(whole) == (everything, True, self.account)
        assert whole.unreachable == ()
        assert whole.fingerprint
        assert whole.server_time == Scene().scenario.start
        assert shown(told("answer: ok", 100)) == (["other", "y", "z"], True, self.account)
        assert shown(told("answer: stale, lag: 30", 120))[0] == everything
        assert shown(told("answer: stale, lag: 20", 120))[0] == ["other", "y", "z"]
        assert shown(told("answer: empty")) == ([], True, self.account)
        assert shown(told("answer: other_account")) == ([], True, OTHER_ACCOUNT)
        partial = told("answer: partial")
        if b == "gcp":
            assert (shown(partial), partial.unreachable) == ((["y"], False, self.account), ("a",))
            assert shown(told("answer: partial, zone: b"))[0] == ["other", "x", "z"]
        else:
            assert shown(partial) == ([], False, self.account)

    def test_a_machine_shows_the_same_at_every_door(self) -> None:
        b = self.backend
        text = (
            f"machines: [{{cloud: {b}, name: {NAME[b]}, id: '7', created: -3600, marker: ours, workload: true,"
            " gpus: 2},"
            f" {{cloud: {b}, name: there, marker: other, status: {'STOPPED' if b == 'gcp' else 'EXITED'}, gpus: 8}}]\n"
            f"world: [{{at: 200, cloud: {b}, name: {NAME[b]}, ports: false}}]\n"
        )
        answers: list[list[Any]] = []
        for reach in (self.reach, self.twin):
            scene = Scene(text)
            cloud = reach(scene)
            machine = scene.world.machines[0].key

            def read(cloud: Cloud = cloud, machine: str = machine) -> Any:
                return cloud.describe(machine, timeout=9), cloud.list_all(timeout=9)

            def make(cloud: Cloud = cloud) -> Any:
                return self.create(cloud, name="new")

            given = scene.at({30: make, 0: read, 60: read, 200: read})[1:]
            answers.append([(described, listing.machines) for described, listing in given])
        expected = [
            (self.as_told(described), tuple(self.as_told(seen) for seen in machines))
            for described, machines in answers[1]
        ]
        assert answers[0] == expected
        assert isinstance(answers[0][0][0], Seen)

    def test_a_list_is_one_call_whatever_its_pages(self) -> None:
        many = ", ".join(f"{{cloud: {self.backend}, name: m{i}}}" for i in range(7))
        scene = Scene(f"machines: [{many}]\ncalls: [{{cloud: {self.backend}, call: list, nth: 2, answer: reset}}]\n")
        cloud = self.reach(scene)
        first, second = scene.now(lambda: (cloud.list_all(timeout=9), cloud.list_all(timeout=9)))
        assert sorted(names(first)) == [f"m{i}" for i in range(7)]
        assert brief(second, self.account) == "unknown reset"

    # Guest attributes, launch, probe.

    @pytest.mark.parametrize(
        ("row", "expected"),
        [
            ("phase: workload", Guest("workload", True)),
            ("phase: startup", Guest("startup", None)),
            ("phase: failed, workload_started: false", Guest("failed", False)),
            ("gpu_util: 3", Guest(None, None)),
        ],
    )
    def test_guest_attributes(self, row: str, expected: Guest) -> None:
        scene = self.scene(text=f"world: [{{at: 0, cloud: gcp, name: eps-issue-1, {row}}}]\n")
        cloud = self.reach(scene)
        given = scene.now(lambda: cloud.guest(self.machine, timeout=9))
        assert given == expected if self.backend == "gcp" else isinstance(given, Unknown)

    @pytest.mark.parametrize(("answer", "expected"), [*READ.items(), ("404", ""), ("not_found", "")])
    def test_guest_attributes_that_fail(self, answer: str, expected: str) -> None:
        if self.backend != "gcp":
            pytest.skip("a pod has no guest attributes")
        told = self.told(self.scene("guest_attributes", answer), lambda cloud: cloud.guest(self.machine, timeout=9))
        assert told == expected if expected else told.startswith("unknown ")

    def test_guest_attributes_of_what_is_not_there(self) -> None:
        scene = self.scene(there=False)
        assert self.told(scene, lambda cloud: cloud.guest(self.machine, timeout=9)).startswith("unknown ")

    @pytest.mark.parametrize(
        ("answer", "expected"),
        [
            ("ok", "accepted"),
            ("timeout", "unresolved timeout"),
            ("reset", "unresolved reset"),
            ("unauthorized", "refused unauthorized"),
            ("not_found", "unresolved unreachable"),
        ],
    )
    @pytest.mark.parametrize("effect", ["none", "done"])
    def test_launch(self, answer: str, expected: str, effect: str) -> None:
        if self.backend == "gcp":
            told = self.told(self.scene(), self.launch)
            assert told == "refused invalid"  # the start-up script launches
            return
        if not self.over_ssh:
            pytest.skip("launches go over SSH, which has a contract of its own")
        scene = self.scene("launch", answer, f", effect: {effect}" if answer != "ok" else "")
        assert self.told(scene, self.launch) == expected
        there = scene.world.find(self.machine)
        assert there is not None
        assert (there.work_number == 1) is (answer == "ok" or effect == "done")

    def launch(self, cloud: Cloud) -> Any:
        return cloud.launch(self.machine, LAUNCH, send_before=LATE, timeout=9)

    @pytest.mark.parametrize(
        ("answer", "expected"),
        [
            ("ok", "probe"),
            ("timeout", "unknown timeout"),
            ("reset", "unknown reset"),
            ("not_found", "unknown unreachable"),
        ],
    )
    def test_probe(self, answer: str, expected: str) -> None:
        if not self.over_ssh:
            pytest.skip("probes go over SSH, which has a contract of its own")
        scene = self.scene("probe", answer)
        cloud = self.reach(scene)
        given = scene.now(lambda: cloud.probe(self.machine, LAUNCH, timeout=9))
        assert brief(given, self.account) == expected
        if answer == "ok":
            assert isinstance(given, Probe)
            assert (given.pid, given.pid_alive, given.done) == (None, False, False)

    # Time, deaths, counts: the way of every call.

    @pytest.mark.parametrize(
        ("takes", "timeout", "spent", "answer"),
        [
            (10, 30, 10, "ok"),
            (30, 30, 30, "ok"),
            (31, 30, 30, "ok"),
            (0, 30, 0, "timeout"),
            (40, 30, 30, "timeout"),
            (20, 30, 20, "timeout"),
            (20, 30, 20, "reset"),
            (40, 30, 30, "reset"),
            (20, 30, 20, "503"),
        ],
    )
    @pytest.mark.parametrize("call", ["create", "describe", "list", "delete"])
    def test_a_call_takes_its_time_but_no_longer_than_its_caller_waits(
        self, call: str, takes: int, timeout: int, spent: int, answer: str
    ) -> None:
        outcomes = []
        for reach in (self.reach, self.twin):
            scene = self.scene(
                call, answer, f", takes: {takes}, effect: done" if answer != "ok" else f", takes: {takes}"
            )
            cloud = reach(scene)
            seen: list[Any] = []

            def go(scene: Scene = scene, cloud: Cloud = cloud, seen: list[Any] = seen) -> None:
                match call:
                    case "create":
                        given = self.create(cloud, timeout, name="new")
                    case "describe":
                        given = cloud.describe(self.machine, timeout=timeout)
                    case "list":
                        given = cloud.list_all(timeout=timeout)
                    case _:
                        given = cloud.delete(self.machine, send_before=LATE, timeout=timeout)
                seen.extend((brief(given, self.account), scene.schedule.now / MICROS))

            scene.at({0: go, 200: lambda: None})
            outcomes.append(seen)
        assert outcomes[0] == outcomes[1]
        assert outcomes[0][1] == spent
        if takes > timeout:
            assert outcomes[0][0].endswith(" timeout")

    def test_the_date_of_a_list_is_that_of_its_answer(self) -> None:
        scene = self.scene("list", "ok", ", takes: 7")
        cloud = self.reach(scene)
        listing = scene.at({5: lambda: cloud.list_all(timeout=9), 20: lambda: None})[0]
        assert isinstance(listing, Listing)
        assert listing.server_time == scene.scenario.start + 12 * MICROS

    @pytest.mark.parametrize("call", ["create", "delete"])
    def test_past_the_last_moment_nothing_is_sent(self, call: str) -> None:
        scene = self.scene()
        cloud = self.reach(scene)

        def go() -> Any:
            if call == "create":
                return cloud.create(self.asked(name="new"), send_before=19.9, timeout=30)
            return cloud.delete(self.machine, send_before=19.9, timeout=30)

        assert brief(scene.at({20: go})[0], self.account) == "refused absent unsent"
        assert scene.rules.counts[self.backend, call] == 0
        assert (scene.world.created[self.backend], scene.world.deleted) == (0, {})

    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("call", ["create", "describe", "list", "delete"])
    def test_a_process_dies_at_a_call(self, call: str, when: str) -> None:
        crash = f"crashes: [{{{when}: call, cloud: {self.backend}, call: {call}, nth: 1}}]\n"
        scene = self.scene(text=crash)
        cloud = self.reach(scene)
        steps: dict[str, Callable[[], Any]] = {
            "create": lambda: self.create(cloud, name="new"),
            "describe": lambda: cloud.describe(self.machine, timeout=9),
            "list": lambda: cloud.list_all(timeout=9),
            "delete": lambda: cloud.delete(self.machine, send_before=LATE, timeout=9),
        }
        assert scene.now(steps[call]) is None
        reached = int(when == "after")
        assert scene.rules.counts[self.backend, call] == reached
        assert scene.world.created[self.backend] == (reached if call == "create" else 0)
        assert sum(scene.world.deleted.values()) == (reached if call == "delete" else 0)

    def test_each_call_counts_once_and_as_itself(self) -> None:
        scene = self.scene()
        cloud = self.reach(scene)

        def go() -> None:
            self.create(cloud, name="new")
            cloud.list_all(timeout=9)
            cloud.describe(self.machine, timeout=9)
            cloud.guest(self.machine, timeout=9)
            cloud.delete(self.machine, send_before=LATE, timeout=9)

        scene.now(go)
        calls = ("create", "list", "describe", "delete")
        assert [scene.rules.counts[self.backend, call] for call in calls] == [1, 1, 1, 1]
        assert scene.rules.counts[self.backend, "guest_attributes"] == int(self.backend == "gcp")
        assert scene.rules.history.deletes == [(0, self.machine)]

    def test_rules_are_chosen_by_name_zone_and_moment(self) -> None:
        b = self.backend
        scene = Scene(
            f"calls:\n  - {{cloud: {b}, call: create, name: other-*, answer: quota}}\n"
            f"  - {{cloud: {b}, call: create, from: 10, to: 20, answer: no_capacity}}\n"
            + ("  - {cloud: gcp, call: create, zone: z2, answer: unauthorized}\n" if b == "gcp" else "")
        )
        cloud = self.reach(scene)
        given = scene.at(
            {
                0: lambda: self.create(cloud, name="other-1", attempt="1"),
                10: lambda: self.create(cloud, name="a", attempt="2"),
                20: lambda: self.create(cloud, name="b", attempt="3"),
                21: lambda: self.create(cloud, name="c", attempt="4", zone="z2" if b == "gcp" else None),
            }
        )
        last = "refused unauthorized" if b == "gcp" else "accepted"
        expected = ["refused quota", "refused capacity", "accepted", last]
        assert [brief(answer, self.account) for answer in given] == expected
