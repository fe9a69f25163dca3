"""What a process of the ledger works with: the injected edges of one poller, dispatcher or command."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ledger.clouds.port import Cloud
from ledger.clouds.values import Unknown
from ledger.source import Source

if TYPE_CHECKING:
    from ledger.log.store import Log
    from ledger.projections.files import SidecarFolder
    from ledger.settings import Settings

T = TypeVar("T")


class Together(Protocol):
    """Runs calls side by side; one that has not returned after `seconds` is `Unknown("timeout")`."""

    def __call__(self, calls: Sequence[Callable[[], T]], seconds: float) -> list[T | Unknown]: ...


@dataclass(slots=True)
class Edges:
    """The edges of one process. `holder` names it in intents, `clouds` is one entry an account."""

    source: Source
    log: Log
    clouds: Sequence[Cloud]
    sidecars: SidecarFolder | None
    settings: Settings
    together: Together
    holder: str
    say: Callable[[str], Any]
