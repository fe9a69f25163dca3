"""Google's client on a transport that answers as a script says: no socket, no wait."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter

from ledger.clouds import gcp_client
from ledger.clouds.gcp import GcpCloud
from ledger.clouds.gcp_settings import GcpSettings, Shell

PROJECT = "p"
ZONE = "us-central1-a"
BASE = f"https://www.googleapis.com/compute/v1/projects/{PROJECT}"
ID = "5513402277619834112"
MACHINE = f"gcp:{PROJECT}/{ZONE}/{ID}"
SETTINGS = GcpSettings(PROJECT, (ZONE,), prices={"a3-highgpu-4g": 40.0, "a3-highgpu-4g:SPOT": 12.0})


@dataclass(frozen=True)
class Answer:
    """One HTTP answer; `body` is bytes or JSON."""

    status: int = 200
    body: Any = b""
    headers: dict[str, str] = field(default_factory=dict)

    def data(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


Step = Answer | Exception | Callable[[], None]


class Script(HTTPAdapter):
    """Gives its steps in order; a function among them is called, then the next one serves. Keeps what was asked."""

    def __init__(self, *steps: Step) -> None:
        super().__init__()
        self.steps = list(steps)
        self.asked: list[requests.PreparedRequest] = []
        self.limits: list[Any] = []

    def send(self, request: requests.PreparedRequest, *args: Any, **rest: Any) -> requests.Response:
        self.asked.append(request)
        self.limits.append(rest.get("timeout"))
        assert self.steps, f"nothing more was expected: {request.method} {request.url}"
        step = self.steps.pop(0)
        while not isinstance(step, Answer | Exception):
            step()
            step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        raw = urllib3.HTTPResponse(
            body=io.BytesIO(step.data()),
            status=step.status,
            headers={"Content-Type": "application/json", **step.headers},
            preload_content=False,
        )
        return self.build_response(request, raw)

    def paths(self) -> list[str]:
        """`METHOD path`, without the address and the query."""
        return [f"{r.method} {str(r.url).split('/compute/v1/')[1].partition('?')[0]}" for r in self.asked]


class Clock:
    """A source whose time goes on only when somebody sleeps."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> int:
        return round(self.time * 1_000_000)

    def steady(self) -> float:
        return self.time

    def random_bytes(self, n: int) -> bytes:
        return bytes(n)

    def sleep(self, seconds: float) -> None:
        self.time += seconds


def cloud(
    script: Script, clock: Clock | None = None, shell: Shell | None = None, settings: GcpSettings = SETTINGS
) -> GcpCloud:
    """The adapter on that script."""
    clock = clock or Clock()
    return GcpCloud(
        replace(settings, endpoint="http://127.0.0.1:1"),
        clock,
        shell,
        connect=partial(gcp_client.connect, transport=script),
        limit=lambda seconds, call: call(),
        sleep=clock.sleep,
    )


def refusal(status: int, reason: str, message: str = "no", headers: dict[str, str] | None = None) -> Answer:
    """An error as Google words it."""
    entry = {"message": message, "domain": "global", "reason": reason}
    return Answer(status, {"error": {"code": status, "message": message, "errors": [entry]}}, headers or {})


def operation(status: str = "DONE", **more: Any) -> Answer:
    """The operation of an insert or a delete."""
    value = {
        "kind": "compute#operation",
        "id": "1",
        "name": "operation-1",
        "zone": f"{BASE}/zones/{ZONE}",
        "operationType": "insert",
        "targetId": ID,
        "status": status,
    }
    return Answer(body={**value, **more})


def resource(**changes: Any) -> dict[str, Any]:
    """An instance as GCE shows it."""
    value = {
        "kind": "compute#instance",
        "id": ID,
        "name": "eps-issue-1",
        "status": "RUNNING",
        "zone": f"{BASE}/zones/{ZONE}",
        "machineType": f"{BASE}/zones/{ZONE}/machineTypes/a3-highgpu-4g",
        "creationTimestamp": "2026-07-18T02:00:00.000-07:00",
        "labels": {"ledger": "l", "ledger-run": "issue-1", "ledger-attempt": "a", "ledger-try": "2"},
        "scheduling": {"provisioningModel": "SPOT"},
        "networkInterfaces": [{"networkIP": "10.0.0.2", "accessConfigs": [{"natIP": "198.51.100.7"}]}],
        "guestAccelerators": [{"acceleratorCount": 4, "acceleratorType": "x"}],
    }
    return {**value, **changes}


def page(*rows: dict[str, Any], project: str = PROJECT, **more: Any) -> Answer:
    """A page of an aggregated list, with all its instances in one zone."""
    value: dict[str, Any] = {
        "kind": "compute#instanceAggregatedList",
        "id": f"projects/{project}/aggregated/instances",
        "items": {f"zones/{ZONE}": {"instances": list(rows)}},
    }
    return Answer(body={**value, **more}, headers={"Date": "Sat, 18 Jul 2026 09:00:00 GMT"})
