"""What a GCE project is asked for, from the settings, and what reaches its machines over SSH."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ledger.clouds.values import CreateSpec, LaunchSpec, Probe, Unknown

# GPU type → count → machine type. A count that is not here cannot be rented as one instance.
MACHINE_TYPES: Mapping[str, Mapping[int, str]] = {
    "A100": {1: "a2-highgpu-1g", 2: "a2-highgpu-2g", 4: "a2-highgpu-4g", 8: "a2-highgpu-8g"},
    "A100-80": {1: "a2-ultragpu-1g", 2: "a2-ultragpu-2g", 4: "a2-ultragpu-4g", 8: "a2-ultragpu-8g"},
    "B200": {8: "a4-highgpu-8g"},
    "H100": {1: "a3-highgpu-1g", 2: "a3-highgpu-2g", 4: "a3-highgpu-4g", 8: "a3-highgpu-8g"},
    "H200": {8: "a3-ultragpu-8g"},
    "L4": {1: "g2-standard-16", 2: "g2-standard-24", 4: "g2-standard-48", 8: "g2-standard-96"},
}
# These take no Persistent Disk.
HYPERDISK_ONLY = ("a3-ultragpu-", "a4-", "a4x-", "g4-")


@dataclass(frozen=True, slots=True)
class GcpSettings:
    """One project and what is rented in it.

    `zones` in order. `machine_types` maps GPU type → count → machine type; `cpu_machine_type` is for no GPU.
    `intent_types` are intents with a machine type of their own: its GPU type and count, and the machine type.
    `prices` are dollars an hour by machine type, or by `machine type:PROVISIONING MODEL` where that differs.
    `images` and `disks` (GB) are by intent, over `image` and `disk_gb`; `disk_type` None: what the machine type
    takes. `setup` is a shell script that runs before the workload. `flex_valid_seconds`: how long a FLEX_START
    request may wait in the queue (90 to 7200). `public_key` is the line of authorized_keys that lets a probe in as
    `ssh_user` on `ssh_port`. `endpoint`: another address of the API; None: Google's.
    """

    project: str
    zones: tuple[str, ...] = ("us-central1-a",)
    machine_types: Mapping[str, Mapping[int, str]] = field(default_factory=lambda: MACHINE_TYPES)
    cpu_machine_type: str = "n2-standard-8"
    intent_types: Mapping[str, tuple[str | None, int, str]] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    image: str = "projects/deeplearning-platform-release/global/images/family/common-cu128-ubuntu-2204-nvidia-570"
    images: Mapping[str, str] = field(default_factory=dict)
    disk_gb: int = 200
    disks: Mapping[str, int] = field(default_factory=dict)
    disk_type: str | None = None
    network: str = "global/networks/default"
    subnetwork: str | None = None
    external_ip: bool = True
    service_account: str | None = None
    setup: str = ""
    flex_valid_seconds: int = 7200
    ssh_user: str = "ledger"
    ssh_port: int = 22
    public_key: str | None = None
    endpoint: str | None = None
    page_size: int = 500

    def machine_type(self, gpu_type: str | None, gpus: int | None) -> str:
        """The machine type that has these GPUs. Raises LookupError, with the reason, where there is none."""
        count = gpus if gpus is not None else int(gpu_type is not None)
        if count == 0:
            return self.cpu_machine_type
        if gpu_type is None:
            raise LookupError("no GPU type is asked for")
        counts = {name.upper(): value for name, value in self.machine_types.items()}.get(gpu_type.upper(), {})
        if count not in counts:
            known = ", ".join(f"{number} x {gpu_type}" for number in sorted(counts)) or ", ".join(self.machine_types)
            raise LookupError(f"no machine type is configured for {count} x {gpu_type}; known: {known}")
        return counts[count]

    def machine_type_of(self, spec: CreateSpec) -> str:
        """The machine type of a create: its intent's own, where it has one and no other GPUs are asked for."""
        own = self.intent_types.get(spec.intent or "")
        if own is not None and own[:2] == (spec.gpu_type, spec.gpus or 0):
            return own[2]
        return self.machine_type(spec.gpu_type, spec.gpus)

    def price(self, machine_type: str, model: str | None) -> float | None:
        """Dollars an hour; None: not in the table."""
        return self.prices.get(f"{machine_type}:{model}", self.prices.get(machine_type))

    def disk_of(self, machine_type: str) -> str:
        """The type of the boot disk."""
        taken = "hyperdisk-balanced" if machine_type.startswith(HYPERDISK_ONLY) else "pd-balanced"
        return self.disk_type or taken


class Shell(Protocol):
    """SSH to a machine at (host, port)."""

    def probe(
        self, machine: str, endpoint: tuple[str, int], spec: LaunchSpec, *, timeout: float
    ) -> Probe | Unknown: ...
