"""Resources of GCE's REST API as the simulated world has them: JSON objects of the compute v1 discovery document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ledger.clouds.gcp_settings import MACHINE_TYPES, GcpSettings
from ledger.clouds.values import CreateSpec
from ledger.moments import MICROS, iso
from ledger.sim import machine as read
from ledger.sim.machine import Machine, State
from ledger.sim.schema import OTHER_ACCOUNT, PROJECT

LABELS = tuple(read.labels("a.b.c.d"))
KNOWN = {name: (gpu, count) for gpu, counts in MACHINE_TYPES.items() for count, name in counts.items()}
REASONS = {
    400: "invalid",
    401: "authError",
    402: "paymentRequired",
    403: "forbidden",
    404: "notFound",
    409: "resourceInUseByAnotherResource",
    412: "conditionNotMet",
    429: "rateLimitExceeded",
    503: "backendError",
}


@dataclass(frozen=True, slots=True)
class SimSettings(GcpSettings):
    """The project of the scenarios: any GPUs can be had there, at the world's prices."""

    project: str = PROJECT
    zones: tuple[str, ...] = field(default=("us-central1-a",))

    def machine_type(self, gpu_type: str | None, gpus: int | None) -> str:
        """A machine type that has them."""
        return machine_type(gpu_type, gpus)

    def price(self, machine_type: str, model: str | None) -> float | None:  # noqa: ARG002  # every model costs the same
        """Dollars an hour."""
        return read.price("gcp", *gpus_of(machine_type))


def machine_type(gpu_type: str | None, gpus: int | None) -> str:
    """The name of the world's machine type with these GPUs."""
    return f"sim-{gpu_type or ''}-{'' if gpus is None else gpus}"


def gpus_of(name: str) -> tuple[str | None, int | None]:
    """The GPUs of a machine type: one of the world's, or of Google's that are known."""
    if not name.startswith("sim-"):
        return KNOWN.get(name, (None, None))
    gpu_type, _, count = name.removeprefix("sim-").rpartition("-")
    return gpu_type or None, int(count) if count else None


@dataclass(frozen=True, slots=True)
class Links:
    """URLs of resources below the server's own address."""

    url: str

    def of(self, path: str, project: str = PROJECT) -> str:
        """The URL of a path in the project."""
        return f"{self.url}/compute/v1/projects/{project}/{path}"


def asked(body: Mapping[str, Any], zone: str, request_id: str) -> CreateSpec:
    """What an insert asks for. Raises ValueError for a body that is no instance."""
    labels = body.get("labels", {})
    gpu_type, gpus = gpus_of(str(body["machineType"]).rpartition("/")[2])
    parts = [labels.get(key, "") for key in LABELS]
    return CreateSpec(
        name=str(body["name"]),
        rung="",
        zone=zone,
        provisioning_model=body.get("scheduling", {}).get("provisioningModel", "STANDARD"),
        gpu_type=gpu_type,
        gpus=gpus,
        marker=".".join(parts) if all(parts) else "",
        request_id=str(UUID(request_id)),
    )


def instance(
    links: Links, machine: Machine, state: State, when: int, start: int, body: Mapping[str, Any]
) -> dict[str, Any]:
    """An instance as it was at `when`; `body` is what its insert asked for, {} where no insert made it."""
    zone = links.of(f"zones/{machine.zone}")
    kind = body.get("machineType", f"zones/{machine.zone}/machineTypes/{machine_type(machine.gpu_type, machine.gpus)}")
    interface: dict[str, Any] = {"kind": "compute#networkInterface", "name": "nic0"}
    if read.shows_port(machine, state, when):
        host = read.address(machine).rpartition(":")[0]
        interface["accessConfigs"] = [{"kind": "compute#accessConfig", "type": "ONE_TO_ONE_NAT", "natIP": host}]
    gpu = {"acceleratorCount": machine.gpus, "acceleratorType": links.of(f"zones/{machine.zone}/acceleratorTypes/gpu")}
    return {
        "kind": "compute#instance",
        "id": machine.id,
        "name": machine.name,
        "creationTimestamp": stamp(start + machine.created),
        "status": state.status,
        "zone": zone,
        "machineType": links.of(below(str(kind))),
        "labels": read.labels(machine.marker),
        "metadata": {"kind": "compute#metadata", **body.get("metadata", {})},
        "networkInterfaces": [interface],
        "scheduling": {**body.get("scheduling", {}), "provisioningModel": machine.provisioning_model},
        **({"guestAccelerators": [gpu]} if machine.gpus else {}),
        "selfLink": f"{zone}/instances/{machine.name}",
    }


def below(path: str) -> str:
    """A resource's path below its project; a body may name it by that, by a longer path, or by a whole URL."""
    return re.sub(r"\A.*?projects/[^/]+/", "", path)


def error(status: int, message: str, reason: str | None = None) -> dict[str, Any]:
    """The body of an HTTP error."""
    word = reason or REASONS.get(status, "backendError" if status >= 500 else "invalid")
    entry = {"message": message, "domain": "global", "reason": word}
    return {"error": {"code": status, "message": message, "errors": [entry]}}


def not_found(zone: str, instance_id: str, project: str = PROJECT) -> dict[str, Any]:
    """The body of the 404 of an instance."""
    path = f"projects/{project}/zones/{zone}/instances/{instance_id}"
    return error(404, f"The resource '{path}' was not found")


@dataclass(slots=True)
class Operation:
    """One operation of a zone; `failed` is (code, message, HTTP status)."""

    name: str
    number: int
    kind: str
    zone: str
    target: str
    target_id: str
    at: int
    failed: tuple[str, str, int] | None = None

    def body(self, links: Links, start: int, done: bool) -> dict[str, Any]:
        """The operation as it stands."""
        zone = links.of(f"zones/{self.zone}")
        value: dict[str, Any] = {
            "kind": "compute#operation",
            "id": str(8_000_000_000_000_000_000 + self.number),
            "name": self.name,
            "zone": zone,
            "operationType": self.kind,
            "targetLink": f"{zone}/instances/{self.target}",
            "targetId": self.target_id,
            "status": "DONE" if done else "RUNNING",
            "progress": 100 if done else 0,
            "insertTime": stamp(start + self.at),
            "startTime": stamp(start + self.at),
            "selfLink": f"{zone}/operations/{self.name}",
        }
        if done and self.failed is not None:
            code, message, status = self.failed
            value["error"] = {"errors": [{"code": code, "message": message}]}
            value |= {"httpErrorStatusCode": status, "httpErrorMessage": "SERVICE UNAVAILABLE"}
        return value


def stamp(micros: int) -> str:
    """RFC 3339 with milliseconds, as GCE writes it."""
    return f"{iso(micros // MICROS * MICROS)[:-1]}.{micros % MICROS // 1000:03d}+00:00"


def aggregated(
    links: Links,
    zones: tuple[str, ...],
    rows: list[tuple[str, dict[str, Any]]],
    account: str,
    following: str | None,
    missing: tuple[str, ...],
) -> dict[str, Any]:
    """One page of an aggregated list: `rows` are (zone, instance)."""
    items: dict[str, dict[str, Any]] = {}
    for zone in zones if account != OTHER_ACCOUNT else ():
        held = [row for where, row in rows if where == zone]
        warning = {
            "code": "NO_RESULTS_ON_PAGE",
            "message": f"There are no results for scope 'zones/{zone}' on this page.",
        }
        if zone not in missing:
            items[f"zones/{zone}"] = {"instances": held} if held else {"warning": warning}
    value: dict[str, Any] = {
        "kind": "compute#instanceAggregatedList",
        "id": f"projects/{account}/aggregated/instances",
        "items": items,
        "selfLink": links.of("aggregated/instances", account),
    }
    if following:
        value["nextPageToken"] = following
    if missing:
        value["unreachables"] = [f"projects/{account}/zones/{zone}" for zone in missing]
    return value


def zonal(links: Links, zone: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The list of one zone."""
    value: dict[str, Any] = {
        "kind": "compute#instanceList",
        "id": f"projects/{PROJECT}/zones/{zone}/instances",
        "selfLink": links.of(f"zones/{zone}/instances"),
    }
    return {**value, "items": rows} if rows else value
