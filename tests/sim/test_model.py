"""One run's failover, explored exhaustively over the pure core: truths 1, 2 and 4 within a bound."""

from __future__ import annotations

import pytest

from ledger.decide import provision, teardown
from ledger.sim.model import explore


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_truth_is_broken_whatever_goes_wrong_twice() -> None:
    found = explore(faults=2, ticks=3, pollers=2)
    assert [broken[:2] for broken in found.broken] == []
    assert found.states > 5_000
    assert found.ends > 2_000
    assert set(found.outcomes) >= {"running", "launch_unconfirmed", "no_compute_available", "machine_lost"}


def test_without_a_mishap_there_is_one_way() -> None:
    found = explore(faults=0, ticks=6, pollers=1)
    assert found.broken == []
    assert found.states < 40


def test_a_delete_that_is_never_sent_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teardown, "due_again", lambda machine, view: False)
    assert {truth for truth, _, _ in explore(faults=1, ticks=4, pollers=1).broken} >= {1}


def test_a_machine_of_an_old_intent_that_is_left_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    why = teardown._why_unwanted

    def blind(*args: object) -> object:
        told = why(*args)  # type: ignore[arg-type]
        return None if told and told[0] in ("superseded", "run_closed") else told

    monkeypatch.setattr(teardown, "_why_unwanted", blind)
    assert explore(faults=1, ticks=4, pollers=1).broken


def test_an_intent_that_is_concluded_too_early_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the last look and the wire nobody can be fenced: what a concluded create made all the same is ended."""
    monkeypatch.setattr(provision, "micros", lambda seconds: 0)
    assert explore(faults=1, ticks=4, pollers=1).broken == []
