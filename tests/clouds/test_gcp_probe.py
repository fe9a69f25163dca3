"""Probes reach an instance where the newest read showed it; the adapter is opened without Google's client."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from ledger.clouds.gcp import open_cloud
from ledger.clouds.gcp_settings import GcpSettings
from ledger.clouds.values import LaunchSpec, Probe, Refused, Unknown
from ledger.errors import LedgerError
from tests.clouds.contract import brief
from tests.clouds.gce_script import MACHINE, PROJECT, SETTINGS, Answer, Clock, Script, cloud, page, refusal, resource
from tests.sim.making import LATE, LAUNCH, spec

ANSWER = Probe(pid=1, pid_alive=True, log_bytes=2, log_age=3.0, done=False, gpu_util=4)


class Shell:
    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[str, int], float]] = []

    def probe(self, machine: str, endpoint: tuple[str, int], spec: LaunchSpec, *, timeout: float) -> Probe | Unknown:
        self.asked.append((machine, endpoint, timeout))
        return ANSWER


def test_a_probe_uses_the_address_of_the_last_list() -> None:
    shell, clock = Shell(), Clock()
    script = Script(page(resource()), Answer(body=resource(networkInterfaces=[{"networkIP": "10.0.0.9"}])))
    gce = cloud(script, clock, shell)
    gce.list_all(timeout=9)
    assert gce.probe(MACHINE, LAUNCH, timeout=9) == ANSWER
    clock.sleep(61)  # too old: another look
    assert gce.probe(MACHINE, LAUNCH, timeout=9) == ANSWER
    assert [endpoint for _, endpoint, _ in shell.asked] == [("198.51.100.7", 22), ("10.0.0.9", 22)]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (Answer(body=resource(status="STOPPING")), "unknown unreachable"),
        (
            refusal(
                404,
                "notFound",
                f"The resource 'projects/{PROJECT}/zones/us-central1-a/instances/5513402277619834112' was",
            ),
            "unknown unreachable",
        ),
        (refusal(503, "backendError"), "unknown http_503"),
    ],
)
def test_a_probe_of_what_shows_no_address(step: Any, expected: str) -> None:
    shell = Shell()
    assert brief(cloud(Script(step), shell=shell).probe(MACHINE, LAUNCH, timeout=9), PROJECT) == expected
    assert shell.asked == []


def test_without_ssh_nothing_is_probed() -> None:
    assert brief(cloud(Script()).probe(MACHINE, LAUNCH, timeout=9), PROJECT) == "unknown unsupported"
    assert brief(cloud(Script()).launch(MACHINE, LAUNCH, send_before=LATE, timeout=9), PROJECT) == "refused invalid"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpu_type": "H100", "gpus": 3}, "no machine type is configured for 3 x H100; known: 1 x H100, 2 x H100"),
        ({"gpu_type": "Z9", "gpus": 1}, "no machine type is configured for 1 x Z9; known: A100"),
        ({"gpu_type": None, "gpus": 1}, "no GPU type is asked for"),
        ({"marker": "UPPER.issue-1.a.1"}, "cannot be written as labels"),
        ({"launch": LaunchSpec("issue-1", "a", "x", "/w/logs/l", "/w/logs/p", env={"A-B": "1"})}, "'A-B' is no name"),
        ({"launch": LaunchSpec("issue-1", "a", "x\0", "/w/logs/l", "/w/logs/p")}, "NUL"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_and_not_sent(changes: dict[str, Any], words: str) -> None:
    script = Script()
    given = cloud(script).create(spec(**changes), send_before=LATE, timeout=30)
    assert isinstance(given, Refused)
    assert (given.cls, given.unsent) == ("invalid", True)
    assert words in given.message
    assert script.asked == []


@pytest.mark.parametrize(
    ("gpu_type", "gpus", "expected"),
    [
        ("H100", 4, "a3-highgpu-4g"),
        ("h100", None, "a3-highgpu-1g"),
        (None, 0, "n2-standard-8"),
        (None, None, "n2-standard-8"),
    ],
)
def test_machine_types(gpu_type: str | None, gpus: int | None, expected: str) -> None:
    assert SETTINGS.machine_type(gpu_type, gpus) == expected


def test_prices_and_disks() -> None:
    assert SETTINGS.price("a3-highgpu-4g", "STANDARD") == 40.0
    assert SETTINGS.price("a3-highgpu-4g", "SPOT") == 12.0
    assert SETTINGS.price("a2-highgpu-1g", "SPOT") is None
    assert SETTINGS.disk_of("a3-highgpu-4g") == "pd-balanced"
    assert SETTINGS.disk_of("a3-ultragpu-8g") == "hyperdisk-balanced"


def test_another_address_of_the_api() -> None:
    settings = GcpSettings("p")
    gce = open_cloud(settings, Clock(), env={"LEDGER_GCE_ENDPOINT": "http://127.0.0.1:8080/"})
    assert (gce.backend, gce.account, gce.settings.endpoint) == ("gcp", "p", "http://127.0.0.1:8080")
    assert open_cloud(settings, Clock(), env={}).settings.endpoint is None
    for text, words in (
        ("127.0.0.1:80", "is no address"),
        ("http://example.com", "in the clear"),
        ("ftp://h", "no address"),
    ):
        with pytest.raises(LedgerError, match=words):
            open_cloud(settings, Clock(), env={"LEDGER_GCE_ENDPOINT": text})


def test_opening_the_cloud_loads_no_client() -> None:
    code = (
        "import sys; from ledger.clouds.gcp import open_cloud; from ledger.clouds.gcp_settings import GcpSettings\n"
        "from ledger.source import SystemSource; open_cloud(GcpSettings('p'), SystemSource(), env={})\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('google', 'requests', 'asyncssh', 'grpc')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
