"""Dispatch: open a run and make its first machine in the foreground, or reconnect to the one it has.

Exit statuses as existing callers know them: 0 a machine is known, 2 refused, 75 still waiting (run it again).
"""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ledger import secrets
from ledger.clouds.values import Seen
from ledger.decide.teardown import current
from ledger.decide.view import micros
from ledger.edges import Edges
from ledger.errors import Conflict, LedgerError
from ledger.events import Draft, run_stream
from ledger.policy import MODELS, RUNPOD
from ledger.poller import host_keys
from ledger.poller.observe import Observation, read_details, read_lists
from ledger.poller.tick import Tick, drive, mind_the_clock, mind_the_markers, policy_now, record
from ledger.state.model import Machine, Run, State

DISPATCHED, REFUSED, WAITING = 0, 2, 75
# What a person may ask for; a re-run that asks for other values keeps the pinned ones and says which it ignored.
PINNED = (
    "workload_cmd",
    "hydra_args",
    "gpus",
    "gpu_type",
    "intent",
    "env_pins",
    "expected_artifacts",
    "time_budget_hours",
    "repo_branch",
    "boot_disk_gb",
    "min_ram_gb",
    "zone",
)


@dataclass(frozen=True, slots=True)
class Request:
    """What a person asks for. `backend` is gcp, runpod or auto; what is None was not asked for."""

    issue: int
    lane: str | None = None
    backend: str | None = None
    provisioning_model: str | None = None
    allow_paid_fallback: bool | None = None
    secrets: tuple[str, ...] = ()
    asked: Mapping[str, Any] = field(default_factory=dict)  # of PINNED


@dataclass(slots=True)
class Result:
    """How a dispatch ended: its exit status, the run's state, and what to tell."""

    status: int
    run: Run
    reason: str
    machine: Machine | None = None
    reconnected: bool = False
    ignored: tuple[str, ...] = ()


def dispatch(edges: Edges, request: Request) -> Result:
    """Open or reconnect. Raises LedgerError for what cannot be asked."""
    stream = run_stream(request.issue, request.lane)
    asked = edges.log.state(stream)
    assert isinstance(asked, Run)
    if asked.unreadable:
        raise LedgerError(f"{stream} holds an event that this version does not know; install a newer ledger")
    if asked.open and not asked.driven:
        raise LedgerError(f"{stream} is on {asked.backend}, which the ledger does not drive")
    if not asked.open:
        if asked.version and asked.active:
            asked = _again(edges, stream)
        if not asked.open:
            _open(edges, request, stream)
        return _drive(edges, stream, reconnect=False)
    ignored = _ignored(asked, request)
    if ignored:
        edges.say(f"{stream} is open; its pinned values stay, ignored: {', '.join(ignored)}")
    if _is_over(asked):
        asked = _again(edges, stream)
        if asked.open:
            return _result(edges, asked, reconnect=False)
        _open(edges, request, stream)
        return _drive(edges, stream, reconnect=False)
    result = _drive(edges, stream, reconnect=True)
    result.ignored = ignored
    return result


def start_rung(request: Request, default_model: str, ladder: tuple[str, ...]) -> str:
    """The rung that a request starts on. Raises LedgerError for a model or backend that there is not."""
    if request.backend in (None, "auto"):
        return ladder[0]
    if request.backend == "runpod":
        return RUNPOD
    if request.backend != "gcp":
        raise LedgerError(f"backend {request.backend!r} is not driven; use gcp, runpod or auto")
    model = request.provisioning_model or default_model
    if model not in MODELS:
        raise LedgerError(f"provisioning model {model!r} is not one of {', '.join(MODELS)}")
    return f"gcp:{model}"


def _open(edges: Edges, request: Request, stream: str) -> None:
    policy = policy_now(edges)
    asked = dict(request.asked)
    held = secrets.find({"workload_cmd": asked.get("workload_cmd") or "", **(asked.get("env_pins") or {})})
    held += secrets.find({f"hydra_args[{i}]": a for i, a in enumerate(asked.get("hydra_args") or [])})
    if held:
        raise LedgerError(
            f"{stream}: a secret ({held[0].kind} in {held[0].where}) would enter the log; name its variable"
            " under `secrets` in ledger.toml, and the launch reads it from the environment"
        )
    if asked.get("workload_cmd") and asked.get("hydra_args"):
        raise LedgerError("give a workload command or hydra arguments, not both")
    paid = request.allow_paid_fallback if request.allow_paid_fallback is not None else policy.allow_paid_fallback
    payload = {
        **{k: v for k, v in asked.items() if k in PINNED and v is not None},
        "issue": request.issue,
        "lane": request.lane,
        "allow_paid_fallback": paid,
        "ladder": list(policy.ladder),
        "rung": start_rung(request, policy.default_provisioning_model, policy.ladder),
        "owner": _owner(),
        "secrets": list(request.secrets),
    }
    payload.setdefault("expected_artifacts", {})
    while True:
        run = edges.log.run(stream)
        if run.open:
            return  # another dispatch opened it meanwhile; this one goes on with it
        try:
            edges.log.append(stream, run.version, [Draft("RunOpened", payload, edges.source.now(), actor="user")])
            return
        except Conflict:
            continue


def _owner() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None


def _ignored(run: Run, request: Request) -> tuple[str, ...]:
    pinned = run.opened or ((run.imported or {}).get("extra") or {})
    names = [k for k in PINNED if request.asked.get(k) not in (None, "", [], {}) and request.asked[k] != pinned.get(k)]
    return tuple(names)


def _is_over(run: Run) -> bool:
    """Whether what a re-run would reconnect to has ended: its workload, or its launch."""
    machine = current(run)
    over = machine is not None and (machine.ended_at is not None or machine.launch_failed_at is not None)
    return over or run.cancel_at is not None


def frame_of(edges: Edges, run: Run, seconds: float | None = None) -> Tick:
    """The frame of a command on one run: what the accounts of its open machines and intents say now."""
    policy = policy_now(edges)
    ends_at = edges.source.steady() + (policy.tick_deadline_seconds if seconds is None else seconds)
    frame = Tick(edges, policy, ends_at, Observation(at=edges.source.now()))
    accounts = {(m.backend, m.account) for m in run.machines.values() if m.open}
    accounts |= {(i.backend, i.account) for i in run.intents.values() if i.open}
    if accounts:
        frame.observation = read_lists(edges, policy.tick_deadline_seconds / 2, accounts)
        host_keys.learn(edges, [run])
        read_details(edges, frame.observation, [run], policy.tick_deadline_seconds / 2)
    mind_the_clock(frame)
    mind_the_markers(frame)
    return frame


def _again(edges: Edges, stream: str) -> Run:
    """A run that has ended and still holds a machine: ask for its end now, and look once whether it is gone."""
    for _ in range(2):
        run = edges.log.run(stream)
        frame = frame_of(edges, run)
        record(frame, [run])
        drive(frame, stream, redispatch=True)
        run = edges.log.run(stream)
        if not run.active:
            break
    project(edges, stream)
    return run


def _drive(edges: Edges, stream: str, *, reconnect: bool) -> Result:
    run = edges.log.run(stream)
    frame = frame_of(edges, run, _foreground_seconds(edges))
    frame.call_cap = edges.policy.create_timeout_seconds
    record(frame, [run])
    found = _reconnect(frame, stream) if reconnect else False
    drive(frame, stream, call_deadline=micros(edges.policy.create_timeout_seconds))
    project(edges, stream)
    return _result(edges, edges.log.run(stream), reconnect=found)


def _foreground_seconds(edges: Edges) -> float:
    """Every rung and zone may take its cap."""
    zones = max(len(edges.rent.zones), 1)
    return edges.policy.create_timeout_seconds * (len(edges.policy.ladder) + 1) * zones + 60.0


def _reconnect(frame: Tick, stream: str) -> bool:
    """What the live machine says, folded over what was pinned. An unreadable describe changes nothing."""
    run = frame.edges.log.run(stream)
    machine = current(run) or run.handle_machine()
    if machine is None or not machine.open or machine.left_at is not None or machine.teardown is not None:
        return False
    cloud = frame.edges.cloud(machine.backend, machine.account)
    seen = frame.observation.described.get(machine.id)
    if not isinstance(seen, Seen) and cloud is not None:
        answer = cloud.describe(machine.id, timeout=20.0)
        seen = answer if isinstance(answer, Seen) else None
    if not isinstance(seen, Seen):
        return False
    frame.observation.seen[machine.id] = seen
    payload = {
        "status": seen.status,
        "zone": seen.zone,
        "provisioning_model": seen.provisioning_model,
        "labels": dict(seen.labels),
        "created_at": seen.created_at,
        "ports": seen.ports,
    }
    draft = Draft(
        "ReconnectObserved",
        payload,
        frame.edges.source.now(),
        actor="user",
        attempt=machine.attempt,
        machine=machine.id,
    )

    def news(state: State) -> list[Draft]:
        assert isinstance(state, Run)
        return [draft] if machine.id in state.machines else []

    frame.edges.log.append_facts(stream, news)
    return True


def project(edges: Edges, stream: str) -> None:
    if edges.sidecars is not None:
        edges.sidecars.project(edges.log, streams=[stream])


def _result(edges: Edges, run: Run, *, reconnect: bool) -> Result:
    machine = current(run)
    if run.open and machine is not None and machine.open and run.cancel_at is None and not _is_over(run):
        timed_out = any(
            i.stage == "provisioned" and i.holder == edges.holder and _timed_out(run, i.attempt, i.attempt_try, edges)
            for i in run.tries()[-1:]
        )
        if timed_out:
            return Result(WAITING, run, "gcloud_create_timeout_still_provisioning", machine)
        return Result(DISPATCHED, run, "reconnected" if reconnect else "dispatched", machine, reconnect)
    if not run.open:
        return Result(REFUSED, run, run.reason or "closed")
    return Result(WAITING, run, "gcloud_create_timeout_still_provisioning", machine)


def _timed_out(run: Run, attempt: str, attempt_try: int, edges: Edges) -> bool:
    """Whether this process's own create did not answer, though its machine has been found by then."""
    return any(
        event.type == "ProvisionUnresolved" and event.attempt == attempt and event.data()["try"] == attempt_try
        for event in edges.log.read(run.stream)
    )
