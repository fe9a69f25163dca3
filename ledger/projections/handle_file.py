"""The sidecar as a file format: its names and keys, whose each key is, its text and seal, and what another changed."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, Final

from ledger.canonical import digest

TOP: Final = ("backend", "cluster", "extra", "job_id", "log_path", "pod_name", "scratch_dir")
PINNED: Final = (
    "intent",
    "workload_cmd",
    "hydra_args",
    "gpus",
    "time_budget_hours",
    "repo_branch",
    "boot_disk_gb",
    "min_ram_gb",
    "env_pins",
    "expected_artifacts",
)
COMMON: Final = frozenset({"issue", *PINNED})
CLOCKS: Final = frozenset({"last_phase", "last_phase_change_ts", "last_phase_incarnation"})
GCP_KEYS: Final = CLOCKS | {
    "project",
    "gcloud_config",
    "zone",
    "instance_name",
    "attempt_id",
    "provisioning_model",
    "machine_type",
    "gpu_count",
    "reconnected",
    "status_at_reconnect",
    "gcp_ladder_rung",
    "gcp_launched_ts",
    "requested_gpus",
    "realized_gpu_count",
    "per_zone_attempts",
    *(f"{clock}_{part}" for clock in ("wedge_alarm", "reachable_wedge") for part in ("streak", "first_ts")),
    *(f"{clock}_incarnation" for clock in ("wedge_alarm", "reachable_wedge")),
}
RUNPOD_KEYS: Final = frozenset(
    {
        "pod_id",
        "runpod_attempt_id",
        "pid_file",
        "workload_executed",
        "workload_pid",
        "launcher_path",
        "synced_sha",
        "workload_start_error",
        "runpod_noport_first_seen_ts",
        "runpod_cuda_ima_last_seen",
    }
)
# Keys of `extra` that are the ledger's to say. What else stands there is another program's, and is kept.
OWNED: Final = COMMON | GCP_KEYS | RUNPOD_KEYS | {"ledger"}

_STREAM = re.compile(r"issue-(?:0|[1-9]\d{0,14})(?:-[a-z0-9-]{1,43})?")
_SUFFIX = "-handle.json"

_COMPACT = json.JSONEncoder(sort_keys=True, separators=(",", ":"))

File = dict[str, Any]


def file_name(stream: str) -> str:
    """`issue-1417-handle.json`, of the stream `issue-1417`."""
    return f"{stream}{_SUFFIX}"


@lru_cache(maxsize=4096)
def stream_of(name: str) -> str | None:
    """The stream whose sidecar bears this file name; None where it is no sidecar's name."""
    stream = name.removesuffix(_SUFFIX)
    return stream if name.endswith(_SUFFIX) and _STREAM.fullmatch(stream) else None


def render(file: File, version: int, position: int) -> str:
    """The file's text: sorted keys, two spaces, no newline at the end, sealed with its checksum."""
    block = {**file["extra"]["ledger"], "version": version, "position": position}
    sealed = {**file, "extra": {**file["extra"], "ledger": block}}
    block["checksum"] = checksum(sealed)
    return dump(sealed)


def dump(file: File) -> str:
    """The text of a file, as its readers expect it."""
    return json.dumps(file, sort_keys=True, indent=2)


def parse(text: str) -> File:
    """The file of a text that `render` made."""
    file: File = json.loads(text)
    return file


def checksum(file: File) -> str:
    """SHA-256 over the file's content without the checksum itself, hex."""
    block = {key: value for key, value in file["extra"]["ledger"].items() if key != "checksum"}
    return digest(compact({**file, "extra": {**file["extra"], "ledger": block}}))


def block_of(file: File) -> dict[str, Any] | None:
    """The ledger's block in a file, if it has one that names its ledger."""
    block = file["extra"].get("ledger")
    return block if isinstance(block, dict) and isinstance(block.get("id"), str) else None


def sealed(file: File) -> bool:
    """Whether the file is as a ledger wrote it: it has a block, and the checksum fits."""
    block = block_of(file)
    return block is not None and block.get("checksum") == checksum(file)


def edits(found: File, was: File, *, driven: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """What another program made of `was`: unknown keys of `extra` that it added or set, and what it did to the rest.

    The second names keys of `extra` as `extra.<key>`; a key that it took away is there as null.
    """
    ours = OWNED if driven else {"ledger"}
    before, after = was["extra"], found["extra"]
    added = {k: v for k, v in after.items() if k not in ours and _differ(v, before.get(k, ...))}
    changed = {f"extra.{k}": after.get(k) for k in sorted(ours) if _differ(after.get(k, ...), before.get(k, ...))}
    tops = sorted((set(found) | set(was)) - {"extra"})
    changed |= {k: found.get(k) for k in tops if _differ(found.get(k, ...), was.get(k, ...))}
    return added, changed


def _differ(a: Any, b: Any) -> bool:
    return (a is ...) != (b is ...) or (a is not ... and compact(a) != compact(b))


def fingerprint(value: Any) -> bytes:
    """Bytes that are equal where `compact` is, made faster. Not to be kept: another version may make others."""
    import orjson

    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return compact(value).encode()


def compact(value: Any) -> str:
    """`value` as JSON text in which equal values are equal: 1, 1.0 and true are not the same bytes."""
    return _COMPACT.encode(value)
