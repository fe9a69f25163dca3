"""What tests build logs with: a source whose clock they set, a ledger on a temporary file, a builder an event.

Times are given as seconds after `T0`; costs are dollars per hour.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ledger.canonical import digest
from ledger.events import Draft, Event, account_stream, run_stream
from ledger.log.open import create_log
from ledger.log.store import Log
from ledger.moments import MICROS, parse_time
from ledger.policy import Policy

T0 = parse_time("2026-07-18T00:00:00Z")
RUN = run_stream(1417)
PROJECT = "eps-project"
POD_ACCOUNT = "team"
A, B, C = (f"0198-attempt-{letter}" for letter in "abc")
VM = f"gcp:{PROJECT}/us-central1-a/4200000000000000001"
POD = "runpod:pod-a"
OTHER_POD = "runpod:pod-b"
LADDER = ["gcp:FLEX_START", "runpod", "gcp:STANDARD"]
GCP = account_stream("gcp", PROJECT)
PODS = account_stream("runpod", POD_ACCOUNT)


def us(seconds: float) -> int:
    """Microseconds UTC of `seconds` after T0."""
    return T0 + round(seconds * MICROS)


class FakeSource:
    """A source whose clock stands still until it is set, and whose chance is the same every time."""

    def __init__(self, seed: int = 0) -> None:
        self.micros = T0
        self._random = random.Random(seed)

    def now(self) -> int:
        return self.micros

    def steady(self) -> float:
        return self.micros / MICROS

    def random_bytes(self, n: int) -> bytes:
        return self._random.randbytes(n)


@contextmanager
def ledger_at(path: Path, policy: Policy | None = None) -> Iterator[Log]:
    """A new ledger on a SQLite file, its clock at T0; its first event (position 1) is LedgerCreated."""
    log = create_log(f"sqlite:///{path}", FakeSource(), policy or Policy(), "test")
    try:
        yield log
    finally:
        log.connection.close()


def clock(log: Log) -> FakeSource:
    """The fake source of a log that `ledger_at` made."""
    assert isinstance(log.source, FakeSource)
    return log.source


Step = Draft | tuple[str, Draft]


def write(log: Log, steps: Iterable[Step]) -> list[Event]:
    """Append each step by itself, recorded when it occurred; a draft alone goes to `RUN`."""
    stored: list[Event] = []
    for step in steps:
        stream, draft = step if isinstance(step, tuple) else (RUN, step)
        clock(log).micros = max(clock(log).micros, draft.occurred_at)
        stored += log.append(stream, log.state(stream).version, [draft])
    return stored


def make(
    type_: str,
    at: float,
    payload: dict[str, Any],
    attempt: str | None = None,
    machine: str | None = None,
    actor: str = "poller",
    failover: str | None = None,
) -> Draft:
    """Any event."""
    return Draft(type_, payload, us(at), actor, attempt, machine, failover)


def opened(at: float = 0, issue: int = 1417, **more: Any) -> Draft:
    payload = {"issue": issue, "workload_cmd": "train", "ladder": LADDER, "rung": LADDER[0], **more}
    return make("RunOpened", at, payload, actor="user")


def imported(
    at: float, file: str, issue: int = 1417, attempt: str = A, ladder: Iterable[str] = LADDER, machine: str | None = POD
) -> Draft:
    payload = {
        "issue": issue,
        "file": file,
        "path": f"issue-{issue}-handle.json",
        "mtime": us(0),
        "sha256": digest(file),
        "relaunchable": True,
        "ladder": list(ladder),
    }
    return make("HandleImported", at, payload, attempt, machine, actor="import")


def requested(at: float, attempt: str = A, rung: str = "runpod", *, number: int = 1, **more: Any) -> Draft:
    gcp = rung.startswith("gcp:")
    payload = {
        "backend": "gcp" if gcp else "runpod",
        "rung": rung,
        "name": "eps-issue-1417" if gcp else "pod-1417",
        "account": PROJECT if gcp else POD_ACCOUNT,
        "zone": "us-central1-a" if gcp else None,
        "provisioning_model": rung.removeprefix("gcp:") if gcp else None,
        "try": number,
        "request_id": f"request-{attempt}-{number}",
        **lease(at),
        **more,
    }
    return make("ProvisionRequested", at, payload, attempt)


def lease(at: float) -> dict[str, Any]:
    return {"holder": "poller-1", "call_before": us(at + 20), "deadline": us(at + 100)}


def refused(at: float, attempt: str = A, cls: str = "capacity", number: int = 1) -> Draft:
    return make("ProvisionRefused", at, {"class": cls, "message": "no", "try": number}, attempt)


def unresolved(at: float, attempt: str = A) -> Draft:
    return make("ProvisionUnresolved", at, {"error_class": "timeout", "message": "no answer"}, attempt)


def provisioned(at: float, machine: str = POD, attempt: str = A, **more: Any) -> Draft:
    gcp = machine.startswith("gcp:")
    payload = {
        "backend": "gcp" if gcp else "runpod",
        "name": "eps-issue-1417" if gcp else "pod-1417",
        "account": PROJECT if gcp else POD_ACCOUNT,
        "zone": "us-central1-a" if gcp else None,
        "provisioning_model": "FLEX_START" if gcp else None,
        "status": "PENDING" if gcp else None,
        "created_at": us(at),
        "cost_per_hour": 4.0,
        **more,
    }
    return make("Provisioned", at, payload, attempt, machine)


def observed(at: float, machine: str = POD, **more: Any) -> Draft:
    return make("MachineObserved", at, {"status": "RUNNING", "source": "api", **more}, machine=machine)


def absent(at: float, machine: str = VM, scope: str = "both") -> Draft:
    return make("AbsenceObserved", at, {"scope": scope, "account": PROJECT}, machine=machine)


def reconnected(at: float, machine: str = VM, **more: Any) -> Draft:
    return make("ReconnectObserved", at, {"status": "RUNNING", **more}, machine=machine, actor="user")


def launch_requested(at: float, machine: str = POD, attempt: str = A) -> Draft:
    payload = {"method": "ssh", "log_path": "/workspace/logs/issue-1417.log", "pid_file": "/x.pid", **lease(at)}
    return make("LaunchRequested", at, payload, attempt, machine)


def launched(at: float, machine: str = POD, attempt: str = A) -> Draft:
    return make("LaunchConfirmed", at, {"pid": 4242, "log_bytes": 1, "source": "probe"}, attempt, machine)


def launch_failed(at: float, machine: str = POD, attempt: str = A, probe: str | None = "not running") -> Draft:
    return make("LaunchFailed", at, {"reason": "launch_unconfirmed", "probe": probe}, attempt, machine)


def ended(at: float, machine: str = POD, outcome: str = "done") -> Draft:
    return make("WorkloadEnded", at, {"outcome": outcome}, machine=machine)


def failover(
    at: float, machine: str | None = VM, reason: str = "queue_timeout", evidence: Iterable[int] = (), attempt: str = A
) -> Draft:
    payload = {"reason": reason, "from": machine, "next_rung": "runpod", "evidence": list(evidence)}
    return make("FailoverDecided", at, payload, attempt, machine, failover="failover-1")


def repointed(at: float, to: str = POD, from_: str | None = VM) -> Draft:
    return make("Repointed", at, {"from": from_, "to": to}, machine=to)


def teardown(
    at: float,
    machine: str = POD,
    reason: str = "cancelled",
    evidence: Iterable[int] = (),
    actor: str = "poller",
    attempt: str | None = A,
) -> Draft:
    payload = {"reason": reason, "evidence": list(evidence), **lease(at)}
    return make("TeardownRequested", at, payload, attempt, machine, actor)


def teardown_failed(at: float, machine: str = POD, count: int = 1) -> Draft:
    return make("TeardownFailed", at, {"error_class": "timeout", "count": count}, machine=machine)


def torn_down(at: float, machine: str = POD, by: str = "ledger") -> Draft:
    return make("TornDown", at, {"by": by}, machine=machine)


def orphan(at: float, machine: str = OTHER_POD, gpu_util: int | None = 0, **more: Any) -> Draft:
    payload = {
        "backend": "runpod",
        "account": POD_ACCOUNT,
        "name": "pod-1417",
        "status": "RUNNING",
        "cost_per_hour": 4.0,
        "gpu_util": gpu_util,
        "created_at": us(at),
        **more,
    }
    return make("OrphanObserved", at, payload, machine=machine)


def cancelled(at: float) -> Draft:
    return make("CancelRequested", at, {}, actor="user")


def closed(at: float, outcome: str = "failed", reason: str = "no_compute_available") -> Draft:
    return make("RunClosed", at, {"outcome": outcome, "reason": reason})


def edited(at: float, **changed: Any) -> Draft:
    return make("SidecarEdited", at, {"added": {}, "changed": changed})


def inventory(at: float, *, backend: str = "runpod", account: str = POD_ACCOUNT, complete: bool = True) -> Draft:
    return make("InventoryRead", at, {"backend": backend, "account": account, "complete": complete})


def acknowledged(at: float, breach: str) -> Draft:
    return make("BreachAcknowledged", at, {"breach": breach}, actor="user")


def policy_changed(at: float, policy: Policy) -> Draft:
    return make("PolicyChanged", at, {"policy": policy.to_payload(), "changed": ["some"]}, actor="user")
