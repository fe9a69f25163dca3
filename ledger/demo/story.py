"""What happened in #1417 and #1776, moment by moment, as events. Each moment sets the clock and acts on the stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.demo.stage import Stage
from ledger.events import Draft, account_stream
from ledger.moments import MICROS, parse_time, request_id
from ledger.source import uuid4
from ledger.state.model import Machine

PROJECT = "example-gpu-project"
POD = "runpod:9qk2w7h4xj"
POD_USD_PER_HOUR = 11.96  # four H100 at 2.99 dollars each
HOLDER = "poller-demo"
TWINS = ("issue-1776", "issue-1777")
LIST_MICROS = 300 * MICROS  # a list that says nothing new is recorded this often


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment of an incident: what a person would be told, and what the log is given."""

    at: str
    title: str
    told: str
    act: Callable[[Stage], None]


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident. `as_it_happened` is its moments with nobody watching the audit."""

    issue: str
    title: str
    streams: tuple[str, ...]
    begins: str
    lesson: str
    as_it_happened: tuple[Moment, ...]


def _facts(
    stage: Stage, stream: str, type_: str, payload: dict[str, Any], machine: str, called: str | None = None
) -> None:
    known = stage.run(stream).machines[machine]
    draft = Draft(type_, payload, stage.source.now(), attempt=known.attempt, machine=machine)
    stage.append(stream, [draft], called)


def watch(stage: Stage, streams: Sequence[str], until: str | None = None) -> None:
    """What the poller's lists say of these runs' accounts: now, or every five minutes until then."""
    if until is not None:
        end = parse_time(until)
        while any(m.open for m in _machines(stage, streams)) and stage.source.micros + LIST_MICROS < end:
            stage.source.micros += LIST_MICROS
            watch(stage, streams)
        return
    accounts: dict[tuple[str, str], list[str]] = {}
    for machine in _machines(stage, streams):
        listed = accounts.setdefault((machine.backend, machine.account), [])
        if machine.open and machine.id not in stage.vanished:
            listed.append(machine.id)
    for (backend, account), listed in accounts.items():
        payload = {"backend": backend, "account": account, "complete": True, "machines": listed}
        stage.append(account_stream(backend, account), [Draft("InventoryRead", payload, stage.source.now())])


def _machines(stage: Stage, streams: Sequence[str]) -> list[Machine]:
    return [machine for stream in streams for machine in stage.run(stream).machines.values()]


def _machine(stage: Stage, stream: str) -> str:
    handle = stage.run(stream).handle
    assert handle is not None
    return handle


def _lease(stage: Stage, seconds: int) -> dict[str, Any]:
    now = stage.source.now()
    return {"holder": HOLDER, "call_before": now + 20 * MICROS, "deadline": now + seconds * MICROS}


def _torn_down(stage: Stage, stream: str, machine: str, outcome: str, reason: str, failure_class: str | None) -> None:
    """A person ends it: asked for, seen to be gone, closed."""
    attempt = stage.run(stream).machines[machine].attempt
    now = stage.source.now()
    asked = {**_lease(stage, 100), "reason": "by hand"}
    stage.append(stream, [Draft("TeardownRequested", asked, now, actor="user", attempt=attempt, machine=machine)])
    gone = Draft("TornDown", {"by": "ledger"}, now, attempt=attempt, machine=machine)
    closed = {"outcome": outcome, "reason": reason, "failure_class": failure_class}
    stage.append(stream, [gone])
    stage.append(stream, [Draft("RunClosed", closed, now, actor="user")])


# #1417


def _taken_over_1417(stage: Stage) -> None:
    stage.take_over("issue-1417")
    watch(stage, ["issue-1417"])


def _vanished(stage: Stage) -> None:
    stream, instance = "issue-1417", _machine(stage, "issue-1417")
    known = stage.run(stream).machines[instance]
    stage.vanished.add(instance)
    watch(stage, [stream])
    absent = {"scope": "both", "account": PROJECT, "age_seconds": 528.0}
    _facts(stage, stream, "AbsenceObserved", absent, instance, called="absence")
    now, failover = stage.source.now(), uuid4(stage.source)
    decided = {
        "reason": "queue_vanish",
        "from": instance,
        "next_rung": "runpod",
        "evidence": [stage.positions["absence"]],
    }
    stage.append(
        stream,
        [
            Draft("FailoverDecided", decided, now, attempt=known.attempt, machine=instance, correlation_id=failover),
        ],
    )
    attempt = uuid4(stage.source)
    asked = {
        **_lease(stage, 100),
        "backend": "runpod",
        "rung": "runpod",
        "name": "pod-1417",
        "account": "example",
        "request_id": request_id(stage.log.ledger_id(), attempt, 1),
    }
    stage.append(stream, [Draft("ProvisionRequested", asked, now, attempt=attempt, correlation_id=failover)])
    made = {
        "backend": "runpod",
        "name": "pod-1417",
        "account": "example",
        "created_at": now,
        "cost_per_hour": POD_USD_PER_HOUR,
        "status": "RUNNING",
    }
    stage.append(
        stream, [Draft("Provisioned", made, now, attempt=attempt, machine=POD, correlation_id=failover)], "pod"
    )
    watch(stage, [stream])


def _seen_idle(stage: Stage) -> None:
    seen = {"status": "RUNNING", "ports": "203.0.113.7:40022", "gpus": "idle", "gpu_util": 0, "log": "none"}
    _facts(stage, "issue-1417", "MachineObserved", {**seen, "source": "probe", "pid_alive": False}, POD)
    _watched(stage)


def _watched(stage: Stage) -> None:
    watch(stage, ["issue-1417"])


def _ended_1417(stage: Stage) -> None:
    _torn_down(stage, "issue-1417", POD, "failed", "launch_unconfirmed", "infra")
    watch(stage, ["issue-1417"])


# #1776


def _taken_over_1776(stage: Stage) -> None:
    for stream in TWINS:
        stage.take_over(stream)
    watch(stage, TWINS)


def _seen_queued(stage: Stage) -> None:
    for stream in TWINS:
        seen = {"status": "PENDING", "provisioning_model": "FLEX_START", "zone": "us-central1-c", "source": "describe"}
        _facts(stage, stream, "MachineObserved", seen, _machine(stage, stream))


def _still_queued(stage: Stage) -> None:
    watch(stage, TWINS)


def _ended_1776(stage: Stage) -> None:
    for stream in TWINS:
        machine = _machine(stage, stream)
        cancel = Draft("CancelRequested", {"by": "a person"}, stage.source.now(), actor="user")
        stage.append(stream, [cancel])
        _torn_down(stage, stream, machine, "cancelled", "cancelled", None)
    watch(stage, TWINS)


INCIDENTS = (
    Incident(
        issue="#1417",
        title="the pod that nobody knew of",
        streams=("issue-1417",),
        begins=(
            "A training job waits in Google's queue for a machine with four A100 GPUs (FLEX_START). A small file, its "
            "handle, tells every other program where the job is. In the system of that day, programs wrote that file "
            "themselves."
        ),
        lesson=(
            "The old file said `gcp, pending` to the end: nothing in it could ever have told. In the log, the pod, the "
            "missing launch and the price stand side by side, and a query finds them at any time."
        ),
        as_it_happened=(
            Moment(
                "2026-07-18T00:20:00Z",
                "the old handle file is taken over",
                "The job has waited for five minutes. Queued machines cost nothing.",
                _taken_over_1417,
            ),
            Moment(
                "2026-07-18T00:26:00Z",
                "the queued machine vanishes; a pod is rented in its place",
                "Google drops the request without a word. A pod with four H100 GPUs is rented on RunPod, and the "
                "program that did so dies before it starts the job there. The old file still names the lost machine.",
                _vanished,
            ),
            Moment(
                "2026-07-18T00:41:00Z",
                "fifteen minutes later",
                "No process, no log, 0 % on every GPU. A healthy start takes up to 27 minutes: nothing is wrong yet.",
                _seen_idle,
            ),
            Moment(
                "2026-07-18T00:57:00Z",
                "the bound of a launch has passed",
                "Thirty minutes billed without a launch are never right: from here on it is a breach, with its price.",
                _watched,
            ),
            Moment(
                "2026-07-18T01:11:00Z",
                "forty-five minutes: in the old system, a person happens to notice",
                "The failover has neither ended in a launched job nor been undone, and the handle names a ghost.",
                _watched,
            ),
            Moment(
                "2026-07-18T01:12:00Z",
                "the pod is ended by hand",
                "Seen to be gone, and only then recorded as gone. The handle file is retired.",
                _ended_1417,
            ),
        ),
    ),
    Incident(
        issue="#1776",
        title="the reconnect that switched off its own safety net",
        streams=TWINS,
        begins=(
            "A create took longer than its five minutes' cap, so the launcher was run again, as documented, and found "
            "the machine in the queue. It then wrote the handle anew from defaults. #1776 lost its machine's model; "
            "its twin #1777 got the wrong one, STANDARD. The old queue timeout looked at FLEX_START machines alone."
        ),
        lesson=(
            "What a cloud said and what a default says are never one field in the log: a look at the machine restores "
            "the model, and the queue's clock runs from the first request, whatever was run again since."
        ),
        as_it_happened=(
            Moment(
                "2026-07-30T18:48:00Z",
                "the two rewritten handle files are taken over",
                "Both machines have been queued since 18:41:02; the files say so no longer.",
                _taken_over_1776,
            ),
            Moment(
                "2026-07-30T18:49:00Z",
                "the first look at the machines themselves",
                "Google says what they are: FLEX_START, and still in the queue.",
                _seen_queued,
            ),
            Moment(
                "2026-07-30T18:54:00Z",
                "the queue's time is over",
                "Ten minutes in the queue and two ticks more have passed, and nothing was decided: overdue.",
                _still_queued,
            ),
            Moment(
                "2026-07-30T19:06:00Z",
                "twenty-five minutes: in the old system, a person happens to notice",
                "Nothing was billed, and nothing ran: the price was the time of the people who waited.",
                _still_queued,
            ),
            Moment(
                "2026-07-30T19:07:00Z",
                "both are cancelled by hand",
                "Their queued machines are deleted, since they could still start and bill.",
                _ended_1776,
            ),
        ),
    ),
)
