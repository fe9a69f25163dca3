"""Where a workload's files lie on its machine: one place for the launch, the probe and the sidecar to agree on."""

from __future__ import annotations


def log_path(issue: int) -> str:
    """Where a workload of this issue logs."""
    return f"/workspace/logs/issue-{issue}.log"


def pid_file(issue: int) -> str:
    """Where the launch writes the workload's pid."""
    return f"/workspace/logs/issue-{issue}.pid"


def scratch_dir(backend: str, issue: int) -> str:
    """The folder in which a workload of this issue works."""
    return f"/workspace/eps-issue-{issue}" if backend == "gcp" else "/workspace"
