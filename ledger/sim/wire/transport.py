"""The last step of the real client in a rehearsal: a requests transport on which virtual time passes.

It sends over the real socket, then lets pass what the answer would have taken, and raises `ReadTimeout` where the
caller would have waited in vain, as the library itself does on the real clock.
"""

from __future__ import annotations

from typing import Any

import requests
from requests.adapters import HTTPAdapter

from ledger.sim.caller import Caller
from ledger.sim.wire.gate import CALL, HEADER, Gate


class VirtualTransport(HTTPAdapter):
    """Mounted on a client's session for `http://`; one for each process of the rehearsal."""

    def __init__(self, gate: Gate, caller: Caller) -> None:
        super().__init__(max_retries=0)
        self._gate = gate
        self._caller = caller

    def send(self, request: requests.PreparedRequest, *args: Any, **rest: Any) -> requests.Response:
        """As `HTTPAdapter.send`, on virtual time."""
        call = CALL.get()
        if call is None:
            return super().send(request, *args, **rest)
        request.headers[HEADER] = call.token
        response: requests.Response | None = None
        error: Exception | None = None
        try:
            response = super().send(request, *args, **rest)
            response.content  # noqa: B018  # read now, so that the connection is free while this process waits
        except requests.RequestException as raised:
            error = raised
        takes, lost = self._gate.passed(call)
        in_time = self._caller.spend(takes, call.until - self._caller.schedule.now)
        if lost or not in_time:
            raise requests.ReadTimeout("no answer within the time-out", request=request) from None
        if error is not None:
            raise error
        assert response is not None
        return response
