"""What a process of the ledger works with: the injected edges of one poller, dispatcher or command."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ledger.clouds.host_keys import HostKeys
from ledger.clouds.port import Cloud
from ledger.clouds.values import Unknown
from ledger.decide.view import Rent
from ledger.policy import Policy
from ledger.settings import HYDRA_COMMAND
from ledger.source import Source

if TYPE_CHECKING:
    from ledger.log.store import Log
    from ledger.projections.files import SidecarFolder

T = TypeVar("T")


class Together(Protocol):
    """Runs calls side by side; one that has not returned after `seconds` is `Unknown("timeout")`."""

    def __call__(self, calls: Sequence[Callable[[], T | Unknown]], seconds: float) -> list[T | Unknown]: ...


@dataclass(frozen=True, slots=True)
class Kind:
    """What an intent's name stands for: GPU type and count (0: a CPU machine)."""

    gpu_type: str | None = None
    gpus: int | None = None


@dataclass(slots=True)
class Edges:
    """The edges of one process. `holder` names it in intents; `clouds` is one entry an account.

    `policy` is the settings'; whether the ledger is paused stands in the log. `kinds` are the intents that can be
    rented by name. `hydra_command` is what hydra arguments are given to. `say` is a line for a person, on stderr.
    `host_keys` are those that SSH knows; None: there is no SSH whose keys must be kept.
    """

    source: Source
    log: Log
    clouds: Sequence[Cloud]
    sidecars: SidecarFolder | None
    policy: Policy
    rent: Rent
    kinds: Mapping[str, Kind]
    together: Together
    holder: str
    say: Callable[[str], Any]
    host_keys: HostKeys | None = None
    hydra_command: str = HYDRA_COMMAND

    def cloud(self, backend: str, account: str) -> Cloud | None:
        """The account's cloud; '' is any account of the backend."""
        return next((c for c in self.clouds if c.backend == backend and account in ("", c.account)), None)
