"""Instances in Google's words and in the port's: what a create asks for, and what a read shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ledger.clouds.gcp_errors import Malformed
from ledger.clouds.gcp_settings import GcpSettings
from ledger.clouds.values import CreateSpec, Seen
from ledger.moments import parse_time

if TYPE_CHECKING:
    from google.cloud.compute_v1.types import Instance

LABELS = ("ledger", "ledger-run", "ledger-attempt", "ledger-try")  # the parts of a marker
FLEX_HOURS_MAX = 168.0
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_MACHINE = re.compile(r"gcp:(?P<project>[^/]+)/(?P<zone>[a-z0-9-]+)/(?P<id>[0-9]+)")
_LINK = re.compile(r"(?:.*/)?projects/(?P<project>[^/]+)/zones/(?P<zone>[^/]+)(?:/.*)?")


def parse_machine(machine: str) -> tuple[str, str, str]:
    """(project, zone, numeric id) of a port id. Raises ValueError for one that designates no instance."""
    match = _MACHINE.fullmatch(machine)
    if match is None:
        raise ValueError(f"{machine!r} has no numeric instance id")
    return match["project"], match["zone"], match["id"]


def labels_of(marker: str) -> dict[str, str]:
    """The labels of a marker, a key a part. Raises ValueError for what no label can hold."""
    parts = marker.split(".")
    if len(parts) != len(LABELS) or not all(map(_LABEL.fullmatch, parts)):
        raise ValueError(f"the marker {marker!r} cannot be written as labels")
    return dict(zip(LABELS, parts, strict=True))


def marker_of(labels: dict[str, str]) -> str | None:
    """The marker that labels bear; None: a part of it is missing."""
    parts = [labels.get(key, "") for key in LABELS]
    return ".".join(parts) if all(parts) else None


def instance(spec: CreateSpec, zone: str, machine_type: str, script: str, settings: GcpSettings) -> Instance:
    """The instance that a create asks for; `script` starts with it."""
    from google.cloud import compute_v1 as c

    metadata = {"enable-guest-attributes": "TRUE", "startup-script": script}
    if settings.public_key:
        metadata |= {"ssh-keys": f"{settings.ssh_user}:{settings.public_key}", "enable-oslogin": "FALSE"}
    boot = c.AttachedDisk(
        boot=True,
        auto_delete=True,
        initialize_params=c.AttachedDiskInitializeParams(
            source_image=settings.images.get(spec.intent or "", settings.image),
            disk_size_gb=settings.disks.get(spec.intent or "", settings.disk_gb),
            disk_type=f"zones/{zone}/diskTypes/{settings.disk_of(machine_type)}",
        ),
    )
    access = [c.AccessConfig(name="External NAT", type_="ONE_TO_ONE_NAT")] if settings.external_ip else []
    wanted = c.Instance(
        name=spec.name,
        machine_type=f"zones/{zone}/machineTypes/{machine_type}",
        labels=labels_of(spec.marker),
        disks=[boot],
        network_interfaces=[
            c.NetworkInterface(network=settings.network, subnetwork=settings.subnetwork, access_configs=access)
        ],
        metadata=c.Metadata(items=[c.Items(key=key, value=value) for key, value in metadata.items()]),
        scheduling=_scheduling(spec),
    )
    if settings.service_account:
        wanted.service_accounts = [
            c.ServiceAccount(email=settings.service_account, scopes=["https://www.googleapis.com/auth/cloud-platform"])
        ]
    if spec.provisioning_model == "FLEX_START":
        wanted.params = c.InstanceParams(request_valid_for_duration=c.Duration(seconds=settings.flex_valid_seconds))
        wanted.reservation_affinity = c.ReservationAffinity(consume_reservation_type="NO_RESERVATION")
    return wanted


def _scheduling(spec: CreateSpec) -> Any:
    from google.cloud import compute_v1 as c

    # GPUs do not migrate; and an instance that restarts by itself is billed again with nobody to see it.
    flex = spec.provisioning_model == "FLEX_START"
    hours = min(spec.fence_hours, FLEX_HOURS_MAX) if flex else spec.fence_hours
    return c.Scheduling(
        provisioning_model=spec.provisioning_model or "STANDARD",
        on_host_maintenance="TERMINATE",
        automatic_restart=False,
        instance_termination_action="DELETE",
        max_run_duration=c.Duration(seconds=round(hours * 3600)),
    )


def seen(shown: Instance, account: str, settings: GcpSettings) -> Seen:
    """The instance as GCE shows it. Raises Malformed where it lacks what makes it one."""
    place = _LINK.fullmatch(shown.zone)
    if not shown.id or not shown.name or not shown.status or place is None:
        raise Malformed(f"an instance without an id, a name, a status or a zone: {shown.name or shown.id or '?'}")
    zone = place["zone"]
    machine_type = shown.machine_type.rpartition("/")[2]
    labels = dict(shown.labels)
    model = shown.scheduling.provisioning_model or None
    return Seen(
        machine=f"gcp:{place['project']}/{zone}/{shown.id}",
        backend="gcp",
        account=account,
        name=shown.name,
        status=shown.status,
        zone=zone,
        created_at=_moment(shown.creation_timestamp),
        provisioning_model=model,
        marker=marker_of(labels),
        cost_per_hour=settings.price(machine_type, model),
        ports=_address(shown, settings.ssh_port),
        gpus=sum(gpu.accelerator_count for gpu in shown.guest_accelerators) or None,
        labels=labels,
    )


def project_of(link: str) -> str | None:
    """The project that a resource path names: `projects/P/...`, or a URL of it."""
    match = re.fullmatch(r"(?:.*/)?projects/([^/]+)(?:/.*)?", link)
    return match[1] if match else None


def zone_of(link: str) -> str:
    """The zone of `zones/Z`, `projects/P/zones/Z` or a URL of it."""
    return link.rpartition("/")[2]


def _address(shown: Instance, port: int) -> str | None:
    """Where SSH reaches it while it runs: its external address, else its internal one."""
    if shown.status != "RUNNING":
        return None
    for interface in shown.network_interfaces:
        external = next((access.nat_i_p for access in interface.access_configs if access.nat_i_p), None)
        if external or interface.network_i_p:
            return f"{external or interface.network_i_p}:{port}"
    return None


def _moment(text: str) -> int | None:
    try:
        return parse_time(text)
    except ValueError:
        return None
