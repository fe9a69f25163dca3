"""Runs, readings and verdicts for the tables of decisions. Times are seconds after T0."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ledger.clouds.values import Absent, Guest, Listing, Probe, Seen, Unknown
from ledger.decide import decide
from ledger.decide.view import Create, Delete, Launch, Rent, Step, View
from ledger.events import Draft
from ledger.policy import Policy
from ledger.state.fold import fold_run
from ledger.state.model import Run
from tests import support as s
from tests.strategies import as_events

RENT = Rent(("us-central1-a",), s.PROJECT, s.POD_ACCOUNT)
ALIVE = Probe(pid=7, pid_alive=True, log_bytes=10, log_age=1.0, done=False, gpu_util=90)
NOTHING = Probe(pid=None, pid_alive=False, log_bytes=0, log_age=None, done=False, gpu_util=0)
OUT_OF_REACH = Unknown("unreachable")


def run_of(*drafts: Draft) -> Run:
    """The run that these events of it give."""
    run = fold_run(s.RUN, as_events(list(drafts)))
    assert not run.unreadable
    return run


def vm(status: str = "RUNNING", **more: Any) -> Seen:
    """The instance as a cloud shows it."""
    facts = {"zone": "us-central1-a", "provisioning_model": "FLEX_START", "cost_per_hour": 4.0, **more}
    return Seen(s.VM, "gcp", s.PROJECT, "eps-issue-1417", status, **facts)


def pod(status: str = "RUNNING", *, machine: str = s.POD, ports: str | None = "10.0.0.1:22", **more: Any) -> Seen:
    """The pod as a cloud shows it."""
    return Seen(machine, "runpod", s.POD_ACCOUNT, "pod-1417", status, ports=ports, cost_per_hour=4.0, **more)


def look(
    at: float,
    *shown: Seen,
    gone: Iterable[str] = (),
    complete: bool = True,
    guest: Guest | Unknown | None = None,
    probe: Probe | Unknown | None = None,
    **more: Any,
) -> View:
    """What one tick read: both lists complete with `shown`, describes of `gone` that found nothing."""
    accounts = (("gcp", s.PROJECT), ("runpod", s.POD_ACCOUNT))
    listings = {
        (backend, account): Listing(account, complete, tuple(x for x in shown if x.backend == backend))
        for backend, account in accounts
    }
    accounts_of = {s.VM: s.PROJECT}
    ids = [x.machine for x in shown]
    return View(
        now=s.us(at),
        ledger_id="ledger-1",
        holder="poller-1",
        listings=listings,
        seen={x.machine: x for x in shown},
        described={machine: Absent(accounts_of.get(machine, s.POD_ACCOUNT)) for machine in gone},
        guests=dict.fromkeys(ids, guest) if guest is not None else {},
        probes=dict.fromkeys(ids, probe) if probe is not None else {},
        rent=more.pop("rent", RENT),
        **more,
    )


def verdict(run: Run, view: View, policy: Policy | None = None) -> str:
    """The step in a word: its events, the reason or rung that they state, and the call: `-` where nothing is due."""
    step = decide(run, view, policy or Policy(), "fresh-id")
    return told(step)


def told(step: Step | None) -> str:
    """A step in words."""
    if step is None:
        return "-"
    words = []
    for draft in step.drafts:
        payload = draft.payload
        detail = payload.get("reason") or payload.get("class") or payload.get("rung") or payload.get("outcome")
        if draft.type == "FailoverDecided":
            detail = f"{detail}>{payload['next_rung']}"
        if draft.type == "RunClosed":
            detail = f"{payload['outcome']}/{payload['reason']}"
        words.append(f"{draft.type}({detail})" if detail else draft.type)
    calls = {Create: "create", Delete: "delete", Launch: "launch"}
    if step.act is not None:
        words.append(calls[type(step.act)])
    return " ".join(words)
