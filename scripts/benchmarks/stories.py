"""What happens to runs, as drafts: the stories of which the measured logs are made. Every event type is in them.

A story is a list of (seconds since it began, draft); times are filled in by `history`. Payloads are what the poller
would write, the free texts in them (commands, errors, paths) as long as they are in practice.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from ledger.events import Draft, account_stream
from ledger.policy import GCP_FLEX, GCP_STANDARD, RUNPOD

PROJECT, POD_ACCOUNT = "research-gpu", "team-research"
GCP_ACCOUNT = account_stream("gcp", PROJECT)
RUNPOD_ACCOUNT = account_stream("runpod", POD_ACCOUNT)
ZONES = ("us-central1-a", "us-central1-c", "europe-west4-b", "us-east5-a")
LADDER = [GCP_FLEX, RUNPOD, GCP_STANDARD]
HOLDER = (
    "poller-research-gpu-01.us-central1-a.c.research-gpu.internal:41877:0198c5d2-77aa-7c41-b1f4-6d5f3f8a9be2:"
    "systemd/user@1000.service/app.slice/ledger.service:ledger-0.1.0+g9de6fd7:python-3.11.7:boot-4f1b3c5e-6a2d-4d0e-"
    "9c1b-8f7e2a1d3b55"
)
_MICROS = 1_000_000
_WHY = (
    "The zone 'projects/research-gpu/zones/us-central1-a' does not have enough resources available to fulfill the"
    " request. '(resource type:compute)'. Try a different zone, or try again later. See"
    " https://cloud.google.com/compute/docs/troubleshooting/troubleshooting-vm-creation for what else may be done;"
    " reason ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS, vmType a3-highgpu-8g, attachment nvidia-h100-80gb:8"
)
_SOURCE = (
    "list:compute.instances.aggregatedList;guest:eps/phase,eps/workload_started;"
    "probe:ssh research@10.128.0.41:22 /workspace/logs pid log size age nvidia-smi --query-gpu=utilization.gpu,"
    "memory.used --format=csv,noheader,nounits; stat -c %s-%Y; kill -0; tail -c 200: step 48211/120000 loss 1.83"
)

Story = list[tuple[float, Draft]]


class Teller:
    """Tells the story of one run. `began` is microseconds UTC; `seed` decides what happens."""

    def __init__(self, issue: int, began: int, seed: int) -> None:
        self.issue, self.began = issue, began
        self.random = random.Random(seed)
        self.story: Story = []
        self.clock = 0.0
        self.number = 0
        self.attempt = ""
        self.machine: str | None = None

    def at(self, seconds: float = 0.0) -> int:
        return self.began + round((self.clock + seconds) * _MICROS)

    def say(
        self, type_: str, payload: dict[str, Any], *, after: float = 5.0, actor: str = "poller", fact: bool = False
    ) -> None:
        self.clock += after
        attempt = None if fact else self.attempt or None
        machine = None if type_ in _WITHOUT_A_MACHINE else self.machine
        self.story.append((self.clock, Draft(type_, payload, self.at(), actor, attempt, machine)))

    def uuid(self) -> str:
        value = self.random.getrandbits(128)
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"

    def lease(self) -> dict[str, Any]:
        return {"holder": HOLDER, "call_before": self.at(25), "deadline": self.at(105)}

    def log_path(self) -> str:
        where = "/workspace/logs/research-results/llama-3.3-70b/lora-64/optim-adamw-lr-2e-4/cache-warm/seed-7"
        return f"{where}/issue-{self.issue}/{self.attempt}/attempt-stdout-and-stderr-of-the-workload.log"

    # what happens

    def opened(self) -> None:
        command = (
            f"bash scripts/train.sh --config configs/issue_{self.issue}.yaml --epochs 40 --seed {self.number + 7}"
            " --resume auto --data.cache /workspace/cache --model.name llama-3.3-70b --lora.rank 64 --optim.lr 2e-4"
            " && python -m research.report --out /workspace/results --upload gs://research-results/issues"
        )
        payload = {
            "issue": self.issue,
            "workload_cmd": command,
            "gpus": 8,
            "gpu_type": "h100",
            "intent": "lora-70b",
            "env_pins": {"HF_HOME": "/workspace/hf", "WANDB_PROJECT": "issue-runs"},
            "expected_artifacts": {"metrics": "results/metrics.json"},
            "time_budget_hours": 12.0,
            "ladder": LADDER,
            "rung": LADDER[0],
            "owner": "research",
            "secrets": ["HF_TOKEN"],
        }
        self.say("RunOpened", payload, after=0, actor="user")

    def imported(self) -> None:
        self.attempt, self.machine = self.uuid(), f"runpod:{self.uuid()[:13]}"
        file = {
            "backend": "runpod",
            "issue": self.issue,
            "pod_id": self.machine.removeprefix("runpod:"),
            "pod_name": f"pod-{self.issue}",
            "status": "RUNNING",
            "started_at": "2026-01-04T10:00:00Z",
            "extra": {
                "gpu_type": "NVIDIA H100 80GB HBM3",
                "gpu_count": 4,
                "note": "by the old dispatcher",
                "why": _WHY,
            },
        }
        text = json.dumps(file)
        payload = {
            "issue": self.issue,
            "file": text,
            "path": f"/home/research/handles/issue-{self.issue}-handle.json",
            "mtime": self.at(),
            "sha256": f"{self.random.getrandbits(256):064x}",
            "relaunchable": True,
            "ladder": LADDER,
        }
        self.say("HandleImported", payload, after=0, actor="import")

    def asked(self, rung: str, zone: str | None = None, number: int = 1) -> None:
        if number == 1:
            self.attempt = self.uuid()
        gcp = rung.startswith("gcp:")
        self.machine = None
        payload = {
            "backend": "gcp" if gcp else "runpod",
            "rung": rung,
            "name": f"eps-issue-{self.issue}" if gcp else f"pod-{self.issue}",
            "account": PROJECT if gcp else POD_ACCOUNT,
            "zone": zone,
            "provisioning_model": rung.removeprefix("gcp:") if gcp else None,
            "try": number,
            "request_id": self.uuid(),
            **self.lease(),
        }
        self.say("ProvisionRequested", payload)

    def refused(self, zone: str | None, number: int = 1) -> None:
        payload = {"class": "capacity", "message": _WHY, "zone": zone, "try": number}
        self.say("ProvisionRefused", payload, after=2)

    def unresolved(self, number: int) -> None:
        payload = {"error_class": "timeout", "message": f"no answer after 75 s; {_WHY}", "try": number}
        self.say("ProvisionUnresolved", payload, after=75)

    def provisioned(self, rung: str, zone: str | None = None, number: int = 1) -> None:
        gcp = rung.startswith("gcp:")
        identity = self.random.getrandbits(62)
        self.machine = f"gcp:{PROJECT}/{zone}/{identity}" if gcp else f"runpod:{identity:x}"
        payload = {
            "backend": "gcp" if gcp else "runpod",
            "name": f"eps-issue-{self.issue}" if gcp else f"pod-{self.issue}",
            "zone": zone,
            "account": PROJECT if gcp else POD_ACCOUNT,
            "requested_model": rung.removeprefix("gcp:") if gcp else None,
            "provisioning_model": rung.removeprefix("gcp:") if gcp else None,
            "created_at": self.at(3),
            "cost_per_hour": 21.53,
            "try": number,
            "status": "PENDING" if gcp else "RUNNING",
            "ports": None if gcp else "203.0.113.7:22041",
        }
        self.say("Provisioned", payload, after=3)

    def observed(self, after: float = 60.0, **more: Any) -> None:
        assert self.machine is not None
        gcp = self.machine.startswith("gcp:")
        payload = {
            "status": "RUNNING",
            "source": _SOURCE,
            "provisioning_model": "FLEX_START" if gcp else None,
            "cost_per_hour": 21.53,
            **more,
        }
        self.say("MachineObserved", payload, after=after, fact=True)

    def working(self) -> None:
        """It runs, its log grows."""
        self.observed(
            600, gpus="busy", gpu_util=self.random.randrange(60, 100), log="fresh", log_age=12.25, pid=4242,
            pid_alive=True, log_bytes=self.random.randrange(10**7), reachable=True,
        )  # fmt: skip

    def launched_by_guest(self) -> None:
        self.observed(90, phase="startup")
        self.observed(300, phase="workload", workload_started=True, gpus="busy", gpu_util=88, log="fresh", log_age=2.5)
        self.launch_confirmed("guest")

    def launch_confirmed(self, source: str) -> None:
        payload = {"pid": 4242, "log_path": self.log_path(), "log_bytes": 918, "gpu_util": 88, "source": source}
        self.say("LaunchConfirmed", payload, after=1)

    def launch_asked(self) -> None:
        key = f"ssh-ed25519 {self.random.getrandbits(256):064x}{self.random.getrandbits(128):032x}"
        self.say("HostKeyPinned", {"key": key}, after=30, fact=True)
        payload = {
            "method": "ssh",
            "log_path": self.log_path(),
            "pid_file": f"/workspace/.ledger/issue-{self.issue}/{self.attempt}.pid",
            **self.lease(),
        }
        self.say("LaunchRequested", payload, after=2)

    def ended(self, outcome: str = "done") -> None:
        self.say("WorkloadEnded", {"outcome": outcome, "exit": 0 if outcome == "done" else 1}, after=1800, fact=True)

    def teardown(self, reason: str, *, actor: str = "poller", after: float = 20.0) -> None:
        self.say("TeardownRequested", {"reason": reason, **self.lease()}, after=after, actor=actor)

    def gone(self) -> None:
        self.say("TornDown", {"by": "ledger"}, after=60, fact=True)

    def absent(self) -> None:
        self.say("AbsenceObserved", {"scope": "both", "account": POD_ACCOUNT, "age_seconds": 912.5}, fact=True)

    def finished(self) -> None:
        """Its work is done, its machine goes, it is closed."""
        self.ended()
        self.teardown("done", after=5400)
        self.gone()
        self.closed("finished", "done")

    def closed(self, outcome: str, reason: str, failure: str | None = None) -> None:
        attempt, self.attempt = self.attempt, ""
        self.say("RunClosed", {"outcome": outcome, "reason": reason, "failure_class": failure})
        self.attempt = attempt


_WITHOUT_A_MACHINE = frozenset(
    ("RunOpened", "ProvisionRequested", "ProvisionRefused", "ProvisionUnresolved", "CancelRequested", "RunClosed",
     "SidecarEdited", "BreachAcknowledged")
)  # fmt: skip


def plain(t: Teller, *, still_open: bool = False) -> None:
    """A queued instance starts, its work is done."""
    zone = t.random.choice(ZONES)
    t.opened()
    t.asked(GCP_FLEX, zone)
    t.provisioned(GCP_FLEX, zone)
    t.launched_by_guest()
    for _ in range(t.random.randrange(1, 4)):
        t.working()
    if still_open:
        return
    t.finished()


def failed_over(t: Teller, *, still_open: bool = False) -> None:
    """It waits too long in the queue; a pod is rented, and its work is done there."""
    zone = t.random.choice(ZONES)
    t.opened()
    t.asked(GCP_FLEX, zone)
    t.provisioned(GCP_FLEX, zone)
    old = t.machine
    t.say("FailoverDecided", {"reason": "queue_timeout", "from": old, "next_rung": RUNPOD}, after=620)
    t.teardown("queue_timeout", after=0)
    t.gone()
    t.asked(RUNPOD)
    t.provisioned(RUNPOD)
    t.launch_asked()
    t.launch_confirmed("probe")
    t.say("Repointed", {"from": old, "to": t.machine}, after=0)
    t.working()
    if still_open:
        return
    t.finished()


def no_compute(t: Teller) -> None:
    """Nobody has a machine."""
    t.opened()
    for rung, zone in ((GCP_FLEX, ZONES[0]), (RUNPOD, None), (GCP_STANDARD, ZONES[1])):
        t.asked(rung, zone)
        if rung == RUNPOD:
            t.unresolved(1)
        t.refused(zone)
    t.closed("failed", "no_compute_available", "infra")


def never_ran(t: Teller) -> None:
    """A pod on which the launch is never seen: torn down at the bound."""
    t.opened()
    t.asked(RUNPOD)
    t.provisioned(RUNPOD)
    t.launch_asked()
    t.observed(1800, gpus="idle", gpu_util=0, reachable=True)
    t.say("LaunchFailed", {"reason": "launch_unconfirmed", "probe": "no pid, no log, GPUs idle"}, after=10)
    t.teardown("launch_unconfirmed", after=0)
    t.gone()
    t.closed("failed", "launch_unconfirmed", "infra")


def taken_over(t: Teller) -> None:
    """An old handle, edited by hand, cancelled; its delete fails once."""
    t.imported()
    t.say("ReconnectObserved", {"status": "RUNNING", "labels": {"team": "research"}}, actor="user")
    t.working()
    t.say("SidecarEdited", {"added": {"comment": _WHY}, "changed": {}}, fact=True)
    t.say("CancelRequested", {"by": "research"}, actor="user")
    t.teardown("cancelled")
    t.say("TeardownFailed", {"error_class": "timeout", "count": 1, "message": _WHY}, fact=True)
    t.absent()
    t.gone()
    t.say("BreachAcknowledged", {"breach": f"stalled-run@{t.issue}", "note": "seen"}, actor="user")
    t.closed("cancelled", "cancelled")


def orphaned(t: Teller) -> None:
    """Beside a run that ended well lies a pod of its name, which a person ends."""
    plain(t)
    attempt, t.attempt, t.machine = t.attempt, "", f"runpod:orphan{t.random.getrandbits(48):x}"
    payload = {
        "backend": "runpod",
        "account": POD_ACCOUNT,
        "name": f"pod-{t.issue}",
        "status": "RUNNING",
        "cost_per_hour": 4.0,
        "gpu_util": 0,
        "created_at": t.at(),
    }
    t.say("OrphanObserved", payload, fact=True)
    t.teardown("user", actor="user")
    t.gone()
    t.attempt = attempt


STORIES: tuple[tuple[int, Callable[[Teller], None]], ...] = (
    (62, plain), (16, failed_over), (8, no_compute), (6, never_ran), (5, taken_over), (3, orphaned),
)  # fmt: skip
_CHOICES = [story for weight, story in STORIES for _ in range(weight)]


def tell(issue: int, began: int, *, still_open: bool = False) -> Story:
    """The story of one run: the same for the same issue. `still_open`: it still works at its end."""
    teller = Teller(issue, began, issue)
    if still_open:
        (failed_over if issue % 5 == 0 else plain)(teller, still_open=True)
    else:
        teller.random.choice(_CHOICES)(teller)
    return teller.story
