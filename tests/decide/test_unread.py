"""What is done and told where nothing can be read: obligations go on, and blindness is no silence."""

from __future__ import annotations

from typing import Any

import pytest

from tests import support as s
from tests.decide.making import look, run_of, verdict

RUNS = (s.opened(0, rung="runpod"), s.requested(0), s.provisioned(0), s.launched(60), s.cancelled(500))
AGAIN = "TeardownRequested(cancelled) delete"


@pytest.mark.parametrize(
    ("failures", "requests", "at", "expected"),
    [
        # None failed: it was accepted or its sender died, and only a sight of it says that it is still there.
        (0, 1, 9999, "-"),
        (1, 1, 660, AGAIN),
        # The second and the third failed too, and only the second was worth an event.
        (1, 2, 719, "-"),
        (1, 2, 720, AGAIN),
        (2, 3, 839, "-"),
        (2, 3, 840, AGAIN),
        (4, 7, 1199, "-"),
        (4, 7, 1200, AGAIN),
    ],
)
def test_a_delete_that_failed_is_sent_again_though_no_list_answers(
    failures: int, requests: int, at: float, expected: str
) -> None:
    tries: list[Any] = []
    for number in range(1, requests + 1):
        sent = 600 - requests + number
        tries.append(s.teardown(sent))
        if number <= failures:
            tries.append(s.teardown_failed(sent, count=number))
    assert verdict(run_of(*RUNS, *tries), look(at, complete=False)) == expected
