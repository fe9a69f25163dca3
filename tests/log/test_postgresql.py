"""The log on PostgreSQL: the contract, on each major that is supported, and what only a server can do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledger.log.store import Log
from tests.log.contract import LogContract
from tests.server import Databases, databases


class TestPostgresql(LogContract):
    @pytest.fixture(params=databases(), ids=str)
    def url(self, request: pytest.FixtureRequest, servers: dict[int, Databases]) -> Iterator[str]:
        server = servers[request.param]
        name = server.make(server.template())
        yield server.url(name)
        server.drop(name)

    def change_past_the_triggers(self, log: Log, sql: str) -> None:
        log.connection.execute("ALTER TABLE events DISABLE TRIGGER USER")
        log.connection.execute(sql)
        log.connection.execute("ALTER TABLE events ENABLE TRIGGER USER")
