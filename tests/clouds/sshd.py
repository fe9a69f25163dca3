"""A machine of one's own: an SSH server on the loopback whose shell is this computer's, in a folder of the test."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

import asyncssh

from ledger.clouds import remote
from ledger.clouds.host_keys import HostKeys
from ledger.clouds.shell import Shell
from ledger.clouds.values import LaunchSpec
from ledger.source import SystemSource

T = TypeVar("T")
MACHINE = "runpod:abc"


class Sshd:
    """A server in the way of sshd. What was asked of it stands in `commands`, what was said to it in `scripts`.

    `say`: what it answers instead of running anything; `cut`: it breaks the connection off as the script arrives;
    `silent`: it never answers; `before`: what a start-up file of its shell prints.
    """

    def __init__(self, folder: Path, key: asyncssh.SSHKey, allowed: asyncssh.SSHKey) -> None:
        self.folder = folder
        self.key = key
        self.allowed = allowed
        self.commands: list[str] = []
        self.scripts: list[bytes] = []
        self.say: bytes | None = None
        self.cut = False
        self.silent = False
        self.before = b""
        self.path = os.environ["PATH"]
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.open()

    @property
    def endpoint(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def open(self, port: int = 0) -> None:
        """Begin to serve, with the key that `key` is now."""
        self.shut()
        self._acceptor = self._call(
            asyncssh.listen(
                "127.0.0.1",
                port,
                server_host_keys=[self.key],
                server_factory=lambda: _Login(self),
                process_factory=self._session,
                encoding=None,
                config=None,
            )
        )
        self.port = self._acceptor.get_port()

    def shut(self) -> None:
        """Stop serving."""
        if self._acceptor is not None:
            self._call(self._stop(self._acceptor))
            self._acceptor = None

    @staticmethod
    async def _stop(acceptor: asyncssh.SSHAcceptor) -> None:
        # On the loop's own thread: a server that loses its last client while another thread closes it wakes twice.
        acceptor.close()
        await acceptor.wait_closed()

    def close(self) -> None:
        """The end: no server, and no process that was started here."""
        Path(remote.lock_path(spec(self.folder))).unlink(missing_ok=True)
        for record in self.folder.rglob("*.pid"):
            named = record.read_text().strip()
            # A test may have put another process's pid there, its own for one.
            if named.isdigit() and _started_in(int(named), self.folder):
                os.killpg(int(named), signal.SIGKILL)
        self.shut()
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _session(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        self.commands.append(process.command or "")
        script = await process.stdin.read()
        self.scripts.append(script)
        if self.silent:
            await asyncio.Event().wait()
        if self.cut:
            process.get_extra_info("connection").abort()
            return
        if self.say is not None:
            process.stdout.write(self.say)
            process.exit(0)
            return
        shell = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", process.command or ""),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.folder,
            env={"PATH": self.path, "HOME": str(self.folder)},
        )
        said, complaints = await shell.communicate(script)
        process.stdout.write(self.before + said)
        process.stderr.write(complaints)
        process.exit(shell.returncode or 0)

    def _call(self, job: Awaitable[T]) -> T:
        async def step() -> T:
            return await job

        return asyncio.run_coroutine_threadsafe(step(), self._loop).result(10)


class _Login(asyncssh.SSHServer):
    def __init__(self, server: Sshd) -> None:
        self.server = server

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return username == "root" and key == self.server.allowed


def shell(key_path: Path, keys: HostKeys, said: list[str], **environment: str) -> Shell:
    """A shell as `root`, on the real clock."""
    return Shell("root", key_path, SystemSource(), keys.pinned, keys.pin, environment=environment, say=said.append)


def spec(folder: Path, command: str = "true", attempt: str = "a1", **changes: Any) -> LaunchSpec:
    """A run whose files lie in `folder`."""
    return LaunchSpec(
        run="issue-7",
        attempt=attempt,
        command=command,
        log_path=f"{folder}/w/logs/issue-7.log",
        pid_file=f"{folder}/w/logs/issue-7.pid",
        **changes,
    )


def _started_in(pid: int, folder: Path) -> bool:
    """Whether that process is a launcher of this folder, and leads its group."""
    try:
        return str(folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes() and os.getpgid(pid) == pid
    except OSError:
        return False
