"""The ledger itself as the program under rehearsal: the real poller, dispatcher, commands, log and projections."""

from __future__ import annotations

import itertools
import os
import sqlite3
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import ledger
from ledger.clouds.port import Cloud
from ledger.decide.view import Rent
from ledger.edges import Edges
from ledger.errors import LedgerError
from ledger.events import Event, run_stream
from ledger.importing import import_paths
from ledger.invariants.audit import audit
from ledger.log.open import be_born, create_log, migrate, open_log
from ledger.log.sqlite import SqliteConnection
from ledger.log.store import Hooks, Log
from ledger.poller import manual
from ledger.poller.dispatch import Request, dispatch
from ledger.poller.tick import tick
from ledger.projections.files import Hooks as FileHooks
from ledger.projections.files import SidecarFolder
from ledger.projections.rows import SidecarRow
from ledger.sim.proof import differences
from ledger.sim.rehearse import Bench
from ledger.sim.schema import Dispatch, Scenario
from ledger.sim.scratch import scratch
from ledger.sim.truths import Proof
from ledger.source import Source

GCP_ACCOUNT = "example-gpu-project"
_numbers = itertools.count()


@cache
def _migrated() -> bytes:
    """An empty database with the schema, made once a process: migrations take longer than a short rehearsal."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        connection = SqliteConnection(path)
        try:
            migrate(connection, str(path))
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()
        return path.read_bytes()


class _OnDisk:
    """The database as a file in the rehearsal's folder, as users have it."""

    def __init__(self, folder: Path) -> None:
        self._url = f"sqlite:///{folder / 'ledger.db'}"
        (folder / "ledger.db").write_bytes(_migrated())

    def create(self, source: Source, scenario: Scenario) -> Log:
        return create_log(self._url, source, scenario.policy, ledger.__version__)

    def open(self, source: Source, hooks: Hooks) -> Log:
        log = open_log(self._url, source, hooks=hooks)
        log.connection.execute("PRAGMA synchronous=OFF")  # deaths here are simulated: nothing is lost with the power
        return log


class _InMemory:
    """The same database in memory, which every process of the rehearsal opens by its name: no system calls."""

    def __init__(self) -> None:
        self._name = f"file:/rehearsal-{os.getpid()}-{next(_numbers)}?vfs=memdb"

    def create(self, source: Source, scenario: Scenario) -> Log:
        connection = self._connect()
        _template().backup(connection.raw)
        log = Log(connection, source)
        be_born(log, source, scenario.policy, ledger.__version__)
        return log

    def open(self, source: Source, hooks: Hooks) -> Log:
        return Log(self._connect(), source, hooks)

    def _connect(self) -> SqliteConnection:
        raw = sqlite3.connect(self._name, uri=True, isolation_level=None, cached_statements=256)
        return SqliteConnection.of(raw, self._name)


class _OnServer:
    """The database on a PostgreSQL server: this process's own one there, emptied."""

    def __init__(self, server: str) -> None:
        self._scratch = scratch(server)
        self._scratch.empty()

    def create(self, source: Source, scenario: Scenario) -> Log:
        log = self.open(source, Hooks())
        be_born(log, source, scenario.policy, ledger.__version__)
        return log

    def open(self, source: Source, hooks: Hooks) -> Log:
        return Log(self._scratch.connection(), source, hooks)


@cache
def _template() -> sqlite3.Connection:
    made = sqlite3.connect(":memory:", isolation_level=None)
    made.deserialize(_migrated())
    return made


def _done(_: object) -> int:
    return 0


def _told(edges: Edges, command: Callable[[], int]) -> int:
    """The exit status of a command: what a person cannot ask for is one line and its status, as on the screen."""
    try:
        return command()
    except LedgerError as error:
        edges.say(str(error))
        return error.status


class TheLedger:
    """One ledger in a folder, as `ledger.sim.rehearse.Ledger` asks for it; its database there, or on `server`."""

    def __init__(
        self,
        folder: Path,
        source: Source,
        scenario: Scenario,
        *,
        in_memory: bool = False,
        server: str | None = None,
    ) -> None:
        self._database = _OnServer(server) if server is not None else _InMemory() if in_memory else _OnDisk(folder)
        self.sidecars = folder / "handles"
        self.sidecars.mkdir(exist_ok=True)
        self.scenario = scenario
        self.log = self._database.create(source, scenario)
        self.ledger_id = self.log.ledger_id()
        self._opened: list[Log] = []
        self._folder = SidecarFolder(self.sidecars)
        self._acknowledged: set[str] = set()
        self._right_at: int | None = None
        self._rows: tuple[int, list[SidecarRow]] | None = None
        self._asked_at = -1  # the position at which the invariants were last asked for the moments watched
        self._owed: int | None = None  # the last moment watched since then, nothing having changed
        self._broken: set[str] = set()

    def edges(self, bench: Bench) -> Edges:
        """The edges of one process: its own connection, clouds and hooks."""

        def committed(events: Sequence[Event]) -> None:
            self._acknowledged.update(event.event_id for event in events)
            bench.hooks.after_event(*(event.type for event in events))

        def before_append() -> None:
            self._settle_watch()
            bench.hooks.before_append()

        hooks = Hooks(before_append=before_append, after_commit=committed)
        log = self._database.open(bench.source, hooks)
        self._opened.append(log)
        clouds: Sequence[Cloud] = bench.clouds
        accounts = {cloud.backend: cloud.account for cloud in clouds}
        return Edges(
            source=bench.source,
            log=log,
            clouds=clouds,
            sidecars=SidecarFolder(self.sidecars, FileHooks(during_projection=bench.hooks.during_projection)),
            policy=self.scenario.policy,
            rent=Rent(self.scenario.zones, accounts.get("gcp"), accounts.get("runpod")),
            kinds={},
            together=bench.together,
            holder=bench.holder,
            say=bench.say,
            host_keys=bench.host_keys,
        )

    def import_sidecars(self, edges: Edges, files: Sequence[Path]) -> None:
        """`ledger import FILE...`"""
        import_paths(edges.log, edges.sidecars, edges.source, self.scenario.policy, files, project=GCP_ACCOUNT)

    def dispatch(self, edges: Edges, row: Dispatch) -> int:
        """`ledger dispatch`."""
        asked: dict[str, Any] = {
            "workload_cmd": row.workload_cmd,
            "hydra_args": list(row.hydra_args) or None,
            "gpus": row.gpus,
            "gpu_type": row.gpu_type,
            "env_pins": dict(row.env_pins) or None,
            "time_budget_hours": row.time_budget_hours,
            "zone": row.zone,
        }
        request = Request(
            issue=row.issue,
            lane=row.lane,
            backend=row.backend,
            provisioning_model=row.provisioning_model,
            allow_paid_fallback=row.allow_paid_fallback,
            asked={name: value for name, value in asked.items() if value is not None},
        )
        return _told(edges, lambda: dispatch(edges, request).status)

    def cancel(self, edges: Edges, issue: int, lane: str | None) -> int:
        """`ledger cancel`."""
        return _told(edges, lambda: _done(manual.cancel(edges, run_stream(issue, lane))))

    def finalize(self, edges: Edges, issue: int, lane: str | None) -> int:
        """`ledger finalize`."""
        return _told(edges, lambda: _done(manual.finalize(edges, run_stream(issue, lane))))

    def tick(self, edges: Edges) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """`ledger poll`."""
        return list(tick(edges).lines.items())

    def audit(self, now: int) -> set[str]:
        """The open invariants."""
        return {breach.invariant for breach in audit(self.log, now, self._files())}

    def watch(self, now: int) -> None:
        """What is broken stays broken while nothing changes, for every bound is a moment after which it is passed. So
        the last moment before a change is asked for all the moments since the one before it."""
        position = self.log.head()
        if position == self._asked_at == self._right_at:
            self._owed = now
            return
        self._owed = None
        self._broken |= self.audit(now)
        self._asked_at = position

    def watched(self) -> set[str]:
        """What was broken at the end of a tick."""
        self._settle_watch()
        return self._broken

    def _settle_watch(self) -> None:
        if self._owed is not None:
            self._broken |= self.audit(self._owed)
            self._owed = None

    def _files(self) -> list[SidecarRow]:
        """The files as the audit sees them: nobody but the ledger writes here, so they change with the log, or while
        one is wrong."""
        position = self.log.head()
        if self._rows is None or position != self._rows[0] or position != self._right_at:
            self._rows = position, self._folder.rows(self.log)
        return self._rows[1]

    def events(self) -> Sequence[Mapping[str, Any]]:
        """The log as envelopes."""
        return [event.to_json() for event in self.log.read_all()]

    def runs(self) -> Mapping[str, tuple[str, str | None]]:
        """Each run's status and reason."""
        found: dict[str, tuple[str, str | None]] = {}
        for (stream,) in self.log.connection.query("SELECT stream FROM runs ORDER BY stream"):
            run = self.log.run(stream)
            found[stream] = ("active", None) if run.outcome is None else (run.outcome, run.reason)
        return found

    def wrong_files(self) -> Mapping[str, str]:
        """Active sidecars that are not as the log has it."""
        position = self.log.head()
        if position != self._right_at:
            wrong = {found.path.name: found.kind for found in self._folder.check(self.log)}
            self._right_at = None if wrong else position
            return wrong
        return {}  # nothing has happened since they were right

    def proof(self) -> Proof:
        """What the universal truths need of the ledger."""
        return Proof(frozenset(self._acknowledged), differences(self.log))

    def close(self) -> None:
        """Let go of every connection."""
        for log in (*self._opened, self.log):
            log.connection.close()


@dataclass(frozen=True, slots=True)
class TheProgram:
    """Makes a ledger for a rehearsal.

    `in_memory`: its database leaves nothing to look into; the handle files do. `server`: the URL of a PostgreSQL
    server on which its database is.
    """

    in_memory: bool = False
    server: str | None = None

    def open(self, folder: Path, source: Source, scenario: Scenario) -> TheLedger:
        """A ledger in an empty folder, under the scenario's policy and zones."""
        return TheLedger(folder, source, scenario, in_memory=self.in_memory, server=self.server)
