"""What a rehearsal asks of the program that it holds to a scenario, and what it gives each process of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ledger.clouds.host_keys import HostKeys
from ledger.clouds.port import Cloud
from ledger.edges import Together
from ledger.sim.evidence import Proof
from ledger.sim.schema import Dispatch, Scenario
from ledger.source import Source

E = TypeVar("E")


class Hooks(Protocol):
    """Where a process may give way or die. The log and the sidecar folder call these; a real one has none."""

    def before_append(self) -> None:
        """Right before an append opens its transaction."""

    def after_event(self, *types: str) -> None:
        """Right after a commit, before anything else: the types of the events that it appended, in order."""

    def during_projection(self) -> None:
        """With the temporary sidecar written, before it is renamed."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What one process of the ledger is given. `holder` is its name, unique over the rehearsal."""

    holder: str
    source: Source
    clouds: tuple[Cloud, ...]
    together: Together
    hooks: Hooks
    say: Callable[[str], None]
    host_keys: HostKeys | None = None


class Ledger(Protocol[E]):
    """An opened ledger: a database and a folder of sidecars. `E` is what its program calls the edges of a process.

    A process is `edges`, then calls with them. When it dies, `Killed` flies through the call and its edges are never
    used again; what it left is what a killed process leaves. `close` is called once, at the end.
    """

    ledger_id: str
    sidecars: Path

    def edges(self, bench: Bench) -> E:
        """A process begins."""

    def import_sidecars(self, edges: E, files: Sequence[Path]) -> None:
        """`ledger import FILE...`"""

    def dispatch(self, edges: E, row: Dispatch) -> int:
        """`ledger dispatch`, reconnect included; its exit status."""

    def cancel(self, edges: E, issue: int, lane: str | None) -> int:
        """`ledger cancel`; its exit status."""

    def finalize(self, edges: E, issue: int, lane: str | None) -> int:
        """`ledger finalize`; its exit status."""

    def tick(self, edges: E) -> Sequence[tuple[str, Mapping[str, Any]]]:
        """`ledger poll`: stream and tick line of every run."""

    def audit(self, now: int) -> set[str]:
        """Ids of the invariants that are broken at `now` (microseconds UTC)."""

    def watch(self, now: int) -> None:
        """A tick has ended: what is broken at `now` is to be among what `watched` tells."""

    def watched(self) -> set[str]:
        """Ids of the invariants that were broken at a moment that was watched."""

    def events(self) -> Sequence[Mapping[str, Any]]:
        """Every envelope in the order of the log; `payload` is an object."""

    def runs(self) -> Mapping[str, tuple[str, str | None]]:
        """Stream to status (active, finished, failed, cancelled) and reason."""

    def wrong_files(self) -> Mapping[str, str]:
        """Active sidecars that are not as the log has it: file name to what is wrong."""

    def proof(self) -> Proof | None:
        """What the universal truths need of the ledger; None: they are not asked of this program."""

    def close(self) -> None:
        """Let go of the database."""


class Program(Protocol[E]):
    """The program under rehearsal."""

    def open(self, folder: Path, source: Source, scenario: Scenario) -> Ledger[E]:
        """Make a ledger in an empty folder, under the scenario's policy and zones."""
