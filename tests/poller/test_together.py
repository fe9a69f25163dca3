"""Calls side by side: in order, within the deadline, and nothing that hangs holds the process."""

from __future__ import annotations

import subprocess
import sys
from threading import Event

import pytest

from ledger.clouds.values import Unknown
from ledger.poller.together import WORKERS, threads
from tests.poller.scene import ROOT

_HANGS = """
from threading import Event
from ledger.poller.together import threads
print(threads([lambda: "quick", lambda: Event().wait()], 0.2))
"""


def test_the_answers_are_in_the_order_of_the_calls() -> None:
    first = Event()

    def second() -> int:
        first.set()
        return 2

    assert threads([lambda: int(first.wait(5)), second, lambda: 3], 5) == [1, 2, 3]
    assert threads([lambda n=n: n for n in range(3 * WORKERS)], 5) == list(range(3 * WORKERS))  # type: ignore[misc]
    assert threads([], 5) == []


def test_what_is_still_out_taught_nothing_and_what_has_not_begun_never_begins() -> None:
    hold, begun = Event(), Event()

    def begin() -> bool:
        begun.set()
        return True

    calls = [*[lambda: hold.wait(5)] * WORKERS, begin]
    answers = threads(calls, 0.05)
    hold.set()
    assert answers == [Unknown("timeout", "no answer in time")] * (WORKERS + 1)
    assert not begun.is_set()


def test_what_a_call_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        threads([lambda: 1 // 0], 5)


def test_a_call_that_hangs_does_not_hold_the_end_of_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _HANGS], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.startswith("['quick', Unknown(error='timeout'")
