"""What every test lives under: no network but this machine's own, examples that are the same on every run, a ledger."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import pytest_socket
from hypothesis import HealthCheck, settings

from ledger.log.open import open_log
from ledger.log.store import Log
from tests.server import GIVEN, Databases, Server, databases
from tests.support import FakeSource, ledger_at

# `ci` is the default, so that scripts/test says the same everywhere; HYPOTHESIS_PROFILE=explore searches for more.
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.hookimpl(trylast=True)
def pytest_runtest_setup() -> None:
    pytest_socket.socket_allow_hosts(["127.0.0.1", "::1", "localhost"], allow_unix_socket=True)


@pytest.fixture(scope="session")
def born(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger's database right after its birth, to copy: a migration takes longer than most tests."""
    path = tmp_path_factory.mktemp("born") / "ledger.db"
    with ledger_at(path):
        pass
    return path


class _Servers(dict[int, Databases]):
    """Servers by their major version, each started when it is first asked for; 0 is the one that was named."""

    def __missing__(self, major: int) -> Databases:
        self[major] = made = Server(major) if not GIVEN else Databases(GIVEN)
        return made


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[int, Databases]]:
    """PostgreSQL servers by major version."""
    started = _Servers()
    yield started
    for server in started.values():
        if isinstance(server, Server):
            server.stop()


@pytest.fixture(scope="session")
def server(servers: dict[int, Databases]) -> Databases:
    """The newest PostgreSQL server, or the one that was named."""
    return servers[databases()[0]]


@pytest.fixture
def empty(server: Databases) -> Iterator[str]:
    """The URL of an empty database on it."""
    name = server.make()
    yield server.url(name)
    server.drop(name)


@pytest.fixture
def log(tmp_path: Path, born: Path) -> Iterator[Log]:
    """A new ledger on a temporary SQLite file, its clock in the test's hand (`tests.support.clock`)."""
    path = tmp_path / "ledger.db"
    shutil.copyfile(born, path)
    made = open_log(f"sqlite:///{path}", FakeSource(seed=1))
    yield made
    made.connection.close()
