"""Real processes of the ledger on a simulated world, quick to start: forked from a server that has imported it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

from ledger.cli.base import Call
from ledger.cli.main import run
from ledger.clouds.configured import open_source
from tests.poller.scene import Scene

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "tests.poller.processes",
        "ledger.cli.breaches",
        "ledger.cli.dispatch",
        "ledger.cli.polling",
        "ledger.invariants.audit",
        "ledger.invariants.conduct",
        "ledger.log.statements",
        "ledger.opening",
        "ledger.payloads",
        "ledger.poller.dispatch",
        "ledger.poller.together",
        "ledger.recording",
        "ledger.sim.remote",
    ]
)
SECONDS = 30.0


def _command(argv: Sequence[str], folder: Path, address: str, out: Path) -> None:
    """The child: one command line, its output in a file."""
    descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    source = open_source({"LEDGER_SIM": address})
    os._exit(run(argv, Call(source=source, env={}, cwd=folder)))


def begin(scene: Scene, *argv: object) -> BaseProcess:
    """A process that runs this command line."""
    out = scene.folder / "output"
    process = _CONTEXT.Process(target=_command, args=([str(a) for a in argv], scene.folder, scene.host.address, out))
    process.start()
    return process


def end(process: BaseProcess) -> int:
    """Its exit status; -9 where it was killed."""
    process.join(SECONDS)
    assert process.exitcode is not None, "the process hangs"
    return process.exitcode


def stopped(process: BaseProcess) -> None:
    """Wait until the process stands still."""
    assert process.pid is not None
    for _ in range(2000):
        state = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        if state == "T":
            return
        assert process.is_alive(), "the process has ended instead"
        time.sleep(0.005)
    raise AssertionError("the process did not stop")


def go_on(process: BaseProcess) -> int:
    """Let it go on, and give its exit status."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGCONT)
    return end(process)
