"""As `ledger.sim.wire.transport`, for clients that speak through httpx."""

from __future__ import annotations

import httpx

from ledger.sim.caller import Caller
from ledger.sim.wire.gate import CALL, HEADER, Gate


class VirtualHttpxTransport(httpx.BaseTransport):
    """A client's transport on which virtual time passes; one for each process of the rehearsal."""

    def __init__(self, gate: Gate, caller: Caller) -> None:
        # Loopback without TLS, so no certificates are read.
        self._real = httpx.HTTPTransport(verify=False, limits=httpx.Limits(max_keepalive_connections=0))
        self._gate = gate
        self._caller = caller

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send it over the real socket, then let pass what its answer takes."""
        call = CALL.get()
        if call is None:
            return self._real.handle_request(request)
        request.headers[HEADER] = call.token
        response: httpx.Response | None = None
        error: httpx.TransportError | None = None
        try:
            response = self._real.handle_request(request)
            response.read()  # now, so that the connection is free while this process waits
        except httpx.TransportError as raised:
            error = raised
        takes, lost = self._gate.passed(call)
        in_time = self._caller.spend(takes, call.until - self._caller.schedule.now)
        if lost or not in_time:
            raise httpx.ReadTimeout("no answer within the time-out", request=request) from None
        if error is not None:
            raise error
        assert response is not None
        return response

    def close(self) -> None:
        """Nothing: a client is made for each call, and this outlives it."""
