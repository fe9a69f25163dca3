"""The command line in process: a folder with a ledger, a clock that the test sets, and `cli("audit", "--json")`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ledger.cli.base import Call
from ledger.cli.main import run
from ledger.demo.stage import VirtualSource
from ledger.events import Draft, Event
from ledger.log.open import open_log
from ledger.log.store import Log
from ledger.moments import parse_time

SAMPLES = Path(__file__).parent.parent / "sidecars"
NOW = "2026-07-18T00:20:00Z"


@dataclass(slots=True)
class Result:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(slots=True)
class Cli:
    """Runs command lines in `folder`, on `source`'s clock, with an environment that is empty but for `env`."""

    folder: Path
    source: VirtualSource
    capsys: pytest.CaptureFixture[str]
    env: dict[str, str] = field(default_factory=dict)
    sleep: Callable[[float], None] = lambda _seconds: None

    def __call__(self, *args: object) -> Result:
        call = Call(source=self.source, env=self.env, cwd=self.folder, sleep=self.sleep)
        self.capsys.readouterr()
        status = run([str(arg) for arg in args], call)
        out, err = self.capsys.readouterr()
        assert "Traceback" not in err, err
        return Result(status, out, err)

    @property
    def database(self) -> Path:
        return self.folder / "ledger.db"

    @property
    def handles(self) -> Path:
        return self.folder / "handles"

    def set_clock(self, moment: str) -> int:
        self.source.micros = parse_time(moment)
        return self.source.micros

    def log(self) -> Log:
        """The log itself; the caller closes its connection."""
        return open_log(str(self.database), self.source)

    def append(self, stream: str, *drafts: Draft) -> list[Event]:
        log = self.log()
        try:
            return log.append(stream, log.state(stream).version, drafts)
        finally:
            log.connection.close()

    def events(self, stream: str | None = None) -> list[Event]:
        log = self.log()
        try:
            return [e for e in log.read_all() if stream is None or e.stream == stream]
        finally:
            log.connection.close()

    def event(
        self, type_: str, payload: Mapping[str, Any], *, attempt: str | None = None, machine: str | None = None
    ) -> Draft:
        return Draft(type_, payload, self.source.now(), attempt=attempt, machine=machine)


@pytest.fixture
def bare(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A folder without a ledger, and a home without keys."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return Cli(tmp_path, VirtualSource(NOW), capsys)


@pytest.fixture
def cli(bare: Cli) -> Cli:
    """A folder with a new ledger."""
    assert bare("init", bare.folder).status == 0
    return bare


@pytest.fixture
def taken(cli: Cli) -> Cli:
    """A ledger that has taken over issue-1417 (queued on GCP), issue-1418 (running on RunPod) and issue-640 (SLURM)."""
    assert cli("import", *(SAMPLES / f"issue-{n}-handle.json" for n in (1417, 1418, 640))).status == 0
    return cli


POD = "runpod:9qk2w7h4xj"


def failed_over(cli: Cli, *, pod: str = POD, stream: str = "issue-1417") -> tuple[str, str]:
    """#1417 up to the pod that nothing was launched on. Gives the pod's attempt and the instance."""
    log = cli.log()
    machine = next(iter(log.run(stream).machines.values()))
    log.connection.close()
    now = cli.source.now()
    absence = {"scope": "both", "account": machine.account}
    [absent] = cli.append(stream, cli.event("AbsenceObserved", absence, attempt=machine.attempt, machine=machine.id))
    decided = {"reason": "queue_vanish", "from": machine.id, "next_rung": "runpod", "evidence": [absent.position]}
    cli.append(stream, cli.event("FailoverDecided", decided, attempt=machine.attempt, machine=machine.id))
    attempt = "5d3e8d0e-4d53-4a6c-9a39-2f3a3c1f1417"
    asked = {
        "holder": "test",
        "call_before": now + 20_000_000,
        "deadline": now + 100_000_000,
        "backend": "runpod",
        "rung": "runpod",
        "name": "pod-1417",
        "account": "example",
        "request_id": "r",
    }
    made = {
        "backend": "runpod",
        "name": "pod-1417",
        "account": "example",
        "created_at": now,
        "cost_per_hour": 11.96,
        "status": "RUNNING",
    }
    cli.append(stream, cli.event("ProvisionRequested", asked, attempt=attempt))
    cli.append(stream, cli.event("Provisioned", made, attempt=attempt, machine=pod))
    return attempt, machine.id


def types_of(events: Sequence[Event]) -> list[str]:
    return [event.type for event in events]
