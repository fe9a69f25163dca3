"""SSH of the simulated machines: a real server on a loopback port for each, real shells behind it.

A port answers as its machine does at that moment: one that SSH does not reach breaks the connection off before
anybody is let in. A rule of the scenario is met when a connection arrives whose caller has said which call it is
(`SshServer.expect`, by `ledger.sim.wire.shell`); a client on the real clock says nothing, and its script's first line
tells. Its host key is drawn from the machine's id, so that the same scenario pins the same keys.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import asyncssh

from ledger.clouds import remote
from ledger.clouds.values import Probe
from ledger.sim import machine as read
from ledger.sim.carry import carry_out
from ledger.sim.machine import Machine
from ledger.sim.schema import CallRule
from ledger.sim.wire.gate import Gate
from ledger.sim.wire.ssh_folder import MachineFolder, Ran
from ledger.sim.world import stream_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

T = TypeVar("T")
HOST = "127.0.0.1"
NOTHING = Probe(pid=None, pid_alive=False, log_bytes=0, log_age=None, done=False, gpu_util=None)
MARKS = {remote.LAUNCH_MARK.encode(): "launch", remote.PROBE_MARK.encode(): "probe"}


class SshServer:
    """The SSH ports of all machines. `authorized`: the one public key that is let in; None: every one is.

    Serves on a thread of its own until it is closed.
    """

    def __init__(self, gate: Gate, authorized: str | None = None) -> None:
        self.gate = gate
        self.authorized = asyncssh.import_public_key(authorized) if authorized else None
        self._folder = tempfile.TemporaryDirectory(prefix="sim-ssh-")
        self._ports: dict[str, asyncssh.SSHAcceptor] = {}
        self._folders: dict[str, tuple[MachineFolder, asyncio.Lock]] = {}
        self._expected: dict[str, str] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def endpoint(self, machine: str) -> tuple[str, int]:
        """Where the machine of that port id is reached: (host, port). The port is open however the machine is."""
        return HOST, self._call(self._listen(machine)).get_port()

    def expect(self, machine: str, token: str) -> None:
        """The next connection to this machine is of the call with that token (`launch/7`)."""
        self._expected[machine] = token

    def close(self) -> None:
        """Stop serving, and end every connection."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._folder.cleanup()

    def arrive(self, machine: str, kind: str, token: str | None) -> CallRule:
        """A call of `kind` has come to the machine: the rule it meets, its effect carried out unless it is `ok`."""
        with self.gate.lock:
            known = self.gate.world.known(machine)
            name, zone = (known.name, known.zone) if known else (None, None)
            backend = machine.partition(":")[0]
            ruling = self.gate.admit(backend, kind, name, zone, token)
            if ruling is None:
                return CallRule(backend, kind)
            rule = ruling.rule
            if token is not None:
                self.gate.note(token, rule.takes, rule.answer == "timeout")
            if kind == "launch" and rule.answer != "ok":
                carry_out(self.gate.world, rule, lambda: self.gate.world.launch(machine))
            return rule

    def reached(self, machine: str) -> Machine | None:
        """The machine, if SSH reaches it now."""
        with self.gate.lock:
            self.gate.world.advance(self.gate.now())
            found = self.gate.world.find(machine)
            reachable = found is not None and read.reachable(found, found.state, self.gate.world.now)
            return found if reachable else None

    # On the server's own thread.

    def taken(self, machine: str) -> str | None:
        """The token of the connection that has just come, if its caller told it."""
        return self._expected.pop(machine, None)

    async def run(self, machine: str, command: str, script: bytes, kind: str | None) -> Ran | None:
        """Run a command on the machine as it is now; None: it has gone away."""
        if machine not in self._folders:
            root = Path(self._folder.name) / hashlib.sha256(machine.encode()).hexdigest()[:16]
            self._folders[machine] = (MachineFolder(root), asyncio.Lock())
        folder, lock = self._folders[machine]
        async with lock:
            found = self.reached(machine)
            if found is None:
                return None
            with self.gate.lock:
                world = self.gate.world
                probe = read.probe(found, found.state, world.now)
                now, log = world.start + world.now, f"/workspace/logs/{self._stream(found)}.log"
            ran = await asyncio.to_thread(folder.run, command, script, log, now, probe)
        if kind == "launch":
            answer = remote.read_launch(ran.stdout)
            if ran.launched or (answer is not None and answer.outcome == "already"):
                with self.gate.lock:
                    self.gate.world.launch(machine)
        return ran

    def _stream(self, machine: Machine) -> str:
        return stream_of(self.gate.world.scenario.policy, machine.cloud, machine.name) or machine.name

    async def _listen(self, machine: str) -> asyncssh.SSHAcceptor:
        if machine not in self._ports:
            self._ports[machine] = await asyncssh.listen(
                HOST,
                0,
                server_host_keys=[host_key(machine)],
                server_factory=lambda: _Connection(self, machine),
                process_factory=_session,
                encoding=None,
                config=None,
            )
        return self._ports[machine]

    async def _close(self) -> None:
        for port in self._ports.values():
            port.close()
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self._loop.shutdown_default_executor()

    def _call(self, job: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(job, self._loop).result()


class _Connection(asyncssh.SSHServer):
    """One connection to one machine. `rule` is None until it is known which call it is."""

    def __init__(self, server: SshServer, machine: str) -> None:
        self.server = server
        self.machine = machine
        self.token: str | None = None
        self.rule: CallRule | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self.token = self.server.taken(self.machine)
        if self.token is not None:
            self.rule = self.server.arrive(self.machine, self.token.partition("/")[0], self.token)
        if self.server.reached(self.machine) is None or (self.rule is not None and self.rule.answer == "not_found"):
            conn.abort()

    def begin_auth(self, username: str) -> bool:  # noqa: ARG002  # asyncssh's shape
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:  # noqa: ARG002
        if self.rule is not None and denies(self.rule):
            return False
        return self.server.authorized is None or key == self.server.authorized


def denies(rule: CallRule) -> bool:
    """Whether a machine under this rule lets nobody in."""
    return rule.answer == "unauthorized" or (
        rule.call == "probe" and rule.answer == "error" and rule.http in (401, 403)
    )


async def _session(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """One command, as the rule has it that its call met."""
    connection = process.get_extra_info("connection")
    owner = connection.get_owner()
    assert isinstance(owner, _Connection)
    command = process.command or remote.COMMAND
    script = b"" if command != remote.COMMAND else await process.stdin.read()
    kind = MARKS.get(script.partition(b"\n")[0])
    if owner.rule is None and kind is not None:
        owner.rule = owner.server.arrive(owner.machine, kind, None)
        await asyncio.sleep(owner.rule.takes / 1e6)
    rule = owner.rule or CallRule("", "")
    if rule.answer == "timeout" and owner.token is None:
        await asyncio.Event().wait()  # on the real clock its caller waits in vain; when the server closes, it is over
    if rule.answer in ("timeout", "reset", "not_found", "unauthorized"):
        connection.abort()
        return
    if rule.answer != "ok":
        process.stdout.write(b"<html>malformed</html>\n")
        process.exit(0 if rule.answer == "malformed" else 255)
        return
    ran = await owner.server.run(owner.machine, command, script, kind)
    if ran is None:
        connection.abort()
        return
    process.stdout.write(ran.stdout)
    process.stderr.write(ran.stderr)
    process.exit(ran.status)


def host_key(machine: str) -> asyncssh.SSHKey:
    """The machine's host key, always the same."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key: Ed25519PrivateKey = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"host {machine}".encode()).digest())
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    return asyncssh.import_private_key(text)


def client_key(folder: Path) -> tuple[Path, str]:
    """A new key in `folder` with which a client may be let in: the private key's file, and its public line."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    path = folder / "id_ed25519"
    key.write_private_key(str(path))
    path.chmod(0o600)
    key.write_public_key(f"{path}.pub")
    return path, key.export_public_key("openssh").decode().strip()
