"""What goes over the wire, either way, is as the compute v1 discovery document has it, and arrives unchanged."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from ledger.clouds.values import Accepted, LaunchSpec
from ledger.sim.wire.gate import Gate
from ledger.sim.wire.gce import GceServer
from ledger.sim.wire.reach import wired_gcp
from ledger.sim.wire.server import Reply, Request
from tests.clouds.discovery import method_of, wrong, wrong_query
from tests.sim.making import LATE, Scene, spec

PREFIX = "/compute/v1/"
HARD = "q\" ' \\ \n{a} $HOME `x` ümläut 日本 \t%s"


class Wire:
    """A scene with every exchange kept."""

    def __init__(self, text: str = "", page_size: int = 2) -> None:
        self.scene = Scene(text)
        self.kept: list[tuple[Request, Reply]] = []
        gate = Gate(self.scene.world, self.scene.rules, lambda: self.scene.schedule.now)
        self.server = GceServer(gate, page_size=page_size, seen=lambda *exchange: self.kept.append(exchange))
        self.cloud = wired_gcp(self.server.url, gate, self.scene.caller)

    def now(self, step: Any) -> Any:
        try:
            return self.scene.now(step)
        finally:
            self.server.close()


def faults(kept: list[tuple[Request, Reply]]) -> list[str]:
    found = []
    for request, reply in kept:
        method = method_of(request.method, request.path.removeprefix(PREFIX))
        found += wrong_query(method, request.query)
        if request.body:
            found += wrong(method["request"], request.json(), "request")
        if reply.status < 400:
            found += wrong(method["response"], json.loads(reply.body), "response")
        else:
            told = json.loads(reply.body)["error"]
            assert told["code"] == reply.status
            assert told["errors"][0]["reason"]
    return found


@pytest.mark.parametrize("model", ["STANDARD", "SPOT", "FLEX_START"])
def test_what_a_whole_life_says(model: str) -> None:
    wire = Wire(
        "machines: [{cloud: gcp, name: a}, {cloud: gcp, name: b, marker: ours, workload: true}]\n"
        "calls: [{cloud: gcp, call: list, nth: 2, answer: partial}]"
    )

    def go() -> None:
        made = wire.cloud.create(spec(model=model), send_before=LATE, timeout=30)
        assert isinstance(made, Accepted)
        assert made.seen is not None
        wire.cloud.list_all(timeout=9)
        wire.cloud.list_all(timeout=9)
        wire.cloud.guest(wire.scene.world.machines[1].key, timeout=9)
        wire.cloud.guest(made.seen.machine, timeout=9)
        wire.cloud.delete(made.seen.machine, send_before=LATE, timeout=9)
        wire.cloud.describe(made.seen.machine, timeout=9)

    wire.now(go)
    assert faults(wire.kept) == []
    paths = {method_of(request.method, request.path.removeprefix(PREFIX))["id"] for request, _ in wire.kept}
    assert paths >= {
        "compute.instances.insert",
        "compute.instances.get",
        "compute.instances.aggregatedList",
        "compute.instances.delete",
        "compute.instances.getGuestAttributes",
    }


@pytest.mark.parametrize("answer", ["no_capacity", "quota", "already_exists", "error, http: 429"])
def test_what_a_refusal_says(answer: str) -> None:
    wire = Wire(f"calls: [{{cloud: gcp, call: create, answer: {answer}}}]")
    wire.now(lambda: wire.cloud.create(spec(), send_before=LATE, timeout=30))
    assert faults(wire.kept) == []


def inserted(model: str, **changes: Any) -> dict[str, Any]:
    wire = Wire()
    made = wire.now(lambda: wire.cloud.create(spec(model=model, **changes), send_before=LATE, timeout=30))
    assert isinstance(made, Accepted), made
    request = wire.kept[0][0]
    assert request.query == {"requestId": spec().request_id}
    body: dict[str, Any] = request.json()
    return body


def test_a_flex_start_insert() -> None:
    body = inserted("FLEX_START", fence_hours=1000)
    assert body["params"] == {"requestValidForDuration": {"seconds": "7200"}}
    assert body["reservationAffinity"] == {"consumeReservationType": "NO_RESERVATION"}
    assert body["scheduling"] == {
        "provisioningModel": "FLEX_START",
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
        "instanceTerminationAction": "DELETE",
        "maxRunDuration": {"seconds": "604800"},  # GCE's own most for it
    }


@pytest.mark.parametrize("model", ["STANDARD", "SPOT"])
def test_an_insert_of_another_model(model: str) -> None:
    body = inserted(model, fence_hours=2.5)
    assert "params" not in body
    assert "reservationAffinity" not in body
    assert body["scheduling"]["provisioningModel"] == model
    assert body["scheduling"]["instanceTerminationAction"] == "DELETE"
    assert body["scheduling"]["maxRunDuration"] == {"seconds": "9000"}


def test_labels_and_metadata_of_an_insert() -> None:
    body = inserted("STANDARD")
    assert body["labels"] == {
        "ledger": "11111111-1111-4111-8111-111111111111",
        "ledger-run": "issue-1",
        "ledger-attempt": "attempt-1",
        "ledger-try": "1",
    }
    items = {item["key"]: item["value"] for item in body["metadata"]["items"]}
    assert items["enable-guest-attributes"] == "TRUE"


def test_commands_and_values_arrive_unchanged() -> None:
    launch = LaunchSpec("issue-1", "attempt-1", f"echo {HARD}", "/w/logs/l.log", "/w/logs/l.pid", env={"A": HARD})
    body = inserted("STANDARD", launch=launch)
    script = next(item["value"] for item in body["metadata"]["items"] if item["key"] == "startup-script")
    from ledger.clouds.gcp_startup import startup_script

    assert script == startup_script(launch)


def test_an_instance_is_reached_by_name_too_but_never_by_the_adapter() -> None:
    wire = Wire("machines: [{cloud: gcp, name: a, id: '7'}]")
    base = f"{wire.server.url}{PREFIX}projects/example-gpu-project/zones/us-central1-a/instances"
    with urllib.request.urlopen(f"{base}/a") as answer:
        assert json.load(answer)["id"] == "7"
    wire.now(lambda: wire.cloud.describe("gcp:example-gpu-project/us-central1-a/7", timeout=9))
    assert wire.kept[-1][0].path.endswith("/instances/7")
    assert faults(wire.kept) == []


@pytest.mark.parametrize(
    ("body", "query"),
    [
        (b"{", "requestId=6f1f7cb4-aaaa-4bbb-8ccc-000000000001"),
        (b"[]", ""),
        (b'{"name": "a"}', ""),
        (b'{"name": "A_B", "machineType": "zones/z/machineTypes/m"}', ""),
        (b'{"name": "a", "machineType": "zones/z/machineTypes/m"}', "requestId=7"),
    ],
)
def test_an_insert_that_is_none_is_refused(body: bytes, query: str) -> None:
    wire = Wire()
    url = f"{wire.server.url}{PREFIX}projects/example-gpu-project/zones/z/instances?{query}"
    with pytest.raises(urllib.error.HTTPError) as told:
        urllib.request.urlopen(urllib.request.Request(url, data=body, method="POST"))
    with told.value as answer:
        assert answer.status == 400
    wire.server.close()
    assert wire.scene.world.created["gcp"] == 0


def asked(wire: Wire, path: str, body: Any = None) -> Any:
    """What the server answers on the real clock; an error's body for an error."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(f"{wire.server.url}{PREFIX}{path}", data) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return json.load(error)["error"]


def test_what_other_clients_ask_for_is_answered_as_gce_has_it() -> None:
    zones = "projects/example-gpu-project/zones"
    wire = Wire("machines: [{cloud: gcp, name: a, id: '7'}, {cloud: gcp, name: b, id: '8', zone: us-central1-b}]")
    listed = asked(wire, f"{zones}/us-central1-b/instances?maxResults=500")
    assert [row["id"] for row in listed["items"]] == ["8"]
    assert asked(wire, f"{zones}/mars-1/instances")["code"] == 404
    # A filter that was silently left out would answer something else than was asked.
    for path in (f"{zones}/us-central1-a/instances", "projects/example-gpu-project/aggregated/instances"):
        assert asked(wire, f"{path}?filter=name%20eq%20a")["code"] == 400
    # gcloud says a machine type by its whole URL.
    kind = f"{wire.server.url}{PREFIX}{zones}/us-central1-a/machineTypes/n2-standard-8"
    asked(wire, f"{zones}/us-central1-a/instances", {"name": "by-hand", "machineType": kind})
    assert asked(wire, f"{zones}/us-central1-a/instances/by-hand")["machineType"] == kind
    wire.server.close()
    assert faults(wire.kept[:1]) == []


@pytest.mark.parametrize("path", ["projects/p/zones/z/disks/d", "projects/p/aggregated/instances", "nothing"])
def test_what_is_not_there_is_a_404(path: str) -> None:
    wire = Wire()
    with pytest.raises(urllib.error.HTTPError) as told:
        urllib.request.urlopen(f"{wire.server.url}{PREFIX}{path}")
    with told.value as answer:
        assert answer.status == 404
        assert json.load(answer)["error"]["code"] == 404
    wire.server.close()


def test_two_operations_of_one_request_are_the_same() -> None:
    wire = Wire()

    def go() -> Any:
        return [wire.cloud.create(spec(), send_before=LATE, timeout=30) for _ in range(2)]

    one, two = wire.now(go)
    assert one == two
    names = [json.loads(reply.body)["name"] for request, reply in wire.kept if request.method == "POST"]
    assert names[0] == names[1]


def test_on_the_real_clock_the_server_really_waits() -> None:
    wire = Wire("calls: [{cloud: gcp, call: list, answer: timeout}]")
    with pytest.raises(TimeoutError):
        urllib.request.urlopen(
            f"{wire.server.url}{PREFIX}projects/example-gpu-project/aggregated/instances", timeout=0.05
        )
    wire.server.close()
