"""A command that only reads starts fast: it loads no library that it does not need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from ledger.sim.schema import ACCOUNT_RUNPOD
from ledger.sim.wire.serve import Serving, empty
from ledger.source import SystemSource
from tests.cli.conftest import Cli

HEAVY = ("alembic", "asyncssh", "google", "greenlet", "pydantic", "rich", "runpod", "sqlalchemy", "yaml")
_PROBE = """
import json, sys
from ledger.cli.main import run
statuses = [run(argv.split()) for argv in {commands!r}]
print(json.dumps([statuses, sorted(set({heavy!r}) & set(sys.modules))]), file=sys.stderr)
"""


def test_reading_loads_nothing_heavy(taken: Cli) -> None:
    commands = ["audit", "status", "log", "show 1417", "project --check", "verify", "verify --head", "db check"]
    code = _PROBE.format(commands=[f"--db {taken.database} {c}" for c in commands], heavy=HEAVY)
    done = _python("-c", code)
    statuses, loaded = json.loads(done.stderr.splitlines()[-1])
    assert loaded == []
    assert set(statuses) <= {0, 1, 2}


def test_the_package_itself_loads_no_client() -> None:
    clients = ("asyncssh", "google.cloud", "httpx", "requests", "runpod")
    done = _python("-c", f"import ledger, json, sys; print(json.dumps(sorted(set({clients!r}) & set(sys.modules))))")
    assert json.loads(done.stdout) == []


_TICK = """
import json, sys
from ledger.cli.main import run
status = run(["--db", sys.argv[1], "poll"])
loaded = [name for name in ("google.cloud", "google.cloud.compute_v1", "runpod", "asyncssh") if name in sys.modules]
print(json.dumps([status, loaded]))
"""


def test_a_tick_that_needs_only_runpod_does_not_load_googles_client(cli: Cli) -> None:
    cli.append("issue-5", cli.event("RunOpened", {"issue": 5, "ladder": ["runpod"], "rung": "runpod"}))
    made = {"backend": "runpod", "name": "pod-5", "account": ACCOUNT_RUNPOD, "status": "RUNNING"}
    cli.append("issue-5", cli.event("Provisioned", made, attempt="a", machine="runpod:p"))
    settings = cli.folder / "ledger.toml"
    text = settings.read_text(encoding="utf-8").replace('project = ""', 'project = "example-gpu-project"')
    settings.write_text(text, encoding="utf-8")
    serving = Serving(empty(), SystemSource())
    try:
        environment = {**os.environ, **serving.environment(), "HOME": str(cli.folder)}
        done = _python("-c", _TICK, str(cli.database), env=environment, cwd=cli.folder)
    finally:
        serving.close()
    line, told = done.stdout.splitlines()
    assert json.loads(line)["status"]
    status, loaded = json.loads(told)
    assert (status, loaded) == (0, ["runpod"])


def _python(*args: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).resolve().parents[2]
    if env is not None:
        env["PYTHONPATH"] = str(root)
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, check=True, cwd=cwd or root, env=env)


def test_the_console_script_and_the_module_are_the_same(taken: Cli) -> None:
    done = _python("-m", "ledger", "--db", str(taken.database), "log", "--limit", "1", "--json")
    assert json.loads(done.stdout)["type"] == "HandleImported"
