"""Pollers that watch for hours: one killed at any kind of point leaves nothing that the next does not set right."""

from __future__ import annotations

import pytest

from tests.poller.watchers import FAILOVERS, killed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(len(FAILOVERS)))
def test_a_watching_poller_that_is_killed_loses_no_machine_and_makes_none_double(seed: int) -> None:
    assert killed(seed)[1] == []
