"""The stage of the demonstration: a real ledger in a temporary folder, on a clock that the story sets."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import ledger
from ledger.events import Draft, Event
from ledger.log.open import create_log
from ledger.moments import MICROS, parse_time
from ledger.policy import Policy
from ledger.projections.files import SidecarFolder

if TYPE_CHECKING:
    from ledger.invariants.audit import Breach
    from ledger.log.store import Log
    from ledger.state.model import Run

SIDECARS = Path(__file__).parent / "sidecars"


class VirtualSource:
    """A clock that stands until it is set, and chance from a seed: the same story each time."""

    def __init__(self, start: str, seed: int = 1417) -> None:
        self.micros = parse_time(start)
        self._random = random.Random(seed)

    def now(self) -> int:
        return self.micros

    def steady(self) -> float:
        return self.micros / MICROS

    def random_bytes(self, n: int) -> bytes:
        return self._random.randbytes(n)


@dataclass(slots=True)
class Stage:
    """What the story acts on: the log and the folder of handle files."""

    source: VirtualSource
    log: Log
    folder: SidecarFolder
    positions: dict[str, int] = field(default_factory=dict)  # what the story called an event → its position
    vanished: set[str] = field(default_factory=set)  # machines that no list shows any more

    def set_clock(self, moment: str) -> int:
        """The clock now shows this (ISO 8601). Microseconds UTC."""
        self.source.micros = parse_time(moment)
        return self.source.micros

    def old_file(self, stream: str) -> dict[str, Any]:
        """The handle file as the old program left it."""
        value: dict[str, Any] = json.loads((SIDECARS / f"{stream}-handle.json").read_text(encoding="utf-8"))
        return value

    def take_over(self, stream: str) -> None:
        """Import the old program's handle file of this run."""
        from ledger.importing import import_paths

        import_paths(self.log, self.folder, self.source, Policy(), [SIDECARS / f"{stream}-handle.json"])

    def append(self, stream: str, drafts: Sequence[Draft], called: str | None = None) -> list[Event]:
        """Append to a stream as it is, and write the handle files. `called` names the first event, as evidence."""
        events = self.log.append(stream, self.log.state(stream).version, drafts)
        if called:
            self.positions[called] = events[0].position
        self.folder.project(self.log)
        return events

    def audit(self) -> list[Breach]:
        """What `ledger audit` says now."""
        from ledger.invariants.audit import audit

        return audit(self.log, self.source.now(), files=self.folder.rows(self.log))

    def run(self, stream: str) -> Run:
        """The run as the log has it."""
        return self.log.run(stream)


@contextmanager
def temporary(start: str) -> Iterator[Stage]:
    """A ledger that is gone when the story is over."""
    with TemporaryDirectory(prefix="ledger-demo-") as name:
        root = Path(name)
        (root / "handles").mkdir()
        source = VirtualSource(start)
        log = create_log(str(root / "ledger.db"), source, Policy(), ledger.__version__)
        try:
            yield Stage(source, log, SidecarFolder(root / "handles"))
        finally:
            log.connection.close()
