"""The real shell in a rehearsal: it speaks to the simulated machines, and virtual time passes instead of real time."""

from __future__ import annotations

from ledger.clouds.shell import Endpoint, Shell
from ledger.clouds.values import Accepted, LaunchSpec, Probe, Refused, Unknown, Unresolved
from ledger.sim.caller import Caller
from ledger.sim.wire.gate import CALL, Gate
from ledger.sim.wire.ssh import SshServer

# The most that a call over the loopback may really take: a slow computer is no rule of a scenario.
REAL_SECONDS = 30.0
LATE = float("inf")  # the door has looked at the last moment to send


class VirtualShell:
    """A shell for the adapters of one process of a rehearsal. Addresses that the clouds show lead to `server`."""

    def __init__(self, shell: Shell, server: SshServer, gate: Gate, caller: Caller) -> None:
        self._shell = shell
        self._server = server
        self._gate = gate
        self._caller = caller

    def launch(
        self, machine: str, endpoint: Endpoint | None, spec: LaunchSpec, *, send_before: float, timeout: float
    ) -> Accepted | Refused | Unresolved:
        """As `Shell.launch`."""
        call = CALL.get()
        if call is None:
            return self._shell.launch(machine, endpoint, spec, send_before=send_before, timeout=timeout)
        where = self._begin(machine, endpoint, "launch")
        answer = self._shell.launch(machine, where, spec, send_before=LATE, timeout=REAL_SECONDS)
        return answer if self._passed() else Unresolved("timeout", "no answer within the time-out")

    def probe(self, machine: str, endpoint: Endpoint | None, spec: LaunchSpec, *, timeout: float) -> Probe | Unknown:
        """As `Shell.probe`."""
        call = CALL.get()
        if call is None:
            return self._shell.probe(machine, endpoint, spec, timeout=timeout)
        where = self._begin(machine, endpoint, "probe")
        answer = self._shell.probe(machine, where, spec, timeout=REAL_SECONDS)
        return answer if self._passed() else Unknown("timeout", "no answer within the time-out")

    def _begin(self, machine: str, endpoint: Endpoint | None, kind: str) -> Endpoint | None:
        call = CALL.get()
        assert call is not None
        if endpoint is None:
            # Nothing to connect to; the scenario counts the call all the same.
            self._server.arrive(machine, kind, call.token)
            return None
        self._server.expect(machine, call.token)
        return self._server.endpoint(machine)

    def _passed(self) -> bool:
        call = CALL.get()
        assert call is not None
        takes, lost = self._gate.passed(call)
        return self._caller.spend(takes, call.until - self._caller.schedule.now) and not lost
