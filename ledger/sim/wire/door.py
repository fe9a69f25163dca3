"""The wire door of one process: a real adapter as the port, with the moments at which a process may die or pause."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ledger.clouds.port import Cloud
from ledger.clouds.values import (
    Absent,
    Accepted,
    CreateSpec,
    Guest,
    LaunchSpec,
    Listing,
    Probe,
    Refused,
    Seen,
    Unknown,
    Unresolved,
)
from ledger.moments import MICROS
from ledger.sim.caller import Caller
from ledger.sim.door import UNSENT
from ledger.sim.history import Sight
from ledger.sim.rules import Ruling
from ledger.sim.wire.gate import CALL, Gate

T = TypeVar("T")


class WiredCloud:
    """A `ledger.clouds.port.Cloud` over `inner`, whose client is on a virtual transport of the same `caller`."""

    def __init__(self, inner: Cloud, gate: Gate, caller: Caller) -> None:
        self.backend = inner.backend
        self.account = inner.account
        self._inner = inner
        self._gate = gate
        self._caller = caller

    def create(self, spec: CreateSpec, *, send_before: float, timeout: float) -> Accepted | Refused | Unresolved:
        """Ask for one machine in one zone."""
        step = partial(self._inner.create, spec, send_before=send_before, timeout=timeout)
        given = self._call("create", step, timeout, send_before)
        return UNSENT if given is None else given[0]

    def describe(self, machine: str, *, timeout: float) -> Seen | Absent | Unknown:
        """Read one machine."""
        return self._read("describe", partial(self._inner.describe, machine, timeout=timeout), timeout)[0]

    def list_all(self, *, timeout: float) -> Listing | Unknown:
        """Every machine of the account."""
        answer, ruling = self._read("list", partial(self._inner.list_all, timeout=timeout), timeout)
        if isinstance(answer, Listing) and answer.account == self.account:
            shown = frozenset(seen.machine for seen in answer.machines)
            stale = ruling is not None and ruling.rule.answer == "stale"
            sight = Sight(self._caller.schedule.now, self.backend, answer.complete, stale, shown)
            self._caller.rules.history.read(self._caller.process.name, sight)
        return answer

    def delete(self, machine: str, *, send_before: float, timeout: float) -> Accepted | Absent | Refused | Unresolved:
        """Ask for the end of a machine."""
        step = partial(self._inner.delete, machine, send_before=send_before, timeout=timeout)
        given = self._call("delete", step, timeout, send_before)
        return UNSENT if given is None else given[0]

    def guest(self, machine: str, *, timeout: float) -> Guest | Unknown:
        """The guest attributes of an instance."""
        if self.backend != "gcp":
            return self._inner.guest(machine, timeout=timeout)
        return self._read("guest_attributes", partial(self._inner.guest, machine, timeout=timeout), timeout)[0]

    def launch(
        self, machine: str, spec: LaunchSpec, *, send_before: float, timeout: float
    ) -> Accepted | Refused | Unresolved:
        """Start the workload over SSH."""
        step = partial(self._inner.launch, machine, spec, send_before=send_before, timeout=timeout)
        if self.backend == "gcp":
            return step()
        given = self._call("launch", step, timeout, send_before)
        return UNSENT if given is None else given[0]

    def probe(self, machine: str, spec: LaunchSpec, *, timeout: float) -> Probe | Unknown:
        """Look for the workload over SSH."""
        return self._read("probe", partial(self._inner.probe, machine, spec, timeout=timeout), timeout)[0]

    def _read(self, kind: str, step: Callable[[], T], timeout: float) -> tuple[T, Ruling | None]:
        given = self._call(kind, step, timeout, None)
        assert given is not None
        return given

    def _call(
        self, kind: str, step: Callable[[], T], timeout: float, send_before: float | None
    ) -> tuple[T, Ruling | None] | None:
        """One call of the port: as `ledger.sim.door` has it, with the wire in the middle. None: it was too late."""
        if not self._caller.sends(self.backend, kind, send_before):
            return None
        call = self._gate.begin(kind, self._caller.schedule.now + max(0, round(timeout * MICROS)))
        token = CALL.set(call)
        try:
            answer = step()
        finally:
            CALL.reset(token)
            ruling = self._gate.end(call)
        if ruling is not None:
            self._caller.returned(self.backend, kind, ruling.number)
        return answer, ruling
