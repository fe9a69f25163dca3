"""Every endpoint takes connections and never answers: the tick ends in time, learns nothing, and says who hung."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import google.cloud.compute_v1  # noqa: F401  # its import takes seconds, which are no cloud's
import pytest

from ledger.clouds.gcp import GcpCloud
from ledger.clouds.gcp_settings import GcpSettings
from ledger.clouds.host_keys import HostKeys
from ledger.clouds.pods import Key
from ledger.clouds.port import Cloud
from ledger.clouds.runpod import RunPodCloud
from ledger.clouds.runpod_graphql import sdk
from ledger.clouds.runpod_v2 import RunPodV2Cloud
from ledger.clouds.shell import Shell
from ledger.decide.view import Rent
from ledger.edges import Edges
from ledger.events import Draft
from ledger.log.open import create_log
from ledger.policy import parse
from ledger.poller.tick import RESERVE_SECONDS, tick
from ledger.poller.together import threads
from ledger.source import SystemSource

ACCOUNT, PROJECT = "user-7", "a-project"
POD, VM = "runpod:p", f"gcp:{PROJECT}/us-central1-a/7"


@pytest.fixture
def mute() -> Iterator[str]:
    """`host:port` of a socket on which every connection comes about, and nobody answers."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen(50)
        host, port = held.getsockname()
        yield f"{host}:{port}"


@pytest.mark.parametrize("api", ["graphql", "rest_v2"])
@pytest.mark.parametrize("account", [ACCOUNT, None])
def test_a_tick_with_every_endpoint_hanging_ends_in_time_and_says_who(
    tmp_path: Path, mute: str, api: str, account: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sdk()
    monkeypatch.setattr("ledger.clouds.pods.ACCOUNT_SECONDS", 0.2)
    source = SystemSource()
    seconds = RESERVE_SECONDS + 1.5
    policy = parse({"tick_deadline_seconds": seconds})
    log = create_log(f"sqlite:///{tmp_path / 'ledger.db'}", source, policy, "test")
    for issue, backend, whose, machine in ((1, "runpod", ACCOUNT, POD), (2, "gcp", PROJECT, VM)):
        opened = {
            "issue": issue,
            "ladder": ["runpod", "gcp:STANDARD"],
            "rung": backend if backend == "runpod" else "gcp:STANDARD",
            "workload_cmd": "true",
        }
        made = {"backend": backend, "name": f"m-{issue}", "account": whose, "status": "RUNNING", "ports": mute}
        asked = {
            "backend": backend,
            "rung": opened["rung"],
            "name": f"m-{issue}",
            "account": whose,
            "request_id": "r",
            "holder": "other",
            "call_before": source.now(),
            "deadline": source.now(),
        }
        drafts = [
            Draft("RunOpened", opened, source.now(), actor="user"),
            Draft("ProvisionRequested", asked, source.now(), attempt=f"a{issue}"),
            Draft("Provisioned", made, source.now(), attempt=f"a{issue}", machine=machine),
        ]
        log.append(f"issue-{issue}", 0, drafts)
    keys = HostKeys()
    shell = Shell("root", None, source, keys.pinned, keys.pin, environment={})
    url, key = f"http://{mute}", Key("a-key")
    pods: Cloud = (
        RunPodCloud(key, source, url=url, account=account, shell=shell)
        if api == "graphql"
        else RunPodV2Cloud(key, source, url=url, graphql_url=url, account=account, shell=shell)
    )
    clouds = [GcpCloud(GcpSettings(PROJECT, endpoint=url), source, shell), pods]
    rent = Rent(("us-central1-a",), PROJECT, ACCOUNT)
    edges = Edges(source, log, clouds, None, policy, rent, {}, threads, "holder", lambda _: None, keys)
    before = {event.position for event in log.read_all()}

    began = time.monotonic()
    report = tick(edges)
    took = time.monotonic() - began

    assert took < 3.0
    assert took < seconds
    new = [event for event in log.read_all() if event.position not in before]
    assert [(event.type, event.data().get("account"), event.data().get("complete")) for event in new] == [
        ("InventoryRead", PROJECT, False),
        ("InventoryRead", ACCOUNT, False),
    ]
    assert set(report.unread) == {f"gcp {PROJECT}", f"runpod {ACCOUNT}"}
    assert all(why.startswith("timeout") for why in report.unread.values())
    assert set(report.lines) == {"issue-1", "issue-2"}
    log.connection.close()
