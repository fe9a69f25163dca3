"""A run's pins as what the clouds are asked for. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from ledger.clouds.values import CreateSpec, LaunchSpec
from ledger.edges import Kind
from ledger.events import Marker
from ledger.policy import Policy
from ledger.settings import HYDRA_COMMAND
from ledger.state.model import Intent, Machine, Run
from ledger.state.places import log_path, pid_file


def pins(run: Run) -> Mapping[str, Any]:
    """What was pinned for all attempts: at the dispatch, or in the file that the run was imported from."""
    if run.opened:
        return run.opened
    extra = (run.imported or {}).get("extra")
    return extra if isinstance(extra, dict) else {}


def command_of(run: Run, hydra_command: str = HYDRA_COMMAND) -> str:
    """The command line of the run's workload; "" for a provision-only run. `hydra_command` takes hydra arguments."""
    pinned = pins(run)
    command = pinned.get("workload_cmd")
    if isinstance(command, str) and command:
        return command
    arguments = pinned.get("hydra_args")
    if isinstance(arguments, list) and arguments:
        return " ".join([hydra_command, *(shlex.quote(str(argument)) for argument in arguments)])
    return ""


def launch_spec(run: Run, machine: Machine, hydra_command: str = HYDRA_COMMAND) -> LaunchSpec:
    """The launch and the probe of this run on this machine."""
    return _launch(run, machine.attempt or "", hydra_command)


def _launch(run: Run, attempt: str, hydra_command: str) -> LaunchSpec:
    pinned = pins(run)
    env = pinned.get("env_pins")
    branch = pinned.get("repo_branch")
    named = pinned.get("secrets")
    return LaunchSpec(
        run=run.stream,
        attempt=attempt,
        command=command_of(run, hydra_command),
        log_path=log_path(run.issue),
        pid_file=pid_file(run.issue),
        env={str(k): str(v) for k, v in env.items()} if isinstance(env, dict) else {},
        branch=branch if isinstance(branch, str) and branch else None,
        secrets=tuple(name for name in named if isinstance(name, str)) if isinstance(named, list) else (),
    )


def create_spec(
    run: Run,
    intent: Intent,
    ledger_id: str,
    policy: Policy,
    kinds: Mapping[str, Kind],
    hydra_command: str = HYDRA_COMMAND,
) -> CreateSpec:
    """The create of this intent."""
    pinned = pins(run)
    command = command_of(run, hydra_command)
    name = pinned.get("intent")
    kind = kinds.get(name, Kind()) if isinstance(name, str) else Kind()
    gpus = pinned.get("gpus")
    gpu_type = pinned.get("gpu_type")
    env = pinned.get("env_pins")
    return CreateSpec(
        name=intent.name,
        rung=intent.rung,
        zone=intent.zone,
        provisioning_model=intent.model,
        gpu_type=gpu_type if isinstance(gpu_type, str) else kind.gpu_type,
        gpus=gpus if isinstance(gpus, int) else kind.gpus,
        marker=str(Marker(ledger_id, run.stream, intent.attempt, intent.attempt_try)),
        request_id=intent.request_id,
        intent=name if isinstance(name, str) else None,
        env={str(k): str(v) for k, v in env.items()} if isinstance(env, dict) else {},
        workload=command or None,
        launch=_launch(run, intent.attempt, hydra_command) if command else None,
        fence_hours=policy.fence_hours,
    )
