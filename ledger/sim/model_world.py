"""The world of the exhaustive model: a machine is a few values, and what a cloud and a probe say of it."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.clouds.values import Probe, Seen
from ledger.events import Marker
from ledger.moments import MICROS
from ledger.state.model import Intent

LEDGER = "11111111-1111-4111-8111-111111111111"
PROJECT, ACCOUNT = "p", "a"
STREAM = "issue-1"


@dataclass(frozen=True, slots=True)
class Thing:
    """One machine of the world. `work`: whether a workload lives on it, or ever did."""

    id: str
    cloud: str
    name: str
    marker: str | None
    status: str
    born: int
    work: str = "none"  # none, sent, alive
    gone: bool = False

    @property
    def billed(self) -> bool:
        """Whether it costs money."""
        return not self.gone and (self.cloud == "runpod" or self.status == "RUNNING")


def at(seconds: int) -> int:
    """A second of the model as the log's microseconds."""
    return (10_000_000 + seconds) * MICROS


def made(number: int, intent: Intent, now: int) -> Thing:
    """What the create of an intent makes."""
    gcp = intent.backend == "gcp"
    ident = f"gcp:{PROJECT}/z/{number}" if gcp else f"runpod:pod{number}"
    marker = str(Marker(LEDGER, STREAM, intent.attempt, intent.attempt_try))
    return Thing(ident, intent.backend, intent.name, marker, "PENDING" if gcp else "RUNNING", now)


def seen(thing: Thing, now: int) -> Seen:
    """The machine as its cloud shows it."""
    return Seen(
        machine=thing.id,
        backend=thing.cloud,
        account=PROJECT if thing.cloud == "gcp" else ACCOUNT,
        name=thing.name,
        status=thing.status,
        zone="z" if thing.cloud == "gcp" else None,
        created_at=at(thing.born),
        marker=thing.marker,
        ports="h:22" if thing.cloud == "runpod" and now > thing.born else None,
        gpu_util=90 if thing.work == "alive" or thing.marker is None else 0,
    )


def probe(thing: Thing) -> Probe:
    """What a probe reads there."""
    alive = thing.work == "alive"
    gpu = 90 if alive or thing.marker is None else 0
    pid = 7 if alive else None
    return Probe(pid=pid, pid_alive=alive, log_bytes=9 if alive else 0, log_age=0.0, done=False, gpu_util=gpu)
