"""The folder in which a simulated machine's shell works: its files and its `kill`, `setsid`, `date` and `nvidia-smi`.

Real shells run real commands here, on files that are made to say what the world says at that moment. Nothing that a
run would compute is run: `setsid` carries the launcher out up to the line after which the workload starts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from ledger.clouds.remote import RECORDED
from ledger.clouds.values import Probe
from ledger.moments import MICROS

SECONDS = 30.0
_PATHS = re.compile(r"^(log|pid_file|launcher|lock|base)=(/[\w./-]*)$", re.MULTILINE)
_TOOLS = {
    "kill": '[ "$1" = -0 ] && [ "$(cat {root}/alive 2>/dev/null)" = "$2" ]',
    "date": "cat {root}/now",
    "nvidia-smi": "[ -r {root}/gpus ] && cat {root}/gpus || exit 9",
    "setsid": f': >{{root}}/launched\nexec sh -c "$(sed \'/^{RECORDED}$/q\' "$3")"',
}


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command said. `launched`: it came to where a workload starts."""

    status: int
    stdout: bytes
    stderr: bytes
    launched: bool


class MachineFolder:
    """One machine's folder. Nobody else may use it while a command runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("bin", "tmp", "workspace/logs"):
            (root / name).mkdir(parents=True, exist_ok=True)
        for name, body in _TOOLS.items():
            tool = root / "bin" / name
            tool.write_text(f"#!/bin/sh\n{body.replace('{root}', quote(str(root)))}\n", encoding="utf-8")
            tool.chmod(0o700)

    def run(self, command: str, script: bytes, log: str, now: int, probe: Probe) -> Ran:
        """Run `command` at `now` (microseconds UTC) on the machine that `probe` describes.

        `script` is its standard input. `log`: where the log lies if `script` does not say so.
        """
        text = script.decode("utf-8", errors="surrogateescape")
        named = {match[1]: match[2] for match in _PATHS.finditer(text)}
        self._make(named.get("log", log), named.get("pid_file", str(Path(log).with_suffix(".pid"))), now, probe)
        here = str(self.root)
        text = _PATHS.sub(lambda match: f"{match[1]}={here}{match[2]}", text).replace("/proc/", f"{here}/proc/")
        environment = {"PATH": f"{here}/bin:/usr/local/bin:/usr/bin:/bin", "HOME": here, "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            ["/bin/sh", "-c", command.replace("/workspace/", f"{here}/workspace/")],
            input=text.encode("utf-8", errors="surrogateescape"),
            capture_output=True,
            cwd=self.root,
            env=environment,
            timeout=SECONDS,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr, (self.root / "launched").exists())

    def _make(self, log: str, pid_file: str, now: int, probe: Probe) -> None:
        """Make the files say what `probe` says."""
        # Paths of a script are absolute there and lie under the folder here.
        logs, pids = self.root / log.lstrip("/"), self.root / pid_file.lstrip("/")
        for folder in (logs.parent, pids.parent):
            folder.mkdir(parents=True, exist_ok=True)
        self._put(self.root / "now", str(now // MICROS))
        self._put(self.root / "launched", None)
        self._put(self.root / "alive", str(probe.pid) if probe.pid_alive else None)
        self._put(self.root / "gpus", None if probe.gpu_util is None else f"{probe.gpu_util}\n")
        self._put(pids, None if probe.pid is None else f"{probe.pid}\n")
        self._put(pids.with_name(f"{pids.name}.run"), None)
        self._put(pids.with_name(f"{pids.name}.exit"), None if probe.exit is None else f"{probe.exit}\n")
        if probe.log_age is None:
            self._put(logs, None)
            return
        tail = f"\n{probe.excerpt}\n".encode()
        with logs.open("wb") as file:
            # A hole is as long as lines would be.
            file.truncate(max(0, (probe.log_bytes or 0) - len(tail)))
            file.seek(0, os.SEEK_END)
            file.write(tail)
        changed = (now - round(probe.log_age * MICROS)) * 1000
        os.utime(logs, ns=(changed, changed))

    @staticmethod
    def _put(path: Path, text: str | None) -> None:
        if text is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(text, encoding="utf-8")

    def remove(self) -> None:
        """Take the folder away."""
        shutil.rmtree(self.root, ignore_errors=True)
