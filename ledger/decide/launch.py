"""The launch: asking for it, believing it, giving it up.

Busy GPUs alone confirm nothing; a failed probe denies nothing.
"""

from __future__ import annotations

from ledger.clouds.values import Probe, Unknown
from ledger.decide.ends import workload_end
from ledger.decide.view import Launch, Step, View, seconds
from ledger.events import Draft
from ledger.policy import Policy
from ledger.state.imported import WORKLOAD_PHASES
from ledger.state.model import Machine, Run
from ledger.state.places import log_path, pid_file

FAILED_PHASES = ("failed", "wedged")


def has_command(run: Run) -> bool:
    """Whether there is something to launch: else the run is provision-only, confirmed by a person."""
    pins = run.opened or ((run.imported or {}).get("extra") or {})
    return bool(pins.get("workload_cmd") or pins.get("hydra_args"))


def launch(run: Run, machine: Machine, view: View, policy: Policy) -> Step | None:
    """The next step of the launch on the machine in hand, if one is due."""
    if not machine.open or machine.ended_at is not None:
        return None
    for rule in (_ended, _confirmed, _bound, _send):
        step = rule(run, machine, view, policy)
        if step is not None:
            return step
    return None


def _confirmation(run: Run, machine: Machine, view: View, payload: dict[str, object]) -> tuple[Draft, ...]:
    """LaunchConfirmed, and the Repointed that it allows: one append, both or neither."""
    failover = run.failover.id if run.failover else None
    drafts = [
        Draft(
            "LaunchConfirmed",
            payload,
            view.now,
            attempt=machine.attempt,
            machine=machine.id,
            correlation_id=failover,
        )
    ]
    if run.handle != machine.id:
        drafts.append(
            Draft(
                "Repointed",
                {"from": run.handle, "to": machine.id},
                view.now,
                attempt=machine.attempt,
                machine=machine.id,
                correlation_id=failover,
            )
        )
    return tuple(drafts)


def _evidence_of_life(machine: Machine, view: View) -> dict[str, object] | None:
    """The payload of a LaunchConfirmed: a pid and a byte of log, or the guest's word."""
    if machine.backend == "gcp" and (machine.workload_started or machine.phase in WORKLOAD_PHASES):
        return {"source": "guest"}
    probe = view.probes.get(machine.id)
    if isinstance(probe, Probe) and probe.pid_alive and probe.log_bytes:
        return {
            "source": "probe",
            "pid": probe.pid,
            "log_bytes": probe.log_bytes,
            "gpu_util": probe.gpu_util,
        }
    return None


def _confirmed(run: Run, machine: Machine, view: View, policy: Policy) -> Step | None:  # noqa: ARG001
    if machine.launched_at is not None and run.handle == machine.id:
        return None
    if machine.launched_at is not None and run.failover is None:
        return None
    if machine.teardown is not None or machine.id not in view.seen:
        return None
    payload = _evidence_of_life(machine, view)
    if payload is None:
        return None
    return Step(_confirmation(run, machine, view, payload), why="launch confirmed")


def _ended(run: Run, machine: Machine, view: View, policy: Policy) -> Step | None:
    """The workload has ended: done by the guest's word or the log's; a pid that was there and is gone is a crash."""
    if machine.id not in view.seen:
        return None
    outcome = workload_end(machine)
    evidence = [machine.phase_pos] if outcome else []
    before: tuple[Draft, ...] = ()
    code: int | None = None
    probe = view.probes.get(machine.id)
    if outcome is None and machine.backend == "runpod" and isinstance(probe, Probe):
        if probe.pid_alive is not False or not _was_there(machine, probe, view, policy):
            return None
        outcome = "done" if probe.done else "crashed"
        evidence, code = [machine.observed_pos], probe.exit
        ran: dict[str, object] | None = {"source": "probe", "pid": probe.pid, "log_bytes": probe.log_bytes}
        if not probe.log_bytes:
            ran = None
    elif outcome is not None:
        ran = {"source": "guest"}
    else:
        return None
    if ran is not None and (machine.launched_at is None or run.handle != machine.id) and machine.teardown is None:
        before = _confirmation(run, machine, view, ran)  # it ran and ended between two looks
    ended = Draft(
        "WorkloadEnded",
        {"outcome": outcome, "exit": code, "evidence": [p for p in evidence if p]},
        view.now,
        attempt=machine.attempt,
        machine=machine.id,
    )
    return Step((*before, ended), why=f"workload {outcome}")


def _was_there(machine: Machine, probe: Probe, view: View, policy: Policy) -> bool:
    """Whether there was a process: its pid is there to read, or it was known and nothing of it shows by the bound."""
    if probe.pid is not None:
        return True
    known = machine.pid is not None and machine.launched_at is not None and not probe.log_bytes
    return known and machine.gpus == "idle" and _age(machine, view) >= policy.launch_confirm_seconds


def _age(machine: Machine, view: View) -> float:
    began = machine.bound_began if machine.bound_began is not None else machine.known_at
    return seconds(view.now - began)


def _bound(run: Run, machine: Machine, view: View, policy: Policy) -> Step | None:  # noqa: ARG001
    """The bound passes only at a tick that read the machine's cloud well and tried the probe."""
    if machine.launched_at is not None or machine.bound_began is None or machine.launch_failed_at is not None:
        return None
    if machine.teardown is not None or machine.ended_status or machine.phase in FAILED_PHASES:
        return None  # the guest's own word says more than a bound
    seen = view.seen.get(machine.id)
    probe = view.probes.get(machine.id)
    if seen is None or probe is None:
        return None
    age = _age(machine, view)
    bound = policy.launch_confirm_seconds
    if isinstance(probe, Unknown):
        if machine.gpus == "busy":
            return None  # held, and reported
        bound = bound if machine.gpus == "idle" else 2 * bound
        told = f"unknown: {probe.error}"
    else:
        if machine.gpus == "busy" and not probe.pid_alive:
            return None  # something computes, and it is not known what
        told = "not running" if not probe.pid_alive else "no log"
    if age < bound:
        return None
    payload = {
        "reason": "launch_unconfirmed",
        "probe": told,
        "evidence": sorted({p for p in (machine.bound_pos, machine.observed_pos) if p}),
    }
    draft = Draft("LaunchFailed", payload, view.now, attempt=machine.attempt, machine=machine.id)
    return Step((draft,), why="launch unconfirmed")


def _send(run: Run, machine: Machine, view: View, policy: Policy) -> Step | None:  # noqa: ARG001
    """On a pod: ask for the launch, again where the outcome was unknown past its deadline. Idempotent there."""
    if machine.backend != "runpod" or machine.launched_at is not None or machine.teardown is not None:
        return None
    if machine.launch_failed_at is not None or not has_command(run) or not run.relaunchable or not view.may_call:
        return None
    if machine.claim == "import":
        return None  # its own programs launch there; ours would be a second process
    seen = view.seen.get(machine.id)
    if seen is None or seen.status != "RUNNING" or not seen.ports:
        return None
    probe = view.probes.get(machine.id)
    if isinstance(probe, Probe) and probe.pid_alive:
        return None  # it runs; its log has yet to say so
    if machine.launch is not None and view.now < machine.launch.deadline:
        return None
    payload = {
        "method": "ssh",
        "log_path": log_path(run.issue),
        "pid_file": pid_file(run.issue),
        "holder": view.holder,
        "call_before": view.now + view.call_before,
        "deadline": view.now + view.call_deadline,
    }
    draft = Draft(
        "LaunchRequested",
        payload,
        view.now,
        attempt=machine.attempt,
        machine=machine.id,
        correlation_id=run.failover.id if run.failover else None,
    )
    return Step((draft,), Launch(machine.id), why="launch")
