"""RunPod's adapters beside their contract: the key, whose it is, what is sent, what is kept away from the user."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from graphql import build_schema, graphql_sync, parse, validate
from hypothesis import given
from hypothesis import strategies as st

from ledger.clouds import runpod, runpod_v2
from ledger.clouds.pods import IMAGE, Build, Key, Offer, environment, find_key, moment_of, offer_of
from ledger.clouds.runpod_graphql import Word, literal, sdk
from ledger.clouds.values import Absent, Accepted, LaunchSpec, Listing, Probe, Refused, Seen, Unknown, Unresolved
from ledger.errors import LedgerError
from ledger.policy import Policy
from ledger.settings import Gcp, Intent, Runpod, Settings, Ssh
from ledger.sim.rules import Rules
from ledger.sim.wire import runpod as server
from ledger.sim.wire.gate import Gate
from ledger.sim.wire.runpod_graphql import SCHEMA
from ledger.sim.wire.server import LoopbackServer, Reply, Request
from ledger.source import SystemSource
from tests.clouds.v2_specification import violations
from tests.sim.making import LATE, LAUNCH, LEDGER, pod, scenario
from tests.sim.making import world as make_world

APIS = ("graphql", "rest_v2")
KEY = Key("a-key-of-nobody")
NASTY = (
    "with \"quotes\" and 'single'",
    "two\nlines\r\nand a\ttab",
    "C:\\path\\n not a newline \\",
    "{braces} }] ) { $var ${X} #comment",
    'v" }], dockerArgs: "evil',
    '"""block"""',
    "naïve ファイル 🚀 \u2028 \x7f",
    " ",
    "",
    "\\u0041",
)


class Site:
    """A simulated RunPod on the real clock, and both adapters on it."""

    def __init__(self, text: str = "", **options: Any) -> None:
        made = scenario(text)
        self.world = make_world(text)
        self.exchanges: list[tuple[Request, Reply]] = []
        self.gate = Gate(self.world, Rules.of(made), lambda: 60_000_000)
        self.server = server.serve(self.gate, seen=lambda *exchange: self.exchanges.append(exchange), **options)

    def cloud(self, api: str, **options: Any) -> Any:
        url = self.server.url
        if api == "graphql":
            return runpod.RunPodCloud(KEY, SystemSource(), url=url, **options)
        return runpod_v2.RunPodV2Cloud(KEY, SystemSource(), url=url, graphql_url=url, **options)

    def raw(self) -> list[dict[str, Any]]:
        """The pods as REST v2 tells them to somebody else."""
        told = httpx.get(f"{self.server.url}/v2/pods", headers={"Authorization": "Bearer x"}, trust_env=False)
        pods: list[dict[str, Any]] = told.json()["pods"]
        return pods


@pytest.fixture
def opened() -> Iterator[list[Callable[[], None]]]:
    closing: list[Callable[[], None]] = []
    yield closing
    for close in closing:
        close()


@pytest.fixture
def site(opened: list[Callable[[], None]]) -> Site:
    made = Site()
    opened.append(made.server.close)
    return made


# What is sent.


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("text", NASTY)
def test_texts_arrive_unchanged(api: str, text: str, site: Site) -> None:
    spec = pod(name=f"pod {text}", env={"PIN": text, f"odd {text}": "x", "KEEP_RUNNING": "1"})
    offer = Offer(public_key="ssh-ed25519 AAAA me@here", image=f"image:{text}" if text.strip() else "an/image")
    made = site.cloud(api, account="me", offer=offer).create(spec, send_before=LATE, timeout=20)
    assert isinstance(made, Accepted)
    assert made.seen is not None
    assert (made.seen.name, made.seen.marker, made.seen.keep_running) == (spec.name, spec.marker, True)
    [told] = site.raw()
    assert (told["name"], told["image"]) == (spec.name, offer.image)
    assert told["env"] == {
        **spec.env,
        "LEDGER_MARKER": spec.marker,
        "LEDGER_RUN": "issue-1",
        "LEDGER_ATTEMPT": "attempt-1",
        "PUBLIC_KEY": "ssh-ed25519 AAAA me@here",
    }


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_a_literal_is_the_text_that_it_was_made_of(text: str) -> None:
    asked = graphql_sync(
        build_schema("type Query { echo(input: I): String } input I { v: [String] }"),
        f"query {{ echo(input: {literal({'v': ['first', text]})}) }}",
        {"echo": lambda _info, input: input["v"][1]},
    )
    assert asked.errors is None
    assert asked.data == {"echo": text}


def test_literals() -> None:
    shown = literal({"a": Word("ALL"), "n": 3, "t": True, "none": None, "l": [{"k": "v"}]})
    assert shown == '{a: ALL, n: 3, t: true, none: null, l: [{k: "v"}]}'


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("changes", [{"name": "half \ud83d"}, {"env": {"A": "nul \0"}}, {"env": {"\udc00": "v"}}])
def test_what_no_environment_can_hold_is_refused_before_it_is_sent(api: str, changes: Any, site: Site) -> None:
    given_ = site.cloud(api, account="me").create(replace(pod(), **changes), send_before=LATE, timeout=9)
    assert isinstance(given_, Refused)
    assert (given_.cls, given_.unsent) == ("invalid", True)
    assert site.exchanges == []


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("changes", "words"),
    [({"gpu_type": "H900"}, "'H900'"), ({"gpu_type": None}, "no GPU type"), ({"gpu_type": "", "gpus": 2}, "no GPU")],
)
def test_what_cannot_be_rented_is_told_without_asking(api: str, changes: Any, words: str, site: Site) -> None:
    given_ = site.cloud(api, account="me").create(replace(pod(), **changes), send_before=LATE, timeout=9)
    assert isinstance(given_, Refused)
    assert given_.cls == "invalid"
    assert words in given_.message
    assert site.exchanges == []


def test_a_pod_is_made_as_the_settings_say(site: Site) -> None:
    offer = Offer(
        build=Build(container=60, volume=0),
        builds={"ft-7b": Build("team/ft:1", 80, 200, 96)},
        gpu_ids={"H100": ["NVIDIA H100 80GB HBM3"]},
        cloud="COMMUNITY",
    )
    spec = pod(gpu_type="h100", gpus=2, intent="ft-7b")
    site.cloud("rest_v2", account="me", offer=offer).create(spec, send_before=LATE, timeout=9)
    request, reply = site.exchanges[-1]
    assert violations(request, reply) == []
    body = request.json()
    assert (body["image"], body["disk"], body["cloud"]) == ("team/ft:1", 80, "COMMUNITY")
    assert body["mounts"] == {"persistent": {"size": 200, "path": "/workspace"}}
    assert body["gpu"] == {"id": "NVIDIA H100 80GB HBM3", "count": 2}
    assert (body["ports"], body["startSsh"]) == (["22/tcp"], True)
    site.cloud("graphql", account="me", offer=offer).create(spec, send_before=LATE, timeout=9)
    query = site.exchanges[-1][0].json()["query"]
    for part in (
        'imageName: "team/ft:1"',
        "cloudType: COMMUNITY",
        "containerDiskInGb: 80",
        "volumeInGb: 200",
        'gpuTypeId: "NVIDIA H100 80GB HBM3"',
        "gpuCount: 2",
        "minMemoryInGb: 96",
        'ports: "22/tcp"',
        "startSsh: true",
    ):
        assert part in query


def test_graphql_sets_an_end_of_life_at_the_server(site: Site) -> None:
    class Still(SystemSource):
        def now(self) -> int:
            return 1_784_332_800_500_000  # 2026-07-18T00:00:00.5Z

    cloud = runpod.RunPodCloud(KEY, Still(), url=site.server.url, account="me")
    cloud.create(pod(fence_hours=1.5), send_before=LATE, timeout=9)
    assert 'terminateAfter: "2026-07-18T01:30:00Z"' in site.exchanges[-1][0].json()["query"]


@pytest.mark.parametrize("api", APIS)
def test_a_pod_without_a_gpu(api: str, site: Site) -> None:
    made = site.cloud(api, account="me").create(pod(gpus=0, gpu_type=None), send_before=LATE, timeout=9)
    assert isinstance(made, Accepted)
    request, reply = site.exchanges[-1]
    if api == "rest_v2":
        assert violations(request, reply) == []
        assert request.json()["cpu"] == {"id": "cpu3c", "vcpuCount": 4}
    else:
        assert "deployCpuPod(input: {" in request.json()["query"]
        assert 'instanceId: "cpu3c-4-8"' in request.json()["query"]


def test_the_specification_is_really_held() -> None:
    body = {"name": "x", "image": "i", "cpu": {"id": "cpu3c", "vcpuCount": 4}, "bogus": 1}
    request = Request("POST", "/v2/pods", {}, {}, json.dumps(body).encode())
    assert any("bogus" in found for found in violations(request, Reply.of({"id": "p"}, 201)))
    assert any("required" in found for found in violations(request, Reply.of({"id": "p"}, 201)))
    assert violations(Request("GET", "/v2/pods/a/b", {}, {}, b""), Reply()) == ["/v2/pods/a/b: no such path"]


def test_the_keys_of_the_account_are_answered(site: Site) -> None:
    """dstack asks for them to see whether a key is good."""
    url = f"{site.server.url}/v2/account/ssh-keys"
    answer = httpx.get(url, headers={"Authorization": "Bearer x"}, trust_env=False)
    assert answer.json() == {"keys": []}
    assert violations(*site.exchanges[-1]) == []


def test_the_sdks_own_calls_are_of_the_schema() -> None:
    """Its query strings pass the engine, so the schema is RunPod's as far as its own SDK uses it."""
    sdk()  # so that no more of the package is imported than this
    from runpod.api.mutations import pods as mutations
    from runpod.api.queries import gpus, pods, user

    env = {"A": "1"}
    queries = [
        pods.QUERY_POD,
        pods.generate_pod_query("p"),
        user.QUERY_USER,
        gpus.QUERY_GPU_TYPES,
        gpus.generate_gpu_query("NVIDIA L4", 1),
        mutations.generate_pod_deployment_mutation("n", "i", "NVIDIA L4", gpu_count=1, env=env, ports="22/tcp"),
        mutations.generate_pod_deployment_mutation("n", "i", instance_id="cpu3c-2-4"),
        mutations.generate_pod_terminate_mutation("p"),
    ]
    schema = build_schema(SCHEMA)
    assert [validate(schema, parse(query)) for query in queries] == [[]] * len(queries)


# Nothing of the clients where nobody asked for it.


def fresh(program: str) -> str:
    """What a new Python says."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr == ""
    return done.stdout.strip()


def test_importing_the_adapters_imports_no_client() -> None:
    heavy = ("runpod", "httpx", "requests", "graphql", "asyncssh", "google.cloud")
    program = (
        f"import sys, ledger.clouds.runpod, ledger.clouds.runpod_v2; print([m for m in {heavy} if m in sys.modules])"
    )
    assert fresh(program) == "[]"


def test_the_sdk_leaves_logging_alone() -> None:
    program = (
        "import logging, sys; from ledger.clouds.runpod_graphql import sdk; sdk(); "
        "print(logging.root.handlers, logging.root.level, logging.getLogger('urllib3').level, "
        "[m for m in ('cpuinfo', 'runpod.serverless', 'fastapi', 'boto3') if m in sys.modules])"
    )
    assert fresh(program) == "[] 30 0 []"


def test_the_real_requests_is_left_alone() -> None:
    import requests

    assert sdk().__dict__["requests"] is not requests
    assert requests.post.__module__ == "requests.api"


# The key, and whose it is.


def test_where_the_key_is_looked_for(tmp_path: Path) -> None:
    file = tmp_path / ".runpod" / "config.toml"
    with pytest.raises(LedgerError, match=r"RUNPOD_API_KEY is not set and .*config\.toml has no api_key under"):
        find_key({}, tmp_path)
    file.parent.mkdir()
    file.write_text('[default]\napi_key = "from-the-file"\n')
    assert find_key({}, tmp_path).reveal() == "from-the-file"
    assert find_key({"RUNPOD_API_KEY": " from-outside\n"}, tmp_path).reveal() == "from-outside"
    for broken, words in (("[default", "is no TOML"), ("[default]\napi_key = 5\n", "has no api_key")):
        file.write_text(broken)
        with pytest.raises(LedgerError, match=words):
            find_key({}, tmp_path)
    for bad in ("two words", "sché", "a\nb"):
        with pytest.raises(LedgerError, match=r"key in RUNPOD_API_KEY has characters") as raised:
            find_key({"RUNPOD_API_KEY": bad}, tmp_path)
        assert bad not in str(raised.value)


def test_a_key_does_not_show_itself() -> None:
    assert "nobody" not in f"{KEY!r} {KEY}"
    assert KEY.fingerprint == Key("a-key-of-nobody").fingerprint != Key("another").fingerprint


def test_open_cloud_goes_by_the_settings(monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    env = {
        "ACME_KEY": "k",
        "RUNPOD_API_BASE_URL": site.server.url,
        "LEDGER_RUNPOD_V2_ENDPOINT": site.server.url,
    }

    def settings(api: str, **more: Any) -> Settings:
        rented = Runpod(api=api, api_key_env="ACME_KEY", **more)
        return Settings("sqlite://", None, Policy(), {}, Gcp(), rented, Ssh())

    for api, kind in (("graphql", runpod.RunPodCloud), ("rest_v2", runpod_v2.RunPodV2Cloud)):
        assert runpod.open_cloud(settings(api, account="user_1"), SystemSource(), env=env).account == "user_1"
        cloud = runpod.open_cloud(settings(api), SystemSource(), env=env)
        assert isinstance(cloud, kind)
        assert site.exchanges == []  # nothing is sent until something is asked
        assert cloud.account == "example-runpod-account"
        assert isinstance(cloud.list_all(timeout=9), Listing)
        site.exchanges.clear()
    monkeypatch.setattr(Path, "home", lambda: Path("/nowhere"))
    with pytest.raises(LedgerError, match=r"no RunPod API key: ACME_KEY is not set and /nowhere/\.runpod"):
        runpod.open_cloud(settings("rest_v2"), SystemSource(), env={})


def test_the_settings_say_what_pods_are_made_of(tmp_path: Path) -> None:
    key = tmp_path / "id"
    settings = Settings(
        "sqlite://",
        None,
        Policy(),
        {"ft-7b": Intent("H100", 4, disk_gb=500, min_ram_gb=96, image="team/ft:1"), "eval": Intent("L4", 1, disk_gb=5)},
        Gcp(),
        Runpod(gpu_ids={"H100": ("a", "b")}, cloud_type="SECURE"),
        Ssh(key=key),
    )
    offer = offer_of(settings)
    assert (offer.image, offer.cloud, offer.public_key, offer.gpu_ids) == (IMAGE, "SECURE", None, {"H100": ("a", "b")})
    assert offer.builds == {"ft-7b": Build("team/ft:1", 50, 500, 96), "eval": Build(None, 50, 10, None)}
    Path(f"{key}.pub").write_text("ssh-ed25519 AAAA me@here\n")
    assert offer_of(settings).public_key == "ssh-ed25519 AAAA me@here"


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("answers", "ids", "expected"),
    [
        (["no_capacity"], ["a", "b", "c"], "Refused capacity 1"),
        ([], ["a"], "Accepted"),
        (["quota"], ["a"], "Refused quota"),
        (["timeout"], ["a"], "Unresolved timeout"),
    ],
)
def test_a_type_with_several_ids_asks_for_each_that_has_no_capacity(
    api: str, answers: list[str], ids: list[str], expected: str, opened: list[Callable[[], None]]
) -> None:
    rules = "".join(f"  - {{cloud: runpod, call: create, answer: {answer}, times: 2}}\n" for answer in answers)
    site = Site(f"calls:\n{rules}" if rules else "")
    opened.append(site.server.close)
    cloud = site.cloud(api, account="me", offer=Offer(gpu_ids={"H100": ("a", "b", "c")}))
    made = cloud.create(pod(), send_before=LATE, timeout=0.3 if "timeout" in answers else 20)
    if answers == ["no_capacity"]:  # twice; the third id is there
        assert isinstance(made, Accepted)
    else:
        said = getattr(made, "cls", getattr(made, "error", ""))
        assert f"{type(made).__name__} {said}".strip() == expected
    assert [_gpu_asked(request) for request, _ in site.exchanges] == ids


def _gpu_asked(request: Request) -> str:
    body = request.json()
    return str(body["query"].split('gpuTypeId: "')[1].split('"')[0] if "query" in body else body["gpu"]["id"])


@pytest.mark.parametrize("api", APIS)
def test_whose_the_key_is_is_asked_once(api: str, site: Site) -> None:
    cloud = site.cloud(api)
    for _ in range(3):
        told = cloud.list_all(timeout=9)
        assert (told.account, cloud.account) == ("example-runpod-account",) * 2
        assert told.fingerprint == KEY.fingerprint
    asked = [request for request, _ in site.exchanges if request.body == json.dumps({"query": runpod.ACCOUNT}).encode()]
    assert len(asked) <= 1


def test_a_configured_account_that_is_not_the_keys_is_told_by_the_list(site: Site) -> None:
    for api in APIS:
        cloud = site.cloud(api, account="somebody")
        assert cloud.account == "somebody"
        assert cloud.list_all(timeout=9).account == "example-runpod-account"
        assert cloud.describe("runpod:gone", timeout=9) == Absent("example-runpod-account")


def test_when_graphql_is_retired_the_account_is_the_configured_one_or_the_keys(
    opened: list[Callable[[], None]],
) -> None:
    site = Site(graphql=False)
    opened.append(site.server.close)
    assert site.cloud("rest_v2", account="me").list_all(timeout=9).account == "me"
    unknown = site.cloud("rest_v2")
    assert unknown.list_all(timeout=9).account == f"key-{KEY.fingerprint}"
    assert unknown.account == ""
    told = site.cloud("graphql").list_all(timeout=9)
    assert isinstance(told, Unknown)
    assert told.error == "http_410"
    assert "set the other `api`" in told.message


def test_an_account_that_nobody_tells_is_no_account() -> None:
    nowhere = runpod.RunPodCloud(KEY, SystemSource(), url="http://127.0.0.1:9")
    assert nowhere.account == ""


# Time.


@pytest.mark.parametrize("api", APIS)
def test_an_answer_that_drips_ends_at_the_time_out(api: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stop = threading.Event()

        def drip() -> None:
            with listening.accept()[0] as connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not stop.wait(0.02):
                    connection.sendall(b" ")

        thread = threading.Thread(target=drip)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        begun = time.monotonic()
        cloud: Any = runpod.RunPodCloud(KEY, SystemSource(), url=url)
        if api == "rest_v2":
            cloud = runpod_v2.RunPodV2Cloud(KEY, SystemSource(), url=url)
        assert cloud.list_all(timeout=0.2) == Unknown("timeout", "no answer within the time-out")
        assert time.monotonic() - begun < 5
        stop.set()
        thread.join()


@pytest.mark.parametrize("api", APIS)
def test_without_time_nothing_is_sent(api: str, site: Site) -> None:
    given_ = site.cloud(api, account="me").create(pod(), send_before=LATE, timeout=0)
    assert isinstance(given_, Unresolved)
    assert given_.error == "timeout"
    assert site.exchanges == []


@pytest.mark.parametrize("api", APIS)
def test_many_threads_share_an_adapter(api: str, opened: list[Callable[[], None]]) -> None:
    many = ", ".join(f"{{cloud: runpod, name: pod-{i}, id: p{i}}}" for i in range(8))
    site = Site(f"machines: [{many}]")
    opened.append(site.server.close)
    cloud = site.cloud(api)
    results: dict[int, Any] = {}

    def read(number: int) -> None:
        results[number] = [cloud.describe(f"runpod:p{number}", timeout=30) for _ in range(3)]

    threads = [threading.Thread(target=read, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {n: [seen.name for seen in seens] for n, seens in results.items()} == {n: [f"pod-{n}"] * 3 for n in range(8)}


# The machine calls.


class FakeShell:
    def __init__(self) -> None:
        self.asked: list[Any] = []

    def launch(self, machine: str, endpoint: Any, spec: LaunchSpec, *, send_before: float, timeout: float) -> Accepted:
        self.asked.append(("launch", machine, endpoint, spec, send_before, timeout <= 9))
        return Accepted()

    def probe(self, machine: str, endpoint: Any, spec: LaunchSpec, *, timeout: float) -> Probe:
        self.asked.append(("probe", machine, endpoint, spec, timeout <= 9))
        return Probe(None, False, 0, None, False, 0)


@pytest.mark.parametrize("api", APIS)
def test_launch_and_probe_go_to_the_port_that_the_cloud_shows(api: str, opened: list[Callable[[], None]]) -> None:
    site = Site(
        "machines: [{cloud: runpod, name: a, id: p, created: -60}, {cloud: runpod, name: b, id: q, created: -60}]\n"
        "world: [{at: 0, cloud: runpod, name: b, ports: false}]"
    )
    opened.append(site.server.close)
    shell = FakeShell()
    cloud = site.cloud(api, account="me", shell=shell)
    assert cloud.launch("runpod:p", LAUNCH, send_before=7.0, timeout=9) == Accepted()
    assert len(site.exchanges) >= 1  # it looked where the pod is
    seen = len(site.exchanges)
    assert isinstance(cloud.probe("runpod:p", LAUNCH, timeout=9), Probe)
    assert len(site.exchanges) == seen  # and that was a moment ago
    there = ("198.51.100.2", 10001)
    assert shell.asked == [
        ("launch", "runpod:p", there, LAUNCH, 7.0, True),
        ("probe", "runpod:p", there, LAUNCH, True),
    ]
    for machine in ("runpod:q", "runpod:gone"):
        told = cloud.probe(machine, LAUNCH, timeout=9)
        assert isinstance(told, Unknown)
        assert told.error == "unreachable"
        assert isinstance(cloud.launch(machine, LAUNCH, send_before=7.0, timeout=9), Unresolved)
    assert len(shell.asked) == 2


@pytest.mark.parametrize("api", APIS)
def test_without_ssh(api: str, site: Site) -> None:
    cloud = site.cloud(api)
    assert isinstance(cloud.launch("runpod:p", LAUNCH, send_before=LATE, timeout=9), Refused)
    assert isinstance(cloud.probe("runpod:p", LAUNCH, timeout=9), Unknown)
    assert isinstance(cloud.guest("runpod:p", timeout=9), Unknown)
    assert site.exchanges == []


# Readings.


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2026-03-13T20:00:00Z", 1773432000_000000),
        ("2026-03-13T20:00:00.250Z", 1773432000_250000),
        ("2026-03-13 20:00:00.25 +0000 UTC", 1773432000_250000),
        ("2026-03-13 22:00:00 +0200", 1773432000_000000),
        ("yesterday", None),
        (5, None),
        (None, None),
    ],
)
def test_times_as_runpod_writes_them(text: Any, micros: int | None) -> None:
    assert moment_of(text) == micros


def read_graphql(**changes: Any) -> Seen | None:
    cloud = runpod.RunPodCloud(KEY, SystemSource(), account="me")
    return cloud._seen({"id": "p", "name": "n", "desiredStatus": "RUNNING", **changes}, "me")


def read_rest(**changes: Any) -> Seen | None:
    cloud = runpod_v2.RunPodV2Cloud(KEY, SystemSource(), account="me")
    return cloud._seen({"id": "p", "name": "n", "status": "RUNNING", **changes}, "me")


@pytest.mark.parametrize(
    ("told", "status"),
    [("CREATED", "RUNNING"), ("RESTARTING", "RUNNING"), ("EXITED", "EXITED"), ("DEAD", "DEAD"), ("PAUSED", "PAUSED")],
)
def test_statuses_of_graphql(told: str, status: str) -> None:
    seen = read_graphql(desiredStatus=told)
    assert seen is not None
    assert seen.status == status


@pytest.mark.parametrize(
    ("told", "status"),
    [("PROVISIONING", "RUNNING"), ("STARTING", "RUNNING"), ("EXITED", "EXITED"), ("ERROR", "DEAD"), ("NEW", "NEW")],
)
def test_statuses_of_rest(told: str, status: str) -> None:
    seen = read_rest(status=told)
    assert seen is not None
    assert seen.status == status


def port(**changes: Any) -> dict[str, Any]:
    base = {"ip": "198.51.100.1", "isIpPublic": True, "privatePort": 22, "publicPort": 10022, "type": "tcp"}
    return {
        "ports": [{"privatePort": 8888, "publicPort": 1, "isIpPublic": False, "ip": "10.0.0.1"}, {**base, **changes}]
    }


def direct(**changes: Any) -> dict[str, Any]:
    return {
        "proxy": None,
        "direct": {"host": "198.51.100.1", "port": 10022, "username": "root", "command": "", **changes},
    }


@pytest.mark.parametrize(
    ("seen", "ports", "util"),
    [
        (read_graphql(runtime={**port(), "gpus": [{"gpuUtilPercent": 3}, {"gpuUtilPercent": 97}]}), True, 97),
        (read_graphql(runtime={**port(), "gpus": [{"gpuUtilPercent": None}, {}]}), True, None),
        (read_graphql(runtime={**port(), "gpus": None}), True, None),
        (read_graphql(runtime={**port(isIpPublic=False), "gpus": [{"gpuUtilPercent": 0}]}), False, 0),
        (read_graphql(runtime=port(publicPort=None)), False, None),
        (read_graphql(runtime=port(ip="")), False, None),
        (read_graphql(runtime=port(privatePort=23)), False, None),
        (read_graphql(runtime={"ports": None}), False, None),
        (read_graphql(runtime=None), False, None),
        (read_graphql(desiredStatus="EXITED", runtime=port()), False, None),
        (read_rest(ssh=direct(), runtime={"gpus": [{"util": 3}, {"util": 97}]}), True, 97),
        (read_rest(ssh=direct(), runtime={"gpus": []}), True, None),
        (read_rest(ssh=direct(), runtime=None), True, None),
        (read_rest(ssh=direct(port=None), runtime={"gpus": [{"util": 0}]}), False, 0),
        (read_rest(ssh={"proxy": direct()["direct"], "direct": None}), False, None),
        (read_rest(ssh=None), False, None),
        (read_rest(status="STARTING", ssh=direct()), False, None),
    ],
)
def test_a_pod_is_ready_when_it_runs_and_shows_its_port(seen: Seen | None, ports: bool, util: int | None) -> None:
    assert seen is not None
    assert seen.ports == ("198.51.100.1:10022" if ports else None)
    assert seen.gpu_util == util


def test_costs_and_counts() -> None:
    first, second = read_graphql(costPerHr=3, adjustedCostPerHr=2.5, gpuCount=4), read_graphql(costPerHr=3)
    third, fourth = read_rest(cost=5.5, gpu={"id": "x", "count": 2}), read_rest(cost=0.0, gpu={"id": "x"})
    fifth = read_rest(cost="much", cpu={})
    told = [(seen.cost_per_hour, seen.gpus) for seen in (first, second, third, fourth, fifth) if seen]
    assert told == [(2.5, 4), (3.0, None), (5.5, 2), (None, 1), (None, None)]


def test_the_marker_and_the_pin_of_a_pod() -> None:
    env = environment(pod(env={"LEDGER_RUN": "a lie"}), Offer())
    assert (env["LEDGER_RUN"], env["LEDGER_MARKER"]) == ("issue-1", f"{LEDGER}.issue-1.attempt-1.1")
    for seen in (
        read_graphql(env=["LEDGER_MARKER=a.b.c.1", "KEEP_RUNNING=1", "X=a=b", 7]),
        read_rest(env={"LEDGER_MARKER": "a.b.c.1", "KEEP_RUNNING": "1"}),
    ):
        assert seen is not None
        assert (seen.marker, seen.keep_running) == ("a.b.c.1", True)


def test_a_list_that_fails_forgets_no_account(opened: list[Callable[[], None]]) -> None:
    gate = Gate(make_world(), Rules.of(scenario()), lambda: 0)
    served = LoopbackServer(gate, lambda _: Reply(503))
    opened.append(served.close)
    cloud = runpod.RunPodCloud(KEY, SystemSource(), url=served.url, account="me")
    assert isinstance(cloud.list_all(timeout=9), Unknown)
    assert cloud.account == "me"
