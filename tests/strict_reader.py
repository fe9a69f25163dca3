"""A reader as strict as the strictest program that reads sidecars: what it accepts, they all do.

Written from the description of the files, not from the code that makes them.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

NUMBER = (int, float)
COMMON: dict[str, Any] = {
    "issue": int,
    "intent": str,
    "expected_artifacts": dict,
    "workload_cmd": str,
    "hydra_args": list,
    "gpus": (int, type(None)),
    "time_budget_hours": (*NUMBER, type(None)),
    "repo_branch": str,
    "boot_disk_gb": int,
    "min_ram_gb": int,
    "env_pins": dict,
}
ALWAYS = ("issue", "expected_artifacts", "workload_cmd", "hydra_args", "gpus", "time_budget_hours")
GCP: dict[str, Any] = {
    "project": str,
    "gcloud_config": str,
    "zone": str,
    "instance_name": str,
    "attempt_id": str,
    "provisioning_model": str,
    "machine_type": str,
    "gpu_count": int,
    "reconnected": bool,
    "status_at_reconnect": str,
    "gcp_ladder_rung": str,
    "gcp_launched_ts": float,
    "requested_gpus": int,
    "realized_gpu_count": int,
    "per_zone_attempts": list,
    "last_phase": str,
    "last_phase_change_ts": float,
    "last_phase_incarnation": str,
}
RUNPOD: dict[str, Any] = {
    "pod_id": str,
    "runpod_attempt_id": str,
    "pid_file": str,
    "workload_executed": bool,
    "workload_pid": int,
    "launcher_path": str,
    "synced_sha": str,
    "workload_start_error": str,
    "runpod_noport_first_seen_ts": float,
}
STATES = ("queued", "provisioning", "launching", "running", "failing_over", "closing", "unknown", "not_driven")
MISS = {"zone", "returncode", "matched_pattern", "elapsed_s", "stderr_tail"}


@dataclass(frozen=True)
class RunHandle:
    """As the old system builds its object: an eighth key, or one too few, is a TypeError."""

    backend: str
    cluster: str | None
    job_id: str
    pod_name: str
    scratch_dir: str
    log_path: str
    extra: dict[str, Any]


class Wrong(AssertionError):
    """The file is not as its readers expect."""


def hold(condition: object, what: str) -> None:
    if not condition:
        raise Wrong(what)


def read(name: str, text: str, *, imported: bool = False) -> RunHandle:
    """The handle in a sidecar that the ledger wrote. `imported`: keys that an old file lacks may be missing."""
    value = json.loads(text)
    hold(text == json.dumps(value, sort_keys=True, indent=2), "sorted keys, indent 2, no newline at the end")
    handle = RunHandle(**value)
    for key in ("backend", "job_id", "pod_name", "scratch_dir", "log_path"):
        hold(type(value[key]) is str, f"{key} is text")
    hold(handle.cluster is None or type(handle.cluster) is str, "cluster is text or null")
    match = re.fullmatch(r"issue-(\d+)(?:-([a-z0-9-]{1,43}))?-handle\.json", name)
    hold(match, f"{name} is a sidecar's name")
    assert match is not None
    hold(handle.extra["issue"] == int(match[1]), "the issue is that of the name")
    _block(value)
    if handle.backend not in ("gcp", "runpod"):
        hold(handle.extra["ledger"]["state"] == "not_driven", "another backend is not driven")
        return handle
    hold(handle.cluster is None, "cluster is null for gcp and runpod")
    hold(handle.log_path == f"/workspace/logs/issue-{match[1]}.log", "the log is where it always is")
    _types(handle)
    if not imported:
        for key in ALWAYS:
            hold(key in handle.extra, f"{key} is always there")
    hold(not (handle.extra.get("workload_cmd") and handle.extra.get("hydra_args")), "a command or hydra arguments")
    _artifacts(handle)
    if handle.backend == "gcp":
        _gcp(handle, match[1], imported)
    else:
        _runpod(handle, match[1], imported)
    return handle


def _types(handle: RunHandle) -> None:
    mine, other = (GCP, RUNPOD) if handle.backend == "gcp" else (RUNPOD, GCP)
    for key, value in handle.extra.items():
        hold(key not in other, f"{key} is another cloud's")
        wanted = COMMON.get(key) or mine.get(key)
        if wanted is None:
            continue
        hold(isinstance(value, wanted), f"{key} is {wanted}, not {value!r}")
        hold(isinstance(value, bool) is (wanted is bool), f"{key} is no flag")
    for key in ("boot_disk_gb", "min_ram_gb", "env_pins", "intent", "repo_branch", "per_zone_attempts"):
        hold(key not in handle.extra or handle.extra[key], f"{key} is left out when it is empty")
    hold(all(type(v) is str for v in handle.extra.get("env_pins", {}).values()), "env_pins are texts")
    for miss in handle.extra.get("per_zone_attempts", []):
        hold(set(miss) == MISS, "a missed zone has its five keys")


def _artifacts(handle: RunHandle) -> None:
    artifacts = handle.extra.get("expected_artifacts")
    if artifacts is None:
        return
    hold(artifacts["issue"] == handle.extra["issue"], "the artifacts are this issue's")
    attempt = handle.extra.get("attempt_id") or handle.extra.get("runpod_attempt_id")
    issue = handle.extra["issue"]
    wanted = f"{handle.scratch_dir}/eval_results/issue_{issue}/{attempt}/.completion-sentinel.json"
    hold(artifacts["sentinel_path"] == wanted, "the sentinel is this attempt's")


def _gcp(handle: RunHandle, issue: str, imported: bool) -> None:
    extra = handle.extra
    hold(handle.scratch_dir == f"/workspace/eps-issue-{issue}", "an instance's scratch")
    hold(handle.job_id == "" or handle.job_id.isdigit(), "job_id is the numeric id, or empty")
    if imported and "instance_name" not in extra:
        return
    hold(extra["instance_name"] == handle.pod_name, "instance_name is pod_name")
    hold(re.fullmatch(r"att-\d{8}-\d{6}(-[a-z0-9-]+)?", extra["attempt_id"]), f"attempt_id {extra['attempt_id']}")
    if "provisioning_model" in extra or not imported:
        hold(extra["provisioning_model"] in ("STANDARD", "SPOT", "FLEX_START"), "a provisioning model")
    clocks = [key for key in GCP if key.startswith("last_phase")]
    present = [key for key in clocks if key in extra]
    hold(present in ([], clocks), "the clock's three keys come together")
    if present:
        fallback = f"{extra['attempt_id']}:{extra.get('gcp_launched_ts')}"
        hold(extra["last_phase_incarnation"] == (handle.job_id or fallback), "the clock is this incarnation's")
    hold("status_at_reconnect" not in extra or extra["reconnected"], "a status at reconnect without a reconnect")


def _runpod(handle: RunHandle, issue: str, imported: bool) -> None:
    extra = handle.extra
    hold(handle.scratch_dir == "/workspace", "a pod's scratch")
    if imported and "runpod_attempt_id" not in extra:
        return
    hold(handle.job_id == "", "job_id is empty on RunPod")
    hold(re.fullmatch(r"rp-\d{8}T\d{6}Z-[0-9a-f]{4}", extra["runpod_attempt_id"]), "runpod_attempt_id")
    hold(extra["pid_file"] == f"/workspace/logs/issue-{issue}.pid", "the pid file is where it always is")
    hold(type(extra["workload_executed"]) is bool, "workload_executed is always told")
    hold("workload_pid" not in extra or extra["workload_executed"], "a pid without a workload")
    hold("workload_start_error" not in extra or not extra["workload_executed"], "an error beside a running workload")


def _block(value: dict[str, Any]) -> None:
    block = value["extra"]["ledger"]
    wanted = {"id", "stream", "version", "position", "state", "checksum"}
    hold(set(block) - {"next"} == wanted, f"the ledger's block has its keys, not {sorted(block)}")
    hold(block["state"] in STATES, f"a state of the list, not {block['state']}")
    hold("next" not in block or block["state"] == "failing_over", "next only while a failover is under way")
    hold(type(block["version"]) is int and type(block["position"]) is int, "version and position are numbers")
    bare = {**value, "extra": {**value["extra"], "ledger": {k: v for k, v in block.items() if k != "checksum"}}}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"))
    hold(hashlib.sha256(text.encode()).hexdigest() == block["checksum"], "the checksum fits")
