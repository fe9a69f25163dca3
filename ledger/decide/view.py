"""What a decision sees beside the log's state, and what it may answer. Values only.

Times are integer microseconds UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ledger.clouds.values import Absent, Guest, Listing, Probe, Seen, Unknown
from ledger.events import Draft
from ledger.moments import MICROS

# Errors of a probe that say the machine itself could not be reached; an error of the control plane does not.
UNREACHABLE = frozenset({"unreachable", "timeout", "reset"})


@dataclass(frozen=True, slots=True)
class Rent:
    """What may be rented for a run, from the settings: where, under which account, what kind of machine."""

    zones: tuple[str, ...] = ()
    gcp_account: str | None = None
    runpod_account: str | None = None

    def account(self, backend: str) -> str | None:
        """The account that creates on this backend; None: not configured."""
        return self.gcp_account if backend == "gcp" else self.runpod_account


@dataclass(frozen=True, slots=True)
class View:
    """One tick's readings, for one run. What is not in it was not read, and an Unknown taught nothing."""

    now: int
    ledger_id: str = ""
    holder: str = ""
    listings: Mapping[tuple[str, str], Listing] = field(default_factory=dict)  # (backend, account) → a good answer
    seen: Mapping[str, Seen] = field(default_factory=dict)  # machine → as lists and describes show it
    described: Mapping[str, Seen | Absent | Unknown] = field(default_factory=dict)
    guests: Mapping[str, Guest | Unknown] = field(default_factory=dict)
    probes: Mapping[str, Probe | Unknown] = field(default_factory=dict)
    marked: Sequence[Seen] = ()  # bear a marker of this run
    named: Sequence[Seen] = ()  # bear no marker, and exactly a name of this run
    rent: Rent = field(default_factory=Rent)
    usd_per_hour: float = 0.0  # what all billed machines cost together
    may_create: bool = True  # False: a brake holds
    may_call: bool = True  # False: too late in the tick for a call
    may_end: bool = True  # False: a brake holds
    steady_clock: bool = True  # False: this clock is off the clouds'; only facts are recorded
    call_before: int = 20 * MICROS  # how long after its intent a call may be sent
    call_deadline: int = 100 * MICROS  # how long after its intent a call must have returned
    redispatch: bool = False  # a person asks for the run again: what has ended goes at once

    def complete(self, backend: str, account: str) -> Listing | None:
        """The complete list of that account in this tick, if there was one. '' is any account of the backend."""
        for (listed, name), listing in self.listings.items():
            if listed == backend and account in ("", name) and listing.complete and listing.account == name:
                return listing
        return None

    def read_well(self, machine: str, backend: str, account: str) -> bool:
        """Whether this tick read the machine's cloud well: it saw the machine, or has the complete list."""
        return machine in self.seen or self.complete(backend, account) is not None

    def absent(self, machine: str, backend: str, account: str) -> bool:
        """Whether it is gone: a describe of its id says so, and the complete list of its account lacks it.

        Where it is not known whose it is, both are of one account all the same.
        """
        answer = self.described.get(machine)
        listing = self.complete(backend, account)
        if listing is None or not isinstance(answer, Absent) or machine in self.seen:
            return False
        if listing.account != answer.account or account not in ("", answer.account):
            return False
        return all(seen.machine != machine for seen in listing.machines)


@dataclass(frozen=True, slots=True)
class Create:
    """Send the create of this intent."""

    attempt: str
    attempt_try: int


@dataclass(frozen=True, slots=True)
class Delete:
    """Send the delete of this machine."""

    machine: str


@dataclass(frozen=True, slots=True)
class Launch:
    """Send the launch to this machine."""

    machine: str


Action = Create | Delete | Launch


@dataclass(frozen=True, slots=True)
class Step:
    """Append `drafts` (all or none, on the version that was decided on), then act, then append what came of it."""

    drafts: tuple[Draft, ...]
    act: Action | None = None
    why: str = ""


def seconds(micros: int) -> float:
    """Microseconds as seconds."""
    return micros / MICROS


def micros(seconds_: float) -> int:
    """Seconds as microseconds."""
    return round(seconds_ * MICROS)
