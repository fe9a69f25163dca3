"""A command that only reads starts fast: it loads no library that it does not need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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


def _python(*args: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).resolve().parents[2]
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, check=True, cwd=root)


def test_the_console_script_and_the_module_are_the_same(taken: Cli) -> None:
    done = _python("-m", "ledger", "--db", str(taken.database), "log", "--limit", "1", "--json")
    assert json.loads(done.stdout)["type"] == "HandleImported"
