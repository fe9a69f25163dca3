"""Streams of events for tests of the projections: written by hand, or drawn."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from ledger import canonical
from ledger.events import KINDS, Draft, Event
from ledger.log.open import create_log
from ledger.log.store import Log
from ledger.moments import MICROS
from ledger.payloads import validate
from ledger.policy import Policy

LEDGER = "3f0c2a52-6a0e-4c0a-9a39-0d8a3e2f4b10"
T0 = 1784333702 * MICROS  # 2026-07-18T00:15:02Z
SAMPLES = Path(__file__).parent.parent / "sidecars"
VM = "gcp:example-gpu-project/us-central1-a/5513402277619834112"
POD = "runpod:q7w2exampleid"


class FakeSource:
    """A clock that a test sets, ids that follow from a count."""

    def __init__(self, at: int = T0) -> None:
        self.at = at
        self.count = 0

    def now(self) -> int:
        return self.at

    def steady(self) -> float:
        return self.at / MICROS

    def random_bytes(self, n: int) -> bytes:
        self.count += 1
        return uuid.uuid5(uuid.NAMESPACE_OID, str(self.count)).bytes[:n].ljust(n, b"\x01")


def new_log(path: Path, source: FakeSource | None = None) -> Log:
    return create_log(f"sqlite:///{path}", source or FakeSource(), Policy(), "test")


def attempt(n: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"attempt {n}"))


class Story:
    """One run told event by event. `at` is seconds after T0; attempts are numbered from 1."""

    def __init__(self, issue: int = 1417, lane: str | None = None, log: Log | None = None) -> None:
        self.issue, self.lane, self.log = issue, lane, log
        self.stream = f"issue-{issue}" + (f"-{lane}" if lane else "")
        self.events: list[Event] = []

    def add(self, type_: str, at: float, n: int | None = None, machine: str | None = None, /, **payload: Any) -> Story:
        payload = {key.rstrip("_") if key != "from_" else "from": value for key, value in payload.items()}
        draft = Draft(type_, payload, T0 + round(at * MICROS), attempt=attempt(n) if n else None, machine=machine)
        if self.log is not None:
            self.log.append(self.stream, len(self.events), [draft])
            self.events = self.log.read(self.stream)
            return self
        version = len(self.events) + 1
        text = canonical.dumps(validate(draft))
        self.events.append(
            Event(
                100 + version,
                self.stream,
                version,
                f"e{version}",
                type_,
                KINDS[type_].schema,
                draft.occurred_at,
                draft.occurred_at,
                "poller",
                "f" if type_ == "FailoverDecided" else None,
                draft.attempt,
                machine,
                text,
                "",
            )
        )
        return self

    def opened(self, at: float = 0, rung: str = "gcp:FLEX_START", **pins: Any) -> Story:
        pins = {"workload_cmd": "bash scripts/issue1417_dispatch.sh", "gpus": 4, "time_budget_hours": 12.0, **pins}
        ladder = ["gcp:FLEX_START", "runpod", "gcp:STANDARD"]
        return self.add("RunOpened", at, issue=self.issue, lane=self.lane, ladder=ladder, rung=rung, **pins)

    def requested(self, at: float, n: int = 1, backend: str = "gcp", try_: int = 1, **more: Any) -> Story:
        suffix = f"-{self.lane}" if self.lane else ""
        values = {
            "backend": backend,
            "rung": "gcp:FLEX_START" if backend == "gcp" else "runpod",
            "name": f"eps-issue-{self.issue}{suffix}" if backend == "gcp" else f"pod-{self.issue}{suffix}",
            "account": "example-gpu-project" if backend == "gcp" else "acct",
            "zone": "us-central1-a" if backend == "gcp" else None,
            "provisioning_model": "FLEX_START" if backend == "gcp" else None,
            "try": try_,
            "request_id": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{n} {try_}")),
            "holder": "h",
            "call_before": 0,
            "deadline": 0,
            **more,
        }
        return self.add("ProvisionRequested", at, n, **values)

    def provisioned(self, at: float, n: int = 1, machine: str = VM, try_: int = 1, **more: Any) -> Story:
        gcp = machine.startswith("gcp:")
        values = {
            "backend": "gcp" if gcp else "runpod",
            "name": f"eps-issue-{self.issue}" if gcp else f"pod-{self.issue}",
            "account": "example-gpu-project" if gcp else "acct",
            "zone": "us-central1-a" if gcp else None,
            "try": try_,
            **more,
        }
        return self.add("Provisioned", at, n, machine, **values)

    def imported(self, at: float, name: str, n: int = 1, **more: Any) -> Story:
        text = (SAMPLES / name).read_text()
        return self.imported_text(at, text, n, **more)

    def imported_text(self, at: float, text: str, n: int = 1, **more: Any) -> Story:
        from ledger.state import imported

        machine = imported.read(json.loads(text)).machine
        values = {"file": text, "path": "x", "mtime": T0, "sha256": canonical.digest(text), "relaunchable": True}
        payload = {"issue": self.issue, "lane": self.lane, "ladder": ["gcp:FLEX_START", "runpod"], **values, **more}
        return self.add("HandleImported", at, n, machine, **payload)


STATUSES = ["PENDING", "PROVISIONING", "STAGING", "RUNNING", "STOPPING", "TERMINATED", "SUSPENDED", "EXITED", "NEW"]
MACHINES = [VM, POD, "gcp:example-gpu-project/us-central1-c/77", "runpod:second"]
LEASE = {"holder": "h", "call_before": 0, "deadline": 0}
SAMPLE_NAMES = [
    "issue-1417-handle.json",
    "issue-1418-handle.json",
    "issue-640-handle.json",
    "issue-777-handle.json",
]


def _import_any(s: Story, at: float, n: int, m: str, w: int) -> Story:
    sample = json.loads((SAMPLES / SAMPLE_NAMES[w % 4]).read_text())
    text = json.dumps(sample).replace(str(sample["extra"]["issue"]), str(s.issue))
    return s.imported_text(at, text, n)


# Each step takes the story, the time, an attempt's number, a machine and a number of its own.
STEPS: dict[str, Callable[[Story, float, int, str, int], Story]] = {
    "open": lambda s, at, n, m, w: s.opened(
        at, env_pins={"A": "b"} if w % 2 else {}, intent="ft-7b" if w % 3 else None
    ),
    "import": _import_any,
    "request": lambda s, at, n, m, w: s.requested(at, n, m.partition(":")[0], w % 3 + 1),
    "refuse": lambda s, at, n, m, w: s.add(
        "ProvisionRefused", at, n, **{"class": "capacity", "zone": "us-central1-a", "try": w % 3 + 1}
    ),
    "unresolved": lambda s, at, n, m, w: s.add(
        "ProvisionUnresolved", at, n, error_class="timeout", **{"try": w % 3 + 1}
    ),
    "provision": lambda s, at, n, m, w: s.provisioned(
        at, n, m, w % 3 + 1, status=STATUSES[w % 4] if w % 2 else None, matched_by="user" if w % 7 == 0 else "reply"
    ),
    "observe": lambda s, at, n, m, w: s.add(
        "MachineObserved",
        at,
        None,
        m,
        status=STATUSES[w % 9],
        phase=[None, "", "startup", "workload", "done", "failed"][w % 6],
        provisioning_model=["FLEX_START", "STANDARD", None][w % 3],
        zone="us-central1-b" if w % 5 == 0 else None,
        pid=w if w % 4 == 1 else None,
        source="list",
    ),
    "absent": lambda s, at, n, m, w: s.add("AbsenceObserved", at, None, m, scope="both", account="a"),
    "reconnect": lambda s, at, n, m, w: s.add(
        "ReconnectObserved", at, None, m, status=STATUSES[w % 4] if w % 2 else None
    ),
    "launch": lambda s, at, n, m, w: s.add(
        "LaunchRequested", at, n, m, method="ssh", log_path="l", pid_file="p", **LEASE
    ),
    "confirm": lambda s, at, n, m, w: s.add(
        "LaunchConfirmed", at, n, m, source="probe", pid=w + 1 if w % 3 else None, log_bytes=1
    ),
    "launch_failed": lambda s, at, n, m, w: s.add("LaunchFailed", at, n, m, reason="not running", probe="x"),
    "end": lambda s, at, n, m, w: s.add("WorkloadEnded", at, None, m, outcome="done"),
    "failover": lambda s, at, n, m, w: s.add("FailoverDecided", at, None, m, reason="queue_vanish", from_=m),
    "repoint": lambda s, at, n, m, w: s.add("Repointed", at, None, m, from_=VM, to=m),
    "teardown": lambda s, at, n, m, w: s.add("TeardownRequested", at, None, m, reason="x", **LEASE),
    "torn": lambda s, at, n, m, w: s.add("TornDown", at, None, m, by="ledger"),
    "cancel": lambda s, at, n, m, w: s.add("CancelRequested", at),
    "close": lambda s, at, n, m, w: s.add("RunClosed", at, outcome="failed", reason="x"),
    "edited": lambda s, at, n, m, w: s.add(
        "SidecarEdited", at, added={"note": w, "last_phase": "lie", "pod_id": "lie"}, changed={"extra.zone": "x"}
    ),
}
_STEP = st.tuples(
    st.sampled_from(sorted(STEPS)),
    st.floats(0, 600),
    st.integers(1, 3),
    st.sampled_from(MACHINES),
    st.integers(0, 62),
)


@st.composite
def stories(draw: st.DrawFn, start: tuple[str, ...] = ("open", "import"), longest: int = 25) -> Story:
    """A run whose events are each of the vocabulary, in an order that need not make sense."""
    story, at = Story(), 0.0
    first = draw(st.sampled_from(start))
    for word, wait, n, machine, w in [
        (first, 0.0, 1, VM, draw(st.integers(0, 62))),
        *draw(st.lists(_STEP, max_size=longest)),
    ]:
        at += wait
        STEPS[word](story, at, n, machine, w)
    return story
