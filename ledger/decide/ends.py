"""How a run ends: what its log says of its workload, and the outcome that follows."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.state.model import Machine, Run

DONE_PHASES = {"done": "done", "finalize_failed_artifacts_ok": "finalize_failed"}
NO_COMPUTE = "no_compute_available"


@dataclass(frozen=True, slots=True)
class End:
    """The outcome of a run whose end is decided; it is closed once nothing of it is open."""

    outcome: str
    reason: str
    failure_class: str | None
    evidence: tuple[int, ...]


def workload_end(machine: Machine) -> str | None:
    """How its workload ended by the log's readings: done or finalize_failed (GCP); None: it has not, or not well."""
    return DONE_PHASES.get(machine.phase or "") if machine.backend == "gcp" else None


def is_lost(machine: Machine) -> bool:
    """Gone or ended by another's hand after its workload had run, or while nobody looked; neither done nor failed."""
    if machine.ended_at is not None or machine.left_at is not None or workload_end(machine) is not None:
        return False
    if machine.open and not machine.ended_status:
        return False
    ran = machine.launched_at is not None or bool(machine.workload_started)
    unwatched = not machine.open and machine.backend == "gcp" and not machine.observed
    return ran or unwatched


def end_of(run: Run, here: Machine | None) -> End | None:
    """The end that is decided for the run, whose machine in hand is `here`; None while it goes on."""
    if run.cancel_at is not None:
        return End("cancelled", "cancelled", None, (run.cancel_pos,))
    if here is not None:
        return _of_machine(here)
    failover = run.failover
    if failover is not None and failover.next_rung is None and not _tried_since(run, failover.position):
        reason = failover.reason
        if reason in ("queue_timeout", "queue_vanish", "taken", "no_port"):
            reason = NO_COMPUTE
        if reason == "lost":
            reason = "machine_lost"
        code = "code" if reason == "workload_failed" else "infra"
        return End("failed", reason, code, (failover.position,))
    return None


def _tried_since(run: Run, position: int) -> bool:
    return any(intent.position > position for intent in run.tries())


def _of_machine(machine: Machine) -> End | None:
    if machine.ended_at is not None:
        evidence = (machine.ended_pos,)
        if machine.outcome == "done":
            return End("finished", "workload_done", None, evidence)
        if machine.outcome == "finalize_failed":
            return End("finished", "workload_done_finalize_failed", None, evidence)
        return End("failed", "workload_failed", "code", evidence)
    if machine.launch_failed_at is not None and machine.launched_at is None:
        return End("failed", "launch_unconfirmed", "infra", (machine.launch_failed_pos,))
    if is_lost(machine):
        return End("failed", "machine_lost", "infra", (machine.gone_pos or machine.status_pos,))
    if not machine.open and machine.teardown_reason == "by_hand":
        return End("failed", "ended_by_hand", "infra", (machine.gone_pos,))
    return None
