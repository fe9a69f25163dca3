"""A ledger in a folder, beside a simulated world that outlives the processes which use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ledger.cli.base import Call
from ledger.cli.legacy import dispatch_main, poll_main
from ledger.cli.main import run
from ledger.clouds.configured import SIMULATED, open_source
from ledger.log.open import create_log, open_log
from ledger.log.store import Log
from ledger.policy import Policy
from ledger.sim.host import Host, hosted
from ledger.sim.scenario import loads
from ledger.source import Source

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
TOML = """
database = "{database}"
sidecars = "handles"
{top}
[policy]
{policy}
[gcp]
zones = ["us-central1-a"]
"""


@dataclass(slots=True)
class Result:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def line(self) -> dict[str, Any]:
        """The one JSON object on the one line of stdout."""
        assert self.out.endswith("\n")
        assert self.out.count("\n") == 1, self.out
        value: dict[str, Any] = json.loads(self.out)
        return value


@dataclass(slots=True)
class Scene:
    """Commands in process (`scene("poll")`, `scene.backend_poll(1417)`) and as processes, on the world's clock."""

    folder: Path
    host: Host
    source: Source
    capsys: pytest.CaptureFixture[str] | None = None
    sleep: Callable[[float], None] = lambda _seconds: None
    env: dict[str, str] = field(default_factory=dict)
    database: str = ""

    def __call__(self, *args: object) -> Result:
        return self._in_process(lambda call: run([str(arg) for arg in args], call))

    def backend_poll(self, issue: int, *more: object) -> Result:
        """`scripts/backend_poll.py`, by its entry point."""
        argv = ["--issue", str(issue), *map(str, more)]
        return self._in_process(lambda call: poll_main(argv, call))

    def dispatch_issue(self, *args: object) -> Result:
        """`scripts/dispatch_issue.py`, by its entry point."""
        return self._in_process(lambda call: dispatch_main([str(arg) for arg in args], call))

    def _in_process(self, command: Callable[[Call], int]) -> Result:
        assert self.capsys is not None
        call = Call(source=self.source, env=self.env, cwd=self.folder, sleep=self.sleep)
        self.capsys.readouterr()
        status = command(call)
        out, err = self.capsys.readouterr()
        assert "Traceback" not in err, err
        return Result(status, out, err)

    def start(self, *argv: object, script: str | None = None) -> subprocess.Popen[str]:
        """The same as a process of the operating system."""
        program = ["-m", "ledger"] if script is None else [str(SCRIPTS / script)]
        env = {**os.environ, "PYTHONPATH": str(ROOT), SIMULATED: self.host.address, **self.env}
        return subprocess.Popen(
            [sys.executable, *program, *map(str, argv)],
            cwd=self.folder,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def wait(self, process: subprocess.Popen[str]) -> Result:
        """Its end."""
        out, err = process.communicate(timeout=60)
        assert "Traceback" not in err, err
        return Result(process.returncode, out, err)

    def log(self) -> Log:
        """The log; the caller closes its connection."""
        return open_log(self.database, self.source)

    def types(self, stream: str) -> list[str]:
        log = self.log()
        try:
            return [event.type for event in log.read(stream)]
        finally:
            log.connection.close()

    def handle(self, issue: int = 1417) -> dict[str, Any] | None:
        """The sidecar of this issue, if it lies there."""
        path = self.folder / "handles" / f"issue-{issue}-handle.json"
        if not path.exists():
            return None
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return value

    def live(self) -> list[str]:
        """`cloud/name` of what the world bills now."""
        return list(self.host.report()["live"])


def scratch() -> str | None:
    """A folder in memory, where the machine has one: a killed process leaves the same there."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@contextmanager
def scene(
    folder: Path,
    world: str = "",
    *,
    policy: Sequence[str] = (),
    top: str = "",
    capsys: pytest.CaptureFixture[str] | None = None,
    database: str | None = None,
) -> Iterator[Scene]:
    """A new ledger and the world of these sections of a scenario. `policy` and `top` are lines of its ledger.toml.

    `database`: the URL of an empty one, where it is not to be a file in the folder.
    """
    (folder / "handles").mkdir(parents=True)
    url = database or f"sqlite:///{folder / 'ledger.db'}"
    text = TOML.format(database=url, top=top, policy="\n".join(policy))
    (folder / "ledger.toml").write_text(text, encoding="utf-8")
    scenario = loads(f"scenario: s\nexpect: {{}}\n{world}".encode(), "s.yaml")
    with hosted(scenario) as host:
        source = open_source({SIMULATED: host.address})
        made = create_log(url, source, Policy(), "test")
        host.world.ledger_id = made.ledger_id()
        made.connection.close()
        yield Scene(folder, host, source, capsys, database=url)
