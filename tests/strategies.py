"""Random logs: valid drafts in odd orders, over several streams, attempts and machines."""

from __future__ import annotations

import uuid

from hypothesis import strategies as st

from ledger.events import KINDS, LEDGER_STREAM, Draft, Event, run_stream
from ledger.policy import Policy
from tests import support as s
from tests.invariants.cases import OLD_POD

RUNS = [s.RUN, run_stream(1418), run_stream(1417, "b")]
ACCOUNTS = [s.GCP, s.PODS]
MACHINES = [s.VM, s.POD, s.OTHER_POD]
ATTEMPTS = [s.A, s.B, s.C]
_ISSUES = {s.RUN: (1417, None), RUNS[1]: (1418, None), RUNS[2]: (1417, "b")}

machines = st.sampled_from(MACHINES)
attempts = st.sampled_from(ATTEMPTS)
numbers = st.integers(1, 2)
cited = st.lists(st.integers(1, 40), max_size=3)
maybe = st.sampled_from
statuses = maybe([None, "PENDING", "STAGING", "RUNNING", "TERMINATED", "EXITED", "WEIRD"])


@st.composite
def run_drafts(draw: st.DrawFn, stream: str, at: float) -> Draft:
    """A valid draft of any type that a run's stream may hold."""
    kind = draw(maybe([name for name in KINDS if name not in ("InventoryRead", "PolicyChanged", "LedgerCreated")]))
    machine, attempt, number = draw(machines), draw(attempts), draw(numbers)
    issue, lane = _ISSUES[stream]
    match kind:
        case "RunOpened":
            budget = draw(maybe([None, 0.5]))
            paid = draw(st.booleans())
            return s.opened(at, issue, lane=lane, time_budget_hours=budget, allow_paid_fallback=paid)
        case "HandleImported":
            return s.imported(at, OLD_POD, issue, attempt, machine=draw(maybe([None, s.POD])))
        case "ProvisionRequested":
            return s.requested(at, attempt, draw(maybe(s.LADDER)), number=number)
        case "ProvisionRefused":
            return s.refused(at, attempt, number=number)
        case "ProvisionUnresolved":
            return s.unresolved(at, attempt)
        case "Provisioned":
            matched = draw(maybe(["reply", "marker", "name", "user", "import"]))
            status, cost = draw(statuses), draw(maybe([None, 0.0, 2.5]))
            model = draw(maybe([None, "STANDARD", "FLEX_START"]))
            more = {"matched_by": matched, "adopted": matched != "reply", "status": status, "cost_per_hour": cost}
            return s.provisioned(at, machine, attempt, **more, provisioning_model=model, **{"try": number})
        case "MachineObserved":
            more = {
                "status": draw(statuses),
                "gpus": draw(maybe(["idle", "busy", "unknown"])),
                "log": draw(maybe(["fresh", "stale", "none", "unknown"])),
                "log_age": draw(maybe([None, 0.0, 900.0])),
                "ports": draw(maybe([None, "", "1.2.3.4:22", "1.2.3.4:23"])),
                "suspect": draw(st.integers(0, 2)),
                "reachable": draw(maybe([None, True, False])),
                "provisioning_model": draw(maybe([None, "STANDARD", "FLEX_START"])),
                "cost_per_hour": draw(maybe([None, 3.5])),
            }
            return s.observed(at, machine, **more)
        case "AbsenceObserved":
            return s.absent(at, machine, draw(maybe(["both", "describe", "full_list"])))
        case "ReconnectObserved":
            return s.reconnected(at, machine, provisioning_model=draw(maybe([None, "STANDARD"])))
        case "LaunchRequested":
            return s.launch_requested(at, machine, attempt)
        case "LaunchConfirmed":
            return s.launched(at, machine, attempt)
        case "LaunchFailed":
            return s.launch_failed(at, machine, attempt, draw(maybe([None, "not running"])))
        case "WorkloadEnded":
            return s.ended(at, machine, draw(maybe(["done", "crashed"])))
        case "FailoverDecided":
            reason = draw(maybe(["queue_timeout", "wedged", "boot_loop", "taken"]))
            return s.failover(at, draw(maybe([None, *MACHINES])), reason, draw(cited), attempt)
        case "Repointed":
            return s.repointed(at, machine)
        case "TeardownRequested":
            reason, actor = draw(maybe(["cancelled", "wedged", "idle"])), draw(maybe(["poller", "user"]))
            return s.teardown(at, machine, reason, draw(cited), actor, draw(maybe([None, *ATTEMPTS])))
        case "TeardownFailed":
            return s.teardown_failed(at, machine)
        case "TornDown":
            return s.torn_down(at, machine)
        case "OrphanObserved":
            return s.orphan(at, machine, draw(maybe([None, 0, 80])), marker=draw(maybe([None, "a.b.c.1"])))
        case "CancelRequested":
            return s.cancelled(at)
        case "RunClosed":
            return s.closed(at, reason=draw(maybe(["no_compute_available", "finished"])))
        case "SidecarEdited":
            return s.edited(at, **draw(maybe([{}, {"backend": "gcp"}])))
        case "BreachAcknowledged":
            return s.acknowledged(at, f"thin-evidence@{draw(st.integers(1, 40))}")
    return s.make("HostKeyPinned", at, {"key": "ssh-ed25519 AAAA"}, machine=machine)


@st.composite
def steps(draw: st.DrawFn, most: int = 25) -> list[tuple[str, Draft]]:
    """(stream, draft) in the order of time; about two thirds of them begin as real runs do."""
    at = 0.0
    made: list[tuple[str, Draft]] = []
    if draw(maybe([True, True, False])):
        made += [(s.RUN, s.opened()), (s.RUN, s.requested(1)), (s.RUN, s.provisioned(2))]
    for _ in range(draw(st.integers(0, most))):
        at += draw(maybe([0.0, 1.0, 60.0, 700.0, 2000.0]))
        stream = draw(maybe([*RUNS, s.RUN, s.RUN, *ACCOUNTS, LEDGER_STREAM]))
        made.append((stream, draw(_drafts(stream, at))))
    return made


def _drafts(stream: str, at: float) -> st.SearchStrategy[Draft]:
    if stream == LEDGER_STREAM:
        breaches = st.integers(1, 40).map(lambda n: s.acknowledged(at, f"log-broken@{n}"))
        bounds = maybe([60.0, 1800.0]).map(
            lambda bound: s.policy_changed(at, Policy(launch_confirm_seconds=bound, wedge_min_ticks=int(bound) % 7))
        )
        return st.one_of(breaches, bounds)
    if stream in ACCOUNTS:
        backend, account = ("gcp", s.PROJECT) if stream == s.GCP else ("runpod", s.POD_ACCOUNT)
        listed = st.booleans().map(lambda ok: s.inventory(at, backend=backend, account=account, complete=ok))
        orphans = machines.map(lambda machine: s.orphan(at, machine))
        gone = machines.map(lambda machine: s.torn_down(at, machine))
        asked = st.tuples(machines, cited).map(lambda both: s.teardown(at, both[0], "idle", both[1], attempt=None))
        return st.one_of(listed, orphans, gone, asked)
    return run_drafts(stream, at)


def as_events(drafts: list[Draft], stream: str = s.RUN) -> list[Event]:
    """Events of one stream as a log would number them; the hash is left empty."""
    from ledger import canonical
    from ledger.payloads import validate

    return [
        Event(
            n, stream, n, str(uuid.UUID(int=n)), d.type, 1, d.occurred_at, d.occurred_at, d.actor, d.correlation_id,
            d.attempt, d.machine, canonical.dumps(validate(d)), "",
        )
        for n, d in enumerate(drafts, start=1)
    ]  # fmt: skip
