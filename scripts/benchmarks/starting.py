"""Section `start`: whole commands on a small log, beside Python itself and a command of a peer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.harness import Block, Bound, Result, Row, Setting, command, ratio, take_turns

FLOOR = "python -c pass"
_ROOT = Path(__file__).resolve().parent.parent.parent
# `dstack` may not agree with the ledger's own packages: it is looked for on PATH, and in a venv of its own.
PEER_VENV = "LEDGER_BENCH_DSTACK"


def dstack(folder: Path) -> str | None:
    """The `dstack` command: of $LEDGER_BENCH_DSTACK, of PATH, or of a venv made here; None where none can be had."""
    given = os.environ.get(PEER_VENV) or shutil.which("dstack")
    if given:
        return given
    venv = folder / "dstack"
    for arguments in (
        [sys.executable, "-m", "venv", str(venv)],
        [str(venv / "bin" / "pip"), "install", "-q", "dstack"],
    ):
        if subprocess.run(arguments, capture_output=True, check=False).returncode:
            return None
    return str(venv / "bin" / "dstack")


def _ledger(setting: Setting) -> Path:
    """A folder with a ledger.toml, a small log, and the handle files of its runs."""
    folder = setting.folder / "small"
    (folder / "handles").mkdir(parents=True)
    made = setting.log(2000, 20)
    (folder / "ledger.toml").write_text(f'database = "{made.path}"\nsidecars = "handles"\n')
    return folder


def start(setting: Setting, result: Result) -> None:
    """The commands that people call all day."""
    folder = _ledger(setting)
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "PYTHONDONTWRITEBYTECODE": ""}
    python = sys.executable
    command([python, "-m", "ledger", "project"], environment, folder)()
    names = ("audit", "status", "log", "show 300")
    contenders: dict[str, Block] = {FLOOR: command([python, "-c", "pass"], environment, folder)}
    for name in names:
        arguments = [python, "-m", "ledger", *name.split()]
        contenders[f"ledger {name}"] = command(arguments, environment, folder)
    peer = dstack(setting.folder)
    if peer:
        contenders["dstack --version"] = command([peer, "--version"], environment, folder)
    else:
        result.notes.append("dstack could not be installed; it is not in the table.")
    times = take_turns(contenders, setting.some(15, 6))
    for name, taken in times.items():
        result.rows.append(Row("start", name, taken.median() * 1e3, "ms", ratio(times, name, FLOOR)))
    for name in ("ledger audit", "ledger status"):
        result.bounds.append(Bound("start", f"{name}, of {FLOOR}", ratio(times, name, FLOOR), "at most", 12.0))
        if peer:
            quicker = ratio(times, "dstack --version", name)
            result.bounds.append(Bound("start", f"{name}, quicker than dstack --version", quicker, "at least", 7.0))
