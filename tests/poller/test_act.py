"""What a call answered enters the log without what it must not hold."""

from __future__ import annotations

import pytest

from ledger.clouds.values import Refused, Unresolved
from ledger.poller import act
from tests import support as s
from tests.decide.making import run_of

TOKEN = "hf_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7"


@pytest.mark.parametrize("answer", [Refused("invalid", f"no such key {TOKEN}"), Unresolved("http_500", f"at {TOKEN}")])
def test_an_error_is_redacted_before_it_is_stored(answer: Refused | Unresolved) -> None:
    intent = next(iter(run_of(s.opened(0, rung="runpod"), s.requested(0)).intents.values()))
    draft = act._refused(intent, 0, answer) if isinstance(answer, Refused) else act._unresolved(intent, 0, answer)
    assert TOKEN not in draft.payload["message"]
    assert "[redacted]" in draft.payload["message"]
