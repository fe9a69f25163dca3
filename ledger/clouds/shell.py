"""Launch and probe over SSH (asyncssh): each call opens one connection, says one script, and reads one answer.

A machine's host key is pinned when a connection to it first succeeded, before anything is said to it, and kept: one
that shows another key is told nothing. No configuration file and no known_hosts of the user plays a part.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ledger.clouds import remote
from ledger.clouds.values import Accepted, LaunchSpec, Probe, Refused, Unknown, Unresolved
from ledger.source import Source

if TYPE_CHECKING:
    import asyncssh

T = TypeVar("T")
Endpoint = tuple[str, int]
MOST_BYTES = 262_144
UNSENT = Refused("absent", "the last moment to send had passed", unsent=True)
# Which of a server's keys it shows must not change with a version of the library.
_ALGORITHMS = (
    *("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"),
    *("rsa-sha2-512", "rsa-sha2-256"),
)


class Failed(Exception):
    """A call that did not come to an answer. `error` is a class of `Unknown`."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


class _Unsent(Exception):
    pass


def _complain(text: str) -> None:
    print(f"ledger: {text}", file=sys.stderr)


class Shell:
    """SSH to the machines, as `user`. May be called from several threads at once.

    `key_path` is the private key's file; None: the keys of the agent, and those that ssh itself would try.

    `pinned(machine)` is the host key that is kept for a machine (`ssh-ed25519 AAAA…`), None where there is none yet;
    `pin(machine, key)` keeps one, and leaves one that is kept already. Both are called on the thread of the
    call. `environment` holds the values of the secrets that a launch names. `say` gets a line for a person.
    """

    def __init__(
        self,
        user: str,
        key_path: str | Path | None,
        source: Source,
        pinned: Callable[[str], str | None],
        pin: Callable[[str, str], None],
        *,
        environment: Mapping[str, str] | None = None,
        say: Callable[[str], Any] = _complain,
    ) -> None:
        self.user = user
        self.key_path = None if key_path is None else Path(key_path).expanduser()
        self._source = source
        self._pinned = pinned
        self._pin = pin
        self._environment = os.environ if environment is None else environment
        self._say = say
        self._told: set[tuple[str, str]] = set()

    def launch(
        self, machine: str, endpoint: Endpoint | None, spec: LaunchSpec, *, send_before: float, timeout: float
    ) -> Accepted | Refused | Unresolved:
        """Start the workload, detached; of one attempt once, however often it is asked. No endpoint is `unreachable`.

        Refused: surely nothing was started by this call (`unauthorized`, `invalid`; `absent` where `send_before` had
        passed). Unresolved: nobody knows, or nothing could be asked (`unreachable`, `timeout`, `reset`, `malformed`,
        `busy`, `host_key_changed`); asking again is harmless.
        """
        missing = [name for name in spec.secrets if not self._environment.get(name)]
        if missing:
            return Refused(
                "invalid", f"the secret {missing[0]} is not in this environment: set it where the poller runs"
            )
        try:
            script = remote.launch_script(spec, {name: self._environment[name] for name in spec.secrets})
            said = self._run(self._say_to(machine, endpoint, script, send_before), timeout)
        except remote.CannotSay as error:
            return Refused("invalid", str(error))
        except _Unsent:
            return UNSENT
        except Failed as failed:
            if failed.error == "unauthorized":
                return Refused(failed.error, failed.message)
            return Unresolved(failed.error, failed.message)
        answer = remote.read_launch(said)
        if answer is None:
            return Unresolved("malformed", f"{machine} did not answer as the launch script does")
        match answer.outcome:
            case "started" | "already":
                return Accepted()
            case "busy":
                return Unresolved("busy", f"another launch on {machine} is under way")
            case "other":
                return Refused("invalid", f"the workload of another attempt runs on {machine} (pid {answer.detail})")
            case "missing":
                return Refused("invalid", f"the image of {machine} lacks {answer.detail}")
        if answer.detail == "unwritable":
            return Refused("invalid", f"{machine} cannot write {spec.log_path} or what lies beside {spec.pid_file}")
        return Refused("invalid", f"the launcher on {machine} ended before the workload; see {spec.log_path} there")

    def probe(self, machine: str, endpoint: Endpoint | None, spec: LaunchSpec, *, timeout: float) -> Probe | Unknown:
        """Look for the workload of `spec`. Unknown where the channel broke or the answer is not exactly one.

        Errors: `unreachable`, `timeout`, `reset`, `malformed`, `unauthorized`, `host_key_changed`, `invalid`.
        """
        try:
            said = self._run(self._say_to(machine, endpoint, remote.probe_script(spec), None), timeout)
        except remote.CannotSay as error:
            return Unknown("invalid", str(error))
        except Failed as failed:
            return Unknown(failed.error, failed.message)
        probe = remote.read_probe(said, [self._environment.get(name, "") for name in spec.secrets])
        return probe or Unknown("malformed", f"{machine} did not answer as the probe script does")

    def _run(self, job: Coroutine[Any, Any, T], timeout: float) -> T:
        """On a loop of its own, which is not held up by a name server that does not answer."""

        async def limited() -> T:
            async with asyncio.timeout(max(timeout, 0.0)):
                return await job

        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(limited())
        except TimeoutError:
            raise Failed("timeout", "no answer within the time-out") from None
        finally:
            rest = asyncio.all_tasks(loop)
            for task in rest:
                task.cancel()
            if rest:
                loop.run_until_complete(asyncio.wait(rest, timeout=1.0))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    async def _say_to(self, machine: str, endpoint: Endpoint | None, script: bytes, send_before: float | None) -> bytes:
        if endpoint is None:
            raise Failed("unreachable", f"{machine} shows no address for SSH")
        connection = await self._connect(machine, endpoint)
        try:
            return await self._exchange(connection, machine, script, send_before)
        finally:
            connection.abort()

    async def _connect(self, machine: str, endpoint: Endpoint) -> asyncssh.SSHClientConnection:
        """A connection to the machine itself: its host key is the one that is pinned, now at the latest."""
        import asyncssh

        kept = self._pinned(machine)
        shown: list[str] = []

        class Client(asyncssh.SSHClient):
            def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:  # noqa: ARG002
                shown.append(_text(key))
                return kept is None or shown[-1] == kept

        where = f"{machine} at {endpoint[0]}:{endpoint[1]}"
        keys = self._keys()
        try:
            connection, _ = await asyncssh.create_connection(
                Client,
                endpoint[0],
                endpoint[1],
                username=self.user,
                known_hosts=([], [], []),
                server_host_key_algs=_algorithms(kept),
                preferred_auth="publickey",
                x509_trusted_certs=None,
                config=None,
                **keys,
                login_timeout=0,  # the time-out of the whole call is the one that counts
            )
        except asyncssh.HostKeyNotVerifiable:
            raise self._changed(where, kept, shown[-1] if shown else None) from None
        except asyncssh.PermissionDenied:
            raise Failed(
                "unauthorized",
                f"{where} does not take {self.key_path or 'any key'} for {self.user}: is its public key there?",
            ) from None
        except asyncssh.KeyExchangeFailed as error:
            if kept is not None and not shown:
                raise self._changed(where, kept, None) from None
            raise Failed("malformed", f"{where}: {error.reason}") from None
        except (asyncssh.Error, OSError) as error:
            # Before it has let us in, a peer that breaks off is one that does not serve.
            raise Failed("unreachable", f"{where}: {_reason(error)}") from None
        except ValueError as error:
            raise Failed("malformed", f"{where}: {error}") from None
        try:
            if kept is None:
                # Only now: a port that was another machine's a moment ago does not let us in.
                self._pin(machine, shown[-1])
                kept = self._pinned(machine)
                if kept != shown[-1]:
                    raise self._changed(where, kept, shown[-1])
        except BaseException:
            connection.abort()
            raise
        return connection

    def _keys(self) -> dict[str, Any]:
        import asyncssh

        path = self.key_path
        if path is None:
            return {}
        try:
            return {"client_keys": list(asyncssh.load_keypairs(str(path))), "agent_path": None}
        except OSError as error:
            raise Failed("unauthorized", f"no SSH key at {path} ({error.strerror}): see `key` under [ssh]") from None
        except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
            raise Failed("unauthorized", f"the SSH key {path} cannot be used: {error}") from None

    def _changed(self, where: str, kept: str | None, shown: str | None) -> Failed:
        """Loud: once for each key that a machine shows."""
        text = (
            f"{where} shows another host key ({fingerprint(shown)}) than the one pinned ({fingerprint(kept)}): "
            "nothing was sent to it. It was set up anew (`ledger ssh RUN --pin` then), or somebody else answers there"
        )
        if (where, shown or "") not in self._told:
            self._told.add((where, shown or ""))
            self._say(text)
        return Failed("host_key_changed", text)

    async def _exchange(
        self, connection: asyncssh.SSHClientConnection, machine: str, script: bytes, send_before: float | None
    ) -> bytes:
        import asyncssh

        try:
            process = await connection.create_process(remote.COMMAND, encoding=None)
            if send_before is not None and self._source.steady() > send_before:
                raise _Unsent
            process.stdin.write(script)
            process.stdin.write_eof()
            said = b""
            while piece := await process.stdout.read(MOST_BYTES):
                said += piece
                if len(said) > MOST_BYTES:
                    raise Failed("malformed", f"{machine} says more than an answer")
            await process.wait_closed()
        except (asyncssh.Error, OSError) as error:
            raise Failed("reset", f"{machine}: {_reason(error)}") from None
        if process.exit_status is None:
            raise Failed("reset", f"{machine}: the shell there was cut off")
        return said if process.exit_status == 0 else b""


def shown_key(endpoint: Endpoint, timeout: float) -> str:
    """The host key that is shown there now (`ssh-ed25519 AAAA…`), of the kind that a first launch would pin.

    Nothing is said, and nobody logs in. Raises Failed (`unreachable`, `timeout`).
    """
    import asyncssh

    async def look() -> str:
        async with asyncio.timeout(timeout):
            key = await asyncssh.get_server_host_key(*endpoint, server_host_key_algs=_algorithms(None), config=None)
        if key is None:
            raise Failed("unreachable", "no host key was shown")
        return _text(key)

    try:
        return asyncio.run(look())
    except TimeoutError:
        raise Failed("timeout", "no answer within the time-out") from None
    except (asyncssh.Error, OSError, ValueError) as error:
        raise Failed("unreachable", _reason(error)) from None


def _algorithms(kept: str | None) -> list[str]:
    """First what the kept key is good for, so that a server with several keys shows it again."""
    kind = (kept or "").partition(" ")[0]
    first = [name for name in _ALGORITHMS if name == kind or (kind == "ssh-rsa" and name.startswith("rsa-"))]
    return [*first, *(name for name in _ALGORITHMS if name not in first)]


def _text(key: asyncssh.SSHKey) -> str:
    """`ssh-ed25519 AAAA…`, without a comment."""
    return " ".join(key.export_public_key("openssh").decode().split()[:2])


def fingerprint(key: str | None) -> str:
    """`SHA256:…` of a host key; what it is otherwise, where it is none."""
    import asyncssh

    if key is None:
        return "of another kind"
    try:
        return asyncssh.import_public_key(key).get_fingerprint()
    except asyncssh.KeyImportError:
        return key


def _reason(error: Exception) -> str:
    text = getattr(error, "reason", "") or getattr(error, "strerror", "") or str(error) or type(error).__name__
    return " ".join(str(text).split())[:200]
